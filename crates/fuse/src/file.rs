//! The one file: what each FUSE operation means for the volume behind it.
//!
//! Sans-I/O and shared by both transports: an operation goes in, an [`Decision`] comes out.

use crate::protocol::answer::FileFacts;
use crate::protocol::{Answer, Operation};
use engine::api::Op;
use runtime::VolumeRef;
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// `FALLOC_FL_KEEP_SIZE`.
const KEEP_SIZE: u32 = 0x01;
/// `FALLOC_FL_PUNCH_HOLE`.
const PUNCH_HOLE: u32 = 0x02;
/// `FALLOC_FL_ZERO_RANGE`.
const ZERO_RANGE: u32 = 0x10;

/// What to do about an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Say this.
    Answer(Answer),
    /// Say nothing.
    Silent,
    /// Ask the volume.
    Volume(Work),
}

/// A request to the volume, and what to do with its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) op: Op,
    pub(crate) start_sector: u64,
    pub(crate) sectors: u32,
    /// Where in the first page the client's bytes begin.
    pub(crate) skip_bytes: u32,
    /// How many bytes the client's data has; 0 for flush, discard and zeroes.
    pub(crate) data_bytes: u32,
}

impl Work {
    /// Pages that the data of this work touches.
    pub(crate) fn pages(&self) -> usize {
        (u64::from(self.skip_bytes) + u64::from(self.data_bytes)).div_ceil(BLOCK_BYTES) as usize
    }
}

/// The file's facts. All but the size are fixed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeFile {
    /// Size in bytes, a multiple of `block_bytes`.
    pub(crate) size_bytes: u64,
    /// 512 or 4096.
    pub(crate) block_bytes: u32,
    /// Whether making a hole can free space.
    pub(crate) can_discard: bool,
}

impl VolumeFile {
    /// The file as it is now: it has grown if the volume has.
    pub(crate) fn of(self, volume: &VolumeRef) -> VolumeFile {
        VolumeFile { size_bytes: volume.size_bytes(), ..self }
    }

    /// What `operation` asks for. `read_only` is the volume's present state.
    pub(crate) fn decide(&self, operation: Operation, read_only: bool) -> Decision {
        let facts = FileFacts { size_bytes: self.size_bytes, block_bytes: self.block_bytes, read_only };
        match operation {
            Operation::Read { offset_bytes, length_bytes } => self.read(offset_bytes, length_bytes),
            Operation::Write { offset_bytes, length_bytes } => self.write(offset_bytes, length_bytes),
            Operation::Fsync => Decision::Volume(Work { op: Op::Flush, start_sector: 0, sectors: 0, skip_bytes: 0, data_bytes: 0 }),
            Operation::Fallocate { offset_bytes, length_bytes, mode } => self.fallocate(offset_bytes, length_bytes, mode),
            Operation::GetAttributes => Decision::Answer(Answer::attributes(&facts)),
            Operation::SetAttributes { size_bytes, access } => {
                let size_changes = size_bytes.is_some_and(|size| size != self.size_bytes);
                // Times are nobody's business here: taken, and not kept.
                if size_changes || access { fail(libc::EPERM) } else { Decision::Answer(Answer::attributes(&facts)) }
            }
            Operation::Open => Decision::Answer(Answer::open()),
            Operation::StatFs => Decision::Answer(Answer::file_system(&facts)),
            Operation::Release | Operation::Flush | Operation::Access | Operation::Destroy => Decision::Answer(Answer::OK),
            Operation::Silent => Decision::Silent,
            // A second INIT would be a confused kernel; the first was answered before the connection began.
            Operation::Init(_) => fail(libc::EIO),
            Operation::Unknown => fail(libc::ENOSYS),
        }
    }

