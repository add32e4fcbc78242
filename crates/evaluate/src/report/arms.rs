//! What the legs of one arm say together, and against the baseline.

use super::summary::{Spread, figure_of, legs_of};
use super::words;
use crate::pairs::{Better, Gain, Pair, Useless, Verdict};
use crate::result::{Arm, CacheFigures, Case, Leg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An arm of a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ArmSummary {
    /// [`Arm::id`].
    pub id: String,
    /// [`Arm::title`].
    pub title: String,
    /// [`Arm::cached`].
    pub cached: bool,
    /// [`Arm::point`].
    pub point: Option<(String, f64)>,
    /// Rounds that have been run.
    pub rounds: Vec<u32>,
    /// All figures of its legs by name, in all rounds; also `mean_us` and `hit_ratio` where they follow from the legs' other parts.
    pub figures: BTreeMap<String, Spread>,
    /// Against the baseline, by figure (`rate`, `mean_us`); none of the baseline itself.
    pub gains: BTreeMap<String, GainSummary>,
    /// Response times by percent (`50` to `99.9`), in microseconds.
    pub percentiles_us: BTreeMap<String, Spread>,
    /// Of what they are.
    pub latency_of: Option<String>,
    /// CPU time for each operation.
    pub cpu: Option<CpuSummary>,
    /// What went to the SSD and to the backing device.
    pub traffic: Option<Traffic>,
    /// Where the measured part begins, in seconds, by round, and why there.
    pub cuts: Vec<(u32, f64, String)>,
    /// What a reader of the figures should know: said by the legs, each sentence once.
    pub notes: Vec<String>,
}

/// A gain against another arm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GainSummary {
    /// The other arm.
    pub against: String,
    /// What the pairs show; none if they cannot be calculated with.
    pub found: Option<Found>,
    /// The verdict, or why there is none: a sentence without a full stop.
    pub words: String,
}

/// What pairs show ([`Gain`]).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Geometric mean.
    pub mean: f64,
    /// Middle one.
    pub median: f64,
    /// Smallest and largest.
    pub range: (f64, f64),
    /// 95 % interval of the mean; none of one pair.
    pub interval: Option<(f64, f64)>,
    /// How many pairs.
    pub pairs: usize,
    /// What may be said of it.
    pub verdict: Verdict,
}

/// CPU time for each operation, in microseconds. An operation is one of what the case counts, or a MiB where it counts bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuSummary {
    /// Of what.
    pub operation: String,
    /// Of hearth's processes, a modelled disk included.
    pub hearth_us: Spread,
    /// Of the whole machine.
    pub machine_us: Spread,
}

/// What the cache moved in the measured part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes written to the SSD, a second.
    pub ssd_written_bytes_s: Option<Spread>,
    /// Bytes written to the SSD for each byte that the host wrote.
    pub ssd_per_host_written: Option<Spread>,
    /// How often a day the whole cache would be written at that rate.
    pub ssd_full_writes_a_day: Option<Spread>,
    /// Bytes read from the backing device, a second.
    pub backing_read_bytes_s: Option<Spread>,
    /// Bytes written to it, a second.
    pub backing_written_bytes_s: Option<Spread>,
    /// Bytes read from and written to it for each byte that the host read or wrote.
    pub backing_per_host: Option<Spread>,
}

/// The figures whose gain is told for every arm, with their good direction.
const GAINS: [(&str, Better); 2] = [("rate", Better::Higher), ("mean_us", Better::Lower)];

/// An arm's summary.
pub fn summary(case: &Case, arm: &Arm, legs: &[Leg]) -> ArmSummary {
    let own: Vec<&Leg> = legs_of(legs, &case.id, &arm.id).collect();
    let spread = |of: &dyn Fn(&Leg) -> Option<f64>| Spread::of(own.iter().filter_map(|leg| Some((leg.round, of(leg)?))));
    let mut names: BTreeSet<&str> = own.iter().flat_map(|leg| leg.figures.keys().map(String::as_str)).collect();
    names.extend(["mean_us", "hit_ratio"]);
    let figures = names.into_iter().filter_map(|name| Some((name.to_string(), spread(&|leg| figure_of(leg, name))?))).collect();
    let percents: BTreeSet<&String> =
        own.iter().filter_map(|leg| leg.latency.as_ref()).flat_map(|latency| latency.percentiles_us.keys()).collect();
    let percentiles_us = percents
        .into_iter()
        .filter_map(|percent| Some((percent.clone(), spread(&|leg| leg.latency.as_ref()?.percentiles_us.get(percent).copied())?)))
        .collect();
    let mut notes: Vec<String> = Vec::new();
    for note in own.iter().flat_map(|leg| &leg.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    ArmSummary {
        id: arm.id.clone(),
        title: arm.title.clone(),
        cached: arm.cached,
        point: arm.point.clone(),
        rounds: own.iter().map(|leg| leg.round).collect(),
        figures,
        gains: gains(case, arm, legs),
        percentiles_us,
        latency_of: own.iter().find_map(|leg| leg.latency.as_ref()).map(|latency| latency.of.clone()),
        cpu: cpu(case, &spread),
        traffic: own.iter().any(|leg| leg.cache.is_some()).then(|| traffic(case, &spread)),
        cuts: own.iter().map(|leg| (leg.round, leg.cut_s, leg.cut_why.clone())).collect(),
        notes,
    }
}

/// The baseline of an arm: the case's first one, or the point of its curve that lies at the same place where arms are points of a quantity. `None` for a baseline.
pub fn baseline_of<'a>(case: &'a Case, arm: &Arm) -> Option<&'a Arm> {
    let first = case.arms.first()?;
    let beside = match (&case.along, &first.point, &arm.point) {
        (Some(_), Some((curve, _)), Some((_, at))) => {
            case.arms.iter().find(|other| other.point.as_ref().is_some_and(|(name, place)| name == curve && place == at)).unwrap_or(first)
        }
        _ => first,
    };
    (beside.id != arm.id).then_some(beside)
}

