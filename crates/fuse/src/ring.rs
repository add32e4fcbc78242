//! FUSE over io_uring: requests arrive in ring entries, and an entry that carries a reply to the kernel comes back with the next
//! request. No reads, no writes, no polls.
//!
//! The kernel keeps a queue for each possible CPU and sends nothing before each has an entry. An entry's data goes through a buffer
//! that is fixed when it is registered, so data is copied between it and pages once, which costs less than what is saved.
//!
//! Invariants: an entry is with the kernel, at the volume, or waiting for room; its header and buffer are touched by us only while the
//! kernel does not have it. Entries end only when the connection is broken (unmounted, or aborted): then the endpoint closes itself.
//!
//! There is no [`Turn`](runtime::Turn): a callback copies one request, and the reactor counts
//! callbacks.

use crate::connection::request;
use crate::error::FuseError;
use crate::file::{Decision, VolumeFile, Work};
use crate::protocol::ring::{COMMAND_COMMIT_AND_FETCH, COMMAND_REGISTER, EntryHeader, HEADER_BYTES, PAYLOAD_BYTES_MIN, command};
use crate::protocol::{Answer, Header, Operation};
use engine::api::{Op, Reply};
use export::device_errno_of;
use io_uring::squeue::Entry128;
use io_uring::{opcode, types as ring};
use page::{PageMut, PageVec, for_each_piece, for_each_piece_mut};
use runtime::{Backlog, Context, Endpoint, VolumeRef};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

/// Entries over all queues, if every queue gets at least [`ENTRIES_PER_QUEUE_MIN`]: twice what a loop device has in flight.
const ENTRIES: usize = 256;
/// A queue with fewer would make one busy CPU wait for itself.
const ENTRIES_PER_QUEUE_MIN: usize = 8;
/// Beyond this, a queue's requests wait in the kernel.
const ENTRIES_PER_QUEUE_MAX: usize = 128;
/// Longest READ and WRITE over io_uring. Each entry has a buffer of this size; memory is used as far as it was ever filled,
/// 64 MiB at most for all entries of a machine with up to 32 CPUs.
pub(crate) const REQUEST_BYTES_MAX: u32 = 256 << 10;
/// Where the switch of the kernel is.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Sets the kernel's switch for FUSE over io_uring, for the whole machine.
///
/// # Errors
/// The system's; an older kernel has no such switch.
pub(crate) fn enable() -> Result<(), FuseError> {
    std::fs::write(PARAMETER, "Y").map_err(FuseError::system("enable FUSE over io_uring in", PARAMETER))
}

/// What the kernel and we pass to and fro.
struct Entry {
    header: EntryHeader,
    /// Header and buffer, as the registration names them.
    areas: [libc::iovec; 2],
    queue: u16,
    unique: u64,
    work: Work,
}

/// All queues of one connection.
pub(crate) struct RingConnection {
    device: OwnedFd,
    volume: VolumeRef,
    file: VolumeFile,
    entries: Box<[Entry]>,
    /// One an entry. Memory from the allocator that was never touched costs nothing, if no huge page holds several of them.
    buffers: Box<[Box<[u8]>]>,
    buffer_bytes: usize,
    /// Entries whose request waits for pages: there is no request for the volume yet, so they are not in the backlog.
    short: VecDeque<u32>,
    /// Requests that the volume had no room for.
    backlog: Backlog,
    /// Entries that have not ended.
    alive: usize,
}

// SAFETY: the pointers in `areas` are into memory that this value owns.
unsafe impl Send for RingConnection {}

