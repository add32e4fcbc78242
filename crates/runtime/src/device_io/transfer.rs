//! One I/O on its way: the entry that does what is left of it, and what a completion means.

use super::Owner;
use crate::refusals::Asked;
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
    Write { pages: PageVec, fua: bool },
    Zero { method: ZeroMethod, fua: bool },
    Discard,
    Flush,
}

impl Work {
    pub(super) fn asked(&self) -> Asked {
        match self {
            Work::Read(_) => Asked::Read,
            Work::Write { .. } | Work::Zero { .. } | Work::Discard => Asked::Write,
            Work::Flush => Asked::Flush,
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
}

/// Zeroes to write where the device has no better way; 64 KiB, named as often as needed.
#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl Active {
    /// The entry that does what is left.
    pub(super) fn entry(&mut self, fd: Fd) -> squeue::Entry {
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
    pub(super) fn judge(&mut self, result: i32, block_bytes: u64) -> Verdict {
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
