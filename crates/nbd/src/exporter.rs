//! Volumes as NBD exports: one server for all of them on a Unix socket, and one for each TCP address.

use crate::interfaces::is_here;
use crate::local::export_served_to;
use crate::{ExportOptions, Left, Limits, ListenSpec, Server, Tls, serve, serve_again, serve_tls};
use export::kept::{PATIENCE, memory_of, name_of};
use export::site::CLIENT_PATIENCE;
use export::slots::locked;
use export::{
    Absence, BlockBelow, Export, ExportError, Exporter, Offer, OnRestart, Owner, Place, Site, Users, Volume, Way, Withdrawal, ways,
};
use runtime::VolumeRef;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Name of the socket in the directory of exports.
const SOCKET: &str = "nbd.sock";
/// The kind of what is kept of a client for the next daemon.
const CLIENT: &str = "nbd";
/// The server's socket, as it is kept.
const LISTENER: &str = "nbd-listener";
/// Names of files for TLS, as QEMU and libnbd have them: the authority's certificate, and its list of revoked ones.
const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";

/// The NBD exports of all volumes.
pub struct NbdExporter {
    site: Arc<Site>,
    servers: Mutex<Servers>,
    /// Once an export has needed it.
    tls: Mutex<Option<Arc<Tls>>>,
    /// Held while the server on the Unix socket is left to the next daemon.
    leaving: Mutex<()>,
}

/// Servers that run.
#[derive(Default)]
struct Servers {
    unix: Option<Arc<Server>>,
    /// The volumes that are its exports.
    volumes: BTreeMap<String, Owner>,
    /// Those that will be, when there is no server yet.
    expected: BTreeSet<String>,
    tcp: BTreeMap<SocketAddr, Server>,
}

impl NbdExporter {
    /// None yet.
    pub fn new(site: Arc<Site>) -> NbdExporter {
        NbdExporter { site, servers: Mutex::default(), tls: Mutex::default(), leaving: Mutex::default() }
    }

    fn offer_unix(&self, volume: &Volume<'_>, reference: &VolumeRef) -> Result<Offer, ExportError> {
        let kept = &self.site.kept;
        let mut servers = locked(&self.servers);
        if servers.unix.is_none() {
            let directory = &self.site.directory;
            std::fs::create_dir_all(directory).map_err(|source| ExportError::Directory { path: directory.clone(), source })?;
            let path = directory.join(SOCKET);
            let others = servers.expected.iter().map(String::as_str);
            let expected: Vec<&str> = others.chain([volume.name]).collect();
            let server = match kept.take_with_state(LISTENER) {
                Some((left, state)) => serve_again(&self.site.runtime, &path, Limits::default(), (left, &state), &expected),
                None => serve(&self.site.runtime, &ListenSpec::unix(path), Limits::default(), &expected),
            };
            let server = server.map_err(|e| refused(&e))?;
            servers.expected.clear();
            servers.unix = Some(Arc::new(server));
        }
        let server = servers.unix.clone().expect("just made");
        server.add_export(volume.name, reference.clone(), options_of(volume)).map_err(|e| refused(&e))?;
        servers.volumes.insert(volume.name.to_owned(), volume.owner);
        let mut warnings = Vec::new();
        let waiting = kept.names_of(CLIENT, volume.owner);
        for (client, state) in waiting.iter().filter_map(|name| kept.take_with_state(name)) {
            let resumed = server.resume(&self.site.runtime, client, &state);
            warnings.extend(resumed.err().map(|reason| format!("an NBD client was disconnected: {reason}")));
        }
        let on_restart = if kept.outlives_a_stop() { OnRestart::WaitsIfRestarted } else { OnRestart::Ends };
        Ok(Offer { place: server.uri(volume.name), warnings, on_restart, ..Offer::default() })
    }

    fn offer_tcp(
        &self,
        volume: &Volume<'_>,
        reference: &VolumeRef,
        address: SocketAddr,
        tls: Option<Arc<Tls>>,
    ) -> Result<Offer, ExportError> {
        let expected = [volume.name];
        let server = match tls {
            Some(tls) => serve_tls(&self.site.runtime, address, Limits::default(), tls, &expected),
            None => serve(&self.site.runtime, &ListenSpec::Tcp(address), Limits::default(), &expected),
        };
        let server = server.map_err(|e| refused(&e))?;
        server.add_export(volume.name, reference.clone(), options_of(volume)).map_err(|e| refused(&e))?;
        let place = server.uri(volume.name);
        locked(&self.servers).tcp.insert(address, server);
        let awaited = (!is_here(address))
            .then(|| format!("no network interface has the address {} yet: clients of {place} wait until one has", address.ip()));
        Ok(Offer { place, warnings: awaited.into_iter().collect(), ..Offer::default() })
    }

