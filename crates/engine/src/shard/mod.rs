//! The machine that owns a share of every volume of a pool: its index, its part of the store, its RAM.
//!
//! Feeding: [`Shard::submit`], [`Shard::complete`], [`Shard::command`], [`Shard::tick`]; after each, drain [`Shard::poll_action`]
//! until it gives `None`. Call `tick` at [`Shard::next_deadline`]. Several feeding calls may precede one draining: then small
//! writes share a group. Time never goes back.
//!
//! The path of a request: `submit` checks it, counts it and locks its blocks ([`crate::locks`]); then
//! * a read of one block that is cached takes a short way ([`quick`]), or
//! * a read ([`read`]) gathers each block from RAM, a group in flight, the SSD, or the backing device;
//! * a write takes one of two ways, chosen by [`route`]: into the store ([`write_store`]), or to the backing device with
//!   the cache kept coherent ([`write_backing`]);
//! * a discard or write-zeroes over many extents comes step by step ([`range`]), the same steps for all shards.
//!
//! Background work: [`evict`] decides what stays where room is wanted, [`destage`] brings dirty blocks home, [`flush`] makes things durable.
//!
//! Invariants (checked by [`Shard::check_invariants`]):
//! * A block's newest content is at one of: the index' slot (in a group in flight, or on the SSD), else the backing device. RAM holds copies.
//! * A block is dirty in the dirty set exactly if its index entry says so.
//! * Before the backing device is written under a clean cached block, an `Invalidate` record for it is durable; before such a
//!   write over a dirty block is acknowledged, its `Invalidate` record is complete (durable, if the client asked for that), and
//!   never before the backing device has the new data.
//! * A slot's index entry goes only by a newer record of its block, an `Invalidate` record, or when a durable group has given
//!   it up. So what recovery finds is never older than what was served.

mod along;
mod answer;
mod arrivals;
mod backing;
mod bad_copy;
mod bases;
mod blocks;
mod check;
mod commands;
mod destage;
mod edge_pages;
mod evict;
mod explain;
mod failure;
mod fetch;
mod flush;
mod known;
mod limits;
mod loss;
mod next_to_go;
mod notes;
mod op;
mod own_reads;
mod packing;
mod parts;
mod past;
mod pins;
mod proof;
mod quick;
mod range;
mod read;
mod restore;
mod route;
mod scrub;
mod singly;
mod stirred;
mod throttle;
mod tier;
mod volume;
mod volumes;
mod write_backing;
mod write_store;

use crate::api::{Action, Command, Completion, IoError, Op as OpKind, Origin, Outcome, RangeStep, Reply, Request, RequestError, Target};
use crate::index::{Index, Slot};
use crate::key::{Key, Map, Set};
use crate::locks::{Locks, OpId};
use crate::mutants;
use crate::neighbours::Neighbours;
use crate::numbered::Numbered;
use crate::outbox::Outbox;
use crate::packer::Packer;
use crate::policy::Policy;
use crate::presence::Presence;
use crate::ram::Ram;
use crate::region_heat::FADE_NS;
use crate::stats::{ShardStats, SlotGauges, VolumeStats};
use crate::store::{Slots, SlotsIo, StorePlace};
use crate::trail::Trail;
use alloc::collections::{BTreeMap, VecDeque};
use commands::Commands;
use destage::Destager;
use destage::dirty::DirtySet;
use evict::Evictor;
use format::checkpoint::LogEnd;
use known::Known;
use op::{Op, Ops, Phase};
use page::{Page, PagePool, PageVec};
use types::{BLOCK_BYTES, BLOCK_SECTORS, EXTENT_SECTORS, SsdIndex, VolumeIndex};
use volumes::Volumes;

pub use explain::{BlockFacts, DirtyExtent, EXPLAIN_BLOCKS_MAX, Explained, Form, Hits, Kept};
pub use loss::PATIENCE_NS as LOSS_PATIENCE_NS;
pub use proof::Proof;
pub use restore::{RecoveredBlock, Restored};
pub use scrub::{SCRUB_BAD_MAX, Scrubbed};

