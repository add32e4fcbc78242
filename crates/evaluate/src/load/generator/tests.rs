//! The generator on a disk of made-up time, where every figure is known, and on real files.

use super::*;
use crate::load::{Content, Length, Pace, fill, unwatched};
use crate::pattern::{Pattern, Places};
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

const MS: u64 = 1_000_000;

/// A disk of made-up time: so many I/Os at a time, each as long as `time_ns` says of its number and its begin.
struct Fake<F> {
    now_ns: u64,
    at_a_time: usize,
    time_ns: F,
    /// Ends of what is being done, soonest first.
    busy: BinaryHeap<std::cmp::Reverse<(u64, usize)>>,
    line: std::collections::VecDeque<usize>,
    buffers: Vec<Option<AlignedBuffer>>,
    begun: Vec<Order>,
    most: usize,
}

impl<F: FnMut(usize, u64) -> u64> Fake<F> {
    fn new(at_a_time: usize, time_ns: F) -> Fake<F> {
        let buffers = std::iter::repeat_with(|| None).take(256).collect();
        Fake { now_ns: 77, at_a_time, time_ns, busy: BinaryHeap::new(), line: [].into(), buffers, begun: Vec::new(), most: 0 }
    }

    fn fill_up(&mut self) {
        while self.busy.len() < self.at_a_time
            && let Some(slot) = self.line.pop_front()
        {
            let end_ns = self.now_ns + (self.time_ns)(self.begun.len(), self.now_ns);
            self.busy.push(std::cmp::Reverse((end_ns, slot)));
        }
    }
}

impl<F: FnMut(usize, u64) -> u64> Disk for Fake<F> {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }

    fn begin(&mut self, order: &Order, buffer: AlignedBuffer) {
        self.begun.push(*order);
        assert!(self.buffers[order.slot].replace(buffer).is_none(), "a slot is used once at a time");
        self.line.push_back(order.slot);
        self.most = self.most.max(self.line.len() + self.busy.len());
        self.fill_up();
    }

    fn wait(&mut self, until_ns: u64, ended: &mut Vec<(usize, AlignedBuffer)>) -> Result<(), Trouble> {
        let next_ns = self.busy.peek().map_or(u64::MAX, |next| next.0.0);
        self.now_ns = self.now_ns.max(next_ns.min(until_ns));
        while let Some(std::cmp::Reverse((end_ns, slot))) = self.busy.peek().copied()
            && end_ns <= self.now_ns
        {
            self.busy.pop();
            ended.push((slot, self.buffers[slot].take().expect("it was begun")));
        }
        self.fill_up();
        Ok(())
    }
}

fn load(reads_percent: u32, places: Places, pace: Pace, length: Length) -> Load {
    let pattern = Pattern { block_bytes: 4096, space_bytes: 40 << 20, reads_percent, places };
    Load { pattern, pace, length, content: Content::Incompressible, seed: 5, verify: false }
}

fn on<F: FnMut(usize, u64) -> u64>(disk: &mut Fake<F>, load: &Load) -> Loaded {
    play(disk, load, &AtomicBool::new(false), &mut unwatched).expect("it plays")
}

#[test]
fn a_closed_loop_keeps_its_depth_and_measures_what_the_disk_took() {
    for depth in [1, 7, 256] {
        let mut disk = Fake::new(4, |_, _| 2 * MS);
        let loaded = on(&mut disk, &load(100, Places::Uniform, Pace::Closed { depth }, Length::seconds(10.0)));
        assert_eq!(disk.most, depth as usize);
        let rate = f64::from(depth.min(4)) / 0.002;
        assert!((loaded.rate - rate).abs() < rate * 0.01, "{depth}: {}", loaded.rate);
        let mean_us = f64::from(depth.max(4)) / 4.0 * 2000.0 * if depth < 4 { f64::from(depth.min(1)) } else { 1.0 };
        assert!((loaded.latency.mean_us - mean_us).abs() < mean_us * 0.04, "{depth}: {} us", loaded.latency.mean_us);
        assert_eq!((loaded.series.len(), loaded.wall_s, loaded.unanswered), (10, 10.0, 0));
        assert!(loaded.series.iter().all(|second| (second.rate - rate).abs() < rate * 0.02));
    }
}

