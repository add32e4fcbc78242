//! Counters as they appear in JSON. All count from the daemon's start; bytes and nanoseconds as the names say.

use crate::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::Content;
use utoipa::ToSchema;

/// A latency histogram in seven numbers; all 0 if nothing was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// How many requests.
    pub count: u64,
    /// Mean, in nanoseconds.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Counters of a volume.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VolumeStats {
    /// Read requests.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Write requests (zeroes included).
    pub writes: u64,
    /// Bytes they brought.
    pub written_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Of them, those that had to wait for the backing device: something was written there past the SSD, or the mode keeps nothing back.
    #[serde(default)]
    pub backing_flushes: u64,
    /// The longest of these, from its arrival to its answer, in nanoseconds.
    #[serde(default)]
    pub backing_flush_longest_ns: u64,
    /// Discard requests.
    pub discards: u64,
    /// Reads of hearth's own: warm-ups, preloads, and looks for applications. They are in none of the figures of clients' reads.
    #[serde(default)]
    pub own_reads: u64,
    /// Bytes they brought.
    #[serde(default)]
    pub own_read_bytes: u64,
    /// Reads answered from RAM alone.
    pub read_hits_ram: u64,
    /// Reads answered from the cache, some of it on the SSD.
    pub read_hits_ssd: u64,
    /// Reads that needed the backing device.
    pub read_misses: u64,
    /// Requests of clients, or parts of them, that bypassed the cache, by reason.
    pub bypassed: BTreeMap<String, u64>,
    /// Dirty bytes, now; null if unknown.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// Bytes cached on the SSD, now.
    pub cached_bytes: u64,
    /// Bytes cached in RAM, now; many of them are on the SSD too.
    #[serde(default)]
    pub ram_bytes: u64,
    /// Bytes written to the SSD for this volume: payload, its share of headers, reinsertions.
    pub ssd_written_bytes: u64,
    /// Bytes admitted to the SSD: what clients wrote or read that was to be kept, each once.
    pub admitted_bytes: u64,
    /// Writes that covered some atomic unit in part (`--atomic`): nothing is promised of these units together.
    #[serde(default)]
    pub partial_unit_writes: u64,
    /// `ssd_written_bytes / admitted_bytes`; null before anything was admitted.
    pub write_amplification: Option<f64>,
    /// Bytes beside what small reads asked for that came along from the backing device, where neighbours are used.
    #[serde(default)]
    pub read_along_bytes: u64,
    /// Bytes of them that clients asked for later, while they were in RAM.
    #[serde(default)]
    pub read_along_used_bytes: u64,
    /// Reads of the backing device.
    pub backing_reads: u64,
    /// Their bytes.
    pub backing_read_bytes: u64,
    /// Writes of the backing device, destage included.
    pub backing_writes: u64,
    /// Their bytes.
    pub backing_written_bytes: u64,
    /// Discards of the backing device. They move no data.
    #[serde(default)]
    pub backing_discards: u64,
    /// Bytes destaged.
    pub destaged_bytes: u64,
    /// Cached blocks that did not match their checksum.
    pub checksum_errors: u64,
    /// Requests that failed.
    pub errors: u64,
    /// By kind of request ("read", "write", "flush", "discard") and by how they were served ("ram_hit", "ssd_hit", "miss",
    /// "bypass", "write_back", "write_through").
    pub latency_ns: BTreeMap<String, Latency>,
}

/// Counters of a pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolStats {
    /// Bytes cached of all volumes, now.
    pub cached_bytes: u64,
    /// Dirty bytes of all volumes, now; null if unknown.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// Bytes written to the SSD: blocks, statements about them, packed blocks that were moved.
    pub ssd_written_bytes: u64,
    /// Bytes admitted, each once.
    pub admitted_bytes: u64,
    /// `ssd_written_bytes / admitted_bytes`; null before anything was admitted.
    pub write_amplification: Option<f64>,
    /// Bytes of packed blocks that were moved out of pages that were nearly empty.
    pub reinserted_bytes: u64,
    /// RAM of the RAM tier in use, now.
    pub ram_used_bytes: u64,
    /// RAM of index and policy, now.
    pub index_bytes: u64,
    /// Cached blocks that did not match their checksum.
    pub checksum_errors: u64,
    /// Reads of the SSD that failed.
    #[serde(default)]
    pub ssd_read_errors: u64,
    /// Savings by content; null where the level is off and no block is stored that way.
    #[serde(default)]
    pub content: Option<ContentStats>,
    /// How the SSD is used; null while the pool does not run.
    #[serde(default)]
    pub slots: Option<SlotStats>,
    /// How the write streams of the SSD are used; null if the kernel announces none for it.
    #[serde(default)]
    pub write_streams: Option<WriteStreams>,
}