/// What a shard is made with.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Where its part of the SSD is.
    pub place: StorePlace,
    /// Blocks its RAM tier may hold.
    pub ram_blocks: u64,
    /// Where pages for reads, headers, destage and eviction come from. Client writes bring their own pages. When it is empty,
    /// work waits; it must hold at least the RAM tier plus [`PAGES_MIN`].
    pub pool: PagePool,
    /// Most that the dirty blocks of all volumes, and what they rest on, may take of the store's slots, in thousandths.
    pub dirty_max_permille: u32,
}

/// Pages a shard needs beside its RAM tier to make progress: an extent being read, a run being destaged, a batch being cleaned, headers. Each packed block
/// being read takes up to six: its stored bytes lie in one or two pages, those of its base too, and both are decoded into one.
pub const PAGES_MIN: usize = 6 * 256 + 64;

/// Dirty blocks may fill this much of the store, in thousandths, unless configured otherwise. More would leave eviction too little
/// to forget: at 600 it appends at most about six tenths of what it takes back.
pub const DIRTY_MAX_PERMILLE: u32 = 600;

/// What clients' requests make no more urgent is looked at once in this time while they come.
const TURN_EVERY_NS: u64 = 100_000;

/// With this many requests of one shard at the backing device, clients queue there. Then, and where blocks are packed and a shard has
/// some requests, writes that no flush is expected to follow share groups: a header page for each was half of what TPC-C wrote. A group
/// waits for others only while another one is under way, so a commit costs what the SSD costs, whatever else is going on.
const CLIENTS_QUEUE: u32 = 8;

/// Clean blocks on their way to the SSD wait for others this long: nobody waits for them.
const CLEAN_HOLD_NS: u64 = 100_000_000;

/// What the completion of an I/O means.
enum Context {
    Store(SlotsIo),
    QuickRead(quick::QuickRead),
    ReadSsd(read::SsdPart),
    ReadBacking(read::BackingPart),
    MergeSsd { op: OpId, edge: usize, found: write_store::MergeBase },
    MergeBacking { op: OpId, edge: usize, bytes: u64 },
    ClientWrite(OpId),
    RangeWrite { op: OpId, durable: bool },
    BackingFlush(VolumeIndex),
    EvictRead(crate::store::Batch),
    Fetch(parts::PartsRead),
    Scrub(scrub::ScrubRead),
    DestageRead(singly::DestagePart),
    DestageWrite(u32),
}

/// See the module.
pub struct Shard {
    config: ShardConfig,
    now_ns: u64,
    out: Outbox<Context>,
    index: Index,
    /// Valid sectors of index entries marked partial.
    partial: Map<Key, u8>,
    store: stirred::Stirred,
    locks: Locks,
    /// Where index and RAM have blocks.
    presence: Presence,
    ranges: range::Ranges,
    ram: Ram,
    policy: Policy,
    dirty: DirtySet,
    volumes: Volumes,
    /// Index entries by volume that recovery brought, until the volume is attached.
    restored: Map<u16, u64>,
    ops: Ops,
    /// In which form blocks are stored.
    packer: Packer,
    /// Packed blocks on their way from the SSD.
    fetches: Numbered<fetch::Fetch>,
    /// Of them, those that need nothing from it.
    fetched_without_io: VecDeque<u32>,
    /// What others need, and is not being read yet.
    awaited: parts::Awaited,
    bases: bases::BaseReads,
    /// Reads of often read blocks for which a base was read too.
    read_with_base: u32,
    /// Reads on their way that are not in `ops`.
    quick_reads: u32,
    ready: VecDeque<OpId>,
    edge_pages: edge_pages::EdgePages,
    /// When all that could proceed last did.
    turned_ns: u64,
    /// Writes into the store that wait for dirty blocks to go home or for free regions.
    throttle: throttle::Throttle,
    /// Requests that wait for pages.
    starved: VecDeque<OpId>,
    /// Destage or eviction could not go on for want of pages.
    short_of_pages: bool,
    loss: loss::Loss,
    /// `Invalidate` records nobody waited for: a backing write must not overtake them.
    unsettled: Map<Key, u64>,
    /// Dirty blocks that a backing write is about to replace: destage leaves them alone.
    shielded: Set<Key>,
    /// Blocks that came home when there was no room to note it, and their slots then.
    unnoted: BTreeMap<Key, Slot>,
    /// Blocks that became denser when they were moved.
    densified: packing::Densified,
    neighbours: Neighbours,
    scrub: scrub::Scrub,
    destager: Destager,
    evictor: Evictor,
    commands: Commands,
    zero_page: Page,
    quiescing: bool,
    trail: Trail,
    /// When the next volume's heat is to fade, and how many have.
    heat_fades_ns: u64,
    heat_fades: usize,
}

