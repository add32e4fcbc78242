//! What scans have read is not needed again soon.

use super::Manager;
use std::ops::Range;
use types::OnScan;

/// Ranges that are cooled at a time.
const COOLED_MAX: usize = 512;

impl Manager {
    /// What scans read need not stay in RAM, nor be known when it comes again.
    pub(in crate::manager) fn forget_scans(&self) {
        let scanned = self.insight().take_scanned();
        for (name, ranges) in scanned {
            let Ok(record) = self.volume_record(&name) else { continue };
            // Without a cutoff for streams their owner wants them cached.
            if record.options.sequential_cutoff_bytes.is_none() {
                continue;
            }
            let ranges: Vec<Range<u64>> = {
                let insight = self.insight();
                let objects = insight.objects_of(&name);
                let may_stay = |bytes: &Range<u64>| {
                    let object = objects.and_then(|objects| objects.at(bytes.start).map(|object| (objects, object)));
                    object.is_some_and(|(objects, object)| objects.treatment_of(object, &record.rules).0.on_scan() == OnScan::Normal)
                };
                let mut ranges: Vec<Range<u64>> = ranges.into_iter().filter(|bytes| !may_stay(bytes)).collect();
                // Leaves in the order of their keys lie side by side for the most part.
                ranges.sort_unstable_by_key(|bytes| bytes.start);
                ranges.dedup_by(|next, before| {
                    let goes_on = next.start <= before.end;
                    before.end = if goes_on { before.end.max(next.end) } else { before.end };
                    goes_on
                });
                // What is left out stays in RAM until others need the room.
                ranges.truncate(COOLED_MAX);
                ranges
            };
            self.data().cool(&name, &ranges);
        }
    }
}
