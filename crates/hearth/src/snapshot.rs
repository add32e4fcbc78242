//! Files of the repository that tests compare with what the code says. `HEARTH_UPDATE=1 cargo test -p hearth` writes them anew.

use std::path::{Path, PathBuf};

/// Begins and ends the part of a document that is made by the code.
const MARKS: (&str, &str) = ("<!-- made by the code: begin -->\n", "<!-- made by the code: end -->\n");

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn updating() -> bool {
    std::env::var_os("HEARTH_UPDATE").is_some_and(|value| value == "1")
}

/// The file must be exactly `expected`.
pub fn check(path: &str, expected: &str) {
    if updating() {
        std::fs::write(place(path), expected).expect("the repository can be written");
    }
    let found = std::fs::read_to_string(place(path)).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is not what the code makes (HEARTH_UPDATE=1 writes it anew); the code says:\n{expected}\nthe file:\n{found}"
    );
}

/// The part of the file between the marks must be exactly `expected`.
pub fn check_part(path: &str, expected: &str) {
    let found = std::fs::read_to_string(place(path)).unwrap_or_default();
    let (before, rest) = found.split_once(MARKS.0).unwrap_or_else(|| panic!("{path} has no mark for what the code makes"));
    let (_, after) = rest.split_once(MARKS.1).unwrap_or_else(|| panic!("{path} has no mark for the end of what the code makes"));
    check(path, &format!("{before}{}{expected}{}{after}", MARKS.0, MARKS.1));
}
