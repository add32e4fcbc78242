//! Promise: a checkpoint gives back exactly what was stored in it, once, or nothing at all.

use crate::support::Random;
use crate::support::disk::Disk;
use crate::support::pool::new_pool;
use engine::checkpoint;
use engine::superblock::{self, PoolState};
use format::checkpoint::{CheckpointEntry, LogEnd};
use format::layout::CHECKPOINT_AT_BYTES;
use types::{ShardIndex, VolumeId};

const VOLUMES: [VolumeId; 3] = [VolumeId(1), VolumeId(3), VolumeId(2)];
const ENDS: [LogEnd; 2] = [LogEnd { next_seq: 12, next_group: 345, tail_seq: 6 }, LogEnd { next_seq: 3, next_group: 9, tail_seq: 1 }];

fn entry_of(seed: u64, shard: ShardIndex, slot: u32) -> Option<CheckpointEntry> {
    let mut random = Random(seed << 40 ^ u64::from(shard.0) << 32 ^ u64::from(slot));
    random.chance(3, 4).then(|| CheckpointEntry {
        volume: random.below(3) as u16,
        block: random.below(1 << 34),
        mask: 1 + random.below(255) as u8,
        dirty: random.chance(1, 5),
        heat: random.below(1024) as u16,
        checksum: random.next() as u32,
    })
}

fn write(disk: &mut Disk, pool: &mut PoolState, seed: u64) -> Result<(), superblock::OpenError> {
    checkpoint::write(disk, pool, &ENDS, &VOLUMES, &mut |shard, slot| entry_of(seed, shard, slot))
}

/// All entries of both shards; `None` if there is no valid checkpoint.
fn load(disk: &mut Disk) -> Option<Vec<(ShardIndex, u32, CheckpointEntry)>> {
    let pool = superblock::load(disk).expect("loads");
    let checkpoint = checkpoint::open(disk, &pool).expect("opens")?;
    assert_eq!(checkpoint.log_ends(), ENDS);
    assert_eq!(checkpoint.volumes(), VOLUMES);
    let mut entries = Vec::new();
    for shard in [ShardIndex(0), ShardIndex(1)] {
        let whole = checkpoint.load_shard(disk, &pool, shard, &mut |slot, entry| entries.push((shard, slot, entry)));
        if !whole.expect("reads") {
            return None;
        }
    }
    Some(entries)
}

fn expected(seed: u64, slots: u32) -> Vec<(ShardIndex, u32, CheckpointEntry)> {
    let slots = (0..2).flat_map(|shard| (0..slots).map(move |slot| (ShardIndex(shard), slot)));
    slots.filter_map(|(shard, slot)| Some((shard, slot, entry_of(seed, shard, slot)?))).collect()
}

#[test]
fn what_was_written_is_read_once() {
    let (mut disk, mut pool) = new_pool(1, 2);
    pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
    assert_eq!(load(&mut disk), None, "nothing was written yet");
    write(&mut disk, &mut pool, 1).expect("writes");
    let all = expected(1, pool.superblock.layout.slots_per_shard());
    assert_eq!(load(&mut disk), Some(all.clone()));
    assert_eq!(load(&mut disk), Some(all), "reading alone changes nothing");
    let mut pool = superblock::load(&mut disk).expect("loads");
    pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
    assert_eq!(load(&mut disk), None, "the log may have gone on");
}

#[test]
fn segments_are_found_by_their_place() {
    let (mut disk, mut pool) = new_pool(1, 2);
    write(&mut disk, &mut pool, 1).expect("writes");
    let checkpoint = checkpoint::open(&mut disk, &pool).expect("opens").expect("is there");
    // Eight segments; 6 to 11 are live in the first shard, 1 and 2 in the second.
    let seqs = |shard| (0..8).map(|physical| checkpoint.seq_at(&pool, ShardIndex(shard), physical)).collect::<Vec<_>>();
    assert_eq!(seqs(0), [Some(9), Some(10), Some(11), None, None, Some(6), Some(7), Some(8)]);
    assert_eq!(seqs(1), [Some(1), Some(2), None, None, None, None, None, None]);
}

#[test]
fn any_damage_makes_it_none() {
    let (mut disk, mut pool) = new_pool(2, 2);
    write(&mut disk, &mut pool, 2).expect("writes");
    let layout = pool.superblock.layout;
    let area = CHECKPOINT_AT_BYTES..layout.checkpoint_offset(ShardIndex(2));
    let mut random = Random(2);
    let mut tries = 0;
    for offset_bytes in area.step_by(4096) {
        for _ in 0..20 {
            let mut damaged = disk.clone();
            let bit = random.below(4096 * 8) as usize;
            damaged.rot(offset_bytes, |page| page[bit / 8] ^= 1 << (bit % 8));
            assert_eq!(load(&mut damaged), None, "bit {bit} of the page at {offset_bytes}");
            tries += 1;
        }
    }
    assert!(tries >= 100);
}

#[test]
fn a_crash_while_writing_gives_all_or_none() {
    for seed in 0..120 {
        let mut random = Random(seed);
        let (mut disk, mut pool) = new_pool(seed, 2);
        pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
        // An older checkpoint lies there already.
        write(&mut disk, &mut pool, seed + 500).expect("writes");
        pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
        disk.calls_left = Some(random.below(12));
        let written = write(&mut disk, &mut pool, seed);
        disk.kill_process(&mut random);
        if random.chance(1, 2) {
            disk.cut_power(&mut random);
        }
        let loaded = load(&mut disk);
        if written.is_ok() || loaded.is_some() {
            assert_eq!(loaded, Some(expected(seed, pool.superblock.layout.slots_per_shard())), "seed {seed}");
        }
    }
}

#[test]
fn every_nth_failure_is_told_and_harmless() {
    let mut failing = 0;
    loop {
        let (mut disk, mut pool) = new_pool(3, 2);
        pool.begin_session(&mut disk, &ENDS, &[]).expect("begins");
        disk.fail_at = Some(failing);
        if write(&mut disk, &mut pool, 3).is_ok() {
            break;
        }
        disk.fail_at = None;
        let loaded = load(&mut disk);
        assert!(loaded.is_none() || loaded == Some(expected(3, pool.superblock.layout.slots_per_shard())));
        failing += 1;
    }
    assert!(failing > 5, "chunks, head, two superblock copies and their flushes");
}
