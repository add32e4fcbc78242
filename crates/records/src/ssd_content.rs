//! What was found on an SSD, and the records that a state would have of it. Pure.

use crate::on_ssd::{PoolCopy, Said};
use crate::spare::{Spare, SpareBy};
use crate::state::{BackingIdentity, DiskRecord, Former, PoolPhase, PoolRecord, Span, State, VolumePhase, VolumeRecord};
use api::PoolImport;
use api::memory::RAM_BYTES_DEFAULT;
use api::options::Options;
use api::words::Export;
use device::Drive;
use types::{Content, Mode};
use uuid::Uuid;

/// What an SSD holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SsdContent {
    /// The pool.
    pub uuid: Uuid,
    /// Of its latest start.
    pub session: u64,
    /// Bytes of the SSD in use by the cache.
    pub size_bytes: u64,
    /// It holds a log of an earlier version, which a start makes slots: what that comes to, as a clause; else why it cannot be, and what to do.
    pub log: Option<Result<String, (String, String)>>,
    /// How much of it stays unused, in percent.
    pub spare_percent: u8,
    /// It was stopped in order.
    pub clean: bool,
    /// Its copy of a state.
    pub said: Said,
    /// What the superblock and the log have of volumes.
    pub volumes: Vec<VolumeOnSsd>,
    /// The room for disks, if there is one.
    pub disk_room: Option<Span>,
    /// What lies in it: UUID, name, pieces.
    pub disks: Vec<(Uuid, String, Vec<Span>)>,
    /// What cannot be read, one sentence each.
    pub problems: Vec<String>,
}

/// A volume by superblock and log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeOnSsd {
    /// Its number.
    pub id: u32,
    /// Who it is.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its mode when last set.
    pub mode: Mode,
    /// Something may be dirty.
    pub may_have_dirty: bool,
    /// What is dirty, in bytes of blocks.
    pub dirty_bytes: u64,
    /// What is cached besides.
    pub clean_bytes: u64,
}

/// What a state would have of an SSD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    /// The pool.
    pub pool: PoolRecord,
    /// Its volumes, under their names here, with where their backing devices were.
    pub volumes: Vec<VolumeRecord>,
    /// The disks beside its cache.
    pub disks: Vec<DiskRecord>,
    /// What an administrator should know, one sentence each.
    pub warnings: Vec<String>,
}

impl SsdContent {
    fn copy(&self) -> Option<&PoolCopy> {
        self.said.copy.as_ref()?.as_ref().ok()
    }

    /// The name of the pool, and the machine that used it last.
    pub fn name_and_host(&self) -> Option<(String, String)> {
        self.copy().map(|copy| (copy.pool.name.clone(), copy.host.clone()))
    }

    /// What the copy has of a volume.
    pub fn copied(&self, uuid: Uuid) -> Option<&VolumeRecord> {
        self.copy()?.volumes.iter().find(|volume| volume.uuid == uuid)
    }

    /// Whether a volume or disk on it had the name.
    pub fn had_name(&self, name: &str) -> bool {
        let copied = self.copy().is_some_and(|copy| copy.volumes.iter().any(|volume| volume.name == name));
        copied || self.volumes.iter().any(|volume| volume.name == name) || self.disks.iter().any(|(_, disk, _)| disk == name)
    }

    /// Whether the pool was stopped in order: it has a checkpoint, or its log was sealed and the copy of the state written after that.
    pub fn stopped_in_order(&self) -> bool {
        self.clean || self.copy().is_some_and(|copy| copy.stopped_session == Some(self.session))
    }

    /// Dirty and clean bytes of a volume.
    pub fn counted(&self, id: u32) -> (u64, u64) {
        self.volumes.iter().find(|volume| volume.id == id).map_or((0, 0), |volume| (volume.dirty_bytes, volume.clean_bytes))
    }

