//! One run: clients, operator, devices and one life of the system after the other, in virtual time.
//!
//! * This room holds the state, and what every other may ask for. It asks none of them.
//! * [`turns`] is the main loop. What makes lives begin and end meets there: [`life`] crashes and starts, [`operator`] acts, [`replace`]
//!   exchanges the SSD, [`loss`] has it lost and come back, [`grow`] has volumes grow, [`finish`] is the liveness phase.
//! * [`devices`], with [`gates`] and [`commits`] (a flush does not wait for destage): I/Os on their way to devices and back.
//! * [`clients`] submits and judges; [`blame`] and [`kinship`] know what devices did, and so what is excused.
//! * [`course`] leaves steps out; [`labels`] says things of objects; [`content`] has textures, hints and levels; [`phases`] looks at what is
//!   going on, for coverage.

mod before;
mod blame;
mod busy;
mod clients;
mod commits;
mod content;
mod course;
mod decay;
mod devices;
mod exchange;
mod finish;
mod gates;
mod grow;
mod kinship;
mod labels;
mod life;
mod limits;
mod log_writes;
mod looking;
mod loss;
pub(crate) mod operator;
mod phases;
mod replace;
mod shortage;
mod turns;
mod watching;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::ops::Range;

use engine::api::{IoId, VolumeOptions};
use oldlog::Written;
use page::PagePool;
use types::{Mode, SsdIndex, VolumeIndex};

use crate::content::Content;
use crate::course::Course;
use crate::coverage::{Coverage, Fault};
use crate::daemon::pages_needed;
use crate::disk::Disk;
use crate::disk::media::Media;
use crate::oracle::{Kind, Oracle, Violation};
use crate::plan::{Plan, VolumePlan};
use crate::prng::Prng;
use crate::scheduler::Scheduler;
use crate::system::{Builder, Cargo, HostRecord, System};
use blame::{Blame, Wounds};
use clients::Clients;
use commits::Commits;
use exchange::OtherSsds;
use gates::Gates;
use life::Ends;
use log_writes::LogWrites;
use operator::Operator;
use phases::Places;
use turns::Progress;

pub use turns::{run, run_on};

/// What a run showed.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// Requests that clients submitted.
    pub requests: u64,
    /// Of those, answered with an error.
    pub errors: u64,
    /// I/Os that devices did.
    pub ios: u64,
    /// Flushes that clients got acknowledged.
    pub flushes: u64,
    /// Process crashes.
    pub crashes: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Lives begun after a crash.
    pub recoveries: u64,
    /// Crashes inside recovery, format or stop.
    pub crashes_in_blocking: u64,
    /// Lives ended by a clean stop.
    pub clean_stops: u64,
    /// Lives begun from the sweep of a clean stop alone, where blocks lie in slots.
    pub sweeps_read: u64,
    /// Logs made slots by a start, and the blocks that these had then.
    pub upgrades: u64,
    /// See above.
    pub upgraded_blocks: u64,
    /// Lives begun with the SSD that the one before had lost.
    pub returns: u64,
    /// Times a life refused to begin because of injected damage.
    pub refusals: u64,
    /// Sectors of which older versions were put in doubt, because the SSD lied or a cache with dirty data was given up.
    pub doubted: u64,
    /// Pools put on another SSD while they ran.
    pub replacements: u64,
    /// Times a volume grew while it was served.
    pub growths: u64,
    /// Times something was said of the objects of a volume.
    pub labels: u64,
    /// Acts of the operator that were completed.
    pub acts: u64,
    /// Events reported by the system, by name.
    pub events: BTreeMap<&'static str, u64>,
    /// Blocks by the form in which they were stored when a life ended.
    pub stored: BTreeMap<&'static str, u64>,
    /// Virtual time.
    pub virtual_ns: u64,
    /// Of everything that happened, in order: equal for equal seeds.
    pub trace_hash: u64,
    /// Faults by phase.
    pub coverage: Coverage,
}

/// A broken promise, or a run that could not go on.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What, in words.
    pub what: String,
    /// The sector to look at.
    pub place: Option<(u16, u64)>,
    /// What happened to that sector, if it was watched.
    pub history: Vec<String>,
}

