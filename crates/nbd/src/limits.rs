//! What a client may cost.

/// Bounds per socket and per connection. Every number here is a promise about memory or time under hostile clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Clients of one socket at a time. One more is refused when it has chosen its export.
    pub connections_max: usize,
    /// Of these, connections of one peer: a user on a Unix socket, an address on TCP. The rest is kept for others.
    pub connections_per_peer_max: usize,
    /// Handshakes at a time on one socket, three quarters of them of one peer. For one more, the oldest is disconnected.
    pub handshakes_max: usize,
    /// Requests of one connection between the arrival of their header and the departure of their reply.
    pub requests_max: u16,
    /// Bytes of data that one connection may hold between the arrival of a request and the departure of its reply. A single
    /// request larger than this is served alone.
    pub bytes_max: u64,
    /// From connecting to the end of the handshake.
    pub handshake_ns: u64,
    /// How long a client that asks for an export which is away for a moment waits for it, from connecting on.
    pub absence_ns: u64,
    /// A client that leaves a payload or a reply unfinished for this long, without moving a byte, is disconnected. While
    /// others are short of the pages that it holds, a sixth of this is enough.
    pub stall_ns: u64,
}

impl Limits {
    /// Patience with a stalled client while others are short of pages.
    pub(crate) fn stall_short_ns(&self) -> u64 {
        self.stall_ns / 6
    }

    /// How often to look for stalls.
    pub(crate) fn stall_tick_ns(&self) -> u64 {
        self.stall_short_ns().clamp(1_000_000, 1_000_000_000)
    }
}

impl Default for Limits {
    /// 128 connections of a peer are far more than multi-conn clients open (16 at most in libnbd's tools and qemu), and half as many
    /// are left for others; a handshake takes a millisecond, so 64 at a time are thousands in a second; 128 requests of one connection cover the queue depths of the kernel's client (128) and fio; 8 MiB keep a fast reader busy over the whole
    /// socket buffer many times; the handshake takes libnbd less than a millisecond. A pool with millions of blocks is there again after seconds.
    fn default() -> Limits {
        Limits {
            connections_max: 192,
            connections_per_peer_max: 128,
            handshakes_max: 64,
            requests_max: 128,
            bytes_max: 8 << 20,
            handshake_ns: 10_000_000_000,
            absence_ns: 60_000_000_000,
            stall_ns: 30_000_000_000,
        }
    }
}
