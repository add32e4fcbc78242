//! What the daemon remembers over a restart: the content of `state.json`.
//!
//! Invariants, checked by [`State::check`] after reading and before writing:
//! * names are valid and unique, each volume's pool exists;
//! * a volume's number in the log is below its pool's `next_volume_id`, so that no number is used twice;
//! * a volume that may be written in write-back mode is marked `may_have_dirty`. The mark is durable before the mode is in
//!   force and goes only after the data path has confirmed that nothing is dirty: then, at a clean stop, or while it is served without its
//!   cache.
//!
//! Half-done operations are told by the phases; what a start does with them stands there.

pub use crate::pool_phase::PoolPhase;
pub use crate::spare::Spare;
use api::names::{self, Named};
use api::object_rules::Rule;
pub use api::on_blank_ssd::OnBlankSsd;
use api::options::Options;
use api::words::{self, Export};
use applications::Engine;
use applications::streams::Subject;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use targets::Protocol;
use types::{Content, Mode, StreamClass};
use uuid::Uuid;

/// Version of the file's layout. A file of a later version is refused, not guessed at.
pub const STATE_VERSION: u32 = 1;

/// All that is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// By name.
    pub pools: Vec<PoolRecord>,
    /// By name.
    pub volumes: Vec<VolumeRecord>,
    /// Disks beside the caches, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskRecord>,
    /// Pools whose SSDs may list their disks otherwise than this does: a change is under way, or was cut short.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub disk_changes: BTreeSet<String>,
    /// With what names of databases are hashed; made when it is first needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names_key: Option<Uuid>,
    /// Which class whose requests have, in the order in which they are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stream_rules: Vec<StreamRule>,
    /// The number of the next one; 0: there was none yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_stream_rule: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The form that serde calls it by.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A rule for streams.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRule {
    /// Its number, which no other has had.
    pub id: u64,
    /// What it looks at.
    #[serde(with = "words::subject")]
    pub subject: Subject,
    /// What that must be; a `*` at the end stands for anything.
    pub pattern: String,
    /// The class that such requests get.
    #[serde(with = "words::stream_class")]
    pub class: StreamClass,
}

impl Default for State {
    fn default() -> State {
        State {
            version: STATE_VERSION,
            pools: Vec::new(),
            volumes: Vec::new(),
            disks: Vec::new(),
            disk_changes: BTreeSet::new(),
            names_key: None,
            stream_rules: Vec::new(),
            next_stream_rule: 0,
        }
    }
}

/// A field that earlier versions kept: read, whatever it is, and kept no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Former;

impl<'de> Deserialize<'de> for Former {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Former, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|IgnoredAny| Former)
    }
}

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// As in the SSD's superblock.
    pub uuid: Uuid,
    /// Path of the SSD as given, made absolute.
    pub ssd: String,
    /// How much of the SSD is used, if not all of it, in bytes.
    pub size_bytes: Option<u64>,
    /// RAM tier, in bytes.
    pub ram_bytes: u64,
    /// Content level. A file from before this was kept reads as the default.
    #[serde(with = "words::content", default)]
    pub content: Content,
    /// How far it has come.
    pub phase: PoolPhase,
    /// The superblock's session number of the latest start. A superblock with a lower one is an old copy of the SSD.
    pub session: u64,
    /// Set when the SSD failed: what is clean on it is behind the backing devices and must never be served again.
    pub degraded: Option<Degraded>,
    /// The number in the log that the next volume gets. Only ever grows.
    pub next_volume_id: u32,
    /// Whether `pool create` made the SSD's file, so that an interrupted creation removes it.
    pub file_made: bool,
    /// The part of the SSD that is set aside for disks: behind the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_room: Option<Span>,
    /// Of the latest copy of this part of the state on the SSD ([`crate::on_ssd`]). Saved before that copy is written, so an SSD with a
    /// higher one was used with a newer state. 0: there is no copy yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub serial: u64,
    /// What becomes of it when its SSD is blank.
    #[serde(default, skip_serializing_if = "OnBlankSsd::is_stop")]
    pub on_blank_ssd: OnBlankSsd,
    /// How blocks lie on its SSD: earlier versions had a choice.
    #[serde(default, skip_serializing)]
    pub layout: Former,
    /// How much of its SSD stays unused. `None` in pools that were made before this was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Spare>,
    /// What its SSD is called, as far as it tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssd_identity: Vec<Fact>,
}

