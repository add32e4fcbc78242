//! How far a pool has come: what a start has to finish.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How far a pool has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolPhase {
    /// Written before the SSD is formatted. A start finds the SSD formatted with this UUID and finishes, or forgets the pool.
    Creating,
    /// In use.
    Ready,
    /// Written, with the UUID and the room for disks that it gets, before its cache is made anew in another part of the same SSD. Nothing that matters
    /// is cached. A start makes it.
    Reformatting {
        /// The UUID that the SSD has carried until then: nothing else is formatted by a start.
        former: Uuid,
    },
    /// Written, with the room for disks that it gets, before its cache is cut or lengthened where it is. A start does so. Nothing dirty is where it
    /// is cut.
    Resizing,
    /// Written before the SSD's superblock is wiped. A start finishes the destruction.
    Destroying,
}

impl PoolPhase {
    /// Whether it is there for good: a start brings it up, whatever was being done to it.
    pub const fn is_kept(self) -> bool {
        matches!(self, PoolPhase::Ready | PoolPhase::Reformatting { .. } | PoolPhase::Resizing)
    }
}
