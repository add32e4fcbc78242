//! A device outlives the process that serves it: killed or stopped, its users see a pause and no
//! error.
//!
//! The servers are children of the test: its own binary, told by the environment to serve.

use crate::common::{PATIENCE, attempt, loop_devices_over, machine_can, mounted_below, pattern, wait_until};
use device::Geometry;
use fuse::{LoopExport, LoopOptions};
use keeper::{Keeper, ProcessOptions, holder};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SIZE_BYTES: u64 = 64 << 20;
/// Tells this binary that it is a server, and where.
const DIRECTORY: &str = "FUSE_TEST_SERVE_IN";
/// Tells it that the kernel cannot hand requests over once more.
const WITHOUT_RESEND: &str = "FUSE_TEST_WITHOUT_RESEND";
/// Tells it that the kernel knows nothing of the file below the device any more.
const FORGOTTEN: &str = "FUSE_TEST_FORGOTTEN";
const SET: &str = "loop.volume";

/// What a server does: exports, says where, parks when its standard input ends. No test by itself.
#[test]
fn serve() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(directory.join("backing")).expect("a file");
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, ..RuntimeOptions::default() }).expect("a runtime");
    let geometry =
        Geometry { size_bytes: SIZE_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    let device = runtime.open_device(DeviceOptions { name: "backing".into(), file, geometry, model: None }).expect("a device");
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "volume".into(), read_only: false }).expect("a volume");
    let options = LoopOptions {
        owner: directory.file_name().expect("it has a name").to_string_lossy().into_owned(),
        transport: fuse::Transport::Classic,
        link_directory: Some(directory.join("links")),
        without_resend: std::env::var_os(WITHOUT_RESEND).is_some(),
        ..LoopOptions::default()
    };
    let run = directory.join("run");
    let program = std::env::current_exe().expect("this binary");
    let keeper = Keeper::open(ProcessOptions { directory, program, arguments: vec!["takeover::hold".into(), "--exact".into()] });
    let mut kept = keeper.take().expect("the holder answers");
    let export = match kept.remove(SET) {
        Some(set) => LoopExport::take_over(&runtime, &volume, "volume", &run, &options, set).expect("taken over"),
        None => {
            let export = LoopExport::start(&runtime, &volume, "volume", &run, &options).expect("exported");
            keeper.keep(SET, &export.kept().expect("the classic transport")).expect("kept");
            export
        }
    };
    assert!(export.warnings().is_empty(), "{:?}", export.warnings());
    if std::env::var_os(FORGOTTEN).is_some() {
        forget_attributes(&export);
    }
    eprintln!("SERVES {}", export.device_path().display());
    let mut order = String::new();
    std::io::stdin().read_to_string(&mut order).expect("a pipe");
    match order.as_str() {
        "park" => export.park(&runtime, PATIENCE).expect("parked"),
        _ => {
            let mut export = export;
            export.stop(&runtime).expect("nobody uses it");
            keeper.forget(SET);
        }
    }
    eprintln!("ENDED");
}

/// Has the kernel forget what it knows of the mounted file, as after a growth.
fn forget_attributes(export: &LoopExport) {
    const INVALIDATE_INODE: i32 = 2;
    let [connection, _] = export.kept().expect("the classic transport");
    let mut notice = [0_u8; 40];
    notice[..4].copy_from_slice(&40_u32.to_ne_bytes());
    notice[4..8].copy_from_slice(&INVALIDATE_INODE.to_ne_bytes());
    // The root; and an offset below 0: the attributes alone, no pages.
    notice[16..24].copy_from_slice(&1_u64.to_ne_bytes());
    notice[24..32].copy_from_slice(&(-1_i64).to_ne_bytes());
    assert_eq!(rustix::io::write(connection, &notice).expect("the kernel takes it"), notice.len());
}

