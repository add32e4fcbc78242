//! A pool with a log, as an earlier version left it, is made slots by its start, with the real binary: warm, with dirty data, and whenever the daemon is
//! killed. What cannot be upgraded waits.

use crate::slots::{MIB, WRITE_BYTES, check, data};
use crate::support::Place;
use crate::support::nbd::Client;
use oldlog::Log;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

const PLACES: u64 = 128 * MIB / WRITE_BYTES;
const BLOCKS: u64 = WRITE_BYTES / 4096;

/// By offset: the round in which it was written last.
type Written = BTreeMap<u64, u64>;

/// More than the log has room for, if it is not packed.
const MUCH: u64 = PLACES;
/// Dirty places of which the log is full, but for one segment.
const TOO_DIRTY: u64 = 3270;

/// What an earlier version left: a pool with a log that holds so many clean places, and then so many dirty ones; gives the volume's address, and what was
/// written.
fn left(place: &Place, content: &str, clean_places: u64, dirty_places: u64) -> (String, Written) {
    let (ssd, disk) = (place.path("ssd.img"), place.file("disk.img", 128 * MIB));
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "64MiB", "--ram", "0", "--content", content]);
    let options = ["--mode", "write-back", "--admission", "always", "--export", "nbd"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", &disk, "--pool", "p"][..], &options].concat());
    // So that something is known to be dirty. It is in the log, too.
    Client::connect(uri.trim()).write(0, &data(0, 2)).expect("a write");
    daemon.kill();
    let clean: Written = (0..clean_places).map(|place| (place * WRITE_BYTES, 1)).collect();
    let dirty: Written = (0..dirty_places).map(|nth| (nth * 7919 % PLACES * WRITE_BYTES, 2)).collect();
    write_home(&disk, &clean);
    lay_down_log(&ssd, content, &clean, &dirty);
    (uri.trim().to_string(), clean.into_iter().chain(dirty).collect())
}

fn write_home(disk: &str, written: &Written) {
    let disk = std::fs::File::options().write(true).open(disk).expect("it is there");
    written.iter().for_each(|(offset, round)| disk.write_all_at(&data(*offset, *round), *offset).expect("there is room"));
}

fn lay_down_log(ssd: &str, content: &str, clean: &Written, dirty: &Written) {
    let file = std::fs::File::options().read(true).write(true).open(ssd).expect("it is there");
    let mut first = vec![0; oldlog::SUPERBLOCKS_BYTES];
    file.read_exact_at(&mut first, 0).expect("it carries a pool");
    let superblock = oldlog::superblock(&first);
    let id = superblock.volumes[0].id;
    let mut log = Log::of(&superblock, content != "off", engine::front::shard_of);
    for (written, is_dirty) in [(clean, false), (dirty, true)] {
        for (offset, round) in written {
            let bytes = data(*offset, *round);
            for (block, page) in (offset / 4096..).zip(bytes.as_chunks::<4096>().0) {
                if is_dirty { log.dirty(id, block, page) } else { log.clean(id, block, page) }
            }
        }
    }
    log.write(&mut |at, bytes| file.write_all_at(bytes, at).expect("there is room"));
}

fn has_slots(place: &Place) -> bool {
    oldlog::superblock(&std::fs::read(place.path("ssd.img")).expect("it is there")).layout.has_slots()
}

