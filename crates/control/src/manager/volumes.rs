//! Volumes: add, set, remove.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | add | after a crash here, the start |
//! |---|---|
//! | 1. save the volume, its number taken for good, `may_have_dirty` if it is write-back | brings it up: the volume is there |
//!
//! If attaching or exporting fails, the record is taken out again; its number stays taken, so what the log may hold under
//! it is never taken for a later volume's.
//!
//! | set to write-back | after a crash here, the start |
//! |---|---|
//! | 1. save options and `may_have_dirty` together, then tell the engine | runs in write-back |
//!
//! | set from write-back | after a crash here, the start |
//! |---|---|
//! | 1. save the new options, keep `may_have_dirty`; tell the engine, destage | runs in the new mode, and destages what is dirty |
//! | 2. nothing is dirty: save without `may_have_dirty` | – |
//!
//! | remove | after a crash here, the start |
//! |---|---|
//! | 0. destage with the exports up, take the exports back, destage the rest | the volume is there as before, with less dirty |
//! | 1. save it as `removing` (`dropping` if dirty data is to be lost) | goes on with 2 (after `removing`: destages first) |
//! | 2. detach and forget | the same |
//! | 3. save without it | – |

use super::pools::device;
use super::{LiveVolume, Manager, known, verdict};
use api::error::{ControlError, Kind};
use api::human;
use api::names::{self, Named};
use api::options::Options;
use api::words::Export;
use api::{Answer, Done, Health, JobView, Severity, VolumeAdd, VolumeSet, VolumeView};
use datapath::DeviceFacts;
use datapath::sectors;
use records::jobs::Work;
use records::state::{BackingIdentity, PoolRecord, VolumePhase, VolumeRecord};
use types::{BLOCK_BYTES, Mode, OnSsdLoss, VOLUME_BYTES_MAX, VOLUMES_MAX};
use uuid::Uuid;

impl Manager {
    pub(super) fn volume_add(&self, add: &VolumeAdd) -> Result<VolumeView, ControlError> {
        names::check(Named::Volume, &add.name)?;
        let options = add.options.apply(self.shared.volume_defaults.get_or_init(Options::default))?;
        let exports = unique_exports(&add.exports)?;
        check_tls_names(&options, &exports)?;
        let _claim = self.claim_new_volume(&add.name, Some(&add.pool))?;
        self.check_name_is_free(&add.name)?;
        let pool = self.running_pool(&add.pool)?;
        self.check_exports_free(&exports)?;
        if self.memory().state.volumes_of(&pool.name).count() >= VOLUMES_MAX {
            let remedy = "add it to another pool".to_string();
            return Err(ControlError::BadCombination(format!("the pool \"{}\" has {VOLUMES_MAX} volumes, the maximum", pool.name), remedy));
        }
        let facts = self.check_backing(&add.backing, &options, None)?;
        let sector_bytes = sectors::chosen(&add.backing, add.sector_bytes, &facts)?;
        let record = self.save_new_volume(add, &pool, options, exports, (facts.identity, sector_bytes))?;
        if let Err(error) = self.offer(&record) {
            self.undo_add(&record);
            return Err(error);
        }
        self.events().note(Severity::Info, &record.name, format!("volume added over {}", record.backing));
        self.warn_of_openers(&record.name, &record.backing);
        self.volume_view(&record.name)
    }

    fn save_new_volume(
        &self,
        add: &VolumeAdd,
        pool: &PoolRecord,
        options: Options,
        exports: Vec<Export>,
        (identity, sector_bytes): (BackingIdentity, u32),
    ) -> Result<VolumeRecord, ControlError> {
        let uuid = Uuid::new_v4();
        let saved = self.change(|state| {
            let pool = state.pool_mut(&pool.name)?;
            let record = VolumeRecord {
                name: add.name.clone(),
                uuid,
                pool: pool.name.clone(),
                id: pool.next_volume_id,
                backing: add.backing.clone(),
                size_bytes: identity.size_bytes / u64::from(sector_bytes) * u64::from(sector_bytes),
                sector_bytes: Some(sector_bytes),
                may_have_dirty: options.mode == Mode::WriteBack,
                options,
                exports,
                phase: VolumePhase::Ready,
                identity,
                stopped_clean: false,
                cache_stale: false,
                past: Vec::new(),
                stopped: false,
                noted: Vec::new(),
                rules: Vec::new(),
                connections: Vec::new(),
                shares: Vec::new(),
                attachment: None,
            };
            pool.next_volume_id += 1;
            state.volumes.push(record.clone());
            Some(record)
        })?;
        let record = saved.ok_or(ControlError::Unknown { named: "pool", name: add.pool.clone() })?;
        self.memory().volumes.insert(record.name.clone(), LiveVolume::new(Health::Starting));
        Ok(record)
    }

