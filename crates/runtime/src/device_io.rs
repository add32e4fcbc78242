//! Performs the engine's I/Os on real devices through the ring.
//!
//! Invariants: an I/O is answered exactly once, with its pages; it succeeds only if every byte of it was transferred (a short transfer
//! is continued, never taken for the whole); a write or flush never succeeds on a device that has failed a flush;
//! the memory an entry names belongs to an [`Active`] that stays in the table until the entry has completed.

use crate::devices::{DeviceShared, reopen};
use crate::flush_gate::{Arrival, FlushGate};
use crate::message::{Directory, Message};
use crate::ring::Ring;
use crate::slab::Slab;
use crate::user_data::{Kind, user_data};
use device::model::{DiskModel, IoDescription, IoKind as ModelKind};
use engine::api::{Io, IoError, IoId, IoKind};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use page::{PAGE_BYTES, PageMutVec, PageVec};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use types::ShardIndex;

/// Pieces of memory in one system call: IOV_MAX of Linux.
const IOVECS_MAX: usize = 1024;
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
}

/// A finished I/O on its way to its owner.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) owner: Owner,
    pub(crate) result: Result<(), IoError>,
    pub(crate) pages: PageMutVec,
}

/// Ways to make a range read as zeroes, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum ZeroMethod {
    PunchHole,
    ZeroRange,
    WritePages,
}

enum Work {
    Read(PageMutVec),
    Write { pages: PageVec, fua: bool },
    Zero { method: ZeroMethod, fua: bool },
    Discard,
    Flush,
}

/// An I/O in progress.
struct Active {
    device: u32,
    owner: Owner,
    offset_bytes: u64,
    length_bytes: u64,
    done_bytes: u64,
    work: Work,
    iovecs: Vec<libc::iovec>,
    /// When the device first said "try again" since it last advanced.
    stuck_since_ns: Option<u64>,
    /// The real I/O's result, held back because the model is not done.
    held: Option<Result<(), IoError>>,
    model_pending: bool,
}

struct Device {
    shared: Arc<DeviceShared>,
    file: File,
    gate: FlushGate<u32>,
    model: Option<Box<DiskModel>>,
    zero_method: ZeroMethod,
    can_discard: bool,
}

/// All device I/O of one reactor.
pub(crate) struct DeviceIo {
    reactor: u16,
    directory: Arc<Directory>,
    devices: Vec<Option<Device>>,
    active: Slab<Active>,
    forwarded: Slab<Owner>,
    finished: VecDeque<Finished>,
    retries: VecDeque<(u64, u32)>,
    spare_iovecs: Vec<Vec<libc::iovec>>,
    answered: Vec<u32>,
}

