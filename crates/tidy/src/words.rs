//! Documents for users: lines that fit, and no phrases that strangers stumbled over.

use crate::shown;
use std::path::{Path, PathBuf};

/// Characters of a line of text at most, outside of tables, code and links.
const COLUMNS_MAX: usize = 100;

/// The documents that are held to it.
const DOCUMENTS: [&str; 7] =
    ["README.md", "docs/api.md", "docs/commands.md", "docs/configuration.md", "docs/failures.md", "docs/glossary.md", "docs/service.md"];

/// Crates whose texts users read.
const SPEAKERS: [&str; 6] = ["control", "device", "fuse", "hearth", "nbd", "rest"];

/// Where documentation in the source becomes help or the API's description.
const HELP: [&str; 3] = ["hearth/src/cli.rs", "control/src/api", "rest/src/routes"];

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

/// Complaints, one a line found. `files` are the Rust sources.
pub fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for document in DOCUMENTS {
        let Ok(text) = std::fs::read_to_string(root.join(document)) else {
            complaints.push(format!("{document} cannot be read"));
            continue;
        };
        complaints
            .extend(long_lines(&text).map(|(number, length)| format!("{document}:{number}: {length} characters, more than {COLUMNS_MAX}")));
        complaints.extend(odd_phrases(&text).map(|(number, found)| format!("{document}:{number}: {found}")));
    }
    let speaks = |file: &&PathBuf| SPEAKERS.iter().any(|name| file.starts_with(root.join("crates").join(name).join("src")));
    for file in files.iter().filter(speaks) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let help = HELP.iter().any(|place| file.starts_with(root.join("crates").join(place)));
        complaints.extend(odd_phrases(&literals(&text, help)).map(|(number, found)| format!("{}:{number}: {found}", shown(root, file))));
    }
    complaints
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

fn odd_phrases(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let found = PHRASES.iter().filter(|(one, two, _)| line.contains(&format!("{one}{two}")));
        found.map(move |(one, two, better)| (index + 1, format!("\"{one}{two}\": write for instance \"{better}\""))).collect::<Vec<_>>()
    })
}

/// The lines of a source with only what stands behind their first quote; comments and tests are left out. With `help`,
/// documentation counts too.
fn literals(source: &str, help: bool) -> String {
    let shipped = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let line = |line: &str| {
        let code = line.trim_start();
        if let Some(words) = code.strip_prefix("///").filter(|_| help) {
            return words.to_string();
        }
        if code.starts_with("//") { String::new() } else { code.split_once('"').map_or(String::new(), |(_, quoted)| quoted.into()) }
    };
    shipped.lines().map(|l| line(l) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_count_outside_of_tables_and_code() {
        let long = format!("a{}", " b".repeat(50));
        let text = format!("{long}\n| {long}\n    {long}\n```\n{long}\n```\n{}\n{long}\n", "x".repeat(200));
        assert_eq!(long_lines(&text).map(|(number, _)| number).collect::<Vec<_>>(), [1, 8]);
    }

    #[test]
    fn phrases_are_found_in_texts_and_not_in_comments() {
        let phrase = ["ask a", "gain"].concat();
        let source = format!("// {phrase}\nlet x = \"then {phrase}\";\n#[cfg(test)]\nmod tests {{\n\"{phrase}\"");
        assert_eq!(odd_phrases(&literals(&source, false)).map(|(number, _)| number).collect::<Vec<_>>(), [2]);
        assert_eq!(odd_phrases(&literals(&source.replace("// ", "/// "), true)).count(), 2);
    }
}
