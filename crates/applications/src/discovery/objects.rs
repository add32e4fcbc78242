//! From findings to objects: numbers that stay, the map, and what leads to them.

use super::found::{Application, ApplicationId, Database, Domain, Evidence, Found, Key, Object, is_being_built};
use super::limits::{OBJECTS_MAX, TEXT_BYTES_MAX};
use crate::ObjectKind;
use crate::filesystems::DataFile;
use crate::map::Map;
use std::collections::{BTreeMap, BTreeSet};
use types::ObjectId;

/// An object that has no number yet.
pub(crate) struct Draft {
    /// Position of its application.
    pub(crate) application: usize,
    pub(crate) database: Option<String>,
    pub(crate) kind: ObjectKind,
    pub(crate) name: String,
    pub(crate) key: Key,
    /// Position of the draft in whose files it lies.
    pub(crate) within: Option<usize>,
    /// Its files, each with where it begins in the object.
    pub(crate) files: Vec<(u64, DataFile)>,
    pub(crate) bytes: u64,
    pub(crate) encrypted: bool,
    pub(crate) evidence: Evidence,
    /// What its ids mean; `None` where pages of it carry none.
    pub(crate) domain: Option<Domain>,
}

impl Draft {
    /// An object that has no files of its own, in no database, whose pages carry nothing.
    pub(crate) fn new(application: usize, kind: ObjectKind, name: String, key: Key, evidence: Evidence) -> Draft {
        Draft {
            application,
            database: None,
            kind,
            name,
            key,
            within: None,
            files: Vec::new(),
            bytes: 0,
            encrypted: false,
            evidence,
            domain: None,
        }
    }
}

/// All that was found until now.
#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) applications: Vec<Application>,
    drafts: Vec<Draft>,
    domains: Domain,
    text_bytes: usize,
    /// Objects that were left out for want of room.
    pub(super) left_out: u64,
}

impl Drafts {
    /// A new domain of ids.
    pub(crate) fn domain(&mut self) -> Domain {
        self.domains += 1;
        self.domains
    }

    /// Takes an object in; its position, unless there is no room.
    pub(crate) fn put(&mut self, mut draft: Draft) -> Option<usize> {
        draft.name = shown(&draft.name);
        draft.database = draft.database.as_deref().map(shown);
        let text_bytes = self.text_bytes + draft.name.len() + draft.database.as_ref().map_or(0, String::len);
        if self.drafts.len() >= OBJECTS_MAX || text_bytes > TEXT_BYTES_MAX {
            self.left_out += 1;
            return None;
        }
        self.text_bytes = text_bytes;
        self.drafts.push(draft);
        Some(self.drafts.len() - 1)
    }

    /// All files of a kind as one object, one after the other.
    pub(crate) fn put_kind(&mut self, application: usize, kind: ObjectKind, files: Vec<DataFile>) {
        if files.is_empty() {
            return;
        }
        let (files, bytes) = in_line(files);
        let evidence = Evidence { file: true, ..Evidence::default() };
        self.put(Draft { files, bytes, ..Draft::new(application, kind, kind.name().to_owned(), Key::Kind(kind), evidence) });
    }

    /// Numbers the objects, as `before` has them where it has, and lays out the map.
    pub(super) fn finish(self, volume_bytes: u64, before: &Numbers) -> Found {
        let mut found = Found { complete: self.left_out == 0, ..Found::default() };
        found.applications = self.applications;
        let mut taken = BTreeSet::new();
        for application in &mut found.applications {
            let origin = application.origin();
            let id = before.applications.get(&origin).copied().filter(|id| taken.insert(*id));
            application.id = ApplicationId(id.unwrap_or_else(|| free(&origin, &mut taken)));
        }
        let ids = before.number(&self.drafts, &found.applications);
        let mut databases: BTreeMap<(ApplicationId, String), (u32, u64)> = BTreeMap::new();
        for (draft, id) in self.drafts.iter().zip(&ids) {
            let extents = lay_out(&mut found.map, draft, *id, volume_bytes);
            let engine = found.applications[draft.application].engine;
            if let Some(domain) = draft.domain {
                for key in draft.key.on_pages(draft.within.is_some()) {
                    let owners = found.owners.entry((engine, key)).or_default();
                    if !owners.iter().any(|(of, _)| *of == domain) {
                        owners.push((domain, *id));
                    }
                }
                if draft.within.is_none() {
                    found.domains.insert(*id, domain);
                }
            }
            let application = found.applications[draft.application].id;
            if let Some(database) = &draft.database {
                let sums = databases.entry((application, database.clone())).or_default();
                (sums.0, sums.1) = (sums.0 + 1, sums.1.saturating_add(draft.bytes));
            }
            found.complete &= extents.is_ok();
            let (Ok(extents) | Err(extents)) = extents;
            found.objects.push(Object {
                id: *id,
                application,
                database: draft.database.clone(),
                kind: draft.kind,
                name: draft.name.clone(),
                key: draft.key.clone(),
                within: draft.within.map(|position| ids[position]),
                bytes: draft.bytes,
                extents,
                path: draft.files.first().map_or_else(String::new, |(_, file)| shown(&file.path)),
                encrypted: draft.encrypted,
                evidence: draft.evidence,
            });
        }
        found.rebuilds = self.drafts.iter().any(|draft| is_being_built(&draft.name));
        found.objects.sort_by(|one, other| (one.application, &one.name, one.id).cmp(&(other.application, &other.name, other.id)));
        found.index();
        let database = |((application, name), (objects, bytes))| Database { application, name, objects, bytes };
        found.databases = databases.into_iter().map(database).collect();
        found
    }
}

