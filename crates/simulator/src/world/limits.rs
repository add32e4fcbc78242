//! Promises that can be looked at from outside at any moment.

use super::{Step, World, failed};

impl World<'_> {
    /// C8: dirty data stays below its limit. A limit smaller than one request lets one through at a time, in each shard; and a limit
    /// made smaller takes effect as dirty blocks go home.
    pub fn check_dirty_limits(&mut self) -> Step {
        let shards = u64::from(self.plan.shards);
        for volume in 0..self.volumes.len() {
            // What cannot be read never goes home and is not held against those who write.
            let unreadable = self.wounded.keys().filter(|(of, _)| usize::from(*of) == volume).count() as u64;
            let dirty = self.system_mut().dirty_blocks(volume as u16);
            let state = &mut self.volumes[volume];
            // Every shard has an equal part of the limit; one that is above it, since the limit was made smaller, does not hold up the others.
            let most = (state.options.dirty_limit_bytes / 4096 / shards).max(state.longest_blocks);
            let before = std::mem::replace(&mut state.dirty_blocks, dirty.clone());
            let shard =
                (0..before.len().min(dirty.len())).find(|at| dirty[*at].saturating_sub(unreadable) > most && dirty[*at] > before[*at]);
            if let Some(shard) = shard {
                let have = dirty[shard];
                return Err(failed(format!("volume {volume} has {have} dirty blocks in shard {shard}, the limit there is {most}")));
            }
        }
        Ok(())
    }
}
