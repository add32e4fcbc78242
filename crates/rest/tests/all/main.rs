//! The integration tests of `rest`, in one binary: linked once, and their waits run beside each other.

mod access;
mod crowds;
mod problems;
mod stream;
mod support;
