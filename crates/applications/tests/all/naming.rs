//! Names read from dictionary pages against the servers' own catalogues (`../shared/pages`).
//! Skipped with a message where the samples are absent.

use crate::common::{Numbers, archive};
use applications::naming::{Dictionary, Name, NativeKey};
use applications::{Native, examine, pages};
use std::collections::BTreeMap;

type Files = BTreeMap<String, Vec<u8>>;

/// Feeds every page of the files that `wanted` takes.
fn dictionary(files: &Files, wanted: impl Fn(&str) -> bool) -> Dictionary {
    let mut dictionary = Dictionary::new();
    for (_, bytes) in files.iter().filter(|(name, _)| wanted(name)) {
        for (at, page) in pages(bytes) {
            dictionary.page(&page, &bytes[at..], at as u64);
        }
    }
    dictionary
}

fn by_key(dictionary: &Dictionary) -> BTreeMap<NativeKey, Name> {
    let mut names = BTreeMap::new();
    for name in dictionary.names() {
        if let Some(other) = names.insert(name.key, name) {
            panic!("twice: {other:?}");
        }
    }
    names
}

fn lines<'a>(files: &'a Files, name: &str) -> Vec<Vec<&'a str>> {
    let text = std::str::from_utf8(&files[name]).expect("text");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect()
}

