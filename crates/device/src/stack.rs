//! What stands on a block device: its partitions, the devices built on it (LVM, md), loop devices over it or over files in a file system
//! on it, and at the top mounts and swap areas. A walk upward; looking changes nothing.
//!
//! It asks the kernel's tables alone (`/sys`, mountinfo, swaps) and never a file system, which might wait for the device in question.

use crate::busy::{BusyError, MountEntry, is_block_device, mount_above, mounts, mounts_of, swaps};
use crate::system::{DeviceNumber, SystemView, entries, read_line};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One step upward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A partition, by the kernel's name: `loop3p1`.
    Partition(String),
    /// A device that holds this one, such as `dm-0` or `md127`.
    Holder {
        /// The kernel's name.
        name: String,
        /// What device mapper calls it: `vg0-root`.
        mapped_as: Option<String>,
    },
    /// A loop device over it.
    Loop {
        /// The kernel's name.
        name: String,
        /// The file in a file system on the device; `None`: over the device itself.
        file: Option<PathBuf>,
    },
}

/// What is at the top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Top {
    /// A mounted file system.
    Mounted {
        /// Where.
        point: PathBuf,
        /// A process in the mount namespace that has the mount, if it is another one than ours.
        seen_by: Option<u32>,
    },
    /// A swap area.
    Swap {
        /// The file, if it is one in a file system on the device.
        file: Option<PathBuf>,
    },
    /// The last device of the way up exists, and nothing is known to use it.
    Exists,
}

/// One use: the way up, and what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// From the device upward.
    pub way: Vec<Step>,
    /// At its end.
    pub top: Top,
}

/// All that stands on a device.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The uses, in the order in which they were found.
    pub uses: Vec<Use>,
    /// All its block devices, the device itself last, what stands on one before that one. By number and by the kernel's name.
    pub devices: Vec<(u64, String)>,
    /// Where the file systems can be reached, in the same order.
    pub mounts: Vec<PathBuf>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Partition(name) => write!(f, "partition {name}"),
            Step::Holder { name, mapped_as: Some(mapped_as) } => write!(f, "{name} ({mapped_as}) on it"),
            Step::Holder { name, mapped_as: None } => write!(f, "{name} on it"),
            Step::Loop { name, file: Some(file) } => write!(f, "{name} over {} on it", file.display()),
            Step::Loop { name, file: None } => write!(f, "{name} over it"),
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.way.iter().enumerate() {
            write!(f, "{}{step}", if at > 0 { ", " } else { "" })?;
        }
        let between = if self.way.is_empty() { "" } else { " " };
        match &self.top {
            Top::Mounted { point, seen_by: None } => write!(f, "{between}mounted at {}", point.display()),
            Top::Mounted { point, seen_by: Some(pid) } => {
                write!(f, "{between}mounted at {} in the mount namespace of process {pid}", point.display())
            }
            Top::Swap { file: None } => write!(f, "{between}used as swap"),
            Top::Swap { file: Some(file) } => write!(f, "{between}with the swap file {}", file.display()),
            Top::Exists => Ok(()),
        }
    }
}

/// What stands on the block device of that number (`st_rdev`).
///
/// # Errors
/// If the kernel does not tell: then it is unknown what uses the device.
pub fn stack(number: u64, view: &SystemView) -> Result<Stack, BusyError> {
    let number = DeviceNumber::from_raw(number);
    let mut walk = Walk {
        view,
        mounts: mounts(view)?,
        others: mounts_elsewhere(view),
        swaps: swaps(view)?,
        loops: view.loop_devices(),
        seen: BTreeSet::new(),
        found: Stack::default(),
    };
    walk.visit(number, &mut Vec::new());
    Ok(walk.found)
}

/// The mounts of another mount namespace, and a process that is in it.
struct Elsewhere {
    pid: u32,
    mounts: Vec<MountEntry>,
}

struct Walk<'a> {
    view: &'a SystemView,
    mounts: Vec<MountEntry>,
    others: Vec<Elsewhere>,
    swaps: Vec<PathBuf>,
    loops: Vec<(String, PathBuf)>,
    seen: BTreeSet<DeviceNumber>,
    found: Stack,
}

