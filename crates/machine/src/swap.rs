//! Putting a loaded table in force, also where the kernel does not: the device goes on with one of the two.

use mapper::{Mapper, MapperError, Status, Which};

/// What is done to a device here; the kernel's device mapper, or a test's.
pub(super) trait Swaps {
    /// Puts the loaded table in force, or only resumes the device if there is none.
    fn swap(&self, device: &Which, hidden: bool) -> Result<(), MapperError>;
    /// Forgets the loaded table.
    fn clear(&self, device: &Which) -> Result<(), MapperError>;
    /// How the device is.
    fn status(&self, device: &Which) -> Result<Status, MapperError>;
}

impl Swaps for Mapper {
    fn swap(&self, device: &Which, hidden: bool) -> Result<(), MapperError> {
        if hidden { self.swap_hidden(device) } else { Mapper::swap(self, device) }
    }

    fn clear(&self, device: &Which) -> Result<(), MapperError> {
        Mapper::clear(self, device)
    }

    fn status(&self, device: &Which) -> Result<Status, MapperError> {
        Mapper::status(self, device)
    }
}

/// A table did not come into force.
#[derive(Debug)]
pub(super) struct NotInForce {
    /// Why not.
    pub error: MapperError,
    /// The device could not be resumed with its old table either.
    pub is_suspended: bool,
}

/// Puts the loaded table in force. Where the kernel refuses, it may have suspended the device before: then that is resumed with its old table.
pub(super) fn put_in_force(mapper: &impl Swaps, device: &Which, hidden: bool) -> Result<(), NotInForce> {
    let Err(error) = mapper.swap(device, hidden) else { return Ok(()) };
    if let Err(also) = mapper.clear(device) {
        tracing::warn!("{also}");
    }
    let is_suspended = || mapper.status(device).is_ok_and(|status| status.is_suspended);
    if is_suspended()
        && let Err(also) = mapper.swap(device, hidden)
    {
        tracing::warn!("{also}");
    }
    Err(NotInForce { error, is_suspended: is_suspended() })
}

/// Resumes a device that was left suspended, unless another program has gone on with it. Gives whether it is resumed.
pub(super) fn resume_left(mapper: &impl Swaps, device: &Which, uuid: &str) -> bool {
    let Ok(now) = mapper.status(device) else { return false };
    now.is_suspended && !now.has_inactive_table && now.uuid == uuid && mapper.swap(device, false).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapper::Number;
    use std::cell::{Cell, RefCell};

    /// A device whose first `failing` swaps fail after it was suspended.
    #[derive(Default)]
    struct Fake {
        failing: Cell<u32>,
        suspends: bool,
        is_suspended: Cell<bool>,
        loaded: Cell<bool>,
        calls: RefCell<Vec<&'static str>>,
    }

    impl Swaps for Fake {
        fn swap(&self, device: &Which, _hidden: bool) -> Result<(), MapperError> {
            self.calls.borrow_mut().push(if self.loaded.get() { "swap" } else { "resume" });
            if self.failing.get() > 0 {
                self.failing.set(self.failing.get() - 1);
                self.is_suspended.set(self.suspends);
                let source = std::io::Error::other("no memory");
                return Err(MapperError::Refused { which: device.to_string(), what: "resumed", source });
            }
            self.is_suspended.set(false);
            Ok(())
        }

        fn clear(&self, _device: &Which) -> Result<(), MapperError> {
            self.loaded.set(false);
            Ok(())
        }

        fn status(&self, _device: &Which) -> Result<Status, MapperError> {
            Ok(Status {
                name: "vg-lv".into(),
                uuid: String::new(),
                number: Number { major: 253, minor: 0 },
                open_count: 1,
                is_suspended: self.is_suspended.get(),
                is_read_only: false,
                has_table: true,
                has_inactive_table: self.loaded.get(),
                events: 0,
            })
        }
    }

    #[test]
    fn a_swap_that_fails_leaves_the_device_with_its_old_table() {
        let check = |failing, suspends, calls: &[&str], left| {
            let fake = Fake { failing: Cell::new(failing), suspends, loaded: Cell::new(true), ..Fake::default() };
            let result = put_in_force(&fake, &Which::Name("vg-lv".into()), false);
            assert_eq!(*fake.calls.borrow(), calls);
            assert_eq!(result.err().map(|refused| refused.is_suspended), left);
        };
        check(0, true, &["swap"], None);
        check(1, false, &["swap"], Some(false));
        check(1, true, &["swap", "resume"], Some(false));
        check(2, true, &["swap", "resume"], Some(true));
    }

    #[test]
    fn what_was_left_suspended_is_resumed_later() {
        let fake = Fake { failing: Cell::new(3), suspends: true, loaded: Cell::new(true), ..Fake::default() };
        let device = Which::Name("vg-lv".into());
        assert!(put_in_force(&fake, &device, false).is_err_and(|refused| refused.is_suspended));
        assert!(!resume_left(&fake, &device, ""), "it still fails");
        assert!(!resume_left(&fake, &device, "another device"));
        fake.loaded.set(true);
        assert!(!resume_left(&fake, &device, ""), "another program is at it");
        fake.loaded.set(false);
        assert!(resume_left(&fake, &device, "") && !fake.is_suspended.get());
        assert!(!resume_left(&fake, &device, ""), "nothing is to be done");
    }
}
