//! The same load without any device in between: the requests go to the cache as an export's do, in the process and on the thread that serves them. What no
//! block device of a small machine can carry (vdbench's RD2: hundreds of thousands of reads of 16 KiB a second, all of them from RAM) is measured so.
//!
//! What serves is the daemon's own data path ([`machine::Machine`]): as many threads, shards and pages, the same pools and options. No other room of
//! this crate calls it.

use super::content::Contents;
use super::player::{Order, Player, Step};
use super::{Load, Loaded, Watch};
use crate::result::{CacheFigures, Second};
use crate::stage::Backing;
use crate::trouble::Trouble;
use api::options::Options;
use datapath::{Counters, Exports, Facts, Notice, Pools, Volumes, Warming};
use engine::api::{Op, Origin, Reply, Request};
use insight::preload::Plan;
use machine::{Machine, MachineOptions};
use page::{PAGE_BYTES, PageMut, PageVec};
use records::state::{BackingIdentity, PoolPhase, PoolRecord, VolumePhase, VolumeRecord};
use runtime::{ANY_VOLUME, Context, Endpoint, VolumeRef};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use types::Mode;
use uuid::Uuid;

const POOL: &str = "evaluate";
const VOLUME: &str = "volume";
/// How often waiting looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// How long requests under way may take when a load is ended: a disk that spins up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the client looks at the time when no answer comes: its timer.
const TICK_NS: u64 = 20_000_000;
const SECTOR_BYTES: u64 = 512;

/// The cache of a volume that is served in this process.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// A device or file, formatted anew; a file that is not there is made, and removed at the end.
    pub ssd: String,
    /// The pool's size in bytes; `None` takes all of the device.
    pub bytes: Option<u64>,
    /// Its RAM tier, in bytes.
    pub ram_bytes: u64,
    /// How the volume is treated, beside the defaults.
    pub mode: Mode,
}

/// A volume that is served in this process; closed when it is dropped.
pub struct InProcess {
    machine: Machine,
    volume: VolumeRecord,
    has_pool: bool,
    /// The pool whose file was made for it.
    file: Option<PoolRecord>,
    is_open: bool,
    notices: Receiver<Notice>,
}

impl InProcess {
    /// Serves a backing device, with a cache or bare. `scratch` is a directory for what the data path may want to lay down.
    ///
    /// # Errors
    /// If the devices cannot be had.
    pub fn open(scratch: &Path, backing: &Backing, cache: Option<&Cache>) -> Result<InProcess, Trouble> {
        let (sender, notices) = channel();
        let machine = Machine::start(MachineOptions::private(scratch, sender)).map_err(told)?;
        let size_bytes = machine.examine_backing(&backing.word()).map_err(told)?.size_bytes;
        let volume = VolumeRecord {
            name: VOLUME.into(),
            uuid: Uuid::new_v4(),
            pool: POOL.into(),
            id: 1,
            backing: backing.word(),
            size_bytes,
            sector_bytes: None,
            options: cache.map(|cache| Options { mode: cache.mode, ..Options::default() }).unwrap_or_default(),
            exports: Vec::new(),
            phase: VolumePhase::Ready,
            may_have_dirty: true,
            identity: BackingIdentity::default(),
            stopped_clean: false,
            cache_stale: false,
            past: Vec::new(),
            stopped: false,
            noted: Vec::new(),
            rules: Vec::new(),
            connections: Vec::new(),
            shares: Vec::new(),
            attachment: None,
        };
        let mut served = InProcess { machine, volume, has_pool: false, file: None, is_open: true, notices };
        if let Some(cache) = cache {
            let pool = PoolRecord {
                name: POOL.into(),
                uuid: Uuid::new_v4(),
                ssd: cache.ssd.clone(),
                size_bytes: cache.bytes,
                ram_bytes: cache.ram_bytes,
                content: types::Content::default(),
                phase: PoolPhase::Ready,
                session: 0,
                degraded: None,
                next_volume_id: 2,
                file_made: false,
                disk_room: None,
                serial: 0,
                on_blank_ssd: Default::default(),
                layout: Default::default(),
                spare: None,
                ssd_identity: Vec::new(),
            };
            if let Some(bytes) = cache.bytes.filter(|_| !Path::new(&cache.ssd).exists()) {
                served.machine.make_file(&cache.ssd, bytes).map_err(told)?;
                served.file = Some(pool.clone());
            }
            served.machine.format(&pool).map_err(told)?;
            served.machine.start_pool(&pool, std::slice::from_ref(&served.volume)).map_err(told)?;
            served.has_pool = true;
            served.machine.attach(&served.volume).map_err(told)?;
        } else {
            served.machine.attach_bare(&served.volume).map_err(told)?;
        }
        Ok(served)
    }