impl PoolRecord {
    /// The same segments as slots, with a ring that suits the pool's content level, and its spare.
    pub fn arranged(&self, segments: format::Layout) -> format::Layout {
        let slots = if self.content == Content::Off { segments.with_slots() } else { segments.with_packed_slots() };
        slots.with_spare(self.spare_percent())
    }
}

/// A part of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its first byte: the cache ends before.
    pub at_bytes: u64,
    /// Behind its last byte.
    pub end_bytes: u64,
}

impl Span {
    /// Its size.
    pub const fn bytes(&self) -> u64 {
        self.end_bytes.saturating_sub(self.at_bytes)
    }
}

/// A disk beside the cache on a pool's SSD.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRecord {
    /// Its name; no volume has it.
    pub name: String,
    /// Never used for another one.
    pub uuid: Uuid,
    /// Its pool's name.
    pub pool: String,
    /// Where it lies on the SSD, from its first byte to its last. At least one.
    pub pieces: Vec<Span>,
    /// How it is offered.
    pub exports: Vec<Export>,
    /// How its block device is offered to other machines; at most one a protocol.
    #[serde(default)]
    pub shares: Vec<ShareRecord>,
}

impl DiskRecord {
    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.pieces.iter().map(Span::bytes).sum()
    }

    /// The first byte on the SSD of all that it has.
    pub fn first_byte(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.at_bytes).min().unwrap_or(u64::MAX)
    }

    /// It as what exports know: a volume over its part of that SSD.
    pub fn as_volume(&self, ssd: &str) -> VolumeRecord {
        let options = Options { mode: Mode::PassThrough, ..Options::default() };
        VolumeRecord {
            name: self.name.clone(),
            uuid: self.uuid,
            pool: self.pool.clone(),
            id: 0,
            backing: ssd.into(),
            size_bytes: self.size_bytes(),
            sector_bytes: None,
            options,
            exports: self.exports.clone(),
            phase: VolumePhase::Ready,
            may_have_dirty: false,
            identity: BackingIdentity::default(),
            stopped_clean: false,
            cache_stale: false,
            past: Vec::new(),
            stopped: false,
            noted: Vec::new(),
            rules: Vec::new(),
            connections: Vec::new(),
            shares: self.shares.clone(),
            attachment: None,
        }
    }
}

/// Why and when a pool lost its SSD.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Degraded {
    /// What happened.
    pub reason: String,
    /// When, in seconds since 1970.
    pub since_unix_s: u64,
    /// What is dirty on the SSD of volumes that `may_have_dirty` is good: when the SSD is back, it is served again. A record of
    /// a version that did not see to that lacks this.
    #[serde(default)]
    pub dirty_is_good: bool,
}

