//! A shard whose clients rest stores what is cold denser, loses nothing by it, and comes to rest itself.
#![cfg(feature = "zstd")]

use crate::support::alone::{AT_ONCE, Rig, SECOND_NS, noise, text};
use engine::api::Op;
use engine::packer::ContentOptions;
use format::checkpoint::LogEnd;
use page::PageVec;
use types::Content;

#[test]
fn cold_blocks_become_denser_while_nobody_asks_and_then_it_rests() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    let census = rig.shard.content_stats().census;
    assert!(census.lz4 > 500 && census.zstd == 0, "{census:?}");
    rig.pass(20 * SECOND_NS);
    assert_eq!(rig.shard.content_stats().idle_segments, 0, "the level has no zstd");
    let (before, cached) = (rig.shard.stats(), rig.cached());
    assert_eq!(before.dirty_blocks, 0);

    rig.set(Content::Dense);
    rig.pass(60 * SECOND_NS);
    let (after, content) = (rig.shard.stats(), rig.shard.content_stats());
    let live = before.newest_region + 1 - before.oldest_region;
    println!("{before:?}\n{after:?}\n{content:?}\n{} ticks", rig.ticks);
    let (free, rewritten) = (after.free_regions - before.free_regions, after.ssd_written_bytes - before.ssd_written_bytes);
    println!("{} segments of {live} became {free} fewer for {rewritten} bytes written", content.idle_segments);
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    assert!(content.census.zstd * 10 > content.census.lz4 * 9, "{content:?}");
    assert!(content.idle_segments + 2 >= live && content.idle_segments <= live, "each segment once: {} of {live}", content.idle_segments);
    assert!(after.free_regions > before.free_regions + live / 10, "{} free of {live}", after.free_regions);
    assert!(rewritten <= (live + 2) * (64 << 10), "{rewritten} bytes were written");

    let (ticks, ssd_pages_read) = (rig.ticks, rig.ssd_pages_read);
    rig.pass(100_000 * SECOND_NS);
    assert_eq!(rig.shard.stats().ssd_written_bytes, after.ssd_written_bytes, "a day of rest writes nothing");
    assert_eq!((rig.ssd_pages_read, rig.ticks), (ssd_pages_read, ticks), "and wakes nobody");
    rig.check(text);
    assert!(rig.cached() == cached);
}

#[test]
fn a_request_stops_it_and_it_goes_on_when_clients_rest_again() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let cached = rig.cached();
    rig.set(Content::Dense);
    for _ in 0..10_000 {
        if rig.shard.content_stats().idle_segments >= 10 {
            break;
        }
        rig.tick();
    }
    let before = rig.shard.stats().ssd_written_bytes;
    let until_ns = rig.now_ns + 60 * SECOND_NS;
    while rig.now_ns < until_ns {
        rig.request(Op::Read, cached[0], PageVec::new());
        rig.pass(SECOND_NS);
    }
    let written = rig.shard.stats().ssd_written_bytes - before;
    assert!(written <= 3 * (64 << 10), "{written} bytes were written while a client asked every second");
    rig.pass(60 * SECOND_NS);
    let content = rig.shard.content_stats();
    assert!(content.census.zstd * 10 > content.census.lz4 * 9, "{content:?}");
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    rig.check(text);
}

/// How long a look at a block takes here.
const LOOK_NS: u64 = 20_000;

#[test]
fn it_takes_no_more_cpu_time_than_the_budget_has_and_waits_for_more() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let cached = rig.cached();
    let slots = rig.shard.stats().slots;
    let budget = ContentOptions { cpu_ns_per_second: 2_000_000, ..ContentOptions::suited(Content::Dense, 5, slots, 8) };
    rig.shard.set_content(budget);
    rig.look_ns = LOOK_NS;
    rig.pass(10 * SECOND_NS);
    let spent_ns = rig.shard.content_stats().encoding_cpu_ns;
    let so_far = rig.shard.content_stats().census.zstd;
    assert!(so_far > 100 && spent_ns > 0 && spent_ns <= 11 * 2_000_000, "{so_far} blocks, {spent_ns} ns");
    rig.pass(100 * SECOND_NS);
    let census = rig.shard.content_stats().census;
    assert!(census.zstd * 10 > census.lz4 * 7, "few were moved as they were for want of time: {census:?}");
    assert!(rig.cached() == cached, "nothing was lost from the cache");
    assert!(rig.shard.next_deadline().is_none(), "it rests");
}

#[test]
fn what_zstd_cannot_make_smaller_is_soon_left_alone() {
    let mut rig = Rig::new(Content::Fast);
    rig.fill(noise);
    rig.set(Content::Dense);
    rig.pass(20 * SECOND_NS);
    let before = rig.shard.stats();
    let cached = rig.cached();
    rig.pass(100_000 * SECOND_NS);
    let (after, content) = (rig.shard.stats(), rig.shard.content_stats());
    assert!(content.idle_segments <= 8, "{content:?}");
    assert_eq!(before.ssd_written_bytes, after.ssd_written_bytes);
    assert!(rig.cached() == cached);
    rig.check(noise);
}

#[test]
fn a_pool_that_stores_blocks_as_they_are_never_wakes_for_it() {
    let mut rig = Rig::new(Content::Off);
    rig.fill(text);
    rig.pass(20 * SECOND_NS);
    let (before, ticks) = (rig.shard.stats(), rig.ticks);
    rig.pass(100_000 * SECOND_NS);
    assert_eq!((rig.shard.stats(), rig.ticks), (before, ticks));
}

/// Not idleness, but the same shard: as recovery leaves it where all of a log is lost. The segment before the first is not the log's.
#[test]
fn an_empty_log_may_begin_anywhere_in_its_ring() {
    for seq in 1..=3 {
        let mut rig = Rig::with_log_at(Content::Fast, LogEnd { next_seq: seq, next_group: 9, tail_seq: seq });
        rig.fill(text);
        rig.check(text);
    }
}

/// Not idleness, but the same shard: its RAM holds eight blocks and 65 bases, so that most originals are on the SSD alone when their
/// copies come. (A pool so small remembers keys of some two hundred blocks.)
#[test]
fn a_copy_finds_its_original_on_the_ssd() {
    const ORIGINALS: u64 = 160;
    let mut rig = Rig::new(Content::Fast);
    for first in (0..ORIGINALS).step_by(AT_ONCE as usize) {
        rig.write(first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
    }
    let (reads, written) = (rig.ssd_pages_read, rig.shard.stats().ssd_written_bytes);
    for first in (0..ORIGINALS).step_by(AT_ONCE as usize) {
        rig.write(4096 + first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
    }
    let duplicates = rig.shard.content_stats().census.duplicate;
    assert!(duplicates > ORIGINALS * 9 / 10, "{duplicates} of {ORIGINALS} were seen to be copies");
    assert!(
        rig.ssd_pages_read - reads > duplicates / 2,
        "{} pages read for {duplicates} copies: where did the originals come from?",
        rig.ssd_pages_read - reads
    );
    let written = rig.shard.stats().ssd_written_bytes - written;
    assert!(written < ORIGINALS * 4096 / 4, "{written} bytes were written for copies");
    rig.check(|block| noise(block % 4096));
}
