//! The index alone: each promise of packed slots and objects by a small story, memory, and plain slots beside a map.

use super::*;
use crate::key::mix;
use alloc::collections::BTreeMap;
use types::VolumeIndex;

fn meta(checksum: u32) -> SlotMeta {
    SlotMeta { dirty: checksum.is_multiple_of(2), partial: checksum.is_multiple_of(3), frequency: (checksum % 4) as u8, checksum }
}

fn whole(dirty: bool) -> SlotMeta {
    SlotMeta { dirty, partial: false, frequency: 0, checksum: 7 }
}

fn key(block: u64) -> Key {
    Key::new(VolumeIndex(1), block)
}

fn stored(encoding: Encoding, object: u64) -> Stored {
    Stored { encoding, place: 0, bytes: 100, object }
}

/// The packed slot with this number.
fn packed(number: u32) -> Slot {
    Slot(PACKED | number)
}

#[test]
fn agrees_with_a_map_under_random_use() {
    for (wide, named) in [(false, 0), (true, 0), (false, SLOTS_MAX), (false, (1 << 30) - 1), (true, (1 << 30) - 1)] {
        let slots = 1000;
        let mut index = Index::naming(slots, 16, named).expect("a few kilobytes");
        let mut model: BTreeMap<Key, (Slot, SlotMeta)> = BTreeMap::new();
        let mut free: Vec<u32> = (0..slots).collect();
        for step in 0..40_000_u64 {
            let random = mix(step);
            let key = Key::new(VolumeIndex((random % 3) as u16 * 500), (random >> 8) % 800);
            if random >> 60 < 9 {
                if let Some(slot) = free.pop() {
                    let old = index.insert(key, Slot(slot), meta(step as u32));
                    let before = model.insert(key, (Slot(slot), meta(step as u32)));
                    assert_eq!(old, before.map(|(slot, _)| slot));
                    free.extend(old.map(|slot| slot.0));
                }
            } else {
                let gone = index.remove(key);
                assert_eq!(gone, model.remove(&key).map(|(slot, _)| slot));
                free.extend(gone.map(|slot| slot.0));
            }
            if step % 4000 == 0 {
                index.check_invariants();
            }
            if wide && step == 10_000 {
                index.widen();
                index.check_invariants();
            }
        }
        index.check_invariants();
        assert_eq!(index.is_wide(), wide);
        for (key, (slot, meta)) in model {
            assert_eq!(index.get(key), Some(slot));
            assert_eq!(index.meta(slot), meta);
        }
    }
}

/// As many slots as an index can have in whole regions of 2048 pages.
const LARGEST: u32 = SLOTS_MAX / 2048 * 2048;

#[test]
fn fifteen_bytes_a_plain_slot() {
    for slots in [100_000, 10_000_000, LARGEST] {
        // Memory that nobody touches is not taken, so the largest index may be made on any machine.
        let index = Index::new(slots, 2048);
        let bytes = index.memory_bytes();
        assert!(bytes * 1000 <= u64::from(slots) * PLAIN_SLOT_MILLIBYTES, "{bytes} bytes for {slots} slots");
    }
}

#[test]
fn the_last_slots_of_the_largest_index_are_found() {
    let mut index = Index::new(LARGEST, 2048);
    let key = |slot: u32| Key::new(VolumeIndex(3), u64::from(slot) * 77);
    let slots = (LARGEST - 5000..LARGEST).chain([0, 1, 1 << 24, (1 << 24) - 1]);
    slots.clone().for_each(|slot| assert_eq!(index.insert(key(slot), Slot(slot), meta(slot)), None));
    index.widen();
    let last = Index::slot_at(LARGEST - 1, types::BLOCK_BYTES as u32 - BYTES_PER_NUMBER);
    assert_eq!((Index::page_of(last), Index::number_in_page(last), last.is_packed()), (LARGEST - 1, 63, true));
    assert_eq!(last.packed_place(), (LARGEST / 64 - 1, (1 << PART_ORDINAL_BITS) - 1));
    let first = Index::slot_at(LARGEST - 64, 0);
    let old = index.insert_packed(key(0), first, whole(false), stored(Encoding::Lz4, 5));
    assert_eq!((old, index.get(key(0)), index.object(5)), (Some(Slot(0)), Some(first), Some(first)));
    for slot in slots.filter(|slot| *slot != 0) {
        assert_eq!((index.get(key(slot)), index.meta(Slot(slot))), (Some(Slot(slot)), meta(slot)));
        assert_eq!(index.remove(key(slot)), Some(Slot(slot)));
    }
    assert_eq!(index.live_blocks(), 1);
}

