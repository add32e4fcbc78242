//! Every request of the management API is one [`Action`]. Pools, volumes and the daemon itself, as requests set and answers show them.

use crate::options::{Options, OptionsPatch};
use crate::stats::{ContentStats, PoolStats, SlotStats, VolumeStats, WriteStreams};
use crate::words::{self, Export, OnRestart};
use crate::{DeviceExamine, DiskCreate, DiskSet, HistoryQuery, InsightAction, JobView, PoolImport, ShareAdd, ShareView, VolumeWarm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use targets::Protocol;
use types::Content;
use utoipa::ToSchema;
use uuid::Uuid;

/// What all paths begin with.
pub const PREFIX: &str = "/api/v1";

/// One management request.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// What the daemon is.
    Daemon,
    /// Formats an SSD.
    PoolCreate(PoolCreate),
    /// All pools.
    PoolList,
    /// One pool.
    PoolShow {
        /// Its name.
        name: String,
    },
    /// Changes options while I/O runs.
    PoolSet {
        /// Its name.
        name: String,
        /// What is to change.
        set: PoolSet,
    },
    /// Puts the pool on another SSD; its volumes stay what they are.
    PoolReplace {
        /// Its name.
        name: String,
        /// Where to.
        replace: PoolReplace,
    },
    /// Starts a pool that is not running, or that runs without its SSD.
    PoolStart {
        /// Its name.
        name: String,
    },
    /// Wipes the SSD's superblock and forgets the pool.
    PoolDestroy {
        /// Its name.
        name: String,
        /// Also remove its volumes and lose their dirty data.
        force: bool,
    },
    /// Creates an accelerated volume.
    VolumeAdd(VolumeAdd),
    /// Attaches a volume to a mapped device in use.
    Attach(Attach),
    /// Gives such a device what it lay on before, and removes the volume.
    Detach {
        /// The volume's name.
        name: String,
    },
    /// All volumes.
    VolumeList,
    /// One volume.
    VolumeShow {
        /// Its name.
        name: String,
    },
    /// Changes options while I/O runs. Leaving write-back is a job.
    VolumeSet {
        /// Its name.
        name: String,
        /// What is to change.
        set: VolumeSet,
    },
    /// Gives an unused volume another name.
    VolumeRename {
        /// Its name.
        name: String,
        /// The new one.
        to: String,
    },
    /// Starts a volume that was stopped, or whose backing device was not as it must be.
    VolumeStart {
        /// Its name.
        name: String,
    },
    /// Takes a volume's exports back and lets its backing device go; what is cached of it stays.
    VolumeStop {
        /// Its name.
        name: String,
        /// Also if its backing device does not answer: what waits for that fails.
        give_up: bool,
        /// Also if its backing file was deleted meanwhile, and what it holds is lost by that.
        force: bool,
    },
    /// Drops what is cached clean of a volume.
    VolumeDropCache {
        /// Its name.
        name: String,
    },
    /// Serves a volume with the size that its backing device has grown to.
    VolumeGrow {
        /// Its name.
        name: String,
    },
    /// Brings all dirty data home; a job.
    VolumeDestage {
        /// Its name.
        name: String,
    },
    /// Reads a range into the cache; a job.
    VolumeWarm {
        /// Its name.
        name: String,
        /// Which part.
        warm: VolumeWarm,
    },
    /// Destages and forgets the volume; a job.
    VolumeRemove {
        /// Its name.
        name: String,
        /// Lose the dirty data instead of destaging it.
        drop_dirty: bool,
    },
    /// Offers a volume to other machines.
    ShareAdd {
        /// The volume's name.
        volume: String,
        /// How.
        add: ShareAdd,
    },
    /// All shares.
    ShareList,
    /// One share.
    ShareShow {
        /// The volume's name.
        volume: String,
        /// Which of its shares.
        protocol: Protocol,
    },
    /// Takes the offer away.
    ShareRemove {
        /// The volume's name.
        volume: String,
        /// Which of its shares.
        protocol: Protocol,
        /// Also while initiators are connected.
        force: bool,
    },
    /// Makes a disk beside a pool's cache; a job if the cache has to give room.
    DiskCreate(DiskCreate),
    /// All disks.
    DiskList,
    /// One disk.
    DiskShow {
        /// Its name.
        name: String,
    },
    /// Changes a disk's size, or its exports.
    DiskSet {
        /// Its name.
        name: String,
        /// To what.
        set: DiskSet,
    },
    /// Removes a disk and its content.
    DiskRemove {
        /// Its name.
        name: String,
        /// The person has said that its content may be lost.
        lose_content: bool,
    },
    /// What an SSD holds, and what its pool would be here; changes nothing.
    PoolLook(PoolImport),
    /// The pool of an SSD that is not known here is taken in.
    PoolImport(PoolImport),
    /// The cache takes room back that no disk needs; a job.
    PoolTakeBack {
        /// The pool's name.
        name: String,
    },
    /// Counters of everything.
    StatsAll,
    /// Counters of one volume, or of the pool of that name if there is no such volume.
    Stats {
        /// A volume's or a pool's name.
        name: String,
    },
    /// All jobs that run or ended lately.
    JobList,
    /// One job.
    JobShow {
        /// Its number.
        id: u64,
    },
    /// Stops a job; completed work is kept.
    JobCancel {
        /// Its number.
        id: u64,
    },
    /// Resumes a stopped or failed job as a new job.
    JobResume {
        /// The number of the old one.
        id: u64,
    },
    /// Compares what the pool's SSD holds with its checksums; a job.
    PoolCheck {
        /// The pool's name.
        name: String,
    },
    /// What happened, oldest first.
    Events {
        /// Only those with a larger number.
        after: u64,
    },
    /// Why a range is, or is not, cached.
    VolumeWhy {
        /// The volume's name.
        name: String,
        /// First byte; rounded down to a block.
        start_bytes: u64,
        /// How many bytes; rounded up to blocks, cut at the volume's end; at most [`WHY_BYTES_MAX`].
        length_bytes: u64,
    },
    /// The address space in cells.
    VolumeMap {
        /// The volume's name.
        name: String,
        /// First byte; rounded down to a MiB.
        start_bytes: u64,
        /// End, exclusive; absent: the volume's end.
        end_bytes: Option<u64>,
        /// At most so many cells, 1 to [`MAP_CELLS_MAX`].
        cells: u32,
    },
    /// What was.
    History(HistoryQuery),
    /// The newest sample.
    Sample,
    /// What loads need: analyses, streams, advice, applications and objects.
    Insight(InsightAction),
    /// The disks of this machine.
    DeviceList,
    /// Looks at a device, a file, or `model:SET:FILE`; changes nothing.
    DeviceExamine(DeviceExamine),
}

