//! Exports as the control thread sees them: made, taken over, stopped as a whole.

use crate::control::{self, Control, block_path, char_path};
use crate::error::UblkError;
use crate::left::{self, end, find, mark_of};
use crate::queue::Queue;
use crate::succession;
use crate::support::{self, Probe};
use crate::switch::Switch;
use crate::table::Table;
use crate::uapi::{ANY_DEVICE, DeviceInfo, Parameters, flag};
use node::link::{Link, Name, Wanted, is_there};
use node::patience::{wait_until, within, within_or_never};
use node::users::users_of;
use node::write_protect;
use node::writeback::{Opens, write_back};
use runtime::{EndpointGroup, Runtime, VolumeRef};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Requests of one queue in flight: what a loop device has, and NVMe drives are used with.
const DEPTH: u16 = 128;
/// Longest request: an extent, which the engine handles as one piece.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Pages that a request may have beside each other in the bytes of a volume and not in memory: the block layer's own limit.
const SEGMENTS_MAX: u32 = 128;
/// How long requests in flight may take when a device ends.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long the server before may take to end: its memory and rings go first.
/// Some kernels (6.7 to 6.14) notice it only by the time limit of requests, 30 s, if it had all of them.
pub const SERVER_PATIENCE: Duration = Duration::from_secs(90);
/// How long the nodes of a new device may take to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(5);

/// How an export is made.
#[derive(Clone, Debug)]
pub struct UblkOptions {
    /// Whose device it is: the volume's UUID. By it the next daemon knows its devices.
    pub owner: u128,
    /// Who makes a first device: see [`support::check`].
    pub probe: Probe,
    /// Directory of the stable name, a link to the device; `None`: no stable name.
    pub link_directory: Option<PathBuf>,
    /// Whether a device that an earlier daemon has made may be gone on with. Else it ends, and its
    /// users get errors: the content is not what they knew.
    pub may_take_over: bool,
    /// Whether the device outlives this process: its users wait for the next one, or for who ends
    /// it. Else they get errors when this one ends.
    pub outlives: bool,
    /// How long setting up and taking down may take. Both do I/O on the volume.
    pub patience: Duration,
    /// How long the server before may take to end: [`SERVER_PATIENCE`], unless it was waited for already.
    pub server_patience: Duration,
}

/// A volume as a block device.
///
/// Dropping it leaves the device to its users, who wait; and its queues to this process, so that nobody else can serve it while that lives.
pub struct UblkExport {
    number: u32,
    mark: u64,
    path: PathBuf,
    switch: Arc<Switch>,
    endpoints: EndpointGroup,
    link: Option<Link>,
    /// Directory and name of the link.
    wanted: Option<(PathBuf, String)>,
    /// Why there is no stable name.
    nameless: Option<String>,
    warnings: Vec<String>,
    was_taken_over: bool,
    /// It says more of its physical blocks than holds.
    promises_too_much: bool,
    /// It was to go, whoever uses it.
    is_ending: bool,
    patience: Duration,
}

impl UblkExport {
    /// Makes a block device of `volume`, or goes on with the one that an earlier daemon has made of
    /// it: then what waits is served from here on.
    ///
    /// Blocks until the device is there; must not be called on a reactor's thread.
    ///
    /// # Errors
    /// See [`UblkError`]; nothing new is left behind. A device of before is there still, and waits, if there is one (see [`crate::is_there`]).
    pub fn start(runtime: &Runtime, volume: &VolumeRef, name: &str, options: &UblkOptions) -> Result<UblkExport, UblkError> {
        let mut warnings = Vec::new();
        let left = find(mark_of(options.owner))?;
        let mut made = None;
        if let Some(info) = left {
            let taken = match options.may_take_over {
                true => UblkExport::take_over(runtime, volume, &info, options),
                false => Err(UblkError::unfit(info.number, "its content is another")),
            };
            match taken {
                // Its physical blocks cannot be told anew. Without users the device can.
                Ok(mut export) if export.promises_too_much => match export.stop(runtime) {
                    Ok(lost) => warnings.extend(lost.map(|error| error.to_string())),
                    Err(UblkError::InUse { .. }) => made = Some(export),
                    Err(error) => {
                        warnings.push(error.to_string());
                        made = Some(export);
                    }
                },
                Ok(export) => made = Some(export),
                Err(error) if error.is_unfit() => {
                    warnings.push(format!("{error}: users of the old device get errors, and a new one is made"));
                    end(info.number, info.mark, options.patience)?;
                }
                // Its users wait on: the next try may succeed.
                Err(error) => return Err(error),
            }
        }
        let mut made = match made {
            Some(made) => made,
            None => UblkExport::make(runtime, volume, options)?,
        };
        made.warnings.extend(warnings);
        made.wanted = options.link_directory.clone().map(|directory| (directory, name.to_owned()));
        if let Some(wanted) = made.wanted_name() {
            match wanted.make() {
                Ok(link) => made.link = Some(link),
                Err(problem) => made.nameless = Some(problem),
            }
        }
        Ok(made)
    }

