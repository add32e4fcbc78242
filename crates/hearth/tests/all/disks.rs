//! Disks beside a pool's cache: made, grown, shrunk and removed while the pool's volumes are used; the cache gives room and takes it back; a killed daemon
//! serves them again with what was written.

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Place, wait_until};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn uri(place: &Place, command: &str, name: &str) -> String {
    place.json(&[command, "show", name])["exports"]["nbd"].as_str().expect("it is offered").to_string()
}

fn machine_can(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && support::exists("/dev/loop-control") && support::exists("/dev/fuse");
    if !can {
        eprintln!("{test}: SKIPPED, it needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

fn device(place: &Place, what: &str, name: &str) -> String {
    place.json(&[what, "show", name])["exports"]["loop"].as_str().expect("it is offered").to_string()
}

fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed).to_le_bytes()).collect()
}

fn pool_bytes(place: &Place) -> u64 {
    place.json(&["pool", "show", "p"])["size_bytes"].as_u64().expect("a number")
}

/// Connects again and again, and reads each time, until it is told to stop.
fn newcomers(uri: String) -> (Arc<AtomicBool>, JoinHandle<u64>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let come = move || {
        let mut served = 0;
        while !stopped.load(Ordering::Relaxed) {
            Client::connect(&uri).read(0, 4096);
            served += 1;
        }
        served
    };
    (stop, std::thread::spawn(come))
}

/// A pool on 256 MiB with a write-back volume "v" over NBD.
fn begin(place: &Place) {
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "256MiB", "--ram", "0"]);
    let backing = place.file("disk.img", 64 * MIB);
    place.must(&[
        "volume",
        "add",
        "v",
        "--backing",
        &backing,
        "--pool",
        "p",
        "--mode",
        "write-back",
        "--export",
        "nbd",
        "--admission",
        "always",
    ]);
}

/// In slots the cache is cut where it is: what lies before stays cached, and so it does when the room comes back.
#[test]
fn a_cache_in_slots_gives_room_and_stays_warm() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "256MiB", "--ram", "0"]);
    let backing = place.file("disk.img", 256 * MIB);
    let options = ["--mode", "write-back", "--export", "nbd", "--admission", "always", "--write-cache-depth", "1h"];
    place.must(&[&["volume", "add", "v", "--backing", &backing, "--pool", "p"][..], &options].concat());
    let cached = |place: &Place| place.json(&["volume", "show", "v"])["cached_bytes"].as_u64().expect("a number");
    let content = pattern(3, 200 * MIB);
    let mut client = Client::connect(&uri(&place, "volume", "v"));
    // Not one behind the other: a long run of writes bypasses the cache.
    let parts: Vec<&[u8]> = content.chunks(64 << 10).collect();
    for nth in (0..parts.len()).map(|nth| nth * 37 % parts.len()) {
        client.write(nth as u64 * (64 << 10), parts[nth]).expect("it is written");
    }
    drop(client);
    let before = cached(&place);
    assert!(before >= 190 * MIB, "{before}");
    let made = place.must(&["disk", "create", "a", "--pool", "p", "--size", "112MiB", "--export", "nbd"]);
    assert!(made.contains("the cache of pool p gave the room: it has ") && made.ends_with(" are still cached\n"), "{made}");
    let (left, size) = (cached(&place), pool_bytes(&place));
    assert!(size <= 144 * MIB && left <= size && left >= 100 * MIB, "{left} of {before} in {size}");
    let disk = pattern(4, 112 * MIB);
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    for (at, part) in (0..).step_by(MIB as usize).zip(disk.chunks(MIB as usize)) {
        a.write(at, part).expect("it is written");
    }
    a.flush();
    drop(a);
    // Nothing of the cache is in what the disk has, also after a kill.
    daemon.kill();
    let daemon = place.daemon();
    assert!(cached(&place) >= left / 10 * 9, "{} of {left}", cached(&place));
    let reads_back = |place: &Place, of: (&str, &str), content: &[u8]| {
        let mut client = Client::connect(&uri(place, of.0, of.1));
        for (at, part) in (0..).step_by(MIB as usize).zip(content.chunks(MIB as usize)) {
            assert!(client.read(at, MIB as usize) == part, "{of:?} at {at}");
        }
    };
    reads_back(&place, ("volume", "v"), &content);
    reads_back(&place, ("disk", "a"), &disk);
    place.must(&["disk", "remove", "a", "--lose-content"]);
    let left = cached(&place);
    let taken = place.must(&["pool", "take-back", "p"]);
    assert!(taken.contains("pool p: its cache has ") && taken.ends_with(" are still cached\n"), "{taken}");
    assert!(cached(&place) >= left / 10 * 9 && pool_bytes(&place) > 240 * MIB, "{} of {left}", cached(&place));
    reads_back(&place, ("volume", "v"), &content);
    assert!(place.json(&["events"]).to_string().matches("mismatch").count() == 0);
    daemon.stop();
    let checked = place.must(&["pool", "check", &place.path("ssd.img")]);
    assert!(!checked.contains("does not match"), "{checked}");
}

