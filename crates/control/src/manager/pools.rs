//! Pools: create and destroy.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | create | after a crash here, the start |
//! |---|---|
//! | 1. save the pool as `creating`, with its UUID | finds the SSD without that UUID: forgets the pool, removes the file of step 2 |
//! | 2. make the file, if there is none | the same |
//! | 3. format the SSD | starts it, and goes on with 4 (or, if the superblock is half written, as after 1) |
//! | 4. start it, save it as `ready` | starts it |
//!
//! | destroy | after a crash here, the start |
//! |---|---|
//! | 1. save the pool as `destroying`, its volumes as `dropping` | goes on with 2 |
//! | 2. wipe the superblock | finds no superblock of the pool, goes on with 3 |
//! | 3. save without pool and volumes | – |
//!
//! | set | after a crash here, the start |
//! |---|---|
//! | 1. save the new options, then tell the shards | runs with them |

use super::claims::WholePool;
use super::guard::guarded;
use super::work::is_silence;
use super::{LivePool, Manager, Trouble};
use api::error::{ControlError, Kind};
use api::human;
use api::memory;
use api::names::{self, Named};
use api::options::{self, SIZE_BYTES_MAX};
use api::{Health, PoolCreate, PoolSet, PoolView, Severity};
use datapath::{DeviceFacts, DeviceUse, Life, Withdrawal};
use device::Drive;
use format::layout::SSD_BYTES_MAX;
use records::recognise::{Recognised, recognise};
use records::state::{Former, OnBlankSsd, PoolPhase, PoolRecord, Spare, VolumePhase, VolumeRecord};
use types::Content;
use uuid::Uuid;

/// Smallest RAM tier, if there is one: a block for each shard, and some more to make it worth its name.
pub const RAM_BYTES_MIN: u64 = 4 << 20;
/// Smallest part of an SSD worth a pool: superblock, checkpoint and a few segments for each shard.
pub const SSD_BYTES_MIN: u64 = 64 << 20;

impl Manager {
    pub(super) fn pool_create(&self, create: &PoolCreate) -> Result<PoolView, ControlError> {
        names::check(Named::Pool, &create.name)?;
        check_sizes(create)?;
        self.check_memory(&create.name, create.ram_bytes.unwrap_or(memory::RAM_BYTES_DEFAULT))?;
        let content = create.content.as_deref().map(options::content).transpose()?;
        let content = content.unwrap_or_default();
        create.spare_percent.map(options::spare_percent).transpose()?;
        let _claim = self.claim(&[(Named::Pool, &create.name)], "its creation")?;
        if self.memory().state.pool(&create.name).is_some() {
            return Err(ControlError::Taken { named: "pool", name: create.name.clone() });
        }
        let file_made = self.check_ssd(create)?;
        self.check_index(create, content)?;
        let record = PoolRecord {
            name: create.name.clone(),
            uuid: Uuid::new_v4(),
            ssd: create.ssd.clone(),
            size_bytes: create.size_bytes,
            ram_bytes: create.ram_bytes.unwrap_or(memory::RAM_BYTES_DEFAULT),
            content,
            phase: PoolPhase::Creating,
            session: 0,
            degraded: None,
            next_volume_id: 1,
            file_made,
            disk_room: None,
            serial: 0,
            on_blank_ssd: create.on_blank_ssd.as_deref().map(options::on_blank_ssd).transpose()?.unwrap_or_default(),
            layout: Former,
            spare: Some(self.spare_of(create, None)),
            ssd_identity: Vec::new(),
        };
        self.change(|state| state.pools.push(record.clone()))?;
        self.set_live_pool(&record.name, |live| live.health = Health::Starting);
        if let Err(error) = self.make_pool(&record) {
            self.undo_create(&record);
            return Err(error);
        }
        self.events().note(Severity::Info, &record.name, format!("pool created on {}", record.ssd));
        self.warn_of_openers(&record.name, &record.ssd);
        self.pool_view(&record.name)
    }

    /// Steps 2 to 4.
    fn make_pool(&self, record: &PoolRecord) -> Result<(), ControlError> {
        if record.file_made {
            self.data().make_file(&record.ssd, record.size_bytes.unwrap_or(SSD_BYTES_MIN))?;
        }
        let formatted = guarded("the formatting of its SSD", || self.data().format(record))?;
        if formatted.not_discarded.is_some() {
            let spare = record.clone().formatted(formatted.not_discarded).spare;
            self.change(|state| {
                if let Some(pool) = state.pool_mut(&record.name) {
                    pool.spare = spare;
                }
            })?;
        }
        self.run_pool(record, &[])
    }