    fn make(runtime: &Runtime, volume: &VolumeRef, options: &UblkOptions) -> Result<UblkExport, UblkError> {
        support::check(&options.probe)?;
        let (wanted, queues) = (parameters(volume), runtime.reactors());
        let (mark, outlives) = (mark_of(options.owner), options.outlives);
        let info = on_control(options.patience, "making a ublk device", move |control| {
            let recovery = if outlives { control::RECOVERY } else { 0 };
            let optional = control.features & flag::UPDATE_SIZE;
            let info = DeviceInfo {
                queues,
                depth: DEPTH,
                state: 0,
                request_bytes_max: wanted.request_bytes_max,
                number: ANY_DEVICE,
                server_pid: 0,
                flags: control::BASE | recovery | optional,
                mark,
            };
            let info = control.add(&info)?;
            control.set_parameters(info.number, &wanted).inspect_err(|_| remove(control, info.number))?;
            Ok(info)
        })?;
        let served = serve(runtime, volume, &info).and_then(|(switch, endpoints)| {
            let number = info.number;
            on_control(options.patience, "starting a ublk device", move |control| control.start(number))?;
            wait_for_node(&block_path(number))?;
            if volume.read_only() {
                UblkHandle { number, path: block_path(number), patience: options.patience }.set_read_only(true)?;
            }
            Ok(UblkExport::of(&info, switch, endpoints, false, options))
        });
        served.inspect_err(|_| {
            if let Err(error) = end(info.number, info.mark, options.patience) {
                tracing::warn!("a ublk device that could not be started stays: {error}");
            }
        })
    }

    /// Goes on with a device whose server has ended.
    fn take_over(runtime: &Runtime, volume: &VolumeRef, info: &DeviceInfo, options: &UblkOptions) -> Result<UblkExport, UblkError> {
        let (number, patience) = (info.number, options.server_patience);
        let info = on_control(SERVER_PATIENCE * 2, "taking a ublk device over", move |control| {
            // The server before may be on its way out still.
            let info = succession::wait_for_server(control, number, patience)?;
            let known = control.parameters(number)?;
            Ok((info, known))
        });
        let (info, known) = info?;
        if let Some(problem) = misfit(&known, volume) {
            return Err(UblkError::unfit(number, &problem));
        }
        on_control(SERVER_PATIENCE * 2, "taking a ublk device over", move |control| succession::begin(control, number, patience))?;
        // What fails here leaves the device without a server, as it was.
        let (switch, endpoints) = serve(runtime, volume, &info)?;
        // From here on its queues are this process's: nobody else can have them while it lives.
        let ended = on_control(options.patience, "taking a ublk device over", move |control| control.end_recovery(number));
        let late = match ended {
            Ok(()) => None,
            // The kernel still waits for the queues, and users for the kernel; both go on when the reactors do.
            Err(error @ UblkError::TimedOut { .. }) => Some(error.to_string()),
            Err(error) => return Err(UblkError::unfit(number, &error.to_string())),
        };
        let mut made = UblkExport::of(&info, switch, endpoints, true, options);
        made.warnings.extend(late);
        let protected = made.handle().set_read_only(volume.read_only());
        made.warnings.extend(protected.err().map(|error| error.to_string()));
        let too_much = too_much_promised(&known, volume, &made.path);
        made.promises_too_much = too_much.is_some();
        made.warnings.extend(too_much);
        if volume.size_bytes() > known.size_bytes {
            made.warnings.extend(made.handle().set_size(volume.size_bytes()).err().map(|error| error.to_string()));
        }
        Ok(made)
    }

