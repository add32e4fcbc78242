//! Devices that never answer. A FIFO stands for one: its reads wait for data, and its writes, once it is full, for a reader.

use crate::common::{Scripted, Wake, fill, one_request, open, request};
use device::Geometry;
use device::model::{DiskModel, ModelSet};
use engine::api::{Command, CommandFailure, Op, Reply, RequestError, VolumeOptions};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::PagePool;
use runtime::{
    AttachOptions, BareVolumeOptions, DeviceOptions, DeviceRef, PoolOptions, PoolRef, Runtime, RuntimeError, RuntimeOptions, VolumeRef,
    WaitingDevice,
};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use types::{Admission, Mode, ShardIndex, VolumeId, VolumeIndex};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
const SSD_BYTES: u64 = 64 << 20;
const INDEX: VolumeIndex = VolumeIndex(0);

fn start() -> Runtime {
    Runtime::start(RuntimeOptions { reactors: 2, io_pages: 1024, ..RuntimeOptions::default() }).expect("the runtime starts")
}

struct Hung {
    device: DeviceRef,
    path: PathBuf,
}

/// A device whose I/O waits for ever.
fn hung(runtime: &Runtime, path: &Path, size_bytes: u64) -> Hung {
    let name = std::ffi::CString::new(path.display().to_string()).expect("no zero in it");
    // SAFETY: a valid string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "a FIFO can be made");
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a FIFO opens");
    let geometry = Geometry { size_bytes, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: false, discard_zeroes: false };
    let options = DeviceOptions { name: path.display().to_string(), file, geometry, model: None };
    Hung { device: runtime.open_device(options).expect("it opens"), path: path.into() }
}

impl Hung {
    fn end(&self) -> File {
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&self.path).expect("it is there")
    }

    /// From now on writes wait too; reads would not.
    fn fill(&self) {
        let mut end = self.end();
        while end.write(&[0; 4096]).is_ok() {}
    }

    /// Waits until at least this many of its requests are in flight.
    fn waits(&self, runtime: &Runtime, requests: u64) -> WaitingDevice {
        loop {
            let waiting = runtime.waiting_devices(PATIENCE).expect("reactors answer");
            match waiting.into_iter().find(|waiting| waiting.is(&self.device)) {
                Some(wait) if wait.requests >= requests => return wait,
                _ => std::thread::sleep(LOOK),
            }
        }
    }
}

/// A request whose reply may never come.
fn send(runtime: &Runtime, volume: &VolumeRef, op: Op, start_sector: u64) -> mpsc::Receiver<Reply> {
    let (answer, reply) = mpsc::channel();
    let volume = volume.clone();
    runtime.add_endpoint(Box::new(Scripted(move |cx: &mut runtime::Context<'_>, wake| match wake {
        Wake::Start => {
            let mut request = request(1, op, start_sector, 8);
            if op == Op::Write {
                request.pages = fill(cx.allocate_pages(&volume, 1).expect("an idle pool has room"), start_sector, &[7; 4096]);
            }
            cx.submit(&volume, request).expect("below the limit");
        }
        Wake::Reply(reply) => {
            // A test that has seen enough does not wait for it.
            drop(answer.send(reply));
            cx.close();
        }
        _ => {}
    })));
    reply
}

fn write(runtime: &Runtime, volume: &VolumeRef, start_sector: u64) -> Result<(), RequestError> {
    send(runtime, volume, Op::Write, start_sector).recv_timeout(PATIENCE).expect("a reply").result
}

fn bare(runtime: &Runtime, device: &DeviceRef) -> VolumeRef {
    runtime.add_bare_volume(device, BareVolumeOptions { name: "bare".into(), read_only: false }).expect("reactors answer")
}

/// Pages in use, once the reactors have taken in what came before.
fn pages_out(runtime: &Runtime) -> usize {
    runtime.waiting_devices(PATIENCE).expect("reactors answer");
    runtime.pages().pages_out()
}

