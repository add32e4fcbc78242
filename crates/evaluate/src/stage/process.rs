//! Processes of ours: ended by pid and group, never by name. A number is ours as long as the process that has it was not waited for: so
//! one that has ended is looked at ([`ended_with`]) and left in place until nothing more is sent to it or its group.

use super::LOOK;
use crate::trouble::Trouble;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long something may take to end when it is asked to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that runs on; ends with this guard.
pub struct Running {
    child: Child,
    program: String,
    log: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Running {
    pub(super) fn new(child: Child, program: &str, log: PathBuf, stop: Arc<AtomicBool>) -> Running {
        Running { child, program: program.into(), log, stop }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said so far.
    pub fn said(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The first line it says that has this text.
    ///
    /// # Errors
    /// If it ends before, or does not say so in time, or the user wants an end.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<String, Trouble> {
        let begun = Instant::now();
        loop {
            // A line is whole with its end only.
            let said = self.said();
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                return Ok(line.into());
            }
            self.look()?;
            if begun.elapsed() > limit {
                return Err(Trouble::failed(
                    format!("{} does not say `{text}` within {} s", self.program, limit.as_secs()),
                    &format!("see {}", self.log.display()),
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// If it has ended (with its last words), or the user wants an end.
    pub fn look(&mut self) -> Result<(), Trouble> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        match ended_with(&self.child) {
            Ok(Some(status)) => Err(ended(&self.program, status, &self.said())),
            _ => Ok(()),
        }
    }

    /// Whether it has ended by itself, with status 0.
    ///
    /// # Errors
    /// If it ended with another (with its last words), or the user wants an end.
    pub fn done(&mut self) -> Result<bool, Trouble> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        match ended_with(&self.child) {
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => Err(ended(&self.program, status, &self.said())),
            Ok(None) => Ok(false),
            Err(error) => Err(Trouble::Failed(format!("cannot wait for {}: {error}", self.program))),
        }
    }

    /// Sends it a signal, unless it has ended.
    pub fn send(&mut self, which: Signal) {
        if matches!(ended_with(&self.child), Ok(None)) {
            signal(&self.child, which);
        }
    }

    /// Waits until it ends by itself, and gives what it said.
    ///
    /// # Errors
    /// As of [`Stage::run`](super::Stage::run).
    pub fn finish(self, limit: Duration) -> Result<String, Trouble> {
        let status = wait(&self.child, &self.program, limit, &self.stop)?;
        if status.success() { Ok(self.said()) } else { Err(ended(&self.program, status, &self.said())) }
    }

    /// Asks it to end (SIGTERM) and waits; after a minute it is killed. Gives whether it ended when asked, with status 0.
    pub fn end(&mut self) -> bool {
        if let Ok(Some(status)) = ended_with(&self.child) {
            return status.success();
        }
        signal(&self.child, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match ended_with(&self.child) {
                Ok(Some(status)) => return status.success(),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => break,
            }
        }
        kill(&self.child);
        false
    }

    /// CPU time of the process in seconds, its ended threads included; `None` when it is gone.
    pub fn cpu_s(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        // The name may contain anything, brackets too.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some(ticks / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        // What it started and left behind.
        kill(&self.child);
        // From here on its number may be another's.
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Kills the whole group, a shell's children too, and waits until the first of it has ended. It must not have been waited for before.
fn kill(child: &Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
}

/// How a process has ended, if it has; its number stays its own.
fn ended_with(child: &Child) -> std::io::Result<Option<ExitStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(Pid::from_child(child)), options)?;
    Ok(ended.map(|how| {
        let raw = how.exit_status().map_or_else(|| how.terminating_signal().unwrap_or(0), |code| code << 8);
        ExitStatus::from_raw(raw)
    }))
}

fn wait(child: &Child, program: &str, limit: Duration, stop: &AtomicBool) -> Result<ExitStatus, Trouble> {
    let begun = Instant::now();
    loop {
        match ended_with(child) {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(Trouble::Failed(format!("cannot wait for {program}: {error}"))),
        }
        if stop.load(Ordering::Relaxed) {
            kill(child);
            return Err(Trouble::Stopped);
        }
        if begun.elapsed() > limit {
            kill(child);
            return Err(Trouble::failed(
                format!("{program} did not end within {:.0} s", limit.as_secs_f64()),
                "is the machine overloaded?",
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for a process with both outputs piped; gives what it wrote to the standard one.
pub(super) fn output(mut child: Child, program: &str, limit: Duration, stop: &AtomicBool) -> Result<String, Trouble> {
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = wait(&child, program, limit, stop);
    // Nothing more is sent to it.
    let _ = child.wait();
    let status = status?;
    let text = |thread: std::thread::JoinHandle<Vec<u8>>| String::from_utf8_lossy(&thread.join().unwrap_or_default()).into_owned();
    let (out, err) = (text(out), text(err));
    if status.success() { Ok(out) } else { Err(ended(program, status, if err.trim().is_empty() { &out } else { &err })) }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is worth telling.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Lines of its last words that are told of a program that failed.
const LAST_LINES: usize = 4;

fn ended(program: &str, status: ExitStatus, said: &str) -> Trouble {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".into(),
    };
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    // What many clients say at the end hides what one of them said first.
    let complains = |line: &&&str| ["error", "fatal"].iter().any(|word| line.to_ascii_lowercase().contains(word));
    let first = lines[..lines.len() - last.len()].iter().find(complains).map(|line| [*line, "…"]);
    let last = first.into_iter().flatten().chain(last.iter().copied()).collect::<Vec<_>>().join(" / ");
    let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    Trouble::Failed(if last.is_empty() { format!("{name} ended with {how}") } else { format!("{name} ended with {how}: {last}") })
}
