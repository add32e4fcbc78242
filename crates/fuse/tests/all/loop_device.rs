//! A volume is a real block device: what is written is there, flushes and discards arrive, file systems live on it, and when it goes
//! nothing of it is left.

use crate::common::{
    Mounted, OthersLoop, PATIENCE, RingSwitch, Stage, StageOptions, attempt, loop_devices_over, machine_can, mounted_below, pattern, run,
    transports, wait_until,
};
use fuse::{FileExport, FuseError, LoopExport, Transport};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Memory aligned for direct I/O.
#[repr(C, align(4096))]
struct Aligned([u8; 1 << 20]);

fn aligned(data: &[u8]) -> Box<Aligned> {
    let mut memory = Box::new(Aligned([0; 1 << 20]));
    memory.0[..data.len()].copy_from_slice(data);
    memory
}

fn open_direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("opens for direct I/O")
}

fn device(export: &LoopExport) -> &str {
    export.device_path().to_str().expect("a plain path")
}

fn start(stage: &Stage) -> LoopExport {
    let _switch = RingSwitch::set(stage.transport);
    let export = LoopExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported");
    assert_eq!(export.file().negotiated().over_io_uring, stage.transport == Transport::Ring);
    export
}

fn stop(stage: &Stage, export: &mut LoopExport) {
    export.stop(stage.runtime()).expect("stopped");
    assert_nothing_left(stage);
}

fn assert_nothing_left(stage: &Stage) {
    assert_eq!(loop_devices_over(stage.directory.path()), Vec::<String>::new());
    assert!(!mounted_below(stage.directory.path()), "no mount is left");
    assert!(!stage.run_directory().join("volume").exists(), "no file is left");
    assert!(std::fs::symlink_metadata(stage.directory.path().join("links/volume")).is_err(), "no link is left");
}

/// Writes of many sizes and places read back the same, through the device and in the backing file.
fn check_data(path: &Path, backing: &Path, block_bytes: u64) {
    let file = open_direct(path);
    let shapes: [(u64, usize); 9] = [
        (0, 4096),
        (4096, 512),
        (8192 + 512, 512),
        (16384 + 1024, 8192),
        (1 << 20, 1 << 20),
        ((3 << 20) + 512, (1 << 20) - 512),
        (5 << 20, 65536),
        ((6 << 20) + 3584, 20480),
        ((64 << 20) - 4096, 4096),
    ];
    let shapes: Vec<_> =
        shapes.into_iter().filter(|(at, length)| at.is_multiple_of(block_bytes) && (*length as u64).is_multiple_of(block_bytes)).collect();
    for round in 0..3 {
        for &(at, length) in &shapes {
            let memory = aligned(&pattern(at, length, round));
            file.write_all_at(&memory.0[..length], at).expect("written");
        }
        for &(at, length) in &shapes {
            let mut memory = aligned(&[]);
            file.read_exact_at(&mut memory.0[..length], at).expect("read");
            assert!(memory.0[..length] == pattern(at, length, round), "{length} bytes at {at}, round {round}");
        }
    }
    file.sync_all().expect("flushed");
    let direct = open_direct(backing);
    for &(at, length) in &shapes {
        let start = at / 4096 * 4096;
        let mut memory = aligned(&[]);
        let whole = ((at - start) as usize + length).next_multiple_of(4096).min(1 << 20);
        direct.read_exact_at(&mut memory.0[..whole], start).expect("read");
        let skip = (at - start) as usize;
        assert!(memory.0[skip..skip + length] == pattern(at, length, 2), "{length} bytes at {at} in the backing file");
    }
}

#[test]
fn a_file_without_a_loop_device_holds_what_is_written() {
    if !machine_can("a_file_without_a_loop_device_holds_what_is_written") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { transport, ..StageOptions::default() });
        let switch = RingSwitch::set(transport);
        let mut export =
            FileExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported");
        drop(switch);
        assert!(export.negotiated().asynchronous_direct_io);
        assert_eq!(std::fs::metadata(export.path()).expect("facts").len(), 64 << 20);
        check_data(export.path(), &stage.backing(), 512);
        let file = OpenOptions::new().read(true).write(true).open(export.path()).expect("opens");
        assert_eq!(file.set_len(1 << 20).expect_err("the size is fixed").raw_os_error(), Some(libc::EPERM));
        assert_eq!(file.write_at(&[1; 100], 0).expect_err("not a whole sector").raw_os_error(), Some(libc::EINVAL));
        let mut odd = [0; 1000];
        file.read_exact_at(&mut odd, 100).expect("reads may begin anywhere");
        assert!(odd[..] == pattern(0, 4096, 2)[100..1100]);
        assert_eq!(file.read_at(&mut odd, (64 << 20) - 10).expect("short at the end"), 10);
        file.set_times(std::fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH)).expect("times are taken");
        drop(file);
        export.stop(stage.runtime()).expect("stopped");
        assert_nothing_left(&stage);
    }
}

