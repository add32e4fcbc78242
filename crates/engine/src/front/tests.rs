//! Requests through a front whose shards are played by the test.

use super::*;
use crate::api::{Origin, RangeReply, RangeStep, RangeWrite};
use page::PagePool;

fn request(op: Op, start_sector: u64, sectors: u32) -> Request {
    Request::new(7, VolumeIndex(0), op, start_sector, sectors, Origin::Client)
}

fn front(shards: u16) -> Front {
    let mut front = Front::new(shards);
    front.set_volume(VolumeIndex(0), VolumeId(1), VolumeOptions::default());
    front
}

#[test]
fn a_read_over_extents_is_joined_in_order() {
    let mut front = front(4);
    let pool = PagePool::new(600);
    front.submit(request(Op::Read, EXTENT_SECTORS - 8, 2 * EXTENT_SECTORS as u32));
    let mut parts = Vec::new();
    while let Some(FrontAction::ToShard(shard, part)) = front.poll() {
        parts.push((shard, part));
    }
    assert_eq!(parts.iter().map(|(_, part)| part.sectors).collect::<Vec<_>>(), [8, EXTENT_SECTORS as u32, EXTENT_SECTORS as u32 - 8]);
    let mut number = 0_u8;
    let mut replies: Vec<Reply> = parts
        .iter()
        .map(|(_, part)| {
            let pages = (0..u64::from(part.sectors) / BLOCK_SECTORS).map(|_| {
                let mut page = pool.allocate_zeroed().unwrap();
                number = number.wrapping_add(1);
                page[0] = number;
                page.freeze()
            });
            Reply { id: part.id, result: Ok(()), pages: pages.collect(), outcome: Outcome::SsdHit, range: None }
        })
        .collect();
    replies.reverse();
    for reply in replies {
        front.shard_reply(ShardIndex(0), reply);
    }
    let Some(FrontAction::Reply(reply)) = front.poll() else { panic!("no reply") };
    assert_eq!((reply.id, reply.result, reply.pages.len()), (7, Ok(()), 512));
    assert!(reply.pages.iter().enumerate().all(|(at, page)| page[0] == (at as u8).wrapping_add(1)));
    assert_eq!(front.in_flight(), 0);
}

/// Answers all parts there are; gives whether each went around the cache.
fn answer_all(front: &mut Front) -> Vec<bool> {
    let mut around = Vec::new();
    while let Some(action) = front.poll() {
        if let FrontAction::ToShard(shard, part) = action {
            around.push(part.bypass.is_some());
            assert!(!part.in_burst || part.op == Op::Write && part.bypass.is_none(), "{part:?}");
            let reply = Reply { id: part.id, result: Ok(()), pages: PageVec::new(), outcome: Outcome::WriteBack, range: None };
            front.shard_reply(shard, reply);
        }
    }
    around
}

fn write_back(log_burst_bytes: u64) -> Front {
    let mut front = Front::new(2);
    let options = VolumeOptions { mode: Mode::WriteBack, log_burst_bytes, ..VolumeOptions::default() };
    front.set_volume(VolumeIndex(0), VolumeId(1), options);
    front
}

fn commit(front: &mut Front, start_sector: u64) {
    for request in [request(Op::Write, start_sector, 8), request(Op::Flush, 0, 0)] {
        front.submit(request);
        answer_all(front);
    }
}

/// A file is copied with one write in flight, each acknowledged before the next, after commits or without.
#[test]
fn a_copy_goes_around_whatever_came_before_it() {
    for (commits, sectors) in [(0, 2048), (4, 2048), (100, 2048), (4, 128), (100, 128)] {
        let mut front = write_back(u64::MAX);
        (0..commits).for_each(|at| commit(&mut front, at * 8));
        let pieces = (400 << 11) / u64::from(sectors);
        let around = (0..pieces).filter(|at| {
            front.submit(request(Op::Write, (8 << 30 >> 9) + at * u64::from(sectors), sectors));
            answer_all(&mut front)[0]
        });
        let around = around.count() as u64;
        assert!(around * 100 >= pieces * 94, "{around} of {pieces} of {sectors} sectors after {commits} commits");
    }
}

/// A compaction, with commits beside it: none of them is to wait for the disk.
#[test]
fn no_large_write_goes_around_beside_commits() {
    for (log_burst_bytes, all_in_log) in [(u64::MAX, true), (1 << 20, false)] {
        let mut front = write_back(log_burst_bytes);
        (0..20).for_each(|at| commit(&mut front, at * 8));
        let mut around = 0;
        for at in 0..500 {
            for piece in 0..4 {
                front.submit(request(Op::Write, (1 << 24) + (at * 4 + piece) * 2048, 2048));
            }
            around += answer_all(&mut front).into_iter().filter(|around| *around).count();
            commit(&mut front, at * 8);
        }
        assert_eq!(around == 0, all_in_log, "{around} of 2000 went around with at most {log_burst_bytes} bytes a burst");
    }
}

