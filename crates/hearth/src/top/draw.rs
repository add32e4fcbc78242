//! The screen of `hearth top`: a head with totals and pools, the volumes, the latest events, the keys.

use super::figures::{bar, bytes, count, percent, size, time_us};
use super::model::{Link, Model, Screen, Sort, p50_us, p99_us};
use super::{detail, help};
use api::human;
use api::{DiskSample, EventView, Health, PoolSample, Severity, VolumeSample};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use std::time::Instant;
use types::counted;

/// Least width at which words and bars have room.
const WIDE: u16 = 110;
/// Most pools that get a line.
const POOLS: usize = 4;
/// Most disks beside the caches that get a line.
const DISKS: usize = 4;
/// Most events at the bottom, if there is room.
const EVENTS: usize = 4;

/// How things look: colours only where they are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    /// Whether there may be colours (`NO_COLOR` is not set).
    pub colours: bool,
}

impl Looks {
    /// Foreground colour, if there may be any.
    pub fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// The style of a health.
    pub fn health(self, health: Health) -> Style {
        match health {
            Health::Running => self.colour(Color::Green),
            Health::Starting | Health::Removing | Health::Stopped => self.colour(Color::Yellow),
            Health::Failing | Health::Degraded | Health::Failed => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model, looks: Looks, now: Instant) {
    let area = frame.area();
    let height = usize::from(area.height);
    let mut lines = vec![head(model, looks, now, area.width)];
    match model.screen {
        Screen::Help => lines.extend(help::lines(looks)),
        Screen::Detail => lines.extend(detail::lines(model, looks, area.width, height.saturating_sub(2))),
        Screen::List => list(&mut lines, model, looks, area.width, height),
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(keys(model));
    frame.render_widget(Paragraph::new(lines), Rect { height: area.height, ..area });
}

fn list(lines: &mut Vec<Line<'static>>, model: &Model, looks: Looks, width: u16, height: usize) {
    lines.push(totals(model, width));
    lines.extend(pools(model, looks, width));
    lines.extend(disks(model, looks, width));
    lines.push(Line::default());
    lines.push(titles(model, width));
    let events = model.events.len().min(EVENTS).min((height / 8).max(1));
    // One line for the keys, one above the events.
    let room = height.saturating_sub(lines.len() + events + 2);
    let rows = model.rows();
    let place = rows.iter().position(|(name, _)| Some(*name) == model.selected.as_deref()).unwrap_or(0);
    let first = (place + 1).saturating_sub(room).min(rows.len().saturating_sub(room));
    for (name, volume) in rows.iter().skip(first).take(room) {
        let line = row(name, volume, model.sample.pools.get(&volume.pool), looks, width);
        let chosen = Some(*name) == model.selected.as_deref();
        lines.push(if chosen { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line });
    }
    if rows.is_empty() && model.link == Link::Live {
        lines.push("no volumes; create one with `hearth volume add NAME --backing PATH --pool POOL --export block`".into());
    }
    let bottom = height.saturating_sub(events + 1);
    lines.truncate(bottom);
    lines.resize(bottom, Line::default());
    let latest = model.events.iter().skip(model.events.len() - events);
    lines.extend(latest.map(|event| event_line(event, model.sample.unix_ms / 1000, looks)));
}

fn head(model: &Model, looks: Looks, now: Instant, width: u16) -> Line<'static> {
    let sample = &model.sample;
    let left = format!(
        "hearth {}   {}, {}   by {}{}",
        model.version,
        counted(sample.volumes.len() as u64, "volume"),
        counted(sample.pools.len() as u64, "pool"),
        model.sort.word(),
        if model.reversed { ", reversed" } else { "" }
    );
    let (right, style) = match model.link {
        Link::Lost(since) => {
            let told = format!("THE DAEMON IS GONE for {}: reconnecting", human::seconds(now.saturating_duration_since(since).as_secs()));
            (told, looks.colour(Color::Red).add_modifier(Modifier::BOLD))
        }
        _ if model.paused => ("PAUSED: p resumes".to_string(), looks.colour(Color::Yellow).add_modifier(Modifier::BOLD)),
        Link::Waiting => ("waiting for a sample".to_string(), looks.colour(Color::Yellow)),
        Link::Live => ("live".to_string(), looks.colour(Color::Green)),
    };
    // How things stand with the daemon is said whatever else there is no room for.
    let room = usize::from(width).saturating_sub(right.chars().count() + 1);
    let left = cut(&left, room);
    let gap = usize::from(width).saturating_sub(left.chars().count() + right.chars().count());
    Line::from(vec![Span::styled(left, Style::new().add_modifier(Modifier::BOLD)), Span::raw(" ".repeat(gap)), Span::styled(right, style)])
}

fn totals(model: &Model, width: u16) -> Line<'static> {
    let volumes = model.sample.volumes.values();
    let sum = |of: fn(&VolumeSample) -> f64| volumes.clone().map(of).sum::<f64>();
    let reads = sum(|v| if v.hit_ratio.is_some() { v.reads_s } else { 0.0 });
    let hits = sum(|v| v.hit_ratio.unwrap_or(0.0) * v.reads_s);
    let hit_ratio = (reads > 0.0).then(|| hits / reads);
    let destage = format!("  destage {}/s", size(sum(|v| v.destaged_bytes_s)));
    format!(
        "read {}/s {}/s  write {}/s {}/s  hit {}  dirty {}{}",
        count(sum(|v| v.reads_s)),
        size(sum(|v| v.read_bytes_s)),
        count(sum(|v| v.writes_s)),
        size(sum(|v| v.written_bytes_s)),
        percent(hit_ratio),
        total(model.sample.volumes.values().map(|v| v.dirty_bytes)),
        if width >= WIDE { destage.as_str() } else { "" },
    )
    .into()
}

fn pools(model: &Model, looks: Looks, width: u16) -> Vec<Line<'static>> {
    let pools = &model.sample.pools;
    let mut lines: Vec<_> = pools.iter().take(POOLS).map(|(name, pool)| pool_line(name, pool, looks, width)).collect();
    if pools.len() > POOLS {
        lines.push(format!("and {} more", counted((pools.len() - POOLS) as u64, "pool")).into());
    }
    lines
}

