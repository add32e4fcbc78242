//! Looks at shares, about once a second and from a thread of its own: a target that does not answer
//! keeps nothing else waiting.
//!
//! What a target lacks is put right when some looks in a row have shown the same: while it changes,
//! somebody is at work on it. A look that shows nothing, since the target does not answer, is none.

use super::shares::{LiveShare, share_name};
use super::waiting::WaitingByName;
use super::{Manager, Trouble};
use api::Severity;
use api::names::Named;
use records::state::{ShareRecord, VolumeRecord};
use std::collections::BTreeMap;
use targets::{Look, Protocol};

/// Looks in a row that show the same; and looks after which it is put right although it changes.
const LOOKS: u32 = 3;
const LOOKS_MAX: u32 = 30;
/// As many of the things that it lacks are told.
const TOLD_MAX: usize = 4;

/// What the watcher remembers from look to look.
#[derive(Debug, Default)]
pub struct WatchedShares {
    waiting: WaitingByName,
    lacking: BTreeMap<String, Lacking>,
}

/// Of a target that is not whole.
#[derive(Debug)]
struct Lacking {
    lacks: Vec<String>,
    same: u32,
    all: u32,
}

impl WatchedShares {
    /// Whether what the target lacks is to be put right.
    fn is_lasting(&mut self, name: &str, lacks: &[String]) -> bool {
        let lacking = self.lacking.entry(name.into()).or_insert_with(|| Lacking { lacks: lacks.to_vec(), same: 0, all: 0 });
        if lacking.lacks != lacks {
            (lacking.lacks, lacking.same) = (lacks.to_vec(), 0);
        }
        lacking.same += 1;
        lacking.all += 1;
        lacking.same >= LOOKS || lacking.all >= LOOKS_MAX
    }
}

impl Manager {
    /// Offers again what was not, and puts right what others took away, of volumes that have their
    /// block device.
    pub fn watch_shares(&self, watched: &mut WatchedShares) {
        let (shared, left): (Vec<(VolumeRecord, String)>, _) = {
            let memory = self.memory();
            let device_of = |name: &str| memory.volumes.get(name).and_then(|live| Some(live.block_device()?.1.to_owned()));
            let with_shares = memory.state.exported().into_iter().filter(|v| !v.shares.is_empty());
            (with_shares.filter_map(|v| device_of(&v.name).map(|device| (v, device))).collect(), memory.left_shares.clone())
        };
        let mut missing = Vec::new();
        let mut known = Vec::new();
        for (volume, device) in &shared {
            for share in volume.shares.iter().take_while(|_| !self.is_stopping()) {
                let name = share_name(&volume.name, share.protocol);
                known.push(name.clone());
                if self.live_share(&volume.name, share.protocol).device.is_some() {
                    self.look_at_share(volume, share, device, watched);
                } else {
                    watched.lacking.remove(&name);
                    if watched.waiting.is_due(&name, 0) {
                        self.offer_if_same(volume, share, device, false);
                    }
                    missing.push(name);
                }
            }
        }
        watched.lacking.retain(|name, _| known.contains(name));
        for (volume, protocol) in left.iter().take_while(|_| !self.is_stopping()) {
            let name = format!("{} left", share_name(&volume.name, *protocol));
            if watched.waiting.is_due(&name, 0) {
                self.take_left(volume, *protocol);
            }
            missing.push(name);
        }
        watched.waiting.retain(|name| missing.iter().any(|known| known == name));
    }

