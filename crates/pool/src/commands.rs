//! What a command is for fronts, and who answers it. Commands are distinguished here and in the shard, and nowhere else.

use engine::api::{Command, VolumeOptions};
use engine::treatment::PolicyMap;
use std::sync::Arc;
use types::{VolumeId, VolumeIndex};

/// What fronts learn from a command to the shards.
#[derive(Clone, Debug)]
pub enum ForFront {
    /// The volume is available, with these options.
    Attached(VolumeIndex, VolumeId, VolumeOptions),
    /// The options of a volume that is available.
    Options(VolumeIndex, VolumeOptions),
    /// The volume takes no requests.
    Gone(VolumeIndex),
    /// Policies of its objects.
    Policies(VolumeIndex, Option<Arc<PolicyMap>>),
    /// Nothing.
    Nothing,
}

/// What fronts are to be told of a command.
pub fn for_front(command: &Command) -> ForFront {
    match command {
        Command::Attach { volume, id, options, .. } => ForFront::Attached(*volume, *id, options.clone()),
        Command::SetOptions { volume, options, .. } => ForFront::Options(*volume, options.clone()),
        Command::Detach { volume, .. } | Command::Release { volume, .. } | Command::Hold { volume, .. } => ForFront::Gone(*volume),
        Command::SetPolicies { volume, map } => ForFront::Policies(*volume, map.clone()),
        Command::Grow { .. }
        | Command::Destage { .. }
        | Command::Check { .. }
        | Command::Cancel { .. }
        | Command::DropClean { .. }
        | Command::Cold { .. }
        | Command::SsdFailed { .. }
        | Command::DegradedRecorded
        | Command::SsdForgotten { .. }
        | Command::GoingHome
        | Command::PastRecorded { .. }
        | Command::VoidPast { .. }
        | Command::BackingFailed { .. }
        | Command::Quiesce { .. } => ForFront::Nothing,
    }
}

/// The token under which every shard answers the command; `None` for one that no shard answers. It can be set.
pub fn token_of(command: &mut Command) -> Option<&mut u64> {
    match command {
        Command::SetOptions { token, .. }
        | Command::Destage { token, .. }
        | Command::Check { token, .. }
        | Command::Detach { token, .. }
        | Command::Release { token, .. }
        | Command::DropClean { token, .. }
        | Command::VoidPast { token, .. }
        | Command::Quiesce { token } => Some(token),
        Command::Attach { .. }
        | Command::Hold { .. }
        | Command::Grow { .. }
        // Names the command that it stops.
        | Command::Cancel { .. }
        | Command::SetPolicies { .. }
        | Command::Cold { .. }
        | Command::SsdFailed { .. }
        | Command::DegradedRecorded
        | Command::SsdForgotten { .. }
        | Command::GoingHome
        // Answers an event of one shard.
        | Command::PastRecorded { .. }
        | Command::BackingFailed { .. } => None,
    }
}
