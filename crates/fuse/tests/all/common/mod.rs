//! A runtime with a bare volume over a file, and guards that leave nothing behind, whatever a test does.

#![allow(dead_code, reason = "each test file uses a part")]

use device::Geometry;
use fuse::{LoopOptions, Transport};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a test needs of the machine. Without it the test says so and passes: a build machine may be without root.
pub fn machine_can(test: &str) -> bool {
    // SAFETY: `geteuid` has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let can = root && Path::new("/dev/fuse").exists() && Path::new("/dev/loop-control").exists();
    if !can {
        eprintln!("SKIPPED {test}: needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

/// How long is waited for what is sure to come.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Looks until it is so: far longer than it takes, on a busy machine too.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(is_so_within_patience(is_so), "{what}: not within {PATIENCE:?}");
}

/// The same where a panic would hide another.
fn is_so_within_patience(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// The kernel's switch for FUSE over io_uring.
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Transports that this kernel can do.
pub fn transports() -> Vec<Transport> {
    if Path::new(RING_SWITCH).exists() { vec![Transport::Classic, Transport::Ring] } else { vec![Transport::Classic] }
}

/// Sets the switch as a transport needs it; puts it back when dropped. One at a time.
pub struct RingSwitch(String, #[allow(dead_code, reason = "held, not used")] MutexGuard<'static, ()>);

impl RingSwitch {
    pub fn set(transport: Transport) -> RingSwitch {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::fs::read_to_string(RING_SWITCH).unwrap_or_default();
        if transport == Transport::Ring {
            std::fs::write(RING_SWITCH, "Y").expect("root may set it");
        }
        RingSwitch(before, guard)
    }
}

impl Drop for RingSwitch {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let _ = std::fs::write(RING_SWITCH, self.0.trim());
        }
    }
}

/// A bare volume over a sparse file in a directory of its own.
pub struct Stage {
    pub runtime: Option<Runtime>,
    pub volume: VolumeRef,
    pub transport: Transport,
    pub directory: tempfile::TempDir,
}

pub struct StageOptions {
    pub size_bytes: u64,
    pub block_bytes: u32,
    pub read_only: bool,
    pub discard: bool,
    pub io_pages: usize,
    pub in_flight_max: u32,
    pub transport: Transport,
    /// Where its directory lies, if not where those of all tests do.
    pub at: Option<PathBuf>,
}

impl Default for StageOptions {
    fn default() -> StageOptions {
        StageOptions {
            size_bytes: 64 << 20,
            block_bytes: 512,
            read_only: false,
            discard: true,
            io_pages: 16 << 10,
            in_flight_max: 1024,
            transport: Transport::Classic,
            at: None,
        }
    }
}

impl Stage {
    pub fn new(options: &StageOptions) -> Stage {
        let directory = tempfile::tempdir_in(options.at.clone().unwrap_or_else(std::env::temp_dir)).expect("a directory");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_DIRECT)
            .open(directory.path().join("backing"))
            .expect("a file on a file system with direct I/O");
        file.set_len(options.size_bytes).expect("room for a sparse file");
        let runtime = Runtime::start(RuntimeOptions {
            reactors: 1,
            io_pages: options.io_pages,
            in_flight_max: options.in_flight_max,
            ..RuntimeOptions::default()
        })
        .expect("a runtime");
        let geometry = Geometry {
            size_bytes: options.size_bytes,
            logical_block_bytes: options.block_bytes,
            memory_alignment_bytes: 512,
            discard: options.discard,
            discard_zeroes: options.discard,
        };
        let device = runtime.open_device(DeviceOptions { name: "backing".into(), file, geometry, model: None }).expect("a device");
        let volume =
            runtime.add_bare_volume(&device, BareVolumeOptions { name: "volume".into(), read_only: options.read_only }).expect("a volume");
        std::fs::create_dir(directory.path().join("run")).expect("a directory");
        Stage { runtime: Some(runtime), volume, transport: options.transport, directory }
    }

    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("not ended")
    }

    pub fn run_directory(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub fn backing(&self) -> PathBuf {
        self.directory.path().join("backing")
    }

    pub fn options(&self) -> LoopOptions {
        LoopOptions {
            // Nobody else's, also where tests run side by side.
            owner: self.directory.path().file_name().expect("it has a name").to_string_lossy().into_owned(),
            link_directory: Some(self.directory.path().join("links")),
            patience: PATIENCE,
            transport: self.transport,
            ..LoopOptions::default()
        }
    }
}

/// A file system mounted on a device; unmounted when dropped, so that the device can go.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn new(device: &Path, point: PathBuf) -> Mounted {
        std::fs::create_dir_all(&point).expect("a directory");
        run("mount", &[device.as_os_str().to_str().unwrap(), point.to_str().unwrap()]);
        Mounted(point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was detached in it, or looked at it, may hold it a moment longer.
        let is_unmounted = || Command::new("umount").arg(&self.0).output().is_ok_and(|output| output.status.success());
        if !is_so_within_patience(is_unmounted) {
            eprintln!("{} is still in use", self.0.display());
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// Runs a program with a time limit; panics with what it said if it fails.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = attempt(program, arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?} failed ({}): {said}", output.status);
    said
}

/// Runs a program with a time limit.
pub fn attempt(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout").args(["--kill-after=5", "120", program]).args(arguments).output().expect("timeout(1) runs")
}

/// Numbers of loop devices that lead to a file below `directory`.
pub fn loop_devices_over(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").expect("sysfs").flatten() {
        if let Ok(file) = std::fs::read_to_string(entry.path().join("loop/backing_file"))
            && file.starts_with(directory.to_str().expect("a plain path"))
        {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// Whether anything is mounted below `directory`.
pub fn mounted_below(directory: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mountinfo").expect("proc").contains(directory.to_str().expect("a plain path"))
}

/// A partition table of the PC kind: partitions of so many MiB, one behind the other from the first MiB on.
pub fn partition_table(sizes_mib: &[u32]) -> Vec<u8> {
    let (mut table, mut first) = (vec![0; 512], 1);
    for (at, size) in sizes_mib.iter().enumerate() {
        let entry = &mut table[446 + 16 * at..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&(first * 2048u32).to_le_bytes());
        entry[12..16].copy_from_slice(&(size * 2048).to_le_bytes());
        first += size;
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// A loop device of somebody else; detached when dropped.
pub struct OthersLoop(pub String);

impl OthersLoop {
    /// Over `file`, as `losetup` is told.
    pub fn attach(arguments: &[&str]) -> OthersLoop {
        OthersLoop(run("losetup", arguments).trim().to_owned())
    }
}

impl Drop for OthersLoop {
    fn drop(&mut self) {
        // The kernel detaches it when the last one who looks at it has closed it.
        let file = format!("/sys/block/{}/loop/backing_file", self.0.trim_start_matches("/dev/"));
        let before = std::fs::read_to_string(&file);
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
        if before.is_ok_and(|before| !is_so_within_patience(|| std::fs::read_to_string(&file).ok().as_ref() != Some(&before))) {
            eprintln!("{} is still attached", self.0);
        }
    }
}

/// Bytes that differ for every place and round.
pub fn pattern(offset_bytes: u64, length: usize, round: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|at| {
            let word = (offset_bytes + at) / 8;
            (word.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(round * 77) >> (8 * ((offset_bytes + at) % 8))) as u8
        })
        .collect()
}
