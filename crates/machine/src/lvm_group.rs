//! Whether other machines use the volume group of a logical volume too: then a cache on one of them would not see what the others write.
//!
//! LVM says so in its metadata, on the physical volumes below. Not all of them need have it; so what the kernel knows of a group that
//! is locked by lvmlockd counts as well.

use super::lvm_lock::volume_group;
use super::mapped::{conflict, is_of_its_group, kernel_name, mapper_error};
use api::error::ControlError;
use device::lvm::{self, VolumeGroup};
use device::{Access, OpenDevice};
use mapper::{Mapper, Number, Status, Table, Which};
use std::path::Path;

/// Where the kernel shows what its distributed lock manager keeps apart; lvmlockd's names begin with "lvm_".
const DLM: &str = "/sys/kernel/dlm";
/// The logical volume where sanlock keeps its locks: it is active while the group is.
const SANLOCK_VOLUME: &str = "lvmlock";

/// Refuses a logical volume of a group that several machines use.
pub(super) fn check_not_shared(path: &str, mapper: &Mapper, status: &Status, table: &Table) -> Result<(), ControlError> {
    let (Some(group), Some(id)) = (volume_group(&status.name, &status.uuid), status.uuid.get("LVM-".len()..36)) else { return Ok(()) };
    let locks = mapper.find(&Which::Name(format!("{}-{SANLOCK_VOLUME}", group.replace('-', "--")))).map_err(mapper_error)?;
    let locked_by = match () {
        () if locks.is_some_and(|locks| is_of_its_group(&status.uuid, &locks.uuid)) => Some("sanlock"),
        () if Path::new(DLM).join(format!("lvm_{group}")).exists() => Some("dlm"),
        () => None,
    };
    let words = table.targets.iter().flat_map(|target| target.arguments.split(' '));
    let mut below: Vec<Number> = words.filter_map(|word| word.parse().ok()).collect();
    below.sort();
    below.dedup();
    let told = below.into_iter().filter_map(kernel_name).map(|name| {
        let device = format!("/dev/{name}");
        let group = look(&device).map_err(|error| format!("{device}: {error}"));
        group.map(|group| (device, group))
    });
    judge(path, &group, id, locked_by, told)
}

fn look(device: &str) -> Result<Option<VolumeGroup>, String> {
    let device = OpenDevice::open(Path::new(device), Access::ReadOnly).and_then(|device| device.blocking());
    device.map_err(|error| error.to_string()).and_then(|device| lvm::volume_group(&device).map_err(|error| error.to_string()))
}

/// `told`: what the physical volumes say.
fn judge(
    path: &str,
    group: &str,
    id: &str,
    locked_by: Option<&str>,
    told: impl Iterator<Item = Result<(String, Option<VolumeGroup>), String>>,
) -> Result<(), ControlError> {
    let shared = |by: &str| {
        let problem = format!("its volume group {group} is shared with other machines ({by}), which may write to it");
        let remedy = format!(
            "a cache on one machine would not see what the others write: make the group local with `vgchange --lock-type none {group}` \
             where no other machine uses it, then try again"
        );
        Err(conflict(path, problem, remedy))
    };
    if let Some(by) = locked_by {
        return shared(by);
    }
    for told in told {
        match told {
            Ok((_, None)) => {}
            Ok((_, Some(found))) if found.id == id => found.shared_by.map_or(Ok(()), |by| shared(&by))?,
            Ok((device, Some(found))) => {
                let problem = format!("LVM's metadata on {device}, which it lies on, is of another volume group, {}", found.name);
                return Err(conflict(path, problem, "see `pvs`: is there a copy of that disk?"));
            }
            Err(error) => {
                let problem = format!("whether its volume group {group} is shared with other machines is not known: {error}");
                return Err(conflict(path, problem, "see `pvck`, and try again when that is put right"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "paM49cFtt7KjNpE3rymgsqOo86EYtLIP";

    type Told = Result<(String, Option<VolumeGroup>), String>;

    fn group(id: &str, shared_by: Option<&str>) -> Told {
        let group = VolumeGroup { id: id.into(), name: "other".into(), shared_by: shared_by.map(str::to_owned) };
        Ok(("/dev/sdb".into(), Some(group)))
    }

    #[test]
    fn a_group_that_others_use_is_refused_and_so_is_one_of_which_nothing_can_be_known() {
        let check = |locked_by, told: Vec<Told>, expected: Option<&str>| {
            let judged = judge("/dev/vg/lv", "vg", ID, locked_by, told.into_iter());
            let problem = judged.err().map(|error| format!("{error}; {}", error.remedy()));
            match (&problem, expected) {
                (None, None) => {}
                (Some(problem), Some(expected)) => assert!(problem.contains(expected), "{problem}"),
                other => panic!("{other:?}"),
            }
        };
        let (silent, broken) = (|| Ok(("/dev/sdc".into(), None)), || Err("/dev/sdd: it does not match its checksum".into()));
        check(None, vec![silent(), group(ID, None)], None);
        check(None, vec![silent()], None);
        check(None, vec![silent(), group(ID, Some("sanlock"))], Some("vg is shared with other machines (sanlock)"));
        check(None, vec![group(ID, Some("dlm"))], Some("vgchange --lock-type none vg"));
        check(Some("dlm"), vec![silent()], Some("(dlm)"));
        check(None, vec![group("paM49cFtt7KjNpE3rymgsqOo86EYtLIQ", None)], Some("another volume group, other"));
        check(None, vec![group(ID, None), broken()], Some("not known: /dev/sdd"));
    }
}
