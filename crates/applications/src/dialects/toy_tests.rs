//! A database that is one file and one line is recognised, found on a volume and named, and its streams are seen.

use super::*;
use crate::discovery::{Discovery, Found, Object};
use crate::naming::Dictionary;
use crate::streams::{Described, Evidence as Why, PageAt, Rules, Seen, Streams};
use crate::{examine, pages, recognise};

/// A page of a table; `text` stands behind its head.
fn page(table: u32, number: u32, text: &str) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    page[..4].copy_from_slice(b"TOYP");
    for (at, word) in [(4, table), (8, number), (12, table + number)] {
        page[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    page[16..16 + text.len()].copy_from_slice(text.as_bytes());
    page[4092..].copy_from_slice(b"end.");
    page
}

fn log_page() -> Vec<u8> {
    [&b"TOYL"[..], &[0; 4092]].concat()
}

/// The file of a database with the tables `orders` and `items`, two pages each.
fn data() -> Vec<u8> {
    [page(0, 0, "orders items"), page(1, 1, ""), page(1, 2, ""), page(2, 3, ""), page(2, 4, "")].concat()
}

/// A volume with an ext4 and the files of a server; `None`, with a message, where there is no `mkfs.ext4`.
fn volume() -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a directory");
    let (root, image) = (directory.path().join("root"), directory.path().join("image"));
    std::fs::create_dir_all(root.join("srv/toy")).expect("made");
    std::fs::write(root.join("srv/toy/base.toy"), data()).expect("written");
    std::fs::write(root.join("srv/toy").join(LOG), log_page()).expect("written");
    let made = std::process::Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-d"]).arg(root).arg(&image).arg("8M").output();
    match made {
        Ok(output) => assert!(output.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: mkfs.ext4: {error}");
            return None;
        }
    }
    Some(std::fs::read(image).expect("an image"))
}

fn discover(volume: &[u8]) -> Found {
    let mut discovery = Discovery::new(volume.len() as u64);
    while let Some(read) = discovery.next() {
        let at = read.offset_bytes as usize;
        discovery.give(read.offset_bytes, Ok(&volume[at..at + read.len_bytes]));
    }
    discovery.finish()
}

#[test]
fn its_pages_are_recognised_and_named() {
    let data = data();
    let found: Vec<_> = pages(&data).map(|(at, page)| (at, page.engine, page.number)).collect();
    assert_eq!(found, (0..5).map(|number| (4096 * number as usize, Engine::Toy, Some(number))).collect::<Vec<_>>());
    assert_eq!(recognise(&data).map(|page| page.certainty), Some(Certainty::Likely));
    assert_eq!(examine(&data).map(|page| page.certainty), Some(Certainty::Verified));
    assert_eq!(recognise(&log_page()).map(|page| (page.engine, page.kind)), Some((Engine::Toy, PageKind::Log)));
    let mut dictionary = Dictionary::new();
    let read = pages(&data).filter(|(at, page)| dictionary.page(page, &data[*at..], *at as u64)).count();
    assert_eq!(read, 1);
    assert_eq!(dictionary.names().filter_map(|name| name.table).collect::<Vec<_>>(), ["orders", "items"]);
}

#[test]
fn its_files_are_found_on_a_volume() {
    let Some(volume) = volume() else { return };
    let found = discover(&volume);
    let [application] = &found.applications[..] else { panic!("{:?}", found.applications) };
    assert_eq!((application.engine, application.instance.as_deref()), (Engine::Toy, Some("srv/toy")));
    assert_eq!(application.known_by(), "page content, file map");
    let names: Vec<_> = found.objects.iter().map(|object| (object.name.as_str(), object.kind)).collect();
    let (table, unknown) = (ObjectKind::Table, ObjectKind::Unknown);
    assert_eq!(names, [("items", table), ("orders", table), ("redo", ObjectKind::Redo), ("srv/toy/base.toy", unknown)]);
    // Pages lead to tables, and places to files.
    let items = found.owner_of_page(Engine::Toy, 2).and_then(|id| found.object(id)).expect("a table");
    assert_eq!((items.name.as_str(), found.knows(Engine::Toy, 3)), ("items", false));
    let file = found.objects.iter().find(|object| object.name.ends_with("base.toy")).expect("a file");
    let place = found.extents(file.id).next().expect("an extent").bytes.start;
    assert_eq!(found.at(place + 4096), Some((file.id, 4096)));
    assert_eq!(volume[place as usize..place as usize + data().len()], data());
    // It is found again under the same numbers.
    let again = Discovery::again(&found, volume.len() as u64);
    let ids = |found: &Found| found.objects.iter().map(|object: &Object| object.id).collect::<Vec<_>>();
    let mut again = again;
    while let Some(read) = again.next() {
        let at = read.offset_bytes as usize;
        again.give(read.offset_bytes, Ok(&volume[at..at + read.len_bytes]));
    }
    assert_eq!(ids(&again.finish()), ids(&found));
}

#[test]
fn its_streams_are_told_apart() {
    let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
    let mut note = |write, offset_bytes, bytes: &[u8]| {
        let page = recognise(bytes).expect("a page");
        let at = PageAt::of(&page, offset_bytes, None).expect("of use to a rule");
        let pages = std::slice::from_ref(&at);
        streams.note(&Seen { at_ms: 0, offset_bytes, len_bytes: PAGE_BYTES, write, origin: None, place: None, pages }, &mut confirmed)
    };
    // Leaves in key order, wherever they lie.
    let reads: Vec<_> = (1..40).map(|number| note(false, u64::from(number * 7919 % 512) << 20, &page(1, number, ""))).collect();
    assert_eq!(reads.last().map(|verdict| (verdict.class, verdict.evidence)), Some((StreamClass::Scan, Why::Chain)));
    let log = note(true, 5 << 30, &log_page());
    assert_eq!((log.class, log.evidence), (StreamClass::Log, Why::Content));
    let dump = Described { process: Some("toydump"), ..Described::default() };
    assert_eq!(Rules::usual().first(&dump).map(|(_, class)| class), Some(StreamClass::Backup));
}
