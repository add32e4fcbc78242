//! What management needs of the kernel's device mapper to attach a volume to a device that is in use.
//!
//! The device ("vg-lv") keeps its name, its number and its users. What it lies on becomes a hidden device beside it, the volume's
//! *origin*, which is the backing device of the volume; and the device's table becomes one line that leads to the volume's block device.
//! Which table the device has decides where its requests go, and nothing else does: it leads *here*, or *past* hearth.

use api::error::{ControlError, Kind};
use records::state::{Attachment, Kept, VolumeRecord};
use std::time::Duration;

/// What a mapped device is like that a volume may be attached to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MappedFacts {
    /// Its name: "vg-lv".
    pub name: String,
    /// The device mapper's UUID of it; empty if it has none.
    pub uuid: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its sectors.
    pub sector_bytes: u32,
}

/// Where the requests of an attached device go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    /// To the volume.
    Here,
    /// Past hearth, to what another program has told it.
    Past,
    /// It is being changed by another program just now.
    Changing,
    /// There is no such device.
    Nowhere,
}

/// How a device got a table that leads to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swapped {
    /// For how long its requests waited, at most.
    pub pause: Duration,
}

/// What the kernel has counted of a mapped device since it was made, whatever table it had.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// The boot of the machine.
    pub boot: String,
    /// The kernel's number for this making of the device (`diskseq`).
    pub instance: u64,
    /// Writes and discards that have ended.
    pub writes: u64,
    /// Somebody has it open: it is mounted, or under another device.
    pub is_open: bool,
}

impl Passed {
    /// Whether nothing has been written through the device since that was noted. After another boot the device was made anew: then
    /// that holds if it has not been written at all, and nothing was to be expected before.
    #[must_use]
    pub fn nothing_since(&self, kept: &Kept) -> bool {
        match self.boot == kept.boot {
            true => (self.instance, self.writes) == (kept.instance, kept.writes),
            false => kept.for_next_boot && self.writes == 0,
        }
    }
}

/// Refuses a device that a volume is attached to already.
///
/// # Errors
/// Which volume that is.
pub fn check_not_attached(path: &str, name: &str, uuid: &str, attached: &[(String, Attachment)]) -> Result<(), ControlError> {
    let is_it = |known: &Attachment| if known.uuid.is_empty() { known.device == name } else { known.uuid == uuid };
    let Some((volume, _)) = attached.iter().find(|(_, known)| is_it(known)) else { return Ok(()) };
    Err(ControlError::Device {
        path: path.into(),
        problem: format!("it is attached already, as the volume \"{volume}\""),
        remedy: format!("see `hearth volume show {volume}`, or detach it with `hearth detach {volume}`"),
        kind: Kind::Conflict,
    })
}

/// Whether a table that is loaded but not in force is hearth's own, of a swap that was cut off: it leads here, or is that of the `origin`.
#[must_use]
pub fn is_left_over(inactive: &str, attachment: &Attachment, origin: Option<&str>) -> bool {
    origin == Some(inactive) || attachment.tables.iter().any(|table| table == inactive)
}

/// The device mapper, as far as volumes are attached to its devices.
pub trait MappedDevices {
    /// Looks at a device that is to be attached; changes nothing.
    ///
    /// # Errors
    /// If it cannot be: it is no mapped device, one of the volumes in `attached` is attached to it, its targets cannot be had twice,
    /// it is suspended, swap, or carries `own`, a file that hearth needs itself.
    fn examine(&self, path: &str, own: &[String], attached: &[(String, Attachment)]) -> Result<MappedFacts, ControlError>;

    /// Where the device of an attached volume leads. What is left there of a swap of hearth's that was cut off is taken away.
    ///
    /// # Errors
    /// If the kernel does not tell.
    fn leads(&self, volume: &VolumeRecord) -> Result<Leads, ControlError>;

    /// Where the origin of a volume is to be found.
    fn origin_path(&self, volume: &str) -> String;

    /// Sees to it that the volume's origin is there: if the device leads past hearth, the origin gets the table that the device has.
    /// Gives where the device leads. The volume is not attached.
    ///
    /// # Errors
    /// If there is no such device, or its table cannot be had twice.
    fn lay_origin(&self, volume: &VolumeRecord) -> Result<Leads, ControlError>;

    /// The table that leads to the volume's block device at `place`.
    ///
    /// # Errors
    /// If the device does not have the size or the sectors of the volume.
    fn table_to(&self, volume: &VolumeRecord, place: &str) -> Result<String, ControlError>;

    /// Gives the device a table that [`MappedDevices::table_to`] made, in place of one of the attachment's; or, if it `may_lead_past`
    /// hearth, in place of the origin's. What it leads to is decided while no other program can change it.
    ///
    /// # Errors
    /// If it has another table, or the kernel refuses; then the device is as it was.
    fn lead_here(&self, volume: &VolumeRecord, table: &str, may_lead_past: bool) -> Result<Swapped, ControlError>;

    /// Gives the device the table of the origin. Of one that leads past hearth already nothing is changed.
    ///
    /// # Errors
    /// If the kernel refuses; then the device is as it was.
    fn lead_past(&self, volume: &VolumeRecord) -> Result<Swapped, ControlError>;

    /// What has passed through the device of a volume so far. `None` if the kernel does not count it, or there is no such device.
    ///
    /// # Errors
    /// If the kernel does not tell.
    fn passed(&self, volume: &VolumeRecord) -> Result<Option<Passed>, ControlError>;

    /// Swap areas that lie on the device of a volume by now.
    ///
    /// # Errors
    /// If the kernel does not tell.
    fn swap_areas(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError>;

    /// Whether the machine is going down: nothing more will be mounted.
    fn machine_ends(&self) -> bool;

    /// Whether somebody has the origin open: also a daemon that was killed, as long as the kernel carries
    /// out what it had asked of its disk.
    ///
    /// # Errors
    /// If the kernel does not tell.
    fn origin_in_use(&self, volume: &VolumeRecord) -> Result<bool, ControlError>;

    /// Removes the origin, if there is one. The volume is not attached, and its device leads past hearth.
    ///
    /// # Errors
    /// If somebody has it open.
    fn remove_origin(&self, volume: &VolumeRecord) -> Result<(), ControlError>;
}
