//! Names as MySQL and MariaDB write them in file names: letters and digits of ASCII as they are,
//! other letters of alphabets with two cases as `@` and a code of two letters or digits, the rest as `@` and four
//! hexadecimal digits.
//!
//! Sources: "Mapping of Identifiers to File Names" in MySQL's manual for the kinds of codes; which
//! letter has which code was asked of a MariaDB 10.11 for all of them, as tests do with any.

/// Letters of a code: a digit, or one from here on.
const FIRST_LETTER: u8 = b'g';
const LETTERS: u16 = 20;
/// Codes that begin with a digit, which come before the others.
const WITH_DIGITS: u16 = 200;
/// Small letters with codes in a row: the number of the first code, its letter, how far apart
/// letters are (where capital ones lie between them: 2), and how many there are.
#[rustfmt::skip]
const SMALL: [(u16, u16, u16, u16); 75] = [
    (0, 0xe0, 1, 23), (23, 0xdf, 1, 1), (24, 0xf8, 1, 8), (32, 0x101, 2, 28), (60, 0x138, 2, 9),
    (69, 0x149, 2, 24), (93, 0x17a, 2, 3), (96, 0x17f, 1, 1), (118, 0x390, 1, 1), (120, 0x3ac, 1,
    35), (156, 0x3d0, 1, 2), (161, 0x3d5, 1, 3), (164, 0x3d9, 2, 12), (176, 0x3f0, 1, 4), (180,
    0x3f5, 1, 2), (182, 0x3f8, 1, 1), (183, 0x3fb, 1, 2), (200, 0x430, 1, 48), (248, 0x461, 2,
    17), (266, 0x48b, 2, 27), (294, 0x4c2, 2, 7), (302, 0x4d1, 2, 21), (329, 0x501, 2, 8), (341,
    0x561, 1, 37), (380, 0x2170, 1, 16), (400, 0x180, 1, 1), (401, 0x183, 2, 2), (403, 0x188, 1,
    1), (404, 0x18c, 1, 2), (406, 0x192, 1, 1), (407, 0x195, 1, 1), (408, 0x199, 1, 3), (411,
    0x19e, 1, 1), (412, 0x1a1, 2, 3), (415, 0x1a8, 2, 2), (417, 0x1ab, 2, 2), (419, 0x1b0, 1, 1),
    (420, 0x1b4, 2, 2), (422, 0x1b9, 1, 3), (426, 0x1be, 1, 1), (427, 0x1bd, 1, 1), (428, 0x1c6,
    1, 1), (429, 0x1c9, 1, 1), (430, 0x1cc, 2, 9), (439, 0x1dd, 2, 10), (449, 0x1f0, 1, 1), (450,
    0x1f3, 2, 2), (452, 0x1f9, 2, 30), (482, 0x234, 1, 6), (489, 0x23c, 1, 1), (491, 0x23f, 1, 2),
    (507, 0x250, 1, 96), (620, 0x1e01, 2, 75), (695, 0x1e96, 1, 6), (705, 0x1ea1, 2, 45), (760,
    0x1f00, 1, 8), (768, 0x1f10, 1, 6), (778, 0x1f20, 1, 8), (786, 0x1f30, 1, 8), (794, 0x1f40, 1,
    6), (804, 0x1f50, 1, 8), (816, 0x1f60, 1, 8), (824, 0x1f70, 1, 14), (840, 0x1f80, 1, 8), (848,
    0x1f90, 1, 8), (856, 0x1fa0, 1, 8), (864, 0x1fb0, 1, 5), (870, 0x1fb6, 1, 2), (872, 0x1fc2, 1,
    3), (876, 0x1fc6, 1, 2), (878, 0x1fd0, 1, 4), (884, 0x1fd6, 1, 2), (887, 0x1fe0, 1, 8), (897,
    0x1ff2, 1, 2), (901, 0x1ff6, 1, 2),
];
/// Capital letters that are not those of the small letter with the same code, or where no small one
/// has it, by numbers of codes.
const CAPITAL: [(u16, u16); 14] = [
    (158, 0x3d2),
    (159, 0x3d3),
    (160, 0x3d4),
    (178, 0x3a3),
    (185, 0x3fd),
    (186, 0x3fe),
    (187, 0x3ff),
    (293, 0x4c0),
    (488, 0x23a),
    (490, 0x23e),
    (575, 0x241),
    (867, 0x1fbc),
    (873, 0x1fcc),
    (898, 0x1ffc),
];
/// Greek letters with an iota below, of which the capital ones are so much further.
const WITH_IOTA: std::ops::RangeInclusive<u16> = 840..=863;
const IOTA_CAPITAL: u16 = 8;
/// Circled and full-width letters, which have a code of their own kind.
const CIRCLED: [u32; 2] = [0x24d0, 0x24b6];
const WIDE: [u32; 2] = [0xff41, 0xff21];

