//! Volumes as loop devices: one for each.

use crate::{Cleared, FuseError, LoopExport, LoopOptions, Transport, clear_leftovers, end_kept, ownloop};
use export::exporter::Support;
use export::kept::{NotTaken, name_of};
use export::site::{STABLE_DIRECTORY, WRITE_BACK_PATIENCE};
use export::slots::Slots;
use export::{
    Absence, BlockBelow, BlockExporter, Export, ExportError, Exporter, Offer, OnRestart, Owner, Site, Users, Volume, Way, Withdrawal, ways,
};
use runtime::VolumeRef;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory of the mounted files in the directory of exports.
pub const MOUNTS: &str = "mounts";
/// The kind of what is kept of a device for the next daemon.
pub const KIND: &str = "loop";

/// The driver takes no larger block, and has no other word for what is written as a whole.
const LOOP_BLOCK_BYTES_MAX: u32 = 4096;

/// Units are whole all the same: a write of one is one request. But no program can find it out from the device.
fn says_nothing_of_units(unit_bytes: u32) -> String {
    format!("a loop device cannot announce that aligned writes of {} KiB are atomic: they are", unit_bytes >> 10)
}

/// The loop devices of all volumes.
pub struct LoopExporter {
    site: Arc<Site>,
    made: Slots<LoopExport>,
}

impl LoopExporter {
    /// None yet.
    pub fn new(site: Arc<Site>) -> LoopExporter {
        LoopExporter { site, made: Slots::default() }
    }