#[test]
fn a_closed_loop_hides_a_stall_and_an_open_one_does_not() {
    // 1 ms each, but all that begins between 4 and 6 s waits until 6 s.
    let stalls = |_: usize, now_ns: u64| if (4000 * MS..6000 * MS).contains(&now_ns) { 6000 * MS - now_ns } else { MS };
    let closed = on(&mut Fake::new(64, stalls), &load(100, Places::Uniform, Pace::Closed { depth: 1 }, Length::seconds(10.0)));
    assert!(closed.latency.percentiles_us["99"] < 1100.0, "a closed loop sees one slow request of 8000");
    let pace = Pace::Open { per_s: 500.0, random: false, depth_max: 64 };
    let open = on(&mut Fake::new(64, stalls), &load(100, Places::Uniform, pace, Length::seconds(10.0)));
    // A fifth of the requests were due in the stall; they waited 1 s on average, those at its begin 2 s.
    assert_eq!(open.reads.count, 4999);
    let within = open.reads.histogram.share_within_us(2000.0).expect("some");
    assert!((within - 0.8).abs() < 0.02, "{within} were answered at once");
    assert!((open.latency.mean_us - 0.2 * 1e6).abs() < 2e4, "{} us", open.latency.mean_us);
    assert!((open.latency.percentiles_us["99"] - 1.9e6).abs() < 0.04e6, "{:?}", open.latency.percentiles_us);
    assert!(open.series[4].rate < 40.0 && open.series[6].rate > 1000.0, "{:?}", open.series);
    assert_eq!(open.unanswered, 0);
}

#[test]
fn requests_of_an_open_loop_come_as_a_poisson_process() {
    let pace = Pace::Open { per_s: 1000.0, random: true, depth_max: 256 };
    let mut disk = Fake::new(256, |_, _| 10_000);
    let loaded = on(&mut disk, &load(100, Places::Uniform, pace, Length::seconds(100.0)));
    assert!((loaded.rate - 1000.0).abs() < 20.0, "{}", loaded.rate);
    // In a Poisson process the count of a second has its mean as its variance.
    let rates = loaded.rates();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    assert!((600.0..1500.0).contains(&variance), "{variance}");
    let even = on(
        &mut Fake::new(256, |_, _| 10_000),
        &Load {
            pace: Pace::Open { per_s: 1000.0, random: false, depth_max: 256 },
            ..load(100, Places::Uniform, pace, Length::seconds(5.0))
        },
    );
    assert!(even.rates().iter().all(|rate| (rate - 1000.0).abs() <= 1.0), "{:?}", even.rates());
}

#[test]
fn more_than_the_disk_can_do_is_told() {
    let pace = Pace::Open { per_s: 1000.0, random: false, depth_max: 8 };
    // 250 a second at most.
    let loaded = on(&mut Fake::new(1, |_, _| 4 * MS), &load(50, Places::Uniform, pace, Length::seconds(40.0)));
    assert!((loaded.rate - 250.0).abs() < 3.0, "{}", loaded.rate);
    // Answered: 40 s, and 4 more in which nothing new was due.
    assert_eq!(loaded.unanswered + loaded.reads.count + loaded.writes.count, 39_999);
    assert!((loaded.wall_s - 44.0).abs() < 0.1 && loaded.latency.percentiles_us["99.9"] > 30e6, "{} s", loaded.wall_s);
}

#[test]
fn a_number_of_requests_ends_a_load_to_the_one() {
    for pace in [Pace::Closed { depth: 32 }, Pace::Open { per_s: 300.0, random: true, depth_max: 32 }] {
        let mut disk = Fake::new(2, |_, _| 3 * MS);
        let loaded = on(&mut disk, &load(70, Places::Uniform, pace, Length::requests(1000)));
        assert_eq!((loaded.reads.count + loaded.writes.count, disk.begun.len()), (1000, 1000));
        assert!(loaded.wall_s > 1.4 && loaded.wall_s < 4.5, "{}", loaded.wall_s);
        assert!((650..=750).contains(&loaded.reads.count));
        assert_eq!(loaded.reads.bytes, loaded.reads.count * 4096);
    }
}

