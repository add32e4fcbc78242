//! One client: an endpoint that speaks NBD on a stream socket.
//!
//! ```text
//!   socket ─▶ receiver ─▶ handshake ─▶ (session) ─▶ requests ─▶ volume ─▶ replies ─▶ sender ─▶ socket
//!                              └─▶ TLS ─▶ handshake: where the socket asks for it, nothing else comes before
//! ```
//!
//! Invariants:
//! * While a receive is in flight, everything received before has been used as far as it can be; what is blocked (too many
//!   requests or bytes in flight, no pages, a busy volume) is tried again when the reason has gone, and nothing more is
//!   received until then. That is the back-pressure.
//! * Pages named in an entry stay where they are until the entry has completed or the runtime drops the connection.
//! * The end of the input without a goodbye is an error in every state; requests at the volume are carried out, and their
//!   replies thrown away.

use crate::door::Visit;
use crate::exports::{Shared, View, count};
use crate::parked::{Parked, State};
use crate::protocol::{GREETING, Handshake, Progress};
use crate::receiver::{Receiver, Record};
use crate::sender::{Departed, Head, Outgoing, Sender};
use crate::tls::{Agreed, Keys, Negotiating, Step};
use crate::transmission::{Advance, Transmission};
use engine::api::Reply;
use io_uring::opcode;
use io_uring::types::Fd;
use runtime::{Context, Endpoint};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const RECEIVE: u32 = 1;
const SEND: u32 = 2;
const BELL: u32 = 3;
const HANDSHAKE_TIMER: u32 = 1;
const STALL_TIMER: u32 = 2;
const PAGES_TIMER: u32 = 3;
const ABSENCE_TIMER: u32 = 4;
/// How often to look whether an export is back, and whether who waits for it is still there.
const ABSENCE_POLL_NS: u64 = 10_000_000;
/// How long to wait before looking again whether other connections have given up pages. Only single large reads of clients
/// without structured replies ever wait so.
const PAGES_POLL_NS: u64 = 2_000_000;
/// Answers to options that may wait for a client that does not read before no more options are read.
const HANDSHAKE_ANSWERS_MAX: usize = 16;

/// What a client that was refused may still send before its connection is closed. Closed at once, it might not see why.
const REST_BYTES_MAX: usize = 64 << 10;

enum Phase {
    Handshake(Handshake),
    /// The handshake of TLS, in the middle of that of NBD.
    Tls(Negotiating, Handshake),
    /// Refused, and told so: what still comes is thrown away, up to so many bytes.
    Refused(usize),
    Transmission(Box<Transmission>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Open,
    /// Nothing more is read; answers leave, then the connection closes.
    Ending,
    /// The same, but what the client has begun to ask is ended, and another server goes on with it.
    Parking,
    Closed,
}

/// What TLS adds to a connection.
struct Secured {
    /// Makes the keys that follow these.
    next: KernelConnection<ServerConnectionData>,
    /// Names in the client's certificate.
    names: Vec<String>,
    /// The client has asked for new keys.
    owes_keys: bool,
}

/// Only TLS 1.3 has any.
fn fresh_keys(secrets: Result<(u64, ConnectionTrafficSecrets), rustls::Error>) -> Option<Keys> {
    Keys::new(Some(ProtocolVersion::TLSv1_3), secrets.ok()?)
}

/// The endpoint.
pub(crate) struct Connection {
    socket: Arc<OwnedFd>,
    shared: Arc<Shared>,
    /// Its slot among the connections of the socket, and whose connection it is.
    visit: RefCell<Visit>,
    phase: Phase,
    life: Life,
    receiver: Receiver,
    sender: Sender,
    secured: Option<Box<Secured>>,
    /// When the client last moved a byte, or was first asked to.
    progress_ns: u64,
    has_begun: bool,
    /// Its handshake waits for an export that is away.
    waits: bool,
    /// When it has waited long enough.
    absence_end_ns: Option<u64>,
}

impl Connection {
    /// A connection on an accepted socket. The caller has counted it in `shared`.
    pub(crate) fn new(socket: Arc<OwnedFd>, shared: Arc<Shared>, visit: Visit) -> Connection {
        let handshake = if shared.tls.is_some() { Handshake::forced_tls() } else { Handshake::new() };
        Connection {
            socket,
            shared,
            visit: RefCell::new(visit),
            phase: Phase::Handshake(handshake),
            life: Life::Open,
            receiver: Receiver::new(),
            sender: Sender::new(),
            secured: None,
            progress_ns: 0,
            has_begun: false,
            waits: false,
            absence_end_ns: None,
        }
    }

