//! What all rooms of the manager share: the state, the data path, events and jobs, and the questions that are asked of them everywhere. It
//! calls no room.

use super::claims::Claims;
use super::connections::Connections;
use super::insight_saved::Watches;
use super::locks::{Held, Ranked};
use super::*;
use insight::Insight;
use records::jobs::Job;
use records::state::DiskRecord;
use uuid::Uuid;

/// The manager's desk; cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) data: Arc<dyn DataPath>,
    pub(super) memory: Ranked<Memory>,
    pub(super) jobs: Jobs,
    pub(super) events: Events,
    pub(super) live: Live,
    pub(super) state_directory: String,
    pub(super) newest: Ranked<sample::Newest>,
    pub(super) repeats: Ranked<Repeats>,
    pub(super) insight: Ranked<insight::Insight>,
    pub(super) watches: Ranked<insight_saved::Watches>,
    pub(super) connections: Ranked<Connections>,
    pub(super) history: OnceLock<History>,
    /// What new volumes get where nothing else is asked for.
    pub(super) volume_defaults: OnceLock<Options>,
    /// How long a stop may take.
    pub(super) stop_limit: OnceLock<Duration>,
    /// Files that the daemon needs besides its state.
    pub(super) own_files: OnceLock<Vec<String>>,
    /// The stop is a restart.
    pub(super) restarts: OnceLock<()>,
    /// The start under way.
    pub(super) starting: starting::Starting,
    /// The stop under way.
    pub(super) stop_watch: OnceLock<Arc<stop_watch::Watch>>,
    /// Who writes to which SSD what is known of its pool.
    pub(super) copies: copies::Turns,
}

/// What is known now. Everything that must survive is in `state`.
pub(super) struct Memory {
    pub(super) state: State,
    pub(super) store: Box<dyn Store>,
    pub(super) claims: Claims,
    pub(super) pools: BTreeMap<String, LivePool>,
    pub(super) volumes: BTreeMap<String, LiveVolume>,
    /// What may be left of shares that were not added, or could not be taken away.
    pub(super) left_shares: Vec<(VolumeRecord, Protocol)>,
    pub(super) stopping: bool,
    /// The copies of the state on the SSDs may be behind.
    pub(super) records_due: bool,
}

impl Desk {
    /// Where everything that happens is told.
    pub fn live(&self) -> Live {
        self.shared.live.clone()
    }

    /// The number of the latest event; 0 before the first.
    pub fn latest_event(&self) -> u64 {
        self.shared.events.latest()
    }

    /// The events with a number above `after`, oldest first.
    pub fn events_after(&self, after: u64) -> Vec<EventView> {
        self.shared.events.after(after)
    }

    /// How many events there were of each severity since the daemon's start.
    pub fn event_counts(&self) -> [(Severity, u64); 3] {
        self.shared.events.counts()
    }

    /// Whether it is being stopped: nothing new begins.
    pub fn is_stopping(&self) -> bool {
        self.memory().stopping
    }

    /// How many jobs run now.
    pub fn jobs_running(&self) -> usize {
        self.shared.jobs.list().iter().filter(|job| job.is_running()).count()
    }

    pub(in crate::manager) fn data(&self) -> &dyn DataPath {
        &*self.shared.data
    }

    pub(in crate::manager) fn events(&self) -> &Events {
        &self.shared.events
    }

