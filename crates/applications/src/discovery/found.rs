//! What a discovery found, and whose a page or a byte is.

use super::objects::Numbers;
use super::regions::Blind;
use super::work::Journals;
use crate::filesystems::Journal;
use crate::map::{Extent, Map};
use crate::{Engine, ObjectKind, dialects};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use types::ObjectId;

/// An application's number: equal for the same data directory of the same file system, whenever it
/// is found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApplicationId(pub u32);

/// What a finding rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// The file system says where it lies.
    pub file: bool,
    /// Pages that were read there are of it.
    pub pages: bool,
    /// The server's own catalogue names it; otherwise the name is that of the file.
    pub catalogue: bool,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.pages, "page content"), (self.file, "file map"), (self.catalogue, "catalogue")];
        let mut words = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word);
        f.write_str(words.next().unwrap_or("nothing"))?;
        words.try_for_each(|word| write!(f, ", {word}"))
    }
}

/// A server of databases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Application {
    /// Its number.
    pub id: ApplicationId,
    /// Its engine.
    pub engine: Engine,
    /// The path of its data directory from the root of its file system, without a slash before it;
    /// `None` where pages were seen outside of any known file system.
    pub instance: Option<String>,
    /// Where its file system begins on the volume; else the region that its pages are in.
    pub start_bytes: u64,
    /// The file system's UUID, zeroes where none is known.
    pub file_system: [u8; 16],
    /// The product with its version as its pages give it away: `MySQL 8.0.36`, `PostgreSQL 15`.
    pub version: Option<String>,
    /// What this rests on.
    pub evidence: Evidence,
}

impl Application {
    /// What is known of it rests on this, in words; also, where its names are not known, why.
    #[must_use]
    pub fn known_by(&self) -> String {
        let facts = self.engine.facts();
        let version = self.version.as_deref().and_then(|version| version.strip_prefix(facts.title)?.trim_start().split('.').next());
        match (facts.named_from, version.and_then(|major| major.parse::<u32>().ok())) {
            (Some(from), Some(major)) if major < from && !self.evidence.catalogue => {
                format!("{}, names from {} {from} on only", self.evidence, facts.title)
            }
            _ => self.evidence.to_string(),
        }
    }

    /// What makes it the same application when it is found again.
    pub(super) fn origin(&self) -> String {
        let uuid = u128::from_be_bytes(self.file_system);
        let place = self.instance.as_deref().unwrap_or("\0unnamed");
        format!("{uuid:032x} {} {} {place}", self.start_bytes, self.engine.facts().name)
    }
}

/// A database of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Database {
    /// Whose.
    pub application: ApplicationId,
    /// Its name.
    pub name: String,
    /// Objects in it.
    pub objects: u32,
    /// Bytes of their files.
    pub bytes: u64,
}

/// What an object is known by within its application.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// An index of InnoDB.
    Index {
        /// The tablespace.
        space: u32,
        /// The index's id.
        index: u64,
    },
    /// A tablespace of InnoDB that no index stands for.
    Space(u32),
    /// A relation of PostgreSQL.
    Relation {
        /// Oid of the database, 0 for shared relations.
        database: u32,
        /// `relfilenode`.
        file: u32,
    },
    /// An object that its pages name by a number, as an allocation unit of SQL Server.
    Unit {
        /// The name of what the number is unique in: of SQL Server the database's file.
        database: String,
        /// `allocation_unit_id`.
        unit: u64,
    },
    /// All files of a kind, one after the other: logs come and go, their object stays.
    Kind(ObjectKind),
    /// A file that is known by nothing but its path.
    File(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Index { space, index } => write!(f, "space {space} index {index}"),
            Key::Space(space) => write!(f, "space {space}"),
            Key::Relation { database, file } => write!(f, "relation {database}/{file}"),
            Key::Unit { database, unit } => write!(f, "unit {database}/{unit}"),
            Key::Kind(kind) => write!(f, "files of {}", kind.name()),
            Key::File(path) => write!(f, "file {path}"),
        }
    }
}

impl Key {
    /// What pages of the object carry; `is_within`: it lies in the files of another.
    pub(super) fn on_pages(&self, is_within: bool) -> Vec<u64> {
        let of_space = |space: u32| u64::from(space) << 32;
        match self {
            Key::Index { space, index } if is_within => vec![of_space(*space) | index & 0xffff_ffff],
            // It stands for its file, and for pages of that which are of no index.
            Key::Index { space, index } => vec![of_space(*space) | index & 0xffff_ffff, of_space(*space)],
            Key::Space(space) => vec![of_space(*space)],
            Key::Unit { unit, .. } => vec![*unit],
            Key::Relation { .. } | Key::Kind(_) | Key::File(_) => Vec::new(),
        }
    }
}

