//! Images of XFS file systems, made by `mkfs.xfs` from a description of what is to be in them: no
//! mount, no root. Only what is not zero of them is held.

use super::Numbers;
use super::raw::Files;
use applications::discovery::{self, Discovery};
use applications::filesystems::xfs::{Refused, Xfs};
use applications::filesystems::{DataFile, Found, Limits};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The least that `mkfs.xfs` makes is 300 MiB.
pub const BYTES: u64 = 320 << 20;
/// What an image is held in.
const PIECE_BYTES: u64 = 4096;

/// A volume of which only pieces that are not zero take memory.
#[derive(Clone, Default)]
pub struct Sparse {
    pub bytes: u64,
    pub pieces: BTreeMap<u64, Vec<u8>>,
    /// Which pieces were read.
    pub read: RefCell<BTreeSet<u64>>,
}

impl Sparse {
    /// A file's content, of which the holes are passed over.
    pub fn of(path: &Path) -> Sparse {
        let file = std::fs::File::open(path).expect("an image");
        let bytes = file.metadata().expect("its size").len();
        let mut volume = Sparse { bytes, ..Sparse::default() };
        let mut buffer = vec![0; 1 << 20];
        for at in (0..bytes).step_by(buffer.len()) {
            let len = (bytes - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..len], at).expect("its bytes");
            for (index, piece) in buffer[..len].chunks(PIECE_BYTES as usize).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    volume.pieces.insert(at / PIECE_BYTES + index as u64, piece.to_vec());
                }
            }
        }
        volume
    }

    /// The same volume behind so many pieces of zeroes.
    pub fn behind(self, pieces: u64) -> Sparse {
        let moved = self.pieces.into_iter().map(|(number, piece)| (number + pieces, piece)).collect();
        Sparse { bytes: self.bytes + pieces * PIECE_BYTES, pieces: moved, ..Sparse::default() }
    }

    /// Bytes of it, zeroes where nothing is; `false` behind its end.
    pub fn copy(&self, offset: u64, bytes: &mut [u8]) -> bool {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes) {
            return false;
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let inside = (at % PIECE_BYTES) as usize;
            let (now, later) = rest.split_at_mut(rest.len().min(PIECE_BYTES as usize - inside));
            self.read.borrow_mut().insert(at / PIECE_BYTES);
            match self.pieces.get(&(at / PIECE_BYTES)) {
                Some(piece) => now.copy_from_slice(&piece[inside..inside + now.len()]),
                None => now.fill(0),
            }
            (at, rest) = (at + now.len() as u64, later);
        }
        true
    }

    pub fn reading(&self) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
        |offset, bytes| {
            assert!(offset.is_multiple_of(512) && bytes.len().is_multiple_of(512), "{} bytes at {offset}", bytes.len());
            self.copy(offset, bytes)
        }
    }

    pub fn search(&self, start: u64, limits: &Limits) -> Result<Found, Refused> {
        let file_system = Xfs::open(&mut self.reading(), start)?;
        Ok(file_system.data_files(&mut self.reading(), limits))
    }

    /// The bytes of a file, by its extents.
    pub fn bytes_of(&self, file: &DataFile) -> Vec<u8> {
        let mut bytes = vec![0; file.bytes as usize];
        for extent in file.extents.iter().filter(|extent| extent.written && extent.file_offset < file.bytes) {
            let len = extent.bytes.min(file.bytes - extent.file_offset) as usize;
            let to = extent.file_offset as usize;
            assert!(self.copy(extent.volume_offset, &mut bytes[to..to + len]));
        }
        bytes
    }
}

/// An image with files, and with directories of so many empty files by their paths; `None`, with a
/// message, where there is no `mkfs.xfs`, or not with these options.
pub fn image(files: &Files, empty: &[(&str, usize)], options: &[&str]) -> Option<Sparse> {
    image_of(BYTES, files, empty, options)
}

