//! What is remembered of planted mistakes: the seeds that found them. So each is found again in one run, not after a search.
//!
//! A seed is worth something as long as plans and engine are nearly the same. Where it finds nothing any more, the test searches
//! again and says what to write here. `mutants --remember` writes the whole file.

use super::{Verdict, exhaustive_finds, finds};
use engine::mutants::{name_of, named};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../mutant-seeds.txt");

const HEAD: &str = "\
# Seeds that find the planted mistakes of the engine: name of the mistake (`engine::mutants`), then seeds, or `sequences` where short sequences do.
# Written by `cargo run --release -p simulator --features mutants --bin mutants -- --remember`.
";

const SEQUENCES: &str = "sequences";

/// What finds a mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finder {
    /// The runs of these seeds.
    Seeds(Vec<u64>),
    /// The run of all short sequences.
    Sequences,
}

/// What is remembered, by number of the mistake.
pub fn remembered() -> BTreeMap<u32, Finder> {
    parse(TEXT)
}

fn parse(text: &str) -> BTreeMap<u32, Finder> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, finder) = line.split_once(' ').expect("a name and what finds it");
            let finder = match finder {
                SEQUENCES => Finder::Sequences,
                seeds => Finder::Seeds(seeds.split(' ').map(|seed| seed.parse().expect("a seed")).collect()),
            };
            (named(name).unwrap_or_else(|| panic!("{name} is no planted mistake")).number, finder)
        })
        .collect()
}

/// What found the mistake, if it was found.
pub fn finder_of(verdict: &Verdict) -> Option<Finder> {
    match verdict.finders() {
        seeds if !seeds.is_empty() => Some(Finder::Seeds(seeds)),
        _ => verdict.exhaustive_runs.map(|_| Finder::Sequences),
    }
}

/// Whether what is remembered still finds the mistake.
pub fn finds_again(number: u32, finder: &Finder, threads: usize) -> bool {
    match finder {
        Finder::Seeds(seeds) => seeds.iter().any(|seed| finds(number, *seed).is_some()),
        Finder::Sequences => exhaustive_finds(number, threads).is_some(),
    }
}

/// A line of the file.
pub fn line(number: u32, finder: &Finder) -> String {
    let name = name_of(number);
    match finder {
        Finder::Seeds(seeds) => format!("{name} {}", seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")),
        Finder::Sequences => format!("{name} {SEQUENCES}"),
    }
}

/// The whole file.
pub fn text_of(finders: &BTreeMap<u32, Finder>) -> String {
    let lines: Vec<String> = finders.iter().map(|(number, finder)| line(*number, finder)).collect();
    format!("{HEAD}{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let verdict = |number, seeds, exhaustive_runs| Verdict { number, what: "", seeds, found: String::new(), exhaustive_runs };
        let verdicts = [verdict(1, vec![Some(3), Some(1), None], None), verdict(2, vec![None], Some(40)), verdict(13, vec![None], None)];
        let found: BTreeMap<u32, Finder> = verdicts.iter().filter_map(|verdict| Some((verdict.number, finder_of(verdict)?))).collect();
        assert_eq!(found, BTreeMap::from([(1, Finder::Seeds(vec![10_000_002, 20_000_000])), (2, Finder::Sequences)]));
        assert_eq!(parse(&text_of(&found)), found);
    }
}
