//! Which cluster files belong to that do not lie in its data directory.
//!
//! A tablespace belongs to the cluster of its version that has its databases; a directory of log
//! segments to the cluster whose number stands in them.

use super::discover::databases_in;
use super::files::{FileRole, data_directory};
use crate::Engine;
use crate::bytes::{le32, le64};
use crate::dialects::{Home, Places, up};
use crate::discovery::{Server, Source};
use crate::filesystems::DataFile;
use crate::page::Native;
use crate::recognise::recognise;
use std::collections::{BTreeMap, BTreeSet};

/// Catalogue versions are dates with a number of the day: 2010 to 2099.
const CATALOGUES: std::ops::RangeInclusive<u32> = 201_000_000..=209_999_999;
/// Bytes of a page of the log, and files of a directory that are looked at until one is of a log.
const LOG_BYTES: u64 = 8192;
const LOGS_TRIED: usize = 4;

/// What a data directory of PostgreSQL says of its cluster.
#[derive(Default, Debug)]
struct Cluster {
    /// `15`, as `PG_VERSION` has it.
    version: Option<String>,
    /// The version of its catalogue.
    catalogue: Option<u32>,
    /// The number that it was given when it was made.
    system: Option<u64>,
    /// Whether it has the file without which none starts; `None` where neither that nor what
    /// `pg_upgrade` makes of it is there.
    can_start: Option<bool>,
    /// When that file was written last, in seconds since 1970.
    written_s: u64,
    databases: BTreeSet<u32>,
    has_logs: bool,
}

/// What the name of a tablespace's directory says: `PG_15_202209061`.
struct Space<'a> {
    version: &'a str,
    catalogue: Option<u32>,
}

/// The data directories of clusters with all that is theirs, and what stays by itself.
pub(super) async fn homes(source: &mut Source<'_>, files: Vec<DataFile>) -> Vec<Home> {
    let mut places = Places::new();
    for file in files {
        let Some(role) = FileRole::of_file(&file) else { continue };
        places.entry(data_directory(&file.path, role).to_owned()).or_default().push(file);
    }
    let mut clusters = BTreeMap::new();
    let has_spaces = places.keys().any(|place| space(place).is_some());
    for (place, files) in &places {
        if space(place).is_none() && !is_logs(files) {
            clusters.insert(place.clone(), cluster(source, files, has_spaces).await);
        }
    }
    bring_spaces_home(&mut places, &clusters);
    bring_logs_home(source, &mut places, &clusters).await;
    let mut homes = Home::of_each(places);
    for home in &mut homes {
        if let Some(cluster) = clusters.remove(&home.place) {
            (home.version, home.can_start, home.written_s) = (cluster.version, cluster.can_start, cluster.written_s);
        } else if let Some(space) = space(&home.place) {
            home.version = Some(space.version.to_owned());
        }
    }
    homes
}

/// The servers of homes. A tablespace by itself is known by the directory above its own, if it is the only one there.
pub(super) fn servers(mut homes: Vec<Home>) -> Vec<Server> {
    // What says nothing but that a server was here.
    let is_mark = |file: &DataFile| matches!(FileRole::of_file(file), Some(FileRole::Version | FileRole::Control { .. }));
    homes.retain(|home| !home.files.iter().all(is_mark));
    let mut beside: BTreeMap<String, u32> = BTreeMap::new();
    for home in homes.iter().filter(|home| space(&home.place).is_some()) {
        *beside.entry(up(&home.place).to_owned()).or_default() += 1;
    }
    let server = |mut home: Home| {
        if space(&home.place).is_some() && beside.get(up(&home.place)) == Some(&1) {
            home.place = up(&home.place).to_owned();
        }
        home.server(Engine::Postgres)
    };
    homes.into_iter().map(server).collect()
}

/// What a data directory says; `with_databases` also those that have no file in it.
async fn cluster(source: &mut Source<'_>, files: &[DataFile], with_databases: bool) -> Cluster {
    let mut cluster = Cluster::default();
    for file in files {
        match FileRole::of_file(file) {
            Some(FileRole::Version) => cluster.version = source.file(file, 0..16).await.as_deref().and_then(version),
            Some(FileRole::Control { is_in_place }) => {
                cluster.can_start = Some(is_in_place || cluster.can_start == Some(true));
                if let Some(bytes) = source.file(file, 0..512).await.filter(|bytes| CATALOGUES.contains(&le32(bytes, 12))) {
                    (cluster.system, cluster.catalogue) = (Some(le64(&bytes, 0)), Some(le32(&bytes, 12)));
                    cluster.written_s = le64(&bytes, 24);
                }
            }
            Some(FileRole::Relation { database, .. }) => drop(cluster.databases.insert(database)),
            Some(FileRole::Wal) => cluster.has_logs = true,
            Some(FileRole::FilenodeMap { .. } | FileRole::WalElsewhere | FileRole::Temporary) | None => {}
        }
    }
    if with_databases {
        cluster.databases.extend(databases_in(source, files).await);
    }
    cluster
}

