//! One queue of a device, as an endpoint on a reactor.
//!
//! ```text
//!   kick ─▶ available ring ─▶ chain ─▶ request ─▶ volume ─▶ reply ─▶ guest's memory ─▶ used ring ─▶ call
//! ```
//! A request longer than the volume takes at once is submitted in parts; it is answered when all are. Answers are published together when
//! the reactor has nothing else to do, with one call for all.
//!
//! Invariants: a chain that was taken is in its slot until it is published; a slot has one tenant; of at most one chain some parts are not
//! submitted yet, and no other is taken meanwhile, so a full volume or page pool holds the driver back. Once broken, a queue takes and tells
//! nothing more; what is at the volume ends there.

use crate::block::{BlockDevice, BlockRequest, Command, IO_ERROR, OK, Range, SERIAL_BYTES};
use crate::chain::{Chain, for_each_part, total_bytes};
use crate::inflight::Tracker;
use crate::resumption::{PATIENCE, Resumption};
use crate::ring::{Broken, Ring};
use crate::slot::{Slot, Work, copy_in, copy_out, part_of, skip_bytes};
use crate::wishes::{EndOfQueue, Line, Wishes};
use engine::api::{Op, Origin, Reply, Request};
use export::errno_of;
use io_uring::{cqueue, opcode, types as ring};
use page::{PAGE_BYTES, PageMut, PageVec};
use runtime::{ANY_VOLUME, Backlog, Context, Endpoint, Turn};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use types::SECTOR_BYTES;

/// What a descriptor that is looked at, and a piece of memory that it names, count of a turn's bytes: the longest table has a turn.
const BYTES_PER_LOOK: u32 = 128;
/// Longest part of a request: an extent, which the engine handles as one piece.
const PART_BYTES_MAX: u32 = 1 << 20;
/// Calls on their way at a time.
const CALLS_MAX: usize = 4;

const TOKEN_KICK: u32 = 0;
const TOKEN_BELL: u32 = 1;
const TOKEN_CALL: u32 = 2;

/// Why nothing more is taken now.
enum Pause {
    /// Nothing is there: a kick will tell.
    Empty,
    /// Something is short that a later callback brings.
    Short,
    /// The driver broke the rules.
    Broken(Broken),
}

impl From<Broken> for Pause {
    fn from(broken: Broken) -> Pause {
        Pause::Broken(broken)
    }
}

/// What a queue is made of.
pub(crate) struct QueueParts {
    pub(crate) number: u16,
    pub(crate) device: Arc<BlockDevice>,
    pub(crate) ring: Ring,
    pub(crate) tracker: Option<Tracker>,
    pub(crate) resumption: Option<Arc<Resumption>>,
    pub(crate) kick: OwnedFd,
    pub(crate) line: Arc<Line>,
}

/// See the module.
pub(crate) struct Queue {
    number: u16,
    device: Arc<BlockDevice>,
    ring: Ring,
    tracker: Option<Tracker>,
    /// As long as what an earlier daemon has left is not ended in all queues.
    resumption: Option<Arc<Resumption>>,
    kick: OwnedFd,
    line: Arc<Line>,
    wishes: Wishes,
    generation: u64,
    part_bytes: u32,
    slots: Box<[Slot]>,
    /// Slots taken.
    open: usize,
    /// Chains of an earlier daemon, in order.
    again: VecDeque<u16>,
    /// The chain of which parts are to be submitted.
    current: Option<u16>,
    /// The chain whose last part is being submitted.
    all_submitted: Option<u16>,
    /// The part that the volume had no room for.
    backlog: Backlog,
    /// Done and not published: heads, and how many bytes were written into each.
    done: Vec<(u16, u32)>,
    /// Calls on the ring, with the descriptors they go to.
    calls: VecDeque<Arc<OwnedFd>>,
    call_owed: bool,
    one: Box<u64>,
    turn: Turn,
    polling: [bool; 2],
    broken: bool,
    stopping: bool,
}