fn gains(case: &Case, arm: &Arm, legs: &[Leg]) -> BTreeMap<String, GainSummary> {
    let Some(baseline) = baseline_of(case, arm) else { return BTreeMap::new() };
    GAINS
        .iter()
        .filter(|(figure, _)| {
            [&arm.id, &baseline.id].iter().all(|id| legs_of(legs, &case.id, id).any(|leg| figure_of(leg, figure).is_some()))
        })
        .map(|(figure, better)| ((*figure).to_string(), gain(legs, &case.id, &baseline.id, &arm.id, figure, *better)))
        .collect()
}

/// The gain of a figure, from the rounds that both arms have.
pub fn gain(legs: &[Leg], case: &str, against: &str, arm: &str, figure: &str, better: Better) -> GainSummary {
    let of = |arm: &str| -> BTreeMap<u32, f64> {
        legs_of(legs, case, arm).filter_map(|leg| Some((leg.round, figure_of(leg, figure)?))).collect()
    };
    let (baseline, cached) = (of(against), of(arm));
    let pairs: Vec<(u32, Pair)> =
        baseline.iter().filter_map(|(round, baseline)| Some((*round, Pair { baseline: *baseline, cached: *cached.get(round)? }))).collect();
    let found = Gain::of(&pairs.iter().map(|(_, pair)| *pair).collect::<Vec<_>>(), better);
    let (found, words) = match found {
        Ok(gain) => {
            let found = Found {
                mean: gain.mean,
                median: gain.median,
                range: gain.range,
                interval: gain.interval,
                pairs: gain.pairs,
                verdict: gain.verdict(),
            };
            let words = told(&found);
            (Some(found), words)
        }
        Err(Useless::NoPairs) => (None, format!("no round has been run both with {against} and with {arm}")),
        Err(Useless::NotPositive(index)) => {
            (None, format!("no gain can be calculated: the {} of round {} is zero", words::figure_name(figure), pairs[index].0))
        }
    };
    GainSummary { against: against.into(), found, words }
}

/// A gain in words: `better: 2.03 × (95 % interval 1.91–2.15, 5 pairs)`.
fn told(found: &Found) -> String {
    let (verdict, mean) = (words::verdict(found.verdict), words::times(found.mean));
    match found.interval {
        Some(bounds) => format!("{verdict}: {mean} (95 % interval {}, {} pairs)", words::interval(bounds), found.pairs),
        None => format!("{mean}, {verdict}"),
    }
}

type Spreads<'a> = &'a dyn Fn(&dyn Fn(&Leg) -> Option<f64>) -> Option<Spread>;

/// Seconds of the measured part.
fn measured_s(leg: &Leg) -> Option<f64> {
    let by_series = || leg.series.last().map(|second| second.at_s - leg.cut_s);
    Some(leg.cpu.wall_s).filter(|wall_s| *wall_s > 0.0).or_else(by_series).filter(|length_s| *length_s > 0.0)
}

fn cpu(case: &Case, spread: Spreads) -> Option<CpuSummary> {
    let (operation, size) = words::operation(&case.counted);
    let of = |leg: &Leg, cpu_s: f64| {
        let operations = figure_of(leg, "rate")? * leg.cpu.wall_s / size;
        (operations > 0.0).then(|| cpu_s * 1e6 / operations)
    };
    Some(CpuSummary {
        operation,
        hearth_us: spread(&|leg| of(leg, leg.cpu.hearth_s))?,
        machine_us: spread(&|leg| of(leg, leg.cpu.machine_s))?,
    })
}

fn traffic(case: &Case, spread: Spreads) -> Traffic {
    let a_second = |bytes: fn(&CacheFigures) -> u64| spread(&move |leg| Some(bytes(leg.cache.as_ref()?) as f64 / measured_s(leg)?));
    let ratio = |above: fn(&CacheFigures) -> u64, below: fn(&CacheFigures) -> u64| {
        spread(&move |leg| {
            let cache = leg.cache.as_ref()?;
            (below(cache) > 0).then(|| above(cache) as f64 / below(cache) as f64)
        })
    };
    Traffic {
        ssd_written_bytes_s: a_second(|cache| cache.ssd_written_bytes),
        ssd_per_host_written: ratio(|cache| cache.ssd_written_bytes, |cache| cache.host_written_bytes),
        ssd_full_writes_a_day: spread(&|leg| {
            let a_second = leg.cache.as_ref()?.ssd_written_bytes as f64 / measured_s(leg)?;
            (case.cache_bytes > 0).then(|| a_second * 86_400.0 / case.cache_bytes as f64)
        }),
        backing_read_bytes_s: a_second(|cache| cache.backing_read_bytes),
        backing_written_bytes_s: a_second(|cache| cache.backing_written_bytes),
        backing_per_host: ratio(
            |cache| cache.backing_read_bytes + cache.backing_written_bytes,
            |cache| cache.host_read_bytes + cache.host_written_bytes,
        ),
    }
}
