//! The configuration file from text to checked values, with every problem and its line.

use super::keys::{self, SECTIONS};
use super::value::{self, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Largest file: it is written by people.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Something that is wrong in the file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct Problem {
    /// Which line, from 1 on.
    pub line: usize,
    /// What is wrong, a clause.
    pub problem: String,
    /// What to do, a clause.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.problem, self.remedy)
    }
}

/// A value and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The value.
    pub value: Value,
    /// The line, from 1 on.
    pub line: usize,
}

/// Values by key.
pub type Values = BTreeMap<&'static str, Written>;

/// Reads the file's text.
///
/// # Errors
/// What is wrong with it as a file: a clause and what to do.
pub fn text_of(path: &Path) -> Result<String, (String, String)> {
    let give = || "use another one with --config FILE, or create one with `hearth config default`".to_string();
    let meta = std::fs::metadata(path).map_err(|e| (format!("cannot be read ({e})"), give()))?;
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Err(("is not a file of at most 1 MiB".into(), give()));
    }
    let bytes = std::fs::read(path).map_err(|e| (format!("cannot be read ({e})"), give()))?;
    String::from_utf8(bytes).map_err(|_| ("is not UTF-8 text".into(), "write it with a text editor".into()))
}

/// Reads all values and finds all problems, by line. Values without a problem are given even if there are others.
pub fn parse(text: &str) -> (Values, Vec<Problem>) {
    let line_of = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut found = Found { values: Values::new(), problems: Vec::new(), line_of: &line_of };
    for error in errors {
        let message: String = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let remedy = "write it as TOML: `key = value`, with texts in quotes and sections in brackets";
        found.problem(error.span().map_or(0, |span| span.start), message, remedy.into());
    }
    for (name, value) in table.get_ref() {
        found.entry(name, value);
    }
    found.across();
    found.problems.sort();
    found.problems.dedup();
    (found.values, found.problems)
}

struct Found<'a> {
    values: Values,
    problems: Vec<Problem>,
    line_of: &'a dyn Fn(usize) -> usize,
}

