//! The kernel's device mapper, by its own ioctls: what devices there are, what their tables say, and how a live device gets another table.
//!
//! A device keeps its name, its number and everybody who has it open while its table is replaced. [`Mapper::load`] puts the new table beside
//! the old one; [`Mapper::swap`] then suspends the device, which waits for the requests in flight, exchanges the tables, and resumes it.
//! Requests that come meanwhile wait; they see nothing but a pause. linux/dm-ioctl.h is the reference for everything here.

mod ioctl;
mod table;

pub use table::{Number, Table, TableError, Target};

use ioctl::{Call, Flags, Request};
use std::fs::{File, OpenOptions};
use std::io;

/// What the device mapper is asked by.
const CONTROL: &str = "/dev/mapper/control";

/// What udev's rules for mapped devices obey, in the upper half of the cookie: a device that is nobody's business but its maker's. No link by
/// what lies on it, no scan, no unit of systemd's.
const HIDDEN_FROM_UDEV: u32 = (0x2 | 0x4 | 0x8 | 0x20 | 0x40) << 16;

/// Why the device mapper did not do what it was asked for.
#[derive(thiserror::Error, Debug)]
pub enum MapperError {
    /// The kernel has no device mapper, or nobody may ask it.
    #[error("the kernel's device mapper cannot be asked ({source}): load the module dm-mod, and run hearth as root")]
    NoMapper {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no device of that name.
    #[error("there is no mapped device {which}")]
    Unknown {
        /// Which was asked for.
        which: String,
    },
    /// The kernel refused.
    #[error("the mapped device {which} cannot be {what}: {source}")]
    Refused {
        /// Which.
        which: String,
        /// "created", "given another table" and so on.
        what: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// A table that the kernel gave is not understood.
    #[error("the table of {which} is not understood: {source}")]
    Table {
        /// Of which device.
        which: String,
        /// Why.
        #[source]
        source: TableError,
    },
}

/// A device, by one of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// By its name: "vg-lv".
    Name(String),
    /// By its UUID, which it keeps when it gets another name: "LVM-…".
    Uuid(String),
    /// By its number.
    Number(Number),
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Which::Name(name) => f.write_str(name),
            Which::Uuid(uuid) => write!(f, "with the UUID {uuid}"),
            Which::Number(number) => write!(f, "{number}"),
        }
    }
}

/// How a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its UUID; empty if it has none.
    pub uuid: String,
    /// Its number.
    pub number: Number,
    /// How often it is open.
    pub open_count: u32,
    /// Requests to it wait.
    pub is_suspended: bool,
    /// It refuses writes.
    pub is_read_only: bool,
    /// It has a table that is in force.
    pub has_table: bool,
    /// It has a table that comes into force with the next resume.
    pub has_inactive_table: bool,
    /// Events of its targets since it was made.
    pub events: u32,
}

/// A way to the kernel's device mapper.
#[derive(Debug)]
pub struct Mapper {
    control: File,
}

impl Mapper {
    /// Opens the way, which changes nothing.
    ///
    /// # Errors
    /// [`MapperError::NoMapper`].
    pub fn open() -> Result<Mapper, MapperError> {
        let opened = OpenOptions::new().read(true).write(true).open(CONTROL);
        let mapper = Mapper { control: opened.map_err(|source| MapperError::NoMapper { source })? };
        mapper.version()?;
        Ok(mapper)
    }

    /// The version of the interface that the kernel has.
    ///
    /// # Errors
    /// [`MapperError::NoMapper`].
    pub fn version(&self) -> Result<[u32; 3], MapperError> {
        let answer = ioctl::ask(&self.control, Call::Version, &Request::default()).map_err(|source| MapperError::NoMapper { source })?;
        Ok(answer.version)
    }

