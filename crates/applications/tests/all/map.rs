//! Extents that are learned from pages alone, against where files really lay (`../shared`). Skipped
//! with a message where the data is absent.

use crate::common;
use crate::recorded_loads::{Load, Row};
use applications::map::learn::{Finding, Learner, Owner, Sighting};
use applications::map::{Map, Source};
use applications::streams::{PageAt, Seen, Streams};
use applications::{Native, pages};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use types::{ObjectId, StreamClass};

const PAGE_BYTES: u32 = 16384;

/// Every InnoDB page that the servers of the recorded load read says where its file lies. At the
/// end, all requests for those files, also those of `cp` and `mariabackup` and all writes, are
/// looked up.
#[test]
fn files_of_a_real_disk_are_mapped_from_the_pages_that_were_read() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/pages/traces/oltp-with-backups.tsv.zst"));
    if !path.is_file() {
        println!("skipped: {} is not there", path.display());
        return;
    }
    let load = Load::read(&path);
    let (mut map, mut learner) = (Map::default(), Learner::default());
    let mut files: HashMap<u32, u32> = HashMap::new();
    let (mut seen, mut second) = (0, 0);
    for row in &load.rows {
        let (Some(page), Some((file, _))) = (&row.page, row.place) else { continue };
        let space = (page.owner >> 32) as u32;
        let hidden = space == u32::MAX;
        let owner = if hidden { Owner::Shape(0) } else { Owner::Object(ObjectId(space)) };
        if !hidden {
            assert_eq!(*files.entry(file).or_insert(space), space, "a file is one space");
        }
        let sighting = Sighting {
            offset_bytes: row.offset_bytes,
            page_bytes: PAGE_BYTES,
            stored_bytes: row.len_bytes,
            number: page.number,
            owner,
            written: row.write,
        };
        seen += 1;
        second += u32::from(matches!(learner.see(&mut map, row.at_ms, &sighting), Finding::SecondPlace(_)));
        if let Some(home) = learner.home(&map, ObjectId(space), page.number) {
            assert_eq!(home, row.offset_bytes, "page {} of space {space}", page.number);
        }
    }
    let (all_right, all_wrong, all_unknown) = attributed(&load, &files, &map, |_| true);
    let (right, wrong, unknown) = attributed(&load, &files, &map, |row| row.page.is_some());
    println!("{seen} pages of {} files: {} extents, {} KiB", files.len(), map.count(), (map.bytes() + learner.bytes()) >> 10);
    println!("bytes of those reads: {right:.5} right, {wrong:.5} wrong, {unknown:.5} unknown");
    println!("of all requests for these files: {all_right:.5} right, {all_wrong:.5} wrong, {all_unknown:.5} unknown");
    assert_eq!((second, map.refresh_wanted(0)), (0, None), "no page lay twice");
    assert!(wrong <= 0.0001 && all_wrong <= 0.0001, "{wrong} {all_wrong}");
    // What `cp` and `mariabackup` read was recorded without its pages: a tenth was never seen else.
    assert!(right >= 0.99 && all_right >= 0.9, "{right} {all_right}");
}

/// Shares of the bytes of some requests that the map gives to the right file and place, to a wrong
/// one, to none.
fn attributed(load: &Load, files: &HashMap<u32, u32>, map: &Map, counts: impl Fn(&Row) -> bool) -> (f64, f64, f64) {
    let (mut right, mut wrong, mut all) = (0u64, 0u64, 0u64);
    for row in load.rows.iter().filter(|row| counts(row)) {
        let Some((space, from)) = row.place.and_then(|(file, from)| Some((files.get(&file)?, from))) else { continue };
        let bytes = row.offset_bytes..row.offset_bytes + u64::from(row.len_bytes);
        all += u64::from(row.len_bytes);
        for extent in map.over(bytes.clone()) {
            let expected = from + extent.bytes.start - bytes.start;
            let fits = extent.object == ObjectId(*space) && extent.object_offset_bytes == expected;
            *if fits { &mut right } else { &mut wrong } += extent.bytes.end - extent.bytes.start;
        }
    }
    let share = |bytes: u64| bytes as f64 / all as f64;
    (share(right), share(wrong), share(all - right - wrong))
}

