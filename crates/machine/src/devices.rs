//! Devices, looked at for safety and identity (C6, C7), in the words of the device crate.

use api::error::{ControlError, Kind};
use datapath::DeviceFacts;
use device::busy::{self, BusyError};
use device::identity::{self, DeviceIdentity, identify};
use device::model::{DiskModel, ModelSet};
use device::openers;
use device::signature::{self, OwnMark};
use device::spec::SpecError;
use device::system::SystemView;
use device::{Access, BlockingDevice, DeviceError, DeviceKind, DeviceSpec, OpenDevice, OpenError, drive};
use format::disks::{DISKS_MAGIC, disks_offset_bytes};
use format::layout::SuperblockSlot;
use format::superblock::SUPERBLOCK_MAGIC;
use records::device_facts::{facts, names_of};
use records::recognise::{Recognised, recognise};
use records::state::{BackingIdentity, Fact, PoolRecord, VolumeRecord};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The marks of a hearth pool: both copies of its superblock, and of the table of the disks beside it.
pub(super) const OWN_MARKS: [OwnMark; 4] = [
    OwnMark { what: "a hearth pool", offset_bytes: SuperblockSlot::A.offset_bytes(), magic: SUPERBLOCK_MAGIC },
    OwnMark { what: "a hearth pool", offset_bytes: SuperblockSlot::B.offset_bytes(), magic: SUPERBLOCK_MAGIC },
    OwnMark { what: "disks of a hearth pool", offset_bytes: disks_offset_bytes(SuperblockSlot::A), magic: DISKS_MAGIC },
    OwnMark { what: "disks of a hearth pool", offset_bytes: disks_offset_bytes(SuperblockSlot::B), magic: DISKS_MAGIC },
];

/// Looks at a device without changing it.
pub(super) fn examine(spec: &str) -> Result<DeviceFacts, ControlError> {
    let spec = parse(spec)?;
    let path = spec.path();
    let view = SystemView::default();
    spec.kind().map_err(|e| spec_error(path, e))?;
    let users = busy::usages(path, &view).map_err(|e| busy_error(path, e))?;
    if let Some(user) = busy::describe(&users) {
        // Somebody who has it may have it exclusively: nothing more can be looked at than what it is called.
        let fixed = identity::ids_of(path, &view).map(|(kind, ids)| names_of(kind, &ids)).unwrap_or_default();
        let identity = BackingIdentity { fixed, ..BackingIdentity::default() };
        let drive = drive::kind_of(path, &view);
        return Ok(DeviceFacts { size_bytes: u64::MAX, in_use: Some(user), drive, identity, ..DeviceFacts::default() });
    }
    let device = open_path(path, Access::ReadOnly)?;
    let blocking = device.blocking().map_err(|e| plain(path, &e))?;
    let signatures = signature::find(&blocking, &OWN_MARKS).map_err(|e| plain(path, &e))?;
    let identity = identify(&device, &view).map_err(|e| plain(path, &e))?;
    let mut medium = runtime::SsdMedium(blocking);
    let pool = engine::superblock::load(&mut medium).ok().map(|state| uuid::Uuid::from_bytes(state.superblock.uuid));
    Ok(DeviceFacts {
        size_bytes: device.geometry().size_bytes,
        signature: signature::describe(&signatures),
        pool,
        in_use: None,
        is_file: device.kind() == DeviceKind::RegularFile,
        drive: drive::kind_of(path, &view),
        sector_bytes: device.geometry().logical_block_bytes,
        read_only: !device.is_writable().map_err(|e| plain(path, &e))?,
        identity: recorded(identity, &spec),
    })
}