fn disks(model: &Model, looks: Looks, width: u16) -> Vec<Line<'static>> {
    let disks = &model.sample.disks;
    let mut lines: Vec<_> = disks.iter().take(DISKS).map(|(name, disk)| disk_line(name, disk, looks, width)).collect();
    if disks.len() > DISKS {
        lines.push(format!("and {} more", counted((disks.len() - DISKS) as u64, "disk")).into());
    }
    lines
}

fn disk_line(name: &str, disk: &DiskSample, looks: Looks, width: u16) -> Line<'static> {
    let tail = disk.latency.get("all").map_or("-".into(), |all| time_us(all.p99_us));
    let text = format!(
        "  {}  read {}/s {}/s  write {}/s {}/s  P99 {tail}",
        size(disk.size_bytes as f64),
        count(disk.reads_s),
        size(disk.read_bytes_s),
        count(disk.writes_s),
        size(disk.written_bytes_s),
    );
    let name = cut(name, if width >= WIDE { 20 } else { 12 });
    Line::from(vec![Span::raw(format!("disk {name} ")), Span::styled(disk.health.word(), looks.health(disk.health)), Span::raw(text)])
}

fn pool_line(name: &str, pool: &PoolSample, looks: Looks, width: u16) -> Line<'static> {
    let part = pool.cached_bytes as f64 / pool.size_bytes.max(1) as f64;
    let mut text = format!(
        "  cached {} of {}  dirty {}  SSD {}/s",
        size(pool.cached_bytes as f64),
        size(pool.size_bytes as f64),
        known(pool.dirty_bytes, size),
        size(pool.ssd_written_bytes_s),
    );
    if width >= WIDE {
        let ram = (pool.ram_used_bytes + pool.index_bytes) as f64;
        let amplification = pool.write_amplification.map_or("-".into(), |value| format!("{value:.2}"));
        let more = format!(
            "  RAM {}  [{}]  written in all {}  amplification {amplification}",
            size(ram),
            bar(part, 12),
            size(pool.ssd_written_bytes as f64)
        );
        text += &more;
    }
    let name = cut(name, if width >= WIDE { 20 } else { 12 });
    Line::from(vec![Span::raw(format!("pool {name} ")), Span::styled(pool.health.word(), looks.health(pool.health)), Span::raw(text)])
}

/// A number of bytes, or a question mark where it is not known.
pub fn known(count: Option<u64>, shown: fn(f64) -> String) -> String {
    count.map_or("?".into(), |count| shown(count as f64))
}

/// The sum of what is known, marked where something is not.
fn total(counts: impl Iterator<Item = Option<u64>>) -> String {
    let counts: Vec<Option<u64>> = counts.collect();
    let more = if counts.contains(&None) { " + ?" } else { "" };
    size(counts.iter().flatten().sum::<u64>() as f64) + more
}

