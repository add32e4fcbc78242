//! The command line as people write it.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Heading of the options that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// An SSD cache in user space: fast volumes over slow storage.
#[derive(Parser, Debug)]
#[command(name = "hearth", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// The daemon's socket [default: /run/hearth/hearth.sock for root, else $XDG_RUNTIME_DIR/hearth.sock; or HEARTH_SOCKET]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The daemon's state directory [default: /var/lib/hearth for root, else $XDG_STATE_HOME/hearth; or HEARTH_STATE]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The configuration file [default: /etc/hearth/hearth.toml, if it is there; or HEARTH_CONFIG]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Exact JSON instead of a table
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the daemon in the foreground; SIGTERM or Ctrl-C stops it cleanly, a second one at once
    Serve(Serve),
    /// SSDs that cache
    #[command(subcommand)]
    Pool(Pool),
    /// Accelerated volumes
    #[command(subcommand)]
    Volume(Volume),
    /// The disks of this machine: which are free, and what is on the others
    Devices,
    /// Long work: what runs, what ended, what can go on
    #[command(subcommand)]
    Job(Job),
    /// Why a place of a volume is cached, or is not, and what happened there lately
    Why {
        /// The volume
        volume: String,
        /// Of one block, for instance 10GiB; or a range A-B (exclusive) of at most 1GiB
        #[arg(value_name = "OFFSET|RANGE", allow_hyphen_values = true)]
        place: String,
    },
    /// Counters of everything, of a volume, or of a pool
    Stats {
        /// A volume (or a pool)
        name: Option<String>,
        /// Again every second, with rates, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Volumes and pools on a full screen, as they move; q ends it, ? helps
    Top,
    /// The configuration file of the daemon
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Completions for a shell, to be put where it looks for them
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Files for packages
    #[command(subcommand, hide = true)]
    Generate(Generate),
    /// Export a modelled slow disk over a file, without a cache, until Ctrl-C
    Model {
        /// 7k2, 7k2-wce, 15k, 7k2-raid5x3-short, array, gbe-san or sata-ssd-2012
        set: String,
        /// The file that holds the bytes
        file: String,
        /// How: loop, nbd or nbd:127.0.0.1:PORT
        #[arg(long)]
        export: String,
        /// Size of its sectors, 512 or 4096 [default: 512]
        #[arg(long, value_name = "BYTES")]
        sector_size: Option<u32>,
    },
    /// Replay a trace through the cache's policy in the simulator and print its miss ratio
    Replay(Replay),
    /// What the content of blocks would bring
    #[command(subcommand)]
    Content(Content),
    /// Rerun the tests of published evaluations on this machine, without and with the cache, and write a report
    #[command(subcommand)]
    Evaluate(Evaluate),
    /// Print the address that opens the web console, logged in; good once and for five minutes
    Console,
    /// Secrets by which scripts ask over TCP
    #[command(subcommand)]
    Token(Token),
    /// Print the API's description (OpenAPI)
    #[command(hide = true)]
    Openapi,
}

/// What to do with tokens.
#[derive(Subcommand, Debug)]
pub enum Token {
    /// Make a token and print it; it is never shown again
    Create {
        /// Its name
        name: String,
        /// What its bearer may do: view or operate
        #[arg(long)]
        role: String,
    },
    /// All tokens, without their secrets
    List,
    /// Revoke a token; browsers that logged in with it are logged out
    Revoke {
        /// Its name
        name: String,
    },
}

/// What to do with the configuration file.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Find every problem of the file and its line; needs no daemon
    Check {
        /// The file [default: as for the daemon]
        file: Option<PathBuf>,
    },
    /// What a daemon would run with, and where each value is from
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

/// What is made for packages.
#[derive(Subcommand, Debug)]
pub enum Generate {
    /// Manual pages of all commands and of the configuration file
    Man {
        /// Where to
        directory: PathBuf,
    },
}

