//! The thread that brings closed chunks to the disk, keeps the file within its bounds, and mends it.

use crate::grain::Grain;
use crate::history::Shared;
use crate::state::State;
use crate::store::Trouble;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// All objects close their chunks in the same second: what comes within it becomes one transaction.
const GATHER: Duration = Duration::from_secs(1);

/// How often a disk that does not take anything is tried.
const RETRY: Duration = Duration::from_secs(60);

/// How often chunks of minutes are rewritten as they fill, and old ones deleted.
const ROUND: Duration = Duration::from_secs(300);

/// Whoever waits for the writer is woken when it ends, even by a mistake of ours.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if std::thread::panicking() {
            fails(&mut state, "the thread that writes has ended by a fault; restart the daemon and report it".into());
        }
        state.stop = true;
        self.0.changed.notify_all();
    }
}

/// Runs until the history is dropped.
pub(crate) fn run(shared: &Shared) {
    let _ended = Ended(shared);
    let mut writer = Writer { shared, swept_at_s: None };
    let mut next_round = Instant::now() + ROUND;
    let mut next_write: Option<Instant> = None;
    // What the start has mended is stored before its sources grow too old; and a limit made smaller since the last start is met.
    writer.write_all();
    writer.sweep();
    loop {
        let mut state = shared.state();
        let (flush, stop) = loop {
            if state.stop || state.flushes_wanted > state.flushes_done || state.damage.is_some() {
                break (state.stop || state.flushes_wanted > state.flushes_done, state.stop);
            }
            let now = Instant::now();
            if state.has_work() && next_write.is_none() {
                next_write = Some(now + if state.outage.is_some() { RETRY } else { GATHER });
            }
            let due = next_write.map_or(next_round, |write| write.min(next_round));
            if now >= due {
                break (false, false);
            }
            state = shared.changed.wait_timeout(state, due - now).unwrap_or_else(PoisonError::into_inner).0;
        };
        let round = Instant::now() >= next_round;
        let flushes = state.flushes_wanted;
        if flush {
            state.hand_on(&Grain::ALL);
        } else if round {
            state.hand_on(&[Grain::Minute, Grain::Hour]);
        }
        let damage = state.damage.take();
        drop(state);
        if let Some(why) = damage {
            writer.begin_anew(&why);
        }
        writer.write_all();
        if flush || round {
            writer.sweep();
            next_round = Instant::now() + ROUND;
        }
        next_write = None;
        let mut state = shared.state();
        state.flushes_done = flushes;
        shared.changed.notify_all();
        if stop {
            return;
        }
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    /// What the clock of the records said at the last sweep.
    swept_at_s: Option<u64>,
}

impl Writer<'_> {
    /// Writes all that waits, or as much as the disk takes.
    fn write_all(&mut self) {
        let mut mended = false;
        loop {
            let batch = {
                let state = self.shared.state();
                if !state.has_work() {
                    break;
                }
                state.batch(self.shared.store.batch_bytes())
            };
            match self.shared.store.write(&batch) {
                Ok(()) => {
                    let mut state = self.shared.state();
                    state.written(&batch);
                    works_again(&mut state);
                }
                // A new file that is damaged at once is not worth another: the next attempt comes later.
                Err(Trouble::Damaged(why)) if !mended => {
                    mended = true;
                    self.begin_anew(&why);
                }
                Err(Trouble::Damaged(why) | Trouble::Unwritable(why)) => {
                    fails(&mut self.shared.state(), why);
                    break;
                }
            }
        }
    }

    /// Deletes what is too old. The clock may have jumped ahead by mistake, and what is deleted does not come back: so the age is taken at the earlier of this
    /// sweep's time and the last one's.
    fn sweep(&mut self) {
        let now_s = self.shared.state().latest_s;
        let before_s = self.swept_at_s.replace(now_s).unwrap_or(now_s).min(now_s);
        match self.shared.store.sweep(before_s) {
            Ok(expired) => {
                let mut state = self.shared.state();
                state.expired(&expired);
                // What could not be written before still waits, and its turn tells more than this.
                if !state.has_work() {
                    works_again(&mut state);
                }
            }
            Err(Trouble::Damaged(why)) => {
                self.begin_anew(&why);
                self.write_all();
            }
            Err(Trouble::Unwritable(why)) => fails(&mut self.shared.state(), why),
        }
    }

    fn begin_anew(&mut self, why: &str) {
        let notice = self.shared.store.begin_anew(why);
        let mut state = self.shared.state();
        state.tell(notice);
        // Found by a query meanwhile, in the file that is gone.
        state.damage = None;
        state.all_unwritten();
        state.hand_on(&Grain::ALL);
    }
}

/// Told once for as long as it lasts.
fn fails(state: &mut State, why: String) {
    if state.outage.is_none() {
        let kept = "what is recorded stays in memory for a while and is tried again each minute";
        state.tell(format!("The history cannot be written ({why}): {kept}; free some space on its disk or repair it"));
    }
    state.outage = Some(why);
}

fn works_again(state: &mut State) {
    if state.outage.take().is_some() {
        state.tell("The history is written again".into());
    }
}
