//! A volume in a file, mounted, and servers with their data on it. Nothing outlives its guard.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer, or to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program by its name; `None`, with a message, where it is missing.
fn program(name: &str, places: &[&str]) -> Option<PathBuf> {
    let paths = std::env::var("PATH").unwrap_or_default();
    let mut postgres: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|it| it.path().join("bin")).collect();
    postgres.sort();
    let all = std::env::split_paths(&paths).chain(places.iter().map(PathBuf::from)).chain(postgres.into_iter().rev());
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

/// A file system in a file, mounted.
pub struct Volume {
    directory: tempfile::TempDir,
    /// Whether its metadata goes home only when it is frozen: XFS.
    is_xfs: bool,
}

impl Volume {
    /// An ext4; `None`, with a message, where there are no rights, loop devices or tools.
    pub fn make(bytes: u64) -> Option<Volume> {
        Volume::with("mkfs.ext4", &["-q", "-F", "-b", "4096"], "loop", bytes)
    }

    /// An XFS made and mounted with those options; `None`, with a message, as for ext4, and where
    /// tools or kernel have no such XFS.
    pub fn xfs(options: &[&str], mount_options: &str, bytes: u64) -> Option<Volume> {
        Volume::with("mkfs.xfs", &[&["-q", "-f"], options].concat(), &format!("loop{mount_options}"), bytes)
    }

    fn with(mkfs: &str, options: &[&str], mount_options: &str, bytes: u64) -> Option<Volume> {
        let is_xfs = mkfs == "mkfs.xfs";
        let mkfs = program(mkfs, &["/usr/sbin", "/sbin"])?;
        let directory = tempfile::tempdir().expect("a directory");
        let volume = Volume { directory, is_xfs };
        std::fs::create_dir(volume.mounted()).expect("a directory");
        let file = std::fs::File::create(volume.image()).expect("an image");
        file.set_len(bytes).expect("its size");
        said(Command::new(mkfs).args(options).arg(volume.image()));
        let mounted = Command::new("mount").args(["-o", mount_options]).arg(volume.image()).arg(volume.mounted()).output();
        match mounted {
            Ok(output) if output.status.success() => {
                // Servers that refuse root must reach their data.
                for path in [volume.directory.path(), &volume.mounted()] {
                    said(Command::new("chmod").arg("755").arg(path));
                }
                Some(volume)
            }
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: mount: {error}");
                None
            }
        }
    }

    pub fn image(&self) -> &'static Path {
        // Lives as long as the test.
        Box::leak(self.directory.path().join("image").into_boxed_path())
    }

    pub fn mounted(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// All that was done is on the device, names and extents in the journal or the log at least.
    pub fn commit(&self) {
        said(Command::new("sync").arg("-f").arg(self.mounted()));
    }

    /// Everything is on the device: the first one commits the journal, the second brings its blocks
    /// home. XFS does that when it is frozen.
    pub fn sync(&self) {
        if self.is_xfs {
            said(Command::new("fsfreeze").arg("--freeze").arg(self.mounted()));
            said(Command::new("fsfreeze").arg("--unfreeze").arg(self.mounted()));
            return;
        }
        for _ in 0..2 {
            said(Command::new("sync").arg("-f").arg(self.mounted()));
        }
    }
}

