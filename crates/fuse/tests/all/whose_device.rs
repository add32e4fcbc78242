//! Numbers, names and mounts that others may have by now are looked at before they are touched.

use crate::common::{
    OthersLoop, PATIENCE, Stage, StageOptions, attempt, loop_devices_over, machine_can, mounted_below, pattern, run, wait_until,
};
use fuse::{FileExport, FuseError, LoopExport, LoopOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn start(stage: &Stage) -> LoopExport {
    LoopExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported")
}

fn backing_of(device: &str) -> Option<String> {
    let name = device.trim_start_matches("/dev/");
    std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok().map(|text| text.trim_end().to_owned())
}

/// An administrator detaches the device by mistake, and another program gets its number: stopping, abandoning and dropping the export
/// leave that program's device alone, and its queue too.
#[test]
fn a_number_that_another_has_by_now_is_left_alone() {
    if !machine_can("a_number_that_another_has_by_now_is_left_alone") {
        return;
    }
    for ending in ["stop", "abandon", "drop"] {
        let stage = Stage::new(&StageOptions::default());
        let mut export = start(&stage);
        let device = export.device_path().to_str().expect("plain").to_owned();
        assert!(!export.is_lost());
        run("losetup", &["-d", &device]);
        // At once, unless somebody who looks at all devices has it open for a moment.
        wait_until("it is lost", || export.is_lost());
        assert!(export.users().is_none());
        let image = stage.directory.path().join("others.img");
        std::fs::write(&image, pattern(0, 1 << 20, 1)).expect("written");
        let image = image.to_str().expect("plain");
        // Another test may have been faster.
        if !attempt("losetup", &[&device, image]).status.success() {
            eprintln!("{device} was taken by another test");
            continue;
        }
        let others = OthersLoop(device.clone());
        let queue = format!("/sys/block/{}/queue/max_sectors_kb", device.trim_start_matches("/dev/"));
        let before = std::fs::read_to_string(&queue).expect("readable");
        std::fs::write(&queue, "64").expect("root may set it");
        assert!(export.is_lost() && export.users().is_none(), "whoever has that number now is no user of ours");
        match ending {
            "stop" => drop(export.stop(stage.runtime()).expect("nothing is left to detach")),
            "abandon" => export.abandon(stage.runtime(), PATIENCE).expect("nothing is left to detach"),
            _ => drop(export),
        }
        assert_eq!(backing_of(&device).as_deref(), Some(image), "{ending}: the other's device is untouched");
        assert_eq!(std::fs::read_to_string(&queue).expect("readable").trim(), "64", "{ending}");
        std::fs::write(&queue, before.trim()).expect("it was that before");
        let mut read = [0; 4096];
        File::open(&others.0).and_then(|file| file.read_exact_at(&mut read, 0)).expect("it works");
        assert_eq!(read[..], pattern(0, 4096, 1)[..]);
        drop(others);
        assert!(!mounted_below(stage.directory.path()), "{ending}: the rest has gone");
        assert!(!stage.directory.path().join("links/volume").exists(), "{ending}");
    }
}

/// What lies over our file or bears our name, and lives, is no leftover.
#[test]
fn only_what_is_dead_and_ours_is_cleared_away() {
    if !machine_can("only_what_is_dead_and_ours_is_cleared_away") {
        return;
    }
    let stage = Stage::new(&StageOptions::default());
    let mut export = start(&stage);
    let options = stage.options();
    let problems = fuse::clear_leftovers(&options, "volume", &stage.run_directory()).problems;
    assert_eq!(problems, Vec::<String>::new());
    assert!(!export.is_lost() && export.link_path().is_some_and(Path::exists), "an export that lives is no leftover");
    // A device that somebody else made over the same file.
    let file = export.file().path().to_str().expect("plain").to_owned();
    let others = OthersLoop::attach(&["-f", "--show", &file]);
    fuse::clear_leftovers(&options, "volume", &stage.run_directory());
    assert_eq!(loop_devices_over(stage.directory.path()).len(), 2);
    drop(others);
    export.stop(stage.runtime()).expect("stopped");
}

/// Whether its server lives is not asked of a device by the very process that serves it: killed
/// meanwhile, it would wait for its own answer, and not end.
#[test]
fn a_device_is_not_read_by_who_serves_it_to_tell_whose_it_is() {
    if !machine_can("a_device_is_not_read_by_who_serves_it_to_tell_whose_it_is") {
        return;
    }
    let stage = Stage::new(&StageOptions::default());
    let mut export = start(&stage);
    let device = export.device_path().to_owned();
    let stat = format!("/sys/block/{}/stat", device.file_name().and_then(|name| name.to_str()).expect("plain"));
    let reads = || -> u64 {
        let text = std::fs::read_to_string(&stat).expect("readable");
        text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    };
    // Others may look at a new device, but not all the time.
    let is_unread = || {
        let before = reads();
        assert_eq!(fuse::owner_of(&device), Some(stage.options().owner));
        reads() == before
    };
    wait_until("nobody reads it", is_unread);
    export.stop(stage.runtime()).expect("stopped");
    assert_eq!(fuse::owner_of(&device), None);
}

/// The dead device of a killed server goes by its owner's order, however long ago the server died, and by nobody else's.
#[test]
fn a_dead_device_goes_by_the_order_of_its_owner_alone() {
    if !machine_can("a_dead_device_goes_by_the_order_of_its_owner_alone") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "whose_device::server_to_be_killed", "--nocapture"])
        .env(SERVER_DIRECTORY, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let link = directory.path().join("links/volume");
    wait_until("the server has made it", || link.exists());
    let device = std::fs::read_link(&link).expect("the server has made it");
    let device = device.to_str().expect("plain");
    server.kill().and_then(|()| server.wait()).expect("ended");
    // Longer than attributes were once valid: the kernel must still know whose it is.
    std::thread::sleep(Duration::from_millis(1500));
    let run_directory = directory.path().join("run");
    let of = |owner: &str| LoopOptions { owner: owner.into(), link_directory: None, ..LoopOptions::default() };
    fuse::clear_leftovers(&of("another"), "volume", &run_directory);
    assert!(backing_of(device).is_some(), "another owner's");
    // The mount has gone with that; what is left is a device over a file that has no path any more.
    assert!(!mounted_below(directory.path()));
    fuse::clear_leftovers(&LoopOptions { link_directory: Some(directory.path().join("links")), ..of("owner") }, "volume", &run_directory);
    assert_eq!(backing_of(device), None);
    assert!(std::fs::symlink_metadata(&link).is_err(), "nothing leads to that number any more");
}

