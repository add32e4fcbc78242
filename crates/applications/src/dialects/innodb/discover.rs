//! MySQL and MariaDB: tablespaces, the names in them, and the logs beside them.
//!
//! The first page of a tablespace is never encrypted, and has its space id twice; its flags tell
//! the page size. Sources: `fsp0types.h` and `fsp0fsp.h` of both servers, `log0log.h` for the
//! creator that stands in the redo log.

use super::catalogue::Tables;
use super::files::FileRole;
use super::{doublewrite, name_of_table};
use crate::bytes::{be16, be32};
use crate::discovery::{Draft, Drafts, Evidence, Findings, Key, ObjectKind, Server, ServerNames, Source, in_line};
use crate::filesystems::DataFile;
use crate::naming::{Catalogue, Name};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a page that are looked at for its head: a block of the file system.
const HEAD_BYTES: u64 = 4096;
/// The system tablespace, and that of MySQL 8's dictionary.
const SYSTEM: u32 = 0;
const MYSQL: u32 = 0xffff_fffe;
/// `FIL_PAGE_TYPE_FSP_HDR`, and the types of pages that MySQL encrypted.
const HEADER: u16 = 8;
const ENCRYPTED: [u16; 3] = [15, 16, 17];

/// What the head of a tablespace says.
struct Head {
    space: u32,
    encrypted: bool,
    version: Option<String>,
}

/// A file of tables with what was found of it.
struct Space {
    file: DataFile,
    role: FileRole,
    head: Option<Head>,
}

/// Finds the objects of a server.
pub(super) async fn discover(source: &mut Source<'_>, server: Server, findings: Findings<'_>) {
    let Findings { application, drafts, told } = findings;
    let (mut system, mut spaces) = (Vec::new(), Vec::new());
    let mut others: BTreeMap<ObjectKind, Vec<DataFile>> = BTreeMap::new();
    let mut evidence = Evidence { file: true, ..Evidence::default() };
    let mut version = None;
    for file in server.files {
        let Some(role) = FileRole::of_file(&file) else { continue };
        let kind = match role {
            FileRole::System => {
                system.push(file);
                continue;
            }
            FileRole::Table | FileRole::Undo => {
                let head = head(source, &file).await;
                evidence.pages |= head.is_some();
                version = version.or_else(|| head.as_ref()?.version.clone());
                spaces.push(Space { file, role, head });
                continue;
            }
            FileRole::Redo => {
                version = source.file(&file, 0..512).await.as_deref().and_then(creator).or(version);
                ObjectKind::Redo
            }
            FileRole::Doublewrite => ObjectKind::Doublewrite,
            FileRole::Temporary => ObjectKind::Temporary,
            FileRole::Binlog => ObjectKind::Binlog,
        };
        others.entry(kind).or_default().push(file);
    }
    let mut names = names(source, &system, &spaces, &mut evidence).await;
    complete(&mut names, told);
    let taken_bytes = own_doublewrite(source, &mut system, &mut others).await;
    evidence.catalogue = !names.is_empty();
    let domain = drafts.domain();
    let mut add = Adding { drafts, application, domain, names };
    add.system(system, taken_bytes);
    add.spaces(spaces);
    for (kind, files) in others {
        add.drafts.put_kind(application, kind, files);
    }
    let found = &mut drafts.applications[application];
    (found.version, found.evidence) = (version, evidence);
}

/// Makes the areas of the doublewrite buffer in the system tablespace an object of their own, if it
/// has no files; their bytes.
async fn own_doublewrite(source: &mut Source<'_>, system: &mut [DataFile], others: &mut BTreeMap<ObjectKind, Vec<DataFile>>) -> u64 {
    let mut files = system.iter_mut().filter(|file| !is_mysql(file));
    let Some(first) = files.next().filter(|_| !others.contains_key(&ObjectKind::Doublewrite)) else { return 0 };
    let areas = doublewrite::areas(source, first).await;
    if areas.is_empty() {
        return 0;
    }
    let (left, taken) = doublewrite::without(first.clone(), &areas);
    *first = left;
    let bytes = taken.bytes;
    others.insert(ObjectKind::Doublewrite, vec![taken]);
    bytes
}

/// Whether a system tablespace is that of MySQL 8's dictionary.
fn is_mysql(file: &DataFile) -> bool {
    file.path.ends_with("mysql.ibd")
}

/// Bytes of a page, by the flags of a tablespace.
pub(super) fn page_bytes(flags: u32) -> u64 {
    let full_crc32 = flags & 0x10 != 0;
    let shift = if full_crc32 { flags & 0xf } else { flags >> 6 & 0xf };
    let compressed = if full_crc32 { 0 } else { flags >> 1 & 0xf };
    match (compressed, shift) {
        (1..=5, _) => 512 << compressed,
        (_, 3..=7) => 512 << shift,
        _ => 16384,
    }
}

