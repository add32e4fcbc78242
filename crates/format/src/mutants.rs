//! Planted mistakes of this crate, named and numbered as the engine does its own (`engine::mutants`). Compiled in only for tests of the simulator.

use core::sync::atomic::{AtomicU32, Ordering};

/// Checksums of group headers are not checked.
pub const HEADERS_UNCHECKED: u32 = 11;
/// Payload checksums do not cover the address.
pub const CHECKSUM_WITHOUT_ADDRESS: u32 = 13;
/// Checksums of payloads are stored so that those of the records' structure do not tell blocks of the same content apart.
pub const CHECKSUMS_COLLIDE: u32 = 90;

static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process.
pub fn set(number: u32) {
    ACTIVE.store(number, Ordering::SeqCst);
}

pub(crate) fn active(number: u32) -> bool {
    ACTIVE.load(Ordering::Relaxed) == number
}
