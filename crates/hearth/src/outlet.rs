//! Lines on their way to standard output and standard error. Who writes one never waits for who reads them, and never fails by them: there is
//! room for some, and what finds none is dropped and counted.
//!
//! Standard error may be a pipe whose reader sleeps or is gone, a terminal that was stopped (Ctrl-S) or closed, a full disk.

use crate::failure::Failure;
use crate::serve::spawn;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Room for what is not written yet.
const BYTES_MAX: usize = 1 << 20;
/// The same in lines: short ones cost more than their bytes.
const LINES_MAX: usize = 8192;

/// Where a line goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// The way out, for any thread.
#[derive(Clone, Debug)]
pub struct Outlet(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There are more lines, or fewer.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<(To, Vec<u8>)>,
    bytes: usize,
    /// A line is being written.
    is_writing: bool,
    /// Lines that nobody got since that was last told.
    dropped: u64,
    /// The last line that was written found a reader.
    flows: bool,
    writer: Option<ThreadId>,
}

impl Outlet {
    /// Starts the thread that writes. `tell` is called on it with the number of lines that were dropped, once others go out again.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(tell: fn(u64)) -> Result<Outlet, Failure> {
        let outlet = Outlet(Arc::default());
        let shared = outlet.0.clone();
        spawn("log", move || {
            shared.lock().writer = Some(std::thread::current().id());
            loop {
                shared.write_next(|to, line| match to {
                    To::Output => write_whole(io::stdout().as_fd(), line),
                    To::Error => write_whole(io::stderr().as_fd(), line),
                });
                if let Some(dropped) = shared.dropped_to_tell() {
                    tell(dropped);
                }
            }
        })?;
        Ok(outlet)
    }

    /// Puts one or more whole lines on their way. They are dropped if there is no room.
    pub fn put(&self, to: To, lines: &[u8]) {
        self.0.put(to, lines);
    }

    /// Waits until everything is written, while that goes on: not longer than this for any one line.
    pub fn flush(&self, patience: Duration) {
        self.0.flush(patience);
    }
}

/// A writer of whole lines to standard error.
impl Write for Outlet {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.put(To::Error, lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Also of who panics: that is to be written, too.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, to: To, lines: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes + lines.len() > BYTES_MAX || waiting.lines.len() >= LINES_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += lines.len();
        waiting.lines.push_back((to, lines.to_vec()));
        self.changed.notify_all();
    }

    /// Waits for a line, and writes it, with the lock given back meanwhile.
    fn write_next(&self, write: impl FnOnce(To, &[u8]) -> io::Result<()>) {
        let mut waiting = self.lock();
        let (to, line) = loop {
            if let Some(next) = waiting.lines.pop_front() {
                break next;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        };
        waiting.is_writing = true;
        drop(waiting);
        let written = write(to, &line);
        let mut waiting = self.lock();
        waiting.bytes -= line.len();
        waiting.is_writing = false;
        // A reader that is gone may be followed by another (a named pipe), and a disk may have room again.
        // Of standard output nobody is told on standard error: it has the one line that says "ready".
        if to == To::Error {
            waiting.flows = written.is_ok();
            waiting.dropped += u64::from(written.is_err());
        }
        self.changed.notify_all();
    }

    /// How many lines were dropped, if others are read and nothing waits any more; told once.
    fn dropped_to_tell(&self) -> Option<u64> {
        let mut waiting = self.lock();
        let is_time = waiting.flows && waiting.lines.is_empty() && waiting.dropped > 0;
        is_time.then(|| std::mem::take(&mut waiting.dropped))
    }

    fn flush(&self, patience: Duration) {
        let mut waiting = self.lock();
        if waiting.writer == Some(std::thread::current().id()) {
            return;
        }
        let mut left = waiting.lines.len();
        let mut deadline = Instant::now() + patience;
        while waiting.is_writing || !waiting.lines.is_empty() {
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return;
            }
            waiting = self.changed.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0;
            if waiting.lines.len() < left {
                left = waiting.lines.len();
                deadline = Instant::now() + patience;
            }
        }
    }
}

/// Writes all of it, however long that takes. Past the locks of the standard library: whoever takes those must not wait for this.
fn write_whole(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Whoever has the terminal as well may have made it so.
            Err(Errno::AGAIN) => {
                // What goes wrong here is told by the next write.
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that sleeps costs lines, and neither time nor memory without end.
    #[test]
    fn what_nobody_reads_is_dropped_and_counted() {
        let shared = Shared::default();
        let line = [b'x'; 100];
        let puts = 3 * BYTES_MAX / line.len();
        (0..puts).for_each(|_| shared.put(To::Error, &line));
        let kept = shared.lock().lines.len();
        assert!(kept <= LINES_MAX && kept * line.len() <= BYTES_MAX, "{kept}");
        assert_eq!(shared.dropped_to_tell(), None, "what waits comes first");
        (0..kept).for_each(|_| shared.write_next(|_, _| Ok(())));
        assert_eq!(shared.dropped_to_tell(), Some((puts - kept) as u64));
        assert_eq!(shared.dropped_to_tell(), None, "told once");
        assert_eq!(shared.lock().bytes, 0);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure_of_who_writes() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let shared = Shared::default();
        shared.put(To::Error, b"a\n");
        shared.write_next(|_, line| write_whole(writer.as_fd(), line));
        assert_eq!(shared.dropped_to_tell(), None, "nobody would hear of it");
        shared.put(To::Error, b"b\n");
        shared.write_next(|_, _| Ok(()));
        assert_eq!(shared.dropped_to_tell(), Some(1), "somebody reads again");
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_sleeps() {
        let shared = Shared::default();
        shared.flush(Duration::from_secs(600));
        shared.put(To::Error, b"a\n");
        shared.flush(Duration::from_millis(10));
        assert_eq!(shared.lock().lines.len(), 1);
    }
}
