//! Cached volumes, end to end on real files: fronts, shards on two reactors, commands, and the way home.

mod common;

use common::{SIZE_SECTORS, hammer, one_request, open, request};
use engine::api::{Command, Op, Outcome, RequestError, VolumeOptions};
use engine::log::LogPlace;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use format::Layout;
use format::checkpoint::LogEnd;
use page::PagePool;
use runtime::{AttachOptions, DeviceRef, PoolOptions, PoolRef, Runtime, RuntimeOptions, VolumeRef};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{Admission, Mode, ShardIndex, VolumeId, VolumeIndex};

const SHARDS: u16 = 4;
const SSD_BYTES: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const INDEX: VolumeIndex = VolumeIndex(3);

struct Machine {
    runtime: Runtime,
    pool: PoolRef,
    backing: DeviceRef,
    events: Arc<Mutex<Vec<String>>>,
}

fn machine(directory: &Path) -> Machine {
    let runtime = Runtime::start(RuntimeOptions { reactors: 2, io_pages: 1024, ..RuntimeOptions::default() }).unwrap();
    let ssd = open(&runtime, &directory.join("ssd"), SSD_BYTES, None);
    let backing = open(&runtime, &directory.join("backing"), SIZE_SECTORS * 512, None);
    let layout = Layout::plan_default(SSD_BYTES, SHARDS).unwrap();
    let ram_blocks = 64;
    let pages = PagePool::new(usize::from(layout.shards) * (PAGES_MIN + ram_blocks) + 4096);
    let shards = (0..layout.shards).map(|shard| {
        let place = LogPlace { uuid: [7; 16], session: 1, shard: ShardIndex(shard), layout };
        let config = ShardConfig { place, ram_blocks: ram_blocks as u64, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    });
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let pool = runtime
        .add_pool(PoolOptions {
            ssd,
            shards: shards.collect(),
            pages: pages.clone(),
            events: Arc::new(move |_, event| sink.lock().unwrap().push(format!("{event:?}"))),
        })
        .unwrap();
    Machine { runtime, pool, backing, events }
}

impl Machine {
    fn attach(&self, mode: Mode) -> VolumeRef {
        let options = VolumeOptions { mode, admission: Admission::Always, ..VolumeOptions::default() };
        let attach = AttachOptions { name: "vol".into(), index: INDEX, id: VolumeId(5), backing: self.backing.clone(), options };
        self.runtime.attach_volume(&self.pool, attach).unwrap()
    }

    fn command(&self, what: &'static str, command: Command) {
        self.runtime.run_command(&self.pool, what, command, PATIENCE, &AtomicBool::new(false)).unwrap();
    }
}

/// Writes, in whatever mode, are read back; after a destage the backing file alone has everything.
fn promises_of(mode: Mode) {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(directory.path());
    let volume = machine.attach(mode);
    let verified = hammer(&machine.runtime, &volume, 11, 3000).recv_timeout(PATIENCE).expect("the hammer ends");
    assert!(verified > 500, "{verified}");
    let flushed = one_request(&machine.runtime, &volume, |_| request(1, Op::Flush, 0, 0));
    assert_eq!(flushed.result, Ok(()));
    machine.command("destage", Command::Destage { token: 0, volume: INDEX });
    let stats = machine.runtime.engine_stats(&machine.pool, INDEX).unwrap();
    assert_eq!(stats.dirty_bytes, 0);
    assert!(stats.writes > 0);

    // Every sector, through the cache and beside it.
    let cached: Vec<u8> = (0..SIZE_SECTORS / 512)
        .flat_map(|piece| {
            let reply = one_request(&machine.runtime, &volume, move |_| request(1, Op::Read, piece * 512, 512));
            assert_eq!(reply.result, Ok(()));
            common::data_of(&reply, piece * 512, 512)
        })
        .collect();
    let direct = std::fs::read(directory.path().join("backing")).unwrap();
    assert!(cached == direct, "after a destage the backing device is complete");

    let at_boundary = machine.runtime.stats(&volume).unwrap();
    assert_eq!((at_boundary.in_flight, at_boundary.device_errors), (0, 0));
    machine.runtime.remove_volume(&volume, PATIENCE).unwrap();
    machine.command("detach", Command::Detach { token: 0, volume: INDEX });
    machine.runtime.clear_backing(&machine.pool, INDEX).unwrap();
    let shards = machine.runtime.remove_pool(&machine.pool, PATIENCE).unwrap();
    assert_eq!(shards.len(), machine.runtime.shard_stats(&machine.pool).unwrap().len() + usize::from(SHARDS));
    assert!(shards.iter().all(Shard::is_quiesced));
    assert_eq!(*machine.events.lock().unwrap(), [""; 0]);
    machine.runtime.remove_device(&machine.backing).unwrap();
    machine.runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn write_through() {
    promises_of(Mode::WriteThrough);
}

#[test]
fn write_around() {
    promises_of(Mode::WriteAround);
}

#[test]
fn write_back() {
    promises_of(Mode::WriteBack);
}

#[test]
fn pass_through() {
    promises_of(Mode::PassThrough);
}

#[test]
fn the_mode_changes_while_requests_are_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(directory.path());
    let volume = machine.attach(Mode::WriteBack);
    let verified = hammer(&machine.runtime, &volume, 5, 20_000);
    for mode in [Mode::WriteThrough, Mode::WriteBack, Mode::PassThrough, Mode::WriteBack, Mode::WriteAround] {
        let options = VolumeOptions { mode, ..VolumeOptions::default() };
        let ticket = machine.runtime.set_options(&machine.pool, &volume, options).unwrap();
        assert_eq!(ticket.wait(PATIENCE), Some(Ok(())), "{mode:?}");
    }
    verified.recv_timeout(PATIENCE).expect("the hammer ends");
    assert_eq!(machine.runtime.stats(&volume).unwrap().device_errors, 0);
    machine.runtime.remove_volume(&volume, PATIENCE).unwrap();
    machine.runtime.remove_pool(&machine.pool, PATIENCE).unwrap();
    machine.runtime.shutdown(PATIENCE).unwrap();
}

#[test]
fn hits_are_told_from_misses_and_a_removed_pool_answers() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(directory.path());
    let volume = machine.attach(Mode::WriteThrough);
    let outcomes: Vec<Outcome> = (0..2).map(|_| one_request(&machine.runtime, &volume, |_| request(1, Op::Read, 8, 8)).outcome).collect();
    assert_eq!(outcomes, [Outcome::Miss, Outcome::RamHit]);
    assert_eq!(machine.runtime.stats(&volume).unwrap().count(None, Outcome::RamHit), 1);
    machine.runtime.remove_pool(&machine.pool, PATIENCE).unwrap();
    let reply = one_request(&machine.runtime, &volume, |_| request(1, Op::Read, 8, 8));
    assert_eq!(reply.result, Err(RequestError::Shutdown));
    machine.runtime.shutdown(PATIENCE).unwrap();
}
