//! Mapped devices in memory: each has a table and data, and clients that know nothing of hearth.

use super::{Device, Inside, World};
use api::error::{ControlError, Kind};
use api::words::Export;
use datapath::mapped::{Leads, MappedDevices, MappedFacts, Passed, Swapped, check_not_attached, is_left_over};
use records::state::{Attachment, VolumeRecord};

/// A mapped device. A table that begins with "own" leads to its disk; others, to the block device they name.
#[derive(Clone, Default)]
pub struct Mapped {
    pub size_bytes: u64,
    pub table: String,
    /// What its disk holds, also where the origin of a volume does.
    pub version: u64,
    /// What is loaded beside it.
    pub inactive: Option<String>,
    /// Another program has suspended it.
    pub changing: bool,
    /// How often it was made.
    pub instance: u64,
    /// Writes since.
    pub writes: u64,
    /// It is mounted.
    pub is_open: bool,
}

/// What is so of the machine that they are on.
#[derive(Clone, Default)]
pub struct Machine {
    /// How often it has booted.
    pub boots: u64,
    /// It is going down.
    pub ends: bool,
    /// Swap areas, each with the mapped device that it lies on.
    pub swap: Vec<(String, String)>,
    /// What cannot be looked at: "swap", "leads".
    pub blind: Vec<&'static str>,
    /// Nothing can be compared of a cache.
    pub sample_fails: bool,
    /// What is compared of a cache is not what differs.
    pub sample_misses: bool,
    /// Requests to a block device of hearth wait for who serves or ends it; a device above it can be given no other table until then.
    pub under_way: bool,
}

impl Machine {
    fn see(&self, what: &str, name: &str) -> Result<(), ControlError> {
        if self.blind.contains(&what) { Err(refused(name)) } else { Ok(()) }
    }
}

/// Where a volume is offered.
pub(super) fn place(volume: &VolumeRecord, export: &Export) -> String {
    format!("/{export}/{}", volume.name)
}

impl World {
    /// The device that leads to an export.
    pub(super) fn held(&self, volume: &VolumeRecord, export: &Export) -> Option<String> {
        let inside = self.inside();
        let leads = |mapped: &&Mapped| mapped.table == place(volume, export);
        inside.mapped.iter().find(|(_, mapped)| leads(mapped)).map(|(name, _)| format!("it is part of {name}"))
    }

    pub fn add_mapped(&self, name: &str, size_bytes: u64) {
        let mapped = Mapped { size_bytes, table: "own".into(), ..Mapped::default() };
        self.inside().mapped.insert(name.into(), mapped);
    }

    /// Another program gives a device its own table, as LVM does.
    pub fn reload_mapped(&self, name: &str, table: &str) {
        self.inside().mapped.get_mut(name).expect("it is there").table = format!("own {table}");
    }

    /// At that step of what is coming, LVM gives the device its own table again, and its users write that version.
    pub fn refresh_at(&self, step: u64, name: &str, version: u64) {
        let mut inside = self.inside();
        inside.refresh_at = Some((inside.steps + step, name.into(), version));
    }

    /// The volume that a device leads to.
    fn led_to(&self, name: &str) -> Option<String> {
        let table = self.inside().mapped[name].table.clone();
        table.rsplit_once('/').filter(|_| !table.starts_with("own")).map(|(_, volume)| volume.to_string())
    }

    /// Who has the device mounted writes; `false`: an I/O error.
    pub fn write_mapped(&self, name: &str, version: u64) -> bool {
        if let Some(volume) = self.led_to(name)
            && !self.write(&volume, version)
        {
            return false;
        }
        let origins = self.origins(name);
        let mut inside = self.inside();
        let mapped = inside.mapped.get_mut(name).expect("it is there");
        (mapped.version, mapped.writes) = (version, mapped.writes + 1);
        for origin in origins {
            inside.devices.get_mut(&origin).expect("it is there").version = version;
        }
        true
    }

    /// What who has it mounted reads.
    pub fn read_mapped(&self, name: &str) -> Option<u64> {
        match self.led_to(name) {
            Some(volume) => self.read(&volume),
            None => Some(self.inside().mapped[name].version),
        }
    }

