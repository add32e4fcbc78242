//! The seam that exports are built on.
//!
//! An *endpoint* is whatever brings requests in: a listening socket, one NBD connection, one FUSE queue. It is a state machine that
//! lives on one reactor thread and is driven by callbacks; it never blocks and owns no thread.
//!
//! ```text
//!   start ─▶ ring / reply / timer / pages_available / volume_available, any number, any order ─▶ close() ─▶ (cancelled, drained) ─▶ drop
//!                              stop, at most once ─▶ the endpoint winds down and calls close()
//! ```
//!
//! Rules that hold for every callback:
//! * All callbacks of one endpoint come from one thread, one at a time, and never from inside a call to [`Context`]: a reply to
//!   `submit` arrives later, even if the request fails at once.
//! * A callback must return soon (microseconds): all other endpoints and shards of the reactor wait for it.
//! * A panic in a callback ends the process: state shared with the kernel cannot be trusted after it.
//!
//! Life and memory: an endpoint is boxed when it is added and never moves again. The box is dropped only after
//! [`Context::close`] *and* the last completion of every entry it pushed. Memory inside the box, or owned by it, may therefore be named
//! in ring entries as long as the endpoint itself does not free or move it; this is the contract of [`Context::push`].

use crate::volume::VolumeRef;
use engine::api::{Reply, Request};
use io_uring::opcode;
use io_uring::squeue::{Entry, Entry128};
use page::PageMutVec;
use types::VolumeIndex;