/// A copy of the state from before a disk was made would give that disk's room away.
#[test]
fn a_state_older_than_the_ssd_gives_no_room_away() {
    let place = Place::new();
    let daemon = place.daemon();
    begin(&place);
    let made = place.must(&["disk", "create", "a", "--pool", "p", "--size", "48MiB", "--export", "nbd"]);
    assert!(made.contains("the cache of pool p gave the room: it has ") && made.ends_with(" now, and is empty\n"), "{made}");
    daemon.stop();
    let state = place.path("state/state.json");
    let old = std::fs::read(&state).expect("it is there");
    let daemon = place.daemon();
    // Into room that is there already.
    place.must(&["disk", "resize", "a", "--size", "16MiB", "--lose-content"]);
    place.must(&["disk", "create", "b", "--pool", "p", "--size", "16MiB", "--export", "nbd"]);
    let content = pattern(7, MIB);
    let mut b = Client::connect(&uri(&place, "disk", "b"));
    b.write(0, &content).expect("it is written");
    drop(b);
    daemon.stop();
    let new = std::fs::read(&state).expect("it is there");
    std::fs::write(&state, old).expect("there is room");
    let daemon = place.daemon();
    for refused in [
        &["disk", "create", "c", "--pool", "p", "--size", "16MiB"][..],
        &["disk", "remove", "a", "--lose-content"],
        &["disk", "resize", "a", "--size", "64MiB"],
        &["pool", "take-back", "p"],
    ] {
        let ended = place.run(refused);
        assert!(ended.status != Some(0) && !ended.stderr.is_empty(), "{refused:?}: {ended:?}");
    }
    daemon.stop();
    std::fs::write(&state, new).expect("there is room");
    let _daemon = place.daemon();
    let mut b = Client::connect(&uri(&place, "disk", "b"));
    assert_eq!(b.read(0, content.len()), content, "nobody got its room");
    place.must(&["disk", "create", "c", "--pool", "p", "--size", "16MiB"]);
}

