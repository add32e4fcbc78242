//! A group: one header page with a table of records, then their payloads. Each group is one write.
//!
//! ```text
//!    0 magic "HRTHGRP1"      8 crc32c of bytes 12..4096     12 version u32
//!   16 pool uuid            32 session u64                  40 segment seq u64
//!   48 group u64            56 tail seq u64                 64 durable group u64
//!   72 shard u16            74 record count u16             76 page u32       80 zero
//!  256 records, 32 bytes each, at most 120; behind them the packed payloads, or zero
//! ```
//!
//! Where a group has no payloads that are pages, the packed ones begin behind the table and go on in the pages that follow, and so they do where the header
//! page holds them all. Else pages come first, then packed payloads from a page boundary on. (A writer of version 1 began them behind the table only
//! where the header page held them all.) Places stand in the records: a reader sees by the first which it is.
//!
//! All identity is in the header: pool, shard, session, segment, position and number. A header that was left behind by an
//! earlier lap of the ring, by a tail that recovery discarded, or by another pool differs in at least one of them.

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::packed::{PAGE_UNITS, PLACE_UNIT_BYTES};
use crate::record::{RECORD_BYTES, Record, decode_table};
use crate::{COUNT_MAX, DecodeError, FORMAT_VERSION, GROUP_RECORDS_MAX, PAGE_BYTES, is_read};
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
    /// Writes the header page; `packed` is what of the packed payloads, each filled up to a whole unit, stands in it ([`GroupHead::packed_in_header`]).
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
        let unchecked = mistakes::active(mistakes::HEADERS_UNCHECKED);
        if !unchecked && !header_matches(page) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(page, 12);
        if !is_read(version) {
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
        let records = decode_table(&page[TABLE_AT..TABLE_AT + count * RECORD_BYTES], count, version)?;
        if !all_zero(&page[GroupHead::packed_in_header(&records).end..]) {
            return Err(DecodeError::Field { field: "padding" });
        }
        if !head.payloads_follow(&records) {
            return Err(DecodeError::Field { field: "record place" });
        }
        Ok((head, records))
    }

    /// Pages that a group takes with these records, which have their places, header included.
    pub fn pages(records: &[Record]) -> u32 {
        let (pages, packed_bytes) = (page_payloads(records), packed_bytes(records));
        pages_of(GroupHead::packed_begin_in_header(records), records.len(), pages, packed_bytes)
    }

    /// Pages that a writer's group takes with so many records, so many of them with a page, and so many bytes of packed payloads, header included.
    pub const fn pages_for(records: usize, page_payloads: u32, packed_bytes: usize) -> u32 {
        pages_of(packs_into_header(records, page_payloads, packed_bytes), records, page_payloads, packed_bytes)
    }

    /// Where in the header page packed payloads of these records are, which have their places; empty if they are not there.
    pub fn packed_in_header(records: &[Record]) -> core::ops::Range<usize> {
        let begin = table_end(records.len());
        let bytes = if GroupHead::packed_begin_in_header(records) { packed_bytes(records) } else { 0 };
        begin..(begin + bytes).min(PAGE_BYTES)
    }

    /// Whether the packed payloads begin in the header page, by the place of the first. Elsewhere they begin with a page; behind a full table that is the same.
    fn packed_begin_in_header(records: &[Record]) -> bool {
        let mut places =
            records.iter().filter(|record| record.packed_units() > 0).filter_map(|record| record.packed.map(|packed| packed.place));
        places.next().is_none_or(|place| !place.is_multiple_of(PAGE_UNITS))
    }

    /// Where packed payloads begin, in units from the start of the segment.
    fn first_unit(page: u64, in_header: bool, records: &[Record]) -> u64 {
        let (page, units) = if in_header {
            (page, table_end(records.len()) as u64 / u64::from(PLACE_UNIT_BYTES))
        } else {
            (page + 1 + u64::from(page_payloads(records)), 0)
        };
        page * u64::from(PAGE_UNITS) + units
    }

    /// Gives all payloads of a group, whose header stands at `page` of its segment, their places: `slot_page` and, of packed records, `place`.
    pub fn lay_out(page: u32, records: &mut [Record]) {
        let in_header = packs_into_header(records.len(), page_payloads(records), packed_bytes(records));
        let mut slot_page = page + 1;
        let mut unit = GroupHead::first_unit(u64::from(page), in_header, records) as u32;
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

    /// Whether the payloads stand one behind the other from where they may begin. The page may be any number.
    fn payloads_follow(&self, records: &[Record]) -> bool {
        let in_header = GroupHead::packed_begin_in_header(records);
        let overlap = in_header && !packs_into_header(records.len(), page_payloads(records), packed_bytes(records));
        let mut slot_page = u64::from(self.page) + 1;
        let mut unit = GroupHead::first_unit(u64::from(self.page), in_header, records);
        !overlap
            && records.iter().all(|record| {
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

/// Where the table of so many records ends in the header page.
const fn table_end(records: usize) -> usize {
    TABLE_AT + records * RECORD_BYTES
}

/// Whether a writer puts packed payloads behind the table: they must not run into pages that follow it.
const fn packs_into_header(records: usize, page_payloads: u32, packed_bytes: usize) -> bool {
    page_payloads == 0 || table_end(records) + packed_bytes <= PAGE_BYTES
}

const fn pages_of(in_header: bool, records: usize, page_payloads: u32, packed_bytes: usize) -> u32 {
    let behind = if in_header { (table_end(records) + packed_bytes).saturating_sub(PAGE_BYTES) } else { packed_bytes };
    1 + page_payloads + behind.div_ceil(PAGE_BYTES) as u32
}

/// Bytes of all packed payloads, each filled up to a whole unit.
fn packed_bytes(records: &[Record]) -> usize {
    records.iter().map(|record| record.packed_units() as usize * PLACE_UNIT_BYTES as usize).sum()
}

/// How many payloads are whole pages.
fn page_payloads(records: &[Record]) -> u32 {
    records.iter().filter(|record| record.has_page_payload()).count() as u32
}
