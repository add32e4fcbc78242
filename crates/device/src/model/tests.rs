//! The model held to the figures of real drives and of the prototype it comes from, and its rules.

use super::workload::{Generator, Measurement, Pattern, Random, Workload, run};
use super::{DiskModel, IoDescription, IoKind, Layout, ModelParameters, ModelSet, ParityUpdate, SpindleParameters};
use super::{LinkParameters, WriteCacheParameters};

const GIB: u64 = 1 << 30;
const SIZE: u64 = 8 * GIB;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn measure(parameters: &ModelParameters, workload: Workload) -> Measurement {
    run(&mut DiskModel::with_parameters(parameters.clone(), SIZE), workload, 0, 2 * SECOND, 20 * SECOND, 3)
}

/// Fails unless the figure is inside the range.
fn check(what: &str, figure: f64, range: std::ops::RangeInclusive<f64>) {
    assert!(range.contains(&figure), "{what}: {figure:.1} is not in {range:?}");
}

fn disk_7k2() -> ModelParameters {
    ModelSet::Disk7k2.parameters(SIZE)
}

fn short_stroke(span: f64) -> ModelParameters {
    let plain = disk_7k2();
    ModelParameters { spindle: SpindleParameters { span, ..plain.spindle }, ..plain }
}

/// Reads with the millisecond that the prototype's host side took at depth 1, which its figures contain.
fn with_host(workload: Workload) -> Workload {
    Workload { host_ns: MS, ..workload }
}

fn writes(workload: Workload) -> Workload {
    Workload { read_share: 0.0, ..workload }
}

fn io(token: u64, kind: IoKind, offset_bytes: u64, length_bytes: u64) -> IoDescription {
    IoDescription { token, kind, offset_bytes, length_bytes, fua: false }
}

/// Runs until an I/O completes; when, and which.
fn wait(model: &mut DiskModel, mut now_ns: u64) -> (u64, u64) {
    loop {
        if let Some(token) = model.pop_completed(now_ns) {
            return (now_ns, token);
        }
        now_ns = model.next_deadline_ns().expect("an I/O is in flight").max(now_ns);
    }
}

#[test]
fn random_reads_of_one_7k2_drive() {
    check("depth 1, data sheet: 12.8 ms, 78 IOPS", measure(&disk_7k2(), Workload::random_read(1)).iops, 74.0..=81.0);
    check("depth 1 with a host: 70-80", measure(&disk_7k2(), with_host(Workload::random_read(1))).iops, 70.0..=80.0);
    check("depth 32: 160-200", measure(&disk_7k2(), Workload::random_read(32)).iops, 160.0..=200.0);
    check("writes at depth 1: 68", measure(&disk_7k2(), with_host(writes(Workload::random_read(1)))).iops, 62.0..=74.0);
    // The prototype's course by depth, within 15 %.
    for (depth, iops) in [(2, 77.0), (4, 98.0), (8, 125.0), (16, 147.0), (32, 178.0)] {
        let measured = measure(&disk_7k2(), Workload::random_read(depth)).iops;
        check(&format!("depth {depth}"), measured, iops * 0.85..=iops * 1.15);
    }
    let deep = measure(&disk_7k2(), Workload::random_read(64)).iops;
    check("depth 64 must not make the drive first come, first served (112)", deep, 170.0..=210.0);
}

#[test]
fn a_short_stroke_is_faster() {
    check("span 0.1, depth 1: 115", measure(&short_stroke(0.1), with_host(Workload::random_read(1))).iops, 107.0..=126.0);
    check("span 0.1, depth 32: 329", measure(&short_stroke(0.1), Workload::random_read(32)).iops, 305.0..=355.0);
    let near = Workload { pattern: Pattern::Uniform { share: 0.01 }, ..with_host(Workload::random_read(1)) };
    check("1 % of the space, depth 1: 135-145", measure(&disk_7k2(), near).iops, 130.0..=155.0);
}

