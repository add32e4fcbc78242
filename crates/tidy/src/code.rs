//! Rust sources as trees of words, signs and groups: enough to see functions, `impl` blocks and `match` arms.

use crate::shown;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::{Path, PathBuf};

/// One token, or all between two brackets.
#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    /// A name or a keyword, and its line.
    Word(String, usize),
    /// One character of an operator.
    Sign(char),
    /// What stands between the quotes of a string, and its line.
    Text(String, usize),
    /// Any other literal.
    Number,
    /// What stands between brackets.
    Group(Group),
}

/// What stands between brackets.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// `(`, `[` or `{`; a blank where a macro's value has no brackets of its own.
    pub bracket: char,
    /// Within.
    pub trees: Vec<Tree>,
    /// The line of the closing bracket.
    pub last_line: usize,
}

/// A source file of a crate, without what only tests compile.
pub struct Source {
    /// The crate's directory below `crates/`.
    pub krate: String,
    /// Relative to the repository.
    pub path: String,
    /// Its first line.
    pub first_line: String,
    /// Its tokens.
    pub trees: Vec<Tree>,
}

/// Reads the files below `crates/*/src` that ship. Files that tests alone compile are left out; so is what does not lex, which the
/// compiler complains about.
pub fn shipped(root: &Path, files: &[PathBuf]) -> Vec<Source> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let parts: Vec<Vec<(PathBuf, Vec<PathBuf>, Source)>> = std::thread::scope(|scope| {
        let part = |one: usize| files.iter().skip(one).step_by(threads).filter_map(|file| read(root, file)).collect();
        let running: Vec<_> = (0..threads).map(|one| scope.spawn(move || part(one))).collect();
        running.into_iter().map(|thread| thread.join().expect("a file that does not lex is left out, without a panic")).collect()
    });
    let mut all: Vec<_> = parts.into_iter().flatten().collect();
    let of_tests: Vec<PathBuf> = all.iter().flat_map(|(_, of_tests, _)| of_tests.clone()).collect();
    all.retain(|(file, _, _)| !of_tests.iter().any(|module| file.starts_with(module) || *file == module.with_extension("rs")));
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all.into_iter().map(|(_, _, source)| source).collect()
}

/// A file, and the modules of it that only tests compile (as paths without `.rs`).
fn read(root: &Path, file: &Path) -> Option<(PathBuf, Vec<PathBuf>, Source)> {
    let path = shown(root, file);
    let mut parts = path.split('/');
    let (_, krate, "src") = (parts.next()?, parts.next()?.to_string(), parts.next()?) else { return None };
    let text = std::fs::read_to_string(file).ok()?;
    let trees = lex(&text)?;
    let below = if matches!(file.file_name()?.to_str()?, "mod.rs" | "lib.rs" | "main.rs") {
        file.parent()?.into()
    } else {
        file.with_extension("")
    };
    let mut names = Vec::new();
    let trees = without_tests(trees, &mut names);
    let of_tests = names.iter().map(|name| below.join(name)).collect();
    Some((file.into(), of_tests, Source { krate, path, first_line: text.lines().next().unwrap_or_default().into(), trees }))
}

/// The tokens of a text, if it is Rust.
pub fn lex(text: &str) -> Option<Vec<Tree>> {
    let stream: TokenStream = text.parse().ok()?;
    Some(trees(stream))
}

fn trees(stream: TokenStream) -> Vec<Tree> {
    let tree = |token: TokenTree| match token {
        TokenTree::Ident(word) => Tree::Word(word.to_string(), word.span().start().line),
        TokenTree::Punct(sign) => Tree::Sign(sign.as_char()),
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            match text.find('"').filter(|at| text[..*at].trim_end_matches('#').trim_start_matches('r').is_empty()) {
                Some(at) => Tree::Text(text[at + 1..].trim_end_matches(['"', '#']).into(), literal.span().start().line),
                None => Tree::Number,
            }
        }
        TokenTree::Group(group) => Tree::Group(Group {
            bracket: match group.delimiter() {
                Delimiter::Parenthesis => '(',
                Delimiter::Bracket => '[',
                Delimiter::Brace => '{',
                Delimiter::None => ' ',
            },
            last_line: group.span_close().start().line,
            trees: trees(group.stream()),
        }),
    };
    stream.into_iter().map(tree).collect()
}

