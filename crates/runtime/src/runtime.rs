//! The runtime as the control thread sees it.
//!
//! All calls here block the caller until the reactors have answered; none is made on the data path.

use crate::devices::{DeviceOptions, DeviceRef, DeviceShared};
use crate::endpoint::Endpoint;
use crate::error::RuntimeError;
use crate::group::EndpointGroup;
use crate::message::{Directory, Message};
use crate::parts::{Part, Parts};
use crate::reactor::{Reactor, Standing, monotonic_ns, wanted_cpu_latency, wanted_precedence};
use crate::stats::{DeviceStats, VolumeStats};
use crate::volume::{Route, VolumeRef, VolumeShared};
use page::PagePool;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a reactor may take to answer something that needs no I/O. Its callbacks take microseconds; a machine in deep
/// memory pressure may take seconds.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// How long the threads may take to let I/O in flight end when the runtime stops. The kernel's own timeout of a block device is 30 s.
const EXIT_PATIENCE: Duration = Duration::from_secs(40);
/// What a thread may take beyond that to notice.
const EXIT_SLACK: Duration = Duration::from_secs(5);

/// How the runtime is made.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// Threads, each with its ring.
    pub reactors: u16,
    /// Whether they run before ordinary threads when that helps, where they may.
    pub real_time: bool,
    /// Whether they keep processors from deep sleep while clients do much I/O, where they may.
    pub cpu_latency: bool,
    /// Pages for requests to bare volumes, and for whatever else has no page pool of its own.
    pub io_pages: usize,
    /// Entries each ring takes at once; a power of two. More wait in memory.
    pub ring_entries: u32,
    /// Requests one volume may have in flight on one reactor before endpoints are held back.
    pub in_flight_max: u32,
}

impl Default for RuntimeOptions {
    fn default() -> RuntimeOptions {
        RuntimeOptions {
            // Half the cores: the other half is for those who use the volumes.
            reactors: u16::try_from((processors() / 2).max(1)).unwrap_or(u16::MAX),
            real_time: false,
            cpu_latency: false,
            // 64 MiB: two requests of the largest size with all they need, or 16,384 small ones.
            io_pages: 16 << 10,
            ring_entries: 512,
            // Beyond what any one client keeps in flight (NBD and block layers: up to 256), with room for several.
            in_flight_max: 1024,
        }
    }
}

/// Threads, rings and everything on them. Dropping it without [`Runtime::shutdown`] ends the threads as well as it can.
pub struct Runtime {
    pub(crate) directory: Arc<Directory>,
    threads: Mutex<Vec<Thread>>,
    standing: Standing,
    pages: PagePool,
    pub(crate) options: RuntimeOptions,
    pub(crate) numbers: Numbers,
    pub(crate) groups: Mutex<Vec<EndpointGroup>>,
}

/// A reactor's thread.
struct Thread {
    reactor: u16,
    handle: JoinHandle<()>,
    /// Whether the kernel has let go of all its memory, when its loop has ended; an error is the ring's.
    ended: Receiver<io::Result<bool>>,
}

/// Numbers that are never reused while the runtime lives.
#[derive(Default)]
pub(crate) struct Numbers {
    device: AtomicU32,
    volume: AtomicU32,
    group: AtomicU32,
    pub(crate) pool: AtomicU32,
    pub(crate) token: AtomicU64,
}

/// See [`Runtime::endpoint_adder`].
#[derive(Clone)]
pub struct EndpointAdder {
    directory: Arc<Directory>,
    group: EndpointGroup,
}

impl EndpointAdder {
    /// Adds an endpoint on the reactor with the fewest. A group that is being stopped drops it, and so does a runtime that has ended.
    pub fn add(&self, endpoint: Box<dyn Endpoint>) {
        self.directory.add_endpoint(endpoint, self.group.join());
    }
}

