//! Logs that were put together by hand: what is committed in them is laid over its home.

mod hostile;

use super::record::tests::{UUID, record};
use super::*;
use crate::bytes::be64;
use crate::filesystems::Limits;
use crate::filesystems::volume::{Volume, drive};

/// The file system begins here on the volume, and its log so many blocks of 4 KiB behind that.
const START: u64 = 1 << 20;
const LOG_AT: u64 = START + 100 * 4096;
const ROUND: u32 = 800;
const INODE: u64 = 320;

struct Image {
    bytes: Vec<u8>,
    superblock: Superblock,
    next: Place,
}

impl Image {
    /// A file system of version 5: 512 blocks of 4 KiB with inodes of 512 bytes. Its log begins in a
    /// round at that block, and has records of the round before it behind that.
    fn new(next: Place) -> Image {
        Image::of_version(5, next)
    }

    /// The same of version 4 or 5.
    fn of_version(version: u8, next: Place) -> Image {
        let mut bytes = vec![0; START as usize + 512 * 4096];
        let mut put = |at: usize, what: &[u8]| bytes[START as usize + at..][..what.len()].copy_from_slice(what);
        put(0, b"XFSB\0\0\x10\0\0\0\0\0\0\0\x02\0");
        put(32, &UUID);
        put(48, &100u64.to_be_bytes());
        put(56, &128u64.to_be_bytes());
        put(84, &[0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 100]);
        put(100, &[0xb4, 0xa0 | version, 2, 0, 2, 0, 0, 8]);
        put(120, &[12, 9, 9, 3, 9]);
        put(216, &1u32.to_be_bytes());
        let volume = Volume::default();
        let open = Superblock::read(&volume, START);
        let superblock = drive(&mut reading(&bytes), &volume, open).expect("a file system");
        assert_eq!(superblock.log, Some(Ring { start: LOG_AT, blocks: ROUND }));
        let mut image = Image { bytes, superblock, next };
        for block in 0..ROUND {
            let cycle = if block < next.block { next.cycle } else { next.cycle - 1 };
            image.put_block(block, &cycle.to_be_bytes());
        }
        image
    }

