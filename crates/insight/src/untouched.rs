//! A device that a trial watches, read for names of databases and tables.
//!
//! It is opened for reading alone, and not locked: whoever uses it does not notice. It is open only while it is read, so that it can be taken
//! away meanwhile. What is read goes past the page cache. One thread reads, so that a device that does not answer holds nobody else up. The tap sees these reads, too: [`is_reader`] tells them from the
//! load, also those of another trial whose device lies above this one.

use blocktap::Comm;
use device::BlockingDevice;
use device::blocking::BlockingFile;
use device::open::{Access, OpenDevice};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The name of the thread that reads; 15 bytes at most.
const READER: &str = "hearth names";
/// How long a read may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// It is closed when nobody wanted anything for so long.
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 3000 });

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
    /// Opens it, to see that it can be.
    ///
    /// # Errors
    /// In words.
    pub fn open(path: &str) -> Result<Untouched, String> {
        let path = PathBuf::from(path);
        let size_bytes = open(&path)?.geometry().size_bytes;
        let (reads, wanted) = channel();
        let begun = std::thread::Builder::new().name(READER.into()).spawn(move || serve(&path, size_bytes, &wanted));
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

fn open(path: &Path) -> Result<BlockingFile, String> {
    let opened = OpenDevice::open(path, Access::Beside).map_err(|error| error.to_string())?;
    opened.blocking().map_err(|error| error.to_string())
}

/// Reads until nobody wants anything any more. What nobody waits for any more is not read.
fn serve(path: &Path, size_bytes: u64, wanted: &Receiver<Read>) {
    while let Ok(first) = wanted.recv() {
        let is_same = |device: &BlockingFile| device.geometry().size_bytes >= size_bytes;
        let device = open(path).and_then(|device| if is_same(&device) { Ok(device) } else { Err("it is smaller than it was".into()) });
        let mut next = Some(first);
        while let Some(first) = next {
            // Those before it were given up while the device did not answer.
            answer(device.as_ref(), wanted.try_iter().last().unwrap_or(first));
            next = wanted.recv_timeout(IDLE).ok();
        }
    }
}

fn answer(device: Result<&BlockingFile, &String>, Read { offset_bytes, len_bytes, done }: Read) {
    let mut bytes = vec![0; len_bytes];
    let read = match device {
        Ok(device) => device.read_at(offset_bytes, &mut bytes).map_err(|error| error.to_string()),
        Err(problem) => Err(problem.clone()),
    };
    if done.send(read.map(|()| bytes)).is_err() {
        tracing::debug!("a read for names ended after it had been given up");
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
        drop(owner);
        // It is not held open by who does not read, and can be read again.
        let is_open = || {
            let files = std::fs::read_dir("/proc/self/fd").expect("this process's");
            files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == path))
        };
        let begun = std::time::Instant::now();
        while is_open() {
            assert!(begun.elapsed().as_secs() < 120, "it is open for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
        untouched.read(3584, &mut bytes).expect("it can be read");
        std::fs::write(&path, vec![1; 4096]).expect("room");
        assert!(is_reader(Comm::of(b"hearth names")) && !is_reader(Comm::of(b"mariadbd")));
    }
}
