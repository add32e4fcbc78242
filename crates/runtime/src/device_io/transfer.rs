//! One I/O on its way: the entry that does what is left of it, and what a completion means.

use super::Owner;
use crate::refusals::Asked;
use device::model::IoKind as ModelKind;
use engine::api::IoError;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use page::{PAGE_BYTES, PageMutVec, PageVec};

/// Pieces of memory in one system call: IOV_MAX of Linux.
const IOVECS_MAX: usize = 1024;
/// Ways to make a range read as zeroes, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum ZeroMethod {
    PunchHole,
    ZeroRange,
    WritePages,
}

pub(super) enum Work {
    Read(PageMutVec),
    /// `stream`: which one of the device's write streams; 0: none.
    Write {
        pages: PageVec,
        fua: bool,
        stream: u8,
    },
    /// `hole`: the client gives the range up.
    Zero {
        method: ZeroMethod,
        fua: bool,
        hole: bool,
    },
    Discard,
    Flush,
}

/// Longest piece of zeroes that are written, in one go: whoever else wants the device comes between two.
const WRITTEN_PIECE_BYTES: u64 = 2 << 20;
/// Longest piece of a range that is deallocated.
const FREED_PIECE_BYTES: u64 = 64 << 20;

impl Work {
    pub(super) fn asked(&self) -> Asked {
        match self {
            Work::Read(_) => Asked::Read,
            Work::Write { .. } | Work::Zero { .. } | Work::Discard => Asked::Write,
            Work::Flush => Asked::Flush,
        }
    }

    /// How it looks to a model. What is deallocated moves no data.
    pub(super) fn model_kind(&self) -> (ModelKind, bool) {
        match self {
            Work::Read(_) => (ModelKind::Read, false),
            Work::Write { fua, .. } => (ModelKind::Write, *fua),
            Work::Zero { method: ZeroMethod::PunchHole, hole: true, .. } | Work::Discard => (ModelKind::Discard, false),
            Work::Zero { fua, .. } => (ModelKind::Write, *fua),
            Work::Flush => (ModelKind::Flush, false),
        }
    }

    /// The longest piece of it that is done in one go.
    fn piece_bytes_max(&self) -> u64 {
        match self {
            Work::Zero { method: ZeroMethod::PunchHole, hole: true, .. } | Work::Discard => FREED_PIECE_BYTES,
            Work::Zero { .. } => WRITTEN_PIECE_BYTES,
            Work::Read(_) | Work::Write { .. } | Work::Flush => u64::MAX,
        }
    }
}

/// What an I/O in progress waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// The kernel: it may read and write the I/O's memory.
    Kernel,
    /// A flush of the device that others asked for too.
    Flush,
    /// The time of the next attempt.
    Retry,
    /// The model: the real I/O is done.
    Model,
}

/// An I/O in progress.
pub(super) struct Active {
    pub(super) device: u32,
    pub(super) waits: Waits,
    pub(super) owner: Owner,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) done_bytes: u64,
    /// Where the present piece of it ends.
    piece_end_bytes: u64,
    /// Something of it was zeroed without a transfer: that is durable only after a flush.
    pub(super) was_deallocated: bool,
    pub(super) work: Work,
    pub(super) iovecs: Vec<libc::iovec>,
    /// When the device first said "try again" since it last advanced.
    pub(super) stuck_since_ns: Option<u64>,
    /// The real I/O's result, held back because the model is not done.
    pub(super) held: Option<Result<(), IoError>>,
    pub(super) model_pending: bool,
    pub(super) submitted_ns: u64,
}

impl Active {
    /// An I/O of which nothing is done.
    pub(super) fn new(now_ns: u64, device: u32, owner: Owner, range: (u64, u64), work: Work, iovecs: Vec<libc::iovec>) -> Active {
        let (offset_bytes, length_bytes) = range;
        Active {
            device,
            waits: Waits::Kernel,
            owner,
            offset_bytes,
            length_bytes,
            done_bytes: 0,
            piece_end_bytes: length_bytes.min(work.piece_bytes_max()),
            was_deallocated: false,
            work,
            iovecs,
            stuck_since_ns: None,
            held: None,
            model_pending: false,
            submitted_ns: now_ns,
        }
    }
}