/// How far a volume has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumePhase {
    /// In use.
    Ready,
    /// Its exports are going, its dirty data is home. A start finishes the removal (and destages again if need be).
    Removing,
    /// As before, and its dirty data is to be lost, as the person asked.
    Dropping,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRecord {
    /// Its name.
    pub name: String,
    /// Never used for another volume.
    pub uuid: Uuid,
    /// Its pool's name.
    pub pool: String,
    /// Its number in the pool's log.
    pub id: u32,
    /// Path of the backing device, or `model:SET:FILE`; paths made absolute. Where the device was found last: it is recognised by `identity`.
    pub backing: String,
    /// Size in bytes when it was added, or grew last; what clients see.
    pub size_bytes: u64,
    /// Size of its sectors; `None` (of a volume that was added before this was kept): as the backing device has them.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// How it is treated.
    pub options: Options,
    /// How it is offered.
    pub exports: Vec<Export>,
    /// How far it has come.
    pub phase: VolumePhase,
    /// The log may hold data that the backing device lacks.
    pub may_have_dirty: bool,
    /// What the backing device was like when last seen.
    pub identity: BackingIdentity,
    /// Whether `identity` was taken after the last I/O of a clean stop; only then do its write stamps mean anything.
    pub stopped_clean: bool,
    /// The backing device was served without its cache, or changed while detached: what is cached clean must be dropped
    /// before the cache serves this volume again.
    pub cache_stale: bool,
    /// Blocks that were written past the lost SSD, in order, as first and end: what the SSD holds of them is void, dirty or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(u64, u64)>,
    /// A person stopped it: it stays so over restarts.
    #[serde(default)]
    pub stopped: bool,
    /// Write stamps, and what they belong to, that were read from the backing device while it was served, after a flush: a device whose stamps
    /// are older was rolled back. Means something after a crash too.
    #[serde(default)]
    pub noted: Vec<Fact>,
    /// Policies of its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Logins to the servers of applications that lie on it, one an application.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionRecord>,
    /// How it is offered to other machines; at most once by each protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareRecord>,
    /// It stands under a mapped device in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
}

/// A login to the server of an application. What it is for is told by where its data lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionRecord {
    /// The application's number on its volume.
    pub application: u32,
    /// The engine that its server runs.
    #[serde(with = "crate::engines::server_word")]
    pub server: Engine,
    /// Its data directory, from the root of its file system.
    pub instance: String,
    /// Where that file system begins on the volume.
    pub start_bytes: u64,
    /// The file that the login is in: only its path is kept.
    pub login: String,
}

/// A mapped device whose requests go through a volume, while it keeps its name and its users. What it lay on is the volume's backing
/// device, by a hidden device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The device's name when it was attached: "vg-lv".
    pub device: String,
    /// The device mapper's UUID of it, by which it is found under another name; empty if it has none.
    pub uuid: String,
    /// The tables that hearth has given it, or is about to: if it has one of them, and the hidden device is there, its requests come here.
    pub tables: Vec<String>,
    /// Nothing is cached, no pool is needed, and nothing is left behind: to be measured, until it is detached, or the daemon or the
    /// machine stops.
    pub trial: bool,
    /// It is being detached. A start finishes that.
    pub leaving: bool,
    /// What shows that the device was not written past hearth since the clean stop; then its cache is good. `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// How often a mapped device had been written when hearth was stopped. See [`datapath::mapped::Passed`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The boot of the machine.
    pub boot: String,
    /// The device as it was made then; another one has another number.
    pub instance: u64,
    /// Writes and discards since it was made.
    pub writes: u64,
    /// The machine was going down, nobody had the device open, and what is on it shows it when it is written.
    pub for_next_boot: bool,
}

/// A volume offered to other machines. Its secrets are in a file of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRecord {
    /// How.
    #[serde(with = "words::protocol")]
    pub protocol: Protocol,
    /// Where its target listens.
    pub addresses: Vec<SocketAddr>,
    /// Who may connect; empty: all.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// The file with CHAP secrets.
    #[serde(default)]
    pub chap_file: Option<String>,
}

/// By what a backing device is recognized (C6).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackingIdentity {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Facts that stay the same as long as it is the same device: kind, serial number, inode and so on.
    pub fixed: Vec<Fact>,
    /// UUIDs of what lies on it: file system, LVM physical volume, partition table and so on.
    #[serde(default)]
    pub content: Vec<Fact>,
    /// Facts that change with every mount or write: modification time, the file system's last write time and so on.
    pub stamps: Vec<Fact>,
}

/// One thing known about a device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What, in words for messages: "serial number".
    pub name: String,
    /// Its value.
    pub value: String,
}

