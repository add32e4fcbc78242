//! Space for a file, allocated before it is needed: a cache that finds its file system full in the
//! middle of a write can only stop.

use crate::AlignedBuffer;
use crate::open::{OpenError, system};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Holes are filled with zeroes in pieces of this size, where the file system cannot allocate.
const FILL_BYTES: usize = 1 << 20;

/// Direct writes begin and end at multiples of this, on any file system.
const FILL_UNIT_BYTES: u64 = 4096;

/// Gives a new file its size, all of it allocated.
pub(crate) fn allocate_new(file: &File, path: &Path, size_bytes: u64) -> Result<(), OpenError> {
    // An attempt that fails may leave a part allocated.
    let free_bytes = free_bytes(file);
    let no_space = || OpenError::NoSpace { path: path.to_path_buf(), size_bytes, free_bytes };
    let allocated = match fallocate(file, size_bytes) {
        Err(Errno::OPNOTSUPP) if size_bytes > 0 => {
            file.set_len(size_bytes).map_err(|error| system(path, "given its size", error))?;
            fill(file, 0, size_bytes)
        }
        other => other,
    };
    allocated.map_err(|errno| if is_no_space(errno) { no_space() } else { system(path, "given its size", errno.into()) })
}

/// Allocates what is missing of the first `size_bytes` of a file. Where the file system cannot, zeroes are written `by_hand`, which takes as
/// long as writing the file does.
pub(crate) fn fill_holes(file: &File, path: &Path, size_bytes: u64, by_hand: bool) -> Result<(), OpenError> {
    let metadata = file.metadata().map_err(|error| system(path, "looked at", error))?;
    let needed_bytes = size_bytes.saturating_sub(metadata.blocks() * 512);
    if needed_bytes == 0 {
        return Ok(());
    }
    let free_bytes = free_bytes(file);
    let do_not_fit = || OpenError::HolesDoNotFit { path: path.to_path_buf(), needed_bytes, free_bytes };
    if needed_bytes > free_bytes {
        return Err(do_not_fit());
    }
    let filled = match fallocate(file, size_bytes) {
        Err(Errno::OPNOTSUPP) if by_hand => fill_each_hole(file, size_bytes),
        other => other,
    };
    filled.map_err(|errno| if is_no_space(errno) { do_not_fit() } else { system(path, "allocated", errno.into()) })
}

fn is_no_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::FBIG | Errno::DQUOT)
}

/// What the file system has left for us.
fn free_bytes(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |answer| answer.f_bavail.saturating_mul(answer.f_frsize))
}

fn fallocate(file: &File, size_bytes: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn fill_each_hole(file: &File, size_bytes: u64) -> Result<(), Errno> {
    let mut at = 0;
    while at < size_bytes {
        let hole = rustix::fs::seek(file, SeekFrom::Hole(at))?.min(size_bytes);
        let end = match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(size_bytes),
            // No data behind it.
            Err(Errno::NXIO) => size_bytes,
            Err(errno) => return Err(errno),
        };
        // A unit that holds data is allocated.
        fill(file, hole.next_multiple_of(FILL_UNIT_BYTES), end / FILL_UNIT_BYTES * FILL_UNIT_BYTES)?;
        at = end.max(at + 1);
    }
    Ok(())
}

fn fill(file: &File, from: u64, to: u64) -> Result<(), Errno> {
    let zeroes = AlignedBuffer::zeroed(FILL_BYTES, FILL_UNIT_BYTES as usize);
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut at = from;
    while at < to {
        let length = (to - at).min(FILL_BYTES as u64);
        file.write_all_at(&zeroes[..length as usize], at).map_err(errno)?;
        at += length;
    }
    file.sync_data().map_err(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_and_data_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        let size_bytes = 4 * FILL_BYTES as u64;
        for by_hand in [false, true] {
            file.set_len(0).expect("emptied");
            file.set_len(size_bytes).expect("sparse");
            file.write_all_at(&[7; 10_000], 1_500_000).expect("there is room");
            let allocated = |file: &File| file.metadata().expect("its facts").blocks() * 512;
            assert!(allocated(&file) < size_bytes, "it has holes at first");
            if by_hand {
                fill_each_hole(&file, size_bytes).expect("there is room");
            } else {
                fill_holes(&file, &path, size_bytes, true).expect("there is room");
            }
            assert!(allocated(&file) >= size_bytes, "{} of {size_bytes} bytes are allocated", allocated(&file));
            let content = std::fs::read(&path).expect("its content");
            let is_right = |(at, byte): (usize, &u8)| *byte == if (1_500_000..1_510_000).contains(&at) { 7 } else { 0 };
            assert!(content.iter().enumerate().all(is_right), "data stays, and holes read as zeroes as before");
        }
    }
}
