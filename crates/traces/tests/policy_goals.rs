//! What the cache policy promises on the recorded traces. Skipped with a message where `../shared/traces` is absent.

use std::path::PathBuf;
use traces::log_model::{LogModel, LogModelConfig, Overwrite};
use traces::read::read_file;
use traces::replay::Comparison;
use traces::stream::Stream;

const TRACES: [&str; 7] = [
    "cloudPhysicsIO.vscsi",
    "OLTP.lis",
    "P3.lis",
    "tpcc-small.trace",
    "wsrch-small.trace",
    "mariadb-tpcc-w10.csv",
    "mariadb-sysbench-30-90.csv",
];
/// Cache sizes, in thousandths of the footprint.
const SIZES_PERMILLE: [u64; 3] = [10, 100, 300];

#[test]
fn report() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    for (overwrite, ram_percent) in [(Overwrite::Append, 10), (Overwrite::Append, 25), (Overwrite::InPlace, 10)] {
        println!("{overwrite:?} {ram_percent}");
        let mut closed = [0.0; 3];
        let mut written = [0; 3];
        let mut always = [0; 3];
        for name in TRACES {
            let stream = Stream::new(&read_file(&folder.join(format!("{name}.zst"))).expect("a readable trace"));
            print!("{name:28}");
            for (index, permille) in SIZES_PERMILLE.into_iter().enumerate() {
                let config = LogModelConfig::new(stream.permille_blocks(permille), ram_percent, overwrite);
                let mut model = LogModel::new(stream.footprint_blocks(), config);
                let c = Comparison::new(&stream, config, &mut model);
                let gap = c.gap_closed().unwrap_or(0.0);
                let worse = c.cache.miss_ratio() - c.lru.miss_ratio();
                if !name.contains("small") {
                    closed[index] += gap / 5.0;
                }
                written[index] += c.cache.ssd_blocks_written;
                always[index] += c.admit_always.ssd_blocks_written;
                print!(
                    " | {:.4} (LRU {:.4} B {:.4} AA {:.4}) {:+.3} w{:.2}{}",
                    c.cache.miss_ratio(),
                    c.lru.miss_ratio(),
                    c.belady.miss_ratio(),
                    c.admit_always.miss_ratio(),
                    gap,
                    c.write_part(),
                    if worse > 0.01 { "!" } else { " " }
                );
            }
            println!();
        }
        println!("  closed {closed:.3?} writes {:?}", [0, 1, 2].map(|i| written[i] as f64 / always[i] as f64));
    }
}
