//! The transmission phase of one connection: from bytes to requests, and from answers to replies.
//!
//! Large reads and writes go to the volume in parts of at most an extent: a write's as its payload comes, a read's as its
//! [`Budget`] allows. So a client that announces much and moves little holds little. As everywhere, a request that spans blocks
//! is not atomic. A client that leaves in the middle of a write leaves that range old in some
//! blocks and new in others.
//!
//! There is no [`Turn`](runtime::Turn): a callback uses what one receive has brought.

use crate::budget::Budget;
use crate::exports::Export;
use crate::limits::Limits;
use crate::protocol::wire::{Errno, REQUEST_HEADER_BYTES, command, command_flag};
use crate::protocol::{Command, ReplyBytes, RequestHeader, Session, Verdict};
use crate::receiver::{Piece, Receiver};
use crate::sender::{Departed, Head, Outgoing, Sender};
use crate::slots::{Kind, PartId, Slots};
use engine::api::{Op, Origin, Reply, Request};
use export::errno_of;
use page::{PAGE_BYTES, PageVec};
use runtime::{ANY_VOLUME, Backlog, Context};
use std::sync::Arc;
use types::{EXTENT_BYTES, SECTOR_BYTES};

/// What advancing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// All input is used: receive more.
    NeedInput,
    /// Something must happen first (a reply leaves, pages come free, the volume has room); a callback will tell.
    Blocked,
    /// Other connections must give up pages first; no callback will tell.
    Later,
    /// The client takes its leave: answer what is in flight, then close.
    Goodbye,
    /// The client does not speak NBD: close.
    Broken,
}

/// A read or write whose parts are being given to the volume.
struct Parts {
    slot: u16,
    fua: bool,
    /// Where the request begins on the volume.
    offset_bytes: u64,
    /// How much of it has been made into parts.
    begun_bytes: u32,
    length_bytes: u32,
}

impl Parts {
    fn next_byte(&self) -> u64 {
        self.offset_bytes + u64::from(self.begun_bytes)
    }

    fn left_bytes(&self) -> u32 {
        self.length_bytes - self.begun_bytes
    }

    /// What is left, up to the end of the extent.
    fn wanted_bytes(&self) -> u64 {
        u64::from(self.left_bytes()).min(EXTENT_BYTES - self.next_byte() % EXTENT_BYTES)
    }
}

/// What is being worked on.
enum Incoming {
    Header,
    /// A large read, part by part.
    Reading(Parts),
    /// The payload of a write; the piece is the part that is being received.
    Payload(Parts, Option<Piece>),
    /// The payload of a write that was refused.
    Skip {
        cookie: u64,
        errno: Errno,
        left_bytes: u32,
    },
}

/// State of the phase.
pub(crate) struct Transmission {
    session: Session,
    export: Arc<Export>,
    requests_max: usize,
    slots: Slots,
    incoming: Incoming,
    /// The part that the volume had no room for: none is begun meanwhile.
    backlog: Backlog,
    /// No further request is begun: another server is to go on with this client.
    parking: bool,
    /// Pages held for this client, or soon to come: reads from their request to the departure of their data, parts of
    /// writes until they are answered.
    budget: Budget,
}

fn queue(sender: &mut Sender, bytes: ReplyBytes) {
    sender.queue(Outgoing::bare(Head::Reply(bytes)));
}

impl Transmission {
    pub(crate) fn new(session: Session, export: Arc<Export>, limits: &Limits) -> Transmission {
        Transmission {
            session,
            budget: Budget::new(export.clone(), limits),
            export,
            requests_max: usize::from(limits.requests_max),
            slots: Slots::default(),
            incoming: Incoming::Header,
            backlog: Backlog::default(),
            parking: false,
        }
    }

    /// Ends what has begun, and begins nothing more.
    pub(crate) fn park(&mut self) {
        self.parking = true;
    }

