//! How long a device takes for a read, by the kernel's own count: of one that is watched from outside only the requests are seen.

use std::path::PathBuf;

/// Reads that a mean needs to rest on.
const READS_MIN: u64 = 100;

/// See the module.
pub struct ReadTime {
    stat: PathBuf,
    /// As it was looked at last; `None`: it could not be read once, and what came is not known.
    last: Option<Count>,
    /// Since the beginning.
    reads: u64,
    took_ms: u64,
}

/// Reads that were completed, and the milliseconds that they took together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    reads: u64,
    /// The kernel counts in 32 bits: with 20 reads under way at a time, round in 2.5 days.
    took_ms: u32,
}

impl ReadTime {
    /// Of a disk or partition, from now on.
    pub fn of(major: u32, minor: u32) -> ReadTime {
        ReadTime::at(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")))
    }

    fn at(stat: PathBuf) -> ReadTime {
        let last = count(&stat);
        ReadTime { stat, last, reads: 0, took_ms: 0 }
    }

    /// Takes in what came since the last look; at least once a day.
    pub fn look(&mut self) {
        let Some(last) = self.last else { return };
        let now = count(&self.stat);
        let Some((now, reads)) = now.and_then(|now| Some((now, now.reads.checked_sub(last.reads)?))) else {
            // It is gone, or another one took its place.
            self.last = None;
            return;
        };
        self.reads += reads;
        self.took_ms += u64::from(now.took_ms.wrapping_sub(last.took_ms));
        self.last = Some(now);
    }

    /// The mean since it began, in microseconds; `None` after too few reads, and where it was not
    /// known from the beginning on.
    pub fn mean_us(&self) -> Option<f64> {
        (self.reads >= READS_MIN).then(|| self.took_ms as f64 * 1000.0 / self.reads as f64)
    }
}

/// The first and the fourth number of the file (the kernel's Documentation/block/stat.rst); of the
/// fourth what 32 bits hold, as `part_stat_show` tells it.
fn count(stat: &std::path::Path) -> Option<Count> {
    let text = std::fs::read_to_string(stat).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let reads = numbers.next()??;
    let took_ms = numbers.nth(2)?? as u32;
    Some(Count { reads, took_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_since_it_began() {
        let directory = tempfile::tempdir().expect("a directory");
        let stat = directory.path().join("stat");
        let tell = |reads: u64, took_ms: u32| {
            std::fs::write(&stat, format!("  {reads}  7 4096 {took_ms} 1 0 8 0 0 42 42\n")).expect("it is written");
        };
        tell(1000, u32::MAX - 999);
        let mut time = ReadTime::at(stat.clone());
        let mut after = |reads, took_ms| {
            tell(reads, took_ms);
            time.look();
            time.mean_us()
        };
        assert_eq!(after(1099, u32::MAX - 99), None, "too few");
        assert_eq!(after(1200, 600), Some(8000.0), "the count went round");
        assert_eq!(after(1300, 1400), Some(8000.0));
        // The device went, and another took its place: what was measured until then holds.
        assert_eq!(after(10, 20), Some(8000.0));
        assert_eq!(after(1400, 90_000), Some(8000.0));
        let mut blind = ReadTime::at(directory.path().join("nothing"));
        std::fs::copy(&stat, &blind.stat).expect("it is written");
        blind.look();
        assert_eq!(blind.mean_us(), None, "what came before it began is not its mean");
        let mut gone = ReadTime::at(stat.clone());
        std::fs::write(&stat, "nonsense").expect("it is written");
        gone.look();
        assert_eq!(gone.mean_us(), None);
    }
}