impl Found<'_> {
    fn problem(&mut self, at: usize, problem: String, remedy: String) {
        self.problems.push(Problem { line: (self.line_of)(at), problem, remedy });
    }

    /// An entry of the file's outermost table: a key, or a section of keys.
    fn entry(&mut self, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let section = name.get_ref();
        let Some(inner) = value.get_ref().as_table() else { return self.key(section, name.span().start, value) };
        let known = SECTIONS.iter().any(|(known, _)| !known.is_empty() && *known == section.as_ref());
        if inner.is_empty() && !known {
            return self.unknown(section, name.span().start);
        }
        for (own_name, value) in inner {
            self.key(&format!("{section}.{}", own_name.get_ref()), own_name.span().start, value);
        }
    }

    fn key(&mut self, name: &str, at: usize, value: &Spanned<DeValue<'_>>) {
        let Some(key) = keys::find(name) else { return self.unknown(name, at) };
        match value::read(key.form, value.get_ref()) {
            Ok(value) => drop(self.values.insert(key.name, Written { value, line: (self.line_of)(at) })),
            Err((problem, remedy)) => self.problem(at, format!("{} {problem}", key.name), remedy),
        }
    }

    fn unknown(&mut self, name: &str, at: usize) {
        let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
        let remedy = match keys::nearest(name) {
            Some(near) => format!("write {near} if that is meant, or remove it; `hearth config default` shows all keys"),
            None => "remove it; `hearth config default` shows all keys".to_string(),
        };
        self.problem(at, format!("there is no key {shown}"), remedy);
    }

    /// What keys say about each other.
    fn across(&mut self) {
        let line = |values: &Values, name: &str| values.get(name).map_or(1, |written| written.line);
        let remote = match self.values.get("api.listen").map(|written| &written.value) {
            Some(Value::Address(Some(address))) if !address.ip().is_loopback() => Some(*address),
            _ => None,
        };
        let allowed = self.values.get("api.allow_remote").is_some_and(|written| written.value == Value::Flag(true));
        if let (Some(address), false) = (remote, allowed) {
            let problem = format!("api.listen is {address}, which other machines can reach, and api.allow_remote is not true");
            let remedy = "write a loopback address such as \"127.0.0.1:7420\", or api.allow_remote = true".to_string();
            self.problems.push(Problem { line: line(&self.values, "api.listen"), problem, remedy });
        }
        for (one, other) in [("api.certificate", "api.key"), ("api.key", "api.certificate")] {
            if self.values.contains_key(one) && !self.values.contains_key(other) {
                let problem = format!("{one} is given without {other}");
                self.problems.push(Problem { line: line(&self.values, one), problem, remedy: "give both, or neither".into() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(line, part of the sentence)` of each problem, in order.
    fn check(text: &str, expected: &[(usize, &str)]) {
        let (_, problems) = parse(text);
        assert_eq!(problems.len(), expected.len(), "{text:?}: {problems:#?}");
        for (problem, (line, part)) in problems.iter().zip(expected) {
            let sentence = problem.to_string();
            assert!(problem.line == *line && sentence.contains(part), "{text:?}: {sentence:?} lacks {part:?} or is not of line {line}");
            assert!(!sentence.contains('\n') && sentence.contains("; "), "{sentence:?}");
        }
    }

    #[test]
    fn good_files_give_values() {
        let text = "socket = '/s'\nreactors = 0x2\n[api]\nlisten = \"127.0.0.1:7420\"\n[defaults]\nwrite_cache_depth = \"5m\"\n";
        let (values, problems) = parse(text);
        assert_eq!(problems, []);
        assert_eq!((values["socket"].value.shown(), values["socket"].line), ("/s".into(), 1));
        assert_eq!((values["reactors"].value.number(), values["api.listen"].line), (2, 4));
        assert_eq!(values["defaults.write_cache_depth"].value.number(), 300_000);
        check("", &[]);
        check("[api]\nnames = [\"Cache-1.example.org\", \"cache1\"]", &[]);
        check("# nothing\n[api]\n[log]\n", &[]);
        check("api.listen = \"[::1]:1\"\napi.allow_remote = false", &[]);
        check("[api]\nlisten = \"0.0.0.0:1\"\nallow_remote = true", &[]);
    }

    #[test]
    fn every_problem_has_its_line_and_a_way_out() {
        check("\nsocet = \"/s\"", &[(2, "there is no key socet; write socket if")]);
        check("[log]\n\nfliter = \"info\"", &[(3, "there is no key log.fliter; write log.filter if")]);
        check("[colour]\nof = 1\n[nothing]", &[(2, "there is no key colour.of; remove it"), (3, "there is no key nothing; remove it")]);
        check("reactors = 0\n", &[(1, "reactors must be a whole number from 1 to 256")]);
        check("reactors = \"2\"\n", &[(1, "without quotes")]);
        check("reactors = -1\n", &[(1, "whole number")]);
        check("reactors = 99999999999999999999999\n", &[(1, "whole number")]);
        check("socket = 5\nstate_directory = \"var\"", &[(1, "socket must be a path, in quotes"), (2, "absolute path")]);
        check("socket = \"/a\\u0000b\"", &[(1, "socket must be a path")]);
        check("socket = \"\"", &[(1, "socket must be a path")]);
        check("[api]\nlisten = \"localhost\"", &[(2, "api.listen must be IP:PORT or off")]);
        check("[api]\nlisten = \"0.0.0.0:7420\"", &[(2, "which other machines can reach")]);
        check("[api]\nnames = \"a.example\"", &[(2, "api.names must be a list of at most 16 host names; write for instance [")]);
        for name in ["a.example:80", "https://a", "10.0.0.1", "a..b", "-a", ""] {
            check(&format!("api.names = [\"{name}\"]"), &[(1, "api.names has an entry that is not a host name")]);
        }
        check("[api]\nkey = \"/k\"", &[(2, "api.key is given without api.certificate; give both, or neither")]);
        check("[api]\nallow_remote = \"yes\"", &[(2, "must be true or false")]);
        check(
            "[log]\nfilter = \"a=b=c\"\nformat = \"xml\"",
            &[(2, "is not a filter"), (3, "use \"auto\", \"text\", \"journal\" or \"json\"")],
        );
        check("[history]\nsize_max = \"1KiB\"", &[(2, "must be a size from 16 MiB to 1 TiB")]);
        check("[history]\nsize_max = \"much\"", &[(2, "must be a size")]);
        check("[defaults]\nwrite_cache_depth = \"25h\"\nmode = \"fast\"", &[(2, "at most 24h"), (3, "use \"write-through\"")]);
        check("socket_group = \"a:b\"", &[(1, "is not a group's name")]);
        check("reactors = 1\nreactors = 2\n", &[(2, "duplicate key")]);
        check("\nreactors 1\n", &[(2, "write it as TOML")]);
        check("log = 5", &[(1, "there is no key log")]);
        check("[socket]\nx = 1", &[(2, "there is no key socket.x")]);
        check("[[api]]\nlisten = \"off\"", &[(1, "there is no key api")]);
    }

    #[test]
    fn noise_is_refused_and_nothing_else_happens() {
        // Each prefix of a good file, and the file with each byte overwritten, reads or is refused with a sentence.
        let good = super::super::document::default_file().replace("\n#", "\n");
        for cut in (0..good.len()).filter(|at| good.is_char_boundary(*at)) {
            parse(&good[..cut]).1.iter().for_each(|problem| assert!(!problem.to_string().contains('\n')));
        }
        for at in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = b"[]=\"'\x01{"[at % 7];
            if let Ok(text) = String::from_utf8(bytes) {
                parse(&text).1.iter().for_each(|problem| assert!(problem.line <= good.lines().count() + 1));
            }
        }
    }
}
