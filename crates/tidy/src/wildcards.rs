//! A `match` over an enum that grows must name every variant, so that the compiler asks at each place what a new one means there.

use crate::code::{Source, Tree, each_level};
use crate::ratchet::{Count, Kind};

/// Wildcards in a `match` whose other arms name one of these enums.
const WILDCARD: Kind = Kind { name: "wildcard", goal: 0, what: "arms that stand for all other variants" };

/// Enums that grow with what hearth can do: commands of a pool, exports, engines of databases.
const ENUMS: [&str; 3] = ["Command", "Engine", "Export"];

/// Wildcard arms, by crate and enum.
pub fn count(sources: &[Source]) -> Vec<Count> {
    let mut counts: Vec<Count> = Vec::new();
    for source in sources {
        each_level(&source.trees, &mut |level| {
            for (name, line) in wildcards(level) {
                let place = format!("{} {name}", source.krate);
                let example = format!("{}:{line}", source.path);
                match counts.iter_mut().find(|count| count.place == place) {
                    Some(count) => (count.found, count.example) = (count.found + 1, example),
                    None => counts.push(Count { kind: WILDCARD, place, found: 1, example }),
                }
            }
        });
    }
    counts
}

/// The enum and the line of the `match`, for each that has a wildcard.
fn wildcards(level: &[Tree]) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for (at, tree) in level.iter().enumerate() {
        let Tree::Word(word, line) = tree else { continue };
        let Some(body) = level[at..].iter().find_map(|tree| tree.group('{')).filter(|_| word == "match") else { continue };
        let patterns = patterns(&body.trees);
        let names = |name: &str| patterns.iter().any(|pattern| names_variant(pattern, name));
        if patterns.iter().any(|pattern| stands_for_all(pattern)) {
            found.extend(ENUMS.iter().filter(|name| names(name)).map(|name| (*name, *line)));
        }
    }
    found
}

/// What stands before each `=>` of a `match`.
fn patterns(body: &[Tree]) -> Vec<&[Tree]> {
    let mut patterns = Vec::new();
    let mut rest = body;
    while let Some(arrow) = rest.windows(2).position(|pair| pair[0].is('=') && pair[1].is('>')) {
        patterns.push(&rest[..arrow]);
        let value = &rest[arrow + 2..];
        let end = match value.first() {
            Some(first) if first.group('{').is_some() => 1 + usize::from(value.get(1).is_some_and(|tree| tree.is(','))),
            _ => value.iter().position(|tree| tree.is(',')).map_or(value.len(), |comma| comma + 1),
        };
        rest = &value[end..];
    }
    patterns
}

/// `_`, or a name for whatever it is, without a condition.
fn stands_for_all(pattern: &[Tree]) -> bool {
    matches!(pattern, [Tree::Word(name, _)] if name.starts_with(|first: char| first == '_' || first.is_lowercase()) && name != "true" && name != "false")
}

fn names_variant(pattern: &[Tree], name: &str) -> bool {
    let mut found = false;
    each_level(pattern, &mut |level| {
        found |= level.windows(3).any(|three| three[0].word() == Some(name) && three[1].is(':') && three[2].is(':'));
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::lex;
    use crate::ratchet::Limits;

    fn found(text: &str) -> Vec<Count> {
        count(&[Source { krate: "k".into(), path: "p".into(), first_line: String::new(), trees: lex(text).unwrap() }])
    }

    #[test]
    fn a_wildcard_beside_a_variant_is_a_complaint() {
        let bad = "fn f() { match c { Some(Command::Attach { .. }) if x => { one() } Some(api::Command::Grow) => a, _ => (), } }";
        assert_eq!(Limits::default().complaints(&found(bad)).len(), 1);
        assert_eq!(found("fn f() { match e { Export::Nbd => match x { _ => 1 }, other => 2 } }").len(), 1);
    }

    #[test]
    fn all_variants_and_other_enums_are_none() {
        assert!(found("fn f() { match c { Command::A(_) => { match x { B => {} _ => {} } } Command::B => 2 } }").is_empty());
        assert!(found("fn f() { match c { Other::A => { Command::A } _ => Command::B } }").is_empty());
    }
}
