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
mod connect;
pub mod copies;
mod devices;
mod disks;
mod exports;
mod find;
mod grow;
mod guard;
mod import;
mod insight_saved;
mod known;
mod loads;
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
mod tests;
#[cfg(test)]
mod wording_tests;

use crate::repeats::Repeats;
use ::history::History;
use api::error::ControlError;
use api::names::Named;
use api::options::{Options, OptionsPatch};
use api::words::{Export, OnRestart};
use api::{Action, Answer, Done, EventView, Health, Severity};
use claims::{Claim, Claims};
use datapath::figures::Refused;
use datapath::{DataPath, Notice};
use records::events::Events;
use records::jobs::Jobs;
use records::live::{Live, LiveEvent};
use records::on_ssd::PoolCopy;
use records::state::{PoolRecord, State, VolumeRecord};
use records::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use targets::Protocol;

/// The manager; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
}

struct Shared {
    data: Arc<dyn DataPath>,
    memory: Mutex<Memory>,
    jobs: Jobs,
    events: Events,
    live: Live,
    state_directory: String,
    newest: Mutex<sample::Newest>,
    repeats: Mutex<Repeats>,
    insight: Mutex<insight::Insight>,
    watches: Mutex<insight_saved::Watches>,
    connections: Mutex<connect::Connections>,
    history: OnceLock<History>,
    /// What new volumes get where nothing else is asked for.
    volume_defaults: OnceLock<Options>,
    /// How long a stop may take.
    stop_limit: OnceLock<Duration>,
    /// Files that the daemon needs besides its state.
    own_files: OnceLock<Vec<String>>,
    /// The stop is a restart.
    restarts: OnceLock<()>,
    /// The start under way.
    starting: starting::Starting,
    /// The stop under way.
    stop_watch: OnceLock<Arc<stop_watch::Watch>>,
    /// Who writes to which SSD what is known of its pool.
    copies: copies::Turns,
}

/// What is known now. Everything that must survive is in `state`.
struct Memory {
    state: State,
    store: Box<dyn Store>,
    claims: Claims,
    pools: BTreeMap<String, LivePool>,
    volumes: BTreeMap<String, LiveVolume>,
    /// What may be left of shares that were not added, or could not be taken away.
    left_shares: Vec<(VolumeRecord, Protocol)>,
    stopping: bool,
    /// The copies of the state on the SSDs may be behind.
    records_due: bool,
}

/// A pool's condition.
#[derive(Clone, Debug)]
struct LivePool {
    health: Health,
    trouble: Option<Trouble>,
    recovery: Vec<String>,
    size_bytes: u64,
    /// Its RAM tier, if it is not the one asked for.
    ram_bytes: Option<u64>,
    damaged: Vec<u32>,
    /// As found by the pool's start, by number of the volume.
    dirty_bytes: BTreeMap<u32, u64>,
    /// The start has missed its SSD.
    missed: bool,
    /// What its SSD is known to say of it.
    copy: Option<PoolCopy>,
    /// Its SSD was used with a newer state than this.
    state_is_older: bool,
}

impl LivePool {
    fn new(health: Health) -> LivePool {
        LivePool {
            health,
            trouble: None,
            recovery: Vec::new(),
            size_bytes: 0,
            ram_bytes: None,
            damaged: Vec::new(),
            dirty_bytes: BTreeMap::new(),
            missed: false,
            copy: None,
            state_is_older: false,
        }
    }
}

/// A volume's condition.
#[derive(Clone, Debug)]
struct LiveVolume {
    health: Health,
    trouble: Option<Trouble>,
    attached: bool,
    /// It starts by itself when its backing device is there as it must be.
    waits: bool,
    /// Of a disk: its sector size, since it was served.
    sector_bytes: Option<u32>,
    /// How large its backing device is, if that is not the volume's size.
    backing_bytes: Option<u64>,
    /// What its backing device refuses lately.
    refused: Option<Refused>,
    /// The daemon ends, and the device that it is attached to leads past hearth since.
    left: Option<records::state::Kept>,
    /// It was told that there is swap on the device that it is attached to.
    swap_told: bool,
    /// What cannot be seen of that device lately, and was told.
    unseen: BTreeSet<&'static str>,
    exports: BTreeMap<Export, String>,
    /// Exports that could not be made, and why. They are tried again.
    lacking: BTreeMap<Export, Trouble>,
    on_restart: BTreeMap<Export, OnRestart>,
    export_notes: BTreeMap<Export, String>,
    /// Who has its present size, and who gets it when, since it was last changed.
    size_reach: Vec<String>,
    stable_path: Option<String>,
    /// Why its block device has no stable name.
    nameless: Option<Trouble>,
    shares: BTreeMap<Protocol, shares::LiveShare>,
}

