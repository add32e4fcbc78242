//! What there is in the fake world: its devices, what runs and is served, and what is to go wrong.

use super::device::{Attached, Device};
use super::{disks, mapped, sharing};
use api::words::Export;
use datapath::Piece;
use datapath::figures::Refused;
use datapath::{DeviceUse, StrayedFile};
use records::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use types::Content;
use uuid::Uuid;

#[derive(Default)]
pub struct Inside {
    /// The daemon ends: only then may exports be left to the next one.
    pub ending: bool,
    /// Files and devices, by path.
    pub devices: BTreeMap<String, Device>,
    /// The saved state.
    pub saved: State,
    /// Counts calls that touch a device or the state file.
    pub steps: u64,
    /// The first step that fails, and how many fail after it.
    pub fail_at: Option<u64>,
    pub fail_more: u64,
    /// Whether the failing step and all after it fail as after a power cut.
    pub crash: bool,
    /// Set by a crash.
    pub dead: bool,
    /// Volumes, by their numbers, that the start of any pool calls damaged.
    pub damaged: Vec<u32>,
    /// Destage, and the check of a part, never end by themselves.
    pub slow: bool,
    /// The shards do not answer who asks what is dirty.
    pub silent: bool,
    /// Devices that do not answer, and since when: the volume does not detach, the pool does not stop.
    pub hanging: BTreeMap<DeviceUse, Instant>,
    /// Devices that were given up.
    pub given_up: Vec<DeviceUse>,
    /// What was recorded of writes past a lost SSD, by token.
    pub past_recorded: Vec<u64>,
    /// Pools whose shards were told that dirty blocks go home.
    pub going_home: Vec<String>,
    /// Pools at whose start hearth makes a mistake.
    pub mistaken: std::collections::BTreeSet<String>,
    /// Pools whose shards have lost their SSD.
    pub lost: std::collections::BTreeSet<String>,
    /// A detach from a device that hangs is given up with an error.
    pub impatient: bool,
    /// Devices that do not answer who looks at them.
    pub silent_devices: BTreeSet<String>,
    /// Backing devices that fail each flush.
    pub broken: BTreeSet<String>,
    /// What hangs goes on hanging when it is given up.
    pub dead_for_good: bool,
    /// A check becomes slow before this part.
    pub slow_from: Option<u32>,
    /// Parts with a bad block, and whether it is dirty.
    pub bad_parts: BTreeMap<u32, bool>,
    /// The parts that were checked.
    pub checked: Vec<u32>,
    /// What an inspection finds.
    pub problems: Vec<String>,
    /// What warm-ups have read.
    pub warmed: Vec<Piece>,
    /// Notes beside the saved state.
    pub notes: BTreeMap<String, String>,
    /// A device that comes back has lost what was not flushed.
    pub lost_writes: bool,
    /// Sizes that volumes have grown to while they were attached.
    pub served_bytes: BTreeMap<String, u64>,
    /// What backing devices refuse, by volume.
    pub refused: BTreeMap<String, Refused>,
    /// How much memory there is; `None`: not known.
    pub memory_bytes: Option<u64>,
    /// RAM tiers of the running pools.
    pub ram_bytes: BTreeMap<String, u64>,
    pub running: BTreeMap<String, Uuid>,
    /// How the running pools treat content.
    pub content: BTreeMap<String, Content>,
    /// The step at which LVM gives a mapped device its own table again, and what its users write then.
    pub refresh_at: Option<(u64, String, u64)>,
    pub origin_in_use: bool,
    /// Done once, just before a device is led here.
    pub at_lead_here: Option<Box<dyn FnOnce() + Send>>,
    /// What is so of the machine.
    pub machine: mapped::Machine,
    /// How often LVM's lock is still taken.
    pub busy_tries: u32,
    /// Mapped devices, by name.
    pub mapped: BTreeMap<String, mapped::Mapped>,
    pub(super) attached: BTreeMap<String, Attached>,
    pub sharing: sharing::Sharing,
    /// Block devices outlive the daemon.
    pub outlives: bool,
    pub exports: BTreeSet<(String, String)>,
    /// It cannot be made now.
    pub no_export: Option<Export>,
    /// Exports that were taken back, of whichever volume.
    pub taken_back: Vec<String>,
    pub disks: disks::Disks,
    /// How the stable names of volumes are found to be.
    pub stable_names: BTreeMap<String, Result<String, String>>,
    /// Done once, while such a name is looked at.
    pub at_name_look: Option<Box<dyn FnOnce() + Send>>,
    /// Files whose path leads to them no more, by the volume or the pool that uses them.
    pub strayed: BTreeMap<String, StrayedFile>,
    /// Paths that begin so lie on a volume of this daemon: which.
    pub on_own: BTreeMap<String, String>,
}
