//! Where things lie on the SSD.
//!
//! ```text
//! 0          superblock slot A          512 KiB     its magic number is the first thing on the device
//! 512 KiB    superblock slot B          512 KiB
//! 1 MiB      checkpoint head             16 KiB
//!            checkpoint of shard 0, 1, …            12 bytes a page of log, in 1 MiB chunks
//!            (to a multiple of the segment size)
//!            segments of shard 0, of shard 1, …     segments_per_shard × segment_bytes each
//!            unused rest, less than one segment a shard
//!
//! one segment:  page 0: first group … groups …  | unused |  (overflow of the footer)  |  reserved footer pages
//! ```
//!
//! With slots ([`crate::slots`]) there is no checkpoint area, a shard's part begins with its ring, and all other pages are slots. The segments of
//! the shards take turns ([`Arrangement::Interleaved`]): the end of each shard is at the end of the pool, so that the pool can give room away. What
//! is left unused ([`Layout::with_spare`]) lies behind them. In a pool that was a log before all is where it was, and the ring wherever there was
//! room ([`Arrangement::BehindCheckpoint`]).
//!
//! A *slot* number names a page of a shard's log: physical segment × pages per segment + page in the segment. It is fixed
//! by where the page lies, so it needs no sequence number and fits 32 bits.

use crate::PAGE_BYTES;
use crate::checkpoint::{CHECKPOINT_HEAD_BYTES, CHUNK_BYTES, CHUNK_ENTRIES, chunk_bytes_for};
use crate::footer::{footer_pages_for, footer_records_max};
use types::ShardIndex;

/// Smallest segment: below, headers and footers would take more than an eighth of it.
pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;
/// Largest segment: larger ones gain no throughput and make eviction coarse.
pub const SEGMENT_BYTES_MAX: u32 = 8 << 20;
/// The segment size where the SSD has room for it: large enough for any SSD's best sequential throughput.
pub const SEGMENT_BYTES_DEFAULT: u32 = 2 << 20;
/// A ring shorter than this cannot evict while it writes.
pub const SEGMENTS_PER_SHARD_MIN: u32 = 8;
/// Automatic layouts shrink segments, then drop shards, before a ring gets shorter than this: eviction works in whole
/// segments, and thirty-two of them make its steps 3 % of the cache.
pub const SEGMENTS_PER_SHARD_GOOD: u32 = 32;
/// Segments grow beyond the default size where a ring keeps this many: recovery reads a footer a segment, and on a large SSD most of its
/// time is the count of these reads (16 KiB: 94 µs each, 64 KiB: 156 µs, on one virtual disk at queue depth 1).
pub const SEGMENTS_PER_SHARD_MANY: u32 = 256;
/// Most pages in one shard's log, just below 128 GiB: what an index can name. A larger SSD gets more shards.
pub const SLOTS_PER_SHARD_MAX: u32 = (1 << 25) - 1;
/// Most pages of a log that a superblock may tell of (8 TiB): slot numbers, and counts of plain records, two a page, fit 32 bits. Earlier
/// releases made logs of more than [`SLOTS_PER_SHARD_MAX`] pages, and could not use them.
pub const SLOTS_PER_SHARD_STORED_MAX: u32 = 1 << 31;
/// The largest SSD that a pool can use all of: [`SHARDS_MAX`] logs could have more, which nobody has tried.
pub const SSD_BYTES_MAX: u64 = 16 << 40;
/// Most records for each page of a segment: packed ones are so small that a footer of two records a page does not do. Groups without payload have
/// a hundred a page and their footer needs another; this bound keeps a packed record's place in its segment, and counts, in few bits.
pub const RECORDS_PER_PAGE_MAX: u32 = 32;
/// Slots for each page of a ring. A page has room for what a sweep says of 248: so a fifth of the ring states everything, which a start
/// does behind all that is there, half of it is a round of the sweep, and the rest is for what changes meanwhile.
pub const SLOTS_PER_RING_PAGE: u32 = 48;
/// The same where blocks are to be packed: room to say where two payloads lie in each slot.
pub const PACKED_SLOTS_PER_RING_PAGE: u32 = 16;
/// The shortest ring.
pub const RING_PAGES_MIN: u32 = 32;
/// Most shards in a pool: what the superblock has room for.
pub const SHARDS_MAX: u16 = 256;
/// Room for one copy of the superblock with 1,024 volumes and 256 shards.
pub const SUPERBLOCK_SLOT_BYTES: u64 = 512 << 10;
/// Where the checkpoint area begins, in bytes.
pub const CHECKPOINT_AT_BYTES: u64 = 2 * SUPERBLOCK_SLOT_BYTES;

