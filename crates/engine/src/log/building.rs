//! A group that records are still added to, and one that is complete but not yet handed out.

use format::{GROUP_RECORDS_MAX, Record};
use page::{Page, PageVec};

/// How soon a record must be on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Somebody waits for it to be complete: now.
    Commit,
    /// Somebody waits for it to be durable: as soon as no flush is running (it could not be durable earlier, and others join meanwhile).
    Durable,
    /// Nobody waits, or the wait may be stretched for fuller groups: at this time, unless a group goes earlier anyway.
    By(u64),
}

/// A group in the making, at pages `first_page..` of segment `seq`.
pub struct Building {
    /// Its number.
    pub group: u64,
    /// The segment it lies in.
    pub seq: u64,
    /// Its header's page in the segment.
    pub first_page: u32,
    /// Its records, in order.
    pub records: alloc::vec::Vec<Record>,
    /// Payload of the records that have one, in order.
    pub pages: PageVec,
    pages_max: u32,
    records_max: u32,
    /// The earliest time anyone wants it out.
    pub deadline_ns: u64,
    /// The tail it publishes: as it was when the group was closed, because what the tail's cleaning appended later stands in later
    /// groups, and a crash between them must not find the tail already past it.
    pub tail_seq: u64,
    /// Somebody waits for completion.
    pub commit: bool,
    /// Somebody waits for durability.
    pub durable: bool,
}

impl Building {
    /// An empty group in `pages_left` pages (header included) with room for `records_left` records in the segment's footer.
    pub fn new(group: u64, seq: u64, first_page: u32, pages_left: u32, records_left: u32) -> Building {
        Building {
            group,
            seq,
            first_page,
            records: alloc::vec::Vec::new(),
            pages: PageVec::new(),
            pages_max: pages_left - 1,
            records_max: records_left.min(GROUP_RECORDS_MAX as u32),
            deadline_ns: u64::MAX,
            tail_seq: 0,
            commit: false,
            durable: false,
        }
    }

    /// Whether one more record (with payload or without) fits.
    pub fn fits(&self, with_payload: bool) -> bool {
        (self.records.len() as u32) < self.records_max && (!with_payload || (self.pages.len() as u32) < self.pages_max)
    }

    /// The page in the segment where the next payload will lie.
    pub fn next_page(&self) -> u32 {
        self.first_page + 1 + self.pages.len() as u32
    }

    /// Adds a record.
    pub fn push(&mut self, record: Record, page: Option<Page>, urgency: Urgency) {
        self.records.push(record);
        self.pages.extend(page);
        self.want(urgency);
    }

    /// Somebody wants the group out that soon.
    pub fn want(&mut self, urgency: Urgency) {
        match urgency {
            Urgency::Commit => self.commit = true,
            Urgency::Durable => self.durable = true,
            Urgency::By(time_ns) => self.deadline_ns = self.deadline_ns.min(time_ns),
        }
    }

    /// Pages it takes in the segment, header included.
    pub fn pages_used(&self) -> u32 {
        1 + self.pages.len() as u32
    }
}
