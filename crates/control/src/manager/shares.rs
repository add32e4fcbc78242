//! Shares: volumes and disks offered to other machines by the kernel's targets, on their block devices.
//!
//! | add | after a crash here, the start |
//! |---|---|
//! | 1. save it with the volume, then set the target up | offers it with the block device |
//!
//! | remove | after a crash here, the start |
//! |---|---|
//! | 1. take the target down | offers it again |
//! | 2. save without it | – |
//!
//! A share lives on a block device: it is offered when that is, and taken away before it goes. While
//! the daemon is away, the device and with it the share stay, and initiators wait. A share that
//! cannot be offered (its address is not there yet, the target is not loaded) does not keep its volume
//! from being served: it is told, and tried again.

use super::{Manager, Trouble};
use api::error::ControlError;
use api::names::Named;
use api::{Severity, ShareAdd, ShareView};
use records::state::{ShareRecord, VolumeRecord};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use targets::{Offered, Protocol, Server, names};

/// Most addresses, and most initiators, of one share.
const ADDRESSES_MAX: usize = 16;
const INITIATORS_MAX: usize = 64;

/// How a share is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LiveShare {
    /// On which device it is offered.
    pub(super) device: Option<String>,
    /// By whom.
    pub(super) server: Option<Server>,
    /// Why it is not, or why nothing is known of it.
    pub(super) trouble: Option<Trouble>,
    /// What could not be put right while initiators are connected.
    pub(super) note: Option<String>,
    /// The initiators that are connected, at the last look; `None`: not known.
    pub(super) connected: Option<Vec<String>>,
}

impl Manager {
    pub(super) fn share_add(&self, name: &str, add: &ShareAdd) -> Result<ShareView, ControlError> {
        let share = checked(add)?;
        let _claim = self.claim(&[(Named::Volume, name)], "a change of its shares")?;
        let record = self.running_or_bare(name)?;
        let protocol = share.protocol;
        if record.share(protocol).is_some() {
            return Err(ControlError::Taken { named: "share", name: share_name(name, protocol) });
        }
        let device = self.memory().volumes.get(name).and_then(|live| live.block_device().map(|(export, place)| (export, place.to_owned())));
        let Some((export, device)) = device else {
            let kind = self.kind_of(name);
            let problem = format!("the {kind} \"{name}\" has no block device that could be shared");
            let remedy = match self.is_disk(name) {
                true => format!("give it one with `hearth disk set {name}`: name --export block, and all that it is to keep"),
                false => format!("give it one with `hearth volume set {name}`: name --export block, and all that it is to keep"),
            };
            return Err(ControlError::BadCombination(problem, remedy));
        };
        // Where one share is, the device is in use by the kernel's target.
        if record.shares.is_empty()
            && let Some(user) = self.data().export_in_use(&record, &export)
        {
            return Err(ControlError::share(
                name,
                protocol,
                &format!("{device} is in use ({user})"),
                "unmount it or close what uses it, then try again",
            ));
        }
        let saved = self.change_shares(name, |shares| shares.push(share.clone()))?;
        let offered = match self.data().share(&saved, &share, &device) {
            Ok(offered) => offered,
            Err(error) => {
                // One that did not answer in time may yet do what it was asked for.
                if self.data().unshare(&saved, protocol).is_err() {
                    self.note_left(&saved, protocol);
                }
                self.change_shares(name, |shares| shares.retain(|known| known.protocol != protocol))?;
                return Err(error);
            }
        };
        self.memory().left_shares.retain(|(left, of)| (left.uuid, *of) != (saved.uuid, protocol));
        self.set_live_share(name, protocol, live_of(offered, &device));
        let target = names::target(protocol, record.uuid.into_bytes());
        self.events().note(Severity::Info, name, format!("shared by {} at {} as {target}", protocol.title(), listed(&share)));
        if let Some(other) = record.shares.first() {
            // It is not the only one any more, which some servers have to know.
            self.offer_share(&saved, other, &device);
            let message = format!(
                "it is shared by {} and {}: reservations of one are not seen by the other",
                other.protocol.title(),
                protocol.title()
            );
            self.events().note(Severity::Warning, name, message);
        }
        self.share_view(name, protocol)
    }

