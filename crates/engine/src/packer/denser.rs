//! Whether blocks that are moved are to become denser.

use super::{Packer, Step, steps_of};
use types::{Content, VolumeIndex};

impl Packer {
    /// Whether blocks of the volume are to become denser when they are moved.
    pub fn wants_denser(&self, volume: VolumeIndex) -> bool {
        match self.options.level {
            Content::Auto => self.volumes.get(&volume.0).is_some_and(|volume| volume.states()[Step::Zstd as usize].is_open),
            level => steps_of(level).zstd,
        }
    }
}
