//! What an analysis watches, and how it gets to know: a volume by its reactors, a device from outside, a trace by reading it; or
//! what it watched before the daemon was restarted.

use super::askers::Threads;
use super::clock_ms;
use super::objects::Objects;
use super::presence::Presence;
use super::read_time::ReadTime;
use super::saved::SourceNote;
use super::untouched::{Untouched, is_reader};
use super::watched::{Step, Watched};
use analysis::Writes;
use analysis::watch::Limits;
use blocktap::{Comm, Event, Op as TapOp, Tap as DeviceTap, Way, Ways};
use engine::api::{Op, Outcome};
use engine::tap::{Tap, Used};
use records::state::BackingIdentity;
use runtime::Sight;
use runtime::tapped::Used as Totals;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use traces::read::TraceRequest;
use types::{BLOCK_SECTORS, SECTOR_BYTES};
use uuid::Uuid;

/// Requests to a device that wait for the next step; more are counted as lost.
const SIGHTS_MAX: usize = 1 << 16;
/// How long the thread of a device waits for events.
const LOOK: Duration = Duration::from_millis(100);
/// A look that fails is tried again after this.
const PAUSE: Duration = Duration::from_secs(1);
/// Blocks of a trace's disks lie behind one another in steps of 4 TiB: of more than 16 disks some share theirs.
const DISK_BLOCKS: u64 = 1 << 30;
const DISKS: u64 = 16;
/// Requests of a trace that make a step.
const TRACE_STEP: usize = 10_000;

/// What is watched.
enum SourceOf {
    /// A volume.
    Volume { name: String, uuid: Uuid },
    /// A device.
    Device(Device),
    /// A recorded trace.
    Trace(Trace),
    /// What was watched before a restart: a trace that was read, a device that has not been opened again.
    Left(SourceNote),
}

/// See the module.
pub struct Source {
    of: SourceOf,
    ended: bool,
    /// Why it watches nothing.
    problem: Option<String>,
}

/// How a device is to be watched, and which one it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAsked {
    /// "auto", "bpf" or "tracefs"; absent: as "auto".
    pub tap: Option<String>,
    /// It is read for names.
    pub reads: bool,
    /// What it was when the analysis began.
    pub identity: BackingIdentity,
}

impl DeviceAsked {
    /// The ways to watch it; `None`: a word that is not known.
    pub fn ways(&self) -> Option<Ways> {
        match self.tap.as_deref() {
            None | Some("auto") => Some(Ways::Auto),
            Some("bpf") => Some(Ways::Only(Way::Bpf)),
            Some("tracefs") => Some(Ways::Only(Way::Tracefs)),
            Some(_) => None,
        }
    }
}

/// A device that is watched from outside.
struct Device {
    path: String,
    asked: DeviceAsked,
    way: Way,
    shared: Arc<Shared>,
    read_time: ReadTime,
    presence: Presence,
    gone: bool,
    /// It is read for names by this, until the end.
    untouched: Option<Arc<Untouched>>,
}

/// What came of reading a trace; a failure in words.
type ReadTrace = Result<Box<Watched>, String>;

/// A trace that is read.
struct Trace {
    path: String,
    read: Arc<Mutex<Option<ReadTrace>>>,
    stop: Arc<AtomicBool>,
    problem: Option<String>,
    done: bool,
}

/// What the thread of a device leaves for the next step.
#[derive(Default)]
struct Seen {
    tap: Tap,
    below: u64,
    sights: Vec<(Sight, u64)>,
    threads: Threads,
    lost: u64,
    used: Totals,
    problem: Option<String>,
}