/// An object of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its number, never 0. The same as long as its key, or its name, is.
    pub id: ObjectId,
    /// Whose.
    pub application: ApplicationId,
    /// The database, where it is in one.
    pub database: Option<String>,
    /// What it is.
    pub kind: ObjectKind,
    /// Its name, without control characters: `shop.orders/PRIMARY`, `shop/public.orders`, `wal`.
    pub name: String,
    /// What it is known by.
    pub key: Key,
    /// The object in whose files it lies. Only pages tell them apart, so the map has that one.
    pub within: Option<ObjectId>,
    /// Bytes of its files; 0 for one that lies within another.
    pub bytes: u64,
    /// Extents of its files on the volume; 0 for one that lies within another.
    pub extents: u32,
    /// The path of its first file, as it may be shown; empty where none is known.
    pub path: String,
    /// Whether it is encrypted: its pages will not say what they are.
    pub encrypted: bool,
    /// What this rests on.
    pub evidence: Evidence,
}

impl Object {
    /// Whether it is a copy that MySQL or MariaDB makes of a table to rebuild it: it takes the table's place, and its name, in the end.
    #[must_use]
    pub fn is_being_built(&self) -> bool {
        is_being_built(&self.name)
    }
}

/// Which ids mean the same thing: those of a server, or of a database of SQL Server.
pub(super) type Domain = u32;

/// What a discovery found.
///
/// Offsets in the objects of the map are those in the file; where an object has several files they
/// follow each other. Forks of a relation of PostgreSQL other than the main one begin at multiples
/// of 2^46.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Servers, in the order of the volume.
    pub applications: Vec<Application>,
    /// Their databases.
    pub databases: Vec<Database>,
    /// Their objects, by application and name.
    pub objects: Vec<Object>,
    /// Where objects lie.
    pub map: Map,
    /// Regions where nothing has a name, and why.
    pub blind: Vec<Blind>,
    /// Whether this is all: nothing failed, no limit was met, and no region is blind.
    pub complete: bool,
    /// Bytes that were read of the volume.
    pub bytes_read: u64,
    /// The volume has become another meanwhile, as by a file system that was made on it: it is to be looked at anew.
    pub outdated: bool,
    /// Positions in `applications`, in the order of ids.
    pub(super) application_by_id: Vec<(ApplicationId, u32)>,
    /// Positions in `objects`, in the order of ids.
    pub(super) by_id: Vec<(ObjectId, u32)>,
    /// What pages carry, to the objects that it may mean.
    pub(super) owners: BTreeMap<(Engine, u64), Vec<(Domain, ObjectId)>>,
    /// The domain of objects that lie in the map and whose pages carry ids.
    pub(super) domains: BTreeMap<ObjectId, Domain>,
    /// A table is being rebuilt.
    pub(super) rebuilds: bool,
    /// How far the journals of its file systems were followed.
    pub(super) journals: Journals,
    /// By what objects are known when they are found again, if names do not tell that any more.
    pub(super) numbers: Option<Arc<Numbers>>,
}

/// Whether a table of that name is a copy that a server makes to rebuild it.
pub(super) fn is_being_built(name: &str) -> bool {
    dialects::facts().filter_map(|facts| facts.rebuild_mark).any(|mark| name.contains(mark))
}

/// Between the parts of a name: of `shop.orders/ix_customer` and `shop/public.orders`.
const PARTS: [char; 2] = ['.', '/'];

/// A name with its parts renamed.
pub(super) fn renamed(name: &str, kind: ObjectKind, rename: &dyn Fn(&str) -> String) -> String {
    let stays = |part: &str| part.is_empty() || part == kind.name() || dialects::facts().any(|facts| facts.own_names.contains(&part));
    let part = |part: &str| if stays(part) { part.to_owned() } else { rename(part) };
    let mut told = String::new();
    for piece in name.split_inclusive(PARTS) {
        let (text, mark) = piece.strip_suffix(PARTS).map_or((piece, ""), |text| (text, &piece[text.len()..]));
        told += &part(text);
        told += mark;
    }
    told
}

impl Found {
    /// Makes applications and objects known by their numbers, after they were changed.
    pub fn index(&mut self) {
        self.by_id = self.objects.iter().zip(0..).map(|(object, index)| (object.id, index)).collect();
        self.by_id.sort_unstable();
        self.application_by_id = self.applications.iter().zip(0..).map(|(application, index)| (application.id, index)).collect();
        self.application_by_id.sort_unstable();
    }

