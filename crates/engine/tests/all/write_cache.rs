//! What the write cache holds, what makes writers wait, and what goes home then.

use crate::support::alone::{AT_ONCE, Rig, SECOND_NS, noise, partly_noise};
use engine::api::{Op, Outcome};
use page::PageVec;
use types::{Content, VolumeIndex};

/// The limit of dirty data counts what is stored: four blocks of a quarter page each are one page.
#[test]
fn the_write_cache_takes_as_much_as_can_be_stored() {
    let mut rig = Rig::new(Content::Fast);
    let slots = rig.shard.stats().slots;
    let dirty_blocks = |rig: &Rig| rig.shard.stats().dirty_blocks;
    for first in (0..slots).step_by(AT_ONCE as usize) {
        let blocks: Vec<_> = (first..first + AT_ONCE).map(|block| partly_noise(block, 900)).collect();
        rig.write(first, &blocks);
    }
    let written = slots.next_multiple_of(AT_ONCE);
    assert_eq!(dirty_blocks(&rig), written, "of {slots} pages none had to go home");
    assert!(rig.backing.iter().all(|byte| *byte == 0));
    // Written over with what cannot be packed, the same blocks would not fit any more: writes wait until others are home.
    rig.holds_home = true;
    for first in (0..written).step_by(AT_ONCE as usize) {
        let blocks: Vec<_> = (first..first + AT_ONCE).map(|block| partly_noise(block + 1, 4096)).collect();
        rig.begin_write(first, &blocks);
    }
    assert!(rig.shard.dirty_pages() <= rig.shard.dirty_pages_max(), "{}", rig.shard.describe());
    assert!(rig.shard.stats().requests > 0, "some wait");
    rig.release();
    rig.replies.clear();
    // So does what is new, and all of it gets through.
    let mut most = 0;
    for first in (written..written + 2 * slots).step_by(AT_ONCE as usize) {
        let blocks: Vec<_> = (first..first + AT_ONCE).map(|block| partly_noise(block, 4096)).collect();
        rig.write(first, &blocks);
        most = most.max(dirty_blocks(&rig));
    }
    assert!(dirty_blocks(&rig) * 10 <= slots * 7, "{} of {slots}, at most {most}", dirty_blocks(&rig));
    for block in (0..written + 2 * slots).step_by(97) {
        let content = if block < written { partly_noise(block + 1, 4096) } else { partly_noise(block, 4096) };
        let reply = rig.request(Op::Read, block, PageVec::new()).expect("an answer");
        assert!(reply.pages[0][..] == content[..], "block {block}");
    }
}

