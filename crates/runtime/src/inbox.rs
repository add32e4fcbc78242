//! How others reach a reactor: a queue and a bell.
//!
//! The bell (an eventfd that the reactor reads on its ring) is rung only when the reactor sleeps or is about to, so
//! messages to a busy reactor cost one short lock each and no system call.
//!
//! Invariant: a message that is in the queue when the reactor goes to sleep has rung the bell, or was seen by the last look
//! the reactor takes after it has declared itself asleep.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A queue of messages for one reactor, filled from any thread.
pub(crate) struct Inbox<M> {
    messages: Mutex<VecDeque<M>>,
    /// Length of `messages`, to be read without the lock.
    count: AtomicUsize,
    asleep: AtomicBool,
    bell: File,
}

impl<M> Inbox<M> {
    pub(crate) fn new() -> io::Result<Inbox<M>> {
        // Not O_NONBLOCK: on such a file a read on the ring would fail at once instead of waiting.
        // SAFETY: eventfd has no memory arguments.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let bell = unsafe { File::from_raw_fd(bell) };
        Ok(Inbox { messages: Mutex::new(VecDeque::new()), count: AtomicUsize::new(0), asleep: AtomicBool::new(false), bell })
    }

    /// Leaves a message, and wakes the reactor if it sleeps.
    pub(crate) fn send(&self, message: M) {
        {
            let mut messages = self.messages.lock().expect("no holder of this lock panics");
            messages.push_back(message);
            self.count.store(messages.len(), Ordering::SeqCst);
        }
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Would block only at 2^64 - 2 rings without a read.
            let rung = (&self.bell).write(&1u64.to_ne_bytes());
            assert!(rung.is_ok_and(|bytes| bytes == 8), "the bell of a reactor");
        }
    }

    /// Whether nothing waits; without the lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Exchanges the queue with `into`, which must be empty: its memory becomes the queue's.
    pub(crate) fn take(&self, into: &mut VecDeque<M>) {
        assert!(into.is_empty(), "the queue before was taken in");
        if self.is_empty() {
            return;
        }
        let mut messages = self.messages.lock().expect("no holder of this lock panics");
        std::mem::swap(&mut *messages, into);
        self.count.store(0, Ordering::SeqCst);
    }

    /// The reactor says that it will sleep. `false`: there are messages, do not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.asleep.store(false, Ordering::SeqCst);
        false
    }

    /// The reactor is awake.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// What to read on the ring to hear the bell.
    pub(crate) fn bell_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn rings(inbox: &Inbox<u32>, patience_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: inbox.bell_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, patience_ms) == 1 }
    }

    #[test]
    fn the_bell_rings_only_for_a_sleeper() {
        let inbox = Inbox::new().unwrap();
        let mut counter = [0; 8];
        inbox.send(1);
        assert!(!rings(&inbox, 0), "awake: no bell");
        assert!(!inbox.may_sleep(), "a message is waiting");
        let mut taken = VecDeque::new();
        inbox.take(&mut taken);
        assert_eq!(taken, [1]);
        assert!(inbox.may_sleep());
        inbox.send(2);
        inbox.send(3);
        assert_eq!((&inbox.bell).read(&mut counter).unwrap(), 8);
        assert_eq!(u64::from_ne_bytes(counter), 1, "one ring for both");
    }

    #[test]
    fn no_message_is_slept_over() {
        const MESSAGES: u32 = 20_000;
        let inbox = std::sync::Arc::new(Inbox::new().unwrap());
        let sender = std::thread::spawn({
            let inbox = inbox.clone();
            move || (0..MESSAGES).for_each(|number| inbox.send(number))
        });
        let (mut next, mut taken) = (0, VecDeque::new());
        while next < MESSAGES {
            inbox.take(&mut taken);
            for number in taken.drain(..) {
                assert_eq!(number, next);
                next += 1;
            }
            if next < MESSAGES && inbox.may_sleep() {
                // A lost wake-up ends here.
                assert!(rings(&inbox, 30_000), "message {next} was slept over");
                let mut counter = [0; 8];
                (&inbox.bell).read_exact(&mut counter).unwrap();
                inbox.awake();
            }
        }
        sender.join().unwrap();
    }
}