    /// A read fills the cache of the volume that serves a device, whoever reads: udev, say.
    pub fn fill_cache(&self, volume: &str) {
        let mut inside = self.inside();
        let Some(attached) = inside.attached.get(volume).cloned() else { return };
        let Some(ssd) = attached.ssd.filter(|_| attached.mode != types::Mode::PassThrough) else { return };
        let version = inside.devices[&attached.backing].version;
        inside.devices.get_mut(&ssd).expect("it is there").log.entry(attached.id).or_insert((version, false));
    }

    fn origins(&self, name: &str) -> Vec<String> {
        let inside = self.inside();
        let is_over = |device: &Device| device.parent.as_deref() == Some(name);
        inside.devices.iter().filter(|(_, device)| is_over(device)).map(|(path, _)| path.clone()).collect()
    }
}

impl Inside {
    /// Loads a table and puts it in force; who is killed in between leaves it loaded.
    fn swap(&mut self, name: &str, table: &str) -> Result<Swapped, ControlError> {
        let loaded = |inside: &mut Inside, table: Option<&str>| {
            inside.mapped.get_mut(name).expect("it is there").inactive = table.map(str::to_string);
        };
        loaded(self, Some(table));
        let swapped = self.step(table);
        if !self.dead {
            loaded(self, None);
        }
        swapped?;
        self.mapped.get_mut(name).expect("it is there").table = table.into();
        Ok(Swapped::default())
    }

    /// LVM gives a device its own table, and its users write.
    pub(super) fn refresh(&mut self, name: &str, version: u64) {
        if let Some(mapped) = self.mapped.get_mut(name) {
            (mapped.table, mapped.version, mapped.writes) = ("own".into(), version, mapped.writes + 1);
        }
        let origins = self.devices.values_mut().filter(|device| device.parent.as_deref() == Some(name));
        origins.for_each(|origin| origin.version = version);
    }
}

fn name_of(volume: &VolumeRecord) -> String {
    volume.attachment.as_ref().map(|attachment| attachment.device.clone()).unwrap_or_default()
}

fn refused(name: &str) -> ControlError {
    let (problem, remedy) = ("another program has changed it just now".into(), "hearth tries again by itself".into());
    ControlError::Device { path: name.into(), problem, remedy, kind: Kind::Conflict }
}

impl MappedDevices for World {
    fn examine(&self, path: &str, _own: &[String], attached: &[(String, Attachment)]) -> Result<MappedFacts, ControlError> {
        let mut inside = self.inside();
        inside.step(path)?;
        let name = path.trim_start_matches("/dev/").replace('/', "-");
        let mapped = inside.mapped.get(&name).ok_or(ControlError::Unknown { named: "device", name: path.into() })?;
        check_not_attached(path, &name, &format!("LVM-{name}"), attached)?;
        Ok(MappedFacts { uuid: format!("LVM-{name}"), name, size_bytes: mapped.size_bytes, sector_bytes: 512 })
    }

    fn leads(&self, volume: &VolumeRecord) -> Result<Leads, ControlError> {
        let mut inside = self.inside();
        inside.machine.see("leads", &name_of(volume))?;
        let origin = inside.devices.get(&volume.backing).and_then(|origin| origin.signature.clone());
        let is_dead = inside.dead;
        let Some(mapped) = inside.mapped.get_mut(&name_of(volume)) else { return Ok(Leads::Nowhere) };
        if let (Some(attachment), false) = (&volume.attachment, is_dead) {
            mapped.inactive.take_if(|inactive| is_left_over(inactive, attachment, origin.as_deref()));
        }
        let mapped = mapped.clone();
        let is_ours = volume.attachment.as_ref().is_some_and(|attachment| attachment.tables.contains(&mapped.table));
        Ok(match () {
            () if mapped.changing || mapped.inactive.is_some() => Leads::Changing,
            () if is_ours && inside.devices.contains_key(&volume.backing) => Leads::Here,
            () => Leads::Past,
        })
    }

    fn origin_path(&self, volume: &str) -> String {
        format!("/dev/mapper/hearth-{volume}-origin")
    }

