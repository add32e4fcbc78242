//! The daemon comes, goes, is killed, and comes back with everything as it was.

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Daemon, Place, check_failure};
use rustix::process::Signal;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};

const DISK_BYTES: u64 = 32 << 20;

/// A pool `p` and a volume `v` over `disk.img` in that mode; gives the daemon and the volume's URI.
fn with_volume(place: &Place, mode: &str) -> (Daemon, String) {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    place.file("disk.img", DISK_BYTES);
    let options = ["--mode", mode, "--admission", "always", "--export", "nbd", "--write-cache-depth", "24h"];
    let added = [&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat();
    let uri = place.must(&added).trim().to_string();
    (daemon, uri)
}

fn health(place: &Place) -> (String, String) {
    let view = place.json(&["volume", "show", "v"]);
    let text = |key: &str| view[key].as_str().unwrap_or_default().to_string();
    (text("health"), text("problem") + &text("remedy"))
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..4096u32).map(|at| (at % 251) as u8 ^ seed).collect()
}

#[test]
fn everything_comes_back_after_a_clean_stop() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back");
    Client::connect(&uri).write(8192, &pattern(1)).expect("a write");
    let before = place.json(&["volume", "show", "v"]);
    daemon.stop();
    assert!(!support::exists(place.path("run/h.sock")) && !support::exists(place.path("run/nbd.sock")), "sockets are left");
    let daemon = place.daemon();
    assert!(daemon.ready.contains("1 pool, 1 volume"), "{}", daemon.ready);
    let after = place.json(&["volume", "show", "v"]);
    for key in ["uuid", "options", "exports", "size_bytes", "backing", "pool", "health"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!(Client::connect(&uri).read(8192, 4096), pattern(1));
    let recovery = place.json(&["pool", "show", "p"])["recovery"].to_string();
    assert!(recovery.contains("after a clean stop: "), "{recovery}");
    daemon.stop();
}

#[test]
fn a_killed_daemon_loses_no_acknowledged_write() {
    for mode in ["write-back", "write-through", "write-around", "pass-through"] {
        let place = Place::new();
        let (daemon, uri) = with_volume(&place, mode);
        let mut client = Client::connect(&uri);
        (0..64u8).for_each(|n| client.write(u64::from(n) * 4096, &pattern(n)).expect("a write"));
        daemon.kill();
        let _daemon = place.daemon();
        let mut client = Client::connect(&uri);
        (0..64u8).for_each(|n| assert_eq!(client.read(u64::from(n) * 4096, 4096), pattern(n), "{mode}, block {n}"));
    }
}

#[test]
fn what_goes_home_is_complete_without_hearth() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back");
    let mut client = Client::connect(&uri);
    (0..64u8).for_each(|n| client.write(u64::from(n) * 12288, &pattern(n)).expect("a write"));
    let output = place.must(&["volume", "remove", "v"]);
    assert!(output.starts_with("removal of v done"), "{output}");
    let home = std::fs::read(place.path("disk.img")).expect("it is there");
    (0..64usize).for_each(|n| assert_eq!(home[n * 12288..n * 12288 + 4096], pattern(n as u8), "block {}", n * 3));
    place.must(&["pool", "destroy", "p"]);
    place.must_fail(&["pool", "check", "./ssd.img"], 1, "problems");
    daemon.stop();
}

/// Leaving write-back while a client writes: nothing is lost, and afterwards the backing device has it all.
#[test]
fn the_mode_changes_under_load() {
    let place = Place::new();
    let (_daemon, uri) = with_volume(&place, "write-back");
    let writer = std::thread::spawn({
        let uri = uri.clone();
        move || {
            let mut client = Client::connect(&uri);
            (0..2000u32).for_each(|n| client.write(u64::from(n % 500) * 4096, &pattern((n / 500) as u8)).expect("a write"));
            client.flush();
        }
    });
    for mode in ["write-through", "write-back", "write-around", "write-back", "pass-through", "write-through"] {
        place.must(&["volume", "set", "v", "--mode", mode]);
        assert_eq!(place.json(&["volume", "show", "v"])["options"]["mode"], mode);
    }
    writer.join().expect("the writer saw no error");
    let mut client = Client::connect(&uri);
    (0..500u64).for_each(|n| assert_eq!(client.read(n * 4096, 4096), pattern(3), "block {n}"));
    let home = std::fs::read(place.path("disk.img")).expect("it is there");
    (0..500).for_each(|n| assert_eq!(home[n * 4096..(n + 1) * 4096], pattern(3), "block {n} is not at home"));
}

