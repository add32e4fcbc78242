//! A data path in memory that fails on demand: at the n-th call that touches a device, or by "losing power" there, after which
//! every call fails until a new manager is made over what was durable.
//!
//! Only what is durable survives: formatted SSDs, what the log holds of each volume, what the backing devices hold. One block a
//! volume stands for its data: clients write version numbers.

use api::error::{ControlError, Kind};
use api::memory::MemoryLimit;
use api::stats::{PoolStats, VolumeStats};
use api::words::Export;
use datapath::Piece;
use datapath::figures::{Figures, VolumeFigures};
use datapath::looking::{AddressMap, Cells, Explained};
use datapath::mapped::MappedDevices;
use datapath::{
    Absence, Backings, CheckedPart, Checks, Contents, Counters, DeviceFacts, DeviceUse, Exports, Facts, Formatted, FoundDevice, Growth,
    Inspected, Life, Offer, Pending, PoolStarted, Pools, Records, Sample, StrayedFile, Taps, Volumes, WaitingFor, Waits, Warming,
    Withdrawal,
};
use engine::shard::{BlockFacts, DirtyExtent, Form, Hits, Kept};
use records::on_ssd::{self, Age, PoolCopy, Said};
use records::ssd_content::SsdContent;
use records::state::{BackingIdentity, Fact, PoolRecord, VolumeRecord};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use types::{Mode, SsdIndex};
use uuid::Uuid;

mod device;
mod disks;
mod failing;
mod homecoming;
mod inside;
mod mapped;
mod saving;
mod sharing;

use device::Attached;
pub use device::Device;
use homecoming::{AtOnce, Homecoming};
pub use inside::Inside;
use mapped::place;

/// The world outside the daemon: devices and the state file. Outlives managers.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Inside>>);

/// Parts that every pool has.
pub const CHECK_PARTS: u32 = 5;

impl World {
    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// The machine comes up again: what was only running is gone.
    pub fn reboot(&self) {
        let mut inside = self.inside();
        (inside.dead, inside.fail_at, inside.crash) = (false, None, false);
        inside.running.clear();
        inside.content.clear();
        inside.attached.clear();
        inside.exports.clear();
        inside.sharing.stand.clear();
        inside.disks.served.clear();
        inside.disks.waiting.clear();
    }

    pub fn add_device(&self, path: &str, size_bytes: u64) {
        let device = Device { size_bytes, serial: format!("serial of {path}"), ..Device::default() };
        self.inside().devices.insert(path.into(), device);
    }

    /// A client writes a version; `false` if nothing serves the volume.
    pub fn write(&self, volume: &str, version: u64) -> bool {
        self.inside().write(volume, version)
    }

    /// What a client reads; `None` if nothing serves the volume.
    pub fn read(&self, volume: &str) -> Option<u64> {
        let inside = self.inside();
        let attached = inside.attached.get(volume)?;
        let cached = attached.ssd.as_ref().and_then(|ssd| inside.devices[ssd].log.get(&attached.id));
        Some(cached.map_or(inside.devices[&attached.backing].version, |(version, _)| *version))
    }
}

impl Inside {
    fn cannot_flush(&self, volume: &VolumeRecord) -> Option<String> {
        self.broken.contains(&volume.backing).then(|| format!("{} cannot flush", volume.backing))
    }
}

impl World {
    /// Waits as long as the device hangs.
    fn wait_for(&self, device: &DeviceUse) {
        while self.inside().hanging.contains_key(device) {
            std::thread::yield_now();
        }
    }
}

impl Facts for World {
    fn mapped(&self) -> &dyn MappedDevices {
        self
    }

    fn examine_ssd(&self, path: &str) -> Result<DeviceFacts, ControlError> {
        self.inside().facts(path)
    }

    fn look_into_ssd(&self, path: &str) -> Result<SsdContent, ControlError> {
        self.inside().content_of(path)
    }

    fn examine_backing(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.inside().facts(spec)
    }

