//! The marks themselves. Sources: the on-disk format documents and kernel headers of each owner.

use super::{Signature, View};
use crate::DeviceError;

/// A mark long enough to stand for itself: fixed bytes at a fixed place.
struct Mark {
    offset_bytes: u64,
    magic: &'static [u8],
    what: &'static str,
    /// Where the name stands, and how long it may be.
    label: Option<(usize, usize)>,
}

const fn mark(offset_bytes: u64, magic: &'static [u8], what: &'static str) -> Mark {
    Mark { offset_bytes, magic, what, label: None }
}

const fn named(offset_bytes: u64, magic: &'static [u8], what: &'static str, label: (usize, usize)) -> Mark {
    Mark { offset_bytes, magic, what, label: Some(label) }
}

const SWAP: &str = "a swap area";
const SUSPEND: &str = "the image of a suspended system";
const LVM: &str = "an LVM physical volume";
const OCFS2: &str = "an OCFS2 file system";
const FAT: &str = "a FAT file system";

const MARKS: &[Mark] = &[
    named(0x10040, b"_BHRfS_M", "a btrfs file system", (0x1012b, 256)),
    // The header fills a page and the mark ends it; pages have 4 to 64 KiB.
    named(4086, b"SWAPSPACE2", SWAP, (0x41c, 16)),
    named(8182, b"SWAPSPACE2", SWAP, (0x41c, 16)),
    named(16374, b"SWAPSPACE2", SWAP, (0x41c, 16)),
    named(65526, b"SWAPSPACE2", SWAP, (0x41c, 16)),
    mark(4086, b"SWAP-SPACE", SWAP),
    mark(4086, b"S1SUSPEND\0", SUSPEND),
    mark(65526, b"S1SUSPEND\0", SUSPEND),
    // The label lies in one of the first four sectors; its type is 24 bytes in.
    mark(24, b"LVM2 001", LVM),
    mark(512 + 24, b"LVM2 001", LVM),
    mark(1024 + 24, b"LVM2 001", LVM),
    mark(1536 + 24, b"LVM2 001", LVM),
    mark(0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    mark(0x4000, b"SKUL\xba\xbe", "a LUKS encrypted volume (second header)"),
    mark(4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
    mark(4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system"),
    mark(0, b"integrt\0", "a dm-integrity device"),
    mark(0, b"verity\0\0", "a dm-verity hash device"),
    mark(0, b"dmvdo001", "a VDO volume"),
    mark(512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool"),
    mark(0, b"bluestore block device", "a Ceph BlueStore device"),
    mark(32, b"ORCLDISK", "an Oracle ASM disk"),
    mark(3, b"NTFS    ", "an NTFS file system"),
    mark(3, b"EXFAT   ", "an exFAT file system"),
    mark(3, b"-FVE-FS-", "a BitLocker volume"),
    mark(0x52, b"FAT32   ", FAT),
    mark(0x36, b"FAT16   ", FAT),
    mark(0x36, b"FAT12   ", FAT),
    mark(0x8001, b"CD001", "an ISO 9660 file system"),
    mark(0x8001, b"BEA01", "a UDF file system"),
    mark(0x8801, b"BEA01", "a UDF file system"),
    mark(0x10034, b"ReIsErFs", "a ReiserFS file system"),
    mark(0x10034, b"ReIsEr2Fs", "a ReiserFS file system"),
    mark(0x10034, b"ReIsEr3Fs", "a ReiserFS file system"),
    mark(1024, b"OCFSV2", OCFS2),
    mark(2048, b"OCFSV2", OCFS2),
    mark(4096, b"OCFSV2", OCFS2),
    mark(8192, b"OCFSV2", OCFS2),
    mark(512, b"EFI PART", "a GPT partition table"),
    mark(4096, b"EFI PART", "a GPT partition table"),
    mark(0, b"vhdxfile", "a VHDX disk image"),
];

/// Marks of four bytes, each with a test of what stands around them.
struct ShortMark {
    offset: usize,
    magic: [u8; 4],
    what: &'static str,
    sane: fn(&View<'_>) -> bool,
}

const SHORT_MARKS: &[ShortMark] = &[
    ShortMark { offset: 0, magic: *b"XFSB", what: "an XFS file system", sane: |view| block_size_is_sane(view.u32_be(4)) },
    ShortMark { offset: 0x400, magic: [0x10, 0x20, 0xf5, 0xf2], what: "an F2FS file system", sane: |view| view.u16_le(0x404) == 1 },
    ShortMark { offset: 0x8000, magic: *b"JFS1", what: "a JFS file system", sane: |view| (1..=2).contains(&view.u32_le(0x8004)) },
    ShortMark {
        offset: 0x400,
        magic: [0xe2, 0xe1, 0xf5, 0xe0],
        what: "an EROFS file system",
        sane: |view| (9..=16).contains(&view.head::<1>(0x40c)[0]),
    },
    ShortMark { offset: 0, magic: *b"hsqs", what: "a squashfs file system", sane: |view| view.u16_le(28) == 4 },
    ShortMark { offset: 32, magic: *b"NXSB", what: "an APFS container", sane: |view| block_size_is_sane(view.u32_le(36)) },
    ShortMark { offset: 0x1_0000, magic: [0x01, 0x16, 0x19, 0x70], what: "a GFS2 file system", sane: |view| view.u32_be(0x1_0004) == 1 },
    ShortMark {
        offset: 0,
        magic: [0x21, 0x93, 0x48, 0x23],
        what: "a dm-writecache device",
        sane: |view| (1..=2).contains(&view.u32_le(4)),
    },
    ShortMark { offset: 0, magic: *b"QFI\xfb", what: "a qcow2 disk image", sane: |view| (1..=3).contains(&view.u32_be(4)) },
    ShortMark { offset: 0, magic: *b"KDMV", what: "a VMDK disk image", sane: |view| (1..=3).contains(&view.u32_le(4)) },
];

fn block_size_is_sane(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65536).contains(&bytes)
}

pub(super) fn find_foreign(view: &View<'_>, found: &mut Vec<Signature>) -> Result<(), DeviceError> {
    for mark in MARKS {
        if view.bytes(mark.offset_bytes, mark.magic.len())?.is_some_and(|bytes| bytes == mark.magic) {
            let label = mark.label.and_then(|(offset, length)| view.label(offset, length));
            push(found, mark.what, label, mark.offset_bytes);
        }
    }
    for mark in SHORT_MARKS {
        if view.head::<4>(mark.offset) == mark.magic && (mark.sane)(view) {
            let label = if mark.magic == *b"XFSB" { view.label(0x6c, 12) } else { None };
            push(found, mark.what, label, mark.offset as u64);
        }
    }
    find_ext(view, found);
    find_device_mapper(view, found);
    find_md(view, found)?;
    find_zfs(view, found)?;
    find_at_end(view, found)?;
    find_mbr(view, found);
    Ok(())
}

/// Adds a mark unless one of its kind is there already.
fn push(found: &mut Vec<Signature>, what: &str, label: Option<String>, offset_bytes: u64) {
    if !found.iter().any(|signature| signature.what == what) {
        found.push(Signature { what: what.to_string(), label, offset_bytes });
    }
}

/// ext2, 3 and 4: a mark of two bytes in the superblock at 1 KiB, so the fields beside it must make sense.
fn find_ext(view: &View<'_>, found: &mut Vec<Signature>) {
    let sane = view.u16_le(0x438) == 0xef53
        && view.u32_le(0x400) > 0 // inodes
        && view.u32_le(0x404) > 0 // blocks
        && view.u32_le(0x418) <= 6 // log of the block size
        && view.u32_le(0x420) > 0 // blocks in a group
        && view.u32_le(0x44c) <= 1 // revision
        && view.u16_le(0x43a) <= 7; // state
    if !sane {
        return;
    }
    /// COMPAT_HAS_JOURNAL.
    const JOURNAL: u32 = 0x4;
    /// The incompatible features that came with ext4: extents, 64bit, flex_bg.
    const EXT4: u32 = 0x40 | 0x80 | 0x200;
    let what = if view.u32_le(0x460) & EXT4 != 0 {
        "an ext4 file system"
    } else if view.u32_le(0x45c) & JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    push(found, what, view.label(0x478, 16), 0x438);
}

/// Metadata devices of dm-cache, dm-thin and dm-era: checksum, flags, block number (0), uuid, then the mark.
fn find_device_mapper(view: &View<'_>, found: &mut Vec<Signature>) {
    let magics =
        [(0o6142003, "a dm-cache metadata device"), (27_022_010, "a dm-thin metadata device"), (2_126_579_579, "a dm-era metadata device")];
    let (block_number, magic) = (u64::from_le_bytes(view.head(8)), u64::from_le_bytes(view.head(32)));
    for (known, what) in magics {
        if magic == known && block_number == 0 {
            push(found, what, None, 32);
        }
    }
}

/// Linux software RAID: the superblock stands at the start (1.1), 4 KiB in (1.2), or near the end (1.0 and 0.90).
fn find_md(view: &View<'_>, found: &mut Vec<Signature>) -> Result<(), DeviceError> {
    const MAGIC: u32 = 0xa92b_4efc;
    const WHAT: &str = "a member of a Linux software RAID (md)";
    let sectors = view.size_bytes / 512;
    let version_1_0 = sectors.checked_sub(16).map(|sector| (sector & !7) * 512);
    let version_0_90 = (view.size_bytes & !0xffff).checked_sub(0x1_0000);
    let places = [(Some(0), 1), (Some(4096), 1), (version_1_0, 1), (version_0_90, 0)];
    for (offset, major) in places {
        let Some(offset) = offset else { continue };
        let Some(bytes) = view.bytes(offset, 12)? else { continue };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let minor_fits = major == 1 || (90..=100).contains(&word(8));
        if word(0) == MAGIC && word(4) == major && minor_fits {
            push(found, WHAT, None, offset);
        }
    }
    Ok(())
}

/// ZFS: four labels of 256 KiB, two at each end; the second half of each is an array of uberblocks of at least 1 KiB.
fn find_zfs(view: &View<'_>, found: &mut Vec<Signature>) -> Result<(), DeviceError> {
    const LABEL_BYTES: u64 = 256 << 10;
    const MAGIC: u64 = 0x00ba_b10c;
    let end = view.size_bytes / LABEL_BYTES * LABEL_BYTES;
    let starts = [Some(0), Some(LABEL_BYTES), end.checked_sub(2 * LABEL_BYTES), end.checked_sub(LABEL_BYTES)];
    for start in starts.into_iter().flatten() {
        let array = start + LABEL_BYTES / 2;
        let Some(bytes) = view.bytes(array, LABEL_BYTES as usize / 2)? else { continue };
        for (index, uberblock) in bytes.chunks_exact(1024).enumerate() {
            let magic = u64::from_le_bytes(uberblock[..8].try_into().expect("eight of 1024 bytes"));
            if magic == MAGIC || magic.swap_bytes() == MAGIC {
                push(found, "a ZFS pool member", None, array + index as u64 * 1024);
            }
        }
    }
    Ok(())
}

/// What stands at the very end: the second GPT, and DRBD's internal metadata.
fn find_at_end(view: &View<'_>, found: &mut Vec<Signature>) -> Result<(), DeviceError> {
    for block_bytes in [512, 4096] {
        let Some(offset) = view.size_bytes.checked_sub(block_bytes) else { continue };
        if view.bytes(offset, 8)?.is_some_and(|bytes| bytes == b"EFI PART") {
            push(found, "a GPT partition table (second copy)", None, offset);
        }
    }
    if let Some(offset) = view.size_bytes.checked_sub(4096)
        && let Some(bytes) = view.bytes(offset + 60, 4)?
        && matches!(bytes[..], [0x83, 0x74, 0x02, 0x67 | 0x6a..=0x6d])
    {
        push(found, "a DRBD device", None, offset + 60);
    }
    Ok(())
}

/// An MBR: 55 AA, four entries of which each is empty or sane, and not the boot sector of a file system found already.
fn find_mbr(view: &View<'_>, found: &mut Vec<Signature>) {
    if view.head::<2>(510) != [0x55, 0xaa] {
        return;
    }
    // Boot sectors of FAT, exFAT, NTFS and XFS's neighbours carry 55 AA too, and a GPT a protective MBR.
    if found.iter().any(|signature| signature.offset_bytes < 512 || signature.what.contains("GPT")) {
        return;
    }
    let mut used = 0;
    for entry in 0..4 {
        let at = 446 + 16 * entry;
        let [status, kind] = [view.head::<1>(at)[0], view.head::<1>(at + 4)[0]];
        let (start, sectors) = (view.u32_le(at + 8), view.u32_le(at + 12));
        let empty = view.head::<16>(at) == [0; 16];
        let sane = matches!(status, 0 | 0x80) && kind != 0 && start != 0 && sectors != 0;
        if !empty && !sane {
            return;
        }
        used += u32::from(!empty);
    }
    let what = if used > 0 { "an MBR partition table" } else { "a boot sector or empty MBR partition table" };
    push(found, what, None, 510);
}
