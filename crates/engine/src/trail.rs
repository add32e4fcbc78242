//! What happened lately: the latest requests, by place. Looked at by people who ask why something is or is not cached; nothing is decided by it.
//!
//! A request's extent names a bucket, and in a bucket the newest entry takes the place of the oldest: a busy extent does not push out what is
//! known of quiet ones (but for those few that share its bucket). The table is made once and never grows.

use crate::api::{Op, Outcome};
use crate::key::{ExtentKey, Key};
use crate::mutants;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::ops::Range;
use types::{BLOCK_SECTORS, BypassReason};

/// Buckets: with as many extents in use as that, two in three of them share theirs with another or more.
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKET_BITS: u32 = 11;
/// Requests remembered of each extent, if it has a bucket to itself.
pub const ENTRIES_PER_BUCKET: usize = 8;

/// Entries know the time in units of 2^20 nanoseconds, about a millisecond: a shift instead of a division. It wraps after 52 days.
const TIME_SHIFT: u32 = 20;

/// Upper bits of [`Entry::length`] that say the reason.
const REASON_SHIFT: u32 = 12;
const LENGTH_MASK: u16 = (1 << REASON_SHIFT) - 1;

/// One request, or the part of one in an extent, in 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its first block.
    first: Key,
    /// When it was answered.
    time: u32,
    /// Sectors, at most 2048; 0 of an entry that says nothing. Above them the reason: 0 for none, else one more than its number.
    length: u16,
    /// In its three lowest bits, which sector of its first block is its first.
    start: u8,
    /// See [`kind`].
    kind: u8,
}

const NONE: Entry = Entry { first: Key(0), time: 0, length: 0, start: 0, kind: 0 };

const _: () = assert!(size_of::<Entry>() == 16);
const _: () = assert!(types::EXTENT_SECTORS <= LENGTH_MASK as u64 && BypassReason::ALL.len() < 1 << (16 - REASON_SHIFT));

const OUTCOME_BITS: u32 = 3;
const OPS: [Op; 6] = [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Flush, Op::PunchHole];
const OUTCOMES: [Outcome; 8] = [
    Outcome::RamHit,
    Outcome::SsdHit,
    Outcome::Miss,
    Outcome::Bypass,
    Outcome::WriteBack,
    Outcome::WriteThrough,
    Outcome::Other,
    Outcome::BackingFlush,
];

/// What was asked and how it was served, in a byte.
#[inline]
const fn kind(op: Op, outcome: Outcome) -> u8 {
    (op as u8) << OUTCOME_BITS | outcome as u8
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Happened {
    /// Its first block.
    pub first: Key,
    /// Its first sector; only where in the block that is counts.
    pub start_sector: u64,
    /// How many: 1 to 2048.
    pub sectors: u32,
    /// What was asked.
    pub op: Op,
    /// How it was served.
    pub outcome: Outcome,
    /// Why it went around the cache, or waited.
    pub reason: Option<BypassReason>,
}

/// A request of a while ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recent {
    /// How long ago it was answered, in nanoseconds, to about a millisecond.
    pub ago_ns: u64,
    /// What was asked.
    pub op: Op,
    /// First sector in the volume.
    pub start_sector: u64,
    /// How many sectors.
    pub sectors: u32,
    /// How it was served.
    pub outcome: Outcome,
    /// Why it, or a block of it, bypassed the cache.
    pub reason: Option<BypassReason>,
}

/// Range requests remembered, of all volumes.
const RANGES_MAX: usize = 32;

/// A range request: it would be in the buckets of thousands of extents.
#[derive(Clone, Debug)]
struct RangeEntry {
    keys: Range<Key>,
    time: u32,
    op: Op,
    outcome: Outcome,
}

/// See the module.
pub struct Trail {
    /// Newest first.
    ranges: VecDeque<RangeEntry>,
    entries: Box<[[Entry; ENTRIES_PER_BUCKET]; BUCKETS]>,
    /// By bucket, how many entries it got, modulo 256: says which is the oldest.
    next: Box<[u8; BUCKETS]>,
}

impl Default for Trail {
    fn default() -> Trail {
        let entries = vec![[NONE; ENTRIES_PER_BUCKET]; BUCKETS].into_boxed_slice();
        let next = vec![0; BUCKETS].into_boxed_slice();
        let same = "as many as there are buckets";
        Trail { ranges: VecDeque::new(), entries: entries.try_into().expect(same), next: next.try_into().expect(same) }
    }
}

/// One multiplication spreads neighbouring extents, and those at regular distances, over all buckets (Knuth's multiplicative hash).
#[inline]
const fn bucket_of(extent: ExtentKey) -> usize {
    (extent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKET_BITS)) as usize
}

