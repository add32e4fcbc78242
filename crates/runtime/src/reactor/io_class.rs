//! Before whom a thread's I/O goes.
//!
//! Where none is set the kernel takes it from how the thread is scheduled, and the I/O of a real-time thread goes before everybody's: with
//! mq-deadline nobody else's is sent to the disk while any of it is under way. On a pool in a file that was the file system's journal, which the
//! reactor's own writes wait for: 24 ms each instead of 1, with four requests in flight. So a reactor's I/O stays what it is for an ordinary thread.

use std::io;

/// ioprio_set(2): a thread, the calling one if its number is 0.
const WHO_PROCESS: libc::c_int = 1;
const CLASS_SHIFT: u32 = 13;
const CLASS_NONE: libc::c_long = 0;
const CLASS_BEST_EFFORT: libc::c_long = 2;

/// Gives the calling thread's I/O the class and level that it has as an ordinary thread, if none was set; to be called while it is one. Threads that
/// the kernel starts for its ring later have the same.
pub(crate) fn keep() -> io::Result<()> {
    if own()? >> CLASS_SHIFT != CLASS_NONE {
        return Ok(());
    }
    // The system call itself, unlike the C library, gives 20 less the nice value: 1 to 40.
    let from_nice = |value: libc::c_long| (40 - value) / 5;
    // SAFETY: no memory is involved.
    let level = from_nice(told(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) })?);
    // SAFETY: as above.
    told(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_BEST_EFFORT << CLASS_SHIFT | level) }).map(drop)
}

/// Class and level that were set for the calling thread.
fn own() -> io::Result<libc::c_long> {
    // SAFETY: no memory is involved.
    told(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) })
}

fn told(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS_IDLE: libc::c_long = 3;

    #[test]
    fn a_class_is_kept_and_none_becomes_that_of_an_ordinary_thread() {
        fn of(prepare: impl FnOnce() -> libc::c_long + Send + 'static) -> libc::c_long {
            let thread = std::thread::spawn(move || {
                assert_eq!(prepare(), 0);
                keep().expect("it is allowed to anybody");
                own().expect("it is told")
            });
            thread.join().expect("it does not panic")
        }
        // SAFETY: no memory is involved.
        let niced = || unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19).into() };
        // SAFETY: as above.
        let idle = || unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE << CLASS_SHIFT) };
        assert_eq!(of(|| 0) >> CLASS_SHIFT, CLASS_BEST_EFFORT);
        assert_eq!(of(niced), CLASS_BEST_EFFORT << CLASS_SHIFT | 7);
        assert_eq!(of(idle) >> CLASS_SHIFT, CLASS_IDLE);
    }
}