    /// Plays a load. With `copies`, the data of each read is copied into a buffer of the client's, as a program that reads from a device has it; without,
    /// the client is content with the pages that the cache lends it.
    ///
    /// # Errors
    /// As of [`generator::run`](super::generator::run).
    pub fn run(&self, load: &Load, copies: bool, stop: &AtomicBool, watch: Watch<'_>) -> Result<Loaded, Trouble> {
        if load.pattern.space_bytes > self.volume.size_bytes {
            let (has, needed) = (self.volume.size_bytes, load.pattern.space_bytes);
            return Err(Trouble::failed(format!("the volume has {has} bytes, and the load is for {needed}"), "give a larger one"));
        }
        // What cannot be played is told before anything begins.
        Player::new(load, 0)?;
        let (said, hears) = channel();
        let enough = Arc::new(AtomicBool::new(false));
        let (load, ends) = (load.clone(), enough.clone());
        let make = |volume| -> Box<dyn Endpoint> { Box::new(Client::new(volume, load, copies, ends, said)) };
        let client = self.machine.add_client(VOLUME, make).map_err(told)?;
        let outcome = loop {
            if stop.load(Ordering::Relaxed) {
                break Err(Trouble::Stopped);
            }
            match hears.recv_timeout(LOOK) {
                Ok(Said::Second(second)) => {
                    if watch(&second).is_break() {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
                Ok(Said::Over(outcome)) => break *outcome,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Err(Trouble::Failed("the client of the cache ended before its load".into())),
            }
        };
        self.machine.end_client(&client, PATIENCE).map_err(told)?;
        match self.notices.try_iter().next() {
            Some(notice) if outcome.is_ok() => Err(Trouble::Failed(format!("the data path reports trouble: {notice:?}"))),
            _ => outcome,
        }
    }

    /// Reads a part of the volume into the cache.
    ///
    /// # Errors
    /// If a read fails, or `stop` is set.
    pub fn warm(&self, range_bytes: std::ops::Range<u64>, stop: &AtomicBool) -> Result<(), Trouble> {
        // As the daemon reads: some megabytes between two looks at `stop`.
        const TURN_BYTES: u64 = 16 << 20;
        let plan = Plan::new(&[range_bytes], None, u64::MAX);
        let (mut at_bytes, piece_bytes_max) = (0, self.machine.piece_bytes_max(&self.volume));
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Trouble::Stopped);
            }
            let pieces = plan.pieces(at_bytes, TURN_BYTES, piece_bytes_max);
            let Some(last) = pieces.last() else { return Ok(()) };
            self.machine.warm(&self.volume, &pieces).1.map_err(told)?;
            at_bytes = last.end_bytes();
        }
    }

    /// What the cache did since it was opened.
    pub fn figures(&self) -> CacheFigures {
        let stats = self.machine.volume_stats(VOLUME);
        CacheFigures {
            hits_ram: stats.read_hits_ram,
            hits_ssd: stats.read_hits_ssd,
            misses: stats.read_misses,
            host_read_bytes: stats.read_bytes,
            host_written_bytes: stats.written_bytes,
            ssd_written_bytes: stats.ssd_written_bytes,
            backing_read_bytes: stats.backing_read_bytes,
            backing_written_bytes: stats.backing_written_bytes,
            dirty_bytes: stats.dirty_bytes.unwrap_or(0),
        }
    }

    /// Brings dirty data home and lets go of all devices.
    ///
    /// # Errors
    /// If dirty data does not come home.
    pub fn close(mut self) -> Result<(), Trouble> {
        self.is_open = false;
        let home = if self.has_pool { self.destage() } else { Ok(()) };
        self.let_go().and(home)
    }

    fn destage(&self) -> Result<(), Trouble> {
        let begun = Instant::now();
        let mut pending = self.machine.destage(&self.volume).map_err(told)?;
        while begun.elapsed() < PATIENCE {
            match pending.poll() {
                Some(result) => return result.map_err(told),
                None => std::thread::sleep(LOOK / 10),
            }
        }
        Err(Trouble::Failed(format!("dirty data did not come home within {} s", PATIENCE.as_secs())))
    }

    fn let_go(&self) -> Result<(), Trouble> {
        let detached = self.machine.detach(&self.volume, true).map_err(told);
        let stopped = if self.has_pool { self.machine.stop_pool(POOL, false).map_err(told) } else { Ok(()) };
        let removed = self.file.as_ref().map_or(Ok(()), |pool| self.machine.remove_file(pool).map_err(told));
        self.machine.finish();
        detached.and(stopped).and(removed)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if self.is_open {
            // On the way out of an error that is told already.
            let _ = self.let_go();
        }
    }
}

fn told(error: api::error::ControlError) -> Trouble {
    Trouble::Failed(error.to_string())
}

/// What the client tells the one who waits.
enum Said {
    Second(Second),
    Over(Box<Result<Loaded, Trouble>>),
}

/// The load as an endpoint of the runtime.
struct Client {
    volume: VolumeRef,
    load: Load,
    contents: Contents,
    /// From the start on.
    player: Option<Player>,
    /// Refused by the volume, or waiting for pages: begins next.
    held: Option<Order>,
    /// When the timer is due.
    timer_ns: Option<u64>,
    /// Where reads are copied to.
    buffer: Option<Vec<u8>>,
    enough: Arc<AtomicBool>,
    said: Sender<Said>,
}

