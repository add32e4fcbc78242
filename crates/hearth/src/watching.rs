//! Two threads that look at backing devices: one for devices that come and go, one that notes write stamps. A device that hangs keeps the
//! thread that looks at it, and nothing else: nobody waits for these, at the end of the process neither.

use crate::failure::Failure;
use crate::serve::spawn;
use control::manager::Manager;
use control::manager::stamps::Looked;
use control::manager::waiting::Watched;
use std::time::Duration;

/// How soon a volume whose device has come starts.
const DEVICES_EVERY: Duration = Duration::from_secs(1);
/// What was written in the last seconds before a crash is not noted; a rollback to before that is found.
const STAMPS_EVERY: Duration = Duration::from_secs(5);

/// Starts them, once everything is brought back.
///
/// # Errors
/// If no thread can be started.
pub fn start(manager: &Manager) -> Result<(), Failure> {
    let (devices, stamps) = (manager.clone(), manager.clone());
    spawn("devices", move || {
        let mut watched = Watched::default();
        while !devices.is_stopping() {
            devices.watch_devices(&mut watched);
            std::thread::sleep(DEVICES_EVERY);
        }
    })?;
    spawn("stamps", move || {
        let mut looked = Looked::default();
        while !stamps.is_stopping() {
            stamps.note_stamps(&mut looked);
            std::thread::sleep(STAMPS_EVERY);
        }
    })?;
    Ok(())
}
