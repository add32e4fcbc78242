//! Which disks there are and what could be done with them: what the machine tells, with what hearth knows of its own.

use super::Manager;
use super::pools::{SSD_BYTES_MIN, device};
use api::error::{ControlError, Kind};
use api::human;
use api::{DeviceState, DeviceView};
use datapath::FoundDevice;
use std::collections::BTreeMap;
use types::{BLOCK_BYTES, VOLUME_BYTES_MAX};

/// What stands before the set of a modelled disk.
const MODEL: &str = "model:";

/// What is told of a device that is open and nothing else.
const EXCLUSIVE: &str = "another program has opened it exclusively";

/// Hearth's own places, by path with all links resolved.
#[derive(Default)]
struct Own(BTreeMap<String, (DeviceState, String)>);

impl Manager {
    pub(super) fn device_list(&self) -> Result<Vec<DeviceView>, ControlError> {
        let own = self.own_places();
        let found = self.data().devices()?;
        let mut views: Vec<DeviceView> = found.iter().map(|found| self.view_of_device(found, &own)).collect();
        // A disk with a partition of ours is no more free than that: it is held by this very process.
        let parts: Vec<(String, String)> = views
            .iter()
            .filter(|view| matches!(view.state, DeviceState::Pool | DeviceState::Backing))
            .filter_map(|view| Some((view.parent.clone()?, format!("its partition {} is {}", view.path, view.summary))))
            .collect();
        for view in &mut views {
            let told: Vec<&str> = parts.iter().filter(|(parent, _)| *parent == view.path).map(|(_, told)| told.as_str()).collect();
            if !told.is_empty() {
                // That it is held exclusively is no news: we hold it. That it is mounted is.
                let others = Some(view.summary.as_str()).filter(|told| view.state == DeviceState::InUse && *told != EXCLUSIVE);
                let summary = others.into_iter().chain(told).collect::<Vec<_>>().join("; ");
                view.say(summary);
                (view.state, view.destroys, view.can_be_ssd, view.can_be_backing) = (DeviceState::InUse, None, false, false);
            }
        }
        Ok(views)
    }

    pub(super) fn device_examine(&self, path: &str) -> Result<DeviceView, ControlError> {
        let file = match path.strip_prefix(MODEL) {
            Some(rest) => rest.split_once(':').map_or("", |(_, file)| file),
            None => path,
        };
        if !file.starts_with('/') {
            return Err(ControlError::BadOption {
                option: "the path",
                problem: format!("{path:?} is not absolute"),
                remedy: "start at the root, for instance /dev/sdb or /srv/cache.img, or as model:SET:/FILE".into(),
            });
        }
        let modelled = path.starts_with(MODEL);
        let found = match self.data().look_at(path) {
            Err(ControlError::Unknown { .. }) => return missing(path, file, modelled),
            other => other?,
        };
        let mut view = self.view_of_device(&found, &self.own_places());
        // A file on a disk of ours, or a name that shares bytes with one in another way.
        if !matches!(view.state, DeviceState::Pool | DeviceState::Backing | DeviceState::InUse)
            && let Err(ControlError::Device { problem, .. }) = self.check_overlaps(path, None, None)
        {
            view.say(without_it_is(&problem).to_owned());
            (view.state, view.destroys) = (DeviceState::InUse, None);
            (view.can_be_ssd, view.can_be_backing) = (false, false);
        }
        if modelled {
            view.path = path.to_string();
            (view.can_be_ssd, view.destroys) = (false, None);
        }
        Ok(view)
    }

    /// SSDs of pools, backing devices, and the block devices that volumes are offered as.
    fn own_places(&self) -> Own {
        let (mut places, exports) = {
            let memory = self.memory();
            let pools = memory.state.pools.iter().map(|p| (p.ssd.clone(), (DeviceState::Pool, format!("the SSD of pool {}", p.name))));
            let backing = |name: &str| (DeviceState::Backing, format!("the backing device of volume {name}"));
            let volumes = memory.state.volumes.iter().map(|v| (v.backing.clone(), backing(&v.name)));
            let offered = |name: &str| (DeviceState::InUse, format!("the volume {name} itself, exported by hearth"));
            let exports = memory.volumes.iter().filter_map(|(name, live)| Some((live.block_device()?.1.to_owned(), offered(name))));
            (pools.chain(volumes).collect::<Vec<_>>(), exports.collect::<Vec<_>>())
        };
        places.iter_mut().for_each(|(path, _)| *path = self.data().canonical(path));
        Own(places.into_iter().chain(exports).collect())
    }