impl Queue {
    /// A queue that begins where its ring and its tracker say.
    pub(crate) fn new(parts: QueueParts) -> Queue {
        let QueueParts { number, device, mut ring, mut tracker, resumption, kick, line } = parts;
        let left = tracker.as_mut().map(|tracker| tracker.begin(ring.published()));
        if let Some(left) = &left {
            ring.resume(left.count());
        }
        let again = left.iter().flat_map(|left| left.again.iter().copied());
        let resumption = resumption.filter(|resumption| resumption.starts(number, again, &line));
        let slots = (0..ring.entries()).map(|_| Slot::default()).collect();
        let volume_bytes = device.volume.request_bytes_max() / PAGE_BYTES as u32 * PAGE_BYTES as u32;
        let mut queue = Queue {
            number,
            part_bytes: PART_BYTES_MAX.min(volume_bytes),
            device,
            tracker,
            resumption,
            kick,
            line,
            wishes: Wishes::default(),
            generation: 0,
            slots,
            open: 0,
            again: VecDeque::new(),
            current: None,
            all_submitted: None,
            backlog: Backlog::default(),
            done: Vec::new(),
            calls: VecDeque::new(),
            call_owed: false,
            one: Box::new(1),
            turn: Turn::default(),
            polling: [false; 2],
            broken: false,
            stopping: false,
            ring,
        };
        if let Some(left) = left {
            queue.again = left.again.into_iter().map(|(_, head)| head).collect();
            for head in left.answered {
                // Its answer is in the guest's memory already.
                queue.slots[usize::from(head)].taken = true;
                queue.open += 1;
                queue.done.push((head, 1));
            }
        }
        queue
    }

    /// Takes the newest wishes, if there are new ones.
    fn listen(&mut self, cx: &mut Context<'_>) {
        let Some(wishes) = self.line.take(&mut self.generation) else { return };
        if (!Arc::ptr_eq(&wishes.memory, &self.ring.memory) || wishes.place != self.ring.place())
            && let Err(broken) = self.ring.move_to(wishes.memory.clone(), wishes.place)
        {
            self.wishes = wishes;
            self.broke(cx, broken);
            // Whoever wishes waits for this, whether the queue was broken before or not.
            return self.line.obeyed(self.generation);
        }
        self.ring.set_log(wishes.log.clone());
        let renewed = wishes.call.as_ref().map(Arc::as_ptr) != self.wishes.call.as_ref().map(Arc::as_ptr);
        self.wishes = wishes;
        self.line.obeyed(self.generation);
        if renewed && !self.broken {
            // Nobody may have listened to the one before, and a driver that waits asks only once.
            self.call(cx);
        }
    }

    /// Takes chains until there are none, something is short, or others should have a turn.
    fn pump(&mut self, cx: &mut Context<'_>) {
        self.turn.begin();
        while self.turn.step() {
            match self.step(cx) {
                Ok(()) => {}
                Err(Pause::Empty | Pause::Short) => return,
                Err(Pause::Broken(broken)) => return self.broke(cx, broken),
            }
        }
        self.turn.ask_again(cx);
    }

    /// Goes on with what is waiting, or else takes one chain.
    fn step(&mut self, cx: &mut Context<'_>) -> Result<(), Pause> {
        if !self.backlog.is_empty() {
            let is_empty = self.backlog.retry(cx, &self.device.volume, |_| ());
            return self.submitted(is_empty);
        }
        if let Some(head) = self.current {
            return self.submit_part(cx, head);
        }
        if self.broken || self.stopping || !self.wishes.enabled {
            return Err(Pause::Empty);
        }
        // Whoever goes on from here is told only where in the available ring.
        if let Some(head) = self.again.front().copied() {
            if self.resumption.as_ref().is_some_and(|resumption| !resumption.is_next(self.number, head)) {
                return Err(Pause::Short);
            }
            self.again.pop_front();
            return self.begin(cx, head);
        }
        if self.wishes.end {
            return Err(Pause::Empty);
        }
        if let Some(resumption) = &self.resumption {
            if !resumption.is_over() {
                return Err(Pause::Short);
            }
            self.resumption = None;
        }
        match self.ring.take()? {
            Some(head) => {
                if self.slots[usize::from(head)].taken {
                    return Err(Broken("a chain was made available twice").into());
                }
                if let Some(tracker) = &mut self.tracker {
                    tracker.take(head);
                }
                self.begin(cx, head)
            }
            None if self.ring.want_kick()? => Ok(()),
            None => Err(Pause::Empty),
        }
    }

