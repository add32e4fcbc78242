//! `mix.json` and `mix_clat_hist.csv` are what fio 3.33 wrote of a run of 2.5 s with 70 reads and 30 writes of 4 KiB a second (zeroes at the ends of the
//! log's lines were cut off).

use super::*;
use crate::load::Length;
use crate::pattern::{Pattern, Requests};
use std::sync::Arc;

const JSON: &str = include_str!("mix.json");
const LOG: &str = include_str!("mix_clat_hist.csv");

fn load(reads_percent: u32, places: Places) -> Load {
    Load {
        pattern: Pattern { block_bytes: 4096, space_bytes: 40 << 20, reads_percent, places },
        pace: Pace::Closed { depth: 32 },
        length: Length::seconds(20.0),
        content: Content::Incompressible,
        seed: 3,
        verify: false,
    }
}

fn line(load: &Load) -> String {
    words("case", Path::new("/dev/loop7"), load, Engine::Libaio).expect("fio can").join(" ")
}

#[test]
fn what_fio_wrote_is_understood() {
    let loaded = parse(JSON, LOG).expect("it is fio's");
    assert_eq!((loaded.reads.count, loaded.writes.count), (175, 75));
    assert_eq!((loaded.reads.bytes, loaded.writes.bytes, loaded.wall_s), (716_800, 307_200, 2.501));
    assert!((loaded.rate - 250.0 / 2.501).abs() < 1e-9);
    let reads = loaded.reads.latency.as_ref().expect("there are some");
    assert!((reads.mean_us - 263.369_045_714).abs() < 1e-6, "fio's own mean: {}", reads.mean_us);
    // fio's own percentiles, at its middle of the same bin.
    for (name, expected_us) in [("50", 164.864), ("90", 268.288), ("95", 333.824), ("99.9", 4423.68)] {
        assert!((reads.percentiles_us[name] - expected_us).abs() < expected_us * 0.01, "{name}: {:?}", reads.percentiles_us);
    }
    let writes = loaded.writes.latency.as_ref().expect("there are some");
    assert!((writes.percentiles_us["99"] - 4751.36).abs() < 40.0, "{:?}", writes.percentiles_us);
    assert_eq!(reads.cdf.last().map(|point| point.1), Some(1.0));
    // The log has two seconds; the last half is what is missing to the totals.
    let rates: Vec<f64> = loaded.series.iter().map(|second| second.rate).collect();
    assert_eq!(rates.len(), 3);
    assert_eq!(rates[..2], [104.0, 100.0]);
    assert!((rates[2] - 46.0 / 0.501).abs() < 1e-6 && (loaded.series[2].at_s - 2.501).abs() < 1e-9, "{rates:?}");
    let later = loaded.after(1.0);
    assert_eq!((later.reads.count, later.writes.count), (103, 43));
    assert_eq!(later.reads.bytes, 103 * 4096);
}

#[test]
fn a_log_may_be_missing_and_warnings_may_stand_before() {
    let loaded = parse(&format!("fio: something is odd\n{JSON}"), "").expect("it is fio's");
    assert_eq!((loaded.reads.count, loaded.series.len()), (175, 1));
    for (json, log) in [("no JSON", LOG), ("{}", LOG), (JSON, "1000, x, 4096, 1"), (JSON, "1000")] {
        let wrong = parse(json, log).expect_err("it is not");
        assert!(wrong.to_string().contains("cannot understand"), "{wrong}");
    }
    let failed = parse(&JSON.replacen("\"error\" : 0", "\"error\" : 5", 1), LOG).expect_err("fio failed");
    assert!(failed.to_string().contains("Input/output error"), "{failed}");
}

#[test]
fn a_load_becomes_a_command_or_a_reason_why_not() {
    let mixed = line(&load(70, Places::Zones(vec![(80, 10), (20, 90)])));
    let expected = "fio --name=case --filename=/dev/loop7 --size=41943040 --rw=randrw --rwmixread=70 --bs=4096 --norandommap=1 \
        --random_distribution=zoned:80/10:20/90 --ioengine=libaio --iodepth=32 --direct=1 --randrepeat=0 --randseed=3 --refill_buffers=1 \
        --allow_file_create=0 --time_based=1 --runtime=20000ms --output-format=json+ --output=case.json --write_hist_log=case --log_hist_msec=1000";
    assert_eq!(mixed, expected);
    let hit = |reads_percent, writes_percent| Places::HitArea { area_bytes: 1 << 20, reads_percent, writes_percent };
    assert!(
        line(&load(100, hit(90, 0)))
            .contains("--rw=randread --bs=4096 --norandommap=1 --random_distribution=zoned_abs:90/1048576:10/40894464 ")
    );
    assert!(line(&load(100, Places::Sequential)).contains("--rw=read --bs=4096 --ioengine"));
    assert!(
        line(&load(0, Places::Zipf { theta: 1.2 })).contains("--rw=randwrite --bs=4096 --norandommap=1 --random_distribution=zipf:1.2 ")
    );
    let counted = Load { length: Length::requests(10), ..load(100, Places::Uniform) };
    assert!(line(&counted).contains("--io_size=40960") && !line(&counted).contains("time_based"));
    let open = Pace::Open { per_s: 10.0, random: true, depth_max: 8 };
    for wrong in [
        load(50, hit(90, 0)),
        load(50, Places::Sequential),
        Load { content: Content::Compressible { percent: 50 }, ..load(50, Places::Uniform) },
        Load { pace: open, ..load(100, Places::Uniform) },
        Load { verify: true, ..load(100, Places::Uniform) },
        Load { length: Length::default(), ..load(100, Places::Uniform) },
    ] {
        assert!(matches!(words("case", Path::new("f"), &wrong, Engine::IoUring), Err(Trouble::Usage(_))), "{wrong:?}");
    }
}