    pub(in crate::manager) fn memory(&self) -> Held<'_, Memory> {
        self.shared.memory.lock()
    }

    /// Changes the state durably: the change is in memory only if it is on disk.
    pub(in crate::manager) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, ControlError> {
        let mut memory = self.memory();
        let mut state = memory.state.clone();
        let result = change(&mut state);
        memory.store.save(&state)?;
        let pools = state.pools != memory.state.pools || state.disks != memory.state.disks;
        let volumes = state.volumes != memory.state.volumes;
        memory.state = state;
        memory.records_due |= pools || volumes;
        drop(memory);
        [(pools, "pools"), (volumes, "volumes")].into_iter().filter(|(changed, _)| *changed).for_each(|(_, what)| self.changed(what));
        Ok(result)
    }

    pub(in crate::manager) fn pool_record(&self, name: &str) -> Result<PoolRecord, ControlError> {
        let unknown = || ControlError::Unknown { named: "pool", name: name.into() };
        self.memory().state.pool(name).cloned().ok_or_else(unknown)
    }

    pub(in crate::manager) fn volume_record(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        let unknown = || ControlError::Unknown { named: "volume", name: name.into() };
        self.memory().state.volume(name).cloned().ok_or_else(unknown)
    }

    /// What exports know of a volume or a disk.
    pub(in crate::manager) fn exported_record(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        self.volume_record(name).or_else(|unknown| {
            let memory = self.memory();
            let disk = memory.state.disk(name).ok_or(unknown)?;
            Ok(disk.as_volume(memory.state.pool(&disk.pool).map_or("", |pool| pool.ssd.as_str())))
        })
    }

    /// "volume" or "disk".
    pub(in crate::manager) fn kind_of(&self, name: &str) -> &'static str {
        if self.is_disk(name) { Named::Disk.word() } else { Named::Volume.word() }
    }

    pub(in crate::manager) fn set_live_volume(&self, name: &str, change: impl FnOnce(&mut LiveVolume)) {
        let mut memory = self.memory();
        change(memory.volumes.entry(name.into()).or_insert_with(|| LiveVolume::new(Health::Starting)));
        drop(memory);
        self.changed("volumes");
    }

    pub(in crate::manager) fn set_live_pool(&self, name: &str, change: impl FnOnce(&mut LivePool)) {
        let mut memory = self.memory();
        change(memory.pools.entry(name.into()).or_insert_with(|| LivePool::new(Health::Starting)));
        drop(memory);
        self.changed("pools");
    }

    pub(in crate::manager) fn changed(&self, what: &'static str) {
        self.shared.live.publish(LiveEvent::Changed(what));
    }

    pub(in crate::manager) fn volume_attached(&self, name: &str) -> bool {
        self.memory().volumes.get(name).is_some_and(|v| v.attached)
    }

    /// A job that nobody watches, for tests and for the stop.
    pub(in crate::manager) fn running_jobs(&self) -> Vec<Arc<Job>> {
        self.shared.jobs.list().into_iter().filter(|j| j.is_running()).collect()
    }

    /// A pool's disks as volumes, for who takes exports back and detaches.
    pub(in crate::manager) fn disk_volumes(&self, pool: &str) -> Vec<VolumeRecord> {
        let memory = self.memory();
        let ssd = memory.state.pool(pool).map_or(String::new(), |pool| pool.ssd.clone());
        memory.state.disks_of(pool).iter().map(|disk| disk.as_volume(&ssd)).collect()
    }

    pub(in crate::manager) fn is_disk(&self, name: &str) -> bool {
        self.memory().state.disk(name).is_some()
    }

    pub(in crate::manager) fn disk_record(&self, name: &str) -> Result<DiskRecord, ControlError> {
        self.memory().state.disk(name).cloned().ok_or_else(|| ControlError::Unknown { named: "disk", name: name.into() })
    }

    /// No volume or disk has the name.
    pub(in crate::manager) fn check_name_is_free(&self, name: &str) -> Result<(), ControlError> {
        let memory = self.memory();
        match (memory.state.volume(name), memory.state.disk(name)) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(ControlError::Taken { named: "volume", name: name.into() }),
            (None, Some(_)) => Err(ControlError::Taken { named: "disk", name: name.into() }),
        }
    }

    pub(in crate::manager) fn running_pool(&self, name: &str) -> Result<PoolRecord, ControlError> {
        let record = self.pool_record(name)?;
        let memory = self.memory();
        let live = memory.pools.get(name);
        match live.map(|l| l.health) {
            Some(Health::Running) => Ok(record),
            Some(Health::Starting) => Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its start" }),
            _ => {
                let trouble = live.and_then(|l| l.trouble.clone());
                let (reason, remedy) = trouble.map_or(("it is being removed".into(), String::new()), |t| (t.problem, t.remedy));
                Err(ControlError::NotRunning { named: "pool", name: name.into(), reason, remedy })
            }
        }
    }

    /// The record of a volume that is attached to its cache.
    pub(in crate::manager) fn running_volume(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        let record = self.volume_record(name)?;
        let memory = self.memory();
        match memory.volumes.get(name) {
            Some(live) if live.attached && live.health == Health::Running => Ok(record),
            Some(live) if live.health == Health::Stopped => {
                let (reason, remedy) = ("it is stopped".into(), format!("start it with `hearth volume start {name}`"));
                Err(ControlError::NotRunning { named: "volume", name: name.into(), reason, remedy })
            }
            live => {
                let trouble = live.and_then(|l| l.trouble.clone());
                let (reason, remedy) = trouble
                    .map_or(("it is being started or removed".into(), "see `hearth volume list`, then try again".into()), |t| {
                        (t.problem, t.remedy)
                    });
                Err(ControlError::NotRunning { named: "volume", name: name.into(), reason, remedy })
            }
        }
    }

    pub(in crate::manager) fn check_exports_free(&self, exports: &[Export]) -> Result<(), ControlError> {
        let state = self.memory().state.clone();
        for export in exports {
            let is_taken = |other: &Export| other.shares_place_with(*export);
            let owner = state.volumes.iter().find(|v| v.exports.iter().any(is_taken));
            let of_disk = || state.disks.iter().find(|disk| disk.exports.iter().any(is_taken));
            let owner = owner.map(|volume| &volume.name).or_else(|| of_disk().map(|disk| &disk.name));
            if let Some(owner) = owner {
                return Err(ControlError::BadOption {
                    option: "--export",
                    problem: format!("{export} is the place of \"{owner}\""),
                    remedy: "choose another one".into(),
                });
            }
        }
        exports.iter().try_for_each(|export| self.data().check_export(*export))
    }

    pub(in crate::manager) fn fail_volume(&self, volume: &VolumeRecord, error: &ControlError) {
        let trouble = Trouble::from(error);
        self.events().note(Severity::Error, &volume.name, format!("the volume is not served: {}", trouble.problem));
        self.data().not_served(volume);
        self.set_live_volume(&volume.name, |live| (live.health, live.trouble) = (Health::Failed, Some(trouble)));
    }

    pub(in crate::manager) fn insight(&self) -> Held<'_, Insight> {
        self.shared.insight.lock()
    }

    pub(in crate::manager) fn connections(&self) -> Held<'_, Connections> {
        self.shared.connections.lock()
    }

    pub(in crate::manager) fn watches(&self) -> Held<'_, Watches> {
        self.shared.watches.lock()
    }

    /// With what names are hashed; `None`: they are shown.
    pub(in crate::manager) fn names_key(&self) -> Result<Option<Uuid>, ControlError> {
        if !self.insight().options().names_hashed {
            return Ok(None);
        }
        let known = self.memory().state.names_key;
        if known.is_some() {
            return Ok(known);
        }
        let fresh = Uuid::new_v4();
        self.change(|state| *state.names_key.get_or_insert(fresh)).map(Some)
    }
}
