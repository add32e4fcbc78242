//! PostgreSQL: a catalogue for each database, and one for what they share.

use super::found::{Evidence, Key, ObjectKind};
use super::innodb::feed;
use super::objects::{Draft, Drafts, kind_of};
use super::server_names::ServerNames;
use super::servers::Server;
use super::source::Source;
use crate::filesystems::{DataFile, Fork, Role};
use crate::naming::{Dictionary, Name, NativeKey, RowVersion, postgres_databases};
use crate::page::{Engine, Native};
use crate::recognise::{pages, recognise};
use std::collections::BTreeMap;

/// Bytes of a file of a relation before the next one begins (`RELSEG_SIZE` times the page size).
const SEGMENT_BYTES: u64 = 1 << 30;
/// Where the forks of a relation of PostgreSQL begin in its object, at multiples of this: the main one
/// can have 2^32 pages of 32 KiB, which is 2^47; but those of the usual 8 KiB end at 2^45.
pub const FORK_BYTES: u64 = 1 << 46;
/// The oid of `pg_database`, and bytes of it that are read: thousands of databases.
const PG_DATABASE: u32 = 1262;
const PG_DATABASE_BYTES: u64 = 1 << 20;
/// Rounds in which a dictionary asks for files.
const ROUNDS: u8 = 3;

type Relations = BTreeMap<(u32, u32), Vec<DataFile>>;

/// The files of a server, by what they are for.
#[derive(Default)]
struct Files {
    relations: Relations,
    /// By database, 0 for what all share.
    maps: BTreeMap<u32, DataFile>,
    logs: Vec<DataFile>,
    temporary: Vec<DataFile>,
}

impl Files {
    fn of(all: Vec<DataFile>) -> Files {
        let mut files = Files::default();
        for file in all {
            match file.role {
                Role::PostgresRelation { database, file: number, .. } => files.relations.entry((database, number)).or_default().push(file),
                Role::PostgresFilenodeMap { database } => drop(files.maps.insert(database, file)),
                Role::PostgresWal | Role::PostgresWalElsewhere => files.logs.push(file),
                Role::PostgresTemporary => files.temporary.push(file),
                _ => {}
            }
        }
        files
    }
}

/// Finds the objects of a server.
pub(super) async fn discover(source: &mut Source<'_>, server: Server, application: usize, drafts: &mut Drafts, told: Option<&ServerNames>) {
    let Files { mut relations, maps, logs, temporary } = Files::of(server.files);
    let mut evidence = Evidence { file: true, ..Evidence::default() };
    let mut version = None;
    if let Some(log) = logs.first()
        && let Some(bytes) = source.file(log, 0..8192).await
        && let Some(Native::Wal(identity)) = recognise(&bytes).map(|page| page.native)
    {
        evidence.pages = true;
        version = identity.version().map(|version| format!("PostgreSQL {version}"));
    }
    if let Some(told) = server.version {
        version = Some(format!("PostgreSQL {told}"));
    }
    let mut databases = databases(source, &relations, &maps).await;
    databases.extend(told.into_iter().flat_map(ServerNames::databases).map(|(oid, name)| (*oid, name.clone())));
    let told_of = |database| told.into_iter().flat_map(move |told| told.relations(database)).map(|(file, name)| (file, name.clone()));
    let mut numbers: Vec<u32> = relations.keys().map(|(database, _)| *database).filter(|database| *database != 0).collect();
    numbers.dedup();
    // What databases share is named in each of them: the first that can be read tells.
    let mut shared: BTreeMap<u32, Name> = BTreeMap::new();
    for database in numbers {
        let mut dictionary = catalogue(source, &relations, maps.get(&database), database, &mut evidence).await;
        let mut names = by_file(dictionary.names());
        names.extend(told_of(database));
        for (file, name) in by_file(dictionary.postgres_names_before()) {
            let is_used = || relations.get(&(database, file)).is_some_and(|files| files.iter().any(|file| file.bytes > 0));
            if !names.contains_key(&file) && is_used() {
                names.insert(file, name);
            }
        }
        evidence.catalogue |= !names.is_empty();
        if shared.is_empty()
            && let Some(map) = maps.get(&0)
        {
            feed(source, &mut dictionary, map, 0..map.bytes.min(4096), Engine::Postgres).await;
            shared = by_file(dictionary.names()).into_iter().filter(|(file, _)| relations.contains_key(&(0, *file))).collect();
        }
        let of_database = relations.extract_if((database, 0)..=(database, u32::MAX), |_, _| true);
        let name = databases.get(&database).cloned().unwrap_or_else(|| format!("database {database}"));
        for ((_, file), files) in of_database {
            put(drafts, application, Some(&name), (database, file), files, names.get(&file));
        }
    }
    shared.extend(told_of(0));
    for ((database, file), files) in relations {
        put(drafts, application, None, (database, file), files, shared.get(&file));
    }
    drafts.put_kind(application, ObjectKind::Wal, logs);
    drafts.put_kind(application, ObjectKind::Temporary, temporary);
    let found = &mut drafts.applications[application];
    (found.version, found.evidence) = (version, evidence);
}

