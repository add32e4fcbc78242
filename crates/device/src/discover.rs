//! Which block devices this machine has, what they are called, who uses them and what is on them.
//!
//! [`list`] asks the kernel alone and opens nothing: it answers even if a disk is dead. [`look`] opens one device to read the marks on it, and only one
//! that nobody uses; a device that does not answer keeps its caller waiting, so give it a thread.

use crate::busy::{self, BusyError, Usage};
use crate::signature::{self, OwnMark, Signature};
use crate::system::{DeviceNumber, SystemView, entries, read_line};
use crate::{Access, OpenDevice};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use types::SECTOR_BYTES;

/// What sort of block device it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// A whole disk.
    Disk,
    /// A part of one.
    Partition,
    /// A file (or another device) shown as a block device.
    Loop,
    /// An md array.
    Raid,
    /// A device-mapper target: LVM, LUKS, multipath.
    Mapped,
}

impl Sort {
    /// The word in listings.
    pub const fn word(self) -> &'static str {
        match self {
            Sort::Disk => "disk",
            Sort::Partition => "partition",
            Sort::Loop => "loop",
            Sort::Raid => "raid",
            Sort::Mapped => "mapped",
        }
    }
}

/// A block device of this machine, as the kernel tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// `/dev/…`.
    pub path: PathBuf,
    /// A name that stays the same over restarts, if udev made one.
    pub stable_path: Option<PathBuf>,
    /// What sort it is.
    pub sort: Sort,
    /// The disk it is a partition of.
    pub parent: Option<PathBuf>,
    /// Its size.
    pub size_bytes: u64,
    /// What its maker calls it; of an array, its level.
    pub model: Option<String>,
    /// Whether it has turning platters; `None` if the kernel does not say.
    pub rotational: Option<bool>,
    /// Whether it can only be read.
    pub read_only: bool,
    /// What a loop device shows.
    pub loop_file: Option<PathBuf>,
    /// A loop device over a file that a program serves (FUSE, NFS), a partition of it, or what stands on these: reading it waits for that program.
    pub served: bool,
    /// Who uses it or a partition of it.
    pub usages: Vec<Usage>,
}

/// Memory, tapes of old and drives whose medium goes: nothing that is a disk of any kind for a cache.
const LEFT_OUT: [&str; 4] = ["ram", "zram", "fd", "sr"];

/// All block devices with something in them, disks before their partitions, in the order of their names. Left out are those without a size (free
/// loop devices, empty card readers), RAM disks, floppy and optical drives, and paths that the kernel hides behind another.
///
/// # Errors
/// [`BusyError::System`] if the kernel does not tell what is mounted: nothing may be called free then.
pub fn list(view: &SystemView) -> Result<Vec<Found>, BusyError> {
    let mounts = busy::mounts(view)?;
    let stable = stable_names(view);
    let mut found = Vec::new();
    for directory in entries(&view.sys.join("block")) {
        let name = file_name(&directory);
        let numbered = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
        if LEFT_OUT.into_iter().any(numbered) || read_line(&directory.join("hidden")).as_deref() == Some("1") {
            continue;
        }
        let sort = match () {
            () if directory.join("loop").is_dir() || name.starts_with("loop") => Sort::Loop,
            () if directory.join("md").is_dir() => Sort::Raid,
            () if directory.join("dm").is_dir() => Sort::Mapped,
            () => Sort::Disk,
        };
        let Some(disk) = one(&directory, &directory, sort, &mounts, &stable, view)? else { continue };
        let disk_path = disk.path.clone();
        found.push(disk);
        for part in entries(&directory).into_iter().filter(|path| path.join("partition").exists()) {
            let part = one(&part, &directory, Sort::Partition, &mounts, &stable, view)?;
            found.extend(part.map(|part| Found { parent: Some(disk_path.clone()), ..part }));
        }
    }
    spread_served(&mut found, view);
    found.sort_by_key(|found| natural(&found.path));
    Ok(found)
}

/// What stands on a device that a program serves (LVM, md) waits for that program, too.
fn spread_served(found: &mut [Found], view: &SystemView) {
    let name_of = |found: &Found| found.path.strip_prefix(&view.dev).unwrap_or(&found.path).display().to_string().replace('/', "!");
    loop {
        let served: Vec<String> = found.iter().filter(|found| found.served).map(name_of).collect();
        let stands_on_one = |found: &Found| {
            let below = entries(&view.sys.join("block").join(name_of(found)).join("slaves"));
            !found.served && below.iter().any(|below| served.contains(&file_name(below)))
        };
        let more: Vec<usize> = (0..found.len()).filter(|at| stands_on_one(&found[*at])).collect();
        if more.is_empty() {
            return;
        }
        more.into_iter().for_each(|at| found[at].served = true);
    }
}

