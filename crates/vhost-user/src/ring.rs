//! The device's side of a split queue: virtio 1.2, section 2.7.
//!
//! ```text
//!   descriptors   16 bytes each: address, length, flags, next
//!   available     flags, index, heads …, used event      written by the driver
//!   used          flags, index, (head, length) …, available event      written here
//! ```
//! Invariant: the three parts were found in the guest's memory, in one piece each and aligned, when the value was made, and the memory
//! stays mapped as long as it. What the driver writes there is read once and checked before it is used.

use crate::dirty::DirtyLog;
use crate::memory::GuestMemory;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// The longest queue: what QEMU has at most.
pub(crate) const ENTRIES_MAX: u16 = 1024;

/// The driver does not want to be told of kicks, or of answers.
const SILENT: u16 = 1;

/// Where a queue lies, by the front end's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// What the guest calls the used part, if writes to it are to be logged.
    pub(crate) used_logged: Option<u64>,
}

/// The driver broke the rules, and nothing more can be believed of this queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Broken(pub(crate) &'static str);

/// One descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) guest: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    pub(crate) const BYTES: u64 = 16;
    pub(crate) const NEXT: u16 = 1;
    pub(crate) const WRITE: u16 = 2;
    pub(crate) const INDIRECT: u16 = 4;

    pub(crate) fn decode(bytes: &[u8; 16]) -> Descriptor {
        let number = |at: usize, count: usize| {
            let mut little = [0; 8];
            little[..count].copy_from_slice(&bytes[at..at + count]);
            u64::from_le_bytes(little)
        };
        Descriptor { guest: number(0, 8), bytes: number(8, 4) as u32, flags: number(12, 2) as u16, next: number(14, 2) as u16 }
    }
}

/// A queue.
pub(crate) struct Ring {
    pub(crate) memory: Arc<GuestMemory>,
    place: Place,
    descriptors: NonNull<u8>,
    available: NonNull<u8>,
    used: NonNull<u8>,
    entries: u16,
    with_events: bool,
    next_available: u16,
    next_used: u16,
    /// What the used index says.
    published: u16,
    log: Option<Arc<DirtyLog>>,
}

// SAFETY: the pointers are into memory that `memory` keeps mapped, and that is shared with other processes anyway.
unsafe impl Send for Ring {}

