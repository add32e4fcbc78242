//! The requests that are under way, in memory that outlives the daemon, so that the next one can
//! end them.
//!
//! A killed daemon leaves requests that the kernel has handed over and got no answer to. From Linux
//! 6.9 on the kernel hands them over once more when it is asked to; what the table adds is which of
//! them were carried out already: those are answered and not run again, or an old write would come
//! to effect twice, perhaps over a newer one. Before 6.9 the kernel does not repeat itself, and the
//! table is all that is known: what can be is run from here, and a write, whose data is gone,
//! fails.
//!
//! ```text
//!   page 0           magic, version, length of the facts, the facts (JSON)
//!   from page 1 on   an entry of 32 bytes for each slot of the connection
//! ```
//! One thread writes. An entry's state is stored last and read first, so a kill between two stores
//! leaves an entry that is free, or whole.

use crate::connection::SLOTS;
use crate::error::FuseError;
use crate::file::Work;
use engine::api::Op;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"hearthIF");
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
const FACTS_BYTES_MAX: usize = HEADER_BYTES - 16;
const TABLE_BYTES: usize = HEADER_BYTES + SLOTS * size_of::<Entry>();
/// Nobody can make the file shorter than what is mapped of it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ANSWERED: u32 = 2;
const STATE_BITS: u32 = 4;
const OP_BITS: u32 = 4;

#[repr(C)]
struct Entry {
    unique: AtomicU64,
    start_sector: AtomicU64,
    sectors: AtomicU32,
    data_bytes: AtomicU32,
    /// The state, the operation, and where the data begins in its first page.
    state: AtomicU32,
    /// What was answered: 0 or a negative errno.
    result: AtomicI32,
}

const _: () = assert!(size_of::<Entry>() == 32 && HEADER_BYTES.is_multiple_of(align_of::<Entry>()));

/// What the table says of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) unique: u64,
    pub(crate) work: Work,
    /// What the volume has answered, if it has: 0 or a negative errno.
    pub(crate) result: Option<i32>,
}

/// The table of one connection.
#[derive(Debug)]
pub(crate) struct Table {
    memory: OwnedFd,
    map: NonNull<u8>,
}

