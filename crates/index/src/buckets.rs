//! Tables of buckets, which find a slot by a hash: linear probing without tombstones.
//!
//! A table keeps slots and some bits of their hashes, no keys: who asks says which slot is the one that is meant, and gives the hash of
//! a slot when buckets must move. There are two forms. [`Narrow`] has 4 bytes a bucket, can name plain slots only and never grows: the
//! more slots it can name, the fewer bits of hashes it keeps.
//! [`Wide`] has 5 bytes a bucket, can name every slot, and is split into tables that grow one by one.

use super::Slot;
use alloc::vec;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// Most a table is filled, in percent. An unsuccessful probe then looks at 22 neighbouring buckets.
const LOAD_MAX_PERCENT: usize = 85;

/// Buckets for a hundred plain slots: load 85 %.
const BUCKETS_PER_100_SLOTS: u64 = 118;

/// Plain slots of an index for each table of a [`Wide`]: few enough that the growth of one table takes about a millisecond.
const SLOTS_PER_TABLE: u32 = 8192;

/// Buckets [`Narrow`] has more than its load asks for, so that the smallest is no special case.
const BUCKETS_SPARE: usize = 8;

/// Buckets of the smallest table of a [`Wide`]: enough for first sizes that differ.
const BUCKETS_MIN: usize = 64;

/// What a probe meets.
pub(super) enum Bucket {
    /// Nothing: what is looked for is not there.
    Empty,
    /// A slot whose hash is another.
    Other,
    /// A slot whose hash may be the same.
    Candidate(Slot),
}

/// An array of buckets; the methods with a body are the probing, the same for all.
pub(super) trait Buckets {
    /// How many there are.
    fn buckets(&self) -> usize;
    /// What a search for `hash` meets in bucket `at`.
    fn look(&self, at: usize, hash: u64) -> Bucket;
    /// The slot in bucket `at`.
    fn slot(&self, at: usize) -> Option<Slot>;
    /// Fills bucket `at`.
    fn set(&mut self, at: usize, hash: u64, slot: Slot);
    /// Copies a bucket.
    fn copy(&mut self, from: usize, to: usize);
    /// Empties bucket `at`.
    fn clear(&mut self, at: usize);

    /// Where the search for a hash begins.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        // Multiply-shift maps the hash's upper half evenly to any count of buckets (Lemire 2019, "fast range").
        (((hash >> 32) * self.buckets() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets() { 0 } else { at + 1 }
    }

    /// Where the slot lies that has the hash and that `is` says yes to; else where it would be put.
    #[inline]
    fn probe(&self, hash: u64, is: impl Fn(Slot) -> bool) -> Result<(usize, Slot), usize> {
        let mut at = self.home(hash);
        loop {
            match self.look(at, hash) {
                Bucket::Empty => return Err(at),
                Bucket::Candidate(slot) if is(slot) => return Ok((at, slot)),
                Bucket::Candidate(_) | Bucket::Other => at = self.next(at),
            }
        }
    }

    /// Empties the bucket of the slot that has the hash and that `is` says yes to, and gives the slot back.
    #[inline]
    fn take(&mut self, hash: u64, is: impl Fn(Slot) -> bool, hash_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let (at, slot) = self.probe(hash, is).ok()?;
        self.close_gap(at, hash_of);
        Some(slot)
    }

    /// Buckets behind a freed one move up if their home lies at or before it.
    fn close_gap(&mut self, mut gap: usize, hash_of: impl Fn(Slot) -> u64) {
        // All homes before any is compared: what says a hash is far away in memory, and so the waits for them overlap.
        let mut homes: SmallVec<[usize; 32]> = SmallVec::new();
        let mut at = self.next(gap);
        while let Some(slot) = self.slot(at) {
            homes.push(self.home(hash_of(slot)));
            at = self.next(at);
        }
        at = gap;
        for home in homes {
            at = self.next(at);
            let distance_from_home = (at + self.buckets() - home) % self.buckets();
            let distance_from_gap = (at + self.buckets() - gap) % self.buckets();
            if distance_from_home >= distance_from_gap {
                self.copy(at, gap);
                gap = at;
            }
        }
        self.clear(gap);
    }

    /// Buckets in use, counted; for checks.
    fn count(&self) -> usize {
        (0..self.buckets()).filter(|at| self.slot(*at).is_some()).count()
    }
}

/// Buckets of four bytes, for plain slots: `(slot + 1) << tag_bits | tag`, or [`EMPTY`].
pub(super) struct Narrow {
    buckets: Vec<u32>,
    /// Bits of a hash in a bucket; 1 to [`TAG_BITS_MAX`].
    tag_bits: u32,
}

const EMPTY: u32 = 0;

/// Bits of a hash in a bucket where slots leave room for them. Each one less doubles how often a probe looks at another block's slot: of
/// an unsuccessful one at load 85 %, 0.09 times with eight bits, 0.17 times with seven.
const TAG_BITS_MAX: u32 = 8;

impl Narrow {
    /// For as many keys as there are slots, that can name up to `named` slots; `None` if there is no memory for it.
    pub(super) fn new(slots: u32, named: u32) -> Option<Narrow> {
        assert!(slots <= named && named < u32::MAX / 2, "{slots} slots of {named} leave room for a tag");
        let buckets = page::zeroed((u64::from(slots) * BUCKETS_PER_100_SLOTS / 100) as usize + BUCKETS_SPARE)?;
        Some(Narrow { buckets, tag_bits: named.leading_zeros().min(TAG_BITS_MAX) })
    }

