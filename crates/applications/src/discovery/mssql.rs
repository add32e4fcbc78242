//! SQL Server: each data file names what is in it.

use super::found::{Evidence, Key, ObjectKind};
use super::innodb::feed;
use super::objects::{Draft, Drafts, kind_of};
use super::servers::Server;
use super::source::Source;
use crate::filesystems::{DataFile, Role};
use crate::naming::{Dictionary, NativeKey};
use crate::page::Engine;

/// Finds the objects of the databases in a directory. A second file of a database (`.ndf`) has no
/// names in it; what lies there stays that file.
pub(super) async fn discover(source: &mut Source<'_>, server: Server, application: usize, drafts: &mut Drafts) {
    let mut evidence = Evidence { file: true, ..Evidence::default() };
    let (mut logs, mut temporary) = (Vec::new(), Vec::new());
    for file in server.files {
        if is_temporary(&file) {
            temporary.push(file);
            continue;
        }
        if file.role == Role::MssqlLog {
            logs.push(file);
            continue;
        }
        let mut dictionary = Dictionary::new();
        let mut pages = false;
        if let Some(wanted) = dictionary.wants(&file) {
            pages = feed(source, &mut dictionary, &file, wanted.range, Engine::Mssql).await;
        }
        evidence.pages |= pages;
        let database = name_of(&file).to_owned();
        let domain = drafts.domain();
        let draft = |kind, name, key, evidence| Draft {
            application,
            database: Some(database.clone()),
            kind,
            name,
            key,
            within: None,
            files: Vec::new(),
            bytes: 0,
            encrypted: false,
            evidence,
            domain: Some(domain),
        };
        let of_file = Evidence { file: true, pages, catalogue: false };
        let whole = draft(ObjectKind::Unknown, format!("{database}/data file"), Key::File(file.path.clone()), of_file);
        let bytes = file.bytes;
        let Some(within) = drafts.put(Draft { files: vec![(0, file)], bytes, ..whole }) else { continue };
        for name in dictionary.names() {
            let NativeKey::Mssql(unit) = name.key else { continue };
            evidence.catalogue = true;
            let schema = name.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
            let index = name.index.as_ref().map_or_else(String::new, |index| format!("/{index}"));
            let text = format!("{database}/{schema}{}{index}", name.table.as_deref().unwrap_or("?"));
            let key = Key::Unit { database: database.clone(), unit };
            let named = Evidence { catalogue: true, ..Evidence::default() };
            drafts.put(Draft { within: Some(within), ..draft(kind_of(name.kind, Engine::Mssql), text, key, named) });
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
