//! The io_uring of one reactor.

use io_uring::{IoUring, cqueue, squeue::Entry128, types::SubmitArgs, types::Timespec};
use std::collections::VecDeque;
use std::io;

/// `IORING_ENTER_GETEVENTS` of io_uring_enter(2): run deferred completions.
const ENTER_GETEVENTS: u32 = 1;
/// `IORING_ENTER_EXT_ARG` of io_uring_enter(2): the last argument is a `SubmitArgs`.
const ENTER_EXT_ARG: u32 = 8;

/// A completion: what was given as user data, the result, the flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// A ring with 128-byte entries whose submission side never fails: entries that find it full wait in memory.
pub(crate) struct Ring {
    ring: IoUring<Entry128, cqueue::Entry>,
    waiting: VecDeque<Entry128>,
    has_min_wait: bool,
}

impl Ring {
    /// Makes the ring. Must run on the thread that will use it: `SINGLE_ISSUER` binds the ring to it.
    ///
    /// Flags by age of the kernel: COOP_TASKRUN 5.19, SINGLE_ISSUER 6.0, DEFER_TASKRUN 6.1. SQE128 (5.19) is not optional.
    pub(crate) fn new(entries: u32) -> io::Result<Ring> {
        let mut refused = None;
        for (cooperative, single_and_deferred) in [(true, true), (true, false), (false, false)] {
            let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
            builder.setup_cqsize(entries * 4).setup_submit_all();
            if cooperative {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            if single_and_deferred {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            match builder.build(entries) {
                Ok(ring) => {
                    let parameters = ring.params();
                    // Without these the code here would be wrong, not slow; both are older (5.5, 5.11) than SQE128.
                    assert!(parameters.is_feature_nodrop() && parameters.is_feature_submit_stable() && parameters.is_feature_ext_arg());
                    let has_min_wait = parameters.is_feature_min_timeout();
                    return Ok(Ring { ring, waiting: VecDeque::new(), has_min_wait });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("at least one attempt was made"))
    }

    /// Puts an entry on the ring, or in line for it.
    ///
    /// # Safety
    /// What the entry points to must stay valid until its (last) completion.
    pub(crate) unsafe fn push(&mut self, entry: Entry128) {
        // SAFETY: the caller's promise is the one that the queue asks for.
        if !self.waiting.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.waiting.push_back(entry);
        }
    }

    fn refill(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.waiting.front() {
            // SAFETY: promised to `push`.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// Hands all entries to the kernel and gathers completions without waiting.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.enter(0, 0, ENTER_GETEVENTS, None)?;
        while !self.waiting.is_empty() && self.completions_ready() == 0 {
            self.enter(0, 0, ENTER_GETEVENTS, None)?;
        }
        Ok(())
    }

    /// Hands all entries to the kernel and sleeps until a completion is there, `sleep_ns` are over (`None`: no limit), or a signal comes.
    ///
    /// `batch` above 1 asks to be woken only when that many have completed, or one has and `batch_wait_us` are over: fewer wake-ups
    /// under load. Kernels before 6.12 cannot do both, and get `batch` 1.
    pub(crate) fn submit_and_sleep(&mut self, sleep_ns: Option<u64>, batch: usize, batch_wait_us: u32) -> io::Result<()> {
        if !self.waiting.is_empty() {
            return self.submit();
        }
        let batch = if self.has_min_wait { batch } else { 1 };
        self.enter(batch, if batch > 1 { batch_wait_us } else { 0 }, ENTER_GETEVENTS | ENTER_EXT_ARG, sleep_ns)
    }

    fn enter(&mut self, want: usize, min_wait_us: u32, flags: u32, sleep_ns: Option<u64>) -> io::Result<()> {
        self.refill();
        let to_submit = self.ring.submission().len() as u32;
        let timespec = Timespec::from(std::time::Duration::from_nanos(sleep_ns.unwrap_or(0)));
        let submitter = self.ring.submitter();
        let entered = if flags & ENTER_EXT_ARG == 0 {
            // SAFETY: the arguments are those of io_uring_enter(2) without an argument structure.
            unsafe { submitter.enter::<libc::sigset_t>(to_submit, want as u32, flags, None) }
        } else {
            let mut arguments = SubmitArgs::new();
            if sleep_ns.is_some() {
                arguments = arguments.timespec(&timespec);
            }
            if min_wait_us > 0 {
                arguments = arguments.min_wait_usec(min_wait_us);
            }
            // SAFETY: as above; `arguments` and `timespec` outlive the call, and EXT_ARG says what they are.
            unsafe { submitter.enter(to_submit, want as u32, flags, Some(&arguments)) }
        };
        match entered {
            Ok(_) => Ok(()),
            // Time over; a signal; completions must be taken out first, or memory is short: the loop comes back.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Without sleeping or waiting: takes in what the kernel has ready, and says how many completions are there. Entries that were pushed
    /// must have been submitted. Costs no system call while there is nothing.
    pub(crate) fn look(&mut self) -> io::Result<usize> {
        if self.ring.submission().taskrun() {
            self.enter(0, 0, ENTER_GETEVENTS, None)?;
        }
        Ok(self.completions_ready())
    }

    fn completions_ready(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// Moves the completions that are there to the end of `into`.
    pub(crate) fn reap(&mut self, into: &mut VecDeque<Completed>) {
        into.extend(self.ring.completion().map(|entry| Completed {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::opcode;

    #[test]
    fn more_entries_than_the_ring_holds_all_complete_once() {
        let mut ring = Ring::new(8).expect("this kernel has io_uring");
        for number in 0..100 {
            // SAFETY: a NOP points to nothing.
            unsafe { ring.push(opcode::Nop::new().build().user_data(number).into()) };
        }
        let mut done = VecDeque::new();
        while done.len() < 100 {
            ring.submit_and_sleep(None, 4, 10).unwrap();
            ring.reap(&mut done);
        }
        let mut numbers: Vec<u64> = done.iter().map(|completed| completed.user_data).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn sleeping_ends_at_the_limit() {
        let mut ring = Ring::new(8).expect("this kernel has io_uring");
        let mut done = VecDeque::new();
        ring.submit_and_sleep(Some(1_000_000), 1, 0).unwrap();
        ring.reap(&mut done);
        assert!(done.is_empty());
    }
}
