//! Child processes with a hard time limit.
//!
//! Output goes to unnamed files, so a child that writes much cannot block, and one that is killed leaves what it wrote.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(20);

/// How long a killed child may take to go. One that is stuck in the kernel on a dead device goes when the device does, not before.
const KILLED_LIMIT: Duration = Duration::from_secs(10);

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit status; `None` if a signal ended it, ours at the time limit included.
    pub code: Option<i32>,
    /// Whether it was killed because its time was up.
    pub late: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Whether it ended by itself with status 0.
    pub fn good(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs a command to its end, or kills it after `limit`.
///
/// # Panics
///
/// If the program cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Ended {
    let [mut out, mut err] = [(); 2].map(|()| tempfile::tempfile().expect("there is room for output"));
    let copy = |file: &File| Stdio::from(file.try_clone().expect("a descriptor is free"));
    let started = command.stdin(Stdio::null()).stdout(copy(&out)).stderr(copy(&err)).spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let status = wait(&mut child, limit);
    if status.is_none() {
        end(&mut child);
    }
    Ended { code: status.and_then(|s| s.code()), late: status.is_none(), stdout: text(&mut out), stderr: text(&mut err) }
}

/// Runs a command that must succeed within `limit`; gives its standard output.
///
/// # Panics
///
/// If it fails or is late, with all it said.
pub fn must(command: &mut Command, limit: Duration) -> String {
    let ended = run(command, limit);
    assert!(ended.good(), "{command:?} (limit {limit:?}): {ended:#?}");
    ended.stdout
}

/// A command from its words.
pub fn words<S: AsRef<str>>(words: &[S]) -> Command {
    let mut command = Command::new(words[0].as_ref());
    command.args(words[1..].iter().map(AsRef::as_ref));
    command
}

/// Waits for a child; `None` if it still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        match child.try_wait().expect("it is our child") {
            Some(status) => return Some(status),
            None if begun.elapsed() >= limit => return None,
            None => std::thread::sleep(POLL),
        }
    }
}

/// Kills a child and waits for it, but not for ever.
pub fn end(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        // It may have gone in between: then there is nothing to kill.
        drop(child.kill());
        if wait(child, KILLED_LIMIT).is_none() {
            eprintln!("process {} does not go after SIGKILL", child.id());
        }
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("output can be read back");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_child_is_killed_and_its_output_kept() {
        let ended = run(&mut words(&["sh", "-c", "echo begun; exec sleep 600"]), Duration::from_millis(300));
        assert!(ended.late && !ended.good(), "{ended:?}");
        assert_eq!(ended.stdout, "begun\n");
    }

    #[test]
    fn a_failure_is_told() {
        let ended = run(&mut words(&["sh", "-c", "echo no >&2; exit 3"]), Duration::from_secs(60));
        assert_eq!((ended.code, ended.late, ended.stderr.as_str()), (Some(3), false, "no\n"));
    }
}