    fn lay_origin(&self, volume: &VolumeRecord) -> Result<Leads, ControlError> {
        let leads = self.leads(volume)?;
        let mut inside = self.inside();
        inside.step(&volume.backing)?;
        if leads == Leads::Past {
            let mapped = inside.mapped[&name_of(volume)].clone();
            assert!(mapped.table.starts_with("own"), "hearth never lies on itself: {}", mapped.table);
            let origin = Device {
                size_bytes: mapped.size_bytes,
                serial: volume.uuid.to_string(),
                parent: Some(name_of(volume)),
                signature: Some(mapped.table),
                version: mapped.version,
                ..Device::default()
            };
            inside.devices.insert(volume.backing.clone(), origin);
        }
        Ok(leads)
    }

    fn table_to(&self, volume: &VolumeRecord, place: &str) -> Result<String, ControlError> {
        let mut inside = self.inside();
        inside.step(place)?;
        let mapped = inside.mapped.get(&name_of(volume)).ok_or_else(|| refused(&name_of(volume)))?;
        if mapped.size_bytes == volume.size_bytes { Ok(place.to_string()) } else { Err(refused(&name_of(volume))) }
    }

    fn lead_here(&self, volume: &VolumeRecord, table: &str, may_lead_past: bool) -> Result<Swapped, ControlError> {
        let meanwhile = self.inside().at_lead_here.take();
        meanwhile.into_iter().for_each(|act| act());
        let mut inside = self.inside();
        inside.step(table)?;
        let origin = inside.devices[&volume.backing].signature.clone();
        let mapped = inside.mapped.get_mut(&name_of(volume)).ok_or_else(|| refused(&name_of(volume)))?;
        let ours = volume.attachment.as_ref().is_some_and(|attachment| attachment.tables.contains(&mapped.table));
        let is_known = ours || may_lead_past && origin.as_ref() == Some(&mapped.table);
        if mapped.changing || mapped.inactive.is_some() || !is_known {
            return Err(refused(&name_of(volume)));
        }
        inside.swap(&name_of(volume), table)
    }

    fn lead_past(&self, volume: &VolumeRecord) -> Result<Swapped, ControlError> {
        let leads = self.leads(volume)?;
        while leads == Leads::Here && self.inside().machine.under_way {
            std::thread::yield_now();
        }
        let mut inside = self.inside();
        inside.step(&volume.backing)?;
        if inside.busy_tries > 0 {
            inside.busy_tries -= 1;
            return Err(refused(&name_of(volume)));
        }
        if leads == Leads::Here {
            let origin = inside.devices[&volume.backing].signature.clone().unwrap_or_default();
            return inside.swap(&name_of(volume), &origin);
        }
        if leads == Leads::Changing {
            return Err(refused(&name_of(volume)));
        }
        Ok(Swapped::default())
    }

    fn passed(&self, volume: &VolumeRecord) -> Result<Option<Passed>, ControlError> {
        let inside = self.inside();
        let boot = inside.machine.boots.to_string();
        let count = |mapped: &Mapped| Passed { boot, instance: mapped.instance, writes: mapped.writes, is_open: mapped.is_open };
        Ok(inside.mapped.get(&name_of(volume)).map(count))
    }

    fn swap_areas(&self, volume: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        let inside = self.inside();
        inside.machine.see("swap", &name_of(volume))?;
        Ok(inside.machine.swap.iter().filter(|(name, _)| *name == name_of(volume)).map(|(_, area)| area.clone()).collect())
    }

    fn machine_ends(&self) -> bool {
        self.inside().machine.ends
    }

    fn origin_in_use(&self, _volume: &VolumeRecord) -> Result<bool, ControlError> {
        Ok(self.inside().origin_in_use)
    }

    fn remove_origin(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let leads = self.leads(volume)?;
        let mut inside = self.inside();
        inside.step(&volume.backing)?;
        if inside.origin_in_use {
            return Err(refused(&volume.backing));
        }
        assert!(leads != Leads::Here, "what a device lies on stays");
        assert!(!inside.attached.contains_key(&volume.name), "no process has it open");
        inside.devices.remove(&volume.backing);
        Ok(())
    }
}