    fn of(info: &DeviceInfo, switch: Arc<Switch>, endpoints: EndpointGroup, was_taken_over: bool, options: &UblkOptions) -> UblkExport {
        succession::set_served_here(info.mark, true);
        UblkExport {
            number: info.number,
            mark: info.mark,
            path: block_path(info.number),
            switch,
            endpoints,
            link: None,
            wanted: None,
            nameless: None,
            warnings: Vec::new(),
            was_taken_over,
            promises_too_much: false,
            is_ending: false,
            patience: options.patience,
        }
    }

    fn wanted_name(&self) -> Option<Wanted> {
        let (directory, name) = self.wanted.clone()?;
        let (own, mark) = (self.path.clone(), self.mark);
        let is_anothers = Box::new(move |device: &Path| device != own && is_anothers(device, mark));
        Some(Wanted { directory, name, target: self.path.clone(), is_anothers })
    }

    /// How the stable name is now; what was made of it anew goes to [`UblkExport::set_link`].
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

    /// `/dev/ublkbN`.
    pub fn device_path(&self) -> &Path {
        &self.path
    }

    /// The stable name, if it could be made.
    pub fn link_path(&self) -> Option<&Path> {
        self.link.as_ref().map(Link::path)
    }

    /// What an administrator should know, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether an earlier daemon has made the device.
    pub fn was_taken_over(&self) -> bool {
        self.was_taken_over
    }

    /// What uses the device, for a message. Must not be called on a reactor's thread.
    pub fn users(&self) -> Option<String> {
        users(&self.path, self.patience)
    }

    /// See [`UblkHandle`].
    pub fn handle(&self) -> UblkHandle {
        UblkHandle { number: self.number, path: self.path.clone(), patience: self.patience }
    }

