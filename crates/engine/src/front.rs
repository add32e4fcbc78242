//! Where requests enter: sequential streams are recognised, requests are split at extents and dealt to shards, and the parts joined
//! again.
//!
//! Each reactor has its own front; a request's parts are answered to the front it came through. A front holds no data and no locks:
//! order among overlapping requests is made by the shards. A flush goes to all shards; it covers what was acknowledged before, and an
//! acknowledged request was answered by all its shards before, so each shard knows its share.
//!
//! The whole extents of a long discard or write-zeroes are not split: [`ranges`] takes them to all shards together.

mod ranges;

pub use ranges::{RANGE_EXTENTS_MIN, home_of};

use crate::admission::{Bursts, LOG_WRITE_SECTORS_MAX, Seen, StreamToken, Streams};
use crate::api::{Op, Outcome, Reply, Request, RequestError, VolumeOptions};
use crate::key::{Map, mix};
use crate::mutants;
use crate::treatment::{self, PolicyMap};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use page::PageVec;
use ranges::{Next, Ranges, range_in};
use types::{BLOCK_SECTORS, BypassReason, EXTENT_SECTORS, Mode, SECTOR_BYTES, ShardIndex, VOLUME_SECTORS_MAX, VolumeId, VolumeIndex};

/// What the front wants done.
#[derive(Debug)]
pub enum FrontAction {
    /// Submit this part to a shard; its reply comes back by [`Front::shard_reply`].
    ToShard(ShardIndex, Request),
    /// Give this to the client.
    Reply(Reply),
}

struct Volume {
    id: VolumeId,
    options: VolumeOptions,
    streams: Streams,
    bursts: Bursts,
    /// Of its objects, if there are any.
    policies: Option<Arc<PolicyMap>>,
}

/// Blocks of reads in several parts that one front lets into the shards at the same time; a longer one goes in alone. What a shard has read for one
/// part is held until the last part has come, so without a bound such reads could hold all pages there are, each waiting for more. Who has more pages to
/// spare for them says so ([`Front::joining`]).
pub const JOINED_BLOCKS_MAX: u64 = 1024;

/// A request some of whose parts are in the shards.
struct Joining {
    client_id: u64,
    is_read: bool,
    /// Blocks of a read in several parts, otherwise none.
    joined_blocks: u64,
    waiting: u32,
    result: Result<(), RequestError>,
    outcome: Outcome,
    parts: Vec<PageVec>,
    /// The stream of a write.
    stream: Option<(VolumeIndex, VolumeId, StreamToken)>,
}

/// See the module.
pub struct Front {
    shards: u16,
    volumes: Map<u16, Volume>,
    joining: Vec<Option<Joining>>,
    ranges: Ranges,
    free: Vec<u32>,
    /// Blocks of reads in several parts that are in the shards.
    joined_blocks: u64,
    joined_blocks_max: u64,
    /// Such reads that wait for others, bypass decided, with the volume they are for.
    queue: VecDeque<(VolumeId, Request)>,
    actions: VecDeque<FrontAction>,
}

/// Which shard owns an extent of a volume. Part of the on-disk format: a log holds only blocks of its shard.
pub fn shard_of(volume: VolumeId, start_sector: u64, shards: u16) -> ShardIndex {
    let extent = start_sector / EXTENT_SECTORS;
    let hash = mix(mix(u64::from(volume.0)) ^ extent);
    ShardIndex((((hash >> 32) * u64::from(shards)) >> 32) as u16)
}

