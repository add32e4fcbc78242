//! Applications found on volumes, and their objects: tables, indexes and logs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was found on one volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeApplications {
    /// The volume.
    pub volume: String,
    /// "waiting", "looking", "found" or "failed".
    pub state: String,
    /// Why it failed.
    pub problem: Option<String>,
    /// Milliseconds since the look that found this.
    pub age_ms: Option<u64>,
    /// Bytes that it read.
    pub looked_at_bytes: u64,
    /// Everything was read and understood: no region is without names.
    pub complete: bool,
    /// Parts of the volume where nothing has a name, and why.
    pub blind: Vec<BlindView>,
    /// Share of the blocks used since counting began that belong to nothing known, in percent; absent: less than 16 MiB was used.
    pub unknown_percent: Option<f64>,
    /// The applications.
    pub applications: Vec<ApplicationView>,
}

/// A part of a volume where nothing has a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BlindView {
    /// First byte.
    pub start_bytes: u64,
    /// End, exclusive.
    pub end_bytes: u64,
    /// Why, as a clause.
    pub reason: String,
}

/// A server of databases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ApplicationView {
    /// Its number; the same whenever it is found on that volume.
    pub id: u32,
    /// "InnoDB", "PostgreSQL", "SQL Server", "Oracle", "SQLite" or "WiredTiger".
    pub engine: String,
    /// The product with its version, where its pages tell.
    pub version: Option<String>,
    /// Its data directory, from the root of its file system; absent: pages were seen outside of any known one.
    pub instance: Option<String>,
    /// What this rests on: "page content", "file map", "catalogue"; also from which version on names are read, if this one is older.
    pub evidence: String,
    /// Tables, indexes, logs and what else it has.
    pub objects: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Its databases.
    pub databases: Vec<DatabaseView>,
    /// The connection to its server, if there is one.
    #[serde(default)]
    pub connection: Option<super::ConnectionView>,
}

/// A database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DatabaseView {
    /// Its name.
    pub name: String,
    /// Objects in it.
    pub objects: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Which objects are asked for. All that is given must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectQuery {
    /// Of that volume.
    pub volume: Option<String>,
    /// Of the application of that number or data directory.
    pub application: Option<String>,
    /// Of that kind.
    pub kind: Option<String>,
    /// The one of that name or number.
    pub object: Option<String>,
    /// Order: "heat" (reads), "gain" (hits that it brings), "size" or "name".
    pub sort: Option<String>,
    /// The first so many.
    pub limit: Option<u64>,
}

/// A table, an index, a log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectView {
    /// Its number on its volume.
    pub id: u32,
    /// The volume.
    pub volume: String,
    /// The application's number.
    pub application: u32,
    /// The application's engine.
    pub engine: String,
    /// The application's data directory, from the root of its file system.
    #[serde(default)]
    pub instance: Option<String>,
    /// The database, where it is in one.
    pub database: Option<String>,
    /// "table", "index", "lob", "toast", "undo", "redo", "wal", "binlog", "doublewrite", "temp", "dictionary" or "unknown".
    pub kind: String,
    /// Its name, for instance `shop.orders/PRIMARY`.
    pub name: String,
    /// The object in whose file it lies, if it has none of its own.
    pub within: Option<String>,
    /// Bytes of its files; 0 for one that lies within another.
    pub bytes: u64,
    /// Extents of its files on the volume.
    pub extents: u32,
    /// Its first file.
    pub path: String,
    /// It is encrypted: its pages do not say what they are.
    pub encrypted: bool,
    /// It is a copy of a table that is being rebuilt, and takes its place and name soon.
    #[serde(default)]
    pub being_built: bool,
    /// What this rests on.
    pub evidence: String,
    /// Bytes read of it since counting began (at most a day ago); estimated.
    pub read_bytes: u64,
    /// Share of them that RAM or the SSD answered, in percent; absent: nothing was read.
    pub hits_percent: Option<f64>,
    /// Bytes written to it; estimated.
    pub written_bytes: u64,
    /// What it brings, by the size of the SSD, smallest first. Empty: hardly anything, too little was
    /// read so far, or neither a volume nor an object was named.
    #[serde(default)]
    pub curve: Vec<ObjectPoint>,
    /// Whether its blocks enter the cache: "never", "normal" or "pinned".
    pub admit: String,
    /// What becomes of writes: "inherit", "around" or "through".
    pub writes: String,
    /// What scans and backups may do: "hit-only" or "normal".
    pub on_scan: String,
    /// Who says so: "rule", or "default" for what its kind has.
    pub policy: String,
}

