//! A real device under the tap: every request is seen exactly once, with place, kind and thread,
//! and none of other devices. On loop devices of its own; skipped with a message where the machine
//! or the user may not have them, or may not watch.

mod common;

use blocktap::{Comm, Event, Op, Refused, Tap, Watched, Way, Ways};
use common::{LoopDevice, Made, Player, read_all, tap, tid};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const RING_BYTES: u32 = 4 << 20;

fn made_by(events: &[Event], tid: u32) -> Vec<Made> {
    events.iter().filter(|event| event.tid == tid).map(Made::from).collect()
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Two threads on the device that is watched, one on another, read while they run.
fn every_request_is_seen(way: Way) {
    let Some(device) = LoopDevice::make(16 * MIB) else { return };
    let Some(other) = LoopDevice::make(16 * MIB) else { return };
    let Some(mut tap) = tap(device.watched(), way, RING_BYTES) else { return };
    let began_ns = now_ns();
    let play = |path: PathBuf, seed| {
        move || {
            let mut player = Player::new(&path, seed);
            player.play(1000, 16 * MIB / 4096);
            (tid(), player.made)
        }
    };
    let players = [(&device, 1), (&device, 2), (&other, 3)].map(|(device, seed)| {
        std::thread::Builder::new().name(format!("player {seed}")).spawn(play(device.path.clone(), seed)).expect("a thread")
    });
    let mut events = Vec::new();
    let mut lost = 0;
    while players.iter().any(|player| !player.is_finished()) {
        lost += tap.read(&mut events, Duration::from_millis(20)).expect("it reads").lost;
    }
    lost += read_all(&mut tap, &mut events);
    assert_eq!(lost, 0);
    let [first, second, of_other] = players.map(|player| player.join().expect("it played"));
    for (number, (tid, made)) in [(1, &first), (2, &second)] {
        assert!(made.len() > 900, "{} requests", made.len());
        assert_eq!(made_by(&events, *tid), *made, "by thread {tid}");
        let ours = events.iter().filter(|event| event.tid == *tid);
        for event in ours.clone() {
            assert_eq!(event.comm, Comm::of(format!("player {number}").as_bytes()));
            let pid = (way == Way::Bpf).then(std::process::id);
            assert_eq!(event.pid, pid);
            // Microseconds of the same clock; which has not gone far meanwhile.
            assert!((began_ns / 1000 * 1000..now_ns() + 1_000_000_000).contains(&event.time_ns), "{event:?}");
        }
        assert!(ours.clone().zip(ours.skip(1)).all(|(one, next)| one.time_ns <= next.time_ns));
    }
    assert!(!of_other.1.is_empty());
    assert_eq!(made_by(&events, of_other.0), [], "of the other device");
}

#[test]
fn every_request_is_seen_by_bpf() {
    every_request_is_seen(Way::Bpf);
}

#[test]
fn every_request_is_seen_by_tracefs() {
    every_request_is_seen(Way::Tracefs);
}

fn a_partition_is_told_from_its_disk(way: Way) {
    let Some(device) = LoopDevice::make(16 * MIB) else { return };
    let Some(first) = device.partition(1, 2048, 4096) else { return };
    let Some(second) = device.partition(2, 8192, 8192) else { return };
    let Some(mut of_first) = tap(common::watched(&first.path), way, RING_BYTES) else { return };
    let Some(mut of_disk) = tap(device.watched(), way, RING_BYTES) else { return };
    let mut in_first = Player::new(&first.path, 7);
    // Its first and its last block, and both sides of them by way of the disk.
    in_first.write(0, 4096);
    in_first.read(4088, 4096);
    let mut in_second = Player::new(&second.path, 8);
    in_second.write(0, 4096);
    in_second.read(800, 4096);
    let mut in_disk = Player::new(&device.path, 9);
    in_disk.read(2040, 4096);
    in_disk.read(2048, 4096);
    in_disk.read(6136, 4096);
    in_disk.read(6144, 4096);

    let shifted = |made: &Made, by: i64| Made { sector: made.sector.wrapping_add_signed(by), ..*made };
    let mut events = Vec::new();
    assert_eq!(read_all(&mut of_first, &mut events), 0);
    let mut expected = in_first.made.clone();
    expected.extend(in_disk.made[1..3].iter().map(|made| shifted(made, -2048)));
    assert_eq!(made_by(&events, tid()), expected);

    events.clear();
    assert_eq!(read_all(&mut of_disk, &mut events), 0);
    let mut expected: Vec<Made> = in_first.made.iter().map(|made| shifted(made, 2048)).collect();
    expected.extend(in_second.made.iter().map(|made| shifted(made, 8192)));
    expected.extend(&in_disk.made);
    assert_eq!(made_by(&events, tid()), expected);
}

#[test]
fn a_partition_is_told_from_its_disk_by_bpf() {
    a_partition_is_told_from_its_disk(Way::Bpf);
}

#[test]
fn a_partition_is_told_from_its_disk_by_tracefs() {
    a_partition_is_told_from_its_disk(Way::Tracefs);
}

/// A discard comes from another process, whose only thread has its number.
fn a_discard_of_another_process(way: Way) {
    let Some(device) = LoopDevice::make(16 * MIB) else { return };
    let Some(mut tap) = tap(device.watched(), way, RING_BYTES) else { return };
    let mut command = Command::new("blkdiscard");
    let Ok(mut child) = command.args(["--offset", "1048576", "--length", "65536"]).arg(&device.path).spawn() else {
        println!("skipped: blkdiscard cannot be run");
        return;
    };
    let pid = child.id();
    if !child.wait().expect("it ends").success() {
        println!("skipped: {} takes no discards", device.path.display());
        return;
    }
    let mut events = Vec::new();
    assert_eq!(read_all(&mut tap, &mut events), 0);
    let expected = Made { sector: 2048, bytes: 65536, op: Op::Discard, tid: pid };
    let discards: Vec<&Event> = events.iter().filter(|event| event.op == Op::Discard).collect();
    assert_eq!(discards.iter().map(|event| Made::from(*event)).collect::<Vec<_>>(), [expected]);
    assert_eq!(discards[0].comm.as_bytes(), b"blkdiscard");
}

#[test]
fn a_discard_of_another_process_by_bpf() {
    a_discard_of_another_process(Way::Bpf);
}

#[test]
fn a_discard_of_another_process_by_tracefs() {
    a_discard_of_another_process(Way::Tracefs);
}

/// A program chooses its name such that text about it falls apart. It costs the name, no request.
fn a_hostile_name_hides_nothing(way: Way, known_as: &[u8]) {
    let Some(device) = LoopDevice::make(MIB) else { return };
    let Some(mut tap) = tap(device.watched(), way, RING_BYTES) else { return };
    let path = device.path.clone();
    let played = std::thread::spawn(move || {
        rustix::thread::set_name(c"x] \n8,0 [R 1 + 1").expect("any name is taken");
        let mut player = Player::new(&path, 5);
        for _ in 0..100 {
            player.read(8, 4096);
        }
        (tid(), player.made)
    });
    let (tid, made) = played.join().expect("it played");
    let mut events = Vec::new();
    let mut lost = 0;
    for _ in 0..5 {
        lost += tap.read(&mut events, Duration::from_millis(30)).expect("it reads").lost;
    }
    assert_eq!(lost, 0);
    assert_eq!(made_by(&events, tid), made);
    assert!(events.iter().filter(|event| event.tid == tid).all(|event| event.comm.as_bytes() == known_as));
}

#[test]
fn a_hostile_name_hides_nothing_by_bpf() {
    a_hostile_name_hides_nothing(Way::Bpf, b"x] \n8,0 [R 1 + ");
}

#[test]
fn a_hostile_name_hides_nothing_by_tracefs() {
    a_hostile_name_hides_nothing(Way::Tracefs, b"x");
}

#[test]
fn bpf_is_tried_first() {
    let Some(device) = LoopDevice::make(MIB) else { return };
    let Some(tap) = tap(device.watched(), Way::Bpf, RING_BYTES) else { return };
    drop(tap);
    assert_eq!(Tap::open(device.watched(), Ways::Auto).expect("as before").way(), Way::Bpf);
}

/// Who does not read in time is told how much is missing, and goes on.
fn what_found_no_room_is_counted(way: Way, ring_bytes: u32, requests: u32) {
    let Some(device) = LoopDevice::make(MIB) else { return };
    let Some(mut tap) = tap(device.watched(), way, ring_bytes) else { return };
    let mut player = Player::new(&device.path, 0);
    for _ in 0..requests {
        player.read(0, 4096);
    }
    let mut events = Vec::new();
    let lost = read_all(&mut tap, &mut events);
    assert!(lost > 0 && !events.is_empty(), "{lost} lost, {} seen", events.len());
    assert_eq!(lost + events.len() as u64, u64::from(requests));
    player.read(8, 4096);
    events.clear();
    assert_eq!(read_all(&mut tap, &mut events), 0);
    assert_eq!(made_by(&events, tid()), player.made[requests as usize..]);
}

#[test]
fn what_found_no_room_is_counted_by_bpf() {
    what_found_no_room_is_counted(Way::Bpf, 4096, 500);
}

#[test]
fn what_found_no_room_is_counted_by_tracefs() {
    // Each processor has 256 KiB at least, of some 64 bytes an event.
    what_found_no_room_is_counted(Way::Tracefs, 4096, 10_000);
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    let of_thread = std::thread::spawn(|| {
        let none = rustix::thread::CapabilitySets {
            effective: rustix::thread::CapabilitySet::empty(),
            permitted: rustix::thread::CapabilitySet::empty(),
            inheritable: rustix::thread::CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).expect("rights can be given up");
        let number = a_device();
        let watched = Watched::disk(number.0, number.1);
        let by_bpf = Tap::open(watched, Ways::Only(Way::Bpf)).err().expect("refused");
        // By tracefs it depends on the mount's owner and mode.
        (by_bpf, Tap::open(watched, Ways::Auto).map(|tap| tap.way()))
    });
    let (by_bpf, auto) = of_thread.join().expect("it ran");
    assert!(matches!(&by_bpf, Refused::NoRights { way: Way::Bpf, missing } if missing == "CAP_BPF and CAP_PERFMON"), "{by_bpf}");
    match auto {
        Ok(way) => assert_eq!(way, Way::Tracefs),
        Err(refused) => {
            println!("{refused}");
            assert!(matches!(refused, Refused::Neither { .. }));
        }
    }
}

/// Any disk of this machine; nothing is done to it.
fn a_device() -> (u32, u32) {
    let names = std::fs::read_dir("/sys/dev/block").expect("sysfs is mounted");
    let number = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (major, minor) = name.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    names.flatten().find_map(number).expect("a block device")
}

#[test]
fn a_device_that_is_not_there_is_unknown() {
    let refused = Tap::open(Watched::disk(7, (1 << 20) - 1), Ways::Auto).err().expect("refused");
    assert_eq!(refused.to_string(), "the kernel has no block device 7:1048575; see `lsblk` for those there are");
    assert!(matches!(Watched::find(4095, 5), Err(Refused::DeviceUnknown { major: 4095, minor: 5 })));
}
