//! Promise: a log becomes slots in place. Whatever it held, dirty blocks and what they rest on are there afterwards, as they were, and nothing is
//! there that was not; a crash at any write or flush leaves the log that it was or the slots that it was to become; and what cannot be
//! upgraded is refused and stays as it was.

use crate::support::Random;
use crate::support::alone::{AT_ONCE, Rig, SECOND_NS, noise, text};
use crate::support::disk::Disk;
use crate::support::given::{Given, is_readable};
use crate::support::lives::{SHARD, one_life_in, run_recovery};
use crate::support::lost::they_stay_errors;
use crate::support::pool::{layout_of, pool_with};
use crate::support::writer::FooterHabit;
use engine::inspect::inspect;
use engine::medium::Medium;
use engine::recovery::RecoveredItem;
use engine::store::slots::recovery::{is_base, recover};
use engine::store::upgrade::{Outlook, UpgradeError, look, upgrade};
use engine::superblock::{self, OpenError, PoolState};
use format::slots::Set;
use format::{Encoding, Layout, PayloadOwner, block_checksum, object_checksum, open_packed};
use oldlog::{Block, Packing, Place, Writer};
use std::collections::BTreeMap;
use types::{Content, VolumeId, VolumeIndex};

const HABITS: [FooterHabit; 4] = [FooterHabit::Flushed, FooterHabit::AtOnce, FooterHabit::Late, FooterHabit::Mixed];

/// A log after several lives, the last of which ended in a crash, in a ring of that many segments.
fn log(seed: u64, packs: bool, segments: u32) -> Disk {
    let mut disk = one_life_in(seed, HABITS[seed as usize % 4], packs, layout_of(segments), 1 + seed % 40);
    disk.cut_power(&mut Random(seed));
    disk
}

fn load(disk: &mut Disk) -> PoolState {
    superblock::load(disk).expect("loads")
}

/// All that a log holds, and what of it can be read: blocks, and objects.
struct Before {
    given: Given,
    blocks: BTreeMap<(u32, u64), bool>,
    objects: BTreeMap<u64, bool>,
}

fn held_by_log(disk: &Disk) -> Before {
    let mut disk = disk.clone();
    let (pool, recovered, items) = run_recovery(&mut disk);
    assert_eq!(recovered.report.damaged_places, 0);
    let mut given = Given::default();
    items.iter().for_each(|item| given.add(*item));
    // What is lost and came home after all is a miss.
    given.blocks.retain(|_, record| record.dirty || record.stored.is_none_or(|stored| stored.encoding != Encoding::Lost));
    let readable = |item: &RecoveredItem| is_readable(&disk, &pool.superblock.layout, item);
    let blocks = given.blocks.iter().map(|(key, record)| (*key, readable(&RecoveredItem::Block(*record)))).collect();
    let full = items.iter().filter(|item| item.stored().is_some_and(|stored| stored.encoding.is_full()));
    let objects = full.map(|item| (item.stored().expect("packed").object, readable(item))).collect();
    Before { given, blocks, objects }
}

/// All that the slots hold, as a start finds it.
fn held_by_slots(disk: &Disk) -> Vec<Set> {
    let mut disk = disk.clone();
    let mut pool = load(&mut disk);
    pool.reserve_session(&mut disk).expect("stores");
    let mut found = Vec::new();
    let session = pool.superblock.session;
    let (end, report) = recover(&mut disk, &pool.superblock, SHARD, session, false, &mut |set: &Set| found.push(*set)).expect("starts");
    assert_eq!(report.damaged_places, 0);
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    found
}

fn is_readable_in_slot(disk: &Disk, layout: &Layout, set: &Set) -> bool {
    let begin = layout.page_offset(SHARD, 0, 0) / 4096 + u64::from(set.slot);
    let page = disk.page(begin);
    let Some(stored) = set.stored else { return block_checksum(None, 0, set.volume, set.block, &page) == set.checksum };
    match stored.encoding {
        Encoding::Raw => object_checksum(stored.object, &page) == set.checksum,
        encoding if !encoding.has_packed_payload() => true,
        encoding => {
            let owner = if encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(set.volume, set.block) };
            let bytes = [page, disk.page(begin + 1)].concat();
            open_packed(owner, set.checksum, &bytes[usize::from(stored.unit) * 16..][..usize::from(stored.bytes)]).is_some()
        }
    }
}

