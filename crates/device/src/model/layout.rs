//! Which bytes of the device lie on which spindle, and what a write costs under parity.

use super::set::{Layout, ParityUpdate};
use std::collections::BTreeMap;
use std::ops::Range;
use types::BLOCK_BYTES;

/// A range of one spindle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub spindle: usize,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// What a write does: all of `reads`, and when they are done, all of `writes`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WritePlan {
    pub reads: Vec<Piece>,
    pub writes: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    layout: Layout,
    spindles: u64,
}

impl Mapping {
    pub fn new(layout: Layout, spindles: u32) -> Mapping {
        let spindles = u64::from(spindles.max(1));
        assert!(!matches!(layout, Layout::Raid5 { .. }) || spindles >= 3, "RAID 5 needs 3 spindles, not {spindles}");
        assert!(layout != Layout::Single || spindles == 1, "one spindle holds everything, not {spindles}");
        Mapping { layout, spindles }
    }

    /// How many bytes each spindle of a device of `size_bytes` holds.
    pub fn spindle_bytes(&self, size_bytes: u64) -> u64 {
        match self.layout {
            Layout::Single => size_bytes,
            Layout::Striped { chunk_bytes } => size_bytes.div_ceil(chunk_bytes * self.spindles) * chunk_bytes,
            Layout::Raid5 { chunk_bytes, .. } => size_bytes.div_ceil(chunk_bytes * (self.spindles - 1)) * chunk_bytes,
        }
    }

    /// Device bytes in a row of chunks, if rows matter to writes.
    pub fn parity_row_bytes(&self) -> Option<u64> {
        match self.layout {
            Layout::Raid5 { chunk_bytes, .. } => Some(chunk_bytes * (self.spindles - 1)),
            _ => None,
        }
    }

    /// Where the data of `range` lies, neighbours on a spindle joined.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let (chunk_bytes, data_chunks) = match self.layout {
            Layout::Single => {
                return vec![Piece { spindle: 0, offset_bytes: range.start, length_bytes: range.end - range.start }];
            }
            Layout::Striped { chunk_bytes } => (chunk_bytes, self.spindles),
            Layout::Raid5 { chunk_bytes, .. } => (chunk_bytes, self.spindles - 1),
        };
        let mut pieces = Pieces::default();
        let mut at = range.start;
        while at < range.end {
            let (chunk, inside) = (at / chunk_bytes, at % chunk_bytes);
            let length_bytes = (chunk_bytes - inside).min(range.end - at);
            let row = chunk / data_chunks;
            pieces.add(self.spindle_of(row, chunk % data_chunks), row * chunk_bytes + inside, length_bytes);
            at += length_bytes;
        }
        pieces.into_vec()
    }

    fn spindle_of(&self, row: u64, data_chunk: u64) -> usize {
        let spindle = match self.layout {
            Layout::Single => 0,
            Layout::Striped { .. } => data_chunk,
            Layout::Raid5 { .. } => (self.parity_of(row) + 1 + data_chunk) % self.spindles,
        };
        spindle as usize
    }

    /// The spindle with the row's parity: the last at first, then one less with each row (left-symmetric).
    fn parity_of(&self, row: u64) -> u64 {
        self.spindles - 1 - row % self.spindles
    }

    /// What writing these blocks (of 4 KiB, ascending) takes.
    pub fn write_plan(&self, blocks: &[u64]) -> WritePlan {
        let Layout::Raid5 { chunk_bytes, update } = self.layout else {
            let mut pieces = Pieces::default();
            for block in blocks {
                for piece in self.pieces(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES) {
                    pieces.add(piece.spindle, piece.offset_bytes, piece.length_bytes);
                }
            }
            return WritePlan { reads: Vec::new(), writes: pieces.into_vec() };
        };
        // A column is one block of each chunk of a row, with its block of parity.
        let (data_chunks, chunk_blocks) = (self.spindles - 1, chunk_bytes / BLOCK_BYTES);
        let mut columns: BTreeMap<u64, u64> = BTreeMap::new();
        for block in blocks {
            let (chunk, inside) = (block / chunk_blocks, block % chunk_blocks);
            let column = chunk / data_chunks * chunk_blocks + inside;
            *columns.entry(column).or_default() |= 1 << (chunk % data_chunks);
        }
        let (mut reads, mut writes) = (Pieces::default(), Pieces::default());
        for (column, written) in columns {
            let row = column / chunk_blocks;
            let count = u64::from(written.count_ones());
            let rest = data_chunks - count;
            let read_old = match update {
                ParityUpdate::ReadModifyWrite => true,
                ParityUpdate::FewestReads => count < rest,
            };
            for chunk in 0..data_chunks {
                let (spindle, is_written) = (self.spindle_of(row, chunk), written >> chunk & 1 == 1);
                if is_written {
                    writes.add(spindle, column * BLOCK_BYTES, BLOCK_BYTES);
                }
                if rest > 0 && is_written == read_old {
                    reads.add(spindle, column * BLOCK_BYTES, BLOCK_BYTES);
                }
            }
            let parity = self.parity_of(row) as usize;
            writes.add(parity, column * BLOCK_BYTES, BLOCK_BYTES);
            if rest > 0 && read_old {
                reads.add(parity, column * BLOCK_BYTES, BLOCK_BYTES);
            }
        }
        WritePlan { reads: reads.into_vec(), writes: writes.into_vec() }
    }
}

