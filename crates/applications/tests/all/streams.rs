//! The stream rules on recorded loads (`../shared`). Skipped with a message where they are absent.
//!
//! `cargo run --release -p applications --example streams -- TRACE` prints the whole tables.

// The example uses all of it; here some counts stay unused.

use crate::common;
use crate::recorded_loads::{Judged, Known, Load, plain, size_mib};
use applications::streams::{Evidence, PageAt, Seen, Streams};
use std::path::PathBuf;
use types::StreamClass;

fn shared(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(name);
    if !path.is_file() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

fn load() -> Option<Load> {
    Some(Load::read(&shared("pages/traces/oltp-with-backups.tsv.zst")?))
}

/// Precision and recall over the bytes of reads, and the least share of a stream that is found.
fn check(load: &Load, known: Known, precision: f64, recall: f64, each: f64) -> Judged {
    let judged = load.judge(known);
    let score = judged.score(load);
    println!("{known:?}: precision {:.4}, recall {:.4}", score.precision, score.recall);
    assert!(score.precision >= precision, "{known:?}: precision {}", score.precision);
    assert!(score.recall >= recall, "{known:?}: recall {}", score.recall);
    for (name, found) in score.by_stream.iter().filter(|(name, _)| *name != "application") {
        assert!(found.bytes < 1 << 20 || found.share() >= each, "{known:?}: {name} {}", found.share());
    }
    judged
}

#[test]
fn scans_and_backups_are_told_from_the_application() {
    let Some(load) = load() else { return };
    // What was published for the prototype is 0.97 and 0.98; measured now 0.993 and 0.973, 0.992
    // and 0.984 with a map, 0.997 and 1.000 with sessions.
    let judged = check(&load, Known::Pages, 0.98, 0.97, 0.9);
    let chained = judged.verdicts.iter().filter(|verdict| verdict.evidence == Evidence::Chain).count();
    assert!(chained > 5000, "{chained}: the dump by a random key");
    check(&load, Known::PagesAndMap, 0.98, 0.98, 0.94);
    check(&load, Known::Sessions, 0.99, 0.99, 0.99);
}

#[test]
fn the_size_after_the_filter_is_that_of_the_application() {
    let Some(load) = load() else { return };
    let truth = size_mib(&load, |_, row| !row.scan);
    assert!((truth - 485.3).abs() < 0.1, "{truth} MiB");
    for known in [Known::Pages, Known::PagesAndMap, Known::Sessions] {
        let judged = load.judge(known);
        let filtered = size_mib(&load, |index, _| !judged.marked(index));
        println!("{known:?}: {filtered:.1} MiB of {truth:.1}");
        assert!((filtered / truth - 1.0).abs() <= 0.05, "{known:?}: {filtered} MiB of {truth}");
    }
}

#[test]
fn what_is_confirmed_later_was_read_by_a_scan() {
    let Some(load) = load() else { return };
    let (bytes, right) = load.judge(Known::Pages).confirmed_rightly(&load);
    println!("{} MiB confirmed later, {right:.3} of it rightly", bytes >> 20);
    assert!(bytes > 30 << 20 && right >= 0.8, "{bytes} bytes, {right}");
}

#[test]
fn logs_are_known_by_their_behaviour_and_no_table_is_one() {
    let Some(load) = load() else { return };
    for known in [Known::Pages, Known::PagesAndMap] {
        let judged = load.judge(known);
        let to_log = |wanted: &dyn Fn(&str) -> bool| {
            let rows = load.rows.iter().zip(&judged.verdicts).filter(|(row, _)| row.write && wanted(load.name(row)));
            rows.fold((0, 0), |(all, log), (_, verdict)| (all + 1, log + usize::from(verdict.class == StreamClass::Log)))
        };
        for (name, share) in [("ib_logfile0", 0.75), ("binlog.", 0.75), ("pg_wal/", 0.25)] {
            let (all, log) = to_log(&|object| object.contains(name));
            println!("{known:?}: {name} {log} of {all} writes");
            assert!(log > 0 && log as f64 >= share * all as f64, "{known:?}: {name} {log} of {all}");
        }
        let logs = ["ib_logfile0", "binlog.", "pg_wal/", "-"];
        let (all, log) = to_log(&|object| !logs.iter().any(|name| object.contains(name)));
        assert!(all > 9000 && log == 0, "{known:?}: {log} of {all} writes to tables");
        let reads = load.rows.iter().zip(&judged.verdicts).filter(|(row, _)| !row.write);
        assert_eq!(reads.filter(|(_, verdict)| verdict.class == StreamClass::Log).count(), 0);
    }
}

#[test]
fn backups_of_whole_objects_are_told_from_scans() {
    let Some(load) = load() else { return };
    let judged = load.judge(Known::PagesAndMap);
    let backup_bytes = |stream: &str| {
        let rows = load.rows.iter().zip(&judged.verdicts).filter(|(row, _)| !row.write && load.stream(row).contains(stream));
        rows.fold((0, 0), |(all, backup), (row, verdict)| {
            let bytes = u64::from(row.len_bytes);
            (all + bytes, backup + if verdict.class == StreamClass::Backup { bytes } else { 0 })
        })
    };
    let (all, backup) = backup_bytes("mariabackup");
    println!("mariabackup: {} of {} MiB are called a backup", backup >> 20, all >> 20);
    assert!(backup * 2 > all, "it reads object after object");
    let (all, backup) = backup_bytes("application");
    assert!(backup * 100 < all, "{backup} of {all}");
}

#[test]
fn loads_without_backups_hardly_seem_to_scan() {
    for (name, scans_max) in [("mariadb-sysbench-30-90.csv", 0.01), ("mariadb-tpcc-w10.csv", 0.01), ("OLTP.lis", 0.01)] {
        let Some(path) = shared(&format!("traces/{name}.zst")) else { return };
        let (scans, logs, _) = plain(&traces::read::read_file(&path).expect("a trace"));
        println!("{name}: {scans:.4} of the bytes read are called a scan, {logs:.4} of those written a log");
        assert!(scans <= scans_max, "{name}: {scans}");
    }
}

/// The leaves of a real table whose primary key is random, read in key order as a dump does,
/// between others; and the pages of a real write-ahead log.
#[test]
fn recognised_pages_tell_a_dump_and_a_log() {
    let Some(files) = common::archive("mariadb-10.11") else { return };
    let table = &files["shop/items_random.ibd"];
    let leaves: Vec<PageAt> = applications::pages(table)
        .filter_map(|(offset, page)| PageAt::of(&page, offset as u64 + (1 << 30), None))
        .filter(|page| page.leaf)
        .collect();
    let by_owner = |owner| leaves.iter().filter(move |page| page.owner == owner);
    let owner = leaves.iter().map(|page| page.owner).max_by_key(|owner| by_owner(*owner).count()).expect("leaves");
    let mut next = by_owner(owner).find(|page| page.prev.is_none());
    let (mut streams, mut confirmed, mut classes) = (Streams::default(), Vec::new(), Vec::new());
    let mut read = |page: &PageAt| {
        let seen = Seen {
            at_ms: 0,
            offset_bytes: page.offset_bytes,
            len_bytes: page.len_bytes,
            write: false,
            origin: None,
            place: None,
            pages: std::slice::from_ref(page),
        };
        streams.note(&seen, &mut confirmed)
    };
    while let Some(page) = next {
        // A page far away in between, so that the reads are not in order on the device either.
        let stranger = PageAt { offset_bytes: (5 << 30) + page.offset_bytes * 97, owner: 1, leaf: false, ..*page };
        assert_eq!(read(&stranger).class, StreamClass::Application);
        let scattered = PageAt { offset_bytes: page.offset_bytes * 31, ..*page };
        classes.push(read(&scattered));
        next = by_owner(owner).find(|other| Some(other.number) == page.next);
    }
    println!("{} leaves in key order", classes.len());
    assert!(classes.len() > 16, "{}", classes.len());
    for (at, verdict) in classes.iter().enumerate() {
        let expected = if at < 15 { Evidence::None } else { Evidence::Chain };
        assert_eq!(verdict.evidence, expected, "{at}");
    }

    let Some(files) = common::archive("postgresql-15") else { return };
    let (_, wal) = files.iter().find(|(name, _)| name.contains("pg_wal/") || name.contains("wal")).expect("a log");
    let mut logged = 0;
    for (offset, page) in applications::pages(wal) {
        let at = PageAt::of(&page, offset as u64, None);
        let seen = Seen {
            at_ms: 0,
            offset_bytes: offset as u64,
            len_bytes: page.stored_bytes,
            write: true,
            origin: None,
            place: None,
            pages: at.as_slice(),
        };
        let class = Streams::default().note(&seen, &mut Vec::new());
        assert_eq!((class.class, class.evidence), (StreamClass::Log, Evidence::Content), "{offset}");
        logged += 1;
    }
    assert!(logged >= 16, "{logged}");
}

/// In the two loads of MariaDB only the redo log writes what is no multiple of 4 KiB, and only
/// tables and the doublewrite area write 16 KiB exactly: labels that the rules did not see when
/// they were made.
#[test]
fn redo_logs_of_other_loads_are_known_and_pages_are_none() {
    for name in ["mariadb-sysbench-30-90.csv", "mariadb-tpcc-w10.csv"] {
        let Some(path) = shared(&format!("traces/{name}.zst")) else { return };
        let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
        let (mut redo, mut pages) = ((0, 0), (0, 0));
        for request in traces::read::read_file(&path).expect("a trace") {
            let seen = Seen {
                at_ms: request.time_ns / 1_000_000,
                offset_bytes: request.offset_bytes,
                len_bytes: request.length_bytes as u32,
                write: request.write,
                origin: None,
                place: None,
                pages: &[],
            };
            let log = u64::from(streams.note(&seen, &mut confirmed).class == StreamClass::Log);
            confirmed.clear();
            match request.length_bytes {
                _ if !request.write => {}
                16384 => pages = (pages.0 + 1, pages.1 + log),
                length if length % 4096 != 0 => redo = (redo.0 + 1, redo.1 + log),
                _ => {}
            }
        }
        println!("{name}: {} of {} redo writes, {} of {} pages are called a log", redo.1, redo.0, pages.1, pages.0);
        assert!(redo.1 * 10 >= redo.0 * 8, "{name}: {redo:?}");
        assert!(pages.1 * 1000 <= pages.0, "{name}: {pages:?}");
    }
}
