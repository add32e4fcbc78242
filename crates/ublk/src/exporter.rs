//! Volumes as ublk devices: one for each.

use crate::{Probe, SERVER_PATIENCE, UblkError, UblkExport, UblkOptions, end_left, forget_name, is_of, is_ours, is_there, left, support};
use export::exporter::Support;
use export::kept::{PATIENCE, memory_of, name_of, owner_of, text_of};
use export::site::{STABLE_DIRECTORY, WRITE_BACK_PATIENCE};
use export::slots::{Slots, locked};
use export::{
    Absence, BlockBelow, BlockExporter, Export, ExportError, Exporter, Kept, Offer, OnRestart, Owner, Site, Users, Volume, Way, Withdrawal,
    ways,
};
use runtime::VolumeRef;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long setting a device up and taking it down may take. Both do I/O on the volume.
const SETUP_PATIENCE: Duration = Duration::from_secs(60);
/// How long a device without server may take to end.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// The kind of what is kept of a device for the next daemon. The kernel keeps the device: what is kept is a sign that there is one, with the
/// volume's name.
pub const KIND: &str = "ublk";

/// The ublk devices of all volumes.
pub struct UblkExporter {
    site: Arc<Site>,
    probe: Probe,
    made: Slots<UblkExport>,
    /// Devices whose users wait: their pool is stopped and started, or they were to end and did not.
    suspended: Mutex<BTreeMap<Owner, (Instant, UblkExport)>>,
    /// Volumes for whose devices the server before was waited for in vain. The next try does not wait as long once more.
    in_vain: Mutex<BTreeSet<Owner>>,
}

impl UblkExporter {
    /// None yet. `probe` finds out whether the kernel offers ublk.
    pub fn new(site: Arc<Site>, probe: Probe) -> UblkExporter {
        UblkExporter { site, probe, made: Slots::default(), suspended: Mutex::default(), in_vain: Mutex::default() }
    }

    /// Goes on with a device whose users wait for the pool. Gives it if it can be gone on with; what users should know is added to `warnings`.
    ///
    /// # Errors
    /// If it cannot now: its users wait on.
    fn resume(&self, volume: &Volume<'_>, reference: &VolumeRef, warnings: &mut Vec<String>) -> Result<Option<UblkExport>, ExportError> {
        let Some((since, mut made)) = locked(&self.suspended).remove(&volume.owner) else { return Ok(None) };
        let wait_on = |made, error| {
            locked(&self.suspended).insert(volume.owner, (since, made));
            Err(refused(&error))
        };
        match made.resume(reference) {
            Ok(notes) => {
                warnings.extend(notes);
                Ok(Some(made))
            }
            // The next try may succeed.
            Err(error) if !error.is_unfit() => wait_on(made, error),
            Err(error) => {
                warnings.push(format!("{error}: users of the old device get errors, and a new one is made"));
                match made.abandon(&self.site.runtime, Duration::ZERO) {
                    Ok(lost) => {
                        warnings.extend(lost.map(|lost| lost.to_string()));
                        Ok(None)
                    }
                    Err(error) => wait_on(made, error),
                }
            }
        }
    }

    /// Makes a device, or goes on with the one that an earlier daemon left.
    fn start(&self, volume: &Volume<'_>, reference: &VolumeRef, warnings: &mut Vec<String>) -> Result<UblkExport, ExportError> {
        let kept = &self.site.kept;
        // Before the device: its users are not to wait for ever for a daemon that is killed in between.
        warnings.extend(self.keep(volume).err());
        let has_waited = locked(&self.in_vain).contains(&volume.owner);
        let options = UblkOptions {
            may_take_over: !kept.is_strange(volume.owner),
            owner: volume.owner.0,
            probe: self.probe.clone(),
            link_directory: self.site.link_directory(),
            patience: SETUP_PATIENCE,
            server_patience: if has_waited { Duration::ZERO } else { SERVER_PATIENCE },
            outlives: kept.has_keeper(),
        };
        match UblkExport::start(&self.site.runtime, reference, volume.name, &options) {
            Ok(made) => {
                kept.wait_no_more(&name_of(KIND, volume.owner));
                locked(&self.in_vain).remove(&volume.owner);
                Ok(made)
            }
            Err(error) => {
                locked(&self.in_vain).insert(volume.owner);
                // What cannot be seen may be there.
                not_served(kept, volume, is_there(volume.owner.0).unwrap_or(true));
                Err(refused(&error))
            }
        }
    }

