//! Exports that an earlier daemon has kept open for this one, and this one for the next.

use super::exports::{STABLE_DIRECTORY, clear};
use super::{Machine, failed, locked};
use crate::error::ControlError;
use crate::state::VolumeRecord;
use crate::store;
use crate::uuid::Uuid;
use fuse::{Cleared, FuseError, LoopExport, LoopOptions};
use keeper::{Keeper, Kept};
use runtime::VolumeRef;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long users of an export wait for a volume that does not start. Longer than a disk takes that
/// comes late; users of a disk that does not come at all are to hear of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long initiators of a shared device wait for a daemon: shorter than their own patience, since the kernel's targets have none (docs/shares.md).
const SHARE_PATIENCE: Duration = Duration::from_secs(25);
/// How long a device without server may take to end.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// How the names of loop exports' descriptors begin; the volume's UUID follows.
const LOOP: &str = "loop.";
/// The same of a ublk device, which the kernel keeps: what is kept is a sign that there is one. The
/// volume's UUID follows.
const UBLK: &str = "ublk.";
/// The same of a client of the NBD server; the volume's UUID follows, and a number.
const NBD: &str = "nbd.";
/// The NBD server's socket.
const NBD_LISTENER: &str = "nbd-listener";

/// What is kept open.
pub(super) struct KeptExports {
    keeper: Option<Keeper>,
    /// From the daemon before, or from before a restart of the pool, and not taken over yet; with
    /// the time since when they wait.
    waiting: Mutex<BTreeMap<String, (Instant, Vec<OwnedFd>)>>,
    /// When it was looked for the first time who waits in vain: from then on the daemon is up.
    first_look: Mutex<Option<Instant>>,
    /// See [`Machine::note_unflushed`]; `None`: not known.
    unflushed: Mutex<BTreeMap<Uuid, Option<BTreeMap<u16, u64>>>>,
    /// Volumes that do not have the content that users of an earlier daemon knew.
    strange: Mutex<BTreeSet<Uuid>>,
    /// By the name of their descriptors: exports of this daemon that are kept for the next.
    kept: Mutex<BTreeSet<String>>,
}

