//! The classic transport: messages read from `/dev/fuse`, replies written to it.
//!
//! A multishot poll on the ring says when there are messages; they are read without blocking until there are none. Replies with data
//! are ring entries that point at the header and at the very pages the volume answered with.
//!
//! A connection can be taken over from a daemon that has ended: see [`Connection::taken_over`] and
//! the table of requests.
//!
//! Invariants: a slot is free, at the volume, or replying, and its memory is the kernel's while it is replying; a message stays in the
//! receiver until all of it is handed on, and nothing is read meanwhile (so a full volume or page pool holds the client back).

use crate::file::{Decision, VolumeFile, Work};
use crate::protocol::answer::out_header;
use crate::protocol::{Answer, OUT_HEADER_BYTES};
use crate::receiver::Receiver;
use crate::table::{Noted, Table};
use engine::api::{Op, Origin, Reply, Request};
use export::device_errno_of;
use io_uring::{cqueue, opcode, types as ring};
use page::{PageVec, for_each_run};
use runtime::{ANY_VOLUME, Backlog, Context, Endpoint, Turn, VolumeRef};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Requests of one connection in flight. The loop driver has 128 requests, each of which may be cut in pieces; the kernel's
/// background limit is set to as many.
pub(crate) const SLOTS: usize = 512;
/// `FUSE_UNIQUE_RESEND`: marks a request that is handed over once more.
const RESENT: u64 = 1 << 63;
/// `FUSE_NOTIFY_RESEND`: hand over again what was handed over and not answered.
const NOTIFY_RESEND: i32 = 7;
/// How far apart the numbers of requests are (`FUSE_REQ_ID_STEP`).
const UNIQUE_STEP: u64 = 2;
/// How many numbers a daemon may receive without noting one: requests that are answered at once,
/// and what needs no answer.
const UNKNOWN_MAX: u64 = 64;
const TOKEN_POLL: u32 = u32::MAX;

/// Room for one request in flight.
struct Slot {
    unique: u64,
    work: Work,
    reply: [u8; OUT_HEADER_BYTES + 8],
    /// Of `reply`, to be sent; 0: it goes with data, as `pieces` say.
    reply_bytes: u32,
    pieces: SmallVec<[libc::iovec; 4]>,
    /// What `pieces` points into.
    pages: PageVec,
}

/// One end of a classic connection.
pub(crate) struct Connection {
    device: OwnedFd,
    volume: VolumeRef,
    file: VolumeFile,
    receiver: Receiver,
    /// Bytes of the message in the receiver that is not handed on yet; 0 if there is none.
    received_bytes: usize,
    /// The request that the volume had no room for: no message is taken meanwhile.
    backlog: Backlog,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// What is under way, for the next daemon.
    table: Arc<Table>,
    /// Slots in which an earlier daemon has noted a request, by the request's number: each is kept
    /// until its request comes again, or cannot any more.
    earlier: HashMap<u64, u32>,
    /// Slots of requests of an earlier daemon that are run from what is noted of them.
    again: VecDeque<u32>,
    /// Requests that were handed over before are to be asked for.
    ask_again: bool,
    /// Requests of larger numbers that an earlier daemon received and did not note are to fail.
    fail_beyond: Option<u64>,
    stopping: bool,
    polling: bool,
    turn: Turn,
}

// SAFETY: the pointers in the slots' `pieces` are into memory that this value owns.
unsafe impl Send for Connection {}

/// Why no more messages are taken now.
enum Pause {
    /// None there: the poll will tell.
    Empty,
    /// Something is short that a later callback brings.
    Short,
    /// The connection is broken or unmounted.
    Gone,
}

impl Connection {
    /// A connection whose handshake is done.
    pub(crate) fn new(device: OwnedFd, volume: VolumeRef, file: VolumeFile, request_bytes_max: u32, table: Arc<Table>) -> Connection {
        let slot = || Slot {
            unique: 0,
            work: Work { op: Op::Flush, start_sector: 0, sectors: 0, skip_bytes: 0, data_bytes: 0 },
            reply: [0; OUT_HEADER_BYTES + 8],
            reply_bytes: 0,
            pieces: SmallVec::new(),
            pages: PageVec::new(),
        };
        Connection {
            device,
            volume,
            file,
            receiver: Receiver::new(request_bytes_max as usize),
            received_bytes: 0,
            backlog: Backlog::default(),
            slots: (0..SLOTS).map(|_| slot()).collect(),
            free: (0..SLOTS as u32).rev().collect(),
            table,
            earlier: HashMap::new(),
            again: VecDeque::new(),
            ask_again: false,
            fail_beyond: None,
            stopping: false,
            polling: false,
            turn: Turn::default(),
        }
    }

