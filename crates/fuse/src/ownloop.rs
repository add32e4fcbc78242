//! A loop device by what makes it ours. Its number alone does not: anybody may detach the device (`losetup -d`), and the next who asks gets
//! the number. So every act on it begins with [`OwnLoop::open`], which looks first; and while the descriptor that it gives is open, the
//! kernel keeps device and file together, so nobody comes between the look and the act.

use crate::error::FuseError;
use crate::loopsys::{self, LoopFacts};
use crate::mount;
use node::write_protect;
use node::writeback::{Opens, write_back};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a device that was left behind may take to say whether its server lives.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// How the marks begin.
const MARK: &str = "hearth:";

/// What a device is known by: the name that the kernel keeps with it, of the form `hearth:UUID:NAME` (cut to 63 bytes).
pub(crate) fn mark_of(owner: &str, name: &str) -> Vec<u8> {
    loopsys::cut_name(format!("{MARK}{owner}:{name}").as_bytes()).to_vec()
}

/// The mark of the device that has this number, if it has one and is served. Where the device does not answer, and lies over a file of a
/// hearth daemon as far as that can be seen, the mark is empty: another's.
pub(crate) fn living_mark(number: u32) -> Option<Vec<u8>> {
    let backing = backing_of(number)?;
    // The kernel asks the file below, which may hang: it can be anybody's, on any file system.
    let look = move || node(number, false).ok().and_then(|node| Some(loopsys::facts(&node).ok()?.name));
    let Some(name) = node::patience::within(PROBE_PATIENCE, "loop-look", look) else {
        return (backing == Path::new("/") || mount::is_one_of_ours(&backing)).then(Vec::new);
    };
    name.filter(|name| name.starts_with(MARK.as_bytes()) && (is_served_here(number, name) || !is_dead(number)))
}

/// Devices that this process serves, with their marks.
static SERVED: Mutex<BTreeMap<u32, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// A device that this process serves, as long as this lives.
///
/// Such a device is not asked whether its server lives. The answer is known; and if the process is
/// killed while it waits for its own answer, what keeps the device for the next daemon keeps the
/// question waiting, too: the kernel holds the thread, nobody sees the process end, and who waits for
/// that starts no other.
#[derive(Debug)]
pub(crate) struct Served(u32);

impl Served {
    pub(crate) fn new(number: u32, mark: &[u8]) -> Served {
        served().insert(number, mark.to_vec());
        Served(number)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        served().remove(&self.0);
    }
}

fn served() -> MutexGuard<'static, BTreeMap<u32, Vec<u8>>> {
    SERVED.lock().expect("no holder of this lock panics")
}

/// Whether this process serves the device with that mark; its number alone may be another's by now.
fn is_served_here(number: u32, mark: &[u8]) -> bool {
    served().get(&number).is_some_and(|served| served == mark)
}

/// Whose the loop device at `path` is, if a hearth daemon serves it: what its export was given as the
/// owner.
pub fn owner_of(path: &Path) -> Option<String> {
    let mark = String::from_utf8(mark_at(path)?).ok()?;
    mark.strip_prefix(MARK)?.split(':').next().map(str::to_owned)
}

/// Whether the loop device at `path` lies over a file of a hearth daemon, as far as that can be seen, and does not answer: its users wait
/// for the daemon to come.
pub fn waits_for_a_daemon(path: &Path) -> bool {
    mark_at(path).is_some_and(|mark| mark.is_empty())
}

/// Whether the path is one of a loop device.
pub(crate) fn is_loop(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"loop"))
}

/// The mark of the device at `path` if it is a loop device that a hearth daemon serves; of one in
/// another mount namespace, too.
pub(crate) fn mark_at(path: &Path) -> Option<Vec<u8>> {
    living_mark(path.file_name()?.to_str()?.strip_prefix("loop")?.parse().ok()?)
}

/// Whether the stable name `name` of the export with that mark belongs to another daemon, since it leads to the loop device at `path`.
pub(crate) fn is_anothers(path: &Path, mark: &[u8], name: &str) -> bool {
    let Some(number) = path.file_name().and_then(number_of) else { return false };
    living_mark(number).is_some_and(|found| has_a_right_to(name, &found, mark, is_served_here(number, &found)))
}

/// Whether a device with the mark that was found has a right to the name that the export with the other mark wants. Numbers are given out
/// again, so a name may lead to a device of another volume: that has none, nor has any other device of this process.
fn has_a_right_to(name: &str, found: &[u8], mark: &[u8], is_served_here: bool) -> bool {
    // One that does not answer may be anybody's.
    found != mark && (found.is_empty() || is_named(found, name) && !is_served_here)
}

