//! A private PostgreSQL server.

use crate::command;
use crate::needs;
use crate::place::{LONG, Place, SHORT};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The user that Linux has for who may do nothing.
const UNPRIVILEGED: u32 = 65534;

/// The user that owns nothing here: PostgreSQL refuses root.
pub fn account() -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").expect("every system has it");
    let of = |name: &str| users.lines().find(|line| line.split(':').next() == Some(name))?.split(':').nth(2)?.parse().ok();
    of("postgres").unwrap_or(UNPRIVILEGED)
}

/// A program of PostgreSQL, to be run as that user.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(needs::program("setpriv").expect("it was looked for"));
    let path = needs::postgres(name).or_else(|| needs::program(name)).expect("it was looked for");
    command.arg(format!("--reuid={}", account())).args(["--clear-groups", "--", &path]).current_dir(Path::new("/"));
    command
}

/// A running server: told to stop at once with its guard.
pub struct Postgres {
    child: Child,
    socket: String,
}

impl Postgres {
    /// Starts the server over a cluster and waits until it answers, recovery included. Its socket is in the directory `socket`.
    pub fn start(place: &Place, data: &str, socket: &Path, options: &[&str]) -> Postgres {
        let (socket, log) = (socket.display().to_string(), place.path("postgres.log"));
        let mut server = program("postgres");
        server.args(["-D", data, "-k", &socket, "-c", "listen_addresses="]).args(options.iter().flat_map(|option| ["-c", option]));
        let said = std::fs::File::create(&log).expect("there is room");
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().expect("postgres starts");
        let mut server = Postgres { child, socket };
        let begun = Instant::now();
        while !command::run(&mut server.client(&["psql", "-c", "select 1"]), SHORT).good() {
            let ended = server.child.try_wait().expect("it is our child");
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none() && begun.elapsed() < LONG, "postgres does not answer ({ended:?}): {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    /// A client program and its options, on the database of the administrator.
    pub fn client(&self, words: &[&str]) -> Command {
        self.client_maker(words)()
    }

    /// What makes such clients, whatever becomes of the server.
    pub fn client_maker(&self, words: &[&str]) -> impl Fn() -> Command + use<> {
        let (socket, words) = (self.socket.clone(), words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        move || {
            let mut client = program(&words[0]);
            client.args(["-h", &socket, "-U", "postgres"]).args(&words[1..]).arg("postgres");
            client
        }
    }

    /// Runs statements that must succeed; gives what they answer, a row a line, with tabs between.
    pub fn must(&self, statements: &str) -> String {
        command::must(&mut self.client(&["psql", "-qAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", statements]), LONG)
    }

    /// A clean stop, clients or not.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it is our child and not waited for");
        let status = command::wait(&mut self.child, LONG);
        assert!(status.is_some_and(|status| status.success()), "postgres stopped with {status:?}");
    }

    /// As a crash: SIGKILL. Its processes notice that it is gone, and end.
    pub fn kill(&mut self) {
        command::end(&mut self.child);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Not waited for: the process is still ours.
            kill_process(Pid::from_child(&self.child), Signal::QUIT).expect("it is our child and not waited for");
            if command::wait(&mut self.child, SHORT).is_none() {
                command::end(&mut self.child);
            }
        }
    }
}
