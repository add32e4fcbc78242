//! Volumes attached to mapped devices in use, and detached.
//!
//! What holds at any instant: while the device leads past hearth, nothing of it is cached that will ever be served. So the volume begins in
//! pass-through, without a cached block, and gets its own mode once the device leads here; and if the device has led past hearth, whoever did
//! that, the volume gets another number in the log before the device leads here again. It is never write-back: what another program (LVM, say)
//! tells the device must find everything on the backing device.
//!
//! There is one exception: the daemon was stopped, and the kernel's count of the device's writes shows, once the device leads here again,
//! that there was none meanwhile. What was cached then is what is on the disk. Until that is shown the volume is in pass-through.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | attach | after a crash here, the start |
//! |---|---|
//! | 1. save the volume with its attachment | makes the origin, serves the volume, and leads the device here |
//! | 2. make the origin, serve the volume in pass-through | the same |
//! | 3. save the table that is to lead here | the same: the device still leads past hearth |
//! | 4. the device leads here | goes on serving: whoever has the device open has waited |
//! | 5. save that only this table leads here; leave pass-through | the same |
//!
//! | detach | after a crash here, the start |
//! |---|---|
//! | 1. save it as leaving | serves it again, and detaches it |
//! | 2. the device leads past hearth | 4 |
//! | 3. the exports go, the volume is detached and forgotten | 4 |
//! | 4. remove the origin | the same |
//! | 5. save without it | – |
//!
//! A trial is the same without a pool and a cache. A start that finds its device leading past hearth (after a reboot) forgets it.

use super::pools::device;
use super::work::wait_for;
use super::{LiveVolume, Manager, Trouble};
use api::error::{ControlError, Kind};
use api::human;
use api::names::{self, Named};
use api::options::Options;
use api::stats::VolumeStats;
use api::words::Export;
use api::{Attach, Health, Severity};
use datapath::mapped::{Leads, MappedFacts, Swapped};
use datapath::{Absence, Withdrawal};
use records::state::{Attachment, BackingIdentity, Kept, VolumePhase, VolumeRecord};
use std::time::Duration;
use types::{BLOCK_BYTES, Mode, SECTOR_BYTES, VOLUMES_MAX};
use uuid::Uuid;

/// How long a start waits for requests of a device's users that keep it from being led past hearth.
const STEP_BACK_PATIENCE: Duration = Duration::from_secs(10);

/// Refuses options that a volume attached to a device in use cannot have.
pub(super) fn check_options(options: &Options) -> Result<(), ControlError> {
    if options.mode == Mode::WriteBack {
        let problem = "a volume attached to a device in use cannot be write-back: when LVM reloads the device's table, its users would see \
                       data without the latest writes";
        let remedy = "use write-through; or unmount it once and use `hearth volume add`";
        return Err(ControlError::BadCombination(problem.into(), remedy.into()));
    }
    if options.read_only {
        let problem = "a volume attached to a device in use cannot be read-only: its users write";
        return Err(ControlError::BadCombination(problem.into(), "leave out --read-only".into()));
    }
    Ok(())
}

/// What a trial has seen, for people.
fn seen(stats: &VolumeStats) -> String {
    let mean = |what: &str| match stats.latency_ns.get(what) {
        Some(latency) if latency.count > 0 => {
            format!(", {} on average, {} for the slowest", human::nanoseconds(latency.mean_ns), human::nanoseconds(latency.max_ns))
        }
        _ => String::new(),
    };
    let (read, written) = (human::bytes(stats.read_bytes), human::bytes(stats.written_bytes));
    format!("; the trial saw {} reads ({read}{}) and {} writes ({written}{})", stats.reads, mean("read"), stats.writes, mean("write"))
}

impl Manager {
    /// The stop that comes is a restart: users of what outlives it wait for the next daemon.
    pub fn expect_restart(&self) {
        self.shared.restarts.get_or_init(|| ());
    }