    /// Goes on with the device that an earlier daemon has made of the volume, if there is one that fits.
    ///
    /// # Errors
    /// If it cannot be had now: its users wait on, as long as they may.
    fn take_over(
        &self,
        volume: &Volume<'_>,
        reference: &VolumeRef,
        mounts: &Path,
        options: &LoopOptions,
    ) -> Result<Option<LoopExport>, ExportError> {
        let name = name_of(KIND, volume.owner);
        let take = |copies| LoopExport::take_over(&self.site.runtime, reference, volume.name, mounts, options, copies);
        let taken = self.site.kept.try_take(&name, take, |error| matches!(error, FuseError::NotTakenOver { .. }));
        match taken {
            Ok(Some(Ok(made))) => {
                self.site.kept.note_held(&name);
                Ok(Some(made))
            }
            Ok(Some(Err(error))) => {
                tracing::warn!("{error}: users of the old device get errors, and a new one is made");
                self.site.kept.forget(&name);
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(NotTaken::Descriptors(error)) => {
                Err(ExportError::failed(&format!("its descriptors cannot be duplicated ({error})"), "raise the limit on open files"))
            }
            Err(NotTaken::Error(error)) => Err(ExportError::failed(&error, "it is tried again")),
        }
    }

    /// Keeps a device that was just made over a restart of the daemon.
    ///
    /// # Errors
    /// A sentence for the administrator: the device works, and ends with the daemon.
    fn keep(&self, volume: &Volume<'_>, made: &LoopExport) -> Result<(), String> {
        let Some(descriptors) = made.kept() else { return Ok(()) };
        let held = self.site.kept.hold(&name_of(KIND, volume.owner), &descriptors);
        held.map_err(|error| format!("{} cannot be kept over a restart of the daemon ({error})", made.device_path().display()))
    }

    /// Whether the device outlives this process.
    fn is_kept(&self, volume: &Volume<'_>) -> bool {
        self.site.kept.holds(&name_of(KIND, volume.owner))
    }

    fn outlives_a_stop(&self, volume: &Volume<'_>) -> bool {
        self.site.kept.outlives_a_stop() && self.is_kept(volume)
    }

    fn forget(&self, owner: Owner) {
        self.site.kept.forget(&name_of(KIND, owner));
    }

    fn clear_of(&self, owner: &str, name: &str) {
        for problem in clear(owner, name, &self.site.directory, self.site.link_directory()).problems {
            tracing::warn!("{problem}");
        }
    }
}

impl Exporter for LoopExporter {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 2] = [&ways::LOOP, &ways::LOOP_FAST];
        &WAYS
    }

    fn check(&self, _export: Export) -> Result<(), ExportError> {
        Ok(())
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, export: Export) -> Result<Offer, ExportError> {
        let mounts = self.site.directory.join(MOUNTS);
        std::fs::create_dir_all(&mounts).map_err(|source| ExportError::Directory { path: mounts.clone(), source })?;
        let transport = if *export.way() == ways::LOOP_FAST { Transport::Best } else { Transport::Classic };
        let link_directory = self.site.link_directory();
        let options = LoopOptions { owner: volume.owner.to_string(), link_directory, transport, ..LoopOptions::default() };
        let (made, problem) = match self.take_over(volume, reference, &mounts, &options)? {
            Some(made) => (made, None),
            None => {
                let made = LoopExport::start(&self.site.runtime, reference, volume.name, &mounts, &options);
                let made = made.map_err(|e| refused(&e))?;
                let problem = self.keep(volume, &made).err();
                (made, problem)
            }
        };
        let on_restart = match made.repeats_writes() {
            _ if !self.is_kept(volume) => OnRestart::Ends,
            true if !self.site.kept.outlives_a_stop() => OnRestart::WaitsIfKilled,
            true => OnRestart::Waits,
            false => OnRestart::WritesFail,
        };
        let offer = Offer {
            place: made.device_path().display().to_string(),
            stable_path: made.link_path().map(|p| p.display().to_string()),
            nameless: made.nameless().map(str::to_owned),
            warnings: made.warnings().iter().cloned().chain(problem).collect(),
            on_restart,
            note: reference.atomic_bytes().filter(|bytes| *bytes > LOOP_BLOCK_BYTES_MAX).map(says_nothing_of_units),
        };
        self.made.put(volume.owner, made);
        Ok(offer)
    }

    fn withdraw(&self, volume: &Volume<'_>, _export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        let runtime = &self.site.runtime;
        let Some(mut made) = self.made.take(volume.owner) else { return Ok(None) };
        let patience = self.site.patience(WRITE_BACK_PATIENCE);
        match how {
            Withdrawal::DaemonEnds if self.outlives_a_stop(volume) && made.users().is_some() => {
                return made.park(runtime, patience).map(|()| None).map_err(|e| refused(&e));
            }
            Withdrawal::DaemonEnds | Withdrawal::Forced => {
                // What hangs ends with the last descriptor.
                self.forget(volume.owner);
                return match made.abandon(runtime, patience) {
                    // The device is gone all the same.
                    Err(lost @ FuseError::NotWrittenBack { .. }) => Ok(Some(lost.to_string())),
                    ended => ended.map(|()| None).map_err(|e| refused(&e)),
                };
            }
            Withdrawal::PoolRestarts if self.is_kept(volume) => {
                match made.suspend(runtime) {
                    Ok(waiting) => self.site.kept.wait_with(name_of(KIND, volume.owner), waiting),
                    // It is gone with that: another one is made when the volume is back.
                    Err(error) => {
                        tracing::warn!("users of the block device of {} get errors: {error}", volume.name);
                        self.forget(volume.owner);
                    }
                }
                return Ok(None);
            }
            Withdrawal::PoolRestarts | Withdrawal::IfUnused => {}
        }
        let stopped = made.stop(runtime);
        match stopped {
            Ok(_) => self.forget(volume.owner),
            Err(_) => self.made.put(volume.owner, made),
        }
        stopped.map(|lost| lost.map(|lost| lost.to_string())).map_err(|e| refused(&e))
    }

    fn users(&self, volume: &Volume<'_>, _export: Export) -> Users {
        // Looking may take a while: not with the lock.
        let handle = self.made.with(volume.owner, |made| made.handle());
        handle.and_then(|handle| handle.users()).into()
    }

    /// Where the kernel cannot repeat requests, those under way would fail when the pool is stopped.
    fn outlives(&self, volume: &Volume<'_>, _export: Export, absence: Absence) -> bool {
        match absence {
            Absence::DaemonStops => self.outlives_a_stop(volume),
            Absence::PoolRestarts => self.made.with(volume.owner, |made| made.repeats_writes()) == Some(true) && self.is_kept(volume),
        }
    }

    fn volume_on(&self, device: &BlockBelow, volumes: &[Volume<'_>]) -> Option<String> {
        let file = device.loop_file()?;
        if is_mounted_for(&file, &self.site.directory) {
            return Some(file.file_name()?.to_string_lossy().into_owned());
        }
        let owner = has_no_name(&file).then(|| ownloop::owner_of(&path_of(device))).flatten()?;
        volumes.iter().find(|volume| volume.owner.to_string() == owner).map(|volume| volume.name.to_owned())
    }

    fn grow(&self, owner: Owner, size_bytes: u64) -> Vec<String> {
        let grown = self.made.with(owner, |made| made.capacity_changed(size_bytes));
        grown.and_then(Result::err).into_iter().collect()
    }

    fn set_names(&self, _volume: &Volume<'_>) {}

    fn expect(&self, _volumes: &[Volume<'_>]) {}

    fn close_overdue(&self, _known: &[Volume<'_>], _busy: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn end_waiting(&self, _volume: &Volume<'_>) {}

    fn detached(&self, volume: &Volume<'_>) {
        drop(self.made.remove(volume.owner));
    }

    fn finish(&self) {}

    fn keeps(&self) -> Option<&'static str> {
        Some(KIND)
    }

    /// Of a block device nothing is left, but for those who have it open.
    fn end_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool {
        match end_kept(name, set, || self.site.kept.forget(name)) {
            Ok((_, volume)) => {
                let owner = export::kept::owner_of(name).map(|owner| owner.to_string()).unwrap_or_default();
                self.clear_of(&owner, &volume);
            }
            Err(error) => tracing::warn!("{error}"),
        }
        true
    }
}

impl BlockExporter for LoopExporter {
    fn has(&self, volume: &Volume<'_>) -> bool {
        self.made.has(volume.owner)
    }

    fn is_awaited(&self, volume: &Volume<'_>) -> bool {
        self.site.kept.waits(&name_of(KIND, volume.owner))
    }

    fn support(&self) -> Result<Support, ExportError> {
        Ok(Support::Yes)
    }

    fn stable_name(&self, owner: Owner) -> Option<Result<String, String>> {
        node::link::keep(
            || self.made.with(owner, |made| made.stable_name()),
            |is_missing, wanted| {
                let place = |made: &mut LoopExport| is_missing(&made.stable_name()).then(|| wanted.place().map(|link| made.set_link(link)));
                self.made.with(owner, place).flatten()
            },
        )
    }

    /// The kernel shows the file below, and whose it is.
    fn waits_unseen(&self, _disk: &str) -> bool {
        false
    }

    fn is_lost(&self, owner: Owner) -> bool {
        self.made.with(owner, |made| made.is_lost()) == Some(true)
    }

    /// Whoever gets the loop device next must not be found under the volume's stable name. Users of what an earlier daemon has kept open
    /// wait: it may be served yet.
    fn clear(&self, volume: &Volume<'_>) {
        if !self.is_awaited(volume) {
            self.clear_of(&volume.owner.to_string(), volume.name);
        }
    }

    fn set_read_only(&self, owner: Owner, read_only: bool) -> Result<(), ExportError> {
        let set = self.made.with(owner, |made| made.set_read_only(read_only));
        set.unwrap_or(Ok(())).map_err(|problem| ExportError::failed(&problem, ""))
    }

    /// Users of one that is suspended wait in the kernel.
    fn check_quiet(&self, _volume: &Volume<'_>) -> Result<(), ExportError> {
        Ok(())
    }
}

/// Whether a block device is one of the daemon with that export directory, or one whose users wait for a daemon to come.
pub fn waits_for_a_daemon(device: &BlockBelow, export_directory: &Path) -> bool {
    let is_ours =
        |file: &Path| is_mounted_for(file, export_directory) || has_no_name(file) && ownloop::waits_for_a_daemon(&path_of(device));
    device.loop_file().is_some_and(|file| is_ours(&file))
}

/// Whether a file is what the daemon with that export directory mounts for a volume. Others may have theirs below it: a `hearth model` does.
fn is_mounted_for(file: &Path, export_directory: &Path) -> bool {
    file.parent() == Some(&export_directory.join(MOUNTS))
}

/// How a file looks from another mount namespace.
fn has_no_name(file: &Path) -> bool {
    file == Path::new("/")
}

fn path_of(device: &BlockBelow) -> PathBuf {
    Path::new("/dev").join(&device.name)
}

/// Takes away what a process that was killed left of a loop export without a stable name, by the export's UUID and name, in its export
/// directory. Gives what could not be, one sentence each.
pub fn clear_killed_export(uuid: &str, name: &str, export_directory: &Path) -> Vec<String> {
    let mut problems = clear(uuid, name, export_directory, None).problems;
    // The file that was mounted over is empty; anything else is nothing of ours.
    let mounts = export_directory.join(MOUNTS);
    let file = mounts.join(name);
    let is_ours = std::fs::symlink_metadata(&file).is_ok_and(|facts| facts.is_file() && facts.len() == 0);
    let removed = if is_ours { std::fs::remove_file(&file) } else { Ok(()) };
    let removed = removed.and_then(|()| if mounts.is_dir() { std::fs::remove_dir(&mounts) } else { Ok(()) });
    problems.extend(removed.err().map(|error| format!("{} was not removed ({error})", mounts.display())));
    problems
}

/// The same with a stable name where stable names are.
pub fn clear_export(uuid: &str, name: &str, export_directory: &Path) -> Cleared {
    clear(uuid, name, export_directory, Some(STABLE_DIRECTORY.into()))
}

fn clear(uuid: &str, name: &str, export_directory: &Path, link_directory: Option<PathBuf>) -> Cleared {
    let options = LoopOptions { owner: uuid.to_owned(), link_directory, ..LoopOptions::default() };
    clear_leftovers(&options, name, &export_directory.join(MOUNTS))
}

fn refused(error: &FuseError) -> ExportError {
    // Its sentences say what to do already.
    match error {
        FuseError::InUse { device, by } => ExportError::in_use(device, by),
        // What the machine does not offer, or somebody else has: nothing has failed.
        FuseError::NotRoot
        | FuseError::NoFuse { .. }
        | FuseError::NoLoop { .. }
        | FuseError::TooOld { .. }
        | FuseError::NoRing
        | FuseError::NoDirectIo { .. }
        | FuseError::NoFreeDevice { .. }
        | FuseError::PathTaken { .. }
        | FuseError::ServedElsewhere { .. }
        | FuseError::Covered { .. } => {
            let sentence = error.to_string();
            let (problem, remedy) = sentence.rsplit_once(": ").unwrap_or((&sentence, ""));
            ExportError::Refused { export: "loop".into(), problem: problem.into(), remedy: remedy.into() }
        }
        other => ExportError::failed(other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A modelled disk has its own directory, in that of the daemon.
    #[test]
    fn what_a_model_mounts_is_no_volume_of_the_daemon() {
        let exports = Path::new("/run/hearth");
        assert!(is_mounted_for(Path::new("/run/hearth/mounts/data"), exports));
        for other in ["/run/hearth/model-abf9cb0b/mounts/model", "/run/hearth/data", "/run/other/mounts/data", "/"] {
            assert!(!is_mounted_for(Path::new(other), exports), "{other}");
        }
    }

    #[test]
    fn what_the_machine_lacks_is_no_failure_of_the_daemon() {
        let no = || std::io::Error::from(std::io::ErrorKind::NotFound);
        for error in [FuseError::NotRoot, FuseError::NoFuse { source: no() }, FuseError::NoLoop { source: no() }] {
            match refused(&error) {
                ExportError::Refused { problem, remedy, .. } => {
                    assert!(remedy.contains("NBD instead") && !problem.contains("NBD"), "{problem}; {remedy}");
                }
                other => panic!("{other}"),
            }
        }
    }
}
