//! What a virtio block device says of itself, and what its requests mean: virtio 1.2, section 5.2.

use crate::chain::{Chain, Piece, Pieces, cut_front, cut_last, for_each_part, total_bytes};
use crate::memory::GuestMemory;
use runtime::VolumeRef;
use smallvec::SmallVec;
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// Queues at most: front ends take one for each virtual processor.
pub const QUEUES_MAX: u16 = 64;
/// Bytes of a serial number.
pub const SERIAL_BYTES: usize = 20;
/// Bytes of the configuration space that a front end may ask for.
pub(crate) const CONFIG_BYTES: usize = 256;
/// Where the guest says whether it wants a write cache: the one thing in it that it may write.
pub(crate) const CONFIG_WRITEBACK: usize = 32;

/// Longest range of one discard or write-zeroes: 2 GiB, so that its bytes fit 32 bits everywhere on the way.
const RANGE_SECTORS_MAX: u32 = 4 << 20;
/// Ranges in one request.
const RANGES_MAX: u32 = 16;
const RANGE_BYTES: usize = 16;
/// Header and status take one descriptor each of the 128 of the usual queue.
const SEGMENTS_MAX: u32 = 126;

/// Feature bits.
pub(crate) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const RO: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    /// The guest chooses whether there is a write cache. Not offered: a front end that connects again does
    /// not repeat the choice, and a cache that a guest has switched off must not come back unseen.
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    /// vhost: log what is written into the guest's memory.
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    /// vhost-user: there are protocol features.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// Answers to a request.
pub(crate) const OK: u8 = 0;
pub(crate) const IO_ERROR: u8 = 1;
pub(crate) const UNSUPPORTED: u8 = 2;

/// The device that a guest sees.
#[derive(Clone, Debug)]
pub(crate) struct BlockDevice {
    pub(crate) volume: VolumeRef,
    pub(crate) serial: [u8; SERIAL_BYTES],
}

impl BlockDevice {
    /// What it offers.
    pub(crate) fn features(&self) -> u64 {
        let mut features = feature::SEG_MAX
            | feature::BLK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::MQ
            | feature::WRITE_ZEROES
            | feature::LOG_ALL
            | feature::INDIRECT
            | feature::EVENT_INDEX
            | feature::PROTOCOL
            | feature::VERSION_1;
        if self.volume.can_discard() {
            features |= feature::DISCARD;
        }
        if self.volume.read_only() {
            features |= feature::RO;
        }
        features
    }

    /// Its configuration space.
    pub(crate) fn config(&self, has_write_cache: bool) -> [u8; CONFIG_BYTES] {
        let mut config = [0; CONFIG_BYTES];
        let block_bytes = self.volume.logical_block_bytes();
        let unit_bytes = self.volume.atomic_bytes().unwrap_or(BLOCK_BYTES as u32);
        let blocks_each = (unit_bytes / block_bytes) as u16;
        // Where a request has more pages than that, the guest's kernel cuts it: at the end of a unit, if these are whole units.
        let pages_each = unit_bytes / BLOCK_BYTES as u32;
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(self.volume.size_bytes() / SECTOR_BYTES).to_le_bytes());
        put(12, &(SEGMENTS_MAX / pages_each * pages_each).to_le_bytes());
        put(20, &block_bytes.to_le_bytes());
        // What holds as a whole is the backing device's, or an atomic unit; but writes smaller than the cache's blocks cost a read there.
        put(24, &[(self.volume.physical_block_bytes() / block_bytes).trailing_zeros() as u8, 0]);
        put(26, &blocks_each.to_le_bytes());
        put(CONFIG_WRITEBACK, &[u8::from(has_write_cache)]);
        put(34, &QUEUES_MAX.to_le_bytes());
        if self.volume.can_discard() {
            put(36, &RANGE_SECTORS_MAX.to_le_bytes());
            put(40, &RANGES_MAX.to_le_bytes());
            put(44, &((BLOCK_BYTES / SECTOR_BYTES) as u32).to_le_bytes());
        }
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &RANGES_MAX.to_le_bytes());
        put(56, &[u8::from(self.volume.can_discard())]);
        config
    }
}

