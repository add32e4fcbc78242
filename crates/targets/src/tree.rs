//! The tree that a target is set up by: directories, links and small files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// A tree in which the kernel acts on what is made. Paths are relative to its root.
pub trait Tree {
    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// The text of a file, without white space at its end.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Writes to a file that is there, all at once.
    ///
    /// # Errors
    /// The system's: the kernel refuses values so.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;
    /// Makes a directory; what belongs into it is there at once.
    ///
    /// # Errors
    /// The system's.
    fn make(&self, path: &str) -> io::Result<()>;
    /// Removes a directory that has no more in it than what was there at once.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes a link at `path` to the directory `to`, both in this tree.
    ///
    /// # Errors
    /// The system's.
    fn link(&self, to: &str, path: &str) -> io::Result<()>;
    /// Removes a link.
    ///
    /// # Errors
    /// The system's.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Whether there is anything of that name.
    fn exists(&self, path: &str) -> bool;
    /// Whether it is a link.
    fn is_link(&self, path: &str) -> bool;
    /// Makes sure that a directory outside of the tree is there: the kernel keeps files in it.
    ///
    /// # Errors
    /// The system's.
    fn make_outside(&self, path: &Path) -> io::Result<()>;
    /// The text of a file outside of the tree; `None` if it is not there.
    fn read_outside(&self, path: &Path) -> Option<String>;
    /// Remembers that a directory that says nothing of whose it is was made by us.
    ///
    /// # Errors
    /// The system's. Then it stays for ever, which does no harm.
    fn note_made(&self, path: &str) -> io::Result<()>;
    /// It is gone.
    fn forget_made(&self, path: &str);
    /// Whether it was made by us, as far as that is known.
    fn is_made_by_us(&self, path: &str) -> bool;
}

/// The kernel's tree, below the directory where configfs is mounted.
#[derive(Clone, Debug)]
pub struct Configfs {
    root: PathBuf,
    /// Names what was made by us, a path a line; as short-lived as the tree. One at a time changes it.
    ledger: Option<Arc<Mutex<PathBuf>>>,
}

impl Configfs {
    /// The tree that is mounted there.
    pub fn new(root: impl Into<PathBuf>) -> Configfs {
        Configfs { root: root.into(), ledger: None }
    }

    /// With a file that remembers what was made; it must not outlive the machine's start.
    pub fn with_ledger(self, ledger: impl Into<PathBuf>) -> Configfs {
        Configfs { ledger: Some(Arc::new(Mutex::new(ledger.into()))), ..self }
    }

    fn ledger(&self) -> Option<MutexGuard<'_, PathBuf>> {
        self.ledger.as_ref().map(|ledger| ledger.lock().expect("no holder of this lock panics"))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Tree for Configfs {
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(self.at(path))?.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let bytes = fs::read(self.at(path))?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', ' ', '\0']).to_owned())
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        // One write call: the kernel takes each for a whole value.
        let mut file = fs::OpenOptions::new().write(true).open(self.at(path))?;
        let written = io::Write::write(&mut file, value.as_bytes())?;
        if written == value.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn make(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn link(&self, to: &str, path: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(self.at(to), self.at(path))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn exists(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    fn is_link(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok_and(|facts| facts.is_symlink())
    }

    fn make_outside(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn read_outside(&self, path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn note_made(&self, path: &str) -> io::Result<()> {
        let ledger = self.ledger().ok_or(io::ErrorKind::Unsupported)?;
        let mut made = made_of(&ledger);
        made.push(path.to_owned());
        write_made(&ledger, &made)
    }

    fn forget_made(&self, path: &str) {
        let Some(ledger) = self.ledger() else { return };
        let mut made = made_of(&ledger);
        let before = made.len();
        made.retain(|known| known != path);
        if made.len() < before {
            // One too many is looked for again only if somebody makes the same directory.
            let _ = write_made(&ledger, &made);
        }
    }

    fn is_made_by_us(&self, path: &str) -> bool {
        self.ledger().is_some_and(|ledger| made_of(&ledger).iter().any(|known| known == path))
    }
}

fn made_of(ledger: &Path) -> Vec<String> {
    fs::read_to_string(ledger).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn write_made(ledger: &Path, made: &[String]) -> io::Result<()> {
    if let Some(directory) = ledger.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = ledger.with_extension("new");
    fs::write(&new, made.iter().map(|path| format!("{path}\n")).collect::<String>())?;
    fs::rename(new, ledger)
}
