//! How long a pool with ten million blocks takes from its SSD to shards that can serve: after a clean stop and after a kill.
//!
//! The SSD is a sparse file that holds what a start reads (superblock, footers, checkpoint) and no payload. Everything the kernel could
//! have cached of it is read with O_DIRECT. Exports and backing devices are not part of this.

use crate::report;
use anyhow::{Context, Result, ensure};
use device::{Access, OpenDevice};
use engine::checkpoint;
use engine::medium::Medium;
use engine::superblock::{self, OpenError, PoolState};
use format::checkpoint::{CheckpointEntry, LogEnd};
use format::{FooterHead, Layout, Record, RecordKind, VolumeRecord};
use page::PagePool;
use pool::restart::{Restart, Restarted, restart};
use runtime::SsdMedium;
use std::collections::BTreeMap;
use std::time::Instant;
use types::{Content, Mode, ShardIndex, VolumeId, VolumeIndex};

const BLOCKS: u64 = 10_000_000;
/// What a machine with two cores gets.
pub const SHARDS: u16 = 4;
/// The only one.
pub const VOLUME: VolumeId = VolumeId(1);
/// Segments of each shard left empty, as the reserve does.
const FREE_SEGMENTS: u64 = 4;
const ROUNDS: usize = 3;

/// Both kinds of start, from the same file.
pub fn run() -> Result<()> {
    let directory = tempfile::tempdir_in(std::env::current_dir()?)?;
    let path = directory.path().join("ssd");
    let ssd_bytes = BLOCKS * 4096 * 102 / 100;
    std::fs::File::create(&path)?.set_len(ssd_bytes)?;
    let ssd = OpenDevice::open(&path, Access::ReadWrite)?;
    let ends = write_pool(&ssd, ssd_bytes)?;
    let kill = rounds(&ssd, &|| write_starts(&ssd))?;
    report("engine: start after a kill, ten million blocks, until shards are there", kill.wall_ms, "ms", Some(5000.0));
    report("engine: the same", kill.cpu_ms, "ms CPU", None);
    let clean = rounds(&ssd, &|| write_checkpoint(&ssd, &ends))?;
    report("engine: start after a clean stop, ten million blocks, until shards are there", clean.wall_ms, "ms", Some(1000.0));
    report("engine: the same", clean.cpu_ms, "ms CPU", None);
    Ok(())
}

/// A way to the SSD of its own.
pub fn medium(ssd: &OpenDevice) -> Result<SsdMedium<device::BlockingFile>> {
    Ok(SsdMedium(ssd.blocking()?))
}

/// What a start took, on the clock and on all cores together.
struct Took {
    wall_ms: f64,
    cpu_ms: f64,
}

/// The median of some starts; `prepare` puts the SSD into the state to start from.
fn rounds(ssd: &OpenDevice, prepare: &dyn Fn() -> Result<()>) -> Result<Took> {
    let mut took: Vec<Took> = Vec::new();
    for _ in 0..ROUNDS {
        prepare()?;
        took.push(start(ssd)?);
    }
    took.sort_by(|one, other| one.wall_ms.total_cmp(&other.wall_ms));
    Ok(took.swap_remove(took.len() / 2))
}

/// Why a start failed.
#[derive(Debug)]
struct Failed(anyhow::Error);

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Failed {
        Failed(error.into())
    }
}

fn start(ssd: &OpenDevice) -> Result<Took> {
    let (begun, cpu_begun) = (Instant::now(), process_cpu_ms());
    let mut root = medium(ssd)?;
    let mut state = superblock::load(&mut root)?;
    let places = BTreeMap::from([(VOLUME.0, VolumeIndex(0))]);
    let pages = PagePool::new(1 << 20);
    let threads = 2 * std::thread::available_parallelism()?.get();
    let plan = Restart { state: &state, places: &places, ram_blocks: 0, content: Content::Off, pages, threads, slots_named: None };
    let open = || -> Result<Box<dyn Medium + Send>, Failed> { Ok(Box::new(medium(ssd).map_err(Failed)?)) };
    let found: Vec<Restarted> = restart(&plan, &open).map_err(|failed| failed.0)?;
    let ends: Vec<LogEnd> = found.iter().map(|shard| shard.end).collect();
    state.begin_session(&mut root, &ends, &[])?;
    let took = Took { wall_ms: begun.elapsed().as_secs_f64() * 1000.0, cpu_ms: process_cpu_ms() - cpu_begun };
    let blocks: u64 = found.iter().map(|shard| shard.shard.stats().cached_blocks).sum();
    ensure!(blocks >= BLOCKS * 98 / 100, "only {blocks} blocks came back");
    Ok(took)
}