#[test]
fn a_full_log_is_upgraded_by_the_start_and_stays_warm() {
    for (content, clean_places) in [("off", MUCH), ("auto", MUCH / 4)] {
        let place = Place::new();
        let (uri, written) = left(&place, content, clean_places, 200);
        assert!(!has_slots(&place));
        let looked = place.must(&["pool", "check", &place.path("ssd.img")]);
        assert!(looked.contains("0 clean, 0 dirty") && looked.contains("no problems"), "{looked}");
        assert!(looked.contains("upgrades its log, of an earlier version, to slots: ") && looked.contains("carried over"), "{looked}");
        let daemon = place.daemon();
        let shown = place.must(&["pool", "show", "p"]);
        let line = shown.lines().find(|line| line.starts_with("last start")).expect("it was started");
        println!("{content}: {line}");
        assert!(line.contains("its log, of an earlier version, was upgraded to slots: ") && line.contains("forgotten"), "{shown}");
        assert!(line.contains(&format!("{} of it dirty", api::human::bytes(200 * BLOCKS * 4096))), "{line}");
        let events = place.must(&["events"]);
        assert!(events.contains("was upgraded to slots: "), "{events}");
        let cached = place.json(&["stats", "v"])["cached_bytes"].as_u64().expect("it is counted");
        assert!(cached > 20 * MIB, "{content}: {cached} bytes are cached");
        check(&uri, &written);
        daemon.kill();
        let daemon = place.daemon();
        let shown = place.must(&["pool", "show", "p"]);
        assert!(has_slots(&place) && !shown.contains("was upgraded"), "{shown}");
        check(&uri, &written);
        place.must(&["volume", "remove", "v"]);
        daemon.stop();
        let checked = place.must(&["pool", "check", &place.path("ssd.img")]);
        assert!(checked.contains("no problems"), "{checked}");
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_upgrades_leaves_the_one_or_the_other() {
    let place = Place::new();
    let (uri, written) = left(&place, "auto", MUCH / 4, 200);
    let mut left_as_log = 0;
    for round in 0..40_u64 {
        let mut daemon = place.command(&["serve"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        // After more questions each time.
        (0..round).for_each(|_| drop(place.run(&["pool", "list"])));
        daemon.kill().expect("it runs");
        daemon.wait().expect("it ends");
        if has_slots(&place) {
            break;
        }
        left_as_log += 1;
    }
    println!("{left_as_log} kills left the log");
    assert!(left_as_log > 0);
    let daemon = place.daemon();
    assert!(has_slots(&place));
    check(&uri, &written);
    place.must(&["volume", "remove", "v"]);
    daemon.stop();
    let disk = std::fs::read(place.path("disk.img")).expect("it is there");
    for (offset, round) in written {
        assert!(disk[offset as usize..][..WRITE_BYTES as usize] == data(offset, round), "the disk is complete, at {offset}");
    }
}

/// Whatever a person looks at says what is to be done, and nothing is changed.
#[test]
fn a_log_with_too_much_dirty_data_waits_for_the_version_that_made_it() {
    let place = Place::new();
    let (uri, written) = left(&place, "off", MUCH, TOO_DIRTY);
    let sentence = "cannot be upgraded: dirty data takes the room that the upgrade needs in shard 0";
    let remedy = "start it with the version of hearth that made it";
    let looked = place.must(&["pool", "check", &place.path("ssd.img")]);
    assert!(looked.contains(sentence) && looked.contains(remedy), "{looked}");
    let daemon = place.daemon();
    for command in [["pool", "show", "p"], ["volume", "show", "v"]] {
        let shown = place.must(&command);
        assert!(shown.contains("failed") && shown.contains(sentence) && shown.contains(remedy), "{shown}");
    }
    assert!(place.must(&["pool", "list"]).contains("failed"));
    assert!(place.must(&["events"]).contains(sentence));
    place.must_fail(&["pool", "start", "p"], 1, sentence);
    place.must_fail(&["volume", "start", "v"], 1, remedy);
    place.must_fail(&["pool", "replace", "p", "--ssd", &place.path("ssd.img"), "--force"], 1, "dirty data");
    daemon.stop();
    assert!(!has_slots(&place));
    // The older version has destaged all.
    write_home(&place.path("disk.img"), &written);
    lay_down_log(&place.path("ssd.img"), "off", &written, &Written::new());
    let daemon = place.daemon();
    assert!(has_slots(&place) && place.must(&["pool", "list"]).contains("running"));
    check(&uri, &written);
    daemon.stop();
}

/// Where the state is lost, or on another machine: it is said before.
#[test]
fn taking_in_a_pool_with_a_log_upgrades_it_and_says_so_before() {
    let place = Place::new();
    let (uri, written) = left(&place, "auto", MUCH / 4, 100);
    std::fs::remove_dir_all(place.path("state")).expect("it was there");
    let daemon = place.daemon();
    let ssd = place.path("ssd.img");
    let looked = place.must(&["pool", "import", &ssd, "--look"]);
    assert!(
        looked.contains("taking it in upgrades its log, for good: ") && looked.contains("carried over") && !has_slots(&place),
        "{looked}"
    );
    place.must(&["pool", "import", &ssd]);
    assert!(has_slots(&place));
    check(&uri, &written);
    daemon.stop();
    // One that cannot be upgraded is not taken in.
    lay_down_log(&ssd, "off", &Written::new(), &(0..TOO_DIRTY).map(|nth| (nth * WRITE_BYTES, 2)).collect());
    std::fs::remove_dir_all(place.path("state")).expect("it was there");
    let daemon = place.daemon();
    let looked = place.must(&["pool", "import", &ssd, "--look"]);
    assert!(
        looked.contains("cannot be upgraded: dirty data takes the room")
            && looked.contains("take it in with the version of hearth that made it"),
        "{looked}"
    );
    place.must_fail(&["pool", "import", &ssd], 1, "cannot be upgraded");
    assert!(!place.must(&["pool", "list"]).contains("failed") && !has_slots(&place));
    daemon.stop();
}
