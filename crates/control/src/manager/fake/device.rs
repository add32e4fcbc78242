//! Devices of the fake world, and what is attached of them.

use crate::uuid::Uuid;
use std::collections::BTreeMap;
use types::Mode;

#[derive(Clone, Default)]
pub struct Device {
    pub size_bytes: u64,
    pub signature: Option<String>,
    pub in_use: Option<String>,
    /// Empty: it tells nothing about itself.
    pub serial: String,
    /// UUID of what lies on it.
    pub content: Option<String>,
    pub parent: Option<String>,
    pub read_only: bool,
    pub problem: Option<String>,
    /// 0: 512.
    pub sector_bytes: u32,
    /// Pool on it, if it is an SSD.
    pub pool: Option<Uuid>,
    /// Log content by volume number: (version, dirty).
    pub log: BTreeMap<u32, (u64, bool)>,
    /// What it holds, if it is a backing device.
    pub version: u64,
}

#[derive(Clone)]
pub struct Attached {
    pub id: u32,
    pub ssd: Option<String>,
    pub backing: String,
    pub mode: Mode,
}
