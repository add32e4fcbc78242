//! A trace through the shipping engine: one [`Shard`] in write-through mode, over devices that answer at once and hold nothing
//! but zeroes.
//!
//! Requests are cut at extents and submitted with a bounded number in flight, as a client with that queue depth would send them. Whether a
//! block was cached is looked up before its request goes in; a block that a request in flight brings counts as cached.

use crate::read::TraceRequest;
use crate::replay::Outcome;
use engine::api::{Action, Command, Completion, Event, Io, IoKind, Op, Request, Target, VolumeOptions};
use engine::log::LogPlace;
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use format::Layout;
use format::checkpoint::LogEnd;
use page::{Page, PageMutVec, PagePool, PageVec};
use std::collections::{HashMap, HashSet};
use types::{Admission, BLOCK_BYTES, BLOCK_SECTORS, EXTENT_BLOCKS, Mode, ShardIndex, VOLUME_BLOCKS_MAX, VolumeId, VolumeIndex};

/// Segments of the log, unless a segment would be smaller or larger than the format allows or than the default.
const SEGMENTS: u64 = 64;
/// Pages of the smallest and of the default segment.
const SEGMENT_PAGES: std::ops::RangeInclusive<u64> = 16..=512;
/// Requests in flight: enough that small writes share groups, few enough that their blocks fit into the RAM tier of a trace-sized cache.
const QUEUE_DEPTH: usize = 4;
/// Time between two requests; long enough that groups are closed by time now and then.
const REQUEST_INTERVAL_NS: u64 = 20_000;
/// Pages for requests in flight.
const CLIENT_PAGES: usize = QUEUE_DEPTH * EXTENT_BLOCKS as usize;

/// Size and rules of the engine under replay.
#[derive(Clone, Copy, Debug)]
pub struct ShardReplayConfig {
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// Pages of the log, headers and footers included.
    pub ssd_pages: u64,
    /// As the volume option.
    pub admission: Admission,
}

/// See the module.
pub struct ShardReplay {
    shard: Shard,
    zero_page: Page,
    volumes: HashMap<u16, VolumeIndex>,
    options: VolumeOptions,
    now_ns: u64,
    next_id: u64,
    in_flight: usize,
    blocks_in_flight: HashSet<(VolumeIndex, u64)>,
    outcome: Outcome,
}

impl ShardReplay {
    /// An engine with an empty log.
    pub fn new(config: ShardReplayConfig) -> ShardReplay {
        let segment_pages = (config.ssd_pages / SEGMENTS + 1).next_power_of_two() / 2;
        let segment_pages = segment_pages.clamp(*SEGMENT_PAGES.start(), *SEGMENT_PAGES.end());
        let segments_per_shard = (config.ssd_pages / segment_pages).max(u64::from(format::layout::SEGMENTS_PER_SHARD_MIN)) as u32;
        let layout = Layout { shards: 1, segment_bytes: (segment_pages * BLOCK_BYTES) as u32, segments_per_shard, ssd_bytes: 0 };
        let layout = Layout { ssd_bytes: layout.end_bytes(), ..layout };
        let pool = PagePool::new(PAGES_MIN + CLIENT_PAGES + 2 * config.ram_blocks as usize);
        let place = LogPlace { uuid: [1; 16], session: 1, shard: ShardIndex(0), layout };
        let shard_config = ShardConfig { place, ram_blocks: config.ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        let options = VolumeOptions { mode: Mode::WriteThrough, admission: config.admission, ..VolumeOptions::default() };
        ShardReplay {
            shard: Shard::new(shard_config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 }),
            zero_page: pool.allocate_zeroed().expect("an empty pool has pages").freeze(),
            volumes: HashMap::new(),
            options,
            now_ns: 0,
            next_id: 0,
            in_flight: 0,
            blocks_in_flight: HashSet::new(),
            outcome: Outcome::default(),
        }
    }

