//! The members of the policies' family, and the chooser among them, without layout and RAM tier: what the engine could reach.

use crate::replay::{Cache, Outcome, replay};
use crate::stream::{BlockAccess, Stream};
use retention::{Chooser, MEMBERS, Member, Queues};

/// One member of the family.
pub struct Alone(Queues);

impl Alone {
    /// For blocks `0..footprint_blocks`.
    pub fn new(member: Member, footprint_blocks: u64, capacity_blocks: u64) -> Alone {
        Alone(Queues::new(member, capacity_blocks.max(2) as u32, footprint_blocks as u32))
    }
}

impl Cache for Alone {
    fn access(&mut self, access: BlockAccess) -> bool {
        self.0.access(access.block)
    }
}

/// The member that the chooser says, from access to access.
pub struct Chosen {
    queues: Queues,
    chooser: Chooser,
    /// Blocks as the engine would know them: their numbers would be sampled as well, but not the same ones.
    addresses: Vec<u64>,
}

impl Chosen {
    /// For this stream.
    pub fn new(stream: &Stream, capacity_blocks: u64) -> Chosen {
        let capacity = capacity_blocks.max(2);
        Chosen {
            queues: Queues::new(MEMBERS[0], capacity as u32, stream.footprint_blocks() as u32),
            chooser: Chooser::new(capacity, 0),
            addresses: stream.addresses.clone(),
        }
    }
}

impl Cache for Chosen {
    fn access(&mut self, access: BlockAccess) -> bool {
        if let Some(member) = self.chooser.access(self.addresses[access.block as usize]) {
            self.queues.set_member(MEMBERS[member]);
        }
        self.queues.access(access.block)
    }
}

/// What all of them do with a stream.
#[derive(Clone, Copy, Debug)]
pub struct Members {
    /// Each member alone, in the order of [`MEMBERS`].
    pub alone: [Outcome; MEMBERS.len()],
    /// The chooser.
    pub chosen: Outcome,
}

impl Members {
    /// Replays the stream through each.
    pub fn new(stream: &Stream, capacity_blocks: u64) -> Members {
        let footprint = stream.footprint_blocks();
        Members {
            alone: MEMBERS.map(|member| replay(stream, &mut Alone::new(member, footprint, capacity_blocks))),
            chosen: replay(stream, &mut Chosen::new(stream, capacity_blocks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chooser_is_about_as_good_as_the_best_of_a_load_that_does_not_change() {
        // Skewed uses of 20,000 blocks, and a scan that no block of is used again: recency keeps what the scan brings.
        let mut state = 1_u64;
        let mut skewed = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let part = (state >> 40) as f64 / f64::from(1 << 24);
            (part * part * part * 20_000.0) as u32
        };
        let next = |nth: u32| BlockAccess { block: if nth.is_multiple_of(2) { skewed() } else { 20_000 + nth / 2 }, write: false };
        let stream = Stream { accesses: (0..400_000).map(next).collect(), addresses: (0..220_000).collect() };
        let members = Members::new(&stream, 4000);
        let ratios = members.alone.map(|outcome| outcome.miss_ratio());
        let best = ratios.iter().copied().fold(1.0, f64::min);
        assert!(ratios[2] > best + 0.02, "{ratios:?}");
        assert!(members.chosen.miss_ratio() < best + 0.005, "{} of {ratios:?}", members.chosen.miss_ratio());
    }
}
