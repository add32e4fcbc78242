//! Servers on logical volumes of LVM, against the same servers on a bare file system. Needs
//! `../shared/pages`, `mkfs.ext4` and `mkfs.xfs`; skipped with a message where they are missing.

use crate::common::Numbers;
use crate::common::images::{Files, files_of_servers, servers};
use crate::common::xfs::image_of;
use applications::discovery::{Discovery, Found, Reason};

/// The beginning of a physical volume as LVM 2.03.16 has written it. In extents of 4 MiB, the first at 1 MiB: `a` has 0 to 15 and,
/// after it was extended, 25 to 40; `b` has 15 to 25; `c` has two stripes, one of them 40 to 50 here.
const HEAD: &[u8] = include_bytes!("../../../device/tests/lvm-group.bin");
const MIB: usize = 1 << 20;
const EXTENT: usize = 4 * MIB;

fn discover(image: &[u8]) -> Found {
    let mut discovery = Discovery::new(image.len() as u64);
    while let Some(read) = discovery.next() {
        assert!(read.offset_bytes.is_multiple_of(512) && read.len_bytes <= 256 << 10, "{read:?}");
        discovery.give(read.offset_bytes, Ok(&image[read.offset_bytes as usize..][..read.len_bytes]));
    }
    discovery.finish()
}

/// A physical volume with this on `a`, of at most 30 extents.
fn physical(on_a: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; MIB + 50 * EXTENT];
    disk[..HEAD.len()].copy_from_slice(HEAD);
    for (nth, extent) in on_a.chunks(EXTENT).enumerate() {
        let at = MIB + EXTENT * if nth < 15 { nth } else { nth + 10 };
        disk[at..at + extent.len()].copy_from_slice(extent);
    }
    disk
}

/// Names, keys and the bytes of all objects.
fn told(found: &Found, image: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let bytes_of = |object| -> Vec<u8> {
        found.extents(object).flat_map(|extent| image[extent.bytes.start as usize..extent.bytes.end as usize].iter().copied()).collect()
    };
    let mut all: Vec<_> =
        found.objects.iter().map(|object| (object.name.clone(), format!("{:?}", object.key), bytes_of(object.id))).collect();
    all.sort();
    all
}

#[test]
fn servers_on_a_volume_that_was_extended_are_found() {
    // So much before them that some lie on the part that came later.
    let fill = |files: &mut Files| drop(files.insert("a/fill".to_owned(), vec![1; 45 * MIB]));
    let Some(bare) = servers(fill) else { return };
    let on_bare = discover(&bare);
    assert!(on_bare.applications.len() >= 5 && on_bare.objects.len() > 100);
    let expected = told(&on_bare, &bare);
    let disk = physical(&bare);
    let found = discover(&disk);
    assert!(told(&found, &disk) == expected, "{:?}", found.applications);
    assert!(found.map.all().any(|extent| extent.bytes.start >= 101 * MIB as u64), "some of it lies behind b");
    let blind: Vec<_> = found.blind.iter().map(|one| (one.bytes.start / MIB as u64, one.bytes.end / MIB as u64, one.reason)).collect();
    let others = Reason::Other("a striped, mirrored, thin or cached volume of LVM");
    assert_eq!(blind, [(61, 101, Reason::Unknown), (161, 201, others)]);

    // In a partition.
    let mut whole = vec![0; MIB];
    whole[510..512].copy_from_slice(&[0x55, 0xaa]);
    (whole[450], whole[455]) = (0x8e, 8);
    whole.extend(disk);
    assert!(told(&discover(&whole), &whole) == expected);
}

#[test]
fn servers_on_xfs_on_a_volume_are_found() {
    let Some(mut files) = files_of_servers() else { return };
    files.insert("a/fill".to_owned(), vec![1; 45 * MIB]);
    // Smaller than `mkfs.xfs` makes them unasked.
    let Some(sparse) = image_of(30 * EXTENT as u64, &files, &[], &["--unsupported"]) else { return };
    let mut bare = vec![0; 30 * EXTENT];
    assert!(sparse.copy(0, &mut bare));
    let on_bare = discover(&bare);
    assert!(on_bare.complete && on_bare.applications.len() >= 5 && on_bare.objects.len() > 100);
    let disk = physical(&bare);
    let found = discover(&disk);
    assert!(told(&found, &disk) == told(&on_bare, &bare), "{:?}", found.applications);
    assert!(found.map.all().any(|extent| extent.bytes.start >= 101 * MIB as u64), "some of it lies behind b");
}

#[test]
fn damaged_metadata_is_no_reason_to_fail() {
    let Some(bare) = servers(|files| files.retain(|path, _| path.starts_with("data/"))) else { return };
    let sound = physical(&bare);
    let named = |disk: &[u8]| discover(disk).applications.iter().filter(|one| one.instance.is_some()).count();
    let expected = named(&sound);
    assert!(expected > 0);
    let mut numbers = Numbers(25);
    let mut same = 0;
    for _ in 0..40 {
        let mut disk = sound.clone();
        for _ in 0..1 + numbers.below(4) {
            let at = numbers.below(HEAD.len());
            disk[at] = numbers.below(256) as u8;
        }
        same += u32::from(named(&disk) == expected);
    }
    // Most of what is changed has a checksum: then the volume is one of which nothing is known.
    println!("{same} of 40 are found all the same");
    assert!(same < 40);
}
