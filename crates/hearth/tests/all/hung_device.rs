//! Devices that hang while the daemon stops: they alone are given up, with a word; everything else stops cleanly, and the next start has it all.
//!
//! A device that hangs is the loop device of a `hearth model` process that is stopped (SIGSTOP). The daemon has ended its work when it says so: where
//! the kernel carries out a flush for it, its process can end only when the device answers, which it therefore does again then.

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Daemon, Place, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Stdio};

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

    /// Its threads may go on for a moment after the signal, and answer a request that was to hang.
    fn hangs(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let state = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        wait_until("all its threads have stopped", || {
            std::fs::read_dir(&threads).expect("it is our child").flatten().map(state).all(|stat| stat.contains(") T "))
        });
    }

    fn answers(&self) {
        self.signal(Signal::CONT);
    }

    /// Its device fails each request from then on.
    fn dies(&self) {
        #[repr(align(4096))]
        struct Page([u8; 4096]);
        self.signal(Signal::KILL);
        let mut page = Page([0; 4096]);
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let open = || std::fs::File::options().read(true).custom_flags(direct).open(&self.device);
        while open().and_then(|device| device.read_at(&mut page.0, 0)).is_ok() {}
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

/// A daemon that gives devices up after six seconds: sound ones answer sooner, on a busy machine too.
fn daemon(place: &Place) -> Daemon {
    std::fs::write(place.path("hearth.toml"), "stop_limit = \"24s\"\n").expect("there is room");
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
    let running = || place.json(&["job", "list"]).as_array().expect("a list").iter().filter(|job| job["state"] == "running").count();
    wait_until("the jobs run", || running() >= count);
}

/// Stops the daemon while devices hang; gives what it said.
fn stop_while_hung(mut daemon: Daemon, hung: &[&Model]) -> String {
    daemon.signal(Signal::TERM);
    let says = |daemon: &Daemon| daemon.log().contains("cannot stop cleanly");
    wait_until("it says what it gives up", || says(&daemon) || daemon.child.try_wait().expect("it is our child").is_some());
    assert!(says(&daemon), "{}", daemon.log());
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
    // A destage and a change of mode wait, each for its device.
    let mut waiting = [ask(&place, &["volume", "destage", "u"]), ask(&place, &["volume", "set", "v", "--mode", "write-through"])];
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
    let writes = || std::fs::read_to_string(&inflight).expect("the kernel counts").split_whitespace().nth(1) != Some("0");
    wait_until("the write is under way", writes);
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
    daemon.wait_until("the volume runs", || health().as_deref() == Some("running"));
    let read = self::client(&place, "v").read(0, DATA_BYTES);
    assert!(read == data(1) || read == data(2), "the write took place, or it did not");
    daemon.stop();
}

/// Where a volume is a loop device.
fn device_of(place: &Place, volume: &str) -> String {
    place.json(&["volume", "show", volume])["exports"]["loop"].as_str().expect("it is offered").to_string()
}

fn add_as_device(place: &Place, volume: &str, mode: &str, model: &Model) {
    let options = ["--mode", mode, "--export", "loop", "--write-cache-depth", "24h"];
    place.must(&[&["volume", "add", volume, "--pool", "p", "--backing", &model.device][..], &options].concat());
}

/// Past no page cache, and flushed only if it is said.
fn write_to_device(place: &Place, volume: &str, flushed: bool) {
    let mut file = std::fs::File::options().write(true).open(device_of(place, volume)).expect("it is there");
    std::io::Write::write_all(&mut file, &data(9)).expect("the page cache takes it");
    if flushed {
        file.sync_all().expect("the SSD takes it");
    }
}

#[test]
fn disks_that_died_or_hang_are_managed_without_a_restart() {
    if !machine_can() {
        return;
    }
    let place = Place::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| Model::start(&place, name));
    let daemon = daemon(&place);
    pool(&place, "p", "ssd-p.img");
    let names = ["dead-through", "dead-back", "hung-back"].map(|name| format!("{name}-{}", std::process::id()));
    let [through, back, hung] = names.each_ref().map(String::as_str);
    add_as_device(&place, through, "write-through", &first);
    add_as_device(&place, back, "write-back", &second);
    add_as_device(&place, hung, "write-back", &third);
    // First: what is written stays dirty then.
    second.hangs();
    third.hangs();
    write_to_device(&place, back, true);
    write_to_device(&place, hung, true);
    first.dies();
    second.dies();
    write_to_device(&place, through, false);
    let told = place.must(&["volume", "stop", through]);
    assert!(told.contains("may lack what was written last") && !told.contains("complete and free"), "{told}");
    place.must(&["volume", "remove", through]);
    place.must_fail(&["volume", "remove", back], 1, "what is dirty stays on the SSD");
    place.must(&["volume", "remove", back, "--drop-dirty"]);
    // Behind a line that says what takes so long.
    let refused = place.run(&["volume", "stop", hung]);
    let way = format!("hearth volume stop {hung} --give-up");
    assert!(refused.status == Some(1) && refused.stderr.contains(&way), "{refused:?}");
    assert_eq!(place.json(&["volume", "show", hung])["health"], "running", "it goes on when its device answers");
    let told = place.must(&["volume", "stop", hung, "--give-up"]);
    assert!(told.contains("of dirty data stay on the SSD"), "{told}");
    third.answers();
    place.must(&["volume", "start", hung]);
    place.must(&["volume", "destage", hung]);
    place.must(&["volume", "remove", hung]);
    place.must(&["pool", "destroy", "p"]);
    daemon.stop();
    drop((first, second, third));
    // The next of each name clears away what the dead left.
    ["first", "second"].iter().for_each(|name| drop(Model::start(&place, name)));
}

