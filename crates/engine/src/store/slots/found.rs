//! What slots hold as statements say, one after the other: the state that a start builds while it reads the ring.
//!
//! It is small, since ten million slots are held beside the index that they go into: 12 bytes a slot and 24 a packed record. A volume is kept by
//! its place among those that the superblock knows; all others are one, of which nothing stays.

pub use super::held::is_base;
use super::held::{
    ABOVE, BLOCK_BITS, DIRTY, GONE_VOLUME, LOST, MASK_AT, NO_VOLUME, PLACES_A_SLOT, Packed, SETTLED, SLOT_UNITS, VITAL, Word, bits_of,
    object_of, place_of, places_in, units_said,
};
use super::recovery::offset_of;
use crate::medium::Medium;
use crate::mutants;
use crate::superblock::OpenError;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use format::packed::Encoding;
use format::slots::statement::{Stored, UNIT_BYTES};
use format::slots::{RingPlace, Set, Statement};
use format::{PAGE_BYTES, PayloadOwner, Superblock, object_checksum, open_packed, payload_checksum};
use types::{ShardIndex, VOLUME_BLOCKS_MAX, VolumeId};

/// A statement names a slot that there is not.
#[derive(Debug)]
pub struct NoSuchSlot;

/// Slots whose packed payloads are kept together, in the order of their places.
const BUCKET_SLOTS: u32 = 16;
/// A bucket that is full gets room for so many more, or a quarter of what it has.
const BUCKET_GROWS: usize = 8;

/// Blocks of a volume in [`Found::newest`].
const NEWEST_MAX: usize = 64;

/// See the module.
pub struct Found {
    /// The volumes that are known, in order.
    volumes: Vec<VolumeId>,
    /// The volume met last, and its place: most statements are about the same one.
    last_volume: (VolumeId, u64),
    /// By slot, without the pages of the ring: blocks in slots of their own.
    words: Vec<Word>,
    checksums: Vec<u32>,
    /// By buckets of slots; none before the first payload came.
    packed: Vec<Vec<Packed>>,
    /// By the place of their volume: slots, and units of what is packed, of blocks that were said to be clean last.
    newest: Vec<VecDeque<(u32, Option<u8>)>>,
    ring: RingPlace,
    /// Slots, with the pages of the ring.
    end: u32,
    region_slots: u32,
}

impl Found {
    /// Nothing, in the slots beside that ring, in regions of so many. Of other volumes than these nothing stays.
    pub fn new(slots: u32, ring: RingPlace, region_slots: u32, volumes: impl IntoIterator<Item = VolumeId>) -> Found {
        let mut volumes: Vec<VolumeId> = volumes.into_iter().collect();
        volumes.sort_unstable();
        let beside = slots.saturating_sub(ring.pages) as usize;
        Found {
            newest: vec![VecDeque::new(); volumes.len()],
            volumes,
            last_volume: (VolumeId(0), GONE_VOLUME),
            words: vec![Word::EMPTY; beside],
            checksums: vec![0; beside],
            packed: Vec::new(),
            ring,
            end: slots,
            region_slots,
        }
    }

    /// Whether something of it is packed.
    pub fn has_packed(&self) -> bool {
        self.all_packed().next().is_some()
    }

    /// All that was found, in the order of slots and places.
    pub fn all(&self) -> impl Iterator<Item = Set> {
        let slots = |is_wanted: bool| (0..if is_wanted { self.end } else { 0 }).filter(|slot| !self.ring.contains(*slot));
        let (buckets, only_plain) = (slots(!self.packed.is_empty()), slots(self.packed.is_empty()));
        let plain = only_plain.filter_map(|slot| self.plain(slot));
        plain.chain(buckets.flat_map(|slot| self.plain(slot).into_iter().chain(self.packed_in(slot).map(|packed| self.set_of(packed)))))
    }

