//! Exports as the control thread sees them: started and stopped as a whole, with nothing left behind half made.

use crate::connection::{Connection, SLOTS};
use crate::error::FuseError;
use crate::file::VolumeFile;
use crate::handshake::shake;
use crate::loopdev::{self, LoopDevice};
use crate::loopusers;
use crate::mount::{self, Mount};
use crate::ownloop::{OwnLoop, Served, is_anothers, is_loop, is_named, mark_at, mark_of};
use crate::protocol::{Limits, Negotiated};
use crate::ring::{self, RingConnection};
use crate::table::Table;
use node::link::{Link, Name, Wanted, forget_stale_name, is_there};
use node::patience::{within, within_or_never};
use runtime::{EndpointGroup, Runtime, VolumeRef};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest READ and WRITE asked for: an extent, which the engine handles as one piece, and what the kernel grants at most by default
/// (`fs.fuse.max_pages_limit` is 256).
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// How long requests in flight may take when a connection ends.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long a device may take to go at the end of the daemon, when all it holds is written back or its server has gone.
const ABANDON_PATIENCE: Duration = Duration::from_secs(10);

/// How requests travel between kernel and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// Over `/dev/fuse`, on any kernel.
    Classic,
    /// Over io_uring, or not at all: Linux 6.14 or later, with `/sys/module/fuse/parameters/enable_uring` set.
    Ring,
    /// Over io_uring where the kernel offers it, else over `/dev/fuse`. The default by measurement (4 KiB random reads at queue
    /// depth 32, `loop_bare /dev/zero`, one busy machine, alternating): 2,230 to 2,440 ns of server CPU per read over io_uring, 2,490 to
    /// 2,730 over `/dev/fuse`, the 1-GiB stand-in for a device included.
    #[default]
    Best,
}

/// How an export is made.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Whose device it is: the volume's UUID. With it a device that a killed daemon left is told from devices of others.
    pub owner: String,
    /// How requests travel.
    pub transport: Transport,
    /// Set the kernel's switch for FUSE over io_uring first. It is off by default, holds for the whole machine, and is not put back.
    pub enable_ring: bool,
    /// Directory of the stable name, a link to the device; `None`: no stable name.
    pub link_directory: Option<PathBuf>,
    /// How long setting up and taking down may take. Both do I/O on the volume.
    pub patience: Duration,
    /// Take exports over as on a kernel that cannot hand requests over once more (before Linux
    /// 6.9): for tests.
    pub without_resend: bool,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            owner: String::new(),
            transport: Transport::default(),
            enable_ring: false,
            link_directory: Some(PathBuf::from("/dev/hearth")),
            // A slow disk that spins up takes ten seconds; writing back a page cache may take longer.
            patience: Duration::from_secs(60),
            without_resend: false,
        }
    }
}

/// A volume as a file: the lower half of a [`LoopExport`], of use by itself where no loop device is wanted.
#[derive(Debug)]
pub struct FileExport {
    pub(crate) mount: Mount,
    pub(crate) endpoints: EndpointGroup,
    pub(crate) path: PathBuf,
    pub(crate) negotiated: Negotiated,
    pub(crate) file: VolumeFile,
    /// The connection, as long as it may be kept for another daemon.
    pub(crate) connection: Option<OwnedFd>,
    pub(crate) table: Arc<Table>,
}

impl FileExport {
    /// Mounts `volume` as the file `run_directory/name`. What a killed daemon left there is removed first.
    ///
    /// Blocks until the kernel has shaken hands; must not be called on a reactor's thread.
    ///
    /// # Errors
    /// See [`FuseError`]; nothing is left behind.
    pub fn start(
        runtime: &Runtime,
        volume: &VolumeRef,
        name: &str,
        run_directory: &Path,
        options: &LoopOptions,
    ) -> Result<FileExport, FuseError> {
        check_name(name)?;
        let path = canonical(run_directory)?.join(name);
        mount::clear_stale(&path)?;
        if options.enable_ring {
            ring::enable()?;
        }
        let (mount, device) = Mount::new(&path, name)?;
        let wants_ring = options.transport != Transport::Classic;
        let limits = Limits {
            request_bytes_max: REQUEST_BYTES_MAX.min(volume.request_bytes_max() / 4096 * 4096),
            ring_request_bytes_max: ring::REQUEST_BYTES_MAX,
            background_max: SLOTS as u16,
            over_io_uring: wants_ring,
        };
        let negotiated = shake(device.as_fd(), &limits, options.transport == Transport::Ring)?;
        let file = VolumeFile {
            size_bytes: volume.size_bytes(),
            block_bytes: volume.logical_block_bytes(),
            can_discard: volume.can_punch_holes(),
        };
        let request_bytes_max = negotiated.request_bytes_max;
        let second = || device.try_clone().map_err(FuseError::system("duplicate", "/dev/fuse"));
        let (kept, table) = (second()?, Arc::new(Table::new()?));
        // With io_uring, too, something must read what the kernel says outside of requests: forgets and interrupts.
        let connection = Connection::new(second()?, volume.clone(), file, request_bytes_max, table.clone());
        let endpoints = runtime.add_endpoint(Box::new(connection));
        if negotiated.over_io_uring {
            let connection = RingConnection::new(device, volume.clone(), file, request_bytes_max);
            runtime.add_endpoint_to(&endpoints, Box::new(connection));
        }
        Ok(FileExport { mount, endpoints, path, negotiated, file, connection: Some(kept), table })
    }