    fn memory(&self) -> Option<MemoryLimit> {
        self.inside().memory_bytes.map(|bytes| MemoryLimit { bytes, of: "this test".into() })
    }

    fn devices(&self) -> Result<Vec<FoundDevice>, ControlError> {
        let inside = self.inside();
        Ok(inside.devices.keys().filter(|path| path.starts_with("/dev/")).map(|path| inside.found(path)).collect())
    }

    fn look_at(&self, spec: &str) -> Result<FoundDevice, ControlError> {
        let (inside, path) = (self.inside(), self.canonical(spec));
        let known = inside.devices.contains_key(&path);
        if known { Ok(inside.found(&path)) } else { Err(ControlError::Unknown { named: "device", name: spec.into() }) }
    }

    fn canonical(&self, spec: &str) -> String {
        let file = spec.strip_prefix("model:").and_then(|rest| rest.split_once(':')).map_or(spec, |(_, file)| file);
        file.replace("/dev/disk/by-id/", "/dev/")
    }

    fn overlap(&self, one: &str, other: &str) -> Result<Option<String>, ControlError> {
        Ok((one == other).then(|| format!("{one} and {other} are the same")))
    }

    fn own_volume_below(&self, spec: &str, volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        let on_own = self.inside().on_own.clone();
        let below = on_own.into_iter().find(|(path, _)| spec.starts_with(path.as_str())).map(|(_, volume)| volume);
        Ok(below.filter(|below| volumes.iter().any(|volume| volume.name == *below)).map(|below| (below, "the way".into())))
    }

    fn is_blank(&self, path: &str) -> Result<bool, ControlError> {
        let mut inside = self.inside();
        let device = inside.device(path)?;
        Ok(device.pool.is_none() && device.signature.is_none() && device.records.is_none() && device.log.is_empty() && device.version == 0)
    }

    fn find_ssd(&self, uuid: Uuid) -> Option<String> {
        self.inside().devices.iter().find(|(_, device)| device.pool == Some(uuid)).map(|(path, _)| path.clone())
    }

    fn find_backing(&self, spec: &str, _wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)> {
        let mut inside = self.inside();
        let others: Vec<String> = inside.devices.keys().filter(|path| *path != spec).cloned().collect();
        others.into_iter().filter_map(|path| inside.facts(&path).ok().map(|facts| (path, facts))).collect()
    }

    fn is_silent(&self, spec: &str, _patience: Duration) -> bool {
        self.inside().silent_devices.contains(spec)
    }

    fn device_mark(&self, _spec: &str) -> u64 {
        let inside = self.inside();
        let mut mark = DefaultHasher::new();
        inside.devices.iter().for_each(|(path, device)| (path, &device.serial, &device.in_use).hash(&mut mark));
        mark.finish()
    }
}

impl Pools for World {
    fn make_file(&self, path: &str, size_bytes: u64) -> Result<(), ControlError> {
        self.inside().step(path)?;
        self.add_device(path, size_bytes);
        Ok(())
    }

