//! A block device that is in use outlives the daemon: killed, crashed or restarted, its users see a pause and no error.

use crate::support::{self, Daemon, Place, wait_for, wait_until};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, recvmsg, socket_with};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 4096;
/// Stable names are the machine's: so the volume's name is no other test's.
const VOLUME: &str = "outlives";

fn machine_can(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && support::exists("/dev/loop-control") && support::exists("/dev/fuse");
    if !can {
        eprintln!("{test}: SKIPPED, it needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

/// How the volume is offered: `ublk` in a guest whose kernel has it.
fn word() -> &'static str {
    static WORD: OnceLock<String> = OnceLock::new();
    WORD.get_or_init(|| std::env::var("OUTLIVES_EXPORT").unwrap_or_else(|_| "loop".into()))
}

/// Whether the device is there, and of this place: the number of one that is gone is another's soon.
fn is_there(place: &Place, device: &str) -> bool {
    let directory = format!("/sys/block/{}", device.trim_start_matches("/dev/"));
    if !device.starts_with("/dev/loop") {
        return support::exists(directory);
    }
    // A loop device that is free is there, too. One whose mount has gone is over a file that lies in no directory.
    let file = std::fs::read_to_string(directory + "/loop/backing_file");
    file.is_ok_and(|file| file.starts_with(&place.path("run")) || !Path::new(&file).starts_with(std::env::temp_dir()))
}

fn add_volume(place: &Place) -> String {
    add_volume_so(place, &["--mode", "write-back"])
}

fn add_volume_so(place: &Place, options: &[&str]) -> String {
    // Without RAM everything cached is on the SSD.
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB", "--ram", "0"]);
    let disk = place.file("disk.img", BLOCKS * 4096);
    let add = ["volume", "add", VOLUME, "--backing", &disk, "--pool", "p", "--export", word()];
    place.must(&[&add[..], options].concat());
    device(place)
}

fn device(place: &Place) -> String {
    place.json(&["volume", "show", VOLUME])["exports"][word()].as_str().expect("it is offered").to_string()
}

#[repr(C, align(4096))]
struct Block([u8; 4096]);

fn block(number: u64, round: u64) -> Box<Block> {
    let mut bytes = Box::new(Block([0; 4096]));
    bytes.0.chunks_exact_mut(16).for_each(|chunk| {
        chunk[..8].copy_from_slice(&number.to_le_bytes());
        chunk[8..].copy_from_slice(&round.to_le_bytes());
    });
    bytes
}

fn open(device: &str) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(device).expect("it opens")
}

/// A client that writes blocks and reads others back, until it is ended or meets an error.
struct Client {
    thread: JoinHandle<std::io::Result<()>>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Client {
    fn start(device: &str) -> Client {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (file, stopped, counted) = (open(device), stop.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            let mut rounds = vec![0; BLOCKS as usize];
            let check = |number: u64, rounds: &[u64]| {
                let mut bytes = block(0, 0);
                file.read_exact_at(&mut bytes.0, number * 4096)?;
                let round = rounds[number as usize];
                assert!(round == 0 || bytes.0 == block(number, round).0, "block {number} is not of round {round}");
                Ok(())
            };
            for round in 1.. {
                let number = round * 2_654_435_761 % BLOCKS;
                file.write_all_at(&block(number, round).0, number * 4096)?;
                rounds[number as usize] = round;
                if round % 32 == 0 {
                    file.sync_data()?;
                }
                check(round * 40_503 % BLOCKS, &rounds)?;
                counted.store(round, Ordering::Relaxed);
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
            }
            (0..BLOCKS).try_for_each(|number| check(number, &rounds))
        });
        Client { thread, stop, done }
    }

    fn wait_for(&self, more: u64) {
        let until = self.done.load(Ordering::Relaxed) + more;
        wait_until("the client goes on", || {
            assert!(!self.thread.is_finished(), "the client has met an error");
            self.done.load(Ordering::Relaxed) >= until
        });
    }

    /// Looks at all blocks once more.
    fn end(self) -> std::io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("what is read is what was written")
    }
}

/// One test of this file at a time: all have a volume of the same name.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn holds_a_connection(keeper: rustix::process::Pid) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", keeper.as_raw_nonzero())).into_iter().flatten().flatten();
    let targets: Vec<_> = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
    let has = |part: &str| targets.iter().any(|target| target.to_string_lossy().contains(part));
    if word() == "loop" { has("/dev/fuse") && has("hearth-requests") } else { has("hearth-state") }
}