/// The identity in the form that is remembered.
pub(super) fn recorded(identity: DeviceIdentity, spec: &DeviceSpec) -> BackingIdentity {
    let mut fixed = names_of(identity.kind, &identity.ids);
    if let Some(set) = spec.model() {
        fixed.push(Fact { name: "disk model".into(), value: set.name().into() });
    }
    let (content, mut stamps) = (facts(&identity.content), facts(&identity.stamps));
    // A new file system is a change of content, noticed as such.
    let file_system = identity.file_system.map_or("none".into(), |fs| format!("{} {}", fs.kind, fs.uuid));
    stamps.push(Fact { name: "file system".into(), value: file_system });
    BackingIdentity { size_bytes: identity.size_bytes, fixed, content, stamps }
}

/// How two devices share bytes.
pub(super) fn overlap(one: &str, other: &str) -> Result<Option<String>, ControlError> {
    let (one, other) = (parse(one)?, parse(other)?);
    if !one.path().exists() || !other.path().exists() {
        return Ok(None);
    }
    busy::overlap(one.path(), other.path(), &SystemView::default()).map_err(|e| busy_error(one.path(), e))
}

/// Which other programs have a device or file open, if any.
pub(super) fn opened_by_others(spec: &str) -> Option<String> {
    let openers = openers::others(spec.parse::<DeviceSpec>().ok()?.path(), &SystemView::default());
    (!openers.is_empty()).then(|| openers::told(&openers))
}

/// Bytes that are read at the begin and at the end of a device that should be blank, and of each sample between.
const BLANK_ENDS_BYTES: u64 = 2 << 20;
const BLANK_SAMPLE_BYTES: u64 = 64 << 10;
/// Samples of a device that should be blank.
const BLANK_SAMPLES: u64 = 512;