    /// Attaches and exports.
    fn offer(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        self.attach_to_pool(record)?;
        self.set_live_volume(&record.name, |live| live.attached = true);
        self.export_all(record)?;
        self.set_live_volume(&record.name, |live| live.health = Health::Running);
        Ok(())
    }

    fn undo_add(&self, record: &VolumeRecord) {
        if self.volume_attached(&record.name)
            && let Err(error) = self.data().detach(record, true)
        {
            self.events().note(Severity::Warning, &record.name, format!("the volume did not detach: {error}"));
        }
        match self.change(|state| state.volumes.retain(|v| v.name != record.name)) {
            Ok(()) => {
                self.memory().volumes.remove(&record.name);
            }
            Err(error) => {
                let trouble = super::Trouble {
                    problem: format!("adding it failed, and the failure could not be undone: {error}"),
                    remedy: format!("remove it with `hearth volume remove {}`", record.name),
                };
                self.set_live_volume(&record.name, |live| {
                    (live.health, live.trouble, live.attached) = (Health::Failed, Some(trouble), false);
                });
            }
        }
    }

    /// Everything of C7 that concerns a backing device. `except`: the volume whose backing device it may be.
    pub(super) fn check_backing(&self, spec: &str, options: &Options, except: Option<&str>) -> Result<DeviceFacts, ControlError> {
        self.check_overlaps(spec, except, None)?;
        let facts = self.data().examine_backing(spec).map_err(|error| match error {
            ControlError::Unknown { .. } => {
                let remedy = match spec.rsplit_once(':').map_or(spec, |(_, path)| path) {
                    path if path.starts_with("/dev/") => "check the path with `lsblk`".into(),
                    path => format!("check the path, or make the file with `truncate -s SIZE {path}`"),
                };
                device(spec, "there is no such file or device".into(), remedy, Kind::NotFound)
            }
            other => other,
        })?;
        if facts.size_bytes < BLOCK_BYTES {
            let problem = format!("{} is too small for a volume", human::bytes(facts.size_bytes));
            return Err(device(spec, problem, "use a device or file of at least 4 KiB".into(), Kind::Conflict));
        }
        if let Some(user) = &facts.in_use {
            let remedy = "stop what uses it (unmount it): all access must now go through the volume";
            return Err(device(spec, format!("it is in use ({user})"), remedy.into(), Kind::Conflict));
        }
        if let Some(problem) = verdict::too_large(facts.size_bytes) {
            let remedy = format!("use a device of at most {}", human::bytes(VOLUME_BYTES_MAX));
            return Err(device(spec, format!("it {problem}"), remedy, Kind::Conflict));
        }
        if facts.pool.is_some() {
            let remedy = "choose another device: this one is an SSD of hearth";
            return Err(device(spec, "it carries the superblock of a hearth pool".into(), remedy.into(), Kind::Conflict));
        }
        if facts.read_only && !options.read_only {
            let and = if options.mode == Mode::WriteBack { ", so dirty data could never be written to it" } else { "" };
            let mode = if options.mode == Mode::WriteBack { " and --mode write-through" } else { "" };
            let remedy = format!("make it writable, or add the volume with --read-only{mode}");
            return Err(device(spec, format!("it is read-only{and}"), remedy, Kind::Conflict));
        }
        Ok(facts)
    }