    /// A client of another server, which goes on here. The caller has counted it in `shared`.
    pub(crate) fn resumed(socket: Arc<OwnedFd>, shared: Arc<Shared>, visit: Visit, transmission: Transmission, input: &[u8]) -> Connection {
        let mut connection = Connection::new(socket, shared, visit);
        connection.phase = Phase::Transmission(Box::new(transmission));
        connection.receiver = Receiver::with_input(input);
        connection
    }

    /// Leaves the client to another server when nothing of it is under way.
    fn park_when_idle(&mut self, cx: &mut Context<'_>) {
        let Phase::Transmission(transmission) = &self.phase else { return };
        if self.secured.is_some() {
            // Its keys are nobody else's: the client connects again.
            return self.leave(cx);
        }
        let is_idle = transmission.is_between_requests() && transmission.requests_out() == 0;
        if !is_idle || self.sender.pending() > 0 || self.sender.in_flight() || self.receiver.in_flight() {
            return;
        }
        self.park(transmission);
        self.close(cx);
    }

    /// Its server leaves, or its export is suspended: it begins nothing more. The rest of what the client is just sending is waited for.
    fn begin_to_park(&mut self, cx: &mut Context<'_>) {
        let Phase::Transmission(transmission) = &mut self.phase else { return };
        self.life = Life::Parking;
        transmission.park();
        if transmission.is_between_requests() {
            cx.cancel(RECEIVE);
        }
    }

    fn park(&self, transmission: &Transmission) {
        let state = State::of(transmission.session(), self.receiver.bytes());
        match self.socket.try_clone() {
            Ok(socket) => {
                let client = Parked { export: state.export.clone(), socket, state: state.encode() };
                self.shared.park(transmission.export(), client);
            }
            Err(error) => tracing::warn!(%error, "an NBD client must connect again"),
        }
    }

