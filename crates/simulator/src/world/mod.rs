//! One run: clients, operator, devices and one life of the system after the other, in virtual time.
//!
//! Rooms: this one holds the state and the main loop; [`clients`] submits and judges; [`operator`] acts; [`life`] crashes
//! and starts; [`commits`] sees that flushes do not wait for destage; [`replace`] exchanges the SSD; [`loss`] has it lost and come back; [`grow`] has volumes grow; [`labels`] lies about objects; [`content`] has textures, hints and levels; [`phases`] looks at what is going on, for coverage; [`finish`] is the liveness phase.

mod blame;
mod busy;
mod clients;
mod commits;
mod content;
mod decay;
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
mod watching;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::ops::Range;

use engine::api::{Command, Completion, Event, IoError, IoId, IoKind, Target, VolumeOptions};
use page::{PageMutVec, PagePool};
use types::{Mode, VolumeIndex};

use crate::content::Content;
use crate::coverage::{Coverage, Fault, fault_of};
use crate::daemon::pages_needed;
use crate::disk::Disk;
use crate::disk::media::Media;
use crate::oracle::{Kind, Oracle, Violation};
use crate::plan::{Plan, VolumePlan};
use crate::prng::Prng;
use crate::scheduler::Scheduler;
use crate::system::{Builder, Cargo, HostRecord, Output, System};
use crate::workload::Client;
use blame::{Answered, Blame};
use clients::Pending;
use commits::Commits;
use gates::Gates;
use log_writes::LogWrites;
use operator::Operator;

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
    /// Device 0 is the SSD, 1 + n the backing device of volume n.
    IoDone(usize, u64),
    /// A flush of this shard on a device that has failed one before.
    FlushRefused(u16, IoId),
    Parcel(u32),
    Client(u16),
    Operator,
    Tick,
    /// The host tells all shards that the SSD is lost.
    SsdFailureTold,
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
    /// Device 0 is the SSD, 1 + n the backing device of volume n.
    pub devices: Vec<Disk>,
    pub gates: Gates,
    pub commits: Commits,
    pub oracle: Oracle,
    pub system: Option<Box<dyn System>>,
    /// The daemon's.
    pub pages: PagePool,
    pub client_pages: PagePool,
    pub clients: Vec<Client>,
    pub client_busy: Vec<u32>,
    pub client_idle: Vec<bool>,
    pub pending: BTreeMap<u64, Pending>,
    pub volumes: Vec<VolumeState>,
    /// Of the log, of each shard, when last looked.
    pub dirty_pages: Vec<(u64, u64)>,
    pub host: HostRecord,
    pub operator: Operator,
    pub channels: BTreeMap<u32, VecDeque<Cargo>>,
    pub requests_left: u32,
    pub next_request: u64,
    pub tick_at: Option<u64>,
    pub steps: u64,
    /// Of them, those until a client was last answered, and since then those that happen again and
    /// again whatever the system does: on a slow SSD a run may have millions.
    pub steps_that_count_not: u64,
    /// The last of these was after the last tick: it makes the next one, too.
    makes_tick: bool,
    /// When a client was last answered.
    pub answered_at_ns: u64,
    pub crash_at: Option<u64>,
    pub crashes_left: u32,
    pub restart_wanted: bool,
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
    pub written_places: BTreeSet<u64>,
    pub reused_places: BTreeSet<u64>,
    pub stats: Outcome,
    /// The SSD as it was in an earlier session, and which.
    pub older_ssd: Option<(u64, Vec<u8>)>,
    /// The SSD that the pool was on before, as it was when it was given up.
    pub former_ssd: Option<Vec<u8>>,
    /// Blocks whose only copy an SSD damaged, as was reported, and when: they need not be at home until they are written anew.
    pub wounded: BTreeMap<(u16, u64), u64>,
    /// Such blocks that were written anew since, and the writes: if a power cut takes them all, the block is as it was.
    pub healed: BTreeMap<(u16, u64), Vec<u32>>,
    pub watch: Option<(u16, u64)>,
    pub history: Vec<String>,
}

/// Steps without an answer to a client after which a run is stuck.
const STEPS_MAX: u64 = 6_000_000;