impl DeviceIo {
    pub(crate) fn new(reactor: u16, directory: Arc<Directory>) -> DeviceIo {
        DeviceIo {
            reactor,
            directory,
            devices: Vec::new(),
            active: Slab::new(),
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
        let file = reopen(&shared.file).or_else(|_| shared.file.try_clone())?;
        self.devices[number] = Some(Device {
            file,
            gate: FlushGate::new(shared.failed.clone()),
            model,
            zero_method: ZeroMethod::PunchHole,
            can_discard: shared.geometry.discard,
            shared,
        });
        Ok(())
    }

    /// Forgets a device. None of its I/Os may be in flight.
    pub(crate) fn remove(&mut self, number: u32) {
        assert!(self.active.iter().all(|(_, active)| active.device != number), "a device is removed after its users");
        self.devices[number as usize] = None;
    }

    /// I/Os in flight here, those held by a model included.
    pub(crate) fn in_flight(&self) -> usize {
        self.active.len() + self.forwarded.len()
    }

    /// The next finished I/O.
    pub(crate) fn pop_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Starts an I/O; its end is seen by [`DeviceIo::pop_finished`], never before this returns.
    pub(crate) fn submit(&mut self, ring: &mut Ring, now_ns: u64, device: u32, io: Io, owner: Owner) {
        let Io { offset_bytes, length_bytes, kind, .. } = io;
        let Some(known) = self.devices.get_mut(device as usize).and_then(Option::as_mut) else {
            return self.refuse(owner, kind, IoError::Failed);
        };
        if let Some(home) = known.shared.model_home.filter(|home| *home != self.reactor) {
            let tag = self.forwarded.insert(owner);
            let io = Io { offset_bytes, length_bytes, kind, ..io };
            return self.directory.send(home, Message::RemoteIo { device, io, from: self.reactor, tag });
        }
        let geometry = known.shared.geometry;
        let inside = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= geometry.size_bytes);
        let aligned = (offset_bytes | length_bytes).is_multiple_of(u64::from(geometry.logical_block_bytes));
        let failed = known.gate.has_failed() && !matches!(kind, IoKind::Read(_));
        if !inside || !aligned || failed {
            return self.refuse(owner, kind, IoError::Failed);
        }
        if matches!(kind, IoKind::Discard) && !known.can_discard {
            return self.refuse(owner, kind, IoError::Unsupported);
        }
        let (work, model_kind, fua) = match kind {
            IoKind::Read(pages) => (Work::Read(pages), ModelKind::Read, false),
            IoKind::Write { pages, fua } => (Work::Write { pages, fua }, ModelKind::Write, fua),
            IoKind::WriteZeroes { fua } => (Work::Zero { method: known.zero_method, fua }, ModelKind::Write, fua),
            IoKind::Discard => (Work::Discard, ModelKind::Discard, false),
            IoKind::Flush => (Work::Flush, ModelKind::Flush, false),
        };
        if let Work::Read(pages) = &work {
            assert!((pages.len() * PAGE_BYTES) as u64 >= offset_bytes % PAGE_BYTES as u64 + length_bytes, "too few pages");
        }
        if let Work::Write { pages, .. } = &work {
            assert!((pages.len() * PAGE_BYTES) as u64 >= offset_bytes % PAGE_BYTES as u64 + length_bytes, "too few pages");
        }
        let is_flush = matches!(work, Work::Flush);
        let slot = self.active.insert(Active {
            device,
            owner,
            offset_bytes,
            length_bytes,
            done_bytes: 0,
            work,
            iovecs: self.spare_iovecs.pop().unwrap_or_default(),
            stuck_since_ns: None,
            held: None,
            model_pending: false,
        });
        if is_flush {
            return self.arrive_at_gate(ring, now_ns, slot);
        }
        self.submit_to_model(now_ns, slot, model_kind, fua);
        self.transfer(ring, slot);
    }

    /// The device cannot do it; the pages of a read come back untouched.
    fn refuse(&mut self, owner: Owner, kind: IoKind, error: IoError) {
        let pages = if let IoKind::Read(pages) = kind { pages } else { PageMutVec::new() };
        self.finished.push_back(Finished { owner, result: Err(error), pages });
    }

    fn submit_to_model(&mut self, now_ns: u64, slot: u32, kind: ModelKind, fua: bool) {
        let active = self.active.get_mut(slot).expect("just inserted");
        let device = self.devices[active.device as usize].as_mut().expect("a device outlives its I/Os");
        if let Some(model) = &mut device.model {
            let (offset_bytes, length_bytes) = (active.offset_bytes, active.length_bytes);
            model.submit(now_ns, IoDescription { token: u64::from(slot), kind, offset_bytes, length_bytes, fua });
            active.model_pending = true;
        }
    }

    /// A flush, or the tail of a FUA I/O that has no FUA of its own, comes to the gate.
    fn arrive_at_gate(&mut self, ring: &mut Ring, now_ns: u64, slot: u32) {
        let device = self.active.get(slot).expect("in flight").device;
        match self.device(device).gate.arrive(slot) {
            Arrival::Start => self.start_flush(ring, now_ns, device),
            Arrival::Wait => {}
            Arrival::Failed => self.finish(ring, now_ns, slot, Err(IoError::Failed)),
        }
    }

    fn start_flush(&mut self, ring: &mut Ring, now_ns: u64, device: u32) {
        let slot = self.active.insert(Active {
            device,
            owner: Owner::Gate,
            offset_bytes: 0,
            length_bytes: 0,
            done_bytes: 0,
            work: Work::Flush,
            iovecs: self.spare_iovecs.pop().unwrap_or_default(),
            stuck_since_ns: None,
            held: None,
            model_pending: false,
        });
        self.submit_to_model(now_ns, slot, ModelKind::Flush, false);
        self.transfer(ring, slot);
    }

    fn device(&mut self, number: u32) -> &mut Device {
        self.devices[number as usize].as_mut().expect("a device outlives its I/Os")
    }

    /// Hands the kernel what is left to do of an I/O.
    fn transfer(&mut self, ring: &mut Ring, slot: u32) {
        let active = self.active.get_mut(slot).expect("in flight");
        let device = self.devices[active.device as usize].as_ref().expect("a device outlives its I/Os");
        let entry = active.entry(Fd(device.file.as_raw_fd()));
        // SAFETY: the entry names pages, static zeroes and the vector of pieces: all live as long as the `Active`, which leaves the table
        // only in `finish`, after the entry's completion. Since IORING_FEAT_SUBMIT_STABLE the vector itself is
        // read at submission.
        unsafe { ring.push(entry.user_data(user_data(Kind::Device, slot)).into()) };
    }

