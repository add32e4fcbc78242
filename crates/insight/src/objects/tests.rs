//! When objects are looked for, how uses are counted, and what is given of them.

use super::*;
use applications::discovery::Evidence;

fn looked(objects: &mut Objects, began_ms: u64, end_ms: u64) {
    objects.set_looked(Looked::Now, began_ms);
    objects.set_looked(Looked::At(end_ms), end_ms);
}

#[test]
fn a_look_is_due_when_something_changed_and_has_a_part_of_the_time_only() {
    let mut objects = Objects::default();
    assert!(objects.is_due(0));
    objects.set_looked(Looked::Now, 1_000_000);
    assert!(!objects.is_due(10_000_000));
    let end_ms = 1_200_000;
    objects.set_looked(Looked::At(end_ms), end_ms);
    assert!(!objects.is_due(end_ms + 10 * AGED_MS), "nothing was written");
    objects.written = true;
    assert!(!objects.is_due(end_ms + AGED_MS), "it took 200 seconds");
    assert!(objects.is_due(end_ms + 400_000));
    objects.set_looked(Looked::Failed(end_ms + 700_000, "a read failed".into()), end_ms + 700_000);
    assert!(objects.is_due(end_ms + 700_000 + 20 * 900_000 + AGED_MS));
}

#[test]
fn what_pages_contradict_is_looked_at_again_at_once_but_not_on_and_on() {
    let mut objects = Objects::default();
    let strange = |objects: &mut Objects| (0..16).for_each(|page| objects.contradictions.add(&Found::default(), page * 8192, 0));
    looked(&mut objects, AGED_MS, AGED_MS + 8_000);
    let mut end_ms = AGED_MS + 8_000;
    for pause_ms in [16_000, 20_000, 20_000, 20_000] {
        assert!(!objects.is_due(end_ms + pause_ms), "nothing contradicts it");
        strange(&mut objects);
        assert!(objects.is_due(end_ms + pause_ms) && !objects.is_due(end_ms + pause_ms - 1), "{pause_ms}");
        looked(&mut objects, end_ms + pause_ms, end_ms + pause_ms + 8_000);
        end_ms += pause_ms + 8_000;
    }
    // A quick one.
    looked(&mut objects, end_ms + AGED_MS, end_ms + AGED_MS + 100);
    strange(&mut objects);
    assert!(!objects.is_due(end_ms + AGED_MS + 100 + STALE_MS - 1) && objects.is_due(end_ms + AGED_MS + 100 + STALE_MS));
}

/// A look beside clients takes minutes. A table that grew meanwhile has its new size soon after it, however many looks came before; where
/// nothing contradicts what was found, the next look waits as long as ever.
#[test]
fn a_long_look_is_followed_soon_where_pages_contradict_it() {
    let mut objects = Objects::default();
    let mut end_ms = AGED_MS;
    for _ in 0..5 {
        looked(&mut objects, end_ms + 1_000, end_ms + 100_000);
        end_ms += 100_000;
    }
    objects.written = true;
    assert!(!objects.is_due(end_ms + AGED_MS), "it took 99 seconds");
    (0..16).for_each(|page| objects.contradictions.add(&Found::default(), page * 8192, 0));
    assert!(!objects.is_due(end_ms + STALE_PAUSE_MS - 1) && objects.is_due(end_ms + STALE_PAUSE_MS));
}

/// A new table of PostgreSQL, whose pages do not say whose they are; of an engine that was found, and of one that was not.
#[test]
fn pages_where_nothing_is_known_ask_for_a_look_of_every_engine() {
    let due_after_ms = |kind: u16, object: u64, blind: bool| {
        let mut objects = Objects::default();
        objects.set_looked(Looked::Now, AGED_MS);
        let mut found = Found::default();
        let whole = applications::discovery::Blind { bytes: 0..1 << 40, reason: Reason::Unreadable, seen: Vec::new() };
        found.blind.extend(blind.then_some(whole));
        objects.set_found(Arc::new(found), 1 << 40);
        objects.early_looks = 100;
        objects.set_looked(Looked::At(AGED_MS), AGED_MS);
        let neighbours = (u32::MAX, u32::MAX);
        for number in 0..16 {
            let page = runtime::PageSeen { object, page: number, neighbours, kind, level: 0, is_leaf: false, is_log: false, size_log2: 13 };
            let start_sector = (1 << 30) + u64::from(number) * 16;
            let (is_write, page) = (true, Some(page));
            let sight = Sight { volume: 0, time_ms: 0, start_sector, sectors: 16, is_write, sequential: false, client: 0, page };
            objects.learn(&[(sight, 0)]);
        }
        [STALE_MS, AGED_MS].into_iter().find(|wait_ms| objects.is_due(AGED_MS + wait_ms) && !objects.is_due(AGED_MS + wait_ms - 1))
    };
    let (innodb, postgres, oracle) = (1 << 8 | 1, 2 << 8, 4 << 8);
    assert_eq!(due_after_ms(postgres, 0, false), Some(STALE_MS));
    assert_eq!(due_after_ms(innodb, 7 << 32, false), Some(STALE_MS));
    assert_eq!(due_after_ms(innodb, 0, false), Some(AGED_MS), "it does not say whose it is");
    assert_eq!(due_after_ms(postgres, 0, true), Some(AGED_MS), "no look finds files there");
    assert_eq!(due_after_ms(oracle, 7, false), Some(AGED_MS), "no look finds files of it");
}