/// Slots that blocks left become free as soon as that is durable: who waits for that waits for it alone, and what is young and written over again and
/// again stays.
#[test]
fn who_waits_for_slots_that_become_free_sends_nothing_home() {
    const COLD: u64 = 64;
    const HOT: u64 = 1024;
    // Several requests in turn: those that a waiting one is about to write over stay where they are anyway.
    const TURNS: u64 = 4;
    let mut rig = Rig::new(Content::Off);
    for first in (0..COLD).step_by(AT_ONCE as usize) {
        rig.write(first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
    }
    (rig.holds_ssd_flushes, rig.holds_home) = (true, true);
    let mut version = 0;
    while rig.shard.stats().requests == 0 {
        version += 1;
        assert!(version < 1_000, "nobody ever waits");
        rig.begin_write(HOT + version % TURNS * AT_ONCE, &(0..AT_ONCE).map(|block| noise(version * AT_ONCE + block)).collect::<Vec<_>>());
    }
    assert!(rig.shard.dirty_pages() * 2 < rig.shard.dirty_pages_max(), "not for the dirty limit");
    for _ in 0..100 {
        rig.now_ns += 1_000;
        rig.shard.tick(rig.now_ns);
        rig.drain();
    }
    assert!(rig.held.iter().any(|io| io.target.is_ssd()), "it is to become durable");
    let home: Vec<u64> = rig.held.iter().filter(|io| !io.target.is_ssd()).map(|io| io.offset_bytes / 4096).collect();
    assert!(home.iter().all(|block| *block < COLD), "went home: {home:?}");
    rig.release();
    rig.replies.clear();
    for version in version - TURNS + 1..=version {
        for block in 0..AT_ONCE {
            let reply = rig.request(Op::Read, HOT + version % TURNS * AT_ONCE + block, PageVec::new()).expect("an answer");
            assert!(reply.pages[0][..] == noise(version * AT_ONCE + block)[..], "block {block} of version {version}");
        }
    }
}

/// An idle backing device is a reason to bring blocks home only while the host has time: clients would wait for that work. Age is one always.
#[test]
fn nothing_goes_home_for_idleness_alone_while_the_host_is_busy() {
    let mut rig = Rig::new(Content::Off);
    let write = |rig: &mut Rig| rig.write(0, &(0..AT_ONCE).map(noise).collect::<Vec<_>>());
    let dirty_blocks = |rig: &Rig| rig.shard.stats().dirty_blocks;
    write(&mut rig);
    rig.pass(SECOND_NS);
    assert_eq!(dirty_blocks(&rig), 0, "the host has time");

    rig.shard.set_host_busy(true);
    write(&mut rig);
    rig.ticks = 0;
    rig.pass(20 * SECOND_NS);
    assert_eq!(dirty_blocks(&rig), AT_ONCE);
    assert!(rig.ticks < 10, "it was woken {} times for nothing", rig.ticks);
    rig.pass(20 * SECOND_NS);
    assert_eq!(dirty_blocks(&rig), 0, "they are older than the write cache is deep");

    write(&mut rig);
    rig.pass(SECOND_NS);
    assert_eq!(dirty_blocks(&rig), AT_ONCE);
    rig.shard.set_host_busy(false);
    rig.shard.tick(rig.now_ns);
    rig.drain();
    rig.pass(SECOND_NS);
    assert_eq!(dirty_blocks(&rig), 0, "it has time again");
}

/// While clients write, an idle backing device alone is no reason either: what they write again would go home again. Much of it goes all the same.
#[test]
fn what_is_written_again_and_again_goes_home_for_its_age_only() {
    let mut rig = Rig::new(Content::Off);
    let homes = |rig: &Rig| rig.shard.volume_stats(VolumeIndex(0)).expect("a volume").backing_writes;
    let write = |rig: &mut Rig| rig.write(0, &(0..AT_ONCE).map(noise).collect::<Vec<_>>());
    let a_while = |rig: &mut Rig| {
        for _ in 0..100 {
            write(rig);
            rig.pass(SECOND_NS / 10);
        }
    };
    a_while(&mut rig);
    assert_eq!(homes(&rig), 0, "ten seconds");
    for _ in 0..9 {
        a_while(&mut rig);
    }
    let by_age = homes(&rig);
    assert!((1..=8).contains(&by_age), "{by_age} writes in a hundred seconds");
    rig.pass(SECOND_NS);
    assert_eq!(rig.shard.stats().dirty_blocks, 0, "they pause");

    // Everywhere, until half of what may be dirty is.
    let (homes_before, most) = (homes(&rig), rig.shard.dirty_pages_max());
    let mut block = AT_ONCE;
    while homes(&rig) == homes_before {
        assert!(block < most, "nothing goes home");
        rig.write(block, &(0..AT_ONCE).map(noise).collect::<Vec<_>>());
        rig.pass(SECOND_NS / 1000);
        block += AT_ONCE;
    }
    assert!(block > most * 2 / 5, "it goes home with {block} of {most} blocks");
}

/// What destage has written is dirty, and so safe in the log, until destage's own flush: a commit does not wait for that. For a client's write past the
/// log it does.
#[test]
fn a_flush_waits_for_what_clients_wrote_past_the_log_and_not_for_destage() {
    let mut rig = Rig::new(Content::Off);
    let flush = |rig: &mut Rig| {
        rig.replies.clear();
        rig.begin(Op::Flush, 0, PageVec::new());
        rig.replies.pop().map(|reply| (reply.result, reply.outcome))
    };
    rig.write(0, &(0..AT_ONCE).map(noise).collect::<Vec<_>>());
    rig.holds_home_flushes = true;
    rig.pass(SECOND_NS);
    assert_eq!((rig.held.len(), rig.shard.stats().dirty_blocks), (1, AT_ONCE), "destage has written, and its flush takes long");
    assert_eq!(flush(&mut rig), Some((Ok(()), Outcome::Other)), "the log has it all");

    rig.begin(Op::Discard, 1000, PageVec::new());
    assert_eq!(rig.replies.pop().map(|reply| reply.result), Some(Ok(())));
    assert_eq!(flush(&mut rig), None, "the discard is in the disk's cache");
    rig.release();
    assert_eq!(rig.replies.pop().map(|reply| (reply.result, reply.outcome)), Some((Ok(()), Outcome::BackingFlush)));
    assert_eq!(rig.shard.stats().dirty_blocks, 0);
    assert_eq!(flush(&mut rig), Some((Ok(()), Outcome::Other)), "it is durable, once");
}

/// A large write that somebody may wait for leaves the last part of the dirty limit to small ones: those would have to wait there.
#[test]
fn large_writes_go_around_when_dirty_data_nears_its_limit() {
    let mut rig = Rig::new(Content::Off);
    rig.shard.set_host_busy(true);
    let mut outcomes = Vec::new();
    let most = rig.shard.dirty_pages_max();
    for first in (0..most + AT_ONCE).step_by(AT_ONCE as usize) {
        rig.replies.clear();
        // Destage is slow.
        rig.holds_home_flushes = true;
        rig.begin_burst(first, &(first..first + AT_ONCE).map(noise).collect::<Vec<_>>());
        outcomes.extend(rig.replies.pop().map(|reply| reply.outcome));
    }
    let around = outcomes.iter().position(|outcome| *outcome == Outcome::Bypass).expect("some go around") as u64 * AT_ONCE;
    assert!((most * 7 / 10..most * 7 / 10 + 2 * AT_ONCE).contains(&around), "from block {around} on, {most} may be dirty");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Bypass | Outcome::WriteBack)), "none waits");
    rig.write(4096, &[noise(4096)]);
    assert_eq!(rig.backing[4096 * 4096..][..4096], [0; 4096], "a small one goes into the log");
    rig.release();
}

