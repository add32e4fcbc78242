//! Extents of files on XFS as the kernel tells them, for shapes that only a mounted file system
//! gives: holes, trees of extents, space that is not written, shared blocks, directories that were
//! large. Needs root, loop devices and XFS in the kernel; skipped with a message where they are
//! missing.

use crate::common;
use crate::common::Numbers;
use crate::common::xfs::Sparse;
use crate::machine::Volume;
use applications::discovery::{self, Discovery};
use applications::engine_of_file;
use applications::filesystems::xfs::Xfs;
use applications::filesystems::{FileExtent, Found, Limits};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const BYTES: u64 = 320 << 20;
/// Of Linux: a write returns when it is on the device.
const O_DSYNC: i32 = 0o10000;

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
    // What is only in memory yet lies nowhere on the device.
    text.lines().filter(|line| !line.contains("delalloc")).filter_map(row).collect()
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

/// The extents that were found are those of the kernel; else the first that differ are told.
fn assert_same(found: &[FileExtent], by_kernel: &[FileExtent], what: &str) {
    let (found, by_kernel) = (joined(found), joined(by_kernel));
    let same = found.iter().zip(&by_kernel).take_while(|(one, other)| one == other).count();
    let next = |extents: &[FileExtent]| extents[same..].iter().take(3).copied().collect::<Vec<_>>();
    assert!(
        found == by_kernel,
        "{what}: {} extents, of which {same} are the same, then {:?}; the kernel tells {}, then {:?}",
        found.len(),
        next(&found),
        by_kernel.len(),
        next(&by_kernel)
    );
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
        } else if kind.is_file() && engine_of_file(&path).is_some() {
            all.push(path);
        }
    }
}

