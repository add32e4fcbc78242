//! Who waits for which group.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Waiters by group, apart for completion and durability.
#[derive(Default)]
pub struct Waiters {
    complete: BTreeMap<u64, Vec<u32>>,
    durable: BTreeMap<u64, Vec<u32>>,
}

impl Waiters {
    /// Adds one that waits for completion.
    pub fn add_complete(&mut self, group: u64, waiter: u32) {
        self.complete.entry(group).or_default().push(waiter);
    }

    /// Adds one that waits for durability.
    pub fn add_durable(&mut self, group: u64, waiter: u32) {
        self.durable.entry(group).or_default().push(waiter);
    }

    /// The lowest group whose durability somebody waits for.
    pub fn first_durable(&self) -> Option<u64> {
        self.durable.keys().next().copied()
    }

    /// Moves those served by completion up to `group` into `ready`, oldest group first.
    pub fn take_complete(&mut self, group: u64, ready: &mut Vec<u32>) {
        take(&mut self.complete, group, ready);
    }

    /// Moves those served by durability up to `group` into `ready`, oldest group first.
    pub fn take_durable(&mut self, group: u64, ready: &mut Vec<u32>) {
        take(&mut self.durable, group, ready);
    }

    /// Everybody.
    pub fn take_all(&mut self) -> Vec<u32> {
        let mut all = Vec::new();
        self.take_complete(u64::MAX, &mut all);
        self.take_durable(u64::MAX, &mut all);
        all
    }
}

fn take(waiters: &mut BTreeMap<u64, Vec<u32>>, group: u64, ready: &mut Vec<u32>) {
    while let Some(entry) = waiters.first_entry() {
        if *entry.key() > group {
            break;
        }
        ready.extend(entry.remove());
    }
}
