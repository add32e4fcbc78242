//! Another SSD for a running pool, as `hearth pool replace` does it (`control/src/manager/replace.rs`):
//!
//! 1. Clients go. What is dirty goes home; what cannot is given up if the administrator said so, else all stays as it was.
//! 2. The pool comes to rest, without a checkpoint, and another SSD is formatted. Until the host's record names the new pool, the old SSD is
//!    the pool's: after a failure, or a crash, it comes up again.
//! 3. The record names the new pool; volumes are attached to it, and its cache is empty.
//!
//! What had come home, and all of a volume that kept nothing back, is on the backing devices then, with no excuse. Exactly those blocks
//! are in doubt that were dirty on the old SSD when it was given up.

use engine::api::Command;
use types::Mode;

use super::log_writes::LogWrites;
use super::operator::Purpose;
use super::{Step, World};
use crate::course::Kind;
use crate::coverage::{Phase, fault_of};
use crate::disk::Disk;
use crate::disk::blocking::Blocking;
use crate::disk::media::Media;
use crate::system::HostRecord;

/// A replacement under way.
pub(crate) struct Replacement {
    /// What cannot go home is given up.
    drop_dirty: bool,
    /// The next volume to bring home.
    next: u16,
    /// Volumes that could not be brought home.
    given_up: Vec<u16>,
}

impl World<'_> {
    /// Clients have nothing in flight: the replacement begins.
    pub fn begin_replacement(&mut self) {
        let drop_dirty = self.prng.percent(70);
        self.tell(format!("operator: another SSD for the pool; what cannot go home is given up: {drop_dirty}"));
        self.operator.replacement = Some(Replacement { drop_dirty, next: 0, given_up: Vec::new() });
        self.go_on_replacing();
    }

    /// Brings the next volume home that may be dirty; after the last one the pool is to come to rest.
    fn go_on_replacing(&mut self) {
        let replacement = self.operator.replacement.as_mut().expect("under way");
        let first = usize::from(replacement.next);
        match (first..self.volumes.len()).find(|volume| !self.volumes[*volume].settled) {
            Some(volume) => {
                replacement.next = volume as u16 + 1;
                self.destage(volume as u16, Purpose::DestageToReplace);
            }
            None => drop(self.command(Purpose::QuiesceToReplace, 0, |token| Command::Quiesce { token })),
        }
    }

    /// A volume is at home, or cannot be brought there.
    pub fn destaged_to_replace(&mut self, volume: u16, home: bool) -> Step {
        let replacement = self.operator.replacement.as_mut().expect("under way");
        if home {
            self.check_all_at_home(volume)?;
        } else if replacement.drop_dirty {
            replacement.given_up.push(volume);
        } else {
            self.tell("operator: the SSD stays".to_string());
            self.operator.replacement = None;
            self.resume();
            return Ok(());
        }
        self.go_on_replacing();
        Ok(())
    }

    /// The pool is at rest: the SSD is exchanged and another life begins, on the new one or, after a failure, on the old one.
    pub fn exchange_ssd(&mut self) -> Step {
        let system = self.system.take().expect("a life is running");
        let given_up = self.operator.replacement.take().expect("under way").given_up;
        let dirty: Vec<(u16, Vec<u64>)> = given_up.into_iter().map(|volume| (volume, system.dirty_list(volume))).collect();
        drop(system);
        self.end_life();
        let Some((disk, record)) = self.make_another_ssd() else { return self.start() };
        // The save that names the new pool: a crash comes before it or after it.
        let dies = self.death().is_some();
        if dies && self.prng.percent(50) {
            self.tell("the process dies before the new SSD is recorded".to_string());
            self.died_exchanging();
            return self.start();
        }
        let former = std::mem::replace(&mut self.devices[0], disk);
        self.other_ssds.former = Some(former.media.snapshot());
        self.host = record;
        self.stats.replacements += 1;
        self.tell(format!("the pool is on another SSD; dirty blocks given up: {dirty:?}"));
        for (volume, blocks) in dirty {
            self.doubt_blocks(volume, blocks);
        }
        self.ssd_is_new();
        if dies {
            self.died_exchanging();
        }
        self.check_settled_images()?;
        self.start()
    }

    fn died_exchanging(&mut self) {
        self.ends.crashes_left = self.ends.crashes_left.saturating_sub(1);
        self.died_in(Phase::Format);
    }

    /// Formats another SSD, empty or with what another pool left on it. `None`: that failed, or the process died in it.
    fn make_another_ssd(&mut self) -> Option<(Disk, HostRecord)> {
        let mut media = Media::new(self.plan.ssd_bytes, self.plan.ssd_volatile);
        if self.prng.percent(50) {
            let used = self.devices[0].media.snapshot();
            media.lay_out().copy_from_slice(&used);
        }
        let mut disk = Disk::new(media, self.plan.ssd_faults.clone(), self.plan.ssd_pace.clone(), true);
        disk.faults.on = self.safety;
        let mut pool_uuid = [0; 16];
        pool_uuid.fill_with(|| self.prng.bits() as u8);
        let record = HostRecord::of_new_pool(pool_uuid);
        let dies_after = self.death();
        let blocking = self.course.next(Kind::BlockingStrike);
        disk.faults.veto = !self.course.may_strike(blocking);
        let mut ssd = Blocking::new(&mut disk, &mut self.disk_prng, dies_after);
        let result = self.builder.format(self.plan, &record, &[], &mut ssd);
        let dead = ssd.dead;
        disk.faults.veto = false;
        let struck = std::mem::take(&mut disk.faults.struck);
        if !struck.is_empty() {
            self.course.note(blocking, || format!("the other SSD: errors while it is formatted: {struck:?}"));
        }
        for class in struck {
            self.stats.coverage.hit(fault_of(class, true), Phase::Format);
        }
        if dead {
            self.died_exchanging();
        } else if result.is_err() {
            // The old pool comes up again, and did not stop cleanly.
            self.devices_crash(false);
        }
        if dead || result.is_err() {
            self.tell(format!("the new SSD is not made: {result:?}, died in it: {dead}"));
            return None;
        }
        Some((disk, record))
    }

    /// Nothing of the old SSD concerns anybody any more.
    pub fn ssd_is_new(&mut self) {
        for volume in &mut self.volumes {
            volume.settled = volume.options.mode != Mode::WriteBack;
        }
        self.blame.new_pool();
        self.wounds.open.clear();
        self.wounds.healed.clear();
        (self.ssd_failed, self.ssd_lied, self.other_ssds.older) = (false, false, None);
        self.log_writes = LogWrites::default();
    }
}