/// A part of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start_sector: u64,
    pub(crate) sectors: u32,
}

/// What a request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Read the volume into the data.
    Read {
        /// From here on.
        start_sector: u64,
    },
    /// Write the data to the volume.
    Write {
        /// From here on.
        start_sector: u64,
    },
    /// What was acknowledged becomes durable.
    Flush,
    /// The ranges are not needed any more.
    Discard(SmallVec<[Range; 1]>),
    /// The ranges become zeroes.
    WriteZeroes(SmallVec<[Range; 1]>),
    /// Write the serial number into the data.
    GetId,
    /// Nothing: this is the answer.
    Refuse(u8),
}

/// A request, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockRequest {
    pub(crate) command: Command,
    /// Of a read or write.
    pub(crate) data: Pieces,
    /// Where its answer goes, in the guest's memory. None: the driver gave no room for one.
    pub(crate) status: Option<u64>,
}

impl BlockRequest {
    /// What a chain asks for. `block_bytes` is the smallest unit of the volume.
    pub(crate) fn parse(memory: &GuestMemory, chain: Chain, block_bytes: u32) -> BlockRequest {
        let Chain { mut readable, mut writable, .. } = chain;
        let status = cut_last(&mut writable);
        let mut header = [0; 16];
        if total_bytes(&readable) < 16 || gather(memory, &readable, &mut header).is_none() {
            return BlockRequest { command: Command::Refuse(IO_ERROR), data: Pieces::new(), status };
        }
        cut_front(&mut readable, 16);
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut sector = [0; 8];
        sector.copy_from_slice(&header[8..]);
        let start_sector = u64::from_le_bytes(sector);
        let is_whole = |data: &[Piece]| total_bytes(data).is_multiple_of(block_bytes);
        let (command, data) = match kind {
            0 if is_whole(&writable) => (Command::Read { start_sector }, writable),
            1 if is_whole(&readable) => (Command::Write { start_sector }, readable),
            0 | 1 => (Command::Refuse(IO_ERROR), Pieces::new()),
            4 => (Command::Flush, Pieces::new()),
            8 => (Command::GetId, writable),
            11 => (ranges(memory, &readable, 0, block_bytes).map_or_else(Command::Refuse, Command::Discard), Pieces::new()),
            // Of zeroes, blocks may be freed where the device can, whether the guest allows it or not: it reads zeroes either way.
            13 => (ranges(memory, &readable, 1, block_bytes).map_or_else(Command::Refuse, Command::WriteZeroes), Pieces::new()),
            _ => (Command::Refuse(UNSUPPORTED), Pieces::new()),
        };
        BlockRequest { command, data, status }
    }
}

/// The ranges of a discard or write-zeroes, of which these flags are allowed; or what to answer.
fn ranges(memory: &GuestMemory, data: &[Piece], flags_allowed: u32, block_bytes: u32) -> Result<SmallVec<[Range; 1]>, u8> {
    let bytes = total_bytes(data) as usize;
    if bytes == 0 || !bytes.is_multiple_of(RANGE_BYTES) || bytes > RANGES_MAX as usize * RANGE_BYTES {
        return Err(IO_ERROR);
    }
    let mut all = [0; RANGES_MAX as usize * RANGE_BYTES];
    gather(memory, data, &mut all[..bytes]).ok_or(IO_ERROR)?;
    let block_sectors = u64::from(block_bytes) / SECTOR_BYTES;
    let range = |bytes: &[u8]| {
        let mut words = bytes.chunks_exact(8).map(|word| word.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)));
        let (start_sector, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (sectors, flags) = (rest as u32, (rest >> 32) as u32);
        if flags & !flags_allowed != 0 {
            return Err(UNSUPPORTED);
        }
        let is_whole = (start_sector | u64::from(sectors)).is_multiple_of(block_sectors);
        if sectors == 0 || sectors > RANGE_SECTORS_MAX || !is_whole {
            return Err(IO_ERROR);
        }
        Ok(Range { start_sector, sectors })
    };
    all[..bytes].chunks_exact(RANGE_BYTES).map(range).collect()
}

