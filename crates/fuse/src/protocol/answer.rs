//! Replies without data: what the server says to everything but a successful READ.

/// A century.
const ATTRIBUTES_VALID_S: u64 = 100 * 365 * 86_400;
/// File type bit of a regular file (`S_IFREG`).
const REGULAR_FILE: u32 = 0o100_000;
/// `FOPEN_DIRECT_IO`: no page cache between the file and its user.
const OPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_NOFLUSH`: spare the FLUSH request at each close; durability is FSYNC's matter.
const OPEN_NO_FLUSH: u32 = 1 << 5;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: writes need not hold the file's lock exclusively.
const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

/// The body of a reply, or an errno. Small enough to copy about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    error: i32,
    bytes: [u8; Answer::BYTES_MAX],
    length: u8,
}

/// What the file is, for attribute replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileFacts {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest piece that can be read or written, in bytes.
    pub block_bytes: u32,
    /// No write permission.
    pub read_only: bool,
}

impl Answer {
    /// The longest body, that of GETATTR.
    pub const BYTES_MAX: usize = 104;

    /// Done, and nothing to add.
    pub const OK: Answer = Answer { error: 0, bytes: [0; Answer::BYTES_MAX], length: 0 };

    /// Failed with this (positive) error number.
    pub fn error(errno: i32) -> Answer {
        assert!(errno > 0, "an errno is positive, not {errno}");
        Answer { error: -errno, ..Answer::OK }
    }

    /// `-errno`, or 0.
    pub fn error_field(&self) -> i32 {
        self.error
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// To GETATTR and SETATTR. Attributes are valid for as long as the file is mounted, or until the kernel is told that it has grown. So the kernel can tell whose a loop
    /// device is also when this server is dead.
    pub fn attributes(facts: &FileFacts) -> Answer {
        let mode = REGULAR_FILE | if facts.read_only { 0o400 } else { 0o600 };
        let mut body = Body::new();
        body.u64(ATTRIBUTES_VALID_S).u32(0).u32(0); // seconds, nanoseconds, padding
        body.u64(super::ROOT_NODE).u64(facts.size_bytes).u64(facts.size_bytes.div_ceil(512));
        body.u64(0).u64(0).u64(0).u32(0).u32(0).u32(0); // times
        body.u32(mode).u32(1).u32(0).u32(0).u32(0); // mode, links, user, group, device
        body.u32(facts.block_bytes).u32(0);
        body.done()
    }

    /// To OPEN.
    pub fn open() -> Answer {
        let mut body = Body::new();
        body.u64(0).u32(OPEN_DIRECT_IO | OPEN_PARALLEL_WRITES | OPEN_NO_FLUSH).u32(0);
        body.done()
    }

    /// To WRITE: all of it.
    pub fn written(length_bytes: u32) -> Answer {
        let mut body = Body::new();
        body.u32(length_bytes).u32(0);
        body.done()
    }

    /// To STATFS. The loop driver takes the block size for its discard granularity.
    pub fn file_system(facts: &FileFacts) -> Answer {
        let mut body = Body::new();
        body.u64(facts.size_bytes / u64::from(facts.block_bytes)).u64(0).u64(0).u64(1).u64(0);
        body.u32(facts.block_bytes).u32(255).u32(facts.block_bytes).u32(0);
        for _ in 0..6 {
            body.u32(0);
        }
        body.done()
    }
}

/// Appends numbers to an answer.
struct Body(Answer);

impl Body {
    fn new() -> Body {
        Body(Answer::OK)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Body {
        let at = self.0.length as usize;
        self.0.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.0.length += bytes.len() as u8;
        self
    }

    fn u32(&mut self, value: u32) -> &mut Body {
        self.bytes(&value.to_ne_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Body {
        self.bytes(&value.to_ne_bytes())
    }

    fn done(self) -> Answer {
        self.0
    }
}

/// The header of a reply of `body_bytes` bytes to request `unique`; `error` is 0 or a negative errno.
pub fn out_header(unique: u64, error: i32, body_bytes: usize) -> [u8; super::OUT_HEADER_BYTES] {
    let mut bytes = [0; super::OUT_HEADER_BYTES];
    let length_bytes = (super::OUT_HEADER_BYTES + body_bytes) as u32;
    bytes[0..4].copy_from_slice(&length_bytes.to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of `fuse_attr_out`, `fuse_open_out`, `fuse_write_out` and `fuse_statfs_out`.
    #[test]
    fn bodies_have_the_kernels_lengths() {
        let facts = FileFacts { size_bytes: 1 << 20, block_bytes: 512, read_only: false };
        assert_eq!(Answer::attributes(&facts).body().len(), 104);
        assert_eq!(Answer::open().body().len(), 16);
        assert_eq!(Answer::written(9).body().len(), 8);
        assert_eq!(Answer::file_system(&facts).body().len(), 80);
        assert_eq!(Answer::error(5).error_field(), -5);
    }

    #[test]
    fn attributes_carry_size_and_permissions() {
        let body = |read_only| {
            *Answer::attributes(&FileFacts { size_bytes: 7 << 9, block_bytes: 512, read_only }).body().first_chunk::<104>().unwrap()
        };
        assert_eq!(u64::from_ne_bytes(body(false)[24..32].try_into().unwrap()), 7 << 9);
        assert_eq!(u32::from_ne_bytes(body(false)[76..80].try_into().unwrap()), 0o100_600);
        assert_eq!(u32::from_ne_bytes(body(true)[76..80].try_into().unwrap()), 0o100_400);
    }

    #[test]
    fn the_header_counts_itself() {
        let header = out_header(5, -2, 100);
        assert_eq!(u32::from_ne_bytes(header[0..4].try_into().unwrap()), 116);
        assert_eq!(i32::from_ne_bytes(header[4..8].try_into().unwrap()), -2);
    }
}
