//! What is answered.

use super::*;
use crate::stats::{PoolStats, VolumeStats};
use serde::Serialize;
use std::sync::Arc;

/// The answer to one [`Action`]. Serialized without its variant: the path asked tells what comes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// About the daemon.
    Daemon(DaemonView),
    /// One pool.
    Pool(Box<PoolView>),
    /// What an SSD holds.
    PoolFound(Box<PoolFoundView>),
    /// Pools by name.
    Pools(Vec<PoolView>),
    /// One volume.
    Volume(Box<VolumeView>),
    /// Volumes by name.
    Volumes(Vec<VolumeView>),
    /// One share.
    Share(Box<ShareView>),
    /// Shares by volume.
    Shares(Vec<ShareView>),
    /// One disk.
    Disk(Box<DiskView>),
    /// Disks by name.
    Disks(Vec<DiskView>),
    /// A job.
    Job(Box<JobView>),
    /// Jobs by number.
    Jobs(Vec<JobView>),
    /// Counters of everything.
    StatsAll(StatsView),
    /// Counters of a volume.
    VolumeStats(Box<VolumeStats>),
    /// Counters of a pool.
    PoolStats(Box<PoolStats>),
    /// What happened.
    Events(Vec<EventView>),
    /// Why a range is cached, or not.
    Why(Box<WhyView>),
    /// The address space.
    Map(Box<MapView>),
    /// What was.
    History(Box<HistoryView>),
    /// The newest sample.
    Sample(Arc<Sample>),
    /// One analysis.
    Analysis(Box<AnalysisView>),
    /// Analyses.
    Analyses(Vec<AnalysisView>),
    /// Who reads and writes.
    Streams(Vec<StreamView>),
    /// Rules for streams.
    StreamRules(Box<StreamRules>),
    /// One of them.
    StreamRule(Box<StreamRuleView>),
    /// Advice, one for each load.
    Advice(Vec<AdviceView>),
    /// One of them.
    AdviceOne(Box<AdviceView>),
    /// What an advice came to.
    AdviceApplied(Box<AdviceApplied>),
    /// A forecast against what came.
    AdviceVerified(Box<AdviceVerified>),
    /// Applications by volume.
    Applications(Vec<VolumeApplications>),
    /// A connection to a server.
    Connected(Box<Connected>),
    /// Objects.
    Objects(Vec<ObjectView>),
    /// What a policy became.
    PolicyDone(Box<PolicyDone>),
    /// A preload.
    Preload(Box<PreloadView>),
    /// Disks.
    Devices(Vec<DeviceView>),
    /// One disk.
    Device(Box<DeviceView>),
    /// Done; there is nothing to say.
    Done(Done),
}
