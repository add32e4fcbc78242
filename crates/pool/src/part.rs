//! One thread's part of a pool: a front for the requests of that thread's clients, and the shards that live there.
//!
//! Every thread that serves clients has a part of each pool; every shard lives in one of them. What a front sends to a shard of another part
//! travels as a message, and so does the reply: the [`Host`] carries both.
//!
//! Invariant: a shard is fed by its part alone, and drained after every batch of feeding: what arrives together may share one group of the log.

use crate::commands::{self, ForFront};
use crate::slab::Slab;
use engine::api::{Action, Command, CommandFailure, Completion, Event, Io, Op, Reply, Request};
use engine::front::{Front, FrontAction};
use engine::packer::ContentOptions;
use engine::shard::{Shard, ShardConfig};
use types::{ShardIndex, VolumeId, VolumeIndex};

/// Which front gave a shard a request, and under which id.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The part of that front.
    pub part: u16,
    /// The id there.
    pub id: u64,
}

/// What shards need while they are fed.
pub trait Feeder {
    /// Feeds a shard, and tells it how long that took if it encoded blocks meanwhile ([`Shard::encoding_took`]).
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard));
    /// A shard is about to be given a request.
    fn asked(&mut self, shard: ShardIndex, request: &Request);
}

/// What a part wants of the outside while it is drained.
pub trait Host: Feeder {
    /// Start this I/O of a shard; its end comes by [`Part::complete`].
    fn io(&mut self, shard: ShardIndex, io: Io);
    /// A client's answer.
    fn reply(&mut self, reply: Reply);
    /// Carry a request to the part where its shard lives: [`Part::shard_request`].
    fn to_shard(&mut self, part: u16, shard: ShardIndex, origin: Origin, request: Request);
    /// Carry a shard's answer to the part whose front asked: [`Part::shard_reply`].
    fn to_front(&mut self, part: u16, shard: ShardIndex, reply: Reply);
    /// A shard has answered a request, under the id that it was given.
    fn answered(&mut self, shard: ShardIndex, reply: &Reply);
    /// A shard has answered a command.
    fn done(&mut self, token: u64, result: Result<(), CommandFailure>);
    /// Something happened in a shard. Never [`Event::CommandDone`].
    fn event(&mut self, shard: ShardIndex, event: Event);
    /// A shard has no more to say for now.
    fn drained(&mut self, shard: ShardIndex, machine: &Shard);
}

/// A shard seen from one part.
pub enum Place {
    /// It lives here.
    Here(Box<LocalShard>),
    /// It lives in that part.
    There(u16),
}

/// A shard that lives here.
pub struct LocalShard {
    machine: Shard,
    requests: Slab<Origin>,
    touched: bool,
}

impl Place {
    /// A shard that is to live here.
    pub fn here(machine: Shard) -> Place {
        // Touched: it may have something to say from the start.
        Place::Here(Box::new(LocalShard { machine, requests: Slab::new(), touched: true }))
    }
}

/// See the module.
pub struct Part {
    number: u16,
    front: Front,
    shards: Vec<Place>,
    /// Numbers in the log by volume, as the commands told.
    ids: Vec<Option<VolumeId>>,
}

/// The part, of `parts`, in which a shard lives.
pub fn home_of(shard: usize, parts: u16) -> u16 {
    (shard % usize::from(parts)) as u16
}

impl Part {
    /// The part of that number. `shards`: all of the pool, in order. `joined_pages`: what its front may hold of reads in several parts.
    pub fn new(number: u16, shards: Vec<Place>, joined_pages: u64) -> Part {
        Part { number, front: Front::new(shards.len() as u16).joining(joined_pages), shards, ids: Vec::new() }
    }

    /// A client's request. Whether it is a read of a sequential stream.
    pub fn submit(&mut self, request: Request) -> bool {
        self.front.submit(request)
    }

    /// A request for a shard that lives here, from any part's front.
    pub fn shard_request(&mut self, feeder: &mut impl Feeder, now_ns: u64, shard: ShardIndex, origin: Origin, mut request: Request) {
        let local = self.local(shard);
        request.id = u64::from(local.requests.insert(origin));
        local.touched = true;
        feeder.asked(shard, &request);
        // Reads encode nothing until their blocks are here.
        if request.op == Op::Read {
            local.machine.submit(now_ns, request);
        } else {
            feeder.feed(&mut local.machine, |machine| machine.submit(now_ns, request));
        }
    }

    /// A shard elsewhere has answered.
    pub fn shard_reply(&mut self, shard: ShardIndex, reply: Reply) {
        self.front.shard_reply(shard, reply);
    }

    /// An I/O of a shard that lives here has ended.
    pub fn complete(&mut self, feeder: &mut impl Feeder, now_ns: u64, shard: ShardIndex, completion: Completion) {
        let local = self.local(shard);
        local.touched = true;
        feeder.feed(&mut local.machine, |machine| machine.complete(now_ns, completion));
    }

    /// A command for all shards: this part's share of it.
    pub fn command(&mut self, feeder: &mut impl Feeder, now_ns: u64, command: &Command) {
        self.tell_front(commands::for_front(command));
        for local in locals(&mut self.shards) {
            local.touched = true;
            feeder.feed(&mut local.machine, |machine| machine.command(now_ns, command.clone()));
        }
    }

