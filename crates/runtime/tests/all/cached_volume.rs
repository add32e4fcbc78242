//! Cached volumes, end to end on real files: fronts, shards on two reactors, commands, and the way home.

use crate::common;
use crate::common::{Chance, SIZE_SECTORS, Scripted, Wake, data_of, fill, hammer, one_request, open, request};
use device::model::{DiskModel, ModelSet};
use engine::api::{Command, Op, Outcome, RequestError, VolumeOptions};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::stats::ContentStats;
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::PagePool;
use runtime::{AttachOptions, Context, DeviceRef, PoolOptions, PoolRef, Runtime, RuntimeError, RuntimeOptions, VolumeRef};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use types::{Admission, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

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
    machine_with(directory, None)
}

fn machine_with(directory: &Path, model: Option<DiskModel>) -> Machine {
    let runtime = Runtime::start(RuntimeOptions { reactors: 2, io_pages: 1024, ..RuntimeOptions::default() }).unwrap();
    let ssd = open(&runtime, &directory.join("ssd"), SSD_BYTES, None);
    let backing = open(&runtime, &directory.join("backing"), SIZE_SECTORS * 512, model);
    let layout = Layout::plan_default(SSD_BYTES, SHARDS).unwrap().with_packed_slots();
    let ram_blocks = 64;
    let pages = PagePool::new(usize::from(layout.shards) * (PAGES_MIN + ram_blocks) + 4096);
    let shards = (0..layout.shards).map(|shard| {
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(shard), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks: ram_blocks as u64, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    });
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let pool = runtime
        .add_pool(PoolOptions {
            ssds: vec![ssd],
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
    assert_eq!(shards.len(), usize::from(SHARDS));
    assert!(shards.iter().all(Shard::is_quiesced));
    assert_eq!(*machine.events.lock().unwrap(), [""; 0]);
    machine.runtime.remove_device(&machine.backing).unwrap();
    machine.runtime.shutdown(PATIENCE).unwrap();
}

/// What is made of content changes while clients work: all shards on all reactors learn it, and what was stored before is still read.
#[test]
fn content_is_treated_anew_while_clients_work() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(directory.path());
    let volume = machine.attach(Mode::WriteBack);
    let looked = |machine: &Machine| {
        let seen: Arc<Mutex<Vec<(Content, ContentStats)>>> = Arc::default();
        let adding = seen.clone();
        let look = move |_, shard: &Shard| adding.lock().unwrap().push((shard.content_options().level, shard.content_stats()));
        machine.runtime.inspect_shards(&machine.pool, look).unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), usize::from(SHARDS));
        let mut total = ContentStats::default();
        seen.iter().for_each(|(_, stats)| total.add(stats));
        (seen.iter().map(|(level, _)| *level).collect::<Vec<_>>(), total)
    };
    assert_eq!(looked(&machine).1.packed_blocks(), 0);
    let hammered = hammer(&machine.runtime, &volume, 11, 3000);
    for level in [Content::Dense, Content::Off, Content::Auto, Content::Fast] {
        machine.runtime.set_content(&machine.pool, level).unwrap();
        assert_eq!(looked(&machine).0, vec![level; usize::from(SHARDS)]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let verified = hammered.recv_timeout(PATIENCE).expect("the hammer ends");
    assert!(verified > 500, "{verified}");
    let (_, content) = looked(&machine);
    assert!(content.packed_blocks() > 0 && content.encoded_blocks > 0 && content.encoding_cpu_ns > 0, "{content:?}");
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

/// A destage over a slow disk is stopped half-way, and what is not at home yet stays dirty until the next one.
#[test]
fn a_destage_can_be_cancelled_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine_with(directory.path(), Some(DiskModel::new(ModelSet::Disk7k2, SIZE_SECTORS * 512)));
    let volume = machine.attach(Mode::WriteBack);
    // Every second block: no two lie together, each costs the disk a turn or so.
    for block in (0..SIZE_SECTORS / 8).step_by(2) {
        let target = volume.clone();
        let reply = one_request(&machine.runtime, &volume, move |cx| {
            let pages = cx.allocate_pages(&target, 1).expect("an idle pool has room");
            request(1, Op::Write, block * 8, 8).pages(fill(pages, 0, &[block as u8; 4096]))
        });
        assert_eq!(reply.result, Ok(()));
    }
    let dirty_before = machine.runtime.engine_stats(&machine.pool, INDEX).unwrap().dirty_bytes;
    let cancelled = Arc::new(AtomicBool::new(true));
    let command = Command::Destage { token: 0, volume: INDEX };
    let stopped = machine.runtime.run_command(&machine.pool, "destage", command.clone(), PATIENCE, &cancelled);
    let dirty_between = machine.runtime.engine_stats(&machine.pool, INDEX).unwrap().dirty_bytes;
    assert!(dirty_before > 0 && dirty_between <= dirty_before);
    if dirty_between > 0 {
        assert!(matches!(stopped, Err(RuntimeError::Cancelled { what: "destage" })), "{stopped:?}");
    }
    cancelled.store(false, Ordering::Relaxed);
    machine.runtime.run_command(&machine.pool, "destage", command, PATIENCE, &cancelled).unwrap();
    assert_eq!(machine.runtime.engine_stats(&machine.pool, INDEX).unwrap().dirty_bytes, 0);
    let backing = std::fs::read(directory.path().join("backing")).unwrap();
    let expected = |at: usize| if (at / 4096).is_multiple_of(2) { (at / 4096) as u8 } else { 0 };
    assert!(backing.iter().enumerate().all(|(at, byte)| *byte == expected(at)), "all of it is at home");
    machine.runtime.remove_volume(&volume, PATIENCE).unwrap();
    machine.runtime.remove_pool(&machine.pool, PATIENCE).unwrap();
    machine.runtime.shutdown(PATIENCE).unwrap();
}

/// Blocks that everybody reads and writes at once. A write fills its block with (writer, count).
const SHARED_BLOCKS: u64 = 12;

struct Racer {
    volume: VolumeRef,
    writer: u64,
    chance: Chance,
    count: u64,
    in_flight: HashMap<u64, (Op, u64)>,
    /// By block and writer: the newest count this racer has seen or been told of. A read that begins later may not see less.
    seen: HashMap<(u64, u64), u64>,
    /// What `seen` was when the read began.
    floors: HashMap<u64, Vec<(u64, u64)>>,
    /// By block: what the read that ended last has given.
    latest: HashMap<u64, (u64, u64)>,
    /// By read: `latest` of its block, and how many values were retired, when it began.
    begun: HashMap<u64, (Option<(u64, u64)>, usize)>,
    /// Values (all are unique) that were seen to be followed by others, and their place in the order of retirement.
    retired: HashMap<(u64, (u64, u64)), usize>,
    sent: u64,
    requests: u64,
    done: mpsc::Sender<u64>,
    checked: u64,
}

impl Racer {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while self.in_flight.len() < 16 && self.sent < self.requests {
            let (id, block) = (self.sent, self.chance.below(SHARED_BLOCKS));
            let op = if self.chance.below(2) == 0 { Op::Write } else { Op::Read };
            let mut request = request(id, op, block * 8, 8);
            if op == Op::Write {
                // One write of this racer to a block at a time, so that its counts grow there.
                if self.in_flight.values().any(|flying| *flying == (Op::Write, block)) {
                    continue;
                }
                let Some(pages) = cx.allocate_pages(&self.volume, 1) else { return };
                self.count += 1;
                let stamp = [self.writer.to_le_bytes(), self.count.to_le_bytes()].concat();
                request.pages = fill(pages, 0, &stamp.repeat(256));
            } else {
                let floor = self.seen.iter().filter(|((at, _), _)| *at == block).map(|((_, writer), count)| (*writer, *count));
                self.floors.insert(id, floor.collect());
                self.begun.insert(id, (self.latest.get(&block).copied(), self.retired.len()));
            }
            cx.submit(&self.volume, request).expect("below the limit");
            self.in_flight.insert(id, (op, block));
            self.sent += 1;
        }
        if self.in_flight.is_empty() && self.sent == self.requests {
            self.done.send(self.checked).expect("the test waits");
            cx.close();
        }
    }

    fn check(&mut self, id: u64, block: u64, data: &[u8]) {
        assert!(data.chunks(16).all(|piece| piece == &data[..16]), "block {block} is torn");
        let number = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"));
        let (writer, count) = (number(0), number(8));
        let floor = self.floors.remove(&id).expect("noted when it began");
        let least = floor.iter().find(|(of, _)| *of == writer).map_or(0, |(_, count)| *count);
        assert!(count >= least, "block {block} went back to write {count} of writer {writer}, after {least}");
        let newest = self.seen.entry((block, writer)).or_default();
        *newest = count.max(*newest);
        let (before, retired_before) = self.begun.remove(&id).expect("noted when it began");
        let place = self.retired.get(&(block, (writer, count))).copied();
        assert!(place.is_none_or(|place| place >= retired_before), "block {block}: write {count} of writer {writer} came back");
        if let Some(before) = before.filter(|before| *before != (writer, count)) {
            let place = self.retired.len();
            self.retired.entry((block, before)).or_insert(place);
        }
        self.latest.insert(block, (writer, count));
        self.checked += 1;
    }

    fn wake(&mut self, cx: &mut Context<'_>, wake: Wake) {
        if let Wake::Reply(reply) = wake {
            assert_eq!(reply.result, Ok(()));
            let (op, block) = self.in_flight.remove(&reply.id).expect("one reply per request");
            if op == Op::Read {
                self.check(reply.id, block, &data_of(&reply, 0, 8));
            }
        }
        self.go_on(cx);
    }
}

