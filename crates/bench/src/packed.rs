//! The engine with content on, over an SSD in memory: what it writes for recorded traces, what it holds at rest, and what a hit costs.
//!
//! Unlike the figures of [`crate::content`], these count everything that reaches the SSD: statements, padding, and what moves.

use anyhow::{Result, ensure};
use content::{BLOCK_BYTES, Block};
use engine::api::Op;
use engine::packer::ContentOptions;
use std::time::Instant;
use types::Content;

use crate::content::{blocks, has_samples, sample};
use crate::report;
use crate::rig::Rig;

const SSD_BYTES: u64 = 512 << 20;
const RAM_BLOCKS: u64 = 32 << 10;
const BASE_PAGES: usize = 4 << 10;
/// Blocks in the index when its memory is looked at.
const MANY_BLOCKS: u64 = 60_000;
/// Writes under way at a time, as a database that flushes pages has them.
const WRITES_AT_ONCE: usize = 32;
const RECORD_BYTES: usize = 8 + BLOCK_BYTES;
/// Reads of one kind; the median counts.
const HITS: usize = 4000;

/// Measures all of it.
pub fn run() -> Result<()> {
    if !has_samples() {
        eprintln!("skipped: the block samples (../shared/blocks) are not there");
        return Ok(());
    }
    for name in ["innodb-tpcc", "pgbench", "vm-update"] {
        let (off, auto) = (written(name, Content::Off)?, written(name, Content::Auto)?);
        let of = name.replace('-', "_");
        report(&format!("engine_ssd_bytes_{of}_off"), off, "host/SSD bytes", None);
        report(&format!("engine_ssd_bytes_{of}"), auto, "host/SSD bytes", None);
    }
    for name in ["innodb-tpcc", "pgbench", "vm-clones", "os-releases", "source-versions", "pg-log", "archive", "fio-c50-d30"] {
        for level in [Content::Fast, Content::Dense] {
            let (capacity, index_bytes) = at_rest(name, level)?;
            report(&format!("engine_capacity_{name}_{}", level.name()), capacity, "raw/stored", None);
            report(&format!("index_bytes_per_block_all_tables, {name} {}", level.name()), index_bytes, "bytes", Some(48.0));
        }
    }
    let raw = hit_us("archive", Content::Off, false)?;
    report("raw_hit_us", raw, "us", None);
    report("lz4_hit_added_us", hit_us("pgbench", Content::Fast, false)? - raw, "us", Some(5.0));
    report("zstd_hit_added_us", hit_us("pgbench", Content::Dense, false)? - raw, "us", None);
    report("delta_hit_added_us", hit_us("pgbench", Content::Fast, true)? - raw, "us", Some(5.0));
    Ok(())
}

fn rig(level: Content, ram_blocks: u64, base_pages: usize, ssd_bytes: u64) -> Rig {
    let mut rig = Rig::new(ssd_bytes, ram_blocks);
    let slots = rig.shard.stats().slots;
    let options = ContentOptions::suited(level, 1, slots, ram_blocks);
    // Without a clock there is no limit on CPU time: what is measured is the forms.
    rig.shard.set_content(ContentOptions { base_pages, ..options });
    rig
}

/// Bytes that clients wrote for each that reached the SSD, every version read back and compared.
fn written(name: &str, level: Content) -> Result<f64> {
    let bytes = sample(&format!("{name}.writes"))?;
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let mut rig = rig(level, RAM_BLOCKS, BASE_PAGES, SSD_BYTES);
    let mut before = 0;
    let mut count = 0;
    for kind in *b"BW" {
        let records: Vec<(u64, &Block)> =
            records.iter().filter(|r| r[0] == kind).map(|r| (address(r), r[8..].try_into().expect("a block"))).collect();
        before = rig.shard.stats().ssd_written_bytes;
        count = records.len() as u64;
        // One address at most once at a time.
        let mut batch: Vec<(u64, &Block)> = Vec::new();
        for record in &records {
            if batch.len() == WRITES_AT_ONCE || batch.iter().any(|(address, _)| *address == record.0) {
                check(&mut rig, &mut batch)?;
            }
            batch.push(*record);
        }
        check(&mut rig, &mut batch)?;
        rig.rest();
    }
    Ok((count * BLOCK_BYTES as u64) as f64 / (rig.shard.stats().ssd_written_bytes - before) as f64)
}

