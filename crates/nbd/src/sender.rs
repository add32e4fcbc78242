//! Replies on their way out: gathered, sent without copying, sent on after a partial send.
//!
//! Invariants: at most one send is in flight, so bytes leave in order; what it names (`sending`, the message) is not touched
//! until it completes; a reply's pages are held until its last byte has been taken by the socket.

use crate::message::Message;
use crate::protocol::ReplyBytes;
use io_uring::{opcode, squeue, types};
use page::{PAGE_BYTES, PageVec};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Replies gathered in one send. With 4 KiB reads this is more than a Unix socket's buffer (208 KiB) takes.
const REPLIES_MAX: usize = 64;

/// Longest reply sent by a system call of its own: the copy must not hold the reactor up.
const LONE_BYTES_MAX: usize = 64 << 10;

/// Bytes that precede the data, or are all there is.
pub(crate) enum Head {
    Reply(ReplyBytes),
    Handshake(Box<[u8]>),
}

impl Head {
    fn bytes(&self) -> &[u8] {
        match self {
            Head::Reply(reply) => reply.as_slice(),
            Head::Handshake(bytes) => bytes,
        }
    }
}

/// One reply with its data.
pub(crate) struct Outgoing {
    pub(crate) head: Head,
    pub(crate) pages: PageVec,
    /// Where the data begins in the first page.
    pub(crate) first_byte: usize,
    pub(crate) data_bytes: usize,
}

impl Outgoing {
    pub(crate) fn bare(head: Head) -> Outgoing {
        Outgoing { head, pages: PageVec::new(), first_byte: 0, data_bytes: 0 }
    }

    fn bytes(&self) -> usize {
        self.head.bytes().len() + self.data_bytes
    }

    /// Appends what is left after the first `skip_bytes` to the message. Says whether all of it found room.
    fn gather(&self, mut skip_bytes: usize, message: &mut Message) -> bool {
        let head = self.head.bytes();
        if skip_bytes < head.len() {
            let rest = &head[skip_bytes..];
            if !message.push(rest.as_ptr().cast_mut(), rest.len()) {
                return false;
            }
            skip_bytes = 0;
        } else {
            skip_bytes -= head.len();
        }
        let (mut at, end) = (self.first_byte + skip_bytes, self.first_byte + self.data_bytes);
        while at < end {
            let within = at % PAGE_BYTES;
            let length = (PAGE_BYTES - within).min(end - at);
            let start = self.pages[at / PAGE_BYTES].as_ptr().wrapping_add(within);
            if !message.push(start.cast_mut(), length) {
                return false;
            }
            at += length;
        }
        true
    }
}

/// What left with a completed send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Departed {
    /// Bytes of data whose pages are free again.
    pub(crate) data_bytes: u64,
}

/// The way out of one connection.
pub(crate) struct Sender {
    queued: VecDeque<Outgoing>,
    sending: Vec<Outgoing>,
    /// Bytes of `sending[0]` that have left already.
    sent_bytes: usize,
    message: Message,
    in_flight: bool,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender {
            queued: VecDeque::new(),
            sending: Vec::with_capacity(REPLIES_MAX),
            sent_bytes: 0,
            message: Message::new(),
            in_flight: false,
        }
    }

    pub(crate) fn queue(&mut self, outgoing: Outgoing) {
        self.queued.push_back(outgoing);
    }

    /// Replies that have not left completely.
    pub(crate) fn pending(&self) -> usize {
        self.queued.len() + self.sending.len()
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Sends a lone short reply by a system call of its own. Where no other reply is near, an entry on the ring gathers nothing and
    /// costs one turn of the reactor more, for its completion. `None` if there is not just that to send, or if it could not be
    /// sent at once: then an entry does it, and learns why.
    pub(crate) fn send_lone(&mut self, socket: BorrowedFd<'_>) -> Option<Departed> {
        let lone = self.sending.is_empty() && self.queued.len() == 1 && self.queued[0].bytes() <= LONE_BYTES_MAX;
        if self.in_flight || !lone {
            return None;
        }
        self.gather();
        // SAFETY: the message names the head and pages of the reply in `sending`, which stay there during the call.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), self.message.pointer(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        usize::try_from(sent).ok().map(|bytes| self.completed(bytes))
    }

    /// An entry that sends what is there, unless a send is in flight or nothing is there. What it names stays in place
    /// until [`Sender::completed`], or until the sender is dropped.
    pub(crate) fn entry(&mut self, socket: types::Fd) -> Option<squeue::Entry> {
        if self.in_flight || self.pending() == 0 {
            return None;
        }
        self.gather();
        self.in_flight = true;
        let flags = libc::MSG_NOSIGNAL;
        Some(match self.message.single() {
            Some((start, length)) => opcode::Send::new(socket, start, length).flags(flags).build(),
            None => opcode::SendMsg::new(socket, self.message.pointer()).flags(flags as u32).build(),
        })
    }

    /// Moves what is queued into the message, as far as there is room.
    fn gather(&mut self) {
        let more = (REPLIES_MAX - self.sending.len()).min(self.queued.len());
        self.sending.extend(self.queued.drain(..more));
        self.message.clear();
        let mut skip_bytes = self.sent_bytes;
        for outgoing in &self.sending {
            if !outgoing.gather(skip_bytes, &mut self.message) {
                break;
            }
            skip_bytes = 0;
        }
    }

    /// The send has taken `bytes`.
    pub(crate) fn completed(&mut self, bytes: usize) -> Departed {
        self.in_flight = false;
        self.sent_bytes += bytes;
        let mut departed = Departed::default();
        let mut whole = 0;
        for outgoing in &self.sending {
            if self.sent_bytes < outgoing.bytes() {
                break;
            }
            self.sent_bytes -= outgoing.bytes();
            departed.data_bytes += outgoing.data_bytes as u64;
            whole += 1;
        }
        self.sending.drain(..whole);
        departed
    }

    /// The send did not happen (interrupted): it may be tried again.
    pub(crate) fn interrupted(&mut self) {
        self.in_flight = false;
    }
}