/// Clients on different reactors read and write the same blocks: no block is torn, and none goes back to an older write of any writer.
#[test]
fn racing_clients_see_whole_blocks_that_never_go_back() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(directory.path());
        let volume = machine.attach(mode);
        let ends: Vec<mpsc::Receiver<u64>> = (1..=4)
            .map(|writer| {
                let (done, end) = mpsc::channel();
                let mut racer = Racer {
                    volume: volume.clone(),
                    writer,
                    chance: Chance(writer * 7919),
                    count: 0,
                    in_flight: HashMap::new(),
                    seen: HashMap::new(),
                    floors: HashMap::new(),
                    latest: HashMap::new(),
                    begun: HashMap::new(),
                    retired: HashMap::new(),
                    sent: 0,
                    requests: 4000,
                    done,
                    checked: 0,
                };
                machine.runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| racer.wake(cx, wake))));
                end
            })
            .collect();
        for end in ends {
            assert!(end.recv_timeout(PATIENCE).expect("every racer ends") > 1000);
        }
        machine.runtime.remove_volume(&volume, PATIENCE).unwrap();
        machine.runtime.remove_pool(&machine.pool, PATIENCE).unwrap();
        machine.runtime.shutdown(PATIENCE).unwrap();
    }
}

/// Bringing dirty blocks home because their disk is idle is work for the threads that serve clients: it waits while they have no time.
#[test]
fn reactors_without_time_leave_dirty_blocks_where_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let machine = machine(directory.path());
    let volume = machine.attach(Mode::WriteBack);
    let dirty_bytes = || machine.runtime.engine_stats(&machine.pool, INDEX).unwrap().dirty_bytes;
    let write = |piece: u64| {
        let target = volume.clone();
        let make = move |cx: &mut Context<'_>| {
            let pages = cx.allocate_pages(&target, 1).expect("a page");
            request(1, Op::Write, piece * 8, 8).pages(fill(pages, piece * 8, &[7; 4096]))
        };
        assert_eq!(one_request(&machine.runtime, &volume, make).result, Ok(()));
    };
    // The extents of the volume are dealt to all shards, and these to all reactors.
    let write_everywhere = || (0..SIZE_SECTORS / 2048).for_each(|extent| write(extent * 256));
    write_everywhere();
    let until_clean = || {
        let end = Instant::now() + PATIENCE;
        while dirty_bytes() > 0 {
            assert!(Instant::now() < end, "an idle disk is destaged to");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until_clean();

    // On each reactor somebody who takes nearly all of its time. Many milliseconds at once: on a machine with other work, what a thread waits for
    // its processor after each turn looks like time to spare.
    let enough = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let asked = enough.clone();
        machine.runtime.add_endpoint(Box::new(Scripted(move |cx: &mut Context<'_>, wake| match wake {
            Wake::Timer(_) if asked.load(Ordering::Relaxed) => cx.close(),
            Wake::Start | Wake::Timer(_) => {
                let end = Instant::now() + Duration::from_millis(50);
                while Instant::now() < end {}
                cx.set_timer(cx.now_ns() + 1, 0);
            }
            _ => {}
        })));
    }
    // The reactors have to notice it first, and a busy machine may take their processors away: so it is tried until it holds once. Where nothing
    // holds the blocks back, all of them go home in each second.
    let stays = || {
        write_everywhere();
        std::thread::sleep(Duration::from_secs(1));
        dirty_bytes() == SIZE_SECTORS / 2048 * 4096
    };
    assert!((0..30).any(|_| stays()), "dirty blocks went home while the reactors had no time");
    enough.store(true, Ordering::Relaxed);
    until_clean();
    machine.runtime.shutdown(PATIENCE).unwrap();
}
