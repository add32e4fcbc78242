//! What can go wrong, each in one sentence that says what to do.

use std::io;
use std::path::PathBuf;

/// Why an export could not be made, or not be taken down.
#[derive(Debug, thiserror::Error)]
pub enum VhostUserError {
    /// Something else listens there.
    #[error("another program listens on {}: stop it, or choose another path", .path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Something that is no socket lies there.
    #[error("{} is there and is no socket: remove it, or choose another path", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {doing} {} ({source})", .path.display())]
    System {
        /// What was tried.
        doing: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Requests of a guest do not end.
    #[error("requests of the guest at {} did not end within {seconds} s: check the volume's devices, then try again", .path.display())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
}
