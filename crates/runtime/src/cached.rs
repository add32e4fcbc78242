//! Cached volumes: the engine's front and shards, driven.
//!
//! Every reactor has a front of each pool, for the requests of its own endpoints; every shard lives on one reactor. What a front sends to a
//! shard of another reactor travels as a message, and so does the reply.
//!
//! Invariant: a shard is fed by its reactor alone, and drained after every batch of feeding: what arrives together may share one group
//! of the log.

use crate::content;
use crate::device_io::{DeviceIo, Finished, Owner};
use crate::message::{Directory, Message};
use crate::ring::Ring;
use crate::slab::Slab;
use engine::api::{Action, Command, Completion, Event, Op, Reply, Request, Target};
use engine::front::{Front, FrontAction};
use engine::shard::Shard;
use std::sync::Arc;
use types::{Content, ShardIndex, VolumeId, VolumeIndex};

/// Looks at a shard on its reactor's thread.
pub(crate) type InspectShard = Arc<dyn Fn(ShardIndex, &Shard) + Send + Sync>;

/// Receives what shards report, on their reactors' threads; must not block. Command completions do not come here.
pub type EventSink = Arc<dyn Fn(ShardIndex, Event) + Send + Sync>;

/// Who gave a shard a request, and under which id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardOrigin {
    pub(crate) reactor: u16,
    pub(crate) id: u64,
}

/// A shard seen from one reactor.
pub(crate) enum ShardPlace {
    Here(Box<LocalShard>),
    There(u16),
}

pub(crate) struct LocalShard {
    machine: Shard,
    requests: Slab<ShardOrigin>,
    touched: bool,
}

impl LocalShard {
    pub(crate) fn new(machine: Shard) -> LocalShard {
        // Touched: it may have something to say from the start.
        LocalShard { machine, requests: Slab::new(), touched: true }
    }
}

/// One reactor's part of a pool.
pub(crate) struct PoolPart {
    pub(crate) number: u32,
    pub(crate) reactor: u16,
    pub(crate) front: Front,
    pub(crate) shards: Vec<ShardPlace>,
    pub(crate) ssd: u32,
    /// Device numbers by volume.
    pub(crate) backing: Vec<Option<u32>>,
    /// Numbers in the log by volume, as the commands told.
    pub(crate) ids: Vec<Option<VolumeId>>,
    pub(crate) events: EventSink,
    pub(crate) commands: Arc<crate::command::Commands>,
}

/// What draining a pool needs of its reactor.
pub(crate) struct Surroundings<'a> {
    pub(crate) ring: &'a mut Ring,
    pub(crate) devices: &'a mut DeviceIo,
    pub(crate) directory: &'a Directory,
    pub(crate) now_ns: u64,
}

impl PoolPart {
    /// A request of an endpoint of this reactor. Whether it is a read of a sequential stream.
    pub(crate) fn submit(&mut self, request: Request) -> bool {
        self.front.submit(request)
    }

    /// A request for a shard that lives here, from any reactor's front.
    pub(crate) fn shard_request(&mut self, now_ns: u64, shard: ShardIndex, origin: ShardOrigin, mut request: Request) {
        let local = self.local(shard);
        request.id = u64::from(local.requests.insert(origin));
        local.touched = true;
        // Reads encode nothing until their blocks are here.
        if request.op == Op::Read {
            local.machine.submit(now_ns, request);
        } else {
            content::timed(&mut local.machine, |machine| machine.submit(now_ns, request));
        }
    }

    /// A shard elsewhere has answered.
    pub(crate) fn shard_reply(&mut self, shard: ShardIndex, reply: Reply) {
        self.front.shard_reply(shard, reply);
    }

    /// A shard's I/O has ended.
    pub(crate) fn io_done(&mut self, now_ns: u64, finished: Finished) {
        let Owner::Shard { shard, id, .. } = finished.owner else { unreachable!("routed by owner") };
        let local = self.local(shard);
        local.touched = true;
        let completion = Completion { id, result: finished.result, pages: finished.pages };
        content::timed(&mut local.machine, |machine| machine.complete(now_ns, completion));
    }

    /// A command for all shards: this reactor's share of it.
    pub(crate) fn command(&mut self, now_ns: u64, command: &Command) {
        self.tell_front(command);
        for place in &mut self.shards {
            if let ShardPlace::Here(local) = place {
                local.touched = true;
                content::timed(&mut local.machine, |machine| machine.command(now_ns, command.clone()));
            }
        }
    }

    /// The front keeps volumes and options, of which it learns from the commands to the shards.
    fn tell_front(&mut self, command: &Command) {
        match command {
            Command::Attach { volume, id, options, .. } => {
                set_at(&mut self.ids, *volume, Some(*id));
                self.front.set_volume(*volume, *id, options.clone());
            }
            Command::SetOptions { volume, options, .. } => {
                if let Some(id) = self.ids.get(usize::from(volume.0)).copied().flatten() {
                    self.front.set_volume(*volume, id, options.clone());
                }
            }
            Command::Detach { volume, .. } | Command::Release { volume, .. } | Command::Hold { volume, .. } => {
                set_at(&mut self.ids, *volume, None);
                self.front.remove_volume(*volume);
            }
            Command::SetPolicies { volume, map } => self.front.set_policies(*volume, map.clone()),
            _ => {}
        }
    }

