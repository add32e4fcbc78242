//! The directory with what is kept of watches over a restart: a file for each, replaced as a whole.

use super::saved::Key;
use analysis::saved::BYTES_MAX;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory below the state's.
const DIRECTORY: &str = "insight";
/// Names that are looked at; hearth writes far fewer.
const ENTRIES_MAX: usize = 4096;

/// See the module.
pub struct Files {
    directory: PathBuf,
    there: BTreeSet<Key>,
    /// Of these a file was set aside.
    aside: BTreeSet<Key>,
}

/// Why there is no content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unread {
    /// It is not what was written, in words.
    Wrong(String),
    /// It cannot be read now, in words: there may be nothing wrong with it.
    Now(String),
}

impl Files {
    /// Those below a state directory. Nothing is made before something is written.
    pub fn open(state_directory: &Path) -> Files {
        let directory = state_directory.join(DIRECTORY);
        let (mut there, mut aside) = (BTreeSet::new(), BTreeSet::new());
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten().take(ENTRIES_MAX) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(key) = Key::of_file(name) {
                there.insert(key);
            } else if let Some(key) = name.strip_suffix(".damaged").and_then(Key::of_file) {
                aside.insert(key);
            } else if name.strip_suffix(".new").and_then(Key::of_file).is_some() {
                // A write that was cut short.
                drop(std::fs::remove_file(entry.path()));
            }
        }
        Files { directory, there, aside }
    }

    /// Whose there are.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.there.iter()
    }

    /// The same, and those of which a file was set aside.
    pub fn all_keys(&self) -> impl Iterator<Item = &Key> {
        self.there.union(&self.aside)
    }

    /// The content of a watch's file; `None` if there is none.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read(&self, key: &Key) -> Result<Option<Vec<u8>>, Unread> {
        if !self.there.contains(key) {
            return Ok(None);
        }
        let path = self.path(key);
        let read = || -> io::Result<Option<Vec<u8>>> {
            // Not what a link leads to, and nothing that would keep the reader.
            if !std::fs::symlink_metadata(&path)?.is_file() {
                return Err(io::Error::new(ErrorKind::InvalidData, "it is not a file"));
            }
            let mut bytes = Vec::new();
            File::open(&path)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
            if bytes.len() > BYTES_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, format!("it has more than {BYTES_MAX} bytes")));
            }
            Ok(Some(bytes))
        };
        match read() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => Err(Unread::Wrong(error.to_string())),
            other => other.map_err(|error| Unread::Now(error.to_string())),
        }
    }

    /// Replaces a watch's file durably.
    ///
    /// # Errors
    /// Then the old content is there or the new one, whole.
    pub fn write(&mut self, key: &Key, bytes: &[u8]) -> Result<(), String> {
        let (path, fresh) = (self.path(key), self.directory.join(format!("{}.new", key.file_name())));
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)
        };
        let mut written = write();
        if written.is_ok() {
            self.there.insert(key.clone());
            written = self.sync();
        } else {
            // What there is of it takes room where there may be none.
            drop(std::fs::remove_file(&fresh));
        }
        written.map_err(|error| format!("{} cannot be written ({error})", path.display()))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    /// Renames a watch's file, so that it is not read again, in place of an earlier one. Where it is now, in words.
    pub fn set_aside(&mut self, key: &Key) -> String {
        let path = self.path(key);
        let aside = self.directory.join(format!("{}.damaged", key.file_name()));
        self.there.remove(key);
        self.aside.insert(key.clone());
        match std::fs::rename(&path, &aside) {
            Ok(()) => format!("the file was renamed to {}", aside.display()),
            Err(error) => format!("{} cannot be renamed ({error})", path.display()),
        }
    }

    /// Removes what there is of a watch, durably. Whether there was something.
    pub fn remove(&mut self, key: &Key) -> bool {
        let aside = self.directory.join(format!("{}.damaged", key.file_name()));
        let paths = [self.there.remove(key).then(|| self.path(key)), self.aside.remove(key).then_some(aside)];
        let mut was_there = false;
        for path in paths.into_iter().flatten() {
            match std::fs::remove_file(&path) {
                Ok(()) => was_there = true,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => tracing::warn!("{} cannot be removed: {error}", path.display()),
            }
        }
        // Or it would be back, and watch again, after a power failure.
        if was_there && let Err(error) = self.sync() {
            tracing::warn!("{} cannot be synced: {error}", self.directory.display());
        }
        was_there
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(key.file_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use uuid::Uuid;

    #[test]
    fn a_file_is_replaced_whole_private_and_gone_when_it_is_forgotten() {
        let place = tempfile::tempdir().expect("a directory");
        let (one, other) = (Key::Volume(Uuid::from_bytes([1; 16])), Key::Analysis("a".into()));
        let mut files = Files::open(place.path());
        assert_eq!(files.read(&one), Ok(None));
        assert!(!place.path().join(DIRECTORY).exists(), "nothing was written");
        for content in [&b"first"[..], b"and then"] {
            files.write(&one, content).expect("room");
            assert_eq!(files.read(&one), Ok(Some(content.to_vec())));
        }
        let path = files.path(&one);
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&files.directory).expect("it is there").mode() & 0o777, 0o700);
        // A write that was cut short, and files of others.
        std::fs::write(files.directory.join(format!("{}.new", other.file_name())), "half").expect("room");
        std::fs::write(files.directory.join("notes.txt"), "mine").expect("room");
        let mut files = Files::open(place.path());
        assert_eq!(files.keys().collect::<Vec<_>>(), [&one]);
        assert_eq!(std::fs::read_dir(&files.directory).expect("it is there").count(), 2);
        assert!(files.set_aside(&one).contains(".damaged"));
        assert_eq!((files.read(&one), files.keys().count()), (Ok(None), 0));
        let mut files = Files::open(place.path());
        assert_eq!(files.all_keys().collect::<Vec<_>>(), [&one], "what was set aside is to go some time");
        files.write(&one, b"anew").expect("room");
        assert!(files.remove(&one) && !files.remove(&one));
        assert_eq!(std::fs::read_dir(&files.directory).expect("it is there").count(), 1, "what others put there stays");
    }

    #[test]
    fn what_is_no_file_or_too_large_is_not_read() {
        let place = tempfile::tempdir().expect("a directory");
        let key = Key::Analysis("a".into());
        let mut files = Files::open(place.path());
        files.write(&key, b"x").expect("room");
        let path = files.path(&key);
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(1 << 40)).expect("a hole");
        assert!(files.read(&key).is_err_and(|why| matches!(why, Unread::Wrong(problem) if problem.contains("more than"))));
        std::fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("room");
        assert!(files.read(&key).is_err_and(|why| matches!(why, Unread::Wrong(problem) if problem.contains("not a file"))));
        std::fs::remove_file(&path).expect("ours");
        assert_eq!(files.read(&key), Ok(None), "somebody removed it");
        std::fs::create_dir(&path).expect("room");
        assert!(files.write(&key, b"x").is_err(), "a directory is in its place");
        assert!(!files.directory.join(format!("{}.new", key.file_name())).exists());
    }
}