/// The slots hold what the log held: all that is dirty, and nothing else. Gives how many blocks they do not hold.
fn check_slots(disk: &Disk, before: &Before, story: &str) -> u64 {
    let layout = load(&mut disk.clone()).superblock.layout;
    let found = held_by_slots(disk);
    let given = &before.given;
    let mut missing = given.blocks.clone();
    for set in found.iter().filter(|set| !is_base(set)) {
        let key = (set.volume.0, set.block);
        let record = missing.remove(&key).unwrap_or_else(|| panic!("{story}: {set:?} was not in the log"));
        assert_eq!((set.dirty, set.mask, set.checksum), (record.dirty, record.mask, record.checksum), "{story}: {record:?}");
        let stored = set.stored.map(|stored| (stored.encoding, stored.object, stored.bytes, set.vital));
        assert_eq!(stored, record.stored.map(|stored| (stored.encoding, stored.object, stored.bytes, stored.vital)), "{story}");
        assert_eq!(is_readable_in_slot(disk, &layout, set), before.blocks[&key], "{story}: {set:?}, {record:?}");
    }
    assert!(missing.values().all(|record| !record.dirty), "{story}: dirty blocks are gone: {missing:?}");
    // What blocks rest on is there, if it was.
    let is_object = |set: &Set, object| set.stored.is_some_and(|stored| stored.encoding.is_full() && stored.object == object);
    for set in &found {
        let Some(stored) = set.stored.filter(|stored| stored.encoding.rests_on_base()) else { continue };
        let base = found.iter().find(|base| is_object(base, stored.object));
        match given.object(stored.object) {
            None => assert!(set.dirty && base.is_none(), "{story}: {set:?} rests on nothing"),
            Some(_) => {
                let base = base.unwrap_or_else(|| panic!("{story}: the base of {set:?} is gone"));
                assert_eq!(is_readable_in_slot(disk, &layout, base), before.objects[&stored.object], "{story}: {base:?}");
            }
        }
    }
    missing.len() as u64
}

/// The log is what it was, but for clean blocks that it may have forgotten. Gives whether it has forgotten any.
fn check_log(disk: &Disk, before: &Before, story: &str) -> bool {
    let now = held_by_log(disk);
    for (key, record) in &now.given.blocks {
        assert_eq!(Some(record), before.given.blocks.get(key), "{story}");
        assert_eq!(now.blocks[key], before.blocks[key], "{story}: {record:?}");
    }
    let dirty = |given: &Given| given.blocks.values().filter(|record| record.dirty).count();
    assert_eq!(dirty(&now.given), dirty(&before.given), "{story}: dirty blocks");
    now.blocks.len() < before.blocks.len()
}

/// Upgrades, and checks what there is then.
fn upgraded(disk: &mut Disk, before: &Before, packs: bool, story: &str) -> Option<Outlook> {
    let mut pool = load(disk);
    let seen = look(&mut disk.clone(), &pool, packs);
    match upgrade(disk, &mut pool, packs) {
        Ok(outlooks) => {
            assert_eq!(seen.as_ref(), Ok(&outlooks), "{story}: as it was said to be");
            let [outlook] = outlooks[..] else { panic!("one shard") };
            // Both copies of the superblock, and no write that is not flushed.
            disk.cut_power_keeping(|_| false, 0);
            assert_eq!(
                inspect(&mut disk.clone(), &mut |_, _| {}).generations[0],
                inspect(&mut disk.clone(), &mut |_, _| {}).generations[1]
            );
            assert!(load(disk).superblock.layout.has_slots());
            let forgotten = check_slots(disk, before, story);
            assert_eq!((outlook.blocks + forgotten, outlook.forgotten_blocks), (before.blocks.len() as u64, forgotten), "{story}");
            Some(outlook)
        }
        Err(error) => {
            assert_eq!(error, UpgradeError::Dirty { shard: 0 }, "{story}");
            assert_eq!(seen, Err(error), "{story}: as it was said to be");
            assert!(!check_log(disk, before, story), "{story}: a refusal changes nothing");
            None
        }
    }
}

