//! Certificates: a private authority, the files that clients and servers keep them in, and what a certificate says.
//!
//! The files have the names that QEMU (`tls-creds-x509`), libnbd and nbd-client look for; see [`files`]. [`authority`] makes
//! them, [`pair`] and [`revocation`] read them, [`names`] tells who a certificate is about, [`certificate`] is how they are made.
#![forbid(unsafe_code)]

pub mod authority;
pub mod certificate;
mod der;
pub mod files;
pub mod names;
pub mod pair;
pub mod revocation;

/// Why certificates could not be made or read. Each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file is there already.
    #[error("{0} is there already, and certificates are never overwritten: move it away, or choose another directory")]
    Exists(String),
    /// A file cannot be read, or is not what it should be.
    #[error("{path}: {problem}")]
    Unusable {
        /// Which.
        path: String,
        /// What is wrong, as a clause.
        problem: String,
    },
    /// The name cannot stand in a certificate, or not in a path.
    #[error("{0:?} cannot be the name of a certificate: use letters, digits, dots, hyphens and underscores, at most 64")]
    BadName(String),
    /// A server's name or address.
    #[error("{0:?} is neither a host name nor an IP address: write for instance storage.example or 192.0.2.1")]
    BadHost(String),
    /// A file cannot be written.
    #[error("cannot write {path} ({source}): check the directory, or choose another one")]
    Write {
        /// Which.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The library cannot make it.
    #[error("the certificate cannot be made ({0})")]
    Make(String),
}
