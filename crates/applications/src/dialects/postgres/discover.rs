//! PostgreSQL: a catalogue for each database, and one for what they share.

use super::catalogue::{self, Relations as Catalogue, SEGMENT_BYTES, Version};
use super::files::{FileRole, Fork};
use crate::discovery::{Draft, Drafts, Evidence, Findings, Key, ObjectKind, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::{Catalogue as _, Name, Wanted};
use crate::page::Native;
use crate::recognise::{pages, recognise};
use std::collections::BTreeMap;

/// Where the forks of a relation of PostgreSQL begin in its object, at multiples of this: the main one
/// can have 2^32 pages of 32 KiB, which is 2^47; but those of the usual 8 KiB end at 2^45.
pub const FORK_BYTES: u64 = 1 << 46;
/// The oid of `pg_database`, and bytes of it that are read: thousands of databases.
const PG_DATABASE: u32 = 1262;
const PG_DATABASE_BYTES: u64 = 1 << 20;
/// Bytes of `pg_filenode.map` at most.
const MAP_BYTES: u64 = 4096;

/// Files by database and `relfilenode`.
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
            match FileRole::of_file(&file) {
                Some(FileRole::Relation { database, file: number, .. }) => {
                    files.relations.entry((database, number)).or_default().push(file)
                }
                Some(FileRole::FilenodeMap { database }) => drop(files.maps.insert(database, file)),
                Some(FileRole::Wal | FileRole::WalElsewhere) => files.logs.push(file),
                Some(FileRole::Temporary) => files.temporary.push(file),
                Some(FileRole::Version | FileRole::Control { .. }) | None => {}
            }
        }
        files
    }
}

/// Finds the objects of a server.
pub(super) async fn discover(source: &mut Source<'_>, server: Server, findings: Findings<'_>) {
    let Findings { application, drafts, told } = findings;
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
    if let Some(release) = server.version {
        version = Some(format!("PostgreSQL {release}"));
    }
    let mut databases = databases(source, &relations, &maps).await;
    databases.extend(told.into_iter().flat_map(|told| told.list().databases()));
    let told_of = |database| {
        let of_database = told.into_iter().flat_map(move |told| told.list().of_database(database));
        of_database.map(|(file, name)| (file, name.clone()))
    };
    let mut numbers: Vec<u32> = relations.keys().map(|(database, _)| *database).filter(|database| *database != 0).collect();
    numbers.dedup();
    // What databases share is named in each of them: the first that can be read tells.
    let mut shared: BTreeMap<u32, Name> = BTreeMap::new();
    for database in numbers {
        let mut catalogue = Catalogue::default();
        let files = relations.range((database, 0)..=(database, u32::MAX)).flat_map(|(_, files)| files);
        evidence.pages |= source.read_names(&mut catalogue, &maps.get(&database).into_iter().chain(files).collect::<Vec<_>>()).await;
        let mut names = by_file(catalogue.names());
        names.extend(told_of(database));
        for (file, name) in by_file(catalogue.names_before()) {
            let is_used = || relations.get(&(database, file)).is_some_and(|files| files.iter().any(|file| file.bytes > 0));
            if !names.contains_key(&file) && is_used() {
                names.insert(file, name);
            }
        }
        evidence.catalogue |= !names.is_empty();
        if shared.is_empty()
            && let Some(map) = maps.get(&0)
        {
            source.feed(&mut catalogue, map, &Wanted::first(0, MAP_BYTES, map)).await;
            shared = by_file(catalogue.names()).into_iter().filter(|(file, _)| relations.contains_key(&(0, *file))).collect();
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
    let is_shared = |file: &&DataFile| {
        matches!(FileRole::of_file(file), Some(FileRole::Relation { database: 0, .. } | FileRole::FilenodeMap { database: 0 }))
    };
    let Files { relations, maps, .. } = Files::of(files.iter().filter(is_shared).cloned().collect());
    databases(source, &relations, &maps).await.into_keys().collect()
}

/// Names of databases by their oid.
async fn databases(source: &mut Source<'_>, relations: &Relations, maps: &BTreeMap<u32, DataFile>) -> BTreeMap<u32, String> {
    let mut catalogue = Catalogue::default();
    if let Some(map) = maps.get(&0) {
        source.feed(&mut catalogue, map, &Wanted::first(0, MAP_BYTES, map)).await;
    }
    let number = catalogue.mapped_file(PG_DATABASE).unwrap_or(PG_DATABASE);
    let (mut databases, mut replaced) = (BTreeMap::new(), BTreeMap::new());
    let Some(file) = relations.get(&(0, number)).and_then(|files| files.iter().find(|file| is_first(file))) else { return databases };
    let mut at = 0;
    while at < file.bytes.min(PG_DATABASE_BYTES) {
        let Some(bytes) = source.file(file, at..file.bytes).await else { break };
        for (offset, page) in pages(&bytes) {
            if let (Native::Postgres(identity), Some(page)) = (page.native, bytes.get(offset..offset + page.size_bytes as usize)) {
                let number = (at + offset as u64) / page.len().max(1) as u64;
                for (version, (oid, name)) in catalogue::databases(&identity, page, number) {
                    if version == Version::Newest { &mut databases } else { &mut replaced }.insert(oid, name);
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
    matches!(FileRole::of_file(file), Some(FileRole::Relation { segment: 0, fork: Fork::Main, .. }))
}

fn by_file(names: Vec<Name>) -> BTreeMap<u32, Name> {
    names.into_iter().filter_map(|name| Some((u32::try_from(name.key.1).ok()?, name))).collect()
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
    let mut files: Vec<_> = files.into_iter().map(|file| (start_bytes(&file), file)).collect();
    files.sort_by_key(|(place, _)| *place);
    let bytes = files.iter().fold(0u64, |bytes, (_, file)| bytes.saturating_add(file.bytes));
    let kind = name.map_or(ObjectKind::Unknown, |name| name.kind);
    let unnamed = || database.map_or_else(String::new, |database| format!("{database}/")) + &format!("relation {file}");
    let name_of_all = name.map_or_else(unnamed, |name| name.full(database));
    let evidence = Evidence { file: true, pages: false, catalogue: name.is_some() };
    drafts.put(Draft {
        database: database.map(str::to_owned),
        files,
        bytes,
        ..Draft::new(application, kind, name_of_all, Key::Relation { database: number, file }, evidence)
    });
}

/// Where a file begins in its object.
fn start_bytes(file: &DataFile) -> u64 {
    let Some(FileRole::Relation { fork, segment, .. }) = FileRole::of_file(file) else { return 0 };
    let fork = match fork {
        Fork::Main => 0,
        Fork::FreeSpaceMap => 1,
        Fork::VisibilityMap => 2,
        Fork::Init => 3,
    };
    fork * FORK_BYTES + u64::from(segment) * SEGMENT_BYTES
}
