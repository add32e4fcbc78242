//! One mapping of a file that a front end gave.

use crate::guard::Guard;
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// A part of a shared file, mapped for reading and writing. What others do to its content and its length is their affair: all
/// access is by copies of plain bytes or by atomics, and a file that became shorter is the guard's.
///
/// To unmap what was much used takes half a second for 64 GiB. Threads that may wait so long say so ([`may_wait_here`]); whatever
/// another one lets go, a reactor first of all, is unmapped by a thread for that.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `None` only while it is dropped.
    mapped: Option<Mapped>,
    start: NonNull<u8>,
    bytes: u64,
}

/// What is mapped, until it is unmapped.
#[derive(Debug)]
struct Mapped {
    /// Ends before the memory is unmapped.
    guard: Option<Guard>,
    start: NonNull<u8>,
    bytes: usize,
    /// Its part of what its export may map; given back when the memory is unmapped.
    _share: Option<Share>,
}

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// This thread unmaps by itself what it lets go, and has its share back at once.
pub(crate) fn may_wait_here() {
    MAY_WAIT.set(true);
}

/// The way to the thread that unmaps for others. `None`: there is no room for one.
fn unmapper() -> Option<&'static Sender<Mapped>> {
    static UNMAPPER: OnceLock<Option<Sender<Mapped>>> = OnceLock::new();
    let start = || {
        let (send, receive) = channel::<Mapped>();
        let thread = std::thread::Builder::new().name("vhost-unmap".into()).stack_size(128 << 10);
        match thread.spawn(move || receive.into_iter().for_each(drop)) {
            Ok(_) => Some(send),
            Err(error) => {
                tracing::warn!(%error, "no helper thread can be started: unmapping guest memory may delay requests");
                None
            }
        }
    };
    UNMAPPER.get_or_init(start).as_ref()
}

/// Pieces that front ends of one export have mapped at a time: two machines with all their slots, of which one moves to the other, and
/// tables that are shown anew.
const PIECES_MAX: u64 = 640;
/// Bytes that front ends of one export have mapped at a time: a machine of 7 TiB, and the one that it moves to, with logs. All volumes
/// together have the 128 TiB of this process.
const BYTES_MAX: u64 = 16 << 40;

/// How much of other processes' memory one export maps, so that its front ends leave something to those of others.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    pieces: AtomicU64,
    bytes: AtomicU64,
}

impl Quota {
    /// As [`Mapping::new`], counted.
    ///
    /// # Errors
    /// Also if it is too much.
    pub(crate) fn map(self: &Arc<Quota>, file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<Mapping> {
        let share = self.take(bytes)?;
        Mapping::with(file, offset, bytes, Some(share))
    }

    fn take(self: &Arc<Quota>, bytes: u64) -> io::Result<Share> {
        let add = |to: &AtomicU64, count: u64, most: u64| {
            let sum = |now: u64| now.checked_add(count).filter(|sum| *sum <= most);
            to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
        };
        if !add(&self.pieces, 1, PIECES_MAX) {
            return Err(io::Error::other(format!("comes in more than {PIECES_MAX} pieces: give it fewer memory backends")));
        }
        if !add(&self.bytes, bytes, BYTES_MAX) {
            self.pieces.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other(format!("is more than {} TiB: give it less memory", BYTES_MAX >> 40)));
        }
        Ok(Share { quota: self.clone(), bytes })
    }
}

/// What one mapping takes of a [`Quota`].
#[derive(Debug)]
struct Share {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.pieces.fetch_sub(1, Ordering::Relaxed);
        self.quota.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// SAFETY: the memory is shared with other processes anyway; see the type.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on.
    ///
    /// # Errors
    /// If the file is none in memory (a page of any other could take as long to come as its server likes), or is too short, or the system
    /// refuses.
    pub(crate) fn new(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<Mapping> {
        Mapping::with(file, offset, bytes, None)
    }

    fn with(file: &OwnedFd, offset: u64, bytes: u64, share: Option<Share>) -> io::Result<Mapping> {
        // Here rather than when something is let go.
        unmapper();
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let facts = fstat(file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(invalid("is no file in memory: give the virtual machine a memory backend of kind memfd with share=on"));
        }
        let system = fstatfs(file)?;
        let granule = match system.f_type as u64 {
            TMPFS_MAGIC => rustix::param::page_size() as u64,
            HUGETLBFS_MAGIC => system.f_bsize as u64,
            _ => return Err(invalid("lies on a disk: give the virtual machine a memory backend of kind memfd with share=on")),
        };
        let end = offset.checked_add(bytes).filter(|end| *end <= facts.st_size as u64);
        let Some(end) = end.filter(|_| bytes > 0 && granule.is_power_of_two()) else {
            return Err(invalid("is shorter than what is to be used of it"));
        };
        let first = offset / granule * granule;
        let mapped_bytes = usize::try_from((end - first).next_multiple_of(granule)).map_err(|_| invalid("is too long"))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let mapped = unsafe { mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, file, first)? };
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the offset lies within what was mapped.
        let start = unsafe { mapped.add((offset - first) as usize) };
        let mut made = Mapped { guard: None, start: mapped, bytes: mapped_bytes, _share: share };
        made.guard = Some(Guard::new(mapped.as_ptr() as usize, mapped_bytes, granule as usize)?);
        // Guests' memory is not ours to dump. SAFETY: no effect on what the memory holds.
        let advised = unsafe { madvise(mapped.as_ptr().cast(), mapped_bytes, Advice::LinuxDontDump) };
        if let Err(error) = advised {
            tracing::debug!(%error, "guest memory will be part of core dumps");
        }
        Ok(Mapping { mapped: Some(made), start, bytes })
    }

