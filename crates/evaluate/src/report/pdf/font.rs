//! Letters of the two fonts that every reader of PDF has (ISO 32000-1, 9.6.2.2), and how wide they are: Adobe's metrics of Helvetica, for the codes of
//! `WinAnsiEncoding`.

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// Helvetica.
    Regular,
    /// Helvetica-Bold.
    Bold,
}

/// Codes 128 to 159, where the encoding is not Latin 1; zero where it has nothing.
const UPPER: [char; 32] = [
    '€', '\0', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\0', 'Ž', '\0', '\0', '‘', '’', '“', '”', '•', '–', '—', '˜', '™',
    'š', '›', 'œ', '\0', 'ž', 'Ÿ',
];

/// A text in the encoding. What it has no letter for is written with others that it has, or as a question mark.
pub fn encoded(text: &str) -> Vec<u8> {
    let mut codes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match code_of(letter) {
            Some(code) => codes.push(code),
            None => codes.extend(instead(letter).bytes()),
        }
    }
    codes
}

fn code_of(letter: char) -> Option<u8> {
    match letter as u32 {
        code @ (0x20..=0x7e | 0xa0..=0xff) => Some(code as u8),
        0x3bc => Some(0xb5),
        _ if letter == '\0' => None,
        _ => UPPER.iter().position(|upper| *upper == letter).map(|place| place as u8 + 0x80),
    }
}

fn instead(letter: char) -> &'static str {
    match letter {
        '\t' | '\n' | '\r' | '\u{2009}' | '\u{202f}' | '\u{2003}' => " ",
        '→' => "->",
        '←' => "<-",
        '≤' => "<=",
        '≥' => ">=",
        '≈' => "about ",
        '≠' => "!=",
        '−' | '‐' | '‑' => "-",
        '▲' | '△' => "+",
        '▼' | '▽' => "-",
        '●' => "o",
        '✓' | '✔' => "yes",
        '\u{200b}' | '\u{feff}' => "",
        _ => "?",
    }
}

/// How wide codes are at a size, in points.
pub fn width(codes: &[u8], face: Face, size: f32) -> f32 {
    let widths = if face == Face::Bold { &BOLD } else { &REGULAR };
    let thousandths: u32 = codes.iter().map(|code| u32::from(code.checked_sub(32).map_or(0, |place| widths[usize::from(place)]))).sum();
    thousandths as f32 * size / 1000.0
}

/// Text in lines that are no wider than they may be; a longer word is cut.
pub fn wrapped(text: &str, face: Face, size: f32, room: f32) -> Vec<Vec<u8>> {
    let fits = |line: &[u8]| width(line, face, size) <= room;
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    for word in encoded(text).split(|code| *code == b' ').filter(|word| !word.is_empty()) {
        let last = lines.last_mut().expect("at least one");
        let longer = if last.is_empty() { word.to_vec() } else { [last, &b" "[..], word].concat() };
        if fits(&longer) {
            *last = longer;
            continue;
        }
        if !last.is_empty() {
            lines.push(Vec::new());
        }
        for code in word {
            let last = lines.last_mut().expect("at least one");
            last.push(*code);
            if last.len() > 1 && !fits(last) {
                last.pop();
                lines.push(vec![*code]);
            }
        }
    }
    lines
}

const REGULAR: [u16; 224] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278,
    278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722,
    667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556,
    556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, 350, 556, 350, 222, 556, 333, 1000, 556, 556, 333, 1000, 667,
    333, 1000, 350, 611, 350, 350, 222, 222, 333, 333, 350, 556, 1000, 333, 1000, 500, 333, 944, 350, 500, 667, 278, 333, 556, 556, 556,
    556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 333, 400, 584, 333, 333, 333, 578, 537, 278, 333, 333, 365, 556, 834, 834, 834, 611,
    667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278, 722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722,
    722, 722, 667, 667, 611, 556, 556, 556, 556, 556, 556, 889, 500, 556, 556, 556, 556, 278, 278, 278, 278, 556, 556, 556, 556, 556, 556,
    556, 584, 611, 556, 556, 556, 556, 500, 556, 500,
];
const BOLD: [u16; 224] = [
    278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 333,
    333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722,
    667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611,
    611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584, 350, 556, 350, 278, 556, 500, 1000, 556, 556, 333, 1000, 667,
    333, 1000, 350, 611, 350, 350, 278, 278, 500, 500, 350, 556, 1000, 333, 1000, 556, 333, 944, 350, 500, 667, 278, 333, 556, 556, 556,
    556, 280, 556, 333, 737, 370, 556, 584, 333, 737, 333, 400, 584, 333, 333, 333, 611, 556, 278, 333, 333, 365, 556, 834, 834, 834, 611,
    722, 722, 722, 722, 722, 722, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278, 722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722,
    722, 722, 667, 667, 611, 556, 556, 556, 556, 556, 556, 889, 556, 556, 556, 556, 556, 278, 278, 278, 278, 611, 611, 611, 611, 611, 611,
    611, 584, 611, 611, 611, 611, 611, 556, 611, 556,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_their_codes_and_widths() {
        assert_eq!(encoded("8.02 × – µs €"), b"8.02 \xd7 \x96 \xb5s \x80");
        assert_eq!(encoded("a→b ≤ 漢▲"), b"a->b <= ?+");
        // Adobe's metrics: H 722, e 556, l 222, o 556.
        assert!((width(b"Hello", Face::Regular, 10.0) - 22.78).abs() < 1e-3);
        assert!(width(b"Hello", Face::Bold, 10.0) > width(b"Hello", Face::Regular, 10.0));
        assert_eq!(width(b"\n", Face::Regular, 10.0), 0.0);
    }

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let text = "a rate of 41,500 I/Os a second andaverylongwordthatfitsnowhereatall − end";
        for room in [12.0, 40.0, 90.0, 500.0] {
            let lines = wrapped(text, Face::Regular, 9.0, room);
            assert!(lines.iter().all(|line| width(line, Face::Regular, 9.0) <= room), "{room}");
            let all: Vec<u8> = lines.concat().into_iter().filter(|code| *code != b' ').collect();
            assert_eq!(all, encoded(text).into_iter().filter(|code| *code != b' ').collect::<Vec<u8>>());
        }
    }
}
