//! Bytes on their way in: headers and small payloads through a buffer, the rest of a payload straight into its pages.
//!
//! Invariants: at most one receive is in flight; while it is, neither the buffer's free part nor the piece it names is
//! touched; bytes are handed on in the order in which they came.

use crate::message::Message;
use crate::tls::{Keys, Opened, Opener};
use io_uring::{cqueue, opcode, squeue, types};
use page::{PAGE_BYTES, PageMutVec};

/// Size of the buffer. A 4 KiB write that lies in it whole costs one copy (about 100 ns) instead of one more receive (about
/// 1 µs); eight of them, or a thousand headers, come with one call.
const BUFFER_BYTES: usize = 32 << 10;
/// What is left of the buffer for the header after a large payload: more would only be copied.
const AFTER_LARGE_BYTES: usize = 512;
/// `IORING_RECVSEND_POLL_FIRST`: do not try before there is something.
const POLL_FIRST: u16 = 1;

/// A part of a write's payload on its way into pages.
pub(crate) struct Piece {
    pub(crate) pages: PageMutVec,
    /// Where the data begins in the first page.
    pub(crate) first_byte: usize,
    pub(crate) length_bytes: usize,
    pub(crate) filled_bytes: usize,
}

impl Piece {
    pub(crate) fn is_full(&self) -> bool {
        self.filled_bytes == self.length_bytes
    }

    /// The memory after what is filled, page by page.
    fn for_each_rest(&mut self, mut each: impl FnMut(*mut u8, usize) -> bool) {
        let (mut at, end) = (self.first_byte + self.filled_bytes, self.first_byte + self.length_bytes);
        while at < end {
            let within = at % PAGE_BYTES;
            let length = (PAGE_BYTES - within).min(end - at);
            if !each(self.pages[at / PAGE_BYTES].as_mut_ptr().wrapping_add(within), length) {
                return;
            }
            at += length;
        }
    }

    /// Takes what fits from the front of `from`; gives how much.
    fn fill(&mut self, from: &[u8]) -> usize {
        let taken = from.len().min(self.length_bytes - self.filled_bytes);
        let mut copied = 0;
        while copied < taken {
            let at = self.first_byte + self.filled_bytes;
            let within = at % PAGE_BYTES;
            let length = (PAGE_BYTES - within).min(taken - copied);
            self.pages[at / PAGE_BYTES][within..within + length].copy_from_slice(&from[copied..copied + length]);
            copied += length;
            self.filled_bytes += length;
        }
        taken
    }
}

/// The way in of one connection.
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    message: Message,
    in_flight: bool,
    /// The last receive found the socket empty after it: the next one had better wait first.
    drained: bool,
    after_large: bool,
    /// With TLS all comes through here.
    opener: Option<Opener>,
}

