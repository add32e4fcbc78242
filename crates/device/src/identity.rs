//! Is this backing device the one it was? What stays the same across restarts, and what changes when others write.
//!
//! A volume records the identity of its backing device when it is added and again each time it stops cleanly, after the last
//! write. Attached again, the recorded identity is compared with the present one. Looking is read-only.

use crate::spec::{SpecError, kind_of};
use crate::system::{DeviceNumber, SystemView, read_line};
use crate::{BlockingDevice, DeviceError, DeviceKind, OpenDevice, OpenError, busy, content_ids};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a device can be recognised by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Block device or file.
    pub kind: DeviceKind,
    /// Its size.
    pub size_bytes: u64,
    /// What stays with the device as long as it is the same: name ("wwid", "serial", "partition uuid", "inode" and so on) to
    /// value. Empty for devices that tell nothing about themselves.
    pub ids: BTreeMap<String, String>,
    /// UUIDs of what lies on it: name ("file system", "LVM physical volume", "partition table" and so on) to value.
    #[serde(default)]
    pub content: BTreeMap<String, String>,
    /// The file system on it, if one is known.
    pub file_system: Option<FileSystemIdentity>,
    /// What changes with every write by others: name ("ext4 write time" and so on) to value.
    pub stamps: BTreeMap<String, u64>,
}

/// Which file system is on a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileSystemIdentity {
    /// "ext4" (for ext2 and 3 too), "xfs", "btrfs".
    pub kind: String,
    /// Its UUID, in hexadecimal.
    pub uuid: String,
}

/// Why a device could not be identified.
#[derive(thiserror::Error, Debug)]
pub enum IdentityError {
    /// It cannot be looked at.
    #[error("{} cannot be identified: {source}", path.display())]
    System {
        /// Which device.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The path leads nowhere, or to something else.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// It cannot be opened for reading.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Identifies an open device.
pub fn identify(device: &OpenDevice, view: &SystemView) -> Result<DeviceIdentity, IdentityError> {
    let system = |source| IdentityError::System { path: device.path().to_path_buf(), source };
    let metadata = device.file().metadata().map_err(system)?;
    let ids = match device.kind() {
        DeviceKind::RegularFile => file_ids(&metadata, rustix::fs::fstatfs(device.file()).ok().as_ref()),
        DeviceKind::BlockDevice => block_ids(DeviceNumber::from_raw(metadata.rdev()), view),
    };
    let looked = look(device)?;
    let Content { ids: content, file_system, stamps } = looked;
    Ok(DeviceIdentity { kind: device.kind(), size_bytes: device.geometry().size_bytes, ids, content, file_system, stamps })
}

/// What a look at an open device's content tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// See [`DeviceIdentity::content`].
    pub ids: BTreeMap<String, String>,
    /// See [`DeviceIdentity::file_system`].
    pub file_system: Option<FileSystemIdentity>,
    /// See [`DeviceIdentity::stamps`].
    pub stamps: BTreeMap<String, u64>,
}

/// Reads what lies on an open device. It may be in use by its owner: a few blocks are read past all caches.
pub fn look(device: &OpenDevice) -> Result<Content, IdentityError> {
    let blocking = device.blocking()?;
    let mut stamps = BTreeMap::new();
    if device.kind() == DeviceKind::RegularFile {
        let system = |source| IdentityError::System { path: device.path().to_path_buf(), source };
        let metadata = device.file().metadata().map_err(system)?;
        let modified_ns = (metadata.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec() as u64);
        stamps.insert("file modification time".to_string(), modified_ns);
    }
    let file_system = file_system(&blocking)?.map(|(file_system, file_system_stamps)| {
        stamps.extend(file_system_stamps);
        file_system
    });
    let ids = content_ids::find(&blocking, file_system.as_ref())?;
    Ok(Content { ids, file_system, stamps })
}

/// What stays with the device at a path, without opening it: it may be in use.
pub fn ids_of(path: &Path, view: &SystemView) -> Result<(DeviceKind, BTreeMap<String, String>), IdentityError> {
    let kind = kind_of(path)?;
    let metadata = std::fs::metadata(path).map_err(|source| IdentityError::System { path: path.to_path_buf(), source })?;
    let ids = match kind {
        DeviceKind::RegularFile => file_ids(&metadata, rustix::fs::statfs(path).ok().as_ref()),
        DeviceKind::BlockDevice => block_ids(DeviceNumber::from_raw(metadata.rdev()), view),
    };
    Ok((kind, ids))
}

/// How large the block device at a path is, in bytes, without opening it; `None`: the kernel does not say.
pub fn size_of(path: &Path, view: &SystemView) -> Option<u64> {
    let number = DeviceNumber::from_raw(std::fs::metadata(path).ok()?.rdev());
    let sectors: u64 = read_line(&view.block_directory(number)?.join("size"))?.parse().ok()?;
    sectors.checked_mul(types::SECTOR_BYTES)
}

/// Programs that serve files (linux/magic.h, FUSE_SUPER_MAGIC) number them as they like, anew at each start.
pub(crate) const SERVED_FILE_SYSTEM: u32 = 0x6573_5546;

fn file_ids(metadata: &std::fs::Metadata, file_system: Option<&rustix::fs::StatFs>) -> BTreeMap<String, String> {
    if file_system.is_none_or(|answer| answer.f_type as u32 == SERVED_FILE_SYSTEM) {
        return BTreeMap::new();
    }
    let mut ids = BTreeMap::from([("inode".to_string(), metadata.ino().to_string())]);
    // Not every file system knows when a file was born.
    if let Some(born) = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()) {
        ids.insert("creation time".to_string(), format!("{}.{:09}", born.as_secs(), born.subsec_nanos()));
    }
    ids
}

