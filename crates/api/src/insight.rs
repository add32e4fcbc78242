//! What loads need: analyses, and the advice made of them.

use crate::{Action, AppConnect, ObjectPreload, ObjectQuery, ObjectSet};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request about what loads need; a part of [`Action`].
#[derive(Clone, PartialEq, Debug)]
pub enum InsightAction {
    /// Begins to watch a volume, a device or a trace.
    AnalysisStart(AnalysisStart),
    /// All that is watched.
    AnalysisList,
    /// One analysis, or the watch of a volume.
    AnalysisShow {
        /// Its name.
        name: String,
    },
    /// Ends an analysis; what it found stays.
    AnalysisStop {
        /// Its name.
        name: String,
    },
    /// Forgets an analysis.
    AnalysisForget {
        /// Its name.
        name: String,
    },
    /// Who reads and writes.
    StreamList {
        /// A volume, a pool or an analysis; absent: all.
        name: Option<String>,
    },
    /// The rules for streams.
    StreamRuleList,
    /// One more rule for streams, asked after those of the user that there are.
    StreamRuleAdd(StreamRuleNew),
    /// A rule less.
    StreamRuleRemove {
        /// Its number.
        id: u64,
    },
    /// How much SSD brings which share of hits.
    Advise(AdviceAsk),
    /// Advice that was given.
    AdviceShow {
        /// Its number.
        id: u64,
    },
    /// Makes it so.
    AdviceApply {
        /// Its number.
        id: u64,
        /// Only tells what would change.
        dry_run: bool,
        /// Policies only: nothing is read into the cache.
        no_preload: bool,
    },
    /// Compares a forecast with what came.
    AdviceVerify {
        /// Its number.
        id: u64,
    },
    /// Applications found on volumes.
    ApplicationList {
        /// Of that volume; absent: of all.
        volume: Option<String>,
        /// With what logins to servers tell.
        logins: bool,
    },
    /// Asks the server of an application for its names and sessions from now on.
    ApplicationConnect {
        /// The application's number.
        id: u32,
        /// How.
        connect: AppConnect,
    },
    /// Asks it no more.
    ApplicationDisconnect {
        /// The application's number.
        id: u32,
        /// Its volume, where several have one of that number.
        volume: Option<String>,
    },
    /// Looks for the applications of a volume again.
    ApplicationDiscover {
        /// Which volume.
        volume: String,
    },
    /// Tables, indexes, logs.
    ObjectList(ObjectQuery),
    /// A policy for objects.
    ObjectSet(ObjectSet),
    /// Reads objects into the cache.
    ObjectPreload(ObjectPreload),
}

impl From<InsightAction> for Action {
    fn from(action: InsightAction) -> Action {
        Action::Insight(action)
    }
}

/// Body of an analysis' start: exactly one of `volume`, `device` and `trace`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalysisStart {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// The volume to watch.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub volume: Option<String>,
    /// Absolute path of a block device to watch from outside; nothing is written to it.
    #[serde(default)]
    #[schema(pattern = "^/[^\\x00]*$")]
    pub device: Option<String>,
    /// Absolute path of a recorded trace.
    #[serde(default)]
    #[schema(pattern = "^/[^\\x00]*$")]
    pub trace: Option<String>,
    /// It ends by itself after so many milliseconds; absent: when it is stopped.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    #[schema(minimum = 1000, maximum = 2678400000i64)]
    pub for_ms: Option<u64>,
    /// How a device is watched: "auto", "bpf" or "tracefs".
    #[serde(default)]
    #[schema(pattern = "^(auto|bpf|tracefs)$")]
    pub tap: Option<String>,
    /// A device is not read for names of databases and tables; it is not even opened then.
    #[serde(default)]
    pub no_read: bool,
    /// How writes act on the cache that is asked for: "write-through", "write-back" or "write-around". Absent: as the volume does; of others,
    /// write-through.
    #[serde(default)]
    #[schema(pattern = "^(write-through|write-back|write-around)$")]
    pub mode: Option<String>,
}

