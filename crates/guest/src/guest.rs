//! A guest with its disk: connected, set up, running.

use crate::memory::{GUEST_BASE, Memory, USER_BASE};
use crate::queue::{Buffers, Queue};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Feature bits of the device and of vhost.
pub mod feature {
    /// The volume is read-only.
    pub const RO: u64 = 1 << 5;
    /// Flushes are answered.
    pub const FLUSH: u64 = 1 << 9;
    /// The write cache can be switched.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// Several queues.
    pub const MQ: u64 = 1 << 12;
    /// Discards.
    pub const DISCARD: u64 = 1 << 13;
    /// Zeroes.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// What is written into the guest's memory is logged.
    pub const LOG_ALL: u64 = 1 << 26;
    /// Descriptors in tables of their own.
    pub const INDIRECT: u64 = 1 << 28;
    /// Both sides say when they want to be told.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// There are protocol features.
    pub const PROTOCOL: u64 = 1 << 30;
    /// Virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Flush.
    Flush = 4,
    /// The disk's serial number.
    GetId = 8,
    /// Discard.
    Discard = 11,
    /// Zeroes.
    WriteZeroes = 13,
}

/// What the guest is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Queues.
    pub queues: u16,
    /// Entries of each.
    pub entries: u16,
    /// Room of each.
    pub buffers: Buffers,
    /// Both sides say when they want to be told.
    pub with_events: bool,
    /// Requests are described in tables of their own.
    pub indirect: bool,
    /// Requests under way are noted, for the next daemon.
    pub inflight: bool,
    /// The driver does not flush, so all it writes is to be durable at once.
    pub without_flush: bool,
    /// The driver chooses whether there is a write cache, as an earlier device has let it: offered or not.
    pub chooses_cache: bool,
    /// As QEMU with masked notifiers: the device first gets a call that nobody hears, and the real one
    /// with [`Guest::give_calls`].
    pub late_calls: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            queues: 1,
            entries: 256,
            buffers: Buffers { slots: 32, data_bytes: 64 << 10 },
            with_events: true,
            indirect: true,
            inflight: true,
            without_flush: false,
            late_calls: false,
            chooses_cache: false,
        }
    }
}

/// See the module.
pub struct Guest {
    /// The connection. `None` while there is none.
    pub front: Option<Frontend>,
    /// The queues.
    pub queues: Vec<Queue>,
    /// What they share with the device.
    pub memory: Arc<Memory>,
    /// What is told to the device.
    pub options: Options,
    /// Kept over the end of a daemon.
    pub inflight: Option<(VhostUserInflight, File)>,
    /// The device's features, and those that were taken.
    pub features: [u64; 2],
    setups: Vec<Setup>,
    notes_inflight: bool,
    log: Option<OwnedFd>,
}