#[test]
fn sequential_reads_of_one_7k2_drive() {
    check("1 MiB: 117-150 MB/s", measure(&disk_7k2(), Workload::sequential_read(1 << 20)).mb_s, 117.0..=150.0);
    check("64 KiB: 84-91 MB/s", measure(&disk_7k2(), Workload::sequential_read(64 << 10)).mb_s, 84.0..=91.0);
    check("4 KiB: 10 MB/s", measure(&disk_7k2(), Workload::sequential_read(4096)).mb_s, 9.0..=13.0);
}

#[test]
fn a_15k_drive() {
    let set = ModelSet::Disk15k.parameters(SIZE);
    check("depth 1: 153", measure(&set, with_host(Workload::random_read(1))).iops, 145.0..=161.0);
    check("depth 32: 416", measure(&set, Workload::random_read(32)).iops, 395.0..=440.0);
    check("1 MiB sequential: 179 MB/s", measure(&set, Workload::sequential_read(1 << 20)).mb_s, 165.0..=195.0);
    check("64 KiB sequential: 110 MB/s", measure(&set, Workload::sequential_read(64 << 10)).mb_s, 100.0..=121.0);
}

#[test]
fn eight_striped_spindles() {
    let eight = ModelParameters { spindles: 8, layout: Layout::Striped { chunk_bytes: 64 << 10 }, ..disk_7k2() };
    check("depth 1: 67", measure(&eight, with_host(Workload::random_read(1))).iops, 62.0..=74.0);
    check("depth 32: 734", measure(&eight, Workload::random_read(32)).iops, 660.0..=808.0);
    check("1 MiB sequential: above 369 MB/s", measure(&eight, Workload::sequential_read(1 << 20)).mb_s, 369.0..=900.0);
}

#[test]
fn several_streams_are_read_ahead_each() {
    let streams =
        |streams| Workload { pattern: Pattern::Sequential { streams }, depth: streams as usize, ..Workload::sequential_read(64 << 10) };
    let without = ModelParameters { spindle: SpindleParameters { read_ahead_streams: 1, ..disk_7k2().spindle }, ..disk_7k2() };
    let (one, four) = (measure(&without, streams(4)).mb_s, measure(&disk_7k2(), streams(4)).mb_s);
    check("four streams with one remembered", one, 2.0..=12.0);
    check("four streams with all remembered", four, 25.0..=60.0);
}

#[test]
fn a_small_raid5_write_costs_four_commands_and_a_row_three() {
    let raid5 = ModelParameters { cache: None, ..ModelSet::Raid5Short.parameters(SIZE) };
    let mut model = DiskModel::with_parameters(raid5.clone(), SIZE);
    model.submit(0, io(1, IoKind::Write, 4096, 4096));
    let (small_ns, _) = wait(&mut model, 0);
    let counters = model.counters();
    assert_eq!((counters.spindle_reads, counters.spindle_writes), (2, 2));
    // What was read must come round again before it can be written.
    check("read-modify-write, ms", small_ns as f64 / MS as f64, 8.3..=30.0);

    let mut model = DiskModel::with_parameters(raid5, SIZE);
    model.submit(0, io(1, IoKind::Write, 0, 128 << 10));
    wait(&mut model, 0);
    let counters = model.counters();
    assert_eq!((counters.spindle_reads, counters.spindle_writes), (0, 3));
}

#[test]
fn parity_costs_random_writes_what_it_should() {
    let raid5 = ModelParameters { cache: None, ..ModelSet::Raid5Short.parameters(SIZE) };
    let layout = Layout::Raid5 { chunk_bytes: 64 << 10, update: ParityUpdate::FewestReads };
    let fewest = ModelParameters { layout, ..raid5.clone() };
    let striped = ModelParameters { layout: Layout::Striped { chunk_bytes: 64 << 10 }, ..raid5.clone() };
    let [raid5, fewest, striped] = [raid5, fewest, striped].map(|set| measure(&set, writes(Workload::random_read(32))).iops);
    check("striped writes cost 4 times less than RAID 5 ones", striped / raid5, 2.2..=4.5);
    check("reading the fewest saves something", fewest / raid5, 1.05..=2.0);
}

