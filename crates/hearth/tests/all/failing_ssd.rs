//! An SSD that begins to fail under the running daemon: write-through goes on without an error, write-back tells what is lost and never gives
//! something old; and the pool gets another SSD without its volumes being removed.
//!
//! The SSD is a file that is cut off behind its superblock (reads fail), and the daemon may not make files longer than that (writes fail).

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Daemon, Place};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// What is left of the SSD: its superblock. The log begins behind it.
const KEPT_BYTES: u64 = 1 << 20;
const BLOCKS: u64 = KEPT_BYTES / 4096;
const EIO: u32 = 5;

fn with_volume(place: &Place, mode: &str, ssd_size: &str, volume_bytes: u64) -> (Daemon, String) {
    let daemon = place.daemon_with_limits();
    // Without RAM, and without bases in memory, every block comes from the SSD.
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", ssd_size, "--ram", "0", "--content", "off"]);
    place.file("disk.img", volume_bytes);
    let options = ["--mode", mode, "--admission", "always", "--export", "nbd", "--write-cache-depth", "24h"];
    let added = [&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat();
    let uri = place.must(&added).trim().to_string();
    (daemon, uri)
}

fn limit_files(daemon: &Daemon, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(Pid::from_child(&daemon.child)), Resource::Fsize, limit).expect("it is our child");
}

fn fail_ssd(place: &Place, daemon: &Daemon) {
    limit_files(daemon, Some(KEPT_BYTES));
    let ssd = std::fs::File::options().write(true).open(place.path("ssd.img")).expect("it is there");
    ssd.set_len(KEPT_BYTES).expect("it can be cut");
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..4096u64).map(|at| (at % 251) as u8 ^ (seed % 256) as u8).collect()
}

fn text_of(place: &Place, arguments: &[&str], key: &str) -> String {
    place.json(arguments)[key].as_str().unwrap_or_default().to_string()
}

#[test]
fn write_through_goes_on_and_the_ssd_is_replaced() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-through", "512MiB", KEPT_BYTES);
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| client.write(n * 4096, &pattern(n)).expect("a write"));
    client.flush();
    // What was read often enough goes to the SSD a little later.
    daemon.wait_until("the SSD is in use", || {
        (0..2 * BLOCKS).for_each(|n| assert!(client.read(n % BLOCKS * 4096, 4096) == pattern(n % BLOCKS)));
        place.json(&["stats", "v"])["read_hits_ssd"].as_u64() > Some(0)
    });

    fail_ssd(&place, &daemon);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 4096, 4096) == pattern(n), "block {n} after the failure"));
    (0..BLOCKS / 2).for_each(|n| client.write(n * 4096, &pattern(n + 100)).expect("the client sees no error"));
    client.flush();
    let expected = |n: u64| pattern(if n < BLOCKS / 2 { n + 100 } else { n });
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 4096, 4096) == expected(n), "block {n} after writes"));
    drop(client);
    assert_eq!(text_of(&place, &["pool", "show", "p"], "health"), "degraded", "{}", daemon.log());
    let remedy = text_of(&place, &["pool", "show", "p"], "remedy");
    assert!(remedy.contains("hearth pool replace p --ssd"), "{remedy}");

    limit_files(&daemon, None);
    let output = place.must(&["pool", "replace", "p", "--ssd", "new.img", "--size", "128MiB"]);
    assert!(output.contains("new.img"), "{output}");
    let mut client = Client::connect(&uri);
    (0..2 * BLOCKS).for_each(|n| assert!(client.read(n % BLOCKS * 4096, 4096) == expected(n % BLOCKS)));
    assert_eq!(text_of(&place, &["volume", "show", "v"], "health"), "running");
    assert_eq!(text_of(&place, &["pool", "show", "p"], "health"), "running");
    drop(client);
    daemon.stop();
    let home = std::fs::read(place.path("disk.img")).expect("it is there");
    (0..BLOCKS).for_each(|n| assert_eq!(home[n as usize * 4096..][..4096], expected(n), "block {n} at home"));
    let _daemon = place.daemon();
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 4096, 4096) == expected(n), "block {n} after a restart"));
}

/// Nothing is dirty when the SSD fails: the write that meets the failure is done on the backing device, and later nobody asks for data
/// to be given up.
#[test]
fn write_back_with_nothing_dirty_goes_on_without_the_ssd() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back", "64MiB", KEPT_BYTES);
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| client.write(n * 4096, &pattern(1)).expect("a write"));
    place.must(&["volume", "destage", "v"]);
    fail_ssd(&place, &daemon);
    for n in 0..BLOCKS {
        client.write(n * 4096, &pattern(n)).expect("the client sees no error");
        assert!(client.read(n * 4096, 4096) == pattern(n), "block {n}");
    }
    client.flush();
    drop(client);
    let home = std::fs::read(place.path("disk.img")).expect("it is there");
    (0..BLOCKS).for_each(|n| assert_eq!(home[n as usize * 4096..][..4096], pattern(n), "block {n} at home"));
    assert_eq!(text_of(&place, &["pool", "show", "p"], "health"), "degraded", "{}", daemon.log());
    // Stopped, its backing device is free; started, it is served without its cache.
    let told = place.must(&["volume", "stop", "v"]);
    assert!(told.contains("is complete and free"), "{told}");
    let free = std::process::Command::new("flock").args(["-n", &place.path("disk.img"), "true"]).status();
    assert!(free.expect("it is there").success(), "the daemon has let it go");
    place.must(&["volume", "start", "v"]);
    assert_eq!(text_of(&place, &["volume", "show", "v"], "health"), "degraded", "{}", daemon.log());
    daemon.kill();
    std::fs::rename(place.path("ssd.img"), place.path("away.img")).expect("it is there");
    let daemon = place.daemon();
    assert_eq!(text_of(&place, &["volume", "show", "v"], "health"), "degraded", "{}", daemon.log());
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 4096, 4096) == pattern(n), "block {n} after a restart"));
    client.write(0, &pattern(9)).expect("it is served without its cache");
}

