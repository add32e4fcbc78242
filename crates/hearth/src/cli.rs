//! The command line as people write it.

mod disk;
mod insight;
mod job;
mod objects;
mod share;
mod token;

pub use disk::Disk;
pub use insight::{Advise, AdviseCommand, Analysis, AnalysisStart, Stream, StreamRule};
pub use job::Job;
pub use objects::{App, Object, ObjectList, ObjectPreload, ObjectSet};
pub use share::{Machine, Share};
pub use token::Token;

use crate::attach::Attach;
use crate::certificates::Pki;
use crate::exporters;
use crate::rescue::Rescue;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use terminal::evaluate::Evaluate;
use terminal::options::Everywhere;

/// An SSD cache in user space: fast volumes over slow storage.
#[derive(Parser, Debug)]
#[command(name = "hearth", version, max_term_width = 100)]
pub struct Cli {
    /// Options of every command
    #[command(flatten)]
    pub everywhere: Everywhere,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the daemon in the foreground; SIGTERM or Ctrl-C stops it cleanly, a second signal at once
    Serve(Serve),
    /// SSDs used as caches
    #[command(subcommand)]
    Pool(Pool),
    /// Accelerated volumes
    #[command(subcommand)]
    Volume(Volume),
    /// Volumes offered to other machines by iSCSI or NVMe/TCP, through the kernel's own targets
    #[command(subcommand)]
    Share(Share),
    /// Cache a mapped device or logical volume while it is mounted: nothing is unmounted
    Attach(Attach),
    /// Stop caching an attached device, or end a trial; nothing is unmounted
    Detach {
        /// The volume's name
        name: String,
    },
    /// Plain disks beside the cache, on the same SSD
    #[command(subcommand)]
    Disk(Disk),
    /// The disks of this machine, their state and content
    Devices,
    /// Long operations: list, stop and resume them
    #[command(subcommand)]
    Job(Job),
    /// What happened: starts, stops, failures, changes; the oldest first
    Events(Events),
    /// Why a block or range of a volume is cached or not, and its latest requests
    Why {
        /// The volume
        volume: String,
        /// The offset of one block, for instance 10GiB; or a range A-B (B exclusive) of at most 1GiB
        #[arg(value_name = "OFFSET|RANGE", allow_hyphen_values = true)]
        place: String,
    },
    /// How much SSD a load needs, and what reads take then
    Advise(Advise),
    /// Watch a volume, a disk or a trace, to know what it needs
    #[command(subcommand)]
    Analysis(Analysis),
    /// Who reads and writes: application, scans, backups, logs
    #[command(subcommand)]
    Stream(Stream),
    /// Databases found on volumes, without a login
    #[command(subcommand)]
    App(App),
    /// Tables, indexes and logs: how much they are used, and how they are treated
    #[command(subcommand)]
    Object(Object),
    /// Counters of everything, of a volume, or of a pool
    Stats {
        /// A volume (or a pool)
        name: Option<String>,
        /// Repeat every second with rates, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Volumes and pools, live, on a full screen; q quits, ? shows help
    Top,
    /// The configuration file of the daemon
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Files for packages
    #[command(subcommand, hide = true)]
    Generate(crate::generate::Generate),
    /// Export a modelled slow disk over a file, without a cache, until Ctrl-C
    Model {
        /// 7k2, 7k2-wce, 15k, 7k2-raid5x3-short, array, gbe-san or sata-ssd-2012
        set: String,
        /// The file that holds the bytes
        file: String,
        /// The export: loop, nbd or nbd:127.0.0.1:PORT
        #[arg(long)]
        export: String,
        /// Size of its sectors, 512 or 4096 [default: 512]
        #[arg(long, value_name = "BYTES")]
        sector_size: Option<u32>,
    },
    /// Replay a trace through the cache's policy in the simulator and print its miss ratio
    Replay(Replay),
    /// Measure what deduplication, deltas and compression would save
    #[command(subcommand)]
    Content(Content),
    /// Rerun the tests of published evaluations on this machine, without and with the cache, and write a report
    #[command(subcommand)]
    Evaluate(Evaluate),
    /// Print an address that opens the web console, logged in; it works once, within five minutes
    Console,
    /// Secrets for access over TCP
    #[command(subcommand)]
    Token(Token),
    /// Certificates for exports with TLS
    #[command(subcommand)]
    Pki(Pki),
    /// End block devices whose daemon was killed and does not come back, so that no program waits
    /// for them any more; devices that volumes are attached to go on without hearth
    Rescue(Rescue),
    /// Print the API's description (OpenAPI)
    #[command(hide = true)]
    Openapi,
    /// Print the volume that a block device of the kernel's name is of, for udev
    #[command(hide = true)]
    UdevName {
        /// `ublkb0`, `loop3`
        device: String,
    },
    /// Try whether this kernel can have ublk devices; the daemon starts it by itself
    #[command(hide = true)]
    UblkProbe,
    /// Hold the exports of a daemon that ends, for the next one; the daemon starts it by itself
    #[command(hide = true)]
    Keeper {
        /// Where daemons find it
        keeper_socket: PathBuf,
        /// The daemon's own
        daemon_socket: Option<PathBuf>,
    },
}

/// What to do with the configuration file.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// List every problem of the file with its line; needs no daemon
    Check {
        /// The file [default: as for the daemon]
        file: Option<PathBuf>,
    },
    /// Show the effective values and their origin
    Show,
    /// Print a file with every key, its meaning and its default, all as comments
    Default,
}

