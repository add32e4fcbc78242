//! Why an evaluation does not go on.

use terminal::failure::{Failure, STATUS_USAGE};

/// See the module. Sentences say what is wrong and what to do next, without a full stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Trouble {
    /// The user said so.
    #[error("stopped")]
    Stopped,
    /// The command line, or what it names.
    #[error("{0}")]
    Usage(String),
    /// Something that was tried failed.
    #[error("{0}")]
    Failed(String),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Stopped => Failure::interrupted(trouble.to_string()),
            Trouble::Usage(message) => Failure { message, status: STATUS_USAGE },
            Trouble::Failed(message) => Failure::failed(message, ""),
        }
    }
}

impl Trouble {
    /// Something failed, and what to do about it.
    pub fn failed(problem: impl std::fmt::Display, remedy: &str) -> Trouble {
        Trouble::Failed(if remedy.is_empty() { problem.to_string() } else { format!("{problem}; {remedy}") })
    }

    /// An operating system's error about a path.
    pub fn io(action: &str, path: &std::path::Path, error: &std::io::Error) -> Trouble {
        Trouble::Failed(format!("cannot {action} {}: {error}", path.display()))
    }
}
