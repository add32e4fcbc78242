//! Addresses of this machine's network interfaces.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// Whether a network interface has the address; true where that cannot be known.
pub(crate) fn is_here(address: SocketAddr) -> bool {
    // Any port will do.
    let bound = TcpListener::bind(SocketAddr::new(address.ip(), 0));
    !bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine_is_not_here() {
        // RFC 5737 and RFC 3849: for documentation, so nobody has them.
        for other in ["192.0.2.1:10809", "[2001:db8::1]:10809"] {
            assert!(!is_here(other.parse().expect("an address")), "{other}");
        }
        for ours in ["127.0.0.1:10809", "0.0.0.0:1", "[::]:0"] {
            assert!(is_here(ours.parse().expect("an address")), "{ours}: any interface will do");
        }
    }
}