/// How a bare volume is made.
#[derive(Clone, Debug)]
pub struct BareVolumeOptions {
    /// Its name.
    pub name: String,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl Runtime {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`RuntimeError::Start`] if the kernel refuses a ring or a thread; nothing is left running then.
    pub fn start(options: RuntimeOptions) -> Result<Runtime, RuntimeError> {
        let directory = Directory::new(options.reactors.max(1)).map_err(|source| RuntimeError::Start { reactor: 0, source })?;
        let wanted = Standing {
            precedence: wanted_precedence(options.real_time, options.reactors.max(1), processors()),
            cpu_latency: wanted_cpu_latency(options.cpu_latency),
        };
        let mut runtime = Runtime {
            directory: Arc::new(directory),
            threads: Mutex::default(),
            standing: wanted.clone(),
            pages: PagePool::new(options.io_pages),
            options,
            numbers: Numbers::default(),
            groups: Mutex::default(),
        };
        for index in 0..runtime.reactors() {
            let (started, answer) = mpsc::channel();
            let (end, ended) = mpsc::channel();
            let directory = runtime.directory.clone();
            let ring_entries = runtime.options.ring_entries;
            let wanted = wanted.clone();
            let body = move || reactor_thread(index, directory, ring_entries, wanted, &started, &end);
            let spawned = std::thread::Builder::new().name(format!("reactor-{index}")).spawn(body);
            let handle = spawned.map_err(|source| RuntimeError::Start { reactor: index, source })?;
            runtime.threads.lock().expect("no holder of this lock panics").push(Thread { reactor: index, handle, ended });
            let ready = answer.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")));
            runtime.standing = ready.map_err(|source| RuntimeError::Start { reactor: index, source })?;
        }
        Ok(runtime)
    }

    /// How many reactors there are.
    pub fn reactors(&self) -> u16 {
        self.directory.peers.len() as u16
    }

    /// What reactors have of the machine's processors.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// How often the reactors have woken since they started, all together. Does not grow while nothing is to be done.
    pub fn turns(&self) -> u64 {
        self.directory.peers.iter().map(|peer| peer.turns.load(Ordering::Relaxed)).sum()
    }

    /// The pool that [`RuntimeOptions::io_pages`] has set the size of.
    pub fn pages(&self) -> &PagePool {
        &self.pages
    }

    /// Takes a device in: from now on volumes and pools may be made over it.
    ///
    /// # Errors
    /// [`RuntimeError::Device`] if a reactor cannot have its own handle.
    pub fn open_device(&self, options: DeviceOptions) -> Result<DeviceRef, RuntimeError> {
        let DeviceOptions { name, file, geometry, model } = options;
        let number = self.numbers.device.fetch_add(1, Ordering::Relaxed);
        let model_home = model.is_some().then_some((number % u32::from(self.reactors())) as u16);
        let shared = Arc::new(DeviceShared::new(number, name, file, geometry, model_home));
        let device = DeviceRef(shared.clone());
        let mut model = model.map(Box::new);
        let answers = self.ask_all("open device", ANSWER_PATIENCE, |reactor, done| Message::AddDevice {
            device: shared.clone(),
            model: if model_home == Some(reactor) { model.take() } else { None },
            done,
        })?;
        for answer in answers {
            if let Err(source) = answer {
                let device = shared.name.clone();
                return Err(RuntimeError::Device { device, source });
            }
        }
        Ok(device)
    }