    pub(super) fn share_remove(&self, name: &str, protocol: Protocol, force: bool) -> Result<String, ControlError> {
        let _claim = self.claim(&[(Named::Volume, name)], "a change of its shares")?;
        let record = self.exported_record(name)?;
        self.share_record(&record, protocol)?;
        if !force {
            self.check_nobody_connected(&record, protocol)?;
        }
        self.data().unshare(&record, protocol)?;
        self.change_shares(name, |shares| shares.retain(|share| share.protocol != protocol))?;
        self.set_live_volume(name, |live| drop(live.shares.remove(&protocol)));
        let told = format!("no longer shared by {}", protocol.title());
        self.events().note(Severity::Info, name, &told);
        Ok(told)
    }

    pub(super) fn share_views(&self) -> Vec<ShareView> {
        let mut volumes = self.memory().state.exported();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes.iter().flat_map(|volume| self.shares_of(volume)).collect()
    }

    pub(super) fn share_view(&self, name: &str, protocol: Protocol) -> Result<ShareView, ControlError> {
        let record = self.exported_record(name)?;
        let share = self.share_record(&record, protocol)?.clone();
        let view = self.view_of_share(&record, &share);
        if view.device.is_none() && view.connected.is_some() {
            return Ok(view);
        }
        // Who asks for one share waits for a look of its own.
        match self.data().connected(&record, protocol) {
            Ok(connected) => Ok(ShareView { connected, ..view }),
            Err(error) => {
                // Why it is not offered says more than why nothing is known of it.
                let Trouble { problem, remedy } = live_trouble(&view).unwrap_or_else(|| Trouble::from(&error));
                Ok(ShareView { connected: None, problem: Some(problem), remedy: Some(remedy), ..view })
            }
        }
    }

    /// The shares of a volume, as people see them.
    pub(super) fn shares_of(&self, volume: &VolumeRecord) -> Vec<ShareView> {
        volume.shares.iter().map(|share| self.view_of_share(volume, share)).collect()
    }

    fn view_of_share(&self, volume: &VolumeRecord, share: &ShareRecord) -> ShareView {
        let uuid = volume.uuid.into_bytes();
        let live = self.live_share(&volume.name, share.protocol);
        // A target of an earlier daemon, or one that did not answer, may stand all the same.
        let may_stand = live.device.is_some() || live.trouble.is_some() || self.may_be_left(volume, share.protocol);
        let (serial, wwn) = match share.protocol {
            Protocol::Iscsi => (names::scsi_serial(uuid), format!("naa.{}", names::naa(uuid))),
            Protocol::NvmeTcp => (names::nvme_serial(uuid), format!("uuid.{}", names::nvme_uuid(uuid))),
        };
        ShareView {
            volume: volume.name.clone(),
            protocol: share.protocol,
            target: names::target(share.protocol, uuid),
            serial,
            wwn,
            addresses: share.addresses.iter().map(ToString::to_string).collect(),
            initiators: share.initiators.clone(),
            chap_file: share.chap_file.clone(),
            connected: if may_stand { live.connected } else { Some(Vec::new()) },
            device: live.device,
            server: live.server.map(|server| server.name().into()),
            limits: live.server.map_or(&[][..], Server::limits).iter().map(|&limit| limit.to_owned()).chain(live.note).collect(),
            problem: live.trouble.as_ref().map(|trouble| trouble.problem.clone()),
            remedy: live.trouble.map(|trouble| trouble.remedy),
        }
    }

    /// The block device of the volume is offered: so are its shares. What cannot be is told.
    pub(super) fn offer_shares(&self, name: &str, device: &str) {
        let Ok(volume) = self.exported_record(name) else { return };
        for share in &volume.shares {
            self.offer_share(&volume, share, device);
        }
    }

    /// Whether it is offered.
    pub(super) fn offer_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> bool {
        let name = &volume.name;
        let before = self.live_share(name, share.protocol);
        match self.data().share(volume, share, device) {
            Ok(offered) => {
                if before.trouble.is_some() {
                    self.events().note(Severity::Info, name, format!("shared by {} at {} again", share.protocol.title(), listed(share)));
                }
                if let Some(note) = offered.note.as_ref().filter(|note| before.note.as_ref() != Some(note)) {
                    self.events().note(Severity::Warning, name, note);
                }
                self.set_live_share(name, share.protocol, live_of(offered, device));
                true
            }
            Err(error) => {
                let trouble = Trouble::from(&error);
                // Told once.
                if before.trouble.as_ref() != Some(&trouble) {
                    let message = format!("it is not shared by {}: {}; it is tried again", share.protocol.title(), trouble.problem);
                    self.events().note(Severity::Error, name, message);
                }
                self.set_live_share(name, share.protocol, LiveShare { trouble: Some(trouble), ..LiveShare::default() });
                false
            }
        }
    }

