//! Everything that can be wrong with a management request, in one place: the sentence, what to do next, and the kind.
//!
//! The command line prints `hearth: cannot ACTION: SENTENCE; REMEDY`. The API sends [`Refusal`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What sort of trouble it is; decides the HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request itself makes no sense (400; exit status 2).
    Usage,
    /// What it names does not exist (404).
    NotFound,
    /// It contradicts what is there: a name taken, a device in use, dirty data (409).
    Conflict,
    /// Something else works on the same object; ask again (423).
    Busy,
    /// A device, the file system or the kernel failed (500).
    Failed,
}

/// An error as it travels in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// To match on.
    pub kind: Kind,
    /// One clause that says what is wrong, without a full stop.
    pub message: String,
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
    /// An option's value makes no sense.
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
    #[error("the request is not understood: {0}")]
    BadRequest(String),
    /// No such pool or volume.
    #[error("there is no {named} \"{name}\"")]
    Unknown {
        /// "pool", "volume" or "job".
        named: &'static str,
        /// As asked.
        name: String,
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
    #[error("{named} \"{name}\" is busy: {doing} is under way")]
    Claimed {
        /// "pool" or "volume".
        named: &'static str,
        /// The name.
        name: String,
        /// What is under way.
        doing: &'static str,
    },
    /// The object is there but cannot be used.
    #[error("{named} \"{name}\" does not run: {reason}")]
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
    /// A job cannot be resumed: what is wrong, what to do.
    #[error("{0}")]
    Job(String, String),
    /// The job was stopped on request.
    #[error("stopped on request; what is done stays done")]
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

impl ControlError {
    /// What sort of trouble it is.
    pub fn kind(&self) -> Kind {
        match self {
            ControlError::BadName { .. }
            | ControlError::BadOption { .. }
            | ControlError::BadCombination(..)
            | ControlError::BadRequest(_) => Kind::Usage,
            ControlError::Unknown { .. } => Kind::NotFound,
            ControlError::Taken { .. }
            | ControlError::HasVolumes { .. }
            | ControlError::DirtyData { .. }
            | ControlError::NotRunning { .. }
            | ControlError::SecondDaemon { .. }
            | ControlError::Job(..)
            | ControlError::Stopped => Kind::Conflict,
            ControlError::Claimed { .. } | ControlError::Stopping => Kind::Busy,
            ControlError::Device { kind, .. } => *kind,
            ControlError::Export { .. } | ControlError::State { .. } | ControlError::DataPath(..) => Kind::Failed,
        }
    }

    /// What the person should do next.
    pub fn remedy(&self) -> String {
        match self {
            ControlError::BadName { .. } => "use 1 to 64 letters, digits, '.', '_' and '-', not beginning with '-' or '.'".into(),
            ControlError::BadRequest(_) => "use the hearth command of the same version as the daemon".into(),
            ControlError::Unknown { named: "device", .. } => "see what there is with `hearth devices`".into(),
            ControlError::Unknown { named, .. } => {
                format!("see what there is with `hearth {named} list`")
            }
            ControlError::Taken { named, .. } => {
                format!("choose another name, or see `hearth {named} list`")
            }
            ControlError::Claimed { .. } => "wait until it is done, or stop it, and ask again".into(),
            ControlError::HasVolumes { name, .. } => {
                format!("remove them first with `hearth volume remove NAME`, or lose them with `hearth pool destroy {name} --force`")
            }
            ControlError::SecondDaemon { .. } => "stop that one first, or give this one its own --state and --socket".into(),
            ControlError::Stopped => "resume it with `hearth job resume ID`, or ask again".into(),
            ControlError::Stopping => "ask again when it runs".into(),
            ControlError::BadCombination(_, remedy)
            | ControlError::DataPath(_, remedy)
            | ControlError::Job(_, remedy)
            | ControlError::BadOption { remedy, .. }
            | ControlError::NotRunning { remedy, .. }
            | ControlError::DirtyData { remedy, .. }
            | ControlError::Device { remedy, .. }
            | ControlError::Export { remedy, .. }
            | ControlError::State { remedy, .. } => remedy.clone(),
        }
    }

    /// The form for the wire.
    pub fn refusal(&self) -> Refusal {
        Refusal { kind: self.kind(), message: self.to_string(), remedy: Some(self.remedy()).filter(|r| !r.is_empty()) }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(f, "{}; {remedy}", self.message),
            None => write!(f, "{}", self.message),
        }
    }
}
