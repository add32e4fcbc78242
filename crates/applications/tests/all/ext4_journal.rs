//! What is committed in the journal of an ext4 file system and not yet at its home, in journals
//! that `debugfs` wrote. Skipped with a message where the tools are missing.

use crate::common::Numbers;
use crate::common::raw::{Files, Volume, bytes_of, run};
use applications::discovery::Discovery;
use applications::filesystems::Limits;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;

/// File systems whose journals differ: sizes of blocks, checksums, 64-bit numbers.
const KINDS: [(&[&str], &[&str]); 5] = [
    (&["-b", "4096"], &["-c", "-v", "3"]),
    (&["-b", "1024"], &["-c", "-v", "3"]),
    (&["-b", "4096", "-O", "metadata_csum"], &["-c", "-v", "2"]),
    (&["-b", "4096", "-O", "^metadata_csum,^64bit"], &[]),
    (&["-b", "1024", "-O", "^metadata_csum,64bit"], &[]),
];

/// A file system as it is at home, what was done to it since, and the files that came.
struct Case {
    directory: tempfile::TempDir,
    block_bytes: usize,
    options: &'static [&'static str],
    /// Blocks of metadata that are different now.
    changed: Vec<usize>,
    later: Vec<u8>,
    files: Files,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

impl Case {
    fn new(kind: (&'static [&'static str], &'static [&'static str]), mib: usize) -> Option<Case> {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        let size = format!("{mib}M");
        let mut arguments = vec!["-q", "-F", "-E", "lazy_itable_init=0"];
        arguments.extend(kind.0);
        arguments.extend([text(&image), &size]);
        if !run("mkfs.ext4", &arguments) {
            return None;
        }
        let before = std::fs::read(&image).expect("an image");
        let (mut numbers, mut files) = (Numbers(11), Files::new());
        let mut commands = String::from("mkdir mysql\nmkdir mysql/shop\n");
        for number in 0..40 {
            let path = format!("mysql/shop/table_{number}.ibd");
            let bytes = numbers.bytes(1000 + 700 * number);
            let source = directory.path().join("source");
            // One source for each, all of them read when the commands run.
            let source = source.with_extension(number.to_string());
            std::fs::write(&source, &bytes).expect("written");
            commands += &format!("write {} {path}\n", text(&source));
            files.insert(path, bytes);
        }
        let script = directory.path().join("commands");
        std::fs::write(&script, commands).expect("written");
        if !run("debugfs", &["-w", "-f", text(&script), text(&image)]) {
            return None;
        }
        let later = std::fs::read(&image).expect("an image");
        let block_bytes: usize = kind.0[1].parse().expect("a number");
        let found = Volume(later.clone()).search(0, &Limits::default()).expect("a file system");
        assert_eq!(found.files.len(), files.len());
        // Data goes to its home before metadata is committed; the superblock is not in the journal.
        let mut home = before;
        let mut data = BTreeSet::from([1024 / block_bytes]);
        for extent in found.files.iter().flat_map(|file| &file.extents) {
            let (at, end) = (extent.volume_offset as usize, (extent.volume_offset + extent.bytes) as usize);
            home[at..end].copy_from_slice(&later[at..end]);
            data.extend(at / block_bytes..end / block_bytes);
        }
        let differs = |block: &usize| home[block * block_bytes..][..block_bytes] != later[block * block_bytes..][..block_bytes];
        let changed: Vec<usize> = (0..home.len() / block_bytes).filter(|block| !data.contains(block)).filter(differs).collect();
        assert!(changed.len() > 3, "{changed:?}");
        std::fs::write(&image, &home).expect("written");
        Some(Case { directory, block_bytes, options: kind.1, changed, later, files })
    }

    /// Commits a transaction of blocks of the later state, or of revocations.
    fn commit(&self, blocks: &[usize], revoked: &[usize]) -> Volume {
        let content = self.directory.path().join("content");
        // Ranges: a line of debugfs has some thousand letters at most.
        let ranges = |blocks: &[usize]| {
            blocks.chunk_by(|one, next| one + 1 == *next).map(|run| format!("{}-{}", run[0], run[run.len() - 1])).collect::<Vec<_>>()
        };
        let list = |blocks: &[usize]| ranges(blocks).join(",");
        let mut bytes = Vec::new();
        for block in blocks {
            bytes.extend(&self.later[block * self.block_bytes..][..self.block_bytes]);
        }
        std::fs::write(&content, bytes).expect("written");
        let mut commands = String::new();
        if !blocks.is_empty() {
            commands += &format!("jw -b {} {}\n", list(blocks), text(&content));
        }
        if !revoked.is_empty() {
            commands += &format!("jw -r {}\n", list(revoked));
        }
        self.write(&commands)
    }

    /// Writes to the journal what commands of `debugfs` say.
    fn write(&self, commands: &str) -> Volume {
        let (image, script) = (self.directory.path().join("image"), self.directory.path().join("commands"));
        std::fs::write(&script, format!("jo {}\n{commands}jc\n", self.options.join(" "))).expect("written");
        assert!(run("debugfs", &["-w", "-f", text(&script), text(&image)]));
        Volume(std::fs::read(image).expect("an image"))
    }

    /// The files that are found, each with its bytes.
    fn found(&self, volume: &Volume) -> usize {
        let found = volume.search(0, &Limits::default()).expect("a file system");
        for file in &found.files {
            assert!(bytes_of(volume, file) == self.files[&file.path], "{} has other bytes", file.path);
        }
        found.files.len()
    }
}