/// Longest range that `why` looks into at once: a gibibyte.
pub const WHY_BYTES_MAX: u64 = 1 << 30;

/// Most cells of a map.
pub const MAP_CELLS_MAX: u32 = 16_384;

/// Body of a pool's creation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// Absolute path of a disk, a partition or a file.
    #[schema(pattern = "^/[^\\x00]*$")]
    pub ssd: String,
    /// How much of it, in bytes; a file that is not there is made with this size.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    #[schema(minimum = 1, maximum = 9223372036854775807i64)]
    pub size_bytes: Option<u64>,
    /// RAM tier in bytes.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    pub ram_bytes: Option<u64>,
    /// Content level: "off", "fast", "dense" or "auto".
    #[serde(default)]
    #[schema(pattern = "^(off|fast|dense|auto)$")]
    pub content: Option<String>,
    /// Overwrite what a known signature says is there.
    #[serde(default)]
    pub force: bool,
    /// What the pool does if its SSD is blank at a start: "stop" (the default), or "make" a new cache there if nothing of the old one was dirty.
    #[serde(default)]
    #[schema(pattern = "^(stop|make)$")]
    pub on_blank_ssd: Option<String>,
    /// How much of the SSD stays unused, in percent. Absent: by the kind of drive.
    #[serde(default)]
    #[schema(maximum = 50)]
    pub spare_percent: Option<u8>,
}

/// Body of a pool's change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// Content level: "off", "fast", "dense" or "auto". What is stored already stays as it is.
    #[serde(default)]
    #[schema(pattern = "^(off|fast|dense|auto)$")]
    pub content: Option<String>,
    /// What the pool does if its SSD is blank at a start: "stop", or "make" a new cache there if nothing of the old one was dirty.
    #[serde(default)]
    #[schema(pattern = "^(stop|make)$")]
    pub on_blank_ssd: Option<String>,
}