    /// A chain was taken.
    fn begin(&mut self, cx: &mut Context<'_>, head: u16) -> Result<(), Pause> {
        let chain = Chain::walk(&self.ring, head)?;
        self.turn.moves(chain.looks.saturating_mul(BYTES_PER_LOOK));
        let request = BlockRequest::parse(&self.ring.memory, chain, self.device.volume.logical_block_bytes());
        let status_at = request.status.ok_or(Broken("a request has no room for its answer"))?;
        let data_bytes = total_bytes(&request.data);
        let slot = &mut self.slots[usize::from(head)];
        *slot = Slot { taken: true, data: request.data, data_bytes, status_at, ..Slot::default() };
        self.open += 1;
        let size_sectors = self.device.volume.size_bytes() / SECTOR_BYTES;
        let inside = |start: u64, sectors: u64| start.checked_add(sectors).is_some_and(|end| end <= size_sectors);
        let moves = |start: u64| inside(start, u64::from(data_bytes) / SECTOR_BYTES);
        (slot.work, slot.parts) = match request.command {
            Command::Read { start_sector } if moves(start_sector) => (Work::Read(start_sector), data_bytes.div_ceil(self.part_bytes)),
            Command::Write { start_sector } if moves(start_sector) => (Work::Write(start_sector), data_bytes.div_ceil(self.part_bytes)),
            Command::Discard(ranges) if ranges.iter().all(|range| inside(range.start_sector, range.sectors.into())) => {
                let parts = ranges.len() as u32;
                (Work::Discard(ranges), parts)
            }
            Command::WriteZeroes(ranges) if ranges.iter().all(|range| inside(range.start_sector, range.sectors.into())) => {
                let parts = ranges.len() as u32;
                (Work::WriteZeroes(ranges), parts)
            }
            Command::Flush => (Work::Flush, 1),
            Command::GetId => {
                let written = self.give_serial(head);
                self.finish(cx, head, OK, written);
                return Ok(());
            }
            Command::Refuse(status) => {
                self.finish(cx, head, status, 0);
                return Ok(());
            }
            // Beyond the end.
            Command::Read { .. } | Command::Write { .. } | Command::Discard(_) | Command::WriteZeroes(_) => {
                self.finish(cx, head, IO_ERROR, 0);
                return Ok(());
            }
        };
        if self.slots[usize::from(head)].parts == 0 {
            self.finish(cx, head, OK, 0);
            return Ok(());
        }
        self.slots[usize::from(head)].parts_open = self.slots[usize::from(head)].parts;
        self.current = Some(head);
        Ok(())
    }

    fn give_serial(&mut self, head: u16) -> u32 {
        let slot = &self.slots[usize::from(head)];
        let bytes = slot.data_bytes.min(SERIAL_BYTES as u32);
        let mut done = 0;
        for_each_part(&slot.data, 0, bytes, |guest, count| {
            if self.ring.write(guest, &self.device.serial[done..done + count]).is_err() {
                tracing::debug!("a guest's memory went while its disk was asked for its name");
            }
            done += count;
        });
        bytes
    }

    /// Submits the next part of a chain.
    fn submit_part(&mut self, cx: &mut Context<'_>, head: u16) -> Result<(), Pause> {
        let slot = &self.slots[usize::from(head)];
        let part = slot.parts_submitted;
        let offset = part * self.part_bytes;
        let bytes = self.part_bytes.min(slot.data_bytes.saturating_sub(offset));
        let (op, range) = match &slot.work {
            Work::Flush => (Op::Flush, Range { start_sector: 0, sectors: 0 }),
            Work::Read(start) => (Op::Read, part_of(*start, offset, bytes)),
            Work::Write(start) => (Op::Write, part_of(*start, offset, bytes)),
            Work::Discard(ranges) => (Op::Discard, ranges[part as usize]),
            Work::WriteZeroes(ranges) => (Op::WriteZeroes, ranges[part as usize]),
        };
        let pages = if op == Op::Write { self.copy_in(cx, head, &range, offset, bytes)? } else { PageVec::new() };
        self.turn.moves(bytes);
        let slot = &mut self.slots[usize::from(head)];
        slot.parts_submitted += 1;
        if slot.parts_submitted == slot.parts {
            self.current = None;
            self.all_submitted = Some(head);
        }
        let request =
            Request::new(u64::from(head) | u64::from(part) << 16, ANY_VOLUME, op, range.start_sector, range.sectors, Origin::Client)
                .fua(self.wishes.write_through)
                .pages(pages);
        let is_taken = self.backlog.submit(cx, &self.device.volume, request);
        self.submitted(is_taken)
    }

    /// A part was given to the volume, or was refused.
    fn submitted(&mut self, is_taken: bool) -> Result<(), Pause> {
        if !is_taken {
            return Err(Pause::Short);
        }
        if let (Some(head), Some(resumption)) = (self.all_submitted.take(), &self.resumption) {
            resumption.submitted(self.number, head);
        }
        Ok(())
    }

