//! What a guest has under way when its device goes is carried out by the next one, once for the guest.

use crate::common::{PATIENCE, Stage, VOLUME_BYTES, open_volume, taken_soon};
use guest::{Buffers, Done, Guest, Kind, Options};
use runtime::{Runtime, RuntimeOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vhost_user::{ExportOptions, VhostUserExport};

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 512;
const SERVE: &str = "HEARTH_TEST_SERVES";

fn options(queues: u16) -> Options {
    Options { queues, buffers: Buffers { slots: 32, data_bytes: BLOCK_BYTES }, ..Options::default() }
}

/// Blocks with versions: of each at most one write is under way.
struct Load {
    versions: Vec<u64>,
    /// By queue and slot: the block, and whether it is written.
    open: BTreeMap<(usize, usize), (u64, bool)>,
    seed: u64,
}

impl Load {
    fn new() -> Load {
        Load { versions: vec![0; BLOCKS as usize], open: BTreeMap::new(), seed: 1 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn content(block: u64, version: u64) -> Vec<u8> {
        let stamp = [block.to_le_bytes(), version.to_le_bytes()].concat();
        if version == 0 { vec![0; BLOCK_BYTES] } else { stamp.repeat(BLOCK_BYTES / 16) }
    }

    /// Fills a queue with requests.
    fn submit(&mut self, guest: &mut Guest, number: usize) {
        while let Some(slot) = guest.queues[number].take_slot() {
            let block = loop {
                let block = self.random(BLOCKS);
                if !self.open.values().any(|(other, _)| *other == block) {
                    break block;
                }
            };
            let writes = self.random(3) > 0;
            let queue = &mut guest.queues[number];
            if writes {
                self.versions[block as usize] += 1;
                queue.memory().write(queue.data(slot), &Load::content(block, self.versions[block as usize]));
            }
            let kind = if writes { Kind::Write } else { Kind::Read };
            queue.fill(slot, kind as u32, 8 * block, BLOCK_BYTES, !writes, 2);
            self.open.insert((number, slot), (block, writes));
        }
        guest.queues[number].notify();
    }

    /// Looks at an answer: it must be of something under way, and right.
    fn check(&mut self, guest: &Guest, number: usize, done: Done) {
        let (block, writes) = self.open.remove(&(number, done.slot)).expect("answered once");
        assert_eq!(done.status, 0, "no request fails");
        if !writes {
            let mut found = vec![0; BLOCK_BYTES];
            guest.memory.read(guest.queues[number].data(done.slot), &mut found);
            assert!(found == Load::content(block, self.versions[block as usize]), "block {block}");
        }
    }

    /// Takes `answers` answers, and submits again; at the end none.
    fn run(&mut self, guest: &mut Guest, answers: usize) {
        for step in 0..answers {
            let number = step % guest.queues.len();
            self.submit(guest, number);
            let done = guest.queues[number].wait(PATIENCE).expect("an answer");
            self.check(guest, number, done);
        }
    }

    fn drain(&mut self, guest: &mut Guest) {
        for number in 0..guest.queues.len() {
            while self.open.keys().any(|(queue, _)| *queue == number) {
                let done = guest.queues[number].wait(PATIENCE).expect("an answer");
                self.check(guest, number, done);
            }
        }
        for block in 0..BLOCKS {
            let mut found = vec![0; BLOCK_BYTES];
            assert_eq!(guest.queues[0].run(Kind::Read as u32, 8 * block, &mut found, true, PATIENCE), 0);
            assert!(found == Load::content(block, self.versions[block as usize]), "block {block}");
        }
    }
}

#[test]
fn an_export_that_is_made_anew_in_the_middle_loses_and_repeats_nothing() {
    let mut stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options(2)), "a guest");
    let mut load = Load::new();
    for round in 0..60 {
        load.run(&mut guest, 20 + round);
        load.submit(&mut guest, 0);
        load.submit(&mut guest, 1);
        if round % 3 == 0 {
            stage.stop()
        } else {
            stage.cut_off()
        }
        // Requests that a guest adds while there is no device are found by the next.
        load.submit(&mut guest, 0);
        stage.start();
        guest.reconnect(&stage.socket()).expect("connected again");
    }
    load.drain(&mut guest);
}

/// QEMU gives a call that nobody hears first, and the real one when all is set up. A driver with event
/// indexes asks for one call, so what is told before must be told again.
#[test]
fn a_call_that_is_given_late_tells_of_what_was_answered_before() {
    let mut stage = Stage::new();
    for with_events in [true, false] {
        let options = Options { with_events, ..options(1) };
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "a guest");
        stage.stop();
        for slot in 0..4 {
            guest.queues[0].submit(Kind::Read as u32, 8 * slot, BLOCK_BYTES, true, 1).expect("a slot");
        }
        guest.queues[0].notify();
        assert!(!guest.queues[0].want_call());
        // Calls of before.
        let _ = guest.queues[0].call.read();
        stage.start();
        guest.options.late_calls = true;
        guest.reconnect(&stage.socket()).expect("connected again");
        let in_time = |mut holds: Box<dyn FnMut() -> bool + '_>| {
            let deadline = Instant::now() + PATIENCE;
            while !holds() {
                assert!(Instant::now() < deadline, "it does not come");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        in_time(Box::new(|| guest.queues[0].used_index() == 4));
        assert!(guest.queues[0].call.read().is_err(), "not called yet");
        guest.give_calls().expect("taken");
        in_time(Box::new(|| guest.queues[0].call.read().is_ok()));
        for _ in 0..4 {
            assert_eq!(guest.queues[0].answered().expect("an answer").status, 0);
        }
    }
}

#[test]
fn a_front_end_that_connects_again_finds_its_requests_answered() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options(2)), "a guest");
    let mut load = Load::new();
    for round in 0..40 {
        load.run(&mut guest, 10 + round);
        load.submit(&mut guest, 0);
        load.submit(&mut guest, 1);
        guest.disconnect();
        again(&mut guest, &stage);
    }
    load.drain(&mut guest);
}

