//! What happens when mapped memory is not there any more.
//!
//! A front end may make the file behind its guest's memory shorter while we have it mapped. The next access then raises SIGBUS, which
//! would end the daemon and with it every other volume. So mappings of foreign files are registered here, and the handler puts
//! memory of our own, all zeroes, in the place of the whole mapping: the access goes on, nothing outside is touched, and
//! [`Guard::is_struck`] tells that what was read is nothing, and that the front end is not to be served any more. Where the system
//! promises no more memory than it has (`vm.overcommit_memory=2`), it may not give as much: then one page is put there at a time.
//!
//! The handler uses atomics and one system call, which is all that may be done in it. A SIGBUS at any other address goes to
//! the handler that was there before.

use std::io;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Mappings at a time: a front end has a handful, and with memory slots some tens. Each export has at most a small part of them.
const PLACES: usize = 16384;

/// One mapping. `bytes` is 0 while the place is free.
struct Place {
    taken: AtomicBool,
    /// Odd while the two below are changed: they are a pair only if this is even and the same before and after.
    sequence: AtomicUsize,
    start: AtomicUsize,
    bytes: AtomicUsize,
    /// Of its pages: what has to be put in the place of one at least.
    granule: AtomicUsize,
    struck: AtomicBool,
}

impl Place {
    const fn new() -> Place {
        Place {
            taken: AtomicBool::new(false),
            sequence: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            granule: AtomicUsize::new(0),
            struck: AtomicBool::new(false),
        }
    }

    /// Says what is mapped. Only whoever has taken the place does.
    fn set(&self, start: usize, bytes: usize) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.sequence.store(before.wrapping_add(2), Ordering::Release);
    }

    /// What is mapped: start and length. `None` while that changes: then nobody accesses it.
    fn pair(&self) -> Option<(usize, usize)> {
        let before = self.sequence.load(Ordering::Acquire);
        let pair = (self.start.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before).then_some(pair)
    }
}

static TABLE: [Place; PLACES] = [const { Place::new() }; PLACES];

/// What the handler before ours was: its address and flags. Written once, before ours is in force.
static EARLIER: AtomicUsize = AtomicUsize::new(0);
static EARLIER_FLAGS: AtomicUsize = AtomicUsize::new(0);
static INSTALL: Once = Once::new();

/// A registered mapping; dropping it ends the registration, which must be done before the memory is unmapped.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Registers a mapping that has just been made, in pages of `granule` bytes.
    ///
    /// # Errors
    /// If there are too many, or the system refuses the handler.
    pub(crate) fn new(start: usize, bytes: usize, granule: usize) -> io::Result<Guard> {
        let mut installed = Ok(());
        INSTALL.call_once(|| installed = install());
        installed?;
        let free = |place: &&Place| place.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let (index, place) = TABLE.iter().enumerate().find(|(_, place)| free(place)).ok_or_else(|| {
            io::Error::other("too many pieces of guest memory are mapped: give virtual machines fewer memory backends, or fewer of them")
        })?;
        place.struck.store(false, Ordering::Relaxed);
        place.granule.store(granule, Ordering::Relaxed);
        place.set(start, bytes);
        Ok(Guard(index))
    }

    /// Whether an access found that the memory was gone.
    pub(crate) fn is_struck(&self) -> bool {
        TABLE[self.0].struck.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let place = &TABLE[self.0];
        place.set(0, 0);
        place.taken.store(false, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    // SAFETY: both structures are valid, and the handler keeps to what handlers may do.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        let mut earlier: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut earlier) != 0 {
            return Err(io::Error::last_os_error());
        }
        EARLIER.store(earlier.sa_sigaction, Ordering::Relaxed);
        EARLIER_FLAGS.store(earlier.sa_flags as usize, Ordering::Release);
        if libc::sigaction(libc::SIGBUS, &ours, null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Puts memory of our own in the place of whatever is there. `errno` is put back for whoever was interrupted.
///
/// # Safety
/// Nobody may expect anything of what is there.
unsafe fn put_zeroes(start: usize, bytes: usize) -> bool {
    #[cfg(test)]
    if bytes == tests::REFUSED_BYTES {
        return false;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the caller's promise; `errno` is this thread's.
    let mapped = unsafe {
        let errno = *libc::__errno_location();
        let mapped = libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped
    };
    mapped != libc::MAP_FAILED
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &TABLE {
        let Some((start, bytes)) = place.pair() else { continue };
        if bytes == 0 || address < start || address - start >= bytes {
            continue;
        }
        // Before there are zeroes: another thread that reads them looks here next.
        place.struck.store(true, Ordering::Release);
        // Its mapping is there as long as somebody accesses it, and so is this number.
        let granule = place.granule.load(Ordering::Relaxed).max(1);
        let page = start + (address - start) / granule * granule;
        // SAFETY: parts of a mapping of ours, whose owner expects nothing of its content from here on.
        if unsafe { put_zeroes(start, bytes) || put_zeroes(page, granule.min(start + bytes - page)) } {
            return;
        }
    }
    // SAFETY: as if ours had not been there: the handler before it, or the default, which ends the process when the access is repeated.
    unsafe {
        let earlier = EARLIER.load(Ordering::Relaxed);
        if earlier == libc::SIG_DFL || earlier == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
        } else if EARLIER_FLAGS.load(Ordering::Acquire) & libc::SA_SIGINFO as usize != 0 {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(earlier);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = std::mem::transmute(earlier);
            call(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use crate::memory::tests::memfd;
    use rustix::fs::ftruncate;

    /// As if the system had not so much to give: no other test maps as many.
    pub(super) const REFUSED_BYTES: usize = 0x1_7000;

    #[test]
    fn where_memory_is_short_one_page_is_put_in_its_place() {
        let file = memfd(REFUSED_BYTES as u64);
        let mapping = Mapping::new(&file, 0, REFUSED_BYTES as u64).expect("mapped");
        let byte = |at: usize| {
            // SAFETY: inside.
            unsafe { mapping.start().add(at).as_ptr().read_volatile() }
        };
        ftruncate(&file, 0x1000).expect("not sealed");
        std::os::unix::fs::FileExt::write_at(&std::fs::File::from(file.try_clone().expect("a descriptor")), &[7], 9).expect("there");
        assert_eq!((byte(9), mapping.is_struck()), (7, false));
        for at in [0x5123, REFUSED_BYTES - 1, 0x5124] {
            assert_eq!((byte(at), mapping.is_struck()), (0, true));
        }
        assert_eq!(byte(9), 7, "what is there stays");
    }

    #[test]
    fn a_place_that_changes_tells_of_no_mapping_that_never_was() {
        let place = Place::new();
        place.sequence.store(1, Ordering::Relaxed);
        assert_eq!(place.pair(), None, "it is being changed");
        place.sequence.store(2, Ordering::Relaxed);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..300_000 {
                    place.set(turn, turn);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                assert!(place.pair().is_none_or(|(start, bytes)| start == bytes));
            }
        });
        assert_eq!(place.pair(), Some((299_999, 299_999)));
    }
}
