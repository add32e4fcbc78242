//! A load as a state machine: which request begins when, and what is counted when it ends. It does no I/O and reads no clock, so that the same code plays
//! on a device, in process, and in tests on a disk and a time that are made up.
//!
//! The driver calls [`Player::step`] until it says to wait, [`Player::ended`] for every answer, and [`Player::poll_second`] now and then; all with the time
//! in nanoseconds, which never goes back.

use super::loaded::Loaded;
use super::meter::Meter;
use super::{Load, Pace};
use crate::pattern::{Request, Requests};
use crate::random::Random;
use crate::result::Second;
use crate::trouble::Trouble;
use std::collections::{HashMap, HashSet};

/// The most requests under way: what one thread is asked for, and what block layers and NBD clients keep in flight.
pub const DEPTH_MAX: u32 = 256;
/// How long after its end an open loop waits for requests that were due before: a tenth of its time, but at least this.
const LATE_NS: u64 = 2_000_000_000;

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begin this request now.
    Begin(Order),
    /// Nothing until an answer comes, or until this time (nanoseconds).
    Wait(u64),
    /// The load is over. Of an open loop, requests may still be under way: their answers count no more.
    Over,
}

/// A request under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Names it until it ends: below the depth.
    pub slot: usize,
    /// What to do.
    pub request: Request,
    /// Of what is written; of what must be read, if that is to be verified.
    pub version: u64,
    /// From when on its time counts, in nanoseconds.
    since_ns: u64,
}

/// See the module.
pub struct Player {
    requests: Requests,
    block_bytes: u64,
    pace: Pace,
    begin_ns: u64,
    /// From then on nothing new is due; the load is over when all is answered, or a closed one's answers count no more.
    end_ns: u64,
    requests_left: u64,
    /// Orders by slot.
    under_way: Vec<Option<Order>>,
    free: Vec<usize>,
    gaps: Random,
    /// Of an open loop: when the next request is due. All that are due and not begun wait between then and now.
    due_ns: u64,
    /// The same, in seconds since the begin.
    due_s: f64,
    /// How many were due until then.
    drawn: u64,
    versions: u64,
    verified: Option<Verified>,
    /// Drawn, and waiting for an earlier one of the same place to end.
    held: Option<Request>,
    meter: Meter,
    /// When the last answer that counts came.
    last_ns: u64,
}

/// What must be read where.
#[derive(Default)]
struct Verified {
    /// Version by place; 0 where nothing was written since the fill.
    versions: HashMap<u64, u64>,
    /// Places of requests under way: others of the same place wait, since their order would be anybody's.
    busy: HashSet<u64>,
}

