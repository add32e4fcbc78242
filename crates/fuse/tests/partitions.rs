//! A volume behaves like a disk: it has partitions, and what stands on them and on what stands on them is seen, named and written back.
//! A file of its own, since a mount namespace that it begins has the mounts of all other tests, too.

#[path = "all/common/mod.rs"]
mod common;

use common::{Mounted, OthersLoop, PATIENCE, Stage, StageOptions, attempt, machine_can, partition_table, pattern, run, wait_until};
use fuse::LoopExport;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An export with a partition table, and its partitions.
fn disk(stage: &Stage, sizes_mib: &[u32]) -> (LoopExport, Vec<PathBuf>) {
    let export = LoopExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported");
    let device = export.device_path().to_owned();
    let file = OpenOptions::new().write(true).open(&device).expect("opens");
    file.write_all_at(&partition_table(sizes_mib), 0).and_then(|()| file.sync_all()).expect("written");
    drop(file);
    scan(&device);
    let partitions: Vec<PathBuf> = (1..=sizes_mib.len()).map(|number| PathBuf::from(format!("{}p{number}", device.display()))).collect();
    assert!(partitions.iter().all(|path| path.exists()), "{partitions:?}");
    (export, partitions)
}

/// As partitioning programs do at their end. A kernel that reads no tables is told of the partitions.
fn scan(device: &Path) {
    let device = device.to_str().expect("plain");
    run("blockdev", &["--rereadpt", device]);
    attempt("partx", &["--update", device]);
}

/// Mount namespaces of other tests, begun while a file system of ours was mounted, have it too, until they end.
fn wait_for_namespaces(export: &LoopExport) {
    wait_until("other namespaces end", || !export.users().is_some_and(|users| users.contains("namespace")));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain")
}

fn stage() -> Stage {
    Stage::new(&StageOptions { size_bytes: 128 << 20, ..StageOptions::default() })
}

#[test]
fn a_mounted_partition_holds_the_device_and_is_named() {
    if !machine_can("a_mounted_partition_holds_the_device_and_is_named") {
        return;
    }
    let stage = stage();
    let (mut export, partitions) = disk(&stage, &[40, 40]);
    let device = export.device_path().to_owned();
    assert_eq!(export.users(), None, "a partition by itself is no use");
    run("mkfs.ext4", &["-q", "-F", text(&partitions[1])]);
    let point = stage.directory.path().join("mnt");
    let mounted = Mounted::new(&partitions[1], point.clone());
    let name = partitions[1].file_name().expect("it has one").to_string_lossy().into_owned();
    let expected = format!("partition {name} mounted at {}", point.display());
    assert_eq!(export.users(), Some(expected.clone()));
    let error = export.stop(stage.runtime()).expect_err("in use").to_string();
    assert!(error.contains(&expected), "{error}");
    assert!(export.link_path().is_some_and(Path::exists), "it goes on as it was");
    // An image in the file system, and a loop device over the other partition.
    std::fs::write(point.join("image"), vec![0; 1 << 20]).expect("written");
    let inner = OthersLoop::attach(&["-f", "--show", text(&point.join("image"))]);
    let over = OthersLoop::attach(&["-f", "--show", text(&partitions[0])]);
    let users = export.users().expect("in use");
    let short = |device: &str| device.trim_start_matches("/dev/").to_owned();
    let first = partitions[0].file_name().expect("it has one").to_string_lossy().into_owned();
    assert!(users.contains(&format!("partition {first}, {} over it", short(&over.0))), "{users}");
    assert!(users.contains(&format!("partition {name}, {} over {} on it", short(&inner.0), point.join("image").display())), "{users}");
    drop((inner, over));
    drop(mounted);
    // Before somebody else is the first that is named.
    wait_for_namespaces(&export);
    let open = std::fs::File::open(&partitions[0]).expect("opens");
    let users = export.users().expect("in use");
    assert!(users.starts_with(&format!("{} open in ", partitions[0].display())), "{users}");
    drop(open);
    export.stop(stage.runtime()).expect("nobody uses it");
    assert!(!partitions[0].exists(), "partitions go with the device");
    assert!(
        !std::fs::read_dir(Path::new("/sys/block").join(device.file_name().expect("it has one")))
            .expect("there")
            .flatten()
            .any(|entry| entry.path().join("partition").exists())
    );
}

