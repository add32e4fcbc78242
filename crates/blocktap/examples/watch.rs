//! Watches a block device and prints what goes by, and what watching costs.
//!
//! `cargo run --release -p blocktap --example watch -- DEVICE [--seconds N] [--tap auto|bpf|tracefs]`

use blocktap::{Event, Op, Tap, Watched, Way, Ways};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};

const USAGE: &str = "watch DEVICE [--seconds N] [--tap auto|bpf|tracefs]";
/// Names that are shown of a second.
const NAMES_MAX: usize = 4;

struct Options {
    device: String,
    seconds: u64,
    ways: Ways,
}

fn options() -> Option<Options> {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options { device: arguments.next()?, seconds: 10, ways: Ways::Auto };
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()?.as_str()) {
            ("--seconds", number) => options.seconds = number.parse().ok()?,
            ("--tap", "auto") => options.ways = Ways::Auto,
            ("--tap", "bpf") => options.ways = Ways::Only(Way::Bpf),
            ("--tap", "tracefs") => options.ways = Ways::Only(Way::Tracefs),
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> std::process::ExitCode {
    let done = options().ok_or_else(|| USAGE.to_owned()).and_then(|options| watch(&options));
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn watch(options: &Options) -> Result<(), String> {
    let facts = std::fs::metadata(&options.device).map_err(|error| format!("{}: {error}", options.device))?;
    if !facts.file_type().is_block_device() {
        return Err(format!("{} is no block device", options.device));
    }
    let number = facts.rdev();
    let watched = Watched::find(rustix::fs::major(number), rustix::fs::minor(number)).map_err(|refused| refused.to_string())?;
    let mut tap = Tap::open(watched, options.ways).map_err(|refused| refused.to_string())?;
    if let Err(error) = tap.measure() {
        println!("the kernel does not measure programs: {error}");
    }
    println!("{} ({watched:?}) by {}", options.device, tap.way());

    let began = Instant::now();
    let mut events = Vec::new();
    let (mut seen, mut lost, mut unreadable) = (0u64, 0u64, 0u64);
    let mut cpu = Duration::ZERO;
    for second in 1..=options.seconds {
        let until = began + Duration::from_secs(second);
        events.clear();
        let mut lost_now = 0;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let before = cpu_time();
            let drained = tap.read(&mut events, left.min(Duration::from_millis(100))).map_err(|error| format!("the tap: {error}"))?;
            cpu += cpu_time().saturating_sub(before);
            lost_now += drained.lost;
            unreadable += drained.unreadable;
        }
        seen += events.len() as u64;
        lost += lost_now;
        println!("{}", line(second, &events, lost_now));
    }
    println!("{seen} seen, {lost} lost, {unreadable} unreadable");
    println!("reading: {:.2} % of a core, {} ns an event", percent(cpu, began.elapsed()), per(cpu.as_nanos(), seen));
    if let Some(cost) = tap.cost() {
        println!("program: {} runs (requests of all disks), {} ns each", cost.runs, per(u128::from(cost.run_time_ns), cost.runs));
    }
    Ok(())
}

/// Time this process has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0
}

fn per(total_ns: u128, count: u64) -> String {
    if count == 0 { "-".into() } else { format!("{:.0}", total_ns as f64 / count as f64) }
}

/// One second.
fn line(second: u64, events: &[Event], lost: u64) -> String {
    let of = |op: Op| events.iter().filter(move |event| event.op == op);
    let mib = |op| of(op).map(|event| event.bytes).sum::<u64>() as f64 / f64::from(1 << 20);
    let mut names = BTreeMap::<String, usize>::new();
    for event in events {
        *names.entry(event.comm.to_string()).or_default() += 1;
    }
    let mut names: Vec<(String, usize)> = names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let names: Vec<String> = names.iter().take(NAMES_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    format!(
        "{second:>4} s  reads {:>7} ({:.1} MiB)  writes {:>7} ({:.1} MiB)  flushes {}  discards {}  zeroes {}  lost {lost}  {}",
        of(Op::Read).count(),
        mib(Op::Read),
        of(Op::Write).count(),
        mib(Op::Write),
        of(Op::Flush).count(),
        of(Op::Discard).count(),
        of(Op::Zeroes).count(),
        names.join(", "),
    )
}
