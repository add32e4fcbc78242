//! What a file of a database is, by its path.

/// A fork of a PostgreSQL relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fork {
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// `ibdata*`, `mysql.ibd`: InnoDB's system tablespace, or MySQL's dictionary.
    InnodbSystem,
    /// `*.ibd`: tables of InnoDB.
    InnodbTable,
    /// `undo*`: undo tablespaces.
    InnodbUndo,
    /// `ib_logfile*`, `#ib_redo*`.
    InnodbRedo,
    /// `*.dblwr`.
    InnodbDoublewrite,
    /// `ibtmp*`, and `*.ibt` of sessions.
    InnodbTemporary,
    /// `binlog.000001`, `mysql-bin.000001`, `mysql-bin-changelog.000001` and the like.
    Binlog,
    /// A file of a relation.
    PostgresRelation {
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
    PostgresFilenodeMap {
        /// Oid of the database.
        database: u32,
    },
    /// A segment of the write-ahead log, in a data directory.
    PostgresWal,
    /// A file that is named like one elsewhere: where the data directory has a link to, or an
    /// archive. Its content tells whether it is one, and of which cluster.
    PostgresWalElsewhere,
    /// A temporary table, its index, or what a sort or a hash wrote out: `t3_16390`, `pgsql_tmp*`.
    PostgresTemporary,
    /// `PG_VERSION` of a data directory.
    PostgresVersion,
    /// `global/pg_control`, without which a cluster cannot start. `pg_upgrade` renames that of a
    /// cluster whose files another one has taken over to `pg_control.old`.
    PostgresControl {
        /// It has its name.
        is_in_place: bool,
    },
    /// `*.mdf`, `*.ndf`.
    MssqlData,
    /// `*.ldf`.
    MssqlLog,
}

/// What the file of that path is; `None` if it is not known to be a database's. Parts of the path
/// are separated by slashes.
#[must_use]
pub fn role(path: &str) -> Option<Role> {
    let mut parts = path.rsplit('/');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let (parent, above) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    innodb(name, parent).or_else(|| postgres(name, parent, above)).or_else(|| mssql(name))
}

/// The instance that a file belongs to, by its path: the directory that all files of a server are
/// in, of PostgreSQL that of a database (shared relations: `global`), of SQL Server the file
/// itself, as names and ids of its files mean nothing to each other. Files with equal answers share
/// their ids.
#[must_use]
pub fn instance(path: &str, role: Role) -> &str {
    let up = |path| str::rsplit_once(path, '/').map_or("", |(above, _)| above);
    let directory = up(path);
    match role {
        Role::MssqlData | Role::MssqlLog => path,
        // A directory for each database, below that of the server; and some of the server's own.
        Role::InnodbTable => up(directory),
        _ if directory.rsplit('/').next().is_some_and(|name| name.starts_with("#innodb_")) => up(directory),
        _ => directory,
    }
}

fn innodb(name: &str, parent: &str) -> Option<Role> {
    let numbered = |prefix: &str| name.strip_prefix(prefix).is_some_and(is_digits);
    let base_and_number = name.rsplit_once('.').filter(|(_, number)| number.len() >= 6 && is_digits(number));
    Some(match name {
        "mysql.ibd" => Role::InnodbSystem,
        _ if numbered("ibdata") => Role::InnodbSystem,
        _ if numbered("undo") || numbered("undo_") => Role::InnodbUndo,
        _ if numbered("ib_logfile") => Role::InnodbRedo,
        _ if parent == "#innodb_redo" && name.starts_with("#ib_redo") => Role::InnodbRedo,
        _ if name.ends_with(".dblwr") => Role::InnodbDoublewrite,
        _ if numbered("ibtmp") || name.ends_with(".ibt") => Role::InnodbTemporary,
        _ if name.ends_with(".ibu") => Role::InnodbUndo,
        _ if name.ends_with(".ibd") => Role::InnodbTable,
        _ if base_and_number.is_some_and(|(base, _)| is_binlog(base)) => Role::Binlog,
        _ => return None,
    })
}

/// Whether logs are called like that before their number: `binlog`, `mysql-bin`, and with what a
/// service or a channel adds, `mysql-bin-changelog`.
fn is_binlog(base: &str) -> bool {
    base == "binlog" || base.ends_with("-bin") || base.contains("-bin-")
}

