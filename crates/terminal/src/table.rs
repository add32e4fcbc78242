//! Aligned tables for people.

/// A column's alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Lays out rows under a head; no trailing spaces. The last column is never padded.
pub fn layout(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(head).zip(&widths).map(|((cell, (_, align)), width)| {
            let pad = " ".repeat(width - cell.chars().count());
            match align {
                Align::Left => format!("{cell}{pad}"),
                Align::Right => format!("{pad}{cell}"),
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    let mut text = line(head.iter().map(|(title, _)| *title).collect());
    rows.iter().for_each(|row| text += &line(row.iter().map(String::as_str).collect()));
    text
}

/// Lays out "key: value" lines with the values below each other.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let line = |(key, value): &(&str, String)| {
        let pad = " ".repeat(width - key.chars().count());
        format!("{key}:{pad} {value}").trim_end().to_string() + "\n"
    };
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let head = [("NAME", Align::Left), ("SIZE", Align::Right), ("STATE", Align::Left)];
        let rows = [vec!["a".into(), "1 GiB".into(), "ok".into()], vec!["longer".into(), "5 µs".into(), String::new()]];
        let expected = "NAME     SIZE  STATE\na       1 GiB  ok\nlonger   5 µs\n";
        assert_eq!(layout(&head, &rows), expected);
        assert_eq!(pairs(&[("a", "1".into()), ("long", "2".into())]), "a:    1\nlong: 2\n");
    }
}
