//! What a path lies on, looked for downward without asking any file system: a daemon that asks one which lies on its own volume
//! waits for itself.
//!
//! The kernel's tables are asked (`/sys`, mountinfo) and, of symbolic links, where they lead; a link is read only once it is known that
//! its own file system is none of those looked for.

use crate::busy::{BusyError, MountEntry, block_number, devices_of, layers_of, mount_above, mounts};
use crate::system::{DeviceNumber, SystemView, read_line};
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A block device on the way down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockBelow {
    /// The kernel's name: `loop3`.
    pub name: String,
    /// What the kernel says of it, in sysfs.
    pub directory: PathBuf,
}

impl BlockBelow {
    /// The file behind it, if it is a loop device.
    pub fn loop_file(&self) -> Option<PathBuf> {
        read_line(&self.directory.join("loop/backing_file")).map(PathBuf::from)
    }

    /// The world-wide name by which a disk knows itself.
    pub fn wwid(&self) -> Option<String> {
        ["wwid", "device/wwid"].iter().find_map(|file| read_line(&self.directory.join(file)))
    }

    /// The process that serves it, or has connected it, if it is a client of an NBD server.
    pub fn nbd_pid(&self) -> Option<u32> {
        read_line(&self.directory.join("pid"))?.parse().ok()
    }
}

/// What was found, and the way down to it: "/srv/image on the file system mounted at /srv, on /dev/loop3".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBelow<T> {
    /// What `is_it` gave.
    pub found: T,
    /// The way.
    pub way: String,
}

/// More symbolic links than the kernel follows.
const LINKS_MAX: usize = 40;

/// Looks for the first block device below `path` of which `is_it` knows something. The path need not be there: what would hold it is
/// looked at. Found are devices below file systems, partitions, loop devices, and whatever the kernel builds on others (LVM, md, dm-crypt,
/// multipath, bcache).
///
/// What a file system does not show of its devices is passed over: see [`crate::busy::carries`] for who must know.
///
/// # Errors
/// If the kernel does not tell which file systems are mounted.
pub fn find_below<T>(
    path: &Path,
    view: &SystemView,
    is_it: &mut dyn FnMut(&BlockBelow) -> Option<T>,
) -> Result<Option<FoundBelow<T>>, BusyError> {
    let mut walk = Walk { view, mounts: mounts(view)?, is_it, seen: BTreeSet::new() };
    Ok(walk.path(path, &mut Vec::new()))
}

struct Walk<'a, T> {
    view: &'a SystemView,
    mounts: Vec<MountEntry>,
    is_it: &'a mut dyn FnMut(&BlockBelow) -> Option<T>,
    seen: BTreeSet<DeviceNumber>,
}

