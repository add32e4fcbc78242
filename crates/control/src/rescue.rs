//! Devices of attached volumes go on without hearth when its daemon does not come back.
//!
//! Two ways. The gentle one serves the volumes once more ([`crate::manager::Manager::lead_all_past`]), so that nothing fails. Where that does
//! not work, [`lead_past`] exchanges the tables and ends hearth's block devices below them:
//!
//! ```text
//!   the device is being suspended: what comes from now on waits, what is under way must end
//!     └─ it does not: hearth's block device ends, and what is under way fails
//!          └─ the table of the origin comes into force: what has waited goes to the disk
//! ```
//! Attached volumes are never write-back, so the disk has everything. What is cached is older than the disk as soon as its users go on: that
//! is noted before, and where it cannot be, the next daemon finds the device leading past hearth, which says the same.

use api::error::{ControlError, Kind};
use datapath::mapped::{Leads, MappedDevices};
use records::state::{State, VolumeRecord};
use records::store::Store;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::Mode;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Attached volumes whose devices lead to block devices of hearth.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Those that can be led past hearth.
    pub volumes: Vec<VolumeRecord>,
    /// Why others cannot.
    pub refused: Vec<ControlError>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For requests that are under way, before they fail.
    pub for_requests: Duration,
    /// For the exchange, after that.
    pub for_exchange: Duration,
}

/// What became of a device.
#[derive(Debug)]
pub struct Led {
    /// Its volume.
    pub volume: VolumeRecord,
    /// Whether requests that were under way may have failed for it; or why it does not lead past hearth.
    pub result: Result<bool, ControlError>,
}

/// The path of the device of an attached volume.
#[must_use]
pub fn device_of(volume: &VolumeRecord) -> String {
    format!("/dev/mapper/{}", volume.attachment.as_ref().map_or("", |attachment| attachment.device.as_str()))
}

fn refused(volume: &VolumeRecord, problem: String, remedy: &str, kind: Kind) -> ControlError {
    ControlError::Device { path: device_of(volume), problem, remedy: remedy.into(), kind }
}

/// The attached volumes of a state whose devices do not lead past hearth.
pub fn waiting(mapped: &dyn MappedDevices, state: &State) -> Waiting {
    let mut found = Waiting::default();
    for volume in state.volumes.iter().filter(|volume| volume.attachment.is_some()) {
        match mapped.leads(volume) {
            Ok(Leads::Past | Leads::Nowhere) => {}
            Ok(Leads::Here | Leads::Changing) if may_lack_data(volume) => {
                let problem =
                    format!("it is not led past hearth: the SSD may hold data of the volume \"{}\" that its disk lacks", volume.name);
                found.refused.push(refused(volume, problem, "start the daemon, which writes that to the disk", Kind::Conflict));
            }
            Ok(Leads::Here | Leads::Changing) => found.volumes.push(volume.clone()),
            Err(error) => found.refused.push(error),
        }
    }
    found
}

/// It cannot come to this: attached volumes are never write-back.
fn may_lack_data(volume: &VolumeRecord) -> bool {
    volume.may_have_dirty || volume.options.mode == Mode::WriteBack
}

/// What is cached of these volumes will never be served again.
pub fn mark_stale(state: &mut State, volumes: &[VolumeRecord]) {
    for volume in volumes {
        if let Some(volume) = state.volume_mut(&volume.name).filter(|known| known.uuid == volume.uuid) {
            (volume.cache_stale, volume.stopped_clean) = (true, false);
            volume.attachment.iter_mut().for_each(|attachment| attachment.kept = None);
        }
    }
}

/// Saves that.
///
/// # Errors
/// If it cannot be saved.
pub fn note_stale(store: &mut dyn Store, state: &State, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
    let mut state = state.clone();
    mark_stale(&mut state, volumes);
    let broken = |problem| ControlError::State { path: "state.json".into(), problem, remedy: "restore a good copy".into() };
    state.check().map_err(broken)?;
    store.save(&state)
}

/// Gives devices the tables of their origins. `end` ends hearth's block devices: what waits for them fails then. It is called once, and only
/// if an exchange waits for that; what comes to the devices from the beginning of the exchange on does not fail.
pub fn lead_past(
    mapped: &Arc<dyn MappedDevices + Send + Sync>,
    volumes: Vec<VolumeRecord>,
    end: &mut dyn FnMut(),
    patience: Patience,
) -> Vec<Led> {
    let (led_in, led) = channel();
    // Set anew when the block devices have ended, which may take long.
    let until = Arc::new(Mutex::new(Instant::now() + patience.for_requests + patience.for_exchange));
    for (at, volume) in volumes.iter().cloned().enumerate() {
        let (mapped, led_in, until) = (mapped.clone(), led_in.clone(), until.clone());
        // Whoever waits in the kernel is not waited for: the thread ends with the process, and the exchange with it.
        std::thread::spawn(move || drop(led_in.send((at, lead_one_past(&*mapped, &volume, &until)))));
    }
    drop(led_in);
    let mut results: Vec<Option<Result<bool, ControlError>>> = volumes.iter().map(|_| None).collect();
    let mut ended = false;
    let mut limit = Instant::now() + patience.for_requests;
    while results.iter().any(Option::is_none) {
        match led.recv_timeout(limit.saturating_duration_since(Instant::now())) {
            Ok((at, result)) => results[at] = Some(result.map(|()| ended)),
            Err(RecvTimeoutError::Timeout) if !ended => {
                end();
                // An exchange that has failed meanwhile is tried again until then, and a little later it has said so.
                let last = Instant::now() + patience.for_exchange;
                *until.lock().expect("no holder of this lock panics") = last;
                (ended, limit) = (true, last + PAUSE * 10);
            }
            Err(_) => break,
        }
    }
    let unknown = |volume: &VolumeRecord| {
        let problem = "it still leads to hearth: requests that are under way do not end";
        refused(volume, problem.into(), "check the disk below it, then give `hearth rescue` again", Kind::Busy)
    };
    let outcome = |(volume, result): (VolumeRecord, Option<_>)| Led { result: result.unwrap_or_else(|| Err(unknown(&volume))), volume };
    volumes.into_iter().zip(results).map(outcome).collect()
}

/// Another program may be at it, and wait for the same requests.
fn lead_one_past(mapped: &dyn MappedDevices, volume: &VolumeRecord, until: &Mutex<Instant>) -> Result<(), ControlError> {
    loop {
        match past_old_writes(mapped, volume).and_then(|()| mapped.lead_past(volume)) {
            Ok(_) => break,
            Err(error) if Instant::now() >= *until.lock().expect("no holder of this lock panics") => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    // Where somebody has it open, the next daemon removes it.
    if let Err(error) = mapped.remove_origin(volume) {
        tracing::debug!("{error}");
    }
    Ok(())
}

/// What the daemon had asked of the disk before it was killed must be done: it could come over what
/// users write as soon as the device leads past hearth.
fn past_old_writes(mapped: &dyn MappedDevices, volume: &VolumeRecord) -> Result<(), ControlError> {
    if !mapped.origin_in_use(volume)? {
        return Ok(());
    }
    let problem = "it still leads to hearth: what the daemon had asked of the disk below it is not done";
    Err(refused(volume, problem.into(), "check that disk, then give `hearth rescue` again", Kind::Busy))
}