impl RingConnection {
    /// For a connection whose handshake has agreed on io_uring.
    pub(crate) fn new(device: OwnedFd, volume: VolumeRef, file: VolumeFile, request_bytes_max: u32) -> RingConnection {
        let queues = possible_cpus();
        let per_queue = (ENTRIES / queues).clamp(ENTRIES_PER_QUEUE_MIN, ENTRIES_PER_QUEUE_MAX);
        let count = queues * per_queue;
        let buffer_bytes = (request_bytes_max as usize).max(PAYLOAD_BYTES_MIN);
        let mut buffers: Box<[Box<[u8]>]> = (0..count).map(|_| vec![0u8; buffer_bytes].into_boxed_slice()).collect();
        let mut entry = |index: usize| Entry {
            header: EntryHeader([0; HEADER_BYTES]),
            areas: [area(std::ptr::null_mut(), HEADER_BYTES), area(buffers[index].as_mut_ptr(), buffer_bytes)],
            queue: (index / per_queue) as u16,
            unique: 0,
            work: Work { op: Op::Flush, start_sector: 0, sectors: 0, skip_bytes: 0, data_bytes: 0 },
        };
        let mut entries: Box<[Entry]> = (0..count).map(&mut entry).collect();
        for entry in &mut entries {
            entry.areas[0].iov_base = entry.header.0.as_mut_ptr().cast();
        }
        let (short, backlog) = (VecDeque::new(), Backlog::default());
        RingConnection { device, volume, file, entries, buffers, buffer_bytes, short, backlog, alive: count }
    }

    fn buffer(&mut self, index: u32) -> &mut [u8] {
        &mut self.buffers[index as usize]
    }

    /// Gives an entry to the kernel: for the first time, or with a reply.
    fn hand_over(&mut self, cx: &mut Context<'_>, index: u32, command_number: u32) {
        let entry = &self.entries[index as usize];
        let bytes = command(entry.header.commit_id(), entry.queue);
        let areas = entry.areas.as_ptr() as u64;
        let built = opcode::UringCmd80::new(ring::Fd(self.device.as_raw_fd()), command_number).cmd(bytes).addr(Some(areas)).build();
        // SAFETY: header, areas and buffer are owned by this endpoint, never move, and are left alone until the entry comes back.
        unsafe { cx.push128(with_length(built, entry.areas.len() as u32), index) };
    }

    fn answer(&mut self, cx: &mut Context<'_>, index: u32, answer: &Answer) {
        let body = answer.body();
        self.buffer(index)[..body.len()].copy_from_slice(body);
        let entry = &mut self.entries[index as usize];
        entry.header.set_reply(entry.unique, answer.error_field(), body.len());
        self.hand_over(cx, index, COMMAND_COMMIT_AND_FETCH);
    }

    /// A request has arrived in an entry.
    fn arrived(&mut self, cx: &mut Context<'_>, index: u32) {
        let entry = &mut self.entries[index as usize];
        let decoded = Header::decode(entry.header.in_header()).and_then(|header| {
            entry.unique = header.unique;
            let rest_bytes = header.length_bytes as usize - crate::protocol::IN_HEADER_BYTES;
            Operation::decode(&header, entry.header.operation(), rest_bytes)
        });
        let decision = match decoded {
            Ok(Operation::Write { length_bytes, .. }) if length_bytes as usize != entry.header.payload_bytes() => {
                Decision::Answer(Answer::error(libc::EIO))
            }
            Ok(operation) => self.file.of(&self.volume).decide(operation, self.volume.read_only()),
            Err(malformed) => {
                tracing::error!(volume = self.volume.name(), %malformed, "a request was refused");
                Decision::Answer(Answer::error(libc::EIO))
            }
        };
        match decision {
            Decision::Volume(work) if work.data_bytes as usize > self.buffer_bytes => {
                self.answer(cx, index, &Answer::error(libc::EIO));
            }
            Decision::Volume(work) => {
                self.entries[index as usize].work = work;
                if !self.short.is_empty() || !self.start_work(cx, index) {
                    self.short.push_back(index);
                }
            }
            Decision::Answer(answer) => self.answer(cx, index, &answer),
            Decision::Silent => self.answer(cx, index, &Answer::OK),
        }
    }