impl<T> Walk<'_, T> {
    /// Follows a path part by part; each file system that it comes through is looked at before anything in it is.
    fn path(&mut self, path: &Path, way: &mut Vec<String>) -> Option<FoundBelow<T>> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let mut waiting: VecDeque<PathBuf> = parts(&absolute);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        way.push(path.display().to_string());
        while let Some(part) = waiting.pop_front() {
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(part);
            if let Some(found) = self.mount_of(&next, way) {
                return Some(found);
            }
            match fs::read_link(&next) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    parts(&target).into_iter().rev().for_each(|part| waiting.push_front(part));
                }
                _ => at = next,
            }
        }
        let found = block_number(&at, self.view).and_then(|number| self.block(number, way));
        way.pop();
        found
    }

    fn mount_of(&mut self, path: &Path, way: &mut Vec<String>) -> Option<FoundBelow<T>> {
        let mount = mount_above(path, &self.mounts)?.clone();
        if self.view.block_directory(mount.number).is_some() {
            return self.in_file_system(&mount, mount.number, way);
        }
        if mount.kind == "overlay" {
            // A layer is looked at as a path: it may lie on any file system.
            let layers = layers_of(&mount).unwrap_or_default();
            let known = !self.seen.insert(mount.number);
            return layers.into_iter().filter(|_| !known).find_map(|(_, layer)| self.path(&layer, way));
        }
        if mount.is_on_no_device() {
            return None;
        }
        let devices = devices_of(&mount, self.view).unwrap_or_default();
        devices.into_iter().find_map(|(number, _)| self.in_file_system(&mount, number, way))
    }

    fn in_file_system(&mut self, mount: &MountEntry, number: DeviceNumber, way: &mut Vec<String>) -> Option<FoundBelow<T>> {
        way.push(format!("the file system mounted at {}", mount.point.display()));
        let found = self.block(number, way);
        way.pop();
        found
    }

    fn block(&mut self, number: DeviceNumber, way: &mut Vec<String>) -> Option<FoundBelow<T>> {
        let directory = self.view.block_directory(number)?;
        if !self.seen.insert(number) {
            return None;
        }
        let name = directory.file_name()?.to_string_lossy().into_owned();
        let device = format!("/dev/{name}");
        let named_so = way.last() == Some(&device);
        if !named_so {
            way.push(device);
        }
        let here = BlockBelow { name, directory };
        let found = match (self.is_it)(&here) {
            Some(found) => Some(FoundBelow { found, way: sentence(way) }),
            None => self.below(number, &here, way),
        };
        if !named_so {
            way.pop();
        }
        found
    }

    fn below(&mut self, number: DeviceNumber, here: &BlockBelow, way: &mut Vec<String>) -> Option<FoundBelow<T>> {
        if let Some(found) = self.view.disk_of_partition(number).and_then(|disk| self.block(disk, way)) {
            return Some(found);
        }
        let slaves = self.view.related(number, "slaves");
        if let Some(found) = slaves.into_iter().find_map(|(_, slave)| self.block(slave?, way)) {
            return Some(found);
        }
        // The kernel tells its path without links, and says so at its end if it has none any more.
        let file = here.loop_file()?;
        let file = file.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map_or(file.clone(), PathBuf::from);
        way.push(file.display().to_string());
        let found = match file.starts_with("/dev") {
            true => block_number(&file, self.view).and_then(|number| self.block(number, way)),
            false => self.mount_of(&file, way),
        };
        way.pop();
        found
    }
}