/// What the device is told of a queue, whoever uses it.
struct Setup {
    entries: u16,
    parts: [usize; 3],
    kick: EventFd,
    call: EventFd,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl Guest {
    /// A guest that is not connected yet.
    ///
    /// # Errors
    /// The system's.
    pub fn new(options: Options) -> io::Result<Guest> {
        let each = Queue::bytes(options.entries, &options.buffers).next_multiple_of(4096);
        let memory = Arc::new(Memory::new(each * usize::from(options.queues))?);
        let queue = |number: u16| {
            let base = each * usize::from(number);
            Queue::new(memory.clone(), base, options.entries, options.buffers, options.with_events, options.indirect)
        };
        let queues = (0..options.queues).map(queue).collect::<io::Result<Vec<Queue>>>()?;
        let setup = |queue: &Queue| {
            let (kick, call) = (queue.kick.try_clone()?, queue.call.try_clone()?);
            Ok(Setup { entries: queue.entries(), parts: queue.parts(), kick, call })
        };
        let setups = queues.iter().map(setup).collect::<io::Result<_>>()?;
        Ok(Guest {
            front: None,
            queues,
            memory: memory.clone(),
            options,
            inflight: None,
            features: [0; 2],
            setups,
            notes_inflight: false,
            log: None,
        })
    }

    /// A guest that is connected and whose queues run.
    ///
    /// # Errors
    /// What the device refuses, and the system's.
    pub fn start(path: &Path, options: Options) -> io::Result<Guest> {
        let mut guest = Guest::new(options)?;
        guest.connect(path)?;
        guest.begin()?;
        Ok(guest)
    }

    /// Connects, waiting for the socket to be there, and agrees on features.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn connect(&mut self, path: &Path) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut front = Frontend::from_stream(stream, 64);
        front.set_owner().map_err(failed)?;
        let offered = front.get_features().map_err(failed)?;
        let mut wanted = feature::VERSION_1 | feature::PROTOCOL | feature::RO | feature::MQ | feature::DISCARD | feature::WRITE_ZEROES;
        if !self.options.without_flush {
            wanted |= feature::FLUSH | feature::CONFIG_WCE;
        }
        if self.options.with_events {
            wanted |= feature::EVENT_INDEX;
        }
        if self.options.indirect {
            wanted |= feature::INDIRECT;
        }
        self.features = [offered, offered & wanted];
        if self.options.chooses_cache {
            self.features[1] |= feature::CONFIG_WCE;
        }
        let protocol = front.get_protocol_features().map_err(failed)?;
        front.set_protocol_features(protocol).map_err(failed)?;
        self.notes_inflight = protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD);
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        front.set_features(self.features[1]).map_err(failed)?;
        self.front = Some(front);
        Ok(())
    }

    fn front(&mut self) -> &mut Frontend {
        self.front.as_mut().expect("connected")
    }

    /// Sets memory and queues up, and lets them run.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn begin(&mut self) -> io::Result<()> {
        let regions = [VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE,
            memory_size: self.memory.bytes() as u64,
            userspace_addr: USER_BASE,
            mmap_offset: 0,
            mmap_handle: self.memory.file().as_raw_fd(),
        }];
        self.front().set_mem_table(&regions).map_err(failed)?;
        if self.options.inflight && self.notes_inflight {
            let wanted = VhostUserInflight::new(0, 0, self.options.queues, self.options.entries);
            if self.inflight.is_none() {
                self.inflight = Some(self.front().get_inflight_fd(&wanted).map_err(failed)?);
            }
            let (facts, file) = self.inflight.as_ref().map(|(facts, file)| (*facts, file.as_raw_fd())).expect("just made");
            self.front().set_inflight_fd(&facts, file).map_err(failed)?;
        }
        for number in 0..self.setups.len() {
            self.begin_queue(number)?;
        }
        for number in 0..self.setups.len() {
            self.front().set_vring_enable(number, true).map_err(failed)?;
        }
        Ok(())
    }

    /// How the device finds a queue.
    pub fn place(&self, number: usize) -> VringConfigData {
        let setup = &self.setups[number];
        let [descriptors, available, used] = setup.parts.map(|offset| USER_BASE + offset as u64);
        let logged = self.log.is_some();
        VringConfigData {
            queue_max_size: setup.entries,
            queue_size: setup.entries,
            flags: u32::from(logged),
            desc_table_addr: descriptors,
            used_ring_addr: used,
            avail_ring_addr: available,
            log_addr: logged.then(|| used - USER_BASE + GUEST_BASE),
        }
    }

    fn begin_queue(&mut self, number: usize) -> io::Result<()> {
        let place = self.place(number);
        let setup = &self.setups[number];
        let (base, entries) = (self.memory.load(setup.parts[2] + 2), setup.entries);
        let front = self.front.as_mut().expect("connected");
        front.set_vring_num(number, entries).map_err(failed)?;
        front.set_vring_base(number, base).map_err(failed)?;
        front.set_vring_addr(number, &place).map_err(failed)?;
        let unheard = EventFd::new(EFD_NONBLOCK)?;
        let call = if self.options.late_calls { &unheard } else { &setup.call };
        front.set_vring_call(number, call).map_err(failed)?;
        front.set_vring_kick(number, &setup.kick).map_err(failed)
    }

    /// From now on all queues call where the driver listens.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn give_calls(&mut self) -> io::Result<()> {
        let front = self.front.as_mut().expect("connected");
        let mut setups = self.setups.iter().enumerate();
        setups.try_for_each(|(number, setup)| front.set_vring_call(number, &setup.call).map_err(failed))
    }

    /// Stops a queue; gives where it is to go on.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn stop_queue(&mut self, number: usize) -> io::Result<u32> {
        self.front().get_vring_base(number).map_err(failed)
    }

    /// Bytes of the device's configuration.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn config(&mut self, offset: u32, bytes: u32) -> io::Result<Vec<u8>> {
        let empty = vec![0; bytes as usize];
        let (_, config) = self.front().get_config(offset, bytes, VhostUserConfigFlags::WRITABLE, &empty).map_err(failed)?;
        Ok(config)
    }

    /// Switches the write cache.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn set_write_cache(&mut self, on: bool) -> io::Result<()> {
        self.front().set_config(32, VhostUserConfigFlags::WRITABLE, &[u8::from(on)]).map_err(failed)
    }

    /// Says that writes are to be logged; where to is told by [`Guest::log_writes`].
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn promise_log(&mut self) -> io::Result<()> {
        let features = self.features[1] | feature::LOG_ALL;
        self.front().set_features(features).map_err(failed)
    }

    /// From now on what is written into memory is logged: a bit for each 4 KiB, from the guest's address 0 on. Gives the log.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn log_writes(&mut self) -> io::Result<File> {
        let bytes = (GUEST_BASE + self.memory.bytes() as u64).div_ceil(4096 * 8);
        let log = memfd_create("dirty-log", MemfdFlags::CLOEXEC)?;
        ftruncate(&log, bytes)?;
        let region = VhostUserDirtyLogRegion { mmap_size: bytes, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
        let features = self.features[1] | feature::LOG_ALL;
        self.front().set_log_base(0, Some(region)).map_err(failed)?;
        self.front().set_features(features).map_err(failed)?;
        self.log = Some(log.try_clone()?);
        for number in 0..self.setups.len() {
            let place = self.place(number);
            self.front().set_vring_addr(number, &place).map_err(failed)?;
        }
        Ok(log.into())
    }
}

