//! Answers as rows: numbers and texts in hexadecimal digits, between tabulators.

use crate::trouble::Trouble;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a>(&'a str);

/// Rows with so many columns each.
pub(crate) fn rows<const COLUMNS: usize>(answer: &[u8]) -> Result<Vec<[Cell<'_>; COLUMNS]>, Trouble> {
    let text = std::str::from_utf8(answer).map_err(|_| Trouble::nonsense("it is no text"))?;
    let row = |line| {
        let mut cells = [Cell(""); COLUMNS];
        let mut columns = 0;
        for text in str::split(line, '\t') {
            *cells.get_mut(columns)? = Cell(text);
            columns += 1;
        }
        (columns == COLUMNS).then_some(cells)
    };
    let rows: Option<Vec<_>> = text.lines().map(row).collect();
    rows.ok_or_else(|| Trouble::nonsense("it has other columns than were asked for"))
}

/// The only row.
pub(crate) fn row<const COLUMNS: usize>(answer: &[u8]) -> Result<[Cell<'_>; COLUMNS], Trouble> {
    match rows(answer)?[..] {
        [row] => Ok(row),
        _ => Err(Trouble::nonsense("one row was asked for")),
    }
}

impl Cell<'_> {
    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(self) -> Result<T, Trouble> {
        self.0.parse().map_err(|_| Trouble::nonsense("a number is none"))
    }

    /// A text; bytes that are no UTF-8 and control characters are replaced.
    pub(crate) fn text(self) -> Result<String, Trouble> {
        self.optional()?.ok_or_else(|| Trouble::nonsense("a text is missing"))
    }

    /// A text that may be missing.
    pub(crate) fn optional(self) -> Result<Option<String>, Trouble> {
        if self.0 == "NULL" {
            return Ok(None);
        }
        let digit = |digit: u8| (digit as char).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = self.0.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| Trouble::nonsense("a text is not in hexadecimal digits"))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()))
    }

    /// A word as it stands.
    pub(crate) fn word(self) -> String {
        self.0.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_form_that_was_asked_for() {
        let answer = rows::<3>(b"7\t73686F70\tNULL\n8\t\tc3bc\n").expect("rows");
        let read = |[number, one, other]: [Cell<'_>; 3]| {
            (number.number::<u32>().expect("a number"), one.text().expect("a text"), other.optional().expect("a text"))
        };
        let expected = [(7, "shop".to_owned(), None), (8, String::new(), Some("ü".to_owned()))];
        assert_eq!(answer.into_iter().map(read).collect::<Vec<_>>(), expected);
        assert!(rows::<2>(b"").expect("none").is_empty());
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [&b"1\t2\n"[..], b"1\t2\t3\t4\n", b"\xff\t\t\n", b"\n", b"1\t2\t3\n\n"] {
            assert!(rows::<3>(wrong).is_err(), "{wrong:?}");
        }
        assert!(row::<1>(b"1\n2\n").is_err() && row::<1>(b"").is_err() && row::<1>(b"1\n").is_ok());
        for wrong in ["7g", "abc", "ü7", "-", "null"] {
            assert!(Cell(wrong).text().is_err(), "{wrong}");
        }
        for wrong in ["", "-1", "4294967296", "1 ", "0x1"] {
            assert!(Cell(wrong).number::<u32>().is_err(), "{wrong}");
        }
        assert_eq!(Cell("1b5b324a").text().expect("a text"), "\u{fffd}[2J", "no orders to a terminal");
        assert!(Cell("NULL").text().is_err());
    }
}