/// What the kernel and udev know a block device by.
fn block_ids(number: DeviceNumber, view: &SystemView) -> BTreeMap<String, String> {
    let mut ids = BTreeMap::new();
    let Some(directory) = view.block_directory(number) else { return ids };
    let is_partition = directory.join("partition").exists();
    let disk = match directory.parent() {
        Some(parent) if is_partition => parent.to_path_buf(),
        _ => directory.clone(),
    };
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            ids.entry(name.to_string()).or_insert(value);
        }
    };
    for (name, file) in [
        ("wwid", "wwid"),
        ("wwid", "device/wwid"),
        ("serial", "serial"),
        ("serial", "device/serial"),
        ("device-mapper uuid", "dm/uuid"),
        ("md uuid", "md/uuid"),
        ("card id", "device/cid"),
        ("nbd backend", "backend"),
    ] {
        add(name, read_line(&disk.join(file)));
    }
    if let Some(file) = read_line(&disk.join("loop/backing_file")) {
        // One file can be behind several loop devices, each with its part.
        let offset = read_line(&disk.join("loop/offset")).filter(|offset| offset != "0");
        add("loop file", Some(offset.map_or(file.clone(), |offset| format!("{file} from byte {offset}"))));
        add("loop inode", loop_inode(Path::new(&file), view));
    }
    let udev = udev_properties(&view.run.join(format!("udev/data/b{number}")));
    let property = |name: &str| udev.get(name).cloned();
    add("udev serial", property("ID_SERIAL"));
    if is_partition {
        add("partition number", read_line(&directory.join("partition")));
        add("partition start", read_line(&directory.join("start")));
        let uevent = std::fs::read_to_string(directory.join("uevent")).unwrap_or_default();
        let uuid = uevent.lines().find_map(|line| line.strip_prefix("PARTUUID=").map(str::to_string));
        add("partition uuid", uuid.or_else(|| property("ID_PART_ENTRY_UUID")).map(|uuid| uuid.to_lowercase()));
    }
    ids
}

/// The number of the file behind a loop device: another file of the same name is another disk. `None` if the file is served by a
/// program, which might not answer.
fn loop_inode(file: &Path, view: &SystemView) -> Option<String> {
    let mounts = busy::mounts(view).ok()?;
    let metadata = busy::may_be_asked(file, &mounts, 0).then(|| std::fs::metadata(file).ok()).flatten()?;
    metadata.is_file().then(|| metadata.ino().to_string())
}

/// The properties udev has stored: lines `E:NAME=VALUE`. Empty where there is no udev.
fn udev_properties(path: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let property = |line: &str| {
        let (name, value) = line.strip_prefix("E:")?.split_once('=')?;
        Some((name.to_string(), value.to_string()))
    };
    text.lines().filter_map(property).collect()
}

