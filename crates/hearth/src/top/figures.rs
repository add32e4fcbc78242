//! Numbers in five columns: three digits and a letter.

/// A count or a rate: "0", "999", "12.3k", "4.56M".
pub fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Bytes, in powers of 1024: "0", "512", "4.00K", "1.50G".
pub fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
}

/// Bytes with their whole unit, where there is room: "512B", "1.50GiB".
pub fn size(value: f64) -> String {
    let text = bytes(value);
    if text.ends_with(|c: char| c.is_ascii_digit()) { text + "B" } else { text + "iB" }
}

/// A time given in microseconds: "85µ", "1.20m", "3.00s".
pub fn time_us(value: f64) -> String {
    scaled(value, 1000.0, &["µ", "m", "s", "ks"])
}

/// A part of one: "93 %", "100 %"; "-" for none.
pub fn percent(part: Option<f64>) -> String {
    part.map_or("-".into(), |part| format!("{:.0} %", part.clamp(0.0, 1.0) * 100.0))
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    let mut unit = 0;
    // What rounds up to four digits belongs to the next unit.
    while unit + 1 < units.len() && value >= 999.5 {
        value /= step;
        unit += 1;
    }
    let plain = unit == 0 && units[0].is_empty();
    let digits = if plain || value >= 99.95 || value == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}{}", units[unit])
}

/// A bar of `width` cells, filled by a part of one; more than nothing shows at least a mark.
pub fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (part * width as f64 * 8.0).round() as usize;
    if part > 0.0 {
        eighths = eighths.max(1);
    }
    let mut text: String = std::iter::repeat_n('█', eighths / 8).collect();
    if text.chars().count() < width {
        text.push(EIGHTHS[eighths % 8]);
    }
    let used = text.chars().count();
    text + &" ".repeat(width - used)
}

/// Columns of a history, one for each of the latest `width` values: as high as the value is to the largest. Gaps where nothing is known.
pub fn columns(values: &[Option<f64>], largest: f64, width: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let latest = &values[values.len().saturating_sub(width)..];
    let column = |value: &Option<f64>| match value {
        Some(value) if largest > 0.0 => HEIGHTS[((value / largest).clamp(0.0, 1.0) * 7.0).round() as usize],
        Some(_) => HEIGHTS[0],
        None => ' ',
    };
    " ".repeat(width - latest.len()) + &latest.iter().map(column).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_five_columns() {
        for (value, text) in
            [(0.0, "0"), (0.4, "0"), (999.4, "999"), (999.5, "1.00k"), (12_345.0, "12.3k"), (4_560_000.0, "4.56M"), (f64::NAN, "0")]
        {
            assert_eq!(count(value), text);
        }
        for (value, text) in
            [(0.0, "0"), (512.0, "512"), (4096.0, "4.00K"), (1.5 * (1u64 << 30) as f64, "1.50G"), (1023.0 * 1024.0, "1.00M")]
        {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in
            [(0.0, "0µ"), (8.5, "8.50µ"), (85.0, "85.0µ"), (850.0, "850µ"), (1200.0, "1.20m"), (3e6, "3.00s"), (-1.0, "0µ")]
        {
            assert_eq!(time_us(value), text);
        }
        assert_eq!((size(512.0), size(4096.0)), ("512B".into(), "4.00KiB".into()));
        let mut value = 0.01;
        while value < 1e15 {
            for text in [count(value), bytes(value)] {
                assert!(text.chars().count() <= 5, "{value} is {text}");
            }
            value *= 1.37;
        }
        assert_eq!((percent(None), percent(Some(0.934)), percent(Some(1.0))), ("-".into(), "93 %".into(), "100 %".into()));
    }

    #[test]
    fn bars_are_as_wide_as_asked() {
        assert_eq!((bar(0.0, 3), bar(1.0, 3), bar(0.5, 3)), ("   ".into(), "███".into(), "█▌ ".into()));
        assert_eq!((bar(0.0001, 3), bar(7.0, 2), bar(f64::NAN, 1)), ("▏  ".into(), "██".into(), " ".into()));
        assert_eq!(columns(&[Some(0.0), None, Some(4.0), Some(8.0)], 8.0, 6), "  ▁ ▅█");
        assert_eq!(columns(&[Some(1.0); 5], 0.0, 3), "▁▁▁");
        assert_eq!(columns(&[], 1.0, 2), "  ");
    }
}
