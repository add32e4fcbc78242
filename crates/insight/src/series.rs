//! A sample as named numbers: what the history keeps, and what it reports. [`HistoryView`](api::HistoryView) lists the
//! reported names.
//!
//! What cannot be put together from seconds is made anew for each point: a percentile of how many requests took how long (in
//! [steps](runtime::Histogram::steps)), a mean latency of all latencies, a hit rate of all reads.

use ::history::Answer;
use api::{PoolSample, VolumeSample};
use runtime::latency::{LATENCY_STEPS, percentile_of_steps_ns};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Kinds of requests whose latencies are kept. "all" is reads and writes together.
const KINDS: [&str; 8] = ["read", "write", "ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through"];

/// What a kind's series are called.
struct Names {
    /// Mean, median and 99th percentile, as they are told.
    mean: String,
    median: String,
    p99: String,
    /// Microseconds that all requests took together.
    sum: String,
    /// Requests by step.
    steps: Vec<String>,
}

impl Names {
    fn of(kind: &str) -> Names {
        let of = |figure: &str| format!("{kind}_{figure}");
        let steps = (0..LATENCY_STEPS).map(|step| format!("{kind}_step_{step:03}_total")).collect();
        Names { mean: of("mean_us"), median: of("p50_us"), p99: of("p99_us"), sum: of("us_total"), steps }
    }
}

/// By kind.
static NAMES: LazyLock<BTreeMap<&'static str, Names>> =
    LazyLock::new(|| KINDS.into_iter().chain(["all"]).map(|kind| (kind, Names::of(kind))).collect());

/// Outcomes and the series of their rates.
const OUTCOMES: [(&str, &str); 6] = [
    ("ram_hit", "ram_hit_s"),
    ("ssd_hit", "ssd_hit_s"),
    ("miss", "miss_s"),
    ("bypass", "bypass_s"),
    ("write_back", "write_back_s"),
    ("write_through", "write_through_s"),
];

/// The object's name in the history.
pub fn volume_object(name: &str) -> String {
    format!("volume:{name}")
}

/// The object's name in the history.
pub fn pool_object(name: &str) -> String {
    format!("pool:{name}")
}

/// A volume's second. What is not known (the latency of what did not happen) is left out.
pub fn of_volume(sample: &VolumeSample) -> Vec<(&'static str, f64)> {
    let mut values = vec![
        ("reads_s", sample.reads_s),
        ("writes_s", sample.writes_s),
        ("read_bytes_s", sample.read_bytes_s),
        ("written_bytes_s", sample.written_bytes_s),
        ("cached_bytes", sample.cached_bytes as f64),
        ("destaged_bytes_s", sample.destaged_bytes_s),
        ("backing_ios_s", sample.backing_ios_s),
        ("ssd_written_bytes_s", sample.ssd_written_bytes_s),
        ("bypassed_s", sample.bypassed_s.values().sum()),
    ];
    values.extend(sample.dirty_bytes.map(|bytes| ("dirty_bytes", bytes as f64)));
    values.extend(sample.baseline_us.map(|us| ("baseline_us", us)));
    values.extend(OUTCOMES.iter().map(|(outcome, name)| (*name, sample.outcomes_s.get(*outcome).copied().unwrap_or(0.0))));
    for (kind, names) in &*NAMES {
        if let Some(point) = sample.latency.get(*kind) {
            values.extend([(names.median.as_str(), point.p50_us), (names.p99.as_str(), point.p99_us)]);
        }
        if let Some(durations) = sample.durations.get(*kind) {
            values.push((names.sum.as_str(), durations.sum_us));
            values.extend(durations.steps.iter().map(|(step, count)| (names.steps[*step].as_str(), *count as f64)));
        }
    }
    values
}

/// A pool's second.
pub fn of_pool(sample: &PoolSample) -> Vec<(&'static str, f64)> {
    let mut values = vec![
        ("cached_bytes", sample.cached_bytes as f64),
        ("ram_used_bytes", sample.ram_used_bytes as f64),
        ("index_bytes", sample.index_bytes as f64),
        ("ssd_written_bytes_s", sample.ssd_written_bytes_s),
        ("admitted_bytes_s", sample.admitted_bytes_s),
    ];
    values.extend(sample.dirty_bytes.map(|bytes| ("dirty_bytes", bytes as f64)));
    values
}

/// All series a volume can have.
pub fn volume_names() -> Vec<&'static str> {
    let mut names = vec!["reads_s", "writes_s", "read_bytes_s", "written_bytes_s", "hit_ratio", "dirty_bytes", "cached_bytes"];
    names.extend(["destaged_bytes_s", "backing_ios_s", "ssd_written_bytes_s", "bypassed_s", "baseline_us"]);
    names.extend(OUTCOMES.iter().map(|(_, name)| *name));
    names.extend(NAMES.values().flat_map(|names| [names.mean.as_str(), names.median.as_str(), names.p99.as_str()]));
    names
}