/// Numbers that change when others write, by name.
type NamedStamps = BTreeMap<String, u64>;

/// The file system on a device, and the numbers in its superblock that change when it is mounted or written.
fn file_system(device: &dyn BlockingDevice) -> Result<Option<(FileSystemIdentity, NamedStamps)>, DeviceError> {
    let size_bytes = device.geometry().size_bytes;
    let mut head = vec![0; size_bytes.min(0x1_1000) as usize];
    device.read_at(0, &mut head)?;
    // A device too short for a field has no such file system.
    head.resize(0x1_1000, 0);
    let little = |at: usize, length: usize| head[at..at + length].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let big = |at: usize, length: usize| head[at..at + length].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (kind, uuid_at, stamps) = if little(0x438, 2) == 0xef53 && little(0x44c, 4) <= 1 && little(0x418, 4) <= 6 {
        // Times have their upper 8 bits in another place (ext4's superblock, s_wtime_hi and s_mtime_hi).
        let stamps = vec![
            ("ext4 write time", little(0x430, 4) | little(0x674, 1) << 32),
            ("ext4 mount time", little(0x42c, 4) | little(0x675, 1) << 32),
            ("ext4 mount count", little(0x434, 2)),
            ("ext4 KiB written", little(0x578, 8)),
        ];
        ("ext4", 0x468, stamps)
    } else if &head[..4] == b"XFSB" {
        // The log holds what is newer; these are current after every clean unmount.
        let mut stamps = vec![("xfs inodes", big(128, 8)), ("xfs free inodes", big(136, 8)), ("xfs free blocks", big(144, 8))];
        if big(100, 2) & 0xf == 5 {
            stamps.push(("xfs log sequence", big(240, 8)));
        }
        ("xfs", 0x20, stamps)
    } else if &head[0x1_0040..0x1_0048] == b"_BHRfS_M" {
        ("btrfs", 0x1_0020, vec![("btrfs generation", little(0x1_0048, 8))])
    } else {
        return Ok(None);
    };
    let uuid = head[uuid_at..uuid_at + 16].iter().map(|byte| format!("{byte:02x}")).collect();
    let stamps = stamps.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Ok(Some((FileSystemIdentity { kind: kind.to_string(), uuid }, stamps)))
}

/// What became of a device since its identity was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As far as can be seen it is the same, with the same content.
    Same,
    /// It is another device.
    Swapped {
        /// What differs.
        reason: String,
    },
    /// It is smaller.
    Shrank {
        /// Size when recorded.
        from_bytes: u64,
        /// Size now.
        to_bytes: u64,
    },
    /// Others have written to it.
    WrittenBehind {
        /// How that shows.
        reason: String,
    },
    /// It is larger, and otherwise the same.
    Grew {
        /// Size when recorded.
        from_bytes: u64,
        /// Size now.
        to_bytes: u64,
    },
}

impl Verdict {
    /// What happened, as the end of a sentence that begins with the device's name; `None` if nothing did.
    pub fn reason(&self) -> Option<String> {
        let exact = crate::size::format_exact;
        match self {
            Verdict::Same => None,
            Verdict::Swapped { reason } => Some(format!("is another device than before: {reason}")),
            Verdict::Shrank { from_bytes, to_bytes } => {
                Some(format!("shrank from {} to {} while it was detached", exact(*from_bytes), exact(*to_bytes)))
            }
            Verdict::WrittenBehind { reason } => Some(format!("was written to while it was detached: {reason}")),
            Verdict::Grew { from_bytes, to_bytes } => {
                Some(format!("grew from {} to {} while it was detached", exact(*from_bytes), exact(*to_bytes)))
            }
        }
    }
}

/// Whether the recorded stamps were taken after our own last write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamps {
    /// Recorded at a clean stop: any difference is somebody else's.
    Current,
    /// The daemon was killed, or dirty data went home since: our own writes have changed them, so they say nothing.
    Stale,
}

