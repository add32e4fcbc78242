//! Names that a server gave itself, on request: they complete and correct what its dictionary on
//! the volume tells, which may be encrypted, damaged, or behind what the server has in memory.
//!
//! They are for objects whose files, or whose tablespaces, lie on the volume; others are not made.

use super::found::{Application, Found, Key, renamed};
use super::homes::Server;
use super::objects::shown;
use crate::innodb::name_of_table;
use crate::naming::{Name, NativeKey};
use crate::{Engine, ObjectKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names of a server at most: several times what a volume's objects may be.
pub const SERVER_NAMES_MAX: usize = 1 << 18;

/// Names from the catalogue of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NameList {
    /// By space and index of InnoDB, by database and file of PostgreSQL.
    names: BTreeMap<(u32, u64), Name>,
    /// The names of databases of PostgreSQL, by oid.
    databases: BTreeMap<u32, String>,
}

/// The names of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerNames {
    engine: Engine,
    instance: String,
    start_bytes: u64,
    list: NameList,
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
    pub kind: ObjectKind,
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

impl NameList {
    /// Takes an index of InnoDB in. `table` is as InnoDB writes it (`shop/odd@0020name`),
    /// `is_clustered` says whether the rows are in it, `root` is the page of its root.
    pub fn index(&mut self, (space, index): (u32, u64), is_clustered: bool, table: &str, name: &str, root: Option<u32>) {
        let (database, table) = name_of_table(table);
        let kind = match (&database, is_clustered) {
            (None, _) => ObjectKind::Dictionary,
            (Some(_), true) => ObjectKind::Table,
            (Some(_), false) => ObjectKind::Index,
        };
        let key = NativeKey(space, index);
        self.put((space, index), Name { key, database, schema: None, table: Some(table), index: Some(name.to_owned()), kind, root });
    }

    /// Takes a relation of PostgreSQL in.
    pub fn relation(&mut self, relation: &NamedRelation<'_>) {
        if let Some(of) = relation.of {
            self.databases.entry(relation.database).or_insert_with(|| of.to_owned());
        }
        let name = Name {
            key: NativeKey(0, relation.file.into()),
            database: None,
            schema: Some(relation.schema.to_owned()),
            table: Some(relation.table.to_owned()),
            index: relation.index.map(str::to_owned),
            kind: relation.kind,
            root: None,
        };
        self.put((relation.database, relation.file.into()), name);
    }

    fn put(&mut self, key: (u32, u64), name: Name) {
        if self.names.len() < SERVER_NAMES_MAX {
            self.names.insert(key, name);
        }
    }

    /// Takes those of another list in that this one does not have.
    pub fn complete(&mut self, other: NameList) {
        for (key, name) in other.names {
            if !self.names.contains_key(&key) {
                self.put(key, name);
            }
        }
        self.databases.extend(other.databases);
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All of them: those of InnoDB by space and index, those of PostgreSQL by database and file.
    pub fn iter(&self) -> impl Iterator<Item = ((u32, u64), &Name)> {
        self.names.iter().map(|(key, name)| (*key, name))
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, space: u32, id: u64) -> Option<&Name> {
        self.names.get(&(space, id))
    }

    /// Those of relations of a database of PostgreSQL, by file.
    pub(crate) fn of_database(&self, oid: u32) -> impl Iterator<Item = (u32, &Name)> {
        self.names.range((oid, 0)..=(oid, u64::MAX)).map(|((_, file), name)| (*file as u32, name))
    }

    /// The name of a database of PostgreSQL.
    #[must_use]
    pub fn database(&self, oid: u32) -> Option<&str> {
        self.databases.get(&oid).map(String::as_str)
    }

    /// Databases of PostgreSQL, by oid.
    pub(crate) fn databases(&self) -> impl Iterator<Item = (u32, String)> {
        self.databases.iter().map(|(oid, name)| (*oid, name.clone()))
    }

    /// How an object is called; `None` if they have no name for it.
    fn name_of(&self, key: &Key) -> Option<String> {
        match key {
            Key::Index { space, index } => Some(self.get(*space, *index)?.full(None)),
            Key::Relation { database, file } => Some(self.get(*database, u64::from(*file))?.full(self.database(*database))),
            Key::Space(_) | Key::Unit { .. } | Key::Kind(_) | Key::File(_) => None,
        }
    }
}

impl ServerNames {
    /// Those of the server of an application; `None` for one whose data directory is not known, or that cannot be asked.
    #[must_use]
    pub fn of(application: &Application, list: NameList) -> Option<ServerNames> {
        let instance = application.instance.clone().filter(|_| application.engine.facts().server.is_some())?;
        Some(ServerNames { engine: application.engine, instance, start_bytes: application.start_bytes, list })
    }

    /// All of them.
    pub(crate) fn list(&self) -> &NameList {
        &self.list
    }

    /// Whether they are of this server of the file system that begins there.
    pub(super) fn are_of(&self, server: &Server, start_bytes: u64) -> bool {
        self.engine == server.engine && self.start_bytes == start_bytes && self.instance == shown(&server.instance)
    }

    /// How they fit the objects of an application. Where names of what was found are hidden, `rename`
    /// is what [`Found::renamed`] was given.
    #[must_use]
    pub fn agreement(&self, found: &Found, application: &Application, rename: Option<&dyn Fn(&str) -> String>) -> Agreement {
        let own_databases = application.engine.facts().own_databases;
        let of_all: BTreeSet<String> =
            own_databases.iter().map(|name| rename.map_or_else(|| (*name).to_owned(), |rename| rename(name))).collect();
        let mut agreement = Agreement::default();
        let is_own = |kind: ObjectKind| matches!(kind, ObjectKind::Table | ObjectKind::Index | ObjectKind::Toast);
        let objects = found.objects.iter().filter(|object| object.application == application.id && object.evidence.catalogue);
        for object in objects.filter(|object| is_own(object.kind)) {
            if object.database.as_ref().is_none_or(|database| of_all.contains(database)) {
                continue;
            }
            let told = self.list.name_of(&object.key).map(|told| shown(&told));
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
