//! Planted mistakes of this crate, named and numbered as the engine does its own (`engine::mutants`). Compiled in only for tests of the simulator.

use core::sync::atomic::{AtomicU32, Ordering};

/// A duplicate is believed by its key.
pub const DUPLICATE_BY_KEY: u32 = 55;

static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process.
pub fn set(number: u32) {
    ACTIVE.store(number, Ordering::SeqCst);
}

pub(crate) fn active(number: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) == number
}
