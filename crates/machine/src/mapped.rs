//! Mapped devices that volumes are attached to, by the kernel's device mapper.

use super::failed;
use super::lvm_group::check_not_shared;
use super::lvm_lock::{VolumeGroupLock, volume_group};
use super::swap::{put_in_force, resume_left};
use api::error::{ControlError, Kind};
use datapath::mapped::{Leads, MappedDevices, MappedFacts, Passed, Swapped, check_not_attached, is_left_over};
use device::busy::{self, BusyError, Usage};
use device::system::SystemView;
use mapper::{Mapper, MapperError, Number, Status, Table, Which};
use records::state::{Attachment, VolumeRecord};
use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use types::SECTOR_BYTES;

/// The kernel's device mapper.
pub struct KernelMapper {
    /// Where the sockets and mounts of exports lie.
    pub export_directory: PathBuf,
}

/// Targets that may stand under two devices at once: they hold nothing of their own.
const PLAIN_TARGETS: [&str; 5] = ["linear", "striped", "delay", "flakey", "zero"];
/// Several machines have these mounted at once.
const CLUSTER_FILE_SYSTEMS: [&str; 2] = ["gfs2", "ocfs2"];
/// Where mapped devices have their names.
const DIRECTORY: &str = "/dev/mapper";

/// The name of a volume's origin.
fn origin_name(volume: &str) -> String {
    format!("hearth-{volume}-origin")
}

fn origin_uuid(volume: &VolumeRecord) -> String {
    format!("HEARTH-{}-origin", volume.uuid)
}

fn mapper() -> Result<Mapper, ControlError> {
    Mapper::open().map_err(mapper_error)
}

pub(super) fn mapper_error(error: MapperError) -> ControlError {
    let remedy = match &error {
        MapperError::NoMapper { .. } => "",
        MapperError::Unknown { .. } => "see `dmsetup ls`",
        MapperError::Refused { .. } | MapperError::Table { .. } => "see the kernel's log",
    };
    failed(error, remedy)
}

pub(super) fn conflict(path: &str, problem: impl Into<String>, remedy: impl Into<String>) -> ControlError {
    ControlError::Device { path: path.into(), problem: problem.into(), remedy: remedy.into(), kind: Kind::Conflict }
}

/// What hearth can do for a disk that is in use without the device mapper below it.
fn no_mapped_device(path: &str) -> ControlError {
    conflict(
        path,
        "it has no device-mapper device below it, and Linux offers no other way to put a cache under a disk in use",
        format!(
            "unmount it once, add it with `hearth volume add NAME --pool POOL --backing {path} --export block` and mount /dev/hearth/NAME; \
             or, if a virtual machine uses it, move the running machine to the volume's NBD export with QEMU's blockdev-mirror"
        ),
    )
}

/// The device of an attached volume, by what does not change.
fn which(attachment: &Attachment) -> Which {
    match attachment.uuid.is_empty() {
        true => Which::Name(attachment.device.clone()),
        false => Which::Uuid(attachment.uuid.clone()),
    }
}

fn attachment(volume: &VolumeRecord) -> Result<&Attachment, ControlError> {
    volume.attachment.as_ref().ok_or_else(|| ControlError::Unknown { named: "attachment", name: volume.name.clone() })
}

/// Devices that a thread is giving another table.
static CHANGING: Mutex<BTreeSet<Number>> = Mutex::new(BTreeSet::new());
/// How long the requests in flight of a device may keep another change of it waiting.
const PATIENCE: Duration = Duration::from_secs(10);

fn changing() -> MutexGuard<'static, BTreeSet<Number>> {
    CHANGING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Devices that hearth itself has suspended and could not resume, with their UUIDs.
static LEFT_SUSPENDED: Mutex<BTreeSet<(Number, String)>> = Mutex::new(BTreeSet::new());

fn left_suspended() -> MutexGuard<'static, BTreeSet<(Number, String)>> {
    LEFT_SUSPENDED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A device of which one thread is between the load of a table and its coming into force: LVM's lock does not say so of devices that are not
/// LVM's. That may last as long as the requests in flight, and holds up no other device.
#[derive(Debug)]
struct Change(Number);

