//! The integration tests of `history`, in one binary: linked once, and their waits run beside each other.

mod bounds;
mod common;
mod damage;
mod kill;
mod model;
