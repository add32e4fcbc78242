//! The SSD is lost while the pool runs (F7), what the host records of that, and how the next life finds the SSD: it is back as it was, without
//! what it had only in its volatile cache, or it is gone for good.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::api::Command;
use engine::shard::LOSS_PATIENCE_NS;
use engine::unanimous::Unanimous;
use types::{ShardIndex, SsdIndex, VolumeIndex};

use super::operator::Purpose;
use super::{Happening, Step, World};
use crate::coverage::{Fault, Phase};

/// What is so while an SSD is lost.
pub struct Loss {
    /// Volumes of which shards have said that nothing is dirty in them.
    pub clean: Unanimous,
    /// Blocks that could not be read because the SSD was away.
    absent: BTreeSet<(u16, u64)>,
    /// When a dirty block could not be read for the last time: a request may fail for it although
    /// another one has written over it since.
    unreadable_ns: BTreeMap<(u16, u64), u64>,
    /// When it was lost, or all shards were last told that dirty blocks go home.
    progress_ns: u64,
    /// How often they are to be told it.
    to_tell: u32,
    /// When waiting was in vain for the last time.
    in_vain_until_ns: u64,
}

impl Loss {
    /// None so far, of a pool with that many shards.
    pub fn none(shards: u16) -> Loss {
        Loss {
            clean: Unanimous::of(usize::from(shards)),
            absent: BTreeSet::new(),
            unreadable_ns: BTreeMap::new(),
            progress_ns: 0,
            to_tell: 0,
            in_vain_until_ns: 0,
        }
    }

    /// Whether a request that came at that time may have met shards for which it was in vain to
    /// wait.
    pub fn is_in_vain(&self, since_ns: u64, now_ns: u64) -> bool {
        since_ns <= self.in_vain_until_ns || now_ns >= self.progress_ns + LOSS_PATIENCE_NS
    }

    /// Whether a request that came at that time may have met shards that do not know yet what others do.
    pub fn is_just_told(&self, since_ns: u64) -> bool {
        since_ns <= self.in_vain_until_ns || self.to_tell > 0
    }

    /// Whether one of the blocks was found unreadable since.
    pub fn was_unreadable(&self, volume: u16, blocks: Range<u64>, since_ns: u64) -> bool {
        let mut found = self.unreadable_ns.range((volume, blocks.start)..(volume, blocks.end));
        found.any(|(_, time_ns)| *time_ns >= since_ns)
    }
}

