//! Cuts a failing run down: to the fewest steps, the shortest requests and the plainest settings that still fail in the same way.
//!
//! The run is recorded, and played again with steps left out: half of them, a quarter, and so on down to single ones (Zeller and
//! Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002). What is kept goes on as it went in the record: requests come
//! at their times, I/Os take as long, faults strike what they struck.

use std::fmt;
use std::rc::Rc;

use crate::course::{Choice, Course, Kind, Record, Script, Step};
use crate::plan::Plan;
use crate::soak::caught;
use crate::system::Builder;
use crate::world::{Failure, Outcome, run_on};

/// Runs at most: a run takes some milliseconds.
const RUNS_MAX: u32 = 3_000;

/// Sectors of a short request: one block.
const SHORT_SECTORS: u32 = 8;

/// A setting: its name, and what makes it plainer.
pub type Setting = (&'static str, fn(&mut Plan));

/// Settings that may be plainer than the seed has them, and how.
pub const SETTINGS: [Setting; 6] = [
    ("one-front", |plan| plan.fronts = 1),
    ("one-shard", |plan| plan.shards = 1),
    ("messages-at-once", |plan| plan.message_ns = 0),
    ("no-content", |plan| plan.content = None),
    ("no-wrong-ssd", |plan| plan.exchange_percent = 0),
    ("no-reads-after-a-restart", |plan| plan.read_all_after_restart = false),
];

/// A shorter run: the steps of a seed that are kept, by their numbers in its record, and the settings that are plainer.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Short {
    /// Numbers of steps, in order; with the sectors of a request that is shorter.
    pub steps: Vec<(usize, Option<u32>)>,
    /// Names from [`SETTINGS`].
    pub settings: Vec<&'static str>,
}

/// What a run is made of.
pub struct Recorded {
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// How it ended.
    pub result: Result<Outcome, Failure>,
    script: Script,
}

/// What is left of a failing run.
pub struct Shrunk {
    /// What is kept.
    pub short: Short,
    /// How that fails.
    pub failure: Failure,
    /// Runs that it took.
    pub runs: u32,
}

/// Why a run cannot be cut down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It does not fail.
    Passes,
    /// It ends in another way when it is played.
    Differs(String),
}

/// Runs a plan and notes its steps.
pub fn record(plan: &Plan, builder: &dyn Builder) -> Recorded {
    let record = Rc::new(Record::default());
    let result = caught(|| run_on(plan, builder, None, Course::recording(record.clone())));
    Recorded { steps: record.steps.borrow().clone(), result, script: record.script() }
}

impl Recorded {
    /// All steps, as they were.
    pub fn all(&self) -> Short {
        Short { steps: (0..self.steps.len()).map(|number| (number, None)).collect(), settings: Vec::new() }
    }

    /// Plays some of the steps. With `watch`, the failure carries the history of that sector.
    pub fn play(&self, plan: &Plan, builder: &dyn Builder, short: &Short, watch: Option<(u16, u64)>) -> Result<Outcome, Failure> {
        let mut plan = plan.clone();
        let plainer = SETTINGS.iter().filter(|(name, _)| short.settings.contains(name));
        plainer.for_each(|(_, change)| change(&mut plan));
        let kept = short.steps.iter().map(|(number, sectors)| (self.steps[*number].choice, *sectors));
        let course = Course::playing(Rc::new(self.script.with(kept)));
        caught(|| run_on(&plan, builder, watch, course))
    }

    /// Cuts it down. `counts` says whether a shorter run that fails is one to go on with: for instance, whether it passes without a
    /// planted mistake.
    pub fn shrink(&self, plan: &Plan, builder: &dyn Builder, counts: &dyn Fn(&Short) -> bool) -> Result<Shrunk, Trouble> {
        let Err(failure) = &self.result else { return Err(Trouble::Passes) };
        let like = likeness(&failure.what);
        let mut search = Search { recorded: self, plan, builder, counts, like, runs: 0, best: Short::default(), failure: failure.clone() };
        if !search.accepts(self.all()) {
            let result = self.play(plan, builder, &self.all(), None);
            return Err(Trouble::Differs(result.err().map_or("it passes".into(), |failure| failure.what)));
        }
        search.leave_out_kinds();
        search.leave_out_steps();
        search.shorten_requests();
        search.make_plainer();
        search.leave_out_steps();
        Ok(Shrunk { short: search.best, failure: search.failure, runs: search.runs })
    }
}

/// What must stay of a failure's words: all but numbers, and not the end, which may list things.
fn likeness(what: &str) -> String {
    what.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}

struct Search<'a> {
    recorded: &'a Recorded,
    plan: &'a Plan,
    builder: &'a dyn Builder,
    counts: &'a dyn Fn(&Short) -> bool,
    like: String,
    runs: u32,
    best: Short,
    failure: Failure,
}