#[test]
fn a_killed_daemon_is_not_noticed_by_who_uses_its_device() {
    if !machine_can("a_killed_daemon_is_not_noticed_by_who_uses_its_device") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let mut daemon = place.daemon();
    let device = add_volume(&place);
    assert!(place.must(&["volume", "show", VOLUME]).contains("(while the daemon restarts: I/O waits if it is killed"));
    let client = Client::start(&device);
    for _ in 0..5 {
        client.wait_for(200);
        daemon.kill();
        daemon = place.daemon();
        assert_eq!(self::device(&place), device);
    }
    client.wait_for(200);
    // The process that holds the device may be killed, too, as long as there is a daemon to notice
    // it.
    let keeper = place.keeper().expect("it holds the device");
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("it runs");
    daemon.wait_until("another holds it", || place.keeper().is_some_and(|now| now != keeper && holds_a_connection(now)));
    daemon.kill();
    let daemon = place.daemon();
    client.wait_for(200);
    client.end().expect("no error");
    // Without a service manager, a stop that is asked for takes the device away.
    daemon.stop();
    wait_until("the device goes, and who held it", || !is_there(&place, &device) && place.keeper().is_none());
}

/// The address of another export is taken when the daemon is back: whoever uses the device goes on, and the export comes when it can.
#[test]
fn an_export_that_cannot_be_made_takes_no_device_away() {
    if !machine_can("an_export_that_cannot_be_made_takes_no_device_away") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let daemon = place.daemon();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("there is a free port");
    let nbd = format!("nbd:{address}");
    let device = add_volume_so(&place, &["--export", &nbd]);
    let client = Client::start(&device);
    client.wait_for(200);
    daemon.kill();
    // The rings of a killed daemon end a little later, and its sockets with them.
    let taken = wait_for("the address is free again", || TcpListener::bind(address).ok());
    let daemon = place.daemon();
    client.wait_for(200);
    assert_eq!(self::device(&place), device);
    let shown = || place.json(&["volume", "show", VOLUME]);
    assert!(shown()["exports"][&nbd].is_null() && shown()["health"] == "running", "{}", shown());
    assert!(shown()["problem"].as_str().is_some_and(|problem| problem.contains(&nbd)), "{}", shown());
    drop(taken);
    daemon.wait_until("it is tried again", || !shown()["exports"][&nbd].is_null());
    assert!(shown()["problem"].is_null(), "{}", shown());
    client.end().expect("no error");
    daemon.stop();
}

/// Faster, and said so: it ends with the daemon. Without the kernel's switch it is as any other.
#[test]
fn a_fast_device_says_that_it_ends_with_the_daemon() {
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let test = "a_fast_device_says_that_it_ends_with_the_daemon";
    if !machine_can(test) {
        return;
    }
    let Ok(before) = std::fs::read_to_string(switch) else {
        eprintln!("{test}: SKIPPED, this kernel has no FUSE over io_uring");
        return;
    };
    let _alone = alone();
    for (on, told) in [("Y", "clients must connect again"), ("N", "I/O waits")] {
        let place = Place::new();
        let daemon = place.daemon();
        place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
        let disk = place.file("disk.img", BLOCKS * 4096);
        let add = ["volume", "add", VOLUME, "--backing", &disk, "--pool", "p", "--export", "loop:fast"];
        place.must_fail(&[&add[..], &["--export", "loop"]].concat(), 2, "two block devices");
        std::fs::write(switch, on).expect("root may set it");
        let added = place.run(&add);
        std::fs::write(switch, before.trim()).expect("root may set it");
        assert_eq!(added.status, Some(0), "{added:?}");
        let shown = place.json(&["volume", "show", VOLUME]);
        let device = shown["exports"]["loop:fast"].as_str().expect("it is offered");
        Client::start(device).end().expect("it works");
        assert!(place.must(&["volume", "show", VOLUME]).contains(told), "{shown}");
        daemon.stop();
    }
}