/// What an object brings at some size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectPoint {
    /// Of SSD.
    pub ssd_bytes: u64,
    /// Share of all reads of blocks used before, on the whole volume, that are hits on this object,
    /// in percent; estimated.
    pub hits_percent: f64,
}

/// A policy for objects: of those named, or of all of a kind or an application.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectSet {
    /// Names or numbers of objects; the name of a table stands for its clustered index.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub objects: Vec<String>,
    /// Of that volume only.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub volume: Option<String>,
    /// Of the application of that number or data directory only; without objects: all of it.
    #[serde(default)]
    pub application: Option<String>,
    /// All of that kind, for instance "redo" or "index".
    #[serde(default)]
    pub kind: Option<String>,
    /// "never", "normal" or "pinned"; absent: as it is.
    #[serde(default)]
    #[schema(pattern = "^(never|normal|pinned)$")]
    pub admit: Option<String>,
    /// "inherit", "around" or "through"; absent: as it is.
    #[serde(default)]
    #[schema(pattern = "^(inherit|around|through)$")]
    pub writes: Option<String>,
    /// "hit-only" or "normal"; absent: as it is.
    #[serde(default)]
    #[schema(pattern = "^(hit-only|normal)$")]
    pub on_scan: Option<String>,
    /// Takes rules away, so that the kind's default holds again.
    #[serde(default)]
    pub reset: bool,
}

/// What a policy became.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyDone {
    /// Objects that it is for.
    pub objects: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes pinned on these objects' pools, with those pinned before.
    pub pinned_bytes: u64,
    /// What to know of it, one sentence each.
    pub sentences: Vec<String>,
}

/// What is to be read into the cache: objects that are named, or all of a kind or an application.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectPreload {
    /// Names or numbers of objects.
    #[serde(default)]
    #[schema(max_items = 256)]
    pub objects: Vec<String>,
    /// On that volume.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    pub volume: Option<String>,
    /// Of the application of that number or data directory only; without objects: all of it.
    #[serde(default)]
    pub application: Option<String>,
    /// All of that kind, for instance "index".
    #[serde(default)]
    pub kind: Option<String>,
    /// The most that enters the cache: the parts that are read again most. Absent: all, up to the pool's size.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    pub budget_bytes: Option<u64>,
    /// Most bytes a second that are read; absent: as fast as clients leave room for.
    #[serde(default, deserialize_with = "crate::int64::or_none")]
    pub rate_bytes_s: Option<u64>,
    /// Only tells what would be read.
    #[serde(default)]
    pub dry_run: bool,
}

/// A preload, or what one would do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PreloadView {
    /// The volume.
    pub volume: String,
    /// What is read, in words.
    pub what: String,
    /// Bytes that enter the cache: the most that is written to the SSD.
    pub bytes: u64,
    /// Bytes that are read from the backing device at most: short gaps are read through.
    pub read_bytes: u64,
    /// Pieces that lie apart.
    pub ranges: u64,
    /// The job; absent: nothing was begun.
    pub job: Option<super::JobView>,
}

impl PreloadView {
    /// In a sentence.
    pub fn sentence(&self) -> String {
        let (bytes, pieces) = (crate::human::bytes(self.bytes), types::counted(self.ranges, "piece"));
        format!("{bytes} in {pieces} of {} enter the cache: as much is written to the SSD at most.", self.volume)
    }
}
