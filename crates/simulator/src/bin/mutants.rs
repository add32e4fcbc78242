//! `mutants [SEEDS [STARTS]]`: how many seeds each planted mistake lives.

use std::process::ExitCode;

use simulator::mutants::{NOT_APPLICABLE, hunt, hunt_all};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (most, starts) = (numbers.next().unwrap_or(2000), numbers.next().unwrap_or(3));
    let only = numbers.next();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let tell = |verdict: &simulator::mutants::Verdict| {
        let found: String = verdict.found.chars().take(110).collect();
        println!(
            "M{:<3} {:<75} median {:?} of {:?} exhaustive {:?}  {found}",
            verdict.number,
            verdict.what,
            verdict.median(),
            verdict.seeds,
            verdict.exhaustive_runs
        );
    };
    let verdicts = match only {
        Some(number) => {
            let verdict = hunt(number as u32, "", starts, most, threads);
            tell(&verdict);
            vec![verdict]
        }
        None => hunt_all(starts, |_| most, threads, tell),
    };
    for (number, why) in NOT_APPLICABLE {
        println!("M{number:<3} does not apply: {why}");
    }
    let alive: Vec<u32> = verdicts.iter().filter(|verdict| !verdict.killed()).map(|verdict| verdict.number).collect();
    println!("{} of {} killed; alive: {alive:?}", verdicts.len() - alive.len(), verdicts.len());
    if alive.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
