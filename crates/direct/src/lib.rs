//! Reads and writes of one device by one thread on one io_uring, many at a time: for programs that make load or move data in bulk. The data path has
//! its own ring, in `runtime`, with much that is not needed here.
//!
//! The seam is safe because buffers move: [`Direct::submit`] takes one, the [`Done`] of the same token gives it back. Invariants:
//! 1. a buffer whose I/O is under way lies in `in_flight` and nowhere else: nobody can read, write, move or free its memory while the kernel has it;
//! 2. the file stays open as long as the ring;
//! 3. what is under way when a [`Direct`] is dropped is waited for; if the kernel refuses even that, the buffers are leaked, not freed.
#![deny(missing_docs)]

use device::{AlignedBuffer, OpenDevice};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// EINTR, EAGAIN, EBUSY, ETIME of errno(3): the kernel wants to be asked again, or the time is over.
const PASSING: [i32; 4] = [4, 11, 16, 62];

/// What is to be done with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Fill it from the device.
    Read,
    /// Write it to the device.
    Write,
}

/// An I/O that has ended.
pub struct Done {
    /// As it was submitted with.
    pub token: u64,
    /// How many bytes were transferred, or the kernel's error. Less than asked for only at the end of a file.
    pub result: io::Result<usize>,
    /// The buffer, back.
    pub buffer: AlignedBuffer,
}

/// A device and the ring of the thread that made it.
pub struct Direct {
    // Before the file: rings go first.
    ring: IoUring,
    device: Arc<OpenDevice>,
    /// By the number that the kernel carries for us.
    in_flight: Vec<Option<(u64, AlignedBuffer)>>,
    free: Vec<usize>,
    /// Rings made with SINGLE_ISSUER belong to one thread.
    _one_thread: PhantomData<*const ()>,
}

impl Direct {
    /// A ring on which up to `depth` I/Os can be under way. A device may be shared by several rings, each of its own thread.
    ///
    /// # Errors
    /// If the kernel refuses a ring.
    pub fn new(device: Arc<OpenDevice>, depth: u32) -> io::Result<Direct> {
        let depth = depth.max(1);
        let slots = depth as usize;
        let in_flight = std::iter::repeat_with(|| None).take(slots).collect();
        Ok(Direct { ring: ring(depth.next_power_of_two())?, device, in_flight, free: (0..slots).rev().collect(), _one_thread: PhantomData })
    }

    /// The device.
    pub fn device(&self) -> &OpenDevice {
        &self.device
    }

    /// How many I/Os are under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len() - self.free.len()
    }

    /// Puts an I/O of the whole buffer in line; [`Direct::wait`] starts it. Address, place and length must suit the device's
    /// [`Geometry`](device::Geometry), or the I/O fails with EINVAL.
    ///
    /// # Panics
    /// If as many are under way as the ring was made for, or the buffer is longer than 2 GiB.
    pub fn submit(&mut self, token: u64, transfer: Transfer, offset_bytes: u64, mut buffer: AlignedBuffer) {
        let slot = self.free.pop().expect("no more I/Os than the ring was made for");
        let file = Fd(self.device.file().as_raw_fd());
        let length = u32::try_from(buffer.len()).ok().filter(|length| *length <= 1 << 31).expect("at most 2 GiB at a time");
        let entry = match transfer {
            Transfer::Read => opcode::Read::new(file, buffer.as_mut_ptr(), length).offset(offset_bytes).build(),
            Transfer::Write => opcode::Write::new(file, buffer.as_ptr(), length).offset(offset_bytes).build(),
        };
        // The memory is on the heap: moving its owner does not move it.
        self.in_flight[slot] = Some((token, buffer));
        // SAFETY: the entry names the buffer's memory and the file. The buffer was put into `in_flight` above and leaves it only when its completion
        // was seen (`wait`), or never (`drop`); the file closes after the ring.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("the ring has a place for every slot");
    }

    /// Starts what was submitted, waits until at least one I/O has ended or `patience` is over, and gives all that have ended. With nothing
    /// under way it waits as long. `None` waits for ever.
    ///
    /// # Errors
    /// If the kernel refuses the ring's system call itself: then nothing can be known of what is under way.
    pub fn wait(&mut self, patience: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let time = patience.map(|patience| Timespec::new().sec(patience.as_secs()).nsec(patience.subsec_nanos()));
        let arguments = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !error.raw_os_error().is_some_and(|errno| PASSING.contains(&errno)) => return Err(error),
            _ => {}
        }
        self.reap(done);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            let (token, buffer) = self.in_flight[slot].take().expect("a completion belongs to an I/O that is under way");
            self.free.push(slot);
            let result = usize::try_from(completion.result()).map_err(|_| io::Error::from_raw_os_error(-completion.result()));
            done.push(Done { token, result, buffer });
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            if self.wait(None, &mut done).is_err() {
                self.in_flight.drain(..).for_each(std::mem::forget);
                return;
            }
        }
    }
}

