//! Which programs have a device or a file open. Nothing forbids it to them: Linux keeps a second user away from a mounted device only.

use crate::busy::{may_be_asked, mounts};
use crate::system::{DeviceNumber, SystemView, entries, read_line};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A process that has something open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opener {
    /// Its number.
    pub pid: u32,
    /// What its program is called: `qemu-system-x86`.
    pub command: String,
}

/// The other processes that have the file, or the block device or a partition of it, open. Those that cannot be looked at (of another
/// user, where one is not root) are missing; so are the kernel's own uses, see [`crate::busy`].
pub fn of(path: &Path, view: &SystemView) -> Vec<Opener> {
    let Ok(wanted) = fs::metadata(path) else { return Vec::new() };
    let number = DeviceNumber::from_raw(wanted.rdev());
    let devices: Vec<u64> = match wanted.file_type().is_block_device() {
        true => std::iter::once(number).chain(view.partitions(number)).map(DeviceNumber::raw).collect(),
        false => Vec::new(),
    };
    let mounts = mounts(view).unwrap_or_default();
    let is_it = |descriptor: &Path| {
        // Of a file that a program serves it is not asked what it is: the answer could wait for that program.
        let Ok(name) = fs::read_link(descriptor) else { return false };
        if !name.is_absolute() || !may_be_asked(&name, &mounts, wanted.dev()) {
            return false;
        }
        fs::metadata(descriptor).is_ok_and(|open| match open.file_type().is_block_device() {
            true => devices.contains(&open.rdev()),
            false => devices.is_empty() && (open.dev(), open.ino()) == (wanted.dev(), wanted.ino()),
        })
    };
    let mut found = Vec::new();
    for process in entries(&view.proc) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else { continue };
        if entries(&process.join("fd")).iter().any(|descriptor| is_it(descriptor)) {
            found.push(Opener { pid, command: read_line(&process.join("comm")).unwrap_or_default() });
        }
    }
    found
}

/// All of them but this process.
pub fn others(path: &Path, view: &SystemView) -> Vec<Opener> {
    let own = std::process::id();
    of(path, view).into_iter().filter(|opener| opener.pid != own).collect()
}

/// "qemu-system-x86 (process 12) and dd (process 13)"; not all, if there are many.
pub fn told(openers: &[Opener]) -> String {
    const TOLD_MAX: usize = 4;
    let one = |opener: &Opener| format!("{} (process {})", opener.command, opener.pid);
    let names: Vec<String> = openers.iter().take(TOLD_MAX).map(one).collect();
    let more = openers.len().saturating_sub(TOLD_MAX);
    match names.as_slice() {
        [] => "another program".into(),
        _ if more > 0 => format!("{} and {more} others", names.join(", ")),
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        [one, ..] => one.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_file_open_is_found_by_any_of_its_names() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (path, link, other) = (directory.path().join("a"), directory.path().join("b"), directory.path().join("c"));
        fs::write(&path, "content").and_then(|()| fs::hard_link(&path, &link)).and_then(|()| fs::write(&other, "")).expect("there is room");
        let pids = |path: &Path| of(path, &SystemView::default()).iter().map(|opener| opener.pid).collect::<Vec<u32>>();
        assert!(!pids(&path).contains(&std::process::id()));
        let open = fs::File::open(&link).expect("it is there");
        assert!(pids(&path).contains(&std::process::id()) && !pids(&other).contains(&std::process::id()));
        assert!(others(&path, &SystemView::default()).iter().all(|opener| opener.pid != std::process::id()));
        drop(open);
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .stdin(fs::File::open(&path).expect("it is there"))
            .spawn()
            .expect("sleep is there");
        let found = others(&path, &SystemView::default());
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(found.iter().any(|opener| opener.pid == child.id()), "{found:?}");
        assert!(told(&found).contains(&format!("(process {})", child.id())), "{found:?}");
    }

    #[test]
    fn openers_make_a_sentence() {
        let openers: Vec<Opener> = (1..=6).map(|pid| Opener { pid, command: "dd".into() }).collect();
        assert_eq!(told(&openers[..0]), "another program");
        assert_eq!(told(&openers[..1]), "dd (process 1)");
        assert_eq!(told(&openers[..3]), "dd (process 1), dd (process 2) and dd (process 3)");
        assert!(told(&openers).ends_with("dd (process 4) and 2 others"));
    }
}
