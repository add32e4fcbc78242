//! One queue of a device, on one reactor: requests come as completions of commands, and data is
//! moved by reading and writing `/dev/ublkcN`.
//!
//! Invariants: a tag is with the kernel, at the volume, or waiting (for pages, for room at the
//! volume, or for a volume at all); each request is answered once. A tag ends only with its device.
//!
//! Data is moved by system calls of this thread, so only a part of it is moved at a time, and the rest
//! when others on the reactor have had their turn.
//!
//! A volume may go and another one take its place (see [`Switch`]). What failed because the first
//! went is asked of the second: its client has had no answer, and was promised that it waits.

use crate::switch::{Switch, Way};
use crate::table::Table;
use crate::uapi::{COMMIT_AND_FETCH, Descriptor, FETCH, Operation, data_offset, io_command};
use engine::api::{Op, Origin, Reply, Request};
use export::device_errno_of;
use io_uring::{opcode, types as ring};
use page::{PageMut, PageMutVec, PageVec, for_each_run, for_each_run_mut};
use runtime::{ANY_VOLUME, Backlog, Context, Endpoint, Turn};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use types::SECTOR_BYTES;

const TOKEN_BELL: u32 = u32::MAX;
/// Bytes of a block of the engine.
const SECTORS_PER_PAGE: u64 = page::PAGE_BYTES as u64 / SECTOR_BYTES;

/// Bits of a request's number that are its tag; above them is its turn.
const TAG_BITS: u32 = 16;

/// The request that a tag stands for.
#[derive(Clone, Copy)]
struct Slot {
    asked: Descriptor,
    op: Op,
    /// Which volume it was given to: see [`Queue::turn`].
    turn: u64,
    /// Whether it is there now. An answer to what is not is of no use to anybody.
    at_volume: bool,
}

impl Slot {
    fn data_bytes(&self) -> u32 {
        self.asked.sectors * SECTOR_BYTES as u32
    }

    /// Where in the first page its data begins.
    fn skip_bytes(&self) -> u32 {
        (self.asked.start_sector % SECTORS_PER_PAGE * SECTOR_BYTES) as u32
    }

    fn pages(&self) -> usize {
        (self.skip_bytes() as usize + self.data_bytes() as usize).div_ceil(page::PAGE_BYTES)
    }
}

/// Data that is moved in a later turn.
enum Deferred {
    /// A write that is to begin.
    Take(u16),
    /// A read that is done.
    Give(u16, PageVec),
}

