//! What slots hold as statements say, one after the other: the state that a start builds while it reads the ring.

use super::recovery::offset_of;
use crate::medium::Medium;
use crate::mutants;
use crate::superblock::OpenError;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use format::packed::Encoding;
use format::slots::statement::UNIT_BYTES;
use format::slots::{Set, Statement};
use format::{PAGE_BYTES, PayloadOwner, Superblock, object_checksum, open_packed, payload_checksum};
use types::{ShardIndex, VolumeId};

/// What a slot holds, or a place in it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// As it was said last.
    pub set: Set,
    /// The group that said so first, in this ring.
    pub group: u64,
}

impl Held {
    /// A full packed payload: the object that it is.
    fn object(&self) -> Option<u64> {
        self.set.stored.filter(|stored| stored.encoding.is_full()).map(|stored| stored.object)
    }

    /// The object that it rests on.
    fn rests_on(&self) -> Option<u64> {
        self.set.stored.filter(|stored| stored.encoding.rests_on_base()).map(|stored| stored.object)
    }
}

/// Whether an object without a block was found, not a block.
pub fn is_base(set: &Set) -> bool {
    set.stored.is_some() && set.volume == VolumeId(0)
}

/// The slot that a packed payload begins in, and its place there.
type PackedPlace = (u32, u8);

/// See the module.
pub struct Found {
    /// By slot; those below `first` are the ring's.
    plain: Vec<Option<Held>>,
    packed: BTreeMap<PackedPlace, Held>,
    first: u32,
    region_slots: u32,
}

/// Units of a slot.
const SLOT_UNITS: u64 = (PAGE_BYTES / UNIT_BYTES) as u64;

/// The units that a packed payload takes, of all slots. What has no payload takes one.
fn units_of((slot, unit): PackedPlace, bytes: u16) -> Range<u64> {
    let first = u64::from(slot) * SLOT_UNITS + u64::from(unit);
    first..first + usize::from(bytes).div_ceil(UNIT_BYTES).max(1) as u64
}

/// A statement names a slot that there is not.
pub struct NoSuchSlot;

impl Found {
    /// Nothing, in the slots behind a ring of so many pages, in regions of so many.
    pub fn new(slots: u32, ring_pages: u32, region_slots: u32) -> Found {
        Found { plain: vec![None; slots as usize], packed: BTreeMap::new(), first: ring_pages, region_slots }
    }

    /// All that was found, blocks in slots of their own first.
    pub fn all(&self) -> impl Iterator<Item = &Held> {
        self.plain.iter().flatten().chain(self.packed.values())
    }

