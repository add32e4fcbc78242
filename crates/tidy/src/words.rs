//! Words: phrases that strangers stumbled over must not come back, the rest of the dialect may only become less, lines of documents fit.

use crate::code::{Source, Tree, each_level};
use crate::ratchet::{Count, Kind};
use std::collections::BTreeMap;

/// Characters of a line of text at most, outside of tables, code and links.
const COLUMNS_MAX: usize = 100;

/// Where documentation in the source becomes help or the API's description.
const HELP: [&str; 4] = ["crates/hearth/src/cli.rs", "crates/terminal/src/evaluate.rs", "crates/api/src", "crates/rest/src/routes"];

/// Phrases, and what to write instead. The second part of each is apart, so that this file does not complain about itself.
const PHRASES: [(&str, &str, &str); 12] = [
    ("Who are", " you?", "Authentication required"),
    ("did w", "rong", "Internal error"),
    ("makes no s", "ense", "is invalid"),
    ("before no", "body", "at normal priority"),
    ("ever a", "fter", "until it is written again"),
    ("go", "es home", "is destaged"),
    ("brou", "ght home", "destaged"),
    ("brings it h", "ome", "destages it"),
    ("turned a", "way", "bypassed"),
    ("around the c", "ache", "bypasses the cache"),
    ("ask a", "gain", "try again"),
    ("mend", " it", "fix it"),
];

/// Words of the dialect.
const DIALECT: [(&str, &str); 5] = [("to", "ld"), ("no", "body"), ("an", "ew"), ("who", "ever"), ("goes", " home")];

/// Phrases in what people read.
const ODD: Kind = Kind { name: "phrases", goal: 0, what: "phrases that readers stumble over" };

/// The dialect in what people read.
const WORDS: Kind = Kind { name: "words", goal: 0, what: "words of the dialect in texts" };

/// Complaints about lines of documents that are too long.
pub fn check(documents: &[(String, String)]) -> Vec<String> {
    let complaint = |(name, text): &(String, String)| {
        long_lines(text).map(|(line, length)| format!("{name}:{line}: {length} characters, more than {COLUMNS_MAX}")).collect::<Vec<_>>()
    };
    documents.iter().flat_map(complaint).collect()
}

/// Phrases and dialect, by document and by crate.
pub fn count(documents: &[(String, String)], sources: &[Source]) -> Vec<Count> {
    let mut counts = BTreeMap::new();
    for (name, text) in documents {
        text.lines().zip(1..).for_each(|(line, number)| add(&mut counts, name, line, &format!("{name}:{number}")));
    }
    for source in sources {
        for (text, line) in texts(source).into_iter().chain([(source.first_line.as_str(), 1)]) {
            add(&mut counts, &source.krate, text, &format!("{}:{line}", source.path));
        }
    }
    counts.into_values().collect()
}

/// Counts what is in one text, which stands at `at`.
fn add(counts: &mut BTreeMap<(&'static str, String), Count>, place: &str, text: &str, at: &str) {
    for (kind, found) in [(ODD, odd_phrases(text)), (WORDS, dialect(text))] {
        if let Some(last) = found.last() {
            let none = Count { kind, place: place.into(), found: 0, example: String::new() };
            let count = counts.entry((kind.name, place.into())).or_insert(none);
            (count.found, count.example) = (count.found + found.len(), format!("{at}, {last}"));
        }
    }
}

/// Numbers and lengths of lines that are too long.
fn long_lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        let length = line.chars().count();
        let free = fenced || line.starts_with('|') || line.starts_with("    ") || !line.trim().contains(' ');
        (length > COLUMNS_MAX && !free).then_some((index + 1, length))
    })
}

/// What is to be said otherwise, and how.
fn odd_phrases(text: &str) -> Vec<String> {
    let found = |(one, two, better): &(&str, &str, &str)| {
        let phrase = format!("{one}{two}");
        let times = text.matches(&phrase).count();
        vec![format!("\"{phrase}\": write for instance \"{better}\""); times]
    };
    PHRASES.iter().flat_map(found).collect()
}

