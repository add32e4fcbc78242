//! Jobs, as people see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Brings dirty data home.
    Destage,
    /// Reads a range into the cache.
    Warm,
    /// Reads what is worth it into the cache: ranges of objects, or of an advice.
    Preload,
    /// Destages, then forgets the volume.
    Remove,
    /// Leaves write-back: destages until nothing is dirty.
    ModeChange,
    /// Compares what a pool's SSD holds with its checksums.
    Check,
    /// Puts a pool on another SSD.
    Replace,
    /// Gives a pool's disks room of its cache, or takes it back.
    DiskRoom,
    /// Looks for the applications of a volume.
    Discover,
}

impl JobKind {
    /// Whether it is the work of a pool, and not of a volume: both may have the same name.
    pub const fn is_of_pool(self) -> bool {
        matches!(self, JobKind::Check | JobKind::Replace | JobKind::DiskRoom)
    }

    /// Whether it is known how much there is to do.
    pub const fn has_total(self) -> bool {
        !matches!(self, JobKind::Discover)
    }

    /// The word in messages: "destage of NAME".
    pub const fn word(self) -> &'static str {
        match self {
            JobKind::Destage => "destage",
            JobKind::Warm => "warm-up",
            JobKind::Preload => "preload",
            JobKind::Remove => "removal",
            JobKind::ModeChange => "mode change",
            JobKind::Check => "check",
            JobKind::Replace => "replacement of the SSD",
            JobKind::DiskRoom => "change of the room for disks",
            JobKind::Discover => "look for applications",
        }
    }
}

/// How far a job is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum JobState {
    /// Under way.
    Running,
    /// All done.
    Done,
    /// Stopped on request; what is done stays done, and asking again goes on.
    Cancelled,
    /// It failed.
    Failed {
        /// Why, and what to do.
        error: crate::error::Cause,
    },
}

/// A job as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub kind: JobKind,
    /// To which volume; of a check: to which pool.
    pub volume: String,
    /// How far it is.
    #[serde(flatten)]
    pub state: JobState,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all, as known now; clients may add to it while it runs. 0: not known, as in a search for applications.
    pub total_bytes: u64,
    /// Bytes per second over the latest seconds.
    pub rate_bytes: u64,
    /// Seconds left at that rate; null while nothing can be said.
    pub left_s: Option<u64>,
    /// Milliseconds since it began, or that it took.
    pub elapsed_ms: u64,
    /// What came of it, as one sentence, where that is not what was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The former name of `summary`, until 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}

/// Body of a warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeWarm {
    /// First byte.
    #[serde(default, deserialize_with = "crate::int64::number")]
    pub start_bytes: u64,
    /// End, exclusive; absent: the volume's end.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    pub end_bytes: Option<u64>,
    /// Most bytes a second that are read; absent: as fast as clients leave room for.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    pub rate_bytes_s: Option<u64>,
}
