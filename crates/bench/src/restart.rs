//! What a start of a pool with ten million blocks takes, from its SSD to shards that can serve, after a kill and after a clean stop: on the clock and in
//! memory, beside the time to read the same bytes of the rings; and what the stop takes. Exports and backing devices are not part of this.
//!
//! The SSD is a sparse file that holds what a start reads and no payload. Everything the kernel could have cached of it is read with O_DIRECT.
//! The rings are full, as a long life leaves them: half of the pages are behind the tail, and say of each block where it is; most of it as a sweep
//! says it, a quarter as a client's write does. Each start and stop is a process of its own: its peak of memory is nobody else's.

use crate::report;
use anyhow::{Context, Result, ensure};
use device::{Access, OpenDevice};
use engine::medium::Medium;
use engine::shard::Shard;
use engine::store::slots::stop;
use engine::superblock::{self, OpenError};
use format::checkpoint::LogEnd;
use format::packed::Encoding;
use format::slots::statement::Stored;
use format::slots::{RingHead, Set, Statement};
use format::{Layout, LogStart, PAGE_BYTES, VolumeRecord};
use page::PagePool;
use pool::restart::{Restart, restart};
use pool::root::Root;
use runtime::SsdMedium;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use types::{Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const BLOCKS: u64 = 10_000_000;
/// What a machine with two cores gets.
const SHARDS: u16 = 4;
/// The only one.
const VOLUME: VolumeId = VolumeId(1);
/// Where most blocks are packed: so many plain ones, and so many slots with three packed ones each.
const PLAIN_BESIDE_PACKED: u64 = 4_000_000;
const PACKED_SLOTS: u64 = 2_000_000;
const PACKED_A_SLOT: u64 = 3;
/// Pages written at once.
const CHUNK_PAGES: usize = 256;
const ROUNDS: usize = 3;

/// Both kinds of pools, each killed and stopped.
pub fn run() -> Result<()> {
    pool_of("ten million plain blocks", BLOCKS, 0)?;
    pool_of("ten million blocks, six of them packed", PLAIN_BESIDE_PACKED, PACKED_SLOTS)
}

fn pool_of(what: &str, plain: u64, packed_slots: u64) -> Result<()> {
    let directory = tempfile::tempdir_in(std::env::current_dir()?)?;
    let path = directory.path().join("ssd");
    let ssd_bytes = (plain + packed_slots) * PAGE_BYTES as u64 * 110 / 100;
    std::fs::File::create(&path)?.set_len(ssd_bytes)?;
    let layout = Layout::plan_default(ssd_bytes, SHARDS)?;
    let layout = if packed_slots > 0 { layout.with_packed_slots() } else { layout.with_slots() };
    write_pool(&open(&path)?, layout, plain, packed_slots)?;
    let ring_pages = u64::from(layout.ring_pages);
    let whole: Vec<(u64, u64)> = vec![(0, ring_pages); usize::from(SHARDS)];
    let killed = rounds(&path, || as_killed(&open(&path)?, layout))?;
    tell(what, "a kill", &killed, 3000.0);
    report(&format!("engine: the rings of {what}, read"), read_rings(&open(&path)?, layout, &whole)?, "ms", None);
    let stop = life(&path, "stop")?;
    report(&format!("engine: clean stop, {what}"), stop.stop_ms, "ms", None);
    let clean = rounds(&path, || life(&path, "stop").map(|_| ()))?;
    tell(what, "a clean stop", &clean, 1000.0);
    let starts = superblock::load(&mut medium(&open(&path)?)?)?.superblock.log_starts;
    let said: Vec<(u64, u64)> = starts.iter().map(|start| (start.first_seq % ring_pages, start.first_group - start.first_seq)).collect();
    report(&format!("engine: the pages of {what} that a clean stop leaves, read"), read_rings(&open(&path)?, layout, &said)?, "ms", None);
    Ok(())
}

/// A way to the SSD of its own.
fn medium(ssd: &OpenDevice) -> Result<SsdMedium<device::BlockingFile>> {
    Ok(SsdMedium(ssd.blocking()?))
}

/// Nobody else may have it open meanwhile.
fn open(path: &Path) -> Result<OpenDevice> {
    Ok(OpenDevice::open(path, Access::ReadWrite)?)
}

fn tell(what: &str, after: &str, took: &Took, at_most: f64) {
    report(&format!("engine: start after {after}, {what}, until shards are there"), took.start_ms, "ms", Some(at_most));
    report("engine: the same", took.cpu_ms, "ms CPU", None);
    report("engine: the same, peak of memory", took.peak_mib, "MiB", None);
    report("engine: the same, index and policy", took.index_mib, "MiB", None);
}

/// What one process took.
#[derive(Clone, Copy)]
struct Took {
    start_ms: f64,
    cpu_ms: f64,
    /// What it grew by at most while it started.
    peak_mib: f64,
    index_mib: f64,
    stop_ms: f64,
}

/// The median of some starts; `prepare` puts the SSD into the state to start from.
fn rounds(path: &Path, prepare: impl Fn() -> Result<()>) -> Result<Took> {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        prepare()?;
        took.push(life(path, "kill")?);
    }
    took.sort_by(|one: &Took, other| one.start_ms.total_cmp(&other.start_ms));
    Ok(took[took.len() / 2])
}

