//! What a report says about the machine, and the clocks of its processors. All of it is read from `/proc` and `/sys`; what is not there stays empty.

use crate::result::Machine;
use std::collections::BTreeMap;
use std::path::Path;

/// The machine as it is; `ssd` and `backing` are the places that will be used.
pub fn describe(ssd: &Path, backing: &Path) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let uname = rustix::system::uname();
    Machine {
        cpu: value_of(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        memory_bytes: value_of(&read("/proc/meminfo"), "MemTotal").and_then(|text| kib(&text)).unwrap_or(0),
        kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        system: os_name(&read("/etc/os-release")),
        ssd: place(ssd, &read("/proc/self/mountinfo")),
        backing: place(backing, &read("/proc/self/mountinfo")),
        programs: BTreeMap::new(),
    }
}

/// CPU seconds that all processors together have worked since the machine started.
pub fn cpu_s() -> f64 {
    busy_ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default()) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The first line `NAME : VALUE`.
fn value_of(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib(text: &str) -> Option<u64> {
    Some(text.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn os_name(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
    line.trim_matches('"').to_owned()
}

/// All that is not idle or waiting for I/O. What guests do is counted in user time already (`man 5 proc_stat`).
fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    fields.iter().enumerate().filter(|(nth, _)| !matches!(nth, 3 | 4 | 8 | 9)).map(|(_, ticks)| ticks).sum()
}

/// `/dev/nvme0n1 (Model)`, or the file system that holds a path: `ext4 on /dev/sda1 (Model)`.
fn place(path: &Path, mountinfo: &str) -> String {
    if path.starts_with("/dev") {
        return with_model(&path.display().to_string());
    }
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    match mount_of(&path, mountinfo) {
        Some((kind, source)) => format!("{kind} on {}", with_model(&source)),
        None => String::new(),
    }
}

/// Type and source of the file system that a path is in.
fn mount_of(path: &Path, mountinfo: &str) -> Option<(String, String)> {
    let mounts = mountinfo.lines().filter_map(|line| {
        // "36 35 98:0 /root /mount rw - ext4 /dev/sda1 rw" (man 5 proc_pid_mountinfo)
        let (before, after) = line.split_once(" - ")?;
        let point = before.split_whitespace().nth(4)?;
        let mut after = after.split_whitespace();
        let (kind, source) = (after.next()?, after.next()?);
        path.starts_with(point).then(|| (point.len(), kind.to_owned(), source.to_owned()))
    });
    // Of mounts over the same point the last one counts, which `max_by_key` gives.
    mounts.max_by_key(|mount| mount.0).map(|(_, kind, source)| (kind, source))
}

fn with_model(device: &str) -> String {
    let name = Path::new(device).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // A partition's directory lies in that of its disk.
    let of_disk = std::fs::canonicalize(format!("/sys/class/block/{name}")).unwrap_or_default();
    let model = [of_disk.join("device/model"), of_disk.join("../device/model")].iter().find_map(|path| std::fs::read_to_string(path).ok());
    match model.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
        Some(model) => format!("{device} ({model})"),
        None => device.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name_and_its_processors_work() {
        let here = std::env::temp_dir();
        let machine = describe(&here, &here);
        assert!(!machine.cpu.is_empty() && machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux ") && !machine.ssd.is_empty(), "{machine:?}");
        assert!(cpu_s() > 0.0);
    }

    #[test]
    fn what_waits_is_not_work() {
        assert_eq!(busy_ticks("cpu  10 1 5 1000 300 2 3 4 50 60\ncpu0 9 9 9 9\n"), 10 + 1 + 5 + 2 + 3 + 4);
        assert_eq!(busy_ticks(""), 0);
    }

    #[test]
    fn a_path_is_in_the_longest_mount_above_it() {
        let mounts =
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /home rw shared:1 - xfs /dev/sdb1 rw\n3 1 0:5 / /homes rw - tmpfs none rw\n";
        let of = |path: &str| mount_of(Path::new(path), mounts).expect("there is a root");
        assert_eq!(of("/home/me"), ("xfs".into(), "/dev/sdb1".into()));
        assert_eq!(of("/homework"), ("ext4".into(), "/dev/sda1".into()));
        assert_eq!(of("/homes"), ("tmpfs".into(), "none".into()));
        assert_eq!(mount_of(Path::new("/x"), ""), None);
    }
}
