//! A pool taken in from its SSD, as people ask for it and see it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::Mode;
use utoipa::ToSchema;
use uuid::Uuid;

/// Body of a look at an SSD, and of the import of its pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Absolute path of the SSD.
    #[schema(pattern = "^/[^\\x00]*$")]
    pub ssd: String,
    /// The pool's name here; else the one that it had.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: Option<String>,
    /// Backing devices by volume, where they are not found, or not known: such a device is taken for the volume's own.
    #[serde(default)]
    pub backings: BTreeMap<String, String>,
    /// Other names for volumes and disks, by the name on the SSD.
    #[serde(default)]
    pub renames: BTreeMap<String, String>,
    /// Take in volumes whose backing devices are not there: each starts when its own is.
    #[serde(default)]
    pub missing_later: bool,
}

/// What an SSD holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolFoundView {
    /// Its path.
    pub ssd: String,
    /// The pool.
    #[schema(value_type = String)]
    pub uuid: Uuid,
    /// The name that it had; null if the SSD does not say.
    pub name: Option<String>,
    /// The machine that used it last, by its host name; null if the SSD does not say.
    pub host: Option<String>,
    /// How often it was started.
    pub session: u64,
    /// Bytes of the SSD in use.
    pub size_bytes: u64,
    /// Whether it was stopped in order.
    pub stopped_clean: bool,
    /// The pool of this daemon that it is, if its SSD is known here.
    pub known_as: Option<String>,
    /// Its volumes.
    pub volumes: Vec<VolumeFoundView>,
    /// The disks beside its cache, by name, with their sizes.
    pub disks: BTreeMap<String, u64>,
    /// It holds a log of an earlier version, which becomes slots when the pool is taken in: what that comes to, or why it cannot be. Null if it
    /// holds none.
    #[serde(default)]
    pub upgrade: Option<String>,
    /// What an administrator should know, one sentence each.
    pub warnings: Vec<String>,
}

/// A volume that an SSD holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeFoundView {
    /// Its name.
    pub name: String,
    /// Never used for another volume.
    #[schema(value_type = String)]
    pub uuid: Uuid,
    /// Its mode.
    #[schema(value_type = String)]
    #[serde(with = "crate::words::mode")]
    pub mode: Mode,
    /// Its size.
    pub size_bytes: u64,
    /// What of it is on the SSD and on no other device.
    pub dirty_bytes: u64,
    /// What is cached besides.
    pub clean_bytes: u64,
    /// How it was offered.
    pub exports: Vec<String>,
    /// Where its backing device was; null if the SSD does not say.
    pub backing_was: Option<String>,
    /// By what its backing device is recognised.
    pub identity: BTreeMap<String, String>,
    /// Where its backing device is now; null if it is not found.
    pub backing: Option<String>,
    /// Why it would not be served as it is.
    pub problem: Option<String>,
}