/// A start in a process of its own, which then stops, or is killed.
fn life(path: &Path, end: &str) -> Result<Took> {
    let output = std::process::Command::new(std::env::current_exe()?).arg("life").arg(path).arg(end).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Vec<f64> = serde_json::from_slice(&output.stdout)?;
    let [start_ms, cpu_ms, peak_mib, index_mib, stop_ms] = figures[..] else { anyhow::bail!("five figures") };
    Ok(Took { start_ms, cpu_ms, peak_mib, index_mib, stop_ms })
}

/// Why a start failed.
#[derive(Debug)]
struct Failed(anyhow::Error);

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Failed {
        Failed(error.into())
    }
}

/// What [`life`] starts: a start, and with `stop` a clean stop behind it. Prints what it took.
pub fn one_life(path: &str, end: &str) -> Result<()> {
    let ssd = open(Path::new(path))?;
    let before = kib_of("VmRSS")?;
    let (begun, cpu_begun) = (Instant::now(), process_cpu_ms());
    let mut blocking = medium(&ssd)?;
    let places = BTreeMap::from([(VOLUME.0, VolumeIndex(0))]);
    let mut root = Root::new(superblock::load(&mut blocking)?, places, VOLUME.0 + 1);
    root.prepare(&mut blocking)?;
    let threads = 2 * std::thread::available_parallelism()?.get();
    let pages = PagePool::new(1 << 20);
    let (state, places) = (root.state(), root.places());
    let plan = Restart { state, places, ram_blocks: 0, content: Content::Off, pages, threads, slots_named: None };
    let way = || -> Result<Box<dyn Medium + Send>, Failed> { Ok(Box::new(medium(&ssd).map_err(Failed)?)) };
    let found = restart(&plan, &way).map_err(|failed| failed.0)?;
    root.begin_session(&mut blocking, &found)?;
    let (start_ms, cpu_ms) = (begun.elapsed().as_secs_f64() * 1000.0, process_cpu_ms() - cpu_begun);
    let peak_mib = (kib_of("VmHWM")? - before) / 1024.0;
    let mut shards: Vec<Shard> = found.into_iter().map(|found| found.shard).collect();
    // The shards learn whose blocks they hold, as in the daemon.
    for shard in &mut shards {
        root.holds().into_iter().for_each(|hold| shard.command(0, hold));
        while shard.poll_action().is_some() {}
    }
    let blocks: u64 = shards.iter().map(|shard| shard.stats().cached_blocks).sum();
    ensure!(blocks == BLOCKS, "{blocks} blocks came back");
    let bytes: u64 = shards.iter().map(|shard| shard.stats().index_bytes + shard.stats().policy_bytes).sum();
    let begun = Instant::now();
    if end == "stop" {
        // As if one group had been written: else the stop had nothing to say.
        let one_more = |end: LogEnd| LogEnd { next_seq: end.next_seq + 1, next_group: end.next_group + 1, ..end };
        let ends: Option<Vec<LogEnd>> = shards.iter().map(|shard| shard.end_at_rest().map(one_more)).collect();
        let ends = ends.context("nothing is under way")?;
        let all = |shard: ShardIndex| -> Box<dyn Iterator<Item = Set>> { Box::new(shards[usize::from(shard.0)].sweep()) };
        ensure!(stop::write(&mut blocking, &mut root.state().clone(), &ends, &all)?, "the ring has room");
    }
    let stop_ms = begun.elapsed().as_secs_f64() * 1000.0;
    println!("{}", serde_json::json!([start_ms, cpu_ms, peak_mib, bytes as f64 / 1048576.0, stop_ms]));
    Ok(())
}