#[test]
fn what_is_kept_for_a_volume_that_is_gone_ends() {
    if !machine_can("what_is_kept_for_a_volume_that_is_gone_ends") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let daemon = place.daemon();
    // Stable names are the machine's: so its name is no other test's.
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
    let disk = place.file("disk.img", BLOCKS * 4096);
    let add = ["volume", "add", "outlived", "--backing", &disk, "--pool", "p", "--mode", "write-back", "--export", word()];
    let device = place.must(&add).lines().next().expect("its device").to_owned();
    let client = Client::start(&device);
    client.wait_for(50);
    daemon.kill();
    let path = place.path("state/state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).expect("a state")).expect("it is JSON");
    state["volumes"].as_array_mut().expect("a list").clear();
    std::fs::write(&path, serde_json::to_vec(&state).expect("it is JSON")).expect("there is room");
    let daemon = place.daemon();
    let error = client.thread.join().expect("what is read is right").expect_err("nobody serves it");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    vanishes(&place, &device);
    // Behind the device, which is seen to go first.
    daemon.wait_until("its name goes", || std::fs::symlink_metadata("/dev/hearth/outlived").is_err());
    daemon.stop();
}

/// Whoever had it open has closed it: it is to go.
fn vanishes(place: &Place, device: &str) {
    wait_until("the device goes", || !is_there(place, device));
}

/// The backing device is another's work by now: who has known its content must not go on.
#[test]
fn what_was_written_by_others_meanwhile_ends_the_device() {
    if !machine_can("what_was_written_by_others_meanwhile_ends_the_device") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let daemon = place.daemon();
    let device = add_volume_so(&place, &["--mode", "write-through", "--admission", "always"]);
    let file = open(&device);
    for round in 1..4 {
        for number in 0..256 {
            file.write_all_at(&block(number, round).0, number * 4096).expect("written");
            file.read_exact_at(&mut block(0, 0).0, number * 4096).expect("read");
        }
    }
    file.sync_data().expect("flushed");
    place.must(&["volume", "warm", VOLUME]);
    daemon.wait_until("it is cached", || place.json(&["volume", "show", VOLUME])["cached_bytes"].as_u64() >= Some(1 << 20));
    daemon.kill();
    let disk = File::options().write(true).open(place.path("disk.img")).expect("it is there");
    (0..256).for_each(|number| disk.write_all_at(&block(number, 99).0, number * 4096).expect("there is room"));
    disk.sync_all().expect("there is room");
    let daemon = place.daemon();
    let read = file.read_exact_at(&mut block(0, 0).0, 0);
    let errno = read.map_err(|error| error.raw_os_error());
    // A device of ublk is gone by then, and has no size.
    let expected = if word() == "loop" { Some(5) } else { errno.err().flatten() };
    assert_eq!(errno, Err(expected), "its content is not what it was: {}", daemon.log());
    drop(file);
    let now = open(&self::device(&place));
    let mut bytes = block(0, 0);
    now.read_exact_at(&mut bytes.0, 0).expect("it is served anew");
    assert!(bytes.0 == block(0, 99).0);
    drop(now);
    daemon.stop();
}

/// The SSD was away for a moment, and has lost what it had only in its volatile cache: writes that
/// were acknowledged and not flushed. That must not go unseen, whether this daemon takes the SSD up
/// again or the next one does.
#[test]
fn an_ssd_that_has_lost_acknowledged_writes_ends_the_device() {
    if !machine_can("an_ssd_that_has_lost_acknowledged_writes_ends_the_device") {
        return;
    }
    let _alone = alone();
    for killed in [false, true] {
        assert!((0..50).any(|_| loses_acknowledged_writes(killed)), "the machine is too slow");
    }
}

/// False if the machine was so slow that destage, which flushes first, may have begun.
fn loses_acknowledged_writes(killed: bool) -> bool {
    let place = Place::new();
    let mut daemon = place.daemon_with_limits();
    let device = add_volume_so(&place, &["--mode", "write-back", "--write-cache-depth", "24h", "--admission", "always"]);
    let file = open(&device);
    // Beyond what the daemon may write while its files are limited: so nothing goes home.
    let numbers = || 1000..1064;
    numbers().for_each(|number| file.write_all_at(&block(number, 1).0, number * 4096).expect("written"));
    file.sync_data().expect("flushed");
    let durable = std::fs::read(place.path("ssd.img")).expect("it is there");
    daemon.wait_until("nothing is dirty", || place.json(&["volume", "show", VOLUME])["dirty_bytes"] == 0);
    let begun = Instant::now();
    numbers().for_each(|number| file.write_all_at(&block(number, 2).0, number * 4096).expect("written"));
    limit_files(&daemon, Some(1 << 20));
    // The backing device counts as idle after 200 ms.
    if begun.elapsed() > Duration::from_millis(150) {
        limit_files(&daemon, None);
        drop(file);
        daemon.kill();
        place.must(&["rescue"]);
        return false;
    }
    // It finds out, and waits.
    let waiting = std::thread::spawn(move || file.write_all_at(&block(1000, 3).0, 1000 * 4096).map(|()| file));
    let health = || place.json(&["pool", "show", "p"])["health"].as_str().map(str::to_owned);
    daemon.wait_until("the pool has met the failure", || health().as_deref() != Some("running"));
    let lose = || {
        let ssd = File::options().write(true).open(place.path("ssd.img")).expect("it is there");
        ssd.write_all_at(&durable, 0).expect("there is room");
    };
    if killed {
        daemon.kill();
        lose();
        daemon = place.daemon();
    } else {
        // The pool is tried meanwhile, and does not start.
        std::thread::sleep(Duration::from_millis(1500));
        lose();
        limit_files(&daemon, None);
    }
    let ended = waiting.join().expect("no panic").and_then(|file| file.sync_data());
    let errno = ended.err().and_then(|error| error.raw_os_error());
    assert_eq!(errno, Some(5), "writes were lost: {}", daemon.log());
    daemon.wait_until("it is offered anew", || health().as_deref() == Some("running") && device_now(&place).is_some());
    let log = daemon.log();
    assert!(killed || log.contains("its SSD has lost writes that were acknowledged and not flushed"), "{log}");
    let file = open(&device_now(&place).expect("it is offered anew"));
    for number in numbers() {
        let mut bytes = block(0, 0);
        file.read_exact_at(&mut bytes.0, number * 4096).expect("read");
        // Or what is newer, if it went home before the SSD was cut off for good; of the write that
        // failed nobody knows.
        let newest = if number == 1000 { 3 } else { 2 };
        assert!((1..=newest).any(|version| bytes.0 == block(number, version).0), "block {number}: what was flushed is there");
    }
    drop(file);
    daemon.stop();
    true
}

fn device_now(place: &Place) -> Option<String> {
    place.json(&["volume", "show", VOLUME])["exports"][word()].as_str().map(str::to_owned)
}

fn limit_files(daemon: &Daemon, bytes: Option<u64>) {
    let limit = rustix::process::Rlimit { current: bytes, maximum: None };
    let child = rustix::process::Pid::from_child(&daemon.child);
    rustix::process::prlimit(Some(child), rustix::process::Resource::Fsize, limit).expect("it is our child");
}

/// The SSD takes no writes for some seconds, as after a dip of its power, and is back with all that
/// is dirty on it. Nobody is told, and nobody meets an error.
#[test]
fn an_ssd_that_is_away_for_a_moment_is_a_pause() {
    if !machine_can("an_ssd_that_is_away_for_a_moment_is_a_pause") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let daemon = place.daemon_with_limits();
    let device = add_volume(&place);
    place.must(&["volume", "set", VOLUME, "--write-cache-depth", "24h"]);
    let client = Client::start(&device);
    client.wait_for(300);
    // Enough for the daemon's own files.
    limit_files(&daemon, Some(1 << 20));
    let health = |what: &str| place.json(&[what, "show", if what == "pool" { "p" } else { VOLUME }])["health"].as_str().map(str::to_owned);
    daemon.wait_until("the pool has met the failure", || health("pool").as_deref() != Some("running"));
    std::thread::sleep(Duration::from_secs(3));
    let before = client.done.load(Ordering::Relaxed);
    limit_files(&daemon, None);
    daemon.wait_until("pool and volume run", || ["pool", "volume"].iter().all(|what| health(what).as_deref() == Some("running")));
    client.wait_for(300);
    assert!(client.done.load(Ordering::Relaxed) > before);
    client.end().expect("no error");
    assert_eq!(self::device(&place), device);
    daemon.stop();
}

#[test]
fn what_waits_for_a_daemon_that_does_not_come_is_ended_by_a_command() {
    if !machine_can("what_waits_for_a_daemon_that_does_not_come_is_ended_by_a_command") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    assert!(place.must(&["rescue"]).contains("nothing is held"));
    let daemon = place.daemon();
    let device = add_volume(&place);
    let client = Client::start(&device);
    client.wait_for(50);
    place.must_fail(&["rescue"], 1, "a hearth daemon (process");
    client.wait_for(50);
    let user = std::fs::File::open(&device).expect("it is there");
    daemon.kill();
    let told = place.must(&["rescue"]);
    assert!(told.starts_with(&format!("{device}: ended")), "{told}");
    assert!(word() != "loop" || told.contains("it is in use (open in "), "{told}");
    drop(user);
    // The number is another's soon.
    assert!(std::fs::symlink_metadata("/dev/hearth/outlives").is_err(), "its name leads nowhere any more");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    assert!(!mounts.contains(&place.path("run")), "{mounts}");
    client.thread.join().expect("what is read is right").expect_err("nobody serves it");
    wait_until("the device goes, and who held it", || place.keeper().is_none() && !is_there(&place, &device));
    let daemon = place.daemon();
    Client::start(&self::device(&place)).end().expect("it is served again");
    daemon.stop();
}

/// A client of NBD sees a pause, too, when the daemon is restarted: with two volumes in two pools,
/// so that several threads stop it.
#[test]
fn an_nbd_client_does_not_notice_a_restart() {
    let _alone = alone();
    let place = Place::new();
    let mut manager = Manager::new(&place);
    let mut daemon = manager.start(&place);
    let mut uris = Vec::new();
    for volume in ["a", "b"] {
        let (ssd, disk) = (place.path(&format!("ssd-{volume}.img")), place.file(&format!("{volume}.img"), 16 << 20));
        place.must(&["pool", "create", volume, "--ssd", &ssd, "--size", "64MiB"]);
        let add = ["volume", "add", volume, "--backing", &disk, "--pool", volume, "--mode", "write-back", "--export", "nbd"];
        uris.push(place.must(&add).trim().to_owned());
    }
    assert!(place.must(&["volume", "show", "a"]).contains("I/O waits; if the daemon is killed"));
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = uris
        .iter()
        .map(|uri| {
            let (mut client, stop) = (support::nbd::Client::connect(uri), stop.clone());
            std::thread::spawn(move || {
                let mut done = 0;
                while done < 50 || !stop.load(Ordering::Relaxed) {
                    let (number, round) = (done * 31 % 1024, done);
                    client.write(number * 4096, &block(number, round).0).expect("no error");
                    assert!(client.read(number * 4096, 4096) == block(number, round).0);
                    if done % 16 == 0 {
                        client.flush();
                    }
                    done += 1;
                }
            })
        })
        .collect();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        daemon.stop();
        daemon = manager.start(&place);
    }
    std::thread::sleep(Duration::from_millis(200));
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("nothing was wrong");
    }
    daemon.stop();
    // Nobody was connected: only the socket is left, for who connects meanwhile.
    manager.listen();
    assert!(manager.kept.keys().all(|name| name.starts_with("nbd-listener")), "{:?}", manager.kept.keys());
}