/// Words of the dialect in a text.
fn dialect(text: &str) -> Vec<String> {
    let text = text.to_ascii_lowercase();
    let is_word = |at: usize, end: usize| {
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        !text[..at].ends_with(inside) && !text[end..].starts_with(inside)
    };
    let found = |(one, two): &(&str, &str)| {
        let word = format!("{one}{two}");
        let times = text.match_indices(&word).filter(|(at, _)| is_word(*at, at + word.len())).count();
        vec![format!("\"{word}\""); times]
    };
    DIALECT.iter().flat_map(found).collect()
}

/// Strings of a source with their lines, and documentation where it becomes help.
fn texts(source: &Source) -> Vec<(&str, usize)> {
    let help = HELP.iter().any(|place| source.path.starts_with(place));
    let mut texts = Vec::new();
    each_level(&source.trees, &mut |level| {
        let documentation = !help && level.first().and_then(Tree::word) == Some("doc");
        let text = |tree: &'_ Tree| matches!(tree, Tree::Text(..)) && !documentation;
        texts.extend(level.iter().filter(|tree| text(tree)).filter_map(|tree| match tree {
            Tree::Text(text, line) => Some((text.as_str(), *line)),
            Tree::Word(..) | Tree::Sign(_) | Tree::Number | Tree::Group(_) => None,
        }));
    });
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::lex;
    use crate::ratchet::Limits;

    #[test]
    fn long_lines_count_outside_of_tables_and_code() {
        let long = format!("a{}", " b".repeat(50));
        let text = format!("{long}\n| {long}\n    {long}\n```\n{long}\n```\n{}\n{long}\n", "x".repeat(200));
        assert_eq!(long_lines(&text).map(|(number, _)| number).collect::<Vec<_>>(), [1, 8]);
    }

    fn source(path: &str, text: &str) -> Source {
        let first_line = text.lines().next().unwrap_or_default().into();
        Source { krate: "k".into(), path: path.into(), first_line, trees: lex(text).unwrap() }
    }

    #[test]
    fn phrases_are_found_in_texts_and_documents_and_not_in_comments() {
        let phrase = ["ask a", "gain"].concat();
        let text = format!("//! For a test.\n/// {phrase}\n// {phrase}\nconst A: &str = \"then {phrase}\";");
        let found =
            |documents: &[(String, String)], sources: &[Source]| count(documents, sources).iter().map(|count| count.found).sum::<usize>();
        assert_eq!(found(&[], &[source("crates/k/src/a.rs", &text)]), 1);
        assert_eq!(found(&[], &[source("crates/rest/src/routes/a.rs", &text)]), 2);
        assert_eq!(found(&[("docs/internals/a.md".into(), phrase)], &[]), 1);
        assert_eq!(Limits::default().complaints(&count(&[], &[source("crates/k/src/a.rs", &text)])).len(), 1);
    }

    #[test]
    fn more_dialect_than_the_limit_is_a_complaint() {
        let (word, home) = (["to", "ld"].concat(), ["goes", " home"].concat());
        let text = format!("//! It is {word}.\n/// {word}\nconst A: [&str; 2] = [\"{word}, {word}\", \"un{word} {word}_at\"];");
        let counts = count(&[("d.md".into(), format!("It {home}"))], &[source("a", &text)]);
        let words: Vec<usize> = counts.iter().filter(|count| count.kind == WORDS).map(|count| count.found).collect();
        assert_eq!(words, [1, 3]);
        let limits = |of_the_crate: usize| Limits::of(&format!("words d.md 1\nphrases d.md 1\nwords k {of_the_crate}\n")).unwrap();
        assert!(limits(3).complaints(&counts).is_empty());
        assert_eq!(limits(2).complaints(&counts).len(), 1);
    }
}
