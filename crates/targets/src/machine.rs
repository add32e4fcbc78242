//! The targets of a machine: the kernel's, and `tgtd` where the kernel has none for iSCSI.

use crate::errands::{Errands, Key};
use crate::{CONFIGFS, Configfs, DEBUGFS, PROC_NET, Protocol, Share, TargetError, Tgtd, Tree, names, tgt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a caller waits for what should be there at once, and for a change, which may have to wait for I/O.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
const CHANGE_LIMIT: Duration = Duration::from_secs(20);

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

/// That a share is offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    /// By whom.
    pub server: Server,
    /// What could not be put right while initiators are connected, a sentence.
    pub note: Option<String>,
}

/// What a look at a share shows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Look {
    /// What its target lacks: others may have taken it away. Clauses for people, always in the same
    /// order.
    pub lacks: Vec<String>,
    /// The initiators that are connected; `None`: not known.
    pub connected: Option<Vec<String>>,
}

/// Where the targets of a machine are set up. All calls look at what is there, and none waits without
/// a limit: what has not ended by then goes on without its caller.
#[derive(Clone, Debug)]
pub struct Targets {
    tree: Configfs,
    tgtd: Tgtd,
    /// What the kernel could load, one path a line.
    modules: PathBuf,
    errands: Errands,
    look_limit: Duration,
    change_limit: Duration,
}

impl Targets {
    /// This machine's. The ledger is a file that remembers what was made of what does not say so
    /// itself; it must not outlive the machine's start.
    pub fn of_machine(ledger: &Path) -> Targets {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let modules = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
        Targets { tree: Configfs::new(CONFIGFS).with_ledger(ledger), ..Targets::at(Path::new(CONFIGFS), Tgtd::of_machine(), &modules) }
    }

    /// Those of another place, for tests.
    pub fn at(tree: &Path, tgtd: Tgtd, modules: &Path) -> Targets {
        Targets {
            tree: Configfs::new(tree),
            tgtd,
            modules: modules.into(),
            errands: Errands::default(),
            look_limit: LOOK_LIMIT,
            change_limit: CHANGE_LIMIT,
        }
    }

    /// How long callers wait for a look, and for a change.
    #[must_use]
    pub fn with_limits(self, look_limit: Duration, change_limit: Duration) -> Targets {
        Targets { look_limit, change_limit, ..self }
    }

