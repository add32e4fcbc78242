//! Bare volumes over files, end to end: what is read is what was written, at 512-byte granularity, with many requests in flight.

mod common;

use common::{Chance, Scripted, Wake, data_of, fill, one_request, open, request};
use device::model::{DiskModel, ModelSet};
use engine::api::{Op, RequestError};
use runtime::{BareVolumeOptions, Context, RequestClass, Runtime, RuntimeOptions, VolumeRef};
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;

const SIZE_SECTORS: u64 = 2048;

fn options(name: &str) -> BareVolumeOptions {
    BareVolumeOptions { name: name.into(), read_only: false }
}

/// Sends random requests that do not overlap those in flight, and compares every read with a model of the disk's bytes.
struct Hammer {
    volume: VolumeRef,
    chance: Chance,
    disk: Vec<u8>,
    in_flight: HashMap<u64, (Op, u64, u32)>,
    next_id: u64,
    to_send: u32,
    done: mpsc::Sender<u32>,
    verified_reads: u32,
}

impl Hammer {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while self.in_flight.len() < 32 && self.to_send > 0 {
            let longest = if self.chance.below(8) == 0 { 200 } else { 16 };
            let sectors = 1 + self.chance.below(longest) as u32;
            let start = self.chance.below(SIZE_SECTORS - u64::from(sectors));
            let overlaps = |&(op, at, len): &(Op, u64, u32)| {
                op != Op::Flush && at < start + u64::from(sectors) && start < at + u64::from(len)
            };
            if self.in_flight.values().any(overlaps) {
                continue;
            }
            let op = match self.chance.below(20) {
                0 => Op::WriteZeroes,
                1 => Op::Discard,
                2 => Op::Flush,
                3..11 => Op::Write,
                _ => Op::Read,
            };
            let mut request = request(self.next_id, op, start, sectors);
            request.fua = self.chance.below(10) == 0;
            let range = start as usize * 512..(start as usize + sectors as usize) * 512;
            match op {
                Op::Write => {
                    let pages = (start % 8 + u64::from(sectors)).div_ceil(8) as usize;
                    let Some(pages) = cx.allocate_pages(&self.volume, pages) else { return };
                    let seed = self.chance.next();
                    let data: Vec<u8> = (0..sectors as usize * 512).map(|index| (seed >> (index % 57)) as u8).collect();
                    request.pages = fill(pages, start, &data);
                    self.disk[range].copy_from_slice(&data);
                }
                Op::WriteZeroes | Op::Discard => self.disk[range].fill(0),
                Op::Read | Op::Flush => {}
            }
            cx.submit(&self.volume, request).expect("below the limit");
            self.in_flight.insert(self.next_id, (op, start, sectors));
            self.next_id += 1;
            self.to_send -= 1;
        }
        if self.in_flight.is_empty() && self.to_send == 0 {
            self.done.send(self.verified_reads).expect("the test waits");
            cx.close();
        }
    }

    fn wake(&mut self, cx: &mut Context<'_>, wake: Wake) {
        if let Wake::Reply(reply) = wake {
            let (op, start, sectors) = self.in_flight.remove(&reply.id).expect("one reply per request");
            assert_eq!(reply.result, Ok(()), "{op:?} at {start}+{sectors}");
            if op == Op::Read {
                let from = start as usize * 512;
                assert_eq!(
                    data_of(&reply, start, sectors),
                    self.disk[from..from + sectors as usize * 512],
                    "sector {start}+{sectors}"
                );
                self.verified_reads += 1;
            }
        }
        self.go_on(cx);
    }
}

fn hammer(runtime: &Runtime, volume: &VolumeRef, seed: u64, requests: u32) -> mpsc::Receiver<u32> {
    let (done, receiver) = mpsc::channel();
    let mut hammer = Hammer {
        volume: volume.clone(),
        chance: Chance(seed),
        disk: vec![0; SIZE_SECTORS as usize * 512],
        in_flight: HashMap::new(),
        next_id: 0,
        to_send: requests,
        done,
        verified_reads: 0,
    };
    runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| hammer.wake(cx, wake))));
    receiver
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
            engine::api::Request { pages, ..request(1, Op::Write, 3, 64) }
        });
        assert_eq!(written.result, Ok(()));
        let trimmed = one_request(&runtime, &volume, move |_| engine::api::Request { fua, ..request(2, op, 5, 37) });
        assert_eq!(trimmed.result, Ok(()));
        let read = one_request(&runtime, &volume, |_| request(3, Op::Read, 3, 64));
        let expected: Vec<u8> = (3..67).flat_map(|sector| [if (5..42).contains(&sector) { 0 } else { 0xA5 }; 512]).collect();
        assert_eq!(data_of(&read, 3, 64), expected, "{op:?} fua {fua}");
    }
    runtime.shutdown(Duration::from_secs(5)).unwrap();
}