    /// An entry of an I/O has completed.
    pub(crate) fn complete(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: i32) {
        let active = self.active.get_mut(slot).expect("a completion names something in flight");
        let device = self.devices[active.device as usize].as_mut().expect("a device outlives its I/Os");
        let block_bytes = u64::from(device.shared.geometry.logical_block_bytes);
        match active.judge(result, block_bytes) {
            Verdict::Done => self.real_done(ring, now_ns, slot, Ok(())),
            Verdict::Failed(error) => self.real_done(ring, now_ns, slot, Err(error)),
            Verdict::More => self.transfer(ring, slot),
            Verdict::OtherMethod(method) => {
                device.zero_method = method;
                self.transfer(ring, slot);
            }
            Verdict::CannotDiscard => {
                device.can_discard = false;
                self.real_done(ring, now_ns, slot, Err(IoError::Unsupported));
            }
            Verdict::TryLater => {
                let since_ns = *active.stuck_since_ns.get_or_insert(now_ns);
                if now_ns - since_ns > RETRY_LIMIT_NS {
                    self.real_done(ring, now_ns, slot, Err(IoError::Failed));
                } else {
                    self.retries.push_back((now_ns + RETRY_PAUSE_NS, slot));
                }
            }
        }
    }

    /// The real I/O is done; with a model, that may not be the end.
    fn real_done(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let active = self.active.get_mut(slot).expect("in flight");
        if active.model_pending {
            active.held = Some(result);
        } else {
            self.after_transfer(ring, now_ns, slot, result);
        }
    }

    fn after_transfer(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let active = self.active.get(slot).expect("in flight");
        // What was zeroed without a transfer is durable only after a flush.
        let needs_flush = result.is_ok() && matches!(active.work, Work::Zero { method, fua: true } if method != ZeroMethod::WritePages);
        if needs_flush {
            self.arrive_at_gate(ring, now_ns, slot);
        } else {
            self.finish(ring, now_ns, slot, result);
        }
    }

    fn finish(&mut self, ring: &mut Ring, now_ns: u64, slot: u32, result: Result<(), IoError>) {
        let Active { device, owner, work, mut iovecs, .. } = self.active.remove(slot);
        iovecs.clear();
        self.spare_iovecs.push(iovecs);
        if matches!(owner, Owner::Gate) {
            return self.end_flush(ring, now_ns, device, result.is_ok());
        }
        let is_read = matches!(work, Work::Read(_));
        // A write that was under way when the device failed a flush may be lost: it must not be believed.
        let result = if !is_read && self.device(device).gate.has_failed() { Err(IoError::Failed) } else { result };
        let pages = if let Work::Read(pages) = work { pages } else { PageMutVec::new() };
        self.answer(Finished { owner, result, pages });
    }

    fn end_flush(&mut self, ring: &mut Ring, now_ns: u64, device: u32, succeeded: bool) {
        let mut answered = std::mem::take(&mut self.answered);
        let (believed, start_next) = self.device(device).gate.end(succeeded, &mut answered);
        let result = if believed { Ok(()) } else { Err(IoError::Failed) };
        for slot in answered.drain(..) {
            self.finish(ring, now_ns, slot, result);
        }
        self.answered = answered;
        if start_next {
            self.start_flush(ring, now_ns, device);
        }
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
        self.devices[number].as_mut()?.model.as_mut()?.pop_completed(now_ns)
    }

    /// When [`DeviceIo::tick`] has something to do.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        let models = self.devices.iter().flatten().filter_map(|device| device.model.as_ref()?.next_deadline_ns());
        models.chain(self.retries.front().map(|(at_ns, _)| *at_ns)).min()
    }
}

enum Verdict {
    Done,
    More,
    Failed(IoError),
    TryLater,
    OtherMethod(ZeroMethod),
    CannotDiscard,
}

