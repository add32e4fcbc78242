//! What the tests of the history share: numbers from a seed, and a plain reference of what an answer should be.
#![allow(dead_code)]

use history::{Answer, History, HistoryOptions};
use std::collections::BTreeMap;
use std::path::Path;

/// Numbers from a seed (splitmix64).
pub struct Seeded(pub u64);

impl Seeded {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}

/// Opens a history that is expected to be whole.
pub fn open(path: &Path) -> History {
    let (history, warning) = History::open(path, HistoryOptions::default()).expect("opens");
    assert_eq!(warning, None);
    history
}

/// Every recorded second, by object and series.
#[derive(Clone, Default)]
pub struct Reference {
    values: BTreeMap<(String, String), BTreeMap<u64, f32>>,
}

impl Reference {
    pub fn record(&mut self, unix_s: u64, object: &str, values: &[(&str, f64)]) {
        for (series, value) in values.iter().filter(|(_, value)| value.is_finite()) {
            self.values.entry((object.into(), series.to_string())).or_default().insert(unix_s, *value as f32);
        }
    }

    pub fn forget(&mut self, object: &str) {
        self.values.retain(|(other, _), _| other != object);
    }

    /// The values from `from_s` to before `to_s`.
    pub fn within(&self, object: &str, series: &str, from_s: u64, to_s: u64) -> Vec<f64> {
        let known = self.values.get(&(object.into(), series.into()));
        known.map_or(Vec::new(), |known| known.range(from_s..to_s).map(|(_, value)| f64::from(*value)).collect())
    }

    /// What a point from `from_s` to before `to_s` should be.
    pub fn point(&self, object: &str, series: &str, from_s: u64, to_s: u64) -> Option<f64> {
        let values = self.within(object, series, from_s, to_s);
        if values.is_empty() {
            return None;
        }
        let sum = values.iter().sum::<f64>();
        match series {
            name if name.ends_with("_total") => Some(sum),
            name if name.ends_with("_p99_us") => (to_s - from_s == 1).then_some(sum),
            _ => Some(sum / values.len() as f64),
        }
    }

    /// Compares every point of an answer; how many were known.
    pub fn check(&self, object: &str, answer: &Answer) -> usize {
        let mut known = 0;
        for (series, values) in &answer.series {
            for (index, value) in values.iter().enumerate() {
                let from_s = answer.from_unix_s + index as u64 * answer.step_s;
                let expected = self.point(object, series, from_s, from_s + answer.step_s);
                let near = match (value, expected) {
                    (Some(value), Some(expected)) => (value - expected).abs() <= expected.abs() * 1e-6 + 1e-6,
                    (None, None) => true,
                    _ => false,
                };
                assert!(near, "{object} {series} at {from_s} (step {}): {value:?}, not {expected:?}", answer.step_s);
                known += usize::from(value.is_some());
            }
        }
        known
    }
}
