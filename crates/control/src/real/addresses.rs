//! Addresses of this machine.

use crate::error::ControlError;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// Whether a network interface has the address; true where that cannot be known.
pub(super) fn is_here(address: SocketAddr) -> bool {
    // Any port will do.
    let bound = TcpListener::bind(SocketAddr::new(address.ip(), 0));
    !bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// # Errors
/// [`ControlError::BadOption`] if no network interface has the address.
pub(super) fn check(address: SocketAddr) -> Result<(), ControlError> {
    if is_here(address) {
        return Ok(());
    }
    Err(ControlError::BadOption {
        option: "--export",
        problem: format!("names {}, an address that no network interface of this machine has", address.ip()),
        remedy: "give one of those that `ip address` shows".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_machine_is_refused() {
        // RFC 5737 and RFC 3849: for documentation, so nobody has them.
        for other in ["192.0.2.1:10809", "[2001:db8::1]:10809"] {
            let refused = check(other.parse().expect("an address")).expect_err("it is not ours").to_string();
            assert!(refused.contains("no network interface"), "{refused}");
        }
        for ours in ["127.0.0.1:10809", "0.0.0.0:1", "[::]:0"] {
            check(ours.parse().expect("an address")).expect("any interface will do");
        }
    }
}
