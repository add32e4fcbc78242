//! What is too old goes; and what is too much.

use super::Store;
use super::open::lost_name;
use super::trouble::Trouble;
use crate::grain::Grain;
use rusqlite::{Connection, ffi, params};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows deleted in one transaction, so that the write-ahead log stays small.
const DELETED_AT_ONCE: i64 = 256;

/// Part of the space, in percent, down to which a grain gives way before a coarser one does. What a week of minutes and a year of hours take is about the
/// same; the hour of seconds is less.
fn share_percent(grain: Grain) -> u64 {
    match grain {
        Grain::Second => 20,
        Grain::Minute => 40,
        Grain::Hour => 40,
    }
}

impl Store {
    /// Deletes what is older than each grain is kept, seen from `now_s`, gives free space back to the disk, and brings the write-ahead log home, so that a power
    /// cut costs no more than what came since. Objects of which nothing is left.
    pub(crate) fn sweep(&self, now_s: u64) -> Result<Vec<Arc<str>>, Trouble> {
        self.try_sweep(now_s).map_err(|error| Trouble::of(&error, self.file()))
    }

    fn try_sweep(&self, now_s: u64) -> rusqlite::Result<Vec<Arc<str>>> {
        let mut connection = self.writer();
        for grain in Grain::ALL {
            let before_s = now_s.saturating_sub(grain.keep_s() + grain.chunk_s());
            let sql = "DELETE FROM chunk WHERE rowid IN (SELECT rowid FROM chunk WHERE grain = ?1 AND start_s <= ?2 LIMIT ?3)";
            while before_s > 0 && connection.execute(sql, params![grain.number(), before_s as i64, DELETED_AT_ONCE])? > 0 {}
        }
        self.make_room(&mut connection, &[])?;
        let expired = {
            let sql = "SELECT name FROM object WHERE NOT EXISTS (SELECT 1 FROM chunk WHERE object = id AND grain IN (1, 60, 3600))";
            let mut statement = connection.prepare(sql)?;
            let found = statement.query_map([], |row| Ok(Arc::from(row.get_ref(0)?.as_str()?)))?;
            found.collect::<rusqlite::Result<Vec<Arc<str>>>>()?
        };
        for object in &expired {
            connection.execute("DELETE FROM object WHERE name = ?1", [&**object])?;
        }
        self.shrink(&connection)?;
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        Ok(expired)
    }

    /// Deletes the oldest chunks of the finest grain that has more than its share, until rows of these lengths fit.
    pub(super) fn make_room(&self, connection: &mut Connection, rows_bytes: &[u64]) -> rusqlite::Result<()> {
        let needed = rows_bytes.iter().map(|bytes| row_bytes(*bytes)).sum::<u64>();
        let limit = self.tables_bytes_max();
        if used_bytes(connection)? + needed <= limit {
            return Ok(());
        }
        // A little more, so that it need not be done for every batch.
        let target = (limit / 16 * 15).saturating_sub(needed);
        let mut stored = [0u64; 3];
        for grain in Grain::ALL {
            let sql = "SELECT coalesce(sum(length(body)), 0) FROM chunk WHERE grain = ?1";
            stored[grain as usize] = connection.query_row(sql, [grain.number()], |row| row.get::<_, i64>(0))?.max(0) as u64;
        }
        while used_bytes(connection)? > target {
            let all: u64 = stored.iter().sum();
            let over = |grain: &Grain| stored[*grain as usize] * 100 > all * share_percent(*grain);
            let Some(grain) = Grain::ALL.into_iter().find(over) else { break };
            let oldest: Option<i64> =
                connection.query_row("SELECT min(start_s) FROM chunk WHERE grain = ?1", [grain.number()], |row| row.get(0))?;
            let Some(start_s) = oldest else { break };
            let lost_before_s = start_s + grain.chunk_s() as i64;
            let transaction = connection.transaction()?;
            let sum = "SELECT coalesce(sum(length(body)), 0) FROM chunk WHERE grain = ?1 AND start_s = ?2";
            let freed: i64 = transaction.query_row(sum, params![grain.number(), start_s], |row| row.get(0))?;
            let gone = transaction.execute("DELETE FROM chunk WHERE grain = ?1 AND start_s = ?2", params![grain.number(), start_s])?;
            if gone == 0 {
                let said = Some("index and rows do not agree".into());
                return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), said));
            }
            let note = "INSERT INTO fact VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
            transaction.execute(note, params![lost_name(grain), lost_before_s])?;
            transaction.commit()?;
            let freed = freed.max(0) as u64;
            stored[grain as usize] = stored[grain as usize].saturating_sub(freed);
            self.lost_before_s[grain as usize].fetch_max(lost_before_s.max(0) as u64, Ordering::Relaxed);
            tracing::debug!(grain = grain.number(), start_s, freed, "history: made room");
        }
        Ok(())
    }

    /// Gives free pages back to the disk when they are more than a quarter of the file, or the file is over its limit.
    fn shrink(&self, connection: &Connection) -> rusqlite::Result<()> {
        let page_bytes = pragma(connection, "page_size")?.max(1);
        let at_once = (self.batch_bytes() as u64 / page_bytes / 4).max(1);
        loop {
            let (pages, free) = (pragma(connection, "page_count")?, pragma(connection, "freelist_count")?);
            let wasteful = free > pages / 4 && free > at_once;
            let too_large = pages * page_bytes > self.tables_bytes_max();
            if free == 0 || !(wasteful || too_large) {
                return Ok(());
            }
            let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({at_once})"))?;
            let mut steps = statement.query([])?;
            while steps.next()?.is_some() {}
            if pragma(connection, "freelist_count")? >= free {
                return Ok(());
            }
        }
    }
}

/// What a row takes at most: long ones a chain of pages of which the last is partly empty, short ones share pages that may be half full; and part of the index.
fn row_bytes(body_bytes: u64) -> u64 {
    64 + if body_bytes < 2048 { body_bytes * 2 } else { body_bytes + 4096 }
}

/// Bytes of pages that are not free.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let used = pragma(connection, "page_count")?.saturating_sub(pragma(connection, "freelist_count")?);
    Ok(used * pragma(connection, "page_size")?)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map(|number| number.max(0) as u64)
}
