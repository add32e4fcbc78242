//! The content of a directory tree.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// Path below the root → length and hash of a file, or the target of a link.
pub type Tree = BTreeMap<String, String>;

/// Reads every file below `root`.
///
/// # Panics
///
/// If anything there cannot be read.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())) {
            let path = entry.expect("a directory can be listed").path();
            let name = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            let fail = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
            let kind = path.symlink_metadata().unwrap_or_else(|e| fail(e)).file_type();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_symlink() {
                tree.insert(name, std::fs::read_link(&path).unwrap_or_else(|e| fail(e)).display().to_string());
            } else {
                let bytes = std::fs::read(&path).unwrap_or_else(|e| fail(e));
                let mut hash = DefaultHasher::new();
                hash.write(&bytes);
                tree.insert(name, format!("{} bytes, {:016x}", bytes.len(), hash.finish()));
            }
        }
    }
    tree
}

/// Asserts that two trees are the same; names the first differences.
///
/// # Panics
///
/// If they are not.
pub fn assert_same(found: &Tree, wanted: &Tree, when: &str) {
    let names: std::collections::BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differences: Vec<String> = names
        .into_iter()
        .filter(|name| found.get(*name) != wanted.get(*name))
        .map(|name| format!("{name}: {:?} instead of {:?}", found.get(name), wanted.get(name)))
        .collect();
    assert!(differences.is_empty(), "{when}: {} files differ, first {:#?}", differences.len(), &differences[..differences.len().min(5)]);
}