/// What the process does that holds descriptors. No test by itself.
#[test]
fn hold() {
    if let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) {
        let listener = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).expect("a socket");
        holder::hold(listener, &directory.join(keeper::SOCKET), PATIENCE, &mut || false, &mut |_| {}).expect("nothing fails");
    }
}

struct Server {
    child: Child,
    device: String,
}

impl Server {
    fn start(directory: &Path, told: Option<&str>) -> Server {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["takeover::serve", "--exact", "--nocapture"]).env(DIRECTORY, directory).stdin(Stdio::piped()).stdout(Stdio::null());
        if let Some(told) = told {
            command.env(told, "1");
        }
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        let device = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).is_ok_and(|bytes| bytes > 0), "it does not serve: {text}");
            if let Some(device) = line.trim().strip_prefix("SERVES ") {
                break device.to_owned();
            }
            text += &line;
        };
        // Nobody may be kept from writing there.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
        Server { child, device }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }

    fn end(mut self, order: &str) {
        use std::io::Write;
        self.child.stdin.take().expect("piped").write_all(order.as_bytes()).expect("it reads");
        assert!(self.child.wait().expect("it is our child").success(), "{order}");
    }
}

/// A directory with a backing file.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("run")).expect("a directory");
        File::create(directory.path().join("backing")).and_then(|file| file.set_len(SIZE_BYTES)).expect("room");
        Place { directory }
    }

    fn server(&self, told: Option<&str>) -> Server {
        Server::start(self.directory.path(), told)
    }

    fn assert_nothing_left(self) {
        assert_eq!(loop_devices_over(self.directory.path()), Vec::<String>::new());
        assert!(!mounted_below(self.directory.path()));
        assert!(std::fs::symlink_metadata(self.directory.path().join("links/volume")).is_err(), "no link is left");
    }
}

#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// Threads that write, flush and read back, each in a region of its own.
struct Load {
    threads: Vec<JoinHandle<(File, u64, Vec<u64>)>>,
    stop: std::sync::Arc<AtomicBool>,
    done: std::sync::Arc<AtomicU64>,
    failed: std::sync::Arc<AtomicU64>,
}

const THREADS: u64 = 16;
const BLOCKS: u64 = SIZE_BYTES / 4096 / THREADS;

impl Load {
    /// `failing`: whether requests may fail.
    fn start(device: &str, failing: bool) -> Load {
        let (stop, done, failed) = Default::default();
        let mut load = Load { threads: Vec::new(), stop, done, failed };
        for thread in 0..THREADS {
            let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(device).expect("the device is there");
            let (stop, done, failed) = (load.stop.clone(), load.done.clone(), load.failed.clone());
            load.threads.push(std::thread::spawn(move || {
                // By block: the round of its latest write; 0 for none, or for one that failed.
                let mut rounds = vec![0u64; BLOCKS as usize];
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let block = round * 7919 % BLOCKS;
                    let at = (thread * BLOCKS + block) * 4096;
                    let mut memory = Box::new(Block([0; 4096]));
                    memory.0.copy_from_slice(&pattern(at, 4096, round));
                    match file.write_all_at(&memory.0, at) {
                        Ok(()) => rounds[block as usize] = round,
                        Err(error) if failing && error.raw_os_error() == Some(libc::EIO) => {
                            rounds[block as usize] = 0;
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("a write at {at} failed: {error}"),
                    }
                    if round % 16 == 0 && !failing {
                        file.sync_data().expect("flushed");
                    }
                    if !check(&file, thread, (round * 31) % BLOCKS, &rounds, failing) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                (file, thread, rounds)
            }));
        }
        load
    }

    fn wait_for(&self, more: u64) {
        let until = self.done.load(Ordering::Relaxed) + more;
        wait_until("the load goes on", || {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a thread has failed");
            self.done.load(Ordering::Relaxed) >= until
        });
    }

    /// Ends, and looks at every block once more; gives how many requests have failed.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let (file, thread, rounds) = thread.join().expect("no write and no read has failed");
            (0..BLOCKS).for_each(|block| assert!(check(&file, thread, block, &rounds, false)));
        }
        self.failed.load(Ordering::Relaxed)
    }
}