    pub(super) fn volume_set(&self, name: &str, set: &VolumeSet) -> Result<Answer, ControlError> {
        if set.options.is_empty() && !set.accept_backing && set.exports.is_none() {
            let remedy = "give at least one, for instance --mode write-through".to_string();
            return Err(ControlError::BadCombination("no option was given".into(), remedy));
        }
        let claim = self.claim(&[(Named::Volume, name)], "a change of its options")?;
        // Read behind the claim: nobody else's change is written over.
        let before = self.volume_record(name)?;
        let options = set.options.apply(&before.options)?;
        if before.attachment.is_some() {
            super::attach::check_options(&options)?;
        }
        self.check_units_are_not_needed(&before, &options)?;
        let mut exported = String::new();
        match &set.exports {
            None => check_tls_names(&options, &before.exports)?,
            Some(exports) => {
                exported = self.set_volume_exports(&before, exports, &options)?;
                if set.options.is_empty() && !set.accept_backing {
                    return Ok(Answer::Done(Done::so(exported)));
                }
                exported += "; ";
            }
        }
        let record = self.save_options(name, &options)?;
        let record = record.ok_or(ControlError::Unknown { named: "volume", name: name.into() })?;
        let mut accepted = exported;
        if set.accept_backing {
            let runs = self.volume_attached(name);
            let mut told = self.accept_backing(name)?;
            self.events().note(Severity::Info, name, &told);
            if runs {
                // It did not start anew: the options are put in force as ever.
                accepted += &(told + "; ");
            } else {
                if self.note_changes(name, &before.options, &options) {
                    told += &format!("; {}", changed(&before.options, &options));
                }
                return Ok(Answer::Done(Done::so(accepted + &told)));
            }
        }
        let told = match accepted.strip_suffix("; ") {
            Some(done) if options == before.options => done.to_owned(),
            _ => accepted + &changed(&before.options, &options),
        };
        if !self.volume_attached(name) {
            let news = self.note_changes(name, &before.options, &options);
            let told = if news { told + "; in effect when it runs again" } else { told };
            return Ok(Answer::Done(Done::so(told)));
        }
        let counters = self.data().volume_stats(&record.name);
        let pending = match self.write_records(&record.pool).and_then(|()| self.data().set_options(&record)) {
            Ok(pending) => pending,
            Err(error) => {
                // `may_have_dirty` stays: a mark too many costs nothing.
                self.save_options(name, &before.options)?;
                return Err(error);
            }
        };
        self.note_changes(name, &before.options, &options);
        if options.on_ssd_loss == OnSsdLoss::Continue {
            self.waits_no_more(name);
        }
        let told = told + self.say_units_anew(&record, &before.options).as_deref().unwrap_or_default();
        let leaves_write_back = before.options.mode == Mode::WriteBack && options.mode != Mode::WriteBack;
        let job = self.watch_change(claim, record, counters, pending, leaves_write_back)?;
        Ok(job.map_or(Answer::Done(Done::so(told)), |job| Answer::Job(Box::new(job))))
    }

    /// What was promised of units is not taken back while somebody may rely on it.
    fn check_units_are_not_needed(&self, before: &VolumeRecord, options: &Options) -> Result<(), ControlError> {
        if options.atomic_bytes >= before.options.atomic_bytes || !self.volume_attached(&before.name) {
            return Ok(());
        }
        self.check_unused(before).map_err(|used| {
            ControlError::BadCombination(
                format!("programs may rely on whole writes: {}", used.reason()),
                "let them protect their pages themselves again (doublewrite, full_page_writes), unmount the volume, then try again".into(),
            )
        })
    }

    /// Block devices say what is whole when they are made: one that nobody uses is made anew. What there is to say of another.
    fn say_units_anew(&self, volume: &VolumeRecord, before: &Options) -> Option<String> {
        let has_device = self.offered(volume).iter().any(|export| export.is_device());
        if volume.options.atomic_bytes == before.atomic_bytes || !has_device || self.renew_idle_device(volume) {
            return None;
        }
        let name = &volume.name;
        Some(format!(
            "; its block device is in use and does not say so before `hearth volume stop {name}` and `hearth volume start {name}`"
        ))
    }

    /// Saves a volume's options, and with them that it may have dirty data from now on, if so. `None`: there is no such volume.
    fn save_options(&self, name: &str, options: &Options) -> Result<Option<VolumeRecord>, ControlError> {
        self.change(|state| {
            let volume = state.volume_mut(name)?;
            volume.options = options.clone();
            // Served without its cache, it cannot become dirty; the next start marks it.
            volume.may_have_dirty |= options.mode == Mode::WriteBack && !volume.cache_stale;
            Some(volume.clone())
        })
    }