#[test]
fn warm_fills_the_cache_and_stats_count_it() {
    let place = Place::new();
    let (_daemon, uri) = with_volume(&place, "write-through");
    place.must(&["volume", "set", "v", "--admission", "second-touch"]);
    let output = place.must(&["volume", "warm", "v", "--range", "0-4MiB"]);
    assert!(output.starts_with("warm-up of v done: 4 MiB"), "{output}");
    assert_eq!(place.json(&["volume", "show", "v"])["options"]["admission"], "second-touch");
    let before = place.json(&["stats", "v"]);
    let mut client = Client::connect(&uri);
    (0..1024).for_each(|n| drop(client.read(n * 4096, 4096)));
    let stats = place.json(&["stats", "v"]);
    let count = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"));
    assert_eq!((count(&before, "reads"), count(&stats, "reads")), (0, 1024), "a warm-up is no client");
    // Who looks for databases reads a little, too, at a time of its own.
    let own = [&before, &stats].map(|of| count(of, "own_read_bytes"));
    assert!(own.iter().all(|bytes| (4 << 20..5 << 20).contains(bytes)), "{own:?}");
    let hits = count(&stats, "read_hits_ram") + count(&stats, "read_hits_ssd");
    assert!(hits >= 1000, "only {hits} hits after a warm-up: {stats}");
    for key in [
        "writes",
        "read_misses",
        "dirty_bytes",
        "cached_bytes",
        "ssd_written_bytes",
        "admitted_bytes",
        "backing_reads",
        "backing_read_bytes",
        "backing_writes",
        "backing_written_bytes",
        "backing_discards",
        "checksum_errors",
    ] {
        count(&stats, key);
    }
    assert!(stats["bypassed"].is_object() && stats["latency_ns"]["read"]["p99_ns"].is_u64(), "{stats}");
    assert!(stats["write_amplification"].is_number() || stats["write_amplification"].is_null(), "{stats}");
}

#[test]
fn a_changed_backing_device_is_noticed() {
    use std::os::unix::fs::FileExt;
    let change = |place: &Place| {
        let file = std::fs::OpenOptions::new().write(true).open(place.path("disk.img")).expect("it is there");
        file.write_all_at(&pattern(99), 0).expect("there is room");
        file.sync_all().expect("a flush");
    };
    for (mode, clean) in [("write-through", true), ("write-through", false), ("write-back", true)] {
        let place = Place::new();
        let (daemon, uri) = with_volume(&place, mode);
        Client::connect(&uri).write(0, &pattern(7)).expect("a write");
        if clean {
            daemon.stop()
        } else {
            daemon.kill()
        }
        change(&place);
        let _daemon = place.daemon();
        let (health, trouble) = health(&place);
        if mode == "write-through" {
            assert_eq!((health.as_str(), Client::connect(&uri).read(0, 4096)), ("running", pattern(99)), "{mode}, clean {clean}");
            continue;
        }
        // Idle destage may have been faster than the stop: then nothing is dirty, and the device is taken as it is.
        if health == "running" {
            assert_eq!(Client::connect(&uri).read(0, 4096), pattern(99));
            continue;
        }
        assert!(trouble.contains("written by others") && trouble.contains("--drop-dirty"), "{trouble}");
        place.must_fail(&["volume", "remove", "v"], 1, "--drop-dirty");
        place.must(&["volume", "remove", "v", "--drop-dirty"]);
        place.must_fail(&["volume", "show", "v"], 1, "there is no volume");
    }
}

