//! What the SSD of a pool is estimated to write to its flash. Pure.

use api::stats::SlotStats;
use api::{FlashEstimate, FlashView};
use device::Drive;
use format::layout::CHECKPOINT_AT_BYTES;
use records::state::PoolRecord;
use slots::flash::{FlashWrites, OWN_SPARE_PERCENT, flash_writes};

/// Of a running pool that has so much room on its SSD, disks not counted. `None` while a look at its slots is missing.
pub(super) fn estimate(pool: &PoolRecord, size_bytes: u64, slots: Option<&SlotStats>) -> Option<FlashView> {
    let estimates = |writes: [FlashWrites; 2]| {
        let of = |(own, writes): (u8, FlashWrites)| FlashEstimate { own_spare_percent: own, even: writes.even, skewed: writes.skewed };
        OWN_SPARE_PERCENT.into_iter().zip(writes).map(of).collect()
    };
    let slots = slots?;
    let disks_bytes = pool.disk_room.map_or(0, |room| room.bytes());
    let (written_bytes, drive_bytes) = (CHECKPOINT_AT_BYTES + slots.ring_bytes + slots.size_bytes + disks_bytes, size_bytes + disks_bytes);
    let drive = pool.spare.as_ref().map_or(Drive::Part, |spare| spare.drive);
    let is_kept = pool.spare.as_ref().is_some_and(|spare| spare.not_discarded.is_some());
    let (kept_part, note) = match drive {
        Drive::Part | Drive::File => {
            let rest = if drive == Drive::File { "the SSD is a file" } else { "the SSD is not known to be a whole drive" };
            (
                1.0,
                Some(format!(
                    "{rest}: the estimate is for a drive that is in use as a whole, and less is written where a part of it is unused"
                )),
            )
        }
        Drive::Volatile | Drive::Protected if is_kept => (1.0, Some("the unused part was not discarded, and counts as in use".to_string())),
        Drive::Volatile | Drive::Protected => ((written_bytes as f64 / drive_bytes.max(1) as f64).min(1.0), None),
    };
    Some(FlashView { kept_part, estimates: estimates(flash_writes(kept_part)), note })
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::state::{Span, Spare, samples};

    fn slots_pool(drive: Drive, percent: u8) -> PoolRecord {
        PoolRecord { spare: Some(Spare::chosen(Some(percent), drive)), ..samples::pool("p") }
    }

    #[test]
    fn the_part_in_use_decides_on_a_whole_drive_and_all_of_it_elsewhere() {
        let gib = 1_u64 << 30;
        let stats = SlotStats { size_bytes: 80 * gib - CHECKPOINT_AT_BYTES - gib, ring_bytes: gib, ..SlotStats::default() };
        let of = |pool: &PoolRecord| estimate(pool, 100 * gib, Some(&stats)).expect("it runs");
        let whole = of(&slots_pool(Drive::Volatile, 20));
        assert_eq!((whole.kept_part, whole.note.clone()), (0.8, None));
        let figures: Vec<_> = whole.estimates.iter().map(|e| (e.own_spare_percent, e.even, e.skewed)).collect();
        assert_eq!(figures, [(28, 1.53, 1.77), (7, 2.15, 2.48)]);
        for pool in [slots_pool(Drive::File, 20), slots_pool(Drive::Part, 20), PoolRecord { spare: None, ..slots_pool(Drive::Part, 0) }] {
            let elsewhere = of(&pool);
            assert!(elsewhere.kept_part == 1.0 && elsewhere.note.is_some(), "{elsewhere:?}");
            assert!(elsewhere.estimates[1].even > whole.estimates[1].even);
        }
        let kept = slots_pool(Drive::Volatile, 20).formatted(Some("it does not support discards".into()));
        assert!(of(&kept).note.expect("that is said").contains("not discarded"));
        let room = Some(Span { at_bytes: 100 * gib, end_bytes: 200 * gib });
        assert_eq!(of(&PoolRecord { disk_room: room, ..slots_pool(Drive::Volatile, 20) }).kept_part, 0.9);
        assert_eq!(estimate(&slots_pool(Drive::Volatile, 20), 100 * gib, None), None);
    }
}