#[test]
fn nvram_hides_writes_until_it_is_full_then_destages_sorted() {
    let set = ModelSet::Raid5Short.parameters(SIZE);
    let capacity_blocks = set.cache.expect("the set has NVRAM").capacity_bytes / 4096;
    let mut model = DiskModel::with_parameters(set.clone(), SIZE);
    let mut random = Random::new(5);
    let mut now_ns = 0;
    for token in 0..capacity_blocks / 4 {
        model.submit(now_ns, io(token, IoKind::Write, random.below(SIZE / 4096) * 4096, 4096));
        let (done_ns, _) = wait(&mut model, now_ns);
        assert_eq!(done_ns - now_ns, 600_000, "controller and NVRAM");
        now_ns = done_ns;
    }
    let full = measure_full(&set, 60);
    let without = measure(&ModelParameters { cache: None, ..set }, writes(Workload::random_read(32))).iops;
    check("sorted destage against arrival order", full / without, 1.5..=10.0);
}

/// IOPS of 4 KiB random writes at depth 32 once the NVRAM is full.
fn measure_full(parameters: &ModelParameters, seconds: u64) -> f64 {
    let mut model = DiskModel::with_parameters(parameters.clone(), SIZE);
    run(&mut model, writes(Workload::random_read(32)), 0, seconds * SECOND, seconds * SECOND, 3).iops
}

#[test]
fn destage_yields_to_reads_below_the_mark() {
    let mut model = DiskModel::new(ModelSet::Raid5Short, SIZE);
    model.submit(0, io(0, IoKind::Read, GIB, 4096));
    model.submit(0, io(1, IoKind::Write, 5 * GIB, 4096));
    let (written_ns, token) = wait(&mut model, 0);
    assert_eq!((token, model.counters().destaged_blocks), (1, 0), "the read is still out");
    wait(&mut model, written_ns);
    assert_eq!(model.counters().destaged_blocks, 1, "idle now");
}

#[test]
fn a_read_of_what_waits_in_nvram_needs_no_spindle() {
    let mut model = DiskModel::new(ModelSet::Raid5Short, SIZE);
    model.submit(0, io(0, IoKind::Write, 4096, 4096));
    let (now_ns, _) = wait(&mut model, 0);
    model.submit(now_ns, io(1, IoKind::Read, 4096, 4096));
    let (done_ns, _) = wait(&mut model, now_ns);
    assert!(done_ns - now_ns <= 600_000, "{} ns", done_ns - now_ns);
}

#[test]
fn rewrites_of_a_waiting_block_are_absorbed() {
    let mut model = DiskModel::new(ModelSet::Raid5Short, SIZE);
    // A stream of reads keeps destage waiting.
    for token in 100..110 {
        model.submit(0, io(token, IoKind::Read, (token - 99) * GIB / 2, 4096));
    }
    for token in 0..10 {
        model.submit(0, io(token, IoKind::Write, 8192, 4096));
    }
    let mut now_ns = 0;
    for _ in 0..20 {
        now_ns = wait(&mut model, now_ns).0;
    }
    assert_eq!(model.counters().absorbed_blocks, 9);
}

#[test]
fn a_volatile_cache_is_fast_and_flush_drains_it() {
    let mut model = DiskModel::new(ModelSet::Disk7k2WriteCache, SIZE);
    let mut now_ns = 0;
    let offsets: Vec<u64> = (0..50).map(|index| (index * 37 % 50) * (SIZE / 50) / 4096 * 4096).collect();
    for (token, offset) in offsets.iter().enumerate() {
        model.submit(now_ns, io(token as u64, IoKind::Write, *offset, 4096));
        let (done_ns, _) = wait(&mut model, now_ns);
        assert!(done_ns - now_ns < MS, "{} ns", done_ns - now_ns);
        now_ns = done_ns;
    }
    let volatile: u64 = model.volatile_ranges().iter().map(|range| range.end - range.start).sum();
    assert!((40 * 4096..=50 * 4096).contains(&volatile), "{volatile} bytes are at risk");
    model.submit(now_ns, io(99, IoKind::Flush, 0, 0));
    let (flushed_ns, token) = wait(&mut model, now_ns);
    assert_eq!(token, 99);
    assert!(flushed_ns - now_ns > 100 * MS, "50 blocks all over the drive take their time: {}", flushed_ns - now_ns);
    assert!(model.volatile_ranges().is_empty());
    // FUA goes to the medium itself.
    model.submit(flushed_ns, IoDescription { fua: true, ..io(100, IoKind::Write, SIZE / 2, 4096) });
    let (done_ns, _) = wait(&mut model, flushed_ns);
    assert!(done_ns - flushed_ns > MS && model.volatile_ranges().is_empty());
}