/// The thread's own ring. Flags by age of the kernel: COOP_TASKRUN 5.19, SINGLE_ISSUER 6.0; without them it is slower. Not DEFER_TASKRUN, which the data path
/// has: with one I/O at a time it changes nothing, and with 32 on a busy machine of two processors it took a twentieth of the rate.
fn ring(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    let new = builder.setup_coop_taskrun().setup_single_issuer().build(entries);
    let ring = match new {
        Ok(ring) => ring,
        Err(_) => IoUring::new(entries)?,
    };
    // Waiting with a time limit came with 5.11, and nothing here works without.
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel is older than 5.11: its io_uring cannot wait with a time limit",
        ));
    }
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{Access, OpenError};

    fn direct(directory: &std::path::Path, depth: u32) -> Option<Direct> {
        let device = match OpenDevice::create(&directory.join("device"), 1 << 20) {
            Err(OpenError::NoDirectIo { .. }) => return None,
            device => device.expect("a device"),
        };
        Some(Direct::new(Arc::new(device), depth).expect("a ring"))
    }

    fn page(byte: u8) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(4096, 4096);
        buffer.fill(byte);
        buffer
    }

    fn all(direct: &mut Direct) -> Vec<Done> {
        let mut done = Vec::new();
        while direct.in_flight() > 0 {
            direct.wait(None, &mut done).expect("the ring works");
        }
        done
    }

    #[test]
    fn what_was_written_is_read_each_by_its_token() {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(mut direct) = direct(directory.path(), 8) else { return };
        for round in 0..4 {
            (0..8).for_each(|at| direct.submit(at, Transfer::Write, (round * 8 + at) * 4096, page((round * 8 + at) as u8)));
            assert_eq!(direct.in_flight(), 8);
            assert!(all(&mut direct).iter().all(|done| matches!(done.result, Ok(4096))));
        }
        for at in [31, 0, 17] {
            direct.submit(at, Transfer::Read, at * 4096, page(0xff));
        }
        let done = all(&mut direct);
        assert_eq!(done.len(), 3);
        assert!(done.iter().all(|done| done.buffer.iter().all(|byte| u64::from(*byte) == done.token)));
    }

    #[test]
    fn waiting_ends_in_time_and_errors_come_with_the_buffer() {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(mut direct) = direct(directory.path(), 2) else { return };
        let mut done = Vec::new();
        direct.wait(Some(Duration::from_millis(1)), &mut done).expect("nothing happens");
        assert!(done.is_empty());
        direct.submit(1, Transfer::Read, 1 << 20, page(9));
        assert!(matches!(all(&mut direct)[0].result, Ok(0)), "the end of the file");
        drop(direct);
        let device = OpenDevice::open(&directory.path().join("device"), Access::ReadOnly).expect("the lock is free again");
        let mut direct = Direct::new(Arc::new(device), 2).expect("a ring");
        direct.submit(2, Transfer::Write, 0, page(9));
        let done = all(&mut direct);
        assert!(done[0].result.is_err(), "it was opened for reading");
        assert_eq!((done[0].token, done[0].buffer.len(), done[0].buffer[4095]), (2, 4096, 9));
    }

    #[test]
    fn dropping_waits_for_what_is_under_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(mut direct) = direct(directory.path(), 64) else { return };
        (0..64).for_each(|at| direct.submit(at, Transfer::Write, at * 4096, page(7)));
        direct.wait(Some(Duration::ZERO), &mut Vec::new()).expect("the ring works");
        drop(direct);
        let bytes = std::fs::read(directory.path().join("device")).expect("the file");
        assert!(bytes[..64 * 4096].iter().all(|byte| *byte == 7));
    }
}