/// What all threads of this process took.
fn process_cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// A figure of this process in KiB.
fn kib_of(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).context("the kernel tells it")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Reads pages of each ring, from a place on, with one thread a shard; gives the milliseconds.
fn read_rings(ssd: &OpenDevice, layout: Layout, parts: &[(u64, u64)]) -> Result<f64> {
    let begun = Instant::now();
    let read = |shard: u16, (from, count): (u64, u64)| -> Result<()> {
        let (mut medium, mut bytes) = (medium(ssd)?, vec![0; CHUNK_PAGES * PAGE_BYTES]);
        let ring_pages = u64::from(layout.ring_pages);
        let mut at = 0;
        while at < count {
            let place = (from + at) % ring_pages;
            let pages = (count - at).min(ring_pages - place).min(CHUNK_PAGES as u64);
            // Pages of one segment lie side by side.
            let of_segment = u64::from(layout.pages_per_segment());
            let pages = pages.min(of_segment - place % of_segment);
            medium.read(offset_of(layout, ShardIndex(shard), place as u32), &mut bytes[..pages as usize * PAGE_BYTES])?;
            at += pages;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..).zip(parts).map(|(shard, part)| scope.spawn(move || read(shard, *part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0)
}

fn offset_of(layout: Layout, shard: ShardIndex, slot: u32) -> u64 {
    layout.page_offset(shard, slot / layout.pages_per_segment(), slot % layout.pages_per_segment())
}

/// A pool whose shards have run for long in one session.
fn write_pool(ssd: &OpenDevice, layout: Layout, plain: u64, packed_slots: u64) -> Result<()> {
    let mut root = medium(ssd)?;
    let mut state = superblock::create(&mut root, layout, [7; 16])?;
    state.superblock.volumes.push(volume_record());
    state.superblock.next_volume_id = VolumeId(VOLUME.0 + 1);
    let first = LogEnd { next_seq: 1, next_group: 2, tail_seq: 1 };
    state.begin_session(&mut root, &vec![first; usize::from(layout.shards)], &[])?;
    for shard in (0..layout.shards).map(ShardIndex) {
        let of_shard = |all: u64| all / u64::from(SHARDS) + u64::from(u64::from(shard.0) < all % u64::from(SHARDS));
        write_ring(&mut root, layout, shard, of_shard(plain), of_shard(packed_slots))?;
    }
    Ok(())
}

/// The record of the only volume.
fn volume_record() -> VolumeRecord {
    VolumeRecord {
        id: VOLUME,
        uuid: [1; 16],
        name: "bench".into(),
        size_bytes: 1 << 44,
        mode: Mode::WriteThrough,
        may_have_dirty: false,
        damaged: false,
        backing_identity: Vec::new(),
    }
}

/// A ring full of pages. Each round of half a ring says of each block where it is.
fn write_ring(medium: &mut dyn Medium, layout: Layout, shard: ShardIndex, plain: u64, packed_slots: u64) -> Result<()> {
    let ring_pages = u64::from(layout.ring_pages);
    let (round, slots) = (ring_pages / 2, plain + packed_slots);
    ensure!(slots + ring_pages <= u64::from(layout.slots_per_shard()), "the blocks fit");
    let mut bytes = vec![0; CHUNK_PAGES * PAGE_BYTES];
    let mut group = 1;
    while group <= ring_pages {
        let place = group % ring_pages;
        let of_segment = u64::from(layout.pages_per_segment());
        let count = (ring_pages + 1 - group).min(ring_pages - place).min(of_segment - place % of_segment).min(CHUNK_PAGES as u64);
        for (group, page) in (group..group + count).zip(bytes.as_chunks_mut::<PAGE_BYTES>().0) {
            let at = (group - 1) % round;
            let mut said = Vec::new();
            for nth in slots * at / round..slots * (at + 1) / round {
                state_slot(&mut said, layout, shard, nth, plain);
            }
            let head = RingHead {
                uuid: [7; 16],
                session: 1,
                shard,
                group,
                tail: (group + 1).saturating_sub(round).max(1),
                durable: group - 1,
                epoch: 0,
            };
            head.encode(&said, page);
        }
        medium.write(offset_of(layout, shard, place as u32), &bytes[..count as usize * PAGE_BYTES])?;
        group += count;
    }
    Ok(())
}

/// What is in the slot of this number behind the ring: blocks are scattered over the volume, none is there twice.
fn state_slot(said: &mut Vec<Statement>, layout: Layout, shard: ShardIndex, nth: u64, plain: u64) {
    let slot = layout.ring_pages + nth as u32;
    let set = |at: u64, stored| {
        let number = u64::from(shard.0) << 27 | nth << 2 | at;
        // An odd factor is a permutation of the 30-bit numbers.
        let block = number.wrapping_mul(2_654_435_761) % (1 << 30);
        let settled = !nth.is_multiple_of(4);
        let of = Set {
            volume: VOLUME,
            block,
            mask: u8::MAX,
            dirty: false,
            settled,
            lost: false,
            vital: false,
            checksum: number as u32,
            slot,
            old: None,
            stored,
        };
        Statement::Set(of)
    };
    if nth < plain {
        return said.push(set(0, None));
    }
    for at in 0..PACKED_A_SLOT {
        // The third rests on the first.
        let (encoding, object) = if at == 2 { (Encoding::Diff, nth << 2) } else { (Encoding::Lz4, nth << 2 | at) };
        said.push(set(at, Some(Stored { encoding, object: object + 1, bytes: 1200, unit: 80 * at as u8 })));
    }
}

/// The superblock as a kill leaves it: the rings of the first session count.
fn as_killed(ssd: &OpenDevice, layout: Layout) -> Result<()> {
    let mut root = medium(ssd)?;
    let mut state = superblock::load(&mut root)?;
    state.superblock.log_session = 1;
    state.superblock.log_starts = vec![LogStart { first_seq: 1, first_group: 2, tail_seq: 1, ring_first: 0 }; usize::from(layout.shards)];
    Ok(state.store(&mut root)?)
}