pub(crate) struct VolumeState {
    /// Its size now.
    pub sectors: u64,
    pub options: VolumeOptions,
    /// The mode keeps nothing from the backing device, and nothing dirty is left.
    pub settled: bool,
    /// It was settled all along: then even a lying SSD can take nothing from the backing device.
    pub always_settled: bool,
    /// How often it was set to write-back.
    pub write_backs: u32,
    /// What a cancelled `SetOptions` goes back to.
    pub before: Option<VolumeOptions>,
    /// The `SetOptions` that will settle it.
    pub settles_with: Option<u64>,
    /// Clients leave it alone.
    pub paused: bool,
    /// What the SSD holds of it is being made void: clients have to wait.
    pub voiding: bool,
    pub in_flight: u32,
    /// Of the longest request so far.
    pub longest_blocks: u64,
    /// When last looked.
    pub dirty_blocks: Vec<u64>,
    /// The device failed a flush; it needs a new start.
    pub backing_failed: bool,
}

impl VolumeState {
    fn at_first(volume: &VolumePlan) -> VolumeState {
        VolumeState {
            sectors: volume.first_sectors,
            options: volume.options.clone(),
            settled: volume.options.mode != Mode::WriteBack,
            always_settled: volume.options.mode != Mode::WriteBack,
            write_backs: 0,
            before: None,
            settles_with: None,
            paused: false,
            voiding: false,
            in_flight: 0,
            longest_blocks: 1,
            dirty_blocks: Vec::new(),
            backing_failed: false,
        }
    }

    /// Clients have to wait.
    pub fn is_shut(&self) -> bool {
        self.paused || self.voiding
    }
}

pub(crate) enum Happening {
    /// The number of the device ([`devices::device_of`]), and of its I/O.
    IoDone(usize, u64),
    /// A flush of this shard on a device that has failed one before.
    FlushRefused(u16, IoId),
    Parcel(u32),
    Client(u16),
    Operator,
    Tick,
    /// The host tells all shards that this SSD is lost.
    SsdFailureTold(SsdIndex),
    DegradedRecorded,
    GoingHomeTold,
    SsdForgotten(VolumeIndex),
    PastRecorded {
        volume: VolumeIndex,
        blocks: Range<u64>,
        token: u64,
    },
    /// The host tells all shards that this volume's backing device failed a flush.
    BackingFailureTold(VolumeIndex),
    Rot,
    SsdLeaves,
    BackingLeaves(bool),
    Restart,
    Disconnect,
    /// Pages run short, or are given back.
    Shortage(bool),
    /// The host has much to do from now on, or has not.
    Busy(bool),
    /// A backing device grows.
    Grow,
    /// Something is said of objects, true or not.
    Labels,
    /// Hints are lost, or a level changes.
    Content(content::Turn),
}

pub(crate) type Step = Result<(), Failure>;

pub(crate) struct World<'a> {
    pub plan: &'a Plan,
    pub builder: &'a dyn Builder,
    pub prng: Prng,
    pub disk_prng: Prng,
    pub queue: Scheduler<Happening>,
    /// By [`devices::device_of`].
    pub devices: Vec<Disk>,
    pub gates: Gates,
    pub commits: Commits,
    pub oracle: Oracle,
    pub system: Option<Box<dyn System>>,
    /// The daemon's.
    pub pages: PagePool,
    pub clients: Clients,
    pub volumes: Vec<VolumeState>,
    /// Of the log, of each shard, when last looked.
    pub dirty_pages: Vec<(u64, u64)>,
    pub host: HostRecord,
    /// What the pool is made as, if not with slots: the log of each shard.
    pub logs: Vec<Written>,
    pub operator: Operator,
    pub channels: BTreeMap<u32, VecDeque<Cargo>>,
    pub progress: Progress,
    pub ends: Ends,
    /// The last destage command ended with an error.
    pub destage_refused: bool,
    pub safety: bool,
    /// A write that the SSD confirmed was lost or damaged by it.
    pub ssd_lied: bool,
    pub blame: Blame,
    pub content: content::Treatment,
    pub labels: labels::Labels,
    pub ssd_failed: bool,
    pub loss: loss::Loss,
    pub log_writes: LogWrites,
    pub places: Places,
    pub stats: Outcome,
    pub other_ssds: OtherSsds,
    pub wounds: Wounds,
    pub watch: Option<(u16, u64)>,
    pub history: Vec<String>,
    /// What befalls it.
    pub course: Course,
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Failure {
        let place = Some((violation.volume, violation.sector));
        Failure { what: violation.to_string(), place, history: Vec::new() }
    }
}

