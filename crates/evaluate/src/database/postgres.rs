//! A private PostgreSQL, run by a user without rights (it refuses root), with a limit of memory where its reads must reach the disk.

use super::LONG;
pub use super::mariadb::Stop;
use super::memory::MemoryLimit;
use crate::stage::{Running, SHORT, Stage};
use crate::tools;
use crate::trouble::Trouble;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a start may take, crash recovery on a slow disk included.
const START: Duration = Duration::from_secs(600);
/// Names the socket's file where no TCP is wanted.
const USUAL_PORT: u16 = 5432;

/// What differs from run to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `shared_buffers`.
    pub buffers_bytes: u64,
    /// `max_wal_size`: how much log there is between checkpoints.
    pub wal_bytes: u64,
    /// Connections at once.
    pub connections: u32,
    /// Memory of the server and of the page cache for its files; PostgreSQL has no O_DIRECT.
    pub memory_bytes: Option<u64>,
    /// Nothing is made durable: for loading.
    pub careless: bool,
    /// Listens on 127.0.0.1 too, on a free port.
    pub tcp: bool,
}

/// A server; ended at once with this guard.
pub struct Postgres {
    stage: Stage,
    running: Running,
    port: u16,
    // After the server that runs in it.
    _memory: Option<MemoryLimit>,
    // Of the socket, whose path may have 107 bytes; goes last.
    short: tempfile::TempDir,
}

impl Postgres {
    /// Makes a new cluster of databases in a directory that is not there yet. Its user must be able to reach it.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn install(stage: &Stage, data: &Path) -> Result<(), Trouble> {
        let account = Account::of_servers()?;
        stage.run(&["mkdir", "-m", "700", &data.display().to_string()], SHORT)?;
        account.own(stage, data)?;
        let initdb = tools::program_of(&["initdb"]);
        let data = data.display().to_string();
        let words = [initdb.as_str(), "-D", &data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C"];
        stage.run(&account.words(&words.map(str::to_owned)), LONG).map(drop)
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// If it ends, or does not answer in time.
    pub fn start(stage: &Stage, data: &Path, settings: &Settings) -> Result<Postgres, Trouble> {
        let account = Account::of_servers()?;
        let short = short_directory()?;
        account.own_quietly(short.path())?;
        let memory = settings.memory_bytes.map(|limit| MemoryLimit::open(stage, limit)).transpose()?.flatten();
        let port = if settings.tcp { super::mariadb::free_port()? } else { USUAL_PORT };
        let mut words = account.words(&words(data, short.path(), port, settings));
        if let Some(memory) = &memory {
            words = memory.inside(&words);
        }
        let running = stage.begin("postgres", &words, &[])?;
        let mut server = Postgres { stage: stage.clone(), running, port, _memory: memory, short };
        let began = Instant::now();
        while server.ask("postgres", "select 1", false, SHORT).is_err() {
            server.running.look()?;
            if began.elapsed() > START {
                let log = stage.name("postgres.log");
                return Err(Trouble::failed(format!("PostgreSQL does not answer within {} s", START.as_secs()), &format!("see {log}")));
            }
            stage.rest(Duration::from_millis(100))?;
        }
        Ok(server)
    }

    /// The directory of its socket, as clients take it for a host.
    pub fn host(&self) -> String {
        self.short.path().display().to_string()
    }

    /// Its port: names the socket, and is open on 127.0.0.1 if that was wanted.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a statement in a database and gives the rows, columns separated by `|`.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn run(&self, database: &str, statement: &str, limit: Duration) -> Result<String, Trouble> {
        self.ask(database, statement, true, limit)
    }

