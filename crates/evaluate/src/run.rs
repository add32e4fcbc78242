//! An evaluation from its plan to its last leg. What is there already is not run again, so that a run that was stopped can go on.

use crate::catalogue::{self, SUITES};
use crate::load::probe::{self, Probe};
use crate::machine;
use crate::result::{Arm, Case, Evaluation, FORMAT, Leg, NotMeasured, ProbeFound, Settings};
use crate::stage::{Bare, Stage, leftovers};
use crate::store::Store;
use crate::suites::{self, Context, Planning, Scale, Suite};
use crate::tools;
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Suites by name; none means all that need nothing of the user's.
    pub suites: Vec<String>,
    /// How.
    pub settings: Settings,
    /// Where to: a directory that is made, or one of an earlier run with the same settings.
    pub out: PathBuf,
    /// The binary of hearth.
    pub hearth: PathBuf,
    /// For the suite `own`.
    pub own: Option<PathBuf>,
    /// Length of the backing device in bytes, if it is a real one.
    pub backing_bytes: Option<u64>,
}

/// How far it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Legs that are done, and all.
    pub legs: (usize, usize),
    /// What runs now.
    pub what: String,
    /// Seconds left, by how long legs took so far.
    pub left_s: f64,
}

/// Who hears of it.
pub trait Audience {
    /// A leg begins.
    fn progress(&self, progress: &Progress);
    /// Something worth a line.
    fn tell(&self, line: &str);
}

/// The plan: all cases of the suites wanted, and what of the catalogue is left out.
///
/// # Errors
/// If a suite is not known, or the settings make no sense for one.
pub fn plan(wanted: &Wanted) -> Result<(Vec<Case>, Vec<NotMeasured>), Trouble> {
    for name in &wanted.suites {
        if catalogue::suite(name).is_none() {
            let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            return Err(Trouble::Usage(format!("there is no suite \"{name}\"; give some of {}", known.join(", "))));
        }
    }
    let planning = Planning {
        settings: &wanted.settings,
        scale: Scale::of(&wanted.settings),
        own: wanted.own.as_deref(),
        backing_bytes: wanted.backing_bytes,
    };
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    let without = |what: &str, why: &str| NotMeasured { what: what.into(), why: why.into() };
    for known in SUITES {
        let asked = wanted.suites.iter().any(|name| name == known.name);
        if !asked && (!wanted.suites.is_empty() || known.name == "own" && wanted.own.is_none()) {
            left_out.push(without(known.name, "it was not asked for"));
            continue;
        }
        match suites::suite(known.name) {
            Some(suite) => cases.extend(suite.cases(&planning)?),
            None => left_out.push(without(known.name, "this version of hearth cannot run it yet")),
        }
    }
    if cases.iter().any(|case| case.id.starts_with("tpcc.")) && crate::guests::launcher().is_none() {
        left_out.push(without("tpcc.vm", "no launcher of virtual machines was named (HEARTH_LAB)"));
    }
    if let Some(why) = crate::guests::missing().filter(|_| cases.iter().any(|case| case.id.starts_with("many-readers."))) {
        left_out.push(without("many-readers.guests", why));
    }
    if cases.is_empty() {
        return Err(Trouble::Usage("nothing is left to be run; see `hearth evaluate list`".into()));
    }
    Ok((cases, left_out))
}

/// Runs all that is not there yet. `stop` ends it at any time; processes, devices and data of the legs are gone then, results stay.
///
/// # Errors
/// [`Trouble::Stopped`], a baseline that is not plausible, an output directory that cannot be used. A case that fails is no error: it is told of as not
/// measured, and the next one runs.
pub fn run(wanted: &Wanted, stop: &Arc<AtomicBool>, audience: &dyn Audience) -> Result<Evaluation, Trouble> {
    let (cases, left_out) = plan(wanted)?;
    let (store, evaluation) = open(wanted, cases, left_out)?;
    let work = Work::new(&wanted.out)?;
    let stage = Stage::new(&work.0, &wanted.hearth, Arc::clone(stop));
    let tell = |line: &str| audience.tell(line);
    let context =
        Context { stage: &stage, settings: &wanted.settings, scale: Scale::of(&wanted.settings), own: wanted.own.as_deref(), tell: &tell };
    let mut runner = Runner { store, evaluation, context: &context, audience, took: Vec::new() };
    runner.all()?;
    Ok(runner.evaluation)
}