/// Judges what became of a device. The worst finding counts: another device, then shrunk, written, grown.
pub fn compare(recorded: &DeviceIdentity, present: &DeviceIdentity, stamps: Stamps) -> Verdict {
    if let Some(reason) = swapped(recorded, present) {
        return Verdict::Swapped { reason };
    }
    let (from_bytes, to_bytes) = (recorded.size_bytes, present.size_bytes);
    if to_bytes < from_bytes {
        return Verdict::Shrank { from_bytes, to_bytes };
    }
    if stamps == Stamps::Current
        && let Some(reason) = written(recorded, present)
    {
        return Verdict::WrittenBehind { reason };
    }
    if to_bytes > from_bytes {
        return Verdict::Grew { from_bytes, to_bytes };
    }
    Verdict::Same
}

fn swapped(recorded: &DeviceIdentity, present: &DeviceIdentity) -> Option<String> {
    if recorded.kind != present.kind {
        let name = |kind| if kind == DeviceKind::BlockDevice { "a block device" } else { "a file" };
        return Some(format!("it was {} and is now {}", name(recorded.kind), name(present.kind)));
    }
    let mut common = 0;
    for (name, was) in &recorded.ids {
        let Some(is) = present.ids.get(name) else { continue };
        if was != is {
            return Some(format!("its {name} was {was} and is now {is}"));
        }
        common += 1;
    }
    // Devices that tell nothing about themselves are known by what is on them.
    match (&recorded.file_system, &present.file_system) {
        (Some(was), Some(is)) if common == 0 && was != is => {
            Some(format!("its file system was {} {} and is now {} {}", was.kind, was.uuid, is.kind, is.uuid))
        }
        _ => None,
    }
}

