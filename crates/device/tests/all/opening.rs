//! Opening real files and loop devices: direct, locked, measured, and refused with a sentence.

use crate::common::{LoopDevice, Mounted, direct_directory};
use device::{Access, BlockingDevice, DeviceKind, OpenDevice, OpenError, Strayed};
use std::fs::File;
use std::path::Path;
use std::process::Command;

fn refused(path: &Path) -> String {
    OpenDevice::open(path, Access::ReadWrite).expect_err("refused").to_string()
}

#[test]
fn a_created_file_has_its_size_and_keeps_what_is_written() {
    let Some(directory) = direct_directory() else { return };
    let path = directory.path().join("ssd");
    let device = OpenDevice::create(&path, 1 << 20).expect("room for 1 MiB");
    let geometry = device.geometry();
    assert_eq!((geometry.size_bytes, device.kind()), (1 << 20, DeviceKind::RegularFile));
    let blocking = device.blocking().expect("a second handle");
    let block = vec![0xa5; geometry.logical_block_bytes as usize];
    blocking.write_at(8192, &block).expect("written");
    blocking.flush().expect("flushed");
    // An odd address and an odd length go through the bounce buffer.
    let mut read = vec![0; block.len() + 3];
    blocking.read_at(8191, &mut read).expect("read");
    assert_eq!((read[0], &read[1..=block.len()], &read[block.len() + 1..]), (0, &block[..], &[0, 0][..]));
    blocking.discard(8192, 4096).expect("discarded");
    if geometry.discard_zeroes {
        blocking.read_at(8191, &mut read).expect("read");
        assert!(read.iter().all(|byte| *byte == 0));
    }
    blocking.write_at(0, &vec![1; 16384]).expect("written");
    blocking.write_zeroes(4096, 8192).expect("zeroed");
    let mut read = vec![9; 16384];
    blocking.read_at(0, &mut read).expect("read");
    assert!(read.iter().enumerate().all(|(at, byte)| *byte == u8::from(!(4096..12288).contains(&at))));
    drop(device);
    assert!(refused(&path).contains("locked"), "the blocking handle still holds the lock");
    drop(blocking);
    assert!(OpenDevice::open(&path, Access::ReadWrite).is_ok());
}

#[test]
fn a_second_opener_is_told() {
    let Some(directory) = direct_directory() else { return };
    let path = directory.path().join("disk");
    let first = OpenDevice::create(&path, 65536).expect("a file");
    assert!(refused(&path).contains("locked by another process"));
    assert!(OpenDevice::open(&path, Access::ReadOnly).is_err(), "a writer has it");
    drop(first);
    let reader = OpenDevice::open(&path, Access::ReadOnly).expect("nobody has it");
    assert!(OpenDevice::open(&path, Access::ReadOnly).is_ok(), "readers share");
    assert!(refused(&path).contains("locked"));
    let written = reader.blocking().expect("a handle").write_at(0, &[0; 4096]);
    assert_eq!(written.expect_err("opened for reading").errno(), libc::EBADF);
}

#[test]
fn creation_leaves_nothing_behind_when_it_fails() {
    let Some(directory) = direct_directory() else { return };
    let path = directory.path().join("ssd");
    let error = OpenDevice::create(&path, 1 << 62).expect_err("4 EiB never fit");
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("no room for 4EiB"), "{error}");
    assert!(!path.exists(), "the partial file is gone");
    std::fs::write(&path, b"precious").expect("a file");
    assert!(matches!(OpenDevice::create(&path, 4096), Err(OpenError::Exists { .. })));
    assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    let nowhere = OpenDevice::create(&directory.path().join("no/ssd"), 4096).expect_err("no directory");
    assert!(nowhere.to_string().contains("is its directory there?"), "{nowhere}");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("gone", &link).expect("a link");
    let dangling = OpenDevice::create(&link, 4096).expect_err("it leads nowhere");
    assert!(dangling.to_string().contains("is a symbolic link to gone, which is not there"), "{dangling}");
    assert!(OpenDevice::create(&path.with_extension("0"), 0).is_err());
    assert!(!path.with_extension("0").exists());
}