    fn remove_file(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&pool.ssd)?;
        inside.devices.remove(&pool.ssd);
        Ok(())
    }

    fn format(&self, pool: &PoolRecord) -> Result<Formatted, ControlError> {
        let mut inside = self.inside();
        inside.device(&pool.ssd)?;
        inside.may_format(pool)?;
        let device = inside.devices.get_mut(&pool.ssd).expect("just looked at");
        (device.pool, device.log) = (Some(pool.uuid), BTreeMap::new());
        (device.records, device.next_volume_id, device.session) = (None, 1, 0);
        (device.spare_percent, device.old_log) = (pool.spare_percent(), None);
        let is_kept = device.keeps_all && device.spare_percent > 0;
        Ok(Formatted { not_discarded: is_kept.then(|| "it does not support discards".into()) })
    }

    fn may_resize(&self, pool: &PoolRecord) -> bool {
        let mut inside = self.inside();
        inside.disks.keeps_cache && inside.device(&pool.ssd).is_ok_and(|device| device.pool == Some(pool.uuid))
    }

    fn resize(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        let has = inside.device(&pool.ssd)?.pool;
        assert!(inside.disks.keeps_cache && has == Some(pool.uuid), "it was asked before whether that can be");
        inside.may_format(pool)
    }

    fn wipe(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&pool.ssd)?;
        if let Some(device) = inside.devices.get_mut(&pool.ssd).filter(|d| d.pool == Some(pool.uuid)) {
            // A file is emptied.
            (device.pool, device.records, device.version) = (None, None, 0);
            device.log.clear();
        }
        Ok(())
    }

    fn has_shards(&self, pool: &str) -> bool {
        self.inside().running.contains_key(pool)
    }

    fn lost_ssd(&self, pool: &str) -> Option<SsdIndex> {
        let inside = self.inside();
        (inside.running.contains_key(pool) && inside.lost.contains(pool)).then_some(SsdIndex::FIRST)
    }

    fn start_pool(&self, pool: &PoolRecord, known: &[VolumeRecord]) -> Result<PoolStarted, ControlError> {
        let is_mistaken = self.inside().mistaken.contains(&pool.name);
        assert!(!is_mistaken, "{} slots are more than a shard can have", pool.name);
        let mut inside = self.inside();
        let device = inside.device(&pool.ssd)?;
        if device.pool != Some(pool.uuid) {
            return Err(ControlError::Device {
                path: pool.ssd.clone(),
                problem: "it does not carry this pool".into(),
                remedy: "bring the right SSD".into(),
                kind: Kind::Conflict,
            });
        }
        let said = Said {
            serial: device.records.as_ref().map_or(0, |(serial, _)| *serial),
            copy: device.records.as_ref().map(|(_, content)| PoolCopy::decode(content)),
            next_volume_id: device.next_volume_id,
        };
        let warnings = match on_ssd::age(pool, known, &said) {
            Age::Newest => Vec::new(),
            Age::OlderAndGood(why) => vec![why],
            Age::Older(why) => return Err(ControlError::OlderState { path: pool.ssd.clone(), why }),
        };
        let upgraded = device.upgrade(&pool.ssd)?;
        device.next_volume_id = device.next_volume_id.max(pool.next_volume_id);
        (device.session, device.clean) = (pool.session + 1, false);
        let (serial, next_volume_id) = (said.serial, device.next_volume_id);
        device.log.retain(|id, _| known.iter().any(|volume| volume.id == *id));
        let size_bytes = pool.size_bytes.unwrap_or(u64::MAX).min(device.size_bytes);
        let dirty_bytes = device.log.iter().filter(|(_, (_, dirty))| *dirty).map(|(id, _)| (*id, 4096)).collect();
        inside.running.insert(pool.name.clone(), pool.uuid);
        inside.content.insert(pool.name.clone(), pool.content);
        inside.ram_bytes.insert(pool.name.clone(), pool.ram_bytes);
        let damaged = inside.damaged.clone();
        Ok(PoolStarted {
            session: pool.session + 1,
            size_bytes,
            upgraded,
            dirty_bytes,
            damaged,
            serial,
            next_volume_id,
            warnings,
            ..PoolStarted::default()
        })
    }

    fn stop_pool(&self, pool: &str, clean: bool) -> Result<(), ControlError> {
        let ssd = DeviceUse::Ssd { pool: pool.into() };
        self.wait_for(&ssd);
        let mut inside = self.inside();
        inside.step(pool)?;
        if inside.given_up.contains(&ssd) {
            return Err(ControlError::DataPath("the pool was given up".into(), String::new()));
        }
        let uuid = inside.running.remove(pool);
        // As with packed blocks: the log is sealed, and there is no checkpoint.
        inside.devices.values_mut().filter(|device| device.pool == uuid).for_each(|device| device.clean &= clean);
        inside.content.remove(pool);
        Ok(())
    }

    fn ssd_failed(&self, _pool: &str, _life: Life, _ssd: SsdIndex) {}

    fn degraded_recorded(&self, _pool: &str, _life: Life) {}

    fn going_home(&self, pool: &str, _life: Life) {
        self.inside().going_home.push(pool.into());
    }

    fn ssd_forgotten(&self, _pool: &str, _life: Life, _volume: &str) {}

    fn past_recorded(&self, _pool: &str, _life: Life, token: u64) {
        self.inside().past_recorded.push(token);
    }

    fn ssd_strayed(&self, pool: &str) -> Option<StrayedFile> {
        let inside = self.inside();
        inside.strayed.get(pool).filter(|_| inside.running.contains_key(pool)).cloned()
    }
}