impl VolumeRecord {
    /// Whether its backing device must take writes: a client's, or what is dirty.
    pub fn writes_backing(&self) -> bool {
        !self.options.read_only || self.may_have_dirty
    }

    /// Size of the volume over a device of so many bytes: whole sectors.
    pub fn bytes_of(&self, device_bytes: u64) -> u64 {
        device_bytes - device_bytes % self.sector_bytes.map_or(types::SECTOR_BYTES, u64::from).max(1)
    }

    /// Its share by that protocol.
    pub fn share(&self, protocol: Protocol) -> Option<&ShareRecord> {
        self.shares.iter().find(|share| share.protocol == protocol)
    }

    /// Adds blocks that were written past the lost SSD.
    pub fn add_past(&mut self, blocks: std::ops::Range<u64>) {
        let from = self.past.partition_point(|(_, end)| *end < blocks.start);
        let to = self.past.partition_point(|(first, _)| *first <= blocks.end);
        let touched = &self.past[from..to];
        let first = touched.first().map_or(blocks.start, |(first, _)| blocks.start.min(*first));
        let end = touched.last().map_or(blocks.end, |(_, end)| blocks.end.max(*end));
        self.past.splice(from..to, [(first, end)]);
    }

    /// Whether it stands under a mapped device for a trial, without a pool.
    pub fn is_trial(&self) -> bool {
        self.attachment.as_ref().is_some_and(|attachment| attachment.trial)
    }

    /// Whether it is to stay as it is until a person starts it. A volume on its way out goes on.
    pub fn rests(&self) -> bool {
        self.stopped && self.phase == VolumePhase::Ready
    }
}

impl State {
    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&PoolRecord> {
        self.pools.iter().find(|p| p.name == name)
    }

