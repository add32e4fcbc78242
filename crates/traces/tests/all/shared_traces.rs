//! The recorded traces beside the repository (`../shared/traces`): they are read right, and the simulators give the miss
//! ratios its README states. Skipped with a message where that folder is absent.

use std::path::PathBuf;
use traces::read::read_file;
use traces::reference::{Belady, Fifo, Lru};
use traces::replay::{Cache, replay};
use traces::stream::Stream;

fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return None;
    }
    Some(folder)
}

/// Requests, block accesses and footprint of each trace, from the README's first table.
#[test]
fn every_trace_has_the_stated_requests_accesses_and_footprint() {
    let Some(folder) = folder() else { return };
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the folder has a README");
    let mut checked = 0;
    for line in readme.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(name) = cells.get(1).and_then(|cell| cell.strip_prefix('`')?.strip_suffix("`")).filter(|name| name.ends_with(".zst"))
        else {
            continue;
        };
        let Some([requests, _, _, accesses, footprint]) = cells.get(3..8) else { continue };
        let number = |cell: &str| -> u64 {
            let digits: String = cell.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(char::is_ascii_digit).collect();
            digits.parse().expect("a count")
        };
        let read = read_file(&folder.join(name)).expect("a readable trace");
        let stream = Stream::new(&read);
        assert_eq!(read.len() as u64, number(requests), "requests of {name}");
        assert_eq!(stream.accesses.len() as u64, number(accesses), "accesses of {name}");
        assert_eq!(stream.footprint_blocks(), number(footprint), "footprint of {name}");
        checked += 1;
    }
    assert_eq!(checked, 7, "traces in the README's table");
}

/// Every FIFO, LRU and Belady row of the README's reference tables, to the last digit.
#[test]
fn the_simulators_give_the_reference_miss_ratios() {
    let Some(folder) = folder() else { return };
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the folder has a README");
    let mut checked = 0;
    let mut current: Option<(&str, Vec<u64>, Stream)> = None;
    for line in readme.lines() {
        if let Some((name, sizes)) = line.strip_prefix("**").and_then(|line| line.split_once("** (cache ")) {
            let sizes = sizes.split(" blocks").next().expect("sizes").split(", ").map(|size| size.parse().expect("a size")).collect();
            let file = std::fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable").path());
            let file = file.into_iter().find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)));
            let requests = read_file(&file.expect("a trace of that name")).expect("a readable trace");
            current = Some((name, sizes, Stream::new(&requests)));
            continue;
        }
        let Some((name, sizes, stream)) = &current else { continue };
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(policy) = cells.get(1).filter(|cell| ["FIFO", "LRU", "Belady"].contains(cell)) else { continue };
        for (size, stated) in sizes.iter().zip(&cells[2..]) {
            let footprint = stream.footprint_blocks();
            let mut cache: Box<dyn Cache> = match *policy {
                "FIFO" => Box::new(Fifo::new(footprint, *size)),
                "LRU" => Box::new(Lru::new(footprint, *size)),
                _ => Box::new(Belady::new(stream, *size)),
            };
            let ratio = replay(stream, cache.as_mut()).miss_ratio();
            assert_eq!(format!("{ratio:.4}"), stated.trim_matches('*'), "{policy} on {name} with {size} blocks");
            checked += 1;
        }
    }
    assert_eq!(checked, 5 * 3 * 4, "reference figures checked");
}
