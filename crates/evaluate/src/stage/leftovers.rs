//! What a run that was killed left behind: processes (noted in a file when they begin, with their start time, so that a number that was given out again
//! is nobody else's), then mounts below its directory, then the directory.

use crate::trouble::Trouble;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NOTES: &str = "processes";
/// How long a killed process may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Notes a process of ours, the first of its group.
pub(super) fn note(place: &Path, pid: u32) {
    let Some(started) = start_ticks(pid) else { return };
    let file = std::fs::File::options().append(true).create(true).open(place.join(NOTES));
    // Without the note a killed run leaves a process; that is no reason not to run.
    let _ = file.and_then(|mut file| writeln!(file, "{pid} {started}"));
}

/// Ends and removes all of it.
///
/// # Errors
/// If something stays: with its name.
pub fn clear(place: &Path) -> Result<(), Trouble> {
    let notes = std::fs::read_to_string(place.join(NOTES)).unwrap_or_default();
    // The last one first: who uses a device goes before who offers it.
    for line in notes.lines().rev() {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let (Some(Ok(pid)), Some(Ok(started))) = (words.next(), words.next()) else { continue };
        end(pid as u32, started);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts_below(place, &mounts) {
        // Lazily: what it was mounted from may be gone.
        let status = std::process::Command::new("umount").arg("-l").arg(&point).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Trouble::failed(format!("{} is still mounted", point.display()), "unmount it, then run the same command again"));
        }
    }
    match std::fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Trouble::io("remove", place, &error)),
        _ => Ok(()),
    }
}

fn end(pid: u32, started: u64) {
    let Some(group) = Pid::from_raw(pid.cast_signed()) else { return };
    let begun = Instant::now();
    while start_ticks(pid) == Some(started) && begun.elapsed() < PATIENCE {
        // It may go at any time.
        let _ = kill_process_group(group, Signal::KILL);
        std::thread::sleep(super::LOOK);
    }
}

/// When a process started, in clock ticks since the machine did; `None` if there is none, or it is dead and not yet buried.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") { None } else { fields.get(19)?.parse().ok() }
}

/// Mount points below a place, the deepest first.
fn mounts_below(place: &Path, mountinfo: &str) -> Vec<PathBuf> {
    let points =
        mountinfo.lines().filter_map(|line| line.split_whitespace().nth(4)).map(|point| PathBuf::from(point.replace("\\040", " ")));
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(place)).collect();
    below.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_noted_process_is_ended_and_another_of_its_number_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let spawn = || std::process::Command::new("sleep").arg("100").process_group(0).spawn().expect("runs");
        let (mut ours, mut others) = (spawn(), spawn());
        note(place.path(), ours.id());
        let notes = place.path().join(NOTES);
        let known = std::fs::read_to_string(&notes).expect("was noted");
        std::fs::write(&notes, format!("{known}{} 1\nnonsense\n", others.id())).expect("writes");
        clear(place.path()).expect("clears");
        assert!(!place.path().exists());
        assert!(ours.wait().expect("ended").code().is_none(), "it was killed");
        assert!(others.try_wait().expect("asked").is_none(), "it runs");
        others.kill().and_then(|()| others.wait()).expect("ends");
        clear(place.path()).expect("nothing is no trouble");
    }

    #[test]
    fn mounts_are_found_deepest_first() {
        let mounts =
            "1 0 8:1 / /a rw - x y rw\n2 1 8:2 / /a/b\\040c rw - x y rw\n3 1 8:2 / /a/b\\040c/d rw - x y rw\n4 1 8:2 / /ab rw - x y rw\n";
        assert_eq!(mounts_below(Path::new("/a"), mounts), ["/a/b c/d", "/a/b c", "/a"].map(PathBuf::from));
    }
}