    /// Keeps the sign that the volume has a device: its holder ends the device if no daemon comes.
    ///
    /// # Errors
    /// A sentence for the administrator.
    fn keep(&self, volume: &Volume<'_>) -> Result<(), String> {
        let sign = memory_of(volume.name.as_bytes());
        let held = sign.and_then(|sign| self.site.kept.hold(&name_of(KIND, volume.owner), &[sign.as_fd()]));
        held.map_err(|error| format!("users of its ublk device may wait for ever if the daemon does not come back ({error})"))
    }

    fn forget(&self, owner: Owner) {
        self.site.kept.forget(&name_of(KIND, owner));
    }

    /// Ends a device whose users wait. One that does not go is kept: its users get errors, and it is ended later.
    fn end_suspended(&self, owner: Owner, since: Instant, mut made: UblkExport) -> Result<(), UblkError> {
        match made.abandon(&self.site.runtime, Duration::ZERO) {
            Ok(lost) => {
                self.forget(owner);
                log(lost.map_or(Ok(()), |lost| Err(lost.to_string())));
                Ok(())
            }
            Err(error) => {
                locked(&self.suspended).insert(owner, (since, made));
                Err(error)
            }
        }
    }

    /// Removes the stable name of a device that has ended.
    fn forget_name(&self, volume: &str) {
        if self.site.has_stable_names && !volume.is_empty() {
            log(forget_name(Path::new(STABLE_DIRECTORY), volume).map(drop));
        }
    }
}

/// Logs what went wrong where there is no request to answer.
fn log(result: Result<(), String>) {
    if let Err(problem) = result {
        tracing::warn!("{problem}");
    }
}

