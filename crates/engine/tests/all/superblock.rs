//! Promise: a pool's root is never lost to one crash or one damaged copy, and every kind of trouble is told by name.

use crate::support::Random;
use crate::support::disk::Disk;
use crate::support::pool::{new_pool, small_layout, uuid_of, volume};
use engine::superblock::{self, OpenError};
use format::Layout;
use format::checkpoint::LogEnd;
use format::checksum::crc32c;
use format::layout::SuperblockSlot;
use types::{Mode, VolumeId};

#[test]
fn what_is_stored_is_loaded() {
    let (mut disk, mut pool) = new_pool(1, 2);
    pool.superblock.volumes[1].name = "Grüße \"'\\ ☃".to_string();
    pool.superblock.volumes[2].damaged = true;
    pool.store(&mut disk).expect("stores");
    let ends = [LogEnd { next_seq: 9, next_group: 77, tail_seq: 2 }, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 }];
    pool.begin_session(&mut disk, &ends, &[VolumeId(1)]).expect("begins");
    let loaded = superblock::load(&mut disk).expect("loads");
    assert_eq!(loaded.superblock, pool.superblock);
    assert_eq!(loaded.superblock.session, 1);
    assert!(loaded.superblock.volumes[0].damaged && !loaded.superblock.volumes[1].damaged);
    assert_eq!(loaded.superblock.log_starts[0].first_group, 77);
}

#[test]
fn the_largest_superblock_fits_its_slot() {
    let layout = format::Layout::plan(16 << 30, 256, 64 << 10).expect("fits");
    let mut disk = Disk::new(layout.ssd_bytes);
    let mut pool = superblock::create(&mut disk, layout, uuid_of(1)).expect("creates");
    for id in 1..=1024 {
        let mut record = volume(id, Mode::PassThrough);
        record.name = format!("{id:064}");
        record.backing_identity = vec![0xa5; 256];
        pool.superblock.volumes.push(record);
    }
    pool.superblock.next_volume_id = VolumeId(1025);
    pool.store(&mut disk).expect("stores");
    assert_eq!(superblock::load(&mut disk).expect("loads").superblock, pool.superblock);
}

#[test]
fn a_crash_leaves_the_old_or_the_new() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let (mut disk, mut pool) = new_pool(seed, 1);
        for _ in 0..4 {
            let old = pool.superblock.clone();
            let id = pool.superblock.next_volume_id;
            pool.superblock.volumes.push(volume(id.0, Mode::WriteThrough));
            pool.superblock.next_volume_id = VolumeId(id.0 + 1);
            disk.calls_left = Some(random.below(6));
            let stored = pool.store(&mut disk);
            if random.chance(1, 2) {
                disk.kill_process(&mut random);
            }
            disk.cut_power(&mut random);
            let loaded = superblock::load(&mut disk).expect("one copy is always whole");
            if stored.is_ok() {
                assert_eq!(loaded.superblock, pool.superblock, "seed {seed}");
            } else {
                let either = loaded.superblock == old || loaded.superblock == pool.superblock;
                assert!(either, "seed {seed}: neither old nor new: {loaded:?}");
            }
            pool = loaded;
        }
    }
}

