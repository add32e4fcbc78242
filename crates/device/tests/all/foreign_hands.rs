//! What others do with a device is noticed: uses, overlaps, and changes while it was detached.

use crate::common::{LoopDevice, Mounted, direct_directory};
use device::busy::{self, Usage};
use device::identity::{DeviceIdentity, Stamps, Verdict, compare, identify};
use device::system::SystemView;
use device::{Access, OpenDevice};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

fn image(directory: &Path, name: &str, size_bytes: u64) -> PathBuf {
    let path = directory.join(name);
    File::create(&path).and_then(|file| file.set_len(size_bytes)).expect("an image");
    path
}

fn run(program: &str, arguments: &[&str], path: &Path) -> bool {
    let done = Command::new(program).args(arguments).arg(path).output().is_ok_and(|output| output.status.success());
    if !done {
        eprintln!("skipped: {program} is not here");
    }
    done
}

fn identity(path: &Path) -> DeviceIdentity {
    let device = OpenDevice::open(path, Access::ReadOnly).expect("it can be opened");
    identify(&device, &SystemView::default()).expect("it can be identified")
}

#[test]
fn a_file_is_recognised_and_changes_are_seen() {
    let Some(directory) = direct_directory() else { return };
    let path = image(directory.path(), "disk.img", 64 << 20);
    let was = identity(&path);
    assert_eq!(compare(&was, &identity(&path), Stamps::Current), Verdict::Same);
    drop(OpenDevice::open(&path, Access::ReadWrite).expect("opened to write, and not written"));
    assert_eq!(compare(&was, &identity(&path), Stamps::Current), Verdict::Same);
    let moved = directory.path().join("moved.img");
    fs::rename(&path, &moved).expect("renamed");
    assert_eq!(compare(&was, &identity(&moved), Stamps::Current), Verdict::Same, "another name is no other file");

    File::options().write(true).open(&moved).and_then(|file| file.set_len(32 << 20)).expect("shortened");
    assert!(matches!(compare(&was, &identity(&moved), Stamps::Current), Verdict::Shrank { .. }));
    File::options().write(true).open(&moved).and_then(|file| file.set_len(64 << 20)).expect("lengthened");
    let verdict = compare(&was, &identity(&moved), Stamps::Current);
    assert!(matches!(verdict, Verdict::WrittenBehind { .. }), "{verdict:?}");
    assert_eq!(compare(&was, &identity(&moved), Stamps::Stale), Verdict::Same);

    fs::copy(&moved, &path).expect("copied");
    assert!(matches!(compare(&was, &identity(&path), Stamps::Stale), Verdict::Swapped { .. }), "a copy is another file");
}

#[test]
fn a_real_ext4_superblock_shows_that_it_was_written() {
    let Some(directory) = direct_directory() else { return };
    let path = image(directory.path(), "disk.img", 16 << 20);
    if !run("mkfs.ext4", &["-q", "-F"], &path) {
        return;
    }
    let mut was = identity(&path);
    if !run("tune2fs", &["-C", "5"], &path) {
        return;
    }
    let mut is = identity(&path);
    assert_eq!(is.file_system.as_ref().map(|file_system| file_system.kind.as_str()), Some("ext4"));
    // The file's own time tells too; look at the superblock alone.
    for identity in [&mut was, &mut is] {
        identity.stamps.remove("file modification time");
        identity.stamps.remove("ext4 write time");
    }
    let verdict = compare(&was, &is, Stamps::Current);
    let expected = "was written to while it was detached: its ext4 mount count was 0 and is now 5";
    assert_eq!(verdict.reason().as_deref(), Some(expected));
}

#[test]
fn the_same_place_by_another_name_is_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let view = SystemView::default();
    let (one, two) = (image(directory.path(), "one", 4096), image(directory.path(), "two", 4096));
    let (hard, soft) = (directory.path().join("hard"), directory.path().join("soft"));
    fs::hard_link(&one, &hard).expect("a hard link");
    std::os::unix::fs::symlink(&one, &soft).expect("a symbolic link");
    let overlap = |a: &Path, b: &Path| busy::overlap(a, b, &view).expect("both are there");
    assert_eq!(overlap(&one, &two), None);
    for same in [&one, &hard, &soft, &directory.path().join("../").join(directory.path().file_name().unwrap()).join("one")] {
        assert!(overlap(&one, same).expect("the same").ends_with("are the same file"));
    }
    assert!(busy::overlap(&one, &directory.path().join("none"), &view).is_err());
}