impl Records for World {
    fn write_records(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        let mut inside = self.inside();
        let device = inside.device(&pool.ssd)?;
        assert!(device.records.as_ref().is_none_or(|(serial, _)| *serial < pool.serial), "a copy is newer than the one before");
        device.records = Some((pool.serial, content.to_vec()));
        Ok(())
    }

    fn write_records_at_rest(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&pool.name)?;
        drop(inside);
        self.write_records(pool, content)
    }
}

impl Contents for World {
    fn set_content(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&pool.name)?;
        if let Some(content) = inside.content.get_mut(&pool.name) {
            *content = pool.content;
        }
        Ok(())
    }
}

impl Checks for World {
    fn check_part(&self, pool: &PoolRecord, part: u32, stop: &AtomicBool) -> Result<CheckedPart, ControlError> {
        assert!(self.inside().running.contains_key(&pool.name), "only running pools are checked in parts");
        self.inside().step(&pool.ssd)?;
        while self.inside().slow {
            if stop.load(Ordering::Relaxed) {
                return Err(ControlError::Stopped);
            }
            std::thread::yield_now();
        }
        let mut inside = self.inside();
        inside.checked.push(part);
        let mut found = CheckedPart { parts: CHECK_PARTS, blocks: 1, ..CheckedPart::default() };
        match inside.bad_parts.get(&part) {
            Some(true) => (found.dirty_bad, found.dirty_bad_at) = (1, vec![("v".into(), 4096 * u64::from(part))]),
            Some(false) => found.clean_bad = 1,
            None => {}
        }
        // It stops before the next part once it is to be slow.
        inside.slow = inside.slow_from == Some(part + 1);
        Ok(found)
    }

    fn check_at_rest(&self, pool: &PoolRecord, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Inspected, ControlError> {
        self.inside().step(&pool.ssd)?;
        let mut goes_on = progress(0, 100);
        while goes_on && self.inside().slow {
            goes_on = progress(50, 100);
        }
        let problems = self.inside().problems.clone();
        Ok(Inspected { problems_count: problems.len() as u64, problems })
    }
}

impl Volumes for World {
    /// A volume is one block here.
    fn void_past(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        assert!(!inside.attached.contains_key(&volume.name), "before anything of it is destaged");
        inside.devices.values_mut().for_each(|device| device.log.retain(|id, _| *id != volume.id));
        Ok(())
    }

    fn backing_failed(&self, volume: &str) -> bool {
        self.inside().attached.contains_key(volume)
    }

