//! Promise: whatever is wrong with the bytes, nothing panics, nothing wrong is served, and what may be lost is told.

use crate::support::Random;
use crate::support::checkpoint;
use crate::support::disk::Disk;
use crate::support::given::{Given, is_readable};
use crate::support::model::Model;
use crate::support::pool::new_pool;
use crate::support::writer::{FooterHabit, Writer};
use engine::inspect::inspect;
use engine::recovery::{Recovered, RecoveredItem, RecoveredRecord, recover};
use engine::superblock::{self, PoolState};
use format::GroupHead;
use format::checkpoint::LogEnd;
use format::checksum::crc32c;
use types::{Mode, ShardIndex, VolumeId};

const SHARD: ShardIndex = ShardIndex(0);
const VOLUMES: [VolumeId; 3] = [VolumeId(1), VolumeId(2), VolumeId(3)];

/// A pool of two sessions, all of it flushed and called so; its model, and the last group's number. Volume 3 is write-through. Of odd seeds
/// half of the records are packed.
fn settled_pool(seed: u64) -> (Disk, Model, u64) {
    let mut random = Random(seed);
    let (mut disk, mut pool) = new_pool(seed, 1);
    pool.superblock.volumes[2].mode = Mode::WriteThrough;
    pool.superblock.volumes[2].may_have_dirty = false;
    let mut end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    let mut model = Model::default();
    for habit in [FooterHabit::Mixed, FooterHabit::Flushed] {
        pool.begin_session(&mut disk, &[end], &[]).expect("begins");
        let mut writer = Writer::new(&pool, SHARD, end, model, habit);
        writer.packs = seed % 2 == 1;
        for _ in 0..30 + random.below(90) {
            writer.step(&mut disk, &mut random);
        }
        writer.settle(&mut disk, &mut random);
        model = writer.model;
        disk.kill_process(&mut random);
        if habit == FooterHabit::Mixed {
            let (_, recovered, _) = recovery(&disk.clone(), false).expect("recovers");
            let mut again = superblock::load(&mut disk).expect("loads");
            recover(&mut disk, &mut again, SHARD, false, &mut |_| {}).expect("recovers");
            end = recovered.end;
            model.truncate(end.next_group - 1, end.tail_seq);
            pool = again;
        }
    }
    let last = model.groups.last().expect("groups were written").number;
    (disk, model, last)
}

type Outcome = (PoolState, Recovered, Given);

fn recovery(disk: &Disk, force: bool) -> Result<Outcome, superblock::OpenError> {
    let mut disk = disk.clone();
    let mut pool = superblock::load(&mut disk)?;
    let mut given = Given::default();
    let recovered = recover(&mut disk, &mut pool, SHARD, force, &mut |item| given.add(item))?;
    Ok((pool, recovered, given))
}

/// Volumes that damage puts at risk: those recorded as write-back, and any other that is found to have dirty blocks.
fn at_risk(given: &Given) -> Vec<VolumeId> {
    let settled_yet_dirty = given.blocks.values().any(|record| record.volume == VolumeId(3) && record.dirty);
    [VolumeId(1), VolumeId(2)].into_iter().chain(settled_yet_dirty.then_some(VolumeId(3))).collect()
}

/// What must hold of a recovery from damaged bytes. Without reported damage it is the log up to some group, not before `known_durable`.
/// With damage, clean blocks must still be the newest ones, and older dirty ones belong to volumes that are named.
fn check(model: &Model, last: u64, known_durable: u64, outcome: &Outcome, story: &str) {
    let (_, recovered, given) = outcome;
    let report = &recovered.report;
    if report.damaged_places == 0 {
        let end = recovered.end.next_group - 1;
        assert!(end >= known_durable && end <= last, "{story}: ends at {end} of {last} without a word");
        let expected = model.live(end, recovered.end.tail_seq, &VOLUMES);
        assert!(*given == expected.given, "{story}: not what the log up to {end} says");
        return;
    }
    assert_eq!(report.damaged_volumes, at_risk(given), "{story}");
    let clean = given.blocks.values().filter(|record| !record.dirty);
    assert!(clean.clone().all(|record| !rests_on_nothing(given, record)), "{story}: a clean block without its base");
    let tail_seq = |end| model.group(end).map_or(1, |group| group.tail_seq);
    let newest: Vec<Given> = (known_durable..=last).map(|end| model.live(end, tail_seq(end), &VOLUMES).given).collect();
    for record in clean {
        // It may have come home by a note that is lost, or be newer than one; its place is what counts.
        let key = (record.volume.0, record.block);
        let place = |given: &Given| given.blocks.get(&key).map(|other| (other.segment_seq, other.ordinal));
        let current = newest.iter().any(|given| place(given) == Some((record.segment_seq, record.ordinal)));
        assert!(current, "{story}: clean block {key:?} is outdated");
    }
}