/// Copies the first bytes of the pieces together.
fn gather(memory: &GuestMemory, pieces: &[Piece], into: &mut [u8]) -> Option<()> {
    let (mut done, mut whole) = (0, true);
    for_each_part(pieces, 0, into.len() as u32, |guest, bytes| {
        whole &= memory.read(guest, &mut into[done..done + bytes]).is_ok();
        done += bytes;
    });
    (whole && done == into.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::region;

    fn header(kind: u32, sector: u64) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
    }

    /// Parses a request whose readable part is `bytes`, cut at `cuts`, and whose writable part has `room` bytes.
    fn parse(bytes: &[u8], cuts: &[usize], room: u32) -> BlockRequest {
        let memory = GuestMemory::new(vec![region(0, 0, 1 << 20)]).expect("one");
        let mut chain = Chain::default();
        let (mut begin, mut guest) = (0, 0x1000);
        for end in cuts.iter().copied().chain([bytes.len()]) {
            memory.write(guest, &bytes[begin..end]).expect("inside");
            chain.readable.push(Piece { guest, bytes: (end - begin) as u32 });
            (begin, guest) = (end, guest + 0x1000);
        }
        if room > 0 {
            chain.writable.push(Piece { guest: 0x80000, bytes: room });
        }
        chain.readable.retain(|piece| piece.bytes > 0);
        BlockRequest::parse(&memory, chain, 512)
    }

    #[test]
    fn requests_are_read_whatever_their_layout() {
        let read = parse(&header(0, 77), &[3, 9], 4097);
        assert_eq!(read.command, Command::Read { start_sector: 77 });
        assert_eq!((read.data[..].to_vec(), read.status), (vec![Piece { guest: 0x80000, bytes: 4096 }], Some(0x81000)));
        let bytes = [header(1, 5), vec![9; 1024]].concat();
        let write = parse(&bytes, &[8, 20], 1);
        assert_eq!(write.command, Command::Write { start_sector: 5 });
        let expected = [Piece { guest: 0x2000 + 8, bytes: 4 }, Piece { guest: 0x3000, bytes: 1020 }];
        assert_eq!((&write.data[..], write.status), (&expected[..], Some(0x80000)));
        assert_eq!(parse(&header(4, 0), &[], 1).command, Command::Flush);
        assert_eq!(parse(&header(8, 0), &[], 21).command, Command::GetId);
        let zeroes = [header(13, 0), 8u64.to_le_bytes().to_vec(), 16u32.to_le_bytes().to_vec(), 1u32.to_le_bytes().to_vec()].concat();
        let ranges = SmallVec::from_iter([Range { start_sector: 8, sectors: 16 }]);
        assert_eq!(parse(&zeroes, &[18], 1).command, Command::WriteZeroes(ranges));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let range = |kind, sectors: u32, flags: u32| {
            [header(kind, 0), 8u64.to_le_bytes().to_vec(), sectors.to_le_bytes().to_vec(), flags.to_le_bytes().to_vec()].concat()
        };
        for (bytes, room, answer) in [
            (header(0, 0)[..15].to_vec(), 513, IO_ERROR),
            (vec![], 513, IO_ERROR),
            (header(0, 0), 512, IO_ERROR),
            ([header(1, 0), vec![0; 100]].concat(), 1, IO_ERROR),
            (header(99, 0), 1, UNSUPPORTED),
            (header(11, 0), 1, IO_ERROR),
            (range(11, 8, 1), 1, UNSUPPORTED),
            (range(13, 8, 2), 1, UNSUPPORTED),
            (range(13, 0, 0), 1, IO_ERROR),
            (range(13, u32::MAX, 0), 1, IO_ERROR),
            ([header(11, 0), vec![0; 17 * 16]].concat(), 1, IO_ERROR),
            ([header(11, 0), vec![0; 15]].concat(), 1, IO_ERROR),
        ] {
            assert_eq!(parse(&bytes, &[], room).command, Command::Refuse(answer), "{bytes:?}");
        }
        assert_eq!(parse(&header(4, 0), &[], 0).status, None);
    }
}
