//! Lines of files that lie in pieces, copies of pages, and pages that do not say whose they are.

use super::*;
use crate::map::{Refresh, Source};

const PAGE: u64 = 16 << 10;
const MIB: u64 = 1 << 20;

fn at(offset_bytes: u64, number: u32, owner: Owner) -> Sighting {
    Sighting { offset_bytes, page_bytes: PAGE as u32, stored_bytes: PAGE as u32, number, owner, written: false }
}

fn of(object: u32) -> Owner {
    Owner::Object(ObjectId(object))
}

#[test]
fn four_pages_of_a_line_are_believed_and_the_gaps_between_them_too() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in [5, 20, 6] {
        let page = at(100 * MIB + u64::from(number) * PAGE, number, of(1));
        assert_eq!(learner.see(&mut map, 0, &page), Finding::Unsure, "{number}");
        assert_eq!(learner.see(&mut map, 0, &Sighting { written: true, ..page }), Finding::Unsure, "{number}");
    }
    assert_eq!(map.refresh_wanted(0), Some(Refresh::Grown), "written where nothing is known");
    let fourth = at(100 * MIB + 30 * PAGE, 30, of(1));
    assert_eq!(learner.see(&mut map, 0, &fourth), Finding::Home(ObjectId(1), Outcome::New));
    let extents: Vec<_> = map.all().map(|extent| (extent.bytes, extent.source)).collect();
    let place = |number: u64| 100 * MIB + number * PAGE;
    assert_eq!(extents, [(place(5)..place(31), Source::Neighbour)]);
    assert!(map.all().all(|extent| extent.object_offset_bytes == extent.bytes.start - 100 * MIB));
    assert_eq!(learner.home(&map, ObjectId(1), 1000), None, "nothing was seen there");
    assert_eq!(learner.home(&map, ObjectId(1), 25), Some(place(25)));
    assert_eq!(learner.home(&map, ObjectId(2), 5), None);
}

#[test]
fn a_page_alone_is_believed_when_it_is_read_there_again() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    let page = at(7 * MIB, 40, of(1));
    assert_eq!(learner.see(&mut map, 0, &page), Finding::Unsure);
    assert_eq!(learner.see(&mut map, 0, &Sighting { written: true, ..page }), Finding::Unsure, "a doublewrite does that");
    assert_eq!(learner.see(&mut map, 0, &page), Finding::Home(ObjectId(1), Outcome::New));
    let extents: Vec<_> = map.all().map(|extent| (extent.bytes.start, extent.bytes.end)).collect();
    assert_eq!(extents, [(7 * MIB, 7 * MIB + PAGE)]);
}

#[test]
fn a_copy_of_a_page_is_a_second_place_and_the_map_does_not_hear_of_it() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in 0..200 {
        learner.see(&mut map, 0, &at(100 * MIB + u64::from(number) * PAGE, number, of(1)));
    }
    map.add(&(0..2 * MIB), ObjectId(2), 0, Source::FileMap);
    let extents = map.count();
    for batch in 0..20u32 {
        for slot in 0..8u32 {
            let number = (batch * 29 + slot) % 200;
            let copy = Sighting { written: true, ..at(MIB + u64::from(slot) * PAGE, number, of(1)) };
            let home = Finding::SecondPlace(100 * MIB + u64::from(number) * PAGE);
            assert_eq!(learner.see(&mut map, 0, &copy), home, "{batch} {slot}");
        }
    }
    assert_eq!((map.count(), map.refresh_wanted(0)), (extents, None));
}

#[test]
fn a_file_that_moved_is_found_at_its_new_place() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in 0..5000 {
        learner.see(&mut map, 0, &at(1000 * MIB + u64::from(number) * PAGE, number, of(1)));
    }
    let moved = (0..20_000u32).position(|step| {
        let page = at(3000 * MIB + u64::from(step % 5000) * PAGE, step % 5000, of(1));
        matches!(learner.see(&mut map, 0, &page), Finding::Home(..))
    });
    assert_eq!(moved, Some(4999), "when more of it is seen there");
    assert_eq!(map.at(3000 * MIB).map(|extent| extent.object), Some(ObjectId(1)));
}