    /// The daemon ends: the clients of the server on the Unix socket, of all volumes at once, are left to the next one. A second call waits
    /// until that is done.
    fn leave(&self) -> Result<(), ExportError> {
        let _one_at_a_time = locked(&self.leaving);
        let (server, volumes) = {
            let mut servers = locked(&self.servers);
            (servers.unix.take(), servers.volumes.clone())
        };
        let Some(server) = server else { return Ok(()) };
        // Somebody takes an export away just now: its clients see the end of their connections.
        let Some(server) = Arc::into_inner(server) else { return Ok(()) };
        let left = server.leave(&self.site.runtime, self.site.patience(CLIENT_PATIENCE));
        if let Some(left) = left.map_err(|e| ExportError::failed(&e, "check the volume's clients"))? {
            self.keep(left, &volumes);
        }
        Ok(())
    }

    /// Keeps what the server has left for the next daemon.
    fn keep(&self, left: Left, volumes: &BTreeMap<String, Owner>) {
        let keep = |name: &str, socket: OwnedFd, state: &[u8]| {
            let kept = memory_of(state).and_then(|state| self.site.kept.hold(name, &[socket.as_fd(), state.as_fd()]));
            if let Err(error) = kept {
                tracing::warn!("{name} cannot be kept for the next daemon: {error}");
            }
        };
        keep(LISTENER, left.listener, &left.state);
        for (at, client) in left.clients.into_iter().enumerate() {
            if let Some(owner) = volumes.get(&client.export) {
                keep(&format!("{}.{at}", name_of(CLIENT, *owner)), client.socket, &client.state);
            }
        }
    }

    /// The volume is away while its pool is stopped and started: its clients wait. Those of other volumes notice nothing.
    fn suspend(&self, volume: &Volume<'_>) {
        locked(&self.servers).volumes.remove(volume.name);
        // Without the lock while clients come to a rest: other volumes' exports must not wait for them.
        let Some(server) = locked(&self.servers).unix.clone() else { return };
        // An export that the server does not know is gone already.
        let Ok(left) = server.suspend_export(&self.site.runtime, volume.name, self.site.patience(CLIENT_PATIENCE)) else { return };
        if !left.all_gone {
            tracing::warn!("requests of clients of the NBD export {} do not end: check the volume's devices", volume.name);
        }
        for client in left.clients {
            match memory_of(&client.state) {
                Ok(state) => {
                    let name = self.site.kept.free_name(CLIENT, volume.owner);
                    self.site.kept.wait(name, vec![client.socket, state]);
                }
                Err(error) => tracing::warn!("a client of the NBD export {} was disconnected: {error}", volume.name),
            }
        }
    }

    /// Its clients on the Unix socket are disconnected.
    fn end_unix(&self, volume: &Volume<'_>) -> Result<(), ExportError> {
        locked(&self.servers).volumes.remove(volume.name);
        // Without the lock while clients leave: other volumes' exports must not wait for them.
        let Some(server) = locked(&self.servers).unix.clone() else { return Ok(()) };
        match server.remove_export(volume.name) {
            // What is not there any more is gone.
            Ok(()) | Err(crate::ExportError::Unknown(_)) => Ok(()),
            Err(error) => Err(refused(&error)),
        }
    }

    fn withdraw_unix(&self, volume: &Volume<'_>, how: Withdrawal) -> Result<(), ExportError> {
        match how {
            Withdrawal::DaemonEnds if self.site.kept.outlives_a_stop() => self.leave(),
            Withdrawal::PoolRestarts => {
                self.suspend(volume);
                Ok(())
            }
            Withdrawal::DaemonEnds | Withdrawal::IfUnused | Withdrawal::Forced => self.end_unix(volume),
        }
    }

    /// What exports with TLS show to their clients. The files are read when the first one is offered, and again when they change.
    fn tls(&self) -> Result<Arc<Tls>, ExportError> {
        let mut tls = locked(&self.tls);
        if let Some(tls) = &*tls {
            return Ok(tls.clone());
        }
        let opened = Tls::open(&self.site.certificates).map_err(|error| {
            let problem = error.to_string();
            let remedy = remedy_for_certificates(&problem, &self.site.certificates);
            ExportError::Refused { export: "nbd with TLS".into(), problem, remedy }
        })?;
        Ok(tls.insert(opened).clone())
    }
}