/// Connects again. Processes that other tests start hold its socket for a moment, so that it seems to be connected still.
fn again(guest: &mut Guest, stage: &Stage) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = guest.reconnect(&stage.socket()) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Serves the volume of a directory until it is killed. Runs in a process of its own, where the environment says so.
#[test]
fn serves_for_another_test() {
    let Some(directory) = std::env::var_os(SERVE).map(PathBuf::from) else { return };
    let runtime = Runtime::start(RuntimeOptions { reactors: 2, ..RuntimeOptions::default() }).expect("a runtime");
    let volume = open_volume(&runtime, &directory, false);
    let path = directory.join("disk.sock");
    let _export = VhostUserExport::start(&runtime, &volume, &path, &ExportOptions::default()).expect("exported");
    // Whoever started it kills it; if that one ended, it ends too.
    let parent = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == parent {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn serve(directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["outlives::serves_for_another_test", "--exact", "--test-threads=1"]).env(SERVE, directory);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a process")
}

#[test]
fn a_killed_daemon_loses_and_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let backing = std::fs::File::create(directory.path().join("backing")).expect("a file");
    backing.set_len(VOLUME_BYTES).expect("room for a sparse file");
    let socket = directory.path().join("disk.sock");
    let mut daemon = serve(directory.path());
    let mut guest = Guest::new(options(2)).expect("a guest");
    guest.reconnect(&socket).expect("connected");
    let mut load = Load::new();
    for round in 0..20 {
        load.run(&mut guest, 40 + 7 * round);
        load.submit(&mut guest, 0);
        load.submit(&mut guest, 1);
        daemon.kill().expect("it runs");
        daemon.wait().expect("it has ended");
        std::fs::remove_file(&socket).expect("a killed daemon leaves its socket");
        daemon = serve(directory.path());
        guest.reconnect(&socket).expect("connected again");
    }
    load.drain(&mut guest);
    drop(guest);
    daemon.kill().expect("it runs");
    daemon.wait().expect("it has ended");
}

/// Where the content is not what guests knew, those of before are not served, and new ones are.
#[test]
fn a_guest_of_before_does_not_go_on_over_other_content() {
    let mut stage = Stage::new();
    let mut before = taken_soon(|| Guest::start(stage.export().path(), options(1)), "a guest");
    stage.stop();
    stage.start_with(true);
    assert!(before.reconnect(&stage.socket()).is_err(), "it would go on as if nothing had happened");
    before.disconnect();
    // A machine that restarts forgets what was under way.
    before.inflight = None;
    before.reconnect(&stage.socket()).expect("as a new guest");
    before.reconnect(&stage.socket()).expect("and from now on it may come again");
}

