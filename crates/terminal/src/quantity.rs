//! Sizes, times and ranges as people write them.

use crate::failure::{Failure, STATUS_USAGE};
use api::options::Limit;

/// Reads a size: 512, 4KiB, 10GiB, 1T.
///
/// # Errors
/// For zero, anything beyond 2^63, and what is no size.
pub fn size(option: &str, text: &str) -> Result<u64, Failure> {
    device::size::parse_nonzero(text).map_err(|error| {
        let problem = match text.trim() {
            text if is_bare_fraction(text) => format!("the size \"{text}\" has no unit: write for instance {text}GiB"),
            _ => error.to_string(),
        };
        Failure { message: format!("{option}: {problem}"), status: STATUS_USAGE }
    })
}

/// Digits, a point and digits: there are no parts of bytes, so a unit is missing.
fn is_bare_fraction(text: &str) -> bool {
    let are_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(whole, part)| are_digits(whole) && are_digits(part))
}

/// Reads a size; 0 is one.
///
/// # Errors
/// As [`size`].
pub fn size_or_none(option: &str, text: &str) -> Result<u64, Failure> {
    if text == "0" { Ok(0) } else { size(option, text) }
}

/// Reads a size or `off`.
///
/// # Errors
/// As [`size`].
pub fn limit(option: &str, text: &str) -> Result<Limit, Failure> {
    if text == "off" {
        return Ok(Limit::Off);
    }
    let or_off = |failure: Failure| Failure { message: format!("{}; or write off for no limit", failure.message), ..failure };
    size(option, text).map(Limit::Bytes).map_err(or_off)
}

/// Reads a time: 500ms, 30s, 5m, 1h, 7d. In milliseconds.
///
/// # Errors
/// For zero and what is no time.
pub fn time_ms(option: &str, text: &str) -> Result<u64, Failure> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(24 * 3_600_000),
        _ => None,
    };
    if unit.is_empty() && !digits.is_empty() {
        let problem = format!("{option} {} has no unit", digits.chars().take(40).collect::<String>());
        return Err(Failure::usage(problem, "write a time such as 500ms, 30s, 5m, 1h or 7d"));
    }
    let time_ms = digits.parse::<u64>().ok().zip(scale).and_then(|(n, scale)| n.checked_mul(scale));
    time_ms.filter(|t| *t > 0).ok_or_else(|| {
        let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
        Failure::usage(format!("{option} \"{shown}\" is not a time above zero"), "write a time such as 500ms, 30s, 5m, 1h or 7d")
    })
}

/// Reads a range `A-B` of bytes; either side may be left out. B is exclusive.
///
/// # Errors
/// For what is no range, or an empty one.
pub fn range(option: &str, text: &str) -> Result<(u64, Option<u64>), Failure> {
    let wrong = |problem: &str| Failure::usage(format!("{option} {problem}"), "write A-B with A below B, for instance 0-10GiB");
    let (from, to) = text.split_once('-').ok_or_else(|| wrong("is not a range"))?;
    let start = if from.is_empty() || from.trim_matches('0').is_empty() { 0 } else { size(option, from)? };
    let end = if to.is_empty() { None } else { Some(size(option, to)?) };
    if end.is_some_and(|end| end <= start) {
        return Err(wrong("is empty"));
    }
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_usage() {
        assert_eq!(size("--size", "10GiB").expect("a size"), 10 << 30);
        for text in ["", "0", "-1", "x", "8E", "1\n2"] {
            let failure = size("--size", text).expect_err(text);
            assert_eq!(failure.status, 2, "{text}");
            assert!(failure.message.starts_with("--size: ") && !failure.message.contains('\n'), "{failure:?}");
        }
    }

    #[test]
    fn a_fraction_without_a_unit_is_told_with_one() {
        let told = |text: &str| size("--size", text).expect_err(text).message;
        assert_eq!(told("1.5"), "--size: the size \"1.5\" has no unit: write for instance 1.5GiB");
        for text in ["1.", ".5", "1.5.5", "1.5Q"] {
            assert!(!told(text).contains("has no unit"), "{text}");
        }
        assert_eq!(size("--size", "1.5GiB").expect("a size"), 3 << 29);
    }

    #[test]
    fn nothing_is_a_size_where_it_makes_sense() {
        assert_eq!(size_or_none("--ram", "0").expect("none"), 0);
        assert_eq!(size_or_none("--ram", "8MiB").expect("a size"), 8 << 20);
        assert!(size_or_none("--ram", "-1").is_err());
    }

    #[test]
    fn times_and_ranges() {
        assert_eq!(time_ms("--t", "30s").expect("a time"), 30_000);
        assert_eq!(time_ms("--t", "1h").expect("a time"), 3_600_000);
        assert_eq!(time_ms("--t", "7d").expect("a time"), 7 * 24 * 3_600_000);
        assert!(time_ms("--t", "30").expect_err("no unit").message.starts_with("--t 30 has no unit; write a time"));
        for text in ["", "0s", "30", "s", "-1s", "18446744073709551615h", "1.5s"] {
            assert!(time_ms("--t", text).is_err(), "{text}");
        }
        assert_eq!(range("--range", "0-10GiB").expect("a range"), (0, Some(10 << 30)));
        assert_eq!(range("--range", "4k-").expect("a range"), (4096, None));
        assert_eq!(range("--range", "-4k").expect("a range"), (0, Some(4096)));
        for text in ["", "5", "2-1", "4k-4k", "a-b", "0-0"] {
            assert!(range("--range", text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_can_be_off() {
        assert_eq!(limit("--l", "off").expect("off"), Limit::Off);
        assert_eq!(limit("--l", "1M").expect("a size"), Limit::Bytes(1 << 20));
        for text in ["0", "none", "OFF!"] {
            let told = limit("--l", text).expect_err(text).message;
            assert!(told.ends_with("; or write off for no limit"), "{told}");
        }
    }
}
