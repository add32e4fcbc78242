//! Plays the records in log order: the newest one of a block wins.

use super::chain::Found;
use super::segment::{Entry, EntryKind, Records, Segment};
use super::{RecoveredBase, RecoveredItem, RecoveredRecord, RecoveryReport, SEGMENTS_FREE_WANTED};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;
use format::checkpoint::LogEnd;
use format::{Packed, Superblock, VolumeRecord};
use hashbrown::HashTable;
use types::{Mode, VolumeId};

/// Where an entry stands in [`Replay::entries`]. An index holds 2^25 slots, and there are at most 32 records for each.
type Place = u32;

/// Records looked up ahead of being played.
const AHEAD: Place = 32;

/// A segment that was played.
struct Played {
    seq: u64,
    /// Of its records.
    places: Range<Place>,
    parts: Rc<[Packed]>,
}

struct Replay {
    /// All live segments' records, in log order.
    entries: Vec<Entry>,
    /// Ascending.
    segments: Vec<Played>,
    newest: HashTable<Place>,
    /// Numbers of objects, and where they are: the last record of each.
    objects: HashTable<(u64, Place)>,
    /// Above all numbers of objects met.
    next_object: u64,
    seed: u64,
    known_volumes: Vec<u32>,
}

/// Gives what is live, and completes the report. Gives the log's end, its tail perhaps moved on, and the number of the next object.
pub(super) fn replay(
    superblock: &Superblock,
    found: Found,
    report: &mut RecoveryReport,
    sink: &mut dyn FnMut(RecoveredItem),
) -> (LogEnd, u64) {
    let mut known_volumes: Vec<u32> = superblock.volumes.iter().map(|volume| volume.id.0).collect();
    known_volumes.sort_unstable();
    let seed = u64::from_le_bytes(superblock.uuid.first_chunk().copied().unwrap_or_default());
    let count = found.segments.iter().map(|segment| segment.records.entries.len()).sum();
    let (entries, newest) = (Vec::with_capacity(count), HashTable::with_capacity(count));
    let (segments, objects) = (Vec::with_capacity(found.segments.len()), HashTable::new());
    let mut replay = Replay { entries, segments, newest, objects, next_object: 1, seed, known_volumes };
    let hole_at_end = found.segments.last().is_some_and(|last| last.resume.is_some());
    for segment in found.segments {
        report.segments += 1;
        report.groups += segment.last_group - segment.first_group + 1;
        report.records += segment.records.entries.len() as u64;
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
    // Bases of dirty blocks keep their segments as dirty blocks do; bases of clean ones do not, so those are looked at when the tail is known.
    replay.need_bases_of_dirty();
    let dirty = replay.dirty();
    let mut end = found.end;
    let first = replay.move_tail(&mut end, u64::from(superblock.layout.segments_per_shard), report);
    report.forgotten_blocks += replay.need_bases_of_clean(first);
    for played in &replay.segments[first..] {
        replay.give(played, report, sink);
    }
    assert_eq!(report.dirty_blocks, dirty, "every dirty block is given");
    assert!(end.tail_seq >= found.end.tail_seq && end.tail_seq <= end.next_seq, "the tail moves on, and not past the end");
    (end, replay.next_object)
}

impl Replay {
    /// Moves the tail past segments without anything that dirty blocks need, until enough segments are free. Gives how many were passed.
    fn move_tail(&self, end: &mut LogEnd, segments_per_shard: u64, report: &mut RecoveryReport) -> usize {
        let mut passed = 0;
        for (at, played) in self.segments.iter().enumerate() {
            let entries = self.entries_of(played);
            let free = segments_per_shard.saturating_sub(end.next_seq - end.tail_seq);
            let dirty_here = entries.iter().any(|entry| entry.kind.is_dirty() || entry.needed);
            if played.seq != end.tail_seq || free >= SEGMENTS_FREE_WANTED || dirty_here {
                break;
            }
            // Never into a hole: what marks it is passed with this segment, and what was unreadable now may be read next time.
            end.tail_seq = self.segments.get(at + 1).map_or(end.next_seq, |next| next.seq);
            report.forgotten_blocks += entries.iter().filter(|entry| entry.kind == EntryKind::Clean).count() as u64;
            passed += 1;
        }
        passed
    }

    /// Dirty blocks.
    fn dirty(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.kind.is_dirty()).count() as u64
    }

    /// Gives what is live of one segment.
    fn give(&self, played: &Played, report: &mut RecoveryReport, sink: &mut dyn FnMut(RecoveredItem)) {
        let segment_seq = played.seq;
        for entry in self.entries_of(played).iter().filter(|entry| entry.kind.is_live() || entry.needed) {
            let (ordinal, checksum) = (entry.ordinal, entry.checksum);
            if !entry.kind.is_live() {
                report.bases += 1;
                sink(RecoveredItem::Base(RecoveredBase { segment_seq, ordinal, checksum, stored: entry.part(&played.parts) }));
                continue;
            }
            let dirty = entry.kind.is_dirty();
            *if dirty { &mut report.dirty_blocks } else { &mut report.clean_blocks } += 1;
            sink(RecoveredItem::Block(RecoveredRecord {
                volume: VolumeId(entry.volume),
                block: entry.block,
                segment_seq,
                ordinal,
                dirty,
                mask: entry.mask,
                checksum,
                stored: entry.packed(&played.parts),
            }));
        }
    }

    fn entries_of(&self, played: &Played) -> &[Entry] {
        &self.entries[played.places.start as usize..played.places.end as usize]
    }

    /// Plays one segment, the next in order.
    fn segment(&mut self, segment: Segment) {
        let Records { entries, parts } = segment.records;
        assert!(self.segments.last().is_none_or(|before| before.seq < segment.seq), "segments are played in order");
        let first = self.entries.len() as Place;
        self.entries.extend_from_slice(&entries);
        let end = self.entries.len() as Place;
        self.segments.push(Played { seq: segment.seq, places: first..end, parts: Rc::clone(&parts) });
        for place in first..end {
            if (place - first).is_multiple_of(AHEAD) {
                self.approach(place..end.min(place + AHEAD));
            }
            let entry = *self.at(place);
            if let Some(packed) = entry.packed(&parts) {
                self.object_is(&packed, &entry, place);
                if entry.kind == EntryKind::Base {
                    continue;
                }
            }
            // Volumes that were removed never come back: their numbers are not used again.
            if self.known_volumes.binary_search(&entry.volume).is_err() {
                self.kill(place);
                continue;
            }
            match entry.kind {
                EntryKind::Clean | EntryKind::Dirty | EntryKind::Lost => self.newest_is(&entry, place),
                EntryKind::Invalidate => self.forget(&entry),
                EntryKind::Note => self.came_home(&entry, entry.noted_seq(segment.seq)),
                EntryKind::Base | EntryKind::Dead => {}
            }
        }
    }

    /// A packed record is played: if it is an object, this is where that is from now on.
    fn object_is(&mut self, packed: &Packed, entry: &Entry, place: Place) {
        self.next_object = self.next_object.max(packed.object + 1);
        if !packed.encoding.is_full() {
            return;
        }
        let (object, seed) = (packed.object, self.seed);
        let rehash = |other: &(u64, Place)| mix(seed ^ other.0);
        let mut found = match self.objects.entry(mix(seed ^ object), |other| other.0 == object, rehash) {
            hashbrown::hash_table::Entry::Occupied(found) => found,
            hashbrown::hash_table::Entry::Vacant(vacant) => {
                vacant.insert((object, place));
                return;
            }
        };
        let older = self.entries[found.get().1 as usize];
        let lives_elsewhere = older.kind.is_live() && !same_block(&older, entry);
        if lives_elsewhere && entry.kind == EntryKind::Base {
            // What superseded the block is lost in a hole. Both records have the same content, and as a block it is still the newest known.
            return;
        }
        found.get_mut().1 = place;
        if lives_elsewhere {
            // No writer gives an object to two blocks.
            self.forget(&older);
        }
    }

    /// Where an object is.
    fn object(&self, object: u64) -> Option<Place> {
        self.objects.find(mix(self.seed ^ object), |other| other.0 == object).map(|found| found.1)
    }

    /// Marks the objects that live dirty blocks rest on.
    fn need_bases_of_dirty(&mut self) {
        for nth in 0..self.segments.len() {
            self.for_dependents(nth, EntryKind::Dirty, |replay, _, base| {
                if let Some(base) = base {
                    replay.at(base).needed = true;
                }
            });
        }
    }

    /// Marks the objects that live clean blocks rest on, from segment `first` of those played; those whose base does not stand there are
    /// forgotten. Gives their count.
    fn need_bases_of_clean(&mut self, first: usize) -> u64 {
        let first_place = self.segments.get(first).map_or(0, |played| played.places.start);
        let mut forgotten = 0;
        for nth in first..self.segments.len() {
            self.for_dependents(nth, EntryKind::Clean, |replay, place, base| match base.filter(|base| *base >= first_place) {
                Some(base) => replay.at(base).needed = true,
                None => {
                    replay.kill(place);
                    forgotten += 1;
                }
            });
        }
        forgotten
    }

    /// Calls `each` with the places of all records of that kind in a segment that rest on a base, and with the places of the bases.
    fn for_dependents(&mut self, nth: usize, kind: EntryKind, mut each: impl FnMut(&mut Replay, Place, Option<Place>)) {
        let Played { places, parts, .. } = &self.segments[nth];
        if parts.is_empty() {
            return;
        }
        let (places, parts) = (places.clone(), Rc::clone(parts));
        for place in places {
            let entry = *self.at(place);
            if entry.kind == kind
                && let Some(packed) = entry.packed(&parts).filter(|packed| packed.encoding.rests_on_base())
            {
                let base = self.object(packed.object);
                each(self, place, base);
            }
        }
    }

    /// Has the processor fetch what the table says of these records, so that the waits for memory overlap.
    fn approach(&self, places: Range<Place>) {
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
        let behind = self.segments.partition_point(|played| played.places.start <= place);
        self.segments[behind - 1].seq
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
                assert!(older < place, "the newer record supersedes the older");
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
        let (ordinal, seq) = (note.ordinal, self.seq_of(newest));
        let entry = self.at(newest);
        if entry.kind.is_dirty() && entry.ordinal == ordinal && seq == noted_seq {
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
    mix(seed ^ entry.block ^ u64::from(entry.volume) << 34)
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
