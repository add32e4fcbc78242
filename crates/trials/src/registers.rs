//! Clients that use sectors as registers: every write stamps its sectors with a value that no other write has, and all is recorded.
//!
//! Two areas, each on both sides of an extent's boundary (1 MiB), so that two shards serve it:
//! *whole* blocks are only read and written as aligned blocks of 4 KiB, and each is one register, which must never be seen torn;
//! in the *mixed* area requests of one and of eight sectors begin at any sector, and each sector is a register. Where a device has blocks of
//! 4 KiB, these are of one and of two blocks.

use crate::history::{self, Operation, Value};
use std::collections::HashSet;
use std::io::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

const BLOCK_SECTORS: u64 = 8;
const WHOLE_START_LBA: u64 = 2048 - 2 * BLOCK_SECTORS;
const WHOLE_BLOCKS: u64 = 4;
const MIXED_START_LBA: u64 = 3 * 2048 - 2 * BLOCK_SECTORS;
const MIXED_SECTORS: u64 = 4 * BLOCK_SECTORS;

/// Where registers end: what lies from here on may be used for anything else.
pub const END_LBA: u64 = 4 * 2048;

/// A client's way to the volume.
pub trait Port {
    /// Reads into `data` from `offset` bytes on.
    ///
    /// # Errors
    ///
    /// The device's or the connection's.
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset` bytes; with `fua`, to stable media where this way can say so.
    ///
    /// # Errors
    ///
    /// The device's or the connection's.
    fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<()>;

    /// All writes answered before this are on stable media when it returns.
    ///
    /// # Errors
    ///
    /// The device's or the connection's.
    fn flush(&mut self) -> Result<()>;
}

/// A clock of instants that are all different. Taken before a request is sent and after its answer came, they order operations as real time does.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next instant; from 1.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Everything that happened, with the sector it happened to.
pub type Record = Vec<(u64, Operation)>;

/// A small generator of pseudo-random numbers (xorshift64, G. Marsaglia 2003).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed that is not 0.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.max(1))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A number nobody chose, so that each run is another; a failure tells it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// One client; its numbers go on over all its connections.
#[derive(Debug)]
pub struct Worker<'a> {
    clock: &'a Clock,
    dice: Dice,
    next_value: Value,
    /// Sectors of the device's blocks.
    unit: u64,
    /// What it did.
    pub record: Record,
}

impl<'a> Worker<'a> {
    /// Client `number`, from 1.
    pub fn new(clock: &'a Clock, number: u64, seed: u64) -> Worker<'a> {
        let next_value = (number << 40) + 1;
        let dice = Dice::new(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Worker { clock, dice, next_value, unit: 1, record: Vec::new() }
    }

    /// The same for a device with blocks of so many bytes, 512 or 4096.
    #[must_use]
    pub fn on_blocks_of(mut self, bytes: u64) -> Worker<'a> {
        self.unit = bytes / SECTOR_BYTES as u64;
        self
    }

    /// Random requests until `until`, or until the connection fails.
    ///
    /// # Errors
    ///
    /// The connection's. A write without an answer is then on record with no end.
    pub fn work(&mut self, client: &mut impl Port, until: Instant) -> Result<()> {
        while Instant::now() < until {
            let (start_lba, sectors) = self.place();
            match self.dice.below(16) {
                0 => client.flush()?,
                1..8 => self.write(client, start_lba, sectors)?,
                _ => self.read(client, start_lba, sectors)?,
            }
        }
        Ok(())
    }

    /// Reads every register once.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn read_all(&mut self, client: &mut impl Port) -> Result<()> {
        for block in 0..WHOLE_BLOCKS {
            self.read(client, WHOLE_START_LBA + block * BLOCK_SECTORS, BLOCK_SECTORS)?;
        }
        let (unit, sectors) = (self.unit, (0..MIXED_SECTORS).step_by(self.unit as usize));
        sectors.into_iter().try_for_each(|sector| self.read(client, MIXED_START_LBA + sector, unit))
    }

    fn place(&mut self) -> (u64, u64) {
        if self.dice.below(2) == 0 {
            return (WHOLE_START_LBA + self.dice.below(WHOLE_BLOCKS) * BLOCK_SECTORS, BLOCK_SECTORS);
        }
        let sectors = if self.dice.below(2) == 0 { self.unit } else { BLOCK_SECTORS.max(2 * self.unit) };
        (MIXED_START_LBA + self.unit * self.dice.below((MIXED_SECTORS - sectors) / self.unit + 1), sectors)
    }

    fn write(&mut self, client: &mut impl Port, start_lba: u64, sectors: u64) -> Result<()> {
        let value = self.next_value;
        self.next_value += 1;
        let data: Vec<u8> = (start_lba..start_lba + sectors).flat_map(|lba| stamp(value, lba)).collect();
        let fua = self.dice.below(8) == 0;
        let begin = self.clock.now();
        let answer = client.write(start_lba * SECTOR_BYTES as u64, &data, fua);
        let end = if answer.is_ok() { self.clock.now() } else { u64::MAX };
        self.put(start_lba, sectors, |_| Operation { value, is_write: true, begin, end });
        answer
    }

    fn read(&mut self, client: &mut impl Port, start_lba: u64, sectors: u64) -> Result<()> {
        let mut data = vec![0xEE; sectors as usize * SECTOR_BYTES];
        let begin = self.clock.now();
        client.read(start_lba * SECTOR_BYTES as u64, &mut data)?;
        let end = self.clock.now();
        let value = |(sector, lba)| value_of(sector, lba).unwrap_or_else(|| panic!("sector {lba} is torn or another's: {sector:x?}"));
        let values: Vec<Value> = data.chunks(SECTOR_BYTES).zip(start_lba..).map(value).collect();
        if start_lba < WHOLE_START_LBA + WHOLE_BLOCKS * BLOCK_SECTORS {
            assert!(values.iter().all(|v| *v == values[0]), "a torn block at sector {start_lba}: {values:x?}");
        }
        self.put(start_lba, sectors, |index| Operation { value: values[index as usize], is_write: false, begin, end });
        Ok(())
    }

    fn put(&mut self, start_lba: u64, sectors: u64, operation: impl Fn(u64) -> Operation) {
        self.record.extend((0..sectors).map(|index| (start_lba + index, operation(index))));
    }
}

/// Judges a record, register by register; gives the number of operations. `crashes` are instants between a crash and the restart: a write
/// without an answer took effect before the next of them, or never.
///
/// # Errors
///
/// What contradicts itself in a register that is not linearizable.
pub fn judge(record: &Record, crashes: &[u64]) -> std::result::Result<usize, String> {
    let lbas: HashSet<u64> = record.iter().map(|(lba, _)| *lba).collect();
    for lba in lbas {
        let mut history: Vec<Operation> = record.iter().filter(|(other, _)| *other == lba).map(|(_, operation)| *operation).collect();
        let seen: HashSet<Value> = history.iter().filter(|o| !o.is_write).map(|o| o.value).collect();
        history.retain(|o| o.end != u64::MAX || seen.contains(&o.value));
        for operation in history.iter_mut().filter(|o| o.end == u64::MAX) {
            operation.end = crashes.iter().copied().find(|crash| *crash > operation.begin).unwrap_or(u64::MAX);
        }
        history::check(&history).map_err(|wrong| format!("sector {lba}, {} operations: {wrong}", history.len()))?;
    }
    Ok(record.len())
}

fn stamp(value: Value, lba: u64) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    for pair in sector.chunks_mut(16) {
        pair[..8].copy_from_slice(&value.to_le_bytes());
        pair[8..].copy_from_slice(&lba.to_le_bytes());
    }
    sector
}

/// The value a sector holds, never written is 0; nothing if the sector is torn, or belongs elsewhere.
fn value_of(sector: &[u8], lba: u64) -> Option<Value> {
    let value = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
    let whole = if value == 0 { sector.iter().all(|byte| *byte == 0) } else { sector == stamp(value, lba) };
    whole.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_write_comes_before_the_restart_or_never() {
        let write = |value, begin, end| (9, Operation { value, is_write: true, begin, end });
        let read = |value, begin, end| (9, Operation { value, is_write: false, begin, end });
        let base = [write(5, 1, 2), write(6, 3, u64::MAX)];
        let with = |more: &[(u64, Operation)]| [&base[..], more].concat();
        assert_eq!(judge(&with(&[read(5, 5, 6), read(5, 7, 8)]), &[4]), Ok(4));
        assert_eq!(judge(&with(&[read(6, 5, 6), read(6, 7, 8)]), &[4]), Ok(4));
        assert!(judge(&with(&[read(5, 5, 6), read(6, 7, 8)]), &[4]).is_err(), "it came late and was not noticed");
    }

    #[test]
    fn a_torn_sector_is_found() {
        let mut sector = stamp(7, 3);
        assert_eq!(value_of(&sector, 3), Some(7));
        sector[256..].copy_from_slice(&stamp(8, 3)[256..]);
        assert_eq!(value_of(&sector, 3), None);
        assert_eq!(value_of(&stamp(7, 4), 3), None);
        assert_eq!(value_of(&[0; SECTOR_BYTES], 3), Some(0));
    }
}
