//! What the hot-spot workload of the trade can show on a modelled disk: the bare disk, and in front of it an ideal
//! write-through and an ideal write-back cache (84.4 % of reads hit, the SSD takes 0.1 ms).
//! `cargo run --release -p device --example hot_spot_ceilings [GIB]`; 8 GiB unless stated.

use device::model::workload::{Generator, Random, Workload};
use device::model::{DiskModel, IoDescription, IoKind, Layout, ModelParameters, ModelSet, ParityUpdate};
use std::collections::{BTreeSet, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
const BLOCK_BYTES: u64 = 4096;
/// Largest destage write: 1 MiB.
const EXTENT_BLOCKS: u64 = 256;
const SSD_NS: u64 = 100_000;
/// The hot tenth is cached, and of the rest what a cache of 30 % of the space has room for: (30 - 10) / 90.
const COLD_HIT_SHARE: f64 = 20.0 / 90.0;
/// Tokens of destage writes begin here.
const DESTAGE_TOKEN: u64 = 1 << 32;
/// Windows until the NVRAM is full and destage of the cache has begun.
const WARM_UP_WINDOWS: usize = 5;
const DESTAGE_DEPTH: usize = 32;

#[derive(Clone, Copy, PartialEq)]
enum Cache {
    None,
    WriteThrough,
    /// Dirty blocks go home when they are this old; with `fill`, together with the clean cached blocks between them, so
    /// that RAID 5 sees whole rows.
    WriteBack {
        depth_ns: u64,
        fill: bool,
    },
}

struct Run {
    size_bytes: u64,
    model: DiskModel,
    cache: Cache,
    random: Random,
    generator: Generator,
    now_ns: u64,
    /// Completions that do not come from the disk, by time.
    fast: BTreeSet<(u64, u64)>,
    since: Vec<(u64, IoKind)>,
    /// Dirty blocks not yet old enough, and when they became dirty, in order.
    dirty: BTreeSet<u64>,
    by_age: VecDeque<(u64, u64)>,
    /// Dirty blocks whose time has come.
    aged: BTreeSet<u64>,
    destaging: usize,
    next_destage_token: u64,
    sweep_block: u64,
}

impl Run {
    fn issue(&mut self, token: u64) {
        let io = self.generator.next(token);
        self.since[token as usize] = (self.now_ns, io.kind);
        let hot = io.offset_bytes < self.size_bytes / 10;
        let hit = io.kind == IoKind::Read && (hot || self.random.unit() < COLD_HIT_SHARE);
        match (self.cache, io.kind) {
            (Cache::WriteThrough | Cache::WriteBack { .. }, IoKind::Read) if hit => {
                self.fast.insert((self.now_ns + SSD_NS, token));
            }
            (Cache::WriteBack { .. }, IoKind::Write) => {
                let block = io.offset_bytes / BLOCK_BYTES;
                if !self.aged.contains(&block) && self.dirty.insert(block) {
                    self.by_age.push_back((self.now_ns, block));
                }
                self.fast.insert((self.now_ns + SSD_NS, token));
            }
            _ => self.model.submit(self.now_ns, io),
        }
    }

    fn destage(&mut self) {
        let Cache::WriteBack { depth_ns, fill } = self.cache else { return };
        while let Some((_, block)) = self.by_age.front().copied().filter(|(at, _)| at + depth_ns <= self.now_ns) {
            self.by_age.pop_front();
            if self.dirty.remove(&block) {
                self.aged.insert(block);
            }
        }
        while self.destaging < DESTAGE_DEPTH {
            let next = self.aged.range(self.sweep_block..).next().or_else(|| self.aged.first());
            let Some(start) = next.copied() else { return };
            let extent = start / EXTENT_BLOCKS * EXTENT_BLOCKS;
            let (start, run) = if fill && (extent + EXTENT_BLOCKS) * BLOCK_BYTES <= self.size_bytes / 10 {
                (extent, EXTENT_BLOCKS)
            } else {
                (start, (start..start + EXTENT_BLOCKS).take_while(|block| self.aged.contains(block)).count() as u64)
            };
            for block in start..start + run {
                self.aged.remove(&block);
                self.dirty.remove(&block);
            }
            self.sweep_block = start + run;
            let token = self.next_destage_token;
            self.next_destage_token += 1;
            self.destaging += 1;
            let (offset_bytes, length_bytes) = (start * BLOCK_BYTES, run * BLOCK_BYTES);
            self.model.submit(self.now_ns, IoDescription { token, kind: IoKind::Write, offset_bytes, length_bytes, fua: false });
        }
    }

    /// The next completion of a client's request.
    fn next_completion(&mut self) -> u64 {
        loop {
            self.destage();
            if let Some(first) = self.fast.first().copied().filter(|(at_ns, _)| *at_ns <= self.now_ns) {
                self.fast.remove(&first);
                return first.1;
            }
            match self.model.pop_completed(self.now_ns) {
                Some(token) if token < DESTAGE_TOKEN => return token,
                Some(_) => self.destaging -= 1,
                None => {
                    let next = [self.model.next_deadline_ns(), self.fast.first().map(|(at_ns, _)| *at_ns)];
                    self.now_ns = next.into_iter().flatten().min().expect("requests are in flight").max(self.now_ns);
                }
            }
        }
    }
}

/// IOPS, mean read and write latency in ms, in each window of `window_s` seconds.
fn run(parameters: &ModelParameters, size_bytes: u64, cache: Cache, windows: u64, window_s: u64) -> Vec<(f64, f64, f64)> {
    let workload = Workload::hot_spot();
    let mut run = Run {
        size_bytes,
        model: DiskModel::with_parameters(parameters.clone(), size_bytes),
        cache,
        random: Random::new(7),
        generator: Generator::new(workload, size_bytes, 1),
        now_ns: 0,
        fast: BTreeSet::new(),
        since: vec![(0, IoKind::Read); workload.depth],
        dirty: BTreeSet::new(),
        by_age: VecDeque::new(),
        aged: BTreeSet::new(),
        destaging: 0,
        next_destage_token: DESTAGE_TOKEN,
        sweep_block: 0,
    };
    (0..workload.depth as u64).for_each(|token| run.issue(token));
    let mut results = Vec::new();
    for window in 1..=windows {
        let (mut count, mut reads, mut reads_ns, mut writes_ns) = (0u64, 0u64, 0u64, 0u64);
        while run.now_ns < window * window_s * SECOND_NS {
            let token = run.next_completion();
            let (since_ns, kind) = run.since[token as usize];
            count += 1;
            if kind == IoKind::Read {
                reads += 1;
                reads_ns += run.now_ns - since_ns;
            } else {
                writes_ns += run.now_ns - since_ns;
            }
            run.issue(token);
        }
        let mean_ms = |ns: u64, count: u64| ns as f64 / count.max(1) as f64 / 1e6;
        results.push((count as f64 / window_s as f64, mean_ms(reads_ns, reads), mean_ms(writes_ns, count - reads)));
    }
    results
}

fn main() {
    let gib: u64 = std::env::args().nth(1).map_or(8, |text| text.parse().expect("the size is a number of GiB"));
    let size_bytes = gib << 30;
    let set = ModelSet::Raid5Short;
    let read_modify_write = set.parameters(size_bytes);
    let fewest_reads =
        ModelParameters { layout: Layout::Raid5 { chunk_bytes: 64 << 10, update: ParityUpdate::FewestReads }, ..read_modify_write.clone() };
    for (what, parameters) in [("read-modify-write", read_modify_write), ("fewest reads", fewest_reads)] {
        println!("\nmodel {} (parity by {what}), {gib} GiB, 4 KiB, 80 % of I/O in 10 %, 80/20, depth 64", set.name());
        let caches = [
            ("bare", Cache::None),
            ("ideal write-through", Cache::WriteThrough),
            ("ideal write-back, 30 s", Cache::WriteBack { depth_ns: 30 * SECOND_NS, fill: false }),
            ("the same, gaps filled", Cache::WriteBack { depth_ns: 30 * SECOND_NS, fill: true }),
            ("ideal write-back, 120 s", Cache::WriteBack { depth_ns: 120 * SECOND_NS, fill: false }),
            ("the same, gaps filled", Cache::WriteBack { depth_ns: 120 * SECOND_NS, fill: true }),
            ("ideal write-back, no destage", Cache::WriteBack { depth_ns: u64::MAX / 2, fill: false }),
        ];
        let mut bare = 0.0;
        for (name, cache) in caches {
            let windows = run(&parameters, size_bytes, cache, 15, 30);
            // The sweep of the NVRAM over hot and cold ground is a wave of minutes: average over it, after the warm-up.
            let steady = &windows[WARM_UP_WINDOWS..];
            let mean = |of: fn(&(f64, f64, f64)) -> f64| steady.iter().map(of).sum::<f64>() / steady.len() as f64;
            let (iops, read_ms, write_ms) = (mean(|w| w.0), mean(|w| w.1), mean(|w| w.2));
            if cache == Cache::None {
                bare = iops;
            }
            let course: Vec<String> = windows.iter().map(|(iops, _, _)| format!("{iops:.0}")).collect();
            println!(
                "  {name:30} {iops:6.0} IOPS {:5.2} x  read {read_ms:6.1} ms  write {write_ms:6.1} ms   each 30 s: {}",
                iops / bare,
                course.join(" ")
            );
        }
    }
}