    /// A volume that is a device and nothing else.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn add_bare_volume(&self, device: &DeviceRef, options: BareVolumeOptions) -> Result<VolumeRef, RuntimeError> {
        self.add_bare(device, device.geometry().size_bytes, Vec::new(), options)
    }

    /// A volume that consists of these parts of the device, one behind the other.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    ///
    /// # Panics
    /// If there is no part, or one is empty, is no multiple of 4096 or lies behind the end of the device.
    pub fn add_parts_of_device(&self, device: &DeviceRef, parts: Vec<Part>, options: BareVolumeOptions) -> Result<VolumeRef, RuntimeError> {
        let device_bytes = device.geometry().size_bytes;
        assert!(!parts.is_empty() && parts.iter().all(|part| part.end_bytes() <= device_bytes), "parts of {device_bytes} bytes: {parts:?}");
        self.add_bare(device, parts.iter().map(|part| part.length_bytes).sum(), parts, options)
    }

    /// A volume of parts of a device has these from now on: more behind those that it had.
    ///
    /// # Panics
    /// If a byte would be somewhere else than before.
    pub fn grow_parts(&self, volume: &VolumeRef, parts: Vec<Part>) {
        let size_bytes = parts.iter().map(|part| part.length_bytes).sum();
        // Before anybody is told of them.
        volume.0.parts.set(parts);
        volume.0.grow(size_bytes);
    }

    fn add_bare(
        &self,
        device: &DeviceRef,
        size_bytes: u64,
        parts: Vec<Part>,
        options: BareVolumeOptions,
    ) -> Result<VolumeRef, RuntimeError> {
        let geometry = device.geometry();
        let shared = VolumeShared {
            number: self.next_volume_number(),
            name: options.name,
            size_bytes: AtomicU64::new(size_bytes),
            logical_block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: device.0.physical_block_bytes,
            atomic_bytes: AtomicU32::new(0),
            read_only: AtomicBool::new(options.read_only),
            can_discard: geometry.discard,
            discard_zeroes: geometry.discard_zeroes,
            sampled_below: AtomicU64::new(0),
            pages: self.pages.clone(),
            pool_number: 0,
            // For reads: see the lines for pages in `reactor::waiters`.
            reserved_pages: self.pages.pages_max() / 4,
            route: Route::Bare { device: device.0.number },
            parts: Parts::new(parts),
        };
        self.add_volume(shared)
    }

    /// A device has grown: its volumes may do I/O up to there. What has its own word to say of that comes before.
    pub(crate) fn grow_device(&self, device: &DeviceRef, size_bytes: u64) -> Result<(), RuntimeError> {
        let number = device.0.number;
        if device.0.model_home.is_some() {
            self.ask_all("grow device", ANSWER_PATIENCE, |_, done| Message::GrowModel { number, size_bytes, done })?;
        }
        device.0.grow(size_bytes);
        Ok(())
    }

    /// A volume that is a device and nothing else is as large as its device has become, which has `size_bytes`.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn grow_bare_volume(&self, volume: &VolumeRef, device: &DeviceRef, size_bytes: u64) -> Result<(), RuntimeError> {
        self.grow_device(device, size_bytes)?;
        volume.0.grow(size_bytes);
        Ok(())
    }

    pub(crate) fn next_volume_number(&self) -> u32 {
        self.numbers.volume.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_volume(&self, shared: VolumeShared) -> Result<VolumeRef, RuntimeError> {
        let volume = VolumeRef(Arc::new(shared));
        let in_flight_max = self.options.in_flight_max;
        self.ask_all("add volume", ANSWER_PATIENCE, |_, done| Message::AddVolume { volume: volume.clone(), in_flight_max, done })?;
        Ok(volume)
    }

    /// Takes a volume away: new requests are answered with `Shutdown`, and when those in flight are answered it is gone. The
    /// device stays.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if requests are still in flight after `patience`. The volume takes no requests then
    /// and goes when the last is answered.
    pub fn remove_volume(&self, volume: &VolumeRef, patience: Duration) -> Result<(), RuntimeError> {
        let number = volume.0.number;
        self.ask_all("remove volume", patience, |_, done| Message::RemoveVolume { number, done }).map(drop)
    }

    /// Counters and latencies of a volume, over all reactors, since it was added.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn stats(&self, volume: &VolumeRef) -> Result<VolumeStats, RuntimeError> {
        let number = volume.0.number;
        let parts = self.ask_all("volume statistics", ANSWER_PATIENCE, |_, done| Message::VolumeStats { number, done })?;
        let mut total = VolumeStats::default();
        parts.iter().for_each(|part| total.merge(part));
        Ok(total)
    }

    /// Counters and latencies of a device, over all reactors, since it was opened.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn device_stats(&self, device: &DeviceRef) -> Result<DeviceStats, RuntimeError> {
        let number = device.0.number;
        let parts = self.ask_all("device statistics", ANSWER_PATIENCE, |_, done| Message::DeviceStats { number, done })?;
        let mut total = DeviceStats::default();
        parts.iter().for_each(|part| total.merge(part));
        Ok(total)
    }

    /// Adds an endpoint (a listener, usually) on the reactor with the fewest, as the first of a group of its own.
    pub fn add_endpoint(&self, endpoint: Box<dyn Endpoint>) -> EndpointGroup {
        let group = EndpointGroup::new(self.numbers.group.fetch_add(1, Ordering::Relaxed));
        self.add_endpoint_to(&group, endpoint);
        let mut groups = self.groups.lock().expect("no holder of this lock panics");
        groups.retain(|group| !group.is_empty());
        groups.push(group.clone());
        group
    }

    /// Adds another endpoint to a group: several queues of one FUSE mount, say. A group that is being stopped drops it.
    pub fn add_endpoint_to(&self, group: &EndpointGroup, endpoint: Box<dyn Endpoint>) {
        self.directory.add_endpoint(endpoint, group.join());
    }

    /// Adds another endpoint to a group on a chosen reactor.
    ///
    /// # Panics
    /// If there is no such reactor.
    pub fn add_endpoint_on(&self, reactor: u16, group: &EndpointGroup, endpoint: Box<dyn Endpoint>) {
        self.directory.peers[reactor as usize].endpoints.fetch_add(1, Ordering::Relaxed);
        self.directory.send(reactor, Message::AddEndpoint { endpoint, membership: group.join() });
    }

    /// Adds endpoints to a group from any thread, without the runtime itself.
    pub fn endpoint_adder(&self, group: &EndpointGroup) -> EndpointAdder {
        EndpointAdder { directory: self.directory.clone(), group: group.clone() }
    }

    /// Calls [`Endpoint::woken`] of each endpoint of a group, soon.
    pub fn wake_endpoints(&self, group: &EndpointGroup) {
        let number = group.0.number;
        self.tell_all(|| Message::WakeGroup { group: number });
    }

    /// Stops a group: each endpoint is asked to wind down; those that have not closed after `patience` are closed by force.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if entries on the ring refuse to end even then; the endpoints go when they do.
    pub fn stop_endpoints(&self, group: &EndpointGroup, patience: Duration) -> Result<(), RuntimeError> {
        group.0.stopping.store(true, Ordering::Release);
        let number = group.0.number;
        self.tell_all(|| Message::StopGroup { group: number });
        if group.wait_empty(patience) {
            return Ok(());
        }
        self.tell_all(|| Message::ForceCloseGroup { group: number });
        // What is cancelled ends in microseconds, unless a device hangs.
        let forced_patience = Duration::from_secs(5);
        if group.wait_empty(forced_patience) {
            return Ok(());
        }
        let waited_ms = (patience + forced_patience).as_millis() as u64;
        Err(RuntimeError::Timeout { what: "stop export", waited_ms })
    }

    /// Closes a group whose entries on the ring end only with this process (commands to ublk), as a
    /// part of its end: their memory stays until then, and nobody waits for them.
    pub fn leave_endpoints(&self, group: &EndpointGroup) {
        group.0.abandoned.store(true, Ordering::Release);
        let number = group.0.number;
        self.groups.lock().expect("no holder of this lock panics").retain(|known| known.0.number != number);
        self.tell_all(|| Message::ForceCloseGroup { group: number });
    }

    /// Ends everything: stops all endpoints (with `patience` for each group), lets I/O in flight end, and joins the threads. Pools must have
    /// been taken out before (`remove_pool`): what they still hold is dropped here.
    ///
    /// # Errors
    /// The first thing that did not end as it should; the rest was done nevertheless.
    pub fn shutdown(self, patience: Duration) -> Result<(), RuntimeError> {
        let groups = std::mem::take(&mut *self.groups.lock().expect("no holder of this lock panics"));
        let stopped: Vec<_> = groups.iter().map(|group| self.stop_endpoints(group, patience)).collect();
        let ended = self.end_threads();
        stopped.into_iter().chain(ended).find(Result::is_err).unwrap_or(Ok(()))
    }

    fn end_threads(&self) -> Vec<Result<(), RuntimeError>> {
        let deadline = Instant::now() + EXIT_PATIENCE;
        let deadline_ns = monotonic_ns() + EXIT_PATIENCE.as_nanos() as u64;
        self.tell_all(|| Message::Exit { deadline_ns });
        let threads = std::mem::take(&mut *self.threads.lock().expect("no holder of this lock panics"));
        let end = |Thread { reactor, handle, ended }: Thread| {
            // Beyond the deadline, which the thread keeps by itself, for the way out.
            let left = deadline.saturating_duration_since(Instant::now()) + EXIT_SLACK;
            match ended.recv_timeout(left) {
                Ok(Ok(true)) | Err(RecvTimeoutError::Disconnected) => {
                    handle.join().expect("a reactor that panics ends the process");
                    Ok(())
                }
                // A thread whose I/O the kernel does not complete may not be able to end: it is left to the end of the process.
                Ok(Ok(false)) => Err(RuntimeError::Stuck { reactor }),
                Ok(Err(source)) => Err(RuntimeError::Start { reactor, source }),
                Err(RecvTimeoutError::Timeout) => Err(RuntimeError::Timeout { what: "end a reactor", waited_ms: left.as_millis() as u64 }),
            }
        };
        threads.into_iter().map(end).collect()
    }

    pub(crate) fn tell_all(&self, mut message: impl FnMut() -> Message) {
        for reactor in 0..self.reactors() {
            self.directory.send(reactor, message());
        }
    }

    /// Sends a message to every reactor and waits for all answers.
    pub(crate) fn ask_all<T>(
        &self,
        what: &'static str,
        patience: Duration,
        mut message: impl FnMut(u16, Sender<T>) -> Message,
    ) -> Result<Vec<T>, RuntimeError> {
        let (done, answers) = mpsc::channel();
        for reactor in 0..self.reactors() {
            self.directory.send(reactor, message(reactor, done.clone()));
        }
        drop(done);
        collect(what, patience, self.reactors() as usize, &answers)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Endpoints that are still there are closed by force: nobody is left to answer them.
        for group in std::mem::take(&mut *self.groups.lock().expect("no holder of this lock panics")) {
            group.0.stopping.store(true, Ordering::Release);
            self.tell_all(|| Message::ForceCloseGroup { group: group.0.number });
            group.wait_empty(Duration::from_secs(1));
        }
        self.end_threads();
    }
}

