//! A device for blocking code: one call at a time, any of which may fail, tear, or be the last before a crash.

use engine::medium::{Medium, MediumError};

use super::Disk;
use super::faults::Class;
use crate::prng::Prng;

const EIO: i32 = 5;

/// A disk, borrowed by blocking code.
pub struct Blocking<'a> {
    disk: &'a mut Disk,
    prng: &'a mut Prng,
    /// Calls until the process dies; `None`: it lives.
    pub dies_after: Option<u64>,
    /// The call with this number (from 0) fails; `None`: none by plan.
    pub fails_at: Option<u64>,
    /// Calls so far.
    pub calls: u64,
    /// The process died in a call; all later ones fail and do nothing.
    pub dead: bool,
}

impl<'a> Blocking<'a> {
    /// The disk; the data path may have I/O of its own in flight on it.
    pub fn new(disk: &'a mut Disk, prng: &'a mut Prng, dies_after: Option<u64>) -> Blocking<'a> {
        Blocking { disk, prng, dies_after, fails_at: None, calls: 0, dead: false }
    }

    /// Whether this call is to be done at all; on the last call before death it is done in part.
    fn enter(&mut self, operation: &'static str, offset_bytes: u64, rate_per_10k: u32, class: Class) -> Result<bool, MediumError> {
        let error = MediumError { operation, offset_bytes, errno: EIO };
        let number = self.calls;
        self.calls += 1;
        if self.dead || self.disk.faults.gone {
            return Err(error);
        }
        if self.fails_at == Some(number) {
            return Err(error);
        }
        if self.dies_after.is_some_and(|after| number >= after) {
            self.dead = true;
            return Ok(false);
        }
        let faults = &mut self.disk.faults;
        if faults.on && faults.budget > 0 && self.prng.per_10k(rate_per_10k) && !faults.veto {
            faults.budget -= 1;
            faults.struck.push(class);
            return Err(error);
        }
        Ok(true)
    }

    fn write_some(&mut self, offset_bytes: u64, from: &[u8], chosen: impl Fn(usize) -> bool) {
        self.disk.media.next_write();
        for (index, sector) in from.chunks_exact(512).enumerate().filter(|(index, _)| chosen(*index)) {
            self.disk.media.write(offset_bytes + index as u64 * 512, sector);
        }
    }
}

impl Medium for Blocking<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.media.size_bytes() / 4096 * 4096
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        let rate = self.disk.faults.read_error_per_10k;
        let error = MediumError { operation: "read", offset_bytes, errno: EIO };
        if offset_bytes + into.len() as u64 > self.disk.media.size_bytes() {
            return Err(error);
        }
        if !self.enter("read", offset_bytes, rate, Class::ReadError)? {
            return Err(error);
        }
        into.copy_from_slice(self.disk.media.bytes(offset_bytes, into.len() as u64));
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        assert!(offset_bytes.is_multiple_of(4096) && from.len().is_multiple_of(4096), "aligned, as O_DIRECT asks");
        let rate = self.disk.faults.write_error_per_10k;
        let error = MediumError { operation: "write", offset_bytes, errno: EIO };
        if offset_bytes + from.len() as u64 > self.disk.media.size_bytes() {
            return Err(error);
        }
        if self.enter("write", offset_bytes, rate, Class::WriteError)? {
            self.write_some(offset_bytes, from, |_| true);
            return Ok(());
        }
        let (style, bits) = (self.prng.below(3), self.prng.bits());
        let cut = self.prng.below(from.len() as u64 / 512 + 1) as usize;
        self.write_some(offset_bytes, from, |index| match style {
            0 => false,
            1 => index < cut,
            _ => bits.rotate_left((index % 64) as u32) & 1 == 1,
        });
        Err(error)
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        let broken = self.disk.faults.flush_broken;
        let rate = if broken { 10_000 } else { self.disk.faults.flush_error_per_10k };
        let error = MediumError { operation: "flush", offset_bytes: 0, errno: EIO };
        if !self.enter("flush", 0, rate, Class::FlushError)? {
            return Err(error);
        }
        if !self.disk.faults.lies {
            let position = self.disk.media.position();
            self.disk.media.flush(position);
        }
        Ok(())
    }

    fn discard(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediumError> {
        let error = MediumError { operation: "discard", offset_bytes, errno: EIO };
        if !self.enter("discard", offset_bytes, 0, Class::WriteError)? {
            return Err(error);
        }
        self.disk.media.zero(offset_bytes, length_bytes);
        Ok(())
    }
}
