//! The administrator: changes modes and options, destages, cancels, drops, detaches, replaces the SSD, stops and starts, while I/O runs.

use std::collections::BTreeMap;

use engine::api::{Command, CommandFailure, Event, VolumeOptions};
use types::{Mode, VolumeId, VolumeIndex};

use super::replace::Replacement;
use super::{Happening, Step, World, failed};
use crate::course::Kind;
use crate::coverage::{Fault, Phase};
use crate::disk::blocking::Blocking;
use crate::plan::other_options;
use crate::system::{Change, Output};

/// An operator who never rests would leave clients no time.
const ACTS_MAX: u64 = 300;

/// What the operator does, by the weights of a plan.
const ACTS: [&str; 7] =
    ["other options", "a destage", "a destage", "a check or a drop of what is clean", "a detach or release", "a clean stop", "another SSD"];

/// Segments of a shard that are checked, one now and then; most plans have fewer.
const SEGMENTS_CHECKED: u64 = 20;

/// Blocking calls of a stop, where blocks lie in slots and that is nearly all.
const STOP_CALLS: u64 = 12;

/// What a command was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    SetOptions,
    Destage,
    /// Destage of a volume that clients leave alone: afterwards all of it is at home.
    DestageQuiet,
    DropClean,
    /// First step of detaching.
    DestageToDetach,
    Detach,
    Quiesce,
    /// Steps of a replacement of the SSD.
    DestageToReplace,
    QuiesceToReplace,
    Check,
    /// The backing device is let go, and comes again.
    Release,
    /// The SSD was lost: what it holds and is clean becomes void before clients come.
    DropStale,
    /// Before it is attached: what was written past the SSD becomes void.
    VoidPast,
}

impl Purpose {
    /// It wants the clients of all volumes away.
    fn concerns_all(self) -> bool {
        matches!(self, Purpose::Quiesce | Purpose::QuiesceToReplace)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub purpose: Purpose,
    pub volume: u16,
}

/// What the operator waits for.
#[derive(Default)]
pub(crate) struct Operator {
    next_token: u64,
    pub waiting: BTreeMap<u64, Waiting>,
    cancelled: Vec<u64>,
    /// When each command was given.
    begun_ns: BTreeMap<u64, u64>,
    /// Begins when the volumes it needs have nothing in flight.
    intent: Option<Waiting>,
    pub replacement: Option<Replacement>,
    /// The SSD failed, and he is going to replace it.
    pub ssd_failed: bool,
}

impl Operator {
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.cancelled.clear();
        self.begun_ns.clear();
        self.intent = None;
        self.replacement = None;
        self.ssd_failed = false;
    }

    pub fn waiting_text(&self) -> Vec<String> {
        self.waiting.iter().map(|(token, waiting)| format!("command {token}: {waiting:?}")).collect()
    }

    /// Whether a command of that kind is under way (see [`crate::plan::Plan::meddles`]).
    pub fn is_at(&self, command: u8) -> bool {
        self.waiting.values().any(|waiting| match waiting.purpose {
            Purpose::SetOptions => command == 0,
            Purpose::Destage | Purpose::DestageQuiet => command == 1,
            Purpose::DestageToDetach | Purpose::Detach => command == 2,
            Purpose::DestageToReplace | Purpose::QuiesceToReplace => command == 3,
            Purpose::DropClean | Purpose::Release | Purpose::Quiesce | Purpose::Check | Purpose::DropStale | Purpose::VoidPast => false,
        })
    }

    pub fn idle(&self) -> bool {
        self.waiting.is_empty() && self.intent.is_none()
    }
}

