//! A file system on a block device outlives the daemon: killed under load, again and again, the kernel sees no I/O error, the file system is
//! clean, and every file is as it was written.

use serde_json::Value;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trials::needs::{Need, met};
use trials::place::{LONG, Place};
use trials::{command, lab};

/// How often the daemon is killed. `TRIAL_KILLS=200` is the long run.
fn kills() -> u32 {
    std::env::var("TRIAL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The programs that it takes.
const PROGRAMS: [Need; 3] = [Need::Program("mkfs.ext4"), Need::Program("e2fsck"), Need::Program("fio")];

#[test]
fn ext4_under_kills() {
    if met("ext4_under_kills", &[&[Need::Root, Need::LoopExport], &PROGRAMS[..]].concat()) {
        under_kills("loop");
    }
}

#[test]
fn ext4_under_kills_over_ublk() {
    const NAME: &str = "ext4_under_kills_over_ublk";
    if !met(NAME, &[&[Need::Root, Need::UblkOrLab], &PROGRAMS[..]].concat()) {
        return;
    }
    if Path::new("/dev/ublk-control").exists() {
        under_kills("block");
    } else {
        lab::pass_in_guest(&format!("outlives::{NAME}"), &["ublk_drv", "loop", "fuse"], &[]);
    }
}

fn under_kills(export: &str) {
    let mut place = Place::new("kills");
    place.start();
    // Less SSD than data: the log wraps and evicts, and there is something to destage.
    place.pool(128, 16);
    let (volume, exports) = place.volume(384, "write-back", &["--export", export, "--write-cache-depth", "1s"]);
    let device = exports.loop_device.clone();
    place.must_tool(&["mkfs.ext4", "-q", &device], LONG);
    let at = place.mount(&device, "noatime");
    let before = kernel_log();
    if export == "block" {
        assert!(device.starts_with("/dev/ublkb"), "{device}: ublk works here, so it is chosen");
    }

    let seconds = u64::from(kills()) * 3 / 2 + 5;
    let fio: Vec<String> = [
        "fio",
        "--name=files",
        // Reads back every thousand blocks what it wrote, at the end all.
        "--rw=randwrite",
        "--bs=4k",
        "--size=24m",
        "--numjobs=4",
        "--nrfiles=4",
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=8",
        "--fsync=64",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=1024",
        "--verify_state_save=0",
        "--time_based",
        "--group_reporting",
        "--output-format=json",
    ]
    .map(String::from)
    .into_iter()
    .chain([format!("--directory={}", at.display()), format!("--runtime={seconds}")])
    .collect();
    let limit = Duration::from_secs(seconds) + LONG;
    let begun = Instant::now();
    let done = AtomicBool::new(false);
    let (reports, mut pauses) = std::thread::scope(|scope| {
        // Where a restart takes long, the load begins again until all kills are done.
        let load = scope.spawn(|| {
            let mut reports = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let report = command::run(&mut command::words(&fio), limit);
                assert!(report.good(), "{report:#?}");
                reports.push(report);
            }
            reports
        });
        let mut pauses = Vec::new();
        for kill in 0..kills() {
            // Anywhere between two and one and a half seconds apart.
            std::thread::sleep(Duration::from_millis(500 + u64::from(kill) * 7919 % 1000));
            assert!(!load.is_finished(), "fio has failed");
            let killed = Instant::now();
            place.kill();
            place.start();
            pauses.push(killed.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        (load.join().expect("no panic"), pauses)
    });
    let (mut requests, mut longest_ms) = (0, [0, 0]);
    for report in &reports {
        let json: Value = serde_json::from_str(&report.stdout[report.stdout.find('{').unwrap_or(0)..]).expect("fio reports in JSON");
        let job = &json["jobs"][0];
        assert_eq!(job["error"], 0, "{job:#}");
        for (longest_ms, way) in longest_ms.iter_mut().zip(["read", "write"]) {
            requests += job[way]["total_ios"].as_u64().unwrap_or(0);
            *longest_ms = (*longest_ms).max(job[way]["lat_ns"]["max"].as_u64().unwrap_or(0) / 1_000_000);
        }
    }
    assert!(longest_ms[0] > 0, "fio has read back nothing");
    assert!(requests > 1000, "{requests} requests are too few to tell");
    assert_eq!(place.exports(&volume).loop_device, device, "the same device");

    // Past the page cache, which may hold what the device never got.
    place.must_tool(&["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"], LONG);
    place.unmount(&at);
    place.fsck(&device);
    let number = device.trim_start_matches("/dev/");
    let errors: Vec<String> = kernel_log().split_off(before.len().min(kernel_log().len()));
    let errors: Vec<&String> = errors.iter().filter(|line| line.contains(number) && line.to_lowercase().contains("error")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    pauses.sort();
    eprintln!(
        "{export}: {} kills in {} s, {requests} requests, no error; from kill to ready {} ms at the median, {} ms at most; longest read {} ms, write {} ms",
        kills(),
        begun.elapsed().as_secs(),
        pauses[pauses.len() / 2].as_millis(),
        pauses.last().map_or(0, Duration::as_millis),
        longest_ms[0],
        longest_ms[1],
    );
    place.stop();
}

/// What the kernel has said so far, by lines; empty where that may not be read.
fn kernel_log() -> Vec<String> {
    let mut lines = Vec::new();
    let open = std::fs::File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open("/dev/kmsg");
    let Ok(mut log) = open else { return lines };
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(bytes) if bytes > 0 => lines.push(String::from_utf8_lossy(&record[..bytes]).into_owned()),
            // It was overwritten before it was read: the next one is there.
            Err(error) if error.raw_os_error() == Some(32) => {}
            _ => return lines,
        }
    }
}
