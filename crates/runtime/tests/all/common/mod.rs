//! What the tests of the runtime share: devices over files and an endpoint that is told what to do by a closure.

#![allow(dead_code, reason = "each test file uses a part")]

use device::Geometry;
use device::model::DiskModel;
use engine::api::{Op, Origin, Reply, Request};
use page::PageVec;
use runtime::{ANY_VOLUME, Context, DeviceOptions, DeviceRef, Endpoint, Runtime, VolumeRef};
use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc;

/// Size of the volumes that are hammered.
pub const SIZE_SECTORS: u64 = 8192;

/// A file of `size_bytes` opened as a device.
pub fn device_over(path: &Path, size_bytes: u64, logical_block_bytes: u32) -> DeviceOptions {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("a file for a device");
    file.set_len(size_bytes).expect("room for a sparse file");
    let geometry = Geometry { size_bytes, logical_block_bytes, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    DeviceOptions { name: path.display().to_string(), file, geometry, model: None }
}

pub fn open(runtime: &Runtime, path: &Path, size_bytes: u64, model: Option<DiskModel>) -> DeviceRef {
    runtime.open_device(DeviceOptions { model, ..device_over(path, size_bytes, 512) }).expect("the device opens")
}

/// A request without data.
pub fn request(id: u64, op: Op, start_sector: u64, sectors: u32) -> Request {
    Request::new(id, ANY_VOLUME, op, start_sector, sectors, Origin::Client)
}

/// Copies data into pages laid out as a write from `start_sector`.
pub fn fill(pages: page::PageMutVec, start_sector: u64, data: &[u8]) -> PageVec {
    let mut pages = pages;
    for (at, byte) in ((start_sector % 8 * 512) as usize..).zip(data) {
        pages[at / 4096][at % 4096] = *byte;
    }
    pages.into_iter().map(page::PageMut::freeze).collect()
}

/// The data of a read's reply.
pub fn data_of(reply: &Reply, start_sector: u64, sectors: u32) -> Vec<u8> {
    let first = (start_sector % 8 * 512) as usize;
    let bytes = reply.pages.iter().flat_map(|page| page.iter().copied());
    bytes.skip(first).take(sectors as usize * 512).collect()
}

/// What a [`Scripted`] endpoint is woken for.
pub enum Wake {
    Start,
    Reply(Reply),
    Timer(u32),
    Ring(u32, i32),
    PagesAvailable,
    VolumeAvailable,
    Stop,
}

/// An endpoint whose behaviour is one closure.
pub struct Scripted<F>(pub F);

impl<F: FnMut(&mut Context<'_>, Wake) + Send> Endpoint for Scripted<F> {
    fn start(&mut self, cx: &mut Context<'_>) {
        (self.0)(cx, Wake::Start);
    }
    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, _flags: u32) {
        (self.0)(cx, Wake::Ring(token, result));
    }
    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        (self.0)(cx, Wake::Reply(reply));
    }
    fn timer(&mut self, cx: &mut Context<'_>, token: u32) {
        (self.0)(cx, Wake::Timer(token));
    }
    fn pages_available(&mut self, cx: &mut Context<'_>) {
        (self.0)(cx, Wake::PagesAvailable);
    }
    fn volume_available(&mut self, cx: &mut Context<'_>) {
        (self.0)(cx, Wake::VolumeAvailable);
    }
    fn stop(&mut self, cx: &mut Context<'_>) {
        (self.0)(cx, Wake::Stop);
    }
}

/// A request as a blocking client makes it: one endpoint, one request, one reply.
pub fn one_request(runtime: &Runtime, volume: &VolumeRef, make: impl FnOnce(&mut Context<'_>) -> Request + Send + 'static) -> Reply {
    let (answer, reply) = std::sync::mpsc::channel();
    let (mut make, volume) = (Some(make), volume.clone());
    runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| match wake {
        Wake::Start => {
            let request = (make.take().expect("started once"))(cx);
            cx.submit(&volume, request).expect("below the limit");
        }
        Wake::Reply(reply) => {
            answer.send(reply).expect("the test waits");
            cx.close();
        }
        _ => {}
    })));
    reply.recv_timeout(std::time::Duration::from_secs(60)).expect("a reply")
}

/// A deterministic source of numbers (xorshift64*).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
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
            let overlaps =
                |&(op, at, len): &(Op, u64, u32)| op != Op::Flush && at < start + u64::from(sectors) && start < at + u64::from(len);
            if self.in_flight.values().any(overlaps) {
                continue;
            }
            let op = match self.chance.below(20) {
                0 => Op::WriteZeroes,
                1 if start.is_multiple_of(2) => Op::PunchHole,
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
                Op::WriteZeroes | Op::Discard | Op::PunchHole => self.disk[range].fill(0),
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
                assert_eq!(data_of(&reply, start, sectors), self.disk[from..from + sectors as usize * 512], "sector {start}+{sectors}");
                self.verified_reads += 1;
            }
        }
        self.go_on(cx);
    }
}

/// Sends `requests` random requests; gives the number of verified reads when all are answered.
pub fn hammer(runtime: &Runtime, volume: &VolumeRef, seed: u64, requests: u32) -> mpsc::Receiver<u32> {
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
