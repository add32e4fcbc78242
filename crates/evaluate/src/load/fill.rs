//! Fills a file or a device with data before anything is measured: with long direct writes, as fast as it goes.

use super::Content;
use super::content::{BLOCK_BYTES, Contents};
use super::generator::{ALIGNMENT_BYTES, open, ring};
use crate::trouble::Trouble;
use device::{Access, AlignedBuffer, OpenDevice};
use direct::{Direct, Transfer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one write, and how many are under way while the next one is being made.
const PIECE_BYTES: u64 = 1 << 20;
const DEPTH: usize = 8;

/// Writes version 0 of this content to the first `bytes` (a multiple of 4 KiB) of a device or file, and makes it durable. A file that is not there is
/// made. `progress` is told how many bytes are done.
///
/// # Errors
/// If the device is too small or in use, if a write fails, or if `stop` is set; what was filled until then stays filled.
pub fn fill(path: &Path, bytes: u64, content: Content, seed: u64, stop: &AtomicBool, progress: &mut dyn FnMut(u64)) -> Result<(), Trouble> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(Trouble::Usage(format!("{bytes} bytes are not a number of blocks; give a multiple of 4 KiB")));
    }
    let device = if path.exists() {
        open(path, Access::ReadWrite)?
    } else {
        OpenDevice::create(path, bytes).map_err(|error| Trouble::Failed(error.to_string()))?
    };
    let size_bytes = device.geometry().size_bytes;
    if size_bytes < bytes {
        return Err(Trouble::failed(format!("{} has {size_bytes} bytes, not {bytes}", path.display()), "remove it, or give a larger one"));
    }
    let mut direct = ring(&Arc::new(device), DEPTH as u32)?;
    pieces(&mut direct, bytes, Contents::new(content, seed), stop, progress)?;
    direct.device().file().sync_data().map_err(|error| Trouble::io("flush", path, &error))
}

fn pieces(direct: &mut Direct, bytes: u64, contents: Contents, stop: &AtomicBool, progress: &mut dyn FnMut(u64)) -> Result<(), Trouble> {
    let (mut next, mut done_bytes) = (0, 0);
    let (mut buffers, mut done): (Vec<AlignedBuffer>, Vec<_>) = (Vec::new(), Vec::new());
    while done_bytes < bytes {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        while direct.in_flight() < DEPTH && next < bytes {
            let length = PIECE_BYTES.min(bytes - next) as usize;
            // The last piece may be shorter.
            let fitting = buffers.pop().filter(|buffer| buffer.len() == length);
            let mut buffer = fitting.unwrap_or_else(|| AlignedBuffer::zeroed(length, ALIGNMENT_BYTES));
            contents.write(next, 0, &mut buffer);
            direct.submit(next, Transfer::Write, next, buffer);
            next += length as u64;
            // It starts while the next one is being made.
            wait(direct, Some(std::time::Duration::ZERO), &mut done)?;
        }
        if done.is_empty() {
            wait(direct, None, &mut done)?;
        }
        for done in done.drain(..) {
            let path = direct.device().path();
            match done.result {
                Ok(written) if written == done.buffer.len() => done_bytes += written as u64,
                Ok(_) => return Err(Trouble::failed(format!("{} took only a part of a write", path.display()), "is it full?")),
                Err(error) => return Err(Trouble::io("write to", path, &error)),
            }
            buffers.push(done.buffer);
        }
        progress(done_bytes);
    }
    Ok(())
}

fn wait(direct: &mut Direct, patience: Option<std::time::Duration>, done: &mut Vec<direct::Done>) -> Result<(), Trouble> {
    direct.wait(patience, done).map_err(|error| Trouble::Failed(format!("the ring failed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_and_filled_to_the_last_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        let bytes = (3 << 20) + 12_288;
        let content = Content::Compressible { percent: 50 };
        let mut told = Vec::new();
        match fill(&path, bytes, content, 3, &AtomicBool::new(false), &mut |done| told.push(done)) {
            Err(Trouble::Failed(why)) if why.contains("direct") => return,
            result => result.expect("it is filled"),
        }
        let found = std::fs::read(&path).expect("the file");
        assert_eq!(found.len() as u64, bytes);
        assert_eq!(Contents::new(content, 3).compare(0, 0, &found), Ok(()));
        assert!(told.windows(2).all(|pair| pair[0] <= pair[1]) && told.last() == Some(&bytes), "{told:?}");
        // A part of what is there is filled anew; more than there is is refused.
        fill(&path, 4096, content, 4, &AtomicBool::new(false), &mut |_| {}).expect("it is filled");
        let found = std::fs::read(&path).expect("the file");
        assert_eq!(Contents::new(content, 4).compare(0, 0, &found[..4096]), Ok(()));
        assert_eq!(Contents::new(content, 3).compare(4096, 0, &found[4096..]), Ok(()));
        let too_much = fill(&path, bytes + 4096, content, 4, &AtomicBool::new(false), &mut |_| {});
        assert!(matches!(too_much, Err(Trouble::Failed(why)) if why.contains("give a larger one")));
        assert!(matches!(fill(&path, 100, content, 4, &AtomicBool::new(false), &mut |_| {}), Err(Trouble::Usage(_))));
        assert_eq!(fill(&path, 4096, content, 4, &AtomicBool::new(true), &mut |_| {}), Err(Trouble::Stopped));
    }
}
