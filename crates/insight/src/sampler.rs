//! From counters to what happened in a second. Pure: figures and facts go in, a sample and what is worth an event come out.

use api::human;
use api::stats::PoolStats;
use api::{DiskSample, Health, LatencyPoint, PoolSample, Sample, Saved, VolumeSample};
use datapath::figures::{Figures, OUTCOMES, SERVED_BY_BACKING, VolumeFigures, durations_of};
use runtime::Histogram;
use std::collections::BTreeMap;
use types::Mode;

/// Outcomes that the cache served.
const SERVED_BY_CACHE: [&str; 3] = ["ram_hit", "ssd_hit", "write_back"];
/// What is left of a second's weight in the baseline with the next second that has such requests: half of it after about a minute.
const BASELINE_KEPT: f64 = 0.989;
/// The same trouble is told again after so long.
const TELL_AGAIN_MS: u64 = 10 * 60 * 1000;
/// Destage is behind when the oldest dirty data is this many write-cache depths old, and at least [`BEHIND_MS_MIN`] more than one.
const BEHIND_DEPTHS: u64 = 2;
/// Below this, a short depth would make ordinary jitter an event.
const BEHIND_MS_MIN: u64 = 10_000;

/// What the figures do not say of a volume.
#[derive(Clone, Debug)]
pub struct VolumeFacts {
    /// How it is.
    pub health: Health,
    /// What is wrong.
    pub problem: Option<String>,
    /// Its dirty bytes, where the figures do not tell.
    pub dirty_bytes: Option<u64>,
    /// Its mode.
    pub mode: Mode,
    /// Its pool.
    pub pool: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its write-cache depth.
    pub write_cache_depth_ms: u64,
}

/// What the figures do not say of a disk beside a cache.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// How it is.
    pub health: Health,
    /// What is wrong.
    pub problem: Option<String>,
    /// Its pool.
    pub pool: String,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// What the figures do not say.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// By volume.
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// By disk.
    pub disks: BTreeMap<String, DiskFacts>,
    /// By pool.
    pub pools: BTreeMap<String, PoolFacts>,
}

/// What the figures do not say of a pool.
#[derive(Clone, Debug)]
pub struct PoolFacts {
    /// How it is.
    pub health: Health,
    /// Its dirty bytes, where the figures do not tell.
    pub dirty_bytes: Option<u64>,
    /// Bytes of the SSD it uses.
    pub size_bytes: u64,
}

/// Something an administrator should know, noticed while sampling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notable {
    /// Writes met the limit of dirty data in this second.
    DirtyLimit {
        /// The volume.
        volume: String,
        /// As a sentence.
        message: String,
    },
    /// Dirty data is older than it should get.
    DestageBehind {
        /// The volume.
        volume: String,
        /// As a sentence.
        message: String,
    },
    /// It is young enough again.
    DestageCaughtUp {
        /// The volume.
        volume: String,
    },
    /// The SSD of a pool refused a write that named one of the streams it announces.
    StreamsRefused {
        /// The pool.
        pool: String,
        /// As a sentence.
        message: String,
    },
}

/// Remembers the second before.
#[derive(Debug, Default)]
pub struct Sampler {
    volumes: BTreeMap<String, Known>,
    disks: BTreeMap<String, VolumeFigures>,
    pools: BTreeMap<String, PoolStats>,
    unix_ms: u64,
}

/// What is remembered of a volume.
#[derive(Debug, Default)]
struct Known {
    before: VolumeFigures,
    /// How long misses took lately.
    misses: Lately,
    /// How long all took that the backing device served.
    backing: Lately,
    waiting_s: f64,
    limit_told_ms: Option<u64>,
    behind_told_ms: Option<u64>,
}

