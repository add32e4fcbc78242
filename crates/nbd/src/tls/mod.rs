//! TLS on a TCP export: both sides show a certificate of the same private authority (`NBD_OPT_STARTTLS`, "FORCEDTLS").
//!
//! ```text
//!   STARTTLS ─▶ negotiation (records in and out) ⇄ desk (a thread of its own: signatures, certificates) ─▶ keys
//!                                                                                                           │
//!                                      receiver ─▶ opener (records to bytes)   sender ─▶ sealer (bytes to records)
//! ```
//!
//! The slow part, signatures and certificates, is rustls's, on a thread that no I/O waits for. The rest is done where the bytes are:
//! a record is opened or sealed in place, in a buffer of fixed size for each direction. TLS 1.3 is what clients speak; nbd-client speaks
//! 1.2 alone.

mod credentials;
mod desk;
mod negotiation;
mod opener;
mod record;
mod refusals;
mod sealer;

pub use credentials::Tls;
pub(crate) use negotiation::{Agreed, Negotiating, Step};
pub(crate) use opener::{Opened, Opener};
pub(crate) use record::Keys;
pub(crate) use sealer::Sealer;
