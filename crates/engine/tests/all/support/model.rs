//! What a log means, told by the simplest program that can tell it.

use super::given::Given;
use engine::recovery::{RecoveredBase, RecoveredItem, RecoveredRecord};
use format::packed::PACKED_ORDINAL;
use format::{Record, RecordKind};
use std::collections::{BTreeMap, BTreeSet};
use types::VolumeId;

/// A group as it was written.
#[derive(Clone, Debug)]
pub struct ModelGroup {
    pub number: u64,
    pub seq: u64,
    pub tail_seq: u64,
    pub records: Vec<Record>,
}

/// All groups of a shard that count or may count.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub groups: Vec<ModelGroup>,
    /// Payloads of objects, as they stand in the log.
    pub payloads: BTreeMap<u64, Vec<u8>>,
}

/// A record and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    pub group: u64,
    pub seq: u64,
    /// Plain: the page; packed: bit 31 and the count before it.
    pub ordinal: u32,
    pub record: Record,
}

/// What recovery must find.
#[derive(Clone, Debug)]
pub struct Live {
    pub given: Given,
    /// All objects, needed or not, where they were last.
    pub objects: BTreeMap<u64, RecoveredBase>,
    pub next_object: u64,
}

impl Model {
    pub fn group(&self, number: u64) -> Option<&ModelGroup> {
        self.groups.iter().find(|group| group.number == number)
    }

    /// Whether the payload there was written as one that does not match its checksum.
    #[allow(dead_code)]
    pub fn is_lost(&self, seq: u64, page: u32) -> bool {
        let records = self.groups.iter().filter(|group| group.seq == seq).flat_map(|group| &group.records);
        records.into_iter().any(|record| record.kind == RecordKind::DataLost && record.slot_page == page)
    }

    /// All records in log order.
    pub fn placed(&self) -> Vec<Placed> {
        let mut packed_before: BTreeMap<u64, u32> = BTreeMap::new();
        let mut placed = Vec::new();
        for group in &self.groups {
            for record in &group.records {
                let before = packed_before.entry(group.seq).or_default();
                let ordinal = if record.packed.is_some() { PACKED_ORDINAL | *before } else { record.slot_page };
                *before += u32::from(record.packed.is_some());
                placed.push(Placed { group: group.number, seq: group.seq, ordinal, record: *record });
            }
        }
        placed
    }

    /// The blocks that recovery must give if the log ends with group `last`.
    pub fn newest(&self, last: u64, tail_seq: u64, volumes: &[VolumeId]) -> BTreeMap<(u32, u64), RecoveredRecord> {
        self.live(last, tail_seq, volumes).given.blocks
    }

    /// What recovery must find if the log ends with group `last`.
    pub fn live(&self, last: u64, tail_seq: u64, volumes: &[VolumeId]) -> Live {
        let (mut newest, mut objects, mut next_object) = (BTreeMap::new(), BTreeMap::new(), 1);
        for Placed { seq, ordinal, record, .. } in self.placed().into_iter().filter(|one| one.group <= last && one.seq >= tail_seq) {
            if let Some(stored) = record.packed {
                next_object = next_object.max(stored.object + 1);
                if stored.encoding.is_full() {
                    objects.insert(stored.object, RecoveredBase { segment_seq: seq, ordinal, checksum: record.checksum, stored });
                }
            }
            if !volumes.contains(&record.volume) {
                continue;
            }
            let key = (record.volume.0, record.block);
            match record.kind {
                RecordKind::DataClean | RecordKind::DataDirty | RecordKind::DataLost => {
                    let recovered = RecoveredRecord {
                        volume: record.volume,
                        block: record.block,
                        segment_seq: seq,
                        ordinal,
                        dirty: record.kind != RecordKind::DataClean,
                        mask: record.mask,
                        checksum: record.checksum,
                        stored: record.packed,
                    };
                    newest.insert(key, recovered);
                }
                RecordKind::Base => {}
                RecordKind::Invalidate => {
                    newest.remove(&key);
                }
                RecordKind::CleanNote { of_seq, of_ordinal } => {
                    if let Some(record) = newest.get_mut(&key)
                        && (record.segment_seq, record.ordinal) == (of_seq, of_ordinal)
                    {
                        record.dirty = false;
                    }
                }
            }
        }
        let base_of = |record: &RecoveredRecord| record.stored.filter(|stored| stored.encoding.rests_on_base()).map(|stored| stored.object);
        newest.retain(|_, record| record.dirty || base_of(record).is_none_or(|base| objects.contains_key(&base)));
        let needed: BTreeSet<u64> = newest.values().filter_map(base_of).collect();
        let mut given = Given::default();
        let blocks: BTreeSet<(u64, u32)> = newest.values().map(|record| (record.segment_seq, record.ordinal)).collect();
        newest.into_values().for_each(|record| given.add(RecoveredItem::Block(record)));
        let bases = needed.iter().filter_map(|object| objects.get(object));
        let orphans = bases.filter(|base| !blocks.contains(&(base.segment_seq, base.ordinal)));
        orphans.for_each(|base| given.add(RecoveredItem::Base(*base)));
        Live { given, objects, next_object }
    }

    /// The log ends with group `last`: what was behind it never happened.
    pub fn truncate(&mut self, last: u64, tail_seq: u64) {
        self.groups.retain(|group| group.number <= last && group.seq >= tail_seq);
    }
}
