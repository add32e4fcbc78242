//! Whatever happens to the file, nothing panics, no wrong value is ever answered, recording goes on, and it is told.

use crate::common::{Reference, Seeded, open};
use history::{History, HistoryError, HistoryOptions};
use std::path::{Path, PathBuf};

const START_S: u64 = 1_700_000_000;
const OBJECTS: [&str; 3] = ["volume:a", "volume:b", "pool:p"];
const SERIES: [&str; 2] = ["reads_s", "all_p99_us"];

fn record(history: &History, reference: &mut Reference, seeded: &mut Seeded, seconds: std::ops::Range<u64>) {
    for unix_s in seconds {
        for object in OBJECTS {
            let values = [("reads_s", seeded.below(1 << 20) as f64), ("all_p99_us", seeded.below(1 << 20) as f64)];
            history.record(unix_s, object, &values);
            reference.record(unix_s, object, &values);
        }
    }
}

/// The files that lie beside each other under a name.
fn files(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with(name));
    files.sort();
    files
}

fn set_aside(path: &Path) -> usize {
    let is_aside = |file: &&PathBuf| file.to_str().unwrap().contains(".damaged-") && !file.to_str().unwrap().contains("-wal");
    files(path).iter().filter(is_aside).filter(|file| !file.to_str().unwrap().ends_with("-shm")).count()
}

fn open_any(path: &Path) -> (History, Option<String>) {
    History::open(path, HistoryOptions::default()).expect("opens whatever the file is")
}

