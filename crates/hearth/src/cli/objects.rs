//! `hearth app` and `hearth object`, as they are written.

use clap::{Args, Subcommand};

/// What to do with applications.
#[derive(Subcommand, Debug)]
pub enum App {
    /// Applications found on volumes, by their pages and files: no login is needed
    List {
        /// A volume, or the analysis of a device [default: all volumes]
        volume: Option<String>,
    },
    /// One of them: its databases, and the objects that are used most
    Show {
        /// Its number or its data directory
        app: String,
    },
    /// Ask its server for names and sessions, with a read-only login in a file that only root can read
    Connect {
        /// Its number or its data directory as `hearth app list` shows it: from the root of its file system, not of this machine
        app: String,
        /// The login: an option file of MySQL, or a connection service file of PostgreSQL with a service [hearth]
        #[arg(long, value_name = "FILE")]
        login: std::path::PathBuf,
    },
    /// Ask its server no more
    Disconnect {
        /// Its number or its data directory
        app: String,
    },
    /// Look again, now: after tables were made or moved
    Discover {
        /// The volume [default: all that are watched]
        volume: Option<String>,
    },
}

/// What to do with objects.
#[derive(Subcommand, Debug)]
pub enum Object {
    /// Tables, indexes and logs, those that are read most first
    List(ObjectList),
    /// One of them
    Show {
        /// Its name (shop.orders, shop.orders/ix_customer, postgres/public.orders), VOLUME:NAME, or its number
        object: String,
        /// Of that application: its number or data directory
        #[arg(long, value_name = "APP")]
        app: Option<String>,
    },
    /// How objects are treated: whether they enter the cache, what becomes of writes, what scans may do
    Set(ObjectSet),
    /// Read objects into the cache now, in the order of the disk and beside clients
    Preload(ObjectPreload),
}

/// Which objects.
#[derive(Args, Debug)]
pub struct ObjectList {
    /// A volume, or the analysis of a device [default: all volumes]
    pub volume: Option<String>,
    /// Of that application: its number or data directory
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// Of that kind: table, index, lob, toast, undo, redo, wal, binlog, doublewrite, temp, dictionary
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Order: heat (bytes read), gain (hits that it brings; of one of these), size or name [default: heat]
    #[arg(long, value_name = "ORDER")]
    pub sort: Option<String>,
    /// The first so many [default: 40; 0 for all]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

/// A policy.
#[derive(Args, Debug)]
pub struct ObjectSet {
    /// Names (shop.orders, shop.orders/ix_customer, postgres/public.orders), VOLUME:NAME, or numbers
    pub objects: Vec<String>,
    /// All objects of that kind, for instance index or temp
    #[arg(long, value_name = "KIND", conflicts_with = "objects")]
    pub kind: Option<String>,
    /// Of that application only; without objects or --kind: all that it has
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// On that volume only
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// never: reads put nothing into the cache; pinned: always let in, and kept
    #[arg(long, value_name = "never|normal|pinned")]
    pub admit: Option<String>,
    /// around: past the cache; through: to the backing device at once. Never makes a volume keep back more than its mode says
    #[arg(long, value_name = "inherit|around|through")]
    pub write: Option<String>,
    /// Whether scans and backups put what they read into the cache
    #[arg(long, value_name = "hit-only|normal")]
    pub on_scan: Option<String>,
    /// Take rules away: the default of their kind holds again
    #[arg(long, conflicts_with_all = ["admit", "write", "on_scan"])]
    pub reset: bool,
}

/// What to read.
#[derive(Args, Debug)]
pub struct ObjectPreload {
    /// Names (shop.orders, shop.orders/ix_customer, postgres/public.orders), VOLUME:NAME, or numbers
    pub objects: Vec<String>,
    /// All objects of that kind, for instance index
    #[arg(long, value_name = "KIND", conflicts_with = "objects")]
    pub kind: Option<String>,
    /// Of that application only; without objects or --kind: all that it has
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// On that volume
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,
    /// At most so much enters the cache: the parts that are read again most [default: all, up to the pool's size]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<String>,
    /// Read at most so many bytes a second, for instance 32MiB [default: as fast as clients leave room for]
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<String>,
    /// Only tell how much would be read and written
    #[arg(long)]
    pub dry_run: bool,
}
