//! Is the backing device still the one it was (C6)? A pure decision over what was remembered and what is found.

use crate::human;
use crate::state::{BackingIdentity, Fact, VolumeRecord};

/// What to do with a volume at a start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The same device, as we left it (as far as can be known).
    Same,
    /// The same device, larger than it was.
    Grown,
    /// Something is different and nothing dirty waits for it: go on, without what was cached.
    DropClean(String),
    /// Do not touch it: (what is wrong, what to do).
    Refuse(String, String),
}

/// Judges the device found now for `volume`.
pub(super) fn judge(volume: &VolumeRecord, now: &BackingIdentity) -> Verdict {
    let before = &volume.identity;
    let name = &volume.name;
    if now.size_bytes < before.size_bytes {
        return Verdict::Refuse(
            format!(
                "its backing device {} shrank from {} to {}",
                volume.backing,
                human::bytes(before.size_bytes),
                human::bytes(now.size_bytes)
            ),
            if volume.may_have_dirty {
                format!(
                    "bring the right device back and restart the daemon, or give up its dirty data with `hearth volume remove {name} --drop-dirty`"
                )
            } else {
                format!(
                    "bring the right device back and restart the daemon, or take it as it is with `hearth volume set {name} --accept-backing`"
                )
            },
        );
    }
    let change = if let Some(change) = first_difference(&before.fixed, &now.fixed) {
        format!("its backing device {} is another one: {change}", volume.backing)
    } else if let Some(change) = first_difference(&before.stamps, &now.stamps).filter(|_| volume.stopped_clean) {
        format!("its backing device {} was written by others while hearth was stopped: {change}", volume.backing)
    } else if now.size_bytes > before.size_bytes {
        return Verdict::Grown;
    } else {
        return Verdict::Same;
    };
    if volume.may_have_dirty { Verdict::Refuse(change, changed_remedy(name)) } else { Verdict::DropClean(change) }
}

/// What can be done about a write-back volume whose backing device changed.
pub(super) fn changed_remedy(name: &str) -> String {
    format!(
        "bring the right device back and restart the daemon, or write the dirty data over this one with `hearth volume set {name} \
         --accept-backing`, or lose the dirty data with `hearth volume remove {name} --drop-dirty`"
    )
}

/// The first fact known on both sides that differs. A fact missing on one side says nothing: a kernel or a tool may
/// have stopped (or begun) to tell it.
fn first_difference(before: &[Fact], now: &[Fact]) -> Option<String> {
    before.iter().find_map(|was| {
        let is = now.iter().find(|is| is.name == was.name)?;
        (is.value != was.value).then(|| format!("its {} was {} and is {}", was.name, was.value, is.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples;

    fn facts(pairs: &[(&str, &str)]) -> Vec<Fact> {
        pairs.iter().map(|(name, value)| Fact { name: (*name).into(), value: (*value).into() }).collect()
    }

    /// What was found, beside a device of 1 GiB with serial number A and last write 1.
    fn check(dirty: bool, clean_stop: bool, size_bytes: u64, serial: &str, write: &str, expected: &str) {
        let mut volume = samples::volume("v", &mut samples::pool("p"));
        volume.identity.fixed = facts(&[("serial number", "A"), ("gone", "x")]);
        volume.identity.stamps = facts(&[("last write", "1")]);
        (volume.may_have_dirty, volume.stopped_clean) = (dirty, clean_stop);
        let now = BackingIdentity {
            size_bytes,
            fixed: facts(&[("serial number", serial), ("new", "y")]),
            stamps: facts(&[("last write", write)]),
        };
        let verdict = judge(&volume, &now);
        assert!(format!("{verdict:?}").contains(expected), "{verdict:?} lacks {expected}");
    }

    #[test]
    fn every_kind_of_change() {
        let gib = 1 << 30;
        for dirty in [false, true] {
            check(dirty, true, gib, "A", "1", "Same");
            check(dirty, false, gib, "A", "2", "Same");
            check(dirty, true, 2 * gib, "A", "1", "Grown");
            check(dirty, true, gib / 2, "A", "1", "Refuse(\"its backing device /dev/v shrank from 1 GiB to 512 MiB");
        }
        check(false, true, gib, "B", "1", "DropClean(\"its backing device /dev/v is another one: its serial number was A and is B");
        check(true, true, gib, "B", "1", "Refuse(\"its backing device /dev/v is another one");
        check(false, false, gib, "B", "9", "DropClean");
        check(false, true, gib, "A", "2", "DropClean(\"its backing device /dev/v was written by others");
        check(true, true, gib, "A", "2", "--drop-dirty");
    }
}
