//! Modes of files and directories: the state is for its owner alone, the places where others look for devices and sockets are passable.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// How the names begin that the daemon gives to files in its state directory. Others may keep their own files there, such as SSD images.
const OWN_NAMES: [&str; 9] = ["state.json", "tokens.json", "sessions.json", "history.sqlite", "preload-", "insight", "lock", "tls", "pki"];

/// The bits of a mode that concern anybody but the owner.
const OTHERS: u32 = 0o077;
/// Set on directories that everybody shares, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Takes from the state directory, and from the daemon's own files in it, all rights of other users. Until this was so, their modes
/// depended on the umask of the process that started the daemon. Returns what could not be corrected, a sentence for each.
pub fn make_private(state_directory: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    match std::fs::metadata(state_directory) {
        Ok(found) if found.mode() & STICKY != 0 => problems.push(format!(
            "the state directory {} is shared with other users: give the daemon a directory of its own with --state DIR",
            state_directory.display()
        )),
        Ok(found) => restrict(state_directory, found.mode(), &mut problems),
        Err(error) => problems.push(sentence(state_directory, &error)),
    }
    restrict_within(state_directory, &|name| OWN_NAMES.iter().any(|own| name.starts_with(own)), &mut problems);
    problems
}

fn restrict_within(directory: &Path, is_own: &dyn Fn(&str) -> bool, problems: &mut Vec<String>) {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return problems.push(sentence(directory, &error)),
    };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_own)) {
        // Of the entry itself: a link leads to what is not ours.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            restrict(&entry.path(), found.mode(), problems);
            restrict_within(&entry.path(), &|_| true, problems);
        } else if found.is_file() {
            restrict(&entry.path(), found.mode(), problems);
        }
    }
}

fn restrict(path: &Path, mode: u32, problems: &mut Vec<String>) {
    if mode & OTHERS != 0
        && let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OTHERS))
    {
        problems.push(sentence(path, &error));
    }
}

fn sentence(path: &Path, error: &io::Error) -> String {
    format!("other users may be able to read {} ({error}): correct it with chmod go= {0}", path.display())
}

/// Makes a directory that everybody may pass (mode 0755, with its parents), whatever the umask. One that is there stays as it is.
///
/// # Errors
/// What the file system says.
pub fn make_passable(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_passable(parent)?;
    }
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(0o755)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    #[test]
    fn old_modes_are_corrected_and_the_files_of_others_stay() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let state = directory.path();
        let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        let own = ["state.json", "state.json.damaged.0", "history.sqlite", "history.sqlite-wal", "tokens.json", "lock", "tls/key.pem"];
        std::fs::create_dir(state.join("tls")).expect("there is room");
        for name in own.iter().chain(&["ssd.img", "elsewhere"]) {
            std::fs::write(state.join(name), "").expect("there is room");
            set(&state.join(name), 0o664);
        }
        std::os::unix::fs::symlink(state.join("elsewhere"), state.join("state.json.link")).expect("a link");
        set(&state.join("tls"), 0o755);
        set(state, 0o755);
        assert_eq!(make_private(state), Vec::<String>::new());
        own.iter().for_each(|name| assert_eq!(mode(&state.join(name)), 0o600, "{name}"));
        assert_eq!((mode(state), mode(&state.join("tls"))), (0o700, 0o700));
        assert_eq!((mode(&state.join("ssd.img")), mode(&state.join("elsewhere"))), (0o664, 0o664));
    }

    #[test]
    fn a_shared_directory_stays_shared_and_is_told() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).expect("it is ours");
        let problems = make_private(directory.path());
        assert!(problems.len() == 1 && problems[0].contains("shared with other users"), "{problems:?}");
        assert_eq!(mode(directory.path()), 0o1777);
    }

    #[test]
    fn a_passable_directory_is_passable_with_its_parents() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let inner = directory.path().join("a/b");
        make_passable(&inner).expect("there is room");
        assert_eq!((mode(&inner), mode(inner.parent().expect("it has one"))), (0o755, 0o755));
        make_passable(&inner).expect("it is there");
    }
}
