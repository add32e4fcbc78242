//! A file that is not what was written is renamed, never deleted at once, so that somebody may look at it.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Damaged files kept: the newest. Each may be as large as the limit, and a disk that spoils one file will spoil more.
const KEPT: usize = 2;

/// What SQLite keeps beside a file, and the file.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The path with something put after its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// Renames the file and what lies beside it; where to.
pub(super) fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Numbered within a second, and later than all that are there: the oldest are deleted below.
    let number = others(path).into_iter().filter(|((second, _), _)| *second == now_s).map(|((_, number), _)| number + 1).max();
    let aside = beside(path, &format!(".damaged-{now_s}{}", number.map_or(String::new(), |number| format!(".{number}"))));
    // The file itself last: a write-ahead log that stayed behind would be played into the new file.
    for suffix in SUFFIXES.iter().rev() {
        match std::fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(error) if suffix.is_empty() || error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    delete_old(path);
    Ok(aside)
}

/// Deletes all but the newest. Failing that harms nothing: the next time tries again.
fn delete_old(path: &Path) {
    let mut others = others(path);
    others.sort();
    for (_, path) in others.iter().rev().skip(KEPT) {
        for suffix in SUFFIXES {
            let _ = std::fs::remove_file(beside(path, suffix));
        }
    }
}

/// The files set aside so far, with second and number.
fn others(path: &Path) -> Vec<((u64, u64), PathBuf)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return Vec::new() };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| Some((age(name, entry.file_name().to_str()?)?, entry.path()))).collect()
}

/// Second and number in the name of a file set aside; None for any other file.
fn age(name: &str, candidate: &str) -> Option<(u64, u64)> {
    let when = candidate.strip_prefix(name)?.strip_prefix(".damaged-")?;
    let (second, number) = when.split_once('.').unwrap_or((when, "0"));
    Some((second.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_strangers_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let strangers = ["history.db.damaged-", "history.db.damaged-mine", "other.db.damaged-12"];
        for name in strangers.into_iter().chain(["history.db.damaged-12", "history.db.damaged-12-wal", "history.db.damaged-13"]) {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let mut aside = Vec::new();
        for round in 0..6 {
            std::fs::write(&path, format!("{round}")).unwrap();
            std::fs::write(beside(&path, "-wal"), format!("wal {round}")).unwrap();
            aside.push(set_aside(&path).unwrap());
            assert!(!path.exists() && !beside(&path, "-wal").exists());
        }
        for name in strangers {
            assert!(directory.path().join(name).exists(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(&aside[5]).unwrap(), "5");
        assert_eq!(std::fs::read_to_string(beside(&aside[4], "-wal")).unwrap(), "wal 4");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), strangers.len() + 2 * KEPT);
        assert!(set_aside(&path).is_err(), "nothing is there");
    }
}