/// Whether the base of a block was not given.
fn rests_on_nothing(given: &Given, record: &RecoveredRecord) -> bool {
    record.stored.is_some_and(|stored| stored.encoding.rests_on_base()) && given.base_of(record).is_none()
}

#[test]
fn one_rotten_page_anywhere() {
    let (mut damaged_count, mut repaired_count) = (0, 0);
    for seed in 0..12 {
        let (disk, model, last) = settled_pool(seed);
        let mut random = Random(seed);
        for page in disk.used_pages() {
            let mut rotten = disk.clone();
            let kind = random.below(3);
            rotten.rot(page * 4096, |bytes| match kind {
                0 => bytes[random.below(4096) as usize] ^= 1 << random.below(8),
                1 => bytes.fill(0),
                _ => bytes[random.below(8) as usize * 512..][..512].fill(0),
            });
            let story = format!("seed {seed}, page {page}, kind {kind}");
            let outcome = recovery(&rotten, false).expect("one copy of the superblock is whole");
            // The newest claim may be in the rotten page; the one before it says one group less.
            check(&model, last, last - 2, &outcome, &story);
            damaged_count += u64::from(outcome.1.report.damaged_places > 0);
            repaired_count += u64::from(outcome.1.report.walked_segments > 0);
            let inspection = inspect(&mut rotten.clone(), &mut |_, _| {});
            let damaged = inspection.shards[0].recovery.damaged_places;
            assert_eq!(damaged, outcome.1.report.damaged_places, "{story}: the inspector disagrees");
        }
    }
    assert!(damaged_count > 0 && repaired_count > 0, "{damaged_count} damaged, {repaired_count} repaired");
}

/// A segment and where the next begins are lost, as with a broken part of the flash: headers further on still tell.
#[test]
fn lost_headers_in_a_row_are_told() {
    let mut told = 0;
    for seed in 0..60 {
        let (mut disk, model, last) = settled_pool(seed);
        let (pool, whole, _) = recovery(&disk, false).expect("recovers");
        let layout = pool.superblock.layout;
        let headers = |disk: &Disk, seq: u64| -> Vec<u64> {
            let first_page = layout.segment_offset(SHARD, layout.physical(seq)) / 4096;
            let pages = first_page..first_page + u64::from(layout.group_pages());
            pages.filter(|page| disk.page(*page).starts_with(b"HRTHGRP1")).collect()
        };
        let head_seq = whole.end.next_seq - 1;
        let (before, head) = (headers(&disk, head_seq - 1), headers(&disk, head_seq));
        if head_seq <= pool.superblock.log_starts[0].first_seq || head.len() < 4 {
            continue;
        }
        before.iter().for_each(|page| disk.rot(page * 4096, |bytes| bytes.fill(0)));
        disk.rot(layout.footer_offset(SHARD, layout.physical(head_seq - 1)), |bytes| bytes.fill(0));
        disk.rot(layout.footer_offset(SHARD, layout.physical(head_seq)), |bytes| bytes.fill(0));
        disk.rot(head[0] * 4096, |bytes| bytes.fill(0));
        let claim = |page: &u64| GroupHead::decode(&disk.page(*page)).expect("a header").0.durable_group;
        let claimed = head[1..].iter().map(claim).max().expect("three are left");
        let outcome = recovery(&disk, false).expect("recovers");
        check(&model, last, claimed, &outcome, &format!("seed {seed}"));
        told += u64::from(outcome.1.report.damaged_places > 0);
    }
    assert!(told > 5, "only {told} cases");
}

