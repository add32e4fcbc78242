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

/// Which shard owns an extent of a volume. Part of the on-disk format: a shard's part of the SSD holds only its blocks.
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
                if mutants::active(mutants::POLICIES_OF_PREDECESSOR) {
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
        if !mutants::active(mutants::POLICIES_OF_PREDECESSOR) {
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
        let keeps_whole = volume.keeps_whole(&request);
        let own = if keeps_whole { None } else { volume.bypass(&request, &seen) };
        let is_large = request.op == Op::Write && (own.is_some() || seen.stream.is_some());
        let in_burst = is_large && volume.takes_burst(&request, own);
        let own = own.filter(|_| !in_burst);
        let bypass = match volume.policies {
            _ if keeps_whole => None,
            None => request.bypass.or(own),
            Some(_) => volume.by_policy(&request, own),
        };
        let request = Request { bypass, in_burst, ..request };
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
            let shards = if mutants::active(mutants::FLUSH_OF_ONE_SHARD) { 1 } else { self.shards };
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
    /// Whether units of the request are to be whole on the SSD: nothing sends it around the cache, where a device may tear them.
    fn keeps_whole(&self, request: &Request) -> bool {
        request.op == Op::Write && self.options.atomic_blocks().is_some() && !mutants::active(mutants::UNIT_AROUND)
    }

    /// Whether the volume's options send the request around the cache.
    fn bypass(&self, request: &Request, seen: &Seen) -> Option<BypassReason> {
        let sectors = u64::from(request.sectors);
        let log = seen.log && sectors <= LOG_WRITE_SECTORS_MAX;
        if self.options.mode == Mode::PassThrough && request.op == Op::Read {
            Some(BypassReason::PassThrough)
        } else if request.origin.is_own() || matches!(request.op, Op::Flush | Op::Discard | Op::PunchHole) || log {
            None
        } else if sectors * SECTOR_BYTES > u64::from(self.options.max_io_bytes) {
            Some(BypassReason::Size)
        } else {
            seen.past_cutoff.then_some(BypassReason::Sequential)
        }
    }

    /// Takes note of a large write, or one of a stream, and says whether the SSD takes it all the same if its options would send it around.
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
            (Op::Read, Some(cutoff)) if !request.origin.is_own() => {
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
mod tests;
