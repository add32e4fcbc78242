//! A private MariaDB: its data in a directory of the device that is tried, its socket in a short one, TCP only for load generators that know nothing else.

use super::LONG;
use crate::stage::{Running, SHORT, Stage};
use crate::tools;
use crate::trouble::Trouble;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a start may take, crash recovery on a slow disk included.
const START: Duration = Duration::from_secs(600);

/// What differs from run to run; the rest is as a careful administrator has it (every commit on the disk, no torn pages).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The buffer pool.
    pub pool_bytes: u64,
    /// The redo log; the same at loading and in runs, so that no run begins by making another.
    pub log_bytes: u64,
    /// Connections at once.
    pub connections: u32,
    /// Commits are on the disk once a second only: for loading.
    pub careless: bool,
    /// Listens on 127.0.0.1 too, on a free port.
    pub tcp: bool,
}

/// How a server stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// With all of its work done: nothing is left to purge, merge or write for the next that starts with this data.
    Clean,
    /// At once; the next start recovers from the log. For data that is thrown away.
    Quick,
}

/// A server; killed with this guard.
pub struct MariaDb {
    stage: Stage,
    running: Running,
    socket: String,
    port: Option<u16>,
    // Of the socket, whose path may have 107 bytes; goes last.
    _short: tempfile::TempDir,
}

impl MariaDb {
    /// Makes the system's tables in a directory that is not there yet, with a redo log of so many bytes.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn install(stage: &Stage, data: &Path, log_bytes: u64) -> Result<(), Trouble> {
        let program = tools::program_of(&["mariadb-install-db", "mysql_install_db"]);
        // Without, it makes one of its usual size, and where that does not fit it waits for ever that somebody makes room.
        let (data, log) = (format!("--datadir={}", data.display()), format!("--innodb-log-file-size={log_bytes}"));
        let short = super::postgres::short_directory()?;
        let temporary = temporary(short.path());
        let words = [&program, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", &data, &log, &temporary];
        let owner = rustix::process::geteuid().is_root().then_some("--user=root");
        stage.run(&words.into_iter().chain(owner).collect::<Vec<_>>(), START).map(drop)
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// If it ends, or does not answer in time.
    pub fn start(stage: &Stage, data: &Path, settings: &Settings) -> Result<MariaDb, Trouble> {
        let short = super::postgres::short_directory()?;
        let socket = short.path().join("socket").display().to_string();
        let port = settings.tcp.then(free_port).transpose()?;
        let words = words(data, short.path(), port, settings);
        let running = stage.begin("mariadbd", &words, &[])?;
        let mut server = MariaDb { stage: stage.clone(), running, socket, port, _short: short };
        let began = Instant::now();
        while server.ask("", "select 1", false, SHORT).is_err() {
            server.running.look()?;
            if began.elapsed() > START {
                let log = stage.name("mariadbd.log");
                return Err(Trouble::failed(format!("MariaDB does not answer within {} s", START.as_secs()), &format!("see {log}")));
            }
            stage.rest(Duration::from_millis(100))?;
        }
        Ok(server)
    }

    /// Its socket.
    pub fn socket(&self) -> &str {
        &self.socket
    }

    /// Its port on 127.0.0.1, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Runs statements in a database (`""` for none) and gives the rows, columns separated by tabs.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn run(&self, database: &str, statements: &str, limit: Duration) -> Result<String, Trouble> {
        self.ask(database, statements, true, limit)
    }

    fn ask(&self, database: &str, statements: &str, said: bool, limit: Duration) -> Result<String, Trouble> {
        let (program, socket) = (tools::program_of(&["mariadb", "mysql"]), format!("--socket={}", self.socket));
        let words = [program.as_str(), "--no-defaults", "-u", "root", &socket, "-N", "-B", "-e", statements];
        let database = (!database.is_empty()).then_some(database);
        let words: Vec<&str> = words.into_iter().chain(database).collect();
        if said { self.stage.run(&words, limit) } else { self.stage.run_unsaid(&words, &[], limit) }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// As [`MariaDb::run`], not in the list of commands: a look that changes nothing.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn look(&self, database: &str, query: &str) -> Result<String, Trouble> {
        self.ask(database, query, false, SHORT)
    }

    /// Has the optimiser count what all tables of a database hold, now, not when it pleases: without, it reads tables as wholes.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn analyze(&self, database: &str) -> Result<(), Trouble> {
        for table in self.run(database, "show tables", SHORT)?.split_whitespace() {
            self.run(database, &format!("analyze table {table}"), LONG)?;
        }
        Ok(())
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// If it does not end in time, or with another status than 0.
    pub fn stop(mut self, how: Stop) -> Result<(), Trouble> {
        // https://mariadb.com/kb/en/innodb-system-variables/#innodb_fast_shutdown
        let fast = match how {
            Stop::Clean => 0,
            Stop::Quick => 2,
        };
        self.run("", &format!("set global innodb_fast_shutdown = {fast}; shutdown"), LONG)?;
        let began = Instant::now();
        while !self.running.done()? {
            if began.elapsed() > LONG {
                return Err(Trouble::Failed(format!("MariaDB did not stop within {} s; the device answers too slowly", LONG.as_secs())));
            }
            self.stage.rest(Duration::from_millis(50))?;
        }
        Ok(())
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // If it still runs something failed: its data is thrown away, and asked to end it would write all of its pool first.
        self.running.send(Signal::KILL);
    }
}

/// Where a server has its temporary tables. Each has a place of its own: what it finds there at its start it takes for its own, and removes.
fn temporary(short: &Path) -> String {
    format!("--tmpdir={}", short.display())
}

fn words(data: &Path, short: &Path, port: Option<u16>, settings: &Settings) -> Vec<String> {
    let mut words = vec![tools::program_of(&["mariadbd", "mysqld"])];
    words.extend(
        [
            "--no-defaults",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--innodb-flush-method=O_DIRECT",
            "--innodb-doublewrite=1",
            "--innodb-flush-neighbors=0",
            "--innodb-buffer-pool-dump-at-shutdown=OFF",
            "--innodb-buffer-pool-load-at-startup=OFF",
            "--innodb-stats-auto-recalc=OFF",
            "--innodb-io-capacity=2000",
        ]
        .map(str::to_owned),
    );
    words.extend([
        format!("--datadir={}", data.display()),
        format!("--socket={}", short.join("socket").display()),
        format!("--pid-file={}", short.join("pid").display()),
        temporary(short),
        format!("--innodb-buffer-pool-size={}", settings.pool_bytes),
        format!("--innodb-log-file-size={}", settings.log_bytes),
        format!("--innodb-flush-log-at-trx-commit={}", u8::from(!settings.careless)),
        format!("--max-connections={}", settings.connections),
    ]);
    match port {
        Some(port) => words.extend(["--bind-address=127.0.0.1".into(), format!("--port={port}")]),
        None => words.push("--skip-networking".into()),
    }
    if rustix::process::geteuid().is_root() {
        words.push("--user=root".into());
    }
    words
}

/// A port that nobody uses now.
pub(super) fn free_port() -> Result<u16, Trouble> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    let port = listener.and_then(|listener| listener.local_addr()).map(|address| address.port());
    port.map_err(|error| Trouble::Failed(format!("cannot find a free port on 127.0.0.1: {error}")))
}
