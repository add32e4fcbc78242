//! The main loop: one happening after the other, and what the system wants done after each.

use std::collections::VecDeque;

use engine::api::{Command, Completion, Event, IoError};
use page::PageMutVec;
use types::VolumeIndex;

use super::devices::backing_of;
use super::{Failure, Happening, Outcome, Step, World, failed};
use crate::course::Course;
use crate::plan::Plan;
use crate::system::{Builder, Output};

/// Steps without an answer to a client after which a run is stuck.
const STEPS_MAX: u64 = 6_000_000;

/// Virtual time without an answer after which the safety phase ends: four hangs of thirty seconds in a row.
const STALL_NS: u64 = 120_000_000_000;

/// Runs this plan. With `watch`, the failure carries the history of that sector.
pub fn run(plan: &Plan, builder: &dyn Builder, watch: Option<(u16, u64)>) -> Result<Outcome, Failure> {
    run_on(plan, builder, watch, Course::free())
}

/// The same on a course: recorded, or with steps left out.
pub fn run_on(plan: &Plan, builder: &dyn Builder, watch: Option<(u16, u64)>, course: Course) -> Result<Outcome, Failure> {
    let mut world = World::new(plan, builder, watch);
    course.tape([&mut world.prng, &mut world.disk_prng, world.queue.prng()]);
    world.course = course;
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

/// How far a run is.
#[derive(Default)]
pub(crate) struct Progress {
    /// When the system wants a tick.
    pub tick_at: Option<u64>,
    pub steps: u64,
    /// Of them, those until a client was last answered, and since then those that happen again and
    /// again whatever the system does: on a slow SSD a run may have millions.
    steps_that_count_not: u64,
    /// The last of these was after the last tick: it makes the next one, too.
    makes_tick: bool,
    /// When a client was last answered.
    answered_at_ns: u64,
}

impl Progress {
    /// A client was answered.
    pub fn answered(&mut self, now_ns: u64) {
        (self.answered_at_ns, self.steps_that_count_not) = (now_ns, self.steps);
    }
}

impl World<'_> {
    fn play(&mut self) -> Step {
        self.logs = self.log_of_before();
        self.format()?;
        self.start()?;
        self.plan_misfortunes();
        while self.clients.requests_left > 0 || !self.clients.pending.is_empty() {
            self.step()?;
            if self.queue.now_ns() > self.progress.answered_at_ns + STALL_NS {
                // A device refuses for good and everybody waits for it: how that ends is seen once faults stop.
                break;
            }
            let out_of_work = self.clients.requests_left == 0 && self.clients.pending.is_empty();
            let would_crash = self.crash_is_due() || (out_of_work && self.ends.crashes_left > 0);
            if self.course.crashes(would_crash, out_of_work) || self.ends.restart_wanted {
                self.ends.restart_wanted = false;
                self.crash_and_restart()?;
            }
        }
        self.finish()
    }

    /// A crash that waits for a command waits this many steps at most.
    fn crash_is_due(&self) -> bool {
        let patience = if self.plan.meddles.is_some_and(|command| !self.operator.is_at(command)) { 1_000 } else { 0 };
        self.ends.crash_at.is_some_and(|at| self.progress.steps >= at + patience)
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
        self.progress.steps += 1;
        if self.progress.steps - self.progress.steps_that_count_not > STEPS_MAX {
            let inside = self.system_mut().describe();
            return Err(failed(format!("no answer for {STEPS_MAX} steps; pending: {}; {inside}", self.pending_text())));
        }
        self.check_flushes()?;
        let Some(happening) = self.queue.pop() else {
            return Err(failed(format!("nothing more will happen; pending: {}", self.pending_text())));
        };
        let now = self.queue.now_ns();
        self.note(1, now);
        self.course.event_at(now);
        self.begin_scene(&happening);
        let by_itself = matches!(happening, Happening::Shortage(_) | Happening::Busy(_) | Happening::Labels | Happening::Content(_));
        let follows = matches!(happening, Happening::Tick) && std::mem::take(&mut self.progress.makes_tick);
        self.progress.makes_tick |= by_itself;
        self.progress.steps_that_count_not += u64::from(by_itself || follows);
        if let Some(next_ns) = self.is_left_out(&happening) {
            if let Some(next_ns) = next_ns {
                self.queue.after(next_ns, happening);
            }
            return self.drain();
        }
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
                if self.progress.tick_at.is_some_and(|at| at <= now) {
                    self.progress.tick_at = None;
                }
                self.system_mut().tick(now);
            }
            Happening::SsdFailureTold(ssd) => self.system_mut().command(now, Command::SsdFailed { ssd }),
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
            Happening::BackingLeaves(leaves) => self.backing_leaves(leaves),
            Happening::Restart => self.ends.restart_wanted = true,
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

    fn backing_leaves(&mut self, leaves: bool) {
        self.devices[1].faults.gone = leaves;
        if leaves {
            let back_ns = self.prng.pick(&[100_000, 100_000_000]);
            self.queue.after(back_ns, Happening::BackingLeaves(false));
        }
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
        if self.progress.steps.is_multiple_of(64) || self.plan.requests <= 8 {
            self.system_mut().check_invariants();
            self.check_dirty_limits()?;
            self.check_dirty_pages()?;
        }
        self.look();
        if let Some(at) = self.system_mut().next_deadline() {
            let now = self.queue.now_ns();
            if self.progress.tick_at.is_none_or(|planned| at < planned) {
                let at = at.max(now + 1);
                self.progress.tick_at = Some(at);
                self.queue.after(at - now, Happening::Tick);
            }
        }
        Ok(())
    }

    pub fn event(&mut self, lane: u16, event: Event) -> Step {
        self.tell(format!("shard {lane} reports {event:?}"));
        let now = self.queue.now_ns();
        let bad_copy = self.blame.explains_bad_copy(lane);
        let device = |volume: &VolumeIndex| backing_of(volume.0);
        let (name, excused) = match &event {
            Event::SsdFailed { .. } => ("SsdFailed", self.blame.ssd_failed),
            Event::NothingDirty(_) => ("NothingDirty", self.blame.ssd_failed),
            Event::GoingHome => ("GoingHome", self.blame.ssd_failed),
            Event::PastSsd { .. } => ("PastSsd", self.blame.ssd_failed),
            Event::BackingFailed(volume) => ("BackingFailed", self.blame.flush_failed.contains(&device(volume))),
            // A block once found unreadable stays so, also where its bad content was carried to.
            Event::DirtyBlockUnreadable(volume, block) => {
                let known = self.wounds.open.contains_key(&(volume.0, *block)) || self.blame.explains_missing(volume.0, *block);
                ("DirtyBlockUnreadable", bad_copy || known)
            }
            Event::ChecksumMismatch(volume, block) => {
                let known = self.wounds.open.contains_key(&(volume.0, *block)) || self.blame.kinship.explains_clean(volume.0, *block);
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
            Event::SsdFailed { ssd, .. } if !self.ssd_failed => self.ssd_fails(ssd),
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
}
