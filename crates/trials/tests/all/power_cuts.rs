//! Databases that leave out their own protection against torn pages, on a volume that writes their pages as a whole (`--atomic`), while the power
//! goes: disks keep what was flushed, and of the rest anything, by sectors of 512 bytes. Afterwards no page is torn, and every commit that
//! was acknowledged is there, row by row.
//!
//! `TRIAL_POWER_CUTS` sets how often the power goes.

use super::database::{CLIENTS, account, account_for, load, make_tables, payload, row_id, transaction};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trials::command;
use trials::mariadb::{Database, install};
use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};
use trials::postgres::{self, Postgres};
use trials::power::PowerDisks;

const CUTS: u32 = 3;
/// Without hearth a torn page is found after so many cuts at most, or the disks do not tear.
const BARE_CUTS_MAX: u32 = 60;
/// Commits that must have been acknowledged before the power goes.
const COMMITS_MIN: u64 = 60;
/// Dirty data goes home soon: destage is under way when the power goes.
const WRITE_BACK: [&str; 6] = ["--mode", "write-back", "--write-cache-depth", "100ms", "--export", "loop"];
/// Each page goes where it belongs, as soon as may be, and nowhere else before.
const UNPROTECTED: [&str; 5] = [
    "--innodb-doublewrite=0",
    "--innodb-max-dirty-pages-pct=1",
    "--innodb-max-dirty-pages-pct-lwm=0.5",
    "--innodb-flush-neighbors=0",
    "--innodb-io-capacity=2000",
];

fn cuts() -> u32 {
    std::env::var("TRIAL_POWER_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(CUTS)
}

fn needs(trial: &str) -> bool {
    let programs = ["mkfs.ext4", "mariadbd", "mariadb", "mariadb-install-db", "innochecksum"].map(Need::Program);
    met(trial, &[&[Need::Root, Need::LoopExport], &programs[..]].concat())
}

/// The disks answer nothing any more, then the daemon is gone: it has learnt nothing from that.
fn power_fails(disks: &mut PowerDisks, place: &mut Place) {
    disks.off();
    place.begin_kill();
    disks.disconnect();
    place.kill();
    place.must(&["rescue"]);
}

/// Clients write until the power goes; `off`: what takes it away, the server too.
fn under_load(client: impl Fn() -> Command, transaction: fn(u64, u64) -> String, acknowledged: &[AtomicU64; CLIENTS], off: impl FnOnce()) {
    let sum = || acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum::<u64>();
    let before = sum();
    std::thread::scope(|scope| {
        for (number, last) in acknowledged.iter().enumerate() {
            let child = client().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the client starts");
            scope.spawn(move || load(child, number as u64, last, transaction));
        }
        let begun = Instant::now();
        let time = Duration::from_millis(1000 + trials::registers::seed() % 1500);
        while (begun.elapsed() < time || sum() - before < COMMITS_MIN) && begun.elapsed() < SHORT {
            std::thread::sleep(Duration::from_millis(7));
        }
        off();
    });
    assert!(sum() - before >= COMMITS_MIN, "only {} commits in {SHORT:?}", sum() - before);
}

/// Pages of InnoDB's files that are not what was once written, as its own tool finds them.
fn torn_pages(place: &Place, at: &Path) -> Vec<String> {
    let mut torn = Vec::new();
    let mut directories: Vec<PathBuf> = vec![at.join("data")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory of the database").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                directories.push(path);
            } else if name.ends_with(".ibd") || name == "ibdata1" || name.starts_with("undo0") {
                let ended = place.tool(&["innochecksum", &path.display().to_string()], LONG);
                if !ended.good() {
                    torn.push(format!("{name}: {}", ended.stderr.trim()));
                }
            }
        }
    }
    torn
}

/// So that a page lies where a unit does: clusters of 16 KiB.
fn make_file_system(place: &Place, device: &str) {
    place.must_tool(&["mkfs.ext4", "-q", "-F", "-O", "bigalloc", "-C", "16384", device], LONG);
}