#[test]
fn a_backing_device_that_shrank_or_went_is_refused_and_others_work() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-through");
    let other = place.file("other.img", DISK_BYTES);
    place.must(&["volume", "add", "w", "--backing", &other, "--pool", "p", "--export", "nbd"]);
    daemon.stop();
    let disk = std::fs::OpenOptions::new().write(true).open(place.path("disk.img")).expect("it is there");
    disk.set_len(DISK_BYTES / 2).expect("it can be cut");
    let daemon = place.daemon();
    assert!(daemon.ready.contains("1 in trouble"), "{}", daemon.ready);
    let (state, trouble) = health(&place);
    assert!(state == "failed" && trouble.contains("shrank from 32 MiB to 16 MiB"), "{state}: {trouble}");
    assert_eq!(Client::connect(&uri.replace("/v?", "/w?")).size_bytes, DISK_BYTES);
    place.must(&["volume", "set", "v", "--accept-backing"]);
    assert_eq!(Client::connect(&uri).size_bytes, DISK_BYTES / 2);
    daemon.stop();
    std::fs::remove_file(place.path("disk.img")).expect("it is there");
    let _daemon = place.daemon();
    let (state, trouble) = health(&place);
    assert!(state == "failed" && trouble.contains("was not found"), "{state}: {trouble}");
}

/// Without its SSD a clean volume runs on its backing device, and its old cache is never served again.
#[test]
fn a_missing_ssd_degrades_a_clean_volume() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-through");
    Client::connect(&uri).write(0, &pattern(1)).expect("a write");
    daemon.stop();
    std::fs::rename(place.path("ssd.img"), place.path("away.img")).expect("it is there");
    let daemon = place.daemon();
    assert_eq!(health(&place).0, "degraded");
    let mut client = Client::connect(&uri);
    assert_eq!(client.read(0, 4096), pattern(1));
    client.write(0, &pattern(2)).expect("a write");
    drop(client);
    daemon.stop();
    std::fs::rename(place.path("away.img"), place.path("ssd.img")).expect("it is there");
    let _daemon = place.daemon();
    assert_eq!((health(&place).0.as_str(), Client::connect(&uri).read(0, 4096)), ("running", pattern(2)));
}

#[test]
fn an_old_copy_of_the_ssd_is_refused() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back");
    daemon.stop();
    std::fs::copy(place.path("ssd.img"), place.path("old.img")).expect("there is room");
    let daemon = place.daemon();
    Client::connect(&uri).write(0, &pattern(1)).expect("a write");
    daemon.stop();
    std::fs::rename(place.path("old.img"), place.path("ssd.img")).expect("it is there");
    let _daemon = place.daemon();
    let pool = place.json(&["pool", "show", "p"]);
    assert!(pool["problem"].to_string().contains("an old copy of the pool"), "{pool}");
}

#[test]
fn a_damaged_state_file_is_set_aside_and_told() {
    let place = Place::new();
    let (daemon, _uri) = with_volume(&place, "write-through");
    daemon.stop();
    let state = place.path("state/state.json");
    let mut bytes = std::fs::read(&state).expect("it is there");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&state, &bytes).expect("there is room");
    let daemon = place.daemon();
    assert!(daemon.log().contains("was renamed to"), "{}", daemon.log());
    assert_eq!(std::fs::read(place.path("state/state.json.damaged.0")).expect("it was kept"), bytes);
    // The pool's SSD still protects itself.
    place.must_fail(&["pool", "create", "p", "--ssd", "ssd.img"], 1, "a hearth pool");
}

#[test]
fn a_half_written_superblock_is_survived_and_a_destroyed_one_is_told() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back");
    Client::connect(&uri).write(0, &pattern(5)).expect("a write");
    daemon.stop();
    let ssd = std::fs::OpenOptions::new().write(true).open(place.path("ssd.img")).expect("it is there");
    ssd.write_all_at(&[0xaa; 700], 100).expect("there is room");
    let daemon = place.daemon();
    assert_eq!(Client::connect(&uri).read(0, 4096), pattern(5));
    daemon.stop();
    ssd.write_all_at(&[0xaa; 700], 100).expect("there is room");
    ssd.write_all_at(&[0xaa; 700], (512 << 10) + 100).expect("there is room");
    let _daemon = place.daemon();
    let pool = place.json(&["pool", "show", "p"]);
    let (problem, remedy) = (pool["problem"].to_string(), pool["remedy"].to_string());
    assert!(problem.contains("damaged") && remedy.contains("hearth pool check"), "{problem}; {remedy}");
}

