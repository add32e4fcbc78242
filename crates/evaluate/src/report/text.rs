//! A document for a terminal: at most a hundred columns, no colours, pictures and commands left out.

use super::document::{Block, Cell, Column, Document, Table};

/// Columns of a terminal that a report may take.
pub const WIDTH: usize = 100;
/// Between two columns of a table.
const GAP: usize = 2;
/// Words up to here are not cut if there is another way.
const WORD: usize = 18;

/// The document as text.
pub fn write(document: &Document) -> String {
    let mut out = format!("{}\n", document.title);
    paragraph(&mut out, &document.subtitle, "", "");
    for page in &document.pages {
        if document.pages.len() > 1 {
            out.push_str(&format!("\n== {} ==\n", page.title));
        }
        for block in &page.blocks {
            out.push('\n');
            match block {
                Block::Words(words) => paragraph(&mut out, words, "", ""),
                Block::Loud(words) => paragraph(&mut out, words, "!! ", "!! "),
                Block::Heading(words) => paragraph(&mut out, words, "-- ", "   "),
                Block::Facts(facts) => {
                    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + GAP;
                    for (name, value) in facts {
                        paragraph(&mut out, value, &format!("{name:width$}"), &" ".repeat(width));
                    }
                }
                Block::List(items) => items.iter().for_each(|item| paragraph(&mut out, item, "- ", "  ")),
                Block::Table(table) => write_table(&mut out, table),
                // What a terminal cannot show leaves no gap either.
                Block::Pictures(_) | Block::Commands { .. } => {
                    out.pop();
                }
            }
        }
    }
    out
}

fn paragraph(out: &mut String, words: &str, first: &str, others: &str) {
    let lines = wrapped(words, WIDTH - first.chars().count());
    for (nth, line) in lines.iter().enumerate() {
        let line = format!("{}{line}", if nth == 0 { first } else { others });
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Words in lines of at most so many letters; a longer word is cut.
fn wrapped(words: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        loop {
            let last = lines.last_mut().expect("at least one");
            let taken = last.chars().count();
            let gap = usize::from(taken > 0);
            if taken + gap + rest.len() <= width {
                if gap > 0 {
                    last.push(' ');
                }
                last.extend(rest);
                break;
            }
            if taken > 0 {
                lines.push(String::new());
            } else {
                last.extend(rest.drain(..width.max(1)));
                lines.push(String::new());
            }
        }
    }
    lines
}

fn told(cell: &Cell) -> String {
    cell.sign.map_or_else(|| cell.text.clone(), |sign| format!("{} {}", sign.letter(), cell.text))
}

/// As wide as each column would like to be, and if that is too much, what is left goes by weight to those that want more.
fn widths(table: &Table) -> Vec<usize> {
    let count = |text: &str| text.chars().count();
    let word = |text: &str| text.split_whitespace().map(count).max().unwrap_or(0);
    // Heads may stand in several lines.
    let wanted: Vec<usize> = (0..table.columns.len())
        .map(|nth| table.rows.iter().map(|row| count(&told(&row[nth]))).chain([word(&table.columns[nth].title)]).max().unwrap_or(0))
        .collect();
    let room = WIDTH.saturating_sub(GAP * table.columns.len().saturating_sub(1));
    // Numbers are not torn from their units.
    let number = |nth: usize| Some(wanted[nth]).filter(|wanted| table.columns[nth].right && *wanted <= WORD);
    let mut given: Vec<Option<usize>> = (0..wanted.len()).map(number).collect();
    loop {
        let open: Vec<usize> = (0..wanted.len()).filter(|nth| given[*nth].is_none()).collect();
        let left = room.saturating_sub(given.iter().flatten().sum());
        let weights: f64 = open.iter().map(|nth| table.columns[*nth].weight).sum();
        let share = |nth: usize| (left as f64 * table.columns[nth].weight / weights) as usize;
        let content: Vec<usize> = open.iter().copied().filter(|nth| wanted[*nth] <= share(*nth)).collect();
        if content.is_empty() {
            open.iter().for_each(|nth| given[*nth] = Some(share(*nth).max(4)));
            break;
        }
        content.iter().for_each(|nth| given[*nth] = Some(wanted[*nth]));
    }
    let mut widths: Vec<usize> = given.into_iter().map(|width| width.expect("all are given")).collect();
    let longest: Vec<usize> = (0..widths.len()).map(|nth| number(nth).unwrap_or_else(|| longest_word(table, nth))).collect();
    // A column whose words would be cut takes letters from the one that has most to spare.
    while let Some(narrow) = (0..widths.len()).find(|nth| widths[*nth] < longest[*nth]) {
        let Some(wide) = (0..widths.len()).filter(|nth| widths[*nth] > longest[*nth]).max_by_key(|nth| widths[*nth] - longest[*nth]) else {
            break;
        };
        widths[narrow] += 1;
        widths[wide] -= 1;
    }
    widths
}

/// Letters of the longest word in a column, as far as words are worth keeping whole.
fn longest_word(table: &Table, nth: usize) -> usize {
    let texts = table.rows.iter().map(|row| row[nth].text.as_str()).chain([table.columns[nth].title.as_str()]);
    texts.flat_map(str::split_whitespace).map(|word| word.chars().count()).max().unwrap_or(0).min(WORD)
}

fn write_table(out: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        paragraph(out, &table.caption, "", "");
    }
    let widths = widths(table);
    let heads: Vec<String> = table.columns.iter().map(|column| column.title.clone()).collect();
    write_row(out, &heads, &table.columns, &widths);
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    write_row(out, &rule, &table.columns, &widths);
    for row in &table.rows {
        write_row(out, &row.iter().map(told).collect::<Vec<_>>(), &table.columns, &widths);
    }
}

fn write_row(out: &mut String, cells: &[String], columns: &[Column], widths: &[usize]) {
    let lines: Vec<Vec<String>> = cells.iter().zip(widths).map(|(cell, width)| wrapped(cell, *width)).collect();
    for nth in 0..lines.iter().map(Vec::len).max().unwrap_or(0) {
        let parts = lines.iter().zip(columns).zip(widths).map(|((lines, column), width)| {
            let text = lines.get(nth).map_or("", String::as_str);
            if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        let line = parts.collect::<Vec<_>>().join(&" ".repeat(GAP));
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_never_longer_than_they_may_be() {
        for width in [1, 4, 9, 40] {
            let lines = wrapped("a bb ccc dddd eeeee ffffffffffffffff µµµ", width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            assert_eq!(lines.concat().replace(' ', ""), "abbcccddddeeeeeffffffffffffffffµµµ");
        }
    }

    #[test]
    fn a_table_takes_what_it_needs_and_no_more_than_there_is() {
        let columns = vec![Column::words("a", 1.0), Column::numbers("bb", 1.0), Column::words("c", 2.0)];
        let long = "word ".repeat(60);
        let table = |text: &str| Table {
            caption: String::new(),
            columns: columns.clone(),
            rows: vec![vec![Cell::of("x"), Cell::of("1"), Cell::of(text)]],
        };
        let mut out = String::new();
        write_table(&mut out, &table("y"));
        assert_eq!(out, "a  bb  c\n-  --  -\nx   1  y\n");
        out.clear();
        write_table(&mut out, &table(&long));
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert_eq!(out.matches("word").count(), 60);
    }
}
