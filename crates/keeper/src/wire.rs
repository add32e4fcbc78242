//! Messages with descriptors over Unix sockets.

use crate::DESCRIPTORS_MAX;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, recvmsg, sendmsg, sendmsg_addr,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 512;
const ANCILLARY_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// What daemon and keeper say to each other. The first byte of a message is its kind, the rest a
/// name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Keep the descriptors that come along; also the answer to `Take`, once for each set.
    Keep,
    /// Let the set of this name go; as an answer: it cannot be kept.
    Forget,
    /// Give me everything.
    Take,
    /// Done; the end of the answer to `Take`.
    Done,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Kind::Keep => b'K',
            Kind::Forget => b'F',
            Kind::Take => b'T',
            Kind::Done => b'D',
        }
    }

    fn of_byte(byte: u8) -> Option<Kind> {
        [Kind::Keep, Kind::Forget, Kind::Take, Kind::Done].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Sends one message. A peer that has gone is an error and no signal.
pub(crate) fn send(socket: BorrowedFd<'_>, kind: Kind, name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = vec![kind.byte()];
    bytes.extend_from_slice(name.as_bytes());
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends a datagram of text.
pub(crate) fn send_to(socket: BorrowedFd<'_>, to: &SocketAddrUnix, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg_addr(socket, to, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for one message. `None` when the peer has gone.
///
/// # Errors
/// The system's, [`io::ErrorKind::InvalidData`] for what is no message of ours, or
/// [`io::ErrorKind::OutOfMemory`] if descriptors were lost on the way: this process may have no more.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Kind, String, Vec<OwnedFd>)>> {
    let mut bytes = [0u8; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            result => break result?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let name = std::str::from_utf8(&bytes[1..received.bytes]).map_err(io::Error::other)?;
    let kind = Kind::of_byte(bytes[0]).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((kind, name.to_owned(), descriptors)))
}