impl World<'_> {
    /// A life begins: does it lose its SSD too?
    pub fn ssd_may_leave_again(&mut self) {
        if self.plan.ssd_leaves_again && self.oracle.life() > 0 {
            let at_ns = self.prng.below(u64::from(self.clients.requests_left + 1) * self.plan.think_ns.max(20_000));
            self.queue.after(at_ns, Happening::SsdLeaves);
        }
    }

    /// A shard cannot write its log any more: the host tells the others, and records it.
    pub fn ssd_fails(&mut self, ssd: SsdIndex) {
        self.ssd_failed = true;
        self.loss.progress_ns = self.queue.now_ns();
        self.operator.ssd_failed = self.plan.operator[6] > 0 && self.prng.percent(60);
        let told_ns = self.prng.pick(&[1_000, 1_000_000]);
        self.queue.after(told_ns, Happening::SsdFailureTold(ssd));
        let typical = self.prng.pick(&[1_000_000, 100_000_000]);
        let delay = self.prng.spread(typical);
        self.queue.after(delay, Happening::DegradedRecorded);
        if self.ends.crashes_left > 0 && self.safety && self.prng.percent(50) {
            // What was not recorded is not known to the next life: a moment to look at.
            self.ends.crash_at = Some(self.progress.steps + self.prng.below(100));
        }
    }

    /// The host records that clean blocks on the SSD are void.
    pub fn record_loss(&mut self) {
        self.host.stale = (0..self.volumes.len() as u16).collect();
        self.tell("host: recorded that clean blocks on the SSD are void".to_string());
        let now = self.queue.now_ns();
        self.system_mut().command(now, Command::DegradedRecorded);
    }

    /// A shard says that nothing of the volume is dirty in it.
    pub fn nothing_dirty(&mut self, lane: u16, volume: VolumeIndex) {
        if self.loss.clean.said_by(ShardIndex(lane), volume) {
            let typical = self.prng.pick(&[1_000_000, 100_000_000]);
            let delay = self.prng.spread(typical);
            self.queue.after(delay, Happening::SsdForgotten(volume));
        }
    }

    /// Dirty blocks of a shard go home: the host tells all.
    pub fn goes_home(&mut self) {
        let typical = self.prng.pick(&[1_000_000, 100_000_000]);
        let delay = self.prng.spread(typical);
        self.queue.after(delay, Happening::GoingHomeTold);
        self.loss.to_tell += 1;
    }

    /// The shards hear it.
    pub fn goes_home_told(&mut self) {
        let now = self.queue.now_ns();
        if now >= self.loss.progress_ns + LOSS_PATIENCE_NS {
            self.loss.in_vain_until_ns = now;
        }
        self.loss.progress_ns = now;
        self.loss.to_tell -= 1;
        self.system_mut().command(now, Command::GoingHome);
    }

    /// The host records that the SSD holds nothing of the volume.
    pub fn record_forgotten(&mut self, volume: VolumeIndex) {
        let number = self.host.retire(self.volumes.len());
        self.host.renumbered.insert(volume.0, number);
        self.host.forgotten.insert(volume.0);
        self.tell(format!("host: recorded that the SSD holds nothing of volume {}", volume.0));
        let now = self.queue.now_ns();
        self.system_mut().command(now, Command::SsdForgotten { volume });
    }

    /// Whether the SSD that is away loses what it had in its volatile cache when the process dies.
    pub fn ssd_loses_power(&mut self, power: bool) -> bool {
        !power && self.devices[0].faults.gone && self.builder.uses_ssd() && self.disk_prng.percent(50)
    }

    /// A block is dirty and cannot be read.
    pub fn wound(&mut self, block: (u16, u64)) {
        let now = self.queue.now_ns();
        self.loss.unreadable_ns.insert(block, now);
        if self.wounds.open.insert(block, now).is_none() && self.devices[0].faults.gone {
            self.loss.absent.insert(block);
        }
    }

    /// A life is to begin, perhaps after one that had lost its SSD: either the SSD is back, or it is given up.
    pub fn find_ssd(&mut self) -> Step {
        self.loss.to_tell = 0;
        if self.ssd_failed && self.prng.percent(30) {
            self.loss.absent.clear();
            return self.replace_ssd();
        }
        if self.ssd_failed || self.devices[0].faults.gone {
            self.tell("the SSD is back".to_string());
            self.stats.returns += u64::from(self.ssd_failed);
            self.stats.coverage.hit(Fault::Returned, Phase::Recovery);
            self.devices[0].faults.gone = false;
            for block in std::mem::take(&mut self.loss.absent) {
                self.wounds.open.remove(&block);
            }
        }
        Ok(())
    }

    /// Blocks were written past the SSD: the host records it, and says so.
    pub fn written_past(&mut self, volume: VolumeIndex, blocks: Range<u64>, token: u64) {
        let typical = self.prng.pick(&[100_000, 10_000_000]);
        let delay = self.prng.spread(typical);
        self.queue.after(delay, Happening::PastRecorded { volume, blocks, token });
        if self.ends.crashes_left > 0 && self.safety && self.prng.percent(10) {
            self.ends.crash_at = Some(self.progress.steps + self.prng.below(30));
        }
    }

    /// It has.
    pub fn record_past(&mut self, volume: VolumeIndex, blocks: Range<u64>, token: u64) {
        self.tell(format!("host: recorded that blocks {blocks:?} of volume {} were written past the SSD", volume.0));
        self.host.past.entry(volume.0).or_default().push(blocks);
        let now = self.queue.now_ns();
        self.system_mut().command(now, Command::PastRecorded { token });
    }

    /// Volumes of which all is void have other numbers now.
    pub fn forget_what_is_void(&mut self) {
        for volume in std::mem::take(&mut self.host.forgotten) {
            self.host.stale.remove(&volume);
            self.host.past.remove(&volume);
        }
    }

    /// What was written past the SSD becomes void on it, before the volume is attached.
    pub fn void_past(&mut self, volume: u16) {
        self.volumes[usize::from(volume)].voiding = true;
        let id = self.system.as_ref().expect("a life is running").volume_id(volume);
        self.blame.know_volume(id, volume);
        let (now, size_bytes) = (self.queue.now_ns(), self.volumes[usize::from(volume)].sectors * 512);
        self.system_mut().command(now, Command::Hold { volume: VolumeIndex(volume), id, size_bytes });
        let past = self.host.past[&volume].clone();
        self.command(Purpose::VoidPast, volume, |token| Command::VoidPast { token, volume: VolumeIndex(volume), past });
    }

    /// It is, or the SSD is lost again.
    pub fn past_is_void(&mut self, volume: u16, is_void: bool) {
        if is_void {
            self.host.past.remove(&volume);
            self.attach_at_start(volume);
            self.volumes[usize::from(volume)].voiding = self.host.stale.contains(&volume);
            self.wake_clients();
        } else {
            self.ends.restart_wanted = true;
        }
    }

    /// What the SSD holds of a volume that went on without it, and is clean, becomes void before clients come.
    pub fn void_stale(&mut self, volume: u16) {
        if self.host.stale.contains(&volume) {
            self.volumes[usize::from(volume)].voiding = true;
            self.command(Purpose::DropStale, volume, |token| Command::DropClean { token, volume: VolumeIndex(volume) });
        }
    }

    /// It is, or the SSD is lost again.
    pub fn stale_is_void(&mut self, volume: u16, is_void: bool) {
        if is_void {
            self.host.stale.remove(&volume);
        }
        self.volumes[usize::from(volume)].voiding = false;
        self.wake_clients();
    }
}
