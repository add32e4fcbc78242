//! Why a range of a volume is, or is not, cached; and how the whole address space looks.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A range of a volume, looked into.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// The volume.
    pub volume: String,
    /// First byte looked at; a multiple of 4096.
    pub start_bytes: u64,
    /// End, exclusive; a multiple of 4096, or the volume's end.
    pub end_bytes: u64,
    /// Blocks (of 4096 bytes) in it.
    pub blocks: u64,
    /// Of them, cached on the SSD.
    pub on_ssd_blocks: u64,
    /// Of them, in RAM too.
    pub in_ram_blocks: u64,
    /// Of them, dirty.
    pub dirty_blocks: u64,
    /// For how many seconds the oldest of them has been dirty (known for 1 MiB extents); null if none is.
    pub dirty_since_s: Option<f64>,
    /// Cached blocks by how they are stored: "plain", "raw", "lz4", "zstd", "zero", "duplicate", "delta", "lost".
    pub encodings: BTreeMap<String, u64>,
    /// Accesses to the range's megabytes lately (about ten minutes; older ones count less and less).
    pub heat: f64,
    /// The object that the first byte belongs to, and its policy, as a sentence; null if nothing is known of it.
    pub object: Option<String>,
    /// The stream that passed over the range lately, or writes there, as a sentence; null if all that is known is the application.
    pub stream: Option<String>,
    /// One to five sentences that answer the question: what is cached, what is not, and why.
    pub verdict: Vec<String>,
    /// Runs of neighbouring blocks that are alike, by address; at most 256, see `truncated`.
    pub runs: Vec<Run>,
    /// The latest requests in the extents of this range, newest first, at most 64.
    pub recent: Vec<RecentRequest>,
    /// There are more runs than are listed.
    pub truncated: bool,
}

/// Neighbouring blocks that are alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Run {
    /// First byte.
    pub start_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// Where it is: "ram", "ssd", "ram+ssd" or "none".
    pub place: String,
    /// How the SSD stores it; null if it is not there.
    pub encoding: Option<String>,
    /// Whether it is dirty.
    pub dirty: bool,
    /// For how many seconds, at most (known for 1 MiB extents); null if clean.
    pub dirty_since_s: Option<f64>,
    /// How often it was hit since it was last judged: "never", "at least once", "often" (about four times or more); null if it is not on the SSD.
    pub hits: Option<String>,
}

/// A request that was made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecentRequest {
    /// How many milliseconds ago.
    pub ago_ms: u64,
    /// "read", "write" or "discard".
    pub op: String,
    /// First byte.
    pub start_bytes: u64,
    /// How many bytes (of the part in one 1 MiB extent).
    pub length_bytes: u64,
    /// "ram_hit", "ssd_hit", "miss", "bypass", "write_back", "write_through" or "other".
    pub outcome: String,
    /// Why it, or a block of it, bypassed the cache ("size", "sequential", "pass_through", "write_around", "first_touch", "dirty_limit",
    /// "no_space", "degraded", "policy", "stream"); null if it was not.
    pub reason: Option<String>,
    /// The same as a sentence for people.
    pub summary: String,
    /// The former name of `summary`, until 1.0.
    #[serde(default)]
    pub told: String,
}

/// The address space of a volume in cells of equal size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MapView {
    /// The volume.
    pub volume: String,
    /// First byte of the first cell.
    pub start_bytes: u64,
    /// Bytes of a cell: a multiple of 1 MiB; the last may be shorter.
    pub cell_bytes: u64,
    /// By cell: accesses lately (about ten minutes; older ones count less and less).
    pub heat: Vec<f64>,
    /// By cell: bytes cached on the SSD.
    pub cached_bytes: Vec<u64>,
    /// By cell: dirty bytes.
    pub dirty_bytes: Vec<u64>,
    /// How old the counts of cached and dirty bytes are, in milliseconds: they are counted in the background so that I/O does not wait.
    pub age_ms: u64,
    /// Part of the pool looked at so far, 0 to 1, if a count is under way for the first time; 1 otherwise.
    pub counted_part: f64,
    /// By cell: which of `objects` has the most of it; null: nothing is known of it.
    pub object: Vec<Option<u16>>,
    /// The objects that cells belong to, those with most cells first; at most 1024.
    pub objects: Vec<MapObject>,
}

/// An object on a map.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MapObject {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Cells of which it has the most.
    pub cells: u32,
}
