//! Where logs end: runs of writes, of any size, that a flush follows.
//!
//! A stream ([`super::streams`]) begins with a write of some length, so that random small writes do not fill its table. A log
//! may write less for a long time, and then a group commit that is large; or it goes on in another file, at another place.
//! This small table knows both: a log that is here lends its name to the stream that goes on where it ends, and, for a
//! short while, to one that begins elsewhere.

/// Ends remembered: the logs of a database and of the file system below it, each also where it was before.
const TAILS: usize = 8;
/// A log writes its last page again until that is full: pages have up to 8 KiB (PostgreSQL).
const BACK_SECTORS: u64 = 16;
/// A log may leave out the rest of a block of 4 KiB.
const AHEAD_SECTORS: u64 = 8;
/// What ends a flush keeps its place for this many writes elsewhere, for each flush in a row.
const WRITES_KEPT_FOR_FLUSH: u64 = 64;
/// More flushes count no more.
const FLUSHES_MAX: u8 = 8;

#[derive(Clone, Copy, Default)]
struct Tail {
    next_sector: u64,
    used: u64,
    /// Flushes in a row, each after something was written here.
    flushes: u8,
    unflushed: bool,
}

/// The ends of one volume's logs. May be wrong about speed only.
#[derive(Clone, Default)]
pub struct Tails {
    tails: [Tail; TAILS],
    clock: u64,
}

impl Tails {
    /// Takes note of a write, and says how many flushes in a row followed what it goes on with.
    pub fn write(&mut self, start_sector: u64, sectors: u64) -> u8 {
        self.clock += 1;
        let goes_on = |tail: &Tail| {
            tail.used > 0 && (tail.next_sector.saturating_sub(BACK_SECTORS)..=tail.next_sector + AHEAD_SECTORS).contains(&start_sector)
        };
        let kept = |tail: &Tail| tail.used + u64::from(tail.flushes) * WRITES_KEPT_FOR_FLUSH;
        let end = start_sector + sectors;
        let tail = match self.tails.iter_mut().find(|tail| goes_on(tail)) {
            Some(tail) => tail,
            None => {
                let tail = self.tails.iter_mut().min_by_key(|tail| kept(tail)).expect("there are tails");
                *tail = Tail { next_sector: end, ..Tail::default() };
                tail
            }
        };
        assert!(
            sectors > 0 && tail.used < self.clock && tail.flushes <= FLUSHES_MAX,
            "a write of {sectors} sectors goes on, and forward in time"
        );
        (tail.next_sector, tail.used, tail.unflushed) = (tail.next_sector.max(end), self.clock, true);
        tail.flushes
    }

    /// The client asked for a flush.
    pub fn flushed(&mut self) {
        for tail in self.tails.iter_mut().filter(|tail| tail.unflushed) {
            (tail.flushes, tail.unflushed) = ((tail.flushes + 1).min(FLUSHES_MAX), false);
        }
    }

    /// Whether a log of at least `flushes` flushes rests: what begins now may be its next piece.
    pub fn any_rests(&self, flushes: u8) -> bool {
        self.tails.iter().any(|tail| tail.flushes >= flushes && !tail.unflushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;

    #[test]
    fn what_is_flushed_again_and_again_is_remembered_among_random_writes() {
        let (mut tails, mut at) = (Tails::default(), 0);
        for round in 0..100_u64 {
            let flushes = tails.write(at, 16);
            assert_eq!(u64::from(flushes), round.min(FLUSHES_MAX.into()), "round {round}");
            // Its last page again in the next round, every second time.
            at += if round % 2 == 0 { 0 } else { 16 };
            tails.flushed();
            for random in 0..40 {
                tails.write(1_000_000 + mix(round * 40 + random) % (1 << 31), 8);
            }
        }
    }

    #[test]
    fn a_log_that_waits_for_its_flush_does_not_rest() {
        let mut tails = Tails::default();
        for round in 0..3 {
            assert!(!tails.any_rests(3));
            tails.write(round * 8, 8);
            tails.flushed();
        }
        assert!(tails.any_rests(3));
        tails.write(24, 8);
        assert!(!tails.any_rests(3));
    }

    #[test]
    fn old_logs_give_way() {
        let mut tails = Tails::default();
        for log in 0..100 {
            for round in 0..20 {
                tails.write(log * 1_000_000 + round * 8, 8);
                tails.flushed();
            }
        }
        assert_eq!(tails.write(99 * 1_000_000 + 160, 8), FLUSHES_MAX);
        assert_eq!(tails.write(160, 8), 0);
    }
}
