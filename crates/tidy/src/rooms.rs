//! Rooms that have grown too large to hold in mind. A ratchet: the limit may be lowered, not raised.

use crate::shown;
use std::path::{Path, PathBuf};

/// Lines of a source file at most.
const LINES_MAX: usize = 700;

/// Complaints about files over the limit, and about rooms without a word at the door.
pub fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let lines = text.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{} has {lines} lines, more than {LINES_MAX}: make it two rooms", shown(root, file)));
        }
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
        let said = first.starts_with("//!") || first.starts_with("#!");
        if !said {
            complaints.push(format!("{} does not say in its first line what it is for", shown(root, file)));
        }
    }
    complaints
}
