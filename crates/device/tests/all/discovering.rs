//! Which disks there are, on a made-up machine: its /sys and /proc are files, its disks are files with the marks of their owners.

use crate::common::direct_directory;
use device::discover::{self, Found, Look};
use device::signature::{self, OwnMark};
use device::system::SystemView;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const OWN: [OwnMark; 1] = [OwnMark { what: "a hearth pool", offset_bytes: 0, magic: b"a pool's mark" }];

struct Machine {
    root: tempfile::TempDir,
    view: SystemView,
    minor: u32,
}

impl Machine {
    /// `None` (with a message) where there is no direct I/O.
    fn new() -> Option<Machine> {
        let root = direct_directory()?;
        let at = |name: &str| root.path().join(name);
        let view = SystemView { dev: at("dev"), sys: at("sys"), proc: at("proc"), run: at("run") };
        for directory in ["dev/disk/by-id", "sys/block", "sys/dev/block", "proc/self"] {
            fs::create_dir_all(at(directory)).expect("a directory");
        }
        let machine = Machine { root, view, minor: 0 };
        machine.write("proc/self/mountinfo", "20 1 0:5 / /proc rw - proc proc rw\n");
        Some(machine)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    /// A device of a MiB with these facts of the kernel and these bytes on it; gives its number. `name` is a path below `sys/devices`.
    fn device(&mut self, name: &str, facts: &[(&str, &str)], content: &[(usize, &[u8])]) -> String {
        self.minor += 1;
        let (number, short) = (format!("240:{}", self.minor), name.rsplit('/').next().expect("a name").to_string());
        self.write(&format!("sys/devices/{name}/dev"), &number);
        self.write(&format!("sys/devices/{name}/size"), &format!("{}\n", MIB / 512));
        for (file, text) in facts {
            self.write(&format!("sys/devices/{name}/{file}"), text);
        }
        symlink(format!("../../devices/{name}"), self.at(&format!("sys/dev/block/{number}"))).expect("a link");
        if !name.contains('/') {
            symlink(format!("../devices/{name}"), self.at(&format!("sys/block/{name}"))).expect("a link");
        }
        let mut bytes = vec![0; MIB as usize];
        for (offset, mark) in content {
            bytes[*offset..offset + mark.len()].copy_from_slice(mark);
        }
        fs::write(self.at(&format!("dev/{short}")), bytes).expect("there is room");
        number
    }

    fn mount(&self, number: &str, point: &str) {
        self.write("proc/self/mountinfo", &format!("30 1 {number} / {point} rw - ext4 /dev/none rw\n"));
    }

    fn list(&self) -> Vec<Found> {
        discover::list(&self.view).expect("the kernel tells")
    }

    /// All devices and what a look shows, one line each.
    fn told(&self) -> Vec<String> {
        let list = self.list();
        let line = |found: &Found| {
            let look = match discover::look(found, &OWN) {
                Look::InUse(user) => user,
                Look::Holds(signatures) => signature::describe(&signatures).unwrap_or_else(|| "free".into()),
                Look::Failed(why) => format!("failed: {}", why.replace(&self.root.path().display().to_string(), "")),
            };
            format!("{} {}: {look}", found.path.strip_prefix(&self.view.dev).expect("below /dev").display(), found.sort.word())
        };
        list.iter().map(line).collect()
    }
}

/// A superblock with sound counts, its mark, and the feature "extents".
const EXT4: [(usize, &[u8]); 6] = [(0x400, &[16]), (0x404, &[64]), (0x420, &[64]), (0x438, &[0x53, 0xef]), (0x44c, &[1]), (0x460, &[0x40])];

fn check(build: impl FnOnce(&mut Machine), expected: &[&str]) {
    let Some(mut machine) = Machine::new() else { return };
    build(&mut machine);
    assert_eq!(machine.told(), expected);
}

#[test]
fn every_kind_of_device_is_told() {
    check(|m| drop(m.device("sda", &[], &[])), &["sda disk: free"]);
    check(|m| drop(m.device("sda", &[], &EXT4)), &["sda disk: an ext4 file system"]);
    check(|m| drop(m.device("sda", &[], &[(0, b"a pool's mark")])), &["sda disk: a hearth pool"]);
    check(|m| drop(m.device("sda", &[], &[(512 + 24, b"LVM2 001")])), &["sda disk: an LVM physical volume"]);
    check(
        |m| {
            let number = m.device("sda", &[], &EXT4);
            m.mount(&number, "/srv");
        },
        &["sda disk: it is mounted at /srv"],
    );
    check(
        |m| {
            m.device("sda", &[], &[]);
            let number = m.device("sda/sda1", &[("partition", "1")], &EXT4);
            m.device("sda/sda2", &[("partition", "2")], &[]);
            m.mount(&number, "/");
        },
        &["sda disk: its partition sda1 is mounted at /", "sda1 partition: it is mounted at /", "sda2 partition: free"],
    );
    check(
        |m| {
            m.device("sda", &[("holders/dm-0/dev", "240:2")], &[(512 + 24, b"LVM2 001")]);
            m.device("dm-0", &[("dm/name", "vg-home"), ("slaves/sda/dev", "240:1")], &EXT4);
        },
        &["dm-0 mapped: an ext4 file system", "sda disk: it is part of /dev/dm-0"],
    );
    check(
        |m| {
            m.device("sda", &[("holders/md0/dev", "240:2")], &[]);
            m.device("md0", &[("md/level", "raid1"), ("slaves/sda/dev", "240:1")], &[]);
        },
        &["md0 raid: free", "sda disk: it is part of /dev/md0"],
    );
    check(
        |m| {
            let file = m.at("image").display().to_string();
            m.device("loop3", &[("loop/backing_file", &file)], &[]);
            m.device("loop4", &[("size", "0")], &[]);
        },
        &["loop3 loop: free"],
    );
}

#[test]
fn what_cannot_be_looked_at_is_told_and_hides_nothing_else() {
    let Some(mut machine) = Machine::new() else { return };
    machine.device("sda", &[], &[]);
    machine.device("sdb", &[], &[]);
    machine.device("sdc", &[], &[]);
    fs::remove_file(machine.at("dev/sda")).expect("it is there");
    fs::remove_file(machine.at("dev/sdb")).and_then(|()| fs::create_dir(machine.at("dev/sdb"))).expect("something odd");
    let told = machine.told();
    assert!(told[0].starts_with("sda disk: failed: /dev/sda does not exist"), "{told:?}");
    assert!(told[1].starts_with("sdb disk: failed: /dev/sdb is a directory"), "{told:?}");
    assert_eq!(told[2], "sdc disk: free");
}

/// Reading a file that a program serves waits for that program; if it is this one, for ever.
#[test]
fn a_loop_device_over_a_served_file_is_not_opened() {
    let Some(mut machine) = Machine::new() else { return };
    machine.device("loop0", &[("loop/backing_file", "/run/hearth/v/disk")], &EXT4);
    machine.write("proc/self/mountinfo", "30 1 0:77 / /run/hearth/v rw - fuse.hearth hearth rw\n");
    assert_eq!(machine.told(), ["loop0 loop: it shows /run/hearth/v/disk, which another program serves"]);
    let found = machine.list().remove(0);
    assert!(found.served);
    // Nor is a partition of it, nor what LVM has made of that.
    machine.device("loop0/loop0p1", &[("partition", "1")], &[]);
    machine.device("dm-0", &[("dm/name", "vg-lv"), ("slaves/loop0p1/dev", "7:1")], &EXT4);
    machine.device("dm-1", &[("dm/name", "vg-snapshot"), ("slaves/dm-0/dev", "253:0")], &EXT4);
    machine.device("sda", &[], &EXT4);
    let served: Vec<bool> = machine.list().iter().map(|found| found.served).collect();
    assert_eq!(served, [true, true, true, true, false], "{:?}", machine.told());
    assert_eq!(found.loop_file.as_deref(), Some(Path::new("/run/hearth/v/disk")));
}

#[test]
fn what_is_no_disk_is_left_out_and_the_rest_is_described() {
    let Some(mut machine) = Machine::new() else { return };
    for name in ["ram0", "zram1", "sr0", "fd0"] {
        machine.device(name, &[], &[]);
    }
    machine.device("nvme0c0n1", &[("hidden", "1")], &[]);
    let facts = [("device/vendor", "ATA"), ("device/model", "WDC WD40"), ("queue/rotational", "1"), ("ro", "1")];
    machine.device("sda", &facts, &[]);
    machine.device("sda/sda1", &[("partition", "1"), ("ro", "0")], &[]);
    machine.device("vda", &[("device/vendor", "0x1af4"), ("queue/rotational", "0")], &[]);
    machine.device("dm-3", &[("dm/name", "vg-home")], &[]);
    for (link, target) in [("wwn-0x5", "sda"), ("ata-WDC_WD40_X", "sda"), ("scsi-SATA_WDC_WD40_X", "sda"), ("wwn-0x5-part1", "sda1")] {
        symlink(format!("../../{target}"), machine.at("dev/disk/by-id").join(link)).expect("a link");
    }
    let list = machine.list();
    let dev = |name: &str| machine.at("dev").join(name);
    let paths: Vec<&Path> = list.iter().map(|found| found.path.as_path()).collect();
    assert_eq!(paths, [dev("dm-3"), dev("sda"), dev("sda1"), dev("vda")]);
    let [mapped, disk, part, bare] = list.as_slice() else { panic!("{list:?}") };
    assert_eq!(mapped.stable_path, Some(dev("mapper/vg-home")));
    assert_eq!(disk.stable_path, Some(dev("disk/by-id/ata-WDC_WD40_X")));
    assert_eq!((disk.model.as_deref(), disk.rotational, disk.read_only, disk.size_bytes), (Some("WDC WD40"), Some(true), true, MIB));
    assert_eq!(part.stable_path, Some(dev("disk/by-id/wwn-0x5-part1")), "a number is better than nothing");
    assert_eq!((part.model.as_deref(), part.rotational, part.read_only), (Some("WDC WD40"), Some(true), false));
    assert_eq!(part.parent, Some(dev("sda")));
    assert_eq!((bare.model.as_deref(), bare.rotational, bare.stable_path.as_deref()), (None, Some(false), None));
}

#[test]
fn without_the_list_of_mounts_nothing_is_called_free() {
    let Some(mut machine) = Machine::new() else { return };
    machine.device("sda", &[], &[]);
    fs::remove_file(machine.at("proc/self/mountinfo")).expect("it is there");
    assert!(discover::list(&machine.view).expect_err("unknown").to_string().contains("unknown what uses"));
}
