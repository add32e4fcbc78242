//! What a shard knows of one volume.

use super::destage::pace::Clients;
use crate::api::VolumeOptions;
use crate::key::{ExtentKey, Map};
use crate::locks::OpId;
use crate::mutants;
use crate::neighbours::Worth;
use crate::region_heat::RegionHeat;
use crate::stats::VolumeStats;
use crate::treatment::PolicyMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use types::{SECTOR_BYTES, VolumeId};

/// See the module.
pub struct Volume {
    /// Its number in the store.
    pub id: VolumeId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How it is treated.
    pub options: VolumeOptions,
    /// How its objects are, if something is said of them.
    pub policies: Option<Arc<PolicyMap>>,
    /// Where it is in its life here.
    pub state: VolumeState,
    /// What it still has to do with an SSD that is lost.
    pub bond: SsdBond,
    /// When it was attached.
    pub attached_ns: u64,
    /// Its counters.
    pub stats: VolumeStats,
    /// What became of blocks that were read along with others.
    pub along: Worth,
    /// How often each part of it was asked for lately.
    pub heat: RegionHeat,
    /// Index entries it has.
    pub cached_blocks: u64,
    /// Blocks it has in RAM.
    pub ram_blocks: u64,
    /// Reads of it that are on their way without an entry in the table of requests.
    pub quick_reads: u32,
    /// The last group with a record that an acknowledged write of this volume rests on.
    pub stored_group: u64,
    /// The newest group with a record that a block of it is not dirty any more: a note that it came home, or that it is void.
    pub note_group: u64,
    /// Which writes somebody waits for.
    pub awaited: Awaited,
    /// Its backing device.
    pub backing: Backing,
}

/// Where a volume is in its life in a shard. Only a serving one gets new requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeState {
    /// Requests are served.
    Serving,
    /// Known, but its backing device is not available: no requests, no destage; its dirty blocks are kept.
    Held,
    /// Its backing device is being let go: no destage but what a request waits for.
    Releasing,
    /// Going away.
    Detaching,
    /// Going away, without its backing device having come.
    DetachingHeld,
    /// Going away, after its backing device was to be let go.
    DetachingReleased,
}

impl VolumeState {
    /// Whether it gets new requests.
    pub fn is_serving(self) -> bool {
        self == VolumeState::Serving
    }

    /// Whether its backing device is not available.
    pub fn is_held(self) -> bool {
        matches!(self, VolumeState::Held | VolumeState::DetachingHeld)
    }

    /// Whether it goes away: nothing of it enters the cache any more.
    pub fn is_detaching(self) -> bool {
        matches!(self, VolumeState::Detaching | VolumeState::DetachingHeld | VolumeState::DetachingReleased)
    }

    /// Whether destage may begin by itself.
    pub fn may_destage(self) -> bool {
        matches!(self, VolumeState::Serving | VolumeState::Detaching)
    }

    /// It goes away from now on.
    pub fn detach(&mut self) {
        *self = match *self {
            VolumeState::Serving | VolumeState::Detaching => VolumeState::Detaching,
            VolumeState::Held | VolumeState::DetachingHeld => VolumeState::DetachingHeld,
            VolumeState::Releasing | VolumeState::DetachingReleased => VolumeState::DetachingReleased,
        };
    }

    /// Its backing device is let go from now on.
    ///
    /// # Panics
    /// If it has none.
    pub fn release(&mut self) {
        assert!(!self.is_held(), "a volume that is held has no device to let go");
        *self = if self.is_detaching() { VolumeState::DetachingReleased } else { VolumeState::Releasing };
    }
}

/// What a volume has to do with an SSD that is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SsdBond {
    /// Something of it may be there alone.
    Needed,
    /// The host was told that nothing of it is dirty here.
    NothingDirty,
    /// The host has recorded that the SSD holds nothing of it.
    Past,
    /// The same, and the host was not told by this shard that nothing is dirty.
    PastUntold,
}

impl SsdBond {
    /// Whether the host has recorded that the SSD holds nothing of it.
    pub fn is_past(self) -> bool {
        matches!(self, SsdBond::Past | SsdBond::PastUntold)
    }

    /// Nothing of it is dirty. True if the host is to be told.
    pub fn tell_nothing_dirty(&mut self) -> bool {
        let before = *self;
        *self = if before.is_past() { SsdBond::Past } else { SsdBond::NothingDirty };
        *self != before
    }

    /// The host has recorded that the SSD holds nothing of it.
    pub fn is_forgotten(&mut self) {
        *self = match *self {
            SsdBond::Needed | SsdBond::PastUntold => SsdBond::PastUntold,
            SsdBond::NothingDirty | SsdBond::Past => SsdBond::Past,
        };
    }
}

/// Places that a client writes and flushes at once, again and again: the journal of a file system or database. It waits for each such write, so
/// that holding one back for others costs it a transaction.
#[derive(Default)]
pub struct Awaited {
    /// Where the last write ended, and when it was acknowledged.
    last: (u64, u64),
    /// Blocks behind the last writes that were flushed at once, newest first; 0: none.
    ends: [u64; 4],
}

