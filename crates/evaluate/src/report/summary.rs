//! What an evaluation says, as numbers and words: from the plan and the legs, and nothing else. It is the JSON report, and all other forms are made of it.

use super::arms::{self, ArmSummary};
use super::headlines::{self, HeadlineSummary};
use super::prices::{self, Cost, Prices};
use super::words;
use crate::catalogue::SUITES;
use crate::result::{Case, Ceiling, Evaluation, Leg, Machine, Measured, NotMeasured, Settings};
use crate::store::Kept;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of the JSON report.
pub const FORMAT: u32 = 1;

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of hearth that was tried.
    pub hearth: String,
    /// When it began: seconds since 1970.
    pub began_unix_s: u64,
    /// Where it ran.
    pub machine: Machine,
    /// As it was asked for.
    pub settings: Settings,
    /// What a reader has to know before the first figure.
    pub warnings: Vec<String>,
    /// Every headline of the catalogue; one that several cases measure is here once for each.
    pub headlines: Vec<HeadlineSummary>,
    /// All cases of the plan, in its order.
    pub cases: Vec<CaseSummary>,
    /// What a tpmC and a gain cost, where prices were given.
    pub cost: Cost,
    /// What there is no figure of, and why.
    pub not_measured: Vec<NotMeasured>,
}

/// A case and what came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CaseSummary {
    /// The suite it belongs to.
    pub suite: String,
    /// [`Case::id`].
    pub id: String,
    /// [`Case::title`].
    pub title: String,
    /// [`Case::about`].
    pub about: String,
    /// [`Case::model_set`].
    pub model_set: Option<String>,
    /// [`Case::data_bytes`].
    pub data_bytes: u64,
    /// [`Case::cache_bytes`].
    pub cache_bytes: u64,
    /// [`Case::ram_bytes`].
    pub ram_bytes: u64,
    /// [`Case::rounds`].
    pub rounds: u32,
    /// [`Case::counted`].
    pub counted: String,
    /// [`Case::along`].
    pub along: Option<String>,
    /// [`Case::ceiling`].
    #[serde(default)]
    pub ceiling: Option<Ceiling>,
    /// [`Case::headlines`].
    pub headlines: Vec<Measured>,
    /// What came of each arm, in the plan's order.
    pub arms: Vec<ArmSummary>,
}

/// A figure in all its rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// By round.
    pub by_round: BTreeMap<u32, f64>,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; what is no number is left out. `None` if nothing is left.
    pub fn of(values: impl IntoIterator<Item = (u32, f64)>) -> Option<Spread> {
        let by_round: BTreeMap<u32, f64> = values.into_iter().filter(|(_, value)| value.is_finite()).collect();
        let mut sorted: Vec<f64> = by_round.values().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Some(Spread { by_round, median, min, max })
    }

    /// The median, and from where to where the rounds lie if they differ: `158 (150–163)`.
    pub fn told(&self, tell: impl Fn(f64) -> String) -> String {
        let median = tell(self.median);
        if self.by_round.len() < 2 { median } else { format!("{median} ({}–{})", tell(self.min), tell(self.max)) }
    }
}

impl Summary {
    /// Of all that a directory holds.
    pub fn of(kept: &Kept, prices: Option<&Prices>) -> Summary {
        let mut summary = summarize(&kept.evaluation, &kept.legs, prices);
        summary.not_measured.extend(kept.damaged.iter().cloned());
        summary
    }

    /// The case of that name.
    pub fn case(&self, id: &str) -> Option<&CaseSummary> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Suites of the catalogue that have a case here, in its order; then those that it does not know.
    pub fn suites(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            SUITES.iter().map(|suite| suite.name).filter(|name| self.cases.iter().any(|case| case.suite == *name)).collect();
        for case in &self.cases {
            if !names.contains(&case.suite.as_str()) {
                names.push(&case.suite);
            }
        }
        names
    }
}

impl CaseSummary {
    /// The arm of that name.
    pub fn arm(&self, id: &str) -> Option<&ArmSummary> {
        self.arms.iter().find(|arm| arm.id == id)
    }
}