impl LiveVolume {
    /// The block device that it is offered as, and by which export.
    fn block_device(&self) -> Option<(Export, &str)> {
        self.exports.iter().find(|(export, _)| export.is_device()).map(|(export, place)| (*export, place.as_str()))
    }

    fn new(health: Health) -> LiveVolume {
        LiveVolume {
            health,
            trouble: None,
            attached: false,
            waits: false,
            sector_bytes: None,
            backing_bytes: None,
            refused: None,
            left: None,
            swap_told: false,
            unseen: BTreeSet::new(),
            exports: BTreeMap::new(),
            lacking: BTreeMap::new(),
            on_restart: BTreeMap::new(),
            export_notes: BTreeMap::new(),
            size_reach: Vec::new(),
            stable_path: None,
            nameless: None,
            shares: BTreeMap::new(),
        }
    }
}

/// What is wrong and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Trouble {
    problem: String,
    remedy: String,
}

impl From<&ControlError> for Trouble {
    fn from(error: &ControlError) -> Trouble {
        Trouble { problem: error.reason(), remedy: error.remedy() }
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
            memory: Mutex::new(memory),
            jobs,
            events,
            live,
            state_directory,
            newest: Mutex::default(),
            repeats: Mutex::default(),
            insight: Mutex::default(),
            watches: Mutex::default(),
            connections: Mutex::default(),
            history: OnceLock::new(),
            volume_defaults: OnceLock::new(),
            stop_limit: OnceLock::new(),
            own_files: OnceLock::new(),
            restarts: OnceLock::new(),
            starting: starting::Starting::default(),
            stop_watch: OnceLock::new(),
            copies: copies::Turns::default(),
        };
        Ok(Manager { shared: Arc::new(shared) })
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

