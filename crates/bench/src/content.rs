//! What the forms of a block bring on the recorded samples, and what they cost: bytes, and CPU time for each block.
//!
//! The samples lie in `../shared/blocks`, with a README that says what they are; without them nothing is measured.

use anyhow::{Context, Result};
use content::encode::{Bases, Encoder, Form, Steps, decode};
use content::hints::ObjectId;
use content::measure::{Accounting, Limits, Measure};
use content::{BLOCK_BYTES, Block, dense, diff, fingerprint, is_zero};
use std::hint::black_box;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use crate::report;

/// Passes over a sample; the quickest counts, as others disturb only upwards.
const PASSES: usize = 7;
const LIMITS: Limits = Limits { contents: 1 << 17, keys: 1 << 17 };
/// As the samples' figures were made.
const AT_REST: Accounting = Accounting { header_bytes: 8, align_bytes: 1 };
const WRITTEN: Accounting = Accounting { header_bytes: 16, align_bytes: 1 };
const RECORD_BYTES: usize = 8 + BLOCK_BYTES;

/// Blocks at rest, and what the samples' README has for them: LZ4 with duplicates, and deltas to similar blocks beside.
const BLOCKS: [(&str, f64, f64); 8] = [
    ("innodb-tpcc", 1.38, 1.38),
    ("pgbench", 8.46, 9.34),
    ("vm-clones", 3.25, 3.33),
    ("os-releases", 1.49, 1.65),
    ("source-versions", 2.03, 3.04),
    ("pg-log", 4.47, 5.26),
    ("archive", 1.00, 1.00),
    ("fio-c50-d30", 2.54, 2.54),
];
/// Write traces, and how much fewer bytes the prototype wrote.
const WRITES: [(&str, f64); 3] = [("innodb-tpcc", 41.7), ("pgbench", 31.9), ("vm-update", 6.2)];

/// Measures all of it.
pub fn run() -> Result<()> {
    if !has_samples() {
        eprintln!("skipped: the block samples (../shared/blocks) are not there");
        return Ok(());
    }
    for (name, reference) in WRITES {
        let lz4 = written(name, Steps::LZ4)?;
        report_factor(&format!("ssd_bytes_{}", name.replace('-', "_")), written(name, Steps::FAST)?, lz4, reference);
    }
    for (name, fast, similar) in BLOCKS {
        let blocks = blocks(&format!("{name}.blocks"))?;
        let lz4 = at_rest(&blocks, Steps::LZ4)?;
        report_factor(&format!("capacity_{name}_fast"), at_rest(&blocks, Steps::FAST)?, lz4, fast);
        report_factor(&format!("capacity_{name}_dense"), at_rest(&blocks, Steps::DENSE)?, lz4, similar);
    }
    for (name, ..) in BLOCKS {
        let blocks = blocks(&format!("{name}.blocks"))?;
        report(&format!("keys_and_diff_us, {name}"), keys_and_diff(&blocks), "us/block", Some(1.5));
        let most = if name == "archive" { 1.5 } else { 15.0 };
        report(&format!("encode_fast_us, {name}"), encoding(&blocks, Steps::FAST), "us/block", Some(most));
        report(&format!("encode_dense_us, {name}"), encoding(&blocks, Steps::DENSE), "us/block", Some(45.0));
        for (form, microseconds) in decoding(&blocks) {
            report(&format!("decode_{form}_us, {name}"), microseconds, "us/block", None);
        }
    }
    Ok(())
}

/// Beside it, what LZ4 alone brings, and the reference.
fn report_factor(name: &str, factor: f64, lz4: f64, reference: f64) {
    let [value, lz4_alone] = [factor, lz4].map(|factor| (factor * 100.0).round() / 100.0);
    let line = serde_json::json!({ "name": name, "value": value, "unit": "raw/stored", "at_most": null, "lz4_alone": lz4_alone, "reference": reference });
    println!("{line}");
}

fn sample_path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/blocks")).join(format!("{name}.zst"))
}

/// Whether the samples are there.
pub fn has_samples() -> bool {
    sample_path("archive.blocks").metadata().is_ok()
}

