//! What the examples share: an endpoint that reads at random, and how CPU time is measured.

use device::Geometry;
use engine::api::{Op, Origin, Reply, Request};
use runtime::{ANY_VOLUME, Context, DeviceOptions, Endpoint, Runtime, VolumeRef};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Size of the volumes that are read.
pub const SIZE_BYTES: u64 = 256 << 20;

struct Reader {
    volume: VolumeRef,
    state: u64,
    depth: u64,
    to_send: u64,
    to_answer: u64,
    done: Sender<()>,
}

impl Reader {
    fn send(&mut self, cx: &mut Context<'_>, id: u64) {
        // A linear congruential generator: the cheapest one whose upper bits will do.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (self.state >> 33) % (SIZE_BYTES / 4096);
        let request = Request::new(id, ANY_VOLUME, Op::Read, block * 8, 8, Origin::Client);
        cx.submit(&self.volume, request).expect("the depth is below the limit");
        self.to_send -= 1;
    }
}

impl Endpoint for Reader {
    fn start(&mut self, cx: &mut Context<'_>) {
        (0..self.depth.min(self.to_send)).for_each(|id| self.send(cx, id));
    }

    fn ring(&mut self, _: &mut Context<'_>, _: u32, _: i32, _: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        reply.result.expect("the read succeeds");
        self.to_answer -= 1;
        if self.to_send > 0 {
            self.send(cx, reply.id);
        } else if self.to_answer == 0 {
            self.done.send(()).expect("main waits");
            cx.close();
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

fn cpu_ns() -> (u64, u64) {
    // SAFETY: a zeroed rusage is valid, and is filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// A file of [`SIZE_BYTES`] as a device; made and filled if it is not there.
pub fn device(path: &Path) -> DeviceOptions {
    if !path.exists() {
        let mut file = std::fs::File::create(path).expect("a new file");
        let piece: Vec<u8> = (0..1u32 << 20).map(|index| ((index * 31) >> 3) as u8).collect();
        (0..SIZE_BYTES >> 20).for_each(|_| file.write_all(&piece).expect("room for the file"));
        file.sync_all().expect("the file is stored");
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("the file opens with O_DIRECT");
    let geometry =
        Geometry { size_bytes: SIZE_BYTES, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: true };
    DeviceOptions { name: path.display().to_string(), file, geometry, model: None }
}

/// Reads at random with `depth` requests in flight for each reactor, and prints what it cost.
pub fn measure(runtime: &Runtime, volume: &VolumeRef, depth: u64, operations: u64) {
    let before = runtime.stats(volume).expect("statistics");
    let (user_before, system_before) = cpu_ns();
    let started = Instant::now();
    let (done, ended) = std::sync::mpsc::channel();
    let reactors = u64::from(runtime.reactors());
    for reader in 0..reactors {
        let share = operations / reactors;
        let reader = Reader { volume: volume.clone(), state: reader, depth, to_send: share, to_answer: share, done: done.clone() };
        runtime.add_endpoint(Box::new(reader));
    }
    (0..reactors).for_each(|_| ended.recv().expect("every reader ends"));
    let elapsed = started.elapsed();
    let (user_after, system_after) = cpu_ns();

    let stats = runtime.stats(volume).expect("statistics");
    let reads = stats.reads - before.reads;
    let latency = stats.latency(None, None).since(&before.latency(None, None)).summary();
    println!("depth {depth}, {reads} reads, {reactors} reactor(s)");
    println!("  {:>10.0} IOPS", reads as f64 / elapsed.as_secs_f64());
    println!("  {:>10} ns user CPU per read", (user_after - user_before) / reads);
    println!("  {:>10} ns system CPU per read", (system_after - system_before) / reads);
    println!("  {:>10} ns median, {} ns p99", latency.p50_ns, latency.p99_ns);
}
