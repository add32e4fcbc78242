//! Performs the engine's I/Os on real devices through the ring.
//!
//! Invariants: an I/O is answered exactly once, with its pages; it succeeds only if every byte of it was transferred (a short transfer
//! is continued, never taken for the whole); a write or flush never succeeds on a device that has failed a flush;
//! the memory an entry names belongs to an [`Active`] that stays in the table until the entry has completed,
//! also when its owner has its answer already because the device was given up (see `giving_up.rs`).

mod giving_up;
mod transfer;

use crate::devices::{DeviceShared, FlushWaiter, reopen};
use crate::message::{Directory, Message};
use crate::ring::Ring;
use crate::stats::DeviceStats;
use crate::user_data::{Kind, user_data};
use device::model::{DiskModel, IoDescription};
use engine::api::{Io, IoError, IoId, IoKind};
use engine::flush_gate::{Arrival, Ended};
use io_uring::types::Fd;
use page::{PAGE_BYTES, PageMutVec};
use pool::slab::Slab;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use transfer::{Active, Verdict, Waits, Work, ZeroMethod};
use types::ShardIndex;

/// How long a device may say "try again" (EAGAIN, or a transfer that does not advance) before that counts as a failure.
const RETRY_LIMIT_NS: u64 = 10_000_000_000;
/// Pause before trying again.
const RETRY_PAUSE_NS: u64 = 1_000_000;

/// Who is told when an I/O is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A request to a bare volume on this reactor, by its number.
    Bare(u32),
    /// A shard on this reactor.
    Shard { pool: u32, shard: ShardIndex, id: IoId },
    /// Another reactor, which knows the I/O by this tag.
    Remote { reactor: u16, tag: u32 },
    /// The flush gate of the device: this is the flush that others wait for.
    Gate,
    /// The device was given up and the owner was told: only the kernel still uses the I/O's memory.
    Nobody,
}

/// A finished I/O on its way to its owner.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) owner: Owner,
    pub(crate) result: Result<(), IoError>,
    pub(crate) pages: PageMutVec,
}

struct Device {
    shared: Arc<DeviceShared>,
    /// For flushes: it hears of each write-back error once.
    flush_file: File,
    model: Option<Box<DiskModel>>,
    zero_method: ZeroMethod,
    can_discard: bool,
    stats: Box<DeviceStats>,
    /// When it last completed anything here.
    answered_ns: u64,
    /// It takes no more I/O.
    given_up: bool,
    /// It goes when the kernel has completed what it still has of it.
    leaving: bool,
}

impl Device {
    /// All but flushes go to the file that has the lock: the kernel keeps it open, and so locked, as
    /// long as it has the I/O, also after the end of the process. Otherwise another daemon could use
    /// the device while writes of this one are still to come.
    fn file_for(&self, work: &Work) -> &File {
        if matches!(work, Work::Flush) { &self.flush_file } else { &self.shared.file }
    }
}

/// All device I/O of one reactor.
pub(crate) struct DeviceIo {
    reactor: u16,
    directory: Arc<Directory>,
    devices: Vec<Option<Device>>,
    active: Slab<Active>,
    /// I/Os in `active` that belong to nobody.
    orphans: usize,
    forwarded: Slab<Owner>,
    finished: VecDeque<Finished>,
    retries: VecDeque<(u64, u32)>,
    spare_iovecs: Vec<Vec<libc::iovec>>,
    answered: Vec<FlushWaiter>,
}