/// Body of the replacement of a pool's SSD.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolReplace {
    /// Absolute path of the new disk, partition or file.
    #[schema(pattern = "^/[^\\x00]*$")]
    pub ssd: String,
    /// How much of it, in bytes; a file that is not there is made with this size.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    #[schema(minimum = 1, maximum = 9223372036854775807i64)]
    pub size_bytes: Option<u64>,
    /// Overwrite what a known signature says is there.
    #[serde(default)]
    pub force: bool,
    /// Discard dirty data of the old SSD that cannot be destaged.
    #[serde(default)]
    pub drop_dirty: bool,
}

/// Body of a volume's creation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeAdd {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// Its pool.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub pool: String,
    /// Absolute path, or `model:SET:FILE` with an absolute FILE.
    #[schema(pattern = "^(/|model:[a-z0-9-]+:/)[^\\x00]*$")]
    pub backing: String,
    /// How it is offered.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub exports: Vec<Export>,
    /// Size of its sectors, 512 or 4096 bytes. Absent: 512 over a file, else as the device has them.
    #[serde(default)]
    #[schema(minimum = 512, maximum = 4096)]
    pub sector_bytes: Option<u32>,
    /// What differs from the defaults.
    #[serde(default)]
    pub options: OptionsPatch,
}

/// Body of an attachment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The name of the new volume.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// Absolute path of a mapped device or logical volume, which may be in use.
    #[schema(pattern = "^/[^\\x00]*$")]
    pub device: String,
    /// Its pool; of a trial none.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub pool: Option<String>,
    /// Measure only: nothing is cached, and nothing is left behind.
    #[serde(default)]
    pub trial: bool,
    /// What differs from the defaults.
    #[serde(default)]
    pub options: OptionsPatch,
}

/// Body of a change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSet {
    /// Options to change.
    #[serde(default)]
    pub options: OptionsPatch,
    /// Accept the backing device as it is now: its clean cache is
    /// dropped, dirty data is kept and will be destaged over it. The answer says what was done.
    #[serde(default)]
    pub accept_backing: bool,
    /// How it is exported from now on, and no other way; an empty list for no export. Exports that stay are not touched.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub exports: Option<Vec<Export>>,
}

/// Body of a new name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRename {
    /// The name from now on.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
}

/// About the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DaemonView {
    /// Of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its state directory.
    pub state_directory: String,
    /// What clients use of volumes is watched: `insight.enabled` of the configuration.
    #[serde(default = "yes")]
    pub insight_enabled: bool,
}

/// Daemons before that key watched always.
fn yes() -> bool {
    true
}

/// How an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works.
    Running,
    /// It is being brought up.
    Starting,
    /// It works, and a device refuses what it is asked for: see `problem`.
    Failing,
    /// It works without its SSD.
    Degraded,
    /// It does not work; see `problem` and `remedy`.
    Failed,
    /// It is being removed.
    Removing,
    /// A person stopped it.
    Stopped,
}

impl Health {
    /// All of them.
    pub const ALL: [Health; 7] =
        [Health::Running, Health::Starting, Health::Failing, Health::Degraded, Health::Failed, Health::Removing, Health::Stopped];

    /// The word in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Health::Running => "running",
            Health::Starting => "starting",
            Health::Failing => "failing",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
            Health::Removing => "removing",
            Health::Stopped => "stopped",
        }
    }
}

/// A pool as people see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// As in the superblock.
    #[schema(value_type = String)]
    pub uuid: Uuid,
    /// How it is.
    pub health: Health,
    /// What is wrong, if something is.
    #[serde(default)]
    pub problem: Option<String>,
    /// What to do about it.
    #[serde(default)]
    pub remedy: Option<String>,
    /// The SSD.
    pub ssd: String,
    /// What becomes of it when its SSD is blank at a start: "stop" or "make".
    pub on_blank_ssd: String,
    /// How much of the SSD stays unused; null of pools made before this was chosen.
    #[serde(default)]
    pub spare: Option<SpareView>,
    /// Bytes written to the SSD for each byte stored, since the daemon's start; null before anything was.
    #[serde(default)]
    pub write_amplification: Option<f64>,
    /// What the SSD is estimated to write to its flash; null while the pool does not run.
    #[serde(default)]
    pub flash: Option<FlashView>,
    /// How the write streams of the SSD are used; null if the kernel announces none for it, where blocks lie in a log, and while the pool does
    /// not run.
    #[serde(default)]
    pub write_streams: Option<WriteStreams>,
    /// Bytes of the SSD that the pool uses; 0 while unknown.
    pub size_bytes: u64,
    /// RAM tier; less than was asked for where the memory is limited, see the events.
    pub ram_bytes: u64,
    /// Cached bytes of all volumes; null if unknown.
    #[serde(default)]
    pub cached_bytes: Option<u64>,
    /// Dirty bytes of all volumes; null if unknown.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// RAM used by index and policy.
    pub index_bytes: u64,
    /// Content level.
    #[serde(with = "words::content", default)]
    #[schema(value_type = String)]
    pub content: Content,
    /// Savings by content; null where the level is off and no block is stored that way.
    #[serde(default)]
    pub content_stats: Option<ContentStats>,
    /// How the SSD is used; null while the pool does not run.
    #[serde(default)]
    pub slot_stats: Option<SlotStats>,
    /// Its volumes' names.
    pub volumes: Vec<String>,
    /// Names of the disks beside its cache.
    #[serde(default)]
    pub disks: Vec<String>,
    /// How much of the SSD is set aside for disks.
    #[serde(default)]
    pub disks_bytes: u64,
    /// What the latest start found, one clause each.
    pub recovery: Vec<String>,
}

