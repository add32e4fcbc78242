//! What happens, sent to all listeners: the source of `/stream`.
//!
//! Telling never waits. A listener that does not keep up loses the oldest and is informed that it did, so nothing is buffered without bound.

use api::{EventView, JobView, Sample};
use std::sync::Arc;
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// How many tellings a listener may be behind: four minutes of samples, or a burst of events.
const BEHIND_MAX: usize = 256;

/// Something that listeners are told.
#[derive(Clone, Debug)]
pub enum LiveEvent {
    /// One second of everything.
    Sample(Arc<Sample>),
    /// A job began, ended, or has run for another second.
    Job(Arc<JobView>),
    /// Something happened.
    Event(Arc<EventView>),
    /// A list is not what it was: "pools" or "volumes".
    Changed(&'static str),
}

/// Where it is told and heard; cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Live {
    sender: Sender<LiveEvent>,
}

impl Default for Live {
    fn default() -> Live {
        Live { sender: channel(BEHIND_MAX).0 }
    }
}

impl Live {
    /// Hears everything from now on.
    pub fn subscribe(&self) -> Receiver<LiveEvent> {
        self.sender.subscribe()
    }

    /// Whether anybody listens: what is only told need not be made if nobody does.
    pub fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Tells everybody. Nobody there is no failure.
    pub fn publish(&self, event: LiveEvent) {
        // The only error is that nobody listens.
        drop(self.sender.send(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast::error::TryRecvError;

    #[test]
    fn who_is_too_slow_is_told_and_goes_on() {
        let live = Live::default();
        live.publish(LiveEvent::Changed("before anybody listens"));
        let mut listener = live.subscribe();
        (0..BEHIND_MAX + 3).for_each(|_| live.publish(LiveEvent::Changed("pools")));
        assert!(matches!(listener.try_recv(), Err(TryRecvError::Lagged(3))));
        assert!(matches!(listener.try_recv(), Ok(LiveEvent::Changed("pools"))));
        drop(listener);
        assert!(!live.has_listeners());
    }
}
