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
    let mut watched = Watched::default();
    repeat("devices", manager, DEVICES_EVERY, move |manager| manager.watch_devices(&mut watched))?;
    let mut watched = WatchedShares::default();
    repeat("shares", manager, SHARES_EVERY, move |manager| manager.watch_shares(&mut watched))?;
    manager.watch_sessions();
    start_observer(manager)?;
    start_saving(manager)?;
    start_trials(manager)?;
    start_names(manager)?;
    repeat("records", manager, RECORDS_EVERY, Manager::write_due_records)?;
    let mut looked = Looked::default();
    repeat("stamps", manager, STAMPS_EVERY, move |manager| manager.note_stamps(&mut looked))
}

/// A thread that does this again and again, with a rest of `every` between, until the manager stops.
fn repeat(name: &str, manager: &Manager, every: Duration, mut turn: impl FnMut(&Manager) + Send + 'static) -> Result<(), Failure> {
    let manager = manager.clone();
    spawn(name, move || {
        while !manager.is_stopping() {
            turn(&manager);
            std::thread::sleep(every);
        }
    })
    .map(drop)
}

/// This thread gets the processor last: nothing waits for it. Where that is refused, it takes its turn.
fn go_last() {
    let _ = rustix::process::setpriority_process(rustix::thread::gettid().into(), 19);
}

fn start_observer(manager: &Manager) -> Result<(), Failure> {
    let observed = manager.clone();
    spawn("observer", move || {
        go_last();
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
    })
    .map(drop)
}

/// Keeps what was learned of loads.
fn start_saving(manager: &Manager) -> Result<(), Failure> {
    let saved = manager.clone();
    spawn("watches", move || {
        go_last();
        while !saved.is_stopping() {
            saved.save_watches();
            std::thread::sleep(SAVE_EVERY);
        }
    })
    .map(drop)
}

/// Resumes trials of devices that come later than the daemon. Ends where there is nothing to resume.
fn start_trials(manager: &Manager) -> Result<(), Failure> {
    let resumed = manager.clone();
    spawn("trials", move || {
        while !resumed.is_stopping() && resumed.resume_trials() {
            std::thread::sleep(TRIALS_EVERY);
        }
    })
    .map(drop)
}

/// Looks at volumes for applications.
fn start_names(manager: &Manager) -> Result<(), Failure> {
    let named = manager.clone();
    spawn("names", move || {
        go_last();
        while !named.is_stopping() {
            // Clients wrote what is read here. A panic over it goes to the log; that volume is not looked at again, the others are.
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                named.renew_policies();
                named.discover_due()
            }));
            if !looked.unwrap_or(false) {
                std::thread::sleep(NAMES_EVERY);
            }
        }
    })
    .map(drop)
}

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
