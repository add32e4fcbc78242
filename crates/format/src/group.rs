//! A group: one header page with a table of records, then their payloads. Each group is one write.
//!
//! ```text
//!    0 magic "HRTHGRP1"      8 crc32c of bytes 12..4096     12 version u32
//!   16 pool uuid            32 session u64                  40 segment seq u64
//!   48 group u64            56 tail seq u64                 64 durable group u64
//!   72 shard u16            74 record count u16             76 page u32       80 zero
//!  256 records, 32 bytes each, at most 120; behind them the packed payloads, if there is room for all; zero behind these
//! ```
//!
//! Payloads that are pages follow, then packed ones that have no room in the header page, from a page boundary on.
//!
//! All identity is in the header: pool, shard, session, segment, position and number. A header that was left behind by an
//! earlier lap of the ring, by a tail that recovery discarded, or by another pool differs in at least one of them.

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::packed::{PAGE_UNITS, PLACE_UNIT_BYTES};
use crate::record::{RECORD_BYTES, Record, decode_table};
use crate::{COUNT_MAX, DecodeError, FORMAT_VERSION, GROUP_RECORDS_MAX, PAGE_BYTES};
use alloc::vec::Vec;
use types::ShardIndex;

const MAGIC: &[u8; 8] = b"HRTHGRP1";
/// Where the record table begins in the header page.
const TABLE_AT: usize = 256;

const _: () = assert!(TABLE_AT + GROUP_RECORDS_MAX * RECORD_BYTES == PAGE_BYTES);

/// What a group's header page says besides its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupHead {
    /// The pool.
    pub uuid: [u8; 16],
    /// The session (superblock) that wrote it. Sessions are numbered from 1; each start of the pool is one.
    pub session: u64,
    /// The shard whose log this is.
    pub shard: ShardIndex,
    /// The segment's sequence number in its shard, from 1.
    pub segment_seq: u64,
    /// The group's number in its shard, from 1, consecutive over the whole life of the shard.
    pub group: u64,
    /// Oldest segment that was still live when this group was closed: all that is needed of segments before it stands in this group or
    /// in earlier ones. Never goes back.
    pub tail_seq: u64,
    /// All groups up to and including this one were known to be flushed when this group was written; below `group`.
    pub durable_group: u64,
    /// Where this header page stands, in pages from the start of the segment. 0 for the first group of a segment.
    pub page: u32,
}

impl GroupHead {
    /// Writes the header page; `packed` is the packed payloads, each filled up to a whole unit, if the page holds them ([`GroupHead::holds_packed`]).
    ///
    /// # Panics
    /// If there are more than [`GROUP_RECORDS_MAX`] records, none at all, or the payloads do not stand where [`GroupHead::lay_out`] puts them.
    pub fn encode(&self, records: &[Record], packed: &[u8], into: &mut [u8; PAGE_BYTES]) {
        assert!(!records.is_empty() && records.len() <= GROUP_RECORDS_MAX, "{} records in a group", records.len());
        assert!(self.durable_group < self.group && self.tail_seq <= self.segment_seq, "{self:?}");
        assert!(self.payloads_follow(records), "payloads of {self:?} do not stand in record order");
        assert_eq!(packed.len(), GroupHead::packed_in_header(records).len(), "packed payloads of {self:?}");
        into.fill(0);
        put(into, 0, MAGIC);
        put_u32(into, 12, FORMAT_VERSION);
        put(into, 16, &self.uuid);
        put_u64(into, 32, self.session);
        put_u64(into, 40, self.segment_seq);
        put_u64(into, 48, self.group);
        put_u64(into, 56, self.tail_seq);
        put_u64(into, 64, self.durable_group);
        put_u16(into, 72, self.shard.0);
        put_u16(into, 74, records.len() as u16);
        put_u32(into, 76, self.page);
        for (record, slot) in records.iter().zip(into[TABLE_AT..].chunks_exact_mut(RECORD_BYTES)) {
            record.encode(slot);
        }
        into[GroupHead::packed_in_header(records)].copy_from_slice(packed);
        seal_header(into);
    }