#[test]
fn logs_of_all_kinds_are_upgraded() {
    let (mut done, mut refused, mut whole, mut copied) = (0, 0, 0, 0);
    for seed in 0..400 {
        let packs = seed % 2 == 1;
        let mut disk = log(seed, packs, [12, 24, 60, 120][seed as usize / 2 % 4]);
        let before = held_by_log(&disk);
        match upgraded(&mut disk, &before, seed % 3 == 0, &format!("seed {seed}")) {
            Some(outlook) => {
                (done, copied) = (done + 1, copied + outlook.copied_bytes);
                whole += u64::from(outlook.forgotten_blocks == 0);
            }
            None => refused += 1,
        }
    }
    println!("{done} upgraded, {whole} of them whole, {refused} refused; {copied} bytes copied");
    assert!(done > 250 && whole > 200 && refused > 5 && copied > 1_000_000, "{done}, {whole}, {refused}, {copied}");
}

#[test]
fn a_crash_at_any_write_or_flush_leaves_the_log_or_the_slots() {
    let (mut logs, mut slots, mut forgot) = (0, 0, 0);
    for seed in 0..24 {
        let packs = seed % 3 != 0;
        let disk = log(1000 + seed, packs, 40);
        let before = held_by_log(&disk);
        let mut random = Random(seed);
        if upgrade(&mut disk.clone(), &mut load(&mut disk.clone()), packs) == Err(UpgradeError::Dirty { shard: 0 }) {
            continue;
        }
        for calls in 0.. {
            let mut crashed = disk.clone();
            let mut pool = load(&mut crashed);
            crashed.calls_left = Some(calls);
            let ended = upgrade(&mut crashed, &mut pool, packs);
            if ended.is_ok() {
                break;
            }
            let story = format!("seed {seed}, after {calls} calls");
            if random.chance(1, 3) {
                crashed.kill_process(&mut random)
            } else {
                crashed.cut_power(&mut random)
            }
            if load(&mut crashed).superblock.layout.has_slots() {
                slots += 1;
                check_slots(&crashed, &before, &story);
            } else {
                logs += 1;
                forgot += u64::from(check_log(&crashed, &before, &story));
                // Again, with what lies there now.
                let now = held_by_log(&crashed);
                assert!(upgraded(&mut crashed, &now, packs, &story).is_some(), "{story}");
            }
        }
    }
    println!("{logs} crashes left the log, {forgot} of them without some clean blocks, {slots} the slots");
    assert!(logs > 150 && slots > 30, "{logs}, {slots}");
}

#[test]
fn an_access_that_fails_is_an_error_and_the_pool_is_one_or_the_other() {
    let (mut failed, mut read_errors) = (0, 0);
    for seed in 0..6 {
        let packs = seed % 2 == 1;
        let disk = log(2000 + seed, packs, 30);
        let before = held_by_log(&disk);
        for access in 0.. {
            let mut disk = disk.clone();
            let mut pool = load(&mut disk);
            let reads = disk.reads;
            disk.fail_at = Some(access);
            let ended = upgrade(&mut disk, &mut pool, packs);
            if disk.fail_at.take().is_some() {
                break;
            }
            failed += 1;
            let story = format!("seed {seed}, access {access} failed: {ended:?}");
            if load(&mut disk).superblock.layout.has_slots() {
                check_slots(&disk, &before, &story);
            } else {
                assert!(ended.is_err(), "{story}");
                read_errors += u64::from(disk.reads > reads);
                check_log(&disk, &before, &story);
            }
        }
    }
    assert!(failed > 200 && read_errors > 0, "{failed} accesses failed");
}

