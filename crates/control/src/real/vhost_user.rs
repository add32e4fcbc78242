//! Disks for virtual machines: a socket for each volume and place.

use super::exports::directory_error;
use super::{Machine, locked};
use crate::datapath::Offer;
use crate::error::ControlError;
use crate::socket_path::SocketPath;
use crate::state::VolumeRecord;
use crate::words::{Export, OnRestart};
use rustix::net::sockopt::socket_peercred;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vhost_user::{ExportOptions, VhostUserError, VhostUserExport};

/// Directory of the sockets that have no place of their own, in the export directory.
const SOCKETS: &str = "vhost-user";
const DIRECTORY_MODE: u32 = 0o755;
/// How long requests of guests may take when an export ends: an answer in flight waits for the slowest device.
const PATIENCE: Duration = Duration::from_secs(10);
/// Digits of the volume's UUID in the disk's serial number.
const SERIAL_DIGITS: usize = 20;

impl Machine {
    pub(super) fn offer_vhost_user(&self, record: &VolumeRecord, place: Option<SocketPath>) -> Result<Offer, ControlError> {
        let volume = self.volume(&record.name)?;
        let directory = self.export_directory.join(SOCKETS);
        std::fs::create_dir_all(&directory).map_err(|e| directory_error(&directory, &e))?;
        // The sockets say who may connect; whoever may has to get there, whatever the daemon's umask.
        let open = std::fs::Permissions::from_mode(DIRECTORY_MODE);
        std::fs::set_permissions(&directory, open).map_err(|e| directory_error(&directory, &e))?;
        let path = match place {
            Some(path) => path.as_path().to_owned(),
            None => directory.join(format!("{}.sock", record.name)),
        };
        // Where a socket has a place of its own others may write.
        let succession = Some(directory.join(format!("{}{}.guest", record.uuid, path.display().to_string().replace('/', "_"))));
        let serial = record.uuid.to_string().chars().filter(char::is_ascii_hexdigit).take(SERIAL_DIGITS).collect();
        let options = ExportOptions { serial, refuses_earlier: self.kept.is_strange(record), succession, ..ExportOptions::default() };
        let made = VhostUserExport::start(&self.runtime, &volume.reference, &path, &options).map_err(|e| error_at(&path, &e))?;
        locked(&volume.vhost_user).insert(Export::VhostUser(place), made);
        Ok(Offer { place: path.display().to_string(), on_restart: OnRestart::WaitsIfReconnected, ..Offer::default() })
    }

    pub(super) fn withdraw_vhost_user(&self, record: &VolumeRecord, export: &Export) -> Result<(), ControlError> {
        let volume = self.volume(&record.name)?;
        let Some(made) = locked(&volume.vhost_user).remove(export) else { return Ok(()) };
        let path = made.path().to_owned();
        made.stop(&self.runtime, self.patience(PATIENCE)).map_err(|e| error_at(&path, &e))
    }

    /// The virtual machine whose disk the volume is there.
    pub(super) fn user_of_vhost_user(&self, record: &VolumeRecord, export: &Export) -> Option<String> {
        let volume = self.volume(&record.name).ok()?;
        locked(&volume.vhost_user).get(export)?.user()
    }
}

fn error_at(path: &Path, error: &VhostUserError) -> ControlError {
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
    ControlError::Export { export: format!("vhost-user at {}", path.display()), problem, remedy: remedy.into() }
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
        let told = |error: &VhostUserError| error_at(&path, error).refusal().to_string();
        assert!(told(&taken).contains("another program listens there; stop it"));
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("room");
        assert!(told(&taken).contains("this daemon itself listens there; choose another path"), "{}", told(&taken));
    }
}
