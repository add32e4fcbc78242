//! Requests of the transmission phase: reading the header and judging it.

use super::handshake::ExportInfo;
use super::wire::{Errno, PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, REQUEST_MAGIC, command, command_flag, u16_at, u32_at, u64_at};

/// A request header as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// Flags, see [`command_flag`].
    pub flags: u16,
    /// Type, see [`command`].
    pub kind: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// How long, in bytes.
    pub length_bytes: u32,
}

/// The stream does not carry a request where one must be; nothing after it can be understood, so the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request magic is {found:#010x}, not {REQUEST_MAGIC:#010x}")]
pub struct NotNbd {
    /// What stood in its place.
    pub found: u32,
}

impl RequestHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// [`NotNbd`] if it does not begin with the magic.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<RequestHeader, NotNbd> {
        let found = u32_at(bytes, 0);
        if found != REQUEST_MAGIC {
            return Err(NotNbd { found });
        }
        Ok(RequestHeader {
            flags: u16_at(bytes, 4),
            kind: u16_at(bytes, 6),
            cookie: u64_at(bytes, 8),
            offset_bytes: u64_at(bytes, 16),
            length_bytes: u32_at(bytes, 24),
        })
    }

    /// Bytes that follow the header on the wire, whatever the answer will be.
    pub fn payload_bytes(&self) -> u32 {
        if self.kind == command::WRITE { self.length_bytes } else { 0 }
    }
}

/// What a volume is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read.
    Read,
    /// Write; the payload follows.
    Write,
    /// Flush.
    Flush,
    /// Trim.
    Trim,
    /// Write zeroes.
    WriteZeroes,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ask the volume. Range and alignment are checked: sectors lie within the export, and there is at least one (none for
    /// a flush).
    Volume {
        /// What for.
        command: Command,
        /// First sector of 512 bytes.
        start_sector: u64,
        /// Count of sectors.
        sectors: u32,
        /// Durable when answered.
        fua: bool,
    },
    /// Nothing to do (length zero): answer success at once.
    Nothing,
    /// Answer with one extent of `length_bytes`, allocated.
    Allocated {
        /// Length of the extent.
        length_bytes: u32,
    },
    /// Answer with this error, after skipping the payload.
    Refuse(Errno),
    /// The client says goodbye: answer what is in flight, then close.
    Disconnect,
}

/// What was agreed in the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The chosen export.
    pub export: ExportInfo,
    /// Reads are answered in structured form.
    pub structured: bool,
    /// The context base:allocation was chosen.
    pub allocation_context: bool,
}

impl Session {
    /// Judges a request by the rules of "Transmission phase" and the announced limits.
    ///
    /// Refusals: unknown types and flags, flags where they mean nothing, unaligned ranges and reads, trims or status beyond the
    /// end are EINVAL; writes beyond the end are ENOSPC; a READ above the announced maximum EOVERFLOW, a WRITE above it
    /// EINVAL; changes of a read-only export EPERM; fast zeroes that are not fast ENOTSUP.
    pub fn judge(&self, header: &RequestHeader) -> Verdict {
        use command_flag as flag;
        let allowed = match header.kind {
            command::READ if self.structured => flag::FUA | flag::DF,
            command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::FUA | flag::REQ_ONE,
            // FUA is allowed, and without meaning, on every command ("Command flags").
            _ => flag::FUA,
        };
        if header.kind == command::DISCONNECT {
            return Verdict::Disconnect;
        }
        if header.flags & !allowed != 0 {
            return Verdict::Refuse(Errno::Inval);
        }
        match header.kind {
            command::READ => self.ranged(header, Command::Read),
            command::WRITE => self.ranged(header, Command::Write),
            command::TRIM => self.ranged(header, Command::Trim),
            command::WRITE_ZEROES => self.ranged(header, Command::WriteZeroes),
            command::FLUSH if header.offset_bytes == 0 && header.length_bytes == 0 => {
                Verdict::Volume { command: Command::Flush, start_sector: 0, sectors: 0, fua: false }
            }
            command::BLOCK_STATUS if self.structured && self.allocation_context && header.length_bytes != 0 => match self.range(header) {
                Some(_) => Verdict::Allocated { length_bytes: header.length_bytes },
                None => Verdict::Refuse(Errno::Inval),
            },
            _ => Verdict::Refuse(Errno::Inval),
        }
    }

