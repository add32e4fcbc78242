//! Where legs happen: a directory, the processes that run in it, and the list of commands that repeats by hand what they did.
//!
//! Every process has a process group of its own, so that Ctrl-C on a terminal reaches the evaluation alone and it decides what ends when. All of them
//! end with their guards, in reverse order.

mod cached;
pub mod leftovers;
mod loop_device;
mod process;
mod read_waits;

pub use cached::{Backing, Bare, Cached, Setup, Teller};
pub use loop_device::LoopDevice;
pub use process::Running;
pub use read_waits::ReadWaits;

use crate::trouble::Trouble;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often waiting looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);
/// For commands that do little.
pub const SHORT: Duration = Duration::from_secs(60);

/// See the module. Clones are the same stage.
#[derive(Clone)]
pub struct Stage {
    place: PathBuf,
    hearth: PathBuf,
    stop: Arc<AtomicBool>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// A stage in a directory that is there, for this binary of hearth. `stop` ends what waits.
    pub fn new(place: &Path, hearth: &Path, stop: Arc<AtomicBool>) -> Stage {
        Stage { place: place.to_path_buf(), hearth: hearth.to_path_buf(), stop, said: Arc::default() }
    }

    /// A stage for looks that leave nothing behind: in the temporary directory.
    pub fn here(hearth: &Path) -> Stage {
        Stage::new(&std::env::temp_dir(), hearth, Arc::default())
    }

    /// Its directory.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// The same as text, for a command line.
    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The binary of hearth.
    pub fn hearth(&self) -> String {
        self.hearth.display().to_string()
    }

    /// True once the user wants an end.
    pub fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Whether the user wants an end.
    ///
    /// # Errors
    /// [`Trouble::Stopped`] if so.
    pub fn go_on(&self) -> Result<(), Trouble> {
        if self.stop.load(Ordering::Relaxed) { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Rests, unless the user wants an end.
    ///
    /// # Errors
    /// [`Trouble::Stopped`] then.
    pub fn rest(&self, duration: Duration) -> Result<(), Trouble> {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            self.go_on()?;
            std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        self.go_on()
    }

    /// Adds a line to the list of commands: something done that is no process of ours.
    pub fn say(&self, line: impl Into<String>) {
        self.said.lock().expect("no thread panics with it").push(line.into());
    }

    /// The list of commands since the last call.
    pub fn take_commands(&self) -> Vec<String> {
        std::mem::take(&mut *self.said.lock().expect("no thread panics with it"))
    }

    /// A directory elsewhere that goes with a guard, or, if this process is killed, with the next run.
    fn note_directory(&self, directory: &Path) {
        if self.place != std::env::temp_dir() {
            leftovers::note_directory(&self.place, directory);
        }
    }

    /// Looks in the temporary directory are nobody's leftovers.
    fn note(&self, pid: u32) {
        if self.place != std::env::temp_dir() {
            leftovers::note(&self.place, pid);
        }
    }

    fn command<S: AsRef<str>>(&self, words: &[S], env: &[(String, String)]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(words[0].as_ref());
        command.args(words[1..].iter().map(AsRef::as_ref)).envs(env.iter().cloned());
        command.current_dir(&self.place).stdin(Stdio::null()).process_group(0);
        // Messages are read: they must be in English and numbers with points.
        command.env("LC_ALL", "C");
        command
    }

    /// Runs a program to its end and gives its output. It is ended after `limit`, or when the user wants an end.
    ///
    /// # Errors
    /// If it cannot be started, takes too long, or ends with another status than 0: its last words.
    pub fn run<S: AsRef<str>>(&self, words: &[S], limit: Duration) -> Result<String, Trouble> {
        self.run_with(words, &[], limit)
    }

    /// As [`Stage::run`], with variables of the environment.
    ///
    /// # Errors
    /// As there.
    pub fn run_with<S: AsRef<str>>(&self, words: &[S], env: &[(String, String)], limit: Duration) -> Result<String, Trouble> {
        self.say(line_of(words, env));
        self.run_unsaid(words, env, limit)
    }

    /// As [`Stage::run_with`], not in the list: a look that changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn run_unsaid<S: AsRef<str>>(&self, words: &[S], env: &[(String, String)], limit: Duration) -> Result<String, Trouble> {
        let mut command = self.command(words, env);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| cannot_start(words[0].as_ref(), &error))?;
        self.note(child.id());
        process::output(child, words[0].as_ref(), limit, &self.stop)
    }

    /// Starts a program that runs on; what it says goes to `NAME.log` in the stage's directory.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin<S: AsRef<str>>(&self, name: &str, words: &[S], env: &[(String, String)]) -> Result<Running, Trouble> {
        self.say(format!("{} &", line_of(words, env)));
        let log = self.path(&format!("{name}.log"));
        let file = std::fs::File::create(&log).map_err(|error| Trouble::io("write", &log, &error))?;
        let twice = file.try_clone().map_err(|error| Trouble::io("write", &log, &error))?;
        let mut command = self.command(words, env);
        command.stdout(file).stderr(twice);
        let child = command.spawn().map_err(|error| cannot_start(words[0].as_ref(), &error))?;
        self.note(child.id());
        Ok(Running::new(child, words[0].as_ref(), log, Arc::clone(&self.stop)))
    }
}

