//! The map against a plain array of sectors, and the story of a table that is rebuilt.

use super::*;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const TABLE: ObjectId = ObjectId(7);
const OTHER: ObjectId = ObjectId(8);

fn with_table() -> Map {
    let mut map = Map::default();
    map.begin(0);
    assert!(map.add(&(10 * MIB..20 * MIB), TABLE, 0, Source::FileMap));
    map.finish(&[Source::FileMap]);
    map
}

#[test]
fn a_byte_has_the_object_and_the_place_of_its_extent() {
    let map = with_table();
    let extent = map.at(12 * MIB + 5).expect("mapped");
    assert_eq!((extent.object, extent.source, extent.generation), (TABLE, Source::FileMap, 1));
    assert_eq!(extent.bytes, 10 * MIB..20 * MIB);
    assert_eq!(map.at(20 * MIB), None);
    let cut: Vec<_> = map.over(15 * MIB..30 * MIB).map(|extent| (extent.bytes, extent.object_offset_bytes)).collect();
    assert_eq!(cut, [(15 * MIB..20 * MIB, 5 * MIB)]);
}

#[test]
fn content_wins_for_its_block_and_four_contradictions_ask_for_a_refresh() {
    let mut map = with_table();
    assert_eq!(map.content(0, &(11 * MIB..11 * MIB + 16 * KIB), TABLE, MIB, false), Outcome::Agrees);
    for page in 0..4u64 {
        assert_eq!(map.refresh_wanted(9000), None);
        let at = 12 * MIB + page * 64 * KIB;
        let outcome = map.content(page * 2000, &(at..at + 16 * KIB), OTHER, page * 16 * KIB, false);
        let Outcome::Contradicts(extent) = outcome else { panic!("{outcome:?}") };
        assert_eq!(extent.object, TABLE);
        assert_eq!(map.at(at).map(|extent| (extent.object, extent.source)), Some((OTHER, Source::Content)));
        assert_eq!(map.at(at + 16 * KIB).map(|extent| extent.object), Some(TABLE), "the rest stays");
    }
    assert_eq!(map.refresh_wanted(9000), Some(Refresh::Contradicted(TABLE)));
    map.check_invariants();
    map.begin(10_000);
    assert_eq!(map.refresh_wanted(10_000), None);
    assert!(map.add(&(12 * MIB..13 * MIB), OTHER, 0, Source::FileMap));
    map.finish(&[Source::FileMap]);
    assert_eq!(map.at(12 * MIB).map(|extent| (extent.object, extent.source)), Some((OTHER, Source::FileMap)));
    assert_eq!(map.at(15 * MIB), None, "the table is gone");
    assert_eq!(map.refresh_wanted(310_000), Some(Refresh::Aged));
}

#[test]
fn slow_contradictions_and_other_extents_ask_for_nothing() {
    let mut map = with_table();
    map.add(&(30 * MIB..40 * MIB), OTHER, 0, Source::FileMap);
    for page in 0..20u64 {
        let at = if page % 2 == 0 { 10 * MIB } else { 30 * MIB } + page * 64 * KIB;
        map.content(page * 1700, &(at..at + 16 * KIB), ObjectId(99), 0, false);
    }
    assert_eq!(map.refresh_wanted(40_000), None);
}

#[test]
fn a_page_written_where_nothing_is_known_asks_for_a_refresh() {
    let mut map = with_table();
    assert_eq!(map.content(0, &(50 * MIB..50 * MIB + 8 * KIB), OTHER, 0, false), Outcome::New);
    assert_eq!(map.refresh_wanted(0), None, "read, not written");
    assert_eq!(map.content(0, &(60 * MIB..60 * MIB + 8 * KIB), OTHER, 0, true), Outcome::New);
    assert_eq!(map.refresh_wanted(0), Some(Refresh::Grown));
}

#[test]
fn neighbours_fill_only_what_is_unknown() {
    let mut map = with_table();
    assert_eq!(map.neighbours(&(8 * MIB..22 * MIB), OTHER, 0), 4 * MIB);
    assert_eq!(map.at(9 * MIB).map(|extent| (extent.object, extent.object_offset_bytes)), Some((OTHER, 0)));
    assert_eq!(map.at(10 * MIB).map(|extent| extent.object), Some(TABLE));
    assert_eq!(map.at(21 * MIB).map(|extent| extent.object_offset_bytes), Some(12 * MIB));
    map.discard(&(9 * MIB + 1..21 * MIB + 1));
    let left: Vec<_> = map.all().map(|extent| extent.bytes).collect();
    assert_eq!(left, [8 * MIB..9 * MIB + 512, 21 * MIB..22 * MIB]);
}