    /// Looks at one that was offered.
    fn look_at_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str, watched: &mut WatchedShares) {
        let (name, title) = (share_name(&volume.name, share.protocol), share.protocol.title());
        let live = self.live_share(&volume.name, share.protocol);
        let look = match self.data().look_at_share(volume, share, device) {
            Ok(look) => look,
            Err(error) => {
                let trouble = Trouble::from(&error);
                if live.trouble.as_ref() != Some(&trouble) {
                    let message = format!("{}: it is looked at again, and left as it is until then", trouble.problem);
                    self.events().note(Severity::Warning, &volume.name, message);
                }
                self.change_live_share(&volume.name, share.protocol, |live| (live.trouble, live.connected) = (Some(trouble), None));
                return;
            }
        };
        if live.trouble.is_some() {
            self.events().note(Severity::Info, &volume.name, format!("its {title} target answers again"));
        }
        let Look { lacks, connected } = look;
        let nobody = connected.as_ref().is_some_and(Vec::is_empty);
        self.change_live_share(&volume.name, share.protocol, |live| (live.trouble, live.connected) = (None, connected));
        if lacks.is_empty() {
            watched.lacking.remove(&name);
            if live.note.is_some() && nobody {
                self.offer_if_same(volume, share, device, true);
            }
        } else if watched.is_lasting(&name, &lacks) && self.offer_if_same(volume, share, device, true) {
            watched.lacking.remove(&name);
            let more = lacks.len().saturating_sub(TOLD_MAX);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let lacked = lacks.into_iter().take(TOLD_MAX).collect::<Vec<_>>().join(", ");
            let message = format!("its {title} target was removed or changed by another program ({lacked}{more}): it is set up again");
            self.events().note(Severity::Warning, &volume.name, message);
        }
    }

    /// Offers it, unless somebody is at the volume or has changed it since the look: then they see to
    /// it, or the next look does. `stands`: whether it was offered then.
    fn offer_if_same(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str, stands: bool) -> bool {
        let Ok(_claim) = self.claim(&[(Named::Volume, &volume.name)], "an offer of its shares") else { return false };
        let still = self.exported_record(&volume.name).is_ok_and(|now| now.uuid == volume.uuid && now.share(share.protocol) == Some(share));
        let same = self.memory().volumes.get(&volume.name).and_then(|live| live.block_device().map(|(_, place)| place == device));
        let live = self.live_share(&volume.name, share.protocol);
        still && same == Some(true) && live.device.is_some() == stands && self.offer_share(volume, share, device)
    }

    /// Something may be left of the target of a share that is not offered: it did not answer.
    pub(super) fn note_left(&self, volume: &VolumeRecord, protocol: Protocol) {
        let mut memory = self.memory();
        memory.left_shares.retain(|(left, of)| (left.uuid, *of) != (volume.uuid, protocol));
        memory.left_shares.push((volume.clone(), protocol));
    }

    pub(super) fn may_be_left(&self, volume: &VolumeRecord, protocol: Protocol) -> bool {
        self.memory().left_shares.iter().any(|(left, of)| (left.uuid, *of) == (volume.uuid, protocol))
    }

    /// Takes away what is left of it, unless it is offered again.
    fn take_left(&self, volume: &VolumeRecord, protocol: Protocol) {
        let Ok(_claim) = self.claim(&[(Named::Volume, &volume.name)], "the end of what is left of a share") else { return };
        let is_same = self.exported_record(&volume.name).is_ok_and(|now| now.uuid == volume.uuid);
        let is_offered = is_same && self.live_share(&volume.name, protocol).device.is_some();
        if is_offered || self.data().unshare(volume, protocol).is_ok() {
            self.memory().left_shares.retain(|(left, of)| (left.uuid, *of) != (volume.uuid, protocol));
        }
    }

    pub(super) fn live_share(&self, name: &str, protocol: Protocol) -> LiveShare {
        self.memory().volumes.get(name).and_then(|live| live.shares.get(&protocol).cloned()).unwrap_or_default()
    }

    /// Of one that is still offered.
    fn change_live_share(&self, name: &str, protocol: Protocol, change: impl FnOnce(&mut LiveShare)) {
        let mut memory = self.memory();
        let live = memory.volumes.get_mut(name).and_then(|live| live.shares.get_mut(&protocol));
        if let Some(live) = live.filter(|live| live.device.is_some()) {
            change(live);
        }
    }
}
