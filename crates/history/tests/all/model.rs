//! Whatever is recorded, at any grain and over restarts, the answers are those of a plain list of seconds.

use crate::common::{Reference, Seeded, open};
use history::{History, HistoryError};
use std::path::PathBuf;

const START_S: u64 = 1_700_000_123;
const DAY_S: u64 = 86_400;
const SERIES: [&str; 5] = ["reads_s", "hit_ratio", "all_p99_us", "never", "read_step_*"];

struct Run {
    seeded: Seeded,
    path: PathBuf,
    history: Option<History>,
    reference: Reference,
    now_s: u64,
    known: usize,
}

impl Run {
    fn history(&self) -> &History {
        self.history.as_ref().expect("open")
    }

    /// An hour or less of seconds, with holes, of some objects.
    fn record(&mut self) {
        let objects = ["volume:a", "volume:b", "pool:p"];
        let seconds = self.seeded.below(900);
        let recorded = self.seeded.below(7) + 1;
        for _ in 0..seconds {
            for (index, object) in objects.iter().enumerate() {
                if recorded & (1 << index) == 0 || self.seeded.below(20) == 0 {
                    continue;
                }
                let reads = self.seeded.below(100_000) as f64 / 3.0;
                let ratio = if self.seeded.below(3) == 0 { f64::NAN } else { self.seeded.below(1000) as f64 / 1000.0 };
                let mut values = vec![("reads_s", reads), ("hit_ratio", ratio)];
                if self.seeded.below(4) > 0 {
                    values.insert(self.seeded.below(3) as usize, ("all_p99_us", self.seeded.below(5000) as f64));
                }
                let step = ["read_step_003_total", "read_step_011_total"][self.seeded.below(2) as usize];
                values.push((step, self.seeded.below(1000) as f64));
                self.history().record(self.now_s, object, &values);
                self.reference.record(self.now_s, object, &values);
            }
            self.now_s += 1;
        }
        self.now_s += if self.seeded.below(3) == 0 { self.seeded.below(6 * 3600) } else { self.seeded.below(100) };
    }

    fn restart(&mut self) {
        self.history = None;
        self.history = Some(open(&self.path));
    }

    /// Asks at each grain, of whole spans and of random ones within.
    fn check(&mut self) {
        for object in ["volume:a", "volume:b", "pool:p"] {
            for (keep_s, points_max, step_s) in [(3600, 5000, 1), (7 * DAY_S, 11_000, 60), (366 * DAY_S, 9000, 3600)] {
                let from_s = self.now_s - keep_s;
                self.ask(object, from_s, self.now_s + 10, points_max, Some(step_s));
                let from_s = from_s + self.seeded.below(keep_s);
                let to_s = from_s + 1 + self.seeded.below(self.now_s - from_s + 100);
                let points_max = 1 + self.seeded.below(2000) as usize;
                self.ask(object, from_s, to_s, points_max, None);
            }
        }
    }

