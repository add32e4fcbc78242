//! The file stays within its limit; what goes first is the oldest of the finest.

use crate::common::Seeded;
use history::{History, HistoryOptions};

const START_S: u64 = 1_700_000_000;
const MIB: u64 = 1 << 20;

fn open(path: &std::path::Path, bytes_max: u64) -> History {
    let (history, warning) = History::open(path, HistoryOptions { bytes_max }).unwrap();
    assert_eq!(warning, None);
    history
}

#[test]
fn the_file_never_exceeds_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut seeded = Seeded(1);
    let names: Vec<String> = (0..24).map(|index| format!("series_{index}_s")).collect();
    let objects: Vec<String> = (0..16).map(|index| format!("volume:{index}")).collect();
    let (limit, mut largest, mut now_s) = (6 * MIB, 0, START_S);
    let history = open(&path, limit);
    // Twelve hours, a sample every two seconds, of noise that does not compress.
    for step in 0..12 * 1800 {
        for object in &objects {
            let values: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), (seeded.number() >> 40) as f64)).collect();
            history.record(now_s, object, &values);
        }
        now_s += 2;
        if step % 90 == 0 {
            history.flush().unwrap();
            let bytes = history.status().file_bytes;
            assert!(bytes <= limit, "{bytes} bytes after {step} steps");
            largest = largest.max(bytes);
        }
    }
    assert!(largest > limit / 4 * 3, "the limit was never near: {largest}");
    let known = |history: &History, from_s: u64, points_max: usize| {
        let answer = history.query("volume:3", &["series_7_s"], from_s, now_s, points_max).unwrap();
        (answer.step_s, answer.series["series_7_s"].iter().flatten().count())
    };
    let (step_s, points) = known(&history, now_s - 300, 300);
    assert_eq!((step_s, points), (1, 150), "the newest seconds are there");
    let (step_s, points) = known(&history, now_s - 3600, 3600);
    assert_eq!(step_s, 60, "the oldest seconds gave way, and the minutes answer");
    assert!(points >= 60);
    let (step_s, points) = known(&history, START_S, 13);
    assert!(step_s == 3600 && points >= 11, "the hours are there: {points} of {step_s}");

    // A smaller limit holds after the next start.
    drop(history);
    let history = open(&path, 4 * MIB);
    history.flush().unwrap();
    assert!(history.status().file_bytes <= 4 * MIB, "{}", history.status().file_bytes);
    assert_eq!(known(&history, now_s - 120, 120), (1, 60));
    drop(history);
    // And what gave way is remembered: the answer does not pretend that there was nothing.
    let history = open(&path, 256 * MIB);
    assert_eq!(known(&history, now_s - 3600, 3600).0, 60);
    // Space comes back when objects are forgotten.
    for object in &objects[1..] {
        assert!(history.forget(object));
    }
    history.flush().unwrap();
    drop(history);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < MIB, "{bytes} bytes of one object");
}
