//! The engine as a daemon runs it, without the daemon: fronts, shards, superblock, recovery and checkpoint, put together in the
//! order the runtime does it. Everything that decides anything is the engine's own code.

use std::collections::{BTreeMap, VecDeque};

use engine::api::{Action, Command, Completion, Event, Request};
use engine::checkpoint;
use engine::front::{Front, FrontAction, JOINED_BLOCKS_MAX};
use engine::index::{Index, Slot, Stored};
use engine::log::LogPlace;
use engine::packer::ContentOptions;
use engine::recovery::{self, RecoveredItem, RecoveredRecord};
use engine::shard::{DIRTY_MAX_PERMILLE, PAGES_MIN, RecoveredBlock, Restored, Shard, ShardConfig};
use engine::superblock::{self, OpenError, PoolState};
use format::checkpoint::{CheckpointEntry, LogEnd};
use format::superblock::BACKING_IDENTITY_BYTES_MAX;
use format::{Layout, VolumeRecord};
use page::PagePool;
use types::{Content, Mode, ShardIndex, VolumeId, VolumeIndex};

use crate::disk::blocking::Blocking;
use crate::looking::{self, Answers};
use crate::plan::{ContentSetting, ENCODING_NS, Level, Plan};
use crate::system::{Builder, Cargo, Change, Facts, HostRecord, Output, Parcel, Refusal, Started, System};

/// Builds lives of the engine.
pub struct Engine;

fn refusal(error: OpenError) -> Refusal {
    let io = matches!(error, OpenError::Medium(_) | OpenError::FlushFailed);
    Refusal { reason: error.to_string(), io }
}

/// The layout of a plan's pool.
pub fn layout(plan: &Plan) -> Layout {
    let segment_bytes = u32::try_from(plan.segment_bytes).expect("a plan's segments are small");
    Layout::plan(plan.ssd_bytes, plan.shards, segment_bytes).expect("a plan's pool fits its SSD")
}

fn name_of(volume: usize) -> String {
    format!("volume{volume}")
}

/// Has the next store of the superblock change each of its sectors, as a pool of many busy volumes may: one that is torn between two
/// states then never is a whole one.
fn stamp(pool: &mut PoolState) {
    let state = pool.superblock.generation.to_le_bytes();
    for volume in &mut pool.superblock.volumes {
        volume.backing_identity = state.repeat(BACKING_IDENTITY_BYTES_MAX / state.len());
    }
}

impl Builder for Engine {
    fn format(&self, plan: &Plan, host: &HostRecord, ssd: &mut Blocking) -> Result<(), Refusal> {
        let mut pool = superblock::create(ssd, layout(plan), host.pool_uuid).map_err(refusal)?;
        for (index, volume) in plan.volumes.iter().enumerate() {
            let id = pool.superblock.next_volume_id;
            pool.superblock.next_volume_id = VolumeId(id.0 + 1);
            pool.superblock.volumes.push(VolumeRecord {
                id,
                uuid: [index as u8 + 1; 16],
                name: name_of(index),
                size_bytes: volume.first_sectors * 512,
                mode: volume.options.mode,
                may_have_dirty: false,
                damaged: false,
                backing_identity: Vec::new(),
            });
        }
        stamp(&mut pool);
        pool.store(ssd).map_err(refusal)
    }

