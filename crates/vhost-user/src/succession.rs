//! Which front end's queues run: kept in a file, for the daemon that comes after a crash.
//!
//! What a guest had under way when a daemon was killed is noted in memory that its front end keeps (`inflight`) and hands back to the
//! next daemon. If the guest moves to another front end in between, that one has no notes. It goes on behind the answers that the guest
//! has seen. That is wrong where requests were answered in another order than they came: some would be carried out twice, and others never. So
//! after a crash, a front end without the notes is served only in queues in which its guest waits for nothing.

use crate::block::QUEUES_MAX;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which memory holds the notes of a front end, by device and inode. `None`: it keeps none.
pub(crate) type Notes = Option<(u64, u64)>;

/// Front ends that are known, since they were served after the one that was left; of more, the earliest are forgotten.
const KNOWN_MAX: usize = 256;
const _: () = assert!(QUEUES_MAX <= 64, "a bit for each");

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
    /// Notes of front ends that were served since, each with a bit for each of its queues; the latest is last.
    known: VecDeque<((u64, u64), u64)>,
}

/// How the queues of a front end have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// All that was taken is answered.
    pub(crate) in_order: bool,
    /// The front end has stopped them itself, and was told where another one goes on.
    pub(crate) asked: bool,
}

impl Succession {
    /// With what a daemon that was killed has left in that file. Nobody else may write in its directory.
    pub(crate) fn open(path: PathBuf) -> Succession {
        let left = match std::fs::read_to_string(&path) {
            Ok(text) => Some(decode(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Something is there, so something was left.
            Err(_) => Some(None),
        };
        Succession { path, inside: Mutex::new(Inside { left, known: VecDeque::new() }) }
    }

    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whole or not at all: a half-written file would refuse the rightful guest.
    fn write(&self, notes: Notes) {
        let text = notes.map_or("none\n".to_owned(), |(device, inode)| format!("{device} {inode}\n"));
        let new = self.path.with_extension("new");
        if let Err(error) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path)) {
            tracing::warn!("{} cannot be written ({error}): do not move virtual machines while the daemon restarts", self.path.display());
        }
    }

    /// A front end with these notes, which was admitted, begins to run queues.
    pub(crate) fn begins(&self, notes: Notes) {
        let _inside = self.inside();
        self.write(notes);
    }

    /// Whether this queue of a front end may be served. `waits`: its guest waits for answers in it.
    pub(crate) fn admits(&self, notes: Notes, queue: u16, waits: bool) -> bool {
        let mut inside = self.inside();
        let Some(left) = inside.left else { return true };
        let Some(file) = notes else { return !waits };
        let at = inside.known.iter().position(|(known, _)| *known == file);
        let queues = at.map_or(0, |at| inside.known[at].1);
        if waits && notes != left && queues >> queue & 1 == 0 {
            return false;
        }
        at.map(|at| inside.known.remove(at));
        if inside.known.len() >= KNOWN_MAX {
            inside.known.pop_front();
        }
        inside.known.push_back((file, queues | 1 << queue));
        true
    }

    /// The queues of a front end with these notes have ended, all that ran.
    pub(crate) fn ends(&self, notes: Notes, how: Ended) {
        let mut inside = self.inside();
        if !how.in_order {
            // What it has under way is known to it alone.
            inside.left = Some(notes);
            return;
        }
        match inside.left {
            // It has not come to all of its queues, perhaps; in another one its guest may wait for what was taken before.
            Some(left) if !how.asked && (left != notes || notes.is_none()) => self.write(left),
            _ => {
                *inside = Inside::default();
                if let Err(error) = std::fs::remove_file(&self.path) {
                    tracing::debug!("{} was not there ({error})", self.path.display());
                }
            }
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
        let file = directory.path().join("disk.guest");
        let open = || Succession::open(file.clone());
        let (asked, cut, spoiled) =
            (Ended { in_order: true, asked: true }, Ended { in_order: true, asked: false }, Ended { in_order: false, asked: false });
        let (first, second) = (Some((1, 7)), Some((1, 8)));
        let before = open();
        assert!(before.admits(first, 0, true), "nothing was left");
        before.begins(first);
        // Killed here.
        let after = open();
        assert!(!after.admits(second, 0, true) && !after.admits(None, 0, true));
        assert!(after.admits(second, 1, false) && after.admits(second, 1, true), "what it has under way is in its own notes");
        after.begins(second);
        after.ends(second, cut);
        assert!(!after.admits(second, 0, true), "it was cut off before it came to its other queue");
        let again = open();
        assert!(!again.admits(second, 1, true) && again.admits(first, 1, true), "who was cut off changes nothing");
        again.begins(first);
        again.ends(first, spoiled);
        assert!(!open().admits(None, 0, true) && !again.admits(None, 0, true), "not all was answered");
        again.ends(first, cut);
        assert!(again.admits(None, 0, true) && open().admits(second, 0, true));
        again.begins(first);
        again.ends(first, asked);
        assert!(open().admits(second, 0, true));
        again.begins(first);
        again.ends(first, spoiled);
        for inode in 100..100_000 {
            assert!(again.admits(second, 3, false), "who runs is not forgotten for others");
            assert!(again.admits(Some((2, inode)), 63, false));
        }
        assert_eq!(again.inside().known.len(), KNOWN_MAX);
        assert!(again.admits(second, 3, true) && !again.admits(second, 4, true) && !again.admits(None, 0, true));
        std::fs::write(&file, "what is this").expect("there is room");
        assert!(!open().admits(second, 0, true));
    }
}
