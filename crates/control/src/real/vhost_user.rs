//! Disks for virtual machines: a socket for each volume and place.

use super::exports::directory_error;
use super::{Machine, locked};
use crate::datapath::Offer;
use crate::error::ControlError;
use crate::socket_path::SocketPath;
use crate::state::VolumeRecord;
use crate::words::{Export, OnRestart};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use vhost_user::{ExportOptions, VhostUserExport};

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

fn error_at(path: &Path, error: &dyn std::fmt::Display) -> ControlError {
    ControlError::Export {
        export: format!("vhost-user at {}", path.display()),
        problem: error.to_string(),
        remedy: "choose another place with --export vhost-user:PATH, or remove what is in the way".into(),
    }
}
