//! Devices that are waited for, as the control thread sees them: which they are, and the end of the wait.

use crate::devices::DeviceRef;
use crate::error::RuntimeError;
use crate::message::Message;
use crate::runtime::{ANSWER_PATIENCE, Runtime};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a device stands on one reactor.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DeviceWait {
    /// I/Os in flight that somebody waits for.
    pub(crate) requests: u64,
    /// How long ago the oldest of them began.
    pub(crate) oldest_ns: u64,
    /// How long ago the device last completed anything.
    pub(crate) silent_ns: u64,
    /// I/Os that the kernel has not completed although the device was given up.
    pub(crate) stuck: u64,
}

/// A device with I/O in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingDevice {
    number: u32,
    /// I/Os in flight that somebody waits for.
    pub requests: u64,
    /// How long the oldest of them has been under way.
    pub oldest: Duration,
    /// For how long the device has answered nothing; no longer than `oldest`, since before that nothing was asked.
    pub silent: Duration,
    /// I/Os that the kernel has not completed although the device was given up.
    pub stuck: u64,
}

impl WaitingDevice {
    /// Whether it is that device.
    pub fn is(&self, device: &DeviceRef) -> bool {
        self.number == device.0.number
    }
}

impl Runtime {
    /// The devices with I/O in flight, or given up with I/O that the kernel has not completed.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor does not answer within `patience`.
    pub fn waiting_devices(&self, patience: Duration) -> Result<Vec<WaitingDevice>, RuntimeError> {
        let parts = self.ask_all("devices that are waited for", patience, |_, done| Message::DeviceWaits { done })?;
        let mut total: BTreeMap<u32, DeviceWait> = BTreeMap::new();
        for (number, part) in parts.into_iter().flatten() {
            total
                .entry(number)
                .and_modify(|sum| {
                    sum.requests += part.requests;
                    sum.stuck += part.stuck;
                    sum.oldest_ns = sum.oldest_ns.max(part.oldest_ns);
                    sum.silent_ns = sum.silent_ns.min(part.silent_ns);
                })
                .or_insert(part);
        }
        let waiting = total.into_iter().filter(|(_, wait)| wait.requests + wait.stuck > 0).map(|(number, wait)| WaitingDevice {
            number,
            requests: wait.requests,
            oldest: Duration::from_nanos(wait.oldest_ns),
            silent: Duration::from_nanos(wait.silent_ns.min(wait.oldest_ns)),
            stuck: wait.stuck,
        });
        Ok(waiting.collect())
    }

    /// Gives up a device that does not answer: everything in flight of it fails now, whatever comes later fails at once. What the kernel
    /// still has in flight may be carried out all the same; the memory it needs stays, and so does the device's lock, beyond the end of
    /// this process if need be. There is no way back but another [`Runtime::open_device`].
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn give_up_device(&self, device: &DeviceRef) -> Result<(), RuntimeError> {
        let number = device.0.number;
        self.ask_all("give up device", ANSWER_PATIENCE, |_, done| Message::GiveUpDevice { number, done }).map(drop)
    }

    /// Closes a device, best when its volumes and pools are gone: what is still in flight is failed as by [`Runtime::give_up_device`].
    /// Gives how many I/Os the kernel has not completed: the file (and its lock) stays open until it has.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`].
    pub fn remove_device(&self, device: &DeviceRef) -> Result<usize, RuntimeError> {
        let number = device.0.number;
        Ok(self.ask_all("close device", ANSWER_PATIENCE, |_, done| Message::RemoveDevice { number, done })?.into_iter().sum())
    }
}