    /// An event, if anything is different. Says whether it is.
    fn note_changes(&self, name: &str, before: &Options, now: &Options) -> bool {
        let changes = now.changes(before);
        if !changes.is_empty() {
            self.events().note(Severity::Info, name, format!("options changed: {}", changes.join(", ")));
        }
        !changes.is_empty()
    }

    pub(super) fn volume_destage(&self, name: &str) -> Result<JobView, ControlError> {
        let claim = self.claim(&[(Named::Volume, name)], "a destage")?;
        let record = self.running_volume(name)?;
        let manager = self.clone();
        self.run_job(Work::Destage, (name, record.uuid), claim, move |job| manager.destage_all(&record, job))
    }

    /// The record of a volume that has a cache to be warmed.
    pub(super) fn warmable_volume(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        let record = self.running_volume(name)?;
        if record.options.mode == Mode::PassThrough {
            let remedy = format!("change the mode first with `hearth volume set {name} --mode write-through`");
            return Err(ControlError::BadCombination("a pass-through volume has no cache to warm".into(), remedy));
        }
        Ok(record)
    }

    pub(super) fn volume_remove(&self, name: &str, drop_dirty: bool) -> Result<JobView, ControlError> {
        let claim = self.claim(&[(Named::Volume, name)], "its removal")?;
        let record = self.volume_record(name)?;
        self.check_unused_or_silent(&record, drop_dirty)?;
        if !drop_dirty {
            self.check_not_deleted(&record)?;
            if let Ok(pool) = self.pool_record(&record.pool) {
                self.check_state_is_newest(&pool)?;
            }
        }
        let attached = self.volume_attached(name);
        if record.may_have_dirty && !drop_dirty && !attached {
            let (trouble, dirty) = {
                let memory = self.memory();
                (memory.volumes.get(name).and_then(|v| v.trouble.clone()), known::dirty_of_volume(&memory, &record))
            };
            let why = trouble.map_or(String::new(), |t| format!(", and {}", t.problem));
            return Err(ControlError::DirtyData {
                name: name.into(),
                dirty: dirty.map_or("an unknown amount".into(), human::bytes),
                why,
                remedy: format!(
                    "fix that and start it with `hearth volume start {name}`, or discard the data with `hearth volume remove {name} --drop-dirty`"
                ),
            });
        }
        let manager = self.clone();
        self.run_job(Work::Remove { drop_dirty }, (name, record.uuid), claim, move |job| manager.remove(&record, drop_dirty, job))
    }
}

/// What a change of options did, for people.
fn changed(before: &Options, now: &Options) -> String {
    let changes = now.changes(before);
    if changes.is_empty() { "unchanged: the options already have these values".into() } else { changes.join(", ") }
}

/// Names without an export that asks for them would keep nobody out.
pub(super) fn check_tls_names(options: &Options, exports: &[Export]) -> Result<(), ControlError> {
    if options.tls_names.is_empty() || exports.iter().any(|export| export.way().has_tls) {
        return Ok(());
    }
    let remedy = "leave out --tls-names, or give --export nbd:IP:PORT --tls with it".to_string();
    Err(ControlError::BadCombination("--tls-names is for exports with TLS, and the volume has none".into(), remedy))
}

pub(super) fn unique_exports(exports: &[Export]) -> Result<Vec<Export>, ControlError> {
    for (at, export) in exports.iter().enumerate() {
        if exports[..at].contains(export) {
            return Err(ControlError::BadOption {
                option: "--export",
                problem: format!("names {export} twice"),
                remedy: "give each export once".into(),
            });
        }
    }
    if let Some(export) = exports.iter().find(|export| export.tcp_address().is_some_and(|address| address.port() == 0)) {
        return Err(ControlError::BadOption {
            option: "--export",
            problem: format!("{export} has the port 0, which would be another one after each start"),
            remedy: "give a port from 1 to 65535, for instance 10809".into(),
        });
    }
    if exports.iter().filter(|export| export.is_device()).count() > 1 {
        return Err(ControlError::BadOption {
            option: "--export",
            problem: "asks for two block devices of one volume".into(),
            remedy: "give one of block, ublk, loop and loop:fast".into(),
        });
    }
    Ok(exports.to_vec())
}
