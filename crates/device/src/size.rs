//! Sizes as people write them, and as hearth prints them: 512, 4KiB, 11.8 GiB, 1T, 1.5GB.
//!
//! A unit is a power of 1024, with or without the `iB`. Only KB, MB, GB and so on are powers of 1000, as disks are sold.

/// Sizes must be below this: offsets in system calls are signed.
const SIZE_BYTES_END: u64 = 1 << 63;

/// Digits behind the point that are read: enough for one byte of the largest unit.
const FRACTION_DIGITS: usize = 18;

const UNITS: [(&str, u32); 7] = [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50), ("E", 60)];

/// Why a text is not a size.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// Nothing was given.
    #[error("the size is empty: give a number with a unit, such as 4KiB or 10GiB")]
    Empty,
    /// It begins with a minus sign.
    #[error("the size {text:?} is negative: give a number of bytes above zero, such as 10GiB")]
    Negative {
        /// What was given.
        text: String,
    },
    /// It is not a number with a unit.
    #[error("the size {text:?} is not a number with an optional unit: write it like 512, 4KiB, 11.8GiB or 1T")]
    NotANumber {
        /// What was given.
        text: String,
    },
    /// The unit is not one of ours.
    #[error(
        "the size {text:?} has the unit {unit:?}: use B, K, M, G, T, P, E or KiB, MiB, GiB and so on (powers of 1024), or KB, MB, GB and so on (powers of 1000)"
    )]
    UnknownUnit {
        /// What was given.
        text: String,
        /// The part behind the number.
        unit: String,
    },
    /// Zero where something is needed.
    #[error("the size {text:?} is zero: give at least one byte")]
    Zero {
        /// What was given.
        text: String,
    },
    /// 2^63 bytes or more.
    #[error("the size {text:?} is too large: sizes end below 8EiB")]
    TooLarge {
        /// What was given.
        text: String,
    },
}

/// The number of bytes that `text` means; zero is allowed.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let given = || text.to_string();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(SizeError::Empty);
    }
    if trimmed.starts_with('-') {
        return Err(SizeError::Negative { text: given() });
    }
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, rest) = trimmed.split_at(digits_end);
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let unit = unit.trim_start();
    let has_bare_point = rest.starts_with('.') && fraction.is_empty();
    if digits.is_empty() || has_bare_point || unit.starts_with(['.', ',', '+', '-', '_']) {
        return Err(SizeError::NotANumber { text: given() });
    }
    let scale = scale_of(unit).ok_or_else(|| SizeError::UnknownUnit { text: given(), unit: unit.to_string() })?;
    if scale == 1 && !fraction.is_empty() {
        return Err(SizeError::NotANumber { text: given() });
    }
    // Only digits are left, so the number can only fail by being too large.
    let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge { text: given() })?;
    let bytes = number.checked_mul(scale).and_then(|bytes| bytes.checked_add(part_of(scale, fraction)));
    bytes.filter(|bytes| *bytes < SIZE_BYTES_END).ok_or_else(|| SizeError::TooLarge { text: given() })
}

/// The whole bytes that these digits behind a point are of a unit.
fn part_of(scale: u64, fraction: &str) -> u64 {
    let digits = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let value: u128 = digits.parse().unwrap_or(0);
    (u128::from(scale) * value / 10u128.pow(digits.len() as u32)) as u64
}

/// As [`parse`], for sizes of which zero makes no sense.
pub fn parse_nonzero(text: &str) -> Result<u64, SizeError> {
    match parse(text)? {
        0 => Err(SizeError::Zero { text: text.to_string() }),
        bytes => Ok(bytes),
    }
}

/// The bytes of a unit.
fn scale_of(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    let letters: Vec<char> = unit.chars().collect();
    let (letter, base) = match letters[..] {
        [] | ['B'] => return Some(1),
        [letter] | [letter, 'I', 'B'] => (letter, 1024u64),
        [letter, 'B'] => (letter, 1000),
        _ => return None,
    };
    let power = UNITS.iter().position(|(name, _)| name.starts_with(letter))?;
    base.checked_pow(power as u32)
}

