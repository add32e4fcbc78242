//! How a pool's blocks lie on its SSD, as a person has chosen.

use serde::{Deserialize, Serialize};

/// How a pool's blocks lie on its SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SsdLayout {
    /// Appended to a log, one for each shard: format versions 1 to 3.
    Log,
    /// In any free page: format version 4.
    #[default]
    Slots,
}

impl SsdLayout {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            SsdLayout::Log => "log",
            SsdLayout::Slots => "slots",
        }
    }

    /// What that word stands for.
    pub fn from_name(name: &str) -> Option<SsdLayout> {
        [SsdLayout::Log, SsdLayout::Slots].into_iter().find(|layout| layout.name() == name)
    }

    /// That of a pool whose state does not say it: it was made before there was a choice.
    pub const fn unsaid() -> SsdLayout {
        SsdLayout::Log
    }

    /// Whether the state file leaves it out.
    #[allow(clippy::trivially_copy_pass_by_ref)] // The form that serde calls it by.
    pub fn is_unsaid(&self) -> bool {
        *self == SsdLayout::unsaid()
    }
}
