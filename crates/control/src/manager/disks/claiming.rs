//! Records of disks: claimed, checked and saved.

use super::*;

impl Manager {
    pub(in crate::manager) fn save_disk(&self, disk: &DiskRecord) -> Result<(), ControlError> {
        self.change(|state| state.disks.iter_mut().filter(|other| other.name == disk.name).for_each(|other| other.clone_from(disk)))
    }

    /// Whether the disks of a pool may be changed: its SSD lists none that is not on record as it is there, unless a change was cut short. A state
    /// from before the disk would give its room away.
    pub(in crate::manager) fn check_table(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let (disks, is_changing) = {
            let memory = self.memory();
            (memory.state.disks_of(&pool.name), memory.state.disk_changes.contains(&pool.name))
        };
        if is_changing { Ok(()) } else { self.data().check_disks(pool, &disks) }
    }

    /// Claims a disk and its pool, and gives the disk as it is then.
    pub(in crate::manager) fn claim_disk(&self, name: &str, doing: &'static str) -> Result<(Claim, DiskRecord), ControlError> {
        let pool = self.disk_record(name)?.pool;
        let claim = self.claim(&[(Named::Pool, &pool), (Named::Volume, name)], doing)?;
        let disk = self.disk_record(name)?;
        if disk.pool != pool {
            return Err(ControlError::Claimed { named: "disk", name: name.into(), doing: "its creation in another pool" });
        }
        Ok((claim, disk))
    }
}
