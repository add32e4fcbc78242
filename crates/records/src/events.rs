//! What happened lately, for people: a bounded list, also written to the log.

use crate::live::{Live, LiveEvent};
use api::{EventView, Severity};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Events kept. A week of one per ten minutes; the log on stderr has them all.
const EVENTS_MAX: usize = 1000;

/// The list; usable from any thread.
#[derive(Debug, Default)]
pub struct Events {
    live: Live,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    latest: u64,
    by_severity: [u64; 3],
    list: VecDeque<EventView>,
}

impl Events {
    /// An empty list whose events are told to `live`.
    pub fn new(live: Live) -> Events {
        Events { live, kept: Mutex::default() }
    }

    /// Notes an event, logs it, and tells it.
    pub fn note(&self, severity: Severity, object: &str, message: impl Into<String>) {
        let message = message.into();
        match severity {
            Severity::Info => tracing::info!(object, "{message}"),
            Severity::Warning => tracing::warn!(object, "{message}"),
            Severity::Error => tracing::error!(object, "{message}"),
        }
        let mut kept = self.kept.lock().expect("no holder of this lock panics");
        kept.latest += 1;
        kept.by_severity[severity as usize] += 1;
        let number = kept.latest;
        if kept.list.len() == EVENTS_MAX {
            kept.list.pop_front();
        }
        let event = EventView { number, unix_s: unix_s(), severity, object: object.into(), message };
        kept.list.push_back(event.clone());
        // With the lock held, so that events are told in the order of their numbers.
        self.live.publish(LiveEvent::Event(Arc::new(event)));
    }

    /// The number of the latest event; 0 before the first.
    pub fn latest(&self) -> u64 {
        self.kept.lock().expect("no holder of this lock panics").latest
    }

    /// How many there were of each severity.
    pub fn counts(&self) -> [(Severity, u64); 3] {
        let counts = self.kept.lock().expect("no holder of this lock panics").by_severity;
        [Severity::Info, Severity::Warning, Severity::Error].map(|severity| (severity, counts[severity as usize]))
    }

    /// The events with a number above `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<EventView> {
        let kept = self.kept.lock().expect("no holder of this lock panics");
        kept.list.iter().filter(|e| e.number > after).cloned().collect()
    }
}

/// Seconds since 1970; 0 on a clock set before.
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_numbers_go_on() {
        let events = Events::default();
        (0..EVENTS_MAX + 5).for_each(|n| events.note(Severity::Info, "v", format!("event {n}")));
        let all = events.after(0);
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!(all[0].number, 6);
        assert_eq!(events.after(EVENTS_MAX as u64 + 4).len(), 1);
        events.note(Severity::Error, "v", "trouble");
        let all = EVENTS_MAX as u64 + 5;
        assert_eq!(events.counts(), [(Severity::Info, all), (Severity::Warning, 0), (Severity::Error, 1)]);
        assert_eq!(events.latest(), all + 1);
    }
}