/// Whether a mark can be one of an export of this name: the end of a long one is cut off.
pub(crate) fn is_named(mark: &[u8], name: &str) -> bool {
    let shown = mark.splitn(3, |byte| *byte == b':').nth(2);
    let is_cut = mark.len() == loopsys::NAME_BYTES_MAX;
    shown.is_some_and(|shown| shown == name.as_bytes() || is_cut && name.as_bytes().starts_with(shown))
}

/// A loop device of ours.
#[derive(Clone, Debug)]
pub(crate) struct OwnLoop {
    number: u32,
    /// The file below it.
    backing: PathBuf,
    /// What the kernel said of it when it was made.
    facts: LoopFacts,
}

impl OwnLoop {
    /// Remembers the device that was just configured through `node`.
    pub(crate) fn new(number: u32, node: &File, backing: &Path) -> io::Result<OwnLoop> {
        Ok(OwnLoop { number, backing: backing.to_owned(), facts: loopsys::facts(node)? })
    }

    /// A device that an earlier daemon has made; `None` if it is gone or another's by now. The kernel may ask the file below meanwhile, so
    /// who serves that must do so already, and the caller waits with patience.
    pub(crate) fn known(number: u32, file: (u64, u64), mark: &[u8]) -> Result<Option<OwnLoop>, FuseError> {
        // The path may not be what it was: a mount goes with the mount namespace of its daemon.
        let Some(backing) = backing_of(number) else { return Ok(None) };
        let own = OwnLoop { number, backing, facts: LoopFacts { file, name: mark.to_vec() } };
        let node = own.open()?;
        Ok(node.is_some().then_some(own))
    }

    /// Device and inode of the file below it.
    pub(crate) fn file(&self) -> (u64, u64) {
        self.facts.file
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// `/dev/loopN`.
    pub(crate) fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// Opens the device if it is still ours; `None` if it is free or another's.
    pub(crate) fn open(&self) -> Result<Option<File>, FuseError> {
        if !sysfs(self.number).exists() {
            // The number itself was removed.
            return Ok(None);
        }
        let node = node(self.number, false)?;
        match loopsys::facts(&node) {
            Ok(facts) if facts == self.facts => Ok(Some(node)),
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            // The file does not answer, as when its server has gone. Then its path has to do.
            Err(_) => Ok(self.is_attached().then_some(node)),
        }
    }

    /// Writes back what lies in memory above the device; see [`node::writeback::write_back`].
    pub(crate) fn write_back(&self, patience: Duration) -> Result<(), Vec<String>> {
        let own = self.clone();
        let opens: Opens = Arc::new(move || own.open().map_err(io::Error::other));
        write_back(&self.path(), &opens, patience)
    }

    /// Whether a device of this number is over our file, by its path; without opening it, which would keep it from going.
    pub(crate) fn is_attached(&self) -> bool {
        backing_of(self.number).is_some_and(|backing| backing == self.backing)
    }
}

/// A loop device that a killed daemon left: over `backing`, or over a file that has no path any more (a daemon with a mount namespace of its
/// own takes its mounts along), with the given mark, and dead.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) number: u32,
    node: File,
}

impl Leftover {
    /// Detaches it, now or at its last close.
    pub(crate) fn detach(self) -> Result<(), FuseError> {
        clear(&self.node, self.number)
    }
}

/// Finds what was left of the export with that mark over `backing`.
///
/// # Errors
/// The system's, when the list of devices cannot be had. A single device that cannot be looked at is none of ours.
pub(crate) fn leftovers(mark: &[u8], backing: &Path) -> Result<Vec<Leftover>, FuseError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").map_err(FuseError::system("list", "/sys/block"))? {
        let entry = entry.map_err(FuseError::system("list", "/sys/block"))?;
        let Some(number) = number_of(&entry.file_name()) else { continue };
        let Some(shown) = backing_of(number) else { continue };
        let (has_our_path, has_no_path) = (shown == backing, shown == Path::new("/"));
        if !has_our_path && !has_no_path {
            continue;
        }
        // One that does not answer is no leftover: its users wait for a daemon.
        let look = move || node(number, false).ok().map(|node| loopsys::facts(&node));
        let is_ours = match node::patience::within(PROBE_PATIENCE, "loop-look", look).flatten() {
            // Devices of versions before this mark are named by their file.
            Some(Ok(facts)) => facts.name == mark || facts.name == loopsys::cut_name(backing.as_os_str().as_bytes()),
            // Its file says no: the path alone tells, and only a device over a file of ours has it.
            Some(Err(error)) => has_our_path && error.raw_os_error() != Some(libc::ENXIO),
            None => false,
        };
        let Ok(node) = node(number, false) else { continue };
        if is_ours && is_dead(number) {
            found.push(Leftover { number, node });
        }
    }
    Ok(found)
}

