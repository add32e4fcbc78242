//! One thread with one ring: endpoints, devices and shards driven by what completes.
//!
//! A turn of the loop: take messages and completions, let timers fire, then work until nothing is left to do (I/Os that ended, fronts and
//! shards, replies to endpoints), hand all new entries to the kernel at once, and sleep until something completes (`spin.rs`: or look for it;
//! `precedence.rs`: before ordinary threads, or as one; `cpu_latency.rs`: how deep processors sleep meanwhile; `load.rs`: whether it
//! had time to spare).
//! An idle reactor sleeps without a limit: it costs no CPU at all.
//!
//! Invariants: endpoints, shards and devices of a reactor are touched by its thread only; no callback runs inside another; an
//! endpoint is dropped only after the last entry it pushed has completed.

mod bare;
mod cpu_latency;
mod endpoints;
mod host;
mod io_class;
mod load;
mod messages;
mod precedence;
mod requests;
mod rivals;
mod spin;
mod timers;
mod waiters;
mod watching;

use crate::cached::{PoolPart, Surroundings};
use crate::device_io::{DeviceIo, Owner};
use crate::endpoint::EndpointKey;
use crate::message::{Directory, Message};
use crate::ring::{Completed, Ring};
use crate::user_data::{Kind, kind_and_number, user_data};
use cpu_latency::Wakefulness;
pub(crate) use cpu_latency::wanted as wanted_cpu_latency;
pub use cpu_latency::{CpuLatency, Wish as CpuLatencyWish};
use endpoints::EndpointSlot;
use engine::api::Reply;
use io_uring::{opcode, types::Fd};
use load::Load;
use pool::slab::Slab;
use precedence::Claim;
pub use precedence::Precedence;
pub(crate) use precedence::wanted as wanted_precedence;
use requests::{ClientRequest, LocalVolume};
use rivals::Rivals;
use spin::{Spin, Wait};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use timers::Timers;
use waiters::PageWaiters;
use watching::Watching;

/// Callbacks and completions handled before the ring and the inbox are looked at again: bounds how long one busy endpoint
/// can keep the others waiting (some hundred microseconds).
const WORK_BATCH: usize = 256;
/// While somebody waits for pages, other threads may give some back without telling: look this often.
const PAGE_POLL_NS: u64 = 1_000_000;
/// With at least this much device I/O in flight, several completions are worth waiting for.
const BATCH_FROM_IN_FLIGHT: usize = 16;
/// Most completions waited for at once.
const BATCH_MAX: usize = 8;
/// How long the first completion of a batch may wait for the others, in microseconds.
const BATCH_WAIT_US: u32 = 20;
/// Pauses between two looks for work: about as long as the look itself, some ten nanoseconds each.
const LOOK_PAUSES: usize = 4;

/// A call to an endpoint that waits for its turn.
pub(crate) enum Callback {
    Reply(EndpointKey, Reply),
    VolumeAvailable(EndpointKey),
    Woken(EndpointKey),
    Stop(EndpointKey),
}

/// What a reactor has of the machine's processors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// How it is scheduled.
    pub precedence: Precedence,
    /// What processors may do while clients do much I/O.
    pub cpu_latency: CpuLatency,
}

/// Everything one thread owns.
pub(crate) struct Reactor {
    index: u16,
    directory: Arc<Directory>,
    ring: Ring,
    now_ns: u64,
    completed: VecDeque<Completed>,
    messages: VecDeque<Message>,
    bell_value: Box<u64>,
    bell_armed: bool,
    endpoints: Slab<EndpointSlot>,
    /// Entries of endpoints on the ring: who pushed them, under which token.
    entries: Slab<(EndpointKey, u32)>,
    endpoint_generation: u32,
    timers: Timers,
    callbacks: VecDeque<Callback>,
    /// Endpoints that asked to be called when all else is done.
    turn_ends: Vec<EndpointKey>,
    devices: DeviceIo,
    volumes: Vec<Option<LocalVolume>>,
    requests: Slab<ClientRequest>,
    /// Since the beginning.
    requests_taken: u64,
    page_waiters: PageWaiters,
    pools: Vec<Option<PoolPart>>,
    pool_replies: Vec<Reply>,
    last_reaped: usize,
    spin: Spin,
    rivals: Rivals,
    claim: Claim,
    wakefulness: Wakefulness,
    load: Load,
    watching: Watching,
    /// Told to exit, at the latest at this time.
    exit_by_ns: Option<u64>,
}

