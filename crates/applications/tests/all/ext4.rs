//! Files found in ext4 images made by `mkfs.ext4`, against the bytes that were put in, and against
//! damaged images. Skipped with a message where the tools are missing.

use crate::common::Numbers;
use crate::common::raw::{Files, Volume, bytes_of, run};
use applications::filesystems::ext4::{Ext4, Refused};
use applications::filesystems::{Limits, starts};
use applications::{Engine, engine_of_file};
use std::path::Path;

/// Files as databases have them, and others.
fn files() -> Files {
    let mut numbers = Numbers(6);
    let mut files = Files::new();
    let mut put = |path: &str, count| files.insert(path.to_owned(), numbers.bytes(count));
    put("var/lib/mysql/ibdata1", 3 << 20);
    put("var/lib/mysql/shop/items.ibd", 200 << 10);
    put("var/lib/mysql/ib_logfile0", 100_000);
    put("var/lib/mysql/undo001", 64 << 10);
    put("var/lib/mysql/binlog.000001", 5_000);
    put("var/lib/postgresql/15/main/base/16384/16390", 81_920);
    put("var/lib/postgresql/15/main/base/16384/16390_vm", 8_192);
    put("var/lib/postgresql/15/main/global/pg_filenode.map", 512);
    put("var/lib/postgresql/15/main/pg_wal/000000010000000000000001", 1 << 20);
    put("opt/data/Shop.mdf", 300_000);
    put("etc/passwd", 1_000);
    // A directory too large for one block.
    for number in 0..400 {
        put(&format!("srv/tables/table_with_quite_a_long_name_{number:05}.ibd"), 4_096);
        put(&format!("srv/tables/table_with_quite_a_long_name_{number:05}.frm"), 10);
    }
    files
}

/// An image with those files.
fn image(files: &Files, options: &[&str]) -> Option<Volume> {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("root");
    for (path, bytes) in files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }
    let image = directory.path().join("image");
    let text = |path: &Path| path.to_str().expect("a name").to_owned();
    let (root, image_name) = (text(&root), text(&image));
    let mut arguments = vec!["-q", "-F", "-d", &root];
    arguments.extend(options);
    arguments.extend([image_name.as_str(), "32M"]);
    if !run("mkfs.ext4", &arguments) {
        return None;
    }
    Some(Volume(std::fs::read(image).expect("an image")))
}

fn check(volume: &Volume, start: u64, files: &Files) {
    let found = volume.search(start, &Limits::default()).expect("a file system");
    assert!(found.complete);
    let paths: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
    let mut expected: Vec<&str> = files.keys().map(String::as_str).filter(|path| engine_of_file(path).is_some()).collect();
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    for file in &found.files {
        assert!(bytes_of(volume, file) == files[&file.path], "{} has other bytes", file.path);
    }
    println!("{} files, {} directories, {} bytes read", found.files.len(), found.directories, found.bytes_read);
}

#[test]
fn files_are_found_where_they_lie() {
    let files = files();
    for options in [
        &[][..],
        &["-b", "1024"],
        &["-b", "4096"],
        &["-b", "1024", "-O", "meta_bg,^resize_inode"],
        &["-b", "1024", "-O", "^64bit,^metadata_csum"],
        &["-O", "^flex_bg"],
        &["-I", "128"],
    ] {
        println!("{options:?}");
        let Some(volume) = image(&files, options) else { return };
        check(&volume, 0, &files);
    }
}

#[test]
fn a_partition_is_looked_into() {
    let files = files();
    let Some(Volume(image)) = image(&files, &[]) else { return };
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    (disk[450], disk[455]) = (0x83, 8);
    disk.extend(image);
    let disk = Volume(disk);
    assert_eq!(starts(&mut disk.read()), [0, 1 << 20]);
    assert_eq!(disk.search(0, &Limits::default()), Err(Refused::Absent));
    check(&disk, 1 << 20, &files);
}

#[test]
fn many_extents_are_found_through_the_levels_of_their_tree() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image").to_str().expect("a name").to_owned();
    if !run("mkfs.ext4", &["-q", "-F", "-b", "1024", &image, "16M"]) {
        return;
    }
    // Every other block, so that no two make one extent: `sif` would set a size, a sparse source
    // makes holes.
    let mut bytes = vec![0; 2 << 20];
    let mut numbers = Numbers(7);
    for block in bytes.chunks_exact_mut(2048) {
        block[..1024].copy_from_slice(&numbers.bytes(1024));
    }
    let source = directory.path().join("source");
    std::fs::write(&source, &bytes).expect("written");
    let source = source.to_str().expect("a name").to_owned();
    if !run("debugfs", &["-w", "-R", &format!("write {source} holes.ibd"), &image]) {
        return;
    }
    let volume = Volume(std::fs::read(image).expect("an image"));
    let found = volume.search(0, &Limits::default()).expect("a file system");
    let file = &found.files[0];
    println!("{} extents", file.extents.len());
    assert!(found.complete && file.engine == Engine::Innodb && file.extents.len() >= 1000, "{} extents", file.extents.len());
    assert!(bytes_of(&volume, file) == bytes);
    // And the limits hold.
    let limits = Limits { extents: 100, ..Limits::default() };
    let found = volume.search(0, &limits).expect("a file system");
    assert!(!found.complete && found.files.iter().map(|file| file.extents.len()).sum::<usize>() <= 100);
}