#[test]
fn making_a_pool_over_another_never_mixes_them() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (mut disk, mut old) = new_pool(seed, 2);
        for _ in 0..random.below(4) {
            old.store(&mut disk).expect("stores");
        }
        disk.calls_left = Some(random.below(8));
        let created = superblock::create(&mut disk, small_layout(1), uuid_of(seed + 1000));
        disk.cut_power(&mut random);
        match superblock::load(&mut disk) {
            Ok(loaded) if loaded.superblock.uuid == uuid_of(seed) => {
                assert!(created.is_err(), "seed {seed}");
                assert_eq!(loaded.superblock, old.superblock, "seed {seed}");
            }
            Ok(loaded) => assert_eq!(loaded.superblock.volumes, [], "seed {seed}"),
            Err(error) => {
                assert!(created.is_err(), "seed {seed}: {error}");
                let told = matches!(error, OpenError::NoPool | OpenError::SuperblockDamaged);
                assert!(told, "seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn a_pool_made_anew_is_the_old_one_or_the_new_one_at_any_moment() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (mut disk, mut old) = new_pool(seed, 2);
        for _ in 0..random.below(4) {
            old.store(&mut disk).expect("stores");
        }
        disk.calls_left = Some(random.below(8));
        let created = superblock::create_anew(&mut disk, small_layout(1), uuid_of(seed + 1000));
        disk.cut_power(&mut random);
        let loaded = superblock::load(&mut disk).expect("one copy is always whole");
        if loaded.superblock.uuid == uuid_of(seed) {
            assert!(created.is_err(), "seed {seed}");
            assert_eq!(loaded.superblock, old.superblock, "seed {seed}");
        } else {
            assert_eq!(loaded.superblock.uuid, uuid_of(seed + 1000), "seed {seed}");
            assert_eq!((loaded.superblock.session, &loaded.superblock.volumes[..]), (0, &[][..]), "seed {seed}");
        }
    }
}

#[test]
fn a_pool_is_resized_in_one_step() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut disk = Disk::new(8 << 20);
        let layout = Layout::plan(8 << 20, 3, 64 << 10).expect("fits").with_slots();
        let mut old = superblock::create(&mut disk, layout, uuid_of(seed)).expect("created");
        for _ in 0..random.below(4) {
            old.store(&mut disk).expect("stores");
        }
        disk.calls_left = Some(random.below(60));
        let resized = superblock::resize(&mut disk, 5 << 20);
        disk.cut_power(&mut random);
        let loaded = superblock::load(&mut disk).expect("one copy is always whole");
        let smaller = layout.resized(5 << 20).expect("it can be cut");
        assert!(smaller.segments_per_shard < layout.segments_per_shard);
        if loaded.superblock.layout == layout {
            assert!(resized.is_err(), "seed {seed}");
            assert_eq!(loaded.superblock, old.superblock, "seed {seed}");
        } else {
            assert_eq!(loaded.superblock.layout, smaller, "seed {seed}");
            assert_eq!(loaded.superblock.named_segments, layout.segments_per_shard, "what the ring says is read");
        }
        // Done twice, it is done; but until it is started, the ring may name what is somebody else's by now.
        let mut once = superblock::resize(&mut disk, 5 << 20).expect("done");
        assert_eq!(superblock::resize(&mut disk, 5 << 20).expect("done before").superblock, once.superblock);
        assert_eq!(superblock::resize(&mut disk, 8 << 20).expect_err("never started"), OpenError::NotResizable);
        let ends = once.superblock.log_starts.clone().into_iter().map(|start| LogEnd {
            next_seq: start.first_seq,
            next_group: start.first_group,
            tail_seq: start.tail_seq,
        });
        once.begin_session(&mut disk, &ends.collect::<Vec<_>>(), &[]).expect("begins");
        let larger = superblock::resize(&mut disk, 8 << 20).expect("taken back").superblock;
        assert_eq!((larger.layout, larger.named_segments), (layout, layout.segments_per_shard));
    }
}

#[test]
fn what_cannot_be_resized_says_so() {
    let (mut disk, _) = new_pool(1, 2);
    assert_eq!(superblock::resize(&mut disk, 2 << 20).expect_err("a log"), OpenError::NotResizable);
    let mut disk = Disk::new(8 << 20);
    let layout = Layout::plan(8 << 20, 1, 64 << 10).expect("fits").with_slots();
    superblock::create(&mut disk, layout, uuid_of(1)).expect("created");
    assert_eq!(superblock::resize(&mut disk, 1 << 20).expect_err("nothing is left"), OpenError::NotResizable);
    assert!(matches!(superblock::resize(&mut disk, 9 << 20), Err(OpenError::Truncated { .. })));
}

#[test]
fn one_damaged_copy_is_survived_two_are_told() {
    let (disk, pool) = new_pool(5, 1);
    for slot in SuperblockSlot::ALL {
        for byte in (0..2000).step_by(37) {
            let mut damaged = disk.clone();
            damaged.rot(slot.offset_bytes(), |page| page[byte] ^= 0x10);
            assert_eq!(superblock::load(&mut damaged).expect("the other copy").superblock, pool.superblock);
        }
    }
    let mut damaged = disk.clone();
    for slot in SuperblockSlot::ALL {
        damaged.rot(slot.offset_bytes(), |page| page[300] ^= 1);
    }
    assert_eq!(superblock::load(&mut damaged).expect_err("both damaged"), OpenError::SuperblockDamaged);
}

