//! Blocks on their way into the store in another form than as they are: newly encoded, or appended again as they were stored.
//!
//! The order of index and store is that of plain blocks: a record is appended, the index points to it at once, and its content (or its stored
//! bytes) is served from memory until its group is complete.

use super::{CLEAN_HOLD_NS, Shard};
use crate::index::{Encoding, Index, Slot, SlotMeta, Stored};
use crate::key::Key;
use crate::packer::{AtHand, Chosen, ContentOptions, Kind, Step, StepState};
use crate::policy::Heat;
use crate::stats::ContentStats;
use crate::store::{PackedPayload, Payload, Purpose, Urgency};
use alloc::vec::Vec;
use format::{Packed, PayloadOwner, Record, RecordKind, object_checksum, open_packed, payload_checksum, seal_packed};
use page::Page;
use types::{VolumeId, VolumeIndex};

/// Of the reads that had to read a base as well, of blocks that are read often, one in so many makes its block whole: what it writes is then worth
/// about as many reads.
const WHOLE_ONE_IN: u32 = 16;

/// Blocks that became zstd when they were moved, and bytes saved by that.
#[derive(Default)]
pub struct Densified {
    blocks: u64,
    saved_bytes: u64,
}

/// A block on its way into the store.
pub struct NewBlock {
    /// Which.
    pub key: Key,
    /// Its content.
    pub page: Page,
    /// Valid sectors.
    pub mask: u8,
    /// Newer than the backing device.
    pub dirty: bool,
    /// For its index entry.
    pub heat: Heat,
    /// Of the content; computed here unless the caller has it.
    pub checksum: Option<u32>,
}

impl Shard {
    /// Appends a block and points the index at it; gives the group. The store must have room.
    pub(super) fn store_block(&mut self, block: NewBlock, urgency: Urgency) -> u64 {
        if let Some(group) = self.store_packed(&block, urgency) {
            return group;
        }
        let NewBlock { key, page, mask, dirty, heat, checksum } = block;
        let id = self.volumes.of(key).id;
        if checksum.is_none() {
            self.destager.replaced(key);
        }
        let checksum = checksum.unwrap_or_else(|| payload_checksum(id, key.block(), &page));
        let kind = if dirty { RecordKind::DataDirty } else { RecordKind::DataClean };
        let record = Record { kind, volume: id, block: key.block(), mask, checksum, slot_page: 0, packed: None };
        let appended = self.store.append(record, self.index.get(key), Payload::Page(page), urgency);
        let slot = appended.slot.expect("a record with payload has a slot");
        let meta = SlotMeta { dirty, partial: mask != u8::MAX, frequency: heat.bits(), checksum };
        if self.index.insert(key, slot, meta).is_none() {
            self.volumes.of(key).cached_blocks += 1;
            self.presence.enter(key);
        }
        self.partial.remove(&key);
        if meta.partial {
            self.partial.insert(key, mask);
        }
        if dirty {
            self.now_dirty(key, self.now_ns)
        } else {
            self.dirty.remove(key)
        }
        appended.group
    }

    /// From now on blocks are stored in the forms that these options allow. What is stored already stays as it is.
    pub fn set_content(&mut self, options: ContentOptions) {
        self.packer.set(options);
    }

    /// What is made of what blocks contain.
    pub fn content_stats(&self) -> ContentStats {
        let (census, packer) = (self.index.census(), self.packer.stats());
        let packed_blocks = census.raw + census.lz4 + census.zstd + census.zero + census.duplicate + census.delta + census.lost;
        ContentStats {
            plain_blocks: u64::from(self.index.live_blocks()) - packed_blocks,
            census,
            hint_bytes: self.packer.memory_bytes(),
            bases_in_memory: self.packer.contents().pages() as u64,
            encoded_blocks: packer.blocks,
            encoding_cpu_ns: packer.cpu_ns,
            saved_bytes: packer.saved_bytes,
            recompressed_blocks: self.densified.blocks,
            recompressed_saved_bytes: self.densified.saved_bytes,
        }
    }

    /// Bytes of packed payloads on the SSD.
    pub(super) fn packed_bytes(&self) -> u64 {
        let census = self.index.census();
        // What the index counts is with the records that a log had.
        let records = self.store.packed_records() * 2 * format::record::RECORD_BYTES as u64;
        census.stored_bytes.saturating_sub(records)
    }

    /// How the steps of encoding stand on a volume; `None` if the pool's level decides alone, or nothing of it was stored yet.
    pub fn content_steps(&self, volume: VolumeIndex) -> Option<[StepState; Step::ALL.len()]> {
        self.packer.steps(volume)
    }

    /// How many looks at blocks, to encode them, the last calls took that the host has not yet told the time of. The engine reads no
    /// clock: the host measures a call that encoded something, and says so by [`Shard::encoding_took`].
    pub fn untimed_looks(&self) -> u32 {
        self.packer.untimed_looks()
    }