impl Sampler {
    /// The sample of the time since the last call. `unix_ms`: now.
    pub fn sample(&mut self, unix_ms: u64, span_ms: u64, figures: &Figures, facts: &Facts) -> (Sample, Vec<Notable>) {
        let Facts { volumes, disks, pools } = facts;
        self.unix_ms = unix_ms;
        self.disks.retain(|name, _| disks.contains_key(name));
        self.volumes.retain(|name, _| volumes.contains_key(name));
        self.pools.retain(|name, _| pools.contains_key(name));
        let mut notable = Vec::new();
        let span_s = span_ms.max(1) as f64 / 1000.0;
        let sampled = volumes.iter().map(|(name, facts)| {
            let now = figures.volumes.get(name).cloned().unwrap_or_default();
            let known = self.volumes.entry(name.clone()).or_default();
            notable.extend(known.notable(name, facts, &now, unix_ms));
            (name.clone(), known.sample(facts, now, span_s))
        });
        let sampled_volumes = sampled.collect();
        let sampled = pools.iter().map(|(name, facts)| {
            let now = figures.pools.get(name).cloned().unwrap_or_default();
            let before = self.pools.entry(name.clone()).or_default();
            let rate = |of: fn(&PoolStats) -> u64| of(&now).saturating_sub(of(before)) as f64 / span_s;
            let sample = PoolSample {
                health: facts.health,
                size_bytes: facts.size_bytes,
                cached_bytes: now.cached_bytes,
                dirty_bytes: now.dirty_bytes.or(facts.dirty_bytes),
                ram_used_bytes: now.ram_used_bytes,
                index_bytes: now.index_bytes,
                ssd_written_bytes_s: rate(|s| s.ssd_written_bytes),
                admitted_bytes_s: rate(|s| s.admitted_bytes),
                ssd_written_bytes: now.ssd_written_bytes,
                write_amplification: now.write_amplification,
            };
            let refused = |stats: &PoolStats| stats.write_streams.as_ref().and_then(|streams| streams.refused.clone());
            if let Some(reason) = refused(&now).filter(|_| refused(before).is_none()) {
                let message = format!(
                    "the SSD announces write streams and refused a write that named one ({reason}): none is named until the pool starts again"
                );
                notable.push(Notable::StreamsRefused { pool: name.clone(), message });
            }
            *before = now;
            (name.clone(), sample)
        });
        let sampled_pools = sampled.collect();
        let sampled = disks.iter().map(|(name, facts)| {
            let now = figures.disks.get(name).cloned().unwrap_or_default();
            let before = self.disks.entry(name.clone()).or_default();
            let sample = disk_sample(facts, &now, before, span_s);
            *before = now;
            (name.clone(), sample)
        });
        let sampled_disks = sampled.collect();
        (Sample { unix_ms, span_ms, volumes: sampled_volumes, disks: sampled_disks, pools: sampled_pools }, notable)
    }
}

