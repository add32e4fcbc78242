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
    /// `binlog.000001`, `mysql-bin.000001` and the like.
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
    /// A segment of the write-ahead log.
    PostgresWal,
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
        _ if base_and_number.is_some_and(|(base, _)| base == "binlog" || base.ends_with("-bin")) => Role::Binlog,
        _ => return None,
    })
}

fn postgres(name: &str, parent: &str, above: &str) -> Option<Role> {
    if matches!(parent, "pg_wal" | "pg_xlog") {
        return (name.len() == 24 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Role::PostgresWal);
    }
    // Of a tablespace: PG_15_202209061/16384/16390.
    let in_database = above == "base" || above.starts_with("PG_");
    let database = if parent == "global" { 0 } else { number(parent).filter(|_| in_database)? };
    if name == "pg_filenode.map" {
        return Some(Role::PostgresFilenodeMap { database });
    }
    let (name, segment) = name.split_once('.').map_or(Some((name, 0)), |(name, segment)| Some((name, number(segment)?)))?;
    let (file, fork) = match name.split_once('_') {
        None => (name, Fork::Main),
        Some((file, "fsm")) => (file, Fork::FreeSpaceMap),
        Some((file, "vm")) => (file, Fork::VisibilityMap),
        Some((file, "init")) => (file, Fork::Init),
        Some(_) => return None,
    };
    Some(Role::PostgresRelation { database, file: number(file)?, segment, fork })
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
        check("base/16384/t3_16390", None);
        check("DATA/Shop.MDF", Some(Role::MssqlData));
        check("DATA/Shop_log.ldf", Some(Role::MssqlLog));
        check("", None);
        check("base/99999999999/1", None);
    }
}
