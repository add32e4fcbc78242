//! `hearth disk`, as it is written.

use super::Machine;
use clap::Subcommand;

/// What to do with disks.
#[derive(Subcommand, Debug)]
pub enum Disk {
    /// Make a disk on the SSD of a pool, beside its cache; where no room is set aside, the cache gives it, and begins empty
    Create {
        /// Its name
        name: String,
        /// The pool whose SSD it lies on
        #[arg(long)]
        pool: String,
        /// Its size
        #[arg(long, value_name = "SIZE")]
        size: String,
        /// How it is offered; as for volumes
        #[arg(long, value_name = "EXPORT")]
        export: Vec<String>,
        /// NBD over TCP with TLS; as for volumes
        #[arg(long)]
        tls: bool,
    },
    /// All disks
    List,
    /// One disk; or how a virtual machine uses it
    Show {
        /// Its name
        name: String,
        /// For whom
        #[command(flatten)]
        machine: Machine,
    },
    /// Change a disk's size: to a larger one while it is used, to a smaller one while nobody uses it
    Resize {
        /// Its name
        name: String,
        /// Its new size
        #[arg(long, value_name = "SIZE")]
        size: String,
        /// LOSE what lies behind the new end
        #[arg(long)]
        lose_content: bool,
    },
    /// Change how a disk is offered: in the ways that are named, and no others
    Set {
        /// Its name
        name: String,
        /// How it is offered from now on; as for volumes
        #[arg(long, value_name = "EXPORT", required_unless_present = "no_export")]
        export: Vec<String>,
        /// Take all exports away
        #[arg(long, conflicts_with_all = ["export", "tls"])]
        no_export: bool,
        /// NBD over TCP with TLS; as for volumes
        #[arg(long)]
        tls: bool,
    },
    /// Remove a disk that nobody uses; its content is lost
    Remove {
        /// Its name
        name: String,
        /// LOSE its content
        #[arg(long)]
        lose_content: bool,
    },
}