impl DeviceIo {
    pub(crate) fn new(reactor: u16, directory: Arc<Directory>) -> DeviceIo {
        DeviceIo {
            reactor,
            directory,
            devices: Vec::new(),
            active: Slab::new(),
            orphans: 0,
            forwarded: Slab::new(),
            finished: VecDeque::new(),
            retries: VecDeque::new(),
            spare_iovecs: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Makes a device usable on this reactor. The model comes only to its home.
    pub(crate) fn add(&mut self, shared: Arc<DeviceShared>, model: Option<Box<DiskModel>>) -> io::Result<()> {
        let number = shared.number as usize;
        if self.devices.len() <= number {
            self.devices.resize_with(number + 1, || None);
        }
        let flush_file = reopen(&shared.file).or_else(|_| shared.file.try_clone())?;
        self.devices[number] = Some(Device {
            flush_file,
            model,
            zero_method: ZeroMethod::PunchHole,
            can_discard: shared.geometry().discard,
            stats: Box::default(),
            answered_ns: 0,
            given_up: false,
            leaving: false,
            shared,
        });
        Ok(())
    }

    /// The model of a device, if it is here, gets this size.
    pub(crate) fn grow_model(&mut self, number: u32, size_bytes: u64) {
        let device = self.devices.get_mut(number as usize).and_then(Option::as_mut);
        if let Some(model) = device.and_then(|device| device.model.as_mut()) {
            model.grow(size_bytes);
        }
    }

    /// What was counted on a device here.
    pub(crate) fn stats(&self, number: u32) -> Box<DeviceStats> {
        let device = self.devices.get(number as usize).and_then(Option::as_ref);
        device.map_or_else(Box::default, |device| device.stats.clone())
    }

    /// I/Os in flight here that somebody waits for, those held by a model included.
    pub(crate) fn in_flight(&self) -> usize {
        self.active.len() - self.orphans + self.forwarded.len()
    }

    /// Whether there is a finished I/O.
    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// The next finished I/O.
    pub(crate) fn pop_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Starts an I/O; its end is seen by [`DeviceIo::pop_finished`], never before this returns.
    pub(crate) fn submit(&mut self, ring: &mut Ring, now_ns: u64, device: u32, io: Io, owner: Owner) {
        let Io { offset_bytes, length_bytes, kind, writes, .. } = io;
        let Some(known) = self.devices.get_mut(device as usize).and_then(Option::as_mut) else {
            return self.refuse(owner, kind, IoError::Failed);
        };
        if let Some(home) = known.shared.model_home.filter(|home| *home != self.reactor) {
            let tag = self.forwarded.insert(owner);
            let io = Io { offset_bytes, length_bytes, kind, ..io };
            return self.directory.send(home, Message::RemoteIo { device, io, from: self.reactor, tag });
        }
        let geometry = known.shared.geometry();
        if known.given_up {
            return self.refuse(owner, kind, IoError::Failed);
        }
        let inside = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= geometry.size_bytes);
        let aligned = (offset_bytes | length_bytes).is_multiple_of(u64::from(geometry.logical_block_bytes));
        let failed = known.shared.failed.load(Ordering::Acquire) && !matches!(kind, IoKind::Read(_));
        if !inside || !aligned || failed {
            return self.refuse(owner, kind, IoError::Failed);
        }
        if matches!(kind, IoKind::Discard) && !known.can_discard {
            return self.refuse(owner, kind, IoError::Unsupported);
        }
        let work = match kind {
            IoKind::Read(pages) => Work::Read(pages),
            IoKind::Write { pages, fua } => Work::Write { pages, fua, stream: known.shared.streams.of(writes) },
            IoKind::WriteZeroes { fua, hole } => Work::Zero { method: known.zero_method, fua, hole },
            IoKind::Discard => Work::Discard,
            IoKind::Flush => Work::Flush,
        };
        if let Work::Read(pages) = &work {
            assert!((pages.len() * PAGE_BYTES) as u64 >= offset_bytes % PAGE_BYTES as u64 + length_bytes, "too few pages");
        }
        if let Work::Write { pages, .. } = &work {
            assert!((pages.len() * PAGE_BYTES) as u64 >= offset_bytes % PAGE_BYTES as u64 + length_bytes, "too few pages");
        }
        let is_flush = matches!(work, Work::Flush);
        let iovecs = self.spare_iovecs.pop().unwrap_or_default();
        let slot = self.active.insert(Active::new(now_ns, device, owner, (offset_bytes, length_bytes), work, iovecs));
        if is_flush {
            return self.arrive_at_gate(ring, now_ns, slot);
        }
        self.submit_to_model(now_ns, slot);
        self.transfer(ring, slot);
    }

    /// The device cannot do it; the pages of a read come back untouched.
    fn refuse(&mut self, owner: Owner, kind: IoKind, error: IoError) {
        let pages = if let IoKind::Read(pages) = kind { pages } else { PageMutVec::new() };
        self.answer(Finished { owner, result: Err(error), pages });
    }

    /// The model gets the present piece of an I/O.
    fn submit_to_model(&mut self, now_ns: u64, slot: u32) {
        let active = self.active.get_mut(slot).expect("in flight");
        let device = self.devices[active.device as usize].as_mut().expect("a device outlives its I/Os");
        if let Some(model) = &mut device.model {
            let ((offset_bytes, length_bytes), (kind, fua)) = (active.left(), active.work.model_kind());
            model.submit(now_ns, IoDescription { token: u64::from(slot), kind, offset_bytes, length_bytes, fua });
            active.model_pending = true;
        }
    }

    /// A flush, or the tail of a FUA I/O that has no FUA of its own, comes to the gate.
    fn arrive_at_gate(&mut self, ring: &mut Ring, now_ns: u64, slot: u32) {
        let active = self.active.get_mut(slot).expect("in flight");
        active.waits = Waits::Flush;
        let device = active.device;
        let waiter = FlushWaiter { reactor: self.reactor, slot };
        let arrival = self.device(device).shared.gate.lock().expect("no panic under the lock").arrive(waiter);
        match arrival {
            Arrival::Start => self.start_flush(ring, now_ns, device),
            Arrival::Wait => {}
            Arrival::Failed => self.finish(ring, now_ns, slot, Err(IoError::Failed)),
        }
    }

    fn start_flush(&mut self, ring: &mut Ring, now_ns: u64, device: u32) {
        let iovecs = self.spare_iovecs.pop().unwrap_or_default();
        let slot = self.active.insert(Active::new(now_ns, device, Owner::Gate, (0, 0), Work::Flush, iovecs));
        self.submit_to_model(now_ns, slot);
        self.transfer(ring, slot);
    }

    fn device(&mut self, number: u32) -> &mut Device {
        self.devices[number as usize].as_mut().expect("a device outlives its I/Os")
    }

    /// Hands the kernel what is left to do of an I/O.
    fn transfer(&mut self, ring: &mut Ring, slot: u32) {
        let active = self.active.get_mut(slot).expect("in flight");
        let device = self.devices[active.device as usize].as_ref().expect("a device outlives its I/Os");
        active.waits = Waits::Kernel;
        let entry = active.entry(Fd(device.file_for(&active.work).as_raw_fd()));
        // SAFETY: the entry names pages, static zeroes and the vector of pieces: all live as long as the `Active`, which leaves the table
        // only in `finish`, after the entry's completion. Since IORING_FEAT_SUBMIT_STABLE the vector itself is
        // read at submission.
        unsafe { ring.push(entry.user_data(user_data(Kind::Device, slot)).into()) };
    }

    /// An entry of an I/O has completed.
    pub(crate) fn complete(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: i32) {
        let active = self.active.get_mut(slot).expect("a completion names something in flight");
        let device = self.devices[active.device as usize].as_mut().expect("a device outlives its I/Os");
        device.answered_ns = now_ns;
        if matches!(active.owner, Owner::Nobody) {
            return self.orphan_completed(slot);
        }
        let block_bytes = u64::from(device.shared.geometry().logical_block_bytes);
        match active.judge(result, block_bytes) {
            Verdict::Done => self.real_done(ring, now_ns, slot, Ok(())),
            Verdict::Failed(error) => {
                device.shared.refusals.refused(active.work.asked(), (result < 0).then_some(-result));
                self.real_done(ring, now_ns, slot, Err(error));
            }
            Verdict::More => self.transfer(ring, slot),
            Verdict::OtherMethod(method) => {
                device.zero_method = method;
                self.transfer(ring, slot);
            }
            Verdict::NoStreams(errno) => {
                device.shared.streams.refused(errno);
                self.transfer(ring, slot);
            }
            Verdict::CannotDiscard => {
                device.can_discard = false;
                // Where a part of it was freed, the rest stays as it was, which a discard allows.
                let result = if active.was_deallocated { Ok(()) } else { Err(IoError::Unsupported) };
                active.give_up_rest();
                self.real_done(ring, now_ns, slot, result);
            }
            Verdict::TryLater => {
                let since_ns = *active.stuck_since_ns.get_or_insert(now_ns);
                if now_ns - since_ns > RETRY_LIMIT_NS {
                    device.shared.refusals.refused(active.work.asked(), (result < 0).then_some(-result));
                    self.real_done(ring, now_ns, slot, Err(IoError::Failed));
                } else {
                    active.waits = Waits::Retry;
                    self.retries.push_back((now_ns + RETRY_PAUSE_NS, slot));
                }
            }
        }
    }

    /// The real I/O is done; with a model, that may not be the end.
    fn real_done(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let active = self.active.get_mut(slot).expect("in flight");
        if active.model_pending {
            (active.held, active.waits) = (Some(result), Waits::Model);
        } else {
            self.after_transfer(ring, now_ns, slot, result);
        }
    }

    fn after_transfer(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let active = self.active.get_mut(slot).expect("in flight");
        if result.is_ok() && active.next_piece() {
            self.submit_to_model(now_ns, slot);
            return self.transfer(ring, slot);
        }
        let needs_flush = result.is_ok() && active.was_deallocated && matches!(active.work, Work::Zero { fua: true, .. });
        if needs_flush {
            self.arrive_at_gate(ring, now_ns, slot);
        } else {
            self.finish(ring, now_ns, slot, result);
        }
    }

    fn finish(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let Active { device, owner, work, mut iovecs, length_bytes, submitted_ns, .. } = self.active.remove(slot);
        iovecs.clear();
        self.spare_iovecs.push(iovecs);
        let latency_ns = now_ns.saturating_sub(submitted_ns);
        let known = self.device(device);
        let leaving = known.leaving;
        if matches!(owner, Owner::Gate) {
            known.stats.record_flush(latency_ns, result.is_ok());
            return self.end_flush(ring, now_ns, device, result.is_ok());
        }
        // A write that was under way when the device failed a flush may be lost: it must not be believed.
        let is_lost = !matches!(work, Work::Read(_)) && known.shared.failed.load(Ordering::Acquire);
        let result = if is_lost { Err(IoError::Failed) } else { result };
        if result.is_ok() && !matches!(work, Work::Flush | Work::Discard) {
            known.shared.refusals.done(work.asked());
        }
        match &work {
            Work::Read(_) => known.stats.record_read(length_bytes, latency_ns, result),
            Work::Write { .. } => known.stats.record_write(length_bytes, latency_ns, result),
            Work::Zero { .. } | Work::Discard => known.stats.record_trim(length_bytes, result),
            // Counted once for all who share it, above.
            Work::Flush => {}
        }
        let pages = if let Work::Read(pages) = work { pages } else { PageMutVec::new() };
        self.answer(Finished { owner, result, pages });
        if leaving {
            self.forget_if_gone(device);
        }
    }

    fn end_flush(&mut self, ring: &mut Ring, now_ns: u64, device: u32, succeeded: bool) {
        let mut answered = std::mem::take(&mut self.answered);
        let shared = &self.device(device).shared;
        if !succeeded {
            shared.failed.store(true, Ordering::Release);
        }
        let Ended { believed, start_next } = shared.gate.lock().expect("no panic under the lock").end(succeeded, &mut answered);
        for waiter in answered.drain(..) {
            if waiter.reactor == self.reactor {
                self.flush_ended(ring, now_ns, waiter.slot, believed);
            } else {
                self.directory.send(waiter.reactor, Message::FlushEnded { slot: waiter.slot, believed });
            }
        }
        self.answered = answered;
        if start_next {
            self.start_flush(ring, now_ns, device);
        }
    }

    /// A flush that an I/O here waited for has ended, here or on another reactor.
    pub(crate) fn flush_ended(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, believed: bool) {
        self.finish(ring, now_ns, slot, if believed { Ok(()) } else { Err(IoError::Failed) });
    }

    fn answer(&mut self, finished: Finished) {
        if let Owner::Remote { reactor, tag } = finished.owner {
            let Finished { result, pages, .. } = finished;
            self.directory.send(reactor, Message::RemoteIoDone { tag, result, pages });
        } else {
            self.finished.push_back(finished);
        }
    }

    /// An I/O of another reactor has ended there.
    pub(crate) fn forwarded_done(&mut self, tag: u32, result: Result<(), IoError>, pages: PageMutVec) {
        let owner = self.forwarded.remove(tag);
        self.finished.push_back(Finished { owner, result, pages });
    }

    /// Does what has become due: models' completions and second attempts.
    pub(crate) fn tick(&mut self, ring: &mut Ring, now_ns: u64) {
        while let Some((_, slot)) = self.retries.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.transfer(ring, slot);
        }
        for number in 0..self.devices.len() {
            while let Some(token) = self.pop_from_model(number, now_ns) {
                let slot = token as u32;
                let active = self.active.get_mut(slot).expect("the model holds what is in flight");
                active.model_pending = false;
                if let Some(result) = active.held.take() {
                    self.after_transfer(ring, now_ns, slot, result);
                }
            }
        }
    }

    fn pop_from_model(&mut self, number: usize, now_ns: u64) -> Option<u64> {
        let device = self.devices[number].as_mut()?;
        let token = device.model.as_mut()?.pop_completed(now_ns)?;
        device.answered_ns = now_ns;
        Some(token)
    }

    /// When [`DeviceIo::tick`] has something to do.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        let models = self.devices.iter().flatten().filter_map(|device| device.model.as_ref()?.next_deadline_ns());
        models.chain(self.retries.front().map(|(at_ns, _)| *at_ns)).min()
    }
}
