//! Bare volumes over files, end to end: what is read is what was written, at 512-byte granularity, with many requests in flight.

use crate::common::{SIZE_SECTORS, data_of, fill, hammer, one_request, open, request};
use device::model::{DiskModel, ModelSet};
use engine::api::{Op, RequestError};
use runtime::{BareVolumeOptions, Part, RequestClass, Runtime, RuntimeOptions, VolumeRef};
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn options(name: &str) -> BareVolumeOptions {
    BareVolumeOptions { name: name.into(), read_only: false }
}

fn start(reactors: u16, io_pages: usize) -> Runtime {
    Runtime::start(RuntimeOptions { reactors, io_pages, ..RuntimeOptions::default() }).expect("the runtime starts")
}

#[test]
fn random_requests_read_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(2, 16 << 10);
    let volumes: Vec<VolumeRef> = (0..2)
        .map(|number| {
            let device = open(&runtime, &directory.path().join(format!("disk{number}")), SIZE_SECTORS * 512, None);
            runtime.add_bare_volume(&device, options("bare")).unwrap()
        })
        .collect();
    let done: Vec<_> = volumes.iter().zip(1..).map(|(volume, seed)| hammer(&runtime, volume, seed, 4000)).collect();
    for receiver in done {
        assert!(receiver.recv_timeout(Duration::from_secs(120)).expect("the hammer ends") > 1000);
    }
    let stats = runtime.stats(&volumes[0]).unwrap();
    assert_eq!(stats.reads + stats.writes + stats.flushes + stats.write_zeroes + stats.discards, 4000);
    assert_eq!((stats.in_flight, stats.device_errors), (0, 0));
    assert_eq!(stats.summary(None, None).count, 4000);
    assert!(stats.summary(Some(RequestClass::Read), None).p50_ns > 0);
    assert_eq!(runtime.pages().pages_out(), 0);
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}

/// On a disk of which the model says that it writes 200 MB a second at most: a hole of 8 GiB costs some commands, and the file its blocks.
#[test]
fn a_long_hole_in_a_modelled_disk_costs_commands_and_moves_nothing() {
    const LONG_SECTORS: u32 = 8 << 21;
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(1, 1 << 10);
    let size_bytes = u64::from(LONG_SECTORS) * 512;
    let device = open(&runtime, &directory.path().join("disk"), size_bytes, Some(DiskModel::new(ModelSet::Disk15k, size_bytes)));
    let volume = runtime.add_bare_volume(&device, options("modelled")).unwrap();
    let (data, of) = (vec![7; 4096], volume.clone());
    let written = one_request(&runtime, &volume, move |cx| {
        let pages = fill(cx.allocate_pages(&of, 1).expect("pages"), 0, &data);
        request(1, Op::Write, 0, 8).pages(pages)
    });
    assert_eq!(written.result, Ok(()));
    for fua in [false, true] {
        let freed = one_request(&runtime, &volume, move |_| request(2, Op::PunchHole, 0, LONG_SECTORS).fua(fua));
        assert_eq!(freed.result, Ok(()));
    }
    let read = one_request(&runtime, &volume, |_| request(3, Op::Read, 0, 8));
    assert!(data_of(&read, 0, 8).iter().all(|byte| *byte == 0));
    let stats = runtime.stats(&volume).unwrap();
    assert_eq!((stats.discards, stats.write_zeroes, stats.writes), (2, 0, 1));
    assert_eq!(runtime.device_stats(&device).unwrap().trimmed_bytes, 2 * size_bytes);
}