impl Known {
    fn sample(&mut self, facts: &VolumeFacts, now: VolumeFigures, span_s: f64) -> VolumeSample {
        let (was, is) = (&self.before.stats, &now.stats);
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / span_s;
        let idle = now.clients.requests == self.before.clients.requests;
        let parts = if idle { BTreeMap::new() } else { parts(&now, &self.before) };
        let outcomes_s = OUTCOMES.iter().map(|word| ((*word).to_string(), parts.get(word).map_or(0, Histogram::count) as f64 / span_s));
        let outcomes_s: BTreeMap<String, f64> = outcomes_s.collect();

        self.misses.add(parts.get("miss"));
        SERVED_BY_BACKING.iter().for_each(|word| self.backing.add(parts.get(word)));
        let baseline_us = self.misses.mean_us().or(self.backing.mean_us());
        let all = (!idle).then(|| now.clients.all.since(&self.before.clients.all)).filter(|all| all.count() > 0);
        if let (Some(baseline_us), Some(all)) = (baseline_us, &all) {
            let served = SERVED_BY_CACHE.iter().filter_map(|word| parts.get(word));
            self.waiting_s += saved_s(baseline_us, served, all, span_s);
        }

        let reads = is.reads.saturating_sub(was.reads);
        let hits = (is.read_hits_ram + is.read_hits_ssd).saturating_sub(was.read_hits_ram + was.read_hits_ssd);
        let told = parts.iter().filter(|(word, _)| !matches!(**word, "flush" | "trim"));
        let mut latency: BTreeMap<String, LatencyPoint> = told.map(|(word, part)| ((*word).to_string(), point(part))).collect();
        latency.extend(all.map(|all| ("all".to_string(), point(&all))));
        let durations = parts.iter().filter(|(word, _)| latency.contains_key(**word)).map(|(word, part)| (*word, durations_of(part)));
        let durations = durations.collect();
        let bypassed =
            is.bypassed.iter().map(|(reason, count)| (reason, count.saturating_sub(was.bypassed.get(reason).copied().unwrap_or(0))));
        let ios = |s: &api::stats::VolumeStats| (s.reads + s.writes, s.backing_reads + s.backing_writes);
        let bytes = |s: &api::stats::VolumeStats| (s.read_bytes + s.written_bytes, s.backing_read_bytes + s.backing_written_bytes);
        let sample = VolumeSample {
            health: facts.health,
            problem: facts.problem.clone(),
            mode: facts.mode,
            pool: facts.pool.clone(),
            size_bytes: facts.size_bytes,
            reads_s: grown(is.reads, was.reads),
            writes_s: grown(is.writes, was.writes),
            read_bytes_s: grown(is.read_bytes, was.read_bytes),
            written_bytes_s: grown(is.written_bytes, was.written_bytes),
            outcomes_s,
            hit_ratio: (reads > 0).then(|| (hits as f64 / reads as f64).min(1.0)),
            latency,
            baseline_us,
            dirty_bytes: is.dirty_bytes.or(facts.dirty_bytes),
            cached_bytes: is.cached_bytes,
            ram_bytes: is.ram_bytes,
            destaged_bytes_s: grown(is.destaged_bytes, was.destaged_bytes),
            backing_ios_s: grown(ios(is).1, ios(was).1),
            ssd_written_bytes_s: grown(is.ssd_written_bytes, was.ssd_written_bytes),
            bypassed_s: bypassed.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.clone(), count as f64 / span_s)).collect(),
            errors_s: grown(is.errors, was.errors),
            saved: Saved {
                backing_ios: ios(is).0.saturating_sub(ios(is).1),
                backing_bytes: bytes(is).0.saturating_sub(bytes(is).1),
                waiting_s: self.waiting_s,
            },
            durations,
        };
        self.before = now;
        sample
    }

    fn notable(&mut self, name: &str, facts: &VolumeFacts, now: &VolumeFigures, unix_ms: u64) -> Vec<Notable> {
        let mut notable = Vec::new();
        let due = |told: Option<u64>| told.is_none_or(|told_ms| unix_ms.saturating_sub(told_ms) >= TELL_AGAIN_MS);
        let limited = |figures: &VolumeFigures| figures.stats.bypassed.get("dirty_limit").copied().unwrap_or(0);
        if limited(now) > limited(&self.before) && due(self.limit_told_ms) {
            self.limit_told_ms = Some(unix_ms);
            let dirty = human::bytes(now.stats.dirty_bytes.unwrap_or(0));
            let message =
                format!("the dirty limit is reached ({dirty}): writes wait for destage; raise --dirty-limit if the pool has room");
            notable.push(Notable::DirtyLimit { volume: name.into(), message });
        }
        let depth_ms = facts.write_cache_depth_ms;
        let behind_ms = depth_ms.saturating_mul(BEHIND_DEPTHS).max(depth_ms.saturating_add(BEHIND_MS_MIN));
        let oldest_ms = now.oldest_dirty_ms.unwrap_or(0);
        if oldest_ms > behind_ms && due(self.behind_told_ms) {
            self.behind_told_ms = Some(unix_ms);
            let (oldest, depth) = (human::nanoseconds(oldest_ms * 1_000_000), human::nanoseconds(depth_ms.saturating_mul(1_000_000)));
            let message = format!(
                "destage is falling behind: the oldest dirty data is {oldest} old, the write-cache depth is {depth}; the backing device is too slow for the writes, or --latency-goal and --destage-rate limit destage too much"
            );
            notable.push(Notable::DestageBehind { volume: name.into(), message });
        } else if oldest_ms <= depth_ms && self.behind_told_ms.take().is_some() {
            notable.push(Notable::DestageCaughtUp { volume: name.into() });
        }
        notable
    }
}

