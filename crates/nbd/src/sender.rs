//! Replies on their way out: gathered, sent without copying, sent on after a partial send.
//!
//! Invariants: at most one send is in flight, so bytes leave in order; what it names (`sending`, the message) is not touched
//! until it completes; a reply's pages are held until its last byte has been taken by the socket, or, with TLS, has been sealed.

use crate::message::Message;
use crate::protocol::ReplyBytes;
use crate::tls::{Keys, Sealer};
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

    /// The longest piece of what is left after the first `skip_bytes`; empty at its end.
    fn piece(&self, skip_bytes: usize) -> &[u8] {
        let head = self.head.bytes();
        if skip_bytes < head.len() {
            return &head[skip_bytes..];
        }
        let at = self.first_byte + skip_bytes - head.len();
        let within = at % PAGE_BYTES;
        let left = self.first_byte + self.data_bytes - at;
        if left == 0 { &[] } else { &self.pages[at / PAGE_BYTES][within..(within + left).min(PAGE_BYTES)] }
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
    /// With TLS all goes through here.
    sealer: Option<Box<Sealer>>,
    /// What was sealed and has not been told to be gone.
    sealed: Departed,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender {
            queued: VecDeque::new(),
            sending: Vec::with_capacity(REPLIES_MAX),
            sent_bytes: 0,
            message: Message::new(),
            in_flight: false,
            sealer: None,
            sealed: Departed::default(),
        }
    }

    /// From now on everything goes by TLS, after these last bytes of its handshake. Nothing is on its way.
    pub(crate) fn begin_tls(&mut self, keys: Keys, last: &[u8]) {
        assert!(self.pending() == 0 && !self.in_flight, "what was to be sent plainly has left");
        self.sealer = Some(Box::new(Sealer::new(keys, last)));
    }

    /// Whether new keys are due, because these are used up or they are `wanted`, and may be taken now.
    pub(crate) fn takes_keys(&self, wanted: bool) -> bool {
        self.sealer.as_ref().is_some_and(|sealer| (wanted || sealer.is_used_up()) && sealer.is_empty())
    }

    /// Whether the keys are used up for good.
    pub(crate) fn is_spent(&self) -> bool {
        self.sealer.as_ref().is_some_and(|sealer| sealer.is_spent())
    }

    pub(crate) fn renew_keys(&mut self, keys: Keys) {
        if let Some(sealer) = &mut self.sealer {
            sealer.renew(keys);
        }
    }

    /// All has left, and nothing follows: with TLS the client is told so, if its socket takes that at once.
    pub(crate) fn say_goodbye(&mut self, socket: BorrowedFd<'_>) {
        if let Some(sealer) = self.sealer.as_mut().filter(|sealer| sealer.is_empty()) {
            sealer.close();
            if let Err(error) =
                rustix::net::send(socket, sealer.waiting(), rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL)
            {
                tracing::debug!(%error, "a client was gone before the end was said");
            }
        }
    }

    pub(crate) fn queue(&mut self, outgoing: Outgoing) {
        self.queued.push_back(outgoing);
    }

    /// Replies that have not left completely.
    pub(crate) fn pending(&self) -> usize {
        let sealed = self.sealer.as_ref().is_some_and(|sealer| !sealer.is_empty());
        self.queued.len() + self.sending.len() + usize::from(sealed)
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
        if self.sealer.as_ref().is_some_and(|sealer| !sealer.is_empty()) {
            return None;
        }
        self.gather();
        if let Some(sealer) = &self.sealer {
            let waiting = sealer.waiting();
            let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
            let sent = rustix::net::send(socket, waiting, flags);
            return sent.ok().map(|bytes| self.completed(bytes));
        }
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
        if let Some(sealer) = &self.sealer {
            let waiting = sealer.waiting();
            return Some(opcode::Send::new(socket, waiting.as_ptr(), waiting.len() as u32).flags(flags).build());
        }
        Some(match self.message.single() {
            Some((start, length)) => opcode::Send::new(socket, start, length).flags(flags).build(),
            None => opcode::SendMsg::new(socket, self.message.pointer()).flags(flags as u32).build(),
        })
    }

    /// Seals what is queued, as far as there is room, if all before it has left.
    fn gather_sealed(&mut self) {
        let Some(sealer) = self.sealer.as_mut().filter(|sealer| sealer.is_empty()) else { return };
        while let Some(first) = self.queued.front() {
            let piece = first.piece(self.sent_bytes);
            if piece.is_empty() {
                self.sealed.data_bytes += first.data_bytes as u64;
                self.sent_bytes = 0;
                self.queued.pop_front();
                continue;
            }
            let put = sealer.put(piece);
            if put == 0 {
                break;
            }
            self.sent_bytes += put;
        }
        sealer.seal();
    }

    /// Moves what is queued into the message, as far as there is room.
    fn gather(&mut self) {
        if self.sealer.is_some() {
            return self.gather_sealed();
        }
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
        if let Some(sealer) = &mut self.sealer {
            sealer.departed(bytes);
            return core::mem::take(&mut self.sealed);
        }
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
