//! `mutants [SEEDS [STARTS [NAME]]]`: how many seeds each planted mistake lives. `mutants --mend` looks only for those that what is
//! remembered finds no more, from one starting point, and remembers. `--remember` writes what found them into the file that
//! the tests read, as each is found; those that are not found with this many seeds keep what is remembered of them.

use std::process::ExitCode;

use engine::mutants::{ALL, Mistake, name_of, named};
use simulator::mutants::bounds::{STILL_ALIVE, seeds_max};
use simulator::mutants::memory::{finder_of, finds_again, remembered, text_of};
use simulator::mutants::{NOT_APPLICABLE, hunt, hunt_all, is_met};

const REMEMBERED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mutant-seeds.txt");

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (most, starts) = (numbers.next(), numbers.next().unwrap_or(3));
    let most = |number: u32| most.unwrap_or(seeds_max(number));
    let only = std::env::args().skip(1).find_map(|word| named(&word)).map(|mistake| mistake.number);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let has = |wanted: &str| std::env::args().any(|word| word == wanted);
    let (remember, mend) = (has("--remember") || has("--mend"), has("--mend"));
    let mut finders = remembered();
    let mut tell = |verdict: &simulator::mutants::Verdict| {
        let found: String = verdict.found.chars().take(110).collect();
        println!(
            "{:<26} {:<75} median {:?} of {:?} exhaustive {:?}  {found}",
            name_of(verdict.number),
            verdict.what,
            verdict.median(),
            verdict.seeds,
            verdict.exhaustive_runs
        );
        // At once: a search of all takes long, and what is found stays found when it is ended early.
        if let (true, Some(finder)) = (remember, finder_of(verdict)) {
            finders.insert(verdict.number, finder);
            std::fs::write(REMEMBERED, text_of(&finders)).unwrap_or_else(|error| panic!("{REMEMBERED} cannot be written: {error}"));
        }
    };
    let verdicts = match only {
        Some(number) => {
            let verdict = hunt(number, "", starts, most(number), threads);
            tell(&verdict);
            vec![verdict]
        }
        None if mend => {
            let known = remembered();
            let is_known = |number: u32| known.get(&number).is_some_and(|finder| finds_again(number, finder, threads));
            let sought = |number: u32| is_met(number) && !STILL_ALIVE.contains(&number) && !is_known(number);
            let lost = ALL.iter().filter(|mistake| sought(mistake.number));
            lost.map(|Mistake { number, what, name }| {
                eprintln!("{name} is sought");
                hunt(*number, what, 1, most(*number), threads)
            })
            .inspect(tell)
            .collect()
        }
        None => hunt_all(starts, most, threads, tell),
    };
    for (what, why) in NOT_APPLICABLE {
        println!("{what}: does not apply: {why}");
    }
    let alive: Vec<&str> = verdicts.iter().filter(|verdict| !verdict.killed()).map(|verdict| name_of(verdict.number)).collect();
    println!("{} of {} killed; alive: {alive:?}", verdicts.len() - alive.len(), verdicts.len());
    if alive.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