/// Collects ranges per spindle, joining each with its predecessor where they touch.
#[derive(Default)]
struct Pieces(BTreeMap<usize, Vec<Piece>>);

impl Pieces {
    fn add(&mut self, spindle: usize, offset_bytes: u64, length_bytes: u64) {
        let list = self.0.entry(spindle).or_default();
        match list.last_mut() {
            Some(last) if last.offset_bytes + last.length_bytes == offset_bytes => last.length_bytes += length_bytes,
            _ => list.push(Piece { spindle, offset_bytes, length_bytes }),
        }
    }

    fn into_vec(self) -> Vec<Piece> {
        self.0.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 64 << 10;
    const CHUNK_BLOCKS: u64 = CHUNK / BLOCK_BYTES;

    fn raid5(update: ParityUpdate) -> Mapping {
        Mapping::new(Layout::Raid5 { chunk_bytes: CHUNK, update }, 3)
    }

    fn bytes(pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| piece.length_bytes).sum()
    }

    #[test]
    fn stripes_cover_each_spindle_densely() {
        let striped = Mapping::new(Layout::Striped { chunk_bytes: CHUNK }, 8);
        let pieces = striped.pieces(0..16 * CHUNK);
        assert_eq!(pieces.len(), 8, "neighbours on a spindle are joined: {pieces:?}");
        assert!(pieces.iter().all(|piece| piece.offset_bytes == 0 && piece.length_bytes == 2 * CHUNK));
        assert_eq!(striped.spindle_bytes(16 * CHUNK), 2 * CHUNK);
        let odd = striped.pieces(CHUNK - 512..CHUNK + 512);
        assert_eq!(odd.len(), 2);
        assert_eq!(bytes(&odd), 1024);
    }

    #[test]
    fn parity_rotates_and_never_meets_data() {
        let mapping = raid5(ParityUpdate::ReadModifyWrite);
        for row in 0..9 {
            let data: Vec<usize> = (0..2).map(|chunk| mapping.spindle_of(row, chunk)).collect();
            let parity = mapping.parity_of(row) as usize;
            assert_ne!(data[0], data[1]);
            assert!(!data.contains(&parity), "row {row}");
        }
        assert_eq!((0..3).map(|row| mapping.parity_of(row)).sum::<u64>(), 3);
    }

    #[test]
    fn a_small_write_reads_old_data_and_parity_and_writes_both() {
        let plan = raid5(ParityUpdate::ReadModifyWrite).write_plan(&[5]);
        assert_eq!((plan.reads.len(), plan.writes.len()), (2, 2));
        assert_eq!(plan.reads, plan.writes);
        let fewest = raid5(ParityUpdate::FewestReads).write_plan(&[5]);
        assert_eq!((fewest.reads.len(), fewest.writes.len()), (1, 2));
        assert!(fewest.writes.iter().all(|piece| piece.spindle != fewest.reads[0].spindle));
    }

    #[test]
    fn a_whole_row_is_written_without_reads() {
        let blocks: Vec<u64> = (0..2 * CHUNK_BLOCKS).collect();
        let plan = raid5(ParityUpdate::ReadModifyWrite).write_plan(&blocks);
        assert!(plan.reads.is_empty());
        assert_eq!(plan.writes.len(), 3);
        assert_eq!(bytes(&plan.writes), 3 * CHUNK);
        // The same columns of both chunks are a whole row's worth too.
        let plan = raid5(ParityUpdate::ReadModifyWrite).write_plan(&[3, 3 + CHUNK_BLOCKS]);
        assert!(plan.reads.is_empty());
        assert_eq!(bytes(&plan.writes), 3 * BLOCK_BYTES);
    }

    #[test]
    fn several_rows_join_on_each_spindle() {
        let blocks: Vec<u64> = (0..6 * CHUNK_BLOCKS).collect();
        let plan = raid5(ParityUpdate::ReadModifyWrite).write_plan(&blocks);
        assert_eq!(plan.writes.len(), 3, "{plan:?}");
        assert!(plan.writes.iter().all(|piece| piece.length_bytes == 3 * CHUNK));
    }
}
