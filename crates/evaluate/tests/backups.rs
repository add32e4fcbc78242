//! Backups of private servers at toy size: each runs to its end beside a load, and what it read is seen.

use evaluate::database::backup::{Backup, Served, Way};
use evaluate::database::legs::{Times, pgbench_beside, sysbench_beside};
use evaluate::database::pgbench::{DATABASE, Mix, Pgbench};
use evaluate::database::prepared::{Contents, copy, prepared};
use evaluate::database::sysbench::{Hot, Script, Sysbench};
use evaluate::database::{Driven, Moment};
use evaluate::stage::{LoopDevice, Stage};
use evaluate::tools;
use evaluate::trouble::Trouble;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const TIMES: Times = Times { warm_seconds: 1, seconds: 8 };

/// Whether the machine has what a test needs; says so if not.
fn ready(test: &str, names: &[&str], way: Way) -> bool {
    let missing = tools::TOOLS.iter().any(|tool| names.contains(&tool.name) && !tool.is_there());
    let here = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !here || missing || way.check().is_err() {
        eprintln!("{test}: SKIPPED, it needs root's rights, loop devices, {} and {}", names.join(", "), way.programs()[0]);
        return false;
    }
    true
}

/// What stands beside a load, and the load with it.
type Beside<'a> = dyn FnMut(Served, Moment) -> Result<(), Trouble> + 'a;
type Leg<'a> = dyn FnMut(&mut Beside<'_>) -> Result<Driven, Trouble> + 'a;

/// A leg with a backup in its measured part; gives what that read.
fn backed_up(stage: &Stage, way: Way, databases: &[String], leg: &mut Leg<'_>) -> u64 {
    let (mut backup, mut read) = (None, None);
    let driven = leg(&mut |server, moment| {
        if moment == Moment::Measured {
            backup = Some(Backup::begin(stage, way, server, databases)?);
        }
        if read.is_none()
            && let Some(running) = &mut backup
            && running.is_done(server)?
        {
            read = Some(running.read_bytes());
        }
        Ok(())
    });
    let driven = driven.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(driven.rate > 0.0, "the load went on");
    let said = stage.take_commands().join("\n");
    assert!(way.programs().iter().any(|program| said.contains(program)), "{said}");
    read.expect("it ended within the load")
}

fn on_a_copy(contents: &Contents) -> (LoopDevice, Stage, tempfile::TempDir) {
    let place = tempfile::tempdir().expect("a directory");
    let stage = Stage::new(place.path(), Path::new("/bin/true"), Arc::default());
    let image = prepared(&stage, place.path(), contents, None).unwrap_or_else(|trouble| panic!("{trouble}"));
    let disk = stage.path("disk.img");
    copy(&stage, &image, &disk).expect("there is room");
    let device = LoopDevice::attach(&stage, &disk, false).expect("there is a loop device");
    (device, stage, place)
}

#[test]
fn mariadb_is_backed_up_both_ways() {
    let load = Sysbench { script: Script::ReadWrite, databases: 1, rows: 200_000, threads: 2, hot: Hot::LITERAL };
    let needed = ["MariaDB", "sysbench", "file systems"];
    let ways: Vec<Way> =
        [Way::MysqlDump, Way::MariadbBackup].into_iter().filter(|way| ready("mariadb_is_backed_up_both_ways", &needed, *way)).collect();
    if ways.is_empty() {
        return;
    }
    let (device, stage, _place) = on_a_copy(&Contents::Sysbench { databases: load.databases, rows: load.rows });
    for way in ways {
        let read = backed_up(&stage, way, &load.names(), &mut |beside| {
            sysbench_beside(&stage, device.path(), &load, 16 * MIB, TIMES, &mut |server, moment| beside(Served::MariaDb(server), moment))
        });
        eprintln!("{way:?} read {read} bytes");
        // Some 45 MiB of rows; a dump is noticed a moment after its begin, and the files may be in the page cache.
        assert!(way == Way::MariadbBackup || read > MIB, "{way:?}: {read}");
    }
}

#[test]
fn postgresql_is_dumped() {
    if !ready("postgresql_is_dumped", &["PostgreSQL", "file systems"], Way::PgDump) {
        return;
    }
    let load = Pgbench { mix: Mix::HotPoints { rows_percent: 30, drawn_percent: 90 }, scale: 4, clients: 2, sampled: 1.0 };
    let (device, stage, _place) = on_a_copy(&Contents::Pgbench { scale: load.scale });
    let read = backed_up(&stage, Way::PgDump, &[DATABASE.into()], &mut |beside| {
        pgbench_beside(&stage, device.path(), &load, (16 * MIB, Some(128 * MIB)), TIMES, &mut |server, moment| {
            beside(Served::Postgres(server), moment)
        })
    });
    eprintln!("pg_dump read {read} bytes");
}