/// PostgreSQL makes a file longer by zeroes, minutes before a checkpoint writes its pages.
#[test]
fn zeroes_where_nothing_is_known_ask_for_a_look_beside_a_postgresql() {
    let is_due = |engine: Engine, is_write: bool| {
        let mut objects = Objects::default();
        objects.set_looked(Looked::Now, 0);
        let mut found = Found::default();
        found.applications.push(Application {
            id: applications::discovery::ApplicationId(1),
            engine,
            instance: None,
            start_bytes: 0,
            file_system: [0; 16],
            version: None,
            evidence: Evidence::default(),
        });
        objects.set_found(Arc::new(found), 1 << 40);
        objects.set_looked(Looked::At(0), 0);
        let (none, kind) = (u32::MAX, BLANK_PAGE);
        let page = runtime::PageSeen {
            object: 0,
            page: none,
            neighbours: (none, none),
            kind,
            level: 0,
            is_leaf: false,
            is_log: false,
            size_log2: 12,
        };
        let sight =
            Sight { volume: 0, time_ms: 0, start_sector: 1 << 20, sectors: 128, is_write, sequential: false, client: 0, page: Some(page) };
        objects.learn(&[(sight, 0)]);
        objects.is_due(STALE_MS)
    };
    assert!(is_due(Engine::Postgres, true));
    assert!(!is_due(Engine::Postgres, false), "what is read was there before");
    assert!(!is_due(Engine::Innodb, true), "its pages say whose they are");
}

#[test]
fn what_is_empty_is_looked_at_again_soon_when_it_is_written() {
    let mut objects = Objects::default();
    let empty = |objects: &mut Objects, at_ms| {
        objects.set_looked(Looked::Now, at_ms - 6_000);
        objects.set_found(Arc::new(Found::default()), 1 << 30);
        objects.set_looked(Looked::At(at_ms), at_ms);
    };
    let mut at_ms = 10_000;
    for waits_ms in [EARLY_MS, 2 * EARLY_MS, 4 * EARLY_MS, 8 * EARLY_MS, 16 * EARLY_MS, AGED_MS, AGED_MS] {
        empty(&mut objects, at_ms);
        assert!(!objects.is_due(at_ms + 10 * AGED_MS), "nothing was written");
        objects.written = true;
        assert!(!objects.is_due(at_ms + waits_ms - 1) && objects.is_due(at_ms + waits_ms), "{waits_ms}");
        at_ms += waits_ms;
    }
}

#[test]
fn a_blank_volume_whose_start_is_written_is_looked_at_soon() {
    let mut objects = Objects::default();
    let blank = |objects: &mut Objects, at_ms| {
        objects.set_looked(Looked::Now, at_ms - 200_000);
        let mut found = Found::default();
        found.blind.push(applications::discovery::Blind { bytes: 0..4 << 30, reason: Reason::Unknown, seen: Vec::new() });
        objects.set_found(Arc::new(found), 4 << 30);
        objects.set_looked(Looked::At(at_ms), at_ms);
    };
    let written = |objects: &mut Objects, start_sector| {
        let sight = Sight { volume: 0, time_ms: 0, start_sector, sectors: 8, is_write: true, sequential: false, client: 0, page: None };
        objects.learn(&[(sight, 0)]);
    };
    let mut at_ms = 1_000_000;
    blank(&mut objects, at_ms);
    written(&mut objects, 4096);
    assert!(!objects.is_due(at_ms + STALE_MS), "in the middle");
    written(&mut objects, 2);
    assert!(!objects.is_due(at_ms + STALE_MS - 1) && objects.is_due(at_ms + STALE_MS));
    // Whoever goes on writing there, and makes no file system, is not looked at on and on.
    for _ in 0..HASTY_FOR_STARTS {
        at_ms += 200_000 + STALE_MS;
        blank(&mut objects, at_ms);
        written(&mut objects, 2);
    }
    assert!(!objects.is_due(at_ms + STALE_MS));
}

