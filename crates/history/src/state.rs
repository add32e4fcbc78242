//! What is in memory: the open chunks of every object, and the closed ones that wait to be written.

use crate::chunk::Chunk;
use crate::grain::Grain;
use crate::object::Object;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Memory for chunks that wait. A busy volume closes about 40 KB a minute (most of it how long requests took), so this is a quarter of an hour of a disk that
/// does not answer for fifty of them; with a handful it is hours.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// The last minute of an object of which nothing was heard for so long is folded: before its seconds are old enough to be deleted.
const SILENT_S: u64 = 1800;

/// After so long without a record an object gives its memory back. Its last hour is over then, so that no second half of it can come.
const IDLE_S: u64 = 2 * 3600;

/// Notices that nobody fetches do not pile up.
const NOTICES_MAX: usize = 16;

/// Where a chunk belongs. Ordered so that the first is the one that is missed least: the oldest of the finest grain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) grain: Grain,
    pub(crate) start_s: u64,
    pub(crate) object: Arc<str>,
}

/// What is to be written, oldest first.
#[derive(Clone, Default, Debug)]
pub(crate) struct Batch {
    /// Objects to forget before anything is written, with the number of the call.
    pub(crate) forgotten: Vec<(Arc<str>, u64)>,
    pub(crate) chunks: Vec<(Key, Arc<Chunk>)>,
}

/// Guarded by one lock that is never held across I/O.
#[derive(Default)]
pub(crate) struct State {
    objects: HashMap<Arc<str>, Object>,
    waiting: BTreeMap<Key, Arc<Chunk>>,
    waiting_bytes: usize,
    /// Objects whose stored rows are to be deleted, with the number of the call: one more may follow while the first is being carried out.
    forgotten: HashMap<Arc<str>, u64>,
    forgotten_count: u64,
    /// Chunks given up because the disk did not take them in time.
    pub(crate) dropped: u64,
    /// Time of the last record, in seconds since 1970: may go back.
    pub(crate) latest_s: u64,
    /// Sentences for the user, not yet fetched.
    pub(crate) notices: Vec<String>,
    /// A query found the file damaged in this way.
    pub(crate) damage: Option<String>,
    /// Calls of flush, and how many have been carried out.
    pub(crate) flushes_wanted: u64,
    pub(crate) flushes_done: u64,
    /// Why the last writing failed.
    pub(crate) outage: Option<String>,
    pub(crate) stop: bool,
}

impl State {
    /// Enters the values of a second. True if there is something new to write.
    pub(crate) fn record(&mut self, unix_s: u64, object: &str, values: &[(&str, f64)]) -> bool {
        self.latest_s = unix_s;
        let mut closed = Vec::new();
        match self.objects.get_mut(object) {
            Some(known) => known.record(unix_s, values, &mut closed),
            None => {
                let mut new = Object::default();
                new.record(unix_s, values, &mut closed);
                self.objects.insert(object.into(), new);
            }
        }
        let any = !closed.is_empty();
        if any {
            self.enqueue(object, closed);
        }
        any
    }

    /// Objects and their chunks as a start finds them in the file: for each object, coarse grains first, then in order of time.
    pub(crate) fn restore(&mut self, object: Arc<str>, chunks: Vec<Chunk>) {
        let mut closed = Vec::new();
        let restored = self.objects.entry(object.clone()).or_default();
        for chunk in chunks {
            restored.restore(chunk, &mut closed);
        }
        self.latest_s = self.latest_s.max(restored.last_s);
        self.enqueue(&object, closed);
    }

    /// Forgets an object. False if it was not known.
    pub(crate) fn forget(&mut self, object: &str) -> bool {
        let Some((name, _)) = self.objects.remove_entry(object) else { return false };
        let mut freed = 0;
        self.waiting.retain(|key, chunk| {
            let stays = *key.object != *object;
            freed += if stays { 0 } else { chunk.bytes() };
            stays
        });
        self.waiting_bytes -= freed;
        self.forgotten_count += 1;
        self.forgotten.insert(name, self.forgotten_count);
        true
    }

    /// Hands what is open, of these grains, to the writer; objects that have been silent for hours leave memory. Goes before every sweep of the file.
    pub(crate) fn hand_on(&mut self, grains: &[Grain]) {
        let latest_s = self.latest_s;
        let mut chunks = Vec::new();
        for (name, object) in &mut self.objects {
            let mut these = Vec::new();
            if object.last_s.saturating_add(SILENT_S) < latest_s {
                object.close_second(&mut these);
            }
            these.extend(object.unwritten(grains));
            if object.last_s.saturating_add(IDLE_S) < latest_s {
                object.close_all(&mut these);
            }
            if !these.is_empty() {
                chunks.push((name.clone(), these));
            }
        }
        for (name, these) in chunks {
            self.enqueue(&name, these);
        }
    }

    /// The file is a new one: all that is in memory has yet to be written.
    pub(crate) fn all_unwritten(&mut self) {
        self.objects.values_mut().for_each(Object::all_unwritten);
    }

