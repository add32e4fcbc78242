//! Every planted mistake of the engine is found within [`SEEDS_MAX`] seeds. (`--features mutants`; one test, because the switch is global.)

use simulator::mutants::{NOT_APPLICABLE, hunt_all};

/// The stated bound.
const SEEDS_MAX: u64 = 4000;

#[test]
fn every_mistake_is_found() {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let verdicts = hunt_all(3, SEEDS_MAX, threads, |verdict| {
        println!(
            "M{:<3} {:<75} median seed {:?}, exhaustive run {:?}: {}",
            verdict.number,
            verdict.what,
            verdict.median(),
            verdict.exhaustive_runs,
            verdict.found
        );
    });
    for (number, why) in NOT_APPLICABLE {
        println!("M{number:<3} does not apply: {why}");
    }
    let alive: Vec<u32> = verdicts.iter().filter(|verdict| !verdict.killed()).map(|verdict| verdict.number).collect();
    assert!(alive.is_empty(), "not found: {alive:?}");
}
