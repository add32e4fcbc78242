//! Whose queues run, told by a file beside the socket to the daemon that comes after a crash.
//!
//! What a guest had under way when a daemon was killed is noted in memory that its front end keeps (`inflight`) and hands back to the
//! next daemon. If the guest moves to another front end in between, that one has no notes. It goes on behind the answers that the guest
//! has seen. That is wrong where requests were answered in another order than they came: some would be carried out twice, and others never. So
//! after a crash, a front end without the notes is served only in queues in which its guest waits for nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which memory holds the notes of a front end, by device and inode. `None`: it keeps none.
pub(crate) type Notes = Option<(u64, u64)>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Succession {
    path: PathBuf,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// Of the front end whose queues ran when an earlier daemon was killed.
    left: Option<Notes>,
    /// Of front ends and their queues that were served since.
    known: BTreeSet<(Notes, u16)>,
}

impl Succession {
    /// For the socket of this path: with what a daemon that was killed has left.
    pub(crate) fn open(socket: &Path) -> Succession {
        let mut path = socket.as_os_str().to_owned();
        path.push(".guest");
        let path = PathBuf::from(path);
        let left = match std::fs::read_to_string(&path) {
            Ok(text) => Some(decode(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Something is there, so something was left.
            Err(_) => Some(None),
        };
        Succession { path, inside: Mutex::new(Inside { left, known: BTreeSet::new() }) }
    }

    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, notes: Notes) {
        let text = notes.map_or("none\n".to_owned(), |(device, inode)| format!("{device} {inode}\n"));
        if let Err(error) = std::fs::write(&self.path, text) {
            tracing::warn!("{} cannot be written ({error}): do not move virtual machines while the daemon restarts", self.path.display());
        }
    }

    /// A front end with these notes begins to run queues.
    pub(crate) fn begins(&self, notes: Notes) {
        let _inside = self.inside();
        self.write(notes);
    }

    /// Whether this queue of a front end may be served. `waits`: its guest waits for answers in it.
    pub(crate) fn admits(&self, notes: Notes, queue: u16, waits: bool) -> bool {
        let mut inside = self.inside();
        let Some(left) = inside.left else { return true };
        let has_notes = notes.is_some() && notes == left || notes.is_some() && inside.known.contains(&(notes, queue));
        if !has_notes && waits {
            return false;
        }
        inside.known.insert((notes, queue));
        true
    }

    /// The queues of a front end have ended. `in_order`: all that was taken is answered. `refused`: it was not served, and what was left is
    /// as it was.
    pub(crate) fn ends(&self, in_order: bool, refused: bool) {
        let mut inside = self.inside();
        match inside.left {
            Some(left) if refused => self.write(left),
            _ if in_order => {
                *inside = Inside::default();
                if let Err(error) = std::fs::remove_file(&self.path) {
                    tracing::debug!("{} was not there ({error})", self.path.display());
                }
            }
            _ => {}
        }
    }
}

fn decode(text: &str) -> Notes {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_crash_only_the_notes_or_an_idle_queue_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("disk.sock");
        let (first, second) = (Some((1, 7)), Some((1, 8)));
        let before = Succession::open(&socket);
        assert!(before.admits(first, 0, true), "nothing was left");
        before.begins(first);
        // Killed here.
        let after = Succession::open(&socket);
        assert!(!after.admits(second, 0, true) && !after.admits(None, 0, true));
        assert!(after.admits(second, 1, false) && after.admits(second, 1, true), "what it has under way is in its own notes");
        after.ends(true, true);
        let again = Succession::open(&socket);
        assert!(!again.admits(second, 1, true) && again.admits(first, 1, true), "who was refused changes nothing");
        again.begins(first);
        again.ends(false, false);
        assert!(!Succession::open(&socket).admits(None, 0, true), "cut off");
        again.ends(true, false);
        assert!(again.admits(None, 0, true) && Succession::open(&socket).admits(second, 0, true));
        std::fs::write(directory.path().join("disk.sock.guest"), "what is this").expect("there is room");
        assert!(!Succession::open(&socket).admits(second, 0, true));
    }
}
