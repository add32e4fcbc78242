//! The integration tests of `format`, in one binary: linked once, and their waits run beside each other.

mod golden;
mod golden_packed;
mod golden_slots;
mod image;
mod slots;
mod structures;
