//! What is known of one volume, device or trace that is watched: its load without scans and backups, its
//! load with them, and the uses kept for miniatures.

use crate::kept::Kept;
use crate::load::{Load, Writes};
use crate::saved::{In, Out, Unreadable};
use engine::tap::line_hash;

/// Lines sampled of each load, where there is memory for it. The errors promised are those of this number.
pub const LINES_MAX: usize = 8192;
/// The least to which a sample is reduced when memory is short.
pub const LINES_MIN: usize = 2048;

/// How large its parts may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Lines in each of the two samples.
    pub lines: usize,
    /// Uses kept for miniatures.
    pub uses: usize,
}

impl Limits {
    /// Of each watch, if there are so many and all may take this many bytes. `None`: not even the smallest fit.
    #[must_use]
    pub fn for_each_of(watches: usize, bytes: u64) -> Option<Limits> {
        let each = usize::try_from(bytes).unwrap_or(usize::MAX) / watches.max(1);
        for lines in [LINES_MAX, LINES_MAX / 2, LINES_MIN] {
            let loads = 2 * Load::bytes_of(lines);
            // A quarter of the whole for uses: miniatures of few uses tell little.
            if loads + each / 4 <= each || lines == LINES_MIN && loads + Kept::bytes_of(USES_MIN) <= each {
                return Some(Limits { lines, uses: ((each - loads) / 8).clamp(USES_MIN, USES_MAX) });
            }
        }
        None
    }

    /// Bytes that a watch with them takes at most.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (2 * Load::bytes_of(self.lines) + Kept::bytes_of(self.uses)) as u64
    }
}

/// Fewest and most uses that a watch keeps.
const USES_MIN: usize = 4096;
const USES_MAX: usize = 1 << 19;

/// Blocks used, sampled or not, since the watch or its volume began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Read by users of an application.
    pub read_blocks: u64,
    /// Read by scans and backups.
    pub scanned_blocks: u64,
    /// Written.
    pub written_blocks: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Watch {
    application: Load,
    all: Load,
    kept: Kept,
    totals: Totals,
    writes: Writes,
    limits: Limits,
}

/// One use of a block, as far as it is sampled.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The block.
    pub block: u64,
    /// A write; otherwise a read.
    pub is_write: bool,
    /// By a scan or backup.
    pub is_scan: bool,
    /// When, in milliseconds.
    pub time_ms: u64,
}

impl Watch {
    /// A watch that begins now.
    #[must_use]
    pub fn new(now_ms: u64, writes: Writes, limits: Limits) -> Watch {
        let load = || Load::new(now_ms, limits.lines);
        Watch { application: load(), all: load(), kept: Kept::new(now_ms, limits.uses), totals: Totals::default(), writes, limits }
    }

    /// The window begins anew; what is known of the lines stays.
    pub fn restart(&mut self, now_ms: u64) {
        [&mut self.application, &mut self.all].into_iter().for_each(|load| load.restart(now_ms));
        self.kept.restart(now_ms);
        self.totals = Totals::default();
    }

    /// Writes act otherwise from now on.
    pub fn set_writes(&mut self, writes: Writes) {
        self.writes = writes;
    }

    /// How writes act.
    #[must_use]
    pub fn writes(&self) -> Writes {
        self.writes
    }

    /// Less memory for it from now on. More is not possible.
    pub fn shrink(&mut self, limits: Limits) {
        for load in [&mut self.application, &mut self.all] {
            load.stack_mut().shrink(limits.lines);
        }
        self.kept.shrink(limits.uses);
        self.limits = Limits { lines: limits.lines.min(self.limits.lines), uses: limits.uses.min(self.limits.uses) };
    }

    /// How large it may become.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Time goes on.
    pub fn advance(&mut self, now_ms: u64) {
        [&mut self.application, &mut self.all].into_iter().for_each(|load| load.advance(now_ms));
    }

    /// The time since it was told of time last is no part of the window: nobody watched.
    pub fn rest_until(&mut self, now_ms: u64) {
        self.kept.shift(now_ms.saturating_sub(self.all.now_ms()));
        [&mut self.application, &mut self.all].into_iter().for_each(|load| load.rest_until(now_ms));
    }

    /// So many blocks more were used, sampled or not.
    pub fn count(&mut self, more: Totals) {
        self.application.count(more.read_blocks);
        self.all.count(more.read_blocks + more.scanned_blocks);
        self.totals.read_blocks += more.read_blocks;
        self.totals.scanned_blocks += more.scanned_blocks;
        self.totals.written_blocks += more.written_blocks;
    }

    /// A block was used; it is taken in if it is sampled.
    pub fn see(&mut self, seen: Seen) {
        let Seen { block, is_write, is_scan, time_ms } = seen;
        let hash = line_hash(block, 0);
        if is_write {
            self.application.write(hash, self.writes);
            self.all.write(hash, self.writes);
        } else {
            self.all.read(hash);
            if !is_scan {
                self.application.read(hash);
            }
        }
        self.kept.note(block, is_write, is_scan, time_ms);
    }

    /// The content of blocks was given up.
    pub fn remove(&mut self, start_block: u64, blocks: u64) {
        self.application.stack_mut().remove_range(start_block, blocks, 0);
        self.all.stack_mut().remove_range(start_block, blocks, 0);
    }

    /// Blocks whose hash is not smaller need not be seen.
    #[must_use]
    pub fn below(&self) -> u64 {
        self.application.stack().threshold().max(self.all.stack().threshold()).max(self.kept.below())
    }

