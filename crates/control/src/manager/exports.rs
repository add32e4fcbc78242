//! Exports of a volume: all or none of a new one; of one that starts, all that can be.

use super::{Manager, Trouble};
use api::error::ControlError;
use api::names::Named;
use api::words::Export;
use api::{Health, Severity};
use datapath::{Absence, Withdrawal};
use records::state::VolumeRecord;
use std::collections::BTreeMap;

impl Manager {
    /// Makes all exports of a volume that is new: nobody uses any of them yet.
    ///
    /// # Errors
    /// Then none is left.
    pub(super) fn export_all(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        for (at, export) in volume.exports.iter().enumerate() {
            if let Err(error) = self.offer_one(volume, *export) {
                for export in &volume.exports[..at] {
                    if let Err(also) = self.withdraw_one(volume, *export, Withdrawal::IfUnused) {
                        self.events().note(Severity::Warning, &volume.name, format!("the export {export} was not removed: {also}"));
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the exports of a volume that starts. Users of the daemon before may have been taken over by one of them: it stays whatever becomes
    /// of the others, which are told, shown, and tried again.
    ///
    /// # Errors
    /// If an attached volume has no block device: nothing can lead to it.
    pub(super) fn export_what_can_be(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let made = self.export_missing(volume);
        let has_device = self.offered(volume).iter().any(|export| export.is_device());
        if volume.attachment.is_some() && !has_device { made } else { Ok(()) }
    }

    /// Takes all exports back. Gives what is lost by that, since the volume did not take it.
    ///
    /// # Errors
    /// If one is in use: then those that went already are offered again, under new places where need be.
    pub(super) fn unexport_all(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError> {
        self.check_unused(volume)?;
        let mut lost = None;
        for export in self.offered(volume) {
            match self.withdraw_one(volume, export, Withdrawal::IfUnused) {
                Ok(told) => lost = lost.or(told),
                Err(error) => {
                    self.offer_again(volume);
                    return Err(error);
                }
            }
        }
        Ok(lost)
    }

    /// Takes these exports back, as far as they are offered.
    ///
    /// # Errors
    /// Those before it are gone.
    pub(super) fn withdraw_some(&self, volume: &VolumeRecord, exports: &[Export], how: Withdrawal) -> Result<(), ControlError> {
        let offered = self.offered(volume).into_iter().filter(|export| exports.contains(export));
        offered.collect::<Vec<_>>().into_iter().try_for_each(|export| self.withdraw_one(volume, export, how).map(drop))
    }

    /// Takes all exports away, used or not: the volume is made anew, or the daemon ends and leaves
    /// those in use to the next one. Gives whether no client is served any more.
    pub(super) fn abandon_exports(&self, volume: &VolumeRecord, how: Withdrawal) -> bool {
        let mut all_gone = true;
        for export in self.offered(volume) {
            if export.is_device() && !self.stays(volume, &export, how) {
                self.withdraw_shares(volume);
            }
            if let Some(user) = self.user_of(volume, &export) {
                let (severity, message) = match how == Withdrawal::DaemonEnds && self.data().outlives(volume, &export, Absence::DaemonStops)
                {
                    true => (Severity::Info, format!("the export {export} is in use ({user}): its users wait for the next start")),
                    false => (Severity::Warning, format!("the export {export} goes away although it is in use ({user})")),
                };
                self.events().note(severity, &volume.name, message);
            }
            if let Err(error) = self.withdraw_one(volume, export, how) {
                self.events().note(Severity::Warning, &volume.name, format!("the export {export} did not stop: {error}"));
                all_gone = false;
            }
        }
        all_gone
    }

    /// Offers again what is missing of a volume's exports.
    pub(super) fn offer_again(&self, volume: &VolumeRecord) {
        // What is in the way is told.
        drop(self.export_missing(volume));
    }

    /// The same.
    ///
    /// # Errors
    /// The first that cannot be offered; the others are.
    pub(super) fn export_missing(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let offered = self.offered(volume);
        // One that it is not to have any more is not missed.
        self.set_live_volume(&volume.name, |live| live.lacking.retain(|export, _| volume.exports.contains(export)));
        let missing = volume.exports.iter().filter(|export| !offered.contains(export));
        let made: Vec<_> = missing
            .map(|export| {
                self.offer_one(volume, *export).map(drop).inspect_err(|error| {
                    let problem = format!("the export {export} could not be made: {error}");
                    let trouble = Trouble { problem, remedy: error.remedy() };
                    // Told once, and not at each new try.
                    if self.lacking(&volume.name).get(export) != Some(&trouble) {
                        self.events().note(Severity::Error, &volume.name, &trouble.problem);
                    }
                    self.set_live_volume(&volume.name, |live| drop(live.lacking.insert(*export, trouble)));
                })
            })
            .collect();
        made.into_iter().collect()
    }

    /// Whether the volume's block device lacks its stable name.
    pub(super) fn is_nameless(&self, name: &str) -> bool {
        self.memory().volumes.get(name).is_some_and(|live| live.nameless.is_some())
    }

    /// The exports that could not be made, and why.
    pub(super) fn lacking(&self, name: &str) -> BTreeMap<Export, Trouble> {
        self.memory().volumes.get(name).map(|live| live.lacking.clone()).unwrap_or_default()
    }

    /// Tries again to make the exports that a volume lacks. Whoever is at it sees to it.
    pub(super) fn export_again(&self, name: &str) {
        let Ok(_claim) = self.claim(&[(Named::Volume, name)], "another try to export it") else { return };
        let Ok(volume) = self.volume_record(name) else { return };
        let lacking = self.lacking(name);
        if lacking.is_empty() || !self.volume_attached(name) || self.is_stopping() {
            return;
        }
        // What is in the way still is shown.
        drop(self.export_missing(&volume));
        let left = self.lacking(name);
        for export in lacking.keys().filter(|export| !left.contains_key(export)) {
            self.events().note(Severity::Info, name, format!("the export {export} is there now"));
        }
    }

    /// Whether a volume or disk is there and takes no more writes: its device has failed to flush. Nobody may go on with it as if nothing had
    /// happened.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        let memory = self.memory();
        memory.volumes.get(name).is_some_and(|live| live.attached && live.health == Health::Failed && !live.waits)
    }

    /// Takes all exports back while the pool is stopped and started. Users wait, where they can.
    ///
    /// # Errors
    /// If one that cannot wait is in use. What went is to be offered again by the caller.
    pub(super) fn suspend_all(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let has_failed = self.has_failed(&volume.name);
        let can_wait = |export: &Export| !has_failed && self.data().outlives(volume, export, Absence::PoolRestarts);
        self.offered(volume).iter().filter(|export| !can_wait(export)).try_for_each(|export| self.check_one_unused(volume, *export))?;
        self.offered(volume).iter().try_for_each(|export| {
            let how = if can_wait(export) { Withdrawal::PoolRestarts } else { Withdrawal::IfUnused };
            self.withdraw_one(volume, *export, how).map(drop)
        })
    }

    /// Whether all clients of the volume can wait while its pool is stopped and started.
    pub(super) fn all_can_wait(&self, volume: &VolumeRecord) -> bool {
        let has_failed = self.has_failed(&volume.name);
        self.offered(volume).iter().all(|export| !has_failed && self.data().outlives(volume, export, Absence::PoolRestarts))
    }

    /// # Errors
    /// [`ControlError::Export`] with who uses it.
    pub(super) fn check_unused(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.offered(volume).into_iter().try_for_each(|export| self.check_one_unused(volume, export))
    }

    pub(super) fn check_one_unused(&self, volume: &VolumeRecord, export: Export) -> Result<(), ControlError> {
        if export.is_device() {
            self.check_unshared(volume)?;
        }
        if let Some(user) = self.data().export_in_use(volume, &export) {
            if let Some(attachment) = &volume.attachment {
                return Err(ControlError::BadCombination(
                    format!("the volume \"{}\" is attached to {}, which is in use", volume.name, attachment.device),
                    format!("detach it with `hearth detach {}`: nothing needs to be unmounted", volume.name),
                ));
            }
            return Err(ControlError::Export {
                export: format!("the {export} export of \"{}\"", volume.name),
                problem: format!("it is in use ({user})"),
                remedy: "unmount it or close what uses it, then try again".into(),
            });
        }
        Ok(())
    }

    /// Makes the block device anew that could not be told its new size, if nobody uses it, and nobody is logged in where it is shared. Gives
    /// whether there is one that has the size.
    pub(super) fn renew_idle_device(&self, volume: &VolumeRecord) -> bool {
        let Some(device) = self.offered(volume).into_iter().find(|export| export.is_device()) else { return false };
        if volume.attachment.is_some() || !self.withdraw_idle_shares(volume) {
            return false;
        }
        let is_used = self.data().export_in_use(volume, &device).is_some();
        if is_used || self.withdraw_one(volume, device, Withdrawal::IfUnused).is_err() {
            let place = self.memory().volumes.get(&volume.name).and_then(|live| live.exports.get(&device).cloned());
            place.into_iter().for_each(|place| self.offer_shares(&volume.name, &place));
            return false;
        }
        self.export_missing(volume).is_ok()
    }

    /// Makes the loop export anew whose device somebody else took away: nothing of ours may lead to a number that is another's.
    pub(super) fn renew_lost_loop(&self, volume: &VolumeRecord) {
        let name = &volume.name;
        // Whoever is at it sees it too; or the next look does.
        let Ok(_claim) = self.claim(&[(Named::Volume, name)], "the renewal of its loop device") else { return };
        let Some(volume) = &self.memory().state.exported().into_iter().find(|known| known.uuid == volume.uuid) else { return };
        let offered = self.memory().volumes.get(name).and_then(|live| {
            let (export, place) = live.block_device()?;
            Some((export, place.to_owned()))
        });
        let Some((export, lost)) = offered else { return };
        if !self.data().device_is_lost(name) {
            return;
        }
        if let Err(error) = self.withdraw_one(volume, export, Withdrawal::Forced) {
            tracing::warn!("what is left of the loop device of {name} does not go: {error}");
        }
        match self.offer_one(volume, export) {
            Ok(now) => {
                let message = format!("its loop device {lost} was detached by another program: it is offered as {now} now");
                self.events().note(Severity::Warning, name, message);
            }
            Err(error) => {
                let message = format!("its loop device {lost} was detached by another program, and it cannot be offered again: {error}");
                self.events().note(Severity::Error, name, message);
            }
        }
    }

    /// Looks whether the stable name of a volume's block device is there, and has it made again where it can be. Who finds it by that must find
    /// nothing else.
    pub(super) fn look_at_name(&self, name: &str) {
        let as_known = || {
            let memory = self.memory();
            let live = memory.volumes.get(name)?;
            let place = live.block_device()?.1.to_owned();
            Some((place, live.stable_path.clone(), live.nameless.clone()))
        };
        // What is in its place may take seconds to answer: the volume is not kept from others meanwhile.
        let Some((place, path, nameless)) = as_known() else { return };
        let Some(found) = self.data().stable_name(name) else { return };
        if shown_name(found.clone()) == (path, nameless) {
            return;
        }
        // A device that is being made or withdrawn is its own affair, and so is one that was made meanwhile.
        let Ok(_claim) = self.claim(&[(Named::Volume, name)], "a look at its stable name") else { return };
        if as_known().is_some_and(|(now, ..)| now == place) {
            self.note_name(name, found);
        }
    }

    /// The stable name is there, or not for that reason. Told if it is news.
    fn note_name(&self, name: &str, found: Result<String, String>) {
        let (path, nameless) = shown_name(found);
        let mut is_news = false;
        self.set_live_volume(name, |live| {
            is_news = live.nameless != nameless;
            (live.stable_path, live.nameless) = (path.clone(), nameless.clone());
        });
        match (nameless, path) {
            _ if !is_news => {}
            (Some(Trouble { problem, remedy }), _) => self.events().note(Severity::Warning, name, format!("{problem}; {remedy}")),
            (None, path) => {
                let path = path.unwrap_or_default();
                self.events().note(Severity::Info, name, format!("its block device has its stable name: {path}"));
            }
        }
    }

    /// Whether the block device stays for those who have it open.
    fn stays(&self, volume: &VolumeRecord, export: &Export, how: Withdrawal) -> bool {
        match how {
            Withdrawal::PoolRestarts => true,
            Withdrawal::DaemonEnds => self.data().outlives(volume, export, Absence::DaemonStops),
            Withdrawal::IfUnused | Withdrawal::Forced => false,
        }
    }

    /// Who uses the export. What the kernel's targets hold shows nowhere else.
    fn user_of(&self, volume: &VolumeRecord, export: &Export) -> Option<String> {
        let shared = self.memory().volumes.get(&volume.name).and_then(|live| live.shares.keys().next().copied());
        match shared {
            Some(protocol) if export.is_device() => Some(format!("shared by {}", protocol.title())),
            _ => self.data().export_in_use(volume, export),
        }
    }

    pub(super) fn offered(&self, volume: &VolumeRecord) -> Vec<Export> {
        self.memory().volumes.get(&volume.name).map(|v| v.exports.keys().copied().collect()).unwrap_or_default()
    }

    /// Offers the volume so; gives where.
    fn offer_one(&self, volume: &VolumeRecord, export: Export) -> Result<String, ControlError> {
        let offer = self.data().export(volume, &export)?;
        for warning in offer.warnings {
            self.events().note(Severity::Warning, &volume.name, warning);
        }
        self.set_live_volume(&volume.name, |live| {
            live.exports.insert(export, offer.place.clone());
            live.lacking.remove(&export);
            live.on_restart.insert(export, offer.on_restart);
            live.export_notes.extend(offer.note.map(|note| (export, note)));
            live.stable_path = offer.stable_path.or(live.stable_path.take());
        });
        if let Some(problem) = offer.nameless {
            self.note_name(&volume.name, Err(problem));
        }
        if export.is_device() {
            self.offer_shares(&volume.name, &offer.place);
        }
        Ok(offer.place)
    }

    /// What is lost by it is told, too.
    fn withdraw_one(&self, volume: &VolumeRecord, export: Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        if export.is_device() && !self.stays(volume, &export, how) {
            self.withdraw_shares(volume);
        }
        let lost = self.data().unexport(volume, &export, how)?;
        if let Some(lost) = &lost {
            self.events().note(Severity::Warning, &volume.name, format!("what lay in memory above the volume is lost: {lost}"));
        }
        self.set_live_volume(&volume.name, |live| {
            live.exports.remove(&export);
            live.on_restart.remove(&export);
            live.export_notes.remove(&export);
            if export.is_device() {
                (live.stable_path, live.nameless) = (None, None);
            }
        });
        Ok(lost)
    }
}

/// The stable name as it is shown: its path, or what is wrong and what to do.
fn shown_name(found: Result<String, String>) -> (Option<String>, Option<Trouble>) {
    match found {
        Ok(path) => (Some(path), None),
        Err(sentence) => {
            let (problem, remedy) = sentence.rsplit_once(": ").unwrap_or((&sentence, ""));
            let problem = format!("its block device has no stable name: {problem}");
            let remedy = format!("{remedy}; the name comes by itself when its place is free");
            (None, Some(Trouble { problem, remedy }))
        }
    }
}
