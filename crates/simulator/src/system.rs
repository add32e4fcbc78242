//! What the harness drives: one life of a daemon's data path, and how such a life begins and ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::api::{Command, CommandFailure, Completion, Event, Io, Reply, Request};
use oldlog::Written;
use page::PagePool;
use pool::Origin;
use types::{Mode, ShardIndex, VolumeId};

use crate::disk::blocking::Blocking;
use crate::plan::{ContentSetting, Plan};

/// A message between the threads of the daemon. Those of one channel arrive in order, each after a while.
#[derive(Debug)]
pub struct Parcel {
    /// From whom to whom.
    pub channel: u32,
    /// What.
    pub cargo: Cargo,
}

/// What travels between a connection's thread and a shard's.
#[derive(Debug)]
pub enum Cargo {
    /// A part of a client's request, to the part of that number, for this shard.
    ToShard(u16, ShardIndex, Origin, Request),
    /// Its answer, to the part of that number, from this shard.
    ToFront(u16, ShardIndex, Reply),
}

/// What a system wants of the world.
#[derive(Debug)]
pub enum Output {
    /// Start this I/O; complete it under the same lane (the shard that asked).
    Io(u16, Io),
    /// A client's answer.
    Reply(Reply),
    /// Carry this to another thread.
    Parcel(Parcel),
    /// Something happened (never `Event::CommandDone`).
    Event(u16, Event),
    /// A command is done in all shards.
    Done(u64, Result<(), CommandFailure>),
}

/// Numbers a system shows to the harness, for coverage and for checks of limits.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    /// Dirty bytes of all volumes.
    pub dirty_bytes: u64,
}

/// One life of the data path. The contract is that of `engine::api`; `poll` until `None` after each other call.
pub trait System {
    /// A client's request, on this connection.
    fn submit(&mut self, now_ns: u64, connection: u16, request: Request);
    /// An I/O is done.
    fn complete(&mut self, now_ns: u64, lane: u16, completion: Completion);
    /// A parcel arrived.
    fn deliver(&mut self, now_ns: u64, cargo: Cargo);
    /// The administrator's wish, for all shards.
    fn command(&mut self, now_ns: u64, command: Command);
    /// Time passed.
    fn tick(&mut self, now_ns: u64);
    /// When `tick` is wanted at the latest.
    fn next_deadline(&self) -> Option<u64>;
    /// What is to be done next.
    fn poll(&mut self) -> Option<Output>;
    /// Panics if the state contradicts itself.
    fn check_invariants(&self);
    /// Looks as people do: at a range of a volume, and at all blocks, so many steps at a time; panics if what is told is not so.
    fn check_looking(&self, _now_ns: u64, _volume: u16, _first_block: u64, _blocks: u64, _steps: u32) {}
    /// Dirty blocks of a volume, of each shard.
    fn dirty_blocks(&self, volume: u16) -> Vec<u64>;
    /// Pages of the log that dirty blocks take, and how many they may take, of each shard; nothing if there is no such limit.
    fn dirty_pages(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
    /// Its dirty blocks.
    fn dirty_list(&self, volume: u16) -> Vec<u64>;
    /// Numbers.
    fn facts(&self) -> Facts;
    /// What goes on inside, in words, for the story of a system that waits for ever.
    fn describe(&self) -> String {
        String::new()
    }
    /// From now on blocks are stored so; what is stored stays as it is. Until this is called, blocks are stored as they are. Nothing need
    /// be done by a system that knows nothing of content.
    fn set_content(&mut self, _: &ContentSetting) {}
    /// Whether the host has little time for what can wait.
    fn set_host_busy(&mut self, _: bool) {}
    /// Loses everything by which blocks meet: harmless at any moment.
    fn forget_hints(&mut self) {}
    /// How many blocks are stored in which form, by shards.
    fn content_census(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// The volume's number in the log, as the superblock has it.
    fn volume_id(&self, volume: u16) -> VolumeId;
    /// Stores a change in the superblock, while requests may be running.
    fn record(&mut self, change: Change, ssd: &mut Blocking) -> Result<(), Refusal>;
    /// Ends a quiesced life: writes what a clean stop writes.
    fn stop(self: Box<Self>, ssd: &mut Blocking) -> Result<(), Refusal>;
}

/// What the superblock must know before something else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Before the first dirty block of this volume. An administrator who forces a damaged volume also ends up here.
    MayHaveDirty(u16),
    /// No dirty block is left and the mode makes none.
    Settled(u16, Mode),
    /// The volume has so many sectors now.
    Size(u16, u64),
    /// The volume's number is never used again; it gets this one when it is entered the next time, by any of the others.
    Retire(u16, VolumeId),
}

/// A life that began.
pub struct Started {
    /// The system.
    pub system: Box<dyn System>,
    /// Volumes that may have lost dirty blocks, as recovery reports.
    pub damaged: Vec<u16>,
    /// The superblock's session number, for the host's record.
    pub session: u64,
    /// It read what a clean stop had said of everything, and nothing else.
    pub after_clean_stop: bool,
    /// The pool was a log, and this start made it slots with so many blocks.
    pub upgraded: Option<u64>,
}

/// Why a life could not begin or end.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// In words.
    pub reason: String,
    /// It was an I/O error, and another try may succeed.
    pub io: bool,
}