    /// Writes back what the page cache holds for the device, then takes it away. Gives what could not
    /// be written back: the kernel has dropped it by then. Must not be called on a reactor's thread.
    ///
    /// # Errors
    /// [`UblkError::InUse`], and nothing has changed. After any other error, call it again.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<Option<UblkError>, UblkError> {
        let in_use = |by| Err(UblkError::InUse { device: self.path.clone(), by });
        if let Some(by) = self.users() {
            return in_use(by);
        }
        let (path, number, mark, patience) = (self.path.clone(), self.number, self.mark, self.patience);
        let late = move || UblkError::TimedOut { step: "stopping a ublk device", seconds: patience.as_secs() };
        let go = move |may_stop: &dyn Fn() -> bool| -> io::Result<Result<Option<io::Error>, UblkError>> {
            // Held until the device has gone, so that nobody mounts it meanwhile.
            let claim = OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(&path)?;
            // An error may be of long ago; then the second try flushes the rest.
            let unflushed = claim.sync_all().err().inspect(|_| drop(claim.sync_all()));
            // After a timeout the device stays, however late the I/O ends that was waited for.
            let stop = || Control::open().and_then(|mut control| control.stop(number, mark));
            Ok(if may_stop() { stop().map(|()| unflushed) } else { Err(late()) })
        };
        let unflushed = match within_or_never(patience, "ublk-stop", go) {
            Some(Ok(stopped)) => stopped?,
            Some(Err(error)) if error.raw_os_error() == Some(libc::EBUSY) => return in_use("mounted just now".to_owned()),
            Some(Err(error)) if is_gone(&error) => None,
            Some(Err(error)) => return Err(UblkError::system(format!("open {}", self.path.display()))(error)),
            None => return Err(late()),
        };
        self.remove(runtime)?;
        let lost = |error: io::Error| UblkError::NotWrittenBack { device: self.path.clone(), problems: error.to_string() };
        Ok(unflushed.filter(|error| !is_gone(error)).map(lost))
    }

    /// Whether somebody else has taken the device away, so that its number may be another's.
    pub fn is_lost(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// The device goes, whoever uses it.
    fn remove(&mut self, runtime: &Runtime) -> Result<(), UblkError> {
        // The name goes while the number is still ours.
        self.link = None;
        let (number, mark) = (self.number, self.mark);
        on_control(self.patience, "stopping a ublk device", move |control| control.stop(number, mark))?;
        let stopped = runtime.stop_endpoints(&self.endpoints, END_PATIENCE);
        stopped.map_err(|_| UblkError::TimedOut { step: "ending a ublk device", seconds: END_PATIENCE.as_secs() })?;
        on_control(self.patience, "removing a ublk device", move |control| control.end(number, mark))?;
        succession::set_served_here(mark, false);
        Ok(())
    }

    /// Takes the device away under its users: what lies in memory above it is written back as far as
    /// the patience allows (without any, nothing is), and users get errors from then on. Gives what was not written back.
    ///
    /// # Errors
    /// The device is still there, and its users get errors: call it again.
    pub fn abandon(&mut self, runtime: &Runtime, patience: Duration) -> Result<Option<UblkError>, UblkError> {
        // What has failed once is not in memory any more.
        let written_back = if self.is_ending { Ok(()) } else { self.write_back(patience) };
        self.is_ending = true;
        // The kernel waits for what it has handed over.
        self.switch.fail();
        self.remove(runtime).map(|()| written_back.err())
    }

    /// Whether it was to go, and did not.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// The end of this daemon, and not of the device: what lies in memory above it is written back as
    /// far as the patience allows, requests in flight are answered, and later ones wait for the next
    /// daemon.
    ///
    /// # Errors
    /// What went wrong first. The device waits all the same.
    pub fn park(self, runtime: &Runtime, patience: Duration) -> Result<(), UblkError> {
        let written_back = self.write_back(patience);
        self.leave(runtime).and(written_back)
    }

    /// Leaves the device to the next daemon. Requests in flight are answered first.
    ///
    /// # Errors
    /// If they are not in time: then the next daemon carries them out again.
    pub fn leave(mut self, runtime: &Runtime) -> Result<(), UblkError> {
        if let Some(link) = self.link.take() {
            link.leave();
        }
        let is_quiet = self.switch.pause(END_PATIENCE);
        // The kernel gives its commands back when this process ends, and not before.
        runtime.leave_endpoints(&self.endpoints);
        succession::set_served_here(self.mark, false);
        let seconds = END_PATIENCE.as_secs();
        if is_quiet { Ok(()) } else { Err(UblkError::TimedOut { step: "answering what is in flight", seconds }) }
    }

    fn write_back(&self, patience: Duration) -> Result<(), UblkError> {
        if patience.is_zero() {
            return Ok(());
        }
        let path = self.path.clone();
        // The number stays ours as long as the device is served.
        let opens: Opens = Arc::new(move || open(&path).map(Some));
        write_back(&self.path, &opens, patience.min(self.patience))
            .map_err(|problems| UblkError::NotWrittenBack { device: self.path.clone(), problems: problems.join("; ") })
    }

    /// Users wait from now on. What is in flight is waited for; what does not end in that time is asked again of the volume that comes.
    pub fn suspend(&self) {
        self.switch.pause(END_PATIENCE);
    }

    /// Whether all has ended that was in flight at [`UblkExport::suspend`].
    pub fn is_quiet(&self) -> bool {
        self.switch.is_quiet()
    }

    /// Users go on, with this volume. Gives what an administrator should know, a sentence each.
    ///
    /// # Errors
    /// [`UblkError::Unfit`] if it is not what the device promises, or its users got errors already. Nothing has changed then, nor after any
    /// other.
    pub fn resume(&self, volume: &VolumeRef) -> Result<Vec<String>, UblkError> {
        let number = self.number;
        if self.is_ending {
            return Err(UblkError::unfit(number, "its users got errors already"));
        }
        let known = on_control(self.patience, "looking at a ublk device", move |control| control.parameters(number))?;
        if let Some(problem) = misfit(&known, volume) {
            return Err(UblkError::unfit(number, &problem));
        }
        self.switch.resume(volume.clone());
        let has_grown = volume.size_bytes() > known.size_bytes;
        let told = has_grown.then(|| self.handle().set_size(volume.size_bytes()).err().map(|error| error.to_string())).flatten();
        let protected = self.handle().set_read_only(volume.read_only());
        Ok(told.into_iter().chain(protected.err().map(|error| error.to_string())).collect())
    }
}

impl Drop for UblkExport {
    fn drop(&mut self) {
        // The volume may go, and users are not to take that for the end of the device.
        if !self.is_ending {
            self.switch.pause(Duration::ZERO);
        }
    }
}

/// What can be asked of a device, and told to it, without the export.
#[derive(Clone, Debug)]
pub struct UblkHandle {
    number: u32,
    path: PathBuf,
    patience: Duration,
}