/// Shells that completions are made for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Options of the daemon.
#[derive(Args, Debug)]
pub struct Serve {
    /// Threads that do I/O [default: half of the cores]
    #[arg(long, value_name = "N")]
    pub reactors: Option<usize>,
    /// Also serve the API and the console on TCP with TLS; a loopback address, for instance 127.0.0.1:7420
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// Allow a --listen address that other machines can reach
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
}

/// Which events.
#[derive(Args, Debug)]
pub struct Events {
    /// Only those of this volume, disk or pool
    pub name: Option<String>,
    /// Only warnings and errors, or only errors
    #[arg(long, value_name = "info|warning|error")]
    pub severity: Option<String>,
    /// At most so many, the latest ones [default: 50; 0 for all that are kept]
    #[arg(long, value_name = "N", default_value_t = 50, hide_default_value = true)]
    pub limit: usize,
    /// Go on with what happens, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
}

/// Options of a replay.
#[derive(Args, Debug)]
pub struct Replay {
    /// The trace file
    pub trace: PathBuf,
    /// Size of the cache's SSD
    #[arg(long, value_name = "SIZE")]
    pub pool_size: String,
}

/// What to do with content.
#[derive(Subcommand, Debug)]
pub enum Content {
    /// Read files or devices and report how small their blocks become in each form; changes nothing
    Measure {
        /// Files, disks or partitions, measured together as in one cache
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Memory for blocks that later blocks are compared with
        #[arg(long, value_name = "SIZE", default_value = "512MiB")]
        memory: String,
    },
}