    /// Reads may start and end at any byte (someone may look at the file without the loop device): whole device
    /// blocks are read and the rest is cut off.
    fn read(&self, offset_bytes: u64, length_bytes: u32) -> Decision {
        let data_bytes = u64::from(length_bytes).min(self.size_bytes.saturating_sub(offset_bytes));
        if data_bytes == 0 {
            return Decision::Answer(Answer::OK);
        }
        let block_bytes = u64::from(self.block_bytes);
        let start_bytes = offset_bytes / block_bytes * block_bytes;
        let end_bytes = (offset_bytes + data_bytes).next_multiple_of(block_bytes);
        Decision::Volume(Work {
            op: Op::Read,
            start_sector: start_bytes / SECTOR_BYTES,
            sectors: ((end_bytes - start_bytes) / SECTOR_BYTES) as u32,
            skip_bytes: (offset_bytes % BLOCK_BYTES) as u32,
            data_bytes: data_bytes as u32,
        })
    }

    /// Writes must be whole device blocks: completing a block by reading it first could undo a concurrent write.
    fn write(&self, offset_bytes: u64, length_bytes: u32) -> Decision {
        match self.range(offset_bytes, u64::from(length_bytes)) {
            Err(decision) => decision,
            Ok(()) if length_bytes == 0 => Decision::Answer(Answer::written(0)),
            Ok(()) => Decision::Volume(Work {
                op: Op::Write,
                start_sector: offset_bytes / SECTOR_BYTES,
                sectors: length_bytes / SECTOR_BYTES as u32,
                skip_bytes: (offset_bytes % BLOCK_BYTES) as u32,
                data_bytes: length_bytes,
            }),
        }
    }

    /// The loop driver sends PUNCH_HOLE for two things: a discard, after which any content will do, and a
    /// WRITE_ZEROES that may deallocate, after which file systems rely on zeroes (ext4 zeroes its inode tables
    /// so). They look the same here, so both must give zeroes: [`Op::PunchHole`], which deallocates where the device can. Where it
    /// cannot, a discard of the whole device would write all of it: EOPNOTSUPP makes the loop driver offer no discards from
    /// then on, and the block layer write its zeroes itself. (Switching discards off in the queue's settings is no way: the
    /// setting outlives the device and cannot be undone, since with it the granularity becomes 0 and every value is invalid.)
    fn fallocate(&self, offset_bytes: u64, length_bytes: u64, mode: u32) -> Decision {
        if !matches!(mode & !KEEP_SIZE, PUNCH_HOLE | ZERO_RANGE) {
            return fail(libc::EOPNOTSUPP);
        }
        if mode & PUNCH_HOLE != 0 && !self.can_discard {
            return fail(libc::EOPNOTSUPP);
        }
        if let Err(decision) = self.range(offset_bytes, length_bytes) {
            return decision;
        }
        match u32::try_from(length_bytes / SECTOR_BYTES) {
            Ok(0) | Err(_) => fail(libc::EINVAL),
            Ok(sectors) => {
                let start_sector = offset_bytes / SECTOR_BYTES;
                let op = if mode & PUNCH_HOLE != 0 { Op::PunchHole } else { Op::WriteZeroes };
                Decision::Volume(Work { op, start_sector, sectors, skip_bytes: 0, data_bytes: 0 })
            }
        }
    }

    /// Whole blocks, and inside the file: a write makes it no larger.
    fn range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Decision> {
        let block_bytes = u64::from(self.block_bytes);
        if !offset_bytes.is_multiple_of(block_bytes) || !length_bytes.is_multiple_of(block_bytes) {
            return Err(fail(libc::EINVAL));
        }
        match offset_bytes.checked_add(length_bytes) {
            Some(end_bytes) if end_bytes <= self.size_bytes => Ok(()),
            _ => Err(fail(libc::ENOSPC)),
        }
    }
}