const GOLDEN: [&[u8]; 3] = [
    include_bytes!("../../../format/tests/golden/v1.pages"),
    include_bytes!("../../../format/tests/golden/v2.pages"),
    include_bytes!("../../../format/tests/golden/v3.pages"),
];

#[test]
fn golden_images_of_all_versions_are_upgraded() {
    for golden in GOLDEN {
        let mut disk = crate::golden::golden_disk(golden);
        let mut pool = load(&mut disk);
        let damaged = UpgradeError::DamagedVolume { name: "x".repeat(64) };
        assert_eq!(upgrade(&mut disk, &mut pool, false), Err(damaged), "one of its volumes is marked");
        pool.superblock.volumes.iter_mut().for_each(|volume| volume.damaged = false);
        pool.store(&mut disk).expect("stores");
        let before = held_by_log(&disk);
        let outlook = upgraded(&mut disk, &before, false, "golden").expect("there is room");
        assert_eq!((outlook.blocks, outlook.dirty_blocks, outlook.forgotten_blocks), (5, 3, 0));
        let blocks: Vec<(VolumeId, u64, bool, u8)> =
            held_by_slots(&disk).iter().map(|set| (set.volume, set.block, set.dirty, set.mask)).collect();
        let expected = [(1, 7, false, 0xff), (2, (1 << 34) - 1, false, 0xff), (1, 8, true, 0x0f), (1, 9, true, 0xff), (1, 10, true, 0x80)];
        assert_eq!(blocks, expected.map(|(volume, block, dirty, mask)| (VolumeId(volume), block, dirty, mask)));
    }
}

#[test]
fn what_cannot_be_upgraded_is_refused_and_nothing_is_written() {
    let refused = |disk: &mut Disk, pool: &mut PoolState| {
        let before: Vec<(u64, [u8; 4096])> = disk.used_pages().into_iter().map(|page| (page, disk.page(page))).collect();
        let error = upgrade(disk, pool, false).expect_err("it is refused");
        let after: Vec<(u64, [u8; 4096])> = disk.used_pages().into_iter().map(|page| (page, disk.page(page))).collect();
        assert!(before == after, "{error}: something was written");
        error
    };
    let (mut disk, mut pool) = pool_with(1, layout_of(40).with_slots());
    assert_eq!(refused(&mut disk, &mut pool), UpgradeError::HasSlots);
    // As earlier releases made them, and never used them.
    let long = Layout { segment_bytes: 8 << 20, segments_per_shard: 16_384, ..layout_of(8) };
    let long = Layout { ssd_bytes: long.end_bytes(), ..long };
    let (mut disk, mut pool) = pool_with(1, long);
    assert!(matches!(refused(&mut disk, &mut pool), UpgradeError::Open(OpenError::LogsTooLong { .. })));
    // A sealed segment in the middle of the log is gone.
    let mut disk = log(4, false, 40);
    let mut pool = load(&mut disk);
    let (_, recovered, _) = run_recovery(&mut disk.clone());
    let layout = pool.superblock.layout;
    let lost = layout.segment_offset(SHARD, layout.physical(recovered.end.tail_seq + 3));
    assert!(recovered.end.next_seq > recovered.end.tail_seq + 6, "{recovered:?}");
    (0..16).for_each(|page| disk.rot(lost + page * 4096, |bytes| bytes.fill(0)));
    assert_eq!(upgrade(&mut disk, &mut pool, false), Err(UpgradeError::DamagedLog { shard: 0 }));
    assert!(!load(&mut disk).superblock.layout.has_slots());
    assert_eq!(disk.size_bytes(), layout.ssd_bytes);
}

