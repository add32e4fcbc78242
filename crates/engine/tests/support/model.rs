//! What a log means, told by the simplest program that can tell it.

use engine::recovery::RecoveredRecord;
use format::{Record, RecordKind};
use std::collections::BTreeMap;
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

    /// What recovery must give if the log ends with group `last`.
    pub fn newest(&self, last: u64, tail_seq: u64, volumes: &[VolumeId]) -> BTreeMap<(u32, u64), RecoveredRecord> {
        let mut newest = BTreeMap::new();
        for group in self.groups.iter().filter(|group| group.number <= last && group.seq >= tail_seq) {
            for record in group.records.iter().filter(|record| volumes.contains(&record.volume)) {
                let key = (record.volume.0, record.block);
                match record.kind {
                    RecordKind::DataClean | RecordKind::DataDirty | RecordKind::DataLost => {
                        let recovered = RecoveredRecord {
                            volume: record.volume,
                            block: record.block,
                            segment_seq: group.seq,
                            page: record.slot_page,
                            dirty: record.kind != RecordKind::DataClean,
                            mask: record.mask,
                            checksum: record.checksum,
                        };
                        newest.insert(key, recovered);
                    }
                    RecordKind::Invalidate => {
                        newest.remove(&key);
                    }
                    RecordKind::CleanNote { of_seq, of_page } => {
                        if let Some(record) = newest.get_mut(&key)
                            && (record.segment_seq, record.page) == (of_seq, of_page)
                        {
                            record.dirty = false;
                        }
                    }
                }
            }
        }
        newest
    }

    /// The log ends with group `last`: what was behind it never happened.
    pub fn truncate(&mut self, last: u64, tail_seq: u64) {
        self.groups.retain(|group| group.number <= last && group.seq >= tail_seq);
    }
}