#[test]
fn the_cache_gives_room_for_disks_and_takes_it_back() {
    let place = Place::new();
    let daemon = place.daemon();
    begin(&place);
    let cached = pattern(1, MIB);
    let mut v = Client::connect(&uri(&place, "volume", "v"));
    v.write(0, &cached).expect("it is written");

    place.must_fail(&["disk", "create", "a", "--pool", "p", "--size", "1TiB"], 1, "room for 191 MiB more of disks at most");
    // Whoever comes while the volume is away waits, and is served.
    let (stop, newcomers) = newcomers(uri(&place, "volume", "v"));
    let told = place.must(&["disk", "create", "a", "--pool", "p", "--size", "64MiB", "--export", "nbd"]);
    stop.store(true, Ordering::Relaxed);
    assert!(newcomers.join().expect("each of them is served") > 0);
    assert!(told.contains("64 MiB on") && told.contains("without checksums"), "{told}");
    assert_eq!(pool_bytes(&place), 176 * MIB);
    assert_eq!(v.read(0, cached.len()), cached, "what was dirty is at home, and the client has waited");
    drop(v);

    // What was cached there is not to be seen.
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    assert_eq!(a.read(0, MIB as usize), vec![0; MIB as usize]);
    let content = pattern(2, 64 * MIB);
    for (nth, piece) in content.chunks(MIB as usize).enumerate() {
        a.write(nth as u64 * MIB, piece).expect("it is written");
    }
    a.flush();
    drop(a);
    // The cache does not write there, however full it is.
    let mut v = Client::connect(&uri(&place, "volume", "v"));
    for round in 0..8 {
        for nth in 0..64 {
            v.write(nth * MIB, &pattern(100 * round + nth, MIB)).expect("it is written");
        }
    }
    v.flush();
    // Neither does another disk.
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    place.must(&["disk", "create", "b", "--pool", "p", "--size", "16MiB", "--export", "nbd"]);
    assert!(a.read(0, MIB as usize) == content[..MIB as usize], "it has waited, too");
    assert!(v.read(63 * MIB, MIB as usize) == pattern(763, MIB), "so has the volume's");
    drop((a, v));
    Client::connect(&uri(&place, "disk", "b")).write(0, &pattern(3, 16 * MIB)).expect("it is written");
    assert_eq!(Client::connect(&uri(&place, "volume", "v")).read(63 * MIB, MIB as usize), pattern(763, MIB));

    let check = |place: &Place| {
        let mut a = Client::connect(&uri(place, "disk", "a"));
        for (nth, piece) in content.chunks(MIB as usize).enumerate() {
            assert!(a.read(nth as u64 * MIB, piece.len()) == piece, "mebibyte {nth} of the disk");
        }
    };
    check(&place);
    daemon.kill();
    let daemon = place.daemon();
    check(&place);
    assert_eq!(Client::connect(&uri(&place, "disk", "b")).read(0, MIB as usize), pattern(3, 16 * MIB)[..MIB as usize]);

    place.must_fail(&["pool", "destroy", "p"], 1, "still has");
    place.must_fail(&["pool", "replace", "p", "--ssd", &place.path("ssd.img"), "--force"], 1, "carries the disk");
    place.must_fail(&["volume", "add", "a", "--backing", &place.file("other.img", MIB), "--pool", "p"], 1, "a");
    place.must_fail(&["disk", "remove", "b"], 2, "--lose-content");
    place.must(&["disk", "remove", "b", "--lose-content"]);
    place.must(&["pool", "take-back", "p"]);
    assert_eq!(pool_bytes(&place), 176 * MIB);
    check(&place);
    place.must(&["disk", "remove", "a", "--lose-content"]);
    place.must(&["pool", "take-back", "p"]);
    assert_eq!(pool_bytes(&place), 256 * MIB);
    assert!(place.must(&["disk", "list"]).contains("no disks"));
    assert_eq!(Client::connect(&uri(&place, "volume", "v")).read(63 * MIB, MIB as usize), pattern(763, MIB));
    daemon.stop();
}