/// A flush that comes so soon after the acknowledgement of a write is of that write.
const FLUSH_FOLLOWS_NS: u64 = 1_000_000;

/// The next write of a journal begins in the block where the last one ended, or not far behind.
const JOURNAL_STEP_BLOCKS: u64 = 16;

impl Awaited {
    /// A write that ends before this block was acknowledged.
    pub fn written(&mut self, end_block: u64, now_ns: u64) {
        self.last = (end_block, now_ns);
    }

    /// A flush came.
    pub fn flushed(&mut self, now_ns: u64) {
        let (end, at_ns) = self.last;
        if end == 0 || now_ns > at_ns + FLUSH_FOLLOWS_NS {
            return;
        }
        let place = self.ends.iter().position(|known| follows(*known, end)).unwrap_or(self.ends.len() - 1);
        self.ends[..=place].rotate_right(1);
        self.ends[0] = end;
    }

    /// Whether a write that ends before this block, and begins at that one, is probably waited for.
    pub fn expects(&self, first_block: u64) -> bool {
        self.ends.iter().any(|end| follows(*end, first_block + 1))
    }
}

/// Whether a journal that ended before block `end` may go on with a write in block `next - 1`.
fn follows(end: u64, next: u64) -> bool {
    end > 0 && (end..=end + JOURNAL_STEP_BLOCKS).contains(&next)
}

/// A request that waits until writes to the backing device are durable.
#[derive(Clone, Copy, Debug)]
pub struct FlushWaiter {
    /// The first so many of them.
    pub written: u64,
    /// Which.
    pub op: OpId,
}

/// What a shard knows of a backing device: what is flushed, whether it failed, how busy clients keep it.
#[derive(Default)]
pub struct Backing {
    /// Writes completed, counted.
    pub written: u64,
    /// The last of them that a client's flush has to cover: a client's own, past the store, and not durable by itself. What destage writes stays
    /// dirty, and so safe in the store, until destage's own flush.
    pub owed: u64,
    /// As many of them are known to be durable.
    pub flushed: u64,
    /// The running flush covers the writes counted up to here.
    pub flushing: Option<u64>,
    /// Who waits until so many writes are durable.
    pub waiters: Vec<FlushWaiter>,
    /// Extents written since the last flush, with the count of the write: what a power cut may still undo. A clean block of such an extent
    /// must not enter the store, which would keep it while the backing device falls back to an older version.
    pub unflushed: Map<ExtentKey, u64>,
    /// The same for ranges of extents.
    unflushed_ranges: Vec<(Range<ExtentKey>, u64)>,
    /// A flush failed: final until the volume is attached anew.
    pub failed: bool,
    /// Client I/Os on it now.
    pub client_in_flight: u32,
    /// When the last client I/O on it ended.
    pub client_last_ns: u64,
    /// Client I/Os on it that have ended.
    pub client_ended: u64,
    /// When a client last wrote something into the store that belongs on it.
    pub client_stored_ns: u64,
    /// Smoothed duration of client reads on it, in nanoseconds.
    pub read_latency_ns: u64,
    /// How long slow client reads on it take lately, in nanoseconds: the slowest, forgotten over some dozens of reads.
    pub slow_read_ns: u64,
}

/// Ranges written since the last flush that are known apart.
const UNFLUSHED_RANGES_MAX: usize = 16;

impl Volume {
    /// A volume as attached now.
    pub fn new(id: VolumeId, size_bytes: u64, options: VolumeOptions, now_ns: u64) -> Volume {
        Volume {
            id,
            size_bytes,
            options,
            policies: None,
            state: VolumeState::Serving,
            bond: SsdBond::Needed,
            attached_ns: now_ns,
            stats: VolumeStats::default(),
            along: Worth::default(),
            heat: RegionHeat::new(size_bytes, now_ns),
            cached_blocks: 0,
            ram_blocks: 0,
            quick_reads: 0,
            stored_group: 0,
            note_group: 0,
            awaited: Awaited::default(),
            backing: Backing::default(),
        }
    }

    /// It is the same volume as this one was: what its clients were told depends on the same groups of the store, and on the same SSD.
    pub fn depends_like(&mut self, before: &Volume) {
        (self.stored_group, self.note_group) = (before.stored_group, before.note_group);
        self.bond = before.bond;
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        self.size_bytes / SECTOR_BYTES
    }
}

impl Backing {
    /// A client I/O has begun.
    pub fn client_began(&mut self) {
        self.client_in_flight += 1;
    }

    /// A client I/O has ended; for reads with how long it took.
    pub fn client_ended(&mut self, now_ns: u64, read_ns: Option<u64>) {
        self.client_in_flight -= 1;
        self.client_ended += 1;
        self.client_last_ns = now_ns;
        if let Some(took_ns) = read_ns {
            // An exponential mean over about eight reads: follows a change within a few of them.
            self.read_latency_ns = self.read_latency_ns - self.read_latency_ns / 8 + took_ns / 8;
            self.slow_read_ns = took_ns.max(self.slow_read_ns - self.slow_read_ns / 32);
        }
    }