pub(super) enum Verdict {
    Done,
    More,
    Failed(IoError),
    TryLater,
    OtherMethod(ZeroMethod),
    CannotDiscard,
    /// A write that named a stream is to be done again without: what the device said.
    NoStreams(i32),
}

/// Zeroes to write where the device has no better way; 64 KiB, named as often as needed.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl Active {
    /// What of the present piece is left, from where on.
    pub(super) fn left(&self) -> (u64, u64) {
        (self.offset_bytes + self.done_bytes, self.piece_end_bytes - self.done_bytes)
    }

    /// Goes on to the next piece. False if all of it is done.
    pub(super) fn next_piece(&mut self) -> bool {
        let is_left = self.done_bytes < self.length_bytes;
        self.piece_end_bytes = self.length_bytes.min(self.done_bytes.saturating_add(self.work.piece_bytes_max()));
        is_left
    }

    /// What is not done of it stays undone.
    pub(super) fn give_up_rest(&mut self) {
        self.length_bytes = self.done_bytes;
    }

    /// The entry that does what is left of the present piece.
    pub(super) fn entry(&mut self, fd: Fd) -> squeue::Entry {
        let (offset_bytes, left_bytes) = self.left();
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
            Work::Write { pages, fua, stream } => {
                gather(&mut self.iovecs, pages.iter().skip(first).map(|page| page.as_ptr().cast_mut()), within_bytes, left_bytes);
                write_entry(fd, &self.iovecs, offset_bytes, *fua, *stream)
            }
            Work::Zero { method: ZeroMethod::WritePages, fua, .. } => {
                let mut left_bytes = left_bytes;
                while left_bytes > 0 && self.iovecs.len() < IOVECS_MAX {
                    let piece_bytes = left_bytes.min(ZEROES.0.len() as u64);
                    self.iovecs.push(libc::iovec { iov_base: ZEROES.0.as_ptr().cast_mut().cast(), iov_len: piece_bytes as usize });
                    left_bytes -= piece_bytes;
                }
                write_entry(fd, &self.iovecs, offset_bytes, *fua, 0)
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
    pub(super) fn judge(&mut self, result: i32, block_bytes: u64) -> Verdict {
        if result < 0 {
            return self.judge_error(-result);
        }
        let left_bytes = self.piece_end_bytes - self.done_bytes;
        let is_whole = match &self.work {
            Work::Flush | Work::Discard => true,
            Work::Zero { method, .. } => *method != ZeroMethod::WritePages,
            Work::Read(_) | Work::Write { .. } => false,
        };
        if is_whole {
            self.done_bytes = self.piece_end_bytes;
            self.was_deallocated = true;
            return Verdict::Done;
        }
        let moved_bytes = result as u64;
        assert!(moved_bytes <= left_bytes, "the kernel moved more than was asked for");
        if moved_bytes == left_bytes {
            self.done_bytes = self.piece_end_bytes;
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
            (Work::Write { stream, .. }, libc::EINVAL | libc::EOPNOTSUPP) if *stream > 0 => {
                *stream = 0;
                Verdict::NoStreams(errno)
            }
            (Work::Zero { method, .. }, _) if unsupported && *method != ZeroMethod::WritePages => {
                *method = if *method == ZeroMethod::PunchHole { ZeroMethod::ZeroRange } else { ZeroMethod::WritePages };
                Verdict::OtherMethod(*method)
            }
            _ => Verdict::Failed(IoError::Failed),
        }
    }
}

fn write_entry(fd: Fd, iovecs: &[libc::iovec], offset_bytes: u64, fua: bool, stream: u8) -> squeue::Entry {
    let flags = if fua { libc::RWF_DSYNC } else { 0 };
    match iovecs {
        [one] => {
            let write = opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32);
            write.offset(offset_bytes).rw_flags(flags).write_stream(stream).build()
        }
        many => {
            let write = opcode::Writev::new(fd, many.as_ptr(), many.len() as u32);
            write.offset(offset_bytes).rw_flags(flags).write_stream(stream).build()
        }
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
        Active::new(0, 0, Owner::Gate, (512, length_bytes), work, Vec::new())
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
        let mut write = active(512, Work::Write { pages: PageVec::new(), fua: false, stream: 0 });
        assert!(matches!(write.judge(-libc::ENOSPC, 512), Verdict::Failed(IoError::NoSpace)));
        assert!(matches!(write.judge(-libc::EIO, 512), Verdict::Failed(IoError::Failed)));
        assert!(matches!(write.judge(-libc::EINTR, 512), Verdict::More));
        assert!(matches!(write.judge(-libc::EAGAIN, 512), Verdict::TryLater));
        let mut flush = active(0, Work::Flush);
        assert!(matches!(flush.judge(-libc::EINTR, 512), Verdict::Failed(IoError::Failed)), "a flush has one attempt");
        assert!(matches!(active(512, Work::Discard).judge(-libc::EOPNOTSUPP, 512), Verdict::CannotDiscard));
    }

    #[test]
    fn a_write_that_is_refused_with_a_stream_is_done_again_without() {
        for errno in [libc::EINVAL, libc::EOPNOTSUPP] {
            let mut write = active(512, Work::Write { pages: PageVec::new(), fua: false, stream: 3 });
            assert!(matches!(write.judge(-libc::EAGAIN, 512), Verdict::TryLater), "that says nothing of the stream");
            assert!(matches!(write.judge(-errno, 512), Verdict::NoStreams(said) if said == errno));
            assert!(matches!(write.work, Work::Write { stream: 0, .. }));
            assert!(matches!(write.judge(-errno, 512), Verdict::Failed(IoError::Failed)), "without one there is no other way");
        }
        let mut write = active(512, Work::Write { pages: PageVec::new(), fua: false, stream: 3 });
        assert!(matches!(write.judge(-libc::EIO, 512), Verdict::Failed(IoError::Failed)), "the SSD fails");
    }

    #[test]
    fn zeroes_fall_back_step_by_step() {
        let mut zero = active(1 << 20, Work::Zero { method: ZeroMethod::PunchHole, fua: true, hole: false });
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::ZeroRange)));
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::WritePages)));
        zero.entry(Fd(0));
        assert_eq!(zero.iovecs.iter().map(|piece| piece.iov_len).sum::<usize>(), 1 << 20);
        assert!(matches!(zero.judge(-libc::EOPNOTSUPP, 512), Verdict::Failed(IoError::Failed)));
    }

    /// Long ranges are done in pieces, so that others get their turn between two; what is given up takes longer ones than what is written.
    #[test]
    fn a_long_range_is_done_piece_by_piece() {
        let zero = |method, hole| Work::Zero { method, fua: true, hole };
        let cases = [
            (zero(ZeroMethod::PunchHole, true), FREED_PIECE_BYTES, ModelKind::Discard),
            (Work::Discard, FREED_PIECE_BYTES, ModelKind::Discard),
            (zero(ZeroMethod::PunchHole, false), WRITTEN_PIECE_BYTES, ModelKind::Write),
            (zero(ZeroMethod::ZeroRange, true), WRITTEN_PIECE_BYTES, ModelKind::Write),
        ];
        for (work, piece_bytes, kind) in cases {
            let length_bytes = 3 * piece_bytes + 512;
            let mut io = active(length_bytes, work);
            let mut pieces = Vec::new();
            loop {
                assert_eq!(io.work.model_kind().0, kind);
                pieces.push(io.left());
                assert!(matches!(io.judge(0, 512), Verdict::Done));
                if !io.next_piece() {
                    break;
                }
            }
            let expected: Vec<_> = (0..3).map(|n| (512 + n * piece_bytes, piece_bytes)).chain([(512 + 3 * piece_bytes, 512)]).collect();
            assert_eq!(pieces, expected);
            assert!(io.was_deallocated, "a flush makes it durable");
        }
        // One that has no better way in the middle goes on from there by writing.
        let mut io = active(WRITTEN_PIECE_BYTES + 4096, zero(ZeroMethod::PunchHole, false));
        assert!(matches!(io.judge(0, 512), Verdict::Done) && io.next_piece());
        assert!(matches!(io.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::ZeroRange)));
        assert!(matches!(io.judge(-libc::EOPNOTSUPP, 512), Verdict::OtherMethod(ZeroMethod::WritePages)));
        assert!(matches!(io.judge(4096, 512), Verdict::Done) && !io.next_piece());
        assert_eq!(io.done_bytes, io.length_bytes);
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