#[test]
fn a_watched_load_tells_each_second_and_may_be_ended() {
    let mut disk = Fake::new(1, |_, now_ns| if now_ns < 2000 * MS { 20 * MS } else { 10 * MS });
    let mut seconds = Vec::new();
    let long = load(100, Places::Sequential, Pace::Closed { depth: 1 }, Length::seconds(3600.0));
    let loaded = play(&mut disk, &long, &AtomicBool::new(false), &mut |second| {
        seconds.push(second.rate);
        if second.rate > 80.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let loaded = loaded.expect("ended, not stopped");
    assert_eq!(seconds.len(), 3);
    assert_eq!(loaded.series.len(), 3, "{:?}", loaded.series);
    let stopped = play(&mut disk, &long, &AtomicBool::new(true), &mut unwatched);
    assert_eq!(stopped, Err(Trouble::Stopped));
}

#[test]
fn a_load_that_cannot_be_played_is_refused() {
    let good = load(100, Places::Uniform, Pace::Closed { depth: 1 }, Length::requests(1));
    let open = |per_s| Pace::Open { per_s, random: true, depth_max: 1 };
    for wrong in [
        Load { pace: Pace::Closed { depth: 0 }, ..good.clone() },
        Load { pace: Pace::Closed { depth: 257 }, ..good.clone() },
        Load { pace: open(0.0), ..good.clone() },
        Load { pace: open(f64::INFINITY), ..good.clone() },
        Load { length: Length::default(), ..good.clone() },
        Load { pattern: Pattern { block_bytes: 1000, ..good.pattern.clone() }, ..good.clone() },
    ] {
        let refused = play(&mut Fake::new(1, |_, _| MS), &wrong, &AtomicBool::new(false), &mut unwatched);
        assert!(matches!(&refused, Err(Trouble::Usage(why)) if why.contains("cannot be played")), "{wrong:?}: {refused:?}");
    }
}

/// A file full of data of seed 5; `None` if the file system has no direct I/O.
fn device(directory: &Path, content: Content) -> Option<std::path::PathBuf> {
    let path = directory.join("device");
    match fill::fill(&path, 40 << 20, content, 5, &AtomicBool::new(false), &mut |_| {}) {
        Err(Trouble::Failed(why)) if why.contains("direct") => None,
        result => result.map(|()| Some(path)).expect("it is filled"),
    }
}

#[test]
fn on_a_real_file_every_read_is_what_was_written_last() {
    for (content, block_bytes) in
        [(Content::Similar { family: 16, different_bytes: 24 }, 4096), (Content::Compressible { percent: 60 }, 64 << 10)]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(path) = device(directory.path(), content) else { return };
        let zipf = load(60, Places::Zipf { theta: 1.2 }, Pace::Closed { depth: 32 }, Length::requests(4000));
        let mixed = Load { pattern: Pattern { block_bytes, ..zipf.pattern.clone() }, content, verify: true, ..zipf };
        let go_on = AtomicBool::new(false);
        let loaded = run(&path, &mixed, &go_on, &mut unwatched).expect("every read is right");
        assert_eq!(loaded.reads.count + loaded.writes.count, 4000);
        assert!(loaded.latency.mean_us > 0.0 && loaded.bytes_per_s > 0.0);
        // A byte that changed by itself is noticed, and named.
        let mut bytes = std::fs::read(&path).expect("the file");
        let at = (20 << 20) + 1000;
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).expect("the file");
        let all = Load { pattern: Pattern { reads_percent: 100, places: Places::Sequential, ..mixed.pattern.clone() }, ..mixed };
        let wrong = run(&path, &all, &go_on, &mut unwatched).expect_err("something differs");
        assert!(matches!(wrong, Trouble::Failed(why) if why.contains("wrong data was read")));
    }
}

#[test]
fn a_device_that_is_in_use_or_too_small_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(path) = device(directory.path(), Content::Incompressible) else { return };
    let go_on = AtomicBool::new(false);
    let reads = load(100, Places::Uniform, Pace::Closed { depth: 4 }, Length::requests(100));
    let too_large = Load { pattern: Pattern { space_bytes: 41 << 20, ..reads.pattern.clone() }, ..reads.clone() };
    assert!(matches!(run(&path, &too_large, &go_on, &mut unwatched), Err(Trouble::Failed(why)) if why.contains("give a larger one")));
    assert!(matches!(run(&path.join("none"), &reads, &go_on, &mut unwatched), Err(Trouble::Failed(_))));
    let writes = Load { pattern: Pattern { reads_percent: 0, ..reads.pattern.clone() }, ..reads.clone() };
    let reader = open(&path, Access::ReadOnly).expect("it opens");
    assert!(run(&path, &writes, &go_on, &mut unwatched).is_err(), "somebody reads it");
    assert_eq!(run(&path, &reads, &go_on, &mut unwatched).expect("readers share").reads.count, 100);
    drop(reader);
    assert_eq!(run(&path, &writes, &go_on, &mut unwatched).expect("it is free").writes.count, 100);
}
