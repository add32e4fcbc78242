//! Functions that do not fit on a screen.

use crate::code::{Source, Tree, each_level};
use crate::ratchet::{Count, Kind};

/// Lines of a function at most, from `fn` to its last bracket.
const LONG: Kind = Kind { name: "function", goal: 70, what: "lines" };

/// Every function with its lines.
pub fn count(sources: &[Source]) -> Vec<Count> {
    let mut counts = Vec::new();
    for source in sources {
        each_level(&source.trees, &mut |level| {
            for (name, first, last) in functions(level) {
                let place = format!("{} {name}", source.krate);
                counts.push(Count { kind: LONG, place, found: last + 1 - first, example: format!("{}:{first}", source.path) });
            }
        });
    }
    counts
}

/// Name, first and last line of each function with a body at this level.
fn functions(level: &[Tree]) -> Vec<(&str, usize, usize)> {
    let of = |at: usize| {
        let (Tree::Word(keyword, first), Tree::Word(name, _)) = (&level[at], level.get(at + 1)?) else { return None };
        if keyword != "fn" {
            return None;
        }
        let body = level[at..].iter().take_while(|tree| !tree.is(';')).find_map(|tree| tree.group('{'))?;
        Some((name.as_str(), *first, body.last_line))
    };
    (0..level.len()).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::lex;
    use crate::ratchet::Limits;

    #[test]
    fn a_function_over_the_limit_is_a_complaint() {
        let text = |lines: usize| format!("trait T {{ fn open(&self);\n fn long(x: fn(u8) -> u8) -> u8 {{{}}} }}", "\n".repeat(lines - 1));
        let found = |lines| {
            let source = Source { krate: "k".into(), path: "p".into(), first_line: String::new(), trees: lex(&text(lines)).unwrap() };
            count(&[source])
        };
        assert_eq!(found(70).len(), 1);
        assert!(Limits::default().complaints(&found(70)).is_empty());
        assert_eq!(Limits::default().complaints(&found(71)), ["k long has 71 lines, more than 70 (for instance p:2)"]);
    }
}
