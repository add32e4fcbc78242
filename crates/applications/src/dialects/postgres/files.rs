//! What a file of PostgreSQL is, by its path.

use crate::dialects::{FilePath, is_digits, up};
use crate::filesystems::DataFile;

/// A fork of a PostgreSQL relation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fork {
    /// The relation itself.
    Main,
    /// Its free space map.
    FreeSpaceMap,
    /// Its visibility map.
    VisibilityMap,
    /// What an unlogged relation is reset to.
    Init,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileRole {
    /// A file of a relation.
    Relation {
        /// Oid of the database, 0 for shared relations.
        database: u32,
        /// `relfilenode`.
        file: u32,
        /// Which file of 1 GiB.
        segment: u32,
        /// Which fork.
        fork: Fork,
    },
    /// `pg_filenode.map` of a database, 0 for the shared one.
    FilenodeMap {
        /// Oid of the database.
        database: u32,
    },
    /// A segment of the write-ahead log, in a data directory.
    Wal,
    /// A file that is named like one elsewhere: where the data directory has a link to, or an
    /// archive. Its content tells whether it is one, and of which cluster.
    WalElsewhere,
    /// A temporary table, its index, or what a sort or a hash wrote out: `t3_16390`, `pgsql_tmp*`.
    Temporary,
    /// `PG_VERSION` of a data directory.
    Version,
    /// `global/pg_control`, without which a cluster cannot start. `pg_upgrade` renames that of a
    /// cluster whose files another one has taken over to `pg_control.old`.
    Control {
        /// It has its name.
        is_in_place: bool,
    },
}

impl FileRole {
    pub(super) fn of(path: &FilePath<'_>) -> Option<FileRole> {
        let FilePath { name, parent, above, .. } = *path;
        if is_segment(name) {
            let in_place = matches!(parent, "pg_wal" | "pg_xlog");
            return Some(if in_place { FileRole::Wal } else { FileRole::WalElsewhere });
        }
        match (name, parent) {
            // Each directory of a database has one, too.
            ("PG_VERSION", _) => return (!is_digits(parent)).then_some(FileRole::Version),
            ("pg_control", "global") => return Some(FileRole::Control { is_in_place: true }),
            ("pg_control.old", "global") => return Some(FileRole::Control { is_in_place: false }),
            _ => {}
        }
        if is_temporary(name, parent, above) {
            return Some(FileRole::Temporary);
        }
        // Of a tablespace: PG_15_202209061/16384/16390.
        let holds_databases = |name: &str| name == "base" || name.starts_with("PG_");
        let database = if parent == "global" { 0 } else { number(parent).filter(|_| holds_databases(above))? };
        if name == "pg_filenode.map" {
            return Some(FileRole::FilenodeMap { database });
        }
        let of_session = name.strip_prefix('t').and_then(|rest| rest.split_once('_'));
        if of_session.is_some_and(|(session, file)| is_digits(session) && relation(file).is_some()) {
            return Some(FileRole::Temporary);
        }
        let (file, segment, fork) = relation(name)?;
        Some(FileRole::Relation { database, file, segment, fork })
    }

    pub(super) fn of_file(file: &DataFile) -> Option<FileRole> {
        FileRole::of(&FilePath::of(&file.path)?)
    }
}

/// The directory that all of a server's files are in; of a tablespace outside of it, its own directory
/// (`fast/PG_15_202209061`): the link to it is not followed.
pub(super) fn data_directory(path: &str, role: FileRole) -> &str {
    match role {
        FileRole::Relation { database: 0, .. } | FileRole::FilenodeMap { database: 0 } | FileRole::Wal | FileRole::Control { .. } => {
            up(up(path))
        }
        FileRole::Relation { .. } | FileRole::FilenodeMap { .. } | FileRole::Temporary => {
            let holder = holder(path);
            if holder.ends_with("base") { up(holder) } else { holder }
        }
        FileRole::Version | FileRole::WalElsewhere => up(path),
    }
}

/// The directory above that holds directories of databases.
fn holder(path: &str) -> &str {
    let mut above = up(path);
    while !above.is_empty() {
        let name = above.rsplit('/').next().unwrap_or("");
        if name == "base" || name.starts_with("PG_") {
            break;
        }
        above = up(above);
    }
    above
}

/// Number, segment and fork of a file of a relation, by its name.
fn relation(name: &str) -> Option<(u32, u32, Fork)> {
    let (name, segment) = name.split_once('.').map_or(Some((name, 0)), |(name, segment)| Some((name, number(segment)?)))?;
    let (file, fork) = match name.split_once('_') {
        None => (name, Fork::Main),
        Some((file, "fsm")) => (file, Fork::FreeSpaceMap),
        Some((file, "vm")) => (file, Fork::VisibilityMap),
        Some((file, "init")) => (file, Fork::Init),
        Some(_) => return None,
    };
    Some((number(file)?, segment, fork))
}

