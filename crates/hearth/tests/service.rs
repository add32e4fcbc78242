//! hearth as a service: the configuration file decides, and a service manager is told what happens.
//! A file of its own, since a mount namespace that it begins has the mounts of all other tests, too.

#[path = "all/support/mod.rs"]
mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};
use support::{Place, wait_until};

/// Collects what a daemon says until a word was heard.
struct Listener {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Listener {
    fn new(path: &str) -> Listener {
        let socket = UnixDatagram::bind(path).expect("the directory is ours");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
        Listener { socket, heard: Vec::new() }
    }

    fn until(&mut self, word: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.heard.iter().any(|line| line == word || line.starts_with(&format!("{word}="))) {
            assert!(Instant::now() < until, "{word} was not said, only {:?}", self.heard);
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes).expect("the daemon says something");
            self.heard.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(String::from));
        }
    }
}

/// The daemon is ready when it says so and not before, lives while its threads do, and says when it stops.
#[test]
fn a_service_manager_is_told() {
    let place = Place::new();
    let mut listener = Listener::new(&place.path("notify"));
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", place.path("notify")).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    let daemon = place.start(command);
    listener.until("READY=1");
    listener.until("STATUS");
    assert!(listener.heard.iter().any(|line| line == "STATUS=0 pools, 0 volumes"), "{:?}", listener.heard);
    for _ in 0..3 {
        listener.heard.clear();
        listener.until("WATCHDOG=1");
    }
    assert!(!listener.heard.iter().any(|line| line.starts_with("STOPPING")));
    daemon.stop();
    listener.until("STOPPING=1");
}

/// Where nobody listens nothing is said, and the daemon starts.
#[test]
fn a_service_manager_that_is_gone_does_no_harm() {
    let place = Place::new();
    let mut command = place.command(&["serve"]);
    command.env("NOTIFY_SOCKET", place.path("nobody")).env("WATCHDOG_USEC", "100000");
    place.start(command).stop();
}

/// Places, the socket's group and the defaults of volumes come from the file; flags win.
#[test]
fn the_file_decides() {
    let place = Place::new();
    let (state, socket) = (place.path("own-state"), place.path("own.sock"));
    let text = format!(
        "state_directory = \"{state}\"\nsocket = \"{socket}\"\nsocket_group = \"0\"\nreactors = 1\n[log]\nformat = \"json\"\n[defaults]\nmode = \"write-around\"\n"
    );
    std::fs::write(place.path("hearth.toml"), text).expect("there is room");
    let configured = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env_remove("HEARTH_STATE").env_remove("HEARTH_SOCKET").env("HEARTH_CONFIG", place.path("hearth.toml"));
        command
    };
    let daemon = place.start(configured(&["serve"]));
    let facts = std::fs::metadata(&socket).expect("the socket is where the file says");
    assert_eq!((facts.gid(), facts.permissions().mode() & 0o777), (0, 0o660));
    let run = |arguments: &[&str]| {
        let output = configured(arguments).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it is UTF-8")
    };
    let disk = place.file("disk.img", 16 << 20);
    run(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
    run(&["volume", "add", "v", "--backing", &disk, "--pool", "p"]);
    run(&["volume", "add", "w", "--backing", &place.file("other.img", 16 << 20), "--pool", "p", "--mode", "write-back"]);
    let volumes: serde_json::Value = serde_json::from_str(&run(&["volume", "list", "--json"])).expect("it is JSON");
    assert_eq!((&volumes[0]["options"]["mode"], &volumes[1]["options"]["mode"]), (&"write-around".into(), &"write-back".into()));
    let shown: serde_json::Value = serde_json::from_str(&run(&["config", "show", "--json"])).expect("it is JSON");
    let reactors = shown.as_array().expect("a list").iter().find(|e| e["key"] == "reactors").expect("every key is shown");
    assert_eq!((&reactors["value"], &reactors["from"]), (&"1".into(), &format!("{}, line 4", place.path("hearth.toml")).into()));
    for line in daemon.log().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(!daemon.log().is_empty(), "the daemon logs that volumes were added");
    daemon.stop();
}

