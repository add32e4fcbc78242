//! The driver's side of one queue.
//!
//! Each request has a slot with room for its header, its status and its data, so that nothing is looked for when it is submitted. With
//! indirect descriptors a slot needs one descriptor of the queue, else as many as it has pieces.

use crate::memory::{GUEST_BASE, Memory};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Pieces that the data of a request may have.
pub const PIECES_MAX: usize = 4;
const DESCRIPTORS_EACH: usize = PIECES_MAX + 2;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// How much room each slot has.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Slots.
    pub slots: usize,
    /// Longest data of a request.
    pub data_bytes: usize,
}

/// A request that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its slot.
    pub slot: usize,
    /// 0: done; 1: failed; 2: not supported; 255: no status was written.
    pub status: u8,
    /// How many bytes the device says that it wrote.
    pub written: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    memory: Arc<Memory>,
    /// Where it begins in memory.
    base: usize,
    entries: u16,
    buffers: Buffers,
    /// Whether both sides say of which index they want to be told.
    pub with_events: bool,
    /// Whether requests are described in tables of their own.
    pub indirect: bool,
    next_available: u16,
    published: u16,
    next_used: u16,
    free: Vec<usize>,
    /// Told when something is available.
    pub kick: EventFd,
    /// Told by the device when something is answered.
    pub call: EventFd,
    /// Kicks given and left out.
    pub kicks: [u64; 2],
}

impl Queue {
    /// Bytes that a queue takes, its buffers included.
    pub fn bytes(entries: u16, buffers: &Buffers) -> usize {
        let rings = (16 * usize::from(entries) + 6 + 2 * usize::from(entries) + 6 + 8 * usize::from(entries) + 64).next_multiple_of(4096);
        rings + (slot_head_bytes() * buffers.slots).next_multiple_of(4096) + buffers.slots * buffers.data_bytes.next_multiple_of(4096)
    }

    /// A queue that begins at an offset, a multiple of 4096.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If the descriptors do not suffice for the slots.
    pub fn new(memory: Arc<Memory>, base: usize, entries: u16, buffers: Buffers, with_events: bool, indirect: bool) -> io::Result<Queue> {
        let each = if indirect { 1 } else { DESCRIPTORS_EACH };
        assert!(buffers.slots * each <= usize::from(entries), "{} slots of {each} descriptors in a queue of {entries}", buffers.slots);
        Ok(Queue {
            memory,
            base,
            entries,
            buffers,
            with_events,
            indirect,
            next_available: 0,
            published: 0,
            next_used: 0,
            free: (0..buffers.slots).rev().collect(),
            kick: EventFd::new(EFD_NONBLOCK)?,
            call: EventFd::new(EFD_NONBLOCK)?,
            kicks: [0; 2],
        })
    }

    /// Offsets of the three parts.
    pub fn parts(&self) -> [usize; 3] {
        let entries = usize::from(self.entries);
        let available = self.base + 16 * entries;
        [self.base, available, (available + 6 + 2 * entries).next_multiple_of(64)]
    }

    /// How long it is.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// The memory it lies in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// What the device said last that it has answered.
    pub fn used_index(&self) -> u16 {
        self.memory.load(self.parts()[2] + 2)
    }