#[test]
fn a_hung_device_is_given_up_alone_and_its_memory_stays_until_the_kernel_lets_go() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let hung = hung(&runtime, &directory.path().join("hung"), 1 << 20);
    let sound = open(&runtime, &directory.path().join("sound"), 1 << 20, None);
    let (volume, other) = (bare(&runtime, &hung.device), bare(&runtime, &sound));
    let reads = [send(&runtime, &volume, Op::Read, 0), send(&runtime, &volume, Op::Read, 8)];
    let wait = hung.waits(&runtime, 2);
    assert!(wait.silent <= wait.oldest && wait.stuck == 0, "{wait:?}");
    let quick = runtime.remove_volume(&volume, Duration::from_millis(10));
    assert!(matches!(quick, Err(RuntimeError::Timeout { .. })), "a removal waits for what is in flight: {quick:?}");

    runtime.give_up_device(&hung.device).unwrap();
    for read in reads {
        assert_eq!(read.recv_timeout(PATIENCE).expect("a reply").result, Err(RequestError::Io));
    }
    runtime.remove_volume(&volume, PATIENCE).unwrap();
    assert_eq!(write(&runtime, &other, 0), Ok(()), "the other device is served");
    assert_eq!(runtime.waiting_devices(PATIENCE).unwrap().iter().map(|w| (w.requests, w.stuck)).collect::<Vec<_>>(), [(0, 2)]);
    assert_eq!(pages_out(&runtime), 2, "the kernel may still write to the pages of both reads");
    assert_eq!(runtime.remove_device(&hung.device).unwrap(), 2, "it goes when the kernel lets go of it");
    assert_eq!(pages_out(&runtime), 2);

    // It answers after all: nobody is there any more who could take the wrong data for right.
    hung.end().write_all(&[1; 8192]).unwrap();
    while !runtime.waiting_devices(PATIENCE).unwrap().is_empty() {
        std::thread::sleep(LOOK);
    }
    assert_eq!(pages_out(&runtime), 0);
    runtime.remove_volume(&other, PATIENCE).unwrap();
    assert_eq!(runtime.remove_device(&sound).unwrap(), 0);
    runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn a_device_that_was_given_up_refuses_at_once_what_comes_later() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let hung = hung(&runtime, &directory.path().join("hung"), 1 << 20);
    let volume = bare(&runtime, &hung.device);
    runtime.give_up_device(&hung.device).unwrap();
    for _ in 0..4 {
        assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8)).result, Err(RequestError::Io));
        assert_eq!(write(&runtime, &volume, 0), Err(RequestError::Io));
        assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0)).result, Err(RequestError::Io));
    }
    runtime.shutdown(PATIENCE).unwrap();
}

/// A modelled device is driven by one reactor; what another sends there is refused as well. Two devices: each reactor has one of them.
#[test]
fn a_modelled_device_that_was_given_up_refuses_on_every_reactor() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let volumes: Vec<VolumeRef> = (0..2)
        .map(|number| {
            let model = DiskModel::new(ModelSet::Disk7k2, 1 << 20);
            let device = open(&runtime, &directory.path().join(format!("disk{number}")), 1 << 20, Some(model));
            let volume = bare(&runtime, &device);
            let under_way = send(&runtime, &volume, Op::Read, 0);
            runtime.give_up_device(&device).unwrap();
            under_way.recv_timeout(PATIENCE).expect("an answer, in time or not");
            volume
        })
        .collect();
    for _ in 0..4 {
        for volume in &volumes {
            assert_eq!(write(&runtime, volume, 0), Err(RequestError::Io));
            assert_eq!(one_request(&runtime, volume, |_| request(1, Op::Read, 0, 8)).result, Err(RequestError::Io));
        }
    }
    runtime.shutdown(PATIENCE).unwrap();
}

/// Whoever closes a device in use, or ends the runtime meanwhile, gets errors for what is in flight, and no panic.
#[test]
fn a_device_in_use_may_be_closed() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let hung = hung(&runtime, &directory.path().join("hung"), 1 << 20);
    let volume = bare(&runtime, &hung.device);
    let read = send(&runtime, &volume, Op::Read, 0);
    hung.waits(&runtime, 1);
    assert_eq!(runtime.remove_device(&hung.device).unwrap(), 1);
    assert_eq!(read.recv_timeout(PATIENCE).expect("a reply").result, Err(RequestError::Io));
    assert_eq!(one_request(&runtime, &volume, |_| request(1, Op::Read, 0, 8)).result, Err(RequestError::Io));
    let ended = runtime.shutdown(PATIENCE);
    assert!(matches!(ended, Err(RuntimeError::Stuck { .. })), "the reactor's memory stays: {ended:?}");
}

/// The second removal of a volume that is busy must not tell the first that it is gone.
#[test]
fn two_who_remove_a_volume_both_wait_for_its_requests() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Arc::new(start());
    let hung = hung(&runtime, &directory.path().join("hung"), 1 << 20);
    let volume = bare(&runtime, &hung.device);
    let read = send(&runtime, &volume, Op::Read, 0);
    hung.waits(&runtime, 1);
    let (told, removed) = mpsc::channel();
    let first = {
        let (runtime, volume) = (runtime.clone(), volume.clone());
        std::thread::spawn(move || told.send(runtime.remove_volume(&volume, PATIENCE).is_ok()).expect("the test waits"))
    };
    // Once it is refused, the first removal is under way.
    while one_request(&runtime, &volume, |_| request(1, Op::Flush, 0, 0)).result != Err(RequestError::Shutdown) {}
    let second = runtime.remove_volume(&volume, Duration::from_millis(50));
    assert!(matches!(second, Err(RuntimeError::Timeout { .. })), "{second:?}");
    assert!(removed.try_recv().is_err(), "a request is in flight");
    runtime.give_up_device(&hung.device).unwrap();
    assert!(removed.recv_timeout(PATIENCE).expect("it ends"));
    assert!(read.recv_timeout(PATIENCE).is_ok());
    first.join().unwrap();
}

