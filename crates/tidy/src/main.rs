//! What a machine can check about the house, it checks: floors, room sizes, walls, leftovers, words. Run by `make tidy`.
//!
//! Some of it is counted beside limits ([`ratchet`]). `tidy --tighten` lowers these to what is found. `tidy --calls CRATE TYPE` lists the
//! calls that hold the largest circle of a type together.
#![forbid(unsafe_code)]

mod cells;
mod circles;
mod code;
mod floors;
mod functions;
mod leftovers;
mod ratchet;
mod rooms;
mod wildcards;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The lines of `limits.txt` that say what it is.
const HEAD: &str = "\
# Limits for what is not yet as it should be: a kind, a place, a number. They may be lowered, not raised;
# `cargo run -p tidy -- --tighten` lowers them to what is found. Goals, for what has no line here:
# circle      files of one type that all call each other: 8 (of a shard 6)
# function    lines of a function: 70
# wildcard    `_` in a match over commands, exports and engines: 0
# cells       table cells of more than 400 characters: 0
# phrases     phrases that readers stumble over, in strings and documents: 0
# words       words of the dialect in strings, first lines of files and documents: 0
";

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = files(&root.join("crates"), "rs");
    let sources = code::shipped(&root, &files);
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [option, krate, name] = &words[..]
        && option == "--calls"
    {
        circles::calls_within(&sources, krate, name).iter().for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    let documents = documents(&root);
    let mut complaints = floors::check(&root);
    complaints.extend(rooms::check(&root, &files));
    complaints.extend(leftovers::check(&root, &files));
    complaints.extend(words::check(&documents));
    let mut counts = circles::count(&sources);
    counts.extend(functions::count(&sources));
    counts.extend(wildcards::count(&sources));
    counts.extend(cells::count(&documents));
    counts.extend(words::count(&documents, &sources));
    complaints.extend(hold(&root.join("crates/tidy/limits.txt"), &counts));
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    println!("tidy: {} files looked at, {} complaints", files.len(), complaints.len());
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Complaints about counts above their limits. With `--tighten`, limits above their counts are lowered.
fn hold(file: &Path, counts: &[ratchet::Count]) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let limits = match ratchet::Limits::of(&text) {
        Ok(limits) => limits,
        Err(error) => return vec![format!("limits.txt: {error}")],
    };
    if std::env::args().any(|word| word == "--tighten") {
        if let Err(error) = std::fs::write(file, limits.tightened(HEAD, counts)) {
            return vec![format!("limits.txt cannot be written: {error}")];
        }
    } else if limits.slack(counts) > 0 {
        println!("tidy: {} limits could be lower: `cargo run -p tidy -- --tighten`", limits.slack(counts));
    }
    limits.complaints(counts)
}

/// Documents for users and for those who work on hearth, by their paths: those at the top, and all below `docs`.
fn documents(root: &Path) -> Vec<(String, String)> {
    let at_top = ["ARCHITECTURE.md", "CHANGELOG.md", "README.md"].map(|name| root.join(name));
    let all = at_top.into_iter().chain(files(&root.join("docs"), "md"));
    all.map(|path| (shown(root, &path), std::fs::read_to_string(&path).unwrap_or_default())).collect()
}

/// Every file below a directory whose name ends so, sorted.
fn files(below: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![below.to_path_buf()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|is| is == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A path as the reader knows it: relative to the repository.
fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
