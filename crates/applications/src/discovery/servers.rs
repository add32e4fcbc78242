//! Files of databases, by the server that they belong to.

use crate::filesystems::{DataFile, Role, instance};
use crate::page::Engine;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a server.
pub(super) struct Server {
    pub(super) engine: Engine,
    /// The path of its data directory.
    pub(super) instance: String,
    pub(super) files: Vec<DataFile>,
}

/// Puts the files of a file system to their servers.
pub(super) fn servers(files: Vec<DataFile>) -> Vec<Server> {
    // A tablespace that several tables share lies beside the system's, not in a directory below.
    let systems: BTreeSet<String> =
        files.iter().filter(|file| file.role == Role::InnodbSystem).map(|file| up(&file.path).to_owned()).collect();
    let mut servers: BTreeMap<(Engine, String), Vec<DataFile>> = BTreeMap::new();
    for file in files {
        let beside = Some(up(&file.path)).filter(|directory| file.role == Role::InnodbTable && systems.contains(*directory));
        let directory = beside.unwrap_or_else(|| data_directory(&file.path, file.role));
        servers.entry((engine(file.role), directory.to_owned())).or_default().push(file);
    }
    bring_home(&mut servers);
    let server = |((engine, instance), mut files): ((Engine, String), Vec<DataFile>)| {
        // One order whatever the file system says, so that parts of an object follow each other.
        files.sort_unstable_by(|one, other| (one.path.len(), &one.path).cmp(&(other.path.len(), &other.path)));
        Server { engine, instance, files }
    };
    servers.into_iter().map(server).collect()
}

/// Puts tablespaces of PostgreSQL that lie outside of a data directory to the only server that has
/// their databases; where there are several, or none, they stay by themselves.
fn bring_home(servers: &mut BTreeMap<(Engine, String), Vec<DataFile>>) {
    let databases = |files: &[DataFile]| -> BTreeSet<u32> {
        let database = |file: &DataFile| match file.role {
            Role::PostgresRelation { database, .. } => Some(database),
            _ => None,
        };
        files.iter().filter_map(database).collect()
    };
    let is_space =
        |files: &[DataFile]| files.iter().all(|file| up(up(&file.path)).rsplit('/').next().is_some_and(|name| name.starts_with("PG_")));
    let of_postgres = servers.iter().filter(|((engine, _), _)| *engine == Engine::Postgres);
    let (spaces, homes): (Vec<_>, Vec<_>) =
        of_postgres.map(|(key, files)| (key.clone(), databases(files), is_space(files))).partition(|(_, _, is_space)| *is_space);
    for (space, wanted, _) in spaces {
        let mut homes = homes.iter().filter(|(_, has, _)| has.is_superset(&wanted));
        let Some((home, ..)) = homes.next().filter(|_| homes.next().is_none()) else { continue };
        if let Some(files) = servers.remove(&space)
            && let Some(home) = servers.get_mut(home)
        {
            home.extend(files);
        }
    }
}

/// The directory that a path is in.
fn up(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

fn engine(role: Role) -> Engine {
    match role {
        Role::PostgresRelation { .. } | Role::PostgresFilenodeMap { .. } | Role::PostgresWal => Engine::Postgres,
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
        Role::PostgresRelation { database: 0, .. } | Role::PostgresFilenodeMap { database: 0 } | Role::PostgresWal => up(up(path)),
        Role::PostgresRelation { .. } | Role::PostgresFilenodeMap { .. } => up(up(up(path))),
        Role::MssqlData | Role::MssqlLog => up(path),
        _ => instance(path, role),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystems::role;

    /// The data directories of servers with these files.
    fn check(paths: &[&str], expected: &[(&str, usize)]) {
        let file = |path: &&str| DataFile { path: (*path).to_owned(), role: role(path).expect("a role"), bytes: 0, extents: Vec::new() };
        let servers = servers(paths.iter().map(file).collect());
        let found: Vec<_> = servers.iter().map(|server| (server.instance.as_str(), server.files.len())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tablespaces_of_many_tables_are_of_the_server_beside_them() {
        check(&["lib/mysql/ibdata1", "lib/mysql/shop/orders.ibd", "lib/mysql/many.ibd"], &[("lib/mysql", 3)]);
        check(&["lib/mysql/shop/orders.ibd", "backup/shop/orders.ibd"], &[("backup", 1), ("lib/mysql", 1)]);
    }

    #[test]
    fn tablespaces_of_postgresql_are_of_the_only_server_with_their_database() {
        let space = "fast/PG_15_202209061/16384/16390";
        check(&["a/base/16384/1259", space], &[("a", 2)]);
        check(&["a/base/16384/1259", "b/base/16384/1259", space], &[("a", 1), ("b", 1), ("fast", 1)]);
        check(&["a/base/16384/1259", "b/base/5/1259", space], &[("a", 2), ("b", 1)]);
        check(&["a/base/5/1259", space], &[("a", 1), ("fast", 1)]);
        check(&[space], &[("fast", 1)]);
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
        check("fast/PG_15_202209061/16384/16390", "fast");
        check("data/Shop.mdf", "data");
    }
}
