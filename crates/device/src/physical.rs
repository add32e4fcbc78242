//! Physical blocks: how much of a device a power cut leaves old or new as a whole.
//!
//! Users of a volume take the number that they are told for a promise: databases write pages of it without a second copy, and a target for
//! other machines offers atomic writes of it. So it is never more than what holds.

use crate::system::{DeviceNumber, SystemView, read_line};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use types::BLOCK_BYTES;

/// The physical block of a device or file in bytes, from its logical block up to a block of ours: longer requests may be cut. Where it is
/// not known, or blocks do not begin where the device's do, it is the logical block.
pub fn physical_block_bytes(file: &File, logical_block_bytes: u32) -> u32 {
    bytes_in(&SystemView::default(), file).map_or(logical_block_bytes, |bytes| bounded(bytes, logical_block_bytes))
}

fn bounded(bytes: u32, logical_block_bytes: u32) -> u32 {
    if bytes.is_power_of_two() {
        bytes.clamp(logical_block_bytes, (BLOCK_BYTES as u32).max(logical_block_bytes))
    } else {
        logical_block_bytes
    }
}

fn bytes_in(view: &SystemView, file: &File) -> Option<u32> {
    let facts = file.metadata().ok()?;
    if facts.file_type().is_block_device() {
        return of_disk(&view.block_directory(DeviceNumber::from_raw(facts.rdev()))?);
    }
    let disk = of_disk(&view.block_directory(DeviceNumber::from_raw(facts.dev()))?)?;
    // Blocks of the file lie anywhere where blocks of the file system may begin.
    let unit = rustix::fs::fstatfs(file).ok().and_then(|answer| u32::try_from(answer.f_bsize).ok())?;
    Some(disk.min(unit))
}

/// As the kernel has it of a disk, or of a partition by its disk.
fn of_disk(directory: &Path) -> Option<u32> {
    let number = |path: &Path| read_line(path)?.parse::<u32>().ok();
    let queue = |name: &str| number(&directory.join("queue").join(name)).or_else(|| number(&directory.parent()?.join("queue").join(name)));
    let physical = queue("physical_block_size")?;
    let is_shifted = number(&directory.join("alignment_offset")).is_none_or(|shift| shift != 0);
    if is_shifted { queue("logical_block_size") } else { Some(physical) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_no_less_than_a_sector_and_no_more_than_a_block_of_ours() {
        for (bytes, logical, expected) in [
            (512, 512, 512),
            (4096, 512, 4096),
            (4096, 4096, 4096),
            // A device that says less than its own sector, or something odd.
            (512, 4096, 4096),
            (0, 512, 512),
            (3000, 512, 512),
            // What hearth serves in one piece is no longer.
            (16384, 512, 4096),
            (65536, 4096, 4096),
        ] {
            assert_eq!(bounded(bytes, logical), expected, "{bytes} over {logical}");
        }
    }

    #[test]
    fn a_partition_has_the_blocks_of_its_disk_if_it_begins_with_one() {
        let root = tempfile::tempdir().expect("room");
        let disk = root.path().join("sda");
        for (name, shift) in [("sda1", "0"), ("sda2", "3584")] {
            std::fs::create_dir_all(disk.join(name)).expect("room");
            std::fs::write(disk.join(name).join("alignment_offset"), shift).expect("room");
        }
        std::fs::create_dir_all(disk.join("queue")).expect("room");
        for (name, bytes) in [("queue/physical_block_size", "4096\n"), ("queue/logical_block_size", "512\n"), ("alignment_offset", "0\n")] {
            std::fs::write(disk.join(name), bytes).expect("room");
        }
        assert_eq!(of_disk(&disk), Some(4096));
        assert_eq!(of_disk(&disk.join("sda1")), Some(4096));
        assert_eq!(of_disk(&disk.join("sda2")), Some(512), "its blocks lie across two of the disk");
        std::fs::write(disk.join("alignment_offset"), "-1").expect("room");
        assert_eq!(of_disk(&disk), Some(512), "the kernel says that nothing is aligned");
    }

    #[test]
    fn a_file_has_no_larger_blocks_than_its_file_system() {
        let file = tempfile::tempfile().expect("room");
        let bytes = physical_block_bytes(&file, 512);
        assert!(bytes.is_power_of_two() && (512..=4096).contains(&bytes), "{bytes}");
        // /dev/null is no disk.
        let none = File::open("/dev/null").expect("it is there");
        assert_eq!(physical_block_bytes(&none, 512), 512);
    }
}