impl UblkHandle {
    /// The volume has this size now.
    ///
    /// # Errors
    /// [`UblkError::KeepsSize`] before Linux 6.16.
    pub fn set_size(&self, size_bytes: u64) -> Result<(), UblkError> {
        let (number, path) = (self.number, self.path.clone());
        on_control(self.patience, "setting the size of a ublk device", move |control| {
            if !control.can_resize() || control.info(number)?.flags & flag::UPDATE_SIZE == 0 {
                return Err(UblkError::KeepsSize { device: path });
            }
            control.resize(number, size_bytes)
        })
    }

    /// The volume is read-only now, or is not any more: so is the device. Must not be called on a reactor's thread.
    ///
    /// # Errors
    /// [`UblkError::StaysReadOnly`] of one that an earlier version has made, or the system's: the device is as it was, and the volume decides
    /// about each write.
    pub fn set_read_only(&self, is_read_only: bool) -> Result<(), UblkError> {
        let (number, path) = (self.number, self.path.clone());
        on_control(self.patience, "setting whether a ublk device is read-only", move |control| {
            if !is_read_only && control.parameters(number)?.read_only {
                return Err(UblkError::StaysReadOnly { device: path });
            }
            let set = open(&path).and_then(|node| write_protect::set(&node, is_read_only));
            set.map_err(UblkError::system(format!("set up {}", path.display())))
        })
    }

    /// See [`UblkExport::users`].
    pub fn users(&self) -> Option<String> {
        users(&self.path, self.patience)
    }
}

fn users(path: &Path, patience: Duration) -> Option<String> {
    let device = path.to_owned();
    let look = move || match open(&device).and_then(|node| node.metadata()) {
        // Closed again: it would be found as a user of its own.
        Ok(facts) => users_of(facts.rdev(), &device),
        Err(error) if is_gone(&error) => None,
        // Nothing is taken away under somebody unseen.
        Err(error) => Some(format!("what uses it cannot be found out ({error})")),
    };
    within(patience, "ublk-users", look).unwrap_or_else(|| Some("what uses it cannot be found out in time".to_owned()))
}

/// Whether there is no such device any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)
}

/// Carries commands out on a thread of their own: the kernel may take its time.
pub(crate) fn on_control<T: Send + 'static>(
    patience: Duration,
    step: &'static str,
    work: impl FnOnce(&mut Control) -> Result<T, UblkError> + Send + 'static,
) -> Result<T, UblkError> {
    within(patience, "ublk-control", move || work(&mut Control::open()?))
        .unwrap_or(Err(UblkError::TimedOut { step, seconds: patience.as_secs() }))
}

/// Removes a device that nobody could have used yet.
fn remove(control: &mut Control, number: u32) {
    if let Err(error) = control.delete(number) {
        tracing::warn!("{error}");
    }
}

/// The longest request in bytes. One that is longer is cut by the block layer where a physical block ends; one of more pages than a request may
/// have is cut anywhere, so where units are to stay whole, a request is too short for that.
fn request_bytes_max(volume: &VolumeRef) -> u32 {
    let most = volume.request_bytes_max() / 4096 * 4096;
    match volume.atomic_bytes() {
        None => most,
        // With so little memory that a unit is no request, there are none of several pages.
        Some(unit_bytes) => (most.min(SEGMENTS_MAX * 4096 - unit_bytes) / unit_bytes * unit_bytes).max(4096),
    }
}

fn parameters(volume: &VolumeRef) -> Parameters {
    Parameters {
        size_bytes: volume.size_bytes(),
        block_bytes: volume.logical_block_bytes(),
        physical_bytes: volume.physical_block_bytes(),
        request_bytes_max: REQUEST_BYTES_MAX.min(request_bytes_max(volume)),
        // The driver would hold to that as long as the device is there: it is set by [`UblkHandle::set_read_only`].
        read_only: false,
        can_discard: volume.can_discard(),
    }
}

