//! The checker can fail: every planted mistake of the engine must be found by the simulator within a stated number of seeds, and what
//! fails must pass once the mistake is switched off.

pub mod bounds;
pub mod memory;

use engine::mutants::*;

use crate::daemon::Engine;
use crate::exhaustive::{Setting, try_all};
use crate::plan::Plan;
use crate::soak::{Soak, run_caught};
use types::Mode;

/// How one mistake fared.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its number.
    pub number: u32,
    /// What it does.
    pub what: &'static str,
    /// Seeds until it was found, from several starting points; `None` where it lived.
    pub seeds: Vec<Option<u64>>,
    /// What was found first.
    pub found: String,
    /// Found by the exhaustive run instead: after that many runs.
    pub exhaustive_runs: Option<u64>,
}

impl Verdict {
    /// The median count of seeds until it was found, if it was found from every starting point.
    pub fn median(&self) -> Option<u64> {
        let mut seeds: Vec<u64> = self.seeds.iter().copied().collect::<Option<_>>()?;
        seeds.sort_unstable();
        seeds.get(seeds.len() / 2).copied()
    }

    /// The seeds that found it.
    pub fn finders(&self) -> Vec<u64> {
        (0..).zip(&self.seeds).filter_map(|(start, count)| Some(first_seed(start) + (*count)? - 1)).collect()
    }

    /// Whether it was found at all.
    pub fn killed(&self) -> bool {
        self.seeds.iter().any(Option::is_some) || self.exhaustive_runs.is_some()
    }
}

/// Mistakes of the list in `docs/` that have no place here, and why.
pub const NOT_APPLICABLE: [(&str, &str); 3] = [
    ("a volume shrinks under dirty blocks", "volumes cannot shrink"),
    ("the order of writes is lost", "there is no ordered mode"),
    ("a base of clean blocks is dropped", "that a base is not kept for clean blocks is a loss of speed: they are misses"),
];

/// Those of reading a log, which a run does once at most, and then of one that is whole: `crates/engine/tests/planted_mistakes.rs` finds them.
pub const OF_THE_LOG: [u32; 7] = [
    TORN_PAYLOAD_BELIEVED,
    EARLIER_LAP_ACCEPTED,
    GAP_ACCEPTED,
    RECOVERY_UNSTABLE,
    BAD_GROUP_ENDS_LOG,
    OLD_CHECKPOINT_BELIEVED,
    TORN_BASE_ACCEPTED,
];

/// Of what a log carries on as lost: the same test finds it.
const OF_LOST: u32 = LOST_IS_ZEROES;

/// Whether a run can meet the mistake.
pub fn is_met(number: u32) -> bool {
    number != OF_LOST && !OF_THE_LOG.contains(&number)
}

/// Mistakes about who rests on what that only few runs can meet: all runs are made such ([`Plan::always_share`]). `RESTS_ON_LEAVING_BASE`: a base that is cold and
/// clean, and at hand, when the block is written over while the base is given up. The last one: a base that goes while the SSD does not say yet
/// that what rests on it came home, and then the power.
pub const RESTING: [u32; 3] = [RESTS_ON_LEAVING_BASE, BASE_DROPPED, BASE_LET_GO_EARLY];

/// Those that only runs can meet in which dirty blocks outgrow the slots: one in thirty does it by itself, here all ([`Plan::always_swell`]).
pub const SWELLING: [u32; 3] = [PACKED_OVERWRITE_UNCOUNTED, VOIDS_TAKE_RESERVE, UNREADABLE_WITH_NEIGHBOURS];

/// Those of writes past a lost SSD, which few runs have; here all ([`Plan::always_lose_ssd`]).
pub const LOSING: [u32; 6] = [
    LOST_GOES_HOME_UNRECORDED,
    PAST_WRITES_NOT_VOID,
    PAST_WRITE_UNRECORDED,
    DEAF_TO_OTHER_SHARDS,
    OLD_GOES_HOME_OVER_RANGE,
    SPOILT_RANGE_NOT_SEARCHED,
];

/// Those of volumes that grow, which one run in ten has; here all ([`Plan::always_grow`]). `CHECKSUMS_COLLIDE`: so it was found as a true one.
pub const GROWING: [u32; 4] = [CUT_BLOCK_CACHED, CUT_EDGE_TRUSTED, GROWTH_IN_ONE_SHARD, CHECKSUMS_COLLIDE];

/// Those of what is said of objects, which one run in five has; here all ([`Plan::always_label`]).
pub const LABELLING: [u32; 6] =
    [POLICY_RAISES_MODE, HIT_ONLY_SERVES_VOID, COLD_DROPS_DIRTY, PINS_TAKE_ALL, POLICIES_OF_PREDECESSOR, OWN_READ_OVERTAKEN];

/// Those of clean stops in slots, and of the starts behind them; all runs have many ([`Plan::always_stop`]).
pub const STOPPING: [u32; 3] = [CLEAN_STOP_UNFLUSHED, STOP_NAMES_TAIL_EARLY, STAYS_CLEAN];

