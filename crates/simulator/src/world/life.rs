//! How a life of the system ends and the next begins: crashes, power cuts, recovery, and what may go wrong in it.

use engine::api::Command;
use engine::unanimous::Unanimous;
use types::{Mode, VolumeIndex};

use super::commits::Commits;
use super::devices::backing_of;
use super::gates::Gates;
use super::{Happening, Step, World, failed};
use crate::coverage::{Fault, Phase};
use crate::disk::blocking::Blocking;
use crate::disk::media::Keep;
use crate::system::{Change, HostRecord, Refusal, Started};

/// Starts that may fail by injected I/O errors in a row before the device is made good.
const TRIES: u32 = 4;

/// How the present life is to end.
pub(crate) struct Ends {
    /// At this step, by a crash.
    pub crash_at: Option<u64>,
    /// Crashes that are still to come, in all lives.
    pub crashes_left: u32,
    /// At once, because nothing else helps.
    pub restart_wanted: bool,
}

impl World<'_> {
    /// Decides when blocking work is cut short, if at all.
    pub fn death(&mut self) -> Option<u64> {
        if !self.safety || self.ends.crashes_left == 0 || !self.prng.percent(self.plan.crash_in_blocking_percent) {
            return None;
        }
        let most = self.prng.pick(&[4, 16, 64, 256]);
        let calls = self.prng.below(most);
        self.may_die(calls).then_some(calls)
    }

    /// Makes the pool, however often that is cut short.
    pub fn format(&mut self) -> Step {
        for attempt in 0.. {
            let dies_after = if attempt < 3 { self.death() } else { None };
            let faulty = attempt < TRIES;
            let on = std::mem::replace(&mut self.devices[0].faults.on, faulty && self.safety);
            let blocking = self.begin_blocking();
            let mut ssd = Blocking::new(&mut self.devices[0], &mut self.disk_prng, dies_after);
            let result = self.builder.format(self.plan, &self.host, &self.logs, &mut ssd);
            let dead = ssd.dead;
            let struck = self.struck_in(blocking);
            self.devices[0].faults.on = on;
            for class in &struck {
                self.stats.coverage.hit(crate::coverage::fault_of(*class, true), Phase::Format);
            }
            match result {
                Ok(()) if !dead => return Ok(()),
                Ok(()) => return Err(failed("format says it is done after the process died in it")),
                Err(_) if dead => self.died_in(Phase::Format),
                Err(refusal) if struck.is_empty() => return Err(failed(format!("format refused: {}", refusal.reason))),
                Err(_) => self.devices[0].faults.flush_broken = false,
            }
        }
        unreachable!("the loop ends by returning")
    }

    pub fn died_in(&mut self, phase: Phase) {
        self.stats.crashes_in_blocking += 1;
        let power = self.prng.percent(self.plan.power_percent);
        let fault = if power { Fault::PowerCut } else { Fault::ProcessCrash };
        self.stats.coverage.hit(fault, phase);
        if power && self.devices[0].faults.lies {
            self.stats.coverage.hit(Fault::LyingFlush, phase);
        }
        self.devices_crash(power);
        self.tell(format!("the process died in blocking work ({phase:?}), power cut: {power}"));
    }

    /// The process or the power went during or after a clean stop.
    pub fn died_in_stop(&mut self) {
        self.died_in(Phase::Stop);
    }

    /// Settles all devices and the oracle after the process (or the power) went.
    pub fn devices_crash(&mut self, power: bool) {
        let dip = self.ssd_loses_power(power);
        self.blame_crash(power || dip);
        for (index, device) in self.devices.iter_mut().enumerate() {
            let power = power || dip && index == 0;
            device.settle(&mut self.disk_prng);
            if power {
                let keep = Keep::draw(&mut self.disk_prng);
                device.power_cut(keep, &mut self.disk_prng);
            }
        }
        self.oracle.crash(power);
        if dip {
            self.give_up_unsettled();
        }
        self.wounds_come_back();
        if power {
            self.stats.power_cuts += 1
        } else {
            self.stats.crashes += 1
        }
        self.doubt_a_lying_ssd(power || dip);
    }

    /// An SSD that confirmed what it did not write may have lost the end of the log, and nothing on it says so.
    pub fn doubt_a_lying_ssd(&mut self, power: bool) {
        let lied = self.ssd_lied || (power && self.devices[0].faults.lies);
        if lied && self.builder.uses_ssd() {
            for volume in 0..self.volumes.len() as u16 {
                self.doubt_logged(volume);
            }
        }
    }

    /// The process dies now, perhaps with the power, and another life begins.
    pub fn crash_and_restart(&mut self) -> Step {
        self.ends.crashes_left = self.ends.crashes_left.saturating_sub(1);
        self.scene(("crash", self.course.crash()));
        let power = self.prng.percent(self.plan.power_percent);
        let fault = if power { Fault::PowerCut } else { Fault::ProcessCrash };
        self.cover(fault);
        if power && self.devices[0].faults.lies {
            self.cover(Fault::LyingFlush);
        }
        self.note(50, u64::from(power));
        self.tell(format!("CRASH, power cut: {power}"));
        self.end_life();
        self.devices_crash(power);
        self.rot_while_off();
        self.check_settled_images()?;
        self.start()
    }

    /// Forgets what only the process knew.
    pub fn end_life(&mut self) {
        self.take_census();
        self.system = None;
        self.give_pages_back();
        self.clients.forget_requests();
        self.channels.clear();
        self.progress.tick_at = None;
        self.operator.forget();
        self.loss.clean = Unanimous::of(usize::from(self.plan.shards));
        self.log_writes.crash();
        for volume in &mut self.volumes {
            (volume.paused, volume.voiding, volume.in_flight, volume.settles_with) = (false, false, 0, None);
            volume.dirty_blocks = Vec::new();
        }
        self.dirty_pages = Vec::new();
        self.queue.retain(|happening| {
            matches!(
                happening,
                Happening::SsdLeaves
                    | Happening::BackingLeaves(_)
                    | Happening::Rot
                    | Happening::Operator
                    | Happening::Disconnect
                    | Happening::Shortage(true)
                    | Happening::Busy(_)
                    | Happening::Grow
                    | Happening::Content(_)
            )
        });
    }

    /// C4: losing the SSD at this very instant loses nothing of a volume that keeps nothing back.
    pub fn check_settled_images(&mut self) -> Step {
        for volume in 0..self.volumes.len() as u16 {
            if self.volumes[usize::from(volume)].settled {
                for (start, sectors) in self.oracle.written_runs(volume) {
                    self.check_at_home(volume, start, sectors)?;
                }
            }
        }
        Ok(())
    }

    /// Begins a life from what the devices hold.
    pub fn start(&mut self) -> Step {
        self.find_ssd()?;
        // A failure that was not recorded before the process died is not known to the next life, which may trust the SSD.
        self.ssd_failed = false;
        self.restore_devices();
        self.gates = Gates::new(self.devices.len());
        self.commits = Commits::new(self.volumes.len());
        self.blame.new_life();
        self.try_wrong_ssd()?;
        let mut tries = 0;
        loop {
            let Some(started) = self.try_start(&mut tries)? else { continue };
            self.session_began(started.session);
            self.stats.sweeps_read += u64::from(started.after_clean_stop);
            self.stats.upgrades += u64::from(started.upgraded.is_some());
            self.stats.upgraded_blocks += started.upgraded.unwrap_or(0);
            self.system = Some(started.system);
            self.accept_damage(&started.damaged)?;
            if self.record_modes()? {
                break;
            }
        }
        if self.oracle.life() > 0 {
            self.stats.recoveries += 1;
        }
        self.begin_life()
    }

    fn restore_devices(&mut self) {
        for (index, device) in self.devices.iter_mut().enumerate() {
            device.faults.flush_broken = false;
            device.faults.refuses = false;
            if index == 0 {
                // An SSD that left without anyone having noticed is the same when it comes back.
                device.faults.gone = false;
            }
        }
        for volume in &mut self.volumes {
            volume.backing_failed = false;
        }
    }

    fn try_start(&mut self, tries: &mut u32) -> Result<Option<Started>, super::Failure> {
        *tries += 1;
        let dies_after = self.death();
        let on = std::mem::replace(&mut self.devices[0].faults.on, self.safety && *tries <= TRIES);
        let now = self.queue.now_ns();
        let blocking = self.begin_blocking();
        let mut ssd = Blocking::new(&mut self.devices[0], &mut self.disk_prng, dies_after);
        let result = self.builder.start(self.plan, &self.host, now, &mut ssd, &self.pages);
        let (dead, calls) = (ssd.dead, ssd.calls);
        self.note(60, calls);
        let struck = self.struck_in(blocking);
        self.devices[0].faults.on = on;
        let phase = if *tries > 1 { Phase::RecoveryAgain } else { Phase::Recovery };
        for class in &struck {
            self.stats.coverage.hit(crate::coverage::fault_of(*class, true), phase);
        }
        if dead {
            drop(result);
            self.ends.crashes_left = self.ends.crashes_left.saturating_sub(1);
            self.died_in(phase);
            self.check_settled_images()?;
            return Ok(None);
        }
        match result {
            Ok(started) => Ok(Some(started)),
            Err(refusal) => self.refused(&refusal, !struck.is_empty(), *tries).map(|()| None),
        }
    }

    /// Volumes that recovery reports as damaged: only if the SSD did wrong; their administrator goes on by force.
    fn accept_damage(&mut self, damaged: &[u16]) -> Step {
        for volume in damaged {
            self.tell(format!("volume {volume} is reported as damaged"));
            if !self.blame.ssd_harmed {
                return Err(failed(format!("volume {volume} is reported as damaged although the SSD did no wrong")));
            }
            self.stats.refusals += 1;
            self.doubt_all(*volume);
            self.blame.is_damaged(*volume);
        }
        Ok(())
    }

    /// Tells the superblock which volumes may get dirty blocks. `false` if the process died in it and must start again.
    fn record_modes(&mut self) -> Result<bool, super::Failure> {
        for volume in 0..self.volumes.len() as u16 {
            if !self.record_mode(volume)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same of one volume, which is entered if it has no record.
    pub fn record_mode(&mut self, volume: u16) -> Result<bool, super::Failure> {
        let state = &self.volumes[usize::from(volume)];
        let mode = state.options.mode;
        self.record(if state.settled { Change::Settled(volume, mode) } else { Change::MayHaveDirty(volume) })
    }

    /// Stores a change in the superblock. `false`: the process died in it, or the SSD refused, and another life must begin.
    pub fn record(&mut self, change: Change) -> Result<bool, super::Failure> {
        let dies_after = self.death();
        let mut system = self.system.take().expect("a life is running");
        let blocking = self.begin_blocking();
        let mut ssd = Blocking::new(&mut self.devices[0], &mut self.disk_prng, dies_after);
        let result = system.record(change, &mut ssd);
        let dead = ssd.dead;
        for class in self.struck_in(blocking) {
            self.stats.coverage.hit(crate::coverage::fault_of(class, true), Phase::Superblock);
        }
        self.tell(format!("superblock: {change:?}: {result:?}, died in it: {dead}"));
        if result.is_ok() && !dead {
            self.system = Some(system);
            return Ok(true);
        }
        drop(system);
        self.end_life();
        if dead {
            self.ends.crashes_left = self.ends.crashes_left.saturating_sub(1);
            self.died_in(Phase::Superblock);
        } else {
            self.devices_crash(false);
        }
        self.check_settled_images()?;
        Ok(false)
    }

    fn refused(&mut self, refusal: &Refusal, struck: bool, tries: u32) -> Step {
        self.tell(format!("start refused: {}", refusal.reason));
        self.devices[0].faults.flush_broken = false;
        let damaged = self.blame.ssd_harmed;
        if struck && tries <= TRIES {
            return Ok(());
        }
        if damaged || tries > 20 {
            if !damaged {
                return Err(failed(format!("start refused for ever: {}", refusal.reason)));
            }
            return self.replace_ssd();
        }
        Err(failed(format!("start refused although no device failed: {}", refusal.reason)))
    }

    /// The cache is given up, as an administrator would after reading the message: a new pool on a new or wiped SSD.
    pub fn replace_ssd(&mut self) -> Step {
        self.stats.refusals += 1;
        self.tell("the SSD is given up; a new pool is made".to_string());
        for volume in 0..self.volumes.len() {
            if !self.volumes[volume].settled && !self.host.forgotten.contains(&(volume as u16)) {
                self.doubt_all(volume as u16);
            }
        }
        self.ssd_is_new();
        let faults = &mut self.devices[0].faults;
        faults.gone = false;
        faults.flush_broken = false;
        if self.prng.percent(50) {
            let blank = vec![0; self.devices[0].media.size_bytes() as usize];
            self.devices[0].media.replace(blank);
        }
        let mut uuid = [0; 16];
        uuid.fill_with(|| self.prng.bits() as u8);
        self.host = HostRecord::of_new_pool(uuid);
        self.logs.clear();
        self.format()
    }

    fn begin_life(&mut self) -> Step {
        let now = self.queue.now_ns();
        self.note(70, now);
        self.tell(format!("life {} begins", self.oracle.life()));
        self.treat_content();
        self.forget_what_is_void();
        self.grow_while_away();
        for volume in 0..self.volumes.len() as u16 {
            if self.host.past.contains_key(&volume) {
                self.void_past(volume);
            } else {
                self.attach_at_start(volume);
            }
        }
        self.drain()?;
        if self.safety {
            self.ssd_may_leave_again();
            for connection in 0..self.plan.connections {
                self.queue.after(u64::from(connection), Happening::Client(connection));
            }
            if self.plan.operator_ns > 0 && self.oracle.life() == 0 {
                self.queue.after(self.plan.operator_ns, Happening::Operator);
            }
            let share = u64::from(self.clients.requests_left) / u64::from(self.ends.crashes_left + 1) * 10 + 20;
            let steps = self.progress.steps;
            self.ends.crash_at = (self.ends.crashes_left > 0).then(|| steps + self.prng.below(share * 2));
            if self.plan.read_all_after_restart && self.oracle.life() > 0 {
                self.read_everything()?;
            }
        }
        Ok(())
    }

    /// Attaches a volume at the start of a life.
    pub fn attach_at_start(&mut self, volume: u16) {
        self.attach(volume);
        self.void_stale(volume);
        let state = &self.volumes[usize::from(volume)];
        if !state.settled && state.options.mode != Mode::WriteBack {
            self.set_options(volume, state.options.clone());
        }
    }

    /// Attaches a volume, after a flush of its backing device: what a read may show from now on must stay (C3), and the shard counts
    /// writes from here.
    pub fn attach(&mut self, volume: u16) {
        let media = &mut self.devices[backing_of(volume)].media;
        let position = media.position();
        media.flush(position);
        let state = &self.volumes[usize::from(volume)];
        let command = Command::Attach {
            volume: VolumeIndex(volume),
            id: self.system.as_ref().expect("a life is running").volume_id(volume),
            size_bytes: state.sectors * 512,
            options: state.options.clone(),
        };
        if let Command::Attach { id, .. } = &command {
            self.blame.know_volume(*id, volume);
        }
        let now = self.queue.now_ns();
        self.system_mut().command(now, command);
    }
}
