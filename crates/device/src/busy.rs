//! Is somebody using a device, and are two paths secretly the same place?
//!
//! Looking changes nothing. What is found is told as it is; whether it forbids something is the caller's decision (it does,
//! for an SSD and for a backing device).

use crate::extent::Extent;
use crate::open::{PATIENCE_PAUSE, PATIENCE_TRIES};
use crate::spec::{DeviceKind, SpecError, kind_of};
use crate::system::{DeviceNumber, SystemView, entries, read_line};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One use of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Usage {
    /// It, or (with its name) a partition of it, is mounted.
    Mounted {
        /// The partition, if it is one of the device's.
        partition: Option<String>,
        /// Where.
        mount_point: PathBuf,
    },
    /// It, or a partition of it, is swap space.
    Swap {
        /// The partition, if it is one of the device's.
        partition: Option<String>,
    },
    /// Another block device is built on it: device mapper, md, bcache.
    Holder {
        /// The partition, if it is one of the device's.
        partition: Option<String>,
        /// The kernel's name of that device: `dm-0`.
        holder: String,
    },
    /// A loop device shows its content.
    LoopDevice {
        /// The loop device's name: `loop3`.
        name: String,
    },
    /// Somebody has it open exclusively; nothing else shows who.
    Exclusive,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |partition: &Option<String>| match partition {
            Some(name) => format!("its partition {name} is "),
            None => "it is ".to_string(),
        };
        match self {
            Usage::Mounted { partition, mount_point } => {
                write!(f, "{}mounted at {}", part(partition), mount_point.display())
            }
            Usage::Swap { partition } => write!(f, "{}used as swap space", part(partition)),
            Usage::Holder { partition, holder } => write!(f, "{}part of /dev/{holder}", part(partition)),
            Usage::LoopDevice { name } => write!(f, "it is attached to /dev/{name}"),
            Usage::Exclusive => f.write_str("another program has opened it exclusively"),
        }
    }
}

/// Why it could not be found out.
#[derive(thiserror::Error, Debug)]
pub enum BusyError {
    /// The path leads nowhere.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel does not tell.
    #[error("{} cannot be read, so it is unknown what uses the device: {source}", path.display())]
    System {
        /// What could not be read.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// What a file lies on is not told.
    #[error("it is unknown which devices {} lies on: the file system mounted at {} ({kind}) does not show them", path.display(), point.display())]
    Unseen {
        /// The file, or one that it lies on.
        path: PathBuf,
        /// Where the file system is mounted.
        point: PathBuf,
        /// Its kind.
        kind: String,
    },
}

/// The uses as one sentence: "it is mounted at /mnt and attached to ..."; `None` if there are none.
pub fn describe(usages: &[Usage]) -> Option<String> {
    if usages.is_empty() {
        return None;
    }
    Some(usages.iter().map(Usage::to_string).collect::<Vec<String>>().join("; "))
}

/// All uses of the device at `path` by others. The caller must not have it open itself.
pub fn usages(path: &Path, view: &SystemView) -> Result<Vec<Usage>, BusyError> {
    let kind = kind_of(path)?;
    let metadata = metadata(path)?;
    let mut usages = Vec::new();
    match kind {
        DeviceKind::RegularFile => {
            if swaps(view)?.iter().any(|swap| is_same_file(swap, &metadata)) {
                usages.push(Usage::Swap { partition: None });
            }
        }
        DeviceKind::BlockDevice => {
            usages = usages_of_parts(DeviceNumber::from_raw(metadata.rdev()), view)?;
        }
    }
    let parts = if kind == DeviceKind::BlockDevice { view.partitions(DeviceNumber::from_raw(metadata.rdev())) } else { Vec::new() };
    add_loops(&mut usages, metadata.dev(), view, |file| {
        same_place(file, &metadata, kind) || parts.iter().any(|part| is_block_device(file, *part))
    })?;
    if usages.is_empty() && kind == DeviceKind::BlockDevice && stays_held_exclusively(path) {
        usages.push(Usage::Exclusive);
    }
    Ok(usages)
}

/// The uses of a block device that the kernel tells of without its being opened.
pub(crate) fn usages_of_block(number: DeviceNumber, view: &SystemView) -> Result<Vec<Usage>, BusyError> {
    let mut usages = usages_of_parts(number, view)?;
    let parts = view.partitions(number);
    add_loops(&mut usages, 0, view, |file| std::iter::once(&number).chain(&parts).any(|part| is_block_device(file, *part)))?;
    Ok(usages)
}

/// The uses of a block device and of its partitions, loop devices over it left out.
fn usages_of_parts(number: DeviceNumber, view: &SystemView) -> Result<Vec<Usage>, BusyError> {
    let mut usages = Vec::new();
    let parts = view.partitions(number).into_iter().map(|number| (number, view.block_name(number)));
    for (number, partition) in std::iter::once((number, None)).chain(parts) {
        block_usages(number, partition, view, &mut usages)?;
    }
    Ok(usages)
}

/// Adds the loop devices over what `is_it` knows, on the file system of that number.
fn add_loops(usages: &mut Vec<Usage>, on_device: u64, view: &SystemView, is_it: impl Fn(&Path) -> bool) -> Result<(), BusyError> {
    let loop_devices = view.loop_devices();
    let mounts = if loop_devices.is_empty() { Vec::new() } else { mounts(view)? };
    for (name, file) in loop_devices {
        if may_be_asked(&file, &mounts, on_device) && is_it(&file) {
            usages.push(Usage::LoopDevice { name });
        }
    }
    Ok(())
}

fn metadata(path: &Path) -> Result<fs::Metadata, BusyError> {
    fs::metadata(path).map_err(|source| BusyError::System { path: path.to_path_buf(), source })
}

fn block_usages(number: DeviceNumber, partition: Option<String>, view: &SystemView, usages: &mut Vec<Usage>) -> Result<(), BusyError> {
    for mount in mounts(view)? {
        if mount.is_of(number) {
            usages.push(Usage::Mounted { partition: partition.clone(), mount_point: mount.point });
        }
    }
    if swaps(view)?.iter().any(|swap| is_block_device(swap, number)) {
        usages.push(Usage::Swap { partition: partition.clone() });
    }
    for (holder, _) in view.related(number, "holders") {
        usages.push(Usage::Holder { partition: partition.clone(), holder });
    }
    Ok(())
}

pub(crate) fn is_block_device(path: &Path, number: DeviceNumber) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device() && DeviceNumber::from_raw(metadata.rdev()) == number)
}

