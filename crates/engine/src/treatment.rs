//! Policies of objects: which blocks of a volume are treated how.
//!
//! A [`PolicyMap`] is made outside (from the names of tables, indexes and logs) and never changed: a
//! new one takes its place. Whatever it says, and however late or wrong it comes, only speed depends
//! on it. It names the volume it was made for, and is of no effect on any other.
//!
//! A look-up reads one byte, that of the block's extent. Where an extent holds parts of several
//! objects the byte says so, and the ranges are searched.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use types::{Admit, BLOCK_SECTORS, BypassReason, EXTENT_BLOCKS, Mode, ObjectWrites, OnScan, Treatment};
use types::{VOLUME_BLOCKS_MAX, VolumeId};

use crate::api::{Op, Origin, Request};
use crate::mutants;

/// Most ranges of one map: 24 MiB of memory.
pub const POLICY_RANGES_MAX: usize = 1 << 20;

/// Bit of an extent's byte: parts of it differ. No [`Treatment`] uses it.
const MIXED: u8 = 1 << 5;

/// Blocks that are treated alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRange {
    /// Which, within the volume.
    pub blocks: Range<u64>,
    /// How.
    pub treatment: Treatment,
}

/// Why ranges make no map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyMapError {
    /// More than [`POLICY_RANGES_MAX`].
    TooMany(usize),
    /// It is empty, ends before it begins, or ends behind the largest volume.
    NoRange(Range<u64>),
    /// Two of them have a block in common.
    Overlap(Range<u64>, Range<u64>),
}

impl fmt::Display for PolicyMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyMapError::TooMany(count) => write!(f, "{count} ranges of blocks: at most {POLICY_RANGES_MAX} can have a policy"),
            PolicyMapError::NoRange(blocks) => write!(f, "blocks {} to {} are no range of a volume", blocks.start, blocks.end),
            PolicyMapError::Overlap(one, other) => {
                let (a, b, c, d) = (one.start, one.end, other.start, other.end);
                write!(f, "blocks {a} to {b} and {c} to {d} overlap: a block has one policy")
            }
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyMap {
    volume: VolumeId,
    /// Ascending; neighbours that are treated alike are one.
    ranges: Vec<PolicyRange>,
    /// By extent, up to the last for which something is said: its treatment, or [`MIXED`]. A byte for each MiB of the volume.
    extents: Vec<u8>,
}

impl PolicyMap {
    /// Of these ranges, in any order; all other blocks are treated as their volume says.
    ///
    /// # Errors
    /// Too many ranges, one that is none, or two that overlap.
    pub fn new(volume: VolumeId, mut ranges: Vec<PolicyRange>) -> Result<PolicyMap, PolicyMapError> {
        if ranges.len() > POLICY_RANGES_MAX {
            return Err(PolicyMapError::TooMany(ranges.len()));
        }
        let is_range = |one: &PolicyRange| one.blocks.start < one.blocks.end && one.blocks.end <= VOLUME_BLOCKS_MAX;
        if let Some(none) = ranges.iter().find(|one| !is_range(one)) {
            return Err(PolicyMapError::NoRange(none.blocks.clone()));
        }
        ranges.sort_unstable_by_key(|one| one.blocks.start);
        if let Some(two) = ranges.windows(2).find(|two| two[0].blocks.end > two[1].blocks.start) {
            return Err(PolicyMapError::Overlap(two[0].blocks.clone(), two[1].blocks.clone()));
        }
        ranges.retain(|one| one.treatment != Treatment::default());
        ranges.dedup_by(|next, before| {
            let goes_on = before.blocks.end == next.blocks.start && before.treatment == next.treatment;
            before.blocks.end = if goes_on { next.blocks.end } else { before.blocks.end };
            goes_on
        });
        let extents = extents_of(&ranges);
        Ok(PolicyMap { volume, ranges, extents })
    }

    /// The volume it was made for.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// What it says, ascending.
    pub fn ranges(&self) -> &[PolicyRange] {
        &self.ranges
    }

    /// How a block is treated.
    #[inline]
    pub fn treatment_of(&self, block: u64) -> Treatment {
        let byte = self.extents.get((block / EXTENT_BLOCKS) as usize).copied().unwrap_or_default();
        Treatment::from_bits(byte).unwrap_or_else(|| self.search(block))
    }

    fn search(&self, block: u64) -> Treatment {
        let at = self.ranges.partition_point(|one| one.blocks.end <= block);
        self.ranges.get(at).filter(|one| one.blocks.contains(&block)).map_or_else(Treatment::default, |one| one.treatment)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        (self.ranges.capacity() * size_of::<PolicyRange>() + self.extents.capacity()) as u64
    }
}

