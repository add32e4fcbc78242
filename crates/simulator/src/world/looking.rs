//! People look, at random moments: what they are shown must be true.

use engine::key::mix;

use super::World;

/// A look at one step of so many.
const LOOK_ONE_IN: u64 = 200;

impl World<'_> {
    /// Somebody may look now. Not drawn from the run's own numbers: who looks changes nothing.
    pub fn look(&mut self) {
        let random = mix(self.progress.steps ^ mix(self.plan.seed));
        if !random.is_multiple_of(LOOK_ONE_IN) {
            return;
        }
        let random = mix(random);
        let volume = random % self.plan.volumes.len() as u64;
        let size_blocks = self.volumes[volume as usize].sectors.div_ceil(8);
        let first_block = (random >> 8) % size_blocks;
        let steps = [1, 7, 300, 1 << 20][(random >> 40) as usize % 4];
        let now_ns = self.queue.now_ns();
        self.system_mut().check_looking(now_ns, volume as u16, first_block, 1 + (random >> 44) % 1024, steps);
    }
}
