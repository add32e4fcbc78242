//! Every metric once, in the order of a scrape. The table of docs/metrics.md says the same, which a test compares.

use super::list::{Metric, Moves, Read, Series, Type, Value};
use super::scrape::Scrape;
use api::stats::{ContentStats, PoolStats, VolumeStats};
use api::{DiskView, FlashEstimate, Health, PoolView, VolumeView};
use datapath::figures::Refused;

const VOLUME: &[&str] = &["volume"];
const DISK: &[&str] = &["disk"];
const POOL: &[&str] = &["pool"];

type Of<S> = fn(&S) -> Option<Value>;

/// A state of the daemon that few things move.
const fn state(name: &'static str, labels: &'static [&'static str], read: fn(&Scrape) -> Vec<Series>, help: &'static str) -> Metric {
    Metric { name, kind: Type::Gauge, unit: "1", labels, moves: Moves::Rarely, help, read: Read::Scrape(read) }
}

const fn volume(name: &'static str, unit: &'static str, read: Of<VolumeStats>, help: &'static str) -> Metric {
    Metric { name, kind: Type::Counter, unit, labels: VOLUME, moves: Moves::Load, help, read: Read::Volume(read) }
}

const fn volume_by(name: &'static str, labels: &'static [&'static str], read: Read, help: &'static str) -> Metric {
    Metric { name, kind: Type::Counter, unit: "1", labels, moves: Moves::Load, help, read }
}

const fn disk(name: &'static str, unit: &'static str, read: Of<VolumeStats>, help: &'static str) -> Metric {
    Metric { name, kind: Type::Counter, unit, labels: DISK, moves: Moves::Load, help, read: Read::Disk(read) }
}

const fn pool(name: &'static str, unit: &'static str, read: Of<PoolStats>, help: &'static str) -> Metric {
    Metric { name, kind: Type::Counter, unit, labels: POOL, moves: Moves::Load, help, read: Read::Pool(read) }
}

const fn content(name: &'static str, unit: &'static str, read: Of<ContentStats>, help: &'static str) -> Metric {
    Metric { name, kind: Type::Counter, unit, labels: POOL, moves: Moves::Load, help, read: Read::Content(read) }
}

const fn gauge(of: Metric) -> Metric {
    Metric { kind: Type::Gauge, ..of }
}

const fn measured(unit: &'static str, of: Metric) -> Metric {
    Metric { unit, ..of }
}

const fn moved(moves: Moves, of: Metric) -> Metric {
    Metric { moves, ..of }
}

const fn count(count: u64) -> Option<Value> {
    Some(Value::Count(count))
}

fn plain(value: Value) -> Vec<Series> {
    vec![(Vec::new(), value)]
}

fn health(label: &'static str, name: &str, is: Health) -> [Series; 7] {
    Health::ALL.map(|state| {
        let labels = vec![(label, name.to_string()), ("state", state.word().to_string())];
        (labels, Value::Count(u64::from(state == is)))
    })
}

/// Of each object what is known.
fn known<'a>(label: &'static str, values: impl Iterator<Item = (&'a String, Option<u64>)>) -> Vec<Series> {
    values.filter_map(|(name, value)| Some((vec![(label, name.clone())], Value::Count(value?)))).collect()
}

fn failing(label: &'static str, name: &str, refused: Option<&Refused>) -> Series {
    let (request, reason) = refused.map_or(("none", "none"), |refused| (refused.asked, &refused.reason));
    let labels = vec![(label, name.to_string()), ("request", request.to_string()), ("reason", reason.to_string())];
    (labels, Value::Count(u64::from(refused.is_some())))
}

fn pools(scrape: &Scrape, of: impl Fn(&PoolView) -> (Vec<(&'static str, String)>, u64)) -> Vec<Series> {
    let with_name = |p: &PoolView| {
        let (labels, value) = of(p);
        ([vec![("pool", p.name.clone())], labels].concat(), Value::Count(value))
    };
    scrape.pools.iter().map(with_name).collect()
}

fn flash(pool: &PoolView) -> Vec<Series> {
    let labelled = |own_spare: u8, overwrites: &str, value: f64| {
        let labels = vec![("pool", pool.name.clone()), ("own_spare", own_spare.to_string()), ("overwrites", overwrites.to_string())];
        (labels, Value::Part(value))
    };
    let estimates = pool.flash.iter().flat_map(|flash| &flash.estimates);
    let both =
        |of: &FlashEstimate| [("even", of.even), ("skewed", of.skewed)].map(|(how, value)| labelled(of.own_spare_percent, how, value));
    estimates.flat_map(both).collect()
}

fn spare(pool: &PoolView) -> Option<Series> {
    let part = f64::from(pool.spare.as_ref()?.percent) / 100.0;
    Some((vec![("pool", pool.name.clone())], Value::Part(part)))
}

fn disks(scrape: &Scrape, of: impl Fn(&DiskView) -> (Vec<(&'static str, String)>, u64)) -> Vec<Series> {
    let with_name = |d: &DiskView| {
        let (labels, value) = of(d);
        ([vec![("disk", d.name.clone())], labels].concat(), Value::Count(value))
    };
    scrape.disks.iter().map(with_name).collect()
}

fn volumes(scrape: &Scrape, of: impl Fn(&VolumeView) -> (Vec<(&'static str, String)>, u64)) -> Vec<Series> {
    let with_name = |v: &VolumeView| {
        let (labels, value) = of(v);
        ([vec![("volume", v.name.clone())], labels].concat(), Value::Count(value))
    };
    scrape.volumes.iter().map(with_name).collect()
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    state("hearth_up", &[], |_| plain(Value::Count(1)), "1: the daemon answers."),
    state(
        "hearth_build_info",
        &["version"],
        |_| vec![(vec![("version", env!("CARGO_PKG_VERSION").into())], Value::Count(1))],
        "1; the label is the program's version.",
    ),
    measured(
        "seconds",
        state("hearth_start_time_seconds", &[], |s| plain(Value::Count(s.started_unix_s)), "When the daemon started: seconds since 1970."),
    ),
    moved(
        Moves::Load,
        measured(
            "seconds",
            state(
                "hearth_scrape_duration_seconds",
                &[],
                |s| plain(Value::Part(s.took_s)),
                "How long it took to gather the counters of this scrape.",
            ),
        ),
    ),
    state(
        "hearth_jobs_running",
        &[],
        |s| plain(Value::Count(s.jobs)),
        "Jobs (destage, warm-up, preload, check, removal, mode change, replacement, room for disks, look for applications) that run now.",
    ),
    state(
        "hearth_event_streams",
        &[],
        |s| plain(Value::Count(s.streams)),
        "Listeners at /api/v1/stream now, for instance pages of the console.",
    ),
    volume_by(
        "hearth_events",
        &["severity"],
        Read::Scrape(|s| s.events.iter().map(|(of, n)| (vec![("severity", of.word().into())], Value::Count(*n))).collect()),
        "Events by severity: info, warning, error.",
    ),
    state(
        "hearth_pool_info",
        &["pool", "ssd", "content"],
        |s| pools(s, |p| (vec![("ssd", p.ssd.clone()), ("content", p.content.name().into())], 1)),
        "1; the labels are the pool's SSD and content level.",
    ),
    state(
        "hearth_pool_health",
        &["pool", "state"],
        |s| s.pools.iter().flat_map(|p| health("pool", &p.name, p.health)).collect(),
        "1 for the state the pool is in, 0 for the others: running, starting, failing, degraded, failed, removing, stopped.",
    ),
    measured(
        "bytes",
        state("hearth_pool_size_bytes", POOL, |s| pools(s, |p| (Vec::new(), p.size_bytes)), "Bytes of the SSD that the pool uses."),
    ),
    gauge(pool("hearth_pool_cached_bytes", "bytes", |s| count(s.cached_bytes), "Bytes of all volumes cached, now.")),
    moved(
        Moves::Load,
        measured(
            "bytes",
            state(
                "hearth_pool_dirty_bytes",
                POOL,
                |s| known("pool", s.pools.iter().map(|p| (&p.name, p.dirty_bytes))),
                "Dirty bytes of all volumes, now; absent if unknown.",
            ),
        ),
    ),
    gauge(pool("hearth_pool_ram_used_bytes", "bytes", |s| count(s.ram_used_bytes), "RAM of the RAM tier in use, now.")),
    gauge(pool("hearth_pool_index_bytes", "bytes", |s| count(s.index_bytes), "RAM of index and policy, now.")),
    pool(
        "hearth_pool_ssd_written_bytes",
        "bytes",
        |s| count(s.ssd_written_bytes),
        "Bytes written to the SSD: payload, headers, footers, reinsertions.",
    ),
    pool("hearth_pool_admitted_bytes", "bytes", |s| count(s.admitted_bytes), "Bytes admitted to the SSD, each once."),
    pool(
        "hearth_pool_reinserted_bytes",
        "bytes",
        |s| count(s.reinserted_bytes),
        "Bytes written to the SSD again because they were in use or dirty.",
    ),
    gauge(pool(
        "hearth_pool_write_amplification_ratio",
        "1",
        |s| s.write_amplification.map(Value::Part),
        "Bytes written to the SSD for each byte admitted, since the daemon's start.",
    )),
    moved(
        Moves::Fault,
        pool("hearth_pool_checksum_errors", "1", |s| count(s.checksum_errors), "Cached blocks that did not match their checksum."),
    ),
    moved(Moves::Fault, pool("hearth_pool_ssd_read_errors", "1", |s| count(s.ssd_read_errors), "Reads of the SSD that failed.")),
    state(
        "hearth_pool_flash_write_amplification_ratio",
        &["pool", "own_spare", "overwrites"],
        |s| s.pools.iter().flat_map(flash).collect(),
        "Bytes that the SSD is estimated to write to its flash for each byte it is given, by its own spare (28 or 7 percent) and by how blocks \
         are overwritten: even or skewed.",
    ),
    state("hearth_pool_spare_ratio", POOL, |s| s.pools.iter().filter_map(spare).collect(), "Part of the SSD that stays unused."),
    gauge(pool(
        "hearth_pool_slots_live_ratio",
        "1",
        |s| s.slots.as_ref().map(|slots| Value::Part(slots.live_part)),
        "Part of the SSD's room for blocks that holds a cached block.",
    )),
    gauge(pool(
        "hearth_pool_slots_free_bytes",
        "bytes",
        |s| count(s.slots.as_ref()?.free_bytes),
        "Bytes of the SSD that can be written now.",
    )),
    gauge(pool("hearth_pool_slots_free_runs", "1", |s| count(s.slots.as_ref()?.free_runs), "Pieces in which they lie.")),
    gauge(pool(
        "hearth_pool_slots_packed_bytes",
        "bytes",
        |s| count(s.slots.as_ref()?.packed_bytes),
        "Bytes of the SSD in which blocks are packed.",
    )),
    gauge(pool(
        "hearth_pool_slots_packed_used_bytes",
        "bytes",
        |s| count(s.slots.as_ref()?.packed_payload_bytes),
        "Bytes of them that blocks use.",
    )),
    gauge(pool(
        "hearth_pool_slots_ring_used_bytes",
        "bytes",
        |s| count(s.slots.as_ref()?.ring_used_bytes),
        "Bytes of statements that a start reads after a crash.",
    )),
    gauge(Metric {
        labels: &["pool", "policy"],
        read: Read::Policy(|policy| policy.miss_part.map(Value::Part)),
        ..pool("hearth_pool_policy_miss_ratio", "1", |_| None, "Part of lately sampled accesses that each policy would have missed.")
    }),
    gauge(Metric {
        moves: Moves::Rarely,
        labels: &["pool", "policy"],
        read: Read::Policy(|policy| count(policy.shards)),
        ..pool("hearth_pool_policy_shards", "1", |_| None, "Shards that follow each policy.")
    }),
    gauge(Metric {
        labels: &["pool", "kind"],
        read: Read::ContentBlocks(|c| {
            [
                ("reference", c.reference_blocks),
                ("associated", c.associated_blocks),
                ("independent", c.independent_blocks),
                ("zero", c.zero_blocks),
            ]
        }),
        ..content(
            "hearth_pool_content_blocks",
            "1",
            |_| None,
            "Cached blocks by how they are stored: reference, associated, independent, zero.",
        )
    }),
    gauge(content("hearth_pool_content_cached_bytes", "bytes", |c| count(c.cached_bytes), "Bytes of all cached blocks, now.")),
    gauge(content("hearth_pool_content_stored_bytes", "bytes", |c| count(c.stored_bytes), "Bytes that they take on the SSD, now.")),
    gauge(content(
        "hearth_pool_content_capacity_ratio",
        "1",
        |c| c.effective_capacity.map(Value::Part),
        "Cached bytes for each byte they take on the SSD.",
    )),
    content("hearth_pool_content_saved_bytes", "bytes", |c| count(c.saved_bytes), "Bytes that did not have to be written to the SSD."),
    content("hearth_pool_content_encoded_blocks", "1", |c| count(c.encoded_blocks), "Blocks encoded."),
    gauge(content(
        "hearth_pool_content_encoding_seconds",
        "seconds",
        |c| c.encoding_cpu_us_per_block.map(|us| Value::Part(us / 1e6)),
        "CPU time for each block encoded, on average since the daemon's start.",
    )),
    gauge(content(
        "hearth_pool_content_bases_blocks",
        "1",
        |c| count(c.bases_in_memory_blocks),
        "Blocks kept in memory as bases of deltas, now.",
    )),
    gauge(content("hearth_pool_content_hint_bytes", "bytes", |c| count(c.hint_bytes), "RAM of the hints that find similar blocks, now.")),
    gauge(content(
        "hearth_pool_content_memory_bytes_per_block",
        "bytes",
        |c| c.memory_bytes_per_block.map(Value::Part),
        "RAM of index and hints for each cached block.",
    )),
    gauge(Metric {
        labels: &["pool", "volume", "step"],
        read: Read::ContentStep(|step| step.open_shards as f64 / step.shards.max(1) as f64),
        ..content(
            "hearth_pool_content_step_open_ratio",
            "1",
            |_| None,
            "Part of the shards in which a step (duplicates, versions, parts, lz4, similar, zstd) is open; only with content auto.",
        )
    }),
    gauge(Metric {
        labels: &["pool", "volume", "step"],
        read: Read::ContentStep(|step| step.saved_part),
        ..content(
            "hearth_pool_content_step_saved_ratio",
            "1",
            |_| None,
            "Part of the bytes that a step saved where it was tried lately; only with content auto.",
        )
    }),
    state(
        "hearth_volume_info",
        &["volume", "pool", "mode"],
        |s| volumes(s, |v| (vec![("pool", v.pool.clone()), ("mode", v.options.mode.name().into())], 1)),
        "1; the labels are the volume's pool and mode.",
    ),
    state(
        "hearth_volume_health",
        &["volume", "state"],
        |s| s.volumes.iter().flat_map(|v| health("volume", &v.name, v.health)).collect(),
        "1 for the state the volume is in, 0 for the others: running, starting, failing, degraded, failed, removing, stopped.",
    ),
    moved(
        Moves::Fault,
        state(
            "hearth_volume_failing",
            &["volume", "request", "reason"],
            |s| s.figures.volumes.iter().map(|(name, figures)| failing("volume", name, figures.refused.as_ref())).collect(),
            "1 while requests of a kind fail: read, write or flush of the backing device, dirty_read of the SSD; reason has the kernel's words. 0 \
             while they do not.",
        ),
    ),
    measured("bytes", state("hearth_volume_size_bytes", VOLUME, |s| volumes(s, |v| (Vec::new(), v.size_bytes)), "The volume's size.")),
    volume("hearth_volume_reads", "1", |s| count(s.reads), "Read requests."),
    volume("hearth_volume_read_bytes", "bytes", |s| count(s.read_bytes), "Bytes read by clients."),
    volume("hearth_volume_writes", "1", |s| count(s.writes), "Write requests, zeroes included."),
    volume("hearth_volume_written_bytes", "bytes", |s| count(s.written_bytes), "Bytes written by clients."),
    volume("hearth_volume_flushes", "1", |s| count(s.flushes), "Flush requests."),
    volume("hearth_volume_backing_flushes", "1", |s| count(s.backing_flushes), "Flush requests that had to wait for the backing device."),
    volume("hearth_volume_discards", "1", |s| count(s.discards), "Discard requests."),
    volume_by(
        "hearth_volume_read_hits",
        &["volume", "tier"],
        Read::VolumeBy(|s| vec![("ram".into(), s.read_hits_ram), ("ssd".into(), s.read_hits_ssd)]),
        "Reads answered from the cache: from RAM alone (ram), or some of it from the SSD (ssd).",
    ),
    volume("hearth_volume_read_misses", "1", |s| count(s.read_misses), "Reads that needed the backing device."),
    volume_by(
        "hearth_volume_bypassed",
        &["volume", "reason"],
        Read::VolumeBy(|s| s.bypassed.iter().map(|(reason, count)| (reason.clone(), *count)).collect()),
        "Requests or blocks that bypassed the cache, by reason: size, sequential, pass_through, write_around, first_touch, dirty_limit, \
         no_space, degraded, policy, stream.",
    ),
    moved(
        Moves::Load,
        measured(
            "bytes",
            state(
                "hearth_volume_dirty_bytes",
                VOLUME,
                |s| known("volume", s.volumes.iter().map(|v| (&v.name, v.dirty_bytes))),
                "Dirty bytes, now; absent if unknown.",
            ),
        ),
    ),
    gauge(volume("hearth_volume_cached_bytes", "bytes", |s| count(s.cached_bytes), "Bytes cached on the SSD, now.")),
    gauge(volume("hearth_volume_ram_bytes", "bytes", |s| count(s.ram_bytes), "Bytes cached in RAM, now; many of them are on the SSD too.")),
    gauge(volume(
        "hearth_volume_ssd_written_bytes",
        "bytes",
        |s| count(s.ssd_written_bytes),
        "Bytes written to the SSD for this volume since the daemon's start, with its share of headers; a share may shrink, so it is no counter.",
    )),
    volume("hearth_volume_admitted_bytes", "bytes", |s| count(s.admitted_bytes), "Bytes admitted to the SSD, each once."),
    gauge(volume(
        "hearth_volume_write_amplification_ratio",
        "1",
        |s| s.write_amplification.map(Value::Part),
        "Bytes written to the SSD for each byte admitted, since the daemon's start.",
    )),
    volume("hearth_volume_backing_reads", "1", |s| count(s.backing_reads), "Reads of the backing device."),
    volume("hearth_volume_backing_read_bytes", "bytes", |s| count(s.backing_read_bytes), "Bytes of them."),
    volume(
        "hearth_volume_read_along_bytes",
        "bytes",
        |s| count(s.read_along_bytes),
        "Bytes beside what small reads asked for that came along from the backing device.",
    ),
    volume(
        "hearth_volume_read_along_used_bytes",
        "bytes",
        |s| count(s.read_along_used_bytes),
        "Bytes of them that clients asked for later.",
    ),
    volume(
        "hearth_volume_own_reads",
        "1",
        |s| count(s.own_reads),
        "Reads of hearth's own (warm-up, preload, looks for applications); not among those of clients.",
    ),
    volume("hearth_volume_own_read_bytes", "bytes", |s| count(s.own_read_bytes), "Bytes of them."),
    volume("hearth_volume_backing_writes", "1", |s| count(s.backing_writes), "Writes of the backing device, destage included."),
    volume("hearth_volume_backing_written_bytes", "bytes", |s| count(s.backing_written_bytes), "Bytes of them."),
    volume(
        "hearth_volume_partial_unit_writes",
        "1",
        |s| count(s.partial_unit_writes),
        "Writes that covered some atomic unit in part (--atomic).",
    ),
    volume("hearth_volume_backing_discards", "1", |s| count(s.backing_discards), "Discards of the backing device. They move no data."),
    volume("hearth_volume_destaged_bytes", "bytes", |s| count(s.destaged_bytes), "Bytes destaged."),
    moved(
        Moves::Fault,
        volume("hearth_volume_checksum_errors", "1", |s| count(s.checksum_errors), "Cached blocks that did not match their checksum."),
    ),
    moved(Moves::Fault, volume("hearth_volume_errors", "1", |s| count(s.errors), "Failed requests, SSD reads and destages.")),
    Metric {
        name: "hearth_volume_latency_seconds",
        kind: Type::Histogram,
        unit: "seconds",
        labels: &["volume", "outcome"],
        moves: Moves::Load,
        help: "Time from a request's arrival to its answer, by outcome: ram_hit, ssd_hit, miss, bypass, write_back, write_through.",
        read: Read::VolumeLatency,
    },
    state("hearth_disk_info", &["disk", "pool"], |s| disks(s, |d| (vec![("pool", d.pool.clone())], 1)), "1; the label is the disk's pool."),
    state(
        "hearth_disk_health",
        &["disk", "state"],
        |s| s.disks.iter().flat_map(|d| health("disk", &d.name, d.health)).collect(),
        "1 for the state the disk beside a cache is in, 0 for the others, as for volumes.",
    ),
    moved(
        Moves::Fault,
        state(
            "hearth_disk_failing",
            &["disk", "request", "reason"],
            |s| s.figures.disks.iter().map(|(name, figures)| failing("disk", name, figures.refused.as_ref())).collect(),
            "1 while requests of a kind fail: read, write or flush of the SSD; reason has the kernel's words. 0 while they do not.",
        ),
    ),
    measured("bytes", state("hearth_disk_size_bytes", DISK, |s| disks(s, |d| (Vec::new(), d.size_bytes)), "The disk's size.")),
    disk("hearth_disk_reads", "1", |s| count(s.reads), "Read requests."),
    disk("hearth_disk_read_bytes", "bytes", |s| count(s.read_bytes), "Bytes read by clients."),
    disk("hearth_disk_writes", "1", |s| count(s.writes), "Write requests, zeroes included."),
    disk("hearth_disk_written_bytes", "bytes", |s| count(s.written_bytes), "Bytes written by clients."),
    disk("hearth_disk_flushes", "1", |s| count(s.flushes), "Flush requests."),
    disk("hearth_disk_discards", "1", |s| count(s.discards), "Discard requests."),
    moved(Moves::Fault, disk("hearth_disk_errors", "1", |s| count(s.errors), "Failed requests.")),
    Metric {
        name: "hearth_disk_latency_seconds",
        kind: Type::Histogram,
        unit: "seconds",
        labels: &["disk", "request"],
        moves: Moves::Load,
        help: "Time from a request's arrival to its answer, by kind: read, write, flush, trim.",
        read: Read::DiskLatency,
    },
];
