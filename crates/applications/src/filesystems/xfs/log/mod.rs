//! The log: changes of metadata that are committed and not yet written where they belong.
//!
//! A file that changes all the time stays in the log: its inode is written home only once nothing
//! of it waits in memory. So what is committed is laid over what lies at home, as a mount after a
//! crash would do, in memory only.
//!
//! The log goes on while it is read. Each record says where it lies and in which round, and has a
//! checksum, so the records that follow each other from the tail on are what they were; the first
//! one that is not there, or not whole, is the end. In the next look it is gone on from there.
//!
//! Sources: "XFS Algorithms & Data Structures" (3rd edition), chapter "Journaling Log";
//! `fs/xfs/libxfs/xfs_log_format.h`, `fs/xfs/xfs_log_recover.c` and the two
//! `fs/xfs/xfs_*_item_recover.c` of inodes and buffers of the Linux kernel. Not read: a log on
//! another device, one of a machine with the high byte first, and the change of a tree's owner that
//! only `xfs_fsr` makes.

mod change;
mod overlay;
mod record;
mod transactions;

use super::superblock::Superblock;
use crate::filesystems::pieces::Pieces;
use overlay::Overlay;
use record::{BLOCK_BYTES, Broken, Header, Place, cycle};
use transactions::{Committed, Transactions};

/// What is read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// What is read at once in search of the newest record, which is near, and how far: eight records
/// may be under way, of 256 KiB.
const BACK_BLOCKS: u32 = 128;
const BACK_BLOCKS_MAX: u32 = 9 * 520;

/// Where the log lies on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::filesystems::xfs) struct Ring {
    pub(in crate::filesystems::xfs) start: u64,
    /// In blocks of 512 bytes.
    pub(in crate::filesystems::xfs) blocks: u32,
}

/// What a log holds that is newer than its home, as far as it was followed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Log {
    followed: Option<Followed>,
    /// Whether there is more in it than was read.
    is_behind: bool,
}

/// How far a log was followed.
#[derive(Clone, Debug)]
struct Followed {
    uuid: [u8; 16],
    ring: Ring,
    /// Where the next record will begin.
    next: Place,
    open: Transactions,
    newest: Overlay,
}

/// Why no more records follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The last one was read.
    Head,
    /// No more can be read now.
    Limit,
    /// What follows was overwritten before it was read.
    Lost,
    /// There is more in it than is held.
    TooMuch,
}

impl Log {
    /// Memory held, in bytes; nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.followed.as_ref().map_or(0, |followed| followed.open.bytes() + followed.newest.bytes())
    }

    /// Whether there is more of it to follow.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// What is newer than its home. Only in version 5 do homes tell how old they are: in version 4
    /// it is `None` until all is known, since a home may be newer than what lies in the middle of
    /// the log.
    fn newest(&self, superblock: &Superblock) -> Option<&Overlay> {
        self.followed.as_ref().filter(|_| superblock.has_owners || !self.is_behind).map(|followed| &followed.newest)
    }

    /// Follows the log from where it was left, or from its tail, as far as the limits go. If that
    /// does not reach the last record, it is gone on with another time.
    pub(super) async fn follow(&mut self, superblock: &Superblock, pieces: &mut Pieces<'_>) {
        let before = self.followed.take();
        self.is_behind = false;
        let Some(ring) = superblock.log else { return };
        let mut followed = before.filter(|before| before.uuid == superblock.uuid && before.ring == ring);
        for _ in 0..2 {
            pieces.forget();
            let Some(newest) = ring.newest(&superblock.uuid, pieces).await else { break };
            // What lies before the tail is at home, and need not be read.
            let goes_on = followed.take().filter(|followed| newest.tail <= followed.next);
            let Some(mut one) = goes_on.or_else(|| Followed::from_tail(superblock.uuid, ring, &newest)) else { break };
            match one.records(superblock, pieces).await {
                // Overwritten while it was read.
                End::Lost => continue,
                End::TooMuch => break,
                end => {
                    self.is_behind = end == End::Limit;
                    self.followed = Some(one);
                    return;
                }
            }
        }
        self.is_behind = true;
    }

    /// Lays what is newer over an inode that was read at a place of the volume.
    pub(super) fn lay_inode(&self, superblock: &Superblock, place: u64, bytes: &mut [u8]) {
        if let Some(newest) = self.newest(superblock) {
            newest.lay_inode(superblock, place, bytes);
        }
    }

    /// Lays what is newer over a block whose parts were read at these places of the volume, each of
    /// the same length. In version 5 it has its LSN and its UUID at these offsets.
    pub(super) fn lay_block(&self, superblock: &Superblock, places: &[u64], block: &mut [u8], (lsn_at, uuid_at): (usize, usize)) {
        let Some(newest) = self.newest(superblock) else { return };
        let lsn = if superblock.has_owners { overlay::lsn_of(superblock, block, lsn_at, uuid_at) } else { 0 };
        let part_bytes = block.len() / places.len().max(1);
        for (place, part) in places.iter().zip(block.chunks_mut(part_bytes.max(1))) {
            newest.lay(*place, part, lsn);
        }
    }
}

impl Followed {
    /// Begins where the newest record says that a recovery would; `None` if that is no place.
    fn from_tail(uuid: [u8; 16], ring: Ring, newest: &Header) -> Option<Followed> {
        (newest.tail.block < ring.blocks).then(|| Followed {
            uuid,
            ring,
            next: newest.tail,
            open: Transactions::default(),
            newest: Overlay::default(),
        })
    }

