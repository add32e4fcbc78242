//! `hearth evaluate` at toy size: every suite from data to report, a stop in the middle and going on, and what is left behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trials::command::{must, run};
use trials::needs::{Need, met, program};
use trials::place::binary;

const NEEDS: [Need; 3] = [Need::Root, Need::LoopExport, Need::Program("fio")];
/// For all suites at toy size; a machine with other work takes longer.
const LIMIT: Duration = Duration::from_secs(900);

/// A fio job of somebody's own.
const JOB: &str = "[global]\nbs=8k\nfilename=/dev/somebodys-own\n[mine]\nrw=randrw\nrwmixread=60\niodepth=4\nioengine=libaio\n";

fn evaluate(place: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("evaluate").args(words).current_dir(place).env("HEARTH_CONFIG", "");
    // Where the lab is, virtual machines read too.
    command.envs(trials::lab::launcher().and_then(|path| path.canonicalize().ok()).map(|path| ("HEARTH_LAB", path)));
    command
}

fn place() -> tempfile::TempDir {
    // On the disk that holds the build: memory would be no SSD, and a file system in it takes no direct I/O.
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), Into::into);
    let trials = target.join("trials");
    std::fs::create_dir_all(&trials).expect("the build's directory can be written");
    tempfile::Builder::new().prefix("evaluate").tempdir_in(trials.canonicalize().expect("it is there")).expect("a directory")
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Names of files in a directory of a run, such as `legs/hotspot.80-20`.
fn names(place: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(place) else { return BTreeSet::new() };
    entries.map(|entry| entry.expect("can be read").file_name().to_string_lossy().into_owned()).collect()
}

/// Loop devices that stay over a file below a place: they go when all have closed them, and any program that looks at all block devices
/// has them open for a moment.
fn loops(place: &Path) -> Vec<String> {
    let attached = || -> Vec<String> {
        let blocks = std::fs::read_dir("/sys/block").expect("sysfs is mounted");
        let backing = blocks.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("loop/backing_file")).ok());
        backing.filter(|file| file.starts_with(&*place.to_string_lossy())).collect()
    };
    for _ in 0..100 {
        if attached().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    attached()
}

#[test]
fn every_suite_runs_and_is_reported() {
    if !met("every_suite_runs_and_is_reported", &NEEDS) {
        return;
    }
    // Virtual machines are among its loads.
    let _turn = trials::turns::Turn::wait();
    let place = place();
    let place = place.path();
    std::fs::write(place.join("mine.fio"), JOB).expect("there is room");
    let suites = suites();
    let words: Vec<&str> =
        ["run", "--toy", "--out", "out", "--load", "mine.fio", "--json"].into_iter().chain(suites.iter().copied()).collect();
    let told = run(&mut evaluate(place, &words), LIMIT);
    assert!(told.good(), "{told:#?}");
    let plan = json(&std::fs::read_to_string(place.join("out/evaluation.json")).expect("the plan"));
    let cases = plan["cases"].as_array().expect("cases");
    for suite in &suites {
        assert!(cases.iter().any(|case| case["id"].as_str().is_some_and(|id| id.starts_with(&format!("{suite}.")))), "{suite} is planned");
    }
    let unmeasured: BTreeSet<&str> =
        plan["not_measured"].as_array().expect("a list").iter().filter_map(|not| not["what"].as_str()).collect();
    for case in cases {
        let id = case["id"].as_str().expect("a name");
        assert!(!unmeasured.contains(id), "{id}: {}", plan["not_measured"]);
        let arms = case["arms"].as_array().expect("arms");
        let legs = names(&place.join("out/legs").join(id));
        assert_eq!(legs.len(), arms.len() * case["rounds"].as_u64().expect("a number") as usize, "{id}: {legs:?}");
        for leg in legs {
            let leg = json(&std::fs::read_to_string(place.join("out/legs").join(id).join(leg)).expect("a leg"));
            let cached = arms.iter().any(|arm| arm["id"] == leg["arm"] && arm["cached"] == true);
            assert!(leg["figures"]["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{leg}");
            assert!(leg["commands"].as_array().is_some_and(|commands| !commands.is_empty()), "{id}: how is it repeated?");
            assert!(!cached || leg["cache"].is_object() || leg["arm"] == "in-process", "{id}: what did the cache do?");
        }
    }
    let files = names(&place.join("out"));
    for wanted in ["report.html", "report.pdf", "report.json", "legs", "evaluation.json"] {
        assert!(files.contains(wanted), "{wanted} is not in {files:?}");
    }
    assert!(!files.contains("work"), "the data of the run is gone");
    assert_eq!(loops(place), Vec::<String>::new());
    // Again: nothing is left to be done, and the figures stay.
    let again = run(&mut evaluate(place, &words), LIMIT);
    assert!(again.good(), "{again:#?}");
    assert_eq!(json(&told.stdout)["cases"], json(&again.stdout)["cases"]);
    let text = must(&mut evaluate(place, &["report", "out"]), LIMIT);
    assert!(text.contains("hotspot"), "{text}");
    let both = must(&mut evaluate(place, &["compare", "out", "out"]), LIMIT);
    assert!(both.contains("hotspot"), "{both}");
    in_a_browser(place);
}

/// Suites that are tried, those of databases where these are installed: nothing is installed here.
fn suites() -> Vec<&'static str> {
    let postgres = std::fs::read_dir("/usr/lib/postgresql")
        .is_ok_and(|versions| versions.flatten().any(|one| one.path().join("bin/initdb").is_file()));
    let (mariadb, sysbench) = (program("mariadbd").is_some(), program("sysbench").is_some());
    // As the suites find it; where it is not, they would build it, and this tries nothing that needs a network.
    let go_tpc = std::env::var_os("HEARTH_GO_TPC").is_some_and(|path| Path::new(&path).is_file()) || program("go-tpc").is_some();
    let databases = [("tpcc", mariadb && go_tpc), ("oltp-live", postgres && go_tpc), ("database-skew", mariadb && postgres && sysbench)];
    let here = databases.iter().filter(|(suite, is_here)| {
        if !is_here {
            eprintln!("every_suite_runs_and_is_reported: without {suite}, its programs are not installed");
        }
        *is_here
    });
    let all = ["readhit", "hotspot", "depth", "many-readers", "own"].into_iter().chain(here.map(|(suite, _)| *suite));
    // Those whose legs take longest, guests that boot among them, are tried by `scripts/test long`.
    let is_long = std::env::var_os("HEARTH_LONG").is_some();
    all.filter(|suite| is_long || !["many-readers", "database-skew"].contains(suite)).collect()
}

