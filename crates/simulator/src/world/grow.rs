//! Backing devices grow, while their volumes are served and while they are not. What they have behind the old end was there before: a device that grew need
//! not be empty there.

use engine::api::Command;
use types::{BLOCK_SECTORS, EXTENT_SECTORS, VolumeIndex};

use super::{Happening, Step, World};
use crate::system::Change;

impl World<'_> {
    /// One of the volumes may grow by a bit.
    pub fn grow_turn(&mut self) -> Step {
        if !self.safety {
            return Ok(());
        }
        let delay = self.prng.spread(self.plan.grow_ns);
        self.queue.after(delay, Happening::Grow);
        let volume = self.prng.below(self.volumes.len() as u64) as u16;
        let Some(sectors) = self.grown(volume) else { return Ok(()) };
        // The superblock comes first; a host refuses to let a volume grow whose SSD takes no such record.
        if self.ssd_failed || self.devices[0].faults.gone {
            return Ok(());
        }
        if !self.record(Change::Size(volume, sectors))? {
            // Whoever starts next finds the device as large as it is.
            self.volumes[usize::from(volume)].sectors = sectors;
            return self.start();
        }
        self.tell(format!("volume {volume} grows to {sectors} sectors"));
        self.note(91, sectors);
        self.stats.growths += 1;
        let now = self.queue.now_ns();
        self.system_mut().command(now, Command::Grow { volume: VolumeIndex(volume), size_bytes: sectors * 512 });
        self.volumes[usize::from(volume)].sectors = sectors;
        Ok(())
    }

    /// Between two lives a device may grow too: the next one finds it so.
    pub fn grow_while_away(&mut self) {
        for volume in 0..self.volumes.len() as u16 {
            if self.plan.grow_ns > 0
                && self.oracle.life() > 0
                && self.prng.percent(20)
                && let Some(sectors) = self.grown(volume)
            {
                self.tell(format!("volume {volume} is found with {sectors} sectors"));
                self.volumes[usize::from(volume)].sectors = sectors;
            }
        }
    }

    /// How many sectors the volume will have; `None` if it grows no more.
    fn grown(&mut self, volume: u16) -> Option<u64> {
        let now = self.volumes[usize::from(volume)].sectors;
        let most = self.plan.volumes[usize::from(volume)].sectors - now;
        let few = 1 + self.prng.below(BLOCK_SECTORS);
        let more = self.prng.pick(&[few, few, BLOCK_SECTORS, 5 * BLOCK_SECTORS + few, EXTENT_SECTORS]);
        (most > 0).then_some(now + more.min(most))
    }
}
