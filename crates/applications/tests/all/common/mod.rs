//! The sample pages (`../shared/pages`), and a small source of seeded numbers.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod images;
pub mod raw;
pub mod xfs;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// The files of one archive by name; `None`, with a message, where it is not there.
pub fn archive(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/pages")).join(format!("{name}.tar.zst"));
    if !path.is_file() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    let file = std::fs::File::open(path).expect("it can be read");
    let unpacked = ruzstd::decoding::StreamingDecoder::new(file).expect("Zstandard");
    let mut archive = tar::Archive::new(unpacked);
    let mut files = BTreeMap::new();
    for entry in archive.entries().expect("a tar archive") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a name").to_string_lossy().into_owned();
        let inside = path.trim_start_matches("./").split_once('/').map_or("", |(_, inside)| inside).to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("its bytes");
        if entry.header().entry_type().is_file() || !bytes.is_empty() {
            files.insert(inside, bytes);
        }
    }
    Some(files)
}

/// A line of `labels.tsv`.
pub struct Label {
    pub file: String,
    pub offset: usize,
    pub length: usize,
    pub engine: String,
    pub page_type: String,
    pub space: String,
    pub page: String,
    pub index: String,
    pub checksum: String,
}

/// All lines of an archive's `labels.tsv`.
pub fn labels(files: &BTreeMap<String, Vec<u8>>) -> Vec<Label> {
    let text = String::from_utf8(files["labels.tsv"].clone()).expect("text");
    let line = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let cell = |at: usize| cells[at].to_owned();
        Label {
            file: cell(0),
            offset: cells[1].parse().expect("an offset"),
            length: cells[2].parse().expect("a length"),
            engine: cell(3),
            page_type: cell(4),
            space: cell(5),
            page: cell(6),
            index: cell(7),
            checksum: cell(8),
        }
    };
    text.lines().filter(|text| !text.starts_with('#')).map(line).collect()
}

/// Splitmix64.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }
}
