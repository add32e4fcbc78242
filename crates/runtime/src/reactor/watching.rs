//! What a reactor keeps for those who watch loads ([`crate::tapped`]).

use super::Reactor;
use super::endpoints::EndpointSlot;
use super::requests::ClientRequest;
use crate::tapped::{PageSeen, Recognise, SIGHTS_MAX, Sight, Tapped, Used, is_missed};
use crate::volume::VolumeRef;
use engine::api::{Op, Origin, Outcome, Request};
use engine::tap::{self, Tap};
use page::PageVec;
use pool::slab::Slab;
use std::panic::{AssertUnwindSafe, catch_unwind};
use types::BLOCK_SECTORS;

/// Nanoseconds in a millisecond.
const MS_NS: u64 = 1_000_000;

#[derive(Default)]
pub(crate) struct Watching {
    tap: Tap,
    sights: Vec<Sight>,
    sights_lost: u64,
}

/// An answer, as far as it is watched.
pub(crate) struct Seen<'a> {
    pub(crate) volume: &'a VolumeRef,
    pub(crate) recognise: Option<&'a Recognise>,
    pub(crate) endpoints: &'a Slab<EndpointSlot>,
    pub(crate) now_ns: u64,
    pub(crate) outcome: Outcome,
    pub(crate) pages: &'a PageVec,
}

/// What is remembered of a request for its answer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Glance {
    /// A client's own request, of a volume that is watched.
    pub(crate) watched: bool,
    /// See [`Sight::sequential`].
    pub(crate) sequential: bool,
    /// Of a write: what its first page says.
    pub(crate) page: Option<PageSeen>,
}

/// What the first page of a request says, if it begins with a block.
fn recognised(recognise: Option<&Recognise>, start_sector: u64, pages: &PageVec) -> Option<PageSeen> {
    let first = pages.first().filter(|_| start_sector.is_multiple_of(BLOCK_SECTORS))?;
    let recognise = recognise?;
    // A fault in what only watches must not end the thread that serves.
    catch_unwind(AssertUnwindSafe(|| recognise(&first[..]))).ok().flatten()
}

impl Glance {
    /// Looks at a request on its way in.
    pub(crate) fn of(volume: &VolumeRef, recognise: Option<&Recognise>, request: &Request) -> Glance {
        let watched = volume.sampled_below() != 0 && request.origin() == Origin::Client;
        let page = if watched && request.op == Op::Write { recognised(recognise, request.start_sector, &request.pages) } else { None };
        Glance { watched, sequential: false, page }
    }
}

impl Watching {
    /// Takes note of a request of a watched volume that was answered well. Whether there is more than may be held.
    #[must_use]
    pub(crate) fn note(&mut self, seen: &Seen<'_>, request: &ClientRequest) -> bool {
        let below = seen.volume.sampled_below();
        if below == 0 {
            return false;
        }
        let (volume, time_ms, outcome) = (seen.volume.number(), (seen.now_ns / MS_NS) as u32, seen.outcome);
        let ClientRequest { op, start_sector, sectors, glance: Glance { sequential, page, .. }, .. } = *request;
        self.tap.note(&tap::Used { volume, time_ms, op, start_sector, sectors, outcome, sequential }, below);
        let is_write = op == Op::Write;
        if is_write || op == Op::Read && is_missed(outcome) {
            if self.sights.len() < SIGHTS_MAX {
                let page = if is_write { page } else { recognised(seen.recognise, start_sector, seen.pages) };
                let endpoint = seen.endpoints.get(request.endpoint.slot).filter(|slot| slot.is(request.endpoint));
                let client = endpoint.map_or(0, |slot| slot.client);
                self.sights.push(Sight { volume, time_ms, start_sector, sectors, is_write, sequential, client, page });
            } else {
                self.sights_lost += 1;
            }
        }
        self.tap.is_full()
    }
}

impl Reactor {
    /// Halves the samples of the busiest volumes until what is held fits.
    #[cold]
    pub(crate) fn thin_samples(&mut self) {
        while let Some(number) = self.watching.tap.fullest() {
            let volume = self.volumes.get(number as usize).and_then(Option::as_ref);
            // What is left of a volume that is gone is of no use to anybody.
            let below = volume.map_or(0, |local| {
                local.shared.sample_below(local.shared.sampled_below() / 2);
                local.shared.sampled_below()
            });
            self.watching.tap.thin(number, below);
        }
    }

    pub(crate) fn take_tapped_here(&mut self) -> Tapped {
        let (samples, removed) = self.watching.tap.take();
        let sights = std::mem::take(&mut self.watching.sights);
        let sights_lost = std::mem::take(&mut self.watching.sights_lost);
        let watched = self.volumes.iter().flatten().filter(|local| local.shared.sampled_below() != 0);
        Tapped { samples, removed, sights, sights_lost, used: watched.map(|local| (local.shared.number(), local.used)).collect() }
    }
}

impl Used {
    /// One more request.
    pub(crate) fn add(&mut self, request: &ClientRequest) {
        let end = (request.start_sector + u64::from(request.sectors)).div_ceil(BLOCK_SECTORS);
        let blocks = end - request.start_sector / BLOCK_SECTORS;
        match request.op {
            Op::Read if request.glance.sequential => self.sequential_blocks += blocks,
            Op::Read => self.read_blocks += blocks,
            Op::Write => self.written_blocks += blocks,
            _ => {}
        }
    }
}
