//! Which server files belong to that do not lie in its data directory, or lie in several.
//!
//! A tablespace of PostgreSQL belongs to the cluster of its version that has its databases; a
//! directory of log segments to the cluster whose number stands in them. Where hard links let several
//! servers have one file, as `pg_upgrade --link` and `cp -al` leave it, the server that can start has
//! it, and the others do not: what is read there is read by that one.

use super::postgres;
use super::servers::{Server, Servers, up};
use super::source::Source;
use crate::bytes::{le32, le64};
use crate::filesystems::{DataFile, Role};
use crate::page::{Engine, Native};
use crate::recognise::recognise;
use std::cmp::Reverse;
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

/// The servers with all that is theirs.
pub(super) async fn settle(source: &mut Source<'_>, mut servers: Servers) -> Vec<Server> {
    let mut clusters = BTreeMap::new();
    let has_spaces = servers.keys().any(|(engine, place)| *engine == Engine::Postgres && space(place).is_some());
    for ((engine, place), files) in &servers {
        if *engine == Engine::Postgres && space(place).is_none() && !is_logs(files) {
            clusters.insert(place.clone(), cluster(source, files, has_spaces).await);
        }
    }
    bring_spaces_home(&mut servers, &clusters);
    bring_logs_home(source, &mut servers, &clusters).await;
    give_one_owner(&mut servers, &clusters);
    // What says nothing but that a server was here.
    let is_mark = |file: &DataFile| matches!(file.role, Role::PostgresVersion | Role::PostgresControl { .. });
    servers.retain(|_, files| !files.iter().all(is_mark));
    let of_spaces = servers.keys().filter(|(_, place)| space(place).is_some()).map(|(_, place)| up(place).to_owned());
    let mut beside: BTreeMap<String, u32> = BTreeMap::new();
    of_spaces.for_each(|place| *beside.entry(place).or_default() += 1);
    let server = |((engine, place), mut files): ((Engine, String), Vec<DataFile>)| {
        // One order whatever the file system says, so that parts of an object follow each other.
        files.sort_unstable_by(|one, other| (one.path.len(), &one.path).cmp(&(other.path.len(), &other.path)));
        let alone = space(&place).filter(|_| engine == Engine::Postgres);
        let version = match &alone {
            Some(space) => Some(space.version.to_owned()),
            None => clusters.get(&place).and_then(|cluster| cluster.version.clone()),
        };
        let is_only = alone.is_some() && beside.get(up(&place)) == Some(&1);
        Server { engine, instance: if is_only { up(&place).to_owned() } else { place }, version, files }
    };
    servers.into_iter().map(server).collect()
}