#[test]
fn without_a_volatile_cache_flush_has_nothing_to_do() {
    for set in [ModelSet::Disk7k2, ModelSet::Disk15k, ModelSet::Raid5Short, ModelSet::Array] {
        let mut model = DiskModel::new(set, SIZE);
        model.submit(0, io(1, IoKind::Write, 0, 4096));
        let (now_ns, _) = wait(&mut model, 0);
        assert!(model.volatile_ranges().is_empty(), "{}", set.name());
        model.submit(now_ns, io(2, IoKind::Flush, 0, 0));
        assert!(wait(&mut model, now_ns).0 - now_ns <= MS, "{}", set.name());
    }
}

#[test]
fn the_link_bounds_everything_together() {
    let set = ModelSet::GbeSan.parameters(SIZE);
    let rate = set.link.map_or(0.0, |link: LinkParameters| link.bytes_per_second);
    let workload = Workload { pattern: Pattern::Sequential { streams: 5 }, depth: 5, ..Workload::sequential_read(1 << 20) };
    check("five streams over one link, MB/s", measure(&set, workload).mb_s, 85.0..=rate / 1e6 + 2.0);
}

#[test]
fn the_array_reads_again_from_its_cache() {
    let near = Workload { pattern: Pattern::Uniform { share: 0.0001 }, request_bytes: 16 << 10, ..Workload::random_read(32) };
    check("16 KiB in 1 MiB: 8,061", measure(&ModelSet::Array.parameters(SIZE), near).iops, 7500.0..=10_100.0);
}

#[test]
fn same_inputs_same_outputs_and_every_token_once() {
    for set in ModelSet::ALL {
        let (first, second) = (trace(set, 11), trace(set, 11));
        assert_eq!(first, second, "{}", set.name());
        assert_ne!(first, trace(set, 12), "{}", set.name());
        let mut tokens: Vec<u64> = first.iter().map(|(_, token)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..400).collect::<Vec<u64>>(), "{}", set.name());
        assert!(first.is_sorted_by_key(|(at_ns, _)| *at_ns));
    }
}

#[test]
fn the_smallest_devices_and_requests_work() {
    for set in ModelSet::ALL {
        for size_bytes in [512, 4096, 4608, 65536, 1 << 20] {
            let mut model = DiskModel::new(set, size_bytes);
            let mut token = 0;
            for kind in [IoKind::Write, IoKind::Read, IoKind::Discard, IoKind::Flush, IoKind::Write, IoKind::Discard] {
                for fua in [false, true] {
                    let (offset_bytes, length_bytes) = if kind == IoKind::Flush { (0, 0) } else { (size_bytes - 512, 512) };
                    model.submit(0, IoDescription { token, kind, offset_bytes, length_bytes, fua });
                    token += 1;
                }
            }
            let mut now_ns = 0;
            for _ in 0..token {
                now_ns = wait(&mut model, now_ns).0;
            }
            assert_eq!((model.in_flight(), model.next_deadline_ns()), (0, None), "{} {size_bytes}", set.name());
        }
    }
}

