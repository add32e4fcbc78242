//! The INIT exchange, done before the connection is handed to a reactor, so that all that follows knows what was agreed.

use crate::error::FuseError;
use crate::protocol::answer::out_header;
use crate::protocol::init::{self, Limits, MAJOR, MINOR_MIN, Negotiated};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel sends INIT by itself while mounting; it can only be late on a machine that swaps.
const PATIENCE_MS: i32 = 10_000;
/// The kernel refuses shorter reads (`FUSE_MIN_READ_BUFFER`).
const MESSAGE_BYTES: usize = 8192;

/// Answers INIT on a fresh connection.
///
/// # Errors
/// [`FuseError::TooOld`], [`FuseError::NoRing`] if `ring_required` and not offered, or the system's.
pub(crate) fn shake(connection: BorrowedFd<'_>, limits: &Limits, ring_required: bool) -> Result<Negotiated, FuseError> {
    let file = connection.try_clone_to_owned().map_err(FuseError::system("duplicate", "/dev/fuse"))?;
    let mut file = File::from(file);
    loop {
        let mut message = [0u8; MESSAGE_BYTES];
        let bytes = receive(&mut file, &mut message).map_err(FuseError::system("receive the handshake from", "/dev/fuse"))?;
        let Some((unique, offer)) = init::decode_message(&message[..bytes]) else {
            continue;
        };
        let mut reply = |error: i32, body: &[u8]| {
            let mut bytes = out_header(unique, error, body.len()).to_vec();
            bytes.extend_from_slice(body);
            file.write_all(&bytes).map_err(FuseError::system("answer the handshake of", "/dev/fuse"))
        };
        if offer.major > MAJOR {
            // A later protocol: say ours, and the kernel asks again in it.
            reply(0, &offer.negotiate(limits).0)?;
            continue;
        }
        if offer.major < MAJOR || offer.minor < MINOR_MIN {
            reply(-libc::EPROTO, &[])?;
            return Err(FuseError::TooOld { minor: offer.minor });
        }
        let (body, negotiated) = offer.negotiate(limits);
        if ring_required && !negotiated.over_io_uring {
            reply(-libc::EPROTO, &[])?;
            return Err(FuseError::NoRing);
        }
        reply(0, &body)?;
        return Ok(negotiated);
    }
}

fn receive(file: &mut File, message: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, there until the call returns.
        match unsafe { libc::poll(&mut poll, 1, PATIENCE_MS) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            count if count < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                return Err(io::Error::last_os_error());
            }
            _ => {}
        }
        match file.read(message) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            result => return result,
        }
    }
}