    /// Carries out one action. May block for as long as the devices need: call it from a thread that may wait.
    ///
    /// # Errors
    /// Every error says what to do; nothing is half done that a later call or start would not finish or undo.
    pub fn handle(&self, action: Action) -> Result<Answer, ControlError> {
        let done = |()| Answer::Done(Done::default());
        let told = |told: String| Answer::Done(Done::so(told));
        match action {
            Action::Daemon => Ok(Answer::Daemon(self.daemon_view())),
            Action::PoolCreate(create) => self.pool_create(&create).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolList => Ok(Answer::Pools(self.pool_views())),
            Action::PoolShow { name } => self.pool_view(&name).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolSet { name, set } => self.pool_set(&name, &set).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolReplace { name, replace } => self.pool_replace(&name, &replace).map(|j| Answer::Job(Box::new(j))),
            Action::PoolStart { name } => self.pool_start(&name).map(told),
            Action::PoolDestroy { name, force } => {
                let told = self.file_left_by(&name);
                self.pool_destroy(&name, force).map(|()| Answer::Done(told.map_or_else(Done::default, Done::so)))
            }
            Action::VolumeAdd(add) => self.volume_add(&add).map(|v| Answer::Volume(Box::new(v))),
            Action::Attach(attach) => self.attach_live(&attach).map(told),
            Action::Detach { name } => self.detach_live(&name).map(told),
            Action::VolumeList => Ok(Answer::Volumes(self.volume_views())),
            Action::VolumeShow { name } => self.volume_view(&name).map(|v| Answer::Volume(Box::new(v))),
            Action::VolumeSet { name, set } => self.volume_set(&name, &set),
            Action::VolumeRename { name, to } => self.volume_rename(&name, &to).map(told),
            Action::VolumeStart { name } => self.volume_start(&name).map(told),
            Action::VolumeStop { name, give_up, force } => self.volume_stop(&name, give_up, force).map(told),
            Action::VolumeDropCache { name } => self.volume_drop_cache(&name).map(told),
            Action::VolumeGrow { name } => self.volume_grow(&name).map(told),
            Action::VolumeDestage { name } => self.volume_destage(&name).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeWarm { name, warm } => self.volume_warm(&name, warm).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeRemove { name, drop_dirty } => self.volume_remove(&name, drop_dirty).map(|j| Answer::Job(Box::new(j))),
            Action::ShareAdd { volume, add } => self.share_add(&volume, &add).map(|s| Answer::Share(Box::new(s))),
            Action::ShareList => Ok(Answer::Shares(self.share_views())),
            Action::ShareShow { volume, protocol } => self.share_view(&volume, protocol).map(|s| Answer::Share(Box::new(s))),
            Action::ShareRemove { volume, protocol, force } => self.share_remove(&volume, protocol, force).map(told),
            Action::DiskCreate(create) => self.disk_create(&create),
            Action::DiskList => Ok(Answer::Disks(self.disk_views())),
            Action::DiskShow { name } => self.disk_view(&name).map(|d| Answer::Disk(Box::new(d))),
            Action::DiskSet { name, set } => self.disk_set(&name, &set),
            Action::DiskRemove { name, lose_content } => self.disk_remove(&name, lose_content).map(done),
            Action::PoolLook(import) => self.pool_look(&import).map(|found| Answer::PoolFound(Box::new(found))),
            Action::PoolImport(import) => self.pool_import(&import).map(|p| Answer::Pool(Box::new(p))),
            Action::PoolTakeBack { name } => self.pool_take_back(&name).map(|j| Answer::Job(Box::new(j))),
            Action::StatsAll => Ok(Answer::StatsAll(self.stats_all())),
            Action::Stats { name } => self.stats(&name),
            Action::JobList => Ok(Answer::Jobs(self.shared.jobs.list().iter().map(|j| j.view()).collect())),
            Action::JobShow { id } => self.shared.jobs.get(id).map(|j| Answer::Job(Box::new(j.view()))),
            Action::JobCancel { id } => self.shared.jobs.get(id).map(|job| {
                job.cancel();
                Answer::Job(Box::new(job.view()))
            }),
            Action::JobResume { id } => self.job_resume(id).map(|j| Answer::Job(Box::new(j))),
            Action::PoolCheck { name } => self.pool_check(&name).map(|j| Answer::Job(Box::new(j))),
            Action::VolumeWhy { name, start_bytes, length_bytes } => {
                self.volume_why(&name, start_bytes, length_bytes).map(|why| Answer::Why(Box::new(why)))
            }
            Action::VolumeMap { name, start_bytes, end_bytes, cells } => {
                self.volume_map(&name, start_bytes, end_bytes, cells).map(|map| Answer::Map(Box::new(map)))
            }
            Action::AnalysisStart(start) => self.analysis_start(&start).map(|view| Answer::Analysis(Box::new(view))),
            Action::AnalysisList => Ok(Answer::Analyses(self.analysis_views())),
            Action::AnalysisShow { name } => self.analysis_view(&name).map(|view| Answer::Analysis(Box::new(view))),
            Action::AnalysisStop { name } => self.analysis_stop(&name).map(|view| Answer::Analysis(Box::new(view))),
            Action::AnalysisForget { name } => self.analysis_forget(&name).map(done),
            Action::StreamList { name } => self.streams(name.as_deref()).map(Answer::Streams),
            Action::StreamRuleList => Ok(Answer::StreamRules(Box::new(self.stream_rules()))),
            Action::StreamRuleAdd(rule) => self.stream_rule_add(&rule).map(|view| Answer::StreamRule(Box::new(view))),
            Action::StreamRuleRemove { id } => self.stream_rule_remove(id).map(done),
            Action::AdviceApply { id, dry_run, no_preload } => {
                self.advice_apply(id, dry_run, no_preload).map(|done| Answer::AdviceApplied(Box::new(done)))
            }
            Action::AdviceVerify { id } => self.advice_verify(id).map(|told| Answer::AdviceVerified(Box::new(told))),
            Action::ApplicationList { volume, logins } => self.applications(volume.as_deref(), logins).map(Answer::Applications),
            Action::ApplicationConnect { id, connect } => self.app_connect(id, &connect).map(|done| Answer::Connected(Box::new(done))),
            Action::ApplicationDisconnect { id, volume } => self.app_disconnect(id, volume.as_deref()).map(told),
            Action::ApplicationDiscover { volume } => self.discover_as_job(&volume).map(|job| Answer::Job(Box::new(job))),
            Action::ObjectList(query) => self.objects(&query).map(Answer::Objects),
            Action::ObjectPreload(asked) => self.object_preload(&asked).map(|done| Answer::Preload(Box::new(done))),
            Action::ObjectSet(set) => self.object_set(&set).map(|done| Answer::PolicyDone(Box::new(done))),
            Action::Advise(ask) => self.advise(&ask).map(Answer::Advice),
            Action::AdviceShow { id } => self.advice(id).map(|advice| Answer::AdviceOne(Box::new(advice))),
            Action::Sample => Ok(Answer::Sample(self.sample())),
            Action::History(query) => self.history(&query).map(|h| Answer::History(Box::new(h))),
            Action::DeviceList => self.device_list().map(Answer::Devices),
            Action::DeviceExamine(examine) => self.device_examine(&examine.path).map(|d| Answer::Device(Box::new(d))),
            Action::Events { after } => Ok(Answer::Events(self.shared.events.after(after))),
        }
    }