/// The directory of an earlier run goes on if it is one of the same plan.
fn open(wanted: &Wanted, cases: Vec<Case>, left_out: Vec<NotMeasured>) -> Result<(Store, Evaluation), Trouble> {
    if Store::is_one(&wanted.out) {
        let store = Store::open(&wanted.out)?;
        let mut evaluation = store.evaluation()?;
        if evaluation.settings != wanted.settings || evaluation.cases != cases || evaluation.hearth != env!("CARGO_PKG_VERSION") {
            return Err(Trouble::Usage(format!(
                "{} holds an evaluation with other settings; give another --out, or the settings of that one",
                wanted.out.display()
            )));
        }
        // What could not be measured is tried once more.
        evaluation.not_measured = left_out;
        store.plan(&evaluation)?;
        return Ok((store, evaluation));
    }
    let (settings, out) = (&wanted.settings, wanted.out.as_path());
    let parent = out.ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
    let place = |named: &Option<String>| named.as_ref().map_or(parent.to_path_buf(), PathBuf::from);
    let mut machine = machine::describe(&place(&settings.ssd), &place(&settings.backing));
    let suites: Vec<&str> = suites(&cases);
    machine.programs = tools::versions(&Stage::here(&wanted.hearth), &suites);
    machine.programs.insert("hearth".into(), env!("CARGO_PKG_VERSION").into());
    let evaluation = Evaluation {
        format: FORMAT,
        hearth: env!("CARGO_PKG_VERSION").into(),
        began_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        machine,
        settings: settings.clone(),
        cases,
        not_measured: left_out,
        probes: Vec::new(),
    };
    Ok((Store::create(out, &evaluation)?, evaluation))
}

/// The files of the legs; gone with this guard.
struct Work(PathBuf);

impl Work {
    fn new(out: &Path) -> Result<Work, Trouble> {
        let out = std::fs::canonicalize(out).map_err(|error| Trouble::io("find", out, &error))?;
        let place = out.join("work");
        leftovers::clear(&place)?;
        std::fs::create_dir_all(&place).map_err(|error| Trouble::io("make", &place, &error))?;
        Ok(Work(place))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed is named by the next run.
        let _ = leftovers::clear(&self.0);
    }
}

struct Runner<'a> {
    store: Store,
    evaluation: Evaluation,
    context: &'a Context<'a>,
    audience: &'a dyn Audience,
    /// Of legs that were run: planned and real seconds.
    took: Vec<(f64, f64)>,
}