#[test]
fn a_loop_device_and_its_file_are_one_place() {
    let Some(directory) = direct_directory() else { return };
    let path = image(directory.path(), "disk.img", 4 << 20);
    let Some(attached) = LoopDevice::attach(&path, &[]) else { return };
    let view = SystemView::default();
    let overlap = |a: &Path, b: &Path| busy::overlap(a, b, &view).expect("both are there").unwrap_or_default();
    assert!(overlap(&path, &attached.path).contains("lies on"), "{}", overlap(&path, &attached.path));
    assert!(overlap(&attached.path, &path).contains("lies on"));
    assert!(overlap(&attached.path, &attached.path).ends_with("are the same block device"));
    let usages = busy::usages(&path, &view).expect("it is there");
    assert!(matches!(usages.as_slice(), [Usage::LoopDevice { .. }]), "{usages:?}");
    assert_eq!(busy::usages(&attached.path, &view).expect("it is there"), []);
    let opened = OpenDevice::open(&attached.path, Access::ReadWrite).expect("free");
    assert_eq!(busy::usages(&attached.path, &view).expect("it is there"), [Usage::Exclusive]);
    drop(opened);
}

#[test]
fn a_mounted_loop_device_is_busy() {
    let Some(directory) = direct_directory() else { return };
    let path = image(directory.path(), "disk.img", 16 << 20);
    let Some(attached) = LoopDevice::attach(&path, &[]) else { return };
    let Some(mounted) = Mounted::ext4(&attached.path, &directory.path().join("a mount")) else { return };
    let inside = image(&mounted.point, "inside", 4096);
    let view = SystemView::default();
    let usages = busy::usages(&attached.path, &view).expect("it is there");
    assert_eq!(busy::describe(&usages), Some(format!("it is mounted at {}", mounted.point.display())));
    let overlap = busy::overlap(&inside, &attached.path, &view).expect("both are there");
    assert!(overlap.expect("a file on the device").contains("lies on"));
    let opened = OpenDevice::open(&attached.path, Access::ReadWrite);
    assert!(opened.expect_err("mounted").to_string().contains("in use"));
}

/// A made-up machine: sda with sda1 (mounted) and sda2 (swap, and under dm-0), and dm-1 beside dm-0 on it.
struct Machine {
    root: tempfile::TempDir,
    view: SystemView,
}

impl Machine {
    /// `None` (with a message) where device nodes cannot be made.
    fn new() -> Option<Machine> {
        let root = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| root.path().join(name);
        let view = SystemView { dev: at("dev"), sys: at("sys"), proc: at("proc"), run: at("run") };
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().expect("it has one")).expect("directories");
            fs::write(at(path), text).expect("a file");
        };
        // Numbers of drivers that no machine has loaded (local use).
        let nodes = [("sda", 240, 0), ("sda1", 240, 1), ("sda2", 240, 2), ("dm-0", 241, 0), ("dm-1", 241, 1)];
        for (name, major, minor) in nodes {
            let directory = if name.len() > 3 && name.starts_with("sda") { format!("sda/{name}") } else { name.to_string() };
            write(&format!("sys/devices/{directory}/dev"), &format!("{major}:{minor}\n"));
            fs::create_dir_all(at("sys/dev/block")).expect("directories");
            let target = format!("../../devices/{directory}");
            std::os::unix::fs::symlink(target, at(&format!("sys/dev/block/{major}:{minor}"))).expect("a link");
            let device = rustix::fs::makedev(major, minor);
            let (kind, mode) = (rustix::fs::FileType::BlockDevice, rustix::fs::Mode::RUSR);
            if let Err(error) = rustix::fs::mknodat(rustix::fs::CWD, at(name), kind, mode, device) {
                eprintln!("skipped: device nodes cannot be made: {error}");
                return None;
            }
        }
        for (name, number) in [("sda1", 1), ("sda2", 2)] {
            write(&format!("sys/devices/sda/{name}/partition"), &format!("{number}\n"));
        }
        for (mapper, number) in [("dm-0", "241:0"), ("dm-1", "241:1")] {
            write(&format!("sys/devices/sda/sda2/holders/{mapper}/dev"), number);
            write(&format!("sys/devices/{mapper}/slaves/sda2/dev"), "240:2");
        }
        write("proc/self/mountinfo", "30 1 240:1 / /srv/a\\040b rw shared:1 - ext4 /dev/sda1 rw\n");
        write("proc/swaps", &format!("Filename Type Size Used Priority\n{} partition 1 0 -2\n", at("sda2").display()));
        Some(Machine { root, view })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn usages(&self, name: &str) -> String {
        let usages = busy::usages(&self.path(name), &self.view).expect("it is there");
        busy::describe(&usages).unwrap_or_default()
    }

    fn overlap(&self, one: &str, other: &str) -> bool {
        busy::overlap(&self.path(one), &self.path(other), &self.view).expect("both are there").is_some()
    }
}