impl Player {
    /// A load that begins now.
    ///
    /// # Errors
    /// If it cannot be played.
    pub fn new(load: &Load, now_ns: u64) -> Result<Player, Trouble> {
        let usage = |why: &str| Trouble::Usage(format!("this load cannot be played: {why}"));
        let requests = Requests::new(load.pattern.clone(), load.seed).map_err(usage)?;
        let depth = match load.pace {
            Pace::Closed { depth } => depth,
            Pace::Open { per_s, .. } if !(per_s.is_finite() && per_s > 0.0) => return Err(usage("its rate is not above 0")),
            Pace::Open { depth_max, .. } => depth_max,
        };
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(usage("its depth is not 1 to 256"));
        }
        if load.length.time.is_none() && load.length.requests.is_none() {
            return Err(usage("it has no end"));
        }
        let end_ns = load.length.time.map_or(u64::MAX, |time| now_ns.saturating_add(time.as_nanos() as u64));
        let mut player = Player {
            requests,
            block_bytes: load.pattern.block_bytes,
            pace: load.pace,
            begin_ns: now_ns,
            end_ns,
            requests_left: load.length.requests.unwrap_or(u64::MAX),
            under_way: vec![None; depth as usize],
            free: (0..depth as usize).rev().collect(),
            // Not the numbers that the places are drawn from.
            gaps: Random::new(!load.seed),
            due_ns: now_ns,
            due_s: 0.0,
            drawn: 0,
            versions: 0,
            verified: load.verify.then(Verified::default),
            held: None,
            meter: Meter::new(now_ns),
            last_ns: now_ns,
        };
        player.draw_gap();
        Ok(player)
    }

    /// How many are under way.
    pub fn in_flight(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// Nothing new is due from now on.
    pub fn end(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    /// What to do now.
    pub fn step(&mut self, now_ns: u64) -> Step {
        if !self.has_more(now_ns) {
            // A closed loop awaits its last answers however long they take.
            let wait = if self.is_open() { self.late_ns() } else { u64::MAX };
            return if self.in_flight() == 0 || now_ns >= wait { Step::Over } else { Step::Wait(wait) };
        }
        let end_ns = if self.is_open() { self.late_ns() } else { self.end_ns };
        if self.free.is_empty() {
            return Step::Wait(end_ns);
        }
        let mut since_ns = now_ns;
        if self.is_open() {
            if self.due_ns > now_ns {
                return Step::Wait(self.due_ns);
            }
            since_ns = self.due_ns;
        }
        let request = self.held.take().or_else(|| self.requests.next()).expect("patterns have no end");
        if self.verified.as_ref().is_some_and(|verified| verified.busy.contains(&request.offset_bytes)) {
            self.held = Some(request);
            return Step::Wait(end_ns);
        }
        self.draw_gap();
        Step::Begin(self.begin(request, since_ns))
    }

    fn begin(&mut self, request: Request, since_ns: u64) -> Order {
        self.requests_left -= 1;
        if request.is_write {
            self.versions += 1;
        }
        let mut version = self.versions;
        if let Some(verified) = &mut self.verified {
            verified.busy.insert(request.offset_bytes);
            if !request.is_write {
                version = verified.versions.get(&request.offset_bytes).copied().unwrap_or(0);
            }
        }
        let slot = self.free.pop().expect("a slot is free");
        let order = Order { slot, request, version, since_ns };
        self.under_way[slot] = Some(order);
        order
    }

    /// Its data has been made, which is no part of its time in a closed loop.
    pub fn made(&mut self, slot: usize, now_ns: u64) {
        if !self.is_open()
            && let Some(order) = &mut self.under_way[slot]
        {
            order.since_ns = now_ns;
        }
    }

    /// Where the request of a slot lies.
    pub fn offset_of(&self, slot: usize) -> u64 {
        self.under_way[slot].expect("an order is under way").request.offset_bytes
    }

    /// A request was answered, and well. Gives what it was.
    pub fn ended(&mut self, slot: usize, now_ns: u64) -> Order {
        let order = self.under_way[slot].take().expect("an order ends once");
        self.free.push(slot);
        if let Some(verified) = &mut self.verified {
            verified.busy.remove(&order.request.offset_bytes);
            if order.request.is_write {
                verified.versions.insert(order.request.offset_bytes, order.version);
            }
        }
        let is_late = now_ns > self.end_ns;
        // What a closed loop had under way when its time was over belongs to no second.
        if !is_late || self.is_open() {
            let took_ns = now_ns.saturating_sub(order.since_ns);
            self.meter.record(now_ns, order.request.is_write, self.block_bytes, took_ns);
            self.last_ns = now_ns;
        }
        order
    }

    /// The next second that is over and was not told yet.
    pub fn poll_second(&mut self, now_ns: u64) -> Option<Second> {
        self.meter.poll_second(now_ns.min(self.end_ns))
    }

    /// What came of it.
    pub fn finish(mut self) -> Loaded {
        let mut unanswered = 0;
        if self.is_open() {
            unanswered = self.in_flight() as u64;
            while self.due_ns < self.end_ns && self.requests_left > 0 && self.end_ns < u64::MAX {
                unanswered += 1;
                self.requests_left -= 1;
                self.draw_gap();
            }
        }
        let counted_out = self.requests_left == 0 && unanswered == 0 && self.last_ns < self.end_ns;
        let end_ns = if counted_out { self.last_ns } else { self.end_ns.max(self.last_ns) };
        let mut loaded = self.meter.finish(end_ns);
        loaded.unanswered = unanswered;
        loaded
    }

    fn is_open(&self) -> bool {
        matches!(self.pace, Pace::Open { .. })
    }

    /// Until when an open loop waits for what was due in its time.
    fn late_ns(&self) -> u64 {
        self.end_ns.saturating_add(LATE_NS.max((self.end_ns - self.begin_ns) / 10))
    }

    fn has_more(&self, now_ns: u64) -> bool {
        let in_time = if self.is_open() { self.due_ns < self.end_ns && now_ns < self.late_ns() } else { now_ns < self.end_ns };
        in_time && self.requests_left > 0
    }

    /// Moves on to when the next request is due.
    fn draw_gap(&mut self) {
        if let Pace::Open { per_s, random, .. } = self.pace {
            self.drawn += 1;
            // Exponential gaps make a Poisson process. Even ones are not added up, which would add up their rounding.
            self.due_s = if random { self.due_s - (1.0 - self.gaps.unit()).ln() / per_s } else { self.drawn as f64 / per_s };
            self.due_ns = self.begin_ns.saturating_add((self.due_s * 1e9) as u64);
        }
    }
}