    /// An object by its number.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        let place = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.objects.get(self.by_id[place].1 as usize)
    }

    /// An application by its number.
    #[must_use]
    pub fn application(&self, id: ApplicationId) -> Option<&Application> {
        let place = self.application_by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.applications.get(self.application_by_id[place].1 as usize)
    }

    /// The extents of an object, in order of address. Goes over the whole map.
    pub fn extents(&self, id: ObjectId) -> impl Iterator<Item = Extent> + '_ {
        self.map.all().filter(move |extent| extent.object == id)
    }

    /// Memory held, in bytes; nearly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = |object: &Object| object.name.len() + object.path.len() + object.database.as_ref().map_or(0, String::len);
        let objects: usize = self.objects.iter().map(|object| size_of::<Object>() + texts(object) + 64).sum();
        let journals: usize = self.journals.values().map(Journal::bytes).sum();
        size_of::<Found>() + objects + self.map.bytes() + self.owners.len() * 96 + self.domains.len() * 16 + journals
    }

    /// Whether a journal was not followed to its last commit, so that what is new is not known yet:
    /// another look goes on with it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.journals.values().any(Journal::is_behind)
    }

    /// Whether another look soon is likely to find the same: no journal is behind, and no table is
    /// being rebuilt, which has files of its own until they take the place of the old ones.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.is_behind() && !self.rebuilds
    }

    /// Whether a table is being rebuilt: what has its name now may be found under another one, or not at all.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        self.rebuilds
    }

    /// Whether anything here has pages that carry `key` (see [`Found::owner_of_page`]), though it
    /// may not be known whose of several.
    #[must_use]
    pub fn knows(&self, engine: Engine, key: u64) -> bool {
        let keys = [Some(key), engine.facts().key_of_holder.map(|holder| holder(key))];
        !engine.facts().pages_name_their_object || keys.into_iter().flatten().any(|key| self.owners.contains_key(&(engine, key)))
    }

    /// The same with other names: `rename` is asked for each part of the name of a database, a table or an index. What every server has, such as
    /// a redo log or the index `PRIMARY`, keeps its name; paths end at the data directory. A look again knows the objects still.
    #[must_use]
    pub fn renamed(mut self, rename: &dyn Fn(&str) -> String) -> Found {
        self.numbers = Some(Arc::new(Numbers::of(&self)));
        self.databases.iter_mut().for_each(|database| database.name = rename(&database.name));
        let instances: BTreeMap<ApplicationId, Option<String>> =
            self.applications.iter().map(|application| (application.id, application.instance.clone())).collect();
        for object in &mut self.objects {
            object.database = object.database.as_deref().map(rename);
            object.path = instances.get(&object.application).cloned().flatten().unwrap_or_default();
            object.name = renamed(&object.name, object.kind, rename);
        }
        self
    }

    /// Whose a page is that carries `key`: of InnoDB the space id, shifted left by 32 bits, and the
    /// low 32 bits of the index id; of SQL Server the allocation unit. `None` where that is not
    /// known, or where two servers of this volume may mean it: see [`Found::owner_at`].
    #[must_use]
    pub fn owner_of_page(&self, engine: Engine, key: u64) -> Option<ObjectId> {
        self.owner(engine, key, None)
    }

    /// Whose a page is that carries `key` and lies at an offset of the volume: by the key among
    /// those of the server whose file lies there; by the place alone where the key tells nothing.
    #[must_use]
    pub fn owner_at(&self, engine: Engine, key: u64, offset_bytes: u64) -> Option<ObjectId> {
        let Some((there, _)) = self.at(offset_bytes) else { return self.owner_of_page(engine, key) };
        let is_of_engine = || {
            let application = self.object(there).and_then(|object| self.application(object.application));
            application.is_some_and(|application| application.engine == engine)
        };
        match self.domains.get(&there) {
            Some(domain) if is_of_engine() => self.owner(engine, key, Some(*domain)).or(Some(there)),
            // Logs and the like: pages in them are copies, or carry nothing.
            _ => is_of_engine().then_some(there),
        }
    }

    /// The object that a byte of the volume belongs to, and which byte of it that is.
    #[must_use]
    pub fn at(&self, offset_bytes: u64) -> Option<(ObjectId, u64)> {
        let extent = self.map.at(offset_bytes)?;
        Some((extent.object, extent.object_offset_bytes + (offset_bytes - extent.bytes.start)))
    }

    fn owner(&self, engine: Engine, key: u64, domain: Option<Domain>) -> Option<ObjectId> {
        let one = |key: u64| {
            let mut may_be = self.owners.get(&(engine, key)).into_iter().flatten();
            match domain {
                Some(domain) => may_be.find(|(of, _)| *of == domain).map(|(_, id)| *id),
                None => may_be.next().filter(|_| may_be.next().is_none()).map(|(_, id)| *id),
            }
        };
        let Some(key_of_holder) = engine.facts().key_of_holder else { return one(key) };
        // An index that is not known is at least of its table. A space that is not one server's
        // alone is nobody's, whichever of them knows the index.
        let of_holder = one(key_of_holder(key))?;
        one(key).or(Some(of_holder))
    }
}