#[test]
fn packed_blocks_take_what_they_should_at_every_fill() {
    let (regions, pages) = (200, 512);
    let mut index = Index::new(regions * pages, pages);
    index.widen();
    let plain =
        index.memory_bytes() - index.mixed.as_ref().map_or(0, |mixed| mixed.packed.memory_bytes() + mixed.keys.memory_bytes()) as u64;
    assert_eq!(plain, u64::from(regions), "the narrow buckets are gone, and nothing plain was touched");
    let without_blocks = plain + index.mixed.as_ref().map_or(0, |mixed| mixed.packed.entries.memory_bytes()) as u64;
    let mut blocks = 0;
    for at in 0..regions {
        for half_page in 0..2 * pages {
            blocks += 1;
            index.insert_packed(key(blocks), packed(at * pages * 64 + half_page * 32), whole(false), stored(Encoding::Lz4, blocks));
        }
        let bytes = index.memory_bytes() - without_blocks;
        assert!(at < 50 || bytes <= (24 + 2 + 6 + 8) * blocks, "{bytes} bytes for {blocks} blocks");
    }
    index.check_invariants();
    assert_eq!(Census { stored_bytes: 0, ..index.census() }, Census { lz4: blocks, ..Census::default() });
}

#[test]
fn a_packed_slot_keeps_what_it_was_given() {
    let mut index = Index::new(3 << 11, 1 << 11);
    let key = Key::new(VolumeIndex(1023), (1 << 34) - 1);
    let meta = SlotMeta { dirty: true, partial: false, frequency: 3, checksum: u32::MAX };
    let all = Stored { encoding: Encoding::Zstd, place: 0, bytes: 4096, object: (1 << 40) - 1 };
    let slot = Index::slot_at(2 << 11, 0);
    index.insert_packed(key, slot, meta, all);
    assert_eq!((index.get(key), index.key_of(slot), index.meta(slot), index.stored(slot)), (Some(slot), Some(key), meta, all));
    assert!(slot.is_packed() && Index::page_of(slot) == 2 << 11);
    index.set_frequency(slot, 1);
    index.set_clean(slot);
    assert_eq!(index.meta(slot), SlotMeta { dirty: false, frequency: 1, ..meta });
    assert_eq!(index.stored(slot), all);
    assert_eq!(index.key_of(Index::slot_at(1, 640)), None);
    for number in 0..=255 {
        assert!(Encoding::from_u8(number).is_none_or(|encoding| encoding as u8 == number));
    }
}

