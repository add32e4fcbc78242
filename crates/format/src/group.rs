//! A group: one header page with a table of records, then their payload pages. Each group is one write.
//!
//! ```text
//!    0 magic "HRTHGRP1"      8 crc32c of bytes 12..4096     12 version u32
//!   16 pool uuid            32 session u64                  40 segment seq u64
//!   48 group u64            56 tail seq u64                 64 durable group u64
//!   72 shard u16            74 record count u16             76 page u32       80 zero
//!  256 records, 32 bytes each, at most 120; zero behind them
//! ```
//!
//! All identity is in the header: pool, shard, session, segment, position and number. A header that was left behind by an
//! earlier lap of the ring, by a tail that recovery discarded, or by another pool differs in at least one of them.

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
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
    /// Writes the header page.
    ///
    /// # Panics
    /// If there are more than [`GROUP_RECORDS_MAX`] records, none at all, or the payloads' `slot_page`s are not
    /// `page + 1`, `page + 2`, … in record order.
    pub fn encode(&self, records: &[Record], into: &mut [u8; PAGE_BYTES]) {
        assert!(!records.is_empty() && records.len() <= GROUP_RECORDS_MAX, "{} records in a group", records.len());
        assert!(self.durable_group < self.group && self.tail_seq <= self.segment_seq, "{self:?}");
        assert!(self.payloads_follow(records), "payloads of {self:?} do not stand in record order");
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
        let records = decode_table(&page[TABLE_AT..], count)?;
        if !head.payloads_follow(&records) {
            return Err(DecodeError::Field { field: "record place" });
        }
        Ok((head, records))
    }

    /// Pages the group takes with these records, header included.
    pub fn pages(records: &[Record]) -> u32 {
        1 + records.iter().filter(|record| record.kind.has_payload()).count() as u32
    }

    fn payloads_follow(&self, records: &[Record]) -> bool {
        let payloads = records.iter().filter(|record| record.kind.has_payload());
        payloads.zip(1..).all(|(record, nth)| self.page.checked_add(nth) == Some(record.slot_page))
    }
}
