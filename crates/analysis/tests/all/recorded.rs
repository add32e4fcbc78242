//! Sizes from samples against the truth, on recorded loads (`../shared`). Skipped with a message where
//! they are absent.

use analysis::curve::size_for;
use analysis::{Profile, Stack, line_hash};
use std::io::Read;
use std::path::PathBuf;

/// Lines that are sampled of a volume.
const LINES_MAX: usize = 8192;
/// Share of re-references to be answered.
const SHARE: f64 = 0.9;

fn recorded(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(name);
    if !path.is_file() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// How many seeds are tried; `INSIGHT_SEEDS=200` is the long run.
fn seeds() -> u64 {
    std::env::var("INSIGHT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// Reads of 16 KiB lines of a server's files; with or without those of backups and scans.
fn oltp_with_backups(with_scans: bool) -> Option<Vec<u64>> {
    let path = recorded("pages/traces/oltp-with-backups.tsv.zst")?;
    let file = std::fs::File::open(path).expect("it can be read");
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file).expect("Zstandard").read_to_string(&mut text).expect("text");
    let mut lines = Vec::new();
    for row in text.lines().skip(1) {
        let cells: Vec<&str> = row.split('\t').collect();
        let number = |at: usize| cells[at].parse::<i64>();
        if cells[3] != "R" || (!with_scans && cells[8] == "1") {
            continue;
        }
        let (sector, sectors) = (number(4).expect("a sector") as u64, number(5).expect("a length") as u64);
        let offset = number(7).unwrap_or(-1);
        let (object, start) = match (number(6), offset) {
            (Ok(object), 0..) => (object as u64 + 1, offset as u64),
            _ => (0, sector * 512),
        };
        let end = start + (sectors * 512).max(1);
        lines.extend((start / 16384..=(end - 1) / 16384).map(|line| object << 40 | line));
    }
    Some(lines)
}

/// Reads of 4 KiB blocks of a trace.
fn reads_of(name: &str) -> Option<Vec<u64>> {
    let requests = traces::read::read_file(&recorded(name)?).expect("a trace");
    let stream = traces::stream::Stream::new(&requests);
    Some(stream.accesses.iter().filter(|access| !access.write).map(|access| u64::from(access.block)).collect())
}

/// The size, from all distances.
fn truth(lines: &[u64]) -> f64 {
    let mut stack = Stack::new(lines.len());
    let distances = lines.iter().filter_map(|line| stack.reference(line_hash(*line, 0)).expect("all").distance_lines);
    let mut distances: Vec<u64> = distances.collect();
    distances.sort_unstable();
    distances[(distances.len() as f64 * SHARE).ceil() as usize - 1] as f64
}

struct Tried {
    median_error: f64,
    error_95: f64,
    covered: f64,
    mean_half_band: f64,
}

fn tried(lines: &[u64], truth: f64) -> Tried {
    let (mut errors, mut covered, mut half_bands) = (Vec::new(), 0, 0.0);
    for seed in 0..seeds() {
        let (mut stack, mut profile) = (Stack::new(LINES_MAX), Profile::default());
        for line in lines {
            let hash = line_hash(*line, seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
            if let Some(reused) = stack.reference(hash) {
                profile.note(hash, reused);
            }
        }
        profile.count(lines.len() as u64);
        let size = size_for(&profile, stack.rate(), SHARE).expect("there are some");
        let error = (size.lines / truth - 1.0).abs();
        covered += u64::from(error <= size.half_band);
        half_bands += size.half_band;
        errors.push(error);
    }
    errors.sort_by(f64::total_cmp);
    let count = errors.len();
    Tried {
        median_error: errors[count / 2],
        error_95: errors[count * 95 / 100],
        covered: covered as f64 / count as f64,
        mean_half_band: half_bands / count as f64,
    }
}

fn is_estimated(name: &str, lines: &[u64], truth_lines: f64) -> Tried {
    let found = tried(lines, truth_lines);
    println!(
        "{name}: {truth_lines} lines; median error {:.1} %, 95 of 100 below {:.1} %; half band {:.1} %, covers {:.0} %",
        found.median_error * 100.0,
        found.error_95 * 100.0,
        found.mean_half_band * 100.0,
        found.covered * 100.0
    );
    found
}

#[test]
fn the_size_for_nine_hits_of_ten_is_found_from_a_sample() {
    for (with_scans, mib) in [(true, 968.2), (false, 485.3)] {
        let Some(lines) = oltp_with_backups(with_scans) else { return };
        let truth = truth(&lines);
        assert!((truth * 16.0 / 1024.0 - mib).abs() < 0.1, "{} MiB, stated {mib}", truth * 16.0 / 1024.0);
        let found = is_estimated("oltp-with-backups", &lines, truth);
        assert!(found.median_error <= 0.03 && found.error_95 <= 0.05);
        assert!(found.covered >= 0.9 && found.mean_half_band <= 0.06);
    }
}

#[test]
fn bands_cover_the_truth_of_other_loads() {
    for name in ["mariadb-tpcc-w10.csv", "mariadb-sysbench-30-90.csv", "cloudPhysicsIO.vscsi", "P3.lis"] {
        let Some(lines) = reads_of(&format!("traces/{name}.zst")) else { return };
        let found = is_estimated(name, &lines, truth(&lines));
        assert!(found.covered >= 0.9, "{name}");
    }
}