    /// Takes in what the data path reports by itself. Must be called from a thread that may wait for the disk.
    pub fn notice(&self, notice: &Notice) {
        self.take_notice(notice);
    }

    /// The same of all that came meanwhile.
    pub fn notices(&self, notices: &[Notice]) {
        self.take_notices(notices);
    }

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

    fn data(&self) -> &dyn DataPath {
        &*self.shared.data
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Also after a holder has panicked: what it holds changes as a whole or not at all.
        self.shared.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state durably: the change is in memory only if it is on disk.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, ControlError> {
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

    fn pool_record(&self, name: &str) -> Result<PoolRecord, ControlError> {
        let unknown = || ControlError::Unknown { named: "pool", name: name.into() };
        self.memory().state.pool(name).cloned().ok_or_else(unknown)
    }

    fn volume_record(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        let unknown = || ControlError::Unknown { named: "volume", name: name.into() };
        self.memory().state.volume(name).cloned().ok_or_else(unknown)
    }

    /// What exports know of a volume or a disk.
    fn exported_record(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        self.volume_record(name).or_else(|unknown| {
            let memory = self.memory();
            let disk = memory.state.disk(name).ok_or(unknown)?;
            Ok(disk.as_volume(memory.state.pool(&disk.pool).map_or("", |pool| pool.ssd.as_str())))
        })
    }

    /// "volume" or "disk".
    fn kind_of(&self, name: &str) -> &'static str {
        if self.is_disk(name) { Named::Disk.word() } else { Named::Volume.word() }
    }

    fn set_live_volume(&self, name: &str, change: impl FnOnce(&mut LiveVolume)) {
        let mut memory = self.memory();
        change(memory.volumes.entry(name.into()).or_insert_with(|| LiveVolume::new(Health::Starting)));
        drop(memory);
        self.changed("volumes");
    }

    fn set_live_pool(&self, name: &str, change: impl FnOnce(&mut LivePool)) {
        let mut memory = self.memory();
        change(memory.pools.entry(name.into()).or_insert_with(|| LivePool::new(Health::Starting)));
        drop(memory);
        self.changed("pools");
    }

    fn changed(&self, what: &'static str) {
        self.shared.live.publish(LiveEvent::Changed(what));
    }

    fn volume_attached(&self, name: &str) -> bool {
        self.memory().volumes.get(name).is_some_and(|v| v.attached)
    }
}
