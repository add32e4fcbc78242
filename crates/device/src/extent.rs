//! Which bytes a block device is, in terms of what it is made of: two devices over the same file, and two ways to one disk, are the
//! same bytes under two names.

use crate::busy::is_served;
use crate::system::{DeviceNumber, SystemView, read_line};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use types::SECTOR_BYTES;

/// What bytes are counted in.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Base {
    /// A block device that tells nothing of what it is.
    Block(DeviceNumber),
    /// A disk by what it calls itself, which it does by every way to it.
    Disk(String),
    /// A file by its file system's number and its own.
    File(u64, u64),
}

/// A range of bytes of something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    base: Base,
    bytes: Range<u64>,
}

impl Extent {
    /// All of a file.
    pub(crate) fn of_file(device: u64, inode: u64) -> Extent {
        Extent { base: Base::File(device, inode), bytes: 0..u64::MAX }
    }

    /// A block device: a partition is a part of its disk, a loop device a part of its file.
    pub(crate) fn of_block(number: DeviceNumber, view: &SystemView) -> Extent {
        Extent::within(number, view, 0)
    }

    /// `depth`: loop devices can be over one another, and so in a circle while one looks.
    fn within(number: DeviceNumber, view: &SystemView, depth: u32) -> Extent {
        const DEPTH_MAX: u32 = 16;
        let alone = |size_bytes: u64| Extent { base: Base::Block(number), bytes: 0..size_bytes };
        let Some(directory) = view.block_directory(number).filter(|_| depth < DEPTH_MAX) else { return alone(u64::MAX) };
        let sectors = |file: &str| read_line(&directory.join(file)).and_then(|text| text.parse::<u64>().ok());
        let size_bytes = sectors("size").and_then(|sectors| sectors.checked_mul(SECTOR_BYTES)).filter(|size| *size > 0).unwrap_or(u64::MAX);
        if let Some(disk) = view.disk_of_partition(number) {
            return match sectors("start").and_then(|start| start.checked_mul(SECTOR_BYTES)) {
                Some(start_bytes) => Extent::within(disk, view, depth + 1).part(start_bytes, size_bytes),
                None => alone(size_bytes),
            };
        }
        if let Some(file) = read_line(&directory.join("loop/backing_file")) {
            let offset_bytes = sectors("loop/offset").unwrap_or(0);
            return match below_loop(Path::new(&file), view, depth) {
                Some(below) => below.part(offset_bytes, size_bytes),
                None => alone(size_bytes),
            };
        }
        match called(&directory) {
            Some(name) => Extent { base: Base::Disk(name), bytes: 0..size_bytes },
            None => alone(size_bytes),
        }
    }

    fn part(self, start_bytes: u64, size_bytes: u64) -> Extent {
        let start = self.bytes.start.saturating_add(start_bytes);
        let end = start.saturating_add(size_bytes).min(self.bytes.end);
        Extent { base: self.base, bytes: start..end }
    }

    /// Whether both have a byte in common.
    pub(crate) fn meets(&self, other: &Extent) -> bool {
        self.base == other.base && self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }

    /// Whether all of it is in the other.
    pub(crate) fn is_in(&self, other: &Extent) -> bool {
        self.base == other.base && other.bytes.start <= self.bytes.start && self.bytes.end <= other.bytes.end
    }

    /// What both are made of, as the end of a sentence.
    pub(crate) fn told(&self) -> String {
        match &self.base {
            Base::Block(number) => format!("both are block device {number}"),
            Base::Disk(name) => format!("both say that they are {name}: two ways to one disk"),
            Base::File(_, inode) => format!("both show the same file, inode {inode}"),
        }
    }
}

/// What a loop device shows. `None`: its file is served by a program, which might not answer, or is not to be found by its name.
fn below_loop(file: &Path, view: &SystemView, depth: u32) -> Option<Extent> {
    if is_served(file, view) {
        return None;
    }
    let metadata = std::fs::metadata(file).ok()?;
    match metadata.file_type() {
        kind if kind.is_block_device() => Some(Extent::within(DeviceNumber::from_raw(metadata.rdev()), view, depth + 1)),
        kind if kind.is_file() => Some(Extent::of_file(metadata.dev(), metadata.ino())),
        _ => None,
    }
}

