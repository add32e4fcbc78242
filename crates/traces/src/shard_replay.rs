//! A trace through the shipping engine: one shard in write-through mode, over devices that answer at once ([`replica`]).

use crate::read::TraceRequest;
use crate::replay::Outcome;
use engine::api::VolumeOptions;
use engine::stats::ShardStats;
use pool::alone::{Alone, AloneConfig};
use types::{Admission, BLOCK_BYTES, EXTENT_BLOCKS, Mode};

/// Time between two requests; long enough that groups are closed by time now and then.
const REQUEST_INTERVAL_NS: u64 = 20_000;

/// Size and rules of the engine under replay.
#[derive(Clone, Copy, Debug)]
pub struct ShardReplayConfig {
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// Pages of the SSD for blocks.
    pub ssd_pages: u64,
    /// As the volume option.
    pub admission: Admission,
}

/// See the module.
pub struct ShardReplay {
    replica: Alone,
    outcome: Outcome,
}

impl ShardReplay {
    /// An engine with an empty cache.
    pub fn new(config: ShardReplayConfig) -> ShardReplay {
        let ShardReplayConfig { ram_blocks, ssd_pages, admission } = config;
        let options = VolumeOptions { mode: Mode::WriteThrough, admission, ..VolumeOptions::default() };
        ShardReplay { replica: Alone::new(AloneConfig { ram_blocks, ssd_pages, options }), outcome: Outcome::default() }
    }

    /// Sends all requests through, waits for the last, and says what was measured.
    pub fn run(self, requests: &[TraceRequest]) -> Outcome {
        self.run_with_stats(requests).0
    }

    /// The same, with what the engine counted.
    pub fn run_with_stats(mut self, requests: &[TraceRequest]) -> (Outcome, ShardStats) {
        for request in requests {
            let first = request.offset_bytes / BLOCK_BYTES;
            let end = (request.offset_bytes + request.length_bytes - 1) / BLOCK_BYTES + 1;
            let mut at = first;
            while at < end {
                let part_end = end.min((at / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS);
                self.replica.advance_by(REQUEST_INTERVAL_NS);
                self.outcome.accesses += part_end - at;
                self.outcome.misses += self.replica.access(request.disk.into(), at, part_end - at, request.write);
                at = part_end;
            }
        }
        self.outcome.ssd_blocks_written = self.replica.ssd_blocks_written();
        (self.outcome, self.replica.stats())
    }
}
