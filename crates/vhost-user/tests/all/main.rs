//! The integration tests of `vhost-user`, in one binary: linked once, and their waits run beside each other.

mod changes;
mod common;
mod guest_io;
mod hostile;
mod outlives;
