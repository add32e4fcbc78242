//! The disks of the machine that runs the test, and jobs with the real binary: a check that finds a flipped bit, and one that is stopped and resumed.

use crate::support::Place;
use crate::support::nbd::Client;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;

fn pattern(seed: u64) -> Vec<u8> {
    (0..4096u64).map(|at| (at % 251) as u8 ^ (seed % 256) as u8 ^ (seed / 256 * at) as u8).collect()
}

/// What the API answers to a look at a path: status line and body.
fn examine(place: &Place, path: &str) -> (String, serde_json::Value) {
    let body = serde_json::json!({ "path": path }).to_string();
    let mut stream = UnixStream::connect(place.path("run/h.sock")).expect("it listens");
    let head = "POST /api/v1/devices/examine HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).expect("it takes it");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.lines().next().unwrap_or_default().to_string(), serde_json::from_str(body).expect("JSON"))
}

/// The disk, or the partition, that the root file system is on, if it is on one.
fn root_device() -> Option<String> {
    let number = std::fs::metadata("/").expect("it is there").dev();
    let directory = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let resolved = std::fs::canonicalize(directory).ok()?;
    Some(format!("/dev/{}", resolved.file_name()?.to_str()?))
}

#[test]
fn the_disk_we_run_on_is_in_use() {
    let place = Place::new();
    let _daemon = place.daemon();
    let listed = place.json(&["devices"]);
    let devices = listed.as_array().expect("a list");
    for device in devices {
        let size = device["size_bytes"].as_u64().expect("a size");
        assert!(size > 0 && !device["path"].as_str().expect("a path").contains("ram"), "{device}");
    }
    let Some(root) = root_device() else {
        eprintln!("skipped: the root file system is on no block device");
        return;
    };
    let device = devices.iter().find(|device| device["path"] == root.as_str()).unwrap_or_else(|| panic!("{root} is not in {listed}"));
    assert_eq!(device["state"], "in_use", "{device}");
    assert!(device["told"].as_str().is_some_and(|told| told.contains("mounted at /")), "{device}");
    assert_eq!((&device["can_be_ssd"], &device["can_be_backing"]), (&false.into(), &false.into()));
    let table = place.must(&["devices"]);
    let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{root} "))).expect("a line");
    assert!(line.contains("in use"), "{line}");
    let (status, same) = examine(&place, &root);
    assert_eq!((status.as_str(), &same["told"]), ("HTTP/1.1 200 OK", &device["told"]));
}

#[test]
fn files_are_judged_as_they_are_and_as_they_will_be() {
    let place = Place::new();
    let daemon = place.daemon();
    let told = |path: &str| examine(&place, path).1;
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    let disk = place.file("disk.img", 128 << 20);
    let free = told(&disk);
    assert_eq!((&free["kind"], &free["state"], &free["can_be_backing"]), (&"file".into(), &"free".into(), &true.into()), "{free}");
    place.must(&["volume", "add", "v", "--backing", &format!("model:7k2:{disk}"), "--pool", "p", "--export", "nbd"]);
    for (path, state, part) in [(&place.path("ssd.img"), "pool", "the SSD of pool p"), (&disk, "backing", "the backing device of volume v")]
    {
        let view = told(path);
        assert_eq!((&view["state"], &view["told"], &view["can_be_ssd"]), (&state.into(), &part.into(), &false.into()), "{view}");
    }
    let new = told(&place.path("new.img"));
    assert_eq!((&new["can_be_ssd"], &new["can_be_backing"]), (&true.into(), &false.into()), "{new}");
    let nowhere = told(&place.path("none/new.img"));
    assert!(
        nowhere["can_be_ssd"] == false && nowhere["told"].as_str().is_some_and(|told| told.contains("there is no directory")),
        "{nowhere}"
    );
    let directory = told(place.directory.path().to_str().expect("a path"));
    assert!(directory["can_be_ssd"] == false && directory["told"].as_str().is_some_and(|told| told.contains("directory")), "{directory}");
    for (path, status) in [("/dev/none", "404"), ("disk.img", "400"), ("model:none:/x", "400")] {
        let (line, problem) = examine(&place, path);
        assert!(line.contains(status), "{path}: {line} {problem}");
    }
    daemon.stop();
}

