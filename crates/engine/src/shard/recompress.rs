//! Cold regions are recompressed while no client asks for anything: the store takes the oldest one back ahead of need.
//!
//! Under load blocks are stored as LZ4 leaves them, or as they are. When no client has asked for anything for a while and the next writes
//! would have to take back a region, that is done now: everything in it is appended again, what was stored in full as zstd leaves it,
//! and the room that this gains lets later writes push out less. The policy is not asked and does not notice: nothing is forgotten, no use fades.
//!
//! The store knows which region pays ([`WorkAhead`]). A client's request stops it before the
//! next read; the region then waits, partly moved, until clients rest again or eviction needs it. Both the waiting and the work end: then
//! there is nothing to wake for until the store begins a region.

use super::Shard;
use crate::index::{Encoding, Index};
use crate::packer::Packer;
use crate::store::{Ahead, Region, WorkAhead, Worth};
use format::GROUP_RECORDS_MAX;
use format::packed::PLACE_UNIT_BYTES;
use types::BLOCK_BYTES;

/// How long no client has asked for anything when the shard counts as idle; it is noticed after up to twice as long. By then dirty blocks
/// are on their way home and the store's end is durable, and pauses between two bursts are mostly shorter.
const IDLE_AFTER_NS: u64 = 2_000_000_000;
/// Between the end of one region and the next, so that the shard is never busy for long.
const PAUSE_NS: u64 = 10_000_000;
/// When the budget of CPU time is half spent, it is looked at again after this long: it has earned a tenth of a second's worth.
const BUDGET_PAUSE_NS: u64 = 100_000_000;

/// See the module.
pub struct Recompression {
    /// When to look whether clients rest; `u64::MAX`: not before a region is begun.
    look_ns: u64,
    /// Requests of clients at the last look, and whether there had been none since the one before.
    requests: u64,
    idle: bool,
    /// It has begun, and goes on as long as it pays although there is room by now.
    under_way: bool,
    /// Regions taken back ahead of need.
    regions: u64,
    /// Blocks that became zstd on their way, whatever for, and bytes saved by that.
    blocks: u64,
    saved_bytes: u64,
}

impl Default for Recompression {
    fn default() -> Recompression {
        Recompression { look_ns: u64::MAX, requests: 0, idle: false, under_way: false, regions: 0, blocks: 0, saved_bytes: 0 }
    }
}

impl Recompression {
    /// When [`Shard::recompress_when_idle`] should look again if nothing happens.
    pub fn deadline(&self) -> Option<u64> {
        (self.look_ns != u64::MAX).then_some(self.look_ns)
    }

    /// Something changed that may give it work.
    pub fn may_begin(&mut self, now_ns: u64) {
        self.look_ns = self.look_ns.min(now_ns + IDLE_AFTER_NS);
    }

    /// A block was stored denser by so many bytes.
    pub fn saved(&mut self, bytes: u64) {
        self.blocks += 1;
        self.saved_bytes += bytes;
    }

    /// Regions taken back ahead of need; blocks made denser on their way, whatever for; bytes saved by that.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.regions, self.blocks, self.saved_bytes)
    }

    /// A region is taken back; the next follows when that is durable, if it pays.
    pub fn ended(&mut self, pays: bool) {
        self.regions += 1;
        if !pays {
            self.end();
        }
    }

    /// A region that was taken back became free.
    pub fn go_on(&mut self, now_ns: u64) {
        if self.under_way && self.idle {
            self.look_ns = self.look_ns.min(now_ns + PAUSE_NS);
        }
    }

    fn end(&mut self) {
        self.under_way = false;
        self.look_ns = u64::MAX;
    }
}

