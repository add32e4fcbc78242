//! The mode of a volume goes through all four while fio writes and verifies; in the end the backing file is what is read through hearth.

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;
use trials::command;
use trials::needs::{Need, met};
use trials::place::{LONG, Place};
use trials::registers::Port;

const VOLUME_MIB: u64 = 128;
const MODES: [&str; 4] = ["write-through", "write-around", "write-back", "pass-through"];

#[test]
fn mode_change_under_load_over_loop() {
    if met("mode_change_under_load_over_loop", &[Need::Root, Need::LoopExport, Need::Program("fio")]) {
        under_load("loop", |exports| vec!["--ioengine=libaio".into(), "--direct=1".into(), format!("--filename={}", exports.loop_device)]);
    }
}

#[test]
fn mode_change_under_load_over_nbd() {
    if met("mode_change_under_load_over_nbd", &[Need::Program("fio")]) {
        under_load("nbd", |exports| vec!["--ioengine=nbd".into(), format!("--uri={}", exports.nbd_uri)]);
    }
}

fn under_load(export: &str, reach: impl Fn(&trials::place::Exports) -> Vec<String>) {
    let mut place = Place::new("modes");
    place.start();
    place.pool(64, 8);
    let (volume, exports) = place.volume(VOLUME_MIB, MODES[0], &["--export", export, "--write-cache-depth", "1s"]);
    let mut job = reach(&exports);
    // Every block is written once; fio verifies what it wrote soon after, and all of it at the end.
    let common = ["fio", "--name=modes", "--thread", "--rw=randwrite", "--bs=8k", "--iodepth=16", "--fsync=64", "--verify=crc32c"];
    job.splice(0..0, common.map(String::from));
    job.extend(["--verify_interval=512", "--verify_fatal=1", "--verify_backlog=512", "--rate_iops=1200,1200"].map(String::from));
    job.push(format!("--size={VOLUME_MIB}m"));
    let mut fio = command::words(&job);
    fio.current_dir(place.path("."));
    let mut changes = 0;
    std::thread::scope(|scope| {
        let running = scope.spawn(move || command::run(&mut fio, LONG));
        for mode in MODES.iter().cycle().take_while(|_| !running.is_finished()) {
            place.must(&["volume", "set", &volume, "--mode", mode]);
            changes += 1;
            std::thread::sleep(Duration::from_millis(300));
        }
        let ended = running.join().expect("fio was started");
        assert!(ended.good(), "{export}: {ended:#?}");
    });
    eprintln!("{export}: {changes} changes of mode while fio wrote and verified {VOLUME_MIB} MiB");
    assert!(changes > 2 * MODES.len(), "{changes} changes are too few to tell");

    // Again at rest, then on the backing file.
    let mut verify = job.clone();
    verify.retain(|word| !word.starts_with("--rate_iops") && !word.starts_with("--verify_backlog"));
    verify.push("--verify_only=1".into());
    place.must_tool(&verify, LONG);
    command::must(&mut place.hearth(&["volume", "destage", &volume]), LONG);
    assert_eq!(place.counter(&volume, "dirty_bytes"), 0);
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    let through = place.path("through.img");
    let exports = place.exports(&volume);
    let mut copy = File::create(&through).expect("there is room");
    if exports.nbd_uri.is_empty() {
        // Not through the page cache: fio wrote around it.
        let from = format!("if={}", exports.loop_device);
        place.must_tool(&["dd", &from, &format!("of={through}"), "bs=1M", "iflag=direct", "status=none"], LONG);
    } else {
        let mut client = trials::nbd::Client::connect(&exports.nbd_uri).expect("it listens");
        let mut chunk = vec![0; 1 << 20];
        for mib in 0..VOLUME_MIB {
            client.read(mib << 20, &mut chunk).and_then(|()| copy.write_all(&chunk)).expect("it can be read and there is room");
        }
    }
    place.stop();
    assert_same_bytes(&through, &place.path("backing.img"));
}

fn assert_same_bytes(one: &str, other: &str) {
    let [mut one, mut other] = [one, other].map(|path| File::open(path).expect("it is there"));
    let mut chunks = [vec![0; 1 << 20], vec![0; 1 << 20]];
    for mib in 0..VOLUME_MIB {
        one.read_exact(&mut chunks[0]).and_then(|()| other.read_exact(&mut chunks[1])).expect("both have the volume's size");
        assert!(chunks[0] == chunks[1], "the backing file differs from the volume within MiB {mib}");
    }
    assert_eq!(one.read(&mut chunks[0]).expect("it can be read") + other.read(&mut chunks[1]).expect("it can be read"), 0);
}