#[test]
fn a_device_holds_what_is_written() {
    if !machine_can("a_device_holds_what_is_written") {
        return;
    }
    for (block_bytes, transport) in [512, 4096].into_iter().flat_map(|bytes| transports().into_iter().map(move |kind| (bytes, kind))) {
        let stage = Stage::new(&StageOptions { block_bytes, transport, ..StageOptions::default() });
        let mut export = start(&stage);
        assert_eq!(
            run("blockdev", &["--getsize64", "--getss", device(&export)]).split_whitespace().collect::<Vec<_>>(),
            ["67108864", &block_bytes.to_string()]
        );
        assert_eq!(std::fs::read_link(export.link_path().expect("a link")).expect("a link"), export.device_path());
        check_data(export.device_path(), &stage.backing(), u64::from(block_bytes));
        stop(&stage, &mut export);
    }
}

/// Few pages and few requests in flight must slow clients down, never lose or mix up their requests.
#[test]
fn a_full_volume_and_an_empty_page_pool_only_slow_clients_down() {
    if !machine_can("a_full_volume_and_an_empty_page_pool_only_slow_clients_down") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { io_pages: 2048, in_flight_max: 3, transport, ..StageOptions::default() });
        let mut export = start(&stage);
        std::thread::scope(|scope| {
            for client in 0..8u64 {
                let path = export.device_path();
                scope.spawn(move || {
                    let file = open_direct(path);
                    for round in 0..40u64 {
                        let at = (client * 8 + round % 8) << 20;
                        let length = [4096, 512 * 1024, 512, 1 << 20][(round % 4) as usize];
                        let memory = aligned(&pattern(at, length, round));
                        file.write_all_at(&memory.0[..length], at).expect("written");
                        let mut memory = aligned(&[]);
                        file.read_exact_at(&mut memory.0[..length], at).expect("read");
                        assert!(memory.0[..length] == pattern(at, length, round), "client {client}, round {round}");
                    }
                });
            }
        });
        stop(&stage, &mut export);
    }
}

#[test]
fn ext4_lives_on_it() {
    if !machine_can("ext4_lives_on_it") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { size_bytes: 256 << 20, transport, ..StageOptions::default() });
        let mut export = start(&stage);
        run("mkfs.ext4", &["-q", "-F", device(&export)]);
        let content = pattern(0, 3 << 20, 9);
        {
            let mounted = Mounted::new(export.device_path(), stage.directory.path().join("mnt"));
            for number in 0..20 {
                std::fs::write(mounted.0.join(format!("file {number}")), &content[number * 1000..]).expect("written");
            }
            File::open(&mounted.0).expect("opens").sync_all().expect("synced");
            let error = export.stop(stage.runtime()).expect_err("a mounted device does not go");
            assert!(matches!(&error, FuseError::InUse { by, .. } if by.contains("mounted at")), "{error}");
        }
        run("fsck.ext4", &["-f", "-n", device(&export)]);
        stop(&stage, &mut export);
        // The same after another start: everything is in the backing file.
        let mut export = start(&stage);
        {
            let mounted = Mounted::new(export.device_path(), stage.directory.path().join("mnt"));
            for number in 0..20 {
                assert!(std::fs::read(mounted.0.join(format!("file {number}"))).expect("read") == content[number * 1000..]);
            }
        }
        stop(&stage, &mut export);
    }
}

#[test]
fn discards_free_space_and_give_zeroes() {
    if !machine_can("discards_free_space_and_give_zeroes") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { transport, ..StageOptions::default() });
        let mut export = start(&stage);
        let file = open_direct(export.device_path());
        for megabyte in 0..16u64 {
            file.write_all_at(&aligned(&pattern(megabyte << 20, 1 << 20, 0)).0, megabyte << 20).expect("written");
        }
        file.sync_all().expect("flushed");
        let used = || File::open(stage.backing()).expect("opens").metadata().expect("facts").blocks() * 512;
        let before = used();
        assert!(before >= 16 << 20);
        run("blkdiscard", &["--offset", "4194304", "--length", "8388608", device(&export)]);
        assert!(used() <= before - (7 << 20), "{} of {before} bytes are still used", used());
        let mut memory = aligned(&[]);
        for (megabyte, gone) in [(3, false), (4, true), (11, true), (12, false)] {
            file.read_exact_at(&mut memory.0, megabyte << 20).expect("read");
            let expected = if gone { vec![0; 1 << 20] } else { pattern(megabyte << 20, 1 << 20, 0) };
            assert!(memory.0[..] == expected[..], "megabyte {megabyte}");
        }
        run("blkdiscard", &["--zeroout", "--offset", "12582912", "--length", "1048576", device(&export)]);
        file.read_exact_at(&mut memory.0, 12 << 20).expect("read");
        assert!(memory.0.iter().all(|byte| *byte == 0));
        drop(file);
        stop(&stage, &mut export);
    }
}