fn fail(errno: i32) -> Decision {
    Decision::Answer(Answer::error(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: VolumeFile = VolumeFile { size_bytes: 10_000 * 512, block_bytes: 512, can_discard: true };
    const LARGE: VolumeFile = VolumeFile { size_bytes: 1000 * 4096, block_bytes: 4096, can_discard: true };

    fn read(file: &VolumeFile, offset_bytes: u64, length_bytes: u32) -> Decision {
        file.decide(Operation::Read { offset_bytes, length_bytes }, false)
    }

    fn write(file: &VolumeFile, offset_bytes: u64, length_bytes: u32) -> Decision {
        file.decide(Operation::Write { offset_bytes, length_bytes }, false)
    }

    #[test]
    fn reads_are_cut_to_the_file_and_widened_to_blocks() {
        assert_eq!(
            read(&LARGE, 5000, 100),
            Decision::Volume(Work { op: Op::Read, start_sector: 8, sectors: 8, skip_bytes: 904, data_bytes: 100 })
        );
        assert_eq!(
            read(&SMALL, 10_000 * 512 - 512, 4096),
            Decision::Volume(Work { op: Op::Read, start_sector: 9999, sectors: 1, skip_bytes: 7 * 512, data_bytes: 512 })
        );
        assert_eq!(read(&SMALL, 10_000 * 512, 1), Decision::Answer(Answer::OK));
        assert_eq!(read(&SMALL, u64::MAX, u32::MAX), Decision::Answer(Answer::OK));
    }

    #[test]
    fn writes_must_be_whole_blocks_inside_the_file() {
        assert!(matches!(write(&SMALL, 512, 512), Decision::Volume(Work { start_sector: 1, sectors: 1, skip_bytes: 512, .. })));
        assert_eq!(write(&LARGE, 512, 4096), fail(libc::EINVAL));
        assert_eq!(write(&LARGE, 0, 512), fail(libc::EINVAL));
        assert_eq!(write(&LARGE, 1000 * 4096, 4096), fail(libc::ENOSPC));
        assert_eq!(write(&LARGE, u64::MAX - 4095, 4096), fail(libc::ENOSPC));
        assert_eq!(write(&LARGE, 4096, 0), Decision::Answer(Answer::written(0)));
    }

    #[test]
    fn holes_and_zero_ranges_are_told_apart_and_allocation_is_refused() {
        let fallocate = |mode| LARGE.decide(Operation::Fallocate { offset_bytes: 4096, length_bytes: 8192, mode }, false);
        let asks =
            |mode| if let Decision::Volume(Work { op, start_sector: 8, sectors: 16, .. }) = fallocate(mode) { Some(op) } else { None };
        assert_eq!(asks(PUNCH_HOLE | KEEP_SIZE), Some(Op::PunchHole));
        for mode in [ZERO_RANGE, ZERO_RANGE | KEEP_SIZE] {
            assert_eq!(asks(mode), Some(Op::WriteZeroes));
        }
        assert_eq!(fallocate(0), fail(libc::EOPNOTSUPP));
        let solid = VolumeFile { can_discard: false, ..LARGE };
        let fallocate = |mode| solid.decide(Operation::Fallocate { offset_bytes: 0, length_bytes: 4096, mode }, false);
        assert_eq!(fallocate(PUNCH_HOLE | KEEP_SIZE), fail(libc::EOPNOTSUPP));
        assert!(matches!(fallocate(ZERO_RANGE), Decision::Volume(_)));
    }

    #[test]
    fn the_size_cannot_change_but_times_can() {
        let set = |size_bytes, access| LARGE.decide(Operation::SetAttributes { size_bytes, access }, false);
        assert_eq!(set(Some(1), false), fail(libc::EPERM));
        assert_eq!(set(None, true), fail(libc::EPERM));
        assert!(matches!(set(None, false), Decision::Answer(answer) if answer.error_field() == 0));
        assert!(matches!(set(Some(LARGE.size_bytes), false), Decision::Answer(answer) if answer.error_field() == 0));
    }

    /// Whatever the numbers, a request to the volume stays inside it.
    #[test]
    fn no_numbers_reach_beyond_the_volume() {
        let edges = [0, 1, 511, 512, 4095, 4096, SMALL.size_bytes - 512, SMALL.size_bytes, u64::MAX - 511, u64::MAX];
        let mut asked = 0;
        for offset_bytes in edges {
            for length in edges {
                for operation in [
                    Operation::Read { offset_bytes, length_bytes: length as u32 },
                    Operation::Write { offset_bytes, length_bytes: length as u32 },
                    Operation::Fallocate { offset_bytes, length_bytes: length, mode: PUNCH_HOLE },
                ] {
                    if let Decision::Volume(work) = SMALL.decide(operation, false) {
                        assert!(work.sectors > 0 && work.start_sector + u64::from(work.sectors) <= 10_000, "{operation:?}: {work:?}");
                        asked += 1;
                    }
                }
            }
        }
        assert!(asked > 10);
    }
}