/// Options of the daemon.
#[derive(Args, Debug)]
pub struct Serve {
    /// Threads that do I/O [default: half of the cores]
    #[arg(long, value_name = "N")]
    pub reactors: Option<usize>,
    /// Serve the API and the console on TCP too, with TLS; a loopback address, for instance 127.0.0.1:7420
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<std::net::SocketAddr>,
    /// Let --listen be an address that other machines can reach
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
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

/// What to do with evaluations.
#[derive(Subcommand, Debug)]
pub enum Evaluate {
    /// The suites: what each reruns, and what was published
    List,
    /// Run suites, or go on with a run that was stopped
    Run(EvaluateRun),
    /// Write the report of a run
    Report {
        /// The directory of the run
        directory: PathBuf,
        /// Write report.html
        #[arg(long)]
        html: bool,
        /// Write report.pdf
        #[arg(long)]
        pdf: bool,
        /// What things cost here, for the cost table; `hearth evaluate prices` prints an example
        #[arg(long, value_name = "FILE")]
        prices: Option<PathBuf>,
    },
    /// Compare two runs: two machines, two versions, two settings
    Compare {
        /// The directory of the first run
        first: PathBuf,
        /// The directory of the second run
        second: PathBuf,
        /// Write the comparison as a page too
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Print an example of the file that --prices takes
    Prices,
    /// Play a load on a device or a file, and tell what it brings
    Load(EvaluateLoad),
    /// Fill a device or a file with data, as suites do before they run
    Fill {
        /// A device, or a file that is made; all that is in it is LOST
        path: PathBuf,
        /// How much
        #[arg(long, value_name = "SIZE")]
        size: String,
        /// So many of a hundred bytes can be compressed away, at most 75 [default: 0]
        #[arg(long, value_name = "PERCENT", default_value_t = 0, hide_default_value = true)]
        compressible: u32,
        /// Overwrite a device
        #[arg(long)]
        yes: bool,
    },
}

/// Options of a run.
#[derive(Args, Debug)]
pub struct EvaluateRun {
    /// Suites; all of them if none is named
    #[arg(value_name = "SUITE")]
    pub suites: Vec<String>,
    /// A real backing device, all of whose data is LOST, in place of modelled ones
    #[arg(long, value_name = "PATH", conflicts_with = "model")]
    pub backing: Option<PathBuf>,
    /// One model set for all suites, in place of each one's own
    #[arg(long, value_name = "SET")]
    pub model: Option<String>,
    /// Where the cache is: a device, all of whose data is LOST, or a directory for a file [default: --out]
    #[arg(long, value_name = "PATH")]
    pub ssd: Option<PathBuf>,
    /// Data of each case
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Shorter runs, and one pair of each
    #[arg(long)]
    pub quick: bool,
    /// Pairs of runs of each case [default: 3; 1 with --quick]
    #[arg(long, value_name = "N")]
    pub pairs: Option<u32>,
    /// Where results and report go; one that is there already is gone on with
    #[arg(long, value_name = "DIR", default_value = "hearth-evaluation")]
    pub out: PathBuf,
    /// What things cost here, for the cost table
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// The load of the suite "own": a fio job file or a trace
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// Agree to what is asked before: programs that are installed, devices that are overwritten
    #[arg(long)]
    pub yes: bool,
    /// Seconds and mebibytes: for tests of the tests
    #[arg(long, hide = true)]
    pub toy: bool,
}

/// A load.
#[derive(Args, Debug)]
pub struct EvaluateLoad {
    /// The device or file
    pub path: PathBuf,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub block: String,
    /// Use only so much of it
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Reads of a hundred requests; with less than 100 its data is LOST, which --yes agrees to
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub reads: u32,
    /// Requests under way
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub depth: u32,
    /// So many requests a second, however long they take
    #[arg(long, value_name = "N")]
    pub per_second: Option<f64>,
    /// How long
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub time: String,
    /// Where: uniform, sequential, hit-area:SIZE:READS:WRITES (percent), zoned:IO/SPACE:... (percent), zipf:THETA
    #[arg(long, value_name = "PLACES", default_value = "uniform")]
    pub places: String,
    /// So many of a hundred bytes written can be compressed away, at most 75
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub compressible: u32,
    /// The requests follow from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Agree that data is overwritten
    #[arg(long)]
    pub yes: bool,
}

/// What to do with content.
#[derive(Subcommand, Debug)]
pub enum Content {
    /// Read files or devices and tell how small their blocks become, in each form; changes nothing
    Measure {
        /// Files, disks or partitions; all of them as if they stood in one cache
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Memory for the content of blocks that others may resemble
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
        /// Use only so much of it; a file that is not there is made with this size
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        /// RAM in front of the SSD, 0 for none [default: 256MiB]
        #[arg(long, value_name = "SIZE")]
        ram: Option<String>,
        /// What is made of what blocks contain (duplicates, deltas, compression): off, fast, dense or auto [default: auto]
        #[arg(long, value_name = "LEVEL")]
        content: Option<String>,
        /// Overwrite a file system or anything else that is found on the SSD
        #[arg(long)]
        force: bool,
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
        /// What is made of what blocks contain from now on: off, fast, dense or auto
        #[arg(long, value_name = "LEVEL")]
        content: Option<String>,
    },
    /// Put a pool on another SSD; its volumes stay, what is dirty goes home first
    Replace {
        /// Its name
        name: String,
        /// The new SSD
        #[arg(long, value_name = "PATH")]
        ssd: String,
        /// Use only so much of it; a file that is not there is made with this size
        #[arg(long, value_name = "SIZE")]
        size: Option<String>,
        /// Overwrite a file system or anything else that is found on the new SSD
        #[arg(long)]
        force: bool,
        /// LOSE dirty data that cannot be brought home from the old SSD
        #[arg(long)]
        drop_dirty: bool,
    },
    /// Wipe the SSD's superblock and forget the pool
    Destroy {
        /// Its name
        name: String,
        /// Also remove its volumes, and LOSE their dirty data
        #[arg(long)]
        force: bool,
    },
    /// Compare what a pool's SSD holds with its checksums, while it is in use; or inspect an SSD without a daemon, reading only
    Check {
        /// A pool's name; or the path of an SSD, with a slash in it (./ssd.img), that no daemon uses
        #[arg(value_name = "NAME|PATH")]
        pool: String,
    },
}

/// What to do with jobs.
#[derive(Subcommand, Debug)]
pub enum Job {
    /// All jobs that run or ended lately
    List,
    /// One job
    Show {
        /// Its number
        id: u64,
    },
    /// Stop a job; what it has done stays done
    Cancel {
        /// Its number
        id: u64,
    },
    /// Go on with a job that was stopped or failed, as a new one
    Resume {
        /// The number of the old one
        id: u64,
    },
}

/// What to do with volumes.
#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Make an accelerated volume over a backing device
    Add {
        /// Its name
        name: String,
        /// A block device, a file, or model:SET:FILE
        #[arg(long, value_name = "PATH")]
        backing: String,
        /// The pool that caches it
        #[arg(long)]
        pool: String,
        /// How to offer it: loop, nbd or nbd:127.0.0.1:PORT; may be given more than once
        #[arg(long, value_name = "HOW")]
        export: Vec<String>,
        /// Size of its sectors, 512 or 4096 [default: 512 for a file, else the device's own]
        #[arg(long, value_name = "BYTES")]
        sector_size: Option<u32>,
        /// How to treat it
        #[command(flatten)]
        options: VolumeOptions,
    },
    /// All volumes
    List,
    /// One volume
    Show {
        /// Its name
        name: String,
    },
    /// Change options while I/O runs; what is not given stays as it is (the defaults are those of a new volume)
    Set {
        /// Its name
        name: String,
        /// What to change
        #[command(flatten)]
        options: VolumeOptions,
        /// Writes are allowed again
        #[arg(long, conflicts_with = "read_only")]
        read_write: bool,
        /// Take the backing device as it is now for the right one: its clean cache is dropped, dirty data will be written over it
        #[arg(long)]
        accept_backing: bool,
    },
    /// Start a volume that does not run; one whose backing device was away starts by itself when that is there
    Start {
        /// Its name
        name: String,
    },
    /// Stop a volume that nobody uses, until `start`: its backing device is then free, what is cached of it stays
    Stop {
        /// Its name
        name: String,
    },
    /// Drop what is cached of a volume, in RAM and clean on the SSD; dirty data is kept
    DropCache {
        /// Its name
        name: String,
    },
    /// Bring all dirty data home
    Destage {
        /// Its name
        name: String,
    },
    /// Read the volume, or a range of it, into the cache
    Warm {
        /// Its name
        name: String,
        /// From byte A to byte B (exclusive), for instance 0-10GiB
        #[arg(long, value_name = "A-B")]
        range: Option<String>,
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

/// How a volume is treated.
#[derive(Args, Debug, Default)]
pub struct VolumeOptions {
    /// write-through, write-around, write-back or pass-through [default: write-through]
    #[arg(long)]
    pub mode: Option<String>,
    /// Oldest a dirty block gets before it is destaged [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub write_cache_depth: Option<String>,
    /// Most dirty data, or off [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub dirty_limit: Option<String>,
    /// Longer requests go around the cache [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    pub max_io_size: Option<String>,
    /// A sequential stream goes around the cache after so much, or off [default: 1MiB]
    #[arg(long, value_name = "SIZE|off")]
    pub sequential_cutoff: Option<String>,
    /// always or second-touch [default: second-touch]
    #[arg(long)]
    pub admission: Option<String>,
    /// Destage keeps reads of the backing device below this [default: 50ms]
    #[arg(long, value_name = "TIME")]
    pub latency_goal: Option<String>,
    /// Most bytes destaged per second, or off [default: off]
    #[arg(long, value_name = "SIZE|off")]
    pub destage_rate: Option<String>,
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
