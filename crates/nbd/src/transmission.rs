//! The transmission phase of one connection: from bytes to requests, and from answers to replies.
//!
//! A write longer than an extent is handed to the volume in pieces of at most one extent, each as soon as it has come: a client
//! that announces much and sends little holds the pages of one piece. As everywhere, a request that spans blocks is not
//! atomic; a client that leaves in the middle of a write leaves that range old in some blocks and new in others.

use crate::exports::Export;
use crate::limits::Limits;
use crate::protocol::wire::{Errno, REQUEST_HEADER_BYTES, command};
use crate::protocol::{Command, RequestHeader, Session, Verdict};
use crate::receiver::{Piece, Receiver};
use crate::sender::{Departed, Head, Outgoing, Sender};
use crate::slots::{Kind, PartId, Slots};
use engine::api::{Op, Reply, Request, RequestError};
use page::{PAGE_BYTES, PageVec};
use runtime::{Context, Refused};
use std::sync::Arc;
use types::{EXTENT_BYTES, SECTOR_BYTES, VolumeIndex};

/// What advancing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advance {
    /// All input is used: receive more.
    NeedInput,
    /// Something must happen first (a reply leaves, pages come free, the volume has room).
    Blocked,
    /// The client takes its leave: answer what is in flight, then close.
    Goodbye,
    /// The client does not speak NBD: close.
    Broken,
}

/// What is being received.
enum Incoming {
    Header,
    /// Payload of the write in `slot`; `left_bytes` from `next_byte` of the volume have not been given to a piece.
    Payload {
        slot: u16,
        fua: bool,
        next_byte: u64,
        left_bytes: u32,
        piece: Option<Piece>,
    },
    /// Payload of a write that was refused.
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
    limits: Limits,
    slots: Slots,
    incoming: Incoming,
    /// A request that the volume had no room for.
    refused: Option<Request>,
    /// Bytes of pages held for this client, or soon to come: reads from their request to the departure of their data,
    /// pieces of writes until they are answered.
    held_bytes: u64,
}

fn errno_of(error: RequestError) -> Errno {
    match error {
        RequestError::Io => Errno::Io,
        RequestError::NoSpace => Errno::NoSpc,
        RequestError::ReadOnly => Errno::Perm,
        RequestError::Invalid => Errno::Inval,
        RequestError::Shutdown => Errno::Shutdown,
    }
}

impl Transmission {
    pub(crate) fn new(session: Session, export: Arc<Export>, limits: Limits) -> Transmission {
        let slots = Slots::default();
        Transmission { session, export, limits, slots, incoming: Incoming::Header, refused: None, held_bytes: 0 }
    }

    pub(crate) fn export_is_removed(&self) -> bool {
        self.export.is_removed()
    }

    /// Parts of requests at the volume.
    pub(crate) fn requests_out(&self) -> usize {
        // A part that was refused is not there, and never will be if the connection is ending.
        self.slots.parts() - usize::from(self.refused.is_some())
    }

    pub(crate) fn is_in_payload(&self) -> bool {
        !matches!(self.incoming, Incoming::Header)
    }

    /// The piece that the next bytes belong to, and whether more of the same payload follows it.
    pub(crate) fn piece(&mut self) -> (Option<&mut Piece>, bool) {
        match &mut self.incoming {
            Incoming::Payload { piece, left_bytes, .. } => (piece.as_mut(), *left_bytes > 0),
            _ => (None, false),
        }
    }

    /// Data has left: its pages are free.
    pub(crate) fn departed(&mut self, departed: Departed) {
        self.held_bytes -= departed.data_bytes;
    }