/// How a pool uses the write streams of its SSD: what is written by one lies in other parts of the flash than what is written by another.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct WriteStreams {
    /// How many the SSD announces.
    pub announced: u16,
    /// What each of those in use is for: "ring" (statements about blocks), "packed blocks", "clients' writes", "fills", or several with " and "
    /// between them. Empty where the SSD refused a write.
    pub uses: Vec<String>,
    /// Why the SSD refused a write that named a stream, in the kernel's words; none is named since then. Null if it did not.
    #[serde(default)]
    pub refused: Option<String>,
}

/// How the SSD is used, now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SlotStats {
    /// Bytes for blocks.
    pub size_bytes: u64,
    /// Bytes that hold a cached block. The rest of `size_bytes` is free, or becomes free with the next flush.
    pub live_bytes: u64,
    /// `live_bytes / size_bytes`.
    pub live_part: f64,
    /// Bytes that can be written now.
    pub free_bytes: u64,
    /// Pieces that the free bytes lie in: as long as they are on the average, so much is one write.
    pub free_runs: u64,
    /// Bytes of `live_bytes` in which blocks are packed, as their content asks.
    #[serde(default)]
    pub packed_bytes: u64,
    /// Blocks in them, and contents that others rest on.
    #[serde(default)]
    pub packed_blocks: u64,
    /// Bytes of them that are used; the rest was left by blocks that were written over, or was too short.
    #[serde(default)]
    pub packed_payload_bytes: u64,
    /// Bytes of the ring of statements about the blocks, and those of them that a start reads after a crash.
    pub ring_bytes: u64,
    /// See `ring_bytes`.
    pub ring_used_bytes: u64,
    /// The policies among which each shard chooses, and how they do.
    pub policies: Vec<PolicyStats>,
    /// How often a shard has chosen another one since the daemon's start.
    pub policy_changes: u64,
    /// Blocks that clients have used since a shard last chose another one.
    pub accesses_since_change: u64,
}

/// One of the policies that decide what stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyStats {
    /// A letter.
    pub policy: String,
    /// Shards that follow it.
    pub shards: u64,
    /// The part of lately sampled accesses that it would have missed, 0 to 1: the mean over the shards. Null before the first.
    pub miss_part: Option<f64>,
}

/// Savings by content.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ContentStats {
    /// How much is made of it.
    #[serde(with = "words::content")]
    #[schema(value_type = String)]
    pub level: Content,
    /// Cached blocks that are bases of deltas, now. These and the next three are all cached blocks, each once.
    pub reference_blocks: u64,
    /// Blocks that are equal to another or stored as the difference to one, now.
    pub associated_blocks: u64,
    /// Blocks that stand by themselves, compressed or as they are, now.
    pub independent_blocks: u64,
    /// Blocks of zeroes, now.
    pub zero_blocks: u64,
    /// Bases that are no longer cached blocks themselves, now: they stay on the SSD because others rest on them.
    #[serde(default)]
    pub uncached_reference_blocks: u64,
    /// Bytes of all cached blocks, now.
    pub cached_bytes: u64,
    /// Bytes they take on the SSD, now.
    pub stored_bytes: u64,
    /// `cached_bytes / stored_bytes`; null while nothing is cached.
    pub effective_capacity: Option<f64>,
    /// Bytes that did not have to be written to the SSD.
    pub saved_bytes: u64,
    /// Blocks encoded.
    pub encoded_blocks: u64,
    /// CPU time for each of them, in microseconds; null before the first.
    pub encoding_cpu_us_per_block: Option<f64>,
    /// Blocks kept in memory because others may rest on them, beside the RAM tier, now.
    pub bases_in_memory_blocks: u64,
    /// RAM of index and policy, now.
    pub index_bytes: u64,
    /// RAM of the hints that find similar blocks, now.
    pub hint_bytes: u64,
    /// `(index_bytes + hint_bytes)` for each cached block; null while nothing is cached.
    pub memory_bytes_per_block: Option<f64>,
    /// By volume, how each step stands. Only where the level is "auto", and only volumes of which something was encoded; with another level that
    /// decides for all volumes.
    pub steps: BTreeMap<String, Vec<ContentStep>>,
}

/// How a way to store blocks in fewer bytes stands on a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContentStep {
    /// "duplicates", "versions", "parts", "lz4", "similar" or "zstd".
    pub step: String,
    /// Whether every block is tried, in most shards.
    pub open: bool,
    /// In how many shards.
    pub open_shards: u64,
    /// Of those that stored something of the volume.
    pub shards: u64,
    /// Part of the bytes that it saved where it was tried lately, 0 to 1: the mean over the shards.
    pub saved_part: f64,
    /// The part that opens it.
    pub opens_from_part: f64,
}

/// Bytes written per byte admitted.
pub fn write_amplification(ssd_written_bytes: u64, admitted_bytes: u64) -> Option<f64> {
    (admitted_bytes > 0).then(|| ssd_written_bytes as f64 / admitted_bytes as f64)
}