/// What to do with pools.
#[derive(Subcommand, Debug)]
pub enum Pool {
    /// Format an SSD (a disk, a partition or a file) as a pool
    Create {
        /// Its name
        name: String,
        /// The SSD
        #[arg(long, value_name = "PATH")]
        ssd: String,
        /// Use only this much of it; a missing file is created with this size
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        /// RAM in front of the SSD, 0 for none [default: 256MiB]
        #[arg(long, value_name = "SIZE")]
        ram: Option<String>,
        /// Deduplication, deltas and compression: off, fast, dense or auto [default: auto]
        #[arg(long, value_name = "LEVEL")]
        content: Option<String>,
        /// Overwrite a file system or other content found on the SSD
        #[arg(long)]
        force: bool,
        /// When the SSD is blank at a start: stop, or create the cache again if nothing of it was dirty
        #[arg(long, value_name = "stop|make")]
        on_blank_ssd: Option<String>,
        /// How much of the SSD stays unused, 0 to 50 [default: 10 on a whole drive with a volatile write cache, else 0]
        #[arg(long, value_name = "PERCENT")]
        spare: Option<String>,
    },
    /// Take in the pool of an SSD that is not known here: its state was lost, or it comes from another machine
    Import {
        /// The SSD; without it: which SSDs there are that can be taken in
        #[arg(value_name = "PATH")]
        ssd: Option<String>,
        /// Only show what is on it and where the disks of its volumes are; nothing is changed
        #[arg(long, visible_alias = "dry-run")]
        look: bool,
        /// The pool's name here [default: the one that it had]
        #[arg(long)]
        name: Option<String>,
        /// The backing device of a volume, where it is not found; may be given more than once
        #[arg(long, value_name = "VOLUME=PATH")]
        backing: Vec<String>,
        /// Another name for a volume or disk; may be given more than once
        #[arg(long, value_name = "OLD=NEW")]
        rename: Vec<String>,
        /// Take in volumes whose disks are not there, too: each starts when its disk is
        #[arg(long)]
        missing_later: bool,
    },
    /// All pools
    List,
    /// One pool
    Show {
        /// Its name
        name: String,
    },
    /// Change options while I/O runs
    Set {
        /// Its name
        name: String,
        /// Deduplication, deltas and compression of new blocks: off, fast, dense or auto
        #[arg(long, value_name = "LEVEL")]
        content: Option<String>,
        /// When the SSD is blank at a start: stop, or create the cache again if nothing of it was dirty
        #[arg(long, value_name = "stop|make")]
        on_blank_ssd: Option<String>,
    },
    /// Move a pool to another SSD; its volumes are kept, dirty data is destaged first
    Replace {
        /// Its name
        name: String,
        /// The new SSD
        #[arg(long, value_name = "PATH")]
        ssd: String,
        /// Use only this much of it; a missing file is created with this size
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        /// Overwrite a file system or other content found on the new SSD
        #[arg(long)]
        force: bool,
        /// LOSE dirty data that cannot be destaged from the old SSD
        #[arg(long)]
        drop_dirty: bool,
    },
    /// Start a pool that is not running, or that runs without its SSD
    Start {
        /// Its name
        name: String,
    },
    /// Give the cache the room back that no disk needs
    TakeBack {
        /// Its name
        name: String,
    },
    /// Wipe the SSD's superblock and forget the pool
    Destroy {
        /// Its name
        name: String,
        /// Also remove its volumes, and LOSE their dirty data
        #[arg(long)]
        force: bool,
    },
    /// Check the SSD of a pool against its checksums while it is in use; or inspect an SSD read-only, without a daemon
    Check {
        /// A pool; or the path of an SSD that no daemon uses, with a slash (./ssd.img)
        #[arg(value_name = "NAME|PATH")]
        pool: String,
    },
}

