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
        // A loop a little larger than the cache, which recency loses.
        let accesses = (0..400_000).map(|nth| BlockAccess { block: nth % 5000, write: false }).collect();
        let stream = Stream { accesses, addresses: (0..5000).collect() };
        let members = Members::new(&stream, 4000);
        let ratios = members.alone.map(|outcome| outcome.miss_ratio());
        let best = ratios.iter().copied().fold(1.0, f64::min);
        assert!(best < 0.9 && ratios[2] == 1.0, "{ratios:?}");
        assert!(members.chosen.miss_ratio() < best + 0.05, "{} of {ratios:?}", members.chosen.miss_ratio());
    }
}
