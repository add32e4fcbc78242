//! Each database once at toy size: loaded into an image, driven from a copy on a loop device, and stopped in the middle. Nothing of it stays.

use evaluate::database::legs::{Server, Times, Tpcc, pgbench_leg, sysbench_leg, tpcc_leg};
use evaluate::database::pgbench::{Mix, Pgbench};
use evaluate::database::prepared::{Contents, copy, prepared};
use evaluate::database::sysbench::{Hot, Script, Sysbench};
use evaluate::database::{Driven, Moment};
use evaluate::stage::{LoopDevice, Stage};
use evaluate::tools;
use evaluate::trouble::Trouble;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;
const TIMES: Times = Times { warm_seconds: 1, seconds: 2 };
/// Longer than it is let run.
const BROKEN_OFF: Times = Times { warm_seconds: 0, seconds: 60 };

/// Whether the machine has what a test needs; says so if not.
fn ready(test: &str, tools: &[&str]) -> bool {
    let missing: Vec<&str> =
        tools::TOOLS.iter().filter(|tool| tools.contains(&tool.name) && !tool.is_there()).map(|tool| tool.name).collect();
    let here = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !here || !missing.is_empty() {
        eprintln!("{test}: SKIPPED, it needs root's rights, loop devices, and these that are not there: {}", missing.join(", "));
    }
    here && missing.is_empty()
}

/// A stage in a directory of its own, and a device that holds a copy of an image.
fn on_a_copy(contents: &Contents, go_tpc: Option<&Path>) -> (LoopDevice, Stage, tempfile::TempDir) {
    let place = tempfile::tempdir().expect("a directory");
    let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
    let image = prepared(&stage, place.path(), contents, go_tpc).unwrap_or_else(|trouble| panic!("{trouble}"));
    stage.take_commands();
    assert_eq!(prepared(&stage, place.path(), contents, go_tpc).expect("it is there"), image);
    assert!(stage.take_commands().is_empty(), "an image that is there is not made again");
    let disk = stage.path("disk.img");
    copy(&stage, &image, &disk).expect("there is room");
    let device = LoopDevice::attach(&stage, &disk, false).expect("there is a loop device");
    (device, stage, place)
}

type Leg<'a> = dyn FnMut(&mut dyn FnMut(Moment) -> Result<(), Trouble>) -> Result<Driven, Trouble> + 'a;

/// A run is measured, with all of its moments; one that is broken off leaves neither server nor mount behind, and the data can be used again.
fn measured_and_broken_off(
    device: &LoopDevice,
    stage: &Stage,
    (halt, trouble): (&dyn Fn() -> Result<(), Trouble>, Trouble),
    // What its log says after its first second, which is late where the machine is busy.
    (log, begun): (&str, &str),
    broken_off: &mut Leg<'_>,
    leg: &mut Leg<'_>,
) -> Driven {
    let broken = broken_off(&mut |moment| match moment {
        Moment::At(at_s) if at_s > 1.5 && (stage_said(stage, log).contains(begun) || at_s > 30.0) => halt(),
        _ => Ok(()),
    });
    let said = stage_said(stage, log);
    assert!(said.contains(begun) && !said.contains("FATAL") && !said.contains("error"), "{said}");
    assert_eq!(broken, Err(trouble));
    assert!(!is_mounted(device.path()));
    stage.take_commands();
    let mut marks = Vec::new();
    let driven = leg(&mut |moment| {
        if !matches!(moment, Moment::At(_)) {
            marks.push(moment);
        }
        Ok(())
    });
    let driven = driven.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert_eq!(marks, [Moment::Measured, Moment::Ended]);
    assert!(!is_mounted(device.path()));
    let said = stage.take_commands().join("\n");
    assert!(said.contains("mount -o noatime") && said.contains("umount"), "{said}");
    assert!(driven.rate > 0.0 && driven.mean_us.is_some_and(|us| us > 0.0), "{driven:?}");
    assert!(driven.cut_s >= 1.0 && driven.series.len() >= 2 && driven.series.iter().any(|second| second.rate > 0.0), "{driven:?}");
    let latency = driven.latency.as_ref().expect("it tells response times");
    assert!(latency.percentiles_us["50"] <= latency.percentiles_us["99"] && !latency.cdf.is_empty());
    driven
}

fn stage_said(stage: &Stage, log: &str) -> String {
    std::fs::read_to_string(stage.path(log)).unwrap_or_default()
}

fn is_mounted(device: &str) -> bool {
    std::fs::read_to_string("/proc/self/mounts").expect("it is there").lines().any(|line| line.split(' ').next() == Some(device))
}