#[test]
fn a_full_file_system_is_told_and_the_partial_file_removed() {
    let Some(directory) = direct_directory() else { return };
    let image = directory.path().join("small.img");
    File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
    let Some(device) = LoopDevice::attach(&image, &[]) else { return };
    let Some(mounted) = Mounted::ext4(&device.path, &directory.path().join("mount")) else { return };
    let path = mounted.point.join("ssd");
    let result = OpenDevice::create(&path, 64 << 20);
    assert!(matches!(result, Err(OpenError::NoSpace { size_bytes, .. }) if size_bytes == 64 << 20), "{result:?}");
    assert!(!path.exists());
    // A sparse file is as much as it says only if there is room for it.
    File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    let sparse = OpenDevice::open(&path, Access::ReadWrite).expect("a file");
    let error = sparse.allocate(64 << 20).expect_err("it does not fit");
    let OpenError::HolesDoNotFit { needed_bytes, free_bytes, .. } = error else { panic!("{error}") };
    assert!(needed_bytes == 64 << 20 && free_bytes < 16 << 20, "{needed_bytes} {free_bytes}");
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&path.metadata().expect("its facts")), 0, "it was left as it was");
    sparse.allocate(4 << 20).expect("a part of it fits");
}

#[test]
fn odd_things_are_refused_with_a_sentence() {
    let Some(directory) = direct_directory() else { return };
    let at = |name: &str| directory.path().join(name);
    File::create(at("empty")).expect("a file");
    assert!(refused(&at("empty")).contains("is empty"));
    std::fs::write(at("odd"), vec![0; 5000]).expect("a file");
    assert!(refused(&at("odd")).contains("5000 bytes, which is not a multiple"));
    assert!(refused(&at("none")).contains("does not exist"));
    assert!(refused(directory.path()).contains("a directory"));
    assert!(refused(Path::new("/proc/self/status")).contains("O_DIRECT"));
}

#[test]
fn a_loop_device_is_opened_exclusively_and_measured() {
    let Some(directory) = direct_directory() else { return };
    let image = directory.path().join("disk.img");
    File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
    let Some(attached) = LoopDevice::attach(&image, &["--sector-size", "4096"]) else { return };
    let device = OpenDevice::open(&attached.path, Access::ReadWrite).expect("a free loop device");
    let geometry = device.geometry();
    assert_eq!((device.kind(), geometry.size_bytes, geometry.logical_block_bytes), (DeviceKind::BlockDevice, 8 << 20, 4096));
    assert!(refused(&attached.path).contains("in use"), "exclusive");
    let blocking = device.blocking().expect("a handle");
    assert_eq!(blocking.write_at(512, &[0; 512]).expect_err("half a block").errno(), libc::EINVAL);
    blocking.write_at(1 << 20, &vec![7; 1 << 20]).expect("written");
    blocking.flush().expect("flushed");
    blocking.discard(1 << 20, 4096).expect("discarded");
    blocking.write_zeroes((1 << 20) + 4096, 4096).expect("zeroed");
    let mut read = vec![1; 12288];
    blocking.read_at(1 << 20, &mut read).expect("read");
    assert!(read[4096..8192].iter().all(|byte| *byte == 0) && read[8192..].iter().all(|byte| *byte == 7));
    if geometry.discard_zeroes {
        assert!(read[..4096].iter().all(|byte| *byte == 0), "a discard that promises zeroes keeps its word");
    }
}

#[test]
fn what_cannot_be_written_is_refused_to_a_writer_and_open_to_a_reader() {
    let Some(directory) = direct_directory() else { return };
    let image = directory.path().join("disk.img");
    File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
    let Some(device) = LoopDevice::attach(&image, &[]) else { return };
    let Some(mounted) = Mounted::ext4(&device.path, &directory.path().join("mount")) else { return };
    let file = mounted.point.join("file");
    drop(OpenDevice::create(&file, 1 << 20).expect("there is room"));
    assert!(OpenDevice::open(&file, Access::ReadOnly).expect("a reader").is_writable().expect("known"));
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&mounted.point).status();
    assert!(remounted.is_ok_and(|status| status.success()), "it can be mounted read-only");
    assert!(refused(&file).contains("read-only for hearth: mount it writable"), "{}", refused(&file));
    assert!(!OpenDevice::open(&file, Access::ReadOnly).expect("a reader").is_writable().expect("known"));
    let other = directory.path().join("other.img");
    File::create(&other).and_then(|file| file.set_len(1 << 20)).expect("an image");
    let Some(attached) = LoopDevice::attach(&other, &["--read-only"]) else { return };
    assert!(refused(&attached.path).contains("is read-only: make it writable"), "{}", refused(&attached.path));
    assert!(!OpenDevice::open(&attached.path, Access::ReadOnly).expect("a reader").is_writable().expect("known"));
}

