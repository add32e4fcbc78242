//! What management hears of what the shards of a pool report.

use datapath::{Life, Notice};
use engine::api::Event;
use engine::unanimous::Unanimous;
use std::sync::Mutex;
use types::{ShardIndex, VolumeIndex};

/// One life of a pool.
pub struct PoolNotices {
    pool: String,
    life: Life,
    /// Volumes of which nothing is dirty after a loss of the SSD.
    clean: Mutex<Unanimous>,
}

impl PoolNotices {
    /// None yet, of a pool with that many shards.
    pub fn new(pool: &str, life: Life, shards: usize) -> PoolNotices {
        PoolNotices { pool: pool.into(), life, clean: Mutex::new(Unanimous::of(shards)) }
    }

    /// What is to be heard of an event, if anything. `name_of`: volumes by their place.
    pub fn of(&self, shard: ShardIndex, event: Event, name_of: impl Fn(VolumeIndex) -> String) -> Option<Notice> {
        let (pool, life) = (self.pool.clone(), self.life);
        Some(match event {
            Event::SsdFailed { ssd, no_space } => Notice::SsdFailed { pool, life, ssd, no_space },
            Event::NothingDirty(place) if !super::locked(&self.clean).said_by(shard, place) => return None,
            Event::NothingDirty(place) => Notice::NothingDirty { pool, life, volume: name_of(place) },
            Event::GoingHome => Notice::GoingHome { pool, life },
            Event::PastSsd { token, volume, blocks } => Notice::PastSsd { pool, life, volume: name_of(volume), blocks, token },
            Event::BackingFailed(place) => Notice::BackingFailed { volume: name_of(place) },
            Event::DirtyBlockUnreadable(place, block) => Notice::DirtyBlockUnreadable { volume: name_of(place), block },
            Event::ChecksumMismatch(place, block) => Notice::ChecksumMismatch { volume: name_of(place), block },
            Event::DestageFailed(place, block) => Notice::DestageFailed { volume: name_of(place), block },
            // Whoever gave the command has its answer.
            Event::CommandDone(..) => return None,
        })
    }
}
