//! Which errors of the database mean that the file is worth nothing, and which that the disk is full, read-only or gone for a while.

use rusqlite::{Error, ErrorCode, ffi};
use std::path::Path;

/// Why the file could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// It is not what was written: set it aside.
    Damaged(String),
    /// It cannot be written, or not be opened, at present.
    Unwritable(String),
}

impl Trouble {
    /// Of an error that came up with the file at `path` (`None`: tables in memory).
    pub(crate) fn of(error: &Error, path: Option<&Path>) -> Trouble {
        let said = error.to_string();
        let Error::SqliteFailure(failure, _) = error else { return Trouble::Damaged(said) };
        match failure.code {
            ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::NoLargeFileSupport => Trouble::Unwritable(said),
            // A part that cannot be read stays so: a new file gets other blocks of the disk.
            ErrorCode::SystemIoFailure => match failure.extended_code {
                ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS | ffi::SQLITE_IOERR_DATA => {
                    Trouble::Damaged(said)
                }
                _ => Trouble::Unwritable(said),
            },
            // The database also calls a file read-only whose header has an unknown number where its version should be.
            ErrorCode::ReadOnly => {
                let writable = path.is_some_and(|path| std::fs::OpenOptions::new().write(true).open(path).is_ok());
                if writable { Trouble::Damaged(said) } else { Trouble::Unwritable(said) }
            }
            _ => Trouble::Damaged(said),
        }
    }

    /// A row that is not what was written.
    pub(crate) fn row() -> Trouble {
        Trouble::Damaged("a row does not match its checksum".into())
    }
}
