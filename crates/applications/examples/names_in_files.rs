//! Names that the pages of some files give: one dictionary for all files below the directories.
//!
//! `cargo run --release -p applications --example names_in_files -- DATA_DIRECTORY...`

use applications::naming::Dictionary;
use applications::pages;
use std::path::Path;

fn main() {
    let mut dictionary = Dictionary::new();
    for root in std::env::args().skip(1) {
        visit(Path::new(&root), &mut dictionary);
    }
    for name in dictionary.names() {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
        println!(
            "{:?}\t{}\t{}\t{}\t{}\t{:?}",
            name.key,
            part(&name.database),
            part(&name.schema),
            part(&name.table),
            part(&name.index),
            name.kind
        );
    }
    eprintln!("{} conflicts", dictionary.conflicts());
}

fn visit(path: &Path, dictionary: &mut Dictionary) {
    let Ok(about) = std::fs::symlink_metadata(path) else { return };
    if about.is_dir() {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        entries.flatten().for_each(|entry| visit(&entry.path(), dictionary));
    } else if about.is_file()
        && let Ok(bytes) = std::fs::read(path)
    {
        for (at, page) in pages(&bytes) {
            dictionary.page(&page, &bytes[at..], at as u64);
        }
    }
}