    /// Takes in records.
    async fn records(&mut self, superblock: &Superblock, pieces: &mut Pieces<'_>) -> End {
        let (mut window, mut tail) = (Window::default(), None);
        let mut record = Vec::new();
        // Once around is all there can be.
        let mut left = self.ring.blocks;
        let end = loop {
            if !window.read(&self.ring, pieces, self.next.block, 1, &mut record).await {
                break End::Limit;
            }
            let Some(header) = Header::of(&record, &self.uuid).filter(|header| header.place == self.next) else {
                break if cycle(&record) > self.next.cycle { End::Lost } else { End::Head };
            };
            let Some(rest) = left.checked_sub(header.blocks()) else { break End::Lost };
            left = rest;
            if !window.read(&self.ring, pieces, self.next.block, header.blocks(), &mut record).await {
                break End::Limit;
            }
            let data = match header.open(&record, self.ring.blocks, superblock.has_owners) {
                Ok(data) => data,
                Err(Broken::Unfinished) => break End::Head,
                Err(Broken::Overwritten) => break End::Lost,
            };
            let Ok(committed) = self.open.take(&header, &data, superblock) else { return End::TooMuch };
            for one in committed {
                match one {
                    Committed::Changes(lsn, changes) => self.newest.take(lsn, changes),
                    Committed::Unmount => self.newest.clear(),
                }
            }
            if self.newest.bytes() > overlay::BYTES_MAX {
                self.newest.forget_before(header.tail.lsn());
                // Not for each record that lets go of a little.
                if self.newest.bytes() > overlay::BYTES_MAX / 4 * 3 {
                    return End::TooMuch;
                }
            }
            tail = Some(header.tail);
            self.next = self.next.after(header.blocks(), self.ring.blocks);
        };
        if let Some(tail) = tail {
            self.newest.forget_before(tail.lsn());
        }
        end
    }
}

impl Ring {
    /// The newest header, or one of the newest: blocks up to it are of the round of the first block,
    /// and behind it of the round before.
    async fn newest(&self, uuid: &[u8; 16], pieces: &mut Pieces<'_>) -> Option<Header> {
        let mut block = [0; BLOCK_BYTES];
        pieces.read(self.start, &mut block).await?;
        let first = cycle(&block);
        let (mut low, mut high) = (0, self.blocks);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            pieces.read(self.place(middle), &mut block).await?;
            if cycle(&block) == first { low = middle } else { high = middle }
        }
        let mut left = BACK_BLOCKS_MAX.min(self.blocks);
        while left > 0 {
            let count = BACK_BLOCKS.min(high).min(left);
            let start = high - count;
            let mut bytes = vec![0; count as usize * BLOCK_BYTES];
            pieces.straight(self.place(start), &mut bytes).await?;
            for (number, block) in (start..high).zip(bytes.chunks(BLOCK_BYTES)).rev() {
                if let Some(header) = Header::of(block, uuid).filter(|header| header.place.block == number) {
                    return Some(header);
                }
            }
            left -= count;
            high = if start == 0 { self.blocks } else { start };
        }
        None
    }

    /// Where a block lies on the volume.
    fn place(&self, block: u32) -> u64 {
        self.start + u64::from(block) * BLOCK_BYTES as u64
    }
}

/// A stretch of the log that was read at once.
#[derive(Default)]
struct Window {
    first: u32,
    bytes: Vec<u8>,
}

impl Window {
    /// Copies blocks of the log, which may go around its end; `false` if they cannot be read, or no
    /// more may be.
    async fn read(&mut self, ring: &Ring, pieces: &mut Pieces<'_>, block: u32, count: u32, to: &mut Vec<u8>) -> bool {
        to.clear();
        let first = count.min(ring.blocks - block);
        self.part(ring, pieces, block, first, to).await && (first == count || self.part(ring, pieces, 0, count - first, to).await)
    }

    async fn part(&mut self, ring: &Ring, pieces: &mut Pieces<'_>, block: u32, count: u32, to: &mut Vec<u8>) -> bool {
        let held = (self.bytes.len() / BLOCK_BYTES) as u32;
        let inside = block.checked_sub(self.first).filter(|inside| *inside < held);
        // What is not needed any more goes when more is read.
        if inside.is_none_or(|inside| held - inside < count) {
            self.bytes.drain(..inside.map_or(self.bytes.len(), |inside| inside as usize * BLOCK_BYTES));
            self.first = block;
            while self.bytes.len() < count as usize * BLOCK_BYTES {
                let at = block + (self.bytes.len() / BLOCK_BYTES) as u32;
                let len = WINDOW_BYTES.min((ring.blocks - at) as usize * BLOCK_BYTES);
                let before = self.bytes.len();
                self.bytes.resize(before + len, 0);
                if len == 0 || pieces.straight(ring.place(at), &mut self.bytes[before..]).await.is_none() {
                    self.bytes.truncate(before);
                    return false;
                }
            }
        }
        let inside = (block - self.first) as usize * BLOCK_BYTES;
        to.extend_from_slice(&self.bytes[inside..inside + count as usize * BLOCK_BYTES]);
        true
    }
}

#[cfg(test)]
mod tests;