#[test]
fn mariadb_without_doublewrite_keeps_its_pages() {
    if !needs("mariadb_without_doublewrite_keeps_its_pages") {
        return;
    }
    let mut place = Place::new("power");
    let mut disks = PowerDisks::new(&place, &[("ssd", 128), ("disk", 512)], trials::registers::seed());
    disks.on();
    place.start();
    place.must(&["pool", "create", "fast", "--ssd", disks.path(0), "--ram", "16MiB"]);
    let name = format!("power-{}", std::process::id());
    let exports = place.volume_over(&name, disks.path(1), &[&WRITE_BACK[..], &["--atomic", "16KiB"]].concat());
    make_file_system(&place, &exports.loop_device);
    let mut at = place.mount(&exports.loop_device, "noatime");
    install(&place, &at);
    let acknowledged: [AtomicU64; CLIENTS] = Default::default();
    for round in 0..cuts() {
        let mut database = Database::start_with(&place, &at, &UNPROTECTED);
        if round == 0 {
            make_tables(&database);
        }
        let client = database.client_maker();
        under_load(client, transaction, &acknowledged, || {
            power_fails(&mut disks, &mut place);
            database.kill();
        });
        drop(database);
        place.unmount_dead(&at);
        disks.settle();
        disks.on();
        place.start();
        let exports = place.exports(&name);
        at = place.mount(&exports.loop_device, "noatime");
        assert_eq!(torn_pages(&place, &at), Vec::<String>::new());
        let mut database = Database::start_with(&place, &at, &UNPROTECTED);
        account(&database, &acknowledged);
        database.stop();
    }
    let partial = place.counter(&name, "partial_unit_writes");
    eprintln!("{partial} of {} writes since the last start covered a unit in part: the file system's own", place.counter(&name, "writes"));
    place.unmount(&at);
    place.stop();
    disks.disconnect();
}

/// What the trial above would find, did nothing keep pages whole.
#[test]
fn without_hearth_such_a_power_cut_tears_pages() {
    if !needs("without_hearth_such_a_power_cut_tears_pages") {
        return;
    }
    let mut place = Place::new("bare");
    let mut disks = PowerDisks::new(&place, &[("disk", 512)], trials::registers::seed());
    disks.on();
    let attach = |place: &Place, disks: &PowerDisks| {
        let device = place.must_tool(&["losetup", "--direct-io=on", "--find", "--show", disks.path(0)], SHORT);
        device.trim().to_owned()
    };
    let mut device = attach(&place, &disks);
    make_file_system(&place, &device);
    let mut at = place.mount(&device, "noatime");
    install(&place, &at);
    let acknowledged: [AtomicU64; CLIENTS] = Default::default();
    let mut found = Vec::new();
    for round in 0..BARE_CUTS_MAX {
        let mut database = Database::start_with(&place, &at, &UNPROTECTED);
        if round == 0 {
            make_tables(&database);
        }
        let client = database.client_maker();
        under_load(client, transaction, &acknowledged, || {
            disks.off();
            disks.disconnect();
            database.kill();
        });
        drop(database);
        place.unmount_dead(&at);
        drop(place.tool(&["losetup", "--detach", &device], SHORT));
        disks.settle();
        disks.on();
        device = attach(&place, &disks);
        at = place.mount(&device, "noatime");
        found = torn_pages(&place, &at);
        if !found.is_empty() {
            eprintln!("after {} power cuts: {found:?}", round + 1);
            break;
        }
    }
    place.unmount(&at);
    place.must_tool(&["losetup", "--detach", &device], SHORT);
    disks.disconnect();
    assert!(!found.is_empty(), "{BARE_CUTS_MAX} power cuts tore no page: the trial beside this one could not fail");
}

/// Transaction `number` of a client, for PostgreSQL.
fn upsert(client: u64, number: u64) -> String {
    let (id, payload) = (row_id(client, number), payload(client, number));
    format!(
        "BEGIN; INSERT INTO trial.entry VALUES ({id}, '{payload}') ON CONFLICT (id) DO UPDATE SET payload = EXCLUDED.payload; \
         UPDATE trial.total SET number = {number} WHERE client = {client}; COMMIT;"
    )
}