/// An analysis, or a volume that is watched as long as it is there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AnalysisView {
    /// Its name; of a volume that is always watched, the volume's.
    pub name: String,
    /// "volume", "device" or "trace".
    pub source: String,
    /// The volume's name, the device's or the file's path.
    pub of: String,
    /// It was begun by name; otherwise it is the watch that every volume has.
    pub named: bool,
    /// "watching", "reading", "ended" or "failed".
    pub state: String,
    /// Why it failed.
    pub problem: Option<String>,
    /// How a device is watched: "bpf" or "tracefs".
    pub tap: Option<String>,
    /// How writes act on the cache that is asked for.
    pub mode: String,
    /// How long it has watched, in milliseconds.
    pub window_ms: u64,
    /// When it began to watch, in seconds since 1970; absent: a trace.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
    /// How much of the time since then it did not watch, in milliseconds, and which is no part of `window_ms`: the daemon did not run, or what it
    /// watches was not there.
    #[serde(default)]
    pub away_ms: u64,
    /// Bytes read, but for scans and backups.
    pub read_bytes: u64,
    /// Bytes read by scans and backups.
    pub scanned_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes of different blocks that were read or written, but for scans and backups; estimated.
    pub touched_bytes: u64,
    /// Share of the blocks that is sampled, from 0 to 1.
    pub sampled_share: f64,
    /// Requests that could not be looked at, for want of room.
    pub lost_requests: u64,
    /// Memory it may take, in bytes.
    pub memory_bytes: u64,
    /// Who read and wrote, by kind.
    pub streams: Vec<StreamView>,
}

/// Requests of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StreamView {
    /// The volume or analysis.
    pub of: String,
    /// "application", "scan", "backup", "log", "replication" or "maintenance".
    pub class: String,
    /// How that is known, in words.
    pub evidence: String,
    /// Who sends them, as far as that is visible: the name of a process, or what a rule fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Requests that were looked at: writes, and reads that the cache did not answer.
    pub requests: u64,
    /// Bytes they read, past the cache: what it answered alone is in none of these figures.
    pub read_bytes: u64,
    /// Bytes they wrote.
    pub written_bytes: u64,
    /// Milliseconds since the last of them.
    pub idle_ms: u64,
}

/// A rule for streams to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamRuleNew {
    /// What it looks at: "process", "session", "client" or "cgroup".
    #[schema(pattern = "^(process|session|client|cgroup)$")]
    pub subject: String,
    /// What that must be: a process's or thread's name, a session's program, a client's address, a control group's path. A `*` at the end stands
    /// for anything.
    #[schema(min_length = 1, max_length = 256)]
    pub pattern: String,
    /// The class that such requests get: "application", "scan", "backup", "replication" or "maintenance".
    #[schema(pattern = "^(application|scan|backup|replication|maintenance)$")]
    pub class: String,
}

/// A rule for streams.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StreamRuleView {
    /// Its number; those that come with hearth have none, and are asked last.
    pub id: Option<u64>,
    /// What it looks at: "process", "session", "client" or "cgroup".
    pub subject: String,
    /// What that must be; a `*` at the end stands for anything.
    pub pattern: String,
    /// The class that such requests get.
    pub class: String,
}

/// The rules for streams, in the order in which they are asked; the first that fits holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StreamRules {
    /// The rules.
    pub rules: Vec<StreamRuleView>,
    /// Why processes cannot be seen on some volumes, a sentence for each.
    pub unseen: Vec<String>,
}

/// What advice is asked for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdviceAsk {
    /// An analysis, a volume, or a pool (then all of its volumes); absent: everything that is watched.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: Option<String>,
    /// Shares of hits to reach, in percent; absent: 50, 90 and 99.
    #[serde(default)]
    #[schema(max_items = 8)]
    pub targets_percent: Vec<f64>,
    /// Bytes of SSD to judge; absent: those of the volume's pool.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    #[schema(minimum = 1, maximum = 9223372036854775807i64)]
    pub budget_bytes: Option<u64>,
    /// Scans and backups are let into the cache.
    #[serde(default)]
    pub with_backups: bool,
}

