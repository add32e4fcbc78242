//! Names of the files, and how they are written: whole or not at all, keys for their owner alone, never over another file.

use crate::PkiError;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The authority's certificate: whom its holder trusts.
pub const CA_CERTIFICATE: &str = "ca-cert.pem";
/// The authority's key: who holds it can make certificates.
pub const CA_KEY: &str = "ca-key.pem";
/// Certificates that the authority has revoked. Used if it is there.
pub const CA_REVOKED: &str = "ca-crl.pem";
/// A server's certificate.
pub const SERVER_CERTIFICATE: &str = "server-cert.pem";
/// A server's key.
pub const SERVER_KEY: &str = "server-key.pem";
/// A client's certificate.
pub const CLIENT_CERTIFICATE: &str = "client-cert.pem";
/// A client's key.
pub const CLIENT_KEY: &str = "client-key.pem";

/// Mode of a certificate, and of a key.
const OPEN_MODE: u32 = 0o644;
const PRIVATE_MODE: u32 = 0o600;

/// A file to be written.
pub(crate) struct New<'a> {
    pub(crate) name: &'a str,
    pub(crate) content: String,
    pub(crate) private: bool,
}

/// Writes files into a directory, which is made (for its owner alone) if it is not there.
///
/// # Errors
/// [`PkiError::Exists`] if one of them is there: then nothing is written.
pub(crate) fn write_all(directory: &Path, files: &[New<'_>]) -> Result<(), PkiError> {
    let path = |file: &New<'_>| directory.join(file.name);
    if let Some(there) = files.iter().map(path).find(|path| path.symlink_metadata().is_ok()) {
        return Err(PkiError::Exists(there.display().to_string()));
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|source| failed(directory, source))?;
    for file in files {
        let mode = if file.private { PRIVATE_MODE } else { OPEN_MODE };
        write_new(&path(file), file.content.as_bytes(), mode)?;
    }
    Ok(())
}

fn failed(path: &Path, source: std::io::Error) -> PkiError {
    match source.kind() {
        std::io::ErrorKind::AlreadyExists => PkiError::Exists(path.display().to_string()),
        _ => PkiError::Write { path: path.display().to_string(), source },
    }
}

/// Under its name it appears whole: it is written beside it, and linked, which replaces nothing.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
    let fresh = path.with_extension("pem.new");
    let write = || -> std::io::Result<()> {
        // What an interrupted one has left.
        if fresh.symlink_metadata().is_ok() {
            std::fs::remove_file(&fresh)?;
        }
        write_synced(&fresh, bytes, mode)?;
        std::fs::hard_link(&fresh, path)
    };
    let written = write();
    let cleared = std::fs::remove_file(&fresh);
    written.and(cleared).and_then(|()| sync_directory(path)).map_err(|source| failed(path, source))
}

fn write_synced(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Replaces a file as a whole, for its owner alone.
///
/// # Errors
/// What the file system says; the old content stays then.
pub fn replace_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("pem.new");
    if fresh.symlink_metadata().is_ok() {
        std::fs::remove_file(&fresh)?;
    }
    write_synced(&fresh, bytes, PRIVATE_MODE)?;
    std::fs::rename(&fresh, path)?;
    sync_directory(path)
}
