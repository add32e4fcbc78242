//! The ring of segments: where the head writes, what the tail has passed, who still reads where.

use crate::mutants;
use crate::store::{Readers, RegionId};
use format::Layout;
use format::checkpoint::LogEnd;

/// See the module. Segment `seq` lies at physical place `(seq - 1) % segments`.
#[derive(Debug)]
pub struct Space {
    segments: u64,
    /// Pages of a segment that groups may use: all but the footer's reserve.
    data_pages: u32,
    /// Records for which the footer's reserve is enough.
    records_reserved: u32,
    layout: Layout,
    head_seq: u64,
    /// First page of the head segment that no closed group uses; `data_pages` when the segment is sealed.
    head_page: u32,
    head_records: u32,
    tail_seq: u64,
    tail_durable: u64,
}

impl Space {
    /// The ring as recovery (or format) left it. The segment before `next_seq` counts as sealed; the next append opens a new one.
    pub fn new(layout: &Layout, start: LogEnd) -> Space {
        Space {
            segments: u64::from(layout.segments_per_shard),
            data_pages: layout.group_pages(),
            records_reserved: layout.footer_records_reserved(),
            layout: *layout,
            head_seq: start.next_seq - 1,
            head_page: layout.group_pages(),
            head_records: 0,
            tail_seq: start.tail_seq,
            tail_durable: start.tail_seq,
        }
    }

    /// The segment being filled (or sealed last).
    pub fn head_seq(&self) -> u64 {
        self.head_seq
    }

    /// First page of the head segment that is not spoken for.
    pub fn head_page(&self) -> u32 {
        self.head_page
    }

    /// The oldest live segment, as the next group will say.
    pub fn tail_seq(&self) -> u64 {
        self.tail_seq
    }

    /// The oldest live segment, as a power cut would leave it.
    pub fn tail_durable(&self) -> u64 {
        self.tail_durable
    }

    /// Segments in the ring.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Pages of a segment that groups may use while its footer needs no more than its reserve.
    pub fn data_pages(&self) -> u32 {
        self.data_pages
    }

    /// Physical place of a segment.
    pub fn physical(&self, seq: u64) -> u32 {
        ((seq - 1) % self.segments) as u32
    }

    /// The live segment that lies at a physical place: the newest number up to the head's that maps to it.
    pub fn seq_at(&self, physical: u32) -> u64 {
        let head_physical = u64::from(self.physical(self.head_seq.max(1)));
        let behind = (head_physical + self.segments - u64::from(physical)) % self.segments;
        self.head_seq.max(1).saturating_sub(behind)
    }

    /// Segments that could be opened one after the other now, the head segment not counted.
    pub fn free_segments(&self) -> u64 {
        if mutants::active(mutants::HEAD_OVER_TAIL) {
            return (self.tail_durable + self.segments + 2).saturating_sub(self.head_seq);
        }
        self.tail_durable + self.segments - 1 - self.head_seq
    }

    /// How many of them nobody reads any more, in order: a read that hangs in a retired segment keeps it and all behind it closed.
    pub fn openable_segments(&self, readers: &Readers) -> u64 {
        let closed = |ahead: &u64| (self.head_seq + ahead).checked_sub(self.segments).is_some_and(|seq| readers.reads(RegionId(seq)));
        (1..=self.free_segments()).find(closed).map_or(self.free_segments(), |ahead| ahead - 1)
    }

    /// Whether the segment belongs to the log: it is not free, and not history.
    pub fn is_live(&self, seq: u64) -> bool {
        (self.tail_durable..=self.head_seq).contains(&seq)
    }

    /// Segments from the tail to the head.
    pub fn live_segments(&self) -> u64 {
        self.head_seq + 1 - self.tail_seq
    }

    /// Pages left in the head segment for groups of together `records_after` records, headers included: the more records a segment has,
    /// the more pages its footer takes.
    pub fn pages_left(&self, records_after: u32) -> u32 {
        let records = self.head_records + records_after;
        // Asked for each record, and in a log without packed ones nearly always answered by this.
        let pages = if records <= self.records_reserved { self.data_pages } else { self.layout.group_pages_with(records) };
        pages.saturating_sub(self.head_page)
    }

    /// Records that the head segment may still get, as far as their count goes.
    pub fn records_left(&self) -> u32 {
        self.layout.records_max() - self.head_records
    }

    /// Takes pages and records of a closed group out of the head segment.
    pub fn take(&mut self, pages: u32, records: u32) {
        assert!(records <= self.records_left() && pages <= self.pages_left(records), "a group fits its segment");
        self.head_page += pages;
        self.head_records += records;
    }

    /// Whether the next segment may be opened: a durable group has retired what lies there and nobody reads it.
    pub fn can_open_next(&self, readers: &Readers) -> bool {
        let retired = (self.head_seq + 1).checked_sub(self.segments);
        self.free_segments() > 0 && retired.is_none_or(|seq| mutants::active(mutants::WRITTEN_WHILE_READ) || !readers.reads(RegionId(seq)))
    }

    /// Opens the next segment; gives its number.
    pub fn open_next(&mut self, readers: &Readers) -> u64 {
        assert!(self.can_open_next(readers), "segment {} is still in use", self.head_seq + 1);
        self.head_seq += 1;
        self.head_page = 0;
        self.head_records = 0;
        self.head_seq
    }

    /// Moves the tail past the oldest segment. Takes effect for reuse when a group that says so is durable.
    pub fn retire_tail(&mut self) {
        assert!(self.tail_seq < self.head_seq, "the head segment is never retired");
        self.tail_seq += 1;
    }

    /// A durable group says that the tail is at `seq`.
    pub fn tail_is_durable(&mut self, seq: u64) {
        assert!(self.tail_durable <= seq && seq <= self.tail_seq, "the durable tail follows the tail");
        self.tail_durable = seq;
    }
}