    /// A connection whose requests an earlier daemon has answered. What that one has left
    /// unanswered is ended first: nothing is lost where the kernel can repeat it (`can_resend`),
    /// else writes that were under way fail, since their data went with the daemon, and so does a
    /// request that was just being received.
    pub(crate) fn taken_over(
        device: OwnedFd,
        volume: VolumeRef,
        file: VolumeFile,
        request_bytes_max: u32,
        table: Arc<Table>,
        can_resend: bool,
    ) -> Connection {
        let mut connection = Connection::new(device, volume, file, request_bytes_max, table);
        connection.ask_again = can_resend;
        connection.fail_beyond = (!can_resend).then(|| connection.table.last_unique());
        connection.free.retain(|slot| match connection.table.noted(*slot) {
            None => {
                // What is there and makes no sense is nothing.
                connection.table.free(*slot);
                true
            }
            Some(noted) if can_resend => {
                connection.earlier.insert(noted.unique & !RESENT, *slot);
                false
            }
            Some(noted) => {
                let place = &mut connection.slots[*slot as usize];
                (place.unique, place.work) = (noted.unique, noted.work);
                connection.again.push_back(*slot);
                false
            }
        });
        connection
    }

    /// Asks for what was handed over to an earlier daemon and not answered. It comes before
    /// anything else does.
    fn ask_for_earlier(&mut self) {
        if std::mem::take(&mut self.ask_again) {
            let notice = out_header(0, NOTIFY_RESEND, 0);
            // SAFETY: the bytes are there until the call returns.
            let written = unsafe { libc::write(self.device.as_raw_fd(), notice.as_ptr().cast(), notice.len()) };
            if written < 0 {
                let error = io::Error::last_os_error();
                tracing::error!(volume = self.volume.name(), %error, "requests of the daemon before cannot be asked for: they may wait for ever");
            }
        }
    }

    /// The earlier daemon may have been killed between receiving a request and noting it. The
    /// kernel numbers requests in the order in which it hands them over, so it is among the next
    /// numbers; numbers of requests that nobody has received mean nothing to the kernel.
    fn fail_unknown(&mut self) {
        let Some(last) = self.fail_beyond.take() else { return };
        let answer = Answer::error(libc::EIO);
        (1..=UNKNOWN_MAX).for_each(|step| self.answer(last + step * UNIQUE_STEP, &answer));
    }

    /// Ends a request of an earlier daemon by what is noted of it.
    fn end_earlier(&mut self, cx: &mut Context<'_>, slot: u32) -> Result<(), Pause> {
        let Some(noted) = self.table.noted(slot) else {
            self.free.push(slot);
            return Ok(());
        };
        let answer = match noted.answer() {
            None if noted.work.op == Op::Write => Answer::error(libc::EIO),
            None => return self.submit(cx, &noted.work, slot, PageVec::new()),
            Some(answer) => answer,
        };
        self.answer(noted.unique, &answer);
        self.table.free(slot);
        self.free.push(slot);
        Ok(())
    }

    /// No request of an earlier daemon comes any more: the kernel has taken its answers.
    fn forget_earlier(&mut self) {
        for (_, slot) in self.earlier.drain() {
            self.table.free(slot);
            self.free.push(slot);
        }
    }

    /// The slot for a request that was received: the one it had before, or a free one.
    fn slot_for(&mut self, unique: u64) -> Option<u32> {
        if unique & RESENT == 0 {
            self.forget_earlier();
        }
        self.earlier.get(&(unique & !RESENT)).or(self.free.last()).copied()
    }

    /// The request has its slot.
    fn settle(&mut self, unique: u64, slot: u32) {
        if self.earlier.remove(&(unique & !RESENT)).is_none() {
            let popped = self.free.pop();
            assert_eq!(popped, Some(slot), "the slot that was promised");
        }
    }

    /// Takes messages until there are none, something is short, or others should have a turn.
    fn pump(&mut self, cx: &mut Context<'_>) {
        self.turn.begin();
        while self.turn.step() {
            match self.step(cx) {
                Ok(()) => {}
                Err(Pause::Short) => return,
                Err(Pause::Empty) => return self.poll(cx),
                Err(Pause::Gone) => return cx.close(),
            }
        }
        self.turn.ask_again(cx);
    }

