//! The integration tests of `content`, in one binary: linked once, and their waits run beside each other.

mod hostile_bytes;
mod samples;
