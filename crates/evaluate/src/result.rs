//! What an evaluation leaves behind: the plan in `evaluation.json` and one file for each leg, in the words that reports, comparisons and other programs read.
//! A leg is one run of one case in one arm; the legs of a round follow each other at once and are compared with each other.

use crate::pairs::Better;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What this code writes and reads; others are refused.
pub const FORMAT: u32 = 1;

/// An evaluation, as it was planned; what came of it is in its legs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Evaluation {
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
    /// What is to be run, in this order.
    pub cases: Vec<Case>,
    /// What was not even begun, and why.
    pub not_measured: Vec<NotMeasured>,
    /// What short looks at the bare devices found.
    #[serde(default)]
    pub probes: Vec<ProbeFound>,
}

/// What a bare device does, found before its first case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProbeFound {
    /// The model set; none if the device is real.
    pub model_set: Option<String>,
    /// Its length in bytes.
    pub data_bytes: u64,
    /// Random reads of 4 KiB, one at a time: a second.
    pub qd1_iops: f64,
    /// The same: mean response in microseconds.
    pub qd1_mean_us: f64,
    /// Random reads of 4 KiB, 32 at a time: a second.
    pub qd32_iops: f64,
    /// Sequential reads: bytes a second.
    pub sequential_bytes_per_s: f64,
}

/// Of one suite or case, that it was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotMeasured {
    /// A suite's name, a case's or a headline's.
    pub what: String,
    /// Why: a sentence.
    pub why: String,
}

/// The machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// As `/proc/cpuinfo` names it.
    pub cpu: String,
    /// Processors that may be used.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel and its release.
    pub kernel: String,
    /// The system, as `/etc/os-release` names it.
    pub system: String,
    /// File system or device below the SSD's file, and the device's model where that can be told.
    pub ssd: String,
    /// As for the SSD: what the backing device is on.
    pub backing: String,
    /// Versions of the programs that make the load, by name.
    pub programs: BTreeMap<String, String>,
}

/// What was asked for on the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Shorter, and fewer pairs.
    pub quick: bool,
    /// Rounds of each case.
    pub pairs: u32,
    /// Times and sizes of a test of the tests: no figure of it says anything.
    #[serde(default)]
    pub toy: bool,
    /// Data of a case in bytes, where it was said.
    pub size_bytes: Option<u64>,
    /// A real backing device.
    pub backing: Option<String>,
    /// A model set for all suites, in place of each one's own.
    pub model: Option<String>,
    /// Where the cache is: a device or a directory for a file.
    pub ssd: Option<String>,
}

/// One test of a suite: the same load on a baseline and on one or more others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its suite's name, a dot, its own: unique.
    pub id: String,
    /// For people.
    pub title: String,
    /// What is done, in a sentence or two.
    pub about: String,
    /// The model set of the backing device; none if it is a real one.
    pub model_set: Option<String>,
    /// Data that the load may touch, in bytes.
    pub data_bytes: u64,
    /// The cache on SSD, in bytes.
    pub cache_bytes: u64,
    /// The RAM tier, in bytes.
    pub ram_bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// The first one is the baseline.
    pub arms: Vec<Arm>,
    /// Which figure of it stands beside which published one.
    pub headlines: Vec<Measured>,
    /// What every leg counts in `rate`: `I/Os`, `transactions`, `bytes`, `queries`.
    pub counted: String,
    /// Seconds that a leg takes, about.
    pub leg_s: f64,
    /// The quantity that differs from arm to arm where arms are points of curves (queue depth).
    #[serde(default)]
    pub along: Option<String>,
    /// The arm with neither disk nor cache, if there is one: what no cache can be faster than on this machine.
    #[serde(default)]
    pub ceiling: Option<Ceiling>,
}

/// See [`Case::ceiling`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ceiling {
    /// [`Arm::id`].
    pub arm: String,
    /// The data are in memory, not on the SSD.
    pub in_memory: bool,
}

/// One way to run a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Arm {
    /// Unique in the case.
    pub id: String,
    /// For people: `no cache`, `write-back`.
    pub title: String,
    /// Whether hearth stands in between.
    pub cached: bool,
    /// Where arms are points of curves: which curve, and where on it ([`Case::along`]).
    #[serde(default)]
    pub point: Option<(String, f64)>,
}