    fn plain(&self, slot: u32) -> Option<Set> {
        let at = self.at(slot);
        (self.words[at] != Word::EMPTY).then(|| self.set(slot, self.words[at], self.checksums[at], None))
    }

    fn set_of(&self, packed: &Packed) -> Set {
        self.set(packed.slot(), packed.word, packed.checksum, Some(packed.stored()))
    }

    fn set(&self, slot: u32, word: Word, checksum: u32, stored: Option<Stored>) -> Set {
        let known = (word.volume() as usize).checked_sub(1).and_then(|place| self.volumes.get(place));
        Set {
            volume: known.copied().unwrap_or(VolumeId(0)),
            block: word.key() & (VOLUME_BLOCKS_MAX - 1),
            mask: (word.0 >> MASK_AT) as u8,
            dirty: word.has(DIRTY),
            settled: word.has(SETTLED),
            lost: word.has(LOST),
            vital: word.has(VITAL),
            checksum,
            slot,
            old: None,
            stored,
        }
    }

    fn at(&self, slot: u32) -> usize {
        (if slot < self.ring.first { slot } else { slot - self.ring.pages }) as usize
    }

    fn word(&mut self, set: &Set, is_above: bool) -> Word {
        if is_base(set) {
            return self.word_of_volume(set, is_above, NO_VOLUME);
        }
        if self.last_volume.0 != set.volume {
            let place = self.volumes.binary_search(&set.volume).map_or(GONE_VOLUME, |place| place as u64 + 1);
            self.last_volume = (set.volume, place);
        }
        self.word_of_volume(set, is_above, self.last_volume.1)
    }

    fn word_of_volume(&self, set: &Set, is_above: bool, volume: u64) -> Word {
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(set.dirty, DIRTY) | flag(set.settled, SETTLED) | flag(set.lost, LOST) | flag(set.vital, VITAL);
        Word(set.block | volume << BLOCK_BITS | u64::from(set.mask) << MASK_AT | flags | flag(is_above, ABOVE))
    }

