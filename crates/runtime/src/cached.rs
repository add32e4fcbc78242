//! Cached volumes on a reactor: its part of each pool, with the reactor's devices, messages and clients as the host.

use crate::command::Commands;
use crate::content;
use crate::device_io::{DeviceIo, Finished, Owner};
use crate::message::{Directory, Message};
use crate::ring::Ring;
use engine::api::{Command, CommandFailure, Completion, Event, Io, Reply, Request};
use engine::shard::Shard;
use pool::{Devices, Feeder, Host, Origin, Part};
use std::sync::Arc;
use types::{Content, ShardIndex, VolumeIndex};

/// Looks at a shard on its reactor's thread.
pub(crate) type InspectShard = Arc<dyn Fn(ShardIndex, &Shard) + Send + Sync>;

/// Receives what shards report, on their reactors' threads; must not block. Command completions do not come here.
pub type EventSink = Arc<dyn Fn(ShardIndex, Event) + Send + Sync>;

/// One reactor's part of a pool.
pub(crate) struct PoolPart {
    pub(crate) part: Part,
    pub(crate) ways: Ways,
}

/// Where what a part says goes.
pub(crate) struct Ways {
    pub(crate) number: u32,
    /// Device numbers.
    pub(crate) devices: Devices<u32>,
    pub(crate) events: EventSink,
    pub(crate) commands: Arc<Commands>,
}

/// What draining a pool needs of its reactor.
pub(crate) struct Surroundings<'a> {
    pub(crate) ring: &'a mut Ring,
    pub(crate) devices: &'a mut DeviceIo,
    pub(crate) directory: &'a Directory,
    pub(crate) now_ns: u64,
}

/// Feeds shards by the clock of the machine.
struct ByClock;

impl Feeder for ByClock {
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard)) {
        content::timed(shard, work);
    }

    fn asked(&mut self, _shard: ShardIndex, _request: &Request) {}
}

/// A reactor while it drains a part.
struct Draining<'a, 'b> {
    ways: &'a Ways,
    around: &'a mut Surroundings<'b>,
    replies: &'a mut Vec<Reply>,
}

impl Feeder for Draining<'_, '_> {
    fn feed(&mut self, shard: &mut Shard, work: impl FnOnce(&mut Shard)) {
        ByClock.feed(shard, work);
    }

    fn asked(&mut self, _shard: ShardIndex, _request: &Request) {}
}

impl Host for Draining<'_, '_> {
    fn io(&mut self, shard: ShardIndex, io: Io) {
        let device = self.ways.devices.get(io.target).copied();
        let owner = Owner::Shard { pool: self.ways.number, shard, id: io.id };
        // A number that no device has is refused like a failed device.
        self.around.devices.submit(self.around.ring, self.around.now_ns, device.unwrap_or(u32::MAX), io, owner);
    }

    fn reply(&mut self, reply: Reply) {
        self.replies.push(reply);
    }

    fn to_shard(&mut self, part: u16, shard: ShardIndex, origin: Origin, request: Request) {
        self.around.directory.send(part, Message::ShardRequest { pool: self.ways.number, shard, origin, request });
    }

    fn to_front(&mut self, part: u16, shard: ShardIndex, reply: Reply) {
        self.around.directory.send(part, Message::ShardReply { pool: self.ways.number, shard, reply });
    }

    fn answered(&mut self, _shard: ShardIndex, _reply: &Reply) {}

    fn done(&mut self, token: u64, result: Result<(), CommandFailure>) {
        self.ways.commands.done(token, result);
    }

    fn event(&mut self, shard: ShardIndex, event: Event) {
        (self.ways.events)(shard, event);
    }

    fn drained(&mut self, _shard: ShardIndex, _machine: &Shard) {}
}

impl PoolPart {
    /// A request of an endpoint of this reactor. Whether it is a read of a sequential stream.
    pub(crate) fn submit(&mut self, request: Request) -> bool {
        self.part.submit(request)
    }

    /// A request for a shard that lives here, from any reactor's front.
    pub(crate) fn shard_request(&mut self, now_ns: u64, shard: ShardIndex, origin: Origin, request: Request) {
        self.part.shard_request(&mut ByClock, now_ns, shard, origin, request);
    }

    /// A shard's I/O has ended.
    pub(crate) fn io_done(&mut self, now_ns: u64, finished: Finished) {
        let Owner::Shard { shard, id, .. } = finished.owner else { unreachable!("routed by owner") };
        let completion = Completion { id, result: finished.result, pages: finished.pages };
        self.part.complete(&mut ByClock, now_ns, shard, completion);
    }

    /// A command for all shards: this reactor's share of it.
    pub(crate) fn command(&mut self, now_ns: u64, command: &Command) {
        self.part.command(&mut ByClock, now_ns, command);
    }

    /// How the shards that live here treat content from now on.
    pub(crate) fn set_content(&mut self, level: Content) {
        self.part.set_content(|config| pool::content::options_for(level, config));
    }

    /// Wakes shards whose time has come.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.part.tick(&mut ByClock, now_ns);
    }

    /// Whether this reactor has little time for what can wait.
    pub(crate) fn set_host_busy(&mut self, now_ns: u64, is_busy: bool) {
        self.part.set_host_busy(&mut ByClock, now_ns, is_busy);
    }

    pub(crate) fn set_backing(&mut self, volume: VolumeIndex, device: Option<u32>) {
        self.ways.devices.set_backing(volume, device);
    }

    /// Takes everything the front and the local shards have to say; replies for endpoints of this reactor go to `replies`.
    pub(crate) fn drain(&mut self, around: &mut Surroundings<'_>, replies: &mut Vec<Reply>) {
        let now_ns = around.now_ns;
        self.part.drain(now_ns, &mut Draining { ways: &self.ways, around, replies });
    }

    /// Shows the shards that live here to `inspect`.
    pub(crate) fn inspect(&self, inspect: &InspectShard) {
        self.part.shards().for_each(|(index, machine)| inspect(index, machine));
    }
}
