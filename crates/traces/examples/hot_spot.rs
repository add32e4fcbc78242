//! The demo in virtual time: the hot-spot workload of the trade on the shipping engine over the modelled disk, so that a change of policy or
//! pace is seen in seconds and without the machine's noise. The SSD takes 0.1 ms and 1 GB/s; CPU time is not counted.
//! `cargo run --release -p traces --example hot_spot [-- NAME=VALUE …]`; names are those of [`Setup`], `mode` (wb or wt), `layout` (log or
//! slots) and `set` (a model set).

use device::model::workload::{Generator, Workload};
use device::model::{DiskModel, IoDescription, IoKind as DiskKind, ModelSet};
use engine::api::{Action, Command, Completion, Io, IoKind, Origin, Request, Target, VolumeOptions};
use engine::front::shard_of;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::stats::VolumeStats;
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::{Page, PageMutVec, PagePool, PageVec};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::{BLOCK_BYTES, BLOCK_SECTORS, Mode, ShardIndex, VolumeId, VolumeIndex};

const VOLUME: VolumeIndex = VolumeIndex(0);
const VOLUME_ID: VolumeId = VolumeId(1);
const SECOND_NS: u64 = 1_000_000_000;
const SSD_NS: u64 = 100_000;
/// Requests of the warm-up read that much, so many at a time, as `hearth volume warm` does.
const WARM_BLOCKS: u64 = 16;
const WARM_DEPTH: usize = 4;

/// What is run; the defaults are the demo's.
struct Setup {
    /// MiB of data, of SSD and of RAM.
    data: u64,
    cache: u64,
    ram: u64,
    /// Shards wanted.
    shards: u64,
    /// Seconds of the warm-up and of each of so many windows that are measured.
    warm: u64,
    run: u64,
    windows: u64,
    /// Write-cache depth in seconds.
    depth_s: u64,
    /// Requests at a time.
    depth: usize,
    /// The backing device.
    set: ModelSet,
    /// Blocks lie in slots.
    slots: bool,
}

/// One device under shards that act at the same time.
struct World {
    shards: Vec<Shard>,
    disk: DiskModel,
    now_ns: u64,
    ssd_free_ns: u64,
    /// I/Os of the SSD by the time they are done.
    ssd: BTreeSet<(u64, u64)>,
    in_flight: HashMap<u64, (usize, Io)>,
    next_token: u64,
    replies: Vec<u64>,
    zero: Page,
    pool: PagePool,
    next_id: u64,
    started: BTreeMap<u64, (u64, bool)>,
    group_writes: u64,
    /// Requests are part of the warm-up.
    warming: bool,
}