impl Front {
    /// A front for a pool with that many shards.
    pub fn new(shards: u16) -> Front {
        Front {
            shards,
            volumes: Map::default(),
            joining: Vec::new(),
            ranges: Ranges::new(shards),
            free: Vec::new(),
            joined_blocks: 0,
            joined_blocks_max: JOINED_BLOCKS_MAX,
            queue: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// The same that lets reads in several parts in up to so many blocks at the same time, in place of [`JOINED_BLOCKS_MAX`]. The page pool must
    /// have as many pages beside what shards need.
    pub fn joining(self, joined_blocks_max: u64) -> Front {
        Front { joined_blocks_max, ..self }
    }

    /// A volume appears, or its options change.
    pub fn set_volume(&mut self, index: VolumeIndex, id: VolumeId, options: VolumeOptions) {
        match self.volumes.get_mut(&index.0) {
            Some(volume) if volume.id == id => volume.options = options,
            _ => {
                let before = self
                    .volumes
                    .insert(index.0, Volume { id, options, streams: Streams::default(), bursts: Bursts::default(), policies: None });
                if mutants::active(88) {
                    let policies = before.and_then(|before| before.policies);
                    self.volumes.get_mut(&index.0).expect("just put there").policies = policies;
                }
            }
        }
    }

    /// The policies of a volume's objects change. A map that was made for another volume, such as one that had its place before, says nothing of
    /// this one.
    pub fn set_policies(&mut self, index: VolumeIndex, map: Option<Arc<PolicyMap>>) {
        if let Some(volume) = self.volumes.get_mut(&index.0) {
            volume.policies = map.filter(|map| map.volume() == volume.id);
        }
    }

    /// Checks that policies are those of the volumes they are used for.
    ///
    /// # Panics
    /// If they are not.
    pub fn check_invariants(&self) {
        for (index, volume) in &self.volumes {
            let made_for = volume.policies.as_ref().map(|map| map.volume());
            assert!(made_for.is_none_or(|id| id == volume.id), "policies of {made_for:?} are used for volume {index}");
        }
    }

    /// A volume goes away; requests in flight still get their replies.
    pub fn remove_volume(&mut self, index: VolumeIndex) {
        if !mutants::active(88) {
            self.volumes.remove(&index.0);
        }
    }

    /// Requests that are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.joining.len() - self.free.len() + self.queue.len()
    }

    /// Takes in a client's request of any length. Whether it is a read of a sequential stream past the volume's cutoff.
    pub fn submit(&mut self, request: Request) -> bool {
        let Some(volume) = self.volumes.get_mut(&request.volume.0) else { return self.refuse(&request) };
        let id = volume.id;
        // A block beyond the last that has a key would be taken for another one.
        let ends_late = request.start_sector.checked_add(u64::from(request.sectors)).is_none_or(|end| end > VOLUME_SECTORS_MAX);
        if request.op != Op::Flush && (ends_late || request.sectors == 0) {
            return self.refuse(&request);
        }
        let seen = volume.see(&request);
        let sequential = request.op == Op::Read && seen.past_cutoff;
        let own = volume.bypass(&request, &seen);
        let is_large = request.op == Op::Write && (own.is_some() || seen.stream.is_some());
        let in_burst = is_large && volume.takes_burst(&request, own);
        let own = own.filter(|_| !in_burst);
        let bypass = if volume.policies.is_none() { request.bypass.or(own) } else { volume.by_policy(&request, own) };
        let request = Request { bypass, wanted: request.wanted && request.op == Op::Read || in_burst, ..request };
        let waits = joined_blocks(&request) > 0 && (!self.queue.is_empty() || !self.has_room_for(&request));
        if waits {
            self.queue.push_back((id, request))
        } else {
            self.deal(id, request, seen.stream)
        }
        sequential
    }

    /// No part of a stream.
    fn refuse(&mut self, request: &Request) -> bool {
        let reply =
            Reply { id: request.id, result: Err(RequestError::Invalid), pages: PageVec::new(), outcome: Outcome::Other, range: None };
        self.actions.push_back(FrontAction::Reply(reply));
        false
    }

    fn has_room_for(&self, request: &Request) -> bool {
        self.joined_blocks == 0 || self.joined_blocks + joined_blocks(request) <= self.joined_blocks_max
    }

    /// Hands the parts of a request to their shards.
    fn deal(&mut self, id: VolumeId, request: Request, stream: Option<StreamToken>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.joining.push(None);
            (self.joining.len() - 1) as u32
        });
        let mut waiting = 0;
        if request.op == Op::Flush {
            let shards = if mutants::active(9) { 1 } else { self.shards };
            for shard in 0..shards {
                let part = Request { id: part_id(slot, waiting), ..request.clone() };
                self.actions.push_back(FrontAction::ToShard(ShardIndex(shard), part));
                waiting += 1;
            }
        } else {
            let end = request.start_sector + u64::from(request.sectors);
            let range = range_in(&request);
            // Without a range: all of it, and nothing behind.
            let (before, behind) = range.map_or((end, end), |(start, end)| (start, end));
            for (start, end) in [(request.start_sector, before), (behind, end)] {
                for part in split(&request, start, end) {
                    let shard = shard_of(id, part.start_sector, self.shards);
                    let part = Request { id: part_id(slot, waiting), ..part };
                    self.actions.push_back(FrontAction::ToShard(shard, part));
                    waiting += 1;
                }
            }
            if let Some((start, end)) = range {
                let part = Request { start_sector: start, sectors: (end - start) as u32, pages: PageVec::new(), ..request };
                self.ranges.add(slot, id, part);
                waiting += 1;
            }
        }
        let is_read = request.op == Op::Read;
        let joined_blocks = joined_blocks(&request);
        self.joined_blocks += joined_blocks;
        let parts = if joined_blocks > 0 { (0..waiting).map(|_| PageVec::new()).collect() } else { Vec::new() };
        let stream = stream.map(|token| (request.volume, id, token));
        let joining =
            Joining { client_id: request.id, is_read, joined_blocks, waiting, result: Ok(()), outcome: Outcome::RamHit, parts, stream };
        self.joining[slot as usize] = Some(joining);
        self.begin_ranges();
    }

    fn begin_ranges(&mut self) {
        loop {
            let volumes = &self.volumes;
            let is_known = |request: &Request, id: VolumeId| volumes.get(&request.volume.0).is_some_and(|volume| volume.id == id);
            let Some(next) = self.ranges.begin_next(is_known) else { return };
            self.range_goes_on(next);
        }
    }

    fn range_goes_on(&mut self, next: Next) {
        match next {
            Next::Steps(steps) => self.actions.extend(steps.into_iter().map(|(shard, step)| FrontAction::ToShard(shard, step))),
            Next::Done { joining, result } => {
                self.part_done(joining, 0, Reply { id: 0, result, pages: PageVec::new(), outcome: Outcome::Other, range: None });
            }
        }
    }

    /// Reads of several parts have been answered: those that waited for them go in, in order.
    fn deal_queued(&mut self) {
        while self.queue.front().is_some_and(|(_, request)| self.has_room_for(request)) {
            let (id, request) = self.queue.pop_front().expect("looked above");
            match self.volumes.get(&request.volume.0) {
                Some(volume) if volume.id == id => self.deal(id, request, None),
                _ => drop(self.refuse(&request)),
            }
        }
    }

    /// A shard has answered a part.
    pub fn shard_reply(&mut self, shard: ShardIndex, reply: Reply) {
        let (slot, part) = ((reply.id >> 32) as u32, reply.id as u32);
        if slot & RANGE_SLOT == 0 {
            return self.part_done(slot, part, reply);
        }
        if let Some(next) = self.ranges.answered(slot & !RANGE_SLOT, shard, &reply) {
            self.range_goes_on(next);
            self.begin_ranges();
        }
    }

    fn part_done(&mut self, slot: u32, part: u32, reply: Reply) {
        let joining = self.joining[slot as usize].as_mut().expect("a part of a request in flight");
        joining.waiting -= 1;
        if let Err(error) = reply.result {
            joining.result = Err(joining.result.err().unwrap_or(error));
        }
        joining.outcome = slower(joining.outcome, reply.outcome);
        let single = joining.parts.is_empty();
        let mut pages = reply.pages;
        if !single {
            joining.parts[part as usize] = core::mem::take(&mut pages);
        }
        if joining.waiting > 0 {
            return;
        }
        let joining = self.joining[slot as usize].take().expect("looked above");
        self.free.push(slot);
        if let Some((index, id, token)) = joining.stream
            && let Some(volume) = self.volumes.get_mut(&index.0).filter(|volume| volume.id == id)
        {
            volume.streams.acknowledged(token);
        }
        if !single {
            pages = joining.parts.into_iter().flatten().collect();
        }
        if joining.result.is_err() || !joining.is_read {
            pages = PageVec::new();
        }
        let reply = Reply { id: joining.client_id, result: joining.result, pages, outcome: joining.outcome, range: None };
        self.actions.push_back(FrontAction::Reply(reply));
        if joining.joined_blocks > 0 {
            self.joined_blocks -= joining.joined_blocks;
            self.deal_queued();
        }
    }

    /// The next thing to do, or `None` when drained.
    pub fn poll(&mut self) -> Option<FrontAction> {
        self.actions.pop_front()
    }
}