impl Trail {
    /// Takes note of a request that is answered now.
    #[inline]
    pub fn note(&mut self, now_ns: u64, what: Happened) {
        let Happened { first, start_sector, sectors, op, outcome, reason } = what;
        let bucket = bucket_of(first.extent());
        let next = &mut self.next[bucket];
        let at = usize::from(*next) % ENTRIES_PER_BUCKET;
        if !(mutants::active(mutants::TRAIL_FORGETS) && op == Op::Write) {
            *next = next.wrapping_add(1);
        }
        let reason = reason.map_or(0, |reason| reason as u16 + 1);
        self.entries[bucket][at] = Entry {
            first,
            time: (now_ns >> TIME_SHIFT) as u32,
            length: sectors as u16 | reason << REASON_SHIFT,
            start: start_sector as u8,
            kind: kind(op, outcome),
        };
    }

    /// Takes note of a range request that is answered now.
    pub fn note_range(&mut self, now_ns: u64, keys: Range<Key>, op: Op, outcome: Outcome) {
        self.ranges.truncate(RANGES_MAX - 1);
        self.ranges.push_front(RangeEntry { keys, time: (now_ns >> TIME_SHIFT) as u32, op, outcome });
    }

    /// The latest range requests that touched any of these blocks, newest first.
    pub fn recent_ranges(&self, now_ns: u64, keys: Range<Key>) -> impl Iterator<Item = Recent> + '_ {
        let touches = move |entry: &&RangeEntry| entry.keys.start < keys.end && keys.start < entry.keys.end;
        self.ranges.iter().filter(touches).map(move |RangeEntry { keys, time, op, outcome }| Recent {
            ago_ns: u64::from(((now_ns >> TIME_SHIFT) as u32).wrapping_sub(*time)) << TIME_SHIFT,
            op: *op,
            start_sector: keys.start.start_sector(),
            sectors: ((keys.end.0 - keys.start.0) * BLOCK_SECTORS) as u32,
            outcome: *outcome,
            reason: None,
        })
    }

    /// What the latest request for this block was served with, or was to bring, has been turned away from the cache.
    pub fn turned_away(&mut self, key: Key, reason: BypassReason) {
        let bucket = bucket_of(key.extent());
        let newest = self.newest_first(key.extent()).find(|(_, entry)| entry.covers(key));
        if let Some((at, _)) = newest.filter(|(_, entry)| entry.length >> REASON_SHIFT == 0) {
            self.entries[bucket][at].length |= (reason as u16 + 1) << REASON_SHIFT;
        }
    }

    /// The latest requests in the extent, newest first, at most [`ENTRIES_PER_BUCKET`].
    pub fn recent(&self, now_ns: u64, extent: ExtentKey) -> impl Iterator<Item = Recent> + '_ {
        self.newest_first(extent).map(move |(_, entry)| entry.told(now_ns))
    }

    /// Forgets the volume: its place may be given to another.
    pub fn forget_volume(&mut self, volume: types::VolumeIndex) {
        self.ranges.retain(|entry| entry.keys.start.volume() != volume);
        for entry in self.entries.iter_mut().flatten().filter(|entry| entry.first.volume() == volume) {
            *entry = NONE;
        }
    }

    /// Entries of the extent with their places in its bucket.
    fn newest_first(&self, extent: ExtentKey) -> impl Iterator<Item = (usize, &Entry)> + '_ {
        let bucket = bucket_of(extent);
        let next = usize::from(self.next[bucket]);
        let places = (1..=ENTRIES_PER_BUCKET).map(move |back| (next + ENTRIES_PER_BUCKET - back) % ENTRIES_PER_BUCKET);
        let entries = places.map(move |at| (at, &self.entries[bucket][at]));
        entries.filter(move |(_, entry)| entry.length != 0 && entry.first.extent() == extent)
    }
}

impl Entry {
    fn sectors(&self) -> u32 {
        u32::from(self.length & LENGTH_MASK)
    }

    fn start_sector(&self) -> u64 {
        self.first.start_sector() + u64::from(self.start) % BLOCK_SECTORS
    }

    /// Whether it touched the block, which lies in its extent.
    fn covers(&self, key: Key) -> bool {
        let (start, block) = (self.start_sector(), key.start_sector());
        start < block + BLOCK_SECTORS && block < start + u64::from(self.sectors())
    }