    fn start(&self, plan: &Plan, host: &HostRecord, now_ns: u64, ssd: &mut Blocking, pages: &PagePool) -> Result<Started, Refusal> {
        let mut pool = superblock::load(ssd).map_err(refusal)?;
        if pool.superblock.uuid != host.pool_uuid {
            return Err(Refusal { reason: "the SSD belongs to another pool".to_string(), io: false });
        }
        if pool.superblock.session < host.session {
            return Err(Refusal { reason: "it is an old copy of the pool".to_string(), io: false });
        }
        if pool.superblock.volumes.len() != plan.volumes.len() {
            return Err(Refusal { reason: "the pool does not know all volumes".to_string(), io: false });
        }
        let next = VolumeId(plan.volumes.len() as u32 + 1 + host.retired);
        pool.superblock.next_volume_id = pool.superblock.next_volume_id.max(next);
        for (volume, number) in &host.renumbered {
            let name = name_of(usize::from(*volume));
            let record = pool.superblock.volumes.iter_mut().find(|record| record.name == name).expect("every volume has a record");
            record.id = record.id.max(VolumeId(*number));
        }
        let found = gather(ssd, &mut pool, plan.index_slots)?;
        let ends: Vec<LogEnd> = found.iter().map(|shard| shard.end).collect();
        let damaged: Vec<VolumeId> = found.iter().flat_map(|shard| shard.damaged.iter().copied()).collect();
        stamp(&mut pool);
        pool.begin_session(ssd, &ends, &damaged).map_err(refusal)?;
        let mut shards = Vec::new();
        for (index, shard) in found.into_iter().enumerate() {
            let config = ShardConfig {
                place: LogPlace {
                    uuid: pool.superblock.uuid,
                    session: pool.superblock.session,
                    shard: ShardIndex(index as u16),
                    layout: pool.superblock.layout,
                },
                ram_blocks: plan.ram_bytes / 4096 / u64::from(plan.shards),
                pool: pages.clone(),
                dirty_max_permille: DIRTY_MAX_PERMILLE,
            };
            shards.push(Shard::with_blocks(config, shard.end, shard.blocks));
        }
        // As the superblock says, not as this start found: the one before may have died right after it had written that down.
        let damaged: Vec<VolumeId> = pool.superblock.volumes.iter().filter(|volume| volume.damaged).map(|volume| volume.id).collect();
        let damaged = plan_volumes(&pool, &damaged);
        let session = pool.superblock.session;
        let fronts = (0..plan.fronts).map(|_| Front::new(plan.shards)).collect();
        let daemon = Daemon {
            pool,
            shards,
            fronts,
            outputs: VecDeque::new(),
            waiting: BTreeMap::new(),
            answers: Answers::default(),
            now_ns,
            threads: plan.message_ns > 0,
            keeps_dirty: !plan.ssd_faults.harmful() && plan.rot_ns == 0 && !plan.ssd_leaves,
            crashes: plan.crashes > 0,
        };
        Ok(Started { system: Box::new(daemon), damaged, session })
    }

    fn uses_ssd(&self) -> bool {
        true
    }
}

fn volume_index(pool: &PoolState, id: VolumeId) -> Option<u16> {
    let record = pool.superblock.volumes.iter().find(|volume| volume.id == id)?;
    record.name.strip_prefix("volume")?.parse().ok()
}

fn plan_volumes(pool: &PoolState, ids: &[VolumeId]) -> Vec<u16> {
    ids.iter().filter_map(|id| volume_index(pool, *id)).collect()
}

struct FoundShard {
    end: LogEnd,
    blocks: Restored,
    damaged: Vec<VolumeId>,
}

