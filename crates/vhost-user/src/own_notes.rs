//! Memory for requests under way that this export has made itself, where none of an earlier daemon's is taken.
//!
//! A front end may ask for such memory as often as it likes. Of each that is connected, what it asked for last and what it handed back
//! last count; of those that have gone, what they had handed back: they come again with it.

use std::collections::{BTreeMap, VecDeque};

/// Memory, by device and inode.
type File = (u64, u64);

/// Front ends that have gone and may come again; of more, the earliest are forgotten.
const GONE_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwnNotes {
    /// By session.
    here: BTreeMap<u64, Here>,
    gone: VecDeque<File>,
}

#[derive(Debug, Default)]
struct Here {
    given: Option<File>,
    taken: Option<File>,
}

impl OwnNotes {
    /// It was made for a session, in the place of what it was given before.
    pub(crate) fn give(&mut self, session: u64, file: File) {
        self.here.entry(session).or_default().given = Some(file);
    }

    /// A session hands it back; whether it is one of ours.
    pub(crate) fn take(&mut self, session: u64, file: File) -> bool {
        let is_here = self.here.values().any(|here| here.given == Some(file) || here.taken == Some(file));
        let is_own = is_here || self.gone.contains(&file);
        if is_own {
            self.gone.retain(|gone| *gone != file);
            self.here.entry(session).or_default().taken = Some(file);
        }
        is_own
    }

    /// The session has gone.
    pub(crate) fn ended(&mut self, session: u64) {
        let Some(file) = self.here.remove(&session).and_then(|here| here.taken) else { return };
        self.gone.retain(|gone| *gone != file);
        self.gone.push_back(file);
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_often_has_one_and_comes_again_with_it() {
        let mut own = OwnNotes::default();
        for inode in 0..100_000 {
            own.give(7, (1, inode));
        }
        assert!(!own.take(7, (1, 5)), "it was given another since");
        assert!(own.take(7, (1, 99_999)) && own.take(8, (1, 99_999)), "it connects again before it is seen to be gone");
        own.give(9, (1, 3));
        [7, 8, 9].into_iter().for_each(|session| own.ended(session));
        assert!(own.here.is_empty() && own.gone.len() == 1, "{own:?}");
        assert!(!own.take(10, (1, 3)), "nobody had it");
        assert!(own.take(10, (1, 99_999)));
        for inode in 0..100_000 {
            let session = 11 + inode;
            own.give(session, (2, inode));
            assert!(own.take(session, (2, inode)));
            own.ended(session);
        }
        assert_eq!((own.gone.len(), own.here.len()), (GONE_MAX, 1));
        assert!(own.take(10, (1, 99_999)), "who is here is not forgotten for others");
    }
}
