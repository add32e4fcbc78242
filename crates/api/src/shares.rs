//! Volumes and disks offered to other machines.

use crate::words;
use serde::{Deserialize, Serialize};
use targets::Protocol;
use utoipa::ToSchema;

/// Body of a share's creation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareAdd {
    /// "iscsi" or "nvme-tcp".
    #[serde(with = "words::protocol")]
    #[schema(value_type = String, pattern = "^(iscsi|nvme-tcp)$")]
    pub protocol: Protocol,
    /// Where the target listens: `IP` or `IP:PORT` each; absent: on loopback, at the protocol's port
    /// (3260 or 4420).
    #[serde(default)]
    #[schema(max_items = 16)]
    pub addresses: Vec<String>,
    /// The initiators that may connect, by their IQN or NQN.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub initiators: Vec<String>,
    /// Every machine that reaches the address may connect.
    #[serde(default)]
    pub any_initiator: bool,
    /// Absolute path of a file on the daemon's machine with CHAP secrets, readable by its owner only;
    /// iSCSI only. It is read again at each start.
    #[serde(default)]
    #[schema(pattern = "^/[^\\x00]*$")]
    pub chap_file: Option<String>,
}

/// A volume or disk offered to other machines, as people see it. It never has a secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    /// The volume or disk.
    pub volume: String,
    /// "iscsi" or "nvme-tcp".
    #[serde(with = "words::protocol")]
    #[schema(value_type = String)]
    pub protocol: Protocol,
    /// The name by which initiators ask for it: an IQN or an NQN. The same on every host.
    pub target: String,
    /// The serial number and world-wide name that initiators see.
    pub serial: String,
    /// `naa.…` (iSCSI) or `uuid.…` (NVMe).
    pub wwn: String,
    /// Where the target listens.
    pub addresses: Vec<String>,
    /// The initiators that may connect; none: all.
    pub initiators: Vec<String>,
    /// The file with CHAP secrets.
    #[serde(default)]
    pub chap_file: Option<String>,
    /// The block device that is offered; null while it is not.
    #[serde(default)]
    pub device: Option<String>,
    /// What serves it: "lio" or "nvmet" of the kernel, "tgt" where the kernel has no iSCSI target; null
    /// while nothing does.
    #[serde(default)]
    pub server: Option<String>,
    /// What initiators do without there, and what waits until none is connected, a sentence each.
    #[serde(default)]
    pub limits: Vec<String>,
    /// The initiators that are connected, at the last look; null if that is not known: the kernel does
    /// not tell, or the target does not answer.
    #[serde(default)]
    pub connected: Option<Vec<String>>,
    /// Why it is not offered, if it is not; with a `device`: why nothing is known of it.
    #[serde(default)]
    pub problem: Option<String>,
    /// What to do about it.
    #[serde(default)]
    pub remedy: Option<String>,
}