    fn attach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&volume.backing)?;
        let uuid = inside.running.get(&volume.pool).copied().expect("volumes are attached to running pools only");
        let ssd = inside.devices.iter().find(|(_, d)| d.pool == Some(uuid)).map(|(path, _)| path.clone());
        let attached = Attached { id: volume.id, ssd, backing: volume.backing.clone(), mode: volume.options.mode };
        inside.attached.insert(volume.name.clone(), attached);
        Ok(())
    }

    fn attach_bare(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&volume.backing)?;
        let attached = Attached { id: volume.id, ssd: None, backing: volume.backing.clone(), mode: volume.options.mode };
        inside.attached.insert(volume.name.clone(), attached);
        Ok(())
    }

    fn detach(&self, volume: &VolumeRecord, forget: bool) -> Result<(), ControlError> {
        let backing = DeviceUse::Backing { volume: volume.name.clone(), pool: volume.pool.clone() };
        if self.inside().impatient && self.inside().hanging.contains_key(&backing) {
            return Err(ControlError::DataPath("requests are still in flight".into(), "look at the backing device".into()));
        }
        self.wait_for(&backing);
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        let attached = inside.attached.remove(&volume.name);
        inside.disks.served.remove(&volume.name);
        if let Some(ssd) = attached.and_then(|a| a.ssd).filter(|_| forget) {
            inside.devices.get_mut(&ssd).expect("it is there").log.remove(&volume.id);
        }
        Ok(())
    }

    fn forget(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        let uuid = inside.running.get(&volume.pool).copied();
        for device in inside.devices.values_mut().filter(|d| d.pool.is_some() && d.pool == uuid) {
            device.log.remove(&volume.id);
        }
        Ok(())
    }

    fn sample(&self, volume: &VolumeRecord) -> Result<Sample, ControlError> {
        let mut inside = self.inside();
        let home = inside.device(&volume.backing)?.version;
        if inside.machine.sample_fails {
            return Err(ControlError::DataPath("a block cannot be read".into(), "check the backing device".into()));
        }
        assert!(!inside.attached.contains_key(&volume.name), "sampled before it is attached");
        let uuid = inside.running[&volume.pool];
        let cached = inside.devices.values().find(|d| d.pool == Some(uuid)).and_then(|d| d.log.get(&volume.id).copied());
        let clean = cached.filter(|(_, dirty)| !dirty);
        let different = u64::from(!inside.machine.sample_misses && clean.is_some_and(|(version, _)| version != home));
        Ok(Sample { compared: u64::from(clean.is_some()), different })
    }

    fn drop_clean(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        if let Some(ssd) = inside.attached[&volume.name].ssd.clone() {
            inside.devices.get_mut(&ssd).expect("it is there").log.retain(|id, (_, dirty)| *id != volume.id || *dirty);
        }
        Ok(())
    }

    fn set_options(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        if let Some(attached) = inside.attached.get_mut(&volume.name) {
            attached.mode = volume.options.mode;
        }
        drop(inside);
        let stays = volume.options.mode == Mode::WriteBack;
        if stays { Ok(Box::new(AtOnce)) } else { self.destage(volume) }
    }

    fn destage(&self, volume: &VolumeRecord) -> Result<Box<dyn Pending>, ControlError> {
        self.inside().step(&volume.name)?;
        Ok(Box::new(Homecoming { world: self.clone(), volume: volume.clone(), looks: 0, cancelled: false }))
    }
}

impl Backings for World {
    fn release(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        inside.attached.remove(&volume.name);
        Ok(inside.cannot_flush(volume))
    }

    fn reattach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.device(&volume.backing)?;
        let lost = inside.lost_writes;
        let attached = inside.attached.get_mut(&volume.name).expect("only attached volumes are reattached");
        if lost {
            return Err(ControlError::DataPath("a flush failed".into(), "start afresh".into()));
        }
        attached.backing = volume.backing.clone();
        Ok(())
    }

    fn backing_strayed(&self, volume: &str) -> Option<StrayedFile> {
        let inside = self.inside();
        inside.strayed.get(volume).filter(|_| inside.attached.contains_key(volume)).cloned()
    }

    fn backing_gone(&self, volume: &str) -> bool {
        let inside = self.inside();
        inside.attached.get(volume).is_some_and(|attached| !inside.devices.contains_key(&attached.backing))
    }

    fn stamps(&self, volume: &VolumeRecord) -> Result<Vec<Fact>, ControlError> {
        let inside = self.inside();
        let device = inside.attached.get(&volume.name).and_then(|attached| inside.devices.get(&attached.backing));
        let version = device.ok_or(ControlError::Unknown { named: "device", name: volume.backing.clone() })?.version;
        Ok(vec![Fact { name: "last write".into(), value: version.to_string() }])
    }

    fn flush_backing(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.inside().step(&volume.backing)
    }
}

