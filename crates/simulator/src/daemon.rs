//! A pool as the daemon runs it, without the daemon: the host half is the crate `pool`, as in the runtime, and what decides anything is the
//! engine's own code. Here are its host, which carries what parts say to the world, and what the world asks of a life.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::api::{Command, CommandFailure, Completion, Event, Io, Reply, Request};
use engine::front::JOINED_BLOCKS_MAX;
use engine::medium::Medium as _;
use engine::packer::ContentOptions;
use engine::shard::{PAGES_MIN, RecoveredBlock, Shard};
use engine::store::upgrade::{self, UpgradeError};
use engine::superblock::{self, OpenError, PoolState};
use format::checkpoint::LogEnd;
use format::superblock::BACKING_IDENTITY_BYTES_MAX;
use format::{Layout, Superblock, VolumeRecord};
use oldlog::Written;
use page::PagePool;
use pool::commands::token_of;
use pool::part::home_of;
use pool::restart::{Restart, restart_here};
use pool::root::{self, CheckpointError, EnterError, LoadError, Root};
use pool::{Feeder, Host, Origin, Part, Place};
use types::{BLOCK_BYTES, Content, Mode, ShardIndex, VolumeId, VolumeIndex};

use crate::disk::blocking::Blocking;
use crate::looking::{self, Answers};
use crate::plan::{ContentSetting, ENCODING_NS, Level, Plan};
use crate::prng::Prng;
use crate::system::{Builder, Cargo, Change, Facts, HostRecord, Output, Parcel, Refusal, Started, System};

/// Builds lives of the engine.
pub struct Engine;

fn refusal(error: OpenError) -> Refusal {
    let io = matches!(error, OpenError::Medium(_) | OpenError::FlushFailed);
    Refusal { reason: error.to_string(), io }
}

/// The layout of a plan's pool, which has slots.
pub fn layout(plan: &Plan) -> Layout {
    match packs(plan) {
        packed if plan.was_log => log_layout(plan).upgraded(packed),
        true => log_layout(plan).with_packed_slots(),
        false => log_layout(plan).with_slots(),
    }
}

/// The same of a pool that is still a log.
pub fn log_layout(plan: &Plan) -> Layout {
    let segment_bytes = u32::try_from(plan.segment_bytes).expect("a plan's segments are small");
    Layout::plan(plan.ssd_bytes, plan.shards, segment_bytes).expect("a plan's pool fits its SSD")
}

/// Whether the ring is long enough for packed blocks: some pools were made before anybody thought of content.
pub fn packs(plan: &Plan) -> bool {
    plan.content.as_ref().is_some_and(|content| !content.setting.secret.is_multiple_of(4))
}

/// Makes a log slots; gives how many blocks these have.
fn upgrade(plan: &Plan, mut state: PoolState, ssd: &mut Blocking) -> Result<u64, Refusal> {
    match upgrade::upgrade(ssd, &mut state, packs(plan)) {
        Ok(outlooks) => Ok(outlooks.iter().map(|outlook| outlook.blocks).sum()),
        Err(UpgradeError::Open(error)) => Err(refusal(error)),
        Err(error) => Err(Refusal { reason: error.to_string(), io: false }),
    }
}

/// Puts the rings somewhere.
fn place_rings(plan: &Plan, superblock: &mut Superblock) {
    let mut prng = Prng::new(plan.seed).fork(31);
    let places = superblock.layout.slots_per_shard() - superblock.layout.ring_pages + 1;
    for start in &mut superblock.log_starts {
        start.ring_first = prng.below(places.into()) as u32;
    }
}

/// Makes the pool these logs.
fn write_logs(logs: &[Written], pool: &mut PoolState, ssd: &mut Blocking) -> Result<(), OpenError> {
    let begin: Vec<LogEnd> = logs.iter().map(Written::begin).collect();
    pool.begin_session(ssd, &begin, &[])?;
    for (offset_bytes, bytes) in logs.iter().flat_map(|log| &log.writes) {
        ssd.write(*offset_bytes, bytes)?;
    }
    Ok(ssd.flush()?)
}

fn new_record(id: VolumeId, volume: u16, size_bytes: u64) -> VolumeRecord {
    VolumeRecord {
        id,
        uuid: [volume as u8 + 1; 16],
        name: format!("volume{volume}"),
        size_bytes,
        mode: Mode::WriteThrough,
        may_have_dirty: false,
        damaged: false,
        backing_identity: Vec::new(),
    }
}

