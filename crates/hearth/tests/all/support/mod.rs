//! The real binary in a temporary directory: a daemon that ends with its guard, and commands against it.
#![allow(dead_code)] // Each test file uses a part.

pub mod nbd;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary under test.
const HEARTH: &str = env!("CARGO_BIN_EXE_hearth");

/// How long is waited for what is sure to come: far longer than it takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(120);

fn look_until<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(5));
    loop {
        let found = look();
        if found.is_some() || begun.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(160));
    }
}

/// Looks until there is something, and gives it. Fails with `what` where nothing comes.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match look_until(look) {
        Some(found) => found,
        None => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Looks until it is so. Fails with `what` where it never is.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// A place of its own: state, socket, files.
pub struct Place {
    pub directory: tempfile::TempDir,
}

/// A daemon; killed by its id when dropped.
pub struct Daemon {
    pub child: Child,
    pub ready: String,
    stderr: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// A sparse file.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        std::fs::File::create(&path).and_then(|f| f.set_len(bytes)).expect("there is room");
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HEARTH);
        command.args(arguments).env("HEARTH_STATE", self.path("state")).env("HEARTH_SOCKET", self.path("run/h.sock"));
        command.env_remove("HEARTH_LOG").env("HEARTH_CONFIG", "").current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        let Output { status, stdout, stderr } = self.command(arguments).output().expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        Ended { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed; gives its output.
    pub fn must(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.status, Some(0), "{arguments:?}: {ended:?}");
        ended.stdout
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.must(&arguments)).expect("--json gives JSON")
    }

    /// Runs a command that must fail with one sentence.
    pub fn must_fail(&self, arguments: &[&str], status: i32, part: &str) {
        check_failure(&self.run(arguments), &format!("{arguments:?}"), status, part);
    }

    /// The process that holds the exports of this place's daemon, if it runs.
    pub fn keeper(&self) -> Option<rustix::process::Pid> {
        let wanted = format!("hearth\0keeper\0{}\0{}\0", self.path("state/keeper.sock"), self.path("run/h.sock"));
        let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
        let keeper = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &i32| {
            // What has ended has no command line any more.
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted.as_bytes())
        });
        keeper.and_then(rustix::process::Pid::from_raw)
    }

    pub fn daemon(&self) -> Daemon {
        self.start(self.command(&["serve"]))
    }

    /// One request to the API by the socket, as it is; the answer with its head.
    pub fn ask(&self, request: &str) -> String {
        let mut stream = std::os::unix::net::UnixStream::connect(self.path("run/h.sock")).expect("it listens");
        stream.write_all(request.as_bytes()).expect("there is room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// A daemon that gets an error, and no signal, for a write beyond the largest file size it may make (`prlimit`).
    pub fn daemon_with_limits(&self) -> Daemon {
        let serve = self.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" serve", HEARTH]).current_dir(self.directory.path()).stdin(Stdio::null());
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        self.start(shell)
    }

    pub fn start(&self, mut command: Command) -> Daemon {
        let stderr = self.directory.path().join("serve.err");
        let log = std::fs::File::create(&stderr).expect("there is room");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut ready).expect("it is text");
        let daemon = Daemon { child, ready, stderr };
        assert!(daemon.ready.starts_with("ready in "), "{:?}: {}", daemon.ready, daemon.log());
        daemon
    }
}

/// One sentence: "hearth: ...", with a part, without a line break.
pub fn check_failure(ended: &Ended, case: &str, status: i32, part: &str) {
    assert_eq!(ended.status, Some(status), "{case}: {ended:?}");
    // What takes long says so before.
    let is_progress =
        |line: &str| line.contains(" ...") && !line.starts_with("hearth: ") || line.starts_with("waiting for an answer of the daemon");
    let said = ended.stderr.trim_end();
    let progress = said.split_inclusive('\n').take_while(|line| is_progress(line.trim_end())).map(str::len).sum();
    let sentence = &said[progress..];
    assert!(sentence.starts_with("hearth: ") && !sentence.contains('\n'), "{case}: not one sentence: {sentence}");
    assert!(sentence.contains(part), "{case}: {sentence:?} lacks {part:?}");
    assert!(sentence.contains([';', ':']), "{case}: no remedy in {sentence:?}");
}

impl Daemon {
    /// Looks until it is so. Fails with `what` and the daemon's log where it never is.
    #[track_caller]
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        if look_until(|| is_so().then_some(())).is_none() {
            panic!("{what}: not within {PATIENCE:?}: {}", self.log());
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// A clean stop.
    pub fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.child.wait().expect("it is our child");
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }

    /// As a crash.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // A test failed: what matters is that nothing is left.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test failed, and its daemon with it: a device that nobody serves would hang all that
        // look at it.
        if std::thread::panicking() && self.keeper().is_some() {
            let Ended { stdout, stderr, .. } = self.run(&["rescue"]);
            eprintln!("what the test left: {stdout}{stderr}");
        }
    }
}

/// Whether a path is there.
pub fn exists(path: impl AsRef<Path>) -> bool {
    path.as_ref().exists()
}
