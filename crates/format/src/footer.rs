//! A footer: the record tables of a full segment once more, in one piece at the segment's end, so that recovery reads
//! one run of pages instead of walking the groups.
//!
//! ```text
//!    0 magic "HRTHFTR1"      8 crc32c of bytes 12..4096 of this page      12 version u32
//!   16 pool uuid            32 session u64           40 segment seq u64
//!   48 first group u64      56 last group u64        64 tail seq u64
//!   72 durable group u64    80 resume seq u64        88 resume group u64
//!   96 shard u16            98 zero u16             100 record count u32
//!  104 used pages u32      108 crc32c of the records that stand on the pages after this one, zero if none
//!  112 marked in session u64 120 zero
//!  256 the first 120 records; then 128 on each further page; zero behind the last, to the end of its page
//! ```
//!
//! Pages of the reserved run behind the last record are not written.

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{crc32c, header_matches, seal_header};
use crate::record::{RECORD_BYTES, Record, decode_table};
use crate::{COUNT_MAX, DecodeError, FORMAT_VERSION, Layout, PAGE_BYTES, is_read};
use alloc::vec;
use alloc::vec::Vec;
use types::ShardIndex;

const MAGIC: &[u8; 8] = b"HRTHFTR1";
const TABLE_AT: usize = 256;
/// Records on the first page of a footer.
pub const FIRST_PAGE_RECORDS: u32 = ((PAGE_BYTES - TABLE_AT) / RECORD_BYTES) as u32;
/// Records on each further page.
pub const NEXT_PAGE_RECORDS: u32 = (PAGE_BYTES / RECORD_BYTES) as u32;

/// Pages that a footer with this many records takes.
pub const fn footer_pages_for(records: u32) -> u32 {
    1 + records.saturating_sub(FIRST_PAGE_RECORDS).div_ceil(NEXT_PAGE_RECORDS)
}

/// Records that fit a footer of this many pages.
pub const fn footer_records_max(pages: u32) -> u32 {
    FIRST_PAGE_RECORDS + (pages - 1) * NEXT_PAGE_RECORDS
}

/// What a footer says besides its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FooterHead {
    /// The pool.
    pub uuid: [u8; 16],
    /// The session whose groups these are (not the one that wrote the footer, should recovery have written it).
    pub session: u64,
    /// The shard whose log this is.
    pub shard: ShardIndex,
    /// The segment's sequence number.
    pub segment_seq: u64,
    /// Number of the segment's first group.
    pub first_group: u64,
    /// Number of its last group; at least `first_group`.
    pub last_group: u64,
    /// `tail_seq` of its last group.
    pub tail_seq: u64,
    /// All groups up to this one were known to be flushed when the footer was written. At least `last_group` if, as is
    /// best, the segment was flushed before its footer was written: then recovery need not look at the segment at all.
    pub durable_group: u64,
    /// Normally 0. After accepted damage: the segment in which the log goes on, see `resume_group`.
    pub resume_seq: u64,
    /// Normally 0: the next segment's first group is `last_group + 1`. After accepted damage: the number with which the log
    /// goes on in `resume_seq`; what was between is lost and was reported when the damage was found.
    pub resume_group: u64,
    /// Pages from the start of the segment that its groups take; no more than the overflow pages leave.
    pub used_pages: u32,
}

/// A footer as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footer {
    /// What it says of the segment.
    pub head: FooterHead,
    /// All records of all groups, in log order.
    pub records: Vec<Record>,
    /// If there is a `resume_seq`: the superblock's session when the recovery that found the damage wrote it. The damage is recorded
    /// once a later session has begun. Else 0.
    pub marked_in_session: u64,
}

impl FooterHead {
    /// The footer as bytes, whole pages, to be written at [`Layout::footer_write_offset`].
    ///
    /// # Panics
    /// If the head breaks a rule of its fields, or the groups leave no room for so many records.
    pub fn encode(&self, layout: &Layout, records: &[Record]) -> Vec<u8> {
        self.encode_marked(layout, records, 0)
    }