    /// Attaches a volume to a device in use. Tells what was done.
    pub(super) fn attach_live(&self, attach: &Attach) -> Result<String, ControlError> {
        names::check(Named::Volume, &attach.name)?;
        let mut options = attach.options.apply(self.shared.volume_defaults.get_or_init(Options::default))?;
        if attach.trial {
            options.mode = Mode::PassThrough;
        }
        check_options(&options)?;
        let _claim = self.claim_new_volume(&attach.name, attach.pool.as_deref())?;
        self.check_name_is_free(&attach.name)?;
        match (&attach.pool, attach.trial) {
            (None, false) => {
                let remedy = "name one with --pool; or measure only, with --trial";
                return Err(ControlError::BadCombination("a volume needs a pool".into(), remedy.into()));
            }
            (Some(_), true) => {
                let problem = "a trial caches nothing and has no pool";
                return Err(ControlError::BadCombination(problem.into(), "leave out --pool, or --trial".into()));
            }
            (None, true) => {}
            (Some(pool), false) => {
                self.running_pool(pool)?;
                if self.memory().state.volumes_of(pool).count() >= VOLUMES_MAX {
                    let remedy = "add it to another pool".to_string();
                    return Err(ControlError::BadCombination(
                        format!("the pool \"{pool}\" has {VOLUMES_MAX} volumes, the maximum"),
                        remedy,
                    ));
                }
            }
        }
        let facts = self.check_mapped(&attach.device)?;
        let record = self.save_attached(attach, options, &facts)?;
        match self.attach_first(&record) {
            Ok(swapped) => {
                let name = &record.name;
                let through = if attach.trial { "for a trial, without a cache" } else { "write-through" };
                let paused = human::nanoseconds(u64::try_from(swapped.pause.as_nanos()).unwrap_or(u64::MAX));
                let told = format!(
                    "{} is served through the volume {name} ({through}); nothing was unmounted, and its I/O paused for {paused} at most",
                    facts.name
                );
                self.events().note(Severity::Info, name, &told);
                Ok(told)
            }
            Err(error) => {
                self.undo_attach(&record);
                Err(error)
            }
        }
    }

    /// Everything that must be so of a device before it is attached.
    fn check_mapped(&self, path: &str) -> Result<MappedFacts, ControlError> {
        let program = std::fs::read_link("/proc/self/exe").ok().map(|path| path.display().to_string());
        let mut own = vec![self.shared.state_directory.clone()];
        own.extend(program);
        own.extend(self.shared.own_files.get().into_iter().flatten().cloned());
        own.extend(self.memory().state.volumes.iter().flat_map(|v| &v.shares).filter_map(|share| share.chap_file.clone()));
        let attached: Vec<(String, Attachment)> = {
            let memory = self.memory();
            memory.state.volumes.iter().filter_map(|v| Some((v.name.clone(), v.attachment.clone()?))).collect()
        };
        let facts = self.data().mapped().examine(path, &own, &attached)?;
        self.check_overlaps(path, None, None)?;
        if facts.size_bytes < BLOCK_BYTES {
            let problem = format!("{} is too small for a volume", human::bytes(facts.size_bytes));
            return Err(device(path, problem, "use a device of at least 4 KiB".into(), Kind::Conflict));
        }
        if let Some(problem) = super::verdict::too_large(facts.size_bytes) {
            return Err(device(path, format!("it {problem}"), "use a smaller device".into(), Kind::Conflict));
        }
        Ok(facts)
    }

    fn save_attached(&self, attach: &Attach, options: Options, facts: &MappedFacts) -> Result<VolumeRecord, ControlError> {
        let (uuid, size_bytes) = (Uuid::new_v4(), facts.size_bytes / SECTOR_BYTES * SECTOR_BYTES);
        let attachment = Attachment {
            device: facts.name.clone(),
            uuid: facts.uuid.clone(),
            tables: Vec::new(),
            trial: attach.trial,
            leaving: false,
            kept: None,
        };
        let mut record = VolumeRecord {
            name: attach.name.clone(),
            uuid,
            pool: attach.pool.clone().unwrap_or_default(),
            id: 0,
            backing: self.data().mapped().origin_path(&attach.name),
            size_bytes,
            sector_bytes: Some(facts.sector_bytes),
            may_have_dirty: false,
            options,
            exports: vec![Export::BLOCK],
            phase: VolumePhase::Ready,
            identity: BackingIdentity { size_bytes: facts.size_bytes, ..BackingIdentity::default() },
            stopped_clean: false,
            cache_stale: false,
            past: Vec::new(),
            stopped: false,
            noted: Vec::new(),
            rules: Vec::new(),
            connections: Vec::new(),
            shares: Vec::new(),
            attachment: Some(attachment),
        };
        let record = self.change(|state| {
            if !attach.trial {
                let pool = state.pool_mut(&record.pool)?;
                record.id = pool.next_volume_id;
                pool.next_volume_id += 1;
            }
            state.volumes.push(record.clone());
            Some(record)
        })?;
        let record = record.ok_or(ControlError::Unknown { named: "pool", name: attach.pool.clone().unwrap_or_default() })?;
        self.memory().volumes.insert(record.name.clone(), LiveVolume::new(Health::Starting));
        Ok(record)
    }

