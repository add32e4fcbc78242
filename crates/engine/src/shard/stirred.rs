//! Whether the store may have something to hand out. Most requests are answered without it; then it need not be asked.

use crate::store::Slots;
use core::ops::{Deref, DerefMut};

/// The store, and whether anything was done to it since it last had nothing to hand out.
pub(super) struct Stirred {
    store: Slots,
    is_stirred: bool,
}

impl Stirred {
    pub(super) fn new(store: Slots) -> Stirred {
        Stirred { store, is_stirred: true }
    }

    /// The store, if it may have something to hand out now.
    pub(super) fn stirred(&mut self) -> Option<&mut Slots> {
        self.is_stirred.then_some(&mut self.store)
    }

    /// It has handed out what it can now. What it has begun may become due as time passes.
    pub(super) fn is_pumped(&mut self) {
        self.is_stirred = self.store.has_begun();
    }
}

impl Deref for Stirred {
    type Target = Slots;

    fn deref(&self) -> &Slots {
        &self.store
    }
}

impl DerefMut for Stirred {
    fn deref_mut(&mut self) -> &mut Slots {
        self.is_stirred = true;
        &mut self.store
    }
}