struct Shared {
    seen: Mutex<Seen>,
    stop: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Source {
    /// A volume that is attached.
    pub fn volume_of(name: &str, uuid: Uuid) -> Source {
        Source::new(SourceOf::Volume { name: name.into(), uuid })
    }

    /// What was watched before a restart, and is not now: why.
    pub fn left(was: SourceNote, ended: bool, problem: Option<String>) -> Source {
        Source { of: SourceOf::Left(was), ended, problem }
    }

    fn new(of: SourceOf) -> Source {
        Source { of, ended: false, problem: None }
    }

    /// A device, watched from now on as it was asked.
    ///
    /// # Errors
    /// In words: why it cannot be watched or read, and which way is left.
    pub fn device(path: &str, (major, minor): (u32, u32), asked: DeviceAsked) -> Result<Source, (String, &'static str)> {
        let ways = asked.ways().ok_or_else(|| ("there is no such tap".to_owned(), "write auto, bpf or tracefs"))?;
        let way_out =
            "let the service watch it with the drop-in of docs/advice.md, or record a trace with blktrace and give it with --trace";
        let unwatched = |problem: String| (problem, way_out);
        let watched = blocktap::Watched::find(major, minor).map_err(|refused| unwatched(refused.to_string()))?;
        let tap = DeviceTap::open(watched, ways).map_err(|refused| unwatched(refused.to_string()))?;
        let unread = |problem| (format!("it cannot be read for names: {problem}"), "use --no-read to do without");
        let untouched = asked.reads.then(|| Untouched::open(path)).transpose().map_err(unread)?;
        let way = tap.way();
        let seen = Mutex::new(Seen { below: u64::MAX, ..Seen::default() });
        let shared = Arc::new(Shared { seen, stop: AtomicBool::new(false) });
        let untouched = untouched.map(Arc::new);
        let looking = shared.clone();
        let spawned = std::thread::Builder::new().name("block tap".into()).spawn(move || look(tap, &looking));
        spawned.map_err(|error| (format!("no thread can be started ({error})"), "raise the thread limit"))?;
        let (presence, read_time) = (Presence::of((major, minor)), ReadTime::of(major, minor));
        let device = Device { path: path.into(), asked, way, shared, read_time, presence, gone: false, untouched };
        Ok(Source::new(SourceOf::Device(device)))
    }

    /// A trace, read from now on.
    ///
    /// # Errors
    /// In words.
    pub fn trace(path: &str, writes: Writes, limits: Limits) -> Result<Source, String> {
        let read = Arc::new(Mutex::new(None));
        let stop = Arc::new(AtomicBool::new(false));
        let (file, to, stopped) = (std::path::PathBuf::from(path), read.clone(), stop.clone());
        let spawned = std::thread::Builder::new().name("trace".into()).spawn(move || {
            let result = traces::read::read_recording(&file).map_err(|error| error.to_string());
            let result = result.and_then(|recording| {
                recording.doubts.iter().for_each(|doubt| tracing::warn!("trace {}: {doubt}", file.display()));
                watch_trace(&recording.requests, writes, limits, &stopped)
            });
            *locked(&to) = Some(result);
        });
        spawned.map_err(|error| format!("no thread can be started ({error}); raise the thread limit"))?;
        Ok(Source::new(SourceOf::Trace(Trace { path: path.into(), read, stop, problem: None, done: false })))
    }

    /// "volume", "device" or "trace".
    pub fn kind(&self) -> &'static str {
        match self.of {
            SourceOf::Volume { .. } | SourceOf::Left(SourceNote::Volume { .. }) => "volume",
            SourceOf::Device(_) | SourceOf::Left(SourceNote::Device { .. }) => "device",
            SourceOf::Trace(_) | SourceOf::Left(SourceNote::Trace { .. }) => "trace",
        }
    }

    /// The volume's name, or the path.
    pub fn of(&self) -> &str {
        match &self.of {
            SourceOf::Volume { name, .. } | SourceOf::Left(SourceNote::Volume { name, .. }) => name,
            SourceOf::Device(Device { path, .. }) | SourceOf::Left(SourceNote::Device { path, .. }) => path,
            SourceOf::Trace(Trace { path, .. }) | SourceOf::Left(SourceNote::Trace { path }) => path,
        }
    }

    /// The volume, if it is one.
    pub fn volume(&self) -> Option<&str> {
        if let SourceOf::Volume { name, .. } = &self.of { Some(name) } else { None }
    }

