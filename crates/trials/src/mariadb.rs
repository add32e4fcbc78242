//! A private MariaDB server.

use crate::command;
use crate::needs::program;
use crate::place::{LONG, Place, SHORT};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The system tables, made on another disk and copied: only what is written under load is of interest here.
pub fn install(place: &Place, at: &Path) {
    let data = place.path("system-tables");
    let datadir = format!("--datadir={data}");
    let words =
        ["mariadb-install-db", "--no-defaults", &datadir, "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"];
    place.must_tool(&words, LONG);
    place.must_tool(&["cp", "-a", &data, &at.join("data").display().to_string()], LONG);
    // What nobody synced a crash may take: the load is to begin on firm ground.
    place.must_tool(&["sync", "-f", &at.display().to_string()], LONG);
}

/// A private server; killed with its guard.
pub struct Database {
    child: Child,
    socket: String,
    log: String,
}

impl Database {
    /// Starts the server and waits until it answers, recovery included. Its redo log lies in `log_at`, if that is given.
    pub fn start(place: &Place, at: &Path, log_at: Option<&Path>) -> Database {
        let log = log_at.map(|log| format!("--innodb-log-group-home-dir={}", log.display()));
        Database::start_with(place, at, log.as_slice())
    }

    /// The same with these options.
    pub fn start_with<S: AsRef<str>>(place: &Place, at: &Path, options: &[S]) -> Database {
        let (socket, log) = (place.socket("db.sock"), place.path("mariadbd.err"));
        let mut server = Command::new(program("mariadbd").expect("it was looked for"));
        server.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-grant-tables", "--skip-log-bin"]);
        server.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=O_DIRECT", "--innodb-buffer-pool-size=8M"]);
        server.args(["--innodb-log-file-size=8M", "--performance-schema=OFF", "--key-buffer-size=1M"]);
        server.arg(format!("--datadir={}", at.join("data").display())).arg(format!("--socket={socket}"));
        server.arg(format!("--pid-file={}", place.path("mariadbd.pid"))).arg(format!("--log-error={log}"));
        server.args(options.iter().map(S::as_ref));
        let child = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("mariadbd starts");
        let mut database = Database { child, socket, log };
        let begun = Instant::now();
        while !command::run(database.client().args(["-e", "SELECT 1"]), SHORT).good() {
            let ended = database.child.try_wait().expect("it is our child");
            assert!(ended.is_none() && begun.elapsed() < LONG, "mariadbd does not answer ({ended:?}): {}", database.said());
            std::thread::sleep(Duration::from_millis(100));
        }
        database
    }

    /// Where it listens.
    pub fn socket(&self) -> &str {
        &self.socket
    }

    /// A command line client.
    pub fn client(&self) -> Command {
        self.client_maker()()
    }

    /// What makes such clients, whatever becomes of the server.
    pub fn client_maker(&self) -> impl Fn() -> Command + use<> {
        let socket = format!("--socket={}", self.socket);
        move || {
            let mut client = Command::new("mariadb");
            client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--unbuffered", &socket]);
            client
        }
    }

    /// Runs statements that must succeed; gives what they answer, a row a line.
    pub fn must(&self, statements: &str) -> String {
        let ended = command::run(self.client().args(["-e", statements]), LONG);
        assert!(ended.good(), "{statements}: {} {}; the server said: {}", ended.stdout, ended.stderr, self.said());
        ended.stdout
    }

    /// A clean stop.
    pub fn stop(&mut self) {
        self.must("SHUTDOWN;");
        let status = command::wait(&mut self.child, LONG);
        assert!(status.is_some_and(|s| s.success()), "mariadbd stopped with {status:?}: {}", self.said());
    }

    /// As a crash: SIGKILL.
    pub fn kill(&mut self) {
        command::end(&mut self.child);
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}
