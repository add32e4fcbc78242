//! Whether and when blocks that are moved are to become denser.

use super::{Packer, Step, steps_of};
use content::encode::Steps;
use types::{Content, VolumeIndex};

impl Packer {
    /// Whether the level lets any block become denser when it is moved.
    pub fn may_be_denser(&self) -> bool {
        self.is_on() && steps_of(self.options.level).zstd
    }

    /// Whether blocks of the volume are to become denser when they are moved.
    pub fn wants_denser(&self, volume: VolumeIndex) -> bool {
        match self.options.level {
            Content::Auto => self.volumes.get(&volume.0).is_some_and(|volume| volume.states()[Step::Zstd as usize].is_open),
            level => steps_of(level).zstd,
        }
    }

    /// Whether there is CPU time left for some hundred blocks: the step that is left out before zstd may be taken.
    pub fn has_time_for_denser(&mut self, now_ns: u64) -> bool {
        self.budget.steps(now_ns, Steps { similar: true, ..Steps::NONE }).similar
    }
}