fn disk_sample(facts: &DiskFacts, now: &VolumeFigures, before: &VolumeFigures, span_s: f64) -> DiskSample {
    let grown = |of: fn(&api::stats::VolumeStats) -> u64| of(&now.stats).saturating_sub(of(&before.stats)) as f64 / span_s;
    let idle = now.clients.requests == before.clients.requests;
    let parts = if idle { BTreeMap::new() } else { parts(now, before) };
    let told = parts.iter().filter(|(word, _)| matches!(**word, "read" | "write"));
    let mut latency: BTreeMap<String, LatencyPoint> = told.map(|(word, part)| ((*word).to_string(), point(part))).collect();
    let all = (!idle).then(|| now.clients.all.since(&before.clients.all)).filter(|all| all.count() > 0);
    latency.extend(all.map(|all| ("all".to_string(), point(&all))));
    DiskSample {
        health: facts.health,
        problem: facts.problem.clone(),
        pool: facts.pool.clone(),
        size_bytes: facts.size_bytes,
        reads_s: grown(|s| s.reads),
        writes_s: grown(|s| s.writes),
        read_bytes_s: grown(|s| s.read_bytes),
        written_bytes_s: grown(|s| s.written_bytes),
        latency,
        errors_s: grown(|s| s.errors),
    }
}

/// How long requests took lately: weighted microseconds and count.
#[derive(Clone, Copy, Default, Debug)]
struct Lately {
    sum_us: f64,
    count: f64,
}

impl Lately {
    /// Adds those of a second; what was before counts a little less. A second without any changes nothing.
    fn add(&mut self, part: Option<&Histogram>) {
        if let Some(part) = part {
            self.sum_us = self.sum_us * BASELINE_KEPT + part.sum_ns() as f64 / 1000.0;
            self.count = self.count * BASELINE_KEPT + part.count() as f64;
        }
    }

    fn mean_us(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum_us / self.count)
    }
}

/// Seconds that clients did not wait in a span because of what the cache `served`. `all` their requests took so long in it: as many clients as that makes,
/// rounded up, were there, and nobody can have waited for longer than the span.
fn saved_s<'a>(baseline_us: f64, served: impl Iterator<Item = &'a Histogram>, all: &Histogram, span_s: f64) -> f64 {
    let saved_us = |served: &Histogram| (baseline_us - served.mean_ns() as f64 / 1000.0).max(0.0) * served.count() as f64;
    let saved_s = served.map(saved_us).sum::<f64>() / 1e6;
    let clients = (all.sum_ns() as f64 / 1e9 / span_s).ceil().max(1.0);
    saved_s.min(clients * span_s)
}

/// What was counted since, by class and outcome; only those with requests.
fn parts(now: &VolumeFigures, before: &VolumeFigures) -> BTreeMap<&'static str, Histogram> {
    let since = |(word, histogram): (&&'static str, &Histogram)| {
        let part = match before.clients.latency.get(word) {
            Some(earlier) => histogram.since(earlier),
            None => histogram.clone(),
        };
        (part.count() > 0).then_some((*word, part))
    };
    now.clients.latency.iter().filter_map(since).collect()
}