/// What the history is asked for so that these series of a volume can be [told].
pub fn kept_for(wanted: &[&str]) -> Vec<String> {
    let mut kept = BTreeSet::new();
    for name in wanted {
        kept.insert((*name).to_string());
        if *name == "hit_ratio" {
            kept.extend(HITS_AND_READS.map(String::from));
        }
        if let Some((kind, _)) = latency_of(name) {
            parts_of(kind).for_each(|part| kept.extend([format!("{part}_step_*"), NAMES[part].sum.clone()]));
        }
    }
    kept.into_iter().collect()
}

/// These series of a volume, of what the history answered.
pub fn told(wanted: &[&str], answer: &Answer) -> BTreeMap<String, Vec<Option<f64>>> {
    let points = answer.series.values().map(Vec::len).max().unwrap_or(0);
    let told = |name: &&str| {
        let values = (0..points).map(|point| match (*name, latency_of(name)) {
            ("hit_ratio", _) => hit_ratio(answer, point),
            (_, Some((kind, figure))) => latency(answer, point, kind, figure),
            (name, None) => known(answer, name, point),
        });
        ((*name).to_string(), values.collect())
    };
    wanted.iter().map(told).collect()
}

/// Reads that the cache answered, and all reads.
const HITS_AND_READS: [&str; 3] = ["ram_hit_s", "ssd_hit_s", "reads_s"];

fn known(answer: &Answer, series: &str, point: usize) -> Option<f64> {
    answer.series.get(series)?.get(point).copied().flatten()
}

/// Part of the reads that the cache answered, of all reads of the point's time.
fn hit_ratio(answer: &Answer, point: usize) -> Option<f64> {
    let [ram_hits, ssd_hits, reads] = HITS_AND_READS.map(|name| known(answer, name, point).unwrap_or(0.0));
    (reads > 0.0).then(|| ((ram_hits + ssd_hits) / reads).min(1.0))
}

/// Which figure of a latency.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Mean,
    PerMille(u32),
}

fn latency_of(series: &str) -> Option<(&'static str, Figure)> {
    NAMES.iter().find_map(|(kind, names)| match series {
        name if name == names.mean => Some((*kind, Figure::Mean)),
        name if name == names.median => Some((*kind, Figure::PerMille(500))),
        name if name == names.p99 => Some((*kind, Figure::PerMille(990))),
        _ => None,
    })
}