/// Has the next store of the superblock change each of its sectors, as a pool of many busy volumes may: one that is torn between two
/// states then never is a whole one.
fn stamp(root: &mut Root) {
    let state = root.state().superblock.generation.to_le_bytes();
    for volume in root.volumes_mut() {
        volume.backing_identity = state.repeat(BACKING_IDENTITY_BYTES_MAX / state.len());
    }
}

/// Gives a part of the SSD away, or takes it back, or does neither. What was given away before is written over: it is somebody else's.
fn resize(plan: &Plan, session: u64, ssd: &mut Blocking) -> Result<(), Refusal> {
    let prng = &mut Prng::new(plan.seed).fork(session);
    let before = superblock::load(ssd).map_err(refusal)?.superblock;
    let pages = before.layout.end_bytes() / BLOCK_BYTES..layout(plan).end_bytes() / BLOCK_BYTES;
    if before.named_segments == before.layout.segments_per_shard && !pages.is_empty() {
        for _ in 0..4 {
            let page = pages.start + prng.below(pages.end - pages.start);
            ssd.write(page * BLOCK_BYTES, &[0xd5; BLOCK_BYTES as usize]).map_err(|error| refusal(error.into()))?;
        }
    }
    let wanted_bytes = plan.ssd_bytes / 4 * prng.pick(&[4, 4, 3, 2, 1]);
    match superblock::resize(ssd, wanted_bytes) {
        Ok(_) | Err(OpenError::NotResizable | OpenError::DirtyWhereItEnds { .. }) => Ok(()),
        Err(error) => Err(refusal(error)),
    }
}

/// Reads the superblock; before that the pool may be cut, or become slots. Gives how many blocks these have then.
fn load(plan: &Plan, host: &HostRecord, ssd: &mut Blocking) -> Result<(PoolState, Option<u64>), Refusal> {
    let refused = |error| match error {
        LoadError::Open(error) => refusal(error),
        LoadError::AnotherPool => Refusal { reason: "the SSD belongs to another pool".to_string(), io: false },
        LoadError::OldCopy { .. } => Refusal { reason: "it is an old copy of the pool".to_string(), io: false },
    };
    let mut state = root::load(ssd, host.pool_uuid, host.session).map_err(refused)?;
    if plan.resizes && Prng::new(plan.seed).fork(!host.session).percent(60) {
        resize(plan, host.session, ssd)?;
        state = root::load(ssd, host.pool_uuid, host.session).map_err(refused)?;
    }
    if state.superblock.layout.has_slots() {
        return Ok((state, None));
    }
    let blocks = upgrade(plan, state, ssd)?;
    Ok((root::load(ssd, host.pool_uuid, host.session).map_err(refused)?, Some(blocks)))
}

impl Builder for Engine {
    fn format(&self, plan: &Plan, host: &HostRecord, logs: &[Written], ssd: &mut Blocking) -> Result<(), Refusal> {
        let is_log = !logs.is_empty();
        let layout = if is_log { log_layout(plan) } else { layout(plan) };
        let mut pool = superblock::create(ssd, layout, host.pool_uuid).map_err(refusal)?;
        if plan.was_log && !is_log {
            place_rings(plan, &mut pool.superblock);
        }
        for (index, volume) in plan.volumes.iter().enumerate() {
            let id = pool.superblock.next_volume_id;
            pool.superblock.next_volume_id = VolumeId(id.0 + 1);
            let mode = volume.options.mode;
            let record = new_record(id, index as u16, volume.first_sectors * 512);
            pool.superblock.volumes.push(VolumeRecord { mode, may_have_dirty: is_log && mode == Mode::WriteBack, ..record });
        }
        if is_log { write_logs(logs, &mut pool, ssd).map_err(refusal) } else { pool.store(ssd).map_err(refusal) }
    }