#[test]
fn encrypted_pages_take_the_name_of_the_clear_one_on_their_line() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    let place = |number: u32| 500 * MIB + u64::from(number) * PAGE;
    for number in 1..100 {
        assert_eq!(learner.see(&mut map, 0, &at(place(number), number, Owner::Shape(0))), Finding::Unsure);
    }
    assert_eq!(learner.nameless().count(), 1);
    let first = learner.see(&mut map, 0, &at(place(0), 0, of(9)));
    assert_eq!(first, Finding::Home(ObjectId(9), Outcome::New));
    let sealed = learner.see(&mut map, 0, &at(place(50), 50, Owner::Shape(0)));
    assert_eq!(sealed, Finding::Home(ObjectId(9), Outcome::New));
    assert_eq!(learner.nameless().count(), 0);
    let other = learner.see(&mut map, 0, &at(900 * MIB, 50, Owner::Shape(0)));
    assert_eq!(other, Finding::Unsure, "another line");
}

#[test]
fn holes_between_compressed_pages_belong_to_others() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in 0..20u32 {
        let page = Sighting { stored_bytes: 4096, ..at(500 * MIB + u64::from(number) * PAGE, number, of(3)) };
        learner.see(&mut map, 0, &page);
    }
    assert_eq!(map.at(500 * MIB + 10 * PAGE + 4095).map(|extent| extent.object), Some(ObjectId(3)));
    assert_eq!(map.at(500 * MIB + 10 * PAGE + 4096), None);
}

#[test]
fn a_line_that_gets_a_name_from_elsewhere_tells_all_of_it() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in 100..200 {
        learner.see(&mut map, 0, &at(700 * MIB + u64::from(number) * PAGE, number, Owner::Shape(11)));
        learner.see(&mut map, 0, &at(900 * MIB + u64::from(number) * PAGE, number, Owner::Shape(33)));
    }
    let line = *learner.nameless().find(|line| line.owner == Owner::Shape(33)).expect("two lines");
    learner.name(&mut map, line.page_zero_bytes, 33, ObjectId(4));
    let extents: Vec<_> = map.all().collect();
    assert_eq!(extents.len(), 1);
    assert_eq!(extents[0].bytes, 900 * MIB + 100 * PAGE..900 * MIB + 200 * PAGE);
    assert_eq!((extents[0].object, extents[0].object_offset_bytes), (ObjectId(4), 100 * PAGE));
}

#[test]
fn lines_are_bounded_and_nonsense_ends_nothing() {
    let (mut map, mut learner) = (Map::default(), Learner::default());
    for number in 0..300 {
        learner.see(&mut map, 0, &at(100 * MIB + u64::from(number) * PAGE, number, of(1)));
    }
    let mut state = 11u64;
    for step in 0..50_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let owner = if state >> 63 == 0 { of((state >> 50) as u32 & 3) } else { Owner::Shape((state >> 50) as u32 & 3) };
        let page = Sighting {
            offset_bytes: if step % 100 == 0 { state } else { state >> 20 },
            page_bytes: [4096, 16384, 0, u32::MAX, 8192][(state >> 40) as usize % 5],
            stored_bytes: (state >> 30) as u32,
            number: (state >> 16) as u32,
            owner,
            written: state & 1 == 0,
        };
        learner.see(&mut map, step, &page);
        if step % 10 == 0 {
            learner.see(&mut map, step, &at(100 * MIB + (step / 10 % 300) * PAGE, (step / 10 % 300) as u32, of(1)));
        }
    }
    assert_eq!(learner.lines.len(), LINES_MAX);
    assert_eq!(learner.by_place.len(), LINES_MAX);
    let named = learner.lines.iter().filter(|line| matches!(line.owner, Owner::Object(_))).count();
    assert_eq!(learner.by_object.len(), named);
    assert!(learner.bytes() < 1 << 20, "{}", learner.bytes());
    assert_eq!(learner.home(&map, ObjectId(1), 7), Some(100 * MIB + 7 * PAGE), "what is in use stays");
    assert_ne!(map.refresh_wanted(0), Some(Refresh::Aged));
}