// SAFETY: the map is this value's alone, and is reached through atomics.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// An empty one, without facts.
    pub(crate) fn new() -> Result<Table, FuseError> {
        let make = || -> io::Result<OwnedFd> {
            let memory = memfd_create("hearth-requests", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&memory, TABLE_BYTES as u64)?;
            fcntl_add_seals(&memory, SEALS)?;
            Ok(memory)
        };
        let table = make().and_then(Table::map).map_err(FuseError::system("make", "the table of requests"))?;
        table.header(0).store(MAGIC, Ordering::Relaxed);
        table.header(1).store(u64::from(VERSION), Ordering::Relaxed);
        Ok(table)
    }

    /// What an earlier daemon left, with its facts.
    ///
    /// # Errors
    /// If it is no table, or one of another version.
    pub(crate) fn of_earlier(memory: OwnedFd) -> io::Result<(Table, Vec<u8>)> {
        let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let is_whole = fcntl_get_seals(&memory)?.contains(SEALS) && fstat(&memory)?.st_size == TABLE_BYTES as i64;
        if !is_whole {
            return Err(invalid("it is no table of requests"));
        }
        let table = Table::map(memory)?;
        let (magic, version) = (table.header(0).load(Ordering::Relaxed), table.header(1).load(Ordering::Acquire));
        let facts_bytes = (version >> 32) as usize;
        if magic != MAGIC || version as u32 != VERSION || facts_bytes > FACTS_BYTES_MAX {
            return Err(invalid("it is a table of another version"));
        }
        // SAFETY: so much is mapped behind the two words, and written before the length that was
        // read.
        let facts = unsafe { std::slice::from_raw_parts(table.map.as_ptr().add(16), facts_bytes) }.to_vec();
        Ok((table, facts))
    }

    fn map(memory: OwnedFd) -> io::Result<Table> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of a file that cannot become shorter.
        let map = unsafe { mmap(std::ptr::null_mut(), TABLE_BYTES, protection, MapFlags::SHARED, &memory, 0)? };
        Ok(Table { memory, map: NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)? })
    }

    /// Notes what the next daemon has to know of the export; once.
    pub(crate) fn set_facts(&self, facts: &[u8]) -> io::Result<()> {
        if facts.len() > FACTS_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: so much is mapped behind the two words, and nobody reads it before the length
        // says that it is there.
        unsafe { std::ptr::copy_nonoverlapping(facts.as_ptr(), self.map.as_ptr().add(16), facts.len()) };
        self.header(1).store(u64::from(VERSION) | (facts.len() as u64) << 32, Ordering::Release);
        Ok(())
    }

    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// The volume is about to get a request.
    pub(crate) fn take(&self, slot: u32, unique: u64, work: &Work) {
        let entry = self.entry(slot);
        entry.unique.store(unique, Ordering::Relaxed);
        entry.start_sector.store(work.start_sector, Ordering::Relaxed);
        entry.sectors.store(work.sectors, Ordering::Relaxed);
        entry.data_bytes.store(work.data_bytes, Ordering::Relaxed);
        entry.state.store(TAKEN | op_code(work.op) << STATE_BITS | work.skip_bytes << (STATE_BITS + OP_BITS), Ordering::Release);
    }

    /// The volume has carried it out, or refused it; its client is about to be told.
    pub(crate) fn answer(&self, slot: u32, result: i32) {
        let entry = self.entry(slot);
        entry.result.store(result, Ordering::Relaxed);
        // One thread writes, so nothing comes between.
        let state = entry.state.load(Ordering::Relaxed);
        entry.state.store(state & !((1 << STATE_BITS) - 1) | ANSWERED, Ordering::Release);
    }

    /// Its client was told.
    pub(crate) fn free(&self, slot: u32) {
        self.entry(slot).state.store(FREE, Ordering::Release);
    }

    /// What is noted in a slot; what makes no sense is nothing.
    pub(crate) fn noted(&self, slot: u32) -> Option<Noted> {
        let entry = self.entry(slot);
        let state = entry.state.load(Ordering::Acquire);
        let result = match state & ((1 << STATE_BITS) - 1) {
            TAKEN => None,
            ANSWERED => Some(entry.result.load(Ordering::Relaxed)),
            _ => return None,
        };
        let work = Work {
            op: op_of_code(state >> STATE_BITS & ((1 << OP_BITS) - 1))?,
            start_sector: entry.start_sector.load(Ordering::Relaxed),
            sectors: entry.sectors.load(Ordering::Relaxed),
            skip_bytes: state >> (STATE_BITS + OP_BITS),
            data_bytes: entry.data_bytes.load(Ordering::Relaxed),
        };
        Some(Noted { unique: entry.unique.load(Ordering::Relaxed), work, result })
    }

    /// The largest number of a request that was ever noted; 0 if none was.
    pub(crate) fn last_unique(&self) -> u64 {
        (0..SLOTS as u32).map(|slot| self.entry(slot).unique.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn header(&self, word: usize) -> &AtomicU64 {
        assert!(word < 2, "word {word} of two");
        // SAFETY: the first page is mapped, aligned, and its first two words are reached as atomics
        // only.
        unsafe { self.map.cast::<AtomicU64>().add(word).as_ref() }
    }

    fn entry(&self, slot: u32) -> &Entry {
        assert!((slot as usize) < SLOTS, "slot {slot} of {SLOTS}");
        // SAFETY: it lies within the map, is aligned, and is reached as atomics only.
        unsafe { self.map.byte_add(HEADER_BYTES).cast::<Entry>().add(slot as usize).as_ref() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a reference into it any more.
        if let Err(error) = unsafe { munmap(self.map.as_ptr().cast(), TABLE_BYTES) } {
            tracing::warn!(%error, "a table of requests stays mapped");
        }
    }
}

/// The operations that reach a volume from here, by number: also another version's daemon must
/// understand them.
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

fn op_code(op: Op) -> u32 {
    // A hole is written down as zeroes, which older versions know.
    let noted = if op == Op::PunchHole { Op::WriteZeroes } else { op };
    OPS.iter().position(|other| *other == noted).map_or(0, |at| at as u32 + 1)
}

fn op_of_code(code: u32) -> Option<Op> {
    OPS.get((code as usize).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(op: Op, start_sector: u64) -> Work {
        Work { op, start_sector, sectors: 16, skip_bytes: 3584, data_bytes: 8192 }
    }

    #[test]
    fn the_next_daemon_reads_what_was_under_way() {
        let table = Table::new().expect("memory");
        table.set_facts(b"{\"a\":1}").expect("short");
        table.take(0, 2, &work(Op::Write, 8));
        table.take(7, 4, &work(Op::Read, 1 << 40));
        table.take(511, 6, &work(Op::WriteZeroes, 0));
        table.take(3, 8, &work(Op::Flush, 0));
        table.answer(511, -5);
        table.answer(3, 0);
        table.free(3);
        let memory = rustix::io::fcntl_dupfd_cloexec(table.memory(), 3).expect("a descriptor");
        drop(table);
        let (next, facts) = Table::of_earlier(memory).expect("whole");
        assert_eq!(facts, b"{\"a\":1}");
        let noted: Vec<Noted> = (0..SLOTS as u32).filter_map(|slot| next.noted(slot)).collect();
        let expected = [
            Noted { unique: 2, work: work(Op::Write, 8), result: None },
            Noted { unique: 4, work: work(Op::Read, 1 << 40), result: None },
            Noted { unique: 6, work: work(Op::WriteZeroes, 0), result: Some(-5) },
        ];
        assert_eq!(noted, expected);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let plain = memfd_create("other", MemfdFlags::CLOEXEC).expect("memory");
        assert!(Table::of_earlier(plain).is_err());
        let table = Table::new().expect("memory");
        table.header(1).store(u64::from(VERSION + 1), Ordering::Relaxed);
        let memory = rustix::io::fcntl_dupfd_cloexec(table.memory(), 3).expect("a descriptor");
        assert!(Table::of_earlier(memory).expect_err("of another version").to_string().contains("version"));
        assert!(table.set_facts(&[0; FACTS_BYTES_MAX + 1]).is_err());
    }
}