/// XFS writes its log in pieces of 1.5 KiB, or 5 KiB, each flushed: what the block held before is at hand, and neither the SSD nor the disk is read for it.
#[test]
fn a_log_written_in_parts_of_blocks_reads_nothing() {
    const SECTORS: u64 = 64 * 8;
    for (sectors, content) in [(3, Content::Off), (10, Content::Off), (3, Content::Fast)] {
        let mut rig = Rig::new(content);
        rig.shard.set_host_busy(true);
        for lap in 0..2 {
            rig.ssd_pages_read = 0;
            for start in (0..SECTORS - u64::from(sectors)).step_by(sectors as usize) {
                rig.commit_sectors(start, sectors, if lap == 0 { noise } else { |block| noise(block + 7) });
            }
            // In the second lap, a block is read when the log comes to it.
            let most = if lap == 0 { 0 } else { SECTORS / 8 };
            assert!(rig.ssd_pages_read <= most, "{} pages of the SSD were read, lap {lap}", rig.ssd_pages_read);
            assert_eq!(rig.shard.volume_stats(VolumeIndex(0)).expect("a volume").backing_reads, 0);
        }
        for block in 0..SECTORS / 8 - 2 {
            let reply = rig.request(Op::Read, block, PageVec::new()).expect("an answer");
            assert!(reply.pages[0][..] == noise(block + 7)[..], "block {block}");
        }
    }
}