/// The text of `PG_VERSION`: `15`, `9.6`.
fn version(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let is_version = !text.is_empty() && text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_version.then(|| text.to_owned())
}

/// What the path of a directory says if it is that of a tablespace.
fn space(place: &str) -> Option<Space<'_>> {
    let name = place.rsplit('/').next()?.strip_prefix("PG_")?;
    let (version, catalogue) = name.split_once('_').unwrap_or((name, ""));
    Some(Space { version, catalogue: catalogue.parse().ok() })
}

fn is_logs(files: &[DataFile]) -> bool {
    files.iter().all(|file| FileRole::of_file(file) == Some(FileRole::WalElsewhere))
}

/// The only one of several clusters; of those that cannot start only where no other is left.
fn only<'a>(found: &[(&'a String, &Cluster)]) -> Option<&'a String> {
    let alive: Vec<_> = found.iter().filter(|(_, cluster)| cluster.can_start != Some(false)).collect();
    match (&found, &alive[..]) {
        ([(place, _)], _) | (_, [(place, _)]) => Some(place),
        _ => None,
    }
}

/// Puts tablespaces to the only cluster of their version that has their databases; where there are
/// several, or none, they stay by themselves.
fn bring_spaces_home(places: &mut Places, clusters: &BTreeMap<String, Cluster>) {
    let database = |file: &DataFile| match FileRole::of_file(file)? {
        FileRole::Relation { database, .. } => Some(database),
        _ => None,
    };
    for place in places.keys().cloned().collect::<Vec<_>>() {
        let Some(space) = space(&place) else { continue };
        let wanted: BTreeSet<u32> = places.get(&place).into_iter().flatten().filter_map(database).collect();
        // Whether what is known of both is alike; `None` if nothing is.
        let is_alike = |cluster: &Cluster| {
            let of_catalogue = space.catalogue.zip(cluster.catalogue).map(|(one, other)| one == other);
            of_catalogue.or_else(|| cluster.version.as_deref().map(|version| version == space.version))
        };
        let fits = |cluster: &Cluster| is_alike(cluster) != Some(false) && cluster.databases.is_superset(&wanted);
        let found: Vec<_> = clusters.iter().filter(|(_, cluster)| fits(cluster)).collect();
        let alike: Vec<_> = found.iter().filter(|(_, cluster)| is_alike(cluster).is_some()).copied().collect();
        if let Some(home) = only(&alike).or_else(|| only(&found)) {
            bring_home(places, &place, home);
        }
    }
}

/// Puts directories of log segments to the cluster whose number they have; one that stays alone is a
/// server of which nothing else is known. Files that are only named like segments are left out.
async fn bring_logs_home(source: &mut Source<'_>, places: &mut Places, clusters: &BTreeMap<String, Cluster>) {
    let of_logs: Vec<String> = places.iter().filter(|(_, files)| is_logs(files)).map(|(place, _)| place.clone()).collect();
    for place in of_logs {
        let Some(system) = system_of(source, &places[&place]).await else {
            places.remove(&place);
            continue;
        };
        let found: Vec<_> = clusters.iter().filter(|(_, cluster)| cluster.system == Some(system)).collect();
        let without: Vec<_> = found.iter().filter(|(_, cluster)| !cluster.has_logs).copied().collect();
        if let Some(home) = only(&without).or_else(|| only(&found)) {
            bring_home(places, &place, home);
        }
    }
}

/// The number of the cluster whose log these files are.
async fn system_of(source: &mut Source<'_>, files: &[DataFile]) -> Option<u64> {
    for file in files.iter().take(LOGS_TRIED) {
        if let Some(bytes) = source.file(file, 0..LOG_BYTES).await
            && let Some(Native::Wal(identity)) = recognise(&bytes).map(|page| page.native)
            && identity.system.is_some()
        {
            return identity.system;
        }
    }
    None
}

fn bring_home(places: &mut Places, from: &str, home: &str) {
    if let Some(files) = places.remove(from) {
        places.entry(home.to_owned()).or_default().extend(files);
    }
}
