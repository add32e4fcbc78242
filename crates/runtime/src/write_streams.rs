//! Which write stream of an SSD a write names, so that its flash keeps apart what becomes void at different times.
//!
//! The kernel numbers a device's streams from 1 (`write_stream` of an entry, Linux 6.16); 0 names none. NVMe SSDs with flexible data placement
//! have them: each stream is a reclaim unit handle there.

use engine::api::WriteKind::{self, Clients, Fills, Other, Packed, Ring};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The kinds of writes that share a stream, for each stream in use.
pub type StreamUses = &'static [&'static [WriteKind]];

/// By the count of streams: with fewer than four, those share one that stay for about as long.
///
/// * The ring is the first to be alone: its pages become void in the order in which they were written, after one round, so that nothing of
///   them is ever copied; and among blocks each of them would leave a hole.
/// * Then clients' blocks, which are overwritten soonest. A page of packed blocks stays as long as one of them does, and a clean block until
///   the cache gives it up.
fn uses_of(announced: u16) -> StreamUses {
    match announced {
        0 | 1 => &[],
        2 => &[&[Ring], &[Packed, Clients, Fills]],
        3 => &[&[Ring], &[Clients], &[Packed, Fills]],
        _ => &[&[Ring], &[Packed], &[Clients], &[Fills]],
    }
}

/// The number of the first stream in use. What names no stream goes where stream 1 does on NVMe (to placement handle 0), so that one is left to
/// it, such as the disks beside a cache, where there are enough.
fn first_of(announced: u16) -> u8 {
    if usize::from(announced) > uses_of(announced).len() { 2 } else { 1 }
}

/// What is known of a device's streams. All reactors use it.
pub(crate) struct WriteStreams {
    announced: u16,
    /// The kernel's number of the error of the first write that was refused because it named one; 0: none was.
    refused: AtomicI32,
}

/// A device's streams, as people want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamsInUse {
    /// How many the SSD announces.
    pub announced: u16,
    /// What each stream in use is for; nothing after the device refused a write that named one.
    pub uses: StreamUses,
    /// The kernel's number of that error.
    pub refused: Option<i32>,
}

impl WriteStreams {
    pub(crate) fn new(announced: u16) -> WriteStreams {
        WriteStreams { announced, refused: AtomicI32::new(0) }
    }

    /// The stream that such a write names; 0: none.
    pub(crate) fn of(&self, kind: WriteKind) -> u8 {
        if kind == Other || self.refused.load(Relaxed) != 0 {
            return 0;
        }
        let at = uses_of(self.announced).iter().position(|kinds| kinds.contains(&kind));
        at.map_or(0, |at| first_of(self.announced) + at as u8)
    }

    /// A write was refused that named one: no more are named.
    pub(crate) fn refused(&self, errno: i32) {
        // Only the first error counts.
        let _ = self.refused.compare_exchange(0, errno, Relaxed, Relaxed);
    }

    /// `None` if there are too few to be of use.
    pub(crate) fn in_use(&self) -> Option<StreamsInUse> {
        let refused = Some(self.refused.load(Relaxed)).filter(|errno| *errno != 0);
        let (announced, uses) = (self.announced, uses_of(self.announced));
        (!uses.is_empty()).then(|| StreamsInUse { announced, uses: if refused.is_some() { &[] } else { uses }, refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [WriteKind; 5] = [Other, Ring, Packed, Clients, Fills];

    #[test]
    fn each_kind_has_a_stream_that_exists_and_the_ring_has_its_own() {
        let streams = |announced| KINDS.map(|kind| WriteStreams::new(announced).of(kind));
        assert_eq!(streams(0), [0; 5]);
        assert_eq!(streams(1), [0; 5], "one stream keeps nothing apart");
        assert_eq!(streams(2), [0, 1, 2, 2, 2]);
        assert_eq!(streams(3), [0, 1, 3, 2, 3]);
        assert_eq!(streams(4), [0, 1, 2, 3, 4]);
        for many in [5, 8, 255, u16::MAX] {
            assert_eq!(streams(many), [0, 2, 3, 4, 5], "the first is left to what names none");
        }
        for announced in 2..20_u16 {
            assert!(streams(announced).iter().all(|stream| u16::from(*stream) <= announced));
            assert_eq!(streams(announced)[1..].iter().filter(|stream| **stream == streams(announced)[1]).count(), 1);
        }
    }

    #[test]
    fn after_a_refusal_no_stream_is_named() {
        let streams = WriteStreams::new(8);
        let whole = StreamsInUse { announced: 8, uses: uses_of(8), refused: None };
        assert_eq!(streams.in_use(), Some(whole));
        streams.refused(libc::EINVAL);
        streams.refused(libc::EOPNOTSUPP);
        assert!(KINDS.iter().all(|kind| streams.of(*kind) == 0));
        assert_eq!(streams.in_use(), Some(StreamsInUse { uses: &[], refused: Some(libc::EINVAL), ..whole }));
        assert_eq!(WriteStreams::new(1).in_use(), None);
    }
}