    /// The block device of the volume goes, or gives errors from now on: its shares go before it.
    pub(super) fn withdraw_shares(&self, volume: &VolumeRecord) {
        let Ok(volume) = self.exported_record(&volume.name) else { return };
        for share in &volume.shares {
            if let Err(error) = self.data().unshare(&volume, share.protocol) {
                let message = format!("the {} target did not go completely: {error}", share.protocol.title());
                self.events().note(Severity::Warning, &volume.name, message);
                self.note_left(&volume, share.protocol);
            }
            self.set_live_volume(&volume.name, |live| drop(live.shares.remove(&share.protocol)));
        }
    }

    /// Why the block device of the volume must stay: it is shared.
    pub(super) fn check_unshared(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let shares = self.exported_record(&volume.name).map(|volume| volume.shares).unwrap_or_default();
        let Some(share) = shares.first() else { return Ok(()) };
        let (name, protocol) = (&volume.name, share.protocol);
        let remedy = format!("remove the share first with `hearth share remove {name} --{}`", protocol.name());
        Err(ControlError::Export {
            export: format!("the {} \"{name}\"", self.kind_of(name)),
            problem: format!("it is shared by {}", protocol.title()),
            remedy,
        })
    }

    /// The volume has another size. Initiators learn of it where their protocol can tell them. Gives what came of it, a clause each.
    pub(super) fn refresh_shares(&self, volume: &VolumeRecord) -> Vec<String> {
        let refresh = |share: &ShareRecord| {
            let title = share.protocol.title();
            let clause = match self.data().refresh_share(volume, share.protocol) {
                Ok(news) => format!("{title} {news}"),
                Err(error) => format!("{title} initiators were not informed of the new size: {error}"),
            };
            self.events().note(Severity::Info, &volume.name, &clause);
            clause
        };
        volume.shares.iter().map(refresh).collect()
    }

    /// Takes the shares of a block device away that nobody is logged in to, so that it can be made anew: they come again with it. Gives
    /// whether none is left.
    pub(super) fn withdraw_idle_shares(&self, volume: &VolumeRecord) -> bool {
        let Ok(now) = self.exported_record(&volume.name) else { return false };
        let is_idle = now.shares.iter().all(|share| self.check_nobody_connected(&now, share.protocol).is_ok());
        if is_idle {
            self.withdraw_shares(&now);
        }
        is_idle
    }

    fn check_nobody_connected(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        let name = &volume.name;
        let Some(connected) = self.data().connected(volume, protocol)? else {
            let problem = "the kernel does not tell whether initiators are connected to it";
            return Err(ControlError::share(name, protocol, problem, "log out of it everywhere, then remove it with --force"));
        };
        if connected.is_empty() {
            return Ok(());
        }
        let problem =
            format!("{} connected ({})", if connected.len() == 1 { "an initiator is" } else { "initiators are" }, connected.join(", "));
        Err(ControlError::share(name, protocol, &problem, "log out there first, or disconnect them with --force"))
    }

    /// The record of a volume that is served, with its cache or without.
    fn running_or_bare(&self, name: &str) -> Result<VolumeRecord, ControlError> {
        let record = self.exported_record(name)?;
        if self.volume_attached(name) {
            return Ok(record);
        }
        if !self.is_disk(name) {
            return self.running_volume(name);
        }
        let trouble = self.memory().volumes.get(name).and_then(|live| live.trouble.clone());
        let (reason, remedy) = trouble.map_or_else(
            || ("it is not served now".into(), "see `hearth disk list`, then try again".into()),
            |trouble| (trouble.problem, trouble.remedy),
        );
        Err(ControlError::NotRunning { named: "disk", name: name.into(), reason, remedy })
    }