#[test]
fn an_overwritten_object_lives_as_long_as_others_rest_on_it() {
    let mut index = Index::new(64, 16);
    index.insert_packed(key(1), packed(0), whole(true), stored(Encoding::Raw, 5));
    index.insert_packed(key(2), packed(1), whole(true), stored(Encoding::Duplicate, 5));
    // The block itself becomes a delta to what it was.
    assert_eq!(index.insert_packed(key(1), packed(2), whole(false), stored(Encoding::Diff, 5)), Some(packed(0)));
    assert!(index.is_orphan(packed(0)));
    assert_eq!(index.references(packed(0)), References { all: 2, dirty: 1 });
    index.insert_base(packed(3), 7, stored(Encoding::Raw, 5));
    assert_eq!((index.object(5), index.is_orphan(packed(0))), (Some(packed(3)), false));
    index.set_clean(packed(1));
    assert_eq!(index.references(packed(3)), References { all: 2, dirty: 1 }, "until the store says that it came home");
    index.check_invariants();
    index.let_go_of_base(packed(1));
    assert_eq!(index.references(packed(3)), References { all: 2, dirty: 0 });
    index.check_invariants();
    index.insert(key(2), Slot(9), whole(false));
    index.remove(key(1));
    assert_eq!(index.object(5), None);
    index.insert_base(packed(4), 7, stored(Encoding::Raw, 5));
    assert_eq!(index.object(5), None);
    index.check_invariants();
    assert_eq!((index.packed_in(0..64).next(), index.live_blocks()), (None, 1));
}

#[test]
fn an_object_given_up_is_not_found_again_though_its_block_moves() {
    let mut index = Index::new(64, 16);
    index.insert_packed(key(1), packed(0), whole(false), stored(Encoding::Lz4, 5));
    index.insert_packed(key(2), packed(1), whole(false), stored(Encoding::Duplicate, 5));
    index.drop_object(packed(0));
    assert_eq!((index.object(5), index.get(key(1)), index.may_reference(5)), (None, Some(packed(0)), false));
    index.insert_packed(key(1), packed(2), whole(false), stored(Encoding::Lz4, 5));
    index.check_invariants();
    assert_eq!((index.object(5), index.stored(packed(2)).object), (None, 5));
    index.remove(key(2));
    index.remove(key(1));
    index.check_invariants();
}

#[test]
fn no_more_rest_on_an_object_than_can_be_counted() {
    let mut index = Index::new(1 << 12, 1 << 11);
    index.insert_packed(key(0), packed(0), whole(false), stored(Encoding::Raw, 5));
    let mut blocks = 0;
    while index.may_reference(5) {
        blocks += 1;
        index.insert_packed(key(blocks), packed(blocks as u32), whole(true), stored(Encoding::Duplicate, 5));
    }
    assert_eq!(blocks, u64::from(REFERENCES_MAX));
    // One that rests there already may be written again.
    index.insert_packed(key(1), packed(blocks as u32 + 1), whole(true), stored(Encoding::Duplicate, 5));
    assert_eq!(index.references(packed(0)), References { all: REFERENCES_MAX, dirty: REFERENCES_MAX });
    index.check_invariants();
}

#[test]
#[should_panic(expected = "is not there to rest on")]
fn nothing_rests_on_what_is_not_there() {
    let mut index = Index::new(64, 16);
    index.insert_packed(key(1), packed(0), whole(false), stored(Encoding::Duplicate, 5));
}

#[test]
#[should_panic(expected = "is a block's")]
fn a_block_does_not_become_an_orphan_by_moving() {
    let mut index = Index::new(64, 16);
    index.insert_packed(key(1), packed(0), whole(false), stored(Encoding::Raw, 5));
    index.insert_base(packed(1), 7, stored(Encoding::Raw, 5));
}

#[test]
#[should_panic(expected = "is there already")]
fn a_slot_in_use_gets_no_other_record() {
    let mut index = Index::new(64, 16);
    index.insert_packed(key(1), packed(0), whole(false), stored(Encoding::Zero, 0));
    index.insert_packed(key(2), packed(0), whole(false), stored(Encoding::Zero, 0));
}

