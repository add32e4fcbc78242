//! All counters at one moment, with whole histograms: what `/metrics` is made of.

use crate::stats::{PoolStats, VolumeStats};
use runtime::Histogram;
use std::collections::BTreeMap;

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By name.
    pub volumes: BTreeMap<String, VolumeFigures>,
    /// By name.
    pub pools: BTreeMap<String, PoolStats>,
}

/// A volume's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct VolumeFigures {
    /// Its counters.
    pub stats: VolumeStats,
    /// Latencies since the daemon's start by outcome: "ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through".
    pub latency: BTreeMap<&'static str, Histogram>,
}
