//! Files found in XFS images made by `mkfs.xfs`, against the bytes that were put in. Skipped with a
//! message where the tools are missing.

use crate::common::Numbers;
use crate::common::images::{self, files_of_servers};
use crate::common::raw::Files;
use crate::common::xfs::{BYTES, Sparse, discover, files, image, is_within, name};
use applications::discovery;
use applications::filesystems::xfs::{Refused, Xfs};
use applications::filesystems::{Limits, starts};
use applications::{engine_of_file, pages};

/// The search found all files, and their bytes where it says.
fn check(volume: &Sparse, start: u64, files: &Files) {
    let found = volume.search(start, &Limits::default()).expect("a file system");
    println!("{} files, {} directories, {} bytes read", found.files.len(), found.directories, found.bytes_read);
    assert!(found.complete);
    let mut sorted: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
    let mut expected: Vec<&str> = files.keys().map(String::as_str).filter(|path| engine_of_file(path).is_some()).collect();
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