    /// How the shards that live here treat content from now on.
    pub(crate) fn set_content(&mut self, level: Content) {
        for place in &mut self.shards {
            if let ShardPlace::Here(local) = place {
                let options = content::options_for(level, local.machine.config());
                local.machine.set_content(options);
            }
        }
    }

    /// Wakes shards whose time has come.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        for place in &mut self.shards {
            if let ShardPlace::Here(local) = place
                && local.machine.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now_ns)
            {
                local.touched = true;
                content::timed(&mut local.machine, |machine| machine.tick(now_ns));
            }
        }
    }

    /// Whether this reactor has little time for what can wait.
    pub(crate) fn set_host_busy(&mut self, now_ns: u64, is_busy: bool) {
        for place in &mut self.shards {
            if let ShardPlace::Here(local) = place {
                local.touched = true;
                local.machine.set_host_busy(is_busy);
                content::timed(&mut local.machine, |machine| machine.tick(now_ns));
            }
        }
    }

    /// When the next shard wants its tick.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        let local = self.shards.iter().filter_map(|place| match place {
            ShardPlace::Here(local) => local.machine.next_deadline(),
            ShardPlace::There(_) => None,
        });
        local.min()
    }

    pub(crate) fn set_backing(&mut self, volume: VolumeIndex, device: Option<u32>) {
        set_at(&mut self.backing, volume, device);
    }

    /// Takes everything the front and the local shards have to say; replies for endpoints of this reactor go to `replies`.
    pub(crate) fn drain(&mut self, around: &mut Surroundings<'_>, replies: &mut Vec<Reply>) {
        loop {
            let mut moved = self.drain_front(around, replies);
            for index in 0..self.shards.len() {
                moved |= self.drain_shard(around, index);
            }
            if !moved {
                return;
            }
        }
    }

    fn drain_front(&mut self, around: &mut Surroundings<'_>, replies: &mut Vec<Reply>) -> bool {
        let mut moved = false;
        while let Some(step) = self.front.poll() {
            moved = true;
            match step {
                FrontAction::Reply(reply) => replies.push(reply),
                FrontAction::ToShard(shard, request) => {
                    let origin = ShardOrigin { reactor: self.reactor, id: request.id };
                    match self.shards[usize::from(shard.0)] {
                        ShardPlace::Here(_) => self.shard_request(around.now_ns, shard, origin, request),
                        ShardPlace::There(reactor) => {
                            around.directory.send(reactor, Message::ShardRequest { pool: self.number, shard, origin, request });
                        }
                    }
                }
            }
        }
        moved
    }

    fn drain_shard(&mut self, around: &mut Surroundings<'_>, index: usize) -> bool {
        let ShardPlace::Here(local) = &mut self.shards[index] else { return false };
        if !std::mem::take(&mut local.touched) {
            return false;
        }
        let shard = ShardIndex(index as u16);
        while let Some(action) = local.machine.poll_action() {
            match action {
                Action::Io(io) => {
                    let device = match io.target {
                        Target::Ssd => Some(self.ssd),
                        Target::Backing(volume) => self.backing.get(usize::from(volume.0)).copied().flatten(),
                    };
                    let owner = Owner::Shard { pool: self.number, shard, id: io.id };
                    // A number that no device has is refused like a failed device.
                    around.devices.submit(around.ring, around.now_ns, device.unwrap_or(u32::MAX), io, owner);
                }
                Action::Reply(mut reply) => {
                    let origin = local.requests.remove(reply.id as u32);
                    reply.id = origin.id;
                    if origin.reactor == self.reactor {
                        self.front.shard_reply(shard, reply);
                    } else {
                        around.directory.send(origin.reactor, Message::ShardReply { pool: self.number, shard, reply });
                    }
                }
                Action::Event(Event::CommandDone(token, result)) => self.commands.done(token, result),
                Action::Event(event) => (self.events)(shard, event),
            }
        }
        true
    }

    fn local(&mut self, shard: ShardIndex) -> &mut LocalShard {
        match &mut self.shards[usize::from(shard.0)] {
            ShardPlace::Here(local) => local,
            ShardPlace::There(reactor) => panic!("shard {} lives on reactor {reactor}", shard.0),
        }
    }

    /// Shows the shards that live here to `inspect`.
    pub(crate) fn inspect(&self, inspect: &InspectShard) {
        for (index, place) in self.shards.iter().enumerate() {
            if let ShardPlace::Here(local) = place {
                inspect(ShardIndex(index as u16), &local.machine);
            }
        }
    }

    /// Gives up the shards that live here.
    pub(crate) fn into_shards(self) -> Vec<(ShardIndex, Shard)> {
        let shards = self.shards.into_iter().enumerate().filter_map(|(index, place)| match place {
            ShardPlace::Here(local) => Some((ShardIndex(index as u16), local.machine)),
            ShardPlace::There(_) => None,
        });
        shards.collect()
    }
}

/// Sets a volume's entry in a table that grows as needed.
fn set_at<T: Copy>(table: &mut Vec<Option<T>>, volume: VolumeIndex, value: Option<T>) {
    let index = usize::from(volume.0);
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    table[index] = value;
}
