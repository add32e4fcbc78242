//! What the live tests share: loop devices, direct I/O at known places, and what is expected of it.
#![allow(dead_code)] // Each test file uses a part.

use blocktap::{Event, Op, Refused, Tap, Watched, Way, Ways};
use device::AlignedBuffer;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A loop device on a file, detached when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    /// Over a new file, or `None` with a message.
    pub fn make(bytes: u64) -> Option<LoopDevice> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(bytes).expect("a size");
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            println!("skipped: loop devices need root and /dev/loop-control");
            return None;
        }
        match Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output() {
            Ok(output) if output.status.success() => {
                let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
                // Where udev runs, it reads a new device to see what it is.
                let _ = Command::new("udevadm").args(["settle", "--timeout=10"]).output();
                Some(LoopDevice { path, _file: file })
            }
            Ok(output) => {
                println!("skipped: losetup: {}", String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                println!("skipped: losetup cannot be run: {error}");
                None
            }
        }
    }

    pub fn watched(&self) -> Watched {
        watched(&self.path)
    }

    /// A partition, in sectors, or `None` with a message. No table is written: the kernel is told.
    pub fn partition(&self, number: u32, start: u64, sectors: u64) -> Option<Partition<'_>> {
        let path = PathBuf::from(format!("{}p{number}", self.path.display()));
        let numbers = [u64::from(number), start, sectors].map(|number| number.to_string());
        let done = Command::new("addpart").arg(&self.path).args(numbers).status();
        if !done.is_ok_and(|status| status.success()) || !path.exists() {
            println!("skipped: addpart made no {}", path.display());
            return None;
        }
        Some(Partition { device: self, number, path })
    }
}

/// A partition of a loop device, forgotten when dropped.
pub struct Partition<'a> {
    device: &'a LoopDevice,
    number: u32,
    pub path: PathBuf,
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        let status = Command::new("delpart").arg(&self.device.path).arg(self.number.to_string()).status();
        if !status.is_ok_and(|status| status.success()) {
            println!("{} could not be removed", self.path.display());
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.path).status();
        if !status.is_ok_and(|status| status.success()) {
            println!("{} could not be detached", self.path.display());
        }
    }
}

pub fn watched(path: &Path) -> Watched {
    let number = std::fs::metadata(path).expect("a device").rdev();
    Watched::find(rustix::fs::major(number), rustix::fs::minor(number)).expect("the kernel knows it")
}

/// A tap, or `None` with a message where this machine or user may not.
pub fn tap(watched: Watched, way: Way, ring_bytes: u32) -> Option<Tap> {
    match Tap::open_sized(watched, Ways::Only(way), ring_bytes) {
        Ok(tap) => {
            assert_eq!(tap.way(), way);
            Some(tap)
        }
        Err(refused @ (Refused::Failed { .. } | Refused::DeviceUnknown { .. } | Refused::Neither { .. })) => panic!("{refused}"),
        Err(refused) => {
            println!("skipped: {refused}");
            None
        }
    }
}

pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// A request that was made: first sector, bytes, kind, thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    pub sector: u64,
    pub bytes: u64,
    pub op: Op,
    pub tid: u32,
}

impl From<&Event> for Made {
    fn from(event: &Event) -> Made {
        Made { sector: event.sector, bytes: event.bytes, op: event.op, tid: event.tid }
    }
}

/// Direct I/O on a device, which remembers what it did.
pub struct Player {
    file: File,
    buffer: AlignedBuffer,
    random: u64,
    pub made: Vec<Made>,
}

/// Blocks of a request of a player at most.
const BLOCKS_MAX: u64 = 8;

impl Player {
    pub fn new(path: &Path, seed: u64) -> Player {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("the device opens");
        Player { file, buffer: AlignedBuffer::zeroed(BLOCKS_MAX as usize * 4096, 4096), random: seed, made: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// So many reads, writes, flushes and write-zeroes anywhere in the first `blocks`.
    pub fn play(&mut self, requests: u32, blocks: u64) {
        for _ in 0..requests {
            let length = 1 + self.below(BLOCKS_MAX);
            let first = self.below(blocks - length);
            match self.below(16) {
                0 => self.flush(),
                1 => self.zero(first * 8, length * 4096),
                2..8 => self.write(first * 8, length * 4096),
                _ => self.read(first * 8, length * 4096),
            }
        }
    }

    fn note(&mut self, sector: u64, bytes: u64, op: Op) {
        self.made.push(Made { sector, bytes, op, tid: tid() });
    }

    pub fn read(&mut self, sector: u64, bytes: u64) {
        let buffer = &mut self.buffer[..bytes as usize];
        assert_eq!(rustix::io::pread(&self.file, buffer, sector * 512).expect("it reads") as u64, bytes);
        self.note(sector, bytes, Op::Read);
    }

    pub fn write(&mut self, sector: u64, bytes: u64) {
        let buffer = &self.buffer[..bytes as usize];
        assert_eq!(rustix::io::pwrite(&self.file, buffer, sector * 512).expect("it writes") as u64, bytes);
        self.note(sector, bytes, Op::Write);
    }

    pub fn flush(&mut self) {
        self.file.sync_all().expect("it flushes");
        self.note(0, 0, Op::Flush);
    }

    /// Skipped where the device cannot.
    pub fn zero(&mut self, sector: u64, bytes: u64) {
        let how = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, how, sector * 512, bytes) {
            Ok(()) => self.note(sector, bytes, Op::Zeroes),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => panic!("write-zeroes: {error}"),
        }
    }
}

/// All that comes until two looks in a row bring nothing; how much was lost.
pub fn read_all(tap: &mut Tap, events: &mut Vec<Event>) -> u64 {
    let mut lost = 0;
    let mut quiet = 0;
    while quiet < 2 {
        let drained = tap.read(events, Duration::from_millis(30)).expect("it reads");
        assert_eq!(drained.unreadable, 0);
        lost += drained.lost;
        quiet = if drained.events == 0 { quiet + 1 } else { 0 };
    }
    lost
}