    /// The pool of that name, to be changed.
    pub fn pool_mut(&mut self, name: &str) -> Option<&mut PoolRecord> {
        self.pools.iter_mut().find(|p| p.name == name)
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|v| v.name == name)
    }

    /// The volume of that name, to be changed.
    pub fn volume_mut(&mut self, name: &str) -> Option<&mut VolumeRecord> {
        self.volumes.iter_mut().find(|v| v.name == name)
    }

    /// The disk of that name.
    pub fn disk(&self, name: &str) -> Option<&DiskRecord> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// The disks beside a pool's cache, in order of their places.
    pub fn disks_of(&self, pool: &str) -> Vec<DiskRecord> {
        let mut disks: Vec<DiskRecord> = self.disks.iter().filter(|disk| disk.pool == pool).cloned().collect();
        disks.sort_by_key(DiskRecord::first_byte);
        disks
    }

    /// What the disks beside a pool's cache have of its SSD, in order.
    pub fn pieces_of(&self, pool: &str) -> Vec<Span> {
        let of_pool = self.disks.iter().filter(|disk| disk.pool == pool);
        let mut pieces: Vec<Span> = of_pool.flat_map(|disk| disk.pieces.iter().copied()).collect();
        pieces.sort_by_key(|piece| piece.at_bytes);
        pieces
    }

    /// How the volume or disk of that name is offered to other machines.
    pub fn shares_mut(&mut self, name: &str) -> Option<&mut Vec<ShareRecord>> {
        let of_disk = self.disks.iter_mut().find(|disk| disk.name == name).map(|disk| &mut disk.shares);
        of_disk.or_else(|| self.volumes.iter_mut().find(|volume| volume.name == name).map(|volume| &mut volume.shares))
    }

    /// All that is exported: volumes, and disks as volumes.
    pub fn exported(&self) -> Vec<VolumeRecord> {
        let ssd_of = |disk: &DiskRecord| self.pool(&disk.pool).map_or("", |pool| pool.ssd.as_str());
        self.volumes.iter().cloned().chain(self.disks.iter().map(|disk| disk.as_volume(ssd_of(disk)))).collect()
    }

    /// The volumes of a pool.
    pub fn volumes_of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a VolumeRecord> {
        self.volumes.iter().filter(move |v| v.pool == pool)
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// What is broken, as a clause.
    pub fn check(&self) -> Result<(), String> {
        if self.version != STATE_VERSION {
            return Err(format!("it has version {}, this hearth reads version {STATE_VERSION}", self.version));
        }
        for (at, pool) in self.pools.iter().enumerate() {
            names::check(Named::Pool, &pool.name).map_err(|e| e.to_string())?;
            if self.pools[..at].iter().any(|other| other.name == pool.name || other.uuid == pool.uuid) {
                return Err(format!("the pool \"{}\" is listed twice", pool.name));
            }
        }
        for (at, volume) in self.volumes.iter().enumerate() {
            names::check(Named::Volume, &volume.name).map_err(|e| e.to_string())?;
            if self.volumes[..at].iter().any(|other| other.name == volume.name || other.uuid == volume.uuid) {
                return Err(format!("the volume \"{}\" is listed twice", volume.name));
            }
            if volume.attachment.is_some() && volume.options.mode == Mode::WriteBack {
                return Err(format!("the volume \"{}\" is attached to a device in use and cannot be write-back", volume.name));
            }
            if volume.is_trial() && volume.pool.is_empty() {
                continue;
            }
            let Some(pool) = self.pool(&volume.pool) else {
                return Err(format!("the volume \"{}\" belongs to the pool \"{}\", which is missing", volume.name, volume.pool));
            };
            if volume.id >= pool.next_volume_id {
                return Err(format!("the volume \"{}\" has the number {}, which is still to be given", volume.name, volume.id));
            }
            if self.volumes[..at].iter().any(|other| other.pool == volume.pool && other.id == volume.id) {
                return Err(format!("two volumes of \"{}\" have the number {}", volume.pool, volume.id));
            }
            check_shares("volume", &volume.name, &volume.shares)?;
            let without_cache = volume.stopped_clean || volume.cache_stale;
            if volume.options.mode == Mode::WriteBack && !volume.may_have_dirty && !without_cache {
                return Err(format!("the write-back volume \"{}\" is not marked as possibly dirty", volume.name));
            }
        }
        self.check_disks()
    }

    /// No byte of an SSD belongs to two disks, or to a disk and a cache.
    fn check_disks(&self) -> Result<(), String> {
        for (at, disk) in self.disks.iter().enumerate() {
            names::check(Named::Disk, &disk.name).map_err(|e| e.to_string())?;
            let is_twice = self.disks[..at].iter().any(|other| other.name == disk.name || other.uuid == disk.uuid);
            if is_twice || self.volume(&disk.name).is_some() {
                return Err(format!("the disk \"{}\" is listed twice", disk.name));
            }
            check_shares("disk", &disk.name, &disk.shares)?;
            let Some(room) = self.pool(&disk.pool).and_then(|pool| pool.disk_room) else {
                return Err(format!("the disk \"{}\" belongs to the pool \"{}\", which has no room for disks", disk.name, disk.pool));
            };
            let is_inside = |piece: &Span| piece.at_bytes >= room.at_bytes && piece.end_bytes <= room.end_bytes && piece.bytes() > 0;
            if disk.pieces.is_empty() || !disk.pieces.iter().all(is_inside) {
                return Err(format!("the disk \"{}\" lies outside of its pool's room for disks", disk.name));
            }
        }
        for pool in &self.pools {
            let pieces = self.pieces_of(&pool.name);
            if let Some(pair) = pieces.windows(2).find(|pair| pair[0].end_bytes > pair[1].at_bytes) {
                return Err(format!("two disks of the pool \"{}\" overlap at byte {} of its SSD", pool.name, pair[1].at_bytes));
            }
        }
        Ok(())
    }
}

fn check_shares(what: &str, name: &str, shares: &[ShareRecord]) -> Result<(), String> {
    match Protocol::ALL.into_iter().find(|protocol| shares.iter().filter(|share| share.protocol == *protocol).count() > 1) {
        Some(protocol) => Err(format!("the {what} \"{name}\" has two shares by {}", protocol.title())),
        None => Ok(()),
    }
}