fn check(options: &[&str], has_shared: bool) {
    println!("mkfs.xfs {}", options.join(" "));
    let Some(volume) = Volume::xfs(options, "", BYTES) else { return };
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
        assert_same(&file.extents, &told[&file.path], &file.path);
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

/// Looks at most until the end of the log is reached. A look follows it up to a limit only, and while
/// it reads, more is written; on a slow machine more than the limit.
const LOOKS_MAX: usize = 20;

/// What a search finds on the device now, while the file system is mounted.
fn search_now(image: &File) -> Found {
    let mut read = |offset, bytes: &mut [u8]| image.read_exact_at(bytes, offset).is_ok();
    for _ in 0..LOOKS_MAX {
        let file_system = Xfs::open(&mut read, 0).expect("a file system");
        let found = file_system.data_files(&mut read, &Limits::default());
        if found.complete {
            return found;
        }
    }
    panic!("{LOOKS_MAX} searches did not reach the end of the log");
}

/// What a discovery finds on the device now; it goes on from the one before, if there was one.
fn discover_now(image: &File, before: Option<discovery::Found>) -> discovery::Found {
    let mut known = before;
    for _ in 0..LOOKS_MAX {
        let look = match &known {
            Some(before) => Discovery::again(before, BYTES),
            None => Discovery::new(BYTES),
        };
        let mut read = |offset, bytes: &mut [u8]| image.read_exact_at(bytes, offset).is_ok();
        let found = common::xfs::discover_with(look, &mut read);
        println!("{} bytes read", found.bytes_read);
        if !found.is_behind() {
            return found;
        }
        known = Some(found);
    }
    panic!("{LOOKS_MAX} looks did not reach the end of the log");
}

/// Changes files that nobody compares, and writes the log, until it is told to end.
fn keep_busy(root: &Path, end: &AtomicBool) {
    let busy = root.join("busy");
    std::fs::create_dir(&busy).expect("a directory");
    let mut numbers = Numbers(31);
    let growing = File::options().create(true).append(true).custom_flags(O_DSYNC).open(busy.join("growing.ibd")).expect("a file");
    for number in 0.. {
        std::io::Write::write_all(&mut &growing, &numbers.bytes(4096)).expect("written");
        let name = busy.join(format!("new_{}.ibd", number % 50));
        let count = 1 + numbers.below(20_000);
        std::fs::write(&name, numbers.bytes(count)).expect("written");
        std::fs::rename(&name, busy.join(format!("old_{}.ibd", number % 70))).expect("renamed");
        if number % 200 == 199 {
            growing.set_len(4096).expect("cut");
        }
        if end.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// One round of changes to files below a directory, each of them written to the log by `fsync`.
fn change(root: &Path, round: u64, numbers: &mut Numbers) {
    let place = root.join(format!("srv/shop_{}", round % 3));
    std::fs::create_dir_all(&place).expect("a directory");
    let table = |name: String| File::options().create(true).truncate(false).write(true).open(place.join(name)).expect("a file");
    let growing = table("growing.ibd".to_owned());
    growing.write_all_at(&numbers.bytes(100_000), round * 100_000).expect("written");
    // Pieces that do not join: a list of extents in the inode that becomes a tree.
    let pieces = table("pieces.ibd".to_owned());
    for piece in 0..90 {
        pieces.write_all_at(&numbers.bytes(4096), (round * 90 + piece) * 8192).expect("written");
    }
    let space = table(format!("space_{round}.ibd"));
    said("fallocate", &["-l", &format!("{}KiB", 512 + 64 * round)], &place.join(format!("space_{round}.ibd")));
    space.write_all_at(&numbers.bytes(30_000), 100_000).expect("written");
    let cut = table("cut.ibd".to_owned());
    cut.write_all_at(&numbers.bytes(200_000), 0).expect("written");
    cut.set_len(10_000 + round * 4096).expect("cut");
    let many = place.join("many");
    std::fs::create_dir_all(&many).expect("a directory");
    for number in 0..60 {
        table(format!("many/{}", common::xfs::name((round * 60 + number) as usize)));
    }
    if round % 2 == 1 {
        std::fs::rename(many.join(common::xfs::name((round * 60) as usize)), place.join(format!("moved_{round}.ibd"))).expect("renamed");
        std::fs::remove_file(many.join(common::xfs::name((round * 60 + 1) as usize))).expect("removed");
    }
    // Space behind the end is given back at the last close, which may be that of a child of another
    // test, any time later.
    for file in [&growing, &pieces, &space, &cut] {
        file.set_len(file.metadata().expect("its size").len()).expect("cut where it ends");
    }
    for file in [growing, pieces, space, cut, File::open(&many).expect("a directory"), File::open(&place).expect("a directory")] {
        file.sync_all().expect("on the device");
    }
}

/// Whether a found file is one that the busy thread does not change.
fn is_compared(path: &str) -> bool {
    path.starts_with("srv/")
}

/// How often the log went around, by its first block, and one more.
fn cycle_of_the_log(image: &File) -> u32 {
    let bytes = |at: u64, count: usize| {
        let mut bytes = vec![0; count];
        image.read_exact_at(&mut bytes, at).expect("its bytes");
        bytes
    };
    let superblock = bytes(0, 512);
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (block_bytes, group_blocks, log) = (word(&superblock, 4), word(&superblock, 84), word(&superblock, 52));
    let (group, block) = (log >> superblock[124], log & ((1 << superblock[124]) - 1));
    let first = bytes((u64::from(group) * u64::from(group_blocks) + u64::from(block)) * u64::from(block_bytes), 8);
    if word(&first, 0) == 0xfeed_babe { word(&first, 4) } else { word(&first, 0) }
}

/// Files that are changed while others change, each time compared with what the kernel tells; until
/// the log has gone around, if it shall.
fn check_busy(options: &[&str], mount_options: &str, rounds: u64, goes_around: bool) {
    println!("mkfs.xfs {} mounted {mount_options}", options.join(" "));
    let Some(volume) = Volume::xfs(options, mount_options, BYTES) else { return };
    let root = volume.mounted();
    std::fs::create_dir(root.join("srv")).expect("a directory");
    volume.sync();
    let image = File::open(volume.image()).expect("an image");
    let (end, mut numbers) = (AtomicBool::new(false), Numbers(30));
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| keep_busy(&root, &end));
        let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut known: Option<discovery::Found> = None;
            for round in 0..60 {
                if round >= rounds && (!goes_around || cycle_of_the_log(&image) > 1) {
                    break;
                }
                change(&root, round, &mut numbers);
                let found = search_now(&image);
                let mut paths = Vec::new();
                files(&root, "srv", &mut paths);
                let told: BTreeMap<&str, _> = found.files.iter().map(|file| (file.path.as_str(), file)).collect();
                assert_eq!(told.keys().filter(|path| is_compared(path)).count(), paths.len(), "round {round}");
                let mut extents = 0;
                for path in &paths {
                    let file = told.get(path.as_str()).unwrap_or_else(|| panic!("round {round}: {path} is not found"));
                    let by_kernel = extents_by_kernel(&root.join(path));
                    assert_same(&file.extents, &by_kernel, &format!("round {round}: {path}"));
                    assert_eq!(file.bytes, std::fs::metadata(root.join(path)).expect("its size").len(), "round {round}: {path}");
                    extents += file.extents.len();
                }
                println!("round {round}: {} files, {extents} extents, {} bytes read", paths.len(), found.bytes_read);
                // Look by look, the log is followed from where it was left.
                let next = discover_now(&image, known.take());
                let mapped = |id| next.extents(id).map(|extent| extent.bytes.end - extent.bytes.start).sum::<u64>();
                let compared: Vec<_> = next.objects.iter().filter(|object| is_compared(&object.path)).collect();
                assert_eq!(compared.len(), paths.len());
                for object in compared {
                    let extents = &told[object.path.as_str()].extents;
                    assert_eq!(mapped(object.id), extents.iter().map(|extent| extent.bytes).sum::<u64>(), "{}", object.path);
                }
                known = Some(next);
            }
            assert!(!goes_around || cycle_of_the_log(&image) > 1);
        }));
        end.store(true, Ordering::Relaxed);
        busy.join().expect("it ended well");
        compared.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn extents_of_files_that_change_all_the_time_are_those_of_the_log() {
    check_busy(&[], "", 12, false);
    check_busy(&["-s", "size=4096", "-i", "size=1024"], "", 4, false);
}

#[test]
fn large_records_of_the_log_are_read() {
    check_busy(&["-b", "size=1024", "-n", "size=8192", "-i", "nrext64=1", "-l", "su=256k"], ",logbsize=256k", 6, true);
}

#[test]
fn the_log_of_the_older_version_is_read() {
    check_busy(&["-m", "crc=0", "-n", "size=16384"], "", 6, false);
}
