//! Rows in and out.

use super::Store;
use super::trouble::Trouble;
use crate::body;
use crate::chunk::Chunk;
use crate::grain::Grain;
use crate::state::Batch;
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

/// Chunks by object.
pub(crate) type Newest = Vec<(Arc<str>, Vec<Chunk>)>;

impl Store {
    /// Writes a batch: in one transaction what is to be forgotten, in another the chunks, each joined with what is stored of the same time.
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), Trouble> {
        let trouble = |error: rusqlite::Error| Trouble::of(&error, self.file());
        let mut connection = self.writer();
        if !batch.forgotten.is_empty() {
            let transaction = connection.transaction().map_err(trouble)?;
            for (object, _) in &batch.forgotten {
                let sql = "DELETE FROM chunk WHERE object IN (SELECT id FROM object WHERE name = ?1)";
                transaction.execute(sql, [&**object]).map_err(trouble)?;
                transaction.execute("DELETE FROM object WHERE name = ?1", [&**object]).map_err(trouble)?;
            }
            transaction.commit().map_err(trouble)?;
        }
        let mut rows = Vec::with_capacity(batch.chunks.len());
        for (key, chunk) in &batch.chunks {
            let mut joined = stored(&connection, &key.object, chunk).map_err(trouble)??;
            let bytes = match joined.as_mut() {
                Some(older) => {
                    older.renew(chunk);
                    body::encode(&key.object, older)
                }
                None => body::encode(&key.object, chunk),
            };
            rows.push((key, bytes));
        }
        self.make_room(&mut connection, rows.iter().map(|(_, bytes)| bytes.len() as u64).collect::<Vec<_>>().as_slice())
            .map_err(trouble)?;
        let transaction = connection.transaction().map_err(trouble)?;
        {
            let mut name = transaction.prepare("INSERT OR IGNORE INTO object (name) VALUES (?1)").map_err(trouble)?;
            let sql = "INSERT OR REPLACE INTO chunk (grain, object, start_s, body) SELECT ?1, id, ?2, ?3 FROM object WHERE name = ?4";
            let mut insert = transaction.prepare(sql).map_err(trouble)?;
            for (key, bytes) in &rows {
                name.execute([&*key.object]).map_err(trouble)?;
                let count = insert.execute(params![key.grain.number(), key.start_s as i64, bytes, &*key.object]).map_err(trouble)?;
                if count != 1 {
                    return Err(Trouble::Damaged("an object cannot be found under its name".into()));
                }
            }
        }
        transaction.commit().map_err(trouble)
    }

    /// The stored chunks of an object that reach into a span of time, in order of time; of the named series.
    pub(crate) fn read(&self, object: &str, grain: Grain, from_s: u64, to_s: u64, series: &[&str]) -> Result<Vec<Chunk>, Trouble> {
        self.reading(|connection| {
            rows(connection, object, grain, grain.chunk_start(from_s), to_s, Some(series))
                .map_err(|error| Trouble::of(&error, self.file()))?
        })
    }

    /// By object, what memory needs to go on after a start: the newest chunk of each grain, and finer ones whose coarser point is missing because the last end
    /// was not a clean one. Coarse grains first, then in order of time.
    pub(crate) fn newest(&self) -> Result<Newest, Trouble> {
        let trouble = |error: rusqlite::Error| Trouble::of(&error, self.file());
        let connection = self.writer();
        let mut found = Vec::new();
        for object in names(&connection).map_err(trouble)? {
            let since = |grain: Grain, from_s: u64| {
                rows(&connection, &object, grain, grain.chunk_start(from_s), u64::MAX, None).map_err(trouble).flatten()
            };
            let mut chunks: Vec<Chunk> = newest_start(&connection, &object, Grain::Hour)
                .map_err(trouble)?
                .map_or(Ok(Vec::new()), |start_s| since(Grain::Hour, start_s))?;
            let hours_until_s = chunks.last().and_then(Chunk::known_until_s).unwrap_or(0);
            let minutes = since(Grain::Minute, hours_until_s.saturating_sub(Grain::Hour.step_s()))?;
            let minutes_until_s = minutes.last().and_then(Chunk::known_until_s).unwrap_or(hours_until_s);
            chunks.extend(minutes);
            chunks.extend(since(Grain::Second, minutes_until_s.saturating_sub(Grain::Minute.step_s()))?);
            found.push((object, chunks));
        }
        Ok(found)
    }
}

/// The names of all objects.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<Vec<Arc<str>>> {
    let mut statement = connection.prepare("SELECT name FROM object ORDER BY name")?;
    statement.query_map([], |row| Ok(Arc::from(row.get_ref(0)?.as_str()?)))?.collect()
}

/// The stored chunk of the same place, if there is one.
fn stored(connection: &Connection, object: &str, like: &Chunk) -> rusqlite::Result<Result<Option<Chunk>, Trouble>> {
    let sql = "SELECT body FROM chunk WHERE grain = ?1 AND object = (SELECT id FROM object WHERE name = ?2) AND start_s = ?3";
    let mut statement = connection.prepare(sql)?;
    let body: Option<Vec<u8>> =
        statement.query_row(params![like.grain.number(), object, like.start_s as i64], |row| row.get(0)).optional()?;
    let decode = |body: Vec<u8>| body::decode(object, like.grain, like.start_s, &body, None).map_err(|_| Trouble::row());
    Ok(body.map(decode).transpose())
}

fn newest_start(connection: &Connection, object: &str, grain: Grain) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT max(start_s) FROM chunk WHERE grain = ?1 AND object = (SELECT id FROM object WHERE name = ?2)";
    let start: Option<i64> = connection.query_row(sql, params![grain.number(), object], |row| row.get(0))?;
    Ok(start.and_then(|start| start.try_into().ok()))
}

type Rows = Result<Vec<Chunk>, Trouble>;

/// Chunks of an object by start, `to_s` exclusive; of the named series if some are named.
fn rows(connection: &Connection, object: &str, grain: Grain, from_s: u64, to_s: u64, series: Option<&[&str]>) -> rusqlite::Result<Rows> {
    let sql = "SELECT start_s, body FROM chunk WHERE grain = ?1 AND object = (SELECT id FROM object WHERE name = ?2) AND start_s >= ?3 AND start_s < ?4 ORDER BY start_s";
    let mut statement = connection.prepare(sql)?;
    let to_s = i64::try_from(to_s).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![grain.number(), object, from_s as i64, to_s])?;
    let mut chunks = Vec::new();
    while let Some(row) = rows.next()? {
        let start: i64 = row.get(0)?;
        let body = row.get_ref(1)?.as_blob()?;
        let start_s = u64::try_from(start).ok().filter(|start_s| start_s % grain.chunk_s() == 0);
        let Some(chunk) = start_s.and_then(|start_s| body::decode(object, grain, start_s, body, series).ok()) else {
            return Ok(Err(Trouble::row()));
        };
        chunks.push(chunk);
    }
    Ok(Ok(chunks))
}