/// Virtual time without an answer after which the safety phase ends: four hangs of thirty seconds in a row.
const STALL_NS: u64 = 120_000_000_000;

/// Runs this plan. With `watch`, the failure carries the history of that sector.
pub fn run(plan: &Plan, builder: &dyn Builder, watch: Option<(u16, u64)>) -> Result<Outcome, Failure> {
    let mut world = World::new(plan, builder, watch);
    match world.play() {
        Ok(()) => {
            world.stats.virtual_ns = world.queue.now_ns();
            Ok(world.stats)
        }
        Err(mut failure) => {
            failure.history = std::mem::take(&mut world.history);
            Err(failure)
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Failure {
        let place = Some((violation.volume, violation.sector));
        Failure { what: violation.to_string(), place, history: Vec::new() }
    }
}

fn name_of(device: usize) -> String {
    if device == 0 { "SSD".to_string() } else { format!("backing {}", device - 1) }
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
        let clients = (0..plan.connections).map(|index| Client::new(plan, root.fork(100 + u64::from(index)))).collect();
        let mut prng = root.fork(2);
        let pool_uuid = std::array::from_fn(|_| prng.bits() as u8);
        World {
            plan,
            builder,
            prng,
            disk_prng: root.fork(3),
            queue: Scheduler::new(root.fork(4)),
            devices,
            oracle: Oracle::new(&sizes, &begin_as),
            system: None,
            pages: PagePool::new(pages_needed(plan)),
            client_pages: PagePool::new(16 << 10),
            clients,
            client_busy: vec![0; usize::from(plan.connections)],
            client_idle: vec![false; usize::from(plan.connections)],
            pending: BTreeMap::new(),
            volumes,
            dirty_pages: Vec::new(),
            host: HostRecord::of_new_pool(pool_uuid),
            operator: Operator::default(),
            channels: BTreeMap::new(),
            requests_left: plan.requests,
            next_request: 1,
            tick_at: None,
            steps: 0,
            steps_that_count_not: 0,
            makes_tick: false,
            answered_at_ns: 0,
            crash_at: None,
            crashes_left: plan.crashes,
            restart_wanted: false,
            destage_refused: false,
            safety: true,
            ssd_lied: false,
            blame: Blame::default(),
            content: content::Treatment::of(plan, root.fork(5)),
            labels: labels::Labels::of(plan, root.fork(6)),
            ssd_failed: false,
            loss: loss::Loss::none(plan.shards),
            log_writes: LogWrites::default(),
            gates: Gates::default(),
            commits: Commits::new(plan.volumes.len()),
            written_places: BTreeSet::new(),
            reused_places: BTreeSet::new(),
            stats: Outcome { trace_hash: 0xCBF2_9CE4_8422_2325, ..Outcome::default() },
            older_ssd: None,
            former_ssd: None,
            wounded: BTreeMap::new(),
            healed: BTreeMap::new(),
            watch,
            history: Vec::new(),
        }
    }

    fn play(&mut self) -> Step {
        self.format()?;
        self.start()?;
        self.plan_misfortunes();
        while self.requests_left > 0 || !self.pending.is_empty() {
            self.step()?;
            if self.queue.now_ns() > self.answered_at_ns + STALL_NS {
                // A device refuses for good and everybody waits for it: how that ends is seen once faults stop.
                break;
            }
            let out_of_work = self.requests_left == 0 && self.pending.is_empty();
            if self.crash_is_due() || self.restart_wanted || (out_of_work && self.crashes_left > 0) {
                self.restart_wanted = false;
                self.crash_and_restart()?;
            }
        }
        self.finish()
    }

    /// A crash that waits for a command waits this many steps at most.
    fn crash_is_due(&self) -> bool {
        let patience = if self.plan.meddles.is_some_and(|command| !self.operator.is_at(command)) { 1_000 } else { 0 };
        self.crash_at.is_some_and(|at| self.steps >= at + patience)
    }

    /// Schedules what befalls devices in the safety phase.
    fn plan_misfortunes(&mut self) {
        let span_ns = u64::from(self.plan.requests) * self.plan.think_ns.max(20_000);
        if self.plan.ssd_leaves && self.builder.uses_ssd() {
            let at = self.prng.below(span_ns);
            self.queue.after(at, Happening::SsdLeaves);
        }
        if self.plan.backing_leaves {
            let at = self.prng.below(span_ns);
            self.queue.after(at, Happening::BackingLeaves(true));
        }
        if self.plan.rot_ns > 0 && self.builder.uses_ssd() {
            self.queue.after(self.plan.rot_ns, Happening::Rot);
        }
        if self.plan.disconnect_ns > 0 {
            self.queue.after(self.plan.disconnect_ns, Happening::Disconnect);
        }
        if self.plan.shortage_ns > 0 {
            self.queue.after(self.plan.shortage_ns, Happening::Shortage(true));
        }
        if self.plan.busy_ns > 0 {
            self.queue.after(self.plan.busy_ns, Happening::Busy(true));
        }
        if self.plan.grow_ns > 0 {
            self.queue.after(self.plan.grow_ns, Happening::Grow);
        }
        self.plan_content();
        self.plan_labels();
    }

    /// Lets the next thing happen.
    pub fn step(&mut self) -> Step {
        self.steps += 1;
        if self.steps - self.steps_that_count_not > STEPS_MAX {
            let inside = self.system_mut().describe();
            return Err(failed(format!("no answer for {STEPS_MAX} steps; pending: {}; {inside}", self.pending_text())));
        }
        self.check_flushes()?;
        let Some(happening) = self.queue.pop() else {
            return Err(failed(format!("nothing more will happen; pending: {}", self.pending_text())));
        };
        let now = self.queue.now_ns();
        self.note(1, now);
        let by_itself = matches!(happening, Happening::Shortage(_) | Happening::Busy(_) | Happening::Labels | Happening::Content(_));
        let follows = matches!(happening, Happening::Tick) && std::mem::take(&mut self.makes_tick);
        self.makes_tick |= by_itself;
        self.steps_that_count_not += u64::from(by_itself || follows);
        match happening {
            Happening::IoDone(device, token) => self.io_done_unless_held(device, token)?,
            Happening::FlushRefused(lane, id) => {
                self.answer_io(lane, Completion { id, result: Err(IoError::Failed), pages: PageMutVec::new() });
            }
            Happening::Parcel(channel) => {
                let cargo = self.channels.get_mut(&channel).and_then(VecDeque::pop_front).expect("one per event");
                self.system_mut().deliver(now, cargo);
            }
            Happening::Client(connection) => self.client_turn(connection),
            Happening::Operator => self.operator_turn()?,
            Happening::Tick => {
                if self.tick_at.is_some_and(|at| at <= now) {
                    self.tick_at = None;
                }
                self.system_mut().tick(now);
            }
            Happening::SsdFailureTold => self.system_mut().command(now, Command::SsdFailed),
            Happening::DegradedRecorded => self.record_loss(),
            Happening::GoingHomeTold => self.goes_home_told(),
            Happening::SsdForgotten(volume) => self.record_forgotten(volume),
            Happening::PastRecorded { volume, blocks, token } => self.record_past(volume, blocks, token),
            Happening::BackingFailureTold(volume) => self.system_mut().command(now, Command::BackingFailed { volume }),
            Happening::Rot => self.rot(),
            Happening::SsdLeaves => {
                self.devices[0].faults.gone = true;
                self.tell("the SSD leaves".to_string());
            }
            Happening::BackingLeaves(leaves) => {
                self.devices[1].faults.gone = leaves;
                if leaves {
                    let back_ns = self.prng.pick(&[100_000, 100_000_000]);
                    self.queue.after(back_ns, Happening::BackingLeaves(false));
                }
            }
            Happening::Restart => self.restart_wanted = true,
            Happening::Disconnect => self.disconnect(),
            Happening::Shortage(begins) => self.shortage(begins),
            Happening::Busy(is_busy) => self.host_busy(is_busy),
            Happening::Grow => self.grow_turn()?,
            Happening::Labels => self.labels_turn(),
            Happening::Content(turn) => self.content_turn(turn),
        }
        let drained = self.drain();
        self.blame.answer_taken_in();
        drained
    }

    pub fn system_mut(&mut self) -> &mut dyn System {
        self.system.as_deref_mut().expect("a life is running")
    }

    /// Takes everything the system wants done now.
    pub fn drain(&mut self) -> Step {
        while let Some(output) = self.system_mut().poll() {
            match output {
                Output::Io(lane, io) => self.io_begin(lane, io)?,
                Output::Reply(reply) => self.reply(reply)?,
                Output::Parcel(parcel) => {
                    self.channels.entry(parcel.channel).or_default().push_back(parcel.cargo);
                    let delay = if self.plan.message_ns == 0 { 0 } else { self.prng.spread(self.plan.message_ns) };
                    self.queue.after(delay, Happening::Parcel(parcel.channel));
                }
                Output::Event(lane, event) => self.event(lane, event)?,
                Output::Done(token, result) => self.command_done(token, result)?,
            }
        }
        if self.steps.is_multiple_of(64) || self.plan.requests <= 8 {
            self.system_mut().check_invariants();
            self.check_dirty_limits()?;
            self.check_dirty_pages()?;
        }
        self.look();
        if let Some(at) = self.system_mut().next_deadline() {
            let now = self.queue.now_ns();
            if self.tick_at.is_none_or(|planned| at < planned) {
                let at = at.max(now + 1);
                self.tick_at = Some(at);
                self.queue.after(at - now, Happening::Tick);
            }
        }
        Ok(())
    }

    fn io_begin(&mut self, lane: u16, io: engine::api::Io) -> Step {
        let device = match io.target {
            Target::Ssd => 0,
            Target::Backing(volume) => 1 + usize::from(volume.0),
        };
        self.stats.ios += 1;
        self.note(2 + device as u64, io.offset_bytes ^ io.length_bytes << 40 ^ u64::from(lane) << 60);
        self.watch_io(device, &io, "begins", None);
        self.commits.io_begins(device, &io);
        if device == 0 {
            self.check_no_race_on_ssd(&io)?;
            self.see_log_write(lane, &io);
        }
        if !matches!(io.kind, IoKind::Flush) || self.flush_begins(device, lane, io.id) {
            self.device_begin(device, lane, io);
        }
        Ok(())
    }

    /// Hands an I/O to its device.
    pub fn device_begin(&mut self, device: usize, lane: u16, io: engine::api::Io) {
        let now = self.queue.now_ns();
        let (token, delay_ns) = self.devices[device].begin(now, lane, io, &mut self.disk_prng);
        self.queue.after(delay_ns, Happening::IoDone(device, token));
        self.count_strikes(device);
    }

    fn io_done(&mut self, device: usize, token: u64) {
        if self.watch.is_some() {
            self.tell_io_done(device, token);
        }
        let (is_flush, is_read) = (self.devices[device].is_flush(token), self.devices[device].is_read(token));
        let (offset_bytes, length_bytes) = self.devices[device].place(token);
        if device == 0 && is_flush && self.devices[0].will_drop(token) {
            let dropped = self.devices[0].media.unflushed_pages();
            let next_token = self.devices[0].next_token();
            dropped.iter().for_each(|page| self.blame.taint(page * 4096, 4096, next_token));
        }
        let (lane, mut completion, strike) = self.devices[device].finish(token, &mut self.disk_prng);
        if device == 0 && self.watch.is_some() {
            let found = self.copies_in(offset_bytes, completion.pages.iter().map(|page| &page[..]));
            if !found.is_empty() {
                self.tell(format!("SSD: I/O {} of lane {lane} has read{found}", completion.id.0));
            }
        }
        use crate::disk::faults::Strike;
        match strike {
            Strike::FlushError { drop_pages: true } if device > 0 => self.oracle.drop_unflushed(device as u16 - 1),
            Strike::FlushError { drop_pages: true } => self.give_up_unsettled(),
            Strike::Lost | Strike::Misdirected { .. } | Strike::Rot if device == 0 => {
                self.ssd_lied |= self.plan.ssd_faults.corrupt_write_per_10k > 0;
            }
            _ => {}
        }
        let now = self.queue.now_ns();
        if is_flush {
            if let (0, Strike::FlushError { drop_pages: true }) = (device, strike) {
                self.blame.ssd_harmed = true;
            }
            return self.flush_ended(device, lane, completion.id, completion.result);
        }
        if !is_read && self.has_failed_a_flush(device) {
            completion.result = Err(IoError::Failed);
        }
        if device == 0 {
            self.log_writes.ends(lane, completion.id);
            let (next_token, failed) = (self.devices[0].next_token(), completion.result.is_err());
            self.blame.ssd_answered(Answered { lane, token, next_token, offset_bytes, length_bytes, is_read, strike, failed }, now);
        } else if completion.result.is_err() {
            self.blame.strikes(device, now);
            // A host that has given the device up leaves the pages to the kernel.
            if token.is_multiple_of(2) {
                completion.pages = PageMutVec::new();
            }
        }
        self.answer_io(lane, completion);
    }

    /// The SSD dropped what it had not flushed: acknowledged writes that only its log held may be gone.
    pub fn give_up_unsettled(&mut self) {
        for volume in 0..self.volumes.len() {
            if !self.volumes[volume].settled {
                self.oracle.drop_unflushed(volume as u16);
            }
        }
    }

    /// Counts what struck a device, in the phases of this moment.
    pub fn count_strikes(&mut self, device: usize) {
        let struck = std::mem::take(&mut self.devices[device].faults.struck);
        for class in struck {
            self.cover(fault_of(class, device == 0));
        }
    }

    pub fn cover(&mut self, fault: Fault) {
        for phase in self.phases() {
            self.stats.coverage.hit(fault, phase);
        }
    }

    fn event(&mut self, lane: u16, event: Event) -> Step {
        self.tell(format!("shard {lane} reports {event:?}"));
        let now = self.queue.now_ns();
        let bad_copy = self.blame.explains_bad_copy(lane);
        let device = |volume: &VolumeIndex| 1 + usize::from(volume.0);
        let (name, excused) = match &event {
            Event::SsdFailed { .. } => ("SsdFailed", self.blame.ssd_failed),
            Event::NothingDirty(_) => ("NothingDirty", self.blame.ssd_failed),
            Event::GoingHome => ("GoingHome", self.blame.ssd_failed),
            Event::PastSsd { .. } => ("PastSsd", self.blame.ssd_failed),
            Event::BackingFailed(volume) => ("BackingFailed", self.blame.flush_failed.contains(&device(volume))),
            // A block once found unreadable stays so, also where its bad content was carried to.
            Event::DirtyBlockUnreadable(volume, block) => {
                let known = self.wounded.contains_key(&(volume.0, *block)) || self.blame.explains_missing(volume.0, *block);
                ("DirtyBlockUnreadable", bad_copy || known)
            }
            Event::ChecksumMismatch(volume, block) => {
                let known = self.wounded.contains_key(&(volume.0, *block)) || self.blame.kinship.explains_clean(volume.0, *block);
                ("ChecksumMismatch", self.blame.explains_bad_clean_copy(lane) || known)
            }
            Event::DestageFailed(volume, _) => {
                let backing = self.blame.struck_since(device(volume), now) || self.blame.flush_failed.contains(&device(volume));
                ("DestageFailed", bad_copy || backing || self.blame.ssd_failed || self.blame.kinship.explains_some(volume.0))
            }
            Event::CommandDone(..) => ("CommandDone", false),
        };
        *self.stats.events.entry(name).or_default() += 1;
        if !excused {
            return Err(failed(format!("{event:?} although no device failed")));
        }
        match event {
            Event::DestageFailed(volume, _) => {
                self.blame.destage_failed.insert(volume.0);
            }
            Event::DirtyBlockUnreadable(volume, block) => self.wound((volume.0, block)),
            Event::SsdFailed { .. } if !self.ssd_failed => self.ssd_fails(),
            Event::NothingDirty(volume) => self.nothing_dirty(lane, volume),
            Event::GoingHome => self.goes_home(),
            Event::PastSsd { token, volume, blocks } => self.written_past(volume, blocks, token),
            Event::BackingFailed(volume) => {
                let state = &mut self.volumes[usize::from(volume.0)];
                if !state.backing_failed {
                    state.backing_failed = true;
                    let told = self.prng.pick(&[1_000, 1_000_000]);
                    self.queue.after(told, Happening::BackingFailureTold(volume));
                    let delay = self.prng.spread(20_000_000);
                    self.queue.after(delay, Happening::Restart);
                }
            }
            _ => {}
        }
        Ok(())
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
