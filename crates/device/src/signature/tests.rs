//! Each mark is found where it stands; nothing is found in zeroes, random data, or a mark without its surroundings.

use super::*;
use crate::memory::MemoryDevice;
use crate::model::workload::Random;
use std::process::Command;

const SIZE: usize = 4 << 20;

/// What is found on a device of zeroes with these bytes planted.
fn found(planted: &[(usize, &[u8])]) -> Vec<String> {
    let mut bytes = vec![0; SIZE];
    for (offset, data) in planted {
        bytes[*offset..offset + data.len()].copy_from_slice(data);
    }
    let found = find(&MemoryDevice::from_bytes(bytes), &[]).expect("memory can be read");
    found.iter().map(Signature::to_string).collect()
}

fn check(planted: &[(usize, &[u8])], what: &str) {
    assert_eq!(found(planted), [what], "{planted:x?}");
}

const EXT_BASE: [(usize, &[u8]); 4] = [(0x438, &[0x53, 0xef]), (0x400, &[1, 1, 0, 0]), (0x404, &[0, 4, 0, 0]), (0x420, &[0, 0x20, 0, 0])];

#[test]
fn file_systems() {
    check(&EXT_BASE, "an ext2 file system");
    check(&[&EXT_BASE[..], &[(0x45c, &[4])]].concat(), "an ext3 file system");
    check(&[&EXT_BASE[..], &[(0x460, &[0x40]), (0x478, b"data")]].concat(), "an ext4 file system (label \"data\")");
    check(&[(0, b"XFSB"), (4, &[0, 0, 16, 0]), (0x6c, b"home")], "an XFS file system (label \"home\")");
    check(&[(0x10040, b"_BHRfS_M"), (0x1012b, b"pool 1")], "a btrfs file system (label \"pool 1\")");
    check(&[(3, b"NTFS    "), (510, &[0x55, 0xaa])], "an NTFS file system");
    check(&[(3, b"EXFAT   "), (510, &[0x55, 0xaa])], "an exFAT file system");
    check(&[(0x52, b"FAT32   "), (510, &[0x55, 0xaa])], "a FAT file system");
    check(&[(0x36, b"FAT16   "), (510, &[0x55, 0xaa])], "a FAT file system");
    check(&[(0x400, &[0x10, 0x20, 0xf5, 0xf2, 1, 0])], "an F2FS file system");
    check(&[(0x8001, b"CD001")], "an ISO 9660 file system");
    check(&[(0, b"hsqs"), (28, &[4, 0])], "a squashfs file system");
}

