//! Disks beside a cache over ublk, in use: one is made, grown, shrunk and removed, and the cache's room moves, beside a cached volume and another
//! disk whose users compare all they read; and the daemon is killed in between. They see pauses and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use trials::command;
use trials::direct::Direct;
use trials::lab;
use trials::needs::{Need, met};
use trials::place::{LONG, Place};
use trials::registers::Port;

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: usize = 4096;
/// A user's part of its device, in blocks.
const BLOCKS: u64 = 1024;

#[test]
fn disks_over_ublk_change_beside_others_in_use() {
    const NAME: &str = "disks_over_ublk_change_beside_others_in_use";
    if !met(NAME, &[Need::Root, Need::UblkOrLab, Need::Program("blockdev")]) {
        return;
    }
    if std::path::Path::new("/dev/ublk-control").exists() {
        in_use();
    } else {
        lab::pass_in_guest(
            &format!("disks::{NAME}"),
            &["ublk_drv", "loop", "fuse", "target_core_mod", "target_core_iblock", "iscsi_target_mod"],
            &[],
        );
    }
}

/// Writes blocks to a block device and compares others, until it is ended.
struct User {
    thread: JoinHandle<std::io::Result<u64>>,
    stop: Arc<AtomicBool>,
}

fn block(number: u64, round: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&number.to_le_bytes());
    block[BLOCK_BYTES - 8..].copy_from_slice(&round.to_le_bytes());
    block
}

impl User {
    fn start(device: &str) -> User {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, mut port) = (stop.clone(), Direct::open(device).expect("it opens"));
        let thread = std::thread::spawn(move || {
            let mut rounds = vec![0; BLOCKS as usize];
            let check = |port: &mut Direct, number: u64, rounds: &[u64]| {
                let mut read = [0; BLOCK_BYTES];
                port.read(number * BLOCK_BYTES as u64, &mut read)?;
                let round = rounds[number as usize];
                assert!(round == 0 || read == block(number, round), "block {number} is not of round {round}");
                Ok::<(), std::io::Error>(())
            };
            let mut round = 0;
            while !stopped.load(Ordering::Relaxed) {
                round += 1;
                let number = round * 2_654_435_761 % BLOCKS;
                port.write(number * BLOCK_BYTES as u64, &block(number, round), false)?;
                rounds[number as usize] = round;
                if round % 32 == 0 {
                    port.flush()?;
                }
                check(&mut port, round * 40_503 % BLOCKS, &rounds)?;
            }
            (0..BLOCKS).try_for_each(|number| check(&mut port, number, &rounds))?;
            Ok(round)
        });
        User { thread, stop }
    }

    fn end(self, who: &str) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let rounds = self.thread.join().expect("what it reads is right").unwrap_or_else(|error| panic!("{who} has met {error}"));
        assert!(rounds > 50, "{who} has come to {rounds} rounds");
        rounds
    }
}

fn shown(place: &Place, name: &str) -> serde_json::Value {
    let shown = serde_json::from_str(&place.must(&["disk", "show", name, "--json"])).expect("--json gives JSON");
    assert!(matches!(&shown, serde_json::Value::Object(disk) if disk["health"] == "running"), "{shown:#}");
    shown
}

/// Its block device, which is of ublk.
fn device(place: &Place, name: &str) -> String {
    let device = shown(place, name)["exports"]["block"].as_str().expect("it is offered").to_owned();
    assert!(device.starts_with("/dev/ublkb"), "{device}: ublk works here, so it is chosen");
    device
}

fn in_use() {
    let mut place = Place::new("disks");
    place.start();
    place.pool(192, 8);
    let (volume, exports) = place.volume(64, "write-back", &["--export", "block", "--write-cache-depth", "1s"]);
    let create = |place: &Place, name: &str, size: &str| {
        place.must(&["disk", "create", name, "--pool", "fast", "--size", size, "--export", "block"]);
        device(place, name)
    };
    let size =
        |place: &Place, device: &str| place.must_tool(&["blockdev", "--getsize64", device], LONG).trim().parse::<u64>().expect("a number");
    let resize = |place: &Place, name: &str, mib: u64| {
        place.must(&["disk", "resize", name, "--size", &format!("{mib}MiB"), "--lose-content"]);
        let device = device(place, name);
        assert_eq!(size(place, &device), mib * MIB, "{name}");
        device
    };
    let kept = create(&place, "kept", "16MiB");
    let users = [&exports.loop_device, &kept].map(|device| User::start(device));

    // The cache gives room, twice; what is written stays.
    let mut changed = create(&place, "changed", "24MiB");
    let written = block(7, 1);
    Direct::open(&changed).and_then(|mut port| port.write(3 * MIB, &written, false).and_then(|()| port.flush())).expect("it is written");
    let holds = |device: &str| {
        let mut read = [0; BLOCK_BYTES];
        Direct::open(device).and_then(|mut port| port.read(3 * MIB, &mut read)).expect("it is read");
        assert!(read == written, "what was written is there");
    };
    assert_eq!(resize(&place, "changed", 56), changed, "the same device");
    holds(&changed);
    // In use, it becomes larger and not smaller.
    for _ in 0..2 {
        // Whoever asks is told, also the second time.
        let told = place.must(&["disk", "resize", "kept", "--size", "20MiB"]);
        match size(&place, &kept) == 20 * MIB {
            true => assert!(told.contains("have it"), "{told}"),
            false => assert!(told.contains("keeps its size until it is created again"), "before Linux 6.16: {told}"),
        }
    }
    let smaller = command::run(&mut place.hearth(&["disk", "resize", "kept", "--size", "8MiB", "--lose-content"]), LONG);
    assert!(!smaller.good() && smaller.stderr.contains("in use"), "{smaller:#?}");
    changed = resize(&place, "changed", 8);
    holds(&changed);

    // Shared with other machines, over a kill.
    let target = place.must(&["share", "add", "changed", "--iscsi"]);
    let uuid = shown(&place, "changed")["uuid"].as_str().expect("a UUID").to_owned();
    assert!(target.starts_with(&format!("iqn.2003-01.org.linux-iscsi.hearth:{uuid}\n")), "{target}");
    let shared = command::run(&mut place.hearth(&["disk", "resize", "changed", "--size", "4MiB", "--lose-content"]), LONG);
    assert!(!shared.good() && shared.stderr.contains("hearth share remove changed --iscsi"), "{shared:#?}");
    place.kill();
    place.start();
    assert_eq!(shown(&place, "changed")["shares"][0]["device"], changed.as_str(), "it is shared again");
    place.must(&["share", "remove", "changed"]);
    assert_eq!((device(&place, "kept"), device(&place, "changed")), (kept.clone(), changed.clone()), "the same devices");
    holds(&changed);
    place.must(&["disk", "remove", "changed", "--lose-content"]);
    place.must(&["pool", "take-back", "fast"]);
    let rounds = users.into_iter().zip([&volume, &"kept".to_owned()]).map(|(user, name)| user.end(name)).collect::<Vec<_>>();
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    assert_eq!(place.exports(&volume).loop_device, exports.loop_device, "the same device");
    place.must(&["disk", "remove", "kept", "--lose-content"]);
    assert!(!std::path::Path::new(&kept).exists(), "its device is gone");
    eprintln!("the users of a volume and a disk have come to {rounds:?} rounds without an error");
    place.stop();
}
