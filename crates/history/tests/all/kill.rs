//! `kill -9` costs at most a minute, at every grain.

use crate::common::open;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const START_S: u64 = 1_700_000_000 / 3600 * 3600;
/// Two hours, ten minutes and twenty seconds.
const SECONDS: u64 = 2 * 3600 + 620;
const PATH: &str = "HEARTH_TEST_HISTORY_TO_KILL";

/// What the killed process does: records, lets the writer come to rest by itself, and waits for its end.
fn record_until_killed(path: &Path) {
    let history = open(path);
    for unix_s in START_S..START_S + SECONDS {
        history.record(unix_s, "volume:a", &[("reads_s", (unix_s % 60) as f64)]);
    }
    while history.status().waiting_bytes > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("written");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn at_most_a_minute_is_lost() {
    if let Some(path) = std::env::var_os(PATH) {
        return record_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::at_most_a_minute_is_lost", "--nocapture"])
        .env(PATH, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let written = lines.map_while(Result::ok).any(|line| line.contains("written"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(written, "the process ended by itself");

    let end_s = START_S + SECONDS;
    for _ in 0..2 {
        // Twice: what the first start mends is there at the second, too.
        let history = open(&path);
        let known = |from_s: u64, end_s: u64, points_max: usize| {
            let answer = history.query("volume:a", &["reads_s"], from_s, end_s, points_max).unwrap();
            (answer.step_s, answer.series.into_iter().next().unwrap().1.into_iter().flatten().collect::<Vec<f64>>())
        };
        let (step_s, seconds) = known(end_s - 3600, end_s, 3600);
        assert_eq!((step_s, seconds.len()), (1, 3600 - 20), "all but the seconds of the minute under way");
        let (step_s, minutes) = known(START_S, end_s, 1000);
        assert_eq!((step_s, minutes), (60, vec![29.5; 130]), "all but the minute under way");
        let (step_s, hours) = known(START_S, START_S + 3 * 3600, 3);
        assert_eq!((step_s, hours), (3600, vec![29.5; 3]), "the hour under way is made again of its minutes");
    }
}
