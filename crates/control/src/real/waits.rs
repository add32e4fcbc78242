//! Waiting for devices, with a limit: what is waited for, what is given up, and blocking calls that may never come back.

use super::{Machine, devices, failed, locked};
use crate::datapath::{DeviceFacts, DeviceUse, WaitingFor};
use crate::error::{ControlError, Kind};
use runtime::{DeviceRef, PoolRef};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long reactors may take to say what they wait for: they never wait for a device themselves.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whatever the end of the daemon leaves: what does not wait for a device needs this much at most.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// How long a device may take for one blocking step, such as being opened or flushed: a disk that spins up takes ten seconds, a command
/// that the kernel repeats half a minute.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// A device that the runtime has open.
pub(super) struct InUse {
    device: DeviceRef,
    by: DeviceUse,
    /// The pool whose SSD it is, once it runs.
    pool: Option<PoolRef>,
}

impl Machine {
    /// A device was opened for a volume or a pool.
    pub(super) fn note_use(&self, device: &DeviceRef, by: DeviceUse, pool: Option<&PoolRef>) {
        locked(&self.in_use).push(InUse { device: device.clone(), by, pool: pool.cloned() });
    }

    /// Closes a device. What the kernel still has in flight is failed, and keeps the device locked until it has ended.
    pub(super) fn close_device(&self, device: &DeviceRef) {
        match self.runtime.remove_device(device) {
            Ok(0) => {}
            Ok(stuck) => {
                let name = device.name();
                tracing::warn!(
                    "{name} is closed with {stuck} I/Os in the kernel: it stays locked until they end, and this process may not exit before"
                );
            }
            Err(error) => tracing::warn!("{} stays open: {error}", device.name()),
        }
        locked(&self.in_use).retain(|used| !used.device.is(device));
    }

    /// How long to wait for something that may take `usual`: less when the daemon is about to end.
    pub(super) fn patience(&self, usual: Duration) -> Duration {
        let left = self.end_by.get().map(|at| at.saturating_duration_since(Instant::now()).max(PATIENCE_MIN));
        left.map_or(usual, |left| left.min(usual))
    }

    /// Whether the daemon is about to end.
    pub(super) fn is_ending(&self) -> bool {
        self.end_by.get().is_some()
    }

    /// Makes blocking calls on a device from a thread of their own, which is left behind if they do not come back.
    ///
    /// # Errors
    /// What they give, or that the device does not answer.
    pub(super) fn patiently<T: Send + 'static>(
        &self,
        device: &str,
        step: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let patience = self.patience(STEP_PATIENCE);
        let (done, result) = channel();
        let spawned = std::thread::Builder::new().name("device step".into()).spawn(move || {
            // Whoever asked may have stopped waiting.
            drop(done.send(step()));
        });
        spawned.map_err(|e| failed(&format!("no thread can be started ({e})"), "raise the thread limit"))?;
        match result.recv_timeout(patience) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(failed(&format!("a look at {device} failed"), "see the log")),
            Err(RecvTimeoutError::Timeout) => Err(ControlError::Device {
                path: device.into(),
                problem: format!("it has not answered for {} s", patience.as_secs()),
                remedy: "check the device, then try again or restart the daemon".into(),
                kind: Kind::Failed,
            }),
        }
    }

    pub(super) fn examine(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.probe_path(spec)?;
        let device = spec.to_string();
        self.patiently(spec, move || devices::examine(&device))
    }

    pub(super) fn devices_waited_for(&self) -> Vec<WaitingFor> {
        let waiting = match self.runtime.waiting_devices(PATIENCE) {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!("it is not known which devices are waited for: {error}");
                return Vec::new();
            }
        };
        let in_use = locked(&self.in_use);
        let known = waiting.iter().filter(|wait| wait.requests > 0).filter_map(|wait| {
            let used = in_use.iter().find(|used| wait.is(&used.device))?;
            Some(WaitingFor {
                device: used.device.name().to_string(),
                by: used.by.clone(),
                requests: wait.requests,
                oldest: wait.oldest,
                silent: wait.silent,
            })
        });
        known.collect()
    }

    pub(super) fn give_up_device(&self, by: &DeviceUse) -> Result<(), ControlError> {
        let found = locked(&self.in_use).iter().find(|used| used.by == *by).map(|used| (used.device.clone(), used.pool.clone()));
        let Some((device, pool)) = found else { return Ok(()) };
        if let Some(pool) = pool {
            // First: a shard must not take the end of its I/O for a failure of the SSD, after which writes would go on without it.
            self.runtime.abandon_pool(&pool).map_err(|e| failed(&e, ""))?;
        }
        self.runtime.give_up_device(&device).map_err(|e| failed(&e, ""))
    }
}
