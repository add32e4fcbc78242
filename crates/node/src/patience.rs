//! Blocking calls that may hang are made on a thread of their own and waited for with a limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What `work` gives, or `None` if it takes longer than `patience`. The thread is then left to itself: a call that hangs in
/// the kernel cannot be stopped, only unhung by breaking the connection it waits for.
///
/// `work` may wait for an answer of this very process. Should the process be killed meanwhile, its end of the connection must close for the
/// waiting to end; but a waiting thread would keep open whatever is open in the process. So the thread has a table of
/// descriptors of its own, empty but for the standard ones: `work` must bring paths, not files.
pub fn within<T: Send + 'static>(patience: Duration, thread_name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    begin(thread_name, work)?.recv_timeout(patience).ok()
}

/// The same of work with a step that must not be done once nobody waits for it: before that it asks whether it may, and if not leaves the
/// step out. After `None` it never does it, however late what comes before it ends; once it may, it is waited for as long again.
pub fn within_or_never<T: Send + 'static>(
    patience: Duration,
    thread_name: &str,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Option<T> {
    // Who is first: the end of the patience, or the step.
    let decided = Arc::new(AtomicBool::new(false));
    let decides = decided.clone();
    let answer = begin(thread_name, move || work(&|| !decides.swap(true, Ordering::SeqCst)))?;
    match answer.recv_timeout(patience) {
        Err(_) if decided.swap(true, Ordering::SeqCst) => answer.recv_timeout(patience).ok(),
        result => result.ok(),
    }
}

/// Begins such work, and gives where its answer comes; `None` if no thread can be started.
pub fn begin<T: Send + 'static>(thread_name: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<mpsc::Receiver<T>> {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new().name(thread_name.to_owned()).spawn(move || {
        forget_descriptors();
        // Nobody listens any more after a timeout; then the result is worthless.
        let _ = sender.send(work());
    });
    spawned.ok().map(|_| receiver)
}

/// Gives this thread a descriptor table of its own, without what the process has open.
fn forget_descriptors() {
    // SAFETY: changes this thread only, and takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_FILES) } == 0 {
        // SAFETY: the table is this thread's alone, and this thread has opened nothing yet. On a kernel before 5.9 nothing happens.
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    }
}

/// Asks `done` again and again until it says yes (true) or `patience` ends (false).
pub fn wait_until(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
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

    /// A device is not taken away after its stop was reported as failed.
    #[test]
    fn what_nobody_waits_for_any_more_is_never_done() {
        let (go, waits) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let slow = move |may: &dyn Fn() -> bool| {
            let _ = waits.recv();
            let _ = tell.send(may());
        };
        assert_eq!(within_or_never(Duration::from_millis(10), "late", slow), None);
        drop(go);
        assert_eq!(told.recv(), Ok(false), "it asked after the end of the patience");
        // Begun in time, it is waited for.
        let begun = |may: &dyn Fn() -> bool| {
            let may = may();
            std::thread::sleep(Duration::from_millis(100));
            may
        };
        let patience = Duration::from_millis(60);
        assert_ne!(within_or_never(patience, "begun", begun), Some(false));
        assert_eq!(within_or_never(Duration::from_secs(60), "quick", |may| (may(), may())), Some((true, false)));
    }

    #[test]
    fn patience_ends() {
        assert_eq!(within(Duration::from_secs(60), "quick", || 7), Some(7));
        let (sender, receiver) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(10), "slow", move || receiver.recv().is_ok()), None);
        drop(sender);
        let file = std::fs::File::open("/proc/self/stat").expect("opens");
        let descriptors = within(Duration::from_secs(60), "look", || std::fs::read_dir("/proc/thread-self/fd").expect("lists").count());
        // The three standard ones, and the one that lists.
        assert!(descriptors.expect("in time") <= 4);
        assert!(file.metadata().is_ok(), "still open here");
        assert!(!wait_until(Duration::from_millis(1), || false));
    }
}
