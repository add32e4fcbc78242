//! RAM of index and policy for ten million blocks on the SSD.

use crate::report;
use anyhow::Result;
use engine::index::{Index, Slot, SlotMeta};
use engine::key::Key;
use engine::policy::Policy;
use types::VolumeIndex;

const BLOCKS: u32 = 10_000_000;
const PAGES_PER_SEGMENT: u32 = 512;

/// Fills an index and measures what the process grew by, beside what the index says of itself.
pub fn run() -> Result<()> {
    let before = resident_bytes()?;
    let mut index = Index::new(BLOCKS, PAGES_PER_SEGMENT);
    for slot in 0..BLOCKS {
        // The last few slots stay free, as the reserve does.
        if slot % 64 != 0 {
            let meta = SlotMeta { dirty: false, partial: false, frequency: 0, checksum: slot };
            index.insert(Key::new(VolumeIndex(0), u64::from(slot).wrapping_mul(2_654_435_761) % (1 << 34)), Slot(slot), meta);
        }
    }
    let policy = Policy::new(0, u64::from(BLOCKS), 1);
    let grown = resident_bytes()?.saturating_sub(before);
    let stated = index.memory_bytes() + policy.memory_bytes();
    report("engine: index and policy, stated, 10 million blocks", stated as f64 / f64::from(BLOCKS), "bytes/block", Some(16.0));
    report("engine: index and policy, resident, 10 million blocks", grown as f64 / f64::from(BLOCKS), "bytes/block", Some(16.0));
    Ok(())
}

fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
