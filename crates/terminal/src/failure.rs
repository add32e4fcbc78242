//! How a command ends when it does not succeed: one sentence on stderr and an exit status.

use api::client::ClientError;
use api::error::{Cause, ControlError, Kind, Refusal};

/// Exit status for a command line that makes no sense.
pub const STATUS_USAGE: u8 = 2;
/// Exit status for everything else that fails.
pub const STATUS_FAILED: u8 = 1;
/// Exit status after Ctrl-C: 128 + SIGINT, as shells have it.
pub const STATUS_INTERRUPTED: u8 = 130;

/// A failed command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One sentence without a full stop that says what is wrong and what to do.
    pub message: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// The command line makes no sense.
    pub fn usage(problem: impl Into<String>, remedy: &str) -> Failure {
        Failure { message: format!("{}; {remedy}", problem.into()), status: STATUS_USAGE }
    }

    /// It could not be done.
    pub fn failed(problem: impl Into<String>, remedy: &str) -> Failure {
        let problem = problem.into();
        let message = if remedy.is_empty() { problem } else { format!("{problem}; {remedy}") };
        Failure { message, status: STATUS_FAILED }
    }

    /// Ctrl-C.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: STATUS_INTERRUPTED }
    }

    /// Puts "cannot ACTION" before the sentence.
    #[must_use]
    pub fn cannot(mut self, action: &str) -> Failure {
        if self.status != STATUS_INTERRUPTED {
            self.message = format!("cannot {action}: {}", self.message);
        }
        self
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let status = if refusal.kind == Kind::Usage { STATUS_USAGE } else { STATUS_FAILED };
        Failure { message: refusal.to_string(), status }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Failure {
        let status = if cause.kind == Kind::Usage { STATUS_USAGE } else { STATUS_FAILED };
        Failure { message: cause.to_string(), status }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Refused(refusal) => (*refusal).into(),
            other => Failure::failed(other.to_string(), ""),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        error.refusal().into()
    }
}
