//! The plan against a model: a bit for each block of a small volume.

use super::*;

const BLOCK: u64 = BLOCK_BYTES;
const MIB: u64 = 1 << 20;

/// A small generator of numbers (xorshift): a failure names its seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// Ranges of all kinds over a volume of that many bytes: unaligned, empty, overlapping, beyond its end.
fn drawn(numbers: &mut Numbers, volume_bytes: u64) -> Vec<Range<u64>> {
    let count = numbers.below(20);
    let range = |numbers: &mut Numbers| {
        let start = numbers.below(volume_bytes + volume_bytes / 8);
        let length_bytes = match numbers.below(3) {
            0 => numbers.below(3 * BLOCK),
            1 => numbers.below(MIB),
            _ => numbers.below(5 * MIB),
        };
        start..start + length_bytes
    };
    (0..count).map(|_| range(numbers)).collect()
}

fn blocks_of(range: &Range<u64>, volume_bytes: u64) -> Range<u64> {
    let end = range.end.min(volume_bytes);
    if range.start >= end { 0..0 } else { range.start / BLOCK..end.div_ceil(BLOCK) }
}

/// All pieces from a position on, taken in turns of changing sizes, as a job takes them.
fn all_pieces(plan: &Plan, from_bytes: u64, numbers: &mut Numbers) -> Vec<Piece> {
    let (mut at_bytes, mut all) = (from_bytes, Vec::new());
    loop {
        let most_bytes = numbers.below(4 * MIB);
        let pieces = plan.pieces(at_bytes, most_bytes, 64 * BLOCK + numbers.below(2 * MIB));
        let Some(last) = pieces.last() else { return all };
        at_bytes = last.end_bytes();
        all.extend(pieces);
    }
}

#[test]
fn every_wanted_byte_is_kept_once_and_gaps_are_short() {
    for seed in 1..400 {
        let mut numbers = Numbers(seed);
        let volume_bytes = 40 * MIB + numbers.below(8) * 512;
        let asked = drawn(&mut numbers, volume_bytes);
        let plan = Plan::new(&asked, None, volume_bytes);
        let wanted: std::collections::BTreeSet<u64> = asked.iter().flat_map(|range| blocks_of(range, volume_bytes)).collect();
        let pieces = all_pieces(&plan, 0, &mut numbers);
        let mut kept = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            assert!(piece.length_bytes > 0 && piece.end_bytes() <= volume_bytes, "seed {seed}: {piece:?}");
            assert!(piece.at_bytes / MIB == (piece.end_bytes() - 1) / MIB, "seed {seed}: {piece:?} crosses an extent");
            assert!(index == 0 || pieces[index - 1].end_bytes() <= piece.at_bytes, "seed {seed}: {piece:?} goes back");
            if piece.is_kept {
                kept.extend(piece.at_bytes / BLOCK..piece.end_bytes().div_ceil(BLOCK));
            } else {
                let blocks = piece.at_bytes / BLOCK..piece.end_bytes() / BLOCK;
                assert!(blocks.clone().all(|block| !wanted.contains(&block)), "seed {seed}: {piece:?} is wanted");
                assert!(index > 0, "seed {seed}: nothing lies before the first range");
            }
        }
        assert_eq!(kept, wanted.iter().copied().collect::<Vec<_>>(), "seed {seed}: once each, ascending");
        assert_eq!(plan.bytes(), pieces.iter().filter(|piece| piece.is_kept).map(|piece| piece.length_bytes).sum::<u64>());
        assert_eq!(plan.read_bytes(), pieces.iter().map(|piece| piece.length_bytes).sum::<u64>(), "seed {seed}");
        let mut gap_bytes = 0;
        for piece in &pieces {
            gap_bytes = if piece.is_kept { 0 } else { gap_bytes + piece.length_bytes };
            assert!(gap_bytes <= GAP_BYTES_MAX, "seed {seed}: {gap_bytes} bytes are read for nothing");
        }
        assert!(pieces.last().is_none_or(|piece| piece.is_kept), "seed {seed}: nothing is read behind the last range");
    }
}

#[test]
fn short_gaps_are_read_and_long_ones_are_not() {
    let far = 2 * MIB + GAP_BYTES_MAX;
    let plan = Plan::new(&[far..far + MIB, 0..MIB, 2 * MIB - BLOCK..2 * MIB], None, 100 * MIB);
    let pieces = plan.pieces(0, u64::MAX, MIB);
    let kept: u64 = pieces.iter().filter(|piece| piece.is_kept).map(|piece| piece.length_bytes).sum();
    assert_eq!((kept, plan.bytes()), (2 * MIB + BLOCK, 2 * MIB + BLOCK));
    let gaps: Vec<(u64, u64)> = pieces.iter().filter(|p| !p.is_kept).map(|p| (p.at_bytes, p.end_bytes())).collect();
    assert_eq!(gaps.first(), Some(&(MIB, 2 * MIB - BLOCK)));
    assert_eq!(gaps.iter().map(|(start, end)| end - start).sum::<u64>(), MIB - BLOCK + GAP_BYTES_MAX);
    let plan = Plan::new(&[0..MIB, MIB + GAP_BYTES_MAX + BLOCK..4 * MIB], None, 100 * MIB);
    assert!(plan.pieces(0, u64::MAX, MIB).iter().all(|piece| piece.is_kept), "a block more is a seek");
}