fn is_same_file(path: &Path, metadata: &fs::Metadata) -> bool {
    fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()))
}

fn same_place(path: &Path, metadata: &fs::Metadata, kind: DeviceKind) -> bool {
    match kind {
        DeviceKind::RegularFile => is_same_file(path, metadata),
        DeviceKind::BlockDevice => is_block_device(path, DeviceNumber::from_raw(metadata.rdev())),
    }
}

/// Whether it is still held after a second: some holders go away within moments, such as the rings of a daemon that has just ended.
fn stays_held_exclusively(path: &Path) -> bool {
    (0..PATIENCE_TRIES).all(|tries| {
        if tries > 0 {
            std::thread::sleep(PATIENCE_PAUSE);
        }
        is_held_exclusively(path)
    })
}

pub(crate) fn is_held_exclusively(path: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// One line of the mount table.
#[derive(Clone)]
pub(crate) struct MountEntry {
    pub(crate) number: DeviceNumber,
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    source: PathBuf,
    /// Those of the file system, not of the mount.
    options: String,
}

impl MountEntry {
    /// Whether its file system lies on that block device. btrfs and others mount under a number of their own: then the source's path
    /// tells.
    pub(crate) fn is_of(&self, number: DeviceNumber) -> bool {
        self.number == number || (self.source.starts_with("/dev") && is_block_device(&self.source, number))
    }

    /// Whether it is in memory, the kernel's own, or another machine's.
    pub(crate) fn is_on_no_device(&self) -> bool {
        const KINDS: [&str; 15] = [
            "tmpfs",
            "ramfs",
            "rootfs",
            "devtmpfs",
            "hugetlbfs",
            "proc",
            "sysfs",
            "9p",
            "virtiofs",
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "ceph",
            "afs",
        ];
        KINDS.contains(&self.kind.as_str())
    }
}

/// The mount that a path is in: the last of the longest, since later mounts cover earlier ones.
pub(crate) fn mount_above<'a>(path: &Path, mounts: &'a [MountEntry]) -> Option<&'a MountEntry> {
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