impl Reactor {
    /// Makes a reactor; on its own thread, to which its ring is bound. And what the kernel grants of what is wanted.
    pub(crate) fn new(index: u16, directory: Arc<Directory>, ring_entries: u32, wanted: Standing) -> io::Result<(Reactor, Standing)> {
        let now_ns = monotonic_ns();
        let (claim, precedence) = Claim::new(wanted.precedence, now_ns);
        let (wakefulness, cpu_latency) = Wakefulness::new(wanted.cpu_latency, now_ns);
        let reactor = Reactor {
            index,
            ring: Ring::new(ring_entries)?,
            devices: DeviceIo::new(index, directory.clone()),
            directory,
            now_ns,
            completed: VecDeque::new(),
            messages: VecDeque::new(),
            bell_value: Box::new(0),
            bell_armed: false,
            endpoints: Slab::new(),
            entries: Slab::new(),
            endpoint_generation: 0,
            timers: Timers::default(),
            callbacks: VecDeque::new(),
            turn_ends: Vec::new(),
            volumes: Vec::new(),
            requests: Slab::new(),
            requests_taken: 0,
            page_waiters: PageWaiters::default(),
            pools: Vec::new(),
            pool_replies: Vec::new(),
            last_reaped: 0,
            spin: Spin::default(),
            rivals: Rivals::new(),
            claim,
            wakefulness,
            load: Load::new(now_ns),
            watching: Watching::default(),
            exit_by_ns: None,
        };
        Ok((reactor, Standing { precedence, cpu_latency }))
    }

    /// Runs until told to exit. An error is the ring's, and nothing can go on after it. `false`: something is still in flight, and the
    /// memory of this reactor must stay for ever.
    pub(crate) fn run(&mut self) -> io::Result<bool> {
        while !self.may_exit() {
            self.take_messages();
            self.handle_completions();
            self.fire_timers();
            let more = self.work();
            self.offer_pages();
            let mut waits_since_ns = None;
            if more || !self.callbacks.is_empty() || self.may_exit() {
                self.ring.submit()?;
            } else {
                waits_since_ns = Some(self.sleep()?);
            }
            let before = self.completed.len();
            self.ring.reap(&mut self.completed);
            self.last_reaped = self.completed.len() - before;
            self.now_ns = monotonic_ns();
            self.claim.tick(self.now_ns, !self.requests.is_empty());
            self.wakefulness.tick(self.now_ns, self.requests_taken);
            self.judge_load(waits_since_ns);
            self.directory.peers[self.index as usize].turns.fetch_add(1, Ordering::Relaxed);
        }
        self.silence_bell()?;
        Ok(self.is_idle() && !self.devices.has_orphans() && !self.has_stuck_endpoints())
    }

    /// `waits_since_ns`: nothing was to be done since then.
    fn judge_load(&mut self, waits_since_ns: Option<u64>) {
        self.load.waited(waits_since_ns.map_or(0, |since_ns| self.now_ns.saturating_sub(since_ns)));
        if let Some(is_busy) = self.load.tick(self.now_ns) {
            for pool in self.pools.iter_mut().flatten() {
                pool.set_host_busy(self.now_ns, is_busy);
            }
        }
    }

    fn may_exit(&self) -> bool {
        self.exit_by_ns.is_some_and(|deadline_ns| self.is_idle() || self.now_ns >= deadline_ns)
    }

    /// Nothing in flight that must end before the thread may.
    fn is_idle(&self) -> bool {
        self.devices.in_flight() == 0 && self.requests.is_empty() && self.callbacks.is_empty()
    }