/// What the host keeps outside the SSD (its state directory), changed atomically and durable at once.
#[derive(Clone, Debug)]
pub struct HostRecord {
    /// The SSD was lost, and of these volumes the clean blocks on it are void.
    pub stale: BTreeSet<u16>,
    /// The SSD was lost, and all that it holds of these volumes is void: nothing was dirty.
    pub forgotten: BTreeSet<u16>,
    /// By volume: blocks that were written past the lost SSD; what it holds of them is void.
    pub past: BTreeMap<u16, Vec<Range<u64>>>,
    /// By volume: its number, where that is not the first one any more. What the log holds of it under another is void.
    pub renumbered: BTreeMap<u16, u32>,
    /// Identity of the pool, drawn when it was formatted.
    pub pool_uuid: [u8; 16],
    /// The superblock's session number of the latest start.
    pub session: u64,
    /// How many numbers of volumes were retired since the pool was formatted: an SSD that loses its superblock must not have them given out again.
    pub retired: u32,
}

impl HostRecord {
    /// Of a pool that is about to be formatted.
    pub fn of_new_pool(pool_uuid: [u8; 16]) -> HostRecord {
        let (stale, forgotten, past, renumbered) = Default::default();
        HostRecord { stale, forgotten, past, renumbered, pool_uuid, session: 0, retired: 0 }
    }

    /// The number of a volume.
    pub fn id_of(&self, volume: u16) -> u32 {
        self.renumbered.get(&volume).copied().unwrap_or(u32::from(volume) + 1)
    }

    /// A number that no volume of the pool ever had.
    pub fn retire(&mut self, volumes: usize) -> u32 {
        self.retired += 1;
        volumes as u32 + self.retired
    }
}

/// How lives begin. Implemented by the stand-in and by the engine.
pub trait Builder {
    /// Whether it writes units of volumes as a whole that are to be kept so.
    fn keeps_units(&self) -> bool {
        true
    }

    /// Makes a new pool; with logs, one to a shard, as an earlier release would have left it.
    fn format(&self, plan: &Plan, host: &HostRecord, logs: &[Written], ssd: &mut Blocking) -> Result<(), Refusal>;
    /// Begins a life from what is on the SSD. Volumes are attached by commands afterwards.
    fn start(&self, plan: &Plan, host: &HostRecord, now_ns: u64, ssd: &mut Blocking, pages: &PagePool) -> Result<Started, Refusal>;
    /// Whether there is an SSD at all in what this builds.
    fn uses_ssd(&self) -> bool;
}
