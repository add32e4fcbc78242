//! The engine under the simulator: random runs, and all short sequences. `SIM_SEEDS` says how many seeds (4,000 unless said).

use simulator::daemon::Engine;
use simulator::exhaustive::{Setting, story, try_all};
use simulator::plan::Plan;
use simulator::shrink::record;
use simulator::soak::{Soak, run_caught};
use types::Mode;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

#[test]
fn random_runs_break_no_promise() {
    let count = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000);
    let soak = Soak { first: 0, count, threads: threads(), failures_max: 3, twice_every: 20, adjust: &|_| () };
    let totals = soak.run(&Engine);
    println!("{}\n{}", totals.coverage().table(), totals.text());
    for found in &totals.found {
        println!("seed {}: {}", found.seed, found.failure.what);
        println!("replay: cargo run -p simulator --release --bin soak -- --seed {}", found.seed);
        println!("shorter: cargo run -p simulator --release --bin soak -- --shrink {}", found.seed);
    }
    assert!(totals.found.is_empty());
    let missing = totals.coverage().missing();
    assert!(missing.is_empty() || count < 2_000, "faults that never met a phase: {missing:?}");
}

/// The same with blocks that are packed, several in a slot.
#[test]
fn packed_blocks_break_no_promise() {
    a_kind_breaks_no_promise(410_000_000, "--packed", &Plan::always_pack);
}

/// The same with units that writes keep whole.
#[test]
fn units_break_no_promise() {
    a_kind_breaks_no_promise(420_000_000, "--units", &Plan::always_keep_units);
}

fn a_kind_breaks_no_promise(first: u64, option: &str, adjust: &(dyn Fn(&mut Plan) + Sync)) {
    let count = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000) / 4;
    let soak = Soak { first, count, threads: threads(), failures_max: 3, twice_every: 20, adjust };
    let totals = soak.run(&Engine);
    println!("{}", totals.text());
    for found in &totals.found {
        println!("seed {}: {}", found.seed, found.failure.what);
        println!("replay: cargo run -p simulator --release --bin soak -- {option} --seed {}", found.seed);
    }
    assert!(totals.found.is_empty());
}

/// Much that is dirty and small, on an SSD that damages one write in twenty: what is lost must not take more of the log than it did, or the cleaner ends without
/// room and writers wait for ever.
#[test]
fn what_is_lost_takes_no_more_room_than_it_did() {
    let adjust = |plan: &mut Plan| {
        plan.always_swell();
        plan.damage_writes();
    };
    let soak = Soak { first: 170_000_000, count: 150, threads: threads(), failures_max: 3, twice_every: 0, adjust: &adjust };
    let totals = soak.run(&Engine);
    for found in &totals.found {
        println!("seed {}: {}", found.seed, found.failure.what);
    }
    assert!(totals.found.is_empty());
}

/// Checks of segments that are being written, where blocks stored as they are lie beside packed ones: no sound block is called bad, and nothing is read
/// while it is written.
#[test]
fn a_check_of_what_is_being_written_finds_nothing_wrong() {
    let soak = Soak { first: 300_000_000, count: 300, threads: threads(), failures_max: 3, twice_every: 0, adjust: &Plan::always_check };
    let totals = soak.run(&Engine);
    for found in &totals.found {
        println!("seed {}: {}", found.seed, found.failure.what);
    }
    assert!(totals.found.is_empty());
}

/// What the shrinker rests on: with all its steps a recorded run is the run itself, whatever it is about.
#[test]
fn a_run_played_from_its_record_is_the_run() {
    let kinds: [fn(&mut Plan); 7] = [
        |_| (),
        Plan::always_share,
        Plan::always_lose_ssd,
        Plan::always_grow,
        Plan::always_label,
        Plan::always_use_ranges,
        Plan::always_check,
    ];
    for seed in 0..14 {
        let mut plan = Plan::of(400_000_000 + seed);
        kinds[seed as usize % kinds.len()](&mut plan);
        let free = run_caught(&plan, &Engine).expect("a seed that passes");
        let recorded = record(&plan, &Engine);
        assert_eq!(recorded.result.as_ref().map(|outcome| outcome.trace_hash).ok(), Some(free.trace_hash), "seed {seed}: recorded");
        let played = recorded.play(&plan, &Engine, &recorded.all(), None).map(|outcome| outcome.trace_hash);
        assert_eq!(played.ok(), Some(free.trace_hash), "seed {seed}: played");
        // Half of the steps are another run, in which no promise is broken either.
        let mut half = recorded.all();
        half.steps.retain(|(number, _)| number % 2 == 0);
        let other = recorded.play(&plan, &Engine, &half, None).map(|outcome| outcome.trace_hash);
        assert!(other.as_ref().is_ok_and(|hash| *hash != free.trace_hash), "seed {seed}: half: {other:?}");
    }
}

#[test]
fn every_short_sequence_survives_every_crash() {
    let depth = std::env::var("SIM_DEPTH").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        for one_by_one in [true, false] {
            let (count, wrong) = try_all(Setting { mode, one_by_one, depth }, &Engine, threads(), 1);
            println!("{mode:?}, one by one: {one_by_one}: {count:?}");
            for example in &wrong {
                for line in story(example, &Engine) {
                    println!("{line}");
                }
                println!("{:?}, crash {:?}: {}", example.moves, example.crash, example.failure.what);
            }
            assert!(wrong.is_empty());
        }
    }
}