impl World {
    fn new(setup: &Setup, mode: Mode) -> World {
        let layout = Layout::plan_default(setup.cache << 20, setup.shards as u16).expect("a cache of some MiB");
        let layout = if setup.slots { layout.with_slots() } else { layout };
        let shards = u64::from(layout.shards);
        let ram_blocks = (setup.ram << 20) / BLOCK_BYTES;
        let pool = PagePool::new(ram_blocks as usize + 2 * shards as usize * PAGES_MIN + 16_384);
        let zero = pool.allocate_zeroed().expect("an empty pool has pages").freeze();
        let options = options(setup, mode);
        let shards = (0..layout.shards).map(|index| {
            let place = StorePlace { uuid: [1; 16], session: 1, shard: ShardIndex(index), layout, ring_first: 0 };
            let config = ShardConfig { place, ram_blocks: ram_blocks / shards, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
            let mut shard = Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 });
            shard.command(0, Command::Attach { volume: VOLUME, id: VOLUME_ID, size_bytes: setup.data << 20, options: options.clone() });
            shard
        });
        World {
            shards: shards.collect(),
            disk: DiskModel::new(setup.set, setup.data << 20),
            now_ns: 0,
            ssd_free_ns: 0,
            ssd: BTreeSet::new(),
            in_flight: HashMap::new(),
            next_token: 0,
            replies: Vec::new(),
            zero,
            pool,
            next_id: 0,
            started: BTreeMap::new(),
            group_writes: 0,
            warming: false,
        }
    }

    fn submit(&mut self, block: u64, blocks: u64, write: bool) {
        let id = self.next_id;
        self.next_id += 1;
        self.started.insert(id, (self.now_ns, write));
        let pages: PageVec = if write { (0..blocks).map(|_| self.own_page()).collect() } else { PageVec::new() };
        let (start_sector, sectors) = (block * BLOCK_SECTORS, (blocks * BLOCK_SECTORS) as u32);
        let request = match write {
            true => Request::write(id, VOLUME, start_sector, sectors, pages),
            false => Request::read(id, VOLUME, start_sector, sectors, if self.warming { Origin::Warm } else { Origin::Client }),
        };
        let shard = usize::from(shard_of(VOLUME_ID, request.start_sector, self.shards.len() as u16).0);
        self.shards[shard].submit(self.now_ns, request);
        self.drain(shard);
    }

    fn own_page(&self) -> Page {
        self.pool.allocate_zeroed().map_or_else(|| self.zero.clone(), page::PageMut::freeze)
    }

    fn drain(&mut self, index: usize) {
        while let Some(action) = self.shards[index].poll_action() {
            match action {
                Action::Io(io) => self.start(index, io),
                Action::Reply(reply) => {
                    assert_eq!(reply.result, Ok(()), "devices without faults");
                    self.replies.push(reply.id);
                }
                Action::Event(_) => {}
            }
        }
    }

    fn start(&mut self, shard: usize, io: Io) {
        let token = self.next_token;
        self.next_token += 1;
        match io.target {
            Target::Ssd(_) => {
                self.group_writes += u64::from(matches!(io.kind, IoKind::Write { .. }));
                self.ssd_free_ns = self.ssd_free_ns.max(self.now_ns) + io.length_bytes;
                self.ssd.insert((self.ssd_free_ns + SSD_NS, token));
            }
            Target::Backing(_) => {
                let kind = match io.kind {
                    IoKind::Read(_) => DiskKind::Read,
                    IoKind::Write { .. } | IoKind::WriteZeroes { .. } => DiskKind::Write,
                    IoKind::Flush => DiskKind::Flush,
                    IoKind::Discard => DiskKind::Discard,
                };
                let (offset_bytes, length_bytes) = (io.offset_bytes, io.length_bytes);
                self.disk.submit(self.now_ns, IoDescription { token, kind, offset_bytes, length_bytes, fua: false });
            }
        }
        self.in_flight.insert(token, (shard, io));
    }

    fn done(&mut self, token: u64) {
        let (shard, io) = self.in_flight.remove(&token).expect("an I/O in flight");
        let pages = match io.kind {
            IoKind::Read(mut pages) => {
                pages.iter_mut().for_each(|page| page.fill(0));
                pages
            }
            _ => PageMutVec::new(),
        };
        self.shards[shard].complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
        self.drain(shard);
    }

    /// Goes on until a request is answered or `end_ns` comes; gives the requests answered.
    fn step(&mut self, end_ns: u64) -> Vec<u64> {
        while self.replies.is_empty() && self.now_ns < end_ns {
            let timers = self.shards.iter().filter_map(Shard::next_deadline).min();
            let ssd = self.ssd.first().map(|(at_ns, _)| *at_ns);
            let next = [timers, ssd, self.disk.next_deadline_ns(), Some(end_ns)].into_iter().flatten().min().expect("the end at least");
            self.now_ns = self.now_ns.max(next);
            while let Some((_, token)) = self.ssd.first().copied().filter(|(at_ns, _)| *at_ns <= self.now_ns) {
                self.ssd.pop_first();
                self.done(token);
            }
            while let Some(token) = self.disk.pop_completed(self.now_ns) {
                self.done(token);
            }
            for index in 0..self.shards.len() {
                if self.shards[index].next_deadline().is_some_and(|at_ns| at_ns <= self.now_ns) {
                    self.shards[index].tick(self.now_ns);
                    self.drain(index);
                }
            }
        }
        std::mem::take(&mut self.replies)
    }

    fn warm(&mut self, blocks: std::ops::Range<u64>) {
        let mut next = blocks.start;
        let mut waiting = 0;
        self.warming = true;
        while next < blocks.end || waiting > 0 {
            while waiting < WARM_DEPTH && next < blocks.end {
                self.submit(next, WARM_BLOCKS.min(blocks.end - next), false);
                next += WARM_BLOCKS;
                waiting += 1;
            }
            waiting -= self.step(u64::MAX).len();
        }
        self.warming = false;
        self.started.clear();
    }

    fn stats(&self) -> VolumeStats {
        let mut sum = VolumeStats::default();
        for shard in &self.shards {
            let stats = shard.volume_stats(VOLUME).expect("the volume is attached");
            sum.add(&stats);
        }
        sum
    }

    fn ssd_written_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.stats().ssd_written_bytes).sum()
    }
}

fn options(setup: &Setup, mode: Mode) -> VolumeOptions {
    VolumeOptions { mode, write_cache_depth_ns: setup.depth_s * SECOND_NS, ..VolumeOptions::default() }
}

