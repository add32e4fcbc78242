//! What a run that was killed left behind: processes (noted in a file when they begin, with their start time, so that a number that was given out again
//! is nobody else's), mounts below its directory, loop devices over files in it, directories elsewhere (noted too), then the directory.

use super::loop_device;
use crate::trouble::Trouble;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NOTES: &str = "processes";
/// How names of directories elsewhere begin. No other is removed: on a full disk a note may be cut off, and `/tmp` is a beginning of one.
pub(super) const ELSEWHERE: &str = "hearth-evaluate-";
/// How long a process may take to end when it is asked to: one that offers a device takes the device along, if nobody uses it. Then it is killed.
const ORDER: Duration = Duration::from_secs(30);
/// How long a killed process may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Notes a process of ours, the first of its group.
pub(super) fn note(place: &Path, pid: u32) {
    if let Some(started) = start_ticks(pid) {
        note_line(place, &format!("{pid} {started}"));
    }
}

/// Notes a directory of ours elsewhere.
pub(super) fn note_directory(place: &Path, directory: &Path) {
    note_line(place, &directory.display().to_string());
}

fn note_line(place: &Path, line: &str) {
    let file = std::fs::File::options().append(true).create(true).open(place.join(NOTES));
    // Without the note a killed run leaves something; that is no reason not to run.
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

/// Ends and removes all of it.
///
/// # Errors
/// If something stays: with its name.
pub fn clear(place: &Path) -> Result<(), Trouble> {
    clear_within(place, ORDER)
}

fn clear_within(place: &Path, order: Duration) -> Result<(), Trouble> {
    let notes = std::fs::read_to_string(place.join(NOTES)).unwrap_or_default();
    // The last one first: who uses a device goes before who offers it, and a file system on it in between.
    for line in notes.lines().rev() {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let (Some(Ok(pid)), Some(Ok(started))) = (words.next(), words.next()) else { continue };
        if start_ticks(pid as u32) == Some(started) {
            for point in mounted_below(place) {
                // One that is in use is tried again when that has ended.
                let _ = unmounts(&point, &[]);
            }
            end(pid as u32, started, order);
        }
    }
    let is_ours = |path: &&Path| path.is_absolute() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ELSEWHERE));
    for place in notes.lines().map(Path::new).filter(is_ours).chain([place]) {
        // Before what it is over loses its name. One with a file system on it goes with that.
        loop_device::detach_all_below(place);
        for point in mounted_below(place) {
            // Lazily: what it was mounted from may be gone.
            if !unmounts(&point, &["-l"]) {
                return Err(Trouble::failed(
                    format!("{} is still mounted", point.display()),
                    "unmount it, then run the same command again",
                ));
            }
        }
        match std::fs::remove_dir_all(place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Trouble::io("remove", place, &error)),
            _ => {}
        }
    }
    Ok(())
}

/// Asks a process to end, and after that time its whole group is killed.
fn end(pid: u32, started: u64, order: Duration) {
    let Some(group) = Pid::from_raw(pid.cast_signed()) else { return };
    // By a descriptor, which never becomes another process's: what has that number now is looked at after it is opened.
    let Ok(process) = pidfd_open(group, PidfdFlags::empty()) else { return };
    if start_ticks(pid) != Some(started) {
        return;
    }
    // It may go at any time.
    let _ = pidfd_send_signal(&process, Signal::TERM);
    let begun = Instant::now();
    while start_ticks(pid) == Some(started) && begun.elapsed() < order {
        std::thread::sleep(super::LOOK);
    }
    while start_ticks(pid) == Some(started) && begun.elapsed() < order + PATIENCE {
        let _ = kill_process_group(group, Signal::KILL);
        std::thread::sleep(super::LOOK);
    }
}

fn unmounts(point: &Path, how: &[&str]) -> bool {
    let mut command = std::process::Command::new("umount");
    command.args(how).arg(point).stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// When a process started, in clock ticks since the machine did; `None` if there is none, or it is dead and not yet buried.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, brackets too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") { None } else { fields.get(19)?.parse().ok() }
}

fn mounted_below(place: &Path) -> Vec<PathBuf> {
    mounts_below(place, &std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
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
        assert!(ours.wait().expect("ended").code().is_none(), "it was ended");
        assert!(others.try_wait().expect("asked").is_none(), "it runs");
        others.kill().and_then(|()| others.wait()).expect("ends");
        clear(place.path()).expect("nothing is no trouble");
    }

    /// What offers a device takes it along when it is asked to end, and not when it is killed.
    #[test]
    fn a_noted_process_is_asked_first_and_killed_if_it_does_not_end() {
        let place = tempfile::tempdir().expect("a directory");
        let (work, elsewhere) = (place.path().join("work"), place.path().join(format!("{ELSEWHERE}1")));
        let others = place.path().join("others");
        [&work, &elsewhere, &others].into_iter().for_each(|directory| std::fs::create_dir(directory).expect("makes"));
        let spawn = |script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).current_dir(place.path()).process_group(0).spawn().expect("runs")
        };
        let mut polite = spawn("trap 'echo in order > ended; exit 7' TERM; echo > ready-1; while :; do sleep 0.02; done");
        let mut deaf = spawn("trap '' TERM; echo > ready-2; while :; do sleep 0.02; done");
        while ["ready-1", "ready-2"].iter().any(|name| !place.path().join(name).exists()) {
            std::thread::sleep(crate::stage::LOOK);
        }
        [&polite, &deaf].into_iter().for_each(|child| note(&work, child.id()));
        [&elsewhere, &others].into_iter().for_each(|directory| note_directory(&work, directory));
        clear_within(&work, Duration::from_millis(500)).expect("clears");
        assert_eq!(polite.wait().expect("ended").code(), Some(7), "it ended by itself");
        assert!(place.path().join("ended").exists());
        assert!(deaf.wait().expect("ended").code().is_none(), "it was killed");
        assert!(!work.exists() && !elsewhere.exists() && others.exists(), "what has no name of ours stays");
    }

    #[test]
    fn mounts_are_found_deepest_first() {
        let mounts =
            "1 0 8:1 / /a rw - x y rw\n2 1 8:2 / /a/b\\040c rw - x y rw\n3 1 8:2 / /a/b\\040c/d rw - x y rw\n4 1 8:2 / /ab rw - x y rw\n";
        assert_eq!(mounts_below(Path::new("/a"), mounts), ["/a/b c/d", "/a/b c", "/a"].map(PathBuf::from));
    }
}