/// What each shard's part of the SSD holds: from the checkpoint if there is a valid one, else from the log.
fn gather(ssd: &mut Blocking, pool: &mut PoolState, index_slots: u32) -> Result<Vec<FoundShard>, Refusal> {
    let saved = checkpoint::open(ssd, pool).map_err(refusal)?;
    pool.check_logs().map_err(refusal)?;
    let layout = pool.superblock.layout;
    let nothing = || -> Result<Restored, Refusal> {
        let index = Index::naming(layout.slots_per_shard(), layout.pages_per_segment(), index_slots);
        index.map(Restored::with_index).map_err(|error| refusal(error.into()))
    };
    let mut found = Vec::new();
    for shard in (0..pool.superblock.layout.shards).map(ShardIndex) {
        if let Some(saved) = &saved {
            let mut blocks = nothing()?;
            let mut sink = |slot: u32, entry: CheckpointEntry| {
                let id = saved.volumes()[usize::from(entry.volume)];
                let block = volume_index(pool, id).map(|volume| RecoveredBlock {
                    volume: VolumeIndex(volume),
                    block: entry.block,
                    slot: Slot(slot),
                    dirty: entry.dirty,
                    mask: entry.mask,
                    checksum: entry.checksum,
                    stored: None,
                });
                block.into_iter().for_each(|block| blocks.add(block));
            };
            let whole = saved.load_shard(ssd, pool, shard, &mut sink).map_err(refusal)?;
            if whole {
                found.push(FoundShard { end: saved.log_ends()[usize::from(shard.0)], blocks, damaged: Vec::new() });
                continue;
            }
        }
        let mut blocks = nothing()?;
        let places = pool.clone();
        let mut sink = |item: RecoveredItem| {
            let slot = blocks.slot_of(layout.physical(item.segment_seq()), item.ordinal());
            match item {
                RecoveredItem::Block(RecoveredRecord { volume, block, dirty, mask, checksum, stored, .. }) => {
                    if let Some(volume) = volume_index(&places, volume).map(VolumeIndex) {
                        let stored = stored.map(Stored::from);
                        blocks.add(RecoveredBlock { volume, block, slot, dirty, mask, checksum, stored });
                    }
                }
                RecoveredItem::Base(base) => blocks.add_base(slot, base.checksum, base.stored.into()),
            }
        };
        let recovered = recovery::recover(ssd, pool, shard, false, &mut sink).map_err(refusal)?;
        blocks.objects_end_before(recovered.next_object);
        found.push(FoundShard { end: recovered.end, blocks, damaged: recovered.report.damaged_volumes });
    }
    Ok(found)
}

fn content_options(setting: &ContentSetting) -> ContentOptions {
    ContentOptions {
        level: match setting.level {
            Level::Off => Content::Off,
            Level::Fast => Content::Fast,
            Level::Dense => Content::Dense,
            Level::Auto => Content::Auto,
        },
        seed: setting.secret,
        hint_bytes: setting.hint_bytes,
        base_pages: setting.base_pages,
        cpu_ns_per_second: setting.cpu_ns_per_second.unwrap_or(u64::MAX),
        key_bits: setting.key_bits,
    }
}

/// Commands that every shard answers, being waited for.
struct Waiting {
    shards_left: usize,
    result: Result<(), String>,
    /// It is a check of a segment.
    checks: bool,
}

struct Daemon {
    pool: PoolState,
    shards: Vec<Shard>,
    fronts: Vec<Front>,
    outputs: VecDeque<Output>,
    waiting: BTreeMap<u64, Waiting>,
    answers: Answers,
    now_ns: u64,
    /// Shards live on other threads than fronts: what they tell each other takes time.
    threads: bool,
    /// Nothing can happen to dirty blocks on the SSD.
    keeps_dirty: bool,
    /// A crash may tear clean blocks, which is found when they are read.
    crashes: bool,
}

/// The front's number travels in the top bits of a part's id.
const FRONT_SHIFT: u32 = 60;

impl Daemon {
    fn pump(&mut self) {
        loop {
            let mut idle = true;
            for front in 0..self.fronts.len() {
                while let Some(action) = self.fronts[front].poll() {
                    idle = false;
                    self.front_wants(front as u16, action);
                }
            }
            for shard in 0..self.shards.len() {
                let looks = self.shards[shard].untimed_looks();
                if looks > 0 {
                    self.shards[shard].encoding_took(u64::from(looks) * ENCODING_NS);
                }
                while let Some(action) = self.shards[shard].poll_action() {
                    idle = false;
                    self.shard_wants(shard as u16, action);
                }
                self.answers.check(shard as u16, &self.shards[shard]);
            }
            if idle {
                return;
            }
        }
    }

