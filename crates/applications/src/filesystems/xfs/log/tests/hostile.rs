//! Logs that somebody made to do harm: transactions that no kernel writes, in records whose
//! checksums fit. Who can write to the volume can write these.

use super::*;
use crate::filesystems::xfs::log::change::{self, Change};
use crate::filesystems::xfs::log::transactions::OPEN_BYTES_MAX;
use std::ops::RangeInclusive;

/// What an item of an inode may say that it has: nothing, data, extents, the root of a tree; and
/// more than one of them.
const FIELDS: [u32; 5] = [1, 3, 5, 9, 0xff];
/// Regions are cut to every length up to this one.
const CUTS: usize = 200;
/// Where an inode has the length of its own part in its content, in 8 bytes, and its form.
const FORK_AT: usize = 82;
const FORM_AT: usize = 5;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        let mixed = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = mixed.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn byte(&mut self) -> u8 {
        let any = self.below(256) as u8;
        self.one(&[0, 1, 2, 0x7f, 0x80, 0xff, any, any])
    }
}

/// An inode as its home has it, of a form: with an LSN in it that is older than the log, or none.
fn home(bytes: usize, version: u8, form: u8, lsn: u64) -> Vec<u8> {
    let mut home = vec![0x5a; bytes];
    home[..6].copy_from_slice(&[b'I', b'N', 0x81, 0xa4, version, form]);
    home[30..32].fill(0);
    home[112..120].copy_from_slice(&lsn.to_be_bytes());
    home[160..176].copy_from_slice(&UUID);
    home
}

/// A root as memory has it: a tree of that level, with so many of the keys that it has space for.
fn root(version: u8, count: u16, space: usize) -> Vec<u8> {
    let mut root = vec![0; if version == 5 { 72 } else { 24 } + 16 * space];
    root[4..8].copy_from_slice(&[0, 1, (count >> 8) as u8, count as u8]);
    root
}

/// Lays an inode with that core and fork over homes, whatever length it says that its own part has.
fn lay_any(image: &Image, item: &[Vec<u8>], homes: &[Vec<u8>], lengths: RangeInclusive<u8>) {
    let place = image.superblock.place_of_inode(INODE).expect("a place");
    let mut changes = Vec::new();
    change::of(item, &image.superblock, &mut changes);
    for own in lengths {
        for change in &mut changes {
            if let Change::Inode { core, .. } = change {
                core[FORK_AT] = own;
            }
        }
        let mut newest = Overlay::default();
        newest.take(7 << 32, changes.clone());
        // Another home for each, and another for each length of the fork.
        let home = &homes[(usize::from(own) + item[2].len()) % homes.len()];
        newest.lay_inode(&image.superblock, place, &mut home.clone());
    }
}

#[test]
fn what_lies_in_an_inode_may_have_any_length() {
    let kinds = [(256, 2, 3), (256, 3, 2), (512, 3, 3), (2048, 3, 1)];
    let homes = kinds.map(|(bytes, version, form)| home(bytes, version, form, 1));
    let homes = [homes.as_slice(), &[vec![0; 512]]].concat();
    for version in [4, 5] {
        let image = Image::of_version(version, Place { cycle: 3, block: 0 });
        let of_form = |form| FIELDS.into_iter().map(move |fields| (fields, form));
        for (fields, form) in (0..5).flat_map(of_form) {
            for (count, core_bytes) in [(0, 176), (1, 96), (3, 100), (0xffff, 175)] {
                let whole = [root(version, count, 8), vec![7; CUTS]].concat();
                for cut in (0..=CUTS).chain([whole.len(), 4096, 4097]) {
                    let mut fork = whole.clone();
                    fork.resize(cut, 0);
                    let mut item = inode_item(INODE, 5, &fork);
                    item[0][4..8].copy_from_slice(&fields.to_le_bytes());
                    item[1].truncate(core_bytes);
                    item[1][4] = if core_bytes < 100 { 2 } else { 3 };
                    item[1][FORM_AT] = form;
                    lay_any(&image, &item, &homes, if form == 3 { 0..=255 } else { 0..=40 });
                }
            }
        }
    }
}

