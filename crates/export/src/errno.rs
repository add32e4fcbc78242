//! How a request failed, as an error number: one table, which each protocol says in its own words.

use engine::api::RequestError;
use rustix::io::Errno;

/// The error number of a failure.
#[inline]
pub const fn errno_of(error: RequestError) -> Errno {
    match error {
        RequestError::Io => Errno::IO,
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::ReadOnly => Errno::PERM,
        RequestError::Invalid => Errno::INVAL,
        RequestError::Shutdown => Errno::SHUTDOWN,
    }
}

/// The error number of a failure as users of a block device see it, positive. ESHUTDOWN means nothing to them: it is EIO.
#[inline]
pub const fn device_errno_of(error: RequestError) -> i32 {
    let errno = match error {
        RequestError::Shutdown => Errno::IO,
        other => errno_of(other),
    };
    errno.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are Linux's: they go to the kernel and over the wire.
    #[test]
    fn failures_have_the_numbers_of_linux() {
        for (error, number, of_device) in [
            (RequestError::Io, 5, 5),
            (RequestError::NoSpace, 28, 28),
            (RequestError::ReadOnly, 1, 1),
            (RequestError::Invalid, 22, 22),
            (RequestError::Shutdown, 108, 5),
        ] {
            assert_eq!((errno_of(error).raw_os_error(), device_errno_of(error)), (number, of_device), "{error:?}");
        }
    }
}
