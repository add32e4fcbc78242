//! What a load reported, in the words of [`result`](crate::result).

use crate::result::{Latency, Second};

/// Points of a distribution that are kept: as many as a chart can show.
const POINTS_MAX: usize = 200;
/// By which response times are told.
const PERCENTS: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];

/// A run of a load.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Driven {
    /// Second by second from the begin of the load on, warm-up included.
    pub series: Vec<Second>,
    /// Where the measured part begins in the series, in seconds.
    pub cut_s: f64,
    /// What is counted, a second, in the measured part.
    pub rate: f64,
    /// Mean response in the measured part, in microseconds.
    pub mean_us: Option<f64>,
    /// Response times in the measured part, where the load tells them.
    pub latency: Option<Latency>,
    /// The same of the transactions that only read, where they are told apart.
    pub reads: Option<Latency>,
    /// What is counted: `new orders`, `queries`, `transactions`.
    pub counted: &'static str,
    /// What a reader of the figures should know: errors above all.
    pub notes: Vec<String>,
}

impl Driven {
    /// This measured run behind its warm-up; it began `at_s` seconds after that one.
    #[must_use]
    pub fn following(mut self, warm: Driven, at_s: f64) -> Driven {
        let mut series: Vec<Second> = warm.series.into_iter().filter(|second| second.at_s <= at_s).collect();
        series.extend(self.series.iter().map(|second| Second { at_s: second.at_s + at_s, ..*second }));
        self.series = series;
        self.cut_s = at_s;
        self.notes.splice(0..0, warm.notes.into_iter().map(|note| format!("while warming: {note}")));
        self
    }

    /// Runs that went on at once, as one: rates add up, means are weighted by them, distributions are the callers' (they have the buckets).
    #[must_use]
    pub fn together(runs: Vec<Driven>) -> Driven {
        let mut all = Driven { counted: runs.first().map_or("", |run| run.counted), ..Driven::default() };
        let weighted: f64 = runs.iter().filter_map(|run| run.mean_us.map(|mean| mean * run.rate)).sum();
        all.rate = runs.iter().map(|run| run.rate).sum();
        all.mean_us = (all.rate > 0.0 && runs.iter().all(|run| run.mean_us.is_some())).then(|| weighted / all.rate);
        for run in runs {
            for second in run.series {
                match all.series.iter_mut().find(|other| (other.at_s - second.at_s).abs() < 0.5) {
                    Some(other) => {
                        let (before, added) = (other.mean_us.map(|mean| mean * other.rate), second.mean_us.map(|mean| mean * second.rate));
                        other.rate += second.rate;
                        other.mean_us = before.zip(added).filter(|_| other.rate > 0.0).map(|(a, b)| (a + b) / other.rate);
                    }
                    None => all.series.push(second),
                }
            }
            all.notes.extend(run.notes);
        }
        all.series.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        all
    }
}

/// A distribution from how often each response time (microseconds) was met; `None` if none was.
pub fn distribution(of: &str, mut met: Vec<(f64, u64)>) -> Option<Latency> {
    met.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: u64 = met.iter().map(|(_, count)| count).sum();
    if total == 0 {
        return None;
    }
    let mean_us = met.iter().map(|(us, count)| us * *count as f64).sum::<f64>() / total as f64;
    let mut so_far = 0;
    let mut cdf: Vec<(f64, f64)> = Vec::new();
    for (us, count) in met {
        so_far += count;
        let share = so_far as f64 / total as f64;
        match cdf.last_mut() {
            Some(last) if last.0 >= us => last.1 = share,
            _ => cdf.push((us, share)),
        }
    }
    let at = |share: f64| cdf.iter().find(|point| point.1 >= share - 1e-9).or(cdf.last()).map_or(0.0, |point| point.0);
    let percentiles_us = PERCENTS.iter().map(|percent| (percent.to_string(), at(percent / 100.0))).collect();
    Some(Latency { of: of.into(), mean_us, percentiles_us, cdf: thinned(&cdf) })
}