/// Something that brings in requests; see the module's page for the rules.
pub trait Endpoint: Send {
    /// The endpoint has arrived on its reactor. Called once, before any other callback. Push the first entries here.
    fn start(&mut self, cx: &mut Context<'_>);

    /// An entry pushed under `token` has completed. `result` is the kernel's (negative: an errno), `flags` are the completion's
    /// (`IORING_CQE_F_*`): while `io_uring::cqueue::more(flags)` is true, the entry is multishot and more completions will follow.
    fn ring(&mut self, cx: &mut Context<'_>, token: u32, result: i32, flags: u32);

    /// The answer to a request that was accepted by [`Context::submit`]. Exactly one per request, in any order.
    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply);

    /// A timer set under `token` is due. Not called after it was cancelled or moved.
    fn timer(&mut self, cx: &mut Context<'_>, token: u32) {
        let _ = (cx, token);
    }

    /// After an [`Context::allocate_pages`] that failed: as many pages as were asked for are likely to be free. Called once per
    /// failure (several failures before the call count as one). Another endpoint may have been faster: try again and
    /// expect to fail again, which keeps the endpoint's place at the head of the queue.
    fn pages_available(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// After a [`Context::submit`] that was refused: a volume that refused has room again. Called once per refusal
    /// (several count as one).
    fn volume_available(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// After a [`Context::ask_for_turn_end`]: for now there is nothing left to do on this reactor but what this callback brings. The
    /// place to do once what would else be done after each reply. Called once, however often it was asked for.
    fn turn_ends(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// After [`Runtime::wake_endpoints`](crate::Runtime::wake_endpoints): what the endpoint shares with others has changed; look at it.
    fn woken(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// The runtime asks the endpoint to wind down: take no more requests from the client, let those in flight finish and their answers
    /// leave, then call [`Context::close`]. Called at most once. An endpoint that has not closed when the runtime's patience
    /// ends is closed by force, as if it had called [`Context::close`] itself.
    fn stop(&mut self, cx: &mut Context<'_>);
}

/// Why [`Context::submit`] did not take a request; the request comes back unchanged.
///
/// Not a failure: "busy, try later". Keep the request (in a [`Backlog`](crate::Backlog)), read nothing more from the client, and try
/// again in [`Endpoint::volume_available`].
#[derive(Debug)]
pub struct Refused(pub Request);

/// What an endpoint gives for [`Request::volume`]: the runtime fills in the real one.
pub const ANY_VOLUME: VolumeIndex = VolumeIndex(0);

/// What an endpoint can do during a callback.
pub struct Context<'a> {
    pub(crate) host: &'a mut dyn Host,
    pub(crate) endpoint: EndpointKey,
}

/// Which endpoint of a reactor a context speaks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EndpointKey {
    pub(crate) slot: u32,
    /// Counts the slot's tenants, so that what comes late for an earlier one is recognized.
    pub(crate) generation: u32,
}

/// The reactor, as a context needs it.
pub(crate) trait Host {
    fn push(&mut self, endpoint: EndpointKey, entry: Entry128, token: u32);
    fn cancel(&mut self, endpoint: EndpointKey, token: u32);
    fn submit(&mut self, endpoint: EndpointKey, volume: &VolumeRef, request: Request) -> Result<(), Refused>;
    fn allocate_pages(&mut self, endpoint: EndpointKey, volume: &VolumeRef, pages: usize) -> Option<PageMutVec>;
    fn ask_for_turn_end(&mut self, endpoint: EndpointKey);
    fn set_timer(&mut self, endpoint: EndpointKey, deadline_ns: u64, token: u32);
    fn cancel_timer(&mut self, endpoint: EndpointKey, token: u32);
    fn add_endpoint(&mut self, parent: EndpointKey, endpoint: Box<dyn Endpoint>);
    fn close(&mut self, endpoint: EndpointKey);
    fn set_client(&mut self, endpoint: EndpointKey, client: u32);
    fn now_ns(&self) -> u64;
}

impl Context<'_> {
    /// Puts an entry on the reactor's ring. Its completion(s) arrive as [`Endpoint::ring`] with `token`; the entry's own user data is
    /// overwritten. Tokens need not be unique, but only unique ones can be told apart (and cancelled singly).
    ///
    /// Never fails and never blocks: entries that find the ring full wait in memory. So bound what you push. Entries are
    /// handed to the kernel after the callback, many at a time; order among them is not promised (use `IO_LINK`
    /// on consecutive pushes of one callback, or push the next one when the one before has completed).
    /// Entries with `IO_DRAIN` or `CQE_SKIP_SUCCESS` must not be pushed: the first stalls every neighbour on the ring, the second
    /// hides the completion that the runtime counts.
    ///
    /// # Safety
    /// Everything the entry points to (buffers, `iovec`s, `msghdr`s, addresses, paths) must stay where it is and be
    /// exclusively the kernel's (or shared, where the kernel only reads) until the entry's last completion has been delivered.
    /// After [`Context::close`] no completion is delivered any more: then the memory must stay until the endpoint is
    /// dropped, which the runtime does only after the last completion. Memory owned by the endpoint and freed in
    /// no other place than its drop satisfies this. File descriptors in the entry must be the endpoint's own, and stay
    /// open until the entry has been submitted (that is, past the end of the callback; in practice as long as the memory).
    pub unsafe fn push(&mut self, entry: Entry, token: u32) {
        self.host.push(self.endpoint, entry.into(), token);
    }

    /// As [`Context::push`], for 128-byte entries (`IORING_OP_URING_CMD` with 80 bytes of command).
    ///
    /// # Safety
    /// As [`Context::push`].
    pub unsafe fn push128(&mut self, entry: Entry128, token: u32) {
        self.host.push(self.endpoint, entry, token);
    }

    /// Puts an entry on the ring that does nothing: it completes under `token` after what this callback and those before it have begun.
    pub fn push_nop(&mut self, token: u32) {
        self.host.push(self.endpoint, opcode::Nop::new().build().into(), token);
    }

    /// Asks the kernel to cancel every entry of this endpoint that was pushed under `token`. They complete as usual, most with
    /// `-ECANCELED`, some with their result if they were faster. The cancellation itself is not reported.
    pub fn cancel(&mut self, token: u32) {
        self.host.cancel(self.endpoint, token);
    }

    /// Submits a request to a volume. The runtime fills in [`Request::volume`] (give [`ANY_VOLUME`]). Requests of
    /// clients have no [`Request::bypass`]; one that has goes past the cache and is not counted with
    /// them. [`Request::id`] must be unique among this endpoint's requests in flight, over all volumes.
    /// The answer comes as [`Endpoint::reply`], never from inside this call, errors such as out-of-range or read-only included.
    ///
    /// # Errors
    /// [`Refused`] when the volume has as many requests in flight as it may; try again in [`Endpoint::volume_available`].
    pub fn submit(&mut self, volume: &VolumeRef, request: Request) -> Result<(), Refused> {
        self.host.submit(self.endpoint, volume, request)
    }

    /// Pages for the data of one write to `volume`, content unspecified; all of them or `None`. After `None`,
    /// [`Endpoint::pages_available`] will be called; until then read no more from the client. Reads need no pages from here: the reply
    /// brings its own.
    ///
    /// More pages than [`VolumeRef::request_bytes_max`] covers (plus one, for data that begins within a block) may never come.
    pub fn allocate_pages(&mut self, volume: &VolumeRef, pages: usize) -> Option<PageMutVec> {
        self.host.allocate_pages(self.endpoint, volume, pages)
    }

    /// Calls [`Endpoint::turn_ends`] once, when all else that is due on this reactor is done, and before it sleeps or hands entries to
    /// the kernel.
    pub fn ask_for_turn_end(&mut self) {
        self.host.ask_for_turn_end(self.endpoint);
    }

    /// Nanoseconds on the monotonic clock (`CLOCK_MONOTONIC`), as of about the beginning of this callback: reading it costs nothing.
    pub fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    /// Calls [`Endpoint::timer`] with `token` once, at `deadline_ns` (same clock as [`Context::now_ns`]) or soon after. Setting a token
    /// again moves its timer. For idle limits do not move a timer with each request: let it fire, look at the last activity,
    /// and set it again.
    pub fn set_timer(&mut self, deadline_ns: u64, token: u32) {
        self.host.set_timer(self.endpoint, deadline_ns, token);
    }

    /// Forgets the timer of `token`, if it is set.
    pub fn cancel_timer(&mut self, token: u32) {
        self.host.cancel_timer(self.endpoint, token);
    }

    /// Adds another endpoint (an accepted connection, say) on the reactor that has the fewest. It belongs to the same group as this
    /// endpoint: stopping an export stops its listener and everything the listener has added. If the group
    /// is being stopped already, the new endpoint is dropped without being started.
    pub fn add_endpoint(&mut self, endpoint: Box<dyn Endpoint>) {
        self.host.add_endpoint(self.endpoint, endpoint);
    }

    /// Says whose requests this endpoint's are: a number of [`crate::clients`], which watchers of loads get to see.
    pub fn set_client(&mut self, client: u32) {
        self.host.set_client(self.endpoint, client);
    }

    /// The endpoint is finished: after this callback no other is made. Its entries on the ring are cancelled, answers to
    /// its requests in flight are thrown away (the requests themselves are carried out), its timers are forgotten; when the
    /// last entry has completed, the endpoint is dropped. Let answers leave before you close.
    ///
    /// The kernel cannot cancel every kind of entry: commands to FUSE and ublk end only when their device goes. End those first,
    /// or the endpoint lingers until they end.
    pub fn close(&mut self) {
        self.host.close(self.endpoint);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A reactor that notes what it is asked, and takes as many requests as it has room for.
    #[derive(Default)]
    pub(crate) struct FakeHost {
        pub(crate) room: usize,
        pub(crate) submitted: Vec<u64>,
        pub(crate) refusals: usize,
        pub(crate) pushed: Vec<u32>,
        pub(crate) ends_asked: usize,
    }

    impl FakeHost {
        pub(crate) fn context(&mut self) -> Context<'_> {
            Context { host: self, endpoint: EndpointKey { slot: 0, generation: 0 } }
        }
    }

    impl Host for FakeHost {
        fn push(&mut self, _endpoint: EndpointKey, _entry: Entry128, token: u32) {
            self.pushed.push(token);
        }

        fn submit(&mut self, _endpoint: EndpointKey, _volume: &VolumeRef, request: Request) -> Result<(), Refused> {
            if self.room == 0 {
                self.refusals += 1;
                return Err(Refused(request));
            }
            self.room -= 1;
            self.submitted.push(request.id);
            Ok(())
        }

        fn ask_for_turn_end(&mut self, _endpoint: EndpointKey) {
            self.ends_asked += 1;
        }

        fn allocate_pages(&mut self, _endpoint: EndpointKey, _volume: &VolumeRef, _pages: usize) -> Option<PageMutVec> {
            None
        }

        fn now_ns(&self) -> u64 {
            0
        }

        fn cancel(&mut self, _endpoint: EndpointKey, _token: u32) {}
        fn set_timer(&mut self, _endpoint: EndpointKey, _deadline_ns: u64, _token: u32) {}
        fn cancel_timer(&mut self, _endpoint: EndpointKey, _token: u32) {}
        fn add_endpoint(&mut self, _parent: EndpointKey, _endpoint: Box<dyn Endpoint>) {}
        fn close(&mut self, _endpoint: EndpointKey) {}
        fn set_client(&mut self, _endpoint: EndpointKey, _client: u32) {}
    }
}
