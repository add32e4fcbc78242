//! Bursts: how much of what a client writes in large pieces goes to the SSD all the same, because somebody may wait for it.
//!
//! The size of a write says nothing about whether somebody waits for it. A transaction of 40 MB, a checkpoint and the copy of a file all come as
//! large writes, many in flight at once. What tells them apart comes afterwards: a flush. If any of a burst went around the SSD, that flush
//! waits for the backing device, and so does every small commit that comes meanwhile.
//!
//! So each volume has a *credit*: the SSD takes that much between two flushes, the rest goes around. Flushes that follow what was written raise it,
//! up to a little more than the bursts that were seen; a long run without a flush is no commit's, and takes it away. What flushes again and
//! again while others write (small commits beside a compaction) has the whole credit each time, so nothing goes around there.
//!
//! A file system flushes its journal in the middle of a copy, too, now after much and now after little. So for some flushes after a long run the
//! credit stays small, and one flush at most triples it.
//!
//! No time is needed: only the order of writes and flushes, and how much is between them.

/// What one flush adds to the credit, and what is left of it after a run that was no commit's (4 MiB).
const STEP_BYTES: u64 = 4 << 20;
/// Small commits alone raise it so far (16 MiB): it is what a copy puts on the SSD that begins after them.
const COMMITS_CREDIT_BYTES: u64 = 16 << 20;
/// More than this around the SSD without a flush (64 MiB): nobody waits for it.
const BULK_BYTES: u64 = 64 << 20;
/// So many flushes in a row with no such run between them: the client commits. A copy of 1 GiB to ext4, with the `sync` at its end, has six to
/// eight in all.
const CALM_FLUSHES: u8 = 8;
/// A burst may be longer than the last one by one in this many of its bytes.
const GROWS_ONE_IN: u64 = 4;
/// One flush raises the credit to so many times of it at most: after small commits alone, the second transaction of 40 MiB fits, with room to grow.
const MOST_GROWTH: u64 = 3;

/// Of one volume. May be wrong about speed only.
#[derive(Clone, Default, Debug)]
pub struct Bursts {
    credit_bytes: u64,
    /// Since the last flush: what went to the SSD, and what went around.
    logged_bytes: u64,
    around_bytes: u64,
    /// Flushes since a run that was no commit's, as far as they matter.
    calm_flushes: u8,
}

impl Bursts {
    /// Whether the SSD is to take a large write of that many bytes; it takes at most `most_bytes` between two flushes.
    pub fn takes(&mut self, bytes: u64, most_bytes: u64) -> bool {
        assert!(bytes > 0, "a write has bytes");
        let takes = self.logged_bytes.saturating_add(bytes) <= self.credit_bytes.min(most_bytes);
        if takes {
            self.logged_bytes += bytes;
        } else {
            self.around_bytes = self.around_bytes.saturating_add(bytes);
            if self.around_bytes > BULK_BYTES {
                self.credit_bytes = 0;
            }
        }
        takes
    }

    /// The SSD takes a write of a stream for another reason.
    pub fn logs(&mut self, bytes: u64) {
        self.logged_bytes = self.logged_bytes.saturating_add(bytes);
    }

    /// The SSD takes a large write whose client is known to wait for it, such as one with FUA. False if that is more than `most_bytes` since the
    /// last flush.
    pub fn takes_awaited(&mut self, bytes: u64, most_bytes: u64) -> bool {
        let takes = self.logged_bytes.saturating_add(bytes) <= most_bytes;
        if takes {
            self.logged_bytes += bytes;
        }
        takes
    }

