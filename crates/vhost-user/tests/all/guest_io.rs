//! A guest reads back what it has written, whatever its queues look like.

use crate::common;
use crate::common::{PATIENCE, Stage, taken_soon};
use guest::{Buffers, Guest, Kind, Options};

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

fn forms() -> Vec<Options> {
    let mut forms = Vec::new();
    for with_events in [false, true] {
        for indirect in [false, true] {
            forms.push(Options { with_events, indirect, inflight: with_events, ..Options::default() });
        }
    }
    forms
}

#[test]
fn what_is_written_is_read_in_every_form_of_queue() {
    let stage = Stage::new();
    for (round, options) in forms().into_iter().enumerate() {
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "a guest");
        let queue = &mut guest.queues[0];
        for (step, (sector, bytes)) in [(0u64, 512), (1, 512), (7, 1024), (8, 4096), (13, 9728), (100, 65536)].into_iter().enumerate() {
            let data: Vec<u8> = (0..bytes).map(|at| (at / 3 + at + round * 7 + step) as u8).collect();
            assert_eq!(queue.run(Kind::Write as u32, sector, &mut data.clone(), false, PATIENCE), 0);
            let mut found = vec![0; bytes];
            assert_eq!(queue.run(Kind::Read as u32, sector, &mut found, true, PATIENCE), 0);
            assert!(found == data, "{options:?}, {bytes} bytes at sector {sector}");
        }
        assert_eq!(queue.run(Kind::Flush as u32, 0, &mut [], false, PATIENCE), 0);
        let mut serial = [0; 20];
        assert_eq!(queue.run(Kind::GetId as u32, 0, &mut serial, true, PATIENCE), 0);
        assert_eq!(&serial, b"0123456789abcdef0123");
        assert_eq!(queue.run(99, 0, &mut [], false, PATIENCE), 2, "an unknown request");
        assert_eq!(queue.run(Kind::Read as u32, u64::MAX - 3, &mut [0; 4096], true, PATIENCE), 1, "far outside");
    }
}

#[test]
fn zeroes_and_discards_change_what_they_name_and_nothing_else() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    let queue = &mut guest.queues[0];
    assert_eq!(queue.run(Kind::Write as u32, 0, &mut [7; 32768], false, PATIENCE), 0);
    let mut two = [range(8, 8, 1), range(32, 16, 0)].concat();
    assert_eq!(queue.run(Kind::WriteZeroes as u32, 0, &mut two, false, PATIENCE), 0);
    let mut found = [0; 32768];
    assert_eq!(queue.run(Kind::Read as u32, 0, &mut found, true, PATIENCE), 0);
    for (sector, bytes) in found.chunks(512).enumerate() {
        let zero = (8..16).contains(&sector) || (32..48).contains(&sector);
        assert!(bytes.iter().all(|byte| *byte == if zero { 0 } else { 7 }), "sector {sector}");
    }
    assert_eq!(queue.run(Kind::Discard as u32, 0, &mut range(48, 8, 0), false, PATIENCE), 0);
    assert_eq!(queue.run(Kind::Discard as u32, 0, &mut range(u64::MAX - 7, 8, 0), false, PATIENCE), 1);
    assert_eq!(queue.run(Kind::WriteZeroes as u32, 0, &mut range(0, 8, 4), false, PATIENCE), 2);
}

#[test]
fn the_configuration_tells_of_the_volume() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options::default()), "a guest");
    let config = guest.config(0, 60).expect("configuration");
    assert_eq!(config[..8], (common::VOLUME_BYTES / 512).to_le_bytes());
    assert_eq!(config[20..24], 512u32.to_le_bytes());
    let physical = (stage.volume.physical_block_bytes() / 512).trailing_zeros() as u8;
    assert_eq!((config[24], &config[26..28]), (physical, &[8, 0][..]), "those of the device below; 4096 at least at a time");
    assert_eq!(config[34..36], 64u16.to_le_bytes());
}

#[test]
fn many_queues_run_at_once_and_requests_longer_than_the_volume_takes_are_cut() {
    let stage = Stage::new();
    let buffers = Buffers { slots: 4, data_bytes: 3 << 20 };
    let options = Options { queues: 8, entries: 64, buffers, ..Options::default() };
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "a guest");
    for round in 0..4 {
        for (number, queue) in guest.queues.iter_mut().enumerate() {
            let slot = queue.take_slot().expect("one is free");
            queue.memory().write(queue.data(slot), &vec![(16 * round + number) as u8; 3 << 20]);
            queue.fill(slot, Kind::Write as u32, 6144 * number as u64, 3 << 20, false, 3);
            queue.notify();
        }
        for queue in &mut guest.queues {
            assert_eq!(queue.wait(PATIENCE).expect("an answer").status, 0);
        }
        for (number, queue) in guest.queues.iter_mut().rev().enumerate() {
            let slot = queue.submit(Kind::Read as u32, 6144 * number as u64, 3 << 20, true, 2).expect("one is free");
            queue.notify();
            let done = queue.wait(PATIENCE).expect("an answer");
            assert_eq!((done.status, done.slot, done.written), (0, slot, (3 << 20) + 1));
            let mut found = vec![0; 3 << 20];
            queue.memory().read(queue.data(slot), &mut found);
            assert!(found.iter().all(|byte| *byte == (16 * round + number) as u8));
        }
    }
}