/// Every value is right or unknown; how many are known.
fn check(history: &History, reference: &Reference, from_s: u64, to_s: u64) -> usize {
    let mut known = 0;
    for object in OBJECTS {
        for (from_s, points_max) in [(from_s, 5000), (from_s.max(to_s - 3600), 5000), (from_s, 3)] {
            let answer = match history.query(object, &SERIES, from_s, to_s, points_max) {
                Ok(answer) => answer,
                Err(HistoryError::Unknown { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            for (series, values) in &answer.series {
                for (index, value) in values.iter().enumerate() {
                    let from_s = answer.from_unix_s + index as u64 * answer.step_s;
                    // A coarse point that was not yet folded when the file was lost is the mean of those seconds that are left, within all of them.
                    let all = reference.within(object, series, from_s, from_s + answer.step_s);
                    let (least, largest) =
                        all.iter().fold((f64::MAX, f64::MIN), |(least, largest), one| (least.min(*one), largest.max(*one)));
                    if let Some(value) = value {
                        let right =
                            if answer.step_s == 1 { *value == all[0] } else { (least * 0.999_999..=largest * 1.000_001).contains(value) };
                        assert!(right, "{object} {series} at {from_s}, step {}: {value}, not within {least} to {largest}", answer.step_s);
                        known += 1;
                    }
                }
            }
        }
    }
    known
}

/// A history of three hours: its files after a clean end, and as `kill -9` would leave them.
fn templates(directory: &Path, reference: &mut Reference) -> [Vec<(String, Vec<u8>)>; 2] {
    let path = directory.join("history.db");
    let contents = |path: &Path| {
        let read = |file: &PathBuf| (file.file_name().unwrap().to_str().unwrap().to_string(), std::fs::read(file).unwrap());
        files(path).iter().filter(|file| !file.to_str().unwrap().ends_with("-shm")).map(read).collect::<Vec<_>>()
    };
    let history = open(&path);
    let mut seeded = Seeded(1);
    record(&history, reference, &mut seeded, START_S..START_S + 9000);
    history.flush().unwrap();
    record(&history, reference, &mut seeded, START_S + 9000..START_S + 3 * 3600);
    // Written by itself, so that it is in the log only.
    while history.status().waiting_bytes > 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = contents(&path);
    drop(history);
    let clean = contents(&path);
    assert_eq!((clean.len(), killed.len()), (1, 2), "a file; a file and its log");
    [clean, killed]
}

#[test]
fn two_hundred_kinds_of_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut reference = Reference::default();
    let templates = templates(directory.path(), &mut reference);
    let (reference, end_s) = (reference, START_S + 3 * 3600);
    let (mut noticed, mut unharmed) = (0, 0);
    for seed in 0..200 {
        let mut seeded = Seeded(seed);
        let mut reference = reference.clone();
        let round = directory.path().join(format!("{seed}"));
        std::fs::create_dir(&round).unwrap();
        let path = round.join("history.db");
        let template = &templates[seeded.below(2) as usize];
        let hurt = seeded.below(template.len() as u64) as usize;
        for (index, (name, content)) in template.iter().enumerate() {
            let mut content = content.clone();
            if index == hurt {
                harm(&mut content, &mut seeded);
            }
            std::fs::write(round.join(name), content).unwrap();
        }

        let (history, warning) = open_any(&path);
        // Damage is met by writing or by asking, whichever comes to the place first; what was in the file then is gone.
        for part in 0..2 {
            check(&history, &reference, START_S, end_s);
            let from_s = end_s + 600 * (part + 1);
            record(&history, &mut reference, &mut seeded, from_s..from_s + 130);
            history.flush().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let known = check(&history, &reference, from_s, from_s + 130);
            assert!(part == 0 || known >= 130 * 12, "seed {seed}: what is recorded after the damage is answered: {known}");
            history.flush().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        let told = warning.iter().cloned().chain(history.take_notices()).collect::<Vec<_>>();
        assert_eq!(told.len(), set_aside(&path), "seed {seed}: {told:?}");
        assert!(told.iter().all(|told| told.contains("renamed to") && told.contains(".damaged-")), "seed {seed}: {told:?}");
        noticed += usize::from(!told.is_empty());
        unharmed += usize::from(told.is_empty());
        drop(history);

        let (history, _) = open_any(&path);
        check(&history, &reference, START_S, end_s);
        history.flush().unwrap();
        drop(history);
        std::fs::remove_dir_all(&round).unwrap();
    }

    assert!(noticed > 100 && unharmed > 10, "{noticed} noticed, {unharmed} without harm");
}

fn harm(content: &mut Vec<u8>, seeded: &mut Seeded) {
    let length = content.len() as u64;
    match seeded.below(4) {
        0 => content.truncate(seeded.below(length) as usize),
        1 => {
            let page = seeded.below(length / 4096) as usize * 4096;
            content[page..page + 4096].fill(seeded.below(256) as u8);
        }
        2 => (0..1 + seeded.below(4)).for_each(|_| content[seeded.below(length.min(100)) as usize] ^= 1 << seeded.below(8)),
        _ => (0..1 + seeded.below(200)).for_each(|_| content[seeded.below(length) as usize] = seeded.below(256) as u8),
    }
}

#[test]
fn other_files_in_its_place_are_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let mut clean = templates(directory.path(), &mut Reference::default())[0][0].1.clone();
    let path = directory.path().join("other.db");
    let mut newer = clean.clone();
    newer[60..64].copy_from_slice(&2u32.to_be_bytes());
    clean[68..72].copy_from_slice(&77u32.to_be_bytes());
    let cases = [
        (vec![0; 100_000], "is not a database"),
        (vec![], "it is empty"),
        (b"some text".to_vec(), "is not a database"),
        (newer, "was written by a newer hearth, in format 2"),
        (clean, "is not a history of hearth"),
    ];
    for (content, why) in cases {
        std::fs::write(&path, &content).unwrap();
        let (history, warning) = open_any(&path);
        let warning = warning.expect("told");
        assert!(warning.contains(why) && warning.contains("a new one was created"), "{warning}");
        let aside = warning.split("renamed to ").nth(1).unwrap().split(' ').next().unwrap();
        assert_eq!(std::fs::read(aside).unwrap(), content, "it is kept as it was");
        history.record(START_S, "volume:a", &[("reads_s", 1.0)]);
        drop(history);
        assert_eq!(open(&path).query("volume:a", &["reads_s"], START_S, START_S + 1, 1).unwrap().series["reads_s"], [Some(1.0)]);
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(set_aside(&path), 2, "only the newest are kept");
}

#[test]
fn a_directory_in_its_place_is_an_error_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let error = History::open(directory.path(), HistoryOptions::default()).err().expect("an error");
    assert!(error.to_string().contains("move it away"), "{error}");
}

#[test]
fn without_a_place_to_write_it_goes_on_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("history.db");
    let (history, warning) = open_any(&path);
    let warning = warning.expect("told");
    assert!(warning.contains("kept in memory") && warning.contains("restart the daemon"), "{warning}");
    let mut reference = Reference::default();
    record(&history, &mut reference, &mut Seeded(3), START_S..START_S + 3 * 3600);
    for _ in 0..2 {
        history.flush().unwrap();
    }
    assert!(check(&history, &reference, START_S, START_S + 3 * 3600) > 1000);
    assert!(check(&history, &reference, START_S + 2 * 3600, START_S + 3 * 3600) > 3600 * 6);
    assert_eq!((history.status().in_memory, history.status().file_bytes), (true, 0));
    assert_eq!(history.take_notices(), Vec::<String>::new(), "told once");
    assert!(!path.exists());
}

#[test]
fn a_disk_that_takes_nothing_for_a_while_is_told_once_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let history = open(&path);
    let mut reference = Reference::default();
    let mut seeded = Seeded(4);
    record(&history, &mut reference, &mut seeded, START_S..START_S + 100);
    history.flush().unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for round in 0..2 {
        record(&history, &mut reference, &mut seeded, START_S + 100 + round * 200..START_S + 300 + round * 200);
        let error = history.flush().unwrap_err();
        assert!(error.to_string().contains("kept in memory and retried"), "{error}");
    }
    assert!(history.status().outage.is_some() && history.status().waiting_bytes > 0);
    assert!(check(&history, &reference, START_S, START_S + 500) >= 500 * 6);
    let told = history.take_notices();
    assert!(told.len() == 1 && told[0].contains("cannot be written"), "{told:?}");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    history.flush().unwrap();
    assert_eq!(history.take_notices(), ["The history is written again"]);
    assert_eq!((history.status().outage, history.status().waiting_bytes), (None, 0));
    drop(history);
    assert!(check(&open(&path), &reference, START_S, START_S + 500) >= 500 * 6);
}