/// `base/pgsql_tmp/pgsql_tmp123.0`, and what parallel workers share in a directory of that name:
/// `pgsql_tmp123.0.fileset/i0of4.p1.0`. Tablespaces have a `pgsql_tmp` too.
fn is_temporary(name: &str, parent: &str, above: &str) -> bool {
    const NAME: &str = "pgsql_tmp";
    let is_one = |name: &str| name.strip_prefix(NAME).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    parent == NAME && is_one(name) || above == NAME && is_one(parent)
}

/// Whether a name is that of a segment of the write-ahead log: a timeline, and two numbers.
fn is_segment(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    name.len() == 24 && name.starts_with("00") && !name.starts_with("00000000") && name.bytes().all(is_digit)
}

fn number(text: &str) -> Option<u32> {
    is_digits(text).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_by_path() {
        let check = |path: &str, expected: Option<FileRole>| {
            assert_eq!(FilePath::of(path).and_then(|path| FileRole::of(&path)), expected, "{path}");
        };
        let relation = |database, file, segment, fork| Some(FileRole::Relation { database, file, segment, fork });
        check("15/main/base/16384/16390", relation(16384, 16390, 0, Fork::Main));
        check("base/16384/16390.3", relation(16384, 16390, 3, Fork::Main));
        check("base/16384/16390_vm.1", relation(16384, 16390, 1, Fork::VisibilityMap));
        check("15/main/global/1262", relation(0, 1262, 0, Fork::Main));
        check("ts/PG_15_202209061/16384/16391_fsm", relation(16384, 16391, 0, Fork::FreeSpaceMap));
        check("base/16384/pg_filenode.map", Some(FileRole::FilenodeMap { database: 16384 }));
        check("main/pg_wal/00000001000000000000000F", Some(FileRole::Wal));
        check("main/pg_wal/archive_status", None);
        check("other/16384/16390", None);
        for path in [
            "base/16384/t3_16390",
            "base/16384/t12_16390_fsm",
            "15/main/base/16384/t3_16390.1",
            "ts/PG_15_202209061/16384/t3_16390",
            "main/base/pgsql_tmp/pgsql_tmp812.3",
            "ts/PG_15_202209061/pgsql_tmp/pgsql_tmp812.0",
            "main/base/pgsql_tmp/pgsql_tmp812.0.fileset/i0of4.p1.0",
            "main/base/pgsql_tmp/pgsql_tmp812.0.sharedfileset/0.1",
        ] {
            check(path, Some(FileRole::Temporary));
        }
        for path in
            ["base/16384/t_16390", "base/16384/tx_1", "base/16384/t3_x", "srv/t3_16390", "srv/pgsql_tmp/notes", "srv/pgsql_tmpx/pgsql_tmp1"]
        {
            check(path, None);
        }
        check("wal/main/00000001000000000000000F", Some(FileRole::WalElsewhere));
        check("wal/main/00000001000000000000000f", None);
        check("wal/main/00000000000000000000000F", None);
        check("wal/main/00000001000000000000000F.gz", None);
        check("15/main/PG_VERSION", Some(FileRole::Version));
        check("PG_VERSION", Some(FileRole::Version));
        check("15/main/base/16384/PG_VERSION", None);
        check("15/main/global/pg_control", Some(FileRole::Control { is_in_place: true }));
        check("14/main/global/pg_control.old", Some(FileRole::Control { is_in_place: false }));
        check("14/main/pg_control", None);
        check("", None);
        check("base/99999999999/1", None);
    }

    #[test]
    fn a_server_is_known_by_its_data_directory() {
        let check = |path: &str, expected: &str| {
            let role = FilePath::of(path).and_then(|path| FileRole::of(&path)).expect("a role");
            assert_eq!(data_directory(path, role), expected, "{path}");
        };
        check("15/main/base/16384/1259", "15/main");
        check("15/main/global/1262", "15/main");
        check("15/main/pg_wal/000000010000000000000001", "15/main");
        check("base/16384/1259", "");
        check("15/main/global/pg_control", "15/main");
        check("15/main/PG_VERSION", "15/main");
        check("15/main/base/16384/t3_16390", "15/main");
        check("15/main/base/pgsql_tmp/pgsql_tmp1.0", "15/main");
        check("base/pgsql_tmp/pgsql_tmp1.0.fileset/0.0", "");
        check("fast/PG_15_202209061/16384/16390", "fast/PG_15_202209061");
        check("fast/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0", "fast/PG_15_202209061");
        check("wal/a/000000010000000000000001", "wal/a");
    }
}