impl Shard {
    /// A shard with an empty store.
    pub fn new(config: ShardConfig, start: LogEnd) -> Shard {
        let blocks = Restored::new(config.place.slots(), config.place.region_pages());
        Shard::with_blocks(config, start, blocks)
    }

    /// A shard whose store continues where a checkpoint or recovery says, with the blocks that were found in it.
    pub fn with_blocks(config: ShardConfig, start: LogEnd, mut found: Restored) -> Shard {
        found.finish();
        let slots = config.place.slots();
        assert!(config.place.layout.has_slots(), "a log is read by its upgrade, and not written");
        assert_eq!(found.index.slots(), slots, "the blocks of a store of this size");
        assert_eq!(found.index.pages_per_region(), config.place.region_pages(), "the blocks of a store with such regions");
        let zero_page = config.pool.allocate_zeroed().expect("a pool has room for its shards' zero pages").freeze();
        let destager = Destager::of(&found.dirty);
        let store = Slots::new(config.place.clone(), start, &found.index);
        found.index.keep_parts();
        let mut seed = [0; 8];
        seed.copy_from_slice(&config.place.uuid[..8]);
        let policy = Policy::new(config.ram_blocks, store.capacity().usable_pages, u64::from_le_bytes(seed));
        // Without a RAM tier nothing can come along.
        let room_blocks = if policy.may_hold_along() { config.ram_blocks + u64::from(slots) } else { 0 };
        Shard {
            now_ns: 0,
            out: Outbox::within(config.place.ground()),
            index: found.index,
            partial: found.partial,
            locks: Locks::default(),
            presence: found.presence.finish(),
            ranges: range::Ranges::default(),
            ram: Ram::default(),
            policy,
            dirty: found.dirty,
            volumes: Volumes::default(),
            restored: found.blocks,
            ops: Ops::default(),
            packer: Packer::new(if mutants::active(mutants::OBJECT_NUMBERS_RESTART) { 1 } else { found.next_object }),
            fetches: Numbered::default(),
            fetched_without_io: VecDeque::new(),
            awaited: parts::Awaited::default(),
            bases: bases::BaseReads::default(),
            read_with_base: 0,
            quick_reads: 0,
            ready: VecDeque::new(),
            edge_pages: edge_pages::EdgePages::default(),
            turned_ns: 0,
            throttle: throttle::Throttle::default(),
            starved: VecDeque::new(),
            short_of_pages: false,
            loss: loss::Loss::default(),
            unsettled: Map::default(),
            shielded: Set::default(),
            unnoted: BTreeMap::new(),
            densified: packing::Densified::default(),
            neighbours: Neighbours::new(room_blocks),
            scrub: scrub::Scrub::default(),
            destager,
            evictor: Evictor::default(),
            commands: Commands::default(),
            zero_page,
            quiescing: false,
            trail: Trail::default(),
            heat_fades_ns: 0,
            heat_fades: 0,
            store: stirred::Stirred::new(store),
            config,
        }
    }