/// The report as a browser understands it: charts with lines in them, and no address outside.
fn in_a_browser(place: &Path) {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(program) else {
        eprintln!("every_suite_runs_and_is_reported: the report was not opened, there is no Chromium here");
        return;
    };
    let mut command = Command::new(browser);
    let data = format!("--user-data-dir={}", place.join("browser").display());
    let page = format!("file://{}", place.join("out/report.html").display());
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", &data, "--dump-dom", &page]);
    let page = must(&mut command, Duration::from_secs(120));
    let (charts, lines) = (page.matches("<svg").count(), page.matches("stroke-linejoin").count());
    assert!(charts >= 5 && lines >= charts, "{charts} charts with {lines} lines");
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_run_that_is_stopped_leaves_nothing_running_and_goes_on() {
    if !met("a_run_that_is_stopped_leaves_nothing_running_and_goes_on", &NEEDS) {
        return;
    }
    let place = place();
    let place = place.path();
    let words = ["run", "hotspot", "--toy", "--out", "out"];
    let mut first = evaluate(place, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let begun = Instant::now();
    let legs = place.join("out/legs/hotspot.80-20");
    while names(&legs).is_empty() {
        assert!(begun.elapsed() < LIMIT && first.try_wait().expect("our child").is_none(), "no leg came");
        std::thread::sleep(Duration::from_millis(50));
    }
    // In the middle of the next leg.
    std::thread::sleep(Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(first.wait().expect("our child").code(), Some(130));
    assert!(!names(&place.join("out")).contains("work"), "the data of the run is gone");
    assert_eq!(loops(place), Vec::<String>::new());
    assert_eq!(users_of(place), Vec::<String>::new());
    let kept = names(&legs);
    let before: Vec<_> = kept.iter().map(|leg| std::fs::read(legs.join(leg)).expect("a leg")).collect();
    let other = run(&mut evaluate(place, &["run", "hotspot", "--toy", "--pairs", "2", "--out", "out"]), LIMIT);
    assert!(other.code == Some(2) && other.stderr.contains("other settings"), "{other:#?}");
    must(&mut evaluate(place, &words), LIMIT);
    let after: Vec<_> = kept.iter().map(|leg| std::fs::read(legs.join(leg)).expect("a leg")).collect();
    assert!(before == after, "what was there was not run again");
    assert!(names(&legs).len() > kept.len());
}

/// Command lines of processes that work in a place.
fn users_of(place: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("proc is mounted").filter_map(Result::ok);
    let here = processes.filter(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(place)));
    here.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok()).collect()
}