/// The two places a superblock may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockSlot {
    /// At the very beginning of the device.
    A,
    /// Behind it.
    B,
}

impl SuperblockSlot {
    /// Both.
    pub const ALL: [SuperblockSlot; 2] = [SuperblockSlot::A, SuperblockSlot::B];

    /// Where it lies on the device, in bytes: the same in every layout, so that it can be found without one.
    pub const fn offset_bytes(self) -> u64 {
        match self {
            SuperblockSlot::A => 0,
            SuperblockSlot::B => SUPERBLOCK_SLOT_BYTES,
        }
    }

    /// The other one.
    pub const fn other(self) -> SuperblockSlot {
        match self {
            SuperblockSlot::A => SuperblockSlot::B,
            SuperblockSlot::B => SuperblockSlot::A,
        }
    }
}

/// How the segments of several shards lie. The numbers stand in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u16)]
pub enum Arrangement {
    /// All of a shard, then all of the next one: logs.
    #[default]
    SideBySide = 0,
    /// The first segment of each shard, then the second of each: pools with slots.
    Interleaved = 1,
    /// As [`Arrangement::SideBySide`], of a pool with slots that was a log before: all pages stay where they are, so the first part begins behind
    /// the area of the log's checkpoint, which nothing uses any more.
    BehindCheckpoint = 2,
}

impl Arrangement {
    /// The arrangement of that number, if there is one.
    pub const fn from_u16(number: u16) -> Option<Arrangement> {
        match number {
            0 => Some(Arrangement::SideBySide),
            1 => Some(Arrangement::Interleaved),
            2 => Some(Arrangement::BehindCheckpoint),
            _ => None,
        }
    }
}

/// Why there is no layout for what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The device is too small.
    #[error("the SSD is too small: {needed_bytes} bytes are needed, it has {found_bytes}")]
    TooSmall {
        /// What the smallest pool of this kind takes.
        needed_bytes: u64,
        /// What there is.
        found_bytes: u64,
    },
    /// The device is too large.
    #[error("a pool can use at most {most_bytes} bytes of an SSD, not {found_bytes}")]
    TooLarge {
        /// The most that a pool can use.
        most_bytes: u64,
        /// What there is.
        found_bytes: u64,
    },
    /// Not a power of two within the limits.
    #[error("a segment has a power of two of bytes from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}, not {found_bytes}")]
    SegmentBytes {
        /// What was asked.
        found_bytes: u32,
    },
    /// None, or too many.
    #[error("a pool has 1 to {SHARDS_MAX} shards, not {found}")]
    Shards {
        /// What was asked.
        found: u16,
    },
    /// A stored layout whose ring is too short, or leaves too little room for slots.
    #[error("a ring of {ring_pages} pages does not fit the shard")]
    Ring {
        /// What was found.
        ring_pages: u32,
    },
    /// An arrangement that only pools with slots have.
    #[error("a log is not arranged like that")]
    Arrangement,
    /// A stored layout whose parts do not fit together.
    #[error("{segments_per_shard} segments a shard do not fit the device")]
    Segments {
        /// What was found.
        segments_per_shard: u32,
    },
}

/// Where everything lies; fixed when the pool is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Logs that share the SSD; from 1.
    pub shards: u16,
    /// Size of a segment in bytes: a power of two from 64 KiB to 8 MiB.
    pub segment_bytes: u32,
    /// Segments in each shard's ring; from 8.
    pub segments_per_shard: u32,
    /// Bytes of the SSD that the pool may use, a multiple of 4096. A device that is smaller now was truncated.
    pub ssd_bytes: u64,
    /// 0: blocks are appended to a log of segments. Else blocks lie in slots ([`crate::slots`]), and so many pages of each shard's part are its
    /// ring, from its beginning on or from where the superblock says ([`crate::LogStart::ring_first`]); segments are shelves of slots then.
    pub ring_pages: u32,
    /// How the segments of the shards lie.
    pub arrangement: Arrangement,
}

