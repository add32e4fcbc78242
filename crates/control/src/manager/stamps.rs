//! Was a backing device rolled back (to a snapshot, say) while the daemon was not there, or killed? Write stamps of the file system on it only
//! grow. While a volume is served, they are read from its backing device now and then, and noted once the device has flushed them.
//! A device that later says less than was noted is older than what hearth has seen on it.
//!
//! Noted is what was seen last, not the most that was ever seen: a client may make a new file system, or set its clock.

use super::Manager;
use records::recognise::difference;
use records::state::{BackingIdentity, Fact};
use std::collections::BTreeMap;

/// What a file system only ever counts up. Not here: mount counts (a check of the file system sets them back) and numbers of free
/// blocks.
const GROWING: [&str; 5] = ["ext4 KiB written", "ext4 write time", "xfs log sequence", "btrfs generation", "file modification time"];

/// By these, stamps belong to what they were read from.
fn belongs_to(fact: &Fact) -> bool {
    fact.name == "file system"
}

/// What is worth noting of what was seen on a device.
pub(super) fn worth_noting(stamps: &[Fact]) -> Vec<Fact> {
    let of_time = |name: &str| GROWING.contains(&name) || cfg!(test) && name == "last write";
    stamps.iter().filter(|fact| of_time(&fact.name) || belongs_to(fact)).cloned().collect()
}

/// Whether what is on the device shows that it was written, put back to an earlier state, or made anew.
pub(super) fn tell_of_writes(identity: &BackingIdentity) -> bool {
    !worth_noting(&identity.stamps).iter().all(belongs_to)
}

/// Whether it does so even if it was mounted and never unmounted: ext4 writes its superblock when it is mounted; XFS and btrfs need not.
pub(super) fn tell_of_mounts(identity: &BackingIdentity) -> bool {
    identity.stamps.iter().any(|fact| fact.name == "ext4 write time" || cfg!(test) && fact.name == "last write")
}

/// How it shows that a device is older than what was noted of it; `None` if nothing shows it.
pub(super) fn rolled_back(noted: &[Fact], now: &BackingIdentity) -> Option<String> {
    let present = |was: &Fact| now.stamps.iter().find(|is| is.name == was.name);
    if noted.iter().filter(|was| belongs_to(was)).any(|was| present(was).is_some_and(|is| is.value != was.value)) {
        // Another file system has other stamps. Whether it may be there is judged by its UUID.
        return None;
    }
    noted.iter().filter(|was| !belongs_to(was)).find_map(|was| {
        let is = present(was)?;
        let (before, after): (u64, u64) = (was.value.parse().ok()?, is.value.parse().ok()?);
        (after < before).then(|| difference(&was.name, &was.value, &is.value))
    })
}

/// By volume, what had been written when its device was looked at last, and whether that was so the time before too. An idle disk is left
/// in peace: it may sleep.
pub type Looked = BTreeMap<String, (u64, bool)>;

impl Manager {
    /// Reads the stamps of the backing devices that are being written, and notes those that changed. A device that hangs keeps its caller for a
    /// while: to be called from a thread that nobody waits for.
    pub fn note_stamps(&self, looked: &mut Looked) {
        let attached: Vec<_> = {
            let memory = self.memory();
            let attached = |name: &str| memory.volumes.get(name).is_some_and(|live| live.attached);
            memory.state.volumes.iter().filter(|v| attached(&v.name)).cloned().collect()
        };
        looked.retain(|name, _| attached.iter().any(|volume| volume.name == *name));
        for volume in attached {
            let stats = self.data().volume_stats(&volume.name);
            let written = stats.writes + stats.discards + stats.destaged_bytes;
            let before = looked.get(&volume.name).copied();
            if before == Some((written, true)) {
                continue;
            }
            // Of a device that cannot be read now nothing is known, and clients hear of it.
            let Ok(stamps) = self.data().stamps(&volume) else { continue };
            // A write that was counted may not have been there yet: an idle device is looked at once more.
            looked.insert(volume.name.clone(), (written, before.is_some_and(|(before, _)| before == written)));
            if worth_noting(&stamps) == volume.noted || self.data().flush_backing(&volume).is_err() {
                continue;
            }
            let noted = worth_noting(&stamps);
            if self.is_stopping() {
                return;
            }
            let saved = self.change(|state| {
                // It may have been removed, stopped or given another device meanwhile.
                let same = |v: &&mut records::state::VolumeRecord| v.uuid == volume.uuid && v.identity.fixed == volume.identity.fixed;
                if let Some(volume) = state.volume_mut(&volume.name).filter(same) {
                    volume.noted = noted;
                }
            });
            if let Err(error) = saved {
                tracing::debug!(volume = volume.name, "write stamps cannot be recorded: {error}");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Vec<Fact> {
        pairs.iter().map(|(name, value)| Fact { name: (*name).into(), value: (*value).into() }).collect()
    }

    fn check(noted: &[(&str, &str)], now: &[(&str, &str)], expected: Option<&str>) {
        let now = BackingIdentity { stamps: facts(now), ..BackingIdentity::default() };
        assert_eq!(rolled_back(&worth_noting(&facts(noted)), &now).as_deref(), expected);
    }

    #[test]
    fn stamps_that_went_back_prove_a_rollback() {
        let (ext4, xfs) = (("file system", "ext4 a"), ("file system", "xfs b"));
        check(&[ext4, ("ext4 KiB written", "10")], &[ext4, ("ext4 KiB written", "10")], None);
        check(&[ext4, ("ext4 KiB written", "10")], &[ext4, ("ext4 KiB written", "11")], None);
        let told = Some("its ext4 KiB written was 10 and is now 9");
        check(&[ext4, ("ext4 KiB written", "10")], &[ext4, ("ext4 KiB written", "9")], told);
        check(&[xfs, ("xfs log sequence", "7")], &[xfs, ("xfs log sequence", "3")], Some("its xfs log sequence was 7 and is now 3"));
        // A client made another file system; one checked it; one freed blocks.
        check(&[ext4, ("ext4 KiB written", "10")], &[xfs, ("ext4 KiB written", "9")], None);
        check(&[ext4, ("ext4 mount count", "10")], &[ext4, ("ext4 mount count", "0")], None);
        check(&[xfs, ("xfs free blocks", "10")], &[xfs, ("xfs free blocks", "5")], None);
        check(&[], &[ext4, ("ext4 KiB written", "9")], None);
    }
}