    /// Steps 2 to 5.
    fn attach_first(&self, record: &VolumeRecord) -> Result<Swapped, ControlError> {
        match self.data().mapped().lay_origin(record)? {
            Leads::Past => {}
            _ => {
                let path = record.attachment.as_ref().map(|attachment| attachment.device.clone()).unwrap_or_default();
                return Err(device(&path, "another program is changing it".into(), "try again when that is done".into(), Kind::Conflict));
            }
        }
        let identity = self.data().examine_backing(&record.backing)?.identity;
        let record = self.change(|state| {
            let volume = state.volume_mut(&record.name)?;
            volume.identity = identity;
            Some(volume.clone())
        })?;
        let record = record.ok_or_else(|| ControlError::Unknown { named: "volume", name: String::new() })?;
        if record.is_trial() {
            self.data().attach_bare(&record)?;
        } else {
            self.attach_to_pool(&self.as_attached(&record))?;
        }
        self.set_live_volume(&record.name, |live| live.attached = true);
        self.export_all(&record)?;
        let swapped = self.lead_here(&record, !record.is_trial())?;
        self.set_live_volume(&record.name, |live| live.health = Health::Running);
        Ok(swapped)
    }

    fn undo_attach(&self, record: &VolumeRecord) {
        let undone = self.step_back(record).and_then(|()| {
            let record = self.volume_record(&record.name)?;
            self.finish_remove(&record)
        });
        if let Err(error) = undone {
            let trouble = Trouble {
                problem: format!("attaching it failed, and the failure could not be undone: {error}"),
                remedy: format!("undo it with `hearth detach {}`", record.name),
            };
            self.set_live_volume(&record.name, |live| (live.health, live.trouble) = (Health::Failed, Some(trouble)));
        }
    }

    /// The record with which a volume is attached to its cache: nothing is cached, and nothing served from the cache, before its device leads
    /// here.
    pub(super) fn as_attached(&self, volume: &VolumeRecord) -> VolumeRecord {
        let mut volume = volume.clone();
        if volume.attachment.is_some() && !matches!(self.data().mapped().leads(&volume), Ok(Leads::Here)) {
            volume.options.mode = Mode::PassThrough;
        }
        volume
    }

    /// Leads the device of a volume here that is served, and puts the volume's own mode in force if it is `cached`. Nothing is to be done for
    /// a volume that is not attached to a device.
    ///
    /// A volume whose number is fresh since the device led past hearth names no table: it is in pass-through, and nothing is cached under its
    /// number. Every other one may be led here only from a table that led here, or its cache would be older than the disk.
    pub(super) fn lead_here(&self, volume: &VolumeRecord, cached: bool) -> Result<Swapped, ControlError> {
        let Some(attachment) = self.volume_record(&volume.name)?.attachment else { return Ok(Swapped::default()) };
        let place = self.memory().volumes.get(&volume.name).and_then(|live| Some(live.block_device()?.1.to_owned()));
        let unknown = || ControlError::DataPath(format!("the volume \"{}\" has no block device", volume.name), "see the log".into());
        let table = self.data().mapped().table_to(volume, &place.ok_or_else(unknown)?)?;
        let in_force = || if cached { wait_for(self.data().set_options(volume)?) } else { Ok(()) };
        let leads = self.data().mapped().leads(volume)?;
        if leads == Leads::Here && attachment.tables == [table.clone()] {
            in_force()?;
            return Ok(Swapped::default());
        }
        // The stop may be past the moment when it leads devices past hearth.
        if self.is_stopping() {
            return Err(ControlError::Stopping);
        }
        let may_lead_past = attachment.tables.is_empty() || !cached;
        let name_tables = |tables: Vec<String>, kept: Option<Kept>| {
            self.change(|state| {
                if let Some(attachment) = state.volume_mut(&volume.name).and_then(|v| v.attachment.as_mut()) {
                    (attachment.tables, attachment.kept) = (tables, kept);
                }
            })
        };
        let mut tables = attachment.tables;
        if !tables.contains(&table) {
            tables.push(table.clone());
            name_tables(tables, attachment.kept.clone())?;
        }
        let named = self.volume_record(&volume.name)?;
        let swapped = self.data().mapped().lead_here(&named, &table, may_lead_past)?;
        if cached && !volume.cache_stale && attachment.kept.is_some() && !self.nothing_passed(&named) {
            let problem = "it was written past hearth while hearth was coming".into();
            return Err(device(&attachment.device, problem, "the volume starts by itself, without its cache".into(), Kind::Conflict));
        }
        name_tables(vec![table], None)?;
        in_force()?;
        Ok(swapped)
    }