    /// As [`Postgres::run`], not in the list of commands: a look that changes nothing.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn look(&self, database: &str, query: &str) -> Result<String, Trouble> {
        self.ask(database, query, false, SHORT)
    }

    fn ask(&self, database: &str, statement: &str, said: bool, limit: Duration) -> Result<String, Trouble> {
        let (psql, host, port) = (tools::program_of(&["psql"]), self.host(), self.port.to_string());
        let words = [&psql, "-X", "-q", "-A", "-t", "-h", &host, "-p", &port, "-U", "postgres", "-d", database, "-c", statement];
        if said { self.stage.run(&words, limit) } else { self.stage.run_unsaid(&words, &[], limit) }
    }

    /// Leaves nothing of a load for the next start to do: rows frozen, statistics counted, all of it on the disk.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn settle(&self, database: &str) -> Result<(), Trouble> {
        self.run(database, "vacuum (freeze, analyze)", LONG)?;
        self.run(database, "checkpoint", LONG).map(drop)
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// If it does not end in time, or with another status than 0.
    pub fn stop(mut self, how: Stop) -> Result<(), Trouble> {
        // https://www.postgresql.org/docs/current/server-shutdown.html: fast, immediate.
        let (signal, name) = match how {
            Stop::Clean => (Signal::INT, "INT"),
            Stop::Quick => (Signal::QUIT, "QUIT"),
        };
        self.stage.say(format!("kill -{name} {}   # postgres", self.running.pid()));
        self.running.send(signal);
        let began = Instant::now();
        while !self.running.done()? {
            if began.elapsed() > LONG {
                return Err(Trouble::Failed(format!("PostgreSQL did not stop within {} s; the device answers too slowly", LONG.as_secs())));
            }
            self.stage.rest(Duration::from_millis(50))?;
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its processes are groups of their own: the first one has to end them. Its answer to SIGTERM would be to wait for all clients.
        self.running.send(Signal::QUIT);
    }
}

fn words(data: &Path, socket: &Path, port: u16, settings: &Settings) -> Vec<String> {
    let durable = if settings.careless { "off" } else { "on" };
    let mut words = vec![tools::program_of(&["postgres"]), "-D".into(), data.display().to_string()];
    for setting in [
        format!("unix_socket_directories={}", socket.display()),
        format!("listen_addresses={}", if settings.tcp { "127.0.0.1" } else { "" }),
        format!("port={port}"),
        format!("shared_buffers={}kB", settings.buffers_bytes / 1024),
        format!("max_wal_size={}MB", settings.wal_bytes >> 20),
        format!("min_wal_size={}MB", (settings.wal_bytes >> 20).min(80)),
        format!("max_connections={}", settings.connections),
        format!("fsync={durable}"),
        format!("synchronous_commit={durable}"),
        format!("full_page_writes={durable}"),
        // A cleaner that comes when it pleases would tell runs apart that are alike.
        "autovacuum=off".into(),
    ] {
        words.extend(["-c".into(), setting]);
    }
    words
}

/// A short directory for sockets that others than its owner can enter.
pub(super) fn short_directory() -> Result<tempfile::TempDir, Trouble> {
    let made = tempfile::Builder::new().prefix("hearth").rand_bytes(6).tempdir().and_then(|short| {
        std::fs::set_permissions(short.path(), std::fs::Permissions::from_mode(0o711))?;
        Ok(short)
    });
    let short = made.map_err(|error| Trouble::Failed(format!("cannot make a directory for the socket: {error}")))?;
    // `sun_path` has 108 bytes with its end; the longest name here is `.s.PGSQL.65535.lock`.
    if short.path().as_os_str().len() > 80 {
        let path = short.path().display();
        return Err(Trouble::failed(format!("{path} is too long a path for sockets"), "set TMPDIR to a shorter directory"));
    }
    Ok(short)
}

/// Who the server runs as.
struct Account {
    /// User and group; `None` for ourselves.
    ids: Option<(u32, u32)>,
}

impl Account {
    /// For root a user without rights: PostgreSQL's own if it is there. Everybody else is good enough.
    fn of_servers() -> Result<Account, Trouble> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account { ids: None });
        }
        let users = std::fs::read_to_string("/etc/passwd").map_err(|error| Trouble::io("read", Path::new("/etc/passwd"), &error))?;
        let ids = ["postgres", "nobody"].iter().find_map(|name| ids_of(&users, name));
        let none = || Trouble::failed("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`", "add one");
        Ok(Account { ids: Some(ids.ok_or_else(none)?) })
    }

    /// A command as it is run by that user.
    fn words(&self, words: &[String]) -> Vec<String> {
        let Some((user, group)) = self.ids else { return words.to_vec() };
        let before = ["setpriv".into(), format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()];
        before.into_iter().chain(words.iter().cloned()).collect()
    }

    fn own(&self, stage: &Stage, path: &Path) -> Result<(), Trouble> {
        let Some((user, group)) = self.ids else { return Ok(()) };
        stage.run(&["chown", &format!("{user}:{group}"), &path.display().to_string()], SHORT).map(drop)
    }

    fn own_quietly(&self, path: &Path) -> Result<(), Trouble> {
        let Some((user, group)) = self.ids else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(|error| Trouble::io("give away", path, &error))
    }
}

/// User and group of a name in the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgres2:x:7:8::/:/x\npostgres:x:101:104:,,,:/var:/bin/bash\nbroken:x\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "nobody"), None);
        assert_eq!(ids_of(users, "broken"), None);
    }
}
