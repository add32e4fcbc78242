//! A loop export that goes from one daemon to the next: its users see a pause and nothing else.
//!
//! ```text
//!   daemon 1   kept() ─▶ somebody holds the descriptors      killed, or park()
//!   daemon 2                                                                    ─▶ take_over()
//! ```
//! Meanwhile the kernel holds the device's requests. What makes the export is in the header of its
//! table of requests: see [`Facts`].

use crate::connection::Connection;
use crate::error::FuseError;
use crate::export::{END_PATIENCE, FileExport, LoopExport, LoopOptions, canonical, check_name};
use crate::file::VolumeFile;
use crate::loopdev::LoopDevice;
use crate::mount::Mount;
use crate::ownloop::{OwnLoop, mark_of};
use crate::protocol::Negotiated;
use crate::table::Table;
use node::patience::within;
use runtime::{Runtime, VolumeRef};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What a daemon must know of an export that it takes over.
#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    /// The name of the volume.
    #[serde(default)]
    name: String,
    /// What the loop device is known by.
    mark: Vec<u8>,
    /// The number of the loop device.
    number: u32,
    /// Device and inode of the file below it.
    file: (u64, u64),
    /// The number of the file system, as the mount table writes it.
    mount: String,
    /// Device and inode of the empty file that is mounted over.
    below: Option<(u64, u64)>,
    size_bytes: u64,
    block_bytes: u32,
    can_discard: bool,
    /// See [`LoopDevice::stays_read_only`].
    read_only: bool,
    negotiated: Negotiated,
    /// Settings of the device's queue, as they were.
    before: Vec<(PathBuf, String)>,
}

impl LoopExport {
    /// What has to stay open so that the export outlives this process; `None` if it cannot.
    pub fn kept(&self) -> Option<[BorrowedFd<'_>; 2]> {
        let connection = self.file.connection.as_ref().filter(|_| self.file.can_be_taken_over())?;
        Some([connection.as_fd(), self.file.table.memory()])
    }

    /// Whether writes that are under way when the daemon is killed are carried out by the next;
    /// else they fail.
    pub fn repeats_writes(&self) -> bool {
        self.file.negotiated.can_resend
    }

    /// Writes down what the next daemon must know.
    ///
    /// # Errors
    /// A sentence for the administrator: the export works all the same.
    pub(crate) fn note_facts(&self) -> Result<(), String> {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let (mount, below) = self.file.mount.facts();
        let facts = Facts {
            name: self.name.clone(),
            mark: self.mark.clone(),
            number: self.own.number(),
            file: self.own.file(),
            mount: mount.to_owned(),
            below,
            size_bytes: self.file.file.size_bytes,
            block_bytes: self.file.file.block_bytes,
            can_discard: self.file.file.can_discard,
            read_only: device.stays_read_only(),
            negotiated: self.file.negotiated,
            before: device.settings_before().to_vec(),
        };
        let text = serde_json::to_vec(&facts).map_err(std::io::Error::from);
        text.and_then(|text| self.file.table.set_facts(&text))
            .map_err(|error| format!("{} ends when the daemon is killed ({error})", self.device_path.display()))
    }