fn parts(path: &Path) -> VecDeque<PathBuf> {
    let part = |component: Component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

/// "/srv/image on the file system mounted at /srv, on dm-0, on loop3".
fn sentence(way: &[String]) -> String {
    way.iter().enumerate().fold(String::new(), |text, (at, step)| match at {
        0 => step.clone(),
        1 => format!("{text} on {step}"),
        _ => format!("{text}, on {step}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A made-up machine: `vg` (dm-0) with a file system at `ROOT/vol`, on a partition of loop3, which a daemon serves; sda holds the rest.
    struct Machine {
        root: tempfile::TempDir,
        view: SystemView,
    }

    impl Machine {
        fn new() -> Machine {
            let root = tempfile::tempdir().expect("a temporary directory");
            let base = fs::canonicalize(root.path()).expect("it is there");
            let at = |name: &str| base.join(name);
            let view = SystemView { dev: at("dev"), sys: at("sys"), proc: at("proc"), run: at("run") };
            let machine = Machine { root, view };
            let blocks =
                [("loop3", "7:3"), ("loop3/loop3p1", "259:3"), ("dm-0", "253:0"), ("sda", "8:0"), ("loop8", "7:8"), ("sdq", "65:0")];
            for (name, number) in blocks {
                machine.write(&format!("sys/devices/{name}/dev"), number);
                fs::create_dir_all(machine.at("sys/dev/block")).expect("directories");
                symlink(machine.at(&format!("sys/devices/{name}")), machine.at(&format!("sys/dev/block/{number}"))).expect("a link");
            }
            machine.write("sys/devices/loop3/loop3p1/partition", "1");
            machine.write("sys/devices/loop3/loop/backing_file", "/run/h/mounts/v");
            machine.write("sys/devices/dm-0/slaves/loop3p1/dev", "259:3");
            machine.write("sys/devices/sdq/device/wwid", "naa.6001405");
            for directory in ["vol/images", "plain", "over", "lower"] {
                fs::create_dir_all(machine.at(directory)).expect("directories");
            }
            let mount = |number: &str, point: &str, kind: &str, options: &str| {
                format!("30 1 {number} / {} rw - {kind} none {options}\n", machine.at(point).display())
            };
            let overlay = format!("rw,lowerdir={},upperdir={}", machine.at("lower").display(), machine.at("vol/images").display());
            let mounts = [
                "30 1 8:0 / / rw - ext4 /dev/sda rw\n".to_string(),
                mount("253:0", "vol", "ext4", "rw"),
                mount("0:99", "over", "overlay", &overlay),
            ];
            machine.write("proc/self/mountinfo", &mounts.concat());
            machine
        }

        fn at(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.root.path()).expect("it is there").join(name)
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().expect("it has one")).expect("directories");
            fs::write(self.at(path), text).expect("a file");
        }

        fn find(&self, path: &str, name: &str) -> Option<String> {
            let found = find_below(&self.at(path), &self.view, &mut |block| (block.name == name).then_some(()));
            found.expect("mounts are told").map(|found| found.way.replace(&self.at("").display().to_string(), ""))
        }
    }

    #[test]
    fn a_file_lies_on_all_that_is_below_its_file_system() {
        let machine = Machine::new();
        let way = machine.find("vol/images/disk", "loop3").expect("it lies there");
        assert_eq!(way, "vol/images/disk on the file system mounted at vol, on /dev/dm-0, on /dev/loop3p1, on /dev/loop3");
        assert_eq!(machine.find("vol/images/disk", "loop9"), None);
        assert_eq!(machine.find("plain/disk", "loop3"), None);
        assert!(machine.find("plain/disk", "sda").is_some(), "the root file system");
    }

    #[test]
    fn links_and_loop_files_and_layers_are_followed() {
        let machine = Machine::new();
        symlink(machine.at("vol/images"), machine.at("plain/link")).expect("a link");
        symlink("../plain/link/../x", machine.at("plain/second")).expect("a link");
        assert!(machine.find("plain/link/disk", "loop3").is_some());
        assert!(machine.find("plain/second", "loop3").is_some());
        assert!(machine.find("over/any", "loop3").is_some(), "its upper layer");
        // A file system on a loop device over a file on the volume, be that file deleted.
        for told in ["vol/images/disk", "vol/images/disk (deleted)"] {
            machine.write("sys/devices/loop8/loop/backing_file", &machine.at(told).display().to_string());
            let line = format!("31 30 7:8 / {} rw - xfs /dev/loop8 rw\n", machine.at("plain").display());
            let mounts = fs::read_to_string(machine.at("proc/self/mountinfo")).expect("there");
            machine.write("proc/self/mountinfo", &(mounts + &line));
            let way = machine.find("plain/new", "loop3").expect("it lies there");
            assert!(way.contains("on /dev/loop8, on vol/images/disk, on the file system mounted at vol, on /dev/dm-0"), "{way}");
        }
        // Links in a circle end.
        symlink(machine.at("over/b"), machine.at("over/a")).expect("a link");
        symlink(machine.at("over/a"), machine.at("over/b")).expect("a link");
        assert_eq!(machine.find("over/a", "loop9"), None);
    }

    #[test]
    fn a_disk_tells_what_it_is() {
        let machine = Machine::new();
        let mut seen = Vec::new();
        let line = format!("31 30 65:0 / {} rw - xfs /dev/sdq rw\n", machine.at("plain").display());
        let mounts = fs::read_to_string(machine.at("proc/self/mountinfo")).expect("there");
        machine.write("proc/self/mountinfo", &(mounts + &line));
        find_below(&machine.at("plain/x"), &machine.view, &mut |block| -> Option<()> {
            seen.push((block.name.clone(), block.wwid(), block.loop_file(), block.nbd_pid()));
            None
        })
        .expect("mounts are told");
        assert_eq!(seen.last().map(|last| (last.0.as_str(), last.1.as_deref())), Some(("sdq", Some("naa.6001405"))));
    }
}
