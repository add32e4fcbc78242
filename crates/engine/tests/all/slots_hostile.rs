//! Promise: whatever stands in the ring of a pool with slots, a start gives an error or a state, never a panic; and a start that is interrupted
//! before it has begun finds the same again.

use crate::support::Random;
use crate::support::disk::Disk;
use crate::support::pool::{layout_of, pool_with};
use engine::index::{Index, SlotMeta};
use engine::key::Key;
use engine::store::slots::in_index;
use engine::store::slots::recovery::{Expected, Sink, is_base, recover};
use engine::superblock::PoolState;
use format::checkpoint::LogEnd;
use format::packed::Encoding;
use format::slots::statement::Stored;
use format::slots::{RingHead, Set, Statement};
use types::{ShardIndex, VolumeId, VolumeIndex};

const SHARD: ShardIndex = ShardIndex(0);
const SEEDS: u64 = 4000;

fn offset_of(pool: &PoolState, slot: u32) -> u64 {
    pool.superblock.layout.page_offset(SHARD, 0, 0) + u64::from(slot) * 4096
}

fn statement(pool: &PoolState, random: &mut Random) -> Statement {
    let layout = &pool.superblock.layout;
    let (ring, all) = (pool.superblock.ring(SHARD), layout.slots_per_shard());
    let slot_of = |number: u64| ring.nth_slot(number as u32);
    let slots = u64::from(all - ring.pages);
    let slot = slot_of(random.below(slots));
    if random.chance(1, 3) {
        return packed(slot, random);
    }
    match random.below(8) {
        0 => Statement::Home { slot, unit: None, checksum: 7 },
        1 => Statement::Gone { slot, unit: None, checksum: 7 },
        2 if random.chance(1, 4) => Statement::GoneOfShelf { shelf: 0, slots: std::array::from_fn(|_| random.next() & random.next()) },
        _ => Statement::Set(Set {
            volume: VolumeId(1 + random.below(4) as u32),
            block: random.below(200),
            mask: if random.chance(1, 5) { 3 } else { u8::MAX },
            dirty: random.chance(1, 2),
            // What lies in the slots is not what any of these says.
            settled: random.chance(3, 4),
            lost: false,
            vital: false,
            checksum: 7,
            slot,
            old: random.chance(1, 3).then(|| slot_of(random.below(slots))).filter(|old| *old != slot),
            stored: None,
        }),
    }
}

/// What is said of a place in a slot.
fn packed(slot: u32, random: &mut Random) -> Statement {
    let unit = 4 * random.below(64) as u8;
    let encoding = Encoding::ALL[random.below(9) as usize];
    let bytes = match encoding {
        Encoding::Raw => 4096,
        encoding if encoding.has_packed_payload() => 5 + random.below(4091) as u16,
        _ => 0,
    };
    let object = if encoding.is_full() || encoding.rests_on_base() { 1 + random.below(20) } else { 0 };
    let is_base = encoding.is_full() && random.chance(1, 4);
    match random.below(6) {
        0 => Statement::Home { slot, unit: Some(unit), checksum: 7 },
        1 => Statement::Gone { slot, unit: Some(unit), checksum: 7 },
        _ => Statement::Set(Set {
            volume: VolumeId(if is_base { 0 } else { 1 + random.below(4) as u32 }),
            block: if is_base { 0 } else { random.below(200) },
            mask: u8::MAX,
            dirty: !is_base && (encoding == Encoding::Lost || random.chance(1, 2)),
            settled: random.chance(3, 4),
            lost: encoding == Encoding::Lost,
            vital: false,
            checksum: 7,
            slot,
            old: random.chance(1, 3).then_some(slot),
            stored: Some(Stored { encoding, object, bytes, unit: if encoding == Encoding::Raw { 0 } else { unit } }),
        }),
    }
}

/// What a start is given, and what it was told before.
#[derive(Default)]
struct Gathered {
    found: Vec<Set>,
    expected: Option<Expected>,
}

impl Sink for Gathered {
    fn expect(&mut self, expected: Expected) {
        assert!(self.found.is_empty() && self.expected.is_none(), "told once, and first");
        self.expected = Some(expected);
    }

    fn take(&mut self, found: &Set) {
        self.found.push(*found);
    }
}

impl Gathered {
    /// What was found, if it is as much as was told.
    fn checked(self) -> Vec<Set> {
        let blocks = self.found.iter().filter(|set| !is_base(set)).count() as u32;
        let objects = self.found.iter().filter(|set| set.stored.is_some_and(|stored| stored.encoding.is_full())).count() as u32;
        let has_packed = self.found.iter().any(|set| set.stored.is_some());
        assert_eq!(self.expected, has_packed.then_some(Expected { blocks, objects }));
        self.found
    }
}