/// A file with problems: nothing starts, nothing is made, and `config check` tells all of them.
#[test]
fn a_wrong_file_is_refused_with_its_line() {
    let place = Place::new();
    let file = place.path("hearth.toml");
    let with = |text: &str, arguments: &[&str]| {
        std::fs::write(&file, text).expect("there is room");
        place.run(&[arguments, &["--config", &file][..]].concat())
    };
    let two = "reactors = 0\n[api]\nlisen = \"off\"\n";
    let ended = with(two, &["serve"]);
    support::check_failure(&ended, "serve", 2, "line 1: reactors must be a whole number from 1 to 256");
    assert!(ended.stderr.contains("(1 more: see `hearth config check"), "{ended:?}");
    let checked = with(two, &["config", "check"]);
    support::check_failure(&checked, "check", 2, "has 2 problems");
    assert!(checked.stdout.contains("line 1: reactors") && checked.stdout.contains("line 3: there is no key api.lisen; write api.listen"));
    let groups = with(
        "socket_group = \"no-such-group\"\n[api]\ncertificate = \"/nonexistent\"\nkey = \"/nonexistent\"\n",
        &["config", "check", "--json"],
    );
    let problems: serde_json::Value = serde_json::from_str(&groups.stdout).expect("it is JSON");
    assert_eq!(problems.as_array().map(Vec::len), Some(3), "{problems}");
    assert_eq!(with("[log]\nfilter = \"debug\"\n", &["config", "check"]).stdout, "no problems\n");
    place.must_fail(&["config", "check", "/nonexistent.toml"], 2, "cannot be read");
    place.must_fail(&["config", "check", "/"], 2, "is not a file");
    assert!(!support::exists(place.path("state")), "a refused start leaves nothing behind");
    let printed = place.must(&["config", "default"]);
    assert_eq!(with(&printed, &["config", "check"]).stdout, "no problems\n");
}

/// As under a unit with protected paths: the daemon has a mount namespace of its own, and its FUSE
/// mounts vanish with it. The loop device that a killed daemon leaves is then over a file without a
/// path; the next start finds it all the same: it goes on with it if it was kept, else it takes it
/// down.
#[test]
fn a_killed_daemon_with_its_own_mounts_leaves_no_device_for_long() {
    if !rustix::process::geteuid().is_root() || !support::exists("/dev/loop-control") || !support::exists("/dev/fuse") {
        eprintln!("skipped: it needs root, /dev/fuse and /dev/loop-control");
        return;
    }
    let place = Place::new();
    let apart = || {
        let inner = place.command(&["serve"]);
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "--propagation", "slave"]).arg(inner.get_program()).arg("serve").current_dir(place.directory.path());
        command
            .env("HEARTH_STATE", place.path("state"))
            .env("HEARTH_SOCKET", place.path("run/h.sock"))
            .env("HEARTH_CONFIG", "")
            .env_remove("HEARTH_LOG");
        command
    };
    let device = || {
        let shown = place.json(&["volume", "show", "v"]);
        shown["exports"]["loop"].as_str().expect("it is offered").trim_start_matches("/dev/").to_string()
    };
    let attached_to = |device: &str| std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok();
    let daemon = place.start(apart());
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
    place.must(&["volume", "add", "v", "--backing", &place.file("disk.img", 16 << 20), "--pool", "p", "--export", "loop"]);
    let first = device();
    daemon.kill();
    let daemon = place.start(apart());
    assert_eq!(device(), first, "it was kept");
    std::fs::read(format!("/dev/{first}")).expect("it is served");
    let keeper = place.keeper().expect("it holds the device");
    daemon.kill();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("it runs");
    wait_until("the keeper has ended", || place.keeper().is_none());
    // What this is about. The kernel takes a namespace down a moment after its last process.
    wait_until("the device is over a file without a path", || attached_to(&first).as_deref() == Some("/\n"));
    let daemon = place.start(apart());
    let second = device();
    // It goes when all have closed it, and any program that looks at all block devices has it open for a moment.
    wait_until("the first device goes", || first == second || attached_to(&first).is_none());
    assert_ne!(attached_to(&second).as_deref(), Some("/\n"), "the new one has a path");
    daemon.stop();
    wait_until("both devices go", || attached_to(&first).is_none() && attached_to(&second).is_none());
}
