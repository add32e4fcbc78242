//! What an earlier daemon has left in all queues, ended in the order in which it came, before anything new is taken.
//!
//! A write that was under way when the daemon was killed may have taken effect already: its record may be in the log. It is carried out
//! once more. If another queue took a newer write of the same place before that, the older one would come back over it, after somebody
//! may have read the newer. So no queue takes new requests until all that was left is answered, and what was left is submitted in the
//! order of its counters, which all queues of a device share: one after another, each when the one before is answered, since on its way to
//! the volume one may overtake another that comes from another reactor.
//!
//! A front end may never start a queue in which something was left, or never enable it. Such a queue is waited for [`PATIENCE`]. One that
//! runs is waited for as long as it takes: its volume may be held, or slow.

use crate::inflight::Inflight;
use crate::wishes::Line;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long queues wait for one that does not run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A request: its counter, its queue, its head.
type Request = (u64, u16, u16);

/// See the module.
#[derive(Debug)]
pub(crate) struct Resumption {
    over: AtomicBool,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    /// To be submitted.
    left: BTreeSet<Request>,
    /// Submitted, and not answered.
    open: BTreeSet<Request>,
    /// Queues that were started and are not gone.
    started: BTreeSet<u16>,
    /// Of queues that may have to wait, with their numbers: those that are gone are not kept.
    lines: Vec<(u16, Arc<Line>)>,
    until: Option<Instant>,
}

impl Resumption {
    /// Of what is noted now. Some of it may turn out to be answered when its queue starts.
    pub(crate) fn new(inflight: &Inflight) -> Arc<Resumption> {
        Resumption::of(inflight.noted())
    }

    fn of(left: BTreeSet<Request>) -> Arc<Resumption> {
        let over = AtomicBool::new(left.is_empty());
        let inside = Inside { left, open: BTreeSet::new(), started: BTreeSet::new(), lines: Vec::new(), until: None };
        Arc::new(Resumption { over, inside: Mutex::new(inside) })
    }

    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue starts, in which exactly this is left. Gives whether it has to wait for anything.
    pub(crate) fn starts(&self, queue: u16, again: impl Iterator<Item = (u64, u16)>, line: &Arc<Line>) -> bool {
        let mut inside = self.inside();
        inside.left.retain(|(_, of, _)| *of != queue);
        inside.left.extend(again.map(|(counter, head)| (counter, queue, head)));
        inside.started.insert(queue);
        inside.until.get_or_insert_with(|| Instant::now() + PATIENCE);
        self.look(&mut inside);
        let waits = !self.is_over();
        if waits {
            inside.lines.push((queue, line.clone()));
        }
        waits
    }

    /// Whether it is the turn of a request that was left.
    pub(crate) fn is_next(&self, queue: u16, head: u16) -> bool {
        let inside = self.inside();
        let is_it = |(_, of, first): &Request| (*of, *first) == (queue, head);
        // Of a queue that was not waited for, no request is among them.
        let is_first = inside.open.is_empty() && inside.left.first().is_some_and(is_it);
        self.is_over() || is_first || !inside.left.iter().any(is_it)
    }

    /// All parts of it were submitted.
    pub(crate) fn submitted(&self, queue: u16, head: u16) {
        let mut inside = self.inside();
        let found = inside.left.iter().find(|(_, of, first)| (*of, *first) == (queue, head)).copied();
        if let Some(request) = found {
            inside.left.remove(&request);
            inside.open.insert(request);
        }
    }

    /// It was answered.
    pub(crate) fn answered(&self, queue: u16, head: u16) {
        let mut inside = self.inside();
        let other = |(_, of, first): &Request| (*of, *first) != (queue, head);
        inside.left.retain(other);
        inside.open.retain(other);
        self.look(&mut inside);
        // Another one is next.
        if let Some((_, next, _)) = inside.left.first() {
            inside.lines.iter().filter(|(of, _)| of == next).for_each(|(_, line)| line.ring());
        }
    }

    /// The queue is gone, or broken: nothing of it is waited for.
    pub(crate) fn gone(&self, queue: u16) {
        let mut inside = self.inside();
        inside.left.retain(|(_, of, _)| *of != queue);
        inside.open.retain(|(_, of, _)| *of != queue);
        inside.lines.retain(|(of, _)| *of != queue);
        inside.started.remove(&queue);
        self.look(&mut inside);
        inside.lines.iter().for_each(|(_, line)| line.ring());
    }

