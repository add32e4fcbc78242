//! The shrinker under planted mistakes: what it leaves still fails, passes without the mistake, and is short. (`--features mutants`.)
//!
//! One test, because the switch that plants a mistake is global.

use engine::mutants::set;
use simulator::daemon::Engine;
use simulator::mutants::memory::{Finder, remembered};
use simulator::mutants::{adjust, finds};
use simulator::plan::Plan;
use simulator::shrink::{Short, record};

/// Mistakes, and how many steps are enough for each.
const ENOUGH: [(u32, usize); 4] = [(105, 8), (3, 12), (9, 6), (20, 6)];

fn plan_of(number: u32) -> Plan {
    let Some(Finder::Seeds(seeds)) = remembered().remove(&number) else { panic!("mistake {number} is found by a seed") };
    // Not all of those that are remembered find it still: one is enough.
    let seed = seeds.into_iter().find(|seed| finds(number, *seed).is_some());
    let mut plan = Plan::of(seed.unwrap_or_else(|| panic!("no seed finds mistake {number} any more: `mutants --mend`")));
    adjust(number, &mut plan);
    plan
}

#[test]
fn planted_mistakes_need_few_steps() {
    for (number, enough) in ENOUGH {
        let plan = plan_of(number);
        set(number);
        let recorded = record(&plan, &Engine);
        let passes_without = |short: &Short| {
            set(0);
            let passes = recorded.play(&plan, &Engine, short, None).is_ok();
            set(number);
            passes
        };
        let shrunk = recorded.shrink(&plan, &Engine, &passes_without).unwrap_or_else(|trouble| panic!("M{number}: {trouble:?}"));
        let fails = |short: &Short| recorded.play(&plan, &Engine, short, None).err().map(|failure| failure.what);
        let (left, of) = (shrunk.short.steps.len(), recorded.steps.len());
        println!("M{number}: {left} of {of} steps, {} runs: {} ({})", shrunk.runs, shrunk.failure.what, shrunk.short);
        assert_eq!(fails(&shrunk.short).as_ref(), Some(&shrunk.failure.what), "M{number}: fails again in the same words");
        assert!(passes_without(&shrunk.short), "M{number}: passes without the mistake");
        assert!(left <= enough && left * 5 <= of, "M{number}: {left} of {of} steps");
        // None of what is left can go: a shrinker that leaves too much shows here.
        for index in 0..left {
            let mut fewer = shrunk.short.clone();
            let (step, _) = fewer.steps.remove(index);
            let still_fails = fails(&fewer).as_ref() == Some(&shrunk.failure.what) && passes_without(&fewer);
            assert!(!still_fails, "M{number}: not needed: {}", recorded.steps[step].words);
        }
        set(0);
    }
}
