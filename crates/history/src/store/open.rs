//! Opening: the file as it is, a new one in its place, or tables in memory.

use super::rows::Newest;
use super::trouble::Trouble;
use super::{BYTES_MIN, Store, damage};
use crate::error::HistoryError;
use crate::grain::Grain;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// "hrth": tells this file from other databases.
const APPLICATION: i64 = 0x6872_7468;

/// The format this code writes and reads.
const VERSION: i64 = 1;

/// A disk that spoils so many files in the life of a daemon is not given another.
const SET_ASIDE_MAX: u32 = 3;

/// Limit of tables in memory, which stand in for a file that cannot be had.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

/// Larger pages would waste space with chunks of 1 to 8 KiB, smaller ones make long chains of them.
const PAGE_BYTES: u64 = 4096;

/// `body` is described in body.rs; `grain` is seconds of a point, `start_s` seconds since 1970.
const TABLES: &str = "
    CREATE TABLE object (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE chunk (grain INTEGER NOT NULL, object INTEGER NOT NULL, start_s INTEGER NOT NULL, body BLOB NOT NULL,
                        PRIMARY KEY (grain, object, start_s)) STRICT;
    CREATE TABLE fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;";

/// What opening brings.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// What the user should know: damage, or that nothing is written.
    pub(crate) warning: Option<String>,
    /// By object, the chunks that memory needs to go on; see `Store::newest`.
    pub(crate) newest: Newest,
}

