//! The history as its users see it.

use crate::error::HistoryError;
use crate::grain::{Grain, UNIX_S_MAX};
use crate::query::{Answer, Plan, Points};
use crate::state::State;
use crate::store::{Opened, Store, Trouble};
use crate::writer;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// What may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// What file and write-ahead log may take on the disk together, in bytes; at least 4 MiB. When it is reached, the oldest fine points go first.
    pub bytes_max: u64,
}

impl Default for HistoryOptions {
    /// 256 MiB: all grains in full of some forty volumes that are busy all the time; one that rests takes next to nothing.
    fn default() -> HistoryOptions {
        HistoryOptions { bytes_max: 256 << 20 }
    }
}

/// How the history itself is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Nothing reaches the disk: the file could not be had at the start, or was damaged too often. What is recorded ends with the process.
    pub in_memory: bool,
    /// Why the last writing failed; None if it did not.
    pub outage: Option<String>,
    /// Bytes of memory that wait to be written.
    pub waiting_bytes: u64,
    /// Chunks given up because the disk did not take them in time: each a minute, an hour or a week of one object.
    pub dropped_chunks: u64,
    /// Bytes on the disk.
    pub file_bytes: u64,
}

/// Shared with the writer's thread.
pub(crate) struct Shared {
    pub(crate) store: Store,
    state: Mutex<State>,
    /// Something changed: work for the writer, or a flush carried out.
    pub(crate) changed: Condvar,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Series over time of named objects, in a file. May be shared among threads.
///
/// [`record`](History::record) is called about once a second for each object; [`query`](History::query) any time. Dropping it writes what is open.
pub struct History {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl History {
    /// Opens the file or begins it, and starts the thread that writes. The sentence, if there is one, is for the user: the file was damaged (and set aside as
    /// `PATH.damaged-UNIXSECONDS`) or cannot be written (the history is then kept in memory).
    ///
    /// Errors: there is a directory in its place; no thread or no memory can be had.
    pub fn open(path: &Path, options: HistoryOptions) -> Result<(History, Option<String>), HistoryError> {
        let Opened { store, warning, newest } = Store::open(path, options.bytes_max)?;
        let mut state = State::default();
        for (object, chunks) in newest {
            state.restore(object, chunks);
        }
        // Points of the future are from a clock that was wrong once; measured by them all the rest would be too old.
        state.latest_s = state.latest_s.min(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
        state.hand_on(&Grain::ALL);
        let shared = Arc::new(Shared { store, state: Mutex::new(state), changed: Condvar::new() });
        let theirs = shared.clone();
        let writer =
            std::thread::Builder::new().name("history".into()).spawn(move || writer::run(&theirs)).map_err(HistoryError::Thread)?;
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        Ok((History { shared, writer: Some(writer) }, warning))
    }

    /// Enters what is known of an object in a second. A series that is absent, or not a number, is unknown in that second. Values are kept as `f32`. Of
    /// two records of the same second the later counts, by series. Never waits for the disk.
    pub fn record(&self, unix_s: u64, object: &str, values: &[(&str, f64)]) {
        if self.shared.state().record(unix_s.min(UNIX_S_MAX), object, values) {
            self.shared.changed.notify_all();
        }
    }

    /// Series of an object from `from_unix_s` to before `to_unix_s`, in at most `points_max` points. A series is asked for by its name, or, with a star at the
    /// end, by how it begins (`read_step_*`). A point is the mean over its step of what is known; where the name ends in `_total` the sum; where it ends in
    /// `_p50_us` or `_p99_us` it is known only where a point is one second, since percentiles cannot be put together. The finest grain is taken that is kept
    /// since `from_unix_s`; the newest points come from memory. First and last point tell of their whole step.
    ///
    /// Reads the file and may so wait for the disk. Should the file turn out to be damaged, the answer is what memory knows.
    ///
    /// Errors: the object is unknown; the span is empty; no points are wanted.
    pub fn query(
        &self,
        object: &str,
        series: &[&str],
        from_unix_s: u64,
        to_unix_s: u64,
        points_max: usize,
    ) -> Result<Answer, HistoryError> {
        if to_unix_s <= from_unix_s {
            return Err(HistoryError::EmptyRange { from_unix_s, to_unix_s });
        }
        if points_max == 0 {
            return Err(HistoryError::NoPoints);
        }
        let (plan, mut newer, read) = {
            let state = self.shared.state();
            if !state.knows(object) {
                return Err(HistoryError::Unknown { object: object.into() });
            }
            let plan = Plan::new(from_unix_s, to_unix_s, points_max, state.latest_s, |grain| self.shared.store.lost_before_s(grain));
            (plan, state.in_memory(object, plan.grain, series), !state.is_being_forgotten(object))
        };
        let stored = if read { self.shared.store.read(object, plan.grain, plan.from_s, plan.end_s(), series) } else { Ok(Vec::new()) };
        let stored = stored.unwrap_or_else(|trouble| {
            self.report(trouble);
            Vec::new()
        });
        let mut points = Points::new(plan, series);
        for mut chunk in stored {
            if let Some(newer) = newer.remove(&chunk.start_s) {
                chunk.renew(&newer);
            }
            points.add(&chunk);
        }
        newer.values().for_each(|chunk| points.add(chunk));
        Ok(points.answer())
    }

    /// Hands damage found by a query to the writer, who alone may change the file.
    fn report(&self, trouble: Trouble) {
        match trouble {
            Trouble::Damaged(why) => {
                self.shared.state().damage.get_or_insert(why);
                self.shared.changed.notify_all();
            }
            Trouble::Unwritable(why) => tracing::debug!("history: a query was answered from memory: {why}"),
        }
    }

    /// Writes all that is in memory and waits for it: it then survives a power cut, unless a question that was being read kept a part in the write-ahead log.
    ///
    /// Errors: the disk did not take it; it stays in memory and is tried again.
    pub fn flush(&self) -> Result<(), HistoryError> {
        let mut state = self.shared.state();
        state.flushes_wanted += 1;
        let number = state.flushes_wanted;
        self.shared.changed.notify_all();
        while state.flushes_done < number && !state.stop {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.outage {
            Some(reason) => Err(HistoryError::Unwritten { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Forgets all of an object: from now on it is unknown, and soon it is gone from the file. False if it was not known.
    pub fn forget(&self, object: &str) -> bool {
        let known = self.shared.state().forget(object);
        self.shared.changed.notify_all();
        known
    }

    /// Sentences for the user since the last call: damage found and mended, writing that fails, writing that works again. Each is told once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().notices)
    }

    /// How the history itself is.
    pub fn status(&self) -> Status {
        let file_bytes = self.shared.store.file_bytes();
        let state = self.shared.state();
        Status {
            in_memory: self.shared.store.is_in_memory(),
            outage: state.outage.clone(),
            waiting_bytes: state.waiting_bytes() as u64,
            dropped_chunks: state.dropped,
            file_bytes,
        }
    }
}

impl Drop for History {
    /// Writes what is open, tries once, and ends the thread.
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