/// Whether looking at `path` cannot wait for a program: file systems served by one (ours, under our own loop devices, among
/// them) answer only while that program does. What lies on such a file system is no file of another one, such as `wanted_device`.
pub(crate) fn may_be_asked(path: &Path, mounts: &[MountEntry], wanted_device: u64) -> bool {
    const SERVED: [&str; 6] = ["fuse", "nfs", "cifs", "smb", "9p", "ceph"];
    mount_above(path, mounts).is_none_or(|mount| {
        let served = mount.kind != "fuseblk" && SERVED.iter().any(|name| mount.kind.starts_with(name));
        !served || mount.number == DeviceNumber::from_raw(wanted_device)
    })
}

/// Whether a program serves the file system that a path is in, or may: looking at it could wait for that.
pub(crate) fn is_served(path: &Path, view: &SystemView) -> bool {
    mounts(view).map_or(true, |mounts| !may_be_asked(path, &mounts, 0))
}

/// proc(5), mountinfo: id, parent, number, root, mount point, options, optional fields, "-", type, source, options.
pub(crate) fn mounts(view: &SystemView) -> Result<Vec<MountEntry>, BusyError> {
    mounts_of(&view.proc.join("self"))
}

/// The mount table of a process, by its directory in proc.
pub(crate) fn mounts_of(process: &Path) -> Result<Vec<MountEntry>, BusyError> {
    let path = process.join("mountinfo");
    let text = fs::read_to_string(&path).map_err(|source| BusyError::System { path, source })?;
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let number = DeviceNumber::parse(before.get(2)?)?;
        let (kind, rest) = after.split_once(' ')?;
        let (source, options) = rest.split_once(' ').unwrap_or((rest, ""));
        let (point, source) = (unescape(before.get(4)?), unescape(source));
        Some(MountEntry { number, point, kind: kind.to_string(), source, options: options.to_string() })
    };
    Ok(text.lines().filter_map(mount).collect())
}

/// proc(5), swaps: a line of headings, then the path first on each line. No file means a kernel without swap.
pub(crate) fn swaps(view: &SystemView) -> Result<Vec<PathBuf>, BusyError> {
    let path = view.proc.join("swaps");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|source| BusyError::System { path, source })?,
    };
    Ok(text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape).collect())
}

/// The kernel writes blanks, tabs, newlines and backslashes in paths as `\040` and so on.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Something that bytes can lie on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Block(DeviceNumber),
    File { device: u64, inode: u64 },
}

/// How two paths overlap; `None` if they do not. The text is one sentence that names both.
///
/// Found are: the same device or file by another name, hard link, symbolic link or bind mount; a partition and its disk; a
/// loop device and its file, and two over the same part of one file; a file and the block devices its file system is on; devices built
/// on one another (LVM, md); and disks that are one by what they call themselves, however many ways lead to them.
pub fn overlap(one: &Path, other: &Path, view: &SystemView) -> Result<Option<String>, BusyError> {
    for path in [one, other] {
        kind_of(path)?;
    }
    let ((one_places, _), (other_places, _)) = (places(one, view)?, places(other, view)?);
    let (Some(one_place), Some(other_place)) = (one_places.first(), other_places.first()) else { return Ok(None) };
    let (one, other) = (one.display(), other.display());
    let (one_extent, other_extent) = (extent(one_place, view), extent(other_place, view));
    let lies_in = |places: &[Place], whole: &Extent| places.iter().any(|place| extent(place, view).is_in(whole));
    Ok(if one_place == other_place {
        Some(format!("{one} and {other} are the same {}", name(one_place)))
    } else if other_places.contains(one_place) {
        Some(format!("{other} lies on {one}"))
    } else if one_places.contains(other_place) {
        Some(format!("{one} lies on {other}"))
    } else if one_extent.meets(&other_extent) {
        Some(format!("{one} and {other} have the same bytes: {}", one_extent.told()))
    } else if lies_in(&other_places, &one_extent) {
        Some(format!("{other} lies on {one}: {}", one_extent.told()))
    } else if lies_in(&one_places, &other_extent) {
        Some(format!("{one} lies on {other}: {}", other_extent.told()))
    } else {
        None
    })
}

fn extent(place: &Place, view: &SystemView) -> Extent {
    match place {
        Place::Block(number) => Extent::of_block(*number, view),
        Place::File { device, inode } => Extent::of_file(*device, *inode),
    }
}

