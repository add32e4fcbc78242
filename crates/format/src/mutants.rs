//! Planted mistakes of this crate, numbered as the engine numbers its own. Compiled in only for tests of the simulator.

use core::sync::atomic::{AtomicU32, Ordering};

static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process. 11: checksums of group headers are not compared. 13: payload
/// checksums do not cover the address. 90: they are stored as they are.
pub fn set(number: u32) {
    ACTIVE.store(number, Ordering::SeqCst);
}

pub(crate) fn active(number: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) == number
}
