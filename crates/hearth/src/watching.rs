//! Threads that look at what others have a hand in: backing devices that come and go, the targets of shares, write stamps; and the observer of
//! what clients use. What hangs keeps the thread that looks at it, and nothing else: nobody waits for these, at the end of the process neither.

use crate::failure::Failure;
use crate::serve::spawn;
use control::manager::Manager;
use control::manager::share_watch::WatchedShares;
use control::manager::stamps::Looked;
use control::manager::waiting::Watched;
use std::time::Duration;

/// How soon a volume whose device has come starts.
const DEVICES_EVERY: Duration = Duration::from_secs(1);
/// A target that others changed is put right after some looks.
const SHARES_EVERY: Duration = Duration::from_secs(1);
/// What was written in the last seconds before a crash is not noted; a rollback to before that is found.
const STAMPS_EVERY: Duration = Duration::from_secs(5);

/// How soon an SSD has a copy of what was changed in the state and can wait.
const RECORDS_EVERY: Duration = Duration::from_secs(1);

/// How soon it is seen that what was learned of a load is worth a write.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// How soon a device is watched that comes after the daemon's start.
const TRIALS_EVERY: Duration = Duration::from_secs(10);

/// How soon a volume that was attached is looked at for applications.
const NAMES_EVERY: Duration = Duration::from_secs(2);

/// Starts them, once everything is brought back.
///
/// # Errors
/// If no thread can be started.
pub fn start(manager: &Manager) -> Result<(), Failure> {
    let (devices, shares, stamps) = (manager.clone(), manager.clone(), manager.clone());
    spawn("devices", move || {
        let mut watched = Watched::default();
        while !devices.is_stopping() {
            devices.watch_devices(&mut watched);
            std::thread::sleep(DEVICES_EVERY);
        }
    })?;
    spawn("shares", move || {
        let mut watched = WatchedShares::default();
        while !shares.is_stopping() {
            shares.watch_shares(&mut watched);
            std::thread::sleep(SHARES_EVERY);
        }
    })?;
    manager.watch_sessions();
    let observed = manager.clone();
    spawn("observer", move || {
        // Nobody waits for it: everybody else goes first. Where that is refused, it takes its turn.
        let _ = rustix::process::setpriority_process(rustix::thread::gettid().into(), 19);
        while !observed.is_stopping() {
            let before = processor_time();
            let requests = match observed.observe() {
                Ok(requests) => requests,
                Err(error) => {
                    tracing::debug!("what clients used in the last second is not known: {error}");
                    0
                }
            };
            std::thread::sleep(observed.observer_rest(processor_time().saturating_sub(before), requests));
        }
    })?;
    let (saved, resumed) = (manager.clone(), manager.clone());
    spawn("watches", move || {
        let _ = rustix::process::setpriority_process(rustix::thread::gettid().into(), 19);
        while !saved.is_stopping() {
            saved.save_watches();
            std::thread::sleep(SAVE_EVERY);
        }
    })?;
    // Ends where there is nothing to resume; a device may come later than the daemon.
    spawn("trials", move || {
        while !resumed.is_stopping() && resumed.resume_trials() {
            std::thread::sleep(TRIALS_EVERY);
        }
    })?;
    let named = manager.clone();
    spawn("names", move || {
        let _ = rustix::process::setpriority_process(rustix::thread::gettid().into(), 19);
        while !named.is_stopping() {
            // What is read was written by clients. A fault at it is told by the log; the volume is not looked at again, and the others are.
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                named.renew_policies();
                named.discover_due()
            }));
            if !looked.unwrap_or(false) {
                std::thread::sleep(NAMES_EVERY);
            }
        }
    })?;
    let recorded = manager.clone();
    spawn("records", move || {
        while !recorded.is_stopping() {
            recorded.write_due_records();
            std::thread::sleep(RECORDS_EVERY);
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

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
