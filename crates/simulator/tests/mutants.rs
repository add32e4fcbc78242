//! The planted mistakes of the engine are found within the bounds of [`simulator::mutants::bounds`], except those of [`STILL_ALIVE`], which no
//! run is expected to find: that list says why. (`--features mutants`.)
//!
//! `make test` runs the seeds that found each of them before ([`simulator::mutants::memory`]), and searches one part in
//! [`PARTS`] afresh: `MUTANTS_PART` says which. `make test-long` searches all of them (`MUTANTS_PART=all`). It is one test, because the switch
//! that plants a mistake is global.

use engine::mutants::{ALL, Mistake, name_of};
use simulator::mutants::bounds::{STILL_ALIVE, seeds_max};
use simulator::mutants::memory::{finder_of, finds_again, line, remembered};
use simulator::mutants::{NOT_APPLICABLE, Verdict, hunt, hunt_all, is_met};

/// Into how many parts the mistakes are divided: a part is searched afresh in one to five minutes on two cores.
const PARTS: u32 = 12;

/// Starting points of a search of all. A part is searched from one: those that are rare live thousands of seeds.
const STARTS: u64 = 3;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn tell(verdict: &Verdict) {
    let Verdict { number, what, exhaustive_runs, found, .. } = verdict;
    let median = verdict.median();
    let name = name_of(*number);
    println!("{name:<26} {what:<75} median seed {median:?}, exhaustive run {exhaustive_runs:?}: {found}");
}

/// All of them, if that is asked for; else those that what is remembered does not find, and one part.
fn search() -> Vec<Verdict> {
    let part = std::env::var("MUTANTS_PART").ok();
    if part.as_deref() == Some("all") {
        return hunt_all(STARTS, seeds_max, threads(), tell);
    }
    let part = part.map(|text| text.parse::<u32>().expect("MUTANTS_PART is a number, or all") % PARTS);
    let remembered = remembered();
    let mut verdicts = Vec::new();
    for Mistake { number, name, what } in ALL.iter().filter(|mistake| is_met(mistake.number) && !STILL_ALIVE.contains(&mistake.number)) {
        let afresh = part == Some(number % PARTS);
        if !afresh && remembered.get(number).is_some_and(|finder| finds_again(*number, finder, threads())) {
            continue;
        }
        let verdict = hunt(*number, what, 1, seeds_max(*number), threads());
        tell(&verdict);
        if let Some(finder) = finder_of(&verdict).filter(|_| !afresh) {
            println!("what is remembered of {name} finds it no more. For mutant-seeds.txt: {}", line(*number, &finder));
        }
        verdicts.push(verdict);
    }
    verdicts
}

#[test]
fn every_mistake_is_found() {
    let verdicts = search();
    for (what, why) in NOT_APPLICABLE {
        println!("{what}: does not apply: {why}");
    }
    let alive: Vec<u32> = verdicts.iter().filter(|verdict| !verdict.killed()).map(|verdict| verdict.number).collect();
    let names = |numbers: &[u32]| numbers.iter().map(|number| name_of(*number)).collect::<Vec<_>>();
    println!("still alive: {:?}; known: {:?}", names(&alive), names(&STILL_ALIVE));
    let escaped: Vec<&str> = alive.into_iter().filter(|number| !STILL_ALIVE.contains(number)).map(name_of).collect();
    assert!(escaped.is_empty(), "not found: {escaped:?}");
}
