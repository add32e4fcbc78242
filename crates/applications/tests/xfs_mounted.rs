//! Extents of files on XFS as the kernel tells them, for shapes that only a mounted file system
//! gives: holes, trees of extents, space that is not written, shared blocks, directories that were
//! large. Needs root, loop devices and XFS in the kernel; skipped with a message where they are
//! missing.

mod common;
#[path = "live/machine.rs"]
#[allow(dead_code, reason = "no server is needed here")]
mod machine;

use applications::filesystems::{FileExtent, Limits, role};
use common::Numbers;
use common::xfs::Sparse;
use machine::Volume;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const BYTES: u64 = 320 << 20;

/// What a tool said; it must succeed.
fn said(program: &str, arguments: &[&str], path: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(path).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A file's extents as the kernel tells them, in lines of "number: first.. last: first.. last:
/// length: expected: flags" of blocks of 512 bytes.
fn extents_by_kernel(path: &Path) -> Vec<FileExtent> {
    let text = said("filefrag", &["-e", "-v", "-b512"], path);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(':').map(str::trim).collect();
        cells.first()?.parse::<u64>().ok()?;
        let number = |cell: &str| cell.split("..").next().and_then(|first| first.trim().parse::<u64>().ok());
        let blocks: u64 = cells.get(3)?.parse().ok()?;
        Some(FileExtent {
            file_offset: number(cells[1])? * 512,
            volume_offset: number(cells[2])? * 512,
            bytes: blocks * 512,
            written: !line.contains("unwritten"),
        })
    };
    text.lines().filter_map(row).collect()
}

/// The same with extents that go on in the next one made one: the kernel cuts them where others
/// share the blocks.
fn joined(extents: &[FileExtent]) -> Vec<FileExtent> {
    let mut all: Vec<FileExtent> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some(last)
                if last.file_offset + last.bytes == extent.file_offset
                    && last.volume_offset + last.bytes == extent.volume_offset
                    && last.written == extent.written =>
            {
                last.bytes += extent.bytes;
            }
            _ => all.push(*extent),
        }
    }
    all
}

/// Makes the files of one file system below a directory.
fn make(root: &Path, has_shared: bool) {
    let mut numbers = Numbers(20);
    let create = |name: &str| File::create(root.join(name)).expect("a file");
    create("plain.ibd").write_all_at(&numbers.bytes(3 << 20), 0).expect("written");
    // No two pieces make one extent: trees of two levels and more.
    for (name, count) in [("tree.ibd", 400), ("forest.ibd", 1500)] {
        let file = create(name);
        for piece in 0..count {
            file.write_all_at(&numbers.bytes(4096), 8192 * piece).expect("written");
        }
    }
    let far = create("far.ibd");
    far.write_all_at(&numbers.bytes(10_000), 40 << 30).expect("written");
    far.write_all_at(&numbers.bytes(10_000), 3 << 30).expect("written");
    let unwritten = create("unwritten.ibd");
    said("fallocate", &["-l", "8MiB"], &root.join("unwritten.ibd"));
    unwritten.write_all_at(&numbers.bytes(70_000), 1 << 20).expect("written");
    unwritten.write_all_at(&numbers.bytes(4096), 5 << 20).expect("written");
    // Space behind the end.
    let short = create("short.ibd");
    short.write_all_at(&numbers.bytes(100_000), 0).expect("written");
    said("fallocate", &["-n", "-l", "1MiB"], &root.join("short.ibd"));
    let cut = create("cut.ibd");
    cut.write_all_at(&numbers.bytes(200_000), 0).expect("written");
    cut.set_len(50_001).expect("cut");
    create("empty.ibd");
    if has_shared {
        let (one, other) = (root.join("plain.ibd"), root.join("shared.ibd"));
        said("cp", &["--reflink=always", one.to_str().expect("a name")], &other);
        File::options().write(true).open(&other).and_then(|file| file.write_all_at(&numbers.bytes(8192), 1 << 20)).expect("written");
    }
    // Most names go again: unused parts, and holes where blocks were.
    let many = root.join("many");
    std::fs::create_dir(&many).expect("a directory");
    for number in 0..6000 {
        File::create(many.join(common::xfs::name(number))).expect("a file");
    }
    for number in (0..6000).filter(|number| number % 1000 < 980 || *number > 5000) {
        std::fs::remove_file(many.join(common::xfs::name(number))).expect("removed");
    }
    // Attributes, which SELinux gives to every file, take a part of the inode.
    let set = "import os, sys\nfor path in sys.argv[1:]: os.setxattr(path, 'user.label', b'x' * 60)";
    for name in ["tree.ibd", "forest.ibd", "unwritten.ibd", "many"] {
        said("python3", &["-c", set], &root.join(name));
    }
    // A name of each kind, and what is no file.
    std::os::unix::fs::symlink("plain.ibd", root.join("link.ibd")).expect("a link");
    std::os::unix::net::UnixListener::bind(root.join("socket.ibd")).expect("a socket");
    std::fs::create_dir(root.join("x".repeat(255))).expect("a directory");
    std::fs::write(root.join("x".repeat(255)).join(format!("{}.ibd", "y".repeat(251))), [7; 5000]).expect("written");
}

