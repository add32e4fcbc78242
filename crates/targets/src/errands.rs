//! Calls into the kernel's tree can wait without a limit: a removal for requests to a device that does
//! not answer, and every other call for that removal. So each runs on a thread of its own, one at a
//! time for each share, and its caller waits only so long.

use crate::Protocol;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A share.
pub(crate) type Key = (Protocol, [u8; 16]);

/// The calls under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errands(Arc<Busy>);

#[derive(Debug, Default)]
struct Busy {
    keys: Mutex<BTreeSet<Key>>,
    freed: Condvar,
}

/// That one of a share is under way.
struct Place {
    busy: Arc<Busy>,
    key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.busy.keys.lock().expect("no holder of this lock panics").remove(&self.key);
        self.busy.freed.notify_all();
    }
}

impl Errands {
    /// `None`: it has not ended within that time. It goes on; later ones of this share wait for it.
    pub(crate) fn run<T: Send + 'static>(&self, key: Key, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let end = Instant::now() + limit;
        let place = self.place(key, end)?;
        let (done, ended) = mpsc::sync_channel(1);
        let errand = move || {
            let result = work();
            drop(place);
            let _ = done.send(result);
        };
        std::thread::Builder::new().name("share".into()).spawn(errand).ok()?;
        match ended.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("a call to a target has panicked"),
        }
    }

    fn place(&self, key: Key, end: Instant) -> Option<Place> {
        let mut keys = self.0.keys.lock().expect("no holder of this lock panics");
        while !keys.insert(key) {
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            keys = self.0.freed.wait_timeout(keys, left).expect("no holder of this lock panics").0;
        }
        Some(Place { busy: Arc::clone(&self.0), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Protocol::Iscsi, [7; 16]);
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_hangs_keeps_its_own_share_and_no_other() {
        let errands = Errands::default();
        assert_eq!(errands.run(KEY, LONG, || 1), Some(1));
        let (end, ended) = mpsc::channel::<()>();
        assert!(errands.run(KEY, SHORT, move || ended.recv()).is_none());
        assert_eq!(errands.run(KEY, SHORT, || unreachable!("one at a time")), None::<()>);
        assert_eq!(errands.run((Protocol::NvmeTcp, [7; 16]), LONG, || 2), Some(2));
        end.send(()).expect("it waits for that");
        assert_eq!(errands.run(KEY, LONG, || 3), Some(3));
    }
}