    /// That long the calls took in which blocks were looked at, in nanoseconds: it counts against the budget of [`ContentOptions`].
    pub fn encoding_took(&mut self, ns: u64) {
        self.packer.took(ns);
    }

    /// How content is treated.
    pub fn content_options(&self) -> &ContentOptions {
        self.packer.options()
    }

    /// Loses all hints and copies by which blocks meet: harmless at any moment. For tests and the simulator.
    pub fn forget_hints(&mut self) {
        self.packer.forget_hints();
    }

    /// Stores a whole block in the form that suits its content; `None` if that is as it is. Gives the group.
    pub(super) fn store_packed(&mut self, block: &NewBlock, urgency: Urgency) -> Option<u64> {
        if block.mask != u8::MAX || block.checksum.is_some() {
            return None;
        }
        let chosen = self.choose_form(block.key, &block.page, if block.dirty { Kind::Awaited } else { Kind::Quiet })?;
        Some(self.store_chosen(block, chosen, urgency))
    }

    /// Stores a clean block that rests on a base anew so that it rests on none: it is read often, and the base with it each time.
    pub(super) fn make_whole(&mut self, key: Key, page: &Page) {
        let Some(slot) = self.index.get(key).filter(|slot| slot.is_packed()) else { return };
        let meta = self.index.meta(slot);
        let often = Heat::from_bits(meta.frequency) == Heat::from_bits(3);
        let is_delta = self.index.stored(slot).encoding.rests_on_base();
        let leaves = self.commands.drops_clean_of(key.volume()) || self.volumes.of(key).state.is_detaching();
        let may_append = !self.loss.is_ssd_failed() && self.store.has_room(Purpose::Clean) && !leaves;
        if meta.dirty || !often || !is_delta || !may_append {
            return;
        }
        // A block that is written over as often as it is read is better left alone: only many reads make it likely that there will be many more.
        self.read_with_base += 1;
        if !self.read_with_base.is_multiple_of(WHOLE_ONE_IN) {
            return;
        }
        if let Some(chosen) = self.choose_form(key, page, Kind::Whole) {
            let heat = Heat::from_bits(meta.frequency);
            let block = NewBlock { key, page: page.clone(), mask: u8::MAX, dirty: false, heat, checksum: None };
            self.store_chosen(&block, chosen, Urgency::By(self.now_ns + CLEAN_HOLD_NS));
        }
    }

    fn store_chosen(&mut self, block: &NewBlock, chosen: Chosen, urgency: Urgency) -> u64 {
        let Chosen { encoding, object } = chosen;
        let volume = self.volumes.of(block.key).id;
        let (owner, checksum) = if encoding.is_full() {
            (PayloadOwner::Object(object), object_checksum(object, &block.page))
        } else {
            (PayloadOwner::Block(volume, block.key.block()), payload_checksum(volume, block.key.block(), &block.page))
        };
        let mut bytes = Vec::new();
        if encoding.has_packed_payload() {
            seal_packed(owner, checksum, self.packer.bytes(), &mut bytes);
        }
        let kind = if block.dirty { RecordKind::DataDirty } else { RecordKind::DataClean };
        let meta = SlotMeta { dirty: block.dirty, partial: false, frequency: block.heat.bits(), checksum };
        let packed = Packed { encoding, place: 0, bytes: stored_length(encoding, &bytes), object, vital: false };
        let record = record(kind, volume, block.key.block(), checksum, packed);
        let payload = PackedPayload { bytes, page: Some(block.page.clone()) };
        self.destager.replaced(block.key);
        self.append_packed_block(block.key, meta, record, payload, urgency)
    }

    fn choose_form(&mut self, key: Key, page: &Page, kind: Kind) -> Option<Chosen> {
        if !self.packer.is_on() || !self.store.may_pack() {
            return None;
        }
        let rests_on = self.rests_on(key);
        let at_hand = AtHand { index: &self.index, ram: &self.ram, store: &self.store };
        self.packer.choose(self.now_ns, key.volume(), page, rests_on, kind, &at_hand)
    }

    /// The object that the address' present version is, or rests on.
    pub(super) fn rests_on(&self, key: Key) -> Option<u64> {
        let slot = self.index.get(key).filter(|slot| slot.is_packed())?;
        Some(self.index.stored(slot).object).filter(|object| *object != 0)
    }

    /// Appends a packed record of a block and points the index at it; gives the group.
    fn append_packed_block(&mut self, key: Key, meta: SlotMeta, record: Record, payload: PackedPayload, urgency: Urgency) -> u64 {
        let stored = stored_of(&record);
        let appended = self.store.append(record, self.index.get(key), Payload::Packed(payload), urgency);
        let slot = appended.slot.expect("a packed record has a slot");
        if self.index.insert_packed(key, slot, meta, stored).is_none() {
            self.volumes.of(key).cached_blocks += 1;
            self.presence.enter(key);
        }
        self.partial.remove(&key);
        if meta.dirty {
            self.now_dirty(key, self.now_ns);
        } else {
            self.dirty.remove(key);
        }
        appended.group
    }