/// Words that begin an item.
const ITEMS: [&str; 9] = ["const", "enum", "fn", "impl", "mod", "static", "struct", "trait", "use"];

/// Leaves out every item behind `#[cfg(test)]`; names of modules in files of their own are added to `modules`.
fn without_tests(trees: Vec<Tree>, modules: &mut Vec<String>) -> Vec<Tree> {
    let mut kept = Vec::with_capacity(trees.len());
    let mut left = trees.into_iter();
    while let Some(tree) = left.next() {
        if !is_cfg_test(&tree) {
            kept.push(match tree {
                Tree::Group(group) => Tree::Group(Group { trees: without_tests(group.trees, modules), ..group }),
                other => other,
            });
            continue;
        }
        if kept.last().is_some_and(|sign| sign.is('!')) {
            return Vec::new();
        }
        kept.pop();
        let (mut before, mut is_item) = (None, false);
        for tree in left.by_ref() {
            // A field or an arm ends with a comma; an item may have some before its body.
            is_item |= tree.word().is_some_and(|word| ITEMS.contains(&word));
            let ends = tree.is(';') || tree.is(',') && !is_item || tree.group('{').is_some();
            if let (Some("mod"), Some(name)) = (before.as_ref().and_then(Tree::word), tree.word()) {
                modules.push(name.into());
            }
            before = Some(tree);
            if ends {
                break;
            }
        }
    }
    kept
}

/// `[cfg(test)]`, or a `cfg` that needs `test` beside other things.
fn is_cfg_test(tree: &Tree) -> bool {
    let Some(attribute) = tree.group('[') else { return false };
    let [cfg, Tree::Group(condition)] = &attribute.trees[..] else { return false };
    let inner = match &condition.trees[..] {
        [all, Tree::Group(parts)] if all.word() == Some("all") => &parts.trees,
        _ => &condition.trees,
    };
    cfg.word() == Some("cfg") && inner.iter().any(|tree| tree.word() == Some("test"))
}

impl Tree {
    /// The name, if it is one.
    pub fn word(&self) -> Option<&str> {
        if let Tree::Word(word, _) = self { Some(word) } else { None }
    }

    /// The group, if it has these brackets.
    pub fn group(&self, bracket: char) -> Option<&Group> {
        if let Tree::Group(group) = self { Some(group).filter(|group| group.bracket == bracket) } else { None }
    }

    /// Whether it is this sign.
    pub fn is(&self, sign: char) -> bool {
        *self == Tree::Sign(sign)
    }
}

/// Calls `look` with the trees of a file and of every group in it.
pub fn each_level<'a>(trees: &'a [Tree], look: &mut impl FnMut(&'a [Tree])) {
    look(trees);
    for tree in trees {
        if let Tree::Group(group) = tree {
            each_level(&group.trees, look);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_alone_compile_is_left_out() {
        let text = "fn a() {} #[cfg(test)] mod tests; #[cfg(all(test, unix))] mod more { fn b() {} } #[cfg(test)] fn d<A, B>() {} #[cfg(not(test))] fn c() {}";
        let mut modules = Vec::new();
        let kept = without_tests(lex(text).unwrap(), &mut modules);
        let words: Vec<_> = kept.iter().filter_map(Tree::word).collect();
        assert_eq!(words, ["fn", "a", "fn", "c"]);
        assert_eq!(modules, ["tests", "more"]);
    }

    #[test]
    fn strings_are_told_from_bytes_and_have_their_lines() {
        let trees = lex("\"one\"\nr#\"two\"#\nb\"no\" 'c'").unwrap();
        assert_eq!(trees, [Tree::Text("one".into(), 1), Tree::Text("two".into(), 2), Tree::Number, Tree::Number]);
    }
}
