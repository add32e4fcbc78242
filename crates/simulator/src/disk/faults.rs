//! How a device misbehaves (F3 to F7 and F10 of the fault model): rates drawn per run, ranges that stay bad, and the
//! count of what struck.

use engine::api::{Io, IoKind};

use crate::prng::Prng;

/// What happens to one I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// Nothing.
    None,
    /// It fails; a write may have been done in part.
    Error {
        /// Some of the sectors are written.
        partial: bool,
    },
    /// It fails for want of space, untouched.
    NoSpace,
    /// A flush fails.
    FlushError {
        /// What was not flushed is lost, and a later flush would succeed.
        drop_pages: bool,
    },
    /// A bit flips or a sector turns zero: in the buffer of a read, on the media after a write.
    Rot,
    /// A write says it is done and is not.
    Lost,
    /// It goes to another place.
    Misdirected {
        /// Which.
        to_bytes: u64,
    },
}

/// Classes of strikes that are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// F3.
    ReadError,
    /// F3, also no space.
    WriteError,
    /// F4.
    FlushError,
    /// F5: rot, zeroed, lost, misdirected.
    Corruption,
    /// F6.
    Latency,
    /// F7: the device is away.
    Gone,
}

/// Rates (of ten thousand I/Os) and states.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Off in the liveness phase.
    pub on: bool,
    /// Reads that fail.
    pub read_error_per_10k: u32,
    /// Writes that fail.
    pub write_error_per_10k: u32,
    /// Of those errors, how many in a hundred stay with the range.
    pub sticky_percent: u32,
    /// Flushes that fail.
    pub flush_error_per_10k: u32,
    /// Reads that come back wrong, from a good device.
    pub corrupt_read_per_10k: u32,
    /// Writes that are lost, misplaced or damaged while the device says they are done.
    pub corrupt_write_per_10k: u32,
    /// I/Os that take a hundred times as long.
    pub spike_per_10k: u32,
    /// I/Os that hang for thirty seconds.
    pub hang_per_10k: u32,
    /// Reads that take as long as a few thousand other I/Os.
    pub slow_read_per_10k: u32,
    /// Flushes do nothing (F10).
    pub lies: bool,
    /// The device is away: everything fails.
    pub gone: bool,
    /// It came back smaller.
    pub shrunk: bool,
    /// Flushes fail for good.
    pub flush_broken: bool,
    /// A flush failed: flushes and writes are refused until the device is opened anew.
    pub refuses: bool,
    /// Most strikes in a run, so that one run does not drown in errors.
    pub budget: u32,
    /// Whatever is drawn, nothing new strikes.
    pub veto: bool,
    /// What struck since last asked.
    pub struck: Vec<Class>,
    /// `(start, end, reads, writes)` in bytes.
    bad: Vec<(u64, u64, bool, bool)>,
}

impl Faults {
    /// No fault ever.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Faults stop: what was bad is good again, a device that was away is back.
    pub fn heal(&mut self) {
        self.on = false;
        self.gone = false;
        self.flush_broken = false;
        self.refuses = false;
        self.bad.clear();
    }

    /// Whether anything but latency can strike.
    pub fn harmful(&self) -> bool {
        self.read_error_per_10k + self.write_error_per_10k + self.flush_error_per_10k > 0
            || self.corrupt_read_per_10k + self.corrupt_write_per_10k > 0
            || self.gone
            || self.lies
            || self.shrunk
    }

    fn spend(&mut self, class: Class) -> bool {
        if self.budget == 0 || self.veto {
            return false;
        }
        self.budget -= 1;
        self.struck.push(class);
        true
    }

    /// Decides what happens to an I/O.
    pub fn strike(&mut self, io: &Io, size_bytes: u64, prng: &mut Prng) -> Strike {
        if self.gone {
            self.struck.push(Class::Gone);
            return Strike::Error { partial: false };
        }
        let (start, end) = (io.offset_bytes, io.offset_bytes + io.length_bytes);
        let is_read = matches!(io.kind, IoKind::Read(_));
        if self.refuses && !is_read {
            return Strike::Error { partial: false };
        }
        if matches!(io.kind, IoKind::Flush) {
            return self.strike_flush(prng);
        }
        let covers =
            |(from, to, reads, writes): &(u64, u64, bool, bool)| start < *to && *from < end && if is_read { *reads } else { *writes };
        if self.bad.iter().any(covers) {
            self.struck.push(if is_read { Class::ReadError } else { Class::WriteError });
            return Strike::Error { partial: prng.percent(30) };
        }
        if !self.on {
            return Strike::None;
        }
        let (rate, class) =
            if is_read { (self.read_error_per_10k, Class::ReadError) } else { (self.write_error_per_10k, Class::WriteError) };
        if prng.per_10k(rate) && self.spend(class) {
            if prng.percent(self.sticky_percent) {
                let both = prng.percent(30);
                // A whole stretch, or a single page of it.
                let page = start + prng.below((end - start).div_ceil(4096)) * 4096;
                let (from, to) = if prng.percent(50) { (start, end) } else { (page, (page + 4096).min(end)) };
                self.bad.push((from, to, is_read || both, !is_read || both));
            }
            return if !is_read && prng.percent(10) { Strike::NoSpace } else { Strike::Error { partial: prng.percent(70) } };
        }
        if prng.per_10k(if is_read { self.corrupt_read_per_10k } else { self.corrupt_write_per_10k })
            && !matches!(io.kind, IoKind::Discard | IoKind::WriteZeroes { .. })
            && self.spend(Class::Corruption)
        {
            return self.corrupt(is_read, start, end - start, size_bytes, prng);
        }
        Strike::None
    }

    fn corrupt(&self, is_read: bool, start: u64, length: u64, size_bytes: u64, prng: &mut Prng) -> Strike {
        match prng.below(if is_read { 3 } else { 4 }) {
            0 | 1 => Strike::Rot,
            2 => {
                let near = prng.percent(50);
                let to_bytes = if near && start + length + 4096 <= size_bytes {
                    start + 4096
                } else {
                    prng.below((size_bytes - length) / 4096 + 1) * 4096
                };
                if to_bytes == start { Strike::Rot } else { Strike::Misdirected { to_bytes } }
            }
            _ => Strike::Lost,
        }
    }

    fn strike_flush(&mut self, prng: &mut Prng) -> Strike {
        if self.flush_broken {
            self.struck.push(Class::FlushError);
            return Strike::FlushError { drop_pages: false };
        }
        if self.on && prng.per_10k(self.flush_error_per_10k) && self.spend(Class::FlushError) {
            match prng.below(3) {
                0 => self.flush_broken = true,
                1 => return Strike::FlushError { drop_pages: true },
                _ => {}
            }
            return Strike::FlushError { drop_pages: false };
        }
        Strike::None
    }

    /// How much longer an I/O takes.
    pub fn delay_ns(&mut self, is_read: bool, prng: &mut Prng) -> u64 {
        if !self.on {
            return 0;
        }
        if is_read && prng.per_10k(self.slow_read_per_10k) && !self.veto {
            self.struck.push(Class::Latency);
            return prng.between(100_000_000, 1_000_000_000);
        }
        if prng.per_10k(self.hang_per_10k) && !self.veto {
            self.struck.push(Class::Latency);
            return 30_000_000_000;
        }
        if prng.per_10k(self.spike_per_10k) && !self.veto {
            self.struck.push(Class::Latency);
            return prng.between(1_000_000, 200_000_000);
        }
        0
    }
}
