//! Packed records as a writer makes them: objects, what rests on them, and what a cleaner moves.

use super::Random;
use super::disk::Disk;
use super::given::{Given, is_readable};
use super::model::Model;
use engine::recovery::{RecoveredBase, RecoveredItem};
use format::{Encoding, GroupHead, Layout, PAGE_BYTES, Packed, Record, RecordKind, block_checksum, seal_packed};
use std::collections::{BTreeMap, BTreeSet};
use types::VolumeId;

/// A group as it is written: its header and the payloads of its records, which have their places.
pub fn group_bytes(head: &GroupHead, records: &[Record], payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; GroupHead::pages(records) as usize * PAGE_BYTES];
    let in_header = GroupHead::packed_in_header(records);
    let packed = records.iter().zip(payloads).filter(|(record, _)| record.has_packed_payload()).flat_map(|(_, payload)| {
        let filled = payload.len().next_multiple_of(16);
        payload.iter().copied().chain(std::iter::repeat(0)).take(filled)
    });
    let packed: Vec<u8> = packed.take(in_header.len()).collect();
    head.encode(records, &packed, bytes.first_chunk_mut().expect("a page"));
    for (record, payload) in records.iter().zip(payloads) {
        let in_segment = match record.packed.filter(|packed| packed.encoding.has_packed_payload()) {
            Some(packed) => packed.place as usize * 16,
            None => record.slot_page as usize * PAGE_BYTES,
        };
        if !payload.is_empty() {
            bytes[in_segment - head.page as usize * PAGE_BYTES..][..payload.len()].copy_from_slice(payload);
        }
    }
    bytes
}

/// A packed record without a place yet, and its payload: `encoded`, sealed, or of a raw object the page. The checksum is that of the page, or
/// of a page that the encoded bytes stand for (nothing here decodes them).
pub fn packed(kind: RecordKind, address: (u32, u64), encoding: Encoding, object: u64, encoded: &[u8]) -> (Record, Vec<u8>) {
    let mut content = [0; PAGE_BYTES];
    content[..encoded.len()].copy_from_slice(encoded);
    let (volume, block) = (VolumeId(address.0), address.1);
    let checksum = block_checksum(Some(encoding), object, volume, block, &content);
    let packed = Packed { encoding, place: 0, bytes: 0, object, vital: false };
    let mut record = Record { kind, volume, block, mask: 0xff, checksum, slot_page: 0, packed: Some(packed) };
    let mut payload = Vec::new();
    if encoding == Encoding::Raw {
        payload.extend_from_slice(&content);
    } else if encoding.has_packed_payload() {
        seal_packed(record.payload_owner(), record.checksum, encoded, &mut payload);
    }
    record.packed = Some(Packed { bytes: payload.len() as u16, ..packed });
    (record, payload)
}

/// As a record of an object on which dirty blocks rest.
pub fn vital(record: Record) -> Record {
    Record { packed: record.packed.map(|packed| Packed { vital: true, ..packed }), ..record }
}

/// What a writer knows while it makes a group.
pub struct Packing {
    given: Given,
    /// Those that somebody may rest on.
    objects: BTreeMap<u64, RecoveredBase>,
    /// Those that dirty blocks rest on.
    needed_dirty: BTreeSet<u64>,
    /// Blocks with records in this group, and objects with records in it.
    touched: BTreeSet<(u32, u64)>,
    in_group: BTreeSet<u64>,
    pub next_object: u64,
    /// Of all objects ever.
    pub payloads: BTreeMap<u64, Vec<u8>>,
}

impl Packing {
    pub fn new(model: &Model, tail_seq: u64, volumes: &[VolumeId], next_object: u64) -> Packing {
        let live = model.live(u64::MAX, tail_seq, volumes);
        let dirty = live.given.blocks.values().filter(|record| record.dirty);
        let needed_dirty = dirty.filter_map(|record| record.stored).filter(|stored| stored.encoding.rests_on_base());
        Packing {
            needed_dirty: needed_dirty.map(|stored| stored.object).collect(),
            given: live.given,
            objects: live.objects,
            touched: BTreeSet::new(),
            in_group: BTreeSet::new(),
            next_object,
            payloads: model.payloads.clone(),
        }
    }