    /// The records for a pool of that name, from the copy, and where that lacks something from the superblock.
    pub fn records(&self, import: &PoolImport, name: &str) -> Records {
        let mut warnings = self.problems.clone();
        match &self.said.copy {
            Some(Err(why)) => warnings.push(format!("what the SSD says of volumes and their devices cannot be used: {why}")),
            None => warnings.push("the SSD does not say which devices its volumes lie on: it was used by an older hearth".into()),
            Some(Ok(_)) => {}
        }
        let pool = PoolRecord {
            name: name.into(),
            uuid: self.uuid,
            ssd: import.ssd.clone(),
            phase: PoolPhase::Ready,
            session: self.session,
            degraded: None,
            serial: self.said.serial,
            file_made: false,
            disk_room: self.disk_room.or_else(|| self.copy()?.pool.disk_room),
            next_volume_id: self.copy().map_or(1, |copy| copy.pool.next_volume_id).max(self.said.next_volume_id),
            ..self.copy().map_or_else(|| self.plain_pool(), |copy| copy.pool.clone())
        };
        let renamed = |name: &String| import.renames.get(name).unwrap_or(name).clone();
        let mut volumes: Vec<VolumeRecord> = Vec::new();
        for known in self.copy().map_or(&[][..], |copy| &copy.volumes) {
            if let Some(attachment) = &known.attachment {
                let told = format!("the volume \"{}\" was attached to {} and is left out: attach it again", known.name, attachment.device);
                warnings.push(told);
                continue;
            }
            let believed = self.copy().map_or_else(|| known.clone(), |copy| copy.believed(known, self.session));
            volumes.push(VolumeRecord { phase: VolumePhase::Ready, ..believed });
        }
        let is_copied = |found: &VolumeOnSsd, volumes: &[VolumeRecord]| volumes.iter().any(|v| v.id == found.id || v.uuid == found.uuid);
        let has_all = self.copy().is_some_and(|copy| !copy.lacks_volumes);
        let left_out = |found: &VolumeOnSsd| {
            let attached = self.copy().is_some_and(|copy| copy.volumes.iter().any(|known| known.uuid == found.uuid));
            // What the copy does not list was removed.
            attached || has_all && found.dirty_bytes == 0
        };
        for found in &self.volumes {
            if !is_copied(found, &volumes) && !left_out(found) {
                volumes.push(found.record());
            }
        }
        for volume in &mut volumes {
            let found = self.volumes.iter().find(|found| found.id == volume.id);
            let may_be_dirty = found.is_some_and(|found| found.may_have_dirty || found.dirty_bytes > 0);
            volume.may_have_dirty |= may_be_dirty || volume.options.mode == Mode::WriteBack && !volume.cache_stale;
            (volume.pool, volume.name) = (name.into(), renamed(&volume.name));
        }
        let exports_of = |uuid: Uuid| self.copy().and_then(|copy| copy.disks.iter().find(|disk| disk.uuid == uuid));
        let disk = |(uuid, disk_name, pieces): &(Uuid, String, Vec<Span>)| DiskRecord {
            name: renamed(disk_name),
            uuid: *uuid,
            pool: name.into(),
            pieces: pieces.clone(),
            exports: exports_of(*uuid).map_or(vec![Export::LOOP], |disk| disk.exports.clone()),
            shares: exports_of(*uuid).map_or(Vec::new(), |disk| disk.shares.clone()),
        };
        let disks = match (&self.disks[..], self.disk_room, self.copy()) {
            // The table cannot be read: it is written again by this.
            ([], None, Some(copy)) => {
                let copied: Vec<_> = copy.disks.iter().map(|disk| (disk.uuid, disk.name.clone(), disk.pieces.clone())).collect();
                copied.iter().map(disk).collect()
            }
            (disks, ..) => disks.iter().map(disk).collect(),
        };
        Records { pool, volumes, disks, warnings }
    }

    /// Of an SSD without a copy.
    fn plain_pool(&self) -> PoolRecord {
        PoolRecord {
            name: String::new(),
            uuid: self.uuid,
            ssd: String::new(),
            size_bytes: None,
            ram_bytes: RAM_BYTES_DEFAULT,
            content: Content::default(),
            phase: PoolPhase::Ready,
            session: self.session,
            degraded: None,
            next_volume_id: self.said.next_volume_id,
            file_made: false,
            disk_room: self.disk_room,
            serial: 0,
            on_blank_ssd: Default::default(),
            layout: Former,
            spare: self.log.is_none().then(|| Spare {
                percent: self.spare_percent,
                by: SpareBy::Found,
                drive: Drive::default(),
                not_discarded: None,
            }),
            ssd_identity: Vec::new(),
        }
    }
}

impl VolumeOnSsd {
    /// A record without what only a copy says: its backing device is not known.
    fn record(&self) -> VolumeRecord {
        VolumeRecord {
            name: self.name.clone(),
            uuid: self.uuid,
            pool: String::new(),
            id: self.id,
            backing: String::new(),
            size_bytes: self.size_bytes,
            sector_bytes: None,
            options: Options { mode: self.mode, ..Options::default() },
            exports: vec![Export::LOOP],
            phase: VolumePhase::Ready,
            may_have_dirty: self.may_have_dirty,
            identity: BackingIdentity { size_bytes: self.size_bytes, ..BackingIdentity::default() },
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

impl Records {
    /// Whether they fit into a state, from which what the pool has there is taken out before.
    ///
    /// # Errors
    /// Which name or UUID is taken there, as a clause, and how it may be called instead.
    pub fn check_names(&self, state: &State) -> Result<(), (String, String)> {
        if state.pool(&self.pool.name).is_some() {
            let remedy = "give it another name here with --name NAME".to_string();
            return Err((format!("there is already a pool \"{}\"", self.pool.name), remedy));
        }
        let names =
            self.volumes.iter().map(|volume| (&volume.name, volume.uuid)).chain(self.disks.iter().map(|disk| (&disk.name, disk.uuid)));
        let mut seen: Vec<&String> = Vec::new();
        for (name, uuid) in names {
            let is_taken = state.volume(name).is_some() || state.disk(name).is_some() || seen.contains(&name);
            if is_taken {
                let remedy = format!("give the one on the SSD another name with --rename {name}=NEW");
                return Err((format!("there is already a volume or disk \"{name}\""), remedy));
            }
            if let Some(twin) = state.volumes.iter().find(|volume| volume.uuid == uuid) {
                let remedy = format!("remove that one first with `hearth volume remove {}`", twin.name);
                return Err((
                    format!("the volume \"{name}\" on the SSD is also the volume \"{}\" of the pool \"{}\"", twin.name, twin.pool),
                    remedy,
                ));
            }
            seen.push(name);
        }
        Ok(())
    }
}