/// A guest that moves while there is no daemon leaves the notes of what it had under way behind.
#[test]
fn what_was_under_way_in_a_crash_is_not_guessed_for_another_front_end() {
    let mut stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options(2)), "a guest");
    let mut load = Load::new();
    load.run(&mut guest, 50);
    load.submit(&mut guest, 1);
    stage.cut_off();
    load.submit(&mut guest, 1);
    stage.start();
    let notes = guest.inflight.take();
    assert!(guest.reconnect(&stage.socket()).is_err(), "some would be carried out twice, and others never");
    guest.disconnect();
    guest.inflight = notes;
    again(&mut guest, &stage);
    load.drain(&mut guest);
    // Of a guest that waits for nothing, nothing is lost.
    stage.cut_off();
    stage.start();
    guest.inflight = None;
    again(&mut guest, &stage);
    load.run(&mut guest, 50);
    // From now on it has notes of its own.
    again(&mut guest, &stage);
    load.drain(&mut guest);
    drop(guest);
    stage.stop();
    assert!(!stage.directory.path().join("disk.sock.guest").exists(), "all ended in order");
    stage.start();
}

/// A front end that moves its guest asks where another device is to go on. Behind what was left and not carried out there is no such place.
#[test]
fn a_queue_that_is_stopped_before_what_was_left_in_it_names_no_place() {
    let mut stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options(1)), "a guest");
    stage.stop();
    let queue = &mut guest.queues[0];
    let slot = queue.take_slot().expect("a slot");
    queue.memory().write(queue.data(slot), &[7; BLOCK_BYTES]);
    queue.fill(slot, Kind::Write as u32, 8, BLOCK_BYTES, false, 1);
    queue.notify();
    // As a daemon notes it that is killed then.
    let (_, notes) = guest.inflight.as_ref().expect("notes");
    std::os::unix::fs::FileExt::write_at(notes, &[1, 0], 16 + 16 * slot as u64).expect("it is ours");
    stage.start();
    guest.disconnect();
    guest.connect(&stage.socket()).expect("connected again");
    // Writes are to be logged, and there is no log yet: nothing is carried out.
    guest.promise_log().expect("agreed");
    guest.begin().expect("runs");
    let base = guest.stop_queue(0);
    assert!(base.is_err(), "another device would never carry it out: {base:?}");
    again(&mut guest, &stage);
    assert_eq!(guest.queues[0].wait(PATIENCE).map(|done| (done.slot, done.status)), Some((slot, 0)));
    let mut found = [0; BLOCK_BYTES];
    assert_eq!(guest.queues[0].run(Kind::Read as u32, 8, &mut found, true, PATIENCE), 0);
    assert_eq!(found, [7; BLOCK_BYTES]);
    assert_eq!(guest.stop_queue(0).expect("stopped"), 2, "now all before is answered");
}

#[test]
fn two_guests_never_run_at_once() {
    let stage = Stage::new();
    let mut first = taken_soon(|| Guest::start(stage.export().path(), options(1)), "a guest");
    assert!(stage.export().user().expect("used").contains(&format!("process {}", std::process::id())));
    let refused = Guest::start(stage.export().path(), options(1));
    assert!(refused.is_err(), "a second guest would spoil the first one's data");
    assert_eq!(first.queues[0].run(Kind::Write as u32, 0, &mut [1; 4096], false, PATIENCE), 0);
    // The second half of a migration: it connects early, and runs when the first has stopped.
    let mut second = Guest::new(options(1)).expect("a guest");
    second.connect(stage.export().path()).expect("connected");
    assert_eq!(first.stop_queue(0).expect("stopped"), 1);
    second.begin().expect("runs");
    let mut found = [0; 4096];
    assert_eq!(second.queues[0].run(Kind::Read as u32, 0, &mut found, true, PATIENCE), 0);
    assert_eq!(found, [1; 4096]);
    assert!(first.begin().is_err(), "now the second one runs");
    drop(second);
    first.reconnect(stage.export().path()).expect("runs again");
}