#[test]
fn parts_move_with_their_blocks_and_go_with_them() {
    let mut index = Index::new(64, 8);
    let key = |block| Key::new(VolumeIndex(0), block);
    let meta = |frequency| SlotMeta { dirty: false, partial: false, frequency, checksum: 0 };
    index.insert(key(9), Slot(9), meta(2));
    assert_eq!((index.parts(), index.first_of_part(3, 0..64)), (None, None));
    index.keep_parts();
    index.insert(key(1), Slot(1), meta(3 | 5 << 2));
    index.insert(key(2), Slot(2), meta(1 | 5 << 2));
    assert_eq!(index.parts(), Some([1, 0, 0, 0, 0, 2, 0, 0]));
    assert_eq!((index.meta(Slot(1)).frequency, index.meta(Slot(9)).frequency), (3 | 5 << 2, 2));
    index.insert(key(1), Slot(30), meta(5 << 2));
    index.set_frequency(Slot(2), 7 << 2);
    assert_eq!((index.first_of_part(5, 0..64), index.first_of_part(7, 0..64)), (Some(30), Some(2)));
    index.remove(key(2));
    assert_eq!(index.parts(), Some([1, 0, 0, 0, 0, 1, 0, 0]));
    index.check_invariants();
}

/// Packed slots come and go in any order; what lies in a page is known by looking at all of them.
#[test]
fn packed_slots_say_which_pages_are_in_use() {
    const PAGES: u32 = 256;
    let mut index = Index::new(PAGES, 64);
    let mut alive: BTreeMap<Slot, (Key, u16)> = BTreeMap::new();
    let (mut random, mut ended) = (1_u64, Vec::new());
    let mut next = |below: u64| {
        random = crate::key::mix(random + 1);
        random % below
    };
    for step in 0..20_000_u64 {
        let at = (next(u64::from(PAGES) * 64)) as u32;
        let slot = Index::slot_at(at / 64, at % 64 * BYTES_PER_NUMBER);
        let bytes = (next(4090) as u16).max(5);
        let numbers = |slot: Slot, bytes: u16| {
            let first = Index::page_of(slot) * 64 + Index::number_in_page(slot);
            first..first + u32::from(bytes).div_ceil(BYTES_PER_NUMBER)
        };
        let wanted = numbers(slot, bytes);
        let taken = alive.iter().any(|(other, (_, bytes))| {
            let there = numbers(*other, *bytes);
            there.start < wanted.end && wanted.start < there.end
        });
        if !taken && (wanted.end - 1) / (64 * 64) == wanted.start / (64 * 64) && alive.len() < 100 {
            let key = Key::new(VolumeIndex(1), step);
            let stored = Stored { encoding: Encoding::Lz4, place: 0, bytes, object: step + 1 };
            index.insert_packed(key, slot, SlotMeta { dirty: false, partial: false, frequency: 0, checksum: 7 }, stored);
            assert_eq!(index.stored(slot).place, wanted.start % (64 * 64) * BYTES_PER_NUMBER / 16);
            alive.insert(slot, (key, bytes));
        } else if let Some(slot) = alive.keys().nth(next(alive.len() as u64) as usize).copied() {
            let (key, bytes) = alive.remove(&slot).expect("there");
            assert_eq!(index.remove(key), Some(slot));
            ended.push(Ended { slot, bytes });
        }
        if step % 50 == 0 {
            index.check_invariants();
            assert_eq!(index.take_ended(), core::mem::take(&mut ended));
            let all: Vec<Slot> = alive.keys().copied().collect();
            assert_eq!(index.packed_in(0..PAGES).collect::<Vec<Slot>>(), all);
            for page in 0..PAGES {
                let here = |(slot, (_, bytes)): (&Slot, &(Key, u16))| {
                    (Index::page_of(*slot)..Index::page_behind_of(*slot, *bytes)).contains(&page)
                };
                assert_eq!(index.has_packed(page), alive.iter().any(here), "page {page} at {step}");
            }
            let (from, to) = (next(u64::from(PAGES)) as u32, next(u64::from(PAGES)) as u32);
            let range = from.min(to)..from.max(to);
            let within = all.iter().filter(|slot| range.contains(&Index::page_of(**slot))).count();
            assert_eq!(index.packed_count(range), within as u64);
        }
    }
}