/// One queue.
pub(crate) struct Queue {
    /// `/dev/ublkcN`.
    device: Arc<OwnedFd>,
    table: Table,
    switch: Arc<Switch>,
    number: u16,
    request_bytes_max: u32,
    way: Way,
    /// How many volumes there have been.
    turn: u64,
    slots: Box<[Slot]>,
    /// Tags whose data waits for pages: there is no request for the volume yet, so they are not in the backlog.
    short: VecDeque<u16>,
    /// Requests for which the volume had no room.
    backlog: Backlog,
    /// Tags that wait for a volume.
    held: VecDeque<u16>,
    /// What waits for the next turn.
    deferred: VecDeque<Deferred>,
    /// How much data may still be moved.
    reactor_turn: Turn,
    /// Requests that are not answered and not held.
    under_way: usize,
    /// Tags that have not ended.
    alive: usize,
    bell_value: Box<[u8; 8]>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: `pieces` is written anew before each use, and points only to memory that its user owns.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) fn new(device: Arc<OwnedFd>, table: Table, switch: Arc<Switch>, number: u16, depth: u16, request_bytes_max: u32) -> Queue {
        let asked = Descriptor { operation: Operation::Flush, fua: false, sectors: 0, start_sector: 0 };
        let way = switch.way();
        Queue {
            device,
            table,
            switch,
            number,
            request_bytes_max,
            way,
            turn: 0,
            slots: vec![Slot { asked, op: Op::Flush, turn: 0, at_volume: false }; usize::from(depth)].into(),
            short: VecDeque::new(),
            backlog: Backlog::default(),
            held: VecDeque::new(),
            deferred: VecDeque::new(),
            reactor_turn: Turn::default(),
            under_way: 0,
            alive: usize::from(depth),
            bell_value: Box::new([0; 8]),
            pieces: Vec::new(),
        }
    }

    fn command(&self, cx: &mut Context<'_>, command: u32, tag: u16, result: i32) {
        let bytes = io_command(self.number, tag, result);
        let entry = opcode::UringCmd80::new(ring::Fd(self.device.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the command is in the entry itself and names no memory; the descriptor is this
        // endpoint's as long as it lives.
        unsafe { cx.push128(entry, u32::from(tag)) };
    }

    fn listen(&mut self, cx: &mut Context<'_>) {
        let bell = self.switch.bell(self.number).as_raw_fd();
        let entry = opcode::Read::new(ring::Fd(bell), self.bell_value.as_mut_ptr(), 8).build();
        // SAFETY: the boxed value and the bell are this endpoint's until it is dropped.
        unsafe { cx.push(entry, TOKEN_BELL) };
    }

    fn answer(&mut self, cx: &mut Context<'_>, tag: u16, result: i32) {
        self.under_way -= 1;
        self.command(cx, COMMIT_AND_FETCH, tag, result);
        self.tell_if_quiet();
    }

    /// Only who waits for a pause cares.
    fn tell_if_quiet(&self) {
        if matches!(self.way, Way::Wait) && self.under_way == 0 {
            self.switch.set_busy(self.number, false);
        }
    }

    /// A request has arrived under a tag.
    fn arrived(&mut self, cx: &mut Context<'_>, tag: u16) {
        self.under_way += 1;
        let asked = self.table.descriptor(tag);
        let op = match asked.operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
            Operation::WriteZeroes => Op::WriteZeroes,
            Operation::Unknown(_) => return self.answer(cx, tag, -libc::EOPNOTSUPP),
        };
        let has_data = matches!(op, Op::Read | Op::Write);
        let is_long = has_data && u64::from(asked.sectors) * SECTOR_BYTES > u64::from(self.request_bytes_max);
        if is_long || (op != Op::Flush && asked.sectors == 0) {
            return self.answer(cx, tag, -libc::EINVAL);
        }
        self.slots[usize::from(tag)] = Slot { asked, op, turn: self.turn, at_volume: false };
        self.begin(cx, tag);
    }

    /// Gives a request to the volume, or puts it in line.
    fn begin(&mut self, cx: &mut Context<'_>, tag: u16) {
        if !matches!(self.way, Way::To(_)) {
            self.put_off(cx, tag);
        } else if !self.short.is_empty() || !self.start(cx, tag) {
            self.short.push_back(tag);
        }
    }

    fn hold(&mut self, tag: u16) {
        self.held.push_back(tag);
        self.under_way -= 1;
        self.tell_if_quiet();
    }

    /// There is no volume to ask.
    fn put_off(&mut self, cx: &mut Context<'_>, tag: u16) {
        if matches!(self.way, Way::Fail) { self.answer(cx, tag, -libc::EIO) } else { self.hold(tag) }
    }

    /// Has data moved in a later turn.
    fn defer(&mut self, cx: &mut Context<'_>, deferred: Deferred) {
        self.deferred.push_back(deferred);
        self.reactor_turn.ask_again(cx);
    }

    /// Whether data has to wait for its turn.
    fn has_moved_enough(&self) -> bool {
        self.reactor_turn.is_spent() || !self.deferred.is_empty()
    }

    /// Data is about to be moved.
    fn moves(&mut self, cx: &mut Context<'_>, tag: u16) {
        self.reactor_turn.moves(self.slots[usize::from(tag)].data_bytes());
        self.reactor_turn.ask_for_end(cx);
    }

    /// Others have had their turn.
    fn next_turn(&mut self, cx: &mut Context<'_>) {
        self.reactor_turn.begin();
        while !self.reactor_turn.is_spent()
            && let Some(deferred) = self.deferred.pop_front()
        {
            match deferred {
                Deferred::Give(tag, pages) => self.give(cx, tag, &pages),
                Deferred::Take(tag) if !self.short.is_empty() || !self.start_now(cx, tag) => self.short.push_back(tag),
                Deferred::Take(_) => {}
            }
        }
        if !self.deferred.is_empty() {
            self.reactor_turn.ask_again(cx);
        }
    }

    /// `false` if there are no pages for its data.
    fn start(&mut self, cx: &mut Context<'_>, tag: u16) -> bool {
        if self.slots[usize::from(tag)].op == Op::Write && self.has_moved_enough() {
            self.defer(cx, Deferred::Take(tag));
            return true;
        }
        self.start_now(cx, tag)
    }

    fn start_now(&mut self, cx: &mut Context<'_>, tag: u16) -> bool {
        let Way::To(volume) = self.way.clone() else {
            self.put_off(cx, tag);
            return true;
        };
        let slot = &mut self.slots[usize::from(tag)];
        (slot.turn, slot.at_volume) = (self.turn, false);
        let slot = *slot;
        let mut pages = PageVec::new();
        if slot.op == Op::Write {
            let Some(mut empty) = cx.allocate_pages(&volume, slot.pages()) else { return false };
            self.moves(cx, tag);
            if let Err(error) = self.take_data(tag, &mut empty) {
                tracing::error!(volume = volume.name(), %error, "the data of a write cannot be had from the kernel");
                self.answer(cx, tag, -libc::EIO);
                return true;
            }
            pages = empty.into_iter().map(PageMut::freeze).collect();
        }
        let request = Request::new(
            self.turn << TAG_BITS | u64::from(tag),
            ANY_VOLUME,
            slot.op,
            if slot.op == Op::Flush { 0 } else { slot.asked.start_sector },
            if slot.op == Op::Flush { 0 } else { slot.asked.sectors },
            Origin::Client,
        )
        .fua(slot.asked.fua && slot.op != Op::Flush)
        .pages(pages);
        self.slots[usize::from(tag)].at_volume = self.backlog.submit(cx, &volume, request);
        true
    }

    /// Reads what a write brings.
    fn take_data(&mut self, tag: u16, pages: &mut PageMutVec) -> io::Result<()> {
        let slot = self.slots[usize::from(tag)];
        let pieces = &mut self.pieces;
        pieces.clear();
        for_each_run_mut(pages, slot.skip_bytes(), slot.data_bytes(), |start, length| {
            pieces.push(libc::iovec { iov_base: start.cast(), iov_len: length });
        });
        let (fd, count, at) = (self.device.as_raw_fd(), pieces.len() as i32, data_offset(self.number, tag));
        // SAFETY: each piece is writable memory of `pages`, borrowed until the call returns.
        let moved = unsafe { libc::preadv(fd, pieces.as_ptr(), count, at) };
        all_moved(moved, slot.data_bytes())
    }

    /// Writes what a read is answered with.
    fn give_data(&mut self, tag: u16, pages: &PageVec) -> io::Result<()> {
        let slot = self.slots[usize::from(tag)];
        let pieces = &mut self.pieces;
        pieces.clear();
        for_each_run(pages, slot.skip_bytes(), slot.data_bytes(), |start, length| {
            pieces.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length });
        });
        let (fd, count, at) = (self.device.as_raw_fd(), pieces.len() as i32, data_offset(self.number, tag));
        // SAFETY: the call reads the pieces, which are memory of `pages`, until it returns.
        let moved = unsafe { libc::pwritev(fd, pieces.as_ptr(), count, at) };
        all_moved(moved, slot.data_bytes())
    }

    /// The switch was turned.
    fn turned(&mut self, cx: &mut Context<'_>) {
        self.way = self.switch.way();
        self.turn += 1;
        // What has not reached the volume before waits for this one.
        let refused = self.backlog.take().into_iter().map(|request| tag_of(request.id));
        let mut waiting: Vec<u16> = refused.chain(std::mem::take(&mut self.short)).collect();
        // The data of reads is there already.
        self.deferred.retain(|deferred| match deferred {
            Deferred::Take(tag) => {
                waiting.push(*tag);
                false
            }
            Deferred::Give(..) => true,
        });
        waiting.into_iter().for_each(|tag| self.hold(tag));
        if matches!(self.way, Way::Fail) {
            // The kernel waits for all that it has handed over, and the volume's device may hang. The
            // memory of a write is a copy, so nothing of the kernel's is used any more.
            for tag in 0..self.slots.len() as u16 {
                if std::mem::take(&mut self.slots[usize::from(tag)].at_volume) {
                    self.answer(cx, tag, -libc::EIO);
                }
            }
        }
        if matches!(self.way, Way::Wait) {
            return self.switch.set_busy(self.number, self.under_way > 0);
        }
        for tag in std::mem::take(&mut self.held) {
            self.under_way += 1;
            self.begin(cx, tag);
        }
    }

    /// Whether a request failed only because its volume has gone, or is going.
    fn lost_its_volume(&self, tag: u16) -> bool {
        match self.switch.way() {
            Way::Fail => false,
            _ => !self.knows_the_way() || self.slots[usize::from(tag)].turn != self.turn,
        }
    }
}

