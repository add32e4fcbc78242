//! A pool taken in from its SSD: the state directory was lost, or is older than the SSD, or the SSD comes from another machine.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | import | after a crash here, the start |
//! |---|---|
//! | 1. save pool, volumes and disks as the SSD says, with where their devices are now | brings them up |
//! | 2. start them as the daemon's start does | – |
//!
//! Before 1 nothing is written anywhere. A volume whose backing device is not the one it was, by all that is known, is refused by its start as ever.

use super::start::Judged;
use super::verdict::Verdict;
use super::{LivePool, LiveVolume, Manager};
use api::error::{ControlError, Kind};
use api::names::{self, Named};
use api::{Health, PoolFoundView, PoolImport, PoolView, Severity, VolumeFoundView};
use records::recognise::{Recognised, is_nameless, recognise};
use records::spare::SpareBy;
use records::ssd_content::{Records, SsdContent};
use records::state::{PoolRecord, State, VolumeRecord};

/// What an SSD holds, and what would become of it here.
struct Plan {
    content: SsdContent,
    records: Records,
    /// The pool that it is here already, in an older state.
    older: Option<PoolRecord>,
    /// By volume: why it would not be served.
    problems: Vec<Option<String>>,
}

impl Manager {
    /// Looks at an SSD and at the devices that its volumes lie on; changes nothing.
    pub(super) fn pool_look(&self, import: &PoolImport) -> Result<PoolFoundView, ControlError> {
        Ok(self.plan_import(import)?.view(&import.ssd))
    }

