//! Range requests: a discard or write-zeroes over whole extents goes to the backing device as one I/O, although its extents belong to all shards.
//!
//! Steps ([`RangeStep`]), each begun when the one before is answered:
//! 1. the volume's *home* shard holds the range;
//! 2. all other shards do, at the same time;
//! 3. the home shard writes the backing device;
//! 4. if any shard has dirty blocks in the range, all settle it;
//! 5. all shards that hold the range release it.
//!
//! Home comes first and alone: of two range requests that overlap, the second asks no other shard before the first has the range in all of them.
//! So two fronts cannot each hold what the other waits for. All other requests want something of one shard only.
//!
//! A step that fails ends the request: what holds the range releases it. If the SSD is lost before all have settled, the steps begin anew with
//! the range held.

use crate::api::{Op, RangeReply, RangeStep, RangeWrite, Reply, Request, RequestError};
use crate::key::mix;
use crate::mutants;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use types::{EXTENT_SECTORS, ShardIndex, VolumeId};

/// Whole extents from which on a request is a range request: fewer take the ways of their shards at the same time, in as many I/Os.
pub const RANGE_EXTENTS_MIN: u64 = 2;

/// Range requests that one front has in the shards at the same time. Others wait for them.
const RANGES_IN_SHARDS_MAX: usize = 4;

/// Which shard of a volume is its home for range requests.
pub fn home_of(volume: VolumeId, shards: u16) -> ShardIndex {
    ShardIndex((mix(u64::from(volume.0)) % u64::from(shards)) as u16)
}

/// The sectors of the whole extents in a request, if it is to be a range request.
pub(super) fn range_in(request: &Request) -> Option<(u64, u64)> {
    if !matches!(request.op, Op::Discard | Op::PunchHole | Op::WriteZeroes) {
        return None;
    }
    let end = request.start_sector + u64::from(request.sectors);
    let range = (request.start_sector.next_multiple_of(EXTENT_SECTORS), end / EXTENT_SECTORS * EXTENT_SECTORS);
    (range.0 + RANGE_EXTENTS_MIN * EXTENT_SECTORS <= range.1).then_some(range)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    HoldingHome,
    HoldingOthers,
    HoldingAgain,
    Writing,
    Settling,
    Releasing,
}

struct RangeRequest {
    /// The request it is a part of.
    joining: u32,
    volume: VolumeId,
    request: Request,
    stage: Stage,
    /// Answers to come in this stage.
    waiting: u32,
    /// Which shards hold the range.
    held: Vec<bool>,
    over_dirty: bool,
    /// A shard lost the SSD under it.
    again: bool,
    error: Option<RequestError>,
}

/// What comes of an answer.
pub(super) enum Next {
    /// Send these steps.
    Steps(Vec<(ShardIndex, Request)>),
    /// The part of this request is done.
    Done { joining: u32, result: Result<(), RequestError> },
}

/// The range requests of a front.
pub(super) struct Ranges {
    shards: u16,
    table: Vec<Option<RangeRequest>>,
    free: Vec<u32>,
    /// In the shards.
    under_way: usize,
    /// They wait for others.
    queue: VecDeque<u32>,
}

impl Ranges {
    pub(super) fn new(shards: u16) -> Ranges {
        Ranges { shards, table: Vec::new(), free: Vec::new(), under_way: 0, queue: VecDeque::new() }
    }