    /// As [`FooterHead::encode`], for a segment behind which groups are lost; see [`Footer::marked_in_session`].
    ///
    /// # Panics
    /// Likewise.
    pub fn encode_marked(&self, layout: &Layout, records: &[Record], marked_in_session: u64) -> Vec<u8> {
        assert!(self.first_group >= 1 && self.first_group <= self.last_group, "{self:?}");
        assert!(self.tail_seq >= 1 && self.tail_seq <= self.segment_seq, "{self:?}");
        let count = records.len() as u32;
        let overflow_pages = layout.footer_overflow_pages(count);
        assert!(count <= layout.records_max() && self.used_pages <= layout.group_pages_with(count), "{count} records, {self:?}");
        let mut bytes = vec![0; footer_pages_for(count) as usize * PAGE_BYTES];
        for (record, slot) in records.iter().zip(bytes[TABLE_AT..].chunks_exact_mut(RECORD_BYTES)) {
            record.encode(slot);
        }
        let rest_crc = if bytes.len() > PAGE_BYTES { crc32c(&bytes[PAGE_BYTES..]) } else { 0 };
        let page = &mut bytes[..PAGE_BYTES];
        put(page, 0, MAGIC);
        put_u32(page, 12, FORMAT_VERSION);
        put(page, 16, &self.uuid);
        put_u64(page, 32, self.session);
        put_u64(page, 40, self.segment_seq);
        put_u64(page, 48, self.first_group);
        put_u64(page, 56, self.last_group);
        put_u64(page, 64, self.tail_seq);
        put_u64(page, 72, self.durable_group);
        put_u64(page, 80, self.resume_seq);
        put_u64(page, 88, self.resume_group);
        put_u16(page, 96, self.shard.0);
        put_u32(page, 100, records.len() as u32);
        put_u32(page, 104, self.used_pages);
        put_u32(page, 108, rest_crc);
        put_u64(page, 112, marked_in_session);
        seal_header(page);
        bytes.rotate_right(overflow_pages as usize * PAGE_BYTES);
        bytes
    }

    /// Reads the first page: the head, and how many records the footer has.
    ///
    /// # Errors
    /// Says why the page is not the first of a footer that a writer of this version made.
    pub fn decode(page: &[u8]) -> Result<(FooterHead, u32), DecodeError> {
        if page.len() < PAGE_BYTES || !page.starts_with(MAGIC) {
            return Err(DecodeError::Magic);
        }
        let page = &page[..PAGE_BYTES];
        if !header_matches(page) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(page, 12);
        if !is_read(version) {
            return Err(DecodeError::Version { found: version });
        }
        let head = FooterHead {
            uuid: get_uuid(page, 16),
            session: get_u64(page, 32),
            segment_seq: get_u64(page, 40),
            first_group: get_u64(page, 48),
            last_group: get_u64(page, 56),
            tail_seq: get_u64(page, 64),
            durable_group: get_u64(page, 72),
            resume_seq: get_u64(page, 80),
            resume_group: get_u64(page, 88),
            shard: ShardIndex(get_u16(page, 96)),
            used_pages: get_u32(page, 104),
        };
        let counts = [head.session, head.segment_seq, head.last_group, head.durable_group, head.resume_seq, head.resume_group];
        if counts.into_iter().any(|count| count >= COUNT_MAX) {
            return Err(DecodeError::Field { field: "count" });
        }
        let resumes = head.resume_seq > head.segment_seq && head.resume_group > head.last_group;
        if (head.resume_seq, head.resume_group) != (0, 0) && !resumes {
            return Err(DecodeError::Field { field: "resume" });
        }
        if head.first_group == 0 || head.first_group > head.last_group {
            return Err(DecodeError::Field { field: "first group" });
        }
        if head.tail_seq == 0 || head.tail_seq > head.segment_seq {
            return Err(DecodeError::Field { field: "tail seq" });
        }
        if get_u16(page, 98) != 0 || !all_zero(&page[120..TABLE_AT]) {
            return Err(DecodeError::Field { field: "padding" });
        }
        Ok((head, get_u32(page, 100)))
    }
}

impl Footer {
    /// Reads a whole footer. `bytes` begin with its head page and hold at least [`footer_pages_for`] its records; more is not looked at.
    /// If it has overflow pages ([`Layout::footer_overflow_pages`]), `bytes` are the reserved pages and `overflow` those pages; else
    /// `overflow` is empty.
    ///
    /// # Errors
    /// Says why the bytes are not a footer that a writer of this version made.
    pub fn decode(bytes: &[u8], overflow: &[u8]) -> Result<Footer, DecodeError> {
        let (head, count) = FooterHead::decode(bytes)?;
        let length = footer_pages_for(count) as usize * PAGE_BYTES;
        let joined: Vec<u8>;
        let bytes = if overflow.is_empty() {
            bytes.get(..length)
        } else {
            joined = [bytes, overflow].concat();
            Some(joined.as_slice()).filter(|joined| joined.len() == length)
        };
        let Some(bytes) = bytes else {
            return Err(DecodeError::Field { field: "record count" });
        };
        let rest = &bytes[PAGE_BYTES..];
        let rest_crc = if rest.is_empty() { 0 } else { crc32c(rest) };
        if get_u32(bytes, 108) != rest_crc {
            return Err(DecodeError::Checksum);
        }
        let records = decode_table(&bytes[TABLE_AT..], count as usize, get_u32(bytes, 12))?;
        Ok(Footer { head, records, marked_in_session: get_u64(bytes, 112) })
    }
}