    fn ranged(&self, header: &RequestHeader, command: Command) -> Verdict {
        let changes = !matches!(command, Command::Read);
        if changes && self.export.read_only {
            return Verdict::Refuse(Errno::Perm);
        }
        let one_chunk = !self.structured || header.flags & command_flag::DF != 0;
        match command {
            Command::Read if one_chunk && header.length_bytes > self.export.whole_read_bytes_max => {
                return Verdict::Refuse(Errno::Overflow);
            }
            Command::Read if header.length_bytes > PAYLOAD_BYTES_MAX => return Verdict::Refuse(Errno::Overflow),
            Command::Write if header.length_bytes > PAYLOAD_BYTES_MAX => return Verdict::Refuse(Errno::Inval),
            Command::Read | Command::Write | Command::Flush | Command::Trim | Command::WriteZeroes => (),
        }
        let Some((start_sector, sectors)) = self.range(header) else {
            let beyond = !self.within(header) && self.aligned(header);
            let grows = matches!(command, Command::Write | Command::WriteZeroes);
            return Verdict::Refuse(if beyond && grows { Errno::NoSpc } else { Errno::Inval });
        };
        if sectors == 0 {
            return Verdict::Nothing;
        }
        if header.flags & command_flag::FAST_ZERO != 0 && !self.export.fast_zeroes {
            return Verdict::Refuse(Errno::NotSup);
        }
        Verdict::Volume { command, start_sector, sectors, fua: changes && header.flags & command_flag::FUA != 0 }
    }

    /// The range in sectors, if it is aligned and lies within the export.
    fn range(&self, header: &RequestHeader) -> Option<(u64, u32)> {
        let sectors = (u64::from(header.length_bytes) / types::SECTOR_BYTES) as u32;
        (self.aligned(header) && self.within(header)).then_some((header.offset_bytes / types::SECTOR_BYTES, sectors))
    }

    fn aligned(&self, header: &RequestHeader) -> bool {
        let unit = self.export.block_bytes_min;
        header.offset_bytes.is_multiple_of(u64::from(unit)) && header.length_bytes.is_multiple_of(unit)
    }