    /// How much of the SSD a pool is to leave unused: as asked for, now or when its SSD `before` was formatted, else by the kind of drive.
    pub(super) fn spare_of(&self, create: &PoolCreate, before: Option<&Spare>) -> Spare {
        let asked_percent = create.spare_percent.or_else(|| before?.asked_percent());
        let drive = match self.data().examine_ssd(&create.ssd) {
            Ok(facts) => drive_for(&facts, create.size_bytes),
            // A file that is still to be made.
            Err(ControlError::Unknown { .. }) => Drive::File,
            // The pool's own file, which its shards keep locked.
            Err(_) => before.map_or(Drive::Part, |spare| spare.drive),
        };
        Spare::chosen(asked_percent, drive)
    }

    /// Starts the pool's shards and notes how it went.
    pub(super) fn run_pool(&self, record: &PoolRecord, known: &[VolumeRecord]) -> Result<(), ControlError> {
        let ram_bytes = self.ram_within_limit(record);
        let with_ram = PoolRecord { ram_bytes: ram_bytes.unwrap_or(record.ram_bytes), ..record.clone() };
        let started = guarded("the start of the pool", || self.data().start_pool(&with_ram, known))?;
        // Who has it open is told what it is called, and nothing else. A file is known by its place.
        let identity = self.data().examine_ssd(&record.ssd).ok().map(|facts| facts.identity.fixed);
        let saved = self.change(|state| {
            if let Some(pool) = state.pool_mut(&record.name) {
                (pool.session, pool.phase) = (started.session, PoolPhase::Ready);
                pool.ssd.clone_from(&record.ssd);
                if let Some(identity) = identity {
                    pool.ssd_identity = identity;
                }
                // The SSD may have been used with a newer state that knew nothing more of it.
                (pool.serial, pool.next_volume_id) = (pool.serial.max(started.serial), pool.next_volume_id.max(started.next_volume_id));
                // What has come since the start is of this life.
                pool.degraded = pool.degraded.take().filter(|now| Some(now) != record.degraded.as_ref());
            }
        });
        if let Err(error) = saved {
            self.stop_quietly(&record.name);
            return Err(error);
        }
        if started.has_lost_writes {
            let message = "its SSD has lost writes that were acknowledged and not flushed: users of its volumes get errors";
            self.events().note(Severity::Error, &record.name, message.to_string());
        }
        self.set_live_pool(&record.name, |live| {
            *live = LivePool {
                recovery: started.recovery,
                size_bytes: started.size_bytes,
                ram_bytes,
                damaged: started.damaged,
                dirty_bytes: started.dirty_bytes,
                ..LivePool::new(Health::Running)
            };
        });
        if let Some(upgraded) = started.upgraded {
            self.events().note(Severity::Info, &record.name, upgraded);
        }
        started.warnings.into_iter().for_each(|warning| self.events().note(Severity::Warning, &record.name, warning));
        self.write_records_or_tell(&record.name);
        if let Some(ssd) = self.data().lost_ssd(&record.name) {
            // The word may have come before all this, and was written over.
            self.ssd_failed(&record.name, Life { uuid: record.uuid, session: started.session }, ssd, false);
        }
        Ok(())
    }