/// Where the blocks of the journal lie in the image: by their magic number, the first is the
/// superblock.
fn headers(volume: &Volume, block_bytes: usize, kind: u32) -> Vec<usize> {
    let word = |at: usize| u32::from_be_bytes(volume.0[at..at + 4].try_into().expect("four bytes"));
    (0..volume.0.len()).step_by(block_bytes).filter(|at| word(*at) == 0xc03b_3998 && word(at + 4) == kind).collect()
}

#[test]
fn what_is_committed_is_found_though_not_at_home() {
    for kind in KINDS {
        println!("{kind:?}");
        let Some(case) = Case::new(kind, 32) else { return };
        let home = Volume(std::fs::read(case.directory.path().join("image")).expect("an image"));
        assert_eq!(case.found(&home), 0, "nothing is at home");
        let (first, last) = case.changed.split_at(case.changed.len() / 2);
        case.commit(first, &[]);
        let whole = case.commit(last, &[]);
        assert_eq!(case.found(&whole), case.files.len());
        // A commit that was never written, or half, does not count: nor does what follows it.
        let commits = headers(&whole, case.block_bytes, 2);
        assert!(commits.len() >= 2, "{commits:?}");
        for commit in commits {
            let mut torn = Volume(whole.0.clone());
            torn.0[commit..commit + 12].fill(0);
            assert!(case.found(&torn) < case.files.len());
        }
    }
}

#[test]
fn what_is_revoked_is_read_at_home() {
    for kind in KINDS {
        println!("{kind:?}");
        let Some(case) = Case::new(kind, 32) else { return };
        case.commit(&case.changed, &[]);
        let revoked = case.commit(&[], &case.changed);
        assert_eq!(case.found(&revoked), 0);
        // Written again later.
        let again = case.commit(&case.changed, &[]);
        assert_eq!(case.found(&again), case.files.len());
    }
}

/// Moves the transactions of a journal back by some blocks, around its beginning.
fn turned(case: &Case, volume: &Volume, back: usize) -> Volume {
    let image = case.directory.path().join("image");
    let told = Command::new("debugfs").args(["-R", "blocks <8>", text(&image)]).output().expect("it ran before");
    let told = String::from_utf8(told.stdout).expect("text");
    let places: Vec<usize> = told.split_whitespace().map(|block| block.parse::<usize>().expect("a block") * case.block_bytes).collect();
    let word = |at: usize| u32::from_be_bytes(volume.0[places[0] + at..places[0] + at + 4].try_into().expect("four bytes")) as usize;
    let (end, first, start) = (word(0x10), word(0x14), word(0x1c));
    assert_eq!(places.len(), end);
    let mut turned = Volume(volume.0.clone());
    let moved = |block: usize| first + (block - first + (end - first) - back) % (end - first);
    for block in first..end {
        turned.0[places[moved(block)]..][..case.block_bytes].copy_from_slice(&volume.0[places[block]..][..case.block_bytes]);
    }
    turned.0[places[0] + 0x1c..][..4].copy_from_slice(&(moved(start) as u32).to_be_bytes());
    turned
}

