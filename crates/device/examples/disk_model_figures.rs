//! Prints the figures of docs/disk-model.md: `cargo run --release -p device --example disk_model_figures`.

use device::model::workload::{Pattern, Random, Workload, run};
use device::model::{DiskModel, IoDescription, IoKind, Layout, ModelParameters, ModelSet, SpindleParameters};
use std::collections::BTreeSet;

const SIZE_BYTES: u64 = 8 << 30;
const SECOND_NS: u64 = 1_000_000_000;

fn measure(parameters: &ModelParameters, workload: Workload) -> device::model::workload::Measurement {
    let mut model = DiskModel::with_parameters(parameters.clone(), SIZE_BYTES);
    run(&mut model, workload, 0, 20 * SECOND_NS, 60 * SECOND_NS, 1)
}

fn main() {
    let plain = ModelSet::Disk7k2.parameters(SIZE_BYTES);
    let short = ModelParameters { spindle: SpindleParameters { span: 0.1, ..plain.spindle }, ..plain.clone() };
    let eight = ModelParameters { spindles: 8, layout: Layout::Striped { chunk_bytes: 64 << 10 }, ..plain.clone() };
    let mut devices = vec![("7k2, span 0.1".to_string(), short), ("8 x 7k2 striped, no caches".to_string(), eight)];
    devices.extend(ModelSet::ALL.map(|set| (set.name().to_string(), set.parameters(SIZE_BYTES))));
    let header =
        ["device", "QD1", "QD32", "write QD1", "write QD32", "1 % QD1", "seq 1M MB/s", "seq 64K MB/s", "seq 4K MB/s", "4 streams 64K MB/s"];
    println!("| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    for (name, parameters) in &devices {
        let write = |depth| Workload { read_share: 0.0, ..Workload::random_read(depth) };
        let near = Workload { pattern: Pattern::Uniform { share: 0.01 }, ..Workload::random_read(1) };
        let streams = Workload { pattern: Pattern::Sequential { streams: 4 }, depth: 4, ..Workload::sequential_read(64 << 10) };
        let iops: Vec<String> = [Workload::random_read(1), Workload::random_read(32), write(1), write(32), near]
            .into_iter()
            .map(|workload| format!("{:.0}", measure(parameters, workload).iops))
            .collect();
        let rates: Vec<String> = [1 << 20, 64 << 10, 4096]
            .map(Workload::sequential_read)
            .into_iter()
            .chain([streams])
            .map(|workload| format!("{:.1}", measure(parameters, workload).mb_s))
            .collect();
        println!("| {name} | {} | {} |", iops.join(" | "), rates.join(" | "));
    }
    println!("\n7k2 random 4 KiB reads by depth:");
    for depth in [1, 2, 4, 8, 16, 32, 64, 128] {
        let result = measure(&plain, Workload::random_read(depth));
        println!("  {depth:3}: {:5.0} IOPS, mean {:6.1} ms, p99 {:6.1} ms", result.iops, result.read_mean_ms, result.read_p99_ms);
    }
    println!("\n4 KiB writes of randomly chosen blocks (8 GiB), depth 32, blocks a second:");
    for set in [ModelSet::Disk7k2, ModelSet::Disk15k, ModelSet::Raid5Short, ModelSet::Array] {
        for blocks in [20_000, 100_000, 400_000] {
            let [arrival, sorted] = [false, true].map(|sorted| write_blocks(set, blocks, sorted));
            println!(
                "  {:17} {blocks:6} blocks: as they came {arrival:6.0}, in address order {sorted:6.0}: {:.1} x",
                set.name(),
                sorted / arrival
            );
        }
    }
}

/// Writes that many different random blocks, keeping 32 in flight, until all are on the spindles; how many a second.
fn write_blocks(set: ModelSet, count: usize, sorted: bool) -> f64 {
    let mut random = Random::new(9);
    let mut seen = BTreeSet::new();
    let mut blocks = Vec::with_capacity(count);
    while blocks.len() < count {
        let block = random.below(SIZE_BYTES / 4096);
        if seen.insert(block) {
            blocks.push(block);
        }
    }
    if sorted {
        blocks.sort_unstable();
    }
    let mut model = DiskModel::new(set, SIZE_BYTES);
    let (mut now_ns, mut waiting) = (0, blocks.into_iter().enumerate());
    loop {
        while model.in_flight() < 32
            && let Some((token, block)) = waiting.next()
        {
            let (offset_bytes, length_bytes) = (block * 4096, 4096);
            model.submit(now_ns, IoDescription { token: token as u64, kind: IoKind::Write, offset_bytes, length_bytes, fua: false });
        }
        let Some(deadline_ns) = model.next_deadline_ns() else { break };
        now_ns = now_ns.max(deadline_ns);
        while model.pop_completed(now_ns).is_some() {}
    }
    // What a cache still holds must go home too.
    while model.counters().dirty_bytes > 0 {
        now_ns += SECOND_NS / 100;
        model.pop_completed(now_ns);
    }
    count as f64 * SECOND_NS as f64 / now_ns as f64
}