fn collect<T>(what: &'static str, patience: Duration, count: usize, answers: &Receiver<T>) -> Result<Vec<T>, RuntimeError> {
    let deadline = Instant::now() + patience;
    let mut collected = Vec::with_capacity(count);
    while collected.len() < count {
        match answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(answer) => collected.push(answer),
            Err(RecvTimeoutError::Timeout) => {
                return Err(RuntimeError::Timeout { what, waited_ms: patience.as_millis() as u64 });
            }
            // A volume that was never there answers by dropping the sender: nothing more will come.
            Err(RecvTimeoutError::Disconnected) => return Ok(collected),
        }
    }
    Ok(collected)
}

/// Processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn reactor_thread(
    index: u16,
    directory: Arc<Directory>,
    ring_entries: u32,
    wanted: Standing,
    started: &Sender<io::Result<Standing>>,
    end: &Sender<io::Result<bool>>,
) {
    block_signals();
    let _guard = AbortOnPanic;
    let (mut reactor, standing) = match Reactor::new(index, directory, ring_entries, wanted) {
        Ok(made) => made,
        Err(error) => {
            // The starter waits for this; if it is gone there is nobody to tell.
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(standing));
    let result = reactor.run();
    if !matches!(result, Ok(true)) || reactor.has_left_endpoints() {
        // The kernel may still write to memory that the reactor owns.
        std::mem::forget(reactor);
    }
    // Nobody waits where the runtime was dropped in the middle of its start.
    let _ = end.send(result);
}

/// Signals are the control thread's affair, but for those that this thread's own accesses cause: blocked, they would end the process
/// without asking their handlers.
fn block_signals() {
    // SAFETY: all calls write to or read from a valid signal set.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for own in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// A reactor that panics must not unwind: the kernel may still be writing to memory that unwinding would free, and clients
/// would wait for ever. The process ends as if killed, which loses no acknowledged write (C2).
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
