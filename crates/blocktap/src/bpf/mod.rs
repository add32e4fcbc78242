//! The way `bpf`: a program of our own at the tracepoint, and a ring that it shares with us.
//!
//! Rooms: `assembler` instructions and their bytes; `program` the program and its record; `ring`
//! the reader's side of the ring; `kernel` the system calls.

mod assembler;
mod kernel;
mod program;
mod ring;

use crate::event::Event;
use crate::format::BioQueue;
use crate::refused::Refused;
use crate::tap::{Drained, Way};
use crate::tracefs::Tracefs;
use crate::watched::Watched;
use crate::{rights, tracefs};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The tracepoint, below tracefs.
const TRACEPOINT: &str = "events/block/block_bio_queue";

/// What the program has cost so far, as the kernel measures it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// How often it ran: requests of all disks.
    pub runs: u64,
    /// Time in it.
    pub run_time_ns: u64,
}

/// A program that is attached until this is dropped; then nothing is left of it.
pub struct BpfTap {
    watched: Watched,
    /// First, so that it ends first.
    _event: OwnedFd,
    program: OwnedFd,
    /// The page with our position.
    consumer: kernel::Mapping,
    /// A page with the kernel's position, and the records behind it.
    records: kernel::Mapping,
    counter: kernel::Mapping,
    /// Descriptors of ring and counter, which the mappings and the program keep alive, too.
    _maps: [OwnedFd; 2],
    statistics: Option<OwnedFd>,
    lost_before: u64,
}

impl BpfTap {
    /// `ring_bytes` is rounded up to what the kernel takes.
    pub fn open(watched: Watched, ring_bytes: u32) -> Result<BpfTap, Refused> {
        let at = |step| move |source| Refused::at(Way::Bpf, step, source);
        if let Some(missing) = rights::missing_for_bpf() {
            return Err(Refused::NoRights { way: Way::Bpf, missing });
        }
        let tracefs = Tracefs::open(tracefs::Use::Reading)?;
        let lacks = |lacks: String| Refused::lacking(Way::Bpf, lacks);
        let described = |file: &str| match tracefs.read(format!("{TRACEPOINT}/{file}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(lacks("tracepoint block_bio_queue".into())),
            told => told.map_err(at("read what tracefs says of the tracepoint")),
        };
        let id = described("id")?;
        let id: u64 = id.trim().parse().map_err(|_| lacks(format!("usable number for the tracepoint ({id:?})")))?;
        let fields = BioQueue::parse(&described("format")?)
            .map_err(|problem| lacks(format!("tracepoint block_bio_queue as we know it: {problem}")))?;

        let page = rustix::param::page_size();
        let ring_bytes = ring_bytes.max(page as u32).checked_next_power_of_two().unwrap_or(1 << 31);
        let ring = kernel::create_ring(ring_bytes).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSYS) => lacks("bpf(2)".into()),
            Some(libc::EINVAL) => lacks("BPF ring buffer (Linux 5.8)".into()),
            // Up to Linux 5.10 its memory counts as locked.
            Some(libc::EPERM) if locked_memory_is_less_than(ring_bytes) => {
                let missing = format!("RLIMIT_MEMLOCK above {ring_bytes} bytes (before Linux 5.11)");
                Refused::NoRights { way: Way::Bpf, missing }
            }
            _ => Refused::at(Way::Bpf, "create a BPF ring buffer", source),
        })?;
        let counter = kernel::create_counter().map_err(at("create a BPF map"))?;
        let code = program::program(&fields, &watched, ring.as_raw_fd(), counter.as_raw_fd());
        let program = kernel::load_program(&assembler::assemble(&code)).map_err(at("load its program"))?;

        let map = at("map the BPF ring buffer");
        let consumer = kernel::Mapping::new(ring.as_fd(), 0, page, true).map_err(map)?;
        let records = kernel::Mapping::new(ring.as_fd(), page, page + ring_bytes as usize, false).map_err(map)?;
        let counts = kernel::Mapping::new(counter.as_fd(), 0, page, false).map_err(map)?;
        let event = attach(&program, id)?;
        Ok(BpfTap {
            watched,
            _event: event,
            program,
            consumer,
            records,
            counter: counts,
            _maps: [ring, counter],
            statistics: None,
            lost_before: 0,
        })
    }

    /// All that is there, without waiting.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> Drained {
        let header_words = rustix::param::page_size() / size_of::<AtomicU64>();
        let (positions, words) = self.records.words().split_at(header_words);
        let ring = ring::Ring { consumer: &self.consumer.words()[0], producer: &positions[0], words };
        let before = events.len();
        let looked = ring.drain(|record| events.extend(program::event(record, &self.watched)));
        let misses = kernel::program_counts(self.program.as_fd()).map_or(0, |counts| counts.misses);
        let lost_ever = self.counter.words()[0].load(Ordering::Relaxed) + misses;
        let lost = lost_ever.saturating_sub(self.lost_before) + u64::from(looked.damaged);
        self.lost_before = lost_ever.max(self.lost_before);
        Drained { events: events.len() - before, lost, unreadable: 0 }
    }

    /// Has the kernel measure programs from now on, until the tap ends; see [`BpfTap::cost`].
    pub fn measure(&mut self) -> io::Result<()> {
        if self.statistics.is_none() {
            self.statistics = Some(kernel::enable_statistics()?);
        }
        Ok(())
    }

    /// `None` unless it is measured.
    pub fn cost(&self) -> Option<Cost> {
        self.statistics.as_ref()?;
        let counts = kernel::program_counts(self.program.as_fd()).ok()?;
        Some(Cost { runs: counts.runs, run_time_ns: counts.run_time_ns })
    }
}

fn locked_memory_is_less_than(bytes: u32) -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current.is_some_and(|most| most < u64::from(bytes))
}

/// The perf event needs a processor that is on; which does not matter.
fn attach(program: &OwnedFd, id: u64) -> Result<OwnedFd, Refused> {
    let mut last = None;
    for processor in online_processors(&std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default()) {
        match kernel::attach(program.as_fd(), id, processor) {
            Ok(event) => return Ok(event),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => last = Some(error),
            Err(error) => return Err(Refused::at(Way::Bpf, "attach its program to the tracepoint", error)),
        }
    }
    let source = last.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(Refused::Failed { way: Way::Bpf, step: "find a processor for its program", source })
}

/// The first of each range of "0-3,8,10-11"; 0 where that cannot be read.
fn online_processors(text: &str) -> Vec<u32> {
    let first = |range: &str| range.split('-').next()?.trim().parse().ok();
    let firsts: Vec<u32> = text.split(',').filter_map(first).collect();
    if firsts.is_empty() { vec![0] } else { firsts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_that_are_on() {
        assert_eq!(online_processors("0-3,8,10-11\n"), [0, 8, 10]);
        assert_eq!(online_processors("2\n"), [2]);
        assert_eq!(online_processors(""), [0]);
        assert_eq!(online_processors("x,-,1-"), [1]);
    }
}