/// What applications have written and not synced is in the backing file when the daemon has ended: on a partition, and in a file system in an
/// image on that.
#[test]
fn the_end_of_the_daemon_writes_back_what_stands_on_partitions() {
    if !machine_can("the_end_of_the_daemon_writes_back_what_stands_on_partitions") {
        return;
    }
    let stage = stage();
    let (export, partitions) = disk(&stage, &[100]);
    run("mkfs.ext4", &["-q", "-F", text(&partitions[0])]);
    let (outer_point, inner_point) = (stage.directory.path().join("outer"), stage.directory.path().join("inner"));
    let content = pattern(0, 3 << 20, 4);
    {
        let outer = Mounted::new(&partitions[0], outer_point.clone());
        std::fs::File::create(outer.0.join("image")).and_then(|file| file.set_len(32 << 20)).expect("made");
        run("mkfs.ext4", &["-q", "-F", text(&outer.0.join("image"))]);
        let device = OthersLoop::attach(&["-f", "--show", text(&outer.0.join("image"))]);
        {
            let inner = Mounted::new(Path::new(&device.0), inner_point.clone());
            std::fs::write(inner.0.join("file"), &content).expect("written");
            std::fs::write(outer.0.join("file"), &content).expect("written");
            export.abandon(stage.runtime(), PATIENCE).expect("all is written back");
        }
        drop(device);
    }
    // A start finds them again, whether or not the kernel reads tables.
    let mut export =
        LoopExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported");
    assert!(Path::new(&format!("{}p1", export.device_path().display())).exists());
    export.stop(stage.runtime()).expect("nobody uses it");
    let image = stage.backing();
    let offset = (1u64 << 20).to_string();
    let again = OthersLoop::attach(&["-f", "--show", "--offset", &offset, "--sizelimit", &(100u64 << 20).to_string(), text(&image)]);
    let outer = Mounted::new(Path::new(&again.0), outer_point);
    assert!(std::fs::read(outer.0.join("file")).expect("there") == content);
    let inside = OthersLoop::attach(&["-f", "--show", text(&outer.0.join("image"))]);
    let inner = Mounted::new(Path::new(&inside.0), inner_point);
    assert!(std::fs::read(inner.0.join("file")).expect("there") == content);
    drop(inner);
    drop(inside);
    drop(outer);
}

/// A mount in another mount namespace is seen, named with a process that is in it, and written back.
#[test]
fn a_mount_in_another_namespace_is_seen() {
    if !machine_can("a_mount_in_another_namespace_is_seen") {
        return;
    }
    let stage = stage();
    let (mut export, partitions) = disk(&stage, &[60]);
    run("mkfs.ext4", &["-q", "-F", text(&partitions[0])]);
    let point = stage.directory.path().join("apart");
    std::fs::create_dir(&point).expect("made");
    let script = format!("mount {} {p} && echo ok && read line; umount {p}", partitions[0].display(), p = point.display());
    let mut apart = std::process::Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let output = apart.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("reads");
    let users = export.users();
    drop(apart.stdin.take());
    apart.wait().expect("ended");
    let expected = format!("mounted at {} in the mount namespace of process {}", point.display(), apart.id());
    assert!(users.as_ref().is_some_and(|users| users.contains(&expected)), "{line:?}: {users:?} lacks {expected:?}");
    wait_for_namespaces(&export);
    export.stop(stage.runtime()).expect("nobody uses it any more");
}