impl Volume {
    /// Whether the volume's options send the request around the cache.
    fn bypass(&self, request: &Request, seen: &Seen) -> Option<BypassReason> {
        let sectors = u64::from(request.sectors);
        let log = seen.log && sectors <= LOG_WRITE_SECTORS_MAX;
        if self.options.mode == Mode::PassThrough && request.op == Op::Read {
            Some(BypassReason::PassThrough)
        } else if request.wanted || matches!(request.op, Op::Flush | Op::Discard | Op::PunchHole) || log {
            None
        } else if sectors * SECTOR_BYTES > u64::from(self.options.max_io_bytes) {
            Some(BypassReason::Size)
        } else {
            seen.past_cutoff.then_some(BypassReason::Sequential)
        }
    }

    /// Takes note of a large write, or one of a stream, and says whether the log takes it all the same if its options would send it around.
    #[inline(never)]
    fn takes_burst(&mut self, request: &Request, own: Option<BypassReason>) -> bool {
        if self.options.mode != Mode::WriteBack || request.bypass.is_some() {
            return false;
        }
        let (bytes, most) = (u64::from(request.sectors) * SECTOR_BYTES, self.options.log_burst_bytes);
        if own.is_none() {
            self.bursts.logs(bytes);
            return false;
        }
        if request.fua { self.bursts.takes_awaited(bytes, most) } else { self.bursts.takes(bytes, most) }
    }