    fn put_block(&mut self, block: u32, bytes: &[u8]) {
        self.bytes[LOG_AT as usize + block as usize * 512..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a record with these operations behind the last one.
    fn write(&mut self, tail: Place, operations: &[Vec<u8>]) {
        self.write_counted(tail, operations, operations.len() as u32);
    }

    /// The same, of which the header says that it has so many.
    fn write_counted(&mut self, tail: Place, operations: &[Vec<u8>], count: u32) {
        let mut data = operations.concat();
        data.resize(data.len().next_multiple_of(512), 0);
        let bytes = record(self.next, tail, &data, count, ROUND);
        for (number, block) in bytes.chunks(512).enumerate() {
            let at = self.next.after(number as u32, ROUND);
            self.put_block(at.block, block);
        }
        self.next = self.next.after((bytes.len() / 512) as u32, ROUND);
    }

    /// Follows the log; how many bytes were read for that.
    fn follow(&self, log: &mut Log, bytes_max: u64) -> u64 {
        let volume = Volume::default();
        let limits = Limits { bytes: bytes_max, ..Limits::default() };
        let mut pieces = Pieces::new(&volume, self.superblock.end(), &limits);
        drive(&mut reading(&self.bytes), &volume, log.follow(&self.superblock, &mut pieces));
        bytes_max - pieces.bytes_left
    }

    fn followed(&self) -> Log {
        let mut log = Log::default();
        self.follow(&mut log, 1 << 30);
        assert!(!log.is_behind() && (log.bytes() as u64) < 1 << 25);
        log
    }

    /// An inode with what is newer laid over what lies at home.
    fn inode(&self, log: &Log, number: u64) -> Vec<u8> {
        let place = self.superblock.place_of_inode(number).expect("a place") as usize;
        let mut bytes = self.bytes[place..place + 512].to_vec();
        log.lay_inode(&self.superblock, place as u64, &mut bytes);
        bytes
    }

    /// A block of the file system, with the places of LSN and UUID in a directory.
    fn block(&self, log: &Log, number: u64) -> Vec<u8> {
        let place = (START + number * 4096) as usize;
        let mut bytes = self.bytes[place..place + 4096].to_vec();
        log.lay_block(&self.superblock, &[place as u64], &mut bytes, (16, 24));
        bytes
    }
}

fn reading(bytes: &[u8]) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
    |offset, to| match bytes.get(offset as usize..offset as usize + to.len()) {
        Some(from) => {
            to.copy_from_slice(from);
            true
        }
        None => false,
    }
}

const BEGIN: u8 = 0x01;
const COMMIT: u8 = 0x02;
const GOES_ON: u8 = 0x04;
const MORE: u8 = 0x08;

fn operation(id: u32, flags: u8, region: &[u8]) -> Vec<u8> {
    let mut bytes = [id.to_be_bytes(), (region.len() as u32).to_be_bytes(), [0x69, flags, 0, 0]].concat();
    bytes.extend(region);
    bytes
}

fn head(id: u32) -> Vec<Vec<u8>> {
    vec![operation(id, BEGIN, &[]), operation(id, 0, &[0x4e, 0x41, 0x52, 0x54, 40, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0])]
}

/// The regions of an inode's item: a regular file of so many bytes, with one extent.
fn inode_item(number: u64, size: u64, fork: &[u8]) -> Vec<Vec<u8>> {
    let mut head = vec![0; 56];
    head[0..2].copy_from_slice(&0x123bu16.to_le_bytes());
    head[2..4].copy_from_slice(&3u16.to_le_bytes());
    head[4..8].copy_from_slice(&5u32.to_le_bytes());
    head[16..24].copy_from_slice(&number.to_le_bytes());
    let mut core = vec![0; 176];
    core[0..2].copy_from_slice(&0x494eu16.to_le_bytes());
    core[2..4].copy_from_slice(&0x81a4u16.to_le_bytes());
    (core[4], core[5]) = (3, 2);
    core[56..64].copy_from_slice(&size.to_le_bytes());
    core[76..80].copy_from_slice(&1u32.to_le_bytes());
    core[152..160].copy_from_slice(&number.to_le_bytes());
    vec![head, core, fork.to_vec()]
}

/// The regions of the item of a buffer of one block, of which parts are different.
fn buffer_item(block: u64, flags: u16, parts: &[(usize, u8)]) -> Vec<Vec<u8>> {
    let mut head = vec![0; 24];
    head[0..2].copy_from_slice(&0x123cu16.to_le_bytes());
    head[2..4].copy_from_slice(&(1 + parts.len() as u16).to_le_bytes());
    head[4..6].copy_from_slice(&flags.to_le_bytes());
    head[6..8].copy_from_slice(&8u16.to_le_bytes());
    head[8..16].copy_from_slice(&(block * 8).to_le_bytes());
    head[16..20].copy_from_slice(&1u32.to_le_bytes());
    let bits = parts.iter().fold(0u32, |bits, (part, _)| bits | 1 << part);
    head[20..24].copy_from_slice(&bits.to_le_bytes());
    [vec![head], parts.iter().map(|(_, byte)| vec![*byte; 128]).collect()].concat()
}

const DIRECTORY: u16 = 11 << 11;

/// A whole transaction.
fn transaction(id: u32, items: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let regions = items.iter().flatten().map(|region| operation(id, 0, region));
    head(id).into_iter().chain(regions).chain([operation(id, COMMIT, &[])]).collect()
}

fn size(inode: &[u8]) -> u64 {
    be64(inode, 56)
}

#[test]
fn what_is_committed_is_laid_over_its_home_wherever_the_log_goes_around() {
    for block in [0, 3, ROUND - 1, ROUND - 2, ROUND - 3, ROUND - 60, 400] {
        let begin = Place { cycle: 5, block };
        let mut image = Image::new(begin);
        for number in 0..40 {
            let items = [
                inode_item(INODE + number % 7, 1000 + number, &[number as u8; 16]),
                buffer_item(200 + number, DIRECTORY, &[(0, 1), (1, 2), (9, number as u8)]),
            ];
            image.write(begin, &transaction(number as u32, &items));
        }
        let log = image.followed();
        for number in 33..40 {
            let inode = image.inode(&log, INODE + number % 7);
            assert_eq!((size(&inode), inode[2], inode[3], inode[79]), (1000 + number, 0x81, 0xa4, 1), "from block {block}");
            assert_eq!(&inode[176..193], &[[number as u8; 16].as_slice(), &[0]].concat());
        }
        for number in 0..40 {
            let block = image.block(&log, 200 + number);
            assert_eq!((block[0], block[128], block[9 * 128], block[2 * 128]), (1, 2, number as u8, 0));
        }
        assert!(image.inode(&log, INODE + 8).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn transactions_lie_between_each_other_and_go_on_in_the_next_record() {
    let begin = Place { cycle: 1, block: 10 };
    let mut image = Image::new(begin);
    let (one, other) = (inode_item(INODE, 77, &[7; 16]), inode_item(INODE + 1, 88, &[8; 16]));
    let begun = |id| [head(id)].concat();
    let part = |id, flags, region: &[u8]| operation(id, flags, region);
    image.write(begin, &[begun(1), vec![part(1, 0, &one[0]), part(1, GOES_ON, &one[1][..100])], begun(2)].concat());
    image.write(begin, &[part(1, MORE | GOES_ON, &one[1][100..104]), part(2, 0, &other[0])]);
    // Of a transaction that began before the tail nothing is used.
    image.write(begin, &[part(3, 0, &one[0]), part(3, 0, &other[1]), part(3, COMMIT, &[])]);
    image.write(begin, &[part(1, MORE | 0x10, &one[1][104..]), part(2, 0, &other[1]), part(2, 0, &other[2]), part(1, 0, &one[2])]);
    let log = image.followed();
    assert_eq!(size(&image.inode(&log, INODE)), 0, "nothing is committed");
    image.write(begin, &[part(2, COMMIT, &[])]);
    let log = image.followed();
    assert_eq!((size(&image.inode(&log, INODE)), size(&image.inode(&log, INODE + 1))), (0, 88));
    image.write(begin, &[part(1, COMMIT, &[])]);
    let log = image.followed();
    let inode = image.inode(&log, INODE);
    assert_eq!((size(&inode), inode[176], inode[191]), (77, 7, 7));
}

#[test]
fn what_was_freed_or_is_newer_at_home_is_not_laid_over() {
    let begin = Place { cycle: 3, block: 700 };
    let mut image = Image::new(begin);
    let inode_block = INODE / 8;
    image.write(begin, &transaction(1, &[inode_item(INODE, 5, &[1; 16]), buffer_item(200, DIRECTORY, &[(1, 9)])]));
    image.write(begin, &transaction(2, &[buffer_item(inode_block, 0x2, &[]), buffer_item(200, 0x2, &[])]));
    let log = image.followed();
    assert_eq!((size(&image.inode(&log, INODE)), image.block(&log, 200)[128]), (0, 0));
    // Again in use, and then also newer at home, of this file system or of another.
    let third = image.next;
    image.write(begin, &transaction(3, &[inode_item(INODE, 6, &[1; 16]), buffer_item(200, DIRECTORY, &[(1, 8)])]));
    let log = image.followed();
    assert_eq!((size(&image.inode(&log, INODE)), image.block(&log, 200)[128]), (6, 8));
    let (inode_at, block_at) = (image.superblock.place_of_inode(INODE).expect("a place") as usize, (START + 200 * 4096) as usize);
    for (lsn, uuid, expected) in [
        (third.lsn() - 1, UUID, (6, 8)),
        (third.lsn(), UUID, (6, 8)),
        (third.lsn() + 1, UUID, (0, 0)),
        (third.lsn() + 1, *b"another one's id", (6, 8)),
        (u64::MAX, UUID, (6, 8)),
    ] {
        image.bytes[inode_at..][..6].copy_from_slice(&[b'I', b'N', 0x81, 0xa4, 3, 2]);
        image.bytes[inode_at + 112..][..8].copy_from_slice(&lsn.to_be_bytes());
        image.bytes[inode_at + 160..][..16].copy_from_slice(&uuid);
        image.bytes[block_at + 16..][..8].copy_from_slice(&lsn.to_be_bytes());
        image.bytes[block_at + 24..][..16].copy_from_slice(&uuid);
        assert_eq!((size(&image.inode(&log, INODE)), u64::from(image.block(&log, 200)[128])), expected, "{lsn:#x}");
    }
    // An unmount writes all home.
    image.write(begin, &[operation(9, 0x20, b"nU\0\0\0\0\0\0")]);
    let log = image.followed();
    assert!(log.newest(&image.superblock).is_some_and(|newest| newest.bytes() == 0));
}

#[test]
fn the_root_of_a_tree_is_put_as_it_lies_at_home() {
    let begin = Place { cycle: 3, block: 0 };
    let mut image = Image::new(begin);
    // In memory: a head of 72 bytes, then space for three keys and three pointers, two of each used.
    let mut root = vec![0; 72 + 3 * 16];
    root[4..8].copy_from_slice(&[0, 1, 0, 2]);
    root[72..88].fill(0xaa);
    root[96..112].fill(0xbb);
    let mut item = inode_item(INODE, 5, &root);
    item[0][4..8].copy_from_slice(&9u32.to_le_bytes());
    item[1][5] = 3;
    // Attributes begin after 100 bytes of content: 96 for six keys and pointers.
    item[1][82] = 13;
    image.write(begin, &transaction(1, &[item]));
    let inode = image.inode(&image.followed(), INODE);
    let content = &inode[176..176 + 104];
    assert_eq!(content[..4], [0, 1, 0, 2]);
    assert!(content[4..20].iter().all(|byte| *byte == 0xaa) && content[20..52].iter().all(|byte| *byte == 0));
    assert!(content[52..68].iter().all(|byte| *byte == 0xbb) && content[68..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_log_is_followed_from_where_it_was_left() {
    let begin = Place { cycle: 3, block: 600 };
    let mut image = Image::new(begin);
    let write = |image: &mut Image, tail, number: u64| {
        let before = image.next;
        image.write(tail, &transaction(number as u32, &[inode_item(INODE + number % 3, number, &vec![1; 300])]));
        before
    };
    for number in 1..30 {
        write(&mut image, begin, number);
    }
    let mut log = Log::default();
    // Not enough to get anywhere, and then enough.
    image.follow(&mut log, 4096);
    assert!(log.is_behind() && size(&image.inode(&log, INODE)) == 0);
    image.follow(&mut log, 1 << 30);
    assert!(!log.is_behind() && size(&image.inode(&log, INODE)) == 27);
    let last = write(&mut image, begin, 31);
    let read = image.follow(&mut log, 1 << 30);
    assert!(read < 1 << 19 && size(&image.inode(&log, INODE + 1)) == 31);
    // What is at home goes.
    let held = log.bytes();
    write(&mut image, last, 33);
    image.follow(&mut log, 1 << 30);
    assert!(log.bytes() < held && size(&image.inode(&log, INODE + 1)) == 31 && size(&image.inode(&log, INODE)) == 33);
    assert_eq!(size(&image.inode(&log, INODE + 2)), 0);
    // More than a round later what would come next is overwritten.
    let mut tail = image.next;
    for number in 40..700 {
        let before = write(&mut image, tail, number);
        if number % 10 == 0 {
            tail = before;
        }
    }
    image.follow(&mut log, 1 << 30);
    assert!(!log.is_behind());
    for number in 697..700 {
        assert_eq!(size(&image.inode(&log, INODE + number % 3)), number);
    }
}

#[test]
fn logs_without_sense_are_safe() {
    let mut state = 17u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let begin = Place { cycle: 3, block: 790 };
    let mut changed = 0;
    for _ in 0..3000 {
        let mut image = Image::new(begin);
        for id in 0..6 {
            let root = vec![3; 200];
            let mut items = vec![
                inode_item(INODE, 9, &[1; 16]),
                buffer_item(200, DIRECTORY, &[(0, 1), (3, 2), (31, 3)]),
                buffer_item(INODE / 8, 4 << 11, &[(2, 1)]),
                inode_item(INODE + 1, 9, &root),
                buffer_item(201, 0x2, &[]),
            ];
            items[3][1][5] = 3;
            items[3][0][4] = 9;
            // What the checksum does not tell: numbers that a kernel would not write.
            for _ in 0..below(4) {
                let item = below(items.len());
                let region = below(items[item].len());
                let at = below(items[item][region].len());
                items[item][region][at] = [0, 1, 0x7f, 0xff, below(256) as u8][below(5)];
            }
            let mut operations = transaction(id, &items);
            if below(3) == 0 {
                let one = below(operations.len());
                let at = below(operations[one].len());
                operations[one][at] = below(256) as u8;
            }
            image.write(begin, &operations);
        }
        if below(4) == 0 {
            let at = LOG_AT as usize + below(ROUND as usize * 512);
            image.bytes[at] = below(256) as u8;
        }
        let mut log = Log::default();
        let read = image.follow(&mut log, 2 << 20);
        assert!(read <= 2 << 20);
        for number in 0..9 {
            changed += usize::from(image.inode(&log, INODE + number).iter().any(|byte| *byte != 0));
        }
        image.block(&log, 200);
    }
    assert!(changed > 3000, "{changed}");
}

#[test]
fn inodes_of_the_older_version_tell_how_often_they_were_written_home() {
    let begin = Place { cycle: 3, block: 795 };
    let mut image = Image::of_version(4, begin);
    let mut item = inode_item(INODE, 5, &[7; 16]);
    item[1].truncate(96);
    item[1][4] = 2;
    item[1][30..32].copy_from_slice(&10u16.to_le_bytes());
    // A new inode is logged as a part of its buffer.
    image.write(begin, &transaction(1, &[buffer_item(INODE / 8, 8 << 11, &[(0, 1), (3, 4)]), item]));
    // Records of the first version have no checksum.
    let head = LOG_AT as usize + 795 * 512;
    image.bytes[head + 8..head + 12].copy_from_slice(&1u32.to_be_bytes());
    image.bytes[head + 32..head + 36].fill(0);
    image.bytes[head + 320..head + 324].fill(0);
    let log = image.followed();
    let inode = image.inode(&log, INODE);
    assert_eq!((size(&inode), inode[99], inode[100], inode[115], inode[116], inode[511]), (5, 1, 7, 7, 1, 4));
    let at = image.superblock.place_of_inode(INODE).expect("a place") as usize;
    image.bytes[at..at + 6].copy_from_slice(&[b'I', b'N', 0x81, 0xa4, 2, 2]);
    for (written, expected) in [(9u16, 5), (10, 5), (11, 0), (u16::MAX, 5)] {
        image.bytes[at + 30..at + 32].copy_from_slice(&written.to_be_bytes());
        assert_eq!(size(&image.inode(&log, INODE)), expected, "{written}");
    }
    // Not before all of it is known.
    for number in 0..90 {
        image.write(begin, &transaction(2, &[inode_item(INODE + 1, number, &[1; 16])]));
    }
    let mut log = Log::default();
    let read = image.follow(&mut log, 1 << 30);
    image.bytes[at + 30..at + 32].fill(0);
    assert_eq!(size(&image.inode(&log, INODE)), 5);
    let mut log = Log::default();
    image.follow(&mut log, read - 70_000);
    assert!(log.is_behind() && size(&image.inode(&log, INODE)) == 0);
}