/// What a disk calls itself. A serial number counts together with the maker's names and the size: it is unique among these only.
fn called(directory: &Path) -> Option<String> {
    let first = |files: &[&str]| files.iter().find_map(|file| read_line(&directory.join(file)));
    if let Some(wwid) = first(&["wwid", "device/wwid"]) {
        return Some(wwid);
    }
    let serial = first(&["serial", "device/serial"])?;
    let names = [first(&["device/vendor"]), first(&["device/model", "device/name"]), Some(format!("serial number {serial}"))];
    let size = read_line(&directory.join("size")).map(|sectors| format!("({sectors} sectors)"));
    Some(names.into_iter().chain([size]).flatten().collect::<Vec<String>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Machine {
        root: tempfile::TempDir,
        view: SystemView,
    }

    impl Machine {
        fn new() -> Machine {
            let root = tempfile::tempdir().expect("a temporary directory");
            let at = |name: &str| root.path().join(name);
            let view = SystemView { dev: at("dev"), sys: at("sys"), proc: at("proc"), run: at("run") };
            let machine = Machine { root, view };
            machine.write("proc/self/mountinfo", "30 1 8:0 / / rw - ext4 /dev/sda rw\n");
            machine
        }

        fn at(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().expect("it has one")).expect("directories");
            fs::write(self.at(path), text).expect("a file");
        }

        /// A device of 8 GiB with files that tell of it.
        fn block(&self, name: &str, minor: u32, told: &[(&str, &str)]) -> DeviceNumber {
            self.write(&format!("sys/devices/{name}/dev"), &format!("240:{minor}\n"));
            self.write(&format!("sys/devices/{name}/size"), "16777216\n");
            told.iter().for_each(|(file, text)| self.write(&format!("sys/devices/{name}/{file}"), text));
            fs::create_dir_all(self.at("sys/dev/block")).expect("directories");
            std::os::unix::fs::symlink(self.at(&format!("sys/devices/{name}")), self.at(&format!("sys/dev/block/240:{minor}")))
                .expect("a link");
            DeviceNumber { major: 240, minor }
        }

        fn meet(&self, one: DeviceNumber, other: DeviceNumber) -> bool {
            Extent::of_block(one, &self.view).meets(&Extent::of_block(other, &self.view))
        }
    }

    #[test]
    fn two_ways_to_one_disk_are_one_and_so_are_its_partitions() {
        let machine = Machine::new();
        let wwid: &[(&str, &str)] = &[("device/wwid", "naa.5000c500\n")];
        let (one, two) = (machine.block("sda", 0, wwid), machine.block("sdb", 1, wwid));
        let other = machine.block("sdc", 2, &[("device/wwid", "naa.5000c501\n")]);
        assert!(machine.meet(one, two) && !machine.meet(one, other));
        let part = |disk: &str, minor, start| {
            let told = [("partition", "1\n"), ("start", start), ("size", "2048\n")];
            machine.block(&format!("{disk}/{disk}{minor}"), minor, &told)
        };
        let (first, second, again) = (part("sda", 11, "2048\n"), part("sda", 12, "4096\n"), part("sdb", 13, "2048\n"));
        assert!(machine.meet(first, again) && machine.meet(first, two) && !machine.meet(first, second) && !machine.meet(again, second));
        let extent = |number| Extent::of_block(number, &machine.view);
        assert!(extent(first).is_in(&extent(two)) && !extent(two).is_in(&extent(first)));
        assert!(extent(one).told().contains("naa.5000c500"));
    }

    #[test]
    fn a_serial_number_counts_with_names_and_size() {
        let machine = Machine::new();
        let told = |model: &'static str| [("serial", "S1\n"), ("device/model", model)];
        let (one, two) = (machine.block("vda", 0, &told("disk\n")), machine.block("vdb", 1, &told("disk\n")));
        let other = machine.block("vdc", 2, &told("another\n"));
        let larger = machine.block("vdd", 3, &[("serial", "S1\n"), ("device/model", "disk\n"), ("size", "4096\n")]);
        let (nameless, too) = (machine.block("vde", 4, &[]), machine.block("vdf", 5, &[("serial", "\n")]));
        assert!(machine.meet(one, two));
        assert!(!machine.meet(one, other) && !machine.meet(one, larger) && !machine.meet(nameless, too));
    }

    #[test]
    fn loop_devices_over_one_file_are_one_where_their_ranges_meet() {
        let machine = Machine::new();
        machine.write("disk.img", "content");
        machine.write("other.img", "content");
        let over = |name: &str, minor, file: &str, offset: &str, sectors: &str| {
            let file = machine.at(file).display().to_string();
            machine.block(name, minor, &[("loop/backing_file", &file), ("loop/offset", offset), ("size", sectors)])
        };
        let (one, two) = (over("loop0", 0, "disk.img", "0", "2048"), over("loop1", 1, "disk.img", "0", "2048"));
        let (behind, other) = (over("loop2", 2, "disk.img", "1048576", "2048"), over("loop3", 3, "other.img", "0", "2048"));
        assert!(machine.meet(one, two) && !machine.meet(one, behind) && !machine.meet(one, other));
        let (across, gone) = (over("loop4", 4, "disk.img", "524288", "2048"), over("loop5", 5, "gone.img", "0", "2048"));
        assert!(machine.meet(across, one) && machine.meet(across, behind) && !machine.meet(gone, one) && machine.meet(gone, gone));
        // A partition of one is a part of the file: the same that a loop device from there on shows.
        let told = [("partition", "1\n"), ("start", "1024\n"), ("size", "512\n")];
        let part = machine.block("loop0/loop0p1", 9, &told);
        assert!(machine.meet(part, across) && machine.meet(part, two) && !machine.meet(part, behind));
    }
}