/// Damage is told by the start that finds it, marked durably, and not told again; what it hides stays hidden.
#[test]
fn damage_is_told_once_and_its_mark_stays() {
    let mut told = 0;
    for seed in 0..40 {
        let (mut disk, _, _) = settled_pool(seed);
        let mut random = Random(seed);
        // A segment loses its footer and one of its headers.
        let layout = superblock::load(&mut disk).expect("loads").superblock.layout;
        let physical = random.below(u64::from(layout.segments_per_shard)) as u32;
        let first_page = layout.segment_offset(SHARD, physical) / 4096;
        let is_header = |page: &u64| disk.page(*page).starts_with(b"HRTHGRP1");
        let headers: Vec<u64> = (first_page..first_page + u64::from(layout.group_pages())).filter(is_header).collect();
        if headers.is_empty() {
            continue;
        }
        disk.rot(headers[random.below(headers.len() as u64) as usize] * 4096, |bytes| bytes.fill(0));
        disk.rot(layout.footer_offset(SHARD, physical), |bytes| bytes.fill(0));
        let mut pool = superblock::load(&mut disk).expect("loads");
        let mut blocks = Given::default();
        let mut give = |item: RecoveredItem| blocks.add(item);
        let recovered = recover(&mut disk, &mut pool, SHARD, false, &mut give).expect("recovers");
        if recovered.report.damaged_places == 0 {
            continue;
        }
        told += 1;
        // A crash before the session begins: told again, the same.
        let (_, again, blocks_again) = recovery(&disk, false).expect("recovers");
        assert!(again.report.damaged_places > 0, "seed {seed}: forgotten before it was marked");
        assert_eq!((again.end, &blocks_again), (recovered.end, &blocks), "seed {seed}");
        let damaged = &recovered.report.damaged_volumes;
        pool.begin_session(&mut disk, &[recovered.end], damaged).expect("begins");
        let (pool, later, blocks_later) = recovery(&disk, false).expect("recovers");
        assert_eq!(later.report.damaged_places, 0, "seed {seed}: told twice");
        assert_eq!((later.end, &blocks_later), (recovered.end, &blocks), "seed {seed}: flapped");
        let marked: Vec<VolumeId> = pool.superblock.volumes.iter().filter(|volume| volume.damaged).map(|volume| volume.id).collect();
        assert_eq!(marked, at_risk(&blocks), "seed {seed}");
    }
    assert!(told > 10, "only {told} cases with damage");
}

/// Thousands of broken images: any number of flips, copies of pages to other places, and truncation.
#[test]
fn broken_images_never_panic_and_never_serve_wrong_data() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..30 {
        let (disk, model, last) = settled_pool(seed);
        let placed = model.placed();
        for case in 0..100 {
            let mut random = Random(seed << 32 | case);
            let mut broken = disk.clone();
            let pages = disk.used_pages();
            for _ in 0..1 + random.below(8) {
                let page = pages[random.below(pages.len() as u64) as usize];
                let other = disk.page(pages[random.below(pages.len() as u64) as usize]);
                match random.below(4) {
                    0 => broken.rot(page * 4096, |bytes| bytes[random.below(4096) as usize] ^= 1 << random.below(8)),
                    1 => broken.rot(page * 4096, |bytes| bytes.fill(random.next() as u8)),
                    // A misdirected write.
                    2 => broken.rot(page * 4096, |bytes| *bytes = other),
                    // Fields of headers, where parsers are tempted.
                    _ => broken.rot(page * 4096, |bytes| bytes[random.below(128) as usize] = random.next() as u8),
                }
            }
            if random.chance(1, 10) {
                broken.truncate(random.below(3 << 20));
            }
            let story = format!("seed {seed}, case {case}");
            let inspection = inspect(&mut broken.clone(), &mut |_, _| {});
            let Ok(outcome) = recovery(&broken, random.chance(1, 2)) else {
                assert!(inspection.problems_count > 0, "{story}: refused, but the inspector is content");
                refused += 1;
                continue;
            };
            opened += 1;
            // Wrong data: a payload that a reader would accept, but that no group ever held for that block.
            let layout = outcome.0.superblock.layout;
            for record in outcome.2.blocks.values().filter(|record| is_readable(&broken, &layout, &RecoveredItem::Block(**record))) {
                let written = placed.iter().any(|one| {
                    (one.record.volume, one.record.block, one.seq, one.ordinal, one.record.checksum)
                        == (record.volume, record.block, record.segment_seq, record.ordinal, record.checksum)
                        && one.record.packed == record.stored
                });
                assert!(written, "{story}: {record:?} was never written");
            }
            check(&model, last, 0, &outcome, &story);
        }
    }
    assert!(opened > 1000 && refused > 50, "{opened} opened, {refused} refused");
}

