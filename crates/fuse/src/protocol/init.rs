//! The handshake: what the kernel offers, what we take.

use super::{u32_at, u64_at};
use serde::{Deserialize, Serialize};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The minor version whose structures we speak. The kernel uses the smaller of its own and this one.
pub const MINOR: u32 = 42;
/// The oldest kernel interface that is good enough (Linux 5.4: `max_pages` is there since 7.28, `fallocate` long before).
pub const MINOR_MIN: u32 = 31;

/// `FUSE_ASYNC_READ`: several reads of one file at a time.
const ASYNC_READ: u64 = 1 << 0;
/// `FUSE_BIG_WRITES`: writes of more than a page.
const BIG_WRITES: u64 = 1 << 5;
/// `FUSE_ASYNC_DIO`: direct I/O that does not wait. Without it the loop driver's queue depth is spent on waiting threads.
const ASYNC_DIO: u64 = 1 << 15;
/// `FUSE_PARALLEL_DIROPS`.
const PARALLEL_DIRECTORY_OPERATIONS: u64 = 1 << 18;
/// `FUSE_MAX_PAGES`: `max_pages` in the reply counts.
const MAX_PAGES: u64 = 1 << 22;
/// `FUSE_INIT_EXT`: flags above bit 31 are there.
const INIT_EXTENDED: u64 = 1 << 30;
/// `FUSE_HAS_RESEND`, from Linux 6.9 on: the kernel hands requests over once more when it is asked
/// to. Says so only; it needs no answer.
const HAS_RESEND: u64 = 1 << 39;
/// `FUSE_OVER_IO_URING`.
const OVER_IO_URING: u64 = 1 << 41;

/// Everything we want if it is offered. Deliberately absent: `FUSE_WRITEBACK_CACHE` (a second cache above ours, and it reorders writes
/// across flushes) and the splice flags (they cost more than they save at 4 KiB).
const WANTED: u64 = ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIRECTORY_OPERATIONS | MAX_PAGES | INIT_EXTENDED;

/// The kernel's offer (`fuse_init_in`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init {
    /// Major version; anything but [`MAJOR`] needs a second round.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Read-ahead the kernel would do; echoed.
    pub read_ahead_bytes: u32,
    /// Features offered, both words.
    pub flags: u64,
}

/// What we ask for ourselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most bytes in one READ or WRITE; a multiple of 4096, at least 4096.
    pub request_bytes_max: u32,
    /// The same if requests come over io_uring, where each of many entries needs a buffer for it.
    pub ring_request_bytes_max: u32,
    /// Most asynchronous requests in flight. The kernel's own default of 12 would turn queue depth 32 into 12.
    pub background_max: u16,
    /// Take FUSE over io_uring if it is offered.
    pub over_io_uring: bool,
}

/// The outcome of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Negotiated {
    /// Most bytes in one READ or WRITE.
    pub request_bytes_max: u32,
    /// Requests will come over io_uring once every queue has an entry.
    pub over_io_uring: bool,
    /// Direct I/O is asynchronous.
    pub asynchronous_direct_io: bool,
    /// The kernel can hand over again what was not answered, to a server that takes the connection
    /// over.
    pub can_resend: bool,
}

impl Init {
    /// The shortest offer: the four words of all versions.
    pub const BYTES_MIN: usize = 16;

    /// The offer in `body`, which holds at least [`Init::BYTES_MIN`] bytes.
    pub(super) fn decode(body: &[u8]) -> Init {
        let low = u64::from(u32_at(body, 12));
        let high = if low & INIT_EXTENDED != 0 && body.len() >= 20 { u64::from(u32_at(body, 16)) } else { 0 };
        Init { major: u32_at(body, 0), minor: u32_at(body, 4), read_ahead_bytes: u32_at(body, 8), flags: low | high << 32 }
    }

