//! Everything that can be wrong with a management request, in one place: the sentence, what to do next, and the kind.
//!
//! The command line prints `hearth: cannot ACTION: SENTENCE; REMEDY`. The API sends [`Refusal`].

use export::ExportError;
use serde::{Deserialize, Serialize};
use targets::Protocol;
use utoipa::ToSchema;

/// What sort of trouble it is; decides the HTTP status and the problem's type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request itself is invalid (400; exit status 2).
    Usage,
    /// No valid token, session or user (401).
    Unauthenticated,
    /// The role does not allow it (403).
    Forbidden,
    /// What it names does not exist (404).
    NotFound,
    /// The path is there, but not for this method (405).
    Method,
    /// The request did not come in time (408).
    Slow,
    /// Conflicts with the current state: a name taken, a device in use, dirty data (409).
    Conflict,
    /// The body is larger than any that makes sense (413).
    TooLarge,
    /// The body is not of the type that the path takes (415).
    MediaType,
    /// Another operation on the same object is in progress; try again (423).
    Busy,
    /// Too many requests; try again later (429).
    TooMany,
    /// A device, the file system or the kernel failed (500).
    Failed,
    /// A bug in the daemon (500).
    Internal,
    /// Too many requests in progress; try again later (503).
    Overloaded,
    /// Not finished within the time limit; it continues (504).
    Late,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 15] = [
        Kind::Usage,
        Kind::Unauthenticated,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::Method,
        Kind::Slow,
        Kind::Conflict,
        Kind::TooLarge,
        Kind::MediaType,
        Kind::Busy,
        Kind::TooMany,
        Kind::Failed,
        Kind::Internal,
        Kind::Overloaded,
        Kind::Late,
    ];

    /// The word on the wire; also the last part of the problem's type.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Usage => "usage",
            Kind::Unauthenticated => "unauthenticated",
            Kind::Forbidden => "forbidden",
            Kind::NotFound => "not_found",
            Kind::Method => "method",
            Kind::Slow => "slow",
            Kind::Conflict => "conflict",
            Kind::TooLarge => "too_large",
            Kind::MediaType => "media_type",
            Kind::Busy => "busy",
            Kind::TooMany => "too_many",
            Kind::Failed => "failed",
            Kind::Internal => "internal",
            Kind::Overloaded => "overloaded",
            Kind::Late => "late",
        }
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Kind::Usage => 400,
            Kind::Unauthenticated => 401,
            Kind::Forbidden => 403,
            Kind::NotFound => 404,
            Kind::Method => 405,
            Kind::Slow => 408,
            Kind::Conflict => 409,
            Kind::TooLarge => 413,
            Kind::MediaType => 415,
            Kind::Busy => 423,
            Kind::TooMany => 429,
            Kind::Failed | Kind::Internal => 500,
            Kind::Overloaded => 503,
            Kind::Late => 504,
        }
    }

    /// The problem's title: the same for all of this kind.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::Usage => "Invalid request",
            Kind::Unauthenticated => "Authentication required",
            Kind::Forbidden => "Not allowed",
            Kind::NotFound => "Not found",
            Kind::Method => "Method not allowed",
            Kind::Slow => "Request timed out",
            Kind::Conflict => "Conflict with the current state",
            Kind::TooLarge => "Request too large",
            Kind::MediaType => "Unsupported media type",
            Kind::Busy => "Busy",
            Kind::TooMany => "Too many requests",
            Kind::Failed => "Device or system failure",
            Kind::Internal => "Internal error",
            Kind::Overloaded => "Overloaded",
            Kind::Late => "Still in progress",
        }
    }
}

/// A problem document (RFC 9457): an error as it travels in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct Refusal {
    /// `/problems/KIND`: the page there says what the kind means.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// A few words, the same for all problems of a kind.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// One clause that says what is wrong, without a full stop.
    pub detail: String,
    /// One clause that says what to do next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
    /// To match on.
    pub kind: Kind,
    /// The path asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instance: Option<String>,
}

