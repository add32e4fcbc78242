//! The daemon's pulse: once a second it looks at everything.

use crate::failure::Failure;
use crate::serve::spawn;
use crate::service::Life;
use control::manager::Manager;
use insight::sampler::Sampler;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The thread; ends when this is dropped.
pub struct Sampling {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampling {
    /// Starts it.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(manager: &Manager, life: Life) -> Result<Sampling, Failure> {
        let (stop, stopped) = channel();
        let manager = manager.clone();
        let thread = spawn("sampler", move || {
            let _life = life;
            sample(&manager, &stopped);
            manager.flush_history();
        })?;
        Ok(Sampling { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the sampler's thread failed");
        }
    }
}

/// Shortly after each full second, so that samples of different machines can be laid beside each other.
fn sample(manager: &Manager, stopped: &Receiver<()>) {
    let mut sampler = Sampler::default();
    let mut before = Instant::now();
    loop {
        let into_second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
        match stopped.recv_timeout(Duration::from_millis(u64::from(1000 - into_second.min(999)))) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        let span_ms = now.duration_since(before).as_millis() as u64;
        // A clock that was set, or a wake-up a moment too early, would make a second of no length.
        if span_ms < 500 {
            continue;
        }
        before = now;
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        manager.take_sample(&mut sampler, unix_ms, span_ms);
    }
}