impl Client {
    fn new(volume: VolumeRef, load: Load, copies: bool, enough: Arc<AtomicBool>, said: Sender<Said>) -> Client {
        let buffer = (copies || load.verify).then(|| vec![0; load.pattern.block_bytes as usize]);
        let contents = Contents::new(load.content, load.seed);
        Client { volume, load, contents, player: None, held: None, timer_ns: None, buffer, enough, said }
    }

    fn go_on(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns();
        let Some(player) = &mut self.player else { return };
        while let Some(second) = player.poll_second(now_ns) {
            // Whoever waited has given up: `stop` comes.
            let _ = self.said.send(Said::Second(second));
        }
        if self.enough.load(Ordering::Relaxed) {
            player.end(now_ns);
        }
        loop {
            let order = match self.held.take() {
                Some(order) => order,
                None => match self.player.as_mut().expect("checked above").step(now_ns) {
                    Step::Begin(order) => order,
                    Step::Wait(until_ns) => return self.wait(cx, until_ns.min(now_ns + TICK_NS)),
                    Step::Over => return self.end(cx, None),
                },
            };
            if !self.begin(cx, order) {
                self.held = Some(order);
                return;
            }
        }
    }

    /// Answers come too often for a timer to be moved with each.
    fn wait(&mut self, cx: &mut Context<'_>, until_ns: u64) {
        if self.timer_ns.is_none_or(|timer_ns| until_ns < timer_ns) {
            self.timer_ns = Some(until_ns);
            cx.set_timer(until_ns, 0);
        }
    }

    /// Whether the request was taken; if not, there will be a call when it may be.
    fn begin(&mut self, cx: &mut Context<'_>, order: Order) -> bool {
        let (offset_bytes, bytes) = (order.request.offset_bytes, self.load.pattern.block_bytes);
        let mut pages = PageVec::new();
        if order.request.is_write {
            let within = (offset_bytes % PAGE_BYTES as u64) as usize;
            let Some(mut fresh) = cx.allocate_pages(&self.volume, (within + bytes as usize).div_ceil(PAGE_BYTES)) else { return false };
            if bytes < PAGE_BYTES as u64 {
                self.contents.write(offset_bytes, order.version, &mut fresh[0][within..within + bytes as usize]);
            } else {
                for (at, page) in fresh.iter_mut().enumerate() {
                    self.contents.write(offset_bytes + (at * PAGE_BYTES) as u64, order.version, &mut page[..]);
                }
            }
            pages = fresh.into_iter().map(PageMut::freeze).collect();
        }
        let request = Request::new(
            order.slot as u64,
            ANY_VOLUME,
            if order.request.is_write { Op::Write } else { Op::Read },
            offset_bytes / SECTOR_BYTES,
            (bytes / SECTOR_BYTES) as u32,
            Origin::Client,
        )
        .pages(pages);
        cx.submit(&self.volume, request).is_ok()
    }

    fn end(&mut self, cx: &mut Context<'_>, failure: Option<Trouble>) {
        if let Some(player) = self.player.take() {
            // Whoever waited may have given up.
            let _ = self.said.send(Said::Over(Box::new(failure.map_or_else(|| Ok(player.finish()), Err))));
        }
        cx.close();
    }
}

impl Endpoint for Client {
    fn start(&mut self, cx: &mut Context<'_>) {
        match Player::new(&self.load, cx.now_ns()) {
            Ok(player) => {
                self.player = Some(player);
                self.go_on(cx);
            }
            Err(trouble) => {
                let _ = self.said.send(Said::Over(Box::new(Err(trouble))));
                cx.close();
            }
        }
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let Some(player) = &mut self.player else { return };
        if let Err(error) = reply.result {
            return self
                .end(cx, Some(Trouble::failed(format!("the volume answers a request with an error ({error:?})"), "look at its devices")));
        }
        if let Some(buffer) = &mut self.buffer
            && !reply.pages.is_empty()
        {
            copy(&reply.pages, player.offset_of(reply.id as usize), buffer);
        }
        let order = player.ended(reply.id as usize, cx.now_ns());
        if self.load.verify
            && !order.request.is_write
            && let Some(buffer) = &self.buffer
            && let Err(what) = self.contents.compare(order.request.offset_bytes, order.version, buffer)
        {
            return self.end(cx, Some(Trouble::failed(format!("wrong data was read: {what}"), "this is a defect, please report it")));
        }
        self.go_on(cx);
    }

    fn timer(&mut self, cx: &mut Context<'_>, _token: u32) {
        self.timer_ns = None;
        if self.held.is_none() {
            self.go_on(cx);
        }
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.end(cx, Some(Trouble::Stopped));
    }
}

/// The data of a read as one piece. Its first page holds the block in which it begins.
fn copy(pages: &PageVec, offset_bytes: u64, into: &mut [u8]) {
    let mut within = (offset_bytes % PAGE_BYTES as u64) as usize;
    let mut at = 0;
    for page in pages.iter() {
        let length = (PAGE_BYTES - within).min(into.len() - at);
        into[at..at + length].copy_from_slice(&page[within..within + length]);
        (at, within) = (at + length, 0);
    }
}

#[cfg(test)]
mod tests;
