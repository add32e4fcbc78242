//! Damaged images of XFS: searches and discoveries end within their limits, whatever the bytes say.
//! Skipped with a message where `mkfs.xfs` is missing.

use crate::common;
use crate::common::raw::Files;
use crate::common::xfs::{BYTES, Sparse, discover, files, image, is_within};
use crate::common::{Numbers, archive};
use crate::machine;
use applications::discovery::BYTES_MAX;
use applications::filesystems::Limits;

/// Pieces of metadata: what a search read, where anything lies. The first has the superblock.
fn metadata(good: &Sparse) -> Vec<u64> {
    good.read.borrow().iter().copied().filter(|number| good.pieces.contains_key(number)).collect()
}

/// Damages up to 30 places of these pieces; which pieces they are in.
fn damage(volume: &mut Sparse, good: &Sparse, pieces: &[u64], numbers: &mut Numbers) -> Vec<u64> {
    let mut places = Vec::new();
    for _ in 0..=numbers.below(30) {
        let number = pieces[numbers.below(pieces.len())];
        places.push(number);
        let other = good.pieces[&pieces[numbers.below(pieces.len())]].clone();
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
    places
}

/// Puts back what was damaged.
fn heal(volume: &mut Sparse, good: &Sparse, places: &[u64]) {
    for number in places {
        volume.pieces.insert(*number, good.pieces[number].clone());
    }
}

#[test]
fn searches_of_damaged_images_end_within_their_limits() {
    let mut numbers = Numbers(18);
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let limits = Limits { bytes: 4 << 20, directories: 200, files: 2500, extents: 5000 };
    let (mut made, mut opened, mut whole, mut most) = (0, 0, 0, 0);
    // The second directory of the older version is a tree: small inodes have room for nine extents.
    let images = [(&["-b", "size=1024"][..], 400), (&["-m", "crc=0", "-i", "size=256", "-b", "size=1024"], 2000)];
    for (options, names) in images {
        let Some(mut volume) = image(&files(), &[("srv/1", 12), ("srv/2", names)], options) else { continue };
        made += 1;
        volume.search(0, &limits).expect("a file system");
        let good = volume.clone();
        let metadata = metadata(&good);
        for round in 0..rounds / 2 {
            // A damaged superblock hides the rest.
            let first = usize::from(round % 4 != 0);
            let places = damage(&mut volume, &good, &metadata[first..], &mut numbers);
            if let Ok(found) = volume.search(0, &limits) {
                opened += 1;
                whole += u32::from(found.complete);
                most = most.max(found.bytes_read);
                assert!(is_within(&found, &limits), "round {round}: {found:?}");
                for extent in found.files.iter().flat_map(|file| &file.extents) {
                    assert!(extent.volume_offset + extent.bytes <= BYTES && extent.file_offset.checked_add(extent.bytes).is_some());
                }
            }
            heal(&mut volume, &good, &places);
        }
    }
    println!("{made} images damaged {rounds} times, {opened} opened, {whole} searched to the end, {most} bytes read at most");
    assert!(made == 0 || opened > rounds / 4 && whole < opened);
}

#[test]
fn discoveries_of_damaged_images_end_within_their_limits() {
    let Some(tables) = archive("mariadb-10.11") else { return };
    let tables = tables.into_iter().filter(|(path, _)| path.starts_with("shop/") && path.ends_with(".ibd"));
    let files: Files = tables.map(|(path, bytes)| (format!("var/lib/mysql/{path}"), bytes)).collect();
    let Some(mut volume) = image(&files, &[("srv/many", 300)], &[]) else { return };
    let whole = discover(BYTES, &mut volume.reading());
    assert!(whole.complete && whole.objects.len() > files.len());
    volume.read.borrow_mut().clear();
    volume.search(0, &Limits::default()).expect("a file system");
    let good = volume.clone();
    let metadata = metadata(&good);
    let (mut numbers, mut objects) = (Numbers(21), 0);
    for _ in 0..100 {
        let places = damage(&mut volume, &good, &metadata[1..], &mut numbers);
        let found = discover(BYTES, &mut volume.reading());
        objects += found.objects.len();
        assert!(found.bytes_read <= BYTES_MAX);
        for extent in found.map.all() {
            assert!(extent.bytes.end <= BYTES && found.object(extent.object).is_some());
        }
        heal(&mut volume, &good, &places);
    }
    println!("{} of {} objects in a damaged image", objects / 100, whole.objects.len());
    assert!(objects > 1000);
}

/// A file system of 64 blocks of 4 KiB whose root directory is a tree of extents: eight levels of
/// which each names one block of the next as often as there is room, and an empty one below.
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

/// The same file system, whose root directory has 380,000 names of one directory, in the same
/// blocks again and again.
fn crowd() -> Sparse {
    let mut image = maze();
    put(&mut image, 4096, &[b'I', b'N', 0x41, 0xed, 2, 2]);
    put(&mut image, 4096 + 56, &(25 * 60 * 4096u64).to_be_bytes());
    put(&mut image, 4096 + 76, &25u32.to_be_bytes());
    for extent in 0..25u64 {
        let (offset, block) = (60 * extent, 4);
        put(&mut image, 4096 + 100 + 16 * extent, &(offset << 9).to_be_bytes());
        put(&mut image, 4096 + 108 + 16 * extent, &(block << 21 | 60u64).to_be_bytes());
    }
    for number in 4..64 {
        let mut block = b"XD2D".to_vec();
        block.resize(16, 0);
        block.extend([0, 0, 0, 0, 0, 0, 0, 8, 1, b'd', 0, 0, 0, 0, 0, 0].repeat(255));
        image.pieces.insert(number, block);
    }
    image
}

#[test]
fn not_all_names_of_a_hostile_directory_are_held() {
    let found = crowd().search(0, &Limits::default()).expect("a file system");
    assert!(!found.complete && found.files.is_empty() && found.directories == 1);
}

/// An image as it is while files change and nothing but `fsync` is called: most of it is in the log.
fn dirty() -> Option<Sparse> {
    let volume = machine::Volume::xfs(&["-b", "size=1024", "-i", "nrext64=1"], "", BYTES)?;
    let place = volume.mounted().join("srv");
    std::fs::create_dir(&place).expect("a directory");
    let mut numbers = Numbers(40);
    for number in 0..300 {
        let file = std::fs::File::create(place.join(common::xfs::name(number))).expect("a file");
        for piece in 0..number as u64 % 40 {
            std::os::unix::fs::FileExt::write_all_at(&file, &numbers.bytes(1024), piece * 4096).expect("written");
        }
        file.sync_all().expect("on the device");
    }
    Some(Sparse::of(volume.image()))
}

/// Where records of the log begin, with their lengths, as far as these do not go around the end.
fn records(image: &Sparse) -> Vec<(u64, usize)> {
    let mut records = Vec::new();
    for number in image.pieces.keys() {
        for sector in 0..8 {
            let mut head = [0; 512];
            image.copy(number * 4096 + sector * 512, &mut head);
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
            if word(0) == 0xfeed_babe && word(12) < 1 << 20 {
                records.push((number * 4096 + sector * 512, 512 + word(12) as usize));
            }
        }
    }
    records
}

fn put(image: &mut Sparse, at: u64, bytes: &[u8]) {
    for (at, byte) in (at..).zip(bytes) {
        image.pieces.entry(at / 4096).or_insert_with(|| vec![0; 4096])[(at % 4096) as usize] = *byte;
    }
}

/// Makes the checksum of a record fit its content again.
fn seal(image: &mut Sparse, (at, len): (u64, usize)) {
    let mut bytes = vec![0; len];
    if image.copy(at, &mut bytes) && len > 512 {
        let covered = [&bytes[..32], &[0; 4], &bytes[36..328], &bytes[512..]].concat();
        put(image, at + 32, &format::checksum::crc32c(&covered).to_le_bytes());
    }
}

#[test]
fn searches_with_damaged_logs_end_within_their_limits() {
    let Some(good) = dirty() else { return };
    let limits = Limits { bytes: 16 << 20, directories: 200, files: 2500, extents: 20_000 };
    let whole = good.search(0, &limits).expect("a file system");
    assert!(whole.complete && whole.files.len() == 300, "{} files", whole.files.len());
    let records = records(&good);
    assert!(records.len() > 100, "{} records", records.len());
    let rounds = std::env::var("APPLICATIONS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let (mut numbers, mut fewer, mut changed) = (Numbers(41), 0, 0);
    for round in 0..rounds {
        let (mut bad, mut places) = (good.clone(), Vec::new());
        for _ in 0..=numbers.below(12) {
            let record = records[numbers.below(records.len())];
            places.push(record);
            // The header, the operations that follow it, or anything.
            let bound = [340, 1024, record.1][numbers.below(3)].min(record.1 - 4);
            let word = [0, u32::MAX, numbers.next() as u32, 1 << numbers.below(32)][numbers.below(4)].to_be_bytes();
            put(&mut bad, record.0 + numbers.below(bound) as u64, &word[..[1, 2, 4][numbers.below(3)]]);
        }
        // A checksum that fits lets the damage in.
        if numbers.below(4) != 0 {
            places.iter().for_each(|record| seal(&mut bad, *record));
        }
        let found = bad.search(0, &limits).expect("a file system");
        assert!(is_within(&found, &limits), "round {round}: {found:?}");
        for extent in found.files.iter().flat_map(|file| &file.extents) {
            assert!(extent.volume_offset + extent.bytes <= BYTES && extent.file_offset.checked_add(extent.bytes).is_some());
        }
        fewer += u32::from(found.files.len() < whole.files.len());
        changed += u32::from(found.files.len() == whole.files.len() && found.files != whole.files);
    }
    println!("{rounds} logs of {} records, fewer files in {fewer}, others in {changed}", records.len());
    assert!(fewer > 0);
}
