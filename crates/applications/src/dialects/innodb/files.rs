//! What a file of MySQL or MariaDB is, by its path.

use crate::dialects::{FilePath, Places, is_digits, up};
use crate::filesystems::DataFile;
use std::collections::BTreeSet;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileRole {
    /// `ibdata*`, `mysql.ibd`: the system tablespace, or MySQL's dictionary.
    System,
    /// `*.ibd`: tables.
    Table,
    /// `undo*`: undo tablespaces.
    Undo,
    /// `ib_logfile*`, `#ib_redo*`.
    Redo,
    /// `*.dblwr`.
    Doublewrite,
    /// `ibtmp*`, and `*.ibt` of sessions.
    Temporary,
    /// `binlog.000001`, `mysql-bin.000001`, `mysql-bin-changelog.000001` and the like.
    Binlog,
}

impl FileRole {
    pub(super) fn of(path: &FilePath<'_>) -> Option<FileRole> {
        let name = path.name;
        let numbered = |prefix: &str| name.strip_prefix(prefix).is_some_and(is_digits);
        let base_and_number = name.rsplit_once('.').filter(|(_, number)| number.len() >= 6 && is_digits(number));
        Some(match name {
            "mysql.ibd" => FileRole::System,
            _ if numbered("ibdata") => FileRole::System,
            _ if numbered("undo") || numbered("undo_") => FileRole::Undo,
            _ if numbered("ib_logfile") => FileRole::Redo,
            _ if path.parent == "#innodb_redo" && name.starts_with("#ib_redo") => FileRole::Redo,
            _ if name.ends_with(".dblwr") => FileRole::Doublewrite,
            _ if numbered("ibtmp") || name.ends_with(".ibt") => FileRole::Temporary,
            _ if name.ends_with(".ibu") => FileRole::Undo,
            _ if name.ends_with(".ibd") => FileRole::Table,
            _ if base_and_number.is_some_and(|(base, _)| is_binlog(base)) => FileRole::Binlog,
            _ => return None,
        })
    }

    pub(super) fn of_file(file: &DataFile) -> Option<FileRole> {
        FileRole::of(&FilePath::of(&file.path)?)
    }
}

/// Whether logs are called like that before their number: `binlog`, `mysql-bin`, and with what a
/// service or a channel adds, `mysql-bin-changelog`.
fn is_binlog(base: &str) -> bool {
    base == "binlog" || base.ends_with("-bin") || base.contains("-bin-")
}

/// Files by the data directory of their server.
pub(super) fn by_directory(files: Vec<DataFile>) -> Places {
    // A tablespace that several tables share lies beside the system's, not in a directory below.
    let is = |file: &DataFile, role| FileRole::of_file(file) == Some(role);
    let systems: BTreeSet<String> = files.iter().filter(|file| is(file, FileRole::System)).map(|file| up(&file.path).to_owned()).collect();
    let mut places = Places::new();
    for file in files {
        let directory = up(&file.path);
        let is_below = directory.rsplit('/').next().is_some_and(|name| name.starts_with("#innodb_"));
        // A directory for each database, below that of the server; and some of the server's own.
        let is_table = is(&file, FileRole::Table);
        let place = if is_table && !systems.contains(directory) || !is_table && is_below { up(directory) } else { directory };
        places.entry(place.to_owned()).or_default().push(file);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::Engine;

    #[test]
    fn roles_by_path() {
        let check = |path: &str, expected: Option<FileRole>| {
            assert_eq!(FilePath::of(path).and_then(|path| FileRole::of(&path)), expected, "{path}");
        };
        check("var/lib/mysql/ibdata1", Some(FileRole::System));
        check("var/lib/mysql/mysql.ibd", Some(FileRole::System));
        check("var/lib/mysql/shop/items.ibd", Some(FileRole::Table));
        check("var/lib/mysql/undo001", Some(FileRole::Undo));
        check("var/lib/mysql/undo_002", Some(FileRole::Undo));
        check("var/lib/mysql/ib_logfile0", Some(FileRole::Redo));
        check("var/lib/mysql/#innodb_redo/#ib_redo12", Some(FileRole::Redo));
        check("var/lib/mysql/#ib_16384_0.dblwr", Some(FileRole::Doublewrite));
        check("var/lib/mysql/binlog.000012", Some(FileRole::Binlog));
        check("var/lib/mysql/db1-bin.000012", Some(FileRole::Binlog));
        check("var/lib/mysql/binlog.index", None);
        check("var/lib/mysql/mysql-bin-changelog.000123", Some(FileRole::Binlog));
        check("var/lib/mysql/db1-relay-bin-east.000002", Some(FileRole::Binlog));
        check("var/lib/mysql/robin-data.000002", None);
        check("", None);
    }

    #[test]
    fn a_server_is_known_by_its_data_directory() {
        let check = |paths: &[&str], expected: &[(&str, usize)]| {
            let file = |path: &&str| DataFile { path: (*path).to_owned(), engine: Engine::Innodb, inode: 0, bytes: 0, extents: Vec::new() };
            let places = by_directory(paths.iter().map(file).collect());
            let found: Vec<_> = places.iter().map(|(place, files)| (place.as_str(), files.len())).collect();
            assert_eq!(found, expected);
        };
        let files = ["ibdata1", "mysql.ibd", "shop/items.ibd", "#innodb_redo/#ib_redo7", "#innodb_temp/temp_1.ibt", "undo001"];
        for place in ["var/lib/mysql", ""] {
            let paths = files.map(|file| if place.is_empty() { file.to_owned() } else { format!("{place}/{file}") });
            check(&paths.each_ref().map(String::as_str), &[(place, files.len())]);
        }
        // Tablespaces of many tables are of the server beside them.
        check(&["lib/mysql/ibdata1", "lib/mysql/shop/orders.ibd", "lib/mysql/many.ibd"], &[("lib/mysql", 3)]);
        check(&["lib/mysql/shop/orders.ibd", "backup/shop/orders.ibd"], &[("backup", 1), ("lib/mysql", 1)]);
    }
}
