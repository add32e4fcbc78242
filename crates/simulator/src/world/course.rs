//! Where a run meets the steps of its [`Course`](crate::course::Course): what does not happen, and which scene draws belong to.

use std::hash::Hash;

use super::content::Turn;
use super::{Happening, World};
use crate::course::{Choice, Kind};
use crate::disk::faults::Class;

impl World<'_> {
    /// What is drawn while this is handled belongs to it, however much else is left out.
    pub fn begin_scene(&mut self, happening: &Happening) {
        let kind = std::mem::discriminant(happening);
        match happening {
            Happening::IoDone(device, token) => self.scene((kind, *device, self.devices[*device].name(*token))),
            Happening::Parcel(channel) => self.scene((kind, *channel)),
            Happening::Client(connection) => self.scene((kind, *connection)),
            _ => self.scene(kind),
        }
    }

    /// Begins a scene of all that draws.
    pub fn scene(&mut self, name: impl Hash) {
        self.prng.scene(&name);
        self.disk_prng.scene(&name);
        self.queue.prng().scene(&name);
    }

    /// Whether this is a step that does not happen; then, how long until the next of its kind may.
    pub fn is_left_out(&mut self, happening: &Happening) -> Option<Option<u64>> {
        let kind = match happening {
            Happening::Rot => Kind::Rot,
            Happening::SsdLeaves => Kind::SsdLeaves,
            Happening::BackingLeaves(true) => Kind::BackingLeaves,
            Happening::Disconnect => Kind::Disconnect,
            Happening::Shortage(true) => Kind::Shortage,
            Happening::Busy(true) => Kind::Busy,
            Happening::Grow => Kind::Grow,
            Happening::Labels => Kind::Labels,
            Happening::Content(Turn::ForgetHints) => Kind::ForgetHints,
            Happening::Content(Turn::ChangeLevel) => Kind::ChangeLevel,
            _ => return None,
        };
        if !self.safety {
            return None;
        }
        let choice = self.course.next(kind);
        let happens = self.course.happens(choice, || in_words(kind).to_string());
        (!happens).then(|| self.course.next_after(kind))
    }

    /// Blocking work on the SSD begins: may its I/Os fail?
    pub fn begin_blocking(&mut self) -> Choice {
        let choice = self.course.next(Kind::BlockingStrike);
        self.devices[0].faults.veto = !self.course.may_strike(choice);
        choice
    }

    /// It has ended: what struck in it.
    pub fn struck_in(&mut self, blocking: Choice) -> Vec<Class> {
        let faults = &mut self.devices[0].faults;
        faults.veto = false;
        let struck = std::mem::take(&mut faults.struck);
        if !struck.is_empty() {
            self.course.note(blocking, || format!("SSD: errors in blocking work: {struck:?}"));
        }
        struck
    }

    /// Whether a process that would die after so many calls of blocking work does.
    pub fn may_die(&mut self, calls: u64) -> bool {
        let choice = self.course.next(Kind::Death);
        self.course.happens(choice, || format!("the process dies in blocking work, at call {calls}"))
    }
}

fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Request(_) => "a request",
        Kind::Act => "the operator acts",
        Kind::Cancel => "the operator cancels",
        Kind::Strike(_) | Kind::BlockingStrike => "an I/O fails",
        Kind::Death => "the process dies in blocking work",
        Kind::Crash => "the process dies",
        Kind::Rot => "old data on the SSD decays",
        Kind::SsdLeaves => "the SSD leaves",
        Kind::BackingLeaves => "the first backing device leaves for a while",
        Kind::Disconnect => "a client goes",
        Kind::Shortage => "pages run short for a while",
        Kind::Busy => "the host is busy for a while",
        Kind::Grow => "a volume may grow",
        Kind::Labels => "something is said of objects",
        Kind::ForgetHints => "the pool loses its hints",
        Kind::ChangeLevel => "the level of content changes",
    }
}