    fn tell_front(&mut self, said: ForFront) {
        match said {
            ForFront::Attached(volume, id, options) => {
                self.set_id(volume, Some(id));
                self.front.set_volume(volume, id, options);
            }
            ForFront::Options(volume, options) => {
                if let Some(id) = self.ids.get(usize::from(volume.0)).copied().flatten() {
                    self.front.set_volume(volume, id, options);
                }
            }
            ForFront::Gone(volume) => {
                self.set_id(volume, None);
                self.front.remove_volume(volume);
            }
            ForFront::Policies(volume, map) => self.front.set_policies(volume, map),
            ForFront::Nothing => {}
        }
    }

    fn set_id(&mut self, volume: VolumeIndex, id: Option<VolumeId>) {
        let index = usize::from(volume.0);
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        self.ids[index] = id;
    }

    /// How the shards that live here treat content from now on.
    pub fn set_content(&mut self, options: impl Fn(&ShardConfig) -> ContentOptions) {
        for local in locals(&mut self.shards) {
            let options = options(local.machine.config());
            local.machine.set_content(options);
        }
    }

    /// Wakes shards whose time has come.
    pub fn tick(&mut self, feeder: &mut impl Feeder, now_ns: u64) {
        for local in locals(&mut self.shards) {
            if local.machine.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                local.touched = true;
                feeder.feed(&mut local.machine, |machine| machine.tick(now_ns));
            }
        }
    }

    /// Whether this thread has little time for what can wait.
    pub fn set_host_busy(&mut self, feeder: &mut impl Feeder, now_ns: u64, is_busy: bool) {
        for local in locals(&mut self.shards) {
            local.touched = true;
            local.machine.set_host_busy(is_busy);
            feeder.feed(&mut local.machine, |machine| machine.tick(now_ns));
        }
    }

    /// When the next shard wants its tick.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.shards().filter_map(|(_, machine)| machine.next_deadline()).min()
    }

    /// Hands everything that the front and the local shards have to say to the host.
    pub fn drain(&mut self, now_ns: u64, host: &mut impl Host) {
        loop {
            let mut moved = self.drain_front(now_ns, host);
            for index in 0..self.shards.len() {
                moved |= self.drain_shard(host, index);
            }
            if !moved {
                return;
            }
        }
    }

    fn drain_front(&mut self, now_ns: u64, host: &mut impl Host) -> bool {
        let mut moved = false;
        while let Some(step) = self.front.poll() {
            moved = true;
            match step {
                FrontAction::Reply(reply) => host.reply(reply),
                FrontAction::ToShard(shard, request) => {
                    let origin = Origin { part: self.number, id: request.id };
                    match self.shards[usize::from(shard.0)] {
                        Place::Here(_) => self.shard_request(host, now_ns, shard, origin, request),
                        Place::There(part) => host.to_shard(part, shard, origin, request),
                    }
                }
            }
        }
        moved
    }

    fn drain_shard(&mut self, host: &mut impl Host, index: usize) -> bool {
        let Place::Here(local) = &mut self.shards[index] else { return false };
        if !std::mem::take(&mut local.touched) {
            return false;
        }
        let shard = ShardIndex(index as u16);
        while let Some(action) = local.machine.poll_action() {
            match action {
                Action::Io(io) => host.io(shard, io),
                Action::Reply(mut reply) => {
                    host.answered(shard, &reply);
                    let origin = local.requests.remove(reply.id as u32);
                    reply.id = origin.id;
                    if origin.part == self.number {
                        self.front.shard_reply(shard, reply);
                    } else {
                        host.to_front(origin.part, shard, reply);
                    }
                }
                Action::Event(Event::CommandDone(token, result)) => host.done(token, result),
                Action::Event(event) => host.event(shard, event),
            }
        }
        host.drained(shard, &local.machine);
        true
    }

    fn local(&mut self, shard: ShardIndex) -> &mut LocalShard {
        match &mut self.shards[usize::from(shard.0)] {
            Place::Here(local) => local,
            Place::There(part) => panic!("shard {} lives in part {part}", shard.0),
        }
    }

    /// The shards that live here.
    pub fn shards(&self) -> impl Iterator<Item = (ShardIndex, &Shard)> {
        self.shards.iter().enumerate().filter_map(|(index, place)| match place {
            Place::Here(local) => Some((ShardIndex(index as u16), &local.machine)),
            Place::There(_) => None,
        })
    }

    /// The same, for what is no request: how they are set up, what they have learned. They are drained next time.
    pub fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        locals(&mut self.shards).map(|local| {
            local.touched = true;
            &mut local.machine
        })
    }

    /// Gives up the shards that live here.
    pub fn into_shards(self) -> Vec<(ShardIndex, Shard)> {
        let shards = self.shards.into_iter().enumerate().filter_map(|(index, place)| match place {
            Place::Here(local) => Some((ShardIndex(index as u16), local.machine)),
            Place::There(_) => None,
        });
        shards.collect()
    }

    /// # Panics
    /// If the state of the front or of a shard that lives here contradicts itself.
    pub fn check_invariants(&self) {
        self.front.check_invariants();
        self.shards().for_each(|(_, machine)| machine.check_invariants());
    }
}

fn locals(shards: &mut [Place]) -> impl Iterator<Item = &mut LocalShard> {
    shards.iter_mut().filter_map(|place| match place {
        Place::Here(local) => Some(&mut **local),
        Place::There(_) => None,
    })
}