pub(crate) fn failed(what: impl Into<String>) -> Failure {
    Failure { what: what.into(), place: None, history: Vec::new() }
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, builder: &'a dyn Builder, watch: Option<(u16, u64)>) -> World<'a> {
        let root = Prng::new(plan.seed);
        let sizes: Vec<u64> = plan.volumes.iter().map(|volume| volume.sectors).collect();
        let begin_as: Vec<Kind> = (0..sizes.len()).map(|volume| content::begins_as(plan, volume)).collect();
        let ssd_media = Media::new(plan.ssd_bytes, plan.ssd_volatile);
        let mut devices = vec![Disk::new(ssd_media, plan.ssd_faults.clone(), plan.ssd_pace.clone(), true)];
        for (index, volume) in plan.volumes.iter().enumerate() {
            let media = content::first_media(plan, VolumeIndex(index as u16));
            devices.push(Disk::new(media, volume.faults.clone(), volume.pace.clone(), volume.discards));
        }
        let volumes = plan.volumes.iter().map(VolumeState::at_first).collect();
        let mut oracle = Oracle::new(&sizes, &begin_as);
        for (index, volume) in plan.volumes.iter().enumerate() {
            let kept = volume.options.atomic_bytes.filter(|_| builder.keeps_units());
            oracle.keep_units(index as u16, kept.map_or(0, |bytes| u64::from(bytes) / types::SECTOR_BYTES));
        }
        let mut prng = root.fork(2);
        let pool_uuid = std::array::from_fn(|_| prng.bits() as u8);
        World {
            plan,
            builder,
            prng,
            disk_prng: root.fork(3),
            queue: Scheduler::new(root.fork(4)),
            devices,
            oracle,
            system: None,
            pages: PagePool::new(pages_needed(plan)),
            clients: Clients::of(plan, &root),
            volumes,
            dirty_pages: Vec::new(),
            host: HostRecord::of_new_pool(pool_uuid),
            logs: Vec::new(),
            operator: Operator::default(),
            channels: BTreeMap::new(),
            progress: Progress::default(),
            ends: Ends { crash_at: None, crashes_left: plan.crashes, restart_wanted: false },
            destage_refused: false,
            safety: true,
            ssd_lied: false,
            blame: Blame::of(plan),
            content: content::Treatment::of(plan, root.fork(5)),
            labels: labels::Labels::of(plan, root.fork(6)),
            ssd_failed: false,
            loss: loss::Loss::none(plan.shards),
            log_writes: LogWrites::default(),
            gates: Gates::default(),
            commits: Commits::new(plan.volumes.len()),
            places: Places::default(),
            stats: Outcome { trace_hash: 0xCBF2_9CE4_8422_2325, ..Outcome::default() },
            other_ssds: OtherSsds::default(),
            wounds: Wounds::default(),
            watch,
            history: Vec::new(),
            course: Course::free(),
        }
    }

    pub fn system_mut(&mut self) -> &mut dyn System {
        self.system.as_deref_mut().expect("a life is running")
    }

    pub fn cover(&mut self, fault: Fault) {
        for phase in self.phases() {
            self.stats.coverage.hit(fault, phase);
        }
    }

    /// What is waited for, for the story of a run that is stuck.
    pub fn pending_text(&self) -> String {
        let mut text: Vec<String> = self.clients.pending.iter().take(5).map(|(id, one)| format!("{id}: {:?}", one.draft)).collect();
        text.push(format!("{} in all", self.clients.pending.len()));
        let tokens: Vec<String> = self.operator.waiting_text();
        text.extend(tokens);
        text.join("; ")
    }

    pub fn note(&mut self, kind: u64, value: u64) {
        let hash = &mut self.stats.trace_hash;
        *hash = (*hash ^ kind.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ value).wrapping_mul(0x1_0000_01B3).rotate_left(23);
    }

    pub fn tell(&mut self, what: String) {
        if self.watch.is_some() {
            let mut line = String::new();
            let _ = write!(line, "{:>14} ns  {what}", self.queue.now_ns());
            self.history.push(line);
        }
    }
}
