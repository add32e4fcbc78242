//! Counters, gathered from the runtime (what clients saw) and the engine (what the cache did).

use super::content::Gathered;
use super::{Machine, locked};
use crate::stats::{ContentStats, Latency, PoolStats, VolumeStats, write_amplification};
use engine::api::Outcome;
use engine::stats::VolumeStats as EngineStats;
use runtime::{Histogram, LatencySummary, RequestClass};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use types::{BLOCK_BYTES, BypassReason, VolumeIndex};

const CLASSES: [(RequestClass, &str); 4] =
    [(RequestClass::Read, "read"), (RequestClass::Write, "write"), (RequestClass::Flush, "flush"), (RequestClass::Trim, "trim")];

const OUTCOMES: [(Outcome, &str); 6] = [
    (Outcome::RamHit, "ram_hit"),
    (Outcome::SsdHit, "ssd_hit"),
    (Outcome::Miss, "miss"),
    (Outcome::Bypass, "bypass"),
    (Outcome::WriteBack, "write_back"),
    (Outcome::WriteThrough, "write_through"),
];

impl Machine {
    pub(super) fn figures_of_volume(&self, name: &str) -> VolumeStats {
        let Ok(live) = self.volume(name) else { return VolumeStats::default() };
        // A reactor that does not answer gives zeroes: looking must not fail.
        let clients = self.runtime.stats(&live.reference).unwrap_or_default();
        let read = |outcome| clients.count(Some(RequestClass::Read), outcome);
        let mut stats = VolumeStats {
            reads: clients.reads,
            read_bytes: clients.read_bytes,
            writes: clients.writes + clients.write_zeroes,
            written_bytes: clients.written_bytes,
            flushes: clients.flushes,
            discards: clients.discards,
            read_hits_ram: read(Outcome::RamHit),
            read_hits_ssd: read(Outcome::SsdHit),
            read_misses: read(Outcome::Miss),
            errors: clients.device_errors,
            ..VolumeStats::default()
        };
        for (class, word) in CLASSES {
            stats.latency_ns.insert(word.into(), latency(clients.summary(Some(class), None)));
        }
        for (outcome, word) in OUTCOMES {
            stats.latency_ns.insert(word.into(), latency(clients.summary(None, Some(outcome))));
        }
        match &live.cached {
            Some((pool, place)) => {
                let all = self.engine_figures(pool);
                let mine = all.get(&place.0).copied().unwrap_or_default();
                self.add_engine_figures(pool, &mut stats, &mine, &all);
            }
            None => {
                stats.backing_reads = clients.reads;
                stats.backing_read_bytes = clients.read_bytes;
                stats.backing_writes = clients.writes + clients.write_zeroes;
                stats.backing_written_bytes = clients.written_bytes;
                BypassReason::ALL.iter().for_each(|reason| {
                    stats.bypassed.insert(reason.name().into(), 0);
                });
                stats.bypassed.insert(BypassReason::Degraded.name().into(), clients.reads + clients.writes);
            }
        }
        stats
    }

