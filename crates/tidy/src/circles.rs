//! Types that are spread over files which all call each other: how many files such a circle has.
//!
//! The files of a type are those with an `impl` block of it. One calls another where it calls a method that the other defines: on
//! `self`, on the type by its name, or on a parameter or field declared as a reference to the type. A circle is a strongly connected part of
//! these calls: to understand one file of it is to understand all.

use crate::code::{Source, Tree, each_level};
use crate::ratchet::{Count, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// A shard's goal: it holds the data's promises, so its rooms have to be the clearest.
const SHARD_GOAL: usize = 6;

/// Files in a circle at most.
const CIRCLE: Kind = Kind { name: "circle", goal: 8, what: "files that all call each other through its methods" };

/// What one file has to do with one type.
#[derive(Default)]
struct Part {
    defines: BTreeSet<String>,
    calls: BTreeSet<String>,
}

/// By crate and type: what its files have to do with it.
fn types_of(sources: &[Source]) -> BTreeMap<(&str, String), BTreeMap<&str, Part>> {
    let mut types: BTreeMap<(&str, String), BTreeMap<&str, Part>> = BTreeMap::new();
    for source in sources {
        for (name, part) in parts_of(&source.trees) {
            types.entry((&source.krate, name)).or_default().insert(&source.path, part);
        }
    }
    types
}

/// The calls within the largest circle of a type, a line for each two files: what has to go so that the circle opens.
pub fn calls_within(sources: &[Source], krate: &str, name: &str) -> Vec<String> {
    let types = types_of(sources);
    let Some(files) = types.get(&(krate, name.to_string())) else { return Vec::new() };
    let circle = largest_circle(files);
    let mut lines = Vec::new();
    for (from, to) in circle.iter().flat_map(|from| circle.iter().map(move |to| (*from, *to))).filter(|(from, to)| from != to) {
        let called: Vec<&str> = files[from].calls.intersection(&files[to].defines).map(String::as_str).collect();
        if !called.is_empty() {
            lines.push(format!("{from} calls {to}: {}", called.join(", ")));
        }
    }
    lines
}

/// The largest circle of each type of each crate.
pub fn count(sources: &[Source]) -> Vec<Count> {
    let mut counts = Vec::new();
    for ((krate, name), files) in types_of(sources) {
        let circle = largest_circle(&files);
        let kind = if name == "Shard" { Kind { goal: SHARD_GOAL, ..CIRCLE } } else { CIRCLE };
        counts.push(Count { kind, place: format!("{krate} {name}"), found: circle.len(), example: circle.join(", ") });
    }
    counts
}

/// The types that a file has `impl` blocks of or mentions as references, and what it defines and calls of each.
fn parts_of(trees: &[Tree]) -> BTreeMap<String, Part> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut names: Vec<(String, String)> = Vec::new();
    each_level(trees, &mut |level| {
        impls(level, &mut |name, body| {
            let part = parts.entry(name.into()).or_default();
            part.defines
                .extend(body.windows(2).filter(|pair| pair[0].word() == Some("fn")).filter_map(|pair| Some(pair[1].word()?.to_string())));
            each_level(body, &mut |inner| {
                calls(inner, &mut |of, method| {
                    if of == "self" || of == "Self" {
                        part.calls.insert(method.into());
                    }
                })
            });
        });
        names.extend(references(level));
    });
    each_level(trees, &mut |level| {
        calls(level, &mut |of, method| {
            let types = names.iter().filter(|(name, _)| name == of).map(|(_, of_type)| of_type.as_str());
            for name in types.chain([of]).filter(|name| name.starts_with(char::is_uppercase) && *name != "Self") {
                parts.entry(name.into()).or_default().calls.insert(method.into());
            }
        });
    });
    parts
}

/// Calls `found` with the type and the body of each `impl` block at this level.
fn impls<'a>(level: &'a [Tree], found: &mut impl FnMut(&'a str, &'a [Tree])) {
    for (at, _) in level.iter().enumerate().filter(|(_, tree)| tree.word() == Some("impl")) {
        let Some((head, body)) =
            level[at + 1..].iter().enumerate().find_map(|(end, tree)| Some((&level[at + 1..at + 1 + end], tree.group('{')?)))
        else {
            continue;
        };
        // The last name outside of angle brackets, before `where`: of `impl<T> Trait<X> for a::Type<Y>` that is `Type`.
        let (mut depth, mut name, mut arrow) = (0i32, None, false);
        for tree in head.iter().take_while(|tree| tree.word() != Some("where")) {
            match tree {
                Tree::Sign('<') => depth += 1,
                Tree::Sign('>') if !arrow => depth -= 1,
                Tree::Word(word, _) if depth == 0 => name = Some(word.as_str()),
                _ => (),
            }
            arrow = tree.is('-');
        }
        if let Some(name) = name.filter(|name| name.starts_with(char::is_uppercase)) {
            found(name, &body.trees);
        }
    }
}