fn written(recorded: &DeviceIdentity, present: &DeviceIdentity) -> Option<String> {
    let name = |file_system: &Option<FileSystemIdentity>| match file_system {
        Some(file_system) => format!("{} {}", file_system.kind, file_system.uuid),
        None => "no file system".to_string(),
    };
    if recorded.file_system != present.file_system {
        return Some(format!("it held {} and now holds {}", name(&recorded.file_system), name(&present.file_system)));
    }
    recorded.stamps.iter().find_map(|(name, was)| {
        let is = present.stamps.get(name)?;
        (was != is).then(|| format!("its {name} was {was} and is now {is}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;
    use std::fs;

    fn identity(size_bytes: u64, ids: &[(&str, &str)]) -> DeviceIdentity {
        DeviceIdentity {
            kind: DeviceKind::BlockDevice,
            size_bytes,
            ids: ids.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            content: BTreeMap::new(),
            file_system: None,
            stamps: BTreeMap::new(),
        }
    }

    fn with_ext4(mut identity: DeviceIdentity, uuid: &str, written: u64) -> DeviceIdentity {
        identity.file_system = Some(FileSystemIdentity { kind: "ext4".to_string(), uuid: uuid.to_string() });
        identity.stamps.insert("ext4 write time".to_string(), written);
        identity
    }

    fn check(recorded: &DeviceIdentity, present: &DeviceIdentity, reason: Option<&str>) {
        let verdict = compare(recorded, present, Stamps::Current);
        assert_eq!(verdict.reason().as_deref(), reason);
    }

    #[test]
    fn verdicts() {
        let was = with_ext4(identity(1 << 30, &[("wwid", "a"), ("serial", "1")]), "00", 100);
        check(&was, &was, None);
        let mut is = was.clone();
        is.ids.insert("wwid".to_string(), "b".to_string());
        is.size_bytes = 1 << 20;
        check(&was, &is, Some("is another device than before: its wwid was a and is now b"));
        let mut is = was.clone();
        is.size_bytes = 1 << 29;
        check(&was, &is, Some("shrank from 1GiB to 512MiB while it was detached"));
        is.size_bytes = 2 << 30;
        check(&was, &is, Some("grew from 1GiB to 2GiB while it was detached"));
        is.stamps.insert("ext4 write time".to_string(), 101);
        check(&was, &is, Some("was written to while it was detached: its ext4 write time was 100 and is now 101"));
        assert_eq!(compare(&was, &with_ext4(was.clone(), "00", 101), Stamps::Stale), Verdict::Same);
        let is = with_ext4(was.clone(), "01", 100);
        check(&was, &is, Some("was written to while it was detached: it held ext4 00 and now holds ext4 01"));
        let mut is = was.clone();
        is.kind = DeviceKind::RegularFile;
        check(&was, &is, Some("is another device than before: it was a block device and is now a file"));
    }

    #[test]
    fn a_device_without_ids_is_known_by_its_file_system() {
        let was = with_ext4(identity(1 << 30, &[]), "00", 1);
        let is = with_ext4(identity(1 << 30, &[("serial", "new kernels tell more")]), "01", 1);
        assert!(matches!(compare(&was, &is, Stamps::Stale), Verdict::Swapped { .. }));
        // Ids that only one side knows say nothing.
        let is = with_ext4(identity(1 << 30, &[("serial", "new kernels tell more")]), "00", 1);
        assert_eq!(compare(&was, &is, Stamps::Current), Verdict::Same);
    }

    #[test]
    fn it_is_kept_as_json() {
        let was = with_ext4(identity(1 << 30, &[("wwid", "odd \" name")]), "00", u64::MAX);
        let text = serde_json::to_string(&was).expect("it can be written");
        assert_eq!(serde_json::from_str::<DeviceIdentity>(&text).expect("it can be read"), was);
    }

    #[test]
    fn the_kernel_and_udev_are_asked_for_ids() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let view = SystemView {
            dev: root.path().join("dev"),
            sys: root.path().join("sys"),
            proc: root.path().join("proc"),
            run: root.path().join("run"),
        };
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("directories");
            fs::write(path, text).expect("a file");
        };
        write("sys/devices/block/sda/device/wwid", "naa.5000c500\n");
        write("sys/devices/block/sda/sda1/partition", "1\n");
        write("sys/devices/block/sda/sda1/start", "2048\n");
        write("sys/devices/block/sda/sda1/uevent", "MAJOR=8\nPARTN=1\n");
        write("run/udev/data/b8:1", "S:disk/by-id/x\nE:ID_SERIAL=ST500\nE:ID_PART_ENTRY_UUID=AB-CD\n");
        fs::create_dir_all(root.path().join("sys/dev/block")).expect("directories");
        std::os::unix::fs::symlink("../../devices/block/sda/sda1", root.path().join("sys/dev/block/8:1")).expect("a link");
        let ids = block_ids(DeviceNumber { major: 8, minor: 1 }, &view);
        let expected = [
            ("partition number", "1"),
            ("partition start", "2048"),
            ("partition uuid", "ab-cd"),
            ("udev serial", "ST500"),
            ("wwid", "naa.5000c500"),
        ];
        assert_eq!(ids, expected.map(|(name, value)| (name.to_string(), value.to_string())).into());
        assert!(block_ids(DeviceNumber { major: 9, minor: 9 }, &view).is_empty());
    }

    #[test]
    fn superblocks_give_uuid_and_stamps() {
        let stamps_of = |planted: &[(usize, &[u8])]| {
            let mut bytes = vec![0; 1 << 20];
            for (offset, data) in planted {
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
            file_system(&MemoryDevice::from_bytes(bytes)).expect("memory can be read")
        };
        assert_eq!(stamps_of(&[]), None);
        let (xfs, stamps) = stamps_of(&[(0, b"XFSB"), (0x20, &[0xab; 16]), (101, &[5]), (247, &[9])]).expect("xfs");
        assert_eq!((xfs.kind.as_str(), xfs.uuid, stamps["xfs log sequence"]), ("xfs", "ab".repeat(16), 9));
        let (btrfs, stamps) = stamps_of(&[(0x10040, b"_BHRfS_M"), (0x10048, &[0x34, 0x12])]).expect("btrfs");
        assert_eq!((btrfs.kind.as_str(), stamps["btrfs generation"]), ("btrfs", 0x1234));
        let ext4: [(usize, &[u8]); 4] = [(0x438, &[0x53, 0xef]), (0x430, &[0, 0, 0, 0x80]), (0x674, &[1]), (0x434, &[7])];
        let (ext4, stamps) = stamps_of(&ext4).expect("ext4");
        assert_eq!((ext4.kind.as_str(), stamps["ext4 mount count"]), ("ext4", 7));
        assert_eq!(stamps["ext4 write time"], 0x1_8000_0000);
        // Too short for any superblock.
        assert_eq!(file_system(&MemoryDevice::new(512)).expect("memory can be read"), None);
    }
}