#[test]
fn a_disk_grows_and_shrinks_and_keeps_its_content() {
    let place = Place::new();
    let daemon = place.daemon();
    begin(&place);
    place.must(&["disk", "create", "a", "--pool", "p", "--size", "32MiB", "--export", "nbd"]);
    let content = pattern(5, MIB);
    Client::connect(&uri(&place, "disk", "a")).write(31 * MIB, &content).expect("it is written");
    place.must_fail(&["disk", "resize", "a", "--size", "1GiB"], 1, "more of disks at most");
    place.must_fail(&["disk", "resize", "a", "--size", "16MiB"], 2, "--lose-content");
    place.must(&["disk", "resize", "a", "--size", "16MiB", "--lose-content"]);
    place.must(&["disk", "resize", "a", "--size", "32MiB"]);
    assert_eq!(pool_bytes(&place), 208 * MIB, "the cache gave no more");
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    assert_eq!(a.read(31 * MIB, MIB as usize), vec![0; MIB as usize], "what it had there before is gone");
    a.write(31 * MIB, &content).expect("it is written");
    a.flush();
    drop(a);
    // In as many pieces as need be, for which the cache gives room.
    place.must(&["disk", "create", "b", "--pool", "p", "--size", "12MiB"]);
    place.must(&["disk", "resize", "a", "--size", "80MiB"]);
    assert_eq!(pool_bytes(&place), 160 * MIB);
    let pieces = place.json(&["disk", "show", "a"])["pieces"].as_array().expect("a list").len();
    assert_eq!(pieces, 2);
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    let across = pattern(6, 4 * MIB);
    let border = place.json(&["disk", "show", "a"])["pieces"][0]["size_bytes"].as_u64().expect("a number");
    a.write(border - 2 * MIB, &across).expect("it is written");
    a.flush();
    daemon.kill();
    let daemon = place.daemon();
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    assert_eq!(a.read(31 * MIB, MIB as usize), if border == 32 * MIB { &across[MIB as usize..2 * MIB as usize] } else { &content });
    assert_eq!(a.read(border - 2 * MIB, across.len()), across);
    drop(a);

    // A damaged table is told by the check, and mended by the start.
    daemon.stop();
    let ssd = OpenOptions::new().write(true).open(place.path("ssd.img")).expect("it is there");
    let copies = [(512 << 10) - (16 << 10), (1 << 20) - (16 << 10)];
    for damaged in [&copies[..1], &copies[..]] {
        damaged.iter().for_each(|copy| ssd.write_all_at(&[0xFF], copy + 80).expect("written"));
        let checked = place.run(&["pool", "check", &place.path("ssd.img")]);
        assert_eq!(checked.stdout.contains("the table of the disks beside the cache is damaged"), damaged.len() == 2, "{checked:?}");
        let daemon = place.daemon();
        assert!(daemon.log().contains("written again"), "{}", daemon.log());
        assert_eq!(Client::connect(&uri(&place, "disk", "a")).read(border - 2 * MIB, across.len()), across);
        daemon.stop();
        assert!(place.must(&["pool", "check", &place.path("ssd.img")]).contains("DISK"));
    }

    // An SSD that does not have the disk is not served as one that has.
    for copy in copies {
        ssd.write_all_at(&[0; 4096], copy).expect("written");
    }
    let daemon = place.daemon();
    let shown = place.must(&["disk", "show", "a"]);
    assert!(shown.contains("failed") && shown.contains("does not have this disk where it was"), "{shown}");
    daemon.stop();
}

/// A disk is shown to machines, counted, and told of, like a volume.
#[test]
fn a_disk_is_used_like_a_volume() {
    let place = Place::new();
    let daemon = place.daemon();
    begin(&place);
    place.must(&["disk", "create", "a", "--pool", "p", "--size", "16MiB", "--export", "nbd"]);
    let mut a = Client::connect(&uri(&place, "disk", "a"));
    a.write(0, &pattern(1, MIB)).expect("it is written");
    a.read(0, 4096);
    let of_volume = place.must(&["volume", "show", "v", "--qemu"]);
    let of_disk = place.must(&["disk", "show", "a", "--qemu"]);
    assert!(of_volume.contains("export=v,") && of_disk.contains("export=a,") && of_disk.contains("serial="), "{of_disk}");
    assert!(place.must(&["disk", "show", "a", "--libvirt"]).contains("<disk type='network'"));
    assert!(place.must(&["disk", "show", "a", "--proxmox"]).starts_with("args: -blockdev"));
    place.must_fail(&["disk", "show", "a", "--fstab"], 1, "no block device");
    place.must_fail(&["share", "add", "a", "--iscsi"], 2, "hearth disk set a");
    place.must_fail(&["share", "remove", "a"], 1, "is not shared");
    place.must_fail(&["share", "remove", "nothing"], 1, "nothing");
    // Figures are a second old at most.
    let metrics = || place.ask("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    wait_until("it is counted", || metrics().contains("hearth_disk_reads_total{disk=\"a\"} 1"));
    let shown = metrics();
    for line in [
        "hearth_disk_written_bytes_total{disk=\"a\"} 1048576",
        "hearth_disk_info{disk=\"a\",pool=\"p\"} 1",
        "hearth_disk_health{disk=\"a\",state=\"running\"} 1",
        "hearth_disk_size_bytes{disk=\"a\"} 16777216",
        "hearth_disk_latency_seconds_count{disk=\"a\",request=\"read\"} 1",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("volume=\"a\""), "it is no volume");
    let stats = place.must(&["stats"]);
    assert!(stats.contains("DISK") && stats.lines().any(|line| line.starts_with("a ") && line.contains("1 MiB")), "{stats}");
    assert_eq!(place.json(&["stats", "a"])["written_bytes"], MIB);
    daemon.stop();
}

