//! What recovery holds of a segment while it works: 24 bytes a record.

use alloc::rc::Rc;
use alloc::vec::Vec;
use format::{FooterHead, GroupHead, Record, RecordKind};
use types::VolumeId;

/// A record, packed: recovery may hold one for each page of the SSD's share of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub block: u64,
    pub volume: u32,
    /// Data: of the payload. Clean note: how many segments before its own the noted payload stands.
    pub checksum: u32,
    /// Data: page of the payload. Clean note: page of the noted payload.
    pub page: u32,
    pub mask: u8,
    pub kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
    Clean,
    Dirty,
    /// Dirty, and known not to match its checksum.
    Lost,
    Invalidate,
    Note,
    /// Superseded or forgotten; for replay only.
    Dead,
}

impl EntryKind {
    /// Newer than the backing device, readable or not.
    pub fn is_dirty(self) -> bool {
        matches!(self, EntryKind::Dirty | EntryKind::Lost)
    }
}

const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    pub fn new(record: &Record, segment_seq: u64) -> Entry {
        let (kind, checksum, page) = match record.kind {
            RecordKind::DataClean => (EntryKind::Clean, record.checksum, record.slot_page),
            RecordKind::DataDirty => (EntryKind::Dirty, record.checksum, record.slot_page),
            RecordKind::DataLost => (EntryKind::Lost, record.checksum, record.slot_page),
            RecordKind::Invalidate => (EntryKind::Invalidate, 0, 0),
            // A note from outside the ring's length, before or behind, can name nothing that is still there.
            RecordKind::CleanNote { of_seq, of_page } => {
                let distance = segment_seq.checked_sub(of_seq).and_then(|distance| u32::try_from(distance).ok());
                (EntryKind::Note, distance.unwrap_or(u32::MAX), of_page)
            }
        };
        Entry { block: record.block, volume: record.volume.0, checksum, page, mask: record.mask, kind }
    }

    /// The segment that a note in segment `segment_seq` is about.
    pub fn noted_seq(&self, segment_seq: u64) -> u64 {
        segment_seq.saturating_sub(u64::from(self.checksum))
    }

    /// The record again, for a footer.
    pub fn record(&self, segment_seq: u64) -> Record {
        let (kind, data) = match self.kind {
            EntryKind::Clean => (RecordKind::DataClean, true),
            EntryKind::Dirty => (RecordKind::DataDirty, true),
            EntryKind::Lost => (RecordKind::DataLost, true),
            EntryKind::Invalidate => (RecordKind::Invalidate, false),
            EntryKind::Note => (RecordKind::CleanNote { of_seq: self.noted_seq(segment_seq), of_page: self.page }, false),
            EntryKind::Dead => unreachable!("footers are written before replay"),
        };
        Record {
            kind,
            volume: VolumeId(self.volume),
            block: self.block,
            mask: self.mask,
            checksum: if data { self.checksum } else { 0 },
            slot_page: if data { self.page } else { 0 },
        }
    }
}

/// A footer found whole and in its place.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub head: FooterHead,
    pub marked_in_session: u64,
    pub entries: Rc<[Entry]>,
}

/// A group found by its header.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub head: GroupHead,
    pub records: Vec<Record>,
    /// All dirty payloads match their checksums (or were not asked about).
    pub dirty_intact: bool,
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
    pub entries: Rc<[Entry]>,
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
            entries: Rc::clone(&sealed.entries),
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
            entries: groups.iter().flat_map(|group| &group.records).map(|record| Entry::new(record, seq)).collect(),
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