    /// Blocks above were not all seen: they count no more.
    pub fn lower_to(&mut self, below: u64) {
        self.application.stack_mut().lower_to(below);
        self.all.stack_mut().lower_to(below);
        self.kept.lower_to(below);
    }

    /// The load: with scans and backups, or without.
    #[must_use]
    pub fn load(&self, with_scans: bool) -> &Load {
        if with_scans { &self.all } else { &self.application }
    }

    /// The uses kept for miniatures.
    #[must_use]
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Blocks used in its window.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// See [`crate::saved`]. Both loads and the uses have one window.
    pub(crate) fn put(&self, out: &mut Out) {
        out.u32(self.limits.lines as u32);
        out.u32(self.limits.uses as u32);
        out.u8(match self.writes {
            Writes::Enter => 0,
            Writes::Refresh => 1,
            Writes::Remove => 2,
        });
        let Totals { read_blocks, scanned_blocks, written_blocks } = self.totals;
        [read_blocks, scanned_blocks, written_blocks].into_iter().for_each(|blocks| out.u64(blocks));
        out.u64(self.all.window_ms());
        self.application.put(out);
        self.all.put(out);
        self.kept.put(out);
    }

    pub(crate) fn take(from: &mut In<'_>, now_ms: u64) -> Result<Watch, Unreadable> {
        let limits = Limits { lines: from.u32()? as usize, uses: from.u32()? as usize };
        if !(1..=LINES_MAX).contains(&limits.lines) || !(1..=USES_MAX).contains(&limits.uses) {
            return Err(Unreadable::Nonsense("how large it may become"));
        }
        let writes = match from.u8()? {
            0 => Writes::Enter,
            1 => Writes::Refresh,
            2 => Writes::Remove,
            _ => return Err(Unreadable::Nonsense("how writes act")),
        };
        let totals = Totals { read_blocks: from.count()?, scanned_blocks: from.count()?, written_blocks: from.count()? };
        let begun_ms = now_ms.checked_sub(from.u64()?).ok_or(Unreadable::Nonsense("how long it has watched"))?;
        let application = Load::take(from, limits.lines, begun_ms, now_ms)?;
        let all = Load::take(from, limits.lines, begun_ms, now_ms)?;
        Ok(Watch { application, all, kept: Kept::take(from, begun_ms, limits.uses)?, totals, writes, limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_watches_fit_into_the_memory_they_may_take() {
        for (watches, mib) in [(1, 64), (10, 64), (40, 64), (100, 64), (1, 2)] {
            let limits = Limits::for_each_of(watches, mib << 20).expect("they fit");
            assert!(limits.bytes() * watches as u64 <= mib << 20, "{watches}: {limits:?} take {}", limits.bytes());
        }
        assert_eq!(Limits::for_each_of(10, 64 << 20).map(|limits| limits.lines), Some(LINES_MAX));
        assert_eq!(Limits::for_each_of(100, 64 << 20).map(|limits| limits.lines), Some(LINES_MIN));
        assert_eq!(Limits::for_each_of(1000, 64 << 20), None);
    }

    #[test]
    fn scans_count_with_all_and_not_with_the_application() {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 1000, uses: 1000 });
        for n in 0..300 {
            let is_scan = n >= 100;
            watch.count(if is_scan {
                Totals { scanned_blocks: 1, ..Totals::default() }
            } else {
                Totals { read_blocks: 1, ..Totals::default() }
            });
            watch.see(Seen { block: n % 100, is_write: false, is_scan, time_ms: n });
        }
        watch.see(Seen { block: 7, is_write: true, is_scan: false, time_ms: 300 });
        assert_eq!(watch.load(false).curve().rereferences().round(), 0.0);
        assert_eq!(watch.load(true).curve().rereferences().round(), 200.0);
        assert_eq!((watch.kept().len(), watch.totals().scanned_blocks), (301, 200));
        watch.remove(0, 100);
        assert_eq!(watch.load(true).stack().lines(), 0);
        watch.restart(400);
        assert_eq!((watch.totals(), watch.kept().len()), (Totals::default(), 0));
    }

    #[test]
    fn time_that_nobody_watched_is_no_part_of_the_window() {
        let limits = Limits { lines: 100, uses: 100 };
        let (mut rested, mut never) = (Watch::new(50, Writes::Refresh, limits), Watch::new(50, Writes::Refresh, limits));
        for n in 0..40 {
            for (watch, later_ms) in [(&mut rested, if n < 20 { 0 } else { 90_000 }), (&mut never, 0)] {
                watch.advance(50 + n * 1000 + later_ms);
                watch.count(Totals { read_blocks: 1, ..Totals::default() });
                watch.see(Seen { block: n % 7, is_write: false, is_scan: false, time_ms: 50 + n * 1000 + later_ms });
            }
            if n == 19 {
                rested.rest_until(50 + n * 1000 + 90_000);
            }
        }
        assert_eq!(crate::saved::to_bytes(&rested, b""), crate::saved::to_bytes(&never, b""));
    }

    #[test]
    fn it_needs_to_see_what_its_largest_sample_holds() {
        let mut watch = Watch::new(0, Writes::Enter, Limits { lines: 100, uses: 100_000 });
        (0..1000).for_each(|block| watch.see(Seen { block, is_write: false, is_scan: false, time_ms: 0 }));
        assert!(watch.load(false).stack().threshold() < u64::MAX && watch.below() == u64::MAX);
        watch.lower_to(u64::MAX / 16);
        assert_eq!(watch.below(), u64::MAX / 16);
        watch.shrink(Limits { lines: 10, uses: 20 });
        assert!(watch.kept().len() <= 20 && watch.load(true).stack().lines() <= 10);
    }
}