    /// Waits until there is something to do; gives since when.
    fn sleep(&mut self) -> io::Result<u64> {
        if !self.bell_armed {
            self.arm_bell();
        }
        let begun_ns = monotonic_ns();
        let batch = if self.devices.in_flight() >= BATCH_FROM_IN_FLIGHT { (self.last_reaped / 2).clamp(1, BATCH_MAX) } else { 1 };
        let wait = if self.devices.in_flight() > 0 { Wait::Device } else { Wait::Client };
        let window_ns = self.spin.window_ns(begun_ns, wait, || self.rivals.want_more());
        if window_ns > 0 && self.look(begun_ns, window_ns, batch)? {
            self.spin.found(wait);
            return Ok(begun_ns);
        }
        let inbox = &self.directory.peers[self.index as usize].inbox;
        if !inbox.may_sleep() {
            return self.ring.submit().map(|()| begun_ns);
        }
        let sleep_ns = self.next_deadline_ns().map(|deadline_ns| deadline_ns.saturating_sub(self.now_ns));
        let slept = self.ring.submit_and_sleep(sleep_ns, batch, BATCH_WAIT_US);
        self.directory.peers[self.index as usize].inbox.awake();
        self.spin.slept(wait, window_ns, monotonic_ns() - begun_ns);
        slept.map(|()| begun_ns)
    }