#[test]
fn swap_volumes_arrays_and_encryption() {
    check(&[(4086, b"SWAPSPACE2"), (0x41c, b"swap0")], "a swap area (label \"swap0\")");
    check(&[(65526, b"SWAPSPACE2")], "a swap area");
    check(&[(512, b"LABELONE"), (536, b"LVM2 001")], "an LVM physical volume");
    check(&[(0, b"LUKS\xba\xbe\x00\x02")], "a LUKS encrypted volume");
    check(&[(4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")], "a bcache device");
    check(&[(32, &1_623_043u64.to_le_bytes())], "a dm-cache metadata device");
    check(&[(32, &27_022_010u64.to_le_bytes())], "a dm-thin metadata device");
    let md = |major: u32, minor: u32| [0xa92b_4efcu32.to_le_bytes(), major.to_le_bytes(), minor.to_le_bytes()].concat();
    for offset in [0, 4096, SIZE - 8192] {
        check(&[(offset, &md(1, 0))], "a member of a Linux software RAID (md)");
    }
    check(&[(SIZE - 65536, &md(0, 90))], "a member of a Linux software RAID (md)");
    for label in [0, 256 << 10, SIZE - (512 << 10), SIZE - (256 << 10)] {
        check(&[(label + (130 << 10), &0x00ba_b10cu64.to_be_bytes())], "a ZFS pool member");
    }
}

#[test]
fn partition_tables() {
    let entry = [0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
    check(&[(510, &[0x55, 0xaa]), (446, &entry)], "an MBR partition table");
    check(&[(510, &[0x55, 0xaa])], "a boot sector or empty MBR partition table");
    check(&[(512, b"EFI PART"), (510, &[0x55, 0xaa]), (446, &entry)], "a GPT partition table");
    check(&[(4096, b"EFI PART")], "a GPT partition table");
    check(&[(SIZE - 512, b"EFI PART")], "a GPT partition table (second copy)");
}

#[test]
fn our_own_mark_is_told_by_its_caller() {
    let own = OwnMark { what: "a hearth pool", offset_bytes: 4096, magic: b"HEARTHPL" };
    let mut bytes = vec![0; SIZE];
    bytes[4096..4104].copy_from_slice(b"HEARTHPL");
    let device = MemoryDevice::from_bytes(bytes);
    let found = find(&device, &[own]).expect("memory can be read");
    assert_eq!(describe(&found).as_deref(), Some("a hearth pool"));
    assert_eq!(find(&device, &[]).expect("memory can be read"), []);
    // Two copies are told once, and both are there to be erased.
    let twice = find(&device, &[own, own]).expect("memory can be read");
    assert_eq!((twice.len(), describe(&twice).as_deref()), (2, Some("a hearth pool")));
}

#[test]
fn erasing_takes_every_mark_away_and_nothing_else() {
    let mut bytes: Vec<u8> = vec![0x11; SIZE];
    let planted: [(usize, &[u8]); 4] = [(0x10040, b"_BHRfS_M"), (4086, b"SWAPSPACE2"), (SIZE - 512, b"EFI PART"), (0, b"LUKS\xba\xbe")];
    for (offset, data) in planted {
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }
    let device = MemoryDevice::from_bytes(bytes);
    let signatures = find(&device, &[]).expect("memory can be read");
    assert_eq!(signatures.len(), 4, "{signatures:?}");
    erase(&device, &signatures).expect("memory can be written");
    assert_eq!(find(&device, &[]).expect("memory can be read"), []);
    let zeroed = device.to_vec().iter().filter(|byte| **byte == 0).count();
    assert!(zeroed <= 8 * 512, "{zeroed} bytes were zeroed");
}

#[test]
fn several_marks_make_one_sentence() {
    let signature = |what: &str| Signature { what: what.to_string(), label: None, offset_bytes: 0 };
    assert_eq!(describe(&[]), None);
    assert_eq!(describe(&[signature("a"), signature("b"), signature("c")]).as_deref(), Some("a, b and c"));
}

#[test]
fn zeroes_of_any_size_carry_nothing() {
    for size in [0, 512, 1024, 4096, 4608, 65536, 131_072, 1 << 20, SIZE as u64] {
        assert_eq!(find(&MemoryDevice::new(size), &[]).expect("memory can be read"), [], "{size}");
    }
}

#[test]
fn random_data_carries_nothing() {
    let mut random = Random::new(2026);
    // Every place where a mark can be gets new random bytes in each round.
    let mut bytes = vec![0u8; 1 << 20];
    for round in 0..300 {
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.bits().to_le_bytes());
        }
        let device = MemoryDevice::from_bytes(bytes.clone());
        assert_eq!(find(&device, &[]).expect("memory can be read"), [], "round {round}");
    }
}

#[test]
fn short_marks_alone_are_not_believed() {
    let mut random = Random::new(7);
    for round in 0..2000 {
        let mut bytes: Vec<u8> = (0..16384).flat_map(|_| random.bits().to_le_bytes()).collect();
        bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        bytes[0..4].copy_from_slice(b"XFSB");
        let found = find(&MemoryDevice::from_bytes(bytes), &[]).expect("memory can be read");
        assert_eq!(found, [], "round {round}");
    }
    assert!(found(&[(0x438, &[0x53, 0xef])]).is_empty());
}

#[test]
fn a_device_that_cannot_be_read_is_not_called_empty() {
    use crate::failing::{FailingDevice, Fault};
    let device = FailingDevice::new(MemoryDevice::new(SIZE as u64), Fault::from_nth(1));
    assert!(find(&device, &[]).is_err());
}

/// What real tools write, as far as they are installed.
#[test]
fn real_tools_leave_marks_that_are_found() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let image = directory.path().join("image");
    let cases: [(&str, &[&str], &str); 9] = [
        ("mkfs.ext2", &["-q", "-F", "-L", "two"], "an ext2 file system (label \"two\")"),
        ("mkfs.ext3", &["-q", "-F"], "an ext3 file system"),
        ("mkfs.ext4", &["-q", "-F"], "an ext4 file system"),
        ("mkfs.xfs", &["-q", "-f"], "an XFS file system"),
        ("mkfs.btrfs", &["-q", "-f"], "a btrfs file system"),
        ("mkfs.vfat", &[], "a FAT file system"),
        ("mkswap", &["-L", "spare"], "a swap area (label \"spare\")"),
        ("mkfs.f2fs", &["-q", "-f"], "an F2FS file system"),
        ("mkfs.ntfs", &["-q", "-F"], "an NTFS file system"),
    ];
    for (program, arguments, what) in cases {
        let bytes: u64 = 512 << 20;
        std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse image");
        let output = Command::new(program).args(arguments).arg(&image).output();
        if !output.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {program} is not here");
            continue;
        }
        let file = std::fs::File::open(&image).expect("the image is there");
        let geometry = crate::Geometry {
            size_bytes: bytes,
            logical_block_bytes: 512,
            memory_alignment_bytes: 512,
            discard: false,
            discard_zeroes: false,
        };
        let device = crate::BlockingFile::new(crate::blocking::OsDevice::new(file, false, false), image.clone(), geometry);
        let found = find(&device, &[]).expect("the image can be read");
        assert_eq!(describe(&found).as_deref(), Some(what), "{program}");
    }
}