/// What is set in a queue stays with the number of the device, also when this process is killed: so nothing is set.
#[test]
fn its_queue_has_the_settings_that_it_had() {
    if !machine_can("its_queue_has_the_settings_that_it_had") {
        return;
    }
    const ODD_KIB: &str = "72";
    for _ in 0..20 {
        let free = run("losetup", &["-f"]).trim().trim_start_matches("/dev/").to_owned();
        let setting = Path::new("/sys/block").join(&free).join("queue/max_sectors_kb");
        let read = || std::fs::read_to_string(&setting).unwrap_or_default().trim().to_owned();
        let before = read();
        if std::fs::write(&setting, ODD_KIB).is_err() {
            continue;
        }
        let stage = Stage::new(&StageOptions::default());
        let mut export = start(&stage);
        // Another program may have been faster.
        let is_the_one = export.device_path() == Path::new("/dev").join(&free);
        let while_exported = read();
        stop(&stage, &mut export);
        let afterwards = read();
        std::fs::write(&setting, before).expect("it was that before");
        if is_the_one {
            assert_eq!((while_exported.as_str(), afterwards.as_str()), (ODD_KIB, ODD_KIB));
            return;
        }
    }
    panic!("each free loop device was taken by another program");
}

#[test]
fn a_device_that_frees_nothing_offers_no_discard_but_zeroes() {
    if !machine_can("a_device_that_frees_nothing_offers_no_discard_but_zeroes") {
        return;
    }
    let stage = Stage::new(&StageOptions { discard: false, ..StageOptions::default() });
    let mut export = start(&stage);
    let file = open_direct(export.device_path());
    file.write_all_at(&aligned(&pattern(0, 1 << 20, 0)).0, 0).expect("written");
    // The kernel may report success, since a discard is but a hint: what counts is that nothing was written out.
    attempt("blkdiscard", &[device(&export)]);
    let mut memory = aligned(&[]);
    file.read_exact_at(&mut memory.0, 0).expect("read");
    assert!(memory.0[..] == pattern(0, 1 << 20, 0)[..], "a discard that frees nothing changes nothing");
    run("blkdiscard", &["--zeroout", "--length", "262144", device(&export)]);
    // Zeroes that must free space are refused, and change nothing.
    assert!(!attempt("fallocate", &["--punch-hole", "--offset", "262144", "--length", "262144", device(&export)]).status.success());
    file.read_exact_at(&mut memory.0, 0).expect("read");
    assert!(memory.0[..262_144].iter().all(|byte| *byte == 0));
    assert!(memory.0[262_144..] == pattern(0, 1 << 20, 0)[262_144..]);
    drop(file);
    stop(&stage, &mut export);
}

#[test]
fn a_read_only_volume_makes_a_read_only_device() {
    if !machine_can("a_read_only_volume_makes_a_read_only_device") {
        return;
    }
    let stage = Stage::new(&StageOptions { read_only: true, ..StageOptions::default() });
    let mut export = start(&stage);
    assert_eq!(run("blockdev", &["--getro", device(&export)]).trim(), "1");
    // Opening succeeds on some kernels; writing never does.
    let written = OpenOptions::new().write(true).open(export.device_path()).and_then(|file| {
        file.write_at(&[1; 4096], 0)?;
        file.sync_all()
    });
    assert!(written.is_err());
    stop(&stage, &mut export);
}