impl Growth for World {
    fn backing_bytes(&self, volume: &str) -> Option<u64> {
        let inside = self.inside();
        Some(inside.devices.get(&inside.attached.get(volume)?.backing)?.size_bytes)
    }

    fn grow(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        inside.served_bytes.insert(volume.name.clone(), volume.size_bytes);
        let warning = inside.disks.keeps_size.then(|| "the block device keeps its size".to_owned());
        Ok(warning.into_iter().collect())
    }
}

impl Exports for World {
    fn end_kept(&self, volume: &VolumeRecord) {
        self.inside().nobody_waits(&volume.name);
    }

    fn export(&self, volume: &VolumeRecord, export: &Export) -> Result<Offer, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        assert!(inside.attached.contains_key(&volume.name), "only attached volumes are exported");
        if inside.no_export == Some(*export) {
            return Err(ControlError::DataPath("its address is taken".into(), "free it".into()));
        }
        let key = (volume.name.clone(), export.to_string());
        inside.disks.waiting.remove(&key);
        inside.exports.insert(key);
        inside.machine.under_way &= !export.is_device();
        Ok(Offer { place: place(volume, export), ..Offer::default() })
    }

    fn unexport(&self, volume: &VolumeRecord, export: &Export, how: Withdrawal) -> Result<Option<String>, ControlError> {
        let backing = DeviceUse::Backing { volume: volume.name.clone(), pool: volume.pool.clone() };
        let mut inside = self.inside();
        if how == Withdrawal::IfUnused && export.is_device() && inside.impatient && inside.hanging.contains_key(&backing) {
            return Err(ControlError::DataPath("detaching the loop device took too long".into(), String::new()));
        }
        assert!(how != Withdrawal::DaemonEnds || inside.ending, "only a daemon that ends leaves anything to the next one");
        inside.step(&volume.name)?;
        let alone = !export.is_device() || inside.sharing.is_alone(&volume.name);
        assert!(alone || how == Withdrawal::PoolRestarts || inside.outlives, "shares go before the block device");
        inside.withdrawn(volume, export, how == Withdrawal::PoolRestarts);
        Ok(inside.cannot_flush(volume).filter(|_| export.is_device()))
    }

    fn stable_name(&self, volume: &str) -> Option<Result<String, String>> {
        let meanwhile = self.inside().at_name_look.take();
        meanwhile.into_iter().for_each(|act| act());
        self.inside().stable_names.get(volume).cloned()
    }

    fn export_in_use(&self, volume: &VolumeRecord, export: &Export) -> Option<String> {
        self.held(volume, export)
    }

    fn outlives(&self, _volume: &VolumeRecord, export: &Export, absence: Absence) -> bool {
        match absence {
            Absence::DaemonStops => export.is_device() && self.inside().outlives,
            Absence::PoolRestarts => self.inside().disks.can_wait,
        }
    }

    fn finish(&self) {}
}

impl Waits for World {
    fn end_by(&self, _at: Instant) {
        self.inside().ending = true;
    }

    fn waiting_for(&self) -> Vec<WaitingFor> {
        let wait = |(by, since): (&DeviceUse, &Instant)| WaitingFor {
            device: "/dev/hung".into(),
            by: by.clone(),
            requests: 3,
            oldest: since.elapsed(),
            silent: since.elapsed(),
        };
        self.inside().hanging.iter().map(wait).collect()
    }