    /// Takes back what a pool that was not made whole has on its SSD: the file that was made for it, or its mark. What has the file's name by
    /// now and is another stays, and that is told.
    pub(super) fn undo_ssd(&self, record: &PoolRecord) -> Result<(), ControlError> {
        if !record.file_made {
            return self.data().wipe(record);
        }
        match self.data().remove_file(record) {
            Err(error) if error.kind() == Kind::Conflict => {
                self.events().note(Severity::Warning, &record.name, error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn undo_create(&self, record: &PoolRecord) {
        self.stop_quietly(&record.name);
        let undo = || -> Result<(), ControlError> {
            self.undo_ssd(record)?;
            self.change(|state| state.pools.retain(|p| p.name != record.name))
        };
        match undo() {
            Ok(()) => {
                self.memory().pools.remove(&record.name);
            }
            Err(error) => {
                self.set_live_pool(&record.name, |live| {
                    live.health = Health::Failed;
                    live.trouble = Some(Trouble {
                        problem: format!("its creation failed and could not be undone: {error}"),
                        remedy: format!("remove it with `hearth pool destroy {} --force`", record.name),
                    });
                });
            }
        }
    }

    pub(super) fn stop_quietly(&self, pool: &str) {
        if let Err(error) = self.data().stop_pool(pool, false) {
            self.events().note(Severity::Warning, pool, format!("the pool did not stop: {error}"));
        }
    }

    pub(super) fn pool_set(&self, name: &str, set: &PoolSet) -> Result<PoolView, ControlError> {
        if set.content.is_none() && set.on_blank_ssd.is_none() {
            let remedy = "give at least one, for instance --content auto".to_string();
            return Err(ControlError::BadCombination("no option was given".into(), remedy));
        }
        let content = set.content.as_deref().map(options::content).transpose()?;
        let on_blank_ssd = set.on_blank_ssd.as_deref().map(options::on_blank_ssd).transpose()?;
        let _claim = self.claim(&[(Named::Pool, name)], "a change of its options")?;
        let before = self.pool_record(name)?;
        let size_bytes = self.memory().pools.get(name).map_or(0, |live| live.size_bytes);
        if let Some(content) = content.filter(|content| before.content == Content::Off && *content != Content::Off) {
            self.check_index_fits(name, size_bytes, before.ram_bytes, content).map_err(|(problem, _)| ControlError::BadOption {
                option: "--content",
                problem: format!("cannot be {}: {problem}", content.name()),
                remedy: "leave it off, or give the machine more memory".into(),
            })?;
        }
        let put = |content: Option<Content>, on_blank_ssd: Option<OnBlankSsd>| {
            self.change(|state| {
                let pool = state.pool_mut(name)?;
                pool.content = content.unwrap_or(pool.content);
                pool.on_blank_ssd = on_blank_ssd.unwrap_or(pool.on_blank_ssd);
                Some(pool.clone())
            })
        };
        let record = put(content, on_blank_ssd)?.ok_or(ControlError::Unknown { named: "pool", name: name.into() })?;
        // A pool that does not run learns it at its next start.
        if content.is_some()
            && let Err(error) = self.data().set_content(&record)
        {
            put(Some(before.content), Some(before.on_blank_ssd))?;
            return Err(error);
        }
        let changes = [
            ("content", record.content.name(), before.content.name()),
            ("on a blank SSD", record.on_blank_ssd.name(), before.on_blank_ssd.name()),
        ];
        let changes: Vec<String> =
            changes.iter().filter(|(_, is, was)| is != was).map(|(what, is, was)| format!("{what} {is} (was {was})")).collect();
        if !changes.is_empty() {
            self.events().note(Severity::Info, name, format!("options changed: {}", changes.join(", ")));
        }
        self.pool_view(name)
    }

    /// Refuses a RAM tier that this machine, or the memory cgroup, has no room for beside the others.
    pub(super) fn check_memory(&self, pool: &str, ram_bytes: u64) -> Result<(), ControlError> {
        let Some(limit) = self.data().memory() else { return Ok(()) };
        let others_bytes: u64 = self.memory().state.pools.iter().filter(|p| p.name != pool).map(|p| p.ram_bytes).sum();
        let most_bytes = limit.left_bytes(others_bytes);
        if ram_bytes <= most_bytes {
            return Ok(());
        }
        let beside =
            if others_bytes > 0 { format!(", and other pools have RAM tiers of {}", human::bytes(others_bytes)) } else { String::new() };
        let remedy = match most_bytes {
            RAM_BYTES_MIN.. => format!("give at most --ram {}: the index and everybody else need theirs", human::bytes(most_bytes)),
            _ => "give --ram 0 for no RAM tier, or raise the limit".into(),
        };
        let problem = format!("asks for {}, {} has {}{beside}", human::bytes(ram_bytes), limit.of, human::bytes(limit.bytes));
        Err(ControlError::BadOption { option: "--ram", problem, remedy })
    }

    /// Refuses an SSD that is larger than a pool can use, or whose index this machine, or the memory cgroup, has no room for beside all RAM tiers and the
    /// indexes of other pools.
    pub(super) fn check_index(&self, create: &PoolCreate, content: Content) -> Result<(), ControlError> {
        let found_bytes = self.data().examine_ssd(&create.ssd).ok().map(|facts| facts.size_bytes);
        let Some(ssd_bytes) = create.size_bytes.or(found_bytes) else { return Ok(()) };
        if ssd_bytes > SSD_BYTES_MAX {
            let problem = format!("it has {}, and a pool can use {}", human::bytes(ssd_bytes), human::bytes(SSD_BYTES_MAX));
            let remedy = format!("give at most --size {}", size_option(SSD_BYTES_MAX));
            return Err(device(&create.ssd, problem, remedy, Kind::Conflict));
        }
        self.check_index_fits(&create.name, ssd_bytes, create.ram_bytes.unwrap_or(memory::RAM_BYTES_DEFAULT), content).map_err(
            |(problem, most_bytes)| {
                let fits = |content| memory::ssd_bytes_for(most_bytes, content);
                let remedy = match fits(content) {
                    bytes if bytes < SSD_BYTES_MIN => "make the memory limit larger, or another pool smaller".to_string(),
                    bytes if content == Content::Off => format!("give at most --size {}", size_option(bytes)),
                    bytes => {
                        let plain = size_option(fits(Content::Off).min(ssd_bytes));
                        format!("give at most --size {}, or --content off with at most --size {plain}", size_option(bytes))
                    }
                };
                device(&create.ssd, problem, remedy, Kind::Conflict)
            },
        )
    }

    /// Whether there is memory for an index of so much of an SSD; if not, says why, and how many bytes there are for it.
    fn check_index_fits(&self, pool: &str, ssd_bytes: u64, ram_bytes: u64, content: Content) -> Result<(), (String, u64)> {
        let Some(limit) = self.data().memory() else { return Ok(()) };
        let most_bytes = limit.taken_bytes_max().saturating_sub(ram_bytes + self.memory_of_others(pool));
        let needed_bytes = memory::index_bytes(ssd_bytes, content);
        if needed_bytes <= most_bytes {
            return Ok(());
        }
        let [of, needs, has, left] = [ssd_bytes, needed_bytes, limit.bytes, most_bytes].map(human::bytes);
        let level = content.name();
        let problem = format!(
            "an index of {of} with content {level} takes {needs} of memory when all of it is used; {} has {has}, of which {left} are left beside \
             RAM tiers and other pools",
            limit.of
        );
        Err((problem, most_bytes))
    }

    /// What RAM tiers and indexes of all other pools may come to take.
    fn memory_of_others(&self, pool: &str) -> u64 {
        let memory = self.memory();
        let of = |other: &PoolRecord| {
            let used_bytes = memory.pools.get(&other.name).map_or(0, |live| live.size_bytes);
            let ssd_bytes = if used_bytes > 0 { used_bytes } else { other.size_bytes.unwrap_or(0) };
            other.ram_bytes + memory::index_bytes(ssd_bytes, other.content)
        };
        memory.state.pools.iter().filter(|other| other.name != pool).map(of).sum()
    }

    /// The RAM tier that a pool gets at its start, if it cannot have the one it was created with: the memory has become less since. Tiers of pools with
    /// names before its own come first. Told.
    fn ram_within_limit(&self, record: &PoolRecord) -> Option<u64> {
        let limit = self.data().memory()?;
        let before_bytes = self.memory().state.pools.iter().filter(|p| p.name < record.name).map(|p| p.ram_bytes).sum();
        let most_bytes = limit.left_bytes(before_bytes);
        if record.ram_bytes <= most_bytes {
            return None;
        }
        let ram_bytes = if most_bytes < RAM_BYTES_MIN { 0 } else { most_bytes };
        let (asked, has, gets) = (human::bytes(record.ram_bytes), human::bytes(limit.bytes), human::bytes(ram_bytes));
        let message = format!("its RAM tier has {gets} instead of {asked}: {} has {has}; give it more and restart the daemon", limit.of);
        self.events().note(Severity::Warning, &record.name, message);
        Some(ram_bytes)
    }

    /// Everything of C7 that concerns an SSD. Tells whether its file has to be made.
    pub(super) fn check_ssd(&self, create: &PoolCreate) -> Result<bool, ControlError> {
        let ssd = &create.ssd;
        // The pool of that name is there already if its SSD is to be formatted anew.
        let formats_anew = self.carries(ssd, &create.name);
        if formats_anew && !create.force {
            let remedy = "choose another device, or give --force to format this one again (what is cached on it is then lost)";
            return Err(device(ssd, "it is the SSD of this pool".into(), remedy.into(), Kind::Conflict));
        }
        if !formats_anew {
            self.check_overlaps(ssd, None, Some(&create.name))?;
        }
        let facts = match self.data().examine_ssd(ssd) {
            // The pool's own shards keep it locked.
            Err(_) if formats_anew => return Ok(false),
            Ok(facts) => facts,
            Err(ControlError::Unknown { .. }) if create.size_bytes.is_some() && !ssd.starts_with("/dev/") => {
                return Ok(true);
            }
            Err(ControlError::Unknown { .. }) => {
                let remedy = if ssd.starts_with("/dev/") {
                    "check the path with `lsblk`".to_string()
                } else {
                    "check the path, or give --size SIZE to make a file there".to_string()
                };
                return Err(device(ssd, "there is no such file or device".into(), remedy, Kind::NotFound));
            }
            Err(error) => return Err(error),
        };
        let wanted_bytes = create.size_bytes.unwrap_or(facts.size_bytes);
        if wanted_bytes > facts.size_bytes {
            let (has, wants) = (human::bytes(facts.size_bytes), human::bytes(wanted_bytes));
            let problem = format!("it has {has}, less than the {wants} of --size");
            return Err(device(ssd, problem, "give a smaller --size, or none to use all of it".into(), Kind::Conflict));
        }
        if wanted_bytes < SSD_BYTES_MIN {
            let problem = format!("{} is too small for a pool", human::bytes(wanted_bytes));
            let remedy = format!("use at least {}", human::bytes(SSD_BYTES_MIN));
            return Err(device(ssd, problem, remedy, Kind::Conflict));
        }
        if formats_anew {
            return Ok(false);
        }
        if let Some(user) = &facts.in_use {
            return Err(device(
                ssd,
                format!("it is in use ({user})"),
                "stop what uses it, or choose another device".into(),
                Kind::Conflict,
            ));
        }
        if facts.read_only {
            let remedy = "make it writable, or choose another device".to_string();
            return Err(device(ssd, "it is read-only".into(), remedy, Kind::Conflict));
        }
        self.check_signature(create, &facts)?;
        Ok(false)
    }

    fn check_signature(&self, create: &PoolCreate, facts: &DeviceFacts) -> Result<(), ControlError> {
        let ssd = &create.ssd;
        let ours = facts.pool.and_then(|uuid| self.memory().state.pools.iter().find(|p| p.uuid == uuid).map(|p| p.name.clone()));
        if let Some(pool) = ours {
            let remedy = format!(
                "format it again for that pool with `hearth pool replace {pool} --ssd {ssd} --force`, or destroy that pool first with \
                 `hearth pool destroy {pool}`"
            );
            return Err(device(ssd, format!("it belongs to the pool \"{pool}\""), remedy, Kind::Conflict));
        }
        match &facts.signature {
            Some(what) if !create.force => {
                let remedy = match facts.pool {
                    Some(_) => format!(
                        "take that pool in with `hearth pool import {ssd}` (it shows what is there first), choose another device, or give \
                         --force to overwrite it (its content, and dirty data on it, is then lost)"
                    ),
                    None => "choose another device, or give --force to overwrite it (its content is then lost)".into(),
                };
                Err(device(ssd, format!("it holds {what}"), remedy, Kind::Conflict))
            }
            // A disk that was used before may hold anything. A file that holds something was hardly made for a cache.
            None if !create.force && facts.is_file && !self.data().is_blank(ssd)? => {
                let remedy = "choose another file, or give --force to overwrite it (its content is then lost)".to_string();
                Err(device(ssd, "it is not empty, and what it holds is not known".into(), remedy, Kind::Conflict))
            }
            _ => Ok(()),
        }
    }

    /// Whether the path is where the SSD of the pool of that name is, if there is such a pool; another device may be there by now.
    pub(super) fn is_place_of(&self, path: &str, pool: &str) -> bool {
        let ssd = self.memory().state.pool(pool).map(|p| p.ssd.clone());
        ssd.is_some_and(|ssd| path == ssd || self.data().canonical(path) == self.data().canonical(&ssd))
    }

    /// Whether what is at the path is the SSD of the pool of that name, for sure: it carries the pool, or the pool's shards have it open.
    pub(super) fn carries(&self, path: &str, pool: &str) -> bool {
        let Some(uuid) = self.memory().state.pool(pool).map(|p| p.uuid) else { return false };
        // A file that is locked cannot be looked at; a device that is used can, and does not tell who uses it.
        let (is_it, is_used) =
            self.data().examine_ssd(path).map_or((false, true), |facts| (facts.pool == Some(uuid), facts.in_use.is_some()));
        is_it || is_used && self.is_place_of(path, pool) && self.data().has_shards(pool)
    }

    /// Refuses a path that shares bytes with an SSD or a backing device in use by hearth, `except` for one volume's. Where the SSD of one pool
    /// was, another may be, for that pool.
    pub(super) fn check_overlaps(&self, path: &str, except: Option<&str>, for_pool: Option<&str>) -> Result<(), ControlError> {
        let (ssds, backings): (Vec<_>, Vec<_>) = {
            let state = &self.memory().state;
            (
                state.pools.iter().map(|p| (p.name.clone(), p.ssd.clone())).collect(),
                state.volumes.iter().map(|v| (v.name.clone(), v.backing.clone())).collect(),
            )
        };
        if path.starts_with("/dev/") {
            self.check_no_export(path)?;
        }
        self.check_not_on_own(path)?;
        for (pool, ssd) in ssds {
            if for_pool == Some(&pool) && self.is_place_of(path, &pool) {
                continue;
            }
            if let Some(how) = self.data().overlap(path, &ssd)? {
                let is_it = self.data().canonical(path) == self.data().canonical(&ssd);
                return Err(self.overlaps_ssd(path, &pool, &ssd, if is_it { None } else { Some(how) }));
            }
        }
        for (volume, backing) in backings {
            if except == Some(volume.as_str()) {
                continue;
            }
            if let Some(how) = self.data().overlap(path, &backing)?
                && !self.is_not_of(path, &volume)
            {
                let remedy = "choose another device: two users would destroy each other's data";
                let problem = format!("it is the backing device of the volume \"{volume}\"{}", way(path, &backing, &how));
                return Err(device(path, problem, remedy.into(), Kind::Conflict));
            }
        }
        Ok(())
    }

    /// A path is, or has bytes of, the SSD of a pool: `how`, unless it is the same path.
    fn overlaps_ssd(&self, path: &str, pool: &str, ssd: &str, how: Option<String>) -> ControlError {
        let Some(how) = how else {
            let remedy = format!(
                "choose another device: an SSD belongs to one pool and can never be a backing device; `hearth pool replace {pool} --ssd \
                 {ssd} --force` formats it again for that pool, `hearth pool destroy {pool}` gives it free"
            );
            return device(path, format!("it is the SSD of the pool \"{pool}\""), remedy, Kind::Conflict);
        };
        // Of a disk that carries the file of an SSD, what else it carries says more.
        let user = self.data().examine_ssd(path).ok().and_then(|facts| facts.in_use).map(|user| format!("it is in use ({user}), and "));
        let problem = format!("{}has bytes of the SSD of the pool \"{pool}\" ({how})", user.unwrap_or_else(|| "it ".into()));
        let remedy = "choose another device: one that shares bytes with a pool's SSD can be neither an SSD nor a backing device";
        device(path, problem, remedy.into(), Kind::Conflict)
    }

    /// Whether a device has the name that the backing device of a volume had, and is another one: names change hands while a volume is not attached.
    fn is_not_of(&self, path: &str, volume: &str) -> bool {
        let Ok(record) = self.volume_record(volume) else { return false };
        if self.volume_attached(volume) {
            return false;
        }
        let Ok(facts) = self.data().examine_backing(path) else { return false };
        matches!(recognise(&record.identity, &facts.identity), Recognised::Other(_))
    }

    /// Refuses a block device that is a volume of this very daemon: it would wait for itself.
    fn check_no_export(&self, path: &str) -> Result<(), ControlError> {
        let offered = |(name, live): (&String, &super::LiveVolume)| Some((name.clone(), live.block_device()?.1.to_owned()));
        let exports: Vec<(String, String)> = self.memory().volumes.iter().filter_map(offered).collect();
        for (volume, place) in exports {
            if let Some(how) = self.data().overlap(path, &place)? {
                let remedy = "choose another device: hearth cannot cache itself";
                let problem = format!("it is the volume \"{volume}\" itself, exported by hearth{}", way(path, &place, &how));
                return Err(device(path, problem, remedy.into(), Kind::Conflict));
            }
        }
        Ok(())
    }

    pub(super) fn pool_destroy(&self, name: &str, force: bool) -> Result<(), ControlError> {
        let WholePool { claim: _claim, record, volumes, disks } = self.claim_whole_pool(name, "its destruction")?;
        if !volumes.is_empty() && !force {
            return Err(ControlError::HasVolumes { name: name.into(), volumes: volumes.into_iter().map(|v| v.name).collect() });
        }
        if !force {
            self.check_state_is_newest(&record)?;
        }
        if !disks.is_empty() && !force {
            let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            let problem = format!("the pool \"{name}\" has disks on its SSD: {}", names.join(", "));
            let remedy = format!(
                "remove them first with `hearth disk remove NAME`, or with all that they hold with `hearth pool destroy {name} --force`"
            );
            return Err(ControlError::BadCombination(problem, remedy));
        }
        let silent = if force { self.what_is_silent(&record, &volumes) } else { Silent::default() };
        // Nothing is given up where anybody uses a device that answers. Looks end early with the daemon.
        let is_kept =
            |v: &VolumeRecord, refused: &ControlError| silent.keeps(&v.name) && self.may_wait_for_device(v, refused) && !self.is_stopping();
        let in_use = |v: &VolumeRecord| self.check_unused(v).err().filter(|refused| !is_kept(v, refused));
        volumes.iter().chain(&disks).find_map(in_use).map_or(Ok(()), Err)?;
        self.give_up_what_is_silent(&record, &silent)?;
        volumes.iter().chain(&disks).try_for_each(|v| self.wait_until_unused(v))?;
        for (done, volume) in volumes.iter().enumerate() {
            if let Err(error) = self.unexport_all(volume) {
                volumes[..done].iter().for_each(|v| self.offer_again(v));
                return Err(error);
            }
        }
        self.change(|state| {
            state.volumes.iter_mut().filter(|v| v.pool == name).for_each(|v| v.phase = VolumePhase::Dropping);
            if let Some(pool) = state.pool_mut(name) {
                pool.phase = PoolPhase::Destroying;
            }
        })?;
        self.finish_destroy(&record, &volumes)
    }

    /// What is told of the file that was made for a pool and outlives it.
    pub(super) fn file_left_by(&self, name: &str) -> Option<String> {
        let record = self.pool_record(name).ok().filter(|record| record.file_made)?;
        let size = human::bytes(record.size_bytes?);
        Some(format!("{} stays, {size}: delete it if it is not needed", record.ssd))
    }

    /// Which devices of a pool do not answer.
    fn what_is_silent<'a>(&self, pool: &PoolRecord, volumes: &'a [VolumeRecord]) -> Silent<'a> {
        // All at once: a person waits.
        std::thread::scope(|scope| {
            let look_at_ssd = || self.data().ssd_answers(&pool.name, self.silence()).err();
            let ssd = self.data().has_shards(&pool.name).then(|| scope.spawn(look_at_ssd));
            let attached = volumes.iter().filter(|volume| self.volume_attached(&volume.name));
            let look_at = |volume| scope.spawn(move || Some((volume, self.data().answers(volume, self.silence()).err()?)));
            let looks: Vec<_> = attached.map(look_at).collect();
            let ssd = ssd.and_then(|look| look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let looks = looks.into_iter().map(|look| look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Silent { ssd, volumes: looks.flatten().collect() }
        })
    }

    /// What hangs on devices that do not answer must not keep a pool that goes with its data.
    fn give_up_what_is_silent(&self, pool: &PoolRecord, silent: &Silent<'_>) -> Result<(), ControlError> {
        if let Some(error) = &silent.ssd {
            let message = format!("its SSD {} does not answer, hearth gives up on it ({error})", pool.ssd);
            self.events().note(Severity::Warning, &pool.name, message);
            self.data().give_up(&DeviceUse::Ssd { pool: pool.name.clone() })?;
        }
        silent.volumes.iter().try_for_each(|(volume, error)| self.give_up_backing(volume, error))
    }

    /// Steps 2 and 3; also what a start does with a pool it finds `destroying`.
    pub(super) fn finish_destroy(&self, record: &PoolRecord, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
        self.set_live_pool(&record.name, |live| live.health = Health::Removing);
        for volume in volumes.iter().filter(|v| self.volume_attached(&v.name)) {
            if let Err(error) = self.detach_or_give_up(volume, false) {
                self.events().note(Severity::Warning, &volume.name, format!("the volume did not detach: {error}"));
            }
            self.set_live_volume(&volume.name, |live| live.attached = false);
        }
        let disks = self.disk_volumes(&record.name);
        if let Err(error) = self.abandon_disks(&record.name, Withdrawal::Forced) {
            self.events().note(Severity::Warning, &record.name, format!("not all disks did detach: {error}"));
        }
        self.stop_quietly(&record.name);
        if let Err(error) = self.data().wipe(record) {
            // A device that is gone or broken cannot be wiped; the person asked to be rid of it all the same.
            let note = format!("{} could not be wiped ({error}): use --force if you give it to another pool", record.ssd);
            self.events().note(Severity::Warning, &record.name, note);
        }
        self.change(|state| {
            state.volumes.retain(|v| v.pool != record.name);
            state.disks.retain(|disk| disk.pool != record.name);
            state.pools.retain(|p| p.name != record.name);
        })?;
        let mut memory = self.memory();
        memory.pools.remove(&record.name);
        volumes.iter().chain(&disks).for_each(|v| {
            memory.volumes.remove(&v.name);
        });
        drop(memory);
        self.forget_history(&insight::series::pool_object(&record.name));
        self.events().note(Severity::Info, &record.name, "pool destroyed");
        Ok(())
    }
}

/// Devices of a pool that do not answer, and what a look at each has said.
#[derive(Default)]
struct Silent<'a> {
    ssd: Option<ControlError>,
    volumes: Vec<(&'a VolumeRecord, ControlError)>,
}

impl Silent<'_> {
    /// Whether the users of a volume wait for a backing device that does not answer, so that they cannot go.
    fn keeps(&self, name: &str) -> bool {
        self.volumes.iter().any(|(volume, error)| volume.name == name && is_silence(error))
    }
}

/// How a device shares bytes with another, behind what it is; nothing if both have one path.
fn way(path: &str, other: &str, how: &str) -> String {
    if path == other { String::new() } else { format!(" ({how})") }
}

pub(super) fn check_sizes(create: &PoolCreate) -> Result<(), ControlError> {
    let bad = |option, problem: String, remedy: &str| Err(ControlError::BadOption { option, problem, remedy: remedy.into() });
    for (option, bytes, least) in [("--size", create.size_bytes, SSD_BYTES_MIN), ("--ram", create.ram_bytes, RAM_BYTES_MIN)] {
        match bytes {
            Some(bytes) if bytes > SIZE_BYTES_MAX => {
                return bad(option, "is beyond 2^63 bytes".into(), "write a smaller size");
            }
            // No RAM tier at all is a choice.
            Some(0) if option == "--ram" => {}
            Some(bytes) if bytes < least => {
                let or_none = if option == "--ram" { ", or 0 for no RAM tier" } else { "" };
                return bad(option, format!("must be at least {}{or_none}", human::bytes(least)), "write a larger size, for instance 1GiB");
            }
            _ => {}
        }
    }
    Ok(())
}

/// What an SSD is to a drive for a pool that uses so much of it, but for less than its smallest part.
pub(super) fn drive_for(facts: &DeviceFacts, size_bytes: Option<u64>) -> Drive {
    match facts.drive {
        Drive::Volatile | Drive::Protected if size_bytes.is_some_and(|bytes| bytes + SSD_BYTES_MIN <= facts.size_bytes) => Drive::Part,
        drive => drive,
    }
}

/// A size as `--size` reads it: not more than so many bytes.
fn size_option(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{}MiB", bytes >> 20),
        gib => format!("{gib}GiB"),
    }
}

pub(super) fn device(path: &str, problem: String, remedy: String, kind: Kind) -> ControlError {
    ControlError::Device { path: path.into(), problem, remedy, kind }
}
