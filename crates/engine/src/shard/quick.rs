//! The short way of a read: one block, whole on the SSD, with no request changing it. No entry in the table of requests, no lists.
//!
//! What goes wrong (an SSD that cannot read, a checksum) is handed to [`super::read`], as if the read had gone its way from the start.

use super::op::{Op, Phase, ReadBlock};
use super::proof::Proof;
use super::read::SsdPart;
use super::route::reads_use_cache;
use super::{Context, Shard};
use crate::api::{IoError, IoKind, Op as OpKind, Origin, Outcome, Reply, Request};
use crate::key::Key;
use crate::locks::Kind;
use crate::mutants;
use crate::policy::Arrival;
use crate::store::{Place, RegionId};
use crate::trail::Happened;
use page::{PageMutVec, PageVec};
use smallvec::smallvec;
use types::BLOCK_SECTORS;

/// A block being read from the SSD, with what a reply needs.
pub struct QuickRead {
    id: u64,
    key: Key,
    /// The region that is read.
    region: RegionId,
    proof: Proof,
    /// Within the block.
    first_sector: u8,
    sectors: u8,
    /// The policy wants a copy in RAM.
    copy: Option<Arrival>,
}

impl Shard {
    /// Starts a read on the short way. False if it has to go the long one.
    pub(super) fn read_quickly(&mut self, request: &Request) -> bool {
        let first_sector = request.start_sector % BLOCK_SECTORS;
        if first_sector + u64::from(request.sectors) > BLOCK_SECTORS
            || request.bypass.is_some()
            || request.origin.is_own()
            || self.loss.is_ssd_failed()
        {
            return false;
        }
        let volume = self.volumes.get(request.volume).expect("checked by refuse");
        if !reads_use_cache(volume.options.mode)
            || volume.backing.failed
            || mutants::active(mutants::READ_WITHOUT_LOCK)
            || mutants::active(mutants::OVERLAPS_UNORDERED)
        {
            return false;
        }
        let key = Key::new(request.volume, request.start_sector / BLOCK_SECTORS);
        let Some(slot) = self.index.get(key).filter(|_| self.ram.get(key).is_none()) else { return false };
        let meta = self.index.meta(slot);
        if meta.partial || !self.is_page(slot) || self.store.in_flight().page(slot).is_some() {
            return false;
        }
        let Some(page) = self.config.pool.allocate() else { return false };
        if !self.locks.share_if_free(key) {
            return false;
        }
        let volume = self.volumes.of(key);
        volume.stats.read_hits_ssd += 1;
        volume.quick_reads += 1;
        self.quick_reads += 1;
        let copy = self.touch_on_ssd(key, slot, false, 1, false).enter;
        let Place { region, offset_bytes, .. } = self.place_of(slot);
        self.store.readers().begin(region);
        let read = QuickRead {
            id: request.id,
            key,
            region,
            proof: self.proof_of(slot),
            first_sector: first_sector as u8,
            sectors: request.sectors as u8,
            copy,
        };
        let span = self.store.ssds().read_span(offset_bytes, 1, false);
        self.out.io(span, IoKind::Read(PageMutVec::from_buf([page])), Context::QuickRead(read));
        true
    }

    /// The block has been read.
    pub(super) fn quick_read_done(&mut self, read: QuickRead, result: Result<(), IoError>, mut pages: PageMutVec) {
        let QuickRead { id, key, region, proof, copy, .. } = read;
        // Those who starved go before those who wait for this block, as on the long way.
        self.wake_starved();
        self.quick_reads -= 1;
        let volume = self.volumes.of(key);
        volume.quick_reads -= 1;
        let good = result.is_ok() && proof.holds(volume.id, key.block(), &pages[0]);
        if !good {
            self.quick_read_failed(read, result, pages);
            return;
        }
        let may_keep = reads_use_cache(volume.options.mode) && !volume.backing.failed && !volume.state.is_detaching();
        self.store.readers().end(region);
        let page = pages.pop().expect("one block was read").freeze();
        if let Some(arrival) = copy.filter(|_| may_keep)
            && self.index.get(key).is_some_and(|slot| !self.index.meta(slot).partial)
        {
            self.keep_copy(key, &page, Some(arrival));
        }
        self.locks.release(key, 1, Kind::Shared, &mut self.ready);
        let start_sector = u64::from(read.first_sector);
        let (op, sectors, outcome) = (OpKind::Read, u32::from(read.sectors), Outcome::SsdHit);
        self.trail.note(self.now_ns, Happened { first: key, start_sector, sectors, op, outcome, reason: None });
        self.out.reply(Reply { id, result: Ok(()), pages: PageVec::from_buf([page]), outcome: Outcome::SsdHit, range: None });
    }

    fn quick_read_failed(&mut self, read: QuickRead, result: Result<(), IoError>, pages: PageMutVec) {
        let QuickRead { id, key, region, proof, first_sector, sectors, copy } = read;
        let mut op = Op::new(Request::new(
            id,
            key.volume(),
            OpKind::Read,
            key.start_sector() + u64::from(first_sector),
            u32::from(sectors),
            Origin::Client,
        ));
        op.phase = Phase::Reading;
        op.pending = 1;
        op.ssd_hit = true;
        op.read = smallvec![ReadBlock { copy, ..ReadBlock::default() }];
        let op = self.ops.add(op);
        // Of one block: nothing is read again.
        let part = SsdPart { op, first: 0, overlay: false, region, offset_bytes: 0, proofs: smallvec![proof] };
        self.ssd_read(part, result, pages);
    }
}
