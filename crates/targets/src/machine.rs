//! The targets of a machine: the kernel's, and `tgtd` where the kernel has none for iSCSI.

use crate::{CONFIGFS, Configfs, DEBUGFS, PROC_NET, Protocol, Share, TargetError, Tgtd, Tree, names, tgt};
use std::path::{Path, PathBuf};

/// Who serves a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The kernel's, for iSCSI.
    Lio,
    /// The kernel's, for NVMe over TCP.
    Nvmet,
    /// A process, for iSCSI.
    Tgt,
}

impl Server {
    /// The word on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Server::Lio => "lio",
            Server::Nvmet => "nvmet",
            Server::Tgt => "tgt",
        }
    }

    /// What initiators do without, sentences for people.
    pub const fn limits(self) -> &'static [&'static str] {
        match self {
            Server::Lio | Server::Nvmet => &[],
            Server::Tgt => &tgt::LIMITS,
        }
    }

    /// The kernel's for a protocol.
    pub const fn of_kernel(protocol: Protocol) -> Server {
        match protocol {
            Protocol::Iscsi => Server::Lio,
            Protocol::NvmeTcp => Server::Nvmet,
        }
    }
}

/// Where the targets of a machine are set up. All calls look at what is there.
#[derive(Clone, Debug)]
pub struct Targets {
    tree: Configfs,
    tgtd: Tgtd,
    /// What the kernel could load, one path a line.
    modules: PathBuf,
}

impl Targets {
    /// This machine's. The ledger is a file that remembers what was made of what does not say so
    /// itself; it must not outlive the machine's start.
    pub fn of_machine(ledger: &Path) -> Targets {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Targets {
            tree: Configfs::new(CONFIGFS).with_ledger(ledger),
            tgtd: Tgtd::of_machine(),
            modules: Path::new("/lib/modules").join(release.trim()).join("modules.dep"),
        }
    }

    /// Those of another place, for tests.
    pub fn at(tree: &Path, tgtd: Tgtd, modules: &Path) -> Targets {
        Targets { tree: Configfs::new(tree), tgtd, modules: modules.into() }
    }

    /// Who serves the share, or would. A `tgtd` that hangs does not matter where LIO serves.
    fn server(&self, protocol: Protocol, uuid: [u8; 16]) -> Result<Server, TargetError> {
        let is_tgt = protocol == Protocol::Iscsi
            && !self.is_in_lio(uuid)
            && (self.tgtd.device_of(uuid).is_some() || (!self.has_lio() && self.tgtd.answers()?));
        Ok(if is_tgt { Server::Tgt } else { Server::of_kernel(protocol) })
    }

    fn is_in_lio(&self, uuid: [u8; 16]) -> bool {
        self.tree.exists(&format!("target/iscsi/{}", names::target(Protocol::Iscsi, uuid)))
    }

    /// It may not be loaded.
    fn has_lio(&self) -> bool {
        self.tree.exists("target") || std::fs::read_to_string(&self.modules).is_ok_and(|text| text.contains("/target_core_mod.ko"))
    }

    /// As [`crate::apply`]; tells who serves it.
    ///
    /// # Errors
    /// Then nothing is left of what this call made.
    pub fn offer(&self, share: &Share) -> Result<Server, TargetError> {
        let server = self.server(share.protocol, share.uuid)?;
        match server {
            Server::Tgt => self.tgtd.apply(share)?,
            Server::Lio | Server::Nvmet => crate::apply(&self.tree, share)?,
        }
        Ok(server)
    }

    /// As [`crate::remove`], whoever serves it.
    ///
    /// # Errors
    /// The rest of it is removed all the same.
    pub fn remove(&self, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> Result<(), TargetError> {
        let may_be_tgt = protocol == Protocol::Iscsi && !self.is_in_lio(uuid);
        let where_refused = if self.has_lio() { tgt::Refused::HasNone } else { tgt::Refused::Unknown };
        let of_tgt = if may_be_tgt { self.tgtd.remove(uuid, where_refused) } else { Ok(()) };
        crate::remove(&self.tree, protocol, volume, uuid).and(of_tgt)
    }

    /// Whether the volume is offered by that protocol, or may be: a `tgtd` does not tell.
    pub fn is_offered(&self, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> bool {
        crate::device_of(&self.tree, protocol, volume, uuid).is_some()
            || (protocol == Protocol::Iscsi && self.tgtd.has(uuid).unwrap_or(!self.has_lio()))
    }

    /// Whether all of it stands: others may have taken a part away. Secrets are not looked at.
    pub fn stands(&self, share: &Share) -> bool {
        crate::stands(&self.tree, share) || (share.protocol == Protocol::Iscsi && self.tgtd.stands(share))
    }

    /// As [`crate::connected`].
    pub fn connected(&self, protocol: Protocol, uuid: [u8; 16]) -> Option<Vec<String>> {
        match self.server(protocol, uuid) {
            Ok(Server::Tgt) => self.tgtd.connected(uuid),
            _ => crate::connected(&self.tree, Path::new(DEBUGFS), Path::new(PROC_NET), protocol, uuid),
        }
    }

    /// As [`crate::refresh`]; what to say of initiators.
    ///
    /// # Errors
    /// The server's.
    pub fn refresh(&self, protocol: Protocol, uuid: [u8; 16]) -> Result<&'static str, TargetError> {
        let server = self.server(protocol, uuid)?;
        let told = match server {
            Server::Tgt => self.tgtd.refresh(uuid)?,
            Server::Lio | Server::Nvmet => crate::refresh(&self.tree, protocol, uuid)?,
        };
        Ok(match server {
            Server::Tgt if told => "initiators see the new size when they log in",
            Server::Tgt => "initiators are connected and keep the old size: log out, then remove the share and add it again",
            _ if told => "initiators were told the new size",
            _ => "initiators see the new size when they look again (Linux: `iscsiadm -m session --rescan`)",
        })
    }
}
