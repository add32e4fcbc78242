//! How a pool whose blocks lie in slots uses its SSD, in numbers for people.

use api::stats::{PolicyStats, SlotStats};
use engine::shard::Shard;
use engine::stats::SlotGauges;
use retention::MEMBERS;
use retention::chooser::Choice;
use types::BLOCK_BYTES;

/// What is seen of the shards.
#[derive(Debug, Default)]
pub struct Gathered {
    gauges: Option<SlotGauges>,
    choices: Vec<Choice>,
}

impl Gathered {
    /// Adds what is seen of a shard.
    pub fn look(&mut self, shard: &Shard) {
        let stats = shard.stats();
        if let Some(gauges) = stats.in_slots {
            self.gauges.get_or_insert_default().add(&gauges);
        }
        self.choices.extend(stats.retention);
    }

    /// All of it; `None` where blocks lie in a log.
    pub fn figures(&self) -> Option<SlotStats> {
        let SlotGauges { slots, free, leaving, free_runs, packed, packed_records, packed_bytes, ring_pages, ring_used_pages } =
            self.gauges?;
        let live = slots.saturating_sub(free + leaving);
        Some(SlotStats {
            size_bytes: slots * BLOCK_BYTES,
            live_bytes: live * BLOCK_BYTES,
            live_part: live as f64 / slots.max(1) as f64,
            free_bytes: free * BLOCK_BYTES,
            free_runs,
            packed_bytes: packed * BLOCK_BYTES,
            packed_blocks: packed_records,
            packed_payload_bytes: packed_bytes,
            ring_bytes: ring_pages * BLOCK_BYTES,
            ring_used_bytes: ring_used_pages * BLOCK_BYTES,
            policies: (0..MEMBERS.len()).map(|member| self.policy(member)).collect(),
            policy_changes: self.choices.iter().map(|choice| choice.changes).sum(),
            accesses_since_change: self.choices.iter().map(|choice| choice.accesses_since).min().unwrap_or(0),
        })
    }

    fn policy(&self, member: usize) -> PolicyStats {
        let shards = self.choices.iter().filter(|choice| choice.member == member).count() as u64;
        // A miniature has missed its first access: without a miss there was none.
        let missed: Vec<f64> = self.choices.iter().map(|choice| choice.miss_ratios[member]).filter(|ratio| *ratio > 0.0).collect();
        let miss_part = (!missed.is_empty()).then(|| missed.iter().sum::<f64>() / missed.len() as f64);
        PolicyStats { policy: MEMBERS[member].name.to_string(), shards, miss_part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_added_up_and_each_counts_for_its_policy() {
        assert_eq!(Gathered::default().figures(), None);
        let choice = |member, changes, missed| Choice { member, accesses_since: 7 + changes, changes, miss_ratios: [missed; 6], one_in: 1 };
        let gauges = SlotGauges {
            slots: 200,
            free: 30,
            leaving: 10,
            free_runs: 5,
            packed: 20,
            packed_records: 50,
            packed_bytes: 70_000,
            ring_pages: 8,
            ring_used_pages: 2,
        };
        let gathered = Gathered { gauges: Some(gauges), choices: vec![choice(0, 0, 0.0), choice(2, 3, 0.5)] };
        let stats = gathered.figures().expect("there are slots");
        assert_eq!((stats.live_bytes, stats.live_part), (160 * BLOCK_BYTES, 0.8));
        assert_eq!((stats.packed_bytes, stats.packed_blocks, stats.packed_payload_bytes), (20 * BLOCK_BYTES, 50, 70_000));
        assert_eq!((stats.policy_changes, stats.accesses_since_change), (3, 7));
        let shards: Vec<u64> = stats.policies.iter().map(|policy| policy.shards).collect();
        assert_eq!(shards, [1, 0, 1, 0, 0, 0]);
        assert_eq!((stats.policies[2].policy.as_str(), stats.policies[2].miss_part), ("C", Some(0.5)));
    }
}