impl Endpoint for Queue {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.listen(cx);
        for tag in 0..self.slots.len() as u16 {
            self.command(cx, FETCH, tag, 0);
        }
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, _flags: u32) {
        if token == TOKEN_BELL {
            // A read that failed for want of memory or by a signal has heard nothing, and what rang is there still.
            if result != -libc::ECANCELED {
                self.listen(cx);
            }
            if result > 0 {
                self.turned(cx);
            }
            return;
        }
        if token == Turn::TOKEN {
            self.reactor_turn.came();
            return self.next_turn(cx);
        }
        if result == 0 {
            return self.arrived(cx, token as u16);
        }
        // The device has gone, or its queue is not wanted.
        if !matches!(-result, libc::ENODEV | libc::ECANCELED) {
            let error = io::Error::from_raw_os_error(-result);
            tracing::error!(queue = self.number, %error, "the kernel dropped a command of a ublk device");
        }
        self.alive -= 1;
        if self.alive == 0 {
            cx.close();
        }
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let tag = tag_of(reply.id);
        let slot = self.slots[usize::from(tag)];
        // Answered without waiting for this.
        if !slot.at_volume || slot.turn != reply.id >> TAG_BITS {
            return;
        }
        self.slots[usize::from(tag)].at_volume = false;
        match reply.result {
            Err(_) if self.lost_its_volume(tag) => self.begin_again(cx, tag),
            Err(error) => self.answer(cx, tag, -device_errno_of(error)),
            Ok(()) if slot.op == Op::Read && self.has_moved_enough() => self.defer(cx, Deferred::Give(tag, reply.pages)),
            Ok(()) if slot.op == Op::Read => self.give(cx, tag, &reply.pages),
            Ok(()) if slot.op == Op::Write => self.answer(cx, tag, slot.data_bytes().cast_signed()),
            Ok(()) => self.answer(cx, tag, 0),
        }
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        while let Some(tag) = self.short.pop_front() {
            if !self.start(cx, tag) {
                return self.short.push_front(tag);
            }
        }
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        // What waits is for this volume: when the switch is turned, nothing stays in the backlog.
        if let Way::To(volume) = &self.way {
            let slots = &mut self.slots;
            self.backlog.retry(cx, volume, |id| slots[usize::from(tag_of(id))].at_volume = true);
        }
    }

    fn turn_ends(&mut self, _cx: &mut Context<'_>) {
        self.reactor_turn.ended();
    }

    /// Nothing to do: whoever stops an export has stopped the device before, and the last tag to end
    /// closes this endpoint.
    fn stop(&mut self, _cx: &mut Context<'_>) {}
}

