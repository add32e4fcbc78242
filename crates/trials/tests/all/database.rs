//! MariaDB on a write-back volume, under load, while the daemon is killed with SIGKILL. Afterwards the database recovers, its own checks
//! are content, and every commit that was acknowledged is there, row by row.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trials::command;
use trials::mariadb::{Database, install};
use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};

const ROUNDS: u32 = 3;
pub const CLIENTS: usize = 4;
/// Commits that must have been acknowledged in a round before the daemon is killed.
const COMMITS_MIN: u64 = 60;
/// A client's rows have ids from its number times this on.
const CLIENT_IDS: u64 = 10_000_000;

#[test]
fn mariadb_survives_kill() {
    let programs = ["mkfs.ext4", "e2fsck", "mariadbd", "mariadb", "mariadb-install-db"].map(Need::Program);
    if !met("mariadb_survives_kill", &[&[Need::Root, Need::LoopExport], &programs[..]].concat()) {
        return;
    }
    let mut place = Place::new("mariadb");
    place.start();
    place.pool(96, 16);
    let (volume, exports) = place.volume(384, "write-back", &["--export", "loop"]);
    place.must_tool(&["mkfs.ext4", "-q", &exports.loop_device], LONG);
    let mut at = place.mount(&exports.loop_device, "noatime");
    install(&place, &at);

    // What each client was told is committed, kept outside of the volume.
    let acknowledged: [AtomicU64; CLIENTS] = Default::default();
    for round in 1..=ROUNDS {
        let mut database = Database::start(&place, &at, None);
        if round == 1 {
            make_tables(&database);
        } else {
            account(&database, &acknowledged);
        }
        let before: u64 = acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum();
        std::thread::scope(|scope| {
            for (number, last) in acknowledged.iter().enumerate() {
                let child = database.client().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
                let child = child.expect("the client starts");
                scope.spawn(move || load(child, number as u64, last, transaction));
            }
            let begun = Instant::now();
            let sum = || acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum::<u64>() - before;
            let load = Duration::from_millis(1500 + trials::registers::seed() % 1500);
            while (begun.elapsed() < load || sum() < COMMITS_MIN) && begun.elapsed() < SHORT {
                std::thread::sleep(Duration::from_millis(7));
            }
            place.kill();
            // As if no daemon came any more: what the file system has not written is lost, and its
            // journal is needed.
            place.must(&["rescue"]);
            database.kill();
            eprintln!("round {round}: daemon killed with {} commits acknowledged in this round", sum());
        });
        let after: u64 = acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum();
        assert!(after - before >= COMMITS_MIN, "only {} commits in {SHORT:?}", after - before);
        drop(database);
        place.unmount_dead(&at);
        place.start();
        let exports = place.exports(&volume);
        at = place.mount(&exports.loop_device, "noatime");
    }
    let mut database = Database::start(&place, &at, None);
    account(&database, &acknowledged);
    database.stop();
    drop(database);
    place.unmount(&at);
    let exports = place.exports(&volume);
    place.fsck(&exports.loop_device);
    assert_eq!(place.counter(&volume, "checksum_errors"), 0);
    place.stop();
}

/// Tables for [`load`].
pub fn make_tables(database: &Database) {
    database.must(
        "CREATE DATABASE trial; CREATE TABLE trial.entry (id BIGINT PRIMARY KEY, payload VARCHAR(300), KEY (payload(20))) ENGINE=InnoDB;
         CREATE TABLE trial.total (client INT PRIMARY KEY, number BIGINT) ENGINE=InnoDB;
         INSERT INTO trial.total VALUES (0, 0), (1, 0), (2, 0), (3, 0);",
    );
}

/// One client: transactions of an insert and an update, one after the other; a commit counts from the moment the server said so.
pub fn load(mut child: Child, client: u64, last: &AtomicU64, transaction: fn(u64, u64) -> String) {
    let mut to = child.stdin.take().expect("it is piped");
    let from = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut number = last.load(Ordering::SeqCst);
    let send = |to: &mut std::process::ChildStdin, number: u64| {
        writeln!(to, "{} SELECT {number};", transaction(client, number)).and_then(|()| to.flush())
    };
    number += 1;
    let mut sent = send(&mut to, number);
    for line in from.lines().map_while(Result::ok) {
        assert_eq!(line.trim().parse(), Ok(number), "client {client} got another answer than to its commit");
        last.store(number, Ordering::SeqCst);
        number += 1;
        if sent.is_err() {
            break;
        }
        sent = send(&mut to, number);
    }
    drop(to);
    command::end(&mut child);
}

/// Transaction `number` of a client, for MariaDB.
pub fn transaction(client: u64, number: u64) -> String {
    let (id, payload) = (row_id(client, number), payload(client, number));
    format!(
        "BEGIN; REPLACE INTO trial.entry VALUES ({id}, '{payload}'); UPDATE trial.total SET number = {number} WHERE client = {client}; COMMIT;"
    )
}

/// The row that it brings.
pub fn row_id(client: u64, number: u64) -> u64 {
    client * CLIENT_IDS + number
}

/// What row `number` of a client holds: no two are alike, and each is long enough to fill pages.
pub fn payload(client: u64, number: u64) -> String {
    let word = (client << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("{word:016x}").repeat(16)
}

/// Every acknowledged commit is there with its content; at most one more of each client; and no half of a transaction.
pub fn account(database: &Database, acknowledged: &[AtomicU64; CLIENTS]) {
    let checked = database.must("CHECK TABLE trial.entry EXTENDED; CHECK TABLE trial.total EXTENDED;");
    assert_eq!(checked.lines().filter(|line| line.ends_with("status\tOK")).count(), 2, "{checked}");
    let rows = database.must("SELECT id, payload FROM trial.entry ORDER BY id;");
    account_for(&rows, &database.must("SELECT number FROM trial.total ORDER BY client;"), acknowledged);
}

/// The same of these rows (number and payload, with a tab between) and totals, a row a line.
pub fn account_for(rows: &str, totals: &str, acknowledged: &[AtomicU64; CLIENTS]) {
    let mut rows = rows.lines();
    assert_eq!(totals.lines().count(), CLIENTS, "{totals}");
    for (client, (last, total)) in acknowledged.iter().zip(totals.lines()).enumerate() {
        let (client, last, total) = (client as u64, last.load(Ordering::SeqCst), total.parse::<u64>().expect("a number"));
        assert!(total == last || total == last + 1, "client {client}: {last} commits acknowledged, {total} found");
        for number in 1..=total {
            let wanted = format!("{}\t{}", row_id(client, number), payload(client, number));
            assert_eq!(rows.next(), Some(wanted.as_str()), "client {client}, commit {number} of {last} acknowledged");
        }
        // The unanswered commit that was done counts as done from here on.
        acknowledged[client as usize].store(total, Ordering::SeqCst);
        eprintln!("client {client}: {last} commits acknowledged, {total} found, every row as it was written");
    }
    assert_eq!(rows.next(), None, "a row beyond the totals: half of a transaction");
}
