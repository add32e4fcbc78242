//! What a front end changes while its guest runs, and what it is told.

use crate::common::{PATIENCE, Stage, taken_soon};
use guest::{Guest, Kind, Options, feature, memory::GUEST_BASE};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Every page that the device writes is in the log: data that was read, answers, and the used ring. Pages it reads are not.
#[test]
fn what_is_written_into_a_guest_that_moves_is_logged() {
    let stage = Stage::new();
    for with_events in [false, true] {
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options { with_events, ..Options::default() }), "a guest");
        assert_eq!(guest.queues[0].run(Kind::Write as u32, 0, &mut [3; 16384], false, PATIENCE), 0);
        let log = guest.log_writes().expect("a log");
        let mut bits = vec![0; ((GUEST_BASE as usize + guest.memory.bytes()) / 4096).div_ceil(8)];
        log.read_exact_at(&mut bits, 0).expect("the log");
        let used_page = (GUEST_BASE as usize + guest.queues[0].parts()[2]) / 4096;
        assert!(bits[used_page / 8] >> (used_page % 8) & 1 == 1, "what a killed daemon wrote there last is not lost");
        let mut before = vec![0; guest.memory.bytes()];
        let queue = &mut guest.queues[0];
        // The driver's own changes end here; from now on only the device writes.
        let reads = queue.submit(Kind::Read as u32, 0, 16384, true, 3).expect("a slot");
        queue.memory().write(queue.data(reads), &[0; 16384]);
        let writes = queue.take_slot().expect("a slot");
        queue.memory().write(queue.data(writes), &[4; 4096]);
        queue.fill(writes, Kind::Write as u32, 64, 4096, false, 1);
        queue.want_call();
        let (reads_at, writes_at) = (queue.data(reads), queue.data(writes));
        let available = queue.parts()[1];
        guest.memory.read(0, &mut before);
        guest.queues[0].notify();
        for _ in 0..2 {
            assert_eq!(guest.queues[0].wait(PATIENCE).expect("an answer").status, 0);
        }
        guest.stop_queue(0).expect("stopped");
        let mut after = vec![0; guest.memory.bytes()];
        guest.memory.read(0, &mut after);
        log.read_exact_at(&mut bits, 0).expect("the log");
        let is_logged = |offset: usize| {
            let page = (GUEST_BASE as usize + offset) / 4096;
            bits[page / 8] >> (page % 8) & 1 == 1
        };
        let mut changed = 0;
        for (page, (before, after)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
            // The driver has changed the index of the available ring since, and nothing else.
            if before != after && page != available / 4096 {
                changed += 1;
                assert!(is_logged(4096 * page), "page {page}");
            }
        }
        assert!(changed >= 4, "the device wrote {changed} pages at least");
        assert!((0..4).all(|page| is_logged(reads_at + 4096 * page)) && !is_logged(writes_at));
        assert!(is_logged(guest.queues[0].parts()[2]), "the used ring");
    }
}

/// QEMU connects again during a migration, and its queues run before it gives the log.
#[test]
fn nothing_is_taken_while_a_log_is_promised_and_not_there() {
    let stage = Stage::new();
    let mut guest = Guest::new(Options::default()).expect("a guest");
    guest.connect(stage.export().path()).expect("connected");
    guest.promise_log().expect("taken");
    guest.begin().expect("runs");
    guest.queues[0].submit(Kind::Read as u32, 0, 4096, true, 1).expect("a slot");
    guest.queues[0].notify();
    assert!(guest.queues[0].wait(Duration::from_millis(200)).is_none(), "it would not be logged");
    guest.log_writes().expect("a log");
    assert_eq!(guest.queues[0].wait(PATIENCE).expect("an answer").status, 0);
}

#[test]
fn memory_may_be_shown_anew_while_requests_are_under_way() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    for round in 0..40u64 {
        for slot in 0..8 {
            let queue = &mut guest.queues[0];
            let slot_taken = queue.take_slot().expect("a slot");
            queue.memory().write(queue.data(slot_taken), &[round as u8 + 1; 8192]);
            queue.fill(slot_taken, Kind::Write as u32, 16 * slot, 8192, false, 2);
        }
        guest.queues[0].notify();
        // Rings must be in one piece, so the first of the pieces is long.
        guest.show_memory_in(1 + round % 4).expect("another table");
        for _ in 0..8 {
            assert_eq!(guest.queues[0].wait(PATIENCE).expect("an answer").status, 0);
        }
        let mut found = vec![0; 65536];
        assert_eq!(guest.queues[0].run(Kind::Read as u32, 0, &mut found, true, PATIENCE), 0);
        assert!(found.iter().all(|byte| *byte == round as u8 + 1));
    }
}

#[test]
fn a_changed_size_is_told() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    let mut channel = guest.back_channel().expect("a channel");
    stage.export().capacity_changed();
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("a message");
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_driver_that_does_not_flush_has_its_writes_durable_at_once() {
    let stage = Stage::new();
    for (without_flush, expected) in [(false, 0), (true, 1)] {
        let before = stage.runtime().stats(&stage.volume).expect("figures").fua;
        let options = Options { without_flush, ..Options::default() };
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "a guest");
        assert_eq!(guest.features[1] & feature::FLUSH == 0, without_flush);
        assert_eq!(guest.queues[0].run(Kind::Write as u32, 0, &mut [1; 512], false, PATIENCE), 0);
        assert_eq!(stage.runtime().stats(&stage.volume).expect("figures").fua - before, expected);
    }
}

/// A guest that has switched its write cache off sends no flushes, and whoever connects for it again does not repeat that.
#[test]
fn a_write_cache_that_was_switched_off_does_not_come_back() {
    let mut stage = Stage::new();
    let plain = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    assert_eq!(plain.features[0] & feature::CONFIG_WCE, 0, "nobody could tell the next daemon");
    drop(plain);
    // A guest of an earlier daemon that did offer it.
    let options = Options { chooses_cache: true, ..Options::default() };
    let mut guest = Guest::new(options).expect("a guest");
    guest.reconnect(stage.export().path()).expect("connected");
    let durable = |stage: &Stage, guest: &mut Guest| {
        let before = stage.runtime().stats(&stage.volume).expect("figures").fua;
        assert_eq!(guest.queues[0].run(Kind::Write as u32, 0, &mut [1; 512], false, PATIENCE), 0);
        stage.runtime().stats(&stage.volume).expect("figures").fua - before
    };
    assert_eq!(durable(&stage, &mut guest), 1, "it may have switched it off before");
    guest.set_write_cache(true).expect("taken");
    assert_eq!(durable(&stage, &mut guest), 0);
    guest.set_write_cache(false).expect("taken");
    assert_eq!(durable(&stage, &mut guest), 1);
    stage.stop();
    stage.start();
    guest.reconnect(stage.export().path()).expect("connected again");
    assert_eq!(durable(&stage, &mut guest), 1);
}

#[test]
fn a_read_only_volume_says_so_and_takes_no_writes() {
    let stage = Stage::with(true, 1);
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    assert_ne!(guest.features[0] & feature::RO, 0);
    assert_eq!(guest.queues[0].run(Kind::Write as u32, 0, &mut [1; 512], false, PATIENCE), 1);
    assert_eq!(guest.queues[0].run(Kind::Read as u32, 0, &mut [1; 512], true, PATIENCE), 0);
}