fn extents_of(ranges: &[PolicyRange]) -> Vec<u8> {
    let end = ranges.last().map_or(0, |last| last.blocks.end.div_ceil(EXTENT_BLOCKS));
    let mut extents = alloc::vec![0; end as usize];
    for PolicyRange { blocks, treatment } in ranges {
        let whole = blocks.start.div_ceil(EXTENT_BLOCKS)..blocks.end / EXTENT_BLOCKS;
        for extent in whole.clone() {
            extents[extent as usize] = treatment.bits();
        }
        // The extents of its ends, unless they begin or end with it.
        for block in [blocks.start, blocks.end - 1] {
            let extent = block / EXTENT_BLOCKS;
            if !whole.contains(&extent) {
                extents[extent as usize] = MIXED;
            }
        }
    }
    extents
}

/// The mode by which a write to an object goes: never one that keeps more from the backing device than its volume's.
pub fn weakened(mode: Mode, treatment: Treatment) -> Mode {
    match (mode, treatment.writes()) {
        (Mode::WriteThrough, ObjectWrites::Through) if mutants::active(mutants::POLICY_RAISES_MODE) => Mode::WriteBack,
        (Mode::WriteBack, ObjectWrites::Through) => Mode::WriteThrough,
        (Mode::WriteBack | Mode::WriteThrough, ObjectWrites::Around) => Mode::WriteAround,
        (mode, _) => mode,
    }
}