    /// A flush: whoever sent it waited for what came before.
    pub fn flushed(&mut self) {
        let burst_bytes = self.logged_bytes.saturating_add(self.around_bytes);
        let is_bulk = self.around_bytes > BULK_BYTES;
        self.calm_flushes = if is_bulk { 0 } else { (self.calm_flushes + 1).min(CALM_FLUSHES) };
        self.credit_bytes = if self.calm_flushes < CALM_FLUSHES {
            STEP_BYTES
        } else {
            let raised_bytes = (self.credit_bytes + STEP_BYTES).min(COMMITS_CREDIT_BYTES);
            let expected_bytes = burst_bytes.saturating_add(burst_bytes / GROWS_ONE_IN).min(MOST_GROWTH * self.credit_bytes);
            self.credit_bytes.max(raised_bytes).max(expected_bytes)
        };
        let commits = self.calm_flushes == CALM_FLUSHES;
        assert!(if commits { self.credit_bytes >= STEP_BYTES } else { self.credit_bytes == STEP_BYTES }, "credit of {self:?}");
        (self.logged_bytes, self.around_bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Writes so much in pieces of 1 MiB, and a flush where one follows; gives how much went around.
    fn write(bursts: &mut Bursts, mib: u64, flush: bool) -> u64 {
        let around = (0..mib).filter(|_| !bursts.takes(MIB, u64::MAX)).count() as u64;
        if flush {
            bursts.flushed();
        }
        around
    }

    /// A volume whose clients have committed so often.
    fn after_commits(commits: usize) -> Bursts {
        let mut bursts = Bursts::default();
        (0..commits).for_each(|_| bursts.flushed());
        bursts
    }

    #[test]
    fn what_never_saw_a_flush_goes_around() {
        assert_eq!(write(&mut Bursts::default(), 400, false), 400);
    }

    #[test]
    fn a_copy_after_commits_goes_around_but_for_a_twentieth() {
        for commits in [1, 4, 1000] {
            assert!(write(&mut after_commits(commits), 400, false) >= 380, "after {commits} commits");
        }
    }

    #[test]
    fn large_commits_belong_in_the_log_once_one_was_seen() {
        let mut bursts = after_commits(100);
        assert_eq!(write(&mut bursts, 40, true), 24);
        for mib in [42, 45, 50, 60] {
            assert_eq!(write(&mut bursts, mib, true), 0, "a commit of {mib} MiB");
            // Small ones between them change nothing.
            (0..1000).for_each(|_| bursts.flushed());
        }
    }

    #[test]
    fn nothing_goes_around_beside_commits() {
        let mut bursts = Bursts::default();
        let around: u64 = (0..1000).map(|_| write(&mut bursts, 8, true)).sum();
        assert!(around <= 8 * 8, "{around} MiB, until some were seen");
    }

    /// What ext4 did with 1 GiB at a `sync`: some flushes come soon after the last.
    #[test]
    fn flushes_amid_a_copy_make_no_commits_of_it() {
        for commits in [0, 4, 1000] {
            let mut bursts = after_commits(commits);
            let pieces = [30, 300, 40, 200, 60, 10, 300, 84];
            let around: u64 = pieces.iter().map(|mib| write(&mut bursts, *mib, true)).sum();
            let given = 1024 - around;
            assert!(given <= if commits < 1000 { 51 } else { 82 }, "{given} of 1024 MiB were logged after {commits} commits");
        }
    }

    /// A file system commits its journal every five seconds, whatever goes on.
    #[test]
    fn a_flush_now_and_then_makes_no_commit_of_a_copy() {
        let mut bursts = after_commits(1000);
        let around: u64 = (0..10).map(|_| write(&mut bursts, 500, true)).sum();
        assert!(around >= 5000 - 16 - 9 * 4, "{around} of 5000 MiB went around");
        // After it, commits are what they were.
        (0..20).for_each(|_| bursts.flushed());
        assert_eq!(write(&mut bursts, 16, true), 0);
    }

    #[test]
    fn the_log_takes_no_more_than_it_may() {
        let mut bursts = after_commits(100);
        let taken = (0..40).filter(|_| bursts.takes(MIB, 10 * MIB)).count();
        assert_eq!(taken, 10);
        bursts.flushed();
        let taken = (0..40).filter(|_| bursts.takes_awaited(MIB, 10 * MIB)).count();
        assert_eq!(taken, 10);
    }
}
