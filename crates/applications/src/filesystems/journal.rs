//! What of a file system's journal or log was followed, from one look to the next.

use super::{ext4, xfs};

/// A journal of any kind.
#[derive(Clone, Default, Debug)]
pub(crate) enum Journal {
    /// Nothing was followed yet.
    #[default]
    None,
    /// The journal of an ext4.
    Ext4(ext4::Journal),
    /// The log of an XFS.
    Xfs(xfs::Log),
}

impl Journal {
    /// Memory held, in bytes; nearly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Journal::None => 0,
            Journal::Ext4(journal) => journal.bytes(),
            Journal::Xfs(log) => log.bytes(),
        }
    }

    /// Whether there is more of it to follow before all that is committed is known.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Journal::None => false,
            Journal::Ext4(journal) => journal.is_behind(),
            Journal::Xfs(log) => log.is_behind(),
        }
    }
}