/// Pages leave the server soon, and the log has no copies of them.
const NO_FULL_PAGES: [&str; 7] = [
    "full_page_writes=off",
    "shared_buffers=1MB",
    "bgwriter_delay=10ms",
    "bgwriter_lru_maxpages=1000",
    "bgwriter_flush_after=64kB",
    "max_wal_size=32MB",
    "checkpoint_timeout=30s",
];

#[test]
fn postgresql_without_full_pages_keeps_its_pages() {
    const TRIAL: &str = "postgresql_without_full_pages_keeps_its_pages";
    let programs = ["mkfs.xfs", "setpriv", "psql"].map(Need::Program);
    if !met(TRIAL, &[&[Need::Root, Need::LoopExport, Need::Postgres], &programs[..]].concat()) {
        return;
    }
    let mut place = Place::new("power-pg");
    place.open_to_all();
    let mut disks = PowerDisks::new(&place, &[("ssd", 128), ("disk", 512)], trials::registers::seed());
    disks.on();
    place.start();
    place.must(&["pool", "create", "fast", "--ssd", disks.path(0), "--ram", "16MiB"]);
    let name = format!("power-pg-{}", std::process::id());
    let exports = place.volume_over(&name, disks.path(1), &[&WRITE_BACK[..], &["--atomic", "8KiB"]].concat());
    // The kernel writes a block of the file system back as a whole.
    place.must_tool(&["mkfs.xfs", "-q", "-f", "-b", "size=8192", &exports.loop_device], LONG);
    if !place.can_mount("xfs", &exports.loop_device) {
        eprintln!("{TRIAL}: SKIPPED, this kernel mounts no XFS with blocks of 8 KiB (Linux 6.12)");
        place.stop();
        return disks.disconnect();
    }
    let mut at = place.mount_as("xfs", &exports.loop_device, "noatime");
    std::os::unix::fs::chown(&at, Some(postgres::account()), None).expect("we are root");
    let data = |at: &Path| at.join("data").display().to_string();
    let settings = ["-U", "postgres", "--auth=trust", "--locale=C", "--no-sync", "--data-checksums"];
    command::must(postgres::program("initdb").args(["-D", &data(&at)]).args(settings), LONG);
    place.must_tool(&["sync", "-f", &at.display().to_string()], LONG);
    let acknowledged: [AtomicU64; CLIENTS] = Default::default();
    let socket = PathBuf::from(place.socket("pg"));
    std::fs::create_dir(&socket).and_then(|()| std::os::unix::fs::chown(&socket, Some(postgres::account()), None)).expect("a directory");
    for round in 0..cuts() {
        let mut server = Postgres::start(&place, &data(&at), &socket, &NO_FULL_PAGES);
        if round == 0 {
            server.must(
                "CREATE EXTENSION amcheck; CREATE SCHEMA trial; CREATE TABLE trial.entry (id BIGINT PRIMARY KEY, payload TEXT);
                 CREATE INDEX ON trial.entry (left(payload, 20)); CREATE TABLE trial.total (client INT PRIMARY KEY, number BIGINT);
                 INSERT INTO trial.total VALUES (0, 0), (1, 0), (2, 0), (3, 0);",
            );
        }
        let client = server.client_maker(&["psql", "-qAt"]);
        under_load(client, upsert, &acknowledged, || {
            power_fails(&mut disks, &mut place);
            server.kill();
        });
        drop(server);
        place.unmount_dead(&at);
        disks.settle();
        disks.on();
        place.start();
        let exports = place.exports(&name);
        at = place.mount_as("xfs", &exports.loop_device, "noatime");
        let server = Postgres::start(&place, &data(&at), &socket, &NO_FULL_PAGES);
        command::must(&mut server.client(&["pg_amcheck", "--heapallindexed", "--parent-check", "-d"]), LONG);
        let rows = server.must("SELECT id, payload FROM trial.entry ORDER BY id");
        account_for(&rows, &server.must("SELECT number FROM trial.total ORDER BY client"), &acknowledged);
        server.stop();
        command::must(postgres::program("pg_checksums").args(["--check", "-D", &data(&at)]), LONG);
    }
    place.unmount(&at);
    place.stop();
    disks.disconnect();
}
