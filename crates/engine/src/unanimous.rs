//! What all shards of a pool must have said of a volume before the host acts on it ([`crate::api::Event::NothingDirty`]). For every host of
//! the engine.

use alloc::collections::{BTreeMap, BTreeSet};
use types::{ShardIndex, VolumeIndex};

/// See the module.
#[derive(Debug)]
pub struct Unanimous {
    shards: usize,
    said: BTreeMap<VolumeIndex, BTreeSet<ShardIndex>>,
}

impl Unanimous {
    /// For a pool of that many shards.
    pub fn of(shards: usize) -> Unanimous {
        Unanimous { shards, said: BTreeMap::new() }
    }

    /// A shard says it. True if it is the last one; then all is forgotten, and may be said again.
    pub fn said_by(&mut self, shard: ShardIndex, volume: VolumeIndex) -> bool {
        let said = self.said.entry(volume).or_default();
        said.insert(shard);
        let all = said.len() == self.shards;
        if all {
            self.said.remove(&volume);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_all_shards_and_each_counts_once() {
        let mut said = Unanimous::of(2);
        let mut say = |shard, volume| said.said_by(ShardIndex(shard), VolumeIndex(volume));
        assert!(!say(0, 7) && !say(0, 7) && !say(1, 8));
        assert!(say(1, 7), "the last one");
        assert!(!say(1, 7) && say(0, 7), "once more");
    }
}