#[test]
fn limits_end_a_search() {
    let files = files();
    let Some(volume) = image(&files, &[]) else { return };
    for limits in [
        Limits { bytes: 50_000, ..Limits::default() },
        Limits { directories: 3, ..Limits::default() },
        Limits { files: 5, ..Limits::default() },
    ] {
        let found = volume.search(0, &limits).expect("a file system");
        let inside = found.bytes_read <= limits.bytes && found.directories <= limits.directories && found.files.len() <= limits.files;
        assert!(!found.complete && inside, "{limits:?}: {} {} {}", found.bytes_read, found.directories, found.files.len());
    }
}

#[test]
fn damaged_images_are_safe() {
    let files = files();
    let mut numbers = Numbers(8);
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    // Without checksums, so that damage of the superblock gets further.
    let Some(Volume(good)) = image(&files, &["-b", "1024", "-O", "^metadata_csum,^64bit"]) else { return };
    let limits = Limits { bytes: 16 << 20, ..Limits::default() };
    // Where metadata is: the first megabyte, with tables of inodes, and blocks of directories.
    let metadata: Vec<usize> = (0..good.len() / 1024).filter(|block| good[block * 1024..][..1024].iter().any(|byte| *byte != 0)).collect();
    let (mut opened, mut whole) = (0, 0);
    for round in 0..rounds {
        let mut bad = Volume(good.clone());
        for _ in 0..=numbers.below(40) {
            let block = if numbers.below(2) == 0 { numbers.below(300) } else { metadata[numbers.below(metadata.len())] };
            let at = block * 1024 + numbers.below(1024);
            let word = numbers.next().to_le_bytes();
            let length = [1, 2, 4][numbers.below(3)].min(bad.0.len() - at);
            bad.0[at..at + length].copy_from_slice(&word[..length]);
        }
        if round % 10 == 0 {
            bad.0.truncate(numbers.below(good.len()));
        }
        let Ok(found) = bad.search(0, &limits) else { continue };
        opened += 1;
        whole += u32::from(found.complete);
        assert!(found.bytes_read <= limits.bytes);
        for file in &found.files {
            assert!(file.extents.iter().all(|extent| extent.volume_offset + extent.bytes <= 32 << 20), "{file:?}");
        }
    }
    println!("{rounds} images, {opened} opened, {whole} searched to the end");
    assert!(opened > 0);
}

/// A file system of 64 blocks of 4 KiB whose root directory is a tree of extents: five levels of
/// which each names one block of the next as often as there is room, and an empty one below.
fn maze() -> Volume {
    let mut bytes = vec![0; 64 * 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    // 16 inodes in one group of 64 blocks of 4 KiB; inodes of 256 bytes from block 2 on.
    for (at, value) in [(0, 16u32), (4, 64), (0x18, 2), (0x20, 64), (0x28, 16), (0x4c, 1), (0x58, 256)] {
        put(1024 + at, &value.to_le_bytes());
    }
    put(1024 + 0x38, &[0x53, 0xef]);
    put(4096 + 8, &[2]);
    let inode = 2 * 4096 + 256;
    put(inode, &[0xed, 0x41, 0, 0, 0, 16]);
    put(inode + 0x1a, &[2]);
    put(inode + 0x22, &[8]);
    let mut node = |at: usize, count: u16, depth: u8| {
        put(at, &[0x0a, 0xf3]);
        put(at + 2, &count.to_le_bytes());
        put(at + 6, &[depth]);
        for entry in 1..=usize::from(count) {
            put(at + 12 * entry + 4, &[2 + depth]);
        }
    };
    node(inode + 0x28, 4, 5);
    for depth in 0..5 {
        node((3 + usize::from(depth)) * 4096, if depth == 0 { 0 } else { 340 }, depth);
    }
    Volume(bytes)
}

#[test]
fn trees_that_lead_around_in_what_is_known_end() {
    let found = maze().search(0, &Limits { bytes: 1 << 20, ..Limits::default() }).expect("a file system");
    assert!(!found.complete && found.files.is_empty());
}

/// The same file system, whose root directory has 64 MiB of names: the same 60 blocks again and
/// again.
fn crowd() -> Volume {
    let Volume(mut bytes) = maze();
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let inode = 2 * 4096 + 256;
    put(inode + 4, &(64u32 << 20).to_le_bytes());
    put(inode + 0x28, &[0x0a, 0xf3, 1, 0, 4, 0, 1, 0]);
    put(inode + 0x28 + 12, &[0, 0, 0, 0, 3]);
    put(3 * 4096, &[0x0a, 0xf3, 84, 1, 84, 1, 0, 0]);
    for extent in 1..341usize {
        let at = 3 * 4096 + 12 * extent;
        put(at, &(60 * extent as u32).to_le_bytes());
        put(at + 4, &[60, 0, 0, 0, 4, 0, 0, 0]);
    }
    // A directory, as short as an entry can be.
    for entry in (4..64).flat_map(|block| (0..455).map(move |entry| block * 4096 + 9 * entry)) {
        put(entry, &[2, 0, 0, 0, 9, 0, 1, 2, b'd']);
    }
    Volume(bytes)
}

#[test]
fn not_all_names_of_a_hostile_directory_are_held() {
    let found = crowd().search(0, &Limits::default()).expect("a file system");
    assert!(!found.complete && found.files.is_empty() && found.directories == 1);
}

#[test]
fn what_is_no_file_system_is_refused() {
    for bytes in [vec![], vec![0; 4096], vec![0xff; 4096], Numbers(9).bytes(8192)] {
        let refused = Volume(bytes).search(0, &Limits::default()).expect_err("no file system");
        assert!(matches!(refused, Refused::Unreadable | Refused::Absent), "{refused}");
    }
    let beyond = Ext4::open(&mut |_, _: &mut [u8]| true, u64::MAX).expect_err("no such place");
    assert_eq!(beyond, Refused::Unreadable);
}