    /// The group says so.
    ///
    /// # Errors
    /// [`NoSuchSlot`].
    pub fn redo(&mut self, statement: &Statement, group: u64) -> Result<(), NoSuchSlot> {
        match statement {
            Statement::Set(set) => {
                if let Some(old) = set.old {
                    self.check(old)?;
                    self.leave_old(old, set);
                }
                self.check(set.slot)?;
                let is_same = |held: &&Held| {
                    let (held, said) = (&held.set, set);
                    (held.volume, held.block, held.checksum, held.stored) == (said.volume, said.block, said.checksum, said.stored)
                };
                let first_said = |held: Option<&Held>| held.filter(is_same).map_or(group, |held| held.group);
                match set.stored {
                    None => {
                        let group = first_said(self.plain[set.slot as usize].as_ref());
                        self.clear(set.slot);
                        self.plain[set.slot as usize] = Some(Held { set: *set, group });
                    }
                    Some(stored) => {
                        let place = (set.slot, stored.unit);
                        let group = first_said(self.packed.get(&place));
                        let units = units_of(place, stored.bytes);
                        let region_units = u64::from(self.region_slots) * SLOT_UNITS;
                        if (units.end - 1) / region_units != units.start / region_units {
                            return Err(NoSuchSlot);
                        }
                        self.clear_units(units);
                        self.packed.insert(place, Held { set: *set, group });
                    }
                }
            }
            Statement::Home { slot, unit, checksum } => {
                self.check(*slot)?;
                let held = match unit {
                    None => self.plain[*slot as usize].as_mut(),
                    Some(unit) => self.packed.get_mut(&(*slot, *unit)),
                };
                let Some(held) = held.filter(|held| held.set.checksum == *checksum) else { return Ok(()) };
                held.set.dirty = false;
                // What is lost and came home after all is a miss.
                match unit {
                    _ if !held.set.lost => {}
                    None => self.plain[*slot as usize] = None,
                    Some(unit) => self.leave_packed((*slot, *unit)),
                }
            }
            Statement::Gone { slot, unit: None, .. } => {
                self.check(*slot)?;
                self.clear(*slot);
            }
            Statement::Gone { slot, unit: Some(unit), .. } => {
                self.check(*slot)?;
                self.leave_packed((*slot, *unit));
            }
            Statement::GoneOfShelf { shelf, slots } => {
                let first = u64::from(*shelf) * u64::from(::slots::SHELF_SLOTS);
                for at in (0..::slots::SHELF_SLOTS as usize).filter(|at| slots[at / 64] >> (at % 64) & 1 != 0) {
                    let slot = u32::try_from(first + at as u64).map_err(|_| NoSuchSlot)?;
                    self.check(slot)?;
                    self.clear(slot);
                }
            }
        }
        Ok(())
    }

    fn check(&self, slot: u32) -> Result<(), NoSuchSlot> {
        if (self.first..self.plain.len() as u32).contains(&slot) { Ok(()) } else { Err(NoSuchSlot) }
    }

    /// Nothing is in the slot any more.
    fn clear(&mut self, slot: u32) {
        let first = u64::from(slot) * SLOT_UNITS;
        self.clear_units(first..first + SLOT_UNITS);
    }

    /// Nothing that has one of these units is there any more: no slot is used again while a start may want what is in it. So what is still
    /// named there had ended, although no statement said so of it: an object without a block on which nothing rested.
    fn clear_units(&mut self, units: Range<u64>) {
        let slots = (units.start / SLOT_UNITS) as u32..=((units.end - 1) / SLOT_UNITS) as u32;
        slots.clone().for_each(|slot| self.plain[slot as usize] = None);
        if self.packed.is_empty() {
            return;
        }
        let near = self.packed.range((slots.start().saturating_sub(1), 0)..=(*slots.end(), u8::MAX));
        let shares = |(place, held): (&PackedPlace, &Held)| {
            let of = units_of(*place, held.set.stored.map_or(0, |stored| stored.bytes));
            (of.start < units.end && units.start < of.end).then_some(*place)
        };
        let ended: Vec<PackedPlace> = near.filter_map(shares).collect();
        for place in &ended {
            self.packed.remove(place);
        }
    }

    fn packed_in(&self, slot: u32) -> Vec<(PackedPlace, Held)> {
        self.packed.range((slot, 0)..=(slot, u8::MAX)).map(|(place, held)| (*place, *held)).collect()
    }

    /// The block in a packed place is not there any more. What is stored in full may be what others rest on.
    fn leave_packed(&mut self, place: PackedPlace) {
        let Some(held) = self.packed.get_mut(&place) else { return };
        if held.object().is_some() {
            held.set = Set { volume: VolumeId(0), block: 0, dirty: false, vital: false, ..held.set };
        } else {
            self.packed.remove(&place);
        }
    }

    /// What was stated anew was in this slot until then.
    fn leave_old(&mut self, old: u32, new: &Set) {
        let is_block = |held: &Held| !is_base(&held.set) && (held.set.volume, held.set.block) == (new.volume, new.block);
        let plain = &mut self.plain[old as usize];
        if plain.as_ref().is_some_and(is_block) {
            *plain = None;
        }
        if self.packed.is_empty() {
            return;
        }
        let object = Held { set: *new, group: 0 }.object();
        for (place, held) in self.packed_in(old) {
            if object.is_some() && held.object() == object {
                // It has moved, with its block if it has one.
                self.packed.remove(&place);
            } else if is_block(&held) {
                self.leave_packed(place);
            }
        }
    }