    fn enqueue(&mut self, object: &str, chunks: Vec<Chunk>) {
        let Some(name) = self.objects.get_key_value(object).map(|(name, _)| name.clone()) else { return };
        for chunk in chunks {
            let key = Key { grain: chunk.grain, start_s: chunk.start_s, object: name.clone() };
            match self.waiting.get_mut(&key) {
                Some(older) => {
                    self.waiting_bytes -= older.bytes();
                    Arc::make_mut(older).renew(&chunk);
                    self.waiting_bytes += older.bytes();
                }
                None => {
                    self.waiting_bytes += chunk.bytes();
                    self.waiting.insert(key, Arc::new(chunk));
                }
            }
        }
        while self.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, chunk)) = self.waiting.pop_first() else { break };
            self.waiting_bytes -= chunk.bytes();
            self.dropped += 1;
        }
    }

    /// Whether anything waits to be written.
    pub(crate) fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.forgotten.is_empty()
    }

    /// Memory of what waits.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The next chunks to write, of at most `bytes_max` (but at least one).
    pub(crate) fn batch(&self, bytes_max: usize) -> Batch {
        let mut batch =
            Batch { forgotten: self.forgotten.iter().map(|(name, number)| (name.clone(), *number)).collect(), ..Batch::default() };
        let mut bytes = 0;
        for (key, chunk) in &self.waiting {
            bytes += chunk.bytes();
            if bytes > bytes_max && !batch.chunks.is_empty() {
                break;
            }
            batch.chunks.push((key.clone(), chunk.clone()));
        }
        batch
    }

    /// A batch is in the file. What changed meanwhile still waits.
    pub(crate) fn written(&mut self, batch: &Batch) {
        for (name, number) in &batch.forgotten {
            if self.forgotten.get(name) == Some(number) {
                self.forgotten.remove(name);
            }
        }
        for (key, chunk) in &batch.chunks {
            if self.waiting.get(key).is_some_and(|waiting| Arc::ptr_eq(waiting, chunk)) {
                self.waiting.remove(key);
                self.waiting_bytes -= chunk.bytes();
            }
        }
    }

    /// Nothing is stored of these any more.
    pub(crate) fn expired(&mut self, objects: &[Arc<str>]) {
        for name in objects {
            let waits = self.waiting.keys().any(|key| key.object == *name);
            if !waits && self.objects.get(name).is_some_and(Object::is_empty) {
                self.objects.remove(name);
            }
        }
    }

    /// Something for the user to read.
    pub(crate) fn tell(&mut self, notice: String) {
        tracing::warn!("{notice}");
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }

    /// Whether anything was recorded of it.
    pub(crate) fn knows(&self, object: &str) -> bool {
        self.objects.contains_key(object)
    }

    /// Whether rows of it that the file may still have are to be ignored.
    pub(crate) fn is_being_forgotten(&self, object: &str) -> bool {
        self.forgotten.contains_key(object)
    }

    /// What is in memory of an object at a grain, by start, newest knowledge last: only the series that are asked for.
    pub(crate) fn in_memory(&self, object: &str, grain: Grain, series: &[&str]) -> BTreeMap<u64, Chunk> {
        let mut chunks: BTreeMap<u64, Chunk> = BTreeMap::new();
        let waiting = self.waiting.iter().filter(|(key, _)| key.grain == grain && *key.object == *object);
        let open = self.objects.get(object).map(|known| known.as_of_now(grain, series)).unwrap_or_default();
        for chunk in waiting.map(|(_, chunk)| chunk.only(series)).chain(open) {
            match chunks.get_mut(&chunk.start_s) {
                Some(older) => older.renew(&chunk),
                None => {
                    chunks.insert(chunk.start_s, chunk);
                }
            }
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_the_oldest_seconds_go_first() {
        let mut state = State::default();
        let names: Vec<String> = (0..200).map(|index| format!("series_{index}")).collect();
        let values: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
        let mut recorded = 0;
        while state.dropped < 10 {
            state.record(recorded * 60, "volume:a", &values);
            recorded += 1;
            assert!(state.waiting_bytes() <= WAITING_BYTES_MAX);
        }
        let bytes: usize = state.waiting.values().map(|chunk| chunk.bytes()).sum();
        assert_eq!(bytes, state.waiting_bytes());
        assert_eq!(state.waiting.keys().next().map(|key| (key.grain, key.start_s)), Some((Grain::Second, 600)));
        assert!(state.waiting.keys().any(|key| (key.grain, key.start_s) == (Grain::Minute, 0)), "coarse ones are kept longer");
        assert!(state.forget("volume:a") && !state.forget("volume:a"));
        assert_eq!((state.waiting_bytes(), state.has_work()), (0, true));
    }

    #[test]
    fn what_changes_while_it_is_written_waits_for_the_next_batch() {
        let mut state = State::default();
        state.record(0, "a", &[("x", 1.0)]);
        state.record(60, "a", &[("x", 1.0)]);
        let batch = state.batch(usize::MAX);
        assert_eq!(batch.chunks.len(), 1);
        state.record(1, "a", &[("x", 2.0)]);
        state.record(60, "a", &[("x", 1.0)]);
        state.written(&batch);
        let again = state.batch(usize::MAX);
        let changed = again.chunks.iter().find(|(key, _)| key.start_s == 0).unwrap();
        assert_eq!(changed.1.columns[0].values[..2], [1.0, 2.0]);
        state.forget("a");
        let first = state.batch(usize::MAX);
        state.record(120, "a", &[("x", 1.0)]);
        state.forget("a");
        state.written(&first);
        assert!(state.is_being_forgotten("a"), "the second call is still to be carried out");
    }
}
