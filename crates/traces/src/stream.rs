//! From requests to block accesses: every request is cut into the 4 KiB blocks it overlaps, in address order, reads and
//! writes alike.

use crate::read::TraceRequest;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use types::BLOCK_BYTES;

/// Where a disk's number stands in a key, above its block numbers (2^60 bytes have 2^48 blocks).
const DISK_SHIFT: u32 = 48;

/// One touch of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockAccess {
    /// The block: numbers from 0 in order of first appearance.
    pub block: u32,
    /// Written, not read.
    pub write: bool,
}

/// The block accesses of a trace.
#[derive(Clone, Debug)]
pub struct Stream {
    /// In order.
    pub accesses: Vec<BlockAccess>,
    /// By block number: the disk (from bit 48 on) and the block's number on it.
    pub addresses: Vec<u64>,
}

impl Stream {
    /// Cuts requests into block accesses.
    pub fn new(requests: &[TraceRequest]) -> Stream {
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let mut stream = Stream { accesses: Vec::new(), addresses: Vec::new() };
        for request in requests {
            let first = request.offset_bytes / BLOCK_BYTES;
            let last = (request.offset_bytes + request.length_bytes - 1) / BLOCK_BYTES;
            for block in first..=last {
                let address = u64::from(request.disk) << DISK_SHIFT | block;
                let next = stream.addresses.len() as u32;
                let block = match numbers.entry(address) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        stream.addresses.push(address);
                        *new.insert(next)
                    }
                };
                stream.accesses.push(BlockAccess { block, write: request.write });
            }
        }
        stream
    }

    /// Different blocks touched.
    pub fn footprint_blocks(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// That many thousandths of the footprint, rounded down: a cache's size.
    pub fn permille_blocks(&self, permille: u64) -> u64 {
        self.footprint_blocks() * permille / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_block_borders_and_disks_are_kept_apart() {
        let request = |disk, offset_bytes, length_bytes| TraceRequest { time_ns: 0, disk, offset_bytes, length_bytes, write: disk == 1 };
        let stream = Stream::new(&[request(0, 4095, 2), request(1, 0, 4096), request(0, 4096, 8192)]);
        let blocks: Vec<(u32, bool)> = stream.accesses.iter().map(|access| (access.block, access.write)).collect();
        assert_eq!(blocks, [(0, false), (1, false), (2, true), (1, false), (3, false)]);
        assert_eq!(stream.addresses, [0, 1, 1 << DISK_SHIFT, 2]);
        assert_eq!(stream.footprint_blocks(), 4);
        assert_eq!(stream.permille_blocks(300), 1);
    }
}