/// Those of what is packed into slots; all runs are about that ([`Plan::always_pack`]).
pub const PACKING: [u32; 5] = [PART_OF_SLOT_PASSED, PAYLOADS_OVERLAP, SLOT_LEFT_WITH_ONE_ALIVE, BASE_UNCHECKED, MOVED_BEFORE_IT_IS_THERE];

/// Those of units that writes keep whole; all runs have them ([`Plan::always_keep_units`]).
pub const UNITS: [u32; 2] = [UNIT_IN_TWO_GROUPS, UNIT_AROUND];

/// Those of what a read brings along; all runs have many such reads ([`Plan::always_read_beside`]).
pub const BESIDE: [u32; 2] = [ALONG_OVERTAKEN, ALONG_OVER_CACHED];

/// Makes a plan one in which this mistake can be found.
pub fn adjust(number: u32, plan: &mut Plan) {
    // Lies about objects make a run one about them: mistakes of other things are looked for without.
    if !LABELLING.contains(&number) {
        *plan = Plan::without_labels(plan.seed);
    }
    if RESTING.contains(&number) {
        plan.always_share();
    }
    if SWELLING.contains(&number) {
        plan.always_swell();
    }
    if LOSING.contains(&number) {
        plan.always_lose_ssd();
    }
    if GROWING.contains(&number) {
        plan.always_grow();
    }
    if LABELLING.contains(&number) {
        plan.always_label();
    }
    if number == PINS_TAKE_ALL {
        plan.always_pin();
    }
    if number == DESTAGE_IN_HELD_RANGE || number == OLD_GOES_HOME_OVER_RANGE {
        plan.always_use_ranges();
    }
    if STOPPING.contains(&number) {
        plan.always_stop();
    }
    if PACKING.contains(&number) {
        plan.always_pack();
    }
    if number == BASE_UNCHECKED {
        plan.always_share();
    }
    if UNITS.contains(&number) {
        plan.always_keep_units();
    }
    if BESIDE.contains(&number) {
        plan.always_read_beside();
    }
    if number == LAST_WORD_UNSAID {
        plan.damage_last_words();
    }
}

/// What is found in a seed's run with the mistake, if the run passes without it.
pub fn finds(number: u32, seed: u64) -> Option<String> {
    let mut plan = Plan::of(seed);
    adjust(number, &mut plan);
    set(number);
    let with = run_caught(&plan, &Engine);
    set(0);
    let failure = with.err()?;
    run_caught(&plan, &Engine).is_ok().then_some(failure.what)
}

/// The count of short sequences until the mistake is found, and what was found. Takes seconds.
pub fn exhaustive_finds(number: u32, threads: usize) -> Option<(u64, String)> {
    [Mode::WriteBack, Mode::WriteThrough].into_iter().find_map(|mode| {
        set(number);
        let (count, wrong) = try_all(Setting { mode, one_by_one: false, depth: 2 }, &Engine, threads, 1);
        set(0);
        wrong.first().map(|example| (count.runs, example.failure.what.clone()))
    })
}

/// Where the search from starting point `start` begins.
fn first_seed(start: u64) -> u64 {
    10_000_000 * (start + 1)
}

/// Seeds from `first` until the mistake is found: a seed counts only if it passes without the mistake.
fn seeds_until_found(number: u32, first: u64, most: u64, threads: usize) -> Option<(u64, String)> {
    let mut at = first;
    while at < first + most {
        set(number);
        let soak =
            Soak { first: at, count: first + most - at, threads, failures_max: 1, twice_every: 0, adjust: &|plan| adjust(number, plan) };
        let totals = soak.run(&Engine);
        set(0);
        let found = totals.found.first()?;
        if let Some(what) = finds(number, found.seed) {
            return Some((found.seed - first + 1, what));
        }
        at = found.seed + 1;
    }
    None
}

/// Looks for one mistake from `starts` starting points, `most` seeds from each.
pub fn hunt(number: u32, what: &'static str, starts: u64, most: u64, threads: usize) -> Verdict {
    let mut verdict = Verdict { number, what, seeds: Vec::new(), found: String::new(), exhaustive_runs: None };
    for start in 0..starts {
        let found = seeds_until_found(number, first_seed(start), most, threads);
        verdict.seeds.push(found.as_ref().map(|(seeds, _)| *seeds));
        if let Some((_, what)) = found
            && verdict.found.is_empty()
        {
            verdict.found = what;
        }
        if verdict.seeds.last() == Some(&None) {
            break;
        }
    }
    if !verdict.killed()
        && let Some((runs, what)) = exhaustive_finds(number, threads)
    {
        (verdict.exhaustive_runs, verdict.found) = (Some(runs), what);
    }
    verdict
}

/// Looks for all of them, telling each verdict as it comes.
pub fn hunt_all(starts: u64, most: impl Fn(u32) -> u64, threads: usize, mut tell: impl FnMut(&Verdict)) -> Vec<Verdict> {
    let one = |Mistake { number, what, .. }: &Mistake| {
        let verdict = hunt(*number, what, starts, most(*number), threads);
        tell(&verdict);
        verdict
    };
    ALL.iter().filter(|mistake| is_met(mistake.number)).map(one).collect()
}
