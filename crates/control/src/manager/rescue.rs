//! Devices of attached volumes whose daemon does not come back are led past hearth, and no process that has them open sees an error: the
//! I/O that it waits for is carried out on their disks first.
//!
//! | step | after a crash here, the next daemon |
//! |---|---|
//! | 1. save that nothing cached is to be believed | serves the volume, whose cache is empty |
//! | 2. serve it from its disk alone; what its users wait for is carried out | the same |
//! | 3. the device leads past hearth | attaches the volume anew, by the table of the device |
//! | 4. the block device goes, the volume is detached, its origin removed | the same |
//!
//! No pool is started: whatever keeps the daemon from coming is most likely there.

use super::Manager;
use super::verdict::Verdict;
use crate::rescue;
use api::error::ControlError;
use datapath::Withdrawal;
use records::state::VolumeRecord;
use std::time::{Duration, Instant};

/// How long the kernel may take for what a killed daemon had asked of a disk: until then that is in use.
const IN_USE_PATIENCE: Duration = Duration::from_secs(40);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(100);

impl Manager {
    /// Leads the devices of attached volumes past hearth. Nothing else was started of this manager, and nothing will be.
    ///
    /// # Errors
    /// Why the first one stays as it is. Its users wait as before.
    pub fn lead_all_past(&self) -> Result<(), ControlError> {
        let waiting = rescue::waiting(self.data().mapped(), &self.memory().state);
        // A disk that does not answer holds up its own volume only.
        let led: Vec<_> = std::thread::scope(|scope| {
            let lead = |volume| scope.spawn(move || self.lead_past_served(volume));
            let threads: Vec<_> = waiting.volumes.iter().map(lead).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        led.into_iter().chain(waiting.refused.into_iter().map(Err)).collect()
    }

    fn lead_past_served(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let until = Instant::now() + IN_USE_PATIENCE;
        while self.data().mapped().origin_in_use(volume)? && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        let judged = self.judge_all(std::slice::from_ref(volume));
        match judged.get(&volume.name) {
            Some((Verdict::Same | Verdict::Grown, ..)) => {}
            Some((Verdict::Refuse(problem, remedy), ..)) => return Err(ControlError::DataPath(problem.clone(), remedy.clone())),
            // What its users wrote last may not be what is there.
            Some((Verdict::DropClean(why), ..)) => return Err(ControlError::DataPath(why.clone(), String::new())),
            None => return Err(ControlError::Unknown { named: "volume", name: volume.name.clone() }),
        }
        // Whoever is killed after this has written past the cache while the device led here.
        self.change(|state| rescue::mark_stale(state, std::slice::from_ref(volume)))?;
        let volume = &self.volume_record(&volume.name)?;
        self.data().attach_bare(volume)?;
        let devices = || volume.exports.iter().filter(|export| export.is_device());
        devices().try_for_each(|export| self.data().export(volume, export).map(drop))?;
        self.data().mapped().lead_past(volume)?;
        // Nobody needs it any more: what remains of it is told, and does no harm.
        let left = devices().try_for_each(|export| self.data().unexport(volume, export, Withdrawal::Forced).map(drop));
        let left = left.and_then(|()| self.data().release(volume).map(drop)).and_then(|()| self.data().mapped().remove_origin(volume));
        if let Err(error) = left {
            tracing::warn!("what is left of {}: {error}", volume.name);
        }
        Ok(())
    }
}