#[test]
fn a_write_with_fua_belongs_in_the_log_whatever_its_size() {
    for (log_burst_bytes, goes_around) in [(u64::MAX, false), (1 << 20, true)] {
        let mut front = write_back(log_burst_bytes);
        front.submit(Request { fua: true, ..request(Op::Write, 0, 8192) });
        assert_eq!(answer_all(&mut front), [goes_around; 4]);
    }
}

#[test]
fn reads_of_several_parts_wait_for_each_other_and_hold_up_nothing_else() {
    let mut front = front(2);
    let read = |front: &mut Front, id, blocks: u64| {
        front.submit(Request { id, ..request(Op::Read, BLOCK_SECTORS, (blocks * BLOCK_SECTORS) as u32) });
    };
    let parts = |front: &mut Front| -> Vec<Request> {
        let part = |action| match action {
            FrontAction::ToShard(_, part) => part,
            FrontAction::Reply(reply) => panic!("answered: {reply:?}"),
        };
        core::iter::from_fn(|| front.poll()).map(part).collect()
    };
    // Longer than may be: alone. Then two that go together, and one more.
    read(&mut front, 1, 3 * JOINED_BLOCKS_MAX);
    let long = parts(&mut front);
    assert_eq!(long.len(), 13);
    for (id, blocks) in [(2, JOINED_BLOCKS_MAX / 2), (3, JOINED_BLOCKS_MAX / 2), (4, 256)] {
        read(&mut front, id, blocks);
    }
    assert!(parts(&mut front).is_empty(), "they wait");
    read(&mut front, 5, 8);
    front.submit(request(Op::Write, 0, 4 * EXTENT_SECTORS as u32));
    assert_eq!(parts(&mut front).len(), 5, "a read in one part and a write do not");
    assert_eq!(front.in_flight(), 6);
    let answer = |front: &mut Front, parts: Vec<Request>| {
        for part in parts {
            front.shard_reply(
                ShardIndex(0),
                Reply { id: part.id, result: Ok(()), pages: PageVec::new(), outcome: Outcome::SsdHit, range: None },
            );
        }
        let Some(FrontAction::Reply(reply)) = front.poll() else { panic!("no reply") };
        reply.id
    };
    assert_eq!(answer(&mut front, long), 1);
    let mut both = parts(&mut front);
    assert_eq!(both.len(), 6);
    assert_eq!(answer(&mut front, both.drain(..3).collect()), 2);
    assert_eq!(parts(&mut front).len(), 2, "the room of the first is that of the last");
    front.remove_volume(VolumeIndex(0));
    read(&mut front, 6, 8);
    assert!(matches!(front.poll(), Some(FrontAction::Reply(Reply { id: 6, result: Err(RequestError::Invalid), .. }))));
}

#[test]
fn a_read_that_waited_is_refused_if_its_volume_has_gone() {
    let mut front = front(2);
    let long = |id| Request { id, ..request(Op::Read, 0, (JOINED_BLOCKS_MAX * BLOCK_SECTORS) as u32) };
    front.submit(long(1));
    front.submit(long(2));
    front.remove_volume(VolumeIndex(0));
    let ids: Vec<u64> = core::iter::from_fn(|| front.poll())
        .map(|action| match action {
            FrontAction::ToShard(_, part) => part.id,
            FrontAction::Reply(_) => panic!("too early"),
        })
        .collect();
    for id in ids {
        front.shard_reply(ShardIndex(0), Reply { id, result: Ok(()), pages: PageVec::new(), outcome: Outcome::SsdHit, range: None });
    }
    let replies: Vec<(u64, bool)> = core::iter::from_fn(|| front.poll())
        .map(|action| match action {
            FrontAction::Reply(reply) => (reply.id, reply.result.is_ok()),
            FrontAction::ToShard(..) => panic!("the volume has gone"),
        })
        .collect();
    assert_eq!(replies, [(1, true), (2, false)]);
    assert_eq!(front.in_flight(), 0);
}

