//! Files of databases, by the directory of the server that they belong to.

use crate::filesystems::{DataFile, Role, instance};
use crate::page::Engine;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a server.
pub(super) struct Server {
    pub(super) engine: Engine,
    /// The path of its data directory.
    pub(super) instance: String,
    /// Its version, where a file or a directory beside its data tells: `15`.
    pub(super) version: Option<String>,
    pub(super) files: Vec<DataFile>,
}

/// Files by engine and by what they lie in: the data directory of a server; for PostgreSQL also the
/// directory of a tablespace (`fast/PG_15_202209061`), and one of log segments.
pub(super) type Servers = BTreeMap<(Engine, String), Vec<DataFile>>;

/// Puts the files of a file system to where they lie.
pub(super) fn by_directory(files: Vec<DataFile>) -> Servers {
    // A tablespace that several tables share lies beside the system's, not in a directory below.
    let systems: BTreeSet<String> =
        files.iter().filter(|file| file.role == Role::InnodbSystem).map(|file| up(&file.path).to_owned()).collect();
    let mut servers = Servers::new();
    for file in files {
        let beside = Some(up(&file.path)).filter(|directory| file.role == Role::InnodbTable && systems.contains(*directory));
        let directory = beside.unwrap_or_else(|| data_directory(&file.path, file.role));
        servers.entry((engine(file.role), directory.to_owned())).or_default().push(file);
    }
    servers
}

/// The directory that a path is in.
pub(super) fn up(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

fn engine(role: Role) -> Engine {
    match role {
        Role::PostgresRelation { .. }
        | Role::PostgresFilenodeMap { .. }
        | Role::PostgresWal
        | Role::PostgresWalElsewhere
        | Role::PostgresTemporary
        | Role::PostgresVersion
        | Role::PostgresControl { .. } => Engine::Postgres,
        Role::MssqlData | Role::MssqlLog => Engine::Mssql,
        Role::InnodbSystem
        | Role::InnodbTable
        | Role::InnodbUndo
        | Role::InnodbRedo
        | Role::InnodbDoublewrite
        | Role::InnodbTemporary
        | Role::Binlog => Engine::Innodb,
    }
}

/// The directory that all of a server's files are in. A tablespace of PostgreSQL outside of it is
/// known by its own directory: the link to it is not followed.
fn data_directory(path: &str, role: Role) -> &str {
    match role {
        Role::PostgresRelation { database: 0, .. }
        | Role::PostgresFilenodeMap { database: 0 }
        | Role::PostgresWal
        | Role::PostgresControl { .. } => up(up(path)),
        Role::PostgresRelation { .. } | Role::PostgresFilenodeMap { .. } | Role::PostgresTemporary => {
            let holder = holder(path);
            if holder.ends_with("base") { up(holder) } else { holder }
        }
        Role::MssqlData | Role::MssqlLog | Role::PostgresVersion | Role::PostgresWalElsewhere => up(path),
        _ => instance(path, role),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystems::role;

    #[test]
    fn tablespaces_of_many_tables_are_of_the_server_beside_them() {
        let check = |paths: &[&str], expected: &[(&str, usize)]| {
            let file = |path: &&str| DataFile {
                path: (*path).to_owned(),
                role: role(path).expect("a role"),
                inode: 0,
                bytes: 0,
                extents: Vec::new(),
            };
            let servers = by_directory(paths.iter().map(file).collect());
            let found: Vec<_> = servers.iter().map(|((_, place), files)| (place.as_str(), files.len())).collect();
            assert_eq!(found, expected);
        };
        check(&["lib/mysql/ibdata1", "lib/mysql/shop/orders.ibd", "lib/mysql/many.ibd"], &[("lib/mysql", 3)]);
        check(&["lib/mysql/shop/orders.ibd", "backup/shop/orders.ibd"], &[("backup", 1), ("lib/mysql", 1)]);
    }

    #[test]
    fn a_server_is_known_by_its_data_directory() {
        let check = |path: &str, expected: &str| assert_eq!(data_directory(path, role(path).expect("a role")), expected, "{path}");
        check("var/lib/mysql/ibdata1", "var/lib/mysql");
        check("var/lib/mysql/shop/orders.ibd", "var/lib/mysql");
        check("var/lib/mysql/#innodb_redo/#ib_redo7", "var/lib/mysql");
        check("var/lib/mysql/#innodb_temp/temp_1.ibt", "var/lib/mysql");
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
        check("data/Shop.mdf", "data");
    }
}
