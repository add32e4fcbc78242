//! The engine with blocks in slots: what a load of reads alone, or with writes between them, finds.

use traces::read::TraceRequest;
use traces::shard_replay::{ShardReplay, ShardReplayConfig};
use types::{Admission, BLOCK_BYTES};

fn request(block: u64, write: bool) -> TraceRequest {
    TraceRequest { time_ns: 0, disk: 0, offset_bytes: block * BLOCK_BYTES, length_bytes: BLOCK_BYTES, write }
}

fn misses(requests: &[TraceRequest]) -> u64 {
    let config = ShardReplayConfig { ram_blocks: 100, ssd_pages: 4000, admission: Admission::SecondTouch };
    ShardReplay::new(config).run(requests).misses
}

/// Blocks `first..first + count` in a fixed disorder, so often.
fn passes(first: u64, count: u64, times: u64) -> impl Iterator<Item = u64> {
    (0..count * times).map(move |nth| first + nth % count * 7919 % count)
}

/// Slots that are given up become free when that is durable, and nothing but writes ever made anything durable: once the free slots were few,
/// clean blocks were turned away for ever, and reads alone replaced nothing any more.
#[test]
fn reads_alone_replace_what_is_used_no_more() {
    let old: Vec<TraceRequest> = passes(0, 3000, 6).map(|block| request(block, false)).collect();
    let new = passes(100_000, 3000, 12).map(|block| request(block, false));
    let both: Vec<TraceRequest> = old.iter().copied().chain(new).collect();
    let of_new = misses(&both) - misses(&old);
    // The first passes must miss; a cache that replaced nothing would miss nearly all 36,000.
    assert!((3000..18_000).contains(&of_new), "{of_new} misses of the new blocks");
}

#[test]
fn blocks_that_are_read_once_do_not_push_out_what_is_used() {
    let used: Vec<TraceRequest> = passes(0, 2500, 10).map(|block| request(block, false)).collect();
    // Then others pass between two uses of a block, more than there is room for. None is beside another: nothing comes along.
    let twice =
        used.iter().zip(1..).flat_map(|(used, nth)| [*used, request(1_000_000 + 16 * nth, false), request(1_000_008 + 16 * nth, false)]);
    let mixed: Vec<TraceRequest> = used.iter().copied().chain(twice).collect();
    let of_used = misses(&mixed) - misses(&used) - 2 * used.len() as u64;
    assert!(of_used < used.len() as u64 / 5, "{of_used} of {} uses missed", used.len());
}

/// In write-through a write makes the record void, and the block comes back by RAM: as what it was.
#[test]
fn a_block_that_is_written_over_keeps_its_place() {
    let used = |write: bool| -> Vec<TraceRequest> {
        passes(0, 2500, 20).zip(0..).map(|(block, nth)| request(block, write && nth % 3 == 0)).collect()
    };
    let with_passing = |used: Vec<TraceRequest>| -> u64 {
        let mixed = used.iter().zip(1..).flat_map(|(used, nth)| [*used, request(1_000_000 + 8 * nth, false)]);
        misses(&mixed.collect::<Vec<TraceRequest>>()) - used.len() as u64
    };
    let (read, written) = (with_passing(used(false)), with_passing(used(true)));
    assert!(written < read + 3000, "{written} of 50,000 uses missed with writes, {read} without");
}