    /// Whether another daemon can take the connection over. Over io_uring the kernel's requests
    /// belong to the rings of this process.
    pub fn can_be_taken_over(&self) -> bool {
        !self.negotiated.over_io_uring
    }

    /// The mounted file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel and we agreed on.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Unmounts and ends the connection. Requests that wait for an answer get an error, so see to it that there are none.
    ///
    /// # Errors
    /// The system's; or [`FuseError::TimedOut`] if the connection does not end. Calling it again goes on where it failed.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<(), FuseError> {
        let unmounted = self.mount.unmount();
        // The kernel ends a connection without a mount when the last descriptor is closed.
        self.connection = None;
        let patience = END_PATIENCE;
        runtime
            .stop_endpoints(&self.endpoints, patience)
            .map_err(|_| FuseError::TimedOut { step: "ending the FUSE connection", seconds: patience.as_secs() })?;
        unmounted
    }
}

/// A volume as a block device.
///
/// Dropping it without [`LoopExport::stop`] takes everything away that can be: users of the device then get errors.
#[derive(Debug)]
pub struct LoopExport {
    // In the order in which they must go.
    pub(crate) link: Option<Link>,
    pub(crate) device: Arc<Mutex<LoopDevice>>,
    pub(crate) own: OwnLoop,
    _served: Served,
    pub(crate) device_path: PathBuf,
    pub(crate) link_directory: Option<PathBuf>,
    pub(crate) name: String,
    pub(crate) mark: Vec<u8>,
    pub(crate) file: FileExport,
    pub(crate) warnings: Vec<String>,
    /// Why there is no stable name.
    nameless: Option<String>,
    pub(crate) patience: Duration,
}

impl LoopExport {
    /// Makes a block device of `volume`. The mounted file goes to `run_directory`, which must be ours alone.
    ///
    /// Blocks until the device is there; must not be called on a reactor's thread, which has to answer the device's I/O meanwhile.
    ///
    /// # Errors
    /// See [`FuseError`]; nothing is left behind.
    pub fn start(
        runtime: &Runtime,
        volume: &VolumeRef,
        name: &str,
        run_directory: &Path,
        options: &LoopOptions,
    ) -> Result<LoopExport, FuseError> {
        check_name(name)?;
        let patience = options.patience;
        let backing = canonical(run_directory)?.join(name);
        let timed_out = |step| move || FuseError::TimedOut { step, seconds: patience.as_secs() };
        // The dead devices go before the dead mount: afterwards their files have no name any more by which they could be found.
        let mark = mark_of(&options.owner, name);
        let (stale, stale_mark) = (backing.clone(), mark.clone());
        let cleared = within(patience, "loop-clear", move || loopdev::clear_stale(&stale_mark, &stale));
        let mut warnings = cleared.ok_or_else(timed_out("detaching an old loop device"))??.warnings;
        let file = FileExport::start(runtime, volume, name, run_directory, options)?;
        let (block_bytes, is_protected) = (volume.logical_block_bytes(), volume.read_only());
        // On failure and timeout, `file` is dropped: that breaks the connection and frees whoever waits for it.
        let device_mark = mark.clone();
        let device = within(patience, "loop-setup", move || LoopDevice::new(&backing, &device_mark, block_bytes, is_protected))
            .ok_or_else(timed_out("setting up the loop device"))??;
        let own = device.own().clone();
        let mut made = LoopExport::of(device, own, mark, file, name, options);
        made.make_link();
        warnings.extend(made.note_facts().err());
        made.warnings = warnings;
        Ok(made)
    }

    /// Of its parts; without a stable name.
    pub(crate) fn of(device: LoopDevice, own: OwnLoop, mark: Vec<u8>, file: FileExport, name: &str, options: &LoopOptions) -> LoopExport {
        LoopExport {
            link: None,
            device_path: own.path(),
            device: Arc::new(Mutex::new(device)),
            _served: Served::new(own.number(), &mark),
            own,
            link_directory: options.link_directory.clone(),
            name: name.to_owned(),
            mark,
            file,
            warnings: Vec::new(),
            nameless: None,
            patience: options.patience,
        }
    }