    /// Whether it stands between two requests, with nothing to be given to the volume.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.incoming, Incoming::Header) && self.backlog.is_empty()
    }

    /// What was agreed with the client.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The export that the client has chosen.
    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    pub(crate) fn export_is_removed(&self) -> bool {
        self.export.is_removed()
    }

    /// Whether clients of the export went short of pages lately.
    pub(crate) fn others_are_short(&self, now_ns: u64, recent_ns: u64) -> bool {
        self.export.is_short(now_ns, recent_ns)
    }

    /// Parts of requests at the volume.
    pub(crate) fn requests_out(&self) -> usize {
        // A part that was refused is not there, and never will be if the connection is ending.
        self.slots.parts() - self.backlog.len()
    }

    /// Whether the client owes bytes of a payload.
    pub(crate) fn is_in_payload(&self) -> bool {
        matches!(self.incoming, Incoming::Payload(..) | Incoming::Skip { .. })
    }

    /// The piece that the next bytes belong to, and whether more of the same payload follows it.
    pub(crate) fn piece(&mut self) -> (Option<&mut Piece>, bool) {
        match &mut self.incoming {
            Incoming::Payload(parts, piece) => (piece.as_mut(), parts.left_bytes() > 0),
            _ => (None, false),
        }
    }

    /// Data has left: its pages are free.
    pub(crate) fn departed(&mut self, departed: Departed) {
        self.budget.give(departed.data_bytes);
    }

    /// Uses what has been received, as far as limits allow.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver, sender: &mut Sender) -> Advance {
        loop {
            if !self.backlog.retry(cx, &self.export.volume, |_| ()) {
                return Advance::Blocked;
            }
            let step = match self.incoming {
                Incoming::Header => self.header(cx, receiver, sender),
                Incoming::Reading(_) => self.reading(cx),
                Incoming::Payload(..) => self.payload(cx, receiver),
                Incoming::Skip { .. } => self.skip(receiver, sender),
            };
            if let Some(advance) = step {
                return advance;
            }
        }
    }

    fn header(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver, sender: &mut Sender) -> Option<Advance> {
        if self.parking || self.slots.used() + sender.pending() >= self.requests_max {
            return Some(Advance::Blocked);
        }
        let Some(bytes) = receiver.bytes().first_chunk::<REQUEST_HEADER_BYTES>() else {
            return Some(Advance::NeedInput);
        };
        let header = match RequestHeader::parse(bytes) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(%error, "not a request");
                return Some(Advance::Broken);
            }
        };
        let cookie = header.cookie;
        let verdict = self.session.judge(&header);
        let length = u64::from(header.length_bytes);
        match verdict {
            Verdict::Volume { command: Command::Read, .. } if !self.may_split(&header) => {
                // The header stays where it is until there is room for all of its data.
                if self.budget.take(cx.now_ns(), length, false).is_none() {
                    return Some(self.wait());
                }
                self.whole_request(cx, &header, Command::Read, false);
            }
            Verdict::Volume { command: command @ (Command::Read | Command::Write), fua, .. } => {
                let (offset_bytes, length_bytes) = (header.offset_bytes, header.length_bytes);
                let reads = command == Command::Read;
                let kind = if reads { Kind::Read { offset_bytes, length_bytes } } else { Kind::Other };
                let slot = self.slots.insert(cookie, kind, true);
                let parts = Parts { slot, fua, offset_bytes, begun_bytes: 0, length_bytes };
                if reads {
                    self.incoming = Incoming::Reading(parts);
                } else {
                    receiver.expect_payloads_like(length_bytes);
                    self.incoming = Incoming::Payload(parts, None);
                }
            }
            Verdict::Volume { command, fua, .. } => self.whole_request(cx, &header, command, fua),
            Verdict::Nothing if header.kind == command::READ => {
                queue(sender, self.session.read_reply(cookie, header.offset_bytes, 0));
            }
            Verdict::Nothing => queue(sender, self.session.done_reply(cookie)),
            Verdict::Allocated { length_bytes } => queue(sender, self.session.allocated_reply(cookie, length_bytes)),
            Verdict::Refuse(errno) => match header.payload_bytes() {
                0 => queue(sender, self.session.error_reply(cookie, errno)),
                left_bytes => self.incoming = Incoming::Skip { cookie, errno, left_bytes },
            },
            Verdict::Disconnect => return Some(Advance::Goodbye),
        }
        receiver.consume(REQUEST_HEADER_BYTES);
        None
    }

    /// Whether a read may be answered in several chunks, and is worth it.
    fn may_split(&self, header: &RequestHeader) -> bool {
        let one_chunk = !self.session.structured || header.flags & command_flag::DF != 0;
        !one_chunk && u64::from(header.length_bytes) > self.budget.undivided_bytes()
    }

    /// How to wait for pages of the budget.
    fn wait(&self) -> Advance {
        if self.budget.is_empty() { Advance::Later } else { Advance::Blocked }
    }

    /// A request in one part, without payload.
    fn whole_request(&mut self, cx: &mut Context<'_>, header: &RequestHeader, command: Command, fua: bool) {
        let RequestHeader { cookie, offset_bytes, length_bytes, .. } = *header;
        let (op, kind, data_bytes) = match command {
            Command::Read => (Op::Read, Kind::Read { offset_bytes, length_bytes }, length_bytes),
            Command::Flush => (Op::Flush, Kind::Other, 0),
            Command::Trim => (Op::Discard, Kind::Other, 0),
            Command::WriteZeroes => (Op::WriteZeroes, Kind::Other, 0),
            Command::Write => unreachable!("writes have a payload"),
        };
        let slot = self.slots.insert(cookie, kind, false);
        let part = self.slots.begin_part(slot, 0, data_bytes);
        self.backlog.submit(cx, &self.export.volume, request(part, op, fua, offset_bytes, length_bytes, PageVec::new()));
    }

    /// The next part of a large read.
    fn reading(&mut self, cx: &mut Context<'_>) -> Option<Advance> {
        let Incoming::Reading(parts) = &mut self.incoming else { unreachable!("called for a read") };
        let Some(bytes) = self.budget.take(cx.now_ns(), parts.wanted_bytes(), true) else {
            return Some(Advance::Blocked);
        };
        let (slot, from_byte, offset_bytes) = (parts.slot, parts.begun_bytes, parts.next_byte());
        parts.begun_bytes += bytes as u32;
        if parts.left_bytes() == 0 {
            self.incoming = Incoming::Header;
            self.slots.get(slot).incomplete = false;
        }
        let part = self.slots.begin_part(slot, from_byte, bytes as u32);
        let request = request(part, Op::Read, false, offset_bytes, bytes as u32, PageVec::new());
        let taken = self.backlog.submit(cx, &self.export.volume, request);
        if taken { None } else { Some(Advance::Blocked) }
    }

    /// The next part of a write.
    fn payload(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver) -> Option<Advance> {
        let Incoming::Payload(parts, piece) = &mut self.incoming else { unreachable!("called for a payload") };
        if piece.is_none() {
            let Some(bytes) = self.budget.take(cx.now_ns(), parts.wanted_bytes(), true) else {
                return Some(Advance::Blocked);
            };
            let first_byte = (parts.next_byte() % PAGE_BYTES as u64) as usize;
            let length_bytes = bytes as usize;
            let pages = (first_byte + length_bytes).div_ceil(PAGE_BYTES);
            let Some(pages) = cx.allocate_pages(&self.export.volume, pages) else {
                self.budget.give(bytes);
                self.export.note_shortage(cx.now_ns());
                return Some(Advance::Blocked);
            };
            parts.begun_bytes += bytes as u32;
            *piece = Some(Piece { pages, first_byte, length_bytes, filled_bytes: 0 });
        }
        let filling = piece.as_mut().expect("set above");
        receiver.fill(filling);
        if !filling.is_full() {
            return Some(Advance::NeedInput);
        }
        let Piece { pages, length_bytes, .. } = piece.take().expect("set above");
        let (slot, fua) = (parts.slot, parts.fua);
        let from_byte = parts.begun_bytes - length_bytes as u32;
        let offset_bytes = parts.offset_bytes + u64::from(from_byte);
        if parts.left_bytes() == 0 {
            self.incoming = Incoming::Header;
            self.slots.get(slot).incomplete = false;
        }
        let part = self.slots.begin_part(slot, from_byte, length_bytes as u32);
        let pages = pages.into_iter().map(|page| page.freeze()).collect();
        let request = request(part, Op::Write, fua, offset_bytes, length_bytes as u32, pages);
        let taken = self.backlog.submit(cx, &self.export.volume, request);
        if taken { None } else { Some(Advance::Blocked) }
    }

    fn skip(&mut self, receiver: &mut Receiver, sender: &mut Sender) -> Option<Advance> {
        let Incoming::Skip { cookie, errno, left_bytes } = &mut self.incoming else {
            unreachable!("called for a payload to skip");
        };
        let skipped = receiver.bytes().len().min(*left_bytes as usize);
        receiver.consume(skipped);
        *left_bytes -= skipped as u32;
        if *left_bytes > 0 {
            return Some(Advance::NeedInput);
        }
        queue(sender, self.session.error_reply(*cookie, *errno));
        self.incoming = Incoming::Header;
        None
    }

    /// The volume has answered a part.
    pub(crate) fn reply(&mut self, reply: Reply, sender: &mut Sender) {
        let PartId { slot: index, from_byte, data_bytes } = PartId::from_u64(reply.id);
        let slot = self.slots.get(index);
        let (cookie, kind) = (slot.cookie, slot.kind);
        let part_failed = reply.result.is_err();
        let ended = self.slots.end_part(index, reply.result.err().map(|error| Errno::of(errno_of(error))));
        let error = ended.as_ref().and_then(|slot| slot.error);
        // Data of a part goes out at once, even if another part has failed or will: the error comes with the last chunk. Only the
        // chunk that would be the last gives way to the error.
        if let Kind::Read { offset_bytes, length_bytes } = kind
            && !part_failed
            && error.is_none()
        {
            let offset_bytes = offset_bytes + u64::from(from_byte);
            let head = match ended {
                Some(_) if data_bytes == length_bytes => self.session.read_reply(cookie, offset_bytes, data_bytes),
                _ => self.session.read_chunk(cookie, offset_bytes, data_bytes, ended.is_some()),
            };
            let first_byte = (offset_bytes % PAGE_BYTES as u64) as usize;
            let data_bytes = data_bytes as usize;
            let covered = reply.pages.len() * PAGE_BYTES;
            assert!(covered >= first_byte + data_bytes, "{covered} bytes came for {data_bytes} at {first_byte}");
            sender.queue(Outgoing { head: Head::Reply(head), pages: reply.pages, first_byte, data_bytes });
            return;
        }
        self.budget.give(u64::from(data_bytes));
        match (ended, error) {
            (None, _) => (),
            (Some(_), Some(errno)) => queue(sender, self.session.error_reply(cookie, errno)),
            (Some(_), None) => queue(sender, self.session.done_reply(cookie)),
        }
    }
}

fn request(part: PartId, op: Op, fua: bool, offset_bytes: u64, length_bytes: u32, pages: PageVec) -> Request {
    Request::new(
        part.to_u64(),
        ANY_VOLUME,
        op,
        offset_bytes / SECTOR_BYTES,
        (u64::from(length_bytes) / SECTOR_BYTES) as u32,
        Origin::Client,
    )
    .fua(fua)
    .pages(pages)
}
