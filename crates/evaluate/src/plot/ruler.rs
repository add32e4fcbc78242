//! From values to places along one side of a picture, and the round numbers that are written there.

use super::Scale;

/// One side of the picture: from values to places.
pub(super) struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    /// Places of the two ends.
    place: (f64, f64),
}

impl Ruler {
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, place: (f64, f64)) -> Ruler {
        let usable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = values.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        let (from, to) = match scale {
            Scale::Linear => {
                let step = step_for((high - low.min(0.0)).max(f64::MIN_POSITIVE));
                ((low.min(0.0) / step).floor() * step, ((high / step).ceil() * step).max(step))
            }
            Scale::Log => {
                (10f64.powf(low.log10().floor()), 10f64.powf((high.log10() + 1e-9).ceil()).max(10f64.powf(low.log10().floor() + 1.0)))
            }
        };
        Ruler { scale, from, to, place }
    }

    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log if value > 0.0 => (value / self.from).ln() / (self.to / self.from).ln(),
            Scale::Log => return None,
        };
        part.is_finite().then_some(self.place.0 + part * (self.place.1 - self.place.0))
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = step_for(self.to - self.from);
                (0..=((self.to - self.from) / step).round() as u32).map(|nth| self.from + f64::from(nth) * step).collect()
            }
            Scale::Log => {
                let decades = (self.to / self.from).log10().round() as i32;
                let first = self.from.log10().round() as i32;
                (0..=decades).map(|nth| 10f64.powi(first + nth)).collect()
            }
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that cuts a length into four to ten parts.
fn step_for(length: f64) -> f64 {
    let power = 10f64.powf((length / 4.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|times| times * power).find(|step| length / step >= 4.0 - 1e-9).unwrap_or(power)
}

/// A number short enough for an axis: 950, 12k, 3.5M, 0.02.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() >= 100.0 || scaled == 0.0 { 0 } else { (2 - scaled.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_numbers_short() {
        for (length, step) in [(1.0, 0.2), (7.0, 1.0), (10.0, 2.0), (100.0, 20.0), (812.0, 200.0), (0.03, 0.005)] {
            assert!((step_for(length) - step).abs() < 1e-9, "{length}: {}", step_for(length));
        }
        for (value, text) in
            [(0.0, "0"), (0.02, "0.02"), (1.5, "1.5"), (950.0, "950"), (12_000.0, "12k"), (3_500_000.0, "3.5M"), (-20.0, "-20")]
        {
            assert_eq!(short(value), text);
        }
    }
}