impl Store {
    /// Opens or begins the file. Errors: a directory in its place; no memory.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> Result<Opened, HistoryError> {
        if path.is_dir() {
            return Err(HistoryError::Directory { path: path.into() });
        }
        let begin = |error: rusqlite::Error| HistoryError::Begin { reason: error.to_string() };
        let placeholder = Connection::open_in_memory().map_err(begin)?;
        let store = Store {
            path: path.into(),
            bytes_max: bytes_max.max(BYTES_MIN),
            writer: Mutex::new(placeholder),
            reader: Mutex::new(None),
            in_memory: AtomicBool::new(true),
            set_aside: AtomicU32::new(0),
            lost_before_s: [const { AtomicU64::new(0) }; 3],
        };
        let there = path.metadata().ok().map(|metadata| metadata.len());
        let opened = match there {
            Some(0) => Err(Trouble::Damaged("it is empty".into())),
            _ => store.use_file().and_then(|()| store.newest()),
        };
        let (warning, newest) = match opened {
            Ok(newest) => (None, newest),
            Err(Trouble::Damaged(why)) => (Some(store.replace_file(&why)), Vec::new()),
            Err(Trouble::Unwritable(why)) => {
                store.use_memory().map_err(begin)?;
                let path = path.display();
                let warning = format!(
                    "The history cannot be kept in {path} ({why}): it is kept in memory and ends with the daemon; free some space there or make the directory writable, then restart the daemon"
                );
                (Some(warning), Vec::new())
            }
        };
        Ok(Opened { store, warning, newest })
    }

    /// What is stored is damaged: begins anew. The sentence that tells of it.
    pub(crate) fn begin_anew(&self, why: &str) -> String {
        if !self.is_in_memory() {
            return self.replace_file(why);
        }
        match self.use_memory() {
            Ok(()) => format!("The history in memory was damaged ({why}): a new one was created; check the memory of this machine"),
            Err(error) => {
                format!("The history in memory was damaged ({why}), and no new one could be created ({error}): restart the daemon")
            }
        }
    }

    /// Sets the file aside and begins a new one.
    fn replace_file(&self, why: &str) -> String {
        let count = self.set_aside.fetch_add(1, Ordering::Relaxed) + 1;
        let path = self.path.display();
        // Closes the connections, which have the old file open.
        if let Err(error) = self.use_memory() {
            return format!("The history in {path} is damaged ({why}), and there is no memory left ({error}): restart the daemon");
        }
        let aside = match damage::set_aside(&self.path) {
            Ok(aside) => aside,
            Err(error) => {
                return format!(
                    "The history in {path} is damaged ({why}) and cannot be renamed ({error}): it is kept in memory and ends with the daemon; move the file away, then restart the daemon"
                );
            }
        };
        let damage = format!("The history in {path} was damaged ({why}): it was renamed to {}", aside.display());
        if count > SET_ASIDE_MAX {
            return format!(
                "{damage}; that happened {count} times, so it is now kept in memory and ends with the daemon: check the disk, then restart the daemon"
            );
        }
        match self.use_file() {
            Ok(()) => format!("{damage} and a new one was created; inspect the old one or delete it"),
            Err(Trouble::Damaged(why) | Trouble::Unwritable(why)) => {
                let remedy = "it is kept in memory and ends with the daemon; check the disk, then restart the daemon";
                match self.use_memory() {
                    Ok(()) => format!("{damage} and no new one could be created ({why}): {remedy}"),
                    Err(error) => format!("{damage} and no new one could be created ({why}; {error}): restart the daemon"),
                }
            }
        }
    }

    /// Tables in memory from now on.
    fn use_memory(&self) -> rusqlite::Result<()> {
        self.in_memory.store(true, Ordering::Relaxed);
        *self.reader() = None;
        let connection = Connection::open_in_memory()?;
        create_tables(&connection)?;
        self.forget_losses();
        *self.writer() = connection;
        Ok(())
    }

    /// The file from now on; begins it if it is not there.
    fn use_file(&self) -> Result<(), Trouble> {
        let trouble = |error: rusqlite::Error| Trouble::of(&error, Some(&self.path));
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(trouble)?;
        self.prepare(&connection).map_err(trouble)??;
        let reader =
            Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(trouble)?;
        limit_memory(&reader).map_err(trouble)?;
        self.forget_losses();
        for grain in Grain::ALL {
            let lost = fact(&connection, &lost_name(grain)).map_err(trouble)?;
            self.lost_before_s[grain as usize].store(lost.max(0) as u64, Ordering::Relaxed);
        }
        *self.writer() = connection;
        *self.reader() = Some(reader);
        self.in_memory.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Looks whether the file is ours, sets how it is written, and writes once: a file that cannot be written is noticed now.
    fn prepare(&self, connection: &Connection) -> rusqlite::Result<Result<(), Trouble>> {
        limit_memory(connection)?;
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let version = number("PRAGMA user_version")?;
        let is_new = version == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0;
        if is_new {
            connection.pragma_update(None, "page_size", PAGE_BYTES as i64)?;
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        } else if number("PRAGMA application_id")? != APPLICATION {
            return Ok(Err(Trouble::Damaged("it is not a history of hearth".into())));
        } else if version > VERSION {
            let why = format!("it was written by a newer hearth, in format {version}; this one reads up to {VERSION}");
            return Ok(Err(Trouble::Damaged(why)));
        } else if version != VERSION {
            return Ok(Err(Trouble::Damaged(format!("its format {version} is unknown"))));
        }
        // Without effect where the file system cannot do it; all works as well, only queries then wait for writing.
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // The write-ahead log: a sixteenth of the limit before it is brought home, and no more is kept on the disk.
        let log_bytes = self.bytes_max / 16;
        connection.query_row(&format!("PRAGMA wal_autocheckpoint = {}", (log_bytes / PAGE_BYTES).clamp(16, 1000)), [], |_| Ok(()))?;
        connection.query_row(&format!("PRAGMA journal_size_limit = {log_bytes}"), [], |_| Ok(()))?;
        if is_new {
            create_tables(connection)?;
        }
        connection.execute("INSERT INTO fact VALUES ('opened', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1", [])?;
        Ok(Ok(()))
    }

    fn forget_losses(&self) {
        self.lost_before_s.iter().for_each(|lost| lost.store(0, Ordering::Relaxed));
    }

    /// Path of the file, if it is one.
    pub(super) fn file(&self) -> Option<&Path> {
        (!self.is_in_memory()).then_some(self.path.as_path())
    }

    /// How large file, or tables in memory, may become: part of the limit, as the write-ahead log needs room too.
    pub(super) fn tables_bytes_max(&self) -> u64 {
        if self.is_in_memory() { self.bytes_max.min(MEMORY_BYTES_MAX) } else { self.bytes_max / 4 * 3 }
    }
}

/// A number kept in the file under a name; 0 if it is not there.
fn fact(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    match connection.query_row("SELECT value FROM fact WHERE name = ?1", [name], |row| row.get(0)) {
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(0),
        other => other,
    }
}

/// Under which name the file says what of a grain gave way to the limit of size.
pub(super) fn lost_name(grain: Grain) -> String {
    format!("lost_before_s_{}", grain.number())
}

fn create_tables(connection: &Connection) -> rusqlite::Result<()> {
    let all = format!("BEGIN IMMEDIATE;{TABLES}PRAGMA application_id = {APPLICATION};PRAGMA user_version = {VERSION};COMMIT;");
    connection.execute_batch(&all)
}

/// A cache of 1 MiB a connection: chunks are read once; the system caches the file. And checks that cost next to nothing.
fn limit_memory(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)
}