    /// Our reply (`fuse_init_out`, 64 bytes) and what holds from then on.
    pub fn negotiate(&self, limits: &Limits) -> ([u8; 64], Negotiated) {
        let mut flags = self.flags & WANTED;
        if limits.over_io_uring {
            flags |= self.flags & OVER_IO_URING;
        }
        let over_io_uring = flags & OVER_IO_URING != 0;
        let wanted_bytes =
            if over_io_uring { limits.ring_request_bytes_max.min(limits.request_bytes_max) } else { limits.request_bytes_max };
        // Without MAX_PAGES the kernel keeps to 32 pages per request, whatever max_write says.
        let pages_max = if flags & MAX_PAGES != 0 { wanted_bytes / 4096 } else { (wanted_bytes / 4096).min(32) };
        let request_bytes_max = pages_max * 4096;
        let mut out = [0u8; 64];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAJOR.to_ne_bytes());
        put(4, &MINOR.to_ne_bytes());
        put(8, &self.read_ahead_bytes.to_ne_bytes());
        put(12, &(flags as u32).to_ne_bytes());
        put(16, &limits.background_max.to_ne_bytes());
        // Congestion only tells writeback to slow down; three quarters is the kernel's own proportion.
        put(18, &(limits.background_max / 4 * 3).to_ne_bytes());
        put(20, &request_bytes_max.to_ne_bytes());
        put(24, &1u32.to_ne_bytes()); // time granularity, ns
        put(28, &(pages_max as u16).to_ne_bytes());
        put(32, &((flags >> 32) as u32).to_ne_bytes());
        let negotiated = Negotiated {
            request_bytes_max,
            over_io_uring,
            asynchronous_direct_io: flags & ASYNC_DIO != 0,
            can_resend: self.flags & HAS_RESEND != 0,
        };
        (out, negotiated)
    }
}

/// The offer of an INIT message with its header, for the handshake before the connection's own loop begins. `None` if
/// it is no INIT.
pub fn decode_message(bytes: &[u8]) -> Option<(u64, Init)> {
    let body = bytes.get(super::IN_HEADER_BYTES..)?;
    let is_init = u32_at(bytes, 4) == super::message::opcode::INIT && body.len() >= Init::BYTES_MIN;
    is_init.then(|| (u64_at(bytes, 8), Init::decode(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { request_bytes_max: 1 << 20, ring_request_bytes_max: 1 << 18, background_max: 512, over_io_uring: true };

    fn offer(flags: u64) -> Init {
        Init { major: 7, minor: 45, read_ahead_bytes: 131_072, flags }
    }

    #[test]
    fn only_what_is_offered_and_wanted_is_taken() {
        let writeback_cache = 1 << 16;
        let (out, negotiated) = offer(ASYNC_DIO | MAX_PAGES | writeback_cache).negotiate(&LIMITS);
        assert_eq!(u64::from(u32_at(&out, 12)), ASYNC_DIO | MAX_PAGES);
        assert_eq!(
            negotiated,
            Negotiated { request_bytes_max: 1 << 20, over_io_uring: false, asynchronous_direct_io: true, can_resend: false }
        );
        assert_eq!(super::super::u16_at(&out, 16), 512);
        assert_eq!(super::super::u16_at(&out, 28), 256);
    }

    #[test]
    fn io_uring_needs_offer_and_wish() {
        let all = offer(u64::MAX);
        assert!(all.negotiate(&LIMITS).1.over_io_uring);
        assert_eq!(all.negotiate(&LIMITS).1.request_bytes_max, 1 << 18);
        assert!(!all.negotiate(&Limits { over_io_uring: false, ..LIMITS }).1.over_io_uring);
        assert!(!offer(!OVER_IO_URING).negotiate(&LIMITS).1.over_io_uring);
    }

    #[test]
    fn without_max_pages_requests_stay_at_32_pages() {
        assert_eq!(offer(ASYNC_DIO).negotiate(&LIMITS).1.request_bytes_max, 128 << 10);
    }
}
