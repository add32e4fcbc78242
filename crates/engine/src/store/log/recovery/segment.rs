//! What recovery holds of a segment while it works: 24 bytes a record, and 16 more of a packed one.

use alloc::rc::Rc;
use alloc::vec::Vec;
use format::packed::{PACKED_ORDINAL, PAGE_UNITS};
use format::{Encoding, FooterHead, GroupHead, Packed, Record, RecordKind};
use types::VolumeId;

/// A record, kept small: recovery may hold one for each page of the SSD's share of a shard, and many for each page of packed ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub block: u64,
    pub volume: u32,
    /// Data and bases: of the content. Clean note: how many segments before its own the noted record stands.
    pub checksum: u32,
    /// Data and bases: the record's ordinal in its segment, of plain ones the page of the payload. Clean note: that of the noted record.
    pub ordinal: u32,
    pub mask: u8,
    pub kind: EntryKind,
    /// For replay only: live blocks rest on this object.
    pub needed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
    Clean,
    Dirty,
    /// Dirty, and known not to match its checksum.
    Lost,
    Invalidate,
    Note,
    /// An object without address.
    Base,
    /// Superseded or forgotten; for replay only.
    Dead,
}

impl EntryKind {
    /// Newer than the backing device, readable or not.
    pub fn is_dirty(self) -> bool {
        matches!(self, EntryKind::Dirty | EntryKind::Lost)
    }

    /// The newest record of its block, as far as replay has come.
    pub fn is_live(self) -> bool {
        self == EntryKind::Clean || self.is_dirty()
    }
}

const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    /// `packed_before`: how many packed records stand before it in its segment.
    fn new(record: &Record, segment_seq: u64, packed_before: u32) -> Entry {
        let (kind, checksum, plain_ordinal) = match record.kind {
            RecordKind::DataClean => (EntryKind::Clean, record.checksum, record.slot_page),
            RecordKind::DataDirty => (EntryKind::Dirty, record.checksum, record.slot_page),
            RecordKind::DataLost => (EntryKind::Lost, record.checksum, record.slot_page),
            RecordKind::Base => (EntryKind::Base, record.checksum, 0),
            RecordKind::Invalidate => (EntryKind::Invalidate, 0, 0),
            // A note from outside the ring's length, before or behind, can name nothing that is still there.
            RecordKind::CleanNote { of_seq, of_ordinal } => {
                let distance = segment_seq.checked_sub(of_seq).and_then(|distance| u32::try_from(distance).ok());
                (EntryKind::Note, distance.unwrap_or(u32::MAX), of_ordinal)
            }
        };
        let ordinal = if record.packed.is_some() { PACKED_ORDINAL | packed_before } else { plain_ordinal };
        Entry { block: record.block, volume: record.volume.0, checksum, ordinal, mask: record.mask, kind, needed: false }
    }

    /// The segment that a note in segment `segment_seq` is about.
    pub fn noted_seq(&self, segment_seq: u64) -> u64 {
        segment_seq.saturating_sub(u64::from(self.checksum))
    }

    /// The packed part of a record that is not dead, `parts` being those of its segment.
    pub fn packed(&self, parts: &[Packed]) -> Option<Packed> {
        let may_be = self.kind.is_live() || self.kind == EntryKind::Base;
        (may_be && self.ordinal & PACKED_ORDINAL != 0).then(|| self.part(parts))
    }

    /// The packed part of a record that is known to have one, dead or not.
    pub fn part(&self, parts: &[Packed]) -> Packed {
        parts[(self.ordinal & !PACKED_ORDINAL) as usize]
    }

    /// The record again, for a footer.
    fn record(&self, segment_seq: u64, parts: &[Packed]) -> Record {
        let (kind, has_checksum) = match self.kind {
            EntryKind::Clean => (RecordKind::DataClean, true),
            EntryKind::Dirty => (RecordKind::DataDirty, true),
            EntryKind::Lost => (RecordKind::DataLost, true),
            EntryKind::Base => (RecordKind::Base, true),
            EntryKind::Invalidate => (RecordKind::Invalidate, false),
            EntryKind::Note => (RecordKind::CleanNote { of_seq: self.noted_seq(segment_seq), of_ordinal: self.ordinal }, false),
            EntryKind::Dead => unreachable!("footers are written before replay"),
        };
        let packed = self.packed(parts);
        Record {
            kind,
            volume: VolumeId(self.volume),
            block: self.block,
            mask: self.mask,
            checksum: if has_checksum { self.checksum } else { 0 },
            slot_page: if has_checksum { slot_page(self.ordinal, packed.as_ref()) } else { 0 },
            packed,
        }
    }
}

