//! Disks that lose power: of what was written and not flushed anything may be there afterwards, by sectors of 512 bytes.
//!
//! Each disk is a file that this process serves over FUSE: the image has all writes, and what was there before those that no flush has
//! covered is remembered. When the power goes nothing is answered any more; then each such write is found in whole, or not at all, or in some of
//! its sectors.

use fuse::protocol::answer::{FileFacts, out_header};
use fuse::protocol::init::decode_message;
use fuse::protocol::message::opcode::FSYNC;
use fuse::protocol::{Answer, Header, IN_HEADER_BYTES, Limits, Operation, WRITE_PREFIX_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::command::{run, words};
use crate::place::{Place, SHORT};

const SECTOR: usize = 512;
const REQUEST_BYTES_MAX: u32 = 256 << 10;
/// How long a flush takes: writes go on beside it.
const FLUSH_TAKES: Duration = Duration::from_millis(8);
/// The power goes when a disk has so many writes that no flush has covered; or, if that does not come, after so long.
const AMID_WRITES: usize = 6;
const AMID_PATIENCE: Duration = Duration::from_secs(5);
/// Requests of a disk that are served at the same time.
const SERVERS: usize = 4;

/// Some disks of one machine.
pub struct PowerDisks {
    disks: Vec<Disk>,
    random: u64,
    cuts: u32,
}

struct Disk {
    /// Where it is served.
    path: String,
    media: Arc<Mutex<Media>>,
    power: Option<Power>,
}

/// What a disk holds.
struct Media {
    image: File,
    size_bytes: u64,
    /// What was there before each write that no flush has covered, in order.
    before: VecDeque<(u64, Vec<u8>)>,
    /// Writes that flushes have covered since the power came.
    durable_writes: u64,
}

/// While a disk is served.
struct Power {
    /// Nothing is answered any more.
    is_off: Arc<AtomicBool>,
    /// Those who serve are to end.
    is_over: Arc<AtomicBool>,
    servers: Vec<JoinHandle<()>>,
}

/// What a power cut did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Cut {
    /// Writes that a flush had made durable.
    pub durable: u64,
    /// Of the others: whole, gone, and there in part.
    pub whole: u64,
    /// See above.
    pub gone: u64,
    /// See above.
    pub torn: u64,
}

impl PowerDisks {
    /// Empty ones of these names and sizes in MiB, without power. Equal seeds tear alike.
    pub fn new(place: &Place, disks: &[(&str, u64)], seed: u64) -> PowerDisks {
        let disk = |(name, mib): &(&str, u64)| {
            let image = place.file(&format!("{name}.image"), mib << 20);
            let image = File::options().read(true).write(true).open(image).expect("it was just made");
            let path = place.path(name);
            File::create(&path).expect("a file to mount on");
            let media = Media { image, size_bytes: mib << 20, before: VecDeque::new(), durable_writes: 0 };
            Disk { path, media: Arc::new(Mutex::new(media)), power: None }
        };
        PowerDisks { disks: disks.iter().map(disk).collect(), random: seed | 1, cuts: 0 }
    }

    /// Where a disk is.
    pub fn path(&self, index: usize) -> &str {
        &self.disks[index].path
    }

    /// The power comes.
    pub fn on(&mut self) {
        self.disks.iter_mut().for_each(Disk::on);
    }

    /// The power goes, while a disk has writes to tear if it has any within some time: nothing is answered any more, and nothing changes.
    pub fn off(&self) {
        let begun = Instant::now();
        let is_amid = |disk: &Disk| disk.media().before.len() >= AMID_WRITES;
        while !self.disks.iter().any(is_amid) && begun.elapsed() < AMID_PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        for power in self.disks.iter().filter_map(|disk| disk.power.as_ref()) {
            power.is_off.store(true, Ordering::SeqCst);
        }
        // Who serves a request now has done with it.
        self.disks.iter().for_each(|disk| drop(disk.media()));
    }

    /// Whoever waits for a disk gets an error. For when nobody is left who would draw conclusions from it.
    pub fn disconnect(&mut self) {
        self.disks.iter_mut().for_each(Disk::disconnect);
    }

    /// Makes the disks what the cut has left of them.
    pub fn settle(&mut self) -> Cut {
        self.cuts += 1;
        let mut cut = Cut::default();
        for index in 0..self.disks.len() {
            let media = self.disks[index].media.clone();
            self.tear(&mut media.lock().expect("no server panics"), &mut cut);
        }
        eprintln!("power cut {}: {cut:?}", self.cuts);
        cut
    }

    /// From the last write to the first: a sector keeps what the last write left there that reached it.
    fn tear(&mut self, media: &mut Media, cut: &mut Cut) {
        cut.durable += std::mem::take(&mut media.durable_writes);
        let mut kept = BTreeSet::new();
        for (offset_bytes, before) in std::mem::take(&mut media.before).into_iter().rev() {
            let lot = self.draw() % 3;
            *[&mut cut.whole, &mut cut.gone, &mut cut.torn][lot as usize] += 1;
            for (number, bytes) in (0..).zip(before.chunks(SECTOR)) {
                let at = offset_bytes + number * SECTOR as u64;
                if kept.contains(&at) {
                    continue;
                }
                if lot == 0 || lot == 2 && self.draw().is_multiple_of(2) {
                    kept.insert(at);
                } else {
                    media.image.write_all_at(bytes, at).expect("it was there");
                }
            }
        }
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }
}