    /// Submits the work of an entry; `false` if there are no pages for its data.
    fn start_work(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let work = self.entries[index as usize].work;
        let mut pages = PageVec::new();
        if work.op == Op::Write {
            let Some(mut empty) = cx.allocate_pages(&self.volume, work.pages()) else { return false };
            let mut rest = &self.buffer(index)[..work.data_bytes as usize];
            for_each_piece_mut(&mut empty, work.skip_bytes, work.data_bytes, |piece| {
                let (now, later) = rest.split_at(piece.len());
                piece.copy_from_slice(now);
                rest = later;
            });
            pages = empty.into_iter().map(PageMut::freeze).collect();
        }
        self.backlog.submit(cx, &self.volume, request(&work, u64::from(index), pages));
        true
    }
}

impl Endpoint for RingConnection {
    fn start(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.entries.len() as u32 {
            self.hand_over(cx, index, COMMAND_REGISTER);
        }
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, _flags: u32) {
        if result >= 0 {
            return self.arrived(cx, token);
        }
        if !matches!(-result, libc::ENOTCONN | libc::ECANCELED | libc::ECONNABORTED | libc::ENODEV) {
            let error = std::io::Error::from_raw_os_error(-result);
            tracing::error!(volume = self.volume.name(), %error, "the kernel dropped an entry of FUSE over io_uring");
        }
        self.alive -= 1;
        if self.alive == 0 {
            cx.close();
        }
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let index = reply.id as u32;
        let work = self.entries[index as usize].work;
        match reply.result {
            Err(error) => self.answer(cx, index, &Answer::error(device_errno_of(error))),
            Ok(()) if work.op == Op::Write => self.answer(cx, index, &Answer::written(work.data_bytes)),
            Ok(()) if work.op == Op::Read => {
                let mut rest = &mut self.buffer(index)[..work.data_bytes as usize];
                for_each_piece(&reply.pages, work.skip_bytes, work.data_bytes, |piece| {
                    let (now, later) = std::mem::take(&mut rest).split_at_mut(piece.len());
                    now.copy_from_slice(piece);
                    rest = later;
                });
                let entry = &mut self.entries[index as usize];
                entry.header.set_reply(entry.unique, 0, work.data_bytes as usize);
                self.hand_over(cx, index, COMMAND_COMMIT_AND_FETCH);
            }
            Ok(()) => self.answer(cx, index, &Answer::OK),
        }
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        while let Some(index) = self.short.pop_front() {
            if !self.start_work(cx, index) {
                return self.short.push_front(index);
            }
        }
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.backlog.retry(cx, &self.volume, |_| ());
    }

    /// Nothing to do: whoever stops an export has broken the connection before, and the last entry to end closes this endpoint.
    fn stop(&mut self, _cx: &mut Context<'_>) {}
}

fn area(bytes: *mut u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: bytes.cast(), iov_len: length }
}

/// The kernel wants the number of areas where other operations have their length, which the entry's builder cannot set.
fn with_length(entry: Entry128, length: u32) -> Entry128 {
    const LENGTH_AT: usize = 24; // `len` in `struct io_uring_sqe`
    // SAFETY: an entry is 128 bytes of plain data, in the kernel's layout; every content is valid.
    let mut bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
    bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
    // SAFETY: as above.
    unsafe { std::mem::transmute(bytes) }
}

/// CPUs that may ever appear: the highest number in a list such as "0-3,8", plus one.
fn possible_cpus() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let highest = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse::<usize>().ok());
    highest.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), |highest| highest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_where_the_kernel_looks() {
        let entry = with_length(opcode::UringCmd80::new(ring::Fd(7), 1).cmd([9; 80]).build(), 2);
        // SAFETY: as in `with_length`.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
        assert_eq!(bytes[24..28], 2u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 7u32.to_ne_bytes());
        assert_eq!(bytes[48..128], [9; 80]);
    }
}