    fn told(&self, now_ns: u64) -> Recent {
        let ago = ((now_ns >> TIME_SHIFT) as u32).wrapping_sub(self.time);
        let reason = usize::from(self.length >> REASON_SHIFT);
        Recent {
            ago_ns: u64::from(ago) << TIME_SHIFT,
            op: OPS[usize::from(self.kind >> OUTCOME_BITS)],
            start_sector: self.start_sector(),
            sectors: self.sectors(),
            outcome: OUTCOMES[usize::from(self.kind) % (1 << OUTCOME_BITS)],
            reason: reason.checked_sub(1).map(|reason| BypassReason::ALL[reason]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use types::{EXTENT_BLOCKS, VolumeIndex};

    const MS: u64 = 1_000_000;

    fn read(volume: u16, block: u64, sectors: u32) -> Happened {
        let first = Key::new(VolumeIndex(volume), block);
        Happened { first, start_sector: first.start_sector(), sectors, op: Op::Read, outcome: Outcome::Miss, reason: None }
    }

    fn recent(trail: &Trail, now_ns: u64, volume: u16, block: u64) -> Vec<Recent> {
        trail.recent(now_ns, Key::new(VolumeIndex(volume), block).extent()).collect()
    }

    #[test]
    fn all_that_was_noted_is_told() {
        let mut trail = Trail::default();
        let first = Key::new(VolumeIndex(1023), (1 << 34) - 256);
        for op in OPS {
            for outcome in OUTCOMES {
                for reason in core::iter::once(None).chain(BypassReason::ALL.map(Some)) {
                    let start_sector = first.start_sector() + 3;
                    trail.note(5 * MS, Happened { first, start_sector, sectors: 2045, op, outcome, reason });
                    let told = trail.recent(5 * MS, first.extent()).next().expect("it was noted");
                    assert_eq!(told, Recent { ago_ns: 0, op, start_sector, sectors: 2045, outcome, reason });
                }
            }
        }
    }

    #[test]
    fn a_busy_extent_does_not_push_out_a_quiet_one() {
        let mut trail = Trail::default();
        trail.note(MS, read(3, 77 * EXTENT_BLOCKS, 8));
        for step in 0..100_000 {
            trail.note((2 + step) * MS, read(3, 78 * EXTENT_BLOCKS + step % EXTENT_BLOCKS, 8));
        }
        assert_eq!(recent(&trail, 2000 * MS, 3, 77 * EXTENT_BLOCKS).len(), 1);
        let busy = recent(&trail, 100_002 * MS, 3, 78 * EXTENT_BLOCKS);
        assert_eq!(busy.len(), ENTRIES_PER_BUCKET);
        assert!(busy.is_sorted_by_key(|entry| entry.ago_ns) && busy[0].ago_ns <= 2 * MS, "{busy:?}");
        assert!(recent(&trail, 0, 2, 77 * EXTENT_BLOCKS).is_empty(), "another volume's");
    }

    #[test]
    fn neighbours_and_strides_are_spread() {
        for stride in [1, 2, 16, 1024, 4096, 1 << 20] {
            let mut used = vec![0_u32; BUCKETS];
            (0..BUCKETS as u64).for_each(|at| used[bucket_of(ExtentKey((5 << 26) + at * stride))] += 1);
            let (busy, most) = (used.iter().filter(|count| **count > 0).count(), used.iter().max().copied().unwrap_or(0));
            assert!(busy > BUCKETS / 2 && most <= 8, "stride {stride}: {busy} buckets, {most} in one");
        }
    }

    #[test]
    fn a_reason_goes_to_the_newest_request_of_the_block() {
        let mut trail = Trail::default();
        trail.note(MS, read(0, 10, 8));
        trail.note(2 * MS, read(0, 8, 32));
        trail.note(3 * MS, read(0, 30, 8));
        trail.turned_away(Key::new(VolumeIndex(0), 10), BypassReason::FirstTouch);
        trail.turned_away(Key::new(VolumeIndex(0), 11), BypassReason::NoSpace);
        trail.turned_away(Key::new(VolumeIndex(0), 12), BypassReason::NoSpace);
        let reasons: Vec<_> = recent(&trail, 3 * MS, 0, 0).iter().map(|entry| entry.reason).collect();
        assert_eq!(reasons, [None, Some(BypassReason::FirstTouch), None]);
    }

    #[test]
    fn a_volume_that_goes_is_forgotten() {
        let mut trail = Trail::default();
        for volume in 0..2 {
            (0..3000).for_each(|extent| trail.note(MS, read(volume, extent * EXTENT_BLOCKS, 8)));
        }
        trail.forget_volume(VolumeIndex(0));
        assert!((0..3000).all(|extent| recent(&trail, MS, 0, extent * EXTENT_BLOCKS).is_empty()));
        assert!((0..3000).any(|extent| !recent(&trail, MS, 1, extent * EXTENT_BLOCKS).is_empty()));
    }

    #[test]
    fn time_wraps() {
        let mut trail = Trail::default();
        let late_ns = u64::from(u32::MAX) << TIME_SHIFT;
        trail.note(late_ns, read(0, 0, 8));
        assert_eq!(recent(&trail, late_ns + (5 << TIME_SHIFT), 0, 0)[0].ago_ns, 5 << TIME_SHIFT);
    }
}