fn postgres(name: &str, parent: &str, above: &str) -> Option<Role> {
    if is_segment(name) {
        let in_place = matches!(parent, "pg_wal" | "pg_xlog");
        return Some(if in_place { Role::PostgresWal } else { Role::PostgresWalElsewhere });
    }
    match (name, parent) {
        // Each directory of a database has one, too.
        ("PG_VERSION", _) => return (!is_digits(parent)).then_some(Role::PostgresVersion),
        ("pg_control", "global") => return Some(Role::PostgresControl { is_in_place: true }),
        ("pg_control.old", "global") => return Some(Role::PostgresControl { is_in_place: false }),
        _ => {}
    }
    let holds_databases = |name: &str| name == "base" || name.starts_with("PG_");
    if is_temporary(name, parent, above) {
        return Some(Role::PostgresTemporary);
    }
    // Of a tablespace: PG_15_202209061/16384/16390.
    let database = if parent == "global" { 0 } else { number(parent).filter(|_| holds_databases(above))? };
    if name == "pg_filenode.map" {
        return Some(Role::PostgresFilenodeMap { database });
    }
    if name
        .strip_prefix('t')
        .and_then(|rest| rest.split_once('_'))
        .is_some_and(|(session, file)| is_digits(session) && relation(file).is_some())
    {
        return Some(Role::PostgresTemporary);
    }
    let (file, segment, fork) = relation(name)?;
    Some(Role::PostgresRelation { database, file, segment, fork })
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

fn mssql(name: &str) -> Option<Role> {
    let (_, kind) = name.rsplit_once('.')?;
    if kind.eq_ignore_ascii_case("mdf") || kind.eq_ignore_ascii_case("ndf") {
        return Some(Role::MssqlData);
    }
    kind.eq_ignore_ascii_case("ldf").then_some(Role::MssqlLog)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str) -> Option<u32> {
    is_digits(text).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_server_have_one_instance() {
        let check = |path: &str, expected: &str| assert_eq!(instance(path, role(path).expect("a role")), expected, "{path}");
        check("var/lib/mysql/ibdata1", "var/lib/mysql");
        check("var/lib/mysql/mysql.ibd", "var/lib/mysql");
        check("var/lib/mysql/shop/items.ibd", "var/lib/mysql");
        check("var/lib/mysql/#innodb_redo/#ib_redo1", "var/lib/mysql");
        check("ibdata1", "");
        check("shop/items.ibd", "");
        check("15/main/base/16384/1259", "15/main/base/16384");
        check("15/main/base/16384/pg_filenode.map", "15/main/base/16384");
        check("15/main/global/1262", "15/main/global");
        check("data/a.mdf", "data/a.mdf");
    }

    #[test]
    fn roles_by_path() {
        let check = |path: &str, expected: Option<Role>| assert_eq!(role(path), expected, "{path}");
        let relation = |database, file, segment, fork| Some(Role::PostgresRelation { database, file, segment, fork });
        check("var/lib/mysql/ibdata1", Some(Role::InnodbSystem));
        check("var/lib/mysql/shop/items.ibd", Some(Role::InnodbTable));
        check("var/lib/mysql/undo001", Some(Role::InnodbUndo));
        check("var/lib/mysql/undo_002", Some(Role::InnodbUndo));
        check("var/lib/mysql/ib_logfile0", Some(Role::InnodbRedo));
        check("var/lib/mysql/#innodb_redo/#ib_redo12", Some(Role::InnodbRedo));
        check("var/lib/mysql/#ib_16384_0.dblwr", Some(Role::InnodbDoublewrite));
        check("var/lib/mysql/binlog.000012", Some(Role::Binlog));
        check("var/lib/mysql/db1-bin.000012", Some(Role::Binlog));
        check("var/lib/mysql/binlog.index", None);
        check("15/main/base/16384/16390", relation(16384, 16390, 0, Fork::Main));
        check("base/16384/16390.3", relation(16384, 16390, 3, Fork::Main));
        check("base/16384/16390_vm.1", relation(16384, 16390, 1, Fork::VisibilityMap));
        check("15/main/global/1262", relation(0, 1262, 0, Fork::Main));
        check("ts/PG_15_202209061/16384/16391_fsm", relation(16384, 16391, 0, Fork::FreeSpaceMap));
        check("base/16384/pg_filenode.map", Some(Role::PostgresFilenodeMap { database: 16384 }));
        check("main/pg_wal/00000001000000000000000F", Some(Role::PostgresWal));
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
            check(path, Some(Role::PostgresTemporary));
        }
        for path in
            ["base/16384/t_16390", "base/16384/tx_1", "base/16384/t3_x", "srv/t3_16390", "srv/pgsql_tmp/notes", "srv/pgsql_tmpx/pgsql_tmp1"]
        {
            check(path, None);
        }
        check("wal/main/00000001000000000000000F", Some(Role::PostgresWalElsewhere));
        check("wal/main/00000001000000000000000f", None);
        check("wal/main/00000000000000000000000F", None);
        check("wal/main/00000001000000000000000F.gz", None);
        check("15/main/PG_VERSION", Some(Role::PostgresVersion));
        check("PG_VERSION", Some(Role::PostgresVersion));
        check("15/main/base/16384/PG_VERSION", None);
        check("15/main/global/pg_control", Some(Role::PostgresControl { is_in_place: true }));
        check("14/main/global/pg_control.old", Some(Role::PostgresControl { is_in_place: false }));
        check("14/main/pg_control", None);
        check("var/lib/mysql/mysql-bin-changelog.000123", Some(Role::Binlog));
        check("var/lib/mysql/db1-relay-bin-east.000002", Some(Role::Binlog));
        check("var/lib/mysql/robin-data.000002", None);
        check("DATA/Shop.MDF", Some(Role::MssqlData));
        check("DATA/Shop_log.ldf", Some(Role::MssqlLog));
        check("", None);
        check("base/99999999999/1", None);
    }
}
