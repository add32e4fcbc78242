//! What a small read that misses brings along, and what it never does.

use crate::policies::{Rig, options};
use engine::api::{Op, Origin, Outcome, Request};

use types::{Admit, Mode, ObjectWrites, OnScan, Treatment, VolumeId, VolumeIndex};

/// A group of eight blocks of an extent in which neighbours were read, so that others come along.
const GROUP: u64 = 10 * 8;

/// Where neighbours are known to be used: the first extent.
fn rig() -> Rig {
    let mut rig = Rig::new(256, options(Mode::WriteThrough));
    for group in 0..4 {
        for nth in 0..2 {
            rig.read(group * 8 + 3 * nth);
        }
    }
    rig.backing.chunks_mut(4096).enumerate().for_each(|(nth, block)| block.fill(nth as u8));
    rig
}

fn content(rig: &mut Rig, block: u64) -> (Outcome, u8) {
    let reply = rig.request(Op::Read, block, 0, Origin::Client);
    assert_eq!(reply.result, Ok(()));
    assert!(reply.pages[0].iter().all(|byte| *byte == reply.pages[0][0]), "one block's");
    (reply.outcome, reply.pages[0][0])
}

#[test]
fn the_rest_of_the_group_comes_along_with_one_read() {
    let mut rig = rig();
    let before = rig.stats();
    assert_eq!(content(&mut rig, GROUP + 3), (Outcome::Miss, GROUP as u8 + 3));
    for nth in [0, 1, 2, 4, 5, 6, 7] {
        assert_eq!(content(&mut rig, GROUP + nth), (Outcome::RamHit, (GROUP + nth) as u8));
    }
    let after = rig.stats();
    assert_eq!((after.backing_reads - before.backing_reads, after.read_misses - before.read_misses), (1, 1));
    assert_eq!(after.read_along_blocks - before.read_along_blocks, 7);
    assert_eq!(after.read_along_hits - before.read_along_hits, 7);
    assert_eq!(content(&mut rig, GROUP + 1).0, Outcome::RamHit);
    assert_eq!(rig.stats().read_along_hits, after.read_along_hits, "each counts once");
    rig.settle();
}

#[test]
fn nothing_comes_along_where_no_neighbour_was_read() {
    let mut rig = Rig::new(256, options(Mode::WriteThrough));
    for group in 0..32 {
        rig.read(group * 8);
    }
    assert_eq!(rig.stats().read_along_blocks, 0);
    assert_eq!(rig.read(GROUP + 1), Outcome::Miss);
    rig.settle();
}

#[test]
fn what_comes_along_and_is_not_asked_for_never_reaches_the_ssd() {
    let mut rig = rig();
    rig.settle();
    let before = rig.stats();
    for group in GROUP / 8..32 {
        rig.read(group * 8);
    }
    rig.settle();
    let after = rig.stats();
    assert!(after.read_along_blocks - before.read_along_blocks > 20, "{after:?}");
    // The reads themselves, and no more.
    assert!(after.cached_bytes - before.cached_bytes <= (32 - GROUP / 8) * 4096, "{after:?}");
}

/// Between a client's read and the end of it, another client writes beside it.
#[test]
fn what_is_written_meanwhile_is_not_taken_back_by_what_comes_along() {
    let mut rig = rig();
    rig.held = Some(Vec::new());
    rig.now_ns += 1_000_000;
    rig.front.submit(Request::new(1, VolumeIndex(0), Op::Read, (GROUP + 3) * 8, 8, Origin::Client));
    rig.drain();
    let held = rig.held.take().expect("held");
    assert_eq!(held.len(), 1);
    // What the device gives was read before the write.
    let completions: Vec<_> = held.into_iter().map(|io| rig.perform(io)).collect();
    drop(rig.request(Op::Write, GROUP + 5, 200, Origin::Client));
    completions.into_iter().for_each(|completion| rig.shard.complete(rig.now_ns, completion));
    rig.drain();
    rig.replies.clear();
    assert_eq!(content(&mut rig, GROUP + 5).1, 200);
    rig.settle();
    assert_eq!(content(&mut rig, GROUP + 5).1, 200);
}

#[test]
fn a_neighbour_that_cannot_be_read_fails_nobody_else() {
    let mut rig = rig();
    rig.bad = (GROUP + 6) * 4096..(GROUP + 7) * 4096;
    assert_eq!(content(&mut rig, GROUP + 3), (Outcome::Miss, GROUP as u8 + 3));
    assert!(rig.request(Op::Read, GROUP + 6, 0, Origin::Client).result.is_err());
    assert_eq!(content(&mut rig, GROUP + 2), (Outcome::Miss, GROUP as u8 + 2));
    rig.settle();
}

#[test]
fn what_is_cached_dirty_or_never_admitted_does_not_come_along() {
    let mut rig = Rig::new(256, options(Mode::WriteBack));
    for group in 0..4 {
        for nth in 0..2 {
            rig.read(group * 8 + 3 * nth);
        }
    }
    rig.write(GROUP + 5, 77);
    let never = Treatment::new(Admit::Never, ObjectWrites::Inherit, OnScan::HitOnly);
    rig.say(VolumeId(1), &[(GROUP..GROUP + 2, never)]);
    let before = rig.stats().read_along_blocks;
    assert_eq!(rig.read(GROUP + 3), Outcome::Miss);
    assert_eq!(rig.stats().read_along_blocks - before, 2, "2 and 4: never admitted is what is before them, dirty what is behind");
    assert_eq!(content(&mut rig, GROUP + 5).1, 77);
    assert_eq!(rig.read(GROUP + 1), Outcome::Bypass);
    rig.settle();
}

#[test]
fn streams_and_looks_bring_nothing_along() {
    let mut rig = rig();
    let before = rig.stats().read_along_blocks;
    for origin in [Origin::Stream, Origin::Look, Origin::Warm] {
        drop(rig.request(Op::Read, GROUP + 3, 0, origin));
    }
    assert_eq!(rig.stats().read_along_blocks, before);
    rig.settle();
}
