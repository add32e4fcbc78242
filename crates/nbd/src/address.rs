//! Where a server listens, and the text by which clients find it.

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenSpec {
    /// A Unix socket.
    Unix {
        /// Its path, at most 107 bytes (the kernel's limit).
        path: PathBuf,
        /// Its mode; 0660 unless there is a reason.
        mode: u32,
        /// The group that owns it; the process's own if `None`.
        group: Option<u32>,
    },
    /// TCP on a loopback address; others are refused, since without TLS there is no encryption. Port 0 lets the kernel
    /// choose.
    Tcp(SocketAddr),
}

impl ListenSpec {
    /// A Unix socket for owner and group.
    pub fn unix(path: impl Into<PathBuf>) -> ListenSpec {
        ListenSpec::Unix { path: path.into(), mode: 0o660, group: None }
    }
}

impl core::fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ListenSpec::Unix { path, .. } => write!(f, "{}", path.display()),
            ListenSpec::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Bytes that stand for themselves in every part of a URI (RFC 3986, "Unreserved Characters").
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn escape(into: &mut String, bytes: &[u8], keep: u8) {
    for &byte in bytes {
        if is_unreserved(byte) || byte == keep {
            into.push(char::from(byte));
        } else {
            write!(into, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
}

/// The URI of an export on a Unix socket: `nbd+unix:///NAME?socket=PATH` (the NBD project's `doc/uri.md`). The empty name
/// means the default export.
pub fn unix_uri(name: &str, socket: &Path) -> String {
    let mut uri = String::from("nbd+unix:///");
    escape(&mut uri, name.as_bytes(), b'~');
    uri.push_str("?socket=");
    escape(&mut uri, socket.as_os_str().as_bytes(), b'/');
    uri
}

/// The URI of an export on a TCP address: `nbd://ADDRESS:PORT/NAME`, with TLS `nbds://ADDRESS:PORT/NAME`. Of one that listens on all
/// addresses, this machine's name stands for them: a certificate can be for that.
pub fn tcp_uri(name: &str, address: SocketAddr, tls: bool) -> String {
    let own = rustix::system::uname();
    let own = own.nodename().to_str().ok().filter(|own| address.ip().is_unspecified() && own.bytes().all(is_unreserved) && !own.is_empty());
    let host = own.map_or_else(|| address.to_string(), |own| format!("{own}:{}", address.port()));
    let mut uri = format!("nbd{}://{host}/", if tls { "s" } else { "" });
    escape(&mut uri, name.as_bytes(), b'~');
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_escape_what_they_must() {
        assert_eq!(unix_uri("db", Path::new("/run/hearth/n.sock")), "nbd+unix:///db?socket=/run/hearth/n.sock");
        assert_eq!(unix_uri("a b/ü?", Path::new("/x&y")), "nbd+unix:///a%20b%2F%C3%BC%3F?socket=/x%26y");
        assert_eq!(tcp_uri("db", "127.0.0.1:10809".parse().unwrap(), false), "nbd://127.0.0.1:10809/db");
        assert_eq!(tcp_uri("db", "[::1]:10809".parse().unwrap(), true), "nbds://[::1]:10809/db");
    }
}