impl Exporter for NbdExporter {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 3] = [&ways::NBD, &ways::NBD_TCP, &ways::NBD_TLS];
        &WAYS
    }

    /// Whether a network interface of this machine has the address. Later an address that has gone, or is still to come, is listened at
    /// all the same.
    fn check(&self, export: Export) -> Result<(), ExportError> {
        match export.tcp_address() {
            Some(address) if !is_here(address) => Err(ExportError::BadPlace {
                problem: format!("names {}, an address that no network interface of this machine has", address.ip()),
                remedy: "give one of those that `ip address` shows".into(),
            }),
            _ => Ok(()),
        }
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, export: Export) -> Result<Offer, ExportError> {
        match export.place() {
            Place::Address(address) => {
                let tls = export.way().has_tls.then(|| self.tls()).transpose()?;
                self.offer_tcp(volume, reference, address, tls)
            }
            Place::Default | Place::Socket(_) => self.offer_unix(volume, reference),
        }
    }

    fn withdraw(&self, volume: &Volume<'_>, export: Export, how: Withdrawal) -> Result<Option<String>, ExportError> {
        match export.tcp_address() {
            None => self.withdraw_unix(volume, how)?,
            Some(address) => {
                let Some(server) = locked(&self.servers).tcp.remove(&address) else { return Ok(None) };
                let stopped = server.stop(&self.site.runtime, self.site.patience(CLIENT_PATIENCE));
                stopped.map_err(|e| ExportError::failed(&e, "check the volume's clients"))?;
            }
        }
        Ok(None)
    }

    /// Clients see the end of their connection, as with any server that stops: they do not count.
    fn users(&self, _volume: &Volume<'_>, _export: Export) -> Users {
        Users::None
    }

    fn outlives(&self, _volume: &Volume<'_>, export: Export, absence: Absence) -> bool {
        match absence {
            // Not all of them are kept over a stop; `Offer::on_restart` says what clients see.
            Absence::DaemonStops => false,
            Absence::PoolRestarts => export.tcp_address().is_none(),
        }
    }

    /// NBD has no word for that: clients see the new size when they connect, or ask for it (`NBD_OPT_INFO`).
    /// A block device of the kernel's client.
    fn volume_on(&self, device: &BlockBelow, _volumes: &[Volume<'_>]) -> Option<String> {
        device.name.strip_prefix("nbd").and_then(|_| export_served_to(device.nbd_pid()?))
    }

    fn grow(&self, _owner: Owner, _size_bytes: u64) -> Vec<String> {
        Vec::new()
    }

    fn set_names(&self, volume: &Volume<'_>) {
        let servers = locked(&self.servers);
        // Clients without TLS have no names that could be on the list.
        let with_tls = volume.exports.iter().filter(|export| export.way().has_tls);
        for server in with_tls.filter_map(|export| servers.tcp.get(&export.tcp_address()?)) {
            if let Err(error) = server.allow_names(volume.name, volume.tls_names) {
                tracing::warn!("the names that may use {} stay as they were: {error}", volume.name);
            }
        }
    }

    /// Clients that ask for one of these on the Unix socket, which comes with the first of them, wait.
    fn expect(&self, volumes: &[Volume<'_>]) {
        let names = volumes.iter().filter(|volume| volume.is_offered_as(&ways::NBD)).map(|volume| volume.name.to_owned());
        locked(&self.servers).expected.extend(names);
    }

    fn close_overdue(&self, known: &[Volume<'_>], busy: &[String]) -> Vec<String> {
        let mut servers = locked(&self.servers);
        // The start is over.
        servers.expected.clear();
        let Some(server) = servers.unix.clone() else { return Vec::new() };
        drop(servers);
        server.forget_absent(|name, since| {
            let is_to_come = |volume: &Volume<'_>| volume.name == name && volume.is_offered_as(&ways::NBD) && !volume.rests;
            known.iter().any(is_to_come) && (since < PATIENCE || busy.iter().any(|busy| busy == name))
        });
        Vec::new()
    }

    fn end_waiting(&self, _volume: &Volume<'_>) {}

    fn detached(&self, _volume: &Volume<'_>) {}

    /// Stops listening everywhere; the exports are gone already.
    fn finish(&self) {
        let servers = std::mem::take(&mut *locked(&self.servers));
        // One whose clients somebody still waits for is left to the end of the process.
        let unix = servers.unix.and_then(Arc::into_inner);
        for server in unix.into_iter().chain(servers.tcp.into_values()) {
            if let Err(error) = server.stop(&self.site.runtime, self.site.patience(CLIENT_PATIENCE)) {
                tracing::warn!("an NBD server did not stop: {error}");
            }
        }
    }

    fn keeps(&self) -> Option<&'static str> {
        Some(CLIENT)
    }

    fn end_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool {
        drop(set);
        self.site.kept.forget(name);
        true
    }
}

fn options_of(volume: &Volume<'_>) -> ExportOptions {
    let allowed_names = volume.tls_names.to_vec();
    ExportOptions { description: format!("hearth volume over {}", volume.backing), allowed_names, ..ExportOptions::default() }
}

/// Most of its sentences say what to do.
fn refused(error: &dyn std::fmt::Display) -> ExportError {
    let sentence = error.to_string();
    let (problem, remedy) = sentence.split_once("; ").unwrap_or((&sentence, "choose another address, or see the kernel's log (dmesg)"));
    ExportError::Refused { export: "nbd".into(), problem: problem.into(), remedy: remedy.into() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_certificates_is_of_the_file_that_is_wrong() {
        let place = tempfile::tempdir().expect("room");
        let of = |name: &str| remedy_for_certificates(&format!("{}: it is wrong", place.path().join(name).display()), place.path());
        assert!(of(AUTHORITY).contains("with `hearth pki init`, or put your own there"));
        std::fs::write(place.path().join(AUTHORITY), "").expect("room");
        assert!(of(REVOKED).starts_with("write a new list") && !of(REVOKED).contains("pki init"), "{}", of(REVOKED));
        assert!(of("server-cert.pem").starts_with("put the right file there"));
    }
}
