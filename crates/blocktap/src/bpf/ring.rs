//! The reader's side of the kernel's BPF ring buffer (`Documentation/bpf/ringbuf.rst`): safe code
//! over words of memory that others write meanwhile.
//!
//! ```text
//!   positions only grow; place of a position: position mod size, in a size that is a power of two
//!   record: u32 length, bit 31 busy, bit 30 discarded; u32 for the kernel; payload; to the next 8 bytes
//! ```
//! The kernel publishes a record busy by its `producer` position, and complete by its header. So
//! both are loaded with acquire: what lies before them in the kernel's order is seen. Our position
//! is stored with release: records are read before the kernel may write over them.

use std::sync::atomic::{AtomicU64, Ordering};

/// `BPF_RINGBUF_BUSY_BIT` and `BPF_RINGBUF_DISCARD_BIT`.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// One look at a ring.
pub struct Ring<'a> {
    /// Up to where we have read; ours.
    pub consumer: &'a AtomicU64,
    /// Up to where there are records; the kernel's.
    pub producer: &'a AtomicU64,
    /// The records; a power of two of words.
    pub words: &'a [AtomicU64],
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Looked {
    /// Records that were handed out.
    pub records: u64,
    /// The ring holds what no kernel writes; all that was in it is dropped.
    pub damaged: bool,
}