/// A start names what it waits for, and serves everything else meanwhile.
#[test]
fn a_start_waits_for_no_device_that_does_not_answer() {
    if !machine_can() {
        return;
    }
    let place = Place::new();
    let (disk, ssd) = (Model::start(&place, "disk"), Model::start(&place, "ssd"));
    let daemon = daemon(&place);
    pool(&place, "p", "ssd-p.img");
    pool(&place, "q", &ssd.device);
    volume(&place, "u", "p", &disk.device);
    volume(&place, "w", "p", &place.file("w.img", MODEL_BYTES));
    volume(&place, "x", "q", &place.file("x.img", MODEL_BYTES));
    write(&place, "x", 4);
    daemon.stop();
    disk.hangs();
    ssd.hangs();
    let daemon = self::daemon(&place);
    let health = |what: &str, name: &str| place.json(&[what, "show", name])["health"].as_str().map(String::from).unwrap_or_default();
    assert_eq!(health("volume", "w"), "running", "{}", daemon.log());
    place.must(&["volume", "set", "w", "--mode", "write-through"]);
    let log = daemon.log();
    for part in [format!("its backing device {} does not answer", disk.device), format!("its SSD {} does not answer", ssd.device)] {
        assert!(log.contains(&part), "{part:?} is not in {log}");
    }
    assert_ne!(health("pool", "q"), "running");
    disk.answers();
    ssd.answers();
    for (what, name) in [("volume", "u"), ("pool", "q"), ("volume", "x")] {
        daemon.wait_until(&format!("{what} {name} runs"), || health(what, name) == "running");
    }
    assert!(client(&place, "x").read(0, DATA_BYTES) == data(4));
    daemon.stop();
}

/// Who asks a daemon that was stopped by a signal is told so.
#[test]
fn a_command_does_not_wait_in_silence_for_a_daemon_that_is_stopped() {
    let place = Place::new();
    let daemon = place.daemon();
    daemon.signal(Signal::STOP);
    place.must_fail(&["volume", "list"], 1, &format!("kill -CONT {}", daemon.child.id()));
    daemon.signal(Signal::CONT);
    place.must(&["volume", "list"]);
    daemon.stop();
}
