//! A file as a block device, with or without the page cache in between.

use super::{SHORT, Stage, unhurried};
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};

/// A loop device; detached with this guard.
pub struct LoopDevice {
    stage: Stage,
    path: String,
    file: PathBuf,
}

impl LoopDevice {
    /// Attaches a free loop device to a file; `in_memory` lets the page cache serve it, else every I/O goes to the device below.
    ///
    /// # Errors
    /// If there is none, the file cannot be opened, or this is not root.
    pub fn attach(stage: &Stage, file: &Path, in_memory: bool) -> Result<LoopDevice, Trouble> {
        let file = file.display().to_string();
        let direct = if in_memory { "--direct-io=off" } else { "--direct-io=on" };
        match stage.run(&["losetup", "-f", "--show", direct, &file], SHORT) {
            Ok(told) => {
                let path = told.trim().to_owned();
                // As the kernel names it.
                let backing = backing_of(&path).unwrap_or_else(|| PathBuf::from(&file));
                Ok(LoopDevice { stage: stage.clone(), path, file: backing })
            }
            Err(trouble) => {
                // Ended before it spoke, it may have attached one.
                let ours = std::fs::canonicalize(&file).unwrap_or_else(|_| PathBuf::from(&file));
                for device in attached(&file) {
                    detach(&device, |backing| backing == ours);
                }
                Err(trouble)
            }
        }
    }

    /// The block device.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The loop devices of a file.
fn attached(file: &str) -> Vec<String> {
    let asked = std::process::Command::new("losetup").args(["-n", "-O", "NAME", "-j", file]).output();
    let told = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    told.split_whitespace().map(str::to_owned).collect()
}

/// Detaches the loop devices over files below a place: those of a run that was killed.
pub(super) fn detach_all_below(place: &Path) {
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        // A file that is gone has " (deleted)" behind its name.
        detach(&format!("/dev/{}", entry.file_name().display()), |backing| backing.starts_with(place));
    }
}

/// The file below a loop device; `None` if there is none.
fn backing_of(device: &str) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev/")?;
    let told = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(told.trim_end()))
}

/// Detaches a device if it is over such a file. It is held open meanwhile: as long as it is, the number is nobody else's.
fn detach(device: &str, is_ours: impl Fn(&Path) -> bool) {
    if !backing_of(device).is_some_and(|backing| is_ours(&backing)) {
        return;
    }
    let held = std::fs::File::open(device);
    if held.is_ok() && backing_of(device).is_some_and(|backing| is_ours(&backing)) {
        unhurried(&["losetup", "-d", device]);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.stage.say(format!("losetup -d {}", self.path));
        // A file that was removed meanwhile is told so behind its name.
        let removed = PathBuf::from(format!("{} (deleted)", self.file.display()));
        detach(&self.path, |backing| backing == self.file || backing == removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// What is attached still, after some time: the kernel detaches a device only when all have closed it, and any program that
    /// looks at all block devices has it open for a moment.
    fn stays_attached(file: &Path) -> Vec<String> {
        let still = || attached(&file.display().to_string());
        for _ in 0..100 {
            if still().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        still()
    }

    #[test]
    fn the_file_is_behind_the_device_until_the_guard_goes() {
        use std::os::unix::fs::FileExt;
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("the_file_is_behind_the_device_until_the_guard_goes: SKIPPED, it needs root's rights and loop devices");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let (file, stage) = (place.path().join("file"), Stage::here(Path::new("/bin/true")));
        std::fs::write(&file, vec![7; 1 << 20]).expect("writes");
        for in_memory in [false, true] {
            let device = LoopDevice::attach(&stage, &file, in_memory).expect("attaches");
            let name = device.path().trim_start_matches("/dev/");
            let direct = std::fs::read_to_string(format!("/sys/block/{name}/loop/dio")).expect("the driver tells");
            assert_eq!(direct.trim() == "1", !in_memory);
            let mut bytes = [0; 4096];
            std::fs::File::open(device.path()).and_then(|device| device.read_exact_at(&mut bytes, 8192)).expect("reads");
            assert_eq!(bytes, [7; 4096]);
            assert_eq!(attached(&file.display().to_string()), [device.path()]);
            if in_memory {
                // Somebody else takes the device away, and attaches another file to that number.
                let others = place.path().join("others");
                std::fs::write(&others, vec![0; 1 << 20]).expect("writes");
                let others = others.display().to_string();
                let number = device.path().to_owned();
                assert!(unhurried(&["losetup", "-d", &number]));
                if unhurried(&["losetup", &number, &others]) {
                    drop(device);
                    assert!(attached(&others) == [number.as_str()], "it is not ours");
                    assert!(unhurried(&["losetup", "-d", &number]));
                }
                continue;
            }
            drop(device);
            assert_eq!(stays_attached(&file), Vec::<String>::new());
        }
    }

    #[test]
    fn what_a_killed_run_left_is_detached_and_nobody_else_s() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("what_a_killed_run_left_is_detached_and_nobody_else_s: SKIPPED, it needs root's rights and loop devices");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let devices = ["work", "other"].map(|name| {
            let directory = std::fs::canonicalize(place.path()).expect("is there").join(name);
            std::fs::create_dir(&directory).expect("makes");
            let file = directory.join("file");
            std::fs::File::create(&file).and_then(|file| file.set_len(1 << 20)).expect("there is room");
            (
                LoopDevice::attach(&Stage::here(Path::new("/bin/true")), &file, true).expect("attaches"),
                file.display().to_string(),
                directory,
            )
        });
        crate::stage::leftovers::clear(&devices[0].2).expect("clears");
        assert!(!devices[0].2.exists());
        // Its file is gone, and is known by its path all the same.
        let removed = PathBuf::from(format!("{} (deleted)", devices[0].1));
        let is_attached = || backing_of(devices[0].0.path()).is_some_and(|backing| backing == removed);
        for _ in 0..100 {
            if !is_attached() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert!(!is_attached());
        assert_eq!(attached(&devices[1].1), [devices[1].0.path()], "this one is");
        let [(mine, ..), _] = devices;
        // Its device is gone, and may be another's by now.
        std::mem::forget(mine);
    }

    /// A stop that came between attaching and being told of it once left the device behind: the command is killed at any point of its life here.
    #[test]
    fn none_stays_where_attaching_is_stopped() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("none_stays_where_attaching_is_stopped: SKIPPED, it needs root's rights and loop devices");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        std::fs::File::create(&file).and_then(|file| file.set_len(1 << 20)).expect("there is room");
        for micros in [0, 500, 1000, 2000, 3000, 5000, 8000, 13_000] {
            let stop = Arc::new(AtomicBool::new(false));
            let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::clone(&stop));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_micros(micros));
                    stop.store(true, std::sync::atomic::Ordering::Relaxed);
                });
                drop(LoopDevice::attach(&stage, &file, false));
            });
            assert_eq!(stays_attached(&file), Vec::<String>::new(), "stopped after {micros} us");
        }
    }
}