    /// Makes the stable name, if it can be made.
    pub(crate) fn make_link(&mut self) {
        let Some(wanted) = self.wanted_name() else { return };
        match wanted.make() {
            Ok(link) => (self.link, self.nameless) = (Some(link), None),
            Err(problem) => self.nameless = Some(problem),
        }
    }

    fn wanted_name(&self) -> Option<Wanted> {
        let (mark, name) = (self.mark.clone(), self.name.clone());
        let is_anothers = move |device: &Path| match is_loop(device) {
            true => is_anothers(device, &mark, &name),
            false => is_there(device),
        };
        Some(Wanted {
            directory: self.link_directory.clone()?,
            name: self.name.clone(),
            target: self.device_path.clone(),
            is_anothers: Box::new(is_anothers),
        })
    }

    /// How the stable name is now; what was made of it anew goes to [`LoopExport::set_link`].
    pub fn stable_name(&self) -> Name {
        Name::of(self.link.as_ref(), self.wanted_name())
    }

    /// The stable name was made anew.
    pub fn set_link(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// Why there was no stable name when the export was made.
    pub fn nameless(&self) -> Option<&str> {
        self.nameless.as_deref()
    }

    /// `/dev/loopN`.
    pub fn device_path(&self) -> &Path {
        &self.device_path
    }

    /// The stable name, if it could be made.
    pub fn link_path(&self) -> Option<&Path> {
        self.link.as_ref().map(Link::path)
    }

    /// What an administrator should know, one sentence each, such as devices left by a killed daemon that are still in use.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The volume is read-only now, or is not any more: so is the device. Must not be called on a reactor's thread.
    ///
    /// # Errors
    /// A sentence for the administrator: the device is as it was, and the volume decides about each write.
    pub fn set_read_only(&self, read_only: bool) -> Result<(), String> {
        let device = self.device.clone();
        let set = move || device.lock().unwrap_or_else(PoisonError::into_inner).set_protected(read_only);
        let shown = self.device_path.display();
        let wanted = if read_only { "read-only" } else { "writable" };
        match within(self.patience, "loop-protect", set) {
            Some(set) => set.map_err(|error| format!("{shown} is not {wanted} yet: {error}")),
            None => Err(format!("{shown} is not {wanted} yet: it does not answer")),
        }
    }

    /// The file below the device.
    pub fn file(&self) -> &FileExport {
        &self.file
    }

    /// What uses the device, for a message: partitions, mounts, swap, devices on it, processes that have it open. Must not be called on a
    /// reactor's thread.
    pub fn users(&self) -> Option<String> {
        self.handle().users()
    }

    /// What [`LoopExport::users`] asks, for who must not keep the export meanwhile.
    pub fn handle(&self) -> LoopHandle {
        LoopHandle { own: self.own.clone(), patience: self.patience }
    }

    /// Whether somebody else has detached the device. Its number may be another's by now.
    pub fn is_lost(&self) -> bool {
        // The path is not the same for ever: a mount namespace that ends takes it along.
        !self.own.is_attached() && !matches!(self.own.open(), Ok(Some(_)))
    }

    /// Writes back what the page cache holds for the device, then takes everything away. Gives what could not be written back, and is lost by
    /// that. Must not be called on a reactor's thread.
    ///
    /// # Errors
    /// [`FuseError::InUse`], and nothing has changed: the device goes on working. After any other error, call it again or drop the export.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<Option<FuseError>, FuseError> {
        let device = self.device.clone();
        // The name goes while the number is still ours, so that it never leads to a device of others.
        let mut link = self.link.take();
        let had_link = link.is_some();
        // After a timeout the device stays, however late the I/O ends that it waited for.
        let seconds = self.patience.as_secs();
        let timed_out = move || FuseError::TimedOut { step: "detaching the loop device", seconds };
        let detach = move |may_go: &dyn Fn() -> bool| {
            let may_go = || if may_go() { Ok(()) } else { Err(timed_out()) };
            device.lock().unwrap_or_else(PoisonError::into_inner).detach(may_go, || drop(link.take()))
        };
        let detached = within_or_never(self.patience, "loop-detach", detach);
        let unflushed = match detached.ok_or_else(timed_out).and_then(|detached| detached) {
            Ok(unflushed) => unflushed,
            Err(error) => {
                // Both names lead to a device that goes on.
                if had_link {
                    self.make_link();
                }
                return Err(error);
            }
        };
        self.file.stop(runtime)?;
        let lost = |error: std::io::Error| FuseError::NotWrittenBack { device: self.device_path.clone(), problems: error.to_string() };
        Ok(unflushed.map(lost))
    }

