//! `exhaustive [DEPTH]`: every short sequence, every crash point, every subset.

use std::process::ExitCode;
use std::time::Instant;

use simulator::daemon::Engine;
use simulator::exhaustive::{Setting, story, try_all};
use types::Mode;

fn main() -> ExitCode {
    let depth = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(3);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut failed = false;
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        for one_by_one in [true, false] {
            let setting = Setting { mode, one_by_one, depth };
            let began = Instant::now();
            let (count, wrong) = try_all(setting, &Engine, threads, 1);
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{}, {}: {} sequences, {} crash points, {} runs in {seconds:.1} s",
                mode.name(),
                if one_by_one { "one by one" } else { "all at once" },
                count.sequences,
                count.points,
                count.runs
            );
            for example in &wrong {
                failed = true;
                for line in story(example, &Engine) {
                    println!("{line}");
                }
                println!("FOUND {:?}, crash {:?}: {}", example.moves, example.crash, example.failure.what);
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