/// The volume is set otherwise while its device is there. It stayed as it was made, whatever the volume was set to. Whoever gets the number
/// next has a device that takes writes.
#[test]
fn a_device_becomes_writable_and_read_only_while_it_is_there() {
    if !machine_can("a_device_becomes_writable_and_read_only_while_it_is_there") {
        return;
    }
    for made_read_only in [true, false] {
        let stage = Stage::new(&StageOptions { read_only: made_read_only, ..StageOptions::default() });
        let mut export = start(&stage);
        let name = export.device_path().file_name().expect("it has one").to_str().expect("plain").to_owned();
        let is_read_only = || std::fs::read_to_string(format!("/sys/block/{name}/ro")).expect("readable").trim() == "1";
        assert_eq!(is_read_only(), made_read_only);
        export.set_read_only(!made_read_only).expect("it can be set");
        assert_eq!(is_read_only(), !made_read_only);
        export.set_read_only(true).expect("it can be set");
        assert!(is_read_only());
        stop(&stage, &mut export);
        let is_anothers = Path::new("/sys/block").join(&name).join("loop/backing_file").exists();
        assert!(is_anothers || !is_read_only(), "the number is free");
    }
}

/// A device that is open goes on working when its removal is refused.
#[test]
fn an_open_device_does_not_go_and_goes_on_working() {
    if !machine_can("an_open_device_does_not_go_and_goes_on_working") {
        return;
    }
    let stage = Stage::new(&StageOptions::default());
    let mut export = start(&stage);
    let file = open_direct(export.device_path());
    let error = export.stop(stage.runtime()).expect_err("in use").to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    file.write_all_at(&aligned(&pattern(0, 4096, 1)).0[..4096], 0).expect("still works");
    drop(file);
    stop(&stage, &mut export);
}

/// The end of a daemon, with a file system still mounted: what was written is in the backing file, and nothing hangs.
#[test]
fn an_abandoned_device_has_written_back_and_fails_its_users() {
    if !machine_can("an_abandoned_device_has_written_back_and_fails_its_users") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { size_bytes: 256 << 20, transport, ..StageOptions::default() });
        let export = start(&stage);
        run("mkfs.ext4", &["-q", "-F", device(&export)]);
        let content = pattern(0, 1 << 20, 3);
        {
            let mounted = Mounted::new(export.device_path(), stage.directory.path().join("mnt"));
            std::fs::write(mounted.0.join("file"), &content).expect("written");
            export.abandon(stage.runtime(), PATIENCE).expect("abandoned");
            let failed = std::fs::write(mounted.0.join("late"), &content).and_then(|()| File::open(&mounted.0)?.sync_all());
            assert!(failed.is_err(), "a device without a server fails");
        }
        assert_nothing_left(&stage);
        let mut export = start(&stage);
        {
            let mounted = Mounted::new(export.device_path(), stage.directory.path().join("mnt"));
            assert!(std::fs::read(mounted.0.join("file")).expect("read") == content);
        }
        run("fsck.ext4", &["-f", "-n", device(&export)]);
        stop(&stage, &mut export);
    }
}

/// A disk that hangs while the device is flushed: the stop gives up, and when the disk is back the device is there as before, under its name.
#[test]
fn a_stop_that_timed_out_takes_nothing_away_later() {
    if !machine_can("a_stop_that_timed_out_takes_nothing_away_later") {
        return;
    }
    // A file system that can be made to hang, frozen as for a snapshot.
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("there is room");
    let below = OthersLoop::attach(&["-f", "--show", image.to_str().expect("plain")]);
    run("mkfs.ext4", &["-q", "-F", &below.0]);
    let frozen = Mounted::new(Path::new(&below.0), directory.path().join("disk"));
    {
        let stage = Stage::new(&StageOptions { at: Some(frozen.0.clone()), ..StageOptions::default() });
        // Its own directory and names lie elsewhere: only the data hangs.
        let run_directory = directory.path().join("run");
        std::fs::create_dir(&run_directory).expect("there is room");
        let links = Some(directory.path().join("links"));
        let options = fuse::LoopOptions { link_directory: links, patience: Duration::from_secs(10), ..stage.options() };
        let mut export = LoopExport::start(stage.runtime(), &stage.volume, "volume", &run_directory, &options).expect("exported");
        let data = pattern(0, 1 << 20, 4);
        run("fsfreeze", &["-f", frozen.0.to_str().expect("plain")]);
        // The last close writes back, and hangs there: no process is seen that has the device open.
        let (path, content) = (export.device_path().to_owned(), data.clone());
        let writer = std::thread::spawn(move || File::options().write(true).open(path).and_then(|file| file.write_all_at(&content, 0)));
        std::thread::sleep(Duration::from_millis(500));
        let stopped = export.stop(stage.runtime());
        run("fsfreeze", &["-u", frozen.0.to_str().expect("plain")]);
        writer.join().expect("it ends").expect("into the page cache");
        assert!(matches!(stopped, Err(fuse::FuseError::TimedOut { .. })), "{stopped:?}");
        // What waits is on its way again.
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(20));
            assert!(!export.is_lost(), "it was detached behind our back");
        }
        assert_eq!(std::fs::read_link(export.link_path().expect("a link")).expect("a link"), export.device_path());
        let mut read = vec![0; data.len()];
        File::open(export.device_path()).and_then(|file| file.read_exact_at(&mut read, 0)).expect("served");
        assert!(read == data);
        export.stop(stage.runtime()).expect("stopped");
    }
}

