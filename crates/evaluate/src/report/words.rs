//! Numbers as people read them: three digits that count, the unit beside, the same everywhere in a report.

use crate::pairs::{Beside, Verdict};

/// Three digits that count, thousands set apart: `0.0123`, `1.58`, `15.8`, `158`, `12,345`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => (2.0 - size.log10().floor()).min(6.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(whole, part)| (whole, Some(part)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (nth, digit) in whole.chars().enumerate() {
        if nth > 0 && (whole.len() - nth).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    part.map_or(format!("{sign}{grouped}"), |part| format!("{sign}{grouped}.{part}"))
}

/// `8.02 ×`.
pub fn times(value: f64) -> String {
    format!("{} ×", number(value))
}

/// `95.2 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let digits = usize::from(value.fract().abs() > 1e-6 && value.abs() < 99.95);
    format!("{value:.digits$} %")
}

/// `250 ms`, `41 s`, `25 min`, `12 h`.
pub fn seconds(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{} ms", number(v * 1e3)),
        v if v < 120.0 => format!("{} s", trimmed(v)),
        v if v < 7200.0 => format!("{} min", trimmed(v / 60.0)),
        v => format!("{} h", trimmed(v / 3600.0)),
    }
}

/// `87 µs`, `1.5 ms`, `2.3 s`.
pub fn microseconds(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{} µs", trimmed(v)),
        v if v < 1e6 => format!("{} ms", trimmed(v / 1e3)),
        v => format!("{} s", trimmed(v / 1e6)),
    }
}

/// `2.4 GiB`.
pub fn bytes(value: f64) -> String {
    let (mut value, mut unit) = (value, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{} {unit}", trimmed(value))
}

/// A [`number`] without the zeros at its end.
fn trimmed(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A rate of what a case counts: bytes in MB, as the published reports have them.
pub fn rate(value: f64, counted: &str) -> String {
    match counted {
        "bytes" => format!("{} MB/s", number(value / 1e6)),
        "I/Os" => format!("{} IOPS", number(value)),
        "queries" => format!("{} q/s", number(value)),
        "transactions" => format!("{} tx/s", number(value)),
        other => format!("{} {other}/s", number(value)),
    }
}

/// The unit of [`rate`], for a column or an axis, and what a value is divided by for it.
pub fn rate_unit(counted: &str) -> (String, f64) {
    if counted == "bytes" { ("MB/s".into(), 1e6) } else { (format!("{counted} a second"), 1.0) }
}

/// What one operation is where CPU time is told: a MiB where bytes are counted. With how many of what is counted it has.
pub fn operation(counted: &str) -> (String, f64) {
    match counted {
        "bytes" => ("MiB".into(), 1024.0 * 1024.0),
        "queries" => ("query".into(), 1.0),
        many => (many.strip_suffix('s').unwrap_or(many).into(), 1.0),
    }
}

/// A named figure of a leg with its unit, which its name tells.
pub fn figure(name: &str, value: f64, counted: &str) -> String {
    match name {
        "rate" => rate(value, counted),
        "tpmc" => format!("{} tpmC", number(value)),
        _ if name.ends_with("_us") => microseconds(value),
        _ if name.ends_with("_s") => seconds(value),
        _ if is_share(name) => percent(value),
        _ => number(value),
    }
}

/// Whether a figure of that name is a share of something.
fn is_share(name: &str) -> bool {
    name.ends_with("_ratio")
        || name.ends_with("_share")
        || name.starts_with("share_")
        || name.starts_with("under_")
        || name.ends_with("_under_1ms")
        || name.ends_with("kept_off")
}

/// A figure's name for people.
pub fn figure_name(name: &str) -> String {
    match name {
        "rate" => "rate".into(),
        "mean_us" => "mean response".into(),
        "hit_ratio" => "reads from the cache".into(),
        "double_s" => "time until the rate has doubled".into(),
        "settled_s" => "time until 90 % of the final rate".into(),
        "under_1ms" => "reads under 1 ms".into(),
        "transactions_under_1ms" => "reading transactions under 1 ms".into(),
        "tpmc" => "transactions a minute".into(),
        other => other.trim_end_matches("_us").trim_end_matches("_s").replace('_', " "),
    }
}

/// A 95 % interval: `1.91–2.15`.
pub fn interval(bounds: (f64, f64)) -> String {
    format!("{}–{}", number(bounds.0), number(bounds.1))
}

/// What may be said of a gain.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoSignificantDifference => "no significant difference",
        Verdict::OnePairOnly => "one pair only: how much runs differ by themselves is not known",
    }
}

/// How a figure stands beside a published one.
pub fn beside(beside: Beside) -> &'static str {
    match beside {
        Beside::Beaten => "beaten",
        Beside::BeatenWithinNoise => "above, but the interval reaches below: more pairs would tell",
        Beside::MissedWithinNoise => "below, but the interval reaches it: more pairs would tell",
        Beside::Missed => "not reached",
    }
}

/// Where a case's backing device comes from: said at every figure that comes from a model.
pub fn backing(case_model: Option<&str>) -> String {
    case_model.map_or("real device".into(), |set| format!("model set {set}"))
}

/// A moment for people: `2026-11-22 19:47 UTC`.
pub fn moment(unix_s: u64) -> String {
    let whole = api::human::moment(unix_s);
    // Nobody asks for the second of a report.
    whole.rsplit_once(':').map_or(whole.clone(), |(minutes, _)| format!("{minutes} UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.584, "1.58"),
            (15.84, "15.8"),
            (158.4, "158"),
            (12_345.6, "12,346"),
            (-1_234_567.0, "-1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
        for (value, text) in [(0.25, "250 ms"), (41.0, "41 s"), (1500.0, "25 min"), (43_200.0, "12 h")] {
            assert_eq!(seconds(value), text);
        }
        for (value, text) in [(87.0, "87 µs"), (1500.0, "1.5 ms"), (2.3e6, "2.3 s")] {
            assert_eq!(microseconds(value), text);
        }
        for (value, text) in [(0.95, "95 %"), (0.9523, "95.2 %"), (1.0, "100 %"), (0.9999, "100 %")] {
            assert_eq!(percent(value), text);
        }
        assert_eq!(bytes(2.5 * 1024.0 * 1024.0 * 1024.0), "2.5 GiB");
        assert_eq!(rate(97.7e6, "bytes"), "97.7 MB/s");
        assert_eq!(figure("under_1ms", 0.9, "x"), "90 %");
        assert_eq!(figure("double_s", 90.0, "x"), "90 s");
        assert_eq!(operation("queries").0, "query");
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (unix_s, text) in [(0, "1970-01-01 00:00 UTC"), (951_782_400, "2000-02-29 00:00 UTC"), (1_795_376_820, "2026-11-22 19:47 UTC")]
        {
            assert_eq!(moment(unix_s), text);
        }
    }
}