/// Flips a bit in the page of the SSD that holds these bytes.
fn flip(place: &Place, bytes: &[u8]) {
    let ssd = std::fs::File::options().read(true).write(true).open(place.path("ssd.img")).expect("it is there");
    let mut page = vec![0; 4096];
    let pages = ssd.metadata().expect("it is there").len() / 4096;
    let at = (0..pages).map(|page| page * 4096).find(|at| {
        ssd.read_exact_at(&mut page, *at).expect("it can be read");
        page == bytes
    });
    ssd.write_all_at(&[bytes[100] ^ 4], at.expect("the block is on the SSD") + 100)
        .and_then(|()| ssd.sync_all())
        .expect("it can be written");
}

#[test]
fn a_check_finds_what_is_bad_while_the_volume_is_in_use() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 64 << 20);
    let options = ["--mode", "write-back", "--write-cache-depth", "24h", "--export", "nbd", "--destage-rate", "1MiB"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat()).trim().to_string();
    let mut client = Client::connect(&uri);
    // Some seconds' worth of destage.
    (0..1500u64).for_each(|n| client.write(n * 4096, &pattern(n)).expect("a write"));
    client.flush();
    let checked = place.must(&["pool", "check", "p"]);
    assert!(checked.starts_with("check of p done: 5.86 MiB in "), "{checked}");

    // The last block written is the last to go home.
    flip(&place, &pattern(1499));
    place.must_fail(&["pool", "check", "p"], 1, "1 dirty block (4 KiB) on the SSD cannot be read as written: v at byte 6139904");
    let jobs = place.json(&["job", "list"]);
    let failed = jobs.as_array().and_then(|jobs| jobs.last()).expect("two jobs");
    assert_eq!((&failed["kind"], &failed["state"], &failed["volume"]), (&"check".into(), &"failed".into(), &"p".into()));
    let id = failed["id"].to_string();
    assert!(place.must(&["job", "show", &id]).contains(&format!("go on:      hearth job resume {id}")));
    place.must_fail(&["job", "resume", &id], 1, "1 dirty block");
    place.must_fail(&["job", "resume", &id], 1, "was resumed as job");
    client.write(1499 * 4096, &pattern(2999)).expect("a write");
    client.flush();
    place.must(&["pool", "check", "p"]);

    place.must(&["volume", "set", "v", "--destage-rate", "off"]);
    place.must(&["volume", "destage", "v"]);
    let before = place.json(&["stats", "v"])["checksum_errors"].as_u64().expect("a count");
    flip(&place, &pattern(7));
    place.must(&["pool", "check", "p"]);
    assert_eq!(place.json(&["stats", "v"])["checksum_errors"].as_u64(), Some(before + 1), "the clean block was met, and dropped");
    (0..1499u64).for_each(|n| assert!(client.read(n * 4096, 4096) == pattern(n), "block {n}"));
    place.must_fail(&["pool", "check", "nothing"], 1, "there is no pool \"nothing\"");
    place.must_fail(&["pool", "check", "ssd.img"], 1, "write ./ssd.img for the file");
    place.must_fail(&["job", "show", "99"], 1, "there is no job \"99\"");
    daemon.stop();
    // At rest the same by its path, without a daemon.
    assert!(place.must(&["pool", "check", "./ssd.img"]).contains("no problems"));
}

#[test]
fn a_check_is_stopped_by_ctrl_c_and_goes_on() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "512MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 256 << 20);
    let options = ["--sequential-cutoff", "off", "--mode", "write-back", "--write-cache-depth", "24h", "--export", "nbd"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat()).trim().to_string();
    let mut client = Client::connect(&uri);
    let large: Vec<u8> = (0..16).flat_map(pattern).collect();
    (0..3000u64).for_each(|n| client.write(n * 65536, &large).expect("a write"));
    client.flush();
    let check = place.command(&["pool", "check", "p"]).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    while place.json(&["job", "list"]).as_array().is_none_or(|jobs| jobs.iter().all(|job| job["done_bytes"] == 0)) {
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&check), Signal::INT).expect("it runs");
    let output = check.wait_with_output().expect("it is our child");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let first = place.json(&["job", "list"])[0].clone();
    assert_eq!(first["state"], "cancelled");
    let resumed = place.json(&["job", "resume", &first["id"].to_string()]);
    assert_eq!(resumed["state"], "done", "{resumed}");
    assert!(resumed["done_bytes"].as_u64() > first["done_bytes"].as_u64(), "{first} {resumed}");
    daemon.stop();
}