impl Runner<'_> {
    fn all(&mut self) -> Result<(), Trouble> {
        for case in self.evaluation.cases.clone() {
            if self.missing(&case).is_empty() {
                continue;
            }
            match self.case(&case) {
                Ok(()) => {}
                Err(Trouble::Failed(why)) => {
                    self.context.stage.take_commands();
                    self.audience.tell(&format!("{}: {why}", case.id));
                    let what = case.id.clone();
                    self.evaluation.not_measured.push(NotMeasured { what, why });
                    self.store.plan(&self.evaluation)?;
                }
                Err(end) => return Err(end),
            }
        }
        Ok(())
    }

    fn case(&mut self, case: &Case) -> Result<(), Trouble> {
        let name = case.id.split('.').next().unwrap_or_default();
        let suite = suites::suite(name).ok_or_else(|| Trouble::Failed(format!("no suite runs {}", case.id)))?;
        if let Some(tool) = tools::missing(&[name]).first().filter(|tool| !tool.optional) {
            return Err(Trouble::failed(
                format!("{} is not installed", tool.name),
                "`hearth evaluate run --yes` installs what the suites need",
            ));
        }
        self.audience.tell(&format!("{}: making the data", case.id));
        suite.prepare(self.context, case)?;
        // What is done once for all legs is told by each of them as notes of their suite.
        let prepared = self.context.stage.take_commands();
        self.probe(case)?;
        for round in 1..=case.rounds {
            for sitting in sittings(case) {
                self.context.stage.go_on()?;
                if sitting.iter().all(|arm| self.store.leg(&case.id, &arm.id, round).is_some()) {
                    continue;
                }
                self.sitting(suite, case, &sitting, round, &prepared)?;
            }
        }
        Ok(())
    }

    fn sitting(&mut self, suite: &dyn Suite, case: &Case, arms: &[&Arm], round: u32, prepared: &[String]) -> Result<(), Trouble> {
        let names: Vec<&str> = arms.iter().take(1).map(|arm| arm.title.as_str()).collect();
        self.audience.progress(&Progress {
            legs: self.count(),
            what: format!("{}: round {round} of {}, {}", case.title, case.rounds, names.join("")),
            left_s: self.left_s(),
        });
        let begun = Instant::now();
        let legs = suite.legs(self.context, case, arms, round)?;
        self.took.push((case.leg_s * arms.len() as f64, begun.elapsed().as_secs_f64()));
        for mut leg in legs {
            leg.commands.splice(0..0, prepared.iter().cloned());
            self.store.put(&leg)?;
        }
        Ok(())
    }

    /// A short look at the bare device: a model set that does not behave like one, or a page cache in between, would make every figure worthless.
    fn probe(&mut self, case: &Case) -> Result<(), Trouble> {
        let known = |found: &ProbeFound| found.model_set == case.model_set && found.data_bytes == case.data_bytes;
        if self.evaluation.probes.iter().any(known) {
            return Ok(());
        }
        self.audience.tell(&format!("{}: looking whether the bare device is plausible", case.id));
        let bare = Bare::open(self.context.stage, &self.context.backing(case))?;
        let found = Probe::of(Path::new(bare.path()), self.context.stage.stop_flag())?;
        drop(bare);
        self.context.stage.take_commands();
        if let Some(set) = &case.model_set
            && self.context.scale != Scale::Toy
        {
            probe::plausible(set, &found).map_err(|why| {
                Trouble::Usage(format!(
                    "the bare device does not behave like the model set {set}: {why}; let the machine rest, and run the same command again"
                ))
            })?;
        }
        self.evaluation.probes.push(ProbeFound {
            model_set: case.model_set.clone(),
            data_bytes: case.data_bytes,
            qd1_iops: found.qd1_iops,
            qd1_mean_us: found.qd1_mean_us,
            qd32_iops: found.qd32_iops,
            sequential_bytes_per_s: found.sequential_bytes_s,
        });
        self.store.plan(&self.evaluation)
    }

    fn missing(&self, case: &Case) -> Vec<(String, u32)> {
        let rounds = (1..=case.rounds).flat_map(|round| case.arms.iter().map(move |arm| (arm.id.clone(), round)));
        rounds.filter(|(arm, round)| self.store.leg(&case.id, arm, *round).is_none()).collect()
    }

    fn count(&self) -> (usize, usize) {
        let cases = &self.evaluation.cases;
        let all: usize = cases.iter().map(|case| case.arms.len() * case.rounds as usize).sum();
        (all - cases.iter().map(|case| self.missing(case).len()).sum::<usize>(), all)
    }

    /// What is left by plan, times how much longer than planned legs took.
    fn left_s(&self) -> f64 {
        let failed = |case: &Case| self.evaluation.not_measured.iter().any(|not| not.what == case.id);
        let cases = self.evaluation.cases.iter().filter(|case| !failed(case));
        let planned: f64 = cases.map(|case| case.leg_s * self.missing(case).len() as f64).sum();
        let sums = self.took.iter().fold((0.0, 0.0), |sums, took| (sums.0 + took.0, sums.1 + took.1));
        planned * if sums.0 > 0.0 { sums.1 / sums.0 } else { 1.0 }
    }
}

/// Arms that are run in one sitting: points of the same curve together, others alone; in the order of the case.
fn sittings(case: &Case) -> Vec<Vec<&Arm>> {
    let mut sittings: Vec<Vec<&Arm>> = Vec::new();
    for arm in &case.arms {
        let curve = |arm: &Arm| arm.point.as_ref().map(|(curve, _)| curve.clone());
        match sittings.last_mut() {
            Some(last) if arm.point.is_some() && curve(last[0]) == curve(arm) => last.push(arm),
            _ => sittings.push(vec![arm]),
        }
    }
    sittings
}

/// The suites of cases, each once.
pub fn suites(cases: &[Case]) -> Vec<&str> {
    let mut names: Vec<&str> = cases.iter().filter_map(|case| case.id.split('.').next()).collect();
    names.dedup();
    names
}

/// Seconds that a plan takes, about.
pub fn planned_s(cases: &[Case]) -> f64 {
    cases.iter().map(|case| case.leg_s * case.arms.len() as f64 * f64::from(case.rounds)).sum()
}

/// What of a leg is shown while others run.
pub fn line(case: &Case, leg: &Leg) -> String {
    let rate = leg.figures.get("rate").copied().unwrap_or(0.0);
    format!("{} {} {}: {rate:.0} {} a second", case.id, leg.arm, leg.round, case.counted)
}
