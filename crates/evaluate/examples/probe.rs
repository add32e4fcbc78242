//! What a device does in the three short looks that an evaluation begins with, and whether that is plausible for a model set:
//!
//!     cargo run --release -p evaluate --example probe DEVICE [SET]

use evaluate::load::probe::{Probe, plausible};
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(device) = words.first() else {
        eprintln!("usage: probe DEVICE [SET]");
        std::process::exit(2);
    };
    match Probe::of(Path::new(device), &AtomicBool::new(false)) {
        Ok(probe) => {
            let Probe { qd1_iops, qd1_mean_us, qd32_iops, sequential_bytes_s, machine_busy } = probe;
            let (mb_s, busy) = (sequential_bytes_s / 1e6, machine_busy * 100.0);
            println!(
                "QD 1: {qd1_iops:.0} IOPS, {qd1_mean_us:.0} us; QD 32: {qd32_iops:.0} IOPS; sequential: {mb_s:.1} MB/s; processors {busy:.0} %"
            );
            if let Some(set) = words.get(1) {
                println!("{}", plausible(set, &probe).map_or_else(|why| why, |()| format!("plausible for {set}")));
            }
        }
        Err(trouble) => {
            eprintln!("{trouble}");
            std::process::exit(1);
        }
    }
}