    /// Copies what is to be written: the driver may change its memory meanwhile, and what is checked later must be what is stored.
    fn copy_in(&mut self, cx: &mut Context<'_>, head: u16, range: &Range, offset: u32, bytes: u32) -> Result<PageVec, Pause> {
        let skip = skip_bytes(range);
        let mut pages = cx.allocate_pages(&self.device.volume, (skip + bytes as usize).div_ceil(PAGE_BYTES)).ok_or(Pause::Short)?;
        let whole = copy_in(&self.ring.memory, &self.slots[usize::from(head)].data, &mut pages, skip, offset, bytes);
        // Its memory was there when the chain was taken; the front end has changed it since.
        if !whole {
            return Err(Broken("the guest's memory went while a write was under way").into());
        }
        Ok(pages.into_iter().map(PageMut::freeze).collect())
    }

    /// A chain is done: its answer goes into the guest's memory, and is told at the end of the turn.
    fn finish(&mut self, cx: &mut Context<'_>, head: u16, status: u8, written: u32) {
        let slot = &mut self.slots[usize::from(head)];
        slot.forget_data();
        let status_at = slot.status_at;
        if self.ring.write(status_at, &[status]).is_err() {
            return self.broke(cx, Broken("the guest's memory went while a request was under way"));
        }
        if let Some(tracker) = &mut self.tracker
            && !matches!(self.slots[usize::from(head)].work, Work::Read(_))
        {
            tracker.answer(head);
        }
        if let Some(resumption) = &self.resumption {
            resumption.answered(self.number, head);
        }
        self.done.push((head, written + 1));
        self.turn.ask_for_end(cx);
    }

    /// Publishes what is done, and calls the driver if it wants to be called.
    fn publish(&mut self, cx: &mut Context<'_>) {
        if self.done.is_empty() || self.broken {
            return;
        }
        for (head, bytes) in &self.done {
            self.ring.put(*head, *bytes);
            if let Some(tracker) = &mut self.tracker {
                tracker.use_next(*head);
            }
            self.slots[usize::from(*head)].taken = false;
        }
        self.open -= self.done.len();
        let wants_call = self.ring.publish();
        if let Some(tracker) = &mut self.tracker {
            tracker.published(self.done.iter().map(|(head, _)| *head), self.ring.published());
        }
        self.done.clear();
        if wants_call {
            self.call(cx);
        }
    }

    /// Tells the driver that there are answers.
    fn call(&mut self, cx: &mut Context<'_>) {
        // Where a foreign counter is full, the kernel may hold them: few at a time.
        if self.calls.len() >= CALLS_MAX {
            self.call_owed = true;
        } else if let Some(call) = self.wishes.call.clone() {
            self.signal(cx, call);
        }
    }

    /// Adds one to an event counter: by the ring, which does not wait in this thread where a foreign counter is full.
    fn signal(&mut self, cx: &mut Context<'_>, counter: Arc<OwnedFd>) {
        let one: *const u64 = &*self.one;
        let entry = opcode::Write::new(ring::Fd(counter.as_raw_fd()), one.cast(), 8).build();
        self.calls.push_back(counter);
        // SAFETY: the number is boxed, is never changed, and goes with the endpoint; the descriptor is kept until an entry has
        // completed that was pushed later or is this one.
        unsafe { cx.push(entry, TOKEN_CALL) };
    }

    /// The driver cannot be believed any more. Its queue stands still until it is set up anew.
    fn broke(&mut self, cx: &mut Context<'_>, broken: Broken) {
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        tracing::warn!(
            volume = self.device.volume.name(),
            queue = self.number,
            "a guest's disk stands still until the guest restarts: {}",
            broken.0
        );
        // What the volume did not get is not waited for.
        for request in self.backlog.take() {
            self.slots[usize::from(request.id as u16)].parts_open -= 1;
        }
        if let Some(head) = self.current.take() {
            let slot = &mut self.slots[usize::from(head)];
            slot.parts_open -= slot.parts - slot.parts_submitted;
        }
        self.again.clear();
        if let Some(resumption) = self.resumption.take() {
            resumption.gone(self.number);
        }
        if let Some(error) = self.wishes.error.clone() {
            self.signal(cx, error);
        }
        self.end_if_quiet(cx);
    }

    /// Goes, if it is to go and nothing is under way.
    fn end_if_quiet(&mut self, cx: &mut Context<'_>) {
        if !(self.stopping || self.wishes.end) {
            return;
        }
        // A chain of which parts are submitted ends first.
        let none_left = self.again.is_empty() || self.stopping || !self.wishes.enabled;
        let quiet = self.current.is_none() && self.backlog.is_empty() && none_left && self.is_drained();
        if quiet && (self.broken || self.done.is_empty()) {
            if let Some(tracker) = self.tracker.as_mut().filter(|_| self.broken) {
                tracker.forget_all();
            }
            // Before it is said: whoever starts the queue anew is not to lose what was left in it.
            if let Some(resumption) = self.resumption.take() {
                resumption.gone(self.number);
            }
            // Who has spoiled its own ring has no claim to an order.
            let in_order = self.again.is_empty() || self.broken;
            self.line.ended(Some(EndOfQueue { next_available: self.ring.next_available(), in_order }));
            cx.close();
        }
    }

