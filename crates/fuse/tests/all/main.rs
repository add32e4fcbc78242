//! The integration tests of `fuse`, in one binary: linked once, and their waits run beside each other.

mod common;
mod loop_device;
mod takeover;
mod whose_device;
