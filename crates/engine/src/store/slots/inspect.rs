//! A look at the slots of one shard that changes nothing: for `hearth pool check`.

use super::found::is_whole;
use super::recovery::{SlotFound, is_base, survey};
use crate::inspect::{Inspection, ShardInspection};
use crate::medium::Medium;
use alloc::format;
use alloc::vec::Vec;
use format::Superblock;
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
        let (end, report) = match survey(medium, superblock, shard, &mut |set: &SlotFound| live.push(*set)) {
            Ok(surveyed) => surveyed,
            Err(error) => return self.problem(|| format!("shard {}: {error}", shard.0)),
        };
        self.tell_damage(shard, &report);
        let headers = report.groups;
        let mut inspection = ShardInspection { headers, ..ShardInspection::new(shard, end, report) };
        let pages_of_segment = superblock.layout.pages_per_segment();
        for set in &live {
            let is_base = is_base(set);
            if !is_base {
                self.count_block(set.volume, set.dirty);
            }
            inspection.payloads += 1;
            let found = is_whole(medium, superblock, shard, set);
            // What is known to be lost is told as that.
            if !matches!(found, Ok(true)) || set.lost {
                *if set.dirty { &mut inspection.dirty_mismatches } else { &mut inspection.clean_mismatches } += 1;
                let (kind, volume) = (if set.dirty { "dirty" } else { "clean" }, set.volume.0);
                let why = if found.is_err() { "cannot be read" } else { "does not match its checksum" };
                let what =
                    if is_base { "an object that blocks rest on".into() } else { format!("{kind} block {} of volume {volume}", set.block) };
                self.problem(|| format!("shard {}, slot {}: {what} {why}", shard.0, set.slot));
            }
            progress(u64::from(set.slot / pages_of_segment));
        }
        self.shards.push(inspection);
    }
}
