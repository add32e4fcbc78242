//! How far what was written is safe, and who waits for that.
//!
//! Invariants:
//! * `complete` is the highest number such that all groups up to it are on the device; `durable <= complete <= last`.
//! * After a failed write or flush nothing more becomes complete or durable.

use super::waiters::Waiters;
use alloc::vec::Vec;

/// See the module.
pub struct Commits {
    last: u64,
    complete: u64,
    durable: u64,
    wanted: u64,
    waiters: Waiters,
    failed: bool,
}

impl Commits {
    /// All groups up to this one are durable, and there are no others.
    pub(super) fn new(last: u64) -> Commits {
        Commits { last, complete: last, durable: last, wanted: 0, waiters: Waiters::default(), failed: false }
    }

    /// All groups up to this number are on the device: the end of the process does not lose them.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// All groups up to this number survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The last number given to a group, handed out or not.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether a write or flush failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// `waiter` is to be named in [`super::Progress::ready`] when the group is complete. False if it is already.
    pub fn wait_complete(&mut self, group: u64, waiter: u32) -> bool {
        if group <= self.complete || self.failed {
            return false;
        }
        self.waiters.add_complete(group, waiter);
        true
    }

    /// `waiter` is to be named in [`super::Progress::ready`] when the group is durable. False if it is already.
    pub fn wait_durable(&mut self, group: u64, waiter: u32) -> bool {
        if group <= self.durable || self.failed {
            return false;
        }
        self.waiters.add_durable(group, waiter);
        self.want_durable(group);
        true
    }

    /// The group is to be durable soon; nobody in particular waits.
    pub fn want_durable(&mut self, group: u64) {
        assert!(group <= self.last, "group {group} is wanted, and {} is the last", self.last);
        self.wanted = self.wanted.max(group);
    }

    /// The SSD is given up: gives who waited for it.
    pub fn fail(&mut self) -> Vec<u32> {
        self.failed = true;
        self.waiters.take_all()
    }

    /// Begins a group; gives its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether the group is to be durable soon.
    pub(super) fn is_wanted(&self, group: u64) -> bool {
        group <= self.wanted
    }

    /// The lowest group that someone wants durable and that is not; waiting for higher ones first would make the lower ones wait too.
    pub(super) fn next_wanted(&self) -> Option<u64> {
        [self.waiters.first_durable(), Some(self.wanted)].into_iter().flatten().filter(|group| *group > self.durable).min()
    }

    /// All groups up to this one are on the device.
    pub(super) fn completed(&mut self, group: u64) {
        assert!(self.complete < group && group <= self.last, "group {group} follows {}", self.complete);
        self.complete = group;
    }

    /// The device has flushed all groups up to this one.
    pub(super) fn flushed(&mut self, group: u64) {
        assert!(group <= self.complete, "what is durable was complete");
        self.durable = self.durable.max(group);
    }

    /// Moves those whose group is complete into `ready`.
    pub(super) fn take_complete(&mut self, ready: &mut Vec<u32>) {
        self.waiters.take_complete(self.complete, ready);
    }

    /// Moves those whose group is durable into `ready`.
    pub(super) fn take_durable(&mut self, ready: &mut Vec<u32>) {
        self.waiters.take_durable(self.durable, ready);
    }
}
