//! The command line of `hearth evaluate`: `hearth` completes and explains it, `hearth-evaluate` carries it out.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with evaluations.
#[derive(Subcommand, Debug)]
pub enum Evaluate {
    /// The suites: what each reruns, and what was published
    List,
    /// Run suites, or continue a stopped run
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
        /// Prices for the cost table; `hearth evaluate prices` prints an example
        #[arg(long, value_name = "FILE")]
        prices: Option<PathBuf>,
    },
    /// Compare two runs: two machines, two versions, two settings
    Compare {
        /// The directory of the first run
        first: PathBuf,
        /// The directory of the second run
        second: PathBuf,
        /// Also write the comparison as a page
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Print an example of the file that --prices takes
    Prices,
    /// What a suite runs in a virtual machine
    #[command(hide = true)]
    InGuest {
        /// The disk
        device: String,
        /// As the suite says it
        asked: String,
    },
    /// Run a load on a device or a file, and report its performance
    Load(EvaluateLoad),
    /// Fill a device or a file with data, as suites do before they run
    Fill {
        /// A device, or a file to create; its content is LOST
        path: PathBuf,
        /// How much
        #[arg(long, value_name = "SIZE")]
        size: String,
        /// Share of the bytes that compression removes, in percent, at most 75 [default: 0]
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
    /// The cache: a device, all of whose data is LOST, or a directory for a file [default: --out]
    #[arg(long, value_name = "PATH")]
    pub ssd: Option<PathBuf>,
    /// Data size of each case
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Shorter runs, one pair each
    #[arg(long)]
    pub quick: bool,
    /// Pairs of runs of each case [default: 3; 1 with --quick]
    #[arg(long, value_name = "N")]
    pub pairs: Option<u32>,
    /// Directory for results and report; an existing run is continued
    #[arg(long, value_name = "DIR", default_value = "hearth-evaluation")]
    pub out: PathBuf,
    /// Prices for the cost table
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// The load of the suite "own": a fio job file or a trace
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// Answer yes to all questions: install programs, overwrite devices
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
    /// Request size
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub block: String,
    /// Use only this much of it
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Percentage of reads; below 100 its data is LOST and --yes is needed
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub reads: u32,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub depth: u32,
    /// A fixed number of requests per second
    #[arg(long, value_name = "N")]
    pub per_second: Option<f64>,
    /// Duration
    #[arg(long, value_name = "TIME", default_value = "20s")]
    pub time: String,
    /// Access pattern: uniform, sequential, hit-area:SIZE:READS:WRITES (percent), zoned:IO/SPACE:... (percent), zipf:THETA
    #[arg(long, value_name = "PLACES", default_value = "uniform")]
    pub places: String,
    /// Share of the written bytes that compression removes, in percent, at most 75
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub compressible: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Allow data to be overwritten
    #[arg(long)]
    pub yes: bool,
}
