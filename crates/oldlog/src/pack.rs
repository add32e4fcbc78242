//! In which form blocks stand in a log where content was made use of.

use content::encode::{Bases, Encoder, Form, Previous, Steps};
use format::{Encoding, PAGE_BYTES, Packed, Record, RecordKind, block_checksum, seal_packed};
use std::collections::BTreeMap;
use types::VolumeId;

/// Objects of a shard, and which form the next block gets.
pub struct Packing {
    encoder: Encoder,
    objects: Objects,
    next_object: u64,
    /// What the newest version of a block is, or rests on.
    rests_on: BTreeMap<(VolumeId, u64), u64>,
}

struct Objects(BTreeMap<u32, [u8; PAGE_BYTES]>);

impl Bases for Objects {
    fn content(&self, object: u32) -> Option<&[u8; PAGE_BYTES]> {
        self.0.get(&object)
    }
}

impl Packing {
    /// With what costs little. `seed`: the pool's secret.
    pub fn fast(seed: u64) -> Packing {
        Packing::of(Steps::FAST, seed)
    }

    /// With all there is.
    pub fn dense(seed: u64) -> Packing {
        Packing::of(Steps::DENSE, seed)
    }

    fn of(steps: Steps, seed: u64) -> Packing {
        Packing { encoder: Encoder::new(steps, seed, 4096), objects: Objects(BTreeMap::new()), next_object: 1, rests_on: BTreeMap::new() }
    }

    pub(crate) fn forget_objects(&mut self) {
        self.encoder.forget_hints();
        self.objects.0.clear();
        self.rests_on.clear();
    }

    /// A record without a place yet, and its payload.
    pub(crate) fn pack(&mut self, kind: RecordKind, volume: VolumeId, block: u64, page: &[u8; PAGE_BYTES]) -> (Record, Vec<u8>) {
        let base = self.rests_on.get(&(volume, block)).copied();
        let previous = base.map(|base| Previous { base: base as u32, content: self.objects.content(base as u32) });
        let form = self.encoder.encode(page, previous, &self.objects);
        let (encoding, base) = match form {
            Form::Zero => (Encoding::Zero, None),
            Form::Unchanged => (Encoding::Duplicate, base),
            Form::Duplicate(object) => (Encoding::Duplicate, Some(object.into())),
            Form::Diff(object) => (Encoding::Diff, Some(object.into())),
            Form::LzDelta(object) => (Encoding::LzDelta, Some(object.into())),
            Form::ZstdDelta(object) => (Encoding::ZstdDelta, Some(object.into())),
            Form::Lz4 => (Encoding::Lz4, None),
            Form::Zstd => (Encoding::Zstd, None),
            Form::Raw => (Encoding::Raw, None),
        };
        let object = match base {
            _ if encoding.is_full() => self.new_object(page),
            Some(base) => base,
            None => 0,
        };
        match object {
            0 => self.rests_on.remove(&(volume, block)),
            _ => self.rests_on.insert((volume, block), object),
        };
        let checksum = block_checksum(Some(encoding), object, volume, block, page);
        let packed = Packed { encoding, place: 0, bytes: 0, object, vital: false };
        let record = Record { kind, volume, block, mask: u8::MAX, checksum, slot_page: 0, packed: Some(packed) };
        let mut payload = Vec::new();
        if encoding == Encoding::Raw {
            payload.extend_from_slice(page);
        } else if encoding.has_packed_payload() {
            seal_packed(record.payload_owner(), checksum, self.encoder.bytes(), &mut payload);
        }
        (Record { packed: Some(Packed { bytes: payload.len() as u16, ..packed }), ..record }, payload)
    }

    fn new_object(&mut self, page: &[u8; PAGE_BYTES]) -> u64 {
        let object = self.next_object;
        self.next_object += 1;
        self.encoder.remember(object as u32, page);
        self.objects.0.insert(object as u32, *page);
        object
    }
}
