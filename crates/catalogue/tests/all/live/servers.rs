//! Servers for a test, each with its data in a directory that goes with it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program by its name; `None`, with a message, where it is missing.
fn program(name: &str) -> Option<PathBuf> {
    let mut postgres: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|it| it.path().join("bin")).collect();
    postgres.sort();
    let paths = std::env::var("PATH").unwrap_or_default();
    let all = postgres.into_iter().rev().chain(std::env::split_paths(&paths)).chain(["/usr/sbin".into()]);
    let found = all.map(|place| place.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is missing");
    }
    found
}

/// What a command said; it must succeed.
fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Asks until there is something.
pub fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it never came");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A child that ends with its guard.
pub struct Guard {
    child: Child,
    /// How it is asked to end.
    signal: &'static str,
}

impl Guard {
    fn begin(command: &mut Command, signal: &'static str) -> Guard {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Guard { child: command.spawn().expect("it starts"), signal }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.signal).arg(self.child.id().to_string()).status();
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
}

pub struct Mariadb {
    server: Guard,
    client: PathBuf,
    directory: tempfile::TempDir,
}

impl Mariadb {
    pub fn start() -> Option<Mariadb> {
        let (install, server, client) = (program("mariadb-install-db")?, program("mariadbd")?, program("mariadb")?);
        let directory = tempfile::tempdir().expect("a directory");
        let (data, log) = (format!("--datadir={}", directory.path().join("data").display()), "--innodb-log-file-size=16M");
        let authentication = "--auth-root-authentication-method=normal";
        said(Command::new(install).args(["--no-defaults", authentication, "--skip-test-db", "--user=root", &data, log]));
        let mut command = Command::new(server);
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--innodb-buffer-pool-size=64M", &data, log]);
        command.args(["--performance-schema=ON".into(), format!("--socket={}", directory.path().join("socket").display())]);
        command.arg(format!("--pid-file={}", directory.path().join("pid").display()));
        let mut started = Mariadb { server: Guard::begin(&mut command, "-TERM"), client, directory };
        patiently(|| {
            assert!(started.server.child.try_wait().is_ok_and(|ended| ended.is_none()), "the server has ended");
            started.command("select 1").output().is_ok_and(|output| output.status.success()).then_some(())
        });
        Some(started)
    }

    fn command(&self, statements: &str) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["--no-defaults", "-u", "root", "-N", "-B", "-e", statements]);
        command.arg(format!("--socket={}", self.directory.path().join("socket").display()));
        command
    }

    pub fn ask(&self, statements: &str) -> String {
        said(&mut self.command(statements))
    }

    /// A login file with that text, and the socket.
    pub fn login(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("login");
        let has_socket = text.contains("socket");
        let socket = format!("socket = {}\n", self.directory.path().join("socket").display());
        private(&path, &if has_socket { text.to_owned() } else { text.replace("[client]\n", &format!("[client]\n{socket}")) });
        path
    }

    /// A session of root with the database `shop`.
    pub fn sleeper(&self) -> Guard {
        Guard::begin(&mut self.command("use shop; select sleep(1000)"), "-KILL")
    }

    pub fn has_thread(&self, thread: u32) -> bool {
        Path::new(&format!("/proc/{}/task/{thread}", self.server.child.id())).exists()
    }
}

pub struct Postgres {
    server: Guard,
    client: PathBuf,
    directory: tempfile::TempDir,
}

impl Postgres {
    pub fn start() -> Option<Postgres> {
        let (initdb, server, client) = (program("initdb")?, program("postgres")?, program("psql")?);
        let Some((uid, gid)) = account("postgres").or_else(|| account("nobody")) else {
            println!("skipped: there is no account for a PostgreSQL");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("server");
        std::fs::create_dir(&home).expect("made");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("its mode");
        if std::os::unix::fs::chown(&home, Some(uid), Some(gid)).is_err() {
            println!("skipped: a PostgreSQL runs as a user of its own, which needs root");
            return None;
        }
        let of_account = |program: PathBuf| {
            let mut command = Command::new(program);
            command.uid(uid).gid(gid).current_dir("/");
            command
        };
        let data = home.join("data");
        said(of_account(initdb).args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-D"]).arg(&data));
        std::fs::write(data.join("pg_hba.conf"), "local all postgres trust\nlocal shut hearth reject\nlocal all all scram-sha-256\n")
            .expect("written");
        let mut command = of_account(server);
        command.arg("-D").arg(&data).arg("-k").arg(&home).args(["-c", "listen_addresses=", "-c", "shared_buffers=32MB"]);
        let mut started = Postgres { server: Guard::begin(&mut command, "-INT"), client, directory };
        patiently(|| {
            assert!(started.server.child.try_wait().is_ok_and(|ended| ended.is_none()), "the server has ended");
            started.command("postgres", "select 1").output().is_ok_and(|output| output.status.success()).then_some(())
        });
        Some(started)
    }

    fn command(&self, database: &str, statement: &str) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-c", statement, "-h"]);
        // On the command line some names are taken for more than a name.
        command.arg(self.directory.path().join("server")).env("PGDATABASE", database);
        command
    }

    pub fn ask(&self, database: &str, statement: &str) -> String {
        said(&mut self.command(database, statement))
    }

    /// A login file with that text below its service, and the socket.
    pub fn login(&self, text: &str) -> PathBuf {
        let path = self.directory.path().join("login");
        let host =
            if text.contains("host=") { String::new() } else { format!("host={}\n", self.directory.path().join("server").display()) };
        private(&path, &format!("[hearth]\n{host}{text}"));
        path
    }

    /// A session of the user postgres.
    pub fn sleeper(&self) -> Guard {
        Guard::begin(&mut self.command("postgres", "select pg_sleep(1000)"), "-INT")
    }

    pub fn has_process(&self, pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent == Some(self.server.child.id())
    }
}

/// User and group of an account.
fn account(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let cells = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|cells| cells[0] == name)?;
    Some((cells.get(2)?.parse().ok()?, cells.get(3)?.parse().ok()?))
}