#[test]
fn every_trouble_has_its_name() {
    let (disk, pool) = new_pool(6, 1);
    let error = |disk: &Disk| superblock::load(&mut disk.clone()).expect_err("trouble");

    let mut empty = Disk::new(8 << 20);
    assert_eq!(error(&empty), OpenError::NoPool);
    empty.rot(0, |page| page[..8].copy_from_slice(b"SOMEBODY"));
    assert_eq!(error(&empty), OpenError::NoPool);
    assert_eq!(error(&Disk::new(0)), OpenError::NoPool);

    let mut wiped = disk.clone();
    superblock::wipe(&mut wiped).expect("wipes");
    assert_eq!(error(&wiped), OpenError::NoPool);

    let mut shorter = disk.clone();
    shorter.truncate(pool.superblock.layout.ssd_bytes - 4096);
    let needed_bytes = pool.superblock.layout.ssd_bytes;
    assert_eq!(error(&shorter), OpenError::Truncated { needed_bytes, found_bytes: needed_bytes - 4096 });
    for size_bytes in [4096, 64 << 10, 512 << 10, (512 << 10) + 4096] {
        shorter.truncate(size_bytes);
        assert_eq!(error(&shorter), OpenError::Truncated { needed_bytes, found_bytes: size_bytes });
    }

    let mut newer = disk.clone();
    newer.rot(SuperblockSlot::B.offset_bytes(), |page| {
        page[12] = format::NEWEST_VERSION as u8 + 1;
        let length = u32::from_le_bytes(page[16..20].try_into().expect("four bytes")) as usize;
        let crc = crc32c(&page[12..length]);
        page[8..12].copy_from_slice(&crc.to_le_bytes());
    });
    assert_eq!(error(&newer), OpenError::NewerVersion { found: format::NEWEST_VERSION + 1 });
    assert!(error(&newer).to_string().contains(&format!("version {}", format::NEWEST_VERSION + 1)));

    let mut unreadable = disk.clone();
    unreadable.fail_at = Some(0);
    assert_eq!(superblock::load(&mut unreadable).expect("the other copy").superblock, pool.superblock);
    unreadable.rot(SuperblockSlot::B.offset_bytes(), |page| page[300] ^= 1);
    unreadable.fail_at = Some(0);
    assert!(matches!(superblock::load(&mut unreadable), Err(OpenError::Medium(_))));
}

#[test]
fn a_failed_flush_is_final() {
    let (mut disk, mut pool) = new_pool(7, 1);
    disk.fail_at = Some(1);
    assert!(matches!(pool.store(&mut disk), Err(OpenError::Medium(error)) if error.operation == "flush"));
    assert_eq!(pool.store(&mut disk), Err(OpenError::FlushFailed));
    let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    assert_eq!(pool.begin_session(&mut disk, &[end], &[]), Err(OpenError::FlushFailed));
}

/// A failed write may be tried again, and a generation is never used twice for different content.
#[test]
fn every_nth_failure_of_a_store() {
    for failing in 0..4 {
        let mut random = Random(failing);
        let (mut disk, mut pool) = new_pool(8, 1);
        let old = pool.superblock.clone();
        pool.superblock.volumes.pop();
        disk.fail_at = Some(failing);
        let error = pool.store(&mut disk).expect_err("the n-th access failed");
        let OpenError::Medium(error) = error else { panic!("{error}") };
        let tried = pool.superblock.clone();
        if error.operation == "write" {
            pool.superblock.volumes[0].name = "again".to_string();
            pool.store(&mut disk).expect("works the second time");
            disk.cut_power(&mut random);
            assert_eq!(superblock::load(&mut disk).expect("loads").superblock, pool.superblock);
        } else {
            disk.cut_power(&mut random);
            let loaded = superblock::load(&mut disk).expect("loads").superblock;
            assert!(loaded == old || loaded == tried, "call {failing}");
        }
    }
}