/// Why the volume, as it is now, is not what the device promises.
fn misfit(known: &Parameters, volume: &VolumeRef) -> Option<String> {
    if volume.size_bytes() < known.size_bytes {
        return Some(format!("the volume has {} bytes now, and the device {}", volume.size_bytes(), known.size_bytes));
    }
    if volume.logical_block_bytes() != known.block_bytes {
        let sectors = [volume.logical_block_bytes(), known.block_bytes];
        return Some(format!("the volume has sectors of {} bytes now, and the device of {}", sectors[0], sectors[1]));
    }
    if volume.request_bytes_max() < known.request_bytes_max {
        return Some("the volume takes shorter requests now".to_owned());
    }
    None
}

/// A device that an earlier version has made, or over another disk, says more of its physical blocks than holds. That cannot be changed while the device exists.
fn too_much_promised(known: &Parameters, volume: &VolumeRef, device: &Path) -> Option<String> {
    let (says, holds) = (known.physical_bytes, volume.physical_block_bytes());
    (says > holds).then(|| {
        let device = device.display();
        format!(
            "{device} says that its physical blocks have {says} bytes, and those of the backing device have {holds}: do not rely on writes of \
             more as a whole; unmount it, then restart the daemon, and it is created again"
        )
    })
}

/// Puts the queues on the reactors: they fetch all tags.
fn serve(runtime: &Runtime, volume: &VolumeRef, info: &DeviceInfo) -> Result<(Arc<Switch>, EndpointGroup), UblkError> {
    let path = char_path(info.number);
    let cannot = || UblkError::system(format!("open {}", path.display()));
    wait_for_node(&path)?;
    let mut opened = Err(io::Error::from_raw_os_error(libc::EBUSY));
    // The one before may be letting go still.
    wait_until(NODE_PATIENCE, || {
        opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&path);
        !matches!(&opened, Err(error) if error.raw_os_error() == Some(libc::EBUSY))
    });
    let device = Arc::new(OwnedFd::from(opened.map_err(cannot())?));
    let switch = Arc::new(Switch::new(volume.clone(), info.queues).map_err(cannot())?);
    let queue = |number| {
        let table = Table::map(&*device, number, info.depth).map_err(cannot())?;
        Ok(Queue::new(device.clone(), table, switch.clone(), number, info.depth, info.request_bytes_max))
    };
    let queues: Vec<Queue> = (0..info.queues).map(queue).collect::<Result<_, UblkError>>()?;
    let mut endpoints: Option<EndpointGroup> = None;
    for (number, queue) in queues.into_iter().enumerate() {
        match &endpoints {
            None => endpoints = Some(runtime.add_endpoint(Box::new(queue))),
            Some(group) => {
                let reactor = (number % usize::from(runtime.reactors())) as u16;
                runtime.add_endpoint_on(reactor, group, Box::new(queue));
            }
        }
    }
    let endpoints = endpoints.ok_or_else(|| UblkError::system("serve a ublk device")(io::Error::other("it has no queues")))?;
    Ok((switch, endpoints))
}

/// Nodes come from devtmpfs, or from udev a little later.
fn wait_for_node(path: &Path) -> Result<(), UblkError> {
    if wait_until(NODE_PATIENCE, || path.exists()) {
        return Ok(());
    }
    Err(UblkError::system(format!("find {}", path.display()))(io::Error::from_raw_os_error(libc::ENOENT)))
}

/// Whether a daemon that lives serves the ublk device at `path`; of another device, whether it is
/// there.
pub(crate) fn is_served_device(path: &Path) -> bool {
    look_at(path).map_or_else(|| is_there(path), |info| info.is_some_and(|info| control::is_served(&info)))
}

/// Whether the device at `path`, to which the stable name of the device with that mark leads, keeps it: another daemon serves it, or its users wait
/// for the daemon which they had. Another device of this process does not, since numbers are given out again. One that waits may be another
/// of this daemon, which it has not taken over yet: then the name comes a little later.
fn is_anothers(path: &Path, mark: u64) -> bool {
    let is_it = |info: DeviceInfo| match control::is_served(&info) {
        true => !succession::is_served_here(&info),
        false => left::is_marked(&info) && info.mark != mark,
    };
    look_at(path).map_or_else(|| is_there(path), |info| info.is_some_and(is_it))
}

/// What the driver says of the device at `path`, if there is one; `None` if the path is not one of a ublk device.
fn look_at(path: &Path) -> Option<Option<DeviceInfo>> {
    let number = path.file_name()?.to_str()?.strip_prefix("ublkb")?.parse().ok()?;
    Some(Control::open().and_then(|mut control| control.info(number)).ok())
}
