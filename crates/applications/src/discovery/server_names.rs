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

/// The names of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerNames {
    engine: Engine,
    instance: String,
    start_bytes: u64,
    /// See [`ServerNames::all`].
    names: BTreeMap<(u32, u64), Name>,
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

impl ServerNames {
    /// None yet, for an application whose data directory is known; `None` for one that cannot be
    /// asked.
    #[must_use]
    pub fn of(application: &Application) -> Option<ServerNames> {
        let instance = application.instance.clone().filter(|_| application.engine.facts().server.is_some())?;
        Some(ServerNames {
            engine: application.engine,
            instance,
            start_bytes: application.start_bytes,
            names: BTreeMap::new(),
            databases: BTreeMap::new(),
        })
    }

    /// Takes an index of InnoDB in. `table` is as InnoDB writes it (`shop/odd@0020name`), and
    /// `is_clustered` says whether the rows are in it.
    pub fn index(&mut self, (space, index): (u32, u64), is_clustered: bool, table: &str, name: &str) {
        let (database, table) = name_of_table(table);
        let kind = match (&database, is_clustered) {
            (None, _) => ObjectKind::Dictionary,
            (Some(_), true) => ObjectKind::Table,
            (Some(_), false) => ObjectKind::Index,
        };
        let key = NativeKey(space, index);
        self.put((space, index), Name { key, database, schema: None, table: Some(table), index: Some(name.to_owned()), kind, root: None });
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

    /// Whether they are of this server of the file system that begins there.
    pub(super) fn are_of(&self, server: &Server, start_bytes: u64) -> bool {
        self.engine == server.engine && self.start_bytes == start_bytes && self.instance == shown(&server.instance)
    }

    /// All names: those of InnoDB by space and index, those of PostgreSQL by database and file.
    pub(crate) fn all(&self) -> &BTreeMap<(u32, u64), Name> {
        &self.names
    }

    /// The names of databases of PostgreSQL, by oid.
    pub(crate) fn databases(&self) -> &BTreeMap<u32, String> {
        &self.databases
    }

    /// How an object is called; `None` if they have no name for it.
    fn name_of(&self, key: &Key) -> Option<String> {
        match key {
            Key::Index { space, index } => Some(self.names.get(&(*space, *index))?.full(None)),
            Key::Relation { database, file } => {
                let of = self.databases.get(database).map(String::as_str);
                Some(self.names.get(&(*database, u64::from(*file)))?.full(of))
            }
            Key::Space(_) | Key::Unit { .. } | Key::Kind(_) | Key::File(_) => None,
        }
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
            let told = self.name_of(&object.key).map(|told| shown(&told));
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
