//! Prints what the stream rules find in a recorded load.
//!
//! `cargo run --release -p applications --example streams -- TRACE`
//!
//! For `oltp-with-backups.tsv.zst`, which says who sent each request: precision and recall by
//! stream, for three amounts of knowledge, and the cache that nine hits of ten need after the
//! filter. For other traces (`.csv`, `.vscsi`, `.lis`, `.trace`): what share of them is called a
//! scan or a log.

#[path = "../tests/all/recorded_loads/mod.rs"]
mod recorded_loads;

use recorded_loads::{Judged, Known, Load, plain, size_mib};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use types::StreamClass;

const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: streams TRACE");
        std::process::exit(2);
    };
    let path = Path::new(&path);
    if path.to_string_lossy().contains(".tsv") { labelled(path) } else { unlabelled(path) }
}

fn labelled(path: &Path) {
    let load = Load::read(path);
    println!("cache for nine hits of ten, all reads: {:.1} MiB", size_mib(&load, |_, _| true));
    println!("the same without scans and backups:    {:.1} MiB", size_mib(&load, |_, row| !row.scan));
    for known in [Known::Pages, Known::PagesAndMap, Known::Sessions] {
        let began = Instant::now();
        let judged = load.judge(known);
        let each_ns = began.elapsed().as_nanos() as f64 / load.rows.len() as f64;
        println!("\nknown: {known:?} ({each_ns:.0} ns a request, {} KiB)", judged.streams.bytes() >> 10);
        table(&load, &judged);
        let mib = size_mib(&load, |index, _| !judged.marked(index));
        println!("  cache for nine hits of ten after the filter: {mib:.1} MiB");
        let (bytes, right) = judged.confirmed_rightly(&load);
        println!("  confirmed later: {:.1} MiB, {right:.3} of it read by a scan last", bytes as f64 / MIB);
        written(&load, &judged);
    }
}

fn table(load: &Load, judged: &Judged) {
    let score = judged.score(load);
    println!("  precision {:.4}, recall {:.4}", score.precision, score.recall);
    println!("  {:<44} {:>9} {:>9}", "stream", "MiB read", "marked");
    for (name, found) in score.by_stream.iter().filter(|(_, found)| found.bytes >= 1 << 20) {
        println!("  {name:<44} {:>9.1} {:>9.4}", found.bytes as f64 / MIB, found.share());
    }
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    for (row, verdict) in load.rows.iter().zip(&judged.verdicts).filter(|(row, _)| !row.write) {
        *classes.entry(verdict.class.name()).or_default() += u64::from(row.len_bytes);
    }
    let classes: Vec<String> = classes.iter().map(|(name, bytes)| format!("{name} {:.1}", *bytes as f64 / MIB)).collect();
    println!("  reads by class, MiB: {}", classes.join(", "));
}

fn written(load: &Load, judged: &Judged) {
    let mut objects: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (row, verdict) in load.rows.iter().zip(&judged.verdicts).filter(|(row, _)| row.write) {
        let name = match load.name(row) {
            "-" => format!("unmapped, by {}", row.process),
            name => name.into(),
        };
        let counts = objects.entry(name).or_default();
        counts.0 += 1;
        counts.1 += u64::from(verdict.class == StreamClass::Log);
    }
    println!("  {:<44} {:>9} {:>9}", "writes", "all", "to a log");
    for (name, (all, log)) in objects.iter().filter(|(_, (all, _))| *all >= 16) {
        println!("  {name:<44} {all:>9} {log:>9}");
    }
    for log in judged.streams.logs() {
        let (low, high) = (log.low_bytes as f64 / MIB, log.high_bytes as f64 / MIB);
        println!("  log at the end: {:?} from MiB {low:.1} to {high:.1}", log.object);
    }
}

fn unlabelled(path: &Path) {
    let requests = match traces::read::read_file(path) {
        Ok(requests) => requests,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let began = Instant::now();
    let (scans, logs, count) = plain(&requests);
    let each_ns = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{count} requests: {scans:.4} of the bytes read are called a scan, {logs:.4} of those written a log ({each_ns:.0} ns each)");
}