    fn start(&self, plan: &Plan, host: &HostRecord, now_ns: u64, ssd: &mut Blocking, pages: &PagePool) -> Result<Started, Refusal> {
        let (state, upgraded) = load(plan, host, ssd)?;
        let ids: Vec<u32> = (0..plan.volumes.len() as u16).map(|volume| host.id_of(volume)).collect();
        let places = ids.iter().zip(0..).map(|(id, volume)| (*id, VolumeIndex(volume))).collect();
        let mut root = Root::new(state, places, plan.volumes.len() as u32 + 1 + host.retired);
        root.prepare(ssd).map_err(refusal)?;
        let restart = Restart {
            state: root.state(),
            places: root.places(),
            ram_blocks: plan.ram_bytes / 4096 / u64::from(plan.shards),
            content: Content::Off,
            pages: pages.clone(),
            threads: 1,
            slots_named: Some(plan.index_slots),
        };
        let found = restart_here(&restart, ssd).map_err(refusal)?;
        let after_clean_stop = found.iter().all(|shard| shard.report.as_ref().is_some_and(|report| report.after_clean_stop));
        stamp(&mut root);
        root.begin_session(ssd, &found).map_err(refusal)?;
        // As the superblock says, not as this start found: the one before may have died right after it had written that down.
        let superblock = &root.state().superblock;
        let damaged = superblock.volumes.iter().filter(|volume| volume.damaged).filter_map(|volume| root.place_of(volume.id.0));
        let (damaged, session) = (damaged.map(|place| place.0).collect(), superblock.session);
        let mut shards: Vec<Option<Shard>> = found.into_iter().map(|found| Some(found.shard)).collect();
        let joined_pages = JOINED_BLOCKS_MAX;
        let part = |number: u16| {
            let place = |(index, shard): (usize, &mut Option<Shard>)| match home_of(index, plan.fronts) {
                home if home == number => Place::here(shard.take().expect("each shard has one home")),
                home => Place::There(home),
            };
            Part::new(number, shards.iter_mut().enumerate().map(place).collect(), joined_pages)
        };
        let parts: Vec<Part> = (0..plan.fronts).map(part).collect();
        let outside = Outside {
            outputs: VecDeque::new(),
            mail: VecDeque::new(),
            answers: pool::Answers::default(),
            trails: Answers::default(),
            checks: BTreeSet::new(),
            ended_checks: false,
            threads: plan.message_ns > 0,
            sender: 0,
        };
        let mut daemon = Daemon {
            root,
            parts,
            outside,
            ids,
            retired: BTreeMap::new(),
            shards: plan.shards,
            now_ns,
            keeps_dirty: !plan.ssd_faults.harmful() && plan.rot_ns == 0 && !plan.ssd_leaves,
            crashes: plan.crashes > 0,
        };
        for hold in daemon.root.holds() {
            daemon.tell(&hold);
        }
        Ok(Started { system: Box::new(daemon), damaged, session, after_clean_stop, upgraded })
    }

    fn uses_ssd(&self) -> bool {
        true
    }
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

struct Daemon {
    root: Root,
    parts: Vec<Part>,
    outside: Outside,
    /// The number of each volume, and those that they had while they were taken out of the superblock.
    ids: Vec<u32>,
    retired: BTreeMap<u16, u32>,
    shards: u16,
    now_ns: u64,
    /// Nothing can happen to dirty blocks on the SSD.
    keeps_dirty: bool,
    /// A crash may tear clean blocks, which is found when they are read.
    crashes: bool,
}

/// What parts see of the world.
struct Outside {
    outputs: VecDeque<Output>,
    /// From part to part, where that takes no time.
    mail: VecDeque<Cargo>,
    answers: pool::Answers,
    trails: Answers,
    /// Commands under way that check a segment, and whether one has ended.
    checks: BTreeSet<u64>,
    ended_checks: bool,
    /// Parts live on threads: what they tell each other takes time.
    threads: bool,
    /// The part that is being drained.
    sender: u16,
}

impl Outside {
    fn send(&mut self, to: u16, cargo: Cargo) {
        if self.threads {
            let channel = u32::from(self.sender) << 16 | u32::from(to);
            self.outputs.push_back(Output::Parcel(Parcel { channel, cargo }));
        } else {
            self.mail.push_back(cargo);
        }
    }
}

impl Feeder for Outside {
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard)) {
        work(shard);
        let looks = shard.untimed_looks();
        if looks > 0 {
            shard.encoding_took(u64::from(looks) * ENCODING_NS);
        }
    }

    fn asked(&mut self, shard: ShardIndex, request: &Request) {
        self.trails.asked(shard.0, request);
    }
}

impl Host for Outside {
    fn io(&mut self, shard: ShardIndex, io: Io) {
        self.outputs.push_back(Output::Io(shard.0, io));
    }

    fn reply(&mut self, reply: Reply) {
        self.outputs.push_back(Output::Reply(reply));
    }

    fn to_shard(&mut self, part: u16, shard: ShardIndex, origin: Origin, request: Request) {
        self.send(part, Cargo::ToShard(part, shard, origin, request));
    }

    fn to_front(&mut self, part: u16, shard: ShardIndex, reply: Reply) {
        self.send(part, Cargo::ToFront(part, shard, reply));
    }

    fn answered(&mut self, shard: ShardIndex, reply: &Reply) {
        self.trails.answered(shard.0, reply);
    }

