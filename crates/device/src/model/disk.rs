//! The modelled device as a whole: events in time order, and what an I/O goes through between submission and completion.

use super::cache::{ReadCache, WriteCache, blocks_of};
use super::layout::{Mapping, Piece};
use super::set::{ModelParameters, ModelSet};
use super::spindle::{Command, Spindle};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use types::BLOCK_BYTES;

/// What an I/O does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoKind {
    /// Read bytes.
    Read,
    /// Write bytes (zeroes included).
    Write,
    /// Make acknowledged writes durable.
    Flush,
    /// Give up a range.
    Discard,
}

/// One I/O as the model sees it: no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDescription {
    /// Chosen by the caller, unique among its I/Os in flight.
    pub token: u64,
    /// What is done.
    pub kind: IoKind,
    /// Where it starts; 0 for a flush.
    pub offset_bytes: u64,
    /// How long it is, inside the device; 0 for a flush.
    pub length_bytes: u64,
    /// For writes: past any volatile cache.
    pub fua: bool,
}

impl IoDescription {
    fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.length_bytes
    }
}

/// What a model has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ModelCounters {
    /// Commands read by all spindles, those for parity included.
    pub spindle_reads: u64,
    /// Commands written by all spindles, those of parity included.
    pub spindle_writes: u64,
    /// Time all spindles together were busy, in ns.
    pub spindle_busy_ns: u64,
    /// Blocks of 4 KiB that the write-back cache sent to the spindles.
    pub destaged_blocks: u64,
    /// Blocks rewritten while they waited in the write-back cache.
    pub absorbed_blocks: u64,
    /// Bytes in the write-back cache that are not on the spindles now.
    pub dirty_bytes: u64,
}

/// Something that happens to an I/O at a stated time.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It reaches the controller.
    Arrive(IoDescription),
    /// The controller turns to it.
    Begin(IoDescription),
    /// It is done but for the way back to the host.
    Finish(IoDescription),
    /// The host sees it complete.
    Complete(u64),
}

/// Commands that belong together.
#[derive(Clone, Debug)]
struct Job {
    /// Commands of the present phase not yet done.
    remaining: usize,
    /// The next phase: what parity writes after the old data was read.
    then: Vec<Piece>,
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    Client(IoDescription),
    Destage(Vec<u64>),
}

/// The model of one device.
#[derive(Clone, Debug)]
pub struct DiskModel {
    parameters: ModelParameters,
    size_bytes: u64,
    mapping: Mapping,
    spindles: Vec<Spindle>,
    write_cache: Option<WriteCache>,
    read_cache: Option<ReadCache>,
    now_ns: u64,
    /// By time, then in the order they were made.
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    jobs: BTreeMap<u64, Job>,
    job_count: u64,
    destage_jobs: usize,
    /// Client reads that wait for spindles: what destage yields to.
    spindle_reads_waiting: usize,
    /// Writes that wait for room in the write-back cache, in order.
    blocked_writes: VecDeque<IoDescription>,
    /// Flushes that wait for a volatile cache, with the write number they wait for.
    flushes: VecDeque<(IoDescription, u64)>,
    completed: VecDeque<(u64, u64)>,
    in_flight: usize,
    link_free_ns: u64,
    controller_free_ns: u64,
    flash_free_ns: u64,
}

impl DiskModel {
    /// A device of `size_bytes` made of the named set, idle, caches empty.
    ///
    /// # Panics
    /// If `size_bytes` is 0.
    pub fn new(set: ModelSet, size_bytes: u64) -> DiskModel {
        DiskModel::with_parameters(set.parameters(size_bytes), size_bytes)
    }

