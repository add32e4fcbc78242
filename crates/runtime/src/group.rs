//! Groups of endpoints: what belongs to one export, so that it can be stopped as a whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The endpoints of one export: what was added, and everything those have added.
#[derive(Clone)]
pub struct EndpointGroup(pub(crate) Arc<Group>);

pub(crate) struct Group {
    pub(crate) number: u32,
    pub(crate) stopping: AtomicBool,
    /// Its entries end with the process, and nobody waits for that.
    pub(crate) abandoned: AtomicBool,
    members: Mutex<usize>,
    left: Condvar,
}

impl EndpointGroup {
    pub(crate) fn new(number: u32) -> EndpointGroup {
        EndpointGroup(Arc::new(Group {
            number,
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            members: Mutex::new(0),
            left: Condvar::new(),
        }))
    }

    /// How many endpoints of the group there are, those on their way to a reactor included.
    pub fn len(&self) -> usize {
        *self.0.members.lock().expect("no holder of this lock panics")
    }

    /// Whether all endpoints of the group have closed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the group is empty. `false` if it still was not after `patience`.
    pub fn wait_empty(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut members = self.0.members.lock().expect("no holder of this lock panics");
        while *members > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            members = self.0.left.wait_timeout(members, left).expect("no holder of this lock panics").0;
        }
        true
    }

    pub(crate) fn join(&self) -> Membership {
        *self.0.members.lock().expect("no holder of this lock panics") += 1;
        Membership(self.clone())
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for EndpointGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EndpointGroup({}, {} members)", self.0.number, self.len())
    }
}

/// One endpoint's place in its group; leaves when dropped.
pub(crate) struct Membership(pub(crate) EndpointGroup);

impl Drop for Membership {
    fn drop(&mut self) {
        *self.0.0.members.lock().expect("no holder of this lock panics") -= 1;
        self.0.0.left.notify_all();
    }
}