/// Whether a file, a directory or another device lies on `device`, as far as the kernel tells it: how it does, in a sentence.
///
/// # Errors
/// If it is not found there, and not all is known that it lies on.
pub fn carries(device: &Path, file: &Path, view: &SystemView) -> Result<Option<String>, BusyError> {
    let wanted = own_place(&metadata(device)?);
    let (places, unseen) = places(file, view)?;
    if places.contains(&wanted) {
        return Ok(Some(format!("{} lies on {}", file.display(), device.display())));
    }
    unseen.map_or(Ok(None), Err)
}

/// Swap areas that lie on a device, or are it: pages of any program may be written there, hearth's among them.
///
/// # Errors
/// If the kernel does not tell what one of them lies on.
pub fn swap_areas_on(device: &Path, view: &SystemView) -> Result<Vec<PathBuf>, BusyError> {
    let mut on_it = Vec::new();
    for area in swaps(view)? {
        if carries(device, &area, view)?.is_some() {
            on_it.push(area);
        }
    }
    Ok(on_it)
}

/// The kinds of the file systems that are mounted from a block device.
pub fn mounted_kinds(device: &Path, view: &SystemView) -> Result<Vec<String>, BusyError> {
    let number = DeviceNumber::from_raw(metadata(device)?.rdev());
    Ok(mounts(view)?.into_iter().filter(|mount| mount.is_of(number)).map(|mount| mount.kind).collect())
}

fn name(place: &Place) -> &'static str {
    match place {
        Place::Block(_) => "block device",
        Place::File { .. } => "file",
    }
}

fn own_place(metadata: &fs::Metadata) -> Place {
    use std::os::unix::fs::FileTypeExt;
    match metadata.file_type().is_block_device() {
        true => Place::Block(DeviceNumber::from_raw(metadata.rdev())),
        false => Place::File { device: metadata.dev(), inode: metadata.ino() },
    }
}

/// The path's own place first, then all it lies on; and why that may not be all.
fn places(path: &Path, view: &SystemView) -> Result<(Vec<Place>, Option<BusyError>), BusyError> {
    let (mut places, mut seen, mut unseen) = (Vec::new(), BTreeSet::new(), None);
    let mut waiting = vec![(own_place(&metadata(path)?), path.to_path_buf())];
    while let Some((place, path)) = waiting.pop() {
        if !seen.insert(place.clone()) {
            continue;
        }
        match &place {
            // Most file systems that lie on one block device have its number.
            Place::File { device, .. } => match DeviceNumber::from_raw(*device) {
                number if view.block_directory(number).is_some() => waiting.push((Place::Block(number), path)),
                _ => match below_file(&path, view) {
                    Ok(found) => waiting.extend(found),
                    Err(error) => drop(unseen.get_or_insert(error)),
                },
            },
            Place::Block(number) => waiting.extend(below(*number, view)),
        }
        places.push(place);
    }
    Ok((places, unseen))
}

/// What a file lies on whose file system has a number of its own, by the mount that it is in.
fn below_file(path: &Path, view: &SystemView) -> Result<Vec<(Place, PathBuf)>, BusyError> {
    let path = fs::canonicalize(path).map_err(|source| BusyError::System { path: path.to_path_buf(), source })?;
    let mounts = mounts(view)?;
    let unknown = |point: &Path, kind: &str| BusyError::Unseen { path: path.clone(), point: point.into(), kind: kind.into() };
    let mount = mount_above(&path, &mounts).ok_or_else(|| unknown(Path::new("/"), "no known one"))?;
    if mount.is_on_no_device() {
        return Ok(Vec::new());
    }
    let blocks = |devices: Vec<(DeviceNumber, PathBuf)>| devices.into_iter().map(|(number, path)| (Place::Block(number), path)).collect();
    let found = if mount.kind == "overlay" { layers_of(mount) } else { devices_of(mount, view).map(blocks) };
    found.filter(|found| !found.is_empty()).ok_or_else(|| unknown(&mount.point, &mount.kind))
}

/// The directories that an overlay consists of; `None` if one of them is not to be seen from here.
pub(crate) fn layers_of(mount: &MountEntry) -> Option<Vec<(Place, PathBuf)>> {
    let mut layers = Vec::new();
    for option in mount.options.split(',') {
        let Some((name, value)) = option.split_once('=') else { continue };
        if !matches!(name, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir") {
            continue;
        }
        let value = unescape(value);
        // Colons within names have a backslash before them: such names are not found.
        for layer in value.to_str()?.split(':').filter(|layer| !layer.is_empty()) {
            let metadata = fs::metadata(layer).ok()?;
            let is_itself = DeviceNumber::from_raw(metadata.dev()) == mount.number;
            layers.push((!is_itself).then(|| (own_place(&metadata), PathBuf::from(layer)))?);
        }
    }
    Some(layers)
}