    /// Where it begins, and for how long it may be accessed.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its file became shorter than it.
    pub(crate) fn is_struck(&self) -> bool {
        self.mapped.as_ref().and_then(|mapped| mapped.guard.as_ref()).is_some_and(Guard::is_struck)
    }
}

// SAFETY: as above; it only has to be unmapped once.
unsafe impl Send for Mapped {}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(mapped) = self.mapped.take() else { return };
        let by_another = if MAY_WAIT.get() { None } else { unmapper() };
        match by_another {
            // What cannot be sent comes back, and is dropped here.
            Some(unmapper) => drop(unmapper.send(mapped)),
            None => drop(mapped),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.guard = None;
        #[cfg(test)]
        tests::unmapped(self.bytes);
        // SAFETY: it was mapped with this length, and nothing holds a pointer into it longer than the mapping.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::warn!(%error, "guest memory stays mapped");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::tests::memfd;
    use std::sync::Mutex;

    /// Lengths of what was unmapped, and by which thread.
    static UNMAPPED: Mutex<Vec<(usize, String)>> = Mutex::new(Vec::new());

    pub(super) fn unmapped(bytes: usize) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        UNMAPPED.lock().expect("nobody panics").push((bytes, thread));
    }

    /// Which threads have unmapped what has this length, as soon as `count` pieces were.
    pub(crate) fn unmappers(bytes: usize, count: usize) -> Vec<String> {
        loop {
            let all = UNMAPPED.lock().expect("nobody panics");
            let found: Vec<String> = all.iter().filter(|(of, _)| *of == bytes).map(|(_, thread)| thread.clone()).collect();
            drop(all);
            if found.len() >= count {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn who_may_not_wait_has_it_unmapped_by_another() {
        let (file, bytes) = (memfd(0x1_9000), 0x1_9000);
        let map = || Mapping::new(&file, 0, bytes).expect("mapped");
        std::thread::scope(|scope| {
            let one = std::thread::Builder::new().name("one".into());
            one.spawn_scoped(scope, || drop(map())).expect("a thread").join().expect("no panic");
            assert_eq!(unmappers(bytes as usize, 1), ["vhost-unmap"]);
            let other = std::thread::Builder::new().name("other".into());
            let body = || {
                may_wait_here();
                drop(map());
            };
            other.spawn_scoped(scope, body).expect("a thread").join().expect("no panic");
            assert_eq!(unmappers(bytes as usize, 2), ["vhost-unmap", "other"]);
        });
    }

    #[test]
    fn one_export_maps_only_its_part_and_gets_back_what_it_gives_up() {
        may_wait_here();
        let quota = Arc::new(Quota::default());
        let file = memfd(4096);
        let all: Vec<Mapping> = (0..PIECES_MAX).map(|_| quota.map(&file, 0, 4096).expect("mapped")).collect();
        assert!(quota.map(&file, 0, 4096).expect_err("too many").to_string().contains("pieces"));
        drop(all);
        // What cannot be mapped is not counted.
        assert!(quota.map(&file, 4096, 4096).is_err());
        let half = memfd(BYTES_MAX / 2);
        let first = quota.map(&half, 0, BYTES_MAX / 2).expect("mapped");
        let _second = quota.map(&half, 0, BYTES_MAX / 2).expect("mapped");
        assert!(quota.map(&file, 0, 4096).expect_err("too much").to_string().contains("16 TiB"));
        assert!(quota.map(&half, 0, u64::MAX).is_err());
        drop(first);
        quota.map(&half, 0, BYTES_MAX / 2).expect("there is room again");
    }
}
