//! One server after another: when a device that was left can be gone on with.

use crate::control::{Control, block_path, is_served};
use crate::error::UblkError;
use crate::uapi::{DeviceInfo, STATE_DEAD};
use node::patience::wait_until;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is asked of the driver.
pub(crate) trait Driver {
    fn info(&mut self, number: u32) -> Result<DeviceInfo, UblkError>;
    fn begin_recovery(&mut self, number: u32) -> Result<(), UblkError>;
}

impl Driver for Control {
    fn info(&mut self, number: u32) -> Result<DeviceInfo, UblkError> {
        Control::info(self, number)
    }

    fn begin_recovery(&mut self, number: u32) -> Result<(), UblkError> {
        Control::begin_recovery(self, number)
    }
}

/// Marks of devices that this process serves. The driver tells the server's process id only, and in a container a daemon mostly has the
/// one of the daemon before.
static SERVED_HERE: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn served_here() -> MutexGuard<'static, BTreeSet<u64>> {
    SERVED_HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process serves the device of that mark from now on, or does so no more.
pub(crate) fn set_served_here(mark: u64, served: bool) {
    if served {
        served_here().insert(mark)
    } else {
        served_here().remove(&mark)
    };
}

/// Whether this process serves the device.
pub(crate) fn is_served_here(info: &DeviceInfo) -> bool {
    info.server_pid.cast_unsigned() == std::process::id() && served_here().contains(&info.mark)
}

/// Waits until the server of a device has ended; gives what the device is then.
///
/// # Errors
/// At once if that server is this process: it would wait for itself.
pub(crate) fn wait_for_server(driver: &mut impl Driver, number: u32, patience: Duration) -> Result<DeviceInfo, UblkError> {
    wait_until(patience, || !driver.info(number).is_ok_and(|info| is_served(&info) && !is_served_here(&info)));
    let info = driver.info(number)?;
    match is_served(&info) {
        true if is_served_here(&info) => Err(UblkError::ServedHere { device: block_path(number) }),
        true => Err(UblkError::ServedElsewhere { device: block_path(number), pid: info.server_pid }),
        false => Ok(info),
    }
}

