//! Random 4 KiB reads of a cached volume, from an endpoint inside the process: what front, shard and reactor cost together.
//!
//! ```text
//! cargo run --release -p runtime --example cached_iops -- BACKING SSD RAM_MIB [DEPTH] [OPERATIONS] [REACTORS]
//! ```
//! BACKING and SSD are made if they are not there (SSD anew each time). The volume has 256 MiB: with RAM_MIB above that all reads of the second
//! pass are RAM hits, with a small one nearly all are SSD hits.

mod common;

use engine::api::VolumeOptions;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::store::StorePlace;
use format::Layout;
use format::checkpoint::LogEnd;
use page::PagePool;
use runtime::{AttachOptions, DeviceOptions, PoolOptions, Runtime, RuntimeOptions};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::{Admission, Mode, ShardIndex, VolumeId, VolumeIndex};

const SSD_BYTES: u64 = 1 << 30;

fn ssd(path: &Path) -> DeviceOptions {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.expect("the SSD file opens with O_DIRECT");
    file.set_len(SSD_BYTES).expect("room for the SSD file");
    let geometry = device::Geometry {
        size_bytes: SSD_BYTES,
        logical_block_bytes: 512,
        memory_alignment_bytes: 512,
        discard: true,
        discard_zeroes: true,
    };
    DeviceOptions { name: path.display().to_string(), file, geometry, model: None }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(default, |text| text.parse().expect("a number"));
    assert!(arguments.len() > 3, "usage: cached_iops BACKING SSD RAM_MIB [DEPTH] [OPERATIONS] [REACTORS]");
    let (ram_mib, depth, operations, reactors) = (number(3, 512), number(4, 32), number(5, 500_000), number(6, 1));
    let runtime = Runtime::start(RuntimeOptions { reactors: reactors as u16, ..RuntimeOptions::default() }).expect("the runtime starts");
    let backing = runtime.open_device(common::device(Path::new(&arguments[1]))).expect("the backing device opens");
    let ssd = runtime.open_device(ssd(Path::new(&arguments[2]))).expect("the SSD opens");

    let layout = Layout::plan_default(SSD_BYTES, reactors as u16 * 2).expect("the layout fits").with_packed_slots();
    let ram_blocks = ram_mib * 256 / u64::from(layout.shards);
    let pages = PagePool::new(usize::from(layout.shards) * (PAGES_MIN + ram_blocks as usize) + 16_384);
    let shards = (0..layout.shards).map(|shard| {
        let place = StorePlace { uuid: [7; 16], session: 1, shard: ShardIndex(shard), layout, ring_first: 0 };
        let config = ShardConfig { place, ram_blocks, pool: pages.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        Shard::new(config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 })
    });
    let events = Arc::new(|_, event| println!("event: {event:?}"));
    let pool = runtime.add_pool(PoolOptions { ssds: vec![ssd], shards: shards.collect(), pages: pages.clone(), events }).expect("a pool");
    let options = VolumeOptions { mode: Mode::WriteThrough, admission: Admission::Always, ..VolumeOptions::default() };
    let attach = AttachOptions { name: "cached".into(), index: VolumeIndex(0), id: VolumeId(1), backing, options };
    let volume = runtime.attach_volume(&pool, attach).expect("a volume");
    println!("warm-up:");
    common::measure(&runtime, &volume, depth, operations);
    let before = runtime.engine_stats(&pool, VolumeIndex(0)).expect("statistics");
    println!("measured:");
    common::measure(&runtime, &volume, depth, operations);
    let after = runtime.engine_stats(&pool, VolumeIndex(0)).expect("statistics");
    let (ram, ssd, misses) =
        (after.read_hits_ram - before.read_hits_ram, after.read_hits_ssd - before.read_hits_ssd, after.read_misses - before.read_misses);
    println!("  RAM hits {ram}, SSD hits {ssd}, misses {misses}");
    let turns = runtime.turns();
    std::thread::sleep(Duration::from_secs(1));
    println!("  {} turns in one idle second", runtime.turns() - turns);
    runtime.remove_volume(&volume, Duration::from_secs(5)).expect("the volume goes");
    runtime.remove_pool(&pool, Duration::from_secs(30)).expect("the pool goes");
    runtime.shutdown(Duration::from_secs(5)).expect("a clean end");
}