    /// Uses what has been received, as far as limits allow.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver, sender: &mut Sender) -> Advance {
        loop {
            if let Some(request) = self.refused.take()
                && !self.submit(cx, request)
            {
                return Advance::Blocked;
            }
            let step = match self.incoming {
                Incoming::Header => self.header(cx, receiver, sender),
                Incoming::Payload { .. } => self.payload(cx, receiver),
                Incoming::Skip { .. } => self.skip(receiver, sender),
            };
            if let Some(advance) = step {
                return advance;
            }
        }
    }

    /// Whether `bytes` more may be held. A request larger than the limit has its turn when nothing else is held.
    fn has_room(&self, bytes: u64) -> bool {
        self.held_bytes == 0 || self.held_bytes + bytes <= self.limits.bytes_max
    }

    fn header(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver, sender: &mut Sender) -> Option<Advance> {
        if self.slots.used() + sender.pending() >= self.limits.requests_max {
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
        let verdict = self.session.judge(&header);
        if let Verdict::Volume { command: Command::Read, .. } = verdict
            && !self.has_room(u64::from(header.length_bytes))
        {
            return Some(Advance::Blocked);
        }
        receiver.consume(REQUEST_HEADER_BYTES);
        let cookie = header.cookie;
        match verdict {
            Verdict::Volume { command: Command::Write, fua, .. } => {
                receiver.expect_payloads_like(header.length_bytes);
                let slot = self.slots.insert(cookie, Kind::Other, true);
                let (next_byte, left_bytes) = (header.offset_bytes, header.length_bytes);
                self.incoming = Incoming::Payload { slot, fua, next_byte, left_bytes, piece: None };
            }
            Verdict::Volume { command, start_sector, sectors, fua } => {
                self.simple_request(cx, &header, command, start_sector, sectors, fua);
            }
            Verdict::Nothing if header.kind == command::READ => {
                let bytes = self.session.read_reply(cookie, header.offset_bytes, 0);
                sender.queue(Outgoing::bare(Head::Reply(bytes)));
            }
            Verdict::Nothing => sender.queue(Outgoing::bare(Head::Reply(self.session.done_reply(cookie)))),
            Verdict::Allocated { length_bytes } => {
                sender.queue(Outgoing::bare(Head::Reply(self.session.allocated_reply(cookie, length_bytes))));
            }
            Verdict::Refuse(errno) => match header.payload_bytes() {
                0 => sender.queue(Outgoing::bare(Head::Reply(self.session.error_reply(cookie, errno)))),
                left_bytes => self.incoming = Incoming::Skip { cookie, errno, left_bytes },
            },
            Verdict::Disconnect => return Some(Advance::Goodbye),
        }
        None
    }

    /// A request without payload.
    fn simple_request(
        &mut self,
        cx: &mut Context<'_>,
        header: &RequestHeader,
        command: Command,
        start_sector: u64,
        sectors: u32,
        fua: bool,
    ) {
        let (op, kind, data_bytes) = match command {
            Command::Read => {
                let kind = Kind::Read { offset_bytes: header.offset_bytes, length_bytes: header.length_bytes };
                (Op::Read, kind, header.length_bytes)
            }
            Command::Flush => (Op::Flush, Kind::Other, 0),
            Command::Trim => (Op::Discard, Kind::Other, 0),
            Command::WriteZeroes => (Op::WriteZeroes, Kind::Other, 0),
            Command::Write => unreachable!("writes have a payload"),
        };
        let slot = self.slots.insert(header.cookie, kind, false);
        self.held_bytes += u64::from(data_bytes);
        let id = self.slots.begin_part(slot, data_bytes).to_u64();
        let volume = VolumeIndex(0);
        let pages = PageVec::new();
        self.submit(cx, Request { id, volume, op, fua, start_sector, sectors, pages, bypass: None });
    }

    /// Gives a request to the volume; keeps it if there is no room.
    fn submit(&mut self, cx: &mut Context<'_>, request: Request) -> bool {
        match cx.submit(&self.export.volume, request) {
            Ok(()) => true,
            Err(Refused(request)) => {
                self.refused = Some(request);
                false
            }
        }
    }

    fn payload(&mut self, cx: &mut Context<'_>, receiver: &mut Receiver) -> Option<Advance> {
        let held_bytes = self.held_bytes;
        let Incoming::Payload { slot, fua, next_byte, left_bytes, piece } = &mut self.incoming else {
            unreachable!("called for a payload");
        };
        if piece.is_none() {
            // Up to the end of the extent.
            let extent_left_bytes = EXTENT_BYTES - *next_byte % EXTENT_BYTES;
            let length_bytes = u64::from(*left_bytes).min(extent_left_bytes) as usize;
            let held_before = held_bytes;
            if held_before != 0 && held_before + length_bytes as u64 > self.limits.bytes_max {
                return Some(Advance::Blocked);
            }
            let first_byte = (*next_byte % PAGE_BYTES as u64) as usize;
            let pages = (first_byte + length_bytes).div_ceil(PAGE_BYTES);
            let Some(pages) = cx.allocate_pages(&self.export.volume, pages) else {
                return Some(Advance::Blocked);
            };
            self.held_bytes += length_bytes as u64;
            *left_bytes -= length_bytes as u32;
            *piece = Some(Piece { pages, first_byte, length_bytes, filled_bytes: 0 });
        }
        let filling = piece.as_mut().expect("set above");
        receiver.fill(filling);
        if !filling.is_full() {
            return Some(Advance::NeedInput);
        }
        let Piece { pages, length_bytes, .. } = piece.take().expect("set above");
        let (slot, start_sector, fua) = (*slot, *next_byte / SECTOR_BYTES, *fua);
        *next_byte += length_bytes as u64;
        if *left_bytes == 0 {
            self.incoming = Incoming::Header;
            self.slots.get(slot).incomplete = false;
        }
        let id = self.slots.begin_part(slot, length_bytes as u32).to_u64();
        let request = Request {
            id,
            volume: VolumeIndex(0),
            op: Op::Write,
            fua,
            start_sector,
            sectors: (length_bytes as u64 / SECTOR_BYTES) as u32,
            pages: pages.into_iter().map(|page| page.freeze()).collect(),
            bypass: None,
        };
        if self.submit(cx, request) { None } else { Some(Advance::Blocked) }
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
        sender.queue(Outgoing::bare(Head::Reply(self.session.error_reply(*cookie, *errno))));
        self.incoming = Incoming::Header;
        None
    }

    /// The volume has answered a part.
    pub(crate) fn reply(&mut self, reply: Reply, sender: &mut Sender) {
        let part = PartId::from_u64(reply.id);
        let failed = reply.result.err().map(errno_of);
        let data_bytes = u64::from(part.data_bytes);
        let Some(slot) = self.slots.end_part(part.slot, failed) else {
            self.held_bytes -= data_bytes;
            return;
        };
        let outgoing = match (slot.kind, slot.error) {
            (_, Some(errno)) => Outgoing::bare(Head::Reply(self.session.error_reply(slot.cookie, errno))),
            (Kind::Other, None) => Outgoing::bare(Head::Reply(self.session.done_reply(slot.cookie))),
            (Kind::Read { offset_bytes, length_bytes }, None) => {
                let first_byte = (offset_bytes % PAGE_BYTES as u64) as usize;
                let data_bytes = length_bytes as usize;
                let covered = reply.pages.len() * PAGE_BYTES;
                assert!(covered >= first_byte + data_bytes, "{covered} bytes came for {data_bytes} at {first_byte}");
                let head = Head::Reply(self.session.read_reply(slot.cookie, offset_bytes, length_bytes));
                sender.queue(Outgoing { head, pages: reply.pages, first_byte, data_bytes });
                return;
            }
        };
        self.held_bytes -= data_bytes;
        sender.queue(outgoing);
    }
}