    /// Takes in a client's request. Its reply comes by `poll_action`, possibly at once.
    pub fn submit(&mut self, now_ns: u64, request: Request) {
        self.advance_time(now_ns);
        if let Err(error) = self.refuse(&request) {
            self.out.reply(Reply { id: request.id, result: Err(error), pages: PageVec::new(), outcome: Outcome::Other, range: None });
            return;
        }
        self.count(&request);
        if let Some(step) = request.range {
            self.begin_range_step(request, step);
        } else if request.op == OpKind::Flush {
            self.begin_flush(request);
        } else if request.op == OpKind::Read && (self.read_from_ram(&request) || self.read_quickly(&request)) {
            // Nothing became possible that was not, except by the time that has passed.
            if now_ns < self.turned_ns + TURN_EVERY_NS {
                return;
            }
        } else {
            let id = self.ops.add(Op::new(request));
            if self.lock(id) {
                self.ready.push_back(id);
            }
            return self.turn_if_due();
        }
        self.turn();
    }

    fn refuse(&self, request: &Request) -> Result<(), RequestError> {
        if request.range.is_some_and(|step| step != RangeStep::Hold) {
            // What has begun is ended.
            return Ok(());
        }
        if self.quiescing {
            return Err(RequestError::Shutdown);
        }
        let volume = self.volumes.get(request.volume).ok_or(RequestError::Invalid)?;
        if !volume.state.is_serving() {
            return Err(RequestError::Shutdown);
        }
        if request.op == OpKind::Flush {
            return Ok(());
        }
        if request.op != OpKind::Read && volume.options.read_only {
            return Err(RequestError::ReadOnly);
        }
        if request.range.is_some() {
            return Shard::refuse_range(request, volume.sectors());
        }
        let end = request.start_sector.checked_add(u64::from(request.sectors)).ok_or(RequestError::Invalid)?;
        let one_extent = request.start_sector / EXTENT_SECTORS == (end - 1) / EXTENT_SECTORS;
        let blocks = (end.div_ceil(BLOCK_SECTORS) - request.start_sector / BLOCK_SECTORS) as usize;
        let pages_fit = if request.op == OpKind::Write { request.pages.len() == blocks } else { request.pages.is_empty() };
        if request.sectors == 0 || end > volume.sectors() || !one_extent || !pages_fit {
            return Err(RequestError::Invalid);
        }
        Ok(())
    }

    fn count(&mut self, request: &Request) {
        if request.range.is_some_and(|step| step != RangeStep::Hold || !self.is_home_of_ranges(request.volume)) {
            // Counted once.
            return;
        }
        let volume = self.volumes.get_mut(request.volume).expect("checked by refuse");
        let bytes = u64::from(request.sectors) * types::SECTOR_BYTES;
        match request.op {
            OpKind::Read => {
                volume.stats.reads += 1;
                volume.stats.read_bytes += bytes;
                if request.origin != Origin::Look {
                    volume.heat.note(request.start_sector);
                }
            }
            OpKind::Flush => volume.stats.flushes += 1,
            OpKind::Write | OpKind::WriteZeroes | OpKind::Discard | OpKind::PunchHole => {
                volume.stats.writes += 1;
                volume.stats.write_bytes += bytes;
                volume.heat.note(request.start_sector);
            }
        }
        if let Some(reason) = request.bypass.filter(|_| !request.origin.is_own()) {
            volume.stats.turn_away(reason);
        }
    }