#[test]
fn a_modelled_disk_is_reached_from_every_reactor_and_takes_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(2, 4096);
    let model = DiskModel::new(ModelSet::Disk15k, SIZE_SECTORS * 512);
    let device = open(&runtime, &directory.path().join("disk"), SIZE_SECTORS * 512, Some(model));
    let volume = runtime.add_bare_volume(&device, options("modelled")).unwrap();
    for seed in 0..2 {
        // Two endpoints, one on each reactor, one after the other: each has its own idea of the disk's content.
        let zeroed = one_request(&runtime, &volume, |_| request(0, Op::WriteZeroes, 0, SIZE_SECTORS as u32));
        assert_eq!(zeroed.result, Ok(()));
        let done = hammer(&runtime, &volume, 77 + seed, 100);
        assert!(done.recv_timeout(Duration::from_secs(120)).expect("the hammer ends") > 20);
    }
    // A drive's command overhead alone is 100 us.
    assert!(runtime.stats(&volume).unwrap().summary(Some(RequestClass::Read), None).p50_ns > 100_000);
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn bad_requests_are_answered_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(1, 4096);
    let device = open(&runtime, &directory.path().join("disk"), SIZE_SECTORS * 512, None);
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "ro".into(), read_only: true }).unwrap();
    for (op, start, sectors, expected) in [
        (Op::Read, SIZE_SECTORS - 1, 2, RequestError::Invalid),
        (Op::Read, 0, 0, RequestError::Invalid),
        (Op::Read, u64::MAX, 8, RequestError::Invalid),
        (Op::WriteZeroes, 0, 8, RequestError::ReadOnly),
        (Op::Discard, 0, 8, RequestError::ReadOnly),
    ] {
        let reply = one_request(&runtime, &volume, move |_| request(9, op, start, sectors));
        assert_eq!((reply.id, reply.result), (9, Err(expected)), "{op:?} {start}+{sectors}");
    }
    assert_eq!(runtime.stats(&volume).unwrap().refused_requests, 5);
    runtime.remove_volume(&volume, Duration::from_secs(5)).unwrap();
    let reply = one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8));
    assert_eq!(reply.result, Err(RequestError::Shutdown));
    runtime.remove_device(&device).unwrap();
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_device_that_has_shrunk_gives_errors_not_zeroes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let runtime = start(1, 4096);
    let device = open(&runtime, &path, SIZE_SECTORS * 512, None);
    let volume = runtime.add_bare_volume(&device, options("shrunk")).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(64 * 512).unwrap();
    for (start, sectors, expected) in [(0, 64, Ok(())), (56, 16, Err(RequestError::Io)), (1024, 8, Err(RequestError::Io))] {
        let reply = one_request(&runtime, &volume, move |_| request(1, Op::Read, start, sectors));
        assert_eq!(reply.result, expected, "{start}+{sectors}");
        assert_eq!(reply.pages.is_empty(), expected.is_err());
    }
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn zeroes_are_zeroes_and_other_sectors_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(1, 4096);
    let device = open(&runtime, &directory.path().join("disk"), SIZE_SECTORS * 512, None);
    let volume = runtime.add_bare_volume(&device, options("zeroes")).unwrap();
    for (op, fua) in [(Op::WriteZeroes, false), (Op::WriteZeroes, true), (Op::Discard, true)] {
        let target = volume.clone();
        let written = one_request(&runtime, &volume, move |cx| {
            let pages = cx.allocate_pages(&target, 9).expect("an idle pool has room");
            let pages = fill(pages, 3, &[0xA5; 64 * 512]);
            request(1, Op::Write, 3, 64).pages(pages)
        });
        assert_eq!(written.result, Ok(()));
        let trimmed = one_request(&runtime, &volume, move |_| request(2, op, 5, 37).fua(fua));
        assert_eq!(trimmed.result, Ok(()));
        let read = one_request(&runtime, &volume, |_| request(3, Op::Read, 3, 64));
        let expected: Vec<u8> = (3..67).flat_map(|sector| [if (5..42).contains(&sector) { 0 } else { 0xA5 }; 512]).collect();
        assert_eq!(data_of(&read, 3, 64), expected, "{op:?} fua {fua}");
    }
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}

/// A volume of many small parts, in no order, is as good as a device; and nothing between its parts is touched.
#[test]
fn parts_of_a_device_are_one_volume() {
    const PARTS: u64 = 64;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let runtime = start(2, 16 << 10);
    let part_bytes = SIZE_SECTORS * 512 / PARTS;
    let device = open(&runtime, &path, 2 * SIZE_SECTORS * 512, None);
    // Each second one of the device, from the last to the first.
    let parts: Vec<Part> =
        (0..PARTS).rev().map(|number| Part { from_bytes: (2 * number + 1) * part_bytes, length_bytes: part_bytes }).collect();
    let volume = runtime.add_parts_of_device(&device, parts[..1].to_vec(), options("parts")).unwrap();
    assert_eq!(volume.size_bytes(), part_bytes);
    let beyond = one_request(&runtime, &volume, move |_| request(1, Op::Read, part_bytes / 512 - 1, 2));
    assert_eq!(beyond.result, Err(RequestError::Invalid));
    runtime.grow_parts(&volume, parts);
    assert_eq!(volume.size_bytes(), SIZE_SECTORS * 512);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let guard = vec![0xC3; part_bytes as usize];
    (0..PARTS).for_each(|number| file.write_all_at(&guard, 2 * number * part_bytes).unwrap());
    file.sync_all().unwrap();
    for (op, fua) in [(Op::WriteZeroes, true), (Op::Discard, true), (Op::WriteZeroes, false)] {
        let all = one_request(&runtime, &volume, move |_| request(2, op, 0, SIZE_SECTORS as u32).fua(fua));
        assert_eq!(all.result, Ok(()), "{op:?}");
    }
    let done = hammer(&runtime, &volume, 5, 4000);
    assert!(done.recv_timeout(Duration::from_secs(120)).expect("the hammer ends") > 1000);
    assert_eq!(runtime.pages().pages_out(), 0);
    runtime.shutdown(Duration::from_secs(5)).unwrap();
    let now = std::fs::read(&path).unwrap();
    let pieces = now.chunks(part_bytes as usize);
    assert!(pieces.step_by(2).all(|piece| piece == guard), "what lies between the parts is another's");
}
