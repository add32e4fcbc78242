//! The open chunks of one object: what it adds to each second, and what follows from that when a minute or an hour is over.
//!
//! Coarse points are never summed up on the side: a minute's point is its sixty seconds folded, an hour's its sixty minutes. So whatever was stored of the finer
//! grain is enough to make the coarser again after a crash.

use crate::chunk::{Cell, Chunk};
use crate::grain::Grain;
use std::sync::Arc;

/// A chunk that still grows.
#[derive(Clone, Debug)]
struct Open {
    chunk: Chunk,
    /// Whether it knows more than was handed on to be written.
    dirty: bool,
}

/// The open chunks of an object, one a grain.
#[derive(Clone, Default, Debug)]
pub(crate) struct Object {
    open: [Option<Open>; 3],
    /// When it was last recorded, in seconds since 1970.
    pub(crate) last_s: u64,
}

impl Object {
    /// Enters the values of a second; `closed` gets chunks that are complete thereby.
    pub(crate) fn record(&mut self, unix_s: u64, values: &[(&str, f64)], closed: &mut Vec<Chunk>) {
        self.last_s = unix_s;
        let start_s = Grain::Second.chunk_start(unix_s);
        if self.open[0].as_ref().is_some_and(|open| open.chunk.start_s != start_s) {
            self.close_second(closed);
        }
        let open = self.open[0].get_or_insert_with(|| Open { chunk: Chunk::new(Grain::Second, start_s), dirty: true });
        open.dirty = true;
        for (name, value) in values {
            let value = *value as f32;
            if value.is_finite() {
                open.chunk.put(Grain::Second.point_of(unix_s), name, Cell { value, seconds: 1 });
            }
        }
    }

    /// Ends all chunks, as if the week were over.
    pub(crate) fn close_all(&mut self, closed: &mut Vec<Chunk>) {
        self.close_second(closed);
        self.close_minute(closed);
        closed.extend(self.open[2].take().filter(|open| open.dirty).map(|open| open.chunk));
    }

    /// Ends the minute.
    pub(crate) fn close_second(&mut self, closed: &mut Vec<Chunk>) {
        if let Some(open) = self.open[0].take() {
            self.put(Grain::Minute, open.chunk.start_s, open.chunk.folded(), closed);
            closed.extend(open.dirty.then_some(open.chunk));
        }
    }

    fn close_minute(&mut self, closed: &mut Vec<Chunk>) {
        if let Some(open) = self.open[1].take() {
            self.put(Grain::Hour, open.chunk.start_s, open.chunk.folded(), closed);
            closed.extend(open.dirty.then_some(open.chunk));
        }
    }

    /// Enters a coarse point.
    fn put(&mut self, grain: Grain, unix_s: u64, cells: Vec<(Arc<str>, Cell)>, closed: &mut Vec<Chunk>) {
        let start_s = grain.chunk_start(unix_s);
        if self.open[grain as usize].as_ref().is_some_and(|open| open.chunk.start_s != start_s) {
            match grain {
                Grain::Minute => self.close_minute(closed),
                _ => closed.extend(self.open[grain as usize].take().filter(|open| open.dirty).map(|open| open.chunk)),
            }
        }
        let open = self.open[grain as usize].get_or_insert_with(|| Open { chunk: Chunk::new(grain, start_s), dirty: true });
        open.dirty = true;
        for (name, cell) in &cells {
            open.chunk.put(grain.point_of(unix_s), name, *cell);
        }
    }

    /// Copies of the chunks that know more than was written, of these grains; they count as written from now on.
    pub(crate) fn unwritten(&mut self, grains: &[Grain]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for grain in grains {
            if let Some(open) = self.open[*grain as usize].as_mut().filter(|open| open.dirty) {
                open.dirty = false;
                chunks.push(open.chunk.clone());
            }
        }
        chunks
    }

    /// What was written is lost.
    pub(crate) fn all_unwritten(&mut self) {
        self.open.iter_mut().flatten().for_each(|open| open.dirty = true);
    }

    /// Whether nothing of it is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    /// Stored chunks come back after a start, in order of time within each grain; of coarser grains first. Fine ones that follow are folded again where the
    /// coarser did not reach the file before a crash.
    pub(crate) fn restore(&mut self, chunk: Chunk, closed: &mut Vec<Chunk>) {
        if let Some(until_s) = chunk.known_until_s() {
            self.last_s = self.last_s.max(until_s - 1);
        }
        match chunk.grain {
            Grain::Second => self.close_second(closed),
            Grain::Minute => self.close_minute(closed),
            Grain::Hour => {}
        }
        let grain = chunk.grain as usize;
        self.open[grain] = Some(Open { chunk, dirty: false });
    }

    /// What would be the chunks of a grain if everything ended now, of the series that are asked for.
    pub(crate) fn as_of_now(&self, grain: Grain, series: &[&str]) -> Vec<Chunk> {
        let only = |open: &Option<Open>| open.as_ref().map(|open| Open { chunk: open.chunk.only(series), dirty: true });
        let mut copy = Object { open: [only(&self.open[0]), only(&self.open[1]), only(&self.open[2])], last_s: self.last_s };
        let mut closed = Vec::new();
        copy.close_all(&mut closed);
        closed.retain(|chunk| chunk.grain == grain);
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_close_as_time_goes_on() {
        let (mut object, mut closed) = (Object::default(), Vec::new());
        for unix_s in 0..3661 {
            object.record(unix_s, &[("a", unix_s as f64), ("nothing", f64::NAN)], &mut closed);
        }
        let seconds: Vec<u64> = closed.iter().filter(|chunk| chunk.grain == Grain::Second).map(|chunk| chunk.start_s).collect();
        assert_eq!(seconds, (0..61).map(|minute| minute * 60).collect::<Vec<_>>());
        let minutes: Vec<&Chunk> = closed.iter().filter(|chunk| chunk.grain == Grain::Minute).collect();
        assert_eq!((minutes.len(), minutes[0].columns.len()), (1, 1));
        assert_eq!(minutes[0].columns[0].cell(2), Some(Cell { value: 149.5, seconds: 60 }));
        let hours = object.as_of_now(Grain::Hour, &["a"]);
        assert_eq!(hours[0].columns[0].cell(0), Some(Cell { value: 1799.5, seconds: 3600 }));
        assert_eq!(hours[0].columns[0].cell(1), Some(Cell { value: 3630.0, seconds: 61 }));
    }
}
