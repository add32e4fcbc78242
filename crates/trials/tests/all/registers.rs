//! Sectors as registers: several connections read and write few sectors while the mode changes, the log wraps and the processors are busy;
//! then, while the daemon is killed. Every register's history must be linearizable, and no sector and no 4 KiB block torn.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trials::direct::Direct;
use trials::lab;
use trials::nbd::Client;
use trials::needs::{Need, met};
use trials::place::{Exports, Place};
use trials::registers::{Clock, Dice, END_LBA, Port, Record, SECTOR_BYTES, Worker, judge, seed};
use trials::virtio;

const CONNECTIONS: u64 = 8;
const VOLUME_MIB: u64 = 128;
/// Gone through again and again: into and out of write-back on several ways.
const MODES: [&str; 7] = ["write-through", "write-back", "write-around", "pass-through", "write-back", "pass-through", "write-around"];

#[test]
fn register_history_over_nbd_while_modes_change() {
    while_modes_change("nbd", |exports| Client::connect(&exports.nbd_uri).expect("it listens"));
}

#[test]
fn register_history_over_loop_while_modes_change() {
    if met("register_history_over_loop_while_modes_change", &[Need::Root, Need::LoopExport]) {
        while_modes_change("loop", |exports| Direct::open(&exports.loop_device).expect("it is there"));
    }
}

#[test]
fn register_history_over_vhost_user_while_modes_change() {
    let disk = Mutex::new(None);
    while_modes_change("vhost-user", |exports| {
        let mut disk = disk.lock().expect("nobody panics with it");
        let disk = disk.get_or_insert_with(|| virtio::Disk::connect(&exports.vhost_user, CONNECTIONS as u16 + 1).expect("it listens"));
        disk.take_queue().expect("one for each client")
    });
}

fn while_modes_change<P: Port>(export: &str, open: impl Fn(&Exports) -> P + Sync) {
    let mut place = Place::new("registers");
    place.start();
    place.pool(64, 8);
    let (volume, exports) = place.volume(VOLUME_MIB, "write-back", &["--export", export, "--write-cache-depth", "1s"]);
    let (seed, clock, changes) = (seed(), Clock::default(), AtomicU32::new(0));
    let until = Instant::now() + Duration::from_secs(12);
    let record: Record = std::thread::scope(|scope| {
        let (open, exports) = (&open, &exports);
        let workers: Vec<_> = (1..=CONNECTIONS)
            .map(|number| {
                let mut worker = Worker::new(&clock, number, seed);
                scope.spawn(move || {
                    worker.work(&mut open(exports), until).expect("the daemon answers");
                    worker.record
                })
            })
            .collect();
        scope.spawn(move || wear(open(exports), seed, until));
        for _ in 0..2 * std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| while Instant::now() < until {});
        }
        for mode in MODES.iter().cycle().take_while(|_| Instant::now() < until) {
            place.must(&["volume", "set", &volume, "--mode", mode]);
            changes.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(150));
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("what it read was whole")).collect()
    });
    let operations = judge(&record, &[]).unwrap_or_else(|wrong| panic!("{export}, seed {seed:#x}: {wrong}"));
    let changes = changes.into_inner() as usize;
    let log_mib = place.counter(&volume, "ssd_written_bytes") >> 20;
    eprintln!(
        "{export}: {operations} operations on registers by {CONNECTIONS} clients, {changes} changes of mode, {log_mib} MiB of log: linearizable"
    );
    assert!(operations > 2000 && changes > MODES.len(), "{operations} operations and {changes} changes are too few to tell");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

#[test]
fn register_history_over_kills() {
    let mut place = Place::new("kills");
    place.start();
    // Large enough for several shards where there are several cores.
    place.pool(600, 8);
    let (volume, exports) = place.volume(VOLUME_MIB, "write-back", &["--export", "nbd", "--write-cache-depth", "1s"]);
    let (seed, clock, uri) = (seed(), Clock::default(), exports.nbd_uri.as_str());
    let (mut dice, mut crashes) = (Dice::new(seed), Vec::new());
    let mut workers: Vec<Worker> = (1..=CONNECTIONS).map(|number| Worker::new(&clock, number, seed)).collect();
    for mode in ["write-back", "write-through", "write-back", "write-around", "write-back"] {
        place.must(&["volume", "set", &volume, "--mode", mode]);
        let (killed, until) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(60));
        std::thread::scope(|scope| {
            for worker in &mut workers {
                let killed = &killed;
                scope.spawn(move || {
                    let ended = Client::connect(uri).and_then(|mut client| worker.work(&mut client, until));
                    assert!(ended.is_err() && killed.load(Ordering::SeqCst), "before the kill: {ended:?}");
                });
            }
            std::thread::sleep(Duration::from_millis(300 + dice.below(1500)));
            killed.store(true, Ordering::SeqCst);
            place.kill();
        });
        crashes.push(clock.now());
        place.start();
        assert_eq!(place.exports(&volume).nbd_uri, uri, "the export has another name after a restart");
        // Twice: what was read once must stay.
        for _ in 0..2 {
            workers[0].read_all(&mut Client::connect(uri).expect("it listens")).expect("the daemon answers");
        }
    }
    let record: Record = workers.into_iter().flat_map(|worker| worker.record).collect();
    let operations = judge(&record, &crashes).unwrap_or_else(|wrong| panic!("seed {seed:#x}: {wrong}"));
    eprintln!("{operations} operations on registers over {} kills: linearizable, nothing acknowledged was lost", crashes.len());
    assert!(operations > 2000, "{operations} operations are too few to tell");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

