//! Planted mistakes of this crate, numbered as the engine numbers its own. Compiled in only for tests of the simulator.

use core::sync::atomic::{AtomicU32, Ordering};

static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process. 55: a duplicate is believed by its key.
pub fn set(number: u32) {
    ACTIVE.store(number, Ordering::SeqCst);
}

pub(crate) fn active(number: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) == number
}
