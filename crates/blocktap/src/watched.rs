//! Which requests are those of a device: its disk, and where on it.

use crate::refused::Refused;
use std::path::{Path, PathBuf};

/// A disk, or a part of one.
///
/// The kernel's events name the disk (never the partition) and its sectors. A flush without data
/// names no sector, so that of another partition of the same disk cannot be told from ours: it is
/// taken for ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    major: u32,
    minor: u32,
    /// `None`: all of the disk, however it grows.
    part: Option<Part>,
}

/// Half-open, in sectors of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub start_sector: u64,
    pub end_sector: u64,
}

impl Watched {
    /// All of the disk `major:minor`.
    pub fn disk(major: u32, minor: u32) -> Watched {
        Watched { major, minor, part: None }
    }

    /// The sectors `start_sector..start_sector + sectors` of the disk `major:minor`; events count
    /// from `start_sector`.
    pub fn part(major: u32, minor: u32, start_sector: u64, sectors: u64) -> Watched {
        let part = Part { start_sector, end_sector: start_sector.saturating_add(sectors) };
        Watched { major, minor, part: Some(part) }
    }

    /// By the number of a device, which may be a partition: the kernel says of which disk
    /// (`/sys/dev/block/MAJOR:MINOR`).
    ///
    /// # Errors
    /// [`Refused::DeviceUnknown`] where the kernel knows none of that number.
    pub fn find(major: u32, minor: u32) -> Result<Watched, Refused> {
        Watched::find_below(Path::new("/sys"), major, minor)
    }

    fn find_below(sys: &Path, major: u32, minor: u32) -> Result<Watched, Refused> {
        let unknown = || Refused::DeviceUnknown { major, minor };
        let directory = std::fs::canonicalize(place(sys, major, minor)).map_err(|_| unknown())?;
        let told = |file: &Path| std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
        if told(&directory.join("partition")).is_none() {
            return Ok(Watched::disk(major, minor));
        }
        let sectors = |file: &str| told(&directory.join(file)).and_then(|text| text.parse::<u64>().ok());
        let disk = directory.parent().and_then(|disk| told(&disk.join("dev"))).and_then(|text| number(&text));
        match (disk, sectors("start"), sectors("size")) {
            (Some((major, minor)), Some(start), Some(size)) => Ok(Watched::part(major, minor, start, size)),
            _ => Err(unknown()),
        }
    }

    /// Whether the kernel has such a disk.
    pub(crate) fn check_is_there(&self) -> Result<(), Refused> {
        // `dev_t` of the kernel: 12 and 20 bits.
        let fits = self.major < 1 << 12 && self.minor < 1 << 20;
        if fits && place(Path::new("/sys"), self.major, self.minor).exists() {
            return Ok(());
        }
        Err(Refused::DeviceUnknown { major: self.major, minor: self.minor })
    }

    /// The disk's number as tracepoints have it: `MKDEV` of the kernel, not the `dev_t` of user
    /// space.
    pub(crate) fn kernel_number(&self) -> u32 {
        self.major << 20 | self.minor
    }

    /// Whether its disk has this number.
    pub(crate) fn is_on(&self, disk: (u32, u32)) -> bool {
        disk == (self.major, self.minor)
    }

    pub(crate) fn range(&self) -> Option<Part> {
        self.part
    }

    /// The sector of the device by that of its disk; `None` if it is not the device's.
    pub(crate) fn sector(&self, disk_sector: u64, sectors: u32) -> Option<u64> {
        match self.part {
            None => Some(disk_sector),
            Some(_) if sectors == 0 => Some(0),
            Some(part) if disk_sector < part.end_sector => disk_sector.checked_sub(part.start_sector),
            Some(_) => None,
        }
    }
}

fn place(sys: &Path, major: u32, minor: u32) -> PathBuf {
    sys.join(format!("dev/block/{major}:{minor}"))
}

/// `259:1`
fn number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_is_found_with_its_disk() {
        let sys = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let path = sys.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        write("devices/block/sda/dev", "8:0\n");
        write("devices/block/sda/size", "9999\n");
        write("devices/block/sda/sda1/dev", "8:1\n");
        write("devices/block/sda/sda1/partition", "1\n");
        write("devices/block/sda/sda1/start", "2048\n");
        write("devices/block/sda/sda1/size", "1000\n");
        write("devices/block/sda/sda2/partition", "2\n");
        write("devices/block/sda/sda2/start", "-5\n");
        write("dev/block/other", "");
        for (number, target) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("8:2", "sda/sda2")] {
            symlink(format!("../../devices/block/{target}"), sys.path().join("dev/block").join(number)).expect("a link");
        }
        let find = |minor| Watched::find_below(sys.path(), 8, minor);
        assert_eq!(find(0).expect("the disk"), Watched::disk(8, 0));
        assert_eq!(find(1).expect("the partition"), Watched::part(8, 0, 2048, 1000));
        assert!(matches!(find(2), Err(Refused::DeviceUnknown { major: 8, minor: 2 })), "its start is none");
        assert!(matches!(find(3), Err(Refused::DeviceUnknown { .. })));
    }

    #[test]
    fn sectors_are_those_of_the_part() {
        let part = Watched::part(7, 3, 100, 50);
        assert_eq!(part.kernel_number(), 7 << 20 | 3);
        assert_eq!(part.sector(99, 8), None);
        assert_eq!(part.sector(100, 8), Some(0));
        assert_eq!(part.sector(149, 8), Some(49));
        assert_eq!(part.sector(150, 8), None);
        assert_eq!(part.sector(0, 0), Some(0), "a flush has no place");
        assert_eq!(Watched::disk(7, 3).sector(99, 8), Some(99));
        assert_eq!(Watched::part(7, 3, 5, u64::MAX).sector(u64::MAX - 1, 1), Some(u64::MAX - 6));
    }

    #[test]
    fn numbers_beyond_the_kernels_are_unknown() {
        for watched in [Watched::disk(1 << 12, 0), Watched::disk(7, 1 << 20), Watched::disk(4095, 1 << 19)] {
            assert!(matches!(watched.check_is_there(), Err(Refused::DeviceUnknown { .. })), "{watched:?}");
        }
    }
}