    /// Does all that can be done now: use what has come, ask for more, send what is there, close when all is over.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if self.life == Life::Open && matches!(&self.phase, Phase::Transmission(transmission) if transmission.export_is_removed()) {
            self.life = Life::Ending;
        }
        if self.life == Life::Open && matches!(&self.phase, Phase::Transmission(transmission) if transmission.export().is_parking()) {
            self.begin_to_park(cx);
        }
        if self.life == Life::Open && self.sender.is_spent() {
            tracing::warn!("an NBD client must connect again: the keys of its TLS 1.2 are used up, and cannot be renewed");
            self.life = Life::Ending;
        }
        loop {
            if matches!(self.life, Life::Open | Life::Parking) && !self.receiver.in_flight() {
                self.use_input(cx);
            }
            if self.life == Life::Closed {
                return;
            }
            // What has left at once may have been what more input waited for.
            if !self.send(cx) {
                break;
            }
        }
        if self.life == Life::Ending && self.sender.pending() == 0 && self.requests_out() == 0 {
            self.leave(cx);
        }
        if self.life == Life::Parking {
            self.park_when_idle(cx);
        }
    }

    fn use_input(&mut self, cx: &mut Context<'_>) {
        loop {
            let advance = match &mut self.phase {
                Phase::Handshake(_) => self.shake_hands(cx),
                Phase::Tls(..) => self.negotiate(cx),
                Phase::Refused(_) => self.throw_away(),
                Phase::Transmission(transmission) => transmission.advance(cx, &mut self.receiver, &mut self.sender),
            };
            match advance {
                Advance::NeedInput => match self.open_record(cx) {
                    Record::Used => continue,
                    Record::Closed | Record::KeyUpdate { .. } => (),
                    Record::NeedMore => self.receive(cx),
                    Record::Broken => {
                        tracing::debug!("not a record of TLS");
                        count(&self.shared.counters.broken);
                        self.close(cx);
                    }
                },
                Advance::Blocked => (),
                Advance::Later => cx.set_timer(cx.now_ns() + PAGES_POLL_NS, PAGES_TIMER),
                Advance::Goodbye => self.life = Life::Ending,
                Advance::Broken => {
                    count(&self.shared.counters.broken);
                    self.close(cx);
                }
            }
            return;
        }
    }

    /// With TLS: opens a record that has come, and does what it says.
    fn open_record(&mut self, cx: &mut Context<'_>) -> Record {
        let piece = match &mut self.phase {
            Phase::Transmission(transmission) => transmission.piece().0,
            _ => None,
        };
        let record = self.receiver.open_record(piece);
        match record {
            Record::KeyUpdate { wanted } => {
                let Some(secured) = &mut self.secured else { return Record::Broken };
                let Some(fresh) = fresh_keys(secured.next.update_rx_secret()) else { return Record::Broken };
                self.receiver.set_keys(fresh);
                secured.owes_keys |= wanted;
                Record::Used
            }
            Record::Closed => {
                self.input_ended(cx);
                Record::Closed
            }
            other => other,
        }
    }

    /// With TLS: new keys for what is sent, if they are due.
    fn renew_keys(&mut self) {
        let Some(secured) = &mut self.secured else { return };
        if !self.sender.takes_keys(secured.owes_keys) {
            return;
        }
        if let Some(fresh) = fresh_keys(secured.next.update_tx_secret()) {
            secured.owes_keys = false;
            self.sender.renew_keys(fresh);
        }
    }

    /// The handshake of TLS goes on.
    fn negotiate(&mut self, cx: &mut Context<'_>) -> Advance {
        let Phase::Tls(negotiating, _) = &mut self.phase else { unreachable!("called in the handshake of TLS") };
        // What was said plainly has to leave first.
        if self.sender.pending() > 0 {
            return Advance::Blocked;
        }
        match negotiating.feed(self.receiver.bytes()) {
            Step::NeedInput => Advance::NeedInput,
            Step::Wait(0) => Advance::Blocked,
            Step::Wait(used) => {
                self.receiver.consume(used);
                let (bell, rung) = negotiating.bell();
                let entry = opcode::Read::new(Fd(bell), rung.as_mut_ptr(), rung.len() as u32).build();
                // SAFETY: the eight bytes are boxed in the phase, which stays until the entry has completed.
                unsafe { cx.push(entry, BELL) };
                Advance::Blocked
            }
            Step::Agreed(..) | Step::Failed | Step::Broken => {
                count(&self.shared.counters.handshakes_failed);
                Advance::Goodbye
            }
        }
    }

    /// The desk has done its part.
    fn negotiated(&mut self, cx: &mut Context<'_>) {
        let Phase::Tls(mut negotiating, mut handshake) = std::mem::replace(&mut self.phase, Phase::Refused(REST_BYTES_MAX)) else {
            unreachable!("the bell rings in the handshake of TLS")
        };
        let (output, step) = negotiating.back();
        match step {
            Step::Agreed(agreed, behind) => {
                let Agreed { receive, send, next, names } = *agreed;
                self.receiver.begin_tls(receive, &behind);
                self.sender.begin_tls(send, &output);
                self.secured = Some(Box::new(Secured { next, names, owes_keys: false }));
                handshake.secured();
                self.phase = Phase::Handshake(handshake);
            }
            step => {
                if !output.is_empty() {
                    self.sender.queue(Outgoing::bare(Head::Handshake(output.into_boxed_slice())));
                }
                match step {
                    Step::Failed => count(&self.shared.counters.handshakes_failed),
                    _ => self.phase = Phase::Tls(negotiating, handshake),
                }
            }
        }
        self.advance(cx);
    }

    /// The client was refused and is told so; it may still be sending.
    fn throw_away(&mut self) -> Advance {
        let Phase::Refused(left_bytes) = &mut self.phase else { unreachable!("called for a client that was refused") };
        if self.sender.pending() > 0 {
            return Advance::Blocked;
        }
        if *left_bytes == REST_BYTES_MAX
            && let Err(error) = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Write)
        {
            tracing::debug!(%error, "a client was gone before it was refused");
        }
        let thrown = self.receiver.bytes().len();
        self.receiver.consume(thrown);
        *left_bytes = left_bytes.saturating_sub(thrown.max(1));
        if *left_bytes == 0 { Advance::Goodbye } else { Advance::NeedInput }
    }

    fn requests_out(&self) -> usize {
        match &self.phase {
            Phase::Transmission(transmission) => transmission.requests_out(),
            _ => 0,
        }
    }

    fn shake_hands(&mut self, cx: &mut Context<'_>) -> Advance {
        let Phase::Handshake(handshake) = &mut self.phase else { unreachable!("called in the handshake") };
        let names = self.secured.as_ref().map(|secured| secured.names.as_slice());
        let waits = self.absence_end_ns.is_none_or(|end_ns| cx.now_ns() < end_ns);
        let joined = RefCell::default();
        let (shared, visit, socket, now_ns) = (&self.shared, &self.visit, &self.socket, cx.now_ns());
        let view = View { shared, visit, names, waits, socket, joined: &joined, now_ns };
        loop {
            if self.sender.pending() >= HANDSHAKE_ANSWERS_MAX {
                return Advance::Blocked;
            }
            let mut output = Vec::new();
            let (consumed, progress) = handshake.feed(self.receiver.bytes(), &view, &mut output);
            self.receiver.consume(consumed);
            if !output.is_empty() {
                self.sender.queue(Outgoing::bare(Head::Handshake(output.into_boxed_slice())));
            }
            if self.waits && progress != Progress::Wait {
                self.waits = false;
                cx.cancel_timer(ABSENCE_TIMER);
                cx.set_timer(cx.now_ns() + self.shared.limits.handshake_ns, HANDSHAKE_TIMER);
            }
            match progress {
                Progress::NeedMore => return Advance::NeedInput,
                Progress::Wait => return self.wait_for_export(cx),
                Progress::Answered => (),
                Progress::StartTls => return self.begin_tls(),
                Progress::Close(reason) => {
                    tracing::debug!(%reason, "handshake ended");
                    if reason != crate::protocol::ClosedBy::Abort {
                        count(&self.shared.counters.handshakes_failed);
                    }
                    return Advance::Goodbye;
                }
                Progress::Done(session) => {
                    // If it is away by now, the client goes where its other clients go.
                    let export = joined.take().expect("who was admitted has joined");
                    cx.cancel_timer(HANDSHAKE_TIMER);
                    cx.set_timer(cx.now_ns() + self.shared.limits.stall_tick_ns(), STALL_TIMER);
                    let mut transmission = Box::new(Transmission::new(*session, export, &self.shared.limits));
                    let advance = transmission.advance(cx, &mut self.receiver, &mut self.sender);
                    self.phase = Phase::Transmission(transmission);
                    return advance;
                }
            }
        }
    }

    /// The export that the client asks for is away. Nothing is read meanwhile. It stays a handshake, which gives way to newer ones.
    fn wait_for_export(&mut self, cx: &mut Context<'_>) -> Advance {
        self.absence_end_ns.get_or_insert(cx.now_ns() + self.shared.limits.absence_ns);
        if !self.waits {
            self.waits = true;
            cx.cancel_timer(HANDSHAKE_TIMER);
        }
        cx.set_timer(cx.now_ns() + ABSENCE_POLL_NS, ABSENCE_TIMER);
        Advance::Blocked
    }

    /// Whether the client has gone, or had to give way, while nothing is read.
    fn has_hung_up(&self) -> bool {
        let mut socket = [PollFd::new(&*self.socket, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut socket, Some(&now)).is_ok() && !socket[0].revents().is_empty()
    }

    /// The client begins TLS.
    fn begin_tls(&mut self) -> Advance {
        let Some(tls) = self.shared.tls.clone() else { return Advance::Broken };
        let negotiating = match Negotiating::new(tls, self.visit.borrow().peer().address()) {
            Ok(negotiating) => negotiating,
            Err(error) => {
                tracing::warn!("an NBD client has to try again, TLS cannot begin ({error})");
                return Advance::Broken;
            }
        };
        if let Phase::Handshake(handshake) = std::mem::replace(&mut self.phase, Phase::Refused(0)) {
            self.phase = Phase::Tls(negotiating, handshake);
        }
        // The answer leaves first; what comes is looked at after that.
        Advance::Blocked
    }

    fn receive(&mut self, cx: &mut Context<'_>) {
        let (piece, payload_follows) = match &mut self.phase {
            Phase::Transmission(transmission) => transmission.piece(),
            _ => (None, false),
        };
        let entry = self.receiver.entry(Fd(self.socket.as_raw_fd()), piece, payload_follows);
        self.progress_ns = cx.now_ns();
        // SAFETY: the entry names the receiver's buffer and message, and pages of the piece that `transmission` keeps while a
        // receive is in flight; all are owned by this endpoint and freed, if not after the completion, by its drop.
        unsafe { cx.push(entry, RECEIVE) };
    }

    /// Sends what is there; gives whether it has left already.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        self.renew_keys();
        if self.requests_out() == 0
            && let Some(departed) = self.sender.send_lone(self.socket.as_fd())
        {
            self.departed(departed);
            return true;
        }
        if let Some(entry) = self.sender.entry(Fd(self.socket.as_raw_fd())) {
            self.progress_ns = cx.now_ns();
            // SAFETY: the entry names the sender's message and the heads and pages of replies that it keeps, untouched, until
            // the completion or its drop; the sender is owned by this endpoint.
            unsafe { cx.push(entry, SEND) };
        }
        false
    }

    fn departed(&mut self, departed: Departed) {
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.departed(departed);
        }
    }

    /// Closes when all has left, with a goodbye where there is a way to say it.
    fn leave(&mut self, cx: &mut Context<'_>) {
        if self.life != Life::Closed {
            self.sender.say_goodbye(self.socket.as_fd());
        }
        self.close(cx);
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        if self.life != Life::Closed {
            self.life = Life::Closed;
            cx.close();
        }
    }

    fn received(&mut self, cx: &mut Context<'_>, result: i32, flags: u32) {
        match usize::try_from(result) {
            Ok(0) => {
                self.receiver.interrupted();
                self.input_ended(cx);
            }
            Ok(bytes) => {
                self.progress_ns = cx.now_ns();
                let piece = match &mut self.phase {
                    Phase::Transmission(transmission) => transmission.piece().0,
                    _ => None,
                };
                self.receiver.completed(bytes, flags, piece);
                self.advance(cx);
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) || matches!(self.life, Life::Ending | Life::Parking) => {
                self.receiver.interrupted();
                self.advance(cx);
            }
            Err(_) => {
                self.receiver.interrupted();
                tracing::debug!(errno = -result, "receive failed");
                count(&self.shared.counters.broken);
                self.close(cx);
            }
        }
    }

    fn input_ended(&mut self, cx: &mut Context<'_>) {
        match &self.phase {
            _ if self.life == Life::Ending => self.advance(cx),
            // Our own doing: see `Shared::remove`.
            Phase::Transmission(transmission) if transmission.export_is_removed() => self.advance(cx),
            Phase::Transmission(_) => {
                tracing::debug!("client disconnected without NBD_CMD_DISC");
                count(&self.shared.counters.broken);
                self.close(cx);
            }
            Phase::Refused(_) => self.close(cx),
            Phase::Handshake(_) | Phase::Tls(..) => {
                count(&self.shared.counters.handshakes_failed);
                self.close(cx);
            }
        }
    }

    /// Whether it is the client's turn, pages wait for it, and have waited for too long.
    fn has_stalled(&self, now_ns: u64) -> bool {
        let Phase::Transmission(transmission) = &self.phase else { return false };
        let owes_payload = transmission.is_in_payload() && self.receiver.in_flight();
        if !self.sender.in_flight() && !owes_payload {
            return false;
        }
        let limits = &self.shared.limits;
        let short = transmission.others_are_short(now_ns, 2 * limits.stall_tick_ns());
        let patience_ns = if short { limits.stall_short_ns() } else { limits.stall_ns };
        now_ns.saturating_sub(self.progress_ns) >= patience_ns
    }
}

