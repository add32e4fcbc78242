//! A small read that misses brings the blocks beside it along, where neighbours are used ([`crate::neighbours`]): one longer I/O in place of several.
//!
//! What came along is in RAM until a client asks for it: then it arrives there as any block that was missed. Else it leaves without a trace, and
//! was never written to the SSD.
//!
//! The read has locks on what its client asked for, not on the rest: it only glances at that ([`crate::locks::Locks::glance`]). Whoever writes there meanwhile
//! does not wait, and what came along is thrown away. Blocks that are cached when it begins are left out, with all beyond them: the backing
//! device may have an older version.

use super::Shard;
use super::route::reads_use_cache;
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::neighbours::GROUP_BLOCKS;
use crate::ram::RamBlock;
use alloc::vec::Vec;
use page::{Page, PageMut};
use types::{Admit, EXTENT_BLOCKS};

/// A read of more blocks knows itself what it wants.
const SMALL_BLOCKS_MAX: u32 = 4;

/// Blocks on both sides of a read that come along.
#[derive(Clone, Copy, Default)]
pub struct Along {
    /// Before its first block.
    pub before: usize,
    /// Behind its last one.
    pub behind: usize,
}

impl Along {
    /// All of them.
    pub fn count(self) -> usize {
        self.before + self.behind
    }
}

impl Shard {
    /// From now on no read brings anything along: for a cache that sees only some blocks of a load.
    pub fn bring_nothing_along(&mut self) {
        self.neighbours.switch_off();
    }

    /// A read is missed as a whole. What comes along, with its pages: its glance has begun, if that is anything.
    pub(super) fn look_along(&mut self, id: OpId) -> (Along, Vec<PageMut>) {
        let nothing = (Along::default(), Vec::new());
        let op = self.ops.get(id);
        let (first, blocks) = (op.first, op.blocks);
        let is_small = blocks <= SMALL_BLOCKS_MAX && !op.request.origin.is_own() && op.request.bypass.is_none();
        if !is_small || !self.policy.may_hold_along() || self.loss.is_ssd_failed() || self.quiescing {
            return nothing;
        }
        let volume = self.volumes.of(first);
        if !reads_use_cache(volume.options.mode) || volume.backing.failed || volume.state.is_detaching() {
            return nothing;
        }
        self.neighbours.note(first);
        let worth = self.volumes.of(first).along;
        if !self.neighbours.may_come_along(first.extent(), worth) {
            return nothing;
        }
        let last = first.0 + u64::from(blocks) - 1;
        let end_of_group = (last / GROUP_BLOCKS + 1) * GROUP_BLOCKS;
        let may_come =
            |key: &u64| self.may_come_along(Key(*key)) || mutants::active(mutants::ALONG_OVER_CACHED) && self.is_whole(Key(*key));
        let before = (first.0 / GROUP_BLOCKS * GROUP_BLOCKS..first.0).rev().take_while(may_come).count();
        let behind = (last + 1..end_of_group).take_while(may_come).count();
        let along = Along { before, behind };
        let Some(pages) = self.allocate(along.count()).filter(|pages| !pages.is_empty()) else { return nothing };
        let (from, count) = (Key(first.0 - before as u64), before as u32 + blocks + behind as u32);
        if !self.locks.glance(id, from, count) {
            return nothing;
        }
        (along, pages)
    }

    fn may_come_along(&self, key: Key) -> bool {
        let is_cached = self.ram.get(key).is_some() || self.index.get(key).is_some();
        !is_cached && self.is_whole(key) && self.volumes.treatment_of(key).admit() != Admit::Never
    }

    /// The glance is over. False if what came along does not count.
    pub(super) fn has_come_along(&mut self, id: OpId) -> bool {
        let is_overtaken = self.locks.end_glance(id) && !mutants::active(mutants::ALONG_OVERTAKEN);
        let volume = self.volumes.of(self.ops.get(id).first);
        !is_overtaken && reads_use_cache(volume.options.mode) && !volume.backing.failed && !volume.state.is_detaching()
    }

    /// A block has come along.
    pub(super) fn keep_along(&mut self, key: Key, page: Page) {
        if !self.may_come_along(key) {
            return;
        }
        let slot = self.policy.ram_insert_along(key.0);
        self.ram.insert(key, RamBlock { page, slot });
        let volume = self.volumes.of(key);
        volume.ram_blocks += 1;
        volume.stats.read_along_blocks += 1;
        self.presence.enter(key);
        self.ram_makes_room();
    }
}

const _: () = assert!(EXTENT_BLOCKS.is_multiple_of(GROUP_BLOCKS));
