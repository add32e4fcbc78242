//! Where the other program is: `hearth` starts `hearth-evaluate`, which starts `hearth`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// `hearth evaluate` is this program.
pub const EVALUATE: &str = "hearth-evaluate";
/// Where the package has it: it is no command by itself.
pub const EVALUATE_PACKAGED: &str = "/usr/libexec/hearth/hearth-evaluate";
/// The daemon and its command line.
pub const HEARTH: &str = "hearth";
/// Where the package has that.
pub const HEARTH_PACKAGED: &str = "/usr/bin/hearth";
/// Environment variable with the path of the `hearth` that started `hearth-evaluate`: the one to evaluate.
pub const HEARTH_PATH: &str = "HEARTH_PROGRAM";

/// A program of ours: beside this one, as a build leaves them; where the package has it; or in `PATH`.
pub fn find(name: &str, packaged: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(|place| place.join(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    first(beside.into_iter().chain([packaged.into()]).chain(std::env::split_paths(&path).map(|place| place.join(name))))
}

fn first(places: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    // A relative place in PATH would depend on where it is started.
    places.filter(|path| path.is_absolute()).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_run_is_taken() {
        let place = tempfile::tempdir().expect("a directory");
        let [text, program, later] = ["text", "program", "later"].map(|name| place.path().join(name));
        for path in [&text, &program, &later] {
            std::fs::write(path, "").expect("there is room");
        }
        for path in [&program, &later] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let places = [PathBuf::from("relative"), place.path().join("missing"), place.path().into(), text, program.clone(), later];
        assert_eq!(first(places.into_iter()), Some(program));
        assert_eq!(first(std::iter::empty()), None);
    }
}