/// As much of a service manager as keeps descriptors.
struct Manager {
    socket: OwnedFd,
    path: String,
    kept: BTreeMap<String, OwnedFd>,
}

impl Manager {
    fn new(place: &Place) -> Manager {
        let path = place.path("notify.sock");
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path.as_str()).expect("short")).expect("free");
        Manager { socket, path, kept: BTreeMap::new() }
    }

    /// Reads what the daemon has said.
    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        loop {
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let Ok(message) = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) else {
                return;
            };
            let text = std::str::from_utf8(&bytes[..message.bytes]).expect("text").to_owned();
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default().to_owned();
            if text.contains("FDSTOREREMOVE=1") {
                self.kept.remove(&name);
            } else if text.contains("FDSTORE=1") {
                assert!(text.contains("FDPOLL=0"), "{text}");
                let came = ancillary.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut came) => came.next(),
                    _ => None,
                });
                // Beyond the numbers under which the next daemon gets them.
                let high = rustix::io::fcntl_dupfd_cloexec(came.expect("a descriptor"), 100).expect("there is room");
                self.kept.insert(name, high);
            }
        }
    }

    /// Starts a daemon with what is kept.
    fn start(&mut self, place: &Place) -> Daemon {
        self.listen();
        let inner = place.command(&["serve"]);
        // A name each, in the order of the descriptors from 3 on.
        let names: Vec<&str> = self.kept.keys().map(String::as_str).collect();
        let redirect = |(at, fd): (usize, &OwnedFd)| format!("{}<&{number} {number}<&-", at + 3, number = fd.as_raw_fd());
        let redirect: Vec<String> = self.kept.values().enumerate().map(redirect).collect();
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(format!("exec {}; LISTEN_PID=$$ exec \"$0\" serve", redirect.join(" "))).arg(inner.get_program());
        shell.env("HEARTH_STATE", place.path("state")).env("HEARTH_SOCKET", place.path("run/h.sock")).env("HEARTH_CONFIG", "");
        shell.env_remove("HEARTH_LOG").env("NOTIFY_SOCKET", &self.path).env("FDSTORE", "512").current_dir(place.directory.path());
        shell.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        // Only this process gets them: one that another test starts at the same time would keep them open.
        let given: Vec<RawFd> = self.kept.values().map(OwnedFd::as_raw_fd).collect();
        // SAFETY: between fork and exec nothing but fcntl(2) is called, on descriptors that are open as long as `self` is borrowed.
        unsafe {
            shell.pre_exec(move || {
                let mut given = given.iter().map(|number| BorrowedFd::borrow_raw(*number));
                given.try_for_each(|descriptor| fcntl_setfd(descriptor, FdFlags::empty())).map_err(std::io::Error::from)
            });
        }
        let daemon = place.start(shell);
        self.listen();
        daemon
    }
}