/// The same of other than the usual size.
pub fn image_of(size_bytes: u64, files: &Files, empty: &[(&str, usize)], options: &[&str]) -> Option<Sparse> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut root = Directory::default();
    for (number, (path, bytes)) in files.iter().enumerate() {
        let source = directory.path().join(number.to_string());
        std::fs::write(&source, bytes).expect("written");
        root.put(path, source.to_str().expect("a name"));
    }
    for (path, count) in empty {
        for number in 0..*count {
            root.put(&format!("{path}/{}", name(number)), "/dev/null");
        }
    }
    let mut text = String::from("/\n0 0\nd--755 0 0\n");
    root.write(&mut text);
    let description = directory.path().join("description");
    std::fs::write(&description, text).expect("written");
    let image = directory.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(size_bytes)).expect("an image");
    let (description, path) = (description.to_str().expect("a name"), image.to_str().expect("a name"));
    let arguments = [&["-q", "-f"], options, &["-p", description, path]].concat();
    let made = Command::new("mkfs.xfs").args(&arguments).output();
    match made {
        Ok(output) if output.status.success() => return Some(Sparse::of(&image)),
        // Versions of it differ in what they still make, or make already.
        Ok(output) if !options.is_empty() => {
            let told = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
            println!("skipped: mkfs.xfs {}: {told}", options.join(" "));
        }
        Ok(output) => panic!("mkfs.xfs: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("skipped: mkfs.xfs: {error}"),
    }
    None
}

/// The name of one of many files.
pub fn name(number: usize) -> String {
    format!("table_{number:06}.ibd")
}

/// A directory of the description.
#[derive(Default)]
struct Directory {
    directories: BTreeMap<String, Directory>,
    /// Where the contents come from.
    files: BTreeMap<String, String>,
}

impl Directory {
    fn put(&mut self, path: &str, source: &str) {
        match path.split_once('/') {
            Some((first, rest)) => self.directories.entry(first.to_owned()).or_default().put(rest, source),
            None => drop(self.files.insert(path.to_owned(), source.to_owned())),
        }
    }

    fn write(&self, text: &mut String) {
        for (name, source) in &self.files {
            writeln!(text, "{name} ---644 0 0 {source}").expect("text");
        }
        for (name, directory) in &self.directories {
            writeln!(text, "{name} d--755 0 0").expect("text");
            directory.write(text);
        }
        text.push_str("$\n");
    }
}

/// Files as databases have them, and others.
pub fn files() -> Files {
    let mut numbers = Numbers(16);
    let mut files = Files::new();
    let mut put = |path: &str, count| files.insert(path.to_owned(), numbers.bytes(count));
    put("var/lib/mysql/ibdata1", 3 << 20);
    put("var/lib/mysql/shop/items.ibd", 200 << 10);
    put("var/lib/mysql/ib_logfile0", 100_000);
    put("var/lib/postgresql/15/main/base/16384/16390", 81_920);
    put("var/lib/postgresql/15/main/pg_wal/000000010000000000000001", 1 << 20);
    put("opt/data/Shop.mdf", 300_000);
    put("etc/passwd", 1_000);
    files
}

/// Whether a search kept its limits.
pub fn is_within(found: &Found, limits: &Limits) -> bool {
    found.bytes_read <= limits.bytes
        && found.directories <= limits.directories
        && found.files.len() <= limits.files
        && found.files.iter().map(|file| file.extents.len()).sum::<usize>() <= limits.extents
}

/// What a discovery finds by reads of that function.
pub fn discover(bytes: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> discovery::Found {
    discover_with(Discovery::new(bytes), read)
}

/// What a discovery under way finds.
pub fn discover_with(mut discovery: Discovery, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> discovery::Found {
    let mut buffer = Vec::new();
    while let Some(wanted) = discovery.next() {
        buffer.resize(wanted.len_bytes, 0);
        let can = read(wanted.offset_bytes, &mut buffer);
        discovery.give(wanted.offset_bytes, if can { Ok(&buffer) } else { Err(()) });
    }
    discovery.finish()
}