/// The block devices that a mounted file system names as its source, and all others of a btrfs; `None` if the source is another thing.
pub(crate) fn devices_of(mount: &MountEntry, view: &SystemView) -> Option<Vec<(DeviceNumber, PathBuf)>> {
    // bcachefs names all of its devices.
    let sources = mount.source.to_str()?.split(':').map(Path::new);
    let mut devices: Vec<DeviceNumber> = sources.map(|source| block_number(source, view)).collect::<Option<_>>()?;
    if mount.kind == "btrfs" {
        let members = |file_system: &PathBuf| -> Vec<DeviceNumber> {
            let number = |path: PathBuf| DeviceNumber::parse(&read_line(&path.join("dev"))?);
            entries(&file_system.join("devices")).into_iter().filter_map(number).collect()
        };
        let mut all = entries(&view.sys.join("fs/btrfs")).into_iter().map(|path| members(&path));
        devices.extend(all.find(|members| devices.iter().any(|device| members.contains(device))).unwrap_or_default());
    }
    Some(devices.into_iter().map(|number| (number, mount.source.clone())).collect())
}

/// The number of a block device by its path, or by its name for the kernel.
pub(crate) fn block_number(path: &Path, view: &SystemView) -> Option<DeviceNumber> {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => Some(DeviceNumber::from_raw(metadata.rdev())),
        _ => {
            let name = path.strip_prefix("/dev").ok()?;
            DeviceNumber::parse(&read_line(&view.sys.join("class/block").join(name).join("dev"))?)
        }
    }
}

/// What a block device directly lies on.
fn below(number: DeviceNumber, view: &SystemView) -> Vec<(Place, PathBuf)> {
    let block = |number| (Place::Block(number), PathBuf::new());
    let mut places: Vec<(Place, PathBuf)> = view.disk_of_partition(number).map(block).into_iter().collect();
    places.extend(view.related(number, "slaves").into_iter().filter_map(|(_, number)| number.map(block)));
    let file = view.block_directory(number).and_then(|directory| read_line(&directory.join("loop/backing_file")));
    // The file of one of our own loop devices is served by this very process, or by one that has not come yet; and of a file whose
    // mount is not to be seen the kernel tells the path "/".
    if let Some(file) = file
        && !is_served(Path::new(&file), view)
        && let Ok(metadata) = fs::metadata(&file)
        && !metadata.is_dir()
    {
        places.push((own_place(&metadata), file.into()));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_kernel_are_undone() {
        assert_eq!(unescape("/mnt/a\\040b\\134c"), PathBuf::from("/mnt/a b\\c"));
        assert_eq!(unescape("/mnt/\\04"), PathBuf::from("/mnt/\\04"));
    }

    #[test]
    fn files_that_a_program_serves_are_not_looked_at() {
        let mount = |point: &str, kind: &str, minor| MountEntry {
            number: DeviceNumber { major: 0, minor },
            point: PathBuf::from(point),
            kind: kind.to_string(),
            source: PathBuf::from("x"),
            options: String::new(),
        };
        let mounts = [mount("/", "ext4", 1), mount("/srv", "ext4", 2), mount("/srv/disk", "fuse.hearth", 3), mount("/net", "nfs4", 4)];
        let may = |path: &str, minor| may_be_asked(Path::new(path), &mounts, libc::makedev(0, minor));
        assert!(may("/srv/disk2", 9) && may("/srv/other", 9) && may("/x", 9));
        assert!(!may("/srv/disk", 9) && !may("/net/a/b", 9));
        assert!(may("/srv/disk", 3), "the file asked about is there itself");
    }

    #[test]
    fn uses_make_a_sentence() {
        let mounted = Usage::Mounted { partition: Some("sda1".to_string()), mount_point: PathBuf::from("/mnt") };
        let held = Usage::Holder { partition: None, holder: "dm-0".to_string() };
        assert_eq!(describe(&[mounted, held]).as_deref(), Some("its partition sda1 is mounted at /mnt; it is part of /dev/dm-0"));
        assert_eq!(describe(&[]), None);
    }
}