impl Change {
    fn begin(number: Number, patience: Duration) -> Result<Change, ControlError> {
        let until = Instant::now() + patience;
        while !changing().insert(number) {
            if Instant::now() >= until {
                return Err(ControlError::Device {
                    path: number.to_string(),
                    problem: "it is being given another table, and requests to it have not ended".into(),
                    remedy: "check the disk below it; try again when it answers".into(),
                    kind: Kind::Busy,
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Change(number))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        changing().remove(&self.0);
    }
}

/// Another program is between two steps.
fn is_changing(status: &Status) -> bool {
    status.is_suspended || status.has_inactive_table || !status.has_table
}

fn number_of(path: &str) -> Option<Number> {
    let facts = std::fs::metadata(path).ok()?;
    facts.file_type().is_block_device().then(|| Number::from_raw(facts.rdev()))
}

/// What the kernel says of a block device in a small file.
fn told(number: Number, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/dev/block/{number}/{file}")).ok()?;
    Some(text.trim().to_string())
}

/// Writes and discards in a block device's `stat` (the kernel's `Documentation/block/stat.rst`).
fn writes_in(stat: &str) -> Option<u64> {
    let figures: Vec<u64> = stat.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(figures.get(4)? + figures.get(11)?)
}

/// The kernel's name of a block device: "ublkb0".
pub(super) fn kernel_name(number: Number) -> Option<String> {
    let place = std::fs::read_link(format!("/sys/dev/block/{number}")).ok()?;
    Some(place.file_name()?.to_string_lossy().into_owned())
}

fn sector_bytes(number: Number) -> u32 {
    told(number, "queue/logical_block_size").and_then(|text| text.parse().ok()).unwrap_or(SECTOR_BYTES as u32)
}

/// What to do about swap on an attached device.
const NO_SWAP: &str = "switch that off with `swapoff`: hearth may need memory to write what is swapped out";

/// Refuses a device that carries a file of hearth's own, or may do so.
fn check_carries_none(path: &str, own: &[String], view: &SystemView) -> Result<(), ControlError> {
    let remedy = "move hearth's files to another disk: hearth cannot wait for itself";
    for file in own {
        match busy::carries(Path::new(path), Path::new(file), view) {
            Ok(None) => {}
            Ok(Some(how)) => return Err(conflict(path, format!("hearth's own {file} lies on it ({how})"), remedy)),
            // What is not there is not waited for.
            Err(BusyError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(conflict(path, format!("hearth's own {file} may lie on it: {error}"), remedy)),
        }
    }
    Ok(())
}

/// Whether a mapped device belongs to the volume group of another one, by their UUIDs: LVM's begin with that of the group.
pub(super) fn is_of_its_group(uuid: &str, other: &str) -> bool {
    /// "LVM-" and what LVM has for a UUID without hyphens.
    const GROUP: usize = 4 + 32;
    uuid.starts_with("LVM-") && uuid.get(..GROUP).is_some_and(|group| other.starts_with(group))
}

/// Refuses a table that cannot be had twice, or that leads to hearth itself, of the device with that UUID.
fn check_table(path: &str, uuid: &str, table: &Table, exports: &Path) -> Result<(), ControlError> {
    if table.targets.is_empty() {
        return Err(conflict(path, "it has no table", "activate it"));
    }
    if let Some(target) = table.first_other_than(&PLAIN_TARGETS) {
        let remedy = match target.kind.as_str() {
            "crypt" => "attach the device below it: it is encrypted, and its cache on the SSD then is, too",
            "snapshot-origin" | "snapshot" => "remove its snapshots first: they would not see what is written",
            _ => "attach the device below it, or unmount it and use `hearth volume add`",
        };
        return Err(conflict(path, format!("its target \"{}\" cannot stand under two devices", target.kind), remedy));
    }
    for target in &table.targets {
        for number in target.arguments.split(' ').filter_map(|word| word.parse::<Number>().ok()) {
            // As `pvmove` has it while it works. It waits for all that leads there when it ends, and does not know of an origin.
            if told(number, "dm/uuid").is_some_and(|below| is_of_its_group(uuid, &below)) {
                let below = told(number, "dm/name").unwrap_or_else(|| number.to_string());
                let problem = format!("it leads to {below}, another device of its volume group: LVM may be moving it");
                return Err(conflict(path, problem, "wait until `pvmove` is done: an attached volume then starts by itself"));
            }
            let file = told(number, "loop/backing_file");
            let is_loop = file.is_some_and(|file| Path::new(&file).starts_with(exports) || Path::new(&file).file_name().is_none());
            if is_loop || kernel_name(number).is_some_and(|name| ublk::is_ours(&name)) {
                let problem = "it leads to a block device of hearth that hearth did not give it";
                return Err(conflict(path, problem, "give it its own table again with `dmsetup` or `lvchange --refresh`"));
            }
        }
    }
    Ok(())
}

impl KernelMapper {
    fn table_of(&self, mapper: &Mapper, device: &Which) -> Result<Table, ControlError> {
        mapper.table(device).map_err(mapper_error)
    }

    fn origin_of(&self, mapper: &Mapper, volume: &VolumeRecord) -> Result<Option<Status>, ControlError> {
        mapper.find(&Which::Uuid(origin_uuid(volume))).map_err(mapper_error)
    }

    fn has_left_over(&self, mapper: &Mapper, volume: &VolumeRecord, status: &Status) -> Result<bool, ControlError> {
        if !status.has_inactive_table || status.is_suspended || !status.has_table {
            return Ok(false);
        }
        let inactive = mapper.inactive_table(&Which::Number(status.number)).map_err(mapper_error)?;
        let origin = self.origin_of(mapper, volume)?.map(|origin| self.table_of(mapper, &Which::Number(origin.number))).transpose()?;
        Ok(is_left_over(&inactive.to_string(), attachment(volume)?, origin.map(|table| table.to_string()).as_deref()))
    }

    /// Tries again to resume a device that hearth has left suspended.
    fn resume_what_was_left(mapper: &Mapper, status: &Status) {
        let left = (status.number, status.uuid.clone());
        if !left_suspended().contains(&left) {
            return;
        }
        if status.is_suspended {
            // Whoever else suspends it has LVM's lock.
            let lock = volume_group(&status.name, &status.uuid).map(|group| VolumeGroupLock::take(&group)).transpose();
            let (Ok(_lock), Ok(_change)) = (lock, Change::begin(status.number, PATIENCE)) else { return };
            if !resume_left(mapper, &Which::Number(status.number), &status.uuid) {
                return;
            }
            tracing::warn!("{} is resumed", status.name);
        }
        left_suspended().remove(&left);
    }

    /// Takes the table away that a swap of hearth's has left beside the one in force, where hearth was killed in it. Gives how the device is
    /// then.
    fn tidied(&self, mapper: &Mapper, volume: &VolumeRecord, status: &Status) -> Result<Status, ControlError> {
        if !self.has_left_over(mapper, volume, status)? {
            return Ok(status.clone());
        }
        let _lock = match volume_group(&status.name, &status.uuid).map(|group| VolumeGroupLock::take(&group)).transpose() {
            // It may be LVM's after all.
            Err(error) if error.kind() == Kind::Busy => return Ok(status.clone()),
            taken => taken?,
        };
        let _change = match Change::begin(status.number, PATIENCE) {
            // What is loaded is about to come into force.
            Err(_) => return Ok(status.clone()),
            Ok(change) => change,
        };
        let device = Which::Number(status.number);
        let now = mapper.status(&device).map_err(mapper_error)?;
        if now.uuid != status.uuid || !self.has_left_over(mapper, volume, &now)? {
            return Ok(now);
        }
        tracing::warn!("{} has a table of an exchange that was cut off: it is taken away", now.name);
        mapper.clear(&device).map_err(mapper_error)?;
        mapper.status(&device).map_err(mapper_error)
    }

    /// Where a device leads whose status is known.
    fn leads_of(&self, mapper: &Mapper, volume: &VolumeRecord, status: &Status) -> Result<Leads, ControlError> {
        Self::resume_what_was_left(mapper, status);
        let status = &mapper.status(&Which::Number(status.number)).map_err(mapper_error)?;
        if is_changing(&self.tidied(mapper, volume, status)?) {
            return Ok(Leads::Changing);
        }
        let table = self.table_of(mapper, &Which::Number(status.number))?.to_string();
        let is_ours = attachment(volume)?.tables.contains(&table) && self.origin_of(mapper, volume)?.is_some();
        Ok(if is_ours { Leads::Here } else { Leads::Past })
    }

    /// Gives a device a table in place of one that is `known`, at once. Suspending, swapping and resuming are one call: nothing that
    /// happens to this process leaves the device suspended.
    ///
    /// What is known of the table it has must hold when it is replaced: LVM is kept out meanwhile.
    fn give(&self, mapper: &Mapper, status: &Status, table: &Table, known: impl Fn(&Table) -> bool) -> Result<Swapped, ControlError> {
        let device = Which::Number(status.number);
        let group = volume_group(&status.name, &status.uuid);
        let _lock = group.map(|group| VolumeGroupLock::take(&group)).transpose()?;
        let _change = Change::begin(status.number, PATIENCE)?;
        let now = mapper.status(&device).map_err(mapper_error)?;
        // Nobody else changes an origin: it may be as a killed daemon left it.
        let is_origin = now.uuid.starts_with("HEARTH-");
        if now.uuid != status.uuid || !is_origin && is_changing(&now) || !known(&self.table_of(mapper, &device)?) {
            return Err(conflict(&status.name, "another program has changed it just now", "hearth tries again by itself"));
        }
        mapper.load(&device, table, status.is_read_only).map_err(mapper_error)?;
        let began = Instant::now();
        put_in_force(mapper, &device, is_origin).map_err(|refused| match refused.is_suspended {
            false => mapper_error(refused.error),
            true => {
                tracing::error!("{} is suspended, and its requests wait", status.name);
                left_suspended().insert((status.number, status.uuid.clone()));
                let problem = format!("{}; it is suspended now, and its requests wait", refused.error);
                conflict(&status.name, problem, format!("resume it with `dmsetup resume {}`", status.name))
            }
        })?;
        Ok(Swapped { pause: began.elapsed() })
    }
}

impl MappedDevices for KernelMapper {
    fn examine(&self, path: &str, own: &[String], attached: &[(String, Attachment)]) -> Result<MappedFacts, ControlError> {
        let unknown = || ControlError::Unknown { named: "device", name: path.into() };
        let facts = std::fs::metadata(path).map_err(|_| unknown())?;
        if !facts.file_type().is_block_device() {
            return Err(conflict(path, "it is no block device", "name a mapped device or a logical volume, such as /dev/vg/lv"));
        }
        let number = Number::from_raw(facts.rdev());
        if told(number, "dm/name").is_none() {
            return Err(no_mapped_device(path));
        }
        let mapper = mapper()?;
        let device = Which::Number(number);
        let status = mapper.status(&device).map_err(mapper_error)?;
        check_not_attached(path, &status.name, &status.uuid, attached)?;
        if is_changing(&status) {
            return Err(conflict(path, "another program is changing it", "try again when that is done; see `dmsetup info`"));
        }
        if status.is_read_only {
            return Err(conflict(path, "it is read-only", "make it writable first"));
        }
        if status.uuid.starts_with("HEARTH-") {
            return Err(conflict(path, "it is the origin of a volume of hearth", "name the device that is in use"));
        }
        let table = self.table_of(&mapper, &device)?;
        check_table(path, &status.uuid, &table, &self.export_directory)?;
        check_not_shared(path, &mapper, &status, &table)?;
        let view = SystemView::default();
        let users = busy::usages(Path::new(path), &view).map_err(|error| failed(error, ""))?;
        if users.iter().any(|user| matches!(user, Usage::Swap { .. })) {
            return Err(conflict(path, "it is used as swap space", NO_SWAP));
        }
        let areas = busy::swap_areas_on(Path::new(path), &view).map_err(|error| conflict(path, error.to_string(), NO_SWAP))?;
        if let Some(area) = areas.first() {
            return Err(conflict(path, format!("the swap area {} lies on it", area.display()), NO_SWAP));
        }
        check_carries_none(path, own, &view)?;
        let kinds = busy::mounted_kinds(Path::new(path), &view).map_err(|error| failed(error, ""))?;
        if let Some(kind) = kinds.iter().find(|kind| CLUSTER_FILE_SYSTEMS.contains(&kind.as_str())) {
            let problem = format!("the file system on it ({kind}) is written by several machines");
            return Err(conflict(path, problem, "a cache on one of them would not see what the others write"));
        }
        let sectors = told(number, "size").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Ok(MappedFacts { name: status.name, uuid: status.uuid, size_bytes: sectors * SECTOR_BYTES, sector_bytes: sector_bytes(number) })
    }

    fn leads(&self, volume: &VolumeRecord) -> Result<Leads, ControlError> {
        let mapper = mapper()?;
        match mapper.find(&which(attachment(volume)?)).map_err(mapper_error)? {
            Some(status) => self.leads_of(&mapper, volume, &status),
            None => Ok(Leads::Nowhere),
        }
    }

    fn origin_path(&self, volume: &str) -> String {
        format!("{DIRECTORY}/{}", origin_name(volume))
    }

    fn lay_origin(&self, volume: &VolumeRecord) -> Result<Leads, ControlError> {
        let (mapper, attachment) = (mapper()?, attachment(volume)?);
        let path = format!("{DIRECTORY}/{}", attachment.device);
        let Some(status) = mapper.find(&which(attachment)).map_err(mapper_error)? else {
            return Ok(Leads::Nowhere);
        };
        let leads = self.leads_of(&mapper, volume, &status)?;
        if leads != Leads::Past {
            return Ok(leads);
        }
        let table = self.table_of(&mapper, &Which::Number(status.number))?;
        check_table(&path, &status.uuid, &table, &self.export_directory)?;
        match self.origin_of(&mapper, volume)? {
            Some(origin) => {
                if is_changing(&origin) || self.table_of(&mapper, &Which::Number(origin.number))? != table {
                    self.give(&mapper, &origin, &table, |_| true)?;
                }
                link(&origin.name, origin.number).map_err(|error| failed(error, "see whether /dev/mapper is there"))?;
            }
            None => {
                let name = origin_name(&volume.name);
                let made = mapper.create_hidden(&name, &origin_uuid(volume), &table).map_err(mapper_error)?;
                link(&name, made.number).map_err(|error| failed(error, "see whether /dev/mapper is there"))?;
            }
        }
        Ok(Leads::Past)
    }

    fn table_to(&self, volume: &VolumeRecord, place: &str) -> Result<String, ControlError> {
        let (mapper, attachment) = (mapper()?, attachment(volume)?);
        let status = mapper.status(&which(attachment)).map_err(mapper_error)?;
        let table = self.table_of(&mapper, &Which::Number(status.number))?;
        let to = number_of(place).ok_or_else(|| failed(format!("{place} is no block device"), "see the log"))?;
        let sectors = volume.size_bytes / SECTOR_BYTES;
        if table.sectors() != sectors {
            let problem = format!("it has {} sectors, and the volume \"{}\" has {sectors}", table.sectors(), volume.name);
            return Err(conflict(&attachment.device, problem, "hearth tries again by itself"));
        }
        let (has, gets) = (sector_bytes(status.number), sector_bytes(to));
        if has != gets {
            let problem = format!("its sectors have {has} bytes, and those of {place} {gets}");
            return Err(conflict(&attachment.device, problem, "detach it and attach it again"));
        }
        Ok(Table::linear(&[(to, 0, sectors)]).to_string())
    }

    fn lead_here(&self, volume: &VolumeRecord, table: &str, may_lead_past: bool) -> Result<Swapped, ControlError> {
        let (mapper, attachment) = (mapper()?, attachment(volume)?);
        let status = mapper.status(&which(attachment)).map_err(mapper_error)?;
        let table: Table = table.parse().map_err(|error| failed(error, "see the log"))?;
        let origin = self.table_of(&mapper, &Which::Uuid(origin_uuid(volume)))?;
        // What it leads to must be what it leads to now, by way of the origin.
        self.give(&mapper, &status, &table, |now| may_lead_past && *now == origin || attachment.tables.contains(&now.to_string()))
    }

    fn lead_past(&self, volume: &VolumeRecord) -> Result<Swapped, ControlError> {
        let (mapper, attachment) = (mapper()?, attachment(volume)?);
        let Some(status) = mapper.find(&which(attachment)).map_err(mapper_error)? else { return Ok(Swapped::default()) };
        match self.leads_of(&mapper, volume, &status)? {
            Leads::Here => {}
            Leads::Changing => {
                return Err(conflict(&attachment.device, "another program is changing it", "try again when that is done"));
            }
            Leads::Past | Leads::Nowhere => return Ok(Swapped::default()),
        }
        let table = self.table_of(&mapper, &Which::Uuid(origin_uuid(volume)))?;
        self.give(&mapper, &status, &table, |now| attachment.tables.contains(&now.to_string()))
    }

    fn passed(&self, volume: &VolumeRecord) -> Result<Option<Passed>, ControlError> {
        let Some(status) = mapper()?.find(&which(attachment(volume)?)).map_err(mapper_error)? else { return Ok(None) };
        let count = || {
            if told(status.number, "queue/iostats")? != "1" {
                return None;
            }
            let instance = told(status.number, "diskseq")?.parse().ok()?;
            let writes = writes_in(&told(status.number, "stat")?)?;
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            Some(Passed { boot: boot.trim().into(), instance, writes, is_open: status.open_count > 0 })
        };
        Ok(count())
    }

    fn swap_areas(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        let path = Path::new(DIRECTORY).join(&attachment(volume)?.device);
        let areas = busy::swap_areas_on(&path, &SystemView::default()).map_err(|error| failed(error, ""))?;
        Ok(areas.into_iter().map(|area| area.display().to_string()).collect())
    }

    fn machine_ends(&self) -> bool {
        // Of other managers of services it is not known.
        let asked = Command::new("systemctl").arg("is-system-running").stdin(Stdio::null()).stderr(Stdio::null()).output();
        asked.is_ok_and(|answer| answer.stdout.trim_ascii() == b"stopping")
    }

    fn origin_in_use(&self, volume: &VolumeRecord) -> Result<bool, ControlError> {
        Ok(self.origin_of(&mapper()?, volume)?.is_some_and(|origin| origin.open_count > 0))
    }

    fn remove_origin(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mapper = mapper()?;
        if let Some(origin) = self.origin_of(&mapper, volume)? {
            let attachment = attachment(volume)?;
            if self.leads(volume)? == Leads::Here {
                let problem = format!("it leads to the volume \"{}\", whose data lies below {}", volume.name, origin.name);
                return Err(conflict(&attachment.device, problem, "see the log"));
            }
            mapper.remove(&Which::Number(origin.number)).map_err(mapper_error)?;
            unlink(&origin.name, origin.number);
        }
        Ok(())
    }
}

/// Where udev does not do it, or has not yet, the device's name is a link that is made here.
fn link(name: &str, number: Number) -> std::io::Result<()> {
    let path = PathBuf::from(DIRECTORY).join(name);
    let (target, mut tries) = (format!("../dm-{}", number.minor), 0);
    loop {
        if number_of(&path.display().to_string()) == Some(number) {
            return Ok(());
        }
        match std::os::unix::fs::symlink(&target, &path) {
            // A dead one of an earlier boot or life, or udev's own, a moment ago.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && tries < 3 => {
                tries += 1;
                drop(std::fs::remove_file(&path));
            }
            other => return other,
        }
    }
}

/// Takes the link away, unless it leads to another device by now.
fn unlink(name: &str, number: Number) {
    let path = PathBuf::from(DIRECTORY).join(name);
    let there = number_of(&path.display().to_string());
    if there.is_none_or(|there| there == number)
        && let Err(error) = std::fs::remove_file(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("{} cannot be removed: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_whose_change_hangs_holds_up_no_other() {
        let (one, other) = (Number { major: 1023, minor: 1 }, Number { major: 1023, minor: 2 });
        let begin = |number| Change::begin(number, Duration::from_millis(1));
        let hangs = begin(one).expect("nobody is at it");
        begin(other).expect("nobody is at it");
        assert_eq!(begin(one).expect_err("one is at it").kind(), Kind::Busy);
        drop(hangs);
        begin(one).expect("nobody is at it any more");
    }

    #[test]
    fn devices_of_a_volume_group_are_known_by_their_uuids() {
        let (group, other) = ("LVM-Zk3vXq0a1b2c3d4e5f6g7h8i9j0kLmNo", "LVM-Zk3vXq0a1b2c3d4e5f6g7h8i9j0kLmNp");
        let of = |group: &str, rest: &str| format!("{group}{rest}");
        let lv = of(group, "abcdefghijklmnopqrstuvwxyzabcdef");
        assert!(is_of_its_group(&lv, &of(group, "pvmove0pvmove0pvmove0pvmove0abcd")) && is_of_its_group(&lv, &of(group, "x-real")));
        assert!(!is_of_its_group(&lv, &of(other, "abcdefghijklmnopqrstuvwxyzabcdef")));
        for foreign in ["", "mpath-360000000000000000e00000000010001", "CRYPT-LUKS2-x", "LVM-"] {
            assert!(!is_of_its_group(&lv, foreign) && !is_of_its_group(foreign, &lv) && !is_of_its_group(foreign, foreign), "{foreign}");
        }
    }

    /// The second line is of a kernel before discards were counted.
    #[test]
    fn writes_and_discards_are_counted() {
        let stat = "    1026       32    41450      161       7       12      190       15        0      176      180        2        0   8192        4";
        assert_eq!(writes_in(stat), Some(9));
        assert_eq!(writes_in("1 2 3 4 5 6 7 8 9 10 11"), None);
        assert_eq!(writes_in("no figures"), None);
    }
}
