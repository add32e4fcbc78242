//! A queue on a reactor, without a front end.

use super::*;
use crate::export::{ExportOptions, VhostUserExport};
use crate::mapping::tests::unmappers;
use crate::memory::GuestMemory;
use crate::memory::tests::region;
use crate::ring::{Descriptor, Place};
use device::Geometry;
use guest::{Buffers, Guest, Kind, Options};
use runtime::{BareVolumeOptions, DeviceOptions, Runtime, RuntimeOptions, VolumeRef};
use rustix::event::{EventfdFlags, eventfd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const VOLUME_BYTES: u64 = 1 << 20;
const ENTRIES: u16 = 64;
const PLACE: Place = Place { descriptors: 0, available: 0x1000, used: 0x2000, used_logged: None };

/// A queue, of which each callback notes how many chains it took.
struct Watched {
    queue: Queue,
    taken: Arc<Mutex<Vec<u16>>>,
}

impl Watched {
    fn watch(&mut self, callback: impl FnOnce(&mut Queue)) {
        let before = self.queue.ring.next_available();
        callback(&mut self.queue);
        let taken = self.queue.ring.next_available().wrapping_sub(before);
        self.taken.lock().expect("nobody panics").push(taken);
    }
}

impl Endpoint for Watched {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.watch(|queue| queue.start(cx));
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        self.watch(|queue| queue.ring(cx, token, result, flags));
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        self.watch(|queue| queue.reply(cx, reply));
    }

    fn turn_ends(&mut self, cx: &mut Context<'_>) {
        self.watch(|queue| queue.turn_ends(cx));
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.watch(|queue| queue.stop(cx));
    }
}

/// A runtime with a volume over a file.
fn stage() -> (tempfile::TempDir, Runtime, VolumeRef) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("backing");
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path).expect("direct I/O");
    file.set_len(VOLUME_BYTES).expect("a sparse file");
    let runtime = Runtime::start(RuntimeOptions { reactors: 1, ..RuntimeOptions::default() }).expect("a runtime");
    let geometry =
        Geometry { size_bytes: VOLUME_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: false, discard_zeroes: false };
    let device = runtime.open_device(DeviceOptions { name: "backing".into(), file, geometry, model: None }).expect("a device");
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "volume".into(), read_only: false }).expect("a volume");
    (directory, runtime, volume)
}

/// One callback looks at as many descriptors as fit a turn, however little is asked for in them.
#[test]
fn descriptors_count_as_work() {
    let (_directory, runtime, volume) = stage();
    let memory = Arc::new(GuestMemory::new(vec![region(0, 0, 1 << 20)]).expect("one"));
    let describe = |at: u64, guest: u64, bytes: u32, flags: u16, next: u16| {
        let words = [&guest.to_le_bytes()[..], &bytes.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat();
        memory.write(at, &words).expect("inside");
    };
    // A table as long as can be: the header of a request that there is not, much that nobody wants, and room for the answer.
    let (table, header, status, entries) = (0x1_0000, 0x3000, 0x4000, crate::ring::ENTRIES_MAX);
    memory.write(header, &99u32.to_le_bytes()).expect("inside");
    describe(table, header, 16, Descriptor::NEXT, 1);
    for index in 1..entries - 1 {
        describe(table + 16 * u64::from(index), header, 1, Descriptor::NEXT, index + 1);
    }
    describe(table + 16 * u64::from(entries - 1), status, 1, Descriptor::WRITE, 0);
    for head in 0..ENTRIES {
        describe(16 * u64::from(head), table, 16 * u32::from(entries), Descriptor::INDIRECT, 0);
        memory.write(PLACE.available + 4 + 2 * u64::from(head), &head.to_le_bytes()).expect("inside");
    }
    memory.write(PLACE.available + 2, &ENTRIES.to_le_bytes()).expect("inside");

    let line = Line::new(Wishes { memory: memory.clone(), place: PLACE, enabled: true, ..Wishes::default() }).expect("a descriptor");
    let queue = Queue::new(QueueParts {
        number: 0,
        device: Arc::new(BlockDevice { volume, serial: [0; SERIAL_BYTES] }),
        ring: Ring::new(memory.clone(), PLACE, ENTRIES, false, 0, None).expect("a queue"),
        tracker: None,
        resumption: None,
        kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a counter"),
        line: line.clone(),
    });
    let taken = Arc::new(Mutex::new(Vec::new()));
    runtime.add_endpoint(Box::new(Watched { queue, taken: taken.clone() }));
    let (deadline, mut used) = (Instant::now() + PATIENCE, [0; 2]);
    while used != ENTRIES.to_le_bytes() {
        assert!(Instant::now() < deadline, "{used:?} are answered");
        std::thread::sleep(Duration::from_millis(1));
        memory.read(PLACE.used + 2, &mut used).expect("inside");
    }
    let mut answer = [0];
    memory.read(status, &mut answer).expect("inside");
    assert_eq!(answer, [crate::block::UNSUPPORTED]);
    assert!(line.wish(|now| now.end = true, PATIENCE) && line.wait_ended(PATIENCE).is_some());
    let taken = taken.lock().expect("nobody panics").clone();
    assert_eq!((taken.iter().sum::<u16>(), taken.iter().max()), (ENTRIES, Some(&1)), "a table each: {taken:?}");
    runtime.shutdown(PATIENCE).expect("the runtime ends");
}

/// To unmap what a large guest has used takes longer than a reactor may be away.
#[test]
fn no_reactor_unmaps_a_guests_memory() {
    let (directory, runtime, volume) = stage();
    let path = directory.path().join("disk.sock");
    let export = VhostUserExport::start(&runtime, &volume, &path, &ExportOptions::default()).expect("exported");
    // No other test maps as much.
    let options = Options { queues: 3, buffers: Buffers { slots: 29, data_bytes: 12288 }, ..Options::default() };
    let mut guest = Guest::start(&path, options).expect("a guest");
    let bytes = guest.memory.bytes();
    let mut data = [5; 4096];
    for round in 1..4 {
        assert_eq!(guest.queues[0].run(Kind::Write as u32, 0, &mut data, false, PATIENCE), 0);
        guest.show_memory_in(1).expect("mapped anew");
        assert_eq!(unmappers(bytes, round), vec!["vhost-volume"; round], "by its session, which may wait");
    }
    for queue in 0..3 {
        assert_eq!(guest.queues[queue].run(Kind::Write as u32, 0, &mut data, false, PATIENCE), 0);
    }
    guest.disconnect();
    let last = unmappers(bytes, 4).pop().expect("four");
    assert!(["vhost-volume", "vhost-unmap"].contains(&last.as_str()), "{last}");
    export.stop(&runtime, PATIENCE).expect("requests end");
    runtime.shutdown(PATIENCE).expect("the runtime ends");
}
