//! What a device refused lately, in the kernel's words: for people. Nothing is decided by it; each I/O that fails has its answer by itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// After a refusal the device counts as in trouble until it has done something of the kind, and refused nothing, for so long: more than the pause
/// between two tries of destage.
const CALM: Duration = Duration::from_secs(10);

/// What a device was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asked {
    /// A flush.
    Flush,
    /// A write of data or zeroes, a discard.
    Write,
    /// A read.
    Read,
}

impl Asked {
    /// All kinds, the gravest first.
    pub const ALL: [Asked; 3] = [Asked::Flush, Asked::Write, Asked::Read];

    /// The word for it: "flush", "write", "read".
    pub const fn word(self) -> &'static str {
        match self {
            Asked::Flush => "flush",
            Asked::Write => "write",
            Asked::Read => "read",
        }
    }
}

/// A trouble that lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceTrouble {
    /// What it does not do.
    pub asked: Asked,
    /// The kernel's number of the latest refusal; `None` if the kernel gave none: it moved less than was asked for.
    pub errno: Option<i32>,
    /// Refusals since the trouble began.
    pub refused: u64,
}

struct Trouble {
    trouble: DeviceTrouble,
    latest: Instant,
    /// Something of the kind was done since.
    done_since: bool,
}

/// A device's refusals, noted by all reactors.
#[derive(Default)]
pub(crate) struct Refusals {
    /// Whether there is any: so that an I/O that succeeds costs one look.
    any: AtomicBool,
    troubles: Mutex<[Option<Trouble>; 3]>,
}

impl Refusals {
    pub(crate) fn refused(&self, asked: Asked, errno: Option<i32>) {
        let mut troubles = self.troubles.lock().expect("no panic under the lock");
        let before = troubles[asked as usize].as_ref().map_or(0, |trouble| trouble.trouble.refused);
        let trouble = DeviceTrouble { asked, errno, refused: before + 1 };
        troubles[asked as usize] = Some(Trouble { trouble, latest: Instant::now(), done_since: false });
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn done(&self, asked: Asked) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        if let Some(trouble) = &mut self.troubles.lock().expect("no panic under the lock")[asked as usize] {
            trouble.done_since = true;
        }
    }

    /// The gravest trouble that lasts.
    pub(crate) fn trouble(&self) -> Option<DeviceTrouble> {
        self.trouble_after(CALM)
    }

    fn trouble_after(&self, calm: Duration) -> Option<DeviceTrouble> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut troubles = self.troubles.lock().expect("no panic under the lock");
        for trouble in troubles.iter_mut() {
            trouble.take_if(|trouble| trouble.done_since && trouble.latest.elapsed() >= calm);
        }
        let gravest = troubles.iter().flatten().next().map(|trouble| trouble.trouble);
        self.any.store(gravest.is_some(), Ordering::Relaxed);
        gravest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_lasts_until_the_same_is_done_again_for_a_while() {
        let refusals = Refusals::default();
        let long = Duration::from_secs(3600);
        refusals.done(Asked::Write);
        assert_eq!(refusals.trouble_after(long), None);
        refusals.refused(Asked::Read, Some(libc::EIO));
        refusals.refused(Asked::Write, Some(libc::EIO));
        refusals.refused(Asked::Write, Some(libc::ENOSPC));
        let write = Some(DeviceTrouble { asked: Asked::Write, errno: Some(libc::ENOSPC), refused: 2 });
        assert_eq!(refusals.trouble_after(Duration::ZERO), write, "nothing was written since");
        refusals.done(Asked::Write);
        assert_eq!(refusals.trouble_after(long), write, "not for long");
        let read = Some(DeviceTrouble { asked: Asked::Read, errno: Some(libc::EIO), refused: 1 });
        assert_eq!(refusals.trouble_after(Duration::ZERO), read, "writes say nothing of reads");
        refusals.done(Asked::Read);
        assert_eq!(refusals.trouble_after(Duration::ZERO), None);
        refusals.refused(Asked::Write, None);
        assert_eq!(refusals.trouble_after(Duration::ZERO), Some(DeviceTrouble { asked: Asked::Write, errno: None, refused: 1 }));
    }
}