/// All regular files below a directory, by their paths from it.
fn files(root: &Path, below: &str, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(below)).expect("a directory").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("text");
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() {
            files(root, &path, all);
        } else if kind.is_file() && role(&path).is_some() {
            all.push(path);
        }
    }
}

fn check(options: &[&str], has_shared: bool) {
    println!("mkfs.xfs {}", options.join(" "));
    let Some(volume) = Volume::xfs(options, BYTES) else { return };
    let root = volume.mounted();
    make(&root, has_shared);
    let mut paths = Vec::new();
    files(&root, "", &mut paths);
    volume.sync();
    let told: BTreeMap<String, Vec<FileExtent>> =
        paths.into_iter().map(|path| (path.clone(), extents_by_kernel(&root.join(path)))).collect();
    let content = |path: &str| if path == "far.ibd" { None } else { Some(std::fs::read(root.join(path)).expect("its bytes")) };
    let contents: BTreeMap<&String, Option<Vec<u8>>> = told.keys().map(|path| (path, content(path))).collect();

    let image = Sparse::of(volume.image());
    let found = image.search(0, &Limits::default()).expect("a file system");
    assert!(found.complete, "while it is mounted, all of it at its home");
    assert_eq!(found.files.len(), told.len());
    let mut most = 0;
    for file in &found.files {
        assert_eq!(joined(&file.extents), joined(&told[&file.path]), "{}", file.path);
        most = most.max(file.extents.len());
        if let Some(bytes) = &contents[&file.path] {
            assert!(image.bytes_of(file) == *bytes, "{} has other bytes", file.path);
        }
    }
    let of = |path: &str| found.files.iter().find(|file| file.path == path).expect("a file");
    assert!(of("unwritten.ibd").extents.iter().filter(|extent| !extent.written).count() >= 2);
    assert!(of("far.ibd").bytes == (40 << 30) + 10_000 && of("short.ibd").bytes == 100_000);
    assert!(most >= 1500 && of("empty.ibd").extents.is_empty());
    println!("{} files, {} extents in one, {} bytes read", found.files.len(), most, found.bytes_read);

    volume.unmount();
    let after = Sparse::of(volume.image()).search(0, &Limits::default()).expect("a file system");
    assert_eq!(after.files.len(), found.files.len());
}

#[test]
fn extents_are_those_that_the_kernel_tells() {
    check(&[], true);
}

#[test]
fn extents_in_small_blocks_are_those_that_the_kernel_tells() {
    check(&["-b", "size=1024", "-n", "size=4096", "-i", "nrext64=1"], true);
}

#[test]
fn extents_of_the_older_version_are_those_that_the_kernel_tells() {
    check(&["-m", "crc=0", "-n", "size=16384"], false);
}
