//! What can go wrong for a caller.

use std::path::PathBuf;

/// Why a call of the history was refused. Damage of the file is not among them: it is mended, and told as a notice.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is a directory where the file should be.
    #[error("{} is a directory, and the history needs a file there: move it away, or give the history another path", path.display())]
    Directory {
        /// Where the file should be.
        path: PathBuf,
    },
    /// Nothing was ever recorded of this object, or all of it is too old.
    #[error("there is no history of {object}: nothing was recorded of it, or it has been forgotten")]
    Unknown {
        /// What was asked for.
        object: String,
    },
    /// The end of the range is not after its beginning.
    #[error("the range from {from_unix_s} to {to_unix_s} is empty: ask for one whose end is later than its beginning")]
    EmptyRange {
        /// The beginning asked for, in seconds since 1970.
        from_unix_s: u64,
        /// The end asked for, exclusive.
        to_unix_s: u64,
    },
    /// No points are wanted.
    #[error("no points were asked for: ask for at least one")]
    NoPoints,
    /// What is recorded could not be written; it stays in memory and is tried again.
    #[error("the history could not be written ({reason}): it is kept in memory and retried; check its disk")]
    Unwritten {
        /// What the system said.
        reason: String,
    },
    /// The thread that writes could not be started.
    #[error("the thread that writes the history could not be started: free some memory or raise the thread limit")]
    Thread(#[source] std::io::Error),
    /// Not even memory could be had for the tables.
    #[error("the history could not be created ({reason}): free some memory and start again")]
    Begin {
        /// What the database said.
        reason: String,
    },
}
