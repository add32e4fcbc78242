//! Serving disks: whatever happens to a command, a disk that is on record is served again, or says why not and is tried again.

use super::super::{Health, Manager, Trouble};
use api::Severity;
use api::error::ControlError;
use datapath::Withdrawal;
use records::state::{DiskRecord, PoolRecord, VolumeRecord};

impl Manager {
    /// Serves a disk of a pool that runs, as it is on record; what is so already stays.
    ///
    /// # Errors
    /// Those exports that could be made are there all the same: somebody may use them.
    pub(super) fn serve_disk(&self, disk: &DiskRecord, pool: &PoolRecord) -> Result<(), ControlError> {
        let name = &disk.name;
        let volume = disk.as_volume(&pool.ssd);
        let was_there = self.volume_attached(name);
        let made = if was_there {
            let warnings = self.data().grow_disk(disk)?;
            let made = self.export_missing(&volume);
            let reach = self.reach_of_size(&volume, &warnings);
            for warning in warnings.into_iter().filter(|_| !reach.has_device) {
                self.events().note(Severity::Warning, name, warning);
            }
            self.set_live_volume(name, |live| live.size_reach = reach.told);
            made
        } else {
            let sector_bytes = self.data().attach_disk(disk)?;
            self.set_live_volume(name, |live| (live.attached, live.sector_bytes) = (true, Some(sector_bytes)));
            self.export_missing(&volume)
        };
        let has_failed = was_there && self.has_failed(name);
        self.set_live_volume(name, |live| {
            live.waits = made.is_err();
            if !has_failed {
                (live.health, live.trouble) = (Health::Running, None);
            }
        });
        made
    }

    /// The same; what is in the way is told, and the disk is tried again by itself.
    pub(super) fn serve_or_tell(&self, disk: &DiskRecord, pool: &PoolRecord) -> Result<(), ControlError> {
        self.serve_disk(disk, pool).inspect_err(|error| {
            // What it lacks is told and shown; who has it open by another export goes on.
            if !self.volume_attached(&disk.name) || self.lacking(&disk.name).is_empty() {
                self.fail_volume(&disk.as_volume(&pool.ssd), error);
            }
            self.set_live_volume(&disk.name, |live| live.waits = true);
        })
    }

    /// A disk that has grown is served with its size, if it is served at all.
    pub(super) fn serve_with_its_size(&self, disk: &DiskRecord, pool: &PoolRecord) -> Result<(), ControlError> {
        if self.volume_attached(&disk.name) { self.serve_or_tell(disk, pool) } else { Ok(()) }
    }

    /// Serves all disks of a pool that has come up, or goes on.
    pub(in crate::manager) fn serve_disks(&self, pool: &str) {
        let Ok(record) = self.pool_record(pool) else { return };
        // Looked up before: the lock is not held while devices are asked.
        let disks = self.memory().state.disks_of(pool);
        match self.data().mend_disks(&record, &disks) {
            Ok(None) => {}
            Ok(Some(told)) => self.events().note(Severity::Warning, pool, told),
            Err(error) => self.events().note(Severity::Warning, pool, format!("the table of its disks was not mended: {error}")),
        }
        for disk in disks {
            // What is in the way is told, and it is tried again.
            drop(self.serve_or_tell(&disk, &record));
        }
    }

    /// Serves disks anew that have failed while their pool goes on; whoever uses them has lost them already.
    pub(in crate::manager) fn renew_failed_disks(&self, pool: &str) -> Result<(), ControlError> {
        for disk in self.disk_volumes(pool).iter().filter(|disk| self.has_failed(&disk.name)) {
            self.abandon_disk(disk, Withdrawal::Forced)?;
            self.data().end_kept(disk);
        }
        Ok(())
    }