    fn ask(&mut self, object: &str, from_s: u64, to_s: u64, points_max: usize, step_s: Option<u64>) {
        match self.history().query(object, &SERIES, from_s, to_s, points_max) {
            Ok(answer) => {
                let points = answer.series["reads_s"].len();
                assert!(answer.series.values().all(|values| values.len() == points) && points <= points_max);
                assert!(answer.from_unix_s <= from_s && answer.from_unix_s + points as u64 * answer.step_s >= to_s);
                assert_eq!(answer.from_unix_s % answer.step_s, 0);
                assert!(step_s.is_none_or(|step_s| step_s == answer.step_s), "{step_s:?}, not {}", answer.step_s);
                assert!(answer.series["never"].iter().all(Option::is_none), "an unknown series");
                self.known += self.reference.check(object, &answer);
            }
            Err(HistoryError::Unknown { .. }) => {
                assert_eq!(self.reference.point(object, "reads_s", 0, u64::MAX), None, "{object} was recorded");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn run(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let history = Some(open(&path));
    let mut run = Run { seeded: Seeded(seed), path, history, reference: Reference::default(), now_s: START_S, known: 0 };
    while run.now_s < START_S + 10 * DAY_S {
        run.record();
        match run.seeded.below(12) {
            0 | 1 => run.restart(),
            2 => run.history().flush().unwrap(),
            3 => run.check(),
            4 if run.seeded.below(20) == 0 => {
                assert_eq!(run.history().forget("pool:p"), run.reference.point("pool:p", "reads_s", 0, u64::MAX).is_some());
                run.reference.forget("pool:p");
            }
            _ => {}
        }
    }
    run.restart();
    run.check();
    assert!(run.known > 20_000, "only {} points were known", run.known);
    let status = run.history().status();
    assert_eq!((status.dropped_chunks, status.outage.clone(), status.in_memory), (0, None, false));
    assert_eq!(run.history().take_notices(), Vec::<String>::new());
}

#[test]
fn days_with_restarts_are_answered_like_a_plain_list() {
    for seed in 1..=4 {
        println!("seed {seed}");
        run(seed);
    }
}

#[test]
fn what_is_too_old_leaves_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let history = open(&path);
    for unix_s in START_S..START_S + 120 {
        history.record(unix_s, "volume:old", &[("reads_s", 1.0)]);
    }
    history.flush().unwrap();
    let later_s = START_S + 3 * 3600;
    let ask = |history: &History, from_s: u64, points_max: usize| {
        let answer = history.query("volume:old", &["reads_s"], from_s, from_s + 1200, points_max);
        answer.map(|answer| (answer.step_s, answer.series["reads_s"].iter().flatten().count()))
    };
    // The age is taken at the earlier of two sweeps.
    for unix_s in [later_s, later_s + 1] {
        history.record(unix_s, "volume:new", &[("reads_s", 1.0)]);
        history.flush().unwrap();
    }
    assert_eq!(ask(&history, START_S, 1200).unwrap(), (60, 3), "the seconds are gone, the minutes are there");
    let far_s = START_S + 400 * DAY_S;
    for unix_s in [far_s, far_s + 1] {
        history.record(unix_s, "volume:new", &[("reads_s", 1.0)]);
        history.flush().unwrap();
    }
    assert!(matches!(ask(&history, START_S, 1200), Err(HistoryError::Unknown { .. })), "nothing is left of it");
    drop(history);
    let history = open(&path);
    assert!(matches!(ask(&history, START_S, 1200), Err(HistoryError::Unknown { .. })));
    assert!(history.query("volume:new", &["reads_s"], far_s, far_s + 2, 10).unwrap().series["reads_s"] == [Some(1.0), Some(1.0)]);
}

#[test]
fn a_clock_that_jumps_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let mut seeded = Seeded(7);
    let mut history = open(&path);
    let strange = [0, 1, 59, u64::MAX, u64::MAX - 1, 253_402_300_799, START_S + 400 * DAY_S, START_S - 400 * DAY_S];
    for round in 0..3000u32 {
        let now_s = START_S + u64::from(round);
        let unix_s = if seeded.below(100) == 0 { strange[seeded.below(8) as usize] } else { now_s };
        history.record(unix_s, "volume:a", &[("reads_s", f64::from(round))]);
        let asked =
            history.query("volume:a", &["reads_s"], unix_s.saturating_sub(3), unix_s.saturating_add(1), 10).map(|answer| answer.series);
        if unix_s < 253_402_300_799 {
            assert!(asked.unwrap()["reads_s"].contains(&Some(f64::from(round))), "the newest wins, at {unix_s}");
        }
        if seeded.below(200) == 0 {
            drop(history);
            history = open(&path);
        }
    }
    // Set back by ten seconds just after an hour: neither its mean nor that of the minute becomes that of the few seconds recorded again.
    let hour_s = (START_S + DAY_S).next_multiple_of(3600);
    for unix_s in hour_s - 3600..hour_s + 5 {
        history.record(unix_s, "volume:b", &[("reads_s", 10.0)]);
    }
    for unix_s in hour_s - 5..hour_s + 5 {
        history.record(unix_s, "volume:b", &[("reads_s", 1000.0)]);
    }
    history.flush().unwrap();
    let one = |from_s: u64, to_s: u64| history.query("volume:b", &["reads_s"], from_s, to_s, 1).unwrap();
    let (hour, minute, second) = (one(hour_s - 3600, hour_s), one(hour_s - 60, hour_s), one(hour_s - 5, hour_s - 4));
    assert_eq!((hour.step_s, minute.step_s, second.step_s), (3600, 60, 1));
    assert!(hour.series["reads_s"][0].unwrap() < 20.0 && minute.series["reads_s"][0].unwrap() < 100.0, "{hour:?} {minute:?}");
    assert_eq!(second.series["reads_s"][0], Some(1000.0), "of a second the newest counts");
}

#[test]
fn errors_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let history = open(&directory.path().join("history.db"));
    history.record(START_S, "volume:a", &[("reads_s", 1.0)]);
    let unknown = history.query("volume:b", &["reads_s"], 0, 10, 10).unwrap_err();
    assert!(unknown.to_string().contains("no history of volume:b"), "{unknown}");
    assert!(history.query("volume:a", &["reads_s"], 10, 10, 10).unwrap_err().to_string().contains("ask for one whose end is later"));
    assert!(history.query("volume:a", &["reads_s"], 0, 10, 0).unwrap_err().to_string().contains("at least one"));
    assert!(!history.forget("volume:b") && history.forget("volume:a"));
    assert!(matches!(history.query("volume:a", &["reads_s"], 0, 10, 10), Err(HistoryError::Unknown { .. })));
    // One of the same name has a history of its own.
    history.record(START_S + 1, "volume:a", &[("reads_s", 2.0)]);
    history.flush().unwrap();
    let answer = history.query("volume:a", &["reads_s", "none"], START_S, START_S + 2, 10).unwrap();
    assert_eq!(answer.series, [("reads_s".to_string(), vec![None, Some(2.0)]), ("none".to_string(), vec![None, None])].into());
}