#[test]
fn every_nth_failure_of_a_recovery_is_told_and_harmless() {
    let (disk, model, last) = settled_pool(3);
    let (_, expected, blocks) = recovery(&disk, false).expect("recovers");
    let mut failing = 0;
    loop {
        let mut disk = disk.clone();
        let mut pool = superblock::load(&mut disk).expect("loads");
        disk.fail_at = Some(failing);
        let mut given = 0;
        let result = recover(&mut disk, &mut pool, SHARD, false, &mut |_| given += 1);
        let failed = disk.fail_at.is_none();
        disk.fail_at = None;
        assert!(result.is_ok() || given == 0, "call {failing}: records given, then an error");
        let again = recovery(&disk, false).expect("works the second time");
        check(&model, last, last - 2, &again, &format!("call {failing}"));
        assert_eq!((again.1.end, &again.2), (expected.end, &blocks), "call {failing}");
        if !failed {
            break;
        }
        failing += 1;
    }
    assert!(failing > 10, "footers, headers, flushes: {failing}");
}

/// The superblock of a past session comes back: a lost write that the SSD had confirmed.
#[test]
fn a_log_newer_than_its_superblock_is_told() {
    let (disk, _, _) = settled_pool(5);
    let mut outdated = disk.clone();
    let mut pool = superblock::load(&mut outdated).expect("loads");
    pool.superblock.session -= 1;
    pool.store(&mut outdated).expect("stores");
    let known = pool.superblock.session;
    let error = recovery(&outdated, false).expect_err("the log knows better");
    assert_eq!(error, superblock::OpenError::SuperblockOutdated { found: known + 1, known });
    recovery(&outdated, true).expect("by force, as far as the superblock knows");
}

/// A page of the open segment's headers cannot be read, for good: no proof that the log ends there.
#[test]
fn an_unreadable_header_stops_the_start_unless_forced() {
    let mut random = Random(6);
    let (mut disk, mut pool) = new_pool(6, 1);
    let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    let mut writer = Writer::new(&pool, SHARD, end, Model::default(), FooterHabit::Late);
    (0..3).for_each(|_| writer.write_group(&mut disk, &mut random));
    writer.settle(&mut disk, &mut random);
    let layout = pool.superblock.layout;
    disk.unreadable_pages.insert(layout.page_offset(SHARD, 0, 0) / 4096);
    assert!(matches!(recovery(&disk, false), Err(superblock::OpenError::Medium(_))));
    let (_, recovered, blocks) = recovery(&disk, true).expect("by force");
    assert!(recovered.report.damaged_places > 0 && recovered.report.unreadable_pages > 0);
    assert!(blocks.blocks.is_empty() && recovered.end.next_group >= writer.durable);
    // The first header is lost, and the one that tells so cannot be read: no reason to take the log for empty.
    disk.unreadable_pages.clear();
    let first_page = layout.page_offset(SHARD, 0, 0) / 4096;
    disk.rot(first_page * 4096, |bytes| bytes.fill(0));
    let pages = first_page + 1..first_page + u64::from(layout.group_pages());
    let headers: Vec<u64> = pages.filter(|page| disk.page(*page).starts_with(b"HRTHGRP1")).collect();
    disk.unreadable_pages.extend(headers);
    assert!(matches!(recovery(&disk, false), Err(superblock::OpenError::Medium(_))));
}