    /// The device leads past hearth again, and the exports go: something went wrong.
    pub(super) fn step_back(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let volume = self.volume_record(&volume.name)?;
        if volume.attachment.is_some() {
            self.lead_past_patiently(&volume)?;
        }
        self.abandon_exports(&volume, Withdrawal::Forced);
        Ok(())
    }

    /// Requests of its users that wait for a server which is not there hold it up: then it goes on by
    /// itself when they have ended, and whoever starts the volume finds where the device leads.
    fn lead_past_patiently(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let (led_in, led) = std::sync::mpsc::channel();
        let (manager, of) = (self.clone(), volume.clone());
        std::thread::spawn(move || drop(led_in.send(manager.data().mapped().lead_past(&of).map(drop))));
        led.recv_timeout(STEP_BACK_PATIENCE).unwrap_or_else(|_| {
            let problem = "it still leads to hearth: requests that are under way do not end".into();
            let device_name = volume.attachment.as_ref().map_or("", |attachment| attachment.device.as_str());
            Err(device(device_name, problem, "hearth tries again by itself".into(), Kind::Busy))
        })
    }

    /// The device of a volume was found to lead past hearth: nothing that is cached may be served again, and no table leads here. What begins
    /// after this begins under a fresh number.
    pub(super) fn was_led_past(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let names_none = volume.attachment.as_ref().is_none_or(|attachment| attachment.tables.is_empty() && attachment.kept.is_none());
        if volume.is_trial() || volume.cache_stale && names_none {
            return Ok(());
        }
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&volume.name) {
                volume.cache_stale = true;
                volume.attachment.iter_mut().for_each(|attachment| (attachment.tables, attachment.kept) = (Vec::new(), None));
            }
        })
    }

    /// The device leads here already, and a daemon was killed before it had shown that nothing was written meanwhile. Users of the device
    /// may have gone on since: it cannot be shown any more.
    pub(super) fn was_led_here_unproved(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        if volume.attachment.as_ref().is_none_or(|attachment| attachment.kept.is_none()) {
            return Ok(());
        }
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&volume.name) {
                volume.cache_stale = true;
                volume.attachment.iter_mut().for_each(|attachment| attachment.kept = None);
            }
        })
    }

    /// Whether nothing was written through the device of a volume since the clean stop of its daemon. That its backing device is as it
    /// was then is to be seen besides.
    pub(super) fn nothing_passed(&self, volume: &VolumeRecord) -> bool {
        let Some(kept) = volume.attachment.as_ref().and_then(|attachment| attachment.kept.as_ref()) else { return false };
        matches!(self.data().mapped().passed(volume), Ok(Some(passed)) if passed.nothing_since(kept))
    }

    /// Detaches a volume from its device. Tells what was done.
    pub(super) fn detach_live(&self, name: &str) -> Result<String, ControlError> {
        let _claim = self.claim(&[(Named::Volume, name)], "its detachment")?;
        let record = self.volume_record(name)?;
        let Some(attachment) = record.attachment.clone() else {
            let remedy = format!("remove it with `hearth volume remove {name}`");
            return Err(ControlError::BadCombination(format!("the volume \"{name}\" is not attached to a device in use"), remedy));
        };
        if !self.volume_attached(name) && self.data().mapped().leads(&record)? == Leads::Here {
            return Err(ControlError::NotRunning {
                named: "volume",
                name: name.into(),
                reason: format!("it is not served, and the requests of {} wait for it", attachment.device),
                remedy: format!("start it with `hearth volume start {name}`, then detach it"),
            });
        }
        self.mark_leaving(name, true)?;
        let record = self.volume_record(name)?;
        let swapped = match self.data().mapped().lead_past(&record) {
            Ok(swapped) => swapped,
            Err(error) => {
                // It is refused, and not gone on with at the next start, unless a start has found it on its way.
                if !attachment.leaving {
                    self.mark_leaving(name, false)?;
                }
                return Err(error);
            }
        };
        let saw = if attachment.trial { seen(&self.data().volume_stats(name)) } else { String::new() };
        self.abandon_exports(&record, Withdrawal::Forced);
        self.finish_remove(&record)?;
        let paused = human::nanoseconds(u64::try_from(swapped.pause.as_nanos()).unwrap_or(u64::MAX));
        let summary =
            format!("{} is as it was before; nothing was unmounted, and its I/O paused for {paused} at most{saw}", attachment.device);
        self.events().note(Severity::Info, name, format!("detached: {summary}"));
        Ok(summary)
    }

    fn mark_leaving(&self, name: &str, leaving: bool) -> Result<(), ControlError> {
        self.change(|state| {
            if let Some(attachment) = state.volume_mut(name).and_then(|v| v.attachment.as_mut()) {
                attachment.leaving = leaving;
            }
        })
    }

    /// Forgets attachments that were on their way out or only for a trial, and whose devices lead past hearth. One whose origin is in use is
    /// left to the watch; it keeps nothing else from starting.
    pub(super) fn settle_attachments(&self) {
        for volume in self.attached_records(|attachment| attachment.trial || attachment.leaving) {
            if let Err(error) = self.settle_attachment(&volume) {
                self.fail_volume(&volume, &error);
            }
        }
    }

    fn is_over(&self, volume: &VolumeRecord) -> bool {
        let ends = volume.attachment.as_ref().is_some_and(|attachment| attachment.trial || attachment.leaving);
        ends && matches!(self.data().mapped().leads(volume), Ok(Leads::Past | Leads::Nowhere))
    }

    fn settle_attachment(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        if !self.is_over(volume) {
            return Ok(());
        }
        self.data().mapped().remove_origin(volume)?;
        if self.memory().pools.get(&volume.pool).is_some_and(|pool| pool.health == Health::Running) {
            self.data().forget(volume)?;
        }
        self.change(|state| state.volumes.retain(|v| v.name != volume.name))?;
        self.memory().volumes.remove(&volume.name);
        let told = if volume.is_trial() { "its trial ended with the machine or the daemon" } else { "it is detached" };
        self.events().note(Severity::Info, &volume.name, told);
        Ok(())
    }

    /// Tries again what a start could not settle.
    fn settle_later(&self) {
        for volume in self.attached_records(|attachment| attachment.trial || attachment.leaving) {
            if self.volume_attached(&volume.name) || self.is_stopping() {
                continue;
            }
            // Whoever is at it will see to it; so will the next look.
            let Ok(_claim) = self.claim(&[(Named::Volume, &volume.name)], "the end of its attachment") else { continue };
            let settled = self.volume_record(&volume.name).and_then(|volume| match self.volume_attached(&volume.name) {
                true => Ok(()),
                false => self.settle_attachment(&volume),
            });
            if let Err(error) = settled {
                tracing::debug!("volume {}: {error}", volume.name);
            }
        }
    }

    /// Serves the trials that the daemon before has left, and ends the attachments that it was ending. Everything else is up.
    pub(super) fn go_on_with_attachments(&self, judged: &super::start::Judged) {
        for volume in self.attached_records(|attachment| attachment.trial).into_iter().filter(|volume| !self.is_over(volume)) {
            if let Err(error) = self.start_trial(&volume, judged) {
                self.fail_volume(&volume, &error);
            }
        }
    }

    fn start_trial(&self, volume: &VolumeRecord, judged: &super::start::Judged) -> Result<(), ControlError> {
        if let Some((super::verdict::Verdict::Refuse(problem, remedy), ..)) = judged.get(&volume.name) {
            return Err(ControlError::DataPath(problem.clone(), remedy.clone()));
        }
        self.data().attach_bare(volume)?;
        self.set_live_volume(&volume.name, |live| live.attached = true);
        self.export_what_can_be(volume)?;
        self.lead_here(volume, false)?;
        self.set_live_volume(&volume.name, |live| (live.health, live.trouble) = (Health::Running, None));
        Ok(())
    }

    /// Detaches what a daemon before was detaching of a pool.
    pub(super) fn finish_detachments(&self, pool: &str) {
        for volume in self.attached_records(|attachment| attachment.leaving).into_iter().filter(|volume| volume.pool == pool) {
            if let Err(error) = self.detach_live(&volume.name) {
                self.events().note(Severity::Warning, &volume.name, format!("it could not be detached: {error}"));
            }
        }
    }

    fn attached_records(&self, wanted: impl Fn(&Attachment) -> bool) -> Vec<VolumeRecord> {
        let is_wanted = |volume: &&VolumeRecord| volume.attachment.as_ref().is_some_and(&wanted);
        self.memory().state.volumes.iter().filter(is_wanted).cloned().collect()
    }

    /// Looks whether the devices of volumes that are served still lead here. Called about once a second.
    pub(super) fn watch_attachments(&self, served: &[VolumeRecord]) {
        self.settle_later();
        for volume in served.iter().filter(|volume| volume.attachment.is_some()) {
            let leads = self.data().mapped().leads(volume);
            self.tell_of_look(volume, "whether its device still leads to it", leads.as_ref().err());
            // Of one that another program is changing it will be seen what it has become.
            if matches!(leads, Ok(Leads::Past | Leads::Nowhere)) && !self.is_stopping() {
                self.led_past(volume);
            } else {
                self.tell_of_swap(volume);
            }
        }
    }

    /// Swap may be switched on later, on a device that is attached already.
    fn tell_of_swap(&self, volume: &VolumeRecord) {
        let areas = self.data().mapped().swap_areas(volume);
        self.tell_of_look(volume, "whether swap is on its device", areas.as_ref().err());
        let Ok(areas) = areas else { return };
        let mut told = false;
        self.set_live_volume(&volume.name, |live| told = std::mem::replace(&mut live.swap_told, !areas.is_empty()));
        if let (Some(area), false) = (areas.first(), told) {
            let message = format!(
                "the swap area {area} lies on the device that it is attached to, and hearth may need memory to write what is swapped out: \
                 switch it off with `swapoff {area}`"
            );
            self.events().note(Severity::Warning, &volume.name, message);
        }
    }

    /// A look that fails is told once, and when it works again.
    fn tell_of_look(&self, volume: &VolumeRecord, what: &'static str, error: Option<&ControlError>) {
        let mut is_news = false;
        self.set_live_volume(&volume.name, |live| {
            is_news = if error.is_some() { live.unseen.insert(what) } else { live.unseen.remove(what) };
        });
        match error {
            Some(error) if is_news => {
                let message = format!("it cannot be seen {what}, and is tried again: {error}");
                self.events().note(Severity::Warning, &volume.name, message);
            }
            None if is_news => self.events().note(Severity::Info, &volume.name, format!("it is seen again {what}")),
            _ => {}
        }
    }

    /// Another program has given the device of a volume a table of its own, as LVM does when a volume grows or gets a snapshot.
    fn led_past(&self, volume: &VolumeRecord) {
        let name = &volume.name;
        // Whoever is at it sees it too; or the next look does.
        let Ok(_claim) = self.claim(&[(Named::Volume, name)], "the return of its device") else { return };
        let Ok(volume) = self.volume_record(name) else { return };
        let leads = self.data().mapped().leads(&volume);
        let (Some(attachment), true) = (&volume.attachment, self.volume_attached(name)) else { return };
        if !matches!(leads, Ok(Leads::Past | Leads::Nowhere)) {
            return;
        }
        let gone = leads.is_ok_and(|leads| leads == Leads::Nowhere);
        let what = match gone {
            true => format!("{} is gone", attachment.device),
            false => format!("another program gave {} a table that leads past hearth", attachment.device),
        };
        self.events().note(Severity::Warning, name, format!("{what}: the cache of the volume is dropped"));
        let result = match volume.is_trial() {
            true => self.step_back(&volume).and_then(|()| self.finish_remove(&volume)).map(|()| "the trial is over"),
            false => self.was_led_past(&volume).and_then(|()| self.volume_record(name)).and_then(|volume| {
                self.start_alone(&volume)?;
                Ok("its device leads here again, and the volume is running")
            }),
        };
        match result {
            Ok(told) => self.events().note(Severity::Info, name, told),
            Err(error) => {
                self.fail_volume(&volume, &error);
                self.set_live_volume(name, |live| live.waits = true);
                if gone && let Err(error) = self.data().mapped().remove_origin(&volume) {
                    tracing::warn!("what is left of {name}: {error}");
                }
            }
        }
    }

    /// The daemon ends: devices of its volumes lead past hearth from now on, so that nobody waits for a daemon that does not come. Where the
    /// next one comes at once, and goes on with what is in use, they wait and keep their cache.
    pub(super) fn lead_past_at_end(&self, volume: &VolumeRecord) {
        let outlives = volume.exports.iter().all(|export| self.data().outlives(volume, export, Absence::DaemonStops));
        let waits = self.shared.restarts.get().is_some() && outlives && !volume.is_trial();
        if volume.attachment.is_none() || waits {
            return;
        }
        let mut told = false;
        loop {
            let led = self.volume_record(&volume.name).and_then(|volume| self.leave_as_it_is(&volume));
            let Err(error) = led else { return };
            if !std::mem::replace(&mut told, true) {
                self.events().note(Severity::Error, &volume.name, format!("its device cannot be led past hearth yet: {error}"));
            }
            // An LVM command may take longer than one try waits for its lock. Some time is left for what comes after this.
            if self.shared.stop_watch.get().is_none_or(|watch| watch.is_mostly_over()) {
                let told = format!("its device still leads to it, and who has it open waits for the next daemon: {error}");
                self.events().note(Severity::Error, &volume.name, told);
                return;
            }
            std::thread::sleep(super::stop_watch::LOOK);
        }
    }

    /// The same, of what was led here while the stop was under way: it was not waited for for ever.
    pub(super) fn lead_latecomers_past(&self, pool: &str) {
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(pool).filter(|v| v.attachment.is_some()).cloned().collect();
        for volume in volumes.iter().filter(|volume| matches!(self.data().mapped().leads(volume), Ok(Leads::Here))) {
            self.lead_past_at_end(volume);
            self.set_live_volume(&volume.name, |live| live.left = None);
        }
    }

    /// Leads the device past hearth. If nobody writes to it at that moment, that is remembered.
    fn leave_as_it_is(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let passed = || self.data().mapped().passed(volume).ok().flatten();
        let before = passed();
        let led_here = matches!(self.data().mapped().leads(volume), Ok(Leads::Here));
        self.data().mapped().lead_past(volume)?;
        let left = passed().filter(|after| led_here && before.as_ref().is_some_and(|before| before.writes == after.writes)).map(|after| {
            let for_next_boot = !after.is_open && self.data().mapped().machine_ends();
            Kept { boot: after.boot, instance: after.instance, writes: after.writes, for_next_boot }
        });
        self.set_live_volume(&volume.name, |live| live.left = left);
        Ok(())
    }

    /// Attached volumes whose cache may be good when the daemon is back.
    pub(super) fn left_as_it_is(&self, volume: &VolumeRecord) -> Option<Kept> {
        let good = !volume.is_trial() && !volume.cache_stale && volume.attachment.as_ref().is_some_and(|attachment| !attachment.leaving);
        self.memory().volumes.get(&volume.name).and_then(|live| live.left.clone()).filter(|_| good)
    }

    /// The same, after what is on the device was looked at: what was written since it leads past hearth would not show later.
    pub(super) fn still_as_left(&self, volume: &VolumeRecord) -> Option<Kept> {
        let (left, now) = (self.left_as_it_is(volume)?, self.data().mapped().passed(volume).ok().flatten()?);
        let is_closed = left.for_next_boot && !now.is_open;
        now.nothing_since(&left).then_some(Kept { for_next_boot: is_closed, ..left })
    }

    /// After that, when its pool has stopped.
    pub(super) fn leave_attachments(&self, volumes: &[VolumeRecord]) {
        let leads_past = |volume: &VolumeRecord| !matches!(self.data().mapped().leads(volume), Ok(Leads::Here));
        for volume in volumes.iter().filter(|volume| volume.attachment.is_some() && leads_past(volume)) {
            let removed = self.data().mapped().remove_origin(volume).and_then(|()| {
                if volume.is_trial() { self.change(|state| state.volumes.retain(|v| v.name != volume.name)) } else { Ok(()) }
            });
            if let Err(error) = removed {
                self.events().note(Severity::Warning, &volume.name, error.to_string());
            }
        }
    }
}