impl Refusal {
    /// A problem of that kind. An empty remedy is none.
    pub fn new(kind: Kind, detail: impl Into<String>, remedy: impl Into<String>) -> Refusal {
        Refusal {
            type_uri: format!("/problems/{}", kind.word()),
            title: kind.title().into(),
            status: kind.status(),
            detail: detail.into(),
            remedy: Some(remedy.into()).filter(|r| !r.is_empty()),
            kind,
            instance: None,
        }
    }
}

/// Why a job failed: the part of a [`Refusal`] that is not about HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// To match on.
    pub kind: Kind,
    /// One clause that says what is wrong, without a full stop.
    pub detail: String,
    /// One clause that says what to do next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
}

/// Why a management request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A pool's or volume's name is not allowed.
    #[error("the {named} name \"{name}\" {problem}")]
    BadName {
        /// "pool" or "volume".
        named: &'static str,
        /// The name, made printable.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An option with a value that is invalid.
    #[error("{option} {problem}")]
    BadOption {
        /// The flag as typed.
        option: &'static str,
        /// What is wrong with its value.
        problem: String,
        /// What to write instead.
        remedy: String,
    },
    /// Options that exclude each other.
    #[error("{0}")]
    BadCombination(String, String),
    /// A JSON body that is not what the path takes.
    #[error("the request is invalid: {0}")]
    BadRequest(String),
    /// No such pool or volume.
    #[error("there is no {named} \"{name}\"")]
    Unknown {
        /// "pool", "volume" or "job".
        named: &'static str,
        /// As asked.
        name: String,
    },
    /// No such thing, and what may be meant.
    #[error("there is no {named} \"{name}\"")]
    UnknownNear {
        /// As people call it.
        named: &'static str,
        /// As asked.
        name: String,
        /// What to do.
        remedy: String,
    },
    /// The name is taken.
    #[error("there is already a {named} \"{name}\"")]
    Taken {
        /// "pool" or "volume".
        named: &'static str,
        /// The name.
        name: String,
    },
    /// Another management request works on this object.
    #[error("{named} \"{name}\" is busy: {doing} is in progress")]
    Claimed {
        /// "pool" or "volume".
        named: &'static str,
        /// The name.
        name: String,
        /// What is under way.
        doing: &'static str,
    },
    /// A job works on this object.
    #[error("{named} \"{name}\" is busy: {doing} is in progress (job {job})")]
    AtWork {
        /// "pool" or "volume".
        named: &'static str,
        /// The name.
        name: String,
        /// What is under way.
        doing: &'static str,
        /// The job's number.
        job: u64,
    },
    /// The object is there but cannot be used.
    #[error("{named} \"{name}\" is not running: {reason}")]
    NotRunning {
        /// "pool" or "volume".
        named: &'static str,
        /// The name.
        name: String,
        /// Why.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A pool that still has volumes is to be destroyed.
    #[error("pool \"{name}\" still has {}", counted(volumes))]
    HasVolumes {
        /// The pool.
        name: String,
        /// Its volumes.
        volumes: Vec<String>,
    },
    /// The volume's dirty data would be lost.
    #[error("volume \"{name}\" has {dirty} of dirty data{why}")]
    DirtyData {
        /// The volume.
        name: String,
        /// How much, for people.
        dirty: String,
        /// Why it cannot go home, with a leading comma, or empty.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// A device cannot be used for what it is asked for (missing, busy, mounted, foreign, too small, the same one).
    #[error("{path}: {problem}")]
    Device {
        /// As given.
        path: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
        /// Whether `--force` was what is missing (a conflict) or it failed.
        kind: Kind,
    },
    /// The SSD of a pool was used with a newer state than this one.
    #[error("{path}: hearth's state is older than this SSD: {why}")]
    OlderState {
        /// The SSD.
        path: String,
        /// What shows it, and what the state lacks.
        why: String,
    },
    /// An export is in use or cannot be made.
    #[error("{export}: {problem}")]
    Export {
        /// "loop" or "nbd", or the device.
        export: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// A second daemon on the same state directory or socket.
    #[error("another hearth daemon (process {pid}) uses {path}")]
    SecondDaemon {
        /// Its process id as it wrote it, or "unknown".
        pid: String,
        /// The lock file or the socket.
        path: String,
    },
    /// The state directory cannot be read or written.
    #[error("{path}: {problem}")]
    State {
        /// File or directory.
        path: String,
        /// What failed.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The data path refused or failed.
    #[error("{0}")]
    DataPath(String, String),
    /// What lies below has failed: a device, the kernel, the engine.
    #[error("{source}")]
    Below {
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What to do.
        remedy: String,
    },
    /// A job cannot be resumed: what is wrong, what to do.
    #[error("{0}")]
    Job(String, String),
    /// An analysis, or advice, that cannot be had: what is wrong, what to do.
    #[error("{0}")]
    Analysis(String, String),
    /// The job was stopped on request.
    #[error("stopped on request; completed work is kept")]
    Stopped,
    /// The daemon is stopping.
    #[error("the daemon is stopping")]
    Stopping,
}

fn counted(volumes: &[String]) -> String {
    match volumes {
        [one] => format!("the volume \"{one}\""),
        many => format!("{} volumes: {}", many.len(), many.join(", ")),
    }
}

impl From<export::WordError> for ControlError {
    fn from(error: export::WordError) -> ControlError {
        ControlError::BadOption { option: "--export", problem: error.problem, remedy: error.remedy }
    }
}

impl ControlError {
    /// What sort of trouble it is.
    pub fn kind(&self) -> Kind {
        match self {
            ControlError::BadName { .. }
            | ControlError::BadOption { .. }
            | ControlError::BadCombination(..)
            | ControlError::BadRequest(_) => Kind::Usage,
            ControlError::Unknown { .. } | ControlError::UnknownNear { .. } => Kind::NotFound,
            ControlError::Taken { .. }
            | ControlError::HasVolumes { .. }
            | ControlError::DirtyData { .. }
            | ControlError::OlderState { .. }
            | ControlError::NotRunning { .. }
            | ControlError::SecondDaemon { .. }
            | ControlError::Job(..)
            | ControlError::Analysis(..)
            // What the machine, as it is, does not offer: a driver, the rights, a free address.
            | ControlError::Export { .. }
            | ControlError::Stopped => Kind::Conflict,
            ControlError::Claimed { .. } | ControlError::AtWork { .. } | ControlError::Stopping => Kind::Busy,
            ControlError::Device { kind, .. } => *kind,
            ControlError::State { .. } | ControlError::DataPath(..) | ControlError::Below { .. } => Kind::Failed,
        }
    }

    /// A share that cannot be made or taken away.
    pub fn share(volume: &str, protocol: Protocol, problem: &str, remedy: &str) -> ControlError {
        let export = format!("the {} share of \"{volume}\"", protocol.title());
        ControlError::Export { export, problem: problem.into(), remedy: remedy.into() }
    }

    /// What is wrong, without the name of the object: for texts that name it, or stand beside its name.
    pub fn reason(&self) -> String {
        match self {
            ControlError::NotRunning { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    /// What the person should do next.
    pub fn remedy(&self) -> String {
        match self {
            ControlError::BadName { .. } => "use 1 to 64 letters, digits, '.', '_' and '-', not beginning with '-' or '.'".into(),
            ControlError::BadRequest(_) => "use the hearth command of the same version as the daemon".into(),
            ControlError::Unknown { named: "device", .. } => "list the devices with `hearth devices`".into(),
            ControlError::Unknown { named: "analysis", .. } => "list them with `hearth analysis list`".into(),
            ControlError::Unknown { named: "application", .. } => "list the applications with `hearth app list`".into(),
            ControlError::Unknown { named: "object", .. } => {
                "list the objects with `hearth object list`, or look again with `hearth app discover`".into()
            }
            ControlError::Unknown { named: "advice", .. } => "it may be too old: get new advice with `hearth advise`".into(),
            ControlError::Unknown { named, .. } => {
                format!("list the {named}s with `hearth {named} list`")
            }
            ControlError::Taken { named, .. } => {
                format!("choose another name, or see `hearth {named} list`")
            }
            ControlError::Claimed { .. } => "try again when that is done".into(),
            ControlError::AtWork { job, .. } => {
                format!("see how far it is with `hearth job show {job}`, or stop it with `hearth job cancel {job}`; then try again")
            }
            ControlError::HasVolumes { name, .. } => {
                format!(
                    "remove them first with `hearth volume remove NAME`, or remove them and their dirty data with `hearth pool destroy {name} --force`"
                )
            }
            ControlError::OlderState { path, .. } => format!(
                "nothing on it was changed: put the newest state.json back and start the daemon again, or take in what the SSD says with \
                 `hearth pool import {path}`"
            ),
            ControlError::SecondDaemon { .. } => "stop that one first, or give this one its own --state and --socket".into(),
            ControlError::Stopped => "resume it with `hearth job resume ID`, or start it again".into(),
            ControlError::Stopping => "try again when it is running".into(),
            ControlError::BadCombination(_, remedy)
            | ControlError::DataPath(_, remedy)
            | ControlError::Below { remedy, .. }
            | ControlError::Job(_, remedy)
            | ControlError::Analysis(_, remedy)
            | ControlError::BadOption { remedy, .. }
            | ControlError::UnknownNear { remedy, .. }
            | ControlError::NotRunning { remedy, .. }
            | ControlError::DirtyData { remedy, .. }
            | ControlError::Device { remedy, .. }
            | ControlError::Export { remedy, .. }
            | ControlError::State { remedy, .. } => remedy.clone(),
        }
    }

    /// The form for the wire.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(self.kind(), self.to_string(), self.remedy())
    }

    /// The form in a failed job.
    pub fn cause(&self) -> Cause {
        Cause { kind: self.kind(), detail: self.to_string(), remedy: Some(self.remedy()).filter(|r| !r.is_empty()) }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        sentence(f, &self.detail, self.remedy.as_deref())
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        sentence(f, &self.detail, self.remedy.as_deref())
    }
}

fn sentence(f: &mut std::fmt::Formatter<'_>, detail: &str, remedy: Option<&str>) -> std::fmt::Result {
    match remedy {
        Some(remedy) => write!(f, "{detail}; {remedy}"),
        None => write!(f, "{detail}"),
    }
}

impl From<ExportError> for ControlError {
    fn from(error: ExportError) -> ControlError {
        match error {
            ExportError::Refused { export, problem, remedy } => ControlError::Export { export, problem, remedy },
            ExportError::BadPlace { problem, remedy } => ControlError::BadOption { option: "--export", problem, remedy },
            ExportError::Directory { path, source } => ControlError::State {
                path: path.display().to_string(),
                problem: format!("the directory of the exports cannot be made ({source})"),
                remedy: "give a socket in a writable directory with --socket PATH".into(),
            },
            ExportError::Failed { problem, remedy } => ControlError::DataPath(problem, remedy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_from_below_is_kept_as_the_source() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = ControlError::Below { source: missing.into(), remedy: "check the SSD".into() };
        assert_eq!((error.kind(), error.remedy().as_str()), (Kind::Failed, "check the SSD"));
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound));
    }

    #[test]
    fn a_problem_document_has_the_members_of_the_standard_and_ours() {
        let error = ControlError::Taken { named: "pool", name: "p".into() };
        let document = serde_json::to_value(error.refusal()).expect("it is JSON");
        let expected = serde_json::json!({
            "type": "/problems/conflict", "title": "Conflict with the current state", "status": 409, "kind": "conflict",
            "detail": "there is already a pool \"p\"", "remedy": "choose another name, or see `hearth pool list`",
        });
        assert_eq!(document, expected);
        assert_eq!(serde_json::from_value::<Refusal>(document).expect("its own form"), error.refusal());
    }

    #[test]
    fn words_are_those_of_the_wire_and_statuses_are_errors() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.word());
            assert!((400..600).contains(&kind.status()), "{kind:?}");
        }
    }
}