#[test]
fn one_failed_part_fails_the_request() {
    let mut front = front(2);
    front.submit(request(Op::Flush, 0, 0));
    let ids: Vec<u64> = core::iter::from_fn(|| front.poll())
        .map(|action| match action {
            FrontAction::ToShard(_, part) => part.id,
            FrontAction::Reply(_) => panic!("too early"),
        })
        .collect();
    assert_eq!(ids.len(), 2);
    for (at, id) in ids.into_iter().enumerate() {
        let result = if at == 0 { Err(RequestError::Io) } else { Ok(()) };
        front.shard_reply(ShardIndex(at as u16), Reply { id, result, pages: PageVec::new(), outcome: Outcome::Other, range: None });
    }
    assert!(matches!(front.poll(), Some(FrontAction::Reply(Reply { result: Err(RequestError::Io), .. }))));
}

#[test]
fn what_hearth_reads_itself_passes_size_and_streams_but_not_pass_through() {
    let mut front = front(1);
    let options = VolumeOptions { max_io_bytes: 4096, sequential_cutoff_bytes: Some(8192), ..VolumeOptions::default() };
    let mut bypass_of = |options: &VolumeOptions, origin, start_sector, sectors| {
        front.set_volume(VolumeIndex(0), VolumeId(1), options.clone());
        front.submit(Request::read(7, VolumeIndex(0), start_sector, sectors, origin));
        let Some(FrontAction::ToShard(_, part)) = front.poll() else { panic!("no part") };
        assert_eq!(part.origin, origin);
        part.bypass
    };
    assert_eq!(bypass_of(&options, Origin::Client, 1024, 16), Some(BypassReason::Size));
    assert_eq!(bypass_of(&options, Origin::Warm, 1040, 16), None);
    let mut last = None;
    for at in 0..32 {
        assert_eq!(bypass_of(&options, Origin::Warm, 4096 + at * 8, 8), None, "a warm-up is no stream");
        last = bypass_of(&options, Origin::Client, 9000 * 8 + at * 8, 8);
    }
    assert_eq!(last, Some(BypassReason::Sequential), "a client's stream beside them is still seen");
    let through = VolumeOptions { mode: Mode::PassThrough, ..options };
    assert_eq!(bypass_of(&through, Origin::Warm, 8, 8), Some(BypassReason::PassThrough));
}

/// All steps there are now, with the shards they are for.
fn steps(front: &mut Front) -> Vec<(u16, Request)> {
    core::iter::from_fn(|| front.poll())
        .map(|action| match action {
            FrontAction::ToShard(shard, part) => (shard.0, part),
            FrontAction::Reply(reply) => panic!("answered: {reply:?}"),
        })
        .collect()
}

fn answer(front: &mut Front, to: &(u16, Request), result: Result<(), RequestError>, range: Option<RangeReply>) {
    let reply = Reply { id: to.1.id, result, pages: PageVec::new(), outcome: Outcome::Other, range };
    front.shard_reply(ShardIndex(to.0), reply);
}

const HELD: Option<RangeReply> = Some(RangeReply::Held { over_dirty: false });

#[test]
fn a_long_discard_is_one_write_that_all_shards_hold() {
    let mut front = front(3);
    let home = home_of(VolumeId(1), 3).0;
    // Four gibibytes less a block, off the extents' boundaries.
    front.submit(request(Op::Discard, 8 * 8, (1 << 23) - 8));
    let first = steps(&mut front);
    assert_eq!(first.len(), 3, "what lies before the first whole extent and behind the last, and the home shard's step");
    assert_eq!(first.iter().filter(|(_, part)| part.range.is_none()).map(|(_, part)| u64::from(part.sectors)).sum::<u64>(), 2048 - 8);
    let hold = first.iter().find(|(_, part)| part.range == Some(RangeStep::Hold)).expect("a range").clone();
    assert_eq!((hold.0, hold.1.start_sector, u64::from(hold.1.sectors)), (home, EXTENT_SECTORS, (1 << 23) - EXTENT_SECTORS));
    first.iter().filter(|(_, part)| part.range.is_none()).for_each(|part| answer(&mut front, part, Ok(()), None));
    answer(&mut front, &hold, Ok(()), HELD);
    let others = steps(&mut front);
    assert_eq!(others.len(), 2);
    assert!(others.iter().all(|(shard, part)| *shard != home && part.range == Some(RangeStep::Hold)));
    answer(&mut front, &others[0], Ok(()), Some(RangeReply::Held { over_dirty: true }));
    assert!(steps(&mut front).is_empty(), "one shard does not hold it yet");
    answer(&mut front, &others[1], Ok(()), HELD);
    let write = steps(&mut front);
    assert_eq!((write.len(), write[0].0, write[0].1.range), (1, home, Some(RangeStep::Write { over_dirty: true })));
    let done = RangeWrite::Done { durable: true };
    answer(&mut front, &write[0], Ok(()), Some(RangeReply::Written(done)));
    // One has lost its SSD: the range stays held, and is written again.
    let settle = steps(&mut front);
    assert_eq!(settle.iter().map(|(_, part)| part.range).collect::<Vec<_>>(), [Some(RangeStep::Settle(done)); 3]);
    settle[1..].iter().for_each(|step| answer(&mut front, step, Ok(()), Some(RangeReply::Settled)));
    answer(&mut front, &settle[0], Ok(()), Some(RangeReply::Again));
    let again = steps(&mut front);
    assert_eq!(again.iter().map(|(_, part)| part.range).collect::<Vec<_>>(), [Some(RangeStep::HoldAgain); 3]);
    again.iter().for_each(|step| answer(&mut front, step, Ok(()), HELD));
    let write = steps(&mut front);
    assert_eq!((write.len(), write[0].1.range), (1, Some(RangeStep::Write { over_dirty: false })));
    answer(&mut front, &write[0], Ok(()), Some(RangeReply::Written(done)));
    let release = steps(&mut front);
    assert_eq!(release.iter().map(|(_, part)| part.range).collect::<Vec<_>>(), [Some(RangeStep::Release(done)); 3], "nothing to settle");
    release.iter().for_each(|step| answer(&mut front, step, Ok(()), None));
    assert!(matches!(front.poll(), Some(FrontAction::Reply(Reply { id: 7, result: Ok(()), .. }))));
    assert_eq!(front.in_flight(), 0);
}