#[test]
fn small_regions_for_a_buffer_that_is_all_different_take_no_time() {
    let image = Image::new(Place { cycle: 3, block: 0 });
    let mut item = buffer_item(0, DIRECTORY, &[(0, 1); 256]);
    item[0].resize(20 + 2048, 0xff);
    item[0][6..8].copy_from_slice(&4096u16.to_le_bytes());
    item[0][16..20].copy_from_slice(&512u32.to_le_bytes());
    // A log of 256 MiB has so many; each bit of each was looked at 256 times.
    for _ in 0..8000 {
        let mut changes = Vec::new();
        change::of(&item, &image.superblock, &mut changes);
        assert_eq!(changes.len(), 256);
    }
}

/// Sound transactions, in operations of several records: inodes of every kind, buffers, a region
/// that goes on in the next record, and now and then an unmount.
fn sound(version: u8, numbers: &mut Numbers) -> Vec<Vec<Vec<u8>>> {
    let mut inode = |number: u64, fields: u32, form: u8, fork: &[u8]| {
        let mut item = inode_item(number, 1 << 20, fork);
        item[0][4..8].copy_from_slice(&fields.to_le_bytes());
        (item[1][FORM_AT], item[1][FORK_AT]) = (form, numbers.one(&[0, 1, 13, 42]));
        if version == 4 {
            item[1].truncate(96);
            item[1][4] = 2;
        }
        item.truncate(if fields == 1 { 2 } else { 3 });
        item[0][2] = item.len() as u8;
        item
    };
    let items = [
        inode(INODE, 3, 1, b"\x01\0\0\0\0\x80\x01\0\x60a\0\0\0\x81"),
        inode(INODE + 1, 5, 2, &[0x11; 48]),
        buffer_item(INODE / 8, 8 << 11, &[(4, 9), (5, 8), (12, 7)]),
        inode(INODE + 2, 9, 3, &root(version, 3, 4)),
        inode(INODE + 3, 1, 2, &[]),
        buffer_item(200, DIRECTORY, &[(0, 1), (1, 2), (31, 3)]),
        buffer_item(201, 0x2, &[]),
        buffer_item(202, 4 << 11, &[(2, 1)]),
    ];
    let mut records: Vec<Vec<Vec<u8>>> = (0..3).map(|id| transaction(id, &items)).collect();
    // The fork of an inode, of which half comes in the next record.
    let [whole, rest] = [&items[3][0], &items[3][2]];
    let (first, second) = rest.split_at(20);
    records[0].extend(head(9));
    let part = |flags, region: &[u8]| operation(9, flags, region);
    records[0].extend([part(0, whole), part(0, &items[3][1]), part(GOES_ON, first)]);
    records[1].splice(0..0, [part(MORE | 0x10, second), part(COMMIT, &[])]);
    if numbers.below(8) == 0 {
        records[1].push(operation(9, 0x20, b"nU\0\0\0\0\0\0"));
    }
    records
}

/// Changes an operation: its head, the head of an item, its length, or anything.
fn harm(operation: &mut Vec<u8>, numbers: &mut Numbers) {
    let length = operation.len() - 12;
    let told = |operation: &mut Vec<u8>, length: usize| {
        let length = length as u32;
        operation[4..8].copy_from_slice(&length.to_be_bytes());
    };
    match numbers.below(8) {
        0 => {
            let near = [length.wrapping_sub(1), length + 1];
            told(operation, numbers.one(&[0, 1, near[0], near[1], 1 << 20, u32::MAX as usize]));
        }
        1 => operation[9] = numbers.byte(),
        2 => operation[3] = numbers.below(10) as u8,
        // It is cut, and says so.
        3 | 4 => {
            let cut = numbers.below(CUTS + 1);
            operation.resize(12 + cut, 0);
            told(operation, cut);
        }
        // Numbers in the heads of items, of transactions, of cores and of roots.
        5 | 6 if length > 0 => {
            let at = 12 + numbers.below(length.min(64));
            let bytes = numbers.one(&[1, 2, 4, 8]).min(operation.len() - at);
            let byte = numbers.byte();
            operation[at..at + bytes].fill(byte);
        }
        _ => {
            let at = numbers.below(operation.len());
            operation[at] ^= 1 << numbers.below(8);
        }
    }
}

