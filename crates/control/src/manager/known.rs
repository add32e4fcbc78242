//! What is known of objects that do not run, and what is wrong with those that do: shown as it is known, or as unknown.

use super::{LiveVolume, Memory, Trouble};
use api::Health;
use datapath::figures::Refused;
use records::state::{PoolRecord, VolumeRecord};

/// Bytes that the backing device of a volume lacks, where the shards do not tell because it is not attached; `None`: not known.
pub(super) fn dirty_of_volume(memory: &Memory, record: &VolumeRecord) -> Option<u64> {
    // Nothing is known of an SSD that was used with a newer state.
    if memory.pools.get(&record.pool).is_some_and(|pool| pool.state_is_older) {
        return None;
    }
    if !record.may_have_dirty {
        return Some(0);
    }
    let pool = memory.pools.get(&record.pool)?;
    let attached = memory.volumes.get(&record.name).is_some_and(|live| live.attached);
    // Of a pool that runs its start, or the volume's end, has told. A log that was damaged tells less than was there.
    if attached || pool.health != Health::Running || pool.damaged.contains(&record.id) {
        return None;
    }
    let bytes = pool.dirty_bytes.get(&record.id).copied().unwrap_or(0);
    (bytes != u64::MAX).then_some(bytes)
}

/// Bytes that the backing devices of a pool lack that does not run; `None`: not known.
pub(super) fn dirty_of_pool(memory: &Memory, record: &PoolRecord) -> Option<u64> {
    if memory.pools.get(&record.name).is_some_and(|pool| pool.state_is_older) {
        return None;
    }
    let none = memory.state.volumes_of(&record.name).all(|volume| !volume.may_have_dirty);
    none.then_some(0)
}

/// What a device refuses, as a trouble of its volume.
pub(super) fn refusal(refused: &Refused) -> Trouble {
    let what = match refused.asked {
        "read" => "reads of its backing device fail",
        "flush" => "its backing device fails to flush",
        "dirty_read" => {
            let problem = format!("dirty data on the SSD cannot go home: {}", refused.reason);
            let remedy = "see the log for the blocks: clients get an error for them until they write them again".into();
            return Trouble { problem, remedy };
        }
        _ => "writes to its backing device fail",
    };
    let remedy =
        "check the device and what is below it (space, cables, the kernel's log); what is dirty stays on the SSD and is tried again".into();
    Trouble { problem: format!("{what}: {}", refused.reason), remedy }
}

/// The same of a disk, whose only device is the SSD.
pub(super) fn disk_refusal(refused: &Refused) -> Trouble {
    let what = match refused.asked {
        "read" => "reads of the SSD fail",
        "flush" => "the SSD fails to flush",
        _ => "writes to the SSD fail",
    };
    let remedy = "check the SSD and what is below it (space, cables, the kernel's log); users of the disk get errors until it works".into();
    Trouble { problem: format!("{what}: {}", refused.reason), remedy }
}

impl LiveVolume {
    /// Its health as it is shown.
    pub(super) fn shown_health(&self) -> Health {
        match self.health {
            Health::Running | Health::Degraded if self.refused.is_some() => Health::Failing,
            health => health,
        }
    }

    /// What is wrong with it, as it is shown.
    pub(super) fn shown_trouble(&self) -> Option<Trouble> {
        let refused = self.refused.as_ref().filter(|_| self.shown_health() == Health::Failing).map(refusal);
        let trouble = self.trouble.as_ref().or(self.lacking.values().next());
        match (trouble, refused) {
            (Some(trouble), Some(refused)) => Some(Trouble {
                problem: format!("{}; {}", refused.problem, trouble.problem),
                remedy: format!("{}; {}", refused.remedy, trouble.remedy),
            }),
            (trouble, refused) => refused.or_else(|| trouble.cloned()),
        }
    }
}
