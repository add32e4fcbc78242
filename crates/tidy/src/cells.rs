//! Cells of tables in documents: what is longer than some lines is a paragraph or a list.

use crate::ratchet::{Count, Kind};

/// Cells over the limit.
const CELLS: Kind = Kind { name: "cells", goal: 0, what: "cells of more than 400 characters" };

/// Characters of a cell at most.
const CHARACTERS_MAX: usize = 400;

/// Long cells, by document.
pub fn count(documents: &[(String, String)]) -> Vec<Count> {
    let of = |(name, text): &(String, String)| {
        let long = long_cells(text);
        let example = long.last().map_or(String::new(), |line| format!("{name}:{line}"));
        Count { kind: CELLS, place: name.clone(), found: long.len(), example }
    };
    documents.iter().map(of).collect()
}

/// The line of each long cell.
fn long_cells(text: &str) -> Vec<usize> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.starts_with("```");
        if fenced || !line.starts_with('|') {
            continue;
        }
        // A bar behind a backslash is text.
        let cells = line.replace("\\|", "/");
        found.extend(cells.split('|').filter(|cell| cell.trim().chars().count() > CHARACTERS_MAX).map(|_| index + 1));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratchet::Limits;

    #[test]
    fn long_cells_are_a_complaint_and_long_rows_are_none() {
        let (fits, long) = ("x".repeat(400), "x".repeat(401));
        let of = |text: String| count(&[("d.md".to_string(), text)]);
        assert!(Limits::default().complaints(&of(format!("| {fits} | {fits} |\n{long}\n```\n| {long} |\n```\n"))).is_empty());
        assert_eq!(Limits::default().complaints(&of(format!("| a | b |\n| {fits} | {}\\|{fits} |\n", "y"))).len(), 1);
    }
}
