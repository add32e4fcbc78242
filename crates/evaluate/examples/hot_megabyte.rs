//! Reads of 16 KiB, all of them in one hot MiB, without a device in between: a modelled disk bare, and behind a cache with a RAM tier (vdbench's RD2, in
//! process). Makes and removes its files in DIRECTORY:
//!
//!     cargo run --release -p evaluate --example hot_megabyte DIRECTORY [SET] [SECONDS]

use evaluate::load::in_process::{Cache, InProcess};
use evaluate::load::{Content, Length, Load, Loaded, Pace, fill, unwatched};
use evaluate::pattern::{Pattern, Places};
use evaluate::stage::Backing;
use evaluate::trouble::Trouble;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use types::Mode;

const SIZE_BYTES: u64 = 1 << 30;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let set = words.get(1).map_or("array", String::as_str);
    let seconds = words.get(2).map_or(Some(5.0), |word| word.parse().ok());
    let (Some(directory), Some(seconds)) = (words.first(), seconds) else {
        eprintln!("usage: hot_megabyte DIRECTORY [SET] [SECONDS]");
        std::process::exit(2);
    };
    if let Err(trouble) = compare(Path::new(directory), set, seconds) {
        eprintln!("{trouble}");
        std::process::exit(1);
    }
}

fn compare(directory: &Path, set: &str, seconds: f64) -> Result<(), Trouble> {
    let scratch = tempfile::tempdir_in(directory).map_err(|error| Trouble::io("make a directory in", directory, &error))?;
    let stop = AtomicBool::new(false);
    let image = scratch.path().join("image");
    fill::fill(&image, SIZE_BYTES, Content::Incompressible, 1, &stop, &mut |_| {})?;
    let backing = Backing::Model { set: set.into(), image };
    let bare = InProcess::open(scratch.path(), &backing, None)?;
    for depth in [1, 32] {
        tell("bare", depth, &bare.run(&load(depth, seconds), true, &stop, &mut unwatched)?);
    }
    bare.close()?;
    let ssd = scratch.path().join("ssd").display().to_string();
    let cache = Cache { ssd, bytes: Some(256 << 20), ram_bytes: 64 << 20, mode: Mode::default() };
    let cached = InProcess::open(scratch.path(), &backing, Some(&cache))?;
    cached.warm(0..1 << 20, &stop)?;
    for depth in [1, 8, 32] {
        tell("cached", depth, &cached.run(&load(depth, seconds), true, &stop, &mut unwatched)?);
        tell("cached, not copied", depth, &cached.run(&load(depth, seconds), false, &stop, &mut unwatched)?);
    }
    println!("{:?}", cached.figures());
    cached.close()
}

fn load(depth: u32, seconds: f64) -> Load {
    let places = Places::HitArea { area_bytes: 1 << 20, reads_percent: 100, writes_percent: 0 };
    Load {
        pattern: Pattern { block_bytes: 16 << 10, space_bytes: SIZE_BYTES, reads_percent: 100, places },
        pace: Pace::Closed { depth },
        length: Length::seconds(seconds),
        content: Content::Incompressible,
        seed: 1,
        verify: false,
    }
}

fn tell(what: &str, depth: u32, loaded: &Loaded) {
    let (rate, mean_us, p99_us) = (loaded.rate, loaded.latency.mean_us, loaded.latency.percentiles_us["99"]);
    println!("{what:20} depth {depth:3}: {rate:9.0} /s, mean {mean_us:7.1} us, 99 %: {p99_us:7.1} us");
}
