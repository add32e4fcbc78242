//! The counters of everything at one moment, gathered in one look: what the sampler, the lists and the metrics are made of.

use api::live::Durations;
use api::stats::{PoolStats, VolumeStats};
use runtime::Histogram;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How requests were served: the keys of [`Clients::latency`] beside "read", "write", "flush" and "trim".
pub const OUTCOMES: [&str; 6] = ["ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through"];

/// All counters.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By volume, those that are attached.
    pub volumes: BTreeMap<String, VolumeFigures>,
    /// By disk beside a cache, those that are attached; in the newest figures only.
    pub disks: BTreeMap<String, VolumeFigures>,
    /// By pool, those that run.
    pub pools: BTreeMap<String, PoolStats>,
}

/// A volume's.
#[derive(Clone, Debug, Default)]
pub struct VolumeFigures {
    /// What clients did and what the cache did.
    pub stats: VolumeStats,
    /// What clients saw; shared with earlier figures while no request is answered.
    pub clients: Arc<Clients>,
    /// How long the oldest dirty block has been dirty, in milliseconds (known for 1 MiB extents); `None` if none is.
    pub oldest_dirty_ms: Option<u64>,
    /// What its devices refuse lately.
    pub refused: Option<Refused>,
}

/// What a device refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// "flush", "write" or "read" of the backing device; "dirty_read" of the SSD.
    pub asked: &'static str,
    /// In the kernel's words: "No space left on device (os error 28)".
    pub reason: String,
}

impl Refused {
    /// Dirty data cannot be read from the SSD, so it cannot go home.
    pub fn dirty_data() -> Refused {
        Refused { asked: "dirty_read", reason: "some blocks are damaged or cannot be read".into() }
    }
}

/// What clients saw of a volume since it was attached.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// Requests answered.
    pub requests: u64,
    /// The same as it appears in JSON; what the cache did is not in it.
    pub stats: VolumeStats,
    /// By kind of request ("read", "write", "flush", "trim") and by outcome ([`OUTCOMES`]), in nanoseconds; only those that were any.
    pub latency: BTreeMap<&'static str, Histogram>,
    /// All reads and writes.
    pub all: Histogram,
}

/// What the histogram of a second says.
pub fn durations_of(histogram: &Histogram) -> Durations {
    Durations { sum_us: histogram.sum_ns() as f64 / 1000.0, steps: histogram.steps().collect() }
}

/// Outcomes that the backing device served, in whole or in part.
pub const SERVED_BY_BACKING: [&str; 3] = ["miss", "bypass", "write_through"];

impl Clients {
    /// How long requests took that the backing device served, in whole or in part.
    pub fn backing_waits(&self) -> Histogram {
        let mut waits = Histogram::default();
        SERVED_BY_BACKING.iter().filter_map(|word| self.latency.get(word)).for_each(|served| waits.merge(served));
        waits
    }
}