    #[inline]
    fn tag(&self, hash: u64) -> u32 {
        hash as u32 & ((1 << self.tag_bits) - 1)
    }

    /// Puts the slot in place of the one that `is` says yes to, which it gives back, or adds it.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, slot: Slot, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let (at, old) = match self.probe(hash, is) {
            Ok((at, old)) => (at, Some(old)),
            Err(at) => (at, None),
        };
        self.set(at, hash, slot);
        old
    }

    /// Reads what a search for the hash reads first.
    #[inline]
    pub(super) fn approach(&self, hash: u64) {
        core::hint::black_box(self.buckets[self.home(hash)]);
    }

    /// Frees the memory; nothing may be looked for any more.
    pub(super) fn free(&mut self) {
        self.buckets = Vec::new();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<u32>()
    }
}

impl Buckets for Narrow {
    #[inline]
    fn buckets(&self) -> usize {
        self.buckets.len()
    }

    #[inline]
    fn look(&self, at: usize, hash: u64) -> Bucket {
        let bucket = self.buckets[at];
        if bucket == EMPTY {
            Bucket::Empty
        } else if bucket & ((1 << self.tag_bits) - 1) == self.tag(hash) {
            Bucket::Candidate(Slot((bucket >> self.tag_bits) - 1))
        } else {
            Bucket::Other
        }
    }

    fn slot(&self, at: usize) -> Option<Slot> {
        let bucket = self.buckets[at];
        (bucket != EMPTY).then(|| Slot((bucket >> self.tag_bits) - 1))
    }

    #[inline]
    fn set(&mut self, at: usize, hash: u64, slot: Slot) {
        self.buckets[at] = ((slot.0 + 1) << self.tag_bits) | self.tag(hash);
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.buckets[to] = self.buckets[from];
    }

    fn clear(&mut self, at: usize) {
        self.buckets[at] = EMPTY;
    }
}

/// One table of a [`Wide`]. The tags lie by themselves: most probes look at one cache line of them and at one slot.
struct Table {
    slots: Vec<u32>,
    /// 0 for an empty bucket.
    tags: Vec<u8>,
    used: usize,
}

impl Table {
    fn new(buckets: usize) -> Table {
        Table { slots: vec![0; buckets], tags: vec![0; buckets], used: 0 }
    }

    /// Whether one more would be too many.
    fn is_full(&self) -> bool {
        (self.used + 1) * 100 > self.tags.len() * LOAD_MAX_PERCENT
    }

    /// A quarter more buckets.
    fn grow(&mut self, hash_of: impl Fn(Slot) -> u64) {
        let mut grown = Table::new(self.tags.len() * 5 / 4);
        // All hashes before any is used: each is far away in memory, and so the waits for them overlap.
        let moving: Vec<(u64, Slot)> = (0..self.tags.len()).filter_map(|at| self.slot(at)).map(|slot| (hash_of(slot), slot)).collect();
        for (hash, slot) in moving {
            grown.set(grown.vacant(hash), hash, slot);
        }
        grown.used = self.used;
        *self = grown;
    }

    fn vacant(&self, hash: u64) -> usize {
        match self.probe(hash, |_| false) {
            Ok((at, _)) | Err(at) => at,
        }
    }
}

#[inline]
fn wide_tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

impl Buckets for Table {
    #[inline]
    fn buckets(&self) -> usize {
        self.tags.len()
    }

    #[inline]
    fn look(&self, at: usize, hash: u64) -> Bucket {
        match self.tags[at] {
            0 => Bucket::Empty,
            tag if tag == wide_tag(hash) => Bucket::Candidate(Slot(self.slots[at])),
            _ => Bucket::Other,
        }
    }

    fn slot(&self, at: usize) -> Option<Slot> {
        (self.tags[at] != 0).then(|| Slot(self.slots[at]))
    }

    #[inline]
    fn set(&mut self, at: usize, hash: u64, slot: Slot) {
        self.slots[at] = slot.0;
        self.tags[at] = wide_tag(hash);
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.slots[to] = self.slots[from];
        self.tags[to] = self.tags[from];
    }

    fn clear(&mut self, at: usize) {
        self.tags[at] = 0;
    }
}

