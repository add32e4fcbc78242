//! What can go wrong, each with what to do next.

use crate::Protocol;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a device is not offered, or not taken back.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The kernel has no such target, or it is not loaded.
    #[error("this kernel offers no {} target: {path} is not there", protocol.title())]
    NoTarget {
        /// Which.
        protocol: Protocol,
        /// What was looked for.
        path: String,
    },
    /// The target cannot listen there.
    #[error("the {} target cannot listen on {address} ({source})", protocol.title())]
    Listen {
        /// Which.
        protocol: Protocol,
        /// Where.
        address: SocketAddr,
        /// The kernel's.
        source: io::Error,
    },
    /// The target does not take the device.
    #[error("the {} target does not take {device} ({source})", protocol.title())]
    Device {
        /// Which.
        protocol: Protocol,
        /// Its path.
        device: String,
        /// The kernel's.
        source: io::Error,
    },
    /// `tgtd` does not do it.
    #[error("{problem}")]
    Tgt {
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// It was waited for long enough.
    #[error("the {} target does not answer within {} s", protocol.title(), limit.as_secs())]
    Late {
        /// Which.
        protocol: Protocol,
        /// How long its caller waits.
        limit: Duration,
    },
    /// Any other step.
    #[error("the kernel does not {doing} {path} ({source})")]
    Step {
        /// "make", "write", "link", "remove", "read".
        doing: &'static str,
        /// Where.
        path: String,
        /// The kernel's.
        source: io::Error,
    },
}

impl TargetError {
    /// What to do, as a clause.
    pub fn remedy(&self) -> String {
        match self {
            TargetError::NoTarget { protocol: Protocol::Iscsi, .. } => {
                "load it with `modprobe target_core_mod iscsi_target_mod`; where the kernel has none, install and start tgt".into()
            }
            TargetError::NoTarget { protocol: Protocol::NvmeTcp, .. } => {
                "load it with `modprobe nvmet-tcp`; a kernel without it cannot share by NVMe/TCP".into()
            }
            TargetError::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another program or target has this address: give another port with --address IP:PORT".into(),
                io::ErrorKind::AddrNotAvailable => "give an address of this machine: see `ip address`".into(),
                _ => "give another address with --address IP:PORT".into(),
            },
            TargetError::Device { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => {
                "unmount it or close what uses it, then try again".into()
            }
            TargetError::Tgt { remedy, .. } => remedy.clone(),
            TargetError::Late { .. } => {
                "it may wait for I/O of the volume: see `dmesg` and `hearth volume show`; it goes on by itself as soon as it can".into()
            }
            TargetError::Device { .. } | TargetError::Step { .. } => "see `dmesg` for the kernel's reason, then try again".into(),
        }
    }
}