/// The daemon is killed again and again under a block device. Its clients see a pause: no error,
/// and nothing that was done half, twice, or not at all. So the history must be linearizable as if
/// nothing had happened.
#[test]
fn register_history_over_loop_across_kills() {
    if met("register_history_over_loop_across_kills", &[Need::Root, Need::LoopExport]) {
        across_kills("loop");
    }
}

/// The same over ublk, whose kernel hands requests over once more.
#[test]
fn register_history_over_ublk_across_kills() {
    const NAME: &str = "register_history_over_ublk_across_kills";
    if !met(NAME, &[Need::Root, Need::UblkOrLab]) {
        return;
    }
    if Path::new("/dev/ublk-control").exists() {
        across_kills("ublk");
    } else {
        lab::pass_in_guest(&format!("registers::{NAME}"), &["ublk_drv"], &[]);
    }
}

fn across_kills(export: &str) {
    let mut place = Place::new("outlive");
    place.start();
    place.pool(600, 8);
    let (volume, exports) = place.volume(VOLUME_MIB, "write-back", &["--export", export, "--write-cache-depth", "1s"]);
    let (seed, clock) = (seed(), Clock::default());
    let (mut dice, mut kills) = (Dice::new(seed), 0);
    let until = Instant::now() + Duration::from_secs(15);
    let record: Record = std::thread::scope(|scope| {
        let open = || Direct::open(&exports.loop_device).expect("it is there");
        let workers: Vec<_> = (1..=2 * CONNECTIONS)
            .map(|number| {
                let mut worker = Worker::new(&clock, number, seed);
                scope.spawn(move || {
                    worker.work(&mut open(), until).expect("no error is seen");
                    worker.record
                })
            })
            .collect();
        scope.spawn(move || wear(open(), seed, until));
        while Instant::now() + Duration::from_secs(2) < until {
            std::thread::sleep(Duration::from_millis(100 + dice.below(900)));
            place.kill();
            place.start();
            kills += 1;
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("what it read was whole")).collect()
    });
    let operations = judge(&record, &[]).unwrap_or_else(|wrong| panic!("seed {seed:#x}: {wrong}"));
    eprintln!("{export}: {operations} operations on registers over {kills} kills: linearizable, as if nothing had happened");
    // How many there are in that time is up to the machine.
    assert!(operations > 200 && kills > 1, "{operations} operations and {kills} kills are too few to tell");
    assert_eq!(place.exports(&volume).loop_device, exports.loop_device);
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

/// The same for a guest with a queue for each client: what was under way is run by the next daemon.
#[test]
fn register_history_over_vhost_user_across_kills() {
    vhost_user_across_kills(512);
}

/// The same on a disk with blocks of 4 KiB.
#[test]
fn register_history_over_vhost_user_with_large_blocks_across_kills() {
    vhost_user_across_kills(4096);
}

fn vhost_user_across_kills(block_bytes: u64) {
    let mut place = Place::new("guest");
    place.start();
    place.pool(600, 8);
    let size = block_bytes.to_string();
    let options = ["--export", "vhost-user", "--write-cache-depth", "1s", "--sector-size", &size];
    let (volume, exports) = place.volume(VOLUME_MIB, "write-back", &options);
    let (seed, clock) = (seed(), Clock::default());
    let (mut dice, mut kills) = (Dice::new(seed), 0);
    let mut disk = virtio::Disk::connect(&exports.vhost_user, 2 * CONNECTIONS as u16 + 1).expect("it listens");
    let until = Instant::now() + Duration::from_secs(if block_bytes == 512 { 12 } else { 8 });
    let record: Record = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=2 * CONNECTIONS)
            .map(|number| {
                let mut worker = Worker::new(&clock, number, seed).on_blocks_of(block_bytes);
                let mut queue = disk.take_queue().expect("one for each client");
                scope.spawn(move || {
                    worker.work(&mut queue, until).expect("no error is seen");
                    worker.record
                })
            })
            .collect();
        let queue = disk.take_queue().expect("one for each client");
        scope.spawn(move || wear(queue, seed, until));
        while Instant::now() + Duration::from_secs(2) < until {
            std::thread::sleep(Duration::from_millis(100 + dice.below(900)));
            place.kill();
            place.start();
            disk.reconnect(&exports.vhost_user).expect("it listens again");
            kills += 1;
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("what it read was whole")).collect()
    });
    let operations = judge(&record, &[]).unwrap_or_else(|wrong| panic!("blocks of {block_bytes}, seed {seed:#x}: {wrong}"));
    eprintln!(
        "vhost-user, blocks of {block_bytes}: {operations} operations on registers over {kills} kills: linearizable, as if nothing had happened"
    );
    assert!(operations > 2000 && kills > 1, "{operations} operations and {kills} kills are too few to tell");
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

/// Large writes beside the registers, so that the log wraps and what the registers hold is evicted, appended again and destaged.
fn wear(mut port: impl Port, seed: u64, until: Instant) {
    let mut dice = Dice::new(seed);
    let data = vec![0x5A; 32 << 10];
    let chunks = ((VOLUME_MIB << 20) - END_LBA * SECTOR_BYTES as u64) / data.len() as u64;
    while Instant::now() < until {
        let offset = END_LBA * SECTOR_BYTES as u64 + dice.below(chunks) * data.len() as u64;
        port.write(offset, &data, false).expect("the daemon answers");
    }
}