#[test]
fn claims_that_make_no_sense_are_refused() {
    let mut map = with_table();
    for (bytes, offset) in [(5..517, 0), (0..100, 0), (512..512, 0), (0..u64::MAX, 0), (0..512, u64::MAX - 511), (0..512, 1)] {
        assert_eq!(map.content(0, &bytes, OTHER, offset, true), Outcome::Refused, "{bytes:?} {offset}");
        assert!(!map.add(&bytes, OTHER, offset, Source::FileMap));
        assert_eq!(map.neighbours(&bytes, OTHER, offset), 0);
    }
    assert_eq!((map.count(), map.refused()), (1, 18));
}

#[test]
fn a_full_map_refuses_and_stays_within_its_memory() {
    let mut map = Map::default();
    let mut state = 3u64;
    for _ in 0..EXTENTS_MAX + 50_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 24) * 4096 % (1 << 45);
        map.add(&(at..at + 4096), ObjectId((state >> 60) as u32), at / 2 / 512 * 512, Source::FileMap);
    }
    assert!(map.refused() > 0 && map.count() >= EXTENTS_MAX - 2);
    map.check_invariants();
}

/// What a plain array says of one sector.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Plain {
    object: u32,
    sector: u64,
    source: Source,
    generation: u32,
}

#[test]
fn the_map_is_what_a_plain_array_is() {
    const SECTORS: u64 = 2000;
    for seed in 1..25u64 {
        let (mut map, mut plain) = (Map::default(), vec![None::<Plain>; SECTORS as usize]);
        let (mut generation, mut state) = (0, seed);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for step in 0..600u64 {
            let start = random(SECTORS);
            let end = (start + 1 + random(64)).min(SECTORS);
            let bytes = start * 512..end * 512;
            // Few objects in few lines, so that claims agree as often as they differ.
            let (object, line) = (random(3) as u32, random(3) * 1000);
            let of = |sector: u64, source, generation| Plain { object, sector: sector + line, source, generation };
            let offset = (start + line) * 512;
            let part = start as usize..end as usize;
            match random(12) {
                0 => {
                    map.begin(step);
                    generation += 1;
                }
                1 => {
                    map.finish(&[Source::FileMap]);
                    for said in &mut plain {
                        *said = said.filter(|said| said.source != Source::FileMap || said.generation == generation);
                    }
                }
                2 => {
                    map.discard(&bytes);
                    plain[part].fill(None);
                }
                3..6 => {
                    map.add(&bytes, ObjectId(object), offset, Source::FileMap);
                    (start..end).for_each(|at| plain[at as usize] = Some(of(at, Source::FileMap, generation)));
                }
                6..8 => {
                    map.neighbours(&bytes, ObjectId(object), offset);
                    for at in start..end {
                        plain[at as usize].get_or_insert(of(at, Source::Neighbour, generation));
                    }
                }
                _ => {
                    let claim = |at: u64| of(at, Source::Content, generation);
                    let agrees = |at: u64| plain[at as usize].map(|said| (said.object, said.sector) == (object, at + line));
                    let expected = match (start..end).map(agrees).collect::<Vec<_>>() {
                        all if all.iter().all(|said| *said == Some(true)) => "Agrees",
                        all if all.contains(&Some(false)) => "Contradicts",
                        _ => "New",
                    };
                    let outcome = map.content(step, &bytes, ObjectId(object), offset, false);
                    assert!(format!("{outcome:?}").starts_with(expected), "{outcome:?}, not {expected}");
                    if expected != "Agrees" {
                        (start..end).for_each(|at| plain[at as usize] = Some(claim(at)));
                    }
                }
            }
        }
        // `finish` and `discard` leave neighbours that could be one run; they are looked at by
        // sector.
        for sector in 0..SECTORS {
            let found = map.at(sector * 512 + 100).map(|extent| Plain {
                object: extent.object.0,
                sector: (extent.object_offset_bytes + sector * 512 - extent.bytes.start) / 512,
                source: extent.source,
                generation: extent.generation,
            });
            assert_eq!(found, plain[sector as usize], "seed {seed}, sector {sector}");
        }
        map.check_invariants();
    }
}