fn one(
    directory: &Path,
    disk: &Path,
    sort: Sort,
    mounts: &[busy::MountEntry],
    stable: &BTreeMap<String, PathBuf>,
    view: &SystemView,
) -> Result<Option<Found>, BusyError> {
    let name = file_name(directory);
    let sectors = read_line(&directory.join("size")).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let Some(number) = read_line(&directory.join("dev")).and_then(|text| DeviceNumber::parse(&text)).filter(|_| sectors > 0) else {
        return Ok(None);
    };
    let flag = |path: PathBuf| read_line(&path).map(|text| text != "0");
    let loop_file_of = |directory: &Path| read_line(&directory.join("loop/backing_file")).map(PathBuf::from);
    let loop_file = loop_file_of(directory);
    // A partition is served by whoever serves the disk that it is of.
    let served = loop_file_of(disk).is_some_and(|file| !busy::may_be_asked(&file, mounts, 0));
    let mapped = read_line(&directory.join("dm/name")).map(|name| view.dev.join("mapper").join(name));
    Ok(Some(Found {
        // The kernel writes a slash in a name as an exclamation mark.
        path: view.dev.join(name.replace('!', "/")),
        stable_path: mapped.or_else(|| stable.get(&name).cloned()),
        sort,
        parent: None,
        // This file counts in 512 bytes, whatever the device's blocks are.
        size_bytes: sectors.saturating_mul(SECTOR_BYTES),
        model: model(disk),
        rotational: flag(disk.join("queue/rotational")),
        read_only: flag(directory.join("ro")).unwrap_or(false),
        served,
        loop_file,
        usages: busy::usages_of_block(number, view)?,
    }))
}

/// What the maker calls a disk: vendor and model as far as they are names, and not numbers of a bus.
fn model(disk: &Path) -> Option<String> {
    let named = |file: &str| read_line(&disk.join("device").join(file)).filter(|text| !text.starts_with("0x"));
    let vendor = named("vendor").filter(|vendor| vendor != "ATA");
    match (vendor, named("model")) {
        (Some(vendor), Some(model)) if !model.starts_with(&vendor) => Some(format!("{vendor} {model}")),
        (_, Some(model)) => Some(model),
        (vendor, None) => vendor.or_else(|| read_line(&disk.join("md/level"))),
    }
}

/// By the kernel's name, the link in `/dev/disk/by-id` that tells people most: one with the maker's words rather than a number, the shortest of them.
fn stable_names(view: &SystemView) -> BTreeMap<String, PathBuf> {
    const NUMBERS: [&str; 6] = ["wwn-", "nvme-eui.", "nvme-nvme.", "scsi-3", "dm-uuid-", "md-uuid-"];
    // A name by what is on the disk goes with what is on it.
    const OF_CONTENT: [&str; 1] = ["lvm-pv-uuid-"];
    let mut best: BTreeMap<String, (bool, usize, PathBuf)> = BTreeMap::new();
    for link in entries(&view.dev.join("disk/by-id")) {
        let link_name = file_name(&link);
        let Ok(target) = std::fs::read_link(&link) else { continue };
        if OF_CONTENT.iter().any(|prefix| link_name.starts_with(prefix)) {
            continue;
        }
        let number = NUMBERS.iter().any(|prefix| link_name.starts_with(prefix));
        let candidate = (number, link_name.len(), link);
        match best.entry(file_name(&target)) {
            std::collections::btree_map::Entry::Occupied(mut known) if candidate < *known.get() => drop(known.insert(candidate)),
            std::collections::btree_map::Entry::Occupied(_) => {}
            std::collections::btree_map::Entry::Vacant(new) => drop(new.insert(candidate)),
        }
    }
    best.into_iter().map(|(name, (_, _, link))| (name, link)).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A path so that `sda10` comes behind `sda9`: digits and the rest in turn, numbers by their value.
fn natural(path: &Path) -> Vec<(String, u64)> {
    let (mut parts, mut word, mut digits) = (Vec::new(), String::new(), String::new());
    let value = |digits: &str| digits.parse().unwrap_or(u64::MAX);
    for c in path.to_string_lossy().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            parts.push((std::mem::take(&mut word), value(&std::mem::take(&mut digits))));
        }
        word.push(c);
    }
    parts.push((word, if digits.is_empty() { 0 } else { value(&digits) }));
    parts
}

/// What a look at a device has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// Somebody uses it, so it was not read: who, as [`busy::describe`] tells it.
    InUse(String),
    /// These marks; none on a device that may be taken.
    Holds(Vec<Signature>),
    /// It could not be looked at: why, as one sentence that begins with the path.
    Failed(String),
}

/// Looks at a device without changing it. One that is in use, or that a program serves, is not opened.
pub fn look(device: &Found, own: &[OwnMark]) -> Look {
    if let Some(users) = busy::describe(&device.usages) {
        return Look::InUse(users);
    }
    if device.served {
        let file = device.loop_file.as_deref().map_or("what lies in a file".into(), |file| file.display().to_string());
        return Look::InUse(format!("it shows {file}, which another program serves"));
    }
    if busy::is_held_exclusively(&device.path) {
        return Look::InUse(Usage::Exclusive.to_string());
    }
    let blocking = match OpenDevice::open(&device.path, Access::ReadOnly).and_then(|opened| opened.blocking()) {
        Ok(blocking) => blocking,
        Err(error) => return Look::Failed(error.to_string()),
    };
    match signature::find(&blocking, own) {
        Ok(signatures) => Look::Holds(signatures),
        Err(error) => Look::Failed(format!("{} cannot be read: {error}", device.path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_people() {
        let mut paths: Vec<PathBuf> =
            ["/dev/sda10", "/dev/sdb", "/dev/sda", "/dev/sda9", "/dev/nvme0n1p2", "/dev/nvme0n1"].map(PathBuf::from).into();
        paths.sort_by_key(|path| natural(path));
        let shown: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
        assert_eq!(shown, ["/dev/nvme0n1", "/dev/nvme0n1p2", "/dev/sda", "/dev/sda9", "/dev/sda10", "/dev/sdb"]);
    }
}
