//! The integration tests of `nbd`, in one binary: linked once, and their waits run beside each other.

mod common;
mod exports_and_sockets;
mod handing_over;
mod handshake;
mod hostile_clients;
mod random_bytes;
mod standard_tools;
mod tls;
mod tls_hostile;
mod volume_io;
