//! What is known of a request, and what is found out about it.

use std::ops::Range;
use types::{ObjectId, StreamClass};

/// Who sent a request: a number that the tap gives to a process, thread, session or initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OriginSlot(pub u32);

/// One request of a volume, as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Milliseconds since any beginning; must not go backwards.
    pub at_ms: u64,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Length; 0 is taken for a request that touches nothing.
    pub len_bytes: u32,
    /// A write, not a read.
    pub write: bool,
    /// Who sent it, if that is visible.
    pub origin: Option<OriginSlot>,
    /// Where its first byte lies in an object, if a map knows.
    pub place: Option<Place>,
    /// Pages that were recognised in it, in address order; empty where none was looked for.
    pub pages: &'a [PageAt],
}

impl Seen<'_> {
    /// The bytes of the device.
    pub fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes.saturating_add(u64::from(self.len_bytes))
    }

    /// Where order is looked for: in the object if one is known, because its pieces lie scattered
    /// on the device; else on the device.
    pub fn position(&self) -> Position {
        match self.place {
            Some(place) => Position { space: u64::from(place.object.0) + 1, offset_bytes: place.offset_bytes },
            None => Position { space: 0, offset_bytes: self.offset_bytes },
        }
    }
}

/// A byte of the device (space 0) or of an object (its number plus one).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Which.
    pub space: u64,
    /// Where in it.
    pub offset_bytes: u64,
}

/// A place in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which object.
    pub object: ObjectId,
    /// Byte of the object.
    pub offset_bytes: u64,
    /// All that is known to belong to it; 0 if that is not known.
    pub object_bytes: u64,
}

/// A page that was recognised by its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageAt {
    /// Its first byte on the device.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u32,
    /// What the chain runs through: space and index, relation, allocation unit. Any number that is
    /// equal for the pages of one and different for others.
    pub owner: u64,
    /// Its number as it says itself.
    pub number: u32,
    /// The page before it in key order. PostgreSQL's heaps have none in the page: one less than
    /// `number`.
    pub prev: Option<u32>,
    /// The page after it.
    pub next: Option<u32>,
    /// Height in its tree; 0 is the leaves.
    pub level: u16,
    /// A page of rows, which a scan passes over.
    pub leaf: bool,
    /// It is a page of a log: WAL, redo, binary log.
    pub log: bool,
}

/// Why a request has its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Nothing is known: `Application`.
    None,
    /// A rule of the user, or a session that a login showed; the rule's number.
    Rule(u16),
    /// Reads that go forward on the device or in an object.
    Sequence,
    /// Leaves that follow each other in key order.
    Chain,
    /// A scan that has passed over nine tenths of its object.
    WholeObject,
    /// The scans of one reader passed over three objects one after the other.
    ObjectsInRow,
    /// Writes that continue or rewrite their own tail.
    Tail,
    /// The bytes themselves are a log's.
    Content,
}

impl Evidence {
    /// The words shown to a person.
    pub const fn text(self) -> &'static str {
        match self {
            Evidence::None => "nothing known",
            Evidence::Rule(_) => "rule or session",
            Evidence::Sequence => "sequential reads",
            Evidence::Chain => "leaf pages in key order",
            Evidence::WholeObject => "read nearly all of an object",
            Evidence::ObjectsInRow => "read several objects in a row",
            Evidence::Tail => "writes continue their tail",
            Evidence::Content => "log pages",
        }
    }
}

/// What a request was found to be for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The class.
    pub class: StreamClass,
    /// Why.
    pub evidence: Evidence,
}

impl Verdict {
    /// Nothing is known.
    pub const UNKNOWN: Verdict = Verdict { class: StreamClass::Application, evidence: Evidence::None };

    /// A class and its reason.
    pub const fn new(class: StreamClass, evidence: Evidence) -> Verdict {
        Verdict { class, evidence }
    }
}