/// Which figure of a case stands for a headline of the catalogue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// [`Headline::id`](crate::catalogue::Headline::id).
    pub headline: String,
    /// The arm.
    pub arm: String,
    /// What it is compared with, if the headline is a gain.
    pub against: Option<String>,
    /// A name in [`Leg::figures`].
    pub figure: String,
    /// Its good direction.
    pub better: Better,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Leg {
    /// [`Case::id`].
    pub case: String,
    /// [`Arm::id`].
    pub arm: String,
    /// From 1 on.
    pub round: u32,
    /// When it began: seconds since 1970.
    pub began_unix_s: u64,
    /// How long all of it took, preparations included.
    pub took_s: f64,
    /// What was done, in this order, so that it can be repeated by hand.
    pub commands: Vec<String>,
    /// Named figures. `rate` (of what the case counts, a second), `mean_us`, and what else the suite's headlines ask for: `double_s`,
    /// `settled_s`, `under_1ms`, `hit_ratio`.
    pub figures: BTreeMap<String, f64>,
    /// Second by second, warm-up included.
    pub series: Vec<Second>,
    /// Where the measured part begins in [`Leg::series`], in seconds.
    pub cut_s: f64,
    /// How that was chosen: a clause.
    pub cut_why: String,
    /// Response times in the measured part, where the load tells them.
    pub latency: Option<Latency>,
    /// What the cache did in the measured part.
    pub cache: Option<CacheFigures>,
    /// CPU seconds in the measured part: of hearth (model included), and of the whole machine.
    pub cpu: Cpu,
    /// What a reader of the figures should know.
    pub notes: Vec<String>,
}

/// One second of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// End of the second, from the begin of the load on.
    pub at_s: f64,
    /// What the case counts, a second.
    pub rate: f64,
    /// Mean response in microseconds, where it is known.
    pub mean_us: Option<f64>,
    /// Share of the reads that the cache answered, where there is one.
    pub hit_ratio: Option<f64>,
}

/// How response times are distributed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Of what: `reads and writes`, `transactions`.
    pub of: String,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// By percent (`50`, `90`, `95`, `99`, `99.9`): microseconds.
    pub percentiles_us: BTreeMap<String, f64>,
    /// Points of the cumulative distribution: microseconds, share of responses up to there (0 to 1), both ascending.
    pub cdf: Vec<(f64, f64)>,
}

/// What the cache did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Reads answered from RAM alone.
    pub hits_ram: u64,
    /// Reads answered from the cache, some of it on the SSD.
    pub hits_ssd: u64,
    /// Reads that needed the backing device.
    pub misses: u64,
    /// Bytes that the load read.
    pub host_read_bytes: u64,
    /// Bytes that it wrote.
    pub host_written_bytes: u64,
    /// Bytes written to the SSD.
    pub ssd_written_bytes: u64,
    /// Bytes read from the backing device.
    pub backing_read_bytes: u64,
    /// Bytes written to it.
    pub backing_written_bytes: u64,
    /// Dirty bytes at the end.
    pub dirty_bytes: u64,
}

impl CacheFigures {
    /// What happened since `before`; what is dirty is so now.
    #[must_use]
    pub fn since(&self, before: &CacheFigures) -> CacheFigures {
        CacheFigures {
            hits_ram: self.hits_ram - before.hits_ram,
            hits_ssd: self.hits_ssd - before.hits_ssd,
            misses: self.misses - before.misses,
            host_read_bytes: self.host_read_bytes - before.host_read_bytes,
            host_written_bytes: self.host_written_bytes - before.host_written_bytes,
            ssd_written_bytes: self.ssd_written_bytes - before.ssd_written_bytes,
            backing_read_bytes: self.backing_read_bytes - before.backing_read_bytes,
            backing_written_bytes: self.backing_written_bytes - before.backing_written_bytes,
            dirty_bytes: self.dirty_bytes,
        }
    }

    /// Share of the reads that RAM and SSD answered; `None` if there was none.
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.hits_ram + self.hits_ssd;
        (hits + self.misses > 0).then(|| hits as f64 / (hits + self.misses) as f64)
    }
}

/// CPU time of the measured part, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// How long the part was.
    pub wall_s: f64,
    /// Of hearth's processes; a modelled disk is one of them.
    pub hearth_s: f64,
    /// All that all processors did.
    pub machine_s: f64,
}