/// Oids of the databases of a server with these files, those in tablespaces too.
pub(super) async fn databases_in(source: &mut Source<'_>, files: &[DataFile]) -> Vec<u32> {
    let is_shared =
        |file: &&DataFile| matches!(file.role, Role::PostgresRelation { database: 0, .. } | Role::PostgresFilenodeMap { database: 0 });
    let Files { relations, maps, .. } = Files::of(files.iter().filter(is_shared).cloned().collect());
    databases(source, &relations, &maps).await.into_keys().collect()
}

/// Names of databases by their oid.
async fn databases(source: &mut Source<'_>, relations: &Relations, maps: &BTreeMap<u32, DataFile>) -> BTreeMap<u32, String> {
    let mut dictionary = Dictionary::new();
    if let Some(map) = maps.get(&0) {
        feed(source, &mut dictionary, map, 0..map.bytes.min(4096), Engine::Postgres).await;
    }
    let number = dictionary.postgres_file(PG_DATABASE).unwrap_or(PG_DATABASE);
    let (mut databases, mut replaced) = (BTreeMap::new(), BTreeMap::new());
    let Some(file) = relations.get(&(0, number)).and_then(|files| files.iter().find(|file| is_first(file))) else { return databases };
    let mut at = 0;
    while at < file.bytes.min(PG_DATABASE_BYTES) {
        let Some(bytes) = source.file(file, at..file.bytes).await else { break };
        for (offset, page) in pages(&bytes) {
            if let (Native::Postgres(identity), Some(page)) = (page.native, bytes.get(offset..offset + page.size_bytes as usize)) {
                let number = (at + offset as u64) / page.len().max(1) as u64;
                for (version, (oid, name)) in postgres_databases(&identity, page, number) {
                    if version == RowVersion::Newest { &mut databases } else { &mut replaced }.insert(oid, name);
                }
            }
        }
        at += bytes.len().next_multiple_of(512) as u64;
    }
    for (oid, name) in replaced {
        databases.entry(oid).or_insert(name);
    }
    databases
}

fn is_first(file: &DataFile) -> bool {
    matches!(file.role, Role::PostgresRelation { segment: 0, fork: Fork::Main, .. })
}

/// The catalogue of a database.
async fn catalogue(
    source: &mut Source<'_>,
    relations: &Relations,
    map: Option<&DataFile>,
    database: u32,
    evidence: &mut Evidence,
) -> Dictionary {
    let mut dictionary = Dictionary::new();
    for round in 0..ROUNDS {
        let files = relations.range((database, 0)..=(database, u32::MAX)).flat_map(|(_, files)| files);
        for file in map.into_iter().chain(files) {
            if let Some(wanted) = dictionary.wants(file).filter(|wanted| wanted.round == round) {
                evidence.pages |= feed(source, &mut dictionary, file, wanted.range, Engine::Postgres).await;
            }
        }
    }
    dictionary
}

fn by_file(names: impl Iterator<Item = Name>) -> BTreeMap<u32, Name> {
    let by_file = |name: Name| match name.key {
        NativeKey::Postgres(file) => Some((file, name)),
        _ => None,
    };
    names.filter_map(by_file).collect()
}

/// A relation with its files.
fn put(
    drafts: &mut Drafts,
    application: usize,
    database: Option<&str>,
    (number, file): (u32, u32),
    files: Vec<DataFile>,
    name: Option<&Name>,
) {
    let mut files: Vec<_> = files.into_iter().map(|file| (place(file.role), file)).collect();
    files.sort_by_key(|(place, _)| *place);
    let bytes = files.iter().fold(0u64, |bytes, (_, file)| bytes.saturating_add(file.bytes));
    let kind = name.map_or(ObjectKind::Unknown, |name| kind_of(name.kind, Engine::Postgres));
    let unnamed = || database.map_or_else(String::new, |database| format!("{database}/")) + &format!("relation {file}");
    let name_of_all = name.map_or_else(unnamed, |name| full_name(database, name));
    drafts.put(Draft {
        application,
        database: database.map(str::to_owned),
        kind,
        name: name_of_all,
        key: Key::Relation { database: number, file },
        within: None,
        files,
        bytes,
        encrypted: false,
        evidence: Evidence { file: true, pages: false, catalogue: name.is_some() },
        domain: None,
    });
}

/// Where a file begins in its object.
fn place(role: Role) -> u64 {
    let Role::PostgresRelation { fork, .. } = role else { return 0 };
    let fork = match fork {
        Fork::Main => 0,
        Fork::FreeSpaceMap => 1,
        Fork::VisibilityMap => 2,
        Fork::Init => 3,
    };
    fork * FORK_BYTES + segment_start_bytes(role)
}

/// Where a file begins in its fork.
pub(super) fn segment_start_bytes(role: Role) -> u64 {
    let Role::PostgresRelation { segment, .. } = role else { return 0 };
    u64::from(segment) * SEGMENT_BYTES
}

/// `shop/public.orders`, and without the database where it is in none.
pub(super) fn full_name(database: Option<&str>, name: &Name) -> String {
    let own = relation_name(name);
    database.map_or_else(|| own.clone(), |database| format!("{database}/{own}"))
}

/// `public.orders`, `public.orders/orders_pkey`, `pg_toast.orders` (the long values of that table).
fn relation_name(name: &Name) -> String {
    let mut text = name.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
    text += name.table.as_deref().unwrap_or("?");
    if let Some(index) = &name.index {
        text = format!("{text}/{index}");
    }
    text
}
