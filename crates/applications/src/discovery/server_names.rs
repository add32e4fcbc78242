//! Names that a server gave itself, on request: they complete and correct what its dictionary on
//! the volume tells, which may be encrypted, damaged, or behind what the server has in memory.
//!
//! They are for objects whose files, or whose tablespaces, lie on the volume; others are not made.

use super::found::{Application, Found, Key, ObjectKind, renamed};
use super::innodb::index_name;
use super::objects::{kind_of, shown};
use super::postgres::full_name;
use super::servers::Server;
use crate::naming::{Name, NativeKey, ObjectKind as Named, innodb_name};
use crate::page::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names of a server at most: several times what a volume's objects may be.
pub const SERVER_NAMES_MAX: usize = 1 << 18;
/// Databases that every server has, with objects that are equal in all of them.
const OF_ALL_SERVERS: [&str; 4] = ["mysql", "sys", "performance_schema", "information_schema"];

/// The names of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerNames {
    engine: Engine,
    instance: String,
    start_bytes: u64,
    innodb: BTreeMap<(u32, u64), Name>,
    relations: BTreeMap<(u32, u32), Name>,
    databases: BTreeMap<u32, String>,
}

/// A relation of PostgreSQL as its server names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedRelation<'a> {
    /// Oid of its database, 0 for what all share.
    pub database: u32,
    /// `relfilenode`.
    pub file: u32,
    /// The name of its database.
    pub of: Option<&'a str>,
    /// Its schema.
    pub schema: &'a str,
    /// The table that it is, or is of.
    pub table: &'a str,
    /// Its own name, if it is an index.
    pub index: Option<&'a str>,
    /// What it is.
    pub kind: Named,
}

/// How names of a server fit what was found on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreement {
    /// Objects that both know by one name.
    pub alike: usize,
    /// Objects that have another name on the volume, or none at the server.
    pub unlike: usize,
}

impl Agreement {
    /// Whether this cannot be the server that the objects are of: changes since the server last
    /// wrote its dictionary down make some objects differ, not most of them.
    #[must_use]
    pub fn is_another_server(&self) -> bool {
        self.unlike >= 3 && self.unlike > self.alike
    }
}

impl ServerNames {
    /// None yet, for an application whose data directory is known; `None` for one that cannot be
    /// asked.
    #[must_use]
    pub fn of(application: &Application) -> Option<ServerNames> {
        let known = matches!(application.engine, Engine::Innodb | Engine::Postgres);
        let instance = application.instance.clone().filter(|_| known)?;
        Some(ServerNames {
            engine: application.engine,
            instance,
            start_bytes: application.start_bytes,
            innodb: BTreeMap::new(),
            relations: BTreeMap::new(),
            databases: BTreeMap::new(),
        })
    }

    /// Takes an index of InnoDB in. `table` is as InnoDB writes it (`shop/odd@0020name`), and
    /// `is_clustered` says whether the rows are in it.
    pub fn index(&mut self, (space, index): (u32, u64), is_clustered: bool, table: &str, name: &str) {
        if self.innodb.len() >= SERVER_NAMES_MAX {
            return;
        }
        let (database, table) = innodb_name(table);
        let kind = match (&database, is_clustered) {
            (None, _) => Named::Dictionary,
            (Some(_), true) => Named::Table,
            (Some(_), false) => Named::Index,
        };
        let key = NativeKey::Innodb(space, index);
        let name = Name { key, database, schema: None, table: Some(table), index: Some(name.to_owned()), kind, root: None };
        self.innodb.insert((space, index), name);
    }

    /// Takes a relation of PostgreSQL in.
    pub fn relation(&mut self, relation: &NamedRelation<'_>) {
        if self.relations.len() >= SERVER_NAMES_MAX {
            return;
        }
        if let Some(of) = relation.of {
            self.databases.entry(relation.database).or_insert_with(|| of.to_owned());
        }
        let name = Name {
            key: NativeKey::Postgres(relation.file),
            database: None,
            schema: Some(relation.schema.to_owned()),
            table: Some(relation.table.to_owned()),
            index: relation.index.map(str::to_owned),
            kind: relation.kind,
            root: None,
        };
        self.relations.insert((relation.database, relation.file), name);
    }

    /// Whether they are of this server of the file system that begins there.
    pub(super) fn are_of(&self, server: &Server, start_bytes: u64) -> bool {
        self.engine == server.engine && self.start_bytes == start_bytes && self.instance == shown(&server.instance)
    }

    pub(super) fn innodb(&self) -> &BTreeMap<(u32, u64), Name> {
        &self.innodb
    }

    /// The relations of a database, by file.
    pub(super) fn relations(&self, database: u32) -> impl Iterator<Item = (u32, &Name)> {
        self.relations.range((database, 0)..=(database, u32::MAX)).map(|((_, file), name)| (*file, name))
    }

    pub(super) fn databases(&self) -> &BTreeMap<u32, String> {
        &self.databases
    }

    /// How they fit the objects of an application. Where names of what was found are hidden, `rename`
    /// is what [`Found::renamed`] was given.
    #[must_use]
    pub fn agreement(&self, found: &Found, application: &Application, rename: Option<&dyn Fn(&str) -> String>) -> Agreement {
        let of_all: BTreeSet<String> =
            OF_ALL_SERVERS.into_iter().map(|name| rename.map_or_else(|| name.to_owned(), |rename| rename(name))).collect();
        let mut agreement = Agreement::default();
        let is_own = |kind: ObjectKind| matches!(kind, ObjectKind::Table | ObjectKind::Index | ObjectKind::Toast);
        let objects = found.objects.iter().filter(|object| object.application == application.id && object.evidence.catalogue);
        for object in objects.filter(|object| is_own(object.kind)) {
            if object.database.as_ref().is_none_or(|database| of_all.contains(database)) {
                continue;
            }
            let told = match &object.key {
                Key::Index { space, index } => self.innodb.get(&(*space, *index)).map(index_name),
                Key::Relation { database, file } => {
                    let of = self.databases.get(database).map(String::as_str);
                    self.relations.get(&(*database, *file)).map(|name| full_name(of, name))
                }
                _ => continue,
            };
            let told = told.map(|told| shown(&told));
            let told = told.map(|told| rename.map_or(told.clone(), |rename| renamed(&told, object.kind, rename)));
            match told.is_some_and(|told| told == object.name) {
                true => agreement.alike += 1,
                false => agreement.unlike += 1,
            }
        }
        agreement
    }
}

/// The names for a server, if it gave some.
pub(super) fn of_server<'a>(all: &'a Arc<Vec<ServerNames>>, server: &Server, start_bytes: u64) -> Option<&'a ServerNames> {
    all.iter().find(|names| names.are_of(server, start_bytes))
}

/// What a dictionary called its own is the same by whoever tells it.
pub(super) fn complete(names: &mut BTreeMap<(u32, u64), Name>, told: Option<&ServerNames>) {
    for (key, name) in told.into_iter().flat_map(ServerNames::innodb) {
        let known = names.get(key).is_some_and(|known| kind_of(known.kind, Engine::Innodb) == ObjectKind::Dictionary);
        if !known {
            names.insert(*key, name.clone());
        }
    }
}
