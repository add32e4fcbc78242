//! The shards and the front of one pool, driven without threads: I/O is done at once, and time passes when nothing else happens.

use super::hardware::Hardware;
use super::{TURNS, locked, told};
use api::error::ControlError;
use datapath::{Life, Notice};
use engine::api::{Command, CommandFailure, Event, Io, Reply, Request};
use engine::shard::{Proof, Shard};
use machine::assembly::Root;
use machine::notices::PoolNotices;
use page::PagePool;
use pool::commands::token_of;
use pool::{Answers, Devices, Feeder, Host, Origin, Part};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use types::{Content, ShardIndex, VolumeIndex};

/// The pool that runs (one is enough here).
pub(super) struct Engine {
    pub(super) pool: String,
    pub(super) life: Life,
    pub(super) root: Root,
    pub(super) samples: BTreeMap<u32, Vec<(u64, Proof)>>,
    pub(super) part: Part,
    pub(super) now_ns: u64,
    pub(super) pages: PagePool,
    pub(super) next_number: u64,
    pub(super) replies: BTreeMap<u64, Reply>,
    pub(super) answers: Answers,
    pub(super) shards: usize,
    /// By their paths.
    pub(super) devices: Devices<String>,
    /// Volumes by place.
    pub(super) attached: BTreeMap<u16, String>,
    /// Places that take no requests though the shards have not been told yet.
    pub(super) withdrawn: BTreeSet<u16>,
    pub(super) notices: PoolNotices,
}

#[derive(Default)]
pub(super) struct Running {
    pub(super) engine: Option<Engine>,
    /// Volumes without a cache, and their devices.
    pub(super) bare: BTreeMap<String, String>,
    pub(super) ears: Option<Ears>,
}

/// Where the data path reports to.
#[derive(Clone)]
pub struct Ears {
    /// The way there.
    pub sender: Sender<Notice>,
    /// Notices that were not taken in yet.
    pub waiting: Arc<AtomicUsize>,
}

/// What the part says while it is drained: kept, since what answers it feeds the part.
#[derive(Default)]
struct Said {
    ios: Vec<(ShardIndex, Io)>,
    replies: Vec<Reply>,
    done: Vec<(u64, Result<(), CommandFailure>)>,
    events: Vec<(ShardIndex, Event)>,
}

/// Without a clock: the n-th access is to be the same one every time.
struct NoClock;

impl Feeder for NoClock {
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard)) {
        work(shard);
    }

    fn asked(&mut self, _shard: ShardIndex, _request: &Request) {}
}

impl Feeder for Said {
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard)) {
        work(shard);
    }

    fn asked(&mut self, _shard: ShardIndex, _request: &Request) {}
}

impl Host for Said {
    fn io(&mut self, shard: ShardIndex, io: Io) {
        self.ios.push((shard, io));
    }

    fn reply(&mut self, reply: Reply) {
        self.replies.push(reply);
    }

    fn to_shard(&mut self, part: u16, shard: ShardIndex, _origin: Origin, _request: Request) {
        unreachable!("{shard:?} lives in the only part, not in {part}")
    }

    fn to_front(&mut self, part: u16, shard: ShardIndex, _reply: Reply) {
        unreachable!("{shard:?} answers the only part, not {part}")
    }

    fn answered(&mut self, _shard: ShardIndex, _reply: &Reply) {}

    fn done(&mut self, token: u64, result: Result<(), CommandFailure>) {
        self.done.push((token, result));
    }

    fn event(&mut self, shard: ShardIndex, event: Event) {
        self.events.push((shard, event));
    }

    fn drained(&mut self, _shard: ShardIndex, _machine: &Shard) {}
}

impl Engine {
    /// Everything that can go on does.
    pub(super) fn turn(&mut self, hardware: &Mutex<Hardware>, ears: Option<&Ears>) {
        loop {
            let mut said = Said::default();
            self.part.drain(self.now_ns, &mut said);
            let Said { ios, replies, done, events } = said;
            self.replies.extend(replies.into_iter().map(|reply| (reply.id, reply)));
            for (token, result) in done {
                self.answers.done(token, result);
            }
            for (shard, event) in events {
                self.event(shard, event, hardware, ears);
            }
            if ios.is_empty() {
                return;
            }
            for (shard, io) in ios {
                let path = self.devices.get(io.target).expect("the shard's volumes have their devices");
                let completion = locked(hardware).perform(path, io);
                self.part.complete(&mut NoClock, self.now_ns, shard, completion);
            }
        }
    }

    fn event(&mut self, shard: ShardIndex, event: Event, hardware: &Mutex<Hardware>, ears: Option<&Ears>) {
        let name = |place: VolumeIndex| self.attached.get(&place.0).cloned().unwrap_or_default();
        let Some(notice) = self.notices.of(shard, event, name) else { return };
        if let Some(ears) = ears.filter(|_| !locked(hardware).dead) {
            ears.waiting.fetch_add(1, Ordering::SeqCst);
            ears.sender.send(notice).expect("somebody listens while the machine has power");
        }
    }

    /// Gives a command that every shard answers.
    pub(super) fn command(&mut self, make: impl Fn(u64) -> Command) -> u64 {
        self.next_number += 1;
        let token = self.next_number;
        let mut command = make(token);
        assert!(token_of(&mut command).is_some(), "somebody answers {command:?}");
        self.answers.expect(token, self.shards);
        self.tell(&command);
        token
    }

    pub(super) fn tell(&mut self, command: &Command) {
        self.part.command(&mut NoClock, self.now_ns, command);
    }

    /// The volume there is gone.
    pub(super) fn forget(&mut self, place: VolumeIndex) {
        self.devices.set_backing(place, None);
        self.attached.remove(&place.0);
    }

    /// As the runtime does it, but without a clock: the n-th access is to be the same one every time.
    pub(super) fn set_content(&mut self, level: Content) {
        self.part.set_content(|config| ::pool::content::options_for(level, config));
    }

    pub(super) fn tick(&mut self) {
        let deadline = self.part.next_deadline_ns();
        self.now_ns = deadline.unwrap_or(0).max(self.now_ns + 100_000);
        self.part.tick(&mut NoClock, self.now_ns);
    }

    /// The shards.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.part.shards().map(|(_, shard)| shard)
    }

    /// How a command ended, if it has.
    pub(super) fn ended(&mut self, token: u64) -> Option<Result<(), CommandFailure>> {
        self.answers.take(token)
    }
}

impl Running {
    /// Lets the engine go on for a while, until `ended` gives something.
    pub(super) fn look<T>(
        &mut self,
        hardware: &Mutex<Hardware>,
        ended: &mut impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>, ControlError> {
        let Running { engine, ears, .. } = self;
        let engine = engine.as_mut().ok_or_else(|| told("the pool", "it does not run"))?;
        for _ in 0..TURNS {
            engine.turn(hardware, ears.as_ref());
            if let Some(result) = ended(engine) {
                return Ok(Some(result));
            }
            engine.tick();
        }
        if locked(hardware).dead { Err(told("the machine", "it has no power")) } else { Ok(None) }
    }

    pub(super) fn place(&self, volume: &str) -> Option<VolumeIndex> {
        let attached = &self.engine.as_ref()?.attached;
        attached.iter().find(|(_, name)| *name == volume).map(|(place, _)| VolumeIndex(*place))
    }
}