impl Shard {
    /// Looks whether clients rest, and if so has the oldest region taken back.
    pub(super) fn recompress_when_idle(&mut self) {
        if self.recompression.look_ns > self.now_ns {
            return;
        }
        if !self.packer.may_be_denser() || self.loss.is_ssd_failed() || self.quiescing {
            self.recompression.idle = false;
            self.store.pause_ahead();
            return self.recompression.end();
        }
        if !self.clients_rest() {
            return;
        }
        self.recompression.idle = true;
        if self.store.eviction().is_ahead() {
            // Who goes on says when to look again.
            self.recompression.look_ns = u64::MAX;
            self.store.resume_ahead();
        } else if self.store.eviction().is_idle() && self.restored.is_empty() && !self.commands.are_sweeping(&self.index) {
            self.begin_ahead();
        } else {
            self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
        }
    }

    /// Whether no client has asked for anything since the last look, nor waits. Says when to look again if not.
    fn clients_rest(&mut self) -> bool {
        let of_volume = |index: &types::VolumeIndex| self.volumes.get(*index).map(|volume| &volume.stats);
        let requests = self.volumes.attached().iter().filter_map(of_volume).map(|stats| stats.reads + stats.writes + stats.flushes).sum();
        let rest = requests == self.recompression.requests && self.requests() == 0;
        if !rest {
            self.recompression.requests = requests;
            self.recompression.idle = false;
            self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
            self.store.pause_ahead();
        }
        rest
    }

    /// Begins with the oldest region if that is of use.
    fn begin_ahead(&mut self) {
        let turn = self.evict_turn();
        let (index, packer) = (&self.index, &self.packer);
        let region = match self.store.look_ahead(&turn, self.recompression.under_way, |region| worth_of(index, packer, region)) {
            Ahead::Later => {
                self.recompression.look_ns = self.now_ns + IDLE_AFTER_NS;
                return;
            }
            Ahead::Nothing => return self.recompression.end(),
            Ahead::Next(region) => region,
        };
        if !self.packer.has_time_for_denser(self.now_ns) {
            return self.wait_for_budget(IDLE_AFTER_NS);
        }
        let worth = worth_of(&self.index, &self.packer, region);
        match self.store.begin_ahead(&turn, worth) {
            None => self.recompression.end(),
            Some(judge) => {
                (self.recompression.under_way, self.recompression.look_ns) = (true, u64::MAX);
                self.judge(judge);
            }
        }
    }

    fn wait_for_budget(&mut self, pause_ns: u64) {
        let earns = self.packer.options().cpu_ns_per_second > 0;
        self.recompression.look_ns = if earns { self.now_ns + pause_ns } else { u64::MAX };
    }

    /// Whether reading may go on in a region that is taken back ahead of need.
    pub(super) fn goes_on_ahead(&mut self) -> bool {
        if !self.recompression.idle || self.quiescing || !self.packer.may_be_denser() || !self.clients_rest() {
            return false;
        }
        if !self.packer.has_time_for_denser(self.now_ns) {
            self.wait_for_budget(BUDGET_PAUSE_NS);
            return false;
        }
        true
    }
}

/// What is alive in a region.
fn worth_of(index: &Index, packer: &Packer, region: Region) -> Worth {
    let mut worth = Worth::default();
    let (mut records, mut units) = (0, 0);
    for slot in region.slots(index) {
        let key = index.key_of(slot);
        if key.is_none() && !index.is_orphan(slot) {
            continue;
        }
        records += 1;
        if !slot.is_packed() {
            worth.live_bytes += BLOCK_BYTES;
            worth.pages += 1;
            continue;
        }
        let stored = index.stored(slot);
        let bytes = u64::from(stored.bytes);
        worth.live_bytes += bytes;
        match stored.encoding {
            Encoding::Raw => worth.pages += 1,
            _ => units += bytes.div_ceil(u64::from(PLACE_UNIT_BYTES)),
        }
        let is_loose = matches!(stored.encoding, Encoding::Raw | Encoding::Lz4);
        worth.loose_bytes += key.filter(|key| is_loose && packer.wants_denser(key.volume())).map_or(0, |_| bytes);
    }
    // A header and a page that is not filled for each group.
    let groups = u64::div_ceil(records, GROUP_RECORDS_MAX as u64) + 1;
    worth.pages += (units * u64::from(PLACE_UNIT_BYTES)).div_ceil(BLOCK_BYTES) + 2 * groups;
    worth
}