    fn done(&mut self, token: u64, result: Result<(), CommandFailure>) {
        if self.answers.done(token, result) {
            self.ended_checks |= self.checks.remove(&token);
            let result = self.answers.take(token).expect("the last shard has answered");
            self.outputs.push_back(Output::Done(token, result));
        }
    }

    fn event(&mut self, shard: ShardIndex, event: Event) {
        self.outputs.push_back(Output::Event(shard.0, event));
    }

    fn drained(&mut self, shard: ShardIndex, machine: &Shard) {
        self.trails.check(shard.0, machine);
    }
}

impl Daemon {
    fn pump(&mut self) {
        loop {
            for (number, part) in self.parts.iter_mut().enumerate() {
                self.outside.sender = number as u16;
                part.drain(self.now_ns, &mut self.outside);
            }
            if std::mem::take(&mut self.outside.ended_checks) {
                self.judge_check();
            }
            if self.outside.mail.is_empty() {
                return;
            }
            while let Some(cargo) = self.outside.mail.pop_front() {
                self.unpack(cargo);
            }
        }
    }

    fn unpack(&mut self, cargo: Cargo) {
        match cargo {
            Cargo::ToShard(part, shard, origin, request) => {
                self.parts[usize::from(part)].shard_request(&mut self.outside, self.now_ns, shard, origin, request);
            }
            Cargo::ToFront(part, shard, reply) => self.parts[usize::from(part)].shard_reply(shard, reply),
        }
    }

    fn tell(&mut self, command: &Command) {
        for part in &mut self.parts {
            part.command(&mut self.outside, self.now_ns, command);
        }
    }

    /// All shards, in order.
    fn shards(&self) -> Vec<&Shard> {
        let mut shards: Vec<(ShardIndex, &Shard)> = self.parts.iter().flat_map(Part::shards).collect();
        shards.sort_unstable_by_key(|(index, _)| *index);
        shards.into_iter().map(|(_, shard)| shard).collect()
    }

    fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.parts.iter_mut().flat_map(Part::shards_mut)
    }

    /// A check finds nothing bad where nothing can be.
    fn judge_check(&self) {
        for found in self.shards().into_iter().filter(|_| self.keeps_dirty).map(Shard::scrubbed) {
            assert!(found.dirty_bad == 0, "dirty blocks {:?} are called bad on a good SSD", found.dirty_bad_at);
            assert!(found.clean_bad == 0 || self.crashes, "{} clean blocks are called bad on a good SSD", found.clean_bad);
        }
    }

    /// The record of a volume, to be changed and entered.
    fn record_of(&self, volume: u16) -> Option<VolumeRecord> {
        let id = VolumeId(self.ids[usize::from(volume)]);
        self.root.state().superblock.volumes.iter().find(|record| record.id == id).cloned()
    }
}

impl System for Daemon {
    fn submit(&mut self, now_ns: u64, connection: u16, request: Request) {
        self.now_ns = now_ns;
        let part = usize::from(connection) % self.parts.len();
        self.parts[part].submit(request);
        self.pump();
    }

    fn complete(&mut self, now_ns: u64, lane: u16, completion: Completion) {
        self.now_ns = now_ns;
        let home = usize::from(home_of(usize::from(lane), self.parts.len() as u16));
        self.parts[home].complete(&mut self.outside, now_ns, ShardIndex(lane), completion);
        self.pump();
    }

    fn deliver(&mut self, now_ns: u64, cargo: Cargo) {
        self.now_ns = now_ns;
        self.unpack(cargo);
        self.pump();
    }

    fn command(&mut self, now_ns: u64, mut command: Command) {
        self.now_ns = now_ns;
        let checks = matches!(command, Command::Check { .. });
        if let Some(token) = token_of(&mut command).copied() {
            self.outside.answers.expect(token, usize::from(self.shards));
            if checks {
                self.outside.checks.insert(token);
            }
        }
        self.tell(&command);
        self.pump();
    }

    fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        for part in &mut self.parts {
            part.tick(&mut self.outside, now_ns);
        }
        self.pump();
    }

    fn next_deadline(&self) -> Option<u64> {
        self.parts.iter().filter_map(Part::next_deadline_ns).min()
    }

    fn poll(&mut self) -> Option<Output> {
        self.outside.outputs.pop_front()
    }

    fn check_invariants(&self) {
        self.parts.iter().for_each(Part::check_invariants);
    }

    fn check_looking(&self, now_ns: u64, volume: u16, first_block: u64, blocks: u64, steps: u32) {
        looking::check(&self.shards(), now_ns, VolumeIndex(volume), first_block, blocks, steps);
    }

    fn describe(&self) -> String {
        self.shards().iter().enumerate().map(|(at, shard)| format!("shard {at}: {}", shard.describe())).collect()
    }

    fn dirty_blocks(&self, volume: u16) -> Vec<u64> {
        let of_shard = |shard: &Shard| shard.attached().find(|(index, ..)| index.0 == volume).map_or(0, |(.., dirty)| dirty);
        self.shards().into_iter().map(of_shard).collect()
    }

    fn dirty_pages(&self) -> Vec<(u64, u64)> {
        self.shards().into_iter().map(|shard| (shard.dirty_pages(), shard.dirty_pages_max())).collect()
    }

    fn dirty_list(&self, volume: u16) -> Vec<u64> {
        let wanted = |block: &RecoveredBlock| block.dirty && block.volume.0 == volume;
        self.shards().into_iter().flat_map(Shard::cached_blocks).filter(wanted).map(|block| block.block).collect()
    }

    fn facts(&self) -> Facts {
        Facts { dirty_bytes: self.shards().into_iter().map(|shard| shard.stats().dirty_blocks * 4096).sum() }
    }

    fn set_content(&mut self, setting: &ContentSetting) {
        let options = content_options(setting);
        self.parts.iter_mut().for_each(|part| part.set_content(|_| options));
    }

    fn set_host_busy(&mut self, is_busy: bool) {
        for part in &mut self.parts {
            part.set_host_busy(&mut self.outside, self.now_ns, is_busy);
        }
        self.pump();
    }

    fn forget_hints(&mut self) {
        self.shards_mut().for_each(Shard::forget_hints);
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
            ]
        };
        self.shards().into_iter().flat_map(of_shard).collect()
    }

    fn volume_id(&self, volume: u16) -> VolumeId {
        VolumeId(self.ids[usize::from(volume)])
    }

    fn record(&mut self, change: Change, ssd: &mut Blocking) -> Result<(), Refusal> {
        stamp(&mut self.root);
        let volume = match change {
            Change::Retire(volume, id) => {
                let old = std::mem::replace(&mut self.ids[usize::from(volume)], id.0);
                self.retired.insert(volume, old);
                return self.root.retire(ssd, old).map_err(refusal);
            }
            Change::MayHaveDirty(volume) | Change::Settled(volume, ..) | Change::Size(volume, _) => volume,
        };
        // It is entered again when no shard knows it any more.
        if let Some(old) = self.retired.remove(&volume) {
            self.root.leave_place(old);
        }
        let known = self.record_of(volume);
        let mut record = known.unwrap_or_else(|| new_record(self.volume_id(volume), volume, 0));
        match change {
            Change::MayHaveDirty(_) => {
                (record.may_have_dirty, record.damaged) = (true, false);
                record.mode = Mode::WriteBack;
            }
            Change::Settled(_, mode) => (record.may_have_dirty, record.damaged, record.mode) = (false, false, mode),
            Change::Size(_, sectors) => record.size_bytes = sectors * 512,
            Change::Retire(..) => unreachable!("done above"),
        }
        let place = VolumeIndex(volume);
        self.root.enter(ssd, record, place).map_err(|error| match error {
            EnterError::Open(error) => refusal(error),
            EnterError::OtherOfThatName(id) => panic!("volume {volume} is in the superblock under the number {id} too"),
        })
    }

    fn stop(self: Box<Self>, ssd: &mut Blocking) -> Result<(), Refusal> {
        let Daemon { mut root, parts, .. } = *self;
        let mut shards: Vec<(ShardIndex, Shard)> = parts.into_iter().flat_map(Part::into_shards).collect();
        shards.sort_unstable_by_key(|(index, _)| *index);
        let shards: Vec<Shard> = shards.into_iter().map(|(_, shard)| shard).collect();
        if shards.iter().all(|shard| shard.lost_ssd().is_none()) {
            assert!(shards.iter().all(|shard| shard.is_quiesced() && shard.io_in_flight() == 0), "stopped only when quiet");
        }
        root.checkpoint(ssd, &shards).map_err(|error| match error {
            CheckpointError::SsdFailed => Refusal { reason: "the SSD failed while the pool ran".to_string(), io: true },
            CheckpointError::Open(error) => refusal(error),
        })
    }
}

/// Pages the engine needs for this plan, clients' own not counted.
pub fn pages_needed(plan: &Plan) -> usize {
    let base_pages = plan.content.as_ref().map_or(0, |content| content.setting.base_pages);
    let joined_pages = usize::from(plan.fronts) * JOINED_BLOCKS_MAX as usize;
    usize::from(plan.shards) * (PAGES_MIN + base_pages) + joined_pages + (plan.ram_bytes / 4096) as usize
}
