//! Blocking calls that may hang are made on a thread of their own and waited for with a limit.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What `work` gives, or `None` if it takes longer than `patience`. The thread is then left to itself: a call that hangs in
/// the kernel cannot be stopped, only unhung by breaking the connection it waits for.
pub(crate) fn within<T: Send + 'static>(
    patience: Duration,
    thread_name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new().name(thread_name.to_owned()).spawn(move || {
        // Nobody listens any more after a timeout; then the result is worthless.
        let _ = sender.send(work());
    });
    spawned.ok()?;
    receiver.recv_timeout(patience).ok()
}

/// Asks `done` again and again until it says yes (true) or `patience` ends (false).
pub(crate) fn wait_until(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_micros(200);
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends() {
        assert_eq!(within(Duration::from_secs(60), "quick", || 7), Some(7));
        let (sender, receiver) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(10), "slow", move || receiver.recv().is_ok()), None);
        drop(sender);
        assert!(!wait_until(Duration::from_millis(1), || false));
    }
}