impl Walk<'_> {
    /// Adds what stands on the device, then the device.
    fn visit(&mut self, number: DeviceNumber, way: &mut Vec<Step>) {
        if !self.seen.insert(number) {
            return;
        }
        let uses_before = self.found.uses.len();
        for partition in self.view.partitions(number) {
            self.step(partition, self.view.block_name(partition).map(Step::Partition), way);
        }
        for (name, holder) in self.view.related(number, "holders") {
            let mapped_as = holder.and_then(|holder| self.view.block_directory(holder)).and_then(|at| read_line(&at.join("dm/name")));
            let step = Step::Holder { name, mapped_as };
            match holder {
                Some(holder) => self.step(holder, Some(step), way),
                None => self.found.uses.push(Use { way: way.iter().cloned().chain([step]).collect(), top: Top::Exists }),
            }
        }
        for (name, file) in self.loops.clone() {
            let Some(over) = self.loop_number(&name).filter(|over| *over != number) else { continue };
            if file.starts_with("/dev") && is_block_device(&file, number) {
                self.step(over, Some(Step::Loop { name, file: None }), way);
            } else if mount_above(&file, &self.mounts).is_some_and(|mount| mount.is_of(number)) {
                self.step(over, Some(Step::Loop { name, file: Some(file) }), way);
            }
        }
        self.tops(number, way);
        // A partition that nothing uses is no use; any other device that stands there is one.
        let is_device = matches!(way.last(), Some(Step::Holder { .. } | Step::Loop { .. }));
        if is_device && self.found.uses.len() == uses_before {
            self.found.uses.push(Use { way: way.clone(), top: Top::Exists });
        }
        let name = self.view.block_name(number).unwrap_or_default();
        self.found.devices.push((number.raw(), name));
    }

    fn step(&mut self, number: DeviceNumber, step: Option<Step>, way: &mut Vec<Step>) {
        let Some(step) = step else { return };
        way.push(step);
        self.visit(number, way);
        way.pop();
    }

    /// Mounts and swap areas of the device.
    fn tops(&mut self, number: DeviceNumber, way: &[Step]) {
        let mut tops = Vec::new();
        let here: Vec<&MountEntry> = self.mounts.iter().filter(|mount| mount.is_of(number)).collect();
        for mount in &here {
            tops.push(Top::Mounted { point: mount.point.clone(), seen_by: None });
            self.found.mounts.push(mount.point.clone());
        }
        for elsewhere in self.others.iter().filter(|_| here.is_empty()) {
            for mount in elsewhere.mounts.iter().filter(|mount| mount.is_of(number)) {
                tops.push(Top::Mounted { point: mount.point.clone(), seen_by: Some(elsewhere.pid) });
                let inside = mount.point.strip_prefix("/").unwrap_or(&mount.point);
                self.found.mounts.push(self.view.proc.join(elsewhere.pid.to_string()).join("root").join(inside));
            }
        }
        for swap in &self.swaps {
            if swap.starts_with("/dev") || swap.starts_with(&self.view.dev) {
                if is_block_device(swap, number) {
                    tops.push(Top::Swap { file: None });
                }
            } else if mount_above(swap, &self.mounts).is_some_and(|mount| mount.is_of(number)) {
                tops.push(Top::Swap { file: Some(swap.clone()) });
            }
        }
        self.found.uses.extend(tops.into_iter().map(|top| Use { way: way.to_vec(), top }));
    }

    fn loop_number(&self, name: &str) -> Option<DeviceNumber> {
        DeviceNumber::parse(&read_line(&self.view.sys.join("block").join(name).join("dev"))?)
    }
}

/// The mounts of all mount namespaces but ours. Processes go while one looks: what cannot be read is passed over.
fn mounts_elsewhere(view: &SystemView) -> Vec<Elsewhere> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let mut known: BTreeSet<PathBuf> = namespace(&view.proc.join("self")).into_iter().collect();
    let mut found = Vec::new();
    for process in entries(&view.proc) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else { continue };
        let Some(namespace) = namespace(&process).filter(|namespace| !known.contains(namespace)) else { continue };
        if let Ok(mounts) = mounts_of(&process) {
            known.insert(namespace);
            found.push(Elsewhere { pid, mounts });
        }
    }
    found
}

/// Processes that have one of these block devices open, with their names and the path that they opened.
pub fn openers(devices: &[(u64, String)], view: &SystemView) -> Vec<(u32, String, PathBuf)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let is_one = |path: &Path| {
        // Only of names below /dev is it asked what they are: other file systems may wait for whoever serves them.
        path.starts_with("/dev")
            && fs::metadata(path)
                .is_ok_and(|facts| facts.file_type().is_block_device() && devices.iter().any(|(number, _)| *number == facts.rdev()))
    };
    let mut found = Vec::new();
    for process in entries(&view.proc) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else { continue };
        let opened = entries(&process.join("fd")).into_iter().filter_map(|fd| fs::read_link(fd).ok()).find(|path| is_one(path));
        if let Some(path) = opened {
            found.push((pid, read_line(&process.join("comm")).unwrap_or_default(), path));
        }
    }
    found
}
