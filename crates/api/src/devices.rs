//! Which disks there are, and what could be done with them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a device can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// Nothing known is on it, and nothing uses it.
    Free,
    /// Something known is on it (a file system, LVM, RAID): fine as a backing device, destroyed as an SSD.
    Foreign,
    /// Mounted, or part of something that is in use.
    InUse,
    /// A pool of hearth is on it.
    Pool,
    /// It is a volume's backing device.
    Backing,
}

/// A disk, a partition or a loop device of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// `/dev/…`.
    pub path: String,
    /// A name that stays the same over restarts (`/dev/disk/by-id/…`), if there is one.
    pub stable_path: Option<String>,
    /// "disk", "partition", "loop", "raid", "mapped" or "file".
    pub kind: String,
    /// The disk it is a partition of.
    pub parent: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// What it is called by its maker.
    pub model: Option<String>,
    /// Whether it has turning platters; null if the kernel does not say.
    pub rotational: Option<bool>,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Whether it can be used.
    pub state: DeviceState,
    /// The same as a clause for people: "mounted at /", "has an ext4 file system \"data\"", "free".
    pub summary: String,
    /// The former name of `summary`, until 1.0.
    #[serde(default)]
    pub told: String,
    /// What would be lost if it became the SSD of a pool, as a sentence; null if nothing is known to be on it.
    pub destroys: Option<String>,
    /// Whether it may become the SSD of a pool (with `force` where `destroys` is not null).
    pub can_be_ssd: bool,
    /// Whether it may become a backing device.
    pub can_be_backing: bool,
}

impl DeviceView {
    /// Says this of it.
    pub fn say(&mut self, summary: String) {
        self.told.clone_from(&summary);
        self.summary = summary;
    }
}

/// A path typed by a person, to be looked at before anything is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceExamine {
    /// A device, a file, or `model:SET:FILE`; absolute.
    #[schema(min_length = 1)]
    pub path: String,
}