#[test]
fn mariadb_indexes_have_the_names_of_the_catalogue() {
    let Some(files) = archive("mariadb-10.11") else { return };
    let dictionary = dictionary(&files, |_| true);
    let names = by_key(&dictionary);
    let expected = lines(&files, "expected_indexes.tsv");
    for row in &expected {
        let key = NativeKey(row[3].parse().expect("a space"), row[0].parse().expect("an index"));
        let name = names.get(&key).unwrap_or_else(|| panic!("{row:?} has no name"));
        let full = format!("{}/{}", name.database.as_deref().unwrap_or(""), name.table.as_deref().unwrap_or(""));
        assert_eq!((full.as_str(), name.index.as_deref(), name.root), (row[1], Some(row[2]), row[4].parse().ok()));
    }
    println!("{} of {}; {} names in all, {} conflicts", expected.len(), expected.len(), names.len(), dictionary.conflicts());
    names.values().for_each(|name| println!("{name:?}"));
    // And every index page in the clear has a name.
    let mut unnamed = std::collections::BTreeSet::new();
    for bytes in files.values() {
        for (_, page) in pages(bytes) {
            if let Native::Innodb(identity) = page.native
                && let (Some(space), Some(index)) = (identity.space, identity.index)
                && !names.contains_key(&NativeKey(space, index))
            {
                unnamed.insert((space, index));
            }
        }
    }
    println!("indexes with pages and no name: {unnamed:?}");
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn mysql_8_tables_describe_themselves() {
    let Some(files) = archive("mysql-8") else { return };
    for version in ["8.0", "8.4"] {
        let names = by_key(&dictionary(&files, |name| name.starts_with(version)));
        let mut pages_of = BTreeMap::new();
        for (file, bytes) in files.iter().filter(|(name, _)| name.starts_with(version)) {
            for (_, page) in pages(bytes) {
                let Native::Innodb(identity) = page.native else { continue };
                // The index of the descriptions themselves has the highest id.
                if let (Some(space), Some(index)) = (identity.space, identity.index.filter(|index| *index != u64::MAX)) {
                    pages_of.insert(NativeKey(space, index), file.clone());
                }
            }
        }
        println!("{version}: {} indexes with pages", pages_of.len());
        for (key, file) in &pages_of {
            let name = names.get(key).unwrap_or_else(|| panic!("{key:?} of {file} has no name"));
            let table = file.trim_start_matches(version).trim_matches('/').trim_end_matches(".ibd");
            assert_eq!((name.database.as_deref(), name.table.as_deref()), (Some("sakila"), Some(table)));
            println!("{name:?}");
        }
    }
}

#[test]
fn postgresql_relations_have_the_names_of_the_catalogue() {
    let Some(files) = archive("postgresql-15") else { return };
    let dictionary = dictionary(&files, |_| true);
    let names = by_key(&dictionary);
    let expected = lines(&files, "expected_relations.tsv");
    for row in &expected {
        let name = &names[&NativeKey(0, row[2].parse().expect("a file"))];
        let is_index = row[3] == "i";
        if is_index {
            assert_eq!(name.index.as_deref(), Some(row[0]));
        } else if row[3] == "t" {
            assert!(["items", "big"].contains(&name.table.as_deref().expect("a table")), "{name:?}");
        } else {
            assert_eq!(name.table.as_deref(), Some(row[0]));
        }
        assert!(name.schema.is_some(), "{name:?}");
    }
    println!("{} of {}; {} names in all, {} conflicts", expected.len(), expected.len(), names.len(), dictionary.conflicts());
    // The catalogue's own file is known from the map alone.
    assert_eq!(names[&NativeKey(0, 1259)].table.as_deref(), Some("pg_class"));
}

#[test]
fn sql_server_pages_have_names() {
    let Some(files) = archive("sqlserver") else { return };
    for file in ["SampleDb.mdf.first154pages", "SamplDB.mdf.first154pages"] {
        let names = by_key(&dictionary(&files, |name| name == file));
        let (mut named, mut all) = (0, 0);
        for (_, page) in pages(&files[file]) {
            let Native::Mssql(identity) = page.native else { continue };
            // The maps of the file belong to no object: 99.
            if identity.object == 99 {
                continue;
            }
            all += 1;
            let found = names.get(&NativeKey(0, identity.allocation_unit()));
            named += usize::from(found.is_some());
            if found.is_none() {
                println!(
                    "{file}: page {} of object {} index {} type {}",
                    identity.page, identity.object, identity.index, identity.page_type
                );
            }
        }
        println!("{file}: {named} of {all} pages, {} names", names.len());
        names.values().filter(|name| name.kind != applications::ObjectKind::Dictionary).for_each(|name| println!("{name:?}"));
        assert!(named * 141 >= 134 * all, "{file}: {named} of {all}");
    }
}

#[test]
fn damaged_dictionary_pages_are_safe() {
    let mut numbers = Numbers(5);
    for (name, file) in [
        ("mariadb-10.11", "ibdata1"),
        ("mysql-8", "8.4/film.ibd"),
        ("postgresql-15", "base/16384/1259"),
        ("postgresql-15", "base/16384/pg_filenode.map"),
        ("sqlserver", "SampleDb.mdf.first154pages"),
    ] {
        let Some(files) = archive(name) else { return };
        let found: Vec<_> = pages(&files[file]).map(|(at, page)| (page, &files[file][at..])).collect();
        let mut read = 0;
        for (page, bytes) in found {
            let bytes = &bytes[..bytes.len().min(page.size_bytes as usize)];
            if !Dictionary::new().page(&page, bytes, 0) {
                continue;
            }
            read += 1;
            for _ in 0..200 {
                let mut bad = bytes.to_vec();
                for _ in 0..=numbers.below(30) {
                    let at = numbers.below(bad.len());
                    let length = numbers.below(9).min(bad.len() - at);
                    let junk = numbers.bytes(length);
                    bad[at..at + length].copy_from_slice(&junk);
                }
                bad.truncate(bad.len() - numbers.below(2) * numbers.below(bad.len()));
                let mut dictionary = Dictionary::new();
                // As if it were the page that it was: what stands in it must be safe to follow.
                dictionary.page(&page, &bad, 0);
                if let Some(page) = examine(&bad) {
                    dictionary.page(&page, &bad, 0);
                }
                assert!(dictionary.names().count() < 10_000);
            }
        }
        println!("{file}: {read} pages");
        assert!(read > 0, "{file}");
    }
}
