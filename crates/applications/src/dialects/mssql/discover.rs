//! SQL Server: each data file names what is in it.

use super::catalogue::Units;
use crate::discovery::{Draft, Evidence, Findings, Key, ObjectKind, Server, Source};
use crate::filesystems::DataFile;
use crate::naming::Catalogue;

/// What a file is, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileRole {
    /// `*.mdf`, `*.ndf`.
    Data,
    /// `*.ldf`.
    Log,
}

impl FileRole {
    pub(super) fn of(name: &str) -> Option<FileRole> {
        let (_, kind) = name.rsplit_once('.')?;
        let is = |other: &str| kind.eq_ignore_ascii_case(other);
        if is("mdf") || is("ndf") { Some(FileRole::Data) } else { is("ldf").then_some(FileRole::Log) }
    }
}

/// Finds the objects of the databases in a directory. A second file of a database (`.ndf`) has no
/// names in it; what lies there stays that file.
pub(super) async fn discover(source: &mut Source<'_>, server: Server, findings: Findings<'_>) {
    let Findings { application, drafts, .. } = findings;
    let mut evidence = Evidence { file: true, ..Evidence::default() };
    let (mut logs, mut temporary) = (Vec::new(), Vec::new());
    for file in server.files {
        if is_temporary(&file) {
            temporary.push(file);
            continue;
        }
        if FileRole::of(&file.path) == Some(FileRole::Log) {
            logs.push(file);
            continue;
        }
        let mut units = Units::default();
        let pages = source.read_names(&mut units, &[&file]).await;
        evidence.pages |= pages;
        let database = name_of(&file).to_owned();
        let domain = drafts.domain();
        let draft = |kind, name, key, evidence| Draft {
            database: Some(database.clone()),
            domain: Some(domain),
            ..Draft::new(application, kind, name, key, evidence)
        };
        let of_file = Evidence { file: true, pages, catalogue: false };
        let whole = draft(ObjectKind::Unknown, format!("{database}/data file"), Key::File(file.path.clone()), of_file);
        let bytes = file.bytes;
        let Some(within) = drafts.put(Draft { files: vec![(0, file)], bytes, ..whole }) else { continue };
        for name in units.names() {
            evidence.catalogue = true;
            let key = Key::Unit { database: database.clone(), unit: name.key.1 };
            let named = Evidence { catalogue: true, ..Evidence::default() };
            drafts.put(Draft { within: Some(within), ..draft(name.kind, name.full(Some(&database)), key, named) });
        }
    }
    drafts.put_kind(application, ObjectKind::Redo, logs);
    drafts.put_kind(application, ObjectKind::Temporary, temporary);
    drafts.applications[application].evidence = evidence;
}

/// Whether a file is of `tempdb`, which is made anew at each start of the server: `tempdb.mdf`,
/// `tempdb_mssql_2.ndf`, `templog.ldf`.
fn is_temporary(file: &DataFile) -> bool {
    let name = name_of(file).to_ascii_lowercase();
    name == "tempdb" || name == "templog" || name.starts_with("tempdb_mssql_")
}

/// The name of a database: that of its file without what follows the last point.
fn name_of(file: &DataFile) -> &str {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    name.rsplit_once('.').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_by_name() {
        let check = |name: &str, expected: Option<FileRole>| assert_eq!(FileRole::of(name), expected, "{name}");
        check("Shop.MDF", Some(FileRole::Data));
        check("Shop_2.ndf", Some(FileRole::Data));
        check("Shop_log.ldf", Some(FileRole::Log));
        check("Shop.mdf.bak", None);
        check("mdf", None);
    }
}