#[test]
fn the_socket_is_for_owner_and_group_and_comes_back_after_a_kill() {
    let place = Place::new();
    let daemon = place.daemon();
    let mode = std::fs::metadata(place.path("run/h.sock")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    std::fs::remove_file(place.path("run/h.sock")).expect("it is there");
    place.must_fail(&["pool", "list"], 1, "start it with `hearth serve`");
    daemon.kill();
    let daemon = place.daemon();
    place.must(&["pool", "list"]);
    daemon.kill();
    assert!(support::exists(place.path("run/h.sock")), "a kill leaves the socket");
    place.must_fail(&["pool", "list"], 1, "start it with `hearth serve`");
    place.daemon().stop();
}

#[test]
fn ctrl_c_ends_a_watcher_with_130_and_the_daemon_cleanly() {
    let place = Place::new();
    let mut daemon = place.daemon();
    let mut watcher = place.command(&["stats", "--watch", "--json"]).stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(watcher.stdout.take().expect("it is piped"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("it is text");
    assert!(line.starts_with("{\"pools\""), "{line}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watcher), Signal::INT).expect("it runs");
    assert_eq!(watcher.wait().expect("it is our child").code(), Some(130));
    daemon.signal(Signal::INT);
    assert_eq!(daemon.child.wait().expect("it is our child").code(), Some(0), "{}", daemon.log());
}

/// A long destage is stopped by Ctrl-C, and goes on when it is asked for again.
#[test]
fn ctrl_c_stops_a_destage_and_the_next_goes_on() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    place.file("disk.img", 1 << 30);
    let add = ["volume", "add", "v", "--backing", "model:7k2:disk.img", "--pool", "p", "--export", "nbd", "--mode", "write-back"];
    let uri = place.must(&[&add[..], &["--write-cache-depth", "24h"]].concat()).trim().to_string();
    let mut client = Client::connect(&uri);
    (0..1500u64).for_each(|n| client.write(n * 48 % 8192 * 131_072 / 4096 * 4096 % (1 << 30), &pattern(1)).expect("a write"));
    drop(client);
    let destage = place.command(&["volume", "destage", "v"]).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    while place.json(&["volume", "show", "v"])["job"].is_null() {
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&destage), Signal::INT).expect("it runs");
    let output = destage.wait_with_output().expect("it is our child");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("continue with `hearth job resume "), "{stderr}");
    place.must(&["volume", "destage", "v"]);
    assert_eq!(place.json(&["stats", "v"])["dirty_bytes"], 0);
    daemon.stop();
}

#[test]
fn an_export_on_tcp_is_for_loopback_and_shown() {
    let place = Place::new();
    let (_daemon, _uri) = with_volume(&place, "write-through");
    let other = place.file("other.img", DISK_BYTES);
    let add = |export: &str| ["volume", "add", "w", "--backing", &other, "--pool", "p", "--export", export].map(str::to_owned);
    let add = |export: &str| place.run(&add(export).iter().map(String::as_str).collect::<Vec<_>>());
    check_failure(&add("nbd:127.0.0.1:0"), "no port", 2, "has the port 0, which would be another one after each start");
    // Another program may take the port before hearth does.
    let (export, uri) = (0..20)
        .find_map(|_| {
            let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("there is a free port").port();
            let export = format!("nbd:127.0.0.1:{port}");
            let ended = add(&export);
            (ended.status == Some(0)).then_some((export, ended.stdout))
        })
        .expect("one of the ports stays free");
    assert!(uri.starts_with("nbd://127.0.0.1:"), "{uri}");
    assert_eq!(place.json(&["volume", "show", "w"])["exports"][&export], uri.trim());
}

/// A file that holds something was hardly made for a cache. What hearth has used itself is empty again.
#[test]
fn a_file_that_is_not_empty_becomes_no_ssd_unless_that_is_forced() {
    let place = Place::new();
    let _daemon = place.daemon();
    let ssd = place.file("ssd.img", 64 << 20);
    let file = std::fs::File::options().read(true).write(true).open(&ssd).expect("it is there");
    file.write_all_at(b"a letter", 1 << 20).expect("it can be written");
    let create = ["pool", "create", "p", "--ssd", &ssd];
    place.must_fail(&create, 1, "it is not empty, and what it holds is not known; choose another file, or give --force");
    let mut kept = [0; 8];
    file.read_exact_at(&mut kept, 1 << 20).expect("it can be read");
    assert_eq!(&kept, b"a letter");
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--force"]);
    place.must(&["pool", "destroy", "p"]);
    place.must(&create);
}