/// What was asked for, in one way to look at it for both generators.
#[derive(Default, Debug)]
struct Seen {
    requests: f64,
    reads: f64,
    /// In the first tenth of the space.
    first_tenth: f64,
    /// By hundredths of the space.
    hundredths: Vec<f64>,
    /// Directly behind the one before.
    behind: f64,
    other_sizes: u64,
}

fn seen(requests: impl Iterator<Item = (bool, u64, u64)>, load: &Load) -> Seen {
    let mut seen = Seen { hundredths: vec![0.0; 100], ..Seen::default() };
    let mut next = u64::MAX;
    for (is_write, offset, bytes) in requests {
        seen.requests += 1.0;
        seen.reads += f64::from(u8::from(!is_write));
        seen.first_tenth += f64::from(u8::from(offset < load.pattern.space_bytes / 10));
        seen.hundredths[(offset * 100 / load.pattern.space_bytes) as usize] += 1.0;
        seen.behind += f64::from(u8::from(offset == next));
        seen.other_sizes += u64::from(bytes != load.pattern.block_bytes);
        next = offset + bytes;
    }
    seen
}

/// fio's own log of what it did: `FILE ACTION OFFSET LENGTH`, after a time since version 3.
fn logged(log: &str) -> impl Iterator<Item = (bool, u64, u64)> {
    log.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "read" || *word == "write")?;
        Some((words[at] == "write", words.get(at + 1)?.parse().ok()?, words.get(at + 2)?.parse().ok()?))
    })
}

/// Skipped where fio is not installed, or files have no direct I/O.
#[test]
fn fio_and_our_generator_ask_for_the_same() {
    let place = tempfile::tempdir().expect("a directory");
    let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
    if stage.run_unsaid(&["fio", "--version"], &[], PATIENCE).is_err() {
        return;
    }
    let path = place.path().join("device");
    let filled =
        crate::load::fill::fill(&path, 40 << 20, Content::Incompressible, 1, &std::sync::atomic::AtomicBool::new(false), &mut |_| {});
    if matches!(&filled, Err(Trouble::Failed(why)) if why.contains("direct")) {
        return;
    }
    filled.expect("the file is filled");
    let hit = Places::HitArea { area_bytes: 4 << 20, reads_percent: 90, writes_percent: 90 };
    let cases = [
        ("uniform", 4096, load(100, Places::Uniform)),
        ("zones", 4096, load(70, Places::Zones(vec![(80, 10), (20, 90)]))),
        ("hits", 8192, load(40, hit)),
        ("sequential", 128 << 10, load(100, Places::Sequential)),
    ];
    for (name, block_bytes, case) in cases {
        let length = Length::requests(20_000);
        let case = Load { pattern: Pattern { block_bytes, ..case.pattern.clone() }, length, ..case };
        let mut words = words(name, &path, &case, Engine::Libaio).expect("fio can");
        words.push(format!("--write_iolog={name}.iolog"));
        stage.run(&words, PATIENCE).expect("fio runs");
        let read = |file: String| std::fs::read_to_string(stage.path(&file)).expect("fio's file");
        let counted = parse(&read(format!("{name}.json")), &read(format!("{name}_clat_hist.1.log"))).expect("it is fio's");
        let theirs = seen(logged(&read(format!("{name}.iolog"))), &case);
        let requests = Requests::new(case.pattern.clone(), case.seed).expect("a pattern");
        let ours = seen(requests.take(20_000).map(|request| (request.is_write, request.offset_bytes, block_bytes)), &case);
        assert_eq!((theirs.requests, theirs.other_sizes), (20_000.0, 0), "{name}");
        assert_eq!((counted.reads.count + counted.writes.count, counted.reads.count as f64), (20_000, theirs.reads), "{name}");
        // Counts of 20,000 draws differ by 2 % of these at most (five deviations: 5 * sqrt(2 * 20000 * p * (1 - p)) / 20000 < 0.025).
        for (what, a, b) in [("reads", ours.reads, theirs.reads), ("first tenth", ours.first_tenth, theirs.first_tenth)] {
            assert!((a - b).abs() < 500.0, "{name}, {what}: {a} and {b}");
        }
        let far = ours.hundredths.iter().zip(&theirs.hundredths).map(|(a, b)| (a - b).abs() / (a + b).sqrt().max(1.0)).fold(0.0, f64::max);
        assert!(far < 5.0, "{name}: a hundredth of the space is {far} deviations apart");
        assert!((ours.behind - theirs.behind).abs() <= 20.0, "{name}: {} and {} behind the one before", ours.behind, theirs.behind);
    }
}