/// The end of a connection, and another one.
impl Guest {
    /// The front end goes; memory and queues stay as they are.
    pub fn disconnect(&mut self) {
        self.front = None;
    }

    /// Connects again and lets the queues run on, as QEMU does when its device was gone.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn reconnect(&mut self, path: &Path) -> io::Result<()> {
        self.front = None;
        self.log = None;
        self.connect(path)?;
        self.begin()
    }

    /// A channel on which the device can say something by itself.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn back_channel(&mut self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.front().set_backend_request_fd(&theirs).map_err(failed)?;
        Ok(ours)
    }

    /// Shows the device another file of memory too, behind its own. Gives where it begins for the guest.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn show_memory_beside(&mut self, file: &OwnedFd, bytes: u64) -> io::Result<u64> {
        let offset = (self.memory.bytes() as u64).next_multiple_of(4096);
        let region = |offset: u64, memory_size: u64, mmap_handle: i32| VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE + offset,
            memory_size,
            userspace_addr: USER_BASE + offset,
            mmap_offset: 0,
            mmap_handle,
        };
        let own = region(0, self.memory.bytes() as u64, self.memory.file().as_raw_fd());
        self.front().set_mem_table(&[own, region(offset, bytes, file.as_raw_fd())]).map_err(failed)?;
        Ok(GUEST_BASE + offset)
    }

    /// Shows the device another table of memory: `pieces` neighbours of the same length.
    ///
    /// # Errors
    /// As [`Guest::start`].
    pub fn show_memory_in(&mut self, pieces: u64) -> io::Result<()> {
        let each = self.memory.bytes() as u64 / pieces / 4096 * 4096;
        let region = |piece: u64| VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_BASE + piece * each,
            memory_size: if piece + 1 == pieces { self.memory.bytes() as u64 - piece * each } else { each },
            userspace_addr: USER_BASE + piece * each,
            mmap_offset: piece * each,
            mmap_handle: self.memory.file().as_raw_fd(),
        };
        let regions: Vec<_> = (0..pieces).map(region).collect();
        self.front().set_mem_table(&regions).map(drop).map_err(failed)
    }
}
