//! Prints the figures of docs/disk-model.md: `cargo run --release -p device --example disk_model_figures`.

use device::model::workload::{Pattern, Workload, run};
use device::model::{DiskModel, Layout, ModelParameters, ModelSet, SpindleParameters};

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
    let header = [
        "device",
        "QD1",
        "QD32",
        "write QD1",
        "write QD32",
        "1 % QD1",
        "seq 1M MB/s",
        "seq 64K MB/s",
        "seq 4K MB/s",
        "4 streams 64K MB/s",
    ];
    println!("| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    for (name, parameters) in &devices {
        let write = |depth| Workload { read_share: 0.0, ..Workload::random_read(depth) };
        let near = Workload { pattern: Pattern::Uniform { share: 0.01 }, ..Workload::random_read(1) };
        let streams =
            Workload { pattern: Pattern::Sequential { streams: 4 }, depth: 4, ..Workload::sequential_read(64 << 10) };
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
        println!(
            "  {depth:3}: {:5.0} IOPS, mean {:6.1} ms, p99 {:6.1} ms",
            result.iops, result.read_mean_ms, result.read_p99_ms
        );
    }
}