impl Layout {
    /// The layout that fills `ssd_bytes` with that many shards and that segment size, as far as [`SLOTS_PER_SHARD_MAX`] allows.
    ///
    /// # Errors
    /// [`LayoutError`] says what is needed.
    pub fn plan(ssd_bytes: u64, shards: u16, segment_bytes: u32) -> Result<Layout, LayoutError> {
        let ssd_bytes = ssd_bytes - ssd_bytes % PAGE_BYTES as u64;
        let with = |segments_per_shard| Layout {
            shards,
            segment_bytes,
            segments_per_shard,
            ssd_bytes,
            ring_pages: 0,
            arrangement: Arrangement::SideBySide,
        };
        let smallest = with(SEGMENTS_PER_SHARD_MIN);
        smallest.check_shape()?;
        if smallest.end_bytes() > ssd_bytes {
            return Err(LayoutError::TooSmall { needed_bytes: smallest.end_bytes(), found_bytes: ssd_bytes });
        }
        // The largest ring that fits: `end_bytes` grows with it.
        let (mut fits, mut beyond) = (SEGMENTS_PER_SHARD_MIN, SLOTS_PER_SHARD_MAX / smallest.pages_per_segment() + 1);
        if let Ok(bound) = u32::try_from(ssd_bytes / u64::from(segment_bytes) / u64::from(shards)) {
            beyond = beyond.min(bound + 1);
        }
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if with(middle).end_bytes() <= ssd_bytes { fits = middle } else { beyond = middle }
        }
        Ok(with(fits))
    }

    /// The layout for an SSD of that size if nobody asks for anything special: the default segment size (a
    /// larger one on large SSDs) and `shards_wanted` where rings stay long enough, else smaller segments, else fewer shards. Where so many
    /// shards cannot use all of a large SSD: the smallest multiple of `shards_wanted` that can.
    ///
    /// # Errors
    /// [`LayoutError::TooSmall`] if even the smallest pool does not fit, [`LayoutError::TooLarge`] above [`SSD_BYTES_MAX`];
    /// [`LayoutError::Shards`] for 0 or too many.
    pub fn plan_default(ssd_bytes: u64, shards_wanted: u16) -> Result<Layout, LayoutError> {
        if ssd_bytes > SSD_BYTES_MAX {
            return Err(LayoutError::TooLarge { most_bytes: SSD_BYTES_MAX, found_bytes: ssd_bytes });
        }
        let mut shards = shards_wanted;
        while shards < SHARDS_MAX && Layout::plan(ssd_bytes, shards, SEGMENT_BYTES_MAX).is_ok_and(|layout| layout.is_cut_short()) {
            shards = shards.saturating_add(shards_wanted).min(SHARDS_MAX);
        }
        Layout::plan_longest(ssd_bytes, shards)
    }

    /// The same places for slots: a ring of [`SLOTS_PER_RING_PAGE`] slots a page at the beginning of each shard's part, and no checkpoints.
    pub fn with_slots(self) -> Layout {
        self.with_ring(SLOTS_PER_RING_PAGE)
    }

    /// The same with a longer ring, which says where packed payloads lie, too: several in a slot.
    pub fn with_packed_slots(self) -> Layout {
        self.with_ring(PACKED_SLOTS_PER_RING_PAGE)
    }

    fn with_ring(self, slots_per_page: u32) -> Layout {
        // What checkpoints would take is room for slots.
        let longer = Layout { ring_pages: 1, arrangement: Arrangement::Interleaved, ..self }.filling(self.ssd_bytes);
        Layout { ring_pages: longer.ring_pages_needed(slots_per_page), ..longer }
    }

    /// The same shards and rings with as many slots as fit so many bytes.
    fn filling(self, ssd_bytes: u64) -> Layout {
        let bytes_per_shard = ssd_bytes.saturating_sub(self.segments_at_bytes()) / u64::from(self.shards);
        let segments = (bytes_per_shard / u64::from(self.segment_bytes)).min(u64::from(SLOTS_PER_SHARD_MAX / self.pages_per_segment()));
        Layout { segments_per_shard: segments as u32, ssd_bytes, ..self }
    }

    /// The same pool on less of its SSD, or more of it: what lies before the end of both stays where it is, and as large a part is left unused.
    /// `None` if that cannot be: only shards that all end where the pool ends can be cut, and the ring stays as it is, which may be too short for
    /// more slots, or too long for few. Where a pool that was a log begins follows from its length.
    pub fn resized(&self, ssd_bytes: u64) -> Option<Layout> {
        let ssd_bytes = ssd_bytes - ssd_bytes % PAGE_BYTES as u64;
        let resized = Layout { ssd_bytes, ..self.filling(without_spare(ssd_bytes, self.spare_percent())) };
        let end_together = match self.arrangement {
            Arrangement::Interleaved => true,
            Arrangement::SideBySide => self.shards == 1,
            Arrangement::BehindCheckpoint => false,
        };
        (self.has_slots() && end_together && resized.check().is_ok()).then_some(resized)
    }

    /// What a pool with this layout, a log, has when it is made one with slots: all pages stay where they are, and a ring of that length is one of
    /// blocks stored as they are, or of packed ones.
    pub fn upgraded(self, packed: bool) -> Layout {
        let slots_per_page = if packed { PACKED_SLOTS_PER_RING_PAGE } else { SLOTS_PER_RING_PAGE };
        Layout { ring_pages: self.ring_pages_needed(slots_per_page), arrangement: Arrangement::BehindCheckpoint, ..self }
    }

    /// The same slots on fewer segments: so many percent of the SSD stay unused behind them, as far as [`SEGMENTS_PER_SHARD_MIN`] allows. The ring
    /// becomes shorter by the same part. Not for a log, which leaves nothing unused.
    pub fn with_spare(self, percent: u8) -> Layout {
        if percent == 0 || !self.has_slots() {
            return self;
        }
        let segments_per_shard =
            self.filling(without_spare(self.ssd_bytes, percent)).segments_per_shard.clamp(SEGMENTS_PER_SHARD_MIN, self.segments_per_shard);
        let shorter = u64::from(self.ring_pages) * u64::from(segments_per_shard);
        let ring_pages = shorter.div_ceil(u64::from(self.segments_per_shard)) as u32;
        Layout { segments_per_shard, ring_pages: ring_pages.max(RING_PAGES_MIN), ..self }
    }

    /// How much of the SSD stays unused where slots could be, in percent, rounded down.
    pub fn spare_percent(&self) -> u8 {
        let longer = Layout { segments_per_shard: self.segments_per_shard + 1, ..*self };
        if !self.has_slots() || longer.end_bytes() > self.ssd_bytes {
            return 0;
        }
        let unused_bytes = self.ssd_bytes.saturating_sub(self.end_bytes());
        (u128::from(unused_bytes) * 100 / u128::from(self.ssd_bytes)) as u8
    }

    /// The shortest ring for so many pages.
    const fn ring_pages_needed(&self, slots_per_page: u32) -> u32 {
        let pages = self.slots_per_shard().div_ceil(slots_per_page);
        if pages < RING_PAGES_MIN { RING_PAGES_MIN } else { pages }
    }

    /// Whether blocks lie in slots.
    pub const fn has_slots(&self) -> bool {
        self.ring_pages > 0
    }

    /// Whether its logs could be longer, but for [`SLOTS_PER_SHARD_MAX`].
    fn is_cut_short(&self) -> bool {
        let longer = Layout { segments_per_shard: self.segments_per_shard + 1, ..*self };
        longer.end_bytes() <= self.ssd_bytes
    }

    /// At most so many shards, in rings that are long enough where that can be.
    fn plan_longest(ssd_bytes: u64, mut shards: u16) -> Result<Layout, LayoutError> {
        let enough = |segment_bytes| {
            if segment_bytes > SEGMENT_BYTES_DEFAULT { SEGMENTS_PER_SHARD_MANY } else { SEGMENTS_PER_SHARD_GOOD }
        };
        loop {
            let mut segment_bytes = SEGMENT_BYTES_MAX;
            while segment_bytes >= SEGMENT_BYTES_MIN {
                match Layout::plan(ssd_bytes, shards, segment_bytes) {
                    Ok(layout) if layout.segments_per_shard >= enough(segment_bytes) => return Ok(layout),
                    Ok(_) | Err(LayoutError::TooSmall { .. }) => segment_bytes /= 2,
                    Err(error) => return Err(error),
                }
            }
            if shards == 1 {
                return Layout::plan(ssd_bytes, 1, SEGMENT_BYTES_MIN);
            }
            shards /= 2;
        }
    }

    /// Checks a layout that was read from somewhere: that its parts are within limits and fit `ssd_bytes`.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), LayoutError> {
        self.check_shape()?;
        let segments = self.segments_per_shard;
        if segments < SEGMENTS_PER_SHARD_MIN
            || u64::from(segments) * u64::from(self.pages_per_segment()) > u64::from(SLOTS_PER_SHARD_STORED_MAX)
        {
            return Err(LayoutError::Segments { segments_per_shard: segments });
        }
        if self.ring_pages > self.slots_per_shard() / 2 || self.has_slots() && self.ring_pages < self.ring_pages_needed(SLOTS_PER_RING_PAGE)
        {
            return Err(LayoutError::Ring { ring_pages: self.ring_pages });
        }
        if !self.has_slots() && self.arrangement != Arrangement::SideBySide {
            return Err(LayoutError::Arrangement);
        }
        if self.end_bytes() > self.ssd_bytes || !self.ssd_bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(LayoutError::TooSmall { needed_bytes: self.end_bytes(), found_bytes: self.ssd_bytes });
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), LayoutError> {
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(LayoutError::Shards { found: self.shards });
        }
        if !self.segment_bytes.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            return Err(LayoutError::SegmentBytes { found_bytes: self.segment_bytes });
        }
        Ok(())
    }

    /// Pages in a segment: 16 to 2048.
    pub const fn pages_per_segment(&self) -> u32 {
        self.segment_bytes / PAGE_BYTES as u32
    }

    /// Pages reserved at the end of a segment for its footer: the fewest that hold two records for each other page, so that
    /// a segment in which every block is first invalidated and then written still fills up.
    ///
    /// 64 KiB segments reserve 1 page of 16, 2 MiB 8 of 512, 8 MiB 32 of 2048.
    pub const fn footer_pages(&self) -> u32 {
        let mut pages = 1;
        while footer_records_max(pages) < 2 * (self.pages_per_segment() - pages) {
            pages += 1;
        }
        pages
    }

    /// Most records a segment may hold, all groups together. A writer closes the segment before a group that would pass it, or for which
    /// and for its records in the footer there are not [`Layout::group_pages_with`] enough pages.
    pub const fn records_max(&self) -> u32 {
        RECORDS_PER_PAGE_MAX * self.pages_per_segment()
    }

    /// Records that the reserved footer pages hold: 120 at 64 KiB, 1016 at 2 MiB, 4088 at 8 MiB.
    pub const fn footer_records_reserved(&self) -> u32 {
        footer_records_max(self.footer_pages())
    }

    /// Pages of a segment that groups may take if its footer has no overflow; the footer stands behind them.
    pub const fn group_pages(&self) -> u32 {
        self.pages_per_segment() - self.footer_pages()
    }

    /// Pages before the reserved ones that a footer with this many records needs besides: one for each begun 128 above
    /// [`Layout::footer_records_reserved`].
    pub const fn footer_overflow_pages(&self, records: u32) -> u32 {
        footer_pages_for(records).saturating_sub(self.footer_pages())
    }

    /// Pages that groups may take in a segment with this many records, all groups together.
    pub const fn group_pages_with(&self, records: u32) -> u32 {
        self.group_pages().saturating_sub(self.footer_overflow_pages(records))
    }

    /// Pages of one shard's log, that is, slot numbers.
    pub const fn slots_per_shard(&self) -> u32 {
        self.segments_per_shard * self.pages_per_segment()
    }

    /// The physical segment in which segment `seq` (from 1) lies.
    pub const fn physical(&self, seq: u64) -> u32 {
        ((seq - 1) % self.segments_per_shard as u64) as u32
    }

    /// Where the checkpoint of a shard begins, in bytes.
    pub const fn checkpoint_offset(&self, shard: ShardIndex) -> u64 {
        CHECKPOINT_AT_BYTES + CHECKPOINT_HEAD_BYTES + shard.0 as u64 * self.checkpoint_bytes_per_shard()
    }

    /// Room for the checkpoint of one shard, in bytes.
    pub const fn checkpoint_bytes_per_shard(&self) -> u64 {
        if self.has_slots() && !matches!(self.arrangement, Arrangement::BehindCheckpoint) {
            return 0;
        }
        let slots = self.segments_per_shard as u64 * self.pages_per_segment() as u64;
        let rest = (slots % CHUNK_ENTRIES as u64) as u32;
        slots / CHUNK_ENTRIES as u64 * CHUNK_BYTES as u64 + if rest == 0 { 0 } else { chunk_bytes_for(rest) as u64 }
    }

    /// Where the first segment begins, in bytes.
    pub const fn segments_at_bytes(&self) -> u64 {
        self.checkpoint_offset(ShardIndex(self.shards)).next_multiple_of(self.segment_bytes as u64)
    }

    /// Where a segment begins, in bytes.
    pub const fn segment_offset(&self, shard: ShardIndex, physical: u32) -> u64 {
        let nth = match self.arrangement {
            Arrangement::SideBySide | Arrangement::BehindCheckpoint => shard.0 as u64 * self.segments_per_shard as u64 + physical as u64,
            Arrangement::Interleaved => physical as u64 * self.shards as u64 + shard.0 as u64,
        };
        self.segments_at_bytes() + nth * self.segment_bytes as u64
    }

    /// Where the head page of a segment's footer lies, in bytes.
    pub const fn footer_offset(&self, shard: ShardIndex, physical: u32) -> u64 {
        self.page_offset(shard, physical, self.group_pages())
    }

    /// Where the bytes of a footer with this many records begin, its overflow pages first, in bytes.
    pub const fn footer_write_offset(&self, shard: ShardIndex, physical: u32, records: u32) -> u64 {
        self.page_offset(shard, physical, self.group_pages_with(records))
    }

    /// Where a page of a segment lies, in bytes.
    pub const fn page_offset(&self, shard: ShardIndex, physical: u32, page: u32) -> u64 {
        self.segment_offset(shard, physical) + page as u64 * PAGE_BYTES as u64
    }

    /// The slot number of a page of a segment.
    pub const fn slot(&self, physical: u32, page: u32) -> u32 {
        physical * self.pages_per_segment() + page
    }

    /// Where the last segment ends, in bytes.
    pub const fn end_bytes(&self) -> u64 {
        self.segments_at_bytes() + self.shards as u64 * self.segments_per_shard as u64 * self.segment_bytes as u64
    }
}