    fn within(&self, header: &RequestHeader) -> bool {
        let end = header.offset_bytes.checked_add(u64::from(header.length_bytes));
        end.is_some_and(|end| end <= self.export.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let export = ExportInfo::new("disk", 1 << 20);
        Session { export, structured: true, allocation_context: true }
    }

    fn header(kind: u16, flags: u16, offset_bytes: u64, length_bytes: u32) -> RequestHeader {
        RequestHeader { flags, kind, cookie: 7, offset_bytes, length_bytes }
    }

    fn check(kind: u16, flags: u16, offset_bytes: u64, length_bytes: u32, expected: Verdict) {
        assert_eq!(session().judge(&header(kind, flags, offset_bytes, length_bytes)), expected);
    }

    #[test]
    fn a_header_is_read_field_by_field() {
        let bytes = *b"\x25\x60\x95\x13\x00\x01\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x01\0\0\x02\0\0\0\x10\0";
        let parsed = RequestHeader::parse(&bytes).unwrap();
        let expected = RequestHeader { flags: 1, kind: 6, cookie: 0x0102_0304_0506_0708, offset_bytes: 0x1_0000_0200, length_bytes: 4096 };
        assert_eq!(parsed, expected);
        assert_eq!(RequestHeader::parse(&[0x25; 28]), Err(NotNbd { found: 0x2525_2525 }));
    }

    #[test]
    fn good_requests_become_sectors() {
        let read = Verdict::Volume { command: Command::Read, start_sector: 9, sectors: 3, fua: false };
        check(command::READ, 0, 4608, 1536, read);
        check(command::READ, command_flag::DF | command_flag::FUA, 4608, 1536, read);
        let write = Verdict::Volume { command: Command::Write, start_sector: 2040, sectors: 8, fua: true };
        check(command::WRITE, command_flag::FUA, (1 << 20) - 4096, 4096, write);
        let zero = Verdict::Volume { command: Command::WriteZeroes, start_sector: 0, sectors: 2048, fua: false };
        check(command::WRITE_ZEROES, command_flag::NO_HOLE, 0, 1 << 20, zero);
        let flush = Verdict::Volume { command: Command::Flush, start_sector: 0, sectors: 0, fua: false };
        check(command::FLUSH, 0, 0, 0, flush);
        check(command::BLOCK_STATUS, command_flag::REQ_ONE, 512, 1024, Verdict::Allocated { length_bytes: 1024 });
        check(command::READ, 0, 1 << 20, 0, Verdict::Nothing);
        check(command::DISCONNECT, 0, 0, 0, Verdict::Disconnect);
    }

    #[test]
    fn ends_and_edges_are_refused_with_the_right_number() {
        let inval = Verdict::Refuse(Errno::Inval);
        check(command::READ, 0, (1 << 20) - 512, 1024, inval);
        check(command::WRITE, 0, (1 << 20) - 512, 1024, Verdict::Refuse(Errno::NoSpc));
        check(command::WRITE_ZEROES, 0, 1 << 20, 512, Verdict::Refuse(Errno::NoSpc));
        check(command::TRIM, 0, 1 << 20, 512, inval);
        check(command::READ, 0, u64::MAX - 511, 512, inval);
        check(command::WRITE, 0, u64::MAX - 511, 1024, Verdict::Refuse(Errno::NoSpc));
        check(command::READ, 0, 1, 512, inval);
        check(command::WRITE, 0, 512, 100, inval);
        check(command::READ, 0, 0, PAYLOAD_BYTES_MAX + 512, Verdict::Refuse(Errno::Overflow));
        check(command::WRITE, 0, 0, u32::MAX, inval);
        check(command::WRITE, 0, 0, PAYLOAD_BYTES_MAX + 512, inval);
        check(command::BLOCK_STATUS, 0, 0, 0, inval);
        check(command::BLOCK_STATUS, 0, 1 << 20, 512, inval);
        check(command::FLUSH, 0, 512, 0, inval);
        check(5, 0, 0, 512, inval);
        check(999, 0, 0, 0, inval);
    }

    #[test]
    fn reads_in_one_chunk_have_a_limit_of_their_own() {
        let mut session = session();
        session.export.whole_read_bytes_max = 65536;
        let length = 65536 + 512;
        let overflow = Verdict::Refuse(Errno::Overflow);
        assert!(matches!(session.judge(&header(command::READ, 0, 0, length)), Verdict::Volume { .. }));
        assert_eq!(session.judge(&header(command::READ, command_flag::DF, 0, length)), overflow);
        assert!(matches!(session.judge(&header(command::READ, command_flag::DF, 0, 65536)), Verdict::Volume { .. }));
        session.structured = false;
        assert_eq!(session.judge(&header(command::READ, 0, 0, length)), overflow);
        assert!(matches!(session.judge(&header(command::WRITE, 0, 0, length)), Verdict::Volume { .. }));
    }

    #[test]
    fn flags_are_refused_where_they_mean_nothing() {
        let inval = Verdict::Refuse(Errno::Inval);
        check(command::READ, command_flag::NO_HOLE, 0, 512, inval);
        check(command::WRITE, command_flag::DF, 0, 512, inval);
        check(command::WRITE, 1 << 5, 0, 512, inval);
        check(command::TRIM, command_flag::FAST_ZERO, 0, 512, inval);
        check(command::WRITE_ZEROES, command_flag::FAST_ZERO, 0, 512, Verdict::Refuse(Errno::NotSup));
        let simple = Session { structured: false, ..session() };
        assert_eq!(simple.judge(&header(command::READ, command_flag::DF, 0, 512)), inval);
        assert_eq!(simple.judge(&header(command::BLOCK_STATUS, 0, 0, 512)), inval);
        let no_context = Session { allocation_context: false, ..session() };
        assert_eq!(no_context.judge(&header(command::BLOCK_STATUS, 0, 0, 512)), inval);
    }

    #[test]
    fn read_only_exports_refuse_changes_and_still_flush() {
        let mut session = session();
        session.export.read_only = true;
        for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(session.judge(&header(kind, 0, 0, 512)), Verdict::Refuse(Errno::Perm));
        }
        assert!(matches!(session.judge(&header(command::READ, 0, 0, 512)), Verdict::Volume { .. }));
        assert!(matches!(session.judge(&header(command::FLUSH, 0, 0, 0)), Verdict::Volume { .. }));
    }

    #[test]
    fn larger_logical_blocks_are_enforced() {
        let mut session = session();
        session.export.block_bytes_min = 4096;
        assert_eq!(session.judge(&header(command::READ, 0, 512, 4096)), Verdict::Refuse(Errno::Inval));
        assert!(matches!(session.judge(&header(command::READ, 0, 4096, 4096)), Verdict::Volume { .. }));
    }
}
