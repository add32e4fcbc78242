//! What becomes of a pool whose SSD is blank when it starts, as a person has chosen.

use serde::{Deserialize, Serialize};

/// What becomes of a pool whose SSD is blank when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBlankSsd {
    /// It does not start, and says what can be done.
    #[default]
    Stop,
    /// It gets a new cache there, if nothing of the old one can have been dirty.
    Make,
}

impl OnBlankSsd {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            OnBlankSsd::Stop => "stop",
            OnBlankSsd::Make => "make",
        }
    }

    /// What that word stands for.
    pub fn from_name(name: &str) -> Option<OnBlankSsd> {
        [OnBlankSsd::Stop, OnBlankSsd::Make].into_iter().find(|what| what.name() == name)
    }

    /// Whether it is the default, which the state file leaves out.
    #[allow(clippy::trivially_copy_pass_by_ref)] // The form that serde calls it by.
    pub fn is_stop(&self) -> bool {
        *self == OnBlankSsd::Stop
    }
}