#[test]
fn uses_of_partitions_count_for_the_disk() {
    let Some(machine) = Machine::new() else { return };
    assert_eq!(machine.usages("sda1"), "it is mounted at /srv/a b");
    assert_eq!(machine.usages("sda2"), "it is used as swap space; it is part of /dev/dm-0; it is part of /dev/dm-1");
    let disk = machine.usages("sda");
    assert!(disk.starts_with("its partition sda1 is mounted at /srv/a b; its partition sda2 is used as swap"), "{disk}");
    assert_eq!(machine.usages("dm-0"), "");
    let kinds = |name: &str| busy::mounted_kinds(&machine.path(name), &machine.view).expect("the kernel tells");
    assert_eq!((kinds("sda1"), kinds("sda2")), (vec!["ext4".to_string()], vec![]));
}

#[test]
fn partitions_and_mapped_devices_overlap_what_they_lie_on_only() {
    let Some(machine) = Machine::new() else { return };
    for (one, other) in [("sda", "sda1"), ("sda1", "sda"), ("dm-0", "sda2"), ("sda", "dm-0"), ("dm-0", "dm-0")] {
        assert!(machine.overlap(one, other), "{one} {other}");
    }
    for (one, other) in [("sda1", "sda2"), ("dm-0", "dm-1"), ("dm-0", "sda1")] {
        assert!(!machine.overlap(one, other), "{one} {other}");
    }
}

/// btrfs, overlays and others have numbers that belong to no block device.
#[test]
fn files_lie_on_the_devices_of_their_file_system_whatever_number_that_has() {
    let Some(machine) = Machine::new() else { return };
    let mounted = |lines: &[String]| {
        fs::write(machine.path("proc/self/mountinfo"), lines.concat()).expect("a file");
    };
    let at = |name: &str| fs::canonicalize(machine.path(name)).expect("it is there").display().to_string();
    for directory in ["state", "upper", "sys/fs/btrfs/0123/devices", "sys/class/block"] {
        fs::create_dir_all(machine.path(directory)).expect("a directory");
    }
    fs::write(machine.path("state/own"), "").expect("a file");
    let root = fs::canonicalize(machine.root.path()).expect("it is there").display().to_string();
    let carries = |device: &str| busy::carries(&machine.path(device), &machine.path("state/own"), &machine.view);
    let lies = |device: &str| carries(device).expect("it is known").is_some();
    let btrfs = |source: &str| format!("30 1 0:33 / {root} rw - btrfs {source} rw,subvol=/\n");
    // Whatever the directory of this test lies on: its number is that of no block device of the made-up machine.
    mounted(&[btrfs(&at("dm-0"))]);
    assert!(lies("dm-0") && lies("sda2") && lies("sda") && !lies("dm-1"));
    assert!(machine.overlap("dm-0", "state/own"));
    let told = carries("dm-0").expect("it is known").expect("it does");
    assert!(told.contains("lies on"), "{told}");
    // A file system on two devices, and a source that is told by its name for the kernel.
    for name in ["dm-0", "dm-1"] {
        std::os::unix::fs::symlink(machine.path(&format!("sys/devices/{name}")), machine.path(&format!("sys/class/block/{name}")))
            .expect("a link");
        let member = machine.path(&format!("sys/fs/btrfs/0123/devices/{name}"));
        std::os::unix::fs::symlink(machine.path(&format!("sys/devices/{name}")), member).expect("a link");
    }
    mounted(&[btrfs("/dev/dm-0")]);
    assert!(lies("dm-0") && lies("dm-1"));
    // An overlay lies on what its layers lie on.
    let overlay = |upper: &str| format!("31 30 0:40 / {} rw - overlay overlay rw,lowerdir={upper},workdir=/work\n", at("state"));
    mounted(&[btrfs(&at("dm-1")), overlay(&at("upper"))]);
    assert!(lies("dm-1"));
    // What is not to be seen is no "no".
    for lines in [
        vec![overlay("/of/another/namespace")],
        vec![format!("30 1 0:33 / {root} rw - zfs tank/state rw\n")],
        vec![btrfs("/dev/root")],
        vec![],
    ] {
        mounted(&lines);
        let error = carries("dm-1").expect_err("it is unknown");
        assert!(error.to_string().contains("it is unknown which devices"), "{error}");
    }
    mounted(&[format!("30 1 0:33 / {root} rw - tmpfs tmpfs rw\n")]);
    assert!(!lies("dm-1"));
}

