//! The copy of a pool's part of the state on its SSD ([`records::on_ssd`]), kept up to date.
//!
//! 1. Save the next serial in the pool's record.
//! 2. Write the copy, with that serial.
//!
//! After a crash in between the state is the newer one, as it is. The copy is written before a volume is attached, and before its options are put in
//! force: nothing becomes dirty that the copy does not tell of. All other changes follow within seconds.
//!
//! A pool that does not run, or has lost its SSD, has its copy as it was; its serial stays. So a state that was refused as older never gets
//! newer by what is changed in it.

use super::Manager;
use api::error::ControlError;
use api::{Health, Severity};
use records::on_ssd::PoolCopy;
use records::state::{PoolRecord, VolumeRecord};

impl Manager {
    /// Attaches a volume to its running pool, whose SSD tells of it first.
    pub(super) fn attach_to_pool(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.write_records(&volume.pool)?;
        self.data().attach(volume)
    }

    /// Puts a copy of what is known of a pool on its SSD, durably, if it has another one. Does nothing for a pool without its SSD.
    pub(super) fn write_records(&self, pool: &str) -> Result<(), ControlError> {
        // One after the other: a copy with a lower serial must not follow.
        let turn = self.shared.copies.turn_of(pool);
        let _turn = turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(copy) = self.copy_to_write(pool) else { return Ok(()) };
        let numbered = self.change(|state| {
            let pool = state.pool_mut(pool)?;
            pool.serial += 1;
            Some(pool.clone())
        })?;
        let Some(record) = numbered else { return Ok(()) };
        self.data().write_records(&record, &copy.encode())?;
        if let Some(live) = self.memory().pools.get_mut(pool) {
            live.copy = Some(copy);
        }
        Ok(())
    }

    /// The same; a failure is told, and what needs the copy tries it again.
    pub(super) fn write_records_or_tell(&self, pool: &str) {
        if let Err(error) = self.write_records(pool) {
            let message = format!("the copy of hearth's state on its SSD is not up to date: {}", error.reason());
            self.events().note(Severity::Warning, pool, message);
        }
    }

    /// The pool has stopped in order: the copy tells what its volumes' devices were like then. Where it cannot be written, whoever takes the pool in
    /// judges them as after a crash.
    pub(super) fn leave_records(&self, pool: &str) {
        let numbered = self.change(|state| {
            let pool = state.pool_mut(pool)?;
            pool.serial += 1;
            Some(pool.clone())
        });
        let Ok(Some(record)) = numbered else { return };
        let Some(copy) = PoolCopy::at_stop(&self.memory().state, pool) else { return };
        if let Err(error) = self.data().write_records_at_rest(&record, &copy.encode()) {
            tracing::warn!(pool, "the copy of hearth's state on the SSD lacks what its volumes' devices are like: {error}");
        }
    }

    /// Brings the copies on all SSDs up to date, if anything has changed since the last time. An SSD that hangs keeps its caller: to be called from a
    /// thread that nobody waits for.
    pub fn write_due_records(&self) {
        let pools: Vec<String> = {
            let mut memory = self.memory();
            if !std::mem::take(&mut memory.records_due) {
                return;
            }
            memory.state.pools.iter().map(|pool| pool.name.clone()).collect()
        };
        for pool in pools {
            // A pool without shards, as while its cache is made anew, has no SSD to write to; its next start writes the copy.
            if !self.data().has_shards(&pool) {
                continue;
            }
            // It may stop meanwhile.
            if let Err(error) = self.write_records(&pool)
                && !self.is_stopping()
                && self.data().has_shards(&pool)
            {
                tracing::warn!(pool, "the copy of hearth's state on the SSD is not up to date: {error}");
                self.memory().records_due = true;
            }
        }
    }

    fn copy_to_write(&self, pool: &str) -> Option<PoolCopy> {
        let memory = self.memory();
        let live = memory.pools.get(pool).filter(|live| live.health == Health::Running)?;
        memory.state.pool(pool).filter(|record| record.degraded.is_none())?;
        let copy = PoolCopy::of(&memory.state, pool)?;
        (live.copy.as_ref() != Some(&copy)).then_some(copy)
    }

    /// Whether the pool was refused because its SSD was used with a newer state: nothing that the state says of it may be acted on.
    pub(super) fn is_older_than_ssd(&self, pool: &str) -> bool {
        self.memory().pools.get(pool).is_some_and(|live| live.state_is_older)
    }

    /// Refuses what would lose data on an SSD of which a newer state knew more.
    pub(super) fn check_state_is_newest(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        if !self.is_older_than_ssd(&pool.name) {
            return Ok(());
        }
        let why = "it may hold dirty data that is not known here".into();
        Err(ControlError::OlderState { path: pool.ssd.clone(), why })
    }
}

/// Whose turn it is to write the copy of a pool.
#[derive(Debug, Default)]
pub(super) struct Turns(std::sync::Mutex<std::collections::BTreeMap<String, std::sync::Arc<std::sync::Mutex<()>>>>);

impl Turns {
    fn turn_of(&self, pool: &str) -> std::sync::Arc<std::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        turns.entry(pool.to_owned()).or_default().clone()
    }
}
