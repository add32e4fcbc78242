//! By what lies on a device it can be recognised where its hardware tells nothing: UUIDs that were made with the file system,
//! the volume manager's label or the partition table, and stay as long as those do.
//!
//! Sources: the on-disk format documents and kernel headers of each owner.

use crate::identity::FileSystemIdentity;
use crate::{BlockingDevice, DeviceError};
use std::collections::BTreeMap;
use types::SECTOR_BYTES;

/// All marks of the beginning lie in this many bytes.
const HEAD_BYTES: usize = 0x1000;
/// An LVM label lies in one of the first four sectors.
const LVM_LABEL_SECTORS: usize = 4;
/// An md superblock of version 1.0 lies in the last 8 to 12 KiB, at a multiple of 4 KiB (linux/raid/md_p.h).
const MD_TAIL_SECTORS: u64 = 16;
const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// The UUIDs on a device: "LVM physical volume", "md member" and so on, to value. `file_system`: the one found on it.
pub(crate) fn find(device: &dyn BlockingDevice, file_system: Option<&FileSystemIdentity>) -> Result<BTreeMap<String, String>, DeviceError> {
    let size_bytes = device.geometry().size_bytes;
    let mut head = vec![0; size_bytes.min(2 * HEAD_BYTES as u64) as usize];
    device.read_at(0, &mut head)?;
    // A device too short for a mark has none.
    head.resize(2 * HEAD_BYTES, 0);
    let mut found = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| drop(value.map(|value| found.insert(name.to_string(), value)));
    add("file system", file_system.map(|fs| format!("{} {}", fs.kind, fs.uuid)));
    add("LVM physical volume", lvm(&head));
    add("LUKS volume", (head[..6] == *b"LUKS\xba\xbe").then(|| text(&head[168..208])).filter(|uuid| !uuid.is_empty()));
    add("swap area", (head[4086..4096] == *b"SWAPSPACE2").then(|| hex(&head[0x40c..0x41c])));
    add("md member", md(&head[..0x100]).or_else(|| md(&head[0x1000..0x1100])).map_or_else(|| md_at_end(device), |id| Ok(Some(id)))?);
    add("partition table", gpt(&head).or_else(|| dos(&head)));
    Ok(found)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().take_while(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect()
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The label says where the header begins, and that begins with the UUID: 32 characters.
fn lvm(head: &[u8]) -> Option<String> {
    let sector = SECTOR_BYTES as usize;
    let label = (0..LVM_LABEL_SECTORS).map(|nth| nth * sector).find(|at| head[*at..at + 8] == *b"LABELONE")?;
    let at = label + little(&head[label + 20..label + 24]) as usize;
    head.get(at..at + 32).map(text).filter(|uuid| uuid.len() == 32)
}

/// The array's UUID and the member's own.
fn md(superblock: &[u8]) -> Option<String> {
    let version_one = superblock[..4] == MD_MAGIC && little(&superblock[4..8]) == 1;
    version_one.then(|| format!("{} {}", hex(&superblock[16..32]), hex(&superblock[168..184])))
}

fn md_at_end(device: &dyn BlockingDevice) -> Result<Option<String>, DeviceError> {
    let sectors = device.geometry().size_bytes / SECTOR_BYTES;
    let Some(at) = sectors.checked_sub(MD_TAIL_SECTORS).map(|sector| sector & !7) else { return Ok(None) };
    let mut superblock = vec![0; HEAD_BYTES];
    device.read_at(at * SECTOR_BYTES, &mut superblock)?;
    Ok(md(&superblock))
}

/// The disk's GUID; the header lies in the second logical block.
fn gpt(head: &[u8]) -> Option<String> {
    [SECTOR_BYTES as usize, 4096].into_iter().find(|at| head[*at..at + 8] == *b"EFI PART").map(|at| hex(&head[at + 56..at + 72]))
}

/// The disk signature of a DOS partition table. Boot sectors of file systems end with the same mark, so one without partitions is none.
fn dos(head: &[u8]) -> Option<String> {
    let (signature, mark) = (&head[440..444], &head[510..512]);
    let has_partitions = head[446..510].chunks(16).any(|entry| entry[4] != 0);
    let sane = head[446..510].chunks(16).all(|entry| entry[0] & 0x7f == 0);
    (mark == [0x55, 0xaa] && signature != [0; 4] && has_partitions && sane).then(|| hex(signature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    fn check(planted: &[(usize, &[u8])], expected: &[(&str, &str)]) {
        let mut bytes = vec![0; 1 << 20];
        for (at, data) in planted {
            bytes[*at..at + data.len()].copy_from_slice(data);
        }
        let found = find(&MemoryDevice::from_bytes(bytes), None).expect("memory can be read");
        let expected: BTreeMap<String, String> = expected.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_kind_of_uuid_is_found_where_its_owner_puts_it() {
        check(&[], &[]);
        let pv = b"u2CxA0Xq1dTn5yqJ3b0cW8pNfK6hVtRz";
        check(
            &[(512, b"LABELONE"), (512 + 20, &[32, 0, 0, 0]), (512 + 32, pv)],
            &[("LVM physical volume", "u2CxA0Xq1dTn5yqJ3b0cW8pNfK6hVtRz")],
        );
        check(&[(0, b"LUKS\xba\xbe"), (168, b"6d1d-42\0")], &[("LUKS volume", "6d1d-42")]);
        check(&[(4086, b"SWAPSPACE2"), (0x40c, &[0xab; 16])], &[("swap area", &"ab".repeat(16))]);
        let member = format!("{} {}", "01".repeat(16), "02".repeat(16));
        let last = (1 << 20) - 16 * 512;
        for at in [0, 4096, last] {
            let planted: [(usize, &[u8]); 4] = [(at, &MD_MAGIC), (at + 4, &[1]), (at + 16, &[1; 16]), (at + 168, &[2; 16])];
            check(&planted, &[("md member", &member)]);
        }
        check(&[(512, b"EFI PART"), (512 + 56, &[7; 16])], &[("partition table", &"07".repeat(16))]);
        check(&[(4096, b"EFI PART"), (4096 + 56, &[7; 16])], &[("partition table", &"07".repeat(16))]);
        check(&[(440, &[1, 2, 3, 4]), (450, &[0x83]), (510, &[0x55, 0xaa])], &[("partition table", "01020304")]);
    }

    #[test]
    fn half_a_mark_is_none_and_a_short_device_has_none() {
        check(&[(512, b"LABELONE"), (512 + 20, &[0xff, 0xff, 0xff, 0x7f])], &[]);
        check(&[(440, &[1, 2, 3, 4]), (510, &[0x55, 0xaa])], &[]);
        check(&[(0, &MD_MAGIC), (4, &[9])], &[]);
        assert_eq!(find(&MemoryDevice::new(512), None).expect("memory can be read"), BTreeMap::new());
    }
}
