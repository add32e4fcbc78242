//! Backups of a database that serves: a dump by SQL inside the server, a copy of its files from outside.
//!
//! What a backup reads from storage is told by the kernel, for the thread, server process or program that
//! reads for it: `read_bytes` in its `/proc/PID/io`. With direct I/O that is every read of it, without it
//! what the page cache did not have.

use super::mariadb::MariaDb;
use super::postgres::Postgres;
use crate::stage::{Running, SHORT, Stage};
use crate::tools;
use crate::trouble::Trouble;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the server is asked who reads for the dump, until that is known.
const ASK: Duration = Duration::from_millis(250);

/// A way to back a database up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// All tables by SQL, in one transaction.
    MysqlDump,
    /// All files of MariaDB, while it runs.
    MariadbBackup,
    /// All tables by COPY, in one transaction.
    PgDump,
}

/// A server that is backed up.
#[derive(Clone, Copy)]
pub enum Served<'a> {
    /// MariaDB, with the databases to be dumped.
    MariaDb(&'a MariaDb),
    /// PostgreSQL.
    Postgres(&'a Postgres),
}

impl Way {
    /// The program, by any of its names.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Way::MysqlDump => &["mariadb-dump", "mysqldump"],
            Way::MariadbBackup => &["mariadb-backup", "mariabackup"],
            Way::PgDump => &["pg_dump"],
        }
    }

    /// The Debian package that has it.
    pub const fn package(self) -> &'static str {
        match self {
            Way::MysqlDump => "mariadb-client-core",
            Way::MariadbBackup => "mariadb-backup",
            Way::PgDump => "postgresql-client",
        }
    }

    /// Whether it is installed.
    ///
    /// # Errors
    /// What to install.
    pub fn check(self) -> Result<(), Trouble> {
        if self.programs().iter().any(|name| tools::program(name).is_some()) {
            return Ok(());
        }
        Err(Trouble::failed(format!("{} is not installed", self.programs()[0]), &format!("install the package {}", self.package())))
    }

    /// The command; what it makes is thrown away.
    fn words(self, stage: &Stage, server: Served, databases: &[String]) -> Result<Vec<String>, Trouble> {
        let program = tools::program_of(self.programs());
        let words: Vec<String> = match (self, server) {
            (Way::MysqlDump, Served::MariaDb(server)) => {
                let fixed =
                    ["--no-defaults", "-u", "root", "--single-transaction", "--quick", "--result-file=/dev/null"].map(str::to_owned);
                let named = [format!("--socket={}", server.socket()), "--databases".into()];
                std::iter::once(program).chain(fixed).chain(named).chain(databases.iter().cloned()).collect()
            }
            (Way::MariadbBackup, Served::MariaDb(server)) => {
                let data = server.run("", "select @@datadir", SHORT)?;
                let to = stage.path("mariadb-backup");
                std::fs::create_dir_all(&to).map_err(|error| Trouble::io("make", &to, &error))?;
                let of_it = [
                    "--no-defaults".into(),
                    "--backup".into(),
                    "--user=root".into(),
                    format!("--socket={}", server.socket()),
                    format!("--datadir={}", data.trim()),
                    format!("--target-dir={}", to.display()),
                    "--stream=xbstream".into(),
                ];
                let shell = ["sh", "-c", "exec \"$@\" > /dev/null", "sh"].map(str::to_owned);
                shell.into_iter().chain([program]).chain(of_it).collect()
            }
            (Way::PgDump, Served::Postgres(server)) => {
                let words = ["-h".into(), server.host(), "-p".into(), server.port().to_string(), "-U".into(), "postgres".into()];
                let fixed = ["-Fp", "-f", "/dev/null"].map(str::to_owned);
                std::iter::once(program).chain(words).chain(fixed).chain(databases.iter().cloned()).collect()
            }
            _ => return Err(Trouble::Failed(format!("{self:?} is not for this server"))),
        };
        Ok(words)
    }

    /// Where the kernel counts what is read for it; `None` while the server does not know it yet.
    fn counter(self, server: Served, backup: &Running) -> Result<Option<PathBuf>, Trouble> {
        let number = |text: String| text.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
        Ok(match (self, server) {
            (Way::MysqlDump, Served::MariaDb(server)) => {
                // Its queries are marked so, by it alone.
                let query = "select tid from information_schema.processlist where info like 'SELECT /*!40001 SQL_NO_CACHE%' limit 1";
                number(server.look("", query)?).map(|thread| format!("/proc/{}/task/{thread}/io", server.pid()).into())
            }
            (Way::PgDump, Served::Postgres(server)) => {
                let query = "select pid from pg_stat_activity where application_name = 'pg_dump' limit 1";
                number(server.look("postgres", query)?).map(|process| format!("/proc/{process}/io").into())
            }
            _ => Some(format!("/proc/{}/io", backup.pid()).into()),
        })
    }
}

/// A backup under way; ended with this guard.
pub struct Backup {
    way: Way,
    running: Running,
    counter: Option<PathBuf>,
    asked: Instant,
    /// At the first look, and at the last.
    seen: Option<(u64, u64)>,
}

impl Backup {
    /// Begins to back up these databases.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(stage: &Stage, way: Way, server: Served, databases: &[String]) -> Result<Backup, Trouble> {
        let words = way.words(stage, server, databases)?;
        let running = stage.begin("backup", &words, &[])?;
        Ok(Backup { way, running, counter: None, asked: Instant::now(), seen: None })
    }

    /// Whether it has ended; to be called often, since what it read can be seen only while it runs.
    ///
    /// # Errors
    /// If it failed, or the user wants an end.
    pub fn is_done(&mut self, server: Served) -> Result<bool, Trouble> {
        if self.running.done()? {
            return Ok(true);
        }
        if self.counter.is_none() && self.asked.elapsed() >= ASK {
            self.asked = Instant::now();
            self.counter = self.way.counter(server, &self.running)?;
        }
        let now = self.counter.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).and_then(|text| read_bytes(&text));
        if let Some(now) = now {
            let is_program = self.way == Way::MariadbBackup;
            // A thread of the server may have served others before.
            let (first, _) = self.seen.unwrap_or((if is_program { 0 } else { now }, now));
            self.seen = Some((first, now));
        }
        Ok(false)
    }

    /// Ends it before its time.
    pub fn stop(&mut self) {
        self.running.end();
    }

    /// Bytes it has read from storage, as far as was seen.
    pub fn read_bytes(&self) -> u64 {
        self.seen.map_or(0, |(first, last)| last.saturating_sub(first))
    }
}

/// What the kernel says was read from storage.
fn read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_from_storage_are_told_from_others() {
        let io = "rchar: 5\nwchar: 6\nsyscr: 7\nsyscw: 8\nread_bytes: 4096\nwrite_bytes: 9\ncancelled_write_bytes: 0\n";
        assert_eq!(read_bytes(io), Some(4096));
        assert_eq!(read_bytes("rchar: 5\n"), None);
        let own = std::fs::read_to_string("/proc/self/io").expect("it is there");
        assert!(read_bytes(&own).is_some(), "{own}");
    }
}
