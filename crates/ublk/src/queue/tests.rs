//! A queue on a reactor, over memory in the place of the kernel's driver: requests are handed over by
//! the test, and the commands that answer them fail.

use super::*;
use device::Geometry;
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const TAGS: u16 = 64;
const SECTORS: u32 = 128;
const BYTES: u32 = SECTORS * SECTOR_BYTES as u32;
const VOLUME_BYTES: u64 = TAGS as u64 * BYTES as u64;

/// A queue to which all tags are handed at once.
struct Watched {
    queue: Queue,
    /// Requests whose data was moved since the last turn.
    moved: u32,
    /// The most of each turn, and whether all are answered.
    seen: Arc<Mutex<(u32, bool)>>,
}

impl Watched {
    fn waiting(&self) -> u32 {
        // A write waits as long as its data is not taken, a read until it is answered.
        let writes = self.queue.slots.iter().any(|slot| slot.op == Op::Write);
        if writes { self.queue.deferred.len() as u32 } else { self.queue.under_way as u32 }
    }

    fn watch(&mut self, arrived: u32, callback: impl FnOnce(&mut Queue)) {
        let before = self.waiting() + arrived;
        callback(&mut self.queue);
        assert!(self.queue.short.is_empty(), "there are pages for all");
        self.moved += before.saturating_sub(self.waiting());
        let mut seen = self.seen.lock().expect("nobody panics");
        *seen = (seen.0.max(self.moved), self.queue.under_way == 0);
    }
}

impl Endpoint for Watched {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.watch(u32::from(TAGS), |queue| (0..TAGS).for_each(|tag| queue.ring(cx, tag.into(), 0, 0)));
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        if token == Turn::TOKEN {
            self.moved = 0;
        }
        self.watch(0, |queue| queue.ring(cx, token, result, flags));
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        self.watch(0, |queue| queue.reply(cx, reply));
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.watch(0, |queue| queue.volume_available(cx));
    }

    fn turn_ends(&mut self, cx: &mut Context<'_>) {
        self.queue.turn_ends(cx);
        self.moved = 0;
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

fn content(tag: u16) -> Vec<u8> {
    vec![tag as u8 + 1; BYTES as usize]
}

/// A reactor, and a volume over a file on it, which takes so many requests at once.
fn begin(in_flight_max: u32) -> (tempfile::TempDir, Runtime, VolumeRef) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("backing");
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&path).expect("direct I/O");
    file.set_len(VOLUME_BYTES).expect("a sparse file");
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, in_flight_max, ..RuntimeOptions::default() }).expect("a runtime");
    let geometry =
        Geometry { size_bytes: VOLUME_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: false, discard_zeroes: false };
    let device = runtime.open_device(DeviceOptions { name: "backing".into(), file, geometry, model: None }).expect("a device");
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "volume".into(), read_only: false }).expect("a volume");
    (directory, runtime, volume)
}

#[test]
fn only_a_part_of_all_data_is_moved_before_others_have_their_turn() {
    check_turns(u32::from(TAGS));
}

#[test]
fn a_full_volume_only_slows_the_kernel_down() {
    check_turns(3);
}

/// Writes and reads under all tags at once.
fn check_turns(in_flight_max: u32) {
    let (directory, runtime, volume) = begin(in_flight_max);
    let path = directory.path().join("backing");
    for operation in [1u32, 0] {
        let kernel = memfd_create("ublkc", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&kernel, data_offset(0, TAGS) as u64).expect("sparse memory");
        let kernel = File::from(kernel);
        for tag in 0..TAGS {
            let start_sector = u64::from(tag) * u64::from(SECTORS);
            let words = [&operation.to_ne_bytes()[..], &SECTORS.to_ne_bytes(), &start_sector.to_ne_bytes(), &[0; 8]].concat();
            kernel.write_all_at(&words, u64::from(tag) * Descriptor::BYTES as u64).expect("inside");
            if operation == 1 {
                kernel.write_all_at(&content(tag), data_offset(0, tag) as u64).expect("inside");
            }
        }
        let table = Table::map(&kernel, 0, TAGS).expect("mapped");
        let switch = Arc::new(Switch::new(volume.clone(), 1).expect("a bell"));
        let given = Arc::new(OwnedFd::from(kernel.try_clone().expect("a descriptor")));
        let queue = Queue::new(given, table, switch, 0, TAGS, BYTES);
        let seen = Arc::new(Mutex::new((0, false)));
        let group = runtime.add_endpoint(Box::new(Watched { queue, moved: 0, seen: seen.clone() }));
        let deadline = Instant::now() + PATIENCE;
        while !seen.lock().expect("nobody panics").1 {
            assert!(Instant::now() < deadline, "operation {operation}: not all are answered");
            std::thread::sleep(Duration::from_millis(1));
        }
        let most = seen.lock().expect("nobody panics").0;
        assert!((1..=Turn::BYTES_MAX.div_ceil(BYTES)).contains(&most), "operation {operation}: {most} requests in one turn");
        runtime.stop_endpoints(&group, PATIENCE).expect("it ends");
        let moved = if operation == 1 { File::open(&path).expect("a file") } else { kernel };
        for tag in 0..TAGS {
            let mut found = vec![0; BYTES as usize];
            let at = if operation == 1 { u64::from(tag) * u64::from(BYTES) } else { data_offset(0, tag) as u64 };
            moved.read_exact_at(&mut found, at).expect("inside");
            assert!(found == content(tag), "operation {operation}, tag {tag}");
        }
    }
    runtime.shutdown(PATIENCE).expect("the runtime ends");
}

/// A queue whose bell cannot be read at first.
struct Deaf(Queue);

impl Endpoint for Deaf {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.0.ring(cx, TOKEN_BELL, -libc::EINTR, 0);
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        self.0.ring(cx, token, result, flags);
    }

    fn reply(&mut self, _cx: &mut Context<'_>, _reply: Reply) {}

    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

#[test]
fn a_bell_that_could_not_be_read_is_heard_the_next_time() {
    let (_directory, runtime, volume) = begin(u32::from(TAGS));
    let kernel = memfd_create("ublkc", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&kernel, data_offset(0, TAGS) as u64).expect("sparse memory");
    let table = Table::map(&kernel, 0, TAGS).expect("mapped");
    let switch = Arc::new(Switch::new(volume, 1).expect("a bell"));
    let queue = Queue::new(Arc::new(kernel), table, switch.clone(), 0, TAGS, BYTES);
    let group = runtime.add_endpoint(Box::new(Deaf(queue)));
    assert!(switch.pause(PATIENCE), "the queue is to say that nothing is under way");
    runtime.stop_endpoints(&group, PATIENCE).expect("it ends");
    runtime.shutdown(PATIENCE).expect("the runtime ends");
}