    /// Appends a packed block again, as it was stored, or denser.
    pub(super) fn store_packed_again(&mut self, key: Key, slot: Slot, heat: Heat, payload: PackedPayload) {
        let (meta, stored) = (self.index.meta(slot), self.index.stored(slot));
        let (stored, payload) = self.denser(key, meta.checksum, stored, payload);
        let volume = self.volumes.of(key).id;
        let kind = match (meta.dirty, stored.encoding) {
            (true, Encoding::Lost) => RecordKind::DataLost,
            (true, _) => RecordKind::DataDirty,
            (false, _) => RecordKind::DataClean,
        };
        // A clean block on which dirty ones rest must survive like them.
        let vital = !meta.dirty && self.dirty_rest_on(slot);
        let packed = Packed { encoding: stored.encoding, place: 0, bytes: stored.bytes, object: stored.object, vital };
        let record = record(kind, volume, key.block(), meta.checksum, packed);
        let meta = SlotMeta { frequency: heat.bits(), ..meta };
        self.append_packed_block(key, meta, record, payload, Urgency::By(self.now_ns + CLEAN_HOLD_NS));
    }

    /// Cold blocks are compressed as well as possible when they are moved: it costs nobody's time, and they are seldom read.
    fn denser(&mut self, key: Key, checksum: u32, stored: Stored, payload: PackedPayload) -> (Stored, PackedPayload) {
        if !self.packer.is_on() || !matches!(stored.encoding, Encoding::Raw | Encoding::Lz4) {
            return (stored, payload);
        }
        let owner = PayloadOwner::Object(stored.object);
        let page = match &payload.page {
            Some(page) => page.clone(),
            None => {
                let Some(mut into) = self.config.pool.allocate() else { return (stored, payload) };
                let bytes = open_packed(owner, checksum, &payload.bytes).expect("checked when it was read");
                if self.packer.decode(stored.encoding, bytes, None, &mut into).is_err() {
                    return (stored, payload);
                }
                into.freeze()
            }
        };
        let Some(smaller) = self.packer.denser(self.now_ns, key.volume(), &page, usize::from(stored.bytes)) else {
            return (stored, payload);
        };
        let mut bytes = Vec::new();
        seal_packed(owner, checksum, smaller, &mut bytes);
        self.densified.blocks += 1;
        self.densified.saved_bytes += u64::from(stored.bytes).saturating_sub(bytes.len() as u64);
        let stored = Stored { encoding: Encoding::Zstd, bytes: bytes.len() as u16, ..stored };
        (stored, PackedPayload { bytes, page: Some(page) })
    }

    /// Appends a base without address again, as it was stored.
    pub(super) fn store_base_again(&mut self, slot: Slot, payload: PackedPayload) {
        let (checksum, stored) = (self.index.meta(slot).checksum, self.index.stored(slot));
        let packed = Packed { encoding: stored.encoding, place: 0, bytes: stored.bytes, object: stored.object, vital: false };
        let packed = Packed { vital: self.dirty_rest_on(slot), ..packed };
        let record = record(RecordKind::Base, VolumeId(0), 0, checksum, packed);
        let appended = self.store.append(record, Some(slot), Payload::Packed(payload), Urgency::By(self.now_ns + CLEAN_HOLD_NS));
        let slot = appended.slot.expect("a packed record has a slot");
        self.index.insert_base(slot, checksum, stored_of(&record));
    }

    /// Packed records that hold nothing any more leave, and so do slots that hold no others.
    pub(super) fn settle_packed(&mut self) {
        if !self.index.is_wide() {
            return;
        }
        let mut asked = self.store.unasked();
        for ended in self.index.take_ended() {
            self.store.ended(ended.slot);
            asked.extend(Index::page_of(ended.slot)..Index::page_behind_of(ended.slot, ended.bytes));
        }
        for slot in asked {
            if !self.index.has_packed(slot) && self.index.key_of(Slot(slot)).is_none() {
                self.store.emptied(slot);
            }
        }
    }
}

fn stored_of(record: &Record) -> Stored {
    let packed = record.packed.as_ref().expect("a packed record");
    // The index knows the place by the slot.
    Stored { encoding: packed.encoding, place: 0, bytes: packed.bytes, object: packed.object }
}

fn stored_length(encoding: Encoding, bytes: &[u8]) -> u16 {
    if encoding == Encoding::Raw { types::BLOCK_BYTES as u16 } else { bytes.len() as u16 }
}

fn record(kind: RecordKind, volume: VolumeId, block: u64, checksum: u32, packed: Packed) -> Record {
    Record { kind, volume, block, mask: u8::MAX, checksum, slot_page: 0, packed: Some(packed) }
}
