//! Numbers for people: sizes, times, rates.

/// A size with a binary unit: "512 B", "4 KiB", "1.5 GiB". Three significant digits; exact where it divides.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scale = 1u64;
    // The last unit is 2^60: shifting once more would overflow.
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale <<= 10;
        unit += 1;
    }
    if bytes.is_multiple_of(scale) {
        return format!("{} {}", bytes / scale, UNITS[unit]);
    }
    let value = bytes as f64 / scale as f64;
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A duration: "850 ns", "12.3 µs", "4.56 ms", "1.20 s", "3 min 5 s", "2 h 3 min".
pub fn nanoseconds(ns: u64) -> String {
    let three = |value: f64| {
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        format!("{value:.digits$}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three(ns as f64 / 1e6)),
        1_000_000_000..60_000_000_000 => format!("{} s", three(ns as f64 / 1e9)),
        _ => seconds(ns / 1_000_000_000),
    }
}

/// Whole seconds: "5 s", "3 min 5 s", "2 h 3 min".
pub fn seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A moment: "2026-11-22 19:47:03 UTC" (civil from days: Hinnant 2013).
pub fn moment(unix_s: u64) -> String {
    let days = (unix_s / 86_400) as i64 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let of_day = unix_s % 86_400;
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", of_day / 3600, of_day % 3600 / 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (value, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (4096, "4 KiB"),
            (1536, "1.50 KiB"),
            (1 << 30, "1 GiB"),
            ((10 << 30) + 1, "10.0 GiB"),
            (999 * 1024 + 1, "999 KiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn times() {
        for (value, text) in [
            (0, "0 ns"),
            (850, "850 ns"),
            (12_340, "12.3 µs"),
            (4_560_000, "4.56 ms"),
            (1_200_000_000, "1.20 s"),
            (185_000_000_000, "3 min 5 s"),
            (7_380_000_000_000, "2 h 3 min"),
        ] {
            assert_eq!(nanoseconds(value), text);
        }
    }
}