    /// The same with numbers of one's own.
    ///
    /// # Panics
    /// If `size_bytes` is 0 or the layout does not go with the number of spindles.
    pub fn with_parameters(parameters: ModelParameters, size_bytes: u64) -> DiskModel {
        assert!(size_bytes > 0, "a modelled disk holds at least one byte");
        let mapping = Mapping::new(parameters.layout, parameters.spindles);
        let spindle = Spindle::new(parameters.spindle, mapping.spindle_bytes(size_bytes));
        DiskModel {
            size_bytes,
            mapping,
            spindles: vec![spindle; parameters.spindles.max(1) as usize],
            write_cache: parameters.cache.map(WriteCache::new),
            read_cache: parameters.read_cache.map(ReadCache::new),
            parameters,
            now_ns: 0,
            events: BTreeMap::new(),
            event_count: 0,
            jobs: BTreeMap::new(),
            job_count: 0,
            destage_jobs: 0,
            spindle_reads_waiting: 0,
            blocked_writes: VecDeque::new(),
            flushes: VecDeque::new(),
            completed: VecDeque::new(),
            in_flight: 0,
            link_free_ns: 0,
            controller_free_ns: 0,
            flash_free_ns: 0,
        }
    }

    /// The numbers in use.
    pub fn parameters(&self) -> &ModelParameters {
        &self.parameters
    }

    /// Size of the device.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The device has at least this size from now on. What is under way goes on; caches keep their
    /// sizes.
    pub fn grow(&mut self, size_bytes: u64) {
        if size_bytes <= self.size_bytes {
            return;
        }
        self.size_bytes = size_bytes;
        let spindle_bytes = self.mapping.spindle_bytes(size_bytes);
        self.spindles.iter_mut().for_each(|spindle| spindle.grow(spindle_bytes));
    }

    /// I/Os submitted and not yet popped.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What was done so far.
    pub fn counters(&self) -> ModelCounters {
        let sum = |of: fn(&Spindle) -> u64| self.spindles.iter().map(of).sum();
        let cache = self.write_cache.as_ref();
        ModelCounters {
            spindle_reads: sum(|spindle| spindle.reads),
            spindle_writes: sum(|spindle| spindle.writes),
            spindle_busy_ns: sum(|spindle| spindle.busy_ns),
            destaged_blocks: cache.map_or(0, |cache| cache.destaged_blocks),
            absorbed_blocks: cache.map_or(0, |cache| cache.absorbed_blocks),
            dirty_bytes: cache.map_or(0, |cache| cache.used_blocks() as u64 * BLOCK_BYTES),
        }
    }

    /// Byte ranges with acknowledged writes that a power cut would lose now: those only in a volatile write cache. A test
    /// that cuts the power may put anything between the old and the new content there, per sector, and nothing elsewhere.
    pub fn volatile_ranges(&self) -> Vec<Range<u64>> {
        self.write_cache.as_ref().filter(|cache| cache.parameters().volatile).map_or(Vec::new(), WriteCache::ranges)
    }

    /// Takes an I/O at `now_ns` (any monotonic scale, not before any time given earlier).
    ///
    /// # Panics
    /// If the range is not inside the device: the caller has checked it.
    pub fn submit(&mut self, now_ns: u64, io: IoDescription) {
        let end_bytes = io.offset_bytes.checked_add(io.length_bytes);
        assert!(end_bytes.is_some_and(|end| end <= self.size_bytes), "{io:?} is not inside {} bytes", self.size_bytes);
        self.advance(now_ns);
        self.in_flight += 1;
        let mut arrival_ns = self.now_ns;
        if let Some(link) = self.parameters.link {
            if io.kind == IoKind::Write {
                arrival_ns = self.cross_link(arrival_ns, io.length_bytes);
            }
            arrival_ns += link.latency_ns / 2;
        }
        self.schedule(arrival_ns, Event::Arrive(io));
        self.advance(self.now_ns);
    }

