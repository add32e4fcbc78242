//! The seam: what every export does. No method has a default body.

use crate::answers::{Absence, ExportError, Offer, Users, Withdrawal};
use crate::site::{Owner, Volume};
use crate::ways::Way;
use crate::word::Export;
use device::below::BlockBelow;
use runtime::VolumeRef;
use std::os::fd::OwnedFd;

/// One kind of export, of all volumes. Calls about one volume come one at a time, but for [`Exporter::users`].
pub trait Exporter: Send + Sync {
    /// What it offers. The first is its own name.
    fn ways(&self) -> &'static [&'static Way];

    /// Whether the place can be had on this machine, where it matters: when somebody names it.
    ///
    /// # Errors
    /// [`ExportError::BadPlace`].
    fn check(&self, export: Export) -> Result<(), ExportError>;

    /// Offers an attached volume. Users who wait for it since before are served on.
    ///
    /// # Errors
    /// Then it is not offered; users who wait, wait on.
    fn offer(&self, volume: &Volume<'_>, reference: &VolumeRef, export: Export) -> Result<Offer, ExportError>;

    /// Takes the offer back; what is in flight is answered first. It is no failure if there is none. Gives, as a sentence, what was
    /// acknowledged by the kernel and could not be written: it is lost.
    ///
    /// # Errors
    /// It is in use; then, and after any other error, it may be there still.
    fn withdraw(&self, volume: &Volume<'_>, export: Export, how: Withdrawal) -> Result<Option<String>, ExportError>;

    /// Who uses it so that it must not be taken away now.
    fn users(&self, volume: &Volume<'_>, export: Export) -> Users;

    /// Whether its users wait until the volume is offered again.
    fn outlives(&self, volume: &Volume<'_>, export: Export, absence: Absence) -> bool;

    /// Which of the volumes a block device of this machine is: a device of this export, or one that a client has made of it. What lies
    /// on it waits for this daemon.
    fn volume_on(&self, device: &BlockBelow, volumes: &[Volume<'_>]) -> Option<String>;

    /// The volume has this size now: its users are informed, where that can be. Gives what an administrator should know.
    fn grow(&self, owner: Owner, size_bytes: u64) -> Vec<String>;

    /// The list of names that may use it has changed.
    fn set_names(&self, volume: &Volume<'_>);

    /// These volumes are about to be offered: clients that ask for them meanwhile wait, where they can.
    fn expect(&self, volumes: &[Volume<'_>]);

    /// Users who have waited too long for a volume, or wait for one that does not come, get errors. Those of [`crate::kept`] are not
    /// among them. Gives the names of the volumes.
    fn close_overdue(&self, known: &[Volume<'_>], busy: &[String]) -> Vec<String>;

    /// The volume does not have the content that its users knew: those who wait get errors. Those of [`crate::kept`] are not among them.
    fn end_waiting(&self, volume: &Volume<'_>);

    /// The volume is not attached any more; what did not go before goes now, or is kept until it does.
    fn detached(&self, volume: &Volume<'_>);

    /// The daemon ends: nothing is offered any more.
    fn finish(&self);

    /// The kind of what it keeps open for the next daemon ([`crate::kept`]); `None`: it keeps nothing there.
    fn keeps(&self) -> Option<&'static str>;

    /// Ends what is kept open under a name of this kind: its users get errors. `false`: it did not end, and is ended later.
    fn end_kept(&self, name: &str, set: Vec<OwnedFd>) -> bool;
}

/// Whether this machine can do something.
pub enum Support {
    /// It can.
    Yes,
    /// It cannot, since: a clause.
    No(String),
}

/// An export that is a block device of this machine.
pub trait BlockExporter: Exporter {
    /// Whether the volume has such a device.
    fn has(&self, volume: &Volume<'_>) -> bool;

    /// Whether users of such a device wait for the volume: it goes on with that and no other.
    fn is_awaited(&self, volume: &Volume<'_>) -> bool;

    /// Whether this machine offers it.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn support(&self) -> Result<Support, ExportError>;

    /// How the stable name of the volume's device is; one that is missing is made again if that can be. `None`: it is to have none.
    ///
    /// # Errors
    /// Why it cannot be made: a sentence that ends with what to use instead.
    fn stable_name(&self, owner: Owner) -> Option<Result<String, String>>;

    /// Whether a disk of this kernel's name ("ublkb0") may wait for a daemon of hearth where the kernel does not show that a program
    /// serves it.
    fn waits_unseen(&self, disk: &str) -> bool;

    /// Whether somebody else took the device away, so that its number may be another's.
    fn is_lost(&self, owner: Owner) -> bool;

    /// The volume is not offered: what a killed daemon left of its device is cleared, stable name first. What users wait for stays, and
    /// what belongs to others.
    fn clear(&self, volume: &Volume<'_>);

    /// The device refuses writes from now on, or takes them.
    ///
    /// # Errors
    /// The kernel's.
    fn set_read_only(&self, owner: Owner, read_only: bool) -> Result<(), ExportError>;

    /// Whether nothing is under way of a device whose users wait for the volume's pool.
    ///
    /// # Errors
    /// If something is.
    fn check_quiet(&self, volume: &Volume<'_>) -> Result<(), ExportError>;
}