    /// An I/O handed out has been performed, or failed.
    pub fn complete(&mut self, now_ns: u64, completion: Completion) {
        self.advance_time(now_ns);
        let Completion { id, result, pages } = completion;
        let (context, target) = self.out.completed(id, result.is_ok().then_some(pages.len()));
        match context {
            Context::Store(io) => self.store_completed(target, io, result),
            Context::QuickRead(read) => {
                self.quick_read_done(read, result, pages);
                return self.turn_if_due();
            }
            Context::ReadSsd(part) => self.ssd_read(part, result, pages),
            Context::ReadBacking(part) => self.backing_read(part, result, pages),
            Context::MergeSsd { op, edge, found } => self.merge_ssd_read(op, edge, found, result, pages),
            Context::MergeBacking { op, edge, bytes } => self.merge_backing_read(op, edge, bytes, result, pages),
            Context::ClientWrite(op) => self.client_write_done(op, result),
            Context::RangeWrite { op, durable } => self.range_written(op, durable, result),
            Context::BackingFlush(volume) => self.backing_flushed(volume, result.is_ok()),
            Context::EvictRead(batch) => self.batch_read(batch, result, pages),
            Context::Fetch(read) => self.parts_read(read, result, pages),
            Context::Scrub(read) => self.scrub_read(read, result, pages),
            Context::DestageRead(part) => self.destage_read(part, result, pages),
            Context::DestageWrite(run) => self.destage_written(run, result),
        }
        self.wake_starved();
        self.turn();
    }

    /// Something an administrator or the host asks; see [`Command`].
    pub fn command(&mut self, now_ns: u64, command: Command) {
        self.advance_time(now_ns);
        self.begin_command(command);
        self.turn();
    }

    /// Tells the shard whether its host's processors have little time beside what clients ask for: then an idle backing device alone is no reason to bring
    /// blocks home, since clients would wait for that work. Age, limits, and whoever waits are reasons all the same. A hint; to be followed by a tick.
    pub fn set_host_busy(&mut self, is_busy: bool) {
        self.destager.set_host_busy(is_busy);
    }

    /// Time passes. To be called at [`Shard::next_deadline`]; harmless at any other time.
    pub fn tick(&mut self, now_ns: u64) {
        self.advance_time(now_ns);
        self.wake_starved();
        self.give_up_waiting();
        self.turn();
    }

    /// When `tick` should be called if nothing else happens before; `None` if never.
    pub fn next_deadline(&self) -> Option<u64> {
        let short = self.short_of_pages || self.store.is_short_of_pages();
        let waits = !self.starved.is_empty() || short || self.commands.are_sweeping(&self.index);
        let starved = waits.then_some(self.now_ns + 1_000_000);
        let throttle = self.throttle.deadline();
        let own = [self.store.deadline(), self.destage_deadline(), self.ranges.deadline(), self.loss.deadline()];
        [self.scrub.deadline(), starved, throttle].into_iter().chain(own).flatten().min()
    }