    fn answers(&self, volume: &VolumeRecord, _patience: Duration) -> Result<(), ControlError> {
        let backing = DeviceUse::Backing { volume: volume.name.clone(), pool: volume.pool.clone() };
        let hangs = self.inside().hanging.contains_key(&backing);
        let silent = || {
            let (path, problem, remedy) = (volume.backing.clone(), "it has not answered".into(), "check the device".into());
            ControlError::Device { path, problem, remedy, kind: Kind::Failed }
        };
        if hangs { Err(silent()) } else { Ok(()) }
    }

    fn give_up(&self, device: &DeviceUse) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.given_up.push(device.clone());
        if !inside.dead_for_good {
            inside.hanging.remove(device);
        }
        Ok(())
    }
}

impl Taps for World {}

impl Warming for World {
    fn warm(&self, volume: &VolumeRecord, pieces: &[Piece]) -> (usize, Result<(), ControlError>) {
        let mut inside = self.inside();
        for (nth, piece) in pieces.iter().enumerate() {
            if let Err(error) = inside.device(&volume.backing) {
                return (nth, Err(error));
            }
            inside.warmed.push(*piece);
        }
        (pieces.len(), Ok(()))
    }
}

impl Counters for World {
    fn volume_stats(&self, volume: &str) -> VolumeStats {
        let inside = self.inside();
        let Some(attached) = inside.attached.get(volume) else { return VolumeStats::default() };
        let cached = attached.ssd.as_ref().and_then(|ssd| inside.devices[ssd].log.get(&attached.id));
        let dirty_bytes = if cached.is_some_and(|(_, dirty)| *dirty) { 4096 } else { 0 };
        VolumeStats {
            dirty_bytes: attached.ssd.is_some().then_some(dirty_bytes),
            cached_bytes: if cached.is_some() { 4096 } else { 0 },
            ..VolumeStats::default()
        }
    }

    fn pool_stats(&self, _pool: &str) -> PoolStats {
        PoolStats::default()
    }

    fn dirty_bytes(&self, volume: &str) -> Result<u64, ControlError> {
        if self.inside().silent {
            return Err(ControlError::DataPath("a reactor did not answer within 60 s".into(), String::new()));
        }
        Ok(self.volume_stats(volume).dirty_bytes.unwrap_or(0))
    }

    fn figures(&self) -> Figures {
        let names: Vec<String> = self.inside().attached.keys().cloned().collect();
        let figures = |name: String| {
            let refused = self.inside().refused.get(&name).cloned();
            (name.clone(), VolumeFigures { stats: self.volume_stats(&name), refused, ..VolumeFigures::default() })
        };
        Figures { volumes: names.into_iter().map(figures).collect(), ..Figures::default() }
    }

    fn explain(&self, volume: &str, first_block: u64, _blocks: u64) -> Result<Explained, ControlError> {
        let inside = self.inside();
        let unknown = || ControlError::Unknown { named: "volume", name: volume.into() };
        let Attached { id, ssd, .. } = inside.attached.get(volume).ok_or_else(unknown)?;
        let Some(ssd) = ssd else { return Ok(Explained::default()) };
        // The one block that stands for all of them is the first.
        let cached = inside.devices[ssd].log.get(id).filter(|_| first_block == 0);
        let fact = |(_, dirty): &(u64, bool)| BlockFacts {
            block: 0,
            in_ram: false,
            on_ssd: Some(Kept { form: Form::Plain, dirty: *dirty, hits: Hits::Never }),
        };
        let dirty = cached.filter(|(_, dirty)| *dirty).map(|_| DirtyExtent { first_block: 0, for_ns: None });
        let (blocks, dirty) = (cached.map(fact).into_iter().collect(), dirty.into_iter().collect());
        Ok(Explained { has_cache: true, blocks, dirty, remembered_ns: 5_000_000_000, ..Explained::default() })
    }

    fn address_map(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError> {
        let mut map = AddressMap::empty(cells.count);
        let explained = self.explain(volume, cells.first_block, cells.blocks())?;
        map.cached_blocks[0] = explained.blocks.len() as u64;
        map.dirty_blocks[0] = explained.dirty.len() as u64;
        Ok(map)
    }
}
