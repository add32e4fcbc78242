//! Random 4 KiB reads of a bare volume, from an endpoint inside the process: what a reactor itself costs.
//!
//! ```text
//! cargo run --release -p runtime --example bare_iops -- FILE [DEPTH] [OPERATIONS] [REACTORS]
//! ```
//! FILE is made (256 MiB, filled) if it is not there; on tmpfs the device costs least and the software shows most. Prints IOPS, CPU time per
//! operation (user and system apart) of the whole process, and latency percentiles.

mod common;

use runtime::{BareVolumeOptions, Runtime, RuntimeOptions};
use std::path::Path;
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| arguments.get(index).map_or(default, |text| text.parse().expect("a number"));
    let path = arguments.get(1).expect("usage: bare_iops FILE [DEPTH] [OPERATIONS] [REACTORS]");
    let (depth, operations, reactors) = (number(2, 32), number(3, 500_000), number(4, 1));
    let runtime = Runtime::start(RuntimeOptions { reactors: reactors as u16, ..RuntimeOptions::default() }).expect("the runtime starts");
    let device = runtime.open_device(common::device(Path::new(path))).expect("the device opens");
    let volume = runtime.add_bare_volume(&device, BareVolumeOptions { name: "bare".into(), read_only: true }).expect("a volume");
    common::measure(&runtime, &volume, depth, operations);
    runtime.shutdown(Duration::from_secs(5)).expect("a clean end");
}
