//! The shipping engine over devices that answer at once and hold nothing but zeroes: what a cache of some
//! size would have done with a load.
//!
//! Accesses are submitted with a bounded number in flight, as a client with that queue depth would send
//! them. Whether a block was cached is looked up before its request goes in; a block that a request in
//! flight brings counts as cached.

use engine::api::{Action, Command, Completion, Event, Io, IoKind, Op, Origin, Request, VolumeOptions};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, Shard, ShardConfig};
use engine::stats::ShardStats;
use engine::store::StorePlace;
use format::checkpoint::LogEnd;
use format::{Arrangement, Layout};
use page::{Page, PageMutVec, PagePool, PageVec};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use types::{BLOCK_BYTES, BLOCK_SECTORS, EXTENT_BLOCKS, ShardIndex, VOLUME_BLOCKS_MAX, VolumeId, VolumeIndex};

/// Shelves, unless one would be smaller or larger than the format allows or than the default: one of 2 MiB is a small part of any real pool.
const SHELVES: u64 = 256;
/// Pages of the smallest and of the default shelf.
const SHELF_PAGES: std::ops::RangeInclusive<u64> = 16..=512;
/// Accesses in flight: enough that small writes share groups, few enough that their blocks fit into a small RAM tier.
const QUEUE_DEPTH: usize = 4;
/// Pages for requests in flight.
const CLIENT_PAGES: usize = QUEUE_DEPTH * EXTENT_BLOCKS as usize;

/// Size and rules of the engine.
#[derive(Clone, Debug)]
pub struct AloneConfig {
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// Pages for blocks: the ring lies beside them as far as it is longer than the share of a large pool's.
    pub ssd_pages: u64,
    /// Of all its volumes.
    pub options: VolumeOptions,
}

/// Pages of the ring at least. A small pool's may be shorter; but of that a start needs nearly all, and what is left would be full all the time.
const RING_PAGES_MIN: u32 = 128;

/// A ring that is longer than the share of a large pool's takes nothing from the slots.
fn with_slots(layout: Layout) -> Layout {
    let layout = layout.with_slots();
    let more = RING_PAGES_MIN.saturating_sub(layout.ring_pages).next_multiple_of(layout.pages_per_segment());
    let longer = Layout {
        ring_pages: layout.ring_pages + more,
        segments_per_shard: layout.segments_per_shard + more / layout.pages_per_segment(),
        ..layout
    };
    Layout { ssd_bytes: longer.end_bytes(), ..longer }
}

/// See the module.
pub struct Alone {
    shard: Shard,
    zero_page: Page,
    volumes: HashMap<u32, VolumeIndex>,
    options: VolumeOptions,
    now_ns: u64,
    next_id: u64,
    in_flight: usize,
    blocks_in_flight: HashSet<(VolumeIndex, u64)>,
}

impl Alone {
    /// Pages of the smallest cache that behaves as a large one does: with fewer shelves each counts too much.
    pub const SSD_PAGES_MIN: u64 = 32 * *SHELF_PAGES.start();

