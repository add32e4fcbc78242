//! A pool with the real binary: more is written than it has room for, it is killed, comes back, is checked, and is
//! taken in where its state is lost.

use crate::support::Place;
use crate::support::nbd::Client;
use std::collections::BTreeMap;

pub const MIB: u64 = 1 << 20;
pub const WRITE_BYTES: u64 = 16 << 10;

/// Content that differs for each place and round.
pub fn data(offset: u64, round: u64) -> Vec<u8> {
    (0..WRITE_BYTES).map(|at| ((offset + at) / 8 * 31 + round * 7 + at) as u8).collect()
}

/// Writes over the whole disk in an order that leaves gaps everywhere; gives the round in which each place was written last.
pub fn write_much(client: &mut Client, rounds: std::ops::Range<u64>) -> BTreeMap<u64, u64> {
    let mut written = BTreeMap::new();
    for round in rounds {
        for step in 0..1500 {
            let place = (step * 7919 + round * 104_729) % (128 * MIB / WRITE_BYTES);
            let offset = place * WRITE_BYTES;
            client.write(offset, &data(offset, round)).expect("a write");
            written.insert(offset, round);
        }
        client.flush();
    }
    written
}

pub fn check(uri: &str, written: &BTreeMap<u64, u64>) {
    let mut client = Client::connect(uri);
    for (offset, round) in written {
        assert!(client.read(*offset, WRITE_BYTES as usize) == data(*offset, *round), "what was written at {offset} in round {round}");
    }
}

#[test]
fn blocks_in_slots_survive_kills_and_the_loss_of_the_state() {
    survive("off");
}

#[test]
fn blocks_packed_into_slots_survive_kills_and_the_loss_of_the_state() {
    survive("auto");
}

fn survive(content: &str) {
    let place = Place::new();
    let (ssd, disk) = (place.path("ssd.img"), place.file("disk.img", 128 * MIB));
    let daemon = place.daemon();
    let create = ["pool", "create", "p", "--ssd", &ssd, "--size", "64MiB", "--ram", "0", "--content", content];
    place.must(&create);
    let options = ["--mode", "write-back", "--admission", "always", "--export", "nbd"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", &disk, "--pool", "p"][..], &options].concat());
    let written = write_much(&mut Client::connect(uri.trim()), 0..8);
    let packed = place.json(&["pool", "show", "p"])["slot_stats"]["packed_blocks"].as_u64().expect("it is counted");
    assert_eq!(packed > 0, content != "off", "{packed} blocks are packed");
    daemon.kill();
    let daemon = place.daemon();
    check(uri.trim(), &written);
    let more = write_much(&mut Client::connect(uri.trim()), 8..10);
    let written: BTreeMap<u64, u64> = written.into_iter().chain(more).collect();
    daemon.kill();
    let looked = place.must(&["pool", "check", &ssd]);
    assert!(looked.contains("0 clean, 0 dirty") && looked.contains("no problems"), "{looked}");
    // Another machine, or a state that is lost.
    std::fs::remove_dir_all(place.path("state")).expect("it was there");
    let daemon_of_another = place.daemon();
    place.must(&["pool", "import", &ssd]);
    check(uri.trim(), &written);
    place.must(&["volume", "remove", "v"]);
    daemon_of_another.stop();
    let content = std::fs::read(&disk).expect("it is there");
    for (offset, round) in written {
        assert!(content[offset as usize..][..WRITE_BYTES as usize] == data(offset, round), "the disk is complete, at {offset}");
    }
}

/// What is left unused is told with the reason, kept, and not used for blocks.
#[test]
fn a_pool_leaves_unused_what_was_asked_for() {
    let place = Place::new();
    let ssd = place.path("ssd.img");
    let daemon = place.daemon();
    let create = ["pool", "create", "p", "--ssd", &ssd, "--size", "64MiB", "--ram", "0"];
    let with = |options: &[&'static str]| [&create[..], options].concat();
    for (percent, problem) in
        [("51", "at most 50 percent"), ("1.5", "not a whole number of percent"), ("-1", "not a whole number of percent")]
    {
        place.must_fail(&with(&["--spare", percent]), 2, problem);
    }
    let made = place.must(&with(&["--spare", "25 %"]));
    assert!(made.contains("spare 25 %, 16 MiB of the SSD stay unused (as asked for)"), "{made}");
    let room = |place: &Place| place.json(&["pool", "show", "p"])["slot_stats"]["size_bytes"].as_u64().expect("it is counted");
    let with_spare = room(&place);
    assert!(with_spare < 45 * MIB && with_spare > 40 * MIB, "{with_spare} bytes for blocks");
    let shown = place.must(&["pool", "show", "p"]);
    for part in ["25 %, 16 MiB", "estimated flash write amplification: 2.4 to 2.8 on a drive with 28 % spare", "the SSD is a file"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    daemon.kill();
    let daemon = place.daemon();
    assert_eq!((place.json(&["pool", "show", "p"])["spare"]["percent"].as_u64(), room(&place)), (Some(25), with_spare));
    daemon.stop();
    std::fs::remove_dir_all(place.path("state")).expect("it was there");
    let daemon = place.daemon();
    place.must(&["pool", "import", &ssd]);
    let spare = &place.json(&["pool", "show", "p"])["spare"];
    assert_eq!((spare["percent"].as_u64(), spare["reason"].as_str()), (Some(25), Some("as asked for")));
    place.must(&["pool", "destroy", "p"]);
    place.must(&with(&["--force"]));
    let spare = &place.json(&["pool", "show", "p"])["spare"];
    assert_eq!(spare["percent"].as_u64(), Some(0), "{spare}");
    assert!(room(&place) > with_spare + 14 * MIB);
    daemon.stop();
}