/// Names declared as references to a type: `world: &mut World`.
fn references(level: &[Tree]) -> Vec<(String, String)> {
    let of = |at: usize| {
        let name = level[at].word()?;
        if !level.get(at + 1)?.is(':') || !level.get(at + 2)?.is('&') {
            return None;
        }
        let mut rest = &level[at + 3..];
        if rest.first()?.is('\'') {
            rest = &rest[2..];
        }
        let rest = rest.iter().find(|tree| tree.word() != Some("mut"))?.word()?;
        rest.starts_with(char::is_uppercase).then(|| (name.to_string(), rest.to_string()))
    };
    (0..level.len()).filter_map(of).collect()
}

/// Calls `found` with the receiver and the method of `a.b(..)`, `A::b`.
fn calls<'a>(level: &'a [Tree], found: &mut impl FnMut(&'a str, &'a str)) {
    for at in 0..level.len() {
        let Some(of) = level[at].word() else { continue };
        let rest = &level[at + 1..];
        match rest {
            [dot, Tree::Word(method, _), next, ..] if dot.is('.') && (next.group('(').is_some() || next.is(':')) => found(of, method),
            [one, two, Tree::Word(method, _), ..] if one.is(':') && two.is(':') => found(of, method),
            _ => (),
        }
    }
}

/// The files of the largest strongly connected part.
fn largest_circle<'a>(files: &BTreeMap<&'a str, Part>) -> Vec<&'a str> {
    let own: Vec<(&&str, &Part)> = files.iter().filter(|(_, part)| !part.defines.is_empty()).collect();
    let reached: Vec<BTreeSet<usize>> = (0..own.len())
        .map(|from| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(at) = open.pop() {
                for to in 0..own.len() {
                    if to != at && !own[to].1.defines.is_disjoint(&own[at].1.calls) && seen.insert(to) {
                        open.push(to);
                    }
                }
            }
            seen
        })
        .collect();
    let circle =
        |at: usize| (0..own.len()).filter(|other| reached[at].contains(other) && reached[*other].contains(&at)).collect::<Vec<_>>();
    let largest = (0..own.len()).map(circle).max_by_key(Vec::len).unwrap_or_default();
    largest.into_iter().map(|at| *own[at].0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::lex;
    use crate::ratchet::Limits;

    fn found(files: &[(&str, &str)]) -> Vec<Count> {
        let source = |(path, text): &(&str, &str)| Source {
            krate: "k".into(),
            path: path.to_string(),
            first_line: String::new(),
            trees: lex(text).unwrap(),
        };
        count(&files.iter().map(source).collect::<Vec<_>>())
    }

    #[test]
    fn files_that_call_each_other_are_a_circle_and_others_are_not() {
        let files = [
            ("a", "impl Shard { fn a(&self) { self.b(); self.d() } }"),
            ("b", "impl<T: Into<u8>> Read<T> for Shard where T: Copy { fn b(&self) { assert!(self.c::<u8>()) } }"),
            (
                "c",
                "impl Shard { fn c(&self) -> bool { Self::helper() } fn helper() -> bool { true } } fn free(shard: &mut Shard) { shard.a() }",
            ),
            ("d", "impl Shard { fn d(&self) { self.field.a() } }"),
        ];
        let counts = found(&files);
        assert_eq!((counts[0].place.as_str(), counts[0].found, counts[0].example.as_str()), ("k Shard", 3, "a, b, c"));
    }

    #[test]
    fn a_circle_that_grows_is_a_complaint() {
        let ring = |size: usize| {
            let texts: Vec<_> = (0..size)
                .map(|at| (format!("f{at}"), format!("impl Manager {{ fn m{at}(&self) {{ self.m{}() }} }}", (at + 1) % size)))
                .collect();
            found(&texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
        };
        let limits = Limits::of("circle k Manager 10\n").unwrap();
        assert!(limits.complaints(&ring(10)).is_empty());
        assert_eq!(limits.complaints(&ring(11)).len(), 1);
        assert_eq!(Limits::default().complaints(&ring(9)).len(), 1);
    }
}