/// The head of a tablespace; `None` where the file has none.
async fn head(source: &mut Source<'_>, file: &DataFile) -> Option<Head> {
    let first = source.file(file, 0..HEAD_BYTES).await?;
    let (space, flags) = (be32(&first, 34), be32(&first, 54));
    if be32(&first, 4) != 0 || be16(&first, 24) != HEADER || space != be32(&first, 38) || space == SYSTEM {
        return None;
    }
    let (full_crc32, page_bytes) = (flags & 0x10 != 0, page_bytes(flags));
    // MySQL has its own version where others have the page before.
    let version = match be32(&first, 8) {
        number @ 80_000..=99_999 => Some(format!("MySQL {}.{}.{}", number / 10_000, number / 100 % 100, number % 100)),
        _ => None,
    };
    // The fourth page is the root of the first index, or MySQL's description of the space.
    let fourth = source.file(file, 3 * page_bytes..3 * page_bytes + HEAD_BYTES).await.unwrap_or_default();
    let key_version = if full_crc32 { be32(&fourth, 0) } else { be32(&fourth, 26) };
    let encrypted = be32(&fourth, 4) == 3 && (ENCRYPTED.contains(&be16(&fourth, 24)) || key_version != 0 && be16(&fourth, 24) != 14);
    Some(Head { space, encrypted, version })
}

/// The server that made a redo log, from its first block: `MariaDB 10.11.6`.
fn creator(block: &[u8]) -> Option<String> {
    let text = block.get(16..48)?.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    let known = ["MariaDB ", "MySQL "].into_iter().any(|product| text.starts_with(product));
    (known && text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' ')).then(|| text.trim_end().to_owned())
}

/// Reads what holds names, and gives them by space and index.
async fn names(source: &mut Source<'_>, system: &[DataFile], spaces: &[Space], evidence: &mut Evidence) -> BTreeMap<(u32, u64), Name> {
    let mut tables = Tables::default();
    let in_clear = spaces.iter().filter(|space| space.head.as_ref().is_some_and(|head| !head.encrypted)).map(|space| &space.file);
    let files: Vec<&DataFile> = system.iter().chain(in_clear).collect();
    evidence.pages |= source.read_names(&mut tables, &files).await;
    tables.names().into_iter().map(|name| ((name.key.0, name.key.1), name)).collect()
}

/// Completes what a dictionary on the volume says by what the server says. What a dictionary calls its own is the same
/// by whoever tells it.
fn complete(names: &mut BTreeMap<(u32, u64), Name>, told: Option<&ServerNames>) {
    for (key, name) in told.into_iter().flat_map(|told| told.list().iter()) {
        if names.get(&key).is_none_or(|known| known.kind != ObjectKind::Dictionary) {
            names.insert(key, name.clone());
        }
    }
}

/// The names of a database and of a table in it.
type Table<'a> = (Option<&'a str>, Option<&'a str>);

struct Adding<'a> {
    drafts: &'a mut Drafts,
    application: usize,
    domain: u32,
    names: BTreeMap<(u32, u64), Name>,
}

