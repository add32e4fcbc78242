//! What is known of connections to the servers of applications beside their records.

use super::sessions::SessionSeen;
use catalogue::{Clients, Server, Trouble};
use std::collections::{BTreeMap, BTreeSet};

/// A connection is known by its volume and the number of its application.
pub(super) type Of = (String, u32);

/// What is known of connections beside their records.
#[derive(Default)]
pub(super) struct Connections {
    /// Programs that ask servers; `None`: those that are installed.
    pub(super) clients: Option<Clients>,
    pub(super) told: BTreeMap<Of, Told>,
    /// Volumes to be looked at, as names of their servers may have come since the last look began.
    pub(super) looks_due: BTreeSet<String>,
    /// Connected once more: sessions are asked for anew, as the file with the login may say something else.
    pub(super) anew: BTreeSet<Of>,
    /// A thread asks for sessions.
    pub(super) is_asking: bool,
}

/// What a server told last.
#[derive(Default)]
pub(super) struct Told {
    pub(super) server: Option<Server>,
    pub(super) names_trouble: Option<Trouble>,
    pub(super) sessions_trouble: Option<Trouble>,
    pub(super) sessions: Vec<SessionSeen>,
    /// At the last look another server answered than the one whose data directory it is.
    pub(super) is_another: bool,
}