    fn is_drained(&self) -> bool {
        if self.broken { self.slots.iter().all(|slot| slot.parts_open == 0) } else { self.open == 0 }
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        for (token, descriptor) in [(TOKEN_KICK, self.kick.as_raw_fd()), (TOKEN_BELL, self.line.bell().as_raw_fd())] {
            if !std::mem::replace(&mut self.polling[token as usize], true) {
                let entry = opcode::PollAdd::new(ring::Fd(descriptor), libc::POLLIN as u32).multi(true).build();
                // SAFETY: the entry names no memory, and the descriptor is as old as the endpoint.
                unsafe { cx.push(entry, token) };
            }
        }
    }
}

impl Endpoint for Queue {
    fn start(&mut self, cx: &mut Context<'_>) {
        // It also calls the driver: whatever was answered before may not have been told.
        self.listen(cx);
        self.poll(cx);
        if !self.done.is_empty() {
            self.turn.ask_for_end(cx);
        }
        if self.resumption.is_some() {
            cx.set_timer(cx.now_ns() + PATIENCE.as_nanos() as u64, 0);
        }
        self.pump(cx);
        self.end_if_quiet(cx);
    }

    fn timer(&mut self, cx: &mut Context<'_>, _token: u32) {
        if let Some(resumption) = &self.resumption {
            resumption.give_up(self.number, self.wishes.enabled);
        }
        self.pump(cx);
        self.end_if_quiet(cx);
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        match token {
            TOKEN_CALL => {
                self.calls.pop_front();
                if std::mem::take(&mut self.call_owed) {
                    self.call(cx);
                }
                if result < 0 && result != -libc::EAGAIN {
                    tracing::debug!(volume = self.device.volume.name(), result, "a guest could not be called");
                }
                return;
            }
            Turn::TOKEN => self.turn.came(),
            _ => {
                if token == TOKEN_BELL {
                    let mut count = [0; 8];
                    // Nothing to read: another bell has been heard already.
                    let _ = rustix::io::read(self.line.bell(), &mut count);
                }
                self.polling[token as usize] = cqueue::more(flags);
                if result < 0 {
                    tracing::warn!(volume = self.device.volume.name(), result, "cannot wait for the guest's notifications any more");
                } else {
                    self.poll(cx);
                }
            }
        }
        self.listen(cx);
        if self.ring.is_struck() || self.tracker.as_ref().is_some_and(Tracker::is_struck) {
            self.broke(cx, Broken("the front end took the guest's memory away"));
        }
        self.pump(cx);
        self.end_if_quiet(cx);
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let (head, part) = (reply.id as u16, (reply.id >> 16) as u32);
        let slot = &mut self.slots[usize::from(head)];
        slot.parts_open -= 1;
        if self.broken {
            return self.end_if_quiet(cx);
        }
        if let Err(error) = reply.result {
            // virtio has one word for all of them (virtio 1.2, 5.2.6).
            tracing::debug!(volume = self.device.volume.name(), error = %errno_of(error), "a request of a guest failed");
            slot.status = IO_ERROR;
        } else if let Work::Read(start) = slot.work {
            let offset = part * self.part_bytes;
            let bytes = self.part_bytes.min(slot.data_bytes - offset);
            let skip = skip_bytes(&part_of(start, offset, bytes));
            if !copy_out(&self.ring, &slot.data, &reply.pages, skip, offset, bytes) {
                return self.broke(cx, Broken("the guest's memory went while a read was under way"));
            }
        }
        let slot = &self.slots[usize::from(head)];
        if slot.parts_open == 0 {
            let read_bytes = if matches!(slot.work, Work::Read(_)) && slot.status == OK { slot.data_bytes } else { 0 };
            self.finish(cx, head, slot.status, read_bytes);
        }
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
        self.end_if_quiet(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.pump(cx);
        self.end_if_quiet(cx);
    }

    fn turn_ends(&mut self, cx: &mut Context<'_>) {
        self.turn.ended();
        self.listen(cx);
        self.publish(cx);
        self.end_if_quiet(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.stopping = true;
        self.end_if_quiet(cx);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(resumption) = self.resumption.take() {
            resumption.gone(self.number);
        }
        self.line.ended(None);
    }
}

#[cfg(test)]
mod tests;