fn pool_on(runtime: &Runtime, ssd: &DeviceRef) -> PoolRef {
    let layout = Layout::plan_default(SSD_BYTES, 2).unwrap().with_packed_slots();
    let pages = PagePool::new(usize::from(layout.shards) * (PAGES_MIN + 64) + 4096);
    let shards = (0..layout.shards).map(|shard| {
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(shard), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks: 64, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    });
    let options = PoolOptions { ssds: vec![ssd.clone()], shards: shards.collect(), pages: pages.clone(), events: Arc::new(|_, _| {}) };
    runtime.add_pool(options).unwrap()
}

fn attach(runtime: &Runtime, pool: &PoolRef, index: VolumeIndex, backing: &DeviceRef) -> VolumeRef {
    let options = VolumeOptions { mode: Mode::WriteBack, admission: Admission::Always, ..VolumeOptions::default() };
    let id = VolumeId(u32::from(index.0) + 1);
    runtime.attach_volume(pool, AttachOptions { name: "vol".into(), index, id, backing: backing.clone(), options }).unwrap()
}

#[test]
fn a_pool_stops_cleanly_although_a_backing_device_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let ssd = open(&runtime, &directory.path().join("ssd"), SSD_BYTES, None);
    let hung = hung(&runtime, &directory.path().join("hung"), 1 << 20);
    hung.fill();
    let sound = open(&runtime, &directory.path().join("sound"), 1 << 20, None);
    let pool = pool_on(&runtime, &ssd);
    let (volume, other) = (attach(&runtime, &pool, INDEX, &hung.device), attach(&runtime, &pool, VolumeIndex(1), &sound));
    assert_eq!((write(&runtime, &volume, 0), write(&runtime, &other, 0)), (Ok(()), Ok(())));
    let destage = runtime.command(&pool, Command::Destage { token: 0, volume: INDEX }).unwrap();
    hung.waits(&runtime, 1);
    assert!(destage.wait(Duration::ZERO).is_none());
    destage.cancel();

    runtime.remove_volume(&other, PATIENCE).unwrap();
    runtime.remove_volume(&volume, PATIENCE).unwrap();
    runtime.give_up_device(&hung.device).unwrap();
    let shards = runtime.remove_pool(&pool, PATIENCE).expect("the shards come to rest");
    assert!(shards.iter().all(Shard::is_quiesced));
    let dirty_bytes = |index| shards.iter().filter_map(|shard| shard.volume_stats(index)).map(|stats| stats.dirty_bytes).sum::<u64>();
    assert_eq!(dirty_bytes(INDEX), 4096, "what could not be destaged is dirty");
    drop(shards);
    assert_eq!(runtime.remove_device(&hung.device).unwrap(), 1);
    assert_eq!((runtime.remove_device(&sound).unwrap(), runtime.remove_device(&ssd).unwrap()), (0, 0));
    drop(runtime.shutdown(PATIENCE).expect_err("the memory of the destage stays"));
}

#[test]
fn a_pool_whose_ssd_hangs_ends_as_a_crash_would_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start();
    let hung = hung(&runtime, &directory.path().join("ssd"), SSD_BYTES);
    hung.fill();
    let backing = open(&runtime, &directory.path().join("backing"), 1 << 20, None);
    let pool = pool_on(&runtime, &hung.device);
    let volume = attach(&runtime, &pool, INDEX, &backing);
    let awaited = send(&runtime, &volume, Op::Write, 0);
    hung.waits(&runtime, 1);
    let stop = {
        let ticket = runtime.command(&pool, Command::Quiesce { token: 0 }).unwrap();
        assert!(ticket.wait(Duration::ZERO).is_none());
        ticket
    };
    runtime.abandon_pool(&pool).unwrap();
    runtime.give_up_device(&hung.device).unwrap();
    assert_eq!(awaited.recv_timeout(PATIENCE).expect("a reply").result, Err(RequestError::Shutdown), "it is not acknowledged");
    assert_eq!(stop.wait(PATIENCE), Some(Err(CommandFailure::Abandoned)), "nobody answers any more");
    let late = runtime.command(&pool, Command::Destage { token: 0, volume: INDEX }).unwrap();
    assert!(late.wait(PATIENCE).expect("nobody answers any more").is_err());
    let refused = one_request(&runtime, &volume, |_| request(2, Op::Discard, 0, 8).fua(true));
    assert_eq!(refused.result, Err(RequestError::Shutdown));
    runtime.remove_volume(&volume, PATIENCE).unwrap();
    assert!(runtime.remove_pool(&pool, PATIENCE).is_err(), "it gives no shards for a checkpoint");
    assert_eq!(runtime.remove_device(&backing).unwrap(), 0);
    assert!(runtime.remove_device(&hung.device).unwrap() > 0);
    drop(runtime.shutdown(PATIENCE).expect_err("the memory of the group stays"));
}
