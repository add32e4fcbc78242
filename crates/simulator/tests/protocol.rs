//! The protocol of the slot layout in small: its rules hold whatever happens, and each of them is needed.

use simulator::protocol::{MISTAKES, Totals, run};

/// Pages of a segment of the ring: one, as the layout has it, and three, where a tail leaves more behind at once.
const SEGMENTS: [usize; 2] = [1, 3];

#[test]
fn nothing_acknowledged_is_lost_and_nothing_old_returns() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000);
    for pages_per_segment in SEGMENTS {
        let mut totals = Totals::default();
        for seed in 0..seeds {
            match run(seed, pages_per_segment, None) {
                Ok(ran) => totals += ran,
                Err((harm, after)) => panic!("seed {seed}, {pages_per_segment} pages a segment: {harm:?} after {after:?}"),
            }
        }
        println!("{pages_per_segment} pages a segment: {totals:?}");
        assert!(
            totals.tails > 5 * seeds && totals.interrupted > 5 * seeds && totals.sweeps_read > seeds / 10,
            "the world does what it is for: {totals:?}"
        );
    }
}

#[test]
fn each_rule_is_needed() {
    for mistake in MISTAKES {
        let found =
            SEGMENTS.iter().find_map(|pages| (0..20_000).find_map(|seed| Some((*pages, seed, run(seed, *pages, Some(mistake)).err()?.0))));
        let Some((pages, seed, harm)) = found else { panic!("{mistake:?} does no harm") };
        println!("{mistake:?}: {harm:?}, seed {seed}, {pages} pages a segment");
    }
}