    /// Takes in the range request that is a part of the request `joining`.
    pub(super) fn add(&mut self, joining: u32, volume: VolumeId, request: Request) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            (self.table.len() - 1) as u32
        });
        let held = vec![false; usize::from(self.shards)];
        let range = RangeRequest {
            joining,
            volume,
            request,
            stage: Stage::HoldingHome,
            waiting: 0,
            held,
            over_dirty: false,
            again: false,
            error: None,
        };
        self.table[number as usize] = Some(range);
        self.queue.push_back(number);
    }

    /// The first step of the next request, if one may begin. `is_known`: whether a volume is still there.
    pub(super) fn begin_next(&mut self, is_known: impl Fn(&Request, VolumeId) -> bool) -> Option<Next> {
        if self.under_way >= RANGES_IN_SHARDS_MAX {
            return None;
        }
        let number = self.queue.pop_front()?;
        self.under_way += 1;
        let range = self.table[number as usize].as_ref().expect("a request that waits");
        if !is_known(&range.request, range.volume) {
            self.get(number).error = Some(RequestError::Invalid);
            return Some(self.end(number));
        }
        let home = home_of(range.volume, self.shards);
        Some(self.send(number, Stage::HoldingHome, RangeStep::Hold, &[home]))
    }

    fn get(&mut self, number: u32) -> &mut RangeRequest {
        self.table[number as usize].as_mut().expect("a request in flight")
    }

    fn send(&mut self, number: u32, stage: Stage, step: RangeStep, to: &[ShardIndex]) -> Next {
        let range = self.get(number);
        (range.stage, range.waiting) = (stage, to.len() as u32);
        let id = super::part_id(number | super::RANGE_SLOT, 0);
        let request = Request { id, range: Some(step), ..range.request.clone() };
        Next::Steps(to.iter().map(|shard| (*shard, request.clone())).collect())
    }

    /// A shard has answered a step. `None`: other shards have not yet.
    pub(super) fn answered(&mut self, number: u32, shard: ShardIndex, reply: &Reply) -> Option<Next> {
        let shards = self.shards;
        let range = self.get(number);
        range.waiting -= 1;
        if let Err(error) = reply.result {
            range.error.get_or_insert(error);
            // What cannot be held again is free.
            range.held[usize::from(shard.0)] &= range.stage != Stage::HoldingAgain;
        }
        if let Some(RangeReply::Held { over_dirty }) = reply.range {
            range.held[usize::from(shard.0)] = true;
            range.over_dirty |= over_dirty;
        }
        range.again |= reply.range == Some(RangeReply::Again);
        if range.waiting > 0 {
            return None;
        }
        let (home, failed, over_dirty) = (home_of(range.volume, shards), range.error.is_some(), range.over_dirty);
        let holds = |held: bool| {
            let chosen = range.held.iter().enumerate().filter(|(_, holds)| **holds == held);
            chosen.map(|(shard, _)| ShardIndex(shard as u16)).collect::<Vec<_>>()
        };
        let (holders, others) = (holds(true), holds(false));
        Some(match range.stage {
            Stage::HoldingHome | Stage::HoldingOthers | Stage::HoldingAgain | Stage::Settling if failed => {
                self.release(number, RangeWrite::Untouched, &holders)
            }
            Stage::HoldingHome if !others.is_empty() => self.send(number, Stage::HoldingOthers, RangeStep::Hold, &others),
            Stage::HoldingHome | Stage::HoldingOthers | Stage::HoldingAgain => {
                assert!(others.is_empty(), "the range is held everywhere before it is written: {others:?}");
                self.send(number, Stage::Writing, RangeStep::Write { over_dirty }, &[home])
            }
            Stage::Writing => match reply.range {
                Some(RangeReply::Written(write @ RangeWrite::Done { .. })) if over_dirty => {
                    self.send(number, Stage::Settling, RangeStep::Settle(write), &holders)
                }
                Some(RangeReply::Written(write)) => self.release(number, write, &holders),
                other => panic!("{other:?} is no answer to a write"),
            },
            Stage::Settling if range.again && !mutants::active(mutants::OLD_GOES_HOME_OVER_RANGE) => {
                (range.again, range.over_dirty) = (false, false);
                self.send(number, Stage::HoldingAgain, RangeStep::HoldAgain, &holders)
            }
            Stage::Settling => self.release(number, RangeWrite::Untouched, &holders),
            Stage::Releasing => self.end(number),
        })
    }

    fn release(&mut self, number: u32, write: RangeWrite, holders: &[ShardIndex]) -> Next {
        match holders {
            [] => self.end(number),
            _ => self.send(number, Stage::Releasing, RangeStep::Release(write), holders),
        }
    }

    fn end(&mut self, number: u32) -> Next {
        let range = self.table[number as usize].take().expect("a request in flight");
        self.free.push(number);
        self.under_way -= 1;
        Next::Done { joining: range.joining, result: range.error.map_or(Ok(()), Err) }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::{Op, Origin, Request, VolumeOptions};
    use crate::front::{Front, FrontAction};
    use page::PageVec;
    use types::{BypassReason, EXTENT_SECTORS, VolumeId, VolumeIndex};

    /// They never enter the cache: no size, and no stream, sends them around it, and none is counted as if it had.
    #[test]
    fn what_gives_up_its_sectors_is_not_turned_away() {
        let (volume, sectors, pages) = (VolumeIndex(0), EXTENT_SECTORS as u32, PageVec::new());
        let mut front = Front::new(1);
        front.set_volume(volume, VolumeId(1), VolumeOptions::default());
        let discard = Request::new(7, volume, Op::Discard, 0, sectors, Origin::Client).pages(pages);
        for (op, reason) in [(Op::Discard, None), (Op::PunchHole, None), (Op::WriteZeroes, Some(BypassReason::Size))] {
            front.submit(Request { op, ..discard.clone() });
            let Some(FrontAction::ToShard(_, part)) = front.poll() else { panic!("no part") };
            assert_eq!(part.bypass, reason, "{op:?}");
        }
    }
}