    /// What is clean is not known any more: statements are missing. Gives how many blocks that are. Objects stay: dirty blocks may rest on them.
    pub fn forget_clean(&mut self) -> u64 {
        let mut forgotten = 0;
        for held in self.plain.iter_mut().filter(|held| held.as_ref().is_some_and(|held| !held.set.dirty)) {
            *held = None;
            forgotten += 1;
        }
        let clean: Vec<PackedPlace> =
            self.packed.iter().filter(|(_, held)| !held.set.dirty && !is_base(&held.set)).map(|(place, _)| *place).collect();
        for place in &clean {
            self.leave_packed(*place);
        }
        forgotten + clean.len() as u64
    }

    /// Leaves out blocks of volumes that are gone, and objects without a block on which nothing rests. False if a block, or an object, is in
    /// two places.
    pub fn settle(&mut self, is_known: impl Fn(VolumeId) -> bool) -> bool {
        for slot in &mut self.plain {
            if slot.as_ref().is_some_and(|held| !is_known(held.set.volume)) {
                *slot = None;
            }
        }
        let unknown = |held: &Held| !is_base(&held.set) && !is_known(held.set.volume);
        let unknown: Vec<PackedPlace> = self.packed.iter().filter(|(_, held)| unknown(held)).map(|(place, _)| *place).collect();
        unknown.into_iter().for_each(|place| self.leave_packed(place));
        let rested_on: BTreeSet<u64> = self.packed.values().filter_map(Held::rests_on).collect();
        self.packed.retain(|_, held| !is_base(&held.set) || held.object().is_some_and(|object| rested_on.contains(&object)));
        let mut blocks: Vec<(u32, u64)> =
            self.all().filter(|held| !is_base(&held.set)).map(|held| (held.set.volume.0, held.set.block)).collect();
        blocks.sort_unstable();
        let mut objects: Vec<u64> = self.packed.values().filter_map(Held::object).collect();
        objects.sort_unstable();
        blocks.array_windows().all(|[one, other]| one != other) && objects.array_windows().all(|[one, other]| one != other)
    }

    /// What lies from this slot on is forgotten, with what rests on it: the pool has given these slots away. False if anything of that is dirty.
    pub fn cut(&mut self, slots: u32) -> bool {
        if self.plain.len() as u32 <= slots {
            return true;
        }
        let is_cut = |held: &Held| held.set.slot >= slots;
        let bases: BTreeSet<u64> = self.packed.values().filter(|held| is_cut(held)).filter_map(Held::object).collect();
        let goes = |held: &Held| is_cut(held) || held.rests_on().is_some_and(|object| bases.contains(&object));
        let has_dirty = self.all().any(|held| held.set.dirty && goes(held));
        self.plain.truncate(slots as usize);
        self.packed.retain(|_, held| !goes(held));
        !has_dirty || mutants::active(mutants::DIRTY_CUT_AWAY)
    }

    /// The objects that dirty blocks rest on.
    fn vital(&self) -> BTreeSet<u64> {
        self.packed.values().filter(|held| held.set.dirty).filter_map(Held::rests_on).collect()
    }

    /// All that a start must have, that may be torn, and was said above the watermark: dirty blocks, and what they rest on. An object that is not
    /// there was given up, as a statement says: what rests on it is an error, as it was.
    pub fn to_verify(&self, watermark: u64) -> Vec<Set> {
        let vital = if mutants::active(mutants::BASE_UNCHECKED) { BTreeSet::new() } else { self.vital() };
        let is_vital = |held: &&Held| held.set.dirty || held.object().is_some_and(|object| vital.contains(&object));
        let may_be_torn = |held: &&Held| !held.set.settled && !held.set.lost && held.group > watermark;
        self.all().filter(is_vital).filter(may_be_torn).map(|held| held.set).collect()
    }
}

