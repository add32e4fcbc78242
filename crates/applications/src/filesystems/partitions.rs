//! Where file systems may begin on a volume: at its start, and where a partition table says.

use super::ReadAt;
use super::volume::{Volume, drive};
use crate::bytes::{le32, le64};

/// The unit of partition tables.
const SECTOR_BYTES: u64 = 512;
/// Entries of a GPT that are looked at: what the specification asks for, and what tools write.
const ENTRIES_MAX: usize = 128;
/// MBR partition types that are containers, and the one that says "see the GPT".
const CONTAINERS: [u8; 3] = [0x05, 0x0f, 0x85];
const PROTECTIVE: u8 = 0xee;

/// Offsets on the volume where a file system may begin: 0, and the starts of partitions (MBR
/// without logical drives, or GPT with 512-byte sectors).
pub fn starts(read: &mut ReadAt) -> Vec<u64> {
    let volume = Volume::default();
    drive(read, &volume, starts_of(&volume))
}

/// [`starts`] of a volume that is read by asking.
pub(crate) async fn starts_of(volume: &Volume) -> Vec<u64> {
    let mut starts = vec![0];
    let mut sector = [0; 512];
    if !volume.read(0, &mut sector).await || sector[510..] != [0x55, 0xaa] {
        return starts;
    }
    for entry in sector[446..510].chunks_exact(16) {
        let (kind, first) = (entry[4], u64::from(le32(entry, 8)));
        if kind == PROTECTIVE {
            starts.extend(gpt(volume).await);
        } else if kind != 0 && first > 0 && !CONTAINERS.contains(&kind) {
            starts.push(first * SECTOR_BYTES);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    starts
}

async fn gpt(volume: &Volume) -> Vec<u64> {
    let mut header = [0; 512];
    if !volume.read(SECTOR_BYTES, &mut header).await || header[..8] != *b"EFI PART" {
        return Vec::new();
    }
    let (table, count, bytes) = (le64(&header, 72), le32(&header, 80) as usize, le32(&header, 84) as usize);
    if !(128..=4096).contains(&bytes) {
        return Vec::new();
    }
    let mut entries = vec![0; (count.min(ENTRIES_MAX) * bytes).next_multiple_of(512)];
    let Some(at) = table.checked_mul(SECTOR_BYTES) else { return Vec::new() };
    if !volume.read(at, &mut entries).await {
        return Vec::new();
    }
    let used = entries.chunks_exact(bytes).filter(|entry| entry[..16] != [0; 16]);
    used.filter_map(|entry| le64(entry, 32).checked_mul(SECTOR_BYTES)).filter(|start| *start > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(volume: &[u8], expected: &[u64]) {
        let found = starts(&mut |offset, bytes: &mut [u8]| {
            assert!(!bytes.is_empty(), "who reads may fail there, and failures end a look");
            let Some(from) = usize::try_from(offset).ok().and_then(|at| volume.get(at..at.checked_add(bytes.len())?)) else { return false };
            bytes.copy_from_slice(from);
            true
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn tables_of_both_kinds() {
        let mut volume = vec![0; 64 << 10];
        check(&volume, &[0]);
        volume[510..512].copy_from_slice(&[0x55, 0xaa]);
        (volume[450], volume[454 + 1]) = (0x83, 8);
        check(&volume, &[0, 2048 * 512]);
        volume[450] = PROTECTIVE;
        check(&volume, &[0]);
        volume[512..520].copy_from_slice(b"EFI PART");
        (volume[512 + 72], volume[512 + 80], volume[512 + 84]) = (2, 128, 128);
        (volume[1024], volume[1024 + 33]) = (1, 16);
        check(&volume, &[0, 4096 * 512]);
        volume[512 + 80] = 0;
        check(&volume, &[0]);
    }

    #[test]
    fn nonsense_is_no_partition() {
        let mut volume = vec![0xff; 4096];
        volume[510..512].copy_from_slice(&[0x55, 0xaa]);
        check(&volume, &[0, 0xffff_ffff * 512]);
        volume[450] = PROTECTIVE;
        volume[512..520].copy_from_slice(b"EFI PART");
        check(&volume, &[0, 0xffff_ffff * 512]);
        check(&[], &[0]);
    }
}