#[test]
fn write_back_tells_what_is_lost_and_gives_nothing_old() {
    let place = Place::new();
    // The blocks lie behind the end of the SSD's file, so that a limit can stop destage while the log goes on.
    let (between, base) = (80 << 20, 96 << 20);
    let (daemon, uri) = with_volume(&place, "write-back", "64MiB", 128 << 20);
    let at = |n: u64| base + n * 4096;
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| client.write(at(n), &pattern(1)).expect("a write"));
    place.must(&["volume", "destage", "v"]);
    limit_files(&daemon, Some(between));
    let dirtied = |n: u64| n.is_multiple_of(2);
    (0..BLOCKS).filter(|n| dirtied(*n)).for_each(|n| client.write(at(n), &pattern(2)).expect("a write"));
    client.flush();

    fail_ssd(&place, &daemon);
    for n in 0..BLOCKS {
        match client.try_read(at(n), 4096) {
            Ok(data) => assert!(!dirtied(n) && data == pattern(1), "block {n} is old"),
            Err(errno) => assert!(errno == EIO && dirtied(n), "block {n}: {errno}"),
        }
    }
    assert!(daemon.log().contains("is dirty and cannot be read from the SSD"), "{}", daemon.log());
    drop(client);

    limit_files(&daemon, None);
    place.must_fail(&["pool", "replace", "p", "--ssd", "new.img", "--size", "64MiB"], 1, "--drop-dirty");
    assert!(!support::exists(place.path("new.img")), "nothing is left of the refusal");
    let served = Client::connect(&uri).try_read(at(0), 4096).map(|data| data[..2].to_vec());
    assert_eq!(served, Err(EIO), "it is served as before\n{}", daemon.log());
    place.must(&["pool", "replace", "p", "--ssd", "new.img", "--size", "64MiB", "--drop-dirty"]);
    let mut client = Client::connect(&uri);
    assert!(client.read(at(0), 4096) == pattern(1), "what the backing device has");
    (0..BLOCKS).for_each(|n| client.write(at(n), &pattern(3)).expect("a write"));
    drop(client);
    daemon.kill();
    let _daemon = place.daemon();
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(at(n), 4096) == pattern(3), "block {n} after a kill"));
}

/// The SSD is not there when the daemon starts, and comes later: pool and volume go on by themselves, with all dirty data.
#[test]
fn an_ssd_that_comes_late_needs_no_restart() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back", "64MiB", KEPT_BYTES);
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| client.write(n * 7 % BLOCKS * 4096, &pattern(n)).expect("a write"));
    client.flush();
    drop(client);
    daemon.kill();
    std::fs::rename(place.path("ssd.img"), place.path("away.img")).expect("it is there");
    let daemon = place.daemon();
    assert_eq!(text_of(&place, &["volume", "show", "v"], "health"), "failed", "{}", daemon.log());
    let remedy = text_of(&place, &["pool", "show", "p"], "remedy");
    assert!(remedy.starts_with("reconnect it: the pool then starts by itself"), "{remedy}");
    place.must_fail(&["pool", "start", "p"], 1, "the SSD of this pool is not there");
    std::fs::rename(place.path("away.img"), place.path("ssd.img")).expect("it is there");
    daemon.wait_until("the volume runs", || text_of(&place, &["volume", "show", "v"], "health") == "running");
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 7 % BLOCKS * 4096, 4096) == pattern(n), "block {n}"));
    drop(client);
    assert_eq!(place.must(&["pool", "start", "p"]).trim(), "pool p: it is already running");
    daemon.stop();
}

/// The SSD of a running pool, formatted anew: not without `--force`, and then the volume goes on with all its data.
#[test]
fn the_ssd_of_a_running_pool_is_formatted_anew_by_force() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, "write-back", "64MiB", KEPT_BYTES);
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| client.write(n * 4096, &pattern(n)).expect("a write"));
    drop(client);
    place.must_fail(&["pool", "replace", "p", "--ssd", "ssd.img"], 1, "it is the SSD of this pool; choose another device, or give --force");
    let before = text_of(&place, &["pool", "show", "p"], "uuid");
    place.must(&["pool", "replace", "p", "--ssd", "ssd.img", "--force"]);
    assert_ne!(text_of(&place, &["pool", "show", "p"], "uuid"), before);
    let mut client = Client::connect(&uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * 4096, 4096) == pattern(n), "block {n}"));
    drop(client);
    daemon.stop();
}
