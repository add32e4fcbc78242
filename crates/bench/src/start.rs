//! How long the index of a pool with ten million blocks takes to come back.

use crate::report;
use anyhow::Result;
use engine::index::{Index, Slot, SlotMeta};
use engine::key::Key;
use std::time::Instant;
use types::VolumeIndex;

const BLOCKS: u32 = 10_000_000;
const PAGES_PER_SEGMENT: u32 = 512;

/// Time to put ten million blocks into an empty index, as recovery and checkpoint do.
pub fn run() -> Result<()> {
    let mut index = Index::new(BLOCKS, PAGES_PER_SEGMENT);
    let begun = Instant::now();
    for slot in 0..BLOCKS - 1 {
        let meta = SlotMeta { dirty: false, partial: false, frequency: 0, checksum: slot };
        index.insert(Key::new(VolumeIndex(0), u64::from(slot).wrapping_mul(2_654_435_761) % (1 << 34)), Slot(slot), meta);
    }
    report("engine: ten million blocks into the index", begun.elapsed().as_secs_f64() * 1000.0, "ms", Some(1000.0));
    Ok(())
}
