//! SSDs beyond 64 GiB for each processor: made, filled in part, and back after a crash.

use crate::support::Place;
use crate::support::nbd::Client;
use std::process::Command;

const BLOCK_BYTES: u64 = 4096;

/// A loop device over a sparse file; detached when dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn over(file: &str) -> LoopDevice {
        let output = Command::new("losetup").args(["--find", "--show", file]).output().expect("losetup is there");
        assert!(output.status.success(), "{output:?}");
        LoopDevice(String::from_utf8(output.stdout).expect("a path").trim().to_string())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(detached.is_ok_and(|status| status.success()) || std::thread::panicking(), "{} stays", self.0);
    }
}

fn data(seed: u64) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at * seed % 241) as u8).collect()
}

#[test]
fn a_large_ssd_serves_on_any_number_of_processors_and_comes_back_after_a_crash() {
    let place = Place::new();
    // As a loop device, since a file is allocated.
    let ssd = LoopDevice::over(&place.file("large.img", 400 << 30));
    place.file("disk.img", 4 << 30);
    let daemon = place.daemon();
    place.must(&["pool", "create", "large", "--ssd", &ssd.0, "--ram", "8MiB", "--content", "off"]);
    let options = ["--mode", "write-back", "--admission", "always", "--export", "nbd", "--write-cache-depth", "24h"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", "disk.img", "--pool", "large"][..], &options].concat());
    let mut client = Client::connect(uri.trim());
    let offsets = || (0..500).map(|n: u64| ((n * 7) << 20) % (4 << 30) + n * BLOCK_BYTES);
    offsets().for_each(|offset| client.write(offset, &data(offset / BLOCK_BYTES)).expect("a write"));
    daemon.kill();
    let daemon = place.daemon();
    let pool = place.json(&["pool", "show", "large"]);
    assert_eq!((pool["health"].as_str(), pool["cached_bytes"].as_u64()), (Some("running"), Some(500 * BLOCK_BYTES)), "{pool}");
    let check = || {
        let mut client = Client::connect(uri.trim());
        offsets().for_each(|offset| assert!(client.read(offset, 4096) == data(offset / BLOCK_BYTES), "{offset}"));
    };
    check();
    daemon.stop();
    let daemon = place.daemon();
    check();
    daemon.stop();
}

#[test]
fn an_ssd_that_is_too_large_is_refused_before_anything_is_written() {
    let place = Place::new();
    // The largest file of ext4 is just below 16 TiB.
    let file = place.file("huge.img", (16 << 40) - 4096);
    let ssd = LoopDevice::over(&file);
    let daemon = place.daemon();
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("it is there");
    let memory_kib: u64 = meminfo.split_whitespace().nth(1).expect("MemTotal").parse().expect("a number");
    // With all that content can bring, the index takes 192 GiB.
    if memory_kib < 200 << 20 {
        place.must_fail(&["pool", "create", "huge", "--ssd", &ssd.0], 1, "give at most --size ");
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&file).expect("it is there"));
        assert_eq!(blocks, 0, "nothing is written");
    }
    assert!(!place.must(&["pool", "list"]).contains("huge"), "and no pool is left");
    daemon.stop();
}