/// Whether the device stays over a file in that directory: it goes when all have closed it, and any program that looks at all block
/// devices has it open for a moment. Its number may be another test's by then.
fn stays_attached(device: &str, directory: &Path) -> bool {
    let file = format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"));
    let directory = directory.canonicalize().expect("it is there");
    let is_attached = || std::fs::read_to_string(&file).is_ok_and(|backing| Path::new(backing.trim_end()).starts_with(&directory));
    for _ in 0..100 {
        if !is_attached() {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    true
}

#[test]
fn mariadb_is_driven_on_a_device() {
    if !ready("mariadb_is_driven_on_a_device", &["MariaDB", "sysbench", "file systems"]) {
        return;
    }
    let load = Sysbench { script: Script::ReadWrite, databases: 2, rows: 2000, threads: 2, hot: Hot::AS_PUBLISHED };
    let (device, stage, place) = on_a_copy(&Contents::Sysbench { databases: load.databases, rows: load.rows }, None);
    let points = Sysbench { script: Script::PointReads, ..load };
    // Ctrl-C: from there on no command of the stage runs to its end.
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Stage::new(place.path(), Path::new("/bin/true"), Arc::clone(&stop));
    let halt = || {
        stop.store(true, Ordering::Relaxed);
        Ok(())
    };
    let driven = measured_and_broken_off(
        &device,
        &stage,
        (&halt, Trouble::Stopped),
        ("sysbench-sb2.log", "[ 1s ]"),
        &mut |beside| sysbench_leg(&stopped, device.path(), &points, 16 * MIB, BROKEN_OFF, beside),
        &mut |beside| sysbench_leg(&stage, device.path(), &load, 16 * MIB, TIMES, beside),
    );
    assert_eq!(driven.counted, "queries");
    let name = device.path().to_owned();
    drop(device);
    assert!(!stays_attached(&name, place.path()));
    place.close().expect("nothing holds it");
}

#[test]
fn postgresql_is_driven_on_a_device() {
    if !ready("postgresql_is_driven_on_a_device", &["PostgreSQL", "file systems"]) {
        return;
    }
    let mix = Mix::ReadsAndWrites { reads: 77, writes: 23 };
    let load = Pgbench { mix, scale: 1, clients: 4, sampled: 1.0 };
    let (device, stage, place) = on_a_copy(&Contents::Pgbench { scale: load.scale }, None);
    let memory = (16 * MIB, Some(128 * MIB));
    let points = Pgbench { mix: Mix::HotPoints { rows_percent: 30, drawn_percent: 90 }, ..load };
    let driven = measured_and_broken_off(
        &device,
        &stage,
        (&|| Err(Trouble::Failed("broken off".into())), Trouble::Failed("broken off".into())),
        ("pgbench.log", "progress: 1.0 s"),
        &mut |beside| pgbench_leg(&stage, device.path(), &points, memory, BROKEN_OFF, beside),
        &mut |beside| pgbench_leg(&stage, device.path(), &load, memory, TIMES, beside),
    );
    assert_eq!(driven.counted, "transactions");
    assert!(driven.reads.is_some_and(|reads| reads.mean_us < driven.latency.expect("it is there").mean_us));
    let name = device.path().to_owned();
    drop(device);
    assert!(!stays_attached(&name, place.path()));
    place.close().expect("nothing holds it");
}

/// TPC-C on one warehouse, if go-tpc is there.
fn tpcc_is_driven(test: &str, server: Server) {
    let Some(go_tpc) = tools::go_tpc_there() else {
        eprintln!("{test}: SKIPPED, go-tpc is not there; `scripts/test` builds it where there is Go");
        return;
    };
    let tpcc = Tpcc { server, warehouses: 1, threads: 4, go_tpc };
    let (device, stage, place) = on_a_copy(&tpcc.contents(), Some(&tpcc.go_tpc));
    // A busy machine takes longer for the first new order.
    let driven = [TIMES.seconds, 10, 60].into_iter().find_map(|seconds| {
        let times = Times { seconds, ..TIMES };
        let driven = tpcc_leg(&stage, device.path(), &tpcc, times, &mut |_| Ok(())).unwrap_or_else(|trouble| panic!("{trouble}"));
        (driven.rate > 0.0).then_some(driven)
    });
    let driven = driven.expect("new orders within a minute");
    assert_eq!(driven.counted, "new orders");
    assert!(driven.notes.iter().all(|note| !note.contains("gave up")), "{:?}", driven.notes);
    assert!(driven.series.iter().filter(|second| second.at_s > driven.cut_s).any(|second| second.mean_us.is_some_and(|us| us > 0.0)));
    drop(device);
    place.close().expect("nothing holds it");
}

#[test]
fn tpcc_runs_on_mariadb() {
    if ready("tpcc_runs_on_mariadb", &["MariaDB", "file systems"]) {
        tpcc_is_driven("tpcc_runs_on_mariadb", Server::MariaDb { pool_bytes: 24 * MIB });
    }
}

#[test]
fn tpcc_runs_on_postgresql() {
    if ready("tpcc_runs_on_postgresql", &["PostgreSQL", "file systems"]) {
        tpcc_is_driven("tpcc_runs_on_postgresql", Server::Postgres { buffers_bytes: 24 * MIB, memory_bytes: Some(128 * MIB) });
    }
}
