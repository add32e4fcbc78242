//! A run of points of one object, column by column; and how points become fewer.

use crate::grain::Grain;
use std::sync::Arc;

/// A value and of how many seconds it tells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) value: f32,
    pub(crate) seconds: u16,
}

/// The points of one series in a chunk.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Column {
    pub(crate) name: Arc<str>,
    /// NaN where unknown.
    pub(crate) values: Vec<f32>,
    /// Of how many seconds each value tells, so that means of means are exact; empty at the grain of a second, where it is one or none.
    pub(crate) seconds: Vec<u16>,
}

/// All series of one object from `start_s` for `grain.chunk_s()` seconds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chunk {
    pub(crate) grain: Grain,
    pub(crate) start_s: u64,
    /// In order of their names.
    pub(crate) columns: Vec<Column>,
}

/// What becomes of a series' values when several points are put together to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fold {
    /// The mean of the known seconds.
    Mean,
    /// They add up: counts and sums of what happened in each second.
    Total,
    /// Nothing: a percentile of many seconds does not follow from those of each.
    Nothing,
}

impl Fold {
    /// Of a series, by the end of its name.
    fn of(series: &str) -> Fold {
        match series {
            name if name.ends_with("_total") => Fold::Total,
            name if name.ends_with("_p50_us") || name.ends_with("_p99_us") => Fold::Nothing,
            _ => Fold::Mean,
        }
    }
}

/// Whether points of a series can be put together.
pub(crate) fn folds(series: &str) -> bool {
    Fold::of(series) != Fold::Nothing
}

/// Whether a series is asked for: by its name, or by how it begins (`read_step_*`).
pub(crate) fn is_wanted(wanted: &[&str], name: &str) -> bool {
    wanted.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => *wanted == name,
    })
}

/// Many cells put together to one.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sum {
    /// Of totals the sum, of others the sum over seconds.
    sum: f64,
    seconds: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, series: &str, cell: Cell) {
        let weight = if Fold::of(series) == Fold::Total { 1.0 } else { f64::from(cell.seconds) };
        self.sum += f64::from(cell.value) * weight;
        self.seconds += u64::from(cell.seconds);
    }

    /// The mean of the known seconds, or their total; None if none is known.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        match (Fold::of(series), self.seconds) {
            (_, 0) => None,
            (Fold::Total, _) => Some(self.sum),
            (_, seconds) => Some(self.sum / seconds as f64),
        }
    }

    fn cell(&self, series: &str) -> Option<Cell> {
        Some(Cell { value: self.value(series)? as f32, seconds: self.seconds.min(u64::from(u16::MAX)) as u16 })
    }
}

impl Column {
    pub(crate) fn new(name: Arc<str>, grain: Grain) -> Column {
        let seconds = if grain == Grain::Second { Vec::new() } else { vec![0; grain.points()] };
        Column { name, values: vec![f32::NAN; grain.points()], seconds }
    }

    /// What is known of a point.
    pub(crate) fn cell(&self, point: usize) -> Option<Cell> {
        let value = self.values[point];
        let seconds = self.seconds.get(point).copied().unwrap_or(1);
        (!value.is_nan() && seconds > 0).then_some(Cell { value, seconds })
    }

    fn set(&mut self, point: usize, cell: Cell) {
        self.values[point] = cell.value;
        if let Some(seconds) = self.seconds.get_mut(point) {
            *seconds = cell.seconds;
        }
    }

    /// A newer cell arrives. A recorded second is replaced. A mean is replaced unless the old one tells of more seconds: a clock set back by a moment would
    /// otherwise replace the mean of an hour by that of its last second.
    fn renew(&mut self, point: usize, newer: Cell) {
        if self.cell(point).is_none_or(|old| self.seconds.is_empty() || newer.seconds >= old.seconds) {
            self.set(point, newer);
        }
    }
}

impl Chunk {
    pub(crate) fn new(grain: Grain, start_s: u64) -> Chunk {
        Chunk { grain, start_s, columns: Vec::new() }
    }

    /// Enters one value.
    pub(crate) fn put(&mut self, point: usize, name: &str, cell: Cell) {
        let index = self.column_index(name);
        self.columns[index].renew(point, cell);
    }

    fn column_index(&mut self, name: &str) -> usize {
        self.columns.binary_search_by(|column| (*column.name).cmp(name)).unwrap_or_else(|index| {
            self.columns.insert(index, Column::new(name.into(), self.grain));
            index
        })
    }

