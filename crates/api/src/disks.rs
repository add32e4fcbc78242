//! Disks beside a pool's cache, as people ask for them and see them.

use crate::words::{Export, OnRestart};
use crate::{Health, ShareView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// Body of a disk's creation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskCreate {
    /// Its name.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub name: String,
    /// The pool whose SSD it lies on.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub pool: String,
    /// Its size in bytes; rounded up to whole mebibytes.
    #[serde(deserialize_with = "crate::int64::number")]
    #[schema(minimum = 1, maximum = 9223372036854775807i64)]
    pub size_bytes: u64,
    /// How it is offered.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub exports: Vec<Export>,
}

/// Body of a change of a disk: of its size, or of its exports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskSet {
    /// Its new size in bytes; rounded up to whole mebibytes.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    #[schema(minimum = 1, maximum = 9223372036854775807i64)]
    pub size_bytes: Option<u64>,
    /// With a smaller size: lose what lies behind the new end.
    #[serde(default)]
    pub lose_content: bool,
    /// How it is offered from now on, and no other way.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 16)]
    pub exports: Option<Vec<Export>>,
}

/// A piece of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskPiece {
    /// Its first byte on the SSD.
    pub offset_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// A disk as people see it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskView {
    /// Its name.
    pub name: String,
    /// Never used for another disk.
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
    /// The SSD it lies on.
    pub ssd: String,
    /// Where it lies there, from its first byte to its last.
    pub pieces: Vec<DiskPiece>,
    /// Its size.
    pub size_bytes: u64,
    /// Since its last change of size: who has the new one, and who gets it when, a clause each.
    #[serde(default)]
    pub size_reach: Vec<String>,
    /// Whether its blocks have checksums: never so far, it is a part of the SSD and nothing else.
    pub checksummed: bool,
    /// Its sector size; null until it was served.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// By export ("loop", "nbd"): where it is offered; null while it is not.
    pub exports: BTreeMap<String, Option<String>>,
    /// By export that is offered: what its users see while the daemon restarts.
    #[serde(default)]
    pub on_restart: BTreeMap<String, OnRestart>,
    /// By export: why it is offered as it is, where that is not what its word says.
    #[serde(default)]
    pub export_notes: BTreeMap<String, String>,
    /// The stable name under `/dev/hearth`, if it could be made.
    #[serde(default)]
    pub stable_path: Option<String>,
    /// How it is offered to other machines.
    #[serde(default)]
    pub shares: Vec<ShareView>,
}
