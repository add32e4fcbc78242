//! `hearth analysis`, `hearth stream` and `hearth advise`, as they are written.

use clap::{Args, Subcommand};

/// What to do with analyses.
#[derive(Subcommand, Debug)]
pub enum Analysis {
    /// Watch a volume, an untouched device, or a recorded trace, under a name
    Start(AnalysisStart),
    /// All that is watched: every attached volume, and analyses
    List,
    /// One of them: what was read, by whom, and the SSD that it needs
    Show {
        /// The analysis or volume
        name: String,
    },
    /// End an analysis; what it found stays
    Stop {
        /// The analysis
        name: String,
    },
    /// Forget an analysis
    Forget {
        /// The analysis
        name: String,
    },
}

/// What to watch.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false))]
pub struct AnalysisStart {
    /// Its name
    pub name: String,
    /// A volume
    #[arg(long, value_name = "VOLUME", group = "what")]
    pub volume: Option<String>,
    /// A disk or partition in use, from outside: nothing is written to it
    #[arg(long, value_name = "PATH", group = "what")]
    pub device: Option<String>,
    /// A recorded trace: .vscsi, .lis, .csv, .trace or .blkparse, also compressed (.zst)
    #[arg(long, value_name = "FILE", group = "what")]
    pub trace: Option<String>,
    /// End by itself after this time, for instance 30min, 24h or 7d
    #[arg(long = "for", value_name = "TIME", conflicts_with = "trace")]
    pub span: Option<String>,
    /// How a device is watched: auto, bpf or tracefs [default: auto]
    #[arg(long, value_name = "WAY", requires = "device")]
    pub tap: Option<String>,
    /// Do not read the device for names of databases and tables: it is not even opened then
    #[arg(long, requires = "device")]
    pub no_read: bool,
    /// How writes act on the cache asked about: write-through, write-back or write-around [default: as the volume, else write-through]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
}

/// What to do with streams.
#[derive(Subcommand, Debug)]
pub enum Stream {
    /// Who reads and writes: application, scans, backups, logs
    List {
        /// A volume, a pool or an analysis [default: all]
        name: Option<String>,
    },
    /// Rules: whose requests are a backup, a scan, or the application's
    #[command(subcommand)]
    Rule(StreamRule),
}

impl Stream {
    /// What was asked for, for the sentence that says that it cannot be done.
    pub fn what(&self) -> &'static str {
        match self {
            Stream::List { .. } => "list streams",
            Stream::Rule(StreamRule::List) => "list the rules for streams",
            Stream::Rule(_) => "change the rules for streams",
        }
    }
}

/// What to do with rules for streams.
#[derive(Subcommand, Debug)]
pub enum StreamRule {
    /// Add a rule, asked after those there are. A * at the end of a name stands for anything
    #[command(group = clap::ArgGroup::new("who").required(true).multiple(false))]
    Add {
        /// The name of a process or thread, such as restic
        #[arg(long, value_name = "NAME", group = "who")]
        process: Option<String>,
        /// The program of a database session, such as pg_dump; see `hearth app connect`
        #[arg(long, value_name = "PROGRAM", group = "who")]
        session: Option<String>,
        /// The address of an NBD client
        #[arg(long, value_name = "ADDRESS", group = "who")]
        client: Option<String>,
        /// The path of a control group, such as /system.slice/backup.service
        #[arg(long, value_name = "PATH", group = "who")]
        cgroup: Option<String>,
        /// What such requests are: application, scan, backup, replication or maintenance
        #[arg(long)]
        class: String,
    },
    /// All rules, in the order in which they are asked; the first that fits holds
    List,
    /// Remove a rule
    Remove {
        /// Its number
        id: u64,
    },
}

/// What to do with advice that was given.
#[derive(Subcommand, Debug)]
pub enum AdviseCommand {
    /// Make it so: policies of objects, and the hot parts read into the cache. What has to be bought is told
    Apply {
        /// The advice's number
        id: u64,
        /// Only tell what would change
        #[arg(long)]
        dry_run: bool,
        /// Set policies only: read nothing into the cache
        #[arg(long)]
        no_preload: bool,
    },
    /// Compare the forecast with what came since
    Verify {
        /// The advice's number
        id: u64,
    },
}

/// What to advise on.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Advise {
    /// What to do with advice that was given
    #[command(subcommand)]
    pub command: Option<AdviseCommand>,
    /// A volume, a pool or an analysis [default: everything that is watched]
    pub name: Option<String>,
    /// A share of hits in percent; may be given several times [default: 50, 90 and 99]
    #[arg(long, value_name = "PERCENT")]
    pub target: Vec<f64>,
    /// An SSD size to judge [default: the SSD of the volume's pool]
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<String>,
    /// Let scans and backups into the cache
    #[arg(long)]
    pub with_backups: bool,
}