    /// An engine with an empty cache.
    #[must_use]
    pub fn new(config: AloneConfig) -> Alone {
        let segment_pages = (config.ssd_pages / SHELVES + 1).next_power_of_two() / 2;
        let segment_pages = segment_pages.clamp(*SHELF_PAGES.start(), *SHELF_PAGES.end());
        let segments_per_shard = (config.ssd_pages / segment_pages).max(u64::from(format::layout::SEGMENTS_PER_SHARD_MIN)) as u32;
        let layout = Layout {
            shards: 1,
            segment_bytes: (segment_pages * BLOCK_BYTES) as u32,
            segments_per_shard,
            ssd_bytes: 0,
            ring_pages: 0,
            arrangement: Arrangement::SideBySide,
        };
        let layout = Layout { ssd_bytes: layout.end_bytes(), ..layout };
        let layout = with_slots(layout);
        let pool = PagePool::new(PAGES_MIN + CLIENT_PAGES + 2 * config.ram_blocks as usize);
        let place = StorePlace { uuid: [1; 16], session: 1, shard: ShardIndex(0), layout, ring_first: 0 };
        let shard_config = ShardConfig { place, ram_blocks: config.ram_blocks, pool: pool.clone(), dirty_max_permille: DIRTY_MAX_PERMILLE };
        Alone {
            shard: Shard::new(shard_config, LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 }),
            zero_page: pool.allocate_zeroed().expect("an empty pool has pages").freeze(),
            volumes: HashMap::new(),
            options: config.options,
            now_ns: 0,
            next_id: 0,
            in_flight: 0,
            blocks_in_flight: HashSet::new(),
        }
    }

    /// The same, of which no read brings along what lies beside it ([`Shard::bring_nothing_along`]).
    #[must_use]
    pub fn with_nothing_along(mut self) -> Alone {
        self.shard.bring_nothing_along();
        self
    }

    /// Time goes on; it never goes back.
    pub fn advance_to(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Time goes on by so much.
    pub fn advance_by(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// An access to blocks of one extent of a volume, by any number of it. How many of them were not cached.
    ///
    /// # Panics
    /// If the blocks are not of one extent.
    pub fn access(&mut self, volume: u32, first: u64, blocks: u64, write: bool) -> u64 {
        self.send(volume, first, blocks, write, Origin::Client)
    }

    /// A read of a sequential stream, which may hit and inserts nothing. How many of the blocks were not cached.
    ///
    /// # Panics
    /// If the blocks are not of one extent.
    pub fn read_as_stream(&mut self, volume: u32, first: u64, blocks: u64) -> u64 {
        self.send(volume, first, blocks, false, Origin::Stream)
    }

    /// These blocks will not be used again soon ([`Command::Cold`]).
    pub fn cool(&mut self, volume: u32, blocks: Range<u64>) {
        self.settle();
        let volume = self.volume(volume);
        self.shard.command(self.now_ns, Command::Cold { volume, blocks });
        self.settle();
    }

    fn send(&mut self, volume: u32, first: u64, blocks: u64, write: bool, origin: Origin) -> u64 {
        assert!(blocks > 0 && first / EXTENT_BLOCKS == (first + blocks - 1) / EXTENT_BLOCKS, "blocks of one extent");
        let volume = self.volume(volume);
        let mut missing = 0;
        for block in first..first + blocks {
            let coming = !self.blocks_in_flight.insert((volume, block));
            missing += u64::from(!coming && !self.shard.holds(volume, block));
        }
        let pages: PageVec = if write { (0..blocks).map(|_| self.zero_page.clone()).collect() } else { PageVec::new() };
        let request = Request::new(
            self.next_id,
            volume,
            if write { Op::Write } else { Op::Read },
            first * BLOCK_SECTORS,
            (blocks * BLOCK_SECTORS) as u32,
            origin,
        )
        .pages(pages);
        self.next_id += 1;
        self.in_flight += 1;
        self.shard.submit(self.now_ns, request);
        if self.in_flight >= QUEUE_DEPTH {
            self.settle();
        }
        missing
    }

    /// Blocks written to the SSD so far, of all that was accessed.
    pub fn ssd_blocks_written(&mut self) -> u64 {
        self.settle();
        self.shard.stats().ssd_written_bytes / BLOCK_BYTES
    }

    /// What the engine counted.
    pub fn stats(&self) -> ShardStats {
        self.shard.stats()
    }

    /// Of them, those that hold blocks of clients; the others are the ring's.
    pub fn data_blocks_written(&mut self) -> u64 {
        self.settle();
        let stats = self.volumes.values().filter_map(|volume| self.shard.volume_stats(*volume));
        stats.map(|stats| stats.admitted_bytes + stats.reinserted_bytes).sum::<u64>() / BLOCK_BYTES
    }

    fn volume(&mut self, number: u32) -> VolumeIndex {
        if let Some(volume) = self.volumes.get(&number) {
            return *volume;
        }
        let volume = VolumeIndex(self.volumes.len() as u16);
        self.volumes.insert(number, volume);
        let id = VolumeId(u32::from(volume.0) + 1);
        let size_bytes = VOLUME_BLOCKS_MAX * BLOCK_BYTES;
        self.shard.command(self.now_ns, Command::Attach { volume, id, size_bytes, options: self.options.clone() });
        volume
    }

    /// Performs I/Os until every request is answered.
    fn settle(&mut self) {
        loop {
            self.drain();
            if self.in_flight == 0 {
                self.blocks_in_flight.clear();
                return;
            }
            let deadline = self.shard.next_deadline().expect("a request that waits without I/O waits for a time");
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
            ios.into_iter().for_each(|io| self.perform(io));
        }
    }

    fn perform(&mut self, io: Io) {
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
