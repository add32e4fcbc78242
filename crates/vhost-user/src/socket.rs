//! Messages with descriptors, over a Unix socket.

use crate::message::{Ask, DESCRIPTORS_MAX, HEAD_BYTES, Head, Malformed};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a front end said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) head: Head,
    pub(crate) ask: Ask,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Why there is no message.
#[derive(Debug)]
pub(crate) enum Silence {
    /// The other end has gone.
    Ended,
    Failed(io::Error),
    Malformed(Malformed),
}

/// Waits for a message.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Said, Silence> {
    let mut head = [0; HEAD_BYTES];
    let mut descriptors = Vec::new();
    fill(socket, &mut head, &mut descriptors)?;
    let head = Head::decode(&head).map_err(Silence::Malformed)?;
    let mut body = vec![0; head.body_bytes];
    if !body.is_empty() {
        fill(socket, &mut body, &mut descriptors)?;
    }
    let ask = Ask::decode(head.request, &body).map_err(Silence::Malformed)?;
    Ok(Said { head, ask, descriptors })
}

/// Fills the buffer; descriptors that come along are added, at most as many as may be with a message.
fn fill(socket: BorrowedFd<'_>, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), Silence> {
    let mut done = 0;
    while done < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut buffer[done..])], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(Silence::Malformed(Malformed("a message has too many descriptors")));
        }
        match received {
            Ok(received) if received.bytes == 0 => return Err(Silence::Ended),
            Ok(received) => done += received.bytes,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Err(Silence::Ended),
            Err(error) => return Err(Silence::Failed(error.into())),
        }
    }
    Ok(())
}

/// Sends all bytes, and a descriptor with the first of them.
pub(crate) fn send(socket: BorrowedFd<'_>, mut bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let mut beside = descriptor.map(AsFd::as_fd);
    while !bytes.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = beside.as_slice();
        if !rights.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(rights));
        }
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                beside = None;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