/// A mounted user of a disk waits while the cache gives room for another one.
#[test]
fn users_of_block_devices_wait_while_the_cache_gives_room() {
    if !machine_can("users_of_block_devices_wait_while_the_cache_gives_room") {
        return;
    }
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "256MiB", "--ram", "0"]);
    let backing = place.file("disk.img", 64 * MIB);
    place.must(&["volume", "add", "v", "--backing", &backing, "--pool", "p", "--mode", "write-back", "--export", "loop"]);
    place.must(&["disk", "create", "a", "--pool", "p", "--size", "16MiB", "--export", "loop"]);
    let users = [("volume", "v"), ("disk", "a")].map(|(what, name)| open(&device(&place, what, name)));
    let page = Page([7; 4096]);
    users.iter().for_each(|user| user.write_all_at(&page.0, 8192).expect("it is written"));
    place.must(&["disk", "create", "b", "--pool", "p", "--size", "32MiB", "--export", "loop"]);
    for user in &users {
        let mut read = Page([0; 4096]);
        user.read_exact_at(&mut read.0, 8192).expect("it has waited, and goes on");
        assert!(read.0 == page.0);
        user.write_all_at(&page.0, 0).expect("it is written");
    }
    // While it is open, it is used.
    place.must_fail(&["disk", "remove", "a", "--lose-content"], 1, "in use");
    place.must_fail(&["disk", "set", "a", "--export", "nbd"], 1, "in use");
    // Offered by NBD, too, its users notice nothing; and by NBD alone when they have gone.
    place.must(&["disk", "set", "a", "--export", "nbd", "--export", "loop"]);
    users.iter().for_each(|user| user.write_all_at(&page.0, 4096).expect("it is written"));
    drop(users);
    let told = place.must(&["disk", "set", "a", "--export", "nbd"]);
    assert!(told.contains("nbd+unix:") && !told.contains("/dev/loop"), "{told}");
    assert_eq!(Client::connect(&uri(&place, "disk", "a")).read(4096, 4096), page.0);
    let exports = &place.json(&["disk", "show", "a"])["exports"];
    assert_eq!(exports.as_object().expect("by export").len(), 1, "{exports}");
    place.must(&["disk", "remove", "a", "--lose-content"]);
    daemon.stop();
}

#[repr(align(4096))]
struct Page([u8; 4096]);

fn libc_direct() -> i32 {
    rustix::fs::OFlags::DIRECT.bits() as i32
}

const BLOCKS: u64 = 1024;

/// Rounds of a user at least.
const ROUNDS: u64 = 100;

/// Writes blocks to a block device and reads others back, until it is ended or meets an error.
struct User {
    thread: JoinHandle<std::io::Result<()>>,
    stop: Arc<AtomicBool>,
}

impl User {
    fn start(device: &str) -> User {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, file) = (stop.clone(), open(device));
        let thread = std::thread::spawn(move || {
            let mut rounds = vec![0; BLOCKS as usize];
            let block = |number: u64, round: u64| {
                let mut page = Box::new(Page([0; 4096]));
                page.0[..8].copy_from_slice(&number.to_le_bytes());
                page.0[8..16].copy_from_slice(&round.to_le_bytes());
                page
            };
            let check = |number: u64, rounds: &[u64]| {
                let mut page = block(0, 0);
                file.read_exact_at(&mut page.0, number * 4096)?;
                let round = rounds[number as usize];
                assert!(round == 0 || page.0 == block(number, round).0, "block {number} is not of round {round}");
                Ok::<(), std::io::Error>(())
            };
            let mut round = 0;
            while round < ROUNDS || !stopped.load(Ordering::Relaxed) {
                round += 1;
                let number = round * 2_654_435_761 % BLOCKS;
                file.write_all_at(&block(number, round).0, number * 4096)?;
                rounds[number as usize] = round;
                if round % 32 == 0 {
                    file.sync_data()?;
                }
                check(round * 40_503 % BLOCKS, &rounds)?;
            }
            (0..BLOCKS).try_for_each(|number| check(number, &rounds))
        });
        User { thread, stop }
    }

    fn end(self, who: &str) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("what it reads is right").unwrap_or_else(|error| panic!("{who} has met {error}"));
    }
}