/// Overwrites the open file and its log from the second page on.
fn spoil(path: &Path) {
    for file in files(path).iter().filter(|file| !file.to_str().unwrap().contains("damaged") && !file.to_str().unwrap().ends_with("-shm")) {
        let length = std::fs::metadata(file).unwrap().len() as usize;
        let mut content = std::fs::read(file).unwrap();
        content[4096.min(length)..].fill(0xaa);
        use std::os::unix::fs::FileExt;
        std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(&content, 0).unwrap();
    }
}

#[test]
fn damage_while_it_is_open_is_found_told_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    let history = open(&path);
    let mut reference = Reference::default();
    let mut seeded = Seeded(5);
    let mut now_s = START_S;
    for round in 1..=4 {
        // More than the connections keep in memory.
        record(&history, &mut reference, &mut seeded, now_s..now_s + 4 * 3600);
        now_s += 4 * 3600;
        history.flush().unwrap();
        spoil(&path);
        check(&history, &reference, now_s - 3 * 3600, now_s);
        let told = (0..10)
            .find_map(|_| {
                record(&history, &mut reference, &mut seeded, now_s..now_s + 300);
                now_s += 300;
                history.flush().unwrap();
                check(&history, &reference, START_S, now_s);
                Some(history.take_notices()).filter(|told| !told.is_empty())
            })
            .unwrap_or_else(|| panic!("round {round}: not noticed"));
        assert!(told.len() == 1 && told[0].contains("renamed to"), "round {round}: {told:?}");
        assert_eq!(told[0].contains("kept in memory"), round == 4, "a disk that spoils every file is given up: {told:?}");
        assert!(check(&history, &reference, now_s - 60, now_s) >= 60 * 6, "round {round}: the newest minute is known");
    }
    assert!(history.status().in_memory);
    assert_eq!(set_aside(&path), 2);
}