    /// Goes on with an export that an earlier daemon has made of the same volume, of whose
    /// descriptors these are copies. Requests that wait are served from here on.
    ///
    /// # Errors
    /// [`FuseError::NotTakenOver`] if nobody can: when its descriptors are closed everywhere, users of the device get errors. After any
    /// other, all is as before, and the next try may succeed with other copies.
    pub fn take_over(
        runtime: &Runtime,
        volume: &VolumeRef,
        name: &str,
        run_directory: &Path,
        options: &LoopOptions,
        kept: Vec<OwnedFd>,
    ) -> Result<LoopExport, FuseError> {
        check_name(name)?;
        let refused = |problem: &str| FuseError::NotTakenOver { name: name.to_owned(), problem: problem.to_owned() };
        let [connection, memory] = <[OwnedFd; 2]>::try_from(kept).map_err(|_| refused("what was kept of it is not complete"))?;
        let (table, text) = Table::of_earlier(memory).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => refused(&error.to_string()),
            _ => FuseError::system("map", "the table of its requests")(error),
        })?;
        let facts: Facts = serde_json::from_slice(&text).map_err(|_| refused("it was not complete"))?;
        let mark = mark_of(&options.owner, name);
        if facts.mark != mark {
            return Err(refused("it is of another volume"));
        }
        if let Some(problem) = misfit(&facts, volume) {
            return Err(refused(&problem));
        }
        let path = canonical(run_directory)?.join(name);
        let file = VolumeFile { size_bytes: facts.size_bytes, block_bytes: facts.block_bytes, can_discard: facts.can_discard };
        let second = connection.try_clone().map_err(FuseError::system("duplicate", "/dev/fuse"))?;
        let mut mount = Mount::taken_over(&path, facts.mount.clone(), facts.below)?;
        let (table, negotiated) = (Arc::new(table), facts.negotiated);
        let endpoint = Connection::taken_over(
            second,
            volume.clone(),
            file,
            negotiated.request_bytes_max,
            table.clone(),
            negotiated.can_resend && !options.without_resend,
        );
        let endpoints = runtime.add_endpoint(Box::new(endpoint));
        // From here on requests are served, before the device is asked whose it is: to answer, the kernel may ask the file below for its
        // attributes. Who drops the mount ends the export.
        let own = match known_served(&facts, options.patience) {
            Ok(Some(own)) => own,
            Ok(None) => {
                let _ = runtime.stop_endpoints(&endpoints, Duration::ZERO);
                return Err(refused("its loop device is gone"));
            }
            Err(error) => {
                mount.leave();
                let _ = runtime.stop_endpoints(&endpoints, Duration::ZERO);
                return Err(error);
            }
        };
        let file = FileExport { mount, endpoints, path, negotiated, file, connection: Some(connection), table };
        let device = LoopDevice::taken_over(own.clone(), facts.read_only, facts.before);
        let mut made = LoopExport::of(device, own, mark, file, name, options);
        made.catch_up(volume, facts.size_bytes);
        made.make_link();
        Ok(made)
    }

    /// What has changed while nobody served it. `known_bytes`: the size that the kernel knows. Its requests must be answered meanwhile: the
    /// kernel lets those in flight end first.
    fn catch_up(&mut self, volume: &VolumeRef, known_bytes: u64) {
        let stays = self.device.clone();
        let stay = move || stays.lock().unwrap_or_else(PoisonError::into_inner).stay();
        match within(self.patience, "loop-stay", stay) {
            Some(Ok(())) => {}
            Some(Err(error)) => self.warnings.push(format!("the device goes when its last user does: {error}")),
            None => self.warnings.push("the device may go when its last user does: it does not answer".to_owned()),
        }
        let size_bytes = volume.size_bytes();
        let grown = if size_bytes > known_bytes { self.capacity_changed(size_bytes) } else { Ok(()) };
        self.warnings.extend(grown.err());
        let protected = self.set_read_only(volume.read_only());
        self.warnings.extend(protected.err());
    }

    /// Nobody serves the export for a while: its users wait until it is taken over. Requests in
    /// flight are not waited for, and their answers are not told: whoever takes it over carries
    /// them out again. So what they were given to must not act any more by then.
    ///
    /// # Errors
    /// The system's: then the export goes, and its users get errors.
    pub fn suspend(mut self, runtime: &Runtime) -> Result<Vec<OwnedFd>, FuseError> {
        let descriptors = self.kept().into_iter().flatten();
        let copies = descriptors.map(|descriptor| descriptor.try_clone_to_owned().map_err(FuseError::system("duplicate", "/dev/fuse")));
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        // Who still takes a planned stop back holds the device until its requests are answered: so
        // this comes before they are answered no more.
        let device = self.device.clone();
        let let_be = move || device.lock().unwrap_or_else(PoisonError::into_inner).let_be();
        within(END_PATIENCE, "loop-let-be", let_be)
            .ok_or(FuseError::TimedOut { step: "leaving the loop device", seconds: END_PATIENCE.as_secs() })?;
        runtime
            .stop_endpoints(&self.file.endpoints, Duration::ZERO)
            .map_err(|_| FuseError::TimedOut { step: "ending the FUSE connection", seconds: END_PATIENCE.as_secs() })?;
        self.file.mount.leave();
        // Whoever takes it over makes the name again, of the same device.
        if let Some(link) = self.link.take() {
            link.leave();
        }
        Ok(copies)
    }

    /// The end of this daemon, and not of the export: what file systems and page caches hold is
    /// written back as far as the patience allows, requests in flight are answered, and later ones
    /// wait for the next daemon. If there is none, the device goes when its last user does.
    ///
    /// # Errors
    /// What went wrong first. The export is parked all the same.
    pub fn park(mut self, runtime: &Runtime, patience: Duration) -> Result<(), FuseError> {
        let written_back = self.own.write_back(patience.min(self.patience));
        // Somebody else may have the number before it is served again.
        self.link = None;
        let device = self.device.clone();
        let leave = move || device.lock().unwrap_or_else(PoisonError::into_inner).leave();
        let left = within(END_PATIENCE, "loop-leave", leave)
            .unwrap_or(Err(FuseError::TimedOut { step: "leaving the loop device", seconds: END_PATIENCE.as_secs() }));
        self.file.mount.leave();
        let stopped = runtime
            .stop_endpoints(&self.file.endpoints, END_PATIENCE)
            .map_err(|_| FuseError::TimedOut { step: "ending the FUSE connection", seconds: END_PATIENCE.as_secs() });
        let written_back =
            written_back.map_err(|problems| FuseError::NotWrittenBack { device: self.device_path.clone(), problems: problems.join("; ") });
        left.and(stopped).and(written_back)
    }
}

