//! `hearth share`, as it is written, and the options that say for which program a volume or disk is shown.

use clap::{Args, Subcommand};

/// What to do with shares.
#[derive(Subcommand, Debug)]
pub enum Share {
    /// Offer the block device of a volume or disk to other machines
    Add {
        /// The volume or disk
        volume: String,
        /// How
        #[command(flatten)]
        protocol: RequiredProtocol,
        /// Where to listen; may be given more than once [default: 127.0.0.1; port 3260 or 4420]
        #[arg(long, value_name = "IP[:PORT]")]
        address: Vec<String>,
        /// An initiator that may connect, by its IQN or NQN; may be given more than once
        #[arg(long, value_name = "NAME")]
        initiator: Vec<String>,
        /// Allow every machine that reaches the address
        #[arg(long, conflicts_with = "initiator")]
        any_initiator: bool,
        /// File with CHAP secrets for iSCSI; only its owner may be able to read it
        #[arg(long, value_name = "FILE")]
        chap: Option<String>,
    },
    /// All shares
    List,
    /// One share: names, serial numbers, connected initiators
    Show {
        /// The volume or disk
        volume: String,
        /// Which of its shares
        #[command(flatten)]
        protocol: OptionalProtocol,
    },
    /// Take the offer away
    Remove {
        /// The volume or disk
        volume: String,
        /// Which of its shares
        #[command(flatten)]
        protocol: OptionalProtocol,
        /// Also while initiators are connected
        #[arg(long)]
        force: bool,
    },
}

/// Lines for who uses a volume or disk.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct Machine {
    /// Print the disk for the XML of a libvirt domain
    #[arg(long)]
    pub libvirt: bool,
    /// Print the options for QEMU's command line
    #[arg(long)]
    pub qemu: bool,
    /// Print the command for Proxmox, or the line for its configuration file
    #[arg(long)]
    pub proxmox: bool,
    /// Print the line of /etc/fstab that mounts its file system at boot
    #[arg(long)]
    pub fstab: bool,
}

/// A protocol that must be given.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct RequiredProtocol {
    /// By iSCSI
    #[arg(long)]
    pub iscsi: bool,
    /// By NVMe over TCP
    #[arg(long)]
    pub nvme_tcp: bool,
}

/// A protocol that is needed only where a volume has two shares.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct OptionalProtocol {
    /// The one by iSCSI
    #[arg(long)]
    pub iscsi: bool,
    /// The one by NVMe over TCP
    #[arg(long)]
    pub nvme_tcp: bool,
}
