//! Logs stay on the SSD: of a file system's journal and of databases that commit, with default options, not one write reaches the
//! backing device while a client waits for it.
//!
//! Each log has a volume of its own, and the volume counts what went around its cache.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use trials::command;
use trials::mariadb::{Database, install};
use trials::needs::{Need, met, program};
use trials::place::{Exports, LONG, Place};
use trials::postgres::{self, Postgres};

const LOOP: [&str; 2] = ["--export", "loop"];

/// Writes of the volume; those that went around its cache, for any reason; all counters for whoever has to find out why.
fn writes(place: &Place, volume: &str) -> (u64, u64, String) {
    let stats = place.must(&["stats", volume, "--json"]);
    let all: serde_json::Value = serde_json::from_str(&stats).expect("--json gives JSON");
    let reasons = all["bypassed"].as_object().expect("reasons with counts");
    let around = reasons.values().map(|count| count.as_u64().expect("a count")).sum();
    (all["writes"].as_u64().expect("a count"), around, stats)
}

/// Asserts that the load wrote at least `least` times, and never to the backing device.
fn stayed_on_the_ssd(what: &str, before: (u64, u64, String), after: (u64, u64, String), least: u64) {
    let (all, around) = (after.0 - before.0, after.1 - before.1);
    eprintln!("{what}: {all} writes of the log, {around} of them around the SSD");
    assert!(all >= least, "{what}: only {all} writes of the log");
    assert_eq!(around, 0, "{what}: {around} of {all} writes of the log went around the SSD; {} then {}", before.2, after.2);
}

/// A new file system on a volume, mounted.
fn file_system(place: &mut Place, exports: &Exports) -> PathBuf {
    // Else the kernel zeroes what is not used yet while the load runs, by requests as large as it likes.
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    place.must_tool(&["mkfs.ext4", "-q", "-E", at_once, &exports.loop_device], LONG);
    place.mount(&exports.loop_device, "noatime")
}

#[test]
fn a_journal_stays_on_the_ssd() {
    let programs = ["mkfs.ext4", "mke2fs", "e2fsck"].map(Need::Program);
    if !met("a_journal_stays_on_the_ssd", &[&[Need::Root, Need::LoopExport], &programs[..]].concat()) {
        return;
    }
    let mut place = Place::new("journal");
    place.start();
    place.pool(256, 16);
    let (_, files) = place.volume_by_default(192, "write-back", &LOOP);
    let (journal, log) = place.volume_by_default(64, "write-back", &LOOP);
    place.must_tool(&["mke2fs", "-q", "-b", "4096", "-O", "journal_dev", &log.loop_device], LONG);
    let device = format!("device={}", log.loop_device);
    place.must_tool(&["mkfs.ext4", "-q", "-b", "4096", "-J", &device, &files.loop_device], LONG);
    // With `data=journal` what is written goes through the log too: groups of many sizes.
    let at = place.mount(&files.loop_device, "noatime,data=journal");
    let file = std::fs::File::create(at.join("file")).expect("there is room");
    let before = writes(&place, &journal);
    for (round, kib) in (0..600_u64).zip([4, 16, 64, 16, 256].into_iter().cycle()) {
        file.write_all_at(&vec![round as u8; kib << 10], (round % 128) << 18).expect("there is room");
        file.sync_all().expect("the journal takes it");
    }
    stayed_on_the_ssd("ext4", before, writes(&place, &journal), 600);
    drop(file);
    place.unmount(&at);
    place.fsck(&files.loop_device);
    place.stop();
}

#[test]
fn a_redo_log_stays_on_the_ssd() {
    let programs = ["mkfs.ext4", "mariadbd", "mariadb", "mariadb-install-db"].map(Need::Program);
    if !met("a_redo_log_stays_on_the_ssd", &[&[Need::Root, Need::LoopExport], &programs[..]].concat()) {
        return;
    }
    let mut place = Place::new("redo");
    place.start();
    place.pool(512, 16);
    let (_, tables) = place.volume_by_default(384, "write-back", &LOOP);
    // The log that is made with the system tables has 96 MiB.
    let (redo, log) = place.volume_by_default(160, "write-back", &LOOP);
    let [at, log_at] = [tables, log].map(|exports| file_system(&mut place, &exports));
    install(&place, &at);
    // The server takes the log that it finds there.
    let (made, wanted) = (at.join("data/ib_logfile0"), log_at.join("ib_logfile0"));
    std::fs::copy(&made, &wanted).and_then(|_| std::fs::remove_file(made)).expect("there is room");
    let mut database = Database::start(&place, &at, Some(&log_at));
    database.must("CREATE DATABASE trial; CREATE TABLE trial.entry (id BIGINT PRIMARY KEY AUTO_INCREMENT, payload LONGBLOB);");
    place.must_tool(&["sync", "-f", &at.display().to_string(), &log_at.display().to_string()], LONG);
    let before = writes(&place, &redo);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let database = &database;
            scope.spawn(move || transactions(database, client));
        }
    });
    stayed_on_the_ssd("MariaDB", before, writes(&place, &redo), 200);
    many_connections(&place, &database, &redo);
    database.stop();
    drop(database);
    place.unmount(&log_at);
    place.unmount(&at);
    place.stop();
}