    /// Whether options, streams or policies do. Out of the way of requests to volumes without policies.
    #[cold]
    #[inline(never)]
    fn by_policy(&self, request: &Request, own: Option<BypassReason>) -> Option<BypassReason> {
        // One that is lifted leaves the other.
        let [own, given] = [own, request.bypass]
            .map(|reason| self.policies.as_ref().map_or(reason, |map| treatment::bypass(map, self.options.mode, request, reason)));
        given.or(own)
    }

    /// What the request says about streams, and they about it.
    fn see(&mut self, request: &Request) -> Seen {
        let (start, sectors, cutoff) = (request.start_sector, u64::from(request.sectors), self.options.sequential_cutoff_bytes);
        match (request.op, cutoff) {
            (Op::Flush, _) => {
                self.streams.flushed();
                self.bursts.flushed();
            }
            (Op::Read, Some(cutoff)) if !request.wanted => {
                return Seen { past_cutoff: self.streams.read(start, sectors, cutoff), ..Seen::default() };
            }
            (Op::Write, _) => return self.streams.write(start, sectors, request.fua, cutoff),
            _ => {}
        }
        Seen::default()
    }
}

/// Bit of a slot that says that a range request is meant.
const RANGE_SLOT: u32 = 1 << 27;

fn part_id(slot: u32, part: u32) -> u64 {
    (u64::from(slot) << 32) | u64::from(part)
}

