//! A page of the ring: a group of statements, and who made them.
//!
//! ```text
//!    0 magic "HRTHRNG1"      8 crc32c of bytes 12..4096     12 version u32
//!   16 pool uuid            32 session u64                  40 group u64
//!   48 tail group u64       56 durable group u64            64 epoch u64
//!   72 shard u16            74 statement bytes u16          76 zero
//!  128 statements, one behind the other; behind them zero
//! ```
//!
//! A group has one page, at page `group mod ring pages` of the ring. Its payloads lie in slots, which other writes fill: the group is complete when
//! those and the page are on the SSD.

use super::SLOTS_VERSION;
use super::statement::{Statement, UNIT_BYTES};
use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::{COUNT_MAX, DecodeError, PAGE_BYTES};
use alloc::vec::Vec;
use types::ShardIndex;

const MAGIC: &[u8; 8] = b"HRTHRNG1";
const STATEMENTS_AT: usize = 128;
/// Room for statements in a page.
pub const STATEMENT_BYTES_MAX: usize = PAGE_BYTES - STATEMENTS_AT;

const _: () = assert!(STATEMENT_BYTES_MAX.is_multiple_of(UNIT_BYTES));

/// What a page of the ring says besides its statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingHead {
    /// The pool.
    pub uuid: [u8; 16],
    /// The session that wrote it, as the superblock counts them, from 1. No number is given out twice.
    pub session: u64,
    /// The shard whose ring this is.
    pub shard: ShardIndex,
    /// The group's number in its shard, from 1, for ever.
    pub group: u64,
    /// All that is true and was said before this group was said again from here on. At most `group`; never goes back.
    pub tail: u64,
    /// All groups up to this one were flushed when this one was written; below `group`.
    pub durable: u64,
    /// Whoever may write the pool, as the superblock counts owners; 0 where nobody counts.
    pub epoch: u64,
}

impl RingHead {
    /// Writes the page.
    ///
    /// # Panics
    /// If the statements do not fit, or the numbers do not follow each other.
    pub fn encode<'a>(&self, statements: impl IntoIterator<Item = &'a Statement>, into: &mut [u8; PAGE_BYTES]) {
        let mut said = Vec::new();
        statements.into_iter().for_each(|statement| statement.append_to(&mut said));
        self.encode_said(&said, into);
    }

    /// The same with statements as [`Statement::append_to`] writes them.
    ///
    /// # Panics
    /// As [`RingHead::encode`].
    pub fn encode_said(&self, said: &[u8], into: &mut [u8; PAGE_BYTES]) {
        assert!(self.check().is_ok(), "{self:?}");
        into[..STATEMENTS_AT].fill(0);
        put(into, 0, MAGIC);
        put_u32(into, 12, SLOTS_VERSION);
        put(into, 16, &self.uuid);
        put_u64(into, 32, self.session);
        put_u64(into, 40, self.group);
        put_u64(into, 48, self.tail);
        put_u64(into, 56, self.durable);
        put_u64(into, 64, self.epoch);
        put_u16(into, 72, self.shard.0);
        put_u16(into, 74, said.len() as u16);
        let (statements, rest) = into[STATEMENTS_AT..].split_at_mut(said.len());
        statements.copy_from_slice(said);
        rest.fill(0);
        seal_header(into);
    }

    /// Reads a page. Whether it is the one that should stand there is the caller's to check.
    ///
    /// # Errors
    /// Says why it is no page that a writer of this version made.
    pub fn decode(page: &[u8; PAGE_BYTES]) -> Result<(RingHead, Vec<Statement>), DecodeError> {
        let mut statements = Vec::new();
        let head = RingHead::decode_each(page, |statement| statements.push(*statement))?;
        Ok((head, statements))
    }

    /// The same, one statement after the other, if the page itself is one.
    ///
    /// # Errors
    /// As [`RingHead::decode`]; then what was given before counts for nothing.
    pub fn decode_each(page: &[u8; PAGE_BYTES], each: impl FnMut(&Statement)) -> Result<RingHead, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if !page.starts_with(MAGIC) {
            return Err(DecodeError::Magic);
        }
        if !mistakes::active(mistakes::HEADERS_UNCHECKED) && !header_matches(page) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(page, 12);
        if version != SLOTS_VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let head = RingHead {
            uuid: get_uuid(page, 16),
            session: get_u64(page, 32),
            group: get_u64(page, 40),
            tail: get_u64(page, 48),
            durable: get_u64(page, 56),
            epoch: get_u64(page, 64),
            shard: ShardIndex(get_u16(page, 72)),
        };
        head.check()?;
        let bytes = usize::from(get_u16(page, 74));
        if bytes > STATEMENT_BYTES_MAX || !bytes.is_multiple_of(UNIT_BYTES) {
            return wrong("statement bytes");
        }
        let (statements, rest) = page[STATEMENTS_AT..].split_at(bytes);
        if !all_zero(&page[76..STATEMENTS_AT]) || !all_zero(rest) {
            return wrong("padding");
        }
        Statement::decode_all(statements, each)?;
        Ok(head)
    }

    /// The rules that hold in every page.
    fn check(&self) -> Result<(), DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if self.session.max(self.group).max(self.epoch) >= COUNT_MAX || self.session == 0 {
            return wrong("count");
        }
        if self.group == 0 || self.durable >= self.group {
            return wrong("durable group");
        }
        if self.tail == 0 || self.tail > self.group {
            return wrong("tail group");
        }
        Ok(())
    }
}