    fn view_of_device(&self, found: &FoundDevice, own: &Own) -> DeviceView {
        let size_bytes = found.size_bytes;
        let known_pool = found.pool.and_then(|uuid| self.memory().state.pools.iter().find(|p| p.uuid == uuid).map(|p| p.name.clone()));
        let offered = found.parent.as_ref().and_then(|parent| own.0.get(parent)).filter(|(state, _)| *state == DeviceState::InUse);
        let mut free = true;
        let (state, summary) = if let Some((state, summary)) = own.0.get(&found.path) {
            free = false;
            (*state, summary.clone())
        } else if let Some((_, summary)) = offered {
            free = false;
            (DeviceState::InUse, format!("a partition of {summary}"))
        } else if let Some(user) = &found.in_use {
            free = false;
            (DeviceState::InUse, without_it_is(user))
        } else if let Some(problem) = &found.problem {
            free = false;
            (DeviceState::InUse, format!("cannot be examined: {problem}"))
        } else if let Some(pool) = known_pool {
            free = false;
            (DeviceState::Pool, format!("carries pool {pool}"))
        } else if found.pool.is_some() {
            (DeviceState::Pool, "carries a hearth pool that this daemon does not know".into())
        } else if let Some(signature) = &found.signature {
            (DeviceState::Foreign, format!("has {signature}"))
        } else {
            (DeviceState::Free, "free".into())
        };
        let destroys = match (&found.signature, found.pool) {
            _ if !free => None,
            (None, None) => None,
            (signature, pool) => {
                let known = signature.as_deref().filter(|_| pool.is_none()).unwrap_or("a hearth pool");
                Some(format!("Everything on {} is destroyed: it has {known}, {}.", found.path, human::bytes(size_bytes)))
            }
        };
        let (can_be_ssd, can_be_backing) = (
            free && !found.read_only && size_bytes >= SSD_BYTES_MIN,
            free && found.pool.is_none() && (BLOCK_BYTES..=VOLUME_BYTES_MAX).contains(&size_bytes),
        );
        let mut summary = summary;
        if free && found.read_only {
            summary += ", can only be read";
        } else if free && size_bytes < SSD_BYTES_MIN {
            summary += ", too small for a pool";
        }
        DeviceView {
            path: found.path.clone(),
            stable_path: found.stable_path.clone(),
            kind: found.kind.clone(),
            parent: found.parent.clone(),
            size_bytes,
            model: found.model.clone(),
            rotational: found.rotational,
            read_only: found.read_only,
            state,
            summary: summary.clone(),
            told: summary,
            destroys: destroys.filter(|_| can_be_ssd),
            can_be_ssd,
            can_be_backing,
        }
    }
}

/// What is said of a path where nothing is: an SSD's file can be made, a backing device cannot.
fn missing(path: &str, file: &str, modelled: bool) -> Result<DeviceView, ControlError> {
    if file.starts_with("/dev/") {
        let remedy = "see what there is with `hearth devices`";
        return Err(device(path, "there is no such device".into(), remedy.into(), Kind::NotFound));
    }
    let told = if modelled {
        format!("does not exist: create it first (truncate -s SIZE {file})")
    } else {
        "does not exist; a file of the given size would be created".into()
    };
    Ok(DeviceView {
        path: path.into(),
        stable_path: None,
        kind: "file".into(),
        parent: None,
        size_bytes: 0,
        model: None,
        rotational: None,
        read_only: false,
        state: DeviceState::Free,
        summary: told.clone(),
        told,
        destroys: None,
        can_be_ssd: !modelled,
        can_be_backing: false,
    })
}

/// "it is mounted at /" as a clause that follows the device's name: "mounted at /".
fn without_it_is(clause: &str) -> String {
    clause.strip_prefix("it is ").unwrap_or(clause).to_string()
}
