//! Pages of real servers against what is known of them (`../shared/pages`). Skipped with a message
//! where the samples are absent.

use crate::common::{Label, archive, labels};
use applications::{Certainty, Native, Page, examine, innodb, pages, recognise};
use std::collections::BTreeMap;

const ARCHIVES: [&str; 5] = ["mariadb-10.11", "mysql-8", "postgresql-15", "sqlserver", "other"];
/// What a label calls a block that is no page.
const NO_PAGE: [&str; 2] = ["None", "Zero"];

/// What the page says, in the words of the labels: engine, type, space, page, index.
fn said(page: &Page, label: &Label) -> (String, String, String, String, String) {
    let or = |value: Option<u64>, word: &str| value.map_or(word.to_owned(), |value| value.to_string());
    let (engine, page_type, space, number, index) = match page.native {
        Native::Innodb(identity) => (
            "InnoDB",
            identity.page_type.to_string(),
            or(identity.space.map(u64::from), "?"),
            identity.page.to_string(),
            // The labels have a number where there is no index, too.
            identity.index.map_or(label.index.clone(), |index| index.to_string()),
        ),
        Native::Plain => panic!("{page:?}"),
        Native::Redo(innodb::redo::Block::Header { .. }) => ("InnoRedoHdr", "0".into(), "-".into(), "0".into(), "-".into()),
        Native::Redo(innodb::redo::Block::Records { .. }) => ("InnoRedo", String::new(), String::new(), String::new(), String::new()),
        Native::Binlog => ("Binlog", "0".into(), "-".into(), "0".into(), "-".into()),
        Native::Postgres(identity) => {
            use applications::postgres::Method::{FreeSpaceMap, Heap, VisibilityMap};
            let method = if matches!(identity.method, Heap | FreeSpaceMap | VisibilityMap) { "heap-like" } else { identity.method.name() };
            let truth: u32 = label.page.parse().expect("a block");
            let by_checksum = identity.blocks_by_checksum.contains(&Some(truth));
            let block = if by_checksum { truth.to_string() } else { format!("{:?}", identity.blocks_by_checksum) };
            ("Pg", method.into(), "-".into(), block, "-".into())
        }
        Native::Wal(identity) => ("PgWal", identity.magic.to_string(), label.space.clone(), label.page.clone(), label.index.clone()),
        Native::FilenodeMap => ("PgFilenodeMap", String::new(), String::new(), String::new(), String::new()),
        Native::Mssql(identity) => (
            "MsSql",
            identity.page_type.to_string(),
            identity.file.to_string(),
            identity.page.to_string(),
            identity.allocation_unit().to_string(),
        ),
        Native::Oracle(_) => ("Oracle", String::new(), String::new(), String::new(), String::new()),
        Native::Sqlite(page_type) => ("Sqlite", label_of_sqlite(page_type), label.space.clone(), label.page.clone(), label.index.clone()),
        Native::SqliteWal => ("SqliteWal", "0".into(), label.space.clone(), label.page.clone(), label.index.clone()),
        Native::WiredTiger(page_type) => {
            ("WiredTiger", page_type.to_string(), label.space.clone(), label.page.clone(), label.index.clone())
        }
    };
    (engine.into(), page_type, space, number, index)
}

fn label_of_sqlite(page_type: u8) -> String {
    if page_type == 0 { "1".into() } else { page_type.to_string() }
}

#[test]
fn every_sample_page_is_found_and_says_what_it_is() {
    let mut by_engine: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for name in ARCHIVES {
        let Some(files) = archive(name) else { return };
        for label in labels(&files) {
            let bytes = &files[&label.file];
            let rest = &bytes[label.offset.min(bytes.len())..];
            if NO_PAGE.contains(&label.engine.as_str()) {
                continue;
            }
            let page = examine(rest);
            let counts = by_engine.entry(format!("{name} {}", label.engine)).or_default();
            counts.1 += 1;
            let Some(page) = page else {
                println!("missed: {} {} {} {} {}", label.file, label.offset, label.engine, label.page_type, label.checksum);
                continue;
            };
            counts.0 += 1;
            let truth = (label.engine.clone(), label.page_type.clone(), label.space.clone(), label.page.clone(), label.index.clone());
            assert_eq!(said(&page, &label), truth, "{} at {}", label.file, label.offset);
            let proven = !matches!(label.checksum.as_str(), "-" | "none" | "bad");
            if proven && label.engine != "Pg" {
                assert_eq!(page.certainty, Certainty::Verified, "{} at {}: {page:?}", label.file, label.offset);
            }
            let sound = page.certainty != Certainty::Suspect;
            assert!(sound || label.engine == "Sqlite" || label.checksum == "none", "{} at {}: {page:?}", label.file, label.offset);
        }
    }
    println!("{by_engine:#?}");
    for (engine, (found, all)) in by_engine {
        assert_eq!(found, all, "{engine}");
    }
}

#[test]
fn blocks_that_are_no_pages_are_none() {
    let mut blocks = 0;
    for name in ARCHIVES {
        let Some(files) = archive(name) else { return };
        for label in labels(&files) {
            let bytes = &files[&label.file];
            if !NO_PAGE.contains(&label.engine.as_str()) || label.file.ends_with("pg_filenode.map") {
                continue;
            }
            blocks += 1;
            let found = recognise(&bytes[label.offset..(label.offset + label.length).min(bytes.len())]);
            assert_eq!(found, None, "{name}/{} at {}", label.file, label.offset);
        }
    }
    println!("{blocks} blocks");
}

#[test]
fn of_what_is_no_page_nothing_is_said_and_of_damaged_ones_nothing_sure() {
    let Some(files) = archive("negative") else { return };
    let names = String::from_utf8(files["blocks16k.tsv"].clone()).expect("text");
    let mut suspect = 0;
    for (block, line) in files["blocks16k.bin"].chunks_exact(16384).zip(names.lines().skip(1)) {
        let name = line.split('\t').nth(1).expect("a name");
        // An empty page of PostgreSQL is whole, yet nothing but zeroes with a header.
        let damaged = (name.starts_with("innodb_") || name.starts_with("pg_")) && name != "pg_header_only_empty_page";
        for at in (0..16384).step_by(4096) {
            let found = examine(&block[at..]);
            let allowed = found.is_none_or(|page| damaged && page.certainty == Certainty::Suspect);
            // The second half of the torn page is that of a whole one, the rest of two PostgreSQL
            // pages too.
            assert!(allowed || (name.starts_with("pg_") && at >= 8192), "{name} at {at}: {found:?}");
            suspect += u32::from(at == 0 && found.is_some());
        }
    }
    // All but the shifted one, which begins in the middle of a page.
    assert_eq!(suspect, 5);
}

#[test]
fn a_stride_over_a_file_meets_each_of_its_pages_once() {
    let Some(files) = archive("mariadb-10.11") else { return };
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".ibd")) {
        let mut expected: Vec<usize> =
            labels(&files).iter().filter(|label| label.file == *name && label.engine == "InnoDB").map(|label| label.offset).collect();
        let found: Vec<usize> = pages(bytes).map(|(at, _)| at).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{name}");
    }
}