#[test]
fn the_inspector_is_content_with_a_sound_pool() {
    let (mut disk, model, last) = settled_pool(4);
    let (_, recovered, blocks) = recovery(&disk, false).expect("recovers");
    let mut calls = Vec::new();
    let inspection = inspect(&mut disk, &mut |done, total| calls.push((done, total)));
    assert_eq!(inspection.problems, Vec::<String>::new());
    assert_eq!(inspection.shards[0].end, recovered.end);
    assert_eq!(inspection.shards[0].payloads, blocks.blocks.len() as u64);
    let expected = model.newest(last, recovered.end.tail_seq, &VOLUMES);
    let dirty = expected.values().filter(|record| record.dirty).count() as u64;
    assert_eq!(inspection.volumes.iter().map(|volume| volume.dirty_blocks).sum::<u64>(), dirty);
    assert_eq!(calls.last(), Some(&(8, 8)));
    // A flipped bit in a dirty payload is found and named.
    let record = expected.values().find(|record| record.dirty).expect("something is dirty");
    let layout = inspection.superblock.expect("there is one").layout;
    disk.rot(layout.page_offset(SHARD, layout.physical(record.segment_seq), record.ordinal), |bytes| bytes[9] ^= 4);
    let inspection = inspect(&mut disk, &mut |_, _| {});
    assert_eq!((inspection.problems_count, inspection.shards[0].dirty_mismatches), (1, 1));
    assert!(inspection.problems[0].contains("dirty block"), "{}", inspection.problems[0]);
}

/// Images made by somebody who means harm: impossible values under checksums that match. Nothing is promised of the content, but nothing
/// panics, and nothing runs away.
#[test]
fn forged_images_never_panic() {
    let mut opened = 0;
    for seed in 0..20 {
        let (mut disk, _, _) = settled_pool(seed);
        let mut pool = superblock::load(&mut disk).expect("loads");
        let end = pool.superblock.log_starts[0];
        let end = LogEnd { next_seq: end.first_seq, next_group: end.first_group, tail_seq: end.tail_seq };
        if seed % 4 == 0 {
            checkpoint::write(&mut disk, &mut pool, &[end], &VOLUMES, &mut |_, _| None).expect("writes");
        }
        let magics: [&[u8]; 5] = [b"HEARTHSB", b"HRTHGRP1", b"HRTHFTR1", b"HRTHCKP1", b"HRTHCHK1"];
        let is_structure = |page: &u64| magics.iter().any(|magic| disk.page(*page).starts_with(magic));
        let structures: Vec<u64> = disk.used_pages().into_iter().filter(is_structure).collect();
        for case in 0..150 {
            let mut random = Random(seed << 32 | case);
            let mut forged = disk.clone();
            for _ in 0..1 + random.below(4) {
                let page = structures[random.below(structures.len() as u64) as usize];
                forged.rot(page * 4096, |bytes| {
                    let at = 32 + random.below(28) as usize * 8;
                    let value = [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, random.next(), random.below(300)][random.below(8) as usize];
                    let bytes_changed = [1, 2, 4, 8][random.below(4) as usize];
                    bytes[at..at + bytes_changed].copy_from_slice(&value.to_le_bytes()[..bytes_changed]);
                    let covered =
                        if bytes.starts_with(b"HEARTHSB") { u32::from_le_bytes([bytes[16], bytes[17], 0, 0]) as usize } else { 4096 };
                    let crc = crc32c(&bytes[12..covered.clamp(12, 4096)]);
                    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
                });
            }
            inspect(&mut forged.clone(), &mut |_, _| {});
            if let Ok((_, recovered, _)) = recovery(&forged, random.chance(1, 2)) {
                opened += 1;
                let mut pool = superblock::load(&mut forged).expect("loaded before");
                if recovered.end.next_seq < 1 << 60 {
                    pool.begin_session(&mut forged, &[recovered.end], &[]).expect("the end of a log can begin a session");
                }
            }
        }
    }
    assert!(opened > 1000, "{opened}");
}