    /// Sends all requests through, waits for the last, and says what was measured.
    pub fn run(mut self, requests: &[TraceRequest]) -> Outcome {
        for request in requests {
            let volume = self.volume(request.disk);
            let first = request.offset_bytes / BLOCK_BYTES;
            let end = (request.offset_bytes + request.length_bytes - 1) / BLOCK_BYTES + 1;
            let mut at = first;
            while at < end {
                let part_end = end.min((at / EXTENT_BLOCKS + 1) * EXTENT_BLOCKS);
                self.submit(volume, at, part_end - at, request.write);
                at = part_end;
            }
        }
        self.settle();
        self.outcome.ssd_blocks_written = self.shard.stats().ssd_written_bytes / BLOCK_BYTES;
        self.outcome
    }

    fn volume(&mut self, disk: u16) -> VolumeIndex {
        if let Some(volume) = self.volumes.get(&disk) {
            return *volume;
        }
        let volume = VolumeIndex(self.volumes.len() as u16);
        self.volumes.insert(disk, volume);
        let id = VolumeId(u32::from(volume.0) + 1);
        let size_bytes = VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        self.shard.command(self.now_ns, Command::Attach { volume, id, size_bytes, options: self.options.clone() });
        volume
    }

    /// Asks the engine in words, since it has no other way to look at a block without touching it.
    fn is_cached(&self, volume: VolumeIndex, block: u64) -> bool {
        let place = self.shard.describe_block(volume, block);
        place.starts_with("in RAM") || !place.ends_with("not on the SSD")
    }

    fn submit(&mut self, volume: VolumeIndex, first: u64, blocks: u64, write: bool) {
        for block in first..first + blocks {
            self.outcome.accesses += 1;
            let coming = !self.blocks_in_flight.insert((volume, block));
            self.outcome.misses += u64::from(!coming && !self.is_cached(volume, block));
        }
        let pages: PageVec = if write { (0..blocks).map(|_| self.zero_page.clone()).collect() } else { PageVec::new() };
        let request = Request {
            id: self.next_id,
            volume,
            op: if write { Op::Write } else { Op::Read },
            fua: false,
            start_sector: first * BLOCK_SECTORS,
            sectors: (blocks * BLOCK_SECTORS) as u32,
            pages,
            bypass: None,
            wanted: false,
            range: None,
        };
        self.next_id += 1;
        self.in_flight += 1;
        self.now_ns += REQUEST_INTERVAL_NS;
        self.shard.submit(self.now_ns, request);
        if self.in_flight >= QUEUE_DEPTH {
            self.settle();
        }
    }

    /// Performs I/Os until every request is answered.
    fn settle(&mut self) {
        loop {
            self.drain();
            if self.in_flight == 0 {
                self.blocks_in_flight.clear();
                return;
            }
            let deadline = self.shard.next_deadline().expect("whoever waits without I/O waits for a time");
            self.now_ns = self.now_ns.max(deadline);
            self.shard.tick(self.now_ns);
        }
    }

    fn drain(&mut self) {
        loop {
            let mut ios: Vec<Io> = Vec::new();
            while let Some(action) = self.shard.poll_action() {
                match action {
                    Action::Io(io) => ios.push(io),
                    Action::Reply(reply) => {
                        assert_eq!(reply.result, Ok(()), "devices without faults");
                        self.in_flight -= 1;
                    }
                    Action::Event(Event::CommandDone(..)) => {}
                    Action::Event(event) => panic!("devices without faults, but {event:?}"),
                }
            }
            if ios.is_empty() {
                return;
            }
            for io in ios {
                self.perform(io);
            }
        }
    }

    fn perform(&mut self, io: Io) {
        assert!(matches!(io.target, Target::Ssd | Target::Backing(_)));
        let pages = match io.kind {
            IoKind::Read(mut pages) => {
                pages.iter_mut().for_each(|page| page.fill(0));
                pages
            }
            _ => PageMutVec::new(),
        };
        self.shard.complete(self.now_ns, Completion { id: io.id, result: Ok(()), pages });
    }
}
