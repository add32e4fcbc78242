//! SYS_TABLES and SYS_INDEXES: the dictionary of MariaDB, and of MySQL before 8.
//!
//! Two indexes of space 0 with fixed ids, in the redundant row format. Sources: `dict0boot.h` for
//! the columns, `rem0rec` for the records.

use super::file_name::as_written;
use super::{INDEX, Identity};
use crate::bytes::{be16, be32, be64, byte};
use crate::naming::{Name, NativeKey, ObjectKind, Rows};

/// The index ids of the dictionary's own tables.
const SYS_TABLES: u64 = 1;
const SYS_INDEXES: u64 = 3;
/// What the dictionary does not list: its own indexes.
const OWN: [(u64, &str, &str); 6] = [
    (1, "SYS_TABLES", "CLUST_IND"),
    (2, "SYS_COLUMNS", "CLUST_IND"),
    (3, "SYS_INDEXES", "CLUST_IND"),
    (4, "SYS_FIELDS", "CLUST_IND"),
    (5, "SYS_TABLES", "ID_IND"),
    // The change buffer (`DICT_IBUF_ID_MIN`).
    (0xffff_ffff_0000_0000, "SYS_IBUF_TABLE", "CLUST_IND"),
];
/// Where the system records of the redundant format lie.
const INFIMUM: usize = 101;
const SUPREMUM: usize = 116;
/// Records that a page can hold at most: a record has a header of 6 bytes and one for a field.
const RECORD_BYTES_MIN: usize = 7;
/// Bytes of a name: 64 characters of 5 bytes for each of database, table and partition, and some.
const NAME_BYTES_MAX: usize = 1024;
/// A name that is being made begins with this byte.
const UNFINISHED: u8 = 0xff;

#[derive(PartialEq, Eq, Debug)]
struct Index {
    table: u64,
    name: String,
    clustered: bool,
    space: u32,
    root: u32,
}

#[derive(Default, Debug)]
pub(super) struct Tables {
    /// Table id to its name, `database/table`.
    tables: Rows<u64, String>,
    indexes: Rows<u64, Index>,
}

impl Tables {
    /// Takes a page of the dictionary in.
    pub(super) fn page(&mut self, identity: &Identity, bytes: &[u8]) -> bool {
        let leaf = identity.page_type == INDEX && identity.level == Some(0) && identity.space == Some(0);
        let (page, lsn) = (u64::from(identity.page), identity.lsn);
        match identity.index {
            Some(SYS_TABLES) if leaf => {
                if !self.tables.begin(page, lsn) {
                    return false;
                }
                for record in records(bytes) {
                    if let (Some(name), Some(id)) = (text(record.field(0)), long(record.field(3))) {
                        self.tables.put(page, lsn, id, name);
                    }
                }
                true
            }
            Some(SYS_INDEXES) if leaf => {
                if !self.indexes.begin(page, lsn) {
                    return false;
                }
                for record in records(bytes) {
                    let Some((id, index)) = index_of(&record) else { continue };
                    self.indexes.put(page, lsn, id, index);
                }
                true
            }
            _ => false,
        }
    }

    /// Whether there is a central dictionary.
    pub(super) fn any(&self) -> bool {
        self.indexes.iter().next().is_some()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = Name> + '_ {
        let listed = self.indexes.iter().filter_map(|(id, index)| {
            let (database, table) = split(self.tables.get(index.table)?);
            let kind = if index.clustered { ObjectKind::Table } else { ObjectKind::Index };
            Some(Name {
                key: NativeKey(index.space, id),
                kind: if database.is_none() { ObjectKind::Dictionary } else { kind },
                database,
                schema: None,
                table: Some(table),
                index: Some(index.name.clone()),
                root: Some(index.root),
            })
        });
        let any = self.any();
        let own = OWN.into_iter().filter(move |_| any).map(|(id, table, index)| Name {
            key: NativeKey(0, id),
            database: None,
            schema: None,
            table: Some(table.to_owned()),
            index: Some(index.to_owned()),
            kind: ObjectKind::Dictionary,
            root: None,
        });
        own.chain(listed)
    }