/// Whether the payload of a block or an object is what was written.
///
/// # Errors
/// What the medium says.
pub fn is_whole(medium: &mut dyn Medium, superblock: &Superblock, shard: ShardIndex, set: &Set) -> Result<bool, OpenError> {
    let mut page = [0; PAGE_BYTES];
    let Some(stored) = &set.stored else {
        medium.read(offset_of(superblock, shard, set.slot), &mut page)?;
        return Ok(payload_checksum(set.volume, set.block, &page) == set.checksum);
    };
    let (skip, length) = (usize::from(stored.unit) * UNIT_BYTES, usize::from(stored.bytes));
    if length == 0 {
        return Ok(true);
    }
    let mut bytes = Vec::with_capacity(2 * PAGE_BYTES);
    for slot in (set.slot..).take((skip + length).div_ceil(PAGE_BYTES)) {
        if slot >= superblock.layout.slots_per_shard() {
            return Ok(false);
        }
        medium.read(offset_of(superblock, shard, slot), &mut page)?;
        bytes.extend_from_slice(&page);
    }
    if stored.encoding == Encoding::Raw {
        return Ok(bytes.first_chunk().is_some_and(|page| object_checksum(stored.object, page) == set.checksum));
    }
    let owner = if stored.encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(set.volume, set.block) };
    Ok(open_packed(owner, set.checksum, &bytes[skip..skip + length]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::slots::statement::Stored;

    fn block(block: u64, slot: u32) -> Set {
        Set {
            volume: VolumeId(1),
            block,
            mask: u8::MAX,
            dirty: true,
            settled: false,
            lost: false,
            vital: false,
            checksum: block as u32,
            slot,
            old: None,
            stored: None,
        }
    }

    fn packed(set: Set, encoding: Encoding, object: u64, unit: u8) -> Set {
        Set { stored: Some(Stored { encoding, object, bytes: 100, unit }), ..set }
    }

    fn packed_long(of: u64) -> Set {
        Set { stored: Some(Stored { encoding: Encoding::Lz4, object: of, bytes: 3000, unit: 128 }), ..block(of, 10) }
    }

    fn found(said: &[Statement]) -> Found {
        let mut found = Found::new(40, 4, 8);
        for (statement, group) in said.iter().zip(1..) {
            assert!(found.redo(statement, group).is_ok(), "{statement:?}");
        }
        assert!(found.settle(|volume| volume == VolumeId(1)), "nothing is in two places");
        found
    }

    /// Block, slot and place of all that is there; objects without a block as block 99.
    fn there(found: &Found) -> Vec<(u64, u32, u8)> {
        let place = |held: &Held| held.set.stored.map_or(0, |stored| stored.unit);
        let block = |held: &Held| if is_base(&held.set) { 99 } else { held.set.block };
        found.all().map(|held| (block(held), held.set.slot, place(held))).collect()
    }

    #[test]
    fn what_others_rest_on_stays_without_its_block() {
        let base = Statement::Set(packed(block(1, 10), Encoding::Lz4, 7, 0));
        let delta = Statement::Set(packed(block(2, 10), Encoding::Diff, 7, 8));
        let over = Statement::Set(Set { old: Some(10), ..block(1, 11) });
        assert_eq!(there(&found(&[base, delta, over])), [(1, 11, 0), (99, 10, 0), (2, 10, 8)]);
        let void = Statement::Gone { slot: 10, unit: Some(0), checksum: 1 };
        assert_eq!(there(&found(&[base, delta, void])), [(99, 10, 0), (2, 10, 8)]);
        assert_eq!(there(&found(&[base, void])), [], "nothing rests on it");
        let moved = Statement::Set(Set { volume: VolumeId(0), old: Some(10), dirty: false, ..packed(block(0, 12), Encoding::Lz4, 7, 16) });
        assert_eq!(there(&found(&[base, delta, void, moved])), [(2, 10, 8), (99, 12, 16)], "the object is where it was said last");
        let all = Statement::Gone { slot: 10, unit: None, checksum: 0 };
        assert_eq!(there(&found(&[base, delta, all])), []);
    }

    #[test]
    fn a_slot_holds_a_page_or_what_is_packed_into_it() {
        let lz4 = |of: u64, slot, unit| Statement::Set(packed(block(of, slot), Encoding::Lz4, of, unit));
        let page = Statement::Set(block(3, 10));
        assert_eq!(there(&found(&[lz4(1, 10, 0), lz4(2, 10, 8), page])), [(3, 10, 0)]);
        assert_eq!(there(&found(&[page, lz4(1, 10, 4)])), [(1, 10, 4)]);
        // What begins in one slot and ends in the next is not there when that is used again.
        let long = Statement::Set(packed_long(4));
        assert_eq!(there(&found(&[long, lz4(1, 10, 0), lz4(2, 11, 100)])), [(1, 10, 0), (4, 10, 128), (2, 11, 100)]);
        assert_eq!(there(&found(&[long, lz4(1, 10, 0), lz4(2, 11, 56)])), [(1, 10, 0), (2, 11, 56)]);
        let page_behind = Statement::Set(block(3, 11));
        assert_eq!(there(&found(&[long, lz4(1, 10, 0), page_behind])), [(3, 11, 0), (1, 10, 0)]);
        let over_the_end = Statement::Set(Set { slot: 15, ..packed_long(4) });
        assert!(Found::new(40, 4, 8).redo(&over_the_end, 1).is_err(), "no payload goes on in another region");
        // The version before may lie in the same slot.
        let again = Statement::Set(Set { old: Some(10), ..packed(block(1, 10), Encoding::Lz4, 5, 16) });
        assert_eq!(there(&found(&[lz4(1, 10, 0), again])), [(1, 10, 16)]);
    }

    #[test]
    fn what_the_pool_gave_away_is_forgotten_with_what_rests_on_it() {
        let clean = |set: Set| Statement::Set(Set { dirty: false, ..set });
        let base = clean(packed(block(1, 30), Encoding::Lz4, 7, 0));
        let delta = clean(packed(block(2, 10), Encoding::Diff, 7, 8));
        let mut held = found(&[base, delta, clean(block(3, 31)), Statement::Set(block(4, 11))]);
        assert!(held.cut(40) && there(&held).len() == 4, "nothing is behind the end");
        assert!(held.cut(24));
        assert_eq!(there(&held), [(4, 11, 0)]);
        assert!(!found(&[Statement::Set(block(3, 31))]).cut(24), "it is dirty");
        let dirty_delta = Statement::Set(packed(block(2, 10), Encoding::Diff, 7, 8));
        assert!(!found(&[base, dirty_delta]).cut(24), "what it rests on is behind the end");
    }

    #[test]
    fn a_dirty_block_is_verified_with_what_it_rests_on() {
        let clean = Set { dirty: false, ..packed(block(1, 10), Encoding::Lz4, 7, 0) };
        let delta = packed(block(2, 10), Encoding::Diff, 7, 8);
        let verified = |said: &[Statement], watermark| found(said).to_verify(watermark).iter().map(|set| set.block).collect::<Vec<u64>>();
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 0), [1, 2]);
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 1), [2], "the base was durable");
        assert_eq!(verified(&[Statement::Set(Set { settled: true, ..clean }), Statement::Set(delta)], 0), [2]);
        assert_eq!(verified(&[Statement::Set(delta)], 0), [2], "its base was given up");
        let delta = Set { dirty: false, ..delta };
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 0), []);
    }
}