#[test]
fn transactions_that_no_kernel_writes_are_safe() {
    let (begin, mut laid) = (Place { cycle: 3, block: 780 }, 0);
    for (seed, version) in (0..2000).flat_map(|seed| [(seed, 4), (seed, 5)]) {
        let mut numbers = Numbers(seed);
        let mut image = Image::of_version(version, begin);
        let (mut log, mut read) = (Log::default(), 0);
        for mut operations in sound(version, &mut numbers) {
            for _ in 0..numbers.below(4) {
                let one = numbers.below(operations.len());
                harm(&mut operations[one], &mut numbers);
            }
            let one = numbers.below(operations.len());
            match numbers.below(12) {
                0 => drop(operations.remove(one)),
                1 => operations.insert(one, operations[0].clone()),
                _ => {}
            }
            let count = operations.len() as u32;
            let other = numbers.one(&[0, count - 1, count + 1, u32::MAX]);
            image.write_counted(begin, &operations, numbers.one(&[count, other]));
            if numbers.below(3) == 0 {
                read += image.follow(&mut log, 1 << 20);
            }
        }
        read += image.follow(&mut log, 1 << 20);
        assert!(read <= 4 << 20, "seed {seed}: {read} bytes were read");
        // A few kilobytes of operations are no reason to hold more than some times as much.
        assert!(log.bytes() < 512 << 10, "seed {seed}: {} bytes", log.bytes());
        for number in 0..6 {
            let place = image.superblock.place_of_inode(INODE + number).expect("a place") as usize;
            for (bytes, form) in [(512, 3), (256, 2)] {
                let mut inode = home(bytes, if version == 4 { 2 } else { 3 }, form, 1);
                let before = inode.clone();
                log.lay_inode(&image.superblock, place as u64, &mut inode);
                laid += usize::from(inode != before);
            }
            image.inode(&log, INODE + number);
        }
        for number in [INODE / 8, 200, 201, 202] {
            image.block(&log, number);
        }
    }
    assert!(laid > 4000, "{laid}");
}

#[test]
fn what_is_committed_or_only_begun_without_end_is_not_all_held() {
    let begin = Place { cycle: 3, block: 0 };
    for is_committed in [true, false] {
        let mut image = Image::new(begin);
        let (mut log, mut most) = (Log::default(), 0);
        // The tail stays, so that nothing is at home.
        for number in 0..120 {
            let inode = |one| inode_item(INODE + (50 * number + one) % 3700, 1, &[1; 4096]);
            let mut items: Vec<_> = (0..50).map(inode).collect();
            let parts: Vec<_> = (0..32).map(|part| (part, 1)).collect();
            items.push(buffer_item(number, DIRECTORY, &parts));
            let mut operations = transaction(number as u32, &items);
            operations.truncate(operations.len() - usize::from(!is_committed));
            image.write(begin, &operations);
            image.follow(&mut log, 1 << 30);
            most = most.max(log.bytes());
            if log.is_behind() {
                break;
            }
        }
        let bytes_max = if is_committed { overlay::BYTES_MAX } else { OPEN_BYTES_MAX };
        assert!(log.is_behind() && log.bytes() == 0, "{most} bytes and no end");
        assert!((bytes_max / 2..bytes_max + (64 << 10)).contains(&most), "{most} bytes");
    }
}