/// What all threads of this process took.
pub fn process_cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// A pool whose shards have filled their logs in one session. Gives where each log ends.
fn write_pool(ssd: &OpenDevice, ssd_bytes: u64) -> Result<Vec<LogEnd>> {
    let layout = Layout::plan_default(ssd_bytes, SHARDS)?;
    let mut root = medium(ssd)?;
    let mut state = superblock::create(&mut root, layout, [7; 16])?;
    state.superblock.volumes.push(volume_record());
    state.superblock.next_volume_id = VolumeId(2);
    let first = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    state.begin_session(&mut root, &vec![first; usize::from(layout.shards)], &[])?;
    let segments = u64::from(layout.segments_per_shard) - FREE_SEGMENTS;
    for shard in (0..layout.shards).map(ShardIndex) {
        for seq in 1..=segments {
            write_footer(&mut root, &state, shard, seq)?;
        }
    }
    let end = LogEnd { next_seq: segments + 1, next_group: segments + 1, tail_seq: 1 };
    Ok(vec![end; usize::from(layout.shards)])
}

/// The record of the only volume.
pub fn volume_record() -> VolumeRecord {
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

/// The block in a slot: scattered over the volume, none twice.
fn block_of(shard: ShardIndex, slot: u32) -> u64 {
    let number = u64::from(shard.0) << 24 | u64::from(slot);
    // An odd factor is a permutation of the 30-bit numbers.
    number.wrapping_mul(2_654_435_761) % (1 << 30)
}

/// A full segment of one group, as its footer tells it.
fn write_footer(medium: &mut dyn Medium, state: &PoolState, shard: ShardIndex, seq: u64) -> Result<()> {
    let layout = &state.superblock.layout;
    let physical = layout.physical(seq);
    let record = |slot_page: u32| Record {
        kind: RecordKind::DataClean,
        volume: VOLUME,
        block: block_of(shard, layout.slot(physical, slot_page)),
        mask: u8::MAX,
        checksum: slot_page,
        slot_page,
        packed: None,
    };
    let records: Vec<Record> = (1..layout.group_pages()).map(record).collect();
    let head = FooterHead {
        uuid: state.superblock.uuid,
        session: state.superblock.session,
        shard,
        segment_seq: seq,
        first_group: seq,
        last_group: seq,
        tail_seq: 1,
        durable_group: seq,
        resume_seq: 0,
        resume_group: 0,
        used_pages: layout.group_pages(),
    };
    medium.write(layout.footer_offset(shard, physical), &head.encode(layout, &records))?;
    Ok(())
}

/// The session's start again where it was: the next start finds the log and no checkpoint.
fn write_starts(ssd: &OpenDevice) -> Result<()> {
    let mut root = medium(ssd)?;
    let mut state = superblock::load(&mut root)?;
    let first = format::LogStart::EMPTY;
    state.superblock.session = 1;
    state.superblock.log_starts.iter_mut().for_each(|start| *start = first);
    state.store(&mut root)?;
    Ok(())
}

fn write_checkpoint(ssd: &OpenDevice, ends: &[LogEnd]) -> Result<()> {
    write_starts(ssd)?;
    let mut root = medium(ssd)?;
    let mut state = superblock::load(&mut root)?;
    let layout = state.superblock.layout;
    let (pages, used) = (layout.pages_per_segment(), layout.segments_per_shard - FREE_SEGMENTS as u32);
    let mut entry = |shard: ShardIndex, slot: u32| {
        let payload = slot / pages < used && (1..layout.group_pages()).contains(&(slot % pages));
        let block = block_of(shard, slot);
        payload.then_some(CheckpointEntry { volume: 0, block, mask: u8::MAX, dirty: false, heat: 0, checksum: slot })
    };
    checkpoint::write(&mut root, &mut state, ends, &[VOLUME], &mut entry).context("the checkpoint")
}