impl Disk {
    fn media(&self) -> MutexGuard<'_, Media> {
        self.media.lock().expect("no server panics")
    }

    fn on(&mut self) {
        assert!(self.power.is_none(), "it is on");
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let connection = Arc::new(rustix::fs::open("/dev/fuse", flags, Mode::empty()).expect("it was looked for"));
        let options = "fd=0,rootmode=100000,user_id=0,group_id=0,default_permissions,allow_other";
        let mut mount = words(&["mount", "-i", "-t", "fuse.power", "-o", options, "power", &self.path]);
        let mounted = mount.stdin(connection.try_clone().expect("there are descriptors")).output().expect("mount is there");
        assert!(mounted.status.success(), "{mounted:?}");
        let (is_off, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let server = |_| {
            let (connection, media, is_off, is_over) = (connection.clone(), self.media.clone(), is_off.clone(), is_over.clone());
            std::thread::spawn(move || serve(&connection, &media, &is_off, &is_over))
        };
        let servers = (0..SERVERS).map(server).collect();
        self.power = Some(Power { is_off, is_over, servers });
    }

    fn disconnect(&mut self) {
        let Some(power) = self.power.take() else { return };
        power.is_off.store(true, Ordering::SeqCst);
        power.is_over.store(true, Ordering::SeqCst);
        // With the last of them the connection's end is closed.
        power.servers.into_iter().for_each(|server| server.join().expect("no server panics"));
        drop(run(&mut words(&["umount", "-l", &self.path]), SHORT));
    }
}

impl Drop for PowerDisks {
    fn drop(&mut self) {
        self.disconnect();
    }
}

fn serve(connection: &OwnedFd, shared: &Mutex<Media>, is_off: &AtomicBool, is_over: &AtomicBool) {
    let mut bytes = vec![0; REQUEST_BYTES_MAX as usize + WRITE_PREFIX_BYTES + 4096];
    let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !is_over.load(Ordering::SeqCst) {
        let mut ready = [PollFd::new(connection, PollFlags::IN)];
        // An error is met by the read.
        poll(&mut ready, Some(&pause)).unwrap_or_default();
        // What is not taken waits.
        if is_off.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let length = match rustix::io::read(connection, &mut bytes) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => continue,
            // Unmounted.
            Err(_) => return,
        };
        let mut media = shared.lock().expect("no server panics");
        if is_off.load(Ordering::SeqCst) {
            continue;
        }
        let header = Header::decode_received(&bytes, length).expect("a request");
        if header.opcode == FSYNC {
            // What is written meanwhile is not covered; and if the power goes, nothing is.
            let writes = media.writes();
            drop(media);
            std::thread::sleep(FLUSH_TAKES);
            media = shared.lock().expect("no server panics");
            if is_off.load(Ordering::SeqCst) {
                continue;
            }
            media.flushed(writes);
        }
        if let Some((error, body)) = media.answer(&header, &bytes[..length]) {
            drop(media);
            let answer = [&out_header(header.unique, error, body.len())[..], &body].concat();
            // Whoever asked may have been killed meanwhile.
            rustix::io::write(connection, &answer).unwrap_or_default();
        }
    }
}

impl Media {
    /// Error and body of the answer, if there is one.
    fn answer(&mut self, header: &Header, message: &[u8]) -> Option<(i32, Vec<u8>)> {
        if let Some((_, init)) = decode_message(message) {
            let limits = Limits {
                request_bytes_max: REQUEST_BYTES_MAX,
                ring_request_bytes_max: REQUEST_BYTES_MAX,
                background_max: 128,
                over_io_uring: false,
            };
            return Some((0, init.negotiate(&limits).0.to_vec()));
        }
        let rest = &message[IN_HEADER_BYTES..];
        let said = |answer: Answer| Some((answer.error_field(), answer.body().to_vec()));
        let facts = FileFacts { size_bytes: self.size_bytes, block_bytes: SECTOR as u32, read_only: false };
        match Operation::decode(header, rest, rest.len()).expect("a request") {
            Operation::Read { offset_bytes, length_bytes } => {
                let length = u64::from(length_bytes).min(self.size_bytes.saturating_sub(offset_bytes));
                let mut data = vec![0; length as usize];
                self.image.read_exact_at(&mut data, offset_bytes).expect("inside");
                Some((0, data))
            }
            Operation::Write { offset_bytes, length_bytes } => {
                self.write(offset_bytes, &message[WRITE_PREFIX_BYTES..]);
                said(Answer::written(length_bytes))
            }
            Operation::Fallocate { offset_bytes, length_bytes, .. } => {
                self.write(offset_bytes, &vec![0; length_bytes as usize]);
                said(Answer::OK)
            }
            Operation::GetAttributes | Operation::SetAttributes { .. } => said(Answer::attributes(&facts)),
            Operation::Open => said(Answer::open()),
            Operation::StatFs => said(Answer::file_system(&facts)),
            Operation::Fsync | Operation::Release | Operation::Flush | Operation::Access | Operation::Destroy => said(Answer::OK),
            Operation::Silent => None,
            Operation::Init(_) | Operation::Unknown => said(Answer::error(Errno::NOSYS.raw_os_error())),
        }
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut before = vec![0; data.len()];
        self.image.read_exact_at(&mut before, offset_bytes).expect("inside");
        self.image.write_all_at(data, offset_bytes).expect("there is room");
        self.before.push_back((offset_bytes, before));
    }

    /// All writes since the power came.
    fn writes(&self) -> u64 {
        self.durable_writes + self.before.len() as u64
    }

    /// So many of them are durable.
    fn flushed(&mut self, writes: u64) {
        while self.durable_writes < writes {
            self.before.pop_front().expect("it was written");
            self.durable_writes += 1;
        }
    }
}
