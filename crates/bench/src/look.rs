//! CPU time of looking into a shard: what a reactor is held for by those who ask why, and by counts for the map.

use crate::report;
use crate::rig::{Rig, cpu_ns};
use anyhow::Result;
use engine::api::Op;
use engine::shard::EXPLAIN_BLOCKS_MAX;
use types::VolumeIndex;

/// Blocks written: 1 GiB of them, every other one of a range.
const BLOCKS: u64 = 262_144;

/// A pass over all entries, lookups, and explanations, of a shard with many cached blocks.
pub fn run() -> Result<()> {
    let mut rig = Rig::new(2 << 30, 0);
    for block in 0..BLOCKS {
        rig.request(Op::Write, block * 2);
    }
    let shard = &rig.shard;
    let there = shard.stats().cached_blocks;
    let (mut position, mut entries, mut longest) = (Some(0), 0, 0);
    let mut counted = [0_u32; 1024];
    let begun = cpu_ns();
    while let Some(at) = position {
        let call = cpu_ns();
        position = shard.look_at_index(at, 8192, |_, block, _| counted[(block / 512 % 1024) as usize] += 1);
        longest = longest.max(cpu_ns() - call);
        entries += 8192.min(shard.index_end() - at);
    }
    let took = cpu_ns() - begun;
    assert_eq!(counted.iter().map(|count| u64::from(*count)).sum::<u64>(), there, "each block once");
    report("engine: an entry of the index, counted", took as f64 / entries as f64, "ns CPU", Some(6.0));
    report("engine: the longest look at 8192 of them", longest as f64 / 1e3, "us CPU", None);
    let mut cached = 0;
    let begun = cpu_ns();
    for first_block in (0..BLOCKS * 2).step_by(512) {
        shard.look_at_range(VolumeIndex(0), first_block, 512, |_, _| cached += 1);
    }
    report("engine: a block of a range, counted", (cpu_ns() - begun) as f64 / (BLOCKS * 2) as f64, "ns CPU", Some(100.0));
    assert_eq!(cached, there);
    let begun = cpu_ns();
    for first_block in (0..BLOCKS * 2).step_by(EXPLAIN_BLOCKS_MAX as usize) {
        std::hint::black_box(shard.explain(rig.now_ns, VolumeIndex(0), first_block, EXPLAIN_BLOCKS_MAX));
    }
    report("engine: a block explained", (cpu_ns() - begun) as f64 / (BLOCKS * 2) as f64, "ns CPU", Some(100.0));
    Ok(())
}