/// Whether reading fails, and not for a bad sector of a volume that is served. A device that takes its time has somebody behind it.
fn is_dead(number: u32) -> bool {
    let probe = move || {
        let read = loopsys::read_first_page(&device_path(number));
        read.is_err_and(|error| error.raw_os_error() == Some(libc::EIO)) && !backing_of(number).is_some_and(|file| mount::answers(&file))
    };
    node::patience::within(PROBE_PATIENCE, "loop-probe", probe) == Some(true)
}

/// Orders the detachment, which takes effect at the last close. The caller has looked whose device it is, through this descriptor.
pub(crate) fn clear(node: &File, number: u32) -> Result<(), FuseError> {
    // The kernel keeps this with the number, and whoever gets that next is to have a device that takes writes.
    if let Err(error) = write_protect::set(node, false) {
        tracing::debug!(device = number, %error, "a loop device that goes stays read-only");
    }
    match loopsys::clear(node) {
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => Err(FuseError::system("detach", device_path(number))(error)),
        _ => Ok(()),
    }
}

/// The file below a device, as the kernel shows it; `None` if there is none.
pub(crate) fn backing_of(number: u32) -> Option<PathBuf> {
    let mut file = std::fs::read(sysfs(number).join("loop/backing_file")).ok()?;
    file.truncate(file.trim_ascii_end().len());
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&file)))
}

fn number_of(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("loop")?.parse().ok()
}

pub(crate) fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

pub(crate) fn sysfs(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}"))
}

/// What `st_rdev` of its node is; `None` if there is no such device.
pub(crate) fn raw_number(number: u32) -> Option<u64> {
    let numbers = device_numbers(number);
    let (major, minor) = numbers.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// "major:minor" of device `number`, as sysfs writes it; empty if there is no such device.
pub(crate) fn device_numbers(number: u32) -> String {
    std::fs::read_to_string(sysfs(number).join("dev")).unwrap_or_default().trim().to_owned()
}

/// Opens `/dev/loopN`, making the node where no udev does.
pub(crate) fn node(number: u32, write: bool) -> Result<File, FuseError> {
    let path = device_path(number);
    let open = || OpenOptions::new().read(true).write(write).custom_flags(libc::O_CLOEXEC).open(&path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            loopsys::make_node(&path, &device_numbers(number)).map_err(FuseError::system("make", &path))?;
            open().map_err(FuseError::system("open", &path))
        }
        result => result.map_err(FuseError::system("open", &path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// The numbers of two loop devices were given out the other way round, and the name of one led to the other for ever.
    #[test]
    fn a_name_belongs_to_who_serves_an_export_of_that_name() {
        let own = mark_of("89abcdef-0123-4567-89ab-cdef01234567", "ha-2");
        let has_a_right = |found: &[u8], is_served_here| has_a_right_to("ha-2", found, &own, is_served_here);
        assert!(!has_a_right(&own, true) && !has_a_right(&own, false), "it is this export's");
        assert!(!has_a_right(&mark_of(OTHER, "ha-1"), true) && !has_a_right(&mark_of(OTHER, "ha-1"), false), "another volume's number");
        assert!(has_a_right(&mark_of(OTHER, "ha-2"), false), "another daemon's volume of that name");
        assert!(!has_a_right(&mark_of(OTHER, "ha-2"), true), "this process has one of that name only");
        assert!(has_a_right(b"", false), "it does not answer");
    }

    #[test]
    fn a_name_that_was_cut_is_known_by_its_beginning() {
        let long = "a-volume-with-a-name-of-many-words";
        let mark = mark_of(OTHER, long);
        assert_eq!(mark.len(), loopsys::NAME_BYTES_MAX);
        assert!(is_named(&mark, long) && is_named(&mark_of(OTHER, "a:b"), "a:b"));
        for other in ["a-volume-with", "another-volume-with-a-name", ""] {
            assert!(!is_named(&mark, other), "{other}");
        }
        assert!(!is_named(&mark_of(OTHER, "ha"), "ha-1") && !is_named(b"", "ha"));
    }
}