#[test]
fn swap_files_are_found_on_the_devices_below_them() {
    let Some(machine) = Machine::new() else { return };
    let root = fs::canonicalize(machine.root.path()).expect("it is there").display().to_string();
    fs::write(machine.path("swapfile"), "").expect("a file");
    fs::write(machine.path("proc/self/mountinfo"), format!("30 1 0:33 / {root} rw - btrfs {} rw\n", machine.path("dm-0").display()))
        .expect("a file");
    let on = |device: &str| busy::swap_areas_on(&machine.path(device), &machine.view).map(|areas| areas.len());
    assert!(matches!((on("sda2"), on("dm-0")), (Ok(1), Ok(0))), "the swap area sda2");
    let line = format!("Filename Type Size Used Priority\n{} file 1 0 -2\n", machine.path("swapfile").display());
    fs::write(machine.path("proc/swaps"), line).expect("a file");
    assert!(matches!((on("dm-0"), on("sda2"), on("dm-1")), (Ok(1), Ok(1), Ok(0))));
    fs::write(machine.path("proc/swaps"), "Filename\n/swapfile\\040(deleted) file 1 0 -2\n").expect("a file");
    on("dm-0").expect_err("where it lies is unknown");
}

#[test]
fn what_cannot_be_found_out_is_an_error_not_a_no() {
    let Some(machine) = Machine::new() else { return };
    fs::remove_file(machine.path("proc/self/mountinfo")).expect("removed");
    let error = busy::usages(&machine.path("sda1"), &machine.view).expect_err("mounts are unknown");
    assert!(error.to_string().contains("unknown what uses the device"), "{error}");
}

