//! What moves: one sample a second of every volume and pool, for the console, `hearth stats --watch`, `hearth top` and the history.

use crate::Health;
use crate::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::Mode;
use utoipa::ToSchema;

/// What happened in one second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Sample {
    /// When it was taken: milliseconds since 1970.
    pub unix_ms: u64,
    /// How long it covers, in milliseconds: about 1000.
    pub span_ms: u64,
    /// By volume.
    pub volumes: BTreeMap<String, VolumeSample>,
    /// By disk beside a cache.
    #[serde(default)]
    pub disks: BTreeMap<String, DiskSample>,
    /// By pool.
    pub pools: BTreeMap<String, PoolSample>,
}

/// A volume in one second. What ends in `_s` is a rate per second over the sample's span.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeSample {
    /// How it is.
    pub health: Health,
    /// What is wrong, if something is.
    #[serde(default)]
    pub problem: Option<String>,
    /// Its mode: "write-through", "write-back", "write-around" or "pass-through".
    #[serde(with = "words::mode")]
    #[schema(value_type = String)]
    pub mode: Mode,
    /// Its pool.
    pub pool: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Read requests.
    pub reads_s: f64,
    /// Write requests.
    pub writes_s: f64,
    /// Bytes read by clients.
    pub read_bytes_s: f64,
    /// Bytes written by clients.
    pub written_bytes_s: f64,
    /// Requests by outcome: "ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through".
    pub outcomes_s: BTreeMap<String, f64>,
    /// Part of the reads that the cache answered, 0 to 1; null in a second without reads.
    pub hit_ratio: Option<f64>,
    /// Latencies by "all", "read", "write" and by outcome ("ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through"); only those
    /// that had requests.
    pub latency: BTreeMap<String, LatencyPoint>,
    /// What a request would take without the cache, in microseconds: the mean of the misses lately; before the first of them, of what bypassed the cache.
    /// Null until the backing device has served anything.
    pub baseline_us: Option<f64>,
    /// Dirty bytes, now; null if unknown.
    pub dirty_bytes: Option<u64>,
    /// Bytes cached on the SSD, now.
    pub cached_bytes: u64,
    /// Bytes cached in RAM, now; many of them are on the SSD too.
    #[serde(default)]
    pub ram_bytes: u64,
    /// Bytes destaged.
    pub destaged_bytes_s: f64,
    /// I/Os of the backing device.
    pub backing_ios_s: f64,
    /// Bytes written to the SSD for this volume.
    pub ssd_written_bytes_s: f64,
    /// Requests or blocks that bypassed the cache, by reason (`types::BypassReason`), of those that were any.
    pub bypassed_s: BTreeMap<String, f64>,
    /// Requests that failed.
    pub errors_s: f64,
    /// What the cache has saved since the daemon's start.
    pub saved: Saved,
    /// How long the requests of [`Self::latency`] took, for the history; it is not sent.
    #[serde(skip)]
    pub durations: BTreeMap<&'static str, Durations>,
}

/// A disk beside a cache in one second. What ends in `_s` is a rate per second over the sample's span.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskSample {
    /// How it is.
    pub health: Health,
    /// What is wrong, if something is.
    #[serde(default)]
    pub problem: Option<String>,
    /// Its pool.
    pub pool: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Read requests.
    pub reads_s: f64,
    /// Write requests.
    pub writes_s: f64,
    /// Bytes read by clients.
    pub read_bytes_s: f64,
    /// Bytes written by clients.
    pub written_bytes_s: f64,
    /// Latencies by "all", "read" and "write"; only those that had requests.
    pub latency: BTreeMap<String, LatencyPoint>,
    /// Requests that failed.
    pub errors_s: f64,
}

/// Latencies of the requests of one second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LatencyPoint {
    /// How many.
    pub count: u64,
    /// Mean, in microseconds; the others likewise.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// What the cache has saved since the daemon's start.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Saved {
    /// I/Os that the backing device did not have to do: read hits, and writes that newer ones replaced before their destage, or that were destaged together.
    pub backing_ios: u64,
    /// Bytes it did not have to move.
    pub backing_bytes: u64,
    /// Seconds that clients did not wait: for each hit, and each write that the SSD took, the mean of the misses lately less what it took. No second counts
    /// for more than the clients had: for one, or for as many as had a request waiting at once, on average.
    pub waiting_s: f64,
}

/// A pool in one second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolSample {
    /// How it is.
    pub health: Health,
    /// Bytes of the SSD it uses.
    pub size_bytes: u64,
    /// Bytes of all volumes cached, now.
    pub cached_bytes: u64,
    /// Dirty bytes of all volumes, now; null if unknown.
    pub dirty_bytes: Option<u64>,
    /// RAM tier in use, bytes.
    pub ram_used_bytes: u64,
    /// RAM of index and policy, bytes.
    pub index_bytes: u64,
    /// Bytes written to the SSD, per second.
    pub ssd_written_bytes_s: f64,
    /// Bytes admitted, per second.
    pub admitted_bytes_s: f64,
    /// Bytes written to the SSD since the daemon's start.
    pub ssd_written_bytes: u64,
    /// Bytes written to the SSD for each byte admitted since the daemon's start; null before anything was.
    pub write_amplification: Option<f64>,
}

/// One second as it is sent to who listens at `/stream`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Hello {
    /// Of the program.
    pub version: String,
    /// Differs for each start of the daemon.
    pub instance: String,
    /// Number of the latest event.
    pub latest_event: u64,
}

/// How long the requests of a second took, as the history keeps it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Durations {
    /// All of them together, in microseconds.
    pub sum_us: f64,
    /// How many by step of the histogram of latencies, of those with any.
    pub steps: Vec<(usize, u64)>,
}