fn open(device: &str) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc_direct()).open(device).expect("it opens")
}

fn size_of(place: &Place, name: &str) -> Option<u64> {
    let disks = place.json(&["disk", "list"]);
    disks.as_array().expect("a list").iter().find(|disk| disk["name"] == name).and_then(|disk| disk["size_bytes"].as_u64())
}

/// The daemon is killed in the middle of each change, at several moments. Users of a volume and of another disk see a pause; what a disk holds stays;
/// a change is there as a whole or not at all.
#[test]
fn a_kill_at_any_moment_of_a_change_loses_nothing() {
    if !machine_can("a_kill_at_any_moment_of_a_change_loses_nothing") {
        return;
    }
    const KILLS: u32 = 4;
    let place = Place::new();
    let mut daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "256MiB", "--ram", "0"]);
    let backing = place.file("disk.img", 64 * MIB);
    place.must(&["volume", "add", "v", "--backing", &backing, "--pool", "p", "--mode", "write-back", "--export", "loop"]);
    place.must(&["disk", "create", "a", "--pool", "p", "--size", "16MiB", "--export", "loop"]);
    let users = [("volume", "v"), ("disk", "a")].map(|(what, name)| User::start(&device(&place, what, name)));
    let written = pattern(9, 4 * MIB);
    // What is asked for, and how large b is then.
    let changes: [(&[&str], Option<u64>); 5] = [
        (&["disk", "create", "b", "--pool", "p", "--size", "24MiB", "--export", "nbd"], Some(24)),
        (&["disk", "resize", "b", "--size", "64MiB"], Some(64)),
        (&["disk", "resize", "b", "--size", "8MiB", "--lose-content"], Some(8)),
        (&["disk", "remove", "b", "--lose-content"], None),
        (&["pool", "take-back", "p"], None),
    ];
    let mut before = None;
    for (change, after) in changes {
        let begun = Instant::now();
        for kill in 0..=KILLS {
            let mut command = place.command(change).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
            if kill == KILLS {
                // It has come to its end before, or does so now.
                command.wait().expect("it ends");
                break;
            }
            std::thread::sleep(Duration::from_millis(30 << (2 * kill)) / 3);
            daemon.kill();
            command.wait().expect("it ends without its daemon");
            daemon = place.daemon();
            let size = size_of(&place, "b").map(|bytes| bytes / MIB);
            assert!(size == before || size == after, "{change:?}, kill {kill}: b has {size:?} MiB");
            let pool = place.json(&["pool", "show", "p"]);
            assert_eq!(pool["health"], "running", "{change:?}, kill {kill}: {pool}, {}", daemon.log());
            let lost: Vec<String> =
                ["volume", "disk"].iter().map(|what| place.must(&[what, "list"])).filter(|told| told.contains("failed")).collect();
            assert!(lost.is_empty(), "{change:?}, kill {kill}: {lost:?}");
            if size.is_some_and(|_| before.is_some()) {
                let mut b = Client::connect(&uri(&place, "disk", "b"));
                assert!(b.read(0, written.len()) == written, "{change:?}, kill {kill}");
            }
        }
        let size = size_of(&place, "b").map(|bytes| bytes / MIB);
        assert_eq!(size, after, "{change:?} after {:?}", begun.elapsed());
        if before.is_none() && after.is_some() {
            let mut b = Client::connect(&uri(&place, "disk", "b"));
            b.write(0, &written).expect("it is written");
            b.flush();
        }
        before = after;
    }
    for (user, who) in users.into_iter().zip(["the user of the volume", "the user of the disk"]) {
        user.end(who);
    }
    place.must(&["disk", "remove", "a", "--lose-content"]);
    place.must(&["volume", "remove", "v"]);
    place.must(&["pool", "destroy", "p"]);
    daemon.stop();
}