/// Not a test: what [`what_a_killed_daemon_left_is_cleared_away`] starts in a process of its own, to kill it.
#[test]
fn server_to_be_killed() {
    let Ok(directory) = std::env::var(SERVER_DIRECTORY) else { return };
    let transport = if std::env::var(SERVER_TRANSPORT).is_ok_and(|name| name == "Ring") { Transport::Ring } else { Transport::Classic };
    let stage = Stage::new(&StageOptions { transport, ..StageOptions::default() });
    let run_directory = Path::new(&directory).join("run");
    let owner = Path::new(&directory).file_name().expect("it has a name").to_string_lossy().into_owned();
    let options = fuse::LoopOptions { owner, link_directory: Some(Path::new(&directory).join("links")), ..stage.options() };
    let export = LoopExport::start(stage.runtime(), &stage.volume, "volume", &run_directory, &options).expect("exported");
    // The harness has written to this line already.
    println!("\n{}", export.device_path().display());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("reads");
}

const SERVER_DIRECTORY: &str = "HEARTH_TEST_SERVER_DIRECTORY";
const SERVER_TRANSPORT: &str = "HEARTH_TEST_SERVER_TRANSPORT";

/// A server in a process of its own, and where its device is.
fn server(directory: &Path, transport: Transport) -> (Server, PathBuf) {
    let _switch = RingSwitch::set(transport);
    let child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "loop_device::server_to_be_killed", "--nocapture"])
        .env(SERVER_DIRECTORY, directory)
        .env(SERVER_TRANSPORT, format!("{transport:?}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut server = Server(child);
    let output = BufReader::new(server.0.stdout.take().expect("piped"));
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("/dev/loop")).expect("a device");
    (server, PathBuf::from(line))
}

/// Killed when dropped.
struct Server(Child);

impl Server {
    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon that is killed leaves a dead mount and a dead loop device; the next start clears both away.
#[test]
fn what_a_killed_daemon_left_is_cleared_away() {
    if !machine_can("what_a_killed_daemon_left_is_cleared_away") {
        return;
    }
    for transport in transports() {
        let stage = Stage::new(&StageOptions { transport, ..StageOptions::default() });
        let (mut server, device_before) = server(stage.directory.path(), transport);
        let file = open_direct(&device_before);
        file.write_all_at(&aligned(&pattern(0, 4096, 5)).0[..4096], 0).expect("written");
        server.kill();
        let mut memory = aligned(&[]);
        let error: io::Error = file.read_at(&mut memory.0[..4096], 0).expect_err("dead");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(loop_devices_over(stage.directory.path()).len(), 1);
        assert!(mounted_below(stage.directory.path()));
        // The next daemon, while someone still has the old device open.
        let mut export = start(&stage);
        assert_eq!(export.warnings().len(), 1, "{:?}", export.warnings());
        assert!(export.warnings()[0].contains("open in"), "{:?}", export.warnings());
        assert_eq!(std::fs::read_link(export.link_path().expect("a link")).expect("a link"), export.device_path());
        drop(file);
        wait_until("the old one goes with its last user", || loop_devices_over(stage.directory.path()).len() == 1);
        stop(&stage, &mut export);
    }
}

#[test]
fn a_name_served_by_another_is_refused_and_the_other_goes_on() {
    if !machine_can("a_name_served_by_another_is_refused_and_the_other_goes_on") {
        return;
    }
    let stage = Stage::new(&StageOptions::default());
    let mut file = FileExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options()).expect("exported");
    let second = FileExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options());
    assert!(matches!(second, Err(FuseError::ServedElsewhere { .. })), "{second:?}");
    check_data(file.path(), &stage.backing(), 512);
    file.stop(stage.runtime()).expect("stopped");
    std::fs::write(stage.run_directory().join("volume"), "precious").expect("a file");
    let third = FileExport::start(stage.runtime(), &stage.volume, "volume", &stage.run_directory(), &stage.options());
    assert!(matches!(third, Err(FuseError::PathTaken { .. })), "{third:?}");
}