/// What is left of an SSD of which so many percent stay unused.
fn without_spare(ssd_bytes: u64, percent: u8) -> u64 {
    ssd_bytes - (u128::from(ssd_bytes) * u128::from(percent.min(100)) / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(layout: &Layout) {
        layout.check().expect("a planned layout is sound");
        assert!(layout.end_bytes() <= layout.ssd_bytes);
        let rest = layout.ssd_bytes - layout.end_bytes();
        let longer = Layout { segments_per_shard: layout.segments_per_shard + 1, ..*layout };
        let is_longest = longer.slots_per_shard() > SLOTS_PER_SHARD_MAX;
        assert!(longer.end_bytes() > layout.ssd_bytes || is_longest, "{rest} bytes left unused by {layout:?}");
        assert!(layout.segments_at_bytes().is_multiple_of(u64::from(layout.segment_bytes)));
        // A plain segment in which each block is first invalidated and then written fills up without overflow.
        assert_eq!(layout.footer_overflow_pages(2 * layout.group_pages()), 0);
        let reserved = layout.footer_records_reserved();
        assert_eq!((layout.footer_overflow_pages(reserved), layout.footer_overflow_pages(reserved + 1)), (0, 1));
        assert_eq!(layout.footer_overflow_pages(reserved + 129), 2);
        let overflowing = layout.footer_write_offset(ShardIndex(0), 3, reserved + 129);
        assert_eq!(overflowing + 2 * 4096, layout.footer_offset(ShardIndex(0), 3));
        assert_eq!(layout.footer_write_offset(ShardIndex(0), 3, reserved), layout.footer_offset(ShardIndex(0), 3));
        assert!((1..layout.group_pages()).contains(&layout.group_pages_with(layout.records_max())));
        assert!(layout.group_pages() >= 2);
        let (physical, page) = (layout.segments_per_shard - 1, layout.pages_per_segment() - 1);
        assert_eq!(layout.slot(physical, page), layout.slots_per_shard() - 1);
        assert_eq!(layout.page_offset(ShardIndex(0), physical, page) + 4096, layout.segment_offset(ShardIndex(1), 0));
    }

    #[test]
    fn plans_fill_the_device() {
        for shards in [1, 2, 3, 8] {
            let mut segment_bytes = SEGMENT_BYTES_MIN;
            while segment_bytes <= SEGMENT_BYTES_MAX {
                for ssd_bytes in [600u64 << 20, (1 << 30) + 4096, 100_000_000_000, 4 << 40] {
                    check(&Layout::plan(ssd_bytes, shards, segment_bytes).expect("it fits"));
                }
                segment_bytes *= 2;
            }
        }
    }

    #[test]
    fn interleaved_shards_end_together_and_share_nothing() {
        let layout = Layout::plan(64 << 20, 3, 64 << 10).expect("fits").with_packed_slots();
        let segment_bytes = u64::from(layout.segment_bytes);
        let places = |layout: &Layout| -> Vec<u64> {
            let of = |shard| (0..layout.segments_per_shard).map(move |at| (shard, at));
            (0..3).flat_map(of).map(|(shard, at)| layout.segment_offset(ShardIndex(shard), at)).collect()
        };
        let mut all = places(&layout);
        all.sort_unstable();
        let expected = (0..all.len() as u64).map(|nth| layout.segments_at_bytes() + nth * segment_bytes);
        assert!(all.iter().copied().eq(expected) && all.last().is_some_and(|last| last + segment_bytes == layout.end_bytes()));
        // Given to a disk and taken back: what stays is where it was.
        let smaller = layout.resized(40 << 20).expect("it can be cut");
        assert!(smaller.end_bytes() <= 40 << 20 && smaller.end_bytes() + 3 * segment_bytes > 40 << 20, "{smaller:?}");
        for (shard, at) in (0..3).flat_map(|shard| (0..smaller.segments_per_shard).map(move |at| (ShardIndex(shard), at))) {
            assert_eq!(smaller.segment_offset(shard, at), layout.segment_offset(shard, at));
        }
        assert_eq!(smaller.resized(64 << 20), Some(layout));
        // The ring is too long for that, and too short for this.
        assert_eq!((layout.resized(6 << 20), layout.resized(1 << 30)), (None, None));
        assert_eq!(Layout::plan(64 << 20, 3, 64 << 10).expect("fits").resized(40 << 20), None);
    }

    #[test]
    fn defaults_follow_the_size() {
        let small = Layout::plan_default(2 << 20, 4).expect("two megabytes are enough");
        assert_eq!((small.shards, small.segment_bytes), (1, 64 << 10));
        check(&small);
        let middle = Layout::plan_default(64 << 20, 4).expect("fits");
        assert!(middle.segments_per_shard >= SEGMENTS_PER_SHARD_GOOD);
        assert_eq!(middle.shards, 4);
        check(&middle);
        let large = Layout::plan_default(1 << 40, 8).expect("fits");
        assert_eq!((large.shards, large.segment_bytes), (8, SEGMENT_BYTES_MAX));
        check(&large);
        let usual = Layout::plan_default(3 << 30, 4).expect("fits");
        assert_eq!((usual.shards, usual.segment_bytes), (4, SEGMENT_BYTES_DEFAULT));
        check(&usual);
    }

    #[test]
    fn spare_is_a_part_of_the_ssd_that_is_left_unused() {
        for ssd_bytes in [64_u64 << 20, 1 << 30, 100_000_000_000 / 4096 * 4096, 4 << 40] {
            let log = Layout::plan_default(ssd_bytes, 4).expect("fits");
            for whole in [log.with_slots(), log.with_packed_slots()] {
                assert_eq!((whole.with_spare(0), whole.spare_percent()), (whole, 0));
                for percent in [4, 7, 10, 28, 50] {
                    let spared = whole.with_spare(percent);
                    assert_eq!(spared.check(), Ok(()), "{percent} % of {whole:?}");
                    assert!(
                        (percent..percent + 4).contains(&spared.spare_percent()),
                        "{} of {percent} %: {spared:?}",
                        spared.spare_percent()
                    );
                    assert_eq!((spared.ssd_bytes, spared.shards, spared.segment_bytes), (ssd_bytes, whole.shards, whole.segment_bytes));
                    let unused_bytes = ssd_bytes - spared.end_bytes();
                    let wanted_bytes = ssd_bytes / 100 * u64::from(percent);
                    let a_segment_each = u64::from(spared.shards) * u64::from(spared.segment_bytes);
                    assert!(unused_bytes >= wanted_bytes, "{unused_bytes} of {percent} % are unused: {spared:?}");
                    assert!(unused_bytes <= wanted_bytes + a_segment_each + 4096 * 100, "{unused_bytes} of {percent} %: {spared:?}");
                    // As many statements for each slot as before.
                    let slots_per_page = |layout: &Layout| layout.slots_per_shard() / layout.ring_pages;
                    assert!(slots_per_page(&spared) <= slots_per_page(&whole), "{spared:?}");
                }
            }
            assert_eq!(log.with_spare(10), log, "a log");
        }
        // Given to a disk and taken back.
        let spared = Layout::plan_default(1 << 30, 1).expect("fits").with_slots().with_spare(20);
        let smaller = spared.resized(512 << 20).expect("it can be cut");
        assert_eq!((spared.spare_percent(), smaller.spare_percent()), (20, 20));
        assert_eq!(smaller.resized(1 << 30), Some(spared));
        let smallest = Layout::plan_default(2 << 20, 1).expect("fits").with_slots();
        assert_eq!(smallest.with_spare(50).check(), Ok(()));
    }

    #[test]
    fn large_ssds_get_shards_that_an_index_can_name_on_any_machine() {
        let shards_of = |ssd_bytes, wanted| {
            let layout = Layout::plan_default(ssd_bytes, wanted).expect("fits");
            assert!(layout.slots_per_shard() <= SLOTS_PER_SHARD_MAX, "{layout:?}");
            check(&layout);
            layout.shards
        };
        let (gib, tib) = (1_u64 << 30, 1_u64 << 40);
        assert_eq!((shards_of(100 * gib, 1), shards_of(128 * gib, 1), shards_of(256 * gib, 2)), (1, 1, 2));
        assert_eq!((shards_of(257 * gib, 2), shards_of(tib, 2), shards_of(tib, 32)), (4, 8, 32));
        assert_eq!((shards_of(8 * tib, 2), shards_of(8 * tib, 3), shards_of(8 * tib, 48)), (64, 66, 96));
        for wanted in [1, 2, 3, 7, 32, 100, SHARDS_MAX] {
            assert!(shards_of(16 * tib, wanted) >= 128);
        }
        let error = Layout::plan_default(16 * tib + 1, 2).expect_err("nobody has tried");
        assert_eq!(error, LayoutError::TooLarge { most_bytes: 16 * tib, found_bytes: 16 * tib + 1 });
        // As earlier releases made them.
        let before = Layout {
            shards: 2,
            segment_bytes: SEGMENT_BYTES_MAX,
            segments_per_shard: 16_384,
            ssd_bytes: 300 * gib,
            ring_pages: 0,
            arrangement: Arrangement::SideBySide,
        };
        assert_eq!(before.check(), Ok(()));
    }

    #[test]
    fn an_upgraded_log_has_its_pages_where_they_were() {
        for (ssd_bytes, shards) in [(2_u64 << 20, 1), (64 << 20, 3), (3 << 30, 4), (1 << 40, 8)] {
            let log = Layout::plan_default(ssd_bytes, shards).expect("fits");
            for packed in [false, true] {
                let upgraded = log.upgraded(packed);
                assert_eq!(upgraded.check(), Ok(()), "{upgraded:?}");
                let last = ShardIndex(log.shards - 1);
                assert_eq!(upgraded.page_offset(last, 7, 3), log.page_offset(last, 7, 3));
                assert_eq!(upgraded.end_bytes(), log.end_bytes());
                assert!(log.with_slots().segments_at_bytes() <= log.segments_at_bytes(), "a new pool has no area of a checkpoint");
            }
            let twisted = Layout { arrangement: Arrangement::BehindCheckpoint, ..log };
            assert_eq!(twisted.check(), Err(LayoutError::Arrangement));
        }
        assert!((0..9).all(|number| Arrangement::from_u16(number).is_none_or(|arrangement| arrangement as u16 == number)));
    }

    #[test]
    fn errors_say_what_is_needed() {
        let error = Layout::plan_default(1 << 20, 4).expect_err("too small");
        let LayoutError::TooSmall { needed_bytes, found_bytes } = error else { panic!("{error}") };
        assert_eq!(found_bytes, 1 << 20);
        assert!(Layout::plan_default(needed_bytes, 4).is_ok() && Layout::plan_default(needed_bytes - 4096, 4).is_err());
        assert!(matches!(Layout::plan(1 << 30, 0, 1 << 20), Err(LayoutError::Shards { found: 0 })));
        assert!(matches!(Layout::plan(1 << 30, 1, 3 << 20), Err(LayoutError::SegmentBytes { .. })));
        assert!(matches!(Layout::plan(1 << 30, 1, 16 << 20), Err(LayoutError::SegmentBytes { .. })));
        assert!(matches!(Layout::plan(0, 1, 1 << 20), Err(LayoutError::TooSmall { found_bytes: 0, .. })));
    }
}