/// What a data directory says; `with_databases` also those that have no file in it.
async fn cluster(source: &mut Source<'_>, files: &[DataFile], with_databases: bool) -> Cluster {
    let mut cluster = Cluster::default();
    for file in files {
        match file.role {
            Role::PostgresVersion => cluster.version = source.file(file, 0..16).await.as_deref().and_then(version),
            Role::PostgresControl { is_in_place } => {
                cluster.can_start = Some(is_in_place || cluster.can_start == Some(true));
                if let Some(bytes) = source.file(file, 0..512).await.filter(|bytes| CATALOGUES.contains(&le32(bytes, 12))) {
                    (cluster.system, cluster.catalogue) = (Some(le64(&bytes, 0)), Some(le32(&bytes, 12)));
                    cluster.written_s = le64(&bytes, 24);
                }
            }
            Role::PostgresRelation { database, .. } => drop(cluster.databases.insert(database)),
            Role::PostgresWal => cluster.has_logs = true,
            _ => {}
        }
    }
    if with_databases {
        cluster.databases.extend(postgres::databases_in(source, files).await);
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
    files.iter().all(|file| file.role == Role::PostgresWalElsewhere)
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
fn bring_spaces_home(servers: &mut Servers, clusters: &BTreeMap<String, Cluster>) {
    let database = |file: &DataFile| match file.role {
        Role::PostgresRelation { database, .. } => Some(database),
        _ => None,
    };
    let places: Vec<(Engine, String)> = servers.keys().filter(|key| key.0 == Engine::Postgres).cloned().collect();
    for key in places {
        let Some(space) = space(&key.1) else { continue };
        let wanted: BTreeSet<u32> = servers.get(&key).into_iter().flatten().filter_map(database).collect();
        // Whether what is known of both is alike; `None` if nothing is.
        let is_alike = |cluster: &Cluster| {
            let of_catalogue = space.catalogue.zip(cluster.catalogue).map(|(one, other)| one == other);
            of_catalogue.or_else(|| cluster.version.as_deref().map(|version| version == space.version))
        };
        let fits = |cluster: &Cluster| is_alike(cluster) != Some(false) && cluster.databases.is_superset(&wanted);
        let found: Vec<_> = clusters.iter().filter(|(_, cluster)| fits(cluster)).collect();
        let alike: Vec<_> = found.iter().filter(|(_, cluster)| is_alike(cluster).is_some()).copied().collect();
        if let Some(home) = only(&alike).or_else(|| only(&found)) {
            bring_home(servers, &key, home);
        }
    }
}

/// Puts directories of log segments to the cluster whose number they have; one that stays alone is a
/// server of which nothing else is known. Files that are only named like segments are left out.
async fn bring_logs_home(source: &mut Source<'_>, servers: &mut Servers, clusters: &BTreeMap<String, Cluster>) {
    let places: Vec<(Engine, String)> = servers.iter().filter(|(_, files)| is_logs(files)).map(|(key, _)| key.clone()).collect();
    for key in places {
        let Some(system) = system_of(source, &servers[&key]).await else {
            servers.remove(&key);
            continue;
        };
        let found: Vec<_> = clusters.iter().filter(|(_, cluster)| cluster.system == Some(system)).collect();
        let without: Vec<_> = found.iter().filter(|(_, cluster)| !cluster.has_logs).copied().collect();
        if let Some(home) = only(&without).or_else(|| only(&found)) {
            bring_home(servers, &key, home);
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

fn bring_home(servers: &mut Servers, from: &(Engine, String), home: &str) {
    if let Some(files) = servers.remove(from) {
        servers.entry((from.0, home.to_owned())).or_default().extend(files);
    }
}

/// Leaves each file to one server: that which can start, or whose state was written last, or that
/// has files which no other has (a copy made of links, beside a server that went on); where nothing
/// tells, that with the shorter path.
fn give_one_owner(servers: &mut Servers, clusters: &BTreeMap<String, Cluster>) {
    let mut links: BTreeMap<u64, usize> = BTreeMap::new();
    for file in servers.values().flatten() {
        *links.entry(file.inode).or_default() += 1;
    }
    let own = |files: &[DataFile]| files.iter().filter(|file| file.inode != 0 && links[&file.inode] == 1).count();
    let rank = |key: &(Engine, String)| {
        let place = key.1.as_str();
        let cluster = clusters.get(place);
        let can_start = match cluster.and_then(|cluster| cluster.can_start) {
            Some(true) => 2,
            None => 1,
            Some(false) => 0,
        };
        (can_start, cluster.map_or(0, |cluster| cluster.written_s), own(&servers[key]), Reverse(place.len()))
    };
    let mut places: Vec<(Engine, String)> = servers.keys().cloned().collect();
    places.sort_by_cached_key(|key| Reverse(rank(key)));
    let mut taken = BTreeSet::new();
    for key in places {
        if let Some(files) = servers.get_mut(&key) {
            // Of several paths of one server the same one whatever the file system says.
            files.sort_unstable_by(|one, other| (one.path.len(), &one.path).cmp(&(other.path.len(), &other.path)));
            files.retain(|file| file.inode == 0 || taken.insert(file.inode));
        }
    }
    servers.retain(|_, files| !files.is_empty());
}

#[cfg(test)]
mod tests {
    use super::super::servers::by_directory;
    use super::*;
    use crate::filesystems::{FileExtent, Volume, role};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const SPACE: &str = "fast/PG_15_202209061/16384/16390";

    /// A file of a file system whose files lie one after the other.
    struct File {
        path: &'static str,
        inode: u64,
        bytes: Vec<u8>,
    }

    fn file(path: &'static str, inode: u64, bytes: &[u8]) -> File {
        File { path, inode, bytes: bytes.to_vec() }
    }

    /// Relations, of which nothing is read.
    fn relations(paths: &[&'static str]) -> Vec<File> {
        paths.iter().map(|path| file(path, 0, b"")).collect()
    }

    /// The state of a cluster with that number, written at that time.
    fn control(path: &'static str, system: u64, catalogue: u32, written_s: u64) -> File {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&system.to_le_bytes());
        bytes[12..16].copy_from_slice(&catalogue.to_le_bytes());
        bytes[24..32].copy_from_slice(&written_s.to_le_bytes());
        file(path, 0, &bytes)
    }

    /// The first page of a segment of the log of that cluster.
    fn segment(path: &'static str, system: u64) -> File {
        let mut bytes = vec![0; 8192];
        bytes[..8].copy_from_slice(&[0x10, 0xd1, 2, 0, 1, 0, 0, 0]);
        bytes[8..16].copy_from_slice(&(16u64 << 20).to_le_bytes());
        bytes[24..32].copy_from_slice(&system.to_le_bytes());
        bytes[32..36].copy_from_slice(&(16u32 << 20).to_le_bytes());
        bytes[36..40].copy_from_slice(&8192u32.to_le_bytes());
        file(path, 0, &bytes)
    }

    fn servers_of(files: &[File]) -> Vec<Server> {
        let (mut image, mut data_files) = (Vec::new(), Vec::new());
        for File { path, inode, bytes } in files {
            let length = bytes.len() as u64;
            let extents =
                vec![FileExtent { file_offset: 0, volume_offset: image.len() as u64, bytes: length.next_multiple_of(512), written: true }];
            image.extend_from_slice(bytes);
            image.resize(image.len().next_multiple_of(512), 0);
            let role = role(path).expect("a role");
            data_files.push(DataFile { path: (*path).to_owned(), role, inode: *inode, bytes: length, extents });
        }
        let volume = Volume::default();
        let mut source = Source::new(&volume, 1 << 20);
        let mut work = pin!(settle(&mut source, by_directory(data_files)));
        loop {
            if let Poll::Ready(servers) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return servers;
            }
            let read = volume.wanted().expect("a read");
            let at = read.offset_bytes as usize;
            volume.give(Some(image[at..at + read.len_bytes].into()));
        }
    }

    /// Servers with their versions and how many files each has.
    fn check(files: &[File], expected: &[(&str, Option<&str>, usize)]) {
        let servers = servers_of(files);
        let found: Vec<_> =
            servers.iter().map(|server| (server.instance.as_str(), server.version.as_deref(), server.files.len())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tablespaces_are_of_the_only_server_with_their_database() {
        let v15 = Some("15");
        check(&relations(&["a/base/16384/1259", SPACE]), &[("a", None, 2)]);
        check(&relations(&["a/base/16384/1259", "b/base/16384/1259", SPACE]), &[("a", None, 1), ("b", None, 1), ("fast", v15, 1)]);
        check(&relations(&["a/base/16384/1259", "b/base/5/1259", SPACE]), &[("a", None, 2), ("b", None, 1)]);
        check(&relations(&["a/base/5/1259", SPACE]), &[("a", None, 1), ("fast", v15, 1)]);
        check(&relations(&[SPACE]), &[("fast", v15, 1)]);
    }

    #[test]
    fn a_tablespace_is_of_a_server_of_its_version() {
        let mut files = relations(&["a/base/16384/1259", "b/base/16384/1259", SPACE]);
        files.extend([file("a/PG_VERSION", 0, b"14\n"), file("b/PG_VERSION", 0, b"15\n")]);
        check(&files, &[("a", Some("14"), 2), ("b", Some("15"), 3)]);
        // Two betas of one version.
        let mut files = relations(&["a/base/16384/1259", "b/base/16384/1259", SPACE]);
        files.extend([control("a/global/pg_control", 1, 202_206_061, 0), control("b/global/pg_control", 2, 202_209_061, 0)]);
        check(&files, &[("a", None, 2), ("b", None, 3)]);
        // Both versions of an upgraded cluster have a directory in the tablespace.
        let old = "fast/PG_14_202107181/16384/16390";
        let mut files = relations(&["a/base/16384/1259", "b/base/16384/1259", SPACE, old]);
        files.extend([file("a/PG_VERSION", 0, b"14"), file("b/PG_VERSION", 0, b"15\nno")]);
        check(
            &files[..4],
            &[("a", None, 1), ("b", None, 1), ("fast/PG_14_202107181", Some("14"), 1), ("fast/PG_15_202209061", Some("15"), 1)],
        );
        check(&files, &[("a", Some("14"), 3), ("b", None, 3)]);
    }

    #[test]
    fn hard_links_are_of_the_cluster_that_can_start() {
        let linked = |old: File| {
            vec![
                file("14/base/16384/16390", 77, b""),
                file("14/base/16384/1259", 5, b""),
                old,
                file("15/base/16401/16390", 77, b""),
                control("15/global/pg_control", 2, 202_209_061, 200),
            ]
        };
        let paths = |files: &[File]| -> Vec<Vec<String>> {
            servers_of(files).into_iter().map(|server| server.files.into_iter().map(|file| file.path).collect()).collect()
        };
        let expected = |old: &str| {
            let own = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
            vec![own(&["14/base/16384/1259", old]), own(&["15/base/16401/16390", "15/global/pg_control"])]
        };
        assert_eq!(paths(&linked(control("14/global/pg_control.old", 1, 202_107_181, 900))), {
            let mut expected = expected("14/global/pg_control.old");
            expected[0].sort_by_key(String::len);
            expected
        });
        // A copy by hard links whose original went on; and the other way round.
        assert_eq!(paths(&linked(control("14/global/pg_control", 2, 202_209_061, 100)))[0].len(), 2);
        assert_eq!(paths(&linked(control("14/global/pg_control", 2, 202_209_061, 300)))[0].len(), 3);
        // Its state linked as well: the one that made files since went on.
        let both = [
            control("long/name/global/pg_control", 2, 202_209_061, 300),
            file("long/name/base/5/16390", 77, b""),
            file("long/name/base/5/16999", 78, b""),
            control("short/global/pg_control", 2, 202_209_061, 300),
            file("short/base/5/16390", 77, b""),
        ];
        assert_eq!(paths(&both).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
        // Nothing tells: one has it all the same.
        let files = [file("srv/copy/shop/a.ibd", 9, b""), file("mysql/shop/a.ibd", 9, b"")];
        check(&files, &[("mysql", None, 1)]);
    }

    #[test]
    fn logs_elsewhere_are_of_the_cluster_whose_number_they_have() {
        let cluster = || {
            let mut files = relations(&["a/base/5/1259", "b/base/5/1259", "b/pg_wal/000000010000000000000001"]);
            files.extend([control("a/global/pg_control", 7, 202_209_061, 0), control("b/global/pg_control", 8, 202_209_061, 0)]);
            files
        };
        let mut files = cluster();
        files.push(segment("wal/a/000000010000000000000001", 7));
        files.push(segment("archive/000000010000000000000001", 8));
        files.push(segment("other/000000010000000000000001", 9));
        files.push(file("notes/000000010000000000000001", 0, &[7; 9000]));
        check(&files, &[("a", None, 3), ("b", None, 4), ("other", None, 1)]);
        // A standby on the same disk has the same number, and logs of its own.
        let mut files = cluster();
        files[4] = control("b/global/pg_control", 7, 202_209_061, 0);
        files.push(segment("wal/a/000000010000000000000001", 7));
        check(&files, &[("a", None, 3), ("b", None, 3)]);
    }
}