/// As many points as are kept: steps of equal share, and more of them where the tail is.
fn thinned(cdf: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if cdf.len() <= POINTS_MAX {
        return cdf.to_vec();
    }
    let body = POINTS_MAX - 20;
    let shares = (1..=body).map(|step| step as f64 / body as f64 * 0.99).chain((1..20).map(|step| 0.99 + f64::from(step) * 0.0005));
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(POINTS_MAX);
    for share in shares.chain([1.0]) {
        let point = cdf[cdf.partition_point(|point| point.1 < share - 1e-9).min(cdf.len() - 1)];
        if kept.last() != Some(&point) {
            kept.push(point);
        }
    }
    kept
}

/// The share of responses up to so many microseconds, as far as the distribution tells: 0 to 1; `None` without one.
pub fn share_up_to(latency: &Latency, us: f64) -> Option<f64> {
    if latency.cdf.is_empty() {
        return None;
    }
    Some(latency.cdf.iter().take_while(|point| point.0 <= us).last().map_or(0.0, |point| point.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_s: f64, rate: f64, mean_us: f64) -> Second {
        Second { at_s, rate, mean_us: Some(mean_us), hit_ratio: None }
    }

    #[test]
    fn a_distribution_has_the_percentiles_of_its_samples() {
        let latency = distribution("x", (1..=10_000).rev().map(|us| (f64::from(us), 1)).collect()).expect("there are samples");
        assert_eq!(latency.mean_us, 5000.5);
        assert_eq!(latency.percentiles_us["50"], 5000.0);
        assert_eq!(latency.percentiles_us["99"], 9900.0);
        assert_eq!(latency.percentiles_us["99.9"], 9990.0);
        assert!(latency.cdf.len() <= POINTS_MAX && latency.cdf.last() == Some(&(10_000.0, 1.0)));
        assert!(latency.cdf.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
        let half = share_up_to(&latency, 5000.0).expect("it has points");
        assert!((half - 0.5).abs() < 0.01, "{half}");
        assert_eq!(share_up_to(&latency, 0.5), Some(0.0));
        assert_eq!(distribution("x", vec![(1.0, 0)]), None);
        let twice = distribution("x", vec![(3.0, 1), (1.0, 2), (3.0, 1)]).expect("there are samples");
        assert_eq!(twice.cdf, [(1.0, 0.5), (3.0, 1.0)]);
    }

    #[test]
    fn runs_at_once_add_up() {
        let one = Driven { series: vec![second(1.0, 10.0, 100.0)], rate: 10.0, mean_us: Some(100.0), counted: "q", ..Driven::default() };
        let two =
            Driven { series: vec![second(1.01, 30.0, 200.0), second(2.0, 5.0, 1.0)], rate: 30.0, mean_us: Some(200.0), ..one.clone() };
        let all = Driven::together(vec![one, two]);
        assert_eq!((all.rate, all.mean_us, all.counted), (40.0, Some(175.0), "q"));
        assert_eq!(all.series, [second(1.0, 40.0, 175.0), second(2.0, 5.0, 1.0)]);
    }

    #[test]
    fn what_is_measured_follows_what_was_warmed() {
        let warm = Driven { series: vec![second(1.0, 1.0, 1.0), second(2.0, 2.0, 1.0)], notes: vec!["slow".into()], ..Driven::default() };
        let measured = Driven { series: vec![second(1.0, 9.0, 1.0)], rate: 9.0, ..Driven::default() };
        let all = measured.following(warm, 2.5);
        assert_eq!(all.series.iter().map(|second| second.at_s).collect::<Vec<_>>(), [1.0, 2.0, 3.5]);
        assert_eq!((all.cut_s, all.rate, all.notes), (2.5, 9.0, vec!["while warming: slow".to_owned()]));
    }
}
