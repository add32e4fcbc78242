//! Calls into the kernel's tree can wait without a limit: a removal for requests to a device that does
//! not answer, and every other call for that removal. So each runs on a thread of its own, one at a
//! time for each share, and its caller waits only so long.

use crate::Protocol;
use std::collections::BTreeMap;
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
    /// And whether it is late: its caller has given it up.
    keys: Mutex<BTreeMap<Key, bool>>,
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
    /// `None`: it has not ended within that time. It goes on; until it ends, others of this share are
    /// not begun, and do not wait.
    pub(crate) fn run<T: Send + 'static>(&self, key: Key, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let end = Instant::now() + limit;
        let place = self.place(key, end)?;
        let busy = Arc::clone(&self.0);
        let (done, ended) = mpsc::sync_channel(1);
        let errand = move || {
            let result = work();
            drop(place);
            let _ = done.send(result);
        };
        std::thread::Builder::new().name("share".into()).spawn(errand).ok()?;
        match ended.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(is_late) = busy.keys.lock().expect("no holder of this lock panics").get_mut(&key) {
                    *is_late = true;
                }
                busy.freed.notify_all();
                None
            }
            Err(RecvTimeoutError::Disconnected) => panic!("a call to a target has panicked"),
        }
    }

    fn place(&self, key: Key, end: Instant) -> Option<Place> {
        let mut keys = self.0.keys.lock().expect("no holder of this lock panics");
        while let Some(&is_late) = keys.get(&key) {
            if is_late {
                return None;
            }
            let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            keys = self.0.freed.wait_timeout(keys, left).expect("no holder of this lock panics").0;
        }
        keys.insert(key, false);
        Some(Place { busy: Arc::clone(&self.0), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Protocol::Iscsi, [7; 16]);
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);
    const NEVER: Duration = Duration::from_secs(36_000);

    #[test]
    fn what_hangs_keeps_its_own_share_and_no_other() {
        let errands = Errands::default();
        assert_eq!(errands.run(KEY, LONG, || 1), Some(1));
        let (end, ended) = mpsc::channel::<()>();
        assert!(errands.run(KEY, SHORT, move || ended.recv()).is_none());
        // Nobody waits a second time.
        assert_eq!(errands.run(KEY, NEVER, || unreachable!("one at a time")), None::<()>);
        assert_eq!(errands.run((Protocol::NvmeTcp, [7; 16]), LONG, || 2), Some(2));
        end.send(()).expect("it waits for that");
        while errands.run(KEY, LONG, || 3) != Some(3) {}
        // One that is not late yet is waited for.
        let (first, begun) = (errands.clone(), mpsc::channel());
        std::thread::scope(|scope| {
            let (end, ended) = mpsc::channel();
            scope.spawn(move || {
                first.run(KEY, LONG, move || {
                    begun.0.send(()).expect("somebody waits for it");
                    ended.recv()
                })
            });
            begun.1.recv().expect("it has begun");
            let second = scope.spawn(|| errands.run(KEY, LONG, || 4));
            end.send(()).expect("it waits for that");
            assert_eq!(second.join().expect("no panic"), Some(4));
        });
    }
}
