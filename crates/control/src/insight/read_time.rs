//! How long a device takes for a read, by the kernel's own count: of one that is watched from outside only the requests are seen.

use std::path::PathBuf;

/// Reads that a mean needs to rest on.
const READS_MIN: u64 = 100;

/// See the module.
pub struct ReadTime {
    stat: PathBuf,
    /// At its beginning, if that could be read.
    begun: Option<Count>,
}

/// Reads that were completed, and the milliseconds that they took together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    reads: u64,
    took_ms: u64,
}

impl ReadTime {
    /// Of a disk or partition, from now on.
    pub fn of(major: u32, minor: u32) -> ReadTime {
        ReadTime::at(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")))
    }

    fn at(stat: PathBuf) -> ReadTime {
        let begun = count(&stat);
        ReadTime { stat, begun }
    }

    /// The mean since it began, in microseconds; `None` after too few reads, if the device is gone, or if the kernel does not count.
    pub fn mean_us(&self) -> Option<f64> {
        let (begun, now) = (self.begun?, count(&self.stat)?);
        let reads = now.reads.checked_sub(begun.reads).filter(|reads| *reads >= READS_MIN)?;
        let took_ms = now.took_ms.checked_sub(begun.took_ms)?;
        Some(took_ms as f64 * 1000.0 / reads as f64)
    }
}

/// The first and the fourth number of the file (the kernel's Documentation/block/stat.rst).
fn count(stat: &std::path::Path) -> Option<Count> {
    let text = std::fs::read_to_string(stat).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let reads = numbers.next()??;
    let took_ms = numbers.nth(2)??;
    Some(Count { reads, took_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_since_it_began() {
        let directory = tempfile::tempdir().expect("a directory");
        let stat = directory.path().join("stat");
        let tell = |reads: u64, took_ms: u64| {
            std::fs::write(&stat, format!("  {reads}  7 4096 {took_ms} 1 0 8 0 0 42 42\n")).expect("it is written");
        };
        tell(1000, 5000);
        let time = ReadTime::at(stat.clone());
        tell(1099, 5900);
        assert_eq!(time.mean_us(), None, "too few");
        tell(1200, 6600);
        assert_eq!(time.mean_us(), Some(8000.0));
        let blind = ReadTime::at(directory.path().join("nothing"));
        std::fs::copy(&stat, &blind.stat).expect("it is written");
        assert_eq!(blind.mean_us(), None, "what came before it began is not its mean");
        // The device went, and another took its place.
        tell(10, 20);
        assert_eq!(time.mean_us(), None);
        std::fs::write(&stat, "nonsense").expect("it is written");
        assert_eq!(time.mean_us(), None);
        std::fs::remove_file(&stat).expect("it is removed");
        assert_eq!(time.mean_us(), None);
    }
}