    /// Reads a header page and its records. Whether it is the one that should stand there is the caller's to check.
    ///
    /// # Errors
    /// Says why the page is not a group header that a writer of this version made.
    pub fn decode(page: &[u8; PAGE_BYTES]) -> Result<(GroupHead, Vec<Record>), DecodeError> {
        if !page.starts_with(MAGIC) {
            return Err(DecodeError::Magic);
        }
        #[cfg(feature = "mutants")]
        let unchecked = crate::mutants::active(11);
        #[cfg(not(feature = "mutants"))]
        let unchecked = false;
        if !unchecked && !header_matches(page) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(page, 12);
        if version != FORMAT_VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let head = GroupHead {
            uuid: get_uuid(page, 16),
            session: get_u64(page, 32),
            segment_seq: get_u64(page, 40),
            group: get_u64(page, 48),
            tail_seq: get_u64(page, 56),
            durable_group: get_u64(page, 64),
            shard: ShardIndex(get_u16(page, 72)),
            page: get_u32(page, 76),
        };
        let count = usize::from(get_u16(page, 74));
        if count == 0 || count > GROUP_RECORDS_MAX {
            return Err(DecodeError::Field { field: "record count" });
        }
        if !all_zero(&page[80..TABLE_AT]) {
            return Err(DecodeError::Field { field: "padding" });
        }
        if head.session.max(head.segment_seq).max(head.group) >= COUNT_MAX {
            return Err(DecodeError::Field { field: "count" });
        }
        if head.group == 0 || head.durable_group >= head.group {
            return Err(DecodeError::Field { field: "durable group" });
        }
        if head.tail_seq == 0 || head.tail_seq > head.segment_seq {
            return Err(DecodeError::Field { field: "tail seq" });
        }
        let records = decode_table(&page[TABLE_AT..TABLE_AT + count * RECORD_BYTES], count)?;
        if !all_zero(&page[GroupHead::packed_in_header(&records).end..]) {
            return Err(DecodeError::Field { field: "padding" });
        }
        if !head.payloads_follow(&records) {
            return Err(DecodeError::Field { field: "record place" });
        }
        Ok((head, records))
    }

    /// Pages the group takes with these records, header included.
    pub fn pages(records: &[Record]) -> u32 {
        let packed_pages = if GroupHead::holds_packed(records) { 0 } else { packed_bytes(records).div_ceil(PAGE_BYTES) as u32 };
        1 + page_payloads(records) + packed_pages
    }

    /// Whether the header page itself holds the packed payloads of these records.
    pub fn holds_packed(records: &[Record]) -> bool {
        packed_bytes(records) <= GroupHead::room_beside(records.len())
    }

    /// Where in the header page the packed payloads of these records are; empty if they are not there.
    pub fn packed_in_header(records: &[Record]) -> core::ops::Range<usize> {
        let begin = TABLE_AT + records.len() * RECORD_BYTES;
        begin..begin + if GroupHead::holds_packed(records) { packed_bytes(records) } else { 0 }
    }

    /// Bytes of the header page behind a table of so many records.
    pub const fn room_beside(records: usize) -> usize {
        (PAGE_BYTES - TABLE_AT).saturating_sub(records * RECORD_BYTES)
    }

    /// Where packed payloads begin, in units from the start of the segment.
    fn first_unit(page: u64, records: &[Record]) -> u64 {
        if GroupHead::holds_packed(records) {
            let table_end = TABLE_AT + records.len() * RECORD_BYTES;
            return page * u64::from(PAGE_UNITS) + (table_end / PLACE_UNIT_BYTES as usize) as u64;
        }
        (page + 1 + u64::from(page_payloads(records))) * u64::from(PAGE_UNITS)
    }

    /// Gives all payloads of a group, whose header stands at `page` of its segment, their places: `slot_page` and, of packed records, `place`.
    pub fn lay_out(page: u32, records: &mut [Record]) {
        let mut slot_page = page + 1;
        let mut unit = GroupHead::first_unit(u64::from(page), records) as u32;
        for record in records {
            let is_page = record.has_page_payload();
            record.slot_page = if is_page { slot_page } else { 0 };
            slot_page += u32::from(is_page);
            if let Some(packed) = &mut record.packed {
                let units = packed.units();
                let place = if units > 0 { unit } else { 0 };
                packed.place = if is_page { record.slot_page * PAGE_UNITS } else { place };
                unit += units;
            }
        }
    }

    /// Whether the payloads stand as [`GroupHead::lay_out`] says. The page may be any number.
    fn payloads_follow(&self, records: &[Record]) -> bool {
        let mut slot_page = u64::from(self.page) + 1;
        let mut unit = GroupHead::first_unit(u64::from(self.page), records);
        records.iter().all(|record| {
            if record.has_page_payload() {
                slot_page += 1;
                return u64::from(record.slot_page) == slot_page - 1;
            }
            let place = unit;
            unit += u64::from(record.packed_units());
            place == unit || record.packed.is_some_and(|packed| u64::from(packed.place) == place)
        })
    }
}

/// Bytes of all packed payloads, each filled up to a whole unit.
fn packed_bytes(records: &[Record]) -> usize {
    records.iter().map(|record| record.packed_units() as usize * PLACE_UNIT_BYTES as usize).sum()
}

/// How many payloads are whole pages.
fn page_payloads(records: &[Record]) -> u32 {
    records.iter().filter(|record| record.has_page_payload()).count() as u32
}