impl Ring {
    /// A queue of `entries` entries, a power of two. It goes on where its used part says that it was, and takes next what is
    /// `next_available` in the available part.
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        place: Place,
        entries: u16,
        with_events: bool,
        next_available: u16,
        log: Option<Arc<DirtyLog>>,
    ) -> Result<Ring, Broken> {
        if !entries.is_power_of_two() || entries > ENTRIES_MAX {
            return Err(Broken("its length is no power of two up to 1024"));
        }
        let mut ring = Ring {
            descriptors: NonNull::dangling(),
            available: NonNull::dangling(),
            used: NonNull::dangling(),
            memory: Arc::default(),
            place,
            entries,
            with_events,
            next_available,
            next_used: 0,
            published: 0,
            log,
        };
        ring.move_to(memory, place)?;
        ring.next_used = u16::from_le(ring.used_index().load(Ordering::Acquire));
        ring.published = ring.next_used;
        Ok(ring)
    }

    /// The memory was mapped anew, or the queue lies elsewhere in it.
    pub(crate) fn move_to(&mut self, memory: Arc<GuestMemory>, place: Place) -> Result<(), Broken> {
        let entries = u64::from(self.entries);
        let find = |user: u64, bytes: u64, alignment: usize| {
            let found = memory.guest_of_user(user, bytes).and_then(|guest| memory.piece(guest, bytes));
            found.filter(|start| (start.as_ptr() as usize).is_multiple_of(alignment)).ok_or(Broken("it lies outside of the guest's memory"))
        };
        let descriptors = find(place.descriptors, entries * Descriptor::BYTES, 16)?;
        let available = find(place.available, 6 + 2 * entries, 2)?;
        let used = find(place.used, 6 + 8 * entries, 4)?;
        (self.descriptors, self.available, self.used) = (descriptors, available, used);
        (self.memory, self.place) = (memory, place);
        self.log_all_used();
        Ok(())
    }

    /// From now on what is written is logged there.
    pub(crate) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        let is_new = log.as_ref().map(Arc::as_ptr) != self.log.as_ref().map(Arc::as_ptr);
        self.log = log;
        if is_new {
            self.log_all_used();
        }
    }

    /// A daemon that was killed may have written here last and not logged it: then the guest would wait for ever where it moves to.
    fn log_all_used(&self) {
        self.log_used(0, 6 + 8 * u64::from(self.entries));
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn entries(&self) -> u16 {
        self.entries
    }

    /// The index of what is taken next.
    pub(crate) fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Takes up again: so many requests were taken that the used part does not tell of.
    pub(crate) fn resume(&mut self, under_way: u16) {
        self.next_available = self.published.wrapping_add(under_way);
    }

    /// What the used index says.
    pub(crate) fn published(&self) -> u16 {
        self.published
    }

    /// The head of the next chain that the driver has made available.
    pub(crate) fn take(&mut self) -> Result<Option<u16>, Broken> {
        match self.waiting()? {
            0 => Ok(None),
            _ => {
                let head = self.available_word(2 + u64::from(self.next_available % self.entries)).load(Ordering::Relaxed);
                self.next_available = self.next_available.wrapping_add(1);
                if u16::from_le(head) < self.entries { Ok(Some(u16::from_le(head))) } else { Err(Broken("a chain begins outside of it")) }
            }
        }
    }

    /// Whether the driver waits for answers that have not come. Not so at its beginning: then all is still to be taken.
    pub(crate) fn is_waited_for(&self) -> bool {
        let index = u16::from_le(self.available_word(1).load(Ordering::Acquire));
        index != self.published && (self.published, self.next_available) != (0, 0)
    }

    fn waiting(&self) -> Result<u16, Broken> {
        let index = u16::from_le(self.available_word(1).load(Ordering::Acquire));
        let waiting = index.wrapping_sub(self.next_available);
        if waiting <= self.entries { Ok(waiting) } else { Err(Broken("more is available than it is long")) }
    }

    /// Asks the driver to kick when it makes more available. Gives whether it did so already, and no kick may come.
    pub(crate) fn want_kick(&mut self) -> Result<bool, Broken> {
        if self.with_events {
            self.used_word_at(4 + 8 * u64::from(self.entries)).store(self.next_available.to_le(), Ordering::Relaxed);
            self.log_used(4 + 8 * u64::from(self.entries), 2);
        }
        fence(Ordering::SeqCst);
        Ok(self.waiting()? > 0)
    }

    /// A descriptor of the queue's own table; `index` is below its length.
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        assert!(index < self.entries, "descriptor {index} of {}", self.entries);
        // SAFETY: the table is that long and aligned; see the type. Read as two words, so once.
        let words = unsafe {
            let start = self.descriptors.add(usize::from(index) * Descriptor::BYTES as usize).cast::<[u64; 2]>();
            start.as_ptr().read_volatile()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
        Descriptor::decode(&bytes)
    }

    /// Notes that a chain is done, and how many bytes were written into it. The driver sees it after [`Ring::publish`].
    pub(crate) fn put(&mut self, head: u16, bytes: u32) {
        let at = 4 + 8 * u64::from(self.next_used % self.entries);
        self.used_long_at(at).store(u32::from(head).to_le(), Ordering::Relaxed);
        self.used_long_at(at + 4).store(bytes.to_le(), Ordering::Relaxed);
        self.log_used(at, 8);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Lets the driver see what was put; gives whether it wants to be called for it.
    pub(crate) fn publish(&mut self) -> bool {
        let before = std::mem::replace(&mut self.published, self.next_used);
        self.used_index().store(self.next_used.to_le(), Ordering::Release);
        self.log_used(2, 2);
        // The driver writes what it wants, then looks at the index; we do the opposite.
        fence(Ordering::SeqCst);
        if !self.with_events {
            return u16::from_le(self.available_word(0).load(Ordering::Relaxed)) & SILENT == 0;
        }
        let event = u16::from_le(self.available_word(2 + u64::from(self.entries)).load(Ordering::Relaxed));
        self.next_used.wrapping_sub(event).wrapping_sub(1) < self.next_used.wrapping_sub(before)
    }

    /// Copies into the guest's memory, and logs it.
    pub(crate) fn write(&self, guest: u64, from: &[u8]) -> Result<(), crate::memory::Outside> {
        self.memory.write(guest, from)?;
        self.written(guest, from.len() as u64);
        Ok(())
    }

    /// Logs that bytes of the guest were written.
    pub(crate) fn written(&self, guest: u64, bytes: u64) {
        if let Some(log) = &self.log {
            log.written(guest, bytes);
        }
    }

    /// Whether memory was taken away under us.
    pub(crate) fn is_struck(&self) -> bool {
        self.memory.is_struck() || self.log.as_ref().is_some_and(|log| log.is_struck())
    }

    fn log_used(&self, offset: u64, bytes: u64) {
        if let (Some(log), Some(used)) = (&self.log, self.place.used_logged) {
            log.written(used.saturating_add(offset), bytes);
        }
    }

    fn available_word(&self, word: u64) -> &AtomicU16 {
        assert!(word <= 2 + u64::from(self.entries), "word {word} of a queue of {}", self.entries);
        // SAFETY: the part is that long and aligned for words; see the type.
        unsafe { AtomicU16::from_ptr(self.available.add(2 * word as usize).as_ptr().cast()) }
    }

    fn used_word_at(&self, offset: u64) -> &AtomicU16 {
        assert!(offset <= 4 + 8 * u64::from(self.entries) && offset.is_multiple_of(2), "byte {offset} of a queue of {}", self.entries);
        // SAFETY: the part is two bytes longer than that, and aligned for words; see the type.
        unsafe { AtomicU16::from_ptr(self.used.add(offset as usize).as_ptr().cast()) }
    }

    fn used_long_at(&self, offset: u64) -> &AtomicU32 {
        assert!(offset <= 8 * u64::from(self.entries) && offset.is_multiple_of(4), "byte {offset} of a queue of {}", self.entries);
        // SAFETY: as above; the part is aligned to 4.
        unsafe { AtomicU32::from_ptr(self.used.add(offset as usize).as_ptr().cast()) }
    }

    fn used_index(&self) -> &AtomicU16 {
        self.used_word_at(2)
    }
}
