//! Which steps of encoding pay on a volume: what each saves is measured against the CPU time it takes.

use crate::index::Encoding;
use content::encode::{Found, Steps};
use content::gate::Gate;
use types::BLOCK_BYTES;

/// A way to store a block in fewer bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Equal blocks are stored once.
    Duplicates,
    /// Deltas to what the address held before.
    Versions,
    /// Deltas to blocks that share 512-byte parts.
    Parts,
    /// LZ4.
    Lz4,
    /// Deltas to blocks with similar content.
    Similar,
    /// zstd in the place of LZ4.
    Zstd,
}

impl Step {
    /// All of them, cheapest first.
    pub const ALL: [Step; 6] = [Step::Duplicates, Step::Versions, Step::Parts, Step::Lz4, Step::Similar, Step::Zstd];

    /// The word in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Duplicates => "duplicates",
            Step::Versions => "versions",
            Step::Parts => "parts",
            Step::Lz4 => "lz4",
            Step::Similar => "similar",
            Step::Zstd => "zstd",
        }
    }

    /// CPU time a block, in nanoseconds: medians over the sample blocks on one core (`engine-bench content`).
    const fn cost_ns(self) -> f32 {
        match self {
            Step::Duplicates | Step::Versions => 300.0,
            Step::Parts => 500.0,
            Step::Lz4 => 5_000.0,
            Step::Similar => 12_000.0,
            Step::Zstd => 15_000.0,
        }
    }

    /// Whether it is open before anything was measured.
    const fn opens_first(self) -> bool {
        !matches!(self, Step::Similar | Step::Zstd)
    }
}

/// A step opens where it saves as many bytes for a microsecond of CPU time: zstd then has to make pages of a database a fourteenth smaller than
/// LZ4 leaves them, and parts to be of use to one block in 400.
const BYTES_A_MICROSECOND: f32 = 20.0;

/// Part of the bytes that differences must save beyond LZ4 for their bases to be read for it; and where that ends. Such a block costs a read of the
/// SSD and a decoding when it is written, the same when it goes home, and its client waits. Under TPC-C it was 57 %; under random
/// writes of noise that LZ4 leaves a quarter of it was 12 %, and took a sixth of all CPU time.
const VERSION_READS: (f32, f32) = (0.25, 0.18);

/// How a step stands on a volume.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepState {
    /// Which.
    pub step: Step,
    /// Whether every block is tried.
    pub is_open: bool,
    /// Mean part of the bytes that it saved where it was tried lately.
    pub saved_part: f32,
    /// The part that opens it.
    pub open_from: f32,
}

/// The steps of one volume.
pub struct VolumeSteps {
    gates: [Gate; Step::ALL.len()],
    /// Whether versions save so much that their bases are read for it.
    version_reads: Gate,
}

impl Default for VolumeSteps {
    fn default() -> VolumeSteps {
        let gate = |step: Step| Gate::new(BYTES_A_MICROSECOND * step.cost_ns() / 1000.0 / BLOCK_BYTES as f32, step.opens_first());
        VolumeSteps { gates: Step::ALL.map(gate), version_reads: Gate::new(VERSION_READS.0, true).closing_below(VERSION_READS.1) }
    }
}

impl VolumeSteps {
    /// What is to be tried with the next block; asked once for each.
    pub fn wanted(&mut self) -> Steps {
        self.version_reads.tries();
        let [duplicates, versions, parts, lz4, similar, zstd] = self.gates.each_mut().map(Gate::tries);
        Steps { duplicates, versions, parts, lz4, similar, zstd: zstd && content::dense::AVAILABLE }
    }

    /// What is being tried just now, and worth reading a base for.
    pub fn reading(&self) -> Steps {
        let [duplicates, versions, parts, lz4, similar, zstd] = self.gates.each_ref().map(Gate::is_looking);
        Steps {
            duplicates,
            versions: versions && self.version_reads.is_looking(),
            parts,
            lz4,
            similar,
            zstd: zstd && content::dense::AVAILABLE,
        }
    }