    /// What to go on with after a restart.
    pub fn note(&self) -> SourceNote {
        match &self.of {
            SourceOf::Volume { name, uuid } => SourceNote::Volume { name: name.clone(), uuid: *uuid },
            SourceOf::Device(device) => SourceNote::Device { path: device.path.clone(), asked: device.asked.clone() },
            SourceOf::Trace(trace) => SourceNote::Trace { path: trace.path.clone() },
            SourceOf::Left(was) => was.clone(),
        }
    }

    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        if let SourceOf::Trace(trace) = &self.of { trace.done } else { self.ended }
    }

    /// The device that is to be opened again, and how it was watched.
    pub fn left_device(&self) -> Option<(&str, &DeviceAsked)> {
        match &self.of {
            SourceOf::Left(SourceNote::Device { path, asked }) if !self.ended => Some((path, asked)),
            _ => None,
        }
    }

    /// Why what was left is not watched again. Whether that is news.
    pub fn set_problem(&mut self, problem: String) -> bool {
        let is_news = self.problem.as_ref() != Some(&problem);
        self.problem = Some(problem);
        is_news
    }

    /// Ends it if its volume is none of these any more.
    pub fn end_without(&mut self, uuid_of: impl Fn(&str) -> Option<Uuid>) {
        if let SourceOf::Volume { name, uuid } = &self.of
            && !self.ended
            && uuid_of(name) != Some(*uuid)
        {
            self.ended = true;
            self.problem = Some(format!("the volume \"{name}\" that it watched was removed"));
        }
    }

    /// Whether it watches that volume still.
    pub fn is_volume(&self, name: &str) -> bool {
        !self.ended && self.volume() == Some(name)
    }

    /// "watching", "reading", "ended" or "failed".
    pub fn state(&self) -> &'static str {
        match &self.of {
            SourceOf::Device(device) if device.gone => "ended",
            // It is gone, or somebody ended it while it was away.
            SourceOf::Left(SourceNote::Device { .. }) if self.ended => "ended",
            _ if self.problem().is_some() => "failed",
            SourceOf::Trace(trace) if !trace.done => "reading",
            SourceOf::Trace(_) | SourceOf::Left(SourceNote::Trace { .. }) => "ended",
            _ if self.ended => "ended",
            _ => "watching",
        }
    }

    /// Why it failed, or ended.
    pub fn problem(&self) -> Option<String> {
        match &self.of {
            _ if self.problem.is_some() => self.problem.clone(),
            SourceOf::Volume { .. } | SourceOf::Left(_) => None,
            SourceOf::Device(device) if device.gone => Some(format!("{} is gone", device.path)),
            SourceOf::Device(device) => locked(&device.shared.seen).problem.clone(),
            SourceOf::Trace(trace) => trace.problem.clone(),
        }
    }

    /// How a device is watched.
    pub fn way(&self) -> Option<String> {
        let SourceOf::Device(device) = &self.of else { return None };
        Some(match device.way {
            Way::Bpf => "bpf".into(),
            Way::Tracefs => "tracefs".into(),
        })
    }

    /// What a read from the device takes, in microseconds; of a volume its own figures tell.
    pub fn read_us(&self) -> Option<f64> {
        if let SourceOf::Device(device) = &self.of { device.read_time.mean_us() } else { None }
    }

    /// Whether it is a device that is, or was, read for names.
    pub fn reads(&self) -> bool {
        matches!(&self.of, SourceOf::Device(device) if device.asked.reads)
    }

    /// Whether it is a device that is there no more; asks sysfs.
    pub fn is_gone(&mut self) -> bool {
        let SourceOf::Device(device) = &mut self.of else { return false };
        device.gone |= !self.ended && device.presence.is_gone();
        device.gone
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The device that is read for names.
    pub fn untouched(&self) -> Option<&Arc<Untouched>> {
        if let SourceOf::Device(device) = &self.of { device.untouched.as_ref() } else { None }
    }

    /// Feeds a watch with what came meanwhile; of a volume the reactors do. What is known of a device's objects learns from it.
    pub fn feed(&mut self, watched: &mut Watched, objects: &mut Objects, now_ms: u64) {
        match &mut self.of {
            SourceOf::Volume { .. } | SourceOf::Left(_) => {}
            SourceOf::Device(_) if self.ended => {}
            SourceOf::Device(device) => {
                device.read_time.look();
                let mut seen = locked(&device.shared.seen);
                let (samples, removed) = seen.tap.take();
                let step = Step {
                    samples: samples.into_iter().map(|sample| (sample, when(now_ms, sample.time_ms))).collect(),
                    removed,
                    sights: std::mem::take(&mut seen.sights),
                    met: seen.threads.take_met(),
                    sights_lost: std::mem::take(&mut seen.lost),
                    used: std::mem::take(&mut seen.used),
                    below: seen.below,
                };
                drop(seen);
                watched.step_over(&step, now_ms, &|offset_bytes| objects.place_at(offset_bytes));
                objects.learn(&step.sights);
                objects.count(step.samples.iter().map(|(sample, _)| sample), 1.0 / (step.below as f64 / u64::MAX as f64).max(1e-9));
                let mut seen = locked(&device.shared.seen);
                seen.below = seen.below.min(watched.watch().below());
            }
            SourceOf::Trace(trace) => match locked(&trace.read).take() {
                None => {}
                Some(Ok(read)) => (*watched, trace.done) = (*read, true),
                Some(Err(problem)) => (trace.problem, trace.done) = (Some(problem), true),
            },
        }
    }

    /// Watches no more.
    pub fn end(&mut self) {
        self.ended = true;
        match &mut self.of {
            SourceOf::Volume { .. } | SourceOf::Left(_) => {}
            SourceOf::Device(device) => {
                device.shared.stop.store(true, Ordering::Relaxed);
                // A look that is under way sees that, and lets the device go, too.
                device.untouched = None;
            }
            SourceOf::Trace(trace) => trace.stop.store(true, Ordering::Relaxed),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.end();
    }
}

/// A time of the low half of a clock, as that clock's.
pub(super) fn when(now_ms: u64, time_ms: u32) -> u64 {
    // A time that seems to lie in the far past lies a moment in the future.
    let ago_ms = (now_ms as u32).wrapping_sub(time_ms);
    if ago_ms < 1 << 31 { now_ms.saturating_sub(ago_ms.into()) } else { now_ms }
}

/// Looks at a device until told to stop.
fn look(mut tap: DeviceTap, shared: &Shared) {
    let mut events: Vec<Event> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        events.clear();
        match tap.read(&mut events, LOOK) {
            Ok(drained) => {
                let mut seen = locked(&shared.seen);
                seen.lost += drained.lost + drained.unreadable;
                seen.problem = None;
                // What is read for names is not the load, nor is what hearth writes of its own: state, history and log.
                let is_load = |event: &&Event| !is_reader(event.comm) && !is_own_management(event);
                events.iter().filter(is_load).for_each(|event| seen.take_in(event, clock_ms(event.time_ns)));
            }
            Err(error) => {
                locked(&shared.seen).problem = Some(format!("the device cannot be watched: {error}"));
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Whether this process asks for it, but for its reactors: those do what clients want.
fn is_own_management(event: &Event) -> bool {
    event.pid == Some(std::process::id())
        && !event.comm.as_bytes().starts_with(b"reactor-")
        && !event.comm.as_bytes().starts_with(b"iou-wrk")
}

impl Seen {
    fn take_in(&mut self, event: &Event, time_ms: u64) {
        let op = match event.op {
            TapOp::Read => Op::Read,
            TapOp::Write => Op::Write,
            TapOp::Discard => Op::Discard,
            TapOp::Zeroes => Op::WriteZeroes,
            TapOp::Flush | TapOp::Other => return,
        };
        let sectors = u32::try_from(event.bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
        let outcome = if op == Op::Read { Outcome::Miss } else { Outcome::Other };
        self.tap.note(
            &Used { volume: 0, time_ms: time_ms as u32, op, start_sector: event.sector, sectors, outcome, sequential: false },
            self.below,
        );
        while self.tap.fullest().is_some() {
            self.below /= 2;
            self.tap.thin(0, self.below);
        }
        if !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let is_write = op == Op::Write;
        let end = (event.sector + u64::from(sectors)).div_ceil(BLOCK_SECTORS);
        let blocks = end - event.sector / BLOCK_SECTORS;
        *if is_write { &mut self.used.written_blocks } else { &mut self.used.read_blocks } += blocks;
        if self.sights.len() >= SIGHTS_MAX {
            self.lost += 1;
            return;
        }
        self.threads.meet(event);
        let sight = Sight {
            volume: 0,
            time_ms: time_ms as u32,
            start_sector: event.sector,
            sectors,
            is_write,
            sequential: false,
            client: event.tid,
            page: None,
        };
        self.sights.push((sight, time_ms));
    }
}

/// Watches a trace from its first request to its last, by its own time.
fn watch_trace(requests: &[TraceRequest], writes: Writes, limits: Limits, stop: &AtomicBool) -> Result<Box<Watched>, String> {
    let Some(first) = requests.first() else { return Err("it holds no requests".into()) };
    let base_ns = first.time_ns;
    let ms = |request: &TraceRequest| request.time_ns.saturating_sub(base_ns) / 1_000_000;
    let mut watched = Box::new(Watched::new(0, writes, limits));
    let mut seen = Seen { below: u64::MAX, ..Seen::default() };
    for chunk in requests.chunks(TRACE_STEP) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for request in chunk {
            let sector = (u64::from(request.disk) % DISKS) * DISK_BLOCKS * BLOCK_SECTORS + request.offset_bytes / SECTOR_BYTES;
            let op = if request.write { TapOp::Write } else { TapOp::Read };
            let bytes = request.length_bytes.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
            let event = Event { time_ns: 0, sector, bytes, op, pid: None, tid: 0, comm: Comm::of(b"") };
            seen.take_in(&event, ms(request));
        }
        let now_ms = ms(chunk.last().expect("chunks are not empty"));
        let (samples, removed) = seen.tap.take();
        let step = Step {
            samples: samples.into_iter().map(|sample| (sample, when(now_ms, sample.time_ms))).collect(),
            removed,
            sights: std::mem::take(&mut seen.sights),
            met: Vec::new(),
            sights_lost: std::mem::take(&mut seen.lost),
            used: std::mem::take(&mut seen.used),
            below: seen.below,
        };
        watched.step(&step, now_ms);
        seen.below = seen.below.min(watched.watch().below());
    }
    watched.end();
    Ok(watched)
}
