//! The end of a log that has become quiet is made durable, and a last small group says that it is.
//!
//! After a power cut, recovery cannot tell a damaged group from one that was never whole, unless a later group says that it had been
//! flushed. While the log grows, the next groups say so. At its end nobody would: an SSD that lost a flushed group there would make
//! recovery go back in time without a word.

use super::Ring;
use crate::store::{Purpose, Store};

/// How long nothing has been appended when the log counts as quiet.
const QUIET_AFTER_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Default)]
pub struct Quiet {
    /// The last group, and since when it is.
    last_group: u64,
    since_ns: u64,
    /// The group that says so for all before it, and needs none itself.
    said_by: u64,
}

impl Quiet {
    /// A log that ends with this group, durably.
    pub fn new(last_group: u64) -> Quiet {
        Quiet { last_group, since_ns: 0, said_by: last_group }
    }
}

impl Ring {
    /// When [`Ring::end_quietly`] should look again if nothing happens.
    pub(super) fn quiet_deadline(&self) -> Option<u64> {
        let quiet = &self.quiet;
        let at_rest = self.is_idle() && !self.common.commits.is_failed() && !self.common.quiescing;
        (quiet.said_by < quiet.last_group && at_rest).then_some(quiet.since_ns + QUIET_AFTER_NS)
    }

    /// Looks whether the log is quiet now; at the end of each turn.
    pub(super) fn end_quietly(&mut self, now_ns: u64) {
        let last_group = self.common.commits.last();
        if self.quiet.last_group != last_group {
            (self.quiet.last_group, self.quiet.since_ns) = (last_group, now_ns);
        }
        if self.quiet_deadline().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        if self.common.commits.durable() < last_group {
            self.common.commits.want_durable(last_group);
        } else if self.has_room(Purpose::Clean) {
            self.quiet.said_by = self.publish_tail().expect("there is room");
            self.quiet.last_group = self.quiet.said_by;
        } else {
            // Eviction goes on as soon as somebody writes; what follows then says it.
            self.quiet.said_by = last_group;
        }
    }
}
