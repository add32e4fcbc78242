//! The kernel's interface, as linux/ublk_cmd.h has it: numbers of commands, flags, and the bytes of
//! its structures, in the machine's byte order.

/// `_IOR('u', number, struct ublksrv_ctrl_cmd)`: the kernel writes into the command's buffer, or
/// nothing.
const fn control_in(number: u32) -> u32 {
    2 << 30 | (CONTROL_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

/// `_IOWR('u', number, struct ublksrv_ctrl_cmd)`.
const fn control_in_out(number: u32) -> u32 {
    1 << 30 | control_in(number)
}

/// `_IOWR('u', number, struct ublksrv_io_cmd)`.
const fn io(number: u32) -> u32 {
    3 << 30 | (IO_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

/// Bytes of `struct ublksrv_ctrl_cmd`.
pub(crate) const CONTROL_BYTES: usize = 32;
/// Bytes of `struct ublksrv_io_cmd`.
pub(crate) const IO_BYTES: usize = 16;
/// Bytes that an entry has for a command.
pub(crate) const COMMAND_BYTES: usize = 80;

/// Commands to `/dev/ublk-control`.
pub(crate) mod control {
    use super::{control_in, control_in_out};

    pub(crate) const GET_DEV_INFO: u32 = control_in(0x02);
    pub(crate) const ADD_DEV: u32 = control_in_out(0x04);
    pub(crate) const DEL_DEV: u32 = control_in_out(0x05);
    pub(crate) const START_DEV: u32 = control_in_out(0x06);
    pub(crate) const STOP_DEV: u32 = control_in_out(0x07);
    pub(crate) const SET_PARAMS: u32 = control_in_out(0x08);
    pub(crate) const GET_PARAMS: u32 = control_in(0x09);
    pub(crate) const START_USER_RECOVERY: u32 = control_in_out(0x10);
    pub(crate) const END_USER_RECOVERY: u32 = control_in_out(0x11);
    pub(crate) const GET_FEATURES: u32 = control_in(0x13);
    /// Linux 6.9: does not wait until nobody has the device open.
    pub(crate) const DEL_DEV_ASYNC: u32 = control_in(0x14);
    /// Linux 6.16, with [`super::flag::UPDATE_SIZE`].
    pub(crate) const UPDATE_SIZE: u32 = control_in_out(0x15);
}

/// Commands to `/dev/ublkcN`.
pub(crate) const FETCH: u32 = io(0x20);
/// Answers one request and waits for the tag's next.
pub(crate) const COMMIT_AND_FETCH: u32 = io(0x21);

/// What a device can do (`UBLK_F_*`).
pub(crate) mod flag {
    /// Requests of a device without server wait for the next one.
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// Also those that the dead server had received.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    /// Commands are numbered as ioctls are.
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// The server moves data by reading and writing `/dev/ublkcN`.
    pub(crate) const USER_COPY: u64 = 1 << 7;
    /// The size can change.
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
}

/// `UBLK_S_DEV_LIVE`: the state of a device that has a block device and a server.
pub(crate) const STATE_LIVE: u16 = 1;
/// `UBLK_S_DEV_DEAD`: it has no block device, not yet or no more.
pub(crate) const STATE_DEAD: u16 = 0;

/// A free number, asked for with `ADD_DEV`.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;
/// For commands that are not for a queue.
const NO_QUEUE: u16 = u16::MAX;

/// A command to `/dev/ublk-control`: the device, what it points to (address and length), a value.
pub(crate) fn control_command(device: u32, buffer: (u64, u16), value: u64) -> [u8; COMMAND_BYTES] {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[0..4].copy_from_slice(&device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&buffer.1.to_ne_bytes());
    bytes[8..16].copy_from_slice(&buffer.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// A command for one tag of one queue, with the result of the request that it answers.
pub(crate) fn io_command(queue: u16, tag: u16, result: i32) -> [u8; COMMAND_BYTES] {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceInfo {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) request_bytes_max: u32,
    pub(crate) number: u32,
    /// The process that serves it, or did.
    pub(crate) server_pid: i32,
    pub(crate) flags: u64,
    /// The server's own: kept by the driver, which does not look at it.
    pub(crate) mark: u64,
}

impl DeviceInfo {
    pub(crate) const BYTES: usize = 64;

    pub(crate) fn encode(&self) -> [u8; DeviceInfo::BYTES] {
        let mut bytes = [0; DeviceInfo::BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.state.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.request_bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server_pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; DeviceInfo::BYTES]) -> DeviceInfo {
        DeviceInfo {
            queues: u16_at(bytes, 0),
            depth: u16_at(bytes, 2),
            state: u16_at(bytes, 4),
            request_bytes_max: u32_at(bytes, 8),
            number: u32_at(bytes, 12),
            server_pid: u32_at(bytes, 16).cast_signed(),
            flags: u64_at(bytes, 24),
            mark: u64_at(bytes, 32),
        }
    }
}

/// What users see of a device: the parts of `struct ublk_params` that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parameters {
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// What a power cut leaves old or new as a whole.
    pub(crate) physical_bytes: u32,
    pub(crate) request_bytes_max: u32,
    pub(crate) read_only: bool,
    pub(crate) can_discard: bool,
}

/// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`.
const TYPES: u32 = 1 << 0 | 1 << 1;
/// `UBLK_ATTR_READ_ONLY`.
const READ_ONLY: u32 = 1 << 0;
/// `UBLK_ATTR_VOLATILE_CACHE`: without it no flush would ever come.
const VOLATILE_CACHE: u32 = 1 << 2;
/// `UBLK_ATTR_FUA`.
const FUA: u32 = 1 << 3;
/// What is cached, and what requests and discards should be whole multiples of.
const CACHED_BLOCK_SHIFT: u8 = 12;
/// Longest discard or write-zeroes, in sectors. Before Linux 6.11 the block layer cuts zeroes longer
/// than 32 bits of bytes wrongly; so this is less, and whole extents.
const RANGE_SECTORS_MAX: u32 = (u32::MAX >> 9) / 2048 * 2048;

impl Parameters {
    /// Length, types, basic parameters, parameters of discard.
    pub(crate) const BYTES: usize = 8 + 32 + 20;

    pub(crate) fn encode(&self) -> [u8; Parameters::BYTES] {
        let mut bytes = [0; Parameters::BYTES];
        let attributes = VOLATILE_CACHE | FUA | if self.read_only { READ_ONLY } else { 0 };
        let logical_shift = self.block_bytes.trailing_zeros() as u8;
        bytes[0..4].copy_from_slice(&(Parameters::BYTES as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&TYPES.to_ne_bytes());
        bytes[8..12].copy_from_slice(&attributes.to_ne_bytes());
        // Logical and physical block, optimal I/O (none), smallest I/O.
        let physical_shift = self.physical_bytes.trailing_zeros() as u8;
        bytes[12..16].copy_from_slice(&[logical_shift, physical_shift, 0, CACHED_BLOCK_SHIFT]);
        bytes[16..20].copy_from_slice(&(self.request_bytes_max / 512).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.size_bytes / 512).to_ne_bytes());
        // Behind them the alignment and boundary of a discard: none.
        bytes[44..48].copy_from_slice(&(1u32 << CACHED_BLOCK_SHIFT).to_ne_bytes());
        let discard_sectors = if self.can_discard { RANGE_SECTORS_MAX } else { 0 };
        bytes[48..52].copy_from_slice(&discard_sectors.to_ne_bytes());
        bytes[52..56].copy_from_slice(&RANGE_SECTORS_MAX.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Parameters::BYTES]) -> Parameters {
        Parameters {
            size_bytes: u64_at(bytes, 24) * 512,
            block_bytes: 1u32.checked_shl(u32::from(bytes[12])).unwrap_or(0),
            physical_bytes: 1u32.checked_shl(u32::from(bytes[13])).unwrap_or(0),
            request_bytes_max: u32_at(bytes, 16).saturating_mul(512),
            read_only: u32_at(bytes, 8) & READ_ONLY != 0,
            can_discard: u32_at(bytes, 48) > 0,
        }
    }
}

/// What a request asks (`UBLK_IO_OP_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    /// One that nobody has offered, by its number.
    Unknown(u8),
}

/// `UBLK_IO_F_FUA`.
const IO_FUA: u32 = 1 << 13;

/// `struct ublksrv_io_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Descriptor {
    pub(crate) operation: Operation,
    pub(crate) fua: bool,
    pub(crate) sectors: u32,
    pub(crate) start_sector: u64,
}

impl Descriptor {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn decode(bytes: &[u8; Descriptor::BYTES]) -> Descriptor {
        let word = u32_at(bytes, 0);
        let operation = match (word & 0xff) as u8 {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes,
            other => Operation::Unknown(other),
        };
        Descriptor { operation, fua: word & IO_FUA != 0, sectors: u32_at(bytes, 4), start_sector: u64_at(bytes, 8) }
    }
}

/// `UBLK_MAX_QUEUE_DEPTH`: tables of descriptors are as far apart as if each queue were so deep.
const QUEUE_DEPTH_MAX: usize = 4096;

/// Where in `/dev/ublkcN` the table of a queue's descriptors is mapped from; `page_bytes` is the
/// machine's.
pub(crate) fn table_offset(queue: u16, page_bytes: usize) -> u64 {
    (usize::from(queue) * (QUEUE_DEPTH_MAX * Descriptor::BYTES).next_multiple_of(page_bytes)) as u64
}

/// Where in `/dev/ublkcN` the data of a tag's request is read and written.
pub(crate) fn data_offset(queue: u16, tag: u16) -> i64 {
    const BASE: i64 = 0x8000_0000;
    BASE + (i64::from(queue) << 41) + (i64::from(tag) << 25)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf("%x")` gives them with the header's macros.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(control::GET_FEATURES, 0x8020_7513);
        assert_eq!(control::ADD_DEV, 0xc020_7504);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(
            control_command(7, (0x1122, 64), 9)[..24],
            [&7u32.to_ne_bytes()[..], &[0xff, 0xff], &64u16.to_ne_bytes(), &0x1122u64.to_ne_bytes(), &9u64.to_ne_bytes()].concat()
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let info = DeviceInfo {
            queues: 2,
            depth: 128,
            state: STATE_LIVE,
            request_bytes_max: 1 << 20,
            number: 3,
            server_pid: -1,
            flags: flag::USER_COPY,
            mark: 0x1234_5678_9abc_def0,
        };
        assert_eq!(DeviceInfo::decode(&info.encode()), info);
        for (block_bytes, physical_bytes, read_only, can_discard) in
            [(512, 512, false, true), (512, 4096, false, true), (4096, 4096, true, false)]
        {
            let request_bytes_max = 1 << 20;
            let parameters =
                Parameters { size_bytes: 10_000 * 4096, block_bytes, physical_bytes, request_bytes_max, read_only, can_discard };
            assert_eq!(Parameters::decode(&parameters.encode()), parameters);
            assert_eq!(parameters.encode()[15], CACHED_BLOCK_SHIFT, "smaller requests cost a read, whatever the device promises");
        }
        assert!(u64::from(RANGE_SECTORS_MAX) * 512 < 1 << 32);
    }

    #[test]
    fn requests_are_decoded() {
        let mut bytes = [0; Descriptor::BYTES];
        bytes[0..4].copy_from_slice(&(1 | IO_FUA).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77u64.to_ne_bytes());
        let expected = Descriptor { operation: Operation::Write, fua: true, sectors: 8, start_sector: 77 };
        assert_eq!(Descriptor::decode(&bytes), expected);
        bytes[0] = 200;
        assert_eq!(Descriptor::decode(&bytes).operation, Operation::Unknown(200));
    }

    #[test]
    fn places_do_not_meet() {
        assert_eq!(table_offset(1, 4096), 98_304);
        assert_eq!(table_offset(1, 65_536), 131_072);
        assert!(data_offset(0, 0) as u64 > table_offset(4095, 65_536));
        assert_eq!(data_offset(1, 2) - data_offset(0, 0), (1 << 41) + (2 << 25));
    }
}
