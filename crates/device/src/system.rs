//! Where the kernel and udev tell about devices. A test puts a made-up tree in its place.

use std::fs;
use std::path::{Path, PathBuf};

/// The directories that are asked.
#[derive(Clone, Debug)]
pub struct SystemView {
    /// `/dev`.
    pub dev: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/run`, where udev keeps what it found out.
    pub run: PathBuf,
}

impl Default for SystemView {
    fn default() -> SystemView {
        let [dev, sys, proc, run] = ["/dev", "/sys", "/proc", "/run"].map(PathBuf::from);
        SystemView { dev, sys, proc, run }
    }
}

/// A block device's number, `major:minor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

impl DeviceNumber {
    /// From `st_rdev` or `st_dev`.
    pub fn from_raw(raw: u64) -> DeviceNumber {
        DeviceNumber { major: libc::major(raw), minor: libc::minor(raw) }
    }

    /// As `st_rdev` has it.
    pub fn raw(self) -> u64 {
        libc::makedev(self.major, self.minor)
    }

    /// From `8:1`.
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// First line of a small file, trimmed; `None` if it is not there or empty.
pub(crate) fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    if line.is_empty() { None } else { Some(line.to_string()) }
}

impl SystemView {
    /// What the kernel says about a block device, symbolic links resolved: `.../block/sda/sda1`. `None` if there is none
    /// of that number (as for file systems without a device).
    pub(crate) fn block_directory(&self, number: DeviceNumber) -> Option<PathBuf> {
        fs::canonicalize(self.sys.join("dev/block").join(number.to_string())).ok()
    }

    /// The kernel's name of a block device: `sda1`.
    pub(crate) fn block_name(&self, number: DeviceNumber) -> Option<String> {
        Some(self.block_directory(number)?.file_name()?.to_string_lossy().into_owned())
    }

    /// The whole disk that a partition is on; `None` for anything that is no partition.
    pub(crate) fn disk_of_partition(&self, number: DeviceNumber) -> Option<DeviceNumber> {
        let directory = self.block_directory(number)?;
        if !directory.join("partition").exists() {
            return None;
        }
        DeviceNumber::parse(&read_line(&directory.parent()?.join("dev"))?)
    }

    /// The partitions of a disk.
    pub(crate) fn partitions(&self, disk: DeviceNumber) -> Vec<DeviceNumber> {
        let Some(directory) = self.block_directory(disk) else { return Vec::new() };
        let mut partitions: Vec<DeviceNumber> = entries(&directory)
            .into_iter()
            .filter(|path| path.join("partition").exists())
            .filter_map(|path| DeviceNumber::parse(&read_line(&path.join("dev"))?))
            .collect();
        partitions.sort();
        partitions
    }

    /// The names in `holders` (what is built on the device) or `slaves` (what it is built on).
    pub(crate) fn related(&self, number: DeviceNumber, relation: &str) -> Vec<(String, Option<DeviceNumber>)> {
        let Some(directory) = self.block_directory(number) else { return Vec::new() };
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        entries(&directory.join(relation))
            .into_iter()
            .map(|path| (name(&path), read_line(&path.join("dev")).and_then(|text| DeviceNumber::parse(&text))))
            .collect()
    }

    /// All loop devices with their files.
    pub(crate) fn loop_devices(&self) -> Vec<(String, PathBuf)> {
        let backing = |directory: PathBuf| {
            let name = directory.file_name()?.to_string_lossy().into_owned();
            let file = read_line(&directory.join("loop/backing_file"))?;
            Some((name, PathBuf::from(file)))
        };
        entries(&self.sys.join("block")).into_iter().filter_map(backing).collect()
    }
}

/// What is in a directory, sorted; empty if it cannot be read (sysfs directories come and go).
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}