/// Not a test: what the one above starts in a process of its own, to kill it.
#[test]
fn server_to_be_killed() {
    let Ok(directory) = std::env::var(SERVER_DIRECTORY) else { return };
    let stage = Stage::new(&StageOptions::default());
    let run_directory = Path::new(&directory).join("run");
    std::fs::create_dir_all(&run_directory).expect("a directory");
    let options =
        LoopOptions { owner: "owner".into(), link_directory: Some(Path::new(&directory).join("links")), ..LoopOptions::default() };
    let _export = LoopExport::start(stage.runtime(), &stage.volume, "volume", &run_directory, &options).expect("exported");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("reads");
}

const SERVER_DIRECTORY: &str = "HEARTH_TEST_WHOSE_SERVER_DIRECTORY";

/// A file system that somebody else mounts over ours is not taken away with it, and neither is one in its place.
#[test]
fn a_mount_of_others_is_left_alone() {
    if !machine_can("a_mount_of_others_is_left_alone") {
        return;
    }
    let stage = Stage::new(&StageOptions::default());
    let started = || FileExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options());
    let mut export = started().expect("exported");
    let (path, other) = (export.path().to_str().expect("plain").to_owned(), stage.directory.path().join("other"));
    std::fs::write(&other, "theirs").expect("written");
    let other = other.to_str().expect("plain");
    // In its place.
    run("umount", &[&path]);
    run("mount", &["--bind", other, &path]);
    export.stop(stage.runtime()).expect("nothing of ours is there");
    assert_eq!(std::fs::read(&path).expect("readable"), b"theirs");
    let error = started().expect_err("in the way");
    assert!(matches!(error, FuseError::Covered { .. }), "{error}");
    run("umount", &[&path]);
    // Over it.
    let mut export = started().expect("exported");
    run("mount", &["--bind", other, &path]);
    let error = export.stop(stage.runtime()).expect_err("it cannot be reached");
    assert!(matches!(error, FuseError::Covered { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("readable"), b"theirs");
    run("umount", &[&path]);
    run("umount", &["-l", &path]);
}
