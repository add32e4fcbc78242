//! Waiting for devices, with a limit: what is waited for, what is given up, and blocking calls that may never come back.

use super::{Machine, devices, failed, locked};
use api::error::{ControlError, Kind};
use datapath::{DeviceFacts, DeviceUse, WaitingFor, Waits};
use records::state::VolumeRecord;
use runtime::{DeviceRef, PoolRef};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long reactors may take to say what they wait for: they never wait for a device themselves.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a device may take for one blocking step, such as being opened or flushed: a disk that spins up takes ten seconds, a command
/// that the kernel repeats half a minute.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// How long a device may take to show what is on it: a disk that spins up takes ten seconds, a command that the kernel repeats half a minute.
const LOOK_PATIENCE: Duration = Duration::from_secs(30);
/// The same of one that may be anybody's.
const STRANGER_PATIENCE: Duration = Duration::from_secs(5);

/// How soon it is seen that the daemon ends.
const SLICE: Duration = Duration::from_millis(100);

/// A device that the runtime has open.
pub(super) struct InUse {
    device: DeviceRef,
    by: DeviceUse,
    /// The pool whose SSD it is, once it runs.
    pool: Option<PoolRef>,
    /// All its I/O fails from now on.
    is_given_up: bool,
}

impl Machine {
    /// A device was opened for a volume or a pool.
    pub(super) fn note_use(&self, device: &DeviceRef, by: DeviceUse, pool: Option<&PoolRef>) {
        locked(&self.in_use).push(InUse { device: device.clone(), by, pool: pool.cloned(), is_given_up: false });
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
        self.site.patience(usual)
    }

    /// Whether the daemon is about to end.
    pub(super) fn is_ending(&self) -> bool {
        self.site.is_ending()
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
        self.patiently_within(STEP_PATIENCE, device, step)
    }

    /// The same, not longer than that.
    pub(super) fn patiently_within<T: Send + 'static>(
        &self,
        patience: Duration,
        device: &str,
        step: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let (patience, was_ending) = (self.patience(patience), self.is_ending());
        let (done, result) = channel();
        let spawned = std::thread::Builder::new().name("device step".into()).spawn(move || {
            // Whoever asked may have stopped waiting.
            drop(done.send(step()));
        });
        spawned.map_err(|e| failed(format!("no thread can be started ({e})"), "raise the thread limit"))?;
        match self.receive(&result, patience, was_ending) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(failed(format!("a look at {device} failed"), "see the log")),
            Err(RecvTimeoutError::Timeout) => Err(ControlError::Device {
                path: device.into(),
                problem: format!("it has not answered for {} s", patience.as_secs()),
                remedy: "check the device, then try again".into(),
                kind: Kind::Failed,
            }),
        }
    }

    /// Waits for a device that may not answer; not any more once the daemon has begun to end, unless that had begun before.
    pub(super) fn receive<T>(&self, answer: &Receiver<T>, patience: Duration, was_ending: bool) -> Result<T, RecvTimeoutError> {
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            match answer.recv_timeout(left.min(SLICE)) {
                Err(RecvTimeoutError::Timeout) if left > SLICE && (was_ending || !self.is_ending()) => {}
                result => return result,
            }
        }
    }

    pub(super) fn examine(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.examine_within(spec, LOOK_PATIENCE)
    }

    /// Looks at a device that may be anybody's, among all others: whatever it is, nobody waits long for it. One that answers late is found by the
    /// next search.
    pub(super) fn examine_stranger(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        if self.is_silent(spec, STRANGER_PATIENCE) {
            return Err(failed(format!("{spec} does not answer"), "check the device"));
        }
        self.examine_within(spec, STRANGER_PATIENCE)
    }

    fn examine_within(&self, spec: &str, patience: Duration) -> Result<DeviceFacts, ControlError> {
        self.probe_path(spec, patience)?;
        let device = spec.to_string();
        self.patiently_within(patience, spec, move || devices::examine(&device))
    }

    /// Whether the device was given up by [`Machine::give_up_device`].
    pub(super) fn is_given_up(&self, device: &DeviceRef) -> bool {
        locked(&self.in_use).iter().any(|used| used.is_given_up && used.device.is(device))
    }
}

impl Waits for Machine {
    fn end_by(&self, at: Instant) {
        self.site.end_by.get_or_init(|| at);
    }

    fn waiting_for(&self) -> Vec<WaitingFor> {
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

    fn answers(&self, volume: &VolumeRecord, patience: Duration) -> Result<(), ControlError> {
        let device = locked(&self.volume(&volume.name)?.backing).as_ref().map(|backing| backing.device.clone());
        device.map_or(Ok(()), |device| self.wait_for_answer_within(&device, patience))
    }

    fn ssd_answers(&self, pool: &str, patience: Duration) -> Result<(), ControlError> {
        self.wait_for_answer_within(&self.pool(pool)?.ssd, patience)
    }

    fn give_up(&self, by: &DeviceUse) -> Result<(), ControlError> {
        let found = locked(&self.in_use).iter().find(|used| used.by == *by).map(|used| (used.device.clone(), used.pool.clone()));
        let Some((device, pool)) = found else { return Ok(()) };
        if let Some(pool) = pool {
            // First: a shard must not take the end of its I/O for a failure of the SSD, after which writes would go on without it.
            self.runtime.abandon_pool(&pool).map_err(|e| failed(e, ""))?;
        }
        locked(&self.in_use).iter_mut().filter(|used| used.device.is(&device)).for_each(|used| used.is_given_up = true);
        self.runtime.give_up_device(&device).map_err(|e| failed(e, ""))
    }
}