impl Exporter for UblkExporter {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 1] = [&ways::UBLK];
        &WAYS
    }

    fn check(&self, _export: Export) -> Result<(), ExportError> {
        Ok(())
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, _export: Export) -> Result<Offer, ExportError> {
        let mut warnings = Vec::new();
        let made = match self.resume(volume, reference, &mut warnings)? {
            Some(made) => made,
            None => self.start(volume, reference, &mut warnings)?,
        };
        warnings.extend(made.warnings().iter().cloned());
        let offer = Offer {
            place: made.device_path().display().to_string(),
            stable_path: made.link_path().map(|path| path.display().to_string()),
            nameless: made.nameless().map(str::to_owned),
            warnings,
            on_restart: match (self.site.kept.has_keeper(), self.site.kept.outlives_a_stop()) {
                (false, _) => OnRestart::Ends,
                (true, false) => OnRestart::WaitsIfKilled,
                (true, true) => OnRestart::Waits,
            },
            note: None,
        };
        self.made.put(volume.owner, made);
        Ok(offer)
    }

    fn withdraw(&self, volume: &Volume<'_>, _export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        let runtime = &self.site.runtime;
        let Some(mut made) = self.made.take(volume.owner) else { return Ok(None) };
        let patience = self.site.patience(WRITE_BACK_PATIENCE);
        let gone = match how {
            Withdrawal::DaemonEnds if self.site.kept.outlives_a_stop() && !made.is_ending() && made.users().is_some() => {
                return made.park(runtime, patience).map(|()| None).map_err(|error| refused(&error));
            }
            Withdrawal::PoolRestarts => {
                made.suspend();
                locked(&self.suspended).insert(volume.owner, (Instant::now(), made));
                return Ok(None);
            }
            Withdrawal::DaemonEnds | Withdrawal::Forced => made.abandon(runtime, patience),
            Withdrawal::IfUnused => made.stop(runtime),
        };
        match gone {
            Ok(lost) => {
                self.forget(volume.owner);
                Ok(lost.map(|lost| lost.to_string()))
            }
            Err(error) => {
                // It is still there: it goes on, or is to go at the next try.
                self.made.put(volume.owner, made);
                Err(refused(&error))
            }
        }
    }

    fn users(&self, volume: &Volume<'_>, _export: Export) -> Users {
        // Looking may take a while: not with the lock.
        let handle = self.made.with(volume.owner, |made| made.handle());
        handle.and_then(|handle| handle.users()).into()
    }

    fn outlives(&self, volume: &Volume<'_>, _export: Export, absence: Absence) -> bool {
        match absence {
            Absence::DaemonStops => self.site.kept.outlives_a_stop() && self.made.has(volume.owner),
            Absence::PoolRestarts => self.made.has(volume.owner),
        }
    }

    fn volume_on(&self, device: &BlockBelow, volumes: &[Volume<'_>]) -> Option<String> {
        volumes.iter().find(|volume| is_of(&device.name, volume.owner.0)).map(|volume| volume.name.to_owned())
    }

    fn grow(&self, owner: Owner, size_bytes: u64) -> Vec<String> {
        let handle = self.made.with(owner, |made| made.handle());
        handle.and_then(|handle| handle.set_size(size_bytes).err()).map(|error| error.to_string()).into_iter().collect()
    }

    fn set_names(&self, _volume: &Volume<'_>) {}

    fn expect(&self, _volumes: &[Volume<'_>]) {}

    fn close_overdue(&self, known: &[Volume<'_>], busy: &[String]) -> Vec<String> {
        let of = |owner: &Owner| known.iter().find(|volume| volume.owner == *owner);
        let is_over = |owner: &Owner, since: Instant| match of(owner) {
            Some(volume) if busy.iter().any(|busy| busy == volume.name) => false,
            Some(volume) => volume.rests || since.elapsed() >= PATIENCE,
            None => true,
        };
        // One that did not go is not tried all the time.
        let is_due = |owner: &Owner, since: Instant, made: &UblkExport| {
            if made.is_ending() { since.elapsed() >= PATIENCE } else { is_over(owner, since) }
        };
        let over: Vec<(Owner, (Instant, UblkExport))> =
            locked(&self.suspended).extract_if(.., |owner, (since, made)| is_due(owner, *since, made)).collect();
        let mut closed = Vec::new();
        for (owner, (_, made)) in over {
            log(self.end_suspended(owner, Instant::now(), made).map_err(|error| error.to_string()));
            closed.extend(of(&owner).map(|volume| volume.name.to_owned()));
        }
        closed
    }

    fn end_waiting(&self, volume: &Volume<'_>) {
        let suspended = locked(&self.suspended).remove(&volume.owner);
        if suspended.is_none() {
            // Its number is another's soon.
            self.forget_name(volume.name);
        }
        let ended = match suspended {
            Some((since, made)) => self.end_suspended(volume.owner, since, made).map(|()| true),
            None => end_left_device(volume.owner).map(|ended| ended.is_some()),
        };
        match ended {
            Ok(false) => {}
            Ok(true) => tracing::warn!("users of {} get errors: its content is not what they knew", volume.name),
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        }
        self.forget(volume.owner);
    }

    /// A device that was to end and did not is kept until it can be ended, or gone on with, and its users wait unless they get errors already.
    fn detached(&self, volume: &Volume<'_>) {
        let Some(made) = self.made.remove(volume.owner) else { return };
        if !made.is_ending() {
            made.suspend();
        }
        locked(&self.suspended).insert(volume.owner, (Instant::now(), made));
    }

    /// Users who wait for a pool go on waiting for the next daemon, or get errors.
    fn finish(&self) {
        for (owner, (_, made)) in std::mem::take(&mut *locked(&self.suspended)) {
            let ended = match self.site.kept.outlives_a_stop() && !made.is_ending() {
                true => made.leave(&self.site.runtime),
                false => self.end_suspended(owner, Instant::now(), made),
            };
            log(ended.map_err(|error| error.to_string()));
        }
    }

    fn keeps(&self) -> Option<&'static str> {
        Some(KIND)
    }

    fn end_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool {
        let Some(owner) = owner_of(name) else {
            self.site.kept.forget(name);
            return true;
        };
        // Its number is another's soon.
        self.forget_name(&text_of(&set));
        was_to_end(&self.site.kept, name, set, end_left_device(owner))
    }
}

impl BlockExporter for UblkExporter {
    fn has(&self, volume: &Volume<'_>) -> bool {
        self.made.has(volume.owner)
    }

    fn is_awaited(&self, volume: &Volume<'_>) -> bool {
        let waits = || self.site.kept.waits(&name_of(KIND, volume.owner));
        let is_left = left(volume.owner.0).map_or_else(|_| waits(), |left| left.is_some());
        is_left || locked(&self.suspended).contains_key(&volume.owner)
    }

    fn support(&self) -> Result<Support, ExportError> {
        match support::check(&self.probe) {
            Ok(()) => Ok(Support::Yes),
            Err(UblkError::Unsupported { reason }) => Ok(Support::No(reason)),
            Err(error) => Err(refused(&error)),
        }
    }

    fn stable_name(&self, owner: Owner) -> Option<Result<String, String>> {
        node::link::keep(
            || self.made.with(owner, |made| made.stable_name()),
            |is_missing, wanted| {
                let place = |made: &mut UblkExport| is_missing(&made.stable_name()).then(|| wanted.place().map(|link| made.set_link(link)));
                self.made.with(owner, place).flatten()
            },
        )
    }

    fn waits_unseen(&self, disk: &str) -> bool {
        is_ours(disk)
    }

    fn is_lost(&self, owner: Owner) -> bool {
        self.made.with(owner, |made| made.is_lost()) == Some(true)
    }

    /// The kernel's devices of volumes that are known are gone on with or ended when they have waited; their names stay until then.
    fn clear(&self, _volume: &Volume<'_>) {}

    fn set_read_only(&self, owner: Owner, read_only: bool) -> Result<(), ExportError> {
        let Some(handle) = self.made.with(owner, |made| made.handle()) else { return Ok(()) };
        handle.set_read_only(read_only).map_err(|error| ExportError::failed(&error, ""))
    }

    /// What is under way of a volume whose users wait would become dirty, and be acknowledged, in a log that is made anew.
    fn check_quiet(&self, volume: &Volume<'_>) -> Result<(), ExportError> {
        match locked(&self.suspended).get(&volume.owner) {
            Some((_, made)) if !made.is_quiet() => {
                let problem = format!("requests of the volume \"{}\" do not end", volume.name);
                Err(ExportError::failed(&problem, "see whether its disks work, then try again"))
            }
            _ => Ok(()),
        }
    }
}

/// The device could not be made, or not be taken over. If there is one, its users wait, as long as they may.
fn not_served(kept: &Kept, volume: &Volume<'_>, is_there: bool) {
    let name = name_of(KIND, volume.owner);
    if is_there {
        kept.wait(name, memory_of(volume.name.as_bytes()).into_iter().collect());
    } else {
        kept.wait_no_more(&name);
        kept.forget(&name);
    }
}

/// Forgets a device that has ended; one that has not is tried again when its users have waited as long once more. Gives whether it has.
fn was_to_end(kept: &Kept, name: &str, sign: Vec<OwnedFd>, ended: Result<Option<PathBuf>, UblkError>) -> bool {
    match ended {
        Ok(_) => {
            kept.forget(name);
            true
        }
        Err(error) => {
            tracing::warn!("{error}; it is tried again");
            kept.wait(name.to_owned(), sign);
            false
        }
    }
}

/// Ends the device of a volume that has no server. Gives its path; `None` if there is none.
///
/// # Errors
/// If it does not end.
pub fn end_left_device(owner: Owner) -> Result<Option<PathBuf>, UblkError> {
    let Some(left) = left(owner.0)? else { return Ok(None) };
    end_left(&left, END_PATIENCE).map(|()| Some(left.path))
}

fn refused(error: &UblkError) -> ExportError {
    match error {
        UblkError::InUse { device, by } => ExportError::in_use(device, by),
        // Its sentences say what to do already.
        other => ExportError::failed(other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner(9);

    fn volume() -> Volume<'static> {
        Volume { name: "v", owner: OWNER, backing: "", exports: &[], tls_names: &[], read_only: false, rests: false }
    }

    /// Users of a device that could not be taken over would wait for ever if it were forgotten that they do.
    #[test]
    fn a_take_over_that_fails_leaves_its_users_waiting() {
        let (kept, name) = (Kept::new(None), name_of(KIND, OWNER));
        not_served(&kept, &volume(), true);
        assert!(kept.waits(&name), "one that was made and did not go is ended, too");
        not_served(&kept, &volume(), false);
        assert!(!kept.waits(&name), "there is no device");
    }

    #[test]
    fn a_device_that_does_not_end_is_tried_again() {
        let (kept, name) = (Kept::new(None), name_of(KIND, OWNER));
        let sign = || vec![memory_of(b"the name").expect("there is memory")];
        let late = UblkError::TimedOut { step: "ending a ublk device", seconds: 1 };
        assert!(!was_to_end(&kept, &name, sign(), Err(late)));
        assert!(kept.waits(&name));
        let taken = kept.try_take(&name, |set| Ok::<_, ()>((text_of(&set), text_of(&set))), |()| false);
        assert_eq!(taken.ok().flatten(), Some(Ok(("the name".into(), "the name".into()))));
        assert!(was_to_end(&kept, &name, sign(), Ok(None)));
        assert!(!kept.waits(&name));
    }
}