    /// When to call [`pop_completed`](DiskModel::pop_completed) next; `None` while no I/O is in flight. May lie in the past.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.in_flight == 0 {
            return None;
        }
        self.completed.front().map(|(at_ns, _)| *at_ns).or_else(|| self.next_event_ns().map(|(at_ns, _)| at_ns))
    }

    /// The token of an I/O that is complete at `now_ns`, in order of completion. Call until it gives `None`.
    pub fn pop_completed(&mut self, now_ns: u64) -> Option<u64> {
        self.advance(now_ns);
        let (_, token) = self.completed.pop_front()?;
        self.in_flight -= 1;
        Some(token)
    }

    /// Lets everything up to `now_ns` happen, in order of time.
    fn advance(&mut self, now_ns: u64) {
        while let Some((at_ns, spindle)) = self.next_event_ns().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.now_ns = self.now_ns.max(at_ns);
            match spindle {
                Some(index) => {
                    if let Some(command) = self.spindles[index].advance(self.now_ns) {
                        self.command_done(command);
                    }
                }
                None => {
                    let (_, event) = self.events.pop_first().expect("the next event is there");
                    self.happen(event);
                }
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// Time of the next event, and on which spindle it is, if on one.
    fn next_event_ns(&self) -> Option<(u64, Option<usize>)> {
        let event = self.events.first_key_value().map(|((at_ns, _), _)| (*at_ns, None));
        let spindles = self.spindles.iter().enumerate();
        let spindle = spindles.filter_map(|(index, spindle)| spindle.next_event_ns().map(|at_ns| (at_ns, Some(index))));
        // `None < Some`: of events at the same time, those of I/Os come first, then the spindles by number.
        event.into_iter().chain(spindle).min()
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events.insert((at_ns, self.event_count), event);
        self.event_count += 1;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(io) if self.parameters.controller_ns > 0 => {
                self.controller_free_ns = self.controller_free_ns.max(self.now_ns) + self.parameters.controller_ns;
                self.schedule(self.controller_free_ns, Event::Begin(io));
            }
            Event::Arrive(io) | Event::Begin(io) if self.parameters.flash.is_some() => self.flash_command(io),
            Event::Arrive(io) | Event::Begin(io) => match io.kind {
                IoKind::Read => self.begin_read(io),
                IoKind::Write => self.begin_write(io),
                IoKind::Flush => self.begin_flush(io),
                IoKind::Discard => self.begin_discard(io),
            },
            Event::Finish(io) => {
                let mut at_ns = self.now_ns;
                if let Some(link) = self.parameters.link {
                    if io.kind == IoKind::Read {
                        at_ns = self.cross_link(at_ns, io.length_bytes);
                    }
                    at_ns += link.latency_ns / 2;
                }
                self.schedule(at_ns, Event::Complete(io.token));
            }
            Event::Complete(token) => self.completed.push_back((self.now_ns, token)),
        }
    }

    /// When a transfer that wants the link at `at_ns` is through.
    fn cross_link(&mut self, at_ns: u64, length_bytes: u64) -> u64 {
        if let Some(link) = self.parameters.link {
            let transfer_ns = (length_bytes as f64 * 1e9 / link.bytes_per_second) as u64;
            self.link_free_ns = self.link_free_ns.max(at_ns) + transfer_ns;
            return self.link_free_ns;
        }
        at_ns
    }

    /// An SSD's turn, one command after the other. A flush or a discard waits for nothing but its response.
    fn flash_command(&mut self, io: IoDescription) {
        let flash = self.parameters.flash.expect("asked for an SSD alone");
        let write = io.kind == IoKind::Write;
        let latency_ns = if io.kind == IoKind::Read { flash.read_latency_ns } else { flash.write_latency_ns };
        let mut at_ns = self.now_ns;
        if write || io.kind == IoKind::Read {
            self.flash_free_ns = self.flash_free_ns.max(at_ns) + flash.busy_ns(write, io.length_bytes);
            at_ns = self.flash_free_ns;
        }
        self.schedule(at_ns + latency_ns, Event::Finish(io));
    }

    fn finish_after(&mut self, delay_ns: u64, io: IoDescription) {
        self.schedule(self.now_ns + delay_ns, Event::Finish(io));
    }

    /// What a command costs that moves no head: the drive's overhead, or nothing beyond what the controller took.
    fn command_ns(&self) -> u64 {
        if self.parameters.controller_ns > 0 { 0 } else { (self.parameters.spindle.overhead_ms * 1e6) as u64 }
    }

    fn begin_read(&mut self, io: IoDescription) {
        let pieces: Vec<Piece> = self.missing(io.range()).into_iter().flat_map(|range| self.mapping.pieces(range)).collect();
        if let Some(cache) = &mut self.read_cache {
            cache.touch(io.range());
        }
        if pieces.is_empty() {
            let accept_ns = self.write_cache.as_ref().map_or(0, |cache| cache.parameters().accept_ns);
            let hit_ns = self.read_cache.as_ref().map_or(accept_ns, |cache| cache.parameters().hit_ns);
            self.finish_after(hit_ns, io);
            return;
        }
        self.spindle_reads_waiting += 1;
        self.start_job(Job { remaining: 0, then: Vec::new(), owner: Owner::Client(io) }, pieces, false);
    }

    /// What of `range` no cache holds.
    fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        if self.read_cache.is_none() && self.write_cache.as_ref().is_none_or(WriteCache::is_empty) {
            return vec![range];
        }
        let mut missing: Vec<Range<u64>> = Vec::new();
        for block in blocks_of(range.clone()) {
            let start = block * BLOCK_BYTES;
            let held = self.write_cache.as_ref().is_some_and(|cache| cache.holds(block))
                || self.read_cache.as_ref().is_some_and(|cache| cache.holds(start));
            if held {
                continue;
            }
            let mut piece = start.max(range.start)..(start + BLOCK_BYTES).min(range.end);
            if let Some(cache) = &self.read_cache {
                // A miss brings in whole lines.
                piece = cache.whole_lines(piece);
                piece.end = piece.end.min(self.size_bytes);
            }
            match missing.last_mut() {
                Some(last) if last.end >= piece.start => last.end = last.end.max(piece.end),
                _ => missing.push(piece),
            }
        }
        missing
    }

    fn begin_write(&mut self, io: IoDescription) {
        let blocks = blocks_of(io.range());
        if let Some(cache) = &mut self.write_cache {
            let past = io.fua && cache.parameters().volatile;
            if !past && cache.takes(&blocks) {
                if self.blocked_writes.is_empty() && cache.accept(blocks) {
                    self.accepted(io);
                } else {
                    self.blocked_writes.push_back(io);
                }
                self.destage();
                return;
            }
            // What goes past the cache overtakes what waits in it, where it covers whole blocks.
            cache.drop_dirty(io.offset_bytes.div_ceil(BLOCK_BYTES)..(io.offset_bytes + io.length_bytes) / BLOCK_BYTES);
        }
        let job = Job { remaining: 0, then: Vec::new(), owner: Owner::Client(io) };
        match self.mapping.parity_row_bytes() {
            None => self.start_job(job, self.mapping.pieces(io.range()), true),
            Some(_) => self.start_parity_job(job, &blocks.collect::<Vec<u64>>()),
        }
        self.look_after_flushes();
    }

    fn accepted(&mut self, io: IoDescription) {
        let parameters = *self.write_cache.as_ref().expect("a write was accepted by the cache").parameters();
        let transfer_ns = io.length_bytes as f64 * parameters.accept_ns_per_byte;
        self.finish_after(parameters.accept_ns + transfer_ns as u64, io);
    }

    fn begin_flush(&mut self, io: IoDescription) {
        match &self.write_cache {
            Some(cache) if cache.parameters().volatile && !cache.is_empty() => {
                self.flushes.push_back((io, cache.flush_number()));
                self.destage();
            }
            _ => self.finish_after(self.command_ns(), io),
        }
    }

    fn begin_discard(&mut self, io: IoDescription) {
        if let Some(cache) = &mut self.write_cache {
            cache.drop_dirty(io.offset_bytes.div_ceil(BLOCK_BYTES)..(io.offset_bytes + io.length_bytes) / BLOCK_BYTES);
        }
        self.finish_after(self.command_ns(), io);
        self.cache_has_room();
    }

    fn start_job(&mut self, mut job: Job, pieces: Vec<Piece>, write: bool) {
        let id = self.job_count;
        self.job_count += 1;
        job.remaining = pieces.len();
        if pieces.is_empty() {
            self.job_done(job);
            return;
        }
        self.jobs.insert(id, job);
        self.send(id, &pieces, write);
    }

    fn start_parity_job(&mut self, mut job: Job, blocks: &[u64]) {
        let plan = self.mapping.write_plan(blocks);
        if plan.reads.is_empty() {
            self.start_job(job, plan.writes, true);
        } else {
            job.then = plan.writes;
            self.start_job(job, plan.reads, false);
        }
    }

    fn send(&mut self, job: u64, pieces: &[Piece], write: bool) {
        for piece in pieces {
            let (offset_bytes, length_bytes) = (piece.offset_bytes, piece.length_bytes);
            let command = Command { job, write, offset_bytes, length_bytes, arrived_ns: self.now_ns };
            self.spindles[piece.spindle].submit(self.now_ns, command);
        }
    }

    fn command_done(&mut self, command: Command) {
        let job = self.jobs.get_mut(&command.job).expect("a command belongs to a job");
        job.remaining -= 1;
        if job.remaining > 0 {
            return;
        }
        let writes = std::mem::take(&mut job.then);
        if writes.is_empty() {
            let job = self.jobs.remove(&command.job).expect("the job was just there");
            self.job_done(job);
        } else {
            job.remaining = writes.len();
            self.send(command.job, &writes, true);
        }
    }

    fn job_done(&mut self, job: Job) {
        match job.owner {
            Owner::Client(io) => {
                if io.kind == IoKind::Read {
                    self.spindle_reads_waiting -= 1;
                }
                self.finish_after(0, io);
                self.destage();
            }
            Owner::Destage(run) => {
                self.destage_jobs -= 1;
                self.write_cache.as_mut().expect("only a cache destages").run_done(&run);
                self.cache_has_room();
            }
        }
    }

    /// Lets in what waited for room, answers flushes, and destages on.
    fn cache_has_room(&mut self) {
        while let (Some(io), Some(cache)) = (self.blocked_writes.front().copied(), &mut self.write_cache) {
            if !cache.accept(blocks_of(io.range())) {
                break;
            }
            self.blocked_writes.pop_front();
            self.accepted(io);
        }
        self.look_after_flushes();
        self.destage();
    }

    fn look_after_flushes(&mut self) {
        while let (Some((io, number)), Some(cache)) = (self.flushes.front().copied(), &self.write_cache) {
            if !cache.is_flushed(number) {
                return;
            }
            self.flushes.pop_front();
            self.finish_after(0, io);
        }
    }

    /// Starts as many destage runs as now may be in flight.
    fn destage(&mut self) {
        let row_blocks = self.mapping.parity_row_bytes().map(|bytes| bytes / BLOCK_BYTES);
        while let Some(cache) = &mut self.write_cache {
            let parameters = *cache.parameters();
            let most = parameters.destage_depth * self.spindles.len();
            let yields = self.spindle_reads_waiting > 0 && self.flushes.is_empty() && self.blocked_writes.is_empty();
            let allowed = if yields {
                // The fuller above the mark, the more at a time.
                let pressure = (cache.fill() - parameters.yield_until) / (1.0 - parameters.yield_until);
                (pressure * most as f64).ceil().max(0.0) as usize
            } else {
                most
            };
            if self.destage_jobs >= allowed.min(most) {
                return;
            }
            let Some(run) = cache.next_run(row_blocks) else { return };
            self.destage_jobs += 1;
            let plan_blocks = run.clone();
            let job = Job { remaining: 0, then: Vec::new(), owner: Owner::Destage(run) };
            self.start_parity_job(job, &plan_blocks);
        }
    }
}