    /// A group says so, one above the watermark or not.
    ///
    /// # Errors
    /// [`NoSuchSlot`].
    pub fn redo(&mut self, statement: &Statement, is_above: bool) -> Result<(), NoSuchSlot> {
        match statement {
            Statement::Set(set) => self.set_is(set, is_above)?,
            Statement::Home { slot, unit: None, checksum } => {
                self.check(*slot)?;
                let at = self.at(*slot);
                if self.words[at] != Word::EMPTY && self.checksums[at] == *checksum {
                    // What is lost and came home after all is a miss.
                    let held = Word(self.words[at].0 & !DIRTY);
                    self.words[at] = if held.has(LOST) { Word::EMPTY } else { held };
                    self.note_newest(held, *slot, None);
                }
            }
            Statement::Home { slot, unit: Some(unit), checksum } => {
                self.check(*slot)?;
                let place = place_of(*slot, *unit);
                let Some(held) = self.packed_at(place).filter(|held| held.checksum == *checksum) else { return Ok(()) };
                held.word.0 &= !DIRTY;
                let word = held.word;
                if word.has(LOST) {
                    self.leave_packed(place);
                }
                self.note_newest(word, *slot, Some(*unit));
            }
            Statement::Gone { slot, unit: None, .. } => {
                self.check(*slot)?;
                self.clear(*slot);
            }
            Statement::Gone { slot, unit: Some(unit), .. } => {
                self.check(*slot)?;
                self.leave_packed(place_of(*slot, *unit));
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

    fn set_is(&mut self, set: &Set, is_above: bool) -> Result<(), NoSuchSlot> {
        let mut word = self.word(set, is_above);
        if let Some(old) = set.old {
            self.check(old)?;
            self.leave_old(old, set, word);
        }
        self.check(set.slot)?;
        let is_same = |held: Word, checksum: u32| held != Word::EMPTY && held.key() == word.key() && checksum == set.checksum;
        // What was said before is not younger for being said again.
        let as_before = |word: Word, held: Word| Word(word.0 & !ABOVE | held.0 & ABOVE);
        let units = units_said(set, self.region_slots).ok_or(NoSuchSlot)?;
        self.check(((units.end - 1) / SLOT_UNITS) as u32)?;
        match &set.stored {
            None => {
                let at = self.at(set.slot);
                let held = self.words[at];
                if is_same(held, self.checksums[at]) {
                    word = as_before(word, held);
                }
                self.clear_units(units);
                (self.words[at], self.checksums[at]) = (word, set.checksum);
            }
            Some(stored) => {
                let (place, bits) = (place_of(set.slot, stored.unit), bits_of(stored));
                if let Some(held) = self.packed_at(place)
                    && is_same(held.word, held.checksum)
                    && held.stored == bits
                {
                    word = as_before(word, held.word);
                }
                self.clear_units(units);
                self.insert(Packed { place, checksum: set.checksum, word, stored: bits });
            }
        }
        // A sweep says only again what is there.
        if !set.dirty && !set.settled {
            self.note_newest(word, set.slot, set.stored.map(|stored| stored.unit));
        }
        Ok(())
    }

    /// A block has the content of its backing device from now on.
    fn note_newest(&mut self, word: Word, slot: u32, unit: Option<u8>) {
        let Some(newest) = (word.volume() as usize).checked_sub(1).and_then(|place| self.newest.get_mut(place)) else { return };
        if newest.len() == NEWEST_MAX {
            newest.pop_front();
        }
        newest.push_back((slot, unit));
    }

    /// Clean and whole blocks that became so last, oldest first; some of each volume.
    pub fn newest(&self) -> Vec<Set> {
        let there = |(slot, unit): &(u32, Option<u8>)| match unit {
            None if *slot < self.end => self.plain(*slot),
            None => None,
            Some(unit) => self.packed_in(*slot).find(|packed| packed.place == place_of(*slot, *unit)).map(|packed| self.set_of(packed)),
        };
        let is_whole = |set: &Set| !is_base(set) && !set.dirty && !set.lost && set.mask == u8::MAX;
        self.newest.iter().flatten().filter_map(there).filter(is_whole).collect()
    }

    fn check(&self, slot: u32) -> Result<(), NoSuchSlot> {
        // Places of slots beyond that have no numbers, and no index has either.
        let is_named = slot <= format::layout::SLOTS_PER_SHARD_MAX;
        if slot < self.end && !self.ring.contains(slot) && is_named { Ok(()) } else { Err(NoSuchSlot) }
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
        for slot in slots.clone() {
            let at = self.at(slot);
            self.words[at] = Word::EMPTY;
        }
        if self.packed.is_empty() {
            return;
        }
        let near = places_in(slots.start().saturating_sub(1)..=*slots.end());
        for bucket in self.buckets_of(&near) {
            let shares = |packed: &Packed| {
                let of = packed.units();
                of.start < units.end && units.start < of.end
            };
            let bucket = &mut self.packed[bucket];
            let from = bucket.partition_point(|packed| packed.place < *near.start());
            let to = bucket.partition_point(|packed| packed.place <= *near.end());
            if bucket[from..to].iter().any(shares) {
                bucket.retain(|packed| !shares(packed));
            }
        }
    }

    /// The buckets that these places are in.
    fn buckets_of(&self, places: &RangeInclusive<u32>) -> RangeInclusive<usize> {
        self.bucket_of(*places.start())..=self.bucket_of(*places.end())
    }

    fn bucket_of(&self, place: u32) -> usize {
        (place / PLACES_A_SLOT / BUCKET_SLOTS) as usize
    }

    /// Where in its bucket a place is, or would be.
    fn find(&self, place: u32) -> Option<(usize, Result<usize, usize>)> {
        let at = self.bucket_of(place);
        Some((at, self.packed.get(at)?.binary_search_by_key(&place, |packed| packed.place)))
    }

    fn packed_at(&mut self, place: u32) -> Option<&mut Packed> {
        let (bucket, at) = self.find(place)?;
        Some(&mut self.packed[bucket][at.ok()?])
    }

    fn insert(&mut self, packed: Packed) {
        if self.packed.is_empty() {
            self.packed = vec![Vec::new(); self.end.div_ceil(BUCKET_SLOTS) as usize];
        }
        let Some((bucket, Err(at))) = self.find(packed.place) else { unreachable!("the place was cleared") };
        let bucket = &mut self.packed[bucket];
        if bucket.len() == bucket.capacity() {
            bucket.reserve_exact((bucket.len() / 4).max(BUCKET_GROWS));
        }
        bucket.insert(at, packed);
    }

    fn remove(&mut self, place: u32) {
        if let Some((bucket, Ok(at))) = self.find(place) {
            self.packed[bucket].remove(at);
        }
    }

    /// What begins in the slot.
    fn packed_in(&self, slot: u32) -> impl Iterator<Item = &Packed> {
        let places = places_in(slot..=slot);
        let bucket = self.packed.get(self.bucket_of(*places.start())).map_or(&[][..], Vec::as_slice);
        let from = bucket.partition_point(|packed| packed.place < *places.start());
        bucket[from..].iter().take_while(move |packed| packed.place <= *places.end())
    }

    /// The block in a packed place is not there any more. What is stored in full may be what others rest on.
    fn leave_packed(&mut self, place: u32) {
        let Some(held) = self.packed_at(place) else { return };
        if held.object().is_some() {
            held.word = held.word.without_block();
        } else {
            self.remove(place);
        }
    }

    /// What was stated anew was in this slot until then.
    fn leave_old(&mut self, old: u32, set: &Set, word: Word) {
        let is_block = |held: Word| !held.is_base() && held.key() == word.key();
        let at = self.at(old);
        if self.words[at] != Word::EMPTY && is_block(self.words[at]) {
            self.words[at] = Word::EMPTY;
        }
        if self.packed.is_empty() {
            return;
        }
        let object = set.stored.as_ref().and_then(object_of);
        let there: Vec<Packed> = self.packed_in(old).copied().collect();
        for held in there {
            if object.is_some() && held.object() == object {
                // It has moved, with its block if it has one.
                self.remove(held.place);
            } else if is_block(held.word) {
                self.leave_packed(held.place);
            }
        }
    }

    /// What is clean is not known any more: statements are missing. Gives how many blocks that are. Objects stay: dirty blocks may rest on them.
    pub fn forget_clean(&mut self) -> u64 {
        let mut forgotten = 0;
        for held in self.words.iter_mut().filter(|held| **held != Word::EMPTY && !held.has(DIRTY)) {
            *held = Word::EMPTY;
            forgotten += 1;
        }
        forgotten + self.leave_where(|held| !held.has(DIRTY) && !held.is_base())
    }

    /// Leaves packed blocks of which that is so; gives how many.
    fn leave_where(&mut self, leaves: impl Fn(Word) -> bool) -> u64 {
        let mut left = 0;
        for bucket in &mut self.packed {
            bucket.retain_mut(|packed| {
                let stays = !leaves(packed.word);
                left += u64::from(!stays);
                if !stays && packed.object().is_some() {
                    packed.word = packed.word.without_block();
                    return true;
                }
                stays
            });
        }
        left
    }

    /// Leaves out blocks of volumes that are gone, and objects without a block on which nothing rests. False if a block, or an object, is in
    /// two places.
    pub fn settle(&mut self) -> bool {
        for held in &mut self.words {
            if held.volume() == GONE_VOLUME {
                *held = Word::EMPTY;
            }
        }
        self.leave_where(|held| held.volume() == GONE_VOLUME);
        let mut rested_on: Vec<u64> = self.all_packed().filter_map(Packed::rests_on).collect();
        rested_on.sort_unstable();
        rested_on.dedup();
        let is_needed = |packed: &Packed| packed.object().is_some_and(|object| rested_on.binary_search(&object).is_ok());
        for bucket in &mut self.packed {
            bucket.retain(|packed| !packed.word.is_base() || is_needed(packed));
        }
        drop(rested_on);
        let plain = || self.words.iter().filter(|held| **held != Word::EMPTY).map(|held| held.key());
        let packed = || self.all_packed().filter(|packed| !packed.word.is_base()).map(|packed| packed.word.key());
        let blocks = || plain().chain(packed());
        let objects = || self.all_packed().filter_map(Packed::object);
        !has_double(blocks) && !has_double(objects)
    }

    /// What lies from this slot on is forgotten, with what rests on it: the pool has given these slots away. False if anything of that is dirty.
    pub fn cut(&mut self, slots: u32) -> bool {
        if self.end <= slots {
            return true;
        }
        let is_cut = |packed: &Packed| packed.slot() >= slots;
        let mut bases: Vec<u64> = self.all_packed().filter(|packed| is_cut(packed)).filter_map(Packed::object).collect();
        bases.sort_unstable();
        let goes = |packed: &Packed| is_cut(packed) || packed.rests_on().is_some_and(|object| bases.binary_search(&object).is_ok());
        let stay = if slots < self.ring.first { slots } else { slots.saturating_sub(self.ring.pages) } as usize;
        let has_dirty =
            self.words[stay..].iter().any(|word| word.has(DIRTY)) || self.all_packed().any(|packed| packed.word.has(DIRTY) && goes(packed));
        self.words.truncate(stay);
        self.checksums.truncate(stay);
        self.packed.iter_mut().for_each(|bucket| bucket.retain(|packed| !goes(packed)));
        self.end = slots;
        !has_dirty || mutants::active(mutants::DIRTY_CUT_AWAY)
    }

    fn all_packed(&self) -> impl Iterator<Item = &Packed> {
        self.packed.iter().flatten()
    }

    /// The objects that dirty blocks rest on, in order.
    fn vital(&self) -> Vec<u64> {
        let mut vital: Vec<u64> = self.all_packed().filter(|packed| packed.word.has(DIRTY)).filter_map(Packed::rests_on).collect();
        vital.sort_unstable();
        vital.dedup();
        vital
    }

    /// All that a start must have, that may be torn, and was said above the watermark: dirty blocks, and what they rest on. An object that is not
    /// there was given up, as a statement says: what rests on it is an error, as it was.
    pub fn to_verify(&self) -> impl Iterator<Item = Set> {
        let vital = if mutants::active(mutants::BASE_UNCHECKED) { Vec::new() } else { self.vital() };
        let may_be_torn = |word: Word| !word.has(SETTLED) && !word.has(LOST) && word.has(ABOVE);
        let of_plain = move |(slot, word): (u32, &Word)| {
            let is_wanted = word.has(DIRTY) && may_be_torn(*word);
            is_wanted.then(|| self.plain(slot).expect("a block is there"))
        };
        let of_packed = move |packed: &Packed| {
            let is_vital = packed.word.has(DIRTY) || packed.object().is_some_and(|object| vital.binary_search(&object).is_ok());
            (is_vital && may_be_torn(packed.word)).then(|| self.set_of(packed))
        };
        (0..).map(|nth| self.ring.nth_slot(nth)).zip(&self.words).filter_map(of_plain).chain(self.all_packed().filter_map(of_packed))
    }
}

/// Bits for each key in the sieve of [`has_double`].
const SIEVE_BITS_A_KEY: usize = 8;

/// Whether a key comes twice. Two sieves say of which keys that may be: only these, an eighth, are sorted.
fn has_double<K: Iterator<Item = u64>>(keys: impl Fn() -> K) -> bool {
    let bits = (keys().count() * SIEVE_BITS_A_KEY).next_power_of_two().max(64);
    let shift = u64::BITS - bits.trailing_zeros();
    let place = |key: u64| {
        let bit = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize;
        (bit / 64, 1_u64 << (bit % 64))
    };
    let (mut once, mut twice) = (vec![0_u64; bits / 64], vec![0_u64; bits / 64]);
    for key in keys() {
        let (at, bit) = place(key);
        twice[at] |= once[at] & bit;
        once[at] |= bit;
    }
    drop(once);
    let mut doubtful: Vec<u64> = Vec::new();
    for key in keys() {
        let (at, bit) = place(key);
        if twice[at] & bit != 0 {
            doubtful.push(key);
        }
    }
    doubtful.sort_unstable();
    doubtful.array_windows().any(|[one, other]| one == other)
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
    use types::VOLUMES_MAX;

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
        found_above(said, 0)
    }

    /// Each statement is a group; all up to the watermark are durable.
    fn found_above(said: &[Statement], watermark: u64) -> Found {
        let mut found = Found::new(40, RingPlace { first: 0, pages: 4 }, 8, [VolumeId(1)]);
        for (statement, group) in said.iter().zip(1..) {
            assert!(found.redo(statement, group > watermark).is_ok(), "{statement:?}");
        }
        assert!(found.settle(), "nothing is in two places");
        found
    }

    /// Block, slot and place of all that is there; objects without a block as block 99.
    fn there(found: &Found) -> Vec<(u64, u32, u8)> {
        let place = |set: &Set| set.stored.map_or(0, |stored| stored.unit);
        let block = |set: &Set| if is_base(set) { 99 } else { set.block };
        found.all().map(|set| (block(&set), set.slot, place(&set))).collect()
    }

    #[test]
    fn what_others_rest_on_stays_without_its_block() {
        let base = Statement::Set(packed(block(1, 10), Encoding::Lz4, 7, 0));
        let delta = Statement::Set(packed(block(2, 10), Encoding::Diff, 7, 8));
        let over = Statement::Set(Set { old: Some(10), ..block(1, 11) });
        assert_eq!(there(&found(&[base, delta, over])), [(99, 10, 0), (2, 10, 8), (1, 11, 0)]);
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
        assert_eq!(there(&found(&[long, lz4(1, 10, 0), page_behind])), [(1, 10, 0), (3, 11, 0)]);
        let over_the_end = Statement::Set(Set { slot: 15, ..packed_long(4) });
        let nothing = || Found::new(40, RingPlace { first: 16, pages: 4 }, 24, [VolumeId(1)]);
        assert!(nothing().redo(&over_the_end, true).is_err(), "no payload goes on in the ring");
        let before_the_end = Statement::Set(Set { slot: 14, ..packed_long(4) });
        assert!(nothing().redo(&before_the_end, true).is_ok());
        let mut regions = Found::new(40, RingPlace { first: 0, pages: 4 }, 8, [VolumeId(1)]);
        assert!(regions.redo(&over_the_end, true).is_err(), "no payload goes on in another region");
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
        let verified = |said: &[Statement], watermark| found_above(said, watermark).to_verify().map(|set| set.block).collect::<Vec<u64>>();
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 0), [1, 2]);
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 1), [2], "the base was durable");
        assert_eq!(verified(&[Statement::Set(Set { settled: true, ..clean }), Statement::Set(delta)], 0), [2]);
        assert_eq!(verified(&[Statement::Set(delta)], 0), [2], "its base was given up");
        let delta = Set { dirty: false, ..delta };
        assert_eq!(verified(&[Statement::Set(clean), Statement::Set(delta)], 0), []);
    }

    #[test]
    fn what_became_clean_last_is_known() {
        let clean = |set: Set| Statement::Set(Set { dirty: false, ..set });
        let newest = |said: &[Statement]| {
            let newest = found(said).newest();
            newest.iter().map(|set| (set.block, set.slot)).collect::<Vec<(u64, u32)>>()
        };
        let home = |slot: u32, unit: Option<u8>, checksum: u32| Statement::Home { slot, unit, checksum };
        assert_eq!(newest(&[clean(block(1, 20)), clean(block(2, 10)), Statement::Set(block(3, 12))]), [(1, 20), (2, 10)]);
        let packed_dirty = Statement::Set(packed(block(4, 11), Encoding::Zero, 0, 8));
        let said = [Statement::Set(block(3, 12)), packed_dirty, clean(block(2, 10)), home(11, Some(8), 4), home(12, None, 3)];
        assert_eq!(newest(&said), [(2, 10), (4, 11), (3, 12)], "dirty blocks count from when they are home");
        let of_sweep = clean(Set { settled: true, ..block(5, 15) });
        let partial = clean(Set { mask: 1, ..block(6, 16) });
        assert_eq!(newest(&[clean(block(2, 10)), of_sweep, partial]), [(2, 10)]);
        let gone = Statement::Gone { slot: 10, unit: None, checksum: 2 };
        assert_eq!(newest(&[clean(block(2, 10)), clean(block(3, 12)), gone]), [(3, 12)]);
        let many: Vec<Statement> = (0..100).map(|at| clean(block(at, 4 + at as u32 % 36))).collect();
        assert_eq!(newest(&many).last(), Some(&(99, 31)), "{} are kept", NEWEST_MAX);
    }

    /// What is kept of a block says all that was said of it, whatever that is.
    #[test]
    fn what_was_said_is_what_is_there() {
        let volumes = (1..=VOLUMES_MAX as u32).map(|id| VolumeId(id * 4_000_000));
        let mut found = Found::new(40, RingPlace { first: 0, pages: 4 }, 8, volumes);
        let set = Set {
            volume: VolumeId(4_000_000 * VOLUMES_MAX as u32),
            block: VOLUME_BLOCKS_MAX - 1,
            mask: 1,
            dirty: true,
            settled: true,
            lost: true,
            checksum: u32::MAX,
            ..block(0, 39)
        };
        let stored = Stored { encoding: Encoding::Zstd, object: format::packed::OBJECTS_MAX - 1, bytes: 4095, unit: 0 };
        let full = Set { volume: VolumeId(4_000_000), block: 0, mask: u8::MAX, dirty: false, lost: false, vital: true, ..set };
        let full = Set { slot: 38, stored: Some(stored), ..full };
        let gone = Set { volume: VolumeId(3), ..block(1, 5) };
        for set in [set, full, gone] {
            assert!(found.redo(&Statement::Set(set), true).is_ok(), "{set:?}");
        }
        assert!(found.settle());
        assert_eq!(found.all().collect::<Vec<Set>>(), [full, set], "and nothing of a volume that is gone");
    }

    #[test]
    fn a_block_or_an_object_in_two_places_is_told() {
        let there = |said: &[Set]| {
            let mut found = Found::new(4000, RingPlace { first: 0, pages: 4 }, 8, [VolumeId(1), VolumeId(2)]);
            said.iter().for_each(|set| assert!(found.redo(&Statement::Set(*set), true).is_ok(), "{set:?}"));
            found.settle()
        };
        let many: Vec<Set> = (0..3000).map(|at| block(at * 7, 4 + at as u32)).collect();
        assert!(there(&many));
        assert!(!there(&[&many[..], &[block(7 * 1234, 3900)]].concat()));
        assert!(there(&[&many[..], &[Set { volume: VolumeId(2), ..block(7 * 1234, 3900) }]].concat()));
        let lz4 = |of: u64, object, slot| packed(block(of, slot), Encoding::Lz4, object, 8);
        assert!(there(&[&many[..], &[lz4(1, 5, 3900), lz4(2, 6, 3901)]].concat()));
        assert!(!there(&[&many[..], &[lz4(1, 5, 3900), lz4(2, 5, 3901)]].concat()));
        assert!(!there(&[&many[..], &[lz4(7, 5, 3900)]].concat()), "as a page, and packed");
    }
}