/// Transactions of many connections that do not think: commits of many of them share a write.
fn many_connections(place: &Place, database: &Database, redo: &str) {
    if !met("the redo log under sysbench", &[Need::Program("sysbench")]) {
        return;
    }
    database.must("CREATE DATABASE sbtest;");
    let socket = format!("--mysql-socket={}", database.socket());
    let sysbench = |words: &[&str]| {
        let mut command = Command::new(program("sysbench").expect("it was looked for"));
        command.args(["oltp_write_only", "--mysql-user=root", &socket, "--tables=4", "--table-size=10000"]).args(words);
        command::must(&mut command, LONG)
    };
    sysbench(&["--threads=4", "prepare"]);
    let before = writes(place, redo);
    // So many transactions, however long they take: on a slow machine more of them share a write.
    sysbench(&["--threads=32", "--events=4000", "--time=0", "run"]);
    stayed_on_the_ssd("MariaDB under 32 connections", before, writes(place, redo), 4000 / 32);
}

/// Commits of few and of many bytes, one after the other.
fn transactions(database: &Database, client: usize) {
    let mut child = database.client().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut to = child.stdin.take().expect("it is piped");
    for number in 0..60 {
        let bytes = [100, 1_000, 20_000, 100_000][(number + client) % 4];
        writeln!(to, "INSERT INTO trial.entry (payload) VALUES (REPEAT('{}', {bytes}));", number % 10).expect("the client lives");
    }
    drop(to);
    let status = command::wait(&mut child, LONG);
    assert!(status.is_some_and(|status| status.success()), "client {client} ended with {status:?}");
}

#[test]
fn a_write_ahead_log_stays_on_the_ssd() {
    let programs = ["mkfs.ext4", "setpriv", "pgbench", "psql"].map(Need::Program);
    if !met("a_write_ahead_log_stays_on_the_ssd", &[&[Need::Root, Need::LoopExport, Need::Postgres], &programs[..]].concat()) {
        return;
    }
    let mut place = Place::new("wal");
    place.open_to_all();
    place.start();
    place.pool(768, 16);
    let (_, tables) = place.volume_by_default(384, "write-back", &LOOP);
    let (wal, log) = place.volume_by_default(320, "write-back", &LOOP);
    let [at, log_at] = [tables, log].map(|exports| {
        let at = file_system(&mut place, &exports);
        std::os::unix::fs::chown(&at, Some(postgres::account()), None).expect("we are root");
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o755)).expect("we are root");
        at
    });
    let [data, wal_dir] = [at.join("data"), log_at.join("wal")].map(|path| path.display().to_string());
    let settings = ["-D", &data, "-X", &wal_dir, "-U", "postgres", "--auth=trust", "--locale=C", "--no-sync"];
    command::must(postgres::program("initdb").args(settings), LONG);
    let options = [
        "shared_buffers=32MB",
        // Segments that are new are filled with zeroes by many writes at once, which may go around: here they are there already.
        "min_wal_size=192MB",
        "max_wal_size=256MB",
        "wal_recycle=on",
        "wal_init_zero=off",
    ];
    let server = Postgres::start(&place, &data, &at, &options);
    let client = |words: &[&str]| server.client(words);
    command::must(&mut client(&["pgbench", "-q", "-i", "-s", "4"]), LONG);
    // Pages that change for the first time after a checkpoint go into the log whole: its writes are large then.
    command::must(&mut client(&["psql", "-c", "checkpoint"]), LONG);
    let before = writes(&place, &wal);
    command::must(&mut client(&["pgbench", "-n", "-c", "16", "-j", "2", "-T", "8"]), LONG);
    stayed_on_the_ssd("PostgreSQL", before, writes(&place, &wal), 200);
    server.stop();
    place.unmount(&log_at);
    place.unmount(&at);
    place.stop();
}
