//! Devices of the fake world, and what is attached of them.

use super::Inside;
use api::error::{ControlError, Kind};
use datapath::{DeviceFacts, FoundDevice};
use device::Drive;
use records::on_ssd::{PoolCopy, Said};
use records::ssd_content::{SsdContent, VolumeOnSsd};
use records::state::{BackingIdentity, Fact};
use std::collections::BTreeMap;
use types::Mode;
use uuid::Uuid;

#[derive(Clone, Default)]
pub struct Device {
    pub size_bytes: u64,
    pub signature: Option<String>,
    pub in_use: Option<String>,
    /// Empty: it tells nothing about itself.
    pub serial: String,
    /// UUID of what lies on it.
    pub content: Option<String>,
    pub parent: Option<String>,
    pub read_only: bool,
    pub problem: Option<String>,
    /// 0: 512.
    pub sector_bytes: u32,
    /// `None`: a part of a drive, or a file.
    pub drive: Option<Drive>,
    /// It does not discard.
    pub keeps_all: bool,
    /// How much of it was left unused when it was formatted.
    pub spare_percent: u8,
    /// It holds a log, which the next start makes slots; or why it cannot.
    pub old_log: Option<Result<(), String>>,
    /// Pool on it, if it is an SSD.
    pub pool: Option<Uuid>,
    /// Log content by volume number: (version, dirty).
    pub log: BTreeMap<u32, (u64, bool)>,
    /// What it says of its pool, and with which serial.
    pub records: Option<(u64, Vec<u8>)>,
    /// Of its latest start.
    pub session: u64,
    /// The pool was stopped in order.
    pub clean: bool,
    /// The number that the next volume gets, as the superblock has it.
    pub next_volume_id: u32,
    /// What it holds, if it is a backing device.
    pub version: u64,
}

impl Device {
    /// Makes the log slots that it may hold; says so.
    pub(super) fn upgrade(&mut self, path: &str) -> Result<Option<String>, ControlError> {
        let log = self.old_log.clone().transpose();
        let refused =
            |problem| ControlError::Device { path: path.into(), problem, remedy: "ask the older version".into(), kind: Kind::Conflict };
        log.map_err(refused)?;
        Ok(self.old_log.take().map(|_| "its log was upgraded".into()))
    }
}

#[derive(Clone)]
pub struct Attached {
    pub id: u32,
    pub ssd: Option<String>,
    pub backing: String,
    pub mode: Mode,
}

impl Inside {
    /// What an SSD holds: the copy of the state, and what the log has of its volumes.
    pub(super) fn content_of(&mut self, path: &str) -> Result<SsdContent, ControlError> {
        let device = self.device(path)?.clone();
        let copy = device.records.as_ref().map(|(_, content)| PoolCopy::decode(content));
        let dirty = |id: u32| device.log.get(&id).filter(|(_, dirty)| *dirty).map_or(0, |_| 4096);
        let known = copy.iter().flatten().flat_map(|copy| &copy.volumes);
        let volumes = known.map(|volume| VolumeOnSsd {
            id: volume.id,
            uuid: volume.uuid,
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            mode: volume.options.mode,
            may_have_dirty: volume.may_have_dirty,
            dirty_bytes: dirty(volume.id),
            clean_bytes: device.log.get(&volume.id).filter(|(_, dirty)| !*dirty).map_or(0, |_| 4096),
        });
        Ok(SsdContent {
            uuid: device.pool.unwrap_or_default(),
            session: device.session,
            clean: device.clean,
            size_bytes: device.size_bytes,
            log: device
                .old_log
                .clone()
                .map(|log| log.map(|()| "4 KiB carried over".into()).map_err(|why| (why, "ask the older version".into()))),
            spare_percent: device.spare_percent,
            volumes: volumes.collect(),
            said: Said {
                serial: device.records.as_ref().map_or(0, |(serial, _)| *serial),
                copy: copy.clone(),
                next_volume_id: device.next_volume_id,
            },
            ..SsdContent::default()
        })
    }

    pub(super) fn found(&self, path: &str) -> FoundDevice {
        let device = self.devices[path].clone();
        FoundDevice {
            path: path.into(),
            kind: if path.starts_with("/dev/") { "disk" } else { "file" }.into(),
            parent: device.parent,
            size_bytes: device.size_bytes,
            read_only: device.read_only,
            in_use: device.in_use,
            signature: device.signature,
            pool: device.pool,
            problem: device.problem,
            ..FoundDevice::default()
        }
    }

    pub(super) fn facts(&mut self, path: &str) -> Result<DeviceFacts, ControlError> {
        let device = self.device(path)?.clone();
        let fact = |name: &str, value: String| Fact { name: name.into(), value };
        Ok(DeviceFacts {
            size_bytes: device.size_bytes,
            signature: device.signature.or(device.pool.map(|p| format!("the hearth pool {p}"))),
            pool: device.pool,
            in_use: device.in_use,
            read_only: device.read_only,
            is_file: !path.starts_with("/dev/"),
            drive: device.drive.unwrap_or(if path.starts_with("/dev/") { Drive::Part } else { Drive::File }),
            sector_bytes: device.sector_bytes.max(512),
            identity: BackingIdentity {
                size_bytes: device.size_bytes,
                fixed: Some(device.serial)
                    .filter(|serial| !serial.is_empty())
                    .map(|serial| fact("serial number", serial))
                    .into_iter()
                    .collect(),
                content: device.content.iter().map(|uuid| fact("file system", uuid.clone())).collect(),
                stamps: vec![fact("last write", device.version.to_string())],
            },
        })
    }
}