/// The page of a data record's payload, if it has a page of its own, else 0.
pub(super) fn slot_page(ordinal: u32, packed: Option<&Packed>) -> u32 {
    match packed {
        None => ordinal,
        Some(packed) if packed.encoding == Encoding::Raw => packed.place / PAGE_UNITS,
        Some(_) => 0,
    }
}

/// All records of a segment, in log order.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub entries: Rc<[Entry]>,
    /// Of the packed records, in their order.
    pub parts: Rc<[Packed]>,
}

impl Records {
    pub fn new<'a>(records: impl Iterator<Item = &'a Record>, segment_seq: u64) -> Records {
        let mut parts: Vec<Packed> = Vec::new();
        let entry = |record: &Record| {
            let entry = Entry::new(record, segment_seq, parts.len() as u32);
            parts.extend(record.packed);
            entry
        };
        Records { entries: records.map(entry).collect(), parts: parts.into() }
    }

    /// The records as they were.
    pub fn iter(&self, segment_seq: u64) -> impl Iterator<Item = Record> {
        self.entries.iter().map(move |entry| entry.record(segment_seq, &self.parts))
    }
}

/// A footer found whole and in its place.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub head: FooterHead,
    pub marked_in_session: u64,
    pub records: Records,
}

/// A group found by its header.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub head: GroupHead,
    pub records: Vec<Record>,
    /// All payloads that must be there (dirty and vital ones) match their checksums, or were not asked about. What the group rests on is
    /// for [`BadObjects`](super::read::BadObjects) to say.
    pub dirty_intact: bool,
    /// The places in `records` of objects that need not be there and are not.
    pub damaged: Vec<usize>,
}

/// A segment that belongs to the log, as far as it does.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub seq: u64,
    pub session: u64,
    pub first_group: u64,
    pub last_group: u64,
    /// Of the last group.
    pub tail_seq: u64,
    pub used_pages: u32,
    pub records: Records,
    /// A footer that says exactly this is on the medium.
    pub has_footer: bool,
    /// Groups between the segment before this one and this one are lost.
    pub hole_before: bool,
    /// Where the log goes on if not in the next segment with the next group: behind a hole.
    pub resume: Option<(u64, u64)>,
    /// The session in which `resume` was written down.
    pub marked_in_session: u64,
}

impl Segment {
    pub fn from_footer(sealed: &Sealed) -> Segment {
        let head = &sealed.head;
        Segment {
            seq: head.segment_seq,
            session: head.session,
            first_group: head.first_group,
            last_group: head.last_group,
            tail_seq: head.tail_seq,
            used_pages: head.used_pages,
            records: sealed.records.clone(),
            has_footer: true,
            hole_before: false,
            resume: (head.resume_seq != 0).then_some((head.resume_seq, head.resume_group)),
            marked_in_session: sealed.marked_in_session,
        }
    }

    /// Of the groups that were found by their headers, at least one.
    pub fn from_groups(groups: &[Group]) -> Option<Segment> {
        let (first, last) = (groups.first()?, groups.last()?);
        let seq = first.head.segment_seq;
        Some(Segment {
            seq,
            session: first.head.session,
            first_group: first.head.group,
            last_group: last.head.group,
            tail_seq: last.head.tail_seq,
            used_pages: last.head.page + GroupHead::pages(&last.records),
            records: Records::new(groups.iter().flat_map(|group| &group.records), seq),
            has_footer: false,
            hole_before: false,
            resume: None,
            marked_in_session: 0,
        })
    }

    /// Segment and number of the group that comes next.
    pub fn next(&self) -> (u64, u64) {
        self.resume.unwrap_or((self.seq + 1, self.last_group + 1))
    }
}
