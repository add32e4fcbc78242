//! What an exporter has made, by volume.

use crate::site::Owner;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One value a volume, each behind a lock of its own: what is slow for one volume does not hold up another.
pub struct Slots<T> {
    slots: Mutex<BTreeMap<Owner, Arc<Mutex<Option<T>>>>>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Mutex::default() }
    }
}

impl<T> Slots<T> {
    /// The volume's slot, perhaps empty.
    pub fn of(&self, owner: Owner) -> Arc<Mutex<Option<T>>> {
        locked(&self.slots).entry(owner).or_default().clone()
    }

    /// Looks at what the volume has, with its lock held.
    pub fn with<R>(&self, owner: Owner, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let slot = locked(&self.slots).get(&owner).cloned()?;
        locked(&slot).as_mut().map(look)
    }

    /// Takes it out, so that others do not wait for the lock while it is taken down.
    pub fn take(&self, owner: Owner) -> Option<T> {
        let slot = locked(&self.slots).get(&owner).cloned()?;
        locked(&slot).take()
    }

    /// Puts it in. What was there goes.
    pub fn put(&self, owner: Owner, value: T) {
        *locked(&self.of(owner)) = Some(value);
    }

    /// Whether the volume has one.
    pub fn has(&self, owner: Owner) -> bool {
        self.with(owner, |_| ()).is_some()
    }

    /// The volume goes.
    pub fn remove(&self, owner: Owner) -> Option<T> {
        let slot = locked(&self.slots).remove(&owner)?;
        locked(&slot).take()
    }
}

/// Also after a holder has panicked: the exports of the other volumes go on.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
