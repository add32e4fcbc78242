//! Whether a device that is watched from outside is still there, and still the same, by what sysfs tells: nothing is opened.

use std::path::{Path, PathBuf};

/// See the module.
pub struct Presence {
    directory: PathBuf,
    /// The kernel's count of devices at its begin, which no two of them share; disks have one since Linux 5.15, partitions have none.
    sequence: Option<String>,
}

impl Presence {
    /// That of the block device with this number, from now on.
    pub fn of(number: (u32, u32)) -> Presence {
        Presence::below(Path::new("/sys/dev/block"), number)
    }

    fn below(root: &Path, (major, minor): (u32, u32)) -> Presence {
        let directory = root.join(format!("{major}:{minor}"));
        let sequence = read(&directory, "diskseq");
        Presence { directory, sequence }
    }

    /// Whether it is gone, or another device has its number. A loop device without a file has no bytes.
    pub fn is_gone(&self) -> bool {
        let is_empty = read(&self.directory, "size").is_none_or(|sectors| sectors == "0");
        is_empty || self.sequence.is_some() && read(&self.directory, "diskseq") != self.sequence
    }
}

fn read(directory: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(directory.join(file)).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_gone_without_bytes_and_when_another_has_its_number() {
        let root = tempfile::tempdir().expect("a directory");
        let device = root.path().join("7:0");
        std::fs::create_dir(&device).expect("room");
        let write = |file: &str, text: &str| std::fs::write(device.join(file), text).expect("room");
        write("size", "2048\n");
        write("diskseq", "12\n");
        let presence = Presence::below(root.path(), (7, 0));
        assert!(!presence.is_gone());
        write("size", "4096\n");
        assert!(!presence.is_gone(), "it may grow");
        write("diskseq", "13\n");
        assert!(presence.is_gone());
        write("diskseq", "12\n");
        write("size", "0\n");
        assert!(presence.is_gone());
        std::fs::remove_dir_all(&device).expect("it is there");
        assert!(presence.is_gone());
        // A partition has no number of that sort.
        let partition = root.path().join("8:1");
        std::fs::create_dir(&partition).expect("room");
        std::fs::write(partition.join("size"), "8\n").expect("room");
        assert!(!Presence::below(root.path(), (8, 1)).is_gone());
    }
}
