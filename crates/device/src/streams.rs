//! How many write streams the kernel announces for a device. Writes of one stream lie in other parts of the flash than those of another.

use crate::system::{DeviceNumber, SystemView, read_line};
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Streams that writes to an open device may name, from 1 on: none before Linux 6.16, of files, and without direct I/O.
pub fn write_streams(file: &File) -> u16 {
    let is_direct = fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
    let of_device = || {
        let facts = file.metadata().ok().filter(|facts| facts.file_type().is_block_device())?;
        announced(&SystemView::default().block_directory(DeviceNumber::from_raw(facts.rdev()))?)
    };
    if is_direct { of_device().unwrap_or(0) } else { 0 }
}

/// As the kernel has it of this very device: it refuses streams on partitions, which have no queue of their own, and announces none for
/// devices that are made of others.
fn announced(directory: &Path) -> Option<u16> {
    read_line(&directory.join("queue/max_write_streams"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_streams_that_the_kernel_announces_and_its_partitions_have_none() {
        let root = tempfile::tempdir().expect("room");
        let disk = root.path().join("nvme0n1");
        std::fs::create_dir_all(disk.join("nvme0n1p1")).expect("room");
        std::fs::create_dir_all(disk.join("queue")).expect("room");
        assert_eq!(announced(&disk), None, "a kernel before 6.16");
        for (text, expected) in [("8\n", Some(8)), ("0\n", Some(0)), ("many\n", None)] {
            std::fs::write(disk.join("queue/max_write_streams"), text).expect("room");
            assert_eq!(announced(&disk), expected, "{text:?}");
        }
        assert_eq!(announced(&disk.join("nvme0n1p1")), None);
    }

    #[test]
    fn a_file_has_none() {
        assert_eq!(write_streams(&tempfile::tempfile().expect("room")), 0);
        assert_eq!(write_streams(&File::open("/dev/null").expect("it is there")), 0);
    }
}
