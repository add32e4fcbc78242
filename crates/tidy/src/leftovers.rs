//! Things that must not stay behind: unfinished code, swallowed errors, tests switched off, paths of one machine.

use crate::shown;
use std::path::{Path, PathBuf};

/// What is looked for, and why it is not wanted. Put together from halves so that this file does not complain about itself.
fn unwanted() -> Vec<(String, &'static str)> {
    [
        ("todo", "!(", "unfinished"),
        ("unimpl", "emented!(", "unfinished"),
        ("TO", "DO", "unfinished"),
        ("FIX", "ME", "unfinished"),
        ("dbg", "!(", "left from a search for a fault"),
        ("#[ig", "nore", "a test that is switched off proves nothing"),
        ("assert!(tr", "ue", "a test that cannot fail proves nothing"),
        ("\"/wo", "rk/", "a path of one machine"),
        ("<<<<<", "<< ", "left from a merge"),
    ]
    .map(|(one, two, why)| (format!("{one}{two}"), why))
    .into()
}

/// Complaints, one a line found.
pub fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let unwanted = unwanted();
    let mut complaints = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        for (number, line) in text.lines().enumerate() {
            for (needle, why) in &unwanted {
                if line.contains(needle.as_str()) {
                    complaints.push(format!("{}:{}: {needle} ({why})", shown(root, file), number + 1));
                }
            }
        }
    }
    complaints
}