/// `cp` on XFS makes copies that share blocks, by itself; the file was used with sectors of 512 bytes before and is afterwards.
#[test]
fn sectors_of_a_file_are_moved_though_a_copy_shares_its_blocks() {
    const SECTOR: usize = 512;
    let Some(directory) = direct_directory() else { return };
    let disk = directory.path().join("xfs.img");
    // The smallest that mkfs.xfs makes.
    File::create(&disk).and_then(|file| file.set_len(300 << 20)).expect("an image");
    let Some(attached) = LoopDevice::attach(&disk, &[]) else { return };
    let Some(mounted) = Mounted::new("mkfs.xfs", &attached.path, &directory.path().join("a mount")) else { return };
    let (path, copy) = (mounted.point.join("image"), mounted.point.join("copy"));
    std::fs::write(&path, vec![1; 64 << 10]).expect("there is room");
    let before = OpenDevice::open(&path, Access::ReadWrite).expect("it is there");
    assert_eq!(before.geometry().logical_block_bytes, 512);
    let done = Command::new("cp").args(["--reflink=always"]).args([&path, &copy]).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this XFS shares no blocks");
        return;
    }
    let write = |device: &OpenDevice, sector: usize, value: u8| {
        let blocking = device.blocking().expect("a handle");
        blocking.write_at((sector * SECTOR) as u64, &[value; SECTOR]).expect("written");
        blocking.flush().expect("flushed");
    };
    // While it is open, and opened anew.
    write(&before, 9, 2);
    drop(before);
    let again = OpenDevice::open(&path, Access::ReadWrite).expect("it is there");
    assert_eq!(again.geometry().logical_block_bytes, 512);
    write(&again, 11, 3);
    write(&again, 12, 4);
    let mut read = vec![0; 64 << 10];
    again.blocking().expect("a handle").read_at(0, &mut read).expect("read");
    let expected: Vec<u8> = (0..128)
        .map(|sector| match sector {
            9 => 2,
            11 => 3,
            12 => 4,
            _ => 1,
        })
        .collect();
    assert!(read.chunks(SECTOR).zip(&expected).all(|(sector, value)| sector.iter().all(|byte| byte == value)));
    assert!(std::fs::read(&copy).expect("it is there").iter().all(|byte| *byte == 1), "the copy is another file");
}

#[test]
fn a_file_that_lost_its_name_is_told_apart_from_one_that_moved() {
    let Some(directory) = direct_directory() else { return };
    let at = |name: &str| directory.path().join(name);
    let opened = OpenDevice::create(&at("disk"), 65536).expect("a file");
    assert_eq!(opened.strayed(), None);
    std::fs::rename(at("disk"), at("moved")).expect("renamed");
    assert_eq!(opened.strayed(), Some(Strayed::Elsewhere));
    std::fs::write(at("disk"), "another").expect("there is room");
    assert_eq!(opened.strayed(), Some(Strayed::Elsewhere));
    std::fs::rename(at("moved"), at("disk")).expect("renamed back");
    assert_eq!(opened.strayed(), None);
    std::fs::write(at("new"), "another").and_then(|()| std::fs::rename(at("new"), at("disk"))).expect("replaced");
    assert_eq!(opened.strayed(), Some(Strayed::Deleted));
    std::fs::remove_file(at("disk")).expect("removed");
    assert_eq!(opened.strayed(), Some(Strayed::Deleted));
    // It can be saved by the name that is told.
    opened.blocking().expect("a handle").write_at(4096, &[7; 4096]).expect("written");
    let saved = std::fs::read(opened.descriptor_path()).expect("it is open here");
    assert!(saved.len() == 65536 && saved[4096..8192].iter().all(|byte| *byte == 7));
}
