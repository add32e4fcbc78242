//! The NBD protocol without I/O: bytes in, decisions and bytes out.
//!
//! The rules are those of the protocol's own document (`doc/proto.md` of the NetworkBlockDevice project); section names in
//! comments are that document's. [`Handshake`] turns the first bytes of a connection into a [`Session`]; a session judges
//! request headers; [`reply`] makes the bytes that go back. Nothing here opens, waits or allocates by a number that a
//! client sent without having compared it with a limit.
#![forbid(unsafe_code)]

pub mod handshake;
pub mod reply;
pub mod request;
pub mod wire;

pub use handshake::{Admission, Catalog, ClosedBy, ExportInfo, GREETING, Handshake, Progress};
pub use reply::ReplyBytes;
pub use request::{Command, NotNbd, RequestHeader, Session, Verdict};
pub use wire::Errno;