impl Adding<'_> {
    fn draft(&self, kind: ObjectKind, name: String, key: Key, evidence: Evidence) -> Draft {
        Draft { domain: Some(self.domain), ..Draft::new(self.application, kind, name, key, evidence) }
    }

    /// The system tablespace, whose files follow each other, without so many bytes that are another
    /// object, and that of MySQL 8's dictionary.
    fn system(&mut self, files: Vec<DataFile>, taken_bytes: u64) {
        let (mysql, system): (Vec<_>, Vec<_>) = files.into_iter().partition(is_mysql);
        for (space, name, files, taken_bytes) in [(SYSTEM, "system tablespace", system, taken_bytes), (MYSQL, "mysql.ibd", mysql, 0)] {
            if files.is_empty() {
                continue;
            }
            let (files, bytes) = in_line(files);
            let evidence = Evidence { file: true, ..Evidence::default() };
            let bytes = bytes - taken_bytes;
            let draft = self.draft(ObjectKind::Dictionary, name.to_owned(), Key::Space(space), evidence);
            if let Some(within) = self.drafts.put(Draft { files, bytes, ..draft }) {
                self.within(space, within, None);
            }
        }
    }

    /// The files of tables, and undo tablespaces.
    fn spaces(&mut self, spaces: Vec<Space>) {
        // Of several files with one id, as a copy leaves them, the one that the dictionary means.
        let homes = self.homes(&spaces);
        for (position, Space { file, role, head }) in spaces.into_iter().enumerate() {
            let id = head.as_ref().map(|head| head.space).filter(|id| homes.get(id) == Some(&position));
            let encrypted = head.as_ref().is_some_and(|head| head.encrypted);
            let evidence = Evidence { file: true, pages: head.is_some(), catalogue: false };
            let (database, name) = of_path(&file.path);
            let key = id.map_or_else(|| Key::File(file.path.clone()), Key::Space);
            let bytes = file.bytes;
            let undo = role == FileRole::Undo;
            let mut draft = match undo {
                true => self.draft(ObjectKind::Undo, name, key, evidence),
                false => self.draft(ObjectKind::Table, table_name(database.as_deref(), &name), key, evidence),
            };
            draft.database = database.filter(|_| !undo);
            let clustered = id.and_then(|id| self.clustered(id));
            if let Some(((space, index), name)) = clustered {
                let (database, kind) = (name.database.clone(), name.kind);
                draft = Draft { database, kind, name: name.full(None), key: Key::Index { space, index }, ..draft };
                draft.evidence.catalogue = true;
            }
            let stands_for = clustered.map(|(key, _)| key);
            draft = Draft { files: vec![(0, file)], bytes, encrypted, ..draft };
            draft.domain = id.map(|_| self.domain);
            if let (Some(within), Some(id)) = (self.drafts.put(draft), id) {
                self.within(id, within, stands_for);
            }
        }
    }

    /// The positions of the files that are meant, by space.
    fn homes(&self, spaces: &[Space]) -> BTreeMap<u32, usize> {
        let mut homes = BTreeMap::new();
        // Thousands of files may say that they are of one space, which may have as many names.
        let mut meant: BTreeMap<u32, BTreeSet<Table<'_>>> = BTreeMap::new();
        for (position, space) in spaces.iter().enumerate() {
            let Some(id) = space.head.as_ref().map(|head| head.space) else { continue };
            let of_id = || self.of_space(id).map(|(_, name)| table_of(name)).collect();
            let names = &*meant.entry(id).or_insert_with(of_id);
            let (database, table) = of_path(&space.file.path);
            let fits = names.contains(&(database.as_deref(), Some(table.as_str())));
            if fits || !homes.contains_key(&id) {
                homes.insert(id, position);
            }
        }
        homes
    }

    /// The indexes of a space, but for the one that stands for its file.
    fn within(&mut self, space: u32, within: usize, without: Option<(u32, u64)>) {
        let of_space: Vec<_> =
            self.of_space(space).filter(|(key, _)| Some(*key) != without).map(|(key, name)| (key, name.clone())).collect();
        for ((space, index), name) in of_space {
            let evidence = Evidence { catalogue: true, ..Evidence::default() };
            let mut draft = self.draft(name.kind, name.full(None), Key::Index { space, index }, evidence);
            (draft.database, draft.within) = (name.database, Some(within));
            self.drafts.put(draft);
        }
    }

    fn of_space(&self, space: u32) -> impl Iterator<Item = ((u32, u64), &Name)> {
        self.names.range((space, 0)..=(space, u64::MAX)).map(|(key, name)| (*key, name))
    }

    /// The only clustered index of a space; a space of several tables has none that could stand
    /// for it.
    fn clustered(&self, space: u32) -> Option<((u32, u64), &Name)> {
        let mut clustered = self.of_space(space).filter(|(_, name)| name.kind != ObjectKind::Index);
        clustered.next().filter(|_| clustered.next().is_none())
    }
}

/// Database and table of a file, by its path.
fn of_path(path: &str) -> (Option<String>, String) {
    let path = path.strip_suffix(".ibd").unwrap_or(path);
    let mut parts = path.rsplit('/');
    match (parts.next(), parts.next()) {
        (Some(table), Some(database)) => name_of_table(&format!("{database}/{table}")),
        _ => (None, path.to_owned()),
    }
}

fn table_of(name: &Name) -> Table<'_> {
    (name.database.as_deref(), name.table.as_deref())
}

fn table_name(database: Option<&str>, table: &str) -> String {
    database.map_or_else(|| table.to_owned(), |database| format!("{database}.{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_made_a_redo_log() {
        let check = |text: &[u8], expected: Option<&str>| {
            let mut block = [0; 512];
            block[16..16 + text.len()].copy_from_slice(text);
            assert_eq!(creator(&block).as_deref(), expected);
        };
        check(b"MariaDB 10.11.6", Some("MariaDB 10.11.6"));
        check(b"MySQL 8.0.36", Some("MySQL 8.0.36"));
        check(b"MySQL \x1b[2J", None);
        check(b"something else", None);
        assert_eq!(creator(&[]), None);
    }
}
