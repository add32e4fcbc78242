//! A device that a trial watches, read for names of databases and tables.
//!
//! It is opened for reading alone, and not locked: whoever uses it does not notice. What is read goes past the page cache. One thread
//! reads, so that a device that does not answer holds nobody else up. The tap sees these reads, too: [`is_reader`] tells them from the
//! load, also those of another trial whose device lies above this one.

use blocktap::Comm;
use device::BlockingDevice;
use device::open::{Access, OpenDevice};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The name of the thread that reads; 15 bytes at most.
const READER: &str = "hearth names";
/// How long a read may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A read, and who waits for it.
struct Read {
    offset_bytes: u64,
    len_bytes: usize,
    done: Sender<Result<Vec<u8>, String>>,
}

/// See the module.
pub struct Untouched {
    size_bytes: u64,
    reads: Sender<Read>,
}

impl Untouched {
    /// Opens it.
    ///
    /// # Errors
    /// In words.
    pub fn open(path: &str) -> Result<Untouched, String> {
        let opened = OpenDevice::open(Path::new(path), Access::Beside).map_err(|error| error.to_string())?;
        let device = opened.blocking().map_err(|error| error.to_string())?;
        let size_bytes = device.geometry().size_bytes;
        let (reads, wanted) = channel();
        let begun = std::thread::Builder::new().name(READER.into()).spawn(move || serve(&device, &wanted));
        begun.map_err(|error| format!("no thread can be started ({error})"))?;
        Ok(Untouched { size_bytes, reads })
    }

    /// How large it is.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills `bytes` from there; waits a minute at most.
    ///
    /// # Errors
    /// In words.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), String> {
        let (done, ended) = channel();
        let gone = "its thread has ended".to_owned();
        self.reads.send(Read { offset_bytes, len_bytes: bytes.len(), done }).map_err(|_| gone)?;
        let read = ended.recv_timeout(PATIENCE).map_err(|_| "it does not answer".to_owned())??;
        bytes.copy_from_slice(&read);
        Ok(())
    }
}

/// Whether a thread of that name reads for names. Its number would not do: in a PID namespace the tap tells another one.
pub fn is_reader(comm: Comm) -> bool {
    comm == Comm::of(READER.as_bytes())
}

/// Reads until nobody wants anything any more. What nobody waits for any more is not read.
fn serve(device: &dyn BlockingDevice, wanted: &Receiver<Read>) {
    while let Ok(first) = wanted.recv() {
        // Those before it were given up while the device did not answer.
        let Read { offset_bytes, len_bytes, done } = wanted.try_iter().last().unwrap_or(first);
        let mut bytes = vec![0; len_bytes];
        let read = device.read_at(offset_bytes, &mut bytes);
        if done.send(read.map(|()| bytes).map_err(|error| error.to_string())).is_err() {
            tracing::debug!("a read for names ended after it had been given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_by_a_thread_of_its_own_and_not_locked() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        std::fs::write(&path, [vec![1; 4096], vec![2; 4096]].concat()).expect("room");
        let owner = std::fs::File::open(&path).expect("it is there");
        rustix::fs::flock(&owner, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
        let untouched = Untouched::open(&path.display().to_string()).expect("it opens");
        assert_eq!(untouched.size_bytes(), 8192);
        let mut bytes = [0; 1024];
        untouched.read(3584, &mut bytes).expect("it can be read");
        assert!(bytes[..512] == [1; 512] && bytes[512..] == [2; 512]);
        assert!(untouched.read(8192, &mut bytes).is_err(), "its end");
        assert!(is_reader(Comm::of(b"hearth names")) && !is_reader(Comm::of(b"mariadbd")));
    }
}