    /// All devices, by name.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn list(&self) -> Result<Vec<(String, Number)>, MapperError> {
        let answer =
            ioctl::ask(&self.control, Call::ListDevices, &Request::default()).map_err(|source| MapperError::NoMapper { source })?;
        Ok(ioctl::names(&answer.data))
    }

    /// How a device is; `None` if there is none.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn find(&self, which: &Which) -> Result<Option<Status>, MapperError> {
        match self.status(which) {
            Ok(status) => Ok(Some(status)),
            Err(MapperError::Unknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How a device is.
    ///
    /// # Errors
    /// [`MapperError::Unknown`] if there is none.
    pub fn status(&self, which: &Which) -> Result<Status, MapperError> {
        let answer = self.ask(which, "looked at", Call::Status, Request::default())?;
        let is = |flag: Flags| answer.flags & flag as u32 != 0;
        Ok(Status {
            name: answer.name.clone(),
            uuid: answer.uuid.clone(),
            number: answer.number,
            open_count: u32::try_from(answer.open_count).unwrap_or(0),
            is_suspended: is(Flags::Suspend),
            is_read_only: is(Flags::ReadOnly),
            has_table: is(Flags::ActivePresent),
            has_inactive_table: is(Flags::InactivePresent),
            events: answer.event_number,
        })
    }

    /// The table in force; empty if there is none.
    ///
    /// # Errors
    /// [`MapperError::Unknown`], or if it is not understood.
    pub fn table(&self, which: &Which) -> Result<Table, MapperError> {
        self.table_with(which, 0)
    }

    /// The table that comes into force with the next resume; empty if there is none.
    ///
    /// # Errors
    /// [`MapperError::Unknown`], or if it is not understood.
    pub fn inactive_table(&self, which: &Which) -> Result<Table, MapperError> {
        self.table_with(which, Flags::QueryInactiveTable as u32)
    }

    fn table_with(&self, which: &Which, flags: u32) -> Result<Table, MapperError> {
        let request = Request { flags: Flags::StatusTable as u32 | Flags::NoFlush as u32 | flags, ..Request::default() };
        let answer = self.ask(which, "looked at", Call::TableStatus, request)?;
        ioctl::targets(&answer).map_err(|source| MapperError::Table { which: which.to_string(), source })
    }

    /// Makes a device with that table, in force at once. udev is told to leave it alone.
    ///
    /// # Errors
    /// If the name or UUID is taken, or the table is refused; then there is none.
    pub fn create_hidden(&self, name: &str, uuid: &str, table: &Table) -> Result<Status, MapperError> {
        let which = Which::Name(name.into());
        let request = Request { name: name.into(), uuid: uuid.into(), ..Request::default() };
        self.called(&which, "created", Call::Create, &request)?;
        let made = self.load(&which, table, false).and_then(|()| self.resume(&which, HIDDEN_FROM_UDEV));
        if let Err(error) = made {
            // It has no table: nobody can have it open.
            drop(self.remove(&which));
            return Err(error);
        }
        self.status(&which)
    }

    /// Puts a table beside the one in force.
    ///
    /// # Errors
    /// If the kernel refuses the table: a device below is missing, too small, or has another user.
    pub fn load(&self, which: &Which, table: &Table, read_only: bool) -> Result<(), MapperError> {
        let flags = if read_only { Flags::ReadOnly as u32 } else { 0 };
        let request = Request { flags, targets: table.targets.clone(), ..Request::default() };
        self.ask(which, "given another table", Call::TableLoad, request).map(drop)
    }

    /// Forgets the table that was put beside the one in force.
    ///
    /// # Errors
    /// [`MapperError::Unknown`].
    pub fn clear(&self, which: &Which) -> Result<(), MapperError> {
        self.ask(which, "looked at", Call::TableClear, Request::default()).map(drop)
    }

    /// Puts the table in force that was loaded: requests in flight end, others wait meanwhile, and nothing of a file system on it is frozen.
    /// Of a device that is suspended it is only the resumption.
    ///
    /// # Errors
    /// If the kernel refuses; then the old table is in force, but the device may be suspended.
    pub fn swap(&self, which: &Which) -> Result<(), MapperError> {
        self.resume(which, 0)
    }

    /// The same of a device that [`Mapper::create_hidden`] has made: udev goes on leaving it alone.
    ///
    /// # Errors
    /// As of [`Mapper::swap`].
    pub fn swap_hidden(&self, which: &Which) -> Result<(), MapperError> {
        self.resume(which, HIDDEN_FROM_UDEV)
    }

    fn resume(&self, which: &Which, cookie: u32) -> Result<(), MapperError> {
        let request = Request { flags: Flags::SkipLockFs as u32, event_number: cookie, ..Request::default() };
        self.ask(which, "resumed", Call::Suspend, request).map(drop)
    }

    /// Removes a device that nobody has open.
    ///
    /// # Errors
    /// Also if somebody has it open.
    pub fn remove(&self, which: &Which) -> Result<(), MapperError> {
        self.ask(which, "removed", Call::Remove, Request { event_number: HIDDEN_FROM_UDEV, ..Request::default() }).map(drop)
    }

    fn ask(&self, which: &Which, what: &'static str, call: Call, mut request: Request) -> Result<ioctl::Answer, MapperError> {
        match which {
            Which::Name(name) => request.name.clone_from(name),
            Which::Uuid(uuid) => request.uuid.clone_from(uuid),
            Which::Number(number) => request.number = Some(*number),
        }
        self.called(which, what, call, &request)
    }

    fn called(&self, which: &Which, what: &'static str, call: Call, request: &Request) -> Result<ioctl::Answer, MapperError> {
        ioctl::ask(&self.control, call, request).map_err(|source| match source.raw_os_error() {
            Some(libc::ENXIO) => MapperError::Unknown { which: which.to_string() },
            _ => MapperError::Refused { which: which.to_string(), what, source },
        })
    }
}