/// A log that is full of blocks, clean and dirty by turns, as an earlier release left it.
fn full_log(content: Content, of: fn(u64) -> [u8; 4096]) -> (Disk, Vec<u64>) {
    let layout = Layout::plan(6 << 20, 1, 64 << 10).expect("a small pool");
    let (mut disk, mut pool) = pool_with(7, layout);
    let place = Place { uuid: pool.superblock.uuid, session: 1, shard: SHARD, layout };
    // It goes round the end of the shard's part.
    let packing = (content != Content::Off).then(|| Packing::fast(5));
    let (mut writer, mut blocks) = (Writer::new(place, 50, packing), 0);
    while writer.full_segments() + 3 < u64::from(layout.segments_per_shard) {
        // What is dirty lies in the last quarter.
        let dirty = blocks % 2 == 1 && writer.full_segments() * 4 > 3 * u64::from(layout.segments_per_shard);
        writer.add(&Block { volume: VolumeId(1), block: blocks, mask: u8::MAX, dirty, page: &of(blocks) });
        blocks += 1;
    }
    let log = writer.finish();
    pool.begin_session(&mut disk, &[log.begin()], &[]).expect("begins");
    for (offset_bytes, bytes) in &log.writes {
        disk.write(*offset_bytes, bytes).expect("writes");
    }
    disk.flush().expect("flushes");
    (disk, (0..blocks).collect())
}

/// A full log is upgraded, and the engine goes on.
#[test]
fn a_full_log_stays_warm_and_goes_on_as_slots() {
    for (content, of, least_percent) in [(Content::Off, noise as fn(u64) -> [u8; 4096], 90), (Content::Fast, text, 45)] {
        let (mut disk, cached) = full_log(content, of);
        let before = held_by_log(&disk);
        assert_eq!(before.blocks.len(), cached.len());
        let packs = content != Content::Off;
        let story = format!("{content:?}");
        // Interrupted at each of its steps first.
        let mut forgot = 0;
        for calls in 0.. {
            let mut crashed = disk.clone();
            crashed.calls_left = Some(calls);
            if upgrade(&mut crashed, &mut load(&mut disk.clone()), packs).is_ok() {
                break;
            }
            crashed.cut_power(&mut Random(calls));
            match load(&mut crashed).superblock.layout.has_slots() {
                true => drop(check_slots(&crashed, &before, &story)),
                false => forgot += u64::from(check_log(&crashed, &before, &story)),
            }
        }
        let mut state = load(&mut disk);
        let [outlook] = upgrade(&mut disk, &mut state, packs).expect("there is room")[..] else { panic!("one shard") };
        let forgotten = check_slots(&disk, &before, &story);
        assert_eq!((forgotten, outlook.blocks), (outlook.forgotten_blocks, cached.len() as u64 - forgotten), "{story}");
        println!("{story}: {outlook:?}; {forgot} crashes left a log that had forgotten blocks");
        assert!(outlook.blocks * 100 >= cached.len() as u64 * least_percent, "{story}: {} of {}", outlook.blocks, cached.len());
        let mut rig = Rig::new(content).restarted(&mut disk, content);
        for block in &cached {
            rig.backing[*block as usize * 4096..][..4096].copy_from_slice(&of(*block));
        }
        let warm = rig.cached();
        assert_eq!(warm.len() as u64, outlook.blocks, "{story}");
        assert!(warm.iter().all(|block| cached.binary_search(block).is_ok()), "{story}");
        rig.check(of);
        assert_eq!(rig.shard.volume_stats(VolumeIndex(0)).expect("attached").backing_reads, 0, "{story}: all of it from the SSD");
        // It is written over, in part, and filled to the end.
        for first in (0..4096).step_by(AT_ONCE as usize) {
            let contents: Vec<[u8; 4096]> = (first..first + AT_ONCE).map(of).collect();
            rig.write(first, &contents);
        }
        rig.pass(SECOND_NS);
        rig.check(of);
        assert!(rig.cached().len() > 500, "{story}: {}", rig.cached().len());
    }
}

#[test]
fn what_was_lost_in_the_log_is_an_error_until_it_is_written_anew() {
    for packs in [false, true] {
        they_stay_errors(packs);
    }
}
