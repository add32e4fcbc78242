//! Exports: one NBD server for all volumes on a Unix socket, one for each TCP address, a loop device for each volume.

use super::volumes::LiveVolume;
use super::{Machine, addresses, failed, locked};
use crate::datapath::{Offer, Withdrawal};
use crate::error::ControlError;
use crate::state::VolumeRecord;
use crate::uuid::Uuid;
use crate::words::{Export, OnRestart};
use fuse::{Cleared, FuseError, LoopExport, LoopOptions, Transport};
use nbd::{ExportOptions, Limits, ListenSpec, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ublk::UblkExport;

/// Name of the NBD socket in the export directory.
const NBD_SOCKET: &str = "nbd.sock";
/// Directory of the mounted files in the export directory.
pub(super) const MOUNTS: &str = "mounts";
/// Where stable names are made.
pub(super) const STABLE_DIRECTORY: &str = "/dev/hearth";
/// Names of files for TLS, as QEMU and libnbd have them: the authority's certificate, and its list of revoked ones.
const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
/// How long clients may take to leave: an answer in flight waits for the slowest device.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of the daemon may wait until the page cache of a loop device is written back.
pub(super) const WRITE_BACK_PATIENCE: Duration = Duration::from_secs(60);

/// NBD servers that run.
#[derive(Default)]
pub(super) struct Servers {
    unix: Option<Arc<Server>>,
    /// The volumes that are its exports.
    nbd_volumes: BTreeMap<String, Uuid>,
    /// Those that will be, when there is no server yet.
    expected: BTreeSet<String>,
    tcp: BTreeMap<SocketAddr, Server>,
}

impl Machine {
    pub(super) fn offer(&self, record: &VolumeRecord, export: &Export) -> Result<Offer, ControlError> {
        match export {
            Export::Block => self.offer_block(record),
            Export::Ublk => self.offer_ublk(record),
            Export::Loop => self.offer_loop(record, Transport::Classic),
            Export::LoopFast => self.offer_loop(record, Transport::Best),
            Export::Nbd => self.offer_nbd(record),
            Export::NbdTcp(address) => self.offer_tcp(record, *address, None),
            Export::NbdTls(address) => self.offer_tcp(record, *address, Some(self.tls()?)),
            Export::VhostUser(place) => self.offer_vhost_user(record, *place),
        }
    }

    pub(super) fn offer_loop(&self, record: &VolumeRecord, transport: Transport) -> Result<Offer, ControlError> {
        let volume = self.volume(&record.name)?;
        let mounts = self.export_directory.join(MOUNTS);
        std::fs::create_dir_all(&mounts).map_err(|e| directory_error(&mounts, &e))?;
        let link_directory = self.stable_names.then(|| PathBuf::from(STABLE_DIRECTORY));
        let options = LoopOptions { owner: record.uuid.to_string(), link_directory, transport, ..LoopOptions::default() };
        let (made, problem) = match self.take_over_loop(record, &volume.reference, &mounts, &options)? {
            Some(made) => (made, None),
            None => {
                let start = LoopExport::start(&self.runtime, &volume.reference, &record.name, &mounts, &options);
                let made = start.map_err(|e| fuse_error(&e))?;
                let problem = self.kept.keep_loop(record, &made).err();
                (made, problem)
            }
        };
        let on_restart = match (&problem, made.repeats_writes()) {
            _ if !self.kept.keeps_loop(record) => OnRestart::Ends,
            (_, true) if !self.kept.keeps_clients() => OnRestart::WaitsIfKilled,
            (_, true) => OnRestart::Waits,
            (_, false) => OnRestart::WritesFail,
        };
        let offer = Offer {
            place: made.device_path().display().to_string(),
            stable_path: made.link_path().map(|p| p.display().to_string()),
            nameless: made.nameless().map(str::to_owned),
            warnings: made.warnings().iter().cloned().chain(problem).collect(),
            on_restart,
            note: None,
        };
        *locked(&volume.loop_export) = Some(made);
        Ok(offer)
    }

    /// Clears what a killed daemon left of the loop export of a volume that does not run: the stable name above all, since whoever gets its
    /// loop device next must not be found under it.
    pub(super) fn clear_leftovers(&self, record: &VolumeRecord) {
        let has_export = |volume: Arc<LiveVolume>| locked(&volume.loop_export).is_some() || locked(&volume.ublk_export).is_some();
        let runs = self.volume(&record.name).is_ok_and(has_export);
        // Users of what an earlier daemon has kept open wait: it may be served yet.
        if runs || !record.exports.iter().any(|export| export.is_device()) || self.kept.waits(record) {
            return;
        }
        let link_directory = self.stable_names.then(|| PathBuf::from(STABLE_DIRECTORY));
        for problem in clear(&record.uuid.to_string(), &record.name, &self.export_directory, link_directory).problems {
            tracing::warn!("{problem}");
        }
    }

    /// The same of a volume that is known no more.
    pub(super) fn clear_leftovers_of(&self, uuid: &str, name: &str) {
        let link_directory = self.stable_names.then(|| PathBuf::from(STABLE_DIRECTORY));
        for problem in clear(uuid, name, &self.export_directory, link_directory).problems {
            tracing::warn!("{problem}");
        }
    }

    /// Whether somebody else has taken the block device away (`losetup -d`).
    pub(super) fn loop_is_lost(&self, volume: &str) -> bool {
        self.volume(volume).is_ok_and(|volume| {
            locked(&volume.loop_export).as_ref().is_some_and(LoopExport::is_lost)
                || locked(&volume.ublk_export).as_ref().is_some_and(UblkExport::is_lost)
        })
    }

    fn offer_nbd(&self, record: &VolumeRecord) -> Result<Offer, ControlError> {
        let volume = self.volume(&record.name)?;
        let mut servers = locked(&self.servers);
        if servers.unix.is_none() {
            std::fs::create_dir_all(&self.export_directory).map_err(|e| directory_error(&self.export_directory, &e))?;
            let path = self.export_directory.join(NBD_SOCKET);
            let others = servers.expected.iter().map(String::as_str);
            let expected: Vec<&str> = others.chain([record.name.as_str()]).collect();
            let server = match self.kept.take_nbd_listener() {
                Some((left, state)) => nbd::serve_again(&self.runtime, &path, Limits::default(), (left, &state), &expected),
                None => nbd::serve(&self.runtime, &ListenSpec::unix(path), Limits::default(), &expected),
            };
            let server = server.map_err(|e| nbd_error(&e))?;
            servers.expected.clear();
            servers.unix = Some(Arc::new(server));
        }
        let server = servers.unix.clone().expect("just made");
        server.add_export(&record.name, volume.reference.clone(), export_options(record)).map_err(|e| nbd_error(&e))?;
        servers.nbd_volumes.insert(record.name.clone(), record.uuid);
        let mut warnings = Vec::new();
        for (client, state) in self.kept.take_nbd_clients(record) {
            let resumed = server.resume(&self.runtime, client, &state);
            warnings.extend(resumed.err().map(|told| format!("an NBD client was disconnected: {told}")));
        }
        let on_restart = if self.kept.keeps_clients() { OnRestart::WaitsIfRestarted } else { OnRestart::Ends };
        Ok(Offer { place: server.uri(&record.name), warnings, on_restart, ..Offer::default() })
    }

    /// The daemon starts: who asks for one of these on the NBD server, which comes with the first of them, waits.
    pub(super) fn expect_nbd(&self, volumes: &[VolumeRecord]) {
        let names = volumes.iter().filter(|volume| volume.exports.contains(&Export::Nbd)).map(|volume| volume.name.clone());
        locked(&self.servers).expected.extend(names);
    }

    /// Nobody waits on the NBD server for what is known no more or stopped, nor longer than that for what does not come.
    pub(super) fn forget_absent_nbd(&self, known: &[VolumeRecord], busy: &[String], patience: Duration) {
        let mut servers = locked(&self.servers);
        // The start is over.
        servers.expected.clear();
        let Some(server) = servers.unix.clone() else { return };
        drop(servers);
        server.forget_absent(|name, since| {
            let is_to_come = |volume: &VolumeRecord| volume.name == name && volume.exports.contains(&Export::Nbd) && !volume.rests();
            known.iter().any(is_to_come) && (since < patience || busy.iter().any(|busy| busy == name))
        });
    }

    /// The daemon ends: the clients of the NBD server, of all volumes at once, are left to the next
    /// one. Who comes second waits until that is done.
    fn leave_nbd(&self) -> Result<(), ControlError> {
        let _one_at_a_time = locked(&self.leaving_nbd);
        let (server, volumes) = {
            let mut servers = locked(&self.servers);
            (servers.unix.take(), servers.nbd_volumes.clone())
        };
        let Some(server) = server else { return Ok(()) };
        // Somebody takes an export away just now: its clients see the end of their connections.
        let Some(server) = Arc::into_inner(server) else { return Ok(()) };
        let left = server.leave(&self.runtime, self.patience(PATIENCE)).map_err(|e| failed(&e, "check the volume's clients"))?;
        if let Some(left) = left {
            self.kept.keep_nbd(left, |export| volumes.get(export).copied());
        }
        Ok(())
    }

    /// The volume is away while its pool is stopped and started: clients of its NBD export wait. Those of other volumes notice nothing.
    fn suspend_nbd(&self, record: &VolumeRecord) {
        locked(&self.servers).nbd_volumes.remove(&record.name);
        // Without the lock while clients come to a rest: other volumes' exports must not wait for them.
        let Some(server) = locked(&self.servers).unix.clone() else { return };
        // It is gone already if nobody knows it.
        let Ok(left) = server.suspend_export(&self.runtime, &record.name, self.patience(PATIENCE)) else { return };
        if !left.all_gone {
            tracing::warn!("requests of clients of the NBD export {} do not end: check the volume's devices", record.name);
        }
        left.clients.into_iter().for_each(|client| self.kept.nbd_waits(record, client.socket, client.state));
    }

    /// Its clients are disconnected.
    fn end_nbd(&self, record: &VolumeRecord) -> Result<(), ControlError> {
        locked(&self.servers).nbd_volumes.remove(&record.name);
        // Without the lock while clients leave: other volumes' exports must not wait for them.
        let Some(server) = locked(&self.servers).unix.clone() else { return Ok(()) };
        match server.remove_export(&record.name) {
            // What is not there any more is gone.
            Ok(()) | Err(nbd::ExportError::Unknown(_)) => Ok(()),
            Err(error) => Err(nbd_error(&error)),
        }
    }

    /// What exports with TLS show to their clients. The files are read when the first one is offered, and again when they change.
    fn tls(&self) -> Result<Arc<nbd::Tls>, ControlError> {
        let mut tls = locked(&self.tls);
        if let Some(tls) = &*tls {
            return Ok(tls.clone());
        }
        let opened = nbd::Tls::open(&self.certificates).map_err(|error| {
            let problem = error.to_string();
            let remedy = remedy_for_certificates(&problem, &self.certificates);
            ControlError::Export { export: "nbd with TLS".into(), problem, remedy }
        })?;
        Ok(tls.insert(opened).clone())
    }

    /// Puts a changed list of names in force.
    pub(super) fn set_tls_names(&self, record: &VolumeRecord) {
        let servers = locked(&self.servers);
        // Clients without TLS have no names that could be on the list.
        let tls = record.exports.iter().filter(|export| matches!(export, Export::NbdTls(_)));
        for address in tls.filter_map(|export| export.tcp_address()) {
            let Some(server) = servers.tcp.get(&address) else { continue };
            if let Err(error) = server.allow_names(&record.name, &record.options.tls_names) {
                tracing::warn!("the names that may use {} stay as they were: {error}", record.name);
            }
        }
    }

    fn offer_tcp(&self, record: &VolumeRecord, address: SocketAddr, tls: Option<Arc<nbd::Tls>>) -> Result<Offer, ControlError> {
        let volume = self.volume(&record.name)?;
        let expected = [record.name.as_str()];
        let server = match tls {
            Some(tls) => nbd::serve_tls(&self.runtime, address, Limits::default(), tls, &expected),
            None => nbd::serve(&self.runtime, &ListenSpec::Tcp(address), Limits::default(), &expected),
        };
        let server = server.map_err(|e| nbd_error(&e))?;
        server.add_export(&record.name, volume.reference.clone(), export_options(record)).map_err(|e| nbd_error(&e))?;
        let place = server.uri(&record.name);
        locked(&self.servers).tcp.insert(address, server);
        let awaited = (!addresses::is_here(address))
            .then(|| format!("no network interface has the address {} yet: clients of {place} wait until one has", address.ip()));
        Ok(Offer { place, warnings: awaited.into_iter().collect(), ..Offer::default() })
    }

    /// Gives what is lost by it.
    pub(super) fn withdraw(&self, record: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        match export {
            Export::Block | Export::Ublk | Export::Loop | Export::LoopFast if self.has_ublk(record) => self.withdraw_ublk(record, how),
            Export::Block | Export::Ublk | Export::Loop | Export::LoopFast => self.withdraw_loop(record, how),
            other => self.withdraw_server(record, other, how).map(|()| None),
        }
    }

    /// The same of an export without a block device, of which nothing lies in this machine's memory.
    fn withdraw_server(&self, record: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<(), ControlError> {
        match export {
            Export::Block | Export::Ublk | Export::Loop | Export::LoopFast => Ok(()),
            Export::Nbd if how == Withdrawal::DaemonEnds && self.kept.keeps_clients() => self.leave_nbd(),
            Export::Nbd if how == Withdrawal::PoolRestarts => {
                self.suspend_nbd(record);
                Ok(())
            }
            Export::Nbd => self.end_nbd(record),
            Export::VhostUser(_) => self.withdraw_vhost_user(record, export),
            Export::NbdTcp(address) | Export::NbdTls(address) => {
                let Some(server) = locked(&self.servers).tcp.remove(address) else { return Ok(()) };
                server.stop(&self.runtime, self.patience(PATIENCE)).map_err(|e| failed(&e, "check the volume's clients"))
            }
        }
    }

    /// Whether users of the volume's block device can wait while its pool is stopped and started.
    /// Where the kernel cannot repeat requests, those under way would fail.
    pub(super) fn loop_outlives_its_pool(&self, record: &VolumeRecord) -> bool {
        let Ok(volume) = self.volume(&record.name) else { return false };
        let repeats = locked(&volume.loop_export).as_ref().is_some_and(LoopExport::repeats_writes);
        repeats && self.kept.keeps_loop(record)
    }

    fn withdraw_loop(&self, record: &VolumeRecord, how: Withdrawal) -> Result<Option<String>, ControlError> {
        let volume = self.volume(&record.name)?;
        // Taken out, so that statistics do not wait for the lock while the page cache is written back.
        let Some(mut made) = locked(&volume.loop_export).take() else { return Ok(None) };
        let patience = self.patience(WRITE_BACK_PATIENCE);
        match how {
            Withdrawal::DaemonEnds if self.kept.outlives_a_stop(record) && made.users().is_some() => {
                return made.park(&self.runtime, patience).map(|()| None).map_err(|e| fuse_error(&e));
            }
            Withdrawal::DaemonEnds | Withdrawal::Forced => {
                // What hangs ends with the last descriptor.
                self.kept.forget_loop(record);
                return match made.abandon(&self.runtime, patience) {
                    // The device is gone all the same.
                    Err(lost @ FuseError::NotWrittenBack { .. }) => Ok(Some(lost.to_string())),
                    ended => ended.map(|()| None).map_err(|e| fuse_error(&e)),
                };
            }
            Withdrawal::PoolRestarts if self.kept.keeps_loop(record) => {
                match made.suspend(&self.runtime) {
                    Ok(waiting) => self.kept.waits_for(record, waiting),
                    // It is gone with that: another one is made when the volume is back.
                    Err(error) => {
                        tracing::warn!("users of the block device of {} get errors: {error}", record.name);
                        self.kept.forget_loop(record);
                    }
                }
                return Ok(None);
            }
            Withdrawal::PoolRestarts | Withdrawal::IfUnused => {}
        }
        let stopped = made.stop(&self.runtime);
        match stopped {
            Ok(_) => self.kept.forget_loop(record),
            Err(_) => *locked(&volume.loop_export) = Some(made),
        }
        stopped.map(|lost| lost.map(|lost| lost.to_string())).map_err(|e| fuse_error(&e))
    }

    /// Stops listening everywhere; the exports are gone already.
    pub(super) fn end_servers(&self) {
        let servers = std::mem::take(&mut *locked(&self.servers));
        // One whose clients somebody still waits for is left to the end of the process.
        let unix = servers.unix.and_then(Arc::into_inner);
        for server in unix.into_iter().chain(servers.tcp.into_values()) {
            if let Err(error) = server.stop(&self.runtime, self.patience(PATIENCE)) {
                tracing::warn!("an NBD server did not stop: {error}");
            }
        }
    }

    /// Who uses the block device of a loop export, or the disk of a virtual machine. NBD clients see the end of their connection, as with any server that stops, so
    /// they do not count.
    pub(super) fn user_of(&self, record: &VolumeRecord, export: &Export) -> Option<String> {
        if let Export::VhostUser(_) = export {
            return self.user_of_vhost_user(record, export);
        }
        if !export.is_device() {
            return None;
        }
        let volume = self.volume(&record.name).ok()?;
        if let Some(handle) = locked(&volume.ublk_export).as_ref().map(UblkExport::handle) {
            return handle.users();
        }
        // Looking may take a while: not with the lock.
        let handle = locked(&volume.loop_export).as_ref()?.handle();
        handle.users()
    }
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

pub(super) fn clear(uuid: &str, name: &str, export_directory: &Path, link_directory: Option<PathBuf>) -> Cleared {
    let options = LoopOptions { owner: uuid.to_owned(), link_directory, ..LoopOptions::default() };
    fuse::clear_leftovers(&options, name, &export_directory.join(MOUNTS))
}

fn export_options(record: &VolumeRecord) -> ExportOptions {
    let allowed_names = record.options.tls_names.clone();
    ExportOptions { description: format!("hearth volume over {}", record.backing), allowed_names, ..ExportOptions::default() }
}

fn fuse_error(error: &FuseError) -> ControlError {
    // Its sentences say what to do already.
    match error {
        FuseError::InUse { device, by } => ControlError::Export {
            export: device.display().to_string(),
            problem: format!("it is in use ({by})"),
            remedy: "unmount it or close what uses it, then try again".into(),
        },
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
            ControlError::Export { export: "loop".into(), problem: problem.into(), remedy: remedy.into() }
        }
        other => failed(other, ""),
    }
}

/// What to do where the files for TLS cannot be used. `hearth pki init` never overwrites one, so it helps only where there are none.
fn remedy_for_certificates(problem: &str, directory: &Path) -> String {
    let list = directory.join(REVOKED);
    let is_missing = |name: &str| directory.join(name).symlink_metadata().is_err();
    if problem.starts_with(&list.display().to_string()) {
        format!("write a new list of the authority to {}, or remove it if no certificate is revoked", list.display())
    } else if is_missing(AUTHORITY) {
        format!("make certificates in {} with `hearth pki init`, or put your own there", directory.display())
    } else {
        format!("put the right file there; or move all of {} away, and make new certificates with `hearth pki init`", directory.display())
    }
}

/// Most of its sentences say what to do.
fn nbd_error(error: &dyn std::fmt::Display) -> ControlError {
    let sentence = error.to_string();
    let (problem, remedy) = sentence.split_once("; ").unwrap_or((&sentence, "choose another address, or see the kernel's log (dmesg)"));
    ControlError::Export { export: "nbd".into(), problem: problem.into(), remedy: remedy.into() }
}

pub(super) fn directory_error(directory: &Path, error: &std::io::Error) -> ControlError {
    ControlError::State {
        path: directory.display().to_string(),
        problem: format!("the directory of the exports cannot be made ({error})"),
        remedy: "give a socket in a writable directory with --socket PATH".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn what_to_do_about_certificates_is_of_the_file_that_is_wrong() {
        let place = tempfile::tempdir().expect("room");
        let of = |name: &str| remedy_for_certificates(&format!("{}: it is wrong", place.path().join(name).display()), place.path());
        assert!(of(AUTHORITY).contains("with `hearth pki init`, or put your own there"));
        std::fs::write(place.path().join(AUTHORITY), "").expect("room");
        assert!(of(REVOKED).starts_with("write a new list") && !of(REVOKED).contains("pki init"), "{}", of(REVOKED));
        assert!(of("server-cert.pem").starts_with("put the right file there"));
    }

    #[test]
    fn what_the_machine_lacks_is_no_failure_of_the_daemon() {
        let no = || std::io::Error::from(std::io::ErrorKind::NotFound);
        for error in [FuseError::NotRoot, FuseError::NoFuse { source: no() }, FuseError::NoLoop { source: no() }] {
            let told = fuse_error(&error);
            assert_eq!(told.kind(), Kind::Conflict, "{told}");
            assert!(told.remedy().contains("NBD instead") && !told.to_string().contains("NBD"), "{told}; {}", told.remedy());
        }
    }
}
