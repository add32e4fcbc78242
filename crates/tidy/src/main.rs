//! What a machine can check about the house, it checks: floors, room sizes, leftovers, words of documents. Run by `make tidy`.
#![forbid(unsafe_code)]

mod floors;
mod leftovers;
mod rooms;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = sources(&root.join("crates"));
    let mut complaints = floors::check(&root);
    complaints.extend(rooms::check(&root, &files));
    complaints.extend(leftovers::check(&root, &files));
    complaints.extend(words::check(&root, &files));
    for complaint in &complaints {
        println!("tidy: {complaint}");
    }
    println!("tidy: {} files looked at, {} complaints", files.len(), complaints.len());
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every Rust file below a directory, sorted.
fn sources(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![below.to_path_buf()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
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