/// PostgreSQL's heap pages do not name their relation. The real files are laid on a disk in pieces
/// of 5 to 40 pages, in a mixed order; each line must hold pages of one file, and get its name.
#[test]
fn heap_pages_of_one_line_are_of_one_relation() {
    let Some(files) = common::archive("postgresql-15") else { return };
    let mut pieces: Vec<(&str, usize, &[u8])> = Vec::new();
    let mut state = 5u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for (name, bytes) in files.iter().filter(|(name, bytes)| name.starts_with("base/") && bytes.len() % 8192 == 0) {
        let mut from = 0;
        while from < bytes.len() {
            let length = (5 + random(36) as usize) * 8192;
            let to = (from + length).min(bytes.len());
            pieces.push((name, from, &bytes[from..to]));
            from = to;
        }
    }
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, random(at as u64 + 1) as usize);
    }
    let (mut map, mut learner) = (Map::default(), Learner::default());
    let (mut device, mut truth) = (1u64 << 30, BTreeMap::new());
    for (name, from, bytes) in &pieces {
        for (offset, page) in pages(bytes) {
            let Some(sighting) = Sighting::of(&page, device + offset as u64, None, false) else { continue };
            learner.see(&mut map, 0, &sighting);
            truth.insert(sighting.offset_bytes, (*name, from + offset));
        }
        device += bytes.len() as u64 + 4096 * random(100);
    }
    let lines: Vec<_> = learner.nameless().copied().collect();
    assert!(lines.len() >= 2, "{} lines", lines.len());
    let (mut right, mut wrong) = (0, 0);
    for line in &lines {
        let on_line = || truth.range(line.low_bytes..line.high_bytes);
        let Some((_, (name, _))) = on_line().next() else { panic!("{line:?}") };
        for (at, (other, from)) in on_line() {
            let fits = other == name && *at as i64 - *from as i64 == line.page_zero_bytes;
            *if fits { &mut right } else { &mut wrong } += 1;
        }
        let Owner::Shape(shape) = line.owner else { panic!("{line:?}") };
        learner.name(&mut map, line.page_zero_bytes, shape, ObjectId(7));
        let extent = map.at(line.low_bytes).expect("it is told");
        assert_eq!((extent.object, extent.source), (ObjectId(7), Source::Neighbour));
    }
    println!("{} pieces, {} pages with a number: {} lines, {right} pages right, {wrong} wrong", pieces.len(), truth.len(), lines.len());
    assert!(wrong == 0 && right * 10 >= truth.len() * 9, "{right} right, {wrong} wrong of {}", truth.len());
}

/// The doublewrite area of a real server, page by page: those whose home was seen are known as
/// second places, and the rule of streams calls the area so when it is written again and again.
#[test]
fn a_real_doublewrite_area_is_told_from_the_homes_of_its_pages() {
    let Some(files) = common::archive("mariadb-10.11") else { return };
    let (system, undo) = (1u64 << 30, 2u64 << 30);
    let area = system + (1 << 20)..system + (3 << 20);
    let recognised = |name: &str, base: u64| -> Vec<(Sighting, PageAt)> {
        let found = pages(&files[name]).filter_map(|(offset, page)| {
            let Native::Innodb(identity) = page.native else { return None };
            let object = ObjectId(identity.space? + 1);
            let sighting = Sighting::of(&page, base + offset as u64, Some(object), true)?;
            Some((sighting, PageAt::of(&page, base + offset as u64, Some(object))?))
        });
        found.collect()
    };
    let (mut map, mut learner, mut homes) = (Map::default(), Learner::default(), BTreeMap::new());
    let (in_area, elsewhere): (Vec<_>, Vec<_>) =
        recognised("ibdata1", system).into_iter().partition(|(sighting, _)| area.contains(&sighting.offset_bytes));
    for (sighting, _) in elsewhere.iter().chain(&recognised("undo001.first1M", undo)) {
        let read = Sighting { written: false, ..*sighting };
        assert!(!matches!(learner.see(&mut map, 0, &read), Finding::SecondPlace(_)), "{read:?}");
        let Owner::Object(object) = read.owner else { panic!("{read:?}") };
        homes.insert((object, read.number), read.offset_bytes);
    }
    let system_file = files["ibdata1"].len() as u64 / 512 * 512;
    map.neighbours(&(system..system + system_file), ObjectId(1), 0);
    let extents = map.count();
    let (mut streams, mut second, mut called) = (Streams::default(), 0, 0);
    for round in 0..4 {
        for slot in 0..in_area.len() {
            let place = in_area[slot].0.offset_bytes;
            let (sighting, page) = in_area[(slot + round * 7) % in_area.len()];
            let sighting = Sighting { offset_bytes: place, ..sighting };
            let Owner::Object(object) = sighting.owner else { panic!("{sighting:?}") };
            let home = homes.get(&(object, sighting.number)).copied();
            match learner.see(&mut map, 0, &sighting) {
                Finding::SecondPlace(found) => {
                    assert_eq!(Some(found), home);
                    second += 1;
                }
                Finding::Unsure => assert_eq!(home, None, "{sighting:?}"),
                Finding::Home(..) => panic!("{sighting:?}"),
            }
            let pages = [PageAt { offset_bytes: place, home_bytes: learner.home(&map, object, sighting.number), ..page }];
            let written =
                Seen { at_ms: 0, offset_bytes: place, len_bytes: page.len_bytes, write: true, origin: None, place: None, pages: &pages };
            called += usize::from(streams.note(&written, &mut Vec::new()).class == StreamClass::Doublewrite);
        }
    }
    println!("{} pages in the area, four times: {second} second places known, {called} called doublewrite", in_area.len());
    assert!(second >= 4 * 16 && called >= in_area.len(), "{second} {called}");
    assert_eq!((map.count(), map.refresh_wanted(0)), (extents, None), "the map heard nothing of them");
}