/// How much of a pool's SSD stays unused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SpareView {
    /// In percent of the pool's room on the SSD.
    pub percent: u8,
    /// Why it is so much, as a clause.
    pub reason: String,
    /// Why the SSD still keeps what was in the unused part, as a clause about the SSD; null if it was discarded, or nothing was to be done.
    #[serde(default)]
    pub not_discarded: Option<String>,
}

/// What an SSD writes to its flash for each byte that it is given, estimated by a model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlashView {
    /// The part of the drive that it has to keep once all of the pool's room was written: what hearth does not leave unused, 0 to 1.
    pub kept_part: f64,
    /// By how much spare the drive was made with.
    pub estimates: Vec<FlashEstimate>,
    /// Why the estimate may not hold, if so.
    #[serde(default)]
    pub note: Option<String>,
}

/// The estimate for drives with so much spare of their own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlashEstimate {
    /// The drive's own spare, in percent of what it shows.
    pub own_spare_percent: u8,
    /// Bytes of flash written for each byte if all blocks are overwritten equally often.
    pub even: f64,
    /// The same if few blocks are overwritten often (Zipf's law, 0.99).
    pub skewed: f64,
}

/// A volume as people see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Never used for another volume.
    #[schema(value_type = String)]
    pub uuid: Uuid,
    /// How it is.
    pub health: Health,
    /// What is wrong, if something is.
    #[serde(default)]
    pub problem: Option<String>,
    /// What to do about it.
    #[serde(default)]
    pub remedy: Option<String>,
    /// Its pool.
    pub pool: String,
    /// Its backing device.
    pub backing: String,
    /// Its size.
    pub size_bytes: u64,
    /// Size of its backing device, if that is another than the volume's: it has grown (see `volume grow`) or shrunk.
    #[serde(default)]
    pub backing_size_bytes: Option<u64>,
    /// Size of its sectors; null of a volume that an earlier version added: then as the backing device has them.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// How it is treated.
    pub options: Options,
    /// By export ("block", "nbd", "nbd:127.0.0.1:10809"): where it is offered (`/dev/ublkbN`, a URI); null while it is not.
    pub exports: BTreeMap<String, Option<String>>,
    /// By export that is offered: what its users see while the daemon restarts.
    #[serde(default)]
    pub on_restart: BTreeMap<String, OnRestart>,
    /// By export that is offered: what was chosen where there was a choice, and why.
    #[serde(default)]
    pub export_notes: BTreeMap<String, String>,
    /// The stable name under `/dev/hearth`, if it could be made.
    #[serde(default)]
    pub stable_path: Option<String>,
    /// How it is offered to other machines.
    #[serde(default)]
    pub shares: Vec<ShareView>,
    /// The mapped device in use whose requests go through it (`vg-lv`); null of a volume that has users of its own.
    #[serde(default)]
    pub attached_to: Option<String>,
    /// Cached bytes; null if unknown.
    #[serde(default)]
    pub cached_bytes: Option<u64>,
    /// Dirty bytes; null if unknown.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// Job under way on it.
    #[serde(default)]
    pub job: Option<JobView>,
}

/// Counters of everything.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// By pool.
    pub pools: BTreeMap<String, PoolStats>,
    /// By volume.
    pub volumes: BTreeMap<String, VolumeStats>,
    /// By disk beside a cache.
    #[serde(default)]
    pub disks: BTreeMap<String, VolumeStats>,
}
