//! The check of a pool: a segment of each shard at a time while it runs, or all of it at rest.

use super::{Machine, SsdMedium, devices, failed, locked};
use api::error::ControlError;
use datapath::{CheckedPart, Checks, Inspected};
use device::Access;
use engine::api::Command;
use engine::inspect::inspect;
use engine::medium::{Medium, MediumError};
use engine::shard::Scrubbed;
use records::state::PoolRecord;
use runtime::RuntimeError;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::BLOCK_BYTES;

/// How long a segment may take: 8 MiB in small reads of a slow device, with the rests between them.
const PATIENCE: Duration = Duration::from_secs(600);

/// Everything on the SSD of a pool that does not run.
pub(super) fn at_rest(record: &PoolRecord, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError> {
    let device = devices::open(&record.ssd, Access::ReadOnly)?;
    let size_bytes = device.geometry().size_bytes;
    let blocking = device.blocking().map_err(|e| failed(e, "raise the limit on open files"))?;
    let stopped = std::cell::Cell::new(false);
    let mut medium = Stoppable { medium: SsdMedium(blocking), stopped: &stopped };
    let inspection = inspect(&mut medium, &mut |done, total| {
        // In bytes: segments are of one size.
        let done_bytes = (u128::from(size_bytes) * u128::from(done)).checked_div(u128::from(total)).unwrap_or(0) as u64;
        if !progress(done_bytes, size_bytes) {
            stopped.set(true);
        }
    });
    Ok(Inspected { problems: inspection.problems, problems_count: inspection.problems_count })
}

/// An SSD that cannot be read any more once somebody has asked for the end: an inspection copes with that, and ends soon.
struct Stoppable<'a, M> {
    medium: M,
    stopped: &'a std::cell::Cell<bool>,
}

impl<M: Medium> Medium for Stoppable<'_, M> {
    fn size_bytes(&self) -> u64 {
        self.medium.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        if self.stopped.get() {
            return Err(MediumError { operation: "read", offset_bytes, errno: 0 });
        }
        self.medium.read(offset_bytes, into)
    }

    fn write(&mut self, offset_bytes: u64, _from: &[u8]) -> Result<(), MediumError> {
        Err(MediumError { operation: "write", offset_bytes, errno: 0 })
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        Err(MediumError { operation: "flush", offset_bytes: 0, errno: 0 })
    }

    fn discard(&mut self, offset_bytes: u64, _length_bytes: u64) -> Result<(), MediumError> {
        Err(MediumError { operation: "discard", offset_bytes, errno: 0 })
    }
}

impl Checks for Machine {
    /// What the shards' segments of that number hold, compared with its checksums.
    fn check_part(&self, record: &PoolRecord, part: u32, stop: &AtomicBool) -> Result<CheckedPart, ControlError> {
        let pool = self.pool(&record.name)?;
        let command = Command::Check { token: 0, segment: part };
        self.runtime.run_command(&pool.handle, "check", command, PATIENCE, stop).map_err(|error| match error {
            RuntimeError::Cancelled { .. } => ControlError::Stopped,
            other => failed(other, "see the events and the log, then resume the check"),
        })?;
        let gathered: Arc<Mutex<(u32, Scrubbed)>> = Arc::default();
        let adding = gathered.clone();
        let looked = self.runtime.inspect_shards(&pool.handle, move |_, shard| {
            let (found, mut all) = (shard.scrubbed(), locked(&adding));
            all.0 = shard.config().place.layout.segments_per_shard;
            all.1.blocks += found.blocks;
            all.1.clean_bad += found.clean_bad;
            all.1.dirty_bad += found.dirty_bad;
            all.1.dirty_bad_at.extend(&found.dirty_bad_at);
        });
        looked.map_err(|e| failed(e, "see the log, then resume the check"))?;
        let (parts, found) = std::mem::take(&mut *locked(&gathered));
        let names: BTreeMap<_, _> = locked(&self.names_by_place).clone();
        let name = |place: u16| names.get(&(record.name.clone(), place)).cloned().unwrap_or_else(|| "a volume that is not served".into());
        let dirty_bad_at = found.dirty_bad_at.iter().map(|(volume, block)| (name(volume.0), block * BLOCK_BYTES)).collect();
        let Scrubbed { blocks, clean_bad, dirty_bad, .. } = found;
        Ok(CheckedPart { parts, blocks, clean_bad, dirty_bad, dirty_bad_at })
    }

    fn check_at_rest(&self, pool: &PoolRecord, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError> {
        at_rest(pool, progress)
    }
}