/// Records for tests.
#[cfg(any(test, feature = "samples"))]
pub mod samples {
    use super::*;

    /// A pool record for tests.
    pub fn pool(name: &str) -> PoolRecord {
        PoolRecord {
            name: name.into(),
            uuid: Uuid::new_v4(),
            ssd: format!("/dev/{name}"),
            size_bytes: None,
            ram_bytes: 1 << 26,
            content: Content::default(),
            phase: PoolPhase::Ready,
            session: 1,
            degraded: None,
            next_volume_id: 1,
            file_made: false,
            disk_room: None,
            serial: 0,
            on_blank_ssd: OnBlankSsd::Stop,
            layout: Former,
            spare: None,
            ssd_identity: Vec::new(),
        }
    }

    /// A volume record for tests; takes its number from the pool.
    pub fn volume(name: &str, pool: &mut PoolRecord) -> VolumeRecord {
        let id = pool.next_volume_id;
        pool.next_volume_id += 1;
        VolumeRecord {
            name: name.into(),
            uuid: Uuid::new_v4(),
            pool: pool.name.clone(),
            id,
            backing: format!("/dev/{name}"),
            size_bytes: 1 << 30,
            sector_bytes: Some(512),
            options: Options::default(),
            exports: vec![Export::LOOP],
            phase: VolumePhase::Ready,
            may_have_dirty: false,
            identity: BackingIdentity { size_bytes: 1 << 30, ..Default::default() },
            stopped_clean: false,
            cache_stale: false,
            past: Vec::new(),
            stopped: false,
            noted: Vec::new(),
            rules: Vec::new(),
            connections: Vec::new(),
            shares: Vec::new(),
            attachment: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> State {
        let mut pool = samples::pool("p");
        let volumes = vec![samples::volume("v", &mut pool), samples::volume("w", &mut pool)];
        State { pools: vec![pool], volumes, ..Default::default() }
    }

    fn check(change: impl FnOnce(&mut State), expected: &str) {
        let mut state = valid();
        change(&mut state);
        match state.check() {
            Ok(()) => assert_eq!(expected, "", "was taken for valid"),
            Err(problem) => assert!(!expected.is_empty() && problem.contains(expected), "{problem}"),
        }
    }

    /// Versions that had a choice of layout kept it, also in the copy on the SSD.
    #[test]
    fn what_is_not_kept_any_more_is_read_and_left_out() {
        for word in ["slots", "log"] {
            let state = valid();
            let mut kept = serde_json::to_value(&state).expect("a state is JSON");
            assert_eq!(kept["pools"][0].get("layout"), None);
            kept["pools"][0]["layout"] = word.into();
            assert_eq!(serde_json::from_value::<State>(kept).expect("it is read"), state);
        }
    }

    #[test]
    fn broken_invariants_are_found() {
        check(|_| (), "");
        check(|s| s.version = 2, "version 2");
        check(|s| s.pools.clear(), "which is missing");
        check(|s| s.volumes[1].name = "v".into(), "listed twice");
        check(|s| s.volumes[1].id = s.volumes[0].id, "have the number");
        check(|s| s.volumes[1].id = 9, "still to be given");
        check(|s| s.volumes[0].name = "a/b".into(), "character");
        check(|s| s.volumes[0].options.mode = Mode::WriteBack, "possibly dirty");
        let attach = |s: &mut State, trial| {
            (s.volumes[0].attachment, s.volumes[0].pool) = (Some(Attachment { trial, ..Attachment::default() }), String::new());
        };
        check(|s| attach(s, true), "");
        check(|s| attach(s, false), "which is missing");
        check(
            |s| {
                s.volumes[0].attachment = Some(Attachment::default());
                (s.volumes[0].options.mode, s.volumes[0].may_have_dirty) = (Mode::WriteBack, true);
            },
            "cannot be write-back",
        );
    }
}
