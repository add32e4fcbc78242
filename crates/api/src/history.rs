//! What was.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Series over time. The series of a volume: `reads_s`, `writes_s`, `read_bytes_s`, `written_bytes_s`, `hit_ratio`, `dirty_bytes`, `cached_bytes`,
/// `destaged_bytes_s`, `backing_ios_s`, `ssd_written_bytes_s`, `bypassed_s`, `baseline_us`, `OUTCOME_s` for each outcome, and `KEY_mean_us`,
/// `KEY_p50_us` and `KEY_p99_us` for each KEY of `VolumeSample::latency`. Of a pool: `cached_bytes`, `dirty_bytes`, `ram_used_bytes`,
/// `index_bytes`, `ssd_written_bytes_s`, `admitted_bytes_s`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// Seconds between points: 1, 60, 3600, or a multiple of them.
    pub step_s: u64,
    /// Time of the first point: seconds since 1970, a multiple of `step_s`.
    pub from_unix_s: u64,
    /// By name, one value a point; null where nothing is known (no sample, or no request of that kind). Means over the step. `hit_ratio`
    /// and latencies (`_mean_us`, `_p50_us`, `_p99_us`) are those of all requests of the step; the percentiles are null for times at which an earlier version kept
    /// only those of each second.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

/// Which series of which object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryQuery {
    /// A volume (or else a pool).
    pub name: String,
    /// Comma-separated names of series.
    pub series: String,
    /// Seconds since 1970.
    pub from_unix_s: u64,
    /// Seconds since 1970, exclusive.
    pub to_unix_s: u64,
    /// At most so many points (1 to 5000); the step grows accordingly.
    #[serde(default)]
    pub points: Option<u32>,
}
