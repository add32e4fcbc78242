//! The integration tests of `catalogue`, in one binary: linked once, and their waits run beside each other.

mod fake;
mod live;