impl Volume {
    /// Unmounts it, if it is mounted.
    pub fn unmount(&self) {
        // A server that was just ended may hold it for a moment.
        for _ in 0..50 {
            if Command::new("umount").arg(self.mounted()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
                return;
            }
            let table = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
            if !table.contains(&*self.mounted().to_string_lossy()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        println!("{} is still mounted", self.mounted().display());
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// A session that holds a snapshot, until it goes.
pub struct Snapshot(Child);

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A server that runs until its guard goes.
pub struct Server {
    child: Child,
    client: Vec<String>,
    // Of its socket, whose path may have 107 bytes.
    _short: tempfile::TempDir,
}

impl Server {
    /// A MariaDB with its data on the volume.
    pub fn mariadb(volume: &Volume) -> Option<Server> {
        let install = program("mariadb-install-db", &[])?;
        let (server, client) = (program("mariadbd", &["/usr/sbin"])?, program("mariadb", &[])?);
        let data = volume.mounted().join("var/lib/mysql");
        std::fs::create_dir_all(data.parent().expect("above")).expect("made");
        let (data, log) = (format!("--datadir={}", data.display()), "--innodb-log-file-size=16M");
        said(Command::new(install).env("TMPDIR", volume.directory.path()).args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--user=root",
            &data,
            log,
        ]));
        let short = tempfile::tempdir().expect("a directory");
        let socket = format!("--socket={}", short.path().join("socket").display());
        let child = Command::new(server)
            .env("TMPDIR", short.path())
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                "--innodb-buffer-pool-size=64M",
                "--log-bin=binlog",
                &data,
                log,
                &socket,
            ])
            .arg(format!("--pid-file={}", short.path().join("pid").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let words = ["--no-defaults", "--default-character-set=utf8mb4", "-u", "root", &socket, "-N", "-B", "-e"];
        let client = std::iter::once(&*client.to_string_lossy()).chain(words).map(str::to_owned).collect();
        Some(Server { child, client, _short: short }.started())
    }

    /// A PostgreSQL with its data on the volume.
    pub fn postgres(volume: &Volume) -> Option<Server> {
        let initdb = program("initdb", &[])?;
        let (server, client) = (program("postgres", &[])?, program("psql", &[])?);
        let Some((uid, gid)) = account("postgres").or_else(|| account("nobody")) else {
            println!("skipped: there is no account for a PostgreSQL");
            return None;
        };
        let data = volume.mounted().join("var/lib/postgresql/15/main");
        std::fs::create_dir_all(&data).expect("made");
        let short = tempfile::tempdir().expect("a directory");
        for path in [&*data, short.path()] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("its own");
        }
        let as_account = |path: PathBuf| {
            let mut command = Command::new(path);
            command.uid(uid).gid(gid).current_dir("/");
            command
        };
        said(as_account(initdb).args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-D"]).arg(&data));
        let socket = short.path().to_string_lossy().into_owned();
        let child = as_account(server)
            .arg("-D")
            .arg(&data)
            .args(["-k", &socket, "-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "max_wal_size=64MB"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let words = ["-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", &socket, "-d", "postgres", "-c"];
        let client = std::iter::once(&*client.to_string_lossy()).chain(words).map(str::to_owned).collect();
        Some(Server { child, client, _short: short }.started())
    }

    /// Asks another database of a PostgreSQL from now on.
    pub fn of_database(mut self, name: &str) -> Server {
        let place = self.client.len() - 2;
        self.client[place] = name.to_owned();
        self
    }

    fn command(&self, statements: &str) -> Command {
        let mut command = Command::new(&self.client[0]);
        command.args(&self.client[1..]).arg(statements).stdin(Stdio::null());
        command
    }

    /// Runs statements and gives the rows, columns separated by tabs.
    pub fn ask(&self, statements: &str) -> String {
        said(&mut self.command(statements))
    }

    /// A transaction of a PostgreSQL that sees what there is now, until the guard goes.
    pub fn snapshot(&self) -> Snapshot {
        let words = &self.client[1..self.client.len() - 1];
        let mut client = Command::new(&self.client[0]).args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        let begin = b"begin isolation level repeatable read; select 1;\n";
        client.stdin.as_mut().expect("a pipe").write_all(begin).expect("it reads");
        let snapshot = Snapshot(client);
        self.wait("select count(*) from pg_stat_activity where state = 'idle in transaction'");
        snapshot
    }

    /// Waits until a question is answered with 1.
    pub fn wait(&self, question: &str) {
        let begun = Instant::now();
        while self.ask(question).trim() != "1" {
            assert!(begun.elapsed() < PATIENCE, "{question}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn started(mut self) -> Server {
        let begun = Instant::now();
        while !self.command("select 1").output().is_ok_and(|output| output.status.success()) {
            assert!(self.child.try_wait().is_ok_and(|ended| ended.is_none()), "the server has ended");
            assert!(begun.elapsed() < PATIENCE, "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // PostgreSQL's other processes go when the first is asked to end at once.
        let _ = Command::new("kill").arg("-QUIT").arg(self.child.id().to_string()).status();
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// User and group of an account.
fn account(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let cells = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|cells| cells[0] == name)?;
    Some((cells.get(2)?.parse().ok()?, cells.get(3)?.parse().ok()?))
}
