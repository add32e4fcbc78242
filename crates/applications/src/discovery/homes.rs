//! Which server files belong to.
//!
//! Each database knows the homes of its own. Where hard links let several servers have one file, as
//! `pg_upgrade --link` and `cp -al` leave it, the server that can start has it, and the others do
//! not: what is read there is read by that one.

use super::source::Source;
use crate::Engine;
use crate::dialects::Home;
use crate::filesystems::DataFile;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a server.
pub(crate) struct Server {
    pub(crate) engine: Engine,
    /// The path of its data directory.
    pub(crate) instance: String,
    /// Its version, where a file or a directory beside its data tells: `15`.
    pub(crate) version: Option<String>,
    pub(crate) files: Vec<DataFile>,
}

/// The servers of a file system with all that is theirs, by engine and place.
pub(super) async fn settle(source: &mut Source<'_>, files: Vec<DataFile>) -> Vec<Server> {
    let mut by_engine: BTreeMap<Engine, Vec<DataFile>> = BTreeMap::new();
    files.into_iter().for_each(|file| by_engine.entry(file.engine).or_default().push(file));
    let mut homes = Vec::new();
    for (engine, files) in by_engine {
        let Some(dialect) = engine.facts().files else { continue };
        homes.push((dialect, dialect.homes(source, files).await));
    }
    give_one_owner(homes.iter_mut().flat_map(|(_, homes)| homes));
    let left = |home: &Home| !home.files.is_empty();
    homes.into_iter().flat_map(|(dialect, homes)| dialect.servers(homes.into_iter().filter(left).collect())).collect()
}

/// Leaves each file to one home: that where a server can start, or whose state was written last, or that
/// has files which no other has (a copy made of links, beside a server that went on); where nothing
/// tells, that with the shorter path.
fn give_one_owner<'a>(homes: impl Iterator<Item = &'a mut Home>) {
    let mut homes: Vec<&mut Home> = homes.collect();
    let mut links: BTreeMap<u64, usize> = BTreeMap::new();
    for file in homes.iter().flat_map(|home| &home.files) {
        *links.entry(file.inode).or_default() += 1;
    }
    let own = |files: &[DataFile]| files.iter().filter(|file| file.inode != 0 && links[&file.inode] == 1).count();
    let rank = |home: &&mut Home| {
        let can_start = match home.can_start {
            Some(true) => 2,
            None => 1,
            Some(false) => 0,
        };
        (can_start, home.written_s, own(&home.files), Reverse(home.place.len()))
    };
    homes.sort_by_cached_key(|home| Reverse(rank(home)));
    let mut taken = BTreeSet::new();
    for home in homes {
        // One order whatever the file system says: of several paths of one file the same one stays, and parts of an
        // object follow each other.
        home.files.sort_unstable_by(|one, other| (one.path.len(), &one.path).cmp(&(other.path.len(), &other.path)));
        home.files.retain(|file| file.inode == 0 || taken.insert(file.inode));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::engine_of_file;
    use crate::filesystems::{FileExtent, Volume};
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
            let engine = engine_of_file(path).expect("an engine");
            data_files.push(DataFile { path: (*path).to_owned(), engine, inode: *inode, bytes: length, extents });
        }
        let volume = Volume::default();
        let mut source = Source::new(&volume, 1 << 20);
        let mut work = pin!(settle(&mut source, data_files));
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