/// The volume whose export these descriptors are of, as it was written down.
pub fn volume_of_kept(kept: &[OwnedFd]) -> Option<String> {
    let (_, text) = Table::of_earlier(kept.get(1)?.try_clone().ok()?).ok()?;
    serde_json::from_slice::<Facts>(&text).ok().map(|facts| facts.name)
}

/// Ends an export of a daemon that does not come back: its users get errors, and its device goes
/// when they have closed it. `let_go` makes the keeper close its copies. Gives the device, and the
/// name of the volume.
///
/// # Errors
/// [`FuseError::NotTakenOver`] if it is no export of ours; the descriptors are closed all the same.
pub fn end_kept(name: &str, kept: Vec<OwnedFd>, let_go: impl FnOnce()) -> Result<(PathBuf, String), FuseError> {
    let refused = |problem: &str| FuseError::NotTakenOver { name: name.to_owned(), problem: problem.to_owned() };
    let facts = <[OwnedFd; 2]>::try_from(kept).map_err(|_| refused("what was kept of it is not complete")).and_then(|[_, memory]| {
        let (_, text) = Table::of_earlier(memory).map_err(|error| refused(&error.to_string()))?;
        serde_json::from_slice::<Facts>(&text).map_err(|_| refused("it was not complete"))
    });
    let_go();
    let facts = facts?;
    // Somebody else may hold copies of the descriptors: then the file below may never answer.
    let own = known_served(&facts, END_PATIENCE)?.ok_or_else(|| refused("its loop device is gone"))?;
    LoopDevice::taken_over(own.clone(), facts.read_only, facts.before).abandon()?;
    Ok((own.path(), facts.name))
}

/// The device of the export, `None` if it is gone or another's by now. The kernel may ask the file below for its attributes to answer.
fn known_served(facts: &Facts, patience: Duration) -> Result<Option<OwnLoop>, FuseError> {
    let (number, file, mark) = (facts.number, facts.file, facts.mark.clone());
    let late = || FuseError::TimedOut { step: "looking at the loop device", seconds: patience.as_secs() };
    within(patience, "loop-known", move || OwnLoop::known(number, file, &mark)).unwrap_or_else(|| Err(late()))
}

/// Why the volume, as it is now, is not what the device promises.
fn misfit(facts: &Facts, volume: &VolumeRef) -> Option<String> {
    if volume.size_bytes() < facts.size_bytes {
        return Some(format!("the volume has {} bytes now, and the device {}", volume.size_bytes(), facts.size_bytes));
    }
    if volume.logical_block_bytes() != facts.block_bytes {
        return Some(format!(
            "the volume has sectors of {} bytes now, and the device of {}",
            volume.logical_block_bytes(),
            facts.block_bytes
        ));
    }
    None
}
