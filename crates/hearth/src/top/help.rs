//! What the keys do and the columns mean.

use super::draw::Looks;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit (in the detail view, q goes back)"),
    ("↑ ↓, k j", "select a volume; also page up and down, home, end"),
    ("enter", "the selected volume: outcomes, bypassed requests, the last minutes"),
    ("s, r", "sort by the next column; reverse the order"),
    ("p", "pause the display"),
];

const COLUMNS: &[(&str, &str)] = &[
    ("R/S, W/S", "read and write requests in the last second"),
    ("HIT", "part of the reads served from the cache"),
    ("P50, P99", "50 % (99 %) of the requests took no longer"),
    ("", "µ: microseconds, m: milliseconds, s: seconds"),
    ("DIRTY", "dirty bytes; the bar compares them to the pool's SSD"),
    ("DEST", "bytes destaged in the last second"),
    ("CACHED", "bytes of the volume on the SSD"),
    ("MODE", "wt write-through, wb write-back, wa write-around, pass pass-through"),
];

/// All of it.
pub fn lines(looks: Looks) -> Vec<Line<'static>> {
    let heading = |text: &'static str| Line::styled(text, Style::new().add_modifier(Modifier::BOLD));
    let pair = |(word, meaning): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("  {word:<11}"), looks.colour(Color::Cyan)), Span::raw(*meaning)])
    };
    let mut lines = vec![Line::default(), heading("Keys")];
    lines.extend(KEYS.iter().map(pair));
    lines.extend([Line::default(), heading("Columns")]);
    lines.extend(COLUMNS.iter().map(pair));
    lines.extend([Line::default(), "All counters: `hearth stats VOLUME`. Why is a range not cached: `hearth why`.".into()]);
    lines
}
