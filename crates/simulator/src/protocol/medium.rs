//! What the SSD holds, and what is on its way there.

use super::{BLOCKS, RING_PAGES, SLOTS};
use crate::prng::Prng;

/// What a page of the ring says about one slot or block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement {
    /// The block is in this slot, in that version.
    Set { block: usize, slot: usize, version: u64, dirty: bool, settled: bool, old: Option<usize> },
    /// The block that is in this slot is void, or evicted.
    Gone { slot: Option<usize> },
    /// The block in this slot has come home in this version.
    Home { block: usize, slot: usize, version: u64 },
}

/// A page of the ring: a group's statements.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RingPage {
    pub session: u64,
    /// Segments are numbered from 1, for ever.
    pub segment: usize,
    /// Groups too. 0: nothing was written here.
    pub group: u64,
    /// The first segment that still counts.
    pub tail: usize,
    /// All groups up to this one were durable when it was written.
    pub durable: u64,
    pub statements: Vec<Statement>,
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Payload {
    /// Whose, and in which version.
    pub of: Option<(usize, u64)>,
    pub torn: bool,
}

impl Payload {
    /// Whether it is that version of that block, as a checksum would tell.
    pub fn is(&self, block: usize, version: u64) -> bool {
        !self.torn && self.of == Some((block, version))
    }
}

/// The SSD.
#[derive(Clone, Debug)]
pub struct Medium {
    pub ring: [RingPage; RING_PAGES],
    pub slots: [Payload; SLOTS],
}

impl Default for Medium {
    fn default() -> Medium {
        Medium { ring: core::array::from_fn(|_| RingPage::default()), slots: [Payload::default(); SLOTS] }
    }
}

/// What a write puts where.
#[derive(Clone, Debug)]
pub enum Content {
    Page(usize, RingPage),
    Slot(usize, Payload),
}

/// A write that is not flushed.
#[derive(Clone, Debug)]
pub struct Write {
    pub group: u64,
    pub done: bool,
    /// It was done when the flush under way began.
    pub in_flush: bool,
    pub content: Content,
}

impl Medium {
    /// The write reaches the medium; a payload perhaps in parts.
    pub fn apply(&mut self, write: &Write, torn: bool) {
        match &write.content {
            Content::Page(at, page) => self.ring[*at] = page.clone(),
            Content::Slot(at, payload) => self.slots[*at] = Payload { torn, ..*payload },
        }
    }

    /// Power fails: of what is not flushed all, nothing or some is kept.
    pub fn cut(&mut self, volatile: &mut Vec<Write>, prng: &mut Prng) {
        let how = prng.below(4);
        for write in volatile.drain(..) {
            let keeps = how == 0 || how > 1 && prng.below(2) == 0;
            let torn = how > 1 && matches!(write.content, Content::Slot(..)) && prng.below(6) == 0;
            if keeps {
                self.apply(&write, torn);
            }
        }
    }
}

/// The backing device: the versions it shows, and those that no power cut takes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Backing {
    pub shown: [u64; BLOCKS],
    pub safe: [u64; BLOCKS],
}

impl Backing {
    pub fn flush(&mut self) {
        self.safe = self.shown;
    }

    pub fn is_safe(&self, block: usize) -> bool {
        self.safe[block] == self.shown[block]
    }

    /// Power fails: each block is what it was, or what was written last.
    pub fn cut(&mut self, prng: &mut Prng) {
        for block in 0..BLOCKS {
            if prng.below(2) == 0 {
                self.shown[block] = self.safe[block];
            }
        }
        self.safe = self.shown;
    }
}

/// The superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// The last number given to a session.
    pub session: u64,
    /// The session whose pages are the log.
    pub log_session: u64,
    pub first_segment: usize,
    pub first_group: u64,
    pub durable: u64,
    /// Behind what is durable there is nothing of the session.
    pub clean: bool,
}