/// Blocks of a read in several parts; of every other request none.
fn joined_blocks(request: &Request) -> u64 {
    let end = request.start_sector + u64::from(request.sectors);
    let is_joined = request.op == Op::Read && (end - 1) / EXTENT_SECTORS > request.start_sector / EXTENT_SECTORS;
    if is_joined { end.div_ceil(BLOCK_SECTORS) - request.start_sector / BLOCK_SECTORS } else { 0 }
}

/// The parts of a request between two sectors of it, one for each extent, in address order. Pages go with their blocks.
fn split(request: &Request, mut start: u64, end: u64) -> impl Iterator<Item = Request> + '_ {
    core::iter::from_fn(move || {
        if start == end {
            return None;
        }
        let part_end = end.min((start / EXTENT_SECTORS + 1) * EXTENT_SECTORS);
        let first_page = (start / BLOCK_SECTORS - request.start_sector / BLOCK_SECTORS) as usize;
        let end_page = (part_end.div_ceil(BLOCK_SECTORS) - request.start_sector / BLOCK_SECTORS) as usize;
        let pages =
            if request.pages.is_empty() { PageVec::new() } else { request.pages[first_page..end_page.min(request.pages.len())].into() };
        let part = Request { start_sector: start, sectors: (part_end - start) as u32, pages, ..*request };
        start = part_end;
        Some(part)
    })
}

/// The outcome of a request is that of its slowest part.
fn slower(one: Outcome, other: Outcome) -> Outcome {
    let rank = |outcome: Outcome| match outcome {
        Outcome::RamHit => 0,
        Outcome::SsdHit => 1,
        Outcome::WriteBack => 2,
        Outcome::Other => 3,
        Outcome::WriteThrough => 4,
        Outcome::Miss => 5,
        Outcome::Bypass => 6,
        Outcome::BackingFlush => 7,
    };
    if rank(one) < rank(other) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{RangeReply, RangeStep, RangeWrite};
    use page::PagePool;

    fn request(op: Op, start_sector: u64, sectors: u32) -> Request {
        Request {
            id: 7,
            volume: VolumeIndex(0),
            op,
            fua: false,
            start_sector,
            sectors,
            pages: PageVec::new(),
            bypass: None,
            wanted: false,
            range: None,
        }
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
                assert!(!part.wanted || part.op == Op::Write && part.bypass.is_none(), "{part:?}");
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
    fn what_is_wanted_passes_size_and_streams_but_not_pass_through() {
        let mut front = front(1);
        let options = VolumeOptions { max_io_bytes: 4096, sequential_cutoff_bytes: Some(8192), ..VolumeOptions::default() };
        let mut bypass_of = |options: &VolumeOptions, wanted, start_sector, sectors| {
            front.set_volume(VolumeIndex(0), VolumeId(1), options.clone());
            front.submit(Request { wanted, ..request(Op::Read, start_sector, sectors) });
            let Some(FrontAction::ToShard(_, part)) = front.poll() else { panic!("no part") };
            assert_eq!(part.wanted, wanted);
            part.bypass
        };
        assert_eq!(bypass_of(&options, false, 1024, 16), Some(BypassReason::Size));
        assert_eq!(bypass_of(&options, true, 1040, 16), None);
        let mut last = None;
        for at in 0..32 {
            assert_eq!(bypass_of(&options, true, 4096 + at * 8, 8), None, "wanted reads are no stream");
            last = bypass_of(&options, false, 9000 * 8 + at * 8, 8);
        }
        assert_eq!(last, Some(BypassReason::Sequential), "a client's stream beside them is still seen");
        let through = VolumeOptions { mode: Mode::PassThrough, ..options };
        assert_eq!(bypass_of(&through, true, 8, 8), Some(BypassReason::PassThrough));
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
        assert_eq!(
            release.iter().map(|(_, part)| part.range).collect::<Vec<_>>(),
            [Some(RangeStep::Release(done)); 3],
            "nothing to settle"
        );
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
        assert!(
            release.iter().all(|(shard, part)| { *shard != others[0].0 && part.range == Some(RangeStep::Release(RangeWrite::Untouched)) })
        );
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
}