/// A point of a chart of latencies.
pub fn point(part: &Histogram) -> LatencyPoint {
    let us = |ns: u64| ns as f64 / 1000.0;
    LatencyPoint {
        count: part.count(),
        mean_us: us(part.mean_ns()),
        p50_us: us(part.percentile_ns(500)),
        p99_us: us(part.percentile_ns(990)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::stats::{VolumeStats, WriteStreams};
    use datapath::figures::Clients;
    use std::sync::Arc;

    fn facts() -> Facts {
        let facts = VolumeFacts {
            health: Health::Running,
            problem: None,
            dirty_bytes: None,
            mode: Mode::WriteBack,
            pool: "p".into(),
            size_bytes: 1 << 30,
            write_cache_depth_ms: 30_000,
        };
        Facts { volumes: BTreeMap::from([("v".to_string(), facts)]), ..Facts::default() }
    }

    fn figures(stats: VolumeStats, latencies: &[(&'static str, u64, u64)], oldest_dirty_ms: Option<u64>) -> Figures {
        let mut clients = Clients { requests: stats.reads + stats.writes, ..Clients::default() };
        for (word, count, ns) in latencies {
            (0..*count).for_each(|_| {
                clients.latency.entry(word).or_default().record(*ns);
                clients.all.record(*ns);
            });
        }
        let volume = VolumeFigures { stats, clients: Arc::new(clients), oldest_dirty_ms, refused: None };
        Figures { volumes: BTreeMap::from([("v".to_string(), volume)]), ..Figures::default() }
    }

    #[test]
    fn a_sample_is_what_happened_since_the_last_one() {
        let mut sampler = Sampler::default();
        let stats = VolumeStats { reads: 10, read_misses: 10, backing_reads: 10, ..VolumeStats::default() };
        let (first, _) = sampler.sample(1000, 1000, &figures(stats, &[("miss", 10, 5_000_000)], None), &facts());
        assert_eq!((first.volumes["v"].reads_s, first.volumes["v"].hit_ratio), (10.0, Some(0.0)));
        let stats = VolumeStats { reads: 30, read_hits_ssd: 15, read_misses: 15, backing_reads: 15, ..VolumeStats::default() };
        let now = figures(stats, &[("miss", 15, 5_000_000), ("ssd_hit", 15, 100_000)], None);
        let (second, _) = sampler.sample(3000, 2000, &now, &facts());
        let volume = &second.volumes["v"];
        assert_eq!((volume.reads_s, volume.hit_ratio, volume.outcomes_s["ssd_hit"]), (10.0, Some(0.75), 7.5));
        assert_eq!((volume.latency["ssd_hit"].count, volume.latency["all"].count, volume.saved.backing_ios), (15, 20, 15));
        let baseline_us = volume.baseline_us.expect("misses were seen");
        assert!((baseline_us - 5000.0).abs() < 1.0, "{baseline_us}");
        assert!((volume.saved.waiting_s - 15.0 * 0.0049).abs() < 0.001, "{}", volume.saved.waiting_s);
        let (third, _) = sampler.sample(4000, 1000, &now, &facts());
        let volume = &third.volumes["v"];
        assert_eq!((volume.reads_s, volume.hit_ratio, volume.latency.len(), volume.saved.backing_ios), (0.0, None, 0, 15));
        assert!(volume.baseline_us.is_some(), "the baseline is remembered");
    }

    /// Four clients without a pause, for twenty seconds: 1 ms a hit, where the disk takes 20 ms.
    #[test]
    fn clients_do_not_save_more_waiting_than_the_time_they_had() {
        let mut sampler = Sampler::default();
        let at = |hits: u64| {
            let stats = VolumeStats { reads: 10 + hits, ..VolumeStats::default() };
            figures(stats, &[("miss", 10, 20_000_000), ("ram_hit", hits, 1_000_000)], None)
        };
        sampler.sample(1000, 1000, &at(0), &facts());
        let mut waiting_s = 0.0;
        for second in 1..=20u64 {
            waiting_s = sampler.sample(1000 + second * 1000, 1000, &at(second * 3800), &facts()).0.volumes["v"].saved.waiting_s;
        }
        assert!((waiting_s - 80.0).abs() < 0.1, "{waiting_s}");
        // Ten hits in a second are far from that: each saved 19 ms.
        let sample = sampler.sample(22_000, 1000, &at(20 * 3800 + 10), &facts()).0;
        assert!((sample.volumes["v"].saved.waiting_s - waiting_s - 0.19).abs() < 0.002, "{:?}", sample.volumes["v"].saved);
    }

    #[test]
    fn large_requests_around_the_cache_do_not_raise_what_a_miss_takes() {
        let mut sampler = Sampler::default();
        let stats = |reads| VolumeStats { reads, ..VolumeStats::default() };
        let first = figures(stats(5), &[("bypass", 5, 300_000_000)], None);
        let baseline = |sample: Sample| sample.volumes["v"].baseline_us.expect("the disk has served something");
        assert!((baseline(sampler.sample(1000, 1000, &first, &facts()).0) - 300_000.0).abs() < 1.0);
        let second = figures(stats(15), &[("bypass", 5, 300_000_000), ("miss", 10, 8_000_000)], None);
        assert!((baseline(sampler.sample(2000, 1000, &second, &facts()).0) - 8000.0).abs() < 1.0);
    }

    #[test]
    fn refused_write_streams_are_told_once() {
        let mut sampler = Sampler::default();
        let pool = PoolFacts { health: Health::Running, dirty_bytes: None, size_bytes: 1 << 30 };
        let facts = Facts { pools: BTreeMap::from([("p".to_string(), pool)]), ..Facts::default() };
        let told = |refused: Option<&str>| {
            let streams = WriteStreams { announced: 8, refused: refused.map(String::from), ..WriteStreams::default() };
            let stats = PoolStats { write_streams: Some(streams), ..PoolStats::default() };
            let figures = Figures { pools: BTreeMap::from([("p".to_string(), stats)]), ..Figures::default() };
            sampler.sample(1000, 1000, &figures, &facts).1.len()
        };
        let seconds = [None, Some("Invalid argument"), Some("Invalid argument"), None, Some("Invalid argument")];
        assert_eq!(seconds.map(told), [0, 1, 0, 0, 1], "a pool that starts again tries again");
    }

    #[test]
    fn a_disk_is_sampled_like_a_volume_without_a_cache() {
        let disk = DiskFacts { health: Health::Running, problem: None, pool: "p".into(), size_bytes: 1 << 20 };
        let facts = Facts { disks: BTreeMap::from([("a".to_string(), disk)]), ..Facts::default() };
        let of_disk = |reads, latencies: &[_]| {
            let stats = VolumeStats { reads, read_bytes: reads * 4096, ..VolumeStats::default() };
            Figures {
                disks: figures(stats, latencies, None).volumes.remove("v").map(|figures| ("a".into(), figures)).into_iter().collect(),
                ..Figures::default()
            }
        };
        let mut sampler = Sampler::default();
        sampler.sample(1000, 1000, &of_disk(10, &[("read", 10, 50_000)]), &facts);
        let (second, notable) = sampler.sample(3000, 2000, &of_disk(30, &[("read", 10, 50_000), ("read", 20, 100_000)]), &facts);
        let disk = &second.disks["a"];
        assert_eq!((disk.reads_s, disk.read_bytes_s, disk.writes_s), (10.0, 40960.0, 0.0));
        assert_eq!((disk.latency["read"].count, disk.latency["all"].count), (20, 20));
        assert!((disk.latency["read"].mean_us - 100.0).abs() < 5.0);
        assert!(second.volumes.is_empty() && notable.is_empty());
        assert!(sampler.sample(4000, 1000, &Figures::default(), &Facts::default()).0.disks.is_empty(), "it is gone");
    }

    #[test]
    fn trouble_is_told_once_and_its_end_too() {
        let mut sampler = Sampler::default();
        let limited = |count| VolumeStats { bypassed: BTreeMap::from([("dirty_limit".to_string(), count)]), ..VolumeStats::default() };
        let mut told = |at_ms, figures: &Figures| sampler.sample(at_ms, 1000, figures, &facts()).1;
        assert!(matches!(told(1000, &figures(limited(3), &[], None))[..], [Notable::DirtyLimit { .. }]));
        assert_eq!(told(2000, &figures(limited(9), &[], None)), []);
        assert!(matches!(told(2000 + TELL_AGAIN_MS, &figures(limited(10), &[], None))[..], [Notable::DirtyLimit { .. }]));
        let at = 3000 + TELL_AGAIN_MS;
        assert_eq!(told(at, &figures(limited(10), &[], Some(60_000))), []);
        assert!(matches!(told(at, &figures(limited(10), &[], Some(60_001)))[..], [Notable::DestageBehind { .. }]));
        assert_eq!(told(at, &figures(limited(10), &[], Some(61_000))), []);
        assert_eq!(told(at, &figures(limited(10), &[], Some(29_000))), [Notable::DestageCaughtUp { volume: "v".into() }]);
        assert_eq!(told(at, &figures(limited(10), &[], None)), []);
    }
}