#[test]
fn a_range_that_one_shard_cannot_hold_is_released_by_the_others_and_not_written() {
    let mut front = front(3);
    front.submit(request(Op::WriteZeroes, 0, 64 * EXTENT_SECTORS as u32));
    let home = steps(&mut front);
    answer(&mut front, &home[0], Ok(()), HELD);
    let others = steps(&mut front);
    answer(&mut front, &others[0], Err(RequestError::Shutdown), None);
    answer(&mut front, &others[1], Ok(()), HELD);
    let release = steps(&mut front);
    assert_eq!(release.iter().map(|(shard, _)| *shard).collect::<Vec<_>>().len(), 2);
    assert!(release.iter().all(|(shard, part)| { *shard != others[0].0 && part.range == Some(RangeStep::Release(RangeWrite::Untouched)) }));
    release.iter().for_each(|step| answer(&mut front, step, Ok(()), None));
    assert!(matches!(front.poll(), Some(FrontAction::Reply(Reply { result: Err(RequestError::Shutdown), .. }))));
    // A write that failed: what is said of it goes to all.
    front.submit(request(Op::WriteZeroes, 0, 64 * EXTENT_SECTORS as u32));
    for _ in 0..2 {
        steps(&mut front).iter().for_each(|step| answer(&mut front, step, Ok(()), HELD));
    }
    let write = steps(&mut front);
    answer(&mut front, &write[0], Err(RequestError::NoSpace), Some(RangeReply::Written(RangeWrite::Failed)));
    let release = steps(&mut front);
    assert!(release.len() == 3 && release.iter().all(|(_, part)| part.range == Some(RangeStep::Release(RangeWrite::Failed))));
    release.iter().for_each(|step| answer(&mut front, step, Ok(()), None));
    assert!(matches!(front.poll(), Some(FrontAction::Reply(Reply { result: Err(RequestError::NoSpace), .. }))));
    assert_eq!(front.in_flight(), 0);
}

#[test]
fn ranges_beyond_a_few_wait_and_are_refused_if_their_volume_has_gone() {
    let mut front = front(1);
    for id in 0..6 {
        front.submit(Request { id, ..request(Op::Discard, 0, 2 * EXTENT_SECTORS as u32) });
    }
    let begun = steps(&mut front);
    assert_eq!(begun.len(), 4);
    front.remove_volume(VolumeIndex(0));
    answer(&mut front, &begun[2], Err(RequestError::Io), None);
    let replies: Vec<(u64, Option<RequestError>)> = core::iter::from_fn(|| front.poll())
        .map(|action| match action {
            FrontAction::Reply(reply) => (reply.id, reply.result.err()),
            FrontAction::ToShard(..) => panic!("the volume has gone"),
        })
        .collect();
    assert_eq!(replies, [(2, Some(RequestError::Io)), (4, Some(RequestError::Invalid)), (5, Some(RequestError::Invalid))]);
    assert_eq!(front.in_flight(), 3);
}

#[test]
fn extents_are_dealt_evenly() {
    let mut counts = [0; 8];
    for extent in 0..8000 {
        counts[usize::from(shard_of(VolumeId(3), extent * EXTENT_SECTORS, 8).0)] += 1;
    }
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
}