    /// The end of the daemon: as [`LoopExport::stop`], but users of the device do not hold it up. What file systems and page
    /// caches hold, on the device and on all that stands on it, is written back as far as its options' patience, and this one, allow;
    /// users that are left get errors from then on.
    ///
    /// # Errors
    /// What went wrong first; everything has been tried.
    pub fn abandon(mut self, runtime: &Runtime, patience: Duration) -> Result<(), FuseError> {
        let patience = patience.min(self.patience);
        let written_back = self.own.write_back(patience);
        // While the number is still ours.
        self.link = None;
        let device = self.device.clone();
        let give_up = move || device.lock().unwrap_or_else(PoisonError::into_inner).abandon();
        let detach = || {
            within(ABANDON_PATIENCE, "loop-abandon", give_up)
                .unwrap_or(Err(FuseError::TimedOut { step: "detaching the loop device", seconds: ABANDON_PATIENCE.as_secs() }))
        };
        match written_back {
            Ok(()) => {
                let detached = detach();
                let stopped = self.file.stop(runtime);
                detached.and(stopped)
            }
            Err(problems) => {
                // What hangs is freed by the end of the connection.
                let stopped = self.file.stop(runtime);
                let detached = detach();
                let unsaved = FuseError::NotWrittenBack { device: self.device_path.clone(), problems: problems.join("; ") };
                detached.and(stopped).and(Err(unsaved))
            }
        }
    }
}

/// A loop export as something to ask.
#[derive(Clone, Debug)]
pub struct LoopHandle {
    own: OwnLoop,
    patience: Duration,
}

impl LoopHandle {
    /// See [`LoopExport::users`].
    pub fn users(&self) -> Option<String> {
        let own = self.own.clone();
        within(self.patience, "loop-users", move || loopusers::users(&own))
            .unwrap_or_else(|| Some("what uses it cannot be found out in time".to_owned()))
    }
}

/// What [`clear_leftovers`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// What is gone by it: devices, mounts, names.
    pub gone: Vec<PathBuf>,
    /// Sentences for the administrator.
    pub problems: Vec<String>,
}

/// Takes away what a killed daemon left of an export that is not made anew now: the dead device, the dead mount, the stable name. What
/// lives, and what belongs to others, stays.
pub fn clear_leftovers(options: &LoopOptions, name: &str, run_directory: &Path) -> Cleared {
    let backing = run_directory.canonicalize().unwrap_or_else(|_| run_directory.to_owned()).join(name);
    let mut cleared = Cleared::default();
    let (mark, stale) = (mark_of(&options.owner, name), backing.clone());
    match within(options.patience, "loop-clear", move || loopdev::clear_stale(&mark, &stale)) {
        Some(Ok(stale)) => (cleared.gone, cleared.problems) = (stale.detached, stale.warnings),
        Some(Err(error)) => cleared.problems.push(error.to_string()),
        None => cleared.problems.push("a loop device that a killed daemon left does not go".to_owned()),
    }
    match mount::clear_stale(&backing) {
        Ok(false) | Err(FuseError::ServedElsewhere { .. }) => {}
        Ok(true) => cleared.gone.push(backing),
        Err(error) => cleared.problems.push(error.to_string()),
    }
    if let Some(directory) = &options.link_directory {
        // One that is served under another name has been given the number since.
        let may_be_its = |mark: Vec<u8>| mark.is_empty() || is_named(&mark, name);
        let is_served = |device: &Path| if is_loop(device) { mark_at(device).is_some_and(may_be_its) } else { is_there(device) };
        match forget_stale_name(directory, name, is_served) {
            Ok(false) => {}
            Ok(true) => cleared.gone.push(directory.join(name)),
            Err(problem) => cleared.problems.push(problem),
        }
    }
    cleared
}

/// A name that can be a file's.
pub(crate) fn check_name(name: &str) -> Result<(), FuseError> {
    let bad = name.is_empty() || name.len() > 128 || name.contains(['/', '\0']) || name.bytes().all(|byte| byte == b'.');
    if bad { Err(FuseError::BadName { name: name.to_owned() }) } else { Ok(()) }
}

/// The path as the kernel will name it in the mount table and in sysfs.
pub(crate) fn canonical(directory: &Path) -> Result<PathBuf, FuseError> {
    directory.canonicalize().map_err(FuseError::system("find the run directory", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(129)] {
            assert!(matches!(check_name(bad), Err(FuseError::BadName { .. })), "{bad:?}");
        }
        for good in ["vol1", "with space", "ünï", ".hidden"] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
    }
}