impl Endpoint for Connection {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.has_begun = true;
        if let Some(name) = self.visit.borrow().peer().name() {
            cx.set_client(runtime::clients::number_of(&name));
        }
        if matches!(self.phase, Phase::Transmission(_)) {
            cx.set_timer(cx.now_ns() + self.shared.limits.stall_tick_ns(), STALL_TIMER);
            return self.advance(cx);
        }
        cx.set_timer(cx.now_ns() + self.shared.limits.handshake_ns, HANDSHAKE_TIMER);
        self.sender.queue(Outgoing::bare(Head::Handshake(Box::new(GREETING))));
        self.advance(cx);
    }

    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32) {
        if token == RECEIVE {
            return self.received(cx, result, flags);
        }
        if token == BELL {
            return self.negotiated(cx);
        }
        match usize::try_from(result) {
            Ok(bytes) => {
                self.progress_ns = cx.now_ns();
                let departed = self.sender.completed(bytes);
                self.departed(departed);
                self.advance(cx);
            }
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN) => {
                self.sender.interrupted();
                self.advance(cx);
            }
            Err(_) => {
                self.sender.interrupted();
                tracing::debug!(errno = -result, "send failed");
                count(&self.shared.counters.broken);
                self.close(cx);
            }
        }
    }

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        let Phase::Transmission(transmission) = &mut self.phase else {
            unreachable!("no request is submitted during the handshake");
        };
        transmission.reply(reply, &mut self.sender);
        self.advance(cx);
    }

    fn timer(&mut self, cx: &mut Context<'_>, token: u32) {
        if token == PAGES_TIMER {
            return self.advance(cx);
        }
        if token == ABSENCE_TIMER {
            if self.has_hung_up() {
                return self.input_ended(cx);
            }
            return self.advance(cx);
        }
        if token == HANDSHAKE_TIMER {
            tracing::debug!("handshake took too long");
            if !matches!(self.phase, Phase::Refused(_)) {
                count(&self.shared.counters.handshakes_failed);
            }
            return self.close(cx);
        }
        if self.has_stalled(cx.now_ns()) {
            tracing::info!("client disconnected: it moves no data and holds pages");
            count(&self.shared.counters.stalled);
            return self.close(cx);
        }
        cx.set_timer(cx.now_ns() + self.shared.limits.stall_tick_ns(), STALL_TIMER);
    }

    fn pages_available(&mut self, cx: &mut Context<'_>) {
        self.advance(cx);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.advance(cx);
    }

    fn woken(&mut self, cx: &mut Context<'_>) {
        if self.life != Life::Closed {
            self.advance(cx);
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if self.life == Life::Open {
            if self.shared.is_parking() && matches!(self.phase, Phase::Transmission(_)) {
                self.begin_to_park(cx);
            } else {
                self.life = Life::Ending;
                cx.cancel(RECEIVE);
            }
        }
        self.advance(cx);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A client that came from another server, and this one left before it had begun with it.
        if let (false, Phase::Transmission(transmission)) = (self.has_begun, &self.phase)
            && (self.shared.is_parking() || transmission.export().is_parking())
        {
            self.park(transmission);
        }
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