/// What came of opening a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// There are new bytes, or nothing has changed: look again.
    Used,
    /// More has to be received first.
    NeedMore,
    /// The client has new keys; whether it wants us to have some, too.
    KeyUpdate {
        wanted: bool,
    },
    /// The client will send nothing more.
    Closed,
    Broken,
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        let buffer = vec![0; BUFFER_BYTES];
        let message = Message::new();
        Receiver { buffer, start: 0, end: 0, message, in_flight: false, drained: true, after_large: false, opener: None }
    }

    /// Begins with bytes that another server has received.
    pub(crate) fn with_input(input: &[u8]) -> Receiver {
        let mut receiver = Receiver::new();
        let length = input.len().max(BUFFER_BYTES);
        receiver.buffer.resize(length, 0);
        receiver.buffer[..input.len()].copy_from_slice(input);
        receiver.end = input.len();
        receiver
    }

    /// From now on everything comes by TLS: `behind`, what else has been received, and what will be.
    pub(crate) fn begin_tls(&mut self, keys: Keys, behind: &[u8]) {
        let input = [behind, self.bytes()].concat();
        (self.start, self.end) = (0, 0);
        self.opener = Some(Opener::new(keys, &input));
    }

    pub(crate) fn set_keys(&mut self, keys: Keys) {
        if let Some(opener) = &mut self.opener {
            opener.set_keys(keys);
        }
    }

    /// Opens the next record that has come: what is in it goes to `piece`, the rest into the buffer, of which all but less than a header is
    /// used by then.
    pub(crate) fn open_record(&mut self, piece: Option<&mut Piece>) -> Record {
        let Some(opener) = &mut self.opener else { return Record::NeedMore };
        match opener.open() {
            Opened::NeedMore => Record::NeedMore,
            Opened::KeyUpdate { wanted } => Record::KeyUpdate { wanted },
            Opened::Closed => Record::Closed,
            Opened::Broken => Record::Broken,
            Opened::Data(mut bytes) => {
                if let Some(piece) = piece {
                    bytes = &bytes[piece.fill(bytes)..];
                }
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
                self.end += bytes.len();
                Record::Used
            }
        }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Bytes that have come and are not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "consumed {} bytes of {}", self.start, self.end);
    }

    /// Moves buffered bytes into the piece.
    pub(crate) fn fill(&mut self, piece: &mut Piece) {
        let taken = piece.fill(self.bytes());
        self.consume(taken);
    }

    /// Remembers how large the payloads are that this client sends.
    pub(crate) fn expect_payloads_like(&mut self, payload_bytes: u32) {
        self.after_large = payload_bytes as usize > BUFFER_BYTES;
    }

    /// An entry that receives more: into the rest of `piece`, if there is one, then into the buffer, unless more of the
    /// same payload follows the piece (`payload_follows`). What it names stays in place until [`Receiver::completed`], or
    /// until receiver and piece are dropped.
    pub(crate) fn entry(&mut self, socket: types::Fd, piece: Option<&mut Piece>, payload_follows: bool) -> squeue::Entry {
        assert!(!self.in_flight, "one receive at a time");
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.in_flight = true;
        let ioprio = if self.drained { POLL_FIRST } else { 0 };
        if let Some(opener) = &mut self.opener {
            let room = opener.room();
            return opcode::Recv::new(socket, room.as_mut_ptr(), room.len() as u32).ioprio(ioprio).build();
        }
        self.message.clear();
        let mut room = true;
        if let Some(piece) = piece {
            piece.for_each_rest(|start, length| {
                room = self.message.push(start, length);
                room
            });
        }
        if room && !payload_follows {
            let free_bytes = self.buffer.len() - self.end;
            let length = if self.after_large { free_bytes.min(AFTER_LARGE_BYTES) } else { free_bytes };
            self.message.push(self.buffer[self.end..].as_mut_ptr(), length);
        }
        match self.message.single() {
            Some((start, length)) => opcode::Recv::new(socket, start, length).ioprio(ioprio).build(),
            None => opcode::RecvMsg::new(socket, self.message.pointer()).ioprio(ioprio).build(),
        }
    }

    /// The receive has brought `bytes`, those of `piece` first.
    pub(crate) fn completed(&mut self, bytes: usize, flags: u32, piece: Option<&mut Piece>) {
        self.in_flight = false;
        self.drained = !cqueue::sock_nonempty(flags);
        if let Some(opener) = &mut self.opener {
            return opener.filled(bytes);
        }
        let mut buffered = bytes;
        if let Some(piece) = piece {
            let direct = bytes.min(piece.length_bytes - piece.filled_bytes);
            piece.filled_bytes += direct;
            buffered -= direct;
        }
        self.end += buffered;
        assert!(self.end <= self.buffer.len(), "the kernel wrote {} bytes into {}", self.end, self.buffer.len());
    }

    /// The receive did not happen (interrupted): it may be tried again.
    pub(crate) fn interrupted(&mut self) {
        self.in_flight = false;
    }
}