/// Completions of 400 I/Os of all kinds and sizes, submitted at random times, popped at times that are sometimes late.
fn trace(set: ModelSet, seed: u64) -> Vec<(u64, u64)> {
    let size_bytes = 64 << 20;
    let mut model = DiskModel::new(set, size_bytes);
    let mut random = Random::new(seed);
    let (mut now_ns, mut completions) = (1 << 50, Vec::new());
    for token in 0..400 {
        let kind = match random.below(10) {
            0 => IoKind::Flush,
            1 => IoKind::Discard,
            2..5 => IoKind::Read,
            _ => IoKind::Write,
        };
        let length_bytes = if kind == IoKind::Flush { 0 } else { 512 * (1 + random.below(2048)) };
        let offset_bytes = if kind == IoKind::Flush { 0 } else { random.below((size_bytes - length_bytes) / 512 + 1) * 512 };
        model.submit(now_ns, IoDescription { fua: random.below(8) == 0, ..io(token, kind, offset_bytes, length_bytes) });
        now_ns += random.below(20 * MS);
        completions.extend(std::iter::from_fn(|| model.pop_completed(now_ns)).map(|token| (now_ns, token)));
    }
    while let Some(deadline_ns) = model.next_deadline_ns() {
        now_ns = now_ns.max(deadline_ns);
        completions.extend(std::iter::from_fn(|| model.pop_completed(now_ns)).map(|token| (now_ns, token)));
    }
    assert_eq!(model.in_flight(), 0);
    completions
}

#[test]
fn being_late_changes_what_is_seen_not_what_happened() {
    let mut generator = Generator::new(Workload::random_read(1), SIZE, 4);
    let ios: Vec<IoDescription> = (0..30).map(|token| generator.next(token)).collect();
    let mut punctual = DiskModel::new(ModelSet::Disk7k2, SIZE);
    let mut late = punctual.clone();
    for io in ios {
        punctual.submit(0, io);
        late.submit(0, io);
    }
    let mut order = Vec::new();
    let mut now_ns = 0;
    for _ in 0..30 {
        let (at_ns, token) = wait(&mut punctual, now_ns);
        now_ns = at_ns;
        order.push(token);
    }
    let all: Vec<u64> = std::iter::from_fn(|| late.pop_completed(now_ns)).collect();
    assert_eq!(all, order);
}

#[test]
fn a_tiny_cache_takes_large_writes_past_itself() {
    let cache = Some(WriteCacheParameters::nvram(64 << 10));
    let parameters = ModelParameters { cache, ..disk_7k2() };
    let mut model = DiskModel::with_parameters(parameters, SIZE);
    for token in 0..20 {
        model.submit(0, io(token, IoKind::Write, token * 100_000 / 512 * 512, if token % 2 == 0 { 1 << 20 } else { 20_480 }));
    }
    let (mut now_ns, mut seen) = (0, 0);
    while model.in_flight() > 0 {
        now_ns = wait(&mut model, now_ns).0;
        seen += 1;
    }
    assert_eq!(seen, 20);
}

#[test]
fn a_sata_ssd_of_2012() {
    let ssd = ModelSet::SataSsd2012.parameters(SIZE);
    check("reads at depth 32: 20,000", measure(&ssd, Workload::random_read(32)).iops, 19_500.0..=20_100.0);
    check("reads at depth 1: 125 us", measure(&ssd, Workload::random_read(1)).iops, 7900.0..=8100.0);
    check("writes at depth 32: 4,000", measure(&ssd, writes(Workload::random_read(32))).iops, 3900.0..=4050.0);
    let mut model = DiskModel::with_parameters(ssd, SIZE);
    model.submit(0, io(1, IoKind::Write, 0, 1 << 20));
    model.submit(0, io(2, IoKind::Flush, 0, 0));
    // 1 MiB at 205 MB/s is 5.1 ms; a flush does not wait for it: what is acknowledged is on flash.
    assert_eq!(wait(&mut model, 0), (90_000, 2));
    let (at_ns, token) = wait(&mut model, 90_000);
    assert_eq!(token, 1);
    check("1 MiB written, in us", at_ns as f64 / 1000.0, 5195.0..=5215.0);
}
