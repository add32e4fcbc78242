//! Counters, gathered from the runtime (what clients saw) and the engine (what the cache did).

use super::content::Gathered;
use super::slots;
use super::volumes::LiveVolume;
use super::{Machine, failed, locked};
use api::error::ControlError;
use api::stats::{Latency, PoolStats, VolumeStats, WriteStreams, write_amplification};
use datapath::Counters;
use datapath::figures::{Clients, Figures, Refused, VolumeFigures};
use datapath::looking::{AddressMap, Cells, Explained};
use engine::api::{Outcome, WriteKind};
use engine::stats::{ShardStats, VolumeStats as EngineStats};
use runtime::{AllStats, Histogram, LatencySummary, PoolRef, RequestClass, StreamsInUse, VolumeRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
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

/// How long a look waits for the reactors. One that does not answer leaves the figures as they were: looking must not fail, nor wait for ever.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

/// What clients did, as seen at the last look.
#[derive(Default)]
pub(super) struct Looked {
    all: AllStats,
    clients: BTreeMap<String, (VolumeRef, Arc<Clients>)>,
    /// Of each pool that ran, the last look at which all its shards were seen.
    pools: BTreeMap<String, Arc<PoolLook>>,
}

/// A volume to look at. Not the live volume itself: its end must not wait for those who look.
struct Seen {
    name: String,
    reference: VolumeRef,
    /// Its pool's name, and its place there.
    cached: Option<(String, VolumeIndex)>,
    refused: Option<Refused>,
}

/// What the shards of a pool say, in one look.
#[derive(Default)]
struct PoolLook {
    shards: ShardStats,
    /// By place.
    volumes: BTreeMap<u16, EngineStats>,
    /// By place, the oldest dirty block's age in nanoseconds.
    oldest_dirty_ns: BTreeMap<u16, u64>,
    /// Places of volumes with dirty blocks that cannot be read.
    unreadable: BTreeSet<u16>,
    content: Gathered,
    slots: slots::Gathered,
}

impl Machine {
    pub(super) fn backing_waits_of(&self, name: &str) -> Histogram {
        let mut figures = self.look(|seen| seen == name);
        figures.volumes.remove(name).map(|figures| figures.clients.backing_waits()).unwrap_or_default()
    }

    fn look(&self, wanted: impl Fn(&str) -> bool) -> Figures {
        let volumes: Vec<Seen> = {
            let known = locked(&self.volumes);
            let seen = |(name, live): (&String, &Arc<LiveVolume>)| Seen {
                name: name.clone(),
                reference: live.reference.clone(),
                cached: live.cached.as_ref().map(|(pool, place)| (pool.name.clone(), *place)),
                refused: refused_by_backing(live),
            };
            known.iter().filter(|(name, _)| wanted(name)).map(seen).collect()
        };
        let handles: BTreeMap<String, PoolRef> = {
            let pools = locked(&self.pools);
            let needed = |name: &String| volumes.iter().any(|v| v.cached.as_ref().is_some_and(|(pool, _)| pool == name));
            let all = wanted("");
            pools.iter().filter(|(name, _)| all || needed(name)).map(|(name, pool)| (name.clone(), pool.handle.clone())).collect()
        };
        let looks: BTreeMap<String, Arc<PoolLook>> =
            handles.iter().map(|(name, handle)| (name.clone(), self.look_at_pool(name, handle))).collect();
        let clients = self.look_at_clients(&volumes);
        let figures = |seen: Seen| {
            let clients = clients.get(&seen.name).cloned().unwrap_or_default();
            let look = seen.cached.as_ref().and_then(|(pool, place)| Some((&**looks.get(pool)?, *place)));
            let oldest_dirty_ms = look.and_then(|(look, place)| look.oldest_dirty_ns.get(&place.0)).map(|ns| ns / 1_000_000);
            let unreadable = look.is_some_and(|(look, place)| look.unreadable.contains(&place.0));
            let refused = seen.refused.or_else(|| unreadable.then(Refused::dirty_data));
            let stats = volume_stats(clients.stats.clone(), look);
            (seen.name, VolumeFigures { stats, clients, oldest_dirty_ms, refused })
        };
        let pools = looks.iter().map(|(name, look)| (name.clone(), self.pool_stats_of(name, look))).collect();
        Figures { volumes: volumes.into_iter().map(figures).collect(), pools, ..Figures::default() }
    }

    /// What clients did since the last look changes only the volumes they used.
    fn look_at_clients(&self, volumes: &[Seen]) -> BTreeMap<String, Arc<Clients>> {
        let mut looked = locked(&self.looked);
        let Looked { all, clients, .. } = &mut *looked;
        if let Err(error) = self.runtime.refresh(all, LOOK_PATIENCE) {
            tracing::warn!("no new counters: {error}");
        }
        let known = locked(&self.volumes);
        clients.retain(|name, (reference, _)| known.get(name).is_some_and(|live| live.reference.is(reference)));
        drop(known);
        for seen in volumes {
            let known = clients.get(&seen.name).is_some_and(|(_, clients)| clients.requests == all.requests(&seen.reference));
            if !known {
                clients.insert(seen.name.clone(), (seen.reference.clone(), Arc::new(clients_of(&all.of(&seen.reference)))));
            }
        }
        clients.iter().map(|(name, (_, clients))| (name.clone(), clients.clone())).collect()
    }

    /// If not all shards answer, what was seen when they last did: half of the counters would look as if they had been set back.
    fn look_at_pool(&self, name: &str, pool: &PoolRef) -> Arc<PoolLook> {
        let gathered: Arc<Mutex<PoolLook>> = Arc::default();
        let adding = gathered.clone();
        let looked = self.runtime.look_at_shards(pool, LOOK_PATIENCE, move |_, shard| {
            let mut look = locked(&adding);
            look.content.look(shard);
            look.shards.add(&shard.stats());
            look.slots.look(shard);
            let places: Vec<VolumeIndex> = shard.attached().map(|(place, _, _)| place).collect();
            for place in places {
                if let Some(stats) = shard.volume_stats(place) {
                    look.volumes.entry(place.0).or_default().add(&stats);
                }
                if shard.unreadable_blocks(place) > 0 {
                    look.unreadable.insert(place.0);
                }
                if let Some(age_ns) = shard.oldest_dirty_ns(place) {
                    let oldest = look.oldest_dirty_ns.entry(place.0).or_default();
                    *oldest = age_ns.max(*oldest);
                }
            }
        });
        if let Err(error) = looked {
            tracing::warn!("no new counters of pool {name}: {error}");
            return locked(&self.looked).pools.get(name).cloned().unwrap_or_default();
        }
        let look = Arc::new(std::mem::take(&mut *locked(&gathered)));
        locked(&self.looked).pools.insert(name.into(), look.clone());
        look
    }

    /// A pool of that name that comes later is another.
    pub(super) fn forget_look(&self, pool: &str) {
        locked(&self.looked).pools.remove(pool);
    }

    fn pool_stats_of(&self, name: &str, look: &PoolLook) -> PoolStats {
        let sum = |of: fn(&EngineStats) -> u64| look.volumes.values().map(of).sum::<u64>();
        let (shards, admitted_bytes) = (&look.shards, sum(|s| s.admitted_bytes));
        let slots = look.slots.figures();
        let streams = locked(&self.pools).get(name).and_then(|pool| pool.write_streams()).filter(|_| slots.is_some());
        let names = locked(&self.names_by_place);
        PoolStats {
            cached_bytes: shards.cached_blocks * BLOCK_BYTES,
            dirty_bytes: Some(shards.dirty_blocks * BLOCK_BYTES),
            ssd_written_bytes: shards.ssd_written_bytes,
            admitted_bytes,
            write_amplification: write_amplification(shards.ssd_written_bytes, admitted_bytes),
            reinserted_bytes: sum(|s| s.reinserted_bytes),
            ram_used_bytes: shards.ram_blocks * BLOCK_BYTES,
            index_bytes: shards.index_bytes + shards.policy_bytes,
            checksum_errors: sum(|s| s.checksum_errors),
            ssd_read_errors: sum(|s| s.ssd_read_errors),
            content: look.content.figures(|place| names.get(&(name.to_string(), place)).cloned()),
            slots,
            write_streams: streams.map(told_streams),
        }
    }
}

/// What the backing device of a volume refuses lately. One that is being exchanged is not waited for.
fn refused_by_backing(live: &LiveVolume) -> Option<Refused> {
    let device = live.backing.try_lock().ok()?.as_ref()?.device.clone();
    let trouble = device.trouble()?;
    let reason = match trouble.errno {
        Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => "it moves less than is asked for, as a file does that was cut short".into(),
    };
    Some(Refused { asked: trouble.asked.word(), reason })
}

/// How the write streams of an SSD are used, in words.
fn told_streams(streams: StreamsInUse) -> WriteStreams {
    let word = |kind: &WriteKind| match kind {
        WriteKind::Ring => "ring",
        WriteKind::Packed => "packed blocks",
        WriteKind::Clients => "clients' writes",
        WriteKind::Fills => "fills",
        WriteKind::Other => "the rest",
    };
    let uses = streams.uses.iter().map(|kinds| kinds.iter().map(word).collect::<Vec<_>>().join(" and ")).collect();
    let refused = streams.refused.map(|errno| std::io::Error::from_raw_os_error(errno).to_string());
    WriteStreams { announced: streams.announced, uses, refused }
}

/// What clients did, told apart.
fn clients_of(seen: &runtime::VolumeStats) -> Clients {
    let read = |outcome| seen.count(Some(RequestClass::Read), outcome);
    let waited = seen.summary(Some(RequestClass::Flush), Some(Outcome::BackingFlush));
    let mut stats = VolumeStats {
        reads: seen.reads,
        read_bytes: seen.read_bytes,
        writes: seen.writes + seen.write_zeroes,
        written_bytes: seen.written_bytes,
        flushes: seen.flushes,
        backing_flushes: waited.count,
        backing_flush_longest_ns: waited.max_ns,
        discards: seen.discards,
        own_reads: seen.own_reads,
        own_read_bytes: seen.own_read_bytes,
        read_hits_ram: read(Outcome::RamHit),
        read_hits_ssd: read(Outcome::SsdHit),
        read_misses: read(Outcome::Miss),
        errors: seen.device_errors,
        ..VolumeStats::default()
    };
    let by_class = CLASSES.iter().map(|(class, word)| (*word, seen.latency(Some(*class), None)));
    let by_outcome = OUTCOMES.iter().map(|(outcome, word)| (*word, seen.latency(None, Some(*outcome))));
    let mut latency: BTreeMap<&'static str, Histogram> = by_class.chain(by_outcome).collect();
    stats.latency_ns = latency.iter().map(|(word, histogram)| ((*word).into(), latency_of(histogram.summary()))).collect();
    let mut all = latency["read"].clone();
    all.merge(&latency["write"]);
    latency.retain(|_, histogram| histogram.count() > 0);
    Clients { requests: seen.requests(), stats, latency, all }
}

/// Adds what the cache did; of a volume without one, the backing device did all.
fn volume_stats(mut stats: VolumeStats, look: Option<(&PoolLook, VolumeIndex)>) -> VolumeStats {
    let Some((look, place)) = look else {
        stats.backing_reads = stats.reads;
        stats.backing_read_bytes = stats.read_bytes;
        stats.backing_writes = stats.writes;
        stats.backing_written_bytes = stats.written_bytes;
        stats.backing_discards = stats.discards;
        stats.bypassed = BypassReason::ALL.iter().map(|reason| (reason.name().into(), 0)).collect();
        stats.bypassed.insert(BypassReason::Degraded.name().into(), stats.reads + stats.writes);
        return stats;
    };
    let mine = look.volumes.get(&place.0).copied().unwrap_or_default();
    stats.bypassed = BypassReason::ALL.iter().zip(mine.bypassed).map(|(reason, count)| (reason.name().into(), count)).collect();
    stats.dirty_bytes = Some(mine.dirty_bytes);
    stats.cached_bytes = mine.cached_bytes;
    stats.ram_bytes = mine.ram_bytes;
    stats.admitted_bytes = mine.admitted_bytes;
    stats.partial_unit_writes = mine.partial_unit_writes;
    stats.read_along_bytes = mine.read_along_blocks * BLOCK_BYTES;
    stats.read_along_used_bytes = mine.read_along_hits * BLOCK_BYTES;
    stats.backing_reads = mine.backing_reads;
    stats.backing_read_bytes = mine.backing_read_bytes;
    stats.backing_writes = mine.backing_writes;
    stats.backing_written_bytes = mine.backing_written_bytes;
    stats.backing_discards = mine.backing_discards;
    stats.destaged_bytes = mine.destaged_bytes;
    stats.checksum_errors = mine.checksum_errors;
    stats.errors += mine.ssd_read_errors + mine.destage_errors;
    // Headers and footers belong to nobody: each volume bears them in proportion to what it had written.
    let written = |s: &EngineStats| s.admitted_bytes + s.reinserted_bytes;
    let payload_bytes: u64 = look.volumes.values().map(written).sum();
    let share = u128::from(look.shards.ssd_written_bytes) * u128::from(written(&mine));
    stats.ssd_written_bytes = share.checked_div(u128::from(payload_bytes)).unwrap_or(0) as u64;
    stats.write_amplification = write_amplification(stats.ssd_written_bytes, stats.admitted_bytes);
    stats
}

fn latency_of(summary: LatencySummary) -> Latency {
    let LatencySummary { count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = summary;
    Latency { count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns }
}

impl Counters for Machine {
    fn backing_waits(&self, volume: &str) -> Histogram {
        self.backing_waits_of(volume)
    }

    fn volume_stats(&self, name: &str) -> VolumeStats {
        self.look(|seen| seen == name).volumes.remove(name).unwrap_or_default().stats
    }

    fn pool_stats(&self, name: &str) -> PoolStats {
        let handle = locked(&self.pools).get(name).map(|pool| pool.handle.clone());
        handle.map(|handle| self.pool_stats_of(name, &self.look_at_pool(name, &handle))).unwrap_or_default()
    }

    /// Waits for every shard: a stop concludes from it that nothing is left on the SSD.
    fn dirty_bytes(&self, name: &str) -> Result<u64, ControlError> {
        let cached = self.volume(name)?.cached.as_ref().map(|(pool, place)| (pool.handle.clone(), *place));
        let Some((pool, place)) = cached else { return Ok(0) };
        let dirty_bytes = self.runtime.engine_stats(&pool, place).map(|stats| stats.dirty_bytes).map_err(|e| failed(e, "see the log"))?;
        // Afterwards, so that none of the shards that were asked was gone already.
        if pool.is_abandoned() {
            return Err(failed("the pool was stopped because its SSD does not answer", "check the SSD"));
        }
        Ok(dirty_bytes)
    }

    /// The counters of everything.
    fn figures(&self) -> Figures {
        self.look(|_| true)
    }

    fn explain(&self, volume: &str, first_block: u64, blocks: u64) -> Result<Explained, ControlError> {
        self.explain_range(volume, first_block, blocks)
    }

    fn address_map(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError> {
        self.map_addresses(volume, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::api::WriteKind::{Clients, Fills, Packed, Ring};

    #[test]
    fn streams_are_told_by_what_they_are_for() {
        let three = StreamsInUse { announced: 3, uses: &[&[Ring], &[Clients], &[Packed, Fills]], refused: None };
        assert_eq!(told_streams(three).uses, ["ring", "clients' writes", "packed blocks and fills"]);
        let refused = told_streams(StreamsInUse { announced: 8, uses: &[], refused: Some(22) });
        assert!(refused.announced == 8 && refused.uses.is_empty());
        assert_eq!(refused.refused.as_deref(), Some("Invalid argument (os error 22)"));
    }
}