    /// What came of a block with the steps that were taken; `had_version`: the address rested on something that was at hand.
    pub fn tried(&mut self, taken: Steps, had_version: bool, encoding: Encoding, bytes: usize, found: Found) {
        if encoding == Encoding::Zero {
            return;
        }
        let whole = BLOCK_BYTES as usize;
        // A small difference is taken before LZ4 is asked: it is compared with what LZ4 makes of this volume's blocks.
        let lz4_bytes = match found.lz4_bytes {
            0 => whole - (self.gates[Step::Lz4 as usize].saved_part() * BLOCK_BYTES as f32) as usize,
            bytes => bytes,
        };
        if taken.versions && had_version {
            self.version_reads.tried(whole, if found.by_version { lz4_bytes.saturating_sub(bytes) } else { 0 });
        }
        let mut note = |step: Step, of: usize, saved: usize| self.gates[step as usize].tried(of, saved);
        let is_delta = matches!(encoding, Encoding::Diff | Encoding::LzDelta | Encoding::ZstdDelta);
        if taken.versions && had_version {
            note(Step::Versions, whole, if found.by_version { whole - bytes } else { 0 });
        }
        if found.by_version {
            return;
        }
        if taken.duplicates {
            note(Step::Duplicates, whole, if encoding == Encoding::Duplicate { whole } else { 0 });
        }
        if encoding == Encoding::Duplicate {
            return;
        }
        if taken.parts {
            note(Step::Parts, whole, if found.by_parts { found.lz4_bytes.saturating_sub(bytes) } else { 0 });
        }
        if taken.similar && found.tried_similar {
            let saved = if is_delta && !found.by_parts { found.lz4_bytes.saturating_sub(bytes) } else { 0 };
            note(Step::Similar, found.lz4_bytes, saved);
        }
        if taken.lz4 && !is_delta {
            note(Step::Lz4, whole, whole - found.lz4_bytes.min(whole));
        }
        if taken.zstd && !is_delta {
            note(Step::Zstd, found.lz4_bytes, if encoding == Encoding::Zstd { found.lz4_bytes.saturating_sub(bytes) } else { 0 });
        }
    }

    /// How the steps stand.
    pub fn states(&self) -> [StepState; Step::ALL.len()] {
        Step::ALL.map(|step| {
            let gate = &self.gates[step as usize];
            StepState { step, is_open: gate.is_open(), saved_part: gate.saved_part(), open_from: gate.open_from() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_close_where_they_bring_nothing_and_are_tried_again() {
        let mut steps = VolumeSteps::default();
        let first = steps.wanted();
        assert!(first.duplicates && first.versions && first.parts && first.lz4);
        let nothing = Found { lz4_bytes: 4096, ..Found::default() };
        let mut tried = 0;
        for _ in 0..100_000 {
            let wanted = steps.wanted();
            tried += u32::from(wanted.lz4);
            steps.tried(wanted, true, Encoding::Raw, 4096, nothing);
        }
        assert!(steps.states().iter().all(|state| !state.is_open), "{:?}", steps.states());
        assert!((4_000..12_000).contains(&tried), "LZ4 was tried with {tried} of 100,000 blocks");
        let half = Found { lz4_bytes: 2048, ..Found::default() };
        for _ in 0..100_000 {
            let wanted = steps.wanted();
            steps.tried(wanted, false, Encoding::Lz4, 2048, half);
        }
        let open: alloc::vec::Vec<&str> = steps.states().iter().filter(|state| state.is_open).map(|state| state.step.name()).collect();
        assert_eq!(open, ["lz4"]);
    }

    /// Differences to versions save as much as ever where LZ4 leaves little: but then they are not worth being read for.
    #[test]
    fn bases_are_read_where_that_saves_more_than_lz4_does() {
        let (mut steps, mut others) = (VolumeSteps::default(), VolumeSteps::default());
        assert!(steps.reading().versions, "before anything was measured");
        for block in 0..20_000 {
            let quarter = Found { by_version: block % 2 == 0, lz4_bytes: 1040, ..Found::default() };
            let (encoding, bytes) = if quarter.by_version { (Encoding::Diff, 500) } else { (Encoding::Lz4, 1040) };
            let wanted = steps.wanted();
            steps.tried(wanted, true, encoding, bytes, quarter);
            // Rows of a database: one in eight is new, the others differ a little.
            let half = Found { by_version: block % 8 != 0, lz4_bytes: if block % 8 == 0 { 2048 } else { 0 }, ..Found::default() };
            let (encoding, bytes) = if half.by_version { (Encoding::Diff, 100) } else { (Encoding::Lz4, 2048) };
            let wanted = others.wanted();
            others.tried(wanted, true, encoding, bytes, half);
        }
        assert!(steps.states()[Step::Versions as usize].is_open, "of bases that are in memory");
        assert!(others.reading().versions);
        let mut reads = 0;
        for _ in 0..100_000 {
            steps.wanted();
            reads += u32::from(steps.reading().versions);
        }
        assert!((4_000..10_000).contains(&reads), "{reads} of 100,000 read");
    }
}