impl KeptExports {
    pub(super) fn new(keeper: Option<Keeper>) -> KeptExports {
        let taken = keeper.as_ref().map_or(Ok(Kept::new()), Keeper::take);
        let waiting = taken.unwrap_or_else(|error| {
            tracing::warn!("what the daemon before has kept open is not known ({error}): users of its block devices may get errors");
            Kept::new()
        });
        if !waiting.is_empty() {
            tracing::info!("the daemon before has kept {} open", types::counted(waiting.len() as u64, "export"));
        }
        let waiting = waiting.into_iter().map(|(name, set)| (name, (Instant::now(), set))).collect();
        KeptExports {
            keeper,
            strange: Mutex::default(),
            waiting: Mutex::new(waiting),
            first_look: Mutex::default(),
            unflushed: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Keeps an export that was just made.
    ///
    /// # Errors
    /// A sentence for the administrator: the export works, and ends with the daemon.
    pub(super) fn keep_loop(&self, record: &VolumeRecord, made: &LoopExport) -> Result<(), String> {
        let (Some(keeper), Some(descriptors)) = (&self.keeper, made.kept()) else { return Ok(()) };
        let name = loop_name(record);
        keeper
            .keep(&name, &descriptors)
            .map_err(|error| format!("{} cannot be kept over a restart of the daemon ({error})", made.device_path().display()))?;
        locked(&self.kept).insert(name);
        Ok(())
    }

    pub(super) fn forget_loop(&self, record: &VolumeRecord) {
        self.forget(&loop_name(record));
    }

    fn forget(&self, name: &str) {
        locked(&self.kept).remove(name);
        if let Some(keeper) = &self.keeper {
            keeper.forget(name);
        }
    }

    /// Whether anything of this process outlives it.
    pub(super) fn has_keeper(&self) -> bool {
        self.keeper.is_some()
    }

    /// Keeps the sign that the volume has a ublk device: who keeps it ends the device if no daemon
    /// comes.
    ///
    /// # Errors
    /// A sentence for the administrator.
    pub(super) fn keep_ublk(&self, record: &VolumeRecord) -> Result<(), String> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let name = ublk_name(record);
        let kept = memory_of(record.name.as_bytes()).and_then(|sign| keeper.keep(&name, &[sign.as_fd()]));
        kept.map_err(|error| format!("users of its ublk device may wait for ever if the daemon does not come back ({error})"))
    }

    /// Whether users of the volume's ublk device wait for it, as far as is known.
    pub(super) fn ublk_waits(&self, record: &VolumeRecord) -> bool {
        locked(&self.waiting).contains_key(&ublk_name(record))
    }

    /// They are served.
    pub(super) fn ublk_waits_no_more(&self, record: &VolumeRecord) {
        locked(&self.waiting).remove(&ublk_name(record));
    }

    /// The ublk device could not be made, or not be taken over. If there is one, its users wait, as long as they may.
    pub(super) fn ublk_not_served(&self, record: &VolumeRecord, is_there: bool) {
        if is_there {
            self.waits_on(ublk_name(record), Instant::now(), memory_of(record.name.as_bytes()).into_iter().collect());
        } else {
            self.ublk_waits_no_more(record);
            self.forget_ublk(record);
        }
    }

    /// Tries to take an export over, with copies of its descriptors. Gives what became of it for good; `None` if nothing is kept under that
    /// name.
    ///
    /// # Errors
    /// Any but that nobody can take it over; its users wait on, since when they do.
    fn try_kept<T>(
        &self,
        name: &str,
        take: impl FnOnce(Vec<OwnedFd>) -> Result<T, FuseError>,
    ) -> Result<Option<Result<T, FuseError>>, ControlError> {
        let Some((since, set)) = locked(&self.waiting).remove(name) else { return Ok(None) };
        let copies = set.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        let taken = match copies {
            Ok(copies) => take(copies),
            Err(error) => {
                self.waits_on(name.to_owned(), since, set);
                return Err(failed(&format!("its descriptors cannot be duplicated ({error})"), "raise the limit on open files"));
            }
        };
        match taken {
            Err(error) if !matches!(error, FuseError::NotTakenOver { .. }) => {
                self.waits_on(name.to_owned(), since, set);
                Err(failed(&error, "it is tried again"))
            }
            settled => Ok(Some(settled)),
        }
    }

    /// Who waits since before goes on waiting since then.
    fn waits_on(&self, name: String, since: Instant, set: Vec<OwnedFd>) {
        locked(&self.waiting).entry(name).or_insert((since, set));
    }

    pub(super) fn forget_ublk(&self, record: &VolumeRecord) {
        self.forget_ublk_of(record.uuid);
    }

    /// The same of a volume that may be known no more.
    pub(super) fn forget_ublk_of(&self, uuid: Uuid) {
        self.forget(&format!("{UBLK}{uuid}"));
    }

    /// The volume's block device is shared with other machines, or is no more: without a daemon, its
    /// users wait less long.
    pub(super) fn note_shared(&self, record: &VolumeRecord, is_shared: bool) {
        let Some(keeper) = &self.keeper else { return };
        for name in [loop_name(record), ublk_name(record)] {
            if let Err(error) = keeper.limit(&name, is_shared.then_some(SHARE_PATIENCE)) {
                tracing::warn!("initiators of {} may wait two minutes if the daemon does not come back: {error}", record.name);
            }
        }
    }

    /// Whether the loop export outlives this process.
    pub(super) fn keeps_loop(&self, record: &VolumeRecord) -> bool {
        locked(&self.kept).contains(&loop_name(record))
    }

    /// The same when this process ends as it is asked to.
    pub(super) fn outlives_a_stop(&self, record: &VolumeRecord) -> bool {
        self.keeper.as_ref().is_some_and(Keeper::outlives_a_stop) && self.keeps_loop(record)
    }

    /// The volume is not served for a while, and users of its loop device wait; it stays kept.
    pub(super) fn waits_for(&self, record: &VolumeRecord, descriptors: Vec<OwnedFd>) {
        locked(&self.waiting).insert(loop_name(record), (Instant::now(), descriptors));
    }

    /// Whether what clients of a server have open can wait for the next daemon when this one is
    /// stopped.
    pub(super) fn keeps_clients(&self) -> bool {
        self.keeper.as_ref().is_some_and(Keeper::outlives_a_stop)
    }

    /// Keeps what the NBD server has left. `uuid_of` gives the UUID of the volume of an export.
    pub(super) fn keep_nbd(&self, left: nbd::Left, uuid_of: impl Fn(&str) -> Option<Uuid>) {
        let Some(keeper) = &self.keeper else { return };
        let keep = |name: &str, socket: OwnedFd, state: &[u8]| {
            let kept = memory_of(state).and_then(|state| keeper.keep(name, &[socket.as_fd(), state.as_fd()]));
            if let Err(error) = kept {
                tracing::warn!("{name} cannot be kept for the next daemon: {error}");
            }
        };
        keep(NBD_LISTENER, left.listener, &left.state);
        for (at, client) in left.clients.into_iter().enumerate() {
            if let Some(uuid) = uuid_of(&client.export) {
                keep(&format!("{NBD}{uuid}.{at}"), client.socket, &client.state);
            }
        }
    }

    /// A client of the volume's NBD export waits while the volume is away. It does not outlive this process.
    pub(super) fn nbd_waits(&self, record: &VolumeRecord, socket: OwnedFd, state: Vec<u8>) {
        match memory_of(&state) {
            Ok(state) => {
                let mut waiting = locked(&self.waiting);
                let number = waiting.len();
                let names = (number..).map(|number| format!("{NBD}{}.{number}", record.uuid));
                let name = names.into_iter().find(|name| !waiting.contains_key(name)).expect("numbers do not end");
                waiting.insert(name, (Instant::now(), vec![socket, state]));
            }
            Err(error) => tracing::warn!("a client of the NBD export {} was disconnected: {error}", record.name),
        }
    }

    /// The socket of the NBD server of the daemon before, and what it is known by.
    pub(super) fn take_nbd_listener(&self) -> Option<(OwnedFd, Vec<u8>)> {
        self.take_with_state(NBD_LISTENER)
    }

    /// Clients of the volume's NBD export of the daemon before.
    pub(super) fn take_nbd_clients(&self, record: &VolumeRecord) -> Vec<(OwnedFd, Vec<u8>)> {
        let prefix = format!("{NBD}{}.", record.uuid);
        let names: Vec<String> = locked(&self.waiting).keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        names.iter().filter_map(|name| self.take_with_state(name)).collect()
    }

    /// From here on this process alone has it open.
    fn take_with_state(&self, name: &str) -> Option<(OwnedFd, Vec<u8>)> {
        let (_, set) = locked(&self.waiting).remove(name)?;
        self.forget(name);
        let [socket, state] = <[OwnedFd; 2]>::try_from(set).ok()?;
        let mut bytes = Vec::new();
        let mut state = File::from(state);
        let read = state.rewind().and_then(|()| state.read_to_end(&mut bytes));
        match read {
            Ok(_) => Some((socket, bytes)),
            Err(error) => {
                tracing::warn!("what the daemon before has kept as {name} cannot be used: {error}");
                None
            }
        }
    }

    /// Whether users of the volume's loop device wait for it.
    pub(super) fn waits(&self, record: &VolumeRecord) -> bool {
        locked(&self.waiting).contains_key(&loop_name(record))
    }
}

impl Machine {
    /// Goes on with the loop device that an earlier daemon has made of the volume, if there is one
    /// that fits.
    ///
    /// # Errors
    /// If it cannot be had now: its users wait on, as long as they may.
    pub(super) fn take_over_loop(
        &self,
        record: &VolumeRecord,
        volume: &VolumeRef,
        mounts: &Path,
        options: &LoopOptions,
    ) -> Result<Option<LoopExport>, ControlError> {
        let name = loop_name(record);
        let take = |copies| LoopExport::take_over(&self.runtime, volume, &record.name, mounts, options, copies);
        match self.kept.try_kept(&name, take)? {
            Some(Ok(made)) => {
                locked(&self.kept.kept).insert(name);
                Ok(Some(made))
            }
            Some(Err(error)) => {
                tracing::warn!("{error}: users of the old device get errors, and a new one is made");
                self.kept.forget(&name);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    pub(super) fn loop_outlives_a_stop(&self, record: &VolumeRecord) -> bool {
        self.kept.outlives_a_stop(record)
    }

    /// See [`crate::datapath::DataPath::close_kept`].
    pub(super) fn close_kept_exports(&self, known: &[VolumeRecord], busy: &[String]) -> Vec<String> {
        let over: Vec<(String, Vec<OwnedFd>)> = {
            let mut waiting = locked(&self.kept.waiting);
            let first_look = *locked(&self.kept.first_look).get_or_insert_with(Instant::now);
            let is_over = |name: &str, since: Instant| {
                let volume = known.iter().find(|volume| is_of(name, volume));
                // What is being started is about to be taken over.
                if volume.is_some_and(|volume| busy.contains(&volume.name)) {
                    return false;
                }
                volume.is_none_or(VolumeRecord::rests) || since.max(first_look).elapsed() >= PATIENCE
            };
            let names: Vec<String> =
                waiting.iter().filter(|(name, (since, _))| is_over(name, *since)).map(|(name, _)| name.clone()).collect();
            names.into_iter().filter_map(|name| waiting.remove(&name).map(|(_, set)| (name, set))).collect()
        };
        self.forget_absent_nbd(known, busy, PATIENCE);
        let mut closed: BTreeSet<String> = self.close_suspended(known, busy, PATIENCE).into_iter().collect();
        for (name, set) in over {
            if !self.end_one_kept(&name, set) {
                continue;
            }
            match known.iter().find(|volume| is_of(&name, volume)) {
                Some(volume) => drop(closed.insert(volume.name.clone())),
                None => tracing::info!("{name} was kept open, and nothing needs it any more: it is closed"),
            }
        }
        closed.into_iter().collect()
    }

    /// See [`crate::datapath::DataPath::end_kept`].
    pub(super) fn end_kept_of(&self, volume: &VolumeRecord) {
        locked(&self.kept.strange).insert(volume.uuid);
        self.end_ublk_of(volume);
        let of_it: Vec<(String, Vec<OwnedFd>)> = {
            let mut waiting = locked(&self.kept.waiting);
            let names: Vec<String> = waiting.keys().filter(|name| is_of(name, volume)).cloned().collect();
            names.into_iter().filter_map(|name| waiting.remove(&name).map(|(_, set)| (name, set))).collect()
        };
        for (name, set) in of_it {
            tracing::warn!("users of {} get errors: its content is not what they knew", volume.name);
            self.end_one_kept(&name, set);
        }
    }

    /// Closes what is kept under a name; of a block device nothing is left, but for those who have
    /// it open. `false`: it did not end, and is ended later.
    fn end_one_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool {
        if let Some(uuid) = name.strip_prefix(UBLK).and_then(Uuid::parse) {
            // Its number is another's soon.
            self.forget_ublk_name(&text_of(&set));
            return self.kept.ublk_was_to_end(name, set, end_left_device(uuid));
        }
        let Some(uuid) = name.strip_prefix(LOOP) else {
            drop(set);
            self.kept.forget(name);
            return true;
        };
        match fuse::end_kept(name, set, || self.kept.forget(name)) {
            Ok((_, volume)) => self.clear_leftovers_of(uuid, &volume),
            Err(error) => tracing::warn!("{error}"),
        }
        true
    }

    /// Notes which acknowledged writes are not known to be durable in a pool that ends as by a
    /// crash: by shard, the group up to which the SSD has them if it has lost nothing.
    pub(super) fn note_unflushed(&self, pool: Uuid, groups: Option<BTreeMap<u16, u64>>) {
        locked(&self.kept.unflushed).insert(pool, groups);
    }

    /// The pool runs: all that was recovered is durable.
    pub(super) fn forget_unflushed(&self, pool: Uuid) {
        locked(&self.kept.unflushed).remove(&pool);
    }

    /// The pool has been recovered up to these groups. Where acknowledged writes are missing, the
    /// SSD has lost them: then nobody may go on as if nothing had happened. Gives whether that is so.
    pub(super) fn end_kept_where_writes_are_lost(&self, pool: Uuid, recovered: &[u64], volumes: &[VolumeRecord]) -> bool {
        let has_all = {
            let unflushed = locked(&self.kept.unflushed);
            let Some(noted) = unflushed.get(&pool) else { return false };
            let is_there = |(shard, group): (&u16, &u64)| recovered.get(usize::from(*shard)).is_some_and(|last| last >= group);
            noted.as_ref().is_some_and(|noted| noted.iter().all(is_there))
        };
        if !has_all {
            volumes.iter().for_each(|volume| self.end_kept_of(volume));
        }
        !has_all
    }
}

impl KeptExports {
    /// Forgets a ublk device that has ended; one that has not is tried again when its users have waited as long once more. Gives whether it has.
    fn ublk_was_to_end(&self, name: &str, sign: Vec<OwnedFd>, ended: Result<Option<PathBuf>, ublk::UblkError>) -> bool {
        match ended {
            Ok(_) => {
                self.forget(name);
                true
            }
            Err(error) => {
                tracing::warn!("{error}; it is tried again");
                self.waits_on(name.to_owned(), Instant::now(), sign);
                false
            }
        }
    }

    /// Whether who has used the volume before this daemon must not go on as if nothing had
    /// happened.
    pub(super) fn is_strange(&self, volume: &VolumeRecord) -> bool {
        locked(&self.strange).contains(&volume.uuid)
    }
}

/// Whether descriptors of that name are of an export of the volume.
fn is_of(name: &str, volume: &VolumeRecord) -> bool {
    let uuid = volume.uuid.to_string();
    [LOOP, UBLK, NBD].iter().filter_map(|kind| name.strip_prefix(kind)).any(|rest| rest.split('.').next() == Some(&uuid))
}

/// What the first of these files holds.
fn text_of(set: &[OwnedFd]) -> String {
    let mut text = String::new();
    let mut read = |file: &OwnedFd| {
        let mut file = File::from(file.try_clone()?);
        file.rewind().and_then(|()| file.read_to_string(&mut text))
    };
    if let Some(Err(error)) = set.first().map(&mut read) {
        tracing::warn!("what was kept of an export cannot be read: {error}");
    }
    text
}

/// A file without a name that holds these bytes.
fn memory_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create("hearth-state", MemfdFlags::CLOEXEC)?);
    memory.write_all(bytes)?;
    Ok(memory.into())
}

fn loop_name(record: &VolumeRecord) -> String {
    format!("{LOOP}{}", record.uuid)
}

fn ublk_name(record: &VolumeRecord) -> String {
    format!("{UBLK}{}", record.uuid)
}

/// Ends the ublk device of a volume that has no server. Gives its path; `None` if there is none.
///
/// # Errors
/// If it does not end.
pub(super) fn end_left_device(uuid: Uuid) -> Result<Option<PathBuf>, ublk::UblkError> {
    let Some(left) = ublk::left(u128::from_be_bytes(uuid.0))? else { return Ok(None) };
    ublk::end_left(&left, END_PATIENCE).map(|()| Some(left.path))
}

/// The same of the volumes for which a keeper holds a sign under one of these names. Gives the
/// devices' paths.
fn end_ublk_devices<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Result<PathBuf, String>> {
    let uuids = names.into_iter().filter_map(|name| Uuid::parse(name.strip_prefix(UBLK)?));
    uuids.filter_map(|uuid| end_left_device(uuid).map_err(|error| error.to_string()).transpose()).collect()
}

/// The same of the volumes that a state directory knows, whoever holds signs of them. Their stable
/// names go, too.
///
/// # Errors
/// If the state cannot be read.
pub fn end_ublk_devices_of(state_directory: &Path) -> Result<Vec<Result<PathBuf, String>>, ControlError> {
    let volumes = store::look(state_directory)?.exported();
    for volume in &volumes {
        // A name that cannot go leads to a device that is gone: no reason not to end it.
        if let Err(problem) = ublk::forget_name(Path::new(STABLE_DIRECTORY), &volume.name) {
            tracing::warn!("{problem}");
        }
    }
    let names: Vec<String> = volumes.iter().map(ublk_name).collect();
    Ok(end_ublk_devices(names.iter().map(String::as_str)))
}

/// What `end_kept_exports` did.
#[derive(Default)]
pub struct EndedExports {
    /// The devices that give errors now.
    pub devices: Vec<String>,
    /// What users still have to do about them, a sentence each: a device that is open stays until it
    /// is closed.
    pub remains: Vec<String>,
    /// What could not be ended, a sentence each.
    pub problems: Vec<String>,
}

impl EndedExports {
    /// Adds what came of ublk devices.
    pub fn add_ublk(&mut self, ended: Vec<Result<PathBuf, String>>) {
        for device in ended {
            match device {
                Ok(device) => self.devices.push(device.display().to_string()),
                Err(problem) => self.problems.push(problem),
            }
        }
    }
}

/// Ends what a keeper holds when it gives up, and takes the names of the devices away: they would lead to whoever gets those numbers next.
/// `keep_out` keeps daemons away as long as what it gives lives. Where it gives nothing, one has come: that goes on with ublk devices, which are the
/// kernel's own, and clears the rest away itself.
pub fn end_held_exports<T>(held: Kept, export_directory: &Path, keep_out: impl FnOnce() -> Option<T>) -> EndedExports {
    let mut ended = EndedExports::default();
    let (mut loops, mut signs) = (Vec::new(), Vec::new());
    for (name, set) in held {
        if let Some(uuid) = name.strip_prefix(LOOP) {
            loops.extend(fuse::volume_of_kept(&set).map(|volume| (uuid.to_owned(), volume)));
            // First of all, and of all: a daemon that was killed may wait for this to be gone.
            match fuse::end_kept(&name, set, || ()) {
                Ok((device, _)) => ended.devices.push(device.display().to_string()),
                Err(error) => tracing::debug!("{error}"),
            }
        } else if name.starts_with(UBLK) {
            signs.push((name, text_of(&set)));
        }
    }
    let Some(_kept_out) = keep_out() else { return ended };
    for (uuid, volume) in loops {
        ended.problems.extend(clear(&uuid, &volume, export_directory, Some(STABLE_DIRECTORY.into())).problems);
    }
    for (name, volume) in signs {
        ended.problems.extend(ublk::forget_name(Path::new(STABLE_DIRECTORY), &volume).err());
        ended.add_ublk(end_ublk_devices([name.as_str()]));
    }
    ended
}

/// Clears away what is left of the block devices of the volumes of a state directory that nobody serves or keeps: dead devices and mounts, and
/// stable names that lead to none of them. No daemon runs.
///
/// # Errors
/// If the state cannot be read.
pub fn clear_left_exports(state_directory: &Path, export_directory: &Path) -> Result<Cleared, ControlError> {
    let mut cleared = Cleared::default();
    let volumes = store::look(state_directory)?.exported();
    for volume in volumes.iter().filter(|volume| volume.exports.iter().any(|export| export.is_device())) {
        let of_it = clear(&volume.uuid.to_string(), &volume.name, export_directory, Some(STABLE_DIRECTORY.into()));
        cleared.gone.extend(of_it.gone);
        cleared.problems.extend(of_it.problems);
    }
    Ok(cleared)
}

/// Ends all exports that a daemon has left to another one, which does not come, and clears their dead
/// mounts and stable names away.
///
/// # Errors
/// If it cannot be found out what was left.
pub fn end_kept_exports(keeper: &Keeper, export_directory: &Path) -> Result<EndedExports, ControlError> {
    let kept = keeper.take().map_err(|e| failed(&format!("who holds the exports does not answer ({e})"), "end that process by its id"))?;
    let mut ended = EndedExports::default();
    for (name, set) in kept {
        if name.starts_with(UBLK) {
            ended.remains.extend(ublk::forget_name(Path::new(STABLE_DIRECTORY), &text_of(&set)).err());
            ended.add_ublk(end_ublk_devices([name.as_str()]));
            keeper.forget(&name);
            continue;
        }
        match fuse::end_kept(&name, set, || keeper.forget(&name)) {
            Ok((device, volume)) => {
                ended.devices.push(device.display().to_string());
                let uuid = name.strip_prefix(LOOP).unwrap_or(&name);
                ended.remains.extend(clear(uuid, &volume, export_directory, Some(STABLE_DIRECTORY.into())).problems);
            }
            Err(error) => ended.problems.push(error.to_string()),
        }
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples;

    fn record() -> VolumeRecord {
        samples::volume("v", &mut samples::pool("p"))
    }

    /// Who waits for a ublk device, and since when.
    fn waits(kept: &KeptExports, record: &VolumeRecord) -> Option<Instant> {
        locked(&kept.waiting).get(&ublk_name(record)).map(|(since, _)| *since)
    }

    /// Users of a device that could not be taken over would wait for ever if it were not known any more that they do.
    #[test]
    fn a_take_over_that_fails_leaves_its_users_waiting_since_when_they_do() {
        let (kept, record) = (KeptExports::new(None), record());
        let since = Instant::now();
        let sign = memory_of(b"v").expect("there is memory");
        locked(&kept.waiting).insert(ublk_name(&record), (since, vec![sign]));
        kept.keep_ublk(&record).expect("there is no keeper");
        kept.ublk_not_served(&record, true);
        assert_eq!(waits(&kept, &record), Some(since), "each try would give them another two minutes");
        kept.keep_ublk(&record).expect("there is no keeper");
        kept.ublk_waits_no_more(&record);
        assert_eq!(waits(&kept, &record), None, "they are served");
        kept.ublk_not_served(&record, true);
        assert!(kept.ublk_waits(&record), "one that was made and did not go is ended, too");
        kept.ublk_not_served(&record, false);
        assert!(!kept.ublk_waits(&record), "there is no device");
    }

    /// The same of a loop device: its descriptors are all that keeps it.
    #[test]
    fn a_loop_device_that_cannot_be_had_now_is_kept() {
        let (kept, record) = (KeptExports::new(None), record());
        let name = loop_name(&record);
        kept.waits_for(&record, vec![memory_of(b"table").expect("there is memory")]);
        let since = locked(&kept.waiting)[&name].0;
        let late = |_: Vec<OwnedFd>| Err::<(), _>(FuseError::TimedOut { step: "looking", seconds: 1 });
        assert!(kept.try_kept(&name, late).is_err() && kept.waits(&record));
        assert_eq!(locked(&kept.waiting)[&name].0, since);
        let other = |_: Vec<OwnedFd>| Err::<(), _>(FuseError::NotTakenOver { name: "v".into(), problem: "it is another".into() });
        assert!(matches!(kept.try_kept(&name, other), Ok(Some(Err(_)))));
        assert!(!kept.waits(&record), "nobody can have it");
        assert!(matches!(kept.try_kept(&name, |_| Ok(())), Ok(None)));
        kept.waits_for(&record, vec![memory_of(b"table").expect("there is memory")]);
        assert!(matches!(kept.try_kept(&name, |copies| Ok(text_of(&copies))), Ok(Some(Ok(text))) if text == "table"));
        assert!(!kept.waits(&record), "it is taken over");
    }

    #[test]
    fn a_device_that_does_not_end_is_tried_again() {
        let (kept, record) = (KeptExports::new(None), record());
        let name = ublk_name(&record);
        let sign = || vec![memory_of(b"the name").expect("there is memory")];
        let late = ublk::UblkError::TimedOut { step: "ending a ublk device", seconds: 1 };
        assert!(!kept.ublk_was_to_end(&name, sign(), Err(late)));
        assert!(kept.ublk_waits(&record));
        let (_, set) = locked(&kept.waiting).remove(&name).expect("it waits");
        assert_eq!((text_of(&set), text_of(&set)), ("the name".into(), "the name".into()));
        assert!(kept.ublk_was_to_end(&name, set, Ok(None)));
        assert!(!kept.ublk_waits(&record));
    }
}