/// The size exactly, in the largest unit that divides it: `10GiB`, `1536KiB`, `513B`. [`parse`] gives it back.
pub fn format_exact(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((letter, shift)) if *shift > 0 => format!("{}{letter}iB", bytes >> shift),
        _ => format!("{bytes}B"),
    }
}

/// The size for reading, rounded to three digits or so: `1.5 GiB`, `873 MiB`, `12 B`.
pub fn format_rounded(bytes: u64) -> String {
    let (letter, shift) = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0).unwrap_or(&UNITS[0]);
    if *shift == 0 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / (1u64 << shift) as f64;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let number = format!("{value:.decimals$}");
    let number = if decimals > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {letter}iB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, bytes: u64) {
        assert_eq!(parse(text), Ok(bytes), "{text:?}");
    }

    #[test]
    fn what_people_write() {
        check("512", 512);
        check("512B", 512);
        check("4KiB", 4096);
        check("4k", 4096);
        check("64 KiB", 64 << 10);
        check(" 10GiB ", 10 << 30);
        check("1T", 1 << 40);
        check("1tib", 1 << 40);
        check("7E", 7 << 60);
        check("0", 0);
        check("0G", 0);
        check("9223372036854775807", (1 << 63) - 1);
    }

    #[test]
    fn a_point_is_read_and_units_of_disks_too() {
        check("11.8GiB", 12_670_153_523);
        check("11.8 GiB", 12_670_153_523);
        check("1.5G", 3 << 29);
        check("0.5k", 512);
        check("1.5GB", 1_500_000_000);
        check("4KB", 4000);
        check("4kb", 4000);
        check("2TB", 2_000_000_000_000);
        check("7.999999999999999999999999E", (8 << 60) - 2);
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for bytes in [0, 1023, 1536, 12_670_153_523, 10 << 30, 873 << 20, 7 << 60] {
            let printed = format_rounded(bytes);
            let read = parse(&printed).expect("it is a size");
            assert!(read.abs_diff(bytes) <= bytes / 128, "{bytes}: {printed} is {read}");
        }
    }

    #[test]
    fn what_is_refused() {
        let kind = |text: &str| parse_nonzero(text).expect_err(text);
        assert_eq!(kind("  "), SizeError::Empty);
        assert!(matches!(kind("-1"), SizeError::Negative { .. }));
        assert!(matches!(kind("0"), SizeError::Zero { .. }));
        assert!(matches!(kind("0KiB"), SizeError::Zero { .. }));
        for text in ["1.G", "1.5", "1.5B", "1.5.5G", ".5G", "GiB", "ten", "0x10", "1e9", "+5", "1_000", "1,5G", "٣"] {
            let error = kind(text);
            assert!(matches!(error, SizeError::NotANumber { .. } | SizeError::UnknownUnit { .. }), "{text}: {error}");
        }
        for text in ["4iB", "4BB", "4KiBs", "4Q", "4QB", "4 5"] {
            assert!(matches!(kind(text), SizeError::UnknownUnit { .. }), "{text}");
        }
        for text in ["9223372036854775808", "8E", "8EiB", "99999999999999999999", "16777216T", "18446744073709551615"] {
            assert!(matches!(kind(text), SizeError::TooLarge { .. }), "{text}");
        }
    }

    #[test]
    fn exact_formatting_is_read_back() {
        let sizes = [0, 1, 511, 512, 4096, 4097, 1536 << 10, (10 << 30) - 512, 10 << 30, 1 << 40, 7 << 60, (1 << 63) - 1];
        for bytes in sizes {
            check(&format_exact(bytes), bytes);
        }
        assert_eq!(format_exact(10 << 30), "10GiB");
        assert_eq!(format_exact(1536 << 10), "1536KiB");
    }

    #[test]
    fn rounded_formatting() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            ((1 << 30) + (1 << 28), "1.25 GiB"),
            (873 << 20, "873 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_rounded(bytes), text);
        }
    }
}