impl Search<'_> {
    /// Tries a shorter run. If it still fails in the same way, it is the best one now.
    fn accepts(&mut self, short: Short) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        match self.recorded.play(self.plan, self.builder, &short, None) {
            Err(failure) if likeness(&failure.what) == self.like && (self.counts)(&short) => {
                (self.best, self.failure) = (short, failure);
                true
            }
            _ => false,
        }
    }

    fn accepts_steps(&mut self, steps: Vec<(usize, Option<u32>)>) -> bool {
        let settings = self.best.settings.clone();
        self.accepts(Short { steps, settings })
    }

    /// All faults of one kind at once, all acts, and so on.
    fn leave_out_kinds(&mut self) {
        let kind = |recorded: &Recorded, number: usize| recorded.steps[number].choice.0;
        let mut kinds: Vec<Kind> = self.best.steps.iter().map(|(number, _)| kind(self.recorded, *number)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for one in kinds {
            let steps = self.best.steps.iter().filter(|(number, _)| kind(self.recorded, *number) != one).copied().collect();
            self.accepts_steps(steps);
        }
    }

    fn leave_out_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let (mut at, before) = (0, self.best.steps.len());
            while at < self.best.steps.len() {
                let mut steps = self.best.steps.clone();
                steps.drain(at..(at + size).min(steps.len()));
                if !self.accepts_steps(steps) {
                    at += size;
                }
            }
            // Single steps again and again, until none can be left out.
            if size > 1 || self.best.steps.len() == before {
                size /= 2;
            }
        }
    }

    fn shorten_requests(&mut self) {
        for index in 0..self.best.steps.len() {
            let (kind, _): Choice = self.recorded.steps[self.best.steps[index].0].choice;
            let mut steps = self.best.steps.clone();
            steps[index].1 = Some(SHORT_SECTORS);
            let is_long = self.recorded.steps[self.best.steps[index].0].sectors > SHORT_SECTORS;
            if matches!(kind, Kind::Request(_)) && is_long {
                self.accepts_steps(steps);
            }
        }
    }

    fn make_plainer(&mut self) {
        for (name, change) in SETTINGS {
            let mut plainer = self.plan.clone();
            change(&mut plainer);
            // What the seed has so already is no choice.
            if format!("{plainer:?}") != format!("{:?}", self.plan) {
                let mut short = self.best.clone();
                short.settings.push(name);
                self.accepts(short);
            }
        }
    }
}

/// As `soak --only` takes it: `3,17:8,44,one-shard`.
impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = |(number, sectors): &(usize, Option<u32>)| match sectors {
            Some(sectors) => format!("{number}:{sectors}"),
            None => number.to_string(),
        };
        let words: Vec<String> = self.steps.iter().map(step).chain(self.settings.iter().map(|name| name.to_string())).collect();
        f.write_str(&words.join(","))
    }
}

impl std::str::FromStr for Short {
    type Err = String;

    fn from_str(text: &str) -> Result<Short, String> {
        let mut short = Short::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if let Some((name, _)) = SETTINGS.iter().find(|(name, _)| *name == word) {
                short.settings.push(name);
                continue;
            }
            let (number, sectors) = word.split_once(':').map_or((word, None), |(number, sectors)| (number, Some(sectors)));
            let bad = |_| format!("{word} is no step and no setting");
            short.steps.push((number.parse().map_err(bad)?, sectors.map(str::parse).transpose().map_err(bad)?));
        }
        Ok(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standin::{Bug, StandIn};

    #[test]
    fn a_short_run_is_written_and_read() {
        let short = Short { steps: vec![(3, None), (17, Some(8))], settings: vec!["one-shard"] };
        assert_eq!(short.to_string(), "3,17:8,one-shard");
        assert_eq!(short.to_string().parse(), Ok(short));
        assert!("3,x".parse::<Short>().is_err());
    }

    #[test]
    fn a_run_that_is_played_with_all_steps_is_the_run() {
        for seed in 0..15 {
            let (plan, builder) = (Plan::of(seed), StandIn(Bug::None));
            let free = crate::soak::run_caught(&plan, &builder).unwrap();
            let recorded = record(&plan, &builder);
            assert_eq!(recorded.result.as_ref().unwrap().trace_hash, free.trace_hash, "seed {seed}: recorded");
            let played = recorded.play(&plan, &builder, &recorded.all(), None).unwrap();
            assert_eq!(played.trace_hash, free.trace_hash, "seed {seed}: played");
            let none = recorded.play(&plan, &builder, &Short::default(), None).unwrap();
            assert_eq!((none.crashes + none.power_cuts, none.acts), (0, plan.volumes.len() as u64), "seed {seed}: nothing but the end");
        }
    }

    #[test]
    fn what_passes_cannot_be_cut_down() {
        let (plan, builder) = (Plan::of(0), StandIn(Bug::None));
        assert_eq!(record(&plan, &builder).shrink(&plan, &builder, &|_| true).err(), Some(Trouble::Passes));
    }

    #[test]
    fn a_bug_of_the_stand_in_needs_few_steps() {
        let builder = StandIn(Bug::FuaIgnored);
        let plan =
            (0..2_000).map(Plan::of).find(|plan| crate::soak::run_caught(plan, &builder).is_err()).expect("found in the harness's test");
        let recorded = record(&plan, &builder);
        let shrunk = recorded.shrink(&plan, &builder, &|_| true).map_err(|trouble| format!("{trouble:?}")).unwrap();
        assert!(shrunk.short.steps.len() <= 4, "{} of {} steps", shrunk.short.steps.len(), recorded.steps.len());
        assert!(recorded.play(&plan, &builder, &shrunk.short, None).is_err());
    }
}