/// Whether the block could be read, and then it is right.
fn check(file: &File, thread: u64, block: u64, rounds: &[u64], failing: bool) -> bool {
    let at = (thread * BLOCKS + block) * 4096;
    let mut memory = Box::new(Block([0; 4096]));
    match file.read_exact_at(&mut memory.0, at) {
        Ok(()) => {}
        Err(error) if failing && error.raw_os_error() == Some(libc::EIO) => return false,
        Err(error) => panic!("a read at {at} failed: {error}"),
    }
    let round = rounds[block as usize];
    assert!(round == 0 || memory.0[..] == pattern(at, 4096, round)[..], "block {block} of thread {thread} is not of round {round}");
    true
}

#[test]
fn killed_servers_are_not_noticed() {
    if !machine_can("killed_servers_are_not_noticed") {
        return;
    }
    let place = Place::new();
    let mut server = place.server(None);
    let device = server.device.clone();
    let load = Load::start(&device, false);
    for _ in 0..8 {
        load.wait_for(400);
        server.kill();
        server = place.server(None);
        assert_eq!(server.device, device, "the same device");
    }
    load.wait_for(400);
    assert_eq!(load.end(), 0);
    let link = std::fs::read_link(place.directory.path().join("links/volume")).expect("the stable name is there");
    assert_eq!(link, Path::new(&device));
    server.end("stop");
    place.assert_nothing_left();
}

#[test]
fn stopped_servers_are_not_noticed_by_who_has_the_device_open() {
    if !machine_can("stopped_servers_are_not_noticed_by_who_has_the_device_open") {
        return;
    }
    let place = Place::new();
    let mut server = place.server(None);
    let device = server.device.clone();
    let load = Load::start(&device, false);
    for _ in 0..3 {
        load.wait_for(200);
        server.end("park");
        server = place.server(None);
        assert_eq!(server.device, device, "the same device");
    }
    load.wait_for(200);
    assert_eq!(load.end(), 0);
    // It does not go with its last user now.
    attempt("blockdev", &["--getsize64", &device]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(loop_devices_over(place.directory.path()).len(), 1);
    server.end("stop");
    place.assert_nothing_left();
}

/// As on kernels before 6.9: what was under way and can be repeated is, and a write whose data went
/// with the server fails, as does what was just being received.
#[test]
fn without_help_of_the_kernel_nothing_hangs_and_only_writes_under_way_fail() {
    if !machine_can("without_help_of_the_kernel_nothing_hangs_and_only_writes_under_way_fail") {
        return;
    }
    let place = Place::new();
    let mut server = place.server(Some(WITHOUT_RESEND));
    let load = Load::start(&server.device, true);
    let kills = 24;
    for _ in 0..kills {
        load.wait_for(150);
        server.kill();
        server = place.server(Some(WITHOUT_RESEND));
    }
    load.wait_for(400);
    let failed = load.end();
    assert!(failed <= kills * THREADS, "{failed} requests have failed");
    eprintln!("{failed} requests under way have failed in {kills} kills");
    server.end("stop");
    place.assert_nothing_left();
}

/// A device that grew under load was not served again after a kill: the kernel asked for the attributes of the file below, and the next
/// daemon waited for that answer before it served.
#[test]
fn a_device_is_taken_over_whatever_the_kernel_has_forgotten() {
    if !machine_can("a_device_is_taken_over_whatever_the_kernel_has_forgotten") {
        return;
    }
    let place = Place::new();
    let server = place.server(Some(FORGOTTEN));
    let (device, user) = (server.device.clone(), File::open(&server.device).expect("it is there"));
    server.kill();
    let server = place.server(None);
    assert_eq!(server.device, device, "the same device");
    drop(user);
    server.end("stop");
    place.assert_nothing_left();
}
