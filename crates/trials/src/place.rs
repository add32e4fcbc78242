//! A place of its own for each trial: files, a daemon, mounts. All of it ends with the guard.

use crate::command::{self, Ended, must, run, words};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For a command to the daemon, or a small tool.
pub const SHORT: Duration = Duration::from_secs(120);

/// For a tool that moves the whole content of a volume.
pub const LONG: Duration = Duration::from_secs(180);

/// A directory on disk, one for sockets and mounts (short: a socket's path may have 107 bytes), and what runs there.
pub struct Place {
    data: tempfile::TempDir,
    run: tempfile::TempDir,
    daemon: Option<Child>,
    mounts: Vec<PathBuf>,
    loops: Vec<String>,
    volumes: Vec<String>,
    environment: Vec<(String, String)>,
    starts: u32,
}

/// How a volume is offered.
#[derive(Debug, Clone)]
pub struct Exports {
    /// `/dev/loopN` or `/dev/ublkbN`, or nothing.
    pub loop_device: String,
    /// An `nbd+unix://` URI, or nothing.
    pub nbd_uri: String,
    /// The socket of a disk for virtual machines, or nothing.
    pub vhost_user: String,
}

/// The binary: `HEARTH_BIN`, or the release build of this workspace.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("HEARTH_BIN").map_or_else(|| target_dir().join("release/hearth"), PathBuf::from);
    assert!(path.is_file(), "{} is not there: run `cargo build --release -p hearth` first", path.display());
    path
}

/// Where cargo builds: `CARGO_TARGET_DIR`, or `target` of this workspace.
fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |chosen| workspace.join(chosen))
}

impl Place {
    /// An empty place on the disk that holds the build.
    pub fn new(trial: &str) -> Place {
        // In a guest the build's directory is in its memory.
        let disk = std::env::var_os("TRIAL_DIRECTORY").map_or_else(|| target_dir().join("trials"), PathBuf::from);
        std::fs::create_dir_all(&disk).expect("the build's directory can be written");
        let disk = disk.canonicalize().expect("it was just made");
        let data = tempfile::Builder::new().prefix(trial).tempdir_in(disk).expect("a directory");
        let run = tempfile::Builder::new().prefix("trial").tempdir().expect("a directory");
        Place { data, run, daemon: None, mounts: Vec::new(), loops: Vec::new(), volumes: Vec::new(), environment: Vec::new(), starts: 0 }
    }

    /// Sets a variable of the environment for all commands of the binary in this place.
    pub fn set(&mut self, variable: &str, value: &str) {
        self.environment.push((variable.into(), value.into()));
    }

    /// A path in the place's directory.
    pub fn path(&self, name: &str) -> String {
        self.data.path().join(name).display().to_string()
    }

    /// A path short enough for a socket.
    pub fn socket(&self, name: &str) -> String {
        self.run.path().join(name).display().to_string()
    }