    /// Hands on what is waiting, or else receives one message.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<(), Pause> {
        if !self.backlog.is_empty() {
            let (slots, turn) = (&self.slots, &mut self.turn);
            let is_empty = self.backlog.retry(cx, &self.volume, |id| turn.moves(slots[id as usize].work.data_bytes));
            return if is_empty { Ok(()) } else { Err(Pause::Short) };
        }
        if self.received_bytes == 0 {
            if let Some(slot) = self.again.pop_front() {
                return self.end_earlier(cx, slot);
            }
            if self.stopping {
                self.close_when_idle(cx);
                return Err(Pause::Short);
            }
            if self.free.is_empty() && self.earlier.is_empty() {
                return Err(Pause::Short);
            }
            let missing = self.receiver.pages_missing();
            if missing > 0 {
                let pages = cx.allocate_pages(&self.volume, missing).ok_or(Pause::Short)?;
                self.receiver.add_pages(pages);
            }
            self.received_bytes = match self.receiver.receive(self.device.as_fd()) {
                Ok(bytes) => bytes,
                Err(error) => {
                    if error.raw_os_error() == Some(libc::EAGAIN) {
                        self.forget_earlier();
                    }
                    return self.receive_failed(&error);
                }
            };
        }
        self.hand_on(cx)
    }

    fn receive_failed(&self, error: &io::Error) -> Result<(), Pause> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Err(Pause::Empty),
            // The request was taken back while it was being read.
            Some(libc::EINTR | libc::ENOENT) => Ok(()),
            // Unmounted, or aborted.
            Some(libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN) => Err(Pause::Gone),
            _ => {
                tracing::error!(volume = self.volume.name(), %error, "reading from /dev/fuse failed: the export is closed");
                Err(Pause::Gone)
            }
        }
    }

    /// Does what the message in the receiver asks.
    fn hand_on(&mut self, cx: &mut Context<'_>) -> Result<(), Pause> {
        let (header, operation) = self.receiver.decode(self.received_bytes);
        let Some(header) = header else {
            self.received_bytes = 0;
            return Ok(());
        };
        let decision = match operation {
            Ok(operation) => self.file.of(&self.volume).decide(operation, self.volume.read_only()),
            Err(malformed) => {
                tracing::error!(volume = self.volume.name(), %malformed, "a request was refused");
                Decision::Answer(Answer::error(libc::EIO))
            }
        };
        match decision {
            Decision::Silent => {}
            Decision::Answer(answer) => self.answer(header.unique, &answer),
            Decision::Volume(work) => {
                let slot = self.slot_for(header.unique).ok_or(Pause::Short)?;
                if let Some(answer) = self.earlier_answer(header.unique, slot) {
                    self.answer(header.unique, &answer);
                    self.earlier.remove(&(header.unique & !RESENT));
                    self.table.free(slot);
                    self.free.push(slot);
                    self.received_bytes = 0;
                    return Ok(());
                }
                let pages = if work.op == Op::Write { self.take_data(cx, &work)? } else { PageVec::new() };
                self.settle(header.unique, slot);
                self.received_bytes = 0;
                self.slots[slot as usize].unique = header.unique;
                self.slots[slot as usize].work = work;
                self.table.take(slot, header.unique, &work);
                return self.submit(cx, &work, slot, pages);
            }
        }
        self.received_bytes = 0;
        Ok(())
    }

    /// The answer to a request that an earlier daemon has carried out and whose answer did not
    /// reach the kernel.
    fn earlier_answer(&self, unique: u64, slot: u32) -> Option<Answer> {
        self.earlier.get(&(unique & !RESENT))?;
        self.table.noted(slot)?.answer()
    }

    fn take_data(&mut self, cx: &mut Context<'_>, work: &Work) -> Result<PageVec, Pause> {
        let needed = self.receiver.pages_needed(work);
        let extra = match needed {
            0 => page::PageMutVec::new(),
            _ => cx.allocate_pages(&self.volume, needed).ok_or(Pause::Short)?,
        };
        Ok(self.receiver.take_data(work, extra))
    }

    fn submit(&mut self, cx: &mut Context<'_>, work: &Work, slot: u32, pages: PageVec) -> Result<(), Pause> {
        self.turn.moves(work.data_bytes);
        let is_taken = self.backlog.submit(cx, &self.volume, request(work, u64::from(slot), pages));
        if is_taken { Ok(()) } else { Err(Pause::Short) }
    }

    /// Answers without data are rare: written at once.
    fn answer(&self, unique: u64, answer: &Answer) {
        let mut bytes = [0u8; OUT_HEADER_BYTES + Answer::BYTES_MAX];
        let body = answer.body();
        bytes[..OUT_HEADER_BYTES].copy_from_slice(&out_header(unique, answer.error_field(), body.len()));
        bytes[OUT_HEADER_BYTES..OUT_HEADER_BYTES + body.len()].copy_from_slice(body);
        let length = OUT_HEADER_BYTES + body.len();
        // SAFETY: `length` bytes of `bytes` are there.
        let written = unsafe { libc::write(self.device.as_raw_fd(), bytes.as_ptr().cast(), length) };
        if written < 0 {
            self.reply_failed(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
    }

    /// A reply that the kernel did not take: normal if the asker was killed meanwhile or the connection is gone.
    fn reply_failed(&self, errno: i32) {
        if !matches!(errno, libc::ENOENT | libc::ENODEV | libc::ECONNABORTED | libc::ENOTCONN | libc::EPERM) {
            let error = io::Error::from_raw_os_error(errno);
            tracing::error!(volume = self.volume.name(), %error, "a reply to /dev/fuse was refused");
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if !self.polling {
            self.polling = true;
            let entry = opcode::PollAdd::new(ring::Fd(self.device.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
            // SAFETY: the entry names no memory, and the descriptor is open as long as this endpoint lives.
            unsafe { cx.push(entry, TOKEN_POLL) };
        }
    }

    /// Hands the kernel the reply that stands in the slot.
    fn send(&mut self, cx: &mut Context<'_>, index: usize) {
        let (slot, device) = (&self.slots[index], ring::Fd(self.device.as_raw_fd()));
        let entry = match slot.reply_bytes {
            0 => opcode::Writev::new(device, slot.pieces.as_ptr(), slot.pieces.len() as u32).build(),
            bytes => opcode::Write::new(device, slot.reply.as_ptr(), bytes).build(),
        };
        // SAFETY: the slot (boxed, never moved), its pieces and its pages stay as they are until this entry's completion
        // gives the slot free, or until the endpoint is dropped.
        unsafe { cx.push(entry, index as u32) };
    }

    fn release(&mut self, slot: u32) {
        self.table.free(slot);
        self.slots[slot as usize].pages.clear();
        self.free.push(slot);
    }

    fn close_when_idle(&mut self, cx: &mut Context<'_>) {
        let is_idle = self.again.is_empty() && self.free.len() + self.earlier.len() == SLOTS;
        if self.stopping && self.received_bytes == 0 && is_idle {
            cx.close();
        }
    }
}

impl Endpoint for Connection {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.ask_for_earlier();
        self.fail_unknown();
        self.pump(cx);
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        match token {
            TOKEN_POLL => {
                self.polling = cqueue::more(flags);
                self.pump(cx);
            }
            Turn::TOKEN => {
                self.turn.came();
                self.pump(cx);
            }
            // The kernel was short of something, and still waits for the reply.
            slot if matches!(-result, libc::ENOMEM | libc::EAGAIN | libc::EINTR) => self.send(cx, slot as usize),
            slot => {
                if result < 0 {
                    self.reply_failed(-result);
                }
                let was_full = self.free.is_empty();
                self.release(slot);
                if was_full || self.stopping {
                    self.pump(cx);
                }
            }
        }
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let index = reply.id as usize;
        let slot = &mut self.slots[index];
        let body_bytes = match (reply.result, slot.work.op) {
            (Ok(()), Op::Read) => slot.work.data_bytes as usize,
            (Ok(()), Op::Write) => 8,
            _ => 0,
        };
        let error = reply.result.map_or_else(|error| -device_errno_of(error), |()| 0);
        self.table.answer(index as u32, error);
        slot.reply[..OUT_HEADER_BYTES].copy_from_slice(&out_header(slot.unique, error, body_bytes));
        if slot.work.op == Op::Read && error == 0 {
            slot.pages = reply.pages;
            slot.pieces.clear();
            slot.pieces.push(libc::iovec { iov_base: slot.reply.as_mut_ptr().cast(), iov_len: OUT_HEADER_BYTES });
            for_each_run(&slot.pages, slot.work.skip_bytes, slot.work.data_bytes, |start, length| {
                slot.pieces.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length });
            });
            slot.reply_bytes = 0;
        } else {
            slot.reply[OUT_HEADER_BYTES..OUT_HEADER_BYTES + 4].copy_from_slice(&slot.work.data_bytes.to_ne_bytes());
            slot.reply_bytes = (OUT_HEADER_BYTES + body_bytes) as u32;
        }
        self.send(cx, index);
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.stopping = true;
        self.close_when_idle(cx);
    }
}

impl Noted {
    /// What to answer to a request that was carried out. A read is carried out again: its data is
    /// not noted.
    fn answer(&self) -> Option<Answer> {
        match (self.result?, self.work.op) {
            (0, Op::Read) => None,
            (0, Op::Write) => Some(Answer::written(self.work.data_bytes)),
            (0, _) => Some(Answer::OK),
            (error, _) => Some(Answer::error(error.saturating_neg().max(1))),
        }
    }
}

/// The volume's request for `work`.
pub(crate) fn request(work: &Work, id: u64, pages: PageVec) -> Request {
    Request::new(id, ANY_VOLUME, work.op, work.start_sector, work.sectors, Origin::Client).pages(pages)
}
