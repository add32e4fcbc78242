//! One volume: latencies by outcome, what bypassed the cache and why, the last minutes.

use super::draw::{Looks, known};
use super::figures::{columns, count, percent, size, time_us};
use super::model::{Model, REMEMBERED, Second};
use api::VolumeSample;
use api::human;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Outcomes in the order of the way of a request.
const OUTCOMES: &[(&str, &str)] = &[
    ("all", "all"),
    ("ram_hit", "RAM hit"),
    ("ssd_hit", "SSD hit"),
    ("miss", "miss"),
    ("bypass", "bypass"),
    ("write_back", "write-back"),
    ("write_through", "write-through"),
];

/// The lines of the selected volume.
pub fn lines(model: &Model, looks: Looks, width: u16, room: usize) -> Vec<Line<'static>> {
    let Some((name, volume)) = model.chosen() else { return vec![Line::default(), "the volume was removed".into()] };
    let mut lines = vec![Line::default(), title(name, volume, looks)];
    lines.extend(volume.problem.iter().map(|problem| Line::styled(problem.clone(), looks.health(volume.health))));
    lines.extend(state(volume));
    lines.push(Line::default());
    lines.extend(outcomes(volume));
    lines.push(bypassed(volume));
    lines.push(Line::default());
    let seconds: Vec<Second> = model.seconds.get(name).map(|seconds| seconds.iter().copied().collect()).unwrap_or_default();
    lines.extend(history(&seconds, looks, width, room.saturating_sub(lines.len())));
    lines
}

fn title(name: &str, volume: &VolumeSample, looks: Looks) -> Line<'static> {
    Line::from(vec![
        Span::styled(name.to_string(), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw("  "),
        Span::styled(volume.health.word(), looks.health(volume.health)),
        Span::raw(format!("  {}, {} in pool {}", volume.mode.name(), human::bytes(volume.size_bytes), volume.pool)),
    ])
}

fn state(volume: &VolumeSample) -> [Line<'static>; 4] {
    let all = volume.latency.get("all").map_or("-".into(), |latency| time_us(latency.mean_us));
    let baseline = volume.baseline_us.map_or("not known yet".into(), time_us);
    let (ios, waiting) = (count(volume.saved.backing_ios as f64), human::seconds(volume.saved.waiting_s.max(0.0) as u64));
    let ram = size(volume.ram_bytes as f64);
    let (cached, dirty, destage) = (size(volume.cached_bytes as f64), known(volume.dirty_bytes, size), size(volume.destaged_bytes_s));
    let (backing, ssd, errors) = (count(volume.backing_ios_s), size(volume.ssd_written_bytes_s), count(volume.errors_s));
    [
        format!("on the SSD {cached}  in RAM {ram}  dirty {dirty}  destage {destage}/s").into(),
        format!("backing device {backing} I/Os/s  SSD written {ssd}/s  errors {errors}/s").into(),
        format!("mean latency {all}, without the cache {baseline}").into(),
        format!("saved so far: {ios} disk I/Os, {}, {waiting} of waiting", size(volume.saved.backing_bytes as f64)).into(),
    ]
}

fn outcomes(volume: &VolumeSample) -> Vec<Line<'static>> {
    let head = format!("{:<14} {:>6} {:>6} {:>6} {:>6}", "OUTCOME", "/S", "MEAN", "P50", "P99");
    let mut lines = vec![Line::styled(head, Style::new().add_modifier(Modifier::BOLD))];
    for (key, word) in OUTCOMES {
        let Some(latency) = volume.latency.get(*key) else { continue };
        let rate = if *key == "all" { volume.reads_s + volume.writes_s } else { volume.outcomes_s.get(*key).copied().unwrap_or(0.0) };
        let (mean, p50, p99) = (time_us(latency.mean_us), time_us(latency.p50_us), time_us(latency.p99_us));
        lines.push(format!("{word:<14} {:>6} {mean:>6} {p50:>6} {p99:>6}", count(rate)).into());
    }
    if lines.len() == 1 {
        lines.push("no requests in this second".into());
    }
    lines
}

fn bypassed(volume: &VolumeSample) -> Line<'static> {
    let reasons: Vec<String> = volume
        .bypassed_s
        .iter()
        .filter(|(_, rate)| **rate > 0.0)
        .map(|(reason, rate)| format!("{} {}/s", reason.replace('_', " "), count(*rate)))
        .collect();
    format!("bypassed: {}", if reasons.is_empty() { "none".to_string() } else { reasons.join(", ") }).into()
}

/// What a line of columns is called, its value in a second, and how that is written.
type Series = (&'static str, fn(&Second) -> Option<f64>, fn(f64) -> String);

/// One line of columns for each series; a second is a column, the newest is at the right.
fn history(seconds: &[Second], looks: Looks, width: u16, room: usize) -> Vec<Line<'static>> {
    let width = usize::from(width).saturating_sub(26).clamp(1, REMEMBERED);
    let series: [Series; 4] = [
        ("IOPS", |s| Some(s.requests_s), count),
        ("hit", |s| s.hit_ratio, |part| percent(Some(part))),
        ("p99", |s| s.p99_us, time_us),
        ("dirty", |s| s.dirty_bytes, size),
    ];
    let line = |(name, of, shown): &Series| {
        let values: Vec<Option<f64>> = seconds.iter().map(of).collect();
        let known = values[values.len().saturating_sub(width)..].iter().flatten();
        // A part of the reads is seen beside all of them.
        let largest = if *name == "hit" { 1.0 } else { known.copied().fold(0.0, f64::max) };
        let top = if *name == "hit" { String::new() } else { format!("to {}", shown(largest)) };
        Line::from(vec![
            Span::raw(format!("{name:<6}{:>7} ", values.last().copied().flatten().map_or("-".into(), shown))),
            Span::styled(columns(&values, largest, width), looks.colour(Color::Cyan)),
            Span::raw(format!(" {top}")),
        ])
    };
    let heading = format!("the last {} s", seconds.len().min(width));
    std::iter::once(Line::styled(heading, Style::new().add_modifier(Modifier::BOLD))).chain(series.iter().map(line)).take(room).collect()
}