    /// A sparse file of `bytes`; gives its path.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        File::create(&path).and_then(|f| f.set_len(bytes)).expect("there is room");
        path
    }

    /// A command of the binary in this place.
    pub fn hearth(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("HEARTH_STATE", self.path("state"))
            .env("HEARTH_SOCKET", self.socket("h.sock"))
            .env("HEARTH_CONFIG", "");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("HEARTH_LOG").current_dir(self.data.path());
        command
    }

    /// Runs a command of the binary that must succeed; gives its output.
    pub fn must(&self, arguments: &[&str]) -> String {
        must(&mut self.hearth(arguments), SHORT)
    }

    /// Runs a tool in this place's directory.
    pub fn tool<S: AsRef<str>>(&self, tool: &[S], limit: Duration) -> Ended {
        run(words(tool).current_dir(self.data.path()), limit)
    }

    /// Runs a tool that must succeed; gives its output.
    pub fn must_tool<S: AsRef<str>>(&self, tool: &[S], limit: Duration) -> String {
        must(words(tool).current_dir(self.data.path()), limit)
    }

    /// Starts the daemon and waits until it is ready.
    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        self.starts += 1;
        let [out, err] = ["out", "err"].map(|end| self.path(&format!("serve-{}.{end}", self.starts)));
        let file = |path: &str| Stdio::from(File::create(path).expect("there is room"));
        let mut command = self.hearth(&["serve"]);
        let child = command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).spawn().expect("the binary runs");
        let child = self.daemon.insert(child);
        let begun = Instant::now();
        while !std::fs::read_to_string(&out).unwrap_or_default().contains("ready") {
            let ended = child.try_wait().expect("it is our child");
            let late = begun.elapsed() > SHORT;
            assert!(ended.is_none() && !late, "the daemon is not ready ({ended:?}): {}", std::fs::read_to_string(&err).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The daemon's process id.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    /// Everything the daemons of this place said on standard error.
    pub fn log(&self) -> String {
        (1..=self.starts).map(|n| std::fs::read_to_string(self.path(&format!("serve-{n}.err"))).unwrap_or_default()).collect()
    }

    /// A clean stop, which must succeed.
    pub fn stop(&mut self) {
        let mut child = self.daemon.take().expect("it runs");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        let status = command::wait(&mut child, SHORT);
        let good = status.is_some_and(|s| s.success());
        if !good {
            self.daemon = Some(child);
        }
        assert!(good, "the daemon stopped with {status:?}: {}", self.log());
    }

    /// SIGKILL, and no wait for its end: that may depend on who asks for it.
    pub fn begin_kill(&self) {
        kill_process(Pid::from_child(self.daemon.as_ref().expect("it runs")), Signal::KILL).expect("it is our child and not waited for");
    }

    /// As a crash: SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.daemon.take().expect("it runs");
        command::end(&mut child);
    }

    /// Waits for a daemon that something else kills.
    pub fn killed_within(&mut self, limit: Duration) {
        let mut child = self.daemon.take().expect("it was started");
        let status = command::wait(&mut child, limit);
        if status.is_none() {
            self.daemon = Some(child);
        }
        let status = status.expect("the daemon was to be killed");
        assert_eq!(status.code(), None, "the daemon ended by itself: {}", self.log());
    }

    /// A pool named `fast` over a file.
    pub fn pool(&self, ssd_mib: u32, ram_mib: u32) {
        let (ssd, size, ram) = (self.path("ssd.img"), format!("{ssd_mib}MiB"), format!("{ram_mib}MiB"));
        self.must(&["pool", "create", "fast", "--ssd", &ssd, "--size", &size, "--ram", &ram]);
    }

    /// A volume named `name` of pool `fast` over a backing device that is there; gives where it is offered.
    pub fn volume_over(&mut self, name: &str, backing: &str, more: &[&str]) -> Exports {
        self.volumes.push(name.into());
        self.must(&[&["volume", "add", name, "--backing", backing, "--pool", "fast", "--admission", "always"], more].concat());
        self.exports(name)
    }

    /// A volume over a new file; gives its name, which no other trial on this machine has, and where it is offered.
    pub fn volume(&mut self, mib: u64, mode: &str, more: &[&str]) -> (String, Exports) {
        self.volume_by_default(mib, mode, &[&["--admission", "always"], more].concat())
    }

    /// The same with the admission that users get who say nothing.
    pub fn volume_by_default(&mut self, mib: u64, mode: &str, more: &[&str]) -> (String, Exports) {
        let number = self.volumes.len();
        let file = if number == 0 { "backing.img".to_string() } else { format!("backing-{number}.img") };
        let backing = self.file(&file, mib << 20);
        let name = format!("trial-{}-{}-{number}", std::process::id(), self.starts);
        let options = ["volume", "add", &name, "--backing", &backing, "--pool", "fast", "--mode", mode];
        self.volumes.push(name.clone());
        self.must(&[&options, more].concat());
        let exports = self.exports(&name);
        (name, exports)
    }

    /// Where a volume is offered now.
    pub fn exports(&mut self, volume: &str) -> Exports {
        let shown = self.must(&["volume", "show", volume, "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("--json gives JSON");
        assert_eq!(shown["health"], "running", "{shown:#}");
        let word = |how: &str| shown["exports"][how].as_str().unwrap_or_default().to_string();
        let device = ["loop", "ublk", "block"].map(word).concat();
        let exports = Exports { loop_device: device, nbd_uri: word("nbd"), vhost_user: word("vhost-user") };
        if !exports.loop_device.is_empty() && !self.loops.contains(&exports.loop_device) {
            self.loops.push(exports.loop_device.clone());
        }
        exports
    }

    /// One counter of a volume.
    pub fn counter(&self, volume: &str, name: &str) -> u64 {
        let stats: serde_json::Value = serde_json::from_str(&self.must(&["stats", volume, "--json"])).expect("--json gives JSON");
        stats[name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {stats:#}"))
    }

    /// Lets users without rights pass through to the mounts of this place, as servers that refuse root do.
    pub fn open_to_all(&self) {
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(self.run.path(), open).expect("the directory is ours");
    }

    /// Mounts a device with an ext4; gives where.
    pub fn mount(&mut self, device: &str, options: &str) -> PathBuf {
        self.mount_as("ext4", device, options)
    }

    /// Mounts a device with a file system of that kind; gives where.
    pub fn mount_as(&mut self, kind: &str, device: &str, options: &str) -> PathBuf {
        let at = self.run.path().join(format!("mnt{}", self.mounts.len()));
        std::fs::create_dir_all(&at).expect("there is room");
        let mounted = self.tool(&["mount", "-t", kind, "-o", options, device, &at.display().to_string()], SHORT);
        // Known before it is judged: a mount that came late is still undone.
        self.mounts.push(at.clone());
        assert!(mounted.good(), "{mounted:#?}");
        at
    }

    /// Whether this kernel mounts what is on a device.
    pub fn can_mount(&self, kind: &str, device: &str) -> bool {
        let at = self.run.path().join("try");
        std::fs::create_dir_all(&at).expect("there is room");
        let at = at.display().to_string();
        self.tool(&["mount", "-t", kind, device, &at], SHORT).good() && self.tool(&["umount", &at], LONG).good()
    }

    /// Unmounts, which must succeed: once those who look at it, or have just ended, have let it go.
    pub fn unmount(&mut self, at: &Path) {
        let begun = Instant::now();
        loop {
            let ended = self.tool(&["umount", &at.display().to_string()], LONG);
            if ended.good() {
                return;
            }
            assert!(ended.stderr.contains("busy") && begun.elapsed() < LONG, "{ended:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Takes a mount whose device is dead out of the tree.
    pub fn unmount_dead(&mut self, at: &Path) {
        self.must_tool(&["umount", "-l", &at.display().to_string()], SHORT);
    }

    /// A clean check of the file system on a device or in a file.
    pub fn fsck(&self, device: &str) {
        self.must_tool(&["e2fsck", "-fn", device], LONG);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mounted = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let is_mounted = |path: &Path| mounted.contains(&format!(" {} ", path.display()));
        for at in self.mounts.iter().rev().filter(|at| is_mounted(at)) {
            drop(run(&mut words(&["umount", "-l", &at.display().to_string()]), SHORT));
        }
        if let Some(mut child) = self.daemon.take() {
            if std::thread::panicking() {
                eprintln!("the daemon said: {}", self.log());
            }
            if let Err(error) = kill_process(Pid::from_child(&child), Signal::TERM) {
                eprintln!("the daemon cannot be stopped: {error}");
            }
            if command::wait(&mut child, Duration::from_secs(20)).is_none() {
                command::end(&mut child);
            }
        }
        for name in &self.volumes {
            // Gone already, unless a daemon was killed and none came after it.
            drop(std::fs::remove_file(Path::new("/dev/hearth").join(name)));
        }
        // What a killed daemon left: its device, if it is still the one of this place, and its mounts.
        let ours = self.run.path().display().to_string();
        for device in &self.loops {
            let name = device.trim_start_matches("/dev/");
            let file = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
            if file.starts_with(&ours) {
                drop(run(&mut words(&["losetup", "-d", device]), SHORT));
            }
        }
        for line in mounted.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&ours)) {
            drop(run(&mut words(&["umount", "-l", line]), SHORT));
        }
    }
}