    fn errand<T: Send + 'static>(
        &self,
        key: Key,
        limit: Duration,
        work: impl FnOnce(&Targets) -> Result<T, TargetError> + Send + 'static,
    ) -> Result<T, TargetError> {
        let targets = self.clone();
        let late = TargetError::Late { protocol: key.0, limit };
        self.errands.run(key, limit, move || work(&targets)).unwrap_or(Err(late))
    }

    /// Who serves the share, or would. A `tgtd` that hangs does not matter where LIO serves.
    fn server(&self, protocol: Protocol, uuid: [u8; 16]) -> Result<Server, TargetError> {
        let of_kernel = Server::of_kernel(protocol);
        if protocol != Protocol::Iscsi || self.is_in_lio(uuid) {
            return Ok(of_kernel);
        }
        let is_tgt = match self.tgtd.has(uuid) {
            Ok(has) => has || (!self.has_lio() && self.tgtd.answers()?),
            Err(_) if self.has_lio() => false,
            Err(error) => return Err(error),
        };
        Ok(if is_tgt { Server::Tgt } else { of_kernel })
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
    /// Then nothing is left of what this call made, unless it has not ended in time.
    pub fn offer(&self, share: &Share) -> Result<Offered, TargetError> {
        let share = share.clone();
        self.errand((share.protocol, share.uuid), self.change_limit, move |targets| {
            let server = targets.server(share.protocol, share.uuid)?;
            let note = match server {
                Server::Tgt => targets.tgtd.apply(&share)?,
                Server::Lio | Server::Nvmet => crate::apply(&targets.tree, &share).map(|()| None)?,
            };
            Ok(Offered { server, note })
        })
    }

    /// As [`crate::remove`], whoever serves it.
    ///
    /// # Errors
    /// The rest of it is removed all the same.
    pub fn remove(&self, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> Result<(), TargetError> {
        let volume = volume.to_owned();
        self.errand((protocol, uuid), self.change_limit, move |targets| {
            let may_be_tgt = protocol == Protocol::Iscsi && !targets.is_in_lio(uuid);
            let where_refused = if targets.has_lio() { tgt::Refused::HasNone } else { tgt::Refused::Unknown };
            let of_tgt = if may_be_tgt { targets.tgtd.remove(uuid, where_refused) } else { Ok(()) };
            crate::remove(&targets.tree, protocol, &volume, uuid).and(of_tgt)
        })
    }

    /// Whether the volume is offered by that protocol, or may be: not all of them tell.
    pub fn is_offered(&self, protocol: Protocol, volume: &str, uuid: [u8; 16]) -> bool {
        let volume = volume.to_owned();
        let offered = self.errand((protocol, uuid), self.look_limit, move |targets| {
            let by_kernel = crate::device_of(&targets.tree, protocol, &volume, uuid).is_some();
            Ok(by_kernel || (protocol == Protocol::Iscsi && targets.tgtd.has(uuid).unwrap_or(!targets.has_lio())))
        });
        offered.unwrap_or(true)
    }

    /// Looks whether all of it stands: others may have taken a part away. Of secrets it is seen whether
    /// any are asked for, which they are to be where `has_secrets`.
    ///
    /// # Errors
    /// If the server does not tell. Then nothing is known of it.
    pub fn look(&self, share: &Share, has_secrets: bool) -> Result<Look, TargetError> {
        let share = share.clone();
        self.errand((share.protocol, share.uuid), self.look_limit, move |targets| {
            if share.protocol == Protocol::Iscsi && !targets.is_in_lio(share.uuid) {
                match targets.tgtd.look(&share, has_secrets) {
                    Ok(Some(tgt::Seen::Target { lacks, connected })) => return Ok(Look { lacks, connected: Some(connected) }),
                    Err(error) if !targets.has_lio() => return Err(error),
                    // It is not there, as far as is known, whoever is to serve it.
                    _ => {}
                }
            }
            Ok(Look {
                lacks: crate::lacks(&targets.tree, &share, has_secrets),
                connected: targets.connected_by_kernel(share.protocol, share.uuid),
            })
        })
    }

    /// As [`crate::connected`].
    ///
    /// # Errors
    /// If the server does not tell.
    pub fn connected(&self, protocol: Protocol, uuid: [u8; 16]) -> Result<Option<Vec<String>>, TargetError> {
        self.errand((protocol, uuid), self.look_limit, move |targets| match targets.server(protocol, uuid)? {
            Server::Tgt => targets.tgtd.connected(uuid).map(Some),
            Server::Lio | Server::Nvmet => Ok(targets.connected_by_kernel(protocol, uuid)),
        })
    }

    fn connected_by_kernel(&self, protocol: Protocol, uuid: [u8; 16]) -> Option<Vec<String>> {
        crate::connected(&self.tree, Path::new(DEBUGFS), Path::new(PROC_NET), protocol, uuid)
    }

    /// As [`crate::refresh`]; what to say of initiators.
    ///
    /// # Errors
    /// The server's.
    pub fn refresh(&self, protocol: Protocol, uuid: [u8; 16]) -> Result<&'static str, TargetError> {
        self.errand((protocol, uuid), self.change_limit, move |targets| {
            let server = targets.server(protocol, uuid)?;
            let told = match server {
                Server::Tgt => targets.tgtd.refresh(uuid)?,
                Server::Lio | Server::Nvmet => crate::refresh(&targets.tree, protocol, uuid)?,
            };
            Ok(match server {
                Server::Tgt if told => "initiators see the new size when they log in",
                Server::Tgt => "initiators are connected and keep the old size: log out, then remove the share and add it again",
                _ if told => "initiators were notified of the new size",
                _ => "initiators see the new size when they look again (Linux: `iscsiadm -m session --rescan`)",
            })
        })
    }
}