    /// How clients use it, for the pace of destage.
    pub fn clients(&self, goal_ns: u64) -> Clients {
        Clients {
            in_flight: self.client_in_flight,
            ended: self.client_ended,
            last_ns: self.client_last_ns,
            slow_read_ns: self.slow_read_ns,
            goal_ns,
        }
    }

    /// Destage's write of the extent has completed (or may have happened in part).
    pub fn note_destage_write(&mut self, extent: ExtentKey) {
        self.written += 1;
        self.unflushed.insert(extent, self.written);
    }

    /// A client's write of the extent has completed (or may have happened in part).
    pub fn note_client_write(&mut self, extent: ExtentKey, fua: bool) {
        self.written += 1;
        if !fua {
            self.owed = self.written;
            self.unflushed.insert(extent, self.written);
        }
    }

    /// The same for a range of extents, written as one.
    pub fn note_range_write(&mut self, extents: Range<ExtentKey>, fua: bool) {
        self.written += 1;
        if fua {
            return;
        }
        if !mutants::active(mutants::LONG_DISCARD_UNFLUSHED) {
            self.owed = self.written;
        }
        let touches = |(other, _): &(Range<ExtentKey>, u64)| other.start <= extents.end && extents.start <= other.end;
        // Neighbours become one, and of too many the last takes the new one in, with all between: a clean block waits for a flush without need.
        let full = self.unflushed_ranges.len() == UNFLUSHED_RANGES_MAX;
        let at = self.unflushed_ranges.iter().position(touches).or_else(|| full.then_some(UNFLUSHED_RANGES_MAX - 1));
        match at {
            Some(at) => {
                let (other, written) = &mut self.unflushed_ranges[at];
                *other = other.start.min(extents.start)..other.end.max(extents.end);
                *written = self.written;
            }
            None => self.unflushed_ranges.push((extents, self.written)),
        }
    }

    /// So many of the writes are durable.
    pub fn writes_are_durable(&mut self, written: u64) {
        self.flushed = self.flushed.max(written);
        let flushed = self.flushed;
        self.unflushed.retain(|_, written| *written > flushed);
        self.unflushed_ranges.retain(|(_, written)| *written > flushed);
    }

    /// Whether everything that was ever written to the extent survives a power cut.
    pub fn is_settled(&self, extent: ExtentKey) -> bool {
        !self.unflushed.contains_key(&extent) && !self.unflushed_ranges.iter().any(|(range, _)| range.contains(&extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_awaited_where_earlier_ones_were_flushed_at_once() {
        let mut awaited = Awaited::default();
        assert!(!awaited.expects(0), "nothing is known at first");
        awaited.written(100, 1_000);
        awaited.flushed(1_000 + FLUSH_FOLLOWS_NS + 1);
        assert!(!awaited.expects(100), "that flush came late: it was not this write's");
        awaited.written(100, 5_000_000);
        awaited.flushed(5_000_000 + FLUSH_FOLLOWS_NS);
        let expected = [(98, false), (99, true), (100, true), (115, true), (116, false), (7, false)];
        for (first_block, expects) in expected {
            assert_eq!(awaited.expects(first_block), expects, "a write that begins in block {first_block}");
        }
        awaited.written(104, 6_000_000);
        awaited.flushed(6_000_100);
        assert!(awaited.expects(104) && !awaited.expects(99), "a journal moves on and is remembered once");
    }

    #[test]
    fn ranges_that_were_written_are_unsettled_until_a_flush_covers_them() {
        let mut backing = Backing::default();
        let extent = |number| ExtentKey(number);
        backing.note_range_write(extent(10)..extent(20), false);
        assert_eq!(backing.owed, backing.written, "a client's flush has to cover it");
        backing.note_range_write(extent(40)..extent(50), true);
        let first = backing.written;
        backing.note_range_write(extent(20)..extent(30), false);
        let settled =
            |backing: &Backing, numbers: &[u64]| numbers.iter().map(|number| backing.is_settled(extent(*number))).collect::<Vec<_>>();
        assert_eq!(settled(&backing, &[9, 10, 29, 30, 45]), [true, false, false, true, true]);
        backing.writes_are_durable(first);
        assert_eq!(settled(&backing, &[10, 20]), [false, false], "what has grown together is flushed together");
        backing.writes_are_durable(backing.written);
        assert!(backing.is_settled(extent(20)) && backing.unflushed_ranges.is_empty());
        // Of any number, none is forgotten.
        (0..100).for_each(|number| backing.note_range_write(extent(1000 + 10 * number)..extent(1001 + 10 * number), false));
        assert_eq!(backing.unflushed_ranges.len(), UNFLUSHED_RANGES_MAX);
        assert!((0..100).all(|number| !backing.is_settled(extent(1000 + 10 * number))));
    }

    #[test]
    fn four_journals_are_remembered_and_the_oldest_gives_way() {
        let mut awaited = Awaited::default();
        let journals = [1000, 2000, 3000, 4000, 5000];
        for end in journals {
            awaited.written(end, end);
            awaited.flushed(end);
        }
        assert_eq!(journals.map(|end| awaited.expects(end)), [false, true, true, true, true]);
    }
}