impl World<'_> {
    pub fn command(&mut self, purpose: Purpose, volume: u16, make: impl FnOnce(u64) -> Command) -> u64 {
        self.operator.next_token += 1;
        let token = self.operator.next_token;
        let command = make(token);
        self.note(80 + purpose as u64, token);
        self.tell(format!("operator: {command:?}"));
        self.operator.waiting.insert(token, Waiting { purpose, volume });
        self.cover(Fault::Operator);
        let now = self.queue.now_ns();
        self.operator.begun_ns.insert(token, now);
        self.system_mut().command(now, command);
        token
    }

    pub fn set_options(&mut self, volume: u16, options: VolumeOptions) {
        let sent = options.clone();
        let token =
            self.command(Purpose::SetOptions, volume, |token| Command::SetOptions { token, volume: VolumeIndex(volume), options: sent });
        let state = &mut self.volumes[usize::from(volume)];
        let keeps_back = options.mode == Mode::WriteBack;
        if keeps_back {
            (state.settled, state.always_settled) = (false, false);
            state.write_backs += 1;
        }
        state.settles_with = (!keeps_back).then_some(token);
        // Another limit from now on; what is dirty by then was so before.
        state.dirty_blocks = Vec::new();
        state.before = Some(std::mem::replace(&mut state.options, options));
    }

    pub fn destage(&mut self, volume: u16, purpose: Purpose) -> u64 {
        self.command(purpose, volume, |token| Command::Destage { token, volume: VolumeIndex(volume) })
    }

    pub fn operator_turn(&mut self) -> Step {
        let enough = self.clients.requests_left == 0 || self.stats.acts > ACTS_MAX;
        if !self.safety || (enough && self.operator.idle()) {
            return Ok(());
        }
        if let Some(wait_ns) = self.course.early_by(Kind::Act).filter(|_| self.operator.idle()) {
            self.queue.after(wait_ns, Happening::Operator);
            return Ok(());
        }
        let wait = if self.operator.idle() { 1 } else { 10 };
        // While clients rest he mostly does too.
        let typical_ns = if self.rest_left_ns().is_some() { 500_000_000 } else { self.plan.operator_ns * wait };
        let delay = self.prng.spread(typical_ns);
        self.queue.after(delay, Happening::Operator);
        if self.operator.intent.is_some() {
            return self.pursue();
        }
        if !self.operator.idle() {
            self.maybe_cancel();
            return Ok(());
        }
        if self.plan.operator.iter().all(|weight| *weight == 0) {
            return Ok(());
        }
        let choice = self.course.next(Kind::Act);
        self.scene(choice);
        let volume = self.prng.below(self.volumes.len() as u64) as u16;
        let act = if std::mem::take(&mut self.operator.ssd_failed) { 6 } else { self.prng.weighted(&self.plan.operator) };
        if !self.course.happens(choice, || format!("operator: {} of volume {volume}", ACTS[act])) {
            return Ok(());
        }
        match act {
            0 => {
                let mut options = other_options(&mut self.prng);
                if self.prng.percent(30) {
                    options.mode = self.volumes[usize::from(volume)].options.mode;
                }
                if self.plan.meddles.is_some() {
                    let back = self.volumes[usize::from(volume)].options.mode == Mode::WriteBack;
                    options.mode = if back { Mode::WriteThrough } else { Mode::WriteBack };
                    options.write_cache_depth_ns = 30_000_000_000;
                }
                if options.mode == Mode::WriteBack && !self.record(Change::MayHaveDirty(volume))? {
                    return self.start();
                }
                self.set_options(volume, options);
            }
            1 | 2 => {
                if self.prng.percent(40) {
                    self.intend(Purpose::DestageQuiet, volume)?;
                } else {
                    self.destage(volume, Purpose::Destage);
                }
            }
            // What a check finds bad it tells as an event: one without a cause is a failure like any other.
            3 if self.prng.percent(50) => {
                let segment = self.segment_to_check();
                self.command(Purpose::Check, volume, |token| Command::Check { token, segment });
            }
            3 => {
                self.command(Purpose::DropClean, volume, |token| Command::DropClean { token, volume: VolumeIndex(volume) });
            }
            4 if self.plan.releases && self.prng.percent(75) => self.intend(Purpose::Release, volume)?,
            4 => self.intend(Purpose::DestageToDetach, volume)?,
            5 => self.intend(Purpose::Quiesce, volume)?,
            _ => self.intend(Purpose::QuiesceToReplace, volume)?,
        }
        Ok(())
    }

    /// Half of the time the one that a shard is just writing: what lies there is not all placed yet when the check begins.
    fn segment_to_check(&mut self) -> u32 {
        let any = self.prng.below(SEGMENTS_CHECKED) as u32;
        let layout = crate::daemon::layout(self.plan);
        let into_log = |offset_bytes: u64| offset_bytes.checked_sub(layout.segments_at_bytes());
        let youngest = self.log_writes.youngest_bytes().and_then(into_log).filter(|_| self.prng.percent(50));
        youngest.map_or(any, |bytes| (bytes / u64::from(layout.segment_bytes) % u64::from(layout.segments_per_shard)) as u32)
    }

    fn maybe_cancel(&mut self) {
        if self.plan.operator[2] == 0 || !self.prng.percent(30) {
            return;
        }
        let cancellable = |waiting: &Waiting| {
            use Purpose::{Check, Destage, DestageQuiet, DestageToDetach, SetOptions};
            matches!(waiting.purpose, Destage | DestageQuiet | DestageToDetach | SetOptions | Check)
        };
        let Some(token) = self.operator.waiting.iter().find(|(_, waiting)| cancellable(waiting)).map(|(token, _)| *token) else {
            return;
        };
        let choice = self.course.next(Kind::Cancel);
        if !self.course.happens(choice, || format!("operator: cancels command {token}")) {
            return;
        }
        self.operator.cancelled.push(token);
        self.tell(format!("operator: cancels {token}"));
        let now = self.queue.now_ns();
        self.system_mut().command(now, Command::Cancel { token });
    }

    /// Something that wants clients away first.
    fn intend(&mut self, purpose: Purpose, volume: u16) -> Step {
        self.operator.intent = Some(Waiting { purpose, volume });
        for (index, state) in self.volumes.iter_mut().enumerate() {
            state.paused |= purpose.concerns_all() || index == usize::from(volume);
        }
        self.pursue()
    }

    /// Carries an intent on when nothing is in flight any more.
    fn pursue(&mut self) -> Step {
        let Some(Waiting { purpose, volume }) = self.operator.intent else { return Ok(()) };
        let busy = |index: usize| self.volumes[index].in_flight > 0;
        let blocked = if purpose.concerns_all() { !self.clients.pending.is_empty() } else { busy(usize::from(volume)) };
        if blocked {
            return Ok(());
        }
        self.operator.intent = None;
        match purpose {
            Purpose::Quiesce => drop(self.command(purpose, volume, |token| Command::Quiesce { token })),
            Purpose::QuiesceToReplace => self.begin_replacement(),
            Purpose::Release => {
                self.command(purpose, volume, |token| Command::Release { token, volume: VolumeIndex(volume) });
            }
            _ => drop(self.destage(volume, purpose)),
        }
        Ok(())
    }

    pub fn resume(&mut self) {
        for state in &mut self.volumes {
            state.paused = false;
        }
        self.wake_clients();
    }

    pub fn command_done(&mut self, token: u64, result: Result<(), CommandFailure>) -> Step {
        let Some(Waiting { purpose, volume }) = self.operator.waiting.remove(&token) else {
            return Err(failed(format!("command {token} is done, which no operator waits for: {result:?}")));
        };
        self.note(90, token ^ u64::from(result.is_err()) << 60);
        self.tell(format!("command {token} ({purpose:?}) is done: {result:?}"));
        self.stats.acts += 1;
        let cancelled = self.operator.cancelled.contains(&token);
        let state = &mut self.volumes[usize::from(volume)];
        if purpose == Purpose::SetOptions && state.settles_with == Some(token) {
            state.settles_with = None;
            state.settled |= result.is_ok() && !cancelled;
        }
        if purpose == Purpose::SetOptions && cancelled && result.is_err() {
            state.options = state.before.take().expect("kept when it was sent");
            // The larger limit was in force meanwhile.
            state.dirty_blocks = Vec::new();
        }
        if purpose == Purpose::Destage {
            self.destage_refused = result.is_err();
        }
        if let Err(reason) = &result {
            let since_ns = self.operator.begun_ns.get(&token).copied().unwrap_or(0);
            let healed = self.blame.healed_ns.get(&volume).is_some_and(|healed_ns| *healed_ns >= since_ns);
            let wounded = healed || self.wounds.open.keys().any(|(of, _)| *of == volume) || self.blame.destage_failed.contains(&volume);
            if !cancelled && !wounded && !self.explains_error(volume, since_ns, false) {
                return Err(failed(format!("command {token} ({purpose:?}, volume {volume}) failed without a cause: {reason}")));
            }
        }
        match (purpose, result.is_ok() && !cancelled) {
            (Purpose::DestageQuiet, true) => {
                self.check_all_at_home(volume)?;
                self.resume();
            }
            (Purpose::DestageToDetach, true) => self.detach(volume)?,
            (Purpose::DestageQuiet | Purpose::DestageToDetach, false) => self.resume(),
            (Purpose::Detach | Purpose::Release, _) => {
                if purpose == Purpose::Detach && !self.record_mode(volume)? {
                    return self.start();
                }
                self.attach(volume);
                self.resume();
            }
            (Purpose::VoidPast, is_void) => self.past_is_void(volume, is_void),
            (Purpose::DropStale, is_void) => self.stale_is_void(volume, is_void),
            (Purpose::Quiesce, true) => self.stop_and_start()?,
            (Purpose::DestageToReplace, home) => self.destaged_to_replace(volume, home)?,
            (Purpose::QuiesceToReplace, true) => self.exchange_ssd()?,
            (Purpose::Quiesce | Purpose::QuiesceToReplace, false) => self.ends.restart_wanted = true,
            _ => {}
        }
        Ok(())
    }

    pub fn check_all_at_home(&mut self, volume: u16) -> Step {
        for (start, sectors) in self.oracle.written_runs(volume) {
            self.check_at_home(volume, start, sectors)?;
        }
        Ok(())
    }

    /// Everything is at home: the volume's number is retired, then the shards forget it.
    fn detach(&mut self, volume: u16) -> Step {
        self.check_all_at_home(volume)?;
        let id = VolumeId(self.host.retire(self.volumes.len()));
        // First the state outside the SSD: what a crash leaves of the old number is void.
        self.host.renumbered.insert(volume, id.0);
        if !self.record(Change::Retire(volume, id))? {
            return self.start();
        }
        self.command(Purpose::Detach, volume, |token| Command::Detach { token, volume: VolumeIndex(volume) });
        Ok(())
    }

    /// The system is quiet: the clean stop's writes, then another life. Any call may be the last.
    pub fn stop_and_start(&mut self) -> Step {
        if self.devices.iter().any(|device| device.flights().next().is_some()) {
            return Err(failed("I/O in flight after Quiesce was done"));
        }
        self.take_census();
        while let Some(output) = self.system_mut().poll() {
            // All shards hear of a backing device whose flush failed in one, and each tells of it.
            match output {
                Output::Event(lane, event @ Event::BackingFailed(_)) => self.event(lane, event)?,
                output => return Err(failed(format!("after Quiesce was done, the system still wants {output:?}"))),
            }
        }
        let system = self.system.take().expect("a life is running");
        let death = self.prng.below(STOP_CALLS);
        let dies =
            self.safety && self.ends.crashes_left > 0 && self.prng.percent(self.plan.crash_in_blocking_percent) && self.may_die(death);
        let blocking = self.begin_blocking();
        let mut ssd = Blocking::new(&mut self.devices[0], &mut self.disk_prng, dies.then_some(death));
        let result = system.stop(&mut ssd);
        let dead = ssd.dead;
        for class in self.struck_in(blocking) {
            self.stats.coverage.hit(crate::coverage::fault_of(class, true), Phase::Stop);
        }
        self.tell(format!("clean stop: {result:?}, died in it: {dead}"));
        self.end_life();
        if dead {
            self.ends.crashes_left -= 1;
            self.died_in_stop();
        } else if result.is_err() {
            // It did not stop cleanly: what was never acknowledged, though read, may be gone as after a crash.
            self.devices_crash(false);
        } else {
            self.stats.clean_stops += 1;
            self.power_may_go_after_stop();
        }
        self.start()
    }

    fn power_may_go_after_stop(&mut self) {
        if self.safety && self.prng.percent(self.plan.power_percent / 2) {
            self.died_in_stop();
        }
    }
}
