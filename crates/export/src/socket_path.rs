//! The path of a Unix socket, in a value that can be copied.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What fits an address of the kernel, with a zero at the end.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// An absolute path, short enough for a socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketPath {
    /// What is behind the length is zero, so that equal paths are equal values.
    bytes: [u8; SOCKET_PATH_BYTES_MAX],
    length: u8,
}

impl SocketPath {
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn new(path: &str) -> Result<SocketPath, (String, &'static str)> {
        if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
            return Err((
                format!("has the path {path:?}, which is not the absolute path of a file"),
                "write for instance /run/hearth/vm1.sock",
            ));
        }
        let mut bytes = [0; SOCKET_PATH_BYTES_MAX];
        let Some(start) = bytes.get_mut(..path.len()) else {
            let problem = format!("has a path of {} bytes, and sockets have {SOCKET_PATH_BYTES_MAX} at most", path.len());
            return Err((problem, "choose a shorter path"));
        };
        start.copy_from_slice(path.as_bytes());
        Ok(SocketPath { bytes, length: path.len() as u8 })
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes[..usize::from(self.length)]))
    }
}

impl std::fmt::Display for SocketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().display().fmt(f)
    }
}

impl std::fmt::Debug for SocketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_path().fmt(f)
    }
}
