//! The charts of a case: rates over time, response times, curves over queue depth, rates by arm.

use super::arms::ArmSummary;
use super::document::Named;
use super::headlines::principal;
use super::summary::{CaseSummary, Summary, legs_of};
use super::words;
use crate::plot::{Axis, Bar, Bars, Chart, Line, Scale};
use crate::result::Leg;
use std::collections::BTreeMap;

/// Points along a chart of time: more than can be told apart on paper need not be drawn.
const POINTS: usize = 160;

/// All charts of a case. A title ends with the model set that its figures come from.
pub fn of_case(case: &CaseSummary, legs: &[Leg]) -> Vec<Named> {
    let from = case.model_set.as_deref().map_or_else(|| "real device".into(), |set| format!("model set {set}"));
    let named = |kind: &str, picture| Named { name: format!("{}-{kind}", case.id), picture };
    let mut found = Vec::new();
    if let Some(along) = &case.along {
        for (figure, kind, what) in [("rate", "rate", "Rate"), ("mean_us", "response", "Mean response")] {
            let lines = curves(case, figure);
            if !lines.is_empty() {
                let y = if figure == "rate" { words::rate_unit(&case.counted).0 } else { "µs".into() };
                let chart =
                    Chart { title: format!("{what} against {along} ({from})"), x: axis(along, Scale::Log), y: axis(&y, Scale::Log), lines };
                found.push(named(kind, chart.picture()));
            }
        }
        return found;
    }
    let (unit, size) = words::rate_unit(&case.counted);
    let lines: Vec<Line> = case.arms.iter().filter_map(|arm| over_time(case, arm, legs, size)).collect();
    if !lines.is_empty() {
        let chart =
            Chart { title: format!("Rate over time ({from})"), x: axis("seconds", Scale::Linear), y: axis(&unit, Scale::Linear), lines };
        found.push(named("time", chart.picture()));
    }
    let lines: Vec<Line> = case.arms.iter().filter_map(|arm| distribution(case, arm, legs)).collect();
    if !lines.is_empty() {
        let of = case.arms.iter().find_map(|arm| arm.latency_of.clone()).unwrap_or_else(|| "responses".into());
        let chart = Chart {
            title: format!("Response times of {of} ({from})"),
            x: axis("µs", Scale::Log),
            y: axis("% of all at most so long", Scale::Linear),
            lines,
        };
        found.push(named("response", chart.picture()));
    }
    let bars: Vec<Bar> = case.arms.iter().enumerate().filter_map(|(nth, arm)| bar(arm, nth, &case.counted)).collect();
    if bars.len() > 1 {
        found.push(named("rate", Bars { title: format!("Rate, median and range of the rounds ({from})"), label: unit, bars }.picture()));
    }
    found
}

/// Ours by the published figure, for each headline that can be put so, as the summary's table has it. `None` if there is none.
pub fn of_headlines(summary: &Summary) -> Option<Named> {
    let bars: Vec<Bar> = principal(&summary.headlines)
        .iter()
        .filter(|headline| headline.gain.is_some())
        .filter_map(|headline| {
            let of_published = headline.of_published?;
            let found = headline.gain.as_ref()?.found.as_ref()?;
            let scale = of_published / found.mean;
            let (low, high) = found.interval.unwrap_or((found.mean, found.mean));
            let range = (low * scale, high * scale);
            let stroke = usize::from(of_published < 1.0);
            Some(Bar { name: headline.id.clone(), value: of_published, range, text: words::times(of_published), stroke })
        })
        .collect();
    let title = "Our gains by the published ones, with 95 % intervals (1 is as published)".into();
    (!bars.is_empty())
        .then(|| Named { name: "headlines".into(), picture: Bars { title, label: "our gain ÷ published gain".into(), bars }.picture() })
}

fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.into(), scale }
}

/// One line for each curve: medians, with the range of the rounds around them.
fn curves(case: &CaseSummary, figure: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for arm in &case.arms {
        let (Some((curve, at)), Some(spread)) = (&arm.point, arm.figures.get(figure)) else { continue };
        let nth = lines.iter().position(|line| line.name == *curve).unwrap_or_else(|| {
            lines.push(Line { name: curve.clone(), points: Vec::new(), band: Vec::new() });
            lines.len() - 1
        });
        lines[nth].points.push((*at, Some(spread.median)));
        lines[nth].band.push((*at, spread.min, spread.max));
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        line.band.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// The mean of the rounds second by second, with their range. A gap in all rounds stays a gap.
fn over_time(case: &CaseSummary, arm: &ArmSummary, legs: &[Leg], size: f64) -> Option<Line> {
    let own: Vec<&Leg> = legs_of(legs, &case.id, &arm.id).filter(|leg| !leg.series.is_empty()).collect();
    let end = own.iter().filter_map(|leg| leg.series.last()).map(|second| second.at_s).fold(0.0, f64::max);
    if end <= 0.0 {
        return None;
    }
    let step = (end / POINTS as f64).max(1.0);
    // By step: for each leg, the sum and the count of its seconds in it.
    let mut steps: BTreeMap<u64, Vec<(f64, u32)>> = BTreeMap::new();
    for (nth, leg) in own.iter().enumerate() {
        for second in leg.series.iter().filter(|second| second.rate.is_finite()) {
            let at = steps.entry(((second.at_s - 1e-9).max(0.0) / step) as u64).or_insert_with(|| vec![(0.0, 0); own.len()]);
            at[nth] = (at[nth].0 + second.rate / size, at[nth].1 + 1);
        }
    }
    let (mut points, mut band) = (Vec::new(), Vec::new());
    for at in 0..=*steps.keys().last()? {
        let x = (at as f64 + 0.5) * step;
        let rates: Vec<f64> =
            steps.get(&at).into_iter().flatten().filter(|(_, count)| *count > 0).map(|(sum, count)| sum / f64::from(*count)).collect();
        points.push((x, (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)));
        if rates.len() > 1 {
            band.push((x, rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().copied().fold(0.0, f64::max)));
        }
    }
    Some(Line { name: arm.title.clone(), points, band })
}

/// The distribution in the middle round: that of the median mean response.
fn distribution(case: &CaseSummary, arm: &ArmSummary, legs: &[Leg]) -> Option<Line> {
    let mut own: Vec<_> =
        legs_of(legs, &case.id, &arm.id).filter_map(|leg| leg.latency.as_ref()).filter(|latency| !latency.cdf.is_empty()).collect();
    own.sort_by(|one, other| one.mean_us.total_cmp(&other.mean_us));
    let middle = own.get(own.len().checked_sub(1)? / 2)?;
    let points = middle.cdf.iter().map(|(us, share)| (*us, Some(share * 100.0))).collect();
    Some(Line { name: arm.title.clone(), points, band: Vec::new() })
}

fn bar(arm: &ArmSummary, nth: usize, counted: &str) -> Option<Bar> {
    let spread = arm.figures.get("rate")?;
    let (_, size) = words::rate_unit(counted);
    let (value, range) = (spread.median / size, (spread.min / size, spread.max / size));
    Some(Bar { name: arm.title.clone(), value, range, text: words::number(value), stroke: nth })
}