    /// Looks for something to do for a while; whether there is.
    fn look(&mut self, begun_ns: u64, window_ns: u64, batch: usize) -> io::Result<bool> {
        self.ring.submit()?;
        let until_ns = self.next_deadline_ns().unwrap_or(u64::MAX).min(begun_ns + window_ns);
        let mut batch_until_ns = u64::MAX;
        loop {
            let ready = self.ring.look()?;
            let now_ns = monotonic_ns();
            if ready > 0 {
                batch_until_ns = batch_until_ns.min(now_ns + u64::from(BATCH_WAIT_US) * 1000);
            }
            if ready >= batch || now_ns >= batch_until_ns || !self.directory.peers[self.index as usize].inbox.is_empty() {
                return Ok(true);
            }
            if ready == 0 && now_ns >= until_ns {
                return Ok(false);
            }
            for _ in 0..LOOK_PAUSES {
                std::hint::spin_loop();
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let pages_ns = (!self.page_waiters.is_empty()).then_some(self.now_ns + PAGE_POLL_NS);
        let pools_ns = self.pools.iter().flatten().filter_map(|pool| pool.part.next_deadline_ns()).min();
        let own_ns = [pages_ns, self.wakefulness.next_deadline_ns(), self.load.next_deadline_ns(), self.exit_by_ns];
        [self.timers.next_deadline_ns(), self.devices.next_deadline_ns(), pools_ns].into_iter().chain(own_ns).flatten().min()
    }

    fn arm_bell(&mut self) {
        let fd = Fd(self.directory.peers[self.index as usize].inbox.bell_fd());
        let into: *mut u64 = &mut *self.bell_value;
        let entry = opcode::Read::new(fd, into.cast(), 8).build().user_data(user_data(Kind::Bell, 0));
        // SAFETY: the value is boxed and lives until `silence_bell` has seen the read's end.
        unsafe { self.ring.push(entry.into()) };
        self.bell_armed = true;
    }

    /// Ends the read of the bell, so that the kernel forgets where it was to write.
    fn silence_bell(&mut self) -> io::Result<()> {
        if self.bell_armed {
            self.cancel_entry(user_data(Kind::Bell, 0));
        }
        while self.bell_armed {
            self.ring.submit_and_sleep(None, 1, 0)?;
            self.ring.reap(&mut self.completed);
            let bell = user_data(Kind::Bell, 0);
            self.bell_armed = !self.completed.drain(..).any(|completed| completed.user_data == bell);
        }
        Ok(())
    }

    /// Asks the kernel to end an entry early.
    fn cancel_entry(&mut self, target: u64) {
        let entry = opcode::AsyncCancel::new(target).build().user_data(user_data(Kind::Cancel, 0));
        // SAFETY: a cancellation points to nothing.
        unsafe { self.ring.push(entry.into()) };
    }

    fn handle_completions(&mut self) {
        while let Some(Completed { user_data, result, flags }) = self.completed.pop_front() {
            let (kind, number) = kind_and_number(user_data);
            match kind {
                Kind::Bell => self.bell_armed = false,
                Kind::Cancel => {}
                Kind::Device => self.devices.complete(&mut self.ring, self.now_ns, number, result),
                Kind::Endpoint => self.endpoint_entry_completed(number, result, flags),
            }
        }
    }

    fn fire_timers(&mut self) {
        while let Some((key, token)) = self.timers.pop_due(self.now_ns) {
            self.call(key, |endpoint, cx| endpoint.timer(cx, token));
        }
        self.devices.tick(&mut self.ring, self.now_ns);
        for pool in self.pools.iter_mut().flatten() {
            pool.tick(self.now_ns);
        }
    }

    /// Works until nothing is left to do, or for long enough; `true` if there is more.
    fn work(&mut self) -> bool {
        let mut budget = WORK_BATCH;
        loop {
            let mut moved = false;
            while let Some(finished) = self.devices.pop_finished() {
                moved = true;
                match finished.owner {
                    Owner::Bare(request) => self.bare_io_done(request, finished),
                    Owner::Shard { pool, .. } => {
                        let now_ns = self.now_ns;
                        if let Some(part) = self.pool(pool) {
                            part.io_done(now_ns, finished);
                        }
                    }
                    Owner::Remote { .. } | Owner::Gate | Owner::Nobody => unreachable!("answered where it ended"),
                }
            }
            self.drain_pools();
            while let Some(callback) = self.callbacks.pop_front() {
                moved = true;
                match callback {
                    Callback::Reply(key, reply) => self.call(key, |endpoint, cx| endpoint.reply(cx, reply)),
                    Callback::VolumeAvailable(key) => self.call_volume_available(key),
                    Callback::Woken(key) => self.call(key, |endpoint, cx| endpoint.woken(cx)),
                    Callback::Stop(key) => self.call(key, |endpoint, cx| endpoint.stop(cx)),
                }
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    return true;
                }
            }
            // What a device refused at once has ended too, and nothing would wake the reactor for it.
            if !moved && !self.devices.has_finished() && !self.end_turn() {
                return false;
            }
        }
    }

    /// Calls those who asked for it; whether there were any. What they start is still to be done.
    fn end_turn(&mut self) -> bool {
        let mut asked = std::mem::take(&mut self.turn_ends);
        let any = !asked.is_empty();
        for key in asked.drain(..) {
            self.call(key, |endpoint, cx| endpoint.turn_ends(cx));
        }
        // Those who asked again meanwhile are in the new list; mostly nobody did, and the memory serves on.
        if self.turn_ends.is_empty() {
            self.turn_ends = asked;
        }
        any
    }

    fn drain_pools(&mut self) {
        for index in 0..self.pools.len() {
            let Some(pool) = &mut self.pools[index] else { continue };
            let mut replies = std::mem::take(&mut self.pool_replies);
            let mut around =
                Surroundings { ring: &mut self.ring, devices: &mut self.devices, directory: &self.directory, now_ns: self.now_ns };
            pool.drain(&mut around, &mut replies);
            if !replies.is_empty() {
                // Hits take no turn of the loop: without a look at the clock they would seem to take no time.
                self.now_ns = monotonic_ns();
            }
            for reply in replies.drain(..) {
                self.finish_request(reply.id as u32, reply.result, reply.pages, reply.outcome);
            }
            self.pool_replies = replies;
        }
    }

    /// A pool, unless it was removed.
    fn pool(&mut self, number: u32) -> Option<&mut PoolPart> {
        self.pools.get_mut(number as usize)?.as_mut()
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
