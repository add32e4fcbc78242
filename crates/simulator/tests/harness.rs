//! The harness watches itself: a correct stand-in passes, every bug planted in it is caught, and a seed is one run.

use simulator::plan::Plan;
use simulator::soak::{Soak, run_caught};
use simulator::standin::{Bug, StandIn};

#[test]
fn a_correct_system_passes() {
    let soak = Soak { first: 0, count: 300, threads: 2, failures_max: 1, twice_every: 10, adjust: &|_| () };
    let totals = soak.run(&StandIn(Bug::None));
    assert!(totals.found.is_empty(), "{:?}", totals.found);
    assert_eq!(totals.seeds, 300);
    assert!(totals.sums.requests > 10_000 && totals.sums.power_cuts > 100, "{}", totals.text());
}

#[test]
fn every_planted_bug_is_caught() {
    for bug in Bug::ALL {
        let soak = Soak { first: 0, count: 1500, threads: 2, failures_max: 1, twice_every: 0, adjust: &|_| () };
        let totals = soak.run(&StandIn(bug));
        let found = totals.found.first().unwrap_or_else(|| panic!("{bug:?} lived through 1,500 seeds"));
        println!("{bug:?}: seed {}: {}", found.seed, found.failure.what);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let plan = Plan::of(seed);
        let builder = StandIn(Bug::None);
        let (one, two) = (run_caught(&plan, &builder).unwrap(), run_caught(&plan, &builder).unwrap());
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        let other = run_caught(&Plan::of(seed + 1000), &builder).unwrap();
        assert_ne!(one.trace_hash, other.trace_hash);
    }
}
