//! A volume has grown while it is exported: the kernel reads its new size, and so do the device and its users.
//!
//! The kernel keeps the file's size for ever, so it is told to forget it first; then it asks for it again, and the loop driver takes it over.

use crate::error::FuseError;
use crate::export::{FileExport, LoopExport};
use crate::protocol::answer::out_header;
use node::patience::within;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::PoisonError;

/// `FUSE_NOTIFY_INVAL_INODE`.
const NOTIFY_FORGET_ATTRIBUTES: i32 = 2;
/// The file's number: it is the root of its file system.
const FILE: u64 = 1;

impl FileExport {
    /// Has the kernel forget the size that it knows. Over io_uring, too, such words go by `/dev/fuse`.
    fn forget_size(&self) -> Result<(), FuseError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let mut notice = [0_u8; 40];
        let header = out_header(0, NOTIFY_FORGET_ATTRIBUTES, 24);
        notice[..16].copy_from_slice(&header);
        notice[16..24].copy_from_slice(&FILE.to_ne_bytes());
        // An offset below 0: the attributes alone, no pages.
        notice[24..32].copy_from_slice(&(-1_i64).to_ne_bytes());
        // SAFETY: the bytes are there until the call returns.
        let written = unsafe { libc::write(connection.as_raw_fd(), notice.as_ptr().cast(), notice.len()) };
        let error = io::Error::last_os_error();
        match written {
            // Nobody has asked for the file yet: then there is nothing to forget.
            0.. => Ok(()),
            _ if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            _ => Err(FuseError::system("tell the kernel the size of", &self.path)(error)),
        }
    }
}

impl LoopExport {
    /// The volume has grown to `size_bytes`, and serves requests up to there: the device gets that size. Must not be called on a reactor's
    /// thread.
    ///
    /// # Errors
    /// A sentence for the administrator: the device goes on with the size that it had.
    pub fn capacity_changed(&mut self, size_bytes: u64) -> Result<(), String> {
        let shown = self.device_path.display().to_string();
        let failed = |why: String| {
            format!("{shown} has not grown yet ({why}): give `hearth volume grow {}`, or of a disk `hearth disk resize`, again", self.name)
        };
        self.file.forget_size().map_err(|error| failed(error.to_string()))?;
        let (device, path) = (self.device.clone(), self.file.path.clone());
        let grow = move || {
            // Older kernels take the size that they know, whatever the file system would say now. The path may be in another mount
            // namespace; then newer ones ask all the same.
            let _ = std::fs::metadata(&path);
            device.lock().unwrap_or_else(PoisonError::into_inner).grow()
        };
        match within(self.patience, "loop-grow", grow) {
            None => return Err(failed("it does not answer".to_owned())),
            Some(Err(error)) => return Err(failed(error.to_string())),
            Some(Ok(Some(now))) if now < size_bytes => return Err(failed(format!("the kernel says that it has {now} bytes"))),
            // One that was detached by others is made anew, with its new size.
            Some(Ok(_)) => {}
        }
        self.file.file.size_bytes = size_bytes;
        self.note_facts()
    }
}
