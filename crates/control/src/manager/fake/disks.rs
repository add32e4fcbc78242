//! Disks in memory: their tables on the SSDs, what is served of them, and users who wait.

use super::device::Attached;
use super::{Inside, World};
use api::error::{ControlError, Kind};
use api::words::Export;
use datapath;
use records::state::{DiskRecord, PoolRecord, State, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use types::Mode;

#[derive(Default)]
pub struct Disks {
    /// The tables on the SSDs, by path.
    pub tables: BTreeMap<String, Vec<DiskRecord>>,
    /// Disks that are attached, as they are served.
    pub served: BTreeMap<String, DiskRecord>,
    /// Users of exports can wait while a pool is stopped and started.
    pub can_wait: bool,
    /// Caches can be cut and lengthened where they are.
    pub keeps_cache: bool,
    /// The kernel cannot tell users of a block device its new size.
    pub keeps_size: bool,
    /// Volumes and exports whose users wait.
    pub waiting: BTreeSet<(String, String)>,
}

fn refused(path: &str, problem: &str) -> ControlError {
    ControlError::Device { path: path.into(), problem: problem.into(), remedy: "do otherwise".into(), kind: Kind::Conflict }
}

impl World {
    /// As it is read from the SSD.
    pub(super) fn disks_are_known(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&pool.ssd)?;
        let table = inside.disks.tables.get(&pool.ssd).cloned().unwrap_or_default();
        let is_known = |listed: &DiskRecord| disks.iter().any(|disk| (disk.uuid, &disk.pieces) == (listed.uuid, &listed.pieces));
        if table.iter().all(is_known) { Ok(()) } else { Err(refused(&pool.ssd, "it lists a disk that is not known")) }
    }

    pub(super) fn put_table(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&pool.ssd)?;
        inside.disks.tables.insert(pool.ssd.clone(), disks.to_vec());
        Ok(())
    }

    pub(super) fn erase(&self, pool: &PoolRecord, from_bytes: u64, length_bytes: u64) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&pool.ssd)?;
        assert!(pool.disk_room.is_some_and(|room| room.at_bytes <= from_bytes), "the cache is not overwritten");
        let end_bytes = from_bytes + length_bytes;
        let of_pool = inside.saved.disks.iter().filter(|disk| disk.pool == pool.name);
        let is_free = of_pool.flat_map(|disk| &disk.pieces).all(|piece| piece.end_bytes <= from_bytes || end_bytes <= piece.at_bytes);
        assert!(is_free, "no disk is overwritten");
        Ok(())
    }

    pub(super) fn serve_part(&self, disk: &DiskRecord) -> Result<u32, ControlError> {
        let mut inside = self.inside();
        inside.step(&disk.name)?;
        let uuid = *inside.running.get(&disk.pool).expect("disks are attached to running pools only");
        let ssd = inside.devices.iter().find(|(_, device)| device.pool == Some(uuid)).map(|(path, _)| path.clone());
        let ssd = ssd.expect("a running pool has an SSD");
        let listed = inside.disks.tables.get(&ssd).and_then(|table| table.iter().find(|listed| listed.uuid == disk.uuid));
        let has_all = listed.is_some_and(|listed| {
            disk.pieces.iter().zip(&listed.pieces).all(|(piece, has)| piece.at_bytes == has.at_bytes && piece.end_bytes <= has.end_bytes)
                && listed.pieces.len() >= disk.pieces.len()
        });
        assert!(has_all, "the SSD lists what is on record");
        let attached = Attached { id: 0, ssd: None, backing: String::new(), mode: Mode::PassThrough };
        assert!(inside.attached.insert(disk.name.clone(), attached).is_none(), "it was not attached");
        inside.disks.served.insert(disk.name.clone(), disk.clone());
        Ok(512)
    }

    pub(super) fn grow_served(&self, disk: &DiskRecord) -> Result<Vec<String>, ControlError> {
        let mut inside = self.inside();
        inside.step(&disk.name)?;
        let served = inside.disks.served.get_mut(&disk.name).expect("it is attached");
        assert!(served.size_bytes() <= disk.size_bytes(), "nothing is taken away under its users");
        served.clone_from(disk);
        let warning = inside.disks.keeps_size.then(|| "the block device keeps its size".to_owned());
        Ok(warning.into_iter().collect())
    }
}

impl Inside {
    /// No cache is made over what the table lists.
    pub(super) fn may_format(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let mut listed = self.disks.tables.get(&pool.ssd).into_iter().flatten();
        let is_before = |disk: &DiskRecord| pool.disk_room.is_none_or(|room| disk.first_byte() < room.at_bytes);
        if listed.any(is_before) { Err(refused(&pool.ssd, "a disk lies where the cache would be")) } else { Ok(()) }
    }

    /// What is wrong with how disks and volumes are served, of which all on record should be.
    pub fn not_served(&self, state: &State) -> Vec<String> {
        let of_disks = state.disks.iter().filter(|disk| self.running.contains_key(&disk.pool)).map(|disk| {
            let served = self.disks.served.get(&disk.name).map(|served| served.pieces.clone());
            (disk.name.clone(), disk.exports.clone(), served.as_ref() == Some(&disk.pieces))
        });
        let of_volumes = state.volumes.iter().map(|volume| (volume.name.clone(), volume.exports.clone(), true));
        let mut wrong = Vec::new();
        for (name, exports, is_whole) in of_disks.chain(of_volumes) {
            if !self.attached.contains_key(&name) {
                wrong.push(format!("{name} is not attached"));
            } else if !is_whole {
                wrong.push(format!("{name} is not served with its size"));
            }
            let missing = |export: &&Export| !self.exports.contains(&(name.clone(), export.to_string()));
            let too_many =
                self.exports.iter().filter(|(of, word)| *of == name && !exports.iter().any(|export| export.to_string() == *word));
            wrong.extend(too_many.map(|(_, word)| format!("{name} is still offered by {word}")));
            wrong.extend(exports.iter().filter(missing).map(|export| format!("{name} is not offered by {export}")));
        }
        wrong.extend(self.disks.waiting.iter().map(|(name, export)| format!("users of {name} by {export} wait")));
        wrong
    }

    pub(super) fn withdrawn(&mut self, volume: &VolumeRecord, export: &Export, waits: bool) {
        let key = (volume.name.clone(), export.to_string());
        self.exports.remove(&key);
        self.taken_back.push(key.1.clone());
        if waits {
            self.disks.waiting.insert(key);
        }
    }

    /// Nobody waits for the volume any more.
    pub(super) fn nobody_waits(&mut self, volume: &str) {
        self.disks.waiting.retain(|(name, _)| name != volume);
    }
}

impl datapath::Disks for World {
    fn attach_disk(&self, disk: &DiskRecord) -> Result<u32, ControlError> {
        self.serve_part(disk)
    }

    fn grow_disk(&self, disk: &DiskRecord) -> Result<Vec<String>, ControlError> {
        self.grow_served(disk)
    }

    fn check_disks(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        self.disks_are_known(pool, disks)
    }

    fn write_disks(&self, pool: &PoolRecord, disks: &[DiskRecord]) -> Result<(), ControlError> {
        self.put_table(pool, disks)
    }

    fn erase_disk(&self, pool: &PoolRecord, from_bytes: u64, length_bytes: u64) -> Result<(), ControlError> {
        self.erase(pool, from_bytes, length_bytes)
    }
}