/// What to do with volumes.
#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Create an accelerated volume over a backing device
    Add {
        /// Its name
        name: String,
        /// A block device, a file, or model:SET:FILE
        #[arg(long, value_name = "PATH")]
        backing: String,
        /// The pool that caches it
        #[arg(long)]
        pool: String,
        // The words are those of the table of exports.
        #[arg(long, value_name = "HOW", help = exporters::help())]
        export: Vec<String>,
        /// Serve nbd:IP:PORT with TLS to clients with a certificate (see `hearth pki`); other machines
        /// can then reach it
        #[arg(long)]
        tls: bool,
        /// Size of its sectors, 512 or 4096 [default: 512 for a file, else the device's own]
        #[arg(long, value_name = "BYTES")]
        sector_size: Option<u32>,
        /// Its options
        #[command(flatten)]
        options: VolumeOptions,
    },
    /// All volumes
    List,
    /// One volume; or how a virtual machine uses it
    Show {
        /// Its name
        name: String,
        /// For whom
        #[command(flatten)]
        machine: Machine,
    },
    /// Change options while I/O runs; options not given keep their value (defaults are those of a new volume)
    Set {
        /// Its name
        name: String,
        /// What to change
        #[command(flatten)]
        options: VolumeOptions,
        /// Export it in this way from now on, and in no other that is not named; may be given more than once. What is taken away must not be in
        /// use
        #[arg(long, value_name = "HOW")]
        export: Vec<String>,
        /// Take all exports away
        #[arg(long, conflicts_with_all = ["export", "tls"])]
        no_export: bool,
        /// Serve nbd:IP:PORT with TLS, as for `volume add`
        #[arg(long, requires = "export")]
        tls: bool,
        /// Allow writes again
        #[arg(long, conflicts_with = "read_only")]
        read_write: bool,
        /// Accept the backing device as it is now: its clean cache is dropped, dirty data will overwrite it
        #[arg(long)]
        accept_backing: bool,
    },
    /// Give a volume that is not in use another name; its cache is kept
    Rename {
        /// Its name
        name: String,
        /// The new one
        new_name: String,
    },
    /// Start a volume that is not running; a volume whose backing device was away starts by itself when it is back
    Start {
        /// Its name
        name: String,
    },
    /// Stop a volume that is not in use, until `start`: its backing device is then free, its cache is kept
    Stop {
        /// Its name
        name: String,
        /// Also if its backing device does not answer: requests in flight FAIL; dirty data stays on the SSD
        #[arg(long)]
        give_up: bool,
        /// Also if its backing file was deleted meanwhile: LOSE what it holds
        #[arg(long)]
        force: bool,
    },
    /// Drop the cache of a volume in RAM and its clean blocks on the SSD; dirty data is kept
    DropCache {
        /// Its name
        name: String,
    },
    /// Serve a volume with the size that its backing device has grown to, while I/O runs
    Grow {
        /// Its name
        name: String,
    },
    /// Destage all dirty data
    Destage {
        /// Its name
        name: String,
    },
    /// Wait until a volume is served
    Wait {
        /// Its name
        name: String,
        /// For how long, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 30)]
        limit: u32,
    },
    /// Read the volume, or a range of it, into the cache
    Warm {
        /// Its name
        name: String,
        /// From byte A to byte B (exclusive), for instance 0-10GiB
        #[arg(long, value_name = "A-B")]
        range: Option<String>,
        /// Read at most so many bytes a second, for instance 32MiB
        #[arg(long, value_name = "SIZE")]
        rate: Option<String>,
    },
    /// Destage and forget the volume; its backing device is then complete
    Remove {
        /// Its name
        name: String,
        /// LOSE the dirty data instead of destaging it
        #[arg(long)]
        drop_dirty: bool,
    },
}

/// Options of a volume.
#[derive(Args, Debug, Default)]
pub struct VolumeOptions {
    /// write-through, write-around, write-back or pass-through [default: write-through]
    #[arg(long)]
    pub mode: Option<String>,
    /// Maximum age of a dirty block before it is destaged [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub write_cache_depth: Option<String>,
    /// Maximum of dirty data, or off [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub dirty_limit: Option<String>,
    /// Longer requests bypass the cache [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    pub max_io_size: Option<String>,
    /// A sequential stream bypasses the cache after this length, or off [default: 1MiB]
    #[arg(long, value_name = "SIZE|off")]
    pub sequential_cutoff: Option<String>,
    /// Most of large writes that the log takes between two flushes, because somebody may wait for
    /// them, or off: what the dirty limit allows [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub log_burst: Option<String>,
    /// When a block enters the SSD: always or second-touch [default: second-touch]
    #[arg(long)]
    pub admission: Option<String>,
    /// What writes do if the SSD is lost while the volume has dirty data: stop or continue
    /// [default: stop]
    #[arg(long, value_name = "stop|continue")]
    pub on_ssd_loss: Option<String>,
    /// Aligned units of so many bytes are written as a whole or not at all, for databases without a
    /// double-write buffer: 4KiB to 64KiB, or off; write-back only [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub atomic: Option<String>,
    /// Destage keeps the latency of backing device reads below this [default: 50ms]
    #[arg(long, value_name = "TIME")]
    pub latency_goal: Option<String>,
    /// Maximum bytes destaged per second, or off [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub destage_rate: Option<String>,
    /// Names of the certificates that may use the exports with TLS, with commas between, or all
    /// [default: all]
    #[arg(long, value_name = "NAME,...|all")]
    pub tls_names: Option<String>,
    /// Refuse all writes
    #[arg(long)]
    pub read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
