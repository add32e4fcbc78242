//! The SSD of a pool is blank when the pool starts: a local disk of a cloud's machine after a stop, or one that was wiped.
//!
//! Where nothing can have been dirty, and a person has chosen so, the cache is made anew there, by the steps of a move of the room for disks:
//!
//! | made anew | after a crash here, the start |
//! |---|---|
//! | 1. save another UUID, the phase `reformatting`, and that all caches are void | goes on with 2 if it is still blank, or half made |
//! | 2. format it | starts it |
//!
//! Never a device with anything on it, nor one that is not the pool's: it must have the pool's name for it and, where it tells who it is, be the same
//! or stand at a path that names the place.

use super::Manager;
use super::pools::device;
use api::Severity;
use api::error::{ControlError, Kind};
use records::recognise::{Match, hardware};
use records::state::{OnBlankSsd, PoolPhase, PoolRecord, VolumeRecord};
use uuid::Uuid;

/// Directories of names that belong to a place or a device, not to an order of discovery.
const STABLE: [&str; 3] = ["/dev/disk/by-path/", "/dev/disk/by-id/", "/dev/mapper/"];

impl Manager {
    /// Step 3 of a move of the room, also for a start that finds it half done. The pool is not running.
    ///
    /// Gives the pool with its SSD where that is now.
    pub(in crate::manager) fn reformat(&self, pool: &PoolRecord, former: Uuid) -> Result<PoolRecord, ControlError> {
        let carries_it = |ssd: &str| {
            let carries = self.data().examine_ssd(ssd).map(|facts| facts.pool);
            carries.map(|uuid| uuid == Some(former) || uuid == Some(pool.uuid))
        };
        let is_there = carries_it(&pool.ssd).unwrap_or(false);
        // It may have another name now. Other devices are not asked without need: one of them may be our own, whose users wait.
        let find = || self.data().find_ssd(pool.uuid).or_else(|| self.data().find_ssd(former));
        let found = if is_there { None } else { find() };
        let pool = &PoolRecord { ssd: found.unwrap_or_else(|| pool.ssd.clone()), ..pool.clone() };
        let is_begun = pool.on_blank_ssd == OnBlankSsd::Make && self.memory().state.disks_of(&pool.name).is_empty();
        if !(carries_it(&pool.ssd)? || is_begun && self.has_blank_ssd(pool)) {
            let remedy =
                format!("make a new cache for it with `hearth pool replace {} --ssd {} --force`: its disks stay", pool.name, pool.ssd);
            let problem = "its new cache was being made when hearth ended, and it does not carry this pool now".to_string();
            return Err(crate::manager::pools::device(&pool.ssd, problem, remedy, Kind::Conflict));
        }
        let disks = self.memory().state.disks_of(&pool.name);
        let pool = &pool.clone().formatted(self.data().format(pool)?.not_discarded);
        self.data().write_disks(pool, &disks)?;
        self.change(|state| {
            if let Some(now) = state.pool_mut(&pool.name) {
                now.ssd.clone_from(&pool.ssd);
                now.spare.clone_from(&pool.spare);
            }
        })?;
        Ok(pool.clone())
    }

    /// The pool with its cache about to be made anew, if its SSD is blank and that is to be done; `None` if it is not blank.
    ///
    /// # Errors
    /// If it is blank, and a person has to say what is to be done.
    pub(super) fn with_blank_ssd(&self, pool: &PoolRecord, volumes: &[VolumeRecord]) -> Result<Option<PoolRecord>, ControlError> {
        if !self.has_blank_ssd(pool) {
            return Ok(None);
        }
        self.check_may_be_made(pool, volumes)?;
        let (former, uuid) = (pool.uuid, Uuid::new_v4());
        let made = self.change(|state| {
            let record = state.pool_mut(&pool.name)?;
            (record.uuid, record.session, record.degraded) = (uuid, 0, None);
            record.phase = PoolPhase::Reformatting { former };
            let record = record.clone();
            for volume in state.volumes.iter_mut().filter(|volume| volume.pool == pool.name) {
                (volume.cache_stale, volume.stopped_clean) = (true, false);
            }
            Some(record)
        })?;
        let message = format!("its SSD {} is blank: a new cache is made there (nothing of the old one was dirty)", pool.ssd);
        self.events().note(Severity::Warning, &pool.name, message);
        Ok(made)
    }

    /// Whether the device at the pool's path is free and blank.
    pub(super) fn has_blank_ssd(&self, pool: &PoolRecord) -> bool {
        let Ok(facts) = self.data().examine_ssd(&pool.ssd) else { return false };
        let may_be = facts.pool.is_none() && facts.signature.is_none() && facts.in_use.is_none();
        may_be && self.data().is_blank(&pool.ssd).unwrap_or(false)
    }

    /// Whether the cache may be made anew on the blank device at the pool's path, and a person has chosen so.
    ///
    /// # Errors
    /// With what is to be done, if not.
    pub(super) fn check_may_be_made(&self, pool: &PoolRecord, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
        let (name, ssd) = (&pool.name, &pool.ssd);
        let refused = |problem: String, remedy: String| Err(device(ssd, problem, remedy, Kind::Conflict));
        let reconnect = format!("reconnect the right SSD and start the pool with `hearth pool start {name}`");
        if let Some(volume) = volumes.iter().find(|volume| volume.may_have_dirty) {
            let problem =
                format!("it is blank: it was wiped, or is another one; dirty data of the volume \"{}\" was on the pool's SSD", volume.name);
            let remedy = format!(
                "{reconnect}; if that data is lost for good, make a new cache with `hearth pool replace {name} --ssd {ssd} --drop-dirty`"
            );
            return refused(problem, remedy);
        }
        if let Some(disk) = self.memory().state.disks_of(name).first() {
            let problem = format!("it is blank: it was wiped, or is another one; the disk \"{}\" was on the pool's SSD", disk.name);
            let remedy = format!(
                "{reconnect}; if that is lost for good, remove its disks with `hearth disk remove`, and make a new cache with \
                 `hearth pool replace {name} --ssd {ssd}`"
            );
            return refused(problem, remedy);
        }
        let replace = format!("make a new cache with `hearth pool replace {name} --ssd {ssd}`: nothing of the old one was dirty");
        if let Some(why) = self.is_another_ssd(pool) {
            return refused(format!("it is blank, and another device: {why}"), format!("{reconnect}; or {replace}"));
        }
        if pool.on_blank_ssd == OnBlankSsd::Stop {
            let remedy = format!("{replace}; `hearth pool set {name} --on-blank-ssd make` has that done by itself at each start");
            return refused("it is blank: it was wiped, or is another one".into(), remedy);
        }
        Ok(())
    }

    /// What shows that the device at the pool's path is not the one that was there.
    fn is_another_ssd(&self, pool: &PoolRecord) -> Option<String> {
        if STABLE.iter().any(|directory| pool.ssd.starts_with(directory)) {
            return None;
        }
        let now = self.data().examine_ssd(&pool.ssd).ok()?.identity.fixed;
        match hardware(&pool.ssd_identity, &now) {
            Match::Other(why) => Some(why),
            Match::Same | Match::Unknown => None,
        }
    }
}
