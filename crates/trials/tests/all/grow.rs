//! A backing file grows under a mounted file system: the volume, its block device and the file system follow while a load compares all it reads, and it
//! stays so when the daemon is killed.

use std::time::{Duration, Instant};
use trials::command;
use trials::needs::{Need, met};
use trials::place::{LONG, Place};

const MIB: u64 = 1 << 20;

#[test]
fn ext4_on_a_volume_that_grows() {
    let needs = [Need::Root, Need::LoopExport, Need::Program("mkfs.ext4"), Need::Program("resize2fs"), Need::Program("fio")];
    if !met("ext4_on_a_volume_that_grows", &needs) {
        return;
    }
    let mut place = Place::new("grow");
    place.start();
    place.pool(128, 16);
    let options = ["--export", "loop", "--export", "nbd", "--write-cache-depth", "1s"];
    let (volume, exports) = place.volume(256, "write-back", &options);
    let (device, backing) = (exports.loop_device.clone(), place.path("backing.img"));
    place.must_tool(&["mkfs.ext4", "-q", &device], LONG);
    let at = place.mount(&device, "noatime");
    let load: Vec<String> = [
        "fio",
        "--name=files",
        "--rw=randrw",
        "--bs=4k",
        "--size=16m",
        "--numjobs=2",
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=8",
        "--fsync=64",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--time_based",
        "--runtime=15",
    ]
    .map(String::from)
    .into_iter()
    .chain([format!("--directory={}", at.display())])
    .collect();
    let asked_for = |place: &Place, mib: u64| {
        let size = place.must_tool(&["blockdev", "--getsize64", &device], LONG);
        assert_eq!(size.trim(), (mib * MIB).to_string(), "the device of {volume}");
    };
    let mut grows_online = true;
    let ended = std::thread::scope(|scope| {
        let load = scope.spawn(move || command::run(&mut command::words(&load), LONG));
        // The second time within a block of the cache.
        for bytes in [320 * MIB, 400 * MIB + 1536] {
            std::thread::sleep(Duration::from_secs(2));
            let file = std::fs::File::options().write(true).open(&backing).expect("it is there");
            file.set_len(bytes).expect("it grows");
            until(|| place.must(&["volume", "show", &volume]).contains("has grown"));
            place.must(&["volume", "grow", &volume]);
            let size = place.must_tool(&["blockdev", "--getsize64", &device], LONG);
            assert_eq!(size.trim(), bytes.to_string(), "the device of {volume}");
            assert!(!place.must(&["volume", "show", &volume]).contains("has grown"));
            grows_online &= grow_mounted(&place, &device);
            assert_eq!(trials::nbd::Client::connect(&exports.nbd_uri).expect("it is served").size_bytes, bytes, "who connects now");
        }
        load.join().expect("no panic")
    });
    assert!(ended.good(), "{ended:#?}");
    let mut at = at;
    if !grows_online {
        place.unmount(&at);
        place.must_tool(&["e2fsck", "-fp", &device], LONG);
        place.must_tool(&["resize2fs", &device], LONG);
        at = place.mount(&device, "noatime");
    }
    // What is new is written to, and the daemon killed.
    let filled = format!("{}/filled", at.display());
    place.must_tool(&["dd", "if=/dev/urandom", &format!("of={filled}"), "bs=1M", "count=200", "conv=fsync"], LONG);
    let sum = place.must_tool(&["sha256sum", &filled], LONG);
    place.kill();
    let file = std::fs::File::options().write(true).open(&backing).expect("it is there");
    file.set_len(512 * MIB).expect("it grows while nobody serves it");
    place.start();
    assert_eq!(place.exports(&volume).loop_device, device, "the same device");
    asked_for(&place, 512);
    grow_mounted(&place, &device);
    place.must_tool(&["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"], LONG);
    assert_eq!(place.must_tool(&["sha256sum", &filled], LONG), sum);
    place.unmount(&at);
    place.fsck(&device);
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);

    // It never shrinks.
    file.set_len(256 * MIB).expect("it shrinks");
    until(|| place.must(&["volume", "show", &volume]).contains("shrank from 512 MiB to 256 MiB"));
    let refused = command::run(&mut place.hearth(&["volume", "grow", &volume]), LONG);
    assert!(!refused.good() && refused.stderr.contains("does not shrink"), "{refused:#?}");
    asked_for(&place, 512);
    file.set_len(512 * MIB).expect("it grows back");
    place.stop();
}

/// Has the mounted file system take all of its device, where the kernel lets us (CAP_SYS_RESOURCE). Whether it does.
fn grow_mounted(place: &Place, device: &str) -> bool {
    let ended = place.tool(&["resize2fs", device], LONG);
    let may = !ended.stderr.contains("Permission denied to resize");
    if !may {
        eprintln!("not online: this process may not resize a mounted file system");
    }
    assert!(ended.good() || !may, "{ended:#?}");
    may
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "it does not come about");
        std::thread::sleep(Duration::from_millis(100));
    }
}
