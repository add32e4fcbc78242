//! Every planted mistake of the engine is found within the bounds of [`simulator::mutants::bounds`]. (`--features mutants`.)
//!
//! `make test` runs the seeds that found each of them before ([`simulator::mutants::memory`]), and searches one part in
//! [`PARTS`] afresh: `MUTANTS_PART` says which. `make test-long` searches all of them.

use simulator::mutants::bounds::{STILL_ALIVE, seeds_max};
use simulator::mutants::memory::{Finder, finder_of, line, remembered};
use simulator::mutants::{NOT_APPLICABLE, Verdict, exhaustive_finds, finds, hunt, hunt_all};
use std::sync::Mutex;

/// Into how many parts the mistakes are divided: a part is searched afresh in less than a minute on two cores.
const PARTS: u32 = 12;

/// Starting points of a search.
const STARTS: u64 = 3;

/// Which mistake is active is one switch for the whole process.
static SWITCH: Mutex<()> = Mutex::new(());

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn tell(verdict: &Verdict) {
    let Verdict { number, what, exhaustive_runs, found, .. } = verdict;
    let median = verdict.median();
    println!("M{number:<3} {what:<75} median seed {median:?}, exhaustive run {exhaustive_runs:?}: {found}");
}

fn found_again(number: u32, finder: &Finder) -> bool {
    match finder {
        Finder::Seeds(seeds) => seeds.iter().any(|seed| finds(number, *seed).is_some()),
        Finder::Sequences => exhaustive_finds(number, threads()).is_some(),
    }
}

#[test]
fn mistakes_are_found_again_and_some_of_them_afresh() {
    let _switch = SWITCH.lock().expect("the other test did not fail");
    let part = std::env::var("MUTANTS_PART").ok().map(|text| text.parse::<u32>().expect("MUTANTS_PART is a number") % PARTS);
    let remembered = remembered();
    let mut escaped = Vec::new();
    for (number, what) in engine::mutants::ALL.iter().filter(|(number, _)| !STILL_ALIVE.contains(number)) {
        let afresh = part == Some(number % PARTS);
        if !afresh && remembered.get(number).is_some_and(|finder| found_again(*number, finder)) {
            continue;
        }
        let verdict = hunt(*number, what, if afresh { STARTS } else { 1 }, seeds_max(*number), threads());
        tell(&verdict);
        match finder_of(&verdict) {
            Some(finder) if !afresh => {
                println!("what is remembered of M{number} finds it no more. For mutant-seeds.txt: {}", line(*number, &finder));
            }
            Some(_) => {}
            None => escaped.push(*number),
        }
    }
    assert!(escaped.is_empty(), "not found: {escaped:?}");
}

#[test]
#[ignore = "long: make test-long"]
fn every_mistake_is_found() {
    let _switch = SWITCH.lock().expect("the other test did not fail");
    let verdicts = hunt_all(STARTS, seeds_max, threads(), tell);
    for (number, why) in NOT_APPLICABLE {
        println!("M{number:<3} does not apply: {why}");
    }
    let alive: Vec<u32> = verdicts.iter().filter(|verdict| !verdict.killed()).map(|verdict| verdict.number).collect();
    println!("still alive: {alive:?}; known: {STILL_ALIVE:?}");
    let escaped: Vec<u32> = alive.into_iter().filter(|number| !STILL_ALIVE.contains(number)).collect();
    assert!(escaped.is_empty(), "not found: {escaped:?}");
}
