//! `hearth pool import`: shows what an SSD holds, and takes its pool in.

use crate::commands::Session;
use crate::failure::Failure;
use crate::progress::patiently;
use crate::request;
use crate::table::{self, Align};
use api::human;
use api::names::Named;
use api::{DeviceState, DeviceView, PoolFoundView, PoolImport, PoolView, VolumeFoundView, VolumeView};
use std::collections::BTreeMap;

/// What was asked for.
pub struct Asked<'a> {
    /// The SSD.
    pub ssd: Option<&'a str>,
    /// Change nothing.
    pub look: bool,
    /// The pool's name here.
    pub name: Option<&'a str>,
    /// VOLUME=PATH.
    pub backing: &'a [String],
    /// OLD=NEW.
    pub rename: &'a [String],
    /// Disks may come later.
    pub missing_later: bool,
}

impl Asked<'_> {
    /// An option that says something of an SSD.
    fn without_path(&self) -> Option<&'static str> {
        let given = [
            ("--look", self.look),
            ("--name", self.name.is_some()),
            ("--backing", !self.backing.is_empty()),
            ("--rename", !self.rename.is_empty()),
            ("--missing-later", self.missing_later),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// What to do without a path.
const LIST_FIRST: &str = "give the path of the SSD; `hearth pool import` alone lists those that can be taken in";

impl Session {
    /// `hearth pool import ...`.
    ///
    /// # Errors
    /// With the sentence to print.
    pub fn import(&self, asked: &Asked) -> Result<(), Failure> {
        let Some(ssd) = asked.ssd else {
            return match asked.without_path() {
                Some(option) => Err(Failure::usage(format!("{option} is for one SSD, and no PATH is given"), LIST_FIRST)),
                None => self.importable(),
            };
        };
        let body = PoolImport {
            ssd: request::ssd("PATH", ssd)?,
            name: asked.name.map(|name| request::name(Named::Pool, name).map(Into::into)).transpose()?,
            backings: pairs("--backing", asked.backing)?
                .into_iter()
                .map(|(volume, spec)| Ok((volume, request::backing("--backing", &spec)?)))
                .collect::<Result<_, Failure>>()?,
            renames: pairs("--rename", asked.rename)?,
            missing_later: asked.missing_later,
        };
        if asked.look || !self.json {
            let found: PoolFoundView = patiently("reading the SSD", || self.client.send("POST", "/pool-imports/look", &body))?;
            self.print(&found, shown)?;
            if asked.look {
                return Ok(());
            }
        }
        let pool: PoolView = patiently("taking the pool in", || self.client.send("POST", "/pool-imports", &body))?;
        let volumes: Vec<VolumeView> = self.client.get("/volumes")?;
        self.print(&pool, |pool| {
            let mut text = format!("\npool {} is taken in and running\n", pool.name);
            for volume in volumes.iter().filter(|volume| volume.pool == pool.name) {
                text += &told_of(volume);
            }
            text
        })
    }

    /// Which SSDs can be taken in.
    fn importable(&self) -> Result<(), Failure> {
        let mut found: Vec<DeviceView> = patiently("examining the disks", || self.client.get("/devices"))?;
        found.retain(|device| device.state == DeviceState::Pool && device.can_be_ssd);
        self.print(&found, |found| {
            if found.is_empty() {
                return "no free disk carries a pool that is not known here; an SSD that is a file is given by its path\n".into();
            }
            let head = [("SSD", Align::Left), ("SIZE", Align::Right), ("HOLDS", Align::Left)];
            let row = |d: &DeviceView| vec![d.path.clone(), human::bytes(d.size_bytes), d.summary.clone()];
            let rows: Vec<_> = found.iter().map(row).collect();
            table::layout(&head, &rows) + "see what is on one with `hearth pool import PATH --look`\n"
        })
    }
}

/// How a volume is that was taken in.
fn told_of(volume: &VolumeView) -> String {
    let remedy = volume.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
    match &volume.problem {
        Some(problem) => format!("volume {} is {}: {problem}{remedy}\n", volume.name, volume.health.word()),
        None => format!("volume {} is {} over {}\n", volume.name, volume.health.word(), volume.backing),
    }
}

/// NAME=VALUE, by name.
fn pairs(option: &str, given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for text in given {
        let Some((name, value)) = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()) else {
            let (form, example) = if option == "--rename" { ("OLD=NEW", "data=data2") } else { ("VOLUME=PATH", "data=/dev/sdb") };
            return Err(Failure::usage(format!("{option} {text:?} is not {form}"), &format!("write for instance {option} {example}")));
        };
        if pairs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("{option} names \"{name}\" twice"), "give each name once"));
        }
    }
    Ok(pairs)
}

/// What is on an SSD.
fn shown(found: &PoolFoundView) -> String {
    let unknown = || "the SSD does not say".to_string();
    let last = if found.stopped_clean { "stopped in order" } else { "not stopped in order" };
    let mut lines = vec![
        ("ssd", found.ssd.clone()),
        ("pool", found.name.clone().unwrap_or_else(unknown)),
        ("uuid", found.uuid.to_string()),
        ("last used by", format!("{}, {last}", found.host.clone().unwrap_or_else(unknown))),
        ("size", human::bytes(found.size_bytes)),
    ];
    if let Some(known) = &found.known_as {
        lines.push(("known here as", format!("{known}, in a state that is older than the SSD")));
    }
    lines.extend(found.upgrade.iter().map(|upgrade| ("upgrade", upgrade.clone())));
    lines.extend(found.disks.iter().map(|(name, bytes)| ("disk", format!("{name}, {}", human::bytes(*bytes)))));
    let mut text = table::pairs(&lines);
    let head = [
        ("VOLUME", Align::Left),
        ("MODE", Align::Left),
        ("SIZE", Align::Right),
        ("DIRTY", Align::Right),
        ("CACHED", Align::Right),
        ("BACKING DEVICE", Align::Left),
    ];
    let row = |v: &VolumeFoundView| {
        let place = v.backing.clone().unwrap_or_else(|| "see below".into());
        let (dirty, cached) = (human::bytes(v.dirty_bytes), human::bytes(v.clean_bytes + v.dirty_bytes));
        vec![v.name.clone(), v.mode.name().into(), human::bytes(v.size_bytes), dirty, cached, place]
    };
    if found.volumes.is_empty() {
        text += "no volumes\n";
    } else {
        text += "\n";
        text += &table::layout(&head, &found.volumes.iter().map(row).collect::<Vec<_>>());
    }
    for volume in &found.volumes {
        if let Some(problem) = &volume.problem {
            text += &format!("{}: {problem}\n", volume.name);
            let known: Vec<String> = volume.identity.iter().map(|(name, value)| format!("{name} {value}")).collect();
            if !known.is_empty() {
                let was = volume.backing_was.as_deref().unwrap_or_default();
                text += &format!("{}: its device was {was}; {}\n", volume.name, known.join(", "));
            }
        }
    }
    text + &found.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>()
}
