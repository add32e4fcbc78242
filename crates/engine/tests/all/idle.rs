//! A shard whose clients rest comes to rest itself: it writes nothing more, and wakes nobody.

use crate::support::alone::{AT_ONCE, Rig, SECOND_NS, noise, text};
use format::checkpoint::LogEnd;
use types::Content;

#[test]
fn a_day_of_rest_writes_nothing_and_wakes_nobody() {
    for content in [Content::Off, Content::Fast, Content::Auto] {
        let mut rig = Rig::new(content);
        rig.fill(text);
        rig.pass(20 * SECOND_NS);
        let (before, cached, ticks, ssd_pages_read) = (rig.shard.stats(), rig.cached(), rig.ticks, rig.ssd_pages_read);
        assert_eq!(before.dirty_blocks, 0);
        rig.pass(100_000 * SECOND_NS);
        assert_eq!((rig.shard.stats(), rig.ticks, rig.ssd_pages_read), (before, ticks, ssd_pages_read), "{content:?}");
        assert!(rig.shard.next_deadline().is_none(), "{content:?}");
        assert!(rig.cached() == cached, "{content:?}: nothing was lost from the cache");
        rig.check(text);
    }
}

/// Not idleness, but the same shard: as recovery leaves it where all of a ring is lost.
#[test]
fn an_empty_ring_may_begin_anywhere() {
    for group in [1, 2, 9, 1000] {
        let mut rig = Rig::with_ring_at(Content::Fast, LogEnd { next_seq: group, next_group: group, tail_seq: group });
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
