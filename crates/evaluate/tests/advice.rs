//! The suite `advice` at toy size, with the binary of hearth that is built beside this test: a small pool is watched, asked about, and two of the
//! sizes advised are tried.

use evaluate::result::Settings;
use evaluate::run::{self, Audience, Progress, Wanted};
use evaluate::store::Store;
use std::path::{Path, PathBuf};

struct Said;

impl Audience for Said {
    fn progress(&self, progress: &Progress) {
        eprintln!("{}", progress.what);
    }

    fn tell(&self, line: &str) {
        eprintln!("{line}");
    }
}

/// The binary of the same profile as this test: `target/PROFILE/deps/advice-…` stands two below it.
fn hearth() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.parent()?.parent()?.join("hearth")).filter(|path| path.is_file())
}

#[test]
fn advice_is_asked_for_applied_and_judged() {
    if std::env::var_os("HEARTH_LONG").is_none() {
        eprintln!("advice: SKIPPED, it waits up to ten minutes for advice; `scripts/test long` runs it, with HEARTH_LONG=1");
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    let Some(hearth) = hearth().filter(|_| is_root && Path::new("/dev/fuse").exists() && Path::new("/dev/loop-control").exists()) else {
        eprintln!("advice: SKIPPED, it needs root's rights, FUSE, loop devices, and `cargo build -p hearth` of this profile before");
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out");
    let wanted = Wanted {
        suites: vec!["advice".into()],
        settings: Settings { toy: true, pairs: 1, ..Settings::default() },
        out: out.clone(),
        hearth,
        own: None,
        backing_bytes: None,
    };
    let evaluation = run::run(&wanted, &std::sync::Arc::default(), &Said).unwrap_or_else(|trouble| panic!("{trouble}"));
    let store = Store::open(&out).expect("it was made");
    let mut judged = 0;
    for case in &evaluation.cases {
        // On a machine that is busy the load may be too slow to say anything: then it says so, and claims nothing.
        if let Some(not) = evaluation.not_measured.iter().find(|not| not.what == case.id) {
            eprintln!("{}: {}", case.id, not.why);
            assert!(not.why.starts_with("no advice after"), "{}: {}", case.id, not.why);
            continue;
        }
        let watched = store.leg(&case.id, "watched", 1).expect("it was run");
        assert!(watched.figures["answer_s"] > 0.0 && watched.figures["rate"] > 0.0, "{watched:?}");
        for arm in &case.arms[1..] {
            let leg = store.leg(&case.id, &arm.id, 1).expect("it was run");
            let figure = |name: &str| leg.figures[name];
            assert!(figure("pool_bytes") >= figure("advised_bytes"), "{leg:?}");
            assert!((0.0..=100.0).contains(&figure("measured_percent")), "{leg:?}");
            assert!((figure("measured_percent") - figure("forecast_percent") - figure("off_points")).abs() < 1e-9);
            assert!(figure("forecast_low_percent") <= figure("forecast_percent"), "{leg:?}");
            // How well it is kept is for real runs to say; a pool of that size must at least be of use.
            assert!(figure("measured_percent") > 30.0, "{:?}", leg.notes);
            judged += 1;
        }
    }
    eprintln!("{judged} pools were judged");
}