    fn front_wants(&mut self, front: u16, action: FrontAction) {
        match action {
            FrontAction::Reply(reply) => self.outputs.push_back(Output::Reply(reply)),
            FrontAction::ToShard(shard, mut request) => {
                request.id |= u64::from(front) << FRONT_SHIFT;
                let cargo = Cargo::ToShard(shard.0, request);
                self.send(u32::from(front) << 16 | u32::from(shard.0), cargo);
            }
        }
    }

    fn shard_wants(&mut self, shard: u16, action: Action) {
        match action {
            Action::Io(io) => self.outputs.push_back(Output::Io(shard, io)),
            Action::Reply(mut reply) => {
                self.answers.answered(shard, &reply);
                let front = (reply.id >> FRONT_SHIFT) as u16;
                reply.id &= (1 << FRONT_SHIFT) - 1;
                self.send(1 << 31 | u32::from(front) << 16 | u32::from(shard), Cargo::ToFront(front, shard, reply));
            }
            Action::Event(Event::CommandDone(token, result)) => self.shard_done(token, result),
            Action::Event(event) => self.outputs.push_back(Output::Event(shard, event)),
        }
    }

    fn send(&mut self, channel: u32, cargo: Cargo) {
        if self.threads {
            self.outputs.push_back(Output::Parcel(Parcel { channel, cargo }));
        } else {
            self.unpack(cargo);
        }
    }

    fn unpack(&mut self, cargo: Cargo) {
        match cargo {
            Cargo::ToShard(shard, request) => {
                self.answers.asked(shard, &request);
                self.shards[usize::from(shard)].submit(self.now_ns, request);
            }
            Cargo::ToFront(front, shard, reply) => self.fronts[usize::from(front)].shard_reply(ShardIndex(shard), reply),
        }
    }

    fn shard_done(&mut self, token: u64, result: Result<(), String>) {
        let waiting = self.waiting.get_mut(&token).expect("a command that was given");
        waiting.shards_left -= 1;
        if waiting.result.is_ok() {
            waiting.result = result;
        }
        if waiting.shards_left == 0 {
            let waiting = self.waiting.remove(&token).expect("looked above");
            if waiting.checks {
                self.judge_check();
            }
            self.outputs.push_back(Output::Done(token, waiting.result));
        }
    }

    /// A check finds nothing bad where nothing can be.
    fn judge_check(&self) {
        for found in self.shards.iter().filter(|_| self.keeps_dirty).map(Shard::scrubbed) {
            assert!(found.dirty_bad == 0, "dirty blocks {:?} are called bad on a good SSD", found.dirty_bad_at);
            assert!(found.clean_bad == 0 || self.crashes, "{} clean blocks are called bad on a good SSD", found.clean_bad);
        }
    }

    fn record_mut(&mut self, volume: u16) -> &mut VolumeRecord {
        let name = name_of(usize::from(volume));
        self.pool.superblock.volumes.iter_mut().find(|record| record.name == name).expect("every volume has a record")
    }
}

impl System for Daemon {
    fn submit(&mut self, now_ns: u64, connection: u16, request: Request) {
        self.now_ns = now_ns;
        let front = usize::from(connection) % self.fronts.len();
        self.fronts[front].submit(request);
        self.pump();
    }

    fn complete(&mut self, now_ns: u64, lane: u16, completion: Completion) {
        self.now_ns = now_ns;
        self.shards[usize::from(lane)].complete(now_ns, completion);
        self.pump();
    }

    fn deliver(&mut self, now_ns: u64, cargo: Cargo) {
        self.now_ns = now_ns;
        self.unpack(cargo);
        self.pump();
    }

