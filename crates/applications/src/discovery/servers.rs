//! Files of databases, by the server that they belong to.

use crate::filesystems::{DataFile, Role, instance};
use crate::page::Engine;
use std::collections::BTreeMap;

/// The files of a server.
pub(super) struct Server {
    pub(super) engine: Engine,
    /// The path of its data directory.
    pub(super) instance: String,
    pub(super) files: Vec<DataFile>,
}

/// Puts the files of a file system to their servers.
pub(super) fn servers(files: Vec<DataFile>) -> Vec<Server> {
    let mut servers: BTreeMap<(Engine, String), Vec<DataFile>> = BTreeMap::new();
    for file in files {
        let key = (engine(file.role), data_directory(&file.path, file.role).to_owned());
        servers.entry(key).or_default().push(file);
    }
    let server = |((engine, instance), mut files): ((Engine, String), Vec<DataFile>)| {
        // One order whatever the file system says, so that parts of an object follow each other.
        files.sort_unstable_by(|one, other| (one.path.len(), &one.path).cmp(&(other.path.len(), &other.path)));
        Server { engine, instance, files }
    };
    servers.into_iter().map(server).collect()
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
    let up = |path| str::rsplit_once(path, '/').map_or("", |(above, _)| above);
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