fn run(setup: &Setup, mode: Mode) {
    let begun = std::time::Instant::now();
    let mut world = World::new(setup, mode);
    println!("{mode:?}: {} shards", world.shards.len());
    let mib = (1 << 20) / BLOCK_BYTES;
    let hot = setup.data / 10 * mib;
    world.warm(hot..setup.cache * 8 / 10 * mib);
    world.warm(0..hot);
    println!("{mode:?}: warmed in {:.1} s of virtual time", world.now_ns as f64 / SECOND_NS as f64);
    let mut source = Generator::new(Workload::hot_spot(), setup.data << 20, 1);
    let mut issue = |world: &mut World| {
        let io = source.next(0);
        world.submit(io.offset_bytes / BLOCK_BYTES, 1, io.kind == DiskKind::Write);
    };
    (0..setup.depth).for_each(|_| issue(&mut world));
    for window in 0..=setup.windows {
        let seconds = if window == 0 { setup.warm } else { setup.run };
        let end_ns = world.now_ns + seconds * SECOND_NS;
        let (before, written_before, groups_before) = (world.stats(), world.ssd_written_bytes(), world.group_writes);
        let disk_before = world.disk.counters();
        let (mut count, mut ns) = ([0_u64; 2], [0_u64; 2]);
        while world.now_ns < end_ns {
            for id in world.step(end_ns) {
                let (since_ns, write) = world.started.remove(&id).expect("a request in flight");
                count[usize::from(write)] += 1;
                ns[usize::from(write)] += world.now_ns - since_ns;
                issue(&mut world);
            }
        }
        let (after, written) = (world.stats(), world.ssd_written_bytes() - written_before);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let hits = (after.read_hits_ram - before.read_hits_ram, after.read_hits_ssd - before.read_hits_ssd);
        let misses = after.read_misses - before.read_misses;
        let reads = (hits.0 + hits.1 + misses) as f64;
        let admitted = after.admitted_bytes - before.admitted_bytes;
        let disk = world.disk.counters();
        println!(
            "  {seconds:3} s: {:6.0} IOPS, read {:5.1} ms, write {:5.2} ms, hits {:.1} % ({:.1} RAM), SSD {:.1} MiB in {} writes, admitted {:.1} (clean {:.1}), again {:.1}, WA {:.2}, destaged {:.1}, dirty {:.1}, cached {:.1}, disk reads {} writes {}",
            (count[0] + count[1]) as f64 / seconds as f64,
            ns[0] as f64 / 1e6 / count[0].max(1) as f64,
            ns[1] as f64 / 1e6 / count[1].max(1) as f64,
            100.0 * (hits.0 + hits.1) as f64 / reads,
            100.0 * hits.0 as f64 / reads,
            mib(written),
            world.group_writes - groups_before,
            mib(admitted),
            mib(admitted) - mib((after.write_bytes - before.write_bytes) * u64::from(mode == Mode::WriteBack)),
            mib(after.reinserted_bytes - before.reinserted_bytes),
            written as f64 / admitted.max(1) as f64,
            mib(after.destaged_bytes - before.destaged_bytes),
            mib(after.dirty_bytes),
            mib(after.cached_bytes),
            disk.spindle_reads - disk_before.spindle_reads,
            disk.spindle_writes - disk_before.spindle_writes,
        );
    }
    println!("  ({:.1} s)", begun.elapsed().as_secs_f64());
}

fn main() {
    let mut setup = Setup {
        data: 1024,
        cache: 307,
        ram: 64,
        shards: 4,
        warm: 15,
        run: 15,
        windows: 1,
        depth_s: 300,
        depth: 64,
        set: ModelSet::Raid5Short,
        slots: false,
    };
    let mut modes = vec![Mode::WriteThrough, Mode::WriteBack];
    for word in std::env::args().skip(1) {
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        match name {
            "mode" => modes = vec![if value == "wb" { Mode::WriteBack } else { Mode::WriteThrough }],
            "set" => setup.set = ModelSet::from_name(value).expect("a model set"),
            "depth" => setup.depth = value.parse().expect("a number"),
            "layout" => setup.slots = value == "slots",
            _ => {}
        }
        if ["mode", "set", "depth", "layout"].contains(&name) {
            continue;
        }
        let value: u64 = value.parse().expect("a number");
        *match name {
            "data" => &mut setup.data,
            "cache" => &mut setup.cache,
            "ram" => &mut setup.ram,
            "shards" => &mut setup.shards,
            "warm" => &mut setup.warm,
            "run" => &mut setup.run,
            "windows" => &mut setup.windows,
            "depth_s" => &mut setup.depth_s,
            _ => panic!("there is no {name}"),
        } = value;
    }
    let mut bare = DiskModel::new(setup.set, setup.data << 20);
    let seconds = SECOND_NS;
    let measured = device::model::workload::run(&mut bare, Workload::hot_spot(), 0, setup.warm * seconds, setup.run * seconds, 1);
    println!("bare: {:.0} IOPS", measured.iops);
    modes.into_iter().for_each(|mode| run(&setup, mode));
}
