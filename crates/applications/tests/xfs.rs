//! Files found in XFS images made by `mkfs.xfs`, against the bytes that were put in, and against
//! damaged images. Skipped with a message where the tools are missing.

mod common;

use applications::discovery::{self, Discovery};
use applications::filesystems::xfs::{Refused, Xfs};
use applications::filesystems::{Found, Limits, role, starts};
use applications::pages;
use common::Numbers;
use common::images::{self, files_of_servers};
use common::raw::Files;
use common::xfs::{BYTES, Sparse, image, name};

/// Files as databases have them, and others.
fn files() -> Files {
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

/// The search found all files, and their bytes where it says.
fn check(volume: &Sparse, start: u64, files: &Files) {
    let found = volume.search(start, &Limits::default()).expect("a file system");
    println!("{} files, {} directories, {} bytes read", found.files.len(), found.directories, found.bytes_read);
    assert!(found.complete);
    let mut sorted: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
    let mut expected: Vec<&str> = files.keys().map(String::as_str).filter(|path| role(path).is_some()).collect();
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
    for file in &found.files {
        assert!(volume.bytes_of(file) == files[&file.path], "{} has other bytes", file.path);
    }
}

#[test]
fn files_are_found_where_they_lie() {
    let files = files();
    for options in [
        &[][..],
        &["-b", "size=1024"],
        &["-b", "size=1024", "-n", "size=8192"],
        &["-i", "size=1024,nrext64=1"],
        &["-s", "size=4096", "-m", "bigtime=0,reflink=0"],
        &["-m", "crc=0"],
        &["-m", "crc=0,finobt=0", "-n", "ftype=0", "-b", "size=512", "-i", "size=256"],
    ] {
        println!("{options:?}");
        let Some(volume) = image(&files, &[], options) else { continue };
        check(&volume, 0, &files);
    }
}

#[test]
fn directories_of_every_size_are_read() {
    for options in [&[][..], &["-b", "size=1024"], &["-n", "size=16384"], &["-m", "crc=0", "-n", "ftype=0"]] {
        let largest = if options.is_empty() { 60_000 } else { 9000 };
        let sizes = [("d/1", 1), ("d/9", 9), ("d/50", 50), ("d/3000", 3000), ("d/largest", largest)];
        let Some(volume) = image(&Files::new(), &sizes, options) else { continue };
        let found = volume.search(0, &Limits { files: 100_000, ..Limits::default() }).expect("a file system");
        println!("{options:?}: {} files, {} bytes read", found.files.len(), found.bytes_read);
        assert!(found.complete && found.directories == 7);
        for (path, count) in sizes {
            let mut names: Vec<&str> = found.files.iter().filter_map(|file| file.path.strip_prefix(path)?.strip_prefix('/')).collect();
            names.sort_unstable();
            assert!(names.len() == count && names.iter().enumerate().all(|(number, is)| *is == name(number)), "{path}: {}", names.len());
        }
        // A directory larger than the limit of files is read as far as that goes.
        let limits = Limits { files: 8000, ..Limits::default() };
        let found = volume.search(0, &limits).expect("a file system");
        assert!(!found.complete && found.files.len() == 8000);
    }
}

#[test]
fn a_partition_is_looked_into() {
    let files = files();
    let Some(image) = image(&files, &[], &[]) else { return };
    let mut disk = image.behind(256);
    let mut table = vec![0; 4096];
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    (table[450], table[455]) = (0x83, 8);
    disk.pieces.insert(0, table);
    assert_eq!(starts(&mut disk.reading()), [0, 1 << 20]);
    assert_eq!(disk.search(0, &Limits::default()), Err(Refused::Absent));
    check(&disk, 1 << 20, &files);
}

#[test]
fn limits_end_a_search() {
    let files = files();
    let Some(volume) = image(&files, &[("srv/many", 2000)], &[]) else { return };
    let check = |limits: Limits| {
        let found = volume.search(0, &limits).expect("a file system");
        assert!(
            !found.complete && is_within(&found, &limits),
            "{limits:?}: {} {} {}",
            found.bytes_read,
            found.directories,
            found.files.len()
        );
    };
    check(Limits { bytes: 50_000, ..Limits::default() });
    check(Limits { directories: 3, ..Limits::default() });
    check(Limits { files: 5, ..Limits::default() });
    check(Limits { extents: 3, ..Limits::default() });
}

fn is_within(found: &Found, limits: &Limits) -> bool {
    found.bytes_read <= limits.bytes
        && found.directories <= limits.directories
        && found.files.len() <= limits.files
        && found.files.iter().map(|file| file.extents.len()).sum::<usize>() <= limits.extents
}

#[test]
fn damaged_images_are_safe() {
    let files = files();
    let mut numbers = Numbers(18);
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let limits = Limits { bytes: 4 << 20, directories: 200, files: 2500, extents: 5000 };
    let (mut made, mut opened, mut whole, mut most) = (0, 0, 0, 0);
    // The second directory of the older version is a tree: small inodes have room for nine extents.
    let images = [(&["-b", "size=1024"][..], 400), (&["-m", "crc=0", "-i", "size=256", "-b", "size=1024"], 2000)];
    for (options, names) in images {
        let Some(mut volume) = image(&files, &[("srv/1", 12), ("srv/2", names)], options) else { continue };
        made += 1;
        volume.search(0, &limits).expect("a file system");
        let good = volume.clone();
        // What was read is metadata, and the first piece has the superblock.
        let metadata: Vec<u64> = good.read.borrow().iter().copied().filter(|number| good.pieces.contains_key(number)).collect();
        for round in 0..rounds / 2 {
            let mut places = Vec::new();
            for _ in 0..=numbers.below(30) {
                let number = metadata[numbers.below(metadata.len())];
                if number == 0 && round % 4 != 0 {
                    continue;
                }
                places.push(number);
                let other = good.pieces[&metadata[numbers.below(metadata.len())]].clone();
                let piece = volume.pieces.get_mut(&number).expect("a piece");
                // Heads and small numbers say more than the rest.
                let at = if numbers.below(2) == 0 { 512 * numbers.below(8) + numbers.below(200) } else { numbers.below(4096) };
                let at = at.min(4088);
                match numbers.below(8) {
                    0 => piece.copy_from_slice(&other),
                    1 => piece[at..].copy_from_slice(&other[at..]),
                    2 => piece[at..at + 8].fill(0xff),
                    3 => piece[at..at + 8].fill(0),
                    4 => piece[at..at + 4].copy_from_slice(&(numbers.below(1 << 20) as u32).to_be_bytes()),
                    5 => piece[at] ^= 1 << numbers.below(8),
                    _ => piece[at] = numbers.next() as u8,
                }
            }
            if let Ok(found) = volume.search(0, &limits) {
                opened += 1;
                whole += u32::from(found.complete);
                most = most.max(found.bytes_read);
                assert!(is_within(&found, &limits), "round {round}: {found:?}");
                for extent in found.files.iter().flat_map(|file| &file.extents) {
                    assert!(extent.volume_offset + extent.bytes <= BYTES && extent.file_offset.checked_add(extent.bytes).is_some());
                }
            }
            for number in places {
                volume.pieces.insert(number, good.pieces[&number].clone());
            }
        }
    }
    println!("{made} images damaged {rounds} times, {opened} opened, {whole} searched to the end, {most} bytes read at most");
    assert!(made == 0 || opened > rounds / 4 && whole < opened);
}

/// A file system of 64 blocks of 4 KiB whose root directory is a tree of extents: eight levels of which
/// each names one block of the next as often as there is room, and an empty one below.
fn maze() -> Sparse {
    let put = |piece: &mut Vec<u8>, at: usize, bytes: &[u8]| piece[at..at + bytes.len()].copy_from_slice(bytes);
    let mut superblock = vec![0; 4096];
    put(&mut superblock, 0, b"XFSB\0\0\x10\0\0\0\0\0\0\0\0\x40");
    put(&mut superblock, 56, &8u64.to_be_bytes());
    put(&mut superblock, 84, &[0, 0, 0, 64, 0, 0, 0, 1]);
    // Version 4; inodes of 512 bytes, eight in a block; 64 blocks in a group.
    put(&mut superblock, 100, &[0x20, 4, 2, 0, 2, 0, 0, 8]);
    put(&mut superblock, 120, &[12, 9, 9, 3, 6]);
    let mut inode = vec![0; 4096];
    put(&mut inode, 0, &[b'I', b'N', 0x41, 0xed, 2, 3]);
    put(&mut inode, 56, &4096u64.to_be_bytes());
    // The root, with room for 25 keys and pointers.
    put(&mut inode, 100, &[0, 8, 0, 25]);
    for pointer in 0..25 {
        put(&mut inode, 104 + 25 * 8 + pointer * 8, &9u64.to_be_bytes());
    }
    let mut pieces = [(0, superblock), (1, inode)].into_iter().collect::<std::collections::BTreeMap<_, _>>();
    for level in 0..8u8 {
        let mut node = vec![0; 4096];
        let count: u16 = if level == 0 { 0 } else { 254 };
        put(&mut node, 0, &[b'B', b'M', b'A', b'P', 0, level, 0, count as u8]);
        for pointer in 0..usize::from(count) {
            put(&mut node, 24 + 254 * 8 + pointer * 8, &u64::from(level + 1).to_be_bytes());
        }
        pieces.insert(u64::from(level) + 2, node);
    }
    Sparse { bytes: 64 * 4096, pieces, ..Sparse::default() }
}

#[test]
fn trees_that_lead_around_in_what_is_known_end() {
    let found = maze().search(0, &Limits { bytes: 1 << 20, ..Limits::default() }).expect("a file system");
    assert!(!found.complete && found.files.is_empty());
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    let Some(good) = image(&files(), &[], &[]) else { return };
    let check = |at: usize, bytes: &[u8], expected: Refused, sentence: &str| {
        let mut bad = good.clone();
        bad.pieces.get_mut(&0).expect("the superblock")[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(bad.search(0, &Limits::default()), Err(expected));
        assert!(expected.to_string().contains(sentence), "{expected}");
    };
    check(0, b"XFSC", Refused::Absent, "there is no XFS");
    check(100, &[0xb4, 0xa3], Refused::Version { version: 0xb4a3 }, "version number 0xb4a3");
    check(216, &[0, 0, 2, 1], Refused::Unsupported { features: 0x200 }, "incompatible features 0x200");
    check(4, &[0, 0, 0x20, 0], Refused::Damaged, "damaged");
    check(56, &[0xff; 8], Refused::Damaged, "damaged");
    // Nobody has finished to make it.
    check(126, &[1], Refused::Damaged, "damaged");
    for bytes in [vec![], vec![0; 4096], vec![0xff; 4096], Numbers(19).bytes(4096)] {
        let volume = Sparse { bytes: bytes.len() as u64, pieces: [(0, bytes)].into(), ..Sparse::default() };
        let refused = volume.search(0, &Limits::default()).expect_err("no file system");
        assert!(matches!(refused, Refused::Unreadable | Refused::Absent), "{refused}");
    }
    let beyond = Xfs::open(&mut |_, _: &mut [u8]| false, u64::MAX - 100).expect_err("no such place");
    assert_eq!(beyond, Refused::Unreadable);
}

/// What a discovery finds by reads of that function.
fn discover(bytes: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> discovery::Found {
    let mut discovery = Discovery::new(bytes);
    let mut buffer = Vec::new();
    while let Some(wanted) = discovery.next() {
        buffer.resize(wanted.len_bytes, 0);
        let can = read(wanted.offset_bytes, &mut buffer);
        discovery.give(wanted.offset_bytes, if can { Ok(&buffer) } else { Err(()) });
    }
    discovery.finish()
}

/// What is the same of objects wherever they lie.
fn told(found: &discovery::Found) -> Vec<String> {
    let of = |object: &discovery::Object| {
        let application = found.application(object.application).expect("its application");
        let within = object.within.and_then(|id| found.object(id)).map(|other| &other.name);
        let (instance, version) = (&application.instance, &application.version);
        let (database, kind, key, evidence) = (&object.database, object.kind, &object.key, object.evidence);
        format!(
            "{instance:?} {version:?} {database:?} {kind:?} {} {key:?} {within:?} {} {} {evidence:?}",
            object.name, object.bytes, object.path
        )
    };
    let mut all: Vec<String> = found.objects.iter().map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn databases_have_the_names_that_they_have_on_ext4() {
    let Some(files) = files_of_servers() else { return };
    let Some(volume) = image(&files, &[], &[]) else { return };
    let found = discover(BYTES, &mut volume.reading());
    println!("{} applications, {} objects, {} bytes read", found.applications.len(), found.objects.len(), found.bytes_read);
    assert!(found.complete && found.blind.is_empty(), "{:?}", found.blind);
    let uuid = Xfs::open(&mut volume.reading(), 0).expect("a file system").uuid();
    assert!(uuid != [0; 16] && found.applications.iter().all(|application| application.file_system == uuid));
    assert!(found.objects.iter().any(|object| object.name == "shop.items/PRIMARY"));
    // Pages lie where the map says, and are of whom it says.
    let mut seen = 0;
    for object in found.objects.iter().filter(|object| object.path.ends_with(".ibd")) {
        for extent in found.extents(object.id) {
            let mut bytes = vec![0; (extent.bytes.end - extent.bytes.start) as usize];
            assert!(volume.copy(extent.bytes.start, &mut bytes));
            for (at, page) in pages(&bytes) {
                assert_eq!(page.file_offset(), Some(extent.object_offset_bytes + at as u64), "{}: {page:?}", object.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 300, "{seen}");
    let Some(other) = images::image(&files) else { return };
    let on_ext4 = discover(other.len() as u64, &mut |offset, bytes: &mut [u8]| {
        bytes.copy_from_slice(&other[offset as usize..offset as usize + bytes.len()]);
        true
    });
    println!("{} bytes read of ext4", on_ext4.bytes_read);
    assert_eq!(told(&found), told(&on_ext4));
}
