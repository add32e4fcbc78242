//! Devices that hang while the daemon stops: they alone are given up, with a word; everything else stops cleanly, and the next start has it all.
//!
//! A device that hangs is the loop device of a `hearth model` process that is stopped (SIGSTOP). The daemon has ended its work when it says so: where
//! the kernel carries out a flush for it, its process can end only when the device answers, which it therefore does again then.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};
use support::nbd::Client;
use support::{Daemon, Place};

const MODEL_BYTES: u64 = 128 << 20;
const DATA_BYTES: usize = 64 << 10;

fn machine_can() -> bool {
    let can = rustix::process::geteuid().is_root() && support::exists("/dev/loop-control") && support::exists("/dev/fuse");
    if !can {
        eprintln!("skipped: it needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

/// A modelled disk as a loop device. Goes on, and ends, when dropped.
struct Model {
    child: Child,
    device: String,
}

impl Model {
    fn start(place: &Place, name: &str) -> Model {
        let file = place.file(&format!("{name}.img"), MODEL_BYTES);
        let mut command = place.command(&["model", "sata-ssd-2012", &file, "--export", "loop"]);
        // Its mounts lie beside its socket.
        command.env("HEARTH_SOCKET", place.path(&format!("{name}/h.sock"))).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let mut device = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut device).expect("it is text");
        let model = Model { child, device: device.trim().into() };
        assert!(model.device.starts_with("/dev/loop"), "{name}: {:?}", model.device);
        model
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn hangs(&self) {
        self.signal(Signal::STOP);
    }

    fn answers(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.answers();
        self.signal(Signal::TERM);
        drop(self.child.wait());
    }
}

fn data(seed: u8) -> Vec<u8> {
    (0..DATA_BYTES).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// A daemon that gives devices up after two seconds.
fn daemon(place: &Place) -> Daemon {
    std::fs::write(place.path("hearth.toml"), "stop_limit = \"8s\"\n").expect("there is room");
    let mut serve = place.command(&["serve"]);
    serve.env("HEARTH_CONFIG", place.path("hearth.toml"));
    place.start(serve)
}

fn pool(place: &Place, name: &str, ssd: &str) {
    place.must(&["pool", "create", name, "--ssd", ssd, "--size", "128MiB", "--ram", "0"]);
}

fn volume(place: &Place, name: &str, pool: &str, backing: &str) {
    let options = ["--mode", "write-back", "--export", "nbd", "--write-cache-depth", "24h"];
    place.must(&[&["volume", "add", name, "--pool", pool, "--backing", backing][..], &options].concat());
}

fn client(place: &Place, volume: &str) -> Client {
    Client::connect(&format!("nbd+unix:///{volume}?socket={}", place.path("run/nbd.sock")))
}

fn write(place: &Place, volume: &str, seed: u8) {
    let mut client = client(place, volume);
    client.write(0, &data(seed)).expect("the SSD takes it");
    client.flush();
}

/// Asks for something that will wait for a device.
fn ask(place: &Place, arguments: &[&str]) -> Child {
    place.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs")
}

fn wait_for_jobs(place: &Place, count: usize) {
    while place.json(&["job", "list"]).as_array().expect("a list").iter().filter(|job| job["state"] == "running").count() < count {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Stops the daemon while devices hang; gives what it said.
fn stop_while_hung(mut daemon: Daemon, hung: &[&Model]) -> String {
    daemon.signal(Signal::TERM);
    while !daemon.log().contains("cannot stop cleanly") {
        assert!(daemon.child.try_wait().expect("it is our child").is_none(), "{}", daemon.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    hung.iter().for_each(|model| model.answers());
    let status = daemon.child.wait().expect("it is our child");
    assert_eq!(status.code(), Some(1), "{}", daemon.log());
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
    log
}

/// The volumes that the state calls stopped.
fn stopped_clean(place: &Place) -> Vec<String> {
    let state = std::fs::read(place.path("state/state.json")).expect("it is there");
    let state: serde_json::Value = serde_json::from_slice(&state).expect("JSON");
    let volumes = state["volumes"].as_array().expect("a list").iter();
    volumes.filter(|v| v["stopped_clean"] == true).map(|v| v["name"].as_str().unwrap_or_default().to_string()).collect()
}

fn last_start(place: &Place, pool: &str) -> String {
    place.json(&["pool", "show", pool])["recovery"].to_string()
}

#[test]
fn backing_devices_that_hang_are_given_up_alone_whatever_waits_for_them() {
    if !machine_can() {
        return;
    }
    let place = Place::new();
    let (first, second) = (Model::start(&place, "first"), Model::start(&place, "second"));
    let daemon = daemon(&place);
    pool(&place, "p", "ssd-p.img");
    pool(&place, "q", "ssd-q.img");
    volume(&place, "u", "p", &first.device);
    volume(&place, "v", "p", &second.device);
    volume(&place, "w", "p", &place.file("w.img", MODEL_BYTES));
    volume(&place, "x", "q", &place.file("x.img", MODEL_BYTES));
    let volumes = [("u", 1), ("v", 2), ("w", 3), ("x", 4)];
    // First: what is written stays dirty then. Otherwise it is destaged as soon as the devices are idle.
    first.hangs();
    second.hangs();
    volumes.iter().for_each(|(volume, seed)| write(&place, volume, *seed));
    // Long enough for an idle device to be destaged to.
    std::thread::sleep(std::time::Duration::from_millis(500));
    // One removal and one change of mode wait, each for its device.
    let mut waiting = [ask(&place, &["volume", "remove", "u"]), ask(&place, &["volume", "set", "v", "--mode", "write-through"])];
    wait_for_jobs(&place, 2);
    let log = stop_while_hung(daemon, &[&first, &second]);
    waiting.iter_mut().for_each(|command| drop(command.wait()));
    for (volume, model) in [("u", &first), ("v", &second)] {
        let named = format!("{}, the backing device of volume {volume} (pool p) has not answered", model.device);
        let line = log.lines().find(|line| line.contains(&named)).unwrap_or_else(|| panic!("no {named:?} in {log}"));
        assert!(line.contains("hearth gives up on it") && line.contains("of dirty data stay on the SSD of pool p"), "{line}");
    }
    assert_eq!(stopped_clean(&place), ["w", "x"], "{log}");

    let daemon = self::daemon(&place);
    for pool in ["p", "q"] {
        let recovery = last_start(&place, pool);
        assert!(!recovery.contains("unclean"), "{pool}: {recovery}");
    }
    assert!(!daemon.ready.contains("trouble"), "{}", daemon.log());
    volumes.iter().for_each(|(volume, seed)| assert!(client(&place, volume).read(0, DATA_BYTES) == data(*seed), "{volume}"));
    daemon.stop();
}

#[test]
fn a_pool_whose_ssd_hangs_is_left_as_by_a_crash_and_the_others_stop() {
    if !machine_can() {
        return;
    }
    let place = Place::new();
    let ssd = Model::start(&place, "ssd");
    let daemon = daemon(&place);
    pool(&place, "p", &ssd.device);
    pool(&place, "q", "ssd-q.img");
    volume(&place, "v", "p", &place.file("v.img", MODEL_BYTES));
    volume(&place, "x", "q", &place.file("x.img", MODEL_BYTES));
    write(&place, "v", 1);
    write(&place, "x", 2);
    ssd.hangs();
    let mut check = ask(&place, &["pool", "check", "p"]);
    wait_for_jobs(&place, 1);
    let log = stop_while_hung(daemon, &[&ssd]);
    drop(check.wait());
    let named = format!("{}, the SSD of pool p has not answered", ssd.device);
    assert!(log.lines().any(|line| line.contains(&named) && line.contains("hearth gives up on it")), "{log}");
    assert_eq!(stopped_clean(&place), ["x"], "{log}");

    let daemon = self::daemon(&place);
    assert_eq!(place.json(&["pool", "show", "p"])["health"], "running", "{}", daemon.log());
    assert!(last_start(&place, "p").contains("unclean") && !last_start(&place, "q").contains("unclean"));
    for (volume, seed) in [("v", 1), ("x", 2)] {
        assert!(client(&place, volume).read(0, DATA_BYTES) == data(seed), "{volume}");
    }
    daemon.stop();
}

/// Whether anybody has the device for itself, as whoever caches it does.
fn is_taken(model: &Model) -> bool {
    let open = std::fs::File::options().read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(&model.device);
    open.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
}

/// A write of a killed daemon that the kernel still has may come to the device at any time: over a
/// newer one of the next daemon, if that could have the device already.
#[test]
fn a_device_is_not_free_while_writes_of_a_killed_daemon_are_under_way() {
    if !machine_can() {
        return;
    }
    let place = Place::new();
    let disk = Model::start(&place, "disk");
    let daemon = daemon(&place);
    pool(&place, "p", "ssd-p.img");
    let options = ["--mode", "write-through", "--export", "nbd"];
    place.must(&[&["volume", "add", "v", "--pool", "p", "--backing", &disk.device][..], &options].concat());
    let mut client = client(&place, "v");
    client.write(0, &data(1)).expect("the disk takes it");
    disk.hangs();
    let waits = std::thread::spawn(move || client.write(0, &data(2)));
    let inflight = format!("/sys/block/{}/inflight", disk.device.trim_start_matches("/dev/"));
    while std::fs::read_to_string(&inflight).expect("the kernel counts").split_whitespace().nth(1) == Some("0") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    daemon.kill();
    assert!(waits.join().is_err(), "the client's connection ends");
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(is_taken(&disk), "the device is free, and the write still to come");
    }

    let daemon = self::daemon(&place);
    let health = || place.json(&["volume", "show", "v"])["health"].as_str().map(String::from);
    assert_ne!(health().as_deref(), Some("running"), "{}", daemon.log());
    disk.answers();
    let runs = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        health().as_deref() == Some("running")
    });
    assert!(runs, "{}", daemon.log());
    let read = self::client(&place, "v").read(0, DATA_BYTES);
    assert!(read == data(1) || read == data(2), "the write took place, or it did not");
    daemon.stop();
}
