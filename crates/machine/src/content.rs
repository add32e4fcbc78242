//! What a pool makes of what blocks contain, gathered from its shards.

use super::Machine;
use api::error::ControlError;
use api::stats::{ContentStats, ContentStep};
use datapath::Contents;
use engine::packer::{Step, StepState};
use engine::shard::Shard;
use engine::stats::ContentStats as ShardContent;
use records::state::PoolRecord;
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, Content, VolumeIndex};

/// What was seen so far.
#[derive(Default)]
pub struct Gathered {
    level: Content,
    shards: ShardContent,
    /// Memory of index and policy.
    index_bytes: u64,
    /// By the volume's place, of each shard that stored something of it.
    steps: BTreeMap<u16, Vec<[StepState; Step::ALL.len()]>>,
}

impl Gathered {
    /// Adds what is seen of a shard.
    pub fn look(&mut self, shard: &Shard) {
        let stats = shard.stats();
        self.level = shard.content_options().level;
        self.shards.add(&shard.content_stats());
        self.index_bytes += stats.index_bytes + stats.policy_bytes;
        let places: Vec<VolumeIndex> = shard.attached().map(|(place, ..)| place).collect();
        for place in places {
            self.steps.entry(place.0).or_default().extend(shard.content_steps(place));
        }
    }

    /// All of it in numbers for people; `None` where content is off and every block is stored as it is.
    pub fn figures(&self, name_of: impl Fn(u16) -> Option<String>) -> Option<ContentStats> {
        let ShardContent { plain_blocks, census, hint_bytes, .. } = self.shards;
        let packed_blocks = self.shards.packed_blocks();
        if self.level == Content::Off && packed_blocks == 0 {
            return None;
        }
        let cached_blocks = plain_blocks + packed_blocks;
        let cached_bytes = cached_blocks * BLOCK_BYTES;
        let stored_bytes = plain_blocks * BLOCK_BYTES + census.stored_bytes;
        let per = |of: u64, each: u64| (each > 0).then(|| of as f64 / each as f64);
        let full_blocks = plain_blocks + census.raw + census.lz4 + census.zstd;
        // An object without a block is there only because others rest on it.
        let reference_blocks = census.references.saturating_sub(census.orphans).min(full_blocks);
        let named = |(place, steps): (&u16, &Vec<_>)| Some((name_of(*place)?, joined(steps)));
        Some(ContentStats {
            level: self.level,
            reference_blocks,
            uncached_reference_blocks: census.orphans,
            associated_blocks: census.duplicate + census.delta,
            independent_blocks: full_blocks - reference_blocks,
            zero_blocks: census.zero,
            cached_bytes,
            stored_bytes,
            effective_capacity: per(cached_bytes, stored_bytes),
            saved_bytes: self.shards.saved_bytes,
            encoded_blocks: self.shards.encoded_blocks,
            encoding_cpu_us_per_block: per(self.shards.encoding_cpu_ns, self.shards.encoded_blocks).map(|ns| ns / 1000.0),
            bases_in_memory_blocks: self.shards.bases_in_memory,
            index_bytes: self.index_bytes,
            hint_bytes,
            memory_bytes_per_block: per(self.index_bytes + hint_bytes, cached_blocks),
            steps: self.steps.iter().filter(|(_, steps)| !steps.is_empty()).filter_map(named).collect(),
        })
    }
}

/// The steps of a volume over all shards that stored something of it (at least one).
fn joined(shards: &[[StepState; Step::ALL.len()]]) -> Vec<ContentStep> {
    let join = |nth: usize| {
        let states = || shards.iter().map(|steps| steps[nth]);
        let saved: f64 = states().map(|state| f64::from(state.saved_part)).sum();
        let open_shards = states().filter(|state| state.is_open).count();
        ContentStep {
            step: shards[0][nth].step.name().into(),
            open: 2 * open_shards > shards.len(),
            open_shards: open_shards as u64,
            shards: shards.len() as u64,
            saved_part: saved / shards.len() as f64,
            opens_from_part: f64::from(shards[0][nth].open_from),
        }
    };
    (0..Step::ALL.len()).map(join).collect()
}

impl Contents for Machine {
    fn set_content(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.change_content(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::index::Census;

    #[test]
    fn blocks_are_counted_once_and_bytes_compared() {
        let census = Census {
            raw: 10,
            lz4: 20,
            zstd: 0,
            zero: 5,
            duplicate: 30,
            delta: 15,
            lost: 0,
            orphans: 2,
            references: 12,
            stored_bytes: 40_960,
        };
        let shard = ShardContent { plain_blocks: 20, census, encoded_blocks: 50, encoding_cpu_ns: 250_000, ..ShardContent::default() };
        let mut gathered = Gathered { level: Content::Fast, index_bytes: 1500, ..Gathered::default() };
        gathered.shards.add(&shard);
        let figures = gathered.figures(|_| None).expect("content is on");
        let kinds = [figures.reference_blocks, figures.associated_blocks, figures.independent_blocks, figures.zero_blocks];
        assert_eq!(kinds, [10, 45, 40, 5]);
        assert_eq!(kinds.iter().sum::<u64>() * BLOCK_BYTES, figures.cached_bytes, "every cached block once");
        assert_eq!(figures.uncached_reference_blocks, 2);
        assert_eq!((figures.cached_bytes, figures.stored_bytes), (409_600, 122_880));
        assert_eq!((figures.memory_bytes_per_block, figures.encoding_cpu_us_per_block), (Some(15.0), Some(5.0)));
        assert!((figures.effective_capacity.expect("something is cached") - 3.333).abs() < 0.01);
        let off = Gathered { level: Content::Off, ..gathered };
        assert!(off.figures(|_| None).is_some(), "blocks of other times are left");
        assert_eq!(Gathered { level: Content::Off, ..Gathered::default() }.figures(|_| None), None);
    }

    #[test]
    fn a_step_is_open_if_it_is_in_most_shards() {
        let state = |step, is_open, saved_part| StepState { step, is_open, saved_part, open_from: 0.125 };
        let shard = |is_open, saved_part| Step::ALL.map(|step| state(step, is_open, saved_part));
        let open = |shards: &[[StepState; Step::ALL.len()]]| joined(shards)[3].clone();
        let step = open(&[shard(true, 0.5), shard(true, 0.25), shard(false, 0.0)]);
        let expected = ContentStep { step: "lz4".into(), open: true, open_shards: 2, shards: 3, saved_part: 0.25, opens_from_part: 0.125 };
        assert_eq!(step, expected);
        assert!(!open(&[shard(true, 0.5), shard(false, 0.0)]).open);
    }
}