impl Queue {
    /// Answers a read.
    fn give(&mut self, cx: &mut Context<'_>, tag: u16, pages: &PageVec) {
        self.moves(cx, tag);
        match self.give_data(tag, pages) {
            Ok(()) => self.answer(cx, tag, self.slots[usize::from(tag)].data_bytes().cast_signed()),
            Err(error) => {
                tracing::error!(queue = self.number, %error, "the data of a read cannot be given to the kernel");
                self.answer(cx, tag, -libc::EIO);
            }
        }
    }

    /// The bell may not have been heard yet.
    fn begin_again(&mut self, cx: &mut Context<'_>, tag: u16) {
        if self.knows_the_way() { self.begin(cx, tag) } else { self.hold(tag) }
    }

    /// Whether the switch still says what this queue has heard, and that is a volume.
    fn knows_the_way(&self) -> bool {
        matches!((self.switch.way(), &self.way), (Way::To(now), Way::To(known)) if now.is(known))
    }
}

fn tag_of(id: u64) -> u16 {
    (id & ((1 << TAG_BITS) - 1)) as u16
}

fn all_moved(moved: isize, wanted_bytes: u32) -> io::Result<()> {
    match usize::try_from(moved) {
        Ok(bytes) if bytes == wanted_bytes as usize => Ok(()),
        Ok(bytes) => Err(io::Error::other(format!("{bytes} of {wanted_bytes} bytes"))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
