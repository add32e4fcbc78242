//! The integration tests of `analysis`, in one binary: linked once, and their waits run beside each other.

mod miniature;
mod recorded;
