//! Carries out actions: the one place where the state, the data path and the jobs meet.
//!
//! # How concurrent requests stay apart
//! An operation first *claims* the names it changes (`claims.rs`). A second operation on a claimed name is refused at once ("busy"), it
//! does not wait. What is read before the claim may be another's by then. The lock over [`Memory`] is held for looking things up and for one save of the state, never
//! during a call to the data path. So listing and counters answer while a destage runs for hours.
//!
//! # How a crash in the middle is survived
//! Every operation is a row of durable steps (saves of the state, changes of the SSD) ordered so that a start after a
//! crash between any two of them finishes or undoes it. The rows stand at the head of `pools.rs` and
//! `volumes.rs`; `start.rs` is the other half.

mod actions;
mod advice;
mod advice_pool;
mod attach;
#[cfg(test)]
mod attach_late_tests;
#[cfg(test)]
mod attach_tests;
mod blank_ssd;
mod check;
mod choosing;
mod claims;
mod condition;
mod connect;
mod connections;
mod cooling;
pub mod copies;
mod desk;
mod devices;
mod disks;
mod exports;
mod find;
mod flash;
mod grow;
mod guard;
mod import;
mod insight_saved;
mod known;
mod loads;
mod locks;
mod new_exports;
mod objects;
mod own_ground;
pub mod past;
mod places;
mod policies;
mod pool_start;
pub(crate) mod pools;
pub mod preload;
mod preload_objects;
mod rename;
mod replace;
mod rescue;
mod resume;
mod sample;
mod server_names;
pub mod sessions;
pub mod share_watch;
mod shares;
mod single;
pub mod stamps;
pub mod start;
mod starting;
mod stop;
pub mod stop_watch;
mod strayed;
mod stream_rules;
mod verdict;
mod views;
mod volumes;
pub mod waiting;
mod watch;
mod why;
mod why_told;
mod work;

#[cfg(test)]
mod blank_ssd_tests;
#[cfg(test)]
mod connect_tests;
#[cfg(test)]
mod dead_device_tests;
#[cfg(test)]
mod disk_fault_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod every_io;
#[cfg(test)]
mod every_io_upgrade;
#[cfg(test)]
mod export_tests;
#[cfg(any(test, feature = "fake"))]
#[allow(missing_docs)] // For tests only.
pub mod fake;
#[cfg(test)]
mod grow_tests;
#[cfg(test)]
mod import_tests;
#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod known_tests;
#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod lost_ssd_tests;
#[cfg(test)]
mod modelled;
#[cfg(test)]
mod older_state_tests;
#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod preload_tests;
#[cfg(test)]
mod rename_tests;
#[cfg(test)]
mod rescue_tests;
#[cfg(test)]
mod right_disk_tests;
#[cfg(test)]
mod shares_tests;
#[cfg(test)]
mod spare_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod units_tests;
#[cfg(test)]
mod wording_tests;

use crate::repeats::Repeats;
use ::history::History;
use api::error::ControlError;
use api::names::Named;
use api::options::{Options, OptionsPatch};
use api::words::{Export, OnRestart};
use api::{EventView, Health, Severity};
use claims::{Claim, Claims};
use condition::{LivePool, LiveVolume, Trouble};
use datapath::figures::Refused;
use datapath::{DataPath, Notice};
pub use desk::Desk;
use desk::{Memory, Shared};
use locks::{Rank, Ranked};
use records::events::Events;
use records::jobs::Jobs;
use records::live::{Live, LiveEvent};
use records::on_ssd::PoolCopy;
use records::state::{PoolRecord, State, VolumeRecord};
use records::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use targets::Protocol;

/// The manager; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Manager {
    desk: Desk,
}

/// What the rooms share is reached through the desk.
impl Deref for Manager {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl Manager {
    /// A manager of the state in `store`, which is read now. Nothing is started: see [`Manager::start`].
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn open(data: Arc<dyn DataPath>, mut store: Box<dyn Store>, state_directory: &std::path::Path) -> Result<Manager, ControlError> {
        let loaded = store.load()?;
        let live = Live::default();
        let events = Events::new(live.clone());
        if let Some(warning) = loaded.warning {
            events.note(api::Severity::Error, "state", warning);
        }
        let pools = loaded.state.pools.iter().map(|p| (p.name.clone(), LivePool::new(Health::Starting))).collect();
        let volumes = loaded.state.volumes.iter().map(|v| (v.name.clone(), LiveVolume::new(Health::Starting))).collect();
        let memory = Memory {
            state: loaded.state,
            store,
            claims: Claims::default(),
            pools,
            volumes,
            left_shares: Vec::new(),
            stopping: false,
            records_due: false,
        };
        let state_directory = state_directory.display().to_string();
        let jobs = Jobs::new(live.clone());
        let shared = Shared {
            data,
            memory: Ranked::new(Rank::Memory, memory),
            jobs,
            events,
            live,
            state_directory,
            newest: Ranked::new(Rank::Newest, Default::default()),
            repeats: Ranked::new(Rank::Repeats, Default::default()),
            insight: Ranked::new(Rank::Insight, Default::default()),
            watches: Ranked::new(Rank::Watches, Default::default()),
            connections: Ranked::new(Rank::Connections, Default::default()),
            history: OnceLock::new(),
            volume_defaults: OnceLock::new(),
            stop_limit: OnceLock::new(),
            own_files: OnceLock::new(),
            restarts: OnceLock::new(),
            starting: starting::Starting::default(),
            stop_watch: OnceLock::new(),
            copies: copies::Turns::default(),
        };
        Ok(Manager { desk: Desk { shared: Arc::new(shared) } })
    }

    /// Sets what new volumes get where nothing else is asked for; once, before anything is asked.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn set_volume_defaults(&self, defaults: &OptionsPatch) -> Result<(), ControlError> {
        let options = defaults.apply(&Options::default())?;
        self.shared.volume_defaults.get_or_init(|| options);
        Ok(())
    }

    /// Sets which files the daemon needs besides its state, such as its configuration: no volume is attached below them. Once, before
    /// anything is asked.
    pub fn set_own_files(&self, files: impl IntoIterator<Item = std::path::PathBuf>) {
        self.shared.own_files.get_or_init(|| files.into_iter().map(|file| file.display().to_string()).collect());
    }

    /// Takes in what the data path reports by itself. Must be called from a thread that may wait for the disk.
    pub fn notice(&self, notice: &Notice) {
        self.take_notice(notice);
    }

    /// The same of all that came meanwhile.
    pub fn notices(&self, notices: &[Notice]) {
        self.take_notices(notices);
    }
}
