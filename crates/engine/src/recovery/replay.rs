//! Plays the records in log order: the newest one of a block wins.

use super::chain::Found;
use super::segment::{Entry, EntryKind, Segment};
use super::{RecoveredRecord, RecoveryReport, SEGMENTS_FREE_WANTED};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use format::checkpoint::LogEnd;
use format::{Superblock, VolumeRecord};
use hashbrown::HashTable;
use types::{Mode, VolumeId};

/// Where an entry stands in [`Replay::entries`]. A shard has at most 2^31 slots and two records for each.
type Place = u32;

/// Records looked up ahead of being played.
const AHEAD: Place = 32;

struct Replay {
    /// All live segments' records, in log order.
    entries: Vec<Entry>,
    /// Sequence number and first place of each segment played, ascending.
    segments: Vec<(u64, Place)>,
    newest: HashTable<Place>,
    seed: u64,
    known_volumes: Vec<u32>,
}

/// Gives the newest records that have payloads, and completes the report. Gives the log's end, its tail perhaps moved on.
pub(super) fn replay(superblock: &Superblock, found: Found, report: &mut RecoveryReport, sink: &mut dyn FnMut(RecoveredRecord)) -> LogEnd {
    let mut known_volumes: Vec<u32> = superblock.volumes.iter().map(|volume| volume.id.0).collect();
    known_volumes.sort_unstable();
    let seed = u64::from_le_bytes(superblock.uuid.first_chunk().copied().unwrap_or_default());
    let count = found.segments.iter().map(|segment| segment.entries.len()).sum();
    let (entries, newest) = (Vec::with_capacity(count), HashTable::with_capacity(count));
    let mut replay = Replay { entries, segments: Vec::new(), newest, seed, known_volumes };
    let hole_at_end = found.segments.last().is_some_and(|last| last.resume.is_some());
    for segment in found.segments {
        report.segments += 1;
        report.groups += segment.last_group - segment.first_group + 1;
        report.records += segment.entries.len() as u64;
        if segment.hole_before {
            report.forgotten_blocks += replay.forget_clean();
        }
        replay.segment(segment);
    }
    if hole_at_end {
        report.forgotten_blocks += replay.forget_clean();
    }
    if report.damaged_places > 0 {
        // One that is recorded as settled and yet has dirty blocks lost the notes that they came home: they may be old.
        let has_dirty: BTreeSet<u32> = replay.entries.iter().filter(|e| e.kind.is_dirty()).map(|e| e.volume).collect();
        let at_risk = |volume: &&VolumeRecord| volume.may_have_dirty || volume.mode == Mode::WriteBack || has_dirty.contains(&volume.id.0);
        report.damaged_volumes = superblock.volumes.iter().filter(at_risk).map(|volume| volume.id).collect();
    }
    let mut end = found.end;
    let segments_per_shard = u64::from(superblock.layout.segments_per_shard);
    let ends = replay.segments.iter().skip(1).map(|(_, first)| *first as usize).chain([count]);
    for ((seq, first), end_place) in replay.segments.iter().zip(ends) {
        let entries = &replay.entries[*first as usize..end_place];
        let free = segments_per_shard.saturating_sub(end.next_seq - end.tail_seq);
        let dirty_here = entries.iter().any(|entry| entry.kind.is_dirty());
        if *seq == end.tail_seq && free < SEGMENTS_FREE_WANTED && !dirty_here {
            end.tail_seq += 1;
            report.forgotten_blocks += entries.iter().filter(|entry| entry.kind == EntryKind::Clean).count() as u64;
            continue;
        }
        give(*seq, entries, report, sink);
    }
    end
}

/// Gives what is live of one segment.
fn give(seq: u64, entries: &[Entry], report: &mut RecoveryReport, sink: &mut dyn FnMut(RecoveredRecord)) {
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Clean || entry.kind.is_dirty()) {
        let dirty = entry.kind.is_dirty();
        *if dirty { &mut report.dirty_blocks } else { &mut report.clean_blocks } += 1;
        sink(RecoveredRecord {
            volume: VolumeId(entry.volume),
            block: entry.block,
            segment_seq: seq,
            page: entry.page,
            dirty,
            mask: entry.mask,
            checksum: entry.checksum,
        });
    }
}

