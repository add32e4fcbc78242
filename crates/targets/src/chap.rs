//! Secrets for iSCSI (CHAP), from a file that only the administrator can read.
//!
//! ```text
//! # what initiators must know
//! user = db-host
//! password = at-least-12-bytes
//! # what the target must know (mutual CHAP)
//! mutual_user = hearth
//! mutual_password = another-secret-1
//! ```
//! No secret ever stands in a message: a line that is wrong is named by its number.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Shortest secret, in bytes: initiators refuse shorter ones (RFC 7143, 9.2.1, asks for 96 bits).
const SECRET_BYTES_MIN: usize = 12;
/// Longest name and secret that the kernel takes.
const SECRET_BYTES_MAX: usize = 255;
/// Longest file.
const FILE_BYTES_MAX: u64 = 4096;

/// Names and secrets. Its `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Chap {
    user: String,
    password: String,
    mutual: Option<(String, String)>,
}

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chap").field("user", &self.user).field("mutual", &self.mutual.is_some()).finish_non_exhaustive()
    }
}

/// Why a file of secrets is not taken: a clause that goes after its path, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct ChapError {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl Chap {
    /// Reads the file.
    ///
    /// # Errors
    /// Also if others than its owner may read it, or if it is not this user's.
    pub fn read(path: &Path) -> Result<Chap, ChapError> {
        let wrong = |problem: String, remedy: String| ChapError { problem, remedy };
        let shown = path.display();
        let unreadable = |e: io::Error| wrong(format!("cannot be read ({e})"), "give the path of a file on the daemon's machine".into());
        let file = rustix::fs::open(
            path,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK,
            rustix::fs::Mode::empty(),
        );
        let mut file = File::from(file.map_err(|e| unreadable(e.into()))?);
        let facts = file.metadata().map_err(unreadable)?;
        if !facts.is_file() {
            return Err(wrong("is not a regular file".into(), "give the path of a file".into()));
        }
        let me = rustix::process::geteuid().as_raw();
        if facts.uid() != me && facts.uid() != 0 {
            return Err(wrong("belongs to another user".into(), format!("run `chown root {shown}`")));
        }
        if facts.mode() & 0o077 != 0 {
            return Err(wrong("can be read by others than its owner".into(), format!("run `chmod 600 {shown}`")));
        }
        if facts.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("is larger than {FILE_BYTES_MAX} bytes"), "see the format in docs/shares.md".into()));
        }
        let mut text = String::new();
        let read = (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|_| wrong("is not a text file".into(), "see the format in docs/shares.md".into()))?;
        Chap::parse(&text)
    }

    /// Reads its text.
    ///
    /// # Errors
    /// What is wrong, without any of what stands there.
    pub fn parse(text: &str) -> Result<Chap, ChapError> {
        let wrong = |problem: String| ChapError {
            problem,
            remedy: "write lines `user = NAME` and `password = SECRET`, for mutual CHAP also `mutual_user` and `mutual_password`".into(),
        };
        let mut values: [Option<String>; 4] = Default::default();
        const KEYS: [&str; 4] = ["user", "password", "mutual_user", "mutual_password"];
        for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| wrong(format!("has no `=` in line {number}")))?;
            let at =
                KEYS.iter().position(|known| *known == key.trim()).ok_or_else(|| wrong(format!("has an unknown key in line {number}")))?;
            let value = value.trim();
            let printable = value.bytes().all(|b| (0x21..0x7f).contains(&b));
            if value.is_empty() || value.len() > SECRET_BYTES_MAX || !printable {
                return Err(wrong(format!("has a value in line {number} that is empty, too long, or not plain ASCII without spaces")));
            }
            let is_secret = at % 2 == 1;
            if is_secret && value.len() < SECRET_BYTES_MIN {
                return Err(ChapError {
                    problem: format!("has a secret in line {number} that is shorter than {SECRET_BYTES_MIN} characters"),
                    remedy: "use 12 to 16 characters: initiators of Windows take no longer ones".into(),
                });
            }
            if values[at].replace(value.to_owned()).is_some() {
                return Err(wrong(format!("repeats a key in line {number}")));
            }
        }
        let [user, password, mutual_user, mutual_password] = values;
        let (Some(user), Some(password)) = (user, password) else { return Err(wrong("lacks a user or its password".into())) };
        let mutual = match (mutual_user, mutual_password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => return Err(wrong("lacks the other half of mutual CHAP".into())),
        };
        if mutual.as_ref().is_some_and(|(_, secret)| *secret == password) {
            return Err(ChapError {
                problem: "has the same secret for both sides".into(),
                remedy: "use two: initiators refuse one".into(),
            });
        }
        Ok(Chap { user, password, mutual })
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    pub(crate) fn mutual(&self) -> Option<(&str, &str)> {
        self.mutual.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const GOOD: &str = "# for the database\nuser = db\npassword = secret-secret\n\nmutual_user=hearth\nmutual_password = other-secret1\n";

    #[test]
    fn both_sides_are_read_and_no_secret_is_shown() {
        let chap = Chap::parse(GOOD).expect("well-formed");
        assert_eq!((chap.user(), chap.password()), ("db", "secret-secret"));
        assert_eq!(chap.mutual(), Some(("hearth", "other-secret1")));
        let shown = format!("{chap:?}");
        assert!(!shown.contains("secret-") && !shown.contains("other-secret"), "{shown}");
        assert_eq!(Chap::parse("user=a\npassword=0123456789ab").expect("one side is enough").mutual(), None);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_without_what_stands_there() {
        for (text, told) in [
            ("", "lacks a user"),
            ("user = a", "lacks a user or its password"),
            ("user = a\nhunter2hunter2", "no `=` in line 2"),
            ("user = a\npasswort = hunter2hunter2", "unknown key in line 2"),
            ("user = a\npassword = hunter2", "line 2 that is shorter"),
            ("user = a\npassword = hunter2 hunter2", "line 2"),
            ("user = a\nuser = hunter2hunter2", "repeats a key in line 2"),
            ("user = a\npassword = hunter2hunter2\nmutual_user = b", "other half"),
            ("user = a\npassword = hunter2hunter2\nmutual_user = b\nmutual_password = hunter2hunter2", "same secret"),
        ] {
            let error = Chap::parse(text).expect_err(text);
            assert!(error.problem.contains(told), "{text}: {error:?}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("chap");
        std::fs::write(&path, GOOD).expect("there is room");
        for mode in [0o644, 0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
            assert!(Chap::read(&path).expect_err("others can read it").remedy.contains("chmod 600"));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        assert!(Chap::read(&path).expect("private").mutual().is_some());
        assert!(Chap::read(directory.path()).expect_err("no file").problem.contains("regular file"));
        assert!(Chap::read(&directory.path().join("none")).expect_err("none").problem.contains("cannot be read"));
    }
}
