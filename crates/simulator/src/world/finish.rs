//! The liveness phase: faults stop, and then every request must be answered, every dirty block must get home, and the
//! backing devices must hold what the oracle says, also without the SSD, also after the power goes once more.

use engine::api::Op;

use super::operator::Purpose;
use super::{Failure, Step, World, failed};
use crate::disk::media::Keep;
use crate::workload::Draft;

/// Virtual time within which a healthy system answers everything.
const PATIENCE_NS: u64 = 600_000_000_000;

impl World<'_> {
    pub fn finish(&mut self) -> Step {
        self.safety = false;
        self.give_pages_back();
        self.ends.crash_at = None;
        for device in &mut self.devices {
            device.faults.heal();
        }
        self.tell("faults stop".to_string());
        self.restart_if_wounded()?;
        self.settle_down()?;
        self.read_everything()?;
        self.settle_down()?;
        // A device that failed at the end needs a new life, which may find blocks dirty again that had come home.
        for _ in 0..5 {
            let lives = self.stats.recoveries;
            for volume in 0..self.volumes.len() as u16 {
                self.bring_home(volume, 50)?;
            }
            if self.stats.recoveries == lives {
                break;
            }
        }
        self.system_mut().check_invariants();
        let dirty = self.system_mut().facts().dirty_bytes;
        if dirty > 0 && self.wounds.open.is_empty() {
            return Err(failed(format!("{dirty} bytes are still dirty after a destage of everything")));
        }
        self.one_last_power_cut()
    }

    /// Runs until every request and command is answered. True if that needed a new life, which forgets commands.
    pub fn settle_down(&mut self) -> Result<bool, Failure> {
        let mut restarted = false;
        let until = self.queue.now_ns() + PATIENCE_NS;
        while !self.clients.pending.is_empty() || !self.operator.idle() {
            if self.operator.waiting.is_empty() && self.clients.pending.is_empty() {
                // An intent of the safety phase is not pursued any more.
                self.operator.forget();
                self.resume();
                break;
            }
            self.step()?;
            if self.queue.now_ns() > until {
                return Err(failed(format!(
                    "not answered within ten minutes without faults: {}\n{}",
                    self.pending_text(),
                    self.system_mut().describe()
                )));
            }
            if std::mem::take(&mut self.ends.restart_wanted) {
                self.crash_and_restart()?;
                restarted = true;
            }
        }
        self.operator.forget();
        Ok(restarted)
    }

    /// Reads every sector that was ever written.
    pub fn read_everything(&mut self) -> Step {
        for volume in 0..self.volumes.len() as u16 {
            for (mut start_sector, count) in self.oracle.written_runs(volume) {
                let end = start_sector + u64::from(count);
                while start_sector < end {
                    if self.volumes[usize::from(volume)].is_shut() {
                        // While faults last, an operator may want clients away from it.
                        break;
                    }
                    let sectors = (end - start_sector).min(128) as u32;
                    self.submit(0, Draft::of(volume, Op::Read, start_sector, sectors));
                    self.drain()?;
                    start_sector += u64::from(sectors);
                    while self.clients.pending.len() > 64 {
                        self.step()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A device may have failed for good by an I/O that was under way when faults stopped: then another life is needed.
    fn restart_if_wounded(&mut self) -> Result<bool, Failure> {
        let wounded = self.ssd_failed || self.volumes.iter().any(|volume| volume.backing_failed);
        if wounded || self.ends.restart_wanted {
            self.ends.restart_wanted = false;
            self.crash_and_restart()?;
            self.settle_down()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn bring_home(&mut self, volume: u16, tries: u32) -> Step {
        self.restart_if_wounded()?;
        self.destage(volume, Purpose::Destage);
        self.drain()?;
        // An I/O that failed when it was handed out may have spoilt this try; the faults are over, so the next one must do.
        let spoilt = self.settle_down()? | self.restart_if_wounded()? | std::mem::take(&mut self.destage_refused);
        if spoilt && tries > 0 {
            return self.bring_home(volume, tries - 1);
        }
        self.submit(0, Draft::of(volume, Op::Flush, 0, 0));
        self.drain()?;
        self.settle_down()?;
        self.check_all_at_home(volume)
    }

    /// Everything was destaged and flushed: the backing devices alone must be complete, whatever they lose now.
    fn one_last_power_cut(&mut self) -> Step {
        self.end_life();
        self.blame_crash(true);
        for device in &mut self.devices {
            device.settle(&mut self.disk_prng);
            device.power_cut(Keep::None, &mut self.disk_prng);
        }
        self.oracle.crash(true);
        for volume in 0..self.volumes.len() as u16 {
            self.check_all_at_home(volume)?;
        }
        self.doubt_a_lying_ssd(true);
        let out = self.pages.pages_out() + self.clients.pages.pages_out();
        if out > 0 {
            return Err(failed(format!("{out} pages were never given back")));
        }
        self.start()?;
        self.read_everything()?;
        self.settle_down().map(drop)
    }
}