    /// Takes over what a newer chunk of the same time knows.
    pub(crate) fn renew(&mut self, newer: &Chunk) {
        assert_eq!((self.grain, self.start_s), (newer.grain, newer.start_s), "chunks of the same time");
        for column in &newer.columns {
            let index = self.column_index(&column.name);
            for point in 0..self.grain.points() {
                if let Some(cell) = column.cell(point) {
                    self.columns[index].renew(point, cell);
                }
            }
        }
    }

    /// All points of each series as one, which is a point of the next grain.
    pub(crate) fn folded(&self) -> Vec<(Arc<str>, Cell)> {
        let fold = |column: &Column| {
            let mut sum = Sum::default();
            (0..self.grain.points()).filter_map(|point| column.cell(point)).for_each(|cell| sum.add(&column.name, cell));
            Some((column.name.clone(), sum.cell(&column.name)?))
        };
        self.columns.iter().filter(|column| folds(&column.name)).filter_map(fold).collect()
    }

    /// End of its newest known point, in seconds since 1970.
    pub(crate) fn known_until_s(&self) -> Option<u64> {
        let known = |point: &usize| self.columns.iter().any(|column| column.cell(*point).is_some());
        let point = (0..self.grain.points()).rev().find(known)?;
        Some(self.start_s + (point as u64 + 1) * self.grain.step_s())
    }

    /// The same with only the series that are asked for.
    pub(crate) fn only(&self, series: &[&str]) -> Chunk {
        let columns = self.columns.iter().filter(|column| is_wanted(series, &column.name)).cloned().collect();
        Chunk { grain: self.grain, start_s: self.start_s, columns }
    }

    /// Memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let cell_bytes = if self.grain == Grain::Second { 4 } else { 6 };
        self.columns.iter().map(|column| column.name.len() + 64 + self.grain.points() * cell_bytes).sum::<usize>() + 128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_weigh_by_seconds_totals_add_up_and_percentiles_are_of_a_second() {
        let mut chunk = Chunk::new(Grain::Minute, 0);
        for (name, first, second) in [("reads_s", 10.0, 40.0), ("read_step_007_total", 600.0, 3.0), ("all_p99_us", 5.0, 900.0)] {
            chunk.put(0, name, Cell { value: first, seconds: 60 });
            chunk.put(7, name, Cell { value: second, seconds: 30 });
        }
        let expected: [(Arc<str>, Cell); 2] =
            [("read_step_007_total".into(), Cell { value: 603.0, seconds: 90 }), ("reads_s".into(), Cell { value: 20.0, seconds: 90 })];
        assert_eq!(chunk.folded(), expected, "no percentile of 90 seconds is made of those of each");
        assert_eq!(chunk.known_until_s(), Some(480));
        assert_eq!(chunk.only(&["read_step_*", "reads_s"]).columns.len(), 2);
    }

    #[test]
    fn a_second_is_replaced_and_a_mean_only_by_one_that_tells_as_much() {
        let mut second = Chunk::new(Grain::Second, 0);
        second.put(3, "a", Cell { value: 1.0, seconds: 1 });
        second.put(3, "a", Cell { value: 2.0, seconds: 1 });
        assert_eq!(second.columns[0].cell(3), Some(Cell { value: 2.0, seconds: 1 }));
        let mut minute = Chunk::new(Grain::Minute, 0);
        minute.put(3, "a", Cell { value: 1.0, seconds: 60 });
        minute.put(3, "a", Cell { value: 2.0, seconds: 1 });
        assert_eq!(minute.columns[0].cell(3), Some(Cell { value: 1.0, seconds: 60 }));
        minute.put(3, "a", Cell { value: 3.0, seconds: 60 });
        assert_eq!(minute.columns[0].cell(3), Some(Cell { value: 3.0, seconds: 60 }));
    }

    #[test]
    fn a_newer_chunk_adds_what_it_knows() {
        let mut old = Chunk::new(Grain::Second, 60);
        old.put(0, "a", Cell { value: 1.0, seconds: 1 });
        old.put(1, "a", Cell { value: 1.0, seconds: 1 });
        let mut newer = Chunk::new(Grain::Second, 60);
        newer.put(1, "b", Cell { value: 5.0, seconds: 1 });
        newer.put(1, "a", Cell { value: 4.0, seconds: 1 });
        old.renew(&newer);
        let values = |index: usize| old.columns[index].values[..2].to_vec();
        assert_eq!(values(0), [1.0, 4.0]);
        assert!(values(1)[0].is_nan());
        assert_eq!(values(1)[1], 5.0);
    }
}