/// Zeroes to write where the device has no better way; 64 KiB, named as often as needed.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl Active {
    /// The entry that does what is left.
    fn entry(&mut self, fd: Fd) -> squeue::Entry {
        let offset_bytes = self.offset_bytes + self.done_bytes;
        let left_bytes = self.length_bytes - self.done_bytes;
        let position_bytes = (self.offset_bytes % PAGE_BYTES as u64 + self.done_bytes) as usize;
        let (first, within_bytes) = (position_bytes / PAGE_BYTES, position_bytes % PAGE_BYTES);
        self.iovecs.clear();
        match &mut self.work {
            Work::Read(pages) => {
                let pages = pages.iter_mut().skip(first).map(|page| page.as_mut_ptr());
                gather(&mut self.iovecs, pages, within_bytes, left_bytes);
                match self.iovecs.as_slice() {
                    [one] => opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(offset_bytes).build(),
                    many => opcode::Readv::new(fd, many.as_ptr(), many.len() as u32).offset(offset_bytes).build(),
                }
            }
            Work::Write { pages, fua } => {
                gather(&mut self.iovecs, pages.iter().skip(first).map(|page| page.as_ptr().cast_mut()), within_bytes, left_bytes);
                write_entry(fd, &self.iovecs, offset_bytes, *fua)
            }
            Work::Zero { method: ZeroMethod::WritePages, fua } => {
                let mut left_bytes = left_bytes;
                while left_bytes > 0 && self.iovecs.len() < IOVECS_MAX {
                    let piece_bytes = left_bytes.min(ZEROES.0.len() as u64);
                    self.iovecs.push(libc::iovec { iov_base: ZEROES.0.as_ptr().cast_mut().cast(), iov_len: piece_bytes as usize });
                    left_bytes -= piece_bytes;
                }
                write_entry(fd, &self.iovecs, offset_bytes, *fua)
            }
            Work::Zero { method, .. } => {
                let how = if *method == ZeroMethod::PunchHole { libc::FALLOC_FL_PUNCH_HOLE } else { libc::FALLOC_FL_ZERO_RANGE };
                fallocate_entry(fd, offset_bytes, left_bytes, how)
            }
            Work::Discard => fallocate_entry(fd, offset_bytes, left_bytes, libc::FALLOC_FL_PUNCH_HOLE),
            Work::Flush => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// What a completion means for the whole I/O.
    fn judge(&mut self, result: i32, block_bytes: u64) -> Verdict {
        if result < 0 {
            return self.judge_error(-result);
        }
        match &self.work {
            Work::Flush | Work::Discard => return Verdict::Done,
            Work::Zero { method, .. } if *method != ZeroMethod::WritePages => return Verdict::Done,
            _ => {}
        }
        let left_bytes = self.length_bytes - self.done_bytes;
        let moved_bytes = result as u64;
        assert!(moved_bytes <= left_bytes, "the kernel moved more than was asked for");
        if moved_bytes == left_bytes {
            return Verdict::Done;
        }
        if moved_bytes == 0 {
            // End of file, or a device that takes nothing: there will never be more.
            return Verdict::Failed(IoError::Failed);
        }
        // Direct I/O continues at whole blocks only; what came of a broken one is transferred again.
        let moved_bytes = moved_bytes - moved_bytes % block_bytes;
        if moved_bytes == 0 {
            return Verdict::TryLater;
        }
        self.done_bytes += moved_bytes;
        self.stuck_since_ns = None;
        Verdict::More
    }

    fn judge_error(&mut self, errno: i32) -> Verdict {
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::ENODEV);
        match (&mut self.work, errno) {
            // No second attempt for a flush, whatever it says: what it was to save may be gone.
            (Work::Flush, _) => Verdict::Failed(IoError::Failed),
            (_, libc::EINTR) => Verdict::More,
            (_, libc::EAGAIN) => Verdict::TryLater,
            (_, libc::ENOSPC | libc::EDQUOT) => Verdict::Failed(IoError::NoSpace),
            (Work::Discard, _) if unsupported => Verdict::CannotDiscard,
            (Work::Zero { method, .. }, _) if unsupported && *method != ZeroMethod::WritePages => {
                *method = if *method == ZeroMethod::PunchHole { ZeroMethod::ZeroRange } else { ZeroMethod::WritePages };
                Verdict::OtherMethod(*method)
            }
            _ => Verdict::Failed(IoError::Failed),
        }
    }
}

fn write_entry(fd: Fd, iovecs: &[libc::iovec], offset_bytes: u64, fua: bool) -> squeue::Entry {
    let flags = if fua { libc::RWF_DSYNC } else { 0 };
    match iovecs {
        [one] => opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(offset_bytes).rw_flags(flags).build(),
        many => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32).offset(offset_bytes).rw_flags(flags).build(),
    }
}

fn fallocate_entry(fd: Fd, offset_bytes: u64, length_bytes: u64, how: i32) -> squeue::Entry {
    opcode::Fallocate::new(fd, length_bytes).offset(offset_bytes).mode(how | libc::FALLOC_FL_KEEP_SIZE).build()
}

