//! A look at the slots of one shard that changes nothing: for `hearth pool check`.

use super::recovery::{SlotFound, offset_of, survey};
use crate::inspect::{Inspection, ShardInspection};
use crate::medium::Medium;
use alloc::format;
use alloc::vec::Vec;
use format::{PAGE_BYTES, Superblock, payload_checksum};
use types::ShardIndex;

impl Inspection {
    /// What the ring says, and whether each slot holds what it says.
    pub(crate) fn look_at_slots(
        &mut self,
        medium: &mut dyn Medium,
        superblock: &Superblock,
        shard: ShardIndex,
        progress: &mut dyn FnMut(u64),
    ) {
        let mut live: Vec<SlotFound> = Vec::new();
        let (end, report) = match survey(medium, superblock, shard, &mut |set| live.push(*set)) {
            Ok(surveyed) => surveyed,
            Err(error) => return self.problem(|| format!("shard {}: {error}", shard.0)),
        };
        self.tell_damage(shard, &report);
        let headers = report.groups;
        let mut inspection = ShardInspection { headers, ..ShardInspection::new(shard, end, report) };
        let pages_of_segment = superblock.layout.pages_per_segment();
        let mut page = [0; PAGE_BYTES];
        for set in &live {
            self.count_block(set.volume, set.dirty);
            inspection.payloads += 1;
            let read = medium.read(offset_of(superblock, shard, set.slot), &mut page);
            if read.is_err() || payload_checksum(set.volume, set.block, &page) != set.checksum {
                *if set.dirty { &mut inspection.dirty_mismatches } else { &mut inspection.clean_mismatches } += 1;
                let (kind, volume) = (if set.dirty { "dirty" } else { "clean" }, set.volume.0);
                let why = if read.is_err() { "cannot be read" } else { "does not match its checksum" };
                self.problem(|| format!("shard {}, slot {}: {kind} block {} of volume {volume} {why}", shard.0, set.slot, set.block));
            }
            progress(u64::from(set.slot / pages_of_segment));
        }
        self.shards.push(inspection);
    }
}