/// Runs a command of a guard: silently, to its end, whether or not the user wants one. Gives whether it succeeded.
pub(crate) fn unhurried(words: &[&str]) -> bool {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.status().is_ok_and(|status| status.success())
}

fn cannot_start(program: &str, error: &std::io::Error) -> Trouble {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Trouble::failed(format!("{program} is not installed"), "`hearth evaluate run --yes` installs what the suites need");
    }
    Trouble::Failed(format!("cannot start {program}: {error}"))
}

/// A command as a shell takes it.
fn line_of<S: AsRef<str>>(words: &[S], env: &[(String, String)]) -> String {
    let variables = env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    variables.chain(words.iter().map(|word| quoted(word.as_ref()))).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage() -> (tempfile::TempDir, Stage) {
        let place = tempfile::tempdir().expect("a directory");
        let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
        (place, stage)
    }

    #[test]
    fn commands_are_told_as_a_shell_takes_them() {
        let (_place, stage) = stage();
        let text = stage.run_with(&["sh", "-c", "printf '%s' \"$A b\""], &[("A".into(), "it's".into())], SHORT).expect("runs");
        assert_eq!(text, "it's b");
        let said = stage.take_commands().remove(0);
        assert_eq!(stage.run_unsaid(&["sh", "-c", &said], &[], SHORT).expect("the line is a command"), "it's b");
        assert!(stage.take_commands().is_empty());
    }

    #[test]
    fn what_fails_tells_its_last_words_and_what_hangs_is_ended() {
        let (_place, stage) = stage();
        let failed = stage.run(&["sh", "-c", "echo one; echo two >&2; exit 3"], SHORT).expect_err("fails");
        assert_eq!(failed.to_string(), "sh ended with status 3: two");
        let many = "echo begins; echo FATAL: the server is gone >&2; for n in 1 2 3 4 5; do echo client $n >&2; done; exit 1";
        let failed = stage.run(&["sh", "-c", many], SHORT).expect_err("fails").to_string();
        assert_eq!(failed, "sh ended with status 1: FATAL: the server is gone / … / client 2 / client 3 / client 4 / client 5");
        let missing = stage.run(&["no-such-program"], SHORT).expect_err("fails").to_string();
        assert!(missing.starts_with("no-such-program is not installed; "), "{missing}");
        let begun = Instant::now();
        let late = stage.run(&["sh", "-c", "sleep 100 & wait"], Duration::from_millis(100)).expect_err("is ended");
        assert!(late.to_string().contains("did not end within") && begun.elapsed() < SHORT, "{late}");
    }

    /// The number of a process that has ended stays its own until the guard has gone, so that nothing is sent to another of that number.
    #[test]
    fn what_has_ended_keeps_its_number_until_the_guard_goes() {
        let (_place, stage) = stage();
        let mut running = stage.begin("one", &["sh", "-c", "sleep 100 & echo $!; exit 3"], &[]).expect("starts");
        while running.look().is_ok() {
            std::thread::sleep(LOOK);
        }
        let sleeping = running.said();
        assert!(sleeping.trim().parse::<u32>().is_ok(), "it said a number: {sleeping:?}");
        assert!(!running.end(), "it ended with 3");
        running.send(rustix::process::Signal::KILL);
        let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat(&running.pid().to_string()).contains(") Z "), "dead, and not yet buried");
        // It may still be on its way from the shell to the program.
        let lives = || [") S ", ") R ", ") D "].iter().any(|state| stat(&sleeping).contains(state));
        assert!(lives(), "what it left behind");
        let pid = running.pid();
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "buried");
        let begun = Instant::now();
        while lives() && begun.elapsed() < SHORT {
            std::thread::sleep(LOOK);
        }
        assert!(!lives(), "and what it left behind has gone");
    }

    #[test]
    fn an_end_that_the_user_wants_ends_what_runs() {
        let (_place, stage) = stage();
        let other = stage.clone();
        let waiting = std::thread::spawn(move || other.run(&["sleep", "100"], SHORT));
        std::thread::sleep(Duration::from_millis(50));
        stage.stop.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().expect("no panic"), Err(Trouble::Stopped));
        assert_eq!(stage.rest(SHORT), Err(Trouble::Stopped));
    }

    #[test]
    fn what_runs_on_is_waited_for_and_ends_with_its_guard() {
        let (_place, stage) = stage();
        let mut running = stage.begin("server", &["sh", "-c", "echo ready at 7; exec sleep 100"], &[]).expect("begins");
        assert_eq!(running.wait_for("ready", SHORT).expect("says it"), "ready at 7");
        let pid = running.pid();
        assert!(Path::new(&format!("/proc/{pid}")).exists());
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let mut short = stage.begin("short", &["sh", "-c", "echo no room >&2; exit 1"], &[]).expect("begins");
        let told = short.wait_for("ready", SHORT).expect_err("it ended").to_string();
        assert!(told.contains("ended with status 1") && told.contains("no room"), "{told}");
    }
}