impl Ring<'_> {
    /// Hands out the complete records of `N` words that were there at the beginning, oldest first.
    /// Records of other lengths are passed over. Room is given back at the end, and every eighth of
    /// the ring before.
    pub fn drain<const N: usize>(&self, mut each: impl FnMut(&[u64; N])) -> Looked {
        let ring_bytes = self.words.len() as u64 * 8;
        assert!(ring_bytes.is_power_of_two(), "{ring_bytes} bytes are no power of two");
        let mut looked = Looked::default();
        // Only we store it.
        let mut position = self.consumer.load(Ordering::Relaxed);
        let mut given_back = position;
        let end = self.producer.load(Ordering::Acquire);
        let filled = end.wrapping_sub(position);
        if filled > ring_bytes || !position.is_multiple_of(8) {
            return self.drop_all(end);
        }
        while position != end {
            let header = self.word(position).load(Ordering::Acquire).to_ne_bytes();
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            if length & BUSY != 0 {
                break;
            }
            let payload_bytes = u64::from(length & !DISCARDED);
            let next = position.wrapping_add(HEADER_BYTES + payload_bytes.next_multiple_of(8));
            if end.wrapping_sub(next) > end.wrapping_sub(position) {
                return self.drop_all(end);
            }
            if length & DISCARDED == 0 && payload_bytes == N as u64 * 8 {
                let word = |index| self.word(position.wrapping_add(HEADER_BYTES + index as u64 * 8));
                each(&std::array::from_fn(|index| word(index).load(Ordering::Relaxed)));
                looked.records += 1;
            }
            position = next;
            if position.wrapping_sub(given_back) >= ring_bytes / 8 {
                self.consumer.store(position, Ordering::Release);
                given_back = position;
            }
        }
        self.consumer.store(position, Ordering::Release);
        looked
    }

    fn drop_all(&self, end: u64) -> Looked {
        self.consumer.store(end, Ordering::Release);
        Looked { records: 0, damaged: true }
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position / 8) as usize & (self.words.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in ordinary memory, with the kernel's side of the protocol.
    struct Fake {
        consumer: AtomicU64,
        producer: AtomicU64,
        words: Vec<AtomicU64>,
    }

    impl Fake {
        fn new(words: usize, position: u64) -> Fake {
            let words = std::iter::repeat_with(|| AtomicU64::new(u64::MAX)).take(words).collect();
            Fake { consumer: position.into(), producer: position.into(), words }
        }

        fn ring(&self) -> Ring<'_> {
            Ring { consumer: &self.consumer, producer: &self.producer, words: &self.words }
        }

        fn set(&self, position: u64, value: u64, order: Ordering) {
            self.words[(position / 8) as usize % self.words.len()].store(value, order);
        }

        fn header(&self, position: u64, length: u32) {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            // What the kernel has there is its own.
            bytes[4] = 0xaa;
            self.set(position, u64::from_ne_bytes(bytes), Ordering::Release);
        }

        /// Where there is room: a busy record's position.
        fn reserve(&self, bytes: u32) -> Option<u64> {
            let position = self.producer.load(Ordering::Relaxed);
            let next = position.wrapping_add(8 + u64::from(bytes).next_multiple_of(8));
            let used = next.wrapping_sub(self.consumer.load(Ordering::Acquire));
            if used > self.words.len() as u64 * 8 {
                return None;
            }
            self.header(position, bytes | BUSY);
            self.producer.store(next, Ordering::Release);
            Some(position)
        }

        fn fill(&self, position: u64, values: &[u64]) {
            for (index, value) in values.iter().enumerate() {
                self.set(position.wrapping_add(8 + index as u64 * 8), *value, Ordering::Relaxed);
            }
        }

        fn push(&self, values: &[u64]) -> bool {
            let bytes = values.len() as u32 * 8;
            let Some(position) = self.reserve(bytes) else { return false };
            self.fill(position, values);
            self.header(position, bytes);
            true
        }

        fn drained(&self) -> (Looked, Vec<[u64; 2]>) {
            let mut records = Vec::new();
            let looked = self.ring().drain(|record: &[u64; 2]| records.push(*record));
            (looked, records)
        }
    }

    fn looked(records: u64) -> Looked {
        Looked { records, damaged: false }
    }

    #[test]
    fn records_come_in_order_over_the_end_of_the_memory() {
        // 16 words hold five records of three words; each round begins elsewhere.
        let fake = Fake::new(16, 0);
        let mut next = 0;
        for _ in 0..50 {
            let mut expected = Vec::new();
            while fake.push(&[next, !next]) {
                expected.push([next, !next]);
                next += 1;
            }
            assert_eq!(expected.len(), 5);
            assert_eq!(fake.drained(), (looked(5), expected));
        }
        assert_eq!(fake.drained(), (looked(0), vec![]));
    }

    #[test]
    fn positions_may_wrap_around() {
        let fake = Fake::new(16, 0u64.wrapping_sub(24));
        assert!(fake.push(&[1, 2]) && fake.push(&[3, 4]));
        assert_eq!(fake.drained(), (looked(2), vec![[1, 2], [3, 4]]));
        assert_eq!(fake.consumer.load(Ordering::Relaxed), 24);
    }

    #[test]
    fn a_busy_record_holds_back_those_behind_it() {
        let fake = Fake::new(16, 0);
        let busy = fake.reserve(16).expect("room");
        assert!(fake.push(&[3, 4]));
        assert_eq!(fake.drained(), (looked(0), vec![]));
        assert_eq!(fake.consumer.load(Ordering::Relaxed), 0, "its room is not given back");
        fake.fill(busy, &[1, 2]);
        fake.header(busy, 16);
        assert_eq!(fake.drained(), (looked(2), vec![[1, 2], [3, 4]]));
    }

    #[test]
    fn discarded_records_and_those_of_other_lengths_are_passed_over() {
        let fake = Fake::new(16, 0);
        let discarded = fake.reserve(16).expect("room");
        fake.header(discarded, 16 | DISCARDED);
        assert!(fake.push(&[7]));
        let odd = fake.reserve(9).expect("room");
        fake.header(odd, 9);
        assert!(fake.push(&[1, 2]));
        assert_eq!(fake.drained(), (looked(1), vec![[1, 2]]));
        assert_eq!(fake.consumer.load(Ordering::Relaxed), fake.producer.load(Ordering::Relaxed));
    }

    #[test]
    fn what_no_kernel_writes_ends_the_look_and_drops_the_rest() {
        let damaged = |prepare: fn(&Fake)| {
            let fake = Fake::new(16, 0);
            prepare(&fake);
            assert_eq!(fake.drained(), (Looked { records: 0, damaged: true }, vec![]));
            assert_eq!(fake.consumer.load(Ordering::Relaxed), fake.producer.load(Ordering::Relaxed));
            fake.consumer.store(0, Ordering::Relaxed);
            fake.producer.store(0, Ordering::Relaxed);
            assert!(fake.push(&[1, 2]));
            assert_eq!(fake.drained(), (looked(1), vec![[1, 2]]), "the next record is read");
        };
        damaged(|fake| {
            fake.reserve(16);
            fake.header(0, 17 * 8);
        });
        damaged(|fake| {
            fake.reserve(16);
            fake.header(0, !(BUSY | DISCARDED));
        });
        damaged(|fake| fake.producer.store(16 * 8 + 8, Ordering::Relaxed));
        damaged(|fake| fake.producer.store(u64::MAX, Ordering::Relaxed));
        damaged(|fake| fake.consumer.store(4, Ordering::Relaxed));
    }

    #[test]
    fn room_is_given_back_while_reading() {
        let fake = Fake::new(64, 0);
        while fake.push(&[0, 0]) {}
        let mut freed_early = false;
        fake.ring().drain(|_: &[u64; 2]| freed_early |= fake.consumer.load(Ordering::Relaxed) > 0);
        assert!(freed_early);
    }

    #[test]
    fn a_writer_beside_loses_nothing_and_no_record_is_torn() {
        let fake = Fake::new(64, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..20_000 {
                    while !fake.push(&[value, value.wrapping_mul(0x9e37_79b9_7f4a_7c15)]) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0u64;
            while expected < 20_000 {
                let looked = fake.ring().drain(|record: &[u64; 2]| {
                    assert_eq!(*record, [expected, expected.wrapping_mul(0x9e37_79b9_7f4a_7c15)]);
                    expected += 1;
                });
                assert!(!looked.damaged);
                if looked.records == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
