//! Is the backing device still the one it was (C6)? A pure decision over what was remembered and what is found.

use super::stamps;
use api::human;
use records::recognise::{self, Match, Recognised, recognise};
use records::state::{BackingIdentity, Fact, VolumeRecord};
use types::VOLUME_BYTES_MAX;

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
    let (backing, name, right_one) = (&volume.backing, &volume.name, right_one(volume));
    if let Some(problem) = too_large(now.size_bytes) {
        let remedy = format!(
            "shrink it to at most {}: the volume then starts by itself; data beyond that was never part of the volume",
            human::bytes(VOLUME_BYTES_MAX)
        );
        return Verdict::Refuse(format!("its backing device {backing} {problem}"), remedy);
    }
    // Whatever the mode: under the volume's name nobody must find another disk.
    if let Recognised::Other(why) = recognise(before, now) {
        return Verdict::Refuse(format!("its backing device {backing} is another one: {why}"), wrong_remedy(volume));
    }
    if now.size_bytes < before.size_bytes {
        let (was, is) = (human::bytes(before.size_bytes), human::bytes(now.size_bytes));
        let remedy = if volume.may_have_dirty {
            format!(
                "{right_one} (the volume then starts by itself), or discard its dirty data with \
                 `hearth volume remove {name} --drop-dirty`"
            )
        } else {
            wrong_remedy(volume)
        };
        return Verdict::Refuse(format!("its backing device {backing} shrank from {was} to {is}"), remedy);
    }
    let change = if let Some(change) = written_by_others(before, now).filter(|_| volume.stopped_clean) {
        format!("its backing device {backing} was written by others while hearth was stopped: {change}")
    } else if let Some(change) = stamps::rolled_back(&volume.noted, now) {
        format!("its backing device {backing} was rolled back to an earlier state: {change}")
    } else if now.size_bytes > before.size_bytes {
        return Verdict::Grown;
    } else {
        return Verdict::Same;
    };
    if volume.may_have_dirty { Verdict::Refuse(change, changed_remedy(volume)) } else { Verdict::DropClean(change) }
}

/// Why a device of that size cannot be a backing device, as the end of a sentence that begins with it; `None` if it can. Asked
/// wherever the size of a backing device enters.
pub(super) fn too_large(size_bytes: u64) -> Option<String> {
    let (has, most) = (human::bytes(size_bytes), human::bytes(VOLUME_BYTES_MAX));
    (size_bytes > VOLUME_BYTES_MAX).then(|| format!("has {has}, more than the {most} that a volume can have"))
}

/// To bring back what the volume was made over.
fn right_one(volume: &VolumeRecord) -> &'static str {
    let is_file = volume.identity.fixed.iter().any(|fact| fact.name == "kind" && fact.value == "file");
    if is_file { "put the right file back" } else { "reconnect the right device" }
}

/// What can be done about a volume whose backing device is not the one it was.
pub(super) fn wrong_remedy(volume: &VolumeRecord) -> String {
    let (name, right_one) = (&volume.name, right_one(volume));
    if volume.may_have_dirty {
        return changed_remedy(volume);
    }
    format!(
        "{right_one} (the volume then starts by itself), or accept this one with \
         `hearth volume set {name} --accept-backing`"
    )
}

/// What can be done about a write-back volume whose backing device changed.
pub(super) fn changed_remedy(volume: &VolumeRecord) -> String {
    let (name, right_one) = (&volume.name, right_one(volume));
    format!(
        "{right_one} (the volume then starts by itself), or write the dirty data over this one with \
         `hearth volume set {name} --accept-backing`, or discard the dirty data with `hearth volume remove {name} --drop-dirty`"
    )
}

/// Of a device that nobody else should have written since: what shows that somebody did.
fn written_by_others(before: &BackingIdentity, now: &BackingIdentity) -> Option<String> {
    match recognise::content(before, now) {
        Match::Other(change) => Some(change),
        _ => first_difference(&before.stamps, &now.stamps),
    }
}

/// The first fact known on both sides that differs. A fact missing on one side says nothing: a kernel or a tool may
/// have stopped (or begun) to tell it.
fn first_difference(before: &[Fact], now: &[Fact]) -> Option<String> {
    before.iter().find_map(|was| {
        let is = now.iter().find(|is| is.name == was.name)?;
        (is.value != was.value).then(|| recognise::difference(&was.name, &was.value, &is.value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::state::samples;

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
            content: Vec::new(),
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
            check(dirty, true, VOLUME_BYTES_MAX, "A", "1", "Grown");
            check(
                dirty,
                true,
                VOLUME_BYTES_MAX + (1 << 40),
                "A",
                "1",
                "Refuse(\"its backing device /dev/v has 65 TiB, more than the 64 TiB",
            );
            check(dirty, true, gib / 2, "A", "1", "Refuse(\"its backing device /dev/v shrank from 1 GiB to 512 MiB");
        }
        check(false, true, gib, "B", "1", "Refuse(\"its backing device /dev/v is another one: its serial number was A and is now B");
        check(true, true, gib, "B", "1", "Refuse(\"its backing device /dev/v is another one");
        check(false, false, gib, "B", "9", "another one");
        check(false, true, gib, "A", "2", "DropClean(\"its backing device /dev/v was written by others");
        check(true, true, gib, "A", "2", "--drop-dirty");
    }
}