    pub(super) fn conflicts(&self) -> u64 {
        self.tables.conflicts() + self.indexes.conflicts()
    }
}

fn index_of(record: &Record) -> Option<(u64, Index)> {
    let name = text(record.field(4))?;
    let index = Index {
        table: long(record.field(0))?,
        name,
        clustered: word(record.field(6))? & 1 != 0,
        space: word(record.field(7))?,
        root: word(record.field(8))?,
    };
    Some((long(record.field(1))?, index))
}

/// A record of the redundant format, by the place of its first field.
struct Record<'a> {
    page: &'a [u8],
    at: usize,
    fields: usize,
    short: bool,
}

impl<'a> Record<'a> {
    /// A field's bytes; `None` where it is null, stored elsewhere, or not inside the page.
    fn field(&self, index: usize) -> Option<&'a [u8]> {
        if index >= self.fields {
            return None;
        }
        // The ends of the fields stand before the header, backwards; with bits for null and
        // "elsewhere".
        let end = |index: usize| {
            if self.short {
                let end = byte(self.page, self.at.checked_sub(7 + index)?);
                Some((usize::from(end & 0x7f), end & 0x80 != 0))
            } else {
                let end = be16(self.page, self.at.checked_sub(8 + 2 * index)?);
                Some((usize::from(end & 0x3fff), end & 0xc000 != 0))
            }
        };
        let start = if index == 0 { 0 } else { end(index - 1)?.0 };
        let (end, not_here) = end(index)?;
        self.page.get(self.at + start..self.at + end).filter(|_| !not_here)
    }
}

/// The records of a page in key order, without those that are marked as deleted.
fn records(page: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut at = usize::from(be16(page, INFIMUM - 2));
    let compact = be16(page, 42) & 0x8000 != 0;
    let mut left = if compact { 0 } else { page.len() / RECORD_BYTES_MIN };
    std::iter::from_fn(move || {
        loop {
            if at <= SUPREMUM || at >= page.len() || left == 0 {
                return None;
            }
            left -= 1;
            let here = at;
            at = usize::from(be16(page, here - 2));
            if byte(page, here - 6) & 0x20 == 0 {
                let fields = usize::from(be16(page, here - 4) >> 1 & 0x3ff);
                return Some(Record { page, at: here, fields, short: byte(page, here - 3) & 1 != 0 });
            }
        }
    })
}

fn long(field: Option<&[u8]>) -> Option<u64> {
    field.filter(|field| field.len() == 8).map(|field| be64(field, 0))
}

fn word(field: Option<&[u8]>) -> Option<u32> {
    field.filter(|field| field.len() == 4).map(|field| be32(field, 0))
}

fn text(field: Option<&[u8]>) -> Option<String> {
    let field = field.filter(|field| !field.is_empty() && field.len() <= NAME_BYTES_MAX && field[0] != UNFINISHED)?;
    Some(std::str::from_utf8(field).ok()?.to_owned())
}

/// Database and table of `database/table`, as users write them.
pub(crate) fn split(name: &str) -> (Option<String>, String) {
    match name.split_once('/') {
        Some((database, table)) => (Some(as_written(database)), as_written(table)),
        None => (None, name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_users_write_them() {
        let check = |name: &str, database: Option<&str>, table: &str| {
            assert_eq!(split(name), (database.map(str::to_owned), table.to_owned()), "{name}");
        };
        check("shop/items", Some("shop"), "items");
        check("my@002dshop/caf@00e9", Some("my-shop"), "café");
        check("gesch@0kft/caf@0p", Some("geschäft"), "café");
        check("SYS_FOREIGN", None, "SYS_FOREIGN");
    }

    #[test]
    fn a_chain_of_records_that_bites_its_tail_ends() {
        let mut page = vec![0; 16384];
        page[99..101].copy_from_slice(&200u16.to_be_bytes());
        page[198..200].copy_from_slice(&200u16.to_be_bytes());
        assert!(records(&page).count() <= 16384 / RECORD_BYTES_MIN);
    }
}
