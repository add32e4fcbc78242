//! What happens when mapped memory is not there any more.
//!
//! A front end may make the file behind its guest's memory shorter while we have it mapped. The next access then raises SIGBUS, which
//! would end the daemon and with it every other volume. So mappings of foreign files are registered here, and the handler puts
//! memory of our own, all zeroes, in the place of the whole mapping: the access goes on, nothing outside is touched, and
//! [`Guard::is_struck`] tells that the front end is not to be served any more.
//!
//! The handler uses atomics and one system call, which is all that may be done in it. A SIGBUS at any other address goes to
//! the handler that was there before.

use std::io;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings at a time: a front end has a handful, and with memory slots some tens.
const PLACES: usize = 4096;

/// One mapping. `bytes` is 0 while the place is free or being filled.
struct Place {
    taken: AtomicBool,
    start: AtomicUsize,
    bytes: AtomicUsize,
    struck: AtomicBool,
}

static TABLE: [Place; PLACES] = [const {
    Place { taken: AtomicBool::new(false), start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), struck: AtomicBool::new(false) }
}; PLACES];

/// What the handler before ours was: its address and flags. Written once, before ours is in force.
static EARLIER: AtomicUsize = AtomicUsize::new(0);
static EARLIER_FLAGS: AtomicUsize = AtomicUsize::new(0);
static INSTALL: Once = Once::new();

/// A registered mapping; dropping it ends the registration, which must be done before the memory is unmapped.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Registers a mapping that has just been made.
    ///
    /// # Errors
    /// If there are too many, or the system refuses the handler.
    pub(crate) fn new(start: usize, bytes: usize) -> io::Result<Guard> {
        let mut installed = Ok(());
        INSTALL.call_once(|| installed = install());
        installed?;
        let free = |place: &&Place| place.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let (index, place) = TABLE.iter().enumerate().find(|(_, place)| free(place)).ok_or_else(|| {
            io::Error::other("too many pieces of guest memory are mapped: give virtual machines fewer memory backends, or fewer of them")
        })?;
        place.struck.store(false, Ordering::Relaxed);
        place.start.store(start, Ordering::Relaxed);
        place.bytes.store(bytes, Ordering::Release);
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
        place.bytes.store(0, Ordering::Release);
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

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &TABLE {
        let bytes = place.bytes.load(Ordering::Acquire);
        let start = place.start.load(Ordering::Relaxed);
        if bytes == 0 || address < start || address - start >= bytes {
            continue;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: this replaces a mapping of ours, of exactly this place, whose owner expects nothing of its content. `errno`
        // is put back for whoever was interrupted.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let mapped = libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0);
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            place.struck.store(true, Ordering::Release);
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
