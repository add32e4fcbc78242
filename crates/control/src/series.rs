//! A sample as named numbers: what the history keeps. The names are listed at [`HistoryView`](crate::api::HistoryView).

use crate::api::{PoolSample, VolumeSample};

/// Keys of a sample's latencies, and what their series are called: mean, median, 99th percentile, in microseconds.
const LATENCIES: [(&str, [&str; 3]); 9] = [
    ("all", ["all_mean_us", "all_p50_us", "all_p99_us"]),
    ("read", ["read_mean_us", "read_p50_us", "read_p99_us"]),
    ("write", ["write_mean_us", "write_p50_us", "write_p99_us"]),
    ("ram_hit", ["ram_hit_mean_us", "ram_hit_p50_us", "ram_hit_p99_us"]),
    ("ssd_hit", ["ssd_hit_mean_us", "ssd_hit_p50_us", "ssd_hit_p99_us"]),
    ("miss", ["miss_mean_us", "miss_p50_us", "miss_p99_us"]),
    ("bypass", ["bypass_mean_us", "bypass_p50_us", "bypass_p99_us"]),
    ("write_back", ["write_back_mean_us", "write_back_p50_us", "write_back_p99_us"]),
    ("write_through", ["write_through_mean_us", "write_through_p50_us", "write_through_p99_us"]),
];

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
    values.extend(sample.hit_ratio.map(|ratio| ("hit_ratio", ratio)));
    values.extend(sample.baseline_us.map(|us| ("baseline_us", us)));
    values.extend(OUTCOMES.iter().map(|(outcome, name)| (*name, sample.outcomes_s.get(*outcome).copied().unwrap_or(0.0))));
    for (key, [mean, median, p99]) in LATENCIES {
        if let Some(point) = sample.latency.get(key) {
            values.extend([(mean, point.mean_us), (median, point.p50_us), (p99, point.p99_us)]);
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
    names.extend(LATENCIES.iter().flat_map(|(_, names)| *names));
    names
}

/// All series a pool can have.
pub fn pool_names() -> [&'static str; 6] {
    ["cached_bytes", "dirty_bytes", "ram_used_bytes", "index_bytes", "ssd_written_bytes_s", "admitted_bytes_s"]
}