    /// The next thing to do outside, or `None` when drained.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.out.is_drained() {
            if !self.awaited.is_empty() {
                self.read_awaited();
            }
            if let Some(store) = self.store.stirred() {
                let facts = Known { index: &self.index, partial: &self.partial, volumes: &self.volumes };
                store.pump(self.now_ns, &self.config.pool, &facts, &mut self.out, Context::Store);
                self.store.is_pumped();
            }
        }
        self.out.poll()
    }

    fn advance_time(&mut self, now_ns: u64) {
        assert!(now_ns >= self.now_ns, "time went back");
        self.now_ns = now_ns;
    }

    /// Ends a feeding call after which nothing is possible that was not before, but for requests that are ready: the rest of a turn is for what
    /// time brings, and for whoever waits.
    fn turn_if_due(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            self.advance(id);
        }
        let waits = !self.throttle.is_empty()
            || !self.starved.is_empty()
            || !self.fetched_without_io.is_empty()
            || self.destager.is_wanted()
            || self.commands.are_under_way()
            || self.short_of_pages
            || self.quiescing
            || self.loss.is_ssd_failed();
        if waits || self.now_ns >= self.turned_ns + TURN_EVERY_NS {
            self.turn();
        }
    }

    /// Ends the other feeding calls: everything that can proceed does.
    fn turn(&mut self) {
        self.short_of_pages = false;
        self.begin_slice();
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.advance(id);
            }
            if !self.fetched_without_io.is_empty() {
                self.end_fetches_without_io();
            }
            self.evict();
            self.destage();
            self.admit_throttled();
            self.check_commands();
            if self.ready.is_empty() && self.fetched_without_io.is_empty() {
                break;
            }
        }
        self.turned_ns = self.now_ns;
        if self.now_ns >= self.heat_fades_ns {
            self.fade_heat();
        }
        self.settle_packed();
        let next_to_go = self.store.end_turn(self.now_ns);
        if !next_to_go.is_empty() {
            self.age_before_they_go(&next_to_go);
        }
        if self.loss.is_ssd_failed() && !self.is_quiesced() {
            self.check_loss();
        }
    }

    /// One step of a request whose wait is over. Apart from the turn, which is taken by every hit, and would keep places on its stack for all of this.
    #[inline(never)]
    fn advance(&mut self, id: OpId) {
        match self.ops.get(id).phase {
            Phase::Start if self.ops.get(id).request.range.is_some() => self.hold_range(id),
            Phase::Start => match self.ops.get(id).request.op {
                OpKind::Read => self.begin_read(id),
                OpKind::Write | OpKind::WriteZeroes | OpKind::Discard | OpKind::PunchHole => self.begin_write(id),
                OpKind::Flush => unreachable!("a flush has no start phase"),
            },
            Phase::Reading => self.finish_read(id),
            Phase::StoreRoom | Phase::Merging => self.advance_store_write(id),
            Phase::Stored => self.finish_store_write(id),
            Phase::Draining => self.drain_for_backing_write(id),
            Phase::Invalidated => self.issue_backing_write(id),
            Phase::BackingWritten => self.settle_backing_write(id),
            Phase::Settled => self.finish_backing_write(id),
            Phase::Flushing => self.advance_flush(id),
            Phase::RangeVoid => self.range_is_void(id),
            Phase::RangeHeld => unreachable!("the front wakes it"),
            Phase::RangeReleasing => self.release_range(id),
            Phase::RangeSettled => self.finish_range(id),
        }
    }

    /// The heat of one volume fades: of each in its turn, so that nobody waits for all of them.
    #[inline(never)]
    fn fade_heat(&mut self) {
        let volumes = self.volumes.attached().len().max(1);
        self.heat_fades_ns = self.now_ns + FADE_NS / volumes as u64;
        self.heat_fades += 1;
        let Some(index) = self.volumes.attached().get(self.heat_fades % volumes).copied() else { return };
        let volume = self.volumes.get_mut(index).expect("attached");
        volume.heat.fade(self.now_ns, volume.stats.reads + volume.stats.writes);
    }

    fn store_completed(&mut self, target: Target, io: SlotsIo, result: Result<(), IoError>) {
        let progress = self.store.completed(io, result.is_ok());
        self.ready.extend(progress.ready);
        if progress.failed {
            let Target::Ssd(ssd) = target else { unreachable!("the store is on SSDs") };
            self.ssd_failed(ssd, result.err().unwrap_or(IoError::Failed));
        }
        if progress.flushed || progress.failed {
            self.destage_store_moved();
        }
        if !progress.gone.is_empty() {
            self.forget_gone(progress.gone);
        }
        if progress.flushed && !self.unsettled.is_empty() {
            let durable = self.store.commits().durable();
            self.unsettled.retain(|_, group| *group > durable);
        }
    }

    /// The counters of a volume, gauges filled in.
    pub fn volume_stats(&self, index: VolumeIndex) -> Option<VolumeStats> {
        let volume = self.volumes.get(index)?;
        Some(VolumeStats {
            dirty_bytes: self.dirty.blocks_of(index) * BLOCK_BYTES,
            cached_bytes: volume.cached_blocks * BLOCK_BYTES,
            ram_bytes: volume.ram_blocks * BLOCK_BYTES,
            ..volume.stats
        })
    }

    /// For how long the oldest dirty block of a volume has been dirty, in nanoseconds (known for 1 MiB extents): since the volume was
    /// attached at least, if a recovery brought it. `None` if nothing is dirty, or all of it is called home for the room it takes in the store.
    pub fn oldest_dirty_ns(&self, index: VolumeIndex) -> Option<u64> {
        let since_ns = self.dirty.oldest_of_known_age(index)?;
        Some(self.now_ns.saturating_sub(since_ns.max(self.volumes.get(index)?.attached_ns)))
    }

    /// Counters and gauges of the shard.
    pub fn stats(&self) -> ShardStats {
        let gauges = self.store.gauges();
        ShardStats {
            ssd_written_bytes: gauges.written_bytes,
            cached_blocks: u64::from(self.index.live_blocks()),
            dirty_blocks: self.dirty.blocks(),
            slots: u64::from(self.index.slots()),
            ram_blocks: self.ram.len(),
            index_bytes: self.index.memory_bytes() + self.presence.memory_bytes(),
            policy_bytes: self.policy.memory_bytes() + self.neighbours.memory_bytes(),
            retention: Some(self.policy.choice()),
            in_slots: Some(SlotGauges { packed_bytes: self.packed_bytes(), ..gauges.slots }),
            newest_region: gauges.newest_region,
            oldest_region: gauges.oldest_region,
            free_regions: gauges.free_regions,
            requests: self.requests() as u64,
        }
    }

    /// The I/Os handed out and not yet completed.
    pub fn io_in_flight(&self) -> usize {
        self.out.in_flight()
    }

    /// The SSD that failed under this shard. Then its index names blocks that never reached the store: no sweep may be made of it.
    pub fn lost_ssd(&self) -> Option<SsdIndex> {
        self.loss.failed_ssd()
    }

    /// Everything cached on the SSD. Only when quiesced.
    pub fn cached_blocks(&self) -> impl Iterator<Item = RecoveredBlock> + '_ {
        self.index.every_slot().filter_map(move |slot| {
            let key = self.index.key_of(slot)?;
            let meta = self.index.meta(slot);
            let mask = if meta.partial { self.partial[&key] } else { u8::MAX };
            let (volume, block) = (key.volume(), key.block());
            let stored = slot.is_packed().then(|| self.index.stored(slot));
            Some(RecoveredBlock { volume, block, slot, dirty: meta.dirty, mask, checksum: meta.checksum, stored })
        })
    }

    /// What is in each slot and place of the SSD, in that order: for the sweep of a clean stop. Only when quiesced.
    pub fn sweep(&self) -> impl Iterator<Item = format::slots::Set> + '_ {
        let facts = Known { index: &self.index, partial: &self.partial, volumes: &self.volumes };
        facts.sweep(0..self.config.place.slots())
    }

    /// Where the store would continue, if all that it has written is durable and nothing is under way.
    pub fn end_at_rest(&self) -> Option<LogEnd> {
        let commits = self.store.commits();
        let is_durable = commits.durable() == commits.last() && !commits.is_failed();
        (is_durable && self.store.is_idle() && self.out.in_flight() == 0).then(|| self.store.end())
    }

    /// Where the store would continue. Only when quiesced.
    pub fn log_end(&self) -> LogEnd {
        self.store.end()
    }

    /// The last group with acknowledged writes that may not survive a power cut of the SSD; `None`
    /// if all do.
    pub fn last_unflushed_group(&self) -> Option<u64> {
        (self.store.commits().complete() > self.store.commits().durable()).then(|| self.store.commits().complete())
    }

    /// The SSD has streams for kinds of writes: from now on each write is of one kind. Otherwise neighbours are written at once, whatever they
    /// are, which takes a few percent fewer writes.
    pub fn keep_writes_apart(&mut self) {
        self.store.keep_apart();
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &ShardConfig {
        &self.config
    }

    /// The volume's place, number in the store, and whether it has dirty blocks here.
    pub fn attached(&self) -> impl Iterator<Item = (VolumeIndex, types::VolumeId, u64)> + '_ {
        self.volumes.attached().iter().filter_map(|index| Some((*index, self.volumes.get(*index)?.id, self.dirty.blocks_of(*index))))
    }
}
