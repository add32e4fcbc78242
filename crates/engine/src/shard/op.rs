//! One client request on its way through the shard.

use crate::api::Outcome;
use crate::api::{Op as OpKind, Request, RequestError};
use crate::key::Key;
use crate::locks::Kind;
use crate::mutants;
use crate::numbered::Numbered;
use crate::policy::Arrival;
use crate::trail::Happened;
use alloc::vec::Vec;
use page::{Page, PageMut};
use smallvec::SmallVec;
use types::{BLOCK_SECTORS, BypassReason};

/// What a request does next when it is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Has its locks, has not begun (or begins again after having waited for pages).
    Start,
    /// A read whose I/Os are on their way.
    Reading,
    /// A write into the store that waits for room.
    StoreRoom,
    /// A write into the store whose partial blocks are being completed.
    Merging,
    /// A write into the store whose records are appended.
    Stored,
    /// A backing write that waits for destages of its blocks.
    Draining,
    /// A backing write whose `Invalidate` records are durable.
    Invalidated,
    /// A backing write that has reached the backing device.
    BackingWritten,
    /// A backing write over dirty blocks whose `Invalidate` records are as safe as its client asked.
    Settled,
    /// A flush.
    Flushing,
    /// A range request whose `Invalidate` records are on their way.
    RangeVoid,
    /// A range request that holds its range: the front sends the next step.
    RangeHeld,
    /// A range request that makes dirty versions void.
    RangeReleasing,
    /// A range request whose last records are on their way.
    RangeSettled,
}

/// An edge block of a write into the store that the request covers only in part.
#[derive(Debug)]
pub struct Edge {
    /// Index of the block in the request.
    pub block: usize,
    /// Sectors that the request writes.
    pub new_mask: u8,
    /// What the block held before: content and valid sectors.
    pub base: Option<(Page, u8)>,
    /// The base is still being read.
    pub loading: bool,
}

/// Where a block of a read comes from, once known.
#[derive(Debug, Default)]
pub struct ReadBlock {
    /// The content.
    pub page: Option<Page>,
    /// Valid sectors of a cached version to be laid over what the backing device gives.
    pub overlay: Option<(Option<Page>, u8)>,
    /// The cached version went bad after it had come home: the backing device is to be read again.
    pub again: bool,
    /// The backing device filled the page alone: it may enter the cache.
    pub fill: bool,
    /// Read from the SSD, and the policy wants a copy in RAM.
    pub copy: Option<Arrival>,
}

/// See the module.
#[derive(Debug)]
pub struct Op {
    /// As submitted.
    pub request: Request,
    /// The first block's key.
    pub first: Key,
    /// Blocks touched; 0 for a flush.
    pub blocks: u32,
    /// What comes next.
    pub phase: Phase,
    /// I/Os handed out for it and not completed.
    pub pending: u32,
    /// Why it went around the cache, or had to wait.
    pub reason: Option<BypassReason>,
    /// It has its locks or waits for them; else it only glances at its blocks: see `own_reads`.
    pub has_locks: bool,
    /// How often it has tried to do without locks.
    pub glances: u8,
    /// The trail knows of it.
    pub noted: bool,
    /// The first thing that went wrong.
    pub error: Option<RequestError>,
    /// Reads only.
    pub read: SmallVec<[ReadBlock; 1]>,
    /// Some block came from the backing device; a flush waits for it.
    pub missed: bool,
    /// Some block came from the SSD.
    pub ssd_hit: bool,
    /// Writes into the store only: the blocks to be completed.
    pub edges: SmallVec<[Edge; 2]>,
    /// There was no page to read an edge into: it begins again.
    pub starved: bool,
    /// The group to wait for.
    pub group: u64,
    /// Backing writes: dirty blocks the request covers whole, to be invalidated after the write.
    pub over_dirty: Vec<Key>,
    /// Backing writes: the SSD is lost and holds some of the volume, so what is written is to be recorded.
    pub past_ssd: bool,
    /// Backing writes: dirty blocks that destage leaves alone until the request is done.
    pub shielded: Vec<Key>,
    /// Backing writes: which blocks were cached on the SSD before, and may go there again.
    pub was_cached: [u64; 4],
}

impl Op {
    /// What is remembered of it.
    pub fn happened(&self, outcome: Outcome) -> Happened {
        let Request { start_sector, sectors, op, .. } = self.request;
        Happened { first: self.first, start_sector, sectors, op, outcome, reason: self.reason }
    }

    /// A request that waits for its locks.
    pub fn new(request: Request) -> Op {
        let first_block = request.start_sector / BLOCK_SECTORS;
        let end_block = (request.start_sector + u64::from(request.sectors)).div_ceil(BLOCK_SECTORS);
        Op {
            first: Key::new(request.volume, first_block),
            blocks: (end_block - first_block) as u32,
            reason: request.bypass,
            noted: false,
            has_locks: true,
            glances: 0,
            request,
            phase: Phase::Start,
            pending: 0,
            error: None,
            read: SmallVec::new(),
            missed: false,
            ssd_hit: false,
            edges: SmallVec::new(),
            starved: false,
            group: 0,
            over_dirty: Vec::new(),
            past_ssd: false,
            shielded: Vec::new(),
            was_cached: [0; 4],
        }
    }

    /// A range request of which this is the first block. It locks its range as a whole and has no blocks of its own.
    pub fn of_range(request: Request, first: Key) -> Op {
        Op { first, blocks: 0, ..Op::new(request) }
    }

    /// How it locks its blocks.
    pub fn lock_kind(&self) -> Kind {
        if self.request.op == OpKind::Read || mutants::active(mutants::DISCARD_UNORDERED) && self.request.op == OpKind::Discard {
            Kind::Shared
        } else {
            Kind::Exclusive
        }
    }

    /// Whether it has taken the way into the store.
    pub fn is_store_write(&self) -> bool {
        matches!(self.phase, Phase::StoreRoom | Phase::Merging | Phase::Stored)
    }

    /// The key of its `index`-th block.
    pub fn key(&self, index: usize) -> Key {
        Key(self.first.0 + index as u64)
    }

    /// The sectors of its `index`-th block that it touches, bit 0 the block's first.
    pub fn mask(&self, index: usize) -> u8 {
        request_mask(&self.request, self.key(index))
    }
}

/// The sectors of a block that a request touches, bit 0 the block's first.
pub fn request_mask(request: &Request, key: Key) -> u8 {
    let block_start = key.start_sector();
    let from = request.start_sector.saturating_sub(block_start).min(BLOCK_SECTORS);
    let to = (request.start_sector + u64::from(request.sectors)).saturating_sub(block_start).min(BLOCK_SECTORS);
    (((1_u16 << to) - 1) & !((1_u16 << from) - 1)) as u8
}

/// Copies the sectors of `mask` from one page onto another.
pub fn overlay(onto: &mut PageMut, from: &[u8; 4096], mask: u8) {
    for sector in 0..BLOCK_SECTORS as usize {
        if mask >> sector & 1 == 1 {
            let bytes = sector * 512..(sector + 1) * 512;
            onto[bytes.clone()].copy_from_slice(&from[bytes]);
        }
    }
}

/// Requests in the shard.
pub type Ops = Numbered<Op>;