#[test]
fn what_was_unknown_is_forgotten_when_something_is_found() {
    let mut objects = Objects::default();
    let count = |objects: &mut Objects, block: u64| {
        let mut tap = engine::tap::Tap::default();
        let (op, outcome) = (engine::api::Op::Write, Outcome::WriteBack);
        tap.note(
            &engine::tap::Used { volume: 0, time_ms: 0, op, start_sector: block * 8, sectors: 8, outcome, sequential: false },
            u64::MAX,
        );
        objects.count(tap.take().0.iter(), 1.0);
        let (unknown, all) = objects.unknown();
        (unknown.written_blocks, all.written_blocks)
    };
    objects.set_found(Arc::new(Found::default()), 1 << 30);
    assert_eq!(count(&mut objects, 1), (1.0, 1.0));
    objects.set_found(Arc::new(Found::default()), 1 << 30);
    assert_eq!(count(&mut objects, 2), (2.0, 2.0), "the same was found again");
    let mut found = Found::default();
    found.blind.push(applications::discovery::Blind { bytes: 0..4096, reason: Reason::Unreadable, seen: Vec::new() });
    objects.set_found(Arc::new(found), 1 << 30);
    assert_eq!(count(&mut objects, 3), (1.0, 1.0));
}

#[test]
fn clients_are_busy_for_a_moment_after_each_request() {
    let mut objects = Objects::default();
    objects.set_looked(Looked::Now, 10_000);
    assert!(objects.is_busy(10_000 + BUSY_MS - 1) && !objects.is_busy(10_000 + BUSY_MS));
    let sight = Sight { volume: 0, time_ms: 0, start_sector: 0, sectors: 8, is_write: false, sequential: false, client: 0, page: None };
    objects.learn(&[(sight, 20_000)]);
    assert!(objects.is_busy(20_500) && !objects.is_busy(20_000 + BUSY_MS));
}

#[test]
fn policies_are_given_again_once_a_minute_when_there_are_objects() {
    let mut objects = Objects::default();
    assert!(!objects.policies_due(GIVEN_MS));
    objects.set_looked(Looked::At(GIVEN_MS), GIVEN_MS);
    assert!(objects.policies_due(GIVEN_MS) && !objects.policies_due(2 * GIVEN_MS - 1) && objects.policies_due(2 * GIVEN_MS));
}

#[test]
fn a_cell_belongs_to_the_object_that_has_the_most_of_it() {
    const MIB: u64 = 1 << 20;
    let mut objects = Objects::default();
    assert_eq!(objects.most_of_cells(0, MIB, 2), [None, None]);
    let mut found = Found::default();
    let mut lay = |bytes: Range<u64>, object| found.map.add(&bytes, ObjectId(object), 0);
    lay(MIB..MIB + 8192, 7);
    lay(MIB + 65536..MIB + 65536 + 12_288, 8);
    lay(MIB + 131_072..MIB + 131_072 + 8192, 7);
    lay(3 * MIB - 4096..9 * MIB, 9);
    objects.set_found(Arc::new(found), 16 * MIB);
    let id = |object| Some(ObjectId(object));
    assert_eq!(objects.most_of_cells(0, MIB, 5), [None, id(7), id(9), id(9), id(9)]);
    assert_eq!(objects.most_of_cells(8 * MIB, 4 * MIB, 2), [id(9), None]);
    assert_eq!(objects.most_of_cells(0, 16 * MIB, 1), [id(9)]);
}

#[test]
fn uses_are_counted_together_where_nothing_is_known() {
    let mut objects = Objects::default();
    let mut tap = engine::tap::Tap::default();
    for (op, outcome) in
        [(engine::api::Op::Read, Outcome::RamHit), (engine::api::Op::Read, Outcome::Miss), (engine::api::Op::Write, Outcome::WriteBack)]
    {
        let used = engine::tap::Used { volume: 0, time_ms: 0, op, start_sector: 0, sectors: 16, outcome, sequential: false };
        tap.note(&used, u64::MAX);
    }
    let (samples, _) = tap.take();
    objects.count(samples.iter(), 2.0);
    assert_eq!((objects.read().read_blocks, objects.read().hit_blocks), (8.0, 4.0));
    assert_eq!(objects.unknown().1, Uses::default(), "nothing was found yet");
    let before = Arc::clone(objects.window());
    assert!(Arc::ptr_eq(objects.window(), &before));
    objects.restart();
    assert_eq!(objects.read(), Uses::default());
    assert!(!Arc::ptr_eq(objects.window(), &before) && !Arc::ptr_eq(Objects::default().window(), &before));
}