    /// Slots that are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    fn heads(&self) -> usize {
        let parts = self.parts();
        (parts[2] + 6 + 8 * usize::from(self.entries)).next_multiple_of(4096)
    }

    /// Offset of a slot's data.
    pub fn data(&self, slot: usize) -> usize {
        let data = self.heads() + (slot_head_bytes() * self.buffers.slots).next_multiple_of(4096);
        data + slot * self.buffers.data_bytes.next_multiple_of(4096)
    }

    fn head(&self, slot: usize) -> usize {
        self.heads() + slot * slot_head_bytes()
    }

    /// Writes a descriptor at an offset.
    pub fn describe(&self, offset: usize, guest: u64, bytes: u32, flags: u16, next: u16) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&guest.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14..].copy_from_slice(&next.to_le_bytes());
        self.memory.write(offset, &descriptor);
    }

    /// Prepares a request and makes it available; the device is not told before [`Queue::notify`]. `data_bytes` of the slot's data are
    /// written by the device (`reads`) or read, in `pieces` pieces. `None` if no slot is free.
    ///
    /// # Panics
    /// If it is longer than a slot's data, or has too many pieces.
    pub fn submit(&mut self, kind: u32, sector: u64, data_bytes: usize, reads: bool, pieces: usize) -> Option<usize> {
        let slot = self.free.pop()?;
        self.fill(slot, kind, sector, data_bytes, reads, pieces);
        Some(slot)
    }

    /// Takes a free slot, for data to be put into before [`Queue::fill`].
    pub fn take_slot(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// As [`Queue::submit`], for a slot that was taken.
    pub fn fill(&mut self, slot: usize, kind: u32, sector: u64, data_bytes: usize, reads: bool, pieces: usize) {
        assert!(data_bytes <= self.buffers.data_bytes && (1..=PIECES_MAX).contains(&pieces), "{data_bytes} bytes in {pieces} pieces");
        let head = self.head(slot);
        let mut header = [0; 17];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..16].copy_from_slice(&sector.to_le_bytes());
        header[16] = 255;
        self.memory.write(head, &header);
        let (table, first) = if self.indirect { (head + 32, 0) } else { (self.parts()[0], slot * DESCRIPTORS_EACH) };
        let mut index = first;
        let mut put = |guest: u64, bytes: usize, flags: u16, last: bool| {
            let flags = if last { flags } else { flags | NEXT };
            self.describe(table + 16 * index, guest, bytes as u32, flags, index as u16 + 1);
            index += 1;
        };
        put(guest(head), 16, 0, false);
        let each = data_bytes.div_ceil(pieces).next_multiple_of(512);
        let mut done = 0;
        while done < data_bytes {
            let bytes = each.min(data_bytes - done);
            put(guest(self.data(slot) + done), bytes, if reads { WRITE } else { 0 }, false);
            done += bytes;
        }
        put(guest(head + 16), 1, WRITE, true);
        let count = index - first;
        if self.indirect {
            self.describe(self.parts()[0] + 16 * slot, guest(table), (16 * count) as u32, INDIRECT, 0);
        }
        self.make_available(if self.indirect { slot } else { first } as u16);
    }

    /// Puts a head into the available ring.
    pub fn make_available(&mut self, head: u16) {
        let at = self.parts()[1] + 4 + 2 * usize::from(self.next_available % self.entries);
        self.memory.word(at).store(head.to_le(), Ordering::Relaxed);
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Lets the device see what was submitted, and kicks it if it wants to be kicked.
    pub fn notify(&mut self) {
        let [_, available, used] = self.parts();
        let before = std::mem::replace(&mut self.published, self.next_available);
        self.memory.store(available + 2, self.next_available);
        fence(Ordering::SeqCst);
        let wanted = if self.with_events {
            let event = self.memory.load(used + 4 + 8 * usize::from(self.entries));
            self.next_available.wrapping_sub(event).wrapping_sub(1) < self.next_available.wrapping_sub(before)
        } else {
            self.memory.load(used) & 1 == 0
        };
        self.kicks[usize::from(!wanted)] += 1;
        if wanted {
            self.kick_now();
        }
    }

    /// Kicks the device, wanted or not.
    pub fn kick_now(&self) {
        self.kick.write(1).expect("an event counter that is not full");
    }

    /// Sets the available index as it is, without a look at what was submitted.
    pub fn set_available_index(&mut self, index: u16) {
        self.memory.store(self.parts()[1] + 2, index);
    }

    /// Takes the next answer, if there is one.
    pub fn answered(&mut self) -> Option<Done> {
        let used = self.parts()[2];
        if self.memory.load(used + 2) == self.next_used {
            return None;
        }
        let at = used + 4 + 8 * usize::from(self.next_used % self.entries);
        self.next_used = self.next_used.wrapping_add(1);
        let (head, written) = (self.memory.load_u32(at) as usize, self.memory.load_u32(at + 4));
        let slot = if self.indirect { head } else { head / DESCRIPTORS_EACH };
        let mut status = [0];
        self.memory.read(self.head(slot) + 16, &mut status);
        self.free.push(slot);
        Some(Done { slot, status: status[0], written })
    }

    /// Asks the device to call at the next answer; gives whether one is there already.
    pub fn want_call(&mut self) -> bool {
        let [_, available, used] = self.parts();
        if self.with_events {
            self.memory.store(available + 4 + 2 * usize::from(self.entries), self.next_used);
        } else {
            self.memory.store(available, 0);
        }
        fence(Ordering::SeqCst);
        self.memory.load(used + 2) != self.next_used
    }

    /// Waits for the next answer. `None`: none within `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<Done> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(done) = self.answered() {
                return Some(done);
            }
            if self.want_call() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            wait_readable(self.call.as_raw_fd(), left);
            // Nothing to read where the time was up.
            let _ = self.call.read();
        }
    }

    /// Does one request and waits for it: data goes in or out. Gives its status.
    ///
    /// # Panics
    /// If no slot is free, or no answer comes within `patience`.
    pub fn run(&mut self, kind: u32, sector: u64, data: &mut [u8], reads: bool, patience: Duration) -> u8 {
        let slot = self.take_slot().expect("a free slot");
        if !reads {
            self.memory.write(self.data(slot), data);
        }
        self.fill(slot, kind, sector, data.len(), reads, if data.len() > 4096 { 3 } else { 1 });
        self.notify();
        let done = self.wait(patience).expect("an answer");
        assert_eq!(done.slot, slot, "the only request under way");
        if reads && done.status == 0 {
            self.memory.read(self.data(slot), data);
        }
        done.status
    }
}

fn slot_head_bytes() -> usize {
    // Header and status, then a table.
    32 + 16 * DESCRIPTORS_EACH
}

/// The guest's address of an offset.
pub fn guest(offset: usize) -> u64 {
    GUEST_BASE + offset as u64
}

fn wait_readable(descriptor: i32, patience: Duration) {
    let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX).max(1);
    // SAFETY: one valid structure. An interrupted wait is looked at again by the caller.
    unsafe { libc::poll(&mut wanted, 1, patience_ms) };
}