    /// Serves a disk that could not be served, if it can be now. Whoever is at it sees to it.
    pub(in crate::manager) fn try_disk(&self, name: &str) {
        let Ok((_claim, disk)) = self.claim_disk(name, "another try to serve it") else { return };
        let Ok(pool) = self.running_pool(&disk.pool) else { return };
        if !self.disk_waits(name) {
            return;
        }
        match self.serve_disk(&disk, &pool) {
            Ok(()) => self.events().note(Severity::Info, name, "the disk is served now"),
            Err(error) => self.set_live_volume(name, |live| live.trouble = Some(Trouble::from(&error))),
        }
    }

    /// Whether a disk is not served as it is on record, and is to be tried again.
    pub(super) fn disk_waits(&self, name: &str) -> bool {
        self.memory().volumes.get(name).is_none_or(|live| live.waits || !live.attached)
    }

    /// Disks that are not served as they should be although their pool runs, with its SSD.
    pub(in crate::manager) fn disks_left_behind(&self) -> Vec<(String, String)> {
        let memory = self.memory();
        let runs = |pool: &str| memory.pools.get(pool).is_some_and(|live| live.health == Health::Running);
        let is_left = |disk: &&DiskRecord| {
            let live = memory.volumes.get(&disk.name);
            live.is_some_and(|live| live.waits || !live.attached && live.health == Health::Failed) && runs(&disk.pool)
        };
        let ssd = |disk: &DiskRecord| memory.state.pool(&disk.pool).map_or(String::new(), |pool| pool.ssd.clone());
        memory.state.disks.iter().filter(is_left).map(|disk| (disk.name.clone(), ssd(disk))).collect()
    }

    /// The pool did not come up, and so its disks do not.
    pub(in crate::manager) fn fail_disks(&self, pool: &PoolRecord, error: &ControlError) {
        let disks = self.memory().state.disks_of(&pool.name);
        for disk in disks {
            self.fail_volume(&disk.as_volume(&pool.ssd), error);
        }
    }

    /// Takes a disk's exports back and detaches it.
    ///
    /// # Errors
    /// Then it is to be served again by the caller.
    pub(super) fn put_away(&self, disk: &VolumeRecord) -> Result<(), ControlError> {
        self.unexport_all(disk)?;
        if self.volume_attached(&disk.name) {
            self.data().detach(disk, false)?;
            self.set_live_volume(&disk.name, |live| live.attached = false);
        }
        Ok(())
    }

    /// Users of the disks wait, where they can, and the disks let the SSD go.
    ///
    /// # Errors
    /// Then [`Manager::serve_disks`] brings back what went.
    pub(in crate::manager) fn suspend_disks(&self, pool: &str) -> Result<(), ControlError> {
        for disk in self.disk_volumes(pool) {
            self.suspend_all(&disk)?;
            if self.volume_attached(&disk.name) {
                self.data().detach(&disk, false)?;
                self.set_live_volume(&disk.name, |live| live.attached = false);
            }
        }
        Ok(())
    }

    /// The SSD was away, and may have lost what users of the disks have not flushed: they must not take the next flush for a success.
    pub(in crate::manager) fn end_disks(&self, pool: &str) -> Result<(), ControlError> {
        self.abandon_disks(pool, Withdrawal::Forced)?;
        self.disk_volumes(pool).iter().for_each(|disk| self.data().end_kept(disk));
        Ok(())
    }

    /// Ends what the exports of disks are, at the daemon's end or with their pool.
    ///
    /// # Errors
    /// The first; the others are ended all the same.
    pub(in crate::manager) fn abandon_disks(&self, pool: &str, how: Withdrawal) -> Result<(), ControlError> {
        let disks = self.disk_volumes(pool);
        let ended: Vec<_> = disks.iter().filter(|disk| self.volume_attached(&disk.name)).map(|disk| self.abandon_disk(disk, how)).collect();
        ended.into_iter().collect()
    }

    fn abandon_disk(&self, disk: &VolumeRecord, how: Withdrawal) -> Result<(), ControlError> {
        self.abandon_exports(disk, how);
        self.data().detach(disk, false)?;
        self.set_live_volume(&disk.name, |live| live.attached = false);
        Ok(())
    }
}