/// Advice for one load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdviceView {
    /// Its number.
    pub id: u64,
    /// The analysis or volume it is for.
    pub name: String,
    /// The volume's pool.
    pub pool: Option<String>,
    /// How long was watched, in milliseconds.
    pub window_ms: u64,
    /// Scans and backups are let into the cache.
    pub with_backups: bool,
    /// Bytes read by scans and backups in that time.
    pub scanned_bytes: u64,
    /// How much SSD brings which share of hits.
    pub targets: Vec<TargetView>,
    /// Hits by SSD, smallest first; empty while no forecast is possible.
    pub curve: Vec<AdvicePoint>,
    /// What the SSD that there is (or the one that was asked about) brings.
    pub now: Option<AdvicePoint>,
    /// What more SSD would bring.
    pub more: Vec<AdvicePoint>,
    /// RAM tier beside that SSD, in bytes.
    pub ram_bytes: u64,
    /// Bytes of clients that a byte of SSD holds, statements about blocks and content taken into account.
    pub stored_share: f64,
    /// How much content locality saves: 1.4 is "holds 1.4 times as much"; absent: not measured on this volume.
    pub content_factor: Option<f64>,
    /// What a read takes that RAM answers, in microseconds; measured.
    pub ram_us: Option<f64>,
    /// That the SSD answers.
    pub ssd_us: Option<f64>,
    /// That the backing device answers.
    pub backing_us: Option<f64>,
    /// Which objects bring the hits of the target that is nearest to 90 %, those that bring most first; at most 32.
    #[serde(default)]
    pub objects: Vec<AdviceObject>,
    /// What to make of it, one sentence each.
    pub sentences: Vec<String>,
}

/// What an advice comes to when it is applied.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdviceApplied {
    /// The advice's number.
    pub id: u64,
    /// The volume.
    pub volume: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// What changes, one sentence each.
    pub changes: Vec<String>,
    /// What a person has to do, such as to buy an SSD.
    pub to_do: Vec<String>,
    /// What is read into the cache; absent: nothing.
    pub preload: Option<super::PreloadView>,
}

/// A forecast against what came.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdviceVerified {
    /// The advice's number.
    pub id: u64,
    /// The volume.
    pub volume: String,
    /// Milliseconds since the advice was given, or applied.
    pub window_ms: u64,
    /// Forecast hits with the present SSD, in percent of the reads of blocks used before; absent if the advice has no such forecast.
    pub forecast_percent: Option<f64>,
    /// Lower end of its band.
    pub forecast_percent_low: Option<f64>,
    /// Upper end.
    pub forecast_percent_high: Option<f64>,
    /// The share that came; absent: too little was read since.
    pub measured_percent: Option<f64>,
    /// By how many points the forecast was too high; negative: too low.
    pub error_points: Option<f64>,
    /// What to make of it, one sentence each.
    pub sentences: Vec<String>,
}

/// What one object brings.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdviceObject {
    /// Its volume, in the advice for a pool; absent: the one that the advice is for.
    #[serde(default)]
    pub volume: Option<String>,
    /// Its number on its volume; absent: all blocks of which nothing is known.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its share of all hits, in percent.
    pub hits_percent: f64,
    /// Its share of all reads, in percent.
    pub reads_percent: f64,
    /// What it takes of the SSD, in bytes.
    pub ssd_bytes: u64,
    /// "cache", or "never": it is read much, and hardly anything of it twice while it would be cached.
    pub advice: String,
}

/// How much SSD a share of hits takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TargetView {
    /// The share, in percent of the reads of blocks that were used before.
    pub hits_percent: f64,
    /// SSD to buy, in bytes; 0: the RAM tier alone does it; absent: not known yet.
    pub ssd_bytes: Option<u64>,
    /// Lower end of its band: the truth lies within it 19 times of 20.
    pub ssd_bytes_low: Option<u64>,
    /// Upper end.
    pub ssd_bytes_high: Option<u64>,
    /// What a read takes then, in microseconds.
    pub read_us: Option<f64>,
    /// Written to the SSD in a day.
    pub ssd_written_bytes_per_day: Option<u64>,
    /// Why it is not known yet, in words.
    pub not_yet: Option<String>,
    /// About how much longer it takes until it is known, in milliseconds; absent: unknown.
    pub more_ms: Option<u64>,
}

/// Hits at some size.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AdvicePoint {
    /// Of SSD.
    pub ssd_bytes: u64,
    /// Share of the reads of blocks that were used before, in percent.
    pub hits_percent: f64,
    /// Lower end of its band.
    pub hits_percent_low: f64,
    /// Upper end.
    pub hits_percent_high: f64,
    /// What a read takes then, in microseconds; absent: unknown.
    #[serde(default)]
    pub read_us: Option<f64>,
    /// Written to the SSD in a day.
    #[serde(default)]
    pub ssd_written_bytes_per_day: Option<u64>,
}