/// Widths of the columns: name, state, mode, bar of what is dirty, and the others.
struct Widths {
    name: usize,
    mode: usize,
    bar: usize,
    number: usize,
}

fn widths(width: u16) -> Widths {
    if width >= WIDE {
        // Everything beyond the least goes to the names.
        Widths { name: usize::from(width - WIDE) / 2 + 16, mode: 13, bar: 8, number: 6 }
    } else {
        Widths { name: 12 + usize::from(width.saturating_sub(80)), mode: 4, bar: 3, number: 5 }
    }
}

fn titles(model: &Model, width: u16) -> Line<'static> {
    let w = widths(width);
    let marked = |title: &str, sort: Sort| if model.sort == sort { format!("{title}*") } else { title.to_string() };
    let number = |title: &str, sort: Option<Sort>| {
        let title = sort.map_or(title.to_string(), |sort| marked(title, sort));
        format!("{title:>0$}", w.number)
    };
    let cells = [
        format!("{:<1$}", marked("VOLUME", Sort::Name), w.name),
        format!("{:<8}", "STATE"),
        format!("{:<1$}", "MODE", w.mode),
        number("R/S", Some(Sort::Requests)),
        number("W/S", None),
        number("HIT", Some(Sort::Hits)),
        number("P50", None),
        number("P99", Some(Sort::Tail)),
        format!("{} {}", number("DIRTY", None), format_args!("{:<1$}", if model.sort == Sort::Dirty { "*" } else { "" }, w.bar)),
        format!("{:>1$}", marked("DEST", Sort::Destage), w.number),
        number(if width >= WIDE { "CACHED" } else { "CACH" }, None) + if model.sort == Sort::Cached { "*" } else { "" },
    ];
    Line::styled(cells.join(" "), Style::new().add_modifier(Modifier::BOLD))
}

fn row(name: &str, volume: &VolumeSample, pool: Option<&PoolSample>, looks: Looks, width: u16) -> Line<'static> {
    let w = widths(width);
    let number = |text: String| format!("{text:>0$}", w.number);
    let mode = if width >= WIDE { volume.mode.name() } else { short_mode(volume.mode) };
    let dirty_part = pool.map_or(0.0, |pool| volume.dirty_bytes.unwrap_or(0) as f64 / pool.size_bytes.max(1) as f64);
    let time = |value: Option<f64>| number(value.map_or("-".into(), time_us));
    let figures = [
        format!("{mode:<0$}", w.mode),
        number(count(volume.reads_s)),
        number(count(volume.writes_s)),
        number(percent(volume.hit_ratio)),
        time(p50_us(volume)),
        time(p99_us(volume)),
        number(known(volume.dirty_bytes, bytes)) + " " + &bar(dirty_part, w.bar),
        number(bytes(volume.destaged_bytes_s)),
        number(bytes(volume.cached_bytes as f64)),
    ];
    Line::from(vec![
        Span::raw(format!("{:<1$} ", cut(name, w.name), w.name)),
        Span::styled(format!("{:<8}", volume.health.word()), looks.health(volume.health)),
        Span::raw(format!(" {}", figures.join(" "))),
    ])
}

/// Two letters where there is no room for the word.
fn short_mode(mode: types::Mode) -> &'static str {
    match mode {
        types::Mode::WriteThrough => "wt",
        types::Mode::WriteAround => "wa",
        types::Mode::WriteBack => "wb",
        types::Mode::PassThrough => "pass",
    }
}

/// A name in so many columns.
pub fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width { name.into() } else { name.chars().take(width.saturating_sub(1)).chain(['…']).collect() }
}

fn event_line(event: &EventView, now_unix_s: u64, looks: Looks) -> Line<'static> {
    let style = match event.severity {
        Severity::Info => Style::new(),
        Severity::Warning => looks.colour(Color::Yellow),
        Severity::Error => looks.colour(Color::Red),
    };
    let ago = human::seconds(now_unix_s.saturating_sub(event.unix_s));
    Line::styled(format!("{ago} ago  {}: {}", event.object, event.message), style)
}

fn keys(model: &Model) -> Line<'static> {
    let text = match model.screen {
        Screen::List => "q quit   ↑↓ select   enter detail   s sort   r reverse   p pause   ? help",
        Screen::Detail => "q back   ↑↓ other volume   p pause   ? help",
        Screen::Help => "q back",
    };
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}