/// A sample's bytes.
pub fn sample(name: &str) -> Result<Vec<u8>> {
    let packed = std::fs::read(sample_path(name)).with_context(|| format!("the sample {name} cannot be read"))?;
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(&packed[..])?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A sample of blocks.
pub fn blocks(name: &str) -> Result<Vec<Block>> {
    Ok(sample(name)?.as_chunks::<BLOCK_BYTES>().0.to_vec())
}

fn at_rest(blocks: &[Block], steps: Steps) -> Result<f64> {
    let mut measure = Measure::new(steps, AT_REST, LIMITS);
    for (address, block) in (0..).zip(blocks) {
        measure.write(address, block)?;
    }
    Ok(measure.tally().factor())
}

fn written(name: &str, steps: Steps) -> Result<f64> {
    let bytes = sample(&format!("{name}.writes"))?;
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let mut measure = Measure::new(steps, WRITTEN, LIMITS);
    for kind in *b"BW" {
        measure.reset();
        for record in records.iter().filter(|record| record[0] == kind) {
            let number = u32::from_le_bytes(record[4..8].try_into().expect("four bytes"));
            let block: &Block = record[8..].try_into().expect("a block");
            measure.write(u64::from(record[1]) << 32 | u64::from(number), block)?;
        }
    }
    Ok(measure.tally().factor())
}

/// Everything in memory, numbered from 1.
struct All<'a>(&'a [Block]);

impl Bases for All<'_> {
    fn content(&self, object: ObjectId) -> Option<&Block> {
        self.0.get(object as usize - 1)
    }
}

/// Microseconds a block, of the quickest pass.
fn quickest(blocks: usize, mut pass: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let begun = Instant::now();
        pass();
        begun.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min) * 1e6 / blocks.max(1) as f64
}

/// What is asked of every block that takes writes: zero, the key of the whole, the difference to the version before (here a close relative).
fn keys_and_diff(blocks: &[Block]) -> f64 {
    let near: Vec<Block> = blocks
        .iter()
        .map(|block| {
            let mut near = *block;
            near[16..24].fill(7);
            near[2000..2060].fill(9);
            near
        })
        .collect();
    let mut out = Vec::new();
    quickest(blocks.len(), || {
        for (block, near) in blocks.iter().zip(&near) {
            out.clear();
            black_box((is_zero(block), fingerprint::of(1, block), diff::encode(block, near, 512, &mut out)));
        }
    })
}

fn forms(blocks: &[Block], steps: Steps, mut each: impl FnMut(usize, Form, &[u8])) {
    let mut encoder = Encoder::new(steps, 1, blocks.len() * 2);
    for (at, block) in blocks.iter().enumerate() {
        let form = encoder.encode(block, None, &All(&blocks[..at]));
        each(at, form, encoder.bytes());
        if matches!(form, Form::Lz4 | Form::Zstd | Form::Raw) {
            encoder.remember(at as ObjectId + 1, block);
        }
    }
}

fn encoding(blocks: &[Block], steps: Steps) -> f64 {
    quickest(blocks.len(), || {
        forms(blocks, steps, |_, form, bytes| {
            black_box((form, bytes.len()));
        })
    })
}

/// By kind of form, where there are some: what decoding one takes with its base at hand.
fn decoding(blocks: &[Block]) -> Vec<(&'static str, f64)> {
    let mut stored: Vec<(&'static str, Form, Vec<u8>)> = Vec::new();
    for steps in [Steps::FAST, Steps::DENSE] {
        forms(blocks, steps, |_, form, bytes| {
            let name = match form {
                Form::Lz4 => "lz4",
                Form::Zstd => "zstd",
                Form::Diff(_) | Form::LzDelta(_) => "delta",
                Form::ZstdDelta(_) => "zstd_delta",
                _ => return,
            };
            stored.push((name, form, bytes.to_vec()));
        });
    }
    let (mut codec, mut into) = (dense::Codec::default(), [0; BLOCK_BYTES]);
    let mut found = Vec::new();
    for name in ["lz4", "zstd", "delta", "zstd_delta"] {
        let these: Vec<_> = stored.iter().filter(|(other, ..)| *other == name).collect();
        if these.len() < 16 {
            continue;
        }
        let microseconds = quickest(these.len(), || {
            for (_, form, bytes) in &these {
                let base = match form {
                    Form::Diff(object) | Form::LzDelta(object) | Form::ZstdDelta(object) => blocks.get(*object as usize - 1),
                    _ => None,
                };
                decode(*form, bytes, base, &mut codec, &mut into).expect("was encoded just now");
                black_box(&into);
            }
        });
        found.push((name, microseconds));
    }
    found
}