#[test]
fn a_service_manager_that_keeps_descriptors_makes_a_restart_a_pause() {
    if !machine_can("a_service_manager_that_keeps_descriptors_makes_a_restart_a_pause") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let mut manager = Manager::new(&place);
    let mut daemon = manager.start(&place);
    let device = add_volume(&place);
    let client = Client::start(&device);
    for kill in [false, true, false] {
        client.wait_for(200);
        if kill {
            daemon.kill()
        } else {
            daemon.stop()
        }
        daemon = manager.start(&place);
        assert_eq!(self::device(&place), device);
    }
    assert!(place.keeper().is_none(), "the service manager does it");
    client.wait_for(200);
    client.end().expect("no error");
    // Nobody uses it now: then it goes.
    daemon.stop();
    manager.listen();
    assert_eq!(manager.kept.keys().collect::<Vec<_>>(), Vec::<&String>::new());
    // In use, and the manager lets go: its users get errors, and it goes with them.
    let daemon = manager.start(&place);
    let device = self::device(&place);
    let client = Client::start(&device);
    client.wait_for(50);
    daemon.stop();
    manager.listen();
    assert_eq!(manager.kept.len(), if word() == "loop" { 2 } else { 1 });
    manager.kept.clear();
    if word() != "loop" {
        // The kernel keeps it by itself: what the unit does after a stop ends it.
        place.must(&["rescue"]);
    }
    client.thread.join().expect("what is read is right").expect_err("nobody serves it");
    vanishes(&place, &device);
    // Its mount is left, as after a crash.
    manager.start(&place).stop();
}

/// All of this once more over ublk, in a guest whose kernel has it. Asked for by `HEARTH_LAB`, since
/// an emulated guest wants the processors for itself.
#[test]
fn over_ublk_in_a_guest() {
    const NAME: &str = "outlives::over_ublk_in_a_guest";
    let launcher = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab");
    if std::env::var_os("HEARTH_LAB").is_none() || !launcher.is_file() {
        eprintln!("{NAME}: SKIPPED, it needs HEARTH_LAB=1 and the guest lab beside the project");
        return;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let inside = format!(
        "mount -t tmpfs -o size=3G none /tmp && cd {} && exec {} outlives:: --test-threads=1 --nocapture --skip {NAME}",
        env!("CARGO_MANIFEST_DIR"),
        program.display()
    );
    let mut command = Command::new(launcher);
    command.args(["run", "--mem", "4G", "--timeout", "500", "--env", "OUTLIVES_EXPORT=ublk"]);
    command.args(["--module", "ublk_drv", "--module", "loop", "--module", "fuse", "--", "sh", "-c", &inside]);
    let ended = command.output().expect("the launcher runs");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("test result: ok. "), "{said}");
    eprint!("{said}");
}
