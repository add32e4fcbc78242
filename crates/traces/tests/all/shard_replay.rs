//! The shipping engine under replay: it answers everything, caches what fits, and writes what it says.

use traces::read::TraceRequest;
use traces::shard_replay::{ShardReplay, ShardReplayConfig};
use types::{Admission, BLOCK_BYTES};

/// None is beside another: nothing comes along.
fn requests(passes: u64, blocks: u64, write: bool) -> Vec<TraceRequest> {
    let of_pass =
        |_| (0..blocks).map(|block| TraceRequest { time_ns: 0, disk: 3, offset_bytes: block * 8 * BLOCK_BYTES, length_bytes: 1, write });
    (0..passes).flat_map(of_pass).collect()
}

fn replay(requests: &[TraceRequest], ram_blocks: u64, ssd_pages: u64) -> traces::replay::Outcome {
    ShardReplay::new(ShardReplayConfig { ram_blocks, ssd_pages, admission: Admission::SecondTouch }).run(requests)
}

#[test]
fn what_fits_misses_once() {
    let outcome = replay(&requests(3, 1000, false), 64, 4096);
    assert_eq!((outcome.accesses, outcome.misses), (3000, 1000));
    let data = 1000 - 64;
    // The last of them wait for others to share a write with.
    assert!(
        (data - data / 8..data + data / 4).contains(&outcome.ssd_blocks_written),
        "{} SSD blocks for {data} of data",
        outcome.ssd_blocks_written
    );
}

#[test]
fn overwrites_hit_and_large_requests_are_cut() {
    let large = TraceRequest { time_ns: 0, disk: 0, offset_bytes: 100 * BLOCK_BYTES, length_bytes: 400 * BLOCK_BYTES, write: true };
    let outcome = replay(&[large; 10], 512, 4096);
    assert_eq!(outcome.accesses, 4000);
    assert_eq!(outcome.misses, 400);
}

#[test]
fn a_loop_larger_than_the_cache_does_not_fill_the_ssd_with_writes() {
    let outcome = replay(&requests(5, 20_000, false), 64, 2048);
    assert!(outcome.ssd_blocks_written < outcome.accesses / 2, "{} written", outcome.ssd_blocks_written);
}
