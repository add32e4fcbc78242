//! Block devices offered to other machines by the kernel's own targets: LIO for iSCSI, nvmet for
//! NVMe over TCP; and by `tgtd` for iSCSI where the kernel has no LIO. [`Targets`] chooses.
//!
//! The kernel's are set up by directories, links and small files below configfs. [`Tree`] is what that
//! takes: the kernel's ([`Configfs`]), or a directory that behaves like it in tests. Rooms:
//! [`names`] what a volume is called by initiators, from its UUID alone; [`chap`] secrets from a
//! file; `lio` and `nvmet` what is written where; `steps` how a half-done setup is undone; `tgt` the
//! server in user space; `errands` how long callers wait.
//!
//! Invariants:
//! * [`apply`] changes nothing that is right already, so initiators that are connected stay so;
//! * what [`apply`] made is gone again when it fails;
//! * [`remove`] touches only what carries the volume's names and serial number.

#![forbid(unsafe_code)]

pub mod chap;
mod errands;
mod error;
mod lio;
mod machine;
#[cfg(feature = "model")]
#[allow(missing_docs)] // For tests only.
pub mod model;
pub mod names;
mod nvmet;
mod peers;
mod steps;
mod tgt;
mod tree;

pub use chap::Chap;
pub use error::TargetError;
pub use machine::{Look, Offered, Server, Targets};
pub use tgt::Tgtd;
pub use tree::{Configfs, Tree};

use std::net::SocketAddr;
use std::path::Path;

/// Where configfs is mounted.
pub const CONFIGFS: &str = "/sys/kernel/config";
/// Where debugfs is mounted; it tells which NVMe hosts are connected.
pub const DEBUGFS: &str = "/sys/kernel/debug";

/// Where the kernel lists connections.
pub const PROC_NET: &str = "/proc/net";

/// How other machines reach the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// iSCSI, by LIO.
    Iscsi,
    /// NVMe over TCP, by nvmet.
    NvmeTcp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 2] = [Protocol::Iscsi, Protocol::NvmeTcp];

    /// The word on the wire and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Iscsi => "iscsi",
            Protocol::NvmeTcp => "nvme-tcp",
        }
    }

    /// The protocol of that name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// As people write it.
    pub const fn title(self) -> &'static str {
        match self {
            Protocol::Iscsi => "iSCSI",
            Protocol::NvmeTcp => "NVMe/TCP",
        }
    }

    /// The port that it is registered with.
    pub const fn port(self) -> u16 {
        match self {
            Protocol::Iscsi => 3260,
            Protocol::NvmeTcp => 4420,
        }
    }
}

/// Which initiators may connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// All that reach the address.
    Anyone,
    /// Those of these names (IQN, NQN).
    Only(Vec<String>),
}

/// A block device as it is to be offered.
#[derive(Clone, Debug)]
pub struct Share {
    /// How.
    pub protocol: Protocol,
    /// The volume's UUID: all names and numbers that initiators see come from it.
    pub uuid: [u8; 16],
    /// The volume's name.
    pub volume: String,
    /// Path of its block device.
    pub device: String,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Where the target listens.
    pub addresses: Vec<SocketAddr>,
    /// Who may connect.
    pub access: Access,
    /// What they must know; iSCSI only.
    pub chap: Option<Chap>,
    /// Nothing but this share leads to what the device holds. Who serves it may then keep a page cache above it: nobody else writes past that.
    pub is_alone: bool,
}

impl Share {
    /// The name by which initiators ask for it.
    pub fn target(&self) -> String {
        names::target(self.protocol, self.uuid)
    }
}

/// Offers the device. What is set up already stays as it is, and connected initiators stay
/// connected; a target of this volume on another device is made anew.
///
/// # Errors
/// Then nothing is left of what this call made.
pub fn apply(tree: &dyn Tree, share: &Share) -> Result<(), TargetError> {
    match share.protocol {
        Protocol::Iscsi => lio::apply(tree, share),
        Protocol::NvmeTcp => nvmet::apply(tree, share),
    }
}

/// Takes the offer of a volume away; connected initiators are disconnected. It is no failure if it
/// is not there.
///
/// # Errors
/// If the kernel refuses a step; the rest of it is removed all the same.
pub fn remove(tree: &dyn Tree, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> Result<(), TargetError> {
    match protocol {
        Protocol::Iscsi => lio::remove(tree, volume, uuid),
        Protocol::NvmeTcp => nvmet::remove(tree, uuid),
    }
}

/// Whether the volume is offered now, as far as the kernel's tree tells; and on which device.
pub fn device_of(tree: &dyn Tree, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> Option<String> {
    match protocol {
        Protocol::Iscsi => lio::device_of(tree, volume, uuid),
        Protocol::NvmeTcp => nvmet::device_of(tree, uuid),
    }
}

/// What the target of the share lacks, clauses for people. Whether it asks for secrets is looked at
/// where it is to; which they are is not.
pub fn lacks(tree: &dyn Tree, share: &Share, has_secrets: bool) -> Vec<String> {
    match share.protocol {
        Protocol::Iscsi => lio::lacks(tree, share, has_secrets),
        Protocol::NvmeTcp => nvmet::lacks(tree, share),
    }
}

/// The initiators that are connected: their names, or where the kernel does not tell these their
/// addresses. `None`: some are connected where the target listens, and perhaps to another volume.
pub fn connected(tree: &dyn Tree, debugfs: &Path, net: &Path, protocol: Protocol, uuid: [u8; 16]) -> Option<Vec<String>> {
    match protocol {
        Protocol::Iscsi => lio::connected(tree, uuid),
        Protocol::NvmeTcp => nvmet::connected(tree, debugfs, net, uuid),
    }
}

/// The device has another size: initiators are told, where the protocol can. `false`: they must look
/// by themselves.
///
/// # Errors
/// The kernel's.
pub fn refresh(tree: &dyn Tree, protocol: Protocol, uuid: [u8; 16]) -> Result<bool, TargetError> {
    match protocol {
        Protocol::Iscsi => Ok(false),
        Protocol::NvmeTcp => nvmet::refresh(tree, uuid),
    }
}