/// The summary of a plan and of what has been run of it.
pub fn summarize(evaluation: &Evaluation, legs: &[Leg], prices: Option<&Prices>) -> Summary {
    let cases: Vec<CaseSummary> = evaluation.cases.iter().map(|case| case_summary(case, legs)).collect();
    let mut not_measured = evaluation.not_measured.clone();
    not_measured.extend(evaluation.cases.iter().zip(&cases).flat_map(|(case, summary)| missing_legs(case, summary)));
    let headlines = headlines::all(evaluation, &cases, legs);
    for headline in headlines.iter().filter(|headline| headline.ours.is_none()) {
        if !not_measured.iter().any(|known| known.what == headline.id) {
            not_measured.push(NotMeasured { what: headline.id.clone(), why: headline.words.clone() });
        }
    }
    Summary {
        format: FORMAT,
        hearth: evaluation.hearth.clone(),
        began_unix_s: evaluation.began_unix_s,
        machine: evaluation.machine.clone(),
        settings: evaluation.settings.clone(),
        warnings: warnings(&evaluation.settings, &cases),
        headlines,
        cost: prices::cost(&cases, legs, prices),
        cases,
        not_measured,
    }
}

fn case_summary(case: &Case, legs: &[Leg]) -> CaseSummary {
    CaseSummary {
        suite: suite_of(&case.id).into(),
        id: case.id.clone(),
        title: case.title.clone(),
        about: case.about.clone(),
        model_set: case.model_set.clone(),
        data_bytes: case.data_bytes,
        cache_bytes: case.cache_bytes,
        ram_bytes: case.ram_bytes,
        rounds: case.rounds,
        counted: case.counted.clone(),
        along: case.along.clone(),
        ceiling: case.ceiling.clone(),
        headlines: case.headlines.clone(),
        arms: case.arms.iter().map(|arm| arms::summary(case, arm, legs)).collect(),
    }
}

/// The suite in a case's name.
pub fn suite_of(case: &str) -> &str {
    case.split_once('.').map_or(case, |(suite, _)| suite)
}

/// Legs that the plan has and the directory has not: one line for each arm.
fn missing_legs(case: &Case, summary: &CaseSummary) -> Vec<NotMeasured> {
    let mut missing = Vec::new();
    for arm in &summary.arms {
        let rounds: Vec<String> = (1..=case.rounds).filter(|round| !arm.rounds.contains(round)).map(|round| round.to_string()).collect();
        if !rounds.is_empty() {
            let what = format!("{} {}", case.id, arm.id);
            let plural = if rounds.len() == 1 { "round" } else { "rounds" };
            let why = format!(
                "{plural} {} of {} planned: no result is there; the same run command goes on with it",
                rounds.join(", "),
                case.rounds
            );
            missing.push(NotMeasured { what, why });
        }
    }
    missing
}

fn warnings(settings: &Settings, cases: &[CaseSummary]) -> Vec<String> {
    let mut warnings = Vec::new();
    if settings.toy {
        warnings.push(
            "TOY SIZES: this was a test of the tests. Times and sizes are far too small; no figure here says anything about hearth.".into(),
        );
    }
    if settings.quick {
        warnings.push("QUICK RUN: runs were shorter and pairs fewer than a full evaluation has; caches may not have been warm. Take the figures as a first look.".into());
    }
    if cases.iter().any(|case| case.rounds == 1) {
        let one: Vec<&str> = cases.iter().filter(|case| case.rounds == 1).map(|case| case.id.as_str()).collect();
        let named = if one.len() > 4 { format!("{} cases", one.len()) } else { one.join(", ") };
        warnings.push(format!("ONE PAIR ONLY in {named}: how much runs differ by themselves is not known there, and nothing is claimed."));
    }
    let mut sets: Vec<&str> = cases.iter().filter_map(|case| case.model_set.as_deref()).collect();
    sets.sort_unstable();
    sets.dedup();
    if !sets.is_empty() {
        let (what, models) = if sets.len() == 1 { ("the model set", "a modelled disk") } else { ("the model sets", "modelled disks") };
        warnings.push(format!("The backing storage is {models} ({what} {}), not a real one; each figure names it.", sets.join(", ")));
    }
    warnings
}

/// A named figure of a leg, also where it follows from the leg's other parts.
pub fn figure_of(leg: &Leg, name: &str) -> Option<f64> {
    let derived = || match name {
        "mean_us" => leg.latency.as_ref().map(|latency| latency.mean_us),
        "hit_ratio" => leg.cache.as_ref().and_then(crate::result::CacheFigures::hit_ratio),
        _ => None,
    };
    leg.figures.get(name).copied().or_else(derived).filter(|value| value.is_finite())
}

/// Legs of an arm by round.
pub fn legs_of<'a>(legs: &'a [Leg], case: &'a str, arm: &'a str) -> impl Iterator<Item = &'a Leg> {
    legs.iter().filter(move |leg| leg.case == case && leg.arm == arm)
}

/// As the machine is told in one line.
pub fn machine_line(machine: &Machine) -> String {
    let memory = words::bytes(machine.memory_bytes as f64);
    format!("{}, {} processors, {memory} of memory, {}, {}", machine.cpu, machine.cpus, machine.kernel, machine.system)
}