    /// Takes the pool of an SSD in and serves its volumes.
    pub(super) fn pool_import(&self, import: &PoolImport) -> Result<PoolView, ControlError> {
        let plan = self.plan_import(import)?;
        let Records { pool, volumes, disks, warnings } = &plan.records;
        let older = plan.older.as_ref().map(|older| older.name.as_str());
        let members: Vec<String> = older.map(|older| self.members_of(older)).unwrap_or_default();
        let mut claimed = vec![(Named::Pool, pool.name.as_str()), (Named::SsdOfPool, pool.name.as_str())];
        claimed.extend(
            older.iter().filter(|older| **older != pool.name).flat_map(|older| [(Named::Pool, *older), (Named::SsdOfPool, *older)]),
        );
        let mut names: Vec<&str> = volumes.iter().map(|v| v.name.as_str()).chain(disks.iter().map(|disk| disk.name.as_str())).collect();
        names.extend(members.iter().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        claimed.extend(names.into_iter().map(|name| (Named::Volume, name)));
        let _claim = self.claim(&claimed, "its import")?;
        if let Some(Err((problem, remedy))) = &plan.content.log {
            return Err(super::pools::device(&import.ssd, problem.clone(), remedy.clone(), Kind::Conflict));
        }
        plan.check_missing(import)?;
        let with_it = |state: &State| {
            // Only what the claims cover.
            if older.is_some_and(|older| members_in(state, older) != members) {
                return Err(ControlError::Claimed { named: "pool", name: pool.name.clone(), doing: "a change of its volumes" });
            }
            let mut state = state.clone();
            forget_pool(&mut state, older);
            plan.records.check_names(&state).map_err(|(problem, remedy)| ControlError::BadCombination(problem, remedy))?;
            state.pools.push(pool.clone());
            state.volumes.extend(volumes.iter().cloned());
            state.disks.extend(disks.iter().cloned());
            state
                .check()
                .map_err(|problem| ControlError::DataPath(format!("what the SSD says is invalid: {problem}"), plan.inspect(import)))?;
            Ok(state)
        };
        with_it(&self.memory().state)?;
        self.change(|state| with_it(state).map(|with_it| *state = with_it))??;
        self.forget_live(older, &members);
        self.set_live_pool(&pool.name, |live| *live = LivePool::new(Health::Starting));
        volumes.iter().for_each(|volume| self.set_live_volume(&volume.name, |live| *live = LiveVolume::new(Health::Starting)));
        warnings.iter().for_each(|warning| self.events().note(Severity::Warning, &pool.name, warning));
        let wanted: Vec<VolumeRecord> = volumes.iter().filter(|volume| !volume.rests()).cloned().collect();
        let mut judged: Judged = self.judge_all(&wanted);
        let saved = self.save_or_refuse(&mut judged);
        self.start_one_pool(&self.pool_record(&pool.name)?, &judged);
        saved?;
        if let Err(error) = self.running_pool(&pool.name) {
            let trouble = self.memory().pools.get(&pool.name).and_then(|live| live.trouble.clone());
            let (why, remedy) = trouble.map_or_else(|| (error.to_string(), error.remedy()), |trouble| (trouble.problem, trouble.remedy));
            let problem = format!("the pool \"{}\" is taken in, but does not run: {why}", pool.name);
            return Err(super::pools::device(&import.ssd, problem, remedy, Kind::Failed));
        }
        self.events().note(Severity::Info, &pool.name, format!("the pool was taken in from {}", import.ssd));
        self.pool_view(&pool.name)
    }

    /// What a path that cannot be looked at is to this daemon, if it is something.
    fn own_use_of(&self, path: &str) -> Option<ControlError> {
        let (pools, volumes) = {
            let state = &self.memory().state;
            (state.pools.clone(), state.volumes.clone())
        };
        let is = |other: &str| self.data().canonical(path) == self.data().canonical(other);
        let pool = pools.iter().find(|pool| is(&pool.ssd)).map(|pool| {
            (format!("it is the SSD of the pool \"{}\", which is here already", pool.name), format!("see `hearth pool show {}`", pool.name))
        });
        let of_volume = || {
            volumes.iter().find(|volume| is(&volume.backing)).map(|volume| {
                let problem = format!("it is the backing device of the volume \"{}\"", volume.name);
                (problem, "give the SSD of a pool: `hearth devices` lists them".into())
            })
        };
        let (problem, remedy) = pool.or_else(of_volume)?;
        Some(super::pools::device(path, problem, remedy, Kind::Conflict))
    }

    fn plan_import(&self, import: &PoolImport) -> Result<Plan, ControlError> {
        self.check_not_on_own(&import.ssd)?;
        let facts = self.data().examine_ssd(&import.ssd).map_err(|error| match error {
            ControlError::Unknown { .. } => super::pools::device(
                &import.ssd,
                "there is no such file or device".into(),
                "check the path with `lsblk`".into(),
                Kind::NotFound,
            ),
            // What hearth itself serves is locked.
            other => self.own_use_of(&import.ssd).unwrap_or(other),
        })?;
        let here = facts.pool.and_then(|uuid| self.memory().state.pools.iter().find(|pool| pool.uuid == uuid).cloned());
        if let Some(pool) = here.as_ref().filter(|pool| !self.is_older_than_ssd(&pool.name)) {
            let problem = format!("it is the SSD of the pool \"{}\" here", pool.name);
            let has_moved = self.data().canonical(&import.ssd) != self.data().canonical(&pool.ssd);
            let remedy = match self.data().examine_ssd(&pool.ssd) {
                Err(ControlError::Unknown { .. }) if has_moved && !pool.ssd.starts_with("/dev/") => {
                    format!("move it back to {}, then start it with `hearth pool start {}`", pool.ssd, pool.name)
                }
                _ => format!("see `hearth pool show {}`; start it with `hearth pool start {0}`", pool.name),
            };
            return Err(super::pools::device(&import.ssd, problem, remedy, Kind::Conflict));
        }
        if let Some(user) = &facts.in_use {
            let remedy = "end that use: an SSD is served by one daemon only".to_string();
            return Err(super::pools::device(&import.ssd, format!("it is in use ({user})"), remedy, Kind::Conflict));
        }
        if facts.pool.is_none() {
            let has = facts.signature.map_or("nothing known".to_owned(), |what| what);
            let remedy =
                format!("give the SSD of a pool: `hearth devices` lists them; `hearth pool check {}` says what is damaged", import.ssd);
            return Err(super::pools::device(
                &import.ssd,
                format!("it carries no pool that can be read (it holds {has})"),
                remedy,
                Kind::Conflict,
            ));
        }
        let content = self.data().look_into_ssd(&import.ssd)?;
        let name = import.name.clone().or_else(|| content.name_and_host().map(|(name, _)| name));
        let name = name.or_else(|| here.as_ref().map(|pool| pool.name.clone())).ok_or_else(|| {
            let problem = "the SSD does not say what its pool was called".to_string();
            ControlError::BadCombination(problem, "give it a name with --name NAME".into())
        })?;
        names::check(Named::Pool, &name)?;
        let mut records = content.records(import, &name);
        if let Some(spare) = records.pool.spare.as_mut().filter(|spare| spare.by == SpareBy::Found) {
            spare.drive = super::pools::drive_for(&facts, Some(content.size_bytes));
        }
        records.volumes.iter().try_for_each(|volume| names::check(Named::Volume, &volume.name))?;
        self.check_asked(import, &content, &records)?;
        let mut problems = Vec::new();
        for volume in &mut records.volumes {
            problems.push(self.find_device_of(volume, import, &mut records.warnings)?);
        }
        self.check_apart(&records.volumes, import)?;
        Ok(Plan { content, records, older: here, problems })
    }

    /// What was asked for names volumes that are there.
    fn check_asked(&self, import: &PoolImport, content: &SsdContent, records: &Records) -> Result<(), ControlError> {
        let named_there = |name: &String| {
            let by_copy = records.volumes.iter().map(|volume| &volume.name).chain(records.disks.iter().map(|disk| &disk.name));
            by_copy.chain(import.renames.values()).any(|known| known == name) || content.volumes.iter().any(|volume| volume.name == *name)
        };
        let renames_there = |name: &String| content.had_name(name);
        let unknown = import.backings.keys().find(|name| !named_there(name));
        let unknown = unknown
            .map(|name| ("--backing", name))
            .or_else(|| import.renames.keys().find(|name| !renames_there(name)).map(|name| ("--rename", name)));
        match unknown {
            Some((option, name)) => Err(ControlError::BadOption {
                option,
                problem: format!("names \"{name}\", which is not on {}", import.ssd),
                remedy: format!("see what is there with `hearth pool import {} --look`", import.ssd),
            }),
            None => Ok(()),
        }
    }

    /// No two volumes would lie on the same device.
    fn check_apart(&self, volumes: &[VolumeRecord], import: &PoolImport) -> Result<(), ControlError> {
        for (nth, one) in volumes.iter().enumerate().filter(|(_, one)| !one.backing.is_empty()) {
            for other in volumes[nth + 1..].iter().filter(|other| !other.backing.is_empty()) {
                // One that is missing overlaps with nothing.
                if let Ok(Some(how)) = self.data().overlap(&one.backing, &other.backing) {
                    let problem = format!("the volumes \"{}\" and \"{}\" would both lie on {}: {how}", one.name, other.name, other.backing);
                    let remedy =
                        format!("name the right device of each with --backing VOLUME=PATH; see `hearth pool import {} --look`", import.ssd);
                    return Err(ControlError::BadCombination(problem, remedy));
                }
            }
        }
        Ok(())
    }

    /// Finds the backing device of a volume, or takes the one that was named for it. Gives why it would not be served.
    fn find_device_of(
        &self,
        volume: &mut VolumeRecord,
        import: &PoolImport,
        warnings: &mut Vec<String>,
    ) -> Result<Option<String>, ControlError> {
        if let Some(spec) = import.backings.get(&volume.name)
            && self.take_device_for(volume, spec)?
        {
            warnings.push(format!(
                "{spec} is not the device that the volume \"{}\" lay on: its dirty data is written there, and what is cached clean is dropped",
                volume.name
            ));
        }
        if volume.backing.is_empty() {
            return Ok(Some("the SSD does not say which device it lies on".into()));
        }
        let (verdict, place) = self.look_without_moving(volume);
        if let Some(place) = place {
            volume.backing = place;
        }
        Ok(match verdict {
            Verdict::Refuse(problem, _) => Some(problem),
            _ => None,
        })
    }

    /// A person says that this is the device. One that is recognised is as ever; another one gets the dirty data, and nothing that was cached
    /// clean is believed of it. Gives whether it is another one.
    fn take_device_for(&self, volume: &mut VolumeRecord, spec: &str) -> Result<bool, ControlError> {
        let facts = self.check_backing(spec, &volume.options, None)?;
        if facts.size_bytes < volume.size_bytes {
            let (is, was) = (api::human::bytes(facts.size_bytes), api::human::bytes(volume.size_bytes));
            let problem = format!("it has {is}, less than the {was} of the volume \"{}\"", volume.name);
            return Err(super::pools::device(spec, problem, "give the device that the volume lay on".into(), Kind::Conflict));
        }
        let known = !volume.backing.is_empty() && !is_nameless(&volume.identity);
        let is_same = recognise(&volume.identity, &facts.identity) == Recognised::Certain;
        // Where nothing is known of the device, what is cached clean shows whether it is the one.
        volume.cache_stale |= known && !is_same;
        volume.backing = spec.into();
        // Of the one that it was, what was written to it since is judged by what it was like.
        if !is_same {
            (volume.identity, volume.stopped_clean) = (facts.identity, false);
        }
        Ok(known && !is_same)
    }

    fn members_of(&self, pool: &str) -> Vec<String> {
        members_in(&self.memory().state, pool)
    }

    /// What was shown of the older state's pool.
    fn forget_live(&self, older: Option<&str>, members: &[String]) {
        let mut memory = self.memory();
        older.iter().for_each(|older| drop(memory.pools.remove(*older)));
        members.iter().for_each(|member| drop(memory.volumes.remove(member)));
    }
}

fn members_in(state: &State, pool: &str) -> Vec<String> {
    let disks = state.disks.iter().filter(|disk| disk.pool == pool).map(|disk| disk.name.clone());
    state.volumes_of(pool).map(|volume| volume.name.clone()).chain(disks).collect()
}

fn forget_pool(state: &mut State, pool: Option<&str>) {
    let Some(pool) = pool else { return };
    state.volumes.retain(|volume| volume.pool != pool);
    state.disks.retain(|disk| disk.pool != pool);
    state.disk_changes.remove(pool);
    state.pools.retain(|other| other.name != pool);
}

impl Plan {
    /// All devices are there, or the person has said that they may come later.
    fn check_missing(&self, import: &PoolImport) -> Result<(), ControlError> {
        let missing: Vec<(&VolumeRecord, &String)> =
            self.records.volumes.iter().zip(&self.problems).filter_map(|(volume, problem)| Some((volume, problem.as_ref()?))).collect();
        let unknown = missing.iter().find(|(volume, _)| volume.backing.is_empty());
        let Some((volume, problem)) = unknown.or_else(|| missing.first().filter(|_| !import.missing_later)) else { return Ok(()) };
        let options: Vec<String> = missing.iter().map(|(volume, _)| format!("--backing {}=PATH", volume.name)).collect();
        let later = if unknown.is_some() {
            ""
        } else {
            ", or take such volumes in with --missing-later: each starts when its device is there and right"
        };
        let remedy = format!(
            "connect the right device, or name it with `hearth pool import {} {}`{later}; nothing was changed",
            import.ssd,
            options.join(" ")
        );
        Err(ControlError::BadCombination(format!("the volume \"{}\" cannot be served: {problem}", volume.name), remedy))
    }