/// Whether nothing but zeroes is on a device, as far as a look of a second can tell.
pub(super) fn is_blank(path: &str) -> Result<bool, ControlError> {
    let device = open(path, Access::ReadOnly)?;
    let blocking = device.blocking().map_err(|e| plain(Path::new(path), &e))?;
    for (offset_bytes, length_bytes) in blank_parts(device.geometry().size_bytes) {
        let mut bytes = vec![0xff; length_bytes as usize];
        blocking.read_at(offset_bytes, &mut bytes).map_err(|e| plain(Path::new(path), &e))?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The parts of a device of that size that are looked at: offset and length, whole pages.
fn blank_parts(size_bytes: u64) -> Vec<(u64, u64)> {
    let whole = size_bytes - size_bytes % types::BLOCK_BYTES;
    let ends = BLANK_ENDS_BYTES.min(whole);
    let step = (whole / BLANK_SAMPLES).next_multiple_of(types::BLOCK_BYTES).max(BLANK_SAMPLE_BYTES);
    let between = (0..BLANK_SAMPLES).map(|nth| nth * step).take_while(|at| at + BLANK_SAMPLE_BYTES <= whole);
    [(0, ends), (whole - ends, ends)]
        .into_iter()
        .chain(between.map(|at| (at, BLANK_SAMPLE_BYTES)))
        .filter(|(_, length)| *length > 0)
        .collect()
}

/// Makes the file of an SSD, allocated.
pub(super) fn make_file(path: &str, size_bytes: u64) -> Result<(), ControlError> {
    // A device ends with a whole block; the pool uses the size that was asked for.
    OpenDevice::create(Path::new(path), size_bytes.next_multiple_of(types::BLOCK_BYTES))
        .map(drop)
        .map_err(|e| open_error(Path::new(path), e))
}

/// Allocates what an SSD's file lacks of the first `size_bytes`, or refuses it.
pub(super) fn allocate(ssd: &OpenDevice, size_bytes: u64) -> Result<(), ControlError> {
    ssd.allocate(size_bytes).map_err(|error| open_error(ssd.path(), error))
}

/// The same for a pool that was made before files were allocated, and holds data: it is used as it is where that cannot be.
pub(super) fn allocate_if_possible(ssd: &OpenDevice, size_bytes: u64) {
    if let Err(error) = ssd.allocate_at_once(size_bytes) {
        tracing::warn!("{error}; until then writes to the pool fail when its file system is full");
    }
}

/// Removes it again, if it is still the file that was made: with the pool's superblock, or of the size that was asked for and blank.
pub(super) fn remove_file(pool: &PoolRecord) -> Result<(), ControlError> {
    let path = Path::new(&pool.ssd);
    let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let is_it = there.is_file() && (there.len() == 0 || is_file_of(pool, (there.dev(), there.ino()))?);
    if !is_it {
        let problem = format!("it is not the file that was made for the pool {} and stays", pool.name);
        let remedy = "remove it yourself if nothing needs it".to_string();
        return Err(ControlError::Device { path: pool.ssd.clone(), problem, remedy, kind: Kind::Conflict });
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(plain(path, &format!("{} cannot be removed: {e}", path.display()))),
        _ => Ok(()),
    }
}

/// Whether the file of that device and inode, which has the pool's path, was made for the pool. The superblock is the first that is written.
fn is_file_of(pool: &PoolRecord, identity: (u64, u64)) -> Result<bool, ControlError> {
    const HEAD_BYTES: usize = 1 << 20;
    let path = Path::new(&pool.ssd);
    let opened = open_path(path, Access::ReadWrite)?;
    let facts = opened.file().metadata().map_err(|e| plain(path, &e))?;
    if (facts.dev(), facts.ino()) != identity {
        return Ok(false);
    }
    let size_bytes = opened.geometry().size_bytes;
    let blocking = opened.blocking().map_err(|e| plain(path, &e))?;
    let mut head = vec![0; HEAD_BYTES.min(usize::try_from(size_bytes).unwrap_or(HEAD_BYTES))];
    blocking.read_at(0, &mut head).map_err(|e| plain(path, &e))?;
    let asked_bytes = pool.size_bytes.map(|bytes| bytes.next_multiple_of(types::BLOCK_BYTES));
    let is_blank = asked_bytes == Some(size_bytes) && head.iter().all(|byte| *byte == 0);
    let superblock = engine::superblock::load(&mut runtime::SsdMedium(blocking));
    Ok(superblock.map_or(is_blank, |state| state.superblock.uuid == pool.uuid.into_bytes()))
}

/// Opens and locks a device by its path.
pub(super) fn open(path: &str, access: Access) -> Result<OpenDevice, ControlError> {
    open_path(Path::new(path), access)
}

/// Opens and locks a backing device: to write, unless it cannot be written and need not be.
pub(super) fn open_backing(spec: &DeviceSpec, read_only: bool) -> Result<OpenDevice, ControlError> {
    let path = spec.path();
    match OpenDevice::open(path, Access::ReadWrite) {
        Err(OpenError::ReadOnlyDevice { .. } | OpenError::ReadOnlyFileSystem { .. } | OpenError::Permission { .. }) if read_only => {
            open_path(path, Access::ReadOnly)
        }
        other => other.map_err(|e| open_error(path, e)),
    }
}

/// Refuses an open device that is not the one of the volume.
pub(super) fn check_is_it(opened: &OpenDevice, spec: &DeviceSpec, volume: &VolumeRecord) -> Result<(), ControlError> {
    let path = spec.path();
    let identity = identify(opened, &SystemView::default()).map_err(|e| plain(path, &e))?;
    if let Recognised::Other(why) = recognise(&volume.identity, &recorded(identity, spec)) {
        let remedy = "reconnect the right device: the volume then starts by itself".to_string();
        let problem = format!("it is not the device of the volume: {why}");
        return Err(ControlError::Device { path: path.display().to_string(), problem, remedy, kind: Kind::Conflict });
    }
    Ok(())
}

/// Refuses an open device that cannot move what clients of the volume may ask for: its file was moved to a disk with larger sectors.
pub(super) fn check_sectors(opened: &OpenDevice, volume: &VolumeRecord) -> Result<(), ControlError> {
    let least = opened.geometry().logical_block_bytes;
    match volume.sector_bytes {
        Some(sector_bytes) if least > sector_bytes => Err(ControlError::Device {
            path: opened.path().display().to_string(),
            problem: format!("direct I/O to it moves whole {least} bytes, and the volume has sectors of {sector_bytes} bytes"),
            remedy: format!("bring it to a disk with sectors of {sector_bytes} bytes: the volume then starts by itself"),
            kind: Kind::Conflict,
        }),
        _ => Ok(()),
    }
}

fn open_path(path: &Path, access: Access) -> Result<OpenDevice, ControlError> {
    OpenDevice::open(path, access).map_err(|error| open_error(path, error))
}

/// Of a file that somebody has open.
pub(super) fn is_locked(path: &str) -> ControlError {
    open_error(Path::new(path), OpenError::Locked { path: path.into() })
}

/// What a path is not, or what others do with it, contradicts what was asked; only the system's own failures are failures.
fn open_error(path: &Path, error: OpenError) -> ControlError {
    let kind = match &error {
        OpenError::System { source, .. } => kind_of(source),
        _ => Kind::Conflict,
    };
    match error {
        OpenError::Spec(error) => spec_error(path, error),
        OpenError::Empty { .. } if device::spec::kind_of(path).is_ok_and(|kind| kind == DeviceKind::BlockDevice) => ControlError::Device {
            path: path.display().to_string(),
            problem: "it has no file or device behind it".into(),
            remedy: "connect the disk, or choose another device".into(),
            kind,
        },
        other => sentence(path, &other, kind),
    }
}

/// A path that cannot be used as it was given is not a failure of the system.
fn kind_of(error: &std::io::Error) -> Kind {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AlreadyExists
        | ErrorKind::FileTooLarge
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::ResourceBusy => Kind::Conflict,
        // No stable name: too many symbolic links, no such device or address.
        _ if matches!(
            rustix::io::Errno::from_io_error(error),
            Some(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO | rustix::io::Errno::NODEV)
        ) =>
        {
            Kind::Conflict
        }
        _ => Kind::Failed,
    }
}

/// Overwrites the marks of what was on a device whose owner agreed to lose it.
pub(super) fn erase_signatures(device: &dyn BlockingDevice) -> Result<(), DeviceError> {
    let signatures = signature::find(device, &OWN_MARKS)?;
    signature::erase(device, &signatures)
}

/// Reads a spec.
pub(super) fn parse(spec: &str) -> Result<DeviceSpec, ControlError> {
    spec.parse().map_err(|error: SpecError| {
        let sentence = error.to_string();
        let (problem, remedy) = sentence.split_once(": ").unwrap_or((&sentence, "give a block device, a file, or model:SET:FILE"));
        ControlError::BadCombination(problem.into(), remedy.into())
    })
}

/// The model of a set.
pub(super) fn model(set: ModelSet, size_bytes: u64) -> DiskModel {
    DiskModel::new(set, size_bytes)
}

fn spec_error(path: &Path, error: SpecError) -> ControlError {
    match error {
        SpecError::Missing { .. } => ControlError::Unknown { named: "device", name: path.display().to_string() },
        SpecError::Unreachable { ref source, .. } => sentence(path, &error, kind_of(source)),
        other => sentence(path, &other, Kind::Conflict),
    }
}

fn busy_error(path: &Path, error: BusyError) -> ControlError {
    match error {
        BusyError::Spec(error) => spec_error(path, error),
        other => plain(path, &other),
    }
}

/// A failure.
fn plain(path: &Path, error: &dyn std::fmt::Display) -> ControlError {
    sentence(path, error, Kind::Failed)
}

/// The device crate's sentences begin with the path and end with what to do: "PATH PROBLEM: REMEDY".
fn sentence(path: &Path, error: &dyn std::fmt::Display, kind: Kind) -> ControlError {
    let shown = path.display().to_string();
    let text = error.to_string();
    let rest = text.strip_prefix(&shown).map_or(text.clone(), |rest| format!("it {}", rest.trim_start()));
    let (problem, remedy) = rest.rsplit_once(": ").map_or((rest.clone(), String::new()), |(p, r)| (p.to_string(), r.to_string()));
    ControlError::Device { path: shown, problem, remedy, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a crash the name of a file that hearth made may be another file's.
    #[test]
    fn only_the_file_that_was_made_is_removed() {
        const SIZE: u64 = 64 << 20;
        let directory = tempfile::Builder::new().tempdir_in(std::env::current_dir().expect("there")).expect("a directory with direct I/O");
        let path = directory.path().join("ssd.img");
        let pool = |uuid: u8, size_bytes| PoolRecord {
            name: "p".into(),
            uuid: uuid::Uuid::from_bytes([uuid; 16]),
            ssd: path.display().to_string(),
            size_bytes: Some(size_bytes),
            ram_bytes: 0,
            content: Default::default(),
            phase: records::state::PoolPhase::Creating,
            session: 0,
            degraded: None,
            next_volume_id: 1,
            file_made: true,
            disk_room: None,
            serial: 0,
            on_blank_ssd: Default::default(),
            layout: Default::default(),
            spare: None,
            ssd_identity: Vec::new(),
        };
        let (ours, removed) = (pool(1, SIZE), || !path.exists());
        let make = || make_file(&ours.ssd, SIZE).expect("there is room");
        remove_file(&ours).expect("nothing is there");
        make();
        remove_file(&ours).expect("blank, of that size");
        assert!(removed());
        make();
        let layout = format::layout::Layout::plan_default(SIZE, 1).expect("large enough");
        let opened = open(&ours.ssd, Access::ReadWrite).expect("it opens");
        let mut medium = runtime::SsdMedium(opened.blocking().expect("a handle"));
        engine::superblock::create(&mut medium, layout, ours.uuid.into_bytes()).expect("there is room");
        drop((medium, opened));
        let stays = |pool: &PoolRecord| {
            let error = remove_file(pool).expect_err("it is another");
            assert!(error.kind() == Kind::Conflict && !removed(), "{error}");
        };
        stays(&pool(2, SIZE));
        remove_file(&ours).expect("with our superblock");
        assert!(removed());
        make();
        stays(&pool(1, SIZE + 4096));
        std::fs::write(&path, "precious").expect("there is room");
        stays(&ours);
        std::fs::write(&path, [&[0; 4096][..], &vec![7; SIZE as usize - 4096]].concat()).expect("there is room");
        stays(&ours);
        std::fs::remove_file(&path).and_then(|()| std::os::unix::fs::symlink("/dev/null", &path)).expect("a link");
        stays(&ours);
    }

    /// What a person can mend by giving another path is no failure of the system.
    #[test]
    fn a_path_that_is_no_device_is_a_conflict_however_it_is_looked_at() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("file");
        std::fs::write(&file, [0; 4096]).expect("there is room");
        let (file, below) = (file.display().to_string(), format!("{}/file/below", directory.path().display()));
        for path in ["/", "/dev/null", &below, &format!("/{}", "x".repeat(300))] {
            for error in [examine(path).expect_err(path), open(path, Access::ReadOnly).map(drop).expect_err(path)] {
                assert!(matches!(error.kind(), Kind::Conflict | Kind::NotFound), "{path}: {error} is {:?}", error.kind());
            }
            match overlap(path, &file) {
                Ok(none) => assert_eq!(none, None, "{path}"),
                Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{path}: {error}"),
            }
            let made = make_file(path, 4096).expect_err(path);
            assert!(matches!(made.kind(), Kind::Conflict | Kind::NotFound), "{path}: {made} is {:?}", made.kind());
        }
    }
}