/// A name as its users write it. What is no code stays as it is.
pub(super) fn as_written(name: &str) -> String {
    let mut written = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('@') {
        written.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match letter(rest.as_bytes()) {
            Some((letter, length)) => {
                written.push(letter);
                rest = &rest[length..];
            }
            None => written.push('@'),
        }
    }
    written + rest
}

/// The letter that a code after `@` means, and the length of the code.
fn letter(code: &[u8]) -> Option<(char, usize)> {
    let hexadecimal = || {
        let digits = code.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        char::from_u32(digits.iter().fold(0, |value, digit| value << 4 | char::from(*digit).to_digit(16).unwrap_or(0)))
    };
    let short = || two(*code.first()?, *code.get(1)?);
    short().map(|letter| (letter, 2)).or_else(|| hexadecimal().map(|letter| (letter, 4)))
}

/// The letter of a code of two.
fn two(first: u8, second: u8) -> Option<char> {
    let is_capital = first.is_ascii_uppercase() || second.is_ascii_uppercase();
    let number_in = |alphabet: u8| u32::from(alphabet.to_ascii_lowercase() - b'a');
    match (first, second) {
        (b'@', letter) if letter.is_ascii_alphabetic() => return char::from_u32(CIRCLED[usize::from(is_capital)] + number_in(letter)),
        (letter, b'@') if letter.is_ascii_alphabetic() => return char::from_u32(WIDE[usize::from(is_capital)] + number_in(letter)),
        _ => {}
    }
    let of_letter = |byte: u8| u16::from(byte.to_ascii_lowercase()).checked_sub(FIRST_LETTER.into()).filter(|number| *number < LETTERS);
    let number = match first {
        b'0'..=b'9' => u16::from(first - b'0') * LETTERS + of_letter(second)?,
        _ => WITH_DIGITS + char::from(second).to_digit(36)? as u16 * LETTERS + of_letter(first)?,
    };
    let small = small(number);
    if !is_capital {
        return char::from_u32(small?.into());
    }
    if let Some((_, capital)) = CAPITAL.into_iter().find(|(code, _)| *code == number) {
        return char::from_u32(capital.into());
    }
    if WITH_IOTA.contains(&number) {
        return char::from_u32(u32::from(small? + IOTA_CAPITAL));
    }
    let small = char::from_u32(small?.into())?;
    let mut capital = small.to_uppercase();
    capital.next().filter(|letter| capital.next().is_none() && *letter != small && !letter.is_ascii())
}

/// The small letter with that code.
fn small(number: u16) -> Option<u16> {
    let run = SMALL.partition_point(|(first, ..)| *first <= number).checked_sub(1)?;
    let (first, letter, step, count) = SMALL[run];
    let inside = number - first;
    (inside < count).then_some(letter + inside * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_users_write_them() {
        let check = |name: &str, expected: &str| assert_eq!(as_written(name), expected);
        check("items", "items");
        check("my@002dshop", "my-shop");
        check("caf@00e9", "café");
        check("altgesch@0kft_2024", "altgeschäft_2024");
        check("@0G@0g@1j@4K@2W", "ÀàßŦ@2W");
        check("this_is_@y0@g0@h0@r0@o0@i1@g0", "this_is_таблица");
        check("@7j@8Y@7W@Gw@gw@Nx@nx", "σΣΒᾈᾀᾼᾳ");
        check("@@a@@Z@a@@A@@0g", "ⓐⓏａＡà");
        check("odd@zz@", "odd@zz@");
        check("short@00", "short@00");
        check("@d800@", "@d800@");
        check("@", "@");
    }

    #[test]
    fn no_bytes_are_too_odd() {
        for first in 0..=255u8 {
            for second in 0..=255 {
                let code = [first, second, b'0', b'0'];
                assert!(letter(&code).is_none_or(|(_, length)| length == 2 || length == 4));
            }
        }
        assert_eq!(as_written("@ß@é@"), "@ß@é@");
    }
}
