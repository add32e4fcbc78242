//! What exporters are asked, and what they answer.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// How an export is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Withdrawal {
    /// Only if it has no users.
    IfUnused,
    /// Its users get errors from then on.
    Forced,
    /// Its pool is stopped and started. Its users wait until the volume is offered again;
    /// requests in flight are carried out then. Only where it outlives [`Absence::PoolRestarts`].
    PoolRestarts,
    /// The daemon ends. Its users wait for the next daemon where that can be, else they get errors
    /// from then on.
    DaemonEnds,
}

/// Something that users of an export may wait through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// This daemon stops in order, and another one starts.
    DaemonStops,
    /// The pool of the volume is stopped and started.
    PoolRestarts,
}

/// Who uses an export, so that it must not be taken away now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Users {
    /// There are none, or none that would be harmed: their connection ends as with any server that stops.
    None,
    /// In words: "mounted at /srv".
    Some(String),
    /// It cannot be seen, for this reason. It counts as used.
    Unknown(String),
}

impl Users {
    /// As a clause; `None` if nothing speaks against taking the export away.
    pub fn clause(self) -> Option<String> {
        match self {
            Users::None => None,
            Users::Some(user) => Some(user),
            Users::Unknown(reason) => Some(format!("its users are not known: {reason}")),
        }
    }
}

impl From<Option<String>> for Users {
    fn from(user: Option<String>) -> Users {
        user.map_or(Users::None, Users::Some)
    }
}

/// Where a volume is offered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// `/dev/loopN`, a URI.
    pub place: String,
    /// A name that stays the same over restarts (`/dev/hearth/NAME`), if it could be made.
    pub stable_path: Option<String>,
    /// Why it could not be made: a sentence that ends with what to use instead.
    pub nameless: Option<String>,
    /// What an administrator should know, one sentence each.
    pub warnings: Vec<String>,
    /// What its users see while the daemon is gone and comes back.
    pub on_restart: OnRestart,
    /// What was chosen where there was a choice, and why.
    pub note: Option<String>,
}

/// What users of an export see while the daemon is gone and comes back: killed, crashed, or
/// restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// Their I/O waits and is carried out by the next daemon.
    Waits,
    /// Their I/O waits if the daemon is killed. A stop ends the device: nobody keeps it, as systemd
    /// would.
    WaitsIfKilled,
    /// Their I/O waits, but writes that were under way when the daemon was killed fail: kernels
    /// before 6.9.
    WritesFail,
    /// Their I/O waits while the daemon is restarted. When it was killed, they have to connect
    /// again.
    WaitsIfRestarted,
    /// Their I/O waits and is carried out by the next daemon if they connect to it again, which
    /// virtual machines do when they are told to.
    WaitsIfReconnected,
    /// Their connection ends; they have to connect again.
    #[default]
    Ends,
}

impl OnRestart {
    /// For people: what I/O does meanwhile.
    pub const fn sentence(self) -> &'static str {
        match self {
            OnRestart::Waits => "I/O waits",
            OnRestart::WaitsIfKilled => "I/O waits if it is killed; a stop ends the device",
            OnRestart::WritesFail => "I/O waits, writes under way fail if the daemon is killed",
            OnRestart::WaitsIfRestarted => "I/O waits; if the daemon is killed, clients must connect again",
            OnRestart::WaitsIfReconnected => "I/O waits, if the virtual machine is set to reconnect",
            OnRestart::Ends => "clients must connect again",
        }
    }
}

/// Why an exporter did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// This machine does not offer it, somebody else has it, or somebody uses it. Nothing has failed.
    #[error("{export}: {problem}")]
    Refused {
        /// Which one, for people.
        export: String,
        /// A clause.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The word after `--export` cannot be had here.
    #[error("--export {problem}")]
    BadPlace {
        /// A clause whose subject is the option.
        problem: String,
        /// What to write instead.
        remedy: String,
    },
    /// A directory of the daemon's cannot be made.
    #[error("{} cannot be made ({source})", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// The system's.
        source: std::io::Error,
    },
    /// Something failed.
    #[error("{problem}")]
    Failed {
        /// A sentence.
        problem: String,
        /// What to do; may be empty if the sentence says it.
        remedy: String,
    },
}

impl ExportError {
    /// Something failed below, with what to do.
    pub fn failed(error: &dyn std::fmt::Display, remedy: &str) -> ExportError {
        ExportError::Failed { problem: error.to_string(), remedy: remedy.into() }
    }

    /// It is in use by somebody.
    pub fn in_use(device: &std::path::Path, by: &str) -> ExportError {
        ExportError::Refused {
            export: device.display().to_string(),
            problem: format!("it is in use ({by})"),
            remedy: "unmount it or close what uses it, then try again".into(),
        }
    }
}