#[test]
fn a_plan_taken_up_anywhere_loses_nothing() {
    for seed in 1..300 {
        let mut numbers = Numbers(seed);
        let volume_bytes = 40 * MIB;
        let plan = Plan::new(&drawn(&mut numbers, volume_bytes), None, volume_bytes);
        let again = Plan::of_ranges(plan.ranges().to_vec()).expect("they are a plan's");
        assert_eq!(again, plan);
        for _ in 0..20 {
            let at_bytes = numbers.below(volume_bytes / BLOCK + 1) * BLOCK;
            let pieces = all_pieces(&plan, at_bytes, &mut numbers);
            let kept: u64 = pieces.iter().filter(|piece| piece.is_kept).map(|piece| piece.length_bytes).sum();
            assert_eq!(plan.bytes_below(at_bytes) + kept, plan.bytes(), "seed {seed}, from {at_bytes}");
            assert!(pieces.iter().all(|piece| piece.at_bytes >= at_bytes), "seed {seed}, from {at_bytes}");
            assert!(
                pieces.first().is_none_or(|piece| piece.is_kept || piece.at_bytes == at_bytes),
                "seed {seed}: a gap is read to its end"
            );
            let bytes = numbers.below(8 * MIB);
            let back = plan.back_by(at_bytes, bytes);
            let again_bytes = plan.bytes_below(at_bytes) - plan.bytes_below(back.min(at_bytes));
            let least = bytes.min(plan.bytes_below(at_bytes));
            assert!((least..least + BLOCK).contains(&again_bytes), "seed {seed}: {again_bytes} of {bytes} once more");
        }
    }
}

#[test]
fn the_budget_cuts_what_comes_last_in_the_list() {
    let ranges = [50 * MIB..52 * MIB, 10 * MIB..20 * MIB, 0..5 * MIB];
    let plan = |budget| Plan::new(&ranges, Some(budget), 100 * MIB);
    assert_eq!(plan(12 * MIB).ranges(), [10 * MIB..20 * MIB, 50 * MIB..52 * MIB]);
    assert_eq!(plan(4 * MIB + 100).ranges(), [10 * MIB..12 * MIB, 50 * MIB..52 * MIB]);
    assert_eq!(plan(1 << 40).bytes(), 17 * MIB);
    assert!(plan(100).ranges().is_empty() && plan(100).pieces(0, MIB, MIB).is_empty());
    for seed in 1..200 {
        let mut numbers = Numbers(seed);
        let ranges = drawn(&mut numbers, 40 * MIB);
        let budget = numbers.below(30 * MIB);
        let bytes = Plan::new(&ranges, Some(budget), 40 * MIB).bytes();
        assert!(bytes <= budget, "seed {seed}: {bytes} of {budget}");
    }
}

#[test]
fn more_ranges_than_are_kept_are_joined_where_least_lies_between() {
    let far = 16 * BLOCK;
    // Pairs of blocks with one between; pairs lie far apart.
    let pairs = RANGES_MAX as u64 - 10;
    let ranges: Vec<Range<u64>> =
        (0..pairs).flat_map(|pair| [0, 2].map(|at| pair * far + at * BLOCK..pair * far + (at + 1) * BLOCK)).collect();
    let plan = Plan::new(&ranges, None, u64::MAX);
    assert_eq!(plan.ranges().len(), RANGES_MAX);
    assert_eq!(
        plan.bytes(),
        (2 * pairs + (2 * pairs - RANGES_MAX as u64)) * BLOCK,
        "the shortest gaps are filled, and no more of them than must"
    );
    let budget = 2 * pairs * BLOCK;
    assert!(Plan::new(&ranges, Some(budget), u64::MAX).bytes() <= budget);
}

#[test]
fn what_is_no_plan_is_refused() {
    assert!(Plan::of_ranges(vec![0..4096, 4096..8192]).is_none());
    assert!(Plan::of_ranges(vec![8192..12288, 0..4096]).is_none());
    assert!(Plan::of_ranges(vec![100..4096]).is_none());
    let empty = std::iter::once(4096..4096).collect();
    assert!(Plan::of_ranges(empty).is_none());
    assert_eq!(
        Plan::new(&[u64::MAX - 5..u64::MAX, 7..7], None, u64::MAX).bytes() % BLOCK,
        BLOCK - 1,
        "the volume's last block is cut short"
    );
}