/// Buckets of five bytes, for every kind of slot, in tables that grow.
pub(super) struct Wide {
    /// As many as a power of two.
    tables: Vec<Table>,
    /// Buckets of all of them.
    buckets: usize,
}

impl Wide {
    /// For an index of so many plain slots, with room for `expected` slots before a table grows.
    pub(super) fn new(plain_slots: u32, expected: u32) -> Wide {
        let tables = (plain_slots / SLOTS_PER_TABLE).max(1).next_power_of_two() as usize;
        // A sixteenth more, because hashes do not fall quite evenly.
        let each = expected as usize / tables * 17 / 16 * 100 / LOAD_MAX_PERCENT + BUCKETS_MIN;
        // The first sizes are spread over the step of growth: so tables do not all grow at one time, and together they are never at
        // their emptiest.
        let tables: Vec<Table> = (0..tables).map(|nth| Table::new(each + each * nth / (4 * tables))).collect();
        let buckets = tables.iter().map(Table::buckets).sum();
        Wide { tables, buckets }
    }

    #[inline]
    fn at(&self, hash: u64) -> usize {
        // Bits that are neither in the tag nor in what says the home.
        (hash >> 8) as usize & (self.tables.len() - 1)
    }

    /// The slot that has the hash and that `is` says yes to.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        Some(self.tables[self.at(hash)].probe(hash, is).ok()?.1)
    }

    /// Puts the slot in place of the one that `is` says yes to, which it gives back, or adds it.
    #[inline]
    pub(super) fn put(&mut self, hash: u64, slot: Slot, is: impl Fn(Slot) -> bool, hash_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let at = self.at(hash);
        let table = &mut self.tables[at];
        match table.probe(hash, is) {
            Ok((at, old)) => {
                table.set(at, hash, slot);
                Some(old)
            }
            Err(mut at) => {
                if table.is_full() {
                    self.buckets -= table.buckets();
                    table.grow(hash_of);
                    self.buckets += table.buckets();
                    at = table.vacant(hash);
                }
                table.set(at, hash, slot);
                table.used += 1;
                None
            }
        }
    }

    /// Forgets the slot that has the hash and that `is` says yes to, and gives it back.
    pub(super) fn take(&mut self, hash: u64, is: impl Fn(Slot) -> bool, hash_of: impl Fn(Slot) -> u64) -> Option<Slot> {
        let at = self.at(hash);
        let table = &mut self.tables[at];
        let slot = table.take(hash, is, hash_of)?;
        table.used -= 1;
        Some(slot)
    }

    /// Reads what a search for the hash reads first.
    #[inline]
    pub(super) fn approach(&self, hash: u64) {
        let table = &self.tables[self.at(hash)];
        core::hint::black_box(table.tags[table.home(hash)]);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.buckets * (size_of::<u32>() + size_of::<u8>()) + self.tables.len() * size_of::<Table>()
    }

    /// Slots in all tables, recounted; panics if a table is too full or counts wrongly.
    pub(super) fn check(&self) -> usize {
        for table in &self.tables {
            assert_eq!(table.count(), table.used);
            assert!(table.used * 100 <= table.buckets() * LOAD_MAX_PERCENT, "{} in {} buckets", table.used, table.buckets());
        }
        assert_eq!(self.buckets, self.tables.iter().map(Table::buckets).sum::<usize>());
        self.tables.iter().map(|table| table.used).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;

    #[test]
    fn tables_grow_one_by_one_and_stay_between_half_and_full() {
        let hash_of = |slot: Slot| mix(u64::from(slot.0));
        let mut wide = Wide::new(16 * SLOTS_PER_TABLE, 0);
        let (mut most_grown, mut before) = (0, wide.memory_bytes());
        for slot in (0..400_000).map(Slot) {
            assert_eq!(wide.put(hash_of(slot), slot, |at| at == slot, hash_of), None);
            let after = wide.memory_bytes();
            most_grown = most_grown.max(after - before);
            before = after;
        }
        assert_eq!((wide.check(), wide.tables.len()), (400_000, 16));
        assert!(most_grown * 16 * 3 < wide.memory_bytes(), "grew by {most_grown} of {}", wide.memory_bytes());
        assert!(wide.memory_bytes() < 7 * 400_000, "{}", wide.memory_bytes());
        for slot in (0..400_000).map(Slot) {
            assert_eq!(wide.find(hash_of(slot), |at| at == slot), Some(slot));
            if slot.0 % 3 == 0 {
                assert_eq!(wide.take(hash_of(slot), |at| at == slot, hash_of), Some(slot));
            }
        }
        assert_eq!(wide.check(), 400_000 - 133_334);
        assert!((0..400_000).map(Slot).all(|slot| wide.find(hash_of(slot), |at| at == slot).is_some() == (slot.0 % 3 != 0)));
    }
}