/// What was found goes into an index, as it does when a pool starts.
fn put_into_index(pool: &PoolState, found: &[Set]) {
    let layout = &pool.superblock.layout;
    let mut index = Index::new(layout.slots_per_shard(), layout.pages_per_segment());
    if found.len().is_multiple_of(2) {
        index.expect_packed(found.len() as u32, found.len() as u32 / 2);
    }
    for set in found {
        let (slot, stored) = in_index(set);
        let key = Key::new(VolumeIndex(set.volume.0 as u16), set.block);
        let meta = SlotMeta { dirty: set.dirty, partial: set.mask != u8::MAX, frequency: 0, checksum: set.checksum };
        match stored {
            None => drop(index.insert(key, slot, meta)),
            Some(stored) => drop(index.restore_packed(slot, (!is_base(set)).then_some(key), meta, stored)),
        }
    }
    index.recount_references();
    index.check_invariants();
    let (plain, packed): (Vec<&Set>, Vec<&Set>) = found.iter().partition(|set| set.stored.is_none());
    assert!(plain.iter().all(|set| !index.has_packed(set.slot)), "a page, and what is packed beside it");
    assert!(packed.len() as u64 >= index.packed_count(0..layout.slots_per_shard()));
}

/// A pool whose ring says much, one group after the other.
fn written(seed: u64) -> (Disk, PoolState) {
    let mut random = Random(seed);
    let log = layout_of(40);
    let (mut disk, mut pool) = pool_with(seed, if seed.is_multiple_of(2) { log.with_slots() } else { log.upgraded(false) });
    if seed % 2 == 1 {
        let places = pool.superblock.layout.slots_per_shard() - pool.superblock.layout.ring_pages + 1;
        pool.superblock.log_starts[0].ring_first = random.below(places.into()) as u32;
    }
    pool.reserve_session(&mut disk).expect("stores");
    pool.begin_session(&mut disk, &[LogEnd { next_seq: 1, next_group: 2, tail_seq: 1 }], &[]).expect("stores");
    let ring_pages = u64::from(pool.superblock.layout.ring_pages);
    let groups = 1 + random.below(ring_pages - 4);
    for group in 1..=groups {
        let statements: Vec<Statement> = (0..random.below(9)).map(|_| statement(&pool, &mut random)).collect();
        let tail = if random.chance(1, 3) { 1 + random.below(group) } else { 1 };
        let uuid = pool.superblock.uuid;
        let head = RingHead { uuid, session: 1, shard: SHARD, group, tail, durable: group.saturating_sub(1 + random.below(3)), epoch: 0 };
        let offset_bytes = offset_of(&pool, pool.superblock.ring(SHARD).page_of(group));
        disk.rot(offset_bytes, |page| head.encode(&statements, page));
    }
    (disk, pool)
}

/// One thing that writers never do.
fn harm(disk: &mut Disk, pool: &PoolState, random: &mut Random) {
    let ring = pool.superblock.ring(SHARD);
    let mut any_page = || offset_of(pool, ring.page_of(random.below(ring.pages.into())));
    let (place, other) = (any_page(), any_page());
    match random.below(5) {
        0 => disk.rot(place, |page| page[random.below(4096) as usize] ^= 1 << random.below(8)),
        1 => disk.rot(place, |page| page.fill(0)),
        2 => {
            let copy = disk.page(other / 4096);
            disk.rot(place, |page| *page = copy);
        }
        _ => disk.rot(place, |page| {
            let used = 128 + usize::from(u16::from_le_bytes([page[74], page[75]])).min(3900);
            page[12 + random.below(used as u64 - 12) as usize] = random.next() as u8;
            let crc = format::checksum::crc32c(&page[12..]);
            page[8..12].copy_from_slice(&crc.to_le_bytes());
        }),
    }
}

#[test]
fn any_ring_is_an_error_or_a_state() {
    let (mut states, mut errors, mut damaged, mut packed) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (mut disk, mut pool) = written(seed);
        let mut random = Random(seed ^ 0xabcd);
        for _ in 0..random.below(4) {
            harm(&mut disk, &pool, &mut random);
        }
        let force = random.chance(1, 3);
        let start = |disk: &mut Disk, pool: &mut PoolState| {
            pool.reserve_session(disk).expect("stores");
            let mut gathered = Gathered::default();
            let result = recover(disk, &pool.superblock, SHARD, pool.superblock.session, force, &mut gathered);
            result.map(|(end, report)| (end, report.damaged_places, gathered.checked()))
        };
        match start(&mut disk, &mut pool) {
            Ok((end, places, found)) => {
                (states, damaged) = (states + 1, damaged + u64::from(places > 0));
                assert!(found.iter().all(|set| !pool.superblock.ring(SHARD).contains(set.slot)), "seed {seed}");
                put_into_index(&pool, &found);
                packed += found.iter().filter(|set| set.stored.is_some()).count();
                let again = start(&mut disk, &mut pool).unwrap_or_else(|error| panic!("seed {seed}, interrupted and repeated: {error}"));
                assert_eq!((again.0, again.2), (end, found), "seed {seed}");
            }
            Err(_) => errors += 1,
        }
    }
    println!("{states} states, {damaged} of them with damage, {errors} errors; {packed} packed payloads found");
    assert!(packed > 1000, "{packed} packed payloads");
    assert!(states > SEEDS / 4 && errors > SEEDS / 100 && damaged > SEEDS / 50, "{states} states, {damaged} with damage, {errors} errors");
}
