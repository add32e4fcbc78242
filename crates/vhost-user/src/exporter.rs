//! Volumes as disks for virtual machines: a socket for each volume and place.

use crate::{ExportOptions, VhostUserError, VhostUserExport};
use export::site::CLIENT_PATIENCE;
use export::slots::locked;
use export::{
    Absence, BlockBelow, Export, ExportError, Exporter, Offer, OnRestart, Owner, Place, Site, Users, Volume, Way, Withdrawal, ways,
};
use runtime::VolumeRef;
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Directory of the sockets that have no place of their own, in the directory of exports.
const SOCKETS: &str = "vhost-user";
const DIRECTORY_MODE: u32 = 0o755;
/// Digits of the volume's UUID in the disk's serial number.
const SERIAL_DIGITS: usize = 20;

/// The disks of all volumes.
pub struct VhostUserExporter {
    site: Arc<Site>,
    made: Mutex<BTreeMap<(Owner, Export), VhostUserExport>>,
}

impl VhostUserExporter {
    /// None yet.
    pub fn new(site: Arc<Site>) -> VhostUserExporter {
        VhostUserExporter { site, made: Mutex::default() }
    }
}

impl Exporter for VhostUserExporter {
    fn ways(&self) -> &'static [&'static Way] {
        static WAYS: [&Way; 1] = [&ways::VHOST_USER];
        &WAYS
    }

    fn check(&self, _export: Export) -> Result<(), ExportError> {
        Ok(())
    }

    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, export: Export) -> Result<Offer, ExportError> {
        let directory = self.site.directory.join(SOCKETS);
        let made = std::fs::create_dir_all(&directory);
        // The sockets say who may connect; whoever may has to get there, whatever the daemon's umask.
        let open = std::fs::Permissions::from_mode(DIRECTORY_MODE);
        made.and_then(|()| std::fs::set_permissions(&directory, open))
            .map_err(|source| ExportError::Directory { path: directory.clone(), source })?;
        let path = match export.place() {
            Place::Socket(path) => path.as_path().to_owned(),
            Place::Default | Place::Address(_) => directory.join(format!("{}.sock", volume.name)),
        };
        // Where a socket has a place of its own others may write.
        let succession = Some(directory.join(format!("{}{}.guest", volume.owner, path.display().to_string().replace('/', "_"))));
        let serial = volume.owner.to_string().chars().filter(char::is_ascii_hexdigit).take(SERIAL_DIGITS).collect();
        let refuses_earlier = self.site.kept.is_strange(volume.owner);
        let options = ExportOptions { serial, refuses_earlier, succession, ..ExportOptions::default() };
        let made = VhostUserExport::start(&self.site.runtime, reference, &path, &options).map_err(|e| error_at(&path, &e))?;
        locked(&self.made).insert((volume.owner, export), made);
        Ok(Offer { place: path.display().to_string(), on_restart: OnRestart::WaitsIfReconnected, ..Offer::default() })
    }

    fn withdraw(&self, volume: &Volume<'_>, export: Export, _how: Withdrawal) -> Result<Option<String>, ExportError> {
        let Some(made) = locked(&self.made).remove(&(volume.owner, export)) else { return Ok(None) };
        let path = made.path().to_owned();
        made.stop(&self.site.runtime, self.site.patience(CLIENT_PATIENCE)).map_err(|e| error_at(&path, &e))?;
        Ok(None)
    }

    /// The virtual machine whose disk the volume is there.
    fn users(&self, volume: &Volume<'_>, export: Export) -> Users {
        locked(&self.made).get(&(volume.owner, export)).and_then(VhostUserExport::user).into()
    }

    fn outlives(&self, _volume: &Volume<'_>, _export: Export, absence: Absence) -> bool {
        match absence {
            Absence::DaemonStops => true,
            Absence::PoolRestarts => false,
        }
    }

    /// Its disks are those of other kernels.
    fn volume_on(&self, _device: &BlockBelow, _volumes: &[Volume<'_>]) -> Option<String> {
        None
    }

    fn grow(&self, owner: Owner, _size_bytes: u64) -> Vec<String> {
        let made = locked(&self.made);
        made.iter().filter(|((of, _), _)| *of == owner).for_each(|(_, made)| made.capacity_changed());
        Vec::new()
    }

    fn set_names(&self, _volume: &Volume<'_>) {}

    fn expect(&self, _volumes: &[Volume<'_>]) {}

    fn close_overdue(&self, _known: &[Volume<'_>], _busy: &[String]) -> Vec<String> {
        Vec::new()
    }

    fn end_waiting(&self, _volume: &Volume<'_>) {}

    fn detached(&self, volume: &Volume<'_>) {
        let gone = locked(&self.made).extract_if(.., |(owner, _), _| *owner == volume.owner).collect::<Vec<_>>();
        drop(gone);
    }

    fn finish(&self) {}

    /// What a guest has in flight lies in files of its own.
    fn keeps(&self) -> Option<&'static str> {
        None
    }

    fn end_kept(&self, _name: &str, _set: Vec<OwnedFd>) -> bool {
        true
    }
}

fn error_at(path: &Path, error: &VhostUserError) -> ExportError {
    let (problem, remedy) = match error {
        VhostUserError::InUse { .. } if is_served_here(path) => {
            ("this daemon itself listens there".to_string(), "choose another path with --export vhost-user:PATH")
        }
        VhostUserError::InUse { .. } => ("another program listens there".to_string(), "stop it, or choose another path"),
        VhostUserError::NotASocket { .. } => {
            ("something is there that is no socket".to_string(), "remove it, or choose another path with --export vhost-user:PATH")
        }
        VhostUserError::System { .. } => (error.to_string(), "choose another path with --export vhost-user:PATH"),
        VhostUserError::TimedOut { seconds, .. } => {
            (format!("requests of the guest did not end within {seconds} s"), "check the volume's devices, then try again")
        }
    };
    ExportError::Refused { export: format!("vhost-user at {}", path.display()), problem, remedy: remedy.into() }
}

/// Whether this process is the one that listens on a socket.
fn is_served_here(path: &Path) -> bool {
    let peer = UnixStream::connect(path).ok().and_then(|stream| socket_peercred(&stream).ok());
    peer.is_some_and(|peer| peer.pid == rustix::process::getpid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_our_own_is_not_another_programs() {
        let place = tempfile::tempdir().expect("room");
        let path = place.path().join("h");
        let taken = VhostUserError::InUse { path: path.clone() };
        let refusal = |error: &VhostUserError| match error_at(&path, error) {
            ExportError::Refused { problem, remedy, .. } => format!("{problem}; {remedy}"),
            other => panic!("{other}"),
        };
        assert!(refusal(&taken).contains("another program listens there; stop it"));
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("room");
        assert!(refusal(&taken).contains("this daemon itself listens there; choose another path"), "{}", refusal(&taken));
    }
}
