//! hearth's load generator and fio on the same device, in turn; rates are the middle ones of three runs each:
//!
//!     cargo run --release -p evaluate --example against_fio DEVICE [SECONDS]
//!
//! The mix writes to the device: what is on it is lost.

use evaluate::load::{Content, Length, Load, Pace, fio, generator, unwatched};
use evaluate::pattern::{Pattern, Places};
use evaluate::stage::Stage;
use evaluate::trouble::Trouble;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.get(1).map_or(Some(10.0), |word| word.parse().ok());
    let (Some(device), Some(seconds)) = (words.first(), seconds) else {
        eprintln!("usage: against_fio DEVICE [SECONDS]");
        std::process::exit(2);
    };
    if let Err(trouble) = compare(Path::new(device), seconds) {
        eprintln!("{trouble}");
        std::process::exit(1);
    }
}

fn compare(device: &Path, seconds: f64) -> Result<(), Trouble> {
    let scratch = tempfile::tempdir().map_err(|error| Trouble::Failed(format!("cannot make a directory: {error}")))?;
    let stage = Stage::new(scratch.path(), Path::new("/bin/true"), Arc::default());
    let file = std::fs::File::open(device).map_err(|error| Trouble::io("open", device, &error))?;
    let size = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0)).map_err(|error| Trouble::io("look at", device, &error))?;
    drop(file);
    let case = |block_bytes, depth, reads_percent, places| Load {
        pattern: Pattern { block_bytes, space_bytes: size, reads_percent, places },
        pace: Pace::Closed { depth },
        length: Length::seconds(seconds),
        content: Content::Incompressible,
        seed: 1,
        verify: false,
    };
    let cases = [
        ("4 KiB random read, QD 1", case(4096, 1, 100, Places::Uniform)),
        ("4 KiB random read, QD 32", case(4096, 32, 100, Places::Uniform)),
        ("4 KiB 80/10:20/90, 70/30, QD 32", case(4096, 32, 70, Places::Zones(vec![(80, 10), (20, 90)]))),
        ("128 KiB sequential read, QD 1", case(128 << 10, 1, 100, Places::Sequential)),
    ];
    let stop = AtomicBool::new(false);
    println!(
        "{:34} {:>10} {:>10} {:>10} {:>7}  {:>9} {:>9} {:>9}",
        "", "hearth /s", "libaio", "io_uring", "ratio", "p50 us", "libaio", "io_uring"
    );
    for (name, load) in cases {
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..3 {
            let load = Load { seed: 1 + round, ..load.clone() };
            let ours = generator::run(device, &load, &stop, &mut unwatched)?;
            runs[0].push((ours.rate, ours.latency.percentiles_us["50"]));
            for (engine, runs) in [fio::Engine::Libaio, fio::Engine::IoUring].into_iter().zip(&mut runs[1..]) {
                let theirs = fio::run(&stage, "fio", device, &load, engine)?;
                runs.push((theirs.rate, theirs.latency.percentiles_us["50"]));
            }
        }
        let [ours, libaio, io_uring] = runs.map(middle);
        println!(
            "{name:34} {:10.0} {:10.0} {:10.0} {:7.3}  {:9.0} {:9.0} {:9.0}",
            ours.0,
            libaio.0,
            io_uring.0,
            ours.0 / libaio.0,
            ours.1,
            libaio.1,
            io_uring.1
        );
    }
    Ok(())
}

/// The run of the middle rate.
fn middle(mut runs: Vec<(f64, f64)>) -> (f64, f64) {
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    runs[runs.len() / 2]
}
