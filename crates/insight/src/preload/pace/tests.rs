//! The pace by itself; beside a modelled disk it is tried in `preload/modelled.rs`.

use super::*;

const MS: u64 = 1_000_000;
const GOAL: u64 = 50 * MS;

/// So many requests of clients, each of so long.
fn clients(count: u64, each_ns: u64) -> Histogram {
    let mut seen = Histogram::default();
    (0..count).for_each(|_| seen.record(each_ns));
    seen
}

/// A look at which the preload has read what it may.
fn look(pace: &mut Pace, count: u64, each_ns: u64) {
    let read_bytes = match pace.allowed() {
        Allowed::All => 130 << 20,
        Allowed::BytesPerSecond(rate) => rate,
        Allowed::Nothing => 0,
    };
    pace.look(&Seen { clients: clients(count, each_ns), read_bytes, span_ms: 1000 }, GOAL);
}

/// A pace beside clients that take so long alone.
fn beside(alone_ns: u64) -> Pace {
    let mut pace = Pace::new(None);
    look(&mut pace, 50, 3 * alone_ns);
    assert_eq!(pace.allowed(), Allowed::Nothing, "clients are measured alone");
    look(&mut pace, 50, alone_ns);
    pace
}

#[test]
fn nobody_to_hold_back_for() {
    let mut pace = Pace::new(None);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond(START_BYTES_S), "nothing is known in the first second");
    for _ in 0..100 {
        look(&mut pace, 0, 0);
        assert_eq!(pace.allowed(), Allowed::All);
    }
    let mut capped = Pace::new(Some(3 << 20));
    assert_eq!(capped.allowed(), Allowed::BytesPerSecond(3 << 20));
    look(&mut capped, 0, 0);
    assert_eq!(capped.allowed(), Allowed::BytesPerSecond(3 << 20));
}

#[test]
fn grows_while_the_goal_holds_and_halves_when_not() {
    let mut pace = beside(20 * MS);
    for step in 0..5 {
        assert_eq!(pace.allowed(), Allowed::BytesPerSecond(START_BYTES_S + step * STEP_BYTES_S));
        look(&mut pace, 64, 25 * MS);
    }
    look(&mut pace, 50, 32 * MS);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond((START_BYTES_S + 5 * STEP_BYTES_S) / 2), "1.3 of 20 ms is not held");
    for _ in 0..10 {
        look(&mut pace, 50, 100 * MS);
    }
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond(LEAST_BYTES_S), "it comes to an end all the same");
}

#[test]
fn the_limit_is_within_the_goal_where_clients_are() {
    let limit_ms = |alone_ms: u64| beside(alone_ms * MS).limit_ns(GOAL).expect("they were measured") / MS;
    for (alone_ms, about_ms) in [(5, 25), (20, 26), (30, 39), (39, 50), (60, 75), (200, 250)] {
        assert!(limit_ms(alone_ms).abs_diff(about_ms) <= about_ms / 20, "{alone_ms} ms alone: {} ms beside", limit_ms(alone_ms));
    }
    assert_eq!(Pace::new(None).limit_ns(GOAL), None);
}

#[test]
fn clients_are_measured_again_and_their_end_is_seen() {
    let mut pace = beside(20 * MS);
    let pauses = (0..200).filter(|_| {
        look(&mut pace, 50, 25 * MS);
        pace.allowed() == Allowed::Nothing
    });
    let pauses = pauses.count();
    assert!((5..=8).contains(&pauses), "{pauses} pauses in 200 looks");
    (0..5).for_each(|_| look(&mut pace, 0, 0));
    assert_eq!(pace.allowed(), Allowed::All, "clients have gone");
    look(&mut pace, 1, 20 * MS);
    assert_eq!(pace.allowed(), Allowed::Nothing, "one is back");
    (0..2).for_each(|_| look(&mut pace, 0, 0));
    assert_eq!(pace.allowed(), Allowed::All, "it was one request");
}

#[test]
fn among_few_requests_it_grows_slowly_and_falls_as_fast() {
    let mut pace = beside(20 * MS);
    look(&mut pace, 8, 20 * MS);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond(START_BYTES_S + STEP_BYTES_S / 8));
    look(&mut pace, 1, 100 * MS);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond((START_BYTES_S + STEP_BYTES_S / 8) / 2));
    look(&mut pace, 0, 0);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond((START_BYTES_S + STEP_BYTES_S / 8) / 2), "no request says nothing");
}

#[test]
fn a_rate_that_the_disk_does_not_give_does_not_grow() {
    let mut pace = beside(20 * MS);
    for _ in 0..20 {
        pace.look(&Seen { clients: clients(50, 22 * MS), read_bytes: 20 << 20, span_ms: 1000 }, GOAL);
    }
    let Allowed::BytesPerSecond(rate) = pace.allowed() else { panic!("{pace:?}") };
    assert!(rate <= 48 << 20, "{rate}");
    pace.look(&Seen { clients: clients(50, 60 * MS), read_bytes: 20 << 20, span_ms: 1000 }, GOAL);
    assert_eq!(pace.allowed(), Allowed::BytesPerSecond(10 << 20), "half of what was read");
}
