//! What is known of devices before they are hearth's.

use crate::state::{BackingIdentity, Fact};
use device::{DeviceKind, Drive};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What a device is like, as far as its safety and identity are concerned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceFacts {
    /// Size in bytes.
    pub size_bytes: u64,
    /// What a known signature says is on it ("ext4 file system", "LVM physical volume"); `None`: nothing known.
    pub signature: Option<String>,
    /// The pool whose superblock it carries.
    pub pool: Option<Uuid>,
    /// Who uses it ("mounted at /srv", "part of md0"); `None`: nobody, as far as can be known.
    pub in_use: Option<String>,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether it is a file.
    pub is_file: bool,
    /// What it is to a drive.
    pub drive: Drive,
    /// Its sectors; of a file, what direct I/O moves whole.
    pub sector_bytes: u32,
    /// By what it can be recognized later.
    pub identity: BackingIdentity,
}

/// A device or file that somebody may want to give to hearth.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundDevice {
    /// `/dev/…`, or the file as it was named; links resolved.
    pub path: String,
    /// A name that stays the same over restarts.
    pub stable_path: Option<String>,
    /// "disk", "partition", "loop", "raid", "mapped" or "file".
    pub kind: String,
    /// The disk it is a partition of.
    pub parent: Option<String>,
    /// Its size; 0 if it could not be found out.
    pub size_bytes: u64,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Whether it has turning platters; `None` if the kernel does not say.
    pub rotational: Option<bool>,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Who uses it ("it is mounted at /srv"); then it was not looked at.
    pub in_use: Option<String>,
    /// What known signatures say is on it ("an ext4 file system").
    pub signature: Option<String>,
    /// The pool whose superblock it carries.
    pub pool: Option<Uuid>,
    /// Why it could not be looked at.
    pub problem: Option<String>,
}

/// What a device is called, in the form that is remembered.
pub fn names_of(kind: DeviceKind, ids: &BTreeMap<String, String>) -> Vec<Fact> {
    let kind = match kind {
        DeviceKind::BlockDevice => "block device",
        DeviceKind::RegularFile => "file",
    };
    std::iter::once(Fact { name: "kind".into(), value: kind.into() }).chain(facts(ids)).collect()
}

/// Named values, as facts.
pub fn facts<T: ToString>(named: &BTreeMap<String, T>) -> Vec<Fact> {
    named.iter().map(|(name, value)| Fact { name: name.clone(), value: value.to_string() }).collect()
}
