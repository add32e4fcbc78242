//! What the daemon makes is for its owner alone, with the most careless umask too; directories that others pass are passable with the strictest.

use crate::support::{Daemon, Place};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn daemon_with_umask(place: &Place, umask: &str) -> Daemon {
    let serve = place.command(&["serve"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("umask {umask}; exec \"$0\" serve")]).arg(serve.get_program()).stdin(Stdio::null());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    place.start(shell)
}

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).expect("it is there").mode() & 0o777
}

fn all_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { [vec![path.clone()], all_below(&path)].concat() } else { vec![path] }).collect()
}

fn assert_private(state: &Path) {
    let found = all_below(state);
    for name in ["state.json", "history.sqlite", "tokens.json", "lock"] {
        assert!(found.contains(&state.join(name)), "{name}: {found:?}");
    }
    for path in found.iter().map(PathBuf::as_path).chain([state]) {
        assert_eq!(mode(path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn the_state_is_private_whatever_the_umask_and_older_files_are_corrected() {
    let place = Place::new();
    let state = PathBuf::from(place.path("state"));
    let daemon = daemon_with_umask(&place, "000");
    let ssd = place.path("ssd.img");
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "64MiB", "--ram", "0"]);
    place.must(&["token", "create", "t", "--role", "view"]);
    assert_private(&state);
    assert_eq!(mode(&ssd), 0o600);
    assert_eq!((mode(place.path("run")), mode(place.path("run/h.sock"))), (0o755, 0o660));
    daemon.stop();
    for path in all_below(&state).iter().chain([&state]) {
        let open = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(open)).expect("it is ours");
    }
    let daemon = daemon_with_umask(&place, "022");
    assert_private(&state);
    daemon.stop();
}

#[test]
fn others_pass_the_directory_of_sockets_with_the_strictest_umask() {
    let place = Place::new();
    let daemon = daemon_with_umask(&place, "077");
    assert_eq!((mode(place.path("run")), mode(place.path("run/h.sock"))), (0o755, 0o660));
    daemon.stop();
}
