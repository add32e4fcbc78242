//! What the history costs: CPU time of the whole process for each second recorded, a hundred objects of 120 series: a busy volume has so many.
//!
//! `cargo run --release -p history --example cost [SECONDS]`; one second is one round, without waiting in between.

use history::{History, HistoryOptions};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u32 = std::env::args().nth(1).map_or(Ok(7200), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let (history, _) = History::open(&directory.path().join("history.db"), HistoryOptions::default())?;
    let names: Vec<String> = (0..120).map(|index| format!("outcome_step_{index}_total")).collect();
    let objects: Vec<String> = (0..100).map(|index| format!("volume:{index}")).collect();
    let mut state = 1u64;
    let (process, thread) = (cpu(ClockId::ProcessCPUTime), cpu(ClockId::ThreadCPUTime));
    let mut longest = Duration::ZERO;
    for second in 0..u64::from(seconds) {
        let begun = Instant::now();
        for object in &objects {
            let mut values = [("", 0.0); 120];
            for (value, name) in values.iter_mut().zip(&names) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *value = (name.as_str(), (state >> 44) as f64);
            }
            history.record(1_700_000_000 + second, object, &values);
        }
        longest = longest.max(begun.elapsed());
        if second % 600 == 599 {
            history.flush()?;
        }
    }
    let recording = cpu(ClockId::ThreadCPUTime) - thread;
    history.flush()?;
    let all = cpu(ClockId::ProcessCPUTime) - process;
    println!("recording: {:?} a second, {longest:?} at most; with writing: {:?} a second", recording / seconds, all / seconds);
    let asked = Instant::now();
    let end_s = 1_700_000_000 + u64::from(seconds);
    let answer = history.query("volume:7", &[&names[3], &names[4], &names[5]], end_s - 3600, end_s, 3600)?;
    println!("an hour of three series, {} points each: {:?}", answer.series[&names[3]].len(), asked.elapsed());
    println!("{:?}", history.status());
    Ok(())
}