/// This process is to be the next server. The one before may be letting go still.
///
/// # Errors
/// [`UblkError::Unfit`] at once if the device has no block device any more: it was stopped, and is never free. The same if the kernel lets it
/// have one server only.
pub(crate) fn begin(driver: &mut impl Driver, number: u32, patience: Duration) -> Result<(), UblkError> {
    let mut result = Ok(());
    wait_until(patience, || {
        result = match driver.info(number) {
            Ok(info) if info.state == STATE_DEAD => Err(UblkError::unfit(number, "it was stopped already")),
            _ => match driver.begin_recovery(number) {
                Err(error) if error.is(libc::EINVAL) => Err(UblkError::unfit(number, "the kernel does not let another server have it")),
                begun => begun,
            },
        };
        !matches!(&result, Err(error) if error.is(libc::EBUSY))
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::STATE_LIVE;
    use std::io;

    const PATIENCE: Duration = Duration::from_secs(600);

    /// A device that is in one state after another, and stays in the last.
    struct Fake {
        states: Vec<(u16, i32)>,
        mark: u64,
        looks: usize,
        /// So often its server still lets go.
        busy: usize,
        /// And then it answers so.
        refuses: Option<i32>,
        tries: usize,
    }

    impl Driver for Fake {
        fn info(&mut self, number: u32) -> Result<DeviceInfo, UblkError> {
            let at = self.looks.min(self.states.len().saturating_sub(1));
            self.looks += 1;
            let gone = || UblkError::system("look")(io::Error::from_raw_os_error(libc::ENODEV));
            let (state, server_pid) = *self.states.get(at).ok_or_else(gone)?;
            Ok(DeviceInfo { queues: 1, depth: 1, state, request_bytes_max: 4096, number, server_pid, flags: 0, mark: self.mark })
        }

        fn begin_recovery(&mut self, _number: u32) -> Result<(), UblkError> {
            self.tries += 1;
            let refuse = |errno| Err(UblkError::system("take over")(io::Error::from_raw_os_error(errno)));
            if self.tries <= self.busy { refuse(libc::EBUSY) } else { self.refuses.map_or(Ok(()), refuse) }
        }
    }

    fn fake(states: &[(u16, i32)], mark: u64, busy: usize) -> Fake {
        Fake { states: states.to_vec(), mark, looks: 0, busy, refuses: None, tries: 0 }
    }

    /// A daemon that was killed between stopping a device and removing it leaves one that is busy for ever.
    #[test]
    fn a_stopped_device_is_not_waited_for() {
        let mut stopped = fake(&[(STATE_DEAD, -1)], 1, usize::MAX);
        let error = begin(&mut stopped, 3, PATIENCE).expect_err("it has no block device");
        assert!(error.is_unfit() && error.to_string().contains("stopped already"), "{error}");
        assert_eq!(stopped.tries, 0);
        // Quiesced, or failing requests, as its flags say; before that it is live still.
        for state in [STATE_LIVE, 2, 3] {
            let mut busy = fake(&[(state, -1)], 1, 3);
            begin(&mut busy, 3, PATIENCE).expect("its server lets go at last");
            assert_eq!(busy.tries, 4);
        }
        let mut stops = fake(&[(2, -1), (2, -1), (STATE_DEAD, -1)], 1, usize::MAX);
        assert!(begin(&mut stops, 3, PATIENCE).is_err());
        assert_eq!(stops.tries, 2);
    }

    /// Users of a device are not given errors for what may be over in a moment.
    #[test]
    fn only_a_device_that_nobody_can_have_is_to_end() {
        for (errno, is_unfit) in [(libc::EINVAL, true), (libc::ENOMEM, false), (libc::EMFILE, false), (libc::EINTR, false)] {
            let mut device = Fake { refuses: Some(errno), ..fake(&[(2, -1)], 1, 0) };
            let error = begin(&mut device, 3, PATIENCE).expect_err("it is refused");
            assert_eq!(error.is_unfit(), is_unfit, "{error}");
        }
        assert!(!UblkError::TimedOut { step: "looking", seconds: 1 }.is_unfit());
        assert!(!UblkError::Unsupported { reason: "too many open files".into() }.is_unfit());
    }

    #[test]
    fn whoever_serves_a_device_itself_does_not_wait_for_its_end() {
        let (own, mark) = (std::process::id().cast_signed(), 0x6863_0000_0000_7777);
        set_served_here(mark, true);
        let mut ours = fake(&[(STATE_LIVE, own)], mark, 0);
        let error = wait_for_server(&mut ours, 3, PATIENCE).expect_err("it is served");
        assert!(matches!(error, UblkError::ServedHere { .. }), "{error}");
        assert_eq!(ours.looks, 2);
        // Nor is a stable name that leads to one another daemon's.
        let told = |pid, mark| is_served_here(&fake(&[(STATE_LIVE, pid)], mark, 0).info(3).expect("it is there"));
        assert!(told(own, mark) && !told(own, mark + 1) && !told(own + 1, mark));
        // The daemon before had the same number, and its end is noticed late.
        let mut before = fake(&[(STATE_LIVE, own), (STATE_LIVE, own), (2, -1)], mark + 1, 0);
        assert_eq!(wait_for_server(&mut before, 3, PATIENCE).expect("it has ended").state, 2);
        set_served_here(mark, false);
        let mut again = fake(&[(STATE_LIVE, own), (STATE_LIVE, own), (2, -1)], mark, 0);
        assert!(wait_for_server(&mut again, 3, PATIENCE).is_ok() && again.looks > 2);
        // Nor is one that was waited for already: it is looked at, and the next try may find that it has ended.
        let mut elsewhere = fake(&[(STATE_LIVE, 1)], mark, 0);
        let error = wait_for_server(&mut elsewhere, 3, Duration::ZERO).expect_err("it is served");
        assert!(matches!(error, UblkError::ServedElsewhere { pid: 1, .. }), "{error}");
        let mut busy = fake(&[(2, -1)], mark, 1);
        assert!(begin(&mut busy, 3, Duration::ZERO).is_err_and(|error| !error.is_unfit()));
        assert!(begin(&mut busy, 3, Duration::ZERO).is_ok());
        // One that is gone is not waited for either.
        let mut gone = fake(&[], mark, 0);
        assert!(wait_for_server(&mut gone, 3, PATIENCE).is_err());
        assert_eq!(gone.looks, 2);
    }
}