    fn command(&mut self, now_ns: u64, command: Command) {
        self.now_ns = now_ns;
        let token = match &command {
            Command::SetOptions { token, .. }
            | Command::Destage { token, .. }
            | Command::Detach { token, .. }
            | Command::Release { token, .. }
            | Command::DropClean { token, .. }
            | Command::Check { token, .. }
            | Command::VoidPast { token, .. }
            | Command::Quiesce { token } => Some(*token),
            Command::Attach { .. }
            | Command::Hold { .. }
            | Command::Grow { .. }
            | Command::Cancel { .. }
            | Command::SsdFailed
            | Command::DegradedRecorded
            | Command::GoingHome
            | Command::SsdForgotten { .. }
            | Command::PastRecorded { .. }
            | Command::BackingFailed { .. }
            | Command::SetPolicies { .. }
            | Command::Cold { .. } => None,
        };
        if let Some(token) = token {
            let checks = matches!(command, Command::Check { .. });
            self.waiting.insert(token, Waiting { shards_left: self.shards.len(), result: Ok(()), checks });
        }
        for front in &mut self.fronts {
            match &command {
                Command::Attach { volume, id, options, .. } => front.set_volume(*volume, *id, options.clone()),
                Command::Detach { volume, .. } | Command::Release { volume, .. } => front.remove_volume(*volume),
                Command::SetOptions { volume, options, .. } => {
                    let name = name_of(usize::from(volume.0));
                    let record = self.pool.superblock.volumes.iter().find(|record| record.name == name);
                    front.set_volume(*volume, record.expect("every volume has a record").id, options.clone());
                }
                Command::SetPolicies { volume, map } => front.set_policies(*volume, map.clone()),
                _ => {}
            }
        }
        for shard in &mut self.shards {
            shard.command(now_ns, command.clone());
        }
        self.pump();
    }

    fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for shard in &mut self.shards {
            shard.tick(now_ns);
        }
        self.pump();
    }

    fn next_deadline(&self) -> Option<u64> {
        self.shards.iter().filter_map(Shard::next_deadline).min()
    }

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn check_invariants(&self) {
        self.fronts.iter().for_each(Front::check_invariants);
        for shard in &self.shards {
            shard.check_invariants();
        }
    }

    fn check_looking(&self, now_ns: u64, volume: u16, first_block: u64, blocks: u64, steps: u32) {
        looking::check(&self.shards, now_ns, VolumeIndex(volume), first_block, blocks, steps);
    }

    fn describe(&self) -> String {
        self.shards.iter().enumerate().map(|(at, shard)| format!("shard {at}: {}", shard.describe())).collect()
    }

    fn dirty_blocks(&self, volume: u16) -> Vec<u64> {
        let of_shard = |shard: &Shard| shard.attached().find(|(index, ..)| index.0 == volume).map_or(0, |(.., dirty)| dirty);
        self.shards.iter().map(of_shard).collect()
    }

    fn dirty_pages(&self) -> Vec<(u64, u64)> {
        self.shards.iter().map(|shard| (shard.dirty_pages(), shard.dirty_pages_max())).collect()
    }

    fn dirty_list(&self, volume: u16) -> Vec<u64> {
        let wanted = |block: &RecoveredBlock| block.dirty && block.volume.0 == volume;
        self.shards.iter().flat_map(Shard::cached_blocks).filter(wanted).map(|block| block.block).collect()
    }

    fn facts(&self) -> Facts {
        Facts { dirty_bytes: self.shards.iter().map(|shard| shard.stats().dirty_blocks * 4096).sum() }
    }

    fn set_content(&mut self, setting: &ContentSetting) {
        let options = content_options(setting);
        for shard in &mut self.shards {
            shard.set_content(options);
        }
    }

    fn set_host_busy(&mut self, is_busy: bool) {
        for shard in &mut self.shards {
            shard.set_host_busy(is_busy);
        }
    }

    fn forget_hints(&mut self) {
        for shard in &mut self.shards {
            shard.forget_hints();
        }
    }

    fn content_census(&self) -> Vec<(&'static str, u64)> {
        let of_shard = |shard: &Shard| {
            let stats = shard.content_stats();
            let census = stats.census;
            [
                ("raw", census.raw),
                ("lz4", census.lz4),
                ("zstd", census.zstd),
                ("zero", census.zero),
                ("duplicate", census.duplicate),
                ("delta", census.delta),
                ("base without a block", census.orphans),
                ("object that others rest on", census.references),
                ("made denser when moved", stats.recompressed_blocks),
                ("segments rewritten while idle", stats.idle_segments),
            ]
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    fn volume_id(&self, volume: u16) -> VolumeId {
        let name = name_of(usize::from(volume));
        self.pool.superblock.volumes.iter().find(|record| record.name == name).expect("every volume has a record").id
    }

    fn record(&mut self, change: Change, ssd: &mut Blocking) -> Result<(), Refusal> {
        match change {
            Change::MayHaveDirty(volume) => {
                let record = self.record_mut(volume);
                if record.may_have_dirty && !record.damaged {
                    return Ok(());
                }
                (record.may_have_dirty, record.damaged) = (true, false);
                record.mode = Mode::WriteBack;
            }
            Change::Settled(volume, mode) => {
                let record = self.record_mut(volume);
                (record.may_have_dirty, record.damaged, record.mode) = (false, false, mode);
            }
            Change::Size(volume, sectors) => self.record_mut(volume).size_bytes = sectors * 512,
            Change::Retire(volume, id) => {
                let next = self.pool.superblock.next_volume_id;
                self.pool.superblock.next_volume_id = next.max(VolumeId(id.0 + 1));
                self.record_mut(volume).id = id;
            }
        }
        stamp(&mut self.pool);
        self.pool.store(ssd).map_err(refusal)
    }

    fn stop(mut self: Box<Self>, ssd: &mut Blocking) -> Result<(), Refusal> {
        if self.shards.iter().any(Shard::has_lost_its_log) {
            return Err(Refusal { reason: "the SSD failed while the pool ran".to_string(), io: true });
        }
        let ends: Vec<LogEnd> = self.shards.iter().map(Shard::log_end).collect();
        if self.shards.iter().any(Shard::has_packed_blocks) {
            return checkpoint::write_footers(ssd, &mut self.pool, &ends).map_err(refusal);
        }
        let volumes: Vec<VolumeId> = self.pool.superblock.volumes.iter().map(|record| record.id).collect();
        let places: BTreeMap<u16, u16> =
            volumes.iter().enumerate().filter_map(|(place, id)| Some((volume_index(&self.pool, *id)?, place as u16))).collect();
        let mut blocks: Vec<BTreeMap<u32, CheckpointEntry>> = Vec::new();
        for shard in &self.shards {
            assert!(shard.is_quiesced() && shard.io_in_flight() == 0, "stopped only when quiet");
            let entries = shard.cached_blocks().map(|block| {
                let entry = CheckpointEntry {
                    volume: places[&block.volume.0],
                    block: block.block,
                    mask: block.mask,
                    dirty: block.dirty,
                    heat: 0,
                    checksum: block.checksum,
                };
                (block.slot.0, entry)
            });
            blocks.push(entries.collect());
        }
        let mut entry = |shard: ShardIndex, slot: u32| blocks[usize::from(shard.0)].get(&slot).copied();
        checkpoint::write(ssd, &mut self.pool, &ends, &volumes, &mut entry).map_err(refusal)
    }
}

/// Pages the engine needs for this plan, clients' own not counted.
pub fn pages_needed(plan: &Plan) -> usize {
    let base_pages = plan.content.as_ref().map_or(0, |content| content.setting.base_pages);
    let joined_pages = usize::from(plan.fronts) * JOINED_BLOCKS_MAX as usize;
    usize::from(plan.shards) * (PAGES_MIN + base_pages) + joined_pages + (plan.ram_bytes / 4096) as usize
}