    fn share_record<'a>(&self, volume: &'a VolumeRecord, protocol: Protocol) -> Result<&'a ShareRecord, ControlError> {
        volume.share(protocol).ok_or_else(|| ControlError::Unknown { named: "share", name: share_name(&volume.name, protocol) })
    }

    /// Changes the shares of a volume durably; gives its record as it is then.
    fn change_shares(&self, name: &str, change: impl FnOnce(&mut Vec<ShareRecord>)) -> Result<VolumeRecord, ControlError> {
        self.change(|state| state.shares_mut(name).map(change))?;
        self.exported_record(name)
    }

    fn set_live_share(&self, name: &str, protocol: Protocol, share: LiveShare) {
        self.set_live_volume(name, |live| drop(live.shares.insert(protocol, share)));
    }
}

/// Why it is not offered.
fn live_trouble(view: &ShareView) -> Option<Trouble> {
    let problem = view.problem.clone().filter(|_| view.device.is_none())?;
    Some(Trouble { problem, remedy: view.remedy.clone().unwrap_or_default() })
}

fn live_of(offered: Offered, device: &str) -> LiveShare {
    LiveShare { device: Some(device.to_owned()), server: Some(offered.server), note: offered.note, ..LiveShare::default() }
}

pub(super) fn share_name(volume: &str, protocol: Protocol) -> String {
    format!("{volume}/{}", protocol.name())
}

fn listed(share: &ShareRecord) -> String {
    share.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// What a person asked for, checked.
fn checked(add: &ShareAdd) -> Result<ShareRecord, ControlError> {
    let protocol = add.protocol;
    let bad = |option, problem: String, remedy: &str| ControlError::BadOption { option, problem, remedy: remedy.into() };
    let addresses = match add.addresses.as_slice() {
        [] => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), protocol.port())],
        some => some.iter().map(|text| address(text, protocol)).collect::<Result<Vec<_>, _>>()?,
    };
    if addresses.len() > ADDRESSES_MAX || add.initiators.len() > INITIATORS_MAX {
        let problem = format!("a share has at most {ADDRESSES_MAX} addresses and {INITIATORS_MAX} initiators");
        return Err(ControlError::BadCombination(problem, "give fewer".into()));
    }
    if let Some(twice) = twice(&addresses) {
        return Err(bad("--address", format!("names {twice} twice"), "give each address once"));
    }
    for initiator in &add.initiators {
        if let Err(problem) = names::check_initiator(protocol, initiator) {
            let example = match protocol {
                Protocol::Iscsi => "give its IQN, for instance iqn.1993-08.org.debian:01:abc (Linux: /etc/iscsi/initiatorname.iscsi)",
                Protocol::NvmeTcp => "give its host NQN (Linux: /etc/nvme/hostnqn)",
            };
            return Err(bad("--initiator", format!("{initiator:?} {problem}"), example));
        }
    }
    if let Some(twice) = twice(&add.initiators) {
        return Err(bad("--initiator", format!("names {twice} twice"), "give each initiator once"));
    }
    if add.any_initiator && !add.initiators.is_empty() {
        let problem = "--any-initiator allows all, --initiator only some".to_owned();
        return Err(ControlError::BadCombination(problem, "give one of them".into()));
    }
    if let Some(open) = addresses.iter().find(|a| !a.ip().is_loopback()).filter(|_| add.initiators.is_empty() && !add.any_initiator) {
        let problem = format!("every machine that reaches {open} could read and write the volume");
        return Err(ControlError::BadCombination(
            problem,
            "name those that may with --initiator, or allow all with --any-initiator".into(),
        ));
    }
    if protocol == Protocol::NvmeTcp && add.chap_file.is_some() {
        return Err(ControlError::BadCombination("--chap is for iSCSI".into(), "restrict NVMe hosts with --initiator".into()));
    }
    if let Some(path) = add.chap_file.as_ref().filter(|path| !path.starts_with('/') || path.contains('\0')) {
        return Err(bad("--chap", format!("{path:?} is not an absolute path"), "give the path of a file on the daemon's machine"));
    }
    Ok(ShareRecord { protocol, addresses, initiators: add.initiators.clone(), chap_file: add.chap_file.clone() })
}

fn address(text: &str, protocol: Protocol) -> Result<SocketAddr, ControlError> {
    let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, protocol.port()));
    let address = bare.or_else(|_| text.parse::<SocketAddr>()).ok().filter(|address| address.port() != 0);
    address.ok_or_else(|| ControlError::BadOption {
        option: "--address",
        problem: format!("has the value {text:?}, which is not IP or IP:PORT"),
        remedy: format!("write for instance 192.0.2.1 or 192.0.2.1:{}", protocol.port()),
    })
}

fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)).map(|(_, value)| value)
}