    fn look(&self, inside: &mut Inside) {
        if inside.left.is_empty() && inside.open.is_empty() && !self.over.swap(true, Ordering::AcqRel) {
            inside.lines.drain(..).for_each(|(_, line)| line.ring());
        }
    }

    /// Whether new requests may be taken.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Queues that do not run were waited for long enough: those that were not started, and this one, if it does not run either.
    pub(crate) fn give_up(&self, queue: u16, runs: bool) {
        let mut inside = self.inside();
        if inside.until.is_none_or(|until| Instant::now() < until) || self.is_over() {
            return;
        }
        let (before, started) = (inside.left.len(), std::mem::take(&mut inside.started));
        inside.left.retain(|(_, of, _)| started.contains(of) && (runs || *of != queue));
        inside.started = started;
        if inside.left.len() < before {
            tracing::warn!("requests of a guest that were under way when the daemon ended are not asked for again");
        }
        self.look(&mut inside);
        inside.lines.iter().for_each(|(_, line)| line.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wishes::Wishes;

    /// Whether a queue was told to look, since the last time.
    fn rung(line: &Line) -> bool {
        rustix::io::read(line.bell(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn what_was_left_comes_in_order_over_all_queues_and_before_anything_new() {
        let line = Line::new(Wishes::default()).expect("a descriptor");
        let resumption = Resumption::of([(3, 0, 9), (4, 1, 2), (5, 0, 1), (6, 2, 7)].into_iter().collect());
        // One of queue 0 was answered after all.
        assert!(resumption.starts(0, [(5, 1)].into_iter(), &line));
        assert!(!resumption.is_next(0, 1), "an older one is in a queue that has not started");
        assert!(resumption.starts(1, [(4, 2)].into_iter(), &line));
        assert!(resumption.is_next(1, 2));
        resumption.submitted(1, 2);
        assert!(!resumption.is_next(0, 1), "the older one is on its way, and may be overtaken");
        rung(&line);
        resumption.answered(1, 2);
        assert!(resumption.is_next(0, 1) && rung(&line));
        resumption.submitted(0, 1);
        resumption.answered(0, 1);
        assert!(!resumption.is_over(), "one queue is missing");
        resumption.give_up(0, true);
        assert!(!resumption.is_over(), "not yet");
        resumption.gone(2);
        assert!(resumption.is_over());
        assert!(!resumption.starts(2, std::iter::empty(), &line));
    }

    /// A volume may be held for long: what runs is waited for, and nothing new comes before it.
    #[test]
    fn only_queues_that_do_not_run_are_given_up() {
        let line = Line::new(Wishes::default()).expect("a descriptor");
        let resumption = Resumption::of([(3, 2, 7), (4, 0, 1), (5, 1, 2), (6, 0, 3)].into_iter().collect());
        assert!(resumption.starts(0, [(4, 1), (6, 3)].into_iter(), &line));
        assert!(resumption.starts(1, [(5, 2)].into_iter(), &line));
        resumption.inside().until = Some(Instant::now());
        assert!(!resumption.is_next(0, 1));
        resumption.give_up(0, true);
        assert!(resumption.is_next(0, 1), "queue 2 was not started");
        resumption.submitted(0, 1);
        assert!(!resumption.is_next(0, 3));
        resumption.give_up(1, false);
        assert!(!resumption.is_next(0, 3), "one is at the volume");
        resumption.answered(0, 1);
        assert!(resumption.is_next(0, 3), "queue 1 is not enabled");
        resumption.submitted(0, 3);
        resumption.give_up(0, true);
        assert!(!resumption.is_over(), "one is at the volume");
        assert!(resumption.is_next(1, 2), "when it is enabled after all");
        resumption.answered(0, 3);
        assert!(resumption.is_over());
    }

    /// A line has a descriptor, and with its wishes all of a guest's memory.
    #[test]
    fn queues_that_are_gone_are_not_kept() {
        let line = Line::new(Wishes::default()).expect("a descriptor");
        let resumption = Resumption::of([(3, 0, 9)].into_iter().collect());
        for _ in 0..3 {
            assert!(resumption.starts(1, std::iter::empty(), &line));
            assert_eq!(Arc::strong_count(&line), 2);
            resumption.gone(1);
            assert_eq!(Arc::strong_count(&line), 1);
        }
        assert!(resumption.starts(1, std::iter::empty(), &line));
        resumption.answered(0, 9);
        assert!(!resumption.starts(1, std::iter::empty(), &line));
        assert_eq!(Arc::strong_count(&line), 1, "it is over");
    }
}
