//! A group that records are still added to, and one that is complete but not yet handed out.

use super::{PackedPayload, Space, Urgency};
use alloc::vec::Vec;
use format::packed::PLACE_UNIT_BYTES;
use format::{GROUP_RECORDS_MAX, GroupHead, Record};
use page::{Page, PageVec};

/// What a record takes in a group.
#[derive(Clone, Copy)]
pub struct Need {
    /// Places in the table.
    records: u32,
    /// Pages of its own.
    pub pages: u32,
    /// Bytes of pages it shares.
    pub packed_bytes: u32,
}

impl Need {
    /// Of a record without payload.
    pub const RECORD: Need = Need { records: 1, pages: 0, packed_bytes: 0 };
    /// Nothing more.
    const NOTHING: Need = Need { records: 0, pages: 0, packed_bytes: 0 };
    /// Of a block stored as a page.
    pub const PAGE: Need = Need { records: 1, pages: 1, packed_bytes: 0 };

    /// Of so many records, each a page or packed. One page more: pages push packed payloads out of the header page.
    pub const fn pages(records: u32) -> Need {
        Need { records, pages: records + 1, packed_bytes: 0 }
    }

    /// Of a packed record.
    pub const fn packed(pages: u32, packed_bytes: u32) -> Need {
        Need { records: 1, pages, packed_bytes }
    }
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
    /// Payloads that share pages, in order, each from a multiple of [`PLACE_UNIT_BYTES`] on.
    pub packed: Vec<u8>,
    /// Which packed record of its segment the group's first one is.
    pub first_ordinal: u32,
    /// Packed records in it.
    pub packed_records: u32,
    /// The earliest time anyone wants it out.
    pub deadline_ns: u64,
    /// The tail it publishes: as it was when the group was closed, because what the tail's cleaning appended later stands in later
    /// groups, and a crash between them must not find the tail already past it.
    pub tail_seq: u64,
    /// A client waits for completion.
    pub commit: bool,
    /// A client waits for completion, and for no longer than another group is under way.
    pub share: bool,
    /// Somebody waits for durability.
    pub durable: bool,
}

impl Building {
    /// An empty group, its header at `first_page` of segment `seq`.
    pub fn new(group: u64, seq: u64, first_page: u32, first_ordinal: u32) -> Building {
        Building {
            group,
            seq,
            first_page,
            records: alloc::vec::Vec::new(),
            pages: PageVec::new(),
            packed: Vec::new(),
            first_ordinal,
            packed_records: 0,
            deadline_ns: u64::MAX,
            tail_seq: 0,
            commit: false,
            share: false,
            durable: false,
        }
    }

    /// Whether that fits, too, in the group and in what is left of its segment.
    pub fn fits(&self, need: Need, space: &Space) -> bool {
        let records = self.records.len() as u32 + need.records;
        let in_table = records <= space.records_left().min(GROUP_RECORDS_MAX as u32);
        in_table && self.pages_used_with(need) <= space.pages_left(records)
    }

    /// Whether one more record of any kind fits.
    pub fn fits_any(&self, space: &Space) -> bool {
        // A page pushes packed payloads out of the header page.
        self.fits(Need::PAGE, space) && (self.packed.is_empty() || self.fits(Need::packed(0, types::BLOCK_BYTES as u32), space))
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
            Urgency::Share => self.share = true,
            Urgency::Durable => self.durable = true,
            Urgency::By(time_ns) => self.deadline_ns = self.deadline_ns.min(time_ns),
        }
    }

    /// Adds a packed record; gives which one of its segment it is.
    pub fn push_packed(&mut self, mut record: Record, payload: &PackedPayload, urgency: Urgency) -> u32 {
        let ordinal = self.first_ordinal + self.packed_records;
        self.packed_records += 1;
        if record.has_page_payload() {
            record.slot_page = self.next_page();
            self.pages.push(payload.page.clone().expect("a block stored as a page has one"));
        } else if record.has_packed_payload() {
            self.packed.extend_from_slice(&payload.bytes);
            self.packed.resize(self.packed.len().next_multiple_of(PLACE_UNIT_BYTES as usize), 0);
        }
        self.records.push(record);
        self.want(urgency);
        ordinal
    }

    /// The group gets no more records: gives packed payloads their places.
    pub fn place_packed(&mut self) {
        GroupHead::lay_out(self.first_page, &mut self.records);
    }

    /// Whether the header page holds all of it, and would hold more.
    pub fn is_small(&self) -> bool {
        self.packed_records > 0 && self.pages_used() == 1
    }

    /// What of the packed payloads stands in the header page. They have their places.
    pub fn packed_in_header(&self) -> &[u8] {
        &self.packed[..GroupHead::packed_in_header(&self.records).len()]
    }

    /// The rest of them, in pages of their own behind all others.
    pub fn packed_behind_pages(&self) -> &[u8] {
        &self.packed[GroupHead::packed_in_header(&self.records).len()..]
    }

    /// Pages it takes in the segment, header included.
    pub fn pages_used(&self) -> u32 {
        self.pages_used_with(Need::NOTHING)
    }

    fn pages_used_with(&self, need: Need) -> u32 {
        let packed_bytes = self.packed.len() + need.packed_bytes as usize;
        GroupHead::pages_for(self.records.len() + need.records as usize, self.pages.len() as u32 + need.pages, packed_bytes)
    }
}