    /// Objects from before a start count only if they can be read: whoever rests on one, or moves it, has read it.
    pub fn keep_readable(&mut self, disk: &Disk, layout: &Layout, first_seq: u64) {
        self.objects.retain(|_, base| base.segment_seq >= first_seq || is_readable(disk, layout, &RecoveredItem::Base(*base)));
    }

    /// The record is in the group now.
    pub fn touch(&mut self, record: &Record, payload: &[u8]) {
        self.touched.insert((record.volume.0, record.block));
        let Some(packed) = record.packed else { return };
        if packed.encoding.is_full() {
            self.in_group.insert(packed.object);
            self.payloads.insert(packed.object, payload.to_vec());
        } else if record.kind == RecordKind::DataDirty {
            self.needed_dirty.insert(packed.object);
        }
    }

    /// A packed record, of that block unless it is one that moves.
    pub fn record(&mut self, volume: VolumeId, block: u64, random: &mut Random) -> (Record, Vec<u8>) {
        let kind = if random.chance(1, 2) { RecordKind::DataDirty } else { RecordKind::DataClean };
        let address = (volume.0, block);
        let encoded: Vec<u8> = (0..1 + random.below(700)).map(|_| random.next() as u8).collect();
        let any: Vec<u64> = self.objects.keys().chain(&self.in_group).copied().collect();
        let any = any.get(random.below(any.len().max(1) as u64) as usize).copied();
        match (random.below(10), any) {
            (0..=3, _) | (_, None) => {
                let encoding = [Encoding::Raw, Encoding::Lz4, Encoding::Zstd][random.below(3) as usize];
                self.next_object += 1;
                packed(kind, address, encoding, self.next_object - 1, &encoded)
            }
            (4, _) if random.chance(1, 3) => packed(RecordKind::DataLost, address, Encoding::Lost, 0, &[]),
            (4, _) => packed(kind, address, Encoding::Zero, 0, &[]),
            (5..=6, Some(base)) => packed(kind, address, Encoding::Duplicate, base, &[]),
            (7, Some(base)) => {
                let encoding = [Encoding::Diff, Encoding::LzDelta, Encoding::ZstdDelta][random.below(3) as usize];
                packed(kind, address, encoding, base, &encoded)
            }
            (_, Some(object)) => self.moved(object).unwrap_or_else(|| packed(kind, address, Encoding::Zero, 0, &[])),
        }
    }

    /// The object once more, as a cleaner appends it.
    fn moved(&self, object: u64) -> Option<(Record, Vec<u8>)> {
        let base = *self.objects.get(&object).filter(|_| !self.in_group.contains(&object))?;
        let block = match self.given.object(object) {
            Some(RecoveredItem::Block(block)) => Some(block),
            Some(RecoveredItem::Base(_)) => None,
            // Nobody needs it.
            None => return None,
        };
        let block = block.filter(|block| !self.touched.contains(&(block.volume.0, block.block)));
        let (kind, volume, number) = match block {
            Some(block) => (if block.dirty { RecordKind::DataDirty } else { RecordKind::DataClean }, block.volume, block.block),
            // If its block has something newer in this very group, it moves another time.
            None if self.given.bases.contains_key(&object) => (RecordKind::Base, VolumeId(0), 0),
            None => return None,
        };
        let stored = Packed { vital: self.needed_dirty.contains(&object), ..base.stored };
        let record = Record { kind, volume, block: number, mask: 0xff, checksum: base.checksum, slot_page: 0, packed: Some(stored) };
        Some((record, self.payloads[&object].clone()))
    }
}