/// Why a request goes around the cache, where one to a volume without policies would for that `reason`. A request is treated as
/// its first block.
pub(crate) fn bypass(map: &PolicyMap, mode: Mode, request: &Request, reason: Option<BypassReason>) -> Option<BypassReason> {
    if matches!(request.op, Op::Flush | Op::Discard | Op::PunchHole) || mode == Mode::PassThrough {
        return reason;
    }
    let treatment = map.treatment_of(request.start_sector / BLOCK_SECTORS);
    let goes_around = match (request.op, weakened(mode, treatment)) {
        (Op::Read, _) => treatment.admit() == Admit::Never,
        (_, Mode::WriteThrough) => treatment.admit() == Admit::Never,
        (_, Mode::WriteAround) => mode != Mode::WriteAround,
        // The write cache takes them all: they go home from there, and are not kept.
        (_, Mode::WriteBack | Mode::PassThrough) => false,
    };
    if goes_around {
        return Some(BypassReason::Policy);
    }
    let (pinned, scans) = (treatment.admit() == Admit::Pinned, treatment.on_scan() == OnScan::Normal);
    reason.filter(|reason| match reason {
        BypassReason::Size => !pinned,
        BypassReason::Sequential => !pinned && !scans,
        // What hearth only looks at is not let in by anybody's policy.
        BypassReason::Stream => !scans || request.origin == Origin::Look,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use page::PageVec;
    use types::VolumeIndex;

    fn range(blocks: Range<u64>, treatment: Treatment) -> PolicyRange {
        PolicyRange { blocks, treatment }
    }

    const NEVER: Treatment = Treatment::new(Admit::Never, ObjectWrites::Inherit, OnScan::HitOnly);
    const PINNED: Treatment = Treatment::new(Admit::Pinned, ObjectWrites::Inherit, OnScan::HitOnly);
    const AROUND: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Around, OnScan::HitOnly);
    const THROUGH: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Through, OnScan::HitOnly);
    const SCANS: Treatment = Treatment::new(Admit::Normal, ObjectWrites::Inherit, OnScan::Normal);

    #[test]
    fn each_block_is_found_in_whole_and_in_mixed_extents() {
        let ranges = [range(700..1024, PINNED), range(3..5, NEVER), range(5..512, NEVER), range(512..700, Treatment::default())];
        let map = PolicyMap::new(VolumeId(1), ranges.to_vec()).expect("ranges");
        assert_eq!(map.ranges(), [range(3..512, NEVER), range(700..1024, PINNED)]);
        for block in 0..3000 {
            let expected = match block {
                3..512 => NEVER,
                700..1024 => PINNED,
                _ => Treatment::default(),
            };
            assert_eq!(map.treatment_of(block), expected, "block {block}");
        }
        assert_eq!(map.treatment_of(u64::MAX), Treatment::default());
        assert_eq!(map.extents, [MIXED, NEVER.bits(), MIXED, PINNED.bits()]);
    }

    #[test]
    fn two_objects_that_meet_within_an_extent_are_told_apart() {
        let map = PolicyMap::new(VolumeId(1), [range(0..100, NEVER), range(100..256, PINNED)].to_vec()).expect("ranges");
        assert_eq!([99, 100, 255, 256].map(|block| map.treatment_of(block)), [NEVER, PINNED, PINNED, Treatment::default()]);
    }

    #[test]
    fn what_is_no_map_is_refused_with_a_sentence() {
        let error = |ranges: &[PolicyRange]| PolicyMap::new(VolumeId(1), ranges.to_vec()).expect_err("no map").to_string();
        assert_eq!(error(&[range(5..9, PINNED), range(0..6, NEVER)]), "blocks 0 to 6 and 5 to 9 overlap: a block has one policy");
        assert_eq!(error(&[range(7..7, NEVER)]), "blocks 7 to 7 are no range of a volume");
        assert!(error(&[range(0..VOLUME_BLOCKS_MAX + 1, NEVER)]).contains("no range"));
        assert!(error(&alloc::vec![range(0..1, NEVER); POLICY_RANGES_MAX + 1]).starts_with("1048577 ranges"));
        let largest = PolicyMap::new(VolumeId(1), alloc::vec![range(VOLUME_BLOCKS_MAX - 1..VOLUME_BLOCKS_MAX, PINNED)]).expect("a range");
        assert_eq!(largest.treatment_of(VOLUME_BLOCKS_MAX - 1), PINNED);
        assert_eq!(largest.memory_bytes() >> 20, 64, "a byte for each extent of the largest volume");
    }

    #[test]
    fn a_policy_only_ever_weakens_a_mode() {
        let kept_back = |mode| match mode {
            Mode::WriteBack => 3,
            Mode::WriteThrough => 2,
            Mode::WriteAround => 1,
            Mode::PassThrough => 0,
        };
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough] {
            for bits in 0..=u8::MAX {
                if let Some(treatment) = Treatment::from_bits(bits) {
                    assert!(kept_back(weakened(mode, treatment)) <= kept_back(mode), "{mode:?} {treatment:?}");
                }
            }
        }
        assert_eq!(weakened(Mode::WriteBack, THROUGH), Mode::WriteThrough);
        assert_eq!(weakened(Mode::WriteBack, AROUND), Mode::WriteAround);
    }

    #[test]
    fn what_is_read_only_to_get_past_it_is_let_in_by_no_policy() {
        let scanned = Treatment::new(Admit::Pinned, ObjectWrites::Inherit, OnScan::Normal);
        let map = PolicyMap::new(VolumeId(1), alloc::vec![range(8..16, scanned)]).expect("a range");
        let why = |origin| {
            let (volume, pages, op) = (VolumeIndex(0), PageVec::new(), Op::Read);
            let request = Request::new(1, volume, op, 64, 8, origin).pages(pages);
            bypass(&map, Mode::WriteBack, &request, Some(BypassReason::Stream))
        };
        assert_eq!(
            [Origin::Stream, Origin::Look].map(why),
            [None, Some(BypassReason::Stream)],
            "a scan may come in, a gap of a preload may not"
        );
    }

    #[test]
    fn reasons_to_go_around_by_policy_mode_and_stream() {
        use BypassReason::{PassThrough, Policy, Sequential, Size, Stream};
        let why = |treatment, mode, op, reason| {
            let map = PolicyMap::new(VolumeId(1), alloc::vec![range(8..16, treatment)]).expect("a range");
            let request = Request::new(1, VolumeIndex(0), op, 64, 8, Origin::Client);
            let elsewhere = Request { start_sector: 128, ..request.clone() };
            assert_eq!(bypass(&map, mode, &elsewhere, reason), reason, "nothing is said of other blocks");
            bypass(&map, mode, &request, reason)
        };
        assert_eq!(why(NEVER, Mode::WriteBack, Op::Read, None), Some(Policy));
        assert_eq!(why(NEVER, Mode::WriteBack, Op::Write, None), None, "the write cache takes it");
        assert_eq!(why(NEVER, Mode::WriteThrough, Op::Write, None), Some(Policy));
        assert_eq!(why(NEVER, Mode::PassThrough, Op::Read, Some(PassThrough)), Some(PassThrough));
        assert_eq!(why(AROUND, Mode::WriteBack, Op::WriteZeroes, None), Some(Policy));
        assert_eq!(why(AROUND, Mode::WriteBack, Op::Read, None), None);
        assert_eq!(why(AROUND, Mode::WriteAround, Op::Write, None), None, "the mode is the reason, and counts itself");
        assert_eq!(why(THROUGH, Mode::WriteBack, Op::Write, None), None);
        for reason in [Size, Sequential, Stream] {
            assert_eq!(why(NEVER, Mode::WriteBack, Op::Write, Some(reason)), Some(reason));
            assert_eq!(why(SCANS, Mode::WriteBack, Op::Read, Some(reason)), (reason == Size).then_some(Size));
            assert_eq!(why(PINNED, Mode::WriteBack, Op::Read, Some(reason)), (reason == Stream).then_some(Stream));
            assert_eq!(why(AROUND, Mode::WriteBack, Op::Flush, Some(reason)), Some(reason));
        }
    }
}