    pub(super) fn latency_of_volume(&self, name: &str) -> BTreeMap<&'static str, Histogram> {
        let Ok(live) = self.volume(name) else { return BTreeMap::new() };
        let clients = self.runtime.stats(&live.reference).unwrap_or_default();
        OUTCOMES.iter().map(|(outcome, word)| (*word, clients.latency(None, Some(*outcome)))).collect()
    }

    fn add_engine_figures(
        &self,
        pool: &super::pools::LivePool,
        stats: &mut VolumeStats,
        mine: &EngineStats,
        all: &BTreeMap<u16, EngineStats>,
    ) {
        stats.bypassed = BypassReason::ALL.iter().zip(mine.bypassed).map(|(reason, count)| (reason.name().into(), count)).collect();
        stats.dirty_bytes = mine.dirty_bytes;
        stats.cached_bytes = mine.cached_bytes;
        stats.admitted_bytes = mine.admitted_bytes;
        stats.backing_reads = mine.backing_reads;
        stats.backing_read_bytes = mine.backing_read_bytes;
        stats.backing_writes = mine.backing_writes;
        stats.backing_written_bytes = mine.backing_written_bytes;
        stats.destaged_bytes = mine.destaged_bytes;
        stats.checksum_errors = mine.checksum_errors;
        stats.errors += mine.ssd_read_errors + mine.destage_errors;
        // Headers and footers belong to nobody: each volume bears them in proportion to what it had written.
        let written = |s: &EngineStats| s.admitted_bytes + s.reinserted_bytes;
        let payload_bytes: u64 = all.values().map(written).sum();
        let ssd_written_bytes = self.shard_total(pool, |s| s.ssd_written_bytes);
        let share = u128::from(ssd_written_bytes) * u128::from(written(mine));
        stats.ssd_written_bytes = share.checked_div(u128::from(payload_bytes)).unwrap_or(0) as u64;
        stats.write_amplification = write_amplification(stats.ssd_written_bytes, stats.admitted_bytes);
    }

    pub(super) fn figures_of_pool(&self, name: &str) -> PoolStats {
        let Ok(pool) = self.pool(name) else { return PoolStats::default() };
        let volumes = self.engine_figures(&pool);
        let sum = |of: fn(&EngineStats) -> u64| volumes.values().map(of).sum::<u64>();
        let (ssd_written_bytes, admitted_bytes) = (self.shard_total(&pool, |s| s.ssd_written_bytes), sum(|s| s.admitted_bytes));
        PoolStats {
            cached_bytes: self.shard_total(&pool, |s| s.cached_blocks) * BLOCK_BYTES,
            dirty_bytes: self.shard_total(&pool, |s| s.dirty_blocks) * BLOCK_BYTES,
            ssd_written_bytes,
            admitted_bytes,
            write_amplification: write_amplification(ssd_written_bytes, admitted_bytes),
            reinserted_bytes: sum(|s| s.reinserted_bytes),
            ram_used_bytes: self.shard_total(&pool, |s| s.ram_blocks) * BLOCK_BYTES,
            index_bytes: self.shard_total(&pool, |s| s.index_bytes + s.policy_bytes),
            checksum_errors: sum(|s| s.checksum_errors),
            content: self.content_figures(&pool),
        }
    }

    /// The engine's counters of all volumes of a pool, by place.
    fn engine_figures(&self, pool: &super::pools::LivePool) -> BTreeMap<u16, EngineStats> {
        let collected: Arc<Mutex<BTreeMap<u16, EngineStats>>> = Arc::default();
        let adding = collected.clone();
        let looked = self.runtime.inspect_shards(&pool.handle, move |_, shard| {
            let mut all = locked(&adding);
            let places: Vec<VolumeIndex> = shard.attached().map(|(place, _, _)| place).collect();
            for place in places {
                if let Some(stats) = shard.volume_stats(place) {
                    all.entry(place.0).or_default().add(&stats);
                }
            }
        });
        if let Err(error) = looked {
            tracing::warn!("no counters: {error}");
        }
        let all = locked(&collected);
        all.clone()
    }

    /// What comes of what blocks contain.
    fn content_figures(&self, pool: &super::pools::LivePool) -> Option<ContentStats> {
        let gathered: Arc<Mutex<Gathered>> = Arc::default();
        let adding = gathered.clone();
        // A reactor that does not answer leaves its shards out: looking must not fail.
        if let Err(error) = self.runtime.inspect_shards(&pool.handle, move |_, shard| locked(&adding).look(shard)) {
            tracing::warn!("no figures of content: {error}");
        }
        let names = locked(&self.names_by_place);
        locked(&gathered).figures(|place| names.get(&(pool.name.clone(), place)).cloned())
    }

    fn shard_total(&self, pool: &super::pools::LivePool, of: fn(&engine::stats::ShardStats) -> u64) -> u64 {
        self.runtime.shard_stats(&pool.handle).unwrap_or_default().iter().map(of).sum()
    }
}

fn latency(summary: LatencySummary) -> Latency {
    let LatencySummary { count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = summary;
    Latency { count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns }
}
