//! Many seeds: runs them on all cores, sums up, and on a failure says how to see it again.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use crate::coverage::Coverage;
use crate::plan::Plan;
use crate::system::Builder;
use crate::world::{Failure, Outcome, run};

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// What was found.
    pub failure: Failure,
}

/// Sums over runs.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Sums of the figures of the same names in [`Outcome`].
    pub sums: Outcome,
    /// Failed seeds, in order, at most as many as were asked for.
    pub found: Vec<Found>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        let sums = &mut self.sums;
        for (mine, theirs) in [
            (&mut sums.requests, outcome.requests),
            (&mut sums.errors, outcome.errors),
            (&mut sums.ios, outcome.ios),
            (&mut sums.flushes, outcome.flushes),
            (&mut sums.crashes, outcome.crashes),
            (&mut sums.power_cuts, outcome.power_cuts),
            (&mut sums.recoveries, outcome.recoveries),
            (&mut sums.crashes_in_blocking, outcome.crashes_in_blocking),
            (&mut sums.clean_stops, outcome.clean_stops),
            (&mut sums.sweeps_read, outcome.sweeps_read),
            (&mut sums.upgrades, outcome.upgrades),
            (&mut sums.upgraded_blocks, outcome.upgraded_blocks),
            (&mut sums.refusals, outcome.refusals),
            (&mut sums.doubted, outcome.doubted),
            (&mut sums.acts, outcome.acts),
            (&mut sums.replacements, outcome.replacements),
            (&mut sums.growths, outcome.growths),
            (&mut sums.labels, outcome.labels),
            (&mut sums.virtual_ns, outcome.virtual_ns),
        ] {
            *mine += theirs;
        }
        for (name, count) in &outcome.events {
            *sums.events.entry(name).or_default() += count;
        }
        for (form, count) in &outcome.stored {
            *sums.stored.entry(form).or_default() += count;
        }
        sums.coverage.add(&outcome.coverage);
    }

    /// The sums as text.
    pub fn text(&self) -> String {
        let sums = &self.sums;
        format!(
            "{} seeds: {} requests ({} answered with an error), {} flushes, {} device I/Os, {} process crashes, {} power cuts \
             ({} of both inside recovery, format or stop), {} recoveries, {} clean stops, {} starts from a sweep, {} logs made slots with {} blocks, {} acts of the operator, \
             {} SSDs replaced, {} growths of volumes, {} sayings about objects, \
             {} refusals of damaged caches, {} sectors in doubt for what an SSD lost, {} virtual hours; events {:?}; blocks stored at \
             ends of lives {:?}",
            self.seeds,
            sums.requests,
            sums.errors,
            sums.flushes,
            sums.ios,
            sums.crashes,
            sums.power_cuts,
            sums.crashes_in_blocking,
            sums.recoveries,
            sums.clean_stops,
            sums.sweeps_read,
            sums.upgrades,
            sums.upgraded_blocks,
            sums.acts,
            sums.replacements,
            sums.growths,
            sums.labels,
            sums.refusals,
            sums.doubted,
            sums.virtual_ns / 3_600_000_000_000,
            sums.events,
            sums.stored,
        )
    }

    /// The fault × phase table of all runs.
    pub fn coverage(&self) -> &Coverage {
        &self.sums.coverage
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// A simulated system runs on this thread.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Panics of simulated systems are findings, not noise: their words and place are kept for the report. All others are told as ever.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if IS_CAUGHT.get() {
                LAST_PANIC.with(|last| *last.borrow_mut() = info.to_string().replace('\n', " "));
            } else {
                told(info);
            }
        }));
    });
}

/// Runs something; a panic of the system (a failed assertion) is a failure like any other.
pub fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    keep_panics_quiet();
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result.unwrap_or_else(|_| {
        let what = LAST_PANIC.with(|last| last.borrow().clone());
        Err(Failure { what, place: None, history: Vec::new() })
    })
}

/// Runs a plan, panics caught.
pub fn run_caught(plan: &Plan, builder: &dyn Builder) -> Result<Outcome, Failure> {
    caught(|| run(plan, builder, None))
}

/// Runs the plan again and watches what failed: gives the story.
pub fn story(plan: &Plan, builder: &dyn Builder, failure: &Failure) -> Vec<String> {
    let place = failure.place.unwrap_or((0, 0));
    match catch_unwind(AssertUnwindSafe(|| run(plan, builder, Some(place)))) {
        Ok(Err(again)) => again.history,
        Ok(Ok(_)) => vec!["the second run did not fail: the run is not deterministic".to_string()],
        Err(_) => vec!["the run panics: run this seed alone to see where".to_string()],
    }
}

/// How much to run.
pub struct Soak<'a> {
    /// First seed.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Threads.
    pub threads: usize,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Every n-th seed is run twice and the traces compared; 0: none.
    pub twice_every: u64,
    /// Changes a seed's plan before it runs.
    pub adjust: &'a (dyn Fn(&mut Plan) + Sync),
}

impl Soak<'_> {
    /// Runs the seeds.
    pub fn run(&self, builder: &(dyn Builder + Sync)) -> Totals {
        let next = AtomicU64::new(self.first);
        let stop = AtomicBool::new(false);
        let totals = Mutex::new(Totals::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.first + self.count {
                            break;
                        }
                        let result = self.one(seed, builder);
                        let mut totals = totals.lock().expect("no thread panics while it holds this");
                        match result {
                            Ok(outcome) => totals.add(&outcome),
                            Err(failure) => totals.found.push(Found { seed, failure }),
                        }
                        if totals.found.len() >= self.failures_max {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let mut totals = totals.into_inner().expect("no thread panics while it holds this");
        totals.found.sort_by_key(|found| found.seed);
        totals
    }

    fn one(&self, seed: u64, builder: &dyn Builder) -> Result<Outcome, Failure> {
        let mut plan = Plan::of(seed);
        (self.adjust)(&mut plan);
        let outcome = run_caught(&plan, builder)?;
        if self.twice_every > 0 && seed.is_multiple_of(self.twice_every) {
            let again = run_caught(&plan, builder)?;
            if again.trace_hash != outcome.trace_hash {
                let what = format!("two runs of one seed differ: {:x}, {:x}", outcome.trace_hash, again.trace_hash);
                return Err(Failure { what, place: None, history: Vec::new() });
            }
        }
        Ok(outcome)
    }
}
