//! Closed-loop workloads on a model in virtual time: a minute of a modelled disk takes milliseconds.
//!
//! For the tests that hold the model to its figures, and for the examples that print them.

use super::{DiskModel, IoDescription, IoKind};

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Uniformly over the first `share` of the device.
    Uniform {
        /// 0 to 1.
        share: f64,
    },
    /// `io_share` of the requests in the first `space_share` of the device, the others in the rest.
    Zoned {
        /// 0 to 1.
        io_share: f64,
        /// 0 to 1.
        space_share: f64,
    },
    /// One after the other from the start, on as many streams as stated, each with its own equal part of the device.
    Sequential {
        /// At least 1.
        streams: u64,
    },
}

/// A closed loop of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// Where they go.
    pub pattern: Pattern,
    /// Their size.
    pub request_bytes: u64,
    /// How many are reads, 0 to 1; the others write.
    pub read_share: f64,
    /// How many are in flight.
    pub depth: usize,
    /// What the host needs between a completion and the next request, in ns.
    pub host_ns: u64,
}

impl Workload {
    /// 4 KiB uniformly random reads.
    pub const fn random_read(depth: usize) -> Workload {
        let pattern = Pattern::Uniform { share: 1.0 };
        Workload { pattern, request_bytes: 4096, read_share: 1.0, depth, host_ns: 0 }
    }

    /// Sequential reads on one stream, one at a time, with the 0.2 ms that a FUSE server under a loop device costs.
    pub const fn sequential_read(request_bytes: u64) -> Workload {
        let pattern = Pattern::Sequential { streams: 1 };
        Workload { pattern, request_bytes, read_share: 1.0, depth: 1, host_ns: 200_000 }
    }

    /// The hot-spot workload of the trade: 4 KiB, 80 % of I/O on 10 % of the space, 80/20 read-write, depth 64.
    pub const fn hot_spot() -> Workload {
        let pattern = Pattern::Zoned { io_share: 0.8, space_share: 0.1 };
        Workload { pattern, request_bytes: 4096, read_share: 0.8, depth: 64, host_ns: 0 }
    }
}

/// What a run measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// Requests completed a second of virtual time.
    pub iops: f64,
    /// Bytes a second, in MB (10^6).
    pub mb_s: f64,
    /// Mean latency of reads, in ms; 0 if there were none.
    pub read_mean_ms: f64,
    /// 99th percentile of reads, in ms.
    pub read_p99_ms: f64,
    /// Mean latency of writes, in ms; 0 if there were none.
    pub write_mean_ms: f64,
}

/// A small generator of random numbers (splitmix64): same seed, same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }
}

/// Draws the requests of a [`Workload`].
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    size_bytes: u64,
    random: Random,
    issued: u64,
}

impl Generator {
    /// Requests for a device of `size_bytes`.
    ///
    /// # Panics
    /// If the device does not hold ten requests.
    pub fn new(workload: Workload, size_bytes: u64, seed: u64) -> Generator {
        assert!(workload.request_bytes > 0 && size_bytes / workload.request_bytes >= 10, "{size_bytes} bytes are too small");
        Generator { workload, size_bytes, random: Random::new(seed), issued: 0 }
    }

    /// The next request, under this token.
    pub fn next(&mut self, token: u64) -> IoDescription {
        let places = self.size_bytes / self.workload.request_bytes;
        let place = match self.workload.pattern {
            Pattern::Uniform { share } => self.random.below(((places as f64 * share) as u64).max(1)),
            Pattern::Zoned { io_share, space_share } => {
                let edge = ((places as f64 * space_share) as u64).clamp(1, places - 1);
                if self.random.unit() < io_share { self.random.below(edge) } else { edge + self.random.below(places - edge) }
            }
            Pattern::Sequential { streams } => {
                let (stream, step) = (self.issued % streams, self.issued / streams);
                let part = places / streams;
                stream * part + step % part
            }
        };
        self.issued += 1;
        let kind = if self.random.unit() < self.workload.read_share { IoKind::Read } else { IoKind::Write };
        let (offset_bytes, length_bytes) = (place * self.workload.request_bytes, self.workload.request_bytes);
        IoDescription { token, kind, offset_bytes, length_bytes, fua: false }
    }
}

/// Runs `workload` on `model` from `start_ns`: `warm_up_ns` unmeasured, then `duration_ns` measured.
pub fn run(model: &mut DiskModel, workload: Workload, start_ns: u64, warm_up_ns: u64, duration_ns: u64, seed: u64) -> Measurement {
    let mut generator = Generator::new(workload, model.size_bytes(), seed);
    let (measure_ns, end_ns) = (start_ns + warm_up_ns, start_ns + warm_up_ns + duration_ns);
    let mut in_flight: Vec<(u64, IoKind)> = Vec::with_capacity(workload.depth);
    // Requests that the host will issue, by time.
    let mut waiting: Vec<(u64, u64)> = Vec::new();
    let (mut reads_ns, mut writes_ns) = (Vec::new(), Vec::new());
    for token in 0..workload.depth as u64 {
        let io = generator.next(token);
        in_flight.push((start_ns, io.kind));
        model.submit(start_ns, io);
    }
    let mut now_ns = start_ns;
    while now_ns < end_ns {
        while let Some(token) = model.pop_completed(now_ns) {
            let (since_ns, kind) = in_flight[token as usize];
            if now_ns >= measure_ns {
                let latencies = if kind == IoKind::Read { &mut reads_ns } else { &mut writes_ns };
                latencies.push(now_ns - since_ns);
            }
            waiting.push((now_ns + workload.host_ns, token));
        }
        waiting.sort_unstable();
        let due = waiting.partition_point(|(at_ns, _)| *at_ns <= now_ns);
        for (_, token) in waiting.drain(..due) {
            let io = generator.next(token);
            in_flight[token as usize] = (now_ns, io.kind);
            model.submit(now_ns, io);
        }
        let next = [model.next_deadline_ns(), waiting.first().map(|(at_ns, _)| *at_ns)].into_iter().flatten().min();
        now_ns = next.expect("a closed loop always has a request somewhere").max(now_ns);
    }
    let count = reads_ns.len() + writes_ns.len();
    let iops = count as f64 * 1e9 / duration_ns as f64;
    Measurement {
        iops,
        mb_s: iops * workload.request_bytes as f64 / 1e6,
        read_mean_ms: mean_ms(&reads_ns),
        read_p99_ms: percentile_ms(&mut reads_ns, 0.99),
        write_mean_ms: mean_ms(&writes_ns),
    }
}

fn mean_ms(latencies_ns: &[u64]) -> f64 {
    latencies_ns.iter().sum::<u64>() as f64 / latencies_ns.len().max(1) as f64 / 1e6
}

fn percentile_ms(latencies_ns: &mut [u64], share: f64) -> f64 {
    latencies_ns.sort_unstable();
    let index = (latencies_ns.len() as f64 * share) as usize;
    latencies_ns.get(index.min(latencies_ns.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1e6)
}
