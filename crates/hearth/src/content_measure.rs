//! `hearth content measure`: what the content of blocks would bring, on the user's own data. Reads only.

use crate::commands::print;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::quantity;
use crate::table::{self, Align};
use api::human;
use content::encode::Steps;
use content::measure::{Accounting, Limits, Measure, Tally};
use content::{BLOCK_BYTES, Block};
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Beyond its content a block in memory costs its keys and its place.
const MEMORY_BLOCK_BYTES: u64 = BLOCK_BYTES as u64 + 128;

#[derive(Serialize)]
struct Way {
    name: &'static str,
    blocks: u64,
    zero: u64,
    duplicate: u64,
    delta: u64,
    lz4: u64,
    zstd: u64,
    raw: u64,
    stored_bytes: u64,
    factor: f64,
    us_per_block: f64,
}

#[derive(Serialize)]
struct Report {
    bytes: u64,
    ways: Vec<Way>,
}

struct Trial {
    name: &'static str,
    measure: Measure,
    took: Duration,
}

/// Measures and prints.
///
/// # Errors
/// With the sentence to print.
pub fn measure(paths: &[PathBuf], memory: &str, json: bool) -> Result<(), Failure> {
    let memory_bytes = quantity::size("--memory", memory)?;
    // Two of the ways keep contents.
    let contents = (memory_bytes / 2 / MEMORY_BLOCK_BYTES) as usize;
    if contents == 0 {
        return Err(Failure::usage(format!("--memory {memory} holds no block"), "give 1MiB or more"));
    }
    let ways = [("LZ4 alone", Steps::LZ4), ("fast", Steps::FAST), ("dense", Steps::DENSE)];
    let mut trials = ways.map(|(name, steps)| {
        let limits = if steps == Steps::LZ4 { Limits { contents: 0, keys: 0 } } else { Limits { contents, keys: contents } };
        Trial { name, measure: Measure::new(steps, Accounting::LOG, limits), took: Duration::ZERO }
    });
    let mut files = Vec::new();
    for path in paths {
        files.push((path, open(path)?));
    }
    let total_bytes = files.iter().map(|(_, (_, bytes))| bytes).sum();
    let mut progress = Progress::new("measuring".into(), total_bytes);
    let mut done_bytes = 0;
    for (path, (file, bytes)) in &mut files {
        read_through(path, file, *bytes, &mut trials, |more| {
            done_bytes += more;
            progress.at(done_bytes);
        })?;
    }
    drop(progress);
    let report = Report { bytes: done_bytes, ways: trials.iter().map(way).collect() };
    if json {
        let text = serde_json::to_string_pretty(&report).expect("a report can be written as JSON");
        return print(&(text + "\n"));
    }
    print(&text(&report))
}

/// A file or a block device, and how many bytes it has.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let shown = path.display();
    let remedy = "give a file, a disk or a partition that this user may read";
    let unreadable = |error: std::io::Error| Failure::failed(format!("{shown} cannot be read ({error})"), remedy);
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(Failure::failed(format!("{shown} is a directory"), remedy));
    }
    let bytes = file.seek(SeekFrom::End(0)).and_then(|bytes| file.rewind().map(|()| bytes)).map_err(unreadable)?;
    if bytes < BLOCK_BYTES as u64 {
        return Err(Failure::failed(format!("{shown} has {bytes} bytes and no whole block of 4 KiB"), "give something larger"));
    }
    Ok((file, bytes))
}

fn read_through(path: &Path, file: &mut File, bytes: u64, trials: &mut [Trial], mut went: impl FnMut(u64)) -> Result<(), Failure> {
    let mut chunk = vec![0; CHUNK_BYTES];
    // Whole blocks; of a file that grows meanwhile, what it had.
    let mut left = bytes - bytes % BLOCK_BYTES as u64;
    while left > 0 {
        let now = left.min(CHUNK_BYTES as u64) as usize;
        file.read_exact(&mut chunk[..now]).map_err(|error| {
            let problem =
                if error.kind() == ErrorKind::UnexpectedEof { "became shorter".into() } else { format!("cannot be read ({error})") };
            Failure::failed(format!("{} {problem}", path.display()), "measure it while nothing changes it")
        })?;
        for trial in trials.iter_mut() {
            let begun = Instant::now();
            for block in chunk[..now].as_chunks::<BLOCK_BYTES>().0 {
                let block: &Block = block;
                trial.measure.add(block).map_err(|bug| Failure::failed(bug.to_string(), "please report this"))?;
            }
            trial.took += begun.elapsed();
        }
        left -= now as u64;
        went(now as u64);
    }
    Ok(())
}

fn way(trial: &Trial) -> Way {
    let Tally { blocks, zero, duplicate, diff, lz_delta, zstd_delta, lz4, zstd, raw, stored_bytes, .. } = *trial.measure.tally();
    let delta = diff + lz_delta + zstd_delta;
    let us_per_block = trial.took.as_secs_f64() * 1e6 / blocks.max(1) as f64;
    let factor = trial.measure.tally().factor();
    Way { name: trial.name, blocks, zero, duplicate, delta, lz4, zstd, raw, stored_bytes, factor, us_per_block }
}

fn text(report: &Report) -> String {
    let head = ["", "zero", "duplicate", "delta", "LZ4", "zstd", "raw", "stored", "factor", "us/block"];
    let head: Vec<(&str, Align)> =
        head.iter().enumerate().map(|(at, title)| (*title, if at == 0 { Align::Left } else { Align::Right })).collect();
    let part = |count: u64, of: u64| format!("{:.1} %", count as f64 * 100.0 / of.max(1) as f64);
    let row = |way: &Way| {
        let counts = [way.zero, way.duplicate, way.delta, way.lz4, way.zstd, way.raw].map(|count| part(count, way.blocks));
        let sizes = [human::bytes(way.stored_bytes), format!("{:.2}", way.factor), format!("{:.1}", way.us_per_block)];
        [way.name.to_string()].into_iter().chain(counts).chain(sizes).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = report.ways.iter().map(row).collect();
    let (blocks, bytes) = (report.bytes / BLOCK_BYTES as u64, human::bytes(report.bytes));
    format!(
        "{bytes} in {blocks} blocks; every block was decoded again and compared.\n\n{}\nThis is the gain at rest. Blocks that are overwritten often, as in databases, gain more: a new version is stored as a delta.\n",
        table::layout(&head, &rows)
    )
}