fn address(record: &[u8; RECORD_BYTES]) -> u64 {
    let number = u32::from_le_bytes(record[4..8].try_into().expect("four bytes"));
    u64::from(record[1]) << 22 | u64::from(number)
}

fn check(rig: &mut Rig, batch: &mut Vec<(u64, &Block)>) -> Result<()> {
    rig.write(batch);
    for (address, block) in batch.drain(..) {
        let reply = rig.request(Op::Read, address);
        ensure!(reply.result.is_ok() && reply.pages[0][..] == block[..], "block {address} comes back as something else");
    }
    Ok(())
}

/// Bytes of blocks for each that they take on the SSD, and memory for each block of a cache that is full of such blocks: the index as it is with
/// many of them, hints and policy as they are sized by the SSD.
fn at_rest(name: &str, level: Content) -> Result<(f64, f64)> {
    let blocks = blocks(&format!("{name}.blocks"))?;
    let numbered: Vec<(u64, &Block)> = (0..).zip(&blocks).collect();
    let mut once = rig(level, RAM_BLOCKS, BASE_PAGES, SSD_BYTES);
    numbered.chunks(WRITES_AT_ONCE).try_for_each(|batch| check(&mut once, &mut batch.to_vec()))?;
    let stats = once.shard.content_stats();
    let stored = stats.plain_blocks * BLOCK_BYTES as u64 + stats.census.stored_bytes;
    let capacity = (blocks.len() * BLOCK_BYTES) as f64 / stored as f64;
    // Many more like them, none of which shares a part with another round.
    let mut many = rig(level, 0, 0, SSD_BYTES);
    let (empty, hints_at_first) = (many.shard.stats(), many.shard.content_stats().hint_bytes);
    let rounds = MANY_BLOCKS / blocks.len() as u64;
    for round in 0..rounds {
        let others: Vec<Block> = blocks.iter().map(|block| of_round(block, round)).collect();
        let others: Vec<(u64, &Block)> = (round * blocks.len() as u64..).zip(&others).collect();
        others.chunks(WRITES_AT_ONCE).for_each(|batch| many.write(batch));
    }
    many.rest();
    let shard = many.shard.stats();
    let blocks_when_full = shard.slots as f64 * capacity;
    let by_ssd = (hints_at_first + empty.policy_bytes) as f64 / blocks_when_full;
    // The keys of whole blocks grow with the blocks.
    let grown = many.shard.content_stats().hint_bytes - hints_at_first;
    Ok((capacity, (shard.index_bytes + grown) as f64 / shard.cached_blocks as f64 + by_ssd))
}

fn of_round(block: &Block, round: u64) -> Block {
    let mut block = *block;
    for part in block.chunks_exact_mut(512) {
        part[16..24].copy_from_slice(&round.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    block
}

/// Median time of a read that finds its block on the SSD, in microseconds; `overwritten`: stored as a delta to the version before.
fn hit_us(name: &str, level: Content, overwritten: bool) -> Result<f64> {
    let blocks = blocks(&format!("{name}.blocks"))?;
    // No RAM tier, so that reads go to the SSD; bases are at hand.
    let mut rig = rig(level, 0, if overwritten { 2 * blocks.len() } else { 0 }, SSD_BYTES);
    let numbered: Vec<(u64, &Block)> = (0..).zip(&blocks).collect();
    for batch in numbered.chunks(WRITES_AT_ONCE) {
        rig.write(batch);
    }
    let changed: Vec<Block> = blocks
        .iter()
        .map(|block| {
            let mut block = *block;
            block[8..16].copy_from_slice(&0x1234_5678_u64.to_le_bytes());
            block
        })
        .collect();
    if overwritten {
        let numbered: Vec<(u64, &Block)> = (0..).zip(&changed).collect();
        for batch in numbered.chunks(WRITES_AT_ONCE) {
            rig.write(batch);
        }
        ensure!(
            rig.shard.content_stats().census.delta as usize > blocks.len() / 2,
            "most blocks are deltas: {:?}",
            rig.shard.content_stats()
        );
    }
    rig.rest();
    let mut times: Vec<u64> = Vec::with_capacity(HITS);
    for hit in 0..HITS {
        let begun = Instant::now();
        let reply = rig.request(Op::Read, (hit * 7 % blocks.len()) as u64);
        times.push(begun.elapsed().as_nanos() as u64);
        ensure!(reply.result.is_ok(), "a hit");
    }
    times.sort_unstable();
    Ok(times[HITS / 2] as f64 / 1000.0)
}