impl Replay {
    /// Plays one segment, the next in order.
    fn segment(&mut self, segment: Segment) {
        let first = self.entries.len() as Place;
        self.segments.push((segment.seq, first));
        self.entries.extend_from_slice(&segment.entries);
        let end = self.entries.len() as Place;
        for place in first..end {
            if (place - first).is_multiple_of(AHEAD) {
                self.approach(place..end.min(place + AHEAD));
            }
            let entry = *self.at(place);
            // Volumes that were removed never come back: their numbers are not used again.
            if self.known_volumes.binary_search(&entry.volume).is_err() {
                self.kill(place);
                continue;
            }
            match entry.kind {
                EntryKind::Clean | EntryKind::Dirty | EntryKind::Lost => self.newest_is(&entry, place),
                EntryKind::Invalidate => self.forget(&entry),
                EntryKind::Note => self.came_home(&entry, entry.noted_seq(segment.seq)),
                EntryKind::Dead => {}
            }
        }
    }

    /// Has the processor fetch what the table says of these records, so that the waits for memory overlap.
    fn approach(&self, places: core::ops::Range<Place>) {
        for place in places {
            let hash = hash(self.seed, &self.entries[place as usize]);
            core::hint::black_box(self.newest.find(hash, |_| false));
        }
    }

    fn at(&mut self, place: Place) -> &mut Entry {
        &mut self.entries[place as usize]
    }

    /// The segment in which an entry stands.
    fn seq_of(&self, place: Place) -> u64 {
        let behind = self.segments.partition_point(|(_, first)| *first <= place);
        self.segments[behind - 1].0
    }

    fn kill(&mut self, place: Place) {
        self.at(place).kind = EntryKind::Dead;
    }

    fn newest_is(&mut self, entry: &Entry, place: Place) {
        let (entries, seed) = (&self.entries, self.seed);
        let hash = |place: &Place| hash(seed, &entries[*place as usize]);
        let found = self.newest.entry(self::hash(seed, entry), |other| same_block(entry, &entries[*other as usize]), hash);
        match found {
            hashbrown::hash_table::Entry::Occupied(mut occupied) => {
                let older = core::mem::replace(occupied.get_mut(), place);
                self.kill(older);
            }
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert(place);
            }
        }
    }

    fn forget(&mut self, entry: &Entry) {
        let entries = &self.entries;
        let same = |other: &Place| same_block(entry, &entries[*other as usize]);
        if let Ok(occupied) = self.newest.find_entry(hash(self.seed, entry), same) {
            let (older, _) = occupied.remove();
            self.kill(older);
        }
    }

    fn came_home(&mut self, note: &Entry, noted_seq: u64) {
        let entries = &self.entries;
        let same = |other: &Place| same_block(note, &entries[*other as usize]);
        let Some(&newest) = self.newest.find(hash(self.seed, note), same) else {
            return;
        };
        let (page, seq) = (note.page, self.seq_of(newest));
        let entry = self.at(newest);
        if entry.kind.is_dirty() && entry.page == page && seq == noted_seq {
            entry.kind = EntryKind::Clean;
        }
    }

    /// Forgets all clean blocks played so far; gives their count.
    fn forget_clean(&mut self) -> u64 {
        let entries = &mut self.entries;
        let before = self.newest.len();
        self.newest.retain(|place| {
            let entry = &mut entries[*place as usize];
            let keep = entry.kind.is_dirty();
            if !keep {
                entry.kind = EntryKind::Dead;
            }
            keep
        });
        (before - self.newest.len()) as u64
    }
}

fn same_block(one: &Entry, other: &Entry) -> bool {
    one.block == other.block && one.volume == other.volume
}

/// Mixes well enough that no pattern of blocks makes long chains (the finalizer of SplitMix64), seeded by the pool so that nobody
/// outside can make one on purpose.
fn hash(seed: u64, entry: &Entry) -> u64 {
    let mut value = seed ^ entry.block ^ u64::from(entry.volume) << 34;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