#[test]
fn a_journal_goes_around_its_end() {
    for kind in KINDS {
        let Some(case) = Case::new(kind, 32) else { return };
        let (first, last) = case.changed.split_at(case.changed.len() / 2);
        case.commit(first, &[]);
        let whole = case.commit(last, &[]);
        for back in [1, 2, 3, 5, 8] {
            assert_eq!(case.found(&turned(&case, &whole, back)), case.files.len(), "{kind:?} {back}");
        }
    }
}

#[test]
fn a_copy_that_was_overwritten_meanwhile_is_not_used() {
    let Some(case) = Case::new(KINDS[0], 32) else { return };
    let mut volume = case.commit(&case.changed, &[]);
    let descriptor = headers(&volume, case.block_bytes, 1)[0];
    for copy in 1..=case.changed.len() {
        let at = descriptor + copy * case.block_bytes;
        volume.0[at + 100] ^= 1;
    }
    assert_eq!(case.found(&volume), 0, "the homes know of no file");
}

#[test]
fn damaged_journals_are_safe() {
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut numbers = Numbers(12);
    // Without checksums damage gets further.
    let Some(case) = Case::new(KINDS[4], 32) else { return };
    case.commit(&case.changed, &[]);
    let good = case.commit(&[], &case.changed[..2]);
    let mut places: Vec<usize> = [1, 2, 4, 5].into_iter().flat_map(|kind| headers(&good, case.block_bytes, kind)).collect();
    places.retain(|at| *at > 0);
    let limits = Limits { bytes: 16 << 20, ..Limits::default() };
    let mut less = 0;
    for _ in 0..rounds {
        let mut bad = Volume(good.0.clone());
        for _ in 0..=numbers.below(6) {
            let within = if numbers.below(2) == 0 { 96 } else { case.block_bytes };
            let at = places[numbers.below(places.len())] + numbers.below(within);
            let word = numbers.next().to_le_bytes();
            let length = [1, 2, 4][numbers.below(3)].min(bad.0.len() - at);
            bad.0[at..at + length].copy_from_slice(&word[..length]);
        }
        let found = bad.search(0, &limits).expect("a file system");
        assert!(found.bytes_read <= limits.bytes);
        for file in &found.files {
            assert!(file.extents.iter().all(|extent| extent.volume_offset + extent.bytes <= 32 << 20), "{file:?}");
        }
        less += u32::from(found.files.len() < case.files.len());
    }
    println!("{rounds} journals, fewer files in {less}");
}

/// A long journal is followed over several looks, and only what is new is read of it later.
#[test]
fn a_long_journal_is_followed_look_by_look() {
    let Some(case) = Case::new((&["-b", "4096", "-J", "size=64"], KINDS[0].1), 256) else { return };
    // Transactions of a block that nothing else uses, more than the first look gets through.
    let idle = case.directory.path().join("idle");
    std::fs::write(&idle, Numbers(13).bytes(4096)).expect("written");
    case.write(&format!("jw -b 40000 {}\n", text(&idle)).repeat(1500));
    let long = case.commit(&case.changed, &[]);
    let look = |mut discovery: Discovery, volume: &Volume| {
        while let Some(read) = discovery.next() {
            let at = read.offset_bytes as usize;
            discovery.give(read.offset_bytes, Ok(&volume.0[at..at + read.len_bytes]));
        }
        discovery.finish()
    };
    let size = long.0.len() as u64;
    let mut looks = vec![look(Discovery::new(size), &long)];
    while looks.last().expect("one").is_behind() {
        assert!(looks.len() < 4, "it gets no further");
        let next = look(Discovery::again(looks.last().expect("one"), size), &long);
        looks.push(next);
    }
    let read: Vec<u64> = looks.iter().map(|found| found.bytes_read / MIB as u64).collect();
    println!("{read:?} MiB were read");
    let caught_up = looks.last().expect("one");
    assert!(looks.len() > 1 && looks[0].objects.is_empty() && !looks[0].complete);
    assert_eq!(caught_up.objects.len(), 40);
    let next = look(Discovery::again(caught_up, size), &long);
    assert!(next.bytes_read < 2 * MIB as u64 && next.objects.len() == 40, "{} bytes, {} objects", next.bytes_read, next.objects.len());
}