/// The way up from the disk, as it is told to an administrator.
#[test]
fn what_stands_on_a_disk_is_told_with_the_way_up() {
    let Some(machine) = Machine::new() else { return };
    let write = |path: &str, text: &str| {
        fs::create_dir_all(machine.path(path).parent().expect("it has one")).expect("directories");
        fs::write(machine.path(path), text).expect("a file");
    };
    // dm-0 is a logical volume with a swap file in a file system; an image on sda1 is a loop device with a file system of its own.
    write("sys/devices/dm-0/dm/name", "vg0-root\n");
    write("sys/devices/loop7/dev", "242:7\n");
    std::os::unix::fs::symlink("../../devices/loop7", machine.path("sys/dev/block/242:7")).expect("a link");
    write("sys/block/loop7/loop/backing_file", "/srv/a b/images/disk one\n");
    write("sys/block/loop7/dev", "242:7\n");
    write(
        "proc/self/mountinfo",
        "30 1 240:1 / /srv/a\\040b rw shared:1 - ext4 /dev/sda1 rw\n\
         31 1 241:0 / /data rw - xfs /dev/mapper/vg0-root rw\n\
         32 1 242:7 / /inner rw - ext4 /dev/loop7 rw\n\
         33 1 240:9 / /srv/a\\040b/elsewhere rw - ext4 /dev/sdz rw\n",
    );
    let mut swaps = fs::read_to_string(machine.path("proc/swaps")).expect("there");
    swaps.push_str("/data/swap\\040file file 1 0 -3\n");
    write("proc/swaps", &swaps);
    let number = |major, minor| rustix::fs::makedev(major, minor);
    let told = |number| {
        let stack = device::stack::stack(number, &machine.view).expect("it is told");
        (stack.uses.iter().map(ToString::to_string).collect::<Vec<_>>(), stack)
    };
    let (uses, stack) = told(number(240, 0));
    let expected = [
        "partition sda1, loop7 over /srv/a b/images/disk one on it mounted at /inner",
        "partition sda1 mounted at /srv/a b",
        "partition sda2, dm-0 (vg0-root) on it mounted at /data",
        "partition sda2, dm-0 (vg0-root) on it with the swap file /data/swap file",
        "partition sda2, dm-1 on it",
    ];
    assert_eq!(uses[..5], expected);
    // The swap area is in the test's own directory, which is no device of this machine's.
    let names: Vec<&str> = stack.devices.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["loop7", "sda1", "dm-0", "dm-1", "sda2", "sda"], "what stands on a device before the device");
    assert_eq!(stack.mounts, ["/inner", "/srv/a b", "/data"].map(PathBuf::from));
    assert_eq!(told(number(241, 1)).0, [""; 0], "a device by itself is not used");
    // A loop device over a partition holds the disk too.
    write("sys/block/loop7/loop/backing_file", &format!("{}\n", machine.path("sda1").display()));
    assert!(machine.usages("sda").ends_with("it is attached to /dev/loop7"), "{}", machine.usages("sda"));
    // What is on another file system further down that path is not on this one.
    write("sys/block/loop7/loop/backing_file", "/srv/a b/elsewhere/disk\n");
    assert!(!told(number(240, 0)).0.iter().any(|line| line.contains("loop7")));
    // A mount in another namespace, seen by its process.
    write("proc/self/mountinfo", "31 1 241:0 / /data rw - xfs /dev/mapper/vg0-root rw\n");
    write("proc/77/mountinfo", "30 1 240:1 / /there rw - ext4 /dev/sda1 rw\n");
    for (process, namespace) in [("self", 1), ("77", 2)] {
        fs::create_dir_all(machine.path(&format!("proc/{process}/ns"))).expect("directories");
        std::os::unix::fs::symlink(format!("mnt:[{namespace}]"), machine.path(&format!("proc/{process}/ns/mnt"))).expect("a link");
    }
    let (uses, stack) = told(number(240, 0));
    assert_eq!(uses[0], "partition sda1 mounted at /there in the mount namespace of process 77");
    assert_eq!(stack.mounts[0], machine.path("proc/77/root/there"));
    fs::remove_file(machine.path("proc/self/mountinfo")).expect("removed");
    assert!(device::stack::stack(number(240, 0), &machine.view).is_err(), "what is not told is not a no");
}

/// A second way to the same bytes has another number, and is the same disk.
#[test]
fn two_loop_devices_over_one_file_are_one_place() {
    let Some(directory) = direct_directory() else { return };
    let path = image(directory.path(), "disk.img", 4 << 20);
    let (Some(one), Some(two)) = (LoopDevice::attach(&path, &[]), LoopDevice::attach(&path, &[])) else { return };
    let Some(behind) = LoopDevice::attach(&path, &["--offset", "2097152"]) else { return };
    let Some(before) = LoopDevice::attach(&path, &["--sizelimit", "2097152"]) else { return };
    let view = SystemView::default();
    let overlap = |a: &Path, b: &Path| busy::overlap(a, b, &view).expect("both are there");
    assert!(overlap(&one.path, &two.path).is_some_and(|how| how.contains("both show the same file")));
    assert!(overlap(&one.path, &behind.path).is_some() && overlap(&before.path, &two.path).is_some());
    assert_eq!(overlap(&before.path, &behind.path), None, "different parts of it");
}
