//! What reactors and the control thread say to each other.

use crate::cached::{InspectShard, PoolPart};
use crate::devices::DeviceShared;
use crate::endpoint::Endpoint;
use crate::group::Membership;
use crate::inbox::Inbox;
use crate::stats::{DeviceStats, VolumeStats};
use crate::volume::VolumeRef;
use device::model::DiskModel;
use engine::api::{Command, Io, IoError, Reply, Request};
use engine::shard::Shard;
use page::PageMutVec;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use types::{Content, ShardIndex};

/// One message to a reactor. Those with a `done` are answered when carried out.
pub(crate) enum Message {
    AddEndpoint {
        endpoint: Box<dyn Endpoint>,
        membership: Membership,
    },
    StopGroup {
        group: u32,
    },
    WakeGroup {
        group: u32,
    },
    ForceCloseGroup {
        group: u32,
    },
    AddDevice {
        device: Arc<DeviceShared>,
        model: Option<Box<DiskModel>>,
        done: Sender<io::Result<()>>,
    },
    /// Whoever has the model of the device gives it this size.
    GrowModel {
        number: u32,
        size_bytes: u64,
        done: Sender<()>,
    },
    /// Answered with how many of its I/Os the kernel has not completed.
    RemoveDevice {
        number: u32,
        done: Sender<usize>,
    },
    /// Everything in flight of the device fails, whatever comes later too.
    GiveUpDevice {
        number: u32,
        done: Sender<()>,
    },
    DeviceWaits {
        done: Sender<Vec<(u32, crate::waits::DeviceWait)>>,
    },
    AddVolume {
        volume: VolumeRef,
        in_flight_max: u32,
        done: Sender<()>,
    },
    DeviceStats {
        number: u32,
        done: Sender<Box<DeviceStats>>,
    },
    /// Answered when no request of the volume is in flight on this reactor.
    RemoveVolume {
        number: u32,
        done: Sender<()>,
    },
    /// The counters of the volumes that have answered another number of requests than `known` says.
    ChangedVolumeStats {
        known: std::collections::BTreeMap<u32, u64>,
        done: Sender<crate::all_stats::Changed>,
    },
    VolumeStats {
        number: u32,
        done: Sender<Box<VolumeStats>>,
    },
    TakeTapped {
        done: Sender<crate::tapped::Tapped>,
    },
    RemoteIo {
        device: u32,
        io: Io,
        from: u16,
        tag: u32,
    },
    RemoteIoDone {
        tag: u32,
        result: Result<(), IoError>,
        pages: PageMutVec,
    },
    /// A flush that an I/O here waited for has ended on another reactor.
    FlushEnded {
        slot: u32,
        believed: bool,
    },
    AddPool {
        part: Box<PoolPart>,
        done: Sender<()>,
    },
    SetBacking {
        pool: u32,
        volume: types::VolumeIndex,
        device: Option<u32>,
        done: Sender<()>,
    },
    /// Gives the shards that lived here. Requests still in flight are answered with `Shutdown`, I/Os still in flight are let end.
    RemovePool {
        pool: u32,
        done: Sender<Vec<(ShardIndex, Shard)>>,
    },
    ShardRequest {
        pool: u32,
        shard: ShardIndex,
        origin: pool::Origin,
        request: Request,
    },
    ShardReply {
        pool: u32,
        shard: ShardIndex,
        reply: Reply,
    },
    Command {
        pool: u32,
        command: Command,
        done: Sender<()>,
    },
    /// The shards of the pool that live there treat content so from now on.
    SetContent {
        pool: u32,
        level: Content,
        done: Sender<()>,
    },
    /// Runs on the reactor for each shard of the pool that lives there.
    InspectShards {
        pool: u32,
        inspect: InspectShard,
        done: Sender<()>,
    },
    /// End the thread when nothing is in flight, or at this time (monotonic) even so.
    Exit {
        deadline_ns: u64,
    },
}

/// Where the reactors are reached.
pub(crate) struct Directory {
    pub(crate) peers: Vec<Peer>,
    pub(crate) recognise: std::sync::OnceLock<crate::tapped::Recognise>,
}

pub(crate) struct Peer {
    pub(crate) inbox: Inbox<Message>,
    /// Endpoints that live there or are on their way.
    pub(crate) endpoints: AtomicUsize,
    /// Turns its loop has made.
    pub(crate) turns: AtomicU64,
}

impl Directory {
    pub(crate) fn new(reactors: u16) -> io::Result<Directory> {
        let peers = (0..reactors)
            .map(|_| Ok(Peer { inbox: Inbox::new()?, endpoints: AtomicUsize::new(0), turns: AtomicU64::new(0) }))
            .collect::<io::Result<_>>()?;
        Ok(Directory { peers, recognise: std::sync::OnceLock::new() })
    }

    pub(crate) fn send(&self, reactor: u16, message: Message) {
        self.peers[reactor as usize].inbox.send(message);
    }

    /// Sends an endpoint to the reactor that has the fewest.
    pub(crate) fn add_endpoint(&self, endpoint: Box<dyn Endpoint>, membership: Membership) {
        let least = self.peers.iter().min_by_key(|peer| peer.endpoints.load(Ordering::Relaxed)).expect("at least one reactor");
        least.endpoints.fetch_add(1, Ordering::Relaxed);
        least.inbox.send(Message::AddEndpoint { endpoint, membership });
    }
}