/// Lists the memory of `left_bytes` that begin `within_bytes` into the first page; neighbouring pages become one piece.
fn gather(into: &mut Vec<libc::iovec>, pages: impl Iterator<Item = *mut u8>, mut within_bytes: usize, left_bytes: u64) {
    let mut left_bytes = left_bytes as usize;
    for page in pages {
        if left_bytes == 0 {
            break;
        }
        let piece_bytes = left_bytes.min(PAGE_BYTES - within_bytes);
        let base = page.wrapping_add(within_bytes);
        let neighbour = into.last_mut().filter(|last| last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base);
        if let Some(last) = neighbour {
            last.iov_len += piece_bytes;
        } else if into.len() == IOVECS_MAX {
            break;
        } else {
            into.push(libc::iovec { iov_base: base.cast(), iov_len: piece_bytes });
        }
        left_bytes -= piece_bytes;
        within_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use page::PagePool;

    fn active(length_bytes: u64, work: Work) -> Active {
        Active {
            device: 0,
            owner: Owner::Gate,
            offset_bytes: 512,
            length_bytes,
            done_bytes: 0,
            work,
            iovecs: Vec::new(),
            stuck_since_ns: None,
            held: None,
            model_pending: false,
        }
    }

    #[test]
    fn a_short_transfer_is_continued_at_a_whole_block_and_never_taken_for_the_whole() {
        let pool = PagePool::new(4);
        let pages: PageMutVec = (0..3).map(|_| pool.allocate().unwrap()).collect();
        let mut io = active(8192, Work::Read(pages));
        io.entry(Fd(0));
        assert_eq!(io.iovecs.iter().map(|piece| piece.iov_len).sum::<usize>(), 8192);
        assert!(matches!(io.judge(5000, 512), Verdict::More));
        assert_eq!(io.done_bytes, 4608);
        io.entry(Fd(0));
        assert_eq!(io.iovecs.iter().map(|piece| piece.iov_len).sum::<usize>(), 8192 - 4608);
        let Work::Read(pages) = &mut io.work else { unreachable!() };
        assert_eq!(io.iovecs[0].iov_base.cast::<u8>(), pages[1].as_mut_ptr().wrapping_add(1024));
        assert!(matches!(io.judge(100, 512), Verdict::TryLater));
        assert!(matches!(io.judge(0, 512), Verdict::Failed(IoError::Failed)), "the end of the file");
        assert!(matches!(io.judge(8192 - 4608, 512), Verdict::Done));
    }

    #[test]
    fn errors_are_told_apart() {
        let mut write = active(512, Work::Write { pages: PageVec::new(), fua: false });
        assert!(matches!(write.judge(-libc::ENOSPC, 512), Verdict::Failed(IoError::NoSpace)));
        assert!(matches!(write.judge(-libc::EIO, 512), Verdict::Failed(IoError::Failed)));
        assert!(matches!(write.judge(-libc::EINTR, 512), Verdict::More));
        assert!(matches!(write.judge(-libc::EAGAIN, 512), Verdict::TryLater));
        let mut flush = active(0, Work::Flush);
        assert!(matches!(flush.judge(-libc::EINTR, 512), Verdict::Failed(IoError::Failed)), "a flush has one attempt");
        assert!(matches!(active(512, Work::Discard).judge(-libc::EOPNOTSUPP, 512), Verdict::CannotDiscard));
    }

    #[test]
    fn zeroes_fall_back_step_by_step() {
        let mut zero = active(1 << 20, Work::Zero { method: ZeroMethod::PunchHole, fua: true });
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::ZeroRange)));
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::WritePages)));
        zero.entry(Fd(0));
        assert_eq!(zero.iovecs.iter().map(|piece| piece.iov_len).sum::<usize>(), 1 << 20);
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::Failed(IoError::Failed)));
    }

    #[test]
    fn neighbouring_pages_become_one_piece_and_the_list_is_bounded() {
        let mut memory = vec![0u8; 3 * PAGE_BYTES];
        let base = memory.as_mut_ptr();
        let mut pieces = Vec::new();
        gather(&mut pieces, (0..3).map(|page| base.wrapping_add(page * PAGE_BYTES)), 512, 8192);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].iov_len, 8192);
        pieces.clear();
        let scattered = (0..2000).map(|page| (page * 2 * PAGE_BYTES) as *mut u8);
        gather(&mut pieces, scattered, 0, 2000 * PAGE_BYTES as u64);
        assert_eq!(pieces.len(), IOVECS_MAX);
    }
}
