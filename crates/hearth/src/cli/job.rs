//! `hearth job`, as it is written.

use clap::Subcommand;

/// What to do with jobs.
#[derive(Subcommand, Debug)]
pub enum Job {
    /// Running jobs and those that ended recently
    List,
    /// One job
    Show {
        /// Its number
        id: u64,
    },
    /// Stop a job; completed work is kept
    Cancel {
        /// Its number
        id: u64,
    },
    /// Resume a stopped or failed job as a new job
    Resume {
        /// The number of the old one
        id: u64,
    },
}
