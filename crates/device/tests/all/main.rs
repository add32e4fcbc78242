//! The integration tests of `device`, in one binary: linked once, and their waits run beside each other.

mod common;
mod discovering;
mod foreign_hands;
mod opening;
