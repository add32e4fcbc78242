//! What kind of drive a device is, as far as that decides how much of it should stay unused.

use crate::system::{DeviceNumber, SystemView, read_line};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What a device is to a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drive {
    /// A partition, a logical volume or another part or combination of drives; or it is not known what it is.
    #[default]
    Part,
    /// A file.
    File,
    /// All of a drive that has a volatile write cache. So consumer drives are; what protects a cache against the loss of power costs.
    Volatile,
    /// All of a drive that has no volatile write cache.
    Protected,
}

/// What kind of drive a path leads to. Asks the kernel, not the device.
pub fn kind_of(path: &Path, view: &SystemView) -> Drive {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Drive::File,
        Ok(found) if found.file_type().is_block_device() => of_block_device(DeviceNumber::from_raw(found.rdev()), view),
        _ => Drive::Part,
    }
}

fn of_block_device(number: DeviceNumber, view: &SystemView) -> Drive {
    let Some(directory) = view.block_directory(number) else { return Drive::Part };
    // Devices that are made of others (mapped, RAID, loop) stand on no hardware of their own.
    if directory.join("partition").exists() || !directory.join("device").exists() {
        return Drive::Part;
    }
    match read_line(&directory.join("queue/write_cache")).as_deref() {
        Some("write back") => Drive::Volatile,
        _ => Drive::Protected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_whole_drive_is_known_by_its_hardware_and_its_write_cache() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let view = SystemView { sys: root.path().to_path_buf(), ..SystemView::default() };
        let add = |number: &str, name: &str, parts: &[&str], cache: Option<&str>| {
            let directory = root.path().join("block").join(name);
            fs::create_dir_all(directory.join("queue")).expect("a directory");
            parts.iter().for_each(|part| fs::write(directory.join(part), "x").expect("a file"));
            cache.iter().for_each(|cache| fs::write(directory.join("queue/write_cache"), format!("{cache}\n")).expect("a file"));
            fs::create_dir_all(root.path().join("dev/block")).expect("a directory");
            std::os::unix::fs::symlink(&directory, root.path().join("dev/block").join(number)).expect("a link");
        };
        add("259:0", "nvme0n1", &["device"], Some("write back"));
        add("259:1", "nvme0n1/nvme0n1p1", &["partition"], None);
        add("259:2", "nvme1n1", &["device"], Some("write through"));
        add("8:0", "sda", &["device"], None);
        add("253:0", "dm-0", &[], Some("write back"));
        let of = |number: &str| of_block_device(DeviceNumber::parse(number).expect("a number"), &view);
        assert_eq!(of("259:0"), Drive::Volatile);
        assert_eq!(of("259:1"), Drive::Part);
        assert_eq!((of("259:2"), of("8:0")), (Drive::Protected, Drive::Protected));
        assert_eq!((of("253:0"), of("9:9")), (Drive::Part, Drive::Part));
        let file = root.path().join("file");
        fs::write(&file, "x").expect("a file");
        assert_eq!((kind_of(&file, &view), kind_of(root.path(), &view)), (Drive::File, Drive::Part));
    }
}
