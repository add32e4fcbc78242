//! The file that a login is in, and whether it may be used.
//!
//! Clients read it themselves, at each connection: only its path is kept. What stands in it can make
//! a client load code (a plug-in of the client, a program that asks for a password), so it must be
//! out of everybody's reach but root's and the daemon's.

use crate::clients::{Client, client_of};
use crate::trouble::{Reason, Trouble};
use applications::Engine;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A login that may be used, as far as its file tells.
#[derive(Clone, Debug)]
pub struct Login {
    /// How its server is asked.
    pub(crate) client: &'static dyn Client,
    /// The file, without symbolic links on the way.
    pub file: PathBuf,
}

impl Login {
    /// Looks at the file of a login to a server of that engine.
    ///
    /// # Errors
    /// If such servers cannot be asked, if the path is not absolute, if there is no regular file, or if others than root and the user
    /// of this process could read it, change it or put another one in its place.
    pub fn at(engine: Engine, file: &Path) -> Result<Login, Trouble> {
        let shown = file.display();
        let refused = |problem: String, remedy: String| Err(Trouble::new(Reason::LoginFile, problem, remedy));
        let Some(client) = client_of(engine) else {
            let problem = format!("no client is known that asks servers of {}", engine.title());
            return Err(Trouble::new(Reason::NoClient, problem, "its names are those that its pages and files tell"));
        };
        if !file.is_absolute() {
            return refused(format!("{shown} is not an absolute path"), "write the path from the root on".into());
        }
        let canonical = match std::fs::canonicalize(file) {
            Ok(canonical) => canonical,
            Err(error) => {
                return refused(format!("the login file {shown} cannot be opened ({})", plain(&error)), "check the path".into());
            }
        };
        let metadata = match std::fs::metadata(&canonical) {
            Ok(metadata) => metadata,
            Err(error) => {
                return refused(format!("the login file {shown} cannot be looked at ({})", plain(&error)), "check the path".into());
            }
        };
        if !metadata.is_file() {
            return refused(format!("{shown} is not a regular file"), "name the file that the login is in".into());
        }
        if !is_ours(&metadata) {
            let remedy = format!("make it root's with `chown root {shown}`");
            return refused(format!("the login file {shown} belongs to another user"), remedy);
        }
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            let remedy = format!("make it private with `chmod 600 {shown}`");
            return refused(format!("others may use the login file {shown} (its mode is {mode:04o})"), remedy);
        }
        for directory in canonical.ancestors().skip(1) {
            let open = match std::fs::metadata(directory) {
                // In a directory like /tmp nobody moves what is not theirs.
                Ok(metadata) => !is_ours(&metadata) || metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0,
                Err(_) => true,
            };
            if open {
                return refused(
                    format!("others may put a file in the place of {shown}: the directory {} is not root's alone", directory.display()),
                    "move it, for instance to /etc/hearth".into(),
                );
            }
        }
        Ok(Login { client, file: canonical })
    }
}

fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw()
}

/// An error of the kernel without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    }

    /// What is said of a file; empty where it may be used.
    fn said(path: &Path) -> String {
        match Login::at(Engine::Innodb, path) {
            Ok(_) => String::new(),
            Err(trouble) => {
                assert_eq!(trouble.reason, Reason::LoginFile);
                format!("{}; {}", trouble.problem, trouble.remedy)
            }
        }
    }

    #[test]
    fn only_a_private_file_is_a_login() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("login");
        assert!(said(Path::new("login")).contains("not an absolute path"));
        assert!(said(&file).contains("cannot be opened (no such file or directory)"), "{}", said(&file));
        assert!(said(directory.path()).contains("not a regular file"));
        std::fs::write(&file, "[client]\n").expect("written");
        for private in [0o600, 0o400, 0o700] {
            mode(&file, private);
            assert_eq!(said(&file), "");
        }
        for open in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666] {
            mode(&file, open);
            let said = said(&file);
            let expected = format!("(its mode is {open:04o}); make it private with `chmod 600 {}`", file.display());
            assert!(said.contains(&expected), "{said}");
        }
        mode(&file, 0o600);
        let link = directory.path().join("link");
        symlink(&file, &link).expect("a link");
        assert_eq!(Login::at(Engine::Postgres, &link).expect("a login").file, std::fs::canonicalize(&file).expect("its path"));
    }

    #[test]
    fn nobody_may_exchange_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = directory.path().join("open");
        std::fs::create_dir(&open).expect("made");
        let file = open.join("login");
        std::fs::write(&file, "").expect("written");
        mode(&file, 0o600);
        mode(&open, 0o777);
        assert!(said(&file).contains("others may put a file in the place of"));
        mode(&open, 0o1777);
        assert_eq!(said(&file), "");
        mode(&open, 0o755);
        if std::os::unix::fs::chown(&file, Some(65534), None).is_err() {
            println!("skipped: files of others need root");
            return;
        }
        assert!(said(&file).contains("belongs to another user; make it root's with `chown root"));
        std::os::unix::fs::chown(&file, Some(0), None).expect("root's");
        std::os::unix::fs::chown(&open, Some(65534), None).expect("another's");
        assert!(said(&file).contains("is not root's alone; move it"));
    }
}