/// Kinds that are kept of which one consists.
fn parts_of(kind: &'static str) -> impl Iterator<Item = &'static str> {
    let parts = if kind == "all" { ["read", "write"] } else { [kind, kind] };
    parts.into_iter().take(if kind == "all" { 2 } else { 1 })
}

/// Of all requests of the point's time, in microseconds. Percentiles of a single second are known more exactly than from steps. None where nothing is known,
/// or only the percentiles of seconds, as histories of earlier versions have them.
fn latency(answer: &Answer, point: usize, kind: &'static str, figure: Figure) -> Option<f64> {
    let names = &NAMES[kind];
    match figure {
        Figure::PerMille(per_mille) => {
            let exact = known(answer, if per_mille == 500 { &names.median } else { &names.p99 }, point);
            exact.or_else(|| Some(percentile_of_steps_ns(&steps(answer, point, kind), per_mille)? / 1000.0))
        }
        Figure::Mean => {
            let count: f64 = steps(answer, point, kind).iter().sum();
            let sum_us: f64 = parts_of(kind).filter_map(|part| known(answer, &NAMES[part].sum, point)).sum();
            if count > 0.0 { Some(sum_us / count) } else { known(answer, &names.mean, point) }
        }
    }
}

/// Requests by step.
fn steps(answer: &Answer, point: usize, kind: &'static str) -> Vec<f64> {
    let mut counts = vec![0.0; LATENCY_STEPS];
    for part in parts_of(kind) {
        let first = NAMES[part].steps[0].as_str();
        // Series of one kind's steps lie together in the order of their names.
        let end = format!("{part}_step_~");
        for (name, values) in answer.series.range::<str, _>((std::ops::Bound::Included(first), std::ops::Bound::Excluded(end.as_str()))) {
            let step = name[part.len() + "_step_".len()..].split('_').next().and_then(|digits| digits.parse::<usize>().ok());
            if let (Some(step), Some(Some(count))) = (step.filter(|step| *step < LATENCY_STEPS), values.get(point)) {
                counts[step] += count;
            }
        }
    }
    counts
}

/// All series a pool can have.
pub fn pool_names() -> [&'static str; 6] {
    ["cached_bytes", "dirty_bytes", "ram_used_bytes", "index_bytes", "ssd_written_bytes_s", "admitted_bytes_s"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{Health, Saved};
    use datapath::figures::durations_of;
    use history::{History, HistoryOptions};
    use runtime::Histogram;

    /// A second in which reads took so long: (how many, nanoseconds).
    fn second(reads: &[(u64, u64)], hits: u64) -> VolumeSample {
        let mut histogram = Histogram::default();
        reads.iter().for_each(|(count, ns)| (0..*count).for_each(|_| histogram.record(*ns)));
        let point = crate::sampler::point(&histogram);
        VolumeSample {
            health: Health::Running,
            problem: None,
            mode: types::Mode::WriteBack,
            pool: "p".into(),
            size_bytes: 1 << 30,
            reads_s: histogram.count() as f64,
            writes_s: 0.0,
            read_bytes_s: 0.0,
            written_bytes_s: 0.0,
            outcomes_s: BTreeMap::from([("ram_hit".into(), hits as f64)]),
            hit_ratio: None,
            latency: BTreeMap::from([("read".into(), point), ("all".into(), point)]),
            baseline_us: None,
            dirty_bytes: None,
            cached_bytes: 0,
            ram_bytes: 0,
            destaged_bytes_s: 0.0,
            backing_ios_s: 0.0,
            ssd_written_bytes_s: 0.0,
            bypassed_s: BTreeMap::new(),
            errors_s: 0.0,
            saved: Saved::default(),
            durations: BTreeMap::from([("read", durations_of(&histogram))]),
        }
    }

    fn ask(history: &History, points: usize, series: &[&str]) -> BTreeMap<String, Vec<Option<f64>>> {
        let kept = kept_for(series);
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        told(series, &history.query("v", &kept, FROM_S, FROM_S + 3600, points).expect("it is known"))
    }

    const FROM_S: u64 = 1_700_000_000 / 3600 * 3600;

    /// An hour of a hundred reads a second of 200 µs, one of them a hit; in its last minute one second has a thousand of 325 ms, ten of them hits.
    #[test]
    fn a_long_point_tells_of_all_its_requests() {
        let directory = tempfile::tempdir().expect("a directory");
        let (history, _) = History::open(&directory.path().join("history.db"), HistoryOptions::default()).expect("it opens");
        for at_s in 0..3600 {
            let sample = if at_s == 3599 { second(&[(1000, 325_000_000)], 10) } else { second(&[(100, 200_000)], 1) };
            history.record(FROM_S + at_s, "v", &of_volume(&sample));
        }
        let series = ["hit_ratio", "read_p99_us", "read_p50_us", "read_mean_us", "all_p99_us", "reads_s"];
        let near = |told: Option<f64>, expected: f64| {
            let told = told.expect("it is known");
            assert!((told - expected).abs() <= expected * 0.125, "{told}, not {expected}");
        };
        for (points, known) in [(3600, 3600), (600, 600), (60, 60), (1, 1)] {
            let told = ask(&history, points, &series);
            assert_eq!(told["read_p99_us"].len(), known);
            near(told["read_p99_us"][0], 200.0);
            near(told["all_p99_us"][0], 200.0);
            near(
                told["read_p50_us"][known - 1],
                [325_000.0, 325_000.0, 200.0, 200.0][[3600, 600, 60, 1].iter().position(|n| *n == points).unwrap()],
            );
        }
        let told = ask(&history, 1, &series);
        // 360,900 reads, of which 1000 took 325 ms: 0.28 %, so not the 99th percentile.
        near(told["read_p99_us"][0], 200.0);
        assert!((told["read_mean_us"][0].unwrap() - (359_900.0 * 200.0 + 1000.0 * 325_000.0) / 360_900.0).abs() < 0.1, "{told:?}");
        assert!((told["hit_ratio"][0].unwrap() - 3609.0 / 360_900.0).abs() < 1e-6, "{told:?}");
        // The last minute has 5900 of 200 µs: a sixth and a bit took 325 ms.
        let minutes = ask(&history, 60, &series);
        near(minutes["read_p99_us"][59], 325_000.0);
        assert!((minutes["hit_ratio"][59].unwrap() - 69.0 / 6900.0).abs() < 1e-6);
    }

    #[test]
    fn percentiles_of_seconds_are_not_told_as_those_of_an_hour() {
        let directory = tempfile::tempdir().expect("a directory");
        let (history, _) = History::open(&directory.path().join("history.db"), HistoryOptions::default()).expect("it opens");
        // As earlier versions kept them.
        (0..120).for_each(|at_s| history.record(FROM_S + at_s, "v", &[("read_p99_us", 5.0), ("read_mean_us", 4.0), ("hit_ratio", 1.0)]));
        let told = ask(&history, 60, &["read_p99_us", "read_mean_us", "hit_ratio"]);
        assert_eq!((told["read_p99_us"][0], told["read_mean_us"][0], told["hit_ratio"][0]), (None, Some(4.0), None));
        assert_eq!(ask(&history, 3600, &["read_p99_us"])["read_p99_us"][0], Some(5.0), "of a second it is");
    }
}