/// A text as it may be shown: a name off a disk can have anything in it, orders to a terminal too.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Files with where each begins, one after the other in whole sectors, and their bytes together.
pub(crate) fn in_line(files: Vec<DataFile>) -> (Vec<(u64, DataFile)>, u64) {
    let (mut at, mut bytes) = (0u64, 0u64);
    let place = |file: DataFile| {
        let start = at;
        at = at.saturating_add(file.bytes.checked_next_multiple_of(512).unwrap_or(u64::MAX));
        bytes = bytes.saturating_add(file.bytes);
        (start, file)
    };
    let files = files.into_iter().map(place).collect();
    (files, bytes)
}

/// Tells the map of a draft's extents: how many they are, as an error if not all could be kept.
fn lay_out(map: &mut Map, draft: &Draft, id: ObjectId, volume_bytes: u64) -> Result<u32, u32> {
    let (mut extents, mut all) = (0, true);
    for (base, file) in &draft.files {
        for extent in &file.extents {
            let end = extent.volume_offset.saturating_add(extent.bytes);
            let offset = base.saturating_add(extent.file_offset);
            // A truncated image lacks some.
            let kept = end <= volume_bytes && map.add(&(extent.volume_offset..end), id, offset);
            extents += u32::from(kept);
            all &= kept;
        }
    }
    if all { Ok(extents) } else { Err(extents) }
}

/// The numbers of an earlier discovery.
#[derive(Clone, Default, Debug)]
pub(super) struct Numbers {
    applications: BTreeMap<String, u32>,
    keys: BTreeMap<(u32, Key), u32>,
    names: BTreeMap<(u32, String), u32>,
}

impl Numbers {
    pub(super) fn of(found: &Found) -> Numbers {
        if let Some(numbers) = &found.numbers {
            return (**numbers).clone();
        }
        let mut numbers = Numbers::default();
        numbers.applications.extend(found.applications.iter().map(|application| (application.origin(), application.id.0)));
        for object in &found.objects {
            let application = object.application.0;
            if let Some(space) = space_of_file(&object.key, object.within.is_some()) {
                numbers.keys.insert((application, Key::Space(space)), object.id.0);
            }
            numbers.keys.insert((application, object.key.clone()), object.id.0);
            numbers.names.insert((application, object.name.clone()), object.id.0);
        }
        numbers
    }

    /// Numbers for drafts: those of the same key; then those of the same name, as a table that was
    /// rebuilt has a new key; then new ones, which the key decides too.
    fn number(&self, drafts: &[Draft], applications: &[Application]) -> Vec<ObjectId> {
        let application = |draft: &Draft| applications[draft.application].id.0;
        let mut taken = BTreeSet::from([0]);
        let mut ids: Vec<Option<u32>> = vec![None; drafts.len()];
        let mut pass = |known: &dyn Fn(&Draft) -> Option<u32>| {
            for (id, draft) in ids.iter_mut().zip(drafts) {
                if id.is_none() {
                    *id = known(draft).filter(|known| taken.insert(*known));
                }
            }
        };
        pass(&|draft| self.keys.get(&(application(draft), draft.key.clone())).copied());
        // With and without its dictionary the file of a table is one thing.
        pass(&|draft| {
            let space = space_of_file(&draft.key, draft.within.is_some())?;
            self.keys.get(&(application(draft), Key::Space(space))).copied()
        });
        pass(&|draft| self.names.get(&(application(draft), draft.name.clone())).copied());
        let number = |(id, draft): (Option<u32>, &Draft)| {
            let text = || format!("{} {}", applications[draft.application].origin(), draft.key);
            ObjectId(id.unwrap_or_else(|| free(&text(), &mut taken)))
        };
        ids.into_iter().zip(drafts).map(number).collect()
    }
}

/// The space whose file an object is.
fn space_of_file(key: &Key, is_within: bool) -> Option<u32> {
    match key {
        Key::Index { space, .. } if !is_within => Some(*space),
        _ => None,
    }
}

/// A number that the text decides, or the next one that is free. FNV-1a, folded to 32 bits: the
/// same text gives the same number in every process.
fn free(text: &str, taken: &mut BTreeSet<u32>) -> u32 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut number = (hash ^ hash >> 32) as u32;
    while number == 0 || !taken.insert(number) {
        number = number.wrapping_add(1);
    }
    number
}
