//! Questions: which grain answers, and how chunks become the points that were asked for.

use crate::chunk::{Chunk, Sum, folds, is_wanted};
use crate::grain::{Grain, UNIX_S_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Series of one object over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Seconds between points: 1, 60, 3600, or a multiple of them.
    pub step_s: u64,
    /// Time of the first point, in seconds since 1970: a multiple of `step_s`, at or before what was asked for. A point tells of the whole step that begins there.
    pub from_unix_s: u64,
    /// By name, one value for each point; None where nothing is known. Of what was asked for by its beginning, those that are known anywhere.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

/// How a question is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) grain: Grain,
    pub(crate) step_s: u64,
    pub(crate) from_s: u64,
    pub(crate) points: usize,
}

impl Plan {
    /// The finest grain that is whole from `from_s` on, with the smallest step that needs no more than `points_max` points; where that step is as long as a
    /// coarser grain, the coarser one, which costs less. `lost_before_s` tells up to when chunks of a grain gave way to the limit of size.
    pub(crate) fn new(from_s: u64, to_s: u64, points_max: usize, latest_s: u64, lost_before_s: impl Fn(Grain) -> u64) -> Plan {
        let (from_s, to_s) = (from_s.min(UNIX_S_MAX), to_s.clamp(1, UNIX_S_MAX + 1));
        let span_s = to_s.saturating_sub(from_s).max(1);
        let points_max = points_max.max(1) as u64;
        let step_min_s = span_s.div_ceil(points_max);
        let whole = |grain: &Grain| from_s.saturating_add(grain.keep_s()) >= latest_s && from_s >= lost_before_s(*grain);
        let finest = Grain::ALL.into_iter().find(whole).unwrap_or(Grain::Hour);
        let cheapest = Grain::ALL.into_iter().rev().find(|grain| grain.step_s() <= step_min_s).unwrap_or(Grain::Second);
        let grain = finest.max(cheapest);
        let mut step_s = step_min_s.next_multiple_of(grain.step_s());
        // Where the span does not begin at a multiple of the step there is one point more; a span over one boundary needs a step without it.
        let points = |step_s: u64| to_s.div_ceil(step_s) - from_s / step_s;
        if points(step_s) > points_max && points_max > 1 {
            step_s = span_s.div_ceil(points_max - 1).next_multiple_of(grain.step_s());
        }
        while points(step_s) > points_max {
            step_s *= 2;
        }
        Plan { grain, step_s, from_s: from_s - from_s % step_s, points: points(step_s) as usize }
    }

    /// End of the last point.
    pub(crate) fn end_s(&self) -> u64 {
        self.from_s + self.points as u64 * self.step_s
    }
}

/// The points of an answer as they add up.
pub(crate) struct Points<'a> {
    plan: Plan,
    wanted: &'a [&'a str],
    sums: BTreeMap<Arc<str>, Vec<Sum>>,
}

impl<'a> Points<'a> {
    pub(crate) fn new(plan: Plan, wanted: &'a [&'a str]) -> Points<'a> {
        let named = wanted.iter().filter(|name| !name.ends_with('*'));
        let sums = named.map(|name| (Arc::from(*name), vec![Sum::default(); plan.points])).collect();
        Points { plan, wanted, sums }
    }

    /// Adds what a chunk knows of the span. Each time may be added once only.
    pub(crate) fn add(&mut self, chunk: &Chunk) {
        for column in chunk.columns.iter().filter(|column| is_wanted(self.wanted, &column.name)) {
            if self.plan.step_s > 1 && !folds(&column.name) {
                continue;
            }
            let sums = self.sums.entry(column.name.clone()).or_insert_with(|| vec![Sum::default(); self.plan.points]);
            for point in 0..chunk.grain.points() {
                let unix_s = chunk.start_s + point as u64 * chunk.grain.step_s();
                let index = unix_s.checked_sub(self.plan.from_s).map(|after_s| (after_s / self.plan.step_s) as usize);
                if let (Some(sum), Some(cell)) = (index.and_then(|index| sums.get_mut(index)), column.cell(point)) {
                    sum.add(&column.name, cell);
                }
            }
        }
    }

    pub(crate) fn answer(self) -> Answer {
        let values = |(name, sums): (Arc<str>, Vec<Sum>)| (name.to_string(), sums.iter().map(|sum| sum.value(&name)).collect());
        Answer { step_s: self.plan.step_s, from_unix_s: self.plan.from_s, series: self.sums.into_iter().map(values).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn check(from_s: u64, to_s: u64, points_max: usize, expected: (Grain, u64)) {
        let plan = Plan::new(from_s, to_s, points_max, NOW, |_| 0);
        assert_eq!((plan.grain, plan.step_s), expected, "{from_s} to {to_s}");
        assert!(plan.points <= points_max && plan.from_s <= from_s && plan.end_s() >= to_s, "{plan:?}");
        assert_eq!(plan.from_s % plan.step_s, 0);
    }

    #[test]
    fn the_finest_grain_that_is_whole_and_few_enough_points() {
        check(NOW - 3600, NOW, 3600, (Grain::Second, 1));
        check(NOW - 3600, NOW, 1000, (Grain::Second, 4));
        check(NOW - 3600, NOW, 61, (Grain::Minute, 60));
        check(NOW - 3600, NOW, 20, (Grain::Minute, 240));
        check(NOW - 86400, NOW, 5000, (Grain::Minute, 60));
        check(NOW - 86400, NOW, 500, (Grain::Minute, 180));
        check(NOW - 30 * 86400, NOW, 5000, (Grain::Hour, 3600));
        check(NOW - 300 * 86400, NOW, 700, (Grain::Hour, 11 * 3600));
        check(NOW - 900 * 86400, NOW - 890 * 86400, 700, (Grain::Hour, 3600));
        check(NOW, NOW + 10, 100, (Grain::Second, 1));
    }

    #[test]
    fn what_gave_way_is_answered_by_the_next_grain() {
        let lost = |grain: Grain| if grain == Grain::Second { NOW - 600 } else { 0 };
        assert_eq!(Plan::new(NOW - 600, NOW, 5000, NOW, lost).grain, Grain::Second);
        assert_eq!(Plan::new(NOW - 601, NOW, 5000, NOW, lost).grain, Grain::Minute);
    }

    #[test]
    fn no_question_is_too_strange() {
        let times = [0, 1, 59, 3600, NOW - 1, NOW, NOW + 1, UNIX_S_MAX - 1, UNIX_S_MAX, UNIX_S_MAX + 1, u64::MAX - 1, u64::MAX];
        for from_s in times {
            for to_s in times.into_iter().filter(|to_s| *to_s > from_s) {
                for points_max in [1, 2, 3, 10, 5000] {
                    for latest_s in [0, NOW, UNIX_S_MAX] {
                        let plan = Plan::new(from_s, to_s, points_max, latest_s, |_| 0);
                        assert!((1..=points_max).contains(&plan.points), "{from_s} {to_s} {points_max}: {plan:?}");
                        assert_eq!((plan.step_s % plan.grain.step_s(), plan.from_s % plan.step_s), (0, 0));
                    }
                }
            }
        }
    }
}