    fn inspect(&self, import: &PoolImport) -> String {
        format!("inspect it with `hearth pool check {}`", import.ssd)
    }

    fn view(&self, ssd: &str) -> PoolFoundView {
        let (name, host) = self.content.name_and_host().unzip();
        let volume = |(record, problem): (&VolumeRecord, &Option<String>)| {
            let (dirty_bytes, clean_bytes) = self.content.counted(record.id);
            let copied = self.content.copied(record.uuid);
            VolumeFoundView {
                name: record.name.clone(),
                uuid: record.uuid,
                mode: record.options.mode,
                size_bytes: record.size_bytes,
                dirty_bytes,
                clean_bytes,
                exports: record.exports.iter().map(ToString::to_string).collect(),
                backing_was: copied.map(|copied| copied.backing.clone()),
                identity: copied.map(identity_of).unwrap_or_default(),
                backing: problem.is_none().then(|| record.backing.clone()),
                problem: problem.clone(),
            }
        };
        PoolFoundView {
            ssd: ssd.into(),
            uuid: self.content.uuid,
            name,
            host: host.filter(|host| !host.is_empty()),
            session: self.content.session,
            size_bytes: self.content.size_bytes,
            stopped_clean: self.content.stopped_in_order(),
            known_as: self.older.as_ref().map(|older| older.name.clone()),
            volumes: self.records.volumes.iter().zip(&self.problems).map(volume).collect(),
            disks: self.records.disks.iter().map(|disk| (disk.name.clone(), disk.size_bytes())).collect(),
            upgrade: self.content.log.as_ref().map(|log| match log {
                Ok(comes_to) => format!("taking it in upgrades its log, for good: {comes_to}"),
                Err((problem, remedy)) => format!("{problem}; {remedy}"),
            }),
            warnings: self.records.warnings.clone(),
        }
    }
}

fn identity_of(volume: &VolumeRecord) -> std::collections::BTreeMap<String, String> {
    let facts = volume.identity.fixed.iter().chain(&volume.identity.content);
    facts.map(|fact| (fact.name.clone(), fact.value.clone())).collect()
}
